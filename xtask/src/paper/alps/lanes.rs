//! Two CPUs: what the paper does not try, and where the published algorithm leaves a CPU idle.

use anyhow::Result;
use serde::Serialize;

use crate::live::{RunResult, RunSpec};
use crate::paper::page::{Limit, percent};
use crate::paper::stats::{long_run_error, run_errors};
use crate::paper::{Experiment, gate};

const WORKLOADS: [&[u64]; 4] = [&[1, 2, 3, 2], &[5, 10, 15, 10], &[1, 1, 1], &[1, 1, 6]];

#[derive(Debug, Serialize)]
struct Row {
    shares: String,
    policy: &'static str,
    targets: String,
    cycles: u64,
    error_median: f64,
    error_mean: f64,
    long_run_error: Option<f64>,
    used_percent: f64,
    overhead: f64,
    strangers: Option<f64>,
}

fn row(shares: &[u64], policy: &'static str, run: &RunResult) -> Row {
    let e = run_errors(run);
    let targets: Vec<String> = run.targets.iter().map(|t| format!("{:.1}", t * 100.0)).collect();
    Row {
        shares: format!("{shares:?}"),
        policy,
        targets: targets.join(" : "),
        cycles: e.count,
        error_median: e.median,
        error_mean: e.mean,
        long_run_error: long_run_error(run),
        used_percent: run.used() * f64::from(run.cpus) * 100.0,
        overhead: run.overhead(),
        strangers: run.strangers,
    }
}

/// The part of the page; a machine with one CPU has none.
pub(super) fn run(s: &mut Experiment) -> Result<()> {
    s.page.heading("Two CPUs");
    let Some(cpus) = s.bench.cpus().get(..2).map(<[u32]>::to_vec) else {
        s.page.text("This machine has one CPU: not run.");
        return Ok(());
    };
    let seconds = s.pick(3.0, 8.0);
    let policies: &[&'static str] = s.pick(&["exact"], &["alps", "exact"]);
    let mut cells = Vec::new();
    for shares in WORKLOADS {
        for &policy in policies {
            let mut gate = gate(policy, 10);
            gate.cpus = 2;
            // The cycle of 5:10:15:10 is that of 1:2:3:2 when scaled; as given it is five times as long.
            let name = format!("{shares:?}, {policy}");
            cells.push((
                shares,
                policy,
                RunSpec { cpus: cpus.clone(), ..RunSpec::spin(name, shares, gate, seconds) },
            ));
        }
    }
    let specs: Vec<RunSpec> = cells.iter().map(|c| c.2.clone()).collect();
    let runs = s.bench.run_all("two CPUs", &specs)?;
    let rows: Vec<Row> = cells.iter().zip(&runs).map(|(c, r)| row(c.0, c.1, r)).collect();
    s.page.strangers(runs.iter().map(|r| r.strangers));
    s.page.text(
        "Q = 10 ms. Targets are what the shares come to when each client can use one CPU at the most: 1:1:6 is 25:25:50. \
         The paper has one CPU. The CPU used is of 200 %; errors in %.",
    );
    let table: Vec<Vec<String>> = rows
        .iter()
        .zip(&runs)
        .map(|(r, run)| {
            vec![
                r.shares.clone(),
                r.policy.to_owned(),
                r.targets.clone(),
                r.cycles.to_string(),
                percent(r.error_median),
                percent(r.error_mean),
                r.long_run_error.map_or_else(|| "-".to_owned(), percent),
                format!("{:.1}", r.used_percent),
                percent(r.overhead),
                run.strangers_text(),
            ]
        })
        .collect();
    s.page.table(
        "shares | policy | targets | cycles | median error | mean error | long run | \
         used of 200 | own CPU | strangers",
        &table,
    );
    s.page.csv("cpus", &rows)?;
    for r in rows.iter().filter(|r| r.policy == "exact") {
        s.page.goal(
            format!("two CPUs, {}: median error", r.shares),
            Limit::Most(0.5),
            r.error_median * 100.0,
            "%",
        );
        s.page.goal(format!("two CPUs, {}: used", r.shares), Limit::Least(198.0), r.used_percent, "%");
    }
    Ok(())
}
