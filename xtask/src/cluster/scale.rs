//! A site of many nodes on this one machine, each with a slurmd, a divvyd and a job that sleeps.

use anyhow::{Context as _, Result};
use divvy_linux::clock;
use divvy_policy::Nanos;

use super::accounting::sacctmgr;
use super::measure::row;
use super::push::{self, Watcher};
use super::quick::submit;
use super::site::{Node, Site, eventually};

/// Nodes, if nothing else is asked for.
pub(crate) const NODES: u32 = 200;
/// For how long it is looked what all divvyd use while nothing happens.
const QUIET: Nanos = Nanos::from_secs(20);
/// Changes of fairshare.
const CHANGES: u32 = 10;

/// Measures it: a change of fairshare, until each node has it, and what the nodes' divvyd cost.
///
/// # Errors
/// What cannot be measured.
pub(super) fn run(site: &mut Site) -> Result<()> {
    const PAYERS: [(&str, &str); 2] = [("science", "alice"), ("arts", "carol")];
    for (account, user) in PAYERS {
        sacctmgr(&format!("add account {account} fairshare=1"))?;
        sacctmgr(&format!("add user {user} account={account} fairshare=1"))?;
    }
    for node in site.nodes() {
        node.set_plugin("accounts=yes")?;
    }
    let watcher = Watcher::start(site)?;
    // Every node has the accounts before it has a job of theirs.
    let first = push::change(site, 2)?;
    for (node, (account, user)) in site.nodes().iter().zip(PAYERS.iter().cycle()) {
        submit(user, &node.name, &["-A", account], "exec sleep infinity")?;
    }
    for node in site.nodes() {
        eventually(
            "a client on each node",
            || Ok((node.api()?.clients()?.clients.len() == 1).then_some(())),
        )?;
    }
    println!("cluster: {} nodes with a job each", site.nodes().len());
    record(0, site, &first)?;
    for run in 1..=CHANGES {
        let took = push::change(site, 2 + run)?;
        record(run, site, &took)?;
        // At another moment of its looks each time.
        clock::sleep(Nanos::from_millis(1000 + 137 * u64::from(run)));
    }
    drop(watcher);
    cost(site)
}

fn record(run: u32, site: &Site, took: &[Nanos]) -> Result<()> {
    let of = |(node, took): (&Node, &Nanos)| row("scale", run, &node.name, took.0 as f64 / 1e9, None);
    site.nodes().iter().zip(took).try_for_each(of)
}

/// What each node's divvyd uses of a CPU while nothing happens, and its memory in MB.
fn cost(site: &Site) -> Result<()> {
    let pid = |node: &Node| node.divvyd().context("a divvyd");
    let used = || -> Result<Vec<Nanos>> {
        let used = |node| clock::process_cpu(pid(node)?)?.context("it lives");
        site.nodes().iter().map(used).collect()
    };
    let (before, since) = (used()?, clock::now());
    clock::sleep(QUIET);
    let (after, window) = (used()?, clock::now().since(since));
    for ((node, then), now) in site.nodes().iter().zip(before).zip(after) {
        row("cost", 0, &node.name, (now.0 - then.0) as f64 / window.0 as f64, None)?;
        let status = std::fs::read_to_string(format!("/proc/{}/status", pid(node)?)).context("it lives")?;
        let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.strip_suffix("kB"));
        let kilobytes: f64 = kilobytes.context("VmRSS")?.trim().parse().context("a number")?;
        row("memory", 0, &node.name, kilobytes / 1e3, None)?;
    }
    Ok(())
}
