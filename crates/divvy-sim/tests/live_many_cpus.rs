//! 4, 16 and 64 CPUs, random shares and threads, sleepers and strangers: what each gets, and what a wake-up costs.

mod live_common;

use divvy_engine::Session;
use divvy_engine::policies::GateSpec;
use divvy_policy::feasible::{Claim, water_fill};
use divvy_policy::{ClientId, Instant, Nanos, Share};
use divvy_sim::live::{MachineSpec, Program, SimHost, Step};
use divvy_sim::rng::SplitMix64;
use live_common::{Load, Outcome, all_compute, build, computes, gate, run_for, sleeps, turn_until};

/// Clients of a random number, with random shares and threads: enough threads for all CPUs, and one in eight asks for far more
/// than its threads can use.
fn random(cpus: u32, seed: u64) -> Vec<(u64, usize)> {
    let rng = &mut SplitMix64::new(seed);
    let (mut loads, mut threads) = (Vec::new(), 0);
    let least = u64::from(cpus) + rng.below(2 * u64::from(cpus));
    while threads < least || loads.len() < 3 {
        let wide = 1 + rng.below(4);
        let share = if rng.below(8) == 0 { 20 + rng.below(80) } else { 1 + rng.below(10) };
        threads += wide;
        loads.push((share, wide as usize));
    }
    loads
}

fn computing(loads: &[(u64, usize)]) -> Vec<Load> {
    loads.iter().map(|&(share, n)| Load { share, threads: vec![Program::compute(); n] }).collect()
}

fn dues(loads: &[(u64, usize)], cpus: u32) -> Vec<f64> {
    let claim = |&(share, n): &(u64, usize)| Claim { share: Share::new(share).unwrap(), width: n as u32 };
    let claims: Vec<Claim> = loads.iter().map(claim).collect();
    water_fill(&claims, cpus).iter().map(|c| c.as_f64()).collect()
}

fn show(name: &str, outcome: &Outcome, worst: f64) {
    println!(
        "{name:<24} long run {:6.2} %  cycles {:6.2} %  used {:5.1} %  own {:5.2} %  {:6} wake-ups/s {:4.1} us each",
        worst * 100.0,
        outcome.median * 100.0,
        outcome.utilization() * 100.0,
        outcome.own_cpu * 100.0,
        outcome.wakeups * 1_000_000_000 / outcome.wall,
        outcome.own_cpu * outcome.wall as f64 / outcome.wakeups.max(1) as f64 / 1000.0,
    );
}

/// Of the worst client over 12 s, against what it can have.
const MAX_LONG_RUN_ERROR: f64 = 0.02;
/// Median over the cycles of their RMS relative error. Released by need alone, clients whose threads do not fit side by side were up
/// to 17 % off.
const MAX_MEDIAN_ERROR: f64 = 0.015;
const MIN_USED: f64 = 0.98;
/// Of one CPU, for each four that are divided.
const MAX_OWN: f64 = 0.03;

#[test]
fn random_shares_and_threads_get_the_capped_optimum() {
    for cpus in [4, 8, 16, 64] {
        // In the seventh of 64 CPUs a client is due all of the CPU on which divvy runs.
        for seed in 1..=7 {
            let loads = random(cpus, seed);
            let outcome =
                run_for(MachineSpec::typical(cpus, seed), &gate("exact", cpus), &computing(&loads), 3, 12);
            let worst = outcome.worst_against(&dues(&loads, cpus));
            let name = format!("{cpus} CPUs, seed {seed}, {} clients", loads.len());
            show(&name, &outcome, worst);
            assert!(worst <= MAX_LONG_RUN_ERROR, "{name}: {worst}");
            assert!(outcome.median <= MAX_MEDIAN_ERROR, "{name}: median {}", outcome.median);
            assert!(outcome.utilization() >= MIN_USED, "{name}: used {}", outcome.utilization());
            assert!(outcome.own_cpu <= MAX_OWN, "{name}: own {}", outcome.own_cpu);
        }
    }
}

