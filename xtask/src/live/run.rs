//! One run, in the process made for it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::fd::OwnedFd;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use divvy_engine::{Host as _, Session};
use divvy_linux::cgroup::{self, Chosen, Means, Survey, Wish};
use divvy_linux::{Asked, Command, CpuMask, HostParams, LinuxHost, Pid, Selector, Signal, Source, clock};
use divvy_policy::{ClientId, Instant, Nanos, Share};

use super::strangers::Crowd;
use super::watch::{Delays, Watched, summary};
use super::{Errors, RunResult, RunSpec, Scans, Snapshot, Snapshots, Work};
use crate::paper::machine::{Busy, busy};
use crate::{client, crowd};

/// Slots for processes that are no client's leader.
const SPARE_SLOTS: u32 = 4096;
/// So often the guardian is shown that we live, while clients are started: on a machine that is busy otherwise fifty of them can take seconds.
const BEAT_EVERY: Nanos = Nanos::from_millis(50);
/// Killed clients are gone within this.
const END_WITHIN: Nanos = Nanos::from_secs(20);

/// Reads a [`RunSpec`] from standard input, carries it out, and writes a [`RunResult`] to standard output, each as one
/// line. Ends when the process that started it does.
pub(crate) fn serve_run() -> Result<()> {
    client::die_with_parent(libc::SIGTERM);
    let nothing = nix::sys::signal::SigSet::empty();
    nix::sys::signal::sigprocmask(nix::sys::signal::SigmaskHow::SIG_SETMASK, Some(&nothing), None)?;
    let mut text = String::new();
    std::io::stdin().read_line(&mut text).context("read the specification of a run")?;
    let spec: RunSpec = serde_json::from_str(&text).context("the specification of a run")?;
    let result = if spec.minimal { super::minimal::run(&spec)? } else { Live::start(&spec)?.finish()? };
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&result)?).context("write a run's result")
}

struct Live<'a> {
    spec: &'a RunSpec,
    engine: Session<LinuxHost, Watched>,
    delays: Delays,
    logs: Vec<File>,
    snapshots: Vec<Snapshot>,
    first: Vec<u64>,
    booked: Vec<Option<u64>>,
    strangers: Option<Crowd>,
}

/// What had been spent when scheduling began.
struct Start {
    at: Instant,
    own: Nanos,
    guardian: Nanos,
    busy: Option<Busy>,
    reads: u64,
    signals: u64,
    wakeups: u64,
}

/// Program and arguments of a client that does `work` and ends with this process.
///
/// # Errors
/// Where this program does not know where it is.
pub(crate) fn arguments(work: Work) -> Result<Vec<OsString>> {
    let own = std::env::current_exe().context("find this program")?;
    let pid = std::process::id().to_string();
    let words = match work {
        Work::Spin => vec![client::SPIN.to_owned(), pid],
        Work::User { .. } | Work::Tree { .. } => bail!("it runs already"),
        Work::Io { run_ms, sleep_ms, log } => {
            let numbers = [run_ms, sleep_ms, u64::from(log)].map(|n| n.to_string());
            [client::IO.to_owned(), pid].into_iter().chain(numbers).collect()
        }
        Work::Threads(n) => vec![client::THREADS.to_owned(), pid, n.to_string()],
        Work::Family(n) => vec![client::TREE.to_owned(), pid, n.to_string()],
    };
    Ok(std::iter::once(own.into_os_string()).chain(words.into_iter().map(OsString::from)).collect())
}

/// Who is attached; `None` for what is to be started.
fn selector(work: Work) -> Result<Option<Selector>> {
    Ok(match work {
        Work::Spin | Work::Io { .. } | Work::Threads(_) | Work::Family(_) => None,
        Work::User { uid } => Some(Selector::User(uid)),
        Work::Tree { pid } => Some(Selector::Tree(Pid::from_raw(pid).context("a crowd's pid")?)),
    })
}

/// What the kernel has booked so far for a client that ran before; only differences mean anything.
fn booked(work: Work) -> Option<u64> {
    match work {
        Work::Spin | Work::Io { .. } | Work::Threads(_) | Work::Family(_) => None,
        Work::User { uid } => Some(crowd::booked_by_user(uid).0),
        Work::Tree { pid } => Pid::from_raw(pid).map(|pid| crowd::booked_by_tree(pid).0),
    }
}

/// What holds clients: signals, or what divvy would take.
fn means(spec: &RunSpec) -> Result<Means> {
    if !spec.usual_backend {
        return Ok(Means::Signals);
    }
    usual(spec).map(|chosen| chosen.means)
}

