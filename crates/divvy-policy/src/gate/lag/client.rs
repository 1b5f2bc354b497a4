//! What the gate by lag knows of one client.

use alloc::vec::Vec;

use super::{Cpus, RATE_MARGIN};
use crate::gate::roster::{Await, Awaited, Roster};
use crate::{ClientId, Instant, Nanos, Share};

/// How fast a client is thought to have fewer runnable threads, once it was found to: half of the way in 10 ms.
const NARROWER_TIME: Nanos = Nanos::from_millis(12);
/// Over how much time it is told who sleeps now and then from who hardly ever does.
const REST_TIME: Nanos = Nanos::from_millis(100);
/// Whoever is asleep for less of the time than this, an eighth, is none that sleeps now and then.
const RESTS_MIN: Cpus = Cpus(Cpus::ONE.0 / 8);
/// Over how much time counts of threads are smoothed, to tell who is of one but for moments.
const COUNTS_TIME: Nanos = Nanos::from_millis(40);
/// Whoever had less than one part in so many
const LEAVINGS_PART: u64 = 4;
/// of so much that was left it, or nothing of so much more, has had strangers take it,
const LEAVINGS_SPAN: Nanos = Nanos::from_millis(100);
const LEAVINGS_SPAN_UNUSED: Nanos = Nanos::from_millis(500);
/// and is not made to wait for what is left for so long.
const TAKEN_FOR: Nanos = Nanos::from_secs(2);
/// Who has had all that it can use for so long is thought to have it for the next tick too: whose threads come and go finds others in its way
/// more often.
const SERVED_TIME: Nanos = Nanos::from_millis(300);
/// How fast what a client can use at most is forgotten.
const REACH_TIME: Nanos = Nanos::from_millis(150);

/// Where a client is. Only those that run are released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Joined, never seen awake.
    Out,
    /// Held, with allowance in this cycle, or, where the number is a later one, in that: nobody has to be touched when
    /// a cycle ends.
    Waiting(u64),
    /// Released.
    Running,
    /// Held, through with this cycle, and a sleeper: released as soon as the next begins.
    Spent,
}

/// What the driver was told to do with a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// To hold it.
    Hold,
    /// To release it.
    Release,
    /// To hold it though it runs: what those who are released leave it, so many CPUs, is all that it could use beside them.
    Behind(Cpus),
}

/// What a client that is awake has had of what the others leave it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Leavings {
    used: Nanos,
    /// What was left by those who run and compute, as far as it has threads for it.
    left: Nanos,
    passed: Nanos,
    /// Since when it is left as much.
    since: Instant,
    /// Used in so much time, before it is known whether it was awake at its end.
    asked: Option<(Nanos, Nanos)>,
    /// When others than these were found to have most of it.
    taken: Option<Instant>,
}

impl Leavings {
    /// It is left another part of the CPUs from now on.
    pub(super) fn begin(&mut self, now: Instant) {
        *self = Self { since: now, taken: self.taken, ..Self::default() };
    }

