//! Groups A, B and C (section 4.2), simulated: response times by alpha and beta.

use anyhow::{Context as _, Result, anyhow};
use divvy_sim::scenario::{Format, Scenario};
use divvy_sim::simulate::simulate;
use serde::Serialize;
use serde_json::{Value, json};

use super::{Outcome, Policies, interval, outcomes};
use crate::paper::experiment::Experiment;
use crate::paper::page::{Limit, number};
use crate::paper::plot::{Axis, Plot, Style};
use crate::paper::simulated::{Reproduces, Simulated, cpu_seconds};

const GOLDEN: &str = include_str!("../../../../golden/group_a.json");
const ALPHAS: [f64; 14] = [0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0];
const BETAS: [(&str, f64); 5] =
    [("+inf", f64::INFINITY), ("-inf", f64::NEG_INFINITY), ("+3", 3.0), ("-3", -3.0), ("0", 0.0)];
const OTHERS: [&str; 3] = ["rr", "linux-2.2", "fcfs"];

#[derive(Serialize)]
struct Row {
    policy: &'static str,
    beta: Option<&'static str>,
    alpha: Option<f64>,
    mean: f64,
    half_width: f64,
    standard_error: f64,
    sd: f64,
    slowdown: f64,
    median: f64,
    reference: Option<f64>,
    agrees: Option<bool>,
}

/// All points of a group: PBS over its grid, then [`OTHERS`].
struct Grid {
    betas: Vec<(&'static str, f64)>,
    alphas: Vec<f64>,
    done: Vec<Outcome>,
}

impl Grid {
    fn run(
        name: &str,
        betas: &[(&'static str, f64)],
        alphas: &[f64],
        base: &Value,
        replications: u64,
    ) -> Result<Self> {
        let with = |policy: Value| {
            let mut scenario = base.clone();
            scenario["policy"] = policy;
            scenario
        };
        let pbs = |beta: f64, alpha: f64| {
            let beta =
                if beta.is_finite() { json!(beta) } else { json!(if beta > 0.0 { "inf" } else { "-inf" }) };
            with(json!({ "name": "pbs", "params": { "alpha": alpha, "beta": beta } }))
        };
        let grid = betas.iter().flat_map(|&(_, beta)| alphas.iter().map(move |&alpha| pbs(beta, alpha)));
        let scenarios: Vec<Value> = grid.chain(OTHERS.iter().map(|name| with(json!(name)))).collect();
        let done = outcomes(name, &scenarios, replications)?;
        Ok(Self { betas: betas.to_vec(), alphas: alphas.to_vec(), done })
    }

    fn at(&self, beta: usize, alpha: usize) -> &Outcome {
        &self.done[beta * self.alphas.len() + alpha]
    }

    fn other(&self, which: usize) -> &Outcome {
        &self.done[self.betas.len() * self.alphas.len() + which]
    }

    /// The range of `value` over the alphas below `below` of one beta.
    fn range(&self, beta: &str, below: f64, value: impl Fn(&Outcome) -> f64) -> (f64, f64) {
        let Some(b) = self.betas.iter().position(|(name, _)| *name == beta) else {
            return (f64::NAN, f64::NAN);
        };
        let points = self.alphas.iter().enumerate().filter(|(_, alpha)| **alpha < below);
        points
            .map(|(a, _)| value(self.at(b, a)))
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)))
    }

