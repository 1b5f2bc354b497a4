//! What a decision costs, by how many clients there are (VTRR, section 5.2), beside the kernel's own scheduler.

use anyhow::Result;
use divvy_sim::rng::SplitMix64;
use serde::Serialize;

use super::accuracy::short;
use super::{By, Seen, Spec, Study};
use crate::paper::Setting;
use crate::paper::page::{Limit, number};
use crate::paper::plot::{Axis, Plot, Style};

/// An instruction takes 2 ns.
const SHIFT: u32 = 1;
const CLIENTS: [usize; 4] = [1, 10, 100, 1_000];
/// One tick of the kernel: as many decisions as there can be.
const QUANTUM_MS: u64 = 4;
const WARM_MS: u64 = 200;
/// A thousand clients' decisions may take so many times as long as those of ten.
const MAX_GROWTH: f64 = 2.0;

#[derive(Serialize)]
struct Row {
    scheduler: String,
    clients: usize,
    switches: u64,
    /// Programs of sched_ext together, per decision; by the kernel's account of them.
    programs_us: Option<f64>,
    /// The program that chooses.
    dispatch_us: Option<f64>,
    /// Time that no client had, per switch.
    lost_us: f64,
}

fn row(by: &By, clients: usize, seen: &Seen) -> Result<Row> {
    let (from, to) = seen.ends()?;
    let wall = (to.at_ns - from.at_ns) as f64 / 1e9;
    let worked: f64 = seen.service()?.iter().sum();
    let decisions = seen.programs.iter().find(|p| p.name.contains("dispatch"));
    let all: u64 = seen.programs.iter().map(|p| p.run_time_ns).sum();
    Ok(Row {
        scheduler: short(by),
        clients,
        switches: seen.switches,
        programs_us: decisions.map(|d| all as f64 / d.runs.max(1) as f64 / 1e3),
        dispatch_us: decisions.map(|d| d.run_time_ns as f64 / d.runs.max(1) as f64 / 1e3),
        lost_us: (wall - worked) / seen.switches.max(1) as f64 * 1e6,
    })
}

/// 1 to 1,000 clients that compute, with shares by chance.
pub(super) fn cost(s: &mut Setting, study: &Study) -> Result<()> {
    let policy = |name: &str| By::Scx(format!("{name}:quantum={QUANTUM_MS}ms"));
    let schedulers = [By::Own, policy("stride"), policy("vtrr")];
    let length = s.pick(600, 1_200);
    let mut specs = Vec::new();
    for clients in CLIENTS {
        let mut random = SplitMix64::new(17);
        let shares: Vec<u64> = (0..clients).map(|_| 1 + random.next_u64() % 10).collect();
        for by in &schedulers {
            let name = format!("{clients} clients, {}", by.text());
            let mut spec = Spec::new(name, by.clone(), &shares, WARM_MS, length);
            spec.count_programs = true;
            specs.push(spec);
        }
    }
    let all = study.run(SHIFT, specs)?;
    s.page.heading("The cost of a decision (VTRR, section 5.2)");
    s.page.text(&format!(
        "Clients that compute, with shares of 1 to 10 by chance and quanta of {QUANTUM_MS} ms, one tick; {length} ms, {} ns an \
         instruction. The programs: what the kernel says (`bpf_stats_enabled`) that all programs of the scheduler took together, a \
         decision, and the one that chooses alone. Lost: the time that no client had, over context switches: all that schedulers, ticks and \
         switches take, those of the program that looks included, which counts alike for all three. The paper has 1 to 200 clients, and \
         400 ns for VTRR at any number of them. Of the look for tasks that have waited for too long a thousand clients have 1.6 in a decision, ten one in 60; \
         stride's heap has ten levels among a thousand, four among ten. Nobody has waited for so long here: whoever asks for these numbers is above \
         all schedulers.",
        1 << study.shift(SHIFT)
    ));
    let mut rows = Vec::new();
    for (clients, of_count) in CLIENTS.iter().zip(all.chunks(schedulers.len())) {
        for (by, seen) in schedulers.iter().zip(of_count) {
            rows.push(row(by, *clients, seen)?);
        }
    }
    let mut plot = Plot::new("The cost of a decision", "clients", "us");
    (plot.x_axis, plot.y_axis) = (Axis::Log, Axis::Log);
    for by in &schedulers {
        let of = |value: fn(&Row) -> Option<f64>| {
            let points = rows.iter().filter(|row| row.scheduler == short(by));
            points.filter_map(|row| Some((row.clients as f64, value(row)?))).collect::<Vec<_>>()
        };
        plot.add(format!("{}: lost", short(by)), Style::Line, of(|row| Some(row.lost_us)));
        let programs = of(|row| row.programs_us);
        if let (Some((_, few)), Some((_, many))) = (programs.get(1), programs.last()) {
            s.page.goal(
                format!("{}: programs a decision with 1,000 clients, in those with 10", short(by)),
                Limit::Most(MAX_GROWTH),
                many / few,
                "times",
            );
            plot.add(format!("{}: BPF", short(by)), Style::Dashed, programs);
        }
    }
    let cell = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number);
    let line = |row: &Row| {
        vec![
            row.clients.to_string(),
            row.scheduler.clone(),
            row.switches.to_string(),
            cell(row.dispatch_us),
            cell(row.programs_us),
            number(row.lost_us),
        ]
    };
    let table: Vec<Vec<String>> = rows.iter().map(line).collect();
    s.page.table(
        "clients | scheduler | switches | choosing, us | all programs, us a decision | lost, us a switch",
        &table,
    );
    s.page.plot("cost", &plot)?;
    s.page.csv("cost", &rows)
}
