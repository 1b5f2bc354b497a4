//! The bounds of the exact gate, through the engine and over a simulated kernel.

mod live_common;

use divvy_engine::policies::GateSpec;
use divvy_policy::{ClientId, Instant, Nanos};
use divvy_sim::live::{Latency, MachineSpec, Placement, Program};
use live_common::{Load, all_compute, build, computes, gate, run_for, sleeps, turn_until};
use proptest::prelude::*;

/// l: one wake-up at its latest, 4 ms, and the hand-over.
const LATENESS_NS: i128 = 4_200_000;
/// g: the least allowance that is worth a hand-over.
const GRAIN_NS: i128 = 100_000;
const QUANTUM_NS: i128 = 10_000_000;

#[test]
fn errors_do_not_accumulate() {
    for shares in [&[1u64, 2, 3][..], &[1, 1, 1, 1, 21], &[4, 7, 1, 9, 2, 2, 8]] {
        let mut engine = build(MachineSpec::typical(1, 11), &gate("exact", 1), &all_compute(shares));
        let mut ended = 0;
        while engine.host().time() < Instant(200_000_000_000) {
            engine.turn(None).unwrap();
            let now_ended = engine.ledger().cycles().ended;
            if now_ended == ended {
                continue;
            }
            ended = now_ended;
            // What each is still due of all cycles so far, however many: at most a grain, and at most l too much.
            for (c, &share) in engine.ledger().clients().iter().zip(shares) {
                let due = i128::from(share) * QUANTUM_NS * i128::from(ended);
                let missing = due - i128::from(c.service.0);
                assert!((-LATENESS_NS..=GRAIN_NS).contains(&missing), "cycle {ended}: {missing} ns");
            }
        }
        assert!(ended > 500);
    }
}

/// The largest and smallest service error of any client at any wake-up, each as a fraction of its bound without
/// slices, `q_i * (1 - s_i / S) + l`.
fn worst_errors(spec: &GateSpec, shares: &[u64], seed: u64) -> (f64, f64) {
    let sum: i128 = shares.iter().map(|&s| i128::from(s)).sum();
    let mut engine = build(MachineSpec::typical(1, seed), spec, &all_compute(shares));
    let (mut least, mut most) = (0.0f64, 0.0f64);
    while engine.host().time() < Instant(5_000_000_000) {
        engine.turn(None).unwrap();
        let used: Vec<i128> =
            (0..shares.len()).map(|i| i128::from(engine.host().used(ClientId(i as u32)).0)).collect();
        let total: i128 = used.iter().sum();
        for (&used, &share) in used.iter().zip(shares) {
            let share = i128::from(share);
            let bound = share * QUANTUM_NS * (sum - share) / sum + LATENESS_NS;
            let error = (used - total * share / sum) as f64 / bound as f64;
            (least, most) = (least.min(error), most.max(error));
        }
    }
    (least, most)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn error_at_any_instant_is_bounded(shares in prop::collection::vec(1u64..20, 2..10), seed in any::<u64>()) {
        let unscaled = GateSpec { scale_shares: false, ..gate("exact", 1) };
        let (least, most) = worst_errors(&unscaled, &shares, seed);
        prop_assert!(least >= -1.0 && most <= 1.0, "{} to {} of the bound", least, most);
    }
}

