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

use super::dispatcher::{Dispatcher, NONE, Occasion, Pick, Rule, Slot, Table, policy};
use crate::{
    ClientId, Domain, Instant, Listed, Nanos, ParamError, Params, PolicyInfo, RangeError, Share, param, words,
};

const ARRIVALS: [(&str, Arrival); 2] = [("join", Arrival::Join), ("wake", Arrival::Wake)];

impl Listed for Fcfs {
    const INFO: PolicyInfo = PolicyInfo {
        name: "fcfs",
        summary: "first come, first served; shares have no effect",
        complexity: "O(log n)",
        source: "PBS, section 1",
        params: &[param!(
            "arrival",
            Domain::Word(&words(&ARRIVALS)),
            "join",
            "what counts as coming: the client's creation, or each of its wakings"
        )],
        ..PolicyInfo::DISPATCHER
    };

    fn make(params: &Params<'_>) -> Result<Self, ParamError> {
        Ok(Self::new(FcfsParams { arrival: params.choice("arrival", &ARRIVALS)?, cpus: params.run().cpus })?)
    }
}

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

/// First come, first served, as a [`crate::Policy`].
#[derive(Clone, Debug)]
pub struct Fcfs(Dispatcher<FcfsRule>);

policy!(Fcfs);

impl Fcfs {
    /// A policy without clients.
    ///
    /// # Errors
    /// [`RangeError`] names the first parameter that is impossible.
    pub fn new(params: FcfsParams) -> Result<Self, RangeError> {
        Self::INFO.check(params.cpus, &[])?;
        let rule = FcfsRule { arrival: params.arrival, keys: Table::new(), ready: BTreeSet::new() };
        Ok(Self(Dispatcher::new(rule, params.cpus)))
    }
}

/// (moment of coming, id, slot).
type Key = (Instant, ClientId, Slot);

#[derive(Clone, Debug)]
struct FcfsRule {
    arrival: Arrival,
    keys: Table<Key>,
    ready: BTreeSet<Key>,
}

impl Rule for FcfsRule {
    fn join(&mut self, now: Instant, slot: Slot, client: ClientId, _share: Share) {
        self.keys.put(slot, (now, client, slot));
    }

    fn wake(&mut self, now: Instant, slot: Slot, busy: bool, _current: Slot) {
        if self.arrival == Arrival::Wake {
            self.keys[slot].0 = now;
        }
        if !busy {
            self.put_back(slot);
        }
    }

    fn block(&mut self, _now: Instant, slot: Slot, _busy: bool) {
        self.ready.remove(&self.keys[slot]);
    }

    fn reshare(&mut self, _slot: Slot, _share: Share) {}

    fn charge(&mut self, _slot: Slot, _used: Nanos) {}

    fn put_back(&mut self, slot: Slot) {
        self.ready.insert(self.keys[slot]);
    }

    fn pick(&mut self, occasion: Occasion) -> Option<Pick> {
        let &(_, client, slot) = self.ready.first()?;
        if occasion.holder != NONE && self.precedes(occasion.now, occasion.holder, slot) {
            return None;
        }
        self.ready.pop_first();
        Some(Pick { slot, client, slice: Nanos::MAX })
    }

    fn preempts(&self) -> bool {
        // With wakes as comings nobody who wakes is ever first.
        self.arrival == Arrival::Join
    }

    fn precedes(&self, _now: Instant, a: Slot, b: Slot) -> bool {
        self.keys[a] < self.keys[b]
    }
}
