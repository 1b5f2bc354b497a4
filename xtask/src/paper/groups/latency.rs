//! How long divvyd takes to answer while its clients compute on every CPU.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use divvy_api::client::{Api, ApiError};
use divvy_api::types::{Change, NewClient, NewCommand};
use divvy_linux::clock;
use divvy_policy::Nanos;
use serde::Serialize;

use crate::client;
use crate::crowd::{Crowd, Doing};
use crate::paper::Experiment;
use crate::paper::alps::start::{Guarded, divvy};
use crate::paper::page::{Limit, number};
use crate::paper::stats::{quantile, worst};

/// Processes of the large client.
const CROWD: usize = 50;
/// A divvyd that does not serve by then does not come.
const START_WITHIN: Nanos = Nanos::from_secs(20);

#[derive(Debug, Serialize)]
struct Row {
    clients: String,
    request: &'static str,
    median_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

/// A divvyd of its own, in a directory of its own.
struct Daemon {
    api: Api,
    running: Guarded,
    dir: PathBuf,
}

impl Daemon {
    fn start(programs: Option<&Path>) -> Result<Self> {
        let divvyd = divvy(programs)?.with_file_name("divvyd");
        let dir = std::env::temp_dir().join(format!("divvy-latency-{}", std::process::id()));
        let child = Command::new(&divvyd)
            .args(["--user", "--linger", "forever"])
            .env("DIVVY_RUNTIME_DIR", &dir)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("start {}", divvyd.display()))?;
        let running = Guarded::new(child)?;
        let give_up = clock::now() + START_WITHIN;
        loop {
            match Api::connect(&dir.join("api.sock")) {
                Ok(api) => return Ok(Self { api, running, dir }),
                Err(e) => ensure!(clock::now() < give_up, "{}: {e}", divvyd.display()),
            }
            clock::sleep(Nanos::from_millis(10));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        for client in self.api.clients().map(|list| list.clients).unwrap_or_default() {
            // It began with divvyd, and ends with it.
            let _ = self.api.detach(&client.name);
        }
        // The directory is removed once the guard has waited for divvyd; what cannot be removed is small.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Asks `n` times, not in step with anything that repeats; what it took, ms.
fn times(n: usize, mut call: impl FnMut() -> Result<(), ApiError>) -> Result<Vec<f64>> {
    let mut times = Vec::with_capacity(n);
    for i in 0..n as u64 {
        clock::sleep(Nanos::from_micros(1000 + 37 * (i % 101)));
        let begin = clock::now();
        call()?;
        times.push(clock::now().since(begin).0 as f64 / 1e6);
    }
    Ok(times)
}

fn ask(api: &Api, clients: &str, n: usize, rows: &mut Vec<Row>) -> Result<()> {
    let first = api.clients()?.clients.into_iter().next().context("divvyd has no client")?;
    let change = || Change { share: Some(first.share), ..Change::default() };
    let mut note = |request, times: Vec<f64>| {
        let at = |q| quantile(&times, q).unwrap_or(f64::NAN);
        let row = Row {
            clients: clients.to_owned(),
            request,
            median_ms: at(0.5),
            p99_ms: at(0.99),
            max_ms: at(1.0),
        };
        rows.push(row);
    };
    note("status", times(n, || api.status().map(drop))?);
    note("list", times(n, || api.clients().map(drop))?);
    note("change a share", times(n, || api.change(&first.name, change()).map(drop))?);
    Ok(())
}

/// The part of the page.
pub(super) fn run(s: &mut Experiment) -> Result<()> {
    let n = s.pick(200, 1000);
    let cpus = s.bench.cpus().len();
    let daemon = Daemon::start(s.programs.as_deref())?;
    let own = std::env::current_exe().context("find this program")?.display().to_string();
    let mut rows = Vec::new();
    let spinners = 3 * cpus as u64;
    for share in 1..=spinners {
        let argv = vec![own.clone(), client::SPIN.to_owned(), daemon.running.id().to_string()];
        let command = Some(NewCommand { argv, ..NewCommand::default() });
        daemon.api.add(&NewClient { share, command, numbered: true, ..NewClient::default() })?;
    }
    ask(&daemon.api, &format!("{spinners} that compute"), n, &mut rows)?;
    let uid = rustix::process::getuid().as_raw();
    let crowd = Crowd::start(uid, None, Doing::Sleep(CROWD + 1, CROWD))?;
    let selector = Some(format!("tree:{}", crowd.pid()?));
    daemon.api.add(&NewClient { share: spinners, selector, ..NewClient::default() })?;
    ask(&daemon.api, &format!("these, and one of {CROWD} processes that compute"), n, &mut rows)?;
    let overhead = daemon.api.status()?.own.overhead;
    drop(daemon);
    drop(crowd);
    s.page.heading("Requests under load");
    s.page.text(&format!(
        "divvyd divides all {cpus} CPUs among clients that compute all the time, and is asked {n} times for each kind of \
         request by a process that competes with them like any other. The caller's own way to a CPU is in the times. divvyd \
         itself took {} % of one CPU.",
        number(overhead * 100.0)
    ));
    let cell = |r: &Row| {
        let times = [r.median_ms, r.p99_ms, r.max_ms].map(number);
        [r.clients.clone(), r.request.to_owned()].into_iter().chain(times).collect()
    };
    let table: Vec<Vec<String>> = rows.iter().map(cell).collect();
    s.page.table("clients | request | median, ms | 99th percentile, ms | longest, ms", &table);
    s.page.csv("latency", &rows)?;
    s.page.goal(
        "requests under load, worst 99th percentile",
        Limit::Most(10.0),
        worst(rows.iter().map(|r| r.p99_ms)),
        "ms",
    );
    Ok(())
}
