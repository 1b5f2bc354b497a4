//! How many CPUs are covered by the threads of those who are released, and who is released to cover them.

use core::cmp::Reverse;

use super::client::{Place, Told};
use super::{GRAIN, Lag};
use crate::gate::observer::nanos;
use crate::{ClientId, Instant, Nanos};

/// Whoever can use all CPUs is sorted by a 1024th of its need: last of all, and in order of need.
const ALL_CPUS_SHIFT: u32 = 10;

/// A number of CPUs, in 256ths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cpus(pub(super) u32);

impl Cpus {
    pub(super) const ONE: Self = Self(256);

    pub(super) fn whole(n: u32) -> Self {
        Self(n * Self::ONE.0)
    }

    /// As much of the way to `to` as `elapsed` is of itself and `time`: half of it after `time`.
    pub(super) fn towards(self, to: Self, elapsed: Nanos, time: Nanos) -> Self {
        let part = |gap: u32| {
            let part =
                u128::from(gap) * u128::from(elapsed.0) / (u128::from(elapsed.0) + u128::from(time.0)).max(1);
            part as u32
        };
        if to >= self { Self(self.0 + part(to.0 - self.0)) } else { Self(self.0 - part(self.0 - to.0)) }
    }

    /// As many whole CPUs as these are more than in part.
    pub(super) fn whole_up(self) -> u32 {
        (self.0 + Self::ONE.0 - Self::ONE.0 / 8) / Self::ONE.0
    }

    /// What so much CPU time in so much time comes to, at most `most` CPUs.
    pub(super) fn of(used: Nanos, elapsed: Nanos, most: u32) -> Self {
        let rate = u128::from(used.0) * u128::from(Self::ONE.0) / u128::from(elapsed.0.max(1));
        Self(u32::try_from(rate).unwrap_or(u32::MAX).min(Self::whole(most).0))
    }

    /// The time that so much CPU time takes on so many CPUs, but at least on one.
    pub(super) fn time_for(self, cpu_time: i128) -> i128 {
        cpu_time.max(0) * i128::from(Self::ONE.0) / i128::from(self.0.max(Self::ONE.0))
    }
}

/// Nobody is held for less.
const LAXITY_MIN: Nanos = Nanos::from_millis(1);
/// CPUs are covered if so much of one is missing: a count just missed some thread.
pub(super) const SLACK: i64 = 77;
/// What is seen idle up to this is how looks are made: 1/16 of a CPU.
const IDLE_MIN: i64 = 16;
/// What was seen idle is half forgotten after a tenth of a second.
const MEMORY: i64 = 165_000_000;
/// A CPU that is seen idle for a tick of 5 ms asks for .3 CPUs more.
const GAIN: i64 = 16_000_000;

/// What more is asked of the covers because CPUs were seen idle: an integral with a short memory, in 256ths of a CPU.
#[derive(Clone, Debug)]
pub(super) struct Spare {
    more: i64,
    most: i64,
    updated: Instant,
}

impl Spare {
    pub(super) fn new(cpus: u32) -> Self {
        Self { more: 0, most: i64::from(cpus) * 154, updated: Instant::ZERO }
    }

    /// So many 256ths of CPUs were seen idle, and have been since the last call.
    fn update(&mut self, now: Instant, idle: i64) {
        let elapsed = now.since(core::mem::replace(&mut self.updated, now)).0.min(20_000_000) as i64;
        let forgotten = self.more * elapsed / MEMORY;
        self.more = (self.more - forgotten + (idle - IDLE_MIN) * elapsed / GAIN).clamp(0, self.most);
    }
}

/// Of so much CPU time that could have been used, for each CPU, it is told whether strangers took any.
const SERVICE_SPAN: Nanos = Nanos::from_millis(100);
/// They do where more than one part in so many of it is missing,
const ROBBED: u128 = 16;
/// and go on to as long as more than one in so many is.
const ROBBED_STILL: u128 = 20;

/// What the group has had of what its runnable threads could have used.
#[derive(Clone, Debug, Default)]
pub(super) struct Service {
    used: u128,
    could: u128,
    updated: Instant,
    /// Strangers take some of the CPUs.
    pub(super) robbed: bool,
}

