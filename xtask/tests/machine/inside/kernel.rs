//! `divvy-scx`: divvy's policies as the machine's scheduler, and the ways back to the kernel's own.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{ChildStderr, Command, ExitStatus, Stdio};

use divvy_linux::Pid;
use divvy_linux::cgroup::room::{CPU_STAT, CPU_WEIGHT, Cgroup, Controller};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

use super::backend::{Daemon, check_success, eventually, leaves, trees};
use super::{Child, Group, SPIN, check_inside, sleep};

/// Policies are within this fraction of each client's part over [`WINDOW_MS`].
const MAX_ERROR: f64 = 0.005;
/// PBS gives by what a client has had since it came, so that its error shrinks as that grows.
const MAX_ERROR_PBS: f64 = 0.03;
/// Round-robin counts turns: one that a thread of the kernel's cuts short is not made good.
const MAX_ERROR_TURNS: f64 = 0.02;
/// A quantum at each edge of [`SHORT_WINDOW_MS`] is 2.7 % of an eighth of it.
const MAX_ERROR_EDGES: f64 = 0.04;
/// Of [`SHORT_WINDOW_MS`], with what is before the first look of the loader: a few tenths of a second.
const MAX_ERROR_LATE: f64 = 0.1;
/// In whole cycles of six quanta of 20 ms: one quantum, which a window may begin or end with, is .4 % of the least part.
const WINDOW_MS: u64 = 30_000;
/// Where [`MAX_ERROR`] is not asked for.
const SHORT_WINDOW_MS: u64 = 12_000;
/// How far a lottery may be off, in standard deviations of the number of wins.
const MAX_SIGMAS: f64 = 3.0;
const QUANTUM_US: f64 = 20_000.0;

fn state() -> String {
    fs::read_to_string("/sys/kernel/sched_ext/state").expect("the kernel has sched_ext").trim().to_owned()
}

/// Whether the kernel gives the CPU to a task that has nothing to do with any scheduler of ours.
#[track_caller]
fn check_fallback() {
    for _ in 0..100 {
        if state() == "disabled" {
            break;
        }
        sleep(10);
    }
    assert_eq!(state(), "disabled");
    let done = Command::new("sh").args(["-c", "i=0; while [ $i -lt 1000 ]; do i=$((i+1)); done"]).status();
    assert!(done.expect("a shell").success());
}

/// A divvy-scx that has taken over.
struct Scheduler {
    child: std::process::Child,
    lines: std::io::Lines<BufReader<ChildStderr>>,
}

impl Scheduler {
    fn start(arguments: &[&str]) -> Self {
        check_inside();
        assert_eq!(state(), "disabled", "somebody else's scheduler");
        let mut command = Command::new("divvy-scx");
        command.arg("run").args(arguments).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("divvy-scx");
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        // What it says once it has attached.
        let first = lines.next().map(|line| line.expect("text"));
        assert!(first.as_deref().is_some_and(|line| line.contains(" divides the CPUs among ")), "{first:?}");
        assert_eq!(state(), "enabled");
        Self { child, lines }
    }

