//! A run is two processes: a front end that keeps the terminal, and a scheduler in a session of its own.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::daemon;
use crate::harness::{
    ENOUGH_TICKS, Process, Running, SCHEDULER_DIED, SPIN, Sandbox, Victim, as_both_users, check_fractions,
    check_report, client, cpu, eventually, one_cpu,
};
use crate::terminal::Session;

as_both_users! {
    a_scheduler_has_left_the_session
    a_front_end_that_was_killed_takes_its_commands_along
    a_scheduler_that_was_killed_is_told
}

/// Process group and session of a process.
fn group_and_session(pid: Pid) -> (i32, i32) {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).expect("a process");
    let fields: Vec<i32> = stat
        .rsplit_once(')')
        .expect("a name")
        .1
        .split_whitespace()
        .skip(2)
        .take(2)
        .map(|field| field.parse().expect("a number"))
        .collect();
    (fields[0], fields[1])
}

fn own_number(pid: Pid) -> i32 {
    pid.as_raw_nonzero().get()
}

fn a_scheduler_has_left_the_session(sandbox: &Sandbox) {
    let cpus = rustix::thread::sched_getaffinity(None).expect("our own CPUs");
    let first = (0..1024).find(|&cpu| cpus.is_set(cpu)).expect("a CPU").to_string();
    // One CPU: one session for all commands. Several: one for each.
    for (keep, one) in [(false, true), (false, false), (true, true)] {
        if !one && cpus.count() == 1 {
            continue;
        }
        let spin = format!("1:{SPIN} # client");
        let mut args = vec!["share", "--quiet", &spin, &spin];
        args.extend(keep.then_some("--keep-terminal"));
        args.splice(1..1, one.then_some(["--cpus", &first]).into_iter().flatten());
        let running = sandbox.start(&args);
        let scheduler = running.scheduler();
        let commands = sandbox.wait_for(2, "client");
        let outer = group_and_session(rustix::process::getpid());
        assert_eq!(group_and_session(running.pid()), outer, "the front end stays where it was started");
        // It leaves the session of the commands once all have been started.
        let session = if keep { outer.1 } else { own_number(scheduler) };
        eventually("the scheduler's session", || {
            (group_and_session(scheduler) == (own_number(scheduler), session)).then_some(())
        });
        let (group, session) = group_and_session(commands[0].pid);
        assert_eq!(group, own_number(commands[0].pid), "--keep-terminal: {keep}");
        let other = group_and_session(commands[1].pid);
        assert_eq!(other.0, own_number(commands[1].pid), "--keep-terminal: {keep}");
        assert_eq!(other.1 == session, one, "--keep-terminal: {keep}");
        assert_eq!(session == outer.1, keep, "--keep-terminal: {keep}");
        assert_ne!(session, own_number(scheduler), "nobody in it could resume what stands");
        running.signal(Signal::TERM);
        assert_eq!(running.end().code, Some(143));
        assert_eq!(sandbox.processes(), []);
    }
}

/// Nobody sees any more what goes on, and nobody could end it: commands are asked to end, and have the grace for it.
fn a_front_end_that_was_killed_takes_its_commands_along(sandbox: &Sandbox) {
    let polite = "1:trap 'echo bye > bye; exit 3' TERM; touch ready; while :; do :; done";
    let spin = format!("2:{SPIN}");
    let mut running = sandbox.start(&["share", "--grace", "1h", "--report", "report.json", polite, &spin]);
    eventually("the command to be ready", || sandbox.path("ready").exists().then_some(()));
    running.kill(Victim::FrontEnd);
    eventually("everybody's end", || sandbox.processes().is_empty().then_some(()));
    assert!(sandbox.path("bye").exists(), "the command was not asked");
    let report = sandbox.report("report.json");
    assert_eq!(report["ended_by"], "SIGHUP");
    assert_eq!(client(&report, 0, "exit"), &json!({"code": 3}));
}

