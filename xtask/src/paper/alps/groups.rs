//! Several schedulers at once that know nothing of each other (section 5.1, Fig. 10, Table 3).

use anyhow::Result;
use serde::Serialize;

use crate::live::{Errors, RunResult, RunSpec, Snapshot};
use crate::paper::page::{Limit, number, percent};
use crate::paper::plot::{Plot, Style};
use crate::paper::stats::{cycle_errors, errors, mean, slope, worst};
use crate::paper::{Experiment, gate};

/// The groups, in the order in which they begin.
const GROUPS: [[u64; 3]; 3] = [[7, 8, 9], [4, 5, 6], [1, 2, 3]];

/// Table 3: fraction of its group's CPU time, in %, by client and phase.
fn paper(share: u64, phase: usize) -> Option<f64> {
    let row = match share {
        1 => [None, None, Some(16.5)],
        2 => [None, None, Some(33.1)],
        3 => [None, None, Some(50.4)],
        4 => [None, Some(27.3), Some(26.5)],
        5 => [None, Some(34.0), Some(33.2)],
        6 => [None, Some(38.7), Some(40.3)],
        7 => [Some(29.5), Some(29.2), Some(28.9)],
        8 => [Some(33.2), Some(33.3), Some(33.1)],
        9 => [Some(37.3), Some(37.5), Some(38.0)],
        _ => [None; 3],
    };
    row[phase]
}

/// The cycles that lie wholly between two moments.
fn within(snapshots: &[Snapshot], from: u64, to: u64) -> Vec<Snapshot> {
    snapshots.iter().filter(|s| s.t_ns >= from && s.t_ns < to).cloned().collect()
}

/// Each client's fraction of what its group got in these cycles, by the slopes of the lines of least squares.
fn by_slopes(snapshots: &[Snapshot], clients: usize) -> Option<Vec<f64>> {
    let line = |i: usize| -> Vec<(f64, f64)> {
        let first = snapshots.first().map_or(0, |s| s.t_ns);
        snapshots.iter().map(|s| ((s.t_ns - first) as f64, s.service_ns[i] as f64)).collect()
    };
    let slopes: Option<Vec<f64>> = (0..clients).map(|i| slope(&line(i))).collect();
    let slopes = slopes?;
    let total: f64 = slopes.iter().sum();
    (total > 0.0).then(|| slopes.iter().map(|s| s / total).collect())
}

#[derive(Debug, Serialize)]
struct Row {
    policy: &'static str,
    phase: usize,
    share: u64,
    target: f64,
    achieved: f64,
    relative_error: f64,
    paper: Option<f64>,
    paper_relative_error: Option<f64>,
}

#[derive(Debug, Serialize)]
struct CycleRow {
    policy: &'static str,
    phase: usize,
    group: String,
    cycles: u64,
    error_median: f64,
    error_mean: f64,
    error_max: f64,
}

/// The three runs: each group begins with its phase, all end together.
fn specs(policy: &'static str, phases: &[f64; 3], cpu: u32) -> Vec<RunSpec> {
    let spec = |(i, shares): (usize, &[u64; 3])| {
        let (delay, seconds) = (phases[..i].iter().sum(), phases[i..].iter().sum());
        let name = format!("{shares:?}, {policy}");
        RunSpec { delay, cpus: vec![cpu], ..RunSpec::spin(name, shares, gate(policy, 10), seconds) }
    };
    GROUPS.iter().enumerate().map(spec).collect()
}

/// The part of the page.
pub(in crate::paper) fn run(s: &mut Experiment) -> Result<()> {
    let phases = s.pick([2.5, 2.5, 5.0], [6.0, 6.0, 12.0]);
    let (mut rows, mut cycle_rows) = (Vec::new(), Vec::new());
    let mut shown = None;
    for policy in ["alps", "exact"] {
        let specs = specs(policy, &phases, s.cpu());
        let runs = s.bench.run_together(&format!("three schedulers at once, {policy}"), &specs)?;
        tell(policy, &runs, &mut rows, &mut cycle_rows);
        shown = Some(runs);
    }
    s.page.heading("Several schedulers at once (section 5.1, Fig. 10, Table 3)");
    s.page.text(&format!(
        "Three processes that know nothing of each other divide what one CPU gives them: {{7, 8, 9}} from the start, {{4, 5, 6}} \
         from {} s, {{1, 2, 3}} from {} s, all until {} s. Fractions are of the group's CPU time in that phase, by linear \
         regression as in the paper; %.",
        phases[0], phases[0] + phases[1], phases.iter().sum::<f64>()
    ));
    let optional = |v: Option<f64>| v.map_or_else(|| "-".to_owned(), number);
    let table: Vec<Vec<String>> = rows
        .iter()
        .map(|r: &Row| {
            let ratio =
                r.paper_relative_error.filter(|&p| p > 0.0).map(|p| r.relative_error.abs() * 100.0 / p);
            vec![
                r.policy.to_owned(),
                r.phase.to_string(),
                r.share.to_string(),
                format!("{:.2}", r.target * 100.0),
                optional(r.paper),
                optional(r.paper_relative_error),
                format!("{:.3}", r.achieved * 100.0),
                percent(r.relative_error.abs()),
                optional(ratio),
            ]
        })
        .collect();
    s.page.table(
        "policy | phase | share | target | paper | paper's error | ours | our error | \
         ratio of errors",
        &table,
    );
    s.page.text("Error per cycle in each phase (RMS over the three clients), %:");
    let table: Vec<Vec<String>> = cycle_rows
        .iter()
        .map(|r: &CycleRow| {
            vec![
                r.policy.to_owned(),
                r.phase.to_string(),
                r.group.clone(),
                r.cycles.to_string(),
                percent(r.error_median),
                percent(r.error_mean),
                percent(r.error_max),
            ]
        })
        .collect();
    s.page.table("policy | phase | group | cycles | median | mean | max", &table);
    s.page.csv("groups", &rows)?;
    s.page.csv("groups-cycles", &cycle_rows)?;
    let medians = cycle_rows.iter().filter(|r| r.policy == "exact" && r.phase == 3).map(|r| r.error_median);
    let worst = worst(medians);
    s.page.goal(
        "three schedulers at once, worst group's median error per cycle",
        Limit::Most(0.5),
        worst * 100.0,
        "%",
    );
    // The paper's figure, over all clients and phases (section 5.1).
    let errors: Vec<f64> =
        rows.iter().filter(|r| r.policy == "exact").map(|r| r.relative_error.abs()).collect();
    let error = mean(&errors).unwrap_or(f64::NAN);
    s.page.goal("three schedulers at once, mean relative error", Limit::Most(0.93), error * 100.0, "%");
    shown.map_or(Ok(()), |runs| plot(s, &runs))
}

