//! Clients of many processes: users (ALPS, section 5.3), thousands of processes, a storm of forks, schedulers that do not know
//! of each other (section 5.1), and requests to divvyd under load.

mod latency;
mod many;
mod storm;
mod users;

use anyhow::Result;

use super::{Experiment, alps};
use crate::PaperArgs;
use crate::live::{RunResult, RunSpec};

/// Runs the experiments and writes `OUT/groups.md`.
///
/// # Errors
/// The first run or file that fails; everything that was started has ended then.
pub(crate) fn run(args: &PaperArgs) -> Result<()> {
    let mut experiment: Experiment = Experiment::new(args, "groups")?;
    experiment.parts(&[
        ("users", users::run),
        ("many", many::run),
        ("storm", storm::run),
        ("schedulers", alps::groups::run),
        ("latency", latency::run),
    ])?;
    experiment.finish(
        "Clients of many processes",
        &[
            "Everything here ran before divvy came, and was attached. `exact` throughout, on one CPU; own CPU is that of scheduler \
             and guardian, in % of one CPU.",
            "What a client received is told twice: by divvy, and by the kernel's own books of its processes (CPU clocks, and \
             the time of children that were waited for, in ticks of 10 ms).",
        ],
    )
}

/// Makes a run once more than half, and keeps the one whose own CPU time is the median: one that a stranger disturbed is
/// not the one that counts.
fn median_run(s: &Experiment, what: &str, spec: &RunSpec, times: usize) -> Result<RunResult> {
    let mut runs = s.bench.run_all(what, &vec![spec.clone(); times])?;
    runs.sort_by(|a, b| a.overhead().total_cmp(&b.overhead()));
    Ok(runs.swap_remove(times / 2))
}

/// The same run, ended with the last whole cycle: what is left of one would count as an error.
fn in_whole_cycles(spec: RunSpec) -> RunSpec {
    let cycles = (spec.seconds / spec.cycle_seconds()).floor().max(1.0);
    // Where strangers take a part of the CPU, cycles take longer.
    RunSpec { cycles_max: Some(cycles as u64), seconds: 2.0 * spec.seconds, ..spec }
}

/// Each client's fraction of what all received.
fn fractions(service_ns: &[u64]) -> Vec<f64> {
    let all: u64 = service_ns.iter().sum();
    service_ns.iter().map(|&ns| ns as f64 / all.max(1) as f64).collect()
}

/// Each client's relative error: its fraction of all over its target, less one.
fn relative_errors(service_ns: &[u64], targets: &[f64]) -> Vec<f64> {
    fractions(service_ns).iter().zip(targets).map(|(got, due)| got / due - 1.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_relative_to_what_was_due() {
        let errors = relative_errors(&[110, 190, 300], &[1.0 / 6.0, 2.0 / 6.0, 0.5]);
        for (error, expected) in errors.iter().zip([0.1, -0.05, 0.0]) {
            assert!((error - expected).abs() < 1e-12, "{errors:?}");
        }
    }
}
