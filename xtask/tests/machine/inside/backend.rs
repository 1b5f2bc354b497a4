//! `--backend cgroup`: the kernel divides by weights, for `divvy share` and for a divvyd; processes go back to where they were.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use divvy_linux::cgroup::room::{CPU_MAX, CPU_STAT, CPU_WEIGHT, Cgroup, CpuMax, Limit, MEMORY_MAX};
use divvy_linux::{Pid, procfs};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

use super::{Child, Group, ROOT, SPIN, check_inside, remove, sleep};

/// Weights divide to within this fraction of each client's part, on one CPU over some seconds.
const MAX_ERROR: f64 = 0.01;
/// Long enough for some hundred of the kernel's slices of the smallest.
const WINDOW_MS: u64 = 10_000;

pub(super) fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

#[track_caller]
pub(super) fn check_success(command: &mut Command) -> String {
    let done = output(command);
    let (stdout, stderr) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{command:?}: {}\n{stdout}{stderr}", done.status);
    stdout.into_owned()
}

/// Directories below `dir` whose names begin with `prefix`.
pub(super) fn dirs(dir: &Path, prefix: &str) -> BTreeSet<PathBuf> {
    let all = fs::read_dir(dir).expect("readable").flatten().map(|e| e.path());
    all.filter(|p| p.is_dir() && p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(prefix)))
        .collect()
}

pub(super) fn trees() -> BTreeSet<PathBuf> {
    dirs(ROOT.as_ref(), "divvy-")
}

/// Waits, as long as the test may take.
pub(super) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..3_000 {
        if let Some(found) = look() {
            return found;
        }
        sleep(20);
    }
    panic!("waited in vain for {what}")
}

/// Each one's part of what all used is what its share says.
#[track_caller]
pub(super) fn check_parts(used: &[u64], shares: &[u64]) {
    let (all, sum) = (used.iter().sum::<u64>() as f64, shares.iter().sum::<u64>() as f64);
    for (used, share) in used.iter().zip(shares) {
        let (got, due) = (*used as f64 / all, *share as f64 / sum);
        println!("{:.3} % of {:.3} %", got * 100.0, due * 100.0);
        assert!((got / due - 1.0).abs() <= MAX_ERROR, "{got} for {due}: {used:?} for {shares:?}");
    }
}

pub(super) fn cgroup_of(pid: Pid) -> String {
    fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("alive").trim().to_owned()
}

/// A divvyd of the user `uid`, or the system's.
pub(super) struct Daemon {
    pub(super) child: std::process::Child,
    dir: PathBuf,
    system: bool,
}

impl Daemon {
    pub(super) fn user(name: &str, options: &[&str]) -> Self {
        Self::of(name, 0, Command::new("divvyd"), options)
    }

    /// Of user `uid`, by a command that becomes divvyd with the arguments that it gets.
    pub(super) fn of(name: &str, uid: u32, mut command: Command, options: &[&str]) -> Self {
        let dir = PathBuf::from(format!("/run/{name}"));
        fs::create_dir_all(&dir).expect("root may");
        fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("root may");
        std::os::unix::fs::chown(&dir, Some(uid), Some(uid)).expect("root may");
        command.args(["--user", "--linger", "forever"]).env("DIVVY_RUNTIME_DIR", &dir);
        Self::start(command, options, dir, false)
    }

    pub(super) fn system(options: &[&str]) -> Self {
        let mut command = Command::new("divvyd");
        command.arg("--system");
        let _ = fs::remove_dir_all("/var/lib/divvy");
        Self::start(command, options, PathBuf::from("/run/divvy"), true)
    }

    pub(super) fn start(mut command: Command, options: &[&str], dir: PathBuf, system: bool) -> Self {
        check_inside();
        let log = fs::File::create("/tmp/divvyd.log").expect("root may");
        let child = command.args(options).stdin(Stdio::null()).stderr(log).spawn().expect("divvyd");
        let mut daemon = Self { child, dir, system };
        eventually("divvyd", || {
            let ended = daemon.child.try_wait().expect("our child");
            let log = || fs::read_to_string("/tmp/divvyd.log").unwrap_or_default();
            assert!(ended.is_none(), "divvyd: {ended:?}\n{}", log());
            std::os::unix::net::UnixStream::connect(daemon.dir.join("api.sock")).ok()
        });
        daemon
    }