    /// By the shares file of `clients`.
    fn with_shares(policy: &str, clients: &str) -> Self {
        fs::write("/tmp/shares.toml", clients).expect("root may");
        Self::start(&["--policy", policy, "--shares", "/tmp/shares.toml"])
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// How it ended, and what it said at its end.
    fn wait(&mut self) -> (ExitStatus, String) {
        let said: Vec<String> = self.lines.by_ref().map(|line| line.expect("text")).collect();
        (self.child.wait().expect("ours"), said.join("\n"))
    }

    /// It still has the CPUs.
    #[track_caller]
    fn check(&mut self) {
        if state() != "enabled" {
            panic!("{:?}", self.wait());
        }
    }

    #[track_caller]
    fn stop(&mut self) {
        kill_process(self.pid(), Signal::TERM).expect("ours");
        let (status, said) = self.wait();
        assert!(status.success(), "{status}: {said}");
        assert!(said.contains("it was asked to (kernel: unregistered from user space)"), "{said}");
        check_fallback();
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Three cgroups with one task each that computes.
struct Three {
    groups: [Group; 3],
    _children: [Child; 3],
}

impl Three {
    fn new() -> Self {
        let groups = ["one", "two", "three"].map(Group::new);
        let children = groups.each_ref().map(|group| Child::start(&group.cgroup, SPIN));
        Self { groups, _children: children }
    }

    fn shares(&self, shares: [u64; 3]) -> String {
        let entry = |(share, group): (u64, &Group)| {
            format!("[[client]]\nname = \"{0}\"\nshare = {share}\ncgroup = \"/{0}\"\n", group.name)
        };
        shares.into_iter().zip(&self.groups).map(entry).collect()
    }

    /// What each used in a while, in us, by the kernel's own account.
    fn used(&self, ms: u64) -> [u64; 3] {
        let look = || self.groups.each_ref().map(|g| g.cgroup.get(&CPU_STAT).expect("there").usage.0 / 1_000);
        let from = look();
        sleep(ms);
        let to = look();
        [0, 1, 2].map(|i| to[i] - from[i])
    }
}

#[track_caller]
fn check_parts<const N: usize>(used: [u64; N], shares: [u64; N], max_error: impl Fn(f64, f64) -> f64) {
    let (all, sum) = (used.iter().sum::<u64>() as f64, shares.iter().sum::<u64>() as f64);
    for (used, share) in used.iter().zip(shares) {
        let (got, due) = (*used as f64 / all, share as f64 / sum);
        println!("{:.3} % of {:.3} %", got * 100.0, due * 100.0);
        let most = max_error(due, all);
        assert!((got / due - 1.0).abs() <= most, "{got} for {due}, at most {most} off: {used:?}");
    }
}

#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn the_verifier_takes_every_policy() {
    check_inside();
    let done = Command::new("divvy-scx").arg("check").output().expect("divvy-scx");
    let (stdout, stderr) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{stdout}{stderr}");
    for policy in ["stride", "vtrr", "lottery", "pbs", "las", "fcfs", "rr"] {
        let dispatch = |line: &str| line.starts_with(policy) && line.contains(" divvy_dispatch ");
        assert!(stdout.lines().any(dispatch), "{policy}: {stdout}");
    }
    assert_eq!(state(), "disabled", "nothing is scheduled by a check");
}

#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn policies_divide_by_shares() {
    let three = Three::new();
    // With one arrival for all, PBS gives in proportion to shares (section 5.2), LAS too, and round-robin does not look.
    for (policy, parts, max_error) in [
        ("stride", [1, 2, 3], MAX_ERROR),
        ("vtrr", [1, 2, 3], MAX_ERROR),
        ("pbs:alpha=2", [1, 2, 3], MAX_ERROR_PBS),
        ("las", [1, 2, 3], MAX_ERROR),
        ("rr", [1, 1, 1], MAX_ERROR_TURNS),
    ] {
        println!("{policy}");
        let mut scheduler = Scheduler::with_shares(policy, &three.shares([1, 2, 3]));
        let window = if max_error > MAX_ERROR { SHORT_WINDOW_MS } else { WINDOW_MS };
        check_parts(three.used(window), parts, |_, _| max_error);
        scheduler.stop();
    }
}

#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn a_lottery_divides_by_chance() {
    let three = Three::new();
    let mut scheduler = Scheduler::with_shares("lottery:seed=7", &three.shares([1, 2, 3]));
    // Of n draws a client with the chance p wins n p, with a standard deviation of sqrt(n p (1 - p)).
    let sigmas = |p: f64, all: f64| MAX_SIGMAS * ((1.0 - p) / (p * all / QUANTUM_US)).sqrt();
    check_parts(three.used(WINDOW_MS), [1, 2, 3], sigmas);
    scheduler.stop();
}

#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn weights_are_shares_and_follow() {
    let three = Three::new();
    for (group, weight) in three.groups.iter().zip([100, 200, 300]) {
        group.cgroup.set(&CPU_WEIGHT, &weight).expect("root may");
    }
    let mut scheduler = Scheduler::start(&["--policy", "vtrr", "--weights", "/"]);
    // A cycle of 600 quanta takes as many seconds as anybody has; small numbers make short cycles.
    for (group, weight) in three.groups.iter().zip([6, 2, 4]) {
        group.cgroup.set(&CPU_WEIGHT, &weight).expect("root may");
    }
    // A cycle of the shares before may be under way.
    sleep(13_000);
    check_parts(three.used(WINDOW_MS), [6, 2, 4], |_, _| 2.0 * MAX_ERROR);
    let stats = Command::new("divvy-scx").args(["stats", "--json"]).output().expect("divvy-scx");
    let stats: Value = serde_json::from_slice(&stats.stdout).expect("JSON");
    let shares: Vec<_> = stats["clients"]
        .as_array()
        .expect("clients")
        .iter()
        .map(|c| (c["name"].clone(), c["share"].clone()))
        .collect();
    let want = [("rest", 100), ("one", 6), ("three", 4), ("two", 2)];
    assert_eq!(shares, want.map(|(name, share)| (name.into(), share.into())), "{stats}");
    scheduler.stop();
}

