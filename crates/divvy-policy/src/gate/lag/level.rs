//! Where everybody keeps all of its threads busy: whole CPUs of their own for each client, and turns on one more for what is left of
//! its due.
//!
//! A client that is due 1.4 CPUs until the cycle's end has one CPU of its own all the time, and a second for .4 of it. Who has the
//! second is chosen as among clients of one thread: by laxity. All are through when the cycle ends, and each changes its number of
//! CPUs about twice in it: the schedule that McNaughton's wrap-around rule (1959) gives, found as time passes. Threads are not
//! released in the hope that the kernel runs them side by side: it gives who has more of them more.

use alloc::vec::Vec;

use super::client::{Client, Place, Told};
use super::place::APART_CPUS_MAX;
use super::{Cpus, GRAIN, Lag};
use crate::gate::observer::nanos;
use crate::{ClientId, CpuId, Gate, Instant, Nanos};

/// On so many CPUs or fewer, clients of several threads are kept apart as `place` says.
const FEW_CPUS: u32 = 2;
/// On so many CPUs threads are sent back to theirs every two quanta.
const STRAY_CPUS: u32 = 16;
/// No tick is longer than so many quanta.
const LONGEST_TICK: u64 = 10;
/// For so many cycles after somebody's threads were found to come and go nobody is held to whole CPUs.
const PAUSE_CYCLES: u64 = 8;
/// Cycles are stretched to up to so much: each change of somebody's number of CPUs moves threads.
pub(super) const LENGTH: Nanos = Nanos::from_millis(160);
/// Where shares are times, cycles are as long as these say: in shorter ones too much would change.
const SHORTEST: Nanos = Nanos::from_millis(20);
/// What is left of a cycle when it ends.
const END: i128 = 2 * GRAIN.0 as i128;
/// With less left than this nobody is held, or has another number of CPUs.
const SOON: i128 = 2 * END;

/// What a client is due until the cycle's end.
struct Part {
    client: ClientId,
    /// CPUs that it needs all the time,
    whole: u32,
    /// and the time that it needs one more.
    rest: i128,
    /// CPUs that it can use, and has now.
    most: u32,
    had: u32,
    waits: bool,
    capped: bool,
}

/// Whether clients have whole CPUs of their own, and until when.
#[derive(Clone, Debug, Default)]
pub(super) struct Level {
    pub(super) on: bool,
    /// The first cycle in which they may.
    from: u64,
    /// When the cycle ends, as far as was known when that was last found.
    ends: Instant,
    /// Since when those whose number is to change are looked at.
    asked: Option<Instant>,
    /// Whether those who wait are sorted by what they have left, not by their need.
    sorted: bool,
}

impl Lag {
    /// When a client of more threads than CPUs is looked at again, at the latest: the more CPUs, the later, for each look costs the same.
    pub(super) fn stray_tick(&self) -> Nanos {
        Nanos(self.params.quantum.0.saturating_mul(2 * self.many()))
    }

    /// The longest tick, in quanta: as elsewhere, and longer where there are many CPUs.
    pub(super) fn level_ticks(&self) -> u64 {
        (4 * self.many()).min(LONGEST_TICK)
    }

    /// How many times as many CPUs as are few enough for looks at all of them.
    fn many(&self) -> u64 {
        u64::from(self.params.cpus.div_ceil(STRAY_CPUS))
    }

    /// Whether the next cycle can be divided so.
    pub(super) fn can_level(&self) -> bool {
        let p = &self.params;
        p.cpus > FEW_CPUS
            && self.wide > 0
            && p.presence == 1
            && p.slice.is_none()
            && !self.leftovers
            && !(self.service.robbed && p.cpus <= APART_CPUS_MAX)
            && self.cycle >= self.level.from
            && self.next_sleepers.is_empty()
            && self.all_steady()
            && (p.share_time.is_none() || self.length >= i128::from(SHORTEST.0))
    }