    pub(super) fn divvy(&self, args: &[&str]) -> Command {
        let mut command = Command::new("divvy");
        command.args(args);
        if !self.system {
            command.env("DIVVY_RUNTIME_DIR", &self.dir);
        }
        command
    }

    fn attach(&self, pid: Pid, share: u64) {
        check_success(&mut self.divvy(&["attach", "-s", &share.to_string(), "--tree", &pid.to_string()]));
    }

    pub(super) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Kills it and its guardian, so that nobody is left to repair anything.
    pub(super) fn kill_with_its_guardian(&mut self) {
        kill_with_guardian(self.pid());
        self.child.wait().expect("our child");
    }

    /// Ends it as a service manager would.
    pub(super) fn stop(&mut self) {
        kill_process(self.pid(), Signal::TERM).expect("ours");
        let status = self.child.wait().expect("our child");
        assert!(status.success(), "{status}\n{}", fs::read_to_string("/tmp/divvyd.log").unwrap_or_default());
    }
}

/// Kills a divvyd and its guardian, so that nobody is left to repair anything.
pub(super) fn kill_with_guardian(divvyd: Pid) {
    let all = fs::read_dir("/proc").expect("readable").flatten();
    let pids = all.filter_map(|e| e.file_name().to_str()?.parse().ok().and_then(Pid::from_raw));
    let guardians: Vec<Pid> = pids
        .filter(|pid| {
            let stat = procfs::stat(*pid).ok().flatten();
            stat.is_some_and(|s| s.ppid == Some(divvyd) && s.comm.as_bytes() == b"divvy-guardian")
        })
        .collect();
    assert_eq!(guardians.len(), 1, "the guardian");
    kill_process(guardians[0], Signal::STOP).expect("ours");
    kill_process(divvyd, Signal::KILL).expect("ours");
    kill_process(guardians[0], Signal::KILL).expect("ours");
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What each cgroup's processes used in a while, by the kernel's own account of that cgroup.
pub(super) fn used(cgroups: &[Cgroup]) -> Vec<u64> {
    let look = || cgroups.iter().map(|c| c.get(&CPU_STAT).expect("there").usage.0).collect::<Vec<_>>();
    let from = look();
    sleep(WINDOW_MS);
    look().iter().zip(from).map(|(to, from)| to - from).collect()
}

/// The leaves of the one divvyd that runs, in the order of their clients.
pub(super) fn leaves() -> Vec<Cgroup> {
    let trees = trees();
    assert_eq!(trees.len(), 1, "{trees:?}");
    // Where there are several users, each has a cgroup around its own.
    let users: Vec<PathBuf> = trees.iter().flat_map(|tree| dirs(tree, "u")).collect();
    let leaves = trees.iter().chain(&users).flat_map(|dir| dirs(dir, "c"));
    let number = |dir: &PathBuf| -> Option<u32> { dir.file_name()?.to_str()?.get(1..)?.parse().ok() };
    let mut leaves: Vec<PathBuf> = leaves.collect();
    leaves.sort_by_key(number);
    leaves.iter().map(|dir| Cgroup::open(dir).expect("there")).collect()
}

#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn share_divides_by_weights() {
    check_inside();
    let mut share = Command::new("divvy");
    share.args(["share", "--backend", "cgroup", "--for", "30s", "--json"]);
    share.args([1, 2, 3].map(|share| format!("{share}:{SPIN}")));
    let report: Value = serde_json::from_str(&check_success(&mut share)).expect("a report");
    let clients = report["clients"].as_array().expect("clients");
    let used: Vec<u64> = clients.iter().map(|c| c["service_ns"].as_u64().expect("a number")).collect();
    check_parts(&used, &[1, 2, 3]);
    assert!(trees().is_empty());
}