    fn rows(&self, golden: Option<&Value>) -> Vec<Row> {
        let row = |policy, beta, alpha, o: &Outcome| Row {
            policy,
            beta,
            alpha,
            mean: o.mean.mean,
            half_width: o.mean.half_width,
            standard_error: o.mean.standard_error,
            sd: o.sd,
            slowdown: o.slowdown.mean,
            median: o.median.mean,
            reference: None,
            agrees: None,
        };
        let mut rows = Vec::new();
        for (b, &(beta, _)) in self.betas.iter().enumerate() {
            for (a, &alpha) in self.alphas.iter().enumerate() {
                let mut row = row("pbs", Some(beta), Some(alpha), self.at(b, a));
                let of = golden.and_then(|golden| {
                    let rows = golden["rows"].as_array()?;
                    rows.iter().find(|r| r["beta"] == beta && r["alpha"].as_f64() == Some(alpha))
                });
                if let Some((mean, se)) = of.and_then(|r| Some((r["mean"].as_f64()?, r["se"].as_f64()?))) {
                    row.reference = Some(mean);
                    row.agrees = Some((row.mean - mean).abs() <= 4.0 * se.hypot(row.standard_error));
                }
                rows.push(row);
            }
        }
        rows.extend(OTHERS.iter().enumerate().map(|(at, name)| row(name, None, None, self.other(at))));
        rows
    }

    /// `value` over alpha, one line a beta, RR, Linux and FCFS as broken lines.
    fn plot(&self, title: &str, y: &str, value: impl Fn(&Outcome) -> f64) -> Plot {
        let mut plot = Plot::new(title, "alpha", y);
        plot.x_axis = Axis::Log;
        for (b, (beta, _)) in self.betas.iter().enumerate() {
            let points = self.alphas.iter().enumerate().map(|(a, &alpha)| (alpha, value(self.at(b, a))));
            plot.add(format!("PBS, beta = {beta}"), Style::Line, points.collect());
        }
        let ends = [self.alphas.first(), self.alphas.last()].map(|alpha| alpha.copied().unwrap_or(1.0));
        for (at, name) in OTHERS.iter().enumerate() {
            plot.add(*name, Style::Dashed, ends.map(|alpha| (alpha, value(self.other(at)))).to_vec());
        }
        plot
    }

    /// Mean response times, one row an alpha, one column a beta; then the others.
    fn table(&self, study: &mut Experiment<Simulated>, value: impl Fn(&Outcome) -> String) {
        let names: Vec<String> = self.betas.iter().map(|(beta, _)| format!("beta = {beta}")).collect();
        let head: Vec<&str> = std::iter::once("alpha").chain(names.iter().map(String::as_str)).collect();
        let line = |(a, alpha): (usize, &f64)| {
            let cells = (0..self.betas.len()).map(|b| value(self.at(b, a)));
            std::iter::once(alpha.to_string()).chain(cells).collect()
        };
        let table: Vec<Vec<String>> = self.alphas.iter().enumerate().map(line).collect();
        study.page.columns(&head, &table);
        let line = |(at, name): (usize, &&str)| vec![(*name).to_owned(), value(self.other(at))];
        let table: Vec<Vec<String>> = OTHERS.iter().enumerate().map(line).collect();
        study.page.columns(&["policy", "s"], &table);
    }
}

fn base_a(until: &str) -> Value {
    json!({
        "quantum": "4ms",
        "users": [{
            "count": 8,
            "think": { "exponential": { "mean": "25s" } },
            "segments": 6,
            "work": { "const": "500ms" },
            "gap": { "const": "10ms" }
        }],
        "run": { "until": until, "warmup": "400s", "cooldown": "100s", "resolution": "1us" }
    })
}

/// Group A under `policies`: four replications of 6000 s each.
///
/// # Errors
/// A policy that there is not.
pub(in crate::paper) fn group_a_outcomes(policies: &[Value]) -> Result<Vec<Outcome>> {
    let scenario = |policy: &Value| {
        let mut scenario = base_a("6000s");
        scenario["policy"] = policy.clone();
        scenario
    };
    outcomes("group A", &policies.iter().map(scenario).collect::<Vec<_>>(), 4)
}