fn a_scheduler_that_was_killed_is_told(sandbox: &Sandbox) {
    let spin = format!("1:{SPIN} # client");
    let mut running = sandbox.start(&["share", "--quiet", &spin]);
    running.scheduler();
    let client = sandbox.wait_for(1, "client").remove(0);
    let stderr = running.child.stderr.take().expect("piped");
    let reader = std::thread::spawn(move || {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stderr), &mut line).map(|_| line)
    });
    running.kill(Victim::Scheduler);
    let line = reader.join().expect("a reader").expect("a line");
    assert_eq!(line, "divvy: signal 9 ended the scheduler; its commands go on, undivided\n");
    // It runs, and nothing holds it.
    let now = || sandbox.with("client").into_iter().find(|p| p.pid == client.pid).expect("it lives");
    eventually("it to go on", || (now().cpu > client.cpu + 10).then_some(()));
}

/// What commands print after the scheduler was killed still has a reader.
#[test]
fn commands_print_on_when_the_scheduler_was_killed() {
    let sandbox = Sandbox::own();
    let talker = "1:n=0; until [ -e stop ]; do n=$((n+1)); echo out-$n; echo err-$n >&2; sleep 0.02; done; echo the-last";
    let mut session = Session::start(&sandbox, &["share", talker]);
    session.wait_for("output", |lines| lines.iter().any(|l| l == "out-5"));
    let front = Running { child: session.child };
    let scheduler = front.scheduler();
    session.child = front.child;
    kill_process(scheduler, Signal::KILL).expect("ours");
    session
        .wait_for("a word of it", |lines| lines.iter().any(|l| l.contains("signal 9 ended the scheduler")));
    let said = sandbox.with("until").len();
    assert_eq!(said, 1, "the command lives");
    let before = String::from_utf8_lossy(&session.raw).matches("out-").count();
    eventually("more of its output", || {
        session.lines();
        (String::from_utf8_lossy(&session.raw).matches("out-").count() > before + 10).then_some(())
    });
    assert_eq!(session.child.try_wait().expect("our child"), None, "it reads on");
    std::fs::write(sandbox.path("stop"), "").expect("a file");
    let (code, lines) = session.end();
    assert_eq!(code, Some(SCHEDULER_DIED));
    assert!(lines.iter().any(|l| l == "the-last"), "{lines:#?}");
    assert!(!lines.iter().any(|l| l.contains("achieved %")), "the table is gone: {lines:#?}");
    assert_eq!(sandbox.processes(), []);
}

/// A shell with job control on a terminal, whose only job is divvy: it tells how the job stopped and how it ended.
pub fn job(sandbox: &Sandbox, options: &[&str], command: &str) -> Session {
    let script =
        r#"set -m; "$@"; echo "stopped-$?"; while [ ! -e go ]; do sleep 0.01; done; fg; echo "ended-$?""#;
    // In a file, so that nobody but the command has its words.
    let tasks = sandbox.write("tasks.toml", &format!("[[task]]\nshare = 1\ncommand = {command:?}\n"));
    let mut shell = sandbox.command("bash");
    shell.args(["--norc", "-c", script, "sh"]).arg(sandbox.program());
    shell.arg("share").args(options).arg("--file").arg(tasks);
    Session::start_command(shell, 100)
}

/// Whether nobody of `processes` uses CPU time, for longer than any turn.
pub fn rest(sandbox: &Sandbox, word: &str) -> bool {
    let before = cpu(&sandbox.with(word));
    std::thread::sleep(Duration::from_millis(300));
    cpu(&sandbox.with(word)) <= before + 1
}

