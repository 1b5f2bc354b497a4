//! Our own priority: the least real-time one, where that is permitted, so that we wake when it is time, whoever runs.
//!
//! Among ordinary threads a wake-up may come late, whatever slice was asked for: one of thousands of processes that wake each other all
//! the time has kept everybody else from a CPU for six seconds (Linux 6.18), each of them in the place of the one before.
//!
//! No ordinary thread can take the CPU from a real-time one, so the priority is given up where we use much of it, until that is over.
//! The guardian has a higher one, where that is permitted.
//!
//! Whoever has us run at another nice value than the usual one knows better: what a real-time thread starts would not have it.

use divvy_policy::{Instant, Nanos};

use crate::slice::Slice;
use crate::{Pid, clock, own};

/// What we use is looked at this often.
const INTERVAL: Nanos = Nanos::from_millis(100);
/// However long it slept before, a burst of work is seen.
const PASSED_MAX: Nanos = Nanos::from_secs(1);
/// Who uses more than one part in so many of a CPU,
const PART_MAX: u64 = 5;
/// by so much more, is an ordinary thread
const BURST_MAX: Nanos = Nanos::from_millis(100);
/// for so long at the least.
const ORDINARY_FOR: Nanos = Nanos::from_secs(2);

/// The priority of the thread that made it.
#[derive(Debug)]
pub(super) struct Priority {
    thread: Pid,
    /// What it was before.
    before: Slice,
    raised: bool,
    seen: Option<(Instant, Nanos)>,
    /// What was used beyond that part, and not made up for since.
    beyond: Nanos,
    /// When it was found to use too much.
    exceeded: Option<Instant>,
}

impl Priority {
    /// Raises that of this thread, which was as `before`; `None` where that is not permitted, or not wanted.
    pub(super) fn raise(before: Slice) -> Option<Self> {
        let thread = rustix::thread::gettid();
        let raised = before.is_of_usual_nice() && own::wake_at_once();
        raised.then_some(Self { thread, before, raised, seen: None, beyond: Nanos::ZERO, exceeded: None })
    }

    /// Whether we come before whoever is an ordinary thread.
    pub(super) fn is_raised(&self) -> bool {
        self.raised
    }

    /// Now and then: what this thread uses decides whether it keeps the priority.
    pub(super) fn see_to(&mut self, now: Instant) {
        if self.seen.is_some_and(|(at, _)| now.since(at) < INTERVAL)
            || rustix::thread::gettid() != self.thread
        {
            return;
        }
        let used = clock::own_thread_cpu();
        let Some((at, before)) = self.seen.replace((now, used)) else { return };
        let passed = now.since(at).min(PASSED_MAX);
        let keeps = self.keeps(now, passed, used.saturating_sub(before));
        if keeps && !self.raised {
            self.raised = own::wake_at_once();
        } else if !keeps && self.raised {
            self.lower();
        }
    }

    /// Whether it is to be raised, when so much of the time that has passed was used.
    fn keeps(&mut self, now: Instant, passed: Nanos, used: Nanos) -> bool {
        self.beyond = (self.beyond + used).saturating_sub(Nanos(passed.0 / PART_MAX));
        if self.beyond > BURST_MAX {
            self.beyond = BURST_MAX;
            self.exceeded = Some(now);
        }
        self.exceeded.is_none_or(|at| now.since(at) >= ORDINARY_FOR)
    }

    fn lower(&mut self) {
        self.raised = !self.before.shorten_own();
    }
}

impl Drop for Priority {
    fn drop(&mut self) {
        if self.raised && rustix::thread::gettid() == self.thread {
            self.lower();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slice::ask_for_short_slices;

    const REAL: i32 = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;

    fn policy() -> i32 {
        // SAFETY: takes and returns numbers only.
        (unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) }) as i32
    }

    fn raised(test: &str) -> Option<Priority> {
        let priority = ask_for_short_slices().and_then(Priority::raise);
        if priority.is_none() {
            crate::skip::skip(test, "no real-time priority is permitted here");
        }
        priority
    }

    #[test]
    fn a_thread_that_uses_little_keeps_it_and_gives_it_back() {
        let test = || {
            let before = policy();
            let Some(mut priority) = raised("a_thread_that_uses_little_keeps_it_and_gives_it_back") else {
                return;
            };
            assert_eq!(policy(), REAL);
            assert_eq!(std::thread::spawn(policy).join().expect("no panic"), libc::SCHED_OTHER);
            let now = clock::now();
            for ms in (0..1_000).step_by(50) {
                priority.see_to(now + Nanos::from_millis(ms));
                assert_eq!(policy(), REAL);
            }
            drop(priority);
            assert_eq!(policy(), before);
        };
        // A thread of its own: the others keep theirs.
        std::thread::spawn(test).join().expect("no panic");
    }

    #[test]
    fn without_privilege_it_can_be_given_up_too() {
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        let test = || {
            let Some(priority) = raised("without_privilege_it_can_be_given_up_too") else { return };
            let mut sets = capabilities(None).expect("readable");
            sets.effective.remove(CapabilitySet::SYS_NICE);
            set_capabilities(None, sets).expect("fewer may be had");
            drop(priority);
            assert_eq!(policy() & !libc::SCHED_RESET_ON_FORK, libc::SCHED_OTHER);
        };
        std::thread::spawn(test).join().expect("no panic");
    }

    #[test]
    fn who_is_nice_stays_so() {
        let test = || {
            let me = rustix::thread::gettid();
            rustix::process::setpriority_process(Some(me), 3).expect("nicer one may be");
            assert!(ask_for_short_slices().and_then(Priority::raise).is_none());
            assert_eq!(policy(), libc::SCHED_OTHER);
        };
        std::thread::spawn(test).join().expect("no panic");
    }

    #[test]
    fn a_thread_that_uses_much_is_like_others_for_a_while() {
        let test = || {
            let Some(mut priority) = raised("a_thread_that_uses_much_is_like_others_for_a_while") else {
                return;
            };
            let now = clock::now();
            let at = |ms| now + Nanos::from_millis(ms);
            priority.see_to(at(0));
            let begun = clock::own_thread_cpu();
            while clock::own_thread_cpu().saturating_sub(begun) < Nanos::from_millis(121) {}
            priority.see_to(at(100));
            let ordinary = (0..20).map(|n| {
                priority.see_to(at(150 + 100 * n));
                policy() == libc::SCHED_OTHER
            });
            assert_eq!(ordinary.filter(|&is| is).count(), 20, "two seconds");
            priority.see_to(at(2_200));
            assert_eq!(policy(), REAL);
        };
        std::thread::spawn(test).join().expect("no panic");
    }
}
