//! Table 1's nine workloads at three quanta: accuracy (Figs 4, 5, 7) and overhead (Figs 6, 8).

use anyhow::Result;
use serde::Serialize;

use super::{MINIMAL, POLICIES};
use crate::live::{RunResult, RunSpec};
use crate::paper::page::{Limit, number, percent};
use crate::paper::plot::{Axis, Plot, Style};
use crate::paper::stats::{cycle_errors, long_run_error, median, run_errors, worst};
use crate::paper::{Experiment, gate};

/// How shares are distributed over n clients, n^2 shares in all (Table 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Distribution {
    Linear,
    Equal,
    Skewed,
}

impl Distribution {
    const ALL: [Self; 3] = [Self::Linear, Self::Equal, Self::Skewed];

    fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Equal => "equal",
            Self::Skewed => "skewed",
        }
    }

    fn shares(self, n: u64) -> Vec<u64> {
        match self {
            Self::Linear => (0..n).map(|i| 2 * i + 1).collect(),
            Self::Equal => vec![n; n as usize],
            Self::Skewed => (1..=n).map(|i| if i < n { 1 } else { n * n - (n - 1) }).collect(),
        }
    }
}

/// One cell of the comparison.
#[derive(Clone, Copy, Debug)]
struct Cell {
    distribution: Distribution,
    n: u64,
    quantum_ms: u64,
    policy: &'static str,
}

impl Cell {
    fn name(&self) -> String {
        format!("{} {}", self.distribution.name(), self.n)
    }

    /// The paper's mean error, where it has a number, and what it says.
    fn paper(&self) -> (Option<f64>, &'static str) {
        match (self.distribution, self.n, self.quantum_ms, self.policy) {
            (_, _, _, "exact" | MINIMAL) => (None, "-"),
            (Distribution::Linear, 5, 10, "alps-basic") => (Some(0.0205), "2.05 (3.3)"),
            (Distribution::Skewed, 20, 40, _) => (Some(0.312), "31.2 (3.3)"),
            (Distribution::Linear, 20, 10, "alps-basic") => (None, "figure, raised by 8 cycles"),
            (Distribution::Skewed, ..) => (None, "figure, the largest"),
            _ => (Some(0.05), "figure, below 5"),
        }
    }

    /// Where a cycle is long, enough for two whole ones after the first; where it is short, 12 after the fourth.
    fn spec(&self, quick: bool) -> RunSpec {
        let shares = self.distribution.shares(self.n);
        let name = format!("{}, {} ms, {}", self.name(), self.quantum_ms, self.policy);
        let minimal = self.policy == MINIMAL;
        let policy = if minimal { "exact" } else { self.policy };
        let mut spec =
            RunSpec { minimal, ..RunSpec::spin(name, &shares, gate(policy, self.quantum_ms), 0.0) };
        let (most, cap) = if quick { (20.0, 4.0) } else { (16.4, 7.0) };
        let cycle = spec.cycle_seconds();
        spec.seconds = (most * cycle).min(cap).max(3.4 * cycle);
        spec
    }
}

/// One line of the data.
#[derive(Debug, Serialize)]
struct Row {
    workload: String,
    quantum_ms: u64,
    policy: &'static str,
    cycles: u64,
    error_median: f64,
    error_mean: f64,
    error_max: f64,
    long_run_error: Option<f64>,
    overhead: f64,
    paper_error_mean: Option<f64>,
    ratio_to_paper: Option<f64>,
    wakeups_per_s: f64,
    signals_per_s: f64,
    late_p99_us: f64,
    used: f64,
    strangers: Option<f64>,
}

