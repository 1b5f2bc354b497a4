//! When the owner of an event is to hear of a sleep, or of its end: what the listener knows of a command.
//!
//! **Naps.** Most sleeps of a build or a database end within some 100 us: a page comes from the disk, a process on another CPU
//! answers. To tell of one costs more than it is long: somebody else is released, has a tick of the CPU before the kernel
//! takes it away again, and is held. So a sleep is told of when it has lasted for [`PATIENCE`] (whoever waits for as long as
//! acting costs pays at most twice the least), and at once where those that were waited for lately went on beyond it. The CPU
//! idles meanwhile: all that is waited together is at most one part in [`WAIT_PART`] of the time.
//!
//! **Flapping.** A database that waits for a fast disk sleeps ten thousand times a second, for less than it takes to act on any
//! of it. That is told once, for its owner to stop listening for a while. So is it where no sleep of many has lasted: a loop of
//! short commands, of which one is always awake.

use divvy_policy::{Instant, Nanos};

/// What an owner is told of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Told {
    /// One of its processes has gone to sleep. Others may be awake.
    Sleeps,
    /// One of its processes has got the CPU, or wants it.
    Runs,
    /// It sleeps too often for anybody to act on it.
    Flaps,
    /// It has slept many times, and never for long enough to be told.
    Computes,
}

impl Told {
    /// What a message says.
    pub(super) fn of(number: u64) -> Self {
        match number {
            0 => Self::Sleeps,
            1 => Self::Runs,
            2 => Self::Flaps,
            _ => Self::Computes,
        }
    }
}

/// A command that changes again within this time changes often,
const OFTEN: Nanos = Nanos::from_millis(4);
/// and is told of after a pause that doubles each time, from the first to the second of these.
const PAUSES: [Nanos; 2] = [Nanos::from_micros(500), Nanos::from_millis(2)];
/// A sleep is told of when it has lasted for so long,
const PATIENCE: Nanos = Nanos::from_micros(200);
/// or at once, if so many of the last eight that were waited for were longer;
const LONG_MIN: u32 = 6;
/// but one in so many is waited for all the same, to learn whether they still are.
const TRY_EVERY: u8 = 8;
/// At most one part in so many of the time is waited, and no more than so long in one go.
const WAIT_PART: u64 = 64;
const WAIT_MAX: Nanos = Nanos::from_millis(2);
/// Whoever goes to sleep more often than this,
const NAPS_MAX: u32 = 40;
/// in this time, flaps.
const NAPS_TIME: Nanos = Nanos::from_millis(10);
/// Whoever has gone to sleep so often, and has not slept for long enough to be told of it, computes.
const NAPS_UNTOLD: u32 = 64;

/// How much more may be waited, for all events of a CPU together.
#[derive(Clone, Copy)]
pub(super) struct Budget {
    left: Nanos,
    at: Instant,
}

impl Budget {
    pub(super) fn new(now: Instant) -> Self {
        Self { left: WAIT_MAX, at: now }
    }

    /// What there is to wait, now.
    fn left(&mut self, now: Instant) -> Nanos {
        self.left = Nanos(self.left.0 + now.since(self.at).0 / WAIT_PART).min(WAIT_MAX);
        self.at = now;
        self.left
    }

    fn spend(&mut self, now: Instant, waited: Nanos) {
        self.left = self.left(now).saturating_sub(waited);
    }
}

/// What was heard of an event; 0 is no event's number.
#[derive(Clone, Copy, Default)]
pub(super) struct Heard {
    pub(super) id: u64,
    /// Whether one of its processes ran at the end, and at any time since it was last told of.
    runs: bool,
    ran: bool,
    told: Option<bool>,
    told_at: Instant,
    pause: Nanos,
    /// When the present sleep was heard of, and for how long it has to last.
    slept_at: Instant,
    patience: Nanos,
    /// Whether it is one that shows how long sleeps are: it was waited for, and has neither ended nor been told of.
    tried: bool,
    /// The last eight of those, the youngest lowest: 1 for one that lasted.
    lasted: u8,
    /// Sleeps that were told of at once since one was waited for.
    untried: u8,
    /// Since when sleeps are counted, and how many there were; whether these were too many, and that is not told yet.
    counted: Instant,
    naps: u32,
    flaps: bool,
    /// Sleeps since one was told.
    untold: u32,
}

