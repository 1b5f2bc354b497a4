//! Every policy by name: the registry and the factory agree, impossible parameters are named, golden schedules come out.

use divvy_policy::Kind;
use divvy_sim::output::Report;
use divvy_sim::policies::{self, DISPATCHERS, MODELS};
use divvy_sim::scenario::{Format, PolicySpec, Scenario, Span};
use divvy_sim::simulate::SimError;
use serde_json::{Value, json};

fn golden(name: &str) -> Value {
    let path = format!("{}/../../golden/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("read {path}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("parse {path}: {error}"))
}

fn run(text: &str) -> Result<Report, String> {
    let scenario = Scenario::parse(text, Format::Toml).map_err(|error| error.to_string())?;
    policies::run(&scenario, scenario.seed, &[]).map_err(|error| match error {
        SimError::Scenario(error) => error.located(text, Format::Toml).to_string(),
        SimError::Machine(error) => error.to_string(),
    })
}

#[test]
fn the_registry_lists_each_policy_once_and_by_kind() {
    let names: Vec<&str> = policies::all().map(|info| info.name).collect();
    let mut unique = names.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), names.len());
    assert!(DISPATCHERS.iter().all(|info| info.kind == Kind::Dispatcher));
    assert!(MODELS.iter().all(|info| info.kind == Kind::Model));
    for info in policies::all() {
        assert!(
            !info.summary.is_empty() && !info.complexity.is_empty() && !info.source.is_empty(),
            "{}",
            info.name
        );
    }
}

/// What a list names, the policy reads: a value that nothing can be is refused by name.
#[test]
fn every_listed_parameter_is_read() {
    for info in policies::all() {
        for param in info.params {
            let spec = PolicySpec::new(info.name).with(param.name, "?");
            let mut scenario = Scenario::of_shares(spec, &[1], Span(10_000_000), 3);
            let mut key = format!("policy.params.{}", param.name);
            if info.kind == Kind::Gate {
                scenario.gate = Some(std::mem::replace(&mut scenario.policy, PolicySpec::new("")));
                key = key.replace("policy", "gate");
            }
            let Err(SimError::Scenario(error)) = policies::run(&scenario, 1, &[]) else {
                panic!("{}: {} is not read", info.name, param.name)
            };
            assert_eq!(error.key(), key, "{}: {error}", info.name);
            assert!(error.message.starts_with("\"?\", expected "), "{}: {error}", info.name);
        }
    }
}

#[test]
fn every_dispatcher_runs_and_idles_for_nobody() {
    for info in DISPATCHERS {
        let scenario = Scenario::of_shares(PolicySpec::new(info.name), &[3, 2, 1], Span(1_000_000), 60);
        let report =
            policies::run(&scenario, 1, &[]).unwrap_or_else(|error| panic!("{}: {error}", info.name));
        let service: u64 = report.per_client.iter().map(|row| row.service_ns).sum();
        assert_eq!((service, report.operations.idle_with_work_ns), (60_000_000, 0), "{}", info.name);
    }
}

