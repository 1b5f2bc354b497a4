//! The exact gate, driven by hand and over a machine without latency.

mod gate_common;

use divvy_policy::gate::{Exact, ExactParams, Scale};
use divvy_policy::{ClientId, CpuId, Event, EventError, Gate, Instant, Nanos, Policy as _, Share};
use gate_common::changes::{self, turn};
use gate_common::hostile::{op, survive};
use gate_common::{Charges, MS, World};
use proptest::prelude::*;

fn exact() -> Exact {
    Exact::new(ExactParams::default()).unwrap()
}

fn sliced(ms: u64) -> Exact {
    Exact::new(ExactParams { slice: Some(Nanos::from_millis(ms)), ..ExactParams::default() }).unwrap()
}

fn world(policy: Exact, shares: &[u64]) -> World<Exact> {
    let mut w = World::new(policy, 1);
    for &share in shares {
        w.join(share);
    }
    w
}

/// Joining and leaving in the middle, sleepers among them, for whatever compares two runs.
fn busy_run(w: &mut World<Exact>, scale: u64) {
    w.join(scale);
    w.join_sleeper(2 * scale, 2 * MS, 2 * MS);
    let leaver = w.join(3 * scale);
    w.run_until(200 * MS);
    w.join(2 * scale);
    w.run_until(333 * MS);
    w.leave(leaver);
    w.join_sleeper(scale, 80 * MS, 240 * MS);
    w.run_until(1000 * MS);
}

#[test]
fn one_cycle_by_hand() {
    let mut w = world(exact(), &[1, 2]);
    // Quotas 10 and 20 ms. A runs alone first, looked at after Q/2 and when it could be through.
    w.run_until(10 * MS - 1);
    assert_eq!(w.released(), [0]);
    w.run_until(10 * MS);
    assert_eq!(w.released(), [1]);
    w.run_until(30 * MS);
    assert_eq!((w.used(), w.released()), (vec![10 * MS, 20 * MS], vec![0]));
    assert_eq!(w.cycles(), 1);
}

/// Who wakes when it asked for ends turns within 20 us: it is asked to look once more shortly before the end, of whoever had all of the time.
#[test]
fn turns_end_exactly_where_wake_ups_are_punctual() {
    const US: u64 = 1_000;
    for (punctual, short, alone, over) in [
        (true, 80, true, false),
        (true, 15, true, true),
        // It had 5 ms of 8: somebody else is there, and what is missing can wait.
        (true, 80, false, true),
        (false, 80, true, true),
        (false, 15, true, true),
    ] {
        let mut w = world(exact(), &[1, 1]);
        w.policy.set_punctual(punctual);
        w.poll();
        w.give(0, 5 * MS);
        w.poll_at(5 * MS);
        w.give(0, 5 * MS - short * US);
        w.poll_at(10 * MS + if alone { 0 } else { 3 * MS });
        assert_eq!(w.released(), [u32::from(over)], "{punctual}, {short} us are left, {alone}");
        if !over {
            assert_eq!(w.policy.poll_timeout(), Some(Instant(10 * MS + short * US)));
            w.give(0, short * US + 10 * US);
            w.poll_at(10 * MS + short * US + 10 * US);
            assert_eq!(w.released(), [1]);
        }
    }
}

#[test]
fn several_cpus_are_refused() {
    let error = Exact::new(ExactParams { cpus: 2, ..ExactParams::default() }).unwrap_err();
    assert_eq!(error.to_string(), "2 CPUs: the exact gate divides one, the gate by lag several");
}

#[test]
fn the_account_depends_only_on_the_total() {
    let runs = [Charges::Whole, Charges::Split].map(|charges| {
        let mut w = World::new(exact(), 1);
        w.charges = charges;
        busy_run(&mut w, 1);
        w
    });
    assert_eq!(runs[0].moves(), runs[1].moves());
    assert_eq!(runs[0].used(), runs[1].used());
}