#[test]
fn slices_are_smoother() {
    /// Of the bound without slices, which is nearly reached without them.
    const SLICED_PART: f64 = 0.4;
    let shares = [5, 6, 7, 8, 9];
    let (least, most) = worst_errors(&gate("exact", 1), &shares, 3);
    assert!(least < -0.8 && most > 0.8, "{least} {most}");
    let sliced = GateSpec { slice_ns: Some(5_000_000), ..gate("exact", 1) };
    let (least, most) = worst_errors(&sliced, &shares, 3);
    assert!(least > -SLICED_PART && most < SLICED_PART, "{least} {most}");
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

fn loads(most: usize) -> impl Strategy<Value = Vec<Load>> {
    let load = (1u64..10, prop::collection::vec(program(), 1..3));
    prop::collection::vec(load.prop_map(|(share, threads)| Load { share, threads }), 1..most)
}

/// The longest tick, 4Q, an eighth of it that a look does not see, and the lateness of the look at its end.
const IDLE_MAX: Nanos = Nanos(4 * 10_000_000 + 5_000_000 + 5_000_000);
/// Where clients have several threads: the first look sees on how many CPUs they ran on average; one or two more, Q/2
/// after, on how many they run.
const IDLE_MAX_WIDE: Nanos = Nanos(IDLE_MAX.0 + 2 * 5_000_000 + 2 * 5_000_000);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Whatever the programs, a CPU never idles for longer while a held client would run on it.
    #[test]
    fn a_cpu_idles_for_at_most_a_tick(
        loads in loads(8), cpus in 1u32..5, seed in any::<u64>(), stack in any::<bool>(),
        slice in prop::option::of(1u64..20),
    ) {
        // Balancing between CPUs is the kernel's: threads that stand on one CPU while another idles are not held.
        let placement = if stack { Placement::Stack } else { Placement::Spread };
        let machine = MachineSpec { placement, ..MachineSpec::typical(cpus, seed) };
        let spec = GateSpec { slice_ns: slice.map(|ms| ms * 1_000_000), ..gate("exact", cpus) };
        let outcome = run_for(machine, &spec, &loads, 0, 5);
        let wide = cpus > 1 && loads.iter().any(|l| l.threads.len() > 1);
        let most = if wide { IDLE_MAX_WIDE } else { IDLE_MAX };
        let longest = outcome.stats.wasted_longest;
        prop_assert!(longest <= most, "{:?} idle in a row", longest);
    }
}