/// Eight users, six stretches of half a second, 25 s of thinking (Fig. 7).
pub(super) fn group_a(study: &mut Experiment<Simulated>) -> Result<()> {
    let (replications, until) = study.pick((4, "3000s"), (10, "6000s"));
    let golden: Value = serde_json::from_str(GOLDEN).context("golden/group_a.json")?;
    let grid = Grid::run("group A", &BETAS, &ALPHAS, &base_a(until), replications)?;
    let rows = grid.rows(Some(&golden));
    let agree = rows.iter().filter(|row| row.agrees == Some(true)).count();
    let compared = rows.iter().filter(|row| row.agrees.is_some()).count();
    study.page.heading("Group A: a simple computational model (Fig. 7)");
    study.page.text(&format!(
        "Mean response times in s with intervals of 95 %; {replications} replications of {until} a point (the paper: one of \
         1200 s), the first 400 s and the last 100 s left out. {agree} of {compared} points agree within four standard errors \
         with `golden/group_a.json` (200,000 s a point, by another program)."
    ));
    study.page.goal(
        "points that agree with the reference",
        Limit::Least(compared as f64),
        agree as f64,
        "points",
    );
    grid.table(study, |o| interval(&o.mean));
    claims_a(study, &grid);
    let plot = grid.plot("Group A: mean response time", "mean response time, s", |o| o.mean.mean);
    study.page.plot("group-a", &plot)?;
    let plot = grid.plot("Group A: standard deviation of response times", "standard deviation, s", |o| o.sd);
    study.page.plot("group-a-sd", &plot)?;
    study.page.csv("group-a", &rows)?;
    speed(study)
}

/// What section 4.2.1 says.
fn claims_a(study: &mut Experiment<Simulated>, grid: &Grid) {
    let (rr, linux, fcfs) = (grid.other(0), grid.other(1), grid.other(2));
    let gain = |o: &Outcome| 100.0 * (rr.mean.mean - o.mean.mean) / (rr.mean.mean - 3.0);
    let text = |(low, high): (f64, f64)| format!("{low:.1} to {high:.1} %");
    let apart = (rr.mean.mean - linux.mean.mean).abs();
    let ours = format!("RR {}, Linux 2.2 {}", interval(&rr.mean), interval(&linux.mean));
    let same = match apart {
        a if a < 0.2 => Reproduces::Yes,
        a if a < rr.mean.half_width + linux.mean.half_width => Reproduces::Partly,
        _ => Reproduces::No,
    };
    study.claim("Group A: Linux is roughly as RR", "roughly the same", &ours, same);
    for (what, beta, below, low, high) in [
        ("beta = +inf", "+inf", f64::INFINITY, 10.0, 30.0),
        ("beta = -3, alpha < 0.5", "-3", 0.5, 30.0, 40.0),
        ("beta = 0, alpha < 1", "0", 1.0, 0.0, 10.0),
    ] {
        let range = grid.range(beta, below, gain);
        let reproduces = match range {
            // The ends are known to about 2 %.
            (least, most) if least >= low - 2.0 && most <= high + 2.0 => Reproduces::Yes,
            (least, _) if least > 0.0 => Reproduces::Partly,
            _ => Reproduces::No,
        };
        let paper = format!("{low:.0} to {high:.0} % less");
        study.claim(
            &format!("Group A: additional delay under {what} against RR"),
            &paper,
            &text(range),
            reproduces,
        );
    }
    study.page.text(&format!(
        "FCFS by the order in which users came, which the paper does not measure, gains {:.1} % of additional delay against RR.",
        gain(fcfs)
    ));
    for (beta, low, high) in [("+inf", 6.0, 7.0), ("-3", 4.0, 5.0), ("0", 3.3, 3.7)] {
        // The paper does not say over which alphas.
        let (least, most) = grid.range(beta, f64::INFINITY, |o| o.sd);
        let reproduces = match (least, most) {
            (least, most) if least >= low - 0.15 && most <= high + 0.15 => Reproduces::Yes,
            (least, most) if least <= high && most >= low => Reproduces::Partly,
            _ => Reproduces::No,
        };
        let what = format!("Group A: standard deviation, beta = {beta}");
        study.claim(&what, &format!("{low} to {high} s"), &format!("{least:.2} to {most:.2} s"), reproduces);
    }
    let near = (rr.sd - 3.6).abs() < 0.25 && (linux.sd - 3.7).abs() < 0.25;
    let ours = format!("RR {:.2} s, Linux 2.2 {:.2} s", rr.sd, linux.sd);
    study.claim("Group A: standard deviation, RR and Linux", "3.6 s, 3.7 s", &ours, Reproduces::when(near));
    let rises =
        grid.range("-3", 0.06, |o| o.mean.mean).1 < grid.range("-3", f64::INFINITY, |o| o.mean.mean).1 - 0.5;
    study.claim(
        "Group A: the mean rises with alpha under beta = -3",
        "significant",
        &format!("from {:.2} s", grid.range("-3", 0.03, |o| o.mean.mean).0),
        Reproduces::when(rises),
    );
}

