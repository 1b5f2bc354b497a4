//! Four tasks that need more memory than there is, two of them with hard shares of it (Fig. 7).

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use divvy_linux::cgroup::room::{Limit, MEMORY_CURRENT, MEMORY_MIN};
use divvy_linux::clock;
use divvy_policy::Nanos;
use serde::{Deserialize, Serialize};

use super::{Site, divvy, eventually, simulated_disks, sleep_until};
use crate::client::number;

const MIB: u64 = 1 << 20;
/// All memory of the experiment. Half of it can be kept for clients: 8 times the paper's 4.2 MB, to within a twentieth.
const MEMORY: u64 = 64 * MIB;
/// Each task's file and buffer: 8 times the paper's.
const FILE: u64 = 128 * MIB;
const BUFFER: u64 = 32 * MIB;
/// Hard tickets of the first two, of 1000: the paper's pages, of about 1050.
pub(in super::super) const HARD: [u64; 4] = [500, 350, 0, 0];

/// What was seen.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(in super::super) struct Owned {
    /// Seconds since the beginning, and bytes that are charged to each task.
    pub(in super::super) rows: Vec<(f64, Vec<u64>)>,
    /// What each is guaranteed, `memory.min`.
    pub(in super::super) guaranteed: Vec<u64>,
    /// Portions that each copied.
    pub(in super::super) copied: Vec<u64>,
    /// Pages that the kernel took back meanwhile.
    pub(in super::super) taken: u64,
}

/// `fig7 SECONDS`.
pub(super) fn run(mut args: impl Iterator<Item = String>) -> Result<Owned> {
    let seconds = number(&mut args, "SECONDS")?;
    let [disk, swap] = simulated_disks()?;
    for program in ["mkswap", "swapon"] {
        let done =
            Command::new(program).arg(&swap.path).output().with_context(|| format!("start {program}"))?;
        ensure!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
    }
    // What is read ahead is charged to whoever was next to it, and is nobody's resident memory.
    std::fs::write("/proc/sys/vm/page-cluster", "0").context("read swap page by page")?;
    let mut site = Site::start(Some(MEMORY), "")?;
    let (path, file, buffer) =
        (disk.path.to_string_lossy().into_owned(), FILE.to_string(), BUFFER.to_string());
    for (task, hard) in HARD.iter().enumerate() {
        let (name, seed) = (format!("task{task}"), (task + 1).to_string());
        site.task(0, &name, &[], &["copy", &path, &file, &buffer, &seed])?;
        // Nobody has memory but who reserves it.
        let (client, memory) = (format!("root/{name}"), ["--resource", "memory"]);
        if *hard > 0 {
            divvy(&[&["reserve", &client, "--from", "base", &hard.to_string()], &memory[..]].concat())?;
        }
        divvy(&[&["unfund", &client, "--from", "root"], &memory[..]].concat())?;
    }
    let min = |task: &super::Task| match task.leaf.get(&MEMORY_MIN) {
        Ok(Limit::At(bytes)) => bytes,
        _ => 0,
    };
    eventually("what is guaranteed", || {
        site.tasks.iter().zip(HARD).all(|(task, hard)| (min(task) > 0) == (hard > 0))
    })?;
    let taken = || {
        let text = std::fs::read_to_string(site.dir.join("memory.stat")).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("pgsteal "));
        line.and_then(|n| n.parse::<u64>().ok()).unwrap_or(0)
    };
    let (begin, counts, from) = (clock::now(), site.counts(), taken());
    let mut seen = Owned { guaranteed: site.tasks.iter().map(min).collect(), ..Owned::default() };
    for look in 0..=seconds * 4 {
        sleep_until(begin + Nanos::from_millis(look * 250));
        let owned: Result<Vec<u64>, _> =
            site.tasks.iter().map(|task| task.leaf.get(&MEMORY_CURRENT)).collect();
        seen.rows.push((clock::now().since(begin).as_secs_f64(), owned?));
    }
    seen.copied = site.counts().iter().zip(&counts).map(|(to, from)| to - from).collect();
    seen.taken = taken() - from;
    Ok(seen)
}
