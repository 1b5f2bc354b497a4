//! What docs/kernel.md says is typed, as it stands there.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use rustix::process::{Signal, kill_process};

use super::super::backend::check_success;
use super::super::{Child, Group, SPIN, check_inside};
use super::{MAX_ERROR_EDGES, Scheduler, check_fallback, state};
use crate::page;

const PAGE: &str = include_str!("../../../../../docs/kernel.md");
/// The process of the page's file, whose pid no test can choose.
const PID: &str = "4711";

/// A command of the page; the shell that reads it becomes it.
fn shell(line: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("cd /tmp; exec {line}")]).stdin(Stdio::null());
    shell
}

/// What `divvy-scx stats` shows of a client: its share, and what it achieved in percent.
fn row(stats: &str, client: &str) -> (u64, f64) {
    let rows = stats.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = rows.filter(|row| row.len() == 6).find(|row| row[0] == client);
    let row = row.unwrap_or_else(|| panic!("no {client}: {stats}"));
    (row[1].parse().expect("a share"), row[5].parse().expect("a part"))
}

/// All of them, in their order.
fn commands() -> [&'static str; 6] {
    check_inside();
    // Whoever follows the page here is root, and there is no sudo.
    fs::write("/bin/sudo", "#!/bin/sh\nexec \"$@\"\n").expect("root may");
    fs::set_permissions("/bin/sudo", fs::Permissions::from_mode(0o755)).expect("root may");
    let blocks = page::blocks(PAGE).into_iter().filter(|block| block.kind == "sh kernel");
    let lines: Vec<&str> = blocks.flat_map(|block| block.text.lines()).collect();
    lines.try_into().expect("six commands")
}

#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn the_verifier_takes_every_policy() {
    let [status, check, ..] = commands();
    let told = check_success(&mut shell(status));
    assert_eq!(Some(told.trim_end()), status.split('"').nth(1), "what the page says that it prints");
    let told = check_success(&mut shell(check));
    for policy in ["stride", "vtrr", "lottery", "pbs", "las", "fcfs", "rr"] {
        let dispatch = |line: &str| line.starts_with(policy) && line.contains(" divvy_dispatch ");
        assert!(told.lines().any(dispatch), "{policy}: {told}");
    }
    assert_eq!(state(), "disabled", "nothing is scheduled by a check");
}

#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn what_the_page_says_is_run_divides() {
    let [.., by_file, by_weights, stats, ops] = commands();
    let groups = ["build.slice", "simulation"].map(Group::new);
    let mut programs = groups.each_ref().map(|group| Child::start(&group.cgroup, SPIN));
    let file = page::block(PAGE, "toml");
    assert!(file.contains(PID), "{file}");
    fs::write("/tmp/shares.toml", file.replace(PID, &programs[1].pid.to_string())).expect("root may");
    let mut scheduler = Scheduler::of(&mut shell(by_file));
    let told = check_success(&mut shell(stats));
    println!("{told}");
    let [build, simulation, rest] = ["build", "simulation", "rest"].map(|client| row(&told, client));
    assert_eq!([build.0, simulation.0, rest.0], [300, 100, 100]);
    let part = build.1 / (build.1 + simulation.1);
    assert!((part / 0.75 - 1.0).abs() <= MAX_ERROR_EDGES, "{told}");
    assert_eq!(check_success(&mut shell(ops)), "divvy_vtrr\n");
    // Where nobody computes the rest of the minute takes no time.
    programs.iter_mut().for_each(Child::end);
    let (ended, said) = scheduler.wait();
    assert!(ended.success(), "{ended}: {said}");
    check_fallback();

    let _program = Child::start(&groups[0].cgroup, SPIN);
    let mut scheduler = Scheduler::of(&mut shell(by_weights));
    let told = check_success(&mut shell(stats));
    println!("{told}");
    assert_eq!(row(&told, "build.slice").0, 100);
    assert_eq!(check_success(&mut shell(ops)), "divvy_stride\n");
    // Ctrl-C.
    kill_process(scheduler.pid(), Signal::INT).expect("ours");
    let (ended, said) = scheduler.wait();
    assert!(ended.success(), "{ended}: {said}");
    check_fallback();
}
