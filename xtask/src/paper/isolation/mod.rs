//! Isolation with Flexibility, section 5.4: disks by tickets, enforced by the kernel in the test machine.

mod inside;
mod tasks;

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;

use super::Setting;
use super::page::Limit;
use super::plot::{Legend, Plot, Style};
use crate::PaperArgs;
use inside::Seen;
pub(crate) use tasks::task;

/// The hidden subcommand that is one of the paper's tasks, or an experiment in the machine.
pub(crate) const TASK: &str = "isolation-task";
/// The machine's disk, MiB.
const DISK: &str = "128";

/// Runs the experiments in the machine and writes `OUT/isolation.md`.
///
/// # Errors
/// Where there is no machine, or an experiment fails in it.
pub(crate) fn run(args: &PaperArgs) -> Result<()> {
    let mut setting = Setting::new(args, "isolation")?;
    if setting.wants("fig8") {
        fig8(&mut setting)?;
    }
    let mut preface = vec![
        "Written by `cargo xtask paper isolation`: `divvyd --system --backend cgroup` in the test machine (`cargo xtask vm`, two \
         CPUs in software, in real time), where the kernel gives effect to what the market says. What becomes of which right \
         is in [backends.md](../backends.md#memory-and-disks)."
            .to_owned(),
    ];
    if setting.quick {
        preface
            .push("**This is a quick run**: fewer and shorter runs than the goals are meant for.".to_owned());
    }
    let title = "Memory and disks by tickets";
    let (met, goals) = setting.page.write(title, &preface)?;
    eprintln!("{title}: {met} of {goals} goals met");
    Ok(())
}

/// Runs an experiment in the machine, and returns what it saw.
fn in_machine(experiment: &str, seconds: u64) -> Result<Seen> {
    let out = std::env::temp_dir().join(format!("divvy-isolation-{}", std::process::id()));
    let own = std::env::current_exe().context("find this program")?;
    let mut machine = Command::new(own);
    machine.args(["vm", "run", "--profile", "two-cpus", "--disk", DISK, "--out"]).arg(&out);
    machine.args(["--", "xtask", TASK, experiment, &seconds.to_string()]);
    let done = machine.status().context("start the machine")?;
    ensure!(done.success(), "{experiment} failed in the machine: {done}");
    let file = out.join(format!("{experiment}.json"));
    let text = std::fs::read(&file).with_context(|| format!("read {}", file.display()));
    let _ = std::fs::remove_dir_all(&out);
    Ok(serde_json::from_slice(&text?)?)
}

#[derive(Debug, Serialize)]
struct Row {
    t_s: f64,
    task: usize,
    pages: u64,
}

/// Fig. 8: five readers of mapped files, of which one has half of the disk.
fn fig8(s: &mut Setting) -> Result<()> {
    let seconds = s.pick(10, 100);
    let seen = in_machine("fig8", seconds)?;
    let (time, last) = seen.rows.last().context("nothing was seen")?;
    let others: u64 = last[1..].iter().sum();
    let ratio = last[0] as f64 * 4.0 / others.max(1) as f64;
    let all: u64 = last.iter().sum();
    s.page.heading("Five readers, one with half of the disk (section 5.4, Fig. 8)");
    s.page.text(&format!(
        "Five tasks map 16 MB each and touch page after page, each with one request at a time. The first has 500 of the base's 1000 \
         hard disk tickets, the others one soft ticket each of their user's currency: an eighth each. iocost drives the disk at \
         {} operations a second. After {time:.0} s of ours, and when the first had read its file in the paper:",
        inside::IOPS
    ));
    let cells = |who: &str, paper: &str, pages: u64, due: f64| {
        let part = pages as f64 / all.max(1) as f64;
        vec![who.to_owned(), paper.to_owned(), pages.to_string(), format!("{due:.4}"), format!("{part:.4}")]
    };
    let mut rows = vec![cells("hard share of 50 %", "4096", last[0], 0.5)];
    rows.extend(last[1..].iter().map(|&pages| cells("soft", "about 1000", pages, 0.125)));
    s.page.table("task | pages, paper | pages, ours | part due | part of all", &rows);
    s.page.text(&format!(
        "The first made {ratio:.2} times as much progress as the others on average; in the paper 4.1 times."
    ));
    s.page.goal(
        "Fig. 8: how far the ratio of the first to the others is from 4",
        Limit::Most(5.0),
        (ratio / 4.0 - 1.0).abs() * 100.0,
        "%",
    );
    let furthest = last[1..].iter().map(|&pages| (pages as f64 * 4.0 / others.max(1) as f64 - 1.0).abs());
    s.page.goal(
        "Fig. 8: how far any of the others is from their mean",
        Limit::Most(5.0),
        furthest.fold(0.0, f64::max) * 100.0,
        "%",
    );
    let data: Vec<Row> = seen
        .rows
        .iter()
        .flat_map(|(t, counts)| counts.iter().enumerate().map(|(task, &pages)| Row { t_s: *t, task, pages }))
        .collect();
    s.page.csv("fig8", &data)?;
    let mut plot = Plot::new("Fig. 8: five readers, one with half of the disk", "time, s", "pages");
    plot.legend = Legend::Left;
    for task in 0..last.len() {
        let name = if task == 0 { "hard share of 50 %".to_owned() } else { format!("soft {task}") };
        plot.add(name, Style::Line, seen.rows.iter().map(|(t, n)| (*t, n[task] as f64)).collect());
    }
    s.page.plot("fig8", &plot)
}