    /// Whether all who run keep all of their threads busy.
    fn all_steady(&self) -> bool {
        let mut running = self.running.iter().filter_map(|&client| self.clients.get(client));
        running.all(|c| self.is_steady(c))
    }

    /// Whether a client was found with all of its threads runnable, and can use about as many CPUs.
    fn is_steady(&self, c: &Client) -> bool {
        let seen = !c.is_let_run() || c.seen >= c.width;
        let reach = Cpus::whole(c.width).0.abs_diff(c.reach.0) <= Cpus::ONE.0 / 2;
        !c.blocked && !c.is_sleeper(self.cycle) && seen && reach
    }

    /// Ends it before the cycle does, where somebody's threads come and go.
    pub(super) fn watch_level(&mut self) {
        if self.level.on && !(self.can_level() || self.running.is_empty()) {
            self.leave_level();
        }
    }

    /// Ends it while the cycle goes on.
    pub(super) fn leave_level(&mut self) {
        self.end_level();
        // Until now they were sorted by what they have left.
        for client in self.ready.iter().map(|&(_, client)| client).collect::<Vec<_>>() {
            self.requeue(client);
        }
    }

    /// A cycle begins: is it divided so? Says whether those who wait are sorted by something else from now on.
    pub(super) fn begin_level(&mut self) -> bool {
        if self.can_level() {
            self.level.on = true;
        } else if self.level.on {
            self.end_level();
        }
        self.level.ends = Instant(u64::MAX);
        core::mem::replace(&mut self.level.sorted, self.level.on) != self.level.on
    }

    /// Everybody may run anywhere again. Those of several threads are looked at at once, or soon after they are released: of whoever had
    /// fewer CPUs than threads it is not known how many of these are awake.
    fn end_level(&mut self) {
        (self.level.on, self.level.asked) = (false, None);
        self.level.from = self.cycle + PAUSE_CYCLES;
        self.crowd_changed = true;
        self.coming.extend(self.running.iter().copied());
        let (tick_min, tick_max) = (self.tick_min(), self.tick_max());
        let waiting = self.ready.iter().chain(&self.next).map(|&(_, client)| client);
        for client in waiting.chain(self.running.iter().copied()) {
            if let Some(c) = self.clients.get_mut(client) {
                c.lanes = 0;
                c.tick = if c.is_single() { c.tick.min(tick_max) } else { tick_min };
            }
        }
    }

    /// Whether hardly anything is left of the cycle.
    pub(super) fn level_is_over(&self, now: Instant, waits: bool) -> bool {
        // Who is capped, and waits, is the first of those who wait.
        let first = self.ready.first().and_then(|&(_, client)| self.clients.get(client));
        if first.is_some_and(|c| c.cap.is_some()) {
            return false;
        }
        let time = self.time_left(now);
        if time <= END || time <= SOON && !self.anybody_has_left(now) {
            return true;
        }
        let waiting = self.ready.iter().take(self.params.cpus as usize).map(|&(_, client)| client);
        let clients = self.running.iter().copied().chain(waiting);
        let most: u32 = clients.filter_map(|client| self.clients.get(client)).map(|c| c.width).sum();
        waits && most < self.params.cpus
    }

    /// Whether somebody who runs has something left.
    fn anybody_has_left(&self, now: Instant) -> bool {
        let mut running = self.running.iter().filter_map(|&client| self.clients.get(client));
        running.any(|c| c.cap.is_none() && self.left(c, now) > i128::from(GRAIN.0))
    }

    /// Whether so little is left of the cycle that nobody is held for having had its due.
    pub(super) fn is_almost_over(&self, now: Instant) -> bool {
        self.level.on && self.level.ends <= now + Nanos(SOON as u64)
    }

