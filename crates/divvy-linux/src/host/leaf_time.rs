//! What a command has used, by its counter between two looks and by its cgroup in the long run.
//!
//! On several CPUs neither is enough. A cgroup's `cpu.stat` is up to a tick behind for whoever runs just now on another CPU. A perf
//! counter is exact to the microsecond, but not of the same time as the kernel's books: where a wake-up takes the CPU from somebody, the
//! kernel charges whoever wakes from the moment of the wake-up, and the counter charges whoever runs until the interrupt has come, and
//! nobody for the switch. For two processes that hand a byte to and fro beside a program that computes, that was up to 44 % of what they used.
//!
//! So the counter is taken, less what it has drifted off the cgroup: the least difference of the last tenth of a second, in which
//! the cgroup will not have been behind at each look. Differences up to [`SLACK`] are left alone: most are only ticks. To ask the cgroup
//! costs as much as to read the counter, so as long as nothing had to be corrected it is asked for two windows, and then not for [`REST`].

use divvy_policy::{Instant, Nanos};

/// The least difference is that of one to two such times.
const WINDOW: Nanos = Nanos::from_millis(50);
/// Where more than this was used between two looks, how the counter stood before tells nothing, and ticks are little of it.
const LONG: i64 = 200_000_000;
/// So much off is not corrected, ns.
const SLACK: i64 = 2_000_000;
/// Where nothing had to be corrected, and a window differed from the one before by no more than this, ns,
const STEADY: i64 = SLACK / 4;
/// the cgroup is not asked for so long.
const REST: Nanos = Nanos::from_millis(300);
/// Nothing is known of the window before.
const UNKNOWN: i64 = i64::MAX;

/// What the counter is off the cgroup.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LeafTime {
    /// The least that the counter was ahead in the window before, and in this one, ns.
    least: [i64; 2],
    since: Instant,
    /// What the counter said at the last look, ns.
    counted: i64,
    /// What is taken from the counter's time, ns.
    off: i64,
    /// The same when it was last found that nobody had left the cgroup.
    off_then: i64,
    told: Option<Nanos>,
    /// The first window has passed.
    begun: bool,
    /// When the cgroup is asked again, if it is not now.
    rests_until: Option<Instant>,
    /// Somebody has left the cgroup: what it tells is not all.
    left: bool,
}

impl LeafTime {
    /// What has been used, if the counter says `counted` and the cgroup `usage`. Never goes back.
    pub(super) fn tell(&mut self, now: Instant, counted: Nanos, usage: Option<Nanos>) -> Nanos {
        if let Some(usage) = usage.filter(|_| !self.left) {
            self.compare(now, signed(counted), signed(counted) - signed(usage));
        } else if self.told.is_none() {
            return counted;
        }
        let total = Nanos(u64::try_from(signed(counted) - self.off).unwrap_or(0));
        let total = self.told.map_or(total, |told| told.max(total));
        *self.told.insert(total)
    }

    /// Whether the cgroup is to be asked for the next [`tell`](Self::tell).
    pub(super) fn wants(&self, now: Instant) -> bool {
        !self.left && self.rests_until.is_none_or(|until| until <= now)
    }

    fn compare(&mut self, now: Instant, counted: i64, ahead: i64) {
        let [_, this] = self.least;
        let used = counted - std::mem::replace(&mut self.counted, counted);
        if self.rests_until.take().is_some() {
            // One look says little: the cgroup may be a tick behind.
            (self.least, self.since) = ([UNKNOWN, ahead], now);
        } else if used > LONG {
            (self.least, self.since) = ([ahead; 2], now);
        } else if self.told.is_none() {
            // Both have begun at nothing: what is less now has only not been told yet.
            (self.least, self.since) = ([ahead.min(0); 2], now);
        } else if now.since(self.since) >= WINDOW {
            let before = self.least[0];
            (self.least, self.since) = ([this, ahead], now);
            // What was first seen is not of a whole window.
            let begun = std::mem::replace(&mut self.begun, true);
            let steady = begun && before != UNKNOWN && (this - before).abs() <= STEADY;
            self.rests_until = (steady && (this - self.off).abs() <= SLACK).then_some(now + REST);
        } else {
            self.least[1] = this.min(ahead);
        }
        if self.least[0] == UNKNOWN {
            return;
        }
        let least = self.least[0].min(self.least[1]);
        self.off = self.off.clamp(least - SLACK, least + SLACK);
    }

    /// What was told last, or `counted` where that is all that there was.
    pub(super) fn last(&self, counted: Nanos) -> Nanos {
        self.told.unwrap_or(counted)
    }

    /// It was looked whether anybody has left the cgroup. If so it is not asked any more, and what was used elsewhere since the last look
    /// counts.
    pub(super) fn looked(&mut self, left: bool) {
        if left && !self.left {
            (self.off, self.left) = (self.off_then, true);
        }
        self.off_then = self.off;
    }

    /// Whether the cgroup is asked.
    pub(super) fn asks(&self) -> bool {
        self.told.is_some() && !self.left
    }
}

