//! Looking at those who are due, moving clients between places, and telling the driver.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::client::{Client, Place, Told};
use super::place::APART_CPUS_MAX;
use super::{
    CONFINED_COUNT_INTERVAL, COUNT_INTERVAL, CREDIT, Cpus, GRAIN, Lag, SLEEPER_CYCLES, SLEEPER_TICK,
};
use crate::gate::observer::{CYCLES_MAX, nanos, sleep_look, together};
use crate::{ClientId, Gate, Instant, Nanos};

/// Ticks end on multiples of this part of themselves.
const TICK_GRID: u64 = 8;
/// Whoever shares its CPUs is through later than its threads say: it is not looked at sooner than after this.
const SLOWED_LOOK: Nanos = Nanos::from_micros(500);
/// The kernel puts whoever is held behind others at its next tick only: where that is how clients are held, nobody is looked at sooner.
const LEFTOVERS_LOOK: Nanos = Nanos::from_millis(2);
/// Less time than this on the CPUs that a client uses,
const LOOK_WORTH: Nanos = Nanos::from_micros(300);
/// and than one part in so many of its quota, is not worth a look at its end.
const WORTHLESS_PART: i128 = 16;
/// A capped client is short that lacks more than one in so many parts of its quota.
const SHORT: i128 = 200;
/// Who computes beside others that nap keeps so much of its part of a cycle for the end.
pub(super) const KEPT: Nanos = Nanos::from_millis(5);
/// More CPUs than were known to be used are believed where a look covers so much time.
const RATE_TIME: Nanos = Nanos::from_millis(2);

/// A tick from `looked` on, and as much longer that others' ticks end with it: one wake-up for all of them.
fn on_grid(looked: Instant, tick: Nanos) -> Nanos {
    let (at, grid) = (looked + tick, (tick.0 / TICK_GRID).max(1));
    Nanos(tick.0.saturating_add((grid - at.0 % grid) % grid))
}

impl Lag {
    fn grain() -> i128 {
        i128::from(GRAIN.0)
    }

    pub(super) fn tick_min(&self) -> Nanos {
        Nanos(self.params.quantum.0 / 2)
    }

    pub(super) fn tick_max(&self) -> Nanos {
        Nanos(self.params.quantum.0.saturating_mul(if self.level.on { self.level_ticks() } else { 4 }))
    }

    /// What `c` gets for a cycle, ns.
    pub(super) fn quota(&self, c: &Client) -> i128 {
        let by_share = || i128::from(c.share.get() / self.unit_now) * i128::from(self.time_now.0);
        match (c.cap.or(c.part), c.claim) {
            (Some(cap), _) => cap,
            (None, Some(_)) => by_share(),
            // Who sleeps is in nobody's water-filling: awake, it has no more than it could have used of the cycle.
            (None, None) => by_share().min(self.most_of_cycle(c.reach)),
        }
    }

    /// Whether a client has had what it is due in this cycle. Who is capped runs on.
    pub(super) fn is_spent(&self, c: &Client) -> bool {
        c.cap.is_none() && c.allowance <= self.worthless(c)
    }

    /// So little of an allowance is not worth a look, ns: what it takes to look is some of it. It is carried, and as each turn of a client
    /// leaves about as much, its cycles are as exact as without. Whoever naps would forfeit it; and on many CPUs turns are short.
    fn worthless(&self, c: &Client) -> i128 {
        let naps = c.blocked || c.is_sleeper(self.cycle);
        if self.level.on || self.params.cpus > APART_CPUS_MAX || naps || c.cap.is_some() {
            return Self::grain();
        }
        let reach = c.confined(c.reach.max(c.parallel)).max(Cpus::ONE);
        let look = i128::from(LOOK_WORTH.0) * i128::from(reach.0) / i128::from(Cpus::ONE.0);
        look.min(self.quota(c) / WORTHLESS_PART).max(Self::grain())
    }

