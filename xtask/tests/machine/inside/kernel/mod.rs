//! `divvy-scx`: divvy's policies as the machine's scheduler, and the ways back to the kernel's own.

mod cpus;
mod crowd;
mod page;
mod parts;
mod whose;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{ChildStderr, Command, ExitStatus, Stdio};

use divvy_linux::Pid;
use divvy_linux::cgroup::room::{CPU_MAX, CPU_STAT, CPU_WEIGHT, Cgroup, CpuMax, Limit};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

use super::backend::{Daemon, check_success, eventually, leaves, trees};
use super::{Child, Group, SPIN, check_inside, sleep};

/// A quantum at each edge of [`SHORT_WINDOW_MS`] is 2.7 % of an eighth of it.
const MAX_ERROR_EDGES: f64 = 0.04;
const SHORT_WINDOW_MS: u64 = 12_000;

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
        Self::of(Command::new("divvy-scx").arg("run").args(arguments))
    }

    /// By a command that becomes divvy-scx.
    fn of(command: &mut Command) -> Self {
        check_inside();
        assert_eq!(state(), "disabled", "somebody else's scheduler");
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("divvy-scx");
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
    // An error that the programs find themselves.
    let arguments = ["--policy", "stride", "--shares", "/tmp/shares.toml", "--fault-after", "1s"];
    let mut scheduler = Scheduler::start(&arguments);
    let (status, said) = scheduler.wait();
    assert_eq!(status.code(), Some(1), "{said}");
    let words = "it found its own state impossible: a fault of divvy-scx, please report it (kernel: scx_bpf_error: the loader named a \
                 client that there is none of)";
    assert!(said.contains(words), "{said}");
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
    // A policy that it names; others are refused before there is a client.
    for (policy, why) in [
        ("exact", "with --backend kernel there are stride, vtrr, lottery, pbs, las, fcfs, rr"),
        ("vtrr:alpha=2", "vtrr has no parameter alpha"),
    ] {
        let arguments = ["--system", "--backend", "kernel", "--policy", policy];
        let refused = Command::new("divvyd").args(arguments).output().expect("divvyd");
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains(why), "{said}");
    }
    let unit = Group::new("unit");
    let arguments = ["--system", "--backend", "kernel", "--policy", "vtrr:quantum=8ms"];
    let mut daemon = Daemon::start(in_the_unit(&unit), &arguments, RUN.into(), true);
    attach(&daemon, &children[1], "1");
    eventually("the scheduler", || {
        let text = check_success(&mut daemon.divvy(&["doctor"]));
        assert!(!text.contains("divvy-scx has ended"), "{text}");
        (state() == "enabled").then_some(())
    });
    // The scheduler's own process would take a few looks to be found wanting.
    sleep(1_000);
    assert_eq!(state(), "enabled");
    let doctor = check_success(&mut daemon.divvy(&["doctor"]));
    assert!(doctor.contains("divvy_vtrr, enabled"), "{doctor}");
    daemon.stop();
    check_fallback();
    assert!(trees().is_empty());
}

/// `auto` has the kernel's scheduler where it can be had, and gives it up for a limit of CPU time, which holds; whoever comes with it
/// or later has its place and its part as by `cgroup`.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn a_divvyd_that_chooses_takes_the_kernels_scheduler_until_a_limit_is_asked_for() {
    let work = Group::new("work");
    let children = [(); 3].map(|()| Child::start(&work.cgroup, SPIN));
    let mut daemon = Daemon::system(&["--backend", "auto"]);
    let attach = |daemon: &Daemon, child: &Child, more: &[&str]| {
        let pid = child.pid.to_string();
        check_success(&mut daemon.divvy(&[&["attach", "--tree", &pid], more].concat()));
    };
    attach(&daemon, &children[0], &["-s", "1"]);
    eventually("the scheduler", || (state() == "enabled").then_some(()));
    let doctor = check_success(&mut daemon.divvy(&["doctor"]));
    assert!(doctor.contains("by kernel") && doctor.contains("divvy_stride, enabled"), "{doctor}");
    attach(&daemon, &children[1], &["-s", "3", "--limit", "20%"]);
    check_fallback();
    let quotas: Vec<_> = leaves().iter().map(|leaf| leaf.get(&CPU_MAX).expect("there")).collect();
    let limited = |max: &CpuMax| matches!(max.quota, Limit::At(us) if us * 5 == max.period);
    assert_eq!(quotas.iter().filter(|max| limited(max)).count(), 1, "{quotas:?}");
    let doctor = check_success(&mut daemon.divvy(&["doctor"]));
    assert!(doctor.contains("a limit of CPU time was asked for"), "{doctor}");
    attach(&daemon, &children[2], &["-s", "2"]);
    check_place_beside_a_limit();
    daemon.stop();
    // By name it is kept, and the limit refused.
    let mut daemon = Daemon::system(&["--backend", "kernel"]);
    attach(&daemon, &children[0], &["-s", "1"]);
    eventually("the scheduler", || (state() == "enabled").then_some(()));
    let pid = children[1].pid.to_string();
    let refused = daemon.divvy(&["attach", "--limit", "20%", "--tree", &pid]).output().expect("divvy");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("start divvyd with --backend auto"), "{said}");
    assert_eq!(state(), "enabled");
    daemon.stop();
    check_fallback();
    assert!(trees().is_empty());
}

/// The first of three of the same user came under a scheduler of ours, the second with a limit of 20 %, the third later: shares
/// 1:3:2, of which the last two are in their user's cgroup, and what the limit leaves is the third's.
#[track_caller]
fn check_place_beside_a_limit() {
    let all = leaves();
    let tree = trees().pop_first().expect("one");
    let places: Vec<_> = all.iter().map(|leaf| leaf.path().strip_prefix(&tree).expect("in it")).collect();
    assert_eq!(places, ["c0", "u0/c1", "u0/c2"].map(std::path::Path::new));
    let user = Cgroup::open(&tree.join("u0")).expect("there");
    eventually("weights by shares", || {
        let weight = |cgroup: &Cgroup| cgroup.get(&CPU_WEIGHT).expect("there") as f64;
        let near = |of: f64, due: f64| (of / due - 1.0).abs() < 0.01;
        let is_due =
            near(weight(&all[1]) / weight(&all[2]), 1.5) && near(weight(&user) / weight(&all[0]), 5.0);
        is_due.then_some(())
    });
    let look = || [0, 1, 2].map(|i| all[i].get(&CPU_STAT).expect("there").usage.0 / 1_000);
    let from = look();
    sleep(SHORT_WINDOW_MS);
    let to = look();
    // Of sixty parts 10 are the first's. Were all beside each other, it would have 16 and the third 32.
    check_parts([0, 1, 2].map(|i| to[i] - from[i]), [10, 12, 38], |_, _| MAX_ERROR_EDGES);
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
const UNIT: &str = include_str!("../../../../../dist/systemd/divvyd.service");
const UNIT_KERNEL: &str = include_str!("../../../../../dist/systemd/kernel.conf");

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
