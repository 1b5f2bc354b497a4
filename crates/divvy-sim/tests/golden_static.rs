//! Exact service errors and schedules of golden files, through scenario files and through the bare quantum loop.

mod common;

use common::{Rule, Small, golden, json, run};
use divvy_policy::{Nanos, Share};
use divvy_sim::machine::quanta::{StaticErrors, run_static};
use divvy_sim::metrics::{Welford, fnv1a64};
use divvy_sim::rng::{Concern, stream};
use divvy_sim::workload::random_shares;
use serde_json::{Value, json};

/// Golden cases that the small policies stand for.
fn is_small(case: &Value) -> bool {
    match case["algo"].as_str().unwrap() {
        "wrr" => true,
        "wfq" => case["params"]["tie"] == "share",
        _ => false,
    }
}

fn shares_of(case: &Value) -> Vec<u64> {
    case["shares"].as_array().unwrap().iter().map(|share| share.as_u64().unwrap()).collect()
}

#[test]
fn schedules_and_errors_through_a_scenario() {
    let mut nr_checked = 0;
    for case in golden("vtrr_static.json").as_array().unwrap().iter().filter(|case| is_small(case)) {
        let scenario = json(&json!({
            "policy": case["algo"], "shares": case["shares"], "run": { "quanta": case["quanta"] }
        }));
        let report: Value = serde_json::from_str(&run(&scenario).to_json()).unwrap();
        let id = &case["id"];
        assert_eq!(report["policy"], case["algo"], "{id}");
        assert_eq!(report["shares"], case["shares"], "{id}");
        assert_eq!(report["service_error"]["min"], case["err_min"], "{id}");
        assert_eq!(report["service_error"]["max"], case["err_max"], "{id}");
        assert_eq!(report["service_error"]["exact"], true, "{id}");
        assert_eq!(report["ended"], "until", "{id}");
        let schedule = report["schedule"].as_array().unwrap();
        assert_eq!(schedule.len() as u64, case["quanta"].as_u64().unwrap(), "{id}");
        if let Some(seq) = case.get("seq") {
            assert_eq!(&report["schedule"], seq, "{id}");
        }
        let hash = fnv1a64(schedule.iter().map(|client| client.as_u64().unwrap()));
        assert_eq!(format!("{hash:016x}"), case["seq_fnv1a64"], "{id}");
        for (client, range) in
            case.get("per_client").and_then(Value::as_array).into_iter().flatten().enumerate()
        {
            let row = &report["per_client"][client];
            assert_eq!(json!([row["min"], row["max"]]), *range, "{id}, client {client}");
        }
        nr_checked += 1;
    }
    assert!(nr_checked >= 20, "{nr_checked}");
}

#[test]
fn the_bare_loop_agrees_with_the_machine() {
    for case in golden("vtrr_static.json").as_array().unwrap().iter().filter(|case| is_small(case)) {
        let rule = if case["algo"] == "wrr" { Rule::Wrr } else { Rule::Wfq };
        let (numbers, quanta, quantum) =
            (shares_of(case), case["quanta"].as_u64().unwrap(), Nanos::from_millis(10));
        let shares: Vec<Share> = numbers.iter().map(|&n| Share::new(n).unwrap()).collect();
        let mut errors = StaticErrors::new(&numbers);
        let mut policy = Small::new(rule, 1, quantum);
        let mut schedule = Vec::new();
        let nr_run = run_static(&mut policy, &shares, quantum, quanta, |client| {
            errors.on_quantum(client.index());
            schedule.push(u64::from(client.0));
        });
        let id = &case["id"];
        assert_eq!(nr_run, Ok(quanta), "{id}");
        assert_eq!(format!("{:016x}", fnv1a64(schedule)), case["seq_fnv1a64"], "{id}");
        let ranges = errors.ranges();
        let least = ranges.iter().map(|range| range.min).min().unwrap();
        let most = ranges.iter().map(|range| range.max).max().unwrap();
        assert_eq!(json!([least, most]), json!([case["err_min"], case["err_max"]]), "{id}");
    }
}

