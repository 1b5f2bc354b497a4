//! The papers' experiments: ALPS, superd and the market's over live processes, VTRR and PBS by simulation; groups of
//! processes; divvy beside its peers; and real programs.

pub(crate) mod alps;
mod areas;
pub(crate) mod cpus;
pub(crate) mod groups;
pub(crate) mod isolation;
pub(crate) mod kernel;
pub(crate) mod machine;
pub(crate) mod market;
mod page;
pub(crate) mod pbs;
pub(crate) mod peers;
mod plot;
mod png;
pub(crate) mod real;
mod sheet;
pub(crate) mod stats;
pub(crate) mod superd;
pub(crate) mod vtrr;

use anyhow::Result;
use divvy_engine::policies::GateSpec;
use divvy_linux::clock;
use divvy_policy::Instant;

use crate::PaperArgs;
use crate::live::Bench;
use machine::Machine;
use page::Page;

/// An experiment: makes its runs, and writes its part of the page.
type Part = fn(&mut Setting) -> Result<()>;

/// What every experiment has at hand.
struct Setting {
    bench: Bench,
    page: Page,
    quick: bool,
    only: Option<String>,
    programs: Option<std::path::PathBuf>,
    machine: Machine,
    started: Instant,
}

impl Setting {
    fn new(args: &PaperArgs, name: &str) -> Result<Self> {
        let bench = Bench::new(args.lanes)?;
        let machine = Machine::this(bench.cpus().len());
        let page = Page::new(&args.out, name)?;
        let (only, programs) = (args.only.clone(), args.programs.clone());
        Ok(Self { bench, page, quick: args.quick, only, programs, machine, started: clock::now() })
    }

    /// `quick` in a quick run, else `full`.
    fn pick<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Whether the part `name` was asked for.
    fn wants(&self, name: &str) -> bool {
        self.only.as_deref().is_none_or(|only| name.contains(only))
    }

    /// The first CPU: that of runs that share one.
    fn cpu(&self) -> u32 {
        self.bench.cpus().first().copied().unwrap_or(0)
    }

    /// Writes the page, and says so.
    fn finish(self, title: &str, preface: &[&str]) -> Result<()> {
        let took = clock::now().since(self.started).0 / 1_000_000_000;
        let mut lines = vec![
            format!("Machine: {}. The runs took {} min {} s.", self.machine.text(), took / 60, took % 60),
            "Medians say what the design does; means and maxima say what the day was like: a hypervisor that takes the CPU \
             away for some milliseconds spoils a cycle, and no counter shows it."
                .to_owned(),
            format!(
                "Runs on one CPU were made {} at a time, each pinned to a CPU of its own.",
                self.bench.lanes()
            ),
        ];
        lines.extend(preface.iter().map(|&l| l.to_owned()));
        if self.quick {
            lines.push(
                "**This is a quick run**: fewer and shorter runs than the goals are meant for.".to_owned(),
            );
        }
        if let Some(only) = &self.only {
            lines.push(format!("**Only the parts named `{only}` were run.**"));
        }
        let (met, goals) = self.page.write(title, &lines)?;
        eprintln!("{title}: {met} of {goals} goals met");
        Ok(())
    }
}

/// A gate on one CPU with the shares as they are given.
fn gate(policy: &str, quantum_ms: u64) -> GateSpec {
    GateSpec {
        policy: policy.to_owned(),
        quantum_ns: quantum_ms * 1_000_000,
        scale_shares: false,
        ..GateSpec::default()
    }
}
