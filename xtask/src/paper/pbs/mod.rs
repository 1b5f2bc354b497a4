//! PBS, sections 3 and 4, side by side, simulated.

mod fluid;
mod groups;
mod theory;

use anyhow::{Result, anyhow};
use divvy_linux::clock;
use divvy_policy::dispatch::fcfs::{Fcfs, FcfsParams};
use divvy_policy::dispatch::fixed::{FIXED_BITS, Fixed};
use divvy_policy::dispatch::las::{Las, LasParams};
use divvy_policy::dispatch::linux22::{Linux22, Linux22Params};
use divvy_policy::dispatch::pbs::{Alpha, Guard, Inactive, Pbs, PbsParams, Sessions, Threshold};
use divvy_policy::dispatch::rr::{Rr, RrParams};
use divvy_sim::metrics::{Estimate, Welford};
use divvy_sim::output::Report;
use divvy_sim::rng::replication_seed;
use divvy_sim::scenario::{
    Format, Params, PolicyContext, PolicyError, PolicyFactory, PolicySpec, PolicyVisitor, Scenario,
};
use divvy_sim::simulate::simulate;
use serde_json::Value;

use super::sheet::{Sheet, cpu_seconds, on_all_cpus};
use crate::PaperArgs;

/// One part of the page.
type Part = fn(&mut Sheet) -> Result<()>;

/// Runs the experiments and writes `OUT/pbs.md`.
///
/// # Errors
/// The first experiment or file that fails.
pub(crate) fn run(args: &PaperArgs) -> Result<()> {
    let mut sheet = Sheet::new(args, "pbs")?;
    let parts: [(&str, Part); 7] = [
        ("figure-2", fluid::figure_2),
        ("figure-3", fluid::figure_3),
        ("properties", fluid::properties),
        ("group-a", groups::group_a),
        ("group-b", groups::group_b),
        ("group-c", groups::group_c),
        ("theory", theory::theory),
    ];
    for (name, part) in parts {
        if sheet.wants(name) {
            part(&mut sheet)?;
        }
    }
    sheet.finish(
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
        const KNOWN: [&str; 5] = ["fcfs", "rr", "las", "linux-2.2", "pbs"];
        let mut params = Params::new(&spec.params);
        let (quantum, cpus) = (context.quantum.nanos(), context.cpus);
        let alpha = params.number("alpha")?.unwrap_or(1.0);
        let beta = params.number("beta")?.unwrap_or(f64::INFINITY);
        params.finish()?;
        let refused = || PolicyError::unknown(&spec.name, &KNOWN);
        Ok(match spec.name.as_str() {
            "fcfs" => {
                visitor.visit(Fcfs::new(FcfsParams { cpus, ..FcfsParams::default() }).map_err(|_| refused())?)
            }
            "rr" => visitor
                .visit(Rr::new(RrParams { quantum, cpus, ..RrParams::default() }).map_err(|_| refused())?),
            "las" => visitor
                .visit(Las::new(LasParams { quantum, cpus, ..LasParams::default() }).map_err(|_| refused())?),
            "linux-2.2" => {
                let params = Linux22Params { cpus, ..Linux22Params::default() };
                visitor.visit(Linux22::new(params).map_err(|_| refused())?)
            }
            "pbs" => visitor.visit(Pbs::new(pbs_params(alpha, beta, quantum, cpus)).map_err(|_| refused())?),
            name => return Err(PolicyError::unknown(name, &KNOWN)),
        })
    }
}

fn fixed(x: f64) -> Fixed {
    Fixed((x * f64::from(2).powi(FIXED_BITS as i32)).round() as i64)
}

/// PBS with `alpha` and `beta`, whose sign is that of the paper: `-0.0` is no use and the same as 0.
fn pbs_params(alpha: f64, beta: f64, quantum: divvy_policy::Nanos, cpus: u32) -> PbsParams {
    let threshold =
        if beta.is_infinite() { Threshold::Never } else { Threshold::Multiple(fixed(beta.abs())) };
    let inactive = if beta < 0.0 { Inactive::Excluded } else { Inactive::Counted };
    let alpha = Alpha::Finite(fixed(alpha));
    let (guard, sessions) = (Guard::Study, Sessions { threshold, inactive });
    PbsParams { alpha, guard, quantum, sessions, cpus, ..PbsParams::default() }
}

/// What one point of an experiment came to, by replication.
struct Outcome {
    mean: Estimate,
    sd: f64,
    slowdown: Estimate,
    median: Estimate,
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