impl Service {
    /// Somebody was charged.
    pub(super) fn charge(&mut self, used: Nanos) {
        self.used += u128::from(used.0);
    }

    /// So many threads were runnable, at most as many as there are CPUs, since the last call.
    fn update(&mut self, now: Instant, runnable: u32) {
        let elapsed = now.since(core::mem::replace(&mut self.updated, now));
        self.could += u128::from(elapsed.0) * u128::from(runnable);
    }

    /// A cycle ends: all that was used until now has been charged.
    pub(super) fn judge(&mut self, cpus: u32) {
        if self.could >= u128::from(SERVICE_SPAN.0) * u128::from(cpus) {
            let parts = if self.robbed { ROBBED_STILL } else { ROBBED };
            self.robbed = self.used * parts < self.could * (parts - 1);
            (self.used, self.could) = (0, 0);
        }
    }
}

impl Lag {
    /// What the covers must come to: the CPUs, a little less for counts that miss a thread, a little more where some idle.
    fn target(&self, cpus: u32) -> i64 {
        i64::from(Cpus::whole(cpus).0) - SLACK + self.spare.more
    }

    fn fill_target(&self) -> i64 {
        self.target(self.params.cpus * self.params.presence)
    }

    /// CPUs that those who run cover; sleepers, which may sleep the next moment, only if asked for.
    fn covered(&self, sleepers: bool) -> i64 {
        let running = self.running.iter().filter_map(|&client| self.clients.get(client));
        let counts = running.filter(|c| sleepers || !c.is_sleeper(self.cycle));
        counts.map(|c| i64::from(c.covers(self.cycle).0)).sum()
    }

    /// Takes in what was seen of the CPUs lately.
    pub(super) fn watch_idle(&mut self, now: Instant) {
        // Those who are to be held from now on have run until now.
        let left = self.leaving.iter().filter(|client| !self.running.contains(client));
        let ran = self.running.iter().chain(left).filter_map(|&client| self.clients.get(client));
        let seen: u32 = ran.filter(|c| c.is_let_run()).map(|c| c.seen).sum();
        self.service.update(now, seen.min(self.params.cpus));
        let idle = i64::from(self.params.cpus.saturating_sub(seen)) * i64::from(Cpus::ONE.0);
        let others = !self.ready.is_empty() || !self.next.is_empty() || !self.next_sleepers.is_empty();
        self.spare.update(now, if others && !self.leftovers { idle } else { 0 });
    }

    /// Releases waiting clients until the CPUs are covered.
    pub(super) fn fill(&mut self) {
        if self.level.on {
            self.pass_over_spent();
            return;
        }
        // Whoever is capped is held for nobody, also where it waited when that was found.
        while let Some(client) = self.first_capped() {
            self.take_turn(client);
        }
        let target = self.fill_target();
        let mut covered = self.covered(false);
        while covered < target {
            let room = target + 2 * SLACK - covered;
            let Some(client) = self.best_for(room) else { break };
            covered += self.take_turn(client);
        }
    }

    /// Who is capped, and waits; where turns are slices those wait like others.
    fn first_capped(&self) -> Option<ClientId> {
        let &(_, client) = self.ready.first().filter(|_| self.params.slice.is_none())?;
        self.clients.get(client)?.cap.map(|_| client)
    }

    /// Where those who wait are sorted by what they have left and the first has nothing, nobody has.
    fn pass_over_spent(&mut self) {
        while let Some(&first) = self.ready.first() {
            let client = first.1;
            self.requeue(client); // It may be of an earlier cycle.
            if self.ready.first().is_none_or(|now| now.1 != client) {
                continue;
            }
            if !self.clients.get(client).is_some_and(|c| self.is_spent(c)) {
                return;
            }
            self.take_turn(client);
        }
    }

