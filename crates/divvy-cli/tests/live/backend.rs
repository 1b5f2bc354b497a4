//! The back ends that use cgroups: the freezer holds as signals do, weights divide, and nothing stays behind.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use divvy_linux::cgroup::Survey;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::harness::{
    ENOUGH_TICKS, MAX_FRACTION_ERROR, Process, Running, SPIN, Sandbox, Victim, check_fractions, check_report,
    client, cpu, eventually, one_cpu, skip, two_cpus,
};

/// Rounds of kills at random moments.
const ROUNDS: u64 = 60;
/// The latest moment of a kill, after the start of the process.
const LATEST: Duration = Duration::from_millis(150);
/// Weights divide to within this fraction of all CPU time, where the machine is busy with other things: the kernel
/// balances groups, and each has to be beaten by strangers in the same proportion.
const MAX_WEIGHTS_ERROR: f64 = 0.08;

/// Where this process may make cgroups that can be frozen; a word why not where it may not.
fn freezer(test: &str) -> Option<PathBuf> {
    Survey::new().freezer.map(|ground| ground.dir).map_err(|why| skip(test, &why)).ok()
}

pub fn weights(test: &str) -> Option<PathBuf> {
    Survey::new().weights.map(|ground| ground.dir).map_err(|why| skip(test, &why)).ok()
}

/// The trees in `ground` that divvy `pid` has made.
pub fn trees(ground: &Path, pid: Pid) -> Vec<PathBuf> {
    let prefix = format!("divvy-{pid}-");
    let all = std::fs::read_dir(ground).expect("a cgroup").flatten();
    all.filter(|e| e.file_name().to_string_lossy().starts_with(&prefix)).map(|e| e.path()).collect()
}

/// How many leaves of a divvy's trees are frozen.
fn frozen(ground: &Path, pid: Pid) -> usize {
    let leaves = trees(ground, pid).into_iter().filter_map(|tree| std::fs::read_dir(tree).ok()).flatten();
    let state = |leaf: std::fs::DirEntry| std::fs::read_to_string(leaf.path().join("cgroup.freeze"));
    leaves
        .flatten()
        .filter(|leaf| leaf.file_type().is_ok_and(|t| t.is_dir()))
        .filter_map(|l| state(l).ok())
        .filter(|s| s.trim() == "1")
        .count()
}

/// Three that compute, one that makes children that leave its session, on one CPU, in cgroups.
fn start(sandbox: &Sandbox, more: &[&str]) -> Running {
    let spin = format!("{SPIN} # client");
    let family = format!("setsid sh -c '{SPIN} # client' & while :; do /bin/true; done # client");
    let words = [format!("1:{spin}"), format!("2:{spin}"), format!("3:{spin}"), format!("1:{family}")];
    let mut args = vec!["share", "--quiet", "--backend", "freezer"];
    let cpu = one_cpu();
    args.extend(["--cpus", &cpu]);
    args.extend(more);
    args.extend(words.iter().map(String::as_str));
    sandbox.start(&args)
}

/// Waits until divvy divides: until somebody is frozen and all have run.
fn started(sandbox: &Sandbox, ground: &Path, more: &[&str]) -> Running {
    let running = start(sandbox, more);
    eventually("somebody to be frozen while others run", || {
        (frozen(ground, running.scheduler()) > 1 && cpu(&sandbox.with("client")) > 10).then_some(())
    });
    running
}

/// All clients run, and no cgroup is left.
fn check_let_go(sandbox: &Sandbox, ground: &Path, divvy: Pid) {
    eventually("the cgroups to be removed", || trees(ground, divvy).is_empty().then_some(()));
    for before in sandbox.with("client") {
        // Who is frozen is in state D. When the CPU comes round is the kernel's affair: an autogroup that was thawed beside another
        // has been seen to wait for a minute.
        let after = || sandbox.processes().into_iter().find(|p| p.pid == before.pid);
        let runs = |p: Process| p.cpu > before.cpu || p.state == 'R';
        eventually("everybody to run", || after().is_none_or(runs).then_some(()));
    }
}

