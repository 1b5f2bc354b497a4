//! On which CPUs we run ourselves.
//!
//! A look takes its time from whoever runs on our CPU. Of clients that take turns each has a little less by that; one that is due all of a
//! CPU, and never waits, has nothing that makes up for it. So, where clients have been held lately on some of the CPUs that are divided and
//! nobody was on others, we keep away from the others. Nobody else's CPUs are changed by that, nor those of what we start.

use divvy_policy::{Instant, Nanos};

use super::Client;
use crate::{CpuMask, Pid};

/// Somebody who takes turns is held at least this often: cycles are no longer than a second.
const LATELY: Nanos = Nanos::from_secs(2);
/// It is seen to this often.
const INTERVAL: Nanos = Nanos::from_millis(100);

/// Where we run, and where clients are held.
#[derive(Debug, Default)]
pub(super) struct OwnCpu {
    /// When somebody was last held on a CPU, by the kernel's number.
    held: Vec<(u32, Instant)>,
    seen_to: Instant,
    /// The thread that keeps away, the CPUs that it might use before, and those that it uses now.
    kept: Option<(Pid, CpuMask, CpuMask)>,
    /// The guardian that runs wherever we might.
    guardian: Option<Pid>,
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

    /// The CPUs of `divided` on which nobody has been held lately, if on others somebody was.
    fn quiet(&self, divided: &[u32], now: Instant) -> Vec<u32> {
        let lately = |cpu: &u32| self.held.iter().any(|(of, at)| of == cpu && now.since(*at) < LATELY);
        let (turns, quiet): (Vec<u32>, Vec<u32>) = divided.iter().partition(|cpu| lately(cpu));
        if turns.is_empty() { Vec::new() } else { quiet }
    }

    /// Now and then: keeps this thread away from those of the `divided` CPUs on which nobody takes turns.
    pub(super) fn see_to(&mut self, divided: &[u32], now: Instant) {
        if divided.len() < 2 || now.since(self.seen_to) < INTERVAL {
            return;
        }
        self.seen_to = now;
        let quiet = self.quiet(divided, now);
        let own = rustix::thread::gettid();
        let before = match self.kept {
            Some((of, before, _)) if of == own => before,
            _ if quiet.is_empty() => return,
            _ => match CpuMask::of_thread(own) {
                Ok(Some(before)) => before,
                _ => return,
            },
        };
        let cpus: CpuMask = before.iter().filter(|cpu| !quiet.contains(cpu)).collect();
        // Whatever keeps us from it: it is no more than a little time.
        if quiet.is_empty() || cpus.is_empty() {
            self.end();
        } else if self.kept.is_none_or(|(.., now)| now != cpus) && cpus.apply(own).is_ok() {
            self.kept = Some((own, before, cpus));
        }
    }

    /// A guardian that was made while we kept away does not keep away.
    pub(super) fn let_go(&mut self, guardian: Option<Pid>) {
        if let (Some((_, before, _)), Some(guardian)) = (self.kept, guardian)
            && self.guardian.replace(guardian) != Some(guardian)
        {
            let _ = before.apply(guardian);
        }
    }

    /// We run wherever we might before, unless somebody else has said since where we may: what is started from here runs there, too.
    pub(super) fn end(&mut self) {
        if let Some((own, before, now)) = self.kept.take()
            && CpuMask::of_thread(own).is_ok_and(|mask| mask == Some(now))
        {
            let _ = before.apply(own);
        }
    }
}

impl Drop for OwnCpu {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nobody_takes_turns_we_are_in_nobodys_way() {
        let at = |ms: u64| Instant::ZERO + Nanos::from_millis(10_000 + ms);
        let mut own = OwnCpu::default();
        assert!(own.quiet(&[3, 5], at(0)).is_empty(), "nobody is held at all");
        own.note_held(&[5], at(0));
        assert_eq!(own.quiet(&[3, 5], at(100)), [3]);
        own.note_held(&[3], at(200));
        assert!(own.quiet(&[3, 5], at(300)).is_empty());
        own.note_held(&[5], at(2_000));
        assert_eq!(own.quiet(&[3, 5], at(2_300)), [3], "that was long ago");
        assert!(own.quiet(&[3, 5], at(9_000)).is_empty());
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
        own.see_to(&divided, at(0));
        assert!(cpus().contains(first) && !cpus().contains(second));
        // It changes with whoever takes turns, but not at every look.
        own.note_held(&[second], at(1_950));
        own.see_to(&divided, at(50));
        assert!(!cpus().contains(second));
        own.see_to(&divided, at(2_000));
        assert!(cpus().contains(second) && !cpus().contains(first));
        own.note_held(&divided, at(2_100));
        own.see_to(&divided, at(2_100));
        assert_eq!(cpus(), before);
        own.see_to(&divided, at(4_200));
        own.note_held(&[first], at(4_300));
        own.see_to(&divided, at(4_300));
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
