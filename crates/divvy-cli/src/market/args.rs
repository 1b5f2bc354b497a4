//! The command lines of the market.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand};
use divvy_api::market::Give;
use divvy_market::Resource;

use crate::remote::which::{Ask, System};

/// The largest amount of a ticket.
const AMOUNT_MAX: u64 = u32::MAX as u64;

/// The largest bound on the amounts of many, which the policy file takes too.
const BOUND_MAX: u64 = i64::MAX as u64;

/// An amount of tickets.
fn amount(text: &str) -> Result<u64, String> {
    let said = || format!("an amount is a whole number from 1 to {AMOUNT_MAX}");
    text.parse().ok().filter(|n| (1..=AMOUNT_MAX).contains(n)).ok_or_else(said)
}

/// What many tickets may come to.
fn most(text: &str) -> Result<u64, String> {
    let said = || format!("a bound is a whole number from 1 to {BOUND_MAX}");
    text.parse().ok().filter(|n| (1..=BOUND_MAX).contains(n)).ok_or_else(said)
}

/// From where on the audit log is told.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Since {
    /// From this entry on, by its number.
    Entry(u64),
    /// Of the last so long.
    Time(Duration),
}

fn since(text: &str) -> Result<Since, String> {
    if let Ok(number) = text.parse() {
        return Ok(Since::Entry(number));
    }
    divvy_api::time::parse(text).map(Since::Time).map_err(|_| {
        "write a time, as in --since 1h, or the number of an entry, which its line begins with, as in --since 120".to_owned()
    })
}

fn resource(text: &str) -> Result<Resource, String> {
    text.parse().map_err(|_| "a resource is one of cpu, memory, disk".to_owned())
}

/// `disk:50`.
fn give(text: &str) -> Result<Give, String> {
    let (of, number) = text.split_once(':').ok_or("give a resource and an amount, such as disk:50")?;
    Ok(Give { resource: resource(of)?, amount: amount(number)? })
}

