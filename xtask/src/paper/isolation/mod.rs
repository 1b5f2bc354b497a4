//! Isolation with Flexibility, sections 5.3 to 5.6: memory, disks and exchanges by tickets, enforced by the kernel in the test
//! machine.

mod book;
mod checks;
mod disk;
mod exchange;
mod inside;
mod leaves;
mod memory;
mod phone;
mod tasks;

use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::Setting;
use crate::PaperArgs;
pub(crate) use tasks::task;

/// The hidden subcommand that is one of the paper's tasks, or an experiment in the machine.
pub(crate) const TASK: &str = "isolation-task";

/// Runs the experiments in the machine and writes `OUT/isolation.md`.
///
/// # Errors
/// Where there is no machine, or an experiment fails in it.
pub(crate) fn run(args: &PaperArgs) -> Result<()> {
    let mut setting = Setting::new(args, "isolation")?;
    setting.parts(&[
        ("fig7", memory::fig7),
        ("fig8", disk::fig8),
        ("fig9-10", exchange::fig9),
        ("fig11", phone::fig11),
        ("checks", checks::checks),
        ("leaves", leaves::leaves),
    ])?;
    let mut preface = vec![
        "Written by `cargo xtask paper isolation`, each part alone with `--only fig7`, `fig8`, `fig9-10`, `fig11`, `checks`, `leaves`: `divvyd \
         --system --backend cgroup` in the test machine (`cargo xtask vm`), where the kernel gives effect to what the market \
         says. What becomes of which right is in [backends.md](../backends.md#memory-and-disks)."
            .to_owned(),
        "The machine has one CPU, as the paper's had, and counts time in instructions; its disks are in its memory and take \
         200 us for an operation by the same clock. So what comes of it depends neither on the machine that it runs on nor on how \
         busy that is, but for the rows that say that they are of two CPUs, or in real time."
            .to_owned(),
    ];
    preface.extend(setting.left_out());
    setting.conclude("Memory and disks by tickets", &preface)
}

/// A machine for an experiment.
struct Machine<'a> {
    /// Whether it has two CPUs, in real time, and a disk of 64 MiB that is one to divvyd.
    two_cpus: bool,
    /// Each step up halves its speed: 1 is 500 million instructions a second.
    shift: u8,
    memory_mib: u32,
    /// Files to put in.
    add: &'a [&'a std::path::Path],
}

impl Machine<'_> {
    /// Runs an experiment in the machine, and returns what it saw.
    fn run<T: serde::de::DeserializeOwned>(
        &self,
        s: &Setting,
        experiment: &str,
        args: &[String],
    ) -> Result<T> {
        // Gone with this value, however this ends.
        let out = tempfile::Builder::new().prefix("divvy-isolation-").tempdir();
        let out = out.context("create a directory for what comes out of the machine")?;
        let own = std::env::current_exe().context("find this program")?;
        let mut machine = Command::new(own);
        machine.args([
            "vm",
            "run",
            "--shift",
            &self.shift.to_string(),
            "--memory",
            &self.memory_mib.to_string(),
        ]);
        if self.two_cpus {
            machine.args(["--profile", "two-cpus", "--disk", "64"]);
        }
        machine.args(["--timeout", "1h", "--out"]).arg(out.path());
        let programs = s.programs.iter().map(|dir| (OsString::from("--programs"), dir.as_path()));
        let add = self.add.iter().map(|file| (OsString::from("--add"), *file));
        for (option, path) in programs.chain(add) {
            machine.arg(option).arg(path);
        }
        machine.args(["--", "xtask", TASK, experiment]).args(args);
        let done = s.bench.starter().status(&mut machine).context("start the machine")?;
        ensure!(done.success(), "{experiment} failed in the machine: {done}");
        let file = out.path().join(format!("{experiment}.json"));
        let text = std::fs::read(&file).with_context(|| format!("read {}", file.display()))?;
        Ok(serde_json::from_slice(&text)?)
    }
}
