//! Ten thousand processes in a hundred clients, most of which sleep.

use anyhow::Result;
use serde::Serialize;

use super::median_run;
use crate::crowd::{Crowd, Doing};
use crate::live::{ClientSpec, RunSpec, Snapshots, Work};
use crate::paper::page::{Limit, percent};
use crate::paper::{Experiment, gate};

/// Each client's share, as in the paper's runs with many clients (section 5.2).
const SHARE: u64 = 5;
/// Clients of which one process computes; all processes of the others sleep.
const BUSY: usize = 3;

#[derive(Debug, Serialize)]
struct Row {
    clients: usize,
    processes: usize,
    members: u64,
    idle: u64,
    overhead: f64,
    scans: f64,
    scans_per_second: f64,
    told_by_events: bool,
    reads_per_second: f64,
    signals_per_second: f64,
    error_median: f64,
    strangers: Option<f64>,
}

/// The part of the page.
pub(super) fn run(s: &mut Experiment) -> Result<()> {
    let seconds = s.pick(4.0, 20.0);
    let sizes: &[(usize, usize)] = s.pick(&[(10, 10), (10, 100)], &[(100, 1), (100, 10), (100, 100)]);
    let own = rustix::process::getuid().as_raw();
    let mut rows = Vec::new();
    for &(clients, each) in sizes {
        let crowd = |i: usize| {
            Crowd::start(
                own,
                Some(s.cpu()),
                Doing::Sleep(each + usize::from(i < BUSY), usize::from(i < BUSY)),
            )
        };
        let crowds: Vec<Crowd> = (0..clients).map(crowd).collect::<Result<_>>()?;
        let tree = |c: &Crowd| -> Result<ClientSpec> {
            Ok(ClientSpec { share: SHARE, work: Work::Tree { pid: c.pid()?.as_raw_pid() } })
        };
        let spec = RunSpec {
            clients: crowds.iter().map(tree).collect::<Result<_>>()?,
            cpus: vec![s.cpu()],
            snapshots: Snapshots::Never,
            ..RunSpec::spin(format!("{clients} clients of {each}"), &[], gate("exact", 10), seconds)
        };
        let run = median_run(s, "many processes", &spec, s.pick(1, 3))?;
        let wall = run.wall_ns as f64;
        rows.push(Row {
            clients,
            processes: clients * each + BUSY,
            members: run.scans.members,
            idle: run.scans.idle,
            overhead: run.overhead(),
            scans: run.scans.scan_ns as f64 / wall,
            scans_per_second: run.scans.scans as f64 * 1e9 / wall,
            told_by_events: run.scans.told,
            reads_per_second: run.reads as f64 * 1e9 / wall,
            signals_per_second: run.signals as f64 * 1e9 / wall,
            error_median: run.errors.unwrap_or_default().median,
            strangers: run.strangers,
        });
        s.page.strangers([run.strangers]);
    }
    s.page.heading("Ten thousand processes");
    s.page.text(&format!(
        "Clients of {SHARE} shares each at Q = 10 ms, each a tree of processes that sleep; {BUSY} of the clients have one more process, \
         which computes. In %, but for the counts.",
    ));
    let cell = |r: &Row| {
        vec![
            r.clients.to_string(),
            r.members.to_string(),
            r.idle.to_string(),
            percent(r.overhead),
            percent(r.scans),
            format!("{:.1}", r.scans_per_second),
            if r.told_by_events { "events, scans" } else { "scans" }.to_owned(),
            format!("{:.0}", r.reads_per_second),
            format!("{:.0}", r.signals_per_second),
            percent(r.error_median),
            r.strangers.map_or_else(|| "-".to_owned(), percent),
        ]
    };
    let table: Vec<Vec<String>> = rows.iter().map(cell).collect();
    s.page.table(
        "clients | members | of them idle | own CPU | of it scans | scans/s | told by | reads/s | signals/s | median error per \
         cycle | strangers",
        &table,
    );
    s.page.csv("many", &rows)?;
    if let Some(r) = rows.last() {
        let what = format!("{} processes in {} clients: own CPU, all in all", r.processes, r.clients);
        s.page.goal(what, Limit::Most(1.0), r.overhead * 100.0, "%");
    }
    Ok(())
}