#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn a_divvyd_divides_by_weights_and_puts_everybody_back() {
    let work = Group::new("work");
    let children = [(); 3].map(|()| Child::start(&work.cgroup, SPIN));
    let mut daemon = Daemon::user("own", &["--backend", "cgroup"]);
    for (child, share) in children.iter().zip([1, 2, 3]) {
        daemon.attach(child.pid, share);
    }
    let leaves = leaves();
    let weights =
        |leaves: &[Cgroup]| leaves.iter().map(|c| c.get(&CPU_WEIGHT).expect("there")).collect::<Vec<_>>();
    assert_eq!(weights(&leaves), [3325, 6650, 9975]);
    check_parts(&used(&leaves), &[1, 2, 3]);
    let status = check_success(&mut daemon.divvy(&["doctor"]));
    assert!(status.contains(", by cgroup (asked for)"), "{status}");
    // Other shares are other weights, and a pause is nobody's suspension.
    check_success(&mut daemon.divvy(&["set", "0", "-s", "6"]));
    eventually("the weights to follow", || (weights(&leaves) == [9900, 3300, 4950]).then_some(()));
    check_parts(&used(&leaves), &[6, 2, 3]);
    check_success(&mut daemon.divvy(&["pause", "0"]));
    let state = procfs::stat(children[0].pid).expect("readable").expect("alive").state;
    assert!(!state.is_suspended(), "{state:?}");
    let paused = used(&leaves);
    assert!(paused[0] == 0 && paused[1] > 0, "{paused:?}");
    check_parts(&paused[1..], &[2, 3]);
    check_success(&mut daemon.divvy(&["resume", "0"]));
    // A limit is the kernel's to keep, and what it leaves is divided by weights.
    check_success(&mut daemon.divvy(&["set", "0", "--limit", "20%"]));
    let max = CpuMax { quota: Limit::At(20_000), period: 100_000 };
    assert_eq!(leaves[0].get(&CPU_MAX).expect("there"), max);
    let limited = used(&leaves);
    let part = limited[0] as f64 / (WINDOW_MS * 1_000_000) as f64;
    assert!((part / 0.2 - 1.0).abs() <= 2.0 * MAX_ERROR, "{part} of a CPU for 20 %: {limited:?}");
    check_parts(&limited[1..], &[2, 3]);
    check_success(&mut daemon.divvy(&["set", "0", "--limit", "none"]));
    assert_eq!(leaves[0].get(&CPU_MAX).expect("there"), CpuMax::NONE);
    // Back, where each came from.
    check_success(&mut daemon.divvy(&["detach", "1"]));
    assert_eq!(cgroup_of(children[1].pid), "0::/work");
    assert!(!leaves[1].exists());
    daemon.stop();
    for child in &children {
        assert_eq!(cgroup_of(child.pid), "0::/work");
    }
    assert!(trees().is_empty());
}

/// Those that came later, and those whose parents a client's process made, are in its cgroup too.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn whoever_joins_a_client_is_moved() {
    let (first, second) = (Group::new("first"), Group::new("second"));
    let daemon = Daemon::user("own", &["--backend", "cgroup"]);
    let one = Child::start(&first.cgroup, "while :; do sleep 0.01; done");
    check_success(&mut daemon.divvy(&["attach", "-s", "1", "name:yes", "--name", "all"]));
    let two = [&first, &second].map(|group| Child::start(&group.cgroup, "exec yes >/dev/null"));
    let leaf = leaves().remove(0);
    for (child, home) in two.iter().zip(["first", "second"]) {
        let inside = eventually("it to be moved", || {
            Some(cgroup_of(child.pid)).filter(|path| path.contains("/divvy-"))
        });
        assert!(inside.starts_with(&format!("0::/divvy-{}-", daemon.pid())), "{inside} of {home}");
    }
    assert_eq!(dirs(leaf.path(), "p").len(), 2, "a part for each place that they come from");
    assert_eq!(cgroup_of(one.pid), "0::/first");
    drop(daemon);
    // Its guardian puts them back.
    eventually("the tree to be removed", || trees().is_empty().then_some(()));
    assert_eq!(two.each_ref().map(|child| cgroup_of(child.pid)), ["0::/first", "0::/second"]);
}