#[test]
fn scaled_shares_decide_the_same() {
    let logs = [1, 10, 1_000_000].map(|scale| {
        let mut w = World::new(exact(), 1);
        busy_run(&mut w, scale);
        w.log
    });
    assert!(logs[0].len() > 100);
    assert_eq!(logs[0], logs[1]);
    assert_eq!(logs[0], logs[2]);
    // As given, the same shares make longer cycles.
    let params = ExactParams { scale: Scale::AsGiven, ..ExactParams::default() };
    let mut w = world(Exact::new(params).unwrap(), &[10, 20]);
    w.run_until(299 * MS);
    assert_eq!(w.cycles(), 0);
    w.run_until(301 * MS);
    assert_eq!(w.cycles(), 1);
}

/// Shares of 10 ns each: 20, 59.99 and 120.01 ms of a cycle of 200 ms, which no quantum of a ms could tell apart.
#[test]
fn a_share_may_be_a_time() {
    let params = ExactParams { share_time: Some(Nanos(10)), ..ExactParams::default() };
    let shares = [2_000_000, 5_999_000, 12_001_000];
    let mut w = world(Exact::new(params).unwrap(), &shares);
    w.run_until(20_000 * MS);
    for (used, share) in w.used().into_iter().zip(shares) {
        let due = share * 10 * 100;
        assert!(used.abs_diff(due) <= 3 * MS, "{used} of {due}");
    }
    for time in [0, 10_000_000_001] {
        let params = ExactParams { share_time: Some(Nanos(time)), ..ExactParams::default() };
        assert!(Exact::new(params).unwrap_err().to_string().contains("outside 1 ns to 10 s"));
    }
}

/// Quotas of 10, 60 and 150 us, none of them worth a hand-over, or hardly: they are collected, and nobody starves.
#[test]
fn less_than_a_grain_is_collected() {
    let params = ExactParams { share_time: Some(Nanos(1)), ..ExactParams::default() };
    let shares = [10_000, 60_000, 150_000, 20_000_000];
    let mut w = world(Exact::new(params).unwrap(), &shares);
    w.run_until(60_000 * MS);
    let (used, sum) = (w.used(), shares.iter().sum::<u64>());
    for (used, share) in used.into_iter().zip(shares) {
        let due = 60_000 * MS as u128 * u128::from(share) / u128::from(sum);
        let error = used.abs_diff(due as u64);
        assert!(error <= 300_000 + 2 * share, "{used} of {due}");
    }
}

#[test]
fn a_rejected_event_changes_nothing() {
    let mut w = world(exact(), &[1, 2, 3, 4]);
    w.run_until(25 * MS);
    w.leave(ClientId(1));
    let client = ClientId(0);
    let (gone, unknown) = (ClientId(1), ClientId(77));
    let share = Share::ONE;
    let rejected = [
        (Event::Join { client, share }, EventError::DuplicateClient(client)),
        (Event::Join { client: gone, share }, EventError::DuplicateClient(gone)),
        (Event::Leave { client: gone }, EventError::UnknownClient(gone)),
        (Event::Reshare { client: unknown, share }, EventError::UnknownClient(unknown)),
        (Event::Wake { client: gone }, EventError::UnknownClient(gone)),
        (Event::Block { client: unknown }, EventError::UnknownClient(unknown)),
        (Event::Charge { client: gone, used: Nanos(1) }, EventError::UnknownClient(gone)),
        (Event::Width { client: gone, cpus: 1 }, EventError::UnknownClient(gone)),
        (Event::Width { client, cpus: 0 }, EventError::ZeroWidth(client)),
        (Event::Free { cpu: CpuId(0) }, EventError::UnknownCpu(CpuId(0))),
    ];
    for (event, error) in rejected {
        let before = format!("{:?}", w.policy);
        assert_eq!(w.event(event), Err(error));
        assert_eq!(format!("{:?}", w.policy), before, "{event:?}");
    }
}

#[test]
fn leaving_and_rejoining_earns_nothing() {
    // One of two equal clients leaves whenever it has had its quota, and joins anew at once.
    let mut w = world(exact(), &[1, 1]);
    let mut trickster = ClientId(1);
    let mut total = 0;
    while w.now < 2000 * MS {
        w.run_until(w.now + MS);
        if w.clients[trickster.index()].used >= 10 * MS {
            total += w.clients[trickster.index()].used;
            w.leave(trickster);
            trickster = w.join(1);
        }
    }
    total += w.clients[trickster.index()].used;
    let honest = w.used()[0];
    // It has no more than the honest one, but for the cycle under way.
    assert!(total <= honest + 10 * MS, "{total} against {honest}");
    assert!(total + honest == 2000 * MS, "and no CPU time is lost");
}

