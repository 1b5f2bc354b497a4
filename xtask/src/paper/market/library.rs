//! What the library costs on its own, measured by a program of its crate.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use super::super::page::Limit;
use super::Experiment;
use crate::ci;

/// Goals of the project's plan: a fund or unfund with a read of a value that it changed, us; memory, bytes a ticket.
const MEDIAN_US_MAX: f64 = 20.0;
const BYTES_MAX: f64 = 200.0;

/// The example `measure` of divvy-market, with what stress runs printed that are kept beside the page (`stress-*.txt`).
pub(super) fn run(s: &mut Experiment) -> Result<()> {
    let part = s.page.data_dir().join("library.part");
    let part = std::path::absolute(&part)?;
    let mut stress: Vec<_> = fs::read_dir(s.page.data_dir())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("stress-")))
        .map(std::path::absolute)
        .collect::<std::io::Result<_>>()?;
    stress.sort();
    let mut command = ci::cargo(&ci::root());
    command.args(["run", "--quiet", "--release", "-p", "divvy-market", "--example", "measure", "--"]);
    let done = command.arg(&part).args(&stress).output().context("start cargo")?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "the example measure: {}: {}", done.status, said.trim());
    let text = fs::read_to_string(&part).with_context(|| format!("read {}", part.display()))?;
    fs::remove_file(&part)?;
    s.page.part(&text);
    let numbers = String::from_utf8_lossy(&done.stdout).into_owned();
    let number = |name: &str| -> Result<f64> {
        let line = numbers.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|n| n.trim().parse().ok()).with_context(|| format!("measure did not tell {name}"))
    };
    s.page.goal(
        "library: fund or unfund of 1,000,000 tickets, and a value it changed read, median at the worst depth",
        Limit::Most(MEDIAN_US_MAX),
        number("worst_median_us")?,
        "us",
    );
    s.page.goal("library: memory a ticket", Limit::Most(BYTES_MAX), number("bytes_a_ticket")?, "bytes");
    Ok(())
}