/// Killed with its guardian, a divvyd leaves its tree; the next one takes it apart.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn the_next_divvyd_puts_back_whom_a_dead_one_left() {
    for backend in ["cgroup", "freezer"] {
        let work = Group::new("work");
        let child = Child::start(&work.cgroup, SPIN);
        let mut daemon = Daemon::user("own", &["--backend", backend]);
        daemon.attach(child.pid, 1);
        daemon.kill_with_its_guardian();
        sleep(500);
        assert_eq!(trees().len(), 1, "nobody is left to remove it");
        assert!(cgroup_of(child.pid).contains("/divvy-"));
        let mut next = Daemon::user("own", &[]);
        assert_eq!((cgroup_of(child.pid).as_str(), trees().len()), ("0::/work", 0), "{backend}");
        let before = procfs::stat(child.pid).expect("readable").expect("alive").utime;
        eventually("it to run", || {
            (procfs::stat(child.pid).expect("readable").expect("alive").utime > before).then_some(())
        });
        next.stop();
    }
}

/// A user who resumes all that is its own, all the time: where signals hold it, it gets what it likes.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn who_resumes_its_own_processes_gains_nothing() {
    const ALICE: u32 = 1001;
    let work = Group::new("work");
    let mut daemon = Daemon::system(&["--backend", "cgroup"]);
    // A part of the hostile one's time is the helper's: it is hers. Both begin when they are where they go back to: a helper
    // from before would go back to another cgroup, and live on there.
    let lines = [
        format!("read go; (while :; do kill -CONT -1 2>/dev/null; sleep 0.001; done) & {SPIN}"),
        format!("read go; {SPIN}"),
    ];
    let mut children = Vec::new();
    for (line, uid) in lines.iter().zip([ALICE, ALICE + 1]) {
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).stdin(Stdio::piped()).uid(uid).gid(uid);
        let mut child = shell.spawn().expect("a shell");
        let pid = Pid::from_child(&child);
        assert!(work.cgroup.take(pid).expect("root may"));
        drop(child.stdin.take());
        children.push((child, uid));
    }
    for (child, uid) in &children {
        let mut attach = daemon.divvy(&["attach", "-s", "1", "--tree", &child.id().to_string()]);
        check_success(attach.uid(*uid).gid(*uid));
    }
    let leaves = leaves();
    eventually("all to be moved", || work.cgroup.processes().expect("there").is_empty().then_some(()));
    // Nor can she leave.
    let procs = format!("{ROOT}/work/cgroup.procs");
    let mut leave = Command::new("sh");
    leave.args(["-c", &format!("echo {} >{procs}", children[0].0.id())]).uid(ALICE).gid(ALICE);
    assert!(!output(&mut leave).status.success());
    check_parts(&used(&leaves), &[1, 1]);
    daemon.stop();
    assert!(trees().is_empty());
    let home = |child| cgroup_of(Pid::from_child(child));
    assert!(children.iter().all(|(child, _)| home(child) == "0::/work"));
    assert!(work.cgroup.processes().expect("there").len() >= 3, "her helper too");
}

/// A client that naps for a tenth of a second at a time is never idle to the market. What it leaves is its user's other client's.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn what_a_client_leaves_is_its_users_first() {
    const ALICE: u32 = 1001;
    const NAPS: &str = "while :; do usleep 100000; done";
    let mut daemon = Daemon::system(&["--backend", "cgroup"]);
    let mut children = Vec::new();
    for (line, uid) in [(SPIN, ALICE), (NAPS, ALICE), (SPIN, ALICE + 1)] {
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).stdin(Stdio::null()).uid(uid).gid(uid);
        let child = shell.spawn().expect("a shell");
        let mut attach = daemon.divvy(&["attach", "-s", "1", "--tree", &child.id().to_string()]);
        check_success(attach.uid(uid).gid(uid));
        children.push(child);
    }
    let leaves = leaves();
    sleep(1_000);
    let used = used(&leaves);
    let all: u64 = used.iter().sum();
    assert!(used[1] > 0 && used[1] * 5 < all, "half of alice's half is its part, and it naps: {used:?}");
    check_parts(&[used[0] + used[1], used[2]], &[1, 1]);
    check_success(&mut daemon.divvy(&["detach", "alice/sh"]));
    daemon.stop();
    assert!(trees().is_empty());
    for child in &mut children {
        assert!(!cgroup_of(Pid::from_child(child)).contains("/divvy-"));
        child.kill().expect("ours");
        child.wait().expect("our child");
    }
}