#[test]
fn the_freezer_divides_and_nobody_is_seen_stopped() {
    let Some(ground) = freezer("the_freezer_divides_and_nobody_is_seen_stopped") else { return };
    let sandbox = Sandbox::own();
    let tasks = [1, 2, 3].map(|share| format!("{share}:setsid sh -c '{SPIN} # deep' & {SPIN} # client"));
    let [a, b, c] = &tasks;
    let cpu = one_cpu();
    let args = ["share", "--json", "--backend", "freezer", "--cpus", &cpu, a, b, c];
    let running = sandbox.start(&args);
    let pid = running.scheduler();
    let mut seen = 0;
    while sandbox.worked() < 2 * ENOUGH_TICKS {
        assert!(sandbox.processes().iter().all(|p| p.state != 'T'), "somebody is seen stopped");
        seen = seen.max(frozen(&ground, pid));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(seen >= 2, "all but one are held: {seen}");
    let outcome = sandbox.end_after(0, running);
    let report = check_report(&String::from_utf8(outcome.stdout).expect("text"));
    check_fractions(&report, &[1.0 / 6.0, 2.0 / 6.0, 3.0 / 6.0]);
    assert_eq!(report["backend"], json!({ "asked": "freezer", "used": "freezer", "why": "asked for" }));
    assert_eq!(trees(&ground, pid), Vec::<PathBuf>::new());
    assert_eq!(sandbox.processes(), []);
}

/// A cgroup beside divvy's, and how a shell goes there.
fn elsewhere(ground: &Path, test: u32) -> (PathBuf, String) {
    let dir = ground.join(format!("elsewhere-{}-{test}", std::process::id()));
    std::fs::create_dir(&dir).expect("it is ours");
    let leave = format!("echo $$ > {}/cgroup.procs", dir.display());
    (dir, leave)
}

/// A command that leaves later, and one of which a child leaves alone.
fn leavers(leave: &str) -> [String; 2] {
    [
        format!("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; {leave}; {SPIN}"),
        format!("sh -c '{leave}; {SPIN} # leaver' & wait"),
    ]
}

/// The report of a run in which `leaver`, with one of four shares, goes elsewhere and computes on: all is charged.
fn leave_and_charge(sandbox: &Sandbox, elsewhere: &Path, cpus: &str, leaver: &str) -> Value {
    let (leaver, other) = (format!("1:{leaver} # leaver"), format!("3:({SPIN}) & {SPIN}"));
    let args = ["share", "--quiet", "--report", "report.json", "--backend", "idle", "--cpus", cpus];
    let running = sandbox.start(&[&args[..], &[&leaver, &other]].concat());
    eventually("it to leave", || {
        let there = std::fs::read_to_string(elsewhere.join("cgroup.procs")).expect("it is ours");
        (!there.is_empty()).then_some(())
    });
    // For a second at most it is not held, or charged late: in so much more time that is little.
    let before = sandbox.worked();
    let outcome = sandbox.end_after(16 * ENOUGH_TICKS, running);
    assert_eq!(outcome.code, Some(143), "{}", outcome.stderr);
    let report = sandbox.report("report.json");
    let all: f64 = (0..2).map(|i| client(&report, i, "service_ns").as_f64().expect("a number")).sum();
    assert!(all / 1e7 >= (before + 16 * ENOUGH_TICKS) as f64 - 20.0, "not all was charged: {report}");
    report
}

/// On several CPUs perf events count what somebody uses: whoever leaves the cgroup is held and charged all the same.
#[test]
fn who_leaves_its_cgroup_is_charged_on_several_cpus() {
    let test = "who_leaves_its_cgroup_is_charged_on_several_cpus";
    let (Some(ground), Some(_), Some(cpus)) = (freezer(test), weights(test), two_cpus(test)) else { return };
    let sandbox = Sandbox::own();
    let (elsewhere, leave) = elsewhere(&ground, 2);
    for leaver in leavers(&leave) {
        check_fractions(&leave_and_charge(&sandbox, &elsewhere, &cpus, &leaver), &[0.25, 0.75]);
    }
    drop(sandbox);
    eventually("it to be empty", || std::fs::remove_dir(&elsewhere).ok());
}

/// What the cgroup of a client weighs, once somebody is in it.
pub fn weight_of(tree: &Path, leaf: &str) -> Option<u64> {
    let read = |file: &str| std::fs::read_to_string(tree.join(leaf).join(file)).ok();
    read("cgroup.procs").filter(|procs| !procs.is_empty())?;
    read("cpu.weight").or_else(|| read("cpu.shares"))?.trim().parse().ok()
}

/// The kernel gives each CPU so much of the weight of the cgroup around them as those have who run there: by shares, strangers would have
/// most of the CPU of whoever has a small one.
#[test]
fn on_several_cpus_all_cgroups_weigh_the_same() {
    let test = "on_several_cpus_all_cgroups_weigh_the_same";
    let (Some(ground), Some(cpus)) = (weights(test), two_cpus(test)) else { return };
    let sandbox = Sandbox::own();
    for (cpus, alike) in [(&*cpus, true), (&*one_cpu(), false)] {
        let args =
            ["share", "--quiet", "--backend", "idle", "--cpus", cpus, "1:exec sleep 600", "9:exec sleep 601"];
        let running = sandbox.start(&args);
        let weights = eventually("both in their cgroups", || {
            let tree = trees(&ground, running.scheduler()).pop()?;
            Some([weight_of(&tree, "c0")?, weight_of(&tree, "c1")?])
        });
        assert_eq!(weights[0] == weights[1], alike, "{weights:?} on CPUs {cpus}");
        running.signal(Signal::TERM);
        running.end();
    }
}

/// A command that moves itself to another cgroup, at once or later, is held and charged all the same.
#[test]
fn who_leaves_its_cgroup_is_divided_all_the_same() {
    let test = "who_leaves_its_cgroup_is_divided_all_the_same";
    let (Some(ground), Some(_)) = (freezer(test), weights(test)) else { return };
    let sandbox = Sandbox::own();
    let (elsewhere, leave) = elsewhere(&ground, 1);
    for leaver in leavers(&leave) {
        check_fractions(&leave_and_charge(&sandbox, &elsewhere, &one_cpu(), &leaver), &[0.25, 0.75]);
    }
    // A command is over when all of it is, wherever that went: here its leader ends at once.
    let work = "i=0; while [ $i -lt 900000 ]; do i=$((i+1)); done";
    for wait in ["", "sleep 0.002;", "sleep 0.005;", "sleep 0.02;", "sleep 0.1;"] {
        let (parts, cpu) = (format!("1:sh -c '{leave}; {work} # leaver' & {wait} :"), one_cpu());
        let outcome =
            sandbox.run(&["share", "--json", "--backend", "idle", "--cpus", &cpu, &parts, "1:true"]);
        assert_eq!((outcome.code, sandbox.processes()), (Some(0), vec![]), "{wait}: {}", outcome.stderr);
        let report = check_report(&String::from_utf8(outcome.stdout).expect("text"));
        let got = client(&report, 0, "service_ns").as_u64().expect("a number");
        assert!(got > 100_000_000, "{wait}: what it has done elsewhere was charged: {report}");
    }
    std::fs::remove_dir(&elsewhere).expect("nobody is left in it");
}

/// What children used that came and went is added up by the kernel.
#[test]
fn short_lived_children_are_charged_in_a_cgroup() {
    let Some(_) = freezer("short_lived_children_are_charged_in_a_cgroup") else { return };
    let sandbox = Sandbox::own();
    let (family, spin) = ("1:while :; do /bin/true; done", format!("1:{SPIN}"));
    let report = sandbox.share_for_ticks(ENOUGH_TICKS, &["--backend", "freezer", family, &spin]);
    check_fractions(&report, &[0.5, 0.5]);
}

/// A handler for SIGCONT runs at each turn with signals, and never with the freezer.
#[test]
fn a_handler_for_sigcont_does_not_see_the_freezer() {
    let Some(_) = freezer("a_handler_for_sigcont_does_not_see_the_freezer") else { return };
    for (backend, told) in [("signals", true), ("freezer", false)] {
        let sandbox = Sandbox::own();
        let handler = format!("1:trap 'echo continued' CONT; {SPIN}");
        let spin = format!("1:{SPIN}");
        let cpu = one_cpu();
        let outcome = sandbox.run(&[
            "share",
            "--quiet",
            "--backend",
            backend,
            "--for",
            "2s",
            "--cpus",
            &cpu,
            &handler,
            &spin,
        ]);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        assert_eq!(!outcome.stdout.is_empty(), told, "{backend}");
    }
}

#[test]
fn every_kind_of_policy_works_by_freezing() {
    let Some(_) = freezer("every_kind_of_policy_works_by_freezing") else { return };
    let sandbox = Sandbox::own();
    let (one, three) = (format!("1:{SPIN}"), format!("3:{SPIN}"));
    for policy in ["alps", "stride", "lottery:seed=7"] {
        let args = ["--backend", "freezer", "--policy", policy, &one, &three];
        let report = sandbox.share_for_ticks(ENOUGH_TICKS, &args);
        assert_eq!(report["policy"], policy);
        if policy != "lottery:seed=7" {
            check_fractions(&report, &[0.25, 0.75]);
        }
        assert!(client(&report, 0, "achieved_fraction").as_f64().unwrap() < 0.5, "{policy}: {report}");
    }
}

#[test]
fn frozen_clients_end_politely() {
    let Some(ground) = freezer("frozen_clients_end_politely") else { return };
    let sandbox = Sandbox::own();
    let running = started(&sandbox, &ground, &[]);
    let pid = running.scheduler();
    running.signal(Signal::INT);
    assert_eq!(running.end().code, Some(130));
    assert_eq!(sandbox.processes(), []);
    assert_eq!(trees(&ground, pid), Vec::<PathBuf>::new());
}

#[test]
fn killed_at_random_moments_the_freezer_lets_go() {
    let Some(ground) = freezer("killed_at_random_moments_the_freezer_lets_go") else { return };
    let sandbox = Sandbox::own();
    let seed = u64::from(std::process::id());
    let (mut random, mut held_rounds, mut slowest) = (seed, 0, Duration::ZERO);
    for round in 0..ROUNDS {
        // SplitMix64: any order of moments will do, and the seed tells it again.
        random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (random ^ (random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let after = Duration::from_nanos((mixed >> 16) % LATEST.as_nanos() as u64);
        let mut running = start(&sandbox, &[]);
        let pid = running.scheduler();
        std::thread::sleep(after);
        let killed = Instant::now();
        running.kill(Victim::ALL[(round % 3) as usize]);
        held_rounds += u64::from(frozen(&ground, pid) > 0);
        let what = format!("no cgroup to be left (seed {seed}, round {round}, {after:?})");
        // Killed before there was a guardian, nobody was held, and what is empty the next divvy removes.
        eventually(&what, || {
            let guarded = sandbox.processes().iter().any(Process::is_divvy);
            (!guarded && (trees(&ground, pid).is_empty() || sandbox.with("client").is_empty())).then_some(())
        });
        assert_eq!(frozen(&ground, pid), 0, "{what}");
        slowest = slowest.max(killed.elapsed());
        sandbox.kill_clients();
        if !trees(&ground, pid).is_empty() {
            rescue(&sandbox);
        }
        assert_eq!(trees(&ground, pid), Vec::<PathBuf>::new(), "{what}");
    }
    println!(
        "{ROUNDS} rounds (seed {seed}); in {held_rounds} somebody was seen frozen; all let go within {slowest:?}"
    );
}

/// Nobody is hung up on either: to the kernel nobody stood.
#[test]
fn killed_in_the_terminals_session_clients_live_on() {
    let Some(ground) = freezer("killed_in_the_terminals_session_clients_live_on") else { return };
    let sandbox = Sandbox::own();
    let mut running = started(&sandbox, &ground, &["--keep-terminal"]);
    let pid = running.scheduler();
    // The commands themselves: what one of them runs for a moment does not outlive that.
    let mut commands = sandbox.with("client");
    commands.retain(|p| p.parent == pid.as_raw_nonzero().get());
    let before: Vec<Pid> = commands.iter().map(|p| p.pid).collect();
    assert_eq!(before.len(), 4);
    running.kill(Victim::Scheduler);
    check_let_go(&sandbox, &ground, pid);
    let after: Vec<Pid> = sandbox.with("client").iter().map(|p| p.pid).collect();
    assert!(before.iter().all(|pid| after.contains(pid)), "{before:?} {after:?}");
}

fn rescue(sandbox: &Sandbox) -> Value {
    let outcome = sandbox.run(&["rescue", "--json"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    serde_json::from_slice(&outcome.stdout).expect("JSON")
}

/// A divvy and its guardian that were killed at once, with somebody frozen.
fn killed_together(sandbox: &Sandbox, ground: &Path) -> Pid {
    let mut running = started(sandbox, ground, &[]);
    let pid = running.scheduler();
    let guardian = sandbox.guardian().expect("a guardian");
    // A stopped divvy cannot put another in its place meanwhile.
    running.signal_scheduler(Signal::STOP);
    kill_process(guardian, Signal::KILL).unwrap();
    running.kill(Victim::Scheduler);
    std::thread::sleep(Duration::from_millis(500));
    assert!(frozen(ground, pid) > 0, "nobody is left to thaw them");
    pid
}

#[test]
fn rescue_thaws_and_removes() {
    let Some(ground) = freezer("rescue_thaws_and_removes") else { return };
    let sandbox = Sandbox::own();
    let pid = killed_together(&sandbox, &ground);
    let leaves = std::fs::read_dir(&trees(&ground, pid)[0]).unwrap().flatten();
    let leaves = leaves.filter(|l| l.file_type().is_ok_and(|t| t.is_dir())).count();
    let report = rescue(&sandbox);
    assert!(report["thawed"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(report["cgroups_removed"], json!(leaves + 1), "{report}");
    check_let_go(&sandbox, &ground, pid);
    assert_eq!(rescue(&sandbox)["thawed"], 0, "the table is gone");
}

#[test]
fn the_next_divvy_thaws() {
    let Some(ground) = freezer("the_next_divvy_thaws") else { return };
    let sandbox = Sandbox::own();
    let pid = killed_together(&sandbox, &ground);
    let outcome = sandbox.run(&["share", "1:true"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("that an earlier divvy had left frozen"), "{}", outcome.stderr);
    check_let_go(&sandbox, &ground, pid);
}

#[test]
fn a_stopped_divvy_lets_frozen_clients_go_and_takes_them_back() {
    let Some(ground) = freezer("a_stopped_divvy_lets_frozen_clients_go_and_takes_them_back") else { return };
    let sandbox = Sandbox::own();
    let running = started(&sandbox, &ground, &[]);
    let pid = running.scheduler();
    running.signal_scheduler(Signal::STOP);
    eventually("all to be thawed", || (frozen(&ground, pid) == 0).then_some(()));
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(frozen(&ground, pid), 0);
    assert_eq!(trees(&ground, pid).len(), 1, "they stay where they are: divvy lives");
    running.signal_scheduler(Signal::CONT);
    eventually("scheduling to go on", || (frozen(&ground, pid) > 1).then_some(()));
    running.signal(Signal::INT);
    assert_eq!(running.end().code, Some(130));
    assert_eq!(trees(&ground, pid), Vec::<PathBuf>::new());
}

/// A cgroup that was given to a user without privilege, as systemd does it; removed at the end.
struct Delegated(PathBuf);

impl Delegated {
    fn new(ground: &Path) -> Self {
        let dir = ground.join(format!("delegated-{}", std::process::id()));
        std::fs::create_dir(&dir).expect("ours");
        for name in ["", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"] {
            std::os::unix::fs::chown(dir.join(name), Some(65_534), Some(65_534)).expect("ours");
        }
        Self(dir)
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        eventually("the cgroup to be empty", || std::fs::remove_dir(&self.0).is_ok().then_some(()));
    }
}

#[test]
fn a_delegated_cgroup_is_all_that_a_user_needs() {
    let test = "a_delegated_cgroup_is_all_that_a_user_needs";
    let (Some(ground), Some(sandbox)) = (freezer(test), Sandbox::nobody(test)) else { return };
    let delegated = Delegated::new(&ground);
    let own = std::fs::read_to_string("/proc/self/cgroup").expect("readable");
    let (one, three) = (format!("1:{SPIN} # client"), format!("3:{SPIN} # client"));
    let cpu = one_cpu();
    let start = |args: &[&str]| {
        let mut divvy = sandbox.divvy(&[args, &["--cpus", &cpu, &one, &three]].concat());
        let procs =
            std::fs::File::options().write(true).open(delegated.0.join("cgroup.procs")).expect("ours");
        // SAFETY: one system call.
        unsafe {
            divvy.pre_exec(move || rustix::io::write(&procs, b"0").map(drop).map_err(Into::into));
        }
        Running { child: divvy.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("divvy") }
    };
    // auto finds it, where the kernel has no weights to give.
    let running = start(&["share", "--json", "--backend", "auto", "--policy", "exact"]);
    let outcome = sandbox.end_after(ENOUGH_TICKS, running);
    let report = check_report(&String::from_utf8_lossy(&outcome.stdout));
    check_fractions(&report, &[0.25, 0.75]);
    assert_eq!(report["backend"]["used"], "freezer", "{report}");
    let why = report["backend"]["why"].as_str().expect("a reason");
    assert!(why.starts_with(&format!("{} is ours", delegated.0.display())), "{why}");
    // And its guardian, without privilege too, takes everything apart.
    let mut running = start(&["share", "--quiet", "--backend", "freezer"]);
    let pid = running.scheduler();
    eventually("somebody to be frozen", || (frozen(&delegated.0, pid) > 0).then_some(()));
    running.kill(Victim::Scheduler);
    check_let_go(&sandbox, &delegated.0, pid);
    for p in sandbox.with("client") {
        let cgroup = std::fs::read_to_string(format!("/proc/{}/cgroup", p.pid)).expect("alive");
        assert!(cgroup.contains("/delegated-") && cgroup != own && !cgroup.contains("divvy-"), "{cgroup}");
    }
    sandbox.kill_clients();
}

#[test]
fn without_a_delegated_cgroup_the_fix_is_named_and_auto_takes_signals() {
    let test = "without_a_delegated_cgroup_the_fix_is_named_and_auto_takes_signals";
    let Some(sandbox) = Sandbox::nobody(test) else { return };
    for backend in ["freezer", "cgroup"] {
        let outcome = sandbox.run(&["share", "--backend", backend, "1:true"]);
        assert_eq!(outcome.code, Some(5), "{}", outcome.stderr);
        assert!(outcome.stderr.starts_with(&format!("divvy: --backend {backend}: ")), "{}", outcome.stderr);
    }
    let outcome = sandbox.run(&["share", "--json", "--backend", "auto", "1:true"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let report = check_report(&String::from_utf8_lossy(&outcome.stdout));
    assert_eq!(
        (&report["backend"]["asked"], &report["backend"]["used"]),
        (&json!("auto"), &json!("signals"))
    );
    let told = sandbox.run(&["share", "--backend", "auto", "1:true"]).stderr;
    assert!(told.contains("divvy: backend signals: "), "{told}");
}

#[test]
fn arguments_that_do_not_go_with_a_backend_are_named() {
    let sandbox = Sandbox::own();
    let own = format!("1:@pid:{}", std::process::id());
    for (args, text) in [
        (&["--backend", "cgroup", "--policy", "las", "1:true"][..], "leave --policy out"),
        (&["--backend", "freezer", own.as_str()], "use --backend signals for it"),
        (&["--backend", "cgroup", own.as_str()], "use --backend signals"),
        (&["--policy", "kernel", "1:true"], "comes with --backend cgroup"),
        (&["--backend", "nice", "1:true"], "signals, freezer, cgroup, auto"),
        (&["--backend", "idle", "--policy", "las", "1:true"], "leave --policy las out"),
        (&["--backend", "idle", own.as_str()], "use --backend signals for it"),
    ] {
        let outcome = sandbox.run(&[&["share"], args].concat());
        assert_eq!(outcome.code, Some(2), "{args:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(text), "{args:?}: {}", outcome.stderr);
    }
}

#[test]
fn the_kernels_weights_divide() {
    let Some(ground) = weights("the_kernels_weights_divide") else { return };
    let sandbox = Sandbox::own();
    let tasks = [1, 2, 3].map(|share| format!("{share}:{SPIN}"));
    let [a, b, c] = &tasks;
    let cpu = one_cpu();
    let args = ["share", "--json", "--backend", "cgroup", "--cpus", &cpu, a, b, c];
    let running = sandbox.start(&args);
    let pid = running.scheduler();
    eventually("its cgroups", || (trees(&ground, pid).len() == 1).then_some(()));
    let outcome = sandbox.end_after(2 * ENOUGH_TICKS, running);
    let report = check_report(&String::from_utf8(outcome.stdout).expect("text"));
    assert_eq!((&report["policy"], &report["backend"]["used"]), (&json!("kernel"), &json!("cgroup")));
    let weights: Vec<u64> = serde_json::from_value(report["backend"]["weights"].clone()).expect("weights");
    assert_eq!((weights[1], weights[2]), (2 * weights[0], 3 * weights[0]));
    for (i, share) in [1.0, 2.0, 3.0].into_iter().enumerate() {
        let achieved = client(&report, i, "achieved_fraction").as_f64().expect("a number");
        assert!((achieved - share / 6.0).abs() <= MAX_WEIGHTS_ERROR.max(MAX_FRACTION_ERROR), "{report}");
    }
    assert_eq!(trees(&ground, pid), Vec::<PathBuf>::new());
    assert_eq!(sandbox.processes(), []);
}

#[test]
fn killed_with_weights_nothing_is_left_but_the_clients() {
    let Some(ground) = weights("killed_with_weights_nothing_is_left_but_the_clients") else { return };
    let sandbox = Sandbox::own();
    let (one, two) = (format!("1:{SPIN} # client"), format!("5:{SPIN} # client"));
    let mut running = sandbox.start(&["share", "--quiet", "--backend", "cgroup", &one, &two]);
    let pid = running.scheduler();
    eventually("clients that run", || (cpu(&sandbox.with("client")) > 10).then_some(()));
    assert_eq!(trees(&ground, pid).len(), 1);
    running.kill(Victim::Scheduler);
    check_let_go(&sandbox, &ground, pid);
    assert_eq!(sandbox.with("client").len(), 2);
}

/// What the leaves of a divvy's trees have in `cpu.idle`.
fn idle(ground: &Path, pid: Pid) -> Vec<bool> {
    let leaves = trees(ground, pid).into_iter().filter_map(|tree| std::fs::read_dir(tree).ok()).flatten();
    let state = |leaf: std::fs::DirEntry| std::fs::read_to_string(leaf.path().join("cpu.idle"));
    let leaves = leaves.flatten().filter(|leaf| leaf.file_type().is_ok_and(|t| t.is_dir()));
    leaves.filter_map(|l| state(l).ok()).map(|s| s.trim() == "1").collect()
}

/// One that sleeps now and then, with three shares, and one that computes; both have been put behind the other by `cpu.idle`.
fn with_a_sleeper(sandbox: &Sandbox, ground: &Path, more: &[&str]) -> Running {
    let work = "i=0; while [ $i -lt 5000 ]; do i=$((i+1)); done";
    let (sleeper, other) =
        (format!("3:while :; do {work}; sleep 0.003; done # client"), format!("1:{SPIN} # client"));
    let cpu = one_cpu();
    let args = ["share", "--quiet", "--backend", "idle", "--cpus", &cpu];
    let running = sandbox.start(&[&args[..], more, &[&sleeper, &other]].concat());
    let pid = running.scheduler();
    eventually("one that stands behind the other", || idle(ground, pid).contains(&true).then_some(()));
    running
}

#[test]
fn beside_a_sleeper_nobody_is_suspended() {
    let Some(ground) = weights("beside_a_sleeper_nobody_is_suspended") else { return };
    let sandbox = Sandbox::own();
    let running = with_a_sleeper(&sandbox, &ground, &["--json"]);
    let pid = running.scheduler();
    // Signals hold for a moment where the sleeper was not seen asleep for long. The other stands behind in the turns of the sleeper
    // only, of which there have to be some, and each of the two has to have done something.
    let (mut looks, mut suspended, mut behind) = (0, 0, 0);
    eventually("some turns", || {
        looks += 1;
        suspended += u32::from(!sandbox.suspended().is_empty());
        behind += u32::from(idle(&ground, pid).contains(&true));
        let worked = sandbox.with("client").iter().filter(|p| p.cpu > 15).count();
        (looks >= 100 && behind >= 5 && worked == 2).then_some(())
    });
    assert!(suspended * 10 <= looks * 3, "somebody suspended in {suspended} of {looks} looks");
    running.signal(Signal::TERM);
    let outcome = running.end();
    assert_eq!(outcome.code, Some(143), "{}", outcome.stderr);
    let report = check_report(&String::from_utf8(outcome.stdout).expect("text"));
    assert_eq!(report["backend"], json!({ "asked": "idle", "used": "idle", "why": "asked for" }));
    // Neither has been kept from the CPU.
    let got = |i| client(&report, i, "service_ns").as_f64().expect("a number");
    assert!(got(0) > 1e8 && got(1) > 1e8, "{report}");
    assert_eq!(trees(&ground, pid), Vec::<PathBuf>::new());
    assert_eq!(sandbox.processes(), []);
}

/// One that computes has what one that sleeps on and on leaves, in its own turn; the third, which naps, is not to have as much of
/// that when its own is over: it had 33 % of 25.
#[test]
fn who_naps_has_its_part_beside_one_that_sleeps_on() {
    /// Of what the two had.
    const MAX_PART_ERROR: f64 = 0.04;
    let test = "who_naps_has_its_part_beside_one_that_sleeps_on";
    if weights(test).is_none() {
        return;
    }
    let sandbox = Sandbox::own();
    let work = "i=0; while [ $i -lt 5000 ]; do i=$((i+1)); done";
    let naps = format!("1:while :; do {work}; sleep 0.003; done # client naps");
    let computes = format!("3:{SPIN} # client computes");
    let cpu_list = one_cpu();
    let args = ["share", "--json", "--quiet", "--backend", "idle", "--cpus", &cpu_list, "1:sleep 600"];
    let running = sandbox.start(&[&args[..], &[&naps, &computes]].concat());
    eventually("enough CPU time", || (cpu(&sandbox.with("client")) >= 400).then_some(()));
    running.signal(Signal::TERM);
    let outcome = running.end();
    let report = check_report(&String::from_utf8(outcome.stdout).expect("text"));
    let had = [1, 2].map(|i| client(&report, i, "service_ns").as_f64().expect("a number"));
    let part = had[0] / (had[0] + had[1]);
    assert!((part - 0.25).abs() <= MAX_PART_ERROR, "{part}: {report}");
}

/// On two CPUs a program of two threads has what a loop of commands leaves, though it is its turn as well.
#[test]
fn several_threads_are_behind_a_loop_of_commands() {
    let test = "several_threads_are_behind_a_loop_of_commands";
    let (Some(ground), Some(cpus)) = (weights(test), two_cpus(test)) else { return };
    let sandbox = Sandbox::own();
    let commands =
        "3:while :; do sh -c 'i=0; while [ $i -lt 40000 ]; do i=$((i+1)); done; sleep 0.001'; done # client";
    let threads = format!("1:({SPIN}) & {SPIN} # client");
    let running =
        sandbox.start(&["share", "--json", "--backend", "idle", "--cpus", &cpus, commands, &threads]);
    let pid = running.scheduler();
    // Whether it has several threads is known after some looks; then it is not suspended any more.
    // The loop needs all of a CPU, so that the other is in its turn all the time, and is never held by signals but at first.
    let is_behind = |leaf: &str| {
        let read = |tree: PathBuf| std::fs::read_to_string(tree.join(leaf).join("cpu.idle")).ok();
        trees(&ground, pid).into_iter().find_map(read).is_some_and(|idle| idle.trim() == "1")
    };
    let mut behind = 0;
    eventually("the second behind the first", || {
        behind += u32::from(is_behind("c1") && !is_behind("c0") && sandbox.suspended().is_empty());
        let worked = sandbox.with("client").iter().filter(|p| p.cpu > 15).count();
        (behind >= 20 && worked >= 2).then_some(())
    });
    running.signal(Signal::TERM);
    let outcome = running.end();
    let report = check_report(&String::from_utf8(outcome.stdout).expect("text"));
    assert_eq!(report["backend"]["used"], json!("idle"));
    assert_eq!(trees(&ground, pid), Vec::<PathBuf>::new());
    assert_eq!(sandbox.processes(), []);
}

#[test]
fn those_behind_others_are_let_go_whatever_happens_to_divvy() {
    let Some(ground) = weights("those_behind_others_are_let_go_whatever_happens_to_divvy") else { return };
    let sandbox = Sandbox::own();
    let mut running = with_a_sleeper(&sandbox, &ground, &[]);
    let pid = running.scheduler();
    // One that does nothing any more leaves nobody behind.
    running.signal_scheduler(Signal::STOP);
    eventually("nobody to stand behind another", || {
        (!idle(&ground, pid).contains(&true) && !idle(&ground, pid).is_empty()).then_some(())
    });
    running.signal_scheduler(Signal::CONT);
    eventually("one that stands behind the other", || idle(&ground, pid).contains(&true).then_some(()));
    running.kill(Victim::Scheduler);
    check_let_go(&sandbox, &ground, pid);
    assert!(sandbox.with("client").len() >= 2, "{:?}", sandbox.processes());
}

#[test]
fn who_is_paused_has_nothing_that_others_leave() {
    let Some(ground) = weights("who_is_paused_has_nothing_that_others_leave") else { return };
    let sandbox = Sandbox::own();
    let running = with_a_sleeper(&sandbox, &ground, &[]);
    let pid = running.scheduler();
    running.signal(Signal::TSTP);
    let clients = || sandbox.with("client");
    eventually("all clients to stand", || clients().iter().all(Process::stands).then_some(()));
    let before = cpu(&clients());
    std::thread::sleep(Duration::from_millis(300));
    assert!(clients().iter().all(Process::stands) && cpu(&clients()) == before, "{:?}", clients());
    running.signal(Signal::CONT);
    eventually("one that stands behind the other", || idle(&ground, pid).contains(&true).then_some(()));
    eventually("both to go on", || (cpu(&clients()) > before + 20).then_some(()));
    running.signal(Signal::INT);
    assert_eq!(running.end().code, Some(130));
    assert_eq!(trees(&ground, pid), Vec::<PathBuf>::new());
    assert_eq!(sandbox.processes(), []);
}

/// Two clients that compute on one CPU, a and b, with `more` arguments.
fn two(sandbox: &Sandbox, more: &[&str]) -> Running {
    let (a, b) = (format!("1:: client-a; {SPIN}"), format!("1:: client-b; {SPIN}"));
    let cpu = one_cpu();
    let args = ["share", "--quiet", "--backend", "freezer", "--cpus", &cpu];
    let running = sandbox.start(&[&args[..], more, &[&a, &b]].concat());
    let _ = (sandbox.wait_for(1, "client-a"), sandbox.wait_for(1, "client-b"));
    running
}

fn one(sandbox: &Sandbox, name: &str) -> Process {
    sandbox.wait_for(1, name).remove(0)
}

/// With signals a stop that comes together with our own is lost. Here none is: our hold is no signal.
#[test]
fn a_frozen_client_stopped_by_somebody_else_stays_stopped() {
    let Some(ground) = freezer("a_frozen_client_stopped_by_somebody_else_stays_stopped") else { return };
    let sandbox = Sandbox::own();
    let running = two(&sandbox, &[]);
    let pid = running.scheduler();
    for round in 0..4 {
        std::thread::sleep(Duration::from_millis(100 + round * 3));
        kill_process(one(&sandbox, "client-a").pid, Signal::STOP).unwrap();
        eventually("it to stand", || (one(&sandbox, "client-a").state == 'T').then_some(()));
        let (stopped, other) = (one(&sandbox, "client-a"), one(&sandbox, "client-b").cpu);
        eventually("the other to go on", || {
            let now = one(&sandbox, "client-a");
            assert_eq!((now.state, now.cpu), ('T', stopped.cpu), "it stays so");
            (one(&sandbox, "client-b").cpu >= other + 20).then_some(())
        });
        kill_process(stopped.pid, Signal::CONT).unwrap();
        eventually("it to go on", || (one(&sandbox, "client-a").cpu >= stopped.cpu + 20).then_some(()));
    }
    running.signal(Signal::INT);
    assert_eq!(running.end().code, Some(130));
    assert_eq!(trees(&ground, pid), Vec::<PathBuf>::new());
}

#[test]
fn a_client_thawed_by_somebody_else_is_frozen_again() {
    let Some(ground) = freezer("a_client_thawed_by_somebody_else_is_frozen_again") else { return };
    let sandbox = Sandbox::own();
    // A quantum so long that nobody's turn ends while we look.
    let running = two(&sandbox, &["--quantum", "10s"]);
    let tree = eventually("a tree", || trees(&ground, running.scheduler()).pop());
    let files = [tree.join("c0/cgroup.freeze"), tree.join("c1/cgroup.freeze")];
    let is_frozen = |path: &Path| std::fs::read_to_string(path).is_ok_and(|text| text.trim() == "1");
    let held = eventually("one to be held", || {
        let found: Vec<&PathBuf> = files.iter().filter(|path| is_frozen(path)).collect();
        // Before the first turn both are.
        (found.len() == 1 && cpu(&sandbox.with("client-")) > 20).then(|| found[0].clone())
    });
    for _ in 0..3 {
        std::fs::write(&held, "0").expect("ours");
        eventually("it to be frozen again", || is_frozen(&held).then_some(()));
        assert_eq!(
            files.iter().filter(|path| is_frozen(path)).count(),
            1,
            "it was its turn, which proves nothing"
        );
    }
    running.signal(Signal::INT);
    assert_eq!(running.end().code, Some(130));
}

/// Somebody moves a command's process out of its cgroup, and may remove that: signals hold it from then on, and the run goes on.
fn check_moved(test: &str, removed: bool) {
    let Some(ground) = freezer(test) else { return };
    let sandbox = Sandbox::own();
    let mut running = two(&sandbox, &[]);
    let tree = eventually("a tree", || trees(&ground, running.scheduler()).pop());
    eventually("both to run", || (cpu(&sandbox.with("client-")) > 20).then_some(()));
    let moved = one(&sandbox, "client-a");
    std::fs::write(ground.join("cgroup.procs"), moved.pid.to_string()).expect("ours");
    if removed {
        eventually("its cgroup to be empty", || std::fs::remove_dir(tree.join("c0")).is_ok().then_some(()));
    } else {
        eventually("it to be suspended", || (one(&sandbox, "client-a").state == 'T').then_some(()));
    }
    let parts = || ["client-a", "client-b"].map(|name| one(&sandbox, name).cpu);
    let before = parts();
    eventually("a second for both", || {
        assert_eq!(running.child.try_wait().expect("ours"), None, "the run goes on");
        let used: u64 = parts().iter().sum::<u64>() - before.iter().sum::<u64>();
        (used > 100).then_some(())
    });
    let [a, b] = [0, 1].map(|i| parts()[i] - before[i]);
    assert!(a * 3 > b * 2 && b * 3 > a * 2, "equal shares: {a} and {b} ticks");
    running.signal(Signal::INT);
    assert_eq!(running.end().code, Some(130));
    assert_eq!(sandbox.processes(), []);
    assert!(!tree.exists());
}

#[test]
fn a_command_whose_cgroup_is_removed_is_held_by_signals() {
    check_moved("a_command_whose_cgroup_is_removed_is_held_by_signals", true);
}

#[test]
fn a_command_that_is_moved_out_of_its_cgroup_is_held_by_signals() {
    check_moved("a_command_that_is_moved_out_of_its_cgroup_is_held_by_signals", false);
}