/// What divvy would take for these clients.
///
/// # Errors
/// Where a selector does not read.
pub(crate) fn usual(spec: &RunSpec) -> Result<Chosen> {
    let shares: Vec<u64> = spec.clients.iter().map(|c| c.share).collect();
    let mut attached = None;
    for c in &spec.clients {
        attached = attached.or(selector(c.work)?);
    }
    let attached = attached.map(|selector| selector.to_string());
    let wish = Wish {
        asked: cgroup::Asked::Nothing,
        policy: Some(&spec.gate.policy),
        attached: attached.as_deref(),
        shares: &shares,
        limited: false,
    };
    cgroup::choose(&wish, &Survey::new()).map_err(|refused| match refused {
        cgroup::Refused::Usage(why) | cgroup::Refused::Machine(why) => anyhow!("{}: {why}", spec.name),
    })
}

impl<'a> Live<'a> {
    fn start(spec: &'a RunSpec) -> Result<Self> {
        if let Some(at) = spec.start_at_ns {
            clock::sleep(Instant(at).since(clock::now()));
        }
        let mut mask = CpuMask::default();
        spec.cpus.iter().for_each(|&cpu| mask.insert(cpu));
        ensure!(spec.gate.cpus as usize == spec.cpus.len(), "{}: the gate divides other CPUs", spec.name);
        let delays = Delays::default();
        let capacity = spec.clients.len() as u32 + SPARE_SLOTS;
        let params = HostParams { cpus: Some(mask), capacity };
        let host = LinuxHost::with_means(&params, means(spec)?)?;
        let engine = Session::watched(&spec.gate, host, |gate| Watched::new(gate, &delays))?;
        let mut live = Self {
            spec,
            engine,
            delays,
            logs: Vec::new(),
            snapshots: Vec::new(),
            first: Vec::new(),
            booked: Vec::new(),
            strangers: None,
        };
        let started = live.start_clients().and_then(|()| {
            live.strangers = spec.strangers.map(|s| Crowd::start(s, &spec.cpus)).transpose()?;
            Ok(())
        });
        if let Err(e) = started {
            live.end_clients();
            return Err(e);
        }
        Ok(live)
    }

    fn start_clients(&mut self) -> Result<()> {
        let mut beaten = clock::now();
        for c in &self.spec.clients {
            if let Some(selector) = selector(c.work)? {
                self.engine.host_mut().attach(&selector)?;
                continue;
            }
            let stdout = if let Work::Io { log: true, .. } = c.work {
                let memory = rustix::fs::memfd_create("sleeps", rustix::fs::MemfdFlags::CLOEXEC)?;
                let log = File::from(memory);
                let end = OwnedFd::from(log.try_clone()?);
                self.logs.push(log);
                end
            } else {
                OwnedFd::from(File::options().write(true).open("/dev/null")?)
            };
            let command = Command {
                argv: arguments(c.work)?,
                stdout: Some(stdout),
                own_session: self.spec.own_session,
                ..Command::default()
            };
            self.engine.host_mut().spawn(command)?;
            let now = clock::now();
            if now.since(beaten) >= BEAT_EVERY {
                beaten = now;
                self.engine.host_mut().wait(Some(now))?;
                self.check_asked()?;
            }
        }
        // All join at one moment: a gate's first quantum begins when its first client joins.
        for c in &self.spec.clients {
            self.engine.join(Share::new(c.share)?)?;
        }
        Ok(())
    }

    fn check_asked(&mut self) -> Result<()> {
        match self.engine.host_mut().take_asked().iter().find(|&&s| s != Asked::SIGWINCH) {
            Some(signal) => bail!("{}: ended by {signal}", self.spec.name),
            None => Ok(()),
        }
    }

    fn guardian_cpu(&self) -> Nanos {
        let guardian = self.engine.host().guardian();
        guardian.and_then(|pid| clock::process_cpu(pid).ok().flatten()).unwrap_or_default()
    }

    fn service(&self) -> Vec<u64> {
        let clients = self.engine.ledger().clients().iter();
        let used = clients.map(|c| c.service.0);
        if self.first.is_empty() {
            return used.collect();
        }
        used.zip(&self.first).map(|(now, first)| now - first).collect()
    }

    fn snapshot(&mut self) {
        if self.spec.snapshots == Snapshots::CyclesAudited {
            self.engine.audit();
        }
        let snapshot = Snapshot { t_ns: clock::now().0, service_ns: self.service() };
        self.snapshots.push(snapshot);
    }

    fn finish(mut self) -> Result<RunResult> {
        let done = self.schedule();
        drop(self.strangers.take());
        self.end_clients();
        done
    }

