//! The experiments' half in the test machine: `divvyd --system --backend cgroup`, the tasks, and what they had done at each
//! look.

mod by_hand;
mod checks;
mod disk;
mod exact;
mod exchange;
mod leaves;
mod memory;
mod phone;

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use divvy_linux::cgroup::room::{
    CPU_STAT, Cgroup, CostModel, CostQos, CostSettings, Device, IO_COST_MODEL, IO_COST_QOS, IO_STAT, Limit,
    MEMORY_MAX,
};
use divvy_linux::clock;
use divvy_policy::{Instant, Nanos};
use serde::Serialize;

use super::TASK;
pub(super) use checks::{Check, Checks, REQUESTS};
pub(super) use disk::{FILE, Readers};
pub(super) use exchange::{Exchanges, Part, TICKETS};
pub(super) use leaves::Leaves;
pub(super) use memory::HARD;
pub(super) use memory::Owned;
pub(super) use phone::{BIG, BOOKS, SMALL, Served};

/// What the disk is driven at, operations a second: less than it can do, so that who is next is the kernel's choice.
pub(super) const IOPS: u64 = 400;
/// The mount point of all cgroups.
const ROOT: &str = "/sys/fs/cgroup";
/// What `divvy` exits with where a limit of divvyd's refuses what was asked for,
const TOO_MUCH: i32 = 9;
/// and how often it is asked for then: a debug build on a machine as slow as this one takes long for each request.
const TRIES: u32 = 5;
/// Where everything of an experiment runs whose memory is bounded.
const WORK: &str = "work";
/// Patience, in looks of 50 ms.
const LOOKS: u32 = 6_000;
/// An operation of a simulated disk takes so long, ns.
const LATENCY_NS: u64 = 200_000;
/// Readers touch page by page.
const PAGE: u64 = 4096;

/// The experiment called `name`; what it saw goes to `/out/NAME.json`.
pub(super) fn experiment(name: &str, args: impl Iterator<Item = String>) -> Result<()> {
    match name {
        "fig7" => keep(name, &memory::run(args)?),
        "fig8" => keep(name, &disk::run(args)?),
        "fig9" => keep(name, &exchange::run(args)?),
        "figchecks" => keep(name, &checks::run(args)?),
        "figexact" => keep(name, &exact::run(args)?),
        "figbfq" => keep(name, &exact::by_bfq(args)?),
        "figcpus" => keep(name, &checks::several_cpus(args)?),
        "figleaves" => keep(name, &leaves::run(args)?),
        "fig11" => keep(name, &phone::run(args)?),
        _ => bail!("there is no experiment called {name}"),
    }
}

fn keep(name: &str, seen: &impl Serialize) -> Result<()> {
    fs::create_dir_all("/out").context("create /out")?;
    fs::write(format!("/out/{name}.json"), serde_json::to_vec(seen)?).context("write the results")
}

/// Two disks of the machine's memory, `nullb0` and `nullb1`, whose operations take their time by the machine's own clock:
/// what comes of them is the same in every run.
fn simulated_disks() -> Result<[Disk; 2]> {
    crate::vm::load("configfs.ko", c"")?;
    let parameters = format!(
        "nr_devices=2 gb=1 bs=4096 memory_backed=1 irqmode=2 completion_nsec={LATENCY_NS} submit_queues=1"
    );
    crate::vm::load("null_blk.ko", &std::ffi::CString::new(parameters)?)?;
    Ok([Disk::find("nullb0")?, Disk::find("nullb1")?])
}

/// A disk: its device file, and its numbers.
struct Disk {
    path: PathBuf,
    device: Device,
}

impl Disk {
    fn find(name: &str) -> Result<Self> {
        let path = Path::new("/dev").join(name);
        let number = fs::metadata(&path).with_context(|| format!("look at {}", path.display()))?;
        let number = std::os::unix::fs::MetadataExt::rdev(&number);
        let device = Device { major: rustix::fs::major(number), minor: rustix::fs::minor(number) };
        // Nobody reads ahead: what is read was asked for by whoever pays for it.
        for (file, value) in [("scheduler", "none"), ("read_ahead_kb", "0")] {
            let file = format!("/sys/block/{name}/queue/{file}");
            fs::write(&file, value).with_context(|| format!("write {value} to {file}"))?;
        }
        Ok(Self { path, device })
    }

