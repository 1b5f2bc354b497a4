//! What somebody else does to a client: it stays stopped, and does not stay resumed.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Process, SPIN, Sandbox, as_both_users, cpu, eventually, one_cpu};

as_both_users! { a_client_resumed_by_somebody_else_is_held_again }

/// Ticks of 10 ms that show that somebody really runs.
const REAL_WORK: u64 = 20;
/// How often a client is stopped.
const ROUNDS: u64 = 8;
/// A stop that arrives when our own was sent and the process has not stood still yet is one with it: the kernel keeps one
/// of each signal. On a busy CPU that takes some of the kernel's slices in each cycle. So many in a row are a mistake.
const MAX_STOPS: u64 = 12;

fn one(sandbox: &Sandbox, name: &str) -> Process {
    let mut found = sandbox.wait_for(1, name);
    found.remove(0)
}

/// Stops client-a as somebody else would; says whether it stays so while client-b goes on.
fn stop_for_good(sandbox: &Sandbox, pid: Pid) -> bool {
    kill_process(pid, Signal::STOP).unwrap();
    // A look or two later divvy knows; from then on it is left alone, while the other goes on.
    std::thread::sleep(Duration::from_millis(400));
    let stopped = one(sandbox, "client-a");
    let other = one(sandbox, "client-b").cpu;
    eventually("the other to go on", || {
        let now = one(sandbox, "client-a");
        if (now.state, now.cpu) != ('T', stopped.cpu) {
            return Some(false);
        }
        (one(sandbox, "client-b").cpu >= other + REAL_WORK).then_some(true)
    })
}

#[test]
fn a_client_stopped_by_somebody_else_stays_stopped() {
    let sandbox = &Sandbox::unprivileged();
    let (a, b) = (format!("1:: client-a; {SPIN}"), format!("1:: client-b; {SPIN}"));
    let running = sandbox.start(&["share", "--trace", "trace.jsonl", "--cpus", &one_cpu(), &a, &b]);
    let _ = (one(sandbox, "client-a"), one(sandbox, "client-b"));
    let mut lost = 0;
    for round in 0..ROUNDS {
        // At different moments of a cycle of 20 ms: it may run or be held.
        std::thread::sleep(Duration::from_millis(100 + round * 3));
        let pid = one(sandbox, "client-a").pid;
        let tries = (1..=MAX_STOPS).find(|_| stop_for_good(sandbox, pid));
        lost += tries.unwrap_or_else(|| panic!("round {round}: it was resumed {MAX_STOPS} times")) - 1;
        let stopped = one(sandbox, "client-a");
        kill_process(pid, Signal::CONT).unwrap();
        eventually("it to go on", || (one(sandbox, "client-a").cpu >= stopped.cpu + REAL_WORK).then_some(()));
    }
    println!("{ROUNDS} rounds; {lost} stops by somebody else were one with our own");
    // Both are divided among again.
    let before = (one(sandbox, "client-a").cpu, one(sandbox, "client-b").cpu);
    let (x, y) = eventually("both to go on", || {
        let (x, y) = (one(sandbox, "client-a").cpu - before.0, one(sandbox, "client-b").cpu - before.1);
        (x + y >= 8 * REAL_WORK).then_some((x, y))
    });
    assert!(x.abs_diff(y) <= 2 * REAL_WORK, "{x} and {y} ticks");
    running.signal(Signal::INT);
    let outcome = running.end();
    assert_eq!(outcome.code, Some(130), "{}", outcome.stderr);
    let trace = std::fs::read_to_string(sandbox.path("trace.jsonl")).unwrap();
    assert!(trace.contains(r#""e":"block","c":0}"#), "it counted as blocked");
}

fn a_client_resumed_by_somebody_else_is_held_again(sandbox: &Sandbox) {
    let (a, b) = (format!("1:: client-a; {SPIN}"), format!("1:: client-b; {SPIN}"));
    // A quantum so long that nobody's turn ends while we look.
    let running =
        sandbox.start(&["share", "--backend", "signals", "--quantum", "10s", "--cpus", &one_cpu(), &a, &b]);
    let both = || [one(sandbox, "client-a"), one(sandbox, "client-b")];
    let held = eventually("one to be held", || {
        let found: Vec<_> = both().into_iter().filter(|p| p.state == 'T').collect();
        (found.len() == 1 && cpu(&both()) > REAL_WORK).then(|| found[0].clone())
    });
    for _ in 0..3 {
        // The kernel has set it going when this returns.
        kill_process(held.pid, Signal::CONT).unwrap();
        let again = eventually("it to be held again", || {
            both().into_iter().find(|p| p.pid == held.pid && p.state == 'T')
        });
        let other = both().into_iter().find(|p| p.pid != held.pid).unwrap();
        assert_ne!(other.state, 'T', "it was its turn, which proves nothing: {again:?}");
    }
    running.signal(Signal::INT);
    assert_eq!(running.end().code, Some(130));
}