/// Where whole CPUs are given away, a newcomer whose share asks for more than its thread can use has its CPU with the next cycle, and
/// who is paused and goes on has its own again.
#[test]
fn who_comes_or_goes_on_gets_a_cpu_of_its_own() {
    let loads = [
        Load { share: 10, threads: vec![Program::compute()] },
        Load { share: 1, threads: vec![Program::compute(); 3] },
    ];
    let mut engine = build(MachineSpec::typical(4, 1), &gate("exact", 4), &loads);
    turn_until(&mut engine, Instant(2_000_000_000));
    engine.host_mut().add_client(vec![Program::compute()]);
    let newcomer = engine.join(Share::new(10).unwrap()).unwrap();
    turn_until(&mut engine, Instant(4_000_000_000));
    engine.pause(ClientId(0)).unwrap();
    turn_until(&mut engine, Instant(5_000_000_000));
    engine.resume(ClientId(0)).unwrap();
    turn_until(&mut engine, Instant(6_000_000_000));
    let used = |engine: &Session<SimHost>| {
        [0, 1, newcomer.0].map(|i| engine.host().used(ClientId(i)).0 as f64 / 1e9)
    };
    let before = used(&engine);
    turn_until(&mut engine, Instant(10_000_000_000));
    let got: Vec<f64> = used(&engine).iter().zip(before).map(|(now, before)| (now - before) / 4.0).collect();
    for (got, due) in got.iter().zip([1.0, 2.0, 1.0]) {
        assert!((got / due - 1.0_f64).abs() <= 0.02, "CPUs of each: {got:?}");
    }
}

/// While everybody computes, clients have whole CPUs of their own. As soon as the threads of one come and go, its CPUs are not its own
/// any more: they idle for a look, and are the others' from then on.
#[test]
fn whole_cpus_are_given_up_where_threads_come_and_go() {
    const COMPUTES: Nanos = Nanos::from_secs(2);
    // Threads that rest for a moment are not seen each time.
    const MIN_USED_RESTING: f64 = 0.96;
    for cpus in [4_u32, 8, 16] {
        let rests = |n| {
            let step = |run| {
                Program::once_then(
                    vec![Step::Run(COMPUTES)],
                    vec![Step::Run(run), Step::Sleep(Nanos::from_millis(20))],
                )
            };
            (0..n).map(|i| step(Nanos::from_millis(5 + i))).collect::<Vec<_>>()
        };
        let mut loads: Vec<Load> = (0..u64::from(cpus) / 2)
            .map(|i| Load { share: 1 + i % 4, threads: vec![Program::compute(); 3] })
            .collect();
        loads.push(Load { share: 3, threads: rests(4) });
        let computing = run_for(MachineSpec::typical(cpus, 3), &gate("exact", cpus), &loads, 1, 2);
        assert!(computing.median <= MAX_MEDIAN_ERROR, "{cpus} CPUs: median {}", computing.median);
        let outcome = run_for(MachineSpec::typical(cpus, 3), &gate("exact", cpus), &loads, 3, 12);
        let longest = outcome.stats.wasted_longest;
        println!(
            "{cpus} CPUs: {computing:?} then used {:.3}, longest idle {longest:?}",
            outcome.utilization()
        );
        assert!(outcome.utilization() >= MIN_USED_RESTING, "{cpus} CPUs: used {}", outcome.utilization());
        assert!(longest <= Nanos::from_millis(120), "{cpus} CPUs: a CPU idled for {longest:?}");
    }
}

/// Half of the clients sleep most of the time: those that compute get their shares of what these leave. Where sleepers were sent out
/// of the way of whoever is short, instead of that one out of theirs, one of 24 or 96 was 2 to 16 % short.
#[test]
fn sleepers_on_many_cpus_leave_their_time_to_the_others() {
    for (cpus, seed) in [(4_u32, 1), (16, 1), (16, 2), (16, 3), (64, 4)] {
        let n = u64::from(cpus) * 3 / 2;
        let computing = (0..n).map(|i| computes(1 + i % 3));
        let loads: Vec<Load> = computing.chain((0..n).map(|i| sleeps(1 + i % 3, 5, 45))).collect();
        let outcome = run_for(MachineSpec::typical(cpus, seed), &gate("exact", cpus), &loads, 3, 12);
        let used = &outcome.used[..n as usize];
        let rates: Vec<f64> =
            used.iter().zip(0..).map(|(&used, i)| used as f64 / (1 + i % 3) as f64).collect();
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        let worst = rates.iter().map(|rate| (rate / mean - 1.0).abs()).fold(0.0, f64::max);
        show(&format!("{cpus} CPUs, sleepers"), &outcome, worst);
        assert!(worst <= 0.01, "{cpus} CPUs, seed {seed}: {worst}");
        assert!(outcome.utilization() >= MIN_USED, "{cpus} CPUs: used {}", outcome.utilization());
    }
}

