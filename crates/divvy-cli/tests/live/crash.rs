//! Whatever becomes of divvy, nothing that it suspended stays suspended.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::{Running, SPIN, Sandbox, Victim, as_both_users, cpu, eventually, one_cpu};

as_both_users! {
    killed_at_random_moments
    killed_together_with_its_guardian
    a_guardian_that_was_killed_is_replaced
    a_guardian_that_was_stopped_is_replaced
    a_divvy_that_was_stopped_lets_go
    stopped_together_with_its_guardian
}

/// Rounds of each user.
const ROUNDS: u64 = 200;
/// The latest moment of a kill, after the start of the process.
const LATEST: Duration = Duration::from_millis(150);

/// Three that compute, one that sleeps and one that makes children, on one CPU: all but one or two are held.
fn start(sandbox: &Sandbox) -> Running {
    let spin = format!("{SPIN} # client");
    let family = format!("setsid sh -c '{SPIN} # client' & while :; do /bin/true; done # client");
    let words = [
        format!("1:{spin}"),
        format!("2:{spin}"),
        format!("3:{spin}"),
        "1:while :; do sleep 0.005; done # client".to_owned(),
        format!("1:{family}"),
    ];
    let mut args = vec!["share", "--quiet"];
    let cpu = one_cpu();
    args.extend(["--cpus", &cpu]);
    args.extend(words.iter().map(String::as_str));
    sandbox.start(&args)
}

/// Waits until divvy divides: until somebody is held and somebody has run.
fn started(sandbox: &Sandbox) -> Running {
    let running = start(sandbox);
    eventually("somebody to be held while others run", || {
        (!sandbox.suspended().is_empty() && cpu(&sandbox.with("client")) > 10).then_some(())
    });
    running
}

