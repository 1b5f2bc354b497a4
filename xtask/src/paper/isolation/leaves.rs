//! Very many leaves: what it costs to follow what their clients are worth.

use anyhow::Result;

use super::super::Setting;
use super::super::page::{Limit, percent};
use super::super::stats::worst;
use super::Machine;
use super::inside::Leaves;

/// Clients of so many users, a quick run's and a full one's,
const CLIENTS: [[usize; 2]; 2] = [[2_000, 20], [100_000, 1_000]];
/// of which so many fall asleep or wake each second.
const CHANGES: [usize; 2] = [10, 100];
/// Of a CPU, %.
const CPU: f64 = 1.0;
/// Passes a second: one in 100 ms.
const PASSES: f64 = 10.0;
/// One more at either end of what is measured.
const ENDS: f64 = 1.0;

pub(super) fn leaves(s: &mut Setting) -> Result<()> {
    let [clients, users] = s.pick(CLIENTS[0], CLIENTS[1]);
    let seconds: u64 = s.pick(5, 60);
    let machine = Machine { two_cpus: false, shift: 0, memory_mib: s.pick(1024, 6144), add: &[] };
    let mut seen = Vec::new();
    for changes in s.pick(&CHANGES[..1], &CHANGES[..]) {
        let args = [seconds, clients as u64, users as u64, *changes as u64].map(|n| n.to_string());
        seen.push(machine.run::<Leaves>(s, "figleaves", &args)?);
    }
    s.page.heading("Very many leaves");
    s.page.text(&format!(
        "{clients} clients of {users} users, each with a cgroup of the kernel's and nobody in it (`cpu.weight`; Linux has at most 65535 \
         cgroups with the controller `memory`). Clients fall asleep and wake at random: whoever else is of the same user is worth \
         something else by it. The market's own thread works out what changed, and the scheduler's part of divvyd writes that, for {seconds} s. The \
         machine does a thousand million instructions a second.",
    ));
    let rows: Vec<Vec<String>> = seen
        .iter()
        .map(|of| {
            vec![
                of.changes.to_string(),
                format!("{:.0}", of.told),
                format!("{:.0}", of.written),
                format!("{:.1}", of.passes),
                percent(of.values),
                percent(of.writes),
                format!("{:.0}", of.late_ms[0]),
                format!("{:.0}", of.late_ms[1]),
            ]
        })
        .collect();
    s.page.table(
        "changes/s | values told/s | files written/s | times/s | to work values out, % of a CPU | to write them, % | from change to weight, \
         ms: mean | most",
        &rows,
    );
    s.page.goal(
        format!("{clients} leaves: CPU time for values and writes"),
        Limit::Most(CPU),
        worst(seen.iter().map(|of| (of.values + of.writes) * 100.0)),
        "% of a CPU",
    );
    s.page.goal(
        format!("{clients} leaves: how often is written"),
        Limit::Most(((PASSES + ENDS / seconds as f64) * 100.0).floor() / 100.0),
        worst(seen.iter().map(|of| of.passes)),
        "times a second",
    );
    Ok(())
}
