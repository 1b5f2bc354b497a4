//! Two CPUs, live.

use anyhow::Result;
use serde::Serialize;

use super::cases::{CPUS, Case, all};
use crate::live::{Errors, RunResult, RunSpec, Snapshots, Work, usual};
use crate::paper::page::{Limit, percent};
use crate::paper::plot::{Axis, Plot, Style};
use crate::paper::stats::{cycle_errors, errors, long_run_error_of, received, start_up};
use crate::paper::{Setting, gate};

/// Cycles that the picture of one run has.
const CYCLES_SHOWN: usize = 120;

#[derive(Debug, Serialize)]
struct Row {
    group: &'static str,
    clients: &'static str,
    policy: &'static str,
    targets: String,
    achieved: String,
    cycles: u64,
    error_median: f64,
    error_mean: f64,
    error_max: f64,
    long_run_error: Option<f64>,
    used_of_left: Option<f64>,
    overhead: f64,
    strangers: Option<f64>,
}

/// CPU time of the clients as a fraction of what strangers left: of all that was not theirs, idle time and the
/// scheduler's own included.
fn used_of_left(run: &RunResult) -> Option<f64> {
    let used: u64 = run.service_ns.iter().sum();
    run.idle_ns.map(|idle| used as f64 / (used + run.own_ns + idle) as f64)
}

/// Errors of the cycles, those of the start left out.
fn cycles(case: &Case, run: &RunResult) -> Errors {
    let first = start_up(run.snapshots.len().saturating_sub(1)).min(run.snapshots.len());
    errors(&cycle_errors(&run.snapshots[first..], &case.targets(), |i| case.counts(i)))
}

fn fractions(parts: &[f64]) -> String {
    parts.iter().map(|part| format!("{:.1}", part * 100.0)).collect::<Vec<_>>().join(" : ")
}

fn row(case: &Case, policy: &'static str, run: &RunResult) -> Row {
    let e = cycles(case, run);
    let all = run.service_ns.iter().sum::<u64>() as f64;
    let achieved: Vec<f64> = run.service_ns.iter().map(|&used| used as f64 / all).collect();
    Row {
        group: case.group,
        clients: case.name,
        policy,
        targets: fractions(&case.targets()),
        achieved: fractions(&achieved),
        cycles: e.count,
        error_median: e.median,
        error_mean: e.mean,
        error_max: e.max,
        long_run_error: long_run_error_of(run, &case.targets(), |i| case.counts(i)),
        used_of_left: used_of_left(run),
        overhead: run.overhead(),
        strangers: run.strangers,
    }
}

fn spec(case: &Case, policy: &'static str, cpus: &[u32], seconds: f64) -> RunSpec {
    let mut gate = gate(policy, 10);
    gate.cpus = CPUS;
    let sleeps = case.clients.iter().any(|c| matches!(c.work, Work::Io { .. }));
    RunSpec {
        clients: case.clients.clone(),
        cpus: cpus.to_vec(),
        snapshots: if sleeps { Snapshots::CyclesAudited } else { Snapshots::Cycles },
        strangers: case.strangers,
        usual_backend: true,
        ..RunSpec::spin(format!("{}, {policy}", case.name), &[], gate, seconds)
    }
}

/// The part of the page; a machine with one CPU has none.
pub(super) fn run(s: &mut Setting) -> Result<()> {
    s.page.heading("Two CPUs, live");
    let Some(cpus) = s.bench.cpus().get(..CPUS as usize).map(<[u32]>::to_vec) else {
        s.page.text("This machine has one CPU: not run.");
        return Ok(());
    };
    let (seconds, quick) = (s.pick(3.0, 8.0), s.quick);
    let cases: Vec<Case> = all().into_iter().filter(|case| case.quick || !quick).collect();
    let mut cells = Vec::new();
    for case in &cases {
        if case.compared && !quick {
            cells.push((case, "alps"));
        }
        cells.push((case, "exact"));
    }
    let specs: Vec<RunSpec> = cells.iter().map(|(case, policy)| spec(case, policy, &cpus, seconds)).collect();
    let runs = s.bench.run_all("two CPUs", &specs)?;
    let rows: Vec<Row> = cells.iter().zip(&runs).map(|((case, policy), r)| row(case, policy, r)).collect();
    s.page.text(
        "Shares; in brackets what is not one thread that computes: threads, processes, or time awake and asleep. Strangers \
         are busy processes that are nobody's clients, up to three at a time: each comes after 900 ms and stays for 400 ms on \
         average, *unpinned*, *pinned* to one CPU, or *moving* to the other every 30 ms. Targets are what shares, CPUs and \
         threads allow with all awake; errors are those of clients that always compute (and, beside sleepers, are not \
         held back by having but one thread). `Used` is the clients' CPU time by that and idle time and divvy's own: what \
         strangers took, ours and others, is left out. All in %.",
    );
    if let Some(case) = cases.first() {
        let chosen = usual(&spec(case, "exact", &cpus, seconds))?;
        s.page.text(&format!(
            "*exact* holds clients as `divvy share` does here where nobody asks for a back end: by `{}` ({}); *alps* by signals. *divvyd* has a back end \
             of its own.",
            chosen.backend, chosen.why
        ));
    }
    let table: Vec<Vec<String>> = rows.iter().map(cells_of).collect();
    s.page.table(
        "clients | policy | targets | achieved | cycles | median error | mean | largest | long run | used | own CPU | strangers",
        &table,
    );
    s.page.csv("live", &rows)?;
    for r in rows.iter().filter(|r| r.policy == "exact") {
        let name = |what: &str| format!("{}: {}: {what}", r.group, r.clients);
        s.page.goal(name("median error of cycles"), Limit::Most(2.0), r.error_median * 100.0, "%");
        let long_run = r.long_run_error.map_or(f64::NAN, |e| e * 100.0);
        s.page.goal(name("long run"), Limit::Most(0.5), long_run, "%");
        let used = r.used_of_left.map_or(f64::NAN, |u| u * 100.0);
        s.page.goal(name("used"), Limit::Least(98.0), used, "%");
    }
    pictures(s, &cells, &rows, &runs)
}

