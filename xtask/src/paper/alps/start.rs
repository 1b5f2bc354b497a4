//! What `divvy share` itself costs: the time that it adds to a command, and its memory with 1,000 clients.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use divvy_linux::{Pid, ProcessRef, Signal, clock};
use divvy_policy::Nanos;
use serde::Serialize;

use crate::ci;
use crate::paper::Experiment;
use crate::paper::page::{Limit, number};
use crate::paper::stats::{median, quantile};

const CLIENTS: usize = 1000;

#[derive(Debug, Serialize)]
struct Row {
    what: &'static str,
    value: f64,
    unit: &'static str,
}

/// Where `divvy` is: in the directory that was named, or built.
pub(in crate::paper) fn divvy(programs: Option<&Path>) -> Result<PathBuf> {
    let Some(dir) = programs else { return build() };
    let divvy = dir.canonicalize().with_context(|| format!("find {}", dir.display()))?.join("divvy");
    ensure!(divvy.is_file(), "{}: no such program; cargo build --bin divvy", divvy.display());
    Ok(divvy)
}

/// Builds `divvy` and `divvyd` as users get them, and says where the former is; the other is beside it.
fn build() -> Result<PathBuf> {
    let root = ci::root();
    let status = ci::cargo(&root)
        .args(["build", "--release", "--quiet", "--bin", "divvy", "--bin", "divvyd"])
        .status();
    ensure!(status.context("start cargo")?.success(), "divvy and divvyd cannot be built");
    // Beside this program, which is in the same profile's directory.
    let own = std::env::current_exe()?;
    let divvy = own.parent().context("this program's directory")?.join("divvy");
    ensure!(divvy.is_file(), "{} was not built: run this by cargo xtask", divvy.display());
    Ok(divvy)
}

fn milliseconds(mut command: Command) -> Result<f64> {
    let begin = clock::now();
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status().context("start a command")?;
    let took = clock::now().since(begin).0 as f64 / 1e6;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(took)
}

/// A child that is ended whatever happens.
pub(in crate::paper) struct Guarded {
    child: Child,
    process: ProcessRef,
}

impl Guarded {
    /// Guards a child of ours.
    pub(in crate::paper) fn new(child: Child) -> Result<Self> {
        let pid = Pid::from_raw(child.id() as i32).context("a child's pid")?;
        Ok(Self { process: ProcessRef::open_child(pid)?, child })
    }

    /// Its pid.
    pub(in crate::paper) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SIGTERM lets it end its commands; what is gone needs none.
        let _ = self.process.signal(Signal::TERM);
        let _ = self.child.wait();
    }
}

/// A number of `/proc/PID/status` in kB, as MiB.
fn status_mib(text: &str, field: &str) -> Option<f64> {
    let line = text.lines().find_map(|l| l.strip_prefix(field)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok().map(|kb| kb / 1024.0)
}

fn status(pid: u32) -> Result<String> {
    let path = format!("/proc/{pid}/status");
    std::fs::read_to_string(&path).with_context(|| format!("read {path}"))
}

/// The child of `pid` that is called `name`.
fn child_called(pid: u32, name: &str) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    let called = |child: &u32| {
        std::fs::read_to_string(format!("/proc/{child}/comm")).is_ok_and(|c| c.trim_end() == name)
    };
    children.split_whitespace().filter_map(|c| c.parse().ok()).find(called)
}

/// Resident memory of the scheduler at its largest, its anonymous part, and those of the front end and the guardian, MiB.
#[derive(Clone, Copy, Debug)]
struct Memory {
    resident: f64,
    anonymous: f64,
    front: f64,
    guardian: f64,
}

/// The memory of a divvy that divides among [`CLIENTS`] commands.
fn memory(divvy: &Path, s: &Experiment) -> Result<Memory> {
    let mut tasks = String::new();
    for i in 0..CLIENTS {
        let _ = writeln!(tasks, "[[task]]\nname = \"{i}\"\nshare = 5\ncommand = [\"sleep\", \"1000\"]");
    }
    let file = std::env::temp_dir().join(format!("divvy-tasks-{}.toml", std::process::id()));
    std::fs::write(&file, tasks).with_context(|| format!("write {}", file.display()))?;
    let measured = memory_with(divvy, &file, s);
    std::fs::remove_file(&file).with_context(|| format!("remove {}", file.display()))?;
    measured
}