#[test]
fn control_z_suspends_the_commands_and_fg_resumes_them() {
    let sandbox = Sandbox::own();
    let mut session = job(&sandbox, &[], &format!("echo ready; {SPIN} # client"));
    session.wait_for("a table", |lines| {
        lines.iter().any(|l| l == "ready") && lines.iter().any(|l| l.contains("achieved %"))
    });
    eventually("it to run", || (cpu(&sandbox.with("client")) > 5).then_some(()));
    session.key(0x1a);
    // 128 + SIGTSTP.
    session.wait_for("the shell to have it back", |lines| lines.iter().any(|l| l == "stopped-148"));
    assert!(rest(&sandbox, "client"), "the command stands with its job");
    std::fs::write(sandbox.path("go"), "").expect("a file");
    let stood = cpu(&sandbox.with("client"));
    eventually("it to go on", || (cpu(&sandbox.with("client")) > stood + 20).then_some(()));
    session.key(3);
    session.wait_for("its end", |lines| lines.iter().any(|l| l == "ended-130"));
    session.end();
    assert_eq!(sandbox.processes(), []);
}

/// A suspended job that is killed leaves nobody suspended.
#[test]
fn a_suspended_run_that_is_killed_ends_its_commands() {
    let sandbox = Sandbox::own();
    let mut session = job(&sandbox, &[], &format!("{SPIN} # client"));
    eventually("it to run", || (cpu(&sandbox.with("client")) > 5).then_some(()));
    session.key(0x1a);
    session.wait_for("the shell to have it back", |lines| lines.iter().any(|l| l == "stopped-148"));
    let front = |p: &Process| p.comm == "divvy" && p.state == 'T';
    let front = sandbox.processes().into_iter().find(front).expect("a front end that stands").pid;
    kill_process(front, Signal::KILL).expect("ours");
    eventually("its commands' end", || sandbox.with("client").is_empty().then_some(()));
    std::fs::write(sandbox.path("go"), "").expect("a file");
    session.end();
    assert_eq!(sandbox.processes(), []);
}

/// Without job control nobody could resume it: the kernel stops nobody, and the commands go on.
#[test]
fn control_z_stops_nobody_where_nobody_could_resume() {
    let sandbox = Sandbox::own();
    let mut session = Session::start(&sandbox, &["share", &format!("1:{SPIN} # client")]);
    eventually("it to run", || (cpu(&sandbox.with("client")) > 5).then_some(()));
    session.key(0x1a);
    let before = cpu(&sandbox.with("client"));
    eventually("it to run on", || (cpu(&sandbox.with("client")) > before + 50).then_some(()));
    session.key(3);
    assert_eq!(session.end().0, Some(130));
}

#[test]
fn user_signals_reach_the_commands() {
    let sandbox = Sandbox::own();
    let trap = "1:trap 'echo one' USR1; trap 'echo two; exit 4' USR2; touch ready; while :; do :; done";
    let running = sandbox.start(&["share", "--json", trap]);
    eventually("the command to be ready", || sandbox.path("ready").exists().then_some(()));
    running.signal(Signal::USR1);
    std::thread::sleep(Duration::from_millis(100));
    running.signal(Signal::USR2);
    let outcome = running.end();
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("one\ntwo\n"), "{}", outcome.stderr);
    let report = check_report(&String::from_utf8(outcome.stdout).expect("text"));
    assert_eq!(client(&report, 0, "exit"), &json!({"code": 4}));
}

