//! `divvy sim`, `compare` and `policies` on the built binary: every documented command, golden files, and bad input.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A folder of its own under the build's, with the repository's scenarios in it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sim-{name}"));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("scenarios")).unwrap();
        for entry in std::fs::read_dir(root().join("scenarios")).unwrap() {
            let path = entry.unwrap().path();
            std::fs::copy(&path, folder.join("scenarios").join(path.file_name().unwrap())).unwrap();
        }
        Self(folder)
    }

    fn divvy(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_divvy")).args(args).current_dir(&self.0).output().unwrap()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).unwrap();
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.0.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn json_of(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Whether `lines` are as `expected` has them: a line `...` stands for any number of lines, ` ...` at a line's end for
/// the rest of it.
fn matches(expected: &[&str], lines: &[&str]) -> bool {
    match expected.split_first() {
        None => lines.is_empty(),
        Some((&"...", rest)) => (0..=lines.len()).any(|skip| matches(rest, &lines[skip..])),
        Some((line, rest)) => lines.split_first().is_some_and(|(first, others)| {
            let alike = line.strip_suffix(" ...").map_or(first == line, |start| first.starts_with(start));
            alike && matches(rest, others)
        }),
    }
}

/// One command of a document: its arguments, what it prints, and its exit code.
struct Example {
    args: Vec<String>,
    expected: Vec<String>,
    exit: i32,
}

fn examples(document: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    for block in document.split("```console").skip(1) {
        let (info, body) = block.split_once('\n').unwrap();
        let exit = info.trim().strip_prefix("exit=").map_or(0, |code| code.parse().unwrap());
        for line in body.split("```").next().unwrap().lines() {
            if let Some(command) = line.strip_prefix("$ divvy ") {
                let args = command.split_whitespace().map(str::to_owned).collect();
                examples.push(Example { args, expected: Vec::new(), exit });
            } else {
                examples.last_mut().unwrap().expected.push(line.to_owned());
            }
        }
    }
    examples
}

#[test]
fn every_documented_command_prints_what_is_documented() {
    let folder = Folder::new("docs");
    let document = std::fs::read_to_string(root().join("docs/sim.md")).unwrap();
    let examples = examples(&document);
    assert!(examples.len() >= 30, "{}", examples.len());
    for Example { args, expected, exit } in &examples {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let output = folder.divvy(&args);
        let shown = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(*exit), "divvy {}\n{shown}", args.join(" "));
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        let lines: Vec<&str> = shown.lines().collect();
        assert!(matches(&expected, &lines), "divvy {}\n{shown}", args.join(" "));
    }
    // Every file that the examples write is one of its kind.
    for name in ["gantt.svg", "areas.svg", "surface.svg"] {
        let svg = folder.read(name);
        assert!(text(&svg).starts_with("<svg") && text(&svg).trim_end().ends_with("</svg>"), "{name}");
    }
    for name in ["areas.png", "service.png", "curves.png", "compare.png"] {
        assert_eq!(&folder.read(name)[..8], b"\x89PNG\r\n\x1a\n", "{name}");
    }
    let trace: Value = serde_json::from_slice(&folder.read("timeline.json")).unwrap();
    let runs = trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "X");
    // Two CPUs for two seconds, less what switching costs: all of it is in the trace.
    let busy_us: f64 = runs.map(|event| event["dur"].as_f64().unwrap()).sum();
    assert!((3.9e6..=4e6).contains(&busy_us), "{busy_us}");
}

#[test]
fn every_scenario_file_runs_and_is_documented() {
    let folder = Folder::new("scenarios");
    let document = std::fs::read_to_string(root().join("docs/sim.md")).unwrap();
    for entry in std::fs::read_dir(folder.0.join("scenarios")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ext| ext != "toml") {
            continue;
        }
        let (name, stem) = (path.to_str().unwrap(), path.file_stem().unwrap().to_str().unwrap());
        assert!(document.contains(stem), "{name}");
        let args: &[&str] = match stem {
            "group-a" | "mg1" => &["sim", name, "--until", "2000s", "--json"],
            _ => &["sim", name, "--json"],
        };
        let report = json_of(&folder.divvy(args));
        assert!(report["utilization"].as_f64().unwrap() > 0.4, "{name}");
    }
}

