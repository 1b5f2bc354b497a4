//! What every policy is: a closed set of events in, decisions of one kind out, and a time to be called again.

use core::fmt;

use crate::{ClientId, CpuId, Instant, Nanos, Share};

/// A scheduling policy as a state machine, driven by a host that owns the clock and the clients.
///
/// The driver's part of the contract:
/// 1. `now` never goes back, over all calls.
/// 2. After every event, and at [`poll_timeout`](Policy::poll_timeout), the driver calls
///    [`poll_decision`](Policy::poll_decision) until it answers `None`, and carries out each decision.
/// 3. What could not be carried out comes back as an event (a vanished client is a [`Event::Leave`]).
///
/// A charge may be late, lumped or split: the account depends only on the total.
pub trait Policy {
    /// [`Gate`] (who may run for now) or [`Grant`] (who runs where, for how long).
    type Decision;

    /// Applies one event.
    ///
    /// # Errors
    /// [`EventError`] where the event names a client or CPU that is not there, or one that is there already. Nothing
    /// changes on error.
    fn on_event(&mut self, now: Instant, event: Event) -> Result<(), EventError>;

    /// The next decision, or `None` once the driver is up to date.
    fn poll_decision(&mut self, now: Instant) -> Option<Self::Decision>;

    /// When to call [`poll_decision`](Policy::poll_decision) again if nothing happens first; `None` for never.
    fn poll_timeout(&self) -> Option<Instant>;

    /// From now on those that are held have what those that run leave of the CPUs (`used`), and are charged for it, or nothing
    /// again. A policy may make use of it: nothing is lost where it notices later that somebody sleeps.
    fn set_leftovers(&mut self, _used: bool) {}

    /// From now on whoever carries out decisions wakes when it asked for, whoever runs (`punctual`), or not always again. A policy may make
    /// use of it: a last short look at whoever is nearly through ends its turn exactly.
    fn set_punctual(&mut self, _punctual: bool) {}

    /// From now on it takes the driver so much CPU time to hold those of many threads once, and to release them again: some us for each
    /// thread. A policy whose cycles may be as long as it likes makes them so long that this is a small part of them.
    fn set_switch_cost(&mut self, _cost: Nanos) {}

    /// What `client` was due of the cycles that have ended and has not had, less what it has had of the present one, ns:
    /// negative where it has had more, which it pays back. `None` for nobody's client, and where no such account is kept.
    fn balance(&self, client: ClientId) -> Option<i128> {
        let _ = client;
        None
    }

    /// Clients whose shares ask for all that they can use: they are never held, and what they do not get meanwhile nobody gives back. None
    /// where a policy makes no such difference.
    fn capped(&self) -> &[ClientId] {
        &[]
    }
}

/// What can happen to a policy. The set is closed, so that one recorder wraps any policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A new client. It joins blocked: [`Event::Wake`] makes it runnable.
    Join {
        /// The newcomer's id, never used before.
        client: ClientId,
        /// Its claim.
        share: Share,
    },
    /// A client is gone for good.
    Leave {
        /// Who left.
        client: ClientId,
    },
    /// A client's share is another from now on.
    Reshare {
        /// Whose share it is.
        client: ClientId,
        /// The new claim.
        share: Share,
    },
    /// A client was seen runnable. No effect on one that is runnable already.
    Wake {
        /// Who woke.
        client: ClientId,
    },
    /// A client was seen blocked (asleep, waiting, or stopped by somebody else). No effect on one that is blocked already.
    Block {
        /// Who blocked.
        client: ClientId,
    },
    /// A client used CPU time since its last charge. Also the answer to [`Gate::Measure`], zero included.
    Charge {
        /// Who is charged.
        client: ClientId,
        /// CPU time used, over all of its threads and processes.
        used: Nanos,
    },
    /// A client can now use this many CPUs at once, because so many of its threads want to run. Clients join with 1.
    Width {
        /// Whose width it is.
        client: ClientId,
        /// At least 1.
        cpus: u32,
    },
    /// A CPU has nothing granted any more. Only dispatchers are told.
    Free {
        /// Which one.
        cpu: CpuId,
    },
}

impl Event {
    /// The client that the event is about, if it is about one.
    #[must_use]
    pub const fn client(&self) -> Option<ClientId> {
        match *self {
            Self::Join { client, .. }
            | Self::Leave { client }
            | Self::Reshare { client, .. }
            | Self::Wake { client }
            | Self::Block { client }
            | Self::Charge { client, .. }
            | Self::Width { client, .. } => Some(client),
            Self::Free { .. } => None,
        }
    }
}

/// Why a policy refused an event. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventError {
    /// The client never joined, or has left.
    UnknownClient(ClientId),
    /// A client with this id has joined before.
    DuplicateClient(ClientId),
    /// The policy was made for fewer CPUs.
    UnknownCpu(CpuId),
    /// A client is at least one CPU wide.
    ZeroWidth(ClientId),
}

impl fmt::Display for EventError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownClient(c) => write!(f, "client {} never joined or has left", c.0),
            Self::DuplicateClient(c) => write!(f, "client {} has joined before", c.0),
            Self::UnknownCpu(c) => write!(f, "CPU {} is not one of the policy's", c.0),
            Self::ZeroWidth(c) => write!(f, "client {} was given a width of 0 CPUs; at least 1", c.0),
        }
    }
}

impl core::error::Error for EventError {}

/// A gate's decision: who may run for now, and what the policy has to know to decide further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Let `client` run until it is held again. One that runs already is only sent to another CPU.
    Release {
        /// Who may run.
        client: ClientId,
        /// The CPU that it should start on, where the policy keeps one client to a CPU. A hint.
        cpu: Option<CpuId>,
    },
    /// Keep `client` from running until it is released again.
    Hold {
        /// Who may not run.
        client: ClientId,
    },
    /// Let `client` run while nobody who is released wants the CPU, until it is released or held again. A driver that cannot
    /// releases it.
    Behind {
        /// Who may have what the others leave.
        client: ClientId,
    },
    /// Read how much CPU time `client` has used; the answer is a [`Event::Charge`], zero included.
    Measure {
        /// Whose clock to read.
        client: ClientId,
    },
    /// Look whether `client` is blocked; the answer is [`Event::Block`] or [`Event::Wake`].
    Observe {
        /// Whose state to read.
        client: ClientId,
    },
    /// A cycle (ALPS) or period (superd) has ended: every client has been given what it was due in it.
    CycleEnd {
        /// Cycles ended so far, this one included.
        cycles: u64,
    },
}

impl Gate {
    /// The client that the decision is about, if it is about one.
    #[must_use]
    pub const fn client(&self) -> Option<ClientId> {
        match *self {
            Self::Release { client, .. }
            | Self::Hold { client }
            | Self::Behind { client }
            | Self::Measure { client }
            | Self::Observe { client } => Some(client),
            Self::CycleEnd { .. } => None,
        }
    }
}

/// A dispatcher's decision: `client` runs next on `cpu`, for `slice` at the most.
///
/// A grant for a CPU that has not been handed back takes it from its client, which stays runnable. Where the policy is to
/// judge by up-to-date accounts, the driver charges running clients before it reports a [`Event::Wake`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Where.
    pub cpu: CpuId,
    /// Who.
    pub client: ClientId,
    /// The longest time until the CPU must be handed back with [`Event::Free`]. The client may block before.
    pub slice: Nanos,
}
