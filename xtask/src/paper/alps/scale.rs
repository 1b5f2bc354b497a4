//! How many clients one scheduler can divide among (section 5.2, Figs 11 and 12), and on to thousands.

use anyhow::Result;
use serde::Serialize;

use super::MINIMAL;
use crate::live::{RunResult, RunSpec, Snapshots};
use crate::paper::page::{Limit, number, percent};
use crate::paper::plot::{Axis, Plot, Style};
use crate::paper::stats::{rms, run_errors};
use crate::paper::{Experiment, gate};

/// Each client's share.
const SHARE: u64 = 5;
/// Beyond so many clients the accounts of each cycle are not kept: there are hardly any whole ones.
const SNAPSHOTS_MAX: usize = 200;
/// Control is kept where no more than this fraction of all decisions came more than a quantum late.
const LATE_MAX: f64 = 0.01;

/// The paper's overhead in %, by its fitted lines (section 5.2), where they hold: up to the observed thresholds.
fn paper_overhead(n: usize, quantum_ms: u64) -> Option<f64> {
    let (slope, offset, threshold) = match quantum_ms {
        10 => (0.0639, 0.0604, 40),
        20 => (0.0338, 0.0340, 60),
        40 => (0.0172, 0.0160, 90),
        _ => return None,
    };
    (n <= threshold).then_some(slope * n as f64 + offset)
}

/// Error over what was seen where no cycle was: among those who had their whole turn or none, only the former can be
/// compared. RMS of `received / quota - 1` over clients that received at least nine tenths of a quota.
fn turn_error(service_ns: &[u64], quota_ns: u64) -> Option<f64> {
    let whole = service_ns.iter().filter(|&&s| s * 10 >= quota_ns * 9);
    let turns: Vec<f64> = whole
        .map(|&s| {
            let turns = (s as f64 / quota_ns as f64).round().max(1.0);
            s as f64 / (turns * quota_ns as f64) - 1.0
        })
        .collect();
    rms(&turns)
}

#[derive(Debug, Serialize)]
struct Row {
    clients: usize,
    quantum_ms: u64,
    policy: &'static str,
    seconds: f64,
    cycles: u64,
    error_median: Option<f64>,
    error_mean: Option<f64>,
    /// Over whole turns, where fewer than two cycles were seen.
    turn_error: Option<f64>,
    turns_seen: u64,
    overhead: f64,
    guardian_overhead: f64,
    paper_overhead_percent: Option<f64>,
    late_over_quantum: f64,
    late_p99_ms: f64,
    controlled: bool,
    used: f64,
    strangers: Option<f64>,
}

fn spec(n: usize, quantum_ms: u64, policy: &'static str, quick: bool) -> RunSpec {
    let name = format!("{n} clients, {quantum_ms} ms, {policy}");
    let minimal = policy == MINIMAL;
    let gate = gate(if minimal { "exact" } else { policy }, quantum_ms);
    let mut spec = RunSpec { minimal, ..RunSpec::spin(name, &vec![SHARE; n], gate, 0.0) };
    let (least, most) = if quick { (3.0, 4.0) } else { (5.0, 16.0) };
    spec.seconds = (3.3 * spec.cycle_seconds()).clamp(least, most);
    if n > SNAPSHOTS_MAX {
        spec.snapshots = Snapshots::Never;
    }
    spec
}

fn row(n: usize, quantum_ms: u64, policy: &'static str, run: &RunResult) -> Row {
    let e = run_errors(run);
    let quota = SHARE * quantum_ms * 1_000_000;
    Row {
        clients: n,
        quantum_ms,
        policy,
        seconds: run.wall_ns as f64 / 1e9,
        cycles: run.cycles,
        error_median: (e.count > 0).then_some(e.median),
        error_mean: (e.count > 0).then_some(e.mean),
        turn_error: turn_error(&run.service_ns, quota).filter(|_| e.count == 0 && policy == "exact"),
        turns_seen: run.service_ns.iter().filter(|&&s| s * 10 >= quota * 9).count() as u64,
        overhead: run.overhead(),
        guardian_overhead: run.guardian_ns as f64 / run.wall_ns as f64,
        paper_overhead_percent: paper_overhead(n, quantum_ms),
        late_over_quantum: run.lateness.over_quantum,
        late_p99_ms: run.lateness.p99_ns as f64 / 1e6,
        controlled: policy != MINIMAL && run.lateness.over_quantum <= LATE_MAX,
        used: run.used(),
        strangers: run.strangers,
    }
}

