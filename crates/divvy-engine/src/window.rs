//! Since when, and up to when, what clients achieved is counted.
//!
//! **Problem.** Within a cycle clients run one after the other, each for all that is due to it in the cycle. Counted from any
//! moment to any other, one has had a turn more than the others: on a CPU that strangers want too, where a cycle takes
//! a second, 28 % in the place of 25 % of the first eight.
//!
//! **Idea.** Shares count from a gate's next cycle on. So what is achieved is counted from the end of the cycle in which something
//! changed to the end of the last one. Until a whole cycle has passed, and under a gate that has none, it is what was used
//! since the change.
//!
//! **Debts.** Who was first looked at late, a newcomer above all, has had more by then than was due, and pays it back in its next
//! cycles. What is counted when it is paid is counted when it was made: a policy that knows the account says it.

use std::collections::HashMap;

use divvy_policy::{ClientId, Instant, Nanos};

use crate::Ledger;

/// The time in which what clients achieve is counted.
#[derive(Clone, Debug)]
pub struct Window {
    /// What everybody had received when it began.
    base: HashMap<ClientId, Nanos>,
    began: Instant,
    /// When the last cycle in it ended.
    ended: Instant,
    /// Cycles that had ended when it began, and when it was last looked at.
    cycles: u64,
    seen: u64,
    /// It began in the middle of a cycle.
    is_within: bool,
}

impl Window {
    /// One that begins at `now`, when nobody has received anything.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { base: HashMap::new(), began: now, ended: now, cycles: 0, seen: 0, is_within: true }
    }

    /// Something has changed at `now`: these `clients` are counted from here.
    pub fn begin(&mut self, ledger: &Ledger, clients: impl Iterator<Item = ClientId>, now: Instant) {
        let of = |id: ClientId| (id, ledger.clients()[id.index()].service);
        let cycles = ledger.cycles().ended;
        *self = Self { base: clients.map(of).collect(), cycles, seen: cycles, ..Self::new(now) };
    }

    /// To be called whenever cycles may have ended: the first end after a change is where counting begins. Cost: O(clients)
    /// then, and nothing else. `balance` is what [`Policy::balance`](divvy_policy::Policy::balance) says of a client.
    pub fn follow(&mut self, ledger: &Ledger, now: Instant, balance: impl Fn(ClientId) -> Option<i128>) {
        let ended = ledger.cycles().ended;
        if ended == self.seen {
            return;
        }
        (self.seen, self.ended) = (ended, now);
        if self.is_within {
            (self.is_within, self.began, self.cycles) = (false, now, ended);
            for (id, service) in &mut self.base {
                let had = i128::from(ledger.clients()[id.index()].service.0);
                // What it was due and has not had, it may never get.
                let due = balance(*id).map_or(had, |balance| (had + balance).max(0));
                let of_cycles = ledger.service_of_cycles(*id);
                *service = of_cycles.min(Nanos(u64::try_from(due).unwrap_or(u64::MAX)));
            }
        }
    }

    /// Whether what is counted is what was used in whole cycles.
    fn is_whole(&self, ledger: &Ledger) -> bool {
        !self.is_within && ledger.cycles().ended > self.cycles
    }

    /// CPU time that a client has received in it.
    #[must_use]
    pub fn service(&self, ledger: &Ledger, client: ClientId) -> Nanos {
        let account = &ledger.clients()[client.index()];
        let until = if self.is_whole(ledger) { ledger.service_of_cycles(client) } else { account.service };
        until.saturating_sub(self.base.get(&client).copied().unwrap_or(Nanos::ZERO))
    }

    /// How long it is at `now`.
    #[must_use]
    pub fn length(&self, ledger: &Ledger, now: Instant) -> Nanos {
        if self.is_whole(ledger) { self.ended.since(self.began) } else { now.since(self.began) }
    }
}

#[cfg(test)]
mod tests {
    use divvy_policy::Share;

    use super::*;

    const MS: u64 = 1_000_000;

    /// Three clients that are due 50, 100 and 50 ms of a cycle of 200 ms, one after the other, as the exact gate lets them run,
    /// on a CPU of which strangers have two thirds. Parts of what all achieved, after `until` ms of the clients' CPU time,
    /// where the window begins after `from`.
    fn parts(from: u64, until: u64, whole: bool) -> [f64; 3] {
        let mut ledger = Ledger::new(1);
        for share in [1, 2, 1] {
            ledger.join(Share::new(share).unwrap());
        }
        let clients = || (0..3).map(ClientId);
        let mut window = Window::new(Instant::ZERO);
        for ms in 0..until {
            let now = Instant(ms * 3 * MS);
            if ms == from {
                window.begin(&ledger, clients(), now);
            }
            ledger.charge([0, 1, 1, 2][(ms / 50 % 4) as usize], Nanos(MS));
            if ms % 200 == 199 {
                ledger.end_cycle();
                if whole {
                    window.follow(&ledger, now, |_| None);
                }
            }
        }
        let had: Vec<u64> = clients().map(|id| window.service(&ledger, id).0).collect();
        let all: u64 = had.iter().sum();
        [0, 1, 2].map(|i| had[i] as f64 / all as f64)
    }

