//! Water-filling: whose shares ask for more than their threads can use, and what they get instead.

use alloc::vec::Vec;
use core::cmp::Reverse;

use super::Exact;
use crate::ClientId;

/// Who needs all but one part in this many of the CPUs that it can use has no room to make up for anything.
const ROOM: u128 = 64;

/// Water-filling, several CPUs only: a client gets no more CPUs than its width, the others divide the rest.
impl Exact {
    fn claim_key(&self, client: ClientId) -> Option<(Reverse<u128>, ClientId)> {
        let c = self.client(client)?;
        Some((Reverse((u128::from(c.share.get()) << 32) / u128::from(c.active)), client))
    }

    /// Counts a client in; no effect on one CPU, or if it counts already.
    pub(super) fn claim(&mut self, client: ClientId) {
        if self.params.cpus == 1 || self.client(client).is_none_or(|c| c.claims) {
            return;
        }
        if let Some(key) = self.claim_key(client) {
            self.claims.insert(key);
        }
        if let Some(c) = self.client_mut(client) {
            c.claims = true;
            let share = c.share;
            self.claimed_shares += u128::from(share.get());
        }
    }

    /// Counts a client out, and says whether it had counted.
    pub(super) fn unclaim(&mut self, client: ClientId) -> bool {
        if !self.client(client).is_some_and(|c| c.claims) {
            return false;
        }
        if let Some(key) = self.claim_key(client) {
            self.claims.remove(&key);
        }
        if let Some(c) = self.client_mut(client) {
            c.claims = false;
            let share = c.share;
            self.claimed_shares -= u128::from(share.get());
        }
        true
    }

    /// Finds whose shares are infeasible and what they get instead: the length of the cycle, on each CPU of theirs. Who is
    /// nearly that is due what its share says, but like them can make up for nothing: there is no time left for it.
    /// Returns those whose cap may have changed.
    pub(super) fn cap_infeasible(&mut self) -> Vec<ClientId> {
        let mut changed = core::mem::take(&mut self.capped);
        for &client in &changed {
            if let Some(c) = self.client_mut(client) {
                c.cap = None;
            }
        }
        let (mut shares, mut cpus) = (self.claimed_shares, u128::from(self.params.cpus));
        let mut full = Vec::new();
        for &(_, client) in &self.claims {
            let Some(c) = self.client(client) else { continue };
            let (share, width) = (u128::from(c.share.get()), u128::from(c.active));
            if cpus == 0 || share * cpus * (ROOM + 1) <= shares * width * ROOM {
                break;
            }
            if share * cpus <= shares * width {
                full.push(client);
                continue;
            }
            shares -= share;
            cpus = cpus.saturating_sub(width);
            self.capped.push(client);
        }
        let quantum = u128::from(self.time_now.0);
        // Where nobody is left, any length will do: the one that the shares would have had.
        let (shares, cpus) = if shares == 0 || cpus == 0 {
            (self.claimed_shares, u128::from(self.params.cpus))
        } else {
            (shares, cpus)
        };
        let length = shares / u128::from(self.unit_now) * quantum / cpus;
        for index in 0..self.capped.len() {
            let client = self.capped[index];
            if let Some(c) = self.client_mut(client) {
                c.cap = Some((length * u128::from(c.active)).max(1) as i128);
            }
        }
        for client in full {
            let quota = self.client(client).map(|c| self.quota(c));
            if let Some(c) = self.client_mut(client) {
                c.cap = quota;
                self.capped.push(client);
            }
        }
        changed.extend(&self.capped);
        changed
    }
}
