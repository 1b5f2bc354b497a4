//! A real run's trace: its numbers are those of the report, and its pictures and timelines are what they should be.

use serde_json::Value;

use crate::harness::{SPIN, Sandbox, check_report, client, one_cpu};

fn json(outcome: &crate::harness::Outcome) -> Value {
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    serde_json::from_slice(&outcome.stdout).expect("JSON")
}

/// Shares 1:2 of spinners and a sleeper, for two seconds.
fn record(sandbox: &Sandbox, more: &[&str]) -> Value {
    let (a, b) = (format!("1:{SPIN}"), format!("2:{SPIN}"));
    let cpu = one_cpu();
    let mut args = vec!["share", "--for", "2s", "--cpus", &cpu, "--json", "--trace", "run.jsonl"];
    args.extend(more);
    args.extend([a.as_str(), b.as_str(), "3:while :; do sleep 0.05; done"]);
    let outcome = sandbox.run(&args);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    check_report(std::str::from_utf8(&outcome.stdout).expect("text"))
}

/// What is worked out from a trace is what the run itself reported, to the nanosecond, under a policy that reads each
/// client when it holds it and under one that puts off reading.
#[test]
fn a_traces_numbers_are_the_reports() {
    for policy in ["exact", "alps"] {
        let sandbox = Sandbox::own();
        let report = record(&sandbox, &["--policy", policy]);
        let plot = json(&sandbox.run(&["plot", "run.jsonl", "--json"]));
        for i in 0..3 {
            for field in ["name", "share", "service_ns", "target_fraction", "achieved_fraction"] {
                assert_eq!(client(&plot, i, field), client(&report, i, field), "{policy}, client {i}");
            }
        }
        assert_eq!(plot["cycles"], report["cycles"], "{policy}");
        assert_eq!((&plot["policy"], &plot["cut_off"]), (&Value::from(policy), &Value::from(false)));
        // Once all have begun, which a busy machine puts off, a client is always one of running, asleep and held.
        let begun = json(&sandbox.run(&["plot", "run.jsonl", "--json", "--from", "1s"]));
        for i in 0..3 {
            let parts = client(&begun, i, "time_fractions");
            let sum: f64 = ["running", "asleep", "held"].iter().map(|s| parts[s].as_f64().unwrap()).sum();
            assert!((sum - 1.0).abs() < 0.02, "{parts}");
        }
        // Of the two that always want the CPU only one is released at a time by the exact gate.
        let running = |i: usize| client(&begun, i, "time_fractions")["running"].as_f64().unwrap();
        if policy == "exact" {
            assert!(running(0) + running(1) <= 1.02, "{begun}");
        }
        let replayed = json(&sandbox.run(&["replay", "run.jsonl", "--json"]));
        assert_eq!(replayed["equal"], true);
        assert!(replayed["decisions"].as_u64().unwrap() > 100, "{replayed}");
    }
}