#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn what_cannot_be_had_is_refused() {
    check_inside();
    let mut no = Command::new("divvyd");
    no.args(["--user", "--backend", "cgroup"])
        .env("DIVVY_RUNTIME_DIR", "/home/alice/run")
        .uid(1001)
        .gid(1001);
    let done = output(&mut no);
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(5), "{said}");
    assert!(said.contains("--backend cgroup: /sys/fs/cgroup is not ours to change"), "{said}");
    assert!(said.contains("Delegate=yes"), "{said}");
    let mut no = Command::new("divvyd");
    no.args(["--user", "--backend", "cgroup", "--policy", "las"]).env("DIVVY_RUNTIME_DIR", "/run/own");
    let done = output(&mut no);
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(2), "{said}");
    assert!(said.contains("--policy las decides who runs"), "{said}");
    let work = Group::new("work");
    let _child = Child::start(&work.cgroup, SPIN);
    let mut daemon = Daemon::user("own", &["--backend", "auto"]);
    let done = output(&mut daemon.divvy(&["attach", "-s", "1", "--cgroup", "/work"]));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success() && said.contains("would leave the one that names them"), "{said}");
    assert!(said.contains("--backend signals"), "{said}");
    let doctor = check_success(&mut daemon.divvy(&["doctor"]));
    assert!(doctor.contains(", by cgroup (/sys/fs/cgroup is ours"), "{doctor}");
    daemon.stop();
}

/// An ordinary user's own divvyd, where a cgroup was delegated to that user, and moves nobody in from elsewhere.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn an_ordinary_user_divides_within_what_was_delegated() {
    const ALICE: u32 = 1001;
    let (own, work) = (Group::new("alice"), Group::new("work"));
    let delegated = Path::new(ROOT).join("alice");
    let [session, jobs] = ["session", "jobs"].map(|name| own.cgroup.make(name).expect("made"));
    for dir in [&delegated, session.path(), jobs.path()] {
        for file in ["", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"] {
            std::os::unix::fs::chown(dir.join(file), Some(ALICE), Some(ALICE)).expect("root may");
        }
    }
    let spin = |cgroup: &Cgroup| {
        let mut shell = Command::new("sh");
        let child =
            shell.args(["-c", SPIN]).stdin(Stdio::null()).uid(ALICE).gid(ALICE).spawn().expect("a shell");
        assert!(cgroup.take(Pid::from_child(&child)).expect("root may"));
        child
    };
    let mut children = [&jobs, &jobs, &work.cgroup].map(spin);
    let procs = session.path().join("cgroup.procs");
    let become_alice = format!("echo 0 >{}; exec su -s /bin/sh alice -c \"exec divvyd $*\"", procs.display());
    let mut shell = Command::new("sh");
    shell.args(["-c", &become_alice, "divvyd"]);
    let mut daemon = Daemon::of("alice", ALICE, shell, &["--backend", "cgroup"]);
    for (child, share) in children.iter().zip([1, 3, 1]) {
        let mut attach =
            daemon.divvy(&["attach", "-s", &share.to_string(), "--tree", &child.id().to_string()]);
        check_success(attach.uid(ALICE).gid(ALICE));
    }
    let tree = dirs(&delegated, "divvy-").into_iter().next().expect("her tree");
    let leaves = ["c0", "c1"].map(|name| Cgroup::open(&tree.join(name)).expect("there"));
    check_parts(&used(&leaves), &[1, 3]);
    // The kernel lets her move nobody in who is elsewhere: that is told, and nothing else is.
    assert_eq!(cgroup_of(Pid::from_child(&children[2])), "0::/work");
    let log = fs::read_to_string("/tmp/divvyd.log").expect("a log");
    assert!(log.contains("is charged, and neither held nor weighed: move a process to"), "{log}");
    daemon.stop();
    let homes = children.each_ref().map(|child| cgroup_of(Pid::from_child(child)));
    assert_eq!(homes, ["0::/alice/jobs", "0::/alice/jobs", "0::/work"]);
    assert!(dirs(&delegated, "divvy-").is_empty());
    for child in &mut children {
        child.kill().expect("ours");
        child.wait().expect("our child");
    }
}

