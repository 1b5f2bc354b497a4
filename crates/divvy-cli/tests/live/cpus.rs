//! `divvy run --cpus`: a command on some of the CPUs that divvyd divides.

use divvy_linux::CpuMask;
use divvy_linux::cgroup::Survey;
use rustix::process::Signal;

use crate::daemon::start_divvyd;
use crate::harness::{Outcome, SPIN, Sandbox, eventually, one_cpu, skip};

/// Says where it may run, and where what it starts may.
const WHERE: &str = "grep Cpus_allowed_list /proc/self/status; exec grep Cpus_allowed_list /proc/self/status";

fn run(sandbox: &Sandbox, cpus: &str) -> Outcome {
    sandbox.run(&["run", "--cpus", cpus, "--", "sh", "-c", WHERE])
}

#[track_caller]
fn check_kept(sandbox: &Sandbox, cpus: &str) {
    let outcome = run(sandbox, cpus);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let said = String::from_utf8(outcome.stdout).expect("text");
    assert_eq!(said, format!("Cpus_allowed_list:\t{cpus}\n").repeat(2));
}

#[track_caller]
fn check_refused(sandbox: &Sandbox, cpus: &str, why: &str) {
    let outcome = run(sandbox, cpus);
    assert_eq!((outcome.code, outcome.stdout.as_slice()), (Some(2), &b""[..]), "{}", outcome.stderr);
    assert!(outcome.stderr.contains(why), "{}", outcome.stderr);
}

/// All CPUs that a divvyd of ours divides, as the kernel writes lists of them.
fn all() -> CpuMask {
    let mut mask = CpuMask::default();
    divvy_linux::cpus_to_divide(None).expect("CPUs").into_iter().for_each(|cpu| mask.insert(cpu));
    mask
}

#[test]
fn the_cpus_that_divvyd_divides_can_be_named() {
    let sandbox = Sandbox::own();
    let cpu = one_cpu();
    start_divvyd(&sandbox, &["--backend", "signals", "--cpus", &cpu, "--linger", "1m"]);
    check_kept(&sandbox, &cpu);
    check_refused(&sandbox, "1000", "--cpus 1000: divvyd does not divide CPU 1000");
    check_refused(&sandbox, "x", "--cpus x: 'x' is no CPU; write numbers and ranges");
}

#[test]
fn who_holds_by_signals_keeps_nobody_to_some_cpus() {
    let (sandbox, all) = (Sandbox::own(), all());
    if all.iter().count() < 2 {
        return skip("who_holds_by_signals_keeps_nobody_to_some_cpus", "one CPU");
    }
    start_divvyd(&sandbox, &["--backend", "signals", "--linger", "1m"]);
    check_refused(&sandbox, &one_cpu(), "together, by signals, and keeps nobody to some of them");
    check_kept(&sandbox, &all.to_string());
}

#[test]
fn the_kernels_weights_keep_a_client_to_some_cpus() {
    let (sandbox, all) = (Sandbox::own(), all());
    if all.iter().count() < 2 {
        return skip("the_kernels_weights_keep_a_client_to_some_cpus", "one CPU");
    }
    if let Err(why) = Survey::new().weights {
        return skip("the_kernels_weights_keep_a_client_to_some_cpus", &why);
    }
    start_divvyd(&sandbox, &["--backend", "cgroup", "--linger", "1m"]);
    check_kept(&sandbox, &one_cpu());
    check_kept(&sandbox, &all.to_string());
}

/// Who starts something as soon as it runs has been sent to a CPU at that moment: what it starts is not kept there.
#[test]
fn what_a_command_starts_may_run_wherever_it_may() {
    let all = all();
    if all.iter().count() < 2 {
        return skip("what_a_command_starts_may_run_wherever_it_may", "one CPU");
    }
    let sandbox = Sandbox::own();
    let starts = format!("1:({SPIN}) & {SPIN} # client");
    let (most, some) = (format!("6:{SPIN} # client"), format!("1:{SPIN} # client"));
    for _ in 0..3 {
        let running = sandbox.start(&["share", &starts, &most, &some]);
        let mut four = 0;
        // Whoever is sent somewhere just now is kept there for some microseconds.
        eventually("all to be allowed on all CPUs", || {
            let pids: Vec<_> = sandbox.with("client").iter().map(|p| p.pid).collect();
            let may = |&pid: &_| CpuMask::of_thread(pid).ok().flatten() == Some(all);
            four += u32::from(pids.len() == 4 && pids.iter().all(may));
            (four >= 5).then_some(())
        });
        running.signal(Signal::TERM);
        running.end();
        assert_eq!(sandbox.processes(), []);
    }
}
