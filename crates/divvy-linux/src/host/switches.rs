//! What it takes us to hold clients of many threads, and to release them again.
//!
//! The kernel wakes each thread of a client that is frozen, stopped or resumed, those that sleep too: 1 to 3 us each. Of a client of 300
//! that is .3 ms for a stop by a signal and .8 for a frozen cgroup, and what threads take to go to sleep again is the client's own. A
//! policy may hold such a client less often ([`Policy::set_switch_cost`](divvy_policy::Policy::set_switch_cost)).

use divvy_policy::{ClientId, Instant, Nanos};

use crate::clock;

/// Whoever takes less than this is held as often as its share says: some hundred threads. It is dear until it takes less than half.
const DEAR: Nanos = Nanos::from_micros(200);
/// What takes so long by the clock is timed by our CPU time from then on, which takes a system call: others may have come in between.
const LONG: Nanos = Nanos::from_micros(50);
/// What is told is true within this factor.
const ROUGHLY: u64 = 4;
/// Whoever was not held or released for so long is not held any more: it sleeps, or is due all of a CPU. Cycles are of a second or two of the
/// CPUs, and longer by the clock where strangers have most of these.
const STALE: Nanos = Nanos::from_secs(30);

/// What it takes to hold and to release one client.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Switches {
    hold: Took,
    release: Took,
}

/// How long it took: the less of the last two times, for an interrupt may have come in between.
#[derive(Clone, Copy, Debug, Default)]
struct Took {
    by_cpu: bool,
    last: Nanos,
    less: Nanos,
}

/// What is done to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Switch {
    Hold,
    Release,
}

/// Since when that is being done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    what: Switch,
    at: At,
}

#[derive(Clone, Copy, Debug)]
enum At {
    Clock(Instant),
    Cpu(Nanos),
}

impl Took {
    fn note(&mut self, took: Nanos) {
        self.less = took.min(std::mem::replace(&mut self.last, took));
        self.by_cpu = took >= LONG;
    }
}

impl Switches {
    const fn of(&mut self, what: Switch) -> &mut Took {
        match what {
            Switch::Hold => &mut self.hold,
            Switch::Release => &mut self.release,
        }
    }

    pub(super) fn begin(mut self, what: Switch) -> Begun {
        let by_cpu = self.of(what).by_cpu;
        let at = if by_cpu { At::Cpu(clock::own_thread_cpu()) } else { At::Clock(clock::now()) };
        Begun { what, at }
    }

    /// It is done. Says whether what it takes is known.
    pub(super) fn end(&mut self, begun: Begun) -> bool {
        let took = self.of(begun.what);
        match begun.at {
            At::Clock(at) => took.by_cpu = clock::now().since(at) >= LONG,
            At::Cpu(at) => took.note(clock::own_thread_cpu().saturating_sub(at)),
        }
        matches!(begun.at, At::Cpu(_))
    }

    fn cost(&self) -> Nanos {
        self.hold.less + self.release.less
    }
}

/// Clients that are dear to hold.
#[derive(Debug, Default)]
pub(super) struct SwitchCosts {
    dear: Vec<Dear>,
    told: Nanos,
}

/// It was held or released last `at`.
#[derive(Clone, Copy, Debug)]
struct Dear {
    client: ClientId,
    cost: Nanos,
    at: Instant,
}

impl SwitchCosts {
    /// The client was held or released.
    pub(super) fn note(&mut self, now: Instant, client: ClientId, switches: &Switches) {
        let cost = switches.cost();
        let known = self.dear.iter().position(|dear| dear.client == client);
        let least = if known.is_some() { Nanos(DEAR.0 / 2) } else { DEAR };
        if let Some(i) = known {
            self.dear.swap_remove(i);
        }
        if cost >= least {
            self.dear.push(Dear { client, cost, at: now });
        }
        self.sum_up();
    }

    /// It is divided no more.
    pub(super) fn forget(&mut self, client: ClientId) {
        self.dear.retain(|dear| dear.client != client);
        self.sum_up();
    }

