//! `eevdf`: earliest eligible virtual deadline first, the rule of present Linux kernels.
//!
//! **Problem.** Proportional shares with a bounded lag for everybody, and short latency for who asks for short slices.
//! **Idea.** Give each client a virtual runtime that advances by service / share. Who has had no more than the average
//! is *eligible*; of those, run the one whose present request is due first.
//! **Terms.** *Virtual runtime* v; *virtual time* V, the average of v over the runnable, weighted by shares; *lag* =
//! share (V - v), in nanoseconds of service; *deadline* = v at which the request of one slice is served, so a slice
//! further for every slice / share of v.
//! **Algorithm.** An ordered set by (deadline, id); the first eligible one is chosen for the rest of its request.
//! Who blocks takes its lag along, at most two slices of it; on waking, v is set so that it has this lag again, the average
//! having moved by its coming. Who blocks with a negative lag stays in the average until it would be chosen
//! ("delayed dequeue"), and then leaves with none, so that a short sleep does not forgive it. A newcomer's first deadline
//! is half a slice away. A waking client waits for the end of the running request unless [`Preempt::OnWake`] is asked for.
//!
//! **Properties** (`tests/laws_pbs.rs`): `eevdf_lag_is_bounded` (between -slice and slice on one CPU while nobody blocks),
//! `eevdf_sleep_keeps_lag`, and the laws every dispatcher there is put to.
//!
//! **Weak spots.** Finding the first eligible one walks past those that are not, O(n) at the worst (the kernel keeps a
//! tree of minima). Deadlines move on in whole slices, the kernel's from where the charge ended: ours do not depend on
//! how a charge is split. One average for all CPUs, the kernel has one a CPU; where all that could run are ineligible, the
//! one with the least v does. One slice for all.

use alloc::collections::BTreeSet;

use super::dispatcher::{Dispatcher, NONE, Occasion, Pick, Rule, Slot, Table, policy};
use crate::{
    ClientId, Domain, Instant, Listed, Nanos, ParamError, Params, PolicyInfo, RangeError, Share, param, words,
};

const PREEMPTS: [(&str, Preempt); 2] = [("slice", Preempt::AtSlice), ("wake", Preempt::OnWake)];

impl Listed for Eevdf {
    const INFO: PolicyInfo = PolicyInfo {
        name: "eevdf",
        summary: "earliest virtual deadline of those that are behind the average",
        complexity: "O(log n), and one step for each ineligible client with an earlier deadline",
        source: "Stoica and Abdel-Wahab 1995, and Linux since 6.6",
        params: &[
            param!("slice", Domain::Quantum(Nanos(1), Nanos::from_secs(3600)), "3ms", "length of a request"),
            param!(
                "preempt",
                Domain::Word(&words(&PREEMPTS)),
                "slice",
                "whether a waking client waits for the end of the running request"
            ),
        ],
        ..PolicyInfo::DISPATCHER
    };

    fn make(params: &Params<'_>) -> Result<Self, ParamError> {
        let (slice, preempt) = (params.time("slice")?, params.choice("preempt", &PREEMPTS)?);
        Ok(Self::new(EevdfParams { slice, preempt, cpus: params.run().cpus })?)
    }
}

/// Bits behind the point of a virtual runtime in nanoseconds. v stays below 2^84 in 584 years, share * v summed over
/// all clients below 2^127 for sums of shares up to 2^42.
const VIRTUAL_BITS: u32 = 20;

/// When a running client may lose its CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preempt {
    /// At the end of its request only.
    #[default]
    AtSlice,
    /// Also when a client wakes that is eligible and due earlier.
    OnWake,
}

/// Everything that can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EevdfParams {
    /// Length of a request.
    pub slice: Nanos,
    /// When a running client may lose its CPU.
    pub preempt: Preempt,
    /// CPUs to divide, at least 1.
    pub cpus: u32,
}

impl Default for EevdfParams {
    fn default() -> Self {
        Self { slice: Nanos::from_millis(3), preempt: Preempt::AtSlice, cpus: 1 }
    }
}

/// Earliest eligible virtual deadline first, as a [`crate::Policy`].
#[derive(Clone, Debug)]
pub struct Eevdf(Dispatcher<EevdfRule>);

policy!(Eevdf);

impl Eevdf {
    /// A policy without clients.
    ///
    /// # Errors
    /// [`RangeError`] names the first parameter that is impossible.
    pub fn new(params: EevdfParams) -> Result<Self, RangeError> {
        Self::INFO.check(params.cpus, &[("slice", params.slice.into())])?;
        let average = Average { shares: 0, weighted: 0, floor: 0 };
        let rule = EevdfRule { params, accounts: Table::new(), queue: BTreeSet::new(), average };
        Ok(Self(Dispatcher::new(rule, params.cpus)))
    }