/// Decisions a second of one core.
fn speed(study: &mut Experiment<Simulated>) -> Result<()> {
    let mut table = Vec::new();
    for (name, policy) in [
        ("RR", json!("rr")),
        ("PBS, alpha = 0.3", json!({ "name": "pbs", "params": { "alpha": 0.3 } })),
        ("PBS, alpha = 0.3, beta = -3", json!({ "name": "pbs", "params": { "alpha": 0.3, "beta": -3 } })),
    ] {
        let mut scenario = base_a("100000s");
        scenario["policy"] = policy;
        let scenario = Scenario::parse(&scenario.to_string(), Format::Json).map_err(|e| anyhow!("{e}"))?;
        let before = cpu_seconds();
        let report = simulate(&scenario, 1, &[], &Policies).map_err(|e| anyhow!("{e}"))?;
        let rate = report.operations.decisions as f64 / (cpu_seconds() - before) / 1e6;
        study.page.goal(
            format!("Group A under {name}, by CPU time of one core"),
            Limit::Least(20.0),
            rate,
            "million decisions/s",
        );
        table.push(vec![name.to_owned(), report.operations.decisions.to_string(), number(rate)]);
    }
    study.page.text("Speed of the simulation, 100,000 s of Group A:");
    study.page.columns(&["policy", "decisions", "million decisions a second of one core's CPU time"], &table);
    Ok(())
}

/// Users who think for `think_s` and then ask for sizes from `low_s` to a thousand times that, both in s.
fn base_b(users: usize, think_s: f64, low_s: f64, until: &str) -> Value {
    let us = |s: f64| format!("{:.0}us", s * 1e6);
    json!({
        "quantum": "4ms",
        "users": [{
            "count": users,
            "think": { "exponential": { "mean": us(think_s) } },
            "work": { "bounded-pareto": { "shape": 1.2, "low": us(low_s), "high": us(low_s * 1e3) } }
        }],
        "run": { "until": until, "warmup": "400s", "resolution": "1us" }
    })
}

/// Group B with these times under `policies`: four replications of 10,000 s each.
///
/// # Errors
/// A policy that there is not.
pub(in crate::paper) fn group_b_outcomes(
    users: usize,
    think_s: f64,
    low_s: f64,
    policies: &[Value],
) -> Result<Vec<Outcome>> {
    let scenario = |policy: &Value| {
        let mut scenario = base_b(users, think_s, low_s, "10000s");
        scenario["policy"] = policy.clone();
        scenario
    };
    outcomes("group B", &policies.iter().map(scenario).collect::<Vec<_>>(), 4)
}

