//! Whose a process is.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::process::Command;

use divvy_linux::Pid;
use divvy_linux::cgroup::room::{CPU_STAT, Cgroup, Controller};

use super::super::{Child, Group, SPIN, sleep};
use super::{MAX_ERROR_EDGES, SHORT_WINDOW_MS, Scheduler, check_parts};

const GATE: &str = "/tmp/forked";
const ENOUGH: &str = "/tmp/enough";

fn used<const N: usize>(of: [&Cgroup; N], ms: u64) -> [u64; N] {
    let look = || of.map(|cgroup| cgroup.get(&CPU_STAT).expect("there").usage.0 / 1_000);
    let from = look();
    sleep(ms);
    let to = look();
    std::array::from_fn(|at| to[at] - from[at])
}

/// The child of a process, once it has one.
fn child_of(pid: Pid) -> i32 {
    let path = format!("/proc/{pid}/task/{pid}/children");
    loop {
        let children = fs::read_to_string(&path).expect("it lives");
        if let Some(child) = children.split_whitespace().next() {
            return child.parse().expect("a pid");
        }
        sleep(10);
    }
}

/// The kernel tells of children from the moment on at which it has the scheduler, and the loader names those that were there before.
/// Whoever was forked in between was everybody else's.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn who_is_forked_as_the_scheduler_comes_is_its_parents() {
    let (forks, other) = (Group::new("forks"), Group::new("other"));
    assert!(Command::new("mkfifo").arg(GATE).status().expect("busybox has it").success());
    // They compute once somebody has written.
    let line = format!("while [ ! -e {ENOUGH} ]; do (read x <{GATE}; {SPIN}) & sleep 0.05; done; wait");
    let one = Child::start(&forks.cgroup, &line);
    let two = Child::start(&other.cgroup, SPIN);
    sleep(100);
    let clients = format!(
        "[[client]]\nname = \"one\"\nshare = 1\npid = {}\n[[client]]\nname = \"two\"\nshare = 1\npid = {}\n",
        one.pid, two.pid
    );
    let nr = || forks.cgroup.processes().expect("there").len();
    let early = nr();
    let mut scheduler = Scheduler::with_shares("stride", &clients);
    let late = nr();
    sleep(300);
    fs::write(ENOUGH, "").expect("root may");
    // All are at the gate.
    sleep(500);
    println!("{early} before it has come, {late} after, {} at last", nr());
    assert!(early + 4 < late, "nobody was forked meanwhile");
    drop(OpenOptions::new().write(true).open(GATE).expect("somebody reads"));
    check_parts(used([&forks.cgroup, &other.cgroup], SHORT_WINDOW_MS), [1, 1], |_, _| MAX_ERROR_EDGES);
    scheduler.stop();
    for path in [GATE, ENOUGH] {
        fs::remove_file(path).expect("ours");
    }
}

/// A client within a client, whichever is named first.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn a_client_within_another_has_its_own_share() {
    let outer = Group::new("outer");
    outer.cgroup.enable(Controller::Cpu, true).expect("root may");
    let own = outer.cgroup.make("own").expect("root may");
    let inner = outer.cgroup.make("inner").expect("root may");
    let parent = Child::start(&own, "while :; do :; done & while :; do :; done");
    let _inner = Child::start(&inner, SPIN);
    let entry = |name: &str, share: u64, who: String| {
        format!("[[client]]\nname = \"{name}\"\nshare = {share}\n{who}\n")
    };
    let cgroups = [
        entry("inner", 3, "cgroup = \"/outer/inner\"".to_owned()),
        entry("outer", 1, "cgroup = \"/outer\"".to_owned()),
    ];
    for order in [[0, 1], [1, 0]] {
        let mut scheduler = Scheduler::with_shares("stride", &order.map(|at| cgroups[at].clone()).concat());
        check_parts(used([&inner, &own], SHORT_WINDOW_MS), [3, 1], |_, _| MAX_ERROR_EDGES);
        scheduler.stop();
    }
    // And a process whose parent is another client.
    let alone = outer.cgroup.make("alone").expect("root may");
    let child = child_of(parent.pid);
    fs::write(Path::new(alone.path()).join("cgroup.procs"), child.to_string()).expect("root may");
    let processes = [
        entry("child", 3, format!("pid = {child}")),
        entry("parent", 1, format!("pid = {}", parent.pid)),
        entry("inner", 2, "cgroup = \"/outer/inner\"".to_owned()),
    ];
    for order in [[0, 1, 2], [2, 1, 0]] {
        let mut scheduler = Scheduler::with_shares("stride", &order.map(|at| processes[at].clone()).concat());
        check_parts(used([&alone, &own, &inner], SHORT_WINDOW_MS), [3, 1, 2], |_, _| MAX_ERROR_EDGES);
        scheduler.stop();
    }
}
