//! Three users, each with a server of 50 workers that has more requests than it can serve (ALPS, section 5.3).

use anyhow::Result;
use divvy_linux::clock;
use serde::Serialize;

use super::{fractions, in_whole_cycles, median_run, relative_errors};
use crate::crowd::{Crowd, Doing};
use crate::live::{ClientSpec, RunResult, RunSpec, Work};
use crate::paper::page::{Limit, number, percent};
use crate::paper::plot::{Plot, Style};
use crate::paper::stats::worst;
use crate::paper::{Experiment, gate};

/// The users' shares.
const SHARES: [u64; 3] = [1, 2, 3];
/// Workers of each.
const WORKERS: usize = 50;
/// Numbers of users whom nobody is.
const USERS: [u32; 3] = [64_001, 64_002, 64_003];
/// The paper's requests per second without a scheduler and with it, and its overhead in %.
const PAPER: ([u64; 3], [u64; 3], f64) = ([29, 30, 40], [18, 35, 53], 3.2);

#[derive(Debug, Serialize)]
struct Row {
    quantum_ms: u64,
    user: usize,
    share: u64,
    target: f64,
    achieved: f64,
    relative_error: f64,
    booked_relative_error: f64,
    requests_per_second: f64,
}

#[derive(Debug, Serialize)]
struct CostRow {
    quantum_ms: u64,
    cycles: u64,
    error_median: f64,
    error_mean: f64,
    used: f64,
    overhead: f64,
    scans: f64,
    wakeups_per_second: f64,
    reads_per_second: f64,
    signals_per_second: f64,
    skew_ms_max: f64,
    strangers: Option<f64>,
}

/// The users' servers, and how each is attached.
fn start(s: &Experiment) -> Result<Vec<(Crowd, Work)>> {
    let root = rustix::process::geteuid().is_root();
    let own = rustix::process::getuid().as_raw();
    let server = |&uid: &u32| {
        let crowd = Crowd::start(if root { uid } else { own }, Some(s.cpu()), Doing::Serve(WORKERS))?;
        let pid = crowd.pid()?.as_raw_pid();
        Ok((crowd, if root { Work::User { uid } } else { Work::Tree { pid } }))
    };
    USERS.iter().map(server).collect()
}

/// The part of the page.
pub(super) fn run(s: &mut Experiment) -> Result<()> {
    let seconds = s.pick(4.0, 20.0);
    let times = s.pick(1, 3);
    let (mut rows, mut costs, mut runs) = (Vec::new(), Vec::new(), Vec::new());
    let mut servers = start(s)?;
    let by_user = matches!(servers[0].1, Work::User { .. });
    let clients: Vec<ClientSpec> =
        SHARES.iter().zip(&servers).map(|(&share, &(_, work))| ClientSpec { share, work }).collect();
    for quantum_ms in [100, 10] {
        let name = format!("3 users with {WORKERS} processes, Q = {quantum_ms} ms");
        let spec = in_whole_cycles(RunSpec {
            clients: clients.clone(),
            cpus: vec![s.cpu()],
            ..RunSpec::spin(name, &[], gate("exact", quantum_ms), seconds)
        });
        let served = |servers: &mut Vec<(Crowd, Work)>| -> Result<Vec<u64>> {
            servers.iter_mut().map(|(crowd, _)| crowd.done()).collect()
        };
        let (before, begun) = (served(&mut servers)?, clock::now());
        let run = median_run(s, "users", &spec, times)?;
        let (done, span) = (served(&mut servers)?, clock::now().since(begun).as_secs_f64());
        let rates =
            done.iter().zip(&before).map(|(now, before)| (now - before) as f64 / span).collect::<Vec<_>>();
        add_rows(&mut rows, quantum_ms, &run, &rates);
        costs.push(cost(quantum_ms, &run));
        runs.push((quantum_ms, run));
    }
    drop(servers);
    s.page.strangers(runs.iter().map(|(_, r)| r.strangers));
    tell(s, &rows, &costs, by_user);
    s.page.csv("users", &rows)?;
    s.page.csv("users-cost", &costs)?;
    goals(s, &rows, &costs);
    runs.first().map_or(Ok(()), |(_, run)| plot(s, run))
}