/// A cgroup that somebody removes, and a process that is moved out, are in nobody's way.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn what_others_do_to_the_tree_ends_nothing() {
    let work = Group::new("work");
    let children = [(); 2].map(|()| Child::start(&work.cgroup, SPIN));
    let mut daemon = Daemon::user("own", &["--backend", "cgroup"]);
    for child in &children {
        daemon.attach(child.pid, 1);
    }
    let leaves = leaves();
    assert!(work.cgroup.take(children[0].pid).expect("root may"));
    for part in dirs(leaves[0].path(), "p") {
        fs::remove_dir(part).expect("empty");
    }
    fs::remove_dir(leaves[0].path()).expect("empty");
    check_success(&mut daemon.divvy(&["set", "1", "-s", "3"]));
    check_success(&mut daemon.divvy(&["detach", "0"]));
    let rows: Value =
        serde_json::from_str(&check_success(&mut daemon.divvy(&["ls", "--json"]))).expect("JSON");
    assert_eq!(rows["clients"].as_array().expect("clients").len(), 1, "{rows}");
    daemon.stop();
    assert!(trees().is_empty());
    assert_eq!(children.each_ref().map(|child| cgroup_of(child.pid)), ["0::/work", "0::/work"]);
}

/// Whoever is moved out of a cgroup that is then removed is in the one that is made anew: held if it was, with its limits.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn who_was_put_out_of_its_cgroup_is_put_back() {
    let work = Group::new("work");
    let children = [(); 2].map(|()| Child::start(&work.cgroup, SPIN));
    let mut daemon = Daemon::user("own", &["--backend", "cgroup"]);
    children.iter().for_each(|child| daemon.attach(child.pid, 1));
    check_success(&mut daemon.divvy(&["set", "0", "--limit", "cpu:20%,memory:64M"]));
    let inside = cgroup_of(children[0].pid);
    // Each time another share has something written.
    let remake = |share: &str| {
        let leaf = leaves().remove(0);
        assert!(work.cgroup.take(children[0].pid).expect("root may"));
        for part in dirs(leaf.path(), "p") {
            fs::remove_dir(part).expect("empty");
        }
        fs::remove_dir(leaf.path()).expect("empty");
        // Long enough for a look at whoever is paused and runs all the same.
        sleep(500);
        check_success(&mut daemon.divvy(&["set", "1", "-s", share]));
        eventually("it to be put back", || (cgroup_of(children[0].pid) == inside).then_some(()));
        let anew = Cgroup::open(leaf.path()).expect("it is made anew");
        let limits = (CpuMax { quota: Limit::At(20_000), period: 100_000 }, Limit::At(64 << 20));
        eventually("its limits", || {
            let kept = (anew.get(&CPU_MAX).expect("there"), anew.get(&MEMORY_MAX).expect("there"));
            (kept == limits).then_some(())
        });
    };
    remake("3");
    let log = || fs::read_to_string("/tmp/divvyd.log").expect("a log");
    eventually("it to be told", || {
        log().contains("somebody has removed its cgroup: it is made anew").then_some(())
    });
    let used = used(&leaves());
    let part = used[0] as f64 / (WINDOW_MS * 1_000_000) as f64;
    assert!((part / 0.2 - 1.0).abs() <= 2.0 * MAX_ERROR, "{part} of a CPU for 20 %: {used:?}");
    // Whoever puts it out has it run. Back, it is paused.
    check_success(&mut daemon.divvy(&["pause", "0"]));
    remake("2");
    let paused = self::used(&leaves());
    assert!(paused[0] == 0 && paused[1] > 0, "{paused:?}");
    check_success(&mut daemon.divvy(&["resume", "0"]));
    let resumed = self::used(&leaves());
    assert!(resumed[0] > 0, "{resumed:?}");
    daemon.stop();
    assert!(trees().is_empty());
    assert_eq!(children.each_ref().map(|child| cgroup_of(child.pid)), ["0::/work", "0::/work"]);
}

