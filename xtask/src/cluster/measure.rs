//! What is measured on a site: shares, what a start costs, how long a change takes. Its rows are data of `paper/cluster.rs`.

use anyhow::{Result, ensure};
use divvy_linux::clock;
use divvy_policy::Nanos;
use serde::{Deserialize, Serialize};

use super::accounting::sacctmgr;
use super::push::{self, Watcher};
use super::quick::{cancel, hog, used, wait_for};
use super::site::{NODES, Node, Site, as_user, bounded, done, eventually};

/// Before each row, on standard output.
pub(crate) const ROW: &str = "cluster-row: ";
/// Whoever began first ran alone, and what it had too much is taken back first. CPU time of all jobs.
const SETTLE: Nanos = Nanos::from_secs(6);

/// One number; a row of the data.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    /// `shares`, `fairshare`, `exchange`, `start`, `push`, `scale`, `cost` or `memory`.
    pub(crate) part: String,
    /// Of which run of the part.
    pub(crate) run: u32,
    /// Whose, of what.
    pub(crate) who: String,
    /// A fraction of the jobs' CPU time, or seconds.
    pub(crate) value: f64,
    /// What is due, if anything is.
    pub(crate) due: Option<f64>,
}

pub(super) fn row(part: &str, run: u32, who: &str, value: f64, due: Option<f64>) -> Result<()> {
    let row = Row { part: part.to_owned(), run, who: who.to_owned(), value, due };
    println!("{ROW}{}", serde_json::to_string(&row)?);
    Ok(())
}

/// All of it, each number as a line.
///
/// # Errors
/// What cannot be measured.
pub(super) fn run(site: &mut Site, quick: bool) -> Result<()> {
    let (runs, window) = if quick { (1, Nanos::from_secs(5)) } else { (5, Nanos::from_secs(30)) };
    for run in 0..runs {
        shares(site, run, window)?;
    }
    accounts(site, runs, window)?;
    exchange(site, runs, window)?;
    starts(site, if quick { 3 } else { 60 })?;
    pushes(site, if quick { 2 } else { 20 })
}

/// What each job gets of the CPU time of all of them, while they have `window` of it.
fn parts(part: &str, run: u32, window: Nanos, jobs: &[(String, u32, f64)]) -> Result<()> {
    let numbers: Vec<u32> = jobs.iter().map(|(_, job, _)| *job).collect();
    let (used, _) = used(&numbers, SETTLE, window)?;
    let all: f64 = used.iter().sum();
    jobs.iter().zip(used).try_for_each(|((who, _, due), used)| row(part, run, who, used / all, Some(*due)))
}

fn start(node: &Node, name: &str, users: &[(&str, &[&str])]) -> Result<Vec<(String, u32)>> {
    let job = |(user, options): &(&str, &[&str])| Ok(((*user).to_owned(), hog(user, name, options)?));
    let jobs: Vec<(String, u32)> = users.iter().map(job).collect::<Result<_>>()?;
    wait_for(node, &jobs)?;
    Ok(jobs)
}

fn numbers(jobs: &[(String, u32)]) -> Vec<u32> {
    jobs.iter().map(|(_, job)| *job).collect()
}

fn due(jobs: &[(String, u32)], parts: &[f64]) -> Vec<(String, u32, f64)> {
    jobs.iter().zip(parts).map(|((who, job), part)| (who.clone(), *job, *part)).collect()
}

/// Two jobs of two users at 1:3.
fn shares(site: &mut Site, run: u32, window: Nanos) -> Result<()> {
    let node = site.node("n1")?;
    let jobs = start(node, "n1", &[("alice", &[]), ("bob", &[])])?;
    parts("shares", run, window, &due(&jobs, &[0.25, 0.75]))?;
    cancel(node, &numbers(&jobs))
}