    /// It was found awake, and is left so many CPUs that it can use.
    fn note(&mut self, now: Instant, cpus: Cpus) {
        let Some((used, elapsed)) = self.asked.take() else { return };
        self.used += used;
        self.passed += elapsed;
        self.left += Nanos((u128::from(elapsed.0) * u128::from(cpus.0) / u128::from(Cpus::ONE.0)) as u64);
        // Who uses nothing at all may sleep more than looks tell.
        let span = if self.used > Nanos::ZERO { LEAVINGS_SPAN } else { LEAVINGS_SPAN_UNUSED };
        if self.left >= span && self.passed >= span {
            if self.used < Nanos(self.left.0 / LEAVINGS_PART) {
                self.taken = Some(now);
            }
            self.begin(self.since);
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) share: Share,
    /// Runnable threads when they were last counted, at most as many as there are CPUs.
    pub(super) width: u32,
    /// Runnable threads, smoothed: up at once, down in some 10 ms. What covers CPUs.
    pub(super) parallel: Cpus,
    /// The most CPUs that it can use, as far as was seen in the last tenths of a second. What it can be due.
    pub(super) reach: Cpus,
    /// Runnable threads when any were counted, smoothed, and when that was last.
    pub(super) counts: Cpus,
    pub(super) counted_at: Instant,
    /// Runnable threads at the last look: none if it slept.
    pub(super) seen: u32,
    /// When `parallel` was last brought up to date, and when threads were last counted.
    pub(super) sampled: Instant,
    pub(super) counted: Option<Instant>,
    /// CPU time left in this cycle, ns, as of `epoch`.
    pub(super) allowance: i128,
    /// The cycle up to which the allowance has been replenished.
    pub(super) epoch: u64,
    pub(super) place: Place,
    /// What it is sorted by while it waits, and what of its allowance is counted there.
    pub(super) key: i128,
    pub(super) work: i128,
    /// What the driver was told last.
    pub(super) told: Told,
    /// The last cycle in which there was room for its threads beside the others'.
    pub(super) fitted: u64,
    pub(super) blocked: bool,
    /// The CPU that it was sent to, being released and of one thread.
    pub(super) cpu: Option<u32>,
    /// It naps: its CPU is that of others who compute.
    pub(super) gives_way: bool,
    /// The CPU that it was last sent to.
    pub(super) last_cpu: u32,
    /// The CPUs that it was told to keep to, having several threads; none for all.
    pub(super) apart: Vec<u32>,
    /// It is capped, and had less than all of the CPUs that it can use in the last cycle.
    pub(super) short: bool,
    /// CPUs that it has of its own, where everybody has whole ones.
    pub(super) lanes: u32,
    /// It was sent to all CPUs, and is yet to be told that it may run anywhere.
    pub(super) spread: bool,
    /// The last cycle in which it counts as a sleeper, if it is one.
    pub(super) sleeper_until: Option<u64>,
    /// The part of the time for which it is asleep, smoothed, and when it was last brought up to date.
    pub(super) rests: Cpus,
    pub(super) rest_sampled: Instant,
    pub(super) awaits: Await,
    pub(super) looked: Instant,
    pub(super) used_since_look: Nanos,
    /// The cycle in which it kept its last part for the end.
    pub(super) kept: u64,
    /// CPU time used since it was released, or since its last slice ended.
    pub(super) turn_used: Nanos,
    pub(super) tick: Nanos,
    /// It used less than it has threads for at the last look: somebody shares its CPUs.
    pub(super) slowed: bool,
    /// Since when it has had all of the CPUs that it can use, if it has.
    pub(super) served: Option<Instant>,
    /// What it had of what was left it.
    pub(super) leavings: Leavings,
    pub(super) due: Option<Instant>,
    pub(super) last_used: Instant,
    pub(super) last_used_cycle: u64,
    /// What it gets for a cycle where its share is more than its threads can use.
    pub(super) cap: Option<i128>,
    /// The same where strangers take some of the CPUs: it is held as others are then.
    pub(super) part: Option<i128>,
    /// What it is sorted by among those whose shares are water-filled, while it is one.
    pub(super) claim: Option<u128>,
}

impl Client {
    pub(super) fn new(share: Share, cycle: u64, tick: Nanos) -> Self {
        Self {
            share,
            width: 1,
            parallel: Cpus::ONE,
            reach: Cpus::ONE,
            counts: Cpus::ONE,
            counted_at: Instant::ZERO,
            seen: 0,
            sampled: Instant::ZERO,
            counted: None,
            allowance: 0,
            epoch: cycle,
            place: Place::Out,
            key: 0,
            work: 0,
            told: Told::Hold,
            fitted: 0,
            blocked: true,
            cpu: None,
            gives_way: false,
            last_cpu: 0,
            apart: Vec::new(),
            short: false,
            lanes: 0,
            spread: false,
            sleeper_until: None,
            rests: Cpus(0),
            rest_sampled: Instant::ZERO,
            awaits: Await::Nothing,
            looked: Instant::ZERO,
            used_since_look: Nanos::ZERO,
            kept: cycle,
            turn_used: Nanos::ZERO,
            tick,
            slowed: false,
            served: None,
            leavings: Leavings::default(),
            due: None,
            last_used: Instant::ZERO,
            last_used_cycle: cycle,
            cap: None,
            part: None,
            claim: None,
        }
    }

    /// Whether it was seen asleep lately, and has one thread: it is released beside the others, so that it runs when it
    /// wakes. Of several threads some others are awake when one sleeps. Whoever hardly ever sleeps wants a CPU like one that
    /// computes as soon as it is awake again.
    pub(super) fn is_sleeper(&self, cycle: u64) -> bool {
        self.sleeper_until.is_some_and(|until| cycle <= until) && (self.blocked || self.rests >= RESTS_MIN)
    }

