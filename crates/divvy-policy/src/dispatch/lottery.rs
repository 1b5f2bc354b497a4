//! Lottery scheduling (Waldspurger and Weihl 1994), with compensation and transfer tickets.
//!
//! **Problem.** Divide a CPU by shares without any state that has to be kept right when clients come and go.
//! **Idea.** Each quantum is a lottery; a client holds as many tickets as its share.
//! **Terms.** A client's *funding* is its share and what blocked clients lend it; its *weight* in the draw is the funding,
//! inflated by compensation.
//! **Algorithm.** Draw `w` below the sum of weights; the winner is the first client, in the order of the table, with `w`
//! below the running sum: found by walking a list or by descending a tree of partial sums ([`Search`]), with the same
//! winners. A client that gave up its CPU after a fraction `f` of the quantum weighs `1 / f` times as much until it next
//! wins (at most 1024 times). A blocked client may lend its funding to the client that it waits for ([`Lottery::lend`]);
//! the loan passes through borrowers that wait in turn, and ends when the lender wakes or either leaves.
//! **Properties** (`tests/laws.rs`): `list_equals_tree`, `split_charges_equal_the_whole`, `renaming_permutes`,
//! `scaling_shares_changes_nothing`, `work_conserving`, `rejected_events_change_nothing`; `tests/paper_lottery.rs`:
//! `draws_are_the_golden_ones`, `compensation_makes_half_users_whole`, `a_loan_moves_the_lenders_share`.
//! **Weak spots.** The error grows with the square root of the number of quanta. Weights carry 16 bits below the point,
//! so compensation is right within 1 / 65536 of a ticket. On several CPUs the draw is among those that wait, which
//! favours small shares.

use alloc::vec::Vec;
use core::fmt;

use super::dispatcher::{Dispatcher, NONE, Occasion, Pick, Rule, Slot, Table, policy};
use super::rng::SplitMix64;
use crate::{
    ClientId, Domain, Instant, Listed, Nanos, ParamError, Params, PolicyInfo, RangeError, Share, param, words,
};

const SEARCHES: [(&str, Search); 2] = [("list", Search::List), ("tree", Search::Tree)];
const COMPENSATIONS: [(&str, Compensation); 2] = [("yes", Compensation::On), ("no", Compensation::Off)];

impl Listed for Lottery {
    const INFO: PolicyInfo = PolicyInfo {
        name: "lottery",
        summary: "lottery scheduling with compensation and transfer tickets",
        complexity: "O(log n) by tree, O(n) by list",
        source: "Isolation with Flexibility, section 4.3; VTRR, section 2.5",
        params: &[
            param!("quantum", Domain::Quantum(Nanos(1), Nanos::from_secs(1)), "10ms", "length of a slice"),
            param!("seed", Domain::Whole(0, u64::MAX), "1", "seed of the draws"),
            param!("search", Domain::Word(&words(&SEARCHES)), "tree", "how the winner is found"),
            param!("compensate", Domain::Word(&words(&COMPENSATIONS)), "yes", "compensation tickets"),
        ],
        ..PolicyInfo::DISPATCHER
    };

    fn make(params: &Params<'_>) -> Result<Self, ParamError> {
        let seed = if params.is_given("seed") { params.whole("seed")? } else { params.run().seed };
        Ok(Self::new(LotteryParams {
            cpus: params.run().cpus,
            quantum: params.time("quantum")?,
            seed,
            search: params.choice("search", &SEARCHES)?,
            compensation: params.choice("compensate", &COMPENSATIONS)?,
        })?)
    }
}

/// Bits below the point of a weight.
const FRACTION_BITS: u32 = 16;
/// The most that compensation multiplies by.
const COMPENSATION_MAX: u64 = 1024;

/// How the winner is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Search {
    /// Walk the list of clients: O(n).
    List,
    /// Descend a tree of partial sums: O(log n).
    #[default]
    Tree,
}

/// Whether a client that gives up its CPU early is compensated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compensation {
    /// No: it gets less than its share.
    Off,
    /// It weighs more until it next wins.
    #[default]
    On,
}

/// Parameters of [`Lottery`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LotteryParams {
    /// CPUs to divide, at least 1.
    pub cpus: u32,
    /// Length of a slice, 1 ns to 1 s.
    pub quantum: Nanos,
    /// Seed of the draws.
    pub seed: u64,
    /// How the winner is found.
    pub search: Search,
    /// Compensation tickets.
    pub compensation: Compensation,
}

impl Default for LotteryParams {
    fn default() -> Self {
        let (search, compensation) = (Search::default(), Compensation::default());
        Self { cpus: 1, quantum: Nanos::from_millis(10), seed: 1, search, compensation }
    }
}

