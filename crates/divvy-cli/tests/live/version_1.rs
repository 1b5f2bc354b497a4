//! `--backend freezer` where cgroup v2 is not mounted: by the freezer of version 1, with the same ways back.
//!
//! divvy and divvyd run in a mount namespace of their own, in which version 2 is not there; what they make is seen from outside.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use divvy_linux::cgroup::{Hierarchy, Survey};
use rustix::process::{Pid, Signal, kill_process};

use crate::daemon::client;
use crate::harness::{
    ENOUGH_TICKS, Process, Running, SCHEDULER_DIED, SPIN, Sandbox, Victim, check_fractions, check_report,
    cpu, eventually, one_cpu, skip,
};

/// Rounds of kills.
const ROUNDS: usize = 12;
/// Whoever was frozen is thawed within this after divvy was killed, as docs/safety.md has it, on a machine that may be busy.
const LET_GO: Duration = Duration::from_millis(200);

/// Where divvy may make cgroups in the freezer's hierarchy; a word why not where it may not.
fn ground(test: &str) -> Option<PathBuf> {
    if !rustix::process::geteuid().is_root() {
        skip(test, "not root: only root can have a mount namespace without cgroup v2");
        return None;
    }
    let ground = Survey::of_version_1().freezer.map_err(|why| skip(test, &why)).ok()?;
    assert_eq!(ground.hierarchy, Hierarchy::Freezer);
    Some(ground.dir)
}

/// A program that finds no cgroup v2 mounted.
fn without_version_2(sandbox: &Sandbox, program: &Path, args: &[&str]) -> Command {
    const SCRIPT: &str = r#"for at in $(awk '/ - cgroup2 /{print $5}' /proc/self/mountinfo); do umount -l "$at"; done; exec "$@""#;
    let mut command = sandbox.command("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", SCRIPT, "sh"]).arg(program).args(args);
    command
}