fn row(cell: &Cell, run: &RunResult) -> Row {
    let errors = run_errors(run);
    let paper = cell.paper().0;
    let seconds = run.wall_ns as f64 / 1e9;
    Row {
        workload: cell.name(),
        quantum_ms: cell.quantum_ms,
        policy: cell.policy,
        cycles: errors.count,
        error_median: errors.median,
        error_mean: errors.mean,
        error_max: errors.max,
        long_run_error: long_run_error(run),
        overhead: run.overhead(),
        paper_error_mean: paper,
        ratio_to_paper: paper.map(|p| errors.mean / p),
        wakeups_per_s: run.wakeups as f64 / seconds,
        signals_per_s: run.signals as f64 / seconds,
        late_p99_us: run.lateness.p99_ns as f64 / 1e3,
        used: run.used(),
        strangers: run.strangers,
    }
}

fn cells(quick: bool) -> Vec<Cell> {
    let (sizes, quanta): (&[u64], &[u64]) = if quick { (&[5], &[10]) } else { (&[5, 10, 20], &[10, 20, 40]) };
    let mut cells = Vec::new();
    for distribution in Distribution::ALL {
        for &n in sizes {
            for &quantum_ms in quanta {
                for policy in POLICIES.into_iter().chain([MINIMAL]) {
                    cells.push(Cell { distribution, n, quantum_ms, policy });
                }
            }
        }
    }
    cells
}

/// The part of the page.
pub(super) fn run(s: &mut Experiment) -> Result<()> {
    let cells = cells(s.quick);
    let specs: Vec<RunSpec> = cells.iter().map(|c| c.spec(s.quick)).collect();
    // The longest first, so that lanes end together.
    let mut order: Vec<usize> = (0..specs.len()).collect();
    order.sort_by(|&a, &b| specs[b].seconds.total_cmp(&specs[a].seconds).then(a.cmp(&b)));
    let sorted: Vec<RunSpec> = order.iter().map(|&i| specs[i].clone()).collect();
    let done = s.bench.run_all("workloads", &sorted)?;
    let mut runs: Vec<(usize, RunResult)> = order.into_iter().zip(done).collect();
    runs.sort_by_key(|(i, _)| *i);
    let runs: Vec<RunResult> = runs.into_iter().map(|(_, run)| run).collect();
    let rows: Vec<Row> = cells.iter().zip(&runs).map(|(c, r)| row(c, r)).collect();
    s.page.strangers(runs.iter().map(|r| r.strangers));
    s.page.heading("Accuracy and overhead: Table 1's workloads (sections 3.3 to 4.2, Figs 4 to 8)");
    s.page.text(
        "Shares are not divided by their greatest common divisor, as in the paper. Errors and overhead in %; the ratio is \
         our mean to the paper's. Overhead is CPU time of scheduler and guardian by wall time. \"Long run\" is the worst \
         client's error over all cycles together. The *minimal loop* lets one process after the other run until its clock shows what it \
         is due, and does nothing else.",
    );
    let table: Vec<Vec<String>> = cells
        .iter()
        .zip(rows.iter().zip(&runs))
        .map(|(c, (r, run))| {
            let ratio = r.ratio_to_paper.map_or_else(|| "-".to_owned(), number);
            vec![
                r.workload.clone(),
                c.quantum_ms.to_string(),
                c.policy.to_owned(),
                r.cycles.to_string(),
                c.paper().1.to_owned(),
                percent(r.error_median),
                percent(r.error_mean),
                percent(r.error_max),
                ratio,
                r.long_run_error.map_or_else(|| "-".to_owned(), percent),
                percent(r.overhead),
                percent(r.used),
                run.strangers_text(),
            ]
        })
        .collect();
    s.page.table(
        "shares | Q, ms | policy | cycles | paper's mean | median | mean | max | ratio | \
         long run | own CPU | used | strangers",
        &table,
    );
    s.page.csv("workloads", &rows)?;
    goals(s, &cells, &rows);
    plots(s, &cells, &rows, &runs)
}