/// Weights of some thousands beside a rest of 100 would leave that a hundredth of the CPU, and its own loader is among the rest: nobody
/// who comes would be known for many seconds.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn however_large_weights_are_the_rest_has_its_part_and_who_comes_is_known() {
    let (tree, others) = (Group::new("tree"), Group::new("others"));
    tree.cgroup.enable(Controller::Cpu, true).expect("root may");
    let leaf = |name: &str| {
        let leaf = tree.cgroup.make(name).expect("root may");
        leaf.set(&CPU_WEIGHT, &10_000).expect("root may");
        let child = Child::start(&leaf, SPIN);
        (leaf, child)
    };
    let (early, _early) = leaf("early");
    let _others = [(); 3].map(|()| Child::start(&others.cgroup, SPIN));
    let used =
        |of: &[&Cgroup]| of.iter().map(|c| c.get(&CPU_STAT).expect("there").usage.0 / 1_000).sum::<u64>();
    // From before it is there: this program is among the rest, too, and would not see what it has to wait for.
    let from = [&early, &others.cgroup].map(|c| used(&[c]));
    let mut scheduler = Scheduler::start(&["--policy", "stride", "--weights", "/tree"]);
    let (late, _late) = leaf("late");
    sleep(SHORT_WINDOW_MS);
    // The tree weighs 100, as much as everybody else.
    let got = [used(&[&early, &late]) - from[0], used(&[&others.cgroup]) - from[1]];
    check_parts(got, [1, 1], |_, _| MAX_ERROR_LATE);
    let from = [&early, &late].map(|c| used(&[c]));
    sleep(SHORT_WINDOW_MS);
    let got = [&early, &late].map(|c| used(&[c]));
    check_parts([got[0] - from[0], got[1] - from[1]], [1, 1], |_, _| MAX_ERROR_EDGES);
    scheduler.stop();
}

/// The file names a process; what it forks is the same client.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn a_process_is_a_client_with_its_children() {
    let (first, second) = (Group::new("first"), Group::new("second"));
    let one = Child::start(&first.cgroup, SPIN);
    // Two that compute, made after the scheduler came: together they have what their parent's share says.
    let two = Child::start(&second.cgroup, "sleep 8; (while :; do :; done) & while :; do :; done");
    let clients = format!(
        "[[client]]\nname = \"one\"\nshare = 1\npid = {}\n[[client]]\nname = \"two\"\nshare = 2\npid = {}\n",
        one.pid, two.pid
    );
    let mut scheduler = Scheduler::with_shares("stride", &clients);
    sleep(9_000);
    let look = || [&first, &second].map(|g| g.cgroup.get(&CPU_STAT).expect("there").usage.0);
    let from = look();
    sleep(WINDOW_MS);
    let [a, b] = [0, 1].map(|i| (look()[i] - from[i]) as f64);
    println!("{:.3} % of 66.667 %", b / (a + b) * 100.0);
    assert!((b / (a + b) / (2.0 / 3.0) - 1.0).abs() <= MAX_ERROR, "{a} {b}");
    scheduler.stop();
}

#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn whatever_ends_it_the_kernel_schedules_again() {
    let three = Three::new();
    // Killed, it has no last word.
    let mut scheduler = Scheduler::with_shares("stride", &three.shares([1, 2, 3]));
    kill_process(scheduler.pid(), Signal::KILL).expect("ours");
    scheduler.wait();
    check_fallback();
    // By the key for emergencies.
    let mut scheduler = Scheduler::with_shares("stride", &three.shares([1, 2, 3]));
    fs::write("/proc/sysrq-trigger", "S").expect("root may");
    let (status, said) = scheduler.wait();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("Alt-SysRq-S"), "{said}");
    check_fallback();
    // An error: first come, first served starves all but one of them, and the kernel's watchdog sees it.
    fs::write("/tmp/shares.toml", three.shares([1, 2, 3])).expect("root may");
    let arguments = ["--policy", "fcfs", "--shares", "/tmp/shares.toml", "--watchdog", "2s"];
    let mut scheduler = Scheduler::start(&arguments);
    let (status, said) = scheduler.wait();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("the watchdog ejected it") && said.contains("runnable task stall"), "{said}");
    check_fallback();
    // And the kernel's own divides equal weights equally again.
    check_parts(three.used(SHORT_WINDOW_MS), [1, 1, 1], |_, _| 0.05);
}