#[test]
fn impossible_parameters_are_named_with_line_and_range() {
    for (policy, expected) in [
        (
            "pbs:alpha=17",
            "line 1: policy.params.alpha: 17 is out of range, expected 1/16 to 16; with guard=study 0, -0, inf, and 2^-20 to 1024 of either sign",
        ),
        (
            "pbs:alpha=0",
            "line 1: policy.params.alpha: the limits (0, -0, inf) can starve clients; ask for guard=study",
        ),
        (
            "pbs:alpha=x",
            "line 1: policy.params.alpha: \"x\", expected 1/16 to 16; with guard=study 0, -0, inf, and 2^-20 to 1024 of either sign",
        ),
        ("pbs:gamma=65", "line 1: policy.params.gamma: 65 is out of range, expected 0 to 64"),
        ("pbs:keep=1", "line 1: policy.params.keep: 1 is out of range, expected 2 to 64"),
        ("pbs:sample=65", "line 1: policy.params.sample: 65 is out of range, expected 1 to 64"),
        ("mlfb:levels=33", "line 1: policy.params.levels: 33 is out of range, expected 1 to 32"),
        (
            "linux-2.2:ticks_per_share=0",
            "line 1: policy.params.ticks_per_share: 0 is out of range, expected 1 to 1000",
        ),
        ("rr:quantum=2h", "line 1: policy.params.quantum: 2h is out of range, expected 1ns to 1h"),
        ("vtrr:quantum=2s", "line 1: policy.params.quantum: 2s is out of range, expected 1ns to 1s"),
        (
            "vtrr:classes=262144",
            "line 1: policy.params.classes: 262144 is out of range, expected 0 to 262143",
        ),
        ("drr:credit=2s", "line 1: policy.params.credit: 2s is out of range, expected 1ns to 1s"),
        (
            "stride:stride1=0",
            "line 1: policy.params.stride1: 0 is out of range, expected exact, or 1 to 4611686018427387904",
        ),
        ("wfq:tie=coin", "line 1: policy.params.tie: \"coin\", expected share, small, id, fifo, lifo, rr"),
        ("gps:quantum=1ms", "line 1: policy.params.quantum: unknown parameter, this policy has none"),
        ("pbs-fluid:alpha=-1", "line 1: policy.params.alpha: alpha is -1; must be 0, inf, or 0.001 to 1000"),
        (
            "alps",
            "line 1: policy.name: alps is a gate (gate = \"alps\" runs it above a kernel), expected a dispatcher or a model: vtrr, pbs, wrr, drr, wfq, wf2q, \
             stride, lottery, fcfs, rr, las, mlfb, linux-2.2, eevdf, gps, pbs-fluid",
        ),
        (
            "vrtt",
            "line 1: policy.name: no policy is called \"vrtt\", expected one of vtrr, pbs, wrr, drr, wfq, wf2q, stride, \
             lottery, fcfs, rr, las, mlfb, linux-2.2, eevdf, gps, pbs-fluid",
        ),
    ] {
        let text = format!("policy = \"{policy}\"\nshares = [1, 1]\nrun.quanta = 2");
        assert_eq!(run(&text).map(|_| ()), Err(expected.to_owned()), "{policy}");
    }
}

#[test]
fn a_wrong_quantum_of_the_scenario_is_named_as_such() {
    let error = run("policy = \"vtrr\"\nshares = [1]\nquantum = \"2s\"\nrun.quanta = 1").unwrap_err();
    assert_eq!(error, "line 3: quantum: 2s is out of range, expected 1ns to 1s");
}

#[test]
fn a_slice_without_end_ends_with_the_run() {
    let report = run("policy = \"fcfs\"\nshares = [1, 1]\nrun.until = \"1s\"").unwrap();
    assert_eq!(
        (report.ended, report.time_ns, report.per_client[0].service_ns),
        ("until", 1_000_000_000, 1_000_000_000)
    );
    for policy in ["fcfs", "gps"] {
        let report = run(&format!("policy = \"{policy}\"\nshares = [1, 1]")).unwrap();
        assert_eq!((report.ended, report.time_ns), ("endless", 0), "{policy}");
    }
}

#[test]
fn dynamic_schedules_of_vtrr_through_scenarios() {
    for case in golden("vtrr_dynamic.json").as_array().unwrap() {
        let quantum_us = if case["Q"] == "1" { 1000 } else { 2500 };
        let events: Vec<Value> = case["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| {
                let at = format!("{}us", event[0].as_u64().unwrap() * quantum_us);
                let mut out = json!({ "at": at, "op": event[1], "client": event[2] });
                if let Some(share) = event.get(3) {
                    out["share"] = share.clone();
                }
                out
            })
            .collect();
        let text = json!({
            "policy": "vtrr", "quantum": format!("{quantum_us}us"), "events": events,
            "run": { "quanta": case["quanta"] }
        })
        .to_string();
        let scenario = Scenario::parse(&text, Format::Json).unwrap();
        let report = policies::run(&scenario, 1, &[]).unwrap();
        assert_eq!(json!(report.schedule), case["seq"], "{}", case["id"]);
    }
}