/// What a client's own processes made in its cgroup, and went into, goes with it, and they go back to where it came from.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn a_leaf_that_is_not_empty_is_taken_apart() {
    let work = Group::new("work");
    let child = Child::start(&work.cgroup, SPIN);
    let mut daemon = Daemon::user("own", &["--backend", "cgroup"]);
    daemon.attach(child.pid, 1);
    let leaf = leaves().remove(0);
    let own = leaf.path().join("p0/own/deep");
    fs::create_dir_all(&own).expect("root may");
    let other = Child::start(&Cgroup::open(&own).expect("made"), SPIN);
    check_success(&mut daemon.divvy(&["detach", "0"]));
    assert!(!leaf.exists());
    assert_eq!(cgroup_of(child.pid), "0::/work");
    let home = cgroup_of(other.pid);
    assert!(!home.contains("/divvy-"), "{home}");
    daemon.stop();
    assert!(trees().is_empty());
    let log = fs::read_to_string("/tmp/divvyd.log").expect("a log");
    assert!(!log.contains("take apart"), "{log}");
}

/// Where the kernel bounds no disks the gate does, whatever becomes of the cgroup.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn a_limit_that_the_gate_keeps_outlives_a_cgroup() {
    let root = Path::new(ROOT);
    fs::write(root.join("cgroup.subtree_control"), "-io").expect("root may");
    let (work, place) = (Group::new("work"), Group::new("place"));
    let children = [(); 2].map(|()| Child::start(&work.cgroup, SPIN));
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("echo 0 >{ROOT}/place/cgroup.procs; exec divvyd \"$@\""), "divvyd"]);
    let mut daemon = Daemon::of("own", 0, shell, &["--backend", "cgroup"]);
    children.iter().for_each(|child| daemon.attach(child.pid, 1));
    check_success(&mut daemon.divvy(&["set", "0", "--limit", "memory:64M,disk:2M"]));
    let tree = dirs(place.cgroup.path(), "divvy-").into_iter().next().expect("its tree");
    let leaf = tree.join("c0");
    let max = || Cgroup::open(&leaf).and_then(|leaf| leaf.get(&MEMORY_MAX)).ok();
    eventually("its limit", || (max() == Some(Limit::At(64 << 20))).then_some(()));
    assert!(work.cgroup.take(children[0].pid).expect("root may"));
    remove(&leaf);
    check_success(&mut daemon.divvy(&["set", "1", "-s", "3"]));
    eventually("its limit again", || (max() == Some(Limit::At(64 << 20))).then_some(()));
    let told = check_success(&mut daemon.divvy(&["ls", "--json"]));
    let told: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(told["clients"][0]["bounds"]["limit_disk_bytes"], 2 << 20, "{told}");
    daemon.stop();
    let log = fs::read_to_string("/tmp/divvyd.log").expect("a log");
    assert!(log.contains("somebody has removed its cgroup") && !log.contains("its limits: "), "{log}");
    fs::write(root.join("cgroup.subtree_control"), "+io").expect("root may");
}

/// By the freezer there are no weights with which a cgroup would be made anew: signals hold whoever was put out.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn the_freezer_does_without_a_cgroup_that_is_gone() {
    let work = Group::new("work");
    let children = [(); 2].map(|()| Child::start(&work.cgroup, SPIN));
    let mut daemon = Daemon::user("own", &["--backend", "freezer"]);
    children.iter().for_each(|child| daemon.attach(child.pid, 1));
    let leaf = leaves().remove(0);
    assert!(work.cgroup.take(children[0].pid).expect("root may"));
    remove(leaf.path());
    let ticks = || children.each_ref().map(|c| procfs::stat(c.pid).expect("readable").expect("alive").utime);
    sleep(2_000);
    let from = ticks();
    sleep(WINDOW_MS);
    let used: Vec<u64> = ticks().iter().zip(from).map(|(to, from)| to - from).collect();
    let part = used[0] as f64 / (used[0] + used[1]) as f64;
    assert!((part - 0.5).abs() < 0.05, "{part}: {used:?}");
    check_success(&mut daemon.divvy(&["pause", "0"]));
    let state = || procfs::stat(children[0].pid).expect("readable").expect("alive").state;
    eventually("it to be suspended", || state().is_suspended().then_some(()));
    daemon.stop();
    assert!(trees().is_empty() && !state().is_suspended());
}
