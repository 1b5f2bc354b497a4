//! `divvy usage`: what users of a system's divvyd used is written down, told, and told of where it is far too much.

use std::io::BufRead as _;
use std::process::Stdio;

use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::accounts::nobody;
use crate::admin::check_units;
use crate::follow::commands;
use crate::harness::{Running, SPIN, Sandbox, eventually, one_cpu};
use crate::own_machine::OwnMachine;
use crate::page::{block, check};
use crate::system::System;

/// The machine of docs/usage.md. Nobody can be written to; what is mailed is kept in the file `mailed`.
const MACHINE: &str = "\
cp target/release/* /usr/local/bin/
useradd alice && useradd bob
mkdir -p /etc/divvy && mkdir -m 700 /var/lib/divvy
cp usage.jsonl /var/lib/divvy/
install -m 755 far-over /etc/divvy/far-over
printf '#!/bin/sh\\nexit 1\\n' > /usr/local/bin/write
printf '#!/bin/sh\\n{ echo \"$@\"; cat; } > %s/mail && mv %s/mail %s/mailed\\n' $PWD $PWD $PWD > /usr/local/bin/mail
chmod 755 /usr/local/bin/write /usr/local/bin/mail
printf '[users.alice]\\ncpu = 99000\\n[users.bob]\\ncpu = 1000\\n' > /etc/divvy/divvyd.toml
divvyd --system 2> divvyd.log &
until [ -S /run/divvy/api.sock ]; do sleep 0.1; done
";
/// What the command of the unit has done when somebody is far over: sooner than its defaults would have it.
const FAR_OVER: &str = "\
runuser -u alice -- divvy run --name sleeper -- sleep 600 &
runuser -u bob -- divvy run --name busy -- sha256sum /dev/zero &
until divvy ls | grep -q bob/busy; do sleep 0.1; done
RECORD --every 200ms --span 2s &
record=$!
until [ -s mailed ]; do sleep 0.1; done
kill $record
wait $record
grep -c '\"user\":\"bob\"' /var/lib/divvy/usage.jsonl
cat mailed
";

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
    let recorder = [
        "usage", "record", file, "--system", "--every", "200ms", "--write", "500ms", "--notify", &notify,
        "--span", "2s", "--again", "1h",
    ];
    let record = sandbox.start(&recorder);
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
    let told_times = || std::fs::read_to_string(&told).expect("told").lines().count();
    assert_eq!(told_times(), 1);
    // Nor by the next one, which remembers; where nothing is remembered, bob is told anew.
    for expected in [1, 2] {
        let again = sandbox.start(&recorder);
        if expected == 1 {
            // Bob, whom nobody interrupts, is far over for all of the 2 s, and it is written down.
            let lines = || std::fs::read_to_string(file).expect("usage").lines().count();
            let before = lines();
            eventually("usage of some seconds", || (lines() >= before + 10).then_some(()));
        } else {
            eventually("a second word", || (told_times() == 2).then_some(()));
        }
        again.signal(Signal::TERM);
        again.end();
        assert_eq!(told_times(), expected);
        std::fs::remove_file(sandbox.path("usage.jsonl.told")).expect("what is remembered");
    }
    check_failing_word(&sandbox, file, bob);
    let table = String::from_utf8(sandbox.run(&["usage", "report", file]).stdout).expect("text");
    assert!(table.starts_with("user") && table.lines().count() == 5, "{table}");
    assert!(table.lines().any(|line| line.starts_with(&bob.to_string())), "{table}");
}