    /// Brings an allowance up to the present cycle: sleepers forfeit credit, the others keep some of it.
    pub(super) fn refresh(&mut self, slot: usize) {
        let cycle = self.cycle;
        let Some(c) = self.clients.at(slot) else { return };
        if c.epoch == cycle {
            return;
        }
        let (quota, leftovers) = (self.quota(c), self.leftovers);
        let Some(c) = self.clients.at_mut(slot) else { return };
        let cycles = i128::from(cycle - c.epoch);
        c.short = c.cap.is_some() && c.allowance * SHORT > quota;
        // What is less than a grain is never run: it is collected, by everybody, until it is more.
        let spare = (2 * Self::grain() - quota).max(0);
        let most = match (c.blocked, c.cap) {
            (true, _) | (_, Some(_)) => spare,
            _ => quota.max(i128::from(CREDIT.0)).max(spare),
        };
        c.allowance = (c.allowance.min(most) + quota * (cycles - 1)).min(most) + quota;
        if leftovers {
            // What the others left for long is a gift.
            c.allowance = c.allowance.max(-quota.max(i128::from(CREDIT.0)));
        }
        if c.cap.is_some() {
            // It has all that there is for it, be that a little more or less.
            c.allowance = c.allowance.max(-quota);
        }
        c.epoch = cycle;
    }

    /// Puts a client that waits (its place says for which cycle) into its queue.
    pub(super) fn enqueue(&mut self, client: ClientId) {
        let Some(c) = self.clients.get(client) else { return };
        let Place::Waiting(cycle) = c.place else { return };
        let next = cycle > self.cycle;
        let mut ahead = c.clone();
        if next {
            ahead.allowance += self.quota(c); // It waits with what it will have.
        }
        let key = match self.params.slice {
            Some(_) => -self.finish_time(&ahead),
            None => self.need(&ahead, ahead.allowance),
        };
        let work = if ahead.cap.is_some() { 0 } else { ahead.allowance.max(0) };
        if next {
            self.next.insert((Reverse(key), client));
            self.next_work += work;
        } else {
            self.ready.insert((Reverse(key), client));
            self.ready_work += work;
        }
        if let Some(c) = self.clients.get_mut(client) {
            (c.key, c.work) = (key, work);
        }
    }

    /// Virtual finishing time of the next turn: the part of the quota that is used by then, in units of 2^-32.
    fn finish_time(&self, c: &Client) -> i128 {
        let quota = self.quota(c).max(1);
        let turn = self.params.slice.map_or(c.allowance, |s| c.allowance.min(i128::from(s.0)));
        ((quota - c.allowance + turn.max(0)) << 32) / quota
    }

    /// Takes a client that waits out of its queue.
    pub(super) fn dequeue(&mut self, client: ClientId) {
        let Some(c) = self.clients.get(client) else { return };
        let (entry, work, place) = ((Reverse(c.key), client), c.work, c.place);
        let Place::Waiting(cycle) = place else { return };
        if cycle > self.cycle {
            self.next_work -= if self.next.remove(&entry) { work } else { 0 };
        } else {
            self.ready_work -= if self.ready.remove(&entry) { work } else { 0 };
        }
    }

    /// Takes a client out of wherever it is; its place is [`Place::Out`] then.
    pub(super) fn detach(&mut self, client: ClientId) {
        self.dequeue(client);
        self.disarm(client);
        self.running.remove(&client);
        if let Some(c) = self.clients.get_mut(client) {
            c.place = Place::Out;
        }
    }

    /// The place of a client that has used its allowance up.
    pub(super) fn spent_place(&self, sleeper: bool) -> Place {
        if sleeper { Place::Spent } else { Place::Waiting(self.cycle + 1) }
    }

    /// Moves a client to a place where it is held.
    pub(super) fn hold_at(&mut self, client: ClientId, place: Place) {
        self.detach(client);
        let Some(c) = self.clients.get_mut(client) else { return };
        c.place = place;
        (c.turn_used, c.lanes) = (Nanos::ZERO, 0);
        if place == Place::Spent {
            self.next_sleepers.push(client);
        } else {
            self.enqueue(client);
        }
        self.leaving.push(client);
    }

    pub(super) fn run(&mut self, client: ClientId) {
        self.detach(client);
        let cycle = self.cycle;
        let Some(c) = self.clients.get_mut(client) else { return };
        // It was held since it was seen asleep: nobody can have seen it wake.
        if c.blocked && !c.is_let_run() && !c.is_sleeper(cycle) {
            (c.blocked, c.parallel) = (false, c.parallel.max(Cpus::ONE));
        }
        c.place = Place::Running;
        c.turn_used = Nanos::ZERO;
        self.running.insert(client);
        self.coming.push(client);
    }

    fn disarm(&mut self, client: ClientId) {
        if let Some(c) = self.clients.get_mut(client) {
            self.looks.disarm(client, &mut c.due);
        }
    }

