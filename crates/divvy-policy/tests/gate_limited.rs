//! Limits around every gate: driven by hand, over a machine without latency, and by a hostile driver.

mod gate_common;

use divvy_policy::dispatch::stride::{Stride, StrideParams};
use divvy_policy::feasible::{Claim, water_fill_limited};
use divvy_policy::gate::limited::{GRAIN, WINDOW};
use divvy_policy::gate::{
    Alps, AlpsParams, AlpsVariant, Dispatched, DispatchedParams, Exact, ExactParams, Lag, Limited, Rate,
    RateParams, Scale,
};
use divvy_policy::{ClientId, CpuLimit, Event, EventError, Gate, Instant, Nanos, Policy, Share};
use gate_common::hostile::{op, survive};
use gate_common::{MS, World};
use proptest::prelude::*;

const QUANTUM: Nanos = Nanos::from_millis(10);
/// Every gate looks whether a sleeper has woken within so long, eight quanta.
const LOOKED_FOR: Nanos = Nanos::from_millis(80);

fn exact() -> Exact {
    Exact::new(ExactParams::default()).unwrap()
}

fn lag(cpus: u32) -> Lag {
    Lag::new(ExactParams { cpus, ..ExactParams::default() }).unwrap()
}

fn alps() -> Alps {
    let params = AlpsParams { quantum: QUANTUM, variant: AlpsVariant::OptimizedIo, scale: Scale::ByGcd };
    Alps::new(params).unwrap()
}

fn rate() -> Rate {
    Rate::new(RateParams { interval: QUANTUM, period: Nanos::from_secs(1) }).unwrap()
}

fn stride() -> Dispatched<Stride> {
    let policy = Stride::new(StrideParams { quantum: QUANTUM, ..StrideParams::default() }).unwrap();
    Dispatched::new(policy, DispatchedParams { quantum: QUANTUM, cpus: 1 }).unwrap()
}

fn limit(text: &str) -> CpuLimit {
    text.parse().unwrap()
}

/// Clients that compute, with shares and limits; no limit where that is empty.
fn world<G: Policy<Decision = Gate>>(gate: G, cpus: u32, clients: &[(u64, &str)]) -> World<Limited<G>> {
    let mut w = World::new(Limited::new(gate, cpus), u64::from(cpus));
    for &(share, text) in clients {
        let client = w.join(share);
        w.policy.set_limit(Instant(w.now), client, text.parse().ok()).unwrap();
    }
    w
}

fn parts(used: &[u64], wall: u64) -> Vec<f64> {
    used.iter().map(|&used| used as f64 / wall as f64).collect()
}

fn dues(clients: &[(u64, &str)], cpus: u32) -> Vec<f64> {
    let claim = |&(share, text): &(u64, &str)| {
        (Claim { share: Share::new(share).unwrap(), width: 1 }, text.parse().ok())
    };
    let claims: Vec<_> = clients.iter().map(claim).collect();
    water_fill_limited(&claims, cpus).iter().map(|due| due.as_f64()).collect()
}

#[test]
fn one_window_by_hand() {
    // Alone with 30 %: it runs for 30 ms, is held for 70, and runs again; nobody looks in between.
    let mut w = world(exact(), 1, &[(1, "30%")]);
    w.run_until(299 * MS);
    let moves: Vec<_> = w.moves().into_iter().filter(|(_, d)| !matches!(d, Gate::CycleEnd { .. })).collect();
    let client = ClientId(0);
    let on_cpu = |d: &Gate| matches!(d, Gate::Release { .. });
    let times: Vec<(u64, bool)> = moves.iter().map(|(at, d)| (at / MS, on_cpu(d))).collect();
    assert_eq!(times, [(0, true), (30, false), (100, true), (130, false), (200, true), (230, false)]);
    assert_eq!(w.used(), [90 * MS]);
    assert!(w.policy.is_at_limit(client));
}

