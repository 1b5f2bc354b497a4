//! `divvy usage`: what users of a system's divvyd used is written down, told, and told of where it is far too much.

use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use crate::accounts::nobody;
use crate::harness::{Running, SPIN, Sandbox, eventually, one_cpu};
use crate::system::System;

#[test]
fn what_users_used_is_written_down_and_who_is_far_over_is_told_once() {
    let Some(sandbox) = Sandbox::shared("what_users_used_is_written_down_and_who_is_far_over_is_told_once")
    else {
        return;
    };
    let (alice, bob) = (nobody(6), nobody(7));
    let policy = format!(
        "[users.{alice}]\ncpu = 99000\n[users.{bob}]\ncpu = 1000\n[scheduler]\ncpus = \"{}\"\n",
        one_cpu()
    );
    let _system = System::start(&sandbox, &policy, &[]);
    let spawn = |uid: u32, words: &[&str]| {
        let mut command = sandbox.command_as(uid, sandbox.program());
        command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running { child: command.spawn().expect("start divvy") }
    };
    let listed = |name: &str| {
        let all: Value =
            serde_json::from_slice(&sandbox.run(&["ls", "--system", "--json"]).stdout).expect("JSON");
        let all = all["clients"].as_array().expect("clients").clone();
        all.into_iter().find(|client| client["name"].as_str().is_some_and(|n| n.ends_with(name)))
    };
    let _sleeper = spawn(alice, &["run", "--name", "sleeper", "--", "sleep", "600"]);
    eventually("alice's client", || listed("/sleeper"));
    let (file, told) = (sandbox.path("usage.jsonl"), sandbox.path("told"));
    let file = file.to_str().expect("text");
    let notify = format!("echo $DIVVY_USER $DIVVY_USED $DIVVY_SHARE $DIVVY_SPAN >> {}", told.display());
    let record = sandbox.start(&[
        "usage", "record", file, "--system", "--every", "200ms", "--write", "500ms", "--notify", &notify,
        "--span", "2s", "--again", "1h",
    ]);
    eventually("the file", || std::fs::metadata(file).ok());
    // Bob, who has a hundredth, has all of it, as long as alice sleeps; on a busy machine that may be little.
    let _busy = spawn(bob, &["run", "--name", "busy", "--", "sh", "-c", SPIN]);
    let line = eventually("a word to bob", || {
        std::fs::read_to_string(&told).ok().filter(|text| text.ends_with('\n'))
    });
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!((words[0], words[2], words[3]), (bob.to_string().as_str(), "1", "2s"), "{line}");
    assert!(words[1].parse::<u32>().expect("percent") >= 2, "{line}");
    // What comes and goes between two writes is written down too.
    assert_eq!(
        spawn(alice, &["run", "--name", "short", "--", "timeout", "1", "sh", "-c", SPIN]).end().code,
        Some(124)
    );
    let seen = eventually("alice's short client in the report", || {
        let report = sandbox.run(&["usage", "report", file, "--since", "1h", "--json"]);
        assert_eq!(report.code, Some(0), "{}", report.stderr);
        let report: Value = serde_json::from_slice(&report.stdout).expect("JSON");
        (report["users"].as_array()?.len() == 2).then_some(report)
    });
    let part = |uid: u32| {
        let mut users = seen["users"].as_array().expect("users").iter();
        let row = users.find(|row| row["user"].as_str().and_then(|user| user.parse().ok()) == Some(uid));
        row.and_then(|row| row["fraction"].as_f64()).unwrap_or_else(|| panic!("no user {uid}: {seen}"))
    };
    assert!((part(alice) + part(bob) - 1.0).abs() < 1e-9, "{seen}");
    assert!(part(alice) > 0.01 && part(bob) > 0.01, "{seen}");
    // The end writes what is left, once; nobody is told twice.
    record.signal(Signal::TERM);
    let outcome = record.end();
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(143), ""));
    assert_eq!(std::fs::read_to_string(&told).expect("told").lines().count(), 1);
    let table = String::from_utf8(sandbox.run(&["usage", "report", file]).stdout).expect("text");
    assert!(table.starts_with("user") && table.lines().count() == 5, "{table}");
    assert!(table.lines().any(|line| line.starts_with(&bob.to_string())), "{table}");
}

#[test]
fn what_cannot_be_recorded_or_reported_says_why() {
    let sandbox = Sandbox::own();
    let file = sandbox.path("none.jsonl");
    let file = file.to_str().expect("text");
    let odd = sandbox.write("odd.jsonl", "{\"from\": 1}\n");
    for (args, code, words) in [
        (&["usage", "report", file][..], 4, "`divvy usage record` writes it"),
        (&["usage", "report", odd.to_str().expect("text")], 4, "line 1"),
        (&["usage", "record", file, "--own"], 7, "no divvyd runs"),
        (&["usage", "record", file, "--own", "--notify", "true"], 2, "--system"),
        (&["usage", "record", file, "--own", "--every", "1ms"], 2, "100ms or more"),
        (&["usage", "record", "/proc/none/usage", "--own"], 4, "/proc/none/usage"),
        (&["usage", "record", file, "--notify", "true", "--over", "0.5"], 2, "expected 1 to 1000"),
        (&["usage"], 2, ""),
    ] {
        let outcome = sandbox.run(args);
        assert_eq!(outcome.code, Some(code), "{args:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(words), "{args:?}: {}", outcome.stderr);
    }
}
