//! What Slurm's fairshare charges beside what jobs used: `divvy site usage`.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use divvy_linux::clock;
use divvy_policy::Nanos;

use super::accounting::sacctmgr;
use super::quick::{books, cancel, hog, passed};
use super::site::{Site, bounded, done, eventually};

/// Users and their accounts.
const PAYERS: [(&str, &str); 3] = [("alice", "science"), ("bob", "science"), ("carol", "arts")];
/// How far a user's charge for a minute may be from what its job used: Slurm tells that in whole seconds, some seconds late.
const MAX_ERROR_S: f64 = 6.0;
/// How often is looked.
const EVERY: Nanos = Nanos::from_secs(5);
const LOOK: [&str; 5] = ["/usr/local/bin/divvy", "site", "usage", "--state", "/tmp/site-usage.json"];

/// Three jobs on one CPU are charged what they used, not three times as much.
///
/// # Errors
/// What does not hold.
pub(super) fn run(site: &mut Site) -> Result<()> {
    for words in [
        "add account science fairshare=3",
        "add account arts fairshare=1",
        "add user alice account=science fairshare=1",
        "add user bob account=science fairshare=2",
        "add user carol account=arts fairshare=1",
    ] {
        sacctmgr(words)?;
    }
    let node = site.node("n3")?;
    node.set_plugin("accounts=yes")?;
    done(&mut node.command(&["divvy", "site", "sync"]))?;
    let with = |word: &str| done(bounded(&LOOK).arg(word));
    let made = with("--prepare")?;
    ensure!(made.starts_with("3 QOS made"), "{made}");
    let again = with("--prepare")?;
    ensure!(again.starts_with("0 QOS made"), "{again}");
    let jobs: Vec<u32> =
        PAYERS.iter().map(|(user, account)| hog(user, "n3", &["-A", account])).collect::<Result<_>>()?;
    eventually("jobs that run", || Ok((books(&jobs)?.len() == jobs.len()).then_some(())))?;
    // From one time that Slurm charges to the next is a minute.
    let first = next_charge(&charged()?)?;
    let (begin, since) = (books(&jobs)?, clock::now());
    let second = next_charge(&first)?;
    let (end, window) = (books(&jobs)?, clock::now().since(since));
    let mut off: f64 = 0.0;
    for (job, payer) in jobs.iter().zip(PAYERS) {
        let of =
            |books: &BTreeMap<u32, u64>| books.get(job).map(|ns| *ns as f64 / 1e9).context("a job has ended");
        let used = of(&end)? - of(&begin)?;
        let of = |charges: &BTreeMap<String, f64>| charges.get(payer.0).copied().unwrap_or_default();
        let charged = of(&second) - of(&first);
        println!(
            "cluster: {}: used {used:.1} s of {:.0}, charged {charged:.0} s",
            payer.0,
            window.0 as f64 / 1e9
        );
        off = off.max((charged - used).abs());
    }
    ensure!(off <= MAX_ERROR_S, "a charge is {off:.1} s off what was used");
    cancel(site.node("n3")?, &jobs)?;
    // Slurm keeps a QOS for as long as a job has it.
    let removed = eventually("an end of the jobs", || Ok(with("--remove").ok()))?;
    ensure!(removed.starts_with("3 QOS removed"), "{removed}");
    let left = sacctmgr("show qos format=name")?;
    ensure!(!left.contains("divvy-"), "left: {left}");
    passed("fairshare charges three jobs on one CPU what they used");
    println!("cluster: usage goes back");
    Ok(())
}

/// What Slurm has charged each user, CPU seconds.
fn charged() -> Result<BTreeMap<String, f64>> {
    let text = done(&mut bounded(&["sshare", "-a", "-n", "-P", "-o", "user,rawusage"]))?;
    let line = |line: &str| {
        let (user, raw) = line.trim().split_once('|')?;
        (!user.is_empty()).then(|| Some((user.to_owned(), raw.parse().ok()?)))?
    };
    Ok(text.lines().filter_map(line).collect())
}

/// Looks every some seconds, as `cron` would every minute, until Slurm has charged everybody anew.
fn next_charge(before: &BTreeMap<String, f64>) -> Result<BTreeMap<String, f64>> {
    let (begun, mut looked) = (clock::now(), clock::now());
    loop {
        let now = charged()?;
        if PAYERS.iter().all(|(user, _)| now.get(*user) > before.get(*user)) {
            return Ok(now);
        }
        ensure!(clock::now().since(begun) < Nanos::from_secs(90), "nobody was charged for 90 s: {now:?}");
        if clock::now().since(looked) >= EVERY {
            looked = clock::now();
            done(&mut bounded(&LOOK))?;
        }
        clock::sleep(Nanos::from_millis(200));
    }
}