    /// The waiting client of the largest need among those few whose threads fit, or of all. Where it can use all CPUs, so can those after
    /// it, and the order does not matter: whoever still runs, having had its part of the last cycle, goes on.
    fn best_for(&self, room: i64) -> Option<ClientId> {
        let client = |&&(_, client): &&(Reverse<i128>, ClientId)| self.clients.get(client);
        let fits = |entry: &&_| client(entry).is_some_and(|c| i64::from(c.parallel.0) <= room);
        let first = self.ready.first();
        let few = || self.ready.iter().take(8);
        let any_order = first.as_ref().and_then(client).is_some_and(|c| {
            c.cap.is_none() && c.reach.whole_up() >= self.params.cpus && self.params.slice.is_none()
        });
        let goes_on = |entry: &&_| client(entry).is_some_and(|c| c.told == Told::Release);
        let found = few().filter(|_| any_order).find(|entry| goes_on(entry) && fits(entry));
        found.or_else(|| few().find(fits)).or(first).map(|&(_, client)| client)
    }

    /// Releases a waiting client, if it has allowance. Says what it covers.
    pub(super) fn take_turn(&mut self, client: ClientId) -> i64 {
        let Some(slot) = self.clients.find(client) else { return 0 };
        self.dequeue(client);
        self.refresh(slot);
        let cycle = self.cycle;
        let Some(c) = self.clients.at(slot) else { return 0 };
        let (spent, sleeper) = (self.is_spent(c), c.is_sleeper(cycle));
        if spent {
            self.hold_at(client, self.spent_place(sleeper));
            return 0;
        }
        self.run(client);
        self.clients.get(client).map_or(0, |c| i64::from(c.covers(cycle).0))
    }

    /// Whether those with allowance do not cover the CPUs while somebody waits for the next cycle.
    pub(super) fn cycle_is_over(&self, now: Instant) -> bool {
        if self.caps_are_stale() {
            return true;
        }
        if !self.level.on && !self.ready.is_empty() {
            return false;
        }
        let running = || self.running.iter().filter_map(|&client| self.clients.get(client));
        let spent = |c: &&super::Client| c.cap.is_some() && c.allowance <= i128::from(GRAIN.0);
        let waits = !self.next.is_empty() || !self.next_sleepers.is_empty() || running().any(|c| spent(&c));
        let anybody = running().any(|c| c.cap.is_none() && !(c.blocked && c.is_sleeper(self.cycle)));
        if self.level.on && (anybody || !self.ready.is_empty()) {
            return self.level_is_over(now, waits);
        }
        waits && (!anybody || self.covered(true) < self.target(self.params.cpus))
    }

    /// Whether those who are capped, and not held for anybody, have all CPUs, though somebody waits who counts: it slept when they were
    /// capped, or could use less.
    fn caps_are_stale(&self) -> bool {
        let client = |&client: &ClientId| self.clients.get(client);
        let waits = |c: &super::Client| c.claim.is_some() && c.cap.is_none();
        let capped = self.capped.iter().filter_map(client).filter(|c| c.cap.is_some());
        // Where turns are slices whoever is capped waits for one too, and then takes the place of whoever is not.
        let running = self.running.iter().filter(|_| self.params.slice.is_some());
        let mut others = self.ready.iter().map(|(_, client)| client).chain(running).filter_map(client);
        let all = u64::from(Cpus::whole(self.params.cpus).0);
        capped.map(|c| u64::from(c.reach.0)).sum::<u64>() >= all && others.any(waits)
    }

    /// Time that is left of this cycle on each CPU that the capped clients leave, as far as the others have allowance.
    pub(super) fn time_left(&self, now: Instant) -> i128 {
        let one = i128::from(Cpus::ONE.0);
        let (mut work, mut cpus) = (self.ready_work, i128::from(Cpus::whole(self.params.cpus).0));
        let running = || self.running.iter().filter_map(|&client| self.clients.get(client));
        for c in running().filter(|c| c.cap.is_some() || !c.is_sleeper(self.cycle)) {
            match c.cap {
                Some(_) => cpus -= i128::from(c.reach.0),
                None => work += self.left(c, now),
            }
        }
        let cpus = cpus.max(one / 4);
        let time = work * one / cpus;
        // Who sleeps now and then uses no more until then than it mostly does.
        for c in running().filter(|c| c.cap.is_none() && c.is_sleeper(self.cycle)) {
            let awake = one - i128::from(c.rests.0);
            work += self.left(c, now).min(time * awake / one);
        }
        work * one / cpus
    }

