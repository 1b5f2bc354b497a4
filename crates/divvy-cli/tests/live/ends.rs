//! How runs end: by themselves, by time, by signals; and what comes through of the commands.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::harness::{
    PATIENCE, Running, SPIN, Sandbox, as_both_users, check_report, client, eventually, one_cpu,
};

as_both_users! { a_signal_ends_politely a_second_signal_kills }

/// A command that ends by itself when it is asked to, and says so.
const POLITE: &str = "trap 'echo bye > bye; exit 3' TERM; touch ready; while :; do :; done";
/// A command that does not.
const DEAF: &str = "trap '' TERM; touch ready; while :; do :; done";

#[test]
fn exit_codes_come_through() {
    let sandbox = Sandbox::own();
    for (commands, code, exits) in [
        (&["1:true", "2:exit 0"][..], 0, &[json!({"code": 0}), json!({"code": 0})][..]),
        (&["1:true", "2:exit 7"], 1, &[json!({"code": 0}), json!({"code": 7})]),
        (&["1:exit 255"], 1, &[json!({"code": 255})]),
        (&["1:kill -SEGV $$", "1:kill -TERM $$"], 1, &[json!({"signal": 11}), json!({"signal": 15})]),
    ] {
        let mut args = vec!["share", "--json"];
        args.extend(commands);
        let outcome = sandbox.run(&args);
        assert_eq!(outcome.code, Some(code), "{commands:?}: {}", outcome.stderr);
        let report = check_report(&String::from_utf8(outcome.stdout).unwrap());
        for (i, exit) in exits.iter().enumerate() {
            assert_eq!(client(&report, i, "exit"), exit, "{commands:?}");
        }
    }
}

/// The help of each command lists its own codes, and each of these was seen somewhere in these tests: 0 and 1 above, 2 to 5
/// in `input`, 128+N here.
#[test]
fn help_lists_the_exit_codes() {
    let sandbox = Sandbox::own();
    let codes = |args: &[&str]| {
        let outcome = sandbox.run(args);
        assert_eq!(outcome.code, Some(0), "{args:?}");
        let text = String::from_utf8(outcome.stdout).unwrap();
        let list = text.split_once("Exit codes:\n").map(|(_, list)| list.to_owned()).unwrap_or_default();
        list.lines().filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect::<Vec<_>>()
    };
    assert_eq!(codes(&["share", "--help"]), ["0", "1", "2", "3", "4", "5", "6", "7", "8", "128+N"]);
    assert_eq!(codes(&["run", "--help"]), ["N", "2", "5", "6", "7", "8", "9", "126", "127"]);
    assert_eq!(codes(&["pause", "--help"]), ["0", "2", "4", "5", "6", "7", "8"]);
    assert_eq!(codes(&["policies", "--help"]), ["0", "2", "4"]);
    assert!(codes(&["--help"]).is_empty(), "each command says its own");
}

fn a_signal_ends_politely(sandbox: &Sandbox) {
    for (signal, name, code) in [
        (Signal::INT, "SIGINT", 130),
        (Signal::TERM, "SIGTERM", 143),
        (Signal::HUP, "SIGHUP", 129),
        (Signal::QUIT, "SIGQUIT", 131),
    ] {
        for file in ["ready", "bye"] {
            let _ = std::fs::remove_file(sandbox.path(file));
        }
        let running = sandbox.start(&[
            "share",
            "--json",
            "--grace",
            "1h",
            &format!("1:{POLITE}"),
            &format!("2:{SPIN}"),
        ]);
        eventually("the command to be ready", || sandbox.path("ready").exists().then_some(()));
        running.signal(signal);
        let outcome = running.end();
        assert_eq!(outcome.code, Some(code), "{}", outcome.stderr);
        assert!(sandbox.path("bye").exists(), "the command was not asked");
        let report = check_report(&String::from_utf8(outcome.stdout).unwrap());
        assert_eq!(client(&report, 0, "exit"), &json!({"code": 3}));
        assert_eq!(client(&report, 1, "exit"), &json!({"signal": 15}));
        assert_eq!(report["ended_by"], name);
        assert_eq!(sandbox.processes(), [], "nothing is left");
    }
}