    /// Those who wait and have something left wait for the next cycle.
    pub(super) fn put_off(&mut self) {
        let cycle = self.cycle;
        for client in self.ready.iter().map(|&(_, client)| client).collect::<Vec<_>>() {
            self.dequeue(client);
            if let Some(slot) = self.clients.find(client) {
                self.refresh(slot);
            }
            if let Some(c) = self.clients.get_mut(client) {
                c.place = Place::Waiting(cycle + 1);
            }
            self.enqueue(client);
        }
    }

    /// Chooses how many CPUs each has from now on.
    pub(super) fn level_out(&mut self, now: Instant) {
        let time = self.time_left(now).max(1);
        let mut parts: Vec<Part> = Vec::new();
        for &client in &self.running {
            if let Some(c) = self.clients.get(client) {
                parts.push(self.part(client, c, self.left(c, now), time));
            }
        }
        for &(_, client) in self.ready.iter().take(self.params.cpus as usize) {
            if let Some(c) = self.clients.get(client) {
                parts.push(self.part(client, c, c.key.max(0), time));
            }
        }
        // So little is left that another number of CPUs is not worth it.
        let chosen = if time <= SOON
            && parts.iter().all(|part| part.had > 0 || part.waits && !part.capped)
            && parts.iter().map(|part| part.had).sum::<u32>() >= self.params.cpus
        {
            parts.iter().map(|part| part.had).collect()
        } else {
            self.choose(&parts)
        };
        let changes = || parts.iter().zip(&chosen).filter(|(part, lanes)| part.had != **lanes);
        // What they have used by now is charged before they have another number of CPUs; who has none then, however short it ran: else
        // it is what it was thought to have used that it is held for, and it comes again.
        let old: Vec<(ClientId, bool)> = changes()
            .filter(|(part, _)| !part.waits)
            .map(|(part, lanes)| (part.client, *lanes == 0))
            .collect();
        let since = *self.level.asked.get_or_insert(now);
        for (client, is_held) in old {
            if self.clients.get(client).is_none_or(|c| c.looked >= since) {
                continue;
            }
            if is_held {
                self.ask_at_once(client);
            } else {
                self.ask_if_old(now, client);
            }
        }
        if self.out.is_owed() {
            return;
        }
        self.level.asked = None;
        let changes: Vec<(ClientId, bool, u32)> =
            changes().map(|(part, lanes)| (part.client, part.waits, *lanes)).collect();
        for (client, waits, lanes) in changes {
            self.crowd_changed = true;
            if lanes == 0 {
                self.hold_at(client, Place::Waiting(self.cycle));
            } else if waits {
                self.take_turn(client);
            }
            if let Some(c) = self.clients.get_mut(client) {
                c.lanes = if c.place == Place::Running { lanes } else { 0 };
            }
        }
        let rest = |part: &Part, lanes: u32| if lanes > part.whole { part.rest } else { time - part.rest };
        let wait = parts
            .iter()
            .zip(&chosen)
            .filter(|(part, _)| part.rest > 0)
            .map(|(part, &lanes)| rest(part, lanes));
        let wait = wait.min().unwrap_or(time).min(time);
        self.level.ends = now + nanos(time);
        // Whoever is capped has as many CPUs in the next cycle.
        let changes = parts.iter().any(|part| !part.capped);
        self.laxity_gone = changes.then(|| now + nanos(wait).max(Nanos(2 * GRAIN.0)));
    }

    fn part(&self, client: ClientId, c: &Client, left: i128, time: i128) -> Part {
        let (most, waits) = (c.width.max(1), c.place != Place::Running);
        let grain = i128::from(GRAIN.0);
        let (mut whole, mut rest) = (left / time, left % time);
        if rest + grain >= time {
            (whole, rest) = (whole + 1, 0);
        } else if rest <= grain {
            rest = 0;
        }
        if c.cap.is_some() || whole >= i128::from(most) {
            (whole, rest) = (i128::from(most), 0);
        }
        let (whole, had, capped) = (whole as u32, if waits { 0 } else { c.lanes }, c.cap.is_some());
        Part { client, whole, rest, most, had, waits, capped }
    }