#[test]
fn a_newcomer_runs_in_the_next_cycle() {
    let mut w = world(exact(), &[1, 1]);
    w.run_until(5 * MS);
    w.join(1);
    w.run_until(20 * MS); // The cycle of the first two.
    assert_eq!(w.used(), [10 * MS, 10 * MS, 0]);
    w.run_until(50 * MS);
    assert_eq!(w.used(), [20 * MS, 20 * MS, 10 * MS]);
}

#[test]
fn a_change_of_unit_waits_for_the_next_cycle() {
    // Shares 10 and 20 have quotas of 1 and 2 quanta. A third of 15 makes the unit 5: 2, 4 and 3.
    let mut w = world(exact(), &[10, 20]);
    w.run_until(5 * MS);
    w.join(15);
    w.run_until(30 * MS);
    assert_eq!(w.used(), [10 * MS, 20 * MS, 0]);
    w.run_until((30 + 90) * MS);
    assert_eq!(w.used(), [30 * MS, 60 * MS, 30 * MS]);
    w.event(Event::Reshare { client: ClientId(0), share: Share::new(15).unwrap() }).unwrap();
    let before = w.used();
    // 15, 20, 15 in units of 5: 3, 4, 3. It has 2 quanta left by its old share: the next cycle, 100 ms, is by the new.
    w.run_until((120 + 90 + 100) * MS);
    let got: Vec<u64> = w.used().iter().zip(&before).map(|(a, b)| a - b).collect();
    assert_eq!(got, [(20 + 30) * MS, (40 + 40) * MS, (30 + 30) * MS]);
}

#[test]
fn debts_of_hours_are_repaid_in_one_call() {
    let mut w = world(exact(), &[1, 3]);
    w.run_until(5 * MS);
    // Each is found to have used an hour more for each of its shares; nobody waits for hours.
    for (client, hours) in [(ClientId(0), 1), (ClientId(1), 3)] {
        w.event(Event::Charge { client, used: Nanos::from_secs(3600 * hours) }).unwrap();
    }
    w.run_until(10 * MS);
    assert_eq!(w.released().len(), 1);
    let before = w.used();
    w.run_until(4010 * MS);
    let got: Vec<u64> = w.used().iter().zip(&before).map(|(a, b)| a - b).collect();
    assert!(got[0].abs_diff(1000 * MS) <= 30 * MS, "{got:?}");
}

#[test]
fn as_many_are_released_as_the_presence_says() {
    let params = ExactParams { presence: 3, ..ExactParams::default() };
    let mut w = world(Exact::new(params).unwrap(), &[1; 9]);
    w.run_until(5 * MS);
    assert_eq!(w.released().len(), 3);
    w.run_until(600 * MS);
    let used = w.used();
    assert!(used.iter().all(|&u| u.abs_diff(600 * MS / 9) <= 10 * MS), "{used:?}");
}

