//! Looks at clients of many threads, which take long: the longer they take, the less often they are taken.
//!
//! Meanwhile it counts what the last one has found, and whether the client has used anything since it was last asked.

use divvy_policy::{Instant, Nanos};

use crate::clock;
use crate::members::Scan;

/// Clients of fewer processes and threads are looked at whenever that is asked.
const MANY: usize = 32;
/// A look that took less CPU time than this is cheap.
const CHEAP: Nanos = Nanos::from_micros(200);
/// A look is not repeated within so many times what it has taken, nor within so many where the client has used nothing since though
/// somebody was found awake: it may have gone to sleep.
const REST: u64 = 50;
const REST_IN_DOUBT: u64 = 10;
/// Nor is it looked within so many times for processes that are not known yet.
const REST_OF_LISTS: u64 = 100;
const REST_OF_LISTS_MAX: Nanos = Nanos::from_secs(2);

/// What looks at one client take, and what the last one has found.
#[derive(Debug, Default)]
pub(super) struct Dear {
    found: Scan,
    used: Nanos,
    /// Until when it counts, and until when it does where it is in doubt.
    until: [Instant; 2],
    /// What it took to look for new processes.
    list: Nanos,
}

/// Since when a look takes its time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun(Option<Nanos>);

impl Begun {
    /// How much CPU time it has taken; 0 of a client with few threads.
    pub(super) fn cost(self) -> Nanos {
        self.0.map_or(Nanos::ZERO, |begun| clock::own_thread_cpu().saturating_sub(begun))
    }
}

impl Dear {
    /// A look at a client of so many processes begins.
    pub(super) fn begin(&self, processes: usize) -> Begun {
        let many = processes.max(self.found.threads as usize) >= MANY;
        Begun(many.then(clock::own_thread_cpu))
    }

    /// What to go by instead of a look at `now`, when the client has used so much.
    pub(super) fn spares(&mut self, now: Instant, used: Nanos) -> Option<Scan> {
        let ran = used > std::mem::replace(&mut self.used, used);
        let [until, in_doubt] = self.until;
        let again = if ran || self.found.running == 0 { until } else { in_doubt };
        self.found.running = self.found.running.max(u32::from(ran));
        (now < again).then_some(self.found)
    }

    /// Whether a look at `now` would come too soon, whatever has been told since.
    pub(super) fn rests(&self, now: Instant) -> bool {
        let [_, in_doubt] = self.until;
        now < in_doubt
    }

    /// A look at `now` took so much, and has found this.
    pub(super) fn looked(&mut self, now: Instant, cost: Nanos, found: Scan) {
        self.found = found;
        let rest =
            |times| if cost > CHEAP { now + Nanos(cost.0.saturating_mul(times)) } else { Instant::ZERO };
        self.until = [rest(REST), rest(REST_IN_DOUBT)];
    }

    /// To look for processes that were not known took so much.
    pub(super) fn listed(&mut self, cost: Nanos) {
        self.list = cost;
    }

    /// For how long they are not looked for again.
    pub(super) fn rest_of_lists(&self) -> Nanos {
        let rest = Nanos(self.list.0.saturating_mul(REST_OF_LISTS)).min(REST_OF_LISTS_MAX);
        if self.list > CHEAP { rest } else { Nanos::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(running: u32) -> Scan {
        Scan { running, asleep: 1_000, threads: 1_000 + running, ..Scan::default() }
    }

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Nanos::from_millis(1_000 + ms)
    }

    #[test]
    fn a_look_that_takes_long_is_not_repeated_at_once() {
        let used = Nanos::from_millis(5);
        let mut dear = Dear::default();
        assert!(dear.spares(at(0), used).is_none());
        dear.looked(at(0), Nanos::from_millis(2), found(0));
        let running = |dear: &mut Dear, ms, used| dear.spares(at(ms), used).map(|scan| scan.running);
        assert_eq!(running(&mut dear, 1, used), Some(0));
        assert_eq!(running(&mut dear, 99, used), Some(0));
        assert_eq!(running(&mut dear, 100, used), None);
        // Who uses something is awake, until it has used nothing for a while.
        dear.looked(at(100), Nanos::from_millis(2), found(0));
        assert_eq!(running(&mut dear, 101, used + Nanos(1)), Some(1));
        assert_eq!(running(&mut dear, 119, used + Nanos(1)), Some(1));
        assert!(dear.rests(at(119)) && !dear.rests(at(120)));
        assert_eq!(running(&mut dear, 120, used + Nanos(1)), None);
        // A cheap one may be repeated.
        dear.looked(at(300), Nanos::from_micros(200), found(0));
        assert_eq!(running(&mut dear, 300, used), None);
    }

    #[test]
    fn who_was_awake_and_uses_nothing_is_looked_at_sooner() {
        let mut dear = Dear::default();
        dear.looked(at(0), Nanos::from_millis(2), found(3));
        let used = |ms| Nanos::from_millis(ms);
        assert_eq!(dear.spares(at(19), used(0)).map(|scan| scan.running), Some(3));
        assert!(dear.spares(at(20), used(0)).is_none());
        assert_eq!(dear.spares(at(40), used(9)).map(|scan| scan.running), Some(3));
        assert!(dear.spares(at(41), used(9)).is_none());
    }

    #[test]
    fn only_looks_at_many_are_timed() {
        let spend = |begun: Begun| {
            let since = clock::own_thread_cpu();
            while clock::own_thread_cpu().saturating_sub(since) < Nanos::from_micros(300) {}
            begun.cost()
        };
        let mut dear = Dear::default();
        assert_eq!(spend(dear.begin(31)), Nanos::ZERO);
        assert!(spend(dear.begin(32)) >= Nanos::from_micros(300));
        dear.looked(at(0), Nanos::ZERO, found(0));
        let cost = spend(dear.begin(1));
        assert!(cost >= Nanos::from_micros(300), "it has a thousand threads");
        assert_eq!(dear.rest_of_lists(), Nanos::ZERO);
        dear.listed(Nanos::from_millis(3));
        assert_eq!(dear.rest_of_lists(), Nanos::from_millis(300));
    }
}