#[test]
fn fluid_pbs_through_scenarios() {
    for case in golden("pbs_fluid.json").as_array().unwrap() {
        let time = |value: &Value| Span((value.as_f64().unwrap() * 1e9).round() as u64).to_string();
        let (arrivals, demands) = (case["arrivals"].as_array().unwrap(), case["demands"].as_array().unwrap());
        let clients: Vec<Value> = arrivals
            .iter()
            .zip(demands)
            .map(|(arrival, demand)| {
                let program = if demand.is_string() { json!([]) } else { json!([{ "run": time(demand) }]) };
                json!({ "start": time(arrival), "program": program })
            })
            .collect();
        let mut scenario = json!({
            "policy": { "name": "pbs-fluid", "params": { "alpha": case["alpha"] } },
            "clients": clients
        });
        if !case["t_end"].is_null() {
            scenario["run"] = json!({ "until": time(&case["t_end"]) });
        }
        let scenario = Scenario::parse(&scenario.to_string(), Format::Json).unwrap();
        let report = policies::run(&scenario, 1, &[]).unwrap();
        for (client, row) in report.per_client.iter().enumerate() {
            match case["completion"][client].as_f64() {
                Some(golden) => {
                    let ours = row.finished_ns.unwrap() as f64 / 1e9;
                    assert!((ours - golden).abs() < 1e-6, "{}, {client}: {ours} {golden}", case["id"]);
                }
                None => assert_eq!(row.finished_ns, None, "{}, {client}", case["id"]),
            }
        }
        // Nobody is served before the first arrival or after the last departure: the CPU is all given out between.
        let served: u64 = report.per_client.iter().map(|row| row.service_ns).sum();
        assert!(served <= report.time_ns + 10, "{}", case["id"]);
    }
}

#[test]
fn gps_gives_everybody_its_fraction_of_any_workload() {
    // Alone until 6 s, then 2:1 until the job's 4 s are through at 12 s, then alone again.
    let report = run(
        "policy = \"gps\"\nshares = [1]\nrun.until = \"20s\"\n[[clients]]\nshare = 2\nstart = \"6s\"\nprogram = [{ run = \
         \"4s\" }]\n",
    )
    .unwrap();
    let rows: Vec<(u64, Option<u64>)> =
        report.per_client.iter().map(|row| (row.service_ns, row.finished_ns)).collect();
    assert_eq!(rows, [(16_000_000_000, None), (4_000_000_000, Some(12_000_000_000))]);
    // Processor sharing of an M/M/1 queue at 70 % load: mean response 1 / (1 - 0.7) times the mean size.
    let report = run(
        "policy = \"gps\"\n[[arrivals]]\nbetween = { exponential = { mean = \"1s\" } }\nsize = { exponential = { mean = \
         \"700ms\" } }\njobs = 100000\n",
    )
    .unwrap();
    let responses = report.responses.unwrap();
    assert_eq!(responses.count, 100_000);
    assert!((responses.mean - 0.7 / 0.3).abs() < 3.0 * responses.half_width.max(0.03), "{}", responses.mean);
}

#[test]
fn models_refuse_what_they_do_not_know_by_name() {
    for (text, expected) in [
        (
            "policy = \"gps\"\nshares = [1]\nrun.quanta = 1\n[machine]\ncpus = 2",
            "line 4: machine: gps models one CPU without ticks or switching costs",
        ),
        (
            "policy = \"pbs-fluid\"\nshares = [2]\nrun.quanta = 1",
            "line 2: shares: pbs-fluid knows no shares, expected 1 for everybody",
        ),
        ("policy = \"pbs-fluid\"\nshares = [1]", "run: somebody never leaves, expected until or quanta"),
        (
            "policy = \"pbs-fluid\"\n[[clients]]\nprogram = [{ run = \"1s\" }, { sleep = \"1s\" }]",
            "line 2: clients: pbs-fluid knows programs of one run only",
        ),
        (
            "policy = \"gps\"\nevents = [{ at = \"1s\", op = \"block\", client = 0 }]\n[[clients]]\nprogram = [{ run = \
             \"9s\" }]",
            "line 2: events[0].client: gps stops only clients of shares and events, not programs or users",
        ),
    ] {
        assert_eq!(run(text).map(|_| ()), Err(expected.to_owned()), "{text}");
    }
}

fn us(value: &Value) -> String {
    format!("{}us", value.as_u64().unwrap())
}