    /// Whether it is a sleeper that is more than asleep for the moment.
    pub(super) fn naps(&self, cycle: u64) -> bool {
        self.is_sleeper(cycle) && self.rests >= RESTS_MIN
    }

    /// Takes in whether it was found asleep.
    pub(super) fn sample_rest(&mut self, now: Instant, asleep: bool) {
        let elapsed = now.since(core::mem::replace(&mut self.rest_sampled, now)).min(REST_TIME);
        let seen = if asleep { Cpus::ONE } else { Cpus(0) };
        self.rests = self.rests.towards(seen, elapsed, REST_TIME);
    }

    /// Whether it is a client of one thread, as far as was seen lately.
    pub(super) fn is_single(&self) -> bool {
        (self.width == 1 || self.is_seldom_wide()) && self.reach.0 <= Cpus::ONE.0 + Cpus::ONE.0 / 16
    }

    /// Whether it is found with more than one runnable thread for moments only.
    fn is_seldom_wide(&self) -> bool {
        self.counts.0 <= Cpus::ONE.0 + Cpus::ONE.0 / 8
    }

    /// Takes in that it used as much as so many CPUs, or none.
    pub(super) fn sample(&mut self, now: Instant, seen: Cpus) {
        self.counts = self.counts.max(seen);
        self.take_sample(now, seen);
    }

    /// Takes in that so many threads were found runnable. A process that has just made another, and waits for it, is awake with it
    /// for a moment: who is seldom found with more than one thread cannot use more than one CPU.
    pub(super) fn sample_count(&mut self, now: Instant, seen: Cpus) {
        self.sample_change(now, seen, seen);
    }

    /// The same where it is known that there were `before` until now.
    pub(super) fn sample_change(&mut self, now: Instant, before: Cpus, seen: Cpus) {
        if self.sampled == Instant::ZERO {
            self.counts = seen;
        } else if before > Cpus(0) {
            let elapsed = now.since(self.counted_at);
            self.counts = self.counts.towards(before, elapsed, COUNTS_TIME);
        }
        self.counted_at = now;
        self.take_sample(now, seen);
        if self.is_seldom_wide() {
            (self.parallel, self.reach) = (self.parallel.min(Cpus::ONE), self.reach.min(Cpus::ONE));
        }
    }

    /// Takes in that so many CPUs were seen to be wanted.
    fn take_sample(&mut self, now: Instant, seen: Cpus) {
        if seen > self.reach {
            (self.cap, self.part) = (None, None); // It can use more than it was capped for.
        }
        let elapsed = now.since(core::mem::replace(&mut self.sampled, now));
        let narrower = |from: Cpus, time| if seen >= from { seen } else { from.towards(seen, elapsed, time) };
        (self.parallel, self.reach) =
            (narrower(self.parallel, NARROWER_TIME), narrower(self.reach, REACH_TIME));
    }

    /// CPUs that it is thought to use while it runs.
    pub(super) fn covers(&self, cycle: u64) -> Cpus {
        // Of a sleeper that sleeps it is known; of several threads the average says more than one look.
        if self.blocked && self.is_sleeper(cycle) { Cpus(0) } else { self.parallel }
    }

    /// Whether it may use CPUs: all that it is given, or what others leave.
    pub(super) fn is_let_run(&self) -> bool {
        self.told != Told::Hold
    }

    /// Whether others leave it fewer CPUs than it can use, or it was told to keep to some.
    pub(super) fn is_confined(&self) -> bool {
        !self.apart.is_empty() || matches!(self.told, Told::Behind(_))
    }

    /// As many of `cpus` as it was left.
    pub(super) fn confined(&self, cpus: Cpus) -> Cpus {
        match self.told {
            Told::Behind(left) => cpus.min(left),
            _ if self.apart.is_empty() => cpus,
            _ => cpus.min(Cpus::whole(self.apart.len() as u32)),
        }
    }

    /// Whether it has had all of the CPUs that it can use for a while.
    pub(super) fn is_served(&self, now: Instant) -> bool {
        self.served.is_some_and(|since| now.since(since) >= SERVED_TIME)
    }

    /// It has used so much since it was looked at `then`; whether it was awake is told later.
    pub(super) fn ask_leavings(&mut self, then: Instant, now: Instant, used: Nanos) {
        self.leavings.asked = (then >= self.leavings.since).then(|| (used, now.since(then)));
    }