#[test]
fn slices_even_out_the_cycle() {
    // Of a cycle of 1:2:3 the first has its 10 ms at once without slices; with slices of 2 ms, spread over it.
    let mut w = world(sliced(2), &[1, 2, 3]);
    w.run_until(60 * MS);
    for half in 1..6 {
        w.run_until((60 + half * 10) * MS);
        for (used, share) in w.used().into_iter().zip(1..) {
            let due = (60 + half * 10) * MS * share / 6;
            assert!(used.abs_diff(due) <= 3 * MS, "{used} of {due} after {half} sixths");
        }
    }
    w.run_until(600 * MS);
    for (used, share) in w.used().into_iter().zip(1..) {
        assert!(used.abs_diff(100 * MS * share) <= 3 * MS);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn nobody_waits_for_ever(
        shares in prop::collection::vec(1_u64..10, 2..6), slice in prop::option::of(1u64..30),
        turns in prop::collection::vec(turn(1), 1..40),
    ) {
        let slice = slice.map(Nanos::from_millis);
        let gate = Exact::new(ExactParams { slice, ..ExactParams::default() }).unwrap();
        changes::nobody_waits(world(gate, &shares), &shares, turns)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the shares, the CPU does not idle, and nobody is more than a cycle ahead.
    #[test]
    fn the_cpu_is_busy_and_shares_are_met(
        shares in prop::collection::vec(1u64..20, 1..12), slice in prop::option::of(1u64..20),
    ) {
        let params = ExactParams { slice: slice.map(Nanos::from_millis), ..ExactParams::default() };
        let mut w = world(Exact::new(params).unwrap(), &shares);
        w.run_until(20_000 * MS);
        prop_assert_eq!(w.used().iter().sum::<u64>(), 20_000 * MS);
        let sum = shares.iter().sum::<u64>();
        for (used, share) in w.used().into_iter().zip(shares) {
            let due = 20_000 * MS * share / sum;
            prop_assert!(used.abs_diff(due) <= sum * 10 * MS, "{} of {}", used, due);
        }
    }
}

/// Of a look of 80 us that a client spent half beside somebody else nothing tells that it runs all the time: its turn ends.
#[test]
fn a_short_look_that_brought_little_is_the_last() {
    for (got, over) in [(10_000, true), (50_000, false)] {
        let mut w = world(exact(), &[1, 1]);
        w.policy.set_punctual(true);
        w.poll();
        w.give(0, 10 * MS - 80_000);
        w.poll_at(10 * MS);
        w.give(0, got);
        w.poll_at(10 * MS + 80_000);
        assert_eq!(w.released(), [u32::from(over)], "{got} of 80000 ns");
    }
}

/// Where wake-ups may come late, what hand-overs took lately is waited for; else a look more is closer than that, also where the last look of
/// the turn before brought little.
#[test]
fn hand_overs_are_waited_for_where_wake_ups_may_be_late() {
    for (punctual, again, least, most) in
        [(false, 0, 50_000, 120_000), (true, 0, 0, 20_000), (true, 40_000, 0, 45_000)]
    {
        let mut w = world(exact(), &[1, 1]);
        w.policy.set_punctual(punctual);
        w.ways = [60_000, again];
        w.run_until(600 * MS);
        let turns = w.log.windows(2).filter_map(|two| match *two {
            [(at, Gate::Release { client: one, .. }), (then, Gate::Measure { client })] if one == client => {
                Some(then - at)
            }
            _ => None,
        });
        // Its tick is longer than a turn once it is known to compute, and what hand-overs take is known after some.
        let turns: Vec<u64> = turns.skip(20).collect();
        assert!(turns.len() > 30, "{} turns", turns.len());
        for first in turns {
            let due = 10 * MS + least..=10 * MS + most;
            assert!(due.contains(&first), "punctual: {punctual}, {again}: {first} ns");
        }
    }
}

/// Where others have what a head leaves, and while it is asleep, looks are far apart: its turn ends with 100 us left.
#[test]
fn turns_end_as_before_where_looks_are_far_apart() {
    for leftovers in [false, true] {
        let mut w = world(exact(), &[1, 1]);
        w.policy.set_punctual(true);
        w.policy.set_leftovers(leftovers);
        w.poll();
        w.give(0, 10 * MS - 80_000);
        w.poll_at(10 * MS);
        assert_eq!(w.released(), [u32::from(leftovers)], "{leftovers}");
    }
    let mut w = world(exact(), &[1, 1]);
    w.policy.set_punctual(true);
    w.poll();
    w.give(0, 10 * MS - 80_000);
    w.clients[0].asleep_until = Some(30 * MS);
    w.event(Event::Block { client: ClientId(0) }).unwrap();
    w.poll_at(10 * MS);
    assert_eq!(w.released(), [1], "it is through, and is not waited for");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// At each cycle's end everybody has had what it was due of all cycles, but for 20 us, and for how late it was looked at: a look more for
    /// each turn, though the way from one client to the next is not the same each time.
    #[test]
    fn punctual_turns_end_with_little_left(
        shares in prop::collection::vec(1u64..20, 2..8), late in 0u64..50_000, way in 25_000u64..90_000,
    ) {
        let params = ExactParams { scale: Scale::AsGiven, ..ExactParams::default() };
        let mut looks = Vec::new();
        for (punctual, most_over, most_left) in [(false, 100_000, 100_000), (true, 0, 20_000)] {
            let mut w = world(Exact::new(params).unwrap(), &shares);
            w.policy.set_punctual(punctual);
            w.poll();
            w.late = late;
            let mut ended = 0;
            while ended < 40 {
                // What is in the caches takes less.
                w.ways = [way + if w.reads.is_multiple_of(3) { 40_000 } else { 0 }, 5_000];
                w.run_until(w.policy.poll_timeout().unwrap().0 + late);
                if w.cycles() == ended {
                    continue;
                }
                ended = w.cycles();
                for (used, share) in w.used().into_iter().zip(&shares) {
                    let missing = (share * 10 * MS * ended) as i64 - used as i64;
                    prop_assert!((-(late as i64) - most_over..=most_left).contains(&missing), "{} of cycle {}", missing, ended);
                }
            }
            looks.push(w.reads);
        }
        prop_assert!(looks[1] <= looks[0] + 2 * 40 * shares.len() as u64, "{:?}", looks);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_sequence_of_events_is_survived(
        ops in prop::collection::vec(op(u64::MAX), 0..80), long in any::<bool>(), presence in 1u32..4,
        slice in prop::option::of(1u64..30), scale in any::<bool>(), share_time in prop::option::of(1u64..1_000_000),
        cycle_max in prop::option::of(1u64..1_000),
    ) {
        use divvy_policy::gate::{Alps, AlpsParams, AlpsVariant, QUANTUM_MAX, QUANTUM_MIN, Rate, RateParams};
        let quantum = if long { QUANTUM_MAX } else { QUANTUM_MIN };
        let scale = if scale { Scale::ByGcd } else { Scale::AsGiven };
        let (slice, share_time) = (slice.map(Nanos::from_millis), share_time.map(Nanos));
        let cycle_max = cycle_max.map(Nanos::from_millis);
        survive(Exact::new(ExactParams { quantum, cpus: 1, scale, slice, presence, share_time, cycle_max }).unwrap(), &ops)?;
        for variant in [AlpsVariant::Basic, AlpsVariant::Optimized, AlpsVariant::OptimizedIo] {
            survive(Alps::new(AlpsParams { quantum, variant, scale }).unwrap(), &ops)?;
        }
        survive(Rate::new(RateParams { interval: quantum, period: Nanos(quantum.0 * 10) }).unwrap(), &ops)?;
    }
}

#[test]
fn a_cycle_of_odd_shares_is_bounded() {
    // 997 and 1009 have no common divisor: at 10 ms a share a cycle would take 20 s.
    let params = ExactParams { cycle_max: Some(Nanos::from_secs(1)), ..ExactParams::default() };
    let mut gate = Exact::new(params).unwrap();
    let mut ends = Vec::new();
    let (mut now, mut used, mut runs) = (Instant(1), [0_u64; 2], None);
    for (client, share) in [(0, 997), (1, 1009)] {
        let client = ClientId(client);
        gate.on_event(now, Event::Join { client, share: Share::new(share).unwrap() }).unwrap();
        gate.on_event(now, Event::Wake { client }).unwrap();
    }
    let mut told = [0_u64; 2];
    while now < Instant(10_000_000_000) {
        while let Some(decision) = gate.poll_decision(now) {
            match decision {
                Gate::Release { client, .. } => runs = Some(client.index()),
                Gate::Hold { client } if runs == Some(client.index()) => runs = None,
                Gate::Measure { client } => {
                    let i = client.index();
                    let ns = used[i] - std::mem::replace(&mut told[i], used[i]);
                    gate.on_event(now, Event::Charge { client, used: Nanos(ns) }).unwrap();
                }
                Gate::CycleEnd { .. } => ends.push((now, used)),
                _ => {}
            }
        }
        let next = gate.poll_timeout().expect("somebody runs");
        if let Some(i) = runs {
            used[i] += next.since(now).0;
        }
        now = next;
    }
    assert!(ends.len() >= 8, "{} cycles in 10 s", ends.len());
    for pair in ends.windows(2) {
        let cycle = pair[1].0.since(pair[0].0);
        assert!(cycle <= Nanos::from_millis(1001), "{cycle:?}");
        let got = [0, 1].map(|i| (pair[1].1[i] - pair[0].1[i]) as f64);
        let error = got[0] / (got[0] + got[1]) * 2006.0 / 997.0 - 1.0;
        assert!(error.abs() < 1e-3, "{got:?}");
    }
}

#[test]
fn debts_of_centuries_come_to_an_end() {
    // At a nanosecond a cycle no number of cycles that fits a counter repays them.
    let mut gate = Exact::new(ExactParams { share_time: Some(Nanos(1)), ..ExactParams::default() }).unwrap();
    let client = ClientId(0);
    gate.on_event(Instant(1), Event::Join { client, share: Share::new(1).unwrap() }).unwrap();
    gate.on_event(Instant(1), Event::Wake { client }).unwrap();
    for _ in 0..3 {
        gate.on_event(Instant(1), Event::Charge { client, used: Nanos::MAX }).unwrap();
    }
    let decided = (0..100).find(|_| gate.poll_decision(Instant(1)).is_none());
    assert!(decided.is_some(), "it decides for ever");
}

/// Tells `policy` what it asks for, every clock standing at what `used` says; what else it decided.
fn answer(policy: &mut Exact, now: u64, mut used: impl FnMut(ClientId) -> u64) -> Vec<Gate> {
    let now = Instant(now);
    let mut decided = Vec::new();
    while let Some(decision) = policy.poll_decision(now) {
        match decision {
            Gate::Measure { client } => {
                let used = Nanos(used(client));
                policy.on_event(now, Event::Charge { client, used }).unwrap();
            }
            Gate::Observe { client } => policy.on_event(now, Event::Wake { client }).unwrap(),
            decision => decided.push(decision),
        }
    }
    decided
}

/// A gate of clients with these shares, who have just woken.
fn awake(clients: &[(ClientId, u64)]) -> Exact {
    let mut policy = exact();
    for &(client, share) in clients {
        policy.on_event(Instant(0), Event::Join { client, share: Share::new(share).unwrap() }).unwrap();
        policy.on_event(Instant(0), Event::Wake { client }).unwrap();
    }
    policy
}

#[test]
fn who_is_told_to_wake_takes_the_cpu() {
    let (a, b) = (ClientId(0), ClientId(1));
    let mut policy = awake(&[(a, 3), (b, 1)]);
    assert_eq!(answer(&mut policy, 0, |_| 0), [Gate::Release { client: a, cpu: None }]);
    // It falls asleep after 2 ms, which the driver tells: nobody has to look, and the CPU does not idle.
    let t = 2 * MS;
    policy.on_event(Instant(t), Event::Charge { client: a, used: Nanos(2 * MS) }).unwrap();
    policy.on_event(Instant(t), Event::Block { client: a }).unwrap();
    assert_eq!(answer(&mut policy, t, |_| 0), [Gate::Release { client: b, cpu: None }]);
    // It wakes after 3 ms more, and does not share the CPU with whoever computes.
    let t = 5 * MS;
    policy.on_event(Instant(t), Event::Wake { client: a }).unwrap();
    let used = |client| if client == b { 3 * MS } else { 0 };
    assert_eq!(answer(&mut policy, t, used), [Gate::Hold { client: b }]);
    // The quota of 30 ms is used in turns of a little over 4 ms while both want the CPU: then it is the other's turn.
    let turn = 30 * MS / 7;
    let due = policy.poll_timeout().unwrap();
    assert_eq!(due, Instant(t + turn));
    let decided = answer(&mut policy, due.0, |client| if client == a { turn } else { 0 });
    let turns = [Gate::Hold { client: a }, Gate::Release { client: b, cpu: None }];
    assert_eq!(decided, turns);
}

/// Also where a look finds, before that is told, that somebody has woken. Beside a client that naps for 2 ms the first of two that compute
/// was held 13 times in a cycle so, and looked at once: it had 26 of 10 ms.
#[test]
fn who_gives_the_cpu_up_is_looked_at_first() {
    let (naps, computes) = (ClientId(0), ClientId(1));
    let mut policy = awake(&[(naps, 3), (computes, 1)]);
    assert_eq!(answer(&mut policy, 0, |_| 0), [Gate::Release { client: naps, cpu: None }]);
    let slept = 2 * MS;
    policy.on_event(Instant(slept), Event::Charge { client: naps, used: Nanos(slept) }).unwrap();
    policy.on_event(Instant(slept), Event::Block { client: naps }).unwrap();
    assert_eq!(answer(&mut policy, slept, |_| 0), [Gate::Release { client: computes, cpu: None }]);
    let look = policy.poll_timeout().unwrap().0;
    assert!(look < slept + 10 * MS, "whether it sleeps is looked at before the other is through");
    let mut asked = Vec::new();
    let decided = answer(&mut policy, look, |client| {
        asked.push(client);
        (look - slept) / 2
    });
    assert_eq!(decided, [Gate::Hold { client: computes }]);
    assert_eq!(asked, [naps, computes]);
    assert_eq!(policy.balance(computes), Some(-i128::from((look - slept) / 2)), "it is charged");
}

/// A sleeper that wakes for less than it takes to tell, beside one that computes, both of whose looks may be due at once.
#[test]
fn who_sleeps_again_by_the_time_it_is_told_takes_no_cpu() {
    let (naps, computes) = (ClientId(0), ClientId(1));
    for (sleeps_again, due) in [(true, false), (false, false), (false, true)] {
        let mut policy = awake(&[(naps, 1), (computes, 1)]);
        answer(&mut policy, 0, |_| 0);
        policy.on_event(Instant(MS), Event::Charge { client: naps, used: Nanos(MS) }).unwrap();
        policy.on_event(Instant(MS), Event::Block { client: naps }).unwrap();
        assert_eq!(answer(&mut policy, MS, |_| 0), [Gate::Release { client: computes, cpu: None }]);
        let now = if due { 6 * MS } else { MS + MS / 10 };
        if !due {
            policy.on_event(Instant(now), Event::Wake { client: naps }).unwrap();
        }
        if sleeps_again {
            policy.on_event(Instant(now), Event::Block { client: naps }).unwrap();
        }
        let mut asked = 0;
        let decided = answer(&mut policy, now, |client| {
            asked += u32::from(client == computes);
            // It is known to compute without a look at its state.
            (now - MS) / 50 * if client == computes { 49 } else { 1 }
        });
        let gives_up = [Gate::Hold { client: computes }];
        assert_eq!(decided, if sleeps_again { &[][..] } else { &gives_up }, "{sleeps_again}, {due}");
        assert_eq!(asked, 1, "{sleeps_again}, {due}");
    }
}

#[test]
fn turns_are_whole_again_when_who_woke_has_left() {
    let (a, b, c) = (ClientId(0), ClientId(1), ClientId(2));
    let mut policy = awake(&[(a, 3), (b, 1), (c, 1)]);
    assert_eq!(answer(&mut policy, 0, |_| 0), [Gate::Release { client: a, cpu: None }]);
    policy.on_event(Instant(MS), Event::Charge { client: a, used: Nanos(MS) }).unwrap();
    policy.on_event(Instant(MS), Event::Block { client: a }).unwrap();
    let taken = answer(&mut policy, MS, |_| 0);
    let [Gate::Release { client: head, .. }] = taken[..] else { panic!("{taken:?}") };
    // It wakes, and takes turns with whoever had the CPU for 2 ms.
    policy.on_event(Instant(3 * MS), Event::Wake { client: a }).unwrap();
    let held = answer(&mut policy, 3 * MS, |client| if client == head { 2 * MS } else { 0 });
    assert_eq!(held, [Gate::Hold { client: head }]);
    assert!(policy.poll_timeout().unwrap() < Instant(10 * MS), "turns are short while both want the CPU");
    policy.on_event(Instant(4 * MS), Event::Charge { client: a, used: Nanos(MS) }).unwrap();
    policy.on_event(Instant(4 * MS), Event::Leave { client: a }).unwrap();
    // The next has the CPU for all that it has left: 10 ms, or 8.
    let next = answer(&mut policy, 4 * MS, |_| 0);
    let [Gate::Release { client, .. }] = next[..] else { panic!("{next:?}") };
    let left = if client == head { 8 * MS } else { 10 * MS };
    let (start, mut now, mut decided) = (4 * MS, 4 * MS, Vec::new());
    while decided.is_empty() {
        let elapsed = policy.poll_timeout().unwrap().0 - now;
        now += elapsed;
        decided = answer(&mut policy, now, |one| if one == client { elapsed } else { 0 });
    }
    assert_eq!((decided[0], now), (Gate::Hold { client }, start + left));
}

#[test]
fn nobody_is_owed_what_passed_while_it_slept() {
    let (a, b) = (ClientId(0), ClientId(1));
    let mut policy = exact();
    for client in [a, b] {
        policy.on_event(Instant(0), Event::Join { client, share: Share::new(1).unwrap() }).unwrap();
        policy.on_event(Instant(0), Event::Wake { client }).unwrap();
    }
    answer(&mut policy, 0, |_| 0);
    policy.on_event(Instant(MS), Event::Charge { client: a, used: Nanos(MS) }).unwrap();
    policy.on_event(Instant(MS), Event::Block { client: a }).unwrap();
    answer(&mut policy, MS, |_| 0);
    // The other has used 9 of its 10 ms: of nine that the sleeper had left, one is left, and the grain.
    let mut now = 10 * MS;
    policy.on_event(Instant(now), Event::Wake { client: a }).unwrap();
    answer(&mut policy, now, |client| if client == b { 9 * MS } else { 0 });
    let mut got = 0;
    for _ in 0..10 {
        let due = policy.poll_timeout().unwrap().0.max(now);
        let elapsed = std::mem::replace(&mut now, due);
        let used = now - elapsed;
        got += used;
        let decided = answer(&mut policy, now, |client| if client == a { used } else { 0 });
        if decided.contains(&Gate::Hold { client: a }) {
            break;
        }
    }
    assert!((MS..=MS + MS / 5).contains(&got), "{got} ns");
}

/// The other had its turn first. To have that much less because it then slept for a moment was to lose most of a cycle.
#[test]
fn who_sleeps_for_a_moment_is_still_owed_its_turn() {
    let (computes, naps) = (ClientId(0), ClientId(1));
    let mut policy = exact();
    for client in [computes, naps] {
        policy.on_event(Instant(0), Event::Join { client, share: Share::new(1).unwrap() }).unwrap();
        policy.on_event(Instant(0), Event::Wake { client }).unwrap();
    }
    let (mut now, mut running) = (0, computes);
    let mut run = |policy: &mut Exact, until: u64| {
        let mut used = [0, 0];
        let mut elapsed = 0;
        loop {
            used[running.index()] += elapsed;
            for decision in answer(policy, now, |client| if client == running { elapsed } else { 0 }) {
                // Who is held leaves the CPU to the other, which is told nothing if it slept.
                running = match decision {
                    Gate::Release { client, .. } => client,
                    Gate::Hold { client } if client == naps => computes,
                    Gate::Hold { .. } => naps,
                    _ => running,
                };
            }
            if now == until {
                return used;
            }
            let due = policy.poll_timeout().map_or(until, |due| due.0.clamp(now, until));
            elapsed = due - std::mem::replace(&mut now, due);
        }
    };
    assert_eq!(run(&mut policy, 10 * MS), [10 * MS, 0], "the first has had its turn");
    assert_eq!(run(&mut policy, 12 * MS)[1], 2 * MS);
    policy.on_event(Instant(12 * MS), Event::Block { client: naps }).unwrap();
    // Ten are left of the next cycle, of which the other has used one when it wakes; and 8 of this.
    assert_eq!(run(&mut policy, 13 * MS), [MS, 0]);
    policy.on_event(Instant(13 * MS), Event::Wake { client: naps }).unwrap();
    let used = run(&mut policy, 38 * MS);
    assert!((15 * MS..=17 * MS).contains(&used[1]), "{used:?} of 9 and 16 ms");
}