fn killed_at_random_moments(sandbox: &Sandbox) {
    let seed = u64::from(std::process::id());
    let mut random = seed;
    let (mut held_rounds, mut slowest) = (0, Duration::ZERO);
    for round in 0..ROUNDS {
        // SplitMix64: any order of moments will do, and the seed tells it again.
        random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (random ^ (random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let after = Duration::from_nanos((mixed >> 16) % LATEST.as_nanos() as u64);
        let victim = Victim::ALL[(round % 3) as usize];
        let mut running = start(sandbox);
        std::thread::sleep(after);
        let killed = Instant::now();
        running.kill(victim);
        held_rounds += u64::from(!sandbox.suspended().is_empty());
        eventually(
            &format!("nobody to be suspended (seed {seed}, round {round}, {victim:?}, {after:?})"),
            || {
                let left = sandbox.processes();
                // A guardian's last act is done once it is gone, and so is that of a scheduler without a front end.
                left.iter().all(|p| !p.is_held() && !p.is_divvy()).then_some(())
            },
        );
        slowest = slowest.max(killed.elapsed());
        assert_eq!(sandbox.suspended(), [], "seed {seed}, round {round}, {after:?}");
        sandbox.kill_clients();
    }
    println!(
        "{ROUNDS} rounds (seed {seed}); in {held_rounds} somebody was seen suspended; all resumed within {slowest:?}"
    );
}

fn rescue(sandbox: &Sandbox) -> Value {
    let outcome = sandbox.run(&["rescue", "--json"]);
    assert_eq!(outcome.code, Some(0), "{}{}", outcome.stderr, String::from_utf8_lossy(&outcome.stdout));
    serde_json::from_slice(&outcome.stdout).expect("JSON")
}

/// Whether a rescue has resumed or thawed somebody.
fn has_let_go(report: &serde_json::Value) -> bool {
    !report["resumed"].as_array().expect("a list").is_empty() || report["thawed"] != 0
}

fn killed_together_with_its_guardian(sandbox: &Sandbox) {
    let mut running = started(sandbox);
    let guardian = sandbox.guardian().expect("a guardian");
    // A stopped divvy cannot put another in its place meanwhile.
    running.signal_scheduler(Signal::STOP);
    kill_process(guardian, Signal::KILL).unwrap();
    running.kill(Victim::Scheduler);
    let held = sandbox.suspended();
    assert!(!held.is_empty(), "somebody was held");
    // Nobody is left to resume them.
    std::thread::sleep(Duration::from_millis(500));
    assert!(sandbox.suspended().len() >= held.len(), "signals take effect late, and nobody undoes them");
    let report = rescue(sandbox);
    assert!(has_let_go(&report), "{report}");
    assert_eq!(report["errors"], serde_json::json!([]), "{report}");
    eventually("all to be resumed", || sandbox.suspended().is_empty().then_some(()));
    assert!(!has_let_go(&rescue(sandbox)), "the table is gone");
}

/// The next start of divvy does what `divvy rescue` does.
#[test]
fn the_next_divvy_rescues() {
    let sandbox = Sandbox::own();
    let mut running = started(&sandbox);
    let guardian = sandbox.guardian().expect("a guardian");
    running.signal_scheduler(Signal::STOP);
    kill_process(guardian, Signal::KILL).unwrap();
    running.kill(Victim::Scheduler);
    assert!(!sandbox.suspended().is_empty(), "somebody was held");
    let outcome = sandbox.run(&["share", "1:true"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let told = ["suspended", "frozen"].map(|how| format!("that an earlier divvy had left {how}"));
    assert!(told.iter().any(|told| outcome.stderr.contains(told)), "{}", outcome.stderr);
    assert_eq!(sandbox.suspended(), []);
}

/// Somebody is held and somebody runs, now as before.
fn check_divides(sandbox: &Sandbox) {
    let before = cpu(&sandbox.with("client"));
    eventually("scheduling to go on", || {
        (!sandbox.suspended().is_empty() && cpu(&sandbox.with("client")) > before + 20).then_some(())
    });
}

fn another_guardian(sandbox: &Sandbox, old: Pid) -> Pid {
    eventually("another guardian", || sandbox.guardian().filter(|&pid| pid != old))
}

fn a_guardian_that_was_killed_is_replaced(sandbox: &Sandbox) {
    let mut running = started(sandbox);
    let mut guardian = sandbox.guardian().expect("a guardian");
    for _ in 0..3 {
        kill_process(guardian, Signal::KILL).unwrap();
        guardian = another_guardian(sandbox, guardian);
        check_divides(sandbox);
    }
    // The new one is as good as the first.
    running.kill(Victim::Scheduler);
    eventually("all to be resumed", || {
        (sandbox.suspended().is_empty() && sandbox.guardian().is_none()).then_some(())
    });
}

fn a_guardian_that_was_stopped_is_replaced(sandbox: &Sandbox) {
    let mut running = started(sandbox);
    let guardian = sandbox.guardian().expect("a guardian");
    kill_process(guardian, Signal::STOP).unwrap();
    another_guardian(sandbox, guardian);
    check_divides(sandbox);
    running.kill(Victim::Scheduler);
    eventually("all to be resumed", || {
        (sandbox.suspended().is_empty() && sandbox.guardian().is_none()).then_some(())
    });
}

fn a_divvy_that_was_stopped_lets_go(sandbox: &Sandbox) {
    let running = started(sandbox);
    running.signal_scheduler(Signal::STOP);
    let clients = || sandbox.with("client");
    eventually("all clients to run", || clients().iter().all(|p| !p.is_held()).then_some(()));
    let stopped = Instant::now();
    while stopped.elapsed() < Duration::from_secs(2) {
        assert!(clients().iter().all(|p| !p.is_held()), "held by nobody: {:?}", clients());
        std::thread::sleep(Duration::from_millis(20));
    }
    running.signal_scheduler(Signal::CONT);
    check_divides(sandbox);
    running.signal(Signal::INT);
    assert_eq!(running.end().code, Some(130));
    assert_eq!(sandbox.processes(), []);
}

fn stopped_together_with_its_guardian(sandbox: &Sandbox) {
    let running = started(sandbox);
    let guardian = sandbox.guardian().expect("a guardian");
    kill_process(guardian, Signal::STOP).unwrap();
    running.signal_scheduler(Signal::STOP);
    let held = || sandbox.with("client").iter().filter(|p| p.is_held()).count();
    eventually("divvy to stand", || {
        sandbox.suspended().iter().any(|p| p.pid == running.scheduler()).then_some(())
    });
    assert!(held() > 0, "somebody was held");
    let report = rescue(sandbox);
    assert_eq!(
        report["stopped_owners"],
        serde_json::json!([running.scheduler().as_raw_nonzero().get()]),
        "{report}"
    );
    assert!(has_let_go(&report), "{report}");
    eventually("all clients to run", || (held() == 0).then_some(()));
    kill_process(guardian, Signal::CONT).unwrap();
    running.signal_scheduler(Signal::CONT);
    check_divides(sandbox);
    running.signal(Signal::INT);
    assert_eq!(running.end().code, Some(130));
}