    /// It is found awake or asleep.
    pub(super) fn note_leavings(&mut self, now: Instant) {
        match self.told {
            Told::Behind(left) if !self.blocked => {
                let usable = left.min(Cpus::whole(self.width));
                self.leavings.note(now, usable);
            }
            Told::Behind(_) => self.leavings.begin(self.leavings.since),
            _ => {}
        }
    }

    /// Whether strangers were found to take what is left it, lately.
    pub(super) fn has_no_leavings(&self, now: Instant) -> bool {
        self.leavings.taken.is_some_and(|at| now.since(at) < TAKEN_FOR)
    }

    /// Whether so much CPU time in so much time is all that it can use, but for what it takes to look.
    pub(super) fn was_served(&self, used: Nanos, elapsed: Nanos) -> bool {
        let could = u128::from(elapsed.0) * u128::from(self.reach.0) / u128::from(Cpus::ONE.0);
        used.0 > 0 && u128::from(used.0) + u128::from(RATE_MARGIN.0) + could / 16 >= could
    }

    /// Whether so much CPU time in so much time is all that its threads could have used.
    pub(super) fn used_all(&self, used: Nanos, elapsed: Nanos) -> bool {
        let cpus = self.confined(self.parallel.max(Cpus::whole(self.width))).max(Cpus::ONE);
        let could = u128::from(elapsed.0) * u128::from(cpus.0) / u128::from(Cpus::ONE.0);
        used.0 > 0 && u128::from(used.0) + u128::from(RATE_MARGIN.0).max(could / 8) >= could
    }
}

impl Awaited for Roster<Client> {
    fn awaits(&mut self, client: ClientId) -> Option<&mut Await> {
        Some(&mut self.get_mut(client)?.awaits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOKS: u64 = 20;

    /// One of so many threads that is left three CPUs, and looked at every 10 ms; whether it is thought to be robbed after `LOOKS` looks
    /// of which each finds it as `look` says: what it used, and whether it is awake.
    fn robbed(threads: u32, look: impl Fn(u64) -> (Nanos, bool)) -> bool {
        let at = |n: u64| Instant(Nanos::from_millis(1_000 + 10 * n).0);
        let mut c = Client::new(Share::new(1).expect("positive"), 0, Nanos::from_millis(5));
        (c.width, c.told) = (threads, Told::Behind(Cpus::whole(3)));
        c.leavings.begin(at(0));
        for n in 0..LOOKS {
            let (used, awake) = look(n);
            c.ask_leavings(at(n), at(n + 1), used);
            c.blocked = !awake;
            c.note_leavings(at(n + 1));
        }
        c.has_no_leavings(at(LOOKS))
    }

    #[test]
    fn who_has_little_of_what_is_left_is_robbed() {
        let ms = Nanos::from_millis;
        assert!(robbed(3, |_| (ms(7), true)), "7 of 30");
        assert!(!robbed(3, |_| (ms(8), true)), "8 of 30");
        assert!(!robbed(1, |_| (ms(7), true)), "7 of the 10 that one thread can use");
        assert!(robbed(1, |_| (ms(2), true)));
    }

    #[test]
    fn who_sleeps_now_and_then_is_not_robbed() {
        let ms = Nanos::from_millis;
        assert!(!robbed(3, |n| (ms(2), n % 9 != 0)));
        assert!(robbed(3, |n| (ms(2), n % 19 != 0)), "it is awake for long enough in between");
        assert!(
            !robbed(3, |_| (Nanos::ZERO, true)),
            "a host may not tell that it sleeps: 200 ms say nothing"
        );
    }

    #[test]
    fn what_was_before_it_was_left_as_much_does_not_count() {
        let at = |ms: u64| Instant(Nanos::from_millis(1_000 + ms).0);
        let mut c = Client::new(Share::new(1).expect("positive"), 0, Nanos::from_millis(5));
        (c.width, c.told, c.blocked) = (3, Told::Behind(Cpus::whole(3)), false);
        c.leavings.begin(at(50));
        c.ask_leavings(at(0), at(400), Nanos(1));
        c.note_leavings(at(400));
        assert!(!c.has_no_leavings(at(400)));
        c.ask_leavings(at(400), at(500), Nanos(1));
        c.note_leavings(at(500));
        assert!(c.has_no_leavings(at(500)) && c.has_no_leavings(at(2_499)) && !c.has_no_leavings(at(2_500)));
    }
}
