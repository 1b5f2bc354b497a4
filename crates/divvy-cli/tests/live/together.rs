//! `divvy share --group`: a run's tasks and divvyd's other clients are divided together, and seen in one list.

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::daemon::{client, clients, start_divvyd};
use crate::front::{job, rest};
use crate::groups;
use crate::harness::{
    MAX_FRACTION_ERROR, Running, SCHEDULER_DIED, SPIN, Sandbox, as_both_users, check_fractions, cpu,
    eventually, one_cpu,
};
use crate::seen;

as_both_users! {
    tasks_are_divided_together_with_divvyds_clients
    when_divvyd_is_killed_the_tasks_are_the_next_ones
    without_any_divvyd_the_tasks_run_on
}

/// A client of divvyd's that computes.
fn start_other(sandbox: &Sandbox) -> Running {
    let other = sandbox.start(&["run", "--name", "other", "--", "sh", "-c", SPIN]);
    eventually("the other client", || client(sandbox, "other"));
    other
}

fn wait_for_clients(sandbox: &Sandbox, n: usize) {
    eventually("the clients", || (clients(sandbox).len() == n).then_some(()));
}

/// A group of share 3 with two tasks, 3:1, beside a client of share 1: 9/16, 3/16, 1/4.
fn tasks_are_divided_together_with_divvyds_clients(sandbox: &Sandbox) {
    let cpu = one_cpu();
    start_divvyd(sandbox, &["--cpus", &cpu, "--linger", "60s"]);
    let other = start_other(sandbox);
    let (a, b) = (format!("a=3:{SPIN}"), format!("b=1:{SPIN}"));
    let args = ["share", "--group", "build=3", "--cpus", &cpu, "--report", "report.json", &a, &b];
    let run = sandbox.start(&args);
    wait_for_clients(sandbox, 3);
    groups::check(sandbox, &["a", "b", "other"], &[9.0 / 16.0, 3.0 / 16.0, 0.25]);

    // One list, and nobody is in it twice.
    let table = String::from_utf8(sandbox.run(&["ls"]).stdout).unwrap();
    let names: Vec<&str> = table.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["client", "other", "build/", "a", "b", "achieved:"], "{table}");
    let top = seen::json(sandbox, &["top", "--json"]);
    let rows: Vec<&str> =
        top["clients"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(rows, ["other", "build/", "a", "b"]);
    assert_eq!(seen::sockets(sandbox), 0);

    run.signal(Signal::TERM);
    let outcome = run.end();
    assert_eq!(outcome.code, Some(143), "{}", outcome.stderr);
    // Its own fractions are of the run, as ever; how the run stood among all is told beside.
    let report = sandbox.report("report.json");
    check_fractions(&report, &[0.75, 0.25]);
    let target = |i: usize| report["clients"][i]["target_fraction"].as_f64().unwrap();
    assert!((target(0) - 0.75).abs() < 0.01 && (target(1) - 0.25).abs() < 0.01, "{report}");
    let together = &report["together"];
    assert_eq!(together["group"], "build");
    for field in ["target_fraction", "achieved_fraction"] {
        let fraction = together[field].as_f64().unwrap();
        assert!((fraction - 0.75).abs() <= MAX_FRACTION_ERROR, "{field}: {report}");
    }
    assert_eq!(
        (&report["policy"], &report["cpus"]),
        (&json!("exact"), &json!([cpu.parse::<u32>().unwrap()]))
    );
    assert!(outcome.stderr.contains("group build: these tasks got 7"), "{}", outcome.stderr);
    // What is left is divvyd's own.
    wait_for_clients(sandbox, 1);
    drop(other);
}

/// The one that runs. Orphans of a run are its scheduler's children, and so is a divvyd that it has started.
fn pid_of_divvyd(sandbox: &Sandbox) -> Option<i32> {
    let mut divvyd = sandbox.processes();
    divvyd.retain(|process| process.comm == "divvyd");
    (divvyd.len() == 1).then(|| divvyd[0].pid.as_raw_nonzero().get())
}

