//! superd, section 4, side by side: the rate policy on this kernel, and `exact` beside it.

use anyhow::Result;
use divvy_engine::policies::GateSpec;
use serde::Serialize;

use super::page::{Limit, number, percent};
use super::plot::{Plot, Style};
use super::stats::{mean, median, received, relative_errors, rms, slope};
use super::{Experiment, gate};
use crate::PaperArgs;
use crate::live::{RunResult, RunSpec, Snapshot, Snapshots};

/// The rate enforcement period of all experiments, ns.
const PERIOD_NS: u64 = 1_000_000_000;
/// Periods left out at the start (section 4.1).
const START_UP_PERIODS: usize = 5;

fn rate(interval_ms: u64) -> GateSpec {
    GateSpec { period_ns: PERIOD_NS, ..gate("rate", interval_ms) }
}

/// Runs the experiments and writes `OUT/superd.md`.
///
/// # Errors
/// The first run or file that fails; everything that was started has ended then.
pub(crate) fn run(args: &PaperArgs) -> Result<()> {
    let mut experiment: Experiment = Experiment::new(args, "superd")?;
    experiment.parts(&[("rates", rates), ("skewed", skewed), ("overhead", overhead)])?;
    experiment.finish(
        "superd, side by side",
        &[
            "`rate` is the paper's policy with a rate enforcement period of R = 1 s; its accuracy is looked at at the end of each \
             period. `exact` has neither interval nor period: it is run with the quantum that makes its cycle 1 s, and looked \
             at at the end of each cycle. The first five periods are left out, as in the paper (two in a quick run). The \
             paper's machine was a 2.2 GHz Pentium 4 with FreeBSD 4.8, on which a process that has run little goes first.",
        ],
    )
}

/// Relative errors of all clients in all periods, as fractions: of the wall time, as the paper's rates are, or of what all
/// received.
fn period_errors(run: &RunResult, skip: usize, of_wall: bool) -> Vec<f64> {
    let first = skip.min(run.snapshots.len());
    let pairs = run.snapshots[first..].windows(2);
    pairs
        .flat_map(|pair| {
            let got = received(&pair[0], &pair[1]);
            let wall = pair[1].t_ns.saturating_sub(pair[0].t_ns) as f64;
            if of_wall {
                got.iter().zip(&run.targets).map(|(g, t)| g / (t * wall) - 1.0).collect()
            } else {
                relative_errors(&got, &run.targets, |_| true).unwrap_or_default()
            }
        })
        .collect()
}

#[derive(Debug, Serialize)]
struct RateRow {
    policy: String,
    interval_ms: u64,
    periods: usize,
    paper_rms: Option<f64>,
    rms: f64,
    ratio: Option<f64>,
    rms_of_received: f64,
    median_period_rms: f64,
    overhead: f64,
    used: f64,
    strangers: Option<f64>,
}

/// The median over periods of the RMS over clients.
fn median_rms(run: &RunResult, skip: usize) -> f64 {
    let per_period: Vec<f64> = run.snapshots[skip.min(run.snapshots.len())..]
        .windows(2)
        .filter_map(|pair| relative_errors(&received(&pair[0], &pair[1]), &run.targets, |_| true))
        .filter_map(|e| rms(&e))
        .collect();
    median(&per_period).unwrap_or(f64::NAN)
}

