//! `divvy sim`: run a scenario and show what came out.

pub(crate) mod args;
pub(crate) mod compare;
mod picture;
pub(crate) mod policies;
mod source;
mod sweep;
mod table;
mod text;

use std::path::Path;

use divvy_sim::output::Report;

use self::args::{Csv, Plot, RunArgs, SimArgs, SimCommand};
use self::source::{Source, usage};
use crate::{Code, Failure, print, tell};

/// Runs that are kept for a picture or a trace.
const RUNS_KEPT: u32 = 1_000_000;

pub(crate) fn run(args: &SimArgs) -> Result<Code, Failure> {
    match &args.command {
        Some(SimCommand::Sweep(args)) => sweep::run(args),
        None => run_one(&args.run),
    }
}

fn run_one(args: &RunArgs) -> Result<Code, Failure> {
    let mut source = Source::new(&args.scenario, Some(&args.policy))?;
    let pictured = args.picture.svg.is_some() || args.picture.png.is_some();
    if pictured && args.plot == Plot::Surface {
        return Err(usage(
            "--plot surface shows a sweep over two keys: divvy sim sweep FILE --vary ... --vary ...",
        ));
    }
    if pictured || args.trace.is_some() || args.csv == Some(Csv::Runs) {
        let runs = &mut source.scenario.measure.runs;
        *runs = (*runs).max(RUNS_KEPT);
    }
    source.check_outputs(&args.picture, &args.trace)?;
    let scenario = &source.scenario;
    let report = divvy_sim::policies::run(scenario, scenario.seed, &source.files)
        .map_err(|error| source.sim_failure(error))?;
    if let Some(file) = &args.trace {
        write_trace(file, &report)?;
    }
    if pictured {
        picture::write(&args.picture, &picture::of_report(&report, args.plot)?)?;
    }
    match args.csv {
        _ if args.json => print(report.to_json())?,
        Some(Csv::Clients) => print(report.clients_csv().trim_end())?,
        Some(Csv::Runs) => print(report.runs_csv().trim_end())?,
        None => print(text::report(&report, &source::label(scenario.decider())).trim_end())?,
    }
    let points: usize = scenario.sweep.values().map(Vec::len).product();
    let nr_runs = points as u64 * u64::from(scenario.replications);
    if nr_runs > 1 {
        tell(format_args!(
            "divvy: the scenario describes {nr_runs} runs; this is one. divvy sim sweep does them all"
        ));
    }
    Ok(end_code(&report))
}

/// What a report's end is worth, told on standard error if the run was cut off.
fn end_code(report: &Report) -> Code {
    match text::cut_off(report) {
        None => Code::Done,
        Some(why) => {
            tell(format_args!("divvy: {why}"));
            Code::Failed
        }
    }
}

fn write_trace(file: &Path, report: &Report) -> Result<(), Failure> {
    let Some(timeline) = &report.timeline else {
        return Err(usage(format!("--trace: {} is a model, which has no runs", report.policy)));
    };
    write_file(file, report.to_chrome_trace().as_bytes())?;
    let kept = timeline.runs.len() as u64;
    if kept < timeline.nr_runs {
        tell(format_args!("divvy: {} holds the first {kept} of {} runs", file.display(), timeline.nr_runs));
    }
    Ok(())
}

fn write_file(file: &Path, bytes: &[u8]) -> Result<(), Failure> {
    std::fs::write(file, bytes).map_err(|error| crate::files::failed("write", file, &error))
}