#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn what_cannot_be_is_refused_before_anything_changes() {
    check_inside();
    let run = |arguments: &[&str]| {
        let done = Command::new("divvy-scx").args(arguments).output().expect("divvy-scx");
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    fs::write("/tmp/none.toml", "[[client]]\nname = \"a\"\nshare = 1\ncgroup = \"/nowhere\"\n")
        .expect("root may");
    for (arguments, code, why) in [
        (vec!["run", "--policy", "eevdf", "--weights", "/"], 2, "no policy is called eevdf"),
        (vec!["run", "--shares", "/tmp/absent.toml"], 4, "read /tmp/absent.toml: No such file"),
        (vec!["run", "--shares", "/tmp/none.toml"], 6, "client a: cgroup /nowhere: there is none at"),
        (vec!["run", "--weights", "/nowhere"], 6, "cgroup /nowhere: there is none at"),
        (vec!["stats"], 6, "no divvy-scx runs here"),
    ] {
        let (got, said) = run(&arguments);
        assert_eq!(got, Some(code), "{arguments:?}: {said}");
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
    assert_eq!(state(), "disabled");
    let status = Command::new("divvy-scx").arg("status").output().expect("divvy-scx");
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert_eq!(status, "sched_ext disabled: the kernel's own scheduler has the CPUs\n");
}

/// A divvyd that makes a policy the kernel's scheduler: it follows who comes, and whatever ends it leaves the weights.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn a_divvyd_divides_by_a_scheduler_of_the_kernel() {
    let work = Group::new("work");
    let children = [(); 3].map(|()| Child::start(&work.cgroup, SPIN));
    let mut daemon = Daemon::system(&["--backend", "kernel"]);
    let attach = |daemon: &Daemon, child: &Child, share: &str| {
        check_success(&mut daemon.divvy(&["attach", "-s", share, "--tree", &child.pid.to_string()]));
    };
    attach(&daemon, &children[0], "1");
    attach(&daemon, &children[1], "3");
    eventually("the scheduler", || (state() == "enabled").then_some(()));
    let used = |shares: &[u64]| {
        eventually("the weights of all leaves", || has_weights(shares).then_some(()));
        let look = || leaves().iter().map(|c| c.get(&CPU_STAT).expect("there").usage.0).collect::<Vec<_>>();
        let from = look();
        sleep(SHORT_WINDOW_MS);
        look().iter().zip(from).map(|(to, from)| (to - from) / 1_000).collect::<Vec<_>>()
    };
    let check = |shares: &[u64], max_error: f64| {
        let used = used(shares);
        let (all, sum) = (used.iter().sum::<u64>() as f64, shares.iter().sum::<u64>() as f64);
        for (used, share) in used.iter().zip(shares) {
            let (got, due) = (*used as f64 / all, *share as f64 / sum);
            println!("{:.3} % of {:.3} %", got * 100.0, due * 100.0);
            assert!((got / due - 1.0).abs() <= max_error, "{got} for {due}");
        }
        assert_eq!(used.len(), shares.len());
    };
    check(&[1, 3], MAX_ERROR_EDGES);
    attach(&daemon, &children[2], "4");
    check(&[1, 3, 4], MAX_ERROR_EDGES);
    let doctor = check_success(&mut daemon.divvy(&["doctor"]));
    assert!(
        doctor.contains(", by kernel (asked for)") && doctor.contains("divvy_stride, enabled"),
        "{doctor}"
    );
    // Without it the kernel's own scheduler divides by the same weights, and divvyd says why.
    let status = check_success(Command::new("divvy-scx").args(["status", "--json"]));
    let status: Value = serde_json::from_str(&status).expect("JSON");
    let loader = i32::try_from(status["loader"].as_i64().expect("a pid")).expect("a pid");
    kill_process(Pid::from_raw(loader).expect("a pid"), Signal::KILL).expect("divvyd's child");
    check_fallback();
    check(&[1, 3, 4], MAX_ERROR_EDGES);
    let doctor = check_success(&mut daemon.divvy(&["doctor"]));
    assert!(doctor.contains("divvy-scx has ended"), "{doctor}");
    daemon.stop();
    // One that is killed takes its divvy-scx with it; the next waits for that, and is not refused. It has no more rights than
    // the unit of systemd with what is added for this back end.
    let mut daemon = Daemon::system(&["--backend", "kernel"]);
    attach(&daemon, &children[0], "1");
    eventually("the scheduler", || (state() == "enabled").then_some(()));
    daemon.child.kill().expect("ours");
    daemon.child.wait().expect("ours");
    let unit = Group::new("unit");
    let mut daemon =
        Daemon::start(in_the_unit(&unit), &["--system", "--backend", "kernel"], RUN.into(), true);
    attach(&daemon, &children[1], "1");
    eventually("the scheduler", || {
        let text = check_success(&mut daemon.divvy(&["doctor"]));
        assert!(!text.contains("divvy-scx has ended"), "{text}");
        (state() == "enabled").then_some(())
    });
    // The scheduler's own process would take a few looks to be found wanting.
    sleep(1_000);
    assert_eq!(state(), "enabled");
    daemon.stop();
    check_fallback();
    assert!(trees().is_empty());
}

