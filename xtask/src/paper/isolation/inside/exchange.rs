//! A task that computes gives disk for the CPU of one that reads (Figs 9 and 10).

use anyhow::Result;
use divvy_linux::cgroup::room::IO_WEIGHT;
use divvy_linux::clock;
use divvy_policy::Nanos;
use serde::{Deserialize, Serialize};

use super::{IOPS, Site, disk::FILE, divvy, eventually, simulated_disks};
use crate::client::number;

/// Two that compute and five that read. The first of each exchange.
const COMPUTE: usize = 2;
const READ: usize = 5;
/// Tickets of each task, of each resource, from the base.
pub(in super::super) const TICKETS: u64 = 1000;
/// After a change, before anything is measured, s.
const SETTLE: u64 = 2;

/// What came of one exchange.
#[derive(Debug, Serialize, Deserialize)]
pub(in super::super) struct Part {
    /// Tickets that were exchanged each way.
    pub(in super::super) tickets: u64,
    /// What each task did: the two that compute, then the five that read.
    pub(in super::super) done: Vec<u64>,
    /// Their parts of the CPU time that all seven had.
    pub(in super::super) cpu: Vec<f64>,
    /// Their parts of the bytes that all seven read.
    pub(in super::super) disk: Vec<f64>,
    /// Where the first that reads had less of the disk than it traded for: the part of these bytes that it reads alone on the disk,
    /// with as much CPU time as it had.
    pub(in super::super) alone: Option<f64>,
}

impl Part {
    /// A party's part of a resource by its tickets.
    pub(in super::super) fn due(&self) -> f64 {
        (TICKETS + self.tickets) as f64 / ((COMPUTE + READ) as u64 * TICKETS) as f64
    }
}

/// What was seen.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(in super::super) struct Exchanges {
    /// One by one, the first without any.
    pub(in super::super) parts: Vec<Part>,
}

/// `fig9 SECONDS TICKETS...`: so long for each.
pub(super) fn run(mut args: impl Iterator<Item = String>) -> Result<Exchanges> {
    let seconds = number(&mut args, "SECONDS")?;
    let amounts: Vec<u64> = args.map(|word| word.parse()).collect::<Result<_, _>>()?;
    let [disk, _] = simulated_disks()?;
    disk.divide(IOPS)?;
    let path = disk.path.to_string_lossy().into_owned();
    let mut site = Site::start(None, "")?;
    let share = TICKETS.to_string();
    let funding = ["--from", "base", "--share", &share];
    for task in 0..COMPUTE {
        site.task(0, &format!("compute{task}"), &funding, &["compute"])?;
    }
    for task in 0..READ {
        let (at, size) = ((task as u64 * FILE).to_string(), FILE.to_string());
        site.task(0, &format!("read{task}"), &funding, &["iohog", &path, &at, &size])?;
    }
    let mut seen = Exchanges::default();
    // What the kernel was told last; on a machine as slow as this one divvyd takes its time.
    let told = |site: &Site| -> Result<Vec<_>> {
        site.tasks.iter().map(|task| Ok(task.leaf.get(&IO_WEIGHT)?)).collect()
    };
    for tickets in amounts {
        let before = told(&site)?;
        if tickets > 0 {
            let (cpu, disk) = (format!("cpu:{tickets}"), format!("disk:{tickets}"));
            // A reader that waits for the disk has no CPU to give just then.
            for (party, give, want) in [("root/compute0", &disk, &cpu), ("root/read0", &cpu, &disk)] {
                let words = ["exchange", "offer", "--party", party, "--give", give, "--want", want];
                eventually("an offer to be taken", || divvy(&words).is_ok())?;
            }
            eventually("the kernel to be told", || told(&site).is_ok_and(|now| now != before))?;
        }
        clock::sleep(Nanos::from_secs(SETTLE));
        let used = site.measure_readers(seconds, COMPUTE..COMPUTE + READ)?;
        let all = |of: fn(&super::Used) -> u64| used.iter().map(of).sum::<u64>().max(1) as f64;
        let (cpu, read) = (all(|used| used.cpu_ns), all(|used| used.read));
        let mut part = Part {
            tickets,
            done: used.iter().map(|used| used.count).collect(),
            cpu: used.iter().map(|used| used.cpu_ns as f64 / cpu).collect(),
            disk: used.iter().map(|used| used.read as f64 / read).collect(),
            alone: None,
        };
        if tickets > 0 {
            super::end_exchanges()?;
            eventually("the kernel to be told", || told(&site).is_ok_and(|now| now == before))?;
        }
        if part.disk[COMPUTE] < part.due() {
            part.alone = Some(alone(&site, seconds, used[COMPUTE].cpu_ns)? as f64 / read);
        }
        seen.parts.push(part);
    }
    Ok(seen)
}

/// Bytes that the first that reads reads alone on the disk, with so much CPU time at most: everybody else is paused meanwhile.
fn alone(site: &Site, seconds: u64, cpu_ns: u64) -> Result<u64> {
    let others = || {
        let compute = (0..COMPUTE).map(|task| format!("root/compute{task}"));
        compute.chain((1..READ).map(|task| format!("root/read{task}")))
    };
    let percent = format!("{:.2}%", cpu_ns as f64 / (seconds * 10_000_000) as f64);
    divvy(&["set", "root/read0", "--limit", &percent])?;
    others().try_for_each(|name| divvy(&["pause", &name]).map(drop))?;
    clock::sleep(Nanos::from_secs(SETTLE));
    let used = site.measure(seconds)?;
    others().try_for_each(|name| divvy(&["resume", &name]).map(drop))?;
    divvy(&["set", "root/read0", "--limit", "none"])?;
    // Those that slept are to compete as before.
    clock::sleep(Nanos::from_secs(SETTLE));
    Ok(used[COMPUTE].read)
}