/// Both are refused at once, and nothing was started; with a reader both are written.
#[test]
fn a_fifo_that_nobody_reads_is_refused() {
    let sandbox = Sandbox::own();
    let fifo = sandbox.path("fifo");
    assert!(sandbox.command("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    for option in ["--report", "--trace"] {
        let outcome = sandbox.run(&["share", option, "fifo", "1:touch started"]);
        assert_eq!(outcome.code, Some(4), "{option}: {}", outcome.stderr);
        assert!(
            outcome.stderr.contains("fifo: ") && outcome.stderr.contains("start its reader first"),
            "{}",
            outcome.stderr
        );
        assert!(!sandbox.path("started").exists());
        let path = fifo.clone();
        let reader = std::thread::spawn(move || std::fs::read_to_string(path));
        // It is a reader once it waits for a writer: until then divvy is refused.
        eventually("a run", || {
            (sandbox.run(&["share", option, "fifo", "1:true"]).code == Some(0)).then_some(())
        });
        assert!(reader.join().expect("a reader").expect("text").contains("exact"), "{option}");
    }
}

/// The limit is the commands' too, and is left as it is.
#[test]
fn a_small_stack_is_enough() {
    let sandbox = Sandbox::own();
    for kib in [64, 256, 1024] {
        let script = format!("ulimit -s {kib}; exec \"$0\" share --quiet '1:ulimit -s'");
        let outcome = sandbox
            .command("sh")
            .args(["-c", &script])
            .arg(sandbox.program())
            .stdout(Stdio::piped())
            .output()
            .expect("a shell");
        let stderr = String::from_utf8_lossy(&outcome.stderr);
        assert_eq!(outcome.status.code(), Some(0), "{kib} KiB: {:?} {stderr}", outcome.status);
        assert_eq!(String::from_utf8_lossy(&outcome.stdout), format!("{kib}\n"));
        let script = format!("ulimit -s {kib}; exec \"$0\" run -- sh -c 'exit 9'");
        let status = sandbox.command("sh").args(["-c", &script]).arg(sandbox.program()).status();
        assert_eq!(status.expect("a shell").code(), Some(9), "{kib} KiB");
        sandbox.kill_clients();
    }
}

/// The kernel hangs up on a process group with suspended members when nobody in it has a parent elsewhere in the session.
#[test]
fn a_held_command_outlives_the_script_that_ran_it_in_the_background() {
    let sandbox = Sandbox::own();
    daemon::start_divvyd(&sandbox, &["--cpus", &one_cpu()]);
    // The script alone links its process group with another one of the session.
    let script = r#"sh -c 'for i in 1 2 3; do "$0" run -- sh -c "$1" & done; while [ ! -e end ]; do sleep 0.01; done' "$0" "$1" &
        wait; echo script-ended; while :; do sleep 1; done"#;
    let mut shell = sandbox.command("bash");
    shell.args(["--norc", "-mc", script]).arg(sandbox.program()).arg(format!("{SPIN} # client"));
    let mut session = Session::start_command(shell, 100);
    let clients = || {
        let mut all = sandbox.with("# client");
        all.retain(|p| p.comm == "sh" && p.command.starts_with("sh -c while"));
        all
    };
    eventually("three clients, of which some are held", || {
        let all = clients();
        (all.len() == 3 && cpu(&all) > 10 && all.iter().any(Process::is_held)).then_some(())
    });
    let before = clients();
    std::fs::write(sandbox.path("end"), "").expect("a file");
    session.wait_for("the script's end", |lines| lines.iter().any(|l| l.ends_with("script-ended")));
    for client in &before {
        let now = || clients().into_iter().find(|p| p.pid == client.pid);
        eventually("each to go on", || {
            let now = now().unwrap_or_else(|| panic!("{client:?} was ended with the script"));
            (now.cpu > client.cpu + 10).then_some(())
        });
    }
    sandbox.kill_clients();
    session.end();
}

/// A script that cron, `ssh` or a service started is in a process group that nobody links with another: it is not hung up when one of
/// its commands ends while another of its processes is held.
#[test]
fn a_script_without_a_terminal_outlives_its_commands_beside_what_is_held() {
    let sandbox = Sandbox::own();
    daemon::start_divvyd(&sandbox, &["--cpus", &one_cpu()]);
    let script = r#"sh -c "$1" & "$0" attach $! --name held --limit 20%
        for i in 1 2 3 4 5 6; do "$0" run --name "p$i" -- sh -c 'sleep 0.1; exit 3'; echo "run $i: $?"; done
        kill $!; echo done"#;
    let output = sandbox
        .command("setsid")
        .args(["-w", "sh", "-c", script])
        .arg(sandbox.program())
        .arg(format!("{SPIN} # held"))
        .output()
        .expect("a script");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let runs: Vec<String> = (1..=6).map(|i| format!("run {i}: 3")).chain(["done".to_owned()]).collect();
    let told: Vec<&str> = said.lines().filter(|line| !line.starts_with("held:")).collect();
    assert_eq!(told, runs, "{:?} {}", output.status, String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0));
    sandbox.kill_clients();
}