/// With every gate the same: what is asked for is had, and what it leaves goes to the others.
#[test]
fn every_gate_keeps_limits() {
    /// Of one CPU.
    const MAX_ERROR: f64 = 0.02;
    fn check<G: Policy<Decision = Gate>>(name: &str, gate: G, cpus: u32, clients: &[(u64, &str)]) {
        let mut w = world(gate, cpus, clients);
        w.run_until(20_000 * MS);
        let got = parts(&w.used(), w.now);
        for ((got, due), client) in got.iter().zip(dues(clients, cpus)).zip(clients) {
            assert!((got - due).abs() <= MAX_ERROR, "{name}: {client:?} of {clients:?}: {got} for {due}");
        }
    }
    for clients in [
        &[(1, "50%")][..],
        &[(3, "30%"), (1, ""), (1, "")],
        &[(1, "10%"), (1, "20%"), (2, "30%")],
        &[(5, "50%"), (3, ""), (2, "5%")],
        &[(1, "1%"), (1, "")],
    ] {
        check("exact", exact(), 1, clients);
        check("stride", stride(), 1, clients);
    }
    // The published gates give a sleeper's time to the others late or not at all; here limits are all there is.
    check("alps", alps(), 1, &[(1, "50%")]);
    check("alps", alps(), 1, &[(1, "10%"), (2, "20%")]);
    check("rate", rate(), 1, &[(1, "50%")]);
    check("rate", rate(), 1, &[(1, "25%"), (1, "25%")]);
    for clients in [
        &[(1, "50%"), (1, "50%"), (1, "50%")][..],
        &[(3, "30%"), (1, ""), (1, "")],
        &[(1, "20%"), (2, ""), (2, ""), (2, "")],
    ] {
        check("lag", lag(2), 2, clients);
    }
}

#[test]
fn a_tree_on_two_cpus_has_one_and_a_half() {
    let mut w = world(lag(2), 2, &[(1, "1.5")]);
    let client = ClientId(0);
    w.event(Event::Width { client, cpus: 3 }).unwrap();
    w.poll();
    // Three threads on two CPUs use both: 150 ms are gone after 75.
    for window in 0..10 {
        let begin = window * 100 * MS;
        w.poll_at(begin);
        assert!(w.clients[0].released, "window {window}");
        let mut at = begin;
        while w.clients[0].released {
            let next = w.policy.poll_timeout().unwrap().0;
            w.give(0, 2 * (next - at));
            at = next;
            w.poll_at(at);
        }
        assert_eq!(at, begin + 75 * MS);
    }
    assert_eq!(w.used(), [1500 * MS]);
}

#[test]
fn a_debt_is_paid_from_the_next_windows() {
    let mut w = world(exact(), 1, &[(1, "20%")]);
    w.poll();
    // It is held 50 ms late: 70 of 20 ms. The debt of 50 is paid by two windows and half of the third.
    w.give(0, 70 * MS);
    w.poll_at(70 * MS);
    for (ms, released) in [(70, false), (100, false), (200, false), (299, false), (300, true)] {
        w.poll_at(ms * MS);
        assert_eq!(w.clients[0].released, released, "at {ms} ms");
    }
    w.give(0, 10 * MS);
    w.poll_at(310 * MS);
    assert!(w.policy.is_at_limit(ClientId(0)), "10 ms were left of four windows");
}

#[test]
fn unused_budgets_are_lost() {
    let mut w = world(exact(), 1, &[(1, "50%")]);
    w.event(Event::Block { client: ClientId(0) }).unwrap();
    w.poll_at(10_000 * MS);
    w.event(Event::Wake { client: ClientId(0) }).unwrap();
    w.poll();
    w.run_until(10_100 * MS);
    assert!((50 * MS..=50 * MS + GRAIN.0).contains(&w.used()[0]), "{:?}", w.used());
}

/// Where all are at their limits nobody is looked after until the next window.
#[test]
fn whoever_is_alone_is_looked_at_twice_a_window() {
    let mut w = world(exact(), 1, &[(1, "30%")]);
    w.run_until(40 * MS);
    assert_eq!(w.policy.poll_timeout(), Some(Instant(100 * MS)));
    // Half of a window, half of a budget.
    let other = w.join(1);
    w.run_until(50 * MS);
    w.policy.set_limit(Instant(w.now), other, Some(limit("20%"))).unwrap();
    let before = w.used()[1];
    w.run_until(100 * MS - 1);
    assert_eq!(w.used()[1] - before, 10 * MS);
    assert_eq!(w.policy.poll_timeout(), Some(Instant(100 * MS)));
}

