//! When held clients are looked at, lest somebody else has resumed one.
//!
//! Whoever was resumed takes the CPU from those that are to have it. So, as long as these and we have had all the time that there was,
//! looks are few; else, whoever took it, they are many.

use divvy_policy::{Instant, Nanos};

/// Every held client is looked at this often where somebody unknown uses the CPUs; less often where there are thousands.
const INTERVAL: Nanos = Nanos::from_millis(200);
/// Of thousands of held clients so many are looked at in a second.
const PER_SECOND: u64 = 2500;
/// Where nobody unknown uses the CPUs all this takes so many times as long.
const RARELY: u64 = 10;
/// Once somebody was found to have been resumed, all are looked at every [`INTERVAL`] for this long.
const ALERT: Nanos = Nanos::from_secs(10);
/// Held clients looked at in one wake-up, at most.
const MAX: usize = 64;

/// What is known of the CPUs' time is added up for this long, and so much longer until somebody is measured.
const WINDOW: Nanos = Nanos::from_millis(200);
/// It holds for as long at the most.
const HOLDS: Nanos = Nanos::from_secs(1);
/// Nobody unknown has used the CPUs where less than one part of so many of one of them is missing.
const MISSING: u64 = 20;

/// How far the clients have been gone round.
#[derive(Debug, Default)]
pub(super) struct HeldCheck {
    /// The client that is looked at next.
    pub(super) next: usize,
    last: Instant,
    /// When a held client was last found to have been resumed by somebody else.
    resumed_at: Option<Instant>,
    known: Known,
}

/// What a client had used when it was last measured.
#[derive(Debug, Default)]
pub(super) struct Seen {
    total: Option<Nanos>,
    /// When that was, or when it was released, if that was later.
    since: Instant,
}

impl Seen {
    /// It is released: what it used while it was held it used without our leave.
    pub(super) fn released(&mut self, now: Instant) {
        self.since = now;
    }

    /// It has used so much in `total`, on so many CPUs at the most. What of that is new, and can be of the time since it was released.
    pub(super) fn measured(&mut self, total: Nanos, now: Instant, width: u32) -> Nanos {
        let most = Nanos(now.since(self.since).0.saturating_mul(u64::from(width)));
        let before = self.total.unwrap_or(total);
        (self.total, self.since) = (Some(total.max(before)), now);
        total.saturating_sub(before).min(most)
    }
}

/// How much of the CPUs' time is known to have been the clients' and ours.
#[derive(Debug, Default)]
struct Known {
    since: Instant,
    clients: Nanos,
    own_before: Nanos,
    /// When all of it was last known.
    all_at: Option<Instant>,
}

impl HeldCheck {
    /// A client was measured, and has used so much `more` than when it was measured before; `own` tells what we have used in all.
    pub(super) fn note(&mut self, more: Nanos, now: Instant, own: impl FnOnce() -> Nanos, cpus: usize) {
        let known = &mut self.known;
        known.clients += more;
        let elapsed = now.since(known.since);
        if elapsed < WINDOW {
            return;
        }
        let own = own();
        let all = Nanos(elapsed.0.saturating_mul(cpus as u64));
        let ours = own.saturating_sub(known.own_before).min(elapsed);
        let missing = all.saturating_sub(known.clients + ours);
        known.all_at = (missing.0 < elapsed.0 / MISSING).then_some(now);
        (known.since, known.clients, known.own_before) = (now, Nanos::ZERO, own);
    }

    /// How many of `clients` are to be looked at now.
    pub(super) fn due(&mut self, clients: usize, now: Instant) -> usize {
        let usual = INTERVAL.max(Nanos(clients as u64 * 1_000_000_000 / PER_SECOND));
        let interval = match self.resumed_at {
            Some(at) if now.since(at) < ALERT => INTERVAL,
            _ if self.known.all_at.is_some_and(|at| now.since(at) < HOLDS) => Nanos(usual.0 * RARELY),
            _ => usual,
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

    /// Ten clients, of which one runs at a time for 50 ms, on one CPU; who is not known takes `taken` of it. How many looks there are a second.
    fn looks(taken: f64) -> usize {
        let (mut check, mut own, mut looks) = (HeldCheck::default(), Nanos::ZERO, 0);
        for turn in 1..=200_u64 {
            let now = Instant(Nanos::from_millis(1_000_000 + turn * 50).0);
            own += Nanos::from_micros(50);
            let got = Nanos(((1.0 - taken) * 50e6) as u64).saturating_sub(Nanos::from_micros(50));
            check.note(got, now, || own, 1);
            looks += check.due(10, now);
        }
        looks / 10
    }

    #[test]
    fn looks_are_rare_while_all_time_is_known() {
        // Ten in two seconds; else in a fifth of one, but for what a wake-up leaves of a look.
        assert_eq!([0.0, 0.04, 0.06, 0.5].map(looks), [6, 6, 40, 40]);
    }

    #[test]
    fn time_that_was_not_measured_is_not_known() {
        let at = |ms: u64| Instant(Nanos::from_millis(1_000_000 + ms).0);
        let mut check = HeldCheck::default();
        let none = || Nanos::ZERO;
        check.note(Nanos::ZERO, at(0), none, 2);
        // One of two CPUs idles, or has somebody else.
        check.note(Nanos::from_millis(200), at(200), none, 2);
        assert!(check.known.all_at.is_none());
        check.note(Nanos::from_millis(400), at(400), none, 2);
        assert_eq!(check.known.all_at, Some(at(400)));
        // Nobody is measured any more: what was known is old.
        assert_eq!((check.due(10, at(410)), check.due(10, at(600)), check.due(10, at(1_500))), (10, 0, 10));
    }

    #[test]
    fn what_was_used_without_our_leave_is_not_known() {
        let at = |ms: u64| Instant(Nanos::from_millis(1_000_000 + ms).0);
        let ms = Nanos::from_millis;
        let mut seen = Seen::default();
        assert_eq!(seen.measured(ms(5_000), at(0), 1), Nanos::ZERO, "what it used before us");
        assert_eq!(seen.measured(ms(5_040), at(50), 1), ms(40));
        // Held, resumed by somebody else for 60 ms of its time, and released for 20 ms.
        seen.released(at(150));
        assert_eq!(seen.measured(ms(5_120), at(170), 1), ms(20));
        // A clock that goes back counts nothing twice.
        assert_eq!(seen.measured(ms(5_100), at(180), 1), Nanos::ZERO);
        assert_eq!(seen.measured(ms(5_130), at(190), 1), ms(10));
        assert_eq!(seen.measured(ms(5_170), at(210), 2), ms(40), "two threads");
    }

    /// Three clients of 10 ms each on one CPU, one of which somebody resumes time and again: looks come as usual.
    #[test]
    fn a_thief_does_not_hide_in_its_own_turns() {
        let ms = Nanos::from_millis;
        let at = |turn: u64| Instant(Nanos::from_millis(1_000_000 + 20 * turn).0);
        let (mut check, mut seen) = (HeldCheck::default(), [(); 3].map(|()| Seen::default()));
        let mut used = [Nanos::ZERO; 3];
        for turn in 0..100_u64 {
            // In each turn of 20 ms who has it and the first, which stands but in its own turn, have one half each.
            let who = (turn % 3) as usize;
            seen[who].released(at(turn));
            used[who] += ms(10);
            used[0] += ms(10);
            let more = seen[who].measured(used[who], at(turn + 1), 1);
            check.note(more, at(turn + 1), || Nanos::ZERO, 1);
            assert!(check.known.all_at.is_none(), "turn {turn}");
        }
    }
}
