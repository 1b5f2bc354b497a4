//! Every dispatcher as a gate, through the engine and over a simulated kernel.

mod live_common;

use divvy_engine::policies::{DISPATCHERS, GateSpec};
use divvy_policy::{ClientId, Instant, Nanos};
use divvy_sim::live::{MachineSpec, Placement, Program};
use divvy_sim::scenario::{PolicySpec, Scenario, Span};
use live_common::{Lines, Load, all_compute, build, computes, gate, run_for, sleeps, turn_until};
use proptest::prelude::*;

const QUANTUM: Span = Span(10_000_000);

/// The dispatchers that divide by shares to within a few quanta, whatever happens.
const PROPORTIONAL: [&str; 7] = ["vtrr", "wrr", "drr", "wfq", "wf2q", "stride", "eevdf"];

fn finite(ms: u64) -> Load {
    Load { share: 1, threads: vec![Program::finite(Nanos::from_millis(ms))] }
}

/// A name with what makes two runs of it alike.
fn seeded(name: &str) -> String {
    if name == "lottery" { "lottery:seed=7".into() } else { name.into() }
}

#[test]
fn every_dispatcher_serves_as_on_a_machine_of_its_own() {
    /// The slices under way of the one and of the other.
    const SLICES: u64 = 2;
    const SECONDS: u64 = 12;
    for info in DISPATCHERS {
        let policy = seeded(info.name);
        let spec: PolicySpec = policy.parse().unwrap();
        let shares = [3, 2, 1];
        let scenario = Scenario::of_shares(spec, &shares, QUANTUM, SECONDS * 100);
        let own = divvy_sim::policies::run(&scenario, 1, &[]).unwrap();
        let above = run_for(MachineSpec::ideal(1), &gate(&policy, 1), &all_compute(&shares), 0, SECONDS);
        // The slices of eight levels of feedback are the longest: 2^7 quanta.
        let slice = if info.name == "mlfb" { 128 * QUANTUM.0 } else { QUANTUM.0 };
        for (own, above) in own.per_client.iter().zip(&above.used) {
            let apart = own.service_ns.abs_diff(*above);
            assert!(apart <= SLICES * slice, "{policy}: {} and {above} ns", own.service_ns);
        }
        assert_eq!(above.stats.wasted, Nanos::ZERO, "{policy}");
    }
}

#[test]
fn proportional_dispatchers_reach_their_shares() {
    /// Of what each is due, after 60 s on a machine with latency, costs and ticks.
    const MAX_ERROR: f64 = 0.005;
    const MIN_USED: f64 = 0.99;
    for policy in PROPORTIONAL {
        for shares in [&[1u64, 2, 3][..], &[5, 5, 5, 5, 5], &[1, 9]] {
            let outcome = run_for(MachineSpec::typical(1, 5), &gate(policy, 1), &all_compute(shares), 2, 60);
            let due: Vec<f64> = shares.iter().map(|&s| s as f64).collect();
            let worst = outcome.worst_against(&due);
            assert!(worst <= MAX_ERROR, "{policy} {shares:?}: {worst}");
            assert!(outcome.utilization() >= MIN_USED, "{policy} {shares:?}: {}", outcome.utilization());
        }
    }
}

#[test]
fn a_lottery_reaches_its_shares_as_chance_has_it() {
    /// Four standard deviations of the smallest share's part of 6000 draws: sqrt(5 / 6000).
    const MAX_ERROR: f64 = 4.0 * 0.0289;
    let spec = gate("lottery:seed=7", 1);
    let outcome = run_for(MachineSpec::typical(1, 5), &spec, &all_compute(&[1, 2, 3]), 0, 60);
    assert!(outcome.worst_against(&[1.0, 2.0, 3.0]) <= MAX_ERROR, "{:?}", outcome.fractions());
    let other =
        run_for(MachineSpec::typical(1, 5), &gate("lottery:seed=8", 1), &all_compute(&[1, 2, 3]), 0, 60);
    assert_ne!(outcome.used, other.used);
}