/// {1, 2, 3, 4} at four intervals (section 4.1, Fig. 2).
fn rates(s: &mut Experiment) -> Result<()> {
    let shares = [1_u64, 2, 3, 4];
    let (seconds, skip) = s.pick((12.2, 2), (66.2, START_UP_PERIODS));
    let mut cells: Vec<(u64, Option<f64>, RunSpec)> = [(10, 0.68), (20, 0.86), (50, 1.4), (100, 2.2)]
        .map(|(interval, paper)| {
            let name = format!("rate, {interval} ms");
            (interval, Some(paper / 100.0), RunSpec::spin(name, &shares, rate(interval), seconds))
        })
        .to_vec();
    let exact = gate("exact", PERIOD_NS / 1_000_000 / shares.iter().sum::<u64>());
    cells.push((100, None, RunSpec::spin("exact", &shares, exact, seconds)));
    let specs: Vec<RunSpec> = cells.iter().map(|c| c.2.clone()).collect();
    let runs = s.bench.run_all("rates", &specs)?;
    let rows: Vec<RateRow> = cells
        .iter()
        .zip(&runs)
        .map(|((interval, paper, spec), run)| {
            let of_wall = period_errors(run, skip, true);
            let error = rms(&of_wall).unwrap_or(f64::NAN);
            RateRow {
                policy: spec.gate.policy.clone(),
                interval_ms: *interval,
                periods: of_wall.len() / shares.len(),
                paper_rms: *paper,
                rms: error,
                ratio: paper.map(|p| error / p),
                rms_of_received: rms(&period_errors(run, skip, false)).unwrap_or(f64::NAN),
                median_period_rms: median_rms(run, skip),
                overhead: run.overhead(),
                used: run.used(),
                strangers: run.strangers,
            }
        })
        .collect();
    s.page.strangers(runs.iter().map(|r| r.strangers));
    s.page.heading("Rates {1, 2, 3, 4} (section 4.1, Fig. 2)");
    s.page.text(
        "Root mean square of the relative errors of all clients in all periods. \"Of the wall\" takes a client's rate as its \
         fraction of the processor, as the paper does: what strangers take is an error then. \"Of received\" takes it as its \
         fraction of what all four received. For `exact` the column \"S\" is its quantum. All in %.",
    );
    let table: Vec<Vec<String>> = rows
        .iter()
        .zip(&runs)
        .map(|(r, run)| {
            vec![
                r.policy.clone(),
                r.interval_ms.to_string(),
                r.periods.to_string(),
                r.paper_rms.map_or_else(|| "-".to_owned(), percent),
                percent(r.rms),
                r.ratio.map_or_else(|| "-".to_owned(), number),
                percent(r.rms_of_received),
                percent(r.median_period_rms),
                percent(r.overhead),
                percent(r.used),
                run.strangers_text(),
            ]
        })
        .collect();
    s.page.table(
        "policy | S, ms | periods | paper | of the wall | ratio | of received | \
         median of periods | own CPU | used | strangers",
        &table,
    );
    s.page.csv("rates", &rows)?;
    rates_goal_and_plot(s, &rows, &shares, &runs)
}

fn rates_goal_and_plot(
    s: &mut Experiment,
    rows: &[RateRow],
    shares: &[u64],
    runs: &[RunResult],
) -> Result<()> {
    if let Some(exact) = rows.iter().find(|r| r.policy == "exact") {
        let error = exact.median_period_rms * 100.0;
        s.page.goal(
            "{1, 2, 3, 4} with exact: median error, as for ALPS's workloads",
            Limit::Most(0.1),
            error,
            "%",
        );
    }
    let mut plot =
        Plot::new("Fig. 2: share of each period, rate, S = 50 ms", "period", "share of the processor, %");
    for (i, share) in shares.iter().enumerate() {
        plot.add(format!("{share} of 10"), Style::Line, fractions(&runs[2].snapshots, i));
    }
    s.page.plot("rates", &plot)
}

/// A client's fraction of the wall time of each period, %.
fn fractions(snapshots: &[Snapshot], client: usize) -> Vec<(f64, f64)> {
    let pairs = snapshots.windows(2).enumerate();
    pairs
        .map(|(i, pair)| {
            let wall = pair[1].t_ns.saturating_sub(pair[0].t_ns).max(1) as f64;
            ((i + 1) as f64, received(&pair[0], &pair[1])[client] / wall * 100.0)
        })
        .collect()
}

#[derive(Debug, Serialize)]
struct SkewedRow {
    policy: String,
    interval_ms: u64,
    share: u64,
    due_ms: f64,
    paper_ms: Option<f64>,
    mean_absolute_error_ms: f64,
    ratio: Option<f64>,
    mean_error_ms: f64,
    periods: usize,
}

/// Errors of one client in each period, ms: what it received less what its rate is of a period.
fn absolute_errors(snapshots: &[Snapshot], client: usize, due_ms: f64) -> Vec<f64> {
    let got = snapshots.windows(2).map(|pair| received(&pair[0], &pair[1])[client] / 1e6);
    got.map(|ms| ms - due_ms).collect()
}

/// Fig. 4: the mean over runs of each client's absolute error in each period.
fn error_plot(policy: &str, interval_ms: u64, shares: &[u64], runs: &[&RunResult]) -> Plot {
    let title = format!("Fig. 4: absolute error, {{1, 4, 95}}, {policy}, {interval_ms} ms");
    let mut plot = Plot::new(title, "period", "mean absolute error, ms");
    for (i, share) in shares.iter().enumerate() {
        let all: Vec<Vec<f64>> =
            runs.iter().map(|r| absolute_errors(&r.snapshots, i, *share as f64 * 10.0)).collect();
        let periods = all.iter().map(Vec::len).min().unwrap_or(0);
        let points = (0..periods).filter_map(|p| {
            let at: Vec<f64> = all.iter().map(|errors| errors[p].abs()).collect();
            Some(((p + 1) as f64, mean(&at)?))
        });
        plot.add(format!("P{share}"), Style::Line, points.collect());
    }
    plot
}