impl Heard {
    /// A process of it has got the CPU, or has lost it though it wants it (`true`), or has gone to sleep.
    pub(super) fn note(&mut self, now: Instant, runs: bool, budget: &mut Budget) {
        if runs {
            self.end_try(now, now.since(self.slept_at) >= PATIENCE, budget);
            self.ran = true;
        } else {
            self.slept_at = now;
            self.count(now);
            let wanted = self.lasted.count_ones() < LONG_MIN || self.untried + 1 >= TRY_EVERY;
            self.untried = if wanted { 0 } else { self.untried + 1 };
            self.tried = wanted && budget.left(now) >= PATIENCE;
            self.patience = if self.tried { PATIENCE } else { Nanos::ZERO };
        }
        self.runs = runs;
    }

    fn count(&mut self, now: Instant) {
        if now.since(self.counted) > NAPS_TIME {
            (self.counted, self.naps) = (now, 0);
        }
        self.naps += 1;
        self.untold += 1;
        self.flaps |= self.naps == NAPS_MAX + 1;
    }

    /// The present sleep is not waited for any more.
    fn end_try(&mut self, now: Instant, lasted: bool, budget: &mut Budget) {
        if std::mem::take(&mut self.tried) {
            self.lasted = self.lasted << 1 | u8::from(lasted);
            budget.spend(now, now.since(self.slept_at).min(PATIENCE));
        }
    }

    /// What there is to tell.
    pub(super) fn told(&self) -> Told {
        match self.runs {
            _ if self.flaps => Told::Flaps,
            true if self.untold >= NAPS_UNTOLD => Told::Computes,
            true => Told::Runs,
            false => Told::Sleeps,
        }
    }

    /// When its owner is to hear of it; `None` if there is nothing new.
    pub(super) fn due(&self) -> Option<Instant> {
        if self.flaps || self.runs && self.untold >= NAPS_UNTOLD {
            return Some(self.slept_at);
        }
        // Whoever waits for a command to fall asleep may know better than we do that it had woken.
        let news = self.told != Some(self.runs) || self.ran && !self.runs;
        let sleeps = !self.runs && self.told == Some(true);
        let paused = self.told_at + if sleeps { Nanos::ZERO } else { self.pause };
        let at = if self.runs { paused } else { paused.max(self.slept_at + self.patience) };
        news.then_some(at)
    }

