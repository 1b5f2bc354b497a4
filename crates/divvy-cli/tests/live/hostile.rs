//! What can happen to anybody on a machine: no process to be had, no descriptor, a debugger. docs/hostile.md has them all.

use std::process::Stdio;

use divvy_linux::Status;
use serde_json::Value;

use crate::harness::{
    Outcome, Running, SPIN, Sandbox, check_report, client, eventually, one_cpu, skip, two_cpus,
};

/// Runs divvy under limits that `prlimit` sets.
fn limited(sandbox: &Sandbox, limit: &str, args: &[&str]) -> Outcome {
    let mut command = sandbox.command("prlimit");
    command.arg(limit).arg(sandbox.program()).args(args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Running { child: command.spawn().expect("start prlimit") }.end()
}

/// It works, or says what it could not have; nobody is left behind either way. Returns whether it failed.
fn check_limited(sandbox: &Sandbox, limit: &str, commands: &[&str]) -> bool {
    let args: Vec<&str> = ["share", "--json"].iter().chain(commands).copied().collect();
    let outcome = limited(sandbox, limit, &args);
    let failed = outcome.code == Some(5);
    if failed {
        assert!(outcome.stderr.contains("divvy: "), "{limit}: {}", outcome.stderr);
        assert!(outcome.stdout.is_empty(), "{limit}: no report of what did not run");
    } else {
        // A command's own shell may be the one that cannot fork.
        assert!(matches!(outcome.code, Some(0 | 1)), "{limit}: {:?}: {}", outcome.code, outcome.stderr);
    }
    eventually("everybody's end", || sandbox.processes().is_empty().then_some(()));
    failed
}

/// `fork` gives EAGAIN, wherever that falls: at the guardian, at a thread, at the first command or a later one.
#[test]
fn a_full_table_of_processes_is_told_and_leaves_nobody() {
    let Some(sandbox) = Sandbox::nobody("a full table of processes") else { return };
    let mut failed = 0;
    for most in 1..=8 {
        let limit = format!("--nproc={most}:{most}");
        failed += u32::from(check_limited(&sandbox, &limit, &["1:sleep 0.1", "1:sleep 0.1", "1:sleep 0.1"]));
    }
    assert!(failed > 0, "with one process to a user divvy cannot start anything");
}

/// The same for `divvy run`, which starts a divvyd as well: there is always a word, and nobody waits for what never comes.
#[test]
fn a_client_that_gets_no_process_says_so() {
    let Some(sandbox) = Sandbox::nobody("a client without a process") else { return };
    let mut failed = 0;
    for most in (1..=14).rev() {
        let limit = format!("--nproc={most}:{most}");
        let outcome = limited(&sandbox, &limit, &["run", "--", "true"]);
        if outcome.code != Some(0) {
            failed += 1;
            assert_eq!(outcome.code, Some(5), "{limit}: {}", outcome.stderr);
            assert!(
                outcome.stderr.starts_with("divvy: ") && outcome.stderr.contains("(ulimit -u)"),
                "{limit}: {}",
                outcome.stderr
            );
        }
        eventually("the command's end", || sandbox.with("true").is_empty().then_some(()));
    }
    assert!(failed > 0, "with one process to a user nothing can be started");
}

/// Each command takes a descriptor; so do timer, signals, table and guardian.
#[test]
fn without_descriptors_it_is_told_and_leaves_nobody() {
    let sandbox = Sandbox::own();
    let commands: Vec<&str> = vec!["1:sleep 0.1"; 12];
    let mut failed = 0;
    for most in [5, 8, 12, 16, 20, 24, 64] {
        failed += u32::from(check_limited(&sandbox, &format!("--nofile={most}:{most}"), &commands));
    }
    assert!(failed > 0, "five descriptors are too few");
}

/// Asks the kernel for something about a tracee; what is traced has to be asked by the thread that traces it.
fn ptrace(request: libc::c_uint, pid: rustix::process::Pid) -> std::io::Result<()> {
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: takes and returns numbers only.
    match unsafe { libc::ptrace(request, pid.as_raw_nonzero().get(), none, none) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// A client that its debugger has stopped counts as stopped by somebody else: the others have its time, divvy goes on, and
/// once the debugger has gone it runs, and is held, like the others.
#[test]
fn a_client_under_a_debugger_keeps_nobody_up() {
    /// In ticks of 10 ms: some cycles.
    const WORK: u64 = 50;
    let sandbox = Sandbox::own();
    let (a, b) = (format!("1:: traced; {SPIN}"), format!("1:: other; {SPIN}"));
    let running = sandbox.start(&["share", "--cpus", &one_cpu(), "--report", "report.json", &a, &b]);
    let traced = sandbox.wait_for(1, ": traced")[0].pid;
    let find = |word: &str| sandbox.with(word).into_iter().next();
    let cpu = |word: &str| find(word).map_or(0, |p| p.cpu);
    eventually("both to run", || (cpu(": traced") > 5 && cpu(": other") > 5).then_some(()));
    if let Err(e) = ptrace(libc::PTRACE_SEIZE, traced) {
        running.signal(rustix::process::Signal::TERM);
        running.end();
        return skip("a debugger", &format!("this user may trace nobody: {e}"));
    }
    ptrace(libc::PTRACE_INTERRUPT, traced).expect("seized");
    // Held, or stopped at its next turn: from then on it stands until the debugger lets it go.
    eventually("the tracee to stand under its debugger", || {
        find(": traced").filter(|p| p.state == 't').map(|_| ())
    });
    let (stands, goes_on) = (cpu(": traced"), cpu(": other"));
    eventually("the other to go on", || (cpu(": other") >= goes_on + WORK).then_some(()));
    assert!(cpu(": traced") <= stands + 1, "it stood");
    ptrace(libc::PTRACE_DETACH, traced).expect("traced by this thread");
    let freed = cpu(": traced");
    eventually("it to run again", || (cpu(": traced") >= freed + WORK).then_some(()));
    running.signal(rustix::process::Signal::TERM);
    assert_eq!(running.end().code, Some(143));
    let report: Value = sandbox.report("report.json");
    check_report(&report.to_string());
    for i in 0..2 {
        assert!(client(&report, i, "service_ns").as_u64() > Some(0));
    }
}

/// On Linux 6.18 such a storm keeps everybody else from both CPUs for seconds, divvy as well: computing had .1 to 8 % where 25 were
/// due.
#[test]
fn who_wakes_others_all_the_time_has_its_share() {
    let test = "who_wakes_others_all_the_time_has_its_share";
    let Some(cpus) = two_cpus(test) else { return };
    let permitted =
        divvy_linux::doctor().into_iter().any(|f| f.what == "wake-ups" && f.status == Status::Good);
    if !permitted {
        return skip(test, "no real-time priority is permitted");
    }
    let pair = "perl -e 'pipe(A,B); if (fork) { $b = \"x\" x 512; while (1) { syswrite B, $b } } while (sysread A, $b, 512) {}'";
    let storm = format!("3:for i in 1 2 3 4; do {pair} & done; wait");
    let sandbox = Sandbox::own();
    let outcome = sandbox.run(&[
        "share",
        "--cpus",
        &cpus,
        "--for",
        "6s",
        "--json",
        &storm,
        &format!("1:({SPIN}) & {SPIN}"),
    ]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let report = check_report(&String::from_utf8(outcome.stdout).expect("text"));
    let used = [0, 1].map(|i| client(&report, i, "service_ns").as_f64().expect("a number"));
    let computes = used[1] / (used[0] + used[1]);
    assert!((0.2..0.3).contains(&computes), "{computes} of a quarter: {report}");
}