    /// Service owed to `client` in nanoseconds, rounded down; negative where it had too much, and as it was at blocking
    /// where it is blocked. `None` where it is unknown.
    #[must_use]
    pub fn lag(&self, client: ClientId) -> Option<i64> {
        let rule = &self.0.rule;
        let account = &rule.accounts[self.0.slot(client)?];
        let lag = if account.counted { rule.average.lag(account) } else { account.lag };
        Some((lag >> VIRTUAL_BITS) as i64)
    }
}

/// What is kept about a client. Virtual numbers are in units of 2^-[`VIRTUAL_BITS`] ns.
#[derive(Clone, Copy, Debug)]
struct Account {
    client: ClientId,
    runnable: bool,
    share: i128,
    v: i128,
    /// Remainder of the division by the share, carried from charge to charge.
    rest: i128,
    deadline: i128,
    /// share (V - v) at blocking.
    lag: i128,
    /// Part of the average: runnable, or blocked with a debt.
    counted: bool,
    /// In the ordered set.
    queued: bool,
    ever_active: bool,
}

/// The virtual time of those that are counted.
#[derive(Clone, Debug)]
struct Average {
    /// Sum of shares, and of share * v, over the counted.
    shares: i128,
    weighted: i128,
    /// V when nobody was counted any more.
    floor: i128,
}

impl Average {
    /// V, rounded down.
    fn now(&self) -> i128 {
        if self.shares == 0 { self.floor } else { self.weighted.div_euclid(self.shares) }
    }

    /// share (V - v), from the exact average.
    fn lag(&self, account: &Account) -> i128 {
        let (whole, part) = (self.now(), self.weighted - self.now() * self.shares);
        (whole - account.v) * account.share + part * account.share / self.shares.max(1)
    }

    fn is_eligible(&self, account: &Account) -> bool {
        account.v * self.shares <= self.weighted
    }

    fn count(&mut self, account: &mut Account) {
        self.shares += account.share;
        self.weighted += account.share * account.v;
        account.counted = true;
    }

    fn discount(&mut self, account: &mut Account) {
        self.floor = self.now();
        self.shares -= account.share;
        self.weighted -= account.share * account.v;
        account.counted = false;
    }

    /// Sets v so that the account, once counted, has `lag`; the deadline keeps its distance from v, `ahead`.
    fn place(&self, account: &mut Account, lag: i128, ahead: i128) {
        // Counting it moves V by -share/(shares + share) of the distance V - v, so the distance must be larger by
        // (shares + share)/shares.
        let total = self.shares + account.share;
        let distance = if self.shares == 0 { 0 } else { lag * total / (self.shares * account.share) };
        account.v = self.now() - distance;
        account.deadline = account.v + ahead;
    }
}

#[derive(Clone, Debug)]
struct EevdfRule {
    params: EevdfParams,
    accounts: Table<Account>,
    /// (deadline, id, slot) of the ready, and of the blocked that are still counted.
    queue: BTreeSet<(i128, ClientId, Slot)>,
    average: Average,
}

impl EevdfRule {
    /// A slice in virtual time, rounded up so that it is never nothing.
    fn virtual_slice(&self, share: i128) -> i128 {
        let slice = i128::from(self.params.slice.0) << VIRTUAL_BITS;
        (slice + share - 1) / share
    }

    fn enqueue(&mut self, slot: Slot) {
        let account = &mut self.accounts[slot];
        account.queued = true;
        self.queue.insert((account.deadline, account.client, slot));
    }

    fn dequeue(&mut self, slot: Slot) {
        let account = &mut self.accounts[slot];
        if core::mem::replace(&mut account.queued, false) {
            self.queue.remove(&(account.deadline, account.client, slot));
        }
    }

    /// Changes v, share or deadline of an account without losing its place in the set or the sums.
    fn update(&mut self, slot: Slot, change: impl FnOnce(&Average, &mut Account)) {
        let Account { queued, counted, .. } = self.accounts[slot];
        self.dequeue(slot);
        let account = &mut self.accounts[slot];
        if counted {
            let floor = self.average.floor;
            self.average.discount(account);
            // Nobody left, only changed.
            self.average.floor = floor;
        }
        change(&self.average, account);
        if counted {
            self.average.count(account);
        }
        if queued {
            self.enqueue(slot);
        }
    }

    /// Takes a blocked client out of the average that has worked off its debt.
    fn settle(&mut self, slot: Slot) {
        self.dequeue(slot);
        let account = &mut self.accounts[slot];
        self.average.discount(account);
        account.lag = 0;
    }