    /// Its owner is told now.
    pub(super) fn tell(&mut self, now: Instant, budget: &mut Budget) {
        let computes = self.runs && self.untold >= NAPS_UNTOLD;
        if computes || !self.runs {
            self.untold = 0;
        }
        if std::mem::take(&mut self.flaps) || computes {
            return; // How it is besides is told if somebody listens on.
        }
        self.end_try(now, true, budget);
        let often = now.since(self.told_at) < OFTEN;
        let [least, most] = PAUSES;
        self.pause = if often { Nanos(self.pause.0 * 2).clamp(least, most) } else { Nanos::ZERO };
        (self.told, self.told_at, self.ran) = (Some(self.runs), now, self.runs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant(1_000_000_000 + us * 1_000)
    }

    /// A command that flaps is told of less and less often; calm is forgiven.
    #[test]
    fn what_changes_often_is_told_less_often() {
        let mut heard = Heard { id: 7, ..Heard::default() };
        let budget = &mut Budget::new(at(0));
        heard.note(at(0), true, budget);
        assert!(heard.due().is_some_and(|due| due <= at(0)));
        heard.tell(at(0), budget);
        assert_eq!(heard.due(), None);
        // When it changes, and when that is due, us. Sleeps are due when they have lasted.
        for (us, due) in
            [(100, 300), (400, 800), (900, 1_100), (1_200, 3_100), (3_200, 3_400), (3_500, 5_400)]
        {
            heard.note(at(us), !heard.runs, budget);
            assert_eq!(heard.due(), Some(at(due)), "changed at {us}");
            heard.tell(at(us.max(due)), budget);
        }
        heard.note(at(20_000), !heard.runs, budget);
        heard.tell(at(20_300), budget);
        assert_eq!(heard.pause, Nanos::ZERO);
    }

    /// One that ends before it is told of is never told of.
    #[test]
    fn a_short_sleep_is_no_news() {
        let mut heard = Heard { id: 7, ..Heard::default() };
        let budget = &mut Budget::new(at(0));
        heard.note(at(0), true, budget);
        heard.tell(at(0), budget);
        for nap in 0..60 {
            let begun = 20_000 * (nap + 1);
            heard.note(at(begun), false, budget);
            assert_eq!(heard.due(), Some(at(begun + 200)));
            heard.note(at(begun + 150), true, budget);
            assert_eq!(heard.due(), None);
        }
    }

    /// Where sleeps are long they are told of as they begin, until they are short again.
    #[test]
    fn long_sleeps_are_told_of_at_once() {
        let mut heard = Heard { id: 7, ..Heard::default() };
        let budget = &mut Budget::new(at(0));
        heard.note(at(0), true, budget);
        heard.tell(at(0), budget);
        let mut now = 10_000;
        let mut sleep = |lasts: u64| {
            now += 40_000;
            heard.note(at(now), false, budget);
            let due = heard.due().expect("a sleep");
            let told = due < at(now + lasts);
            if told {
                heard.tell(due, budget);
            }
            heard.note(at(now + lasts), true, budget);
            if heard.due().is_some() {
                heard.tell(at(now + lasts), budget);
            }
            (due.since(at(now)), told)
        };
        let long: Vec<_> = (0..64).map(|_| sleep(5_000)).collect();
        assert!(long.iter().all(|&(_, told)| told));
        assert_eq!(long[..6].iter().filter(|(waited, _)| *waited == PATIENCE).count(), 6);
        assert_eq!(long[6..].iter().filter(|(waited, _)| *waited == PATIENCE).count(), 58 / 8);
        let short: Vec<_> = (0..64).map(|_| sleep(100)).collect();
        // Three of those that are waited for are enough to know.
        assert!(short[24..].iter().all(|&(_, told)| !told));
    }

    /// Ten thousand short sleeps a second are no news but that; a thousand are.
    #[test]
    fn who_flaps_is_told_of_as_such_and_once() {
        for (period, flaps) in [(100, 1), (200, 1), (300, 0), (1_000, 0)] {
            let mut heard = Heard { id: 7, ..Heard::default() };
            let budget = &mut Budget::new(at(0));
            let mut told = 0;
            for nap in 0..10_000 / period {
                heard.note(at(period * nap + period / 2), false, budget);
                heard.note(at(period * (nap + 1)), true, budget);
                if heard.due().is_some() && heard.told() == Told::Flaps {
                    heard.tell(at(period * (nap + 1)), budget);
                    told += 1;
                }
            }
            assert_eq!(told, flaps, "a sleep every {period} us");
            assert_ne!(heard.told(), Told::Flaps);
        }
    }

    /// Of a thousand sleeps that end in time none is news, but that there are so many is; one that lasts makes the count begin anew.
    #[test]
    fn who_never_sleeps_for_long_computes() {
        for (lasts_every, computes) in [(1_000_000, 15), (100, 10), (60, 0)] {
            let mut heard = Heard { id: 7, ..Heard::default() };
            let budget = &mut Budget::new(at(0));
            heard.note(at(0), true, budget);
            heard.tell(at(0), budget);
            let mut told = 0;
            for nap in 1..=1_000 {
                let (begun, lasts) = (nap * 20_000, if nap % lasts_every == 0 { 5_000 } else { 50 });
                heard.note(at(begun), false, budget);
                if let Some(due) = heard.due().filter(|due| *due < at(begun + lasts)) {
                    heard.tell(due, budget);
                }
                heard.note(at(begun + lasts), true, budget);
                if heard.due().is_some() {
                    told += u32::from(heard.told() == Told::Computes);
                    heard.tell(at(begun + lasts), budget);
                }
            }
            assert_eq!(told, computes, "one of {lasts_every} lasts");
        }
    }

    /// However often a command sleeps, little is waited, so that little of the CPU idles for it.
    #[test]
    fn what_is_waited_is_bounded() {
        let mut heard = Heard { id: 7, ..Heard::default() };
        let budget = &mut Budget::new(at(0));
        heard.note(at(0), true, budget);
        heard.tell(at(0), budget);
        let (mut waited, naps) = (0, 10_000);
        for nap in 0..naps {
            let begun = 400 * (nap + 1);
            heard.note(at(begun), false, budget);
            if heard.due().is_some_and(|due| due >= at(begun + 100)) && heard.tried {
                waited += 100;
            }
            heard.note(at(begun + 100), true, budget);
        }
        assert!((58_000..=68_000).contains(&waited), "{waited} us of {} were waited", 400 * naps);
    }
}
