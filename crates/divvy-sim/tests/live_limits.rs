//! Limits over a simulated kernel with its latencies, through the engine: exact and lag, alone and beside others.

mod live_common;

use divvy_engine::policies::GateSpec;
use divvy_engine::replay;
use divvy_policy::gate::limited::WINDOW;
use divvy_policy::{ClientId, CpuLimit, Instant, Nanos};
use divvy_sim::live::{MachineSpec, Program};
use live_common::{Lines, Load, Sim, build, computes, gate, sleeps, turn_until};

/// A wake-up at its latest, 4 ms, on each CPU, and a look at a sleeper that nobody told to have woken.
const OVERRUN: Nanos = Nanos::from_millis(48);

fn limited(machine: MachineSpec, spec: &GateSpec, loads: &[(Load, &str)]) -> Sim {
    let only: Vec<Load> = loads.iter().map(|(load, _)| load.clone()).collect();
    let mut engine = build(machine, spec, &only);
    for (i, (_, limit)) in loads.iter().enumerate() {
        let limit: Option<CpuLimit> = limit.parse().ok();
        engine.set_limit(ClientId(i as u32), limit).unwrap();
    }
    engine
}

/// Runs for `seconds`, and checks every limit at each window's end. What each client had, in CPUs.
fn run(engine: &mut Sim, loads: &[(Load, &str)], seconds: u64) -> Vec<f64> {
    let windows = seconds * 1_000_000_000 / WINDOW.0;
    for window in 1..=windows {
        turn_until(engine, Instant(window * WINDOW.0));
        for (i, (_, limit)) in loads.iter().enumerate() {
            let Ok(limit) = limit.parse::<CpuLimit>() else { continue };
            let used = engine.host().used(ClientId(i as u32));
            let now = u128::from(engine.host().time().0.div_ceil(WINDOW.0) * WINDOW.0);
            let most = now * u128::from(limit.ppm()) / 1_000_000 + u128::from(OVERRUN.0);
            assert!(u128::from(used.0) <= most, "client {i} after {window} windows: {} of {most}", used.0);
        }
    }
    let wall = engine.host().time().0 as f64;
    (0..loads.len()).map(|i| engine.host().used(ClientId(i as u32)).0 as f64 / wall).collect()
}

fn check(name: &str, cpus: u32, loads: &[(Load, &str)], due: &[f64], max_error: f64) {
    for seed in [1, 2, 3] {
        let spec = gate("exact", cpus);
        let mut engine = limited(MachineSpec::typical(cpus, seed), &spec, loads);
        let got = run(&mut engine, loads, 20);
        for (i, (got, due)) in got.iter().zip(due).enumerate() {
            assert!((got - due).abs() <= max_error, "{name}, seed {seed}, client {i}: {got} for {due}");
        }
        // What the accounts expect is what the limits leave.
        let all: f64 = due.iter().sum();
        for (effective, due) in engine.ledger().effective(|_| true).iter().zip(due) {
            assert!((effective - due / all).abs() < 0.01, "{name}: {effective} for {}", due / all);
        }
    }
}

fn threads(share: u64, n: usize) -> Load {
    Load { share, threads: vec![Program::compute(); n] }
}

#[test]
fn one_cpu() {
    /// Of the CPU.
    const MAX_ERROR: f64 = 0.01;
    check("alone", 1, &[(computes(1), "50%")], &[0.5], MAX_ERROR);
    check("the least", 1, &[(computes(1), "1%"), (computes(1), "")], &[0.01, 0.99], MAX_ERROR);
    let beside = [(computes(3), "30%"), (computes(1), ""), (computes(2), "")];
    check("beside two", 1, &beside, &[0.3, 0.7 / 3.0, 1.4 / 3.0], MAX_ERROR);
    // A limit above what the share comes to changes nothing.
    check("above its share", 1, &[(computes(1), "60%"), (computes(1), "")], &[0.5, 0.5], MAX_ERROR);
    let all = [(computes(1), "20%"), (computes(5), "30%"), (threads(1, 3), "40%")];
    check("all of them", 1, &all, &[0.2, 0.3, 0.4], MAX_ERROR);
}

