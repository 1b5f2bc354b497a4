//! On which CPUs we run ourselves.
//!
//! A look takes its time from whoever runs on our CPU. Of clients that take turns each has a little less by that; one that is due all of a
//! CPU, and never waits, has nothing that makes up for it. So, where clients take turns on some of the CPUs that are divided and nobody does
//! on others, each CPU is to lose as much to us: we keep to the ones for a while, then to the others. Where we may run on CPUs that are not
//! divided, too, we only keep away. Nobody else's CPUs are changed by that, nor those of what we start.

use divvy_policy::{Instant, Nanos};

use super::{Client, LinuxHost};
use crate::{CpuMask, Pid, clock};

/// Somebody who takes turns is held at least this often: cycles are no longer than a second.
const LATELY: Nanos = Nanos::from_secs(2);
/// It is seen to this often.
const INTERVAL: Nanos = Nanos::from_millis(100);
/// So much more than others a CPU may have lost to us before that is forgotten.
const LOST_MAX: Nanos = Nanos::from_millis(50);

/// Where we run, and where clients are held.
#[derive(Debug, Default)]
pub(super) struct OwnCpu {
    /// When somebody was last held on a CPU, by the kernel's number.
    held: Vec<(u32, Instant)>,
    seen_to: Instant,
    kept: Option<Kept>,
    /// What CPUs have lost to us while we kept to some, ns, by the kernel's number: how much more than whichever has lost least.
    lost: Vec<(u32, u64)>,
    /// The guardian that runs wherever we might.
    guardian: Option<Pid>,
}

/// We keep to some of the CPUs.
#[derive(Clone, Copy, Debug)]
struct Kept {
    own: Pid,
    /// The CPUs that we might use before, and those that we use now.
    before: CpuMask,
    now: CpuMask,
    /// Our CPU time when that was last seen to.
    used: Nanos,
}

impl Client {
    /// On which of the `divided` CPUs it takes turns: none for one of one thread that may run on any. Of several processes each may wake
    /// anywhere where its own CPU has us: for these all count.
    pub(super) fn cpus_held_on<'a>(&'a self, divided: &'a [u32]) -> &'a [u32] {
        match &self.cpu {
            _ if self.members.len() > 1 => divided,
            Some(cpu) => std::slice::from_ref(cpu),
            None if !self.lanes.cpus.is_empty() => &self.lanes.cpus,
            None if self.members.only_thread().is_some() => &[],
            None => divided,
        }
    }
}

impl OwnCpu {
    /// A client was held that ran on `cpus`.
    pub(super) fn note_held(&mut self, cpus: &[u32], now: Instant) {
        for &cpu in cpus {
            match self.held.iter_mut().find(|(of, _)| *of == cpu) {
                Some((_, at)) => *at = now,
                None => self.held.push((cpu, now)),
            }
        }
    }

    /// Whether anybody has been held lately.
    pub(super) fn holds_lately(&self, now: Instant) -> bool {
        self.held.iter().any(|(_, at)| now.since(*at) < LATELY)
    }

    /// The CPUs of `divided` on which nobody has been held lately, or somebody runs all the time, if on others somebody was held.
    fn quiet(&self, divided: &[u32], lived_on: &[u32], now: Instant) -> Vec<u32> {
        let lately = |cpu: &u32| self.held.iter().any(|(of, at)| of == cpu && now.since(*at) < LATELY);
        let (turns, quiet): (Vec<u32>, Vec<u32>) =
            divided.iter().partition(|cpu| lately(cpu) && !lived_on.contains(cpu));
        if turns.is_empty() { Vec::new() } else { quiet }
    }

    /// Whether it is time to look after where we run again.
    pub(super) fn is_due(&mut self, divided: &[u32], now: Instant) -> bool {
        let due = divided.len() > 1 && now.since(self.seen_to) >= INTERVAL;
        if due {
            self.seen_to = now;
        }
        due
    }

