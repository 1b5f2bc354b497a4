//! Several CPUs: who gets what, and what becomes of those whose CPU goes.

use std::fs;
use std::process::Command;

use divvy_linux::cgroup::room::CPU_STAT;

use super::super::{Child, Group, sleep};
use super::{SHORT_WINDOW_MS, Scheduler, Three, check_parts};

/// On two CPUs each part is within this fraction of what it should be.
const MAX_ERROR_CPUS: f64 = 0.03;

/// 1:1:6 with one task each is 1:1:2: nobody can use more than one CPU. What is bound to one CPU gets there too.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn several_cpus_are_divided_and_shares_capped() {
    let three = Three::new();
    for policy in ["stride", "vtrr"] {
        let mut scheduler = Scheduler::with_shares(policy, &three.shares([1, 1, 6]));
        // Its loader looks five times a second.
        sleep(1_000);
        check_parts(three.used(SHORT_WINDOW_MS), [1, 1, 2], |_, _| MAX_ERROR_CPUS);
        // Whoever may run on one CPU only, and on another a moment later, is found there.
        let bound = Group::new("bound");
        let line = "for i in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done; n=0; while :; do for pid in $(cat \
                    /sys/fs/cgroup/bound/cgroup.procs); do n=$((n+1)); taskset -p $((n%2+1)) $pid >/dev/null 2>&1; done; done";
        let _churn = Child::start(&bound.cgroup, line);
        let from = bound.cgroup.get(&CPU_STAT).expect("there").usage.0;
        sleep(10_000);
        // Everybody else has 100 of 104 shares of 20 s.
        let used = bound.cgroup.get(&CPU_STAT).expect("there").usage.0 - from;
        assert!(used > 5_000_000_000, "{used}");
        scheduler.check();
        scheduler.stop();
    }
}

/// Whoever is bound to a CPU that is taken away, and waits there, runs on another: the kernel waits for it meanwhile, and asks that CPU
/// for no more choices.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn one_of_several_cpus_may_go() {
    const ONLINE: &str = "/sys/devices/system/cpu/cpu1/online";
    let three = Three::new();
    for policy in ["stride", "vtrr"] {
        println!("{policy}");
        let mut scheduler = Scheduler::with_shares(policy, &three.shares([1, 2, 3]));
        let bound = Group::new("bound");
        let line = "for i in 1 2 3; do taskset 2 sh -c 'while :; do :; done' & done; wait";
        let _bound = Child::start(&bound.cgroup, line);
        sleep(500);
        for _ in 0..2 {
            fs::write(ONLINE, "0").expect("root may");
            scheduler.check();
            let from = bound.cgroup.get(&CPU_STAT).expect("there").usage.0;
            sleep(1_000);
            let used = bound.cgroup.get(&CPU_STAT).expect("there").usage.0 - from;
            assert!(used > 0, "{policy}");
            fs::write(ONLINE, "1").expect("root may");
            // They may run anywhere now: bound again.
            for pid in bound.cgroup.processes().expect("there") {
                let done = Command::new("taskset").args(["-p", "2", &pid.as_raw_pid().to_string()]).output();
                assert!(done.expect("busybox has it").status.success());
            }
            sleep(200);
        }
        scheduler.check();
        scheduler.stop();
    }
}

/// Sixty that may run on one CPU only have less than whoever has the other for itself and one more, and are always before those in the
/// policy's order. Those two share their CPU all the same.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn many_that_are_bound_elsewhere_keep_nobody_waiting() {
    let groups: Vec<Group> = (0..62).map(|at| Group::new(&format!("bound{at}"))).collect();
    let line = |at: usize| format!("taskset {} sh -c 'while :; do :; done'", if at < 60 { 1 } else { 2 });
    let _children: Vec<Child> =
        groups.iter().enumerate().map(|(at, group)| Child::start(&group.cgroup, &line(at))).collect();
    let entry =
        |group: &Group| format!("[[client]]\nname = \"{0}\"\nshare = 10\ncgroup = \"/{0}\"\n", group.name);
    let clients: String = groups.iter().map(entry).collect();
    for policy in ["stride", "vtrr"] {
        println!("{policy}");
        let mut scheduler = Scheduler::with_shares(policy, &clients);
        sleep(1_000);
        let look = || {
            let used = |group: &Group| group.cgroup.get(&CPU_STAT).expect("there").usage.0 / 1_000;
            [used(&groups[60]), used(&groups[61])]
        };
        let from = look();
        sleep(SHORT_WINDOW_MS);
        let to = look();
        check_parts([0, 1].map(|i| to[i] - from[i]), [1, 1], |_, _| MAX_ERROR_CPUS);
        scheduler.check();
        scheduler.stop();
    }
}
