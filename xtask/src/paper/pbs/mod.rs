//! PBS, sections 3 and 4, side by side, simulated.

mod fluid;
mod groups;
mod theory;

use anyhow::{Result, anyhow};
use divvy_linux::clock;
use divvy_sim::metrics::{Estimate, Welford};
use divvy_sim::output::Report;
use divvy_sim::rng::replication_seed;
use divvy_sim::scenario::{
    Format, PolicyContext, PolicyError, PolicyFactory, PolicySpec, PolicyVisitor, Scenario,
};
use divvy_sim::simulate::simulate;
use serde_json::Value;

pub(super) use groups::{group_a_outcomes, group_b_outcomes};

use super::experiment::Experiment;
use super::simulated::{Simulated, cpu_seconds, on_all_cpus};
use crate::PaperArgs;

/// One part of the page.
/// Runs the experiments and writes `OUT/pbs.md`.
///
/// # Errors
/// The first experiment or file that fails.
pub(crate) fn run(args: &PaperArgs) -> Result<()> {
    let mut study = Experiment::<Simulated>::new(args, "pbs")?;
    study.parts(&[
        ("figure-2", fluid::figure_2),
        ("figure-3", fluid::figure_3),
        ("properties", fluid::properties),
        ("group-a", groups::group_a),
        ("group-b", groups::group_b),
        ("group-c", groups::group_c),
        ("theory", theory::theory),
    ])?;
    study.finish(
        "PBS, side by side",
        &["Everything here is computed: Figures 2 and 3 by the exact fluid model, the rest by `divvy-sim` with the policies of \
           `divvy-policy`. The paper measured real systems; its Linux was 2.6.15, ours is the goodness rule of Linux 2.2. All \
           logarithms are to base 2."],
    )
}

/// Runs the scenario in `file` (JSON) and prints what it took and what came of it, as JSON.
///
/// # Errors
/// Where the file cannot be read, or the scenario cannot be run.
pub(crate) fn time_scenario(file: &std::path::Path) -> Result<()> {
    let text = std::fs::read_to_string(file).map_err(|e| anyhow!("read {}: {e}", file.display()))?;
    let scenario = Scenario::parse(&text, Format::Json).map_err(|e| anyhow!("{}: {e}", file.display()))?;
    let (start, cpu) = (clock::now(), cpu_seconds());
    let report = simulate(&scenario, scenario.seed, &[], &Policies).map_err(|e| anyhow!("{e}"))?;
    let (cpu, wall) = (cpu_seconds() - cpu, clock::now().since(start).as_secs_f64());
    let responses = report.responses.as_ref().ok_or_else(|| anyhow!("nobody asks for anything"))?;
    println!(
        "{}",
        serde_json::json!({
            "cpu_seconds": cpu,
            "wall_seconds": wall,
            "decisions": report.operations.decisions,
            "jobs": responses.count,
            "mean_response": responses.mean,
        })
    );
    Ok(())
}

/// The policies of these experiments, by name.
struct Policies;

impl PolicyFactory for Policies {
    fn with_policy<V: PolicyVisitor>(
        &self,
        spec: &PolicySpec,
        context: &PolicyContext,
        visitor: V,
    ) -> Result<V::Output, PolicyError> {
        // Any alpha, and ticks of 10 ms whatever the scenario's quantum is.
        let spec = match spec.name.as_str() {
            "pbs" => spec.clone().with("guard", "study"),
            "linux-2.2" => spec.clone().with("tick", "10ms"),
            _ => spec.clone(),
        };
        divvy_engine::policies::Policies.with_policy(&spec, context, visitor)
    }
}

/// What one point of an experiment came to, by replication.
pub(super) struct Outcome {
    pub(super) mean: Estimate,
    pub(super) sd: f64,
    slowdown: Estimate,
    pub(super) median: Estimate,
}

/// Runs `replications` of each scenario on all CPUs.
fn outcomes(name: &str, scenarios: &[Value], replications: u64) -> Result<Vec<Outcome>> {
    let read = |value: &Value| {
        Scenario::parse(&value.to_string(), Format::Json).map_err(|e| anyhow!("{name}: {e}: {value}"))
    };
    let scenarios = scenarios.iter().map(read).collect::<Result<Vec<Scenario>>>()?;
    let runs: Vec<(&Scenario, u64)> = scenarios
        .iter()
        .flat_map(|s| (0..replications).map(move |r| (s, replication_seed(s.seed, r))))
        .collect();
    let reports = on_all_cpus(name, &runs, |&(scenario, seed)| {
        simulate(scenario, seed, &[], &Policies).map_err(|e| anyhow!("{name}: {e}"))
    })?;
    reports.chunks(replications as usize).map(outcome).collect()
}

fn outcome(reports: &[Report]) -> Result<Outcome> {
    let [mut mean, mut sd, mut slowdown, mut median] = [Welford::default(); 4];
    for report in reports {
        let responses = report.responses.as_ref().ok_or_else(|| anyhow!("nobody asks for anything"))?;
        mean.push(responses.mean);
        sd.push(responses.sd);
        slowdown.push(responses.slowdown);
        median.push(responses.p50);
    }
    let (slowdown, median) = (slowdown.estimate(), median.estimate());
    Ok(Outcome { mean: mean.estimate(), sd: sd.estimate().mean, slowdown, median })
}

/// `7.19 +- 0.04`, the half width of the 95 % confidence interval.
fn interval(estimate: &Estimate) -> String {
    format!("{:.3} +- {:.3}", estimate.mean, estimate.half_width)
}
