//! What goes wrong beneath the engine, and that runs can be told again.

mod live_common;

use divvy_engine::{Divergence, EngineError, HostError, replay};
use divvy_policy::{ClientId, Instant, Nanos};
use divvy_sim::live::{ClockLag, Fault, MachineSpec, Placement, Program, Steal};
use live_common::{Lines, Load, Sim, all_compute, build, computes, gate, sleeps, turn_until};
use proptest::prelude::*;

const SEC: u64 = 1_000_000_000;
/// Of what a client is due, in the seconds after something went wrong.
const MAX_ERROR: f64 = 0.02;

fn used(engine: &Sim) -> Vec<u64> {
    (0..engine.ledger().clients().len()).map(|i| engine.host().used(ClientId(i as u32)).0).collect()
}

/// Runs for `seconds` and checks what each client got against `due` (0: nothing).
fn check_split(engine: &mut Sim, seconds: u64, due: &[u64]) {
    let (before, from) = (used(engine), engine.host().time());
    turn_until(engine, from + Nanos::from_secs(seconds));
    let got: Vec<u64> = used(engine).iter().zip(&before).map(|(a, b)| a - b).collect();
    let (sum, shares) = (got.iter().sum::<u64>() as f64, due.iter().sum::<u64>() as f64);
    for (&got, &due) in got.iter().zip(due) {
        let error = got as f64 / sum - due as f64 / shares;
        assert!(error.abs() <= MAX_ERROR, "{got} of {sum} for {due} of {due:?}");
    }
    let wall = engine.host().time().since(from).0 as f64;
    assert!(sum >= 0.98 * wall, "{sum} of {wall} used");
}

fn one_cpu(shares: &[u64]) -> Sim {
    let mut engine = build(MachineSpec::typical(1, 5), &gate("exact", 1), &all_compute(shares));
    turn_until(&mut engine, Instant(SEC));
    engine
}

#[test]
fn a_vanished_client_leaves_its_share_to_the_others() {
    let mut engine = one_cpu(&[1, 2, 3]);
    engine.host_mut().schedule(Instant(SEC + 3_333_333), Fault::Vanish(ClientId(2)));
    turn_until(&mut engine, Instant(SEC + 50_000_000));
    let lost = engine.take_lost();
    assert_eq!(lost.len(), 1, "lost once, however often it is told");
    assert_eq!((lost[0].client, &lost[0].why), (ClientId(2), &HostError::Gone));
    assert_eq!(engine.nr_clients(), 2);
    check_split(&mut engine, 5, &[1, 2, 0]);
}

#[test]
fn a_client_that_may_not_be_signalled_leaves_with_its_reason() {
    let mut engine = one_cpu(&[1, 2, 3]);
    engine.host_mut().schedule(Instant(SEC + 1), Fault::Refuse(ClientId(0)));
    turn_until(&mut engine, Instant(2 * SEC));
    let lost = engine.take_lost();
    assert_eq!(lost.len(), 1);
    assert!(matches!(&lost[0].why, HostError::NotPermitted(what) if what.contains("client 0")), "{lost:?}");
    let before = used(&engine);
    turn_until(&mut engine, Instant(7 * SEC));
    let got: Vec<u64> = used(&engine).iter().zip(&before).map(|(a, b)| a - b).collect();
    assert!((got[2] as f64 / got[1] as f64 - 1.5).abs() <= MAX_ERROR, "{got:?}");
}

#[test]
fn a_client_that_ends_is_charged_to_its_end() {
    let finite = Load { threads: vec![Program::finite(Nanos::from_millis(500))], ..computes(2) };
    let mut engine = build(MachineSpec::typical(1, 5), &gate("exact", 1), &[computes(1), finite]);
    turn_until(&mut engine, Instant(2 * SEC));
    assert_eq!(engine.take_lost().len(), 1);
    assert_eq!(engine.ledger().clients()[1].service, Nanos::from_millis(500));
}

#[test]
fn a_client_that_somebody_resumes_is_held_again() {
    let mut engine = one_cpu(&[1, 2, 3]);
    for i in 0..100 {
        let at = Instant(SEC + i * 20_000_000);
        engine.host_mut().schedule(at, Fault::Resume(ClientId((i % 3) as u32)));
    }
    check_split(&mut engine, 5, &[1, 2, 3]);
}

