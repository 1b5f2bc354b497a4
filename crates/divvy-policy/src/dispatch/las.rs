//! `las`: least attained service first, also known as foreground-background.
//!
//! **Problem.** Sizes are unknown and vary much; short jobs should not wait for long ones. **Idea.** Whoever has had
//! least so far is likeliest to be short: run it. **Terms.** *Attained service* S: CPU time since joining, or since
//! waking ([`Since`]). **Algorithm.** An ordered set by (S / share, moment of the beginning, id); S / share is compared
//! exactly, by cross-multiplying. Decisions fall on the grid of quanta, on hand-back and on waking.
//!
//! **Properties** (`tests/laws_pbs.rs`): `alpha_infinite_is_las` (this policy and PBS at infinite alpha give the
//! same runs), `las_keeps_services_together`, and the laws every dispatcher there is put to.
//!
//! **Weak spots.** A stream of short jobs starves a long one (PBS, section 3.3). The share of a client divides what it
//! has had, which no paper asks for: with shares 2:1 two jobs are even at services of 2:1.

use alloc::collections::BTreeSet;
use core::cmp::Ordering;

use super::dispatcher::{Dispatcher, Grid, NONE, Occasion, Pick, Rule, Slot, Table, policy};
use crate::{
    ClientId, Domain, Instant, Listed, Nanos, ParamError, Params, PolicyInfo, RangeError, Share, param, words,
};

const SINCES: [(&str, Since); 2] = [("join", Since::Join), ("wake", Since::Wake)];

impl Listed for Las {
    const INFO: PolicyInfo = PolicyInfo {
        name: "las",
        summary: "least attained service (per share) first",
        complexity: "O(log n)",
        source: "PBS, section 1",
        params: &[
            param!("quantum", Domain::Quantum(Nanos(1), Nanos::from_secs(3600)), "4ms", "grid of decisions"),
            param!(
                "since",
                Domain::Word(&words(&SINCES)),
                "join",
                "when service starts to count: at creation, or at each waking"
            ),
        ],
        ..PolicyInfo::DISPATCHER
    };

    fn make(params: &Params<'_>) -> Result<Self, ParamError> {
        let (quantum, since) = (params.time("quantum")?, params.choice("since", &SINCES)?);
        Ok(Self::new(LasParams { quantum, since, cpus: params.run().cpus })?)
    }
}

/// From when service counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Since {
    /// From when the client joined: PBS with infinite alpha and beta = +infinity.
    #[default]
    Join,
    /// From when it last woke after a sleep of some length: PBS with infinite alpha and beta = 0.
    Wake,
}

/// Everything that can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LasParams {
    /// Grid of decisions: grants end at multiples of it.
    pub quantum: Nanos,
    /// From when service counts.
    pub since: Since,
    /// CPUs to divide, at least 1.
    pub cpus: u32,
}

impl Default for LasParams {
    fn default() -> Self {
        Self { quantum: Nanos::from_millis(4), since: Since::Join, cpus: 1 }
    }
}

/// Least attained service first, as a [`crate::Policy`].
#[derive(Clone, Debug)]
pub struct Las(Dispatcher<LasRule>);

policy!(Las);

impl Las {
    /// A policy without clients.
    ///
    /// # Errors
    /// [`RangeError`] names the first parameter that is impossible.
    pub fn new(params: LasParams) -> Result<Self, RangeError> {
        Self::INFO.check(params.cpus, &[("quantum", params.quantum.into())])?;
        let (grid, accounts, ready) = (Grid::new(params.quantum), Table::new(), BTreeSet::new());
        Ok(Self(Dispatcher::new(LasRule { grid, since: params.since, accounts, ready }, params.cpus)))
    }
}

/// What is kept about a client.
#[derive(Clone, Copy, Debug)]
struct Account {
    key: Key,
    /// In the ordered set: runnable and on no CPU.
    ready: bool,
    blocked_at: Option<Instant>,
}

/// Place in the order: least service per share, then the earliest beginning, then id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    service: Nanos,
    share: Share,
    begin: Instant,
    client: ClientId,
    slot: Slot,
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        // S/k < S'/k' as S k' < S' k, in 96 bits at the most.
        let mine = u128::from(self.service.0) * u128::from(other.share.get());
        let theirs = u128::from(other.service.0) * u128::from(self.share.get());
        mine.cmp(&theirs).then((self.begin, self.client).cmp(&(other.begin, other.client)))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Clone, Debug)]
struct LasRule {
    grid: Grid,
    since: Since,
    accounts: Table<Account>,
    ready: BTreeSet<Key>,
}

impl LasRule {
    /// Changes a key without losing its place in the set.
    fn update(&mut self, slot: Slot, change: impl FnOnce(&mut Key)) {
        let account = &mut self.accounts[slot];
        if account.ready {
            self.ready.remove(&account.key);
        }
        change(&mut account.key);
        if account.ready {
            self.ready.insert(account.key);
        }
    }
}

impl Rule for LasRule {
    fn join(&mut self, now: Instant, slot: Slot, client: ClientId, share: Share) {
        let key = Key { service: Nanos::ZERO, share, begin: now, client, slot };
        self.accounts.put(slot, Account { key, ready: false, blocked_at: None });
    }

    fn wake(&mut self, now: Instant, slot: Slot, busy: bool, _current: Slot) {
        let account = &mut self.accounts[slot];
        // Blocked and woken at one instant is no sleep.
        if self.since == Since::Wake && account.blocked_at != Some(now) {
            (account.key.begin, account.key.service) = (now, Nanos::ZERO);
        }
        if !busy {
            self.put_back(slot);
        }
    }

    fn block(&mut self, now: Instant, slot: Slot, _busy: bool) {
        let account = &mut self.accounts[slot];
        if core::mem::replace(&mut account.ready, false) {
            self.ready.remove(&account.key);
        }
        account.blocked_at = Some(now);
    }

    fn reshare(&mut self, slot: Slot, share: Share) {
        self.update(slot, |key| key.share = share);
    }

    fn charge(&mut self, slot: Slot, used: Nanos) {
        self.update(slot, |key| key.service += used);
    }

    fn put_back(&mut self, slot: Slot) {
        let account = &mut self.accounts[slot];
        account.ready = true;
        self.ready.insert(account.key);
    }

    fn pick(&mut self, occasion: Occasion) -> Option<Pick> {
        let &Key { client, slot, .. } = self.ready.first()?;
        if occasion.holder != NONE && self.precedes(occasion.now, occasion.holder, slot) {
            return None;
        }
        self.ready.pop_first();
        self.accounts[slot].ready = false;
        Some(Pick { slot, client, slice: self.grid.until_next(occasion.now) })
    }

    fn preempts(&self) -> bool {
        true
    }

    fn precedes(&self, _now: Instant, a: Slot, b: Slot) -> bool {
        self.accounts[a].key < self.accounts[b].key
    }
}