/// `cpu:500`, or `cpu:none`.
fn bound(text: &str) -> Result<(Resource, Option<u64>), String> {
    let (of, number) =
        text.split_once(':').ok_or("give a resource and an amount, such as cpu:500 or cpu:none")?;
    let bound = match number {
        "none" => None,
        "0" => return Err(format!("a bound is 1 or more; {of}:none lets the user issue none")),
        number => Some(most(number)?),
    };
    Ok((resource(of)?, bound))
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CurrencyArgs {
    #[command(subcommand)]
    pub(crate) command: CurrencyCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CurrencyCommand {
    /// Make a currency of your own
    Create(CreateArgs),
    /// List the currencies and clients: whose they are, who may do what, and what they come to
    Ls(CurrenciesArgs),
    /// Draw who is backed by whom, with shares requested, effective and achieved
    Tree(TreeArgs),
    /// End a currency, and with it every ticket that it issued or holds
    Destroy(DestroyArgs),
    /// Set who may fund, change and issue: by a mode
    Chmod(ChmodArgs),
    /// Give a currency to another user or group
    Chown(ChownArgs),
    /// Say how many hard tickets are the whole of a currency's rights (1000 if not set)
    HardTotal(HardTotalArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CreateArgs {
    /// Its name among yours: 1 to 64 letters, digits, '-', '_' and '.', not only digits
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    /// Who may fund it (f, 4), change it (c, 2) and issue its tickets (i, 1): you, its group, all others. 740, fcif----- [default: 700]
    #[arg(long, value_name = "MODE")]
    pub(crate) mode: Option<String>,

    /// Its group, by name or number; your first one if not given
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Option<String>,

    #[command(flatten)]
    pub(crate) ask: Ask<System>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CurrenciesArgs {
    /// The shares of this resource: cpu, memory or disk
    #[arg(long, value_name = "RESOURCE", default_value = "cpu", value_parser = resource)]
    pub(crate) resource: Resource,

    #[command(flatten)]
    pub(crate) ask: Ask<System>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct TreeArgs {
    /// Only this currency and what it backs; everything, from the base on, if not given
    #[arg(value_name = "CURRENCY")]
    pub(crate) currency: Option<String>,

    /// The tickets of this resource: cpu, memory or disk
    #[arg(long, value_name = "RESOURCE", default_value = "cpu", value_parser = resource)]
    pub(crate) resource: Resource,

    /// Print it for Graphviz
    #[arg(long, conflicts_with_all = ["svg", "json"])]
    pub(crate) dot: bool,

    /// Draw it as an SVG picture
    #[arg(long, conflicts_with = "json")]
    pub(crate) svg: bool,

    /// Write to FILE instead of standard output
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Show the ids of tickets too, as `divvy unfund` takes them
    #[arg(long, conflicts_with_all = ["dot", "svg", "json"])]
    pub(crate) ids: bool,

    /// Draw the lines of the tree with ASCII only
    #[arg(long)]
    pub(crate) ascii: bool,

    #[command(flatten)]
    pub(crate) ask: Ask<System>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DestroyArgs {
    /// Which one. Several are ended one by one, and what is refused for one is done for the others all the same
    #[arg(value_name = "CURRENCY", required = true)]
    pub(crate) currencies: Vec<String>,

    #[command(flatten)]
    pub(crate) ask: Ask<System>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ChmodArgs {
    /// Fund (f, 4), change (c, 2), issue (i, 1) for the owner, the group and all others: 740, fcif-----
    #[arg(value_name = "MODE")]
    pub(crate) mode: String,

    /// Which one
    #[arg(value_name = "CURRENCY")]
    pub(crate) currency: String,

    #[command(flatten)]
    pub(crate) ask: Ask<System>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ChownArgs {
    /// The new owner, with or without a new group: alice, alice:staff, :staff
    #[arg(value_name = "USER[:GROUP]")]
    pub(crate) owner: String,

    /// Which one
    #[arg(value_name = "CURRENCY")]
    pub(crate) currency: String,

    #[command(flatten)]
    pub(crate) ask: Ask<System>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct HardTotalArgs {
    /// Which one
    #[arg(value_name = "CURRENCY")]
    pub(crate) currency: String,

    /// Of which resource, and how many: cpu:2000
    #[arg(value_name = "RESOURCE:AMOUNT", value_parser = give)]
    pub(crate) total: Give,

    #[command(flatten)]
    pub(crate) ask: Ask<System>,
}

/// `fund` and `reserve`.
#[derive(Debug, ClapArgs)]
pub(crate) struct FundArgs {
    /// Who gets the ticket
    #[arg(value_name = "HOLDER")]
    pub(crate) holder: String,

    /// Whose ticket it is
    #[arg(long, value_name = "ISSUER")]
    pub(crate) from: String,

    /// What it gives a right to: cpu, memory or disk
    #[arg(long, value_name = "RESOURCE", default_value = "cpu", value_parser = resource)]
    pub(crate) resource: Resource,

    /// How many it stands for, 1 to 4294967295. Soft: a part of all the issuer's soft tickets whose holders compete. Hard
    /// (reserve): a part of the issuer's hard total (1000 if not set)
    #[arg(value_name = "AMOUNT", value_parser = amount)]
    pub(crate) amount: u64,

    #[command(flatten)]
    pub(crate) ask: Ask<System>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct UnfundArgs {
    /// The ticket's id, as `divvy fund` and `divvy market explain` print it; with --from, whoever holds it. Several are taken one by
    /// one, and what is refused for one is done for the others all the same
    #[arg(value_name = "TICKET|HOLDER", required = true)]
    pub(crate) tickets: Vec<String>,

    /// Whose ticket it is; the only one of the resource that the holder has of it
    #[arg(long, value_name = "ISSUER")]
    pub(crate) from: Option<String>,

    /// What it gives a right to: cpu, memory or disk
    #[arg(long, value_name = "RESOURCE", default_value = "cpu", value_parser = resource, requires = "from")]
    pub(crate) resource: Resource,

    /// All of them, where there are several
    #[arg(long, requires = "from")]
    pub(crate) all: bool,

    #[command(flatten)]
    pub(crate) ask: Ask<System>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ExchangeArgs {
    #[command(subcommand)]
    pub(crate) command: ExchangeCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ExchangeCommand {
    /// Offer rights for others: exchanged at once with whoever offered exactly the complement, else the offer waits
    Offer(OfferArgs),
    /// List the exchanges that hold, and the offers that wait
    Ls(ExchangesArgs),
    /// End an exchange, or withdraw an offer
    Cancel(CancelArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct OfferArgs {
    /// What you give, in base tickets: disk:50
    #[arg(long, value_name = "RESOURCE:AMOUNT", value_parser = give)]
    pub(crate) give: Give,

    /// What you want for it: memory:20
    #[arg(long, value_name = "RESOURCE:AMOUNT", value_parser = give)]
    pub(crate) want: Give,

    /// How long the offer waits: 10m, 2h. Until it is withdrawn if not given
    #[arg(long = "for", value_name = "TIME", value_parser = divvy_api::time::parse)]
    pub(crate) wait: Option<Duration>,

    /// For which of your currencies or clients; your own currency if not given
    #[arg(long, value_name = "CURRENCY")]
    pub(crate) party: Option<String>,

    #[command(flatten)]
    pub(crate) ask: Ask<System>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ExchangesArgs {
    #[command(flatten)]
    pub(crate) ask: Ask<System>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CancelArgs {
    /// The number of the exchange, as `divvy exchange ls` has it. Several are ended one by one, and what is refused for one is done
    /// for the others all the same
    #[arg(value_name = "ID", required = true)]
    pub(crate) ids: Vec<u64>,

    /// They are numbers of offers
    #[arg(long)]
    pub(crate) offer: bool,

    #[command(flatten)]
    pub(crate) ask: Ask<System>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct NiceArgs {
    /// Which client
    #[arg(value_name = "CLIENT")]
    pub(crate) client: String,

    /// How many base tickets it is to have, from now on, of those that its currency has
    #[arg(value_name = "AMOUNT", value_parser = amount)]
    pub(crate) amount: u64,

    /// Whose tickets it holds; your own currency if not given, and where an administrator asks that of the client's user
    #[arg(long, value_name = "CURRENCY")]
    pub(crate) from: Option<String>,

    /// Of which resource: cpu, memory or disk
    #[arg(long, value_name = "RESOURCE", default_value = "cpu", value_parser = resource)]
    pub(crate) resource: Resource,

    #[command(flatten)]
    pub(crate) ask: Ask<System>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct MarketArgs {
    #[command(subcommand)]
    pub(crate) command: MarketCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MarketCommand {
    /// Say where the value of a client or currency comes from, ticket by ticket
    Explain(ExplainArgs),
    /// Print who did what: all of it for superusers, what you did for you
    Audit(AuditArgs),
    /// Say how many base tickets a user may issue (superusers)
    Bound(BoundArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ExplainArgs {
    /// Which client or currency
    #[arg(value_name = "CLIENT")]
    pub(crate) client: String,

    /// Of which resource: cpu, memory or disk
    #[arg(long, value_name = "RESOURCE", default_value = "cpu", value_parser = resource)]
    pub(crate) resource: Resource,

    #[command(flatten)]
    pub(crate) ask: Ask<System>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct AuditArgs {
    /// Only of the last so long: 1h, 7days; or from this entry on, by its number, which its line begins with [default: all]
    #[arg(long, value_name = "TIME|N", value_parser = since)]
    pub(crate) since: Option<Since>,

    /// Only what this user has asked for, by name or number
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,

    #[command(flatten)]
    pub(crate) ask: Ask<System>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct BoundArgs {
    /// Who, by name or number
    #[arg(value_name = "USER")]
    pub(crate) user: String,

    /// Of which resource, and at most how many: cpu:500; cpu:none takes the permission back
    #[arg(value_name = "RESOURCE:AMOUNT", value_parser = bound)]
    pub(crate) bound: (Resource, Option<u64>),

    #[command(flatten)]
    pub(crate) ask: Ask<System>,
}