fn a_second_signal_kills(sandbox: &Sandbox) {
    let mut running = sandbox.start(&[
        "share",
        "--report",
        "report.json",
        "--grace",
        "1h",
        &format!("1:{DEAF}"),
        &format!("1:{DEAF}"),
    ]);
    eventually("the command to be ready", || sandbox.path("ready").exists().then_some(()));
    let deaf = sandbox.wait_for(2, "trap");
    // Both have to have said that they do not listen: they have had CPU time once they spin.
    eventually("both to spin", || {
        let now = sandbox.with("trap");
        now.iter().all(|p| p.cpu > deaf[0].cpu.min(deaf[1].cpu) + 5).then_some(())
    });
    running.signal(Signal::INT);
    let asked = Instant::now();
    while asked.elapsed() < Duration::from_millis(300) {
        assert_eq!(running.child.try_wait().unwrap(), None, "the grace is not over");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(sandbox.with("trap").len(), 2, "they do not listen");
    running.signal(Signal::INT);
    assert_eq!(running.end().code, Some(130));
    let report = sandbox.report("report.json");
    for i in 0..2 {
        assert_eq!(client(&report, i, "exit"), &json!({"signal": 9}));
    }
    assert_eq!(sandbox.processes(), [], "nothing is left");
}

#[test]
fn after_the_grace_the_deaf_are_killed() {
    let sandbox = Sandbox::own();
    let deaf = format!("1:{DEAF}");
    let outcome = sandbox.run(&["share", "--json", "--for", "1s", "--grace", "200ms", &deaf]);
    assert_eq!(outcome.code, Some(0));
    let report = check_report(&String::from_utf8(outcome.stdout).unwrap());
    assert_eq!(client(&report, 0, "exit"), &json!({"signal": 9}));
    assert_eq!(report["ended_by"], "time");
}

#[test]
fn time_ends_a_run_and_no_sooner() {
    let sandbox = Sandbox::own();
    let start = Instant::now();
    let outcome = sandbox.run(&["share", "--json", "--for", "700ms", "1:sleep 1000"]);
    assert!(start.elapsed() >= Duration::from_millis(700));
    assert_eq!(outcome.code, Some(0));
    let report = check_report(&String::from_utf8(outcome.stdout).unwrap());
    assert!(report["wall_ns"].as_u64().unwrap() >= 700_000_000);
    assert_eq!(report["ended_by"], "time");
}

#[test]
fn output_that_goes_to_no_terminal_is_the_commands_own() {
    let sandbox = Sandbox::own();
    let command = r"1:printf 'a\000b\377\r\033[2J'; printf 'no line' >&2";
    let outcome = sandbox.run(&["share", "--quiet", command]);
    assert_eq!(outcome.code, Some(0));
    assert_eq!(outcome.stdout, b"a\0b\xff\r\x1b[2J");
    assert_eq!(outcome.stderr, "no line");
}

/// Nobody reads what divvy says any more: it goes on dividing, and its commands come to their end.
#[test]
fn a_reader_that_has_gone_ends_nothing() {
    let sandbox = Sandbox::own();
    let mut running =
        sandbox.start(&["share", "--report", "report.json", "1:sleep 6; touch done", "1:sleep 6"]);
    drop(running.child.stderr.take());
    drop(running.child.stdout.take());
    assert_eq!(running.wait(), Some(0));
    assert!(sandbox.path("done").exists());
    assert_eq!(client(&sandbox.report("report.json"), 0, "exit"), &json!({"code": 0}));
    let mut running = sandbox.start(&["share", "--json", "1:touch again"]);
    drop(running.child.stdout.take());
    assert_eq!(running.wait(), Some(4), "what it had to say could not be said");
    assert!(sandbox.path("again").exists());
}

/// A pipe that is full, and both its ends: nobody reads, and nobody has gone.
fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    // As many bytes as a pipe holds.
    std::io::Write::write_all(&mut writer, &[b' '; 65536]).expect("fill it");
    (reader, writer)
}

/// Lines are due every 5 s, and a summary at the end: neither can be written.
#[test]
fn standard_error_that_nobody_reads_holds_nothing_up() {
    let sandbox = Sandbox::own();
    let (reader, writer) = full_pipe();
    let mut command = sandbox.divvy(&["share", "--for", "6s", "--cpus", &one_cpu(), &format!("1:{SPIN}")]);
    command.stderr(writer).stdout(Stdio::null());
    let start = Instant::now();
    let mut running = Running { child: command.spawn().expect("start divvy") };
    assert_eq!(running.wait(), Some(0));
    assert!(start.elapsed() < PATIENCE / 2, "it ended after {:?}", start.elapsed());
    assert_eq!(sandbox.processes(), []);
    drop(reader);
}

#[test]
fn a_signal_ends_a_run_whose_standard_error_nobody_reads() {
    let sandbox = Sandbox::own();
    let (reader, writer) = full_pipe();
    let mut command = sandbox.divvy(&["share", &format!("1:{SPIN}")]);
    command.stderr(writer).stdout(Stdio::null());
    let mut running = Running { child: command.spawn().expect("start divvy") };
    sandbox.wait_for(1, "while");
    std::thread::sleep(Duration::from_secs(6));
    running.signal(Signal::TERM);
    assert_eq!(running.wait(), Some(143));
    assert_eq!(sandbox.processes(), []);
    drop(reader);
}

#[test]
fn a_trace_that_nobody_reads_fails_alone() {
    let sandbox = Sandbox::own();
    let fifo = sandbox.path("fifo");
    assert!(sandbox.command("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    let mut both = std::fs::File::options().read(true).write(true).open(&fifo).expect("the fifo");
    std::io::Write::write_all(&mut both, &[b' '; 65536]).expect("fill it");
    let outcome = sandbox.run(&["share", "--for", "1s", "--trace", "fifo", &format!("1:{SPIN}")]);
    assert_eq!(outcome.code, Some(4));
    assert!(outcome.stderr.contains("divvy: write fifo: whoever reads it is too slow"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("divvy itself:"), "the run was a run: {}", outcome.stderr);
    assert_eq!(sandbox.processes(), []);
}

/// As `nohup` and a script's `divvy &` have it.
#[test]
fn signals_that_were_ignored_before_end_nothing() {
    let sandbox = Sandbox::own();
    let mut command = sandbox.command("sh");
    command.args(["-c", "trap '' HUP INT QUIT; exec \"$@\"", "sh"]).arg(sandbox.program());
    let mut divvy = command.args(["share", "--quiet", &format!("1:{SPIN}")]).spawn().expect("start a shell");
    eventually("a guardian", || sandbox.guardian());
    let pid = rustix::process::Pid::from_child(&divvy);
    for signal in [Signal::HUP, Signal::INT, Signal::QUIT] {
        rustix::process::kill_process(pid, signal).expect("signal divvy");
    }
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(divvy.try_wait().expect("our child"), None, "ended by a signal that was ignored");
    rustix::process::kill_process(pid, Signal::TERM).expect("signal divvy");
    let status = eventually("divvy's end", || divvy.try_wait().expect("our child"));
    assert_eq!(status.code(), Some(143));
}