    /// The first eligible client in the order of deadlines; the least v where nobody is eligible.
    fn choose(&mut self, occasion: Occasion) -> Option<Slot> {
        loop {
            let eligible = |entry: &&(_, _, Slot)| self.average.is_eligible(&self.accounts[entry.2]);
            let Some(&(deadline, client, slot)) = self.queue.iter().find(eligible) else { break };
            if !self.accounts[slot].runnable {
                self.settle(slot);
                continue;
            }
            if occasion.holder == NONE {
                return Some(slot);
            }
            let holder = &self.accounts[occasion.holder];
            let first =
                self.average.is_eligible(holder) && (holder.deadline, holder.client) < (deadline, client);
            return if first { None } else { Some(slot) };
        }
        if occasion.holder != NONE {
            return None;
        }
        let ready = self.queue.iter().filter(|entry| self.accounts[entry.2].runnable);
        ready.min_by_key(|entry| (self.accounts[entry.2].v, entry.1)).map(|entry| entry.2)
    }
}

impl Rule for EevdfRule {
    fn join(&mut self, _now: Instant, slot: Slot, client: ClientId, share: Share) {
        let account = Account {
            client,
            runnable: false,
            share: i128::from(share.get()),
            v: 0,
            rest: 0,
            deadline: 0,
            lag: 0,
            counted: false,
            queued: false,
            ever_active: false,
        };
        self.accounts.put(slot, account);
    }

    fn leave(&mut self, slot: Slot) {
        if self.accounts[slot].counted {
            self.settle(slot);
        }
    }

    fn wake(&mut self, _now: Instant, slot: Slot, busy: bool, _current: Slot) {
        let slice = self.virtual_slice(self.accounts[slot].share);
        // A debtor that was still in the average stands in the queue.
        self.dequeue(slot);
        let account = &mut self.accounts[slot];
        account.runnable = true;
        if !account.counted {
            let ahead = if account.ever_active { slice } else { (slice + 1) / 2 };
            account.ever_active = true;
            let lag = account.lag;
            self.average.place(account, lag, ahead);
            self.average.count(account);
        } else if self.average.lag(account) > 0 {
            // Whatever it gained beyond its debt by sleeping is forfeited.
            let ahead = account.deadline - account.v;
            self.average.discount(account);
            self.average.place(account, 0, ahead);
            self.average.count(account);
        }
        if !busy {
            self.enqueue(slot);
        }
    }

    fn block(&mut self, _now: Instant, slot: Slot, _busy: bool) {
        self.accounts[slot].runnable = false;
        if !self.average.is_eligible(&self.accounts[slot]) {
            self.enqueue(slot);
            return;
        }
        self.dequeue(slot);
        let bound = i128::from(self.params.slice.0) << (VIRTUAL_BITS + 1);
        let account = &mut self.accounts[slot];
        account.lag = self.average.lag(account).clamp(-bound, bound);
        self.average.discount(account);
    }

    fn reshare(&mut self, slot: Slot, share: Share) {
        let new = i128::from(share.get());
        let Account { counted, share: old, .. } = self.accounts[slot];
        if !counted {
            self.accounts[slot].share = new;
            return;
        }
        let lag = self.average.lag(&self.accounts[slot]);
        // Lag and the service left of the request stay what they are.
        self.update(slot, |average, account| {
            let ahead = (account.deadline - account.v) * old;
            (account.share, account.rest) = (new, 0);
            average.place(account, lag, (ahead + new - 1) / new);
        });
    }

    fn charge(&mut self, slot: Slot, used: Nanos) {
        if used == Nanos::ZERO {
            return; // No request ends here, whatever a change of share made of its deadline.
        }
        let account = &mut self.accounts[slot];
        if !account.counted {
            // A late charge of a blocked client lowers what it takes along.
            account.lag -= i128::from(used.0) << VIRTUAL_BITS;
            return;
        }
        let share = account.share;
        let slice = self.virtual_slice(share);
        self.update(slot, |_, account| {
            let total = (i128::from(used.0) << VIRTUAL_BITS) + account.rest;
            account.v += total / account.share;
            account.rest = total % account.share;
            if account.v >= account.deadline {
                account.deadline += ((account.v - account.deadline) / slice + 1) * slice;
            }
        });
    }

    fn put_back(&mut self, slot: Slot) {
        self.enqueue(slot);
    }

    fn pick(&mut self, occasion: Occasion) -> Option<Pick> {
        let slot = self.choose(occasion)?;
        self.dequeue(slot);
        let account = &self.accounts[slot];
        let left = (account.deadline - account.v) * account.share - account.rest;
        // Rounded up to a whole nanosecond, so that the request is over when it has been used.
        let slice = Nanos(((left + (1 << VIRTUAL_BITS) - 1) >> VIRTUAL_BITS).max(1) as u64);
        Some(Pick { slot, client: account.client, slice })
    }

    fn preempts(&self) -> bool {
        self.params.preempt == Preempt::OnWake
    }

    fn precedes(&self, _now: Instant, a: Slot, b: Slot) -> bool {
        let key = |slot: Slot| (self.accounts[slot].deadline, self.accounts[slot].client);
        key(a) < key(b)
    }
}