/// PBS parameters of a golden file, as scenarios write them.
fn pbs_params(golden: &Value) -> Value {
    let beta = |beta: &str, sign: &str| {
        let size = golden[beta].as_str().map_or_else(|| golden[beta].to_string(), str::to_owned);
        json!(if golden[sign] == "-" { format!("-{size}") } else { size })
    };
    let mut params = json!({ "alpha": golden["alpha"], "guard": "study" });
    for (ours, theirs) in
        [("gamma", "gamma"), ("epsilon", "eps"), ("alpha2", "alpha2"), ("keep", "L"), ("sample", "M")]
    {
        if let Some(value) = golden.get(theirs) {
            params[ours] = value.clone();
        }
    }
    for (name, sign) in [("beta", "sign"), ("beta2", "sign2")] {
        if golden.get(name).is_some() {
            params[name] = beta(name, sign);
        }
    }
    params
}

#[test]
fn slices_of_pbs_through_scenarios() {
    for case in golden("pbs_slice.json").as_array().unwrap() {
        let alpha = case["params"]["alpha"].as_f64().unwrap_or(f64::INFINITY);
        let client = |task: &Value| {
            let steps = task["program"].as_array().unwrap().iter();
            let program: Vec<Value> =
                steps.map(|step| json!({ step[0].as_str().unwrap(): us(&step[1]) })).collect();
            // delta = alpha * log2(share).
            let delta = task["delta"].as_f64().unwrap();
            let share = if delta == 0.0 { 1 } else { 2f64.powf(delta / alpha).round() as u64 };
            json!({ "start": us(&task["create"]), "program": program, "share": share })
        };
        let clients: Vec<Value> = case["tasks"].as_array().unwrap().iter().map(client).collect();
        let text = json!({
            "policy": { "name": "pbs", "params": pbs_params(&case["params"]) },
            "quantum": us(&case["params"]["q"]),
            "clients": clients,
            "run": { "until": us(&case["t_end"]), "resolution": "1us" },
            "measure": { "runs": 10_000, "service-error": false }
        });
        let scenario = Scenario::parse(&text.to_string(), Format::Json).unwrap();
        let report = policies::run(&scenario, 1, &[]).unwrap();
        let timeline = report.timeline.as_ref().unwrap();
        let id = &case["id"];
        assert_eq!(timeline.nr_runs, case["n_runs"].as_u64().unwrap(), "{id}");
        assert_eq!(json!(timeline.hash), case["run_log_fnv"], "{id}");
        let done: Vec<Option<u64>> =
            report.per_client.iter().map(|row| row.finished_ns.map(|ns| ns / 1000)).collect();
        assert_eq!(json!(done), case["done"], "{id}");
    }
}

#[test]
fn short_runs_of_group_a_through_scenarios() {
    for case in golden("group_a.json")["exact_short_runs"]["runs"].as_array().unwrap() {
        let text = json!({
            "seed": case["seed"],
            "policy": { "name": "pbs", "params": pbs_params(case) },
            "quantum": us(&case["q_us"]),
            "users": [{
                "count": 8, "think": { "exponential": { "mean": us(&case["think_mean_us"]) } },
                "segments": case["nseg"], "work": { "const": us(&case["seg_us"]) }, "gap": { "const": us(&case["gap_us"]) }
            }],
            "run": { "until": us(&case["t_end_us"]), "resolution": "1us" },
            "measure": { "responses": 10 }
        });
        let scenario = Scenario::parse(&text.to_string(), Format::Json).unwrap();
        let responses = policies::run(&scenario, scenario.seed, &[]).unwrap().responses.unwrap();
        let first: Vec<u64> = responses.first_ns.iter().map(|ns| ns / 1000).collect();
        assert_eq!(json!(first), case["first10"], "{case}");
        assert_eq!(
            (responses.count, responses.sum_ns / 1000),
            (case["n"].as_u64().unwrap(), case["sum_us"].as_u64().unwrap())
        );
    }
}

#[test]
fn draws_of_the_lottery_through_scenarios() {
    for case in golden("lottery.json")["cases"].as_array().unwrap() {
        let text = json!({
            "policy": format!("lottery:seed={}", case["seed"]), "shares": case["shares"],
            "run": { "quanta": case["quanta"] }
        });
        let scenario = Scenario::parse(&text.to_string(), Format::Json).unwrap();
        let schedule = policies::run(&scenario, 1, &[]).unwrap().schedule.unwrap();
        let hash = divvy_sim::metrics::fnv1a64(schedule.iter().map(|who| u64::from(who.unwrap())));
        assert_eq!(json!(format!("{hash:016x}")), case["seq_fnv1a64"], "{}", case["id"]);
    }
}
