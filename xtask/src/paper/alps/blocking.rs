//! Clients that sleep: the paper's I/O experiment (section 4.3, Fig. 9), and harder ones.

use anyhow::Result;
use serde::Serialize;

use crate::live::{ClientSpec, RunResult, RunSpec, Snapshot, Snapshots, Work};
use crate::paper::page::{Limit, percent};
use crate::paper::plot::{Plot, Style};
use crate::paper::stats::{cycle_errors, errors, received, start_up, worst};
use crate::paper::{Experiment, gate};

/// The client that sleeps. It is the second, so that a gate's fixed order is the paper's.
const B: usize = 1;
const SHARES: [u64; 3] = [1, 2, 3];

/// What B did during a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum During {
    Asleep,
    Awake,
    Both,
}

/// Whether B slept through all, none, or part of the time from `from` to `to`. `sleeps` are in order.
fn during(from: u64, to: u64, sleeps: &[(u64, u64)]) -> During {
    let next = sleeps.partition_point(|&(_, end)| end <= from);
    match sleeps.get(next) {
        Some(&(begin, end)) if begin <= from && end >= to => During::Asleep,
        Some(&(begin, _)) if begin < to => During::Both,
        _ => During::Awake,
    }
}

/// What all cycles of one kind gave each client together, as fractions; `None` without such cycles.
fn fractions(snapshots: &[Snapshot], sleeps: &[(u64, u64)], kind: During) -> Option<Vec<f64>> {
    let mut sum = vec![0.0; SHARES.len()];
    for pair in snapshots.windows(2) {
        if during(pair[0].t_ns, pair[1].t_ns, sleeps) == kind {
            sum.iter_mut().zip(received(&pair[0], &pair[1])).for_each(|(s, got)| *s += got);
        }
    }
    let total: f64 = sum.iter().sum();
    (total > 0.0).then(|| sum.iter().map(|s| s / total).collect())
}

struct Case {
    name: &'static str,
    run_ms: u64,
    sleep_ms: u64,
}

const CASES: [Case; 4] = [
    Case { name: "Fig. 9: 80 ms on, 240 off", run_ms: 80, sleep_ms: 240 },
    Case { name: "2 ms on, 2 off", run_ms: 2, sleep_ms: 2 },
    Case { name: "5 ms on, 45 off", run_ms: 5, sleep_ms: 45 },
    Case { name: "asleep 90 %: 10 ms on, 90 off", run_ms: 10, sleep_ms: 90 },
];

#[derive(Debug, Serialize)]
struct Row {
    case: &'static str,
    policy: &'static str,
    cycles_counted: u64,
    error_median: f64,
    error_mean: f64,
    used: f64,
    a_asleep: Option<f64>,
    c_asleep: Option<f64>,
    a_awake: Option<f64>,
    b_awake: Option<f64>,
    c_awake: Option<f64>,
    overhead: f64,
    strangers: Option<f64>,
}

fn spec(case: &Case, policy: &'static str, seconds: f64) -> RunSpec {
    let work = Work::Io { run_ms: case.run_ms, sleep_ms: case.sleep_ms, log: true };
    let clients = SHARES.iter().enumerate();
    let clients =
        clients.map(|(i, &share)| ClientSpec { share, work: if i == B { work } else { Work::Spin } });
    RunSpec {
        clients: clients.collect(),
        snapshots: Snapshots::CyclesAudited,
        ..RunSpec::spin(format!("{}, {policy}", case.name), &SHARES, gate(policy, 10), seconds)
    }
}

fn row(case: &'static str, policy: &'static str, run: &RunResult) -> Row {
    let first = start_up(run.snapshots.len().saturating_sub(1));
    let snapshots = &run.snapshots[first.min(run.snapshots.len())..];
    let e = errors(&cycle_errors(snapshots, &run.targets, |i| i != B));
    let asleep = fractions(snapshots, &run.sleeps, During::Asleep);
    let awake = fractions(snapshots, &run.sleeps, During::Awake);
    let part = |f: &Option<Vec<f64>>, i: usize| f.as_ref().map(|f| f[i]);
    Row {
        case,
        policy,
        cycles_counted: e.count,
        error_median: e.median,
        error_mean: e.mean,
        used: run.used(),
        a_asleep: part(&asleep, 0),
        c_asleep: part(&asleep, 2),
        a_awake: part(&awake, 0),
        b_awake: part(&awake, 1),
        c_awake: part(&awake, 2),
        overhead: run.overhead(),
        strangers: run.strangers,
    }
}

