//! Weights that are written by hand, without a divvyd: what the kernel makes of them itself.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};
use divvy_linux::cgroup::room::{Cgroup, Controller, DeviceWeight, IO_BFQ_WEIGHT, IO_STAT};
use divvy_linux::clock;
use divvy_policy::Nanos;

use super::checks::{MIB, SETTLE};
use super::{Checks, ROOT, TASK, eventually, read_count};

/// The cgroups of those who read, and where on the disk each begins.
const READERS: [(&str, u64); 2] = [("hand-a", 0), ("hand-b", 16 * MIB)];
/// A weight of 1 is written as so much: BFQ's range ends at 1000.
const UNIT: u64 = 10;

/// Two readers with four requests each, in cgroups with these weights for BFQ.
pub(super) fn shares_of_disk(
    when: &str,
    seconds: u64,
    path: &str,
    weights: &[u64; 2],
    seen: &mut Checks,
) -> Result<()> {
    let root = Cgroup::open(ROOT.as_ref())?;
    root.enable(Controller::Io, true)?;
    let mut readers = Vec::new();
    for (weight, (name, at)) in weights.iter().zip(READERS) {
        let cgroup = root.make(name)?;
        cgroup.set(&IO_BFQ_WEIGHT, &DeviceWeight::Default(weight * UNIT))?;
        readers.push(Reader::start(cgroup, name, path, at)?);
    }
    clock::sleep(Nanos::from_secs(SETTLE));
    let look = || readers.iter().map(Reader::read).collect::<Result<Vec<u64>>>();
    let from = look()?;
    clock::sleep(Nanos::from_secs(seconds));
    let read: Vec<u64> = look()?.iter().zip(&from).map(|(to, from)| to - from).collect();
    let (all, whole) = (read.iter().sum::<u64>().max(1) as f64, weights.iter().sum::<u64>() as f64);
    let [a, b] = weights;
    for ((who, &weight), read) in ["first", "second"].into_iter().zip(weights).zip(read) {
        let what = format!("BFQ by hand, {when}{a}:{b}: the {who} one's part");
        seen.note(what, weight as f64 / whole, read as f64 / all);
    }
    for (reader, (name, _)) in readers.into_iter().zip(READERS) {
        drop(reader);
        let mut removed = Ok(());
        eventually("the reader's cgroup to be empty", || {
            removed = root.remove(name);
            removed.is_ok()
        })?;
    }
    Ok(())
}

/// A reader in a cgroup of its own; ended with this value.
struct Reader {
    process: Child,
    cgroup: Cgroup,
}

impl Reader {
    /// Starts it, and waits until it has read something.
    fn start(cgroup: Cgroup, name: &str, path: &str, at: u64) -> Result<Self> {
        let count = PathBuf::from(format!("/tmp/count-{name}"));
        let procs = cgroup.path().join("cgroup.procs");
        // In its cgroup before its first request.
        let line = format!("echo 0 >{} && exec xtask {TASK} crowd \"$@\"", procs.display());
        let mut command = Command::new("sh");
        command.args(["-c", &line, "sh"]).arg(&count).args(["4", path, &at.to_string()]);
        command.arg((4 * MIB).to_string()).stdin(Stdio::null());
        let reader = Self { process: command.spawn().context("start a reader")?, cgroup };
        eventually("the reader to begin", || read_count(&count) > 0)?;
        std::fs::remove_file(&count).context("remove the reader's count")?;
        Ok(reader)
    }

    /// Bytes that it has read.
    fn read(&self) -> Result<u64> {
        Ok(self.cgroup.get(&IO_STAT)?.values().map(|stat| stat.rbytes).sum())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