fn tell(policy: &'static str, runs: &[RunResult], rows: &mut Vec<Row>, cycle_rows: &mut Vec<CycleRow>) {
    let begin: Vec<u64> = runs.iter().map(|r| r.started_ns).collect();
    let end = runs.iter().map(|r| r.started_ns + r.wall_ns).min().unwrap_or(0);
    for phase in 0..GROUPS.len() {
        let to = begin.get(phase + 1).copied().unwrap_or(end);
        for (group, run) in runs.iter().enumerate().take(phase + 1) {
            let cycles = within(&run.snapshots, begin[phase], to);
            // A group's first cycles are its start-up; a phase's first cycle is partly of the phase before.
            let skip = if group == phase { 4.min(cycles.len() / 3) } else { 1.min(cycles.len()) };
            let cycles = &cycles[skip..];
            let e: Errors = errors(&cycle_errors(cycles, &run.targets, |_| true));
            cycle_rows.push(CycleRow {
                policy,
                phase: phase + 1,
                group: format!("{:?}", GROUPS[group]),
                cycles: e.count,
                error_median: e.median,
                error_mean: e.mean,
                error_max: e.max,
            });
            let Some(achieved) = by_slopes(cycles, GROUPS[group].len()) else { continue };
            for ((&share, &target), achieved) in GROUPS[group].iter().zip(&run.targets).zip(achieved) {
                let of_paper = paper(share, phase);
                rows.push(Row {
                    policy,
                    phase: phase + 1,
                    share,
                    target,
                    achieved,
                    relative_error: achieved / target - 1.0,
                    paper: of_paper,
                    paper_relative_error: of_paper.map(|p| (p / (target * 100.0) - 1.0).abs() * 100.0),
                });
            }
        }
    }
}

/// Fig. 10 with `exact`: cumulative CPU time of each client at the ends of its cycles.
fn plot(s: &mut Experiment, runs: &[RunResult]) -> Result<()> {
    let title = "Fig. 10 with exact: CPU time of each client, three schedulers";
    let mut plot = Plot::new(title, "real time, s", "CPU time, s");
    let zero = runs.iter().map(|r| r.started_ns).min().unwrap_or(0);
    for (group, run) in runs.iter().enumerate() {
        for (i, share) in GROUPS[group].iter().enumerate() {
            let points =
                run.snapshots.iter().map(|s| ((s.t_ns - zero) as f64 / 1e9, s.service_ns[i] as f64 / 1e9));
            plot.add(format!("share {share} of {:?}", GROUPS[group]), Style::Line, points.collect());
        }
    }
    s.page.plot("groups", &plot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_become_fractions() {
        let at = |t_ns, a, b| Snapshot { t_ns, service_ns: vec![a, b] };
        // An offset is no slope: 1 and 3 a unit of time.
        let snapshots = [at(10, 100, 0), at(20, 110, 30), at(30, 120, 60)];
        assert_eq!(by_slopes(&snapshots, 2).expect("three points"), [0.25, 0.75]);
        assert_eq!(by_slopes(&snapshots[..1], 2), None);
        assert_eq!(within(&snapshots, 15, 30).len(), 1);
    }

    #[test]
    fn the_papers_fractions_sum_to_one_in_each_phase() {
        for (phase, groups) in [(0, 1), (1, 2), (2, 3)] {
            for group in &GROUPS[..groups] {
                let sum: f64 = group.iter().filter_map(|&share| paper(share, phase)).sum();
                assert!((sum - 100.0).abs() < 0.15, "{group:?} in phase {phase}: {sum}");
            }
        }
        assert_eq!(paper(1, 1), None);
    }
}
