//! What machine is simulated, and what goes wrong on it.

use divvy_policy::{ClientId, Instant, Nanos};

/// Where the kernel lets a thread run that becomes runnable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// On its last CPU if that idles, else on one that does; a CPU that becomes idle takes a waiting thread at once.
    Spread,
    /// On its last CPU, idle or not; an idle CPU takes a waiting thread at the next tick. Two threads stand on one CPU
    /// for milliseconds while another idles.
    Stack,
}

/// How fresh the CPU clock of a thread is that runs on another CPU than the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockLag {
    /// Up to date, as after a forced accounting.
    None,
    /// As of that CPU's last tick.
    Tick,
}

/// How late the scheduler's own wake-ups are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// An ordinary wake-up is late by `low` to `high`, uniformly.
    pub low: Nanos,
    /// See `low`.
    pub high: Nanos,
    /// One wake-up in so many is late by 2 to 4 ms instead; 0 for none.
    pub late_one_in: u64,
}

/// CPU time of the scheduler's operations; it takes that time from whatever runs on CPU 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Being woken.
    pub wake: Nanos,
    /// Reading one CPU clock.
    pub read: Nanos,
    /// Reading one state.
    pub state: Nanos,
    /// Resuming one client.
    pub resume: Nanos,
    /// Suspending one client until it stands.
    pub suspend: Nanos,
    /// Sending one thread of a client that has several to a CPU. That of an only thread costs nothing here; live it is 5 us.
    pub steer: Nanos,
}

/// Time that the hypervisor takes: the clock goes on, and nobody runs, the scheduler included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steal {
    /// Mean time from the end of one theft to the next.
    pub every: Nanos,
    /// A theft lasts up to this long, uniformly.
    pub longest: Nanos,
}

/// A simulated machine. Equal machines run equal programs alike, to the nanosecond.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineSpec {
    /// CPUs, at least 1. The scheduler runs on CPU 0.
    pub cpus: u32,
    /// The kernel's tick, on which slices end.
    pub tick: Nanos,
    /// Where threads run.
    pub placement: Placement,
    /// How fresh CPU clocks are.
    pub clock_lag: ClockLag,
    /// Lateness of wake-ups.
    pub latency: Latency,
    /// Cost of the scheduler.
    pub costs: Costs,
    /// Stolen time, if any.
    pub steal: Option<Steal>,
    /// The seed of everything random.
    pub seed: u64,
}

impl MachineSpec {
    /// A machine as those on which divvy was measured: 4 ms ticks, wake-ups tens of microseconds late and one in 500
    /// by milliseconds, operations at their measured cost, no stolen time.
    #[must_use]
    pub fn typical(cpus: u32, seed: u64) -> Self {
        Self {
            cpus,
            tick: Nanos::from_millis(4),
            placement: Placement::Spread,
            clock_lag: ClockLag::None,
            latency: Latency { low: Nanos::from_micros(5), high: Nanos::from_micros(60), late_one_in: 500 },
            costs: Costs {
                wake: Nanos::from_micros(3),
                read: Nanos(220),
                state: Nanos::from_micros(3),
                resume: Nanos(1_600),
                suspend: Nanos::from_micros(8),
                steer: Nanos::from_micros(6),
            },
            steal: None,
            seed,
        }
    }

    /// A machine without latency, cost or ticks: what a policy decides is what happens, when it happens.
    #[must_use]
    pub fn ideal(cpus: u32) -> Self {
        let zero = Nanos::ZERO;
        Self {
            tick: Nanos::from_micros(10),
            latency: Latency { low: zero, high: zero, late_one_in: 0 },
            costs: Costs { wake: zero, read: zero, state: zero, resume: zero, suspend: zero, steer: zero },
            ..Self::typical(cpus, 0)
        }
    }
}

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The scheduler's next wake-up is late by so much more.
    Late(Nanos),
    /// A client is gone without a word: every call about it fails from now on, and news of it comes 5 ms later.
    Vanish(ClientId),
    /// Signals to a client are refused from now on.
    Refuse(ClientId),
    /// Somebody else resumes a client. No effect unless it is held.
    Resume(ClientId),
    /// Somebody else stops a client. No effect if it is held: nobody can tell.
    Stop(ClientId),
    /// Somebody else lets a client go on that was stopped by [`Fault::Stop`].
    Continue(ClientId),
    /// All held clients are resumed at once.
    ResumeAll,
    /// The host fails for good.
    Break,
}

/// A fault and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultAt {
    /// When.
    pub at: Instant,
    /// What.
    pub fault: Fault,
}
