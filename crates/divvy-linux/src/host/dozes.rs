//! Clients that sleep for less than a look takes.
//!
//! Where one CPU is divided, a look takes it from whoever runs there: a process that sleeps for some ten microseconds at a time, for a
//! disk or a packet, has woken by the time that its state is read, and waits. It is found awake at every look, though the CPU idles for
//! half of the time while all others are held.
//!
//! The kernel's books of the CPU tell (`/proc/stat`): where it idled for a quarter of the time from one look at a released client to the
//! next, that client sleeps, as far as the policy is concerned, and others run beside it. A stranger that has the CPU does not make it
//! idle. The books are in ticks, but sums of them are right: enough time is looked at that a tick more or less is no matter.
//!
//! They say nothing where clients may run on other CPUs as well, or are throttled: nobody is judged by them where the one CPU is what a
//! quota leaves of several, of whom is attached, and of whom the kernel keeps within a limit.

use divvy_policy::{Instant, Nanos};

use super::LinuxHost;
use crate::quota::quota_of;
use crate::{CpuMask, CpuTimes, clock};

/// The books are not read again sooner than after this, and after so many times as long as reading them took,
const APART: Nanos = Nanos::from_millis(4);
const APART_COST: u64 = 100;
/// and tell of so much time at the least; what was before as much as the other is forgotten by and by.
const SPAN: [Nanos; 2] = [Nanos::from_millis(60), Nanos::from_millis(240)];
/// What they told holds for so long.
const HOLDS: Nanos = Nanos::from_millis(500);

/// The books of one CPU.
#[derive(Debug)]
pub(super) struct Books {
    cpu: u32,
    /// What it took to read them.
    cost: Nanos,
}

impl Books {
    /// Those of the only one of `cpus`; `None` where there are several, somebody throttles us, or the kernel keeps none.
    pub(super) fn of(cpus: &CpuMask) -> Option<Self> {
        let mut all = cpus.iter();
        let (Some(cpu), None) = (all.next(), all.next()) else { return None };
        if quota_of(rustix::process::getpid()).is_some() {
            return None;
        }
        let mut books = Self { cpu, cost: Nanos::ZERO };
        books.idle().map(|_| books)
    }

    /// For how long the CPU has idled.
    fn idle(&mut self) -> Option<Nanos> {
        let begun = clock::now();
        let times = CpuTimes::read(&[self.cpu]).ok()?;
        self.cost = clock::now().since(begun);
        Some(times.idle)
    }
}

/// What the books tell of a client.
#[derive(Debug, Default)]
pub(super) struct Doze {
    /// When they were read in this release, and what they said.
    read: Option<(Instant, Nanos)>,
    /// For so long it was looked at, and for so long the CPU idled.
    span: Nanos,
    idled: Nanos,
    /// When it was last found to sleep for most of the time.
    dozed: Option<Instant>,
    /// The kernel keeps it within a limit.
    pub(super) limited: bool,
}

impl Doze {
    /// The client is released: what was since the books were read is not its time.
    pub(super) fn begin(&mut self) {
        self.read = None;
    }

    fn is_due(&self, now: Instant, cost: Nanos) -> bool {
        let apart = APART.max(Nanos(cost.0.saturating_mul(APART_COST)));
        self.read.is_none_or(|(at, _)| now.since(at) >= apart)
    }

    /// The CPU has idled for so long by now. Says whether the client mostly sleeps, which one reading in a release does not tell anew.
    fn see(&mut self, now: Instant, idled: Nanos) -> bool {
        let Some((at, before)) = self.read.replace((now, idled)) else { return self.is_on(now) };
        let passed = now.since(at);
        self.span += passed;
        self.idled += idled.saturating_sub(before);
        let [least, most] = SPAN;
        while self.span > most {
            (self.span, self.idled) = (Nanos(self.span.0 / 2), Nanos(self.idled.0 / 2));
        }
        let dozes = self.span >= least && self.idled > Nanos(self.span.0 / 4);
        self.dozed = dozes.then_some(now);
        dozes
    }

    /// Whether it was found to sleep for most of the time, lately.
    pub(super) fn is_on(&self, now: Instant) -> bool {
        self.dozed.is_some_and(|at| now.since(at) < HOLDS)
    }
}

