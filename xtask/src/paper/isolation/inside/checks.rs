//! What the kernel's own tests of its CPU controller check (`cgroup/test_cpu`), and two users who mean ill.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use divvy_linux::cgroup::room::{IO_STAT, Limit, MEMORY_CURRENT, MEMORY_MIN};
use divvy_linux::clock;
use divvy_policy::Nanos;
use serde::{Deserialize, Serialize};

use super::{Disk, Site, Used, divvy, divvy_as, eventually, parts, simulated_disks};
use crate::client::number;

pub(super) const ALICE: u32 = 1001;
pub(super) const BOB: u32 = 1002;
const CAROL: u32 = 1003;
pub(super) const MIB: u64 = 1 << 20;
/// All memory where there are hostile users; half of it can be kept for clients.
const MEMORY: u64 = 64 * MIB;
/// Requests that a reader of the administrator's page has at the disk at once.
pub(in super::super) const REQUESTS: u64 = 4;
/// Operations a second of their disk.
const IOPS: u64 = 400;
/// After a start or a change, before anything is measured, s.
pub(super) const SETTLE: u64 = 2;

/// A number that was due, and what came of it.
#[derive(Debug, Serialize, Deserialize)]
pub(in super::super) struct Check {
    pub(in super::super) what: String,
    pub(in super::super) due: f64,
    pub(in super::super) got: f64,
    /// Whether more than is due is as good.
    pub(in super::super) at_least: bool,
}

/// What was seen.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(in super::super) struct Checks {
    pub(in super::super) checks: Vec<Check>,
}

impl Checks {
    pub(super) fn note(&mut self, what: impl Into<String>, due: f64, got: f64) {
        self.checks.push(Check { what: what.into(), due, got, at_least: false });
    }

    fn note_least(&mut self, what: impl Into<String>, due: f64, got: f64) {
        self.checks.push(Check { what: what.into(), due, got, at_least: true });
    }
}

/// `figchecks SECONDS`: on one CPU.
pub(super) fn run(mut args: impl Iterator<Item = String>) -> Result<Checks> {
    let seconds = number(&mut args, "SECONDS")?;
    let mut seen = Checks::default();
    nested(seconds, &mut seen)?;
    quota(seconds, &mut seen)?;
    let disks = simulated_disks()?;
    disks[0].divide(IOPS)?;
    fs::set_permissions(&disks[0].path, fs::Permissions::from_mode(0o666)).context("let all use the disk")?;
    administrator(seconds, &disks[0], &mut seen)?;
    tracer(seconds, &mut seen)?;
    hostile(seconds, &disks, &mut seen)?;
    Ok(seen)
}

/// Weights within weights, more wanted than there is.
fn nested(seconds: u64, seen: &mut Checks) -> Result<()> {
    let mut site = Site::start(None, "")?;
    site.task(ALICE, "a", &[], &["compute"])?;
    divvy_as(BOB, &["currency", "create", "inner"])?;
    divvy_as(BOB, &["fund", "inner", "--from", "bob", "50"])?;
    site.task(BOB, "b", &["--share", "50"], &["compute"])?;
    site.task(BOB, "c", &["--from", "inner", "--share", "1"], &["compute"])?;
    site.task(BOB, "d", &["--from", "inner", "--share", "3"], &["compute"])?;
    clock::sleep(Nanos::from_secs(SETTLE));
    let got = parts(&site.measure(seconds)?, |used| used.cpu_ns);
    let due = [0.5, 0.25, 0.0625, 0.1875];
    let names = [
        "alice's only task",
        "bob's first task, half of bob's",
        "1 of 4 of bob's inner currency",
        "3 of 4 of it",
    ];
    for ((name, due), got) in names.into_iter().zip(due).zip(got) {
        seen.note(format!("nested weights: {name}"), due, got);
    }
    Ok(())
}