    /// What a client that runs has left now, if it has used what it could since it was looked at.
    pub(super) fn left(&self, c: &super::Client, now: Instant) -> i128 {
        if c.blocked || !c.is_let_run() {
            return c.allowance.max(0);
        }
        let elapsed = i128::from(now.since(c.looked).0);
        let cpus = i128::from(c.confined(c.parallel).0);
        (c.allowance - elapsed * cpus / i128::from(Cpus::ONE.0)).max(0)
    }

    /// Time that so much allowance takes `c` on the CPUs that it can use, ns. Who is capped has no time to lose. Whoever can use
    /// all CPUs has all of it: it is through in time as long as anything is left of the cycle. Neither holds of whom a cycle has passed
    /// over.
    pub(super) fn need(&self, c: &super::Client, allowance: i128) -> i128 {
        if c.cap.is_some() {
            return i128::MAX / 4;
        }
        if self.level.on {
            return allowance;
        }
        if allowance > 2 * self.quota(c) {
            // A cycle has ended without it, as it covered fewer CPUs than it can use.
            return c.reach.min(c.parallel).time_for(allowance);
        }
        let need = c.reach.time_for(allowance);
        if c.reach.whole_up() >= self.params.cpus { need >> ALL_CPUS_SHIFT } else { need }
    }

    /// Who of those that run can wait longest, with the time that its allowance takes: nobody who is capped or sleeps.
    fn most_patient(&self, now: Instant) -> Option<(i128, ClientId)> {
        let running = self.running.iter().filter_map(|&client| Some((client, self.clients.get(client)?)));
        let may_wait = running.filter(|(_, c)| c.cap.is_none() && !c.is_sleeper(self.cycle));
        may_wait.map(|(client, c)| (self.need(c, self.left(c, now)), client)).min()
    }

    /// The first of those who wait, with the time that its allowance takes: where turns are slices, it is not sorted by that.
    pub(super) fn first_need(&self) -> Option<(i128, ClientId)> {
        let &(Reverse(key), client) = self.ready.first()?;
        let by_slices = self.params.slice.is_some();
        let need = by_slices.then(|| self.clients.get(client).map(|c| self.need(c, c.work)));
        Some((need.unwrap_or(Some(key))?, client))
    }

    /// Releases those who have no time to lose, and holds those who have most of it where the others cover the CPUs.
    pub(super) fn balance(&mut self, now: Instant) {
        let margin = 2 * i128::from(GRAIN.0);
        for _ in 0..2 * self.params.cpus {
            let Some((need, client)) = self.first_need() else { break };
            let left = self.time_left(now);
            let patient = self.most_patient(now);
            if left - need > i128::from(GRAIN.0) || patient.is_none_or(|(least, _)| least + margin >= need) {
                break;
            }
            self.take_turn(client);
            self.hold_surplus(now);
            if self.out.is_owed() {
                return;
            }
        }
        self.hold_surplus(now);
    }

    /// Holds those who can wait longest, and have time to, as long as the others cover the CPUs.
    fn hold_surplus(&mut self, now: Instant) {
        let target = self.fill_target();
        let mut covered = self.covered(false);
        while covered > target {
            let Some((need, client)) = self.most_patient(now) else { return };
            if self.time_left(now) - need <= i128::from(LAXITY_MIN.0) {
                return;
            }
            let covers = self.clients.get(client).map_or(0, |c| i64::from(c.covers(self.cycle).0));
            if covered - covers < target {
                return;
            }
            // What it has used by now is charged before it is sorted by what it has left.
            if self.ask_if_old(now, client) {
                return;
            }
            covered -= covers;
            self.hold_at(client, Place::Waiting(self.cycle));
        }
    }

    /// Sets when the laxity of the waiting client with the largest need will be gone: it shrinks as time passes.
    pub(super) fn set_laxity(&mut self, now: Instant) {
        if self.level.on {
            return; // It is set where somebody's number of CPUs is chosen.
        }
        self.laxity_gone = None;
        let Some((need, _)) = self.first_need() else { return };
        let Some((least, _)) = self.most_patient(now) else { return };
        let left = self.time_left(now);
        let wait = (left - need).max(least + 2 * i128::from(GRAIN.0) - need);
        let at = now + nanos(wait).max(Nanos(2 * GRAIN.0));
        self.laxity_gone = (at < Instant(u64::MAX)).then_some(at);
    }
}