fn cells_of(r: &Row) -> Vec<String> {
    let part = |f: Option<f64>, digits: usize| {
        f.map_or_else(|| "-".to_owned(), |f| format!("{:.digits$}", f * 100.0))
    };
    vec![
        r.clients.to_owned(),
        r.policy.to_owned(),
        r.targets.clone(),
        r.achieved.clone(),
        r.cycles.to_string(),
        percent(r.error_median),
        percent(r.error_mean),
        percent(r.error_max),
        r.long_run_error.map_or_else(|| "-".to_owned(), percent),
        part(r.used_of_left, 1),
        percent(r.overhead),
        part(r.strangers, 1),
    ]
}

fn pictures(
    s: &mut Setting,
    cells: &[(&Case, &'static str)],
    rows: &[Row],
    runs: &[RunResult],
) -> Result<()> {
    let mut plot =
        Plot::new("Two CPUs: median RMS relative error per cycle", "case, in the table's order", "error, %");
    plot.y_axis = Axis::Log;
    let mut used =
        Plot::new("Two CPUs: used of what strangers left", "case, in the table's order", "used, %");
    let numbers: Vec<&str> = cells.iter().filter(|c| c.1 == "exact").map(|c| c.0.name).collect();
    plot.x_names = (1..=numbers.len()).map(|n| n.to_string()).collect();
    used.x_names.clone_from(&plot.x_names);
    let place = |r: &Row| numbers.iter().position(|&name| name == r.clients).unwrap_or(0) as f64;
    for policy in ["exact", "alps"] {
        let of = || rows.iter().filter(move |r| r.policy == policy);
        plot.add(policy, Style::Points, of().map(|r| (place(r), r.error_median * 100.0)).collect());
        let fractions = of().filter_map(|r| Some((place(r), r.used_of_left? * 100.0)));
        used.add(policy, Style::Points, fractions.collect());
    }
    let last = (numbers.len().max(1) - 1) as f64;
    plot.add("goal", Style::Dashed, vec![(0.0, 2.0), (last, 2.0)]);
    used.add("goal", Style::Dashed, vec![(0.0, 98.0), (last, 98.0)]);
    s.page.plot("error", &plot)?;
    s.page.plot("used", &used)?;
    let shown = cells.iter().zip(runs).find(|((case, policy), _)| {
        *policy == "exact" && case.strangers.is_some() && case.clients.len() == 4
    });
    if let Some(((case, policy), run)) = shown {
        let title = format!("{policy}, {}: fraction of each cycle", case.name);
        let mut plot = Plot::new(title, "cycle", "CPU, %");
        let most = CYCLES_SHOWN.min(run.snapshots.len().saturating_sub(1));
        let first = run.snapshots.len() - 1 - most;
        for (i, client) in case.clients.iter().enumerate() {
            let points = run.snapshots[first..].windows(2).enumerate().map(|(cycle, pair)| {
                let got = received(&pair[0], &pair[1]);
                let total: f64 = got.iter().sum();
                ((first + cycle + 1) as f64, if total > 0.0 { got[i] / total * 100.0 } else { 0.0 })
            });
            plot.add(format!("share {}, client {}", client.share, i + 1), Style::Line, points.collect());
        }
        s.page.plot("cycles", &plot)?;
    }
    Ok(())
}
