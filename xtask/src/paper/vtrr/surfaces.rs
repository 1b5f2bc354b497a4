//! Figures 1 and 2: mean error ranges over random shares.

use anyhow::{Context as _, Result, anyhow};
use divvy_policy::dispatch::rng::SplitMix64;
use divvy_policy::dispatch::static_run::{Extremes, StaticRun, uniform_shares};
use serde::Serialize;

use crate::paper::areas::{Heat, HeatPanel};
use crate::paper::experiment::Experiment;
use crate::paper::page::{Limit, number};
use crate::paper::simulated::{Reproduces, Simulated, cpu_seconds, on_all_cpus};

const TOTALS: [u32; 5] = [128, 256, 512, 1024, 2048];
const CLIENTS: [usize; 8] = [2, 4, 6, 8, 10, 12, 14, 16];
const POLICIES: [&str; 3] = ["wrr", "wfq", "vtrr"];
const GOLDEN: &str = include_str!("../../../../golden/fig12_uniform.json");

/// Sums over assignments of one end of the error range, in quanta.
#[derive(Clone, Copy, Default)]
struct Sum {
    sum: f64,
    squares: f64,
}

impl Sum {
    fn add(&mut self, x: f64) {
        self.sum += x;
        self.squares += x * x;
    }

    /// Mean and standard error.
    fn mean(self, n: f64) -> (f64, f64) {
        let mean = self.sum / n;
        let variance = ((self.squares - n * mean * mean) / (n - 1.0).max(1.0)).max(0.0);
        (mean, (variance / n).sqrt())
    }
}

#[derive(Serialize)]
struct Row {
    clients: usize,
    total: u32,
    policy: &'static str,
    mean_min: f64,
    mean_max: f64,
    se_min: f64,
    se_max: f64,
    reference_min: f64,
    reference_max: f64,
    agrees: bool,
}

struct Pair {
    sums: [[Sum; 2]; 3],
    cpu: f64,
}

/// All assignments of one pair of numbers of clients and shares.
fn pair(clients: usize, total: u32, rounds: u32) -> Result<Pair> {
    let start = cpu_seconds();
    let mut rng = SplitMix64::new(u64::from(total) << 8 | clients as u64);
    let (mut run, mut shares) = (StaticRun::default(), vec![0u32; clients]);
    let mut sums = [[Sum::default(); 2]; 3];
    for _ in 0..rounds {
        uniform_shares(&mut rng, total, &mut shares);
        run.load(&shares).map_err(|e| anyhow!("{e}"))?;
        let ends: [Extremes; 3] = [run.wrr(), run.wfq(), run.vtrr()];
        for (sums, ends) in sums.iter_mut().zip(ends) {
            sums[0].add(ends.min as f64 / f64::from(total));
            sums[1].add(ends.max as f64 / f64::from(total));
        }
    }
    Ok(Pair { sums, cpu: cpu_seconds() - start })
}

/// Our means beside those of the reference.
fn rows(pairs: &[(usize, u32)], done: &[Pair], rounds: u32) -> Result<Vec<Row>> {
    let golden: serde_json::Value = serde_json::from_str(GOLDEN).context("golden/fig12_uniform.json")?;
    let mut rows = Vec::new();
    for (&(clients, total), pair) in pairs.iter().zip(done) {
        let of_pair = golden["rows"].as_array().and_then(|rows| {
            rows.iter()
                .find(|r| r["N"].as_u64() == Some(clients as u64) && r["S"].as_u64() == Some(total.into()))
        });
        let of_pair =
            of_pair.ok_or_else(|| anyhow!("golden/fig12_uniform.json has no ({clients}, {total})"))?;
        for (policy, sums) in POLICIES.into_iter().zip(pair.sums) {
            let reference = |at: usize| of_pair[policy][at].as_f64().unwrap_or(f64::NAN);
            let [(mean_min, se_min), (mean_max, se_max)] = sums.map(|sum| sum.mean(f64::from(rounds)));
            // Sums in floating point round where all values are equal.
            let close = |mean: f64, se: f64, at| {
                (mean - reference(at)).abs() <= 4.0 * se.hypot(reference(at + 2)) + 1e-9
            };
            rows.push(Row {
                clients,
                total,
                policy,
                mean_min,
                mean_max,
                se_min,
                se_max,
                reference_min: reference(0),
                reference_max: reference(1),
                agrees: close(mean_min, se_min, 0) && close(mean_max, se_max, 1),
            });
        }
    }
    Ok(rows)
}

/// The least and the greatest mean of a policy.
fn range(rows: &[Row], policy: &str) -> (f64, f64) {
    let of = rows.iter().filter(|row| row.policy == policy);
    of.fold((0.0, 0.0), |(low, high), row| (f64::min(low, row.mean_min), f64::max(high, row.mean_max)))
}

