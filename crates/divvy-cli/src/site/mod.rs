//! `divvy site`: a batch system's accounts and users become currencies of this node's divvyd.
//!
//! Slurm's accounting stays the one place where shares are written. What it says is read whole and checked before anything
//! is asked of divvyd, and divvyd takes a table whole or not at all: whatever fails, the table before stays.

mod market;
mod slurm;
mod table;
mod usage;

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};
use divvy_api::site::{SITE_TICKETS, Site};

use crate::remote::json;
use crate::remote::which::{System, refused_by_system as refused};
use crate::{Code, Failure, print};

#[derive(Debug, ClapArgs)]
pub(crate) struct SiteArgs {
    #[command(subcommand)]
    command: SiteCommand,
}

#[derive(Debug, Subcommand)]
enum SiteCommand {
    /// Make currencies of Slurm's accounts and users, by their shares (RawShares): account over account over user
    Sync(SyncArgs),
    /// Say which table holds, and which currencies it made
    Show(ShowArgs),
    /// Have Slurm's fairshare charge what jobs used of their CPUs, not all that they were given: once a minute, beside Slurm's programs
    Usage(usage::UsageArgs),
    /// Match users' offers of tickets on one node for tickets on another, and see the exchanges through (runs until it is ended)
    Market(market::MarketArgs),
}

#[derive(Debug, ClapArgs)]
struct SyncArgs {
    /// Read the table from FILE instead of asking sacctmgr. Its lines are ACCOUNT|USER|PARENT|SHARES, as `sacctmgr -nP show
    /// assoc format=account,user,parentname,fairshare` prints them; those that begin with # are passed over
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cluster", "sacctmgr"])]
    table: Option<PathBuf>,

    /// Base tickets that all of the site's jobs have together, beside the users' own
    #[arg(long, value_name = "N", default_value_t = SITE_TICKETS, value_parser = clap::value_parser!(u64).range(1..=u64::from(u32::MAX)))]
    tickets: u64,

    /// Only the associations of this cluster of Slurm's
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,

    /// Where sacctmgr is
    #[arg(long, value_name = "PATH", default_value = "sacctmgr")]
    sacctmgr: PathBuf,

    /// Only check the table
    #[arg(long)]
    dry_run: bool,

    /// Print the answer (with --dry-run, the table) as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    system: System,
}

#[derive(Debug, ClapArgs)]
struct ShowArgs {
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    system: System,
}

/// `1 user`, `2 users`.
fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

pub(crate) fn run(args: &SiteArgs) -> Result<Code, Failure> {
    match &args.command {
        SiteCommand::Sync(args) => sync(args),
        SiteCommand::Show(args) => show(args),
        SiteCommand::Usage(args) => usage::run(args),
        SiteCommand::Market(args) => market::run(args),
    }
}

fn sync(args: &SyncArgs) -> Result<Code, Failure> {
    let (text, source) = match &args.table {
        Some(file) => {
            let text = std::fs::read_to_string(file);
            let text = text.map_err(|e| Failure::new(Code::File, format!("read {}: {e}", file.display())))?;
            (text, file.display().to_string())
        }
        None => (slurm::associations(&args.sacctmgr, args.cluster.as_deref())?, "sacctmgr".to_owned()),
    };
    let known = |name: &str| divvy_linux::user_id(name).or_else(|| name.parse().ok());
    let mut table = table::parse(&text, known)
        .map_err(|e| Failure::new(Code::File, format!("{source}, {e}; the table that holds stays")))?;
    table.tickets = args.tickets;
    let size = format!("{}, {}", count(table.accounts.len(), "account"), count(table.users.len(), "user"));
    if args.dry_run {
        print(if args.json { json(&table)? } else { format!("{source}: {size}; nothing was changed") })?;
        return Ok(Code::Done);
    }
    let api = args.system.api()?;
    table.version = api.site().map_err(refused)?.version + 1;
    let site = api.set_site(&table).map_err(refused)?;
    let changes = match site.changes {
        0 => "nothing has changed".to_owned(),
        n => count(n, "change"),
    };
    print(if args.json {
        json(&site)?
    } else {
        with_kept(format!("table {}: {size}, {changes}", site.version), &site)
    })?;
    Ok(Code::Done)
}

fn show(args: &ShowArgs) -> Result<Code, Failure> {
    let site = args.system.api()?.site().map_err(refused)?;
    if args.json {
        print(json(&site)?)?;
        return Ok(Code::Done);
    }
    let first = match (site.version, site.currencies.is_empty()) {
        (0, true) => "no table was given: see `divvy site sync`".to_owned(),
        (0, false) => "a table of an earlier divvyd's holds, which kept no versions".to_owned(),
        (version, _) => format!("table {version} holds"),
    };
    let lines = std::iter::once(first).chain(site.currencies.iter().map(|name| format!("  {name}")));
    print(with_kept(lines.collect::<Vec<_>>().join("\n"), &site))?;
    Ok(Code::Done)
}

/// What goes only when its last job has ended.
fn with_kept(mut text: String, site: &Site) -> String {
    for name in &site.kept {
        text.push_str(&format!(
            "\n{name}: not in the table any more; it ends with a table after its last job"
        ));
    }
    text
}
