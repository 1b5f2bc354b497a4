//! Figs 9 and 10: disk for CPU, between a task that computes and one that reads; and what becomes of those who take no part.

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;

use super::super::Setting;
use super::super::page::percent;
use super::super::plot::{Legend, Plot, Style};
use super::Machine;
use super::inside::{Exchanges, IOPS, Part, TICKETS};

/// Tasks: two that compute, five that read.
const TASKS: usize = 7;
/// Where the first reader is among them.
const READER: usize = 2;

#[derive(Debug, Serialize)]
struct Row {
    tickets: u64,
    task: usize,
    done: u64,
    cpu: f64,
    disk: f64,
}

pub(super) fn fig9(s: &mut Setting) -> Result<()> {
    let seconds: u64 = s.pick(6, 40);
    let amounts: &[u64] = s.pick(&[0, 400][..], &[0, 100, 200, 300, 400, 500, 600, 700, 800][..]);
    let machine = Machine { two_cpus: false, shift: 4, memory_mib: 1024, add: &[] };
    let args: Vec<String> = [seconds].iter().chain(amounts).map(u64::to_string).collect();
    let seen: Exchanges = machine.run(s, "fig9", &args)?;
    let (base, rest) = seen.parts.split_first().context("nothing was seen")?;
    ensure!(base.tickets == 0 && seen.parts.iter().all(|p| p.done.len() == TASKS), "not what was asked for");
    s.page.heading("Disk for CPU (section 5.5, Figs 9 and 10)");
    s.page.text(&format!(
        "Two tasks compute and five read mapped files of 16 MiB, each with {TICKETS} base tickets of CPU and of disk. The first that \
         computes gives the first that reads n disk for n CPU, through the dealer. iocost drives the disk at {IOPS} operations a \
         second. Each exchange holds for {seconds} s, which are measured, and 2 s before that. The machine does 62 million instructions \
         a second, so that to read costs CPU time, as it did in the paper.",
    ));
    gains(s, base, rest)?;
    shares(s, &seen)?;
    let data: Vec<Row> = seen
        .parts
        .iter()
        .flat_map(|p| {
            (0..TASKS).map(|task| Row {
                tickets: p.tickets,
                task,
                done: p.done[task],
                cpu: p.cpu[task],
                disk: p.disk[task],
            })
        })
        .collect();
    s.page.csv("fig9-10", &data)
}

/// Fig. 9: what each party gains.
fn gains(s: &mut Setting, base: &Part, rest: &[Part]) -> Result<()> {
    let gain = |part: &Part, task: usize| part.done[task] as f64 / base.done[task].max(1) as f64 - 1.0;
    let rows: Vec<Vec<String>> = rest
        .iter()
        .map(|p| vec![p.tickets.to_string(), percent(gain(p, 0)), percent(gain(p, READER))])
        .collect();
    s.page.text("**Fig. 9.** What each of the two does more than without an exchange:");
    s.page.table("tickets exchanged | the one that computes, + % | the one that reads, + %", &rows);
    s.page.text(
        "In the paper's Fig. 9, averages of five runs, both gain by every exchange: the one that computes the more the more it gets, \
         and the one that reads less again beyond 500 tickets, since it needs the CPU too.",
    );
    let both = rest.iter().filter(|p| gain(p, 0) > 0.0 && gain(p, READER) > 0.0).count();
    s.page.goal_of_all("Fig. 9: exchanges by which both parties gain", rest.len(), both, "exchanges");
    let mut plot =
        Plot::new("Fig. 9: what both gain by an exchange", "tickets exchanged", "performance, + %");
    plot.legend = Legend::Left;
    for (name, task) in [("computes: disk for CPU", 0), ("reads: CPU for disk", READER)] {
        let points = rest.iter().map(|p| (p.tickets as f64, gain(p, task) * 100.0)).collect();
        plot.add(name, Style::Line, points);
    }
    s.page.plot("fig9", &plot)
}

