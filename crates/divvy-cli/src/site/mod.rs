//! `divvy site`: a batch system's accounts and users become currencies of this node's divvyd.
//!
//! Slurm's accounting stays the one place where shares are written. What it says is read whole and checked before anything
//! is asked of divvyd, and divvyd takes a table whole or not at all: whatever fails, the table before stays.

mod market;
mod nodes;
mod slurm;
mod sync;
mod table;
mod usage;

use clap::{Args as ClapArgs, Subcommand};
use divvy_api::site::Site;

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
    Sync(sync::SyncArgs),
    /// Say which table holds, and which currencies it made
    Show(ShowArgs),
    /// Have Slurm's fairshare charge what jobs used of their CPUs, not all that they were given: once a minute, beside Slurm's programs
    Usage(usage::UsageArgs),
    /// Match users' offers of tickets on one node for tickets on another, and see the exchanges through (runs until it is ended)
    Market(market::MarketArgs),
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
        SiteCommand::Sync(args) => sync::run(args),
        SiteCommand::Show(args) => show(args),
        SiteCommand::Usage(args) => usage::run(args),
        SiteCommand::Market(args) => market::run(args),
    }
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