fn goals(s: &mut Experiment, cells: &[Cell], rows: &[Row]) {
    let of = |policy: &'static str| cells.iter().zip(rows).filter(move |(c, _)| c.policy == policy);
    let mut goal = |what: &str, most: f64, value: &dyn Fn(&'static str) -> f64| {
        let floor = Some((MINIMAL, value(MINIMAL) * 100.0));
        s.page.goal_beside(
            format!("workloads, {what}"),
            Limit::Most(most),
            value("exact") * 100.0,
            "%",
            floor,
        );
    };
    let error = |policy, skewed| {
        let these = of(policy).filter(|(c, _)| (c.distribution == Distribution::Skewed) == skewed);
        worst(these.map(|(_, r)| r.error_median))
    };
    goal("linear and equal, worst median error", 0.1, &|policy| error(policy, false));
    goal("skewed, worst median error", 0.3, &|policy| error(policy, true));
    let long = |policy| of(policy).map(|(_, r)| r.long_run_error.unwrap_or(f64::NAN));
    goal("worst client's error in the long run, worst workload", 0.02, &|policy| worst(long(policy)));
    let middle = |policy| median(&long(policy).filter(|e| !e.is_nan()).collect::<Vec<_>>());
    goal("worst client's error in the long run, median workload", 0.02, &|policy| {
        middle(policy).unwrap_or(f64::NAN)
    });
    goal("own CPU, the most", 0.1, &|policy| worst(of(policy).map(|(_, r)| r.overhead)));
}

fn plots(s: &mut Experiment, cells: &[Cell], rows: &[Row], runs: &[RunResult]) -> Result<()> {
    let quantum = 10;
    let names: Vec<String> =
        cells.iter().filter(|c| c.quantum_ms == quantum && c.policy == "exact").map(Cell::name).collect();
    for (file, title, y, value) in [
        (
            "error",
            "Median RMS relative error per cycle, Q = 10 ms (Figs 5, 7)",
            "error, %",
            (|r: &Row| r.error_median) as fn(&Row) -> f64,
        ),
        ("overhead", "Overhead, Q = 10 ms (Figs 6, 8)", "own CPU, %", |r: &Row| r.overhead),
    ] {
        let mut plot = Plot::new(title, "workload", y);
        plot.y_axis = Axis::Log;
        plot.x_names.clone_from(&names);
        for policy in POLICIES.into_iter().chain([MINIMAL]) {
            let these = cells.iter().zip(rows).filter(|(c, _)| c.policy == policy && c.quantum_ms == quantum);
            let points = these.enumerate().map(|(i, (_, r))| (i as f64, value(r) * 100.0)).collect();
            plot.add(policy, Style::Points, points);
        }
        s.page.plot(file, &plot)?;
    }
    let mut plot =
        Plot::new("Linear 5, Q = 10 ms: RMS relative error of each cycle (Fig. 4)", "cycle", "error, %");
    plot.y_axis = Axis::Log;
    for (cell, run) in cells.iter().zip(runs) {
        if cell.name() == "linear 5" && cell.quantum_ms == quantum {
            let errors = cycle_errors(&run.snapshots, &run.targets, |_| true);
            let points = errors.iter().enumerate().map(|(i, e)| ((i + 1) as f64, e * 100.0)).collect();
            plot.add(cell.policy, Style::Line, points);
        }
    }
    s.page.plot("cycles", &plot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workloads_are_table_1() {
        assert_eq!(Distribution::Linear.shares(5), [1, 3, 5, 7, 9]);
        assert_eq!(Distribution::Equal.shares(5), [5; 5]);
        assert_eq!(Distribution::Skewed.shares(5), [1, 1, 1, 1, 21]);
        assert_eq!(Distribution::Skewed.shares(20)[19], 381);
        for d in Distribution::ALL {
            for (n, total) in [(5, 25), (10, 100), (20, 400)] {
                assert_eq!(d.shares(n).iter().sum::<u64>(), total);
            }
        }
        assert_eq!(cells(false).len(), 108);
    }

    #[test]
    fn runs_are_long_enough() {
        for cell in cells(false) {
            let spec = cell.spec(false);
            let cycles = spec.seconds / spec.cycle_seconds();
            assert!(cycles > 3.0 && spec.seconds < 75.0, "{}: {cycles} cycles", spec.name);
        }
    }
}