/// The part of the page.
pub(super) fn run(s: &mut Experiment) -> Result<()> {
    let quick: (&[u64], &[usize], &[usize]) = (&[10], &[5, 20, 60], &[1000]);
    let full: (&[u64], &[usize], &[usize]) = (&[10, 20, 40], &[5, 20, 40, 60, 90, 120], &[160, 1000, 5000]);
    let (quanta, small, large) = s.pick(quick, full);
    let mut cells = Vec::new();
    for &quantum_ms in quanta {
        for &n in small {
            cells.extend(["alps", "exact"].map(|policy| (n, quantum_ms, policy)));
        }
    }
    let specs: Vec<RunSpec> = cells.iter().map(|&(n, q, p)| spec(n, q, p, s.quick)).collect();
    let mut runs = s.bench.run_all("many clients", &specs)?;
    // Thousands are run alone: their memory and their starts are felt by everybody.
    let most = large.last().map(|&n| (n, 10, MINIMAL));
    for (n, quantum_ms, policy) in large.iter().map(|&n| (n, 10, "exact")).chain(most) {
        let mut spec = spec(n, quantum_ms, policy, s.quick);
        spec.cpus = vec![s.cpu()];
        runs.extend(s.bench.run_all("very many clients", &[spec])?);
        cells.push((n, quantum_ms, policy));
    }
    let rows: Vec<Row> = cells.iter().zip(&runs).map(|(&(n, q, p), run)| row(n, q, p, run)).collect();
    s.page.strangers(runs.iter().map(|r| r.strangers));
    s.page.heading("Scale (section 5.2, Figs 11 and 12)");
    s.page.text(
        "Equal clients of 5 shares each on one CPU. Control counts as kept where at most 1 % of the decisions came more than a \
         quantum late. Where no cycle but the first ended, the error is that of the turns that were seen: RMS of \
         `received / (5 Q) - 1` over the clients that had a turn. The paper lost control at 40, 60 and 90 clients at Q = 10, \
         20 and 40 ms; its overhead is that of its fitted lines, up to there. All in %.",
    );
    let optional = |v: Option<f64>| v.map_or_else(|| "-".to_owned(), percent);
    let table: Vec<Vec<String>> = rows
        .iter()
        .zip(&runs)
        .map(|(r, run)| {
            let paper = r.paper_overhead_percent;
            let is_minimal = r.policy == MINIMAL; // It does not ask to be called at a time.
            let turns = r.turn_error.map(|e| format!("{} ({} turns)", percent(e), r.turns_seen));
            vec![
                r.clients.to_string(),
                r.quantum_ms.to_string(),
                r.policy.to_owned(),
                format!("{:.0}", r.seconds),
                r.cycles.to_string(),
                optional(r.error_median),
                optional(r.error_mean),
                turns.unwrap_or_else(|| "-".to_owned()),
                percent(r.overhead),
                paper.map_or_else(|| "-".to_owned(), number),
                paper.map_or_else(|| "-".to_owned(), |p| number(r.overhead * 100.0 / p)),
                if is_minimal { "-".to_owned() } else { percent(r.late_over_quantum) },
                if is_minimal {
                    "-"
                } else if r.controlled {
                    "kept"
                } else {
                    "**lost**"
                }
                .to_owned(),
                percent(r.used),
                run.strangers_text(),
            ]
        })
        .collect();
    s.page.table(
        "clients | Q, ms | policy | s | cycles | median error | mean error | \
         error of turns | own CPU | paper's own CPU | ratio | late by > Q | control | used | strangers",
        &table,
    );
    s.page.csv("scale", &rows)?;
    let exact = || rows.iter().filter(|r| r.policy == "exact" && r.quantum_ms == 10);
    let controlled = exact().filter(|r| r.controlled).map(|r| r.clients).max().unwrap_or(0);
    s.page.goal("clients under control at Q = 10 ms", Limit::Least(5000.0), controlled as f64, "clients");
    if let Some(most) = exact().max_by_key(|r| r.clients) {
        let what = format!("own CPU with {} clients at Q = 10 ms", most.clients);
        let floor = rows.iter().find(|r| r.policy == MINIMAL && r.clients == most.clients);
        let floor = floor.map(|r| (MINIMAL, r.overhead * 100.0));
        s.page.goal_beside(what, Limit::Most(0.3), most.overhead * 100.0, "%", floor);
    }
    plots(s, &rows, quanta)
}