fn heat(rows: &[Row]) -> Heat {
    let cell = |policy: &str, total, clients, value: fn(&Row) -> f64| {
        let row = rows.iter().find(|r| r.policy == policy && r.total == total && r.clients == clients);
        row.map_or(f64::NAN, value)
    };
    type End = fn(&Row) -> f64;
    let ends: [(&str, End); 2] = [("least error", |r| r.mean_min), ("greatest error", |r| r.mean_max)];
    let panels = POLICIES.into_iter().flat_map(|policy| {
        ends.map(|(end, value)| HeatPanel {
            title: format!("{}: mean {end}, quanta", policy.to_uppercase()),
            cells: TOTALS.map(|total| CLIENTS.map(|n| cell(policy, total, n, value)).to_vec()).to_vec(),
        })
    });
    Heat {
        title: "Figures 1 and 2: mean error ranges by clients N and sum of shares S".to_owned(),
        columns: CLIENTS.map(|n| format!("N={n}")).to_vec(),
        rows: TOTALS.map(|s| format!("S={s}")).to_vec(),
        panels: panels.collect(),
    }
}

/// 40 pairs x 10,000 assignments x three policies.
pub(super) fn surfaces(study: &mut Experiment<Simulated>) -> Result<()> {
    let rounds = study.pick(1_000, 10_000);
    let pairs: Vec<(usize, u32)> = TOTALS.iter().flat_map(|&s| CLIENTS.map(|n| (n, s))).collect();
    let done = on_all_cpus("Figs 1, 2", &pairs, |&(clients, total)| pair(clients, total, rounds))?;
    let rows = rows(&pairs, &done, rounds)?;
    let cpu: f64 = done.iter().map(|pair| pair.cpu).sum();
    let decisions = 3 * u64::from(rounds) * pairs.iter().map(|&(_, total)| u64::from(total)).sum::<u64>();
    study.page.heading("Figures 1 and 2: error ranges over random shares");
    study.page.text(&format!(
        "{} pairs of N clients and S shares, {rounds} assignments each (uniform in (0, 1), scaled to S), three policies: \
         {decisions} decisions, counted as in the paper's study (WRR's turns are taken as a whole). They took {cpu:.2} s of CPU \
         time, {} million a second and core. \"Agrees\" is within four standard errors of `golden/fig12_uniform.json`, which was \
         computed by another program.",
        pairs.len(),
        number(decisions as f64 / cpu / 1e6)
    ));
    if rounds == 10_000 {
        study.page.goal("40 x 10,000 x three policies, CPU time", Limit::Most(6.0), cpu, "s");
    }
    let paper = [("wrr", -398.0, 479.0), ("wfq", -1.0, 2.0), ("vtrr", -3.8, 10.6)];
    let mut table = Vec::new();
    for (policy, low, high) in paper {
        let (ours_low, ours_high) = range(&rows, policy);
        let of: Vec<&Row> = rows.iter().filter(|row| row.policy == policy).collect();
        let agree = of.iter().filter(|row| row.agrees).count();
        // The paper prints two digits, and its own draws have noise.
        let near = |a: f64, b: f64| (a - b).abs() <= (0.02 * b.abs()).max(0.25);
        let same = near(ours_low, low) && near(ours_high, high);
        let (paper, ours) = (format!("{low} to {high}"), format!("{ours_low:.2} to {ours_high:.2}"));
        let upper = policy.to_uppercase();
        study.claim(
            &format!("Mean error range of {upper} (Figs 1, 2)"),
            &paper,
            &ours,
            Reproduces::when(same),
        );
        table.push(vec![upper, paper, ours, format!("{agree} of {}", of.len())]);
    }
    study
        .page
        .columns(&["policy", "paper, quanta", "ours, quanta", "pairs that agree with the reference"], &table);
    let agree = rows.iter().filter(|row| row.agrees).count();
    let least = rows.len() as f64;
    study.page.goal(
        "rows that agree with the reference within four standard errors",
        Limit::Least(least),
        agree as f64,
        "rows",
    );
    let heat = heat(&rows);
    study.page.picture("surfaces", &heat.title, |dir| heat.write(dir, "surfaces"))?;
    study.page.csv("surfaces", &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_has_its_standard_error() {
        let mut sum = Sum::default();
        [1.0, 2.0, 6.0].into_iter().for_each(|x| sum.add(x));
        // Variance 7, over 3 samples.
        let (mean, se) = sum.mean(3.0);
        assert!((mean - 3.0).abs() < 1e-12 && (se - (7.0_f64 / 3.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn a_small_study_agrees_with_the_reference() {
        let pairs = [(2, 128), (8, 128)];
        let done: Vec<Pair> = pairs.iter().map(|&(n, s)| pair(n, s, 300).expect("shares in range")).collect();
        let rows = rows(&pairs, &done, 300).expect("the reference has both");
        assert_eq!(rows.iter().filter(|row| row.agrees).count(), 6);
    }
}
