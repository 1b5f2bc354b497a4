//! An experiment: what was asked for, what its runs are made with, its page, and how that ends.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail};
use divvy_linux::clock;
use divvy_policy::Instant;

use super::machine::Machine;
use super::page::Page;
use crate::PaperArgs;
use crate::live::Bench;

/// What runs are made with, and what a page says of that.
pub(super) trait Testbed: Sized {
    /// As `args` ask for it.
    ///
    /// # Errors
    /// Where it cannot be had.
    fn new(args: &PaperArgs) -> Result<Self>;

    /// The paragraphs that the page begins with.
    fn before(&self, took: Took) -> Vec<String>;

    /// The last before the goals, if there is one.
    fn after(&self) -> Option<String> {
        None
    }
}

/// A page in the making, over live processes if nothing else is said. It is its [`Testbed`], too.
pub(super) struct Experiment<M = Live> {
    pub(super) page: Page,
    pub(super) quick: bool,
    pub(super) only: Option<String>,
    pub(super) programs: Option<PathBuf>,
    /// Whether parts were looked for, and whether any of them was asked for.
    looked_for: AtomicBool,
    found: AtomicBool,
    started: Instant,
    testbed: M,
}

/// A part of an experiment: makes its runs, and writes of them.
pub(super) type Part<M = Live> = fn(&mut Experiment<M>) -> Result<()>;

impl<M: Testbed> Experiment<M> {
    /// Begins the page `OUT/NAME.md`.
    ///
    /// # Errors
    /// Where its directory, or what the runs are made with, cannot be had.
    pub(super) fn new(args: &PaperArgs, name: &str) -> Result<Self> {
        let testbed = M::new(args)?;
        let page = Page::new(&args.out, name)?;
        let (only, programs) = (args.only.clone(), args.programs.clone());
        let (looked_for, found) = (AtomicBool::default(), AtomicBool::default());
        Ok(Self {
            page,
            quick: args.quick,
            only,
            programs,
            looked_for,
            found,
            started: clock::now(),
            testbed,
        })
    }

    /// `quick` in a quick run, else `full`.
    pub(super) fn pick<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Whether the part `name` was asked for, if not all are: by a part of its name, or one of several between commas.
    pub(super) fn wants(&self, name: &str) -> bool {
        let is_wanted =
            self.only.as_deref().is_none_or(|only| only.split(',').any(|only| name.contains(only)));
        self.looked_for.store(true, Ordering::Relaxed);
        self.found.fetch_or(is_wanted, Ordering::Relaxed);
        is_wanted
    }

    /// Carries out those parts that were asked for.
    ///
    /// # Errors
    /// That of the first that fails.
    pub(super) fn parts(&mut self, parts: &[(&str, Part<M>)]) -> Result<()> {
        parts.iter().try_for_each(|(name, part)| if self.wants(name) { part(self) } else { Ok(()) })
    }

    /// Writes the page: what its runs were made with, `preface`, what was left out, goals, parts.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub(super) fn finish(self, title: &str, preface: &[&str]) -> Result<()> {
        let mut lines = self.testbed.before(Took(clock::now().since(self.started).0 / 1_000_000_000));
        lines.extend(preface.iter().map(|&line| line.to_owned()));
        lines.extend(self.left_out());
        lines.extend(self.testbed.after());
        self.conclude(title, &lines)
    }

    /// As a preface says it: that the run was a quick one, that parts of it were not made.
    pub(super) fn left_out(&self) -> impl Iterator<Item = String> {
        let quick = "**This is a quick run**: fewer and shorter runs than the goals are meant for.";
        let only = self.only.as_ref().map(|only| format!("**Only the parts named `{only}` were run.**"));
        self.quick.then(|| quick.to_owned()).into_iter().chain(only)
    }

    /// Writes the page as it is after `preface`, and says on standard error how many goals were met.
    ///
    /// # Errors
    /// Where it cannot be written, or no part was asked for: the page of a full run may be there.
    pub(super) fn conclude(&self, title: &str, preface: &[String]) -> Result<()> {
        let is_none = self.looked_for.load(Ordering::Relaxed) && !self.found.load(Ordering::Relaxed);
        if let Some(only) = self.only.as_ref().filter(|_| is_none) {
            bail!("--only {only}: no part is called so; the page is left as it was");
        }
        let (met, goals) = self.page.write(title, preface)?;
        eprintln!("{title}: {met} of {goals} goals met");
        Ok(())
    }
}