    /// How many CPUs each of them has, in their order.
    fn choose(&self, parts: &[Part]) -> Vec<u32> {
        let mut free = self.params.cpus;
        // Whoever needs all that it can use comes first, should they be too few.
        let mut order: Vec<usize> = (0..parts.len()).collect();
        order.sort_by_key(|&i| {
            let part = &parts[i];
            (!part.capped, part.whole < part.most, part.waits, part.client)
        });
        let mut chosen = alloc::vec![0; parts.len()];
        for &i in &order {
            chosen[i] = parts[i].whole.min(free);
            free -= chosen[i];
        }
        let more = |part: &Part, has: u32| has < part.most;
        order.retain(|&i| parts[i].rest > 0 && more(&parts[i], chosen[i]));
        order.sort_by_key(|&i| {
            (parts[i].had <= parts[i].whole, core::cmp::Reverse(parts[i].rest), parts[i].client)
        });
        for &i in &order {
            if free == 0 {
                break;
            }
            chosen[i] += 1;
            free -= 1;
        }
        // Nobody needs them before the cycle ends: whoever can use them is through sooner.
        while free > 0 {
            let able = (0..parts.len())
                .filter(|&i| more(&parts[i], chosen[i]) && parts[i].whole + u32::from(parts[i].rest > 0) > 0);
            let Some(i) = able.max_by_key(|&i| (chosen[i] > 0, parts[i].had > chosen[i], parts[i].rest))
            else {
                break;
            };
            chosen[i] += 1;
            free -= 1;
        }
        chosen
    }

    /// Whoever is due all of a CPU on which somebody else runs too, divvy itself or a stranger, is short of that for ever: it changes
    /// places with a client that can make up for it on others. One does so each cycle.
    pub(super) fn make_up(&mut self) {
        let running = || self.running.iter().filter_map(|&client| Some((client, self.clients.get(client)?)));
        let mut short = running().filter(|(_, c)| c.short && c.cap.is_some() && c.is_single());
        let Some((client, _)) = short.find(|(_, c)| c.told == Told::Release && c.cpu.is_some()) else {
            return;
        };
        let able = running().filter(|(_, c)| c.cap.is_none() && !c.is_single());
        let Some(&cpu) = able.filter_map(|(_, c)| c.apart.last()).next() else { return };
        self.put_on(client, cpu);
        self.out.push(Gate::Release { client, cpu: Some(CpuId(cpu)) });
    }

    /// Sends those of several threads to as many CPUs as each has, the ones that it had first.
    pub(super) fn keep_to_own(&mut self, released: &[ClientId]) {
        self.place_awake();
        if !core::mem::take(&mut self.crowd_changed) && released.is_empty() {
            return;
        }
        let mut free: Vec<u32> = (0..self.params.cpus).filter(|&cpu| self.is_left(cpu)).collect();
        let wide: Vec<(ClientId, usize)> = self
            .running
            .iter()
            .filter_map(|&client| Some((client, self.clients.get(client)?)))
            .filter(|(_, c)| !c.is_single())
            .map(|(client, c)| (client, c.lanes as usize))
            .collect();
        let mut kept: Vec<Vec<u32>> = Vec::new();
        for &(client, lanes) in &wide {
            let had = self.clients.get(client).map_or(&[][..], |c| &c.apart);
            let own: Vec<u32> = had.iter().copied().filter(|cpu| free.contains(cpu)).take(lanes).collect();
            free.retain(|cpu| !own.contains(cpu));
            kept.push(own);
        }
        for ((client, lanes), mut cpus) in wide.into_iter().zip(kept) {
            let more = lanes.saturating_sub(cpus.len()).min(free.len());
            cpus.extend(free.drain(..more));
            if cpus.is_empty() && released.contains(&client) {
                self.out.push(Gate::Release { client, cpu: None });
            }
            self.send(client, cpus);
        }
    }
}
