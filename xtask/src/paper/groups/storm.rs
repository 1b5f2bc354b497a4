//! A client that makes a thousand short-lived children a second, beside one that computes.

use anyhow::Result;
use divvy_linux::clock;
use serde::Serialize;

use super::{in_whole_cycles, median_run, relative_errors};
use crate::crowd::{Crowd, Doing};
use crate::live::{ClientSpec, RunSpec, Work};
use crate::paper::page::{Limit, percent};
use crate::paper::stats::worst;
use crate::paper::{Experiment, gate};

/// Children a second.
const RATE: u64 = 1000;

#[derive(Debug, Serialize)]
struct Row {
    shares: String,
    children_per_second: f64,
    storm_error: f64,
    storm_booked_error: f64,
    error_median: f64,
    overhead: f64,
    scans: f64,
    reads_per_second: f64,
    strangers: Option<f64>,
}

/// The part of the page.
pub(super) fn run(s: &mut Experiment) -> Result<()> {
    let seconds = s.pick(4.0, 15.0);
    let times = s.pick(1, 3);
    let own = rustix::process::getuid().as_raw();
    let mut rows = Vec::new();
    for shares in s.pick(&[[1, 1]][..], &[[1, 1], [1, 2], [2, 1]]) {
        let mut storm = Crowd::start(own, Some(s.cpu()), Doing::Storm(RATE))?;
        let calm = Crowd::start(own, Some(s.cpu()), Doing::Sleep(2, 1))?;
        let tree = |share, crowd: &Crowd| -> Result<ClientSpec> {
            Ok(ClientSpec { share, work: Work::Tree { pid: crowd.pid()?.as_raw_pid() } })
        };
        let spec = in_whole_cycles(RunSpec {
            clients: vec![tree(shares[0], &storm)?, tree(shares[1], &calm)?],
            cpus: vec![s.cpu()],
            ..RunSpec::spin(format!("storm, {shares:?}"), &[], gate("exact", 10), seconds)
        });
        let (before, begun) = (storm.done()?, clock::now());
        let run = median_run(s, "fork storm", &spec, times)?;
        let rate = (storm.done()? - before) as f64 / clock::now().since(begun).as_secs_f64();
        let booked: Vec<u64> = run.booked_ns.iter().map(|b| b.unwrap_or_default()).collect();
        let wall = run.wall_ns as f64;
        rows.push(Row {
            shares: format!("{} : {}", shares[0], shares[1]),
            children_per_second: rate,
            storm_error: relative_errors(&run.service_ns, &run.targets)[0],
            storm_booked_error: relative_errors(&booked, &run.targets)[0],
            error_median: run.errors.unwrap_or_default().median,
            overhead: run.overhead(),
            scans: run.scans.scan_ns as f64 / wall,
            reads_per_second: run.reads as f64 * 1e9 / wall,
            strangers: run.strangers,
        });
        s.page.strangers([run.strangers]);
    }
    s.page.heading("A storm of forks");
    s.page.text(&format!(
        "A client that makes {RATE} children a second one after the other, each of which computes for 100 us and ends, and \
         computes itself in between; beside it one that computes. Q = 10 ms. In %.",
    ));
    let cell = |r: &Row| {
        vec![
            r.shares.clone(),
            format!("{:.0}", r.children_per_second),
            percent(r.storm_error.abs()),
            percent(r.storm_booked_error.abs()),
            percent(r.error_median),
            percent(r.overhead),
            percent(r.scans),
            format!("{:.0}", r.reads_per_second),
            r.strangers.map_or_else(|| "-".to_owned(), percent),
        ]
    };
    let table: Vec<Vec<String>> = rows.iter().map(cell).collect();
    s.page.table(
        "storm : other | children/s | storm's error | by the kernel's books | median error per cycle | own CPU | of it scans | \
         reads/s | strangers",
        &table,
    );
    s.page.csv("storm", &rows)?;
    let error = worst(rows.iter().flat_map(|r| [r.storm_error.abs(), r.storm_booked_error.abs()]));
    s.page.goal("fork storm: worst error of its fraction", Limit::Most(5.0), error * 100.0, "%");
    let overhead = worst(rows.iter().map(|r| r.overhead));
    s.page.goal("fork storm: own CPU", Limit::Most(5.0), overhead * 100.0, "%");
    Ok(())
}