/// Threads that compute for long beside ones that rest for longer than any tick: while all compute clients have whole CPUs of their own.
fn at_times_all_compute() -> impl Strategy<Value = Vec<Load>> {
    let rests = (10u64..400, 80u64..300)
        .prop_map(|(on, off)| Program::on_off(Nanos::from_millis(on), Nanos::from_millis(off)));
    let ends = (100u64..3000).prop_map(|ms| Program::finite(Nanos::from_millis(ms)));
    let threads = prop_oneof![
        Just(vec![]),
        prop_oneof![2 => rests, 1 => ends].prop_map(|thread| vec![thread]),
        Just(vec![Program::compute()]),
    ];
    let load = (1u64..10, threads).prop_map(|(share, mut threads)| {
        threads.push(Program::compute());
        Load { share, threads }
    });
    prop::collection::vec(load, 2..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Whoever has computed for long, with CPUs of its own, is not looked at less often than others.
    #[test]
    fn a_cpu_of_its_own_idles_for_at_most_a_tick(
        loads in at_times_all_compute(), cpus in 3u32..6, seed in any::<u64>(),
    ) {
        let outcome = run_for(MachineSpec::typical(cpus, seed), &gate("exact", cpus), &loads, 0, 5);
        let longest = outcome.stats.wasted_longest;
        prop_assert!(longest <= IDLE_MAX_WIDE, "{:?} idle in a row", longest);
    }
}

fn on_off(on_ms: u64, off_ms: u64) -> Program {
    Program::on_off(Nanos::from_millis(on_ms), Nanos::from_millis(off_ms))
}

/// What random programs met: whoever had CPUs of its own was looked at less often than others; had its threads counted by what
/// they were when it had fewer CPUs; was told of a count that was older than the last; or was believed what was counted before its threads
/// were kept to some of the CPUs.
#[test]
fn what_idled_a_cpu_for_longer_than_a_tick() {
    let (computes, ends) = (Program::compute, |ms| Program::finite(Nanos::from_millis(ms)));
    let load = |share, threads: &[Program]| Load { share, threads: threads.to_vec() };
    let cases: [(u32, u64, Vec<Load>); 6] = [
        (
            3,
            5983688839124633511,
            vec![
                load(3, &[on_off(20, 12), computes()]),
                load(4, &[computes(), on_off(77, 137)]),
                load(3, &[on_off(38, 150)]),
                load(8, &[on_off(57, 167), computes()]),
                load(9, &[computes()]),
            ],
        ),
        (
            4,
            13097933962641857609,
            vec![
                load(6, &[computes(), computes()]),
                load(3, &[computes(), on_off(53, 262)]),
                load(8, &[computes(), computes()]),
                load(5, &[computes(), on_off(64, 23)]),
                load(8, &[computes()]),
            ],
        ),
        (
            3,
            11483893800517194836,
            vec![
                load(4, &[computes(), on_off(21, 109)]),
                load(6, &[computes(), on_off(52, 196)]),
                load(6, &[computes()]),
            ],
        ),
        (
            4,
            11523161223886116447,
            vec![
                load(8, &[ends(1916)]),
                load(6, &[on_off(63, 120), ends(1582)]),
                load(1, &[computes()]),
                load(9, &[on_off(44, 107), computes()]),
                load(6, &[computes()]),
            ],
        ),
        (
            5,
            15271097861324006085,
            vec![
                load(1, &[ends(1230), computes()]),
                load(3, &[computes()]),
                load(4, &[ends(1847), computes()]),
                load(5, &[on_off(370, 190), computes()]),
                load(1, &[on_off(269, 160), computes()]),
            ],
        ),
        (
            2,
            7497389247038620702,
            vec![
                load(9, &[on_off(52, 282)]),
                load(7, &[computes()]),
                load(8, &[computes(), on_off(19, 220)]),
                load(5, &[computes(), computes()]),
                load(7, &[computes()]),
                load(1, &[on_off(58, 112)]),
                load(1, &[on_off(32, 22), ends(118)]),
            ],
        ),
    ];
    for (cpus, seed, loads) in cases {
        let outcome = run_for(MachineSpec::typical(cpus, seed), &gate("exact", cpus), &loads, 0, 5);
        let longest = outcome.stats.wasted_longest;
        assert!(longest <= IDLE_MAX_WIDE, "{longest:?} idle in a row on {cpus} CPUs");
    }
}

/// Where turns are slices, those who wait are sorted by when they are through: that was taken for what they need, and two who had
/// credit changed places 4000 times a second.
#[test]
fn slices_on_several_cpus_change_hands_as_slices_end() {
    /// For each slice that fits into the time on each CPU: all looks.
    const WAKEUPS_MAX: u64 = 8;
    const SLICE_MS: u64 = 19;
    let ends = |ms| Program::finite(Nanos::from_millis(ms));
    let load = |share, threads: &[Program]| Load { share, threads: threads.to_vec() };
    let loads = [
        load(1, &[on_off(5, 54), on_off(42, 193)]),
        load(9, &[on_off(65, 293), Program::compute()]),
        load(9, &[Program::compute(), on_off(54, 265)]),
        load(3, &[ends(1022), on_off(18, 265)]),
    ];
    let machine = MachineSpec { placement: Placement::Stack, ..MachineSpec::typical(2, 5768335346187187218) };
    let spec = GateSpec { slice_ns: Some(SLICE_MS * 1_000_000), ..gate("exact", 2) };
    let outcome = run_for(machine, &spec, &loads, 0, 5);
    let slices = 2 * 5000 / SLICE_MS;
    assert!(outcome.wakeups <= WAKEUPS_MAX * slices, "{} for {slices} slices", outcome.wakeups);
}

#[test]
fn a_known_sleeper_idles_a_cpu_for_at_most_two_looks() {
    /// Running suspects, two here, are looked at once in as many ms; a pause of less than an eighth is seen only the
    /// next time.
    const IDLE_MAX: Nanos = Nanos(2 * 2_000_000 + 250_000 + 2 * 65_000);
    let quiet = Latency { late_one_in: 0, ..MachineSpec::typical(1, 1).latency };
    let machine = MachineSpec { latency: quiet, ..MachineSpec::typical(1, 1) };
    let loads = [computes(1), sleeps(2, 6, 6), computes(3), sleeps(4, 3, 5)];
    let mut engine = build(machine, &gate("exact", 1), &loads);
    turn_until(&mut engine, Instant(1_000_000_000));
    engine.host_mut().forget_stats();
    turn_until(&mut engine, Instant(30_000_000_000));
    let stats = engine.host().stats();
    assert!(stats.wasted > Nanos::ZERO && stats.wasted_longest <= IDLE_MAX, "{stats:?}");
}

#[test]
fn hundreds_of_sleepers_cost_little() {
    /// Of a CPU, where 300 clients wake for 1 ms of every 300 and the CPU is nearly full.
    const MAX_OWN_CPU: f64 = 0.05;
    const MIN_USED: f64 = 0.9;
    let loads: Vec<Load> = (0..300).map(|_| sleeps(5, 1, 299)).collect();
    let outcome = run_for(MachineSpec::typical(1, 7), &gate("exact", 1), &loads, 2, 8);
    assert!(outcome.own_cpu <= MAX_OWN_CPU, "{}", outcome.own_cpu);
    assert!(outcome.utilization() >= MIN_USED, "{}", outcome.utilization());
}

#[test]
fn exact_and_alps_serve_alike_in_the_long_run() {
    /// Over 30 s: the cycle under way of the one and of the other.
    const CYCLES: u64 = 2;
    for shares in [&[1u64, 2, 3][..], &[5, 5, 5, 5], &[1, 4, 9, 16]] {
        let runs = ["exact", "alps", "alps-basic"].map(|policy| {
            let spec = GateSpec { scale_shares: false, ..gate(policy, 1) };
            run_for(MachineSpec::ideal(1), &spec, &all_compute(shares), 0, 30).used
        });
        for other in &runs[1..] {
            for ((a, b), &share) in runs[0].iter().zip(other).zip(shares) {
                let quota = share * 10_000_000;
                assert!(a.abs_diff(*b) <= CYCLES * quota, "{a} and {b} for share {share} of {shares:?}");
            }
        }
    }
}

/// How far a client may be from its due in twenty seconds under a gate that looks once a quantum.
const PAUSE_ERROR_MAX: f64 = 0.02;

#[test]
fn a_paused_clients_share_goes_to_the_others_and_comes_back() {
    for (policy, cpus) in [("exact", 1), ("alps", 1), ("exact", 2)] {
        let shares = [1, 2, 3];
        let mut engine = build(MachineSpec::typical(cpus, 5), &gate(policy, cpus), &all_compute(&shares));
        let mut now = 0;
        let mut check = |engine: &mut live_common::Sim, due: [f64; 3]| {
            let used = |engine: &live_common::Sim| [0, 1, 2].map(|i| engine.host().used(ClientId(i)).0);
            // What was under way when something changed is not part of it.
            turn_until(engine, Instant(now + 2_000_000_000));
            let before = used(engine);
            now += 22_000_000_000;
            turn_until(engine, Instant(now));
            let got: Vec<u64> =
                used(engine).iter().zip(before).map(|(after, before)| after - before).collect();
            let all: u64 = got.iter().sum();
            // ALPS waits for a sleeper until the cycle is over by its own rule, and for a paused client as well.
            let least = if policy == "exact" { 0.97 } else { 0.3 };
            assert!(all as f64 > least * 2e10 * f64::from(cpus), "{policy} on {cpus}: CPUs idle: {got:?}");
            for (got, due) in got.iter().zip(due) {
                let fraction = *got as f64 / all as f64;
                assert!((fraction - due).abs() < PAUSE_ERROR_MAX, "{policy} on {cpus}: {fraction} of {due}");
            }
        };
        check(&mut engine, [1.0 / 6.0, 2.0 / 6.0, 3.0 / 6.0]);
        engine.pause(ClientId(2)).unwrap();
        // On two CPUs each of two threads has one for itself.
        check(&mut engine, if cpus == 1 { [1.0 / 3.0, 2.0 / 3.0, 0.0] } else { [0.5, 0.5, 0.0] });
        assert!(engine.is_paused(ClientId(2)) && engine.host().is_held(ClientId(2)));
        engine.resume(ClientId(2)).unwrap();
        check(&mut engine, [1.0 / 6.0, 2.0 / 6.0, 3.0 / 6.0]);
        engine.pause(ClientId(0)).unwrap();
        engine.pause(ClientId(1)).unwrap();
        if cpus == 1 {
            check(&mut engine, [0.0, 0.0, 1.0]);
        }
    }
}
