//! Who waits for a CPU, in the order in which they get it.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::GRAIN;
use crate::ClientId;

/// Clients with their stamps, first come, first served.
type Fifo = VecDeque<(ClientId, u64)>;

/// Held clients, best first.
///
/// On one CPU without slices the order is first come, first served, and every operation is O(1). On several CPUs it is
/// by need in steps of [`STEP`]; with slices by virtual time. Operations are O(log n) then.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    fifo: Fifo,
    by_time: Option<BTreeSet<(i128, ClientId)>>,
    by_need: Option<Needs>,
    /// Allowances of all that wait, ns; what [`Exact`](super::Exact) reckons laxity from.
    pub(super) work_sum: i128,
    /// Quotas of all that wait, ns.
    pub(super) quota_sum: i128,
    pub(super) len: usize,
}

/// Where a client stands in a [`Waiting`]: what its entries are found, or known to be old, by.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ticket {
    pub(super) stamp: u64,
    pub(super) time: i128,
    pub(super) need: i128,
    pub(super) work: i128,
    pub(super) quota: i128,
}

impl Waiting {
    pub(super) fn new(several_cpus: bool, slices: bool) -> Self {
        Self {
            fifo: VecDeque::new(),
            by_time: slices.then(BTreeSet::new),
            by_need: several_cpus.then(Needs::default),
            work_sum: 0,
            quota_sum: 0,
            len: 0,
        }
    }

    pub(super) fn sorted(&self) -> bool {
        self.by_time.is_some() || self.by_need.is_some()
    }

    /// Adds a client. The ticket's `time` is its virtual finishing time, `need` the time its allowance takes, `work` that
    /// allowance, and `stamp` a number that no entry of any queue had before.
    pub(super) fn push(&mut self, client: ClientId, ticket: Ticket) {
        let Ticket { time, work, .. } = ticket;
        if let Some(q) = &mut self.by_time {
            q.insert((time, client));
        }
        if let Some(q) = &mut self.by_need {
            q.push(client, ticket);
        }
        if !self.sorted() {
            self.fifo.push_back((client, ticket.stamp));
        }
        self.work_sum += work;
        self.quota_sum += ticket.quota;
        self.len += 1;
    }

    /// Drops old entries of a FIFO in which nobody waits.
    pub(super) fn drop_old(&mut self) {
        debug_assert!(self.len == 0 && self.by_need.as_ref().is_none_or(|q| q.steps.is_empty()));
        self.fifo.clear();
    }

    /// Takes a client out. A FIFO keeps its entry, which is passed over later because its stamp is old.
    pub(super) fn remove(&mut self, client: ClientId, ticket: Ticket) {
        if let Some(q) = &mut self.by_time {
            q.remove(&(ticket.time, client));
        }
        if let Some(q) = &mut self.by_need {
            q.remove(client, ticket);
        }
        self.work_sum -= ticket.work;
        self.quota_sum -= ticket.quota;
        self.len -= 1;
    }

    /// All that wait, in no order that matters; `valid` tells whether a FIFO entry still stands.
    pub(super) fn all(&self, valid: impl Fn(ClientId, u64) -> bool) -> Vec<ClientId> {
        if let Some(q) = &self.by_time {
            return q.iter().map(|&(_, client)| client).collect();
        }
        if let Some(q) = &self.by_need {
            return q.steps.values().flatten().copied().collect();
        }
        let standing = self.fifo.iter().filter(|&&(client, stamp)| valid(client, stamp));
        standing.map(|&(client, _)| client).collect()
    }

    /// The best client, which the caller then takes out; `valid` tells whether a FIFO entry still stands.
    pub(super) fn best(&mut self, valid: impl Fn(ClientId, u64) -> bool) -> Option<ClientId> {
        if let Some(q) = &self.by_time {
            return q.first().map(|&(_, client)| client);
        }
        if let Some(q) = &self.by_need {
            return q.first();
        }
        while let Some(&(client, stamp)) = self.fifo.front() {
            if valid(client, stamp) {
                return Some(client);
            }
            self.fifo.pop_front();
        }
        None
    }

    /// The smallest virtual finishing time that waits; slices only.
    pub(super) fn first_time(&self) -> Option<(i128, ClientId)> {
        self.by_time.as_ref().and_then(|q| q.first().copied())
    }

    /// The client with the largest need, to [`STEP`]; several CPUs only.
    pub(super) fn neediest(&self) -> Option<ClientId> {
        self.by_need.as_ref().and_then(Needs::first)
    }
}

/// Needs that differ by less are one and the same, ns: a tenth of the grain.
const STEP: i128 = GRAIN.0 as i128 / 10;

/// Clients by need, the largest first, in steps of [`STEP`], and by id within a step: who is ahead of whom is the same
/// in every cycle then, which keeps errors small where every CPU is nearly full.
#[derive(Clone, Debug, Default)]
struct Needs {
    /// By the negated step, so that the largest need is first. None is empty.
    steps: BTreeMap<i128, BTreeSet<ClientId>>,
}

impl Needs {
    fn step(ticket: Ticket) -> i128 {
        -(ticket.need / STEP)
    }

    fn push(&mut self, client: ClientId, ticket: Ticket) {
        self.steps.entry(Self::step(ticket)).or_default().insert(client);
    }

    fn remove(&mut self, client: ClientId, ticket: Ticket) {
        if let Some(step) = self.steps.get_mut(&Self::step(ticket)) {
            step.remove(&client);
            if step.is_empty() {
                self.steps.remove(&Self::step(ticket));
            }
        }
    }

    fn first(&self) -> Option<ClientId> {
        self.steps.values().next()?.first().copied()
    }
}