/// A web server's requests with Pareto sizes (Fig. 8).
pub(super) fn group_b(study: &mut Experiment<Simulated>) -> Result<()> {
    let (replications, until) = study.pick((4, "2000s"), (10, "4000s"));
    let base = base_b(30, 10.0, 0.06, until);
    let alphas = [0.1, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0];
    let betas = [BETAS[0], BETAS[3], BETAS[4]];
    let grid = Grid::run("group B", &betas, &alphas, &base, replications)?;
    study.page.heading("Group B: a web service model (Fig. 8)");
    study.page.text(&format!(
        "30 clients, 10 s of thinking, Pareto sizes of index 1.2. The paper does not print the speed of its server: here sizes \
         are 60 ms to 60 s, a load of about 0.8. {replications} replications of {until} a point. Mean response times in s:"
    ));
    grid.table(study, |o| interval(&o.mean));
    study.page.text(
        "Small requests: the paper plots those below the mean size. The median response time stands for them here, because more \
         than half of the sizes are below the mean.",
    );
    grid.table(study, |o| interval(&o.median));
    // beta = 0, as beta = +inf with users that all join at 0 is the same for every alpha.
    let (rr, fifth) = (grid.other(0), grid.at(2, 6));
    let best = grid.range("0", f64::INFINITY, |o| o.mean.mean).0;
    let falls = fifth.mean.mean < grid.at(2, 0).mean.mean;
    study.claim(
        "Group B: a large alpha reduces the mean (beta = 0)",
        "beats RR and Linux",
        &format!(
            "alpha = 5: {}; alpha = 0.1: {}; RR {}",
            interval(&fifth.mean),
            interval(&grid.at(2, 0).mean),
            interval(&rr.mean)
        ),
        if falls && best < rr.mean.mean && fifth.mean.mean < rr.mean.mean {
            Reproduces::Yes
        } else if falls {
            Reproduces::Partly
        } else {
            Reproduces::No
        },
    );
    let small = fifth.median.mean <= grid.other(1).median.mean * 1.05;
    study.claim(
        "Group B: small requests, alpha > 2, as good as under Linux (beta = 0)",
        "as good",
        &format!(
            "median: alpha = 5 {:.3} s, Linux 2.2 {:.3} s",
            fifth.median.mean,
            grid.other(1).median.mean
        ),
        Reproduces::when(small),
    );
    study.page.plot(
        "group-b",
        &grid.plot("Group B: mean response time", "mean response time, s", |o| o.mean.mean),
    )?;
    let plot = grid.plot("Group B: median response time", "median response time, s", |o| o.median.mean);
    study.page.plot("group-b-small", &plot)?;
    study.page.csv("group-b", &grid.rows(None))
}

/// What stands for TPC-W (Fig. 9).
pub(super) fn group_c(study: &mut Experiment<Simulated>) -> Result<()> {
    let (replications, until) = study.pick((4, "2000s"), (10, "4000s"));
    let base = json!({
        "quantum": "4ms",
        "users": [{
            "count": 30,
            "think": { "exponential": { "mean": "7s" } },
            "segments": 4,
            "work": { "exponential": { "mean": "50ms" } },
            "gap": { "exponential": { "mean": "10ms" } }
        }],
        "run": { "until": until, "warmup": "600s", "cooldown": "300s", "resolution": "1us" }
    });
    let alphas = [0.1, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0];
    let betas = [BETAS[0], BETAS[3], BETAS[4]];
    let grid = Grid::run("group C", &betas, &alphas, &base, replications)?;
    study.page.heading("Group C: in place of TPC-W (Fig. 9)");
    study.page.text(&format!(
        "The paper runs a database, a servlet container and 30 clients with 7 s of thinking. A simulation has no database: here \
         a request is four exponential stretches of 50 ms with 10 ms between them, a load of about 0.85. It shows the trend \
         only. {replications} replications of {until} a point. Mean response times in s:"
    ));
    grid.table(study, |o| interval(&o.mean));
    let (rr, large, small) = (grid.other(0), grid.at(2, 7), grid.at(2, 0));
    let near = (large.mean.mean / rr.mean.mean - 1.0).abs();
    study.claim(
        "Group C: a large alpha is on the level of RR and Linux",
        "roughly",
        &format!("alpha = 10: {}, RR {}", interval(&large.mean), interval(&rr.mean)),
        if near < 0.1 { Reproduces::Yes } else { Reproduces::Partly },
    );
    let worse = small.mean.mean > rr.mean.mean + small.mean.half_width;
    study.claim(
        "Group C: worse for small alpha",
        "worse",
        &format!("alpha = 0.1, beta = 0: {}", interval(&small.mean)),
        Reproduces::when(worse),
    );
    study.page.plot(
        "group-c",
        &grid.plot("Group C: mean response time", "mean response time, s", |o| o.mean.mean),
    )?;
    study.page.csv("group-c", &grid.rows(None))
}