/// A limit, alone and beside somebody.
fn quota(seconds: u64, seen: &mut Checks) -> Result<()> {
    let mut site = Site::start(None, "")?;
    let of_one_cpu = |used: &Used| used.cpu_ns as f64 / (seconds * 1_000_000_000) as f64;
    site.task(ALICE, "a", &["--limit", "20%"], &["compute"])?;
    clock::sleep(Nanos::from_secs(SETTLE));
    seen.note("quota: a limit of 20 %, alone", 0.2, of_one_cpu(&site.measure(seconds)?[0]));
    site.task(BOB, "b", &[], &["compute"])?;
    divvy_as(ALICE, &["set", "a", "--limit", "30%"])?;
    clock::sleep(Nanos::from_secs(SETTLE));
    let used = site.measure(seconds)?;
    seen.note("quota: a limit of 30 %, of two who are due a half", 0.3, of_one_cpu(&used[0]));
    seen.note_least("quota: what it leaves is the other's", 0.65, of_one_cpu(&used[1]));
    Ok(())
}

/// What `docs/admin.md` does: alice has twice bob's CPU and as much of memory and disk, until bob gives disk for CPU.
fn administrator(seconds: u64, disk: &Disk, seen: &mut Checks) -> Result<()> {
    let mut site = Site::start(Some(MEMORY), "[users.alice]\ncpu = 2000\n[users.bob]\ncpu = 1000\n")?;
    let path = disk.path.to_string_lossy().into_owned();
    // As most programs that want much of a disk: one with a single request has none there while it waits for the CPU.
    let (requests, size) = (REQUESTS.to_string(), (16 * MIB / REQUESTS).to_string());
    for (uid, at) in [(ALICE, 0), (BOB, 16 * MIB)] {
        site.task(uid, "simulation", &[], &["compute"])?;
        site.task(uid, "reader", &[], &["crowd", &requests, &path, &at.to_string(), &size])?;
    }
    // The CPU is seen on the page itself. A reader that waits lends its part of it to its user's other program.
    let mut look = |when: &str, of_disk: f64| -> Result<()> {
        clock::sleep(Nanos::from_secs(SETTLE));
        let read = parts(&site.measure(seconds)?, |used| used.read);
        seen.note(
            format!("docs/admin.md, {when}: alice's part of the disk"),
            of_disk,
            read[1] / (read[1] + read[3]),
        );
        Ok(())
    };
    look("before the exchange", 0.5)?;
    divvy_as(BOB, &["exchange", "offer", "--give", "disk:500", "--want", "cpu:500"])?;
    divvy_as(ALICE, &["exchange", "offer", "--give", "cpu:500", "--want", "disk:500"])?;
    look("with the exchange", 0.75)?;
    divvy(&["reserve", "alice/simulation", "--from", "base", "250", "--resource", "memory"])?;
    let min = || match site.tasks[0].leaf.get(&MEMORY_MIN) {
        Ok(Limit::At(bytes)) => bytes,
        _ => 0,
    };
    eventually("the reservation", || min() > 0)?;
    // Half of all memory can be kept, and of that a quarter.
    let part = min() as f64 / (MEMORY / 2) as f64;
    seen.note("docs/admin.md: alice's reserved part of the memory that can be kept", 0.25, part);
    Ok(())
}

/// Bob stops and continues his own processes as their tracer, all the time: beside alice, within a limit, and paused.
fn tracer(seconds: u64, seen: &mut Checks) -> Result<()> {
    let mut site = Site::start(None, "")?;
    site.task(ALICE, "compute", &[], &["compute"])?;
    site.task(BOB, "tracer", &[], &["trace", "4"])?;
    let mut look = |what: &str, of: &dyn Fn(&[Used]) -> f64, due: f64, at_least: bool| -> Result<()> {
        clock::sleep(Nanos::from_secs(SETTLE));
        let got = of(&site.measure(seconds)?);
        let what = format!("who traces its own processes: {what}");
        seen.checks.push(Check { what, due, got, at_least });
        Ok(())
    };
    let alice = |used: &[Used]| parts(used, |used| used.cpu_ns)[0];
    let bob = |used: &[Used]| used[1].cpu_ns as f64 / (seconds * 1_000_000_000) as f64;
    look("the other's half of the CPU", &alice, 0.5, true)?;
    divvy_as(BOB, &["set", "tracer", "--limit", "20%"])?;
    look("a limit of 20 %", &bob, 0.2, false)?;
    divvy_as(BOB, &["pause", "tracer"])?;
    look("the other's part while it is paused", &alice, 1.0, true)
}