/// {1, 4, 95} at three intervals (section 4.3, Fig. 4).
fn skewed(s: &mut Experiment) -> Result<()> {
    let shares = [1_u64, 4, 95];
    let (seconds, repeats) = s.pick((10.2, 1), (30.2, 3));
    // Section 4.3's text: P1, P4 and P95 at each interval, ms.
    let paper = [(10, [0.0, 0.0, 5.0]), (20, [10.0, 0.0, 12.5]), (50, [30.0, 20.0, 50.0])];
    let mut cells = Vec::new();
    for repeat in 0..repeats {
        for (interval, values) in paper {
            let name = format!("rate, {interval} ms, run {}", repeat + 1);
            let spec = RunSpec::spin(name, &shares, rate(interval), seconds);
            cells.push((interval, Some(values), spec));
        }
        let spec = RunSpec::spin(format!("exact, run {}", repeat + 1), &shares, gate("exact", 10), seconds);
        cells.push((10, None, spec));
    }
    let specs: Vec<RunSpec> = cells.iter().map(|c| c.2.clone()).collect();
    let runs = s.bench.run_all("rates 1, 4, 95", &specs)?;
    s.page.strangers(runs.iter().map(|r| r.strangers));
    let kinds = paper.len() + 1;
    let (mut rows, mut plots) = (Vec::new(), Vec::new());
    for (kind, (interval, values, spec)) in cells[..kinds].iter().enumerate() {
        let these: Vec<&RunResult> = runs.iter().skip(kind).step_by(kinds).collect();
        for (i, &share) in shares.iter().enumerate() {
            let due_ms = share as f64 * 10.0;
            let errors: Vec<f64> = these
                .iter()
                .flat_map(|r| absolute_errors(&r.snapshots, i, due_ms).into_iter().skip(1))
                .collect();
            let absolute: Vec<f64> = errors.iter().map(|e| e.abs()).collect();
            let error = mean(&absolute).unwrap_or(f64::NAN);
            let paper_ms = values.map(|v| v[i]);
            rows.push(SkewedRow {
                policy: spec.gate.policy.clone(),
                interval_ms: *interval,
                share,
                due_ms,
                paper_ms,
                mean_absolute_error_ms: error,
                ratio: paper_ms.filter(|&p| p > 0.0).map(|p| error / p),
                mean_error_ms: mean(&errors).unwrap_or(f64::NAN),
                periods: errors.len(),
            });
        }
        plots.push((
            format!("skewed-{}-{interval}", spec.gate.policy),
            error_plot(&spec.gate.policy, *interval, &shares, &these),
        ));
    }
    s.page.heading("Rates {1, 4, 95} (section 4.3, Fig. 4)");
    s.page.text(
        "Mean absolute error per period (1 s of wall time; for `exact` a cycle of 1 s of CPU time), ms, without the first \
         period. The paper's values are those of its text (ten runs, 30 periods); \"signed\" is our mean with its sign.",
    );
    let table: Vec<Vec<String>> = rows
        .iter()
        .map(|r| {
            vec![
                r.policy.clone(),
                r.interval_ms.to_string(),
                format!("P{}", r.share),
                number(r.due_ms),
                r.periods.to_string(),
                r.paper_ms.map_or_else(|| "-".to_owned(), |p| format!("about {}", number(p))),
                number(r.mean_absolute_error_ms),
                r.ratio.map_or_else(|| "-".to_owned(), number),
                number(r.mean_error_ms),
            ]
        })
        .collect();
    s.page.table(
        "policy | S (exact: Q), ms | client | due, ms | periods | paper | ours | ratio | \
         signed",
        &table,
    );
    s.page.csv("skewed", &rows)?;
    plots.iter().try_for_each(|(name, plot)| s.page.plot(name, plot))
}

#[derive(Debug, Serialize)]
struct OverheadRow {
    policy: String,
    interval_ms: u64,
    clients: usize,
    overhead: f64,
    late_over_interval: f64,
    used: f64,
    strangers: Option<f64>,
}