#[test]
fn one_queue_for_all_cpus() {
    /// Of what each is due where every share is feasible.
    const MAX_ERROR: f64 = 0.02;
    const MIN_USED: f64 = 0.985;
    for placement in [Placement::Spread, Placement::Stack] {
        for policy in ["stride", "wfq", "vtrr", "eevdf", "wrr", "rr", "las"] {
            let shares: &[u64] =
                if matches!(policy, "rr" | "las") { &[1, 1, 1, 1, 1] } else { &[1, 2, 3, 2] };
            let machine = MachineSpec { placement, ..MachineSpec::typical(2, 3) };
            let outcome = run_for(machine, &gate(policy, 2), &all_compute(shares), 2, 60);
            let due: Vec<f64> = shares.iter().map(|&s| s as f64).collect();
            let worst = outcome.worst_against(&due);
            assert!(worst <= MAX_ERROR, "{policy} {placement:?}: {worst} {:?}", outcome.fractions());
            assert!(outcome.utilization() >= MIN_USED, "{policy}: {}", outcome.utilization());
        }
    }
}

/// The order in which clients end, and what each had used when the first, second, ... ended.
fn endings(policy: &str, cpus: u32, loads: &[Load]) -> Vec<(u32, Vec<u64>)> {
    let mut engine = build(MachineSpec::typical(cpus, 4), &gate(policy, cpus), loads);
    let mut ends = Vec::new();
    while engine.nr_clients() > 0 {
        assert!(engine.host().time() < Instant(100_000_000_000), "{policy}: it does not end");
        engine.turn(None).unwrap();
        let used: Vec<u64> = (0..loads.len()).map(|i| engine.host().used(ClientId(i as u32)).0).collect();
        ends.extend(engine.take_lost().into_iter().map(|lost| (lost.client.0, used.clone())));
    }
    ends
}

#[test]
fn fcfs_queues_jobs_one_after_another() {
    /// A job that is through is seen to be at once, and what the next has had by then is what that takes.
    const MAX_EARLY: u64 = 1_000_000;
    let loads = [finite(300), finite(50), finite(200)];
    let ends = endings("fcfs", 1, &loads);
    assert_eq!(ends.iter().map(|e| e.0).collect::<Vec<_>>(), [0, 1, 2]);
    for (at, (_, used)) in ends.iter().enumerate() {
        for &later in &used[at + 1..] {
            assert!(later <= MAX_EARLY, "{later} ns before its turn");
        }
    }
    // Two CPUs serve two jobs at a time: the third begins with the end of the second.
    let ends = endings("fcfs", 2, &loads);
    assert_eq!(ends.iter().map(|e| e.0).collect::<Vec<_>>(), [1, 2, 0]);
    assert!(ends[0].1[2] <= MAX_EARLY);
}

#[test]
fn las_finishes_the_short_ones_first() {
    let ends = endings("las", 1, &[finite(300), finite(50), finite(200), finite(100)]);
    assert_eq!(ends.iter().map(|e| e.0).collect::<Vec<_>>(), [1, 3, 2, 0]);
    // When one ends, everybody has had as much: to within a grain of a slice for each.
    let (_, used) = &ends[0];
    let (least, most) = (used.iter().min().unwrap(), used.iter().max().unwrap());
    assert!(most - least <= 2 * QUANTUM.0, "{used:?}");
}

#[test]
fn pbs_goes_from_fcfs_to_las() {
    let loads = [finite(1000), finite(100), finite(100)];
    let order = |policy: &str| endings(policy, 1, &loads).iter().map(|e| e.0).collect::<Vec<_>>();
    assert_eq!(order("pbs:alpha=0,guard=study"), [0, 1, 2]);
    assert_eq!(order("pbs:alpha=2"), [1, 2, 0]);
    assert_eq!(order("pbs:alpha=inf,guard=study"), [1, 2, 0]);
}

/// PBS, section 4.1: who sleeps for longer than it is used to begins a session, above everybody.
#[test]
fn sessions_of_pbs_begin_with_observed_blocking() {
    /// Of the CPU. The one at the keyboard wants 10 ms of every 500.
    const WANTS: f64 = 0.02;
    let loads = [sleeps(1, 10, 490), computes(1), computes(1), computes(1)];
    let part =
        |policy: &str| run_for(MachineSpec::typical(1, 6), &gate(policy, 1), &loads, 2, 60).fractions()[0];
    let sessions = part("pbs:alpha=2,beta=0");
    assert!(sessions >= 0.9 * WANTS, "{sessions}");
    // First come, first served never gets to it before somebody ends, unless each waking were a session.
    let behind = run_for(
        MachineSpec::typical(1, 6),
        &gate("fcfs", 1),
        &[computes(1), sleeps(1, 10, 490), computes(1)],
        2,
        20,
    );
    assert!(behind.fractions()[1] <= 0.2 * WANTS, "{:?}", behind.fractions());
}