#[test]
fn a_client_that_somebody_stops_counts_as_blocked() {
    let mut engine = one_cpu(&[1, 2, 3]);
    // It can only be stopped while it runs; while it is held nobody could tell.
    let mut at = engine.host().time();
    while engine.host().is_held(ClientId(1)) {
        at = at + Nanos(500_000);
        turn_until(&mut engine, at);
    }
    let now = engine.host().time();
    engine.host_mut().schedule(now + Nanos(1), Fault::Stop(ClientId(1)));
    turn_until(&mut engine, now + Nanos(SEC));
    check_split(&mut engine, 5, &[1, 0, 3]);
    let now = engine.host().time();
    engine.host_mut().schedule(now, Fault::Continue(ClientId(1)));
    turn_until(&mut engine, now + Nanos(SEC));
    check_split(&mut engine, 5, &[1, 2, 3]);
}

#[test]
fn a_sleep_of_the_scheduler_is_repaid() {
    let mut engine = one_cpu(&[1, 2, 3]);
    let (before, from) = (used(&engine), engine.host().time());
    // It sleeps for 5 s, and all were resumed meanwhile: the kernel gives a third to each, 1.667 s.
    engine.host_mut().schedule(from + Nanos(1), Fault::Late(Nanos::from_secs(5)));
    engine.host_mut().schedule(from + Nanos::from_millis(50), Fault::ResumeAll);
    turn_until(&mut engine, from + Nanos::from_secs(20));
    let got: Vec<u64> = used(&engine).iter().zip(&before).map(|(a, b)| a - b).collect();
    let sum = got.iter().sum::<u64>() as f64;
    for (got, due) in got.iter().zip([1.0, 2.0, 3.0]) {
        assert!((*got as f64 / sum - due / 6.0).abs() <= 0.005, "{got} of {sum}");
    }
}

#[test]
fn a_broken_host_ends_the_run() {
    let mut engine = one_cpu(&[1, 2]);
    let now = engine.host().time();
    engine.host_mut().schedule(now, Fault::Break);
    let error = (0..10).find_map(|_| engine.turn(None).err()).unwrap();
    assert!(matches!(error, EngineError::Host(HostError::Broken(_))), "{error}");
}

#[test]
fn nobody_is_held_once_all_are_released() {
    let mut engine = one_cpu(&[1, 2, 3, 4, 5]);
    engine.host_mut().schedule(Instant(SEC), Fault::Vanish(ClientId(3)));
    engine.release_all();
    for i in [0, 1, 2, 4] {
        assert!(!engine.host().is_held(ClientId(i)), "client {i}");
    }
}

/// A run in which much happens, recorded.
fn eventful(policy: &str, cpus: u32, seed: u64) -> Vec<String> {
    let steal = Some(Steal { every: Nanos::from_millis(300), longest: Nanos::from_millis(50) });
    let machine = MachineSpec {
        steal,
        placement: Placement::Stack,
        clock_lag: ClockLag::Tick,
        ..MachineSpec::typical(cpus, seed)
    };
    let threads = vec![Program::compute(), Program::on_off(Nanos::from_millis(7), Nanos::from_millis(5))];
    let spec = gate(policy, cpus);
    let loads = [computes(3), sleeps(2, 2, 2), computes(5), Load { share: 4, threads }];
    let mut engine = build(machine, &spec, &[]);
    let lines = Lines::of(&spec);
    engine.record_to(Box::new(lines.clone()));
    for load in &loads {
        engine.host_mut().add_client(load.threads.clone());
        engine.join(divvy_policy::Share::new(load.share).unwrap()).unwrap();
    }
    for (ms, fault) in [
        (100, Fault::Resume(ClientId(0))),
        (300, Fault::Stop(ClientId(2))),
        (600, Fault::Continue(ClientId(2))),
        (700, Fault::ResumeAll),
        (900, Fault::Late(Nanos::from_millis(250))),
        (1500, Fault::Vanish(ClientId(1))),
    ] {
        engine.host_mut().schedule(Instant(ms * 1_000_000), fault);
    }
    turn_until(&mut engine, Instant(SEC));
    engine.reshare(ClientId(2), divvy_policy::Share::new(9).unwrap()).unwrap();
    turn_until(&mut engine, Instant(2 * SEC));
    lines.text()
}