    /// Has iocost divide it, at a known speed.
    fn divide(&self, operations: u64) -> Result<()> {
        let root = Cgroup::open(ROOT.as_ref())?;
        let model = CostModel::uniform(64 << 20, operations);
        root.set(&IO_COST_MODEL, &CostSettings::Model(self.device, model))?;
        root.set(&IO_COST_QOS, &CostSettings::Qos(self.device, CostQos::as_modelled(50_000)))?;
        Ok(())
    }
}

/// A divvyd, and tasks that are its clients. All are ended with it.
struct Site {
    divvyd: Child,
    dir: PathBuf,
    tasks: Vec<Task>,
}

/// A client.
struct Task {
    run: Child,
    count: PathBuf,
    leaf: Cgroup,
}

impl Site {
    /// Starts it: with so much memory for it and all its clients, where that is bounded.
    fn start(memory: Option<u64>, policy: &str) -> Result<Self> {
        let mut dir = PathBuf::from(ROOT);
        if let Some(bytes) = memory {
            let root = Cgroup::open(ROOT.as_ref())?;
            let work = root.child(WORK).or_else(|_| root.make(WORK))?;
            work.set(&MEMORY_MAX, &Limit::At(bytes))?;
            dir.push(WORK);
        }
        fs::create_dir_all("/etc/divvy").context("create /etc/divvy")?;
        fs::write("/etc/divvy/divvyd.toml", policy).context("write the policy")?;
        let log = File::create("/run/divvyd.log").context("create the log")?;
        let line = format!("echo 0 >{}/cgroup.procs && exec divvyd --system --backend cgroup", dir.display());
        let mut divvyd = Command::new("sh");
        divvyd.args(["-c", &line]).stdin(Stdio::null()).stderr(log);
        let divvyd = divvyd.spawn().context("start divvyd")?;
        let site = Self { divvyd, dir, tasks: Vec::new() };
        let socket = Path::new("/run/divvy/api.sock");
        eventually("divvyd", || std::os::unix::net::UnixStream::connect(socket).is_ok())?;
        Ok(site)
    }

    /// The tree of cgroups that divvyd has made.
    fn tree(&self) -> Result<PathBuf> {
        let entries = fs::read_dir(&self.dir).with_context(|| format!("read {}", self.dir.display()))?;
        let mut names = entries.flatten().map(|entry| entry.path());
        let is_tree = |path: &PathBuf| {
            path.is_dir() && path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("divvy-"))
        };
        names.find(is_tree).context("divvyd has made no cgroups")
    }

    /// Has user `uid` run a task (`super::super::tasks`) by `divvy run` with these options, and waits until it has done
    /// something.
    fn task(&mut self, uid: u32, name: &str, options: &[&str], task: &[&str]) -> Result<()> {
        let id = self.tasks.len();
        let count = PathBuf::from(format!("/tmp/count{id}"));
        let mut line = Command::new("divvy");
        line.args(["run", "--name", name]).args(options).args(["--", "xtask", TASK, task[0]]);
        line.arg(&count).args(&task[1..]).stdin(Stdio::null());
        let line = as_user(&mut line, uid);
        let mut tries = 0..TRIES;
        let run = loop {
            tries.next();
            let mut run = line.spawn().context("start divvy run")?;
            let mut ended = None;
            eventually(&format!("{name} to begin"), || {
                ended = run.try_wait().ok().flatten();
                ended.is_some() || read_count(&count) > 0
            })?;
            match ended.map(|status| status.code()) {
                None => break run,
                Some(Some(TOO_MUCH)) if !tries.is_empty() => clock::sleep(Nanos::from_secs(10)),
                Some(_) => bail!("{name} ended: {ended:?}"),
            }
        };
        let dir = self.tree()?.join(format!("u{uid}/c{id}"));
        self.tasks.push(Task { run, count, leaf: Cgroup::open(&dir)? });
        Ok(())
    }

    /// How often each task has done what it does.
    fn counts(&self) -> Vec<u64> {
        self.tasks.iter().map(|task| read_count(&task.count)).collect()
    }

    /// CPU time of each task, and bytes that it read.
    fn used(&self) -> Result<Vec<Used>> {
        let of = |task: &Task| {
            let cpu_ns = task.leaf.get(&CPU_STAT)?.usage.0;
            let read = task.leaf.get(&IO_STAT)?.values().map(|stat| stat.rbytes).sum();
            Ok(Used { count: read_count(&task.count), cpu_ns, read })
        };
        self.tasks.iter().map(of).collect()
    }

    /// What each used in the next so many seconds.
    fn measure(&self, seconds: u64) -> Result<Vec<Used>> {
        let from = self.used()?;
        clock::sleep(Nanos::from_secs(seconds));
        Ok(since(&self.used()?, &from))
    }

    /// The same; and each page that one of these tasks touched was read from the disk.
    fn measure_readers(&self, seconds: u64, readers: Range<usize>) -> Result<Vec<Used>> {
        let used = self.measure(seconds)?;
        for task in readers {
            let (touched, read) = (used[task].count, used[task].read / PAGE);
            // One is counted when it has come, and it is read before; counts and bytes are looked at one after the other.
            ensure!(
                read + 2 + touched / 100 >= touched,
                "task {task} touched {touched} pages and read {read}"
            );
        }
        Ok(used)
    }
}