#[test]
fn two_cpus() {
    /// Of one CPU.
    const MAX_ERROR: f64 = 0.05;
    check("a tree at one and a half", 2, &[(threads(1, 3), "1.5")], &[1.5], MAX_ERROR);
    check("two at half", 2, &[(computes(1), "50%"), (computes(1), "0.5")], &[0.5, 0.5], MAX_ERROR);
    let beside = [(threads(3, 2), "80%"), (threads(1, 2), "")];
    check("beside a tree", 2, &beside, &[0.8, 1.2], MAX_ERROR);
}

/// One that sleeps gets what it asks for while that is below its limit, and its limit where it would take more.
#[test]
fn sleepers_keep_their_limits() {
    /// Of the CPU.
    const MAX_ERROR: f64 = 0.02;
    /// Nobody tells of naps here: they are looked for.
    const MIN_USED: f64 = 0.9;
    for (on, off, limit, due) in [(2, 18, "50%", 0.1), (15, 5, "30%", 0.3), (3, 3, "20%", 0.2)] {
        let loads = [(sleeps(1, on, off), limit), (computes(1), "")];
        let mut engine = limited(MachineSpec::typical(1, 5), &gate("exact", 1), &loads);
        let got = run(&mut engine, &loads, 20);
        assert!((got[0] - due).abs() <= MAX_ERROR, "{on}/{off} ms at {limit}: {got:?}");
        assert!(got[0] + got[1] > MIN_USED, "{on}/{off} ms at {limit}: {got:?}");
    }
}

/// A limit comes, changes and goes; a pause across windows holds; and a replay of it all decides the same.
#[test]
fn limits_change_and_runs_replay() {
    let spec = gate("exact", 1);
    let lines = Lines::of(&spec);
    let mut engine = build(MachineSpec::typical(1, 9), &spec, &[]);
    engine.record_to(Box::new(lines.clone()));
    let mut clients = Vec::new();
    for _ in 0..2 {
        engine.host_mut().add_client(vec![Program::compute()]);
        clients.push(engine.join(divvy_policy::Share::ONE).unwrap());
    }
    let second = |engine: &mut Sim, until: u64| {
        let before = [0, 1].map(|i| engine.host().used(ClientId(i)).0);
        turn_until(engine, Instant(until * 1_000_000_000));
        [0, 1].map(|i: u32| (engine.host().used(ClientId(i)).0 - before[i as usize]) / 10_000_000)
    };
    let near = |got: [u64; 2], due: [u64; 2], what: &str| {
        let close = got.iter().zip(due).all(|(&got, due)| got.abs_diff(due) <= 4);
        assert!(close, "{what}: {got:?} percent for {due:?}");
    };
    near(second(&mut engine, 1), [50, 50], "none");
    engine.set_limit(clients[0], "20%".parse().ok()).unwrap();
    near(second(&mut engine, 2), [20, 80], "a limit");
    engine.set_limit(clients[0], "40%".parse().ok()).unwrap();
    near(second(&mut engine, 3), [40, 60], "another");
    engine.pause(clients[0]).unwrap();
    near(second(&mut engine, 4), [0, 100], "paused");
    engine.resume(clients[0]).unwrap();
    engine.pause(clients[1]).unwrap();
    near(second(&mut engine, 5), [40, 0], "the other paused: nobody has the rest");
    engine.resume(clients[1]).unwrap();
    engine.set_limit(clients[0], None).unwrap();
    near(second(&mut engine, 6), [50, 50], "none again");
    drop(engine.stop_recording());
    let decisions = replay(lines.text().into_iter()).unwrap();
    assert!(decisions > 1000, "{decisions}");
    assert!(lines.text().iter().any(|line| line.contains(r#""e":"limit","c":0,"ppm":200000"#)));
}
