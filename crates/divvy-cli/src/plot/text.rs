//! A trace in a terminal: a table, and who was released when.

use divvy_engine::{ClientState, Timeline};
use divvy_policy::Nanos;

use super::{Window, cycle_errors, had, state_at_end};
use crate::share::table::{self, Row};
use crate::strip;

/// Cells of a strip.
const CELLS: u64 = 60;
/// Clients with a strip.
const STRIPS_MAX: usize = 40;

/// The window in lines.
pub(super) fn text(run: &Timeline, window: Window) -> Vec<String> {
    let gate = &run.header.gate;
    let plural = if gate.cpus == 1 { "" } else { "s" };
    let mut lines = vec![format!(
        "{:.3} s to {:.3} s on {} CPU{plural}, policy {}, quantum {} ms",
        window.from.since(run.start).as_secs_f64(),
        window.to.since(run.start).as_secs_f64(),
        gate.cpus,
        gate.policy,
        gate.quantum_ns as f64 / 1e6
    )];
    let rows = had(run, window).into_iter().enumerate().map(|(i, had)| Row {
        name: run.clients[i].name.clone(),
        share: run.clients[i].share.get(),
        limit: run.clients[i].limit,
        target: run.clients[i].target,
        achieved: had.achieved,
        error: had.error,
        state: state_at_end(run, i, window).as_str().to_owned(),
        cpu_ns: had.service.0,
    });
    lines.extend(table::lines(&rows.collect::<Vec<_>>(), false));
    lines.push(match cycle_errors(run, window) {
        Some((nr, [mean, median, max])) => format!(
            "error per cycle (RMS, {nr} cycles): median {:.3} %, mean {:.3} %, largest {:.2} %",
            median * 100.0,
            mean * 100.0,
            max * 100.0
        ),
        None => "error per cycle: no cycle counts".to_owned(),
    });
    lines.push(format!("released, each sign {:.1} ms:", window.length().as_secs_f64() * 1e3 / CELLS as f64));
    lines.extend(strips(run, window));
    lines
}

fn strips(run: &Timeline, window: Window) -> Vec<String> {
    let at = |cell: u64| {
        let ns = u128::from(window.length().0) * u128::from(cell) / u128::from(CELLS);
        window.from + Nanos(ns as u64)
    };
    let names = run.clients.iter().take(STRIPS_MAX).map(|c| strip::fit(&c.name, 16));
    let rows = run.clients.iter().zip(names).map(|(client, name)| {
        let cells = (0..CELLS).map(|cell| {
            let part = client.part_in(ClientState::Running, at(cell), at(cell + 1));
            strip::level(part, strip::Signs::Blocks)
        });
        format!("{name} {}", cells.collect::<String>()).trim_end().to_owned()
    });
    let mut lines: Vec<String> = rows.collect();
    if run.clients.len() > STRIPS_MAX {
        lines.push(format!("... and {} more", run.clients.len() - STRIPS_MAX));
    }
    lines
}