#[test]
fn a_changed_limit_counts_what_was_used() {
    let mut w = world(exact(), 1, &[(1, "20%")]);
    w.run_until(50 * MS);
    assert_eq!((w.used()[0], w.policy.is_at_limit(ClientId(0))), (20 * MS, true));
    // 30 ms more in this window.
    w.policy.set_limit(Instant(w.now), ClientId(0), Some(limit("50%"))).unwrap();
    w.run_until(99 * MS);
    assert_eq!((w.used()[0], w.policy.is_at_limit(ClientId(0))), (50 * MS, true));
    w.policy.set_limit(Instant(w.now), ClientId(0), None).unwrap();
    w.run_until(199 * MS);
    assert_eq!((w.used()[0], w.policy.limit(ClientId(0))), (150 * MS, None));
    let unknown = w.policy.set_limit(Instant(w.now), ClientId(7), Some(limit("50%")));
    assert_eq!(unknown, Err(EventError::UnknownClient(ClientId(7))));
}

/// A client that its driver said to sleep while it was held (a pause) stays a sleeper to the gate until it is looked at.
#[test]
fn sleepers_and_pauses_are_not_woken_by_a_window() {
    let mut w = world(exact(), 1, &[(1, "20%"), (1, "")]);
    w.run_until(60 * MS);
    assert!(w.policy.is_at_limit(ClientId(0)));
    w.event(Event::Block { client: ClientId(0) }).unwrap();
    w.clients[0].asleep_until = Some(u64::MAX);
    w.log.clear();
    w.run_until(150 * MS);
    assert!(w.log.contains(&(100 * MS, Gate::Observe { client: ClientId(0) })), "{:?}", w.log);
    let other = w.used()[1];
    w.run_until(1150 * MS);
    assert_eq!(w.used()[1] - other, 1000 * MS, "the other has all that a sleeper leaves");
}

/// A share, a limit, and for how long it runs and sleeps, in ms.
type Load = (u64, Option<CpuLimit>, Option<(u64, u64)>);

fn any_limit() -> impl Strategy<Value = Option<CpuLimit>> {
    prop::option::of((1u64..=150).prop_map(|percent| CpuLimit::new(percent * 10_000).unwrap()))
}

/// Runs a random load under `gate` and checks every limit at every window's end.
fn check_limits<G: Policy<Decision = Gate>>(
    gate: G,
    cpus: u32,
    clients: &[Load],
) -> Result<(), TestCaseError> {
    let mut w = World::new(Limited::new(gate, cpus), u64::from(cpus));
    for &(share, limit, sleeps) in clients {
        let client = match sleeps {
            Some((on, off)) => w.join_sleeper(share, on * MS, off * MS),
            None => w.join(share),
        };
        w.policy.set_limit(Instant(w.now), client, limit).unwrap();
    }
    for window in (1..=30u64).chain([100]) {
        w.run_until(window * WINDOW.0);
        for (i, &(_, limit, sleeps)) in clients.iter().enumerate() {
            let Some(limit) = limit else { continue };
            let budget = u128::from(limit.ppm()) * u128::from(window) * u128::from(WINDOW.0) / 1_000_000;
            // A grain may be measured in vain, and another before a gate holds. This driver is never late, but does not tell when somebody wakes: the gate within looks for that. What
            // was too much by then is a debt: it does not add up.
            let late = if sleeps.is_some() { LOOKED_FOR } else { Nanos::ZERO };
            let most = budget + u128::from((GRAIN + GRAIN + late).0);
            let used = u128::from(w.used()[i]);
            prop_assert!(used <= most, "client {} used {} of {} ns in {} windows", i, used, most, window);
        }
    }
    Ok(())
}

