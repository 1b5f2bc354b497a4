//! divvy's books against the kernel's: what a command is charged is what the kernel has it down for, by its cgroup, by a counter of
//! its tree and by clocks and scans alike. Never more than the machine had.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::{
    ENOUGH_TICKS, Process, SPIN, Sandbox, check_fractions, eventually, one_cpu, skip, two_cpus,
};

/// By the best that there is (a cgroup where one is ours), by a counter, and as where the kernel refuses one.
const SOURCES: [&str; 3] = ["auto", "perf", "clocks"];
/// The kernel books user and system time in ticks of 10 ms where it tells of children.
const TICK_NS: f64 = 10e6;
/// What a counter may miss of a tree of short-lived processes: the switches, and the way to the first instruction.
const MAX_ERROR: f64 = 0.03;

/// A report, and what the kernel says that divvy and everybody below it used, ns: those that divvy waited for, whatever their
/// parents did, are in it. It ends with its commands, or once they used so many `ticks` of 10 ms.
#[expect(clippy::zombie_processes, reason = "wait4 waits for it, and tells what it used")]
fn run_and_reckon(sandbox: &Sandbox, source: &str, ticks: Option<u64>, args: &[&str]) -> (Value, f64) {
    let mut all = vec!["share", "--cpus"];
    let cpu = one_cpu();
    all.push(&cpu);
    all.extend(["--quiet", "--report", "report.json"]);
    all.extend(args);
    let mut command = sandbox.divvy(&all);
    command.env("DIVVY_ACCOUNTS", source).stdin(Stdio::null()).stdout(Stdio::null());
    let child = command.spawn().expect("divvy starts");
    let pid = i32::try_from(child.id()).expect("a pid");
    if let Some(ticks) = ticks {
        eventually("enough work", || (sandbox.worked() >= ticks).then_some(()));
        kill_process(Pid::from_child(&child), Signal::TERM).expect("our child");
    }
    let (mut status, mut usage) = (0, std::mem::MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: waits for our own child, and both places are ours to be written to.
    let usage = unsafe {
        assert_eq!(libc::wait4(pid, &raw mut status, 0, usage.as_mut_ptr()), pid);
        usage.assume_init()
    };
    let ns = |t: libc::timeval| t.tv_sec as f64 * 1e9 + t.tv_usec as f64 * 1e3;
    (sandbox.report("report.json"), ns(usage.ru_utime) + ns(usage.ru_stime))
}

fn service(report: &Value) -> f64 {
    report["clients"].as_array().expect("clients").iter().filter_map(|c| c["service_ns"].as_f64()).sum()
}

/// What divvy charged is at most what all used, and at least that less its own and what is in nobody's books.
fn check_books(report: &Value, used: f64, processes: f64, what: &str) {
    let (charged, own) = (service(report), report["self"]["cpu_ns"].as_f64().expect("a number"));
    let slack = TICK_NS + used * MAX_ERROR;
    assert!(charged <= used + slack, "{what}: charged {charged}, used {used}");
    // To start divvy, and to end it, is no client's: a few ms, and in a debug build some more.
    let overhead = own + 20.0 * TICK_NS;
    assert!(
        charged >= used - overhead - slack - processes * TICK_NS,
        "{what}: charged {charged}, used {used}"
    );
    let wall = report["wall_ns"].as_f64().expect("a number");
    assert!(charged <= wall + 2.0 * TICK_NS, "{what}: more than the CPU had: {charged} in {wall}");
}

#[test]
fn a_command_that_ends_after_its_child_is_charged_once() {
    for source in SOURCES {
        for command in [
            "head -c 300M /dev/zero | sha256sum; true",
            "sh -c 'head -c 300M /dev/zero | md5sum; :'; exit 0",
            "(head -c 200M /dev/zero | sha256sum) & (head -c 200M /dev/zero | sha256sum) & wait; true",
        ] {
            let sandbox = Sandbox::own();
            let (report, used) = run_and_reckon(&sandbox, source, None, &[&format!("1:{command}")]);
            check_books(&report, used, 8.0, &format!("{source}: {command}"));
        }
    }
}

/// A line of forks, waits, pipelines, processes in the background that outlive their parents, and sessions of their own, made
/// from a seed.
fn random_tree(seed: &mut u64, depth: u32) -> String {
    let mut next = |n: u64| {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) % n
    };
    let work = format!("head -c {}M /dev/zero | md5sum", 3 + next(40));
    if depth == 0 {
        return work;
    }
    match next(7) {
        0 => format!("{}; {}", random_tree(seed, depth - 1), random_tree(seed, depth - 1)),
        1 => format!("({}) & {}; wait", random_tree(seed, depth - 1), random_tree(seed, depth - 1)),
        // Nobody waits for it: its parent is gone before it is.
        2 => format!("(({}) &); {}", random_tree(seed, depth - 1), random_tree(seed, depth - 1)),
        3 => format!("sh -c '{work}; true'; {}", random_tree(seed, depth - 1)),
        4 => format!("setsid -w sh -c '{work}'; {}", random_tree(seed, depth - 1)),
        5 => format!("env -i PATH=\"$PATH\" setsid -f sh -c '{work}'; {}", random_tree(seed, depth - 1)),
        _ => format!("for i in 1 2 3 4 5 6; do {work}; done; {}", random_tree(seed, depth - 1)),
    }
}