#[test]
fn blockers_leave_their_time_to_the_others() {
    /// Of the CPU.
    const MIN_USED: f64 = 0.95;
    /// The same where each 2 ms of work end up to a ms before that is seen.
    const MIN_USED_SHORT: f64 = 0.8;
    for policy in ["stride", "vtrr", "las", "rr", "pbs", "eevdf", "lottery"] {
        for (on, off) in [(2, 2), (5, 45), (80, 240)] {
            let loads = [computes(1), sleeps(2, on, off), computes(3)];
            let outcome = run_for(MachineSpec::typical(1, 3), &gate(policy, 1), &loads, 2, 30);
            let least = if on == 2 { MIN_USED_SHORT } else { MIN_USED };
            assert!(outcome.utilization() >= least, "{policy} {on}/{off}: {}", outcome.utilization());
        }
    }
}

#[test]
fn threads_of_a_client_use_several_cpus() {
    /// Of the CPU time: two threads beside two clients of one.
    const MIN_USED: f64 = 0.97;
    let wide = Load { threads: vec![Program::compute(); 2], ..computes(2) };
    for policy in ["stride", "fcfs", "las"] {
        let outcome = run_for(
            MachineSpec::typical(2, 6),
            &gate(policy, 2),
            &[wide.clone(), computes(1), computes(1)],
            2,
            20,
        );
        assert!(outcome.utilization() >= MIN_USED, "{policy}: {}", outcome.utilization());
        match policy {
            "fcfs" => {
                assert!(outcome.fractions()[0] > 0.95, "the first has both CPUs: {:?}", outcome.fractions())
            }
            "stride" => assert!(outcome.worst_against(&[2.0, 1.0, 1.0]) <= 0.03, "{:?}", outcome.fractions()),
            _ => {}
        }
    }
}

#[test]
fn recorded_runs_replay() {
    let loads = [computes(1), sleeps(2, 7, 20), finite(400), computes(3)];
    for info in DISPATCHERS {
        for cpus in [1, 2] {
            let spec = gate(&seeded(info.name), cpus);
            let lines = Lines::of(&spec);
            let mut engine = build(MachineSpec::typical(cpus, 9), &spec, &[]);
            engine.record_to(Box::new(lines.clone()));
            for load in &loads {
                engine.host_mut().add_client(load.threads.clone());
                engine.join(divvy_policy::Share::new(load.share).unwrap()).unwrap();
            }
            turn_until(&mut engine, Instant(3_000_000_000));
            let decisions = divvy_engine::replay(lines.text().into_iter()).unwrap();
            assert!(decisions > 50, "{}: {decisions}", info.name);
        }
    }
}

fn program() -> impl Strategy<Value = Program> {
    prop_oneof![
        2 => Just(Program::compute()),
        3 => (1u64..100, 1u64..300).prop_map(|(on, off)| {
            Program::on_off(Nanos::from_millis(on), Nanos::from_millis(off))
        }),
        1 => (1u64..3000).prop_map(|ms| Program::finite(Nanos::from_millis(ms))),
    ]
}

/// The longest tick, 4Q, an eighth of it that a look does not see, and the lateness of the look at its end.
const IDLE_MAX: Nanos = Nanos(4 * 10_000_000 + 5_000_000 + 5_000_000);
/// Where clients have several threads: looks that find on how many CPUs they run now, Q/2 each.
const IDLE_MAX_WIDE: Nanos = Nanos(2 * IDLE_MAX.0);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Whatever the programs, a CPU never idles for longer while a held client would run on it.
    #[test]
    fn a_cpu_idles_for_at_most_a_tick_under_any_dispatcher(
        threads in prop::collection::vec((1u64..10, prop::collection::vec(program(), 1..3)), 1..8),
        cpus in 1u32..4, seed in any::<u64>(), which in 0..DISPATCHERS.len(),
    ) {
        let loads: Vec<Load> = threads.into_iter().map(|(share, threads)| Load { share, threads }).collect();
        let spec: GateSpec = gate(DISPATCHERS[which].name, cpus);
        let outcome = run_for(MachineSpec::typical(cpus, seed), &spec, &loads, 0, 5);
        let wide = cpus > 1 && loads.iter().any(|l| l.threads.len() > 1);
        let most = if wide { IDLE_MAX_WIDE } else { IDLE_MAX };
        let longest = outcome.stats.wasted_longest;
        prop_assert!(longest <= most, "{}: {:?} idle in a row", DISPATCHERS[which].name, longest);
    }
}