/// Why a loan was refused. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LendError {
    /// The client never joined, or has left.
    UnknownClient(ClientId),
    /// Only a client that waits can lend what it does not use.
    Runnable(ClientId),
    /// The borrower waits, directly or not, for the lender.
    Cycle,
}

impl fmt::Display for LendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownClient(c) => write!(f, "client {} never joined or has left", c.0),
            Self::Runnable(c) => write!(f, "client {} is runnable and needs its tickets", c.0),
            Self::Cycle => f.write_str("the borrower waits for the lender"),
        }
    }
}

impl core::error::Error for LendError {}

#[derive(Clone, Copy, Debug)]
struct Holder {
    client: ClientId,
    share: u128,
    /// What others lend it, passed through from their lenders.
    borrowed: u128,
    lends_to: u32,
    /// Used since it last won, in ns.
    used: u64,
    waiting: bool,
    /// What it weighs in the next draw.
    weight: u128,
}

impl Holder {
    fn funding(&self) -> u128 {
        self.share + self.borrowed
    }
}

#[derive(Clone, Debug)]
struct Tickets {
    quantum: u64,
    search: Search,
    compensation: Compensation,
    rng: SplitMix64,
    holders: Table<Holder>,
    /// Fenwick tree over the weights; entry 0 is unused. Its size less one is a power of two.
    sums: Vec<u128>,
    total: u128,
}

impl Tickets {
    fn weigh(&self, holder: &Holder) -> u128 {
        if !holder.waiting {
            return 0;
        }
        let base = holder.funding() << FRACTION_BITS;
        let early = holder.used > 0 && holder.used < self.quantum;
        if self.compensation == Compensation::Off || !early {
            return base;
        }
        let used = holder.used.max(self.quantum.div_ceil(COMPENSATION_MAX));
        base * u128::from(self.quantum) / u128::from(used)
    }

    fn refresh(&mut self, slot: Slot) {
        let holder = &self.holders[slot];
        let (old, new) = (holder.weight, self.weigh(holder));
        if old == new {
            return;
        }
        self.holders[slot].weight = new;
        // Modulo 2^128: a smaller weight adds its complement, and the sums come out right.
        let delta = new.wrapping_sub(old);
        self.total = self.total.wrapping_add(delta);
        if self.search == Search::Tree {
            let mut at = slot as usize + 1;
            while at < self.sums.len() {
                self.sums[at] = self.sums[at].wrapping_add(delta);
                at += at & at.wrapping_neg();
            }
        }
    }

    /// Room in the tree for every holder: a full rebuild each time that it doubles.
    fn grow(&mut self) {
        let size = self.holders.len().next_power_of_two();
        if self.search == Search::List || self.sums.len() > size {
            return;
        }
        self.sums = alloc::vec![0; size + 1];
        for (at, holder) in self.holders.iter().enumerate() {
            self.sums[at + 1] = holder.weight;
        }
        for at in 1..=size {
            let above = at + (at & at.wrapping_neg());
            if above <= size {
                self.sums[above] += self.sums[at];
            }
        }
    }

    fn find(&self, mut draw: u128) -> Slot {
        match self.search {
            Search::List => {
                let mut at = 0;
                while draw >= self.holders[at].weight {
                    draw -= self.holders[at].weight;
                    at += 1;
                }
                at
            }
            Search::Tree => {
                let mut at = 0;
                let mut step = self.sums.len() - 1;
                while step > 0 {
                    // The sum over (at, at + step]. Beyond the last holder it is the whole rest, never below `draw`.
                    let next = at + step;
                    if next < self.sums.len() && self.sums[next] <= draw {
                        draw -= self.sums[next];
                        at = next;
                    }
                    step /= 2;
                }
                at as Slot
            }
        }
    }

    /// Adds to what the clients along the chain of loans from `slot` on hold. `add` may be a complement.
    fn pass_on(&mut self, mut slot: Slot, add: u128) {
        while slot != NONE {
            let holder = &mut self.holders[slot];
            holder.borrowed = holder.borrowed.wrapping_add(add);
            let next = holder.lends_to;
            self.refresh(slot);
            slot = next;
        }
    }

    fn revoke(&mut self, slot: Slot) {
        let holder = &mut self.holders[slot];
        let to = core::mem::replace(&mut holder.lends_to, NONE);
        let funding = holder.funding();
        self.pass_on(to, funding.wrapping_neg());
    }

    fn set_waiting(&mut self, slot: Slot, waiting: bool) {
        self.holders[slot].waiting = waiting;
        self.refresh(slot);
    }
}