/// What programs read is as its schema says, whatever was simulated.
#[test]
fn every_report_is_as_the_schema_says() {
    let folder = Folder::new("schema");
    let schema = std::fs::read_to_string(root().join("docs/sim.schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let mut kinds = 0;
    for args in [
        &["sim", "--shares", "3,2,1", "--json"][..],
        &["sim", "--shares", "3,2,1", "--gate", "alps", "--until", "1s", "--json"],
        &["sim", "scenarios/closed-users.toml", "--until", "2s", "--json"],
        &["sim", "scenarios/pbs-fig2.toml", "--json"],
        &["sim", "scenarios/mg1.toml", "--until", "2000s", "--json"],
        &["sim", "scenarios/vtrr-dynamic.toml", "--json"],
    ] {
        let report = json_of(&folder.divvy(args));
        let validator = jsonschema::validator_for(&schema).expect("a valid schema");
        let errors: Vec<String> = validator.iter_errors(&report).map(|e| e.to_string()).collect();
        assert_eq!(errors, [] as [String; 0], "{args:?}");
        // Nothing is written that the schema does not know.
        for key in report.as_object().unwrap().keys() {
            assert!(schema["properties"].get(key).is_some(), "{args:?}: {key}");
        }
        kinds += usize::from(report.get("gate").is_some()) + usize::from(report.get("responses").is_some());
    }
    assert!(kinds >= 2, "a gate's report and one with responses were among them");
}

/// A gate has the same numbers in a comparison, under its own name and as the policy of a simulation.
#[test]
fn gates_are_compared_beside_dispatchers() {
    let folder = Folder::new("gates");
    let of = ["--shares", "3,2,1", "--until", "1s", "--json"];
    let results = json_of(&folder.divvy(&[&["compare", "--policies", "exact,vtrr,alps"], &of[..]].concat()));
    for (i, policy) in ["exact", "vtrr", "alps"].into_iter().enumerate() {
        let result = &results["results"][i];
        assert_eq!(result["policy"], policy);
        assert_eq!(result["report"].get("gate").is_some(), policy != "vtrr", "{policy}");
        let alone = json_of(&folder.divvy(&[&["sim", "--policy", policy], &of[..]].concat()));
        assert_eq!(alone["per_client"], result["report"]["per_client"], "{policy}");
    }
    let gate = json_of(&folder.divvy(&[&["sim", "--gate", "exact"], &of[..]].concat()));
    assert_eq!(gate["per_client"], results["results"][0]["report"]["per_client"]);
}

#[test]
fn golden_schedules_come_out_of_the_command_line_exactly() {
    let folder = Folder::new("golden");
    let cases: Value =
        serde_json::from_str(&std::fs::read_to_string(root().join("golden/vtrr_static.json")).unwrap())
            .unwrap();
    let cases = cases.as_array().unwrap();
    assert_eq!(cases.len(), 65);
    for case in cases {
        let params: Vec<String> = case["params"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(key, value)| {
                format!("{key}={}", value.as_str().map_or_else(|| value.to_string(), str::to_owned))
            })
            .collect();
        let policy = format!("{}:{}", case["algo"].as_str().unwrap(), params.join(","));
        let shares: Vec<String> = case["shares"].as_array().unwrap().iter().map(Value::to_string).collect();
        let quanta = case["quanta"].to_string();
        let args = ["sim", "--policy", &policy, "--shares", &shares.join(","), "--quanta", &quanta, "--json"];
        let report = json_of(&folder.divvy(&args));
        let id = &case["id"];
        assert_eq!(report["policy"], case["algo"], "{id}");
        assert_eq!(report["shares"], case["shares"], "{id}");
        assert_eq!(report["service_error"]["min"], case["err_min"], "{id}");
        assert_eq!(report["service_error"]["max"], case["err_max"], "{id}");
        let schedule = report["schedule"].as_array().unwrap();
        assert_eq!(schedule.len() as u64, case["quanta"].as_u64().unwrap(), "{id}");
        if let Some(seq) = case.get("seq") {
            assert_eq!(&report["schedule"], seq, "{id}");
        }
        let hash = schedule.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, who| {
            (hash ^ who.as_u64().unwrap()).wrapping_mul(0x100_0000_01b3)
        });
        assert_eq!(json!(format!("{hash:016x}")), case["seq_fnv1a64"], "{id}");
        let rows = case.get("per_client").and_then(Value::as_array).into_iter().flatten();
        for (client, range) in rows.enumerate() {
            let row = &report["per_client"][client];
            assert_eq!(json!([row["min"], row["max"]]), *range, "{id}, client {client}");
            let received = schedule.iter().filter(|who| **who == json!(client)).count();
            assert_eq!(row["service"], json!(received.to_string()), "{id}, client {client}");
        }
    }
}

#[test]
fn idle_quanta_are_null() {
    let folder = Folder::new("idle");
    folder.write(
        "idle.toml",
        "policy = \"vtrr\"\nquantum = \"1ms\"\nrun.quanta = 5\nevents = [\n{ at = \"0\", op = \"new\", client = 0, share = 1 \
         },\n{ at = \"2ms\", op = \"block\", client = 0 },\n{ at = \"4ms\", op = \"wake\", client = 0 }]\n",
    );
    let report = json_of(&folder.divvy(&["sim", "idle.toml", "--json"]));
    assert_eq!(report["schedule"], json!([0, 0, null, null, 0]));
}

#[test]
fn bad_input_is_answered_with_file_line_key_and_what_was_expected() {
    let folder = Folder::new("bad");
    let expected_times = "expected a time such as \"4ms\" (units ns, us, ms, s, min, h)";
    for (file, scenario, answer) in [
        ("a.toml", "policy = \"vtrr\"\nshares = [1, 2", "a.toml:2: unclosed array, expected `]`".to_owned()),
        (
            "b.toml",
            "policy = \"vtrr\"\nshares = [1]\n[machine]\ncpsu = 2",
            "b.toml:4: machine.cpsu: unknown field `cpsu`, expected one of `cpus`, `switch-cost`, `tick`, `on-block`, \
             `on-wake`"
                .to_owned(),
        ),
        (
            "c.toml",
            "policy = \"vtrr\"\nshares = [3, 0]",
            "c.toml:2: shares[1]: 0: a share must be at least 1".to_owned(),
        ),
        (
            "d.toml",
            "policy = \"vtrr\"\nshares = [1]\nrun.until = \"-1s\"",
            format!("d.toml:3: run.until: \"-1s\" is negative, {expected_times}"),
        ),
        (
            "e.toml",
            "policy = \"vtrr\"\n[shares.random]\nclients = 16\ntotal = 8",
            "e.toml:4: shares.random.total: S = 8 is less than N = 16, expected a share of at least 1 each".to_owned(),
        ),
        (
            "f.toml",
            "shares = [1]\nrun.quanta = 1\n\n[policy]\nname = \"pbs\"\n\n[policy.params]\nbeta = 3\nalpha = 20\n",
            "f.toml:9: policy.params.alpha: 20 is out of range, expected 1/16 to 16; with guard=study 0, -0, inf, and 2^-20 to 1024 of either sign".to_owned(),
        ),
        (
            "g.toml",
            "shares = [1]\npolicy = { name = \"pbs\",\n params = { alhpa = 1 } }",
            "g.toml:3: policy.params.alhpa: unknown parameter, expected one of alpha, guard, quantum, beta, gamma, \
             epsilon, alpha2, beta2, keep, sample"
                .to_owned(),
        ),
        (
            "h.toml",
            "shares = [1]\nquantum = \"2s\"\npolicy = \"vtrr\"",
            "h.toml:2: quantum: 2s is out of range, expected 1ns to 1s".to_owned(),
        ),
        (
            "i.json",
            "{\"policy\": \"vtrr\",\n \"shares\": [1,\n 0]}",
            "i.json:3: shares[1]: 0: a share must be at least 1".to_owned(),
        ),
        (
            "j.toml",
            "policy = \"vtrr\"\n\ntraces = [{ file = \"gone.csv\", format = \"csv\" }]",
            "j.toml:3: traces[0].file: read gone.csv: there is no such file".to_owned(),
        ),
        ("k.toml", "policy = \"vtrr\"", "k.toml: nobody wants the CPU, expected shares, clients, users, arrivals, jobs, \
             traces or events".to_owned()),
    ] {
        folder.write(file, scenario);
        let output = folder.divvy(&["sim", file]);
        assert_eq!(text(&output.stderr), format!("divvy: {answer}\n"), "{scenario}");
        assert_eq!((output.status.code(), output.stdout.len()), (Some(4), 0), "{scenario}");
    }
    folder.write("jobs.csv", "arrival,size\n0,1s\n1s,nonsense\n");
    folder.write("l.toml", "policy = \"las\"\ntraces = [{ file = \"jobs.csv\", format = \"csv\" }]");
    let output = folder.divvy(&["sim", "l.toml"]);
    assert_eq!(
        text(&output.stderr),
        format!(
            "divvy: l.toml:2: traces[0].file: jobs.csv: line 3, size: \"nonsense\" is not a time, {expected_times}\n"
        )
    );
}

#[test]
fn bad_options_are_answered_by_name() {
    let folder = Folder::new("options");
    let shares = ["sim", "--shares", "2,1"];
    let with = |more: &[&'static str]| [&shares[..], more].concat();
    for (args, answer) in [
        (with(&["--param", "alpha"]), "--param alpha: no value, expected key=value"),
        (
            with(&["--policy", ":x=1"]),
            "--policy: \":x=1\" names no policy, expected name or name:key=value,...",
        ),
        (
            with(&["--plot", "surface", "--svg", "x.svg"]),
            "--plot surface shows a sweep over two keys: divvy sim sweep FILE \
             --vary ... --vary ...",
        ),
        (
            with(&["--policy", "gps", "--svg", "x.svg"]),
            "gps is a model, which has no runs: --plot areas or service",
        ),
        (with(&["--policy", "gps", "--trace", "x.json"]), "--trace: gps is a model, which has no runs"),
        (
            vec!["sim", "sweep", "--shares", "2,1", "--vary", "cpus"],
            "--vary cpus: no values, expected key=a,b,c",
        ),
        (
            vec!["sim", "sweep", "--shares", "2,1", "--vary", "machine.cpsu=1"],
            "--vary machine.cpsu: unknown field `cpsu`, expected one of `cpus`, `switch-cost`, `tick`, `on-block`, \
             `on-wake` (with machine.cpsu = 1)",
        ),
        (
            vec!["sim", "sweep", "--shares", "2,1", "--measure", "luck"],
            "--measure luck: expected one of decisions, error_max, error_min, jain, switches, utilization",
        ),
        (
            vec![
                "sim",
                "sweep",
                "--shares",
                "2,1",
                "--vary",
                "quantum=1ms,2ms",
                "--plot",
                "surface",
                "--svg",
                "x.svg",
            ],
            "--plot surface takes two varied keys, neither more nor fewer",
        ),
        (
            vec!["compare", "--shares", "2,1", "--policies", "vtrr,vrtt"],
            "--policies: no policy is called \"vrtt\"; did you mean 'vtrr'?",
        ),
        (
            vec!["compare", "--shares", "2,1", "--policies", "vtrr,fair"],
            "--policies: no policy is called \"fair\", expected one of vtrr, pbs, wrr, drr, wfq, wf2q, stride, lottery, fcfs, rr, \
             las, mlfb, linux-2.2, eevdf, gps, pbs-fluid, exact, alps, alps-basic, rate",
        ),
        (
            vec!["compare", "--shares", "2,1", "--policies", ","],
            "--policies: none, expected a list such as vtrr,wfq,stride",
        ),
        (vec!["policies", "cfs"], "no policy is called \"cfs\"; did you mean 'fcfs'?"),
    ] {
        let output = folder.divvy(&args);
        let last = text(&output.stderr).lines().last().unwrap_or_default();
        assert_eq!(last, format!("divvy: {answer}"), "{args:?}");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
    // What cannot be written is a file's error, whatever was asked for.
    let output = folder.divvy(&["sim", "--shares", "1", "--svg", "no/such/folder.svg"]);
    assert_eq!(output.status.code(), Some(4));
    assert!(text(&output.stderr).contains("write no/such/folder.svg"));
}

#[test]
fn a_run_that_cannot_end_is_cut_off_and_says_so() {
    let folder = Folder::new("endless");
    folder.write("endless.toml", "policy = \"vtrr\"\nshares = [2, 1]\nrun.decisions = 1000\n");
    folder.write("for-ever.toml", "policy = \"fcfs\"\nshares = [2, 1]\n");
    for (file, ended, why) in [
        (
            "endless.toml",
            "decision-limit",
            "divvy: the run could not end: cut off after 1000 decisions, at 9.9",
        ),
        ("for-ever.toml", "endless", "divvy: the run could not end: somebody runs for ever"),
    ] {
        let output = folder.divvy(&["sim", file, "--json"]);
        assert_eq!(output.status.code(), Some(1), "{file}");
        assert!(text(&output.stderr).starts_with(why), "{}", text(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["ended"], ended);
    }
    let output = folder.divvy(&["compare", "endless.toml", "--policies", "vtrr,wfq"]);
    assert_eq!(output.status.code(), Some(1));
    let output = folder.divvy(&["sim", "sweep", "endless.toml", "--vary", "quantum=1ms,2ms"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr), "divvy: 2 of 2 runs could not end and were cut off at their limit\n");
}

#[test]
fn equal_commands_print_equal_bytes_whatever_the_number_of_threads() {
    let folder = Folder::new("equal");
    let args = [
        "sim",
        "sweep",
        "scenarios/group-a.toml",
        "--until",
        "500s",
        "--vary",
        "alpha=0.3,3",
        "--replications",
        "4",
        "--json",
    ];
    let run = |threads: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_divvy"));
        let output =
            command.args(args).env("RAYON_NUM_THREADS", threads).current_dir(&folder.0).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        output.stdout
    };
    assert_eq!(run("1"), run("3"));
    for plot in ["gantt", "service", "areas"] {
        let draw = |name: &str| {
            let args = ["sim", "scenarios/vtrr-dynamic.toml", "--plot", plot, "--png", name];
            assert!(folder.divvy(&args).status.success());
            folder.read(name)
        };
        assert_eq!(draw("one.png"), draw("two.png"), "{plot}");
    }
}

#[test]
fn a_sweep_agrees_with_single_runs_and_compare() {
    let folder = Folder::new("agree");
    let sweep =
        json_of(&folder.divvy(&["sim", "sweep", "--shares", "5,3,1", "--vary", "policy=wrr,vtrr", "--json"]));
    let compare =
        json_of(&folder.divvy(&["compare", "--shares", "5,3,1", "--policies", "wrr,vtrr", "--json"]));
    for (i, policy) in ["wrr", "vtrr"].into_iter().enumerate() {
        let one = json_of(&folder.divvy(&["sim", "--policy", policy, "--shares", "5,3,1", "--json"]));
        assert_eq!(compare["results"][i]["report"]["service_error"], one["service_error"], "{policy}");
        let (above, below) =
            one["service_error"]["max"].as_str().unwrap().split_once('/').unwrap_or(("0", "1"));
        let exact = above.parse::<f64>().unwrap() / below.parse::<f64>().unwrap();
        let swept = sweep["points"][i]["measures"]["error_max"]["mean"].as_f64().unwrap();
        assert!((swept - exact).abs() < 1e-12, "{policy}: {swept} {exact}");
    }
}

#[test]
fn the_registry_is_printed_whole() {
    let folder = Folder::new("registry");
    let list = json_of(&folder.divvy(&["policies", "--json"]));
    let names: Vec<&str> =
        list.as_array().unwrap().iter().map(|info| info["name"].as_str().unwrap()).collect();
    let plain = folder.divvy(&["policies"]);
    for name in &names {
        assert!(text(&plain.stdout).lines().any(|line| line.trim_start().starts_with(name)), "{name}");
        let one = json_of(&folder.divvy(&["policies", name, "--json"]));
        assert_eq!(one["name"], json!(name));
        let details = folder.divvy(&["policies", name]);
        for param in one["params"].as_array().unwrap() {
            let (param, range) = (param["name"].as_str().unwrap(), param["range"].as_str().unwrap());
            assert!(
                text(&details.stdout).contains(param) && text(&details.stdout).contains(range),
                "{name}: {param}"
            );
        }
    }
    for kind in ["dispatcher", "model", "gate"] {
        assert!(list.as_array().unwrap().iter().any(|info| info["kind"] == kind), "{kind}");
    }
}

/// Nothing can be said to a full disk, and that is no reason to panic.
#[test]
fn standard_error_that_takes_nothing_changes_no_exit_code() {
    let folder = Folder::new("full");
    folder.write("endless.toml", "policy = \"vtrr\"\nshares = [2, 1]\nrun.decisions = 1000\n");
    for args in [
        &["sim", "endless.toml"][..],
        &["sim", "sweep", "endless.toml", "--replications", "2"],
        &["compare", "endless.toml", "--policies", "vtrr"],
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_divvy"));
        let output = command.args(args).current_dir(&folder.0).stderr(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
    }
}

/// What would fill the memory, or never end, is answered in one line.
#[test]
fn what_is_too_much_is_refused() {
    let folder = Folder::new("too-much");
    folder.write("few.toml", "policy = \"vtrr\"\nshares = [2, 1]\nrun.quanta = 3\n");
    folder.write("zero.toml", "policy = \"vtrr\"\n[[traces]]\nfile = \"/dev/zero\"\nformat = \"csv\"\n");
    for (args, code, why) in [
        (
            &["sim", "sweep", "few.toml", "--replications", "4294967295"][..],
            4,
            "replications: 4294967295 replications at 1 points: more than 1000000 runs",
        ),
        (
            &["compare", "few.toml", "--policies", "vtrr", "--replications", "4294967295"],
            4,
            "replications: 4294967295 replications at 1 points: more than 1000000 runs",
        ),
        (&["sim", "/dev/zero"], 4, "divvy: read /dev/zero: it is a device, not a file"),
        (&["sim", "zero.toml"], 4, "read /dev/zero: it is a device, not a file"),
        (&["replay", "/dev/zero"], 4, "divvy: read /dev/zero: it is a device, not a file"),
        (&["share", "--file", "/dev/zero"], 4, "it is a device, not a file"),
        (&["share", "--for", "0s", "1:true"], 2, "--for 0s: no time at all"),
        (
            &["sim", "--shares", "a,b"],
            2,
            "'a' is no share; expected whole numbers of at least 1, as in 3,2,1",
        ),
    ] {
        let output = folder.divvy(args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(why) && said.lines().count() == 1, "{args:?}: {said}");
    }
    assert!(!text(&folder.divvy(&["sim", "--help"]).stdout).contains("surface"));
}