/// A stranger for every fourth CPU: whoever has one on its CPU is slowed, and changes places with somebody who can wait as soon as it
/// has no time to lose. Left there, it was short by up to a quarter, by the seed. No CPU idles for it.
#[test]
fn strangers_on_many_cpus_idle_none() {
    let seeds = |cpus: u32| if cpus == 64 { 1..=2 } else { 1..=6 };
    for (cpus, seed) in [4_u32, 16, 64].into_iter().flat_map(|cpus| seeds(cpus).map(move |seed| (cpus, seed)))
    {
        let shares: Vec<u64> = (0..u64::from(cpus) * 2).map(|i| 1 + i % 4).collect();
        let machine = MachineSpec::typical(cpus, seed);
        let mut engine = build(machine, &gate("exact", cpus), &all_compute(&shares));
        for _ in 0..cpus / 4 {
            engine.host_mut().add_stranger(Program::compute());
        }
        turn_until(&mut engine, Instant(15_000_000_000));
        let used: Vec<f64> =
            (0..shares.len() as u32).map(|i| engine.host().used(ClientId(i)).0 as f64).collect();
        let sum: f64 = used.iter().sum();
        let all: u64 = shares.iter().sum();
        let error = |(used, &share): (&f64, &u64)| (used / sum / (share as f64 / all as f64) - 1.0).abs();
        let worst = used.iter().zip(&shares).map(error).fold(0.0, f64::max);
        println!("{cpus} CPUs, seed {seed}, strangers: long run {:.2} %", worst * 100.0);
        assert!(worst <= 0.01, "{cpus} CPUs, seed {seed}: {worst}");
        assert!(engine.host().stats().idle.0 as f64 <= 0.01 * 15e9 * f64::from(cpus), "{cpus} CPUs idle");
    }
}

/// Strangers are there all the time, and some clients are due all of a CPU or more: what the strangers leave is divided as all would be. Whoever
/// ran all the time, as it does without strangers, had up to 30 % more than the others; beside those of several threads, 14 %. On more than 8
/// CPUs that is still so.
#[test]
fn strangers_leave_shares_as_they_are() {
    for (cpus, threads, seed) in [2_u32, 4, 8, 16]
        .into_iter()
        .flat_map(|cpus| [1, 2, 3].map(|n| (cpus, n, n as u64 + u64::from(cpus))))
    {
        if cpus > 8 && threads > 1 {
            continue;
        }
        let loads: Vec<(u64, usize)> =
            (0..u64::from(cpus) * 3 / 2).map(|i| (1 + i % 4, if i % 2 == 0 { threads } else { 1 })).collect();
        let machine = MachineSpec::typical(cpus, seed);
        let mut engine = build(machine, &gate("exact", cpus), &computing(&loads));
        for _ in 0..(cpus / 4).max(1) {
            engine.host_mut().add_stranger(Program::compute());
        }
        turn_until(&mut engine, Instant(15_000_000_000));
        let used: Vec<f64> =
            (0..loads.len() as u32).map(|i| engine.host().used(ClientId(i)).0 as f64).collect();
        let sum: f64 = used.iter().sum();
        let error = |(used, due): (&f64, f64)| (used / sum / (due / f64::from(cpus)) - 1.0).abs();
        let worst = used.iter().zip(dues(&loads, cpus)).map(error).fold(0.0, f64::max);
        let name = format!("{cpus} CPUs, {threads} threads");
        println!("{name}: long run {:.2} %, used {:.2}", worst * 100.0, sum / 15e9);
        assert!(worst <= 0.005, "{name}: {worst}");
        assert!(engine.host().stats().idle.0 as f64 <= 0.01 * 15e9 * f64::from(cpus), "{name}: idle");
    }
}

/// Twenty times as many clients cost no more a wake-up.
#[test]
fn a_wake_up_costs_the_same_however_many_wait() {
    let cost = |clients: u64| {
        let shares: Vec<u64> = (0..clients).map(|i| 1 + i % 5).collect();
        let outcome = run_for(MachineSpec::typical(16, 1), &gate("exact", 16), &all_compute(&shares), 3, 12);
        outcome.own_cpu * outcome.wall as f64 / outcome.wakeups as f64
    };
    let (few, many) = (cost(40), cost(800));
    assert!(many <= 2.0 * few, "{few} ns a wake-up with 40 clients, {many} with 800");
}