#[test]
fn equal_seeds_give_equal_traces_and_replay() {
    for policy in ["exact", "alps", "alps-basic", "rate"] {
        let trace = eventful(policy, 2, 42);
        assert_eq!(trace, eventful(policy, 2, 42), "{policy}");
        assert_ne!(trace, eventful(policy, 2, 43), "{policy}");
        let decisions = replay(trace.iter().cloned()).unwrap();
        assert!(decisions > 100, "{policy}: {decisions}");
    }
}

#[test]
fn a_tampered_trace_is_found_with_its_line() {
    let trace = eventful("exact", 2, 42);
    let index = trace.iter().rposition(|l| l.contains("\"hold\"")).unwrap();
    // Another is held than the policy decides.
    let mut tampered = trace.clone();
    tampered[index] = tampered[index].replace("\"c\":", "\"c\":9");
    match replay(tampered.into_iter()).unwrap_err() {
        Divergence::Decision { line, .. } => assert_eq!(line, index + 1),
        other => panic!("{other}"),
    }
    // An event is left out: found at the first decision that it would have changed, or the event that it made possible.
    let index = trace.iter().position(|l| l.contains("\"wake\"")).unwrap();
    let mut tampered = trace.clone();
    tampered.remove(index);
    assert!(replay(tampered.into_iter()).is_err());
    // A client that never was.
    let mut tampered = trace.clone();
    tampered.insert(3, r#"{"t":0,"e":"charge","c":77,"ns":1}"#.into());
    let error = replay(tampered.into_iter()).unwrap_err();
    assert_eq!(error.to_string(), "line 4: client 77 never joined or has left");
    // No trace at all.
    assert!(matches!(replay(std::iter::empty()), Err(Divergence::Header(_))));
    let mut tampered = trace;
    tampered[5] = "{".into();
    assert!(matches!(replay(tampered.into_iter()), Err(Divergence::Line { line: 6, .. })));
}

fn fault() -> impl Strategy<Value = Fault> {
    let client = (0u32..5).prop_map(ClientId);
    prop_oneof![
        client.clone().prop_map(Fault::Vanish),
        client.clone().prop_map(Fault::Refuse),
        client.clone().prop_map(Fault::Resume),
        client.clone().prop_map(Fault::Stop),
        client.prop_map(Fault::Continue),
        (0u64..300).prop_map(|ms| Fault::Late(Nanos::from_millis(ms))),
        Just(Fault::ResumeAll),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Nothing that happens to clients ends the run, replays differently, or keeps them from what the machine has.
    #[test]
    fn any_faults_are_survived(
        faults in prop::collection::vec((0u64..2000, fault()), 0..25), policy in 0usize..4, cpus in 1u32..4,
        seed in any::<u64>(), on in 1u64..50, off in 1u64..50,
    ) {
        let policy = ["exact", "alps", "alps-basic", "rate"][policy];
        let spec = gate(policy, cpus);
        let mut engine = build(MachineSpec::typical(cpus, seed), &spec, &[]);
        let lines = Lines::of(&spec);
        engine.record_to(Box::new(lines.clone()));
        for load in [computes(1), sleeps(2, on, off), computes(3), sleeps(1, off, on), computes(7)] {
            engine.host_mut().add_client(load.threads);
            engine.join(divvy_policy::Share::new(load.share).unwrap()).unwrap();
        }
        for &(ms, fault) in &faults {
            engine.host_mut().schedule(Instant(ms * 1_000_000), fault);
        }
        turn_until(&mut engine, Instant(3 * SEC));
        prop_assert!(replay(lines.text().into_iter()).is_ok());
        // A second after the last fault whoever computes and is left has its CPU, and none idles beside somebody held.
        if policy == "exact" {
            engine.host_mut().forget_stats();
            turn_until(&mut engine, Instant(4 * SEC));
            let longest = engine.host().stats().wasted_longest;
            prop_assert!(longest <= Nanos::from_millis(50), "{:?} idle in a row", longest);
        }
        engine.release_all();
        for i in 0..5 {
            let client = ClientId(i);
            let lost = !engine.ledger().clients()[client.index()].present;
            let refused = faults.iter().any(|&(_, fault)| fault == Fault::Refuse(client));
            prop_assert!(lost || refused || !engine.host().is_held(client));
        }
    }
}
