//! A change of fairshare, pushed: `divvy site sync --watch` beside the controller, which reaches every node.

use std::collections::BTreeMap;
use std::process::Child;

use anyhow::{Context as _, Result, ensure};
use divvy_api::market::Currency;
use divvy_linux::clock;
use divvy_policy::Nanos;

use super::accounting::sacctmgr;
use super::quick::passed;
use super::site::{Node, Site, bounded, daemon, eventually, write};

const FILE: &str = "/tmp/nodes.toml";
const LYING: &str = "/tmp/lying.toml";
const DIVVY: &str = "/usr/local/bin/divvy";

/// `divvy site sync --watch`, or another that goes on beside the controller, until dropped.
pub(super) struct Watcher(Child);

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Watcher {
    /// Watches for all nodes.
    ///
    /// # Errors
    /// Where it does not start.
    pub(super) fn start(site: &Site) -> Result<Self> {
        Self::of(site, "site-sync", &["sync", "--watch"])
    }

    /// `divvy site WORDS`, which is told where all nodes are.
    ///
    /// # Errors
    /// Where it does not start.
    pub(super) fn of(site: &Site, log: &'static str, words: &[&str]) -> Result<Self> {
        let mut text = String::from("[nodes]\n");
        for node in site.nodes() {
            let (name, socket) = (&node.name, node.path("/run/divvy/api.sock"));
            text.push_str(&format!("{name} = \"{}\"\n", socket.display()));
        }
        write(FILE, &text)?;
        let mut command = std::process::Command::new(DIVVY);
        command.arg("site").args(words).args(["--nodes", FILE]);
        Ok(Self(daemon(log, &mut command)?))
    }
}

/// The part of cpu that each account's currency of a node was promised.
fn funded(node: &Node) -> Result<BTreeMap<String, f64>> {
    let of_site = |currency: Currency| {
        let account = currency.name.strip_prefix("root/site.")?.to_owned();
        Some((account, currency.standing.first()?.requested))
    };
    Ok(node.api()?.currencies()?.into_iter().filter_map(of_site).collect())
}

/// Whether science has `times` what arts has, on this node.
fn has(node: &Node, times: f64) -> Result<bool> {
    let funded = funded(node)?;
    let of = |account: &str| funded.get(account).copied();
    Ok(of("science")
        .zip(of("arts"))
        .is_some_and(|(science, arts)| (science / arts - times).abs() < 0.01 * times))
}

/// Sets the fairshare of science, and how long it takes from then until each node has it.
///
/// # Errors
/// Where a node never has it.
pub(super) fn change(site: &Site, shares: u32) -> Result<Vec<Nanos>> {
    sacctmgr(&format!("modify account science set fairshare={shares}"))?;
    let begun = clock::now();
    let mut took = vec![None; site.nodes().len()];
    eventually("a change of fairshare on every node", || {
        for (node, took) in site.nodes().iter().zip(&mut took) {
            if took.is_none() && has(node, f64::from(shares))? {
                *took = Some(clock::now().since(begun));
            }
        }
        Ok(took.iter().copied().collect::<Option<Vec<Nanos>>>())
    })
}

/// A change comes to every node, and again after a node's divvyd was away; a name that leads to another node gets no table.
pub(super) fn check(site: &mut Site) -> Result<()> {
    let _watcher = Watcher::start(site)?;
    for shares in [5, 2] {
        let took = change(site, shares)?;
        let took: Vec<String> = took.iter().map(|took| format!("{:.1}", took.0 as f64 / 1e9)).collect();
        println!("cluster: fairshare {shares}: on the nodes after {} s", took.join(", "));
    }
    site.node("n2")?.stop_divvyd()?;
    sacctmgr("modify account science set fairshare=7")?;
    eventually("the change on n1", || Ok(has(site.node("n1")?, 7.0)?.then_some(())))?;
    site.node("n2")?.start_divvyd()?;
    eventually("the change on n2, which was away", || Ok(has(site.node("n2")?, 7.0)?.then_some(())))?;
    let socket = site.node("n1")?.path("/run/divvy/api.sock");
    write(LYING, &format!("[nodes]\nn1 = \"{0}\"\nn2 = \"{0}\"\n", socket.display()))?;
    let refused = bounded(&[DIVVY, "site", "sync", "--nodes", LYING]).output().context("start divvy")?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(
        !refused.status.success() && said.contains("'s too: mend the socket"),
        "{}: {said}",
        refused.status
    );
    passed("a change of fairshare is pushed to every node, and a name that leads to another node is refused");
    Ok(())
}