fn plots(s: &mut Experiment, rows: &[Row], quanta: &[u64]) -> Result<()> {
    let mut overhead = Plot::new("Overhead by number of clients (Fig. 11)", "clients", "own CPU, %");
    let mut error =
        Plot::new("Mean RMS relative error by number of clients (Fig. 12)", "clients", "error, %");
    for plot in [&mut overhead, &mut error] {
        plot.x_axis = Axis::Log;
        plot.y_axis = Axis::Log;
    }
    for policy in ["alps", "exact"] {
        for &quantum in quanta {
            let these: Vec<&Row> =
                rows.iter().filter(|r| r.policy == policy && r.quantum_ms == quantum).collect();
            let name = format!("{policy}, {quantum} ms");
            let points = these.iter().map(|r| (r.clients as f64, r.overhead * 100.0)).collect();
            overhead.add(&name, Style::Line, points);
            let seen =
                these.iter().filter_map(|r| Some((r.clients as f64, r.error_mean.or(r.turn_error)? * 100.0)));
            error.add(name, Style::Line, seen.collect());
        }
    }
    for &quantum in quanta {
        let points: Vec<(f64, f64)> = [5, 10, 20, 40, 60, 90]
            .iter()
            .filter_map(|&n| Some((n as f64, paper_overhead(n, quantum)?)))
            .collect();
        overhead.add(format!("paper, {quantum} ms"), Style::Dashed, points);
    }
    s.page.plot("scale-overhead", &overhead)?;
    s.page.plot("scale-error", &error)?;
    let lost: Vec<f64> =
        rows.iter().filter(|r| r.policy == "alps" && !r.controlled).map(|r| r.clients as f64).collect();
    let text = match lost.iter().copied().reduce(f64::min) {
        None => "`alps` kept control wherever it was run here.".to_owned(),
        Some(least) => format!("`alps` first lost control at {least} clients here."),
    };
    s.page.text(&text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_lines() {
        assert!((paper_overhead(20, 10).expect("a line") - 1.3384).abs() < 1e-9);
        assert_eq!(paper_overhead(41, 10), None);
        assert_eq!(paper_overhead(5, 15), None);
    }

    #[test]
    fn turns_that_were_not_whole_do_not_count() {
        // Quota 100: one turn of 110, two turns of 198, one under way, one that never ran: errors .1 and -.01.
        let e = turn_error(&[110, 198, 40, 0], 100).expect("two turns");
        assert!((e - ((0.01_f64 + 0.0001) / 2.0).sqrt()).abs() < 1e-12);
        assert_eq!(turn_error(&[0, 10], 100), None);
    }

    #[test]
    fn a_run_sees_whole_cycles_where_that_is_affordable() {
        let cycles = |n, q| spec(n, q, "exact", false).seconds / spec(n, q, "exact", false).cycle_seconds();
        assert!(cycles(5, 10) > 9.0 && cycles(60, 10) > 3.0);
        assert_eq!(spec(5000, 10, "exact", false).snapshots, Snapshots::Never);
    }
}
