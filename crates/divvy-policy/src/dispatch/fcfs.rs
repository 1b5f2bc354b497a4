//! `fcfs`: first come, first served.
//!
//! **Problem.** The simplest blind policy, optimal in mean response where sizes vary little, and the end of PBS at
//! alpha = 0. **Idea.** Whoever came first runs until it blocks. **Terms.** *Coming* is joining, or each waking
//! ([`Arrival`]). **Algorithm.** An ordered set by (moment of coming, id); the first holds the CPU without a limit, and
//! an older client that wakes takes it back.
//!
//! **Properties** (`tests/laws_pbs.rs`): `alpha_zero_is_fcfs` (this policy and PBS at alpha = 0 give the same runs),
//! and the laws every dispatcher there is put to.
//!
//! **Weak spots.** One client that never blocks starves all later ones (PBS, section 3.3). Shares have no effect.

use alloc::collections::BTreeSet;
use core::fmt;

use super::frame::{Frame, Occasion, Rows, Rule, Standing, policy_of_frame};
use super::ring::NONE;
use crate::{ClientId, Instant, Kind, Nanos, ParamInfo, PolicyInfo, Share};

/// What `divvy policies` says of FCFS.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "fcfs",
    kind: Kind::Dispatcher,
    summary: "first come, first served; shares have no effect",
    complexity: "O(log n)",
    source: "PBS, section 1",
    params: &[ParamInfo {
        name: "arrival",
        range: "join or wake",
        default: "join",
        summary: "what counts as coming: the client's creation, or each of its wakings",
    }],
};

/// What counts as a client's coming.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrival {
    /// The moment at which it joined: PBS with alpha = 0 and beta = +infinity.
    #[default]
    Join,
    /// The moment at which it last woke: PBS with alpha = 0 and beta = 0.
    Wake,
}

/// Everything that can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FcfsParams {
    /// What counts as coming.
    pub arrival: Arrival,
    /// CPUs to divide, at least 1.
    pub cpus: u32,
}

impl Default for FcfsParams {
    fn default() -> Self {
        Self { arrival: Arrival::Join, cpus: 1 }
    }
}

/// Which parameter is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FcfsError {
    /// There must be a CPU.
    NoCpu,
}

impl fmt::Display for FcfsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cpus is 0; must be at least 1")
    }
}

impl core::error::Error for FcfsError {}

/// First come, first served, as a [`crate::Policy`].
#[derive(Clone, Debug)]
pub struct Fcfs {
    frame: Frame<FcfsRule>,
}

policy_of_frame!(Fcfs);

impl Fcfs {
    /// A policy without clients.
    ///
    /// # Errors
    /// [`FcfsError::NoCpu`].
    pub fn new(params: FcfsParams) -> Result<Self, FcfsError> {
        if params.cpus == 0 {
            return Err(FcfsError::NoCpu);
        }
        let rule = FcfsRule { arrival: params.arrival, ready: BTreeSet::new() };
        Ok(Self { frame: Frame::new(rule, params.cpus) })
    }
}

/// (moment of coming, id, slot).
type Key = (Instant, ClientId, u32);

#[derive(Clone, Debug)]
struct FcfsRule {
    arrival: Arrival,
    ready: BTreeSet<Key>,
}

fn key(slot: u32, rows: &Rows<Instant>) -> Key {
    let row = &rows[slot as usize];
    (row.data, row.id, slot)
}

impl Rule for FcfsRule {
    /// When the client came.
    type Data = Instant;

    fn join(&mut self, now: Instant, _id: ClientId, _share: Share) -> Instant {
        now
    }

    fn wake(&mut self, now: Instant, slot: u32, rows: &mut Rows<Instant>, _current: u32) {
        if self.arrival == Arrival::Wake {
            rows[slot as usize].data = now;
        }
        self.ready.insert(key(slot, rows));
    }

    fn block(&mut self, _now: Instant, slot: u32, rows: &mut Rows<Instant>, was: Standing) {
        if was == Standing::Ready {
            self.ready.remove(&key(slot, rows));
        }
    }

    fn reshare(&mut self, _now: Instant, _slot: u32, _share: Share, _rows: &mut Rows<Instant>) {}

    fn charge(&mut self, _now: Instant, _slot: u32, _used: Nanos, _rows: &mut Rows<Instant>) {}

    fn put_back(&mut self, _now: Instant, slot: u32, rows: &mut Rows<Instant>) {
        self.ready.insert(key(slot, rows));
    }

    fn take(&mut self, _now: Instant, slot: u32, rows: &mut Rows<Instant>) {
        self.ready.remove(&key(slot, rows));
    }

    fn choose(&mut self, occasion: Occasion, rows: &mut Rows<Instant>) -> u32 {
        let Some(&first) = self.ready.first() else { return occasion.holder };
        if occasion.holder != NONE && key(occasion.holder, rows) < first { occasion.holder } else { first.2 }
    }

    fn slice(&mut self, _now: Instant, _slot: u32, _rows: &Rows<Instant>) -> Nanos {
        Nanos::MAX
    }

    fn preempts(&self) -> bool {
        // With wakes as comings nobody who wakes is ever first.
        self.arrival == Arrival::Join
    }

    fn precedes(&self, _now: Instant, a: u32, b: u32, rows: &Rows<Instant>) -> bool {
        key(a, rows) < key(b, rows)
    }
}
