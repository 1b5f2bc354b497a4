//! The account that weighted and deficit round-robin share: each round gives every client credit by its share.

use alloc::vec::Vec;

use super::dispatcher::{Occasion, Pick, Rule, Slot, Table};
use crate::{ClientId, Instant, Nanos, Share};

/// How the clients of a round are ordered; equal keys go by id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rank {
    LargestFirst,
    ById,
    ByArrival,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    client: ClientId,
    share: u64,
    /// Credit not yet used, in ns; negative where a charge went beyond it.
    credit: i128,
    /// The last round that credited the client.
    round: u64,
    /// Its key in the order of the round.
    rank: u64,
    runnable: bool,
    busy: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Rounds {
    rank: Rank,
    /// Credit of one round for a share of 1, in ns.
    unit: i128,
    /// The credit that a client needs to be let on, in ns.
    need: i128,
    quantum: Nanos,
    members: Table<Member>,
    order: Vec<Slot>,
    /// Everybody before this place has had its turn in this round.
    cursor: usize,
    round: u64,
    arrivals: u64,
}

impl Rounds {
    pub(super) fn new(rank: Rank, unit: Nanos, need: u64, quantum: Nanos) -> Self {
        Self {
            rank,
            unit: i128::from(unit.0),
            need: i128::from(need),
            quantum,
            members: Table::new(),
            order: Vec::new(),
            cursor: 0,
            round: 1,
            arrivals: 0,
        }
    }

    fn key(&self, slot: Slot) -> (u64, ClientId) {
        let m = &self.members[slot];
        (m.rank, m.client)
    }

    fn position(&self, slot: Slot) -> usize {
        let key = self.key(slot);
        self.order.partition_point(|&other| self.key(other) < key)
    }

    fn insert(&mut self, slot: Slot) {
        let arrival = self.arrivals;
        self.arrivals += 1;
        let m = &mut self.members[slot];
        m.rank = match self.rank {
            Rank::LargestFirst => u64::MAX - m.share,
            Rank::ById => 0,
            Rank::ByArrival => arrival,
        };
        let at = self.position(slot);
        self.order.insert(at, slot);
        let missed = at < self.cursor;
        let m = &mut self.members[slot];
        // Rounds that went by without the client give it nothing; this one does if its turn is still to come.
        if m.round < self.round {
            m.round = if missed { self.round } else { self.round - 1 };
        }
        if missed {
            self.cursor += 1;
        }
    }

    fn remove(&mut self, slot: Slot) {
        let at = self.position(slot);
        debug_assert_eq!(self.order[at], slot);
        self.order.remove(at);
        if at < self.cursor {
            self.cursor -= 1;
        }
    }

    /// Gives the client what the rounds since its last credit are worth. What it could not use before (its share is
    /// more than a CPU) is kept up to one round's credit.
    fn credit(&mut self, slot: Slot) {
        let m = &mut self.members[slot];
        if m.round != self.round {
            let worth = i128::from(m.share) * self.unit;
            m.credit = m.credit.min(worth.max(self.need)) + worth * i128::from(self.round - m.round);
            m.round = self.round;
        }
    }

    /// Rounds until the first client that could be let on has the credit for it; `None` if all are on CPUs.
    fn rounds_needed(&self) -> Option<u64> {
        let idle = self.order.iter().map(|&slot| &self.members[slot]).filter(|m| !m.busy);
        idle.map(|m| {
            let short = (self.need - m.credit).max(1);
            let worth = i128::from(m.share) * self.unit;
            u64::try_from((short + worth - 1) / worth).unwrap_or(u64::MAX)
        })
        .min()
    }
}

impl Rule for Rounds {
    fn join(&mut self, _now: Instant, slot: Slot, client: ClientId, share: Share) {
        let share = share.get();
        let member = Member { client, share, credit: 0, round: 0, rank: 0, runnable: false, busy: false };
        self.members.put(slot, member);
    }

    fn wake(&mut self, _now: Instant, slot: Slot, busy: bool, _current: Slot) {
        let m = &mut self.members[slot];
        (m.runnable, m.busy) = (true, busy);
        self.insert(slot);
    }

    fn block(&mut self, _now: Instant, slot: Slot, _busy: bool) {
        self.remove(slot);
        let m = &mut self.members[slot];
        m.runnable = false;
        // What is left of its turn is lost; a debt is not.
        m.credit = m.credit.min(0);
    }

    fn reshare(&mut self, slot: Slot, share: Share) {
        let runnable = self.members[slot].runnable;
        if runnable {
            self.remove(slot);
        }
        self.members[slot].share = share.get();
        if runnable {
            self.insert(slot);
        }
    }

    fn charge(&mut self, slot: Slot, used: Nanos) {
        self.members[slot].credit -= i128::from(used.0);
    }

    fn put_back(&mut self, slot: Slot) {
        self.members[slot].busy = false;
    }

    fn pick(&mut self, _occasion: Occasion) -> Option<Pick> {
        loop {
            let mut at = self.cursor;
            while at < self.order.len() {
                let slot = self.order[at];
                self.credit(slot);
                let m = &mut self.members[slot];
                if m.credit >= self.need {
                    if !m.busy {
                        m.busy = true;
                        return Some(Pick { slot, client: m.client, slice: self.quantum });
                    }
                } else if at == self.cursor {
                    self.cursor += 1;
                }
                at += 1;
            }
            // Debts may be worth many rounds: skip the ones in which nobody would run.
            self.round = self.round.saturating_add(self.rounds_needed()?);
            self.cursor = 0;
        }
    }
}
