//! Equal inputs give equal outputs, byte for byte, in any order.

mod common;

use common::{Smalls, json, run, toml};
use divvy_sim::scenario::Scenario;
use divvy_sim::study::Study;
use serde_json::json;

fn busy() -> Scenario {
    toml(
        "seed = 7
         policy = \"las\"
         quantum = \"4ms\"
         shares = { random = { clients = 3, total = 20 } }
         machine = { cpus = 2, switch-cost = \"5us\" }
         run = { until = \"20s\", warmup = \"1s\" }
         measure = { service-error = true, runs = 50, responses = 20 }
         replications = 3
         [[users]]
         count = 3
         think = { uniform = { low = \"100ms\", high = \"1s\" } }
         segments = 2
         work = { bounded-pareto = { shape = 1.2, low = \"5ms\", high = \"2s\" } }
         gap = { exponential = { mean = \"10ms\" } }
         [[arrivals]]
         between = { exponential = { mean = \"500ms\" } }
         size = { hyperexponential = { p-long = 0.1, long = \"500ms\", short = \"20ms\" } }
         [[clients]]
         program = [{ run = \"7ms\" }, { sleep = \"13ms\" }]
         repeat = 0
         [sweep]
         \"machine.cpus\" = [1, 2]
         \"policy.params.quantum\" = [\"2ms\", \"4ms\"]",
    )
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let scenario = busy();
    let (first, second) = (run(&scenario), run(&scenario));
    assert_eq!(first.to_json(), second.to_json());
    assert_eq!(first.to_chrome_trace(), second.to_chrome_trace());
    assert!(first.responses.as_ref().is_some_and(|responses| responses.count > 20));
    assert_eq!(first.groups.len(), 3);
    let mut other = scenario;
    other.seed = 8;
    assert_ne!(run(&other).to_json(), first.to_json());
}

#[test]
fn a_scenario_written_out_is_the_same_scenario() {
    let scenario = busy();
    assert_eq!(json(&serde_json::to_value(&scenario).unwrap()), scenario);
    assert_eq!(toml(&toml::to_string(&scenario).unwrap()), scenario);
}

#[test]
fn a_study_does_not_depend_on_the_order_of_its_runs() {
    let study = Study::new(&busy()).unwrap();
    assert_eq!(study.len(), 12);
    let mut reports: Vec<_> =
        study.items().map(|item| (item.index, item.run(&[], &Smalls).unwrap())).collect();
    let forwards = study.merge(reports.clone());
    reports.reverse();
    reports.swap(3, 8);
    let shuffled = study.merge(reports);
    assert_eq!(forwards.to_csv(), shuffled.to_csv());
    assert_eq!(serde_json::to_string(&forwards).unwrap(), serde_json::to_string(&shuffled).unwrap());
    // The last key varies fastest; every point has its three replications, with the same three seeds.
    let values: Vec<_> = forwards.points.iter().map(|row| json!(row.values)).collect();
    assert_eq!(values[0], json!({ "machine.cpus": 1, "policy.params.quantum": "2ms" }));
    assert_eq!(values[1], json!({ "machine.cpus": 1, "policy.params.quantum": "4ms" }));
    assert_eq!(values[2], json!({ "machine.cpus": 2, "policy.params.quantum": "2ms" }));
    assert!(forwards.points.iter().all(|row| row.measures["response_mean"].replications == 3));
    let seeds: Vec<u64> = study.items().map(|item| item.seed).collect();
    assert_eq!(seeds[..3], seeds[3..6]);
    assert_eq!(seeds[0], 7);
}

#[test]
fn one_more_draw_in_one_concern_leaves_the_others_alone() {
    // A second stretch of work in each request changes no thinking time: the first two requests begin when they did.
    let text = |segments| {
        format!(
            "policy = \"fcfs\"
             run.until = \"100s\"
             measure.runs = 1
             [[users]]
             think = {{ exponential = {{ mean = \"1s\" }} }}
             segments = {segments}
             work = {{ exponential = {{ mean = \"10ms\" }} }}"
        )
    };
    let begin = |segments| run(&toml(&text(segments))).timeline.unwrap().runs[0].0;
    assert_eq!(begin(1), begin(2));
}

#[test]
fn traces_come_in_as_texts() {
    let scenario = toml(
        "policy = \"fcfs\"
         traces = [{ file = \"a.csv\", format = \"csv\" }, { file = \"b.json\", format = \"rt-app\" }]",
    );
    let csv = String::from("arrival,size\n5ms,2ms\n");
    let rt_app = String::from(
        r#"{"tasks": {"t": {"loop": 2, "run": 1000, "sleep": 500}}, "global": {"duration": 1}}"#,
    );
    let simulate = |files: &[String]| divvy_sim::simulate::simulate(&scenario, 1, files, &Smalls);
    let report = simulate(&[csv.clone(), rt_app]).unwrap();
    // The task runs 0-1 and 1.5-2.5 ms (a millisecond each to the answer) and sleeps to 3; the job runs 5-7 ms.
    assert_eq!((report.ended, report.time_ns), ("finished", 7_000_000));
    assert_eq!(
        (report.per_client[0].name.as_str(), report.per_client[0].finished_ns),
        ("t", Some(3_000_000))
    );
    let times: Vec<_> =
        report.groups.iter().map(|group| (group.name.as_str(), group.count, group.mean)).collect();
    assert_eq!(times, [("a.csv", 1, 0.002), ("t", 2, 0.001)]);
    let error = |files: &[String]| simulate(files).unwrap_err().to_string();
    assert_eq!(error(std::slice::from_ref(&csv)), "traces[1].file: b.json: was not read");
    assert_eq!(
        error(&["1s".into(), csv]),
        "traces[0].file: a.csv: line 1, row: 1 values, expected arrival,size[,share]"
    );
}