#[test]
fn pictures_and_text_of_a_run() {
    let sandbox = Sandbox::own();
    record(&sandbox, &[]);
    let outcome = sandbox.run(&["plot", "run.jsonl", "--svg", "run.svg", "--png", "run.png"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let text = String::from_utf8(outcome.stdout).expect("text");
    assert!(text.contains("policy exact, quantum 10 ms") && text.contains("error per cycle (RMS"), "{text}");
    // A table's row and a strip for each client.
    for name in ["while#1", "while#2", "while#3"] {
        assert_eq!(text.lines().filter(|line| line.starts_with(name)).count(), 2, "{text}");
    }
    let svg = std::fs::read_to_string(sandbox.path("run.svg")).expect("a picture");
    for word in ["CPU time received: exact", "Error of each cycle", "Released (held in the gaps)", "asleep"] {
        assert!(svg.contains(word), "{word}");
    }
    assert_eq!(&std::fs::read(sandbox.path("run.png")).expect("a picture")[..8], b"\x89PNG\r\n\x1a\n");
    // Parts of it add up, and one of the three charts stands alone.
    let part = |args: &[&str]| json(&sandbox.run(&[&["plot", "run.jsonl", "--json"], args].concat()));
    let (whole, early, late) = (part(&[]), part(&["--to", "1s"]), part(&["--from", "1s"]));
    assert_eq!((&early["from_ns"], &early["to_ns"]), (&0.into(), &1_000_000_000.into()));
    assert_eq!((&late["from_ns"], &late["to_ns"]), (&1_000_000_000.into(), &whole["to_ns"]));
    for i in 0..3 {
        let service = |run: &Value| client(run, i, "service_ns").as_u64().unwrap();
        assert_eq!(service(&early) + service(&late), service(&whole));
        assert!(service(&early) > 0 && service(&late) > 0);
    }
    let cycles = |run: &Value| run["cycles"]["count"].as_u64().unwrap();
    assert_eq!(cycles(&early) + cycles(&late), cycles(&whole));
    let one = sandbox.run(&["plot", "run.jsonl", "--show", "strips", "--svg", "strips.svg"]);
    assert_eq!(one.code, Some(0), "{}", one.stderr);
    let svg = std::fs::read_to_string(sandbox.path("strips.svg")).expect("a picture");
    assert!(svg.contains("Released") && !svg.contains("CPU time received"));
}

/// The structure that Perfetto and chrome://tracing ask for, and the run in it.
fn check_perfetto(trace: &Value) {
    assert_eq!(trace["displayTimeUnit"], "ms");
    let events = trace["traceEvents"].as_array().expect("a list of events");
    let mut ends = [0.0f64; 8];
    for event in events {
        let phase = event["ph"].as_str().expect("a phase");
        assert!(event["name"].is_string(), "{event}");
        // 0 is the idle process to Perfetto.
        assert!(event["pid"].as_u64().is_some_and(|pid| pid > 0) && event["tid"].is_u64(), "{event}");
        match phase {
            "M" => assert!(event["args"].is_object(), "{event}"),
            "X" => {
                let (ts, dur) =
                    (event["ts"].as_f64().expect("a time"), event["dur"].as_f64().expect("a length"));
                let row = event["tid"].as_u64().unwrap() as usize;
                // Runs in one row follow each other: they would be taken for nested otherwise.
                assert!(row > 0 && ts >= ends[row] - 1e-3 && dur > 0.0, "{event} after {}", ends[row]);
                ends[row] = ts + dur;
            }
            "C" => {
                let values = event["args"].as_object().expect("values");
                assert!(values.len() == 1 && values.values().all(Value::is_number), "{event}");
            }
            "i" => assert_eq!(event["s"], "t"),
            other => panic!("{other}: {event}"),
        }
        assert!(phase == "M" || event["ts"].as_f64().is_some_and(|ts| ts >= 0.0), "{event}");
    }
    let names = events.iter().filter(|e| e["name"] == "thread_name");
    let names: Vec<&str> = names.map(|e| e["args"]["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["while#1 (share 1)", "while#2 (share 2)", "while#3 (share 3)"]);
    // The two spinners had the CPU: the whole run, less what the sleeper, divvy and start and end take.
    let of_row = |row: u64| events.iter().filter(move |e| e["ph"] == "X" && e["tid"] == row);
    let released: f64 = (1..=2).flat_map(of_row).map(|e| e["dur"].as_f64().unwrap()).sum();
    let whole = events.iter().filter_map(|e| e["ts"].as_f64()).fold(0.0, f64::max);
    assert!((0.6..=1.1).contains(&(released / whole)), "{released} of {whole} us");
    for curve in ["error of the cycle (RMS)", "CPU time of while#1", "CPU time of while#3"] {
        assert!(events.iter().any(|e| e["ph"] == "C" && e["name"] == curve), "{curve}");
    }
}

#[test]
fn a_run_opens_in_perfetto() {
    let sandbox = Sandbox::own();
    record(&sandbox, &[]);
    let turned = sandbox.run(&["plot", "run.jsonl", "--perfetto", "run.json"]);
    assert_eq!(turned.code, Some(0), "{}", turned.stderr);
    let read = |name: &str| -> Value {
        serde_json::from_str(&std::fs::read_to_string(sandbox.path(name)).expect("a trace")).expect("JSON")
    };
    check_perfetto(&read("run.json"));
    record(&sandbox, &["--trace-format", "perfetto"]);
    check_perfetto(&read("run.jsonl"));
    // What was written for Perfetto is no trace for divvy, which says so.
    let refused = sandbox.run(&["plot", "run.jsonl"]);
    assert_eq!((refused.code, refused.stderr.lines().count()), (Some(4), 1), "{}", refused.stderr);
    assert!(refused.stderr.contains("it was written for Perfetto"), "{}", refused.stderr);
}

#[test]
fn a_trace_that_cannot_be_used_is_refused_in_one_line() {
    let sandbox = Sandbox::own();
    let header = r#"{"divvy_trace":2,"gate":{"policy":"exact","quantum_ns":10000000,"cpus":1,"scale_shares":true,"presence":1,"period_ns":1000000000},"clients":["a"]}"#;
    let join = r#"{"t":5,"e":"join","c":0,"share":1}"#;
    sandbox.write("future", &header.replace("trace\":2", "trace\":9"));
    sandbox.write("only-header", header);
    sandbox.write("wrong", &format!("{header}\n{join}\n{{\"t\":9,\"e\":\"hold\",\"c\":3}}\n"));
    sandbox.write("good", &format!("{header}\n{join}\n{{\"t\":9,\"e\":\"release\",\"c\":0,\"cpu\":0}}\n{{\"t\":100,\"e\":\"idle\"}}\n"));
    std::fs::write(sandbox.path("binary"), [0xff, 0xfe, 0, 10]).unwrap();
    for (args, code, cause) in [
        (vec!["plot", "nowhere"], 4, "nowhere"),
        (vec!["plot", "future"], 4, "trace version 9; this divvy reads 1 to 3"),
        (vec!["plot", "only-header"], 4, "nothing happens in this trace"),
        (vec!["plot", "wrong"], 4, "line 3: client 3 has not joined"),
        (vec!["plot", "binary"], 4, "binary"),
        (vec!["plot", "/etc/passwd"], 4, "line 1: it is no trace; `divvy share --trace FILE` writes one"),
        (
            vec!["top", "--replay", "/etc/passwd"],
            4,
            "line 1: it is no trace; `divvy share --trace FILE` writes one",
        ),
        (vec!["plot", "good", "--from", "1s"], 2, "leave nothing"),
        (vec!["plot", "good", "--svg", "/no/such/dir/x.svg"], 4, "/no/such/dir/x.svg"),
        (vec!["plot", "good", "--perfetto", "/no/such/dir/x"], 4, "/no/such/dir/x"),
        (vec!["plot", "good", "--show", "everything"], 2, "everything"),
        (vec!["top", "--replay", "wrong"], 4, "line 3"),
        (vec!["top", "--replay", "good"], 2, "--json"),
        (vec!["top", "--replay", "good", "--speed", "0"], 2, "0.001 to 1000"),
        (vec!["top", "--speed", "2"], 2, "--replay"),
        (vec!["share", "--trace-format", "perfetto", "1:true"], 2, "--trace"),
        (vec!["completions", "cmd.exe"], 2, "cmd.exe"),
    ] {
        let outcome = sandbox.run(&args);
        assert_eq!(outcome.code, Some(code), "{args:?}: {}", outcome.stderr);
        assert_eq!(outcome.stderr.lines().count(), 1, "{args:?}: {}", outcome.stderr);
        assert!(
            outcome.stderr.starts_with("divvy: ") && outcome.stderr.contains(cause),
            "{}",
            outcome.stderr
        );
        assert!(outcome.stdout.is_empty(), "{args:?}");
    }
    // One whose writer was killed is drawn up to there, and that is said.
    let cut = format!("{}{{\"t\":12", std::fs::read_to_string(sandbox.path("good")).unwrap());
    sandbox.write("cut", &cut);
    let outcome = sandbox.run(&["plot", "cut", "--json", "--svg", "cut.svg"]);
    assert!(outcome.stderr.contains("the last line is incomplete"), "{}", outcome.stderr);
    assert_eq!(json(&outcome)["cut_off"], true);
}

/// The commands that docs/seeing.md shows, over a run of that name.
#[test]
fn every_example_of_the_page_runs() {
    let sandbox = Sandbox::own();
    record(&sandbox, &[]);
    let page = include_str!("../../../../docs/seeing.md");
    let blocks = page.split("```sh\n").skip(1).map(|block| block.split("```").next().expect("a block"));
    let lines: Vec<&str> = blocks.flat_map(str::lines).collect();
    assert!(lines.len() >= 2, "{lines:?}");
    for line in lines {
        let args: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(args[0], "divvy", "{line}");
        let outcome = sandbox.run(&args[1..]);
        assert_eq!(outcome.code, Some(0), "{line}: {}", outcome.stderr);
    }
    assert!(sandbox.path("run.png").exists() && sandbox.path("run.json").exists());
}
