//! Division, reports, task files and traces.

use serde_json::Value;

use crate::harness::{
    ENOUGH_TICKS, MAX_FRACTION_ERROR, SPIN, Sandbox, as_both_users, check_fractions, check_report, client,
    eventually, one_cpu,
};

as_both_users! { one_two_three }

/// What divvy reports is what the kernel booked, and both are 1:2:3.
fn one_two_three(sandbox: &Sandbox) {
    let commands: Vec<String> = (1..=3).map(|n| format!("{n}:: client-{n}; {SPIN}")).collect();
    let [a, b, c] = &commands[..] else { unreachable!("three commands") };
    let running = sandbox.start(&["share", "--cpus", &one_cpu(), "--report", "report.json", a, b, c]);
    let spinners: Vec<_> = (1..=3).map(|n| format!("client-{n}")).collect();
    spinners.iter().for_each(|name| drop(sandbox.wait_for(1, name)));
    let booked = eventually("enough work", || {
        let now = sandbox.with("client-");
        let ticks = |name: &String| now.iter().find(|p| p.command.contains(name)).map_or(0, |p| p.cpu);
        let booked: Vec<u64> = spinners.iter().map(ticks).collect();
        (booked.iter().sum::<u64>() >= BOOKED_TICKS).then_some(booked)
    });
    running.signal(rustix::process::Signal::TERM);
    let outcome = running.end();
    assert_eq!(outcome.code, Some(143), "{}", outcome.stderr);
    let report = sandbox.report("report.json");
    check_fractions(&report, &[1.0 / 6.0, 2.0 / 6.0, 3.0 / 6.0]);
    let all = booked.iter().sum::<u64>() as f64;
    for (n, &ticks) in (1..).zip(&booked) {
        let fraction = ticks as f64 / all;
        let target = f64::from(n) / 6.0;
        assert!((fraction - target).abs() <= MAX_BOOKED_ERROR, "client {n}: {booked:?} ticks of {all}");
    }
    for (i, share) in [1, 2, 3].into_iter().enumerate() {
        assert_eq!(client(&report, i, "share"), &Value::from(share));
        assert_eq!(client(&report, i, "effective_share").as_f64(), Some(f64::from(share)));
        let target = client(&report, i, "target_fraction").as_f64().unwrap();
        assert!((target - f64::from(share) / 6.0).abs() < 1e-9);
        let achieved = client(&report, i, "achieved_fraction").as_f64().unwrap();
        let error = client(&report, i, "relative_error").as_f64().unwrap();
        assert!((achieved / target - 1.0 - error).abs() < 1e-9);
        assert_eq!(client(&report, i, "exit"), &serde_json::json!({ "signal": 15 }));
    }
    let service: u64 = (0..3).map(|i| client(&report, i, "service_ns").as_u64().unwrap()).sum();
    let wall = report["wall_ns"].as_u64().unwrap();
    let utilization = report["utilization"].as_f64().unwrap();
    assert!((utilization - service as f64 / wall as f64).abs() < 1e-9);
    assert_eq!(report["ended_by"], "SIGTERM");
    assert_eq!(report["policy"], "exact");
    assert_eq!(report["quantum_ns"], 10_000_000);
    assert!(report["cycles"]["count"].as_u64().unwrap() > 0);
    for field in ["mean", "median", "max"] {
        assert!(report["cycles"]["rms_relative_error"][field].as_f64().is_some(), "{field}");
    }
    let own = &report["self"];
    assert!(["cpu_ns", "wakeups", "reads", "signals"].iter().all(|f| own[f].as_u64().unwrap() > 0), "{own}");
    let overhead = own["cpu_ns"].as_u64().unwrap() as f64 / wall as f64;
    assert!((own["overhead"].as_f64().unwrap() - overhead).abs() < 1e-9);
    // The summary says the same, in words, on standard error.
    assert!(outcome.stdout.is_empty());
    for word in ["target %", "achieved %", "16.67", "33.33", "50.00", "error per cycle", "divvy itself"] {
        assert!(outcome.stderr.contains(word), "no '{word}' in {}", outcome.stderr);
    }
}