/// What the one that reads could do at most where it had less than it traded for.
fn alone(s: &mut Setting, seen: &Exchanges) {
    for p in &seen.parts {
        let Some(alone) = p.alone else { continue };
        s.page.text(&format!(
            "With {} tickets exchanged the one that reads has {:.4} of the disk, for {:.4} by its tickets. It used {:.4} of the CPU \
             time, and its tickets are {:.4} of that. Alone on the disk, everybody else being paused, with as much CPU time as it had \
             then and no more (`divvy set --limit`), it reads {alone:.4} of those bytes: its CPU drives no more of the disk. Among the \
             others it also waits for the CPU after each page, being past its part of it, and has no request at the disk meanwhile.",
            p.tickets,
            p.disk[READER],
            p.due(),
            p.cpu[READER],
            (TICKETS - p.tickets.min(TICKETS)) as f64 / (TASKS as u64 * TICKETS) as f64,
        ));
    }
}

/// Fig. 10: what everybody has, and is to have at least.
fn shares(s: &mut Setting, seen: &Exchanges) -> Result<()> {
    let due = |tickets: u64| tickets as f64 / (TASKS as u64 * TICKETS) as f64;
    let least = |part: &Part| part.disk[READER + 1..].iter().copied().fold(f64::INFINITY, f64::min);
    let rows: Vec<Vec<String>> = seen
        .parts
        .iter()
        .map(|p| {
            let cells = [
                due(TICKETS + p.tickets),
                p.cpu[0],
                p.cpu[1],
                due(TICKETS + p.tickets),
                p.disk[READER],
                least(p),
            ];
            let cells = cells.into_iter().map(|part| format!("{part:.4}"));
            std::iter::once(p.tickets.to_string()).chain(cells).collect()
        })
        .collect();
    s.page.text(&format!(
        "**Fig. 10.** Parts of the CPU time and of the bytes read that all seven had. Who takes no part is due a seventh, {:.4}, of \
         both; of the four readers that take none, the one with the least:",
        due(TICKETS)
    ));
    s.page.table(
        "tickets exchanged | CPU: due, exchanging | CPU: exchanging | CPU: not exchanging | disk: due, exchanging | disk: exchanging \
         | disk: not exchanging",
        &rows,
    );
    let kept = seen.parts.iter().filter(|p| p.cpu[1] >= due(TICKETS) && least(p) >= due(TICKETS)).count();
    s.page.goal_of_all(
        "Fig. 10: runs in which everybody who takes no part has a seventh at least, of CPU and disk",
        seen.parts.len(),
        kept,
        "runs",
    );
    alone(s, seen);
    let parties = seen.parts.iter().filter(|p| {
        let used_its_cpu = p.cpu[READER] >= due(TICKETS - p.tickets.min(TICKETS));
        p.cpu[0] >= p.due() && (p.disk[READER] >= p.due() || used_its_cpu)
    });
    s.page.goal_of_all(
        "Fig. 10: runs in which the one that computes has at least the CPU that it traded for, and the one that reads at least the disk, or \
         all of the CPU that its tickets come to",
        seen.parts.len(),
        parties.count(),
        "runs",
    );
    for (file, title, of, other) in [
        ("fig10-cpu", "Fig. 10: CPU of those who compute", 0_usize, 1_usize),
        ("fig10-disk", "Fig. 10: disk of those who read", READER, READER + 1),
    ] {
        let mut plot = Plot::new(title, "tickets exchanged", "part of all");
        plot.legend = Legend::Left;
        let is_cpu = of == 0;
        let part = |p: &Part, task: usize| match (is_cpu, task == other) {
            (true, _) => p.cpu[task],
            (false, true) => least(p),
            (false, false) => p.disk[task],
        };
        let line = |task: usize| -> Vec<(f64, f64)> {
            seen.parts.iter().map(|p| (p.tickets as f64, part(p, task))).collect()
        };
        let at = |more: bool| -> Vec<(f64, f64)> {
            let tickets = |p: &Part| if more { TICKETS + p.tickets } else { TICKETS };
            seen.parts.iter().map(|p| (p.tickets as f64, due(tickets(p)))).collect()
        };
        plot.add("exchanging", Style::Line, line(of));
        plot.add("not exchanging", Style::Line, line(other));
        plot.add("exchanging: due", Style::Dashed, at(true));
        plot.add("not exchanging: due", Style::Dashed, at(false));
        s.page.plot(file, &plot)?;
    }
    Ok(())
}