impl LinuxHost {
    /// Whether released client `i` runs, of which a look found so many threads awake: not if it mostly sleeps.
    pub(super) fn runs(&mut self, i: usize, running: u32) -> bool {
        let c = &mut self.clients[i];
        if running == 0 {
            c.doze.begin(); // It was seen asleep, and what the CPU idles meanwhile says nothing of how it runs.
            return false;
        }
        let now = clock::now();
        let Some(books) = self.books.as_mut().filter(|_| c.selector.is_none() && !c.doze.limited) else {
            return true;
        };
        if !c.doze.is_due(now, books.cost) {
            return !c.doze.is_on(now);
        }
        self.tally.reads += 1;
        let Some(idled) = books.idle() else {
            self.books = None;
            return true;
        };
        !c.doze.see(now, idled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Nanos::from_millis(ms)
    }

    /// A client that is looked at every 10 ms while the CPU idles for so many of them.
    fn looked_at(doze: &mut Doze, looks: std::ops::Range<u64>, idle_ms: u64) -> Vec<bool> {
        looks.map(|look| doze.see(at(10 * look), Nanos::from_millis(idle_ms * look))).collect()
    }

    #[test]
    fn under_whom_the_cpu_idles_dozes() {
        let seen = |idle| looked_at(&mut Doze::default(), 0..60, idle);
        assert!(seen(0).iter().chain(&seen(2)).all(|&dozes| !dozes));
        assert_eq!(seen(3).iter().position(|&dozes| dozes), Some(6));
        assert!(seen(3)[6..].iter().all(|&dozes| dozes));
        let mut doze = Doze::default();
        looked_at(&mut doze, 0..60, 8);
        let then: Vec<bool> =
            (60..90).map(|look| doze.see(at(10 * look), Nanos::from_millis(8 * 59))).collect();
        let over = then.iter().position(|&dozes| !dozes);
        assert!(over.is_some_and(|look| look > 5), "what was is forgotten, not at once: {then:?}");
    }

    #[test]
    fn time_while_it_was_held_does_not_count() {
        let mut doze = Doze::default();
        for cycle in 0..100 {
            // Held for 80 ms, in which the CPU idles, and released for 20 in which it computes.
            doze.begin();
            let (ms, idled) = (100 * cycle + 80, Nanos::from_millis(80 * (cycle + 1)));
            assert!(doze.is_due(at(ms), Nanos::ZERO));
            assert!(!doze.see(at(ms), idled));
            assert!(!doze.is_due(at(ms + 3), Nanos::ZERO) && doze.is_due(at(ms + 4), Nanos::ZERO));
            assert!(!doze.is_due(at(ms + 4), Nanos::from_micros(50)), "dear books are read seldom");
            assert!(!doze.see(at(ms + 20), idled));
        }
    }

    #[test]
    fn a_verdict_holds_for_a_while() {
        let mut doze = Doze::default();
        looked_at(&mut doze, 0..20, 8);
        assert!(doze.is_on(at(200)));
        // Its next turn: what one reading tells is what was known.
        doze.begin();
        assert!(doze.see(at(300), Nanos::from_millis(1_000)));
        assert!(doze.is_on(at(689)) && !doze.is_on(at(690)));
        doze.begin();
        assert!(!doze.see(at(700), Nanos::from_millis(1_000)));
    }

    #[test]
    fn the_kernel_keeps_books_of_a_cpu() {
        let mask = CpuMask::of_thread(rustix::process::getpid()).expect("ours").expect("we live");
        let cpu = mask.iter().next().expect("a CPU");
        assert!(Books::of(&[cpu, cpu + 1].into_iter().collect()).is_none());
        let one = std::iter::once(cpu).collect();
        let idle = || CpuTimes::read(&[cpu]).map(|times| times.idle);
        let (Ok(before), None) = (idle(), quota_of(rustix::process::getpid())) else {
            return assert!(Books::of(&one).is_none(), "no line of this CPU, or it is not all ours");
        };
        let idled = Books::of(&one).expect("its books").idle().expect("idle time");
        assert!((before..=idle().expect("as before")).contains(&idled), "{before:?} {idled:?}");
    }
}