/// What the page says: the paper's numbers and ours.
fn tell(s: &mut Experiment, rows: &[Row], costs: &[CostRow], by_user: bool) {
    s.page.heading("Three users with 50 processes each (section 5.3)");
    let (without, with, overhead) = PAPER;
    s.page.text(&format!(
        "Three {} with shares 1, 2, 3, each with a server of {WORKERS} workers that always has 325 requests: a worker computes \
         for 5 to 15 ms in all and waits for .5 to 3.5 ms in the middle, as for a database. The paper's Apache servers did \
         {without:?} requests a second without a scheduler and {with:?} with ALPS at Q = 100 ms, which took {overhead} % \
         of the CPU. At Q = 10 ms there are ten times the turns, and each is a signal to fifty processes \
         that compute: that is what it costs, and no goal was set for it. Fractions and errors in %.",
        if by_user { "users" } else { "trees of processes (only root can be three users)" }
    ));
    let cell = |r: &Row| {
        vec![
            r.quantum_ms.to_string(),
            r.share.to_string(),
            percent(r.target),
            percent(r.achieved),
            percent(r.relative_error.abs()),
            percent(r.booked_relative_error.abs()),
            number(r.requests_per_second),
        ]
    };
    let table: Vec<Vec<String>> = rows.iter().map(cell).collect();
    s.page.table(
        "Q, ms | share | target | achieved | error | error by the kernel's books | requests/s",
        &table,
    );
    let cell = |r: &CostRow| {
        vec![
            r.quantum_ms.to_string(),
            r.cycles.to_string(),
            percent(r.error_median),
            percent(r.error_mean),
            percent(r.used),
            percent(r.overhead),
            percent(r.scans),
            format!("{:.0}", r.wakeups_per_second),
            format!("{:.0}", r.reads_per_second),
            format!("{:.0}", r.signals_per_second),
            number(r.skew_ms_max),
            r.strangers.map_or_else(|| "-".to_owned(), percent),
        ]
    };
    let table: Vec<Vec<String>> = costs.iter().map(cell).collect();
    s.page.table(
        "Q, ms | cycles | median error per cycle | mean | CPU used | own CPU | of it scans | wake-ups/s | reads/s | signals/s | \
         longest skew of a stop, ms | strangers",
        &table,
    );
}

fn goals(s: &mut Experiment, rows: &[Row], costs: &[CostRow]) {
    let of_paper = || rows.iter().filter(|r| r.quantum_ms == 100);
    let error = worst(of_paper().flat_map(|r| [r.relative_error.abs(), r.booked_relative_error.abs()]));
    s.page.goal("3 users with 50 processes: worst error of a fraction", Limit::Most(2.0), error * 100.0, "%");
    let overhead = worst(costs.iter().filter(|c| c.quantum_ms == 100).map(|c| c.overhead));
    s.page.goal(
        "3 users with 50 processes at the paper's Q: own CPU",
        Limit::Most(0.5),
        overhead * 100.0,
        "%",
    );
}

fn add_rows(rows: &mut Vec<Row>, quantum_ms: u64, run: &RunResult, rates: &[f64]) {
    let booked: Vec<u64> = run.booked_ns.iter().map(|b| b.unwrap_or_default()).collect();
    let achieved = fractions(&run.service_ns);
    let errors = relative_errors(&run.service_ns, &run.targets);
    let booked = relative_errors(&booked, &run.targets);
    for (user, &share) in SHARES.iter().enumerate() {
        rows.push(Row {
            quantum_ms,
            user: user + 1,
            share,
            target: run.targets[user],
            achieved: achieved[user],
            relative_error: errors[user],
            booked_relative_error: booked[user],
            requests_per_second: rates[user],
        });
    }
}

fn cost(quantum_ms: u64, run: &RunResult) -> CostRow {
    let seconds = run.wall_ns as f64 / 1e9;
    let e = run.errors.unwrap_or_default();
    CostRow {
        quantum_ms,
        cycles: run.cycles,
        error_median: e.median,
        error_mean: e.mean,
        used: run.used(),
        overhead: run.overhead(),
        scans: run.scans.scan_ns as f64 / run.wall_ns as f64,
        wakeups_per_second: run.wakeups as f64 / seconds,
        reads_per_second: run.reads as f64 / seconds,
        signals_per_second: run.signals as f64 / seconds,
        skew_ms_max: run.scans.skew_ns_max as f64 / 1e6,
        strangers: run.strangers,
    }
}

/// CPU time of each user at the ends of cycles.
fn plot(s: &mut Experiment, run: &RunResult) -> Result<()> {
    let mut plot = Plot::new("CPU time of three users with 50 processes each", "real time, s", "CPU time, s");
    for (i, share) in SHARES.iter().enumerate() {
        let points = run
            .snapshots
            .iter()
            .map(|p| ((p.t_ns.saturating_sub(run.started_ns)) as f64 / 1e9, p.service_ns[i] as f64 / 1e9));
        plot.add(format!("share {share}"), Style::Line, points.collect());
    }
    s.page.plot("users", &plot)
}