#[test]
fn control_c_reaches_a_paused_client() {
    let sandbox = Sandbox::own();
    let mut session =
        Session::start(&sandbox, &["run", "--name", "job", "--", "sh", "-c", &format!("{SPIN} # client")]);
    eventually("it to run", || (cpu(&sandbox.with("client")) > 5).then_some(()));
    let outcome = sandbox.run(&["pause", "job"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    eventually("it to stand", || sandbox.with("client").iter().all(Process::is_held).then_some(()));
    session.key(3);
    let status = eventually("its end", || session.child.try_wait().expect("our child"));
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(Signal::INT.as_raw()));
    assert!(sandbox.with("client").is_empty());
}

/// Median error of a cycle beside a stranger, above that without: others on the CPU delay a scheduler whatever its session is.
/// It is .08 to .11 where the scheduler is in the stranger's session.
const MAX_MEDIAN_ERROR: f64 = 0.03;
/// Wake-ups in a second beside strangers, as a multiple of those without; 90 where the scheduler is in their session.
const MAX_WAKEUPS: f64 = 8.0;

/// The report of a run in a session with what `beside` starts, which lasts until its two commands have done enough.
fn in_a_session_with(sandbox: &Sandbox, beside: &str) -> serde_json::Value {
    let script = format!(
        "{beside} trap 'kill 0' EXIT; trap exit TERM; \"$0\" share --json --cpus {} '1:exec sha256sum /dev/zero' \
         '3:exec sha256sum /dev/zero'",
        one_cpu()
    );
    let mut command = sandbox.command("setsid");
    command.args(["-w", "sh", "-c", &script]).arg(sandbox.program());
    let session = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a shell");
    let front = eventually("enough work", || {
        let all = sandbox.processes();
        let scheduler = all.iter().find(|p| p.comm == "divvy-scheduler")?;
        let is_client = |p: &&Process| p.parent == scheduler.pid.as_raw_nonzero().get() && !p.is_divvy();
        let clients: Vec<Process> = all.iter().filter(is_client).cloned().collect();
        (cpu(&clients) >= ENOUGH_TICKS).then_some(Pid::from_raw(scheduler.parent)?)
    });
    kill_process(front, Signal::TERM).expect("the front end");
    let output = session.wait_with_output().expect("a shell");
    check_report(&String::from_utf8(output.stdout).expect("text"))
}

/// A scheduler in the session of a stranger that computes is woken late, and wakes up in vain.
#[test]
fn strangers_in_the_terminals_session_disturb_nobody() {
    let sandbox = Sandbox::own();
    let cpu = one_cpu();
    let spin = format!("taskset -c {cpu} sha256sum /dev/zero &");
    let build = format!("{spin} (while :; do seq 20000 | sort > /dev/null; done) &");
    let wakeups = |report: &serde_json::Value| {
        report["self"]["wakeups"].as_f64().expect("a number") / report["wall_ns"].as_f64().expect("a number")
    };
    let error = |report: &serde_json::Value| {
        report["cycles"]["rms_relative_error"]["median"].as_f64().expect("some cycles")
    };
    let mut alone = vec![in_a_session_with(&sandbox, "")];
    let reports = [spin, build].map(|beside| (in_a_session_with(&sandbox, &beside), beside));
    alone.push(in_a_session_with(&sandbox, ""));
    let (alone_error, alone_wakeups) =
        (alone.iter().map(error).fold(0.0, f64::max), alone.iter().map(wakeups).fold(0.0, f64::max));
    for (report, beside) in reports {
        check_fractions(&report, &[0.25, 0.75]);
        let (error, times) = (error(&report), wakeups(&report) / alone_wakeups);
        println!("{beside} median error {error}, without {alone_error}, {times} times the wake-ups");
        assert!(
            error <= MAX_MEDIAN_ERROR + alone_error,
            "{beside}: {error}, without {alone_error}: {report}"
        );
        assert!(times <= MAX_WAKEUPS, "{beside}: {times} times the wake-ups: {report}");
    }
    sandbox.kill_clients();
}
