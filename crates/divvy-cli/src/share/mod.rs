//! `divvy share`: run commands and divide the CPU among them.

mod outlet;
pub(crate) mod report;
mod run;
mod screen;
pub(crate) mod table;
mod tasks;
mod trace;

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use divvy_engine::policies::GateSpec;
use divvy_linux::CpuMask;

pub(crate) use tasks::check_command;

use crate::args::ShareArgs;
use crate::{Code, Failure};

pub(crate) use trace::TraceFormat;

/// A cycle longer than this cannot be meant.
const CYCLE_MAX: Duration = Duration::from_secs(24 * 3600);

pub(crate) fn run(args: Box<ShareArgs>) -> Result<Code, Failure> {
    if args.time.is_some_and(|time| time.is_zero()) {
        return Err(Failure::new(Code::Usage, "--for 0s: no time at all; give more than 0, or leave it out"));
    }
    let tasks = tasks::all(&args.tasks, args.file.as_deref())?;
    let cpus = args.cpus.as_deref().map(parse_cpus).transpose()?;
    if let Some(cpus) = &cpus {
        divvy_linux::check_cpus(cpus)?;
    }
    // The policy's parameters are checked before anything is touched: for one CPU, as for any number.
    let spec = gate_spec(&args, 1);
    spec.make().map_err(|e| Failure::new(Code::Usage, e))?;
    check_options(&args)?;
    check_cycle(&args, &spec, &tasks)?;
    // What cannot be written later is better known before anything runs.
    let report = args.report.as_deref().map(create).transpose()?;
    let trace = args.trace.as_deref().map(create).transpose()?;
    run::Run::start(&args, tasks, cpus, trace)?.finish(report)
}

/// An option that the policy knows nothing of was meant for another.
fn check_options(args: &ShareArgs) -> Result<(), Failure> {
    let policy = args.policy.split(':').next().unwrap_or_default();
    let foreign = [
        ("--slice", args.slice.is_some(), "exact"),
        ("--presence", args.presence.is_some(), "exact"),
        ("--period", args.period.is_some(), "rate"),
    ];
    match foreign.iter().find(|(_, given, owner)| *given && *owner != policy) {
        None => Ok(()),
        Some((option, _, owner)) => {
            let text = format!("{option} is an option of --policy {owner}, not of {policy}; leave it out");
            Err(Failure::new(Code::Usage, text))
        }
    }
}

fn create(path: &Path) -> Result<(File, String), Failure> {
    let file = File::create(path);
    let file = file.map_err(|e| Failure::new(Code::File, format!("create {}: {e}", path.display())))?;
    Ok((file, path.display().to_string()))
}

/// `0,2-3` as a set of CPUs.
fn parse_cpus(list: &str) -> Result<CpuMask, Failure> {
    list.parse().map_err(|e| {
        let text = format!("--cpus {list}: {e}; write numbers and ranges, as in 0,2-3");
        Failure::new(Code::Usage, text)
    })
}

fn check_cycle(args: &ShareArgs, spec: &GateSpec, tasks: &[tasks::Task]) -> Result<(), Failure> {
    let Some(quantum) = spec.cycle_quantum().map_err(|e| Failure::new(Code::Usage, e))? else {
        return Ok(()); // Dispatchers know no cycle.
    };
    let quantum = Duration::from_nanos(quantum.0);
    let unit = if args.unscaled { 1 } else { tasks.iter().fold(0, |unit, t| gcd(unit, t.share.get())) };
    let quanta: u64 = tasks.iter().map(|t| t.share.get() / unit.max(1)).sum();
    let cycle = quantum.as_secs_f64() * quanta as f64;
    if cycle > CYCLE_MAX.as_secs_f64() {
        let text = format!(
            "shares of {quanta} in all at a quantum of {}: a cycle of {:.0} hours; use smaller shares or a shorter quantum",
            humantime::format_duration(quantum),
            cycle / 3600.0
        );
        return Err(Failure::new(Code::Usage, text));
    }
    Ok(())
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn gate_spec(args: &ShareArgs, cpus: u32) -> GateSpec {
    let default = GateSpec::default();
    GateSpec {
        policy: args.policy.clone(),
        quantum_ns: nanos(args.quantum),
        cpus,
        scale_shares: !args.unscaled,
        slice_ns: args.slice.map(nanos),
        share_ns: None,
        presence: args.presence.unwrap_or(default.presence),
        period_ns: args.period.map_or(default.period_ns, nanos),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        let cpus = |list| parse_cpus(list).map(|mask| mask.iter().collect::<Vec<_>>()).map_err(|f| f.text);
        assert_eq!(cpus("0,2-3"), Ok(vec![0, 2, 3]));
        assert_eq!(cpus("1"), Ok(vec![1]));
        let fix = "; write numbers and ranges, as in 0,2-3";
        assert_eq!(cpus("x"), Err(format!("--cpus x: 'x' is no CPU{fix}")));
        assert_eq!(cpus("3-2"), Err(format!("--cpus 3-2: the range 3-2 is empty{fix}")));
        assert_eq!(cpus("1,"), Err(format!("--cpus 1,: '' is no CPU{fix}")));
        assert_eq!(cpus("5000"), Err(format!("--cpus 5000: there is no CPU 5000{fix}")));
    }
}
