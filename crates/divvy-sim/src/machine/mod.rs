//! The simulated machine: some CPUs, a dispatcher that divides them, and a workload that keeps it busy.
//!
//! # Problem
//! Run a dispatcher ([`divvy_policy::Policy`] whose decision is a [`divvy_policy::Grant`]) over millions of decisions,
//! exactly and fast, with memory that does not grow with simulated time.
//!
//! # How the machine keeps the contract of `Policy`
//! Time jumps from one *instant* to the next: the end of a slice or of a burst, a timer of the workload, the timeout of
//! the policy. At each instant, in this order:
//! 1. CPUs whose slice or burst is over, by number: `Charge`, then `Block` or `Leave` if the burst was the last for
//!    now, then `Free`.
//! 2. Timers of the workload, in the order in which they were set. Before the first, clients running elsewhere are
//!    charged up to now, so that a policy which preempts sees what they have had.
//! 3. `poll_decision` until it answers `None`. Only then: two clients that wake at the same instant are both known
//!    when the choice is made.
//!
//! A grant for a CPU that is busy takes it away from whoever runs there (no `Free` is sent for that: the policy did it
//! itself); a grant to the client that runs there already renews its slice and is no context switch.
//!
//! # Ticks
//! With [`Clock::Tick`] slices are rounded up to the grid and waking clients are considered at the next tick.
//!
//! # Context switches
//! A CPU that is given to another client than it ran last spends [`Config::switch_cost`] first. Nobody is charged for
//! that time, and the slice begins after it.

mod control;
mod core;
mod fluid;
mod observe;
pub mod quanta;
mod slots;

pub use self::core::Machine;
pub use self::fluid::FluidMachine;
pub(crate) use control::Op;
pub use control::{Control, Next, Token, Workload};
pub use observe::{Change, Observer, Response};

use divvy_policy::{ClientId, CpuId, Event, EventError, Instant, Nanos};

/// How a machine is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// At least 1.
    pub cpus: u32,
    /// Time a CPU loses when it turns to another client than it ran last.
    pub switch_cost: Nanos,
    /// When decisions may be taken.
    pub clock: Clock,
    /// What an activation does to running clients.
    pub on_wake: OnWake,
}

impl Config {
    /// `cpus` CPUs, event driven, switching at no cost; the policy decides about preemption.
    #[must_use]
    pub const fn new(cpus: u32) -> Self {
        Self { cpus, switch_cost: Nanos::ZERO, clock: Clock::Event, on_wake: OnWake::PolicyDecides }
    }
}

/// When decisions may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// At any instant.
    Event,
    /// On the grid of multiples of `period` only, with the exception that `on_block` names.
    Tick {
        /// Longer than zero.
        period: Nanos,
        /// What happens to a CPU whose client blocks or ends between two ticks.
        on_block: OnBlock,
    },
}

/// What happens to a CPU whose client blocks or ends between two ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnBlock {
    /// The next client is chosen at once, as kernels do.
    AtOnce,
    /// It idles until the tick: slotted time.
    NextTick,
}

/// What an activation (a client that wakes, joins or changes) does to running clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnWake {
    /// Nothing, unless the policy grants a busy CPU to somebody else.
    PolicyDecides,
    /// Every CPU is handed back (`Free`), so that a policy which never preempts decides anew.
    Redecide,
}

/// Where a run ends at the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Simulated time; bursts that end exactly here still count.
    pub until: Instant,
    /// Grants.
    pub decisions: u64,
}

/// The most clients that may be there at one time: a queue that only grows fills the memory.
pub const CLIENTS_MAX: usize = 10_000_000;

impl Limits {
    /// The most instants and timers. A run that does much and decides little (naps of a nanosecond, bursts that are
    /// over at once) ends by these.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        const FEWEST: u64 = 1_000_000;
        let steps = self.decisions.saturating_mul(10);
        if steps > FEWEST { steps } else { FEWEST }
    }
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Every client has left and no more will come.
    Finished,
    /// [`Limits::until`] was reached.
    Until,
    /// [`Limits::decisions`] was reached: the run could not end by itself.
    DecisionLimit,
    /// [`Limits::steps`] was reached: the run could not end by itself either.
    EventLimit,
    /// [`CLIENTS_MAX`] was reached: more come than leave.
    ClientLimit,
    /// Nothing can happen any more: all clients sleep for ever, and the run has no limit in time.
    Quiet,
    /// Nothing can happen any more: clients run for ever in slices without end, and the run has no limit in time.
    Endless,
    /// Clients want to run, and the policy neither grants a CPU nor asks to be called again.
    Stalled,
}

impl End {
    /// The end in words, for reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Until => "until",
            Self::DecisionLimit => "decision-limit",
            Self::EventLimit => "event-limit",
            Self::ClientLimit => "client-limit",
            Self::Quiet => "quiet",
            Self::Endless => "endless",
            Self::Stalled => "stalled",
        }
    }
}

/// What a machine has counted so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Grants carried out.
    pub decisions: u64,
    /// Grants that turned a CPU to another client than it ran last.
    pub switches: u64,
    /// Grants that took a CPU away from a client in the middle of its slice.
    pub preemptions: u64,
    /// Events that the policy was told.
    pub events: u64,
    /// CPU time that clients received, over all CPUs.
    pub busy: Nanos,
    /// CPU time lost in switching.
    pub overhead: Nanos,
    /// CPU time left idle while a client wanted it: zero for a work-conserving policy on an event-driven machine.
    pub idle_with_work: Nanos,
}

/// A policy or workload broke its contract. The machine stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MachineError {
    /// The policy refused an event that was in order.
    Refused {
        /// When.
        at: Instant,
        /// What it was told.
        event: Event,
        /// What it answered.
        error: EventError,
    },
    /// A grant for a CPU that the machine does not have.
    NoSuchCpu {
        /// When.
        at: Instant,
        /// Which.
        cpu: CpuId,
    },
    /// A grant to a client that cannot run: unknown, blocked, or running on another CPU.
    CannotRun {
        /// When.
        at: Instant,
        /// Who.
        client: ClientId,
    },
    /// A grant of no time at all.
    EmptySlice {
        /// When.
        at: Instant,
        /// To whom.
        client: ClientId,
    },
    /// The policy keeps deciding at one instant without end.
    Livelock {
        /// When.
        at: Instant,
    },
    /// The workload acted on a client that is not there.
    UnknownClient {
        /// When.
        at: Instant,
        /// Whom it meant.
        client: ClientId,
    },
}

impl std::fmt::Display for MachineError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::Refused { at, event, error } => {
                write!(f, "at {} ns the policy refused {event:?}: {error}", at.0)
            }
            Self::NoSuchCpu { at, cpu } => {
                write!(f, "at {} ns the policy granted CPU {}, which does not exist", at.0, cpu.0)
            }
            Self::CannotRun { at, client } => {
                write!(f, "at {} ns the policy granted a CPU to client {}, which cannot run", at.0, client.0)
            }
            Self::EmptySlice { at, client } => {
                write!(f, "at {} ns the policy granted client {} a slice of 0", at.0, client.0)
            }
            Self::Livelock { at } => write!(f, "at {} ns the policy decides without end", at.0),
            Self::UnknownClient { at, client } => {
                write!(f, "at {} ns the workload acts on client {}, which is not there", at.0, client.0)
            }
        }
    }
}

impl std::error::Error for MachineError {}
