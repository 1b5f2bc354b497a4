//! When held clients are looked at, lest somebody else has resumed one.

use divvy_policy::{Instant, Nanos};

/// Every held client is looked at this often; less often where there are thousands.
const INTERVAL: Nanos = Nanos::from_millis(200);
/// Of thousands of held clients so many are looked at in a second.
const PER_SECOND: u64 = 2500;
/// Once somebody was found to have been resumed, all are looked at every [`INTERVAL`] for this long.
const ALERT: Nanos = Nanos::from_secs(10);
/// Held clients looked at in one wake-up, at most.
const MAX: usize = 64;

/// How far the clients have been gone round.
#[derive(Debug, Default)]
pub(super) struct HeldCheck {
    /// The client that is looked at next.
    pub(super) next: usize,
    last: Instant,
    /// When a held client was last found to have been resumed by somebody else.
    resumed_at: Option<Instant>,
}

impl HeldCheck {
    /// How many of `clients` are to be looked at now.
    pub(super) fn due(&mut self, clients: usize, now: Instant) -> usize {
        let interval = match self.resumed_at {
            Some(at) if now.since(at) < ALERT => INTERVAL,
            _ => INTERVAL.max(Nanos(clients as u64 * 1_000_000_000 / PER_SECOND)),
        };
        let elapsed = now.since(self.last).0.min(interval.0);
        let due = (u128::from(elapsed) * clients as u128 / u128::from(interval.0)) as usize;
        if due > 0 {
            self.last = now;
        }
        due.min(MAX)
    }

    /// One was found to have been resumed.
    pub(super) fn found_resumed(&mut self, now: Instant) {
        self.resumed_at = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_a_turn_in_its_time() {
        let mut check = HeldCheck::default();
        let at = |ms: u64| Instant(Nanos::from_millis(1_000_000 + ms).0);
        assert_eq!((check.due(0, at(0)), check.due(10, at(0))), (0, 10));
        assert_eq!([5, 20, 40, 240].map(|ms| check.due(10, at(ms))), [0, 1, 1, 10]);
        // 5000 take two seconds, and 200 ms after one was found to have been resumed.
        assert_eq!((check.due(5000, at(260)), check.due(5000, at(280))), (50, 50));
        check.found_resumed(at(280));
        assert_eq!((check.due(5000, at(281)), check.due(5000, at(20_000))), (25, MAX));
    }
}
