//! The least that divides by suspending, measured beside divvy as a floor: one process after the other runs until its CPU clock shows what
//! it is due, while the others are stopped. It knows one process for each client, reads no states, guards nobody against its own end, and
//! takes whoever gets no time in its turn for asleep.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use divvy_linux::{CpuMask, Pid, ProcessRef, Signal, clock};
use divvy_policy::{Instant, Nanos};

use super::run::arguments;
use super::{RunResult, RunSpec, Snapshot, Snapshots, Work};
use crate::client;
use crate::paper::machine::busy;

/// The first argument of a copy of this program that divides processes so until it is killed.
pub(crate) const LOOP: &str = "minimal-loop";
/// What a client is short of by less than this it gets with its next turn.
const ENOUGH: Nanos = Nanos::from_micros(50);
/// Who got nothing while we slept for longer than this in its turn is asleep, or somebody else had the CPU: it goes without.
const ASLEEP: Nanos = Nanos::from_millis(5);

/// Somebody who is divided.
struct Turn {
    process: ProcessRef,
    pid: Pid,
    quota: Nanos,
    /// Its clock shows this when its turn ends,
    due: Nanos,
    /// and showed this when it was last read.
    used: Nanos,
}

/// What it took.
#[derive(Clone, Copy, Default)]
struct Tally {
    wakeups: u64,
    reads: u64,
    signals: u64,
}

impl Turn {
    fn new(process: ProcessRef, pid: Pid, quota: Nanos) -> Result<Self> {
        let mut turn = Self { process, pid, quota, due: Nanos::ZERO, used: Nanos::ZERO };
        turn.read(&mut Tally::default())?;
        turn.due = turn.used;
        Ok(turn)
    }

    fn read(&mut self, tally: &mut Tally) -> Result<()> {
        tally.reads += 1;
        self.used = clock::process_cpu(self.pid)?.context("a client has ended")?;
        Ok(())
    }

    fn signal(&self, signal: Signal, tally: &mut Tally) -> Result<()> {
        tally.signals += 1;
        self.process.signal(signal)?;
        Ok(())
    }

    /// Lets it run for what it is due, but not beyond `end`.
    fn take(&mut self, end: Instant, tally: &mut Tally) -> Result<()> {
        self.due += self.quota;
        self.read(tally)?;
        if self.used + ENOUGH > self.due {
            return Ok(());
        }
        self.signal(Signal::CONT, tally)?;
        let mut in_vain = Nanos::ZERO;
        loop {
            let left = self.due.saturating_sub(self.used);
            let now = clock::now();
            if left < ENOUGH || now >= end {
                break;
            }
            clock::sleep(left.min(end.since(now)));
            tally.wakeups += 1;
            let before = self.used;
            self.read(tally)?;
            in_vain = if self.used == before { in_vain + left } else { Nanos::ZERO };
            if in_vain > ASLEEP {
                self.due = self.used;
            }
        }
        self.signal(Signal::STOP, tally)
    }
}

/// This process comes before those that it divides, where it may, as divvy does.
fn come_first() {
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: the structure is read during the call alone; it concerns this process.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &raw const priority) };
}

/// A descriptor for each client, of whom there may be thousands.
fn raise_open_files() -> Result<()> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).context("raise the limit of open files")
}

/// The processes of a run; they end with it, however it ends.
struct Clients(Vec<Child>);

impl Clients {
    fn start(spec: &RunSpec) -> Result<(Self, Vec<Turn>)> {
        let (mut clients, mut turns) = (Self(Vec::new()), Vec::new());
        for c in &spec.clients {
            let words = arguments(c.work)?;
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null());
            // It is stopped before it gets to see to that itself.
            // SAFETY: one system call, which takes and returns numbers.
            unsafe {
                command.pre_exec(|| {
                    client::die_with_parent(libc::SIGKILL);
                    Ok(())
                });
            }
            let child = command.spawn().context("start a client")?;
            let pid = Pid::from_child(&child);
            clients.0.push(child);
            let process = ProcessRef::open_child(pid)?;
            process.signal(Signal::STOP)?;
            turns.push(Turn::new(process, pid, Nanos(c.share * spec.gate.quantum_ns))?);
        }
        Ok((clients, turns))
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // What cannot be killed has ended.
            let _ = child.kill().and_then(|()| child.wait());
        }
    }
}

