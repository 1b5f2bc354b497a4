//! Live runs: each in a process of its own, described by a [`RunSpec`] and told of by a [`RunResult`].
//!
//! A run gets its own process so that its CPU time, its memory, its affinity and its signals are its own, and so that
//! several schedulers can run side by side that know nothing of each other.

mod bench;
mod minimal;
mod run;
mod strangers;
mod watch;

use divvy_engine::policies::GateSpec;
use serde::{Deserialize, Serialize};

pub(crate) use bench::{Bench, Starter};
pub(crate) use minimal::{LOOP, work as minimal_loop};
pub(crate) use run::{arguments, serve_run, usual};
pub(crate) use strangers::{Crowd, STRANGERS, keep_strangers};

/// The hidden subcommand that carries out one run: specification on standard input, result on standard output.
pub(crate) const RUN: &str = "run-one";

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Work {
    /// Computes all the time.
    Spin,
    /// Computes for `run_ms` of CPU time, then sleeps for `sleep_ms`; `log` keeps when.
    Io {
        /// CPU time of a turn, ms.
        run_ms: u64,
        /// Sleep after it, ms.
        sleep_ms: u64,
        /// Whether the sleeps are wanted in [`RunResult::sleeps`].
        log: bool,
    },
    /// Whatever all processes of a user do: they run already.
    User {
        /// The user's number.
        uid: u32,
    },
    /// Whatever a process and its descendants do: they run already.
    Tree {
        /// The process.
        pid: i32,
    },
    /// One process whose threads compute all the time.
    Threads(u32),
    /// A process with so many children that compute all the time, one thread each.
    Family(u32),
}

impl Work {
    /// CPUs that it can use at once.
    pub(crate) fn width(self) -> u32 {
        match self {
            Self::Spin | Self::Io { .. } => 1,
            Self::Threads(n) | Self::Family(n) => n,
            // As far as anybody who did not start them knows.
            Self::User { .. } | Self::Tree { .. } => 1,
        }
    }
}

/// Busy processes that are nobody's clients, on the CPUs that are divided. Who comes when follows from the seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Strangers {
    /// What decides when each comes, goes and moves.
    pub(crate) seed: u64,
    /// At most so many at a time.
    pub(crate) most: u32,
    /// Mean time until a place that is free is taken, ms.
    pub(crate) away_ms: u64,
    /// Mean time that one stays, ms.
    pub(crate) stay_ms: u64,
    /// Where they run.
    pub(crate) kind: Kind,
}

/// Where strangers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// Wherever the kernel puts them.
    Free,
    /// Each on the CPU that it was given.
    Pinned,
    /// Each moves from CPU to CPU every 30 ms or so.
    Wander,
    /// Each of these in turn.
    All,
}

/// One client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClientSpec {
    /// Its share.
    pub(crate) share: u64,
    /// What it does.
    pub(crate) work: Work,
}

/// When the accounts of all clients are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Snapshots {
    /// Never: there are too many clients.
    #[default]
    Never,
    /// Whenever the gate ended a cycle, as the engine's accounts are then.
    Cycles,
    /// As [`Snapshots::Cycles`], with every client's clock read anew: where clients sleep.
    CyclesAudited,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunSpec {
    /// What a progress bar shows.
    pub(crate) name: String,
    /// Who is scheduled.
    pub(crate) clients: Vec<ClientSpec>,
    /// How.
    pub(crate) gate: GateSpec,
    /// The kernel's numbers of the CPUs to divide; empty for one that is free.
    pub(crate) cpus: Vec<u32>,
    /// For how long at the most, s.
    pub(crate) seconds: f64,
    /// Ends it earlier, after so many cycles.
    pub(crate) cycles_max: Option<u64>,
    /// Begins so long after the others that are made together with it, s.
    pub(crate) delay: f64,
    /// When it begins, and `seconds` start to count, monotonic, ns; at once if `None`.
    pub(crate) start_at_ns: Option<u64>,
    /// Gives each client a session, and with it an autogroup, of its own.
    pub(crate) own_session: bool,
    /// What is kept.
    pub(crate) snapshots: Snapshots,
    /// Who else is there, by our own doing.
    pub(crate) strangers: Option<Strangers>,
    /// By the back end that `divvy share` takes where none is asked for; else by signals.
    pub(crate) usual_backend: bool,
    /// Not by divvy but by the least that divides: see [`LOOP`].
    pub(crate) minimal: bool,
}