/// What a task has used.
#[derive(Clone, Copy, Debug)]
struct Used {
    count: u64,
    cpu_ns: u64,
    read: u64,
}

/// What was used between two looks.
fn since(to: &[Used], from: &[Used]) -> Vec<Used> {
    let used = |(to, from): (&Used, &Used)| Used {
        count: to.count - from.count,
        cpu_ns: to.cpu_ns - from.cpu_ns,
        read: to.read - from.read,
    };
    to.iter().zip(from).map(used).collect()
}

/// Each one's part of what all used.
fn parts(used: &[Used], of: fn(&Used) -> u64) -> Vec<f64> {
    let all = used.iter().map(of).sum::<u64>().max(1) as f64;
    used.iter().map(|used| of(used) as f64 / all).collect()
}

impl Drop for Site {
    fn drop(&mut self) {
        for task in self.tasks.iter_mut().rev() {
            // It passes on what asks for the end, and could not do so with what ends it at once.
            let _ = rustix::process::kill_process(
                rustix::process::Pid::from_child(&task.run),
                rustix::process::Signal::TERM,
            );
            let _ = task.run.wait();
        }
        // It puts back what it has changed, so that another can be started.
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.divvyd),
            rustix::process::Signal::TERM,
        );
        let _ = self.divvyd.wait();
        let _ = fs::remove_dir_all("/var/lib/divvy");
        for task in &self.tasks {
            let _ = fs::remove_file(&task.count);
        }
    }
}

/// Runs `divvy` with these words; what it prints.
fn divvy(words: &[&str]) -> Result<String> {
    divvy_as(0, words)
}

/// The same, as a user.
fn divvy_as(uid: u32, words: &[&str]) -> Result<String> {
    let done = as_user(Command::new("divvy").args(words), uid).output().context("start divvy")?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "divvy {}: {}", words.join(" "), said.trim());
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// A command that is run as a user, whose group has the same number.
fn as_user(command: &mut Command, uid: u32) -> &mut Command {
    command.uid(uid).gid(uid)
}

fn eventually(what: &str, mut is: impl FnMut() -> bool) -> Result<()> {
    for _ in 0..LOOKS {
        if is() {
            return Ok(());
        }
        clock::sleep(Nanos::from_millis(50));
    }
    let log = fs::read_to_string("/run/divvyd.log").unwrap_or_default();
    bail!("waited in vain for {what}; divvyd's log: {log}")
}

fn read_count(path: &Path) -> u64 {
    let bytes = fs::read(path).unwrap_or_default();
    bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

/// Sleeps until `at`.
fn sleep_until(at: Instant) {
    clock::sleep(at.since(clock::now()));
}

/// Ends every exchange that holds.
fn end_exchanges() -> Result<()> {
    let text = divvy(&["exchange", "ls", "--json"])?;
    let all: serde_json::Value = serde_json::from_str(&text).context("understand divvy exchange ls")?;
    for exchange in all["exchanges"].as_array().into_iter().flatten() {
        let id = exchange["id"].to_string();
        divvy(&["exchange", "cancel", id.trim_matches('"')])?;
    }
    Ok(())
}
