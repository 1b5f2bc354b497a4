//! On which CPUs we run ourselves.
//!
//! A look takes its time from whoever runs on our CPU. Of clients that take turns each has a little less by that; one that is due all of a
//! CPU, and never waits, has nothing that makes up for it. So, where clients take turns on some of the CPUs that are divided and nobody does
//! on others, each CPU is to lose as much to us: we keep to the ones for a while, then to the others. Nobody else's CPUs are changed by that,
//! nor those of what we start.

use divvy_policy::{ClientId, Instant, Nanos};

use super::Client;
use crate::{CpuMask, Pid, clock};

/// Somebody who takes turns is held at least this often: cycles are no longer than a second.
const LATELY: Nanos = Nanos::from_secs(2);
/// Who has run for this long on a CPU of its own while others were held is one that is due all of it.
const SETTLED: Nanos = Nanos::from_millis(500);
/// It is seen to this often.
const INTERVAL: Nanos = Nanos::from_millis(100);

/// Where we run, and where clients are held.
#[derive(Debug, Default)]
pub(super) struct OwnCpu {
    /// When somebody was last held on a CPU, by the kernel's number.
    held: Vec<(u32, Instant)>,
    /// Who was released on a CPU of its own, and has not been held since then.
    homes: Vec<(ClientId, u32, Instant)>,
    seen_to: Instant,
    kept: Option<Kept>,
    /// The guardian that runs wherever we might.
    guardian: Option<Pid>,
}

/// We keep to some of the CPUs.
#[derive(Debug)]
struct Kept {
    own: Pid,
    /// The CPUs that we might use before.
    before: CpuMask,
    /// Those on which nobody takes turns.
    quiet: CpuMask,
    /// Those that we use now, which are the others or these.
    now: CpuMask,
    away: bool,
    /// How many the others are, and these.
    parts: (usize, usize),
    /// Our CPU time when that was last seen to.
    used: Nanos,
    /// How much more the CPUs on which clients take turns have lost to us, each, than the others, ns times CPUs.
    lead: i128,
}

impl Kept {
    /// The lead when we have used so much CPU time.
    fn lead_at(&self, used: Nanos) -> i128 {
        let spent = i128::from(used.0.saturating_sub(self.used.0));
        self.lead + if self.away { spent * self.parts.1 as i128 } else { -spent * self.parts.0 as i128 }
    }
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
    /// `client` was held, which ran on `cpus`.
    pub(super) fn note_held(&mut self, client: ClientId, cpus: &[u32], now: Instant) {
        self.forget(client);
        for &cpu in cpus {
            match self.held.iter_mut().find(|(of, _)| *of == cpu) {
                Some((_, at)) => *at = now,
                None => self.held.push((cpu, now)),
            }
        }
    }

    /// `client` was released on `cpu`, if that is one of its own.
    pub(super) fn note_released(&mut self, client: ClientId, cpu: Option<u32>, now: Instant) {
        let since = self.homes.iter().find(|(of, ..)| *of == client).map_or(now, |(.., since)| *since);
        self.forget(client);
        self.homes.extend(cpu.map(|cpu| (client, cpu, since)));
    }

    /// `client` is nowhere.
    pub(super) fn forget(&mut self, client: ClientId) {
        self.homes.retain(|(of, ..)| *of != client);
    }

    /// Who has run on a CPU of its own for so long, while others were held, that it is due all of it.
    pub(super) fn settled(&self, now: Instant) -> Vec<ClientId> {
        if self.held.iter().all(|(_, at)| now.since(*at) >= SETTLED) {
            return Vec::new();
        }
        let settled = self.homes.iter().filter(|(.., since)| now.since(*since) >= SETTLED);
        settled.map(|(client, ..)| *client).collect()
    }

    /// The CPUs of `divided` on which nobody has been held lately, or somebody runs all the time, if on others somebody was held.
    fn quiet(&self, divided: &[u32], now: Instant) -> Vec<u32> {
        let lately = |cpu: &u32| self.held.iter().any(|(of, at)| of == cpu && now.since(*at) < LATELY);
        let lived_on =
            |cpu: &u32| self.homes.iter().any(|(_, of, since)| of == cpu && now.since(*since) >= SETTLED);
        let (turns, quiet): (Vec<u32>, Vec<u32>) =
            divided.iter().partition(|cpu| lately(cpu) && !lived_on(cpu));
        if turns.is_empty() { Vec::new() } else { quiet }
    }

    /// Whether something may have changed for [`see_to`](Self::see_to), or [`settled`](Self::settled), since they were last asked.
    pub(super) fn is_due(&mut self, divided: &[u32], now: Instant) -> bool {
        let due = divided.len() > 1 && now.since(self.seen_to) >= INTERVAL;
        if due {
            self.seen_to = now;
        }
        due
    }