    /// Now and then: has each of the `divided` CPUs lose as much to this thread, where on some of them nobody takes turns. On those
    /// `lived_on` somebody runs all the time.
    pub(super) fn see_to(&mut self, divided: &[u32], lived_on: &[u32], now: Instant) {
        let quiet = self.quiet(divided, lived_on, now);
        let own = rustix::thread::gettid();
        if quiet.is_empty() && self.kept.is_none() {
            return;
        }
        let Ok(Some(current)) = CpuMask::of_thread(own) else { return };
        // Where somebody else has said meanwhile where we may run, that holds.
        let known = self.kept.filter(|kept| kept.own == own && kept.now == current);
        let used = clock::own_thread_cpu();
        if let Some(kept) = known {
            self.lose(divided, &kept.now, used.saturating_sub(kept.used));
        }
        let before = known.map_or(current, |kept| kept.before);
        let (some, others): (Vec<u32>, Vec<u32>) = before.iter().partition(|cpu| quiet.contains(cpu));
        // On those that are not divided we are in nobody's way.
        let away =
            others.iter().any(|cpu| !divided.contains(cpu)) || self.lost_on(&others) <= self.lost_on(&some);
        let now = if away { others } else { some }.into_iter().collect::<CpuMask>();
        // Whatever keeps us from it: it is no more than a little time.
        if quiet.is_empty() || now.is_empty() {
            self.end();
        } else if now == current || now.apply(own).is_ok() {
            self.kept = Some(Kept { own, before, now, used });
        }
    }

    /// We have used `spent` on those `cpus`.
    fn lose(&mut self, divided: &[u32], cpus: &CpuMask, spent: Nanos) {
        if self.lost.is_empty() {
            self.lost = divided.iter().map(|&cpu| (cpu, 0)).collect();
        }
        let parts = cpus.iter().count().max(1) as u64;
        for (_, lost) in self.lost.iter_mut().filter(|(cpu, _)| cpus.contains(*cpu)) {
            *lost += spent.0 / parts;
        }
        let least = self.lost.iter().map(|(_, lost)| *lost).min().unwrap_or(0);
        for (_, lost) in &mut self.lost {
            *lost = (*lost - least).min(LOST_MAX.0);
        }
    }

    /// What each of `cpus` has lost, on average, more than whichever has lost least.
    fn lost_on(&self, cpus: &[u32]) -> u64 {
        let lost = self.lost.iter().filter(|(cpu, _)| cpus.contains(cpu)).map(|(_, lost)| lost);
        lost.sum::<u64>() / cpus.len().max(1) as u64
    }

    /// A guardian that was made while we kept away does not keep away.
    pub(super) fn let_go(&mut self, guardian: Option<Pid>) {
        if let (Some(kept), Some(guardian)) = (&self.kept, guardian)
            && self.guardian.replace(guardian) != Some(guardian)
        {
            let _ = kept.before.apply(guardian);
        }
    }

    /// We run wherever we might before, unless somebody else has said since where we may: what is started from here runs there, too.
    pub(super) fn end(&mut self) {
        if let Some(kept) = self.kept.take()
            && CpuMask::of_thread(kept.own).is_ok_and(|mask| mask == Some(kept.now))
        {
            let _ = kept.before.apply(kept.own);
        }
    }
}

impl Drop for OwnCpu {
    fn drop(&mut self) {
        self.end();
    }
}

