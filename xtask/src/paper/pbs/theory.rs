//! Simulated queues against queueing theory.

use anyhow::{Result, anyhow};
use divvy_sim::analytic::{mg1_fcfs, mg1_las, mg1_ps, mm1, mva};
use divvy_sim::scenario::{Format, Scenario};
use serde::Serialize;
use serde_json::{Value, json};

use super::{interval, outcomes};
use crate::paper::experiment::Experiment;
use crate::paper::page::{Limit, number};
use crate::paper::simulated::Simulated;

#[derive(Serialize)]
struct Row {
    queue: &'static str,
    policy: &'static str,
    theory: f64,
    mean: f64,
    standard_error: f64,
    deviation: f64,
}

fn queue(policy: &Value, size: &Value, until: &str) -> Value {
    json!({
        "policy": policy,
        "quantum": "20ms",
        "arrivals": [{ "between": { "exponential": { "mean": "1428571429ns" } }, "size": size }],
        "run": { "until": until, "warmup": "1000s" }
    })
}

/// M/M/1, M/G/1 and a closed network against their formulas.
pub(super) fn theory(study: &mut Experiment<Simulated>) -> Result<()> {
    let rate = 1.0 / 1.428_571_429;
    let until = study.pick("10000s", "30000s");
    let pbs = |alpha: f64| json!({ "name": "pbs", "params": { "alpha": alpha } });
    let exponential = json!({ "exponential": { "mean": "1s" } });
    let hyper = json!({ "hyperexponential": { "p-long": 0.1, "long": "5.5s", "short": "500ms" } });
    let constant = json!({ "const": "1s" });
    let sizes = |size: &Value| -> Result<_> {
        let text = queue(&json!("rr"), size, until).to_string();
        let scenario = Scenario::parse(&text, Format::Json).map_err(|e| anyhow!("{e}"))?;
        Ok(scenario.arrivals[0].size)
    };
    let (h2, d) = (sizes(&hyper)?, sizes(&constant)?);
    let same = mm1(rate, 1.0);
    let users = json!({
        "policy": "rr",
        "quantum": "100ms",
        "users": [{ "count": 8, "think": { "exponential": { "mean": "25s" } }, "work": { "exponential": { "mean": "3s" } } }],
        "run": { "until": until, "warmup": "1000s" }
    });
    let mut cells: Vec<(&'static str, &'static str, f64, Value)> = vec![
        ("M/M/1", "FCFS", same, queue(&json!("fcfs"), &exponential, until)),
        ("M/M/1", "RR (PS)", same, queue(&json!("rr"), &exponential, until)),
        ("M/M/1", "LAS", same, queue(&json!("las"), &exponential, until)),
        ("M/M/1", "PBS, alpha = 0.3", same, queue(&pbs(0.3), &exponential, until)),
        ("M/M/1", "PBS, alpha = 1", same, queue(&pbs(1.0), &exponential, until)),
        ("M/M/1", "PBS, alpha = 3", same, queue(&pbs(3.0), &exponential, until)),
        ("M/H2/1", "FCFS", mg1_fcfs(rate, &h2), queue(&json!("fcfs"), &hyper, until)),
        ("M/H2/1", "RR (PS)", mg1_ps(rate, &h2), queue(&json!("rr"), &hyper, until)),
        ("M/H2/1", "LAS", mg1_las(rate, &h2), queue(&json!("las"), &hyper, until)),
        ("M/D/1", "FCFS", mg1_fcfs(rate, &d), queue(&json!("fcfs"), &constant, until)),
        ("M/D/1", "RR (PS)", mg1_ps(rate, &d), queue(&json!("rr"), &constant, until)),
    ];
    cells.push(("8 thinking users", "RR (PS), by MVA", mva(8, 3.0, 25.0).response, users));
    let scenarios: Vec<Value> = cells.iter().map(|cell| cell.3.clone()).collect();
    let done = outcomes("theory", &scenarios, 16)?;
    let (mut rows, mut table) = (Vec::new(), Vec::new());
    for ((queue, policy, theory, _), outcome) in cells.into_iter().zip(&done) {
        let deviation = (outcome.mean.mean - theory) / outcome.mean.standard_error;
        table.push(vec![
            queue.to_owned(),
            policy.to_owned(),
            number(theory),
            interval(&outcome.mean),
            format!("{deviation:+.2}"),
        ]);
        let (mean, standard_error) = (outcome.mean.mean, outcome.mean.standard_error);
        rows.push(Row { queue, policy, theory, mean, standard_error, deviation });
    }
    study.page.heading("Against queueing theory");
    study.page.text(&format!(
        "Mean response times in s at a load of 0.7; 16 replications of {until}, quanta of 20 ms; intervals of 95 %. Under M/M/1 all \
         policies that do not know sizes are equal, PBS among them. With sizes that are all equal a quantum shows: at 50 ms RR is \
         5 % quicker than PS under M/D/1."
    ));
    study.page.columns(&["queue", "policy", "theory", "simulated", "off by, standard errors"], &table);
    let worst = rows.iter().map(|row| row.deviation.abs()).fold(0.0, f64::max);
    study.page.goal("simulated queues against theory, worst", Limit::Most(4.0), worst, "standard errors");
    study.page.csv("theory", &rows)
}