impl<M> Deref for Experiment<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.testbed
    }
}

impl<M> DerefMut for Experiment<M> {
    fn deref_mut(&mut self) -> &mut M {
        &mut self.testbed
    }
}

/// For how long an experiment ran, in seconds: `3 min 20 s`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Took(u64);

impl fmt::Display for Took {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} min {} s", self.0 / 60, self.0 % 60)
    }
}

/// Live processes on this machine.
pub(super) struct Live {
    pub(super) bench: Bench,
    pub(super) machine: Machine,
}

impl Live {
    /// The first CPU: that of runs that share one.
    pub(super) fn cpu(&self) -> u32 {
        self.bench.cpus().first().copied().unwrap_or(0)
    }
}

impl Testbed for Live {
    fn new(args: &PaperArgs) -> Result<Self> {
        let bench = Bench::new(args.lanes)?;
        Ok(Self { machine: Machine::this(bench.cpus().len()), bench })
    }

    fn before(&self, took: Took) -> Vec<String> {
        vec![
            format!("Machine: {}. The runs took {took}.", self.machine.text()),
            "Medians say what the design does; means and maxima say what the day was like: a hypervisor that takes the CPU \
             away for some milliseconds spoils a cycle, and no counter shows it."
                .to_owned(),
            format!(
                "Runs on one CPU were made {} at a time, each pinned to a CPU of its own.",
                self.bench.lanes()
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::super::page::Limit;
    use super::*;

    struct Hand;

    impl Testbed for Hand {
        fn new(_: &PaperArgs) -> Result<Self> {
            Ok(Self)
        }

        fn before(&self, _: Took) -> Vec<String> {
            vec![format!("By hand, in {}.", Took(200))]
        }

        fn after(&self) -> Option<String> {
            Some("All of it.".to_owned())
        }
    }

    fn one(e: &mut Experiment<Hand>) -> Result<()> {
        e.page.heading("One");
        e.page.csv("one", &[[1, 2], [3, 4]])?;
        e.page.goal("little", Limit::Most(0.5), e.pick(1.0, 0.25), "%");
        Ok(())
    }

    fn two(_: &mut Experiment<Hand>) -> Result<()> {
        anyhow::bail!("two was not asked for")
    }

    #[test]
    fn a_page_has_what_was_asked_for_in_its_order() {
        let dir = tempfile::tempdir().expect("a directory");
        let out = dir.path().to_owned();
        let args = PaperArgs {
            out: out.clone(),
            quick: true,
            only: Some("one".into()),
            lanes: 1,
            programs: None,
            resume: false,
        };
        let mut experiment = Experiment::<Hand>::new(&args, "page").expect("a page");
        experiment.parts(&[("one", one), ("two", two)]).expect("the first alone");
        experiment.finish("Title", &["Why."]).expect("written");
        let mut none =
            Experiment::<Hand>::new(&PaperArgs { only: Some("four".into()), ..args.clone() }, "page")
                .expect("a page");
        none.parts(&[("one", one), ("two", two)]).expect("none");
        let error = none.finish("Title", &[]).expect_err("no such part");
        assert!(error.to_string().starts_with("--only four: no part is called so"), "{error}");
        let wants = |only: &str| {
            let args = PaperArgs { only: Some(only.into()), ..args.clone() };
            let some = Experiment::<Hand>::new(&args, "some").expect("a page");
            ["one", "two", "three"].map(|name| some.wants(name))
        };
        assert_eq!(wants("o"), [true, true, false]);
        assert_eq!(wants("one,three"), [true, false, true]);
        let page = "# Title\n\nBy hand, in 3 min 20 s.\n\nWhy.\n\n\
                    **This is a quick run**: fewer and shorter runs than the goals are meant for.\n\n\
                    **Only the parts named `one` were run.**\n\nAll of it.\n\n## Goals: 0 of 1 met\n\n\
                    | goal | limit | ours | met |\n|---|---|---|---|\n\
                    | little | at most 0.5 % | 1.00 % | **no** |\n\n## One\n\nData: [one.csv](page/one.csv)\n";
        assert_eq!(std::fs::read_to_string(out.join("page.md")).expect("a page"), page);
        assert_eq!(std::fs::read_to_string(out.join("page/one.csv")).expect("data"), "1,2\n3,4\n");
        let mut all = Experiment::<Hand>::new(&PaperArgs { only: None, ..args }, "page").expect("a page");
        assert!(all.parts(&[("one", one), ("two", two)]).is_err());
    }
}