/// Overhead by number of equal clients (section 4.2, Fig. 3).
fn overhead(s: &mut Experiment) -> Result<()> {
    let (counts, intervals): (&[usize], &[u64]) =
        s.pick((&[5, 20], &[10, 50]), (&[5, 10, 20, 40, 80], &[10, 20, 50, 100]));
    let seconds = s.pick(3.0, 6.0);
    let mut cells = Vec::new();
    for &n in counts {
        for &interval in intervals {
            let name = format!("{n} clients, rate, {interval} ms");
            cells.push((n, interval, RunSpec::spin(name, &vec![1; n], rate(interval), seconds)));
        }
        cells.push((
            n,
            10,
            RunSpec::spin(format!("{n} clients, exact"), &vec![1; n], gate("exact", 10), seconds),
        ));
    }
    for cell in &mut cells {
        cell.2.snapshots = Snapshots::Never;
    }
    let specs: Vec<RunSpec> = cells.iter().map(|c| c.2.clone()).collect();
    let runs = s.bench.run_all("overhead", &specs)?;
    let rows: Vec<OverheadRow> = cells
        .iter()
        .zip(&runs)
        .map(|((n, interval, spec), run)| OverheadRow {
            policy: spec.gate.policy.clone(),
            interval_ms: *interval,
            clients: *n,
            overhead: run.overhead(),
            late_over_interval: run.lateness.over_quantum,
            used: run.used(),
            strangers: run.strangers,
        })
        .collect();
    s.page.strangers(runs.iter().map(|r| r.strangers));
    s.page.heading("Overhead by number of clients (section 4.2, Fig. 3)");
    s.page.text(
        "Equal clients that compute. Ours is CPU time of scheduler and guardian by wall time; the paper has a figure only \
         (nearly linear in the number of processes), and took the running time that scheduling added. In %.",
    );
    let table: Vec<Vec<String>> = rows
        .iter()
        .zip(&runs)
        .map(|(r, run)| {
            vec![
                r.clients.to_string(),
                r.policy.clone(),
                r.interval_ms.to_string(),
                "figure, linear".to_owned(),
                percent(r.overhead),
                percent(r.late_over_interval),
                percent(r.used),
                run.strangers_text(),
            ]
        })
        .collect();
    s.page.table(
        "clients | policy | S (exact: Q), ms | paper | own CPU | late by > S | used | \
         strangers",
        &table,
    );
    s.page.csv("overhead", &rows)?;
    let mut plot = Plot::new("Fig. 3: overhead by number of clients", "clients", "own CPU, %");
    let mut slopes = Vec::new();
    let kinds = intervals.iter().map(|&i| ("rate", i)).chain([("exact", 10)]);
    for (policy, interval) in kinds {
        let these = rows.iter().filter(|r| r.policy == policy && r.interval_ms == interval);
        let points: Vec<(f64, f64)> = these.map(|r| (r.clients as f64, r.overhead * 100.0)).collect();
        if let Some(slope) = slope(&points) {
            slopes.push(format!("{policy} {interval} ms {slope:.5}"));
        }
        plot.add(format!("{policy}, {interval} ms"), Style::Line, points);
    }
    s.page.text(&format!("Slopes of the lines of least squares, % a client: {}.", slopes.join(", ")));
    s.page.plot("overhead", &plot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_periods() {
        let at = |t_ns, a, b| Snapshot { t_ns, service_ns: vec![a, b] };
        let run = RunResult {
            targets: vec![0.25, 0.75],
            snapshots: vec![at(0, 0, 0), at(100, 50, 50), at(200, 72, 122)],
            ..RunResult::default()
        };
        // The second period: 22 and 72 of a wall of 100, due 25 and 75; of 94 received, due 23.5 and 70.5.
        let wall = period_errors(&run, 1, true);
        assert!((wall[0] + 0.12).abs() < 1e-12 && (wall[1] + 0.04).abs() < 1e-12);
        let of_received = period_errors(&run, 1, false);
        assert!((of_received[0] - (22.0 / 23.5 - 1.0)).abs() < 1e-12);
        assert!(period_errors(&run, 9, true).is_empty());
        assert_eq!(fractions(&run.snapshots, 0), [(1.0, 50.0), (2.0, 22.0)]);
    }

    #[test]
    fn absolute_errors_keep_their_sign() {
        let at = |t_ns, a| Snapshot { t_ns, service_ns: vec![a] };
        let snapshots = [at(0, 0), at(1, 12_000_000), at(2, 20_000_000)];
        assert_eq!(absolute_errors(&snapshots, 0, 10.0), [2.0, -2.0]);
    }
}