impl Rule for Tickets {
    fn join(&mut self, _now: Instant, slot: Slot, client: ClientId, share: Share) {
        let holder = Holder {
            client,
            share: share.get().into(),
            borrowed: 0,
            lends_to: NONE,
            used: 0,
            waiting: false,
            weight: 0,
        };
        self.holders.put(slot, holder);
        self.grow();
    }

    fn leave(&mut self, slot: Slot) {
        self.revoke(slot);
        for lender in 0..self.holders.len() as Slot {
            if self.holders[lender].lends_to == slot {
                self.revoke(lender);
            }
        }
    }

    fn wake(&mut self, _now: Instant, slot: Slot, busy: bool, _current: Slot) {
        self.revoke(slot);
        self.set_waiting(slot, !busy);
    }

    fn block(&mut self, _now: Instant, slot: Slot, _busy: bool) {
        self.set_waiting(slot, false);
    }

    fn reshare(&mut self, slot: Slot, share: Share) {
        let holder = &mut self.holders[slot];
        let add = u128::from(share.get()).wrapping_sub(holder.share);
        holder.share = share.get().into();
        let to = holder.lends_to;
        self.refresh(slot);
        self.pass_on(to, add);
    }

    #[inline]
    fn charge(&mut self, slot: Slot, used: Nanos) {
        let holder = &mut self.holders[slot];
        holder.used = holder.used.saturating_add(used.0);
        if holder.waiting {
            self.refresh(slot);
        }
    }

    #[inline]
    fn put_back(&mut self, slot: Slot) {
        self.set_waiting(slot, true);
    }

    #[inline]
    fn pick(&mut self, _occasion: Occasion) -> Option<Pick> {
        let draw = self.rng.below_wide(self.total);
        let slot = self.find(draw);
        let holder = &mut self.holders[slot];
        holder.used = 0;
        let client = holder.client;
        self.set_waiting(slot, false);
        Some(Pick { slot, client, slice: Nanos(self.quantum) })
    }
}

/// Lottery scheduling; see the module.
#[derive(Clone, Debug)]
pub struct Lottery(Dispatcher<Tickets>);

impl Lottery {
    /// A dispatcher without clients.
    ///
    /// # Errors
    /// [`RangeError`] where a parameter is out of range.
    pub fn new(params: LotteryParams) -> Result<Self, RangeError> {
        let LotteryParams { cpus, quantum, seed, search, compensation } = params;
        Self::INFO.check(cpus, &[("quantum", quantum.into())])?;
        let (rng, sums) = (SplitMix64::new(seed), alloc::vec![0; 2]);
        let tickets =
            Tickets { quantum: quantum.0, search, compensation, rng, holders: Table::new(), sums, total: 0 };
        Ok(Self(Dispatcher::new(tickets, cpus)))
    }

    /// Transfer tickets: `from`, which waits, lends its funding to `to` until it wakes, or either leaves, or
    /// [`Lottery::revoke`]. An earlier loan of `from` ends. O(length of the chain of loans).
    ///
    /// # Errors
    /// [`LendError`] where a client is not in, `from` is runnable, or `to` waits for `from`. Nothing changes on error.
    pub fn lend(&mut self, from: ClientId, to: ClientId) -> Result<(), LendError> {
        let lender = self.0.slot(from).ok_or(LendError::UnknownClient(from))?;
        let borrower = self.0.slot(to).ok_or(LendError::UnknownClient(to))?;
        if self.0.is_runnable(lender) {
            return Err(LendError::Runnable(from));
        }
        let tickets = &mut self.0.rule;
        let mut at = borrower;
        while at != NONE {
            if at == lender {
                return Err(LendError::Cycle);
            }
            at = tickets.holders[at].lends_to;
        }
        tickets.revoke(lender);
        let holder = &mut tickets.holders[lender];
        holder.lends_to = borrower;
        let funding = holder.funding();
        tickets.pass_on(borrower, funding);
        Ok(())
    }

    /// Ends the loan of `from`, if there is one.
    ///
    /// # Errors
    /// [`LendError::UnknownClient`] if `from` is not in.
    pub fn revoke(&mut self, from: ClientId) -> Result<(), LendError> {
        let lender = self.0.slot(from).ok_or(LendError::UnknownClient(from))?;
        self.0.rule.revoke(lender);
        Ok(())
    }

    /// What a client holds: its share and what it was lent. `None` if it is not in.
    #[must_use]
    pub fn funding(&self, client: ClientId) -> Option<u128> {
        self.0.slot(client).map(|slot| self.0.rule.holders[slot].funding())
    }
}

policy!(Lottery);
