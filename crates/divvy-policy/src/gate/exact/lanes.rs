//! Who has which lane, and when that changes.

use alloc::vec::Vec;

use super::client::Place;
use super::plan::{nanos, stands};
use super::{Exact, GRAIN};
use crate::{ClientId, CpuId, Gate, Instant, Nanos};

impl Exact {
    /// Gives every empty lane to the best client that waits, what is left to clients of several threads, and lanes to those
    /// whose laxity is gone.
    pub(super) fn fill(&mut self) {
        while let Some(lane) = self.lanes.iter().position(Option::is_none) {
            let Some(client) = self.ready.best(stands(&self.slots, &self.clients)) else { break };
            self.take_turn(client, lane);
        }
        if self.params.cpus > 1 {
            self.widen_heads();
            while self.preempt() {}
        }
    }

    fn take_turn(&mut self, client: ClientId, lane: usize) {
        let Some(slot) = self.slots.get(client) else { return };
        self.refresh(slot);
        let cycle = self.cycle;
        let Some(c) = self.clients[slot].as_ref() else { return };
        let suspect = c.suspect(cycle);
        if c.allowance <= Self::grain() {
            self.hold_at(client, self.spent_place(suspect));
        } else if suspect {
            self.run_beside(client);
        } else {
            self.run_on(client, lane);
        }
    }

    /// Lanes of a head.
    pub(super) fn nr_lanes(&self, client: ClientId) -> u32 {
        self.lanes.iter().filter(|&&head| head == Some(client)).count() as u32
    }

    /// Heads that could use more lanes than they have: that, their lanes, and the CPUs that they can use.
    fn cramped(&self) -> Option<(i128, ClientId, u32, u32)> {
        let wide = self.lanes.iter().enumerate().filter_map(|(lane, &head)| {
            let (client, c) = (head?, self.client(head?)?);
            (c.place == Place::Head(lane as u32) && c.active > 1).then_some((c.need(), client, c.active))
        });
        let cramped = wide.map(|(need, client, active)| (need, client, self.nr_lanes(client), active));
        // Of equal needs the first client's.
        cramped.filter(|c| c.2 < c.3).max_by_key(|c| (c.0, core::cmp::Reverse(c.1)))
    }

    /// Gives lanes that nobody waits for to heads that can use them, those of the largest need first.
    fn widen_heads(&mut self) {
        while let Some(lane) = self.lanes.iter().position(Option::is_none) {
            let Some((_, client, ..)) = self.cramped() else { return };
            self.lanes[lane] = Some(client);
            self.coming.push(client);
        }
    }

    /// Allowances that heads and waiting clients still have to use, in time on each CPU.
    fn time_left(&self) -> i128 {
        let mut left = self.ready.work_sum;
        for (lane, head) in self.lanes.iter().enumerate() {
            if let Some(c) = head.and_then(|client| self.client(client))
                && c.place == Place::Head(lane as u32)
            {
                left += c.allowance.max(0);
            }
        }
        left / i128::from(self.params.cpus)
    }

    /// The waiting client with the largest need, to the grain, and that need.
    fn neediest(&self) -> Option<(ClientId, i128)> {
        let client = self.ready.neediest()?;
        self.client(client).map(|c| (client, c.ticket.need))
    }

    /// The head of the smallest need, `but` one, with that need and the last of its lanes.
    fn least_needy(&self, but: Option<ClientId>) -> Option<(i128, ClientId, usize)> {
        let heads = self.lanes.iter().enumerate().filter_map(|(lane, &head)| {
            let (client, c) = (head?, self.client(head?)?);
            (head != but).then_some((c.need(), client, core::cmp::Reverse(lane)))
        });
        heads.min().map(|(need, client, lane)| (need, client, lane.0))
    }

    /// Gives a lane of the smallest need to whoever has the largest, a client that waits or a head that could use more
    /// lanes than it has, if that has no time to lose.
    fn preempt(&mut self) -> bool {
        let waiting = self.neediest().map(|(client, need)| (need, client));
        let cramped = self.cramped().map(|(need, client, ..)| (need, client));
        let waits = match (waiting, cramped) {
            (Some(w), Some(c)) => w.0 >= c.0,
            (waiting, _) => waiting.is_some(),
        };
        let Some((need, client)) = (if waits { waiting } else { cramped }) else { return false };
        if self.time_left() - need > Self::grain() {
            return false;
        }
        let Some((least, victim, lane)) = self.least_needy(Some(client)) else { return false };
        if least + Self::grain() >= need {
            return false;
        }
        if self.nr_lanes(victim) > 1 {
            self.give_up_lane(victim, lane);
        } else {
            self.hold_at(victim, Place::Waiting(self.cycle));
        }
        if waits {
            self.take_turn(client, lane);
        } else {
            self.lanes[lane] = Some(client);
            self.coming.push(client);
        }
        true
    }