#[test]
fn random_trees_are_charged_what_the_kernel_charges_them() {
    for source in SOURCES {
        for first in 0..5 {
            let mut seed = first;
            let tree = random_tree(&mut seed, 4);
            let sandbox = Sandbox::own();
            let (report, used) = run_and_reckon(&sandbox, source, None, &[&format!("1:{tree}")]);
            // By clocks a process that came and went unseen below one that left nobody waiting is in nobody's books.
            let unseen = if source == "clocks" { 40.0 } else { 0.0 };
            check_books(&report, used, unseen, &format!("{source}, seed {first}: {tree}"));
            assert_eq!(sandbox.processes(), [], "{source}, seed {first}");
        }
    }
}

/// The listed mark of a command is its environment, its group and its session; a daemon keeps none of them.
#[test]
fn a_daemon_without_an_environment_does_not_escape() {
    let sandbox = Sandbox::own();
    // The sandbox finds its processes by a mark, so that much stays.
    let daemon =
        format!("env -i PATH=\"$PATH\" DIVVY_TEST_MARK=\"$DIVVY_TEST_MARK\" setsid -f sh -c '(({SPIN}) &)'");
    let (report, _) =
        run_and_reckon(&sandbox, "auto", Some(ENOUGH_TICKS), &[&format!("1:{daemon}"), &format!("3:{SPIN}")]);
    check_fractions(&report, &[0.25, 0.75]);
    assert_eq!(sandbox.processes(), [], "the daemon has outlived the run");
}

/// The children of a serial loop are each too young to be on a list.
#[test]
fn a_loop_of_short_lived_children_gets_its_share() {
    for source in SOURCES {
        let sandbox = Sandbox::own();
        let serial = "while :; do head -c 2M /dev/zero | md5sum >/dev/null; done";
        let (report, _) = run_and_reckon(
            &sandbox,
            source,
            Some(2 * ENOUGH_TICKS),
            &[&format!("3:{serial}"), &format!("1:{SPIN}")],
        );
        check_fractions(&report, &[0.75, 0.25]);
    }
}

/// What the kernel has these processes down for, their main threads alone, ns.
fn on_the_kernels_books(processes: &[Process]) -> f64 {
    let used = |p: &Process| {
        let text = std::fs::read_to_string(format!("/proc/{}/schedstat", p.pid)).unwrap_or_default();
        text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0)
    };
    processes.iter().map(used).sum()
}

/// Where a wake-up takes the CPU from somebody, the kernel charges whoever wakes from that moment on, and perf events charge whoever is
/// interrupted until the interrupt has come: for two who wake each other all the time that is half of what they use.
#[test]
fn who_wakes_each_other_all_the_time_is_charged_by_the_books() {
    let Some(cpus) = two_cpus("books::who_wakes_each_other_all_the_time_is_charged_by_the_books") else {
        return;
    };
    if !std::path::Path::new("/proc/self/schedstat").exists() {
        return skip("books::who_wakes_each_other_all_the_time_is_charged_by_the_books", "no schedstat");
    }
    let to_and_fro = "exec perl -e 'pipe(A,B); pipe(C,D); if (fork) { while (1) { syswrite B, 1; sysread C, $b, 1 } } \
                      while (sysread A, $b, 1) { syswrite D, 1 } # passes'";
    let tasks = [format!("1:{to_and_fro}"), format!("1:({SPIN}) & {SPIN} # computes")];
    let sandbox = Sandbox::own();
    let mut args = vec!["share", "--cpus", &cpus, "--quiet", "--report", "report.json"];
    args.extend(tasks.iter().map(String::as_str));
    let running = sandbox.start(&args);
    eventually("enough work", || (sandbox.worked() >= 8 * ENOUGH_TICKS).then_some(()));
    let booked = ["passes", "computes"].map(|word| on_the_kernels_books(&sandbox.with(word)));
    running.signal(Signal::TERM);
    running.end();
    let report = sandbox.report("report.json");
    for (client, booked) in booked.into_iter().enumerate() {
        let charged = report["clients"][client]["service_ns"].as_f64().expect("a number");
        // And what is used until the end.
        let most = 0.015 * booked + 10.0 * TICK_NS;
        assert!((charged - booked).abs() < most, "client {client}: charged {charged}, on the books {booked}");
    }
}