    /// Sets the time of the next look at a client that runs.
    pub(super) fn arm(&mut self, client: ClientId) {
        self.disarm(client);
        let (cycle, tick_min, tick_max, slice) =
            (self.cycle, self.tick_min(), self.tick_max(), self.params.slice);
        // Where others have what they leave, nothing is lost by seeing later that they sleep.
        let leftovers = self.leftovers;
        let (uncovered, cpus) = (self.uncovered && !leftovers, u64::from(self.params.cpus));
        // Nobody is held or released when it is through: it may as well be looked at when its tick is over.
        let (lone, level) = (self.lone, self.level.on);
        let stray_tick = self.stray_tick();
        let kept = self.clients.get(client).and_then(|c| self.kept_for_the_end(c));
        // Of several that are awake all must fall asleep before a CPU idles: one look a ms for each CPU is enough.
        let many = (self.running.len() as u64 / cpus).max(1);
        let Some(c) = self.clients.get_mut(client) else { return };
        if c.place != Place::Running {
            return;
        }
        // What was charged since the last look was still to come then.
        let since_look = c.used_since_look;
        let left = c.allowance + i128::from(since_look.0);
        let floor = match c.slowed {
            _ if leftovers => LEFTOVERS_LOOK,
            true => SLOWED_LOOK,
            false => GRAIN,
        };
        let reach = c.confined(c.reach.max(c.parallel));
        let through = nanos(reach.time_for(left)).max(floor);
        let through = match level {
            // The kernel moves one of more threads than CPUs as soon as another CPU idles for a moment: they are sent back at looks.
            true if c.lanes < c.width => c.tick.min(stray_tick),
            // Who has whole CPUs of its own is looked at when their number changes.
            true => c.tick,
            false if c.cap.is_some() => c.tick,
            false => through,
        };
        let tick = if leftovers { c.tick.max(Nanos(tick_max.0 / 2)) } else { c.tick };
        let sleeper = c.is_sleeper(cycle);
        let through = match kept {
            Some(kept) if c.kept < cycle && left > kept + Self::grain() => {
                nanos(reach.time_for(left - kept)).max(floor).min(through)
            }
            _ => through,
        };
        let span = match (c.blocked, sleeper) {
            (true, true) => {
                let asleep = c.looked.since(c.last_used);
                together(c.looked, through.max(sleep_look(asleep)))
            }
            (true, false) => tick_min,
            (false, true) if uncovered => {
                let steady = if c.tick > tick_min { 2 } else { 1 };
                through.min(Nanos(SLEEPER_TICK.0 * many * steady))
            }
            (false, true) => through.min(tick_max),
            (false, false) => {
                let turn = slice.map_or(Nanos::MAX, |s| {
                    s.saturating_sub(c.turn_used.saturating_sub(since_look)).max(GRAIN)
                });
                let soonest = if lone { turn } else { through.min(turn) };
                soonest.min(if lone { on_grid(c.looked, tick) } else { tick })
            }
        };
        self.looks.arm(client, &mut c.due, c.looked + span);
    }

    /// What of its part of a cycle a client keeps for the end, ns: where some nap, whose time is taken from whoever computes where they
    /// wake, all have something left then that makes up for it.
    fn kept_for_the_end(&self, c: &Client) -> Option<i128> {
        let keep = self.naps && c.cap.is_none() && c.is_single() && !c.is_sleeper(self.cycle);
        keep.then(|| (self.quota(c) / 2).min(i128::from(KEPT.0)))
    }

    /// Whether a client that runs keeps the rest of its part for the end: once in a cycle, where somebody waits who has more.
    fn keeps_the_rest(&self, c: &Client) -> bool {
        let Some(kept) = self.kept_for_the_end(c) else { return false };
        let waits = || self.first_need().is_some_and(|(need, _)| need > c.allowance + Self::grain());
        c.kept < self.cycle && c.allowance <= kept + Self::grain() && waits()
    }

    /// Looks at a client that runs sooner than was meant, if it may be through by then.
    pub(super) fn arm_sooner(&mut self, client: ClientId) {
        let meant = self.clients.get(client).and_then(|c| c.due);
        self.arm(client);
        let Some(c) = self.clients.get_mut(client) else { return };
        // On fewer CPUs it is through later, but had more of them until now.
        if let (Some(at), Some(meant)) = (c.due, meant)
            && meant < at
        {
            self.looks.arm(client, &mut c.due, meant);
        }
    }