fn loads() -> impl Strategy<Value = Vec<Load>> {
    prop::collection::vec((1u64..10, any_limit(), prop::option::of((1u64..60, 1u64..60))), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn use_stays_within_the_limit(loads in loads(), cpus in 2u32..4) {
        check_limits(exact(), 1, &loads)?;
        check_limits(alps(), 1, &loads)?;
        check_limits(stride(), 1, &loads)?;
        check_limits(rate(), 1, &loads)?;
        check_limits(lag(cpus), cpus, &loads)?;
    }

    /// Clients that compute, some with limits, on one CPU: those without get what is left by their shares; those with a limit
    /// have what water-filling gives them, but for what they forfeit as sleepers whose share is little more than the limit.
    #[test]
    fn the_others_get_what_is_left_by_share(
        clients in prop::collection::vec((1u64..6, any_limit()), 2..6),
    ) {
        /// Of what each without a limit has for each share, over 20 s: a cycle of the longest is 250 ms.
        const MAX_DISPROPORTION: f64 = 0.03;
        /// Of one CPU.
        const MAX_ERROR: f64 = 0.1;
        let mut w = World::new(Limited::new(exact(), 1), 1);
        let mut claims = Vec::new();
        for &(share, limit) in &clients {
            let client = w.join(share);
            w.policy.set_limit(Instant(w.now), client, limit).unwrap();
            claims.push((Claim { share: Share::new(share).unwrap(), width: 1 }, limit));
        }
        w.run_until(20_000 * MS);
        let got = parts(&w.used(), w.now);
        for (got, due) in got.iter().zip(water_fill_limited(&claims, 1)) {
            prop_assert!((got - due.as_f64()).abs() <= MAX_ERROR, "{:?}: {} for {}", clients, got, due.as_f64());
        }
        let free = got.iter().zip(&clients).filter(|(_, (_, limit))| limit.is_none());
        let rates: Vec<f64> = free.map(|(got, &(share, _))| got / share as f64).collect();
        for pair in rates.windows(2) {
            prop_assert!((pair[0] / pair[1] - 1.0).abs() <= MAX_DISPROPORTION, "{:?}: {:?}", clients, rates);
        }
    }

    /// Byte for byte: what is decided, when, and when to be called again.
    #[test]
    fn no_limit_decides_the_same(loads in loads(), cpus in 2u32..4) {
        fn logs<G: Policy<Decision = Gate>>(gate: G, cpus: u32, loads: &[Load]) -> Vec<(u64, Gate)> {
            let mut w = World::new(gate, u64::from(cpus));
            for &(share, _, sleeps) in loads {
                match sleeps {
                    Some((on, off)) => w.join_sleeper(share, on * MS, off * MS),
                    None => w.join(share),
                };
            }
            w.run_until(1500 * MS);
            w.leave(ClientId(0));
            w.run_until(2000 * MS);
            w.log
        }
        prop_assert_eq!(logs(exact(), 1, &loads), logs(Limited::new(exact(), 1), 1, &loads));
        prop_assert_eq!(logs(alps(), 1, &loads), logs(Limited::new(alps(), 1), 1, &loads));
        prop_assert_eq!(logs(rate(), 1, &loads), logs(Limited::new(rate(), 1), 1, &loads));
        prop_assert_eq!(logs(stride(), 1, &loads), logs(Limited::new(stride(), 1), 1, &loads));
        prop_assert_eq!(logs(lag(cpus), cpus, &loads), logs(Limited::new(lag(cpus), cpus), cpus, &loads));
    }

    #[test]
    fn a_hostile_driver_is_survived(
        ops in prop::collection::vec(op(u64::MAX), 0..80),
        limits in prop::collection::vec(any_limit(), 8),
    ) {
        survive(Limiting { gate: Limited::new(exact(), 1), limits: limits.clone() }, &ops)?;
        survive(Limiting { gate: Limited::new(lag(2), 2), limits }, &ops)?;
    }
}

/// Gives each client its limit when it joins.
struct Limiting<G> {
    gate: Limited<G>,
    limits: Vec<Option<CpuLimit>>,
}

impl<G: Policy<Decision = Gate>> Policy for Limiting<G> {
    type Decision = Gate;

    fn on_event(&mut self, now: Instant, event: Event) -> Result<(), EventError> {
        self.gate.on_event(now, event)?;
        if let Event::Join { client, .. } = event {
            self.gate.set_limit(now, client, self.limits[client.index()])?;
        }
        Ok(())
    }

    fn poll_decision(&mut self, now: Instant) -> Option<Gate> {
        self.gate.poll_decision(now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.gate.poll_timeout()
    }
}