fn start(sandbox: &Sandbox, args: &[&str]) -> Running {
    let mut command = without_version_2(sandbox, sandbox.program(), args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Running { child: command.spawn().expect("unshare") }
}

/// The trees that divvy `pid` has made.
fn trees(ground: &Path, pid: Pid) -> Vec<PathBuf> {
    let prefix = format!("divvy-{pid}-");
    let all = std::fs::read_dir(ground).expect("a cgroup").flatten();
    all.filter(|e| e.file_name().to_string_lossy().starts_with(&prefix)).map(|e| e.path()).collect()
}

/// The leaves of a divvy's trees that are frozen, or about to be.
fn frozen(ground: &Path, pid: Pid) -> Vec<PathBuf> {
    let leaves = trees(ground, pid).into_iter().filter_map(|tree| std::fs::read_dir(tree).ok()).flatten();
    let stands = |leaf: &PathBuf| {
        std::fs::read_to_string(leaf.join("freezer.state")).is_ok_and(|state| state.trim() != "THAWED")
    };
    leaves.flatten().map(|leaf| leaf.path()).filter(stands).collect()
}

/// A run of three that compute on one CPU, one of them with a child that has left its session.
fn started(sandbox: &Sandbox, ground: &Path) -> (Running, Pid) {
    let spin = format!("{SPIN} # client");
    let words = [format!("1:{spin}"), format!("2:{spin}"), format!("3:setsid sh -c '{spin}' & {spin}")];
    let cpu_list = one_cpu();
    let args = ["share", "--quiet", "--backend", "freezer", "--cpus", &cpu_list];
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let running = start(sandbox, &[&args[..], &words].concat());
    let pid = running.scheduler();
    eventually("somebody to be frozen while others run", || {
        (frozen(ground, pid).len() > 1 && cpu(&sandbox.with("client")) > 10).then_some(())
    });
    (running, pid)
}

/// All of `before` run, and no cgroup is left.
fn check_let_go(sandbox: &Sandbox, ground: &Path, divvy: Pid, before: &[Process]) {
    eventually("the cgroups to be removed", || trees(ground, divvy).is_empty().then_some(()));
    for before in before {
        let after = || sandbox.processes().into_iter().find(|p| p.pid == before.pid).expect("it lives");
        eventually("everybody to run", || (after().cpu > before.cpu || after().state == 'R').then_some(()));
    }
}

#[test]
fn the_freezer_of_version_1_divides_and_nothing_is_left() {
    let Some(ground) = ground("the_freezer_of_version_1_divides_and_nothing_is_left") else { return };
    let sandbox = Sandbox::own();
    let tasks = [1, 2, 3].map(|share| format!("{share}:setsid sh -c '{SPIN} # deep' & {SPIN} # client"));
    let [a, b, c] = &tasks;
    let cpu_list = one_cpu();
    let running = start(&sandbox, &["share", "--json", "--backend", "freezer", "--cpus", &cpu_list, a, b, c]);
    let pid = running.scheduler();
    let mut seen = 0;
    while sandbox.worked() < 2 * ENOUGH_TICKS {
        assert!(sandbox.processes().iter().all(|p| p.state != 'T'), "somebody is seen stopped");
        seen = seen.max(frozen(&ground, pid).len());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(seen >= 2, "all but one are held: {seen}");
    let outcome = sandbox.end_after(0, running);
    let report = check_report(&String::from_utf8(outcome.stdout).expect("text"));
    check_fractions(&report, &[1.0 / 6.0, 2.0 / 6.0, 3.0 / 6.0]);
    assert_eq!(report["backend"]["used"], "freezer");
    assert_eq!(trees(&ground, pid), Vec::<PathBuf>::new());
    assert_eq!(sandbox.processes(), []);
}

#[test]
fn killed_it_lets_all_go_within_its_time() {
    let Some(ground) = ground("killed_it_lets_all_go_within_its_time") else { return };
    let mut slowest = Duration::ZERO;
    for round in 0..ROUNDS {
        let sandbox = Sandbox::own();
        let (mut running, pid) = started(&sandbox, &ground);
        // Any moment of a cycle will do.
        std::thread::sleep(Duration::from_millis(7 * round as u64));
        let before = sandbox.with("client");
        let killed = Instant::now();
        kill_process(pid, Signal::KILL).expect("ours");
        while !frozen(&ground, pid).is_empty() {
            assert!(killed.elapsed() < Duration::from_secs(5), "somebody stands for ever");
            std::thread::sleep(Duration::from_millis(1));
        }
        slowest = slowest.max(killed.elapsed());
        assert_eq!(running.wait(), Some(SCHEDULER_DIED));
        check_let_go(&sandbox, &ground, pid, &before);
        sandbox.kill_clients();
    }
    println!("{ROUNDS} rounds: all were let go within {slowest:?}");
    assert!(slowest < LET_GO, "{slowest:?}");
}

/// With its guardian nobody is left to thaw them but the next.
#[test]
fn rescue_and_the_next_divvy_thaw_by_the_words_of_version_1() {
    let Some(ground) = ground("rescue_and_the_next_divvy_thaw_by_the_words_of_version_1") else { return };
    for by_rescue in [true, false] {
        let sandbox = Sandbox::own();
        let (mut running, pid) = started(&sandbox, &ground);
        let guardian = sandbox.guardian().expect("a guardian");
        running.signal_scheduler(Signal::STOP);
        kill_process(guardian, Signal::KILL).expect("ours");
        running.kill(Victim::Scheduler);
        std::thread::sleep(Duration::from_millis(300));
        assert!(!frozen(&ground, pid).is_empty(), "nobody is left to thaw them");
        let before = sandbox.with("client");
        // One that is killed meanwhile ends when it is let go.
        let standing = before.iter().find(|p| p.state == 'D').expect("of version 1 the state is D");
        kill_process(standing.pid, Signal::KILL).expect("ours");
        let before: Vec<Process> = before.iter().filter(|p| p.pid != standing.pid).cloned().collect();
        let outcome =
            if by_rescue { sandbox.run(&["rescue", "--json"]) } else { sandbox.run(&["share", "1:true"]) };
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        let said = String::from_utf8_lossy(&outcome.stdout).into_owned() + &outcome.stderr;
        let told = if by_rescue { "\"thawed\"" } else { "that an earlier divvy had left frozen" };
        assert!(said.contains(told), "{said}");
        eventually("who was killed to end", || {
            sandbox.processes().iter().all(|p| p.pid != standing.pid).then_some(())
        });
        check_let_go(&sandbox, &ground, pid, &before);
        sandbox.kill_clients();
    }
}

/// Of version 1 who is killed while it stands ends at its next turn; the others are divided on.
#[test]
fn who_is_killed_while_it_stands_ends_at_its_next_turn() {
    let Some(ground) = ground("who_is_killed_while_it_stands_ends_at_its_next_turn") else { return };
    let sandbox = Sandbox::own();
    let names = ["client-a", "client-b", "client-c"];
    let words = names.map(|name| format!("1:: {name}; {SPIN}"));
    let [a, b, c] = &words;
    let cpu_list = one_cpu();
    let running =
        start(&sandbox, &["share", "--quiet", "--backend", "freezer", "--cpus", &cpu_list, a, b, c]);
    let pid = running.scheduler();
    let victim = eventually("one that stands", || {
        sandbox.with("client-a").into_iter().find(|p| p.state == 'D' && p.cpu > 10)
    });
    kill_process(victim.pid, Signal::KILL).expect("ours");
    eventually("its end", || sandbox.with("client-a").is_empty().then_some(()));
    let others = || [1, 2].map(|i| cpu(&sandbox.with(names[i])));
    let before = others();
    eventually("the others to go on", || {
        let now = others();
        (now[0] > before[0] + 20 && now[1] > before[1] + 20).then_some(())
    });
    running.signal(Signal::INT);
    assert_eq!(running.end().code, Some(130));
    assert_eq!(trees(&ground, pid), Vec::<PathBuf>::new());
    assert_eq!(sandbox.processes(), []);
}

/// Clients of a divvyd, which ran before: they go back to where they were, also if it is killed.
#[test]
fn clients_of_a_divvyd_go_back_to_where_they_were() {
    let Some(ground) = ground("clients_of_a_divvyd_go_back_to_where_they_were") else { return };
    let sandbox = Sandbox::own();
    let divvyd = sandbox.program().with_file_name("divvyd");
    let args = ["--user", "--background", "--backend", "freezer", "--cpus", &one_cpu(), "--linger", "1m"];
    let begun = without_version_2(&sandbox, &divvyd, &args).output().expect("unshare");
    assert!(begun.status.success(), "{}", String::from_utf8_lossy(&begun.stderr));
    let home = ground.join(format!("divvy-test-home-{}", std::process::id()));
    std::fs::create_dir(&home).expect("root may");
    let mut shells = Vec::new();
    for name in ["client-a", "client-b"] {
        let script = format!("echo 0 >{}/cgroup.procs; : {name}; {SPIN}", home.display());
        let mut command = sandbox.command("setsid");
        shells.push(command.args(["sh", "-c", &script]).stdout(Stdio::null()).spawn().expect("a shell"));
        let pid = sandbox.wait_for(1, name).remove(0).pid.to_string();
        let attached = sandbox.run(&["attach", "--name", name, "--tree", &pid]);
        assert_eq!(attached.code, Some(0), "{}", attached.stderr);
    }
    let pid = sandbox.processes().into_iter().find(|p| p.comm == "divvyd").expect("it runs").pid;
    eventually("one that stands", || (!frozen(&ground, pid).is_empty()).then_some(()));
    // Paused, it stands for as long as its user likes.
    assert_eq!(sandbox.run(&["pause", "client-a"]).code, Some(0));
    eventually("it to be paused", || client(&sandbox, "client-a").filter(|c| c["state"] == "paused"));
    let before = sandbox.with("client-");
    let killed = Instant::now();
    kill_process(pid, Signal::KILL).expect("ours");
    while !frozen(&ground, pid).is_empty() {
        assert!(killed.elapsed() < Duration::from_secs(5), "somebody stands for ever");
        std::thread::sleep(Duration::from_millis(1));
    }
    let took = killed.elapsed();
    check_let_go(&sandbox, &ground, pid, &before);
    for process in &before {
        let text = std::fs::read_to_string(format!("/proc/{}/cgroup", process.pid)).expect("it lives");
        let line = text.lines().find(|line| line.contains(":freezer:")).expect("the hierarchy");
        assert!(line.ends_with(home.file_name().and_then(|name| name.to_str()).expect("a name")), "{line}");
    }
    sandbox.kill_clients();
    for shell in &mut shells {
        shell.wait().expect("ours");
    }
    eventually("the cgroup to be empty", || std::fs::remove_dir(&home).is_ok().then_some(()));
    println!("all were let go within {took:?}");
    assert!(took < LET_GO, "{took:?}");
}