    #[test]
    fn what_is_achieved_is_counted_in_whole_cycles() {
        // From the third client's turn to its turn: it has had one more than the others, if one counts so.
        let [_, _, third] = parts(150, 2200, false);
        assert!(third > 0.265, "{third}");
        for from in [0, 1, 50, 120, 150, 199, 200] {
            for until in [1000, 1050, 2150, 2200, 2399] {
                assert_eq!(parts(from, until, true), [0.25, 0.5, 0.25], "from {from} to {until}");
            }
        }
    }

    #[test]
    fn before_a_whole_cycle_it_is_what_was_used_since_the_change() {
        // 30 ms of the second client, 50 of the third, and the next cycle's 20 of the first; from its begin on, only those.
        assert_eq!(parts(120, 200, false), [0.0, 30.0 / 80.0, 50.0 / 80.0]);
        assert_eq!(parts(120, 199, true), [0.0, 30.0 / 79.0, 49.0 / 79.0]);
        assert_eq!(parts(120, 220, true), [1.0, 0.0, 0.0]);
    }

    /// Two clients at 1:3, of 40 and 120 ms of a cycle, both known to the exact gate. The second comes in the middle of a cycle, and
    /// has had so much before it is first held; while it still owes that, a share changes, which it was before.
    #[test]
    fn what_is_paid_back_was_had() {
        use divvy_policy::gate::{Exact, ExactParams, Scale};
        use divvy_policy::{Event, Policy as _};
        let [first, second] = [ClientId(0), ClientId(1)];
        for had in [0, 30, 180, 500] {
            let quantum = Nanos(40 * MS);
            let mut gate =
                Exact::new(ExactParams { quantum, scale: Scale::AsGiven, ..ExactParams::default() }).unwrap();
            let mut ledger = Ledger::new(1);
            let mut now = Instant(1);
            let mut window = Window::new(now);
            let join = |gate: &mut Exact, ledger: &mut Ledger, client, share, now| {
                let share = Share::new(share).unwrap();
                ledger.join(share);
                gate.on_event(now, Event::Join { client, share }).unwrap();
                gate.on_event(now, Event::Wake { client }).unwrap();
            };
            // Whoever is released has the CPU, until `until` ms, in steps of 1 ms.
            let mut running = None;
            let mut run =
                |gate: &mut Exact, ledger: &mut Ledger, window: &mut Window, now: &mut Instant, ms: u64| {
                    for _ in 0..ms {
                        while let Some(decision) = gate.poll_decision(*now) {
                            match decision {
                                divvy_policy::Gate::Release { client, .. } => running = Some(client),
                                divvy_policy::Gate::Measure { client } => {
                                    gate.on_event(*now, Event::Charge { client, used: Nanos::ZERO }).unwrap();
                                }
                                divvy_policy::Gate::Observe { client } => {
                                    gate.on_event(*now, Event::Wake { client }).unwrap();
                                }
                                divvy_policy::Gate::CycleEnd { .. } => ledger.end_cycle(),
                                divvy_policy::Gate::Hold { .. } | divvy_policy::Gate::Behind { .. } => {}
                            }
                        }
                        window.follow(ledger, *now, |id| gate.balance(id));
                        *now = *now + Nanos(MS);
                        if let Some(client) = running {
                            ledger.charge(client.index(), Nanos(MS));
                            gate.on_event(*now, Event::Charge { client, used: Nanos(MS) }).unwrap();
                        }
                    }
                };
            join(&mut gate, &mut ledger, first, 1, now);
            window.begin(&ledger, [first].into_iter(), now);
            run(&mut gate, &mut ledger, &mut window, &mut now, 500);
            join(&mut gate, &mut ledger, second, 3, now);
            window.begin(&ledger, [first, second].into_iter(), now);
            ledger.charge(1, Nanos(had * MS));
            gate.on_event(now, Event::Charge { client: second, used: Nanos(had * MS) }).unwrap();
            run(&mut gate, &mut ledger, &mut window, &mut now, 100);
            window.begin(&ledger, [first, second].into_iter(), now);
            run(&mut gate, &mut ledger, &mut window, &mut now, 16 * 160);
            let [a, b] = [first, second].map(|id| window.service(&ledger, id).0 as f64);
            assert!((b / (a + b) - 0.75).abs() < 0.002, "{had} ms before it was held: {a} and {b}");
        }
    }

    #[test]
    fn it_is_as_long_as_its_cycles() {
        let mut ledger = Ledger::new(1);
        ledger.join(Share::ONE);
        let at = |ms: u64| Instant(ms * MS);
        let mut window = Window::new(at(0));
        window.begin(&ledger, [ClientId(0)].into_iter(), at(100));
        assert_eq!(window.length(&ledger, at(130)).0, 30 * MS);
        for end in [200, 400, 600] {
            ledger.end_cycle();
            window.follow(&ledger, at(end), |_| None);
            window.follow(&ledger, at(end + 5), |_| None);
        }
        assert_eq!(window.length(&ledger, at(730)).0, 400 * MS);
    }
}