    pub(super) fn ask(&mut self, client: ClientId) {
        if let Some(c) = self.clients.get_mut(client) {
            self.out.measure(client, &mut c.awaits);
        }
    }

    /// Asks for the accounts of those who are due; says whether it asked.
    pub(super) fn look(&mut self, now: Instant) -> bool {
        let mut through = false;
        while let Some(client) = self.looks.due(now) {
            through |= self.clients.get(client).is_some_and(|c| self.may_be_through(c, now));
            self.disarm(client);
            self.ask(client);
        }
        if through && !self.level.on {
            self.ask_confined(now);
        }
        if self.laxity_gone.is_some_and(|at| at <= now) {
            self.laxity_gone = None;
            self.dirty = true;
        }
        self.out.is_owed()
    }

    /// Whether a client that runs has had its part of the cycle, if it used all that it can since it was looked at.
    fn may_be_through(&self, c: &Client, now: Instant) -> bool {
        let reach = c.confined(c.reach.max(c.parallel));
        c.cap.is_none()
            && i128::from(now.since(c.looked).0) + 2 * Self::grain()
                >= reach.time_for(c.allowance - self.worthless(c))
    }

    /// Somebody is through, and those who were kept to some of the CPUs may run on more of them from now on: what they have had until
    /// now is asked for at the same wake-up. Else they were looked at when they would be through if they had had all the time.
    fn ask_confined(&mut self, now: Instant) {
        let confined = |client: &ClientId| self.clients.get(*client).is_some_and(|c| !c.apart.is_empty());
        for client in self.running.iter().copied().filter(confined).collect::<Vec<_>>() {
            self.ask_if_old(now, client);
        }
    }

    /// A look was answered with a charge: did the client use all that it could, or must its threads be counted?
    pub(super) fn judge(&mut self, now: Instant, client: ClientId) {
        let (cycle, cpus) = (self.cycle, self.params.cpus);
        let (tick_max, leftovers, level) = (self.tick_max(), self.leftovers, self.level.on);
        let Some(c) = self.clients.get_mut(client) else { return };
        let then = core::mem::replace(&mut c.looked, now);
        let (elapsed, used) = (now.since(then), core::mem::take(&mut c.used_since_look));
        c.ask_leavings(then, now, used);
        if used.0 > 0 {
            c.last_used = now;
            c.last_used_cycle = cycle;
        }
        let all = c.used_all(used, elapsed);
        c.slowed = !all;
        c.served = c.was_served(used, elapsed).then(|| c.served.unwrap_or(now));
        let tells = !c.is_confined();
        let interval = match tells || level {
            true => COUNT_INTERVAL,
            // What it has of what others leave tells something only where it is known to be awake.
            false if c.apart.is_empty() => Nanos::ZERO,
            false => CONFINED_COUNT_INTERVAL,
        };
        let counted = c.counted.is_some_and(|at| now.since(at) < interval);
        // A sleeper that used nothing sleeps on: its state need not be read.
        let sleeps_on = c.blocked && used.0 == 0;
        if all {
            c.tick = Nanos(c.tick.0.saturating_mul(2)).min(tick_max);
            // How long a short look was is not known well enough.
            let most = if level && !c.apart.is_empty() { c.apart.len() as u32 } else { cpus };
            let rate = Cpus::of(used, elapsed, most);
            let more = elapsed >= RATE_TIME && rate.0 > c.parallel.0 + Cpus::ONE.0 / 4;
            let seen = if more { rate } else { c.parallel };
            if more || tells {
                self.resample(client, |c| c.sample(now, seen));
            }
        } else if sleeps_on && !c.is_single() {
            self.resample(client, |c| c.sample(now, Cpus(0)));
        }
        let Some(c) = self.clients.get_mut(client) else { return };
        // Others have what it leaves: how much that is need not be known at once.
        let enough = all || leftovers && used.0 > 0;
        if !(sleeps_on || enough && counted && !c.blocked) {
            self.out.observe(client, &mut c.awaits);
            return;
        }
        self.out.answered(&mut c.awaits);
        c.seen = if sleeps_on { 0 } else { c.width };
        self.settle(now, client, sleeps_on);
    }

