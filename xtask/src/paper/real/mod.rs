//! Real programs, each beside one that computes: divvy, the kernel's weights and cpulimit in turns, judged by the kernel's
//! own books.

pub(in crate::paper) mod arena;
pub(in crate::paper) mod cgroups;
mod load;
mod outcome;
mod picture;
mod programs;
mod tables;
pub(super) mod trial;
mod work;

use anyhow::{Result, ensure};
use clap::Args as ClapArgs;
use divvy_policy::Nanos;
use serde::Serialize;

use super::stats::{median, quantile};
use super::{Setting, alps};
use crate::PaperArgs;
use arena::Arena;
use outcome::Outcome;
use programs::{Program, SLEEPING_SERVER};
use trial::{Spec, Tool, Trial};
pub(in crate::paper) use work::Word;
pub(crate) use work::{REAL, work};

/// The program's share, and that of the one that computes beside it.
const SHARES: [[u64; 2]; 3] = [[3, 1], [1, 1], [1, 3]];
/// The sleeping server among three that compute.
const FOUR: [u64; 4] = [1, 1, 1, 1];

/// A run in which strangers took more of the CPUs is made once more.
const MOST_STRANGERS: f64 = 0.04;

/// `cargo xtask paper real`.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct RealArgs {
    #[command(flatten)]
    paper: PaperArgs,
    /// How many CPUs are divided, 1 to one less than there are (all, if there is no other): the next one watches
    #[arg(long, value_name = "N", default_value_t = 1)]
    cpus: usize,
}

/// What one tool made of one program, over all runs; a row of the data. What is not known is not a number.
#[derive(Clone, Debug, Serialize)]
struct Row {
    program: &'static str,
    kind: &'static str,
    unit: &'static str,
    /// `3:1`, the program's share first; `1` where it is alone.
    shares: String,
    tool: &'static str,
    runs: usize,
    /// The program's part of the CPU time that all clients got.
    split: f64,
    /// The program's part of the CPUs.
    program_used: f64,
    /// What all clients used of the CPUs.
    used: f64,
    /// Units the program did a second.
    rate: f64,
    /// Counts a second of those that compute.
    hog_rate: f64,
    /// The tool's own CPU time, of one CPU.
    own: f64,
    wakeups: f64,
    cycles: f64,
    windows: f64,
    /// RMS relative error over the whole run, beyond what a cut cycle explains.
    long_error: f64,
    accounts: f64,
    p50_ms: f64,
    p99_ms: f64,
    left: usize,
    strangers: Option<f64>,
}

impl Row {
    fn new(program: &Program, shares: &[u64], tool: Tool, outcomes: &[Outcome]) -> Self {
        let middle = |value: &dyn Fn(&Outcome) -> f64| {
            let known: Vec<f64> = outcomes.iter().map(value).filter(|v| v.is_finite()).collect();
            median(&known).unwrap_or(f64::NAN)
        };
        let latencies: Vec<f64> = outcomes.iter().flat_map(|o| o.latencies.iter().copied()).collect();
        let strangers: Vec<f64> = outcomes.iter().filter_map(|o| o.strangers).collect();
        Self {
            program: program.name,
            kind: program.kind,
            unit: program.unit,
            shares: text(shares),
            tool: tool.name(),
            runs: outcomes.len(),
            split: middle(&Outcome::split),
            program_used: middle(&|o| o.used.first().copied().unwrap_or(f64::NAN)),
            used: middle(&Outcome::total),
            rate: middle(&|o| o.rate),
            hog_rate: middle(&|o| o.hog_rate),
            own: middle(&|o| o.own),
            wakeups: middle(&|o| o.wakeups),
            cycles: middle(&|o| o.cycles),
            windows: middle(&|o| o.windows),
            long_error: middle(&|o| o.long_error),
            accounts: outcomes.iter().map(|o| o.accounts).fold(f64::NAN, f64::max),
            p50_ms: quantile(&latencies, 0.5).unwrap_or(f64::NAN),
            p99_ms: quantile(&latencies, 0.99).unwrap_or(f64::NAN),
            left: outcomes.iter().map(|o| o.left).sum(),
            strangers: median(&strangers),
        }
    }
}