fn signed(time: Nanos) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is told every 3 ms of somebody who computes on another CPU while the counter gains `drift` per mille; the largest error
    /// after the first 100 ms beyond what the drift of a tenth of a second comes to, in us.
    fn largest_error(drift: i64, asked: &mut u64) -> i64 {
        let mut time = LeafTime::default();
        let mut worst = 0;
        for step in 1..3_000_i64 {
            let used = step * 3_000_000;
            let counted = used + used / 1_000 * drift;
            // The kernel brings its books up to date at each tick of 4 ms.
            let usage = used / 4_000_000 * 4_000_000;
            let nanos = |ns: i64| Nanos(ns as u64);
            let now = Instant(used as u64);
            let usage = time.wants(now).then(|| nanos(usage));
            *asked += u64::from(usage.is_some());
            let told = time.tell(now, nanos(counted), usage);
            if step > 33 {
                worst = worst.max((signed(told) - used).abs() / 1_000);
            }
        }
        worst
    }

    #[test]
    fn a_counter_that_drifts_is_brought_back_to_the_books() {
        let asked = &mut 0;
        assert_eq!(largest_error(0, asked), 0, "ticks are not corrected");
        assert!((300..1_000).contains(asked), "asked {asked} times in 3000 looks, though nothing drifts");
        for drift in [2_i64, -2, 20, -20, 200, -440] {
            let asked = &mut 0;
            let lag = drift.abs() * 2 * WINDOW.0 as i64 / 1_000 / 1_000;
            let most = SLACK / 1_000 + 4_000 + lag;
            let worst = largest_error(drift, asked);
            assert!(worst <= most, "{drift} per mille: {worst} us of {most}");
            assert!(
                drift.abs() < 20 || *asked > 2_500,
                "{drift} per mille: asked {asked} times in 3000 looks"
            );
        }
    }

    /// What begins to drift while the cgroup is not asked is found when it is again.
    #[test]
    fn what_drifts_later_is_found() {
        let (mut time, mut counted, mut worst_late) = (LeafTime::default(), 0, 0);
        for step in 1..2_000_i64 {
            let used = step * 3_000_000;
            counted += if step > 1_000 { 4_000_000 } else { 3_000_000 };
            let nanos = |ns: i64| Nanos(ns as u64);
            let now = Instant(used as u64);
            let usage = time.wants(now).then(|| nanos(used / 4_000_000 * 4_000_000));
            let off = signed(time.tell(now, nanos(counted), usage)) - used;
            let since = (step - 1_000) * 3_000_000;
            let late = since > (REST.0 + 2 * WINDOW.0) as i64;
            assert!(off.abs() <= (REST.0 + 2 * WINDOW.0) as i64 / 3 + 2 * SLACK, "{off} ns in step {step}");
            // A time that is told does not go back: it stands until what is used has come up to it.
            worst_late =
                if late && since > 2 * (REST.0 + 2 * WINDOW.0) as i64 { off.max(worst_late) } else { 0 };
        }
        assert!(worst_late <= SLACK + 4_000_000 + 2 * WINDOW.0 as i64 / 3, "{worst_late} ns in the end");
    }

    /// Whoever was not looked at for seconds is not charged for what the counter has drifted meanwhile.
    #[test]
    fn what_drifted_between_two_looks_is_taken_off() {
        let mut time = LeafTime::default();
        let ms = Nanos::from_millis;
        time.tell(Instant(ms(10).0), ms(10), Some(ms(8)));
        let told = time.tell(Instant(ms(5_000).0), ms(5_000), Some(ms(2_900)));
        assert!(told >= ms(2_900) && told <= ms(2_902), "{told:?} of 2.9 s");
    }

    #[test]
    fn who_has_left_is_counted_on_from_there() {
        let mut time = LeafTime::default();
        let ms = Nanos::from_millis;
        assert_eq!(time.tell(Instant(1), ms(5), None), ms(5));
        assert!(!time.asks(), "there is no cgroup");
        for at in 1..=100 {
            // It gains a tenth.
            time.tell(Instant(ms(at * 10).0), ms(at * 11), Some(ms(at * 10)));
        }
        let before = time.last(ms(1_100));
        assert!(before >= ms(1_000) && before <= ms(1_012), "{before:?}");
        time.looked(false);
        // What is used elsewhere from here on is taken for a drift until that is seen, and counts then.
        assert!(time.tell(Instant(ms(1_200).0), ms(1_300), Some(ms(1_000))) < before + ms(200));
        assert!(time.tell(Instant(ms(1_300).0), ms(1_400), Some(ms(1_000))) < before + ms(300));
        time.looked(true);
        assert!(!time.asks());
        assert_eq!(time.tell(Instant(ms(1_300).0), ms(1_400), Some(ms(1_000))), before + ms(300));
        let before = before + ms(250);
        assert_eq!(time.tell(Instant(ms(1_300).0), ms(1_400), Some(ms(1_000))), before + ms(50));
        assert_eq!(time.tell(Instant(ms(1_300).0), ms(1_390), None), before + ms(50), "it never goes back");
    }
}