/// Whether the leaves have weights by `shares`, and the scheduler of the kernel, while there is one, divides by them.
fn has_weights(shares: &[u64]) -> bool {
    let weights: Vec<u64> = leaves().iter().map(|leaf| leaf.get(&CPU_WEIGHT).expect("there")).collect();
    let proportional =
        |of: &[u64]| of.iter().zip(shares).all(|(of, share)| of * shares[0] == weights[0] * share);
    if weights.len() != shares.len() || !proportional(&weights) {
        return false;
    }
    if state() == "disabled" {
        return true;
    }
    let stats = check_success(Command::new("divvy-scx").args(["stats", "--json"]));
    let stats: Value = serde_json::from_str(&stats).expect("JSON");
    let names = leaves();
    let known = names.iter().filter_map(|leaf| {
        let name = leaf.path().file_name()?.to_str()?;
        let client = stats["clients"].as_array()?.iter().find(|client| client["name"] == name)?;
        client["effective_share"].as_u64()
    });
    known.collect::<Vec<_>>() == weights
}

/// Where the system's divvyd listens.
const RUN: &str = "/run/divvy";
const UNIT: &str = include_str!("../../../../dist/systemd/divvyd.service");
const UNIT_KERNEL: &str = include_str!("../../../../dist/systemd/kernel.conf");

/// divvyd in a cgroup of its own, without the capabilities that neither the unit nor its addition for this back end has.
fn in_the_unit(unit: &Group) -> Command {
    const NAMES: [(&str, i32); 8] = [
        ("CAP_KILL", 5),
        ("CAP_NET_ADMIN", 12),
        ("CAP_IPC_LOCK", 14),
        ("CAP_SYS_PTRACE", 19),
        ("CAP_SYS_ADMIN", 21),
        ("CAP_SYS_NICE", 23),
        ("CAP_PERFMON", 38),
        ("CAP_BPF", 39),
    ];
    let sets = [UNIT, UNIT_KERNEL].map(|unit| {
        let line = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
        line.expect("a bounding set")
    });
    let number = |name: &str| NAMES.iter().find(|(known, _)| *known == name).expect("known").1;
    let kept: Vec<i32> = sets.iter().flat_map(|set| set.split_whitespace()).map(number).collect();
    let mut command = Command::new("sh");
    let line = format!("echo 0 >{}/cgroup.procs; exec divvyd \"$@\"", unit.cgroup.path().display());
    command.args(["-c", &line, "divvyd"]);
    // SAFETY: prctl is a system call that takes and returns numbers, and may be called between fork and exec.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(&mut command, move || {
            for capability in (0..64).filter(|capability| !kept.contains(capability)) {
                // Those that the kernel does not know are refused.
                libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0);
            }
            Ok(())
        });
    }
    command
}

/// On two CPUs, in real time beside whatever the host does, each part is within this fraction of what it should be.
const MAX_ERROR_CPUS: f64 = 0.1;

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