    /// Forgets those that are not held any more.
    pub(super) fn forget_stale(&mut self, now: Instant) {
        if self.dear.iter().any(|dear| now.since(dear.at) > STALE) {
            self.dear.retain(|dear| now.since(dear.at) <= STALE);
            self.sum_up();
        }
    }

    fn sum_up(&mut self) {
        let sum = self.dear.iter().fold(Nanos::ZERO, |sum, dear| sum + dear.cost);
        if sum > self.told || sum.0 < self.told.0 / ROUGHLY {
            let rounded = sum.0.checked_next_power_of_two().unwrap_or(u64::MAX);
            self.told = if sum == Nanos::ZERO { sum } else { Nanos(rounded) };
        }
    }

    /// All of them together, roughly and no less.
    pub(super) const fn told(&self) -> Nanos {
        self.told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_dear_to_hold_is_told_of_roughly() {
        let us = Nanos::from_micros;
        let at = |s| Instant::ZERO + Nanos::from_secs(s);
        let mut costs = SwitchCosts::default();
        let mut clients = [Switches::default(); 2];
        let mut switch = |costs: &mut SwitchCosts, s: u64, i: usize, took: u64| {
            clients[i].hold.note(us(took));
            clients[i].release.note(us(took / 4));
            costs.note(at(s), ClientId(i as u32), &clients[i]);
            costs.told()
        };
        // Once is nothing.
        assert_eq!([20, 4_000, 20, 800].map(|took| switch(&mut costs, 0, 0, took)), [Nanos::ZERO; 4]);
        let first = switch(&mut costs, 0, 0, 800);
        assert!((us(1_000)..us(2_000)).contains(&first) && first.0.is_power_of_two());
        // What changes a little is not told again, and who is cheap changes nothing.
        let rest = [(0, 700), (0, 300), (0, 260), (1, 140), (1, 140)];
        assert_eq!(rest.map(|(i, took)| switch(&mut costs, 0, i, took)), [first; 5]);
        // Who is dear is so until it takes half.
        assert!(
            [140, 140].map(|took| switch(&mut costs, 0, 0, took)).into_iter().all(|told| told > Nanos::ZERO)
        );
        assert_eq!([60, 60].map(|took| switch(&mut costs, 0, 0, took)), [Nanos::ZERO; 2]);
        assert!([800, 800].map(|took| switch(&mut costs, 0, 0, took))[1] >= us(1_000));
        switch(&mut costs, 20, 1, 3_000);
        assert!(switch(&mut costs, 20, 1, 3_000) >= us(3_750));
        // Who goes is forgotten, and who is not held any more.
        costs.forget_stale(at(31));
        assert_eq!(costs.dear.len(), 1, "the other was last held half a minute ago");
        costs.forget(ClientId(1));
        assert_eq!(costs.told(), Nanos::ZERO);
        assert!(switch(&mut costs, 32, 1, 3_000) > Nanos::ZERO);
        costs.forget_stale(at(63));
        assert_eq!(costs.told(), Nanos::ZERO);
    }

    /// By the clock it is only found out who takes long.
    #[test]
    fn who_takes_long_is_timed_by_our_cpu_time() {
        let mut switches = Switches::default();
        let mut switch = |span: Nanos, burns: bool| {
            let begun = switches.begin(Switch::Hold);
            let (at, cpu) = (clock::now(), clock::own_thread_cpu());
            if !burns {
                clock::sleep(span);
            }
            while burns
                && (clock::own_thread_cpu().saturating_sub(cpu) < span || clock::now().since(at) < span)
            {
            }
            (switches.end(begun), switches.cost())
        };
        let ms = Nanos::from_millis;
        assert_eq!(switch(ms(3), true), (false, Nanos::ZERO));
        switch(ms(3), true);
        let (known, cost) = switch(ms(3), true);
        assert!(known && cost >= ms(3));
        // Somebody else ran.
        let (known, cost) = switch(ms(3), false);
        assert!(known && cost < ms(3));
    }
}
