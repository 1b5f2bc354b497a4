//! Processes that ran already, divided by a divvyd.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};
use divvy_api::client::Api;
use divvy_api::place::SOCKET;
use divvy_api::types::{Clients, NewClient};
use divvy_linux::{Pid, ProcessRef, Signal, clock};
use divvy_policy::Nanos;
use serde::Serialize;

use super::cases::{CPUS, Case, all};
use crate::live::{Crowd, Snapshot, arguments};
use crate::paper::Setting;
use crate::paper::machine::{Busy, busy};
use crate::paper::page::{Limit, percent};
use crate::paper::stats::{cycle_errors, errors, received, relative_errors, worst};

/// What this program is called where it is divvyd.
pub(crate) const DIVVYD: &str = "divvyd";
/// A divvyd serves, and ends, within this.
const PATIENCE: Nanos = Nanos::from_secs(20);
/// How long clients run before anything counts: members are known, widths found.
const START_UP: Nanos = Nanos::from_millis(1500);
/// The accounts are read this often: the cycles themselves are not told.
const WINDOW: Nanos = Nanos::from_millis(500);

/// A divvyd of this run's own, with a runtime directory of its own.
struct Daemon {
    child: Child,
    dir: PathBuf,
}

impl Daemon {
    fn start(cpus: &[u32]) -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("divvy-cpus-{}", std::process::id()));
        std::fs::DirBuilder::new().create(&dir).with_context(|| format!("create {}", dir.display()))?;
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(&dir, private)?;
        let list: Vec<String> = cpus.iter().map(u32::to_string).collect();
        let own = std::env::current_exe().context("find this program")?;
        let child = Command::new(own)
            .arg0(DIVVYD)
            .args(["--user", "--linger", "forever", "--cpus", &list.join(",")])
            .env("DIVVY_RUNTIME_DIR", &dir)
            .stdin(Stdio::null())
            .spawn()
            .context("start divvyd")?;
        Ok(Self { child, dir })
    }

    fn api(&self) -> Result<Api> {
        let give_up = clock::now() + PATIENCE;
        loop {
            match Api::connect(&self.dir.join(SOCKET)) {
                Ok(api) => return Ok(api),
                Err(e) if clock::now() > give_up => bail!("divvyd does not serve: {e}"),
                Err(_) => clock::sleep(Nanos::from_millis(20)),
            }
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let process = Pid::from_raw(self.child.id() as i32).map(ProcessRef::open_child);
        if let Some(Ok(process)) = process {
            // It resumes everybody; what cannot be signalled has ended.
            let _ = process.signal(Signal::TERM);
        }
        let give_up = clock::now() + PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) && clock::now() < give_up {
            clock::sleep(Nanos::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Processes that end with this.
struct Processes(Vec<Child>);

impl Processes {
    fn start(case: &Case) -> Result<Self> {
        let mut all = Self(Vec::new());
        for client in &case.clients {
            let words = arguments(client.work)?;
            let (program, rest) = words.split_first().context("a program")?;
            let child = Command::new(program).args(rest).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
            all.0.push(child.context("start a client")?);
        }
        Ok(all)
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

struct Run {
    snapshots: Vec<Snapshot>,
    idle: Option<Nanos>,
    own: Nanos,
    wall: Nanos,
}

fn snapshot(clients: &Clients) -> Snapshot {
    Snapshot { t_ns: clock::now().0, service_ns: clients.clients.iter().map(|c| c.service_ns).collect() }
}

fn run_case(case: &Case, cpus: &[u32], length: Nanos) -> Result<Run> {
    let daemon = Daemon::start(cpus)?;
    let api = daemon.api()?;
    // They end before the daemon does: whoever is held then is killed as well.
    let processes = Processes::start(case)?;
    for (client, process) in case.clients.iter().zip(&processes.0) {
        let selector = Some(format!("tree:{}", process.id()));
        api.add(&NewClient { share: client.share, selector, numbered: true, ..NewClient::default() })?;
    }
    let _crowd = case.strangers.map(|s| Crowd::start(s, cpus)).transpose()?;
    clock::sleep(START_UP);
    let (own, idle, begun): (_, Option<Busy>, _) = (api.status()?.own.cpu_ns, busy(cpus), clock::now());
    let mut snapshots = vec![snapshot(&api.clients()?)];
    while clock::now() < begun + length {
        clock::sleep(WINDOW);
        snapshots.push(snapshot(&api.clients()?));
        if snapshots.last().is_some_and(|s| s.service_ns.len() != case.clients.len()) {
            bail!("{}: a client was lost", case.name);
        }
    }
    let idle = idle.zip(busy(cpus)).map(|(before, now)| now.idle_since(before));
    let own = Nanos(api.status()?.own.cpu_ns.saturating_sub(own));
    Ok(Run { snapshots, idle, own, wall: clock::now().since(begun) })
}

#[derive(Debug, Serialize)]
struct Row {
    clients: &'static str,
    windows: u64,
    error_median: f64,
    error_mean: f64,
    long_run_error: f64,
    used_of_left: Option<f64>,
    overhead: f64,
}

fn row(case: &Case, run: &Run) -> Row {
    let targets = case.targets();
    let e = errors(&cycle_errors(&run.snapshots, &targets, |i| case.counts(i)));
    let ends = run.snapshots.first().zip(run.snapshots.last());
    let got = ends.map(|(first, last)| received(first, last)).unwrap_or_default();
    let used: f64 = got.iter().sum();
    let long_run = relative_errors(&got, &targets, |i| case.counts(i)).unwrap_or_default();
    Row {
        clients: case.name,
        windows: e.count,
        error_median: e.median,
        error_mean: e.mean,
        long_run_error: worst(long_run.iter().map(|e| e.abs())),
        used_of_left: run.idle.map(|idle| used / (used + run.own.0 as f64 + idle.0 as f64)),
        overhead: run.own.0 as f64 / run.wall.0 as f64,
    }
}

/// The part of the page; a machine with one CPU has none.
pub(super) fn run(s: &mut Setting) -> Result<()> {
    s.page.heading("Attached processes, by divvyd");
    let Some(cpus) = s.bench.cpus().get(..CPUS as usize).map(<[u32]>::to_vec) else {
        s.page.text("This machine has one CPU: not run.");
        return Ok(());
    };
    let names = ["1, 2, 3, 2", "1 (2 threads), 2 (3 processes), 3", "the same; all kinds of strangers"];
    let length = Nanos::from_secs(s.pick(2, 8));
    let mut rows = Vec::new();
    for case in all().into_iter().filter(|case| names.contains(&case.name)) {
        if s.quick && case.name != names[1] {
            continue;
        }
        s.bench.check()?;
        eprintln!("divvyd: {}: {} s", case.name, length.0 / 1_000_000_000);
        rows.push(row(&case, &run_case(&case, &cpus, length)?));
    }
    s.page.text(
        "The same clients, started first and attached with their trees (`divvy attach tree:PID`) to a divvyd. Its API tells no \
         cycles: errors are those of windows of half a second, which a cycle's end need not meet, so one of them may hold \
         a part of a cycle more or less. All in %.",
    );
    let table: Vec<Vec<String>> = rows
        .iter()
        .map(|r| {
            let used = r.used_of_left.map_or_else(|| "-".to_owned(), |u| format!("{:.1}", u * 100.0));
            let count = r.windows.to_string();
            let numbers = [r.error_median, r.error_mean, r.long_run_error].map(percent);
            [vec![r.clients.to_owned(), count], numbers.to_vec(), vec![used, percent(r.overhead)]].concat()
        })
        .collect();
    s.page.table("clients | windows | median error | mean | long run | used | own CPU", &table);
    s.page.csv("daemon", &rows)?;
    for r in &rows {
        let name = |what: &str| format!("divvyd: {}: {what}", r.clients);
        s.page.goal(name("long run"), Limit::Most(0.5), r.long_run_error * 100.0, "%");
        let used = r.used_of_left.map_or(f64::NAN, |u| u * 100.0);
        s.page.goal(name("used"), Limit::Least(98.0), used, "%");
    }
    Ok(())
}