/// Mean and standard error of the smallest and largest error over `nr` random assignments.
fn study_of_shares(rule: &Rule, clients: usize, total: u64, nr: u64) -> [f64; 4] {
    let (mut least, mut most) = (Welford::default(), Welford::default());
    let mut rng = stream(1, Concern::Shares, 0);
    for _ in 0..nr {
        let numbers = random_shares(clients, total, &mut rng);
        let shares: Vec<Share> = numbers.iter().map(|&n| Share::new(n).unwrap()).collect();
        let mut errors = StaticErrors::new(&numbers);
        let mut policy = Small::new(rule.clone(), 1, Nanos(1));
        let nr_run = run_static(&mut policy, &shares, Nanos(1), total, |c| errors.on_quantum(c.index()));
        assert_eq!(nr_run, Ok(total));
        let (min, max) = errors.range_scaled();
        least.push(min as f64 / total as f64);
        most.push(max as f64 / total as f64);
    }
    let (least, most) = (least.estimate(), most.estimate());
    [least.mean, most.mean, least.standard_error, most.standard_error]
}

#[test]
fn random_shares_reproduce_the_study_of_vtrr() {
    let golden = golden("fig12_uniform.json");
    let mut nr_checked = 0;
    for row in golden["rows"].as_array().unwrap().iter().filter(|row| row["S"] == 128) {
        for (name, rule) in [("wrr", Rule::Wrr), ("wfq", Rule::Wfq)] {
            let theirs: Vec<f64> =
                row[name].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
            let ours = study_of_shares(&rule, row["N"].as_u64().unwrap() as usize, 128, 300);
            for i in 0..2 {
                let room = 4.0 * theirs[i + 2].hypot(ours[i + 2]);
                assert!((ours[i] - theirs[i]).abs() <= room, "{name} {}: {ours:?} {theirs:?}", row["N"]);
            }
            nr_checked += 1;
        }
    }
    assert_eq!(nr_checked, 16);
}

/// A golden case of `vtrr_dynamic.json` as a scenario; times there are in quanta.
fn scenario_of(case: &Value) -> Value {
    let quantum_us = match case["Q"].as_str().unwrap() {
        "1" => 1000,
        "5/2" => 2500,
        other => panic!("quantum {other}"),
    };
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
    json!({
        "policy": "wfq",
        "quantum": format!("{quantum_us}us"),
        "events": events,
        "run": { "quanta": case["quanta"] }
    })
}

#[test]
fn every_dynamic_case_can_be_written_and_runs() {
    // The sequences themselves are VTRR's own tests; here: who can run when does not depend on the policy, so idle
    // quanta are the golden ones, and nobody runs who is not there, blocked, or gone.
    let cases = golden("vtrr_dynamic.json");
    for case in cases.as_array().unwrap() {
        let report = run(&json(&scenario_of(case)));
        let (schedule, seq) = (report.schedule.as_ref().unwrap(), case["seq"].as_array().unwrap());
        let id = &case["id"];
        assert_eq!(schedule.len(), seq.len(), "{id}");
        let mut runnable = std::collections::BTreeSet::new();
        for (t, (ours, theirs)) in schedule.iter().zip(seq).enumerate() {
            for event in case["events"].as_array().unwrap().iter().filter(|event| event[0] == json!(t)) {
                let client = event[2].as_u64().unwrap() as u32;
                match event[1].as_str().unwrap() {
                    "new" | "wake" => drop(runnable.insert(client)),
                    "block" | "exit" => drop(runnable.remove(&client)),
                    "create" | "share" => {}
                    other => panic!("{other}"),
                }
            }
            assert_eq!(ours.is_none(), theirs.is_null(), "{id} at {t}");
            assert!(ours.is_none_or(|client| runnable.contains(&client)), "{id} at {t}: {ours:?}");
        }
        let error = report.service_error.unwrap();
        assert!(error.exact, "{id}");
        // Entitlements and services both sum to the time that was not idle.
        let quanta: u64 = schedule.iter().filter(|who| who.is_some()).count() as u64;
        let service: u64 = report.per_client.iter().map(|row| row.service_ns).sum();
        assert_eq!(service, quanta * report.quantum_ns, "{id}");
    }
}
