//! `divvy run --cpus`, and `cpus` of the tasks of `divvy share`: commands on some of the CPUs that are divided.

use std::time::Duration;

use divvy_linux::CpuMask;
use divvy_linux::cgroup::Survey;
use rustix::process::Signal;

use crate::backend::{trees, weight_of, weights};
use crate::daemon::start_divvyd;
use crate::harness::{Outcome, SPIN, Sandbox, eventually, one_cpu, skip, two_cpus};
use crate::seen;

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

/// Runs a task of a file that is kept to `cpus[0]`, one of the command line that is to `cpus[1]`, where there is one, and one that
/// nothing is said of. Each writes into a file of its name where it may run.
fn share(sandbox: &Sandbox, options: &[&str], cpus: [&str; 2]) -> Outcome {
    for name in ["here", "there", "any"] {
        let _ = std::fs::remove_file(sandbox.path(name)); // There is none at first.
    }
    let command = |name: &str| format!("exec >{name}; {WHERE}");
    let here = command("here");
    let text = format!("[[task]]\nname = 'here'\nshare = 3\ncpus = '{}'\ncommand = '{here}'\n", cpus[0]);
    sandbox.write("tasks.toml", &text);
    let there = format!("there={}", cpus[1]);
    let mut args = [&["share", "--quiet", "--file", "tasks.toml"], options].concat();
    if !cpus[1].is_empty() {
        args.extend(["--cpus", there.as_str()]);
    }
    let tasks = [format!("there=1:{}", command("there")), format!("any=1:{}", command("any"))];
    args.extend(tasks.iter().map(String::as_str));
    sandbox.run(&args)
}

#[track_caller]
fn check_where(sandbox: &Sandbox, outcome: &Outcome, expected: [&str; 3]) {
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let said = ["here", "there", "any"].map(|name| std::fs::read_to_string(sandbox.path(name)).expect(name));
    assert_eq!(said, expected.map(|cpus| format!("Cpus_allowed_list:\t{cpus}\n").repeat(2)));
}

#[test]
fn the_kernels_weights_keep_a_task_to_some_cpus() {
    let (sandbox, mask) = (Sandbox::own(), all());
    let (one, last) = (one_cpu(), mask.iter().last().expect("a CPU").to_string());
    if mask.iter().count() < 2 {
        return skip("the_kernels_weights_keep_a_task_to_some_cpus", "one CPU");
    }
    if let Err(why) = Survey::new().weights {
        return skip("the_kernels_weights_keep_a_task_to_some_cpus", &why);
    }
    let all = mask.to_string();
    check_where(&sandbox, &share(&sandbox, &["--backend", "cgroup"], [&one, &last]), [&one, &last, &all]);
    // Some of those that the run divides.
    let outcome = share(&sandbox, &["--backend", "cgroup", "--cpus", &last], [&last, ""]);
    check_where(&sandbox, &outcome, [&last; 3]);
    // And by a divvyd.
    start_divvyd(&sandbox, &["--backend", "cgroup", "--linger", "1m"]);
    check_where(&sandbox, &share(&sandbox, &["--group", "g"], [&one, &last]), [&one, &last, &all]);

    let kept = format!("kept={one}");
    let run =
        sandbox.start(&["share", "--quiet", "--backend", "cgroup", "--cpus", &kept, "kept=1:sleep 600"]);
    eventually("the run to be seen with its task's CPUs", || {
        let seen = seen::json(&sandbox, &["ls", "--json"]).to_string();
        seen.contains(&format!("\"cpus\":\"{one}\"")).then_some(())
    });
    run.signal(Signal::TERM);
    run.end();
}