/// Bob starts processes without end and resumes all that are his, carol reads with eight threads and takes all memory that she
/// can; alice has one task for each resource.
fn hostile(seconds: u64, [disk, swap]: &[Disk; 2], seen: &mut Checks) -> Result<()> {
    for program in ["mkswap", "swapon"] {
        let done =
            Command::new(program).arg(&swap.path).output().with_context(|| format!("start {program}"))?;
        ensure!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
    }
    let path = disk.path.to_string_lossy().into_owned();
    let mut site = Site::start(Some(MEMORY), "")?;
    let (file, at) = ((16 * MIB).to_string(), |i: u64| (i * 16 * MIB).to_string());
    site.task(ALICE, "compute", &[], &["compute"])?;
    site.task(ALICE, "read", &[], &["iohog", &path, &at(0), &file])?;
    site.task(ALICE, "memory", &[], &["memory", &(10 * MIB).to_string(), "1"])?;
    divvy(&["reserve", "alice/memory", "--from", "base", "250", "--resource", "memory"])?;
    site.task(BOB, "storm", &[], &["storm", "24"])?;
    site.task(CAROL, "memory", &[], &["memory", &(64 * MIB).to_string(), "2"])?;
    site.task(CAROL, "read", &[], &["crowd", "8", &path, &at(1), &file])?;
    let kept = MEMORY / 2 / 4;
    let owned = || site.tasks[2].leaf.get(&MEMORY_CURRENT).unwrap_or(0);
    eventually("alice's memory", || owned() >= kept)?;
    clock::sleep(Nanos::from_secs(SETTLE));
    // Of the disk that is divided. What was pressed out of memory comes back from the other one, which nobody divides.
    let read_of_it = || -> Result<Vec<u64>> {
        let of =
            |task: &super::Task| Ok(task.leaf.get(&IO_STAT)?.get(&disk.device).map_or(0, |stat| stat.rbytes));
        site.tasks.iter().map(of).collect()
    };
    let (from, read_from, mut least) = (site.used()?, read_of_it()?, u64::MAX);
    for _ in 0..seconds * 4 {
        clock::sleep(Nanos::from_millis(250));
        least = least.min(owned());
    }
    let used = super::since(&site.used()?, &from);
    let cpu = parts(&used, |used| used.cpu_ns);
    let read: Vec<u64> = read_of_it()?.iter().zip(read_from).map(|(to, from)| to - from).collect();
    let of_alice = read[..3].iter().sum::<u64>() as f64 / read.iter().sum::<u64>().max(1) as f64;
    seen.note_least("two hostile users: alice's part of the CPU", 1.0 / 3.0, cpu[0] + cpu[1] + cpu[2]);
    seen.note_least("two hostile users: alice's part of the disk", 1.0 / 3.0, of_alice);
    seen.note_least(
        "two hostile users: alice's memory, of what is reserved for her",
        1.0,
        least as f64 / kept as f64,
    );
    Ok(())
}

/// `figcpus SECONDS`: two CPUs, of which three programs of one thread want all that they are due; a disk; and less wanted than there is:
/// whoever wants one CPU has one, whatever the shares.
pub(super) fn several_cpus(mut args: impl Iterator<Item = String>) -> Result<Checks> {
    let seconds = number(&mut args, "SECONDS")?;
    let mut seen = Checks::default();
    super::exact::cpu("cpu 1:2:3, two CPUs", seconds, &mut seen)?;
    super::exact::limits(seconds, &mut seen)?;
    let mut site = Site::start(None, "")?;
    site.task(ALICE, "a", &[], &["compute"])?;
    site.task(BOB, "b", &["--share", "9"], &["compute"])?;
    divvy_as(BOB, &["fund", "b", "--from", "bob", "1"])?;
    clock::sleep(Nanos::from_secs(SETTLE));
    let got = parts(&site.measure(seconds)?, |used| used.cpu_ns);
    for (name, got) in ["alice's", "bob's"].into_iter().zip(got) {
        seen.note(format!("under-committed: two tasks on two CPUs, {name}"), 0.5, got);
    }
    Ok(seen)
}