    /// Takes a sample of what a client can use; its claim follows.
    pub(super) fn resample(&mut self, client: ClientId, sample: impl FnOnce(&mut Client)) {
        let claims = self.unclaim(client);
        if let Some(c) = self.clients.get_mut(client) {
            sample(c);
        }
        if claims {
            self.claim(client);
        }
    }

    /// A client's state is known: moves it to where it belongs now.
    pub(super) fn settle(&mut self, now: Instant, client: ClientId, blocked: bool) {
        let Some(slot) = self.clients.find(client) else { return };
        self.refresh(slot);
        let (cycle, tick_min) = (self.cycle, self.tick_min());
        let Some(c) = self.clients.at_mut(slot) else { return };
        c.blocked = blocked;
        c.sample_rest(now, blocked);
        c.note_leavings(now);
        if blocked {
            c.tick = tick_min;
            if c.is_single() {
                c.sleeper_until = Some(cycle + SLEEPER_CYCLES);
            }
        }
        let (place, sleeper, naps) = (c.place, c.is_sleeper(cycle), c.naps(cycle));
        let deep = blocked && sleeper && cycle > c.last_used_cycle + 1;
        let slice_over = self.params.slice.is_some_and(|s| c.turn_used + GRAIN >= s);
        let spent = self.clients.at(slot).is_some_and(|c| self.is_spent(c)) && !self.is_almost_over(now);
        let keeps = !blocked && self.clients.at(slot).is_some_and(|c| self.keeps_the_rest(c));
        if place != Place::Out || !blocked {
            if deep {
                self.unclaim(client);
            } else {
                self.claim(client);
            }
        }
        match place {
            Place::Out if blocked => {}
            Place::Out => {
                if let Some(c) = self.clients.at_mut(slot) {
                    (c.looked, c.last_used, c.sampled, c.last_used_cycle) = (now, now, now, cycle);
                    c.place = Place::Waiting(if spent { cycle + 1 } else { cycle });
                }
                self.enqueue(client);
            }
            Place::Running if spent => self.hold_at(client, self.spent_place(sleeper)),
            Place::Running if keeps => {
                if let Some(c) = self.clients.at_mut(slot) {
                    c.kept = cycle;
                }
                self.hold_at(client, Place::Waiting(cycle));
            }
            Place::Running if slice_over && !blocked && !self.ready.is_empty() => {
                self.hold_at(client, Place::Waiting(cycle));
            }
            Place::Running => {
                if slice_over
                    && self.ready.is_empty()
                    && let Some(c) = self.clients.at_mut(slot)
                {
                    c.turn_used = Nanos::ZERO; // Nobody waits: it has another slice.
                }
                self.note_naps(client, naps);
                if deep {
                    self.running.remove(&client);
                } else {
                    self.running.insert(client);
                }
                self.arm(client);
            }
            Place::Waiting(_) | Place::Spent => {}
        }
    }

    /// Decides who runs, by what is known. Says whether there is anything to tell or to ask.
    pub(super) fn plan(&mut self, now: Instant) -> bool {
        if !core::mem::take(&mut self.dirty) {
            return false;
        }
        debug_assert_eq!(self.ready_work, self.work_of(&self.ready));
        debug_assert_eq!(self.next_work, self.work_of(&self.next));
        self.watch_idle(now);
        self.watch_level();
        self.fill();
        let mut barren = false;
        while self.cycle_is_over(now) {
            if self.ask_running(now) {
                self.dirty = true;
                return true;
            }
            if barren && self.level.on {
                self.leave_level(); // A cycle that is over as soon as it begins has no whole CPUs to give.
                self.fill();
                continue;
            }
            // If the last cycle gave nobody allowance, all are in debt: pass the cycles that the least of them takes to
            // repay at once, however many.
            let cycles = if barren { self.cycles_until_credit() } else { 1 };
            let left = CYCLES_MAX - self.cycle;
            if left == 0 {
                break; // Debts of centuries, at a nanosecond a cycle: nobody lives to see them repaid.
            }
            self.end_cycle(cycles.min(left));
            self.asked_running = None;
            self.fill();
            barren = true;
        }
        self.asked_running = None;
        self.note_napping();
        if self.level.on {
            self.level_out(now);
        } else {
            self.balance(now);
        }
        if self.out.is_owed() {
            self.dirty = true;
            return true;
        }
        self.note_uncovered();
        self.note_lone(now);
        self.tell(now);
        self.set_laxity(now);
        !self.out.is_empty()
    }