impl RunSpec {
    /// A run of clients that compute all the time, on one CPU that is free.
    pub(crate) fn spin(name: impl Into<String>, shares: &[u64], gate: GateSpec, seconds: f64) -> Self {
        let clients = shares.iter().map(|&share| ClientSpec { share, work: Work::Spin }).collect();
        Self {
            name: name.into(),
            clients,
            gate,
            cpus: Vec::new(),
            seconds,
            cycles_max: None,
            delay: 0.0,
            start_at_ns: None,
            own_session: false,
            snapshots: Snapshots::Cycles,
            strangers: None,
            usual_backend: false,
            minimal: false,
        }
    }

    /// The time that one cycle takes if nobody sleeps and nobody else runs, s.
    pub(crate) fn cycle_seconds(&self) -> f64 {
        let shares: u64 = self.clients.iter().map(|c| c.share).sum();
        shares as f64 * self.gate.quantum_ns as f64 / 1e9 / f64::from(self.gate.cpus)
    }
}

/// The accounts of all clients at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Snapshot {
    /// Monotonic time, ns.
    pub(crate) t_ns: u64,
    /// CPU time of each client since the run began, ns.
    pub(crate) service_ns: Vec<u64>,
}

/// Median, mean and maximum of the relative errors (RMS) of cycles, as fractions, and how many there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Errors {
    /// Cycles that count.
    pub(crate) count: u64,
    /// Median.
    pub(crate) median: f64,
    /// Arithmetic mean.
    pub(crate) mean: f64,
    /// Largest.
    pub(crate) max: f64,
}

/// How late the gate's decisions came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Lateness {
    /// Median, ns.
    pub(crate) median_ns: u64,
    /// Exceeded by one in a hundred, ns.
    pub(crate) p99_ns: u64,
    /// Largest, ns.
    pub(crate) max_ns: u64,
    /// Fraction that came more than a quantum late.
    pub(crate) over_quantum: f64,
}

/// What it took to know the members of attached clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Scans {
    /// CPU time of scans, ns.
    pub(crate) scan_ns: u64,
    /// How many there were.
    pub(crate) scans: u64,
    /// The kernel told of new processes.
    pub(crate) told: bool,
    /// Members at the end.
    pub(crate) members: u64,
    /// Of those, how many were left alone.
    pub(crate) idle: u64,
    /// From the first to the last stop signal of one hold, the longest, ns.
    pub(crate) skew_ns_max: u64,
}

/// What one run was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunResult {
    /// When scheduling began, monotonic, ns.
    pub(crate) started_ns: u64,
    /// From then to the end, ns.
    pub(crate) wall_ns: u64,
    /// CPUs divided.
    pub(crate) cpus: u32,
    /// What each client was due, as fractions of what all got.
    pub(crate) targets: Vec<f64>,
    /// CPU time of each client, ns.
    pub(crate) service_ns: Vec<u64>,
    /// The same by the kernel's books of all its processes, where they ran before; read a moment earlier and later.
    pub(crate) booked_ns: Vec<Option<u64>>,
    /// Where clients were attached.
    pub(crate) scans: Scans,
    /// Cycles that the gate ended.
    pub(crate) cycles: u64,
    /// The engine's own statistics of cycles; `None` before the fifth.
    pub(crate) errors: Option<Errors>,
    /// The first is at the beginning.
    pub(crate) snapshots: Vec<Snapshot>,
    /// CPU time of scheduler and guardian, ns.
    pub(crate) own_ns: u64,
    /// The guardian's part of it, ns.
    pub(crate) guardian_ns: u64,
    /// How often the scheduler woke.
    pub(crate) wakeups: u64,
    /// Clocks and states that it read.
    pub(crate) reads: u64,
    /// Signals that it sent.
    pub(crate) signals: u64,
    /// How late its decisions came.
    pub(crate) lateness: Lateness,
    /// Fraction of the CPUs' time that went to others, by the kernel's tick count; `None` if that cannot be read.
    pub(crate) strangers: Option<f64>,
    /// Time in which the CPUs idled, by the kernel's count, ns; `None` if that cannot be read.
    pub(crate) idle_ns: Option<u64>,
    /// When clients that log it slept: beginning and end, monotonic, ns.
    pub(crate) sleeps: Vec<(u64, u64)>,
}

impl RunResult {
    /// CPU time of all clients as a fraction of the CPUs' time.
    pub(crate) fn used(&self) -> f64 {
        self.service_ns.iter().sum::<u64>() as f64 / (self.wall_ns as f64 * f64::from(self.cpus))
    }

    /// CPU time of the scheduler as a fraction of one CPU's time.
    pub(crate) fn overhead(&self) -> f64 {
        self.own_ns as f64 / self.wall_ns as f64
    }

    /// The time that strangers took, for a table: `0.1 %`.
    pub(crate) fn strangers_text(&self) -> String {
        self.strangers.map_or_else(|| "unknown".to_owned(), |s| format!("{:.1} %", s * 100.0))
    }
}