impl LinuxHost {
    /// The CPUs that those were sent to who are never held, one each.
    pub(super) fn lived_on(&self) -> Vec<u32> {
        let running = self.capped.iter().filter_map(|client| self.clients.get(client.index()));
        let running = running.filter(|c| !c.is_gone() && !c.is_held());
        let cpu = |c: &Client| match c.lanes.cpus[..] {
            [] => c.cpu,
            [cpu] => Some(cpu),
            _ => None,
        };
        running.filter_map(cpu).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl OwnCpu {
        fn see_to_if_due(&mut self, divided: &[u32], now: Instant) {
            if self.is_due(divided, now) {
                self.see_to(divided, &[], now);
            }
        }
    }

    #[test]
    fn where_nobody_takes_turns_we_are_in_nobodys_way() {
        let at = |ms: u64| Instant::ZERO + Nanos::from_millis(10_000 + ms);
        let mut own = OwnCpu::default();
        assert!(own.quiet(&[3, 5], &[], at(0)).is_empty(), "nobody is held at all");
        own.note_held(&[5], at(0));
        assert_eq!(own.quiet(&[3, 5], &[], at(100)), [3]);
        own.note_held(&[3], at(200));
        assert!(own.quiet(&[3, 5], &[], at(300)).is_empty());
        own.note_held(&[5], at(2_000));
        assert_eq!(own.quiet(&[3, 5], &[], at(2_300)), [3], "that was long ago");
        assert!(own.quiet(&[3, 5], &[], at(9_000)).is_empty());
        // Where somebody runs all the time nobody takes turns, whoever else may be held there.
        own.note_held(&[3, 5], at(10_900));
        assert_eq!(own.quiet(&[3, 5], &[3], at(11_000)), [3]);
        assert!(own.quiet(&[3, 5], &[3, 5], at(11_000)).is_empty());
    }

    fn own_mask() -> CpuMask {
        CpuMask::of_thread(rustix::thread::gettid()).unwrap().unwrap()
    }

    /// Has `check` run in a thread that it may keep to CPUs, with two of those that it may use.
    fn on_two_cpus(test: &str, check: impl FnOnce([u32; 2]) + Send + 'static) {
        match own_mask().iter().take(2).collect::<Vec<_>>()[..] {
            [first, second] => std::thread::spawn(move || check([first, second])).join().unwrap(),
            _ => crate::skip::skip(test, "this machine has one CPU"),
        }
    }

    #[test]
    fn each_cpu_loses_as_much_to_us() {
        on_two_cpus("each_cpu_loses_as_much_to_us", |divided| {
            // CPUs that are not divided are taken away, for we would stay on these.
            divided.into_iter().collect::<CpuMask>().apply(rustix::thread::gettid()).unwrap();
            let (mut own, mut spent) = (OwnCpu::default(), [0; 2]);
            for step in 0..40 {
                let at = Instant::ZERO + Nanos::from_millis(10_000 + 100 * step);
                own.note_held(&divided, at);
                // Whoever runs all the time changes its CPU half way.
                own.see_to(&divided, &[divided[usize::from(step < 20)]], at);
                let on = divided.map(|cpu| own_mask().contains(cpu));
                assert_eq!(on.iter().filter(|on| **on).count(), 1, "{on:?}");
                let end = clock::own_thread_cpu() + Nanos::from_millis(1 + step % 3);
                while clock::own_thread_cpu() < end {}
                spent[usize::from(on[1])] += 1 + step % 3;
            }
            assert!(spent[0].abs_diff(spent[1]) <= 3, "{spent:?}");
        });
    }

    /// Whoever says meanwhile where we may run is right.
    #[test]
    fn cpus_that_others_give_us_are_kept() {
        on_two_cpus("cpus_that_others_give_us_are_kept", |[first, second]| {
            let mut own = OwnCpu::default();
            let at = |step: u64| Instant::ZERO + Nanos::from_millis(10_000 + 100 * step);
            own.note_held(&[first], at(0));
            own.see_to(&[first, second], &[], at(0));
            assert!(own_mask().contains(first) && !own_mask().contains(second));
            CpuMask::only(second).apply(rustix::thread::gettid()).unwrap();
            for step in 1..5 {
                own.see_to(&[first, second], &[], at(step));
                assert_eq!(own_mask(), CpuMask::only(second));
            }
            drop(own);
            assert_eq!(own_mask(), CpuMask::only(second));
        });
    }

    #[test]
    fn our_cpus_are_given_back() {
        let cpus = || CpuMask::of_thread(rustix::thread::gettid()).unwrap().unwrap();
        let before = cpus();
        let divided: Vec<u32> = before.iter().take(2).collect();
        let [first, second] = divided[..] else {
            crate::skip::skip("our_cpus_are_given_back", "this machine has one CPU");
            return;
        };
        let at = |ms: u64| Instant::ZERO + Nanos::from_millis(10_000 + ms);
        let mut own = OwnCpu::default();
        own.note_held(&[first], at(0));
        own.see_to_if_due(&divided, at(0));
        assert!(cpus().contains(first) && !cpus().contains(second));
        // It changes with whoever takes turns, but not at every look.
        own.note_held(&[second], at(1_950));
        own.see_to_if_due(&divided, at(50));
        assert!(!cpus().contains(second));
        own.see_to_if_due(&divided, at(2_000));
        assert!(cpus().contains(second) && !cpus().contains(first));
        own.note_held(&divided, at(2_100));
        own.see_to_if_due(&divided, at(2_100));
        assert_eq!(cpus(), before);
        own.see_to_if_due(&divided, at(4_200));
        own.note_held(&[first], at(4_300));
        own.see_to_if_due(&divided, at(4_300));
        assert!(!cpus().contains(second));
        // A guardian that is made now runs wherever we might.
        let mut guardian = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let pid = Pid::from_child(&guardian);
        let of_guardian = || CpuMask::of_thread(pid).unwrap();
        let (made, ()) = (of_guardian(), own.let_go(Some(pid)));
        let let_go = of_guardian();
        guardian.kill().and_then(|()| guardian.wait()).expect("it ends");
        assert_eq!((made, let_go), (Some(cpus()), Some(before)));
        drop(own);
        assert_eq!(cpus(), before);
    }
}