    /// A head of several lanes goes on without one of them.
    fn give_up_lane(&mut self, client: ClientId, lane: usize) {
        self.lanes[lane] = None;
        let first = self.lanes.iter().position(|&head| head == Some(client));
        if let (Some(c), Some(first)) = (self.client_mut(client), first) {
            c.place = Place::Head(first as u32);
        }
        self.coming.push(client);
    }

    /// Sets when somebody's laxity will be gone. It shrinks as time passes, for a head of fewer lanes than it can use the
    /// slower the more it has.
    pub(super) fn set_laxity(&mut self, now: Instant) {
        let left = self.time_left();
        let wait = |need: i128, but: Option<ClientId>| {
            let (least, ..) = self.least_needy(but)?;
            // Not before it would take a lane: when the least need is less than its own.
            Some((left - need).max(least + 2 * Self::grain() - need))
        };
        let waiting = self.neediest().and_then(|(_, need)| wait(need, None));
        let cramped = self.cramped().and_then(|(need, client, lanes, active)| {
            let wait = wait(need, Some(client))?;
            Some(wait.max(0) * i128::from(active) / i128::from(active - lanes))
        });
        let first = match (waiting, cramped) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.laxity_gone =
            first.map(|wait| now + nanos(wait).max(GRAIN)).filter(|&at| at < Instant(u64::MAX));
    }

    /// A head that was never held and got another lane in this plan goes back to its own: it runs there already.
    fn stay(&mut self, client: ClientId) {
        let Some(c) = self.client(client) else { return };
        let (Place::Head(lane), Some(told), 1, true) = (c.place, c.told_lane, c.width, c.released) else {
            return;
        };
        let other = self.lanes[told as usize];
        if told == lane {
            return;
        }
        self.lanes.swap(lane as usize, told as usize);
        if let Some(c) = self.client_mut(client) {
            c.place = Place::Head(told);
        }
        if let Some(other) = other {
            let first = self.lanes.iter().position(|&head| head == Some(other));
            if let (Some(c), Some(first)) = (self.client_mut(other), first) {
                c.place = Place::Head(first as u32);
            }
        }
    }

    /// The CPUs that a client of several threads is to keep to: those of its lanes. None are all.
    fn cpus_of(&self, client: ClientId) -> Vec<u32> {
        let cpus = self.params.cpus;
        let own = self.lanes.iter().enumerate().filter(|&(_, &head)| head == Some(client));
        let mut own: Vec<u32> = own.map(|(lane, _)| lane as u32 % cpus).collect();
        own.sort_unstable();
        own.dedup();
        if own.len() == cpus as usize { Vec::new() } else { own }
    }

    /// Tells the driver what changed: first who is held, then who is released, then when to look.
    pub(super) fn tell(&mut self, now: Instant) {
        self.tell_holds();
        let steer = self.params.cpus > 1;
        let coming = core::mem::take(&mut self.coming);
        if steer {
            for &client in &coming {
                self.stay(client);
            }
        }
        // Those of several threads last: a CPU that they leave before its next client is there takes them back.
        let wide = |client: &ClientId| self.client(*client).is_some_and(|c| c.width > 1);
        let (last, first): (Vec<ClientId>, Vec<ClientId>) = coming.into_iter().partition(wide);
        for client in first.into_iter().chain(last) {
            if self.client(client).is_some_and(|c| c.place.runs()) {
                self.tell_release(now, client);
                self.arm(client);
            }
        }
    }

    /// Releases a client, or tells where it is to run from now on.
    ///
    /// A client of several threads is told of each of its CPUs; the first of them releases it. Where they change while it
    /// runs, it is first told that it may run anywhere.
    fn tell_release(&mut self, now: Instant, client: ClientId) {
        let cpus = self.params.cpus;
        let wide = self.params.cpus > 1 && self.client(client).is_some_and(|c| c.width > 1);
        let Some(c) = self.client(client) else { return };
        let own = match c.place {
            Place::Head(_) if wide => self.cpus_of(client),
            _ => Vec::new(),
        };
        let Some(c) = self.client_mut(client) else { return };
        let before = core::mem::replace(&mut c.released, true);
        if !before {
            c.looked = now;
            c.used_since_look = Nanos::ZERO;
            c.fresh = true;
            c.told_lane = match c.place {
                Place::Head(lane) if cpus > 1 && c.width == 1 => Some(lane % cpus),
                _ => None,
            };
        }
        let changed = core::mem::replace(&mut c.told_cpus, own.clone()) != own;
        if !before || changed {
            (c.lanes_since, c.lanes_used) = (now, Nanos::ZERO);
        }
        let lane = c.told_lane;
        let mut release = |cpu: Option<u32>| {
            self.out.push_back(Gate::Release { client, cpu: cpu.map(CpuId) });
        };
        if !before && own.is_empty() {
            release(lane);
        } else if before && changed {
            release(None);
        }
        if !before || changed {
            own.into_iter().for_each(|cpu| release(Some(cpu)));
        }
    }
}