/// The part of the page.
pub(super) fn run(s: &mut Experiment) -> Result<()> {
    let (long, short) = s.pick((6.0, 4.0), (20.0, 8.0));
    let mut cases = Vec::new();
    for case in &CASES {
        let is_paper = case.name.starts_with("Fig");
        if s.quick && !is_paper && case.run_ms == 5 {
            continue;
        }
        for policy in ["alps", "exact"] {
            if is_paper || !s.quick || policy == "exact" {
                cases.push((case, policy, spec(case, policy, if is_paper { long } else { short })));
            }
        }
    }
    let specs: Vec<RunSpec> = cases.iter().map(|c| c.2.clone()).collect();
    let runs = s.bench.run_all("clients that sleep", &specs)?;
    let rows: Vec<Row> = cases.iter().zip(&runs).map(|(c, r)| row(c.0.name, c.1, r)).collect();
    s.page.strangers(runs.iter().map(|r| r.strangers));
    s.page.heading("Clients that sleep (section 4.3, Fig. 9)");
    s.page.text(
        "A, B, C have shares 1, 2, 3 at Q = 10 ms; B computes and sleeps in turns. The paper's figure shows A:C at 25:75 % \
         while B sleeps and 16.7:33.3:50 % while it computes. Fractions are over the cycles through all of which B slept, or \
         never did; errors per cycle are of A and C, which always compute. All in %.",
    );
    let triple = |parts: &[Option<f64>]| {
        let parts: Option<Vec<String>> =
            parts.iter().map(|p| p.map(|p| format!("{:.2}", p * 100.0))).collect();
        parts.map_or_else(|| "no such cycle".to_owned(), |p| p.join(" : "))
    };
    let table: Vec<Vec<String>> = rows
        .iter()
        .zip(&runs)
        .map(|(r, run)| {
            let paper = if r.case.starts_with("Fig") { "25 : 75; 16.7 : 33.3 : 50" } else { "-" };
            vec![
                r.case.to_owned(),
                r.policy.to_owned(),
                paper.to_owned(),
                triple(&[r.a_asleep, r.c_asleep]),
                triple(&[r.a_awake, r.b_awake, r.c_awake]),
                r.cycles_counted.to_string(),
                percent(r.error_median),
                percent(r.error_mean),
                format!("{:.2}", r.used * 100.0),
                percent(r.overhead),
                run.strangers_text(),
            ]
        })
        .collect();
    s.page.table(
        "B | policy | paper | A : C, B asleep | A : B : C, B awake | cycles | \
         median error | mean error | CPU used | own CPU | strangers",
        &table,
    );
    s.page.csv("blocking", &rows)?;
    goals(s, &rows);
    for (case, run) in cases.iter().zip(&runs) {
        if case.0.name.starts_with("Fig") {
            plot(s, case.1, run)?;
        }
    }
    Ok(())
}

fn goals(s: &mut Experiment, rows: &[Row]) {
    for r in rows.iter().filter(|r| r.policy == "exact") {
        let paper = r.case.starts_with("Fig");
        if paper {
            let off = r.a_asleep.map_or(f64::NAN, |a| (a - 0.25).abs() * 100.0);
            s.page.goal(
                format!("{}: A:C from 25:75 while B sleeps", r.case),
                Limit::Most(0.2),
                off,
                "points",
            );
            let awake = [r.a_awake, r.b_awake, r.c_awake];
            let off = awake
                .iter()
                .zip(SHARES)
                .map(|(got, share)| got.map_or(f64::NAN, |got| (got - share as f64 / 6.0).abs() * 100.0));
            let off = worst(off);
            s.page.goal(format!("{}: from 1:2:3 while B computes", r.case), Limit::Most(0.2), off, "points");
        }
        s.page.goal(format!("{}: median error", r.case), Limit::Most(0.1), r.error_median * 100.0, "%");
        let least = if paper { 99.0 } else { 98.5 };
        s.page.goal(format!("{}: CPU used", r.case), Limit::Least(least), r.used * 100.0, "%");
    }
}

/// Fig. 9: each client's fraction of each cycle.
fn plot(s: &mut Experiment, policy: &str, run: &RunResult) -> Result<()> {
    let title =
        format!("Fig. 9 with {policy}: fraction of each cycle; B sleeps for 240 ms after 80 ms of CPU");
    let mut plot = Plot::new(title, "cycle", "CPU, %");
    let most = 100.min(run.snapshots.len().saturating_sub(1));
    let first = run.snapshots.len() - 1 - most;
    for (i, name) in ["A (1 share)", "B (2 shares)", "C (3 shares)"].iter().enumerate() {
        let points = run.snapshots[first..].windows(2).enumerate().map(|(cycle, pair)| {
            let got = received(&pair[0], &pair[1]);
            let total: f64 = got.iter().sum();
            ((first + cycle + 1) as f64, if total > 0.0 { got[i] / total * 100.0 } else { 0.0 })
        });
        plot.add(*name, Style::Line, points.collect());
    }
    s.page.plot(&format!("io-{policy}"), &plot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_are_told_apart_by_what_b_did() {
        let sleeps = [(100, 200), (300, 400)];
        let kinds = [(110, 190), (200, 300), (90, 110), (150, 250), (210, 350), (400, 900), (0, 100)];
        let found = kinds.map(|(from, to)| during(from, to, &sleeps));
        use During::{Asleep, Awake, Both};
        assert_eq!(found, [Asleep, Awake, Both, Both, Both, Awake, Awake]);
    }

    #[test]
    fn fractions_are_of_cycles_of_one_kind() {
        let at = |t_ns, service: [u64; 3]| Snapshot { t_ns, service_ns: service.to_vec() };
        // B sleeps from 100 to 200: the second cycle is asleep, the others are awake.
        let snapshots =
            [at(0, [0, 0, 0]), at(100, [10, 20, 30]), at(200, [20, 20, 60]), at(300, [30, 40, 90])];
        let sleeps = [(100, 200)];
        let asleep = fractions(&snapshots, &sleeps, During::Asleep).expect("one cycle");
        assert_eq!(asleep, [0.25, 0.0, 0.75]);
        let awake = fractions(&snapshots, &sleeps, During::Awake).expect("two cycles");
        assert!((awake[0] - 1.0 / 6.0).abs() < 1e-12 && (awake[2] - 0.5).abs() < 1e-12);
        assert_eq!(fractions(&snapshots, &sleeps, During::Both), None);
    }
}
