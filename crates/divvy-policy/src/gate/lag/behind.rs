//! Who has only what the others leave though its turn has come: where it could use more CPUs than are left, its threads would be in
//! the way of those who need theirs.

use alloc::vec::Vec;
use core::cmp::Reverse;

use super::client::{Client, Told};
use super::cover::SLACK;
use super::{Cpus, Lag};
use crate::{ClientId, Gate, Instant, Nanos};

impl Lag {
    /// Puts those who run, and do not fit beside the others, behind these, and tells who they are. Those who were, and are not now,
    /// are to be told so with those who come.
    pub(super) fn put_behind(&mut self, now: Instant) -> Vec<ClientId> {
        let (fit, behind) = if self.leftovers { self.who_fits(now) } else { Default::default() };
        for client in fit {
            if let Some(c) = self.clients.get_mut(client) {
                c.fitted = self.cycle;
            }
        }
        let is_behind = |client: &ClientId| behind.iter().any(|(of, _)| of == client);
        let was_behind =
            |client: &ClientId| self.clients.get(*client).is_some_and(|c| matches!(c.told, Told::Behind(_)));
        let freed: Vec<ClientId> =
            self.running.iter().copied().filter(|client| was_behind(client) && !is_behind(client)).collect();
        self.coming.extend(freed);
        for &(client, left) in &behind {
            let Some(c) = self.clients.get_mut(client) else { continue };
            let told = core::mem::replace(&mut c.told, Told::Behind(left));
            if told == Told::Behind(left) {
                continue;
            }
            c.leavings.begin(now);
            let spread = core::mem::take(&mut c.spread);
            let kept = spread || !c.apart.is_empty();
            c.apart.clear();
            if told == Told::Hold {
                (c.looked, c.used_since_look, c.sampled) = (now, Nanos::ZERO, now);
                c.seen = if c.blocked { 0 } else { c.width };
                self.ask(client); // What it had until now counts.
            }
            // It is to keep to no CPUs, and of those who are held it is the one that has what is left.
            if kept || told == Told::Hold {
                self.out.push(Gate::Release { client, cpu: None });
            }
            if !matches!(told, Told::Behind(_)) {
                self.leave_cpu(client);
                self.out.push(Gate::Hold { client });
            }
            self.arm(client);
        }
        behind.into_iter().map(|(client, _)| client).collect()
    }

    /// Those who run and fit beside each other, and those who do not, with what is left them: capped ones come first, whoever can use
    /// all CPUs last, and whoever was released stays so in its cycle. Nobody makes room for a sleeper: it is in nobody's way for long.
    /// And nobody waits for what strangers take: it would have nothing, while others have more than their parts of what there is.
    fn who_fits(&self, now: Instant) -> (Vec<ClientId>, Vec<(ClientId, Cpus)>) {
        let order = |c: &Client| {
            let need = self.need(c, self.left(c, now));
            (c.cap.is_none(), c.reach.whole_up() >= self.params.cpus, c.fitted != self.cycle, Reverse(need))
        };
        let running = self.running.iter().filter_map(|&client| Some((client, self.clients.get(client)?)));
        let awake = running.filter(|(_, c)| !c.is_sleeper(self.cycle));
        let mut turns: Vec<_> = awake.map(|(client, c)| (order(c), client, c.parallel)).collect();
        turns.sort_unstable();
        let (mut room, mut fit, mut behind) = (Cpus::whole(self.params.cpus), Vec::new(), Vec::new());
        for (_, client, parallel) in turns {
            if fit.is_empty() || i64::from(parallel.0) <= i64::from(room.0) + SLACK {
                room = Cpus(room.0.saturating_sub(parallel.0));
                fit.push(client);
            } else if !self.clients.get(client).is_some_and(|c| c.has_no_leavings(now)) {
                behind.push((client, room));
            }
        }
        (fit, behind)
    }
}