    /// Now and then: has each of the `divided` CPUs lose as much to this thread, where on some of them nobody takes turns.
    pub(super) fn see_to(&mut self, divided: &[u32], now: Instant) {
        let own = rustix::thread::gettid();
        let known = self.kept.as_ref().filter(|kept| kept.own == own);
        let quiet: CpuMask = self.quiet(divided, now).into_iter().collect();
        let before = match known {
            Some(kept) => kept.before,
            None if quiet.is_empty() => return,
            None => match CpuMask::of_thread(own) {
                Ok(Some(before)) => before,
                _ => return,
            },
        };
        let used = clock::own_thread_cpu();
        let lead = known.filter(|kept| kept.quiet == quiet).map_or(0, |kept| kept.lead_at(used));
        let (others, some): (Vec<u32>, Vec<u32>) = before.iter().partition(|cpu| !quiet.contains(*cpu));
        // On those that are not divided we are in nobody's way.
        let only_divided = others.iter().all(|cpu| divided.contains(cpu));
        let parts = (others.len(), some.len());
        let away = lead <= 0 || !only_divided || some.is_empty();
        let cpus: CpuMask = if away { others } else { some }.into_iter().collect();
        // Whatever keeps us from it: it is no more than a little time.
        if quiet.is_empty() || cpus.is_empty() {
            self.end();
        } else if known.is_some_and(|kept| kept.now == cpus) || cpus.apply(own).is_ok() {
            self.kept = Some(Kept { own, before, quiet, now: cpus, away, parts, used, lead });
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    impl OwnCpu {
        fn see_to_if_due(&mut self, divided: &[u32], now: Instant) {
            if self.is_due(divided, now) {
                self.see_to(divided, now);
            }
        }
    }

    #[test]
    fn where_nobody_takes_turns_we_are_in_nobodys_way() {
        let at = |ms: u64| Instant::ZERO + Nanos::from_millis(10_000 + ms);
        let mut own = OwnCpu::default();
        assert!(own.quiet(&[3, 5], at(0)).is_empty(), "nobody is held at all");
        own.note_held(ClientId(0), &[5], at(0));
        assert_eq!(own.quiet(&[3, 5], at(100)), [3]);
        own.note_held(ClientId(0), &[3], at(200));
        assert!(own.quiet(&[3, 5], at(300)).is_empty());
        own.note_held(ClientId(0), &[5], at(2_000));
        assert_eq!(own.quiet(&[3, 5], at(2_300)), [3], "that was long ago");
        assert!(own.quiet(&[3, 5], at(9_000)).is_empty());
        // Whoever has a CPU of its own, and is not held, takes no turns, whoever else may be held there.
        own.note_released(ClientId(1), Some(5), at(10_500));
        own.note_held(ClientId(0), &[3, 5], at(10_900));
        assert!(
            own.quiet(&[3, 5], at(10_900)).is_empty() && own.settled(at(10_900)).is_empty(),
            "it may be held yet"
        );
        own.note_released(ClientId(1), Some(3), at(10_950));
        assert_eq!((own.quiet(&[3, 5], at(11_000)), own.settled(at(11_000))), (vec![3], vec![ClientId(1)]));
        assert!(own.settled(at(11_400)).is_empty(), "nobody is held any more");
        own.note_held(ClientId(1), &[3], at(11_100));
        assert!(own.settled(at(11_200)).is_empty());
        assert!(own.quiet(&[3, 5], at(11_100)).is_empty());
        own.note_released(ClientId(1), Some(3), at(11_200));
        own.note_released(ClientId(1), None, at(11_300));
        own.note_held(ClientId(0), &[3, 5], at(13_900));
        assert!(own.quiet(&[3, 5], at(14_000)).is_empty(), "it runs anywhere");
    }

    #[test]
    fn each_cpu_loses_as_much_to_us() {
        let burn = |span: u64| {
            let end = clock::own_thread_cpu() + Nanos::from_millis(span);
            while clock::own_thread_cpu() < end {}
        };
        let cpus = || CpuMask::of_thread(rustix::thread::gettid()).unwrap().unwrap();
        let divided: Vec<u32> = cpus().iter().take(2).collect();
        let [first, second] = divided[..] else {
            crate::skip::skip("each_cpu_loses_as_much_to_us", "this machine has one CPU");
            return;
        };
        // CPUs that are not divided are taken away, for we would stay on these.
        divided.iter().copied().collect::<CpuMask>().apply(rustix::thread::gettid()).unwrap();
        let mut own = OwnCpu::default();
        let mut spent = [0; 2];
        for step in 0..30 {
            let at = Instant::ZERO + Nanos::from_millis(10_000 + 100 * step);
            own.note_held(ClientId(0), &[first], at);
            own.see_to_if_due(&divided, at);
            let cost = 1 + step % 3;
            match (cpus().contains(first), cpus().contains(second)) {
                (true, false) => spent[0] += cost,
                (false, true) => spent[1] += cost,
                both => panic!("{both:?}"),
            }
            burn(cost);
        }
        assert!(spent[0].abs_diff(spent[1]) <= 3, "{spent:?}");
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
        own.note_held(ClientId(0), &[first], at(0));
        own.see_to_if_due(&divided, at(0));
        assert!(cpus().contains(first) && !cpus().contains(second));
        // It changes with whoever takes turns, but not at every look.
        own.note_held(ClientId(0), &[second], at(1_950));
        own.see_to_if_due(&divided, at(50));
        assert!(!cpus().contains(second));
        own.see_to_if_due(&divided, at(2_000));
        assert!(cpus().contains(second) && !cpus().contains(first));
        own.note_held(ClientId(0), &divided, at(2_100));
        own.see_to_if_due(&divided, at(2_100));
        assert_eq!(cpus(), before);
        own.see_to_if_due(&divided, at(4_200));
        own.note_held(ClientId(0), &[first], at(4_300));
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
