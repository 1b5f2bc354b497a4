//! The experiments' half in the test machine: `divvyd --system --backend cgroup`, the tasks, and what they had done each
//! second.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use divvy_linux::cgroup::room::{
    Cgroup, CostModel, CostQos, CostSettings, Device, IO_COST_MODEL, IO_COST_QOS,
};
use divvy_linux::clock;
use divvy_policy::Nanos;
use serde::{Deserialize, Serialize};

use super::TASK;
use crate::client::number;

/// What the disk is driven at, operations a second: less than it can do, so that who is next is the kernel's choice.
pub(super) const IOPS: u64 = 400;
/// Bytes of each task's part of the disk: the paper's file.
const FILE: u64 = 16 << 20;
/// Patience, in looks of 50 ms.
const LOOKS: u32 = 1200;

/// What was seen: each task's count at each look.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Seen {
    /// Seconds since the beginning, and pages touched.
    pub(super) rows: Vec<(f64, Vec<u64>)>,
}

/// Processes that are ended with the experiment.
struct Started(Vec<Child>);

impl Drop for Started {
    fn drop(&mut self) {
        // The tasks first, then divvyd; the machine ends after that.
        for child in self.0.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn divvy(words: &[&str]) -> Result<()> {
    let done = Command::new("divvy").args(words).output().context("start divvy")?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "divvy {}: {}", words.join(" "), said.trim());
    Ok(())
}

fn eventually(what: &str, mut is: impl FnMut() -> bool) -> Result<()> {
    for _ in 0..LOOKS {
        if is() {
            return Ok(());
        }
        clock::sleep(Nanos::from_millis(50));
    }
    anyhow::bail!("waited in vain for {what}")
}

fn count(task: usize) -> u64 {
    let bytes = fs::read(format!("/run/count{task}")).unwrap_or_default();
    bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

/// The machine's empty disk, divided by iocost at a known speed.
fn disk() -> Result<String> {
    let path = fs::canonicalize("/dev/disk/scratch").context("the machine has no disk")?;
    let number = std::os::unix::fs::MetadataExt::rdev(&fs::metadata(&path)?);
    let disk = Device { major: rustix::fs::major(number), minor: rustix::fs::minor(number) };
    let root = Cgroup::open("/sys/fs/cgroup".as_ref())?;
    let model = CostModel::uniform(64 << 20, IOPS);
    root.set(&IO_COST_MODEL, &CostSettings::Model(disk, model))?;
    root.set(&IO_COST_QOS, &CostSettings::Qos(disk, CostQos::as_modelled(50_000)))?;
    Ok(path.to_string_lossy().into_owned())
}

/// `fig8 SECONDS`: five tasks that read, the first with half of the disk by a hard share; writes `/out/fig8.json`.
pub(super) fn fig8(mut args: impl Iterator<Item = String>) -> Result<()> {
    let seconds = number(&mut args, "SECONDS")?;
    let path = disk()?;
    let log = File::create("/run/divvyd.log").context("create the log")?;
    let mut divvyd = Command::new("divvyd");
    divvyd.args(["--system", "--backend", "cgroup"]).stdin(Stdio::null()).stderr(log);
    let mut started = Started(vec![divvyd.spawn().context("start divvyd")?]);
    let socket = Path::new("/run/divvy/api.sock");
    eventually("divvyd", || std::os::unix::net::UnixStream::connect(socket).is_ok())?;
    for task in 0..5_u64 {
        let mut run = Command::new("divvy");
        run.args(["run", "--name", &format!("task{task}"), "--", "xtask", TASK, "iohog"]);
        run.args([&format!("/run/count{task}"), &path, &(task * FILE).to_string(), &FILE.to_string()]);
        started.0.push(run.stdin(Stdio::null()).spawn().context("start divvy run")?);
    }
    eventually("all tasks to read", || (0..5).all(|task| count(task) > 0))?;
    let words = ["--resource", "disk"];
    divvy(&[&["reserve", "root/task0", "--from", "base", "500"], &words[..]].concat())?;
    divvy(&[&["unfund", "root/task0", "--from", "root"], &words[..]].concat())?;
    clock::sleep(Nanos::from_secs(1));
    let (begin, from) = (clock::now(), [0, 1, 2, 3, 4].map(count));
    let mut seen = Seen::default();
    for second in 0..=seconds {
        let due = begin + Nanos::from_secs(second);
        clock::sleep(due.since(clock::now()));
        let counts = (0..5).map(|task| count(task) - from[task]).collect();
        seen.rows.push((clock::now().since(begin).as_secs_f64(), counts));
    }
    drop(started);
    fs::create_dir_all("/out").context("create /out")?;
    fs::write("/out/fig8.json", serde_json::to_vec(&seen)?).context("write the results")
}