    fn work_of(&self, queue: &BTreeSet<(Reverse<i128>, ClientId)>) -> i128 {
        queue.iter().filter_map(|&(_, client)| self.clients.get(client)).map(|c| c.work).sum()
    }

    /// Sleepers are looked at more often as soon as a CPU would idle if they blocked.
    fn note_uncovered(&mut self) {
        let uncovered = self.ready.is_empty();
        if uncovered && !self.uncovered {
            let cycle = self.cycle;
            let sleeper = |client: &ClientId| self.clients.get(*client).is_some_and(|c| c.is_sleeper(cycle));
            let sleepers: Vec<ClientId> = self.running.iter().copied().filter(sleeper).collect();
            self.coming.extend(sleepers);
        }
        self.uncovered = uncovered;
    }

    /// Whether somebody who runs naps, and those who are capped leave two CPUs or more: on one nobody is through before all are.
    fn note_napping(&mut self) {
        let running = || self.running.iter().filter_map(|&client| self.clients.get(client));
        let capped = || running().filter(|c| c.cap.is_some()).map(|c| c.reach.0).sum::<u32>();
        self.naps = self.params.slice.is_none()
            && !self.level.on
            && !self.leftovers
            && running().any(|c| c.naps(self.cycle))
            && Cpus::whole(self.params.cpus).0 >= capped() + Cpus::whole(2).0;
    }

    /// Where nobody waits, nobody will be held for another, and those who are capped have all that they can use, it does not matter when
    /// the one that is left is through; else those that run are looked at then.
    fn note_lone(&mut self, now: Instant) {
        let waits = !(self.ready.is_empty() && self.next.is_empty() && self.next_sleepers.is_empty());
        let mut running = self.running.iter().filter_map(|&client| self.clients.get(client));
        let mut left = 0;
        let served = !waits
            && running.all(|c| {
                left += u32::from(c.cap.is_none());
                left <= 1 && (c.cap.is_none() || c.is_served(now) && !c.naps(self.cycle))
            });
        let lone = served && left > 0;
        if core::mem::replace(&mut self.lone, lone) && !lone {
            self.coming.extend(self.running.iter().copied());
        }
    }

    /// Before a cycle ends all that run are looked at: one may have more left than is known, or have fallen asleep. Says
    /// whether there were any.
    fn ask_running(&mut self, now: Instant) -> bool {
        // Where many are looked at, the first is known no more by the time the last has answered: that must do.
        let since = *self.asked_running.get_or_insert(now);
        for client in self.running.iter().copied().collect::<Vec<_>>() {
            if self.clients.get(client).is_some_and(|c| c.looked < since) {
                self.ask_if_old(now, client);
            }
        }
        self.out.is_owed()
    }

    /// Asks for the account of a client that runs, unless it is known. Says whether it asked.
    pub(super) fn ask_if_old(&mut self, now: Instant, client: ClientId) -> bool {
        let old = |c: &Client| c.is_let_run() && now.since(c.looked) > SLOWED_LOOK;
        if !self.clients.get(client).is_some_and(old) {
            return false;
        }
        self.ask_at_once(client);
        true
    }

    /// Asks for the account of a client instead of looking later.
    pub(super) fn ask_at_once(&mut self, client: ClientId) {
        self.disarm(client);
        self.ask(client);
    }

    /// Cycles until the first of those who wait for the next one has allowance again, at least 1.
    fn cycles_until_credit(&self) -> u64 {
        let waiting = self.next.iter().map(|(_, client)| client).chain(&self.next_sleepers);
        let waiting = waiting.filter_map(|&client| self.clients.get(client));
        // Who is capped waits for the next cycle while it runs.
        let running = self.running.iter().filter_map(|&client| self.clients.get(client));
        let spent = running.filter(|c| c.cap.is_some() && c.allowance <= Self::grain());
        let cycles = waiting.chain(spent).map(|c| {
            let missing = self.worthless(c) + 1 - c.allowance;
            (missing.max(1) - 1) / self.quota(c).max(1) + 1
        });
        cycles.min().map_or(1, |n| u64::try_from(n.max(1)).unwrap_or(u64::MAX))
    }