    fn schedule(&mut self) -> Result<RunResult> {
        self.booked = self.spec.clients.iter().map(|c| booked(c.work)).collect();
        self.engine.audit();
        self.first = self.service();
        let cost = self.engine.self_cost();
        let start = Start {
            at: clock::now(),
            own: cost.cpu,
            guardian: self.guardian_cpu(),
            busy: busy(&self.spec.cpus),
            reads: cost.reads,
            signals: cost.signals,
            wakeups: self.engine.wakeups(),
        };
        let keeps = self.spec.snapshots != Snapshots::Never;
        if keeps {
            self.snapshot();
        }
        self.engine.serve()?;
        // Runs that are made together end together, however long their starts took.
        let begin = self.spec.start_at_ns.map_or(start.at, Instant);
        let end = begin + Nanos((self.spec.seconds * 1e9) as u64);
        let mut cycles = 0;
        loop {
            self.engine.turn(Some(end))?;
            self.check_asked()?;
            if let Some(lost) = self.engine.take_lost().first() {
                bail!("{}: client {} was lost: {}", self.spec.name, lost.client.0, lost.why);
            }
            let ended = self.engine.ledger().cycles().ended;
            if ended != cycles {
                cycles = ended;
                if keeps {
                    self.snapshot();
                }
                if self.spec.cycles_max.is_some_and(|most| cycles >= most) {
                    break;
                }
            }
            if clock::now() >= end {
                break;
            }
        }
        Ok(self.result(&start))
    }

    fn result(&mut self, start: &Start) -> RunResult {
        let wall_ns = clock::now().since(start.at).0.max(1);
        let cost = self.engine.self_cost();
        // A guardian that was replaced meanwhile counts from its own beginning.
        let guardian_ns = self.guardian_cpu().saturating_sub(start.guardian).0;
        let own_ns = cost.cpu.saturating_sub(start.own).0 + guardian_ns;
        let busy_now = busy(&self.spec.cpus);
        self.engine.audit();
        let service_ns = self.service();
        let now = self.spec.clients.iter().map(|c| booked(c.work));
        let booked_ns = now.zip(&self.booked).map(|(now, before)| Some(now?.saturating_sub((*before)?)));
        let booked_ns = booked_ns.collect();
        let ours = service_ns.iter().sum::<u64>() + own_ns;
        let fraction = ours as f64 / (wall_ns as f64 * self.spec.cpus.len() as f64);
        let idle_ns = start.busy.zip(busy_now).map(|(a, b)| b.idle_since(a).0);
        let strangers = start.busy.zip(busy_now).map(|(a, b)| (b.fraction_since(a) - fraction).max(0.0));
        let ledger = self.engine.ledger();
        let cycles = ledger.cycles();
        let errors = cycles.errors().map(|e| Errors {
            count: cycles.counted(),
            median: e.median,
            mean: e.mean,
            max: e.max,
        });
        RunResult {
            started_ns: start.at.0,
            wall_ns,
            cpus: self.spec.gate.cpus,
            targets: ledger.effective(|_| true),
            service_ns,
            booked_ns,
            scans: scans(self.engine.host()),
            cycles: cycles.ended,
            errors,
            snapshots: std::mem::take(&mut self.snapshots),
            own_ns,
            guardian_ns,
            wakeups: self.engine.wakeups() - start.wakeups,
            reads: cost.reads - start.reads,
            signals: cost.signals - start.signals,
            lateness: summary(&self.delays, self.spec.gate.quantum_ns),
            strangers,
            idle_ns,
            sleeps: self.logs.iter_mut().flat_map(sleeps).collect(),
        }
    }

    /// Kills every client, whatever its state, and waits until each has ended.
    fn end_clients(&mut self) {
        for (i, c) in self.spec.clients.iter().enumerate() {
            let (client, host) = (ClientId(i as u32), self.engine.host_mut());
            // What cannot be signalled has ended. Who ran before runs on.
            let _ = match c.work {
                Work::User { .. } | Work::Tree { .. } => host.detach(client),
                _ => host.signal(client, Signal::KILL).map(|_| ()),
            };
        }
        let give_up = clock::now() + END_WITHIN;
        let mut left = self.engine.nr_clients();
        while left > 0 && clock::now() < give_up {
            let Ok(ended) = self.engine.wait_for_ends(give_up) else { return };
            left -= ended;
        }
    }
}

fn scans(host: &LinuxHost) -> Scans {
    let found = host.membership();
    Scans {
        scan_ns: found.scan_ns,
        scans: found.scans,
        told: found.source == Source::ProcessEvents,
        members: found.members,
        idle: found.idle,
        skew_ns_max: found.skew_ns_max,
    }
}

/// The lines that a client of [`Work::Io`] wrote.
fn sleeps(log: &mut File) -> Vec<(u64, u64)> {
    let mut text = String::new();
    if log.rewind().and_then(|()| log.read_to_string(&mut text)).is_err() {
        return Vec::new();
    }
    text.lines()
        .filter_map(|line| {
            let (from, to) = line.split_once(' ')?;
            Some((from.parse().ok()?, to.parse().ok()?))
        })
        .collect()
}
