//! The dashboard on a terminal of 80 columns and 24 lines, and the terminal after it.

use std::process::Command;

use rustix::process::Signal;
use rustix::termios::{LocalModes, Termios, tcgetattr};
use serde_json::Value;

use crate::harness::{Running, SPIN, Sandbox, eventually};
use crate::terminal::Session;

const COLUMNS: u16 = 80;

/// Two clients that share a CPU 1:3 in turns of 10 ms, for 60 s; one that joins after a second.
fn trace(sandbox: &Sandbox) {
    let mut lines = vec![
        r#"{"divvy_trace":2,"gate":{"policy":"exact","quantum_ns":10000000,"cpus":1,"scale_shares":true,"presence":1,"period_ns":1000000000},"clients":["builder","tester","late"]}"#.to_owned(),
        r#"{"t":0,"e":"join","c":0,"share":1}"#.to_owned(),
        r#"{"t":0,"e":"join","c":1,"share":3}"#.to_owned(),
    ];
    for cycle in 0..1500u64 {
        let t = cycle * 40_000_000;
        if cycle == 25 {
            lines.push(format!(r#"{{"t":{t},"e":"join","c":2,"share":4}}"#));
        }
        for (c, from, length) in [(0, 0, 10_000_000), (1, 10_000_000, 30_000_000)] {
            let (begin, end) = (t + from, t + from + length);
            lines.push(format!(r#"{{"t":{begin},"e":"release","c":{c},"cpu":0}}"#));
            lines.push(format!(r#"{{"t":{end},"e":"charge","c":{c},"ns":{length}}}"#));
            lines.push(format!(r#"{{"t":{end},"e":"hold","c":{c}}}"#));
        }
        lines.push(format!(r#"{{"t":{},"e":"cycle","n":{}}}"#, t + 40_000_000, cycle + 1));
        lines.push(format!(r#"{{"t":{},"e":"idle"}}"#, t + 40_000_000));
    }
    sandbox.write("run.jsonl", &(lines.join("\n") + "\n"));
}

fn top(sandbox: &Sandbox, args: &[&str]) -> Command {
    let mut command = sandbox.divvy(&["top"]);
    command.args(args).env("LANG", "C.UTF-8").env("TERM", "xterm-256color").env_remove("LC_ALL");
    command
}

fn replay(sandbox: &Sandbox, args: &[&str]) -> Command {
    let mut command = top(sandbox, &["--replay", "run.jsonl"]);
    command.args(args);
    command
}

/// How the terminal is set, as far as programs change it.
fn modes(session: &Session) -> Termios {
    tcgetattr(&session.terminal).expect("the terminal's modes")
}

fn is_cooked(session: &Session) -> bool {
    modes(session).local_modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
}

/// The terminal is as it was before: line by line, echoing, the ordinary screen, a cursor.
fn check_restored(session: &mut Session, before: &Termios) {
    session.lines();
    let now = modes(session);
    assert_eq!(now.local_modes, before.local_modes);
    assert_eq!(now.input_modes, before.input_modes);
    assert_eq!(now.output_modes, before.output_modes);
    let screen = session.screen.screen();
    assert!(!screen.alternate_screen() && !screen.hide_cursor());
}

fn start(sandbox: &Sandbox, command: Command) -> (Session, Termios) {
    let mut session = Session::start_command(command, COLUMNS);
    session.wait_for("the dashboard", |lines| {
        lines.iter().any(|line| line.contains("builder")) && lines.iter().any(|line| line.contains("q quit"))
    });
    assert!(!is_cooked(&session) && session.screen.screen().alternate_screen());
    // As a terminal is before anybody changes it.
    let fresh = Session::start_command(sandbox.command("true"), COLUMNS);
    let before = modes(&fresh);
    (session, before)
}

#[test]
fn it_shows_a_run_takes_keys_and_gives_the_terminal_back() {
    let sandbox = Sandbox::own();
    trace(&sandbox);
    let (mut session, before) = start(&sandbox, replay(&sandbox, &["--interval", "100ms", "--speed", "5"]));
    // It has the whole screen: the last line is at its lower edge.
    let last = session.screen.screen().rows(0, COLUMNS).last().unwrap_or_default();
    assert!(last.starts_with("q quit"), "{last}");
    // Shares and fractions stand side by side, and time goes on.
    session.wait_for("a client that joins later", |lines| lines.iter().any(|line| line.contains("late")));
    let lines = session.wait_for("half of all for the late one", |lines| {
        lines.iter().any(|line| line.starts_with(">builder") && line.contains("12.50"))
    });
    assert!(lines[0].contains("exact, quantum 10 ms, 1 CPU"), "{lines:#?}");
    session
        .wait_for("a strip", |lines| lines.iter().any(|line| line.contains('▂') && line.contains("builder")));
    session.keys(b"/test\r");
    session.wait_for("one client", |lines| !lines.iter().any(|line| line.starts_with(" late")));
    session.keys(b"+");
    session.wait_for("why not", |lines| lines.iter().any(|line| line.contains("this is a recording")));
    session.keys(b"?");
    session.wait_for("help", |lines| lines.iter().any(|line| line.contains("give it another share")));
    session.keys(b"xq");
    let (code, _) = session.end();
    assert_eq!(code, Some(0));
    check_restored(&mut session, &before);
}

#[test]
fn signals_and_control_c_give_the_terminal_back() {
    let sandbox = Sandbox::own();
    trace(&sandbox);
    for signal in [None, Some(Signal::TERM), Some(Signal::HUP), Some(Signal::INT)] {
        let (mut session, before) = start(&sandbox, replay(&sandbox, &[]));
        match signal {
            None => session.keys(&[3]),
            Some(signal) => {
                let pid = rustix::process::Pid::from_child(&session.child);
                rustix::process::kill_process(pid, signal).expect("signal divvy");
            }
        }
        let (code, _) = session.end();
        assert_eq!(code, Some(128 + signal.map_or(2, Signal::as_raw)), "{signal:?}");
        check_restored(&mut session, &before);
    }
}

/// Ctrl-Z in an interactive shell: the terminal is the shell's, and after `fg` the dashboard's again.
#[test]
fn control_z_lends_the_terminal_to_the_shell() {
    let sandbox = Sandbox::own();
    trace(&sandbox);
    let mut shell = sandbox.command("bash");
    shell.args(["--norc", "--noprofile", "-i"]);
    shell.env("LANG", "C.UTF-8").env("TERM", "xterm-256color").env("PS1", "ready> ").env_remove("LC_ALL");
    let mut session = Session::start_command(shell, COLUMNS);
    session.wait_for("a prompt", |lines| lines.iter().any(|line| line.starts_with("ready>")));
    let divvy = sandbox.program().display().to_string();
    session.keys(format!("{divvy} top --replay run.jsonl\n").as_bytes());
    session.wait_for("the dashboard", |lines| lines.iter().any(|line| line.contains("q quit")));
    session.keys(&[26]);
    session.wait_for("the shell", |lines| lines.iter().any(|line| line.contains("Stopped")));
    assert!(!session.screen.screen().alternate_screen());
    session.keys(b"fg\n");
    eventually("the dashboard again", || {
        let lines = session.lines();
        (session.screen.screen().alternate_screen() && lines.iter().any(|l| l.contains("q quit")))
            .then_some(())
    });
    session.keys(b"q");
    eventually("the shell again", || {
        session.lines();
        (!session.screen.screen().alternate_screen()).then_some(())
    });
    session.keys(b"exit\n");
    assert_eq!(session.end().0, Some(0));
}

#[test]
fn json_is_one_look() {
    let sandbox = Sandbox::own();
    trace(&sandbox);
    let look = |args: &[&str]| -> Value {
        let output = replay(&sandbox, args).arg("--json").output().expect("divvy");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let end = look(&[]);
    assert_eq!((&end["version"], &end["ended"], &end["policy"]), (&1.into(), &true.into(), &"exact".into()));
    assert_eq!(end["clients"][1]["service_ns"], 45_000_000_000u64);
    assert_eq!(end["clients"][1]["requested_fraction"], 0.375);
    let early = look(&["--at", "500ms"]);
    assert_eq!(early["clients"].as_array().expect("clients").len(), 2);
    assert_eq!((&early["ended"], &early["now_ns"]), (&false.into(), &500_000_000u64.into()));
}

/// Clients of the sandbox's own divvyd, by name: share and state.
fn clients(sandbox: &Sandbox) -> Vec<(String, u64, String)> {
    let listed = sandbox.run(&["ls", "--json"]);
    assert_eq!(listed.code, Some(0), "{}", listed.stderr);
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    let clients = listed["clients"].as_array().expect("clients");
    let text = |value: &Value| value.as_str().expect("a word").to_owned();
    clients
        .iter()
        .map(|c| (text(&c["name"]), c["share"].as_u64().expect("a share"), text(&c["state"])))
        .collect()
}

/// Two spinners with shares 1 and 2 under a divvyd.
fn two_clients(sandbox: &Sandbox) -> Vec<Running> {
    let run = |(name, share): (&str, &str)| {
        let running = sandbox.start(&["run", "-s", share, "--name", name, "--", "/bin/sh", "-c", SPIN]);
        eventually("a client", || clients(sandbox).iter().any(|c| c.0 == name).then_some(()));
        running
    };
    [("builder", "1"), ("tester", "2")].map(run).into_iter().collect()
}

fn share_in_row(lines: &[String], name: &str) -> Option<u64> {
    let row = lines.iter().find(|line| line[1.min(line.len())..].starts_with(name))?;
    row.split_whitespace().nth(1)?.parse().ok()
}

#[test]
fn it_changes_what_runs_and_leaves_it_running() {
    let sandbox = Sandbox::own();
    let running = two_clients(&sandbox);
    let (mut session, before) = start(&sandbox, top(&sandbox, &["--interval", "100ms"]));
    session.wait_for("both clients", |lines| {
        share_in_row(lines, "builder") == Some(1) && share_in_row(lines, "tester") == Some(2)
    });
    session.wait_for("its processes", |lines| lines.iter().any(|line| line.ends_with("sh")));
    session.keys(b"s5\r");
    session.wait_for("another share", |lines| share_in_row(lines, "builder") == Some(5));
    session.keys(b"+");
    session.wait_for("one more", |lines| share_in_row(lines, "builder") == Some(6));
    assert_eq!(clients(&sandbox)[0].1, 6);
    session.keys(b"\x1b[Bp"); // Down.
    session.wait_for("a pause", |lines| {
        lines.iter().any(|line| line.starts_with(">tester") && line.contains("paused"))
    });
    assert_eq!(clients(&sandbox)[1].2, "paused");
    session.keys(b"p");
    session.wait_for("the end of the pause", |lines| {
        lines.iter().any(|line| line.starts_with(">tester") && !line.contains("paused"))
    });
    session.keys(b"q");
    assert_eq!(session.end().0, Some(0));
    check_restored(&mut session, &before);
    assert_eq!(clients(&sandbox).len(), 2);
    drop(running);
}

/// divvyd ends while it is watched: the dashboard says so, and can still be left.
#[test]
fn a_scheduler_that_is_gone_is_told() {
    let sandbox = Sandbox::own();
    let running = two_clients(&sandbox);
    let (mut session, before) = start(&sandbox, top(&sandbox, &["--interval", "100ms"]));
    let divvyd = sandbox.processes().into_iter().find(|p| p.comm == "divvyd").expect("a divvyd");
    rustix::process::kill_process(divvyd.pid, Signal::KILL).expect("kill divvyd");
    let lines = session.wait_for("why", |lines| lines.iter().any(|line| line.contains("no divvyd runs")));
    assert!(lines.iter().any(|line| line.contains("tester")), "what was known stays: {lines:#?}");
    session.keys(b"q");
    assert_eq!(session.end().0, Some(0));
    check_restored(&mut session, &before);
    drop(running);
}

#[test]
fn without_a_scheduler_it_says_how_to_get_one() {
    let sandbox = Sandbox::own();
    let refused = sandbox.run(&["top", "--json"]);
    assert_eq!((refused.code, refused.stderr.lines().count()), (Some(7), 1), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("divvy run") && refused.stderr.contains("--replay"),
        "{}",
        refused.stderr
    );
    let _running = two_clients(&sandbox);
    let look = sandbox.run(&["top", "--json"]);
    let look: Value = serde_json::from_slice(&look.stdout).expect("JSON");
    assert_eq!(look["clients"][1]["name"], "tester");
    assert_eq!(look["clients"][1]["requested_fraction"], 2.0 / 3.0);
    assert!(look["self"]["cpu_ns"].as_u64().is_some_and(|ns| ns > 0), "{look}");
    let members = look["clients"][0]["members"].as_array().expect("members");
    assert!(members.iter().any(|m| m["name"] == "sh"), "{look}");
}
