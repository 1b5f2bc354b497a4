//! Who waits for a CPU, in the order in which they get it.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use crate::ClientId;

/// Clients with their stamps, first come, first served.
type Fifo = VecDeque<(ClientId, u64)>;

/// Held clients, best first.
///
/// Without slices the order is first come, first served, and every operation is O(1). With slices it is by virtual time, and
/// operations are O(log n).
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    fifo: Fifo,
    by_time: Option<BTreeSet<(i128, ClientId)>>,
    /// Allowances of all that wait, ns.
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
    pub(super) work: i128,
    pub(super) quota: i128,
}

impl Waiting {
    pub(super) fn new(slices: bool) -> Self {
        Self { fifo: VecDeque::new(), by_time: slices.then(BTreeSet::new), work_sum: 0, quota_sum: 0, len: 0 }
    }

    pub(super) fn sorted(&self) -> bool {
        self.by_time.is_some()
    }

    /// Adds a client. The ticket's `time` is its virtual finishing time, `work` its allowance, and `stamp` a number that no
    /// entry of any queue had before.
    pub(super) fn push(&mut self, client: ClientId, ticket: Ticket) {
        match &mut self.by_time {
            Some(q) => {
                q.insert((ticket.time, client));
            }
            None => self.fifo.push_back((client, ticket.stamp)),
        }
        self.work_sum += ticket.work;
        self.quota_sum += ticket.quota;
        self.len += 1;
    }

    /// Drops old entries of a FIFO in which nobody waits.
    pub(super) fn drop_old(&mut self) {
        debug_assert!(self.len == 0);
        self.fifo.clear();
    }

    /// Takes a client out. A FIFO keeps its entry, which is passed over later because its stamp is old.
    pub(super) fn remove(&mut self, client: ClientId, ticket: Ticket) {
        if let Some(q) = &mut self.by_time {
            q.remove(&(ticket.time, client));
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
        let standing = self.fifo.iter().filter(|&&(client, stamp)| valid(client, stamp));
        standing.map(|&(client, _)| client).collect()
    }

    /// The best client, which the caller then takes out; `valid` tells whether a FIFO entry still stands.
    pub(super) fn best(&mut self, valid: impl Fn(ClientId, u64) -> bool) -> Option<ClientId> {
        if let Some(q) = &self.by_time {
            return q.first().map(|&(_, client)| client);
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
}
