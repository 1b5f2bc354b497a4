//! The machine against golden runs of PBS: what is tried is the machine (slices on a grid, activation, sleep, users);
//! the policy is the paper's formula in floating point, which these cases were chosen to bear (`min_margin`).

mod common;

use common::{golden, json, run};
use serde_json::{Value, json};

/// A golden case of `pbs_slice.json` as a scenario.
fn scenario_of(case: &Value) -> Value {
    let us = |value: &Value| format!("{}us", value.as_u64().unwrap());
    let mut params = case["params"].as_object().unwrap().clone();
    let quantum = us(&params.remove("q").unwrap());
    let alpha = params["alpha"].as_f64().unwrap_or(f64::INFINITY);
    let clients: Vec<Value> = case["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| {
            let program: Vec<Value> = task["program"]
                .as_array()
                .unwrap()
                .iter()
                .map(|step| json!({ step[0].as_str().unwrap(): us(&step[1]) }))
                .collect();
            // delta = alpha * log2(share).
            let delta = task["delta"].as_f64().unwrap();
            let share = if delta == 0.0 { 1 } else { 2f64.powf(delta / alpha) as u64 };
            json!({ "start": us(&task["create"]), "program": program, "share": share })
        })
        .collect();
    json!({
        "policy": { "name": "pbs", "params": params },
        "quantum": quantum,
        "clients": clients,
        "run": { "until": us(&case["t_end"]), "resolution": "1us" },
        "measure": { "runs": 10_000, "service-error": false }
    })
}

#[test]
fn slices_of_pbs() {
    let mut nr_checked = 0;
    for case in golden("pbs_slice.json").as_array().unwrap() {
        // The O(1) algorithm is the policy's own test.
        if case["params"].get("algorithm").is_some() {
            continue;
        }
        let id = case["id"].as_str().unwrap();
        let report = run(&json(&scenario_of(case)));
        let timeline = report.timeline.as_ref().unwrap();
        for (nr, expected) in case["run_log_first"].as_array().unwrap().iter().enumerate() {
            let (from, to, client, _) = timeline.runs[nr];
            assert_eq!(json!([from / 1000, to / 1000, client]), *expected, "{id}, run {nr}");
        }
        assert_eq!(timeline.nr_runs, case["n_runs"].as_u64().unwrap(), "{id}");
        assert_eq!(timeline.hash, case["run_log_fnv"].as_str().unwrap(), "{id}");
        for (client, row) in report.per_client.iter().enumerate() {
            assert_eq!(row.finished_ns.map(|ns| ns / 1000), case["done"][client].as_u64(), "{id}, {client}");
            assert_eq!(row.service_ns / 1000, case["ran"][client].as_u64().unwrap(), "{id}, {client}");
        }
        assert_eq!(report.operations.idle_with_work_ns, 0, "{id}");
        nr_checked += 1;
    }
    assert_eq!(nr_checked, 13);
}

#[test]
fn short_runs_of_group_a() {
    let group_a = golden("group_a.json");
    for case in group_a["exact_short_runs"]["runs"].as_array().unwrap() {
        let us = |key: &str| format!("{}us", case[key].as_u64().unwrap());
        let scenario = json!({
            "seed": case["seed"],
            "policy": { "name": "pbs", "params": {
                "alpha": case["alpha"], "beta": case["beta"], "sign": case["sign"] } },
            "quantum": us("q_us"),
            "users": [{
                "count": 8,
                "think": { "exponential": { "mean": us("think_mean_us") } },
                "segments": case["nseg"],
                "work": { "const": us("seg_us") },
                "gap": { "const": us("gap_us") }
            }],
            "run": { "until": us("t_end_us"), "resolution": "1us" },
            "measure": { "responses": 10 }
        });
        let report = run(&json(&scenario));
        let responses = report.responses.as_ref().unwrap();
        let first: Vec<u64> = responses.first_ns.iter().map(|ns| ns / 1000).collect();
        assert_eq!(json!(first), case["first10"], "{case}");
        assert_eq!(responses.count, case["n"].as_u64().unwrap(), "{case}");
        assert_eq!(responses.sum_ns / 1000, case["sum_us"].as_u64().unwrap(), "{case}");
        let busy_us = report.utilization * case["t_end_us"].as_f64().unwrap();
        assert!((busy_us - case["busy_us"].as_f64().unwrap()).abs() < 1.0, "{busy_us} {case}");
    }
}
