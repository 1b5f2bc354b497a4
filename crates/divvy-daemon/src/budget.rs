//! A budget for work that recurs: it is done at most once in an interval, and for at most a part of the time.

use divvy_policy::{Instant, Nanos};

/// CPU time that may be taken at once after a pause, whatever part of the time that is.
const AT_ONCE: Nanos = Nanos::from_millis(20);
/// CPU time that is counted for one thing at most. What is above it was another's: the host of a virtual machine takes CPUs away without
/// telling, and the guest's clocks count that as used.
const EACH_MAX: Nanos = Nanos::from_millis(1);

/// When work that recurs may be done again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// One part in so many.
    part: u64,
    interval: Nanos,
    last: Option<Instant>,
    /// When all that was taken so far has been no more than its part of the time.
    paid: Instant,
}

impl Budget {
    /// For one part in `part` of the time at most, and at most once in `interval`.
    pub(crate) const fn new(part: u64, interval: Nanos) -> Self {
        Self { part, interval, last: None, paid: Instant::ZERO }
    }

    /// When it may be done.
    pub(crate) fn next(&self) -> Instant {
        let affordable = Instant(self.paid.0.saturating_sub(AT_ONCE.0.saturating_mul(self.part)));
        self.last.map_or(Instant::ZERO, |last| affordable.max(last + self.interval))
    }

    /// It was done at `now`, with so many things, and took so much CPU time.
    pub(crate) fn pay(&mut self, now: Instant, cost: Nanos, things: usize) {
        self.last = Some(now);
        self.paid = self.paid.max(now) + Nanos(counted(cost, things).0.saturating_mul(self.part));
    }
}

/// What counts of the CPU time that something took, with so many things.
pub(crate) fn counted(cost: Nanos, things: usize) -> Nanos {
    cost.min(Nanos(EACH_MAX.0.saturating_mul(things as u64 + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_its_part_of_the_time_is_taken() {
        let at = |ms| Instant::ZERO + Nanos::from_millis(ms);
        let mut budget = Budget::new(100, Nanos::from_millis(100));
        assert_eq!(budget.next(), Instant::ZERO);
        // Now and then it is done at once, whatever it takes;
        budget.pay(at(7_000), Nanos::from_millis(18), 100);
        assert_eq!(budget.next(), at(7_100));
        // without end, it waits until the time is its own.
        budget.pay(at(7_100), Nanos::from_millis(12), 100);
        assert_eq!(budget.next(), at(8_000));
        let (mut now, mut taken) = (at(8_000), 0);
        while now < at(68_000) {
            budget.pay(now, Nanos::from_millis(12), 100);
            (now, taken) = (budget.next().max(now), taken + 12);
        }
        assert!((600..=620).contains(&taken), "{taken} ms of 60 s");
    }

    /// The second of two clients had rights to memory and disks 4 s after it came: the first one's had cost 39 ms on a busy
    /// machine's guest.
    #[test]
    fn what_the_machines_host_took_is_not_waited_for() {
        let at = |ms| Instant::ZERO + Nanos::from_millis(ms);
        let mut budget = Budget::new(200, Nanos::from_millis(100));
        budget.pay(at(7_000), Nanos::from_millis(100), 2);
        assert_eq!(budget.next(), at(7_100));
        // Of very many it may be their own.
        budget.pay(at(7_100), Nanos::from_millis(100), 100_000);
        assert!(budget.next() > at(20_000));
    }
}