/// Enough ticks of 10 ms that one more or less does not matter.
const BOOKED_TICKS: u64 = 150;
/// The kernel's books are looked at in the middle of a cycle, which is 6 ticks long.
const MAX_BOOKED_ERROR: f64 = MAX_FRACTION_ERROR + 6.0 / BOOKED_TICKS as f64;

#[test]
fn every_policy_divides() {
    let sandbox = Sandbox::own();
    let (a, b) = (format!("1:{SPIN}"), format!("3:{SPIN}"));
    for policy in ["alps", "alps-basic"] {
        let report = sandbox.share_for_ticks(ENOUGH_TICKS, &["--policy", policy, &a, &b]);
        assert_eq!(report["policy"], policy);
        check_fractions(&report, &[0.25, 0.75]);
    }
    // superd's rates are of wall time: what a busy machine gives to others is missing from the largest share, so only
    // the report's form is looked at.
    let outcome = sandbox.run(&["share", "--for", "1s", "--policy", "rate", "--json", &a, &b]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let report = check_report(&String::from_utf8(outcome.stdout).unwrap());
    assert_eq!(report["policy"], "rate");
    assert_eq!(outcome.stderr, "", "--json prints nothing else");
}

/// Whatever the commands and divvy itself have to say, standard output is one JSON document.
#[test]
fn json_has_standard_output_to_itself() {
    let sandbox = Sandbox::own();
    let noise = "1:echo noise; echo more >&2; echo '{'; exit 3";
    let outcome = sandbox.run(&["share", "--json", "--cpus", &one_cpu(), noise, "2:printf 'no end of line'"]);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    let report = check_report(&String::from_utf8(outcome.stdout).unwrap());
    assert_eq!(client(&report, 0, "exit"), &serde_json::json!({ "code": 3 }));
    for said in ["noise", "more", "{", "no end of line"] {
        assert!(outcome.stderr.contains(said), "no '{said}' in {}", outcome.stderr);
    }
    // What is refused leaves it empty.
    let outcome = sandbox.run(&["share", "--json", "0:true"]);
    assert_eq!((outcome.code, outcome.stdout.len()), (Some(2), 0));
}

#[test]
fn task_files_name_place_and_equip_commands() {
    let sandbox = Sandbox::own();
    std::fs::create_dir(sandbox.path("sub dir")).unwrap();
    let dir = sandbox.path("sub dir");
    let file = format!(
        r#"
        [[task]]
        name = "first"
        share = 2
        command = ["sh", "-c", 'printf "%s|%s|%s" "$GREETING" "$1" "$PWD" > said', "sh", "a  b"]
        dir = "{0}"
        env = {{ GREETING = "good day" }}

        [[task]]
        share = 1
        command = "echo $((6 * 7)) > '{0}/sum'; exit 7"

        [[task]]
        share = 1
        command = ["sh", "-c", "kill -KILL $$"]
        "#,
        dir.display()
    );
    sandbox.write("tasks.toml", &file);
    let outcome = sandbox.run(&["share", "--file", "tasks.toml", "--json", "1:true"]);
    assert_eq!(outcome.code, Some(1), "a command failed: {}", outcome.stderr);
    let said = std::fs::read_to_string(dir.join("said")).unwrap();
    assert_eq!(said, format!("good day|a  b|{}", dir.display()));
    assert_eq!(std::fs::read_to_string(dir.join("sum")).unwrap(), "42\n");
    let report = check_report(&String::from_utf8(outcome.stdout).unwrap());
    let names: Vec<_> = (0..4).map(|i| client(&report, i, "name").as_str().unwrap()).collect();
    assert_eq!(names, ["true", "first", "echo", "sh"], "the command line first, then the file");
    assert_eq!(client(&report, 2, "exit"), &serde_json::json!({ "code": 7 }));
    assert_eq!(client(&report, 3, "exit"), &serde_json::json!({ "signal": 9 }));
    assert_eq!(report["ended_by"], "commands");
}

#[test]
fn the_example_of_a_task_file_in_the_docs_is_one() {
    let sandbox = Sandbox::own();
    let docs = include_str!("../../../../docs/tasks.md");
    let example =
        docs.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    sandbox.write("tasks.toml", example);
    let outcome = sandbox.run(&["share", "--for", "300ms", "--file", "tasks.toml", "--json"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let report = check_report(&String::from_utf8(outcome.stdout).unwrap());
    assert_eq!(report["clients"].as_array().unwrap().len(), example.matches("[[task]]").count());
}

#[test]
fn a_trace_replays_and_a_tampered_one_does_not() {
    let sandbox = Sandbox::own();
    let cpu = one_cpu();
    for policy in ["exact", "alps", "rate"] {
        let commands =
            [format!("1:{SPIN}"), "2:while :; do sleep 0.01; done".to_owned(), "3:true".to_owned()];
        let mut args = vec![
            "share",
            "--for",
            "1s",
            "--quiet",
            "--cpus",
            &cpu,
            "--policy",
            policy,
            "--trace",
            "trace.jsonl",
        ];
        args.extend(commands.iter().map(String::as_str));
        let outcome = sandbox.run(&args);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
        let replayed = sandbox.run(&["replay", "trace.jsonl"]);
        assert_eq!(replayed.code, Some(0), "{policy}: {}", replayed.stderr);
        let said = String::from_utf8(replayed.stdout).unwrap();
        let decisions: u64 = said.split(' ').next().unwrap().parse().expect("a number of decisions");
        assert!(decisions > 0 && said.ends_with("decisions, all as recorded\n"), "{said}");

        let text = std::fs::read_to_string(sandbox.path("trace.jsonl")).unwrap();
        let tampered: Vec<String> = text.lines().map(str::to_owned).collect();
        // Where others want the CPU nobody may have to be held by superd's rates; somebody was measured then.
        let kinds = [r#""e":"hold""#, r#""e":"measure""#];
        let (at, kind) = kinds
            .into_iter()
            .find_map(|kind| Some((tampered.iter().rposition(|line| line.contains(kind))?, kind)))
            .expect("a decision");
        let other = if kind == kinds[0] { "measure" } else { "hold" };
        let mut lines = tampered.clone();
        lines[at] = lines[at].replace(kind, &format!(r#""e":"{other}""#));
        sandbox.write("tampered.jsonl", &(lines.join("\n") + "\n"));
        let outcome = sandbox.run(&["replay", "tampered.jsonl"]);
        assert_eq!(outcome.code, Some(1));
        let line = format!("line {}: the trace says {{\"e\":\"{other}\"", at + 1);
        assert!(outcome.stderr.contains(&line), "no '{line}' in {}", outcome.stderr);

        sandbox.write("cut.jsonl", &text[..text.trim_end().len() - 1]);
        let outcome = sandbox.run(&["replay", "cut.jsonl"]);
        assert_eq!(outcome.code, Some(4), "half a trace says nothing of the policy: {}", outcome.stderr);
        assert!(outcome.stderr.contains(&format!("line {}:", tampered.len())), "{}", outcome.stderr);
    }
    for (text, why) in [("", "the trace is empty"), ("{}\n", "line 1:"), ("\u{0}\n", "line 1:")] {
        sandbox.write("no.jsonl", text);
        let outcome = sandbox.run(&["replay", "no.jsonl"]);
        assert_eq!(outcome.code, Some(4));
        assert!(outcome.stderr.contains(why), "{}", outcome.stderr);
    }
    assert_eq!(sandbox.run(&["replay", "nowhere.jsonl"]).code, Some(4));
}