fn kill_divvyd(sandbox: &Sandbox) -> i32 {
    let pid = eventually("one divvyd", || pid_of_divvyd(sandbox));
    kill_process(rustix::process::Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    pid
}

/// Nobody stands for good: whoever computes goes on.
fn goes_on(sandbox: &Sandbox, word: &str) {
    let before = cpu(&sandbox.with(word));
    eventually("it to go on", || (cpu(&sandbox.with(word)) > before + 10).then_some(()));
}

/// Until all tasks of a run are divvyd's: what comes later is not at its start.
fn wait_until_joined(sandbox: &Sandbox, run: &Running, n: usize) {
    let threads = format!("/proc/{}/task", run.scheduler().as_raw_nonzero());
    eventually("the thread that asks divvyd", || {
        let mut all = std::fs::read_dir(&threads).ok()?.flatten();
        let name =
            |entry: std::fs::DirEntry| std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        all.any(|entry| name(entry).trim() == "divvy-together").then_some(())
    });
    wait_for_clients(sandbox, n);
}

fn when_divvyd_is_killed_the_tasks_are_the_next_ones(sandbox: &Sandbox) {
    let until = "until [ -e stop ]; do :; done; exit 5 # task";
    let (a, b) = (format!("a=2:{until}"), format!("b=1:{until}"));
    // Nothing runs, and it is started.
    let run = sandbox.start(&["share", "--group", "build", "--report", "report.json", &a, &b]);
    wait_until_joined(sandbox, &run, 2);
    let killed = kill_divvyd(sandbox);
    wait_for_clients(sandbox, 2);
    let next = eventually("the next divvyd", || pid_of_divvyd(sandbox).filter(|&pid| pid != killed));
    goes_on(sandbox, "# task");
    // Somebody lets a task go: it is not added again.
    assert_eq!(sandbox.run(&["detach", "a"]).code, Some(0));
    eventually("a word of it", || {
        let left = clients(sandbox);
        (left.len() == 1 && left[0]["name"] == "b").then_some(())
    });
    goes_on(sandbox, "# task");
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(clients(sandbox).len(), 1);
    // Once all are, divvyd leaves, and nobody starts another.
    assert_eq!(sandbox.run(&["detach", "b"]).code, Some(0));
    eventually("divvyd to leave", || sandbox.processes().iter().all(|p| p.comm != "divvyd").then_some(()));
    std::thread::sleep(std::time::Duration::from_millis(700));
    assert_eq!(pid_of_divvyd(sandbox), None);
    std::fs::write(sandbox.path("stop"), "").unwrap();
    let outcome = run.end();
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    let told = format!("the tasks are clients of the next one (pid {next}) now");
    assert!(outcome.stderr.contains(&told), "{}", outcome.stderr);
    assert_eq!(outcome.stderr.matches("divvyd has ended").count(), 2, "{}", outcome.stderr);
    assert!(!outcome.stderr.contains("there is no other"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("a: it was detached; it runs on, undivided"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("let go before the end"), "{}", outcome.stderr);
    let report = sandbox.report("report.json");
    let exits: Vec<&Value> = (0..2).map(|i| &report["clients"][i]["exit"]).collect();
    assert_eq!(exits, [&json!({"code": 5}), &json!({"code": 5})]);
}

fn without_any_divvyd_the_tasks_run_on(sandbox: &Sandbox) {
    // The programs, where one can be taken away.
    let bin = sandbox.path("bin");
    std::fs::create_dir_all(&bin).unwrap();
    for name in ["divvy", "divvyd"] {
        std::fs::copy(sandbox.program().with_file_name(name), bin.join(name)).unwrap();
    }
    let mut command = sandbox.command(bin.join("divvy"));
    let until = "until [ -e stop ]; do :; done # task";
    command.args(["share", "--group", "build", &format!("1:{until}"), &format!("1:{until}")]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let run = Running { child: command.spawn().unwrap() };
    wait_until_joined(sandbox, &run, 2);
    std::fs::remove_file(bin.join("divvyd")).unwrap();
    kill_divvyd(sandbox);
    goes_on(sandbox, "# task");
    std::thread::sleep(std::time::Duration::from_millis(1500));
    eventually("nobody to stand", || sandbox.suspended().is_empty().then_some(()));
    std::fs::write(sandbox.path("stop"), "").unwrap();
    let outcome = run.end();
    assert_eq!(outcome.code, Some(SCHEDULER_DIED), "{}", outcome.stderr);
    let told = "divvyd has ended and there is no other (start divvyd";
    // Once on the way, and in the summary.
    assert_eq!(outcome.stderr.matches(told).count(), 2, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("the tasks run on, undivided"), "{}", outcome.stderr);
}

/// The tasks are divvyd's to hold: without the scheduler it goes on.
#[test]
fn a_scheduler_that_was_killed_leaves_the_tasks_to_divvyd() {
    let sandbox = Sandbox::own();
    let spin = format!("a=1:{SPIN} # task");
    let mut run = sandbox.start(&["share", "--quiet", "--group", "build", &spin]);
    wait_until_joined(&sandbox, &run, 1);
    run.signal_scheduler(Signal::KILL);
    assert_eq!(run.wait(), Some(SCHEDULER_DIED));
    let outcome = sandbox.run(&["pause", "a"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    eventually("it to be held", || rest(&sandbox, "# task").then_some(()));
    sandbox.kill_clients();
}

#[test]
fn control_z_pauses_the_tasks_at_divvyd() {
    let sandbox = Sandbox::own();
    start_divvyd(&sandbox, &["--linger", "60s"]);
    let mut session = job(&sandbox, &["--group", "build"], &format!("echo ready; {SPIN} # task"));
    let line = "these tasks got";
    session.wait_for("a table", |lines| lines.iter().any(|l| l.contains(line)));
    session.key(0x1a);
    session.wait_for("the shell to have it back", |lines| lines.iter().any(|l| l == "stopped-148"));
    assert!(clients(&sandbox).iter().all(|c| c["state"] == "paused"), "{:?}", clients(&sandbox));
    assert!(rest(&sandbox, "# task"), "the command stands with its job");
    std::fs::write(sandbox.path("go"), "").unwrap();
    goes_on(&sandbox, "# task");
    session.key(3);
    session.wait_for("its end", |lines| lines.iter().any(|l| l == "ended-130"));
    session.end();
    wait_for_clients(&sandbox, 0);
}

#[test]
fn what_cannot_be_divided_together_is_refused_before_anything_runs() {
    let sandbox = Sandbox::own();
    start_divvyd(&sandbox, &["--cpus", &one_cpu(), "--linger", "60s"]);
    let touch = "1:touch started";
    for (args, code, said) in [
        (&["--group", "a b", touch][..], 2, "it may have no blanks"),
        (&["--group", "build=0", touch], 2, "a share is a whole number from 1 to 1000000"),
        (&["--group", "build", "--policy", "alps", touch], 2, "cannot be used with"),
        (&["--group", "build", "--trace", "t", touch], 2, "cannot be used with"),
        (&["--group", "build", touch, "1:no-such-program"], 3, "command not found"),
        (&["--group", "build", "1:@tree:4194305"], 3, "there is no process 4194305"),
    ] {
        let outcome = sandbox.run(&[&["share"], args].concat());
        assert_eq!(outcome.code, Some(code), "{args:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(said), "{args:?}: {}", outcome.stderr);
        assert!(!sandbox.path("started").exists(), "{args:?}");
    }
    let outcome =
        sandbox.divvy(&["share", "--group", "build", touch]).env("DIVVY_MODE", "system").output().unwrap();
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    assert_eq!(outcome.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("DIVVY_MODE=user"), "{stderr}");
}

/// A run that divides its tasks by itself says that divvyd's clients are in its way, and how they are not.
#[test]
fn a_run_by_itself_tells_of_divvyds_clients() {
    let sandbox = Sandbox::own();
    let spin = format!("1:{SPIN}");
    let alone = sandbox.run(&["share", "--for", "500ms", &spin]);
    assert!(!alone.stderr.contains("--group"), "{}", alone.stderr);
    start_divvyd(&sandbox, &["--linger", "60s"]);
    let _other = start_other(&sandbox);
    eventually("it to want a CPU", || client(&sandbox, "other").filter(|c| c["state"] == "running"));
    let beside = sandbox.run(&["share", "--for", "2s", &spin]);
    assert_eq!(
        beside.stderr.matches("--group NAME divides all of them together").count(),
        1,
        "{}",
        beside.stderr
    );
    let quiet = sandbox.run(&["share", "--for", "500ms", "--quiet", &spin]);
    assert_eq!(quiet.stderr, "");
}