fn memory_with(divvy: &Path, tasks: &Path, s: &Experiment) -> Result<Memory> {
    let mut command = Command::new(divvy);
    let cpu = s.cpu().to_string();
    command.args(["share", "--quiet", "--for", "60s", "--grace", "1s", "--cpus", &cpu, "--file"]).arg(tasks);
    let child = command.stdin(Stdio::null()).spawn().context("start divvy")?;
    let mut running = Guarded::new(child)?;
    let id = wait_for_clients(&mut running, s)?;
    let (own, front) = (status(id)?, status(running.id())?);
    let guardian = child_called(id, "divvy-guardian").map(status).transpose()?;
    let field = |text: &str, name| status_mib(text, name).with_context(|| format!("{name} is missing"));
    Ok(Memory {
        resident: field(&own, "VmHWM")?,
        anonymous: field(&own, "RssAnon")?,
        front: field(&front, "RssAnon")?,
        guardian: guardian.map_or(Ok(0.0), |text| field(&text, "RssAnon"))?,
    })
}

/// The scheduler, once it has all its clients.
fn wait_for_clients(running: &mut Guarded, s: &Experiment) -> Result<u32> {
    let give_up = clock::now() + Nanos::from_secs(60);
    loop {
        s.bench.check()?;
        if let Some(id) = child_called(running.id(), "divvy-scheduler") {
            let path = format!("/proc/{id}/task/{id}/children");
            let children = std::fs::read_to_string(path).unwrap_or_default();
            if children.split_whitespace().count() > CLIENTS {
                clock::sleep(Nanos::from_secs(2)); // Some cycles.
                return Ok(id);
            }
        }
        if let Some(status) = running.child.try_wait()? {
            bail!("divvy with {CLIENTS} clients: {status}");
        }
        ensure!(clock::now() < give_up, "divvy did not start {CLIENTS} clients within a minute");
        clock::sleep(Nanos::from_millis(100));
    }
}

/// The part of the page.
pub(super) fn run(s: &mut Experiment) -> Result<()> {
    let divvy = divvy(s.programs.as_deref())?;
    eprintln!("start-up and memory");
    let times = s.pick(15, 30);
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..times {
        s.bench.check()?;
        let mut share = Command::new(&divvy);
        share.args(["share", "--quiet", "1:true"]);
        with.push(milliseconds(share)?);
        let mut plain = Command::new("sh");
        plain.args(["-c", "true"]);
        without.push(milliseconds(plain)?);
    }
    let (with_ms, without_ms) = (median(&with).unwrap_or(f64::NAN), median(&without).unwrap_or(f64::NAN));
    let p90 = quantile(&with, 0.9).unwrap_or(f64::NAN);
    let memory = memory(&divvy, s)?;
    let rows = [
        Row { what: "`divvy share 1:true`, median", value: with_ms, unit: "ms" },
        Row { what: "`divvy share 1:true`, 9 of 10 within", value: p90, unit: "ms" },
        Row { what: "`sh -c true`, median", value: without_ms, unit: "ms" },
        Row { what: "added by divvy, median", value: with_ms - without_ms, unit: "ms" },
        Row { what: "largest resident memory with 1,000 clients", value: memory.resident, unit: "MiB" },
        Row { what: "of it private to it at the end", value: memory.anonymous, unit: "MiB" },
        Row { what: "the front end's private memory", value: memory.front, unit: "MiB" },
        Row { what: "the guardian's private memory", value: memory.guardian, unit: "MiB" },
    ];
    s.page.heading("Start-up and memory of `divvy share`");
    s.page.text(&format!("{times} starts of each, in turns. Not in the paper."));
    let table: Vec<Vec<String>> =
        rows.iter().map(|r| vec![r.what.to_owned(), format!("{} {}", number(r.value), r.unit)]).collect();
    s.page.table("what | ours", &table);
    s.page.csv("start", &rows)?;
    s.page.goal("start-up added to a command, median", Limit::Most(20.0), with_ms - without_ms, "ms");
    s.page.goal(
        "resident memory with 1,000 clients, guardian's included",
        Limit::Most(16.0),
        memory.resident + memory.guardian,
        "MiB",
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_mib() {
        let text = "Name:\tdivvy\nVmHWM:\t    4096 kB\nRssAnon:\t    1536 kB\n";
        assert_eq!(status_mib(text, "VmHWM"), Some(4.0));
        assert_eq!(status_mib(text, "RssAnon"), Some(1.5));
        assert_eq!(status_mib(text, "Vm"), None);
        assert!(status_mib(&status(std::process::id()).expect("own status"), "VmRSS").is_some());
    }
}