/// Clients of one to four threads come one after the other, and are paused for a while: each has what it is due from a while later on.
#[test]
fn who_comes_and_goes_is_served() {
    const QUIET: u64 = 10_000_000_000;
    const MAX_WAKEUPS: u64 = 1_000;
    for seed in 1..=60 {
        let rng = &mut SplitMix64::new(seed);
        let cpus = 3 + rng.below(10) as u32;
        let draw = |rng: &mut SplitMix64| {
            let share = if rng.below(8) == 0 { 20 + rng.below(80) } else { 1 + rng.below(10) };
            (share, 1 + rng.below(4) as usize)
        };
        let mut loads: Vec<(u64, usize)> =
            (0..2 + rng.below(u64::from(2 * cpus))).map(|_| draw(rng)).collect();
        let mut engine = build(MachineSpec::typical(cpus, seed), &gate("exact", cpus), &computing(&loads));
        let mut now = 0;
        while now < 6_000_000_000 {
            now += 100_000_000 + rng.below(900_000_000);
            turn_until(&mut engine, Instant(now));
            if rng.below(2) == 0 {
                let (share, threads) = draw(rng);
                engine.host_mut().add_client(vec![Program::compute(); threads]);
                engine.join(Share::new(share).unwrap()).unwrap();
                loads.push((share, threads));
            } else {
                let client = ClientId(rng.below(loads.len() as u64) as u32);
                engine.pause(client).unwrap();
                now += 50_000_000 + rng.below(500_000_000);
                turn_until(&mut engine, Instant(now));
                engine.resume(client).unwrap();
            }
        }
        turn_until(&mut engine, Instant(QUIET));
        let used = |engine: &Session<SimHost>| -> Vec<f64> {
            (0..loads.len() as u32).map(|i| engine.host().used(ClientId(i)).0 as f64 / 1e9).collect()
        };
        let (before, woken) = (used(&engine), engine.wakeups());
        turn_until(&mut engine, Instant(QUIET + 16_000_000_000));
        let woken = (engine.wakeups() - woken) / 16;
        assert!(woken <= MAX_WAKEUPS, "seed {seed}: {woken} wake-ups/s");
        for (i, ((now, before), due)) in used(&engine).iter().zip(before).zip(dues(&loads, cpus)).enumerate()
        {
            let got = (now - before) / 16.0;
            let near = (got - due).abs() <= 0.1 * due + 0.01;
            assert!(near, "{cpus} CPUs, seed {seed}, client {i}: {got} CPUs of {due}");
        }
    }
}

/// A client that has CPUs of its own and falls asleep leaves them to those who are held meanwhile, not with the next cycle only.
#[test]
fn who_falls_asleep_leaves_its_cpus() {
    let sleeps = Program::once_then(
        vec![Step::Run(Nanos::from_secs(2)), Step::Sleep(Nanos::from_secs(4))],
        vec![Step::Run(Nanos::from_secs(3600))],
    );
    for seed in 1..=6 {
        let mut loads: Vec<Load> =
            (1..=6).map(|share| Load { share, threads: vec![Program::compute()] }).collect();
        loads.push(Load { share: 20, threads: vec![sleeps.clone(); 4] });
        let outcome = run_for(MachineSpec::typical(4, seed), &gate("exact", 4), &loads, 2, 4);
        let longest = outcome.stats.wasted_longest;
        assert!(outcome.utilization() >= MIN_USED, "seed {seed}: used {}", outcome.utilization());
        assert!(longest <= Nanos::from_millis(20), "seed {seed}: a CPU idled for {longest:?}");
    }
}

/// Where shares are times of a microsecond, cycles are too short for anybody to have whole CPUs of its own for a part of them: each
/// was ended in one call with the next, and the smallest share got twice its due.
#[test]
fn cycles_of_microseconds_are_divided_all_the_same() {
    let loads = [(1, 2), (2, 2), (3, 3), (2, 1)];
    let spec = GateSpec { share_ns: Some(1_000), ..gate("exact", 4) };
    let outcome = run_for(MachineSpec::typical(4, 1), &spec, &computing(&loads), 1, 4);
    let worst = outcome.worst_against(&dues(&loads, 4));
    assert!(worst <= 0.1, "{worst}: {:?}", outcome.fractions());
}

/// A CPU that idles for a moment takes a thread from whoever has fewer CPUs than threads, and it stays there: it is sent back within
/// two quanta. At the next look in its turn, 100 ms later, the median cycle was 11 % off.
#[test]
fn threads_that_stray_are_sent_back() {
    let loads = [(5, 4), (10, 2), (7, 2)];
    for seed in [6, 50, 60] {
        let outcome = run_for(MachineSpec::typical(4, seed), &gate("exact", 4), &computing(&loads), 3, 12);
        assert!(outcome.median <= MAX_MEDIAN_ERROR, "seed {seed}: median {}", outcome.median);
    }
}
