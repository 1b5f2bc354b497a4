//! The dashboard on a terminal of 80 columns and 24 lines, and the terminal after it.

use std::process::Command;

use rustix::process::Signal;
use rustix::termios::{LocalModes, Termios, tcgetattr};
use serde_json::Value;

use crate::harness::{Sandbox, eventually};
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
    let mut command = sandbox.divvy(&["top", "--replay", "run.jsonl"]);
    command.args(args).env("LANG", "C.UTF-8").env("TERM", "xterm-256color").env_remove("LC_ALL");
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

fn start(sandbox: &Sandbox, args: &[&str]) -> (Session, Termios) {
    let mut session = Session::start_command(top(sandbox, args), COLUMNS);
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
    let (mut session, before) = start(&sandbox, &["--interval", "100ms", "--speed", "5"]);
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
        let (mut session, before) = start(&sandbox, &[]);
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
        let output = top(&sandbox, args).arg("--json").output().expect("divvy");
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