    fn end_cycle(&mut self, cycles: u64) {
        // Those that waited for the next cycle wait for this one now: their places say for which, so that nobody has
        // to be touched. Those that run are brought up to date at once, the others when their turn comes. Nobody waits for the old one
        // any more but where whole CPUs are given, or caps are stale.
        self.put_off();
        self.cycle = self.cycle.saturating_add(cycles);
        if core::mem::take(&mut self.consumed) {
            self.cycles_ended += 1;
            self.out.push(Gate::CycleEnd { cycles: self.cycles_ended });
        }
        self.service.judge(self.params.cpus);
        let resort = self.begin_level();
        core::mem::swap(&mut self.ready, &mut self.next);
        (self.ready_work, self.next_work) = (self.next_work, self.ready_work);
        let unit = self.unit.unit();
        // A hand-over takes the kernel up to a tick where it puts clients behind others: half as many.
        let times = if self.leftovers { 2 } else { 1 };
        let time = |switch| self.params.share_time(self.clients.len(), self.unit.total_quanta(), switch);
        let time = Nanos(time(Nanos::ZERO).0.saturating_mul(times)).max(time(self.switch_cost));
        let before = (core::mem::replace(&mut self.unit_now, unit), self.time_now);
        let recapped = self.cap_infeasible(time);
        if before == (self.unit_now, self.time_now) && !resort {
            recapped.into_iter().for_each(|client| self.requeue(client));
        } else {
            let all: Vec<ClientId> = self.ready.iter().map(|&(_, client)| client).collect();
            all.into_iter().for_each(|client| self.requeue(client));
        }
        for client in self.running.iter().copied().collect::<Vec<_>>() {
            if let Some(slot) = self.clients.find(client) {
                self.refresh(slot);
                self.coming.push(client);
            }
        }
        for client in core::mem::take(&mut self.next_sleepers) {
            self.resume_sleeper(client);
        }
        if self.level.on {
            self.make_up();
        }
    }

    /// Sorts a client of the new cycle anew: its quota is another than when it was sorted.
    pub(super) fn requeue(&mut self, client: ClientId) {
        if let Some(slot) = self.clients.find(client)
            && self.clients.at(slot).is_some_and(|c| matches!(c.place, Place::Waiting(_)))
        {
            self.dequeue(client);
            self.refresh(slot);
            self.enqueue(client);
        }
    }

    fn resume_sleeper(&mut self, client: ClientId) {
        let Some(slot) = self.clients.find(client) else { return };
        self.refresh(slot);
        let cycle = self.cycle;
        let Some(c) = self.clients.at(slot) else { return };
        if c.place != Place::Spent {
            return;
        }
        if self.is_spent(c) {
            self.next_sleepers.push(client);
        } else if c.is_sleeper(cycle) {
            self.run(client);
        } else {
            if let Some(c) = self.clients.at_mut(slot) {
                c.place = Place::Waiting(cycle);
            }
            self.enqueue(client);
        }
    }

    /// Tells the driver what changed: first who is held, then who is released, then when to look; where all have whole CPUs of their own,
    /// who is held comes last.
    fn tell(&mut self, now: Instant) {
        let mut held = Vec::new();
        for client in core::mem::take(&mut self.leaving) {
            let Some(c) = self.clients.get_mut(client) else { continue };
            if c.is_let_run() && c.place != Place::Running {
                let told = core::mem::replace(&mut c.told, Told::Hold);
                self.leave_cpu(client);
                self.crowd_changed = true;
                if told == Told::Release {
                    held.push(Gate::Hold { client });
                }
            }
        }
        // Where clients keep to CPUs, one that idled for a moment would take some thread from another: its next is there first.
        if !self.level.on {
            held.drain(..).for_each(|hold| self.out.push(hold));
        }
        let behind = self.put_behind(now);
        let mut wide = Vec::new();
        for client in core::mem::take(&mut self.coming) {
            let Some(c) = self.clients.get(client).filter(|c| c.place == Place::Running) else { continue };
            if !behind.contains(&client) {
                if c.told != Told::Release && !c.is_single() {
                    wide.push(client);
                }
                self.tell_release(now, client);
            }
            self.arm(client);
        }
        self.vacated.clear();
        if self.level.on {
            self.keep_to_own(&wide);
        } else {
            self.keep_apart(now);
        }
        held.into_iter().for_each(|hold| self.out.push(hold));
        if self.leftovers {
            wide.into_iter().for_each(|client| self.spread_out(client));
        }
        self.make_room(now);
    }
}
