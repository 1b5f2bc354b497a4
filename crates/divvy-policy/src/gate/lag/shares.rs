//! Water-filling: whose shares ask for more than their threads can use, and what they get instead.

use alloc::vec::Vec;
use core::cmp::Reverse;

use super::{Cpus, Lag};
use crate::{ClientId, Nanos};

/// A cycle is stretched to so many times its length at most.
const STRETCH_MAX: u128 = 64;
/// Where nobody's threads come and go, it is by any number of these parts of itself.
const PARTS: u128 = 8;
/// Who needs all but one part in this many of the CPUs that it can use has no room to make up for anything.
const ROOM: u128 = 64;

impl Lag {
    /// Counts a client in, if it does not count already: by its share of each CPU that it can use.
    pub(super) fn claim(&mut self, client: ClientId) {
        let Some(c) = self.clients.get_mut(client).filter(|c| c.claim.is_none()) else { return };
        let claim = (u128::from(c.share.get()) << 32) / u128::from(c.reach.0.max(1));
        c.claim = Some(claim);
        let share = c.share.get();
        self.claims.insert((Reverse(claim), client));
        self.claimed_shares += u128::from(share);
    }

    /// Counts a client out, and says whether it had counted.
    pub(super) fn unclaim(&mut self, client: ClientId) -> bool {
        let Some(c) = self.clients.get_mut(client) else { return false };
        let Some(claim) = c.claim.take() else { return false };
        let share = c.share.get();
        self.claims.remove(&(Reverse(claim), client));
        self.claimed_shares -= u128::from(share);
        true
    }

    /// Finds whose shares are infeasible, or nearly, and what they get: the length of the cycle, on each CPU that they can
    /// use. Sets the CPU time of one unit of shares, `time` unless [stretched](Self::stretched). Returns those whose cap may have changed.
    pub(super) fn cap_infeasible(&mut self, time: Nanos) -> Vec<ClientId> {
        let mut changed = core::mem::take(&mut self.capped);
        let robbed = self.service.robbed && !self.level.on;
        for &client in &changed {
            if let Some(c) = self.clients.get_mut(client) {
                if robbed && c.cap.is_some() {
                    c.allowance = c.allowance.max(0); // What it had as one that is never held is not repaid.
                }
                (c.cap, c.part) = (None, None);
            }
        }
        let one = u128::from(Cpus::ONE.0);
        let (mut shares, mut cpus) = (self.claimed_shares, u128::from(self.params.cpus) * one);
        for &(_, client) in &self.claims {
            let Some(c) = self.clients.get(client) else { continue };
            let (share, reach) = (u128::from(c.share.get()), u128::from(c.reach.0));
            if cpus == 0 || share * cpus * (ROOM + 1) <= shares * reach * ROOM {
                break;
            }
            // Whoever is due a little less than all is capped at the cost of the others: they are left what they are due, but for as
            // small a part.
            let left = cpus.saturating_sub(reach);
            if share * cpus <= shares * reach && left * shares * ROOM < cpus * (shares - share) * (ROOM - 1) {
                break;
            }
            shares -= share;
            cpus = cpus.saturating_sub(reach);
            self.capped.push(client);
        }
        self.time_now = self.stretched(time, shares, cpus);
        // Where nobody is left, any length will do: the one that the shares would have had.
        let (shares, cpus) = if shares == 0 || cpus == 0 {
            (self.claimed_shares, u128::from(self.params.cpus) * one)
        } else {
            (shares, cpus)
        };
        let length = shares * one / u128::from(self.unit_now) * u128::from(self.time_now.0) / cpus;
        self.length = i128::try_from(length).unwrap_or(i128::MAX);
        for index in 0..self.capped.len() {
            let client = self.capped[index];
            if let Some(c) = self.clients.get_mut(client) {
                let cap = Some((length * u128::from(c.reach.0) / one).max(1) as i128);
                // Who runs all the time has more of what strangers leave than its part.
                (c.cap, c.part) = if robbed { (None, cap) } else { (cap, None) };
            }
        }
        changed.extend(&self.capped);
        changed
    }

    /// All that so many CPUs come to in a cycle, ns; no end where nobody makes cycles.
    pub(super) fn most_of_cycle(&self, reach: Cpus) -> i128 {
        if self.length == 0 {
            return i128::MAX;
        }
        self.length.saturating_mul(i128::from(reach.0.max(Cpus::ONE.0))) / i128::from(Cpus::ONE.0)
    }

    /// `time`, as many times that the one who is left beside the capped ones, with so many `shares` and `cpus`, makes a cycle about as long
    /// as a look at it is put off: a power of two, since what clients can use flickers.
    fn stretched(&self, time: Nanos, shares: u128, cpus: u128) -> Nanos {
        if !(self.lone || self.level.on) || shares == 0 || cpus == 0 || self.params.share_time.is_some() {
            return time;
        }
        let one = u128::from(Cpus::ONE.0);
        // Lengths of a cycle, in units of `time` on 256 CPUs.
        let now = (shares * one * one / cpus).max(1);
        let least = if self.level.on { super::level::LENGTH } else { self.tick_max() };
        let least = u128::from(least.0) * u128::from(self.unit_now) * one / u128::from(time.0.max(1));
        if self.level.on {
            let parts = (PARTS * least / now).clamp(PARTS, PARTS * STRETCH_MAX);
            return Nanos(u64::try_from(u128::from(time.0) * parts / PARTS).unwrap_or(u64::MAX));
        }
        let times = 1_u128 << (least / now).clamp(1, STRETCH_MAX).ilog2();
        Nanos(time.0.saturating_mul(u64::try_from(times).unwrap_or(1)))
    }
}