/// A command that fails has told nobody: it is said, and tried again for `user`, who is far over.
fn check_failing_word(sandbox: &Sandbox, file: &str, user: u32) {
    let tried = sandbox.path("tried");
    let fails = format!("echo $DIVVY_USER >> {}; exit 3", tried.display());
    let record = sandbox.start(&[
        "usage", "record", file, "--system", "--every", "200ms", "--notify", &fails, "--span", "1s",
        "--again", "1h",
    ]);
    eventually("a second try", || {
        let tries = std::fs::read_to_string(&tried).ok()?.lines().count();
        (tries >= 2).then_some(())
    });
    record.signal(Signal::TERM);
    let said = record.end().stderr;
    let line = format!("divvy usage: --notify for {user}: exit status: 3; it is tried again in 1s\n");
    assert!(said.starts_with(&line) && said.replace(&line, "").is_empty(), "{said}");
    // What is not there is told at once.
    let mut record =
        sandbox.divvy(&["usage", "record", file, "--system", "--notify", "/nowhere/mail -s CPU"]);
    let mut record = record.stderr(Stdio::piped()).spawn().expect("start divvy");
    let mut said = String::new();
    let stderr = record.stderr.take().expect("piped");
    std::io::BufReader::new(stderr).read_line(&mut said).expect("a line");
    rustix::process::kill_process(Pid::from_child(&record), Signal::TERM).expect("ours");
    record.wait().expect("ours");
    assert!(said.starts_with("divvy usage: --notify: there is no '/nowhere/mail' that sh can run"), "{said}");
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
    // One that writes keeps others away.
    let taken = sandbox.write("taken.jsonl", "");
    let other = std::fs::File::open(&taken).expect("there");
    rustix::fs::flock(&other, rustix::fs::FlockOperation::LockExclusive).expect("a lock");
    let outcome = sandbox.run(&["usage", "record", taken.to_str().expect("text"), "--own"]);
    assert_eq!(outcome.code, Some(4), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("another `divvy usage record` adds to it"), "{}", outcome.stderr);
}

/// What docs/usage.md shows: the report of a file, the unit, and what it runs.
#[test]
fn the_page_of_usage_is_true() {
    const TEST: &str = "the_page_of_usage_is_true";
    const PAGE: &str = include_str!("../../../../docs/usage.md");
    const UNIT: &str = include_str!("../../../../dist/systemd/divvy-usage.service");
    const SCRIPT: &str = include_str!("../../../../dist/far-over");
    let Some(machine) = OwnMachine::new(TEST, "useradd runuser") else { return };
    let sandbox = machine.sandbox();
    let unit = block(PAGE, "ini");
    assert_eq!(unit, UNIT.replace("/usr/local/bin/", "/usr/bin/"), "the page shows what is installed");
    check_units(TEST, &[sandbox.write("divvy-usage.service", unit)]);
    let record = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/")).expect("a command");
    assert_eq!(block(PAGE, "sh script"), SCRIPT, "the page shows what is installed");
    sandbox.write("far-over", SCRIPT);
    // The hours of the page, written down at one time.
    let to = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("a clock").as_secs();
    let line = |user: &str, cpu_s: u64, due_s: u64| {
        let of = |seconds: u64| seconds * 1_000_000_000;
        let line = serde_json::json!({
            "from": to - 3600, "to": to, "user": user,
            "cpu_ns": of(cpu_s), "due_ns": of(due_s), "machine_ns": of(241_884),
        });
        format!("{line}\n")
    };
    sandbox.write("usage.jsonl", &(line("alice", 113_040, 108_755) + &line("bob", 71_604, 75_889)));
    let reports: Vec<_> = commands(PAGE).into_iter().filter(|(block, _)| block.kind == "sh").collect();
    let [(report, Some(shown))] = reports.as_slice() else {
        panic!("one report, and what it shows: {reports:#?}")
    };
    let printed =
        machine.run(&[MACHINE.to_owned(), report.text.to_owned(), FAR_OVER.replace("RECORD", record)]);
    assert_eq!(printed[0], "");
    check(shown, &printed[1]).unwrap();
    let told: Vec<&str> = printed[2].lines().collect();
    let [written, head, text] = told.as_slice() else { panic!("{told:#?}") };
    assert!(
        written.parse::<u32>().is_ok_and(|lines| lines >= 2),
        "one from before, and a new one: {told:#?}"
    );
    assert_eq!(*head, "-s CPU time bob");
    assert!(text.starts_with("You have used ") && text.contains("for 2s; your share is 1 %."), "{text}");
}