#[test]
fn a_run_that_holds_keeps_no_task_to_some_cpus() {
    let (sandbox, mask) = (Sandbox::own(), all());
    let (one, all) = (one_cpu(), mask.to_string());
    let refused = |options: &[&str], cpus: [&str; 2], why: &str| {
        let outcome = share(&sandbox, options, cpus);
        assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
        assert!(outcome.stderr.contains(why), "{}", outcome.stderr);
        assert!(["here", "there", "any"].iter().all(|name| !sandbox.path(name).exists()), "started");
    };
    let signals = ["--backend", "signals"];
    // Whoever is sent somewhere just now is kept there for a moment, so that they need not say that they may run anywhere.
    let outcome = share(&sandbox, &signals, [&all, &all]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let on_one = [&signals[..], &["--cpus", &one]].concat();
    check_where(&sandbox, &share(&sandbox, &on_one, [&one, &one]), [&one; 3]);
    refused(&on_one, ["1000", ""], "here: cpus 1000: this run does not divide CPU 1000; name some of");
    refused(&on_one, [&one, "x"], "--cpus x: 'x' is no CPU; write numbers and ranges");
    refused(
        &on_one,
        ["x", ""],
        "task 1 (here): cpus: 'x' is no CPU; write numbers and ranges, as in \"0,2-3\"",
    );
    if mask.iter().count() < 2 {
        return skip("a_run_that_holds_keeps_no_task_to_some_cpus: of several", "one CPU");
    }
    let why =
        format!("this run divides the CPUs {all} together, by signals, and keeps nobody to some of them");
    refused(&signals, [&one, ""], &format!("here: cpus {one}: {why}; give --backend cgroup"));
    refused(&signals, [&all, &one], &format!("there: cpus {one}: {why}"));
    start_divvyd(&sandbox, &["--backend", "signals", "--linger", "1m"]);
    refused(
        &["--group", "g"],
        [&one, ""],
        "together, by signals, and keeps nobody to some of them; start it anew with",
    );
}

/// A script that starts programs and mostly sleeps waits for nobody who computes: it was held for good when it woke, in half of all runs.
#[test]
fn who_mostly_sleeps_in_what_it_starts_goes_on() {
    if all().iter().count() < 2 {
        return skip("who_mostly_sleeps_in_what_it_starts_goes_on", "one CPU");
    }
    let sandbox = Sandbox::own();
    let child =
        sandbox.write("child", "sleep .03\nwhile read -r line; do :; done </proc/self/status\necho\n");
    let out = sandbox.path("rounds");
    let sleeps = format!("1:while :; do sh {} >> {}; done # client", child.display(), out.display());
    let spins = format!("1:{SPIN} # client");
    for run in 0..4 {
        sandbox.write("rounds", "");
        let outcome = sandbox.run(&["share", "--quiet", "--for", "2s", &sleeps, &spins, &spins]);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        let rounds = std::fs::read_to_string(&out).expect("readable").lines().count();
        // Each takes 40 ms where nobody is in its way.
        assert!(rounds >= 15, "run {run}: {rounds} rounds in 2 s");
    }
    assert_eq!(sandbox.processes(), []);
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

/// Beside whoever is never held, because it is due all of a CPU, there is nothing for the kernel to even out. Once it has a second thread
/// it is held in its turn, and weighs what others do.
#[test]
fn who_is_due_all_of_a_cpu_weighs_more() {
    let test = "who_is_due_all_of_a_cpu_weighs_more";
    let (Some(ground), Some(cpus)) = (weights(test), two_cpus(test)) else { return };
    let (sandbox, one) = (Sandbox::own(), format!("1:{SPIN}"));
    let more = format!("6:i=0; while [ $i -lt 3000000 ]; do i=$((i+1)); done; ({SPIN}) & {SPIN}");
    let args =
        ["share", "--quiet", "--backend", "idle", "--quantum", "50ms", "--cpus", &cpus, &one, &one, &more];
    let running = sandbox.start(&args);
    let look = || {
        std::thread::sleep(Duration::from_millis(100)); // Who looks all the time is a stranger.
        let tree = trees(&ground, running.scheduler()).pop()?;
        let [first, second, third] = ["c0", "c1", "c2"].map(|leaf| weight_of(&tree, leaf));
        assert_eq!(first, second, "neither is ever due all of a CPU");
        Some((first?, third?))
    };
    let (ordinary, _) = eventually("it to weigh more", || look().filter(|(others, its)| *its == 4 * others));
    assert!([100, 1024].contains(&ordinary), "{ordinary}");
    let equal = || (0..8).all(|_| look() == Some((ordinary, ordinary)));
    eventually("it to weigh what others do, for a while", || equal().then_some(()));
    running.signal(Signal::TERM);
    running.end();
}