fn text(shares: &[u64]) -> String {
    shares.iter().map(u64::to_string).collect::<Vec<_>>().join(":")
}

/// What was measured, and what was not.
#[derive(Default)]
struct Results {
    /// CPUs that were divided.
    cpus: usize,
    rows: Vec<Row>,
    /// Programs that are not installed, or failed, and why.
    without: Vec<(&'static str, String)>,
    /// Where cpulimit failed, and how.
    failures: Vec<(String, String)>,
}

impl Results {
    fn row(&self, program: &str, shares: &str, tool: Tool) -> Option<&Row> {
        self.rows.iter().find(|r| r.program == program && r.shares == shares && r.tool == tool.name())
    }
}

/// How often, and how long.
#[derive(Clone, Copy)]
struct Times {
    repeats: usize,
    window: Nanos,
    /// For the server among three, whose 99th percentile needs many requests.
    long: Nanos,
}

/// Makes the runs and writes `OUT/real.md`, of N CPUs `OUT/real-N-cpus.md`.
///
/// # Errors
/// Where the kernel's books cannot be had, nothing is called as was asked, or a file cannot be written; everything that was
/// started has ended then. A program that fails is named on the page.
pub(crate) fn run(args: &RealArgs) -> Result<()> {
    let paper = PaperArgs { lanes: 1, only: None, ..args.paper.clone() };
    let divvy = alps::start::divvy(paper.programs.as_deref())?;
    let (name, title) = match args.cpus {
        1 => ("real".to_owned(), "Real programs".to_owned()),
        n => (format!("real-{n}-cpus"), format!("Real programs on {n} CPUs")),
    };
    let mut setting = Setting::new(&paper, &name)?;
    setting.only.clone_from(&args.paper.only);
    let chosen = chosen(args.paper.only.as_deref())?;
    let cpus = setting.bench.cpus().to_vec();
    let results = {
        let asked = setting.bench.asked();
        let arena = Arena::new(&cpus, args.cpus, divvy, asked)?;
        measure(&setting, &arena, &chosen)?
    };
    tables::write(&mut setting, &results, args.cpus)?;
    setting.finish(&title, &tables::preface(args.cpus))
}

/// The programs that were asked for: all, or those whose names contain one of the words between commas.
fn chosen(only: Option<&str>) -> Result<Vec<Program>> {
    let words: Vec<&str> = only.unwrap_or_default().split(',').map(str::trim).collect();
    let all = programs::all().into_iter();
    let chosen: Vec<Program> = all.filter(|p| words.iter().any(|word| p.name.contains(word))).collect();
    let names = || programs::all().iter().map(|p| p.name).collect::<Vec<_>>().join("; ");
    ensure!(!chosen.is_empty(), "no program is called so; there are: {}", names());
    Ok(chosen)
}

fn measure(setting: &Setting, arena: &Arena, chosen: &[Program]) -> Result<Results> {
    let ms = Nanos::from_millis;
    let times = setting.pick(
        Times { repeats: 1, window: ms(900), long: ms(3_000) },
        Times { repeats: 3, window: ms(2_600), long: ms(10_000) },
    );
    let mut results = Results { cpus: arena.cpus.len(), ..Results::default() };
    for (i, program) in chosen.iter().enumerate() {
        eprintln!("real: {} ({} of {})", program.name, i + 1, chosen.len());
        let missing = arena.missing(program);
        if !missing.is_empty() {
            results.without.push((program.name, format!("{} is not installed", missing.join(", "))));
            continue;
        }
        let measured = measure_one(arena, program, times, setting.quick, &mut results);
        setting.bench.check()?;
        match measured {
            Ok(rows) => results.rows.extend(rows),
            Err(e) => {
                eprintln!("real: {}: {e:#}", program.name);
                results.without.push((program.name, format!("it failed: {}", first_line(&e))));
            }
        }
    }
    Ok(results)
}

fn first_line(e: &anyhow::Error) -> String {
    format!("{e:#}").lines().next().unwrap_or_default().to_owned()
}

fn measure_one(
    arena: &Arena,
    program: &Program,
    times: Times,
    quick: bool,
    results: &mut Results,
) -> Result<Vec<Row>> {
    let inputs = &arena.prepare(program)?;
    let once = |shares: &[u64], tool, can_use, window: Nanos| {
        let window = Nanos(window.0 * program.longer);
        let spec = Spec { program, inputs, shares, tool, can_use, window };
        let mut outcome = Trial::run(arena, &spec);
        // A run that strangers disturbed says little; if they stay, the page says so.
        if outcome.as_ref().is_ok_and(|o| o.strangers.is_some_and(|part| part > MOST_STRANGERS)) {
            outcome = Trial::run(arena, &spec);
        }
        outcome.map_err(|e| e.context(format!("{}, {}", text(shares), tool.name())))
    };
    let alone = Row::new(program, &[1], Tool::Alone, &[once(&[1], Tool::Alone, None, times.window)?]);
    // On one CPU the share is due, whatever it is of what the program uses.
    let can_use = (arena.cpus.len() > 1).then_some(alone.program_used);
    let mut rows = vec![alone];
    if arena.cpus.len() > 1 {
        let beneath = once(&[1, 1], Tool::Beneath, None, times.window)?;
        rows.push(Row::new(program, &[1, 1], Tool::Beneath, &[beneath]));
    }
    let in_turns = |shares: &[u64], window| -> Result<[Row; 4]> {
        let (mut before, mut ours, mut after) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..times.repeats {
            before.push(once(shares, Tool::Weights, can_use, window)?);
            ours.push(once(shares, Tool::Divvy, can_use, window)?);
            after.push(once(shares, Tool::Weights, can_use, window)?);
        }
        let row = |tool, outcomes: &[Outcome]| Row::new(program, shares, tool, outcomes);
        let (first, last) = (row(Tool::Before, &before), row(Tool::After, &after));
        let theirs: Vec<Outcome> = before.into_iter().chain(after).collect();
        Ok([row(Tool::Divvy, &ours), row(Tool::Weights, &theirs), first, last])
    };
    let cpulimit = arena.has("cpulimit");
    for shares in SHARES {
        rows.extend(in_turns(&shares, times.window)?);
        // It knows limits only, so that 1:1 says nothing that the others do not.
        if cpulimit && (shares == [3, 1] || shares == [1, 3] && !quick) {
            match once(&shares, Tool::Cpulimit, can_use, times.window) {
                Ok(limited) => rows.push(Row::new(program, &shares, Tool::Cpulimit, &[limited])),
                // What it cannot do at all is an empty place in the table.
                Err(e) => {
                    (arena.check)()?;
                    let why = format!("{}", e.root_cause());
                    let why = why.split([';', '\n']).next().unwrap_or_default().to_owned();
                    results.failures.push((why, format!("{} at {}", program.name, text(&shares))));
                }
            }
        }
    }
    if program.name == SLEEPING_SERVER.name {
        rows.extend(in_turns(&FOUR, times.long)?);
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn programs_have_names_of_their_own() {
        let all = programs::all();
        let names: BTreeSet<&str> = all.iter().map(|p| p.name).collect();
        assert!(names.len() == all.len() && all.len() >= 30, "{names:?}");
        assert!(all.iter().all(|p| !p.run.is_empty() && !p.unit.is_empty() && !p.kind.is_empty()));
    }

    #[test]
    fn programs_are_chosen_by_parts_of_their_names() {
        let names = |only| chosen(Some(only)).map(|all| all.iter().map(|p| p.name).collect::<Vec<_>>());
        assert_eq!(names("gcc loop, dd conv").expect("two"), ["gcc loop", "dd conv=fsync"]);
        assert!(names("no such thing").is_err());
        assert_eq!(chosen(None).expect("all").len(), programs::all().len());
    }
}