/// Carries out a run of clients that compute, on one CPU.
pub(super) fn run(spec: &RunSpec) -> Result<RunResult> {
    let computing = spec.clients.iter().all(|c| c.work == Work::Spin);
    let can = spec.cpus.len() == 1 && computing;
    ensure!(can, "{}: the minimal loop is for processes that compute, on one CPU", spec.name);
    if let Some(at) = spec.start_at_ns {
        clock::sleep(Instant(at).since(clock::now()));
    }
    let mask: CpuMask = spec.cpus.iter().copied().collect();
    mask.apply(rustix::process::getpid())?;
    raise_open_files()?;
    let (_clients, mut turns) = Clients::start(spec)?;
    come_first();
    divide(spec, &mut turns)
}

fn divide(spec: &RunSpec, turns: &mut [Turn]) -> Result<RunResult> {
    for turn in turns.iter_mut() {
        turn.read(&mut Tally::default())?;
        turn.due = turn.used;
    }
    let first: Vec<Nanos> = turns.iter().map(|turn| turn.used).collect();
    let used = |turns: &[Turn]| -> Vec<u64> {
        turns.iter().zip(&first).map(|(turn, first)| turn.used.saturating_sub(*first).0).collect()
    };
    let (at, own, busy_before) = (clock::now(), clock::own_process_cpu(), busy(&spec.cpus));
    let end = spec.start_at_ns.map_or(at, Instant) + Nanos((spec.seconds * 1e9) as u64);
    let mut snapshots = vec![Snapshot { t_ns: at.0, service_ns: vec![0; turns.len()] }];
    let (mut cycles, mut tally) = (0, Tally::default());
    while clock::now() < end {
        for turn in turns.iter_mut().take_while(|_| clock::now() < end) {
            turn.take(end, &mut tally)?;
        }
        let now = clock::now();
        if now < end {
            cycles += 1;
            if spec.snapshots != Snapshots::Never {
                // As they were read in their turns, as divvy's accounts are.
                snapshots.push(Snapshot { t_ns: now.0, service_ns: used(turns) });
            }
        }
    }
    let wall_ns = clock::now().since(at).0.max(1);
    let own_ns = clock::own_process_cpu().saturating_sub(own).0;
    turns.iter_mut().try_for_each(|turn| turn.read(&mut Tally::default()))?;
    let service_ns = used(turns);
    let ours = (service_ns.iter().sum::<u64>() + own_ns) as f64 / wall_ns as f64;
    let busy_since = busy_before.zip(busy(&spec.cpus));
    let all: u64 = spec.clients.iter().map(|c| c.share).sum();
    Ok(RunResult {
        started_ns: at.0,
        wall_ns,
        cpus: 1,
        targets: spec.clients.iter().map(|c| c.share as f64 / all as f64).collect(),
        booked_ns: vec![None; turns.len()],
        service_ns,
        cycles,
        snapshots,
        own_ns,
        wakeups: tally.wakeups,
        reads: tally.reads,
        signals: tally.signals,
        strangers: busy_since.map(|(before, now)| (now.fraction_since(before) - ours).max(0.0)),
        idle_ns: busy_since.map(|(before, now)| now.idle_since(before).0),
        ..RunResult::default()
    })
}

/// Divides processes that somebody else has started, `SHARE:PID` each, in quanta of QUANTUM_NS, until it is killed or whoever started it
/// ends; they are that one's to end then.
pub(crate) fn work(mut args: impl Iterator<Item = String>) -> Result<()> {
    client::end_with_parent(&mut args)?;
    let quantum = client::number(&mut args, "QUANTUM_NS")?;
    let turn = |word: String| {
        let (share, pid) = word.split_once(':').context("a client is SHARE:PID")?;
        let pid = Pid::from_raw(pid.parse()?).context("a pid is above 0")?;
        let process = ProcessRef::open(pid)?.with_context(|| format!("process {pid} has ended"))?;
        process.signal(Signal::STOP)?;
        Turn::new(process, pid, Nanos(share.parse::<u64>()? * quantum))
    };
    let mut turns = args.map(turn).collect::<Result<Vec<Turn>>>()?;
    come_first();
    let (never, mut tally) = (Instant(u64::MAX), Tally::default());
    loop {
        turns.iter_mut().try_for_each(|turn| turn.take(never, &mut tally))?;
    }
}
