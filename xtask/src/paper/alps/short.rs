//! A short quantum at ordinary priority: 5 ms, below the kernel's own slices.

use anyhow::Result;
use serde::Serialize;

use crate::live::RunSpec;
use crate::paper::page::{Limit, percent};
use crate::paper::stats::{run_errors, worst};
use crate::paper::{Experiment, gate};

const WORKLOADS: [(&str, &[u64]); 3] =
    [("linear 5", &[1, 3, 5, 7, 9]), ("equal 5", &[5; 5]), ("skewed 5", &[1, 1, 1, 1, 21])];

#[derive(Debug, Serialize)]
struct Row {
    workload: &'static str,
    policy: &'static str,
    own_session: bool,
    cycles: u64,
    error_median: f64,
    error_mean: f64,
    late_p99_us: f64,
    overhead: f64,
    strangers: Option<f64>,
}

/// The part of the page.
pub(super) fn run(s: &mut Experiment) -> Result<()> {
    let seconds = s.pick(3.0, 8.0);
    let mut cells = Vec::new();
    for (workload, shares) in WORKLOADS {
        for (policy, own_session) in [("alps", true), ("exact", false), ("exact", true)] {
            if s.quick && !own_session {
                continue;
            }
            let name = format!("{workload}, {policy}");
            let spec = RunSpec { own_session, ..RunSpec::spin(name, shares, gate(policy, 5), seconds) };
            cells.push((workload, policy, own_session, spec));
        }
    }
    let specs: Vec<RunSpec> = cells.iter().map(|c| c.3.clone()).collect();
    let runs = s.bench.run_all("a quantum of 5 ms", &specs)?;
    let rows: Vec<Row> = cells
        .iter()
        .zip(&runs)
        .map(|(&(workload, policy, own_session, _), run)| {
            let e = run_errors(run);
            Row {
                workload,
                policy,
                own_session,
                cycles: e.count,
                error_median: e.median,
                error_mean: e.mean,
                late_p99_us: run.lateness.p99_ns as f64 / 1e3,
                overhead: run.overhead(),
                strangers: run.strangers,
            }
        })
        .collect();
    s.page.strangers(runs.iter().map(|r| r.strangers));
    s.page.heading("A quantum of 5 ms");
    s.page.text(
        "Ordinary priority. With sessions of their own the clients are in other autogroups than the scheduler, which is then \
         woken in time more often. The paper's shortest quantum is 10 ms. In %.",
    );
    let table: Vec<Vec<String>> = rows
        .iter()
        .zip(&runs)
        .map(|(r, run)| {
            vec![
                r.workload.to_owned(),
                r.policy.to_owned(),
                if r.own_session { "own" } else { "one" }.to_owned(),
                r.cycles.to_string(),
                percent(r.error_median),
                percent(r.error_mean),
                format!("{:.0}", r.late_p99_us),
                percent(r.overhead),
                run.strangers_text(),
            ]
        })
        .collect();
    s.page.table(
        "shares | policy | sessions | cycles | median error | mean error | \
         99 % of decisions late by less than, us | own CPU | strangers",
        &table,
    );
    s.page.csv("short", &rows)?;
    let medians = rows.iter().filter(|r| r.policy == "exact" && r.own_session).map(|r| r.error_median);
    let worst = worst(medians);
    s.page.goal("Q = 5 ms, sessions of their own, worst median error", Limit::Most(1.0), worst * 100.0, "%");
    Ok(())
}