/// Three accounts at 3:2:1 with a user each, divided by their fairshare.
fn accounts(site: &mut Site, runs: u32, window: Nanos) -> Result<()> {
    const ACCOUNTS: [(&str, &str, u32); 3] =
        [("science", "alice", 3), ("law", "bob", 2), ("arts", "carol", 1)];
    for (account, user, shares) in ACCOUNTS {
        sacctmgr(&format!("add account {account} fairshare={shares}"))?;
        sacctmgr(&format!("add user {user} account={account} fairshare=1"))?;
    }
    for name in NODES {
        done(&mut site.node(name)?.command(&["divvy", "site", "sync"]))?;
    }
    let node = site.node("n3")?;
    node.set_plugin("accounts=yes")?;
    for run in 0..runs {
        let users: Vec<(&str, [&str; 2])> =
            ACCOUNTS.iter().map(|(account, user, _)| (*user, ["-A", *account])).collect();
        let users: Vec<(&str, &[&str])> = users.iter().map(|(user, of)| (*user, &of[..])).collect();
        let jobs = start(node, "n3", &users)?;
        parts("fairshare", run, window, &due(&jobs, &[1.0 / 2.0, 1.0 / 3.0, 1.0 / 6.0]))?;
        cancel(node, &numbers(&jobs))?;
    }
    node.set_plugin("")
}

/// Alice gives bob 300 tickets of n1 for as many of n2; on n1 they and carol, who takes no part, have a job each.
fn exchange(site: &mut Site, runs: u32, window: Nanos) -> Result<()> {
    const GIVEN: u32 = 300;
    // What the policy of n1 gives them, and what each has of it then.
    let wanted = [("alice", 1000 - GIVEN), ("bob", 3000 + GIVEN), ("carol", 1000)];
    let dealer = Watcher::of(site, "site-market", &["market", "--log", "/tmp/site-market.log"])?;
    done(&mut bounded(&["install", "-d", "-m", "1777", "/var/spool/divvy"]))?;
    for (user, gives, wants) in [("alice", "n1", "n2"), ("bob", "n2", "n1")] {
        let line = format!("echo 'cpu:{GIVEN}@{gives} for cpu:{GIVEN}@{wants}' > /var/spool/divvy/{user}");
        let wrote = as_user(user, &["sh", "-c", &line])?;
        ensure!(wrote.status.success(), "{user}: {}", String::from_utf8_lossy(&wrote.stderr));
    }
    let all: u32 = wanted.iter().map(|(_, tickets)| tickets).sum();
    let dues = wanted.map(|(_, tickets)| f64::from(tickets) / f64::from(all));
    let node = site.node("n1")?;
    for run in 0..runs {
        let jobs = start(node, "n1", &wanted.map(|(user, _)| (user, &[][..])))?;
        eventually("an exchange in effect", || {
            let listed = done(&mut node.command(&["divvy", "currency", "ls"]))?;
            Ok(listed.contains("bob/exchange.").then_some(()))
        })?;
        parts("exchange", run, window, &due(&jobs, &dues))?;
        cancel(node, &numbers(&jobs))?;
    }
    drop(dealer);
    done(&mut bounded(&["rm", "-r", "/var/spool/divvy"]))?;
    Ok(())
}

/// `srun true` with the plugin and without, by turns; the first of each is not counted.
fn starts(site: &mut Site, times: u32) -> Result<()> {
    const PLUGSTACK: &str = "/mnt/nodes/n2/slurm/plugstack.conf";
    for run in 0..=times {
        for (who, with) in [("with the plugin", true), ("without", false)] {
            if with {
                site.node("n2")?.set_plugin("")?;
            } else {
                super::site::write(PLUGSTACK, "")?;
            }
            let begun = clock::now();
            let ran = as_user("alice", &["srun", "-Q", "-w", "n2", "true"])?;
            let took = clock::now().since(begun);
            ensure!(ran.status.success(), "srun true: {}", String::from_utf8_lossy(&ran.stderr));
            if run > 0 {
                row("start", run, who, took.0 as f64 / 1e9, None)?;
            }
            // Until the node is idle again, the next would wait for it.
            done(
                bounded(&["sh", "-c", "until [ -z \"$(squeue -h -w n2)\" ]; do sleep .05; done"]).arg("sh"),
            )?;
        }
    }
    site.node("n2")?.set_plugin("")
}

/// A change of fairshare, until each node has it.
fn pushes(site: &mut Site, times: u32) -> Result<()> {
    let _watcher = Watcher::start(site)?;
    for run in 0..times {
        let took = push::change(site, 4 + run % 7)?;
        for (name, took) in NODES.into_iter().zip(took) {
            row("push", run, name, took.0 as f64 / 1e9, None)?;
        }
        // At another moment of its looks each time.
        clock::sleep(Nanos::from_millis(3000 + 137 * u64::from(run)));
    }
    Ok(())
}
