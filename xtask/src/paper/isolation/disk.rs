//! Fig. 8: five readers of mapped files, of which one has half of the disk.

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::super::Setting;
use super::super::page::Limit;
use super::super::plot::{Legend, Plot, Style};
use super::Machine;
use super::inside::{self, Readers};

#[derive(Debug, Serialize)]
struct Row {
    t_s: f64,
    task: usize,
    pages: u64,
}

pub(super) fn fig8(s: &mut Setting) -> Result<()> {
    let seconds: u64 = s.pick(10, 100);
    let machine = Machine { two_cpus: false, shift: 3, memory_mib: 1024, add: &[] };
    let seen: Readers = machine.run(s, "fig8", &[seconds.to_string()])?;
    let (time, last) = seen.rows.last().context("nothing was seen")?;
    let others: u64 = last[1..].iter().sum();
    let ratio = last[0] as f64 * 4.0 / others.max(1) as f64;
    let all: u64 = last.iter().sum();
    s.page.heading("Five readers, one with half of the disk (section 5.4, Fig. 8)");
    s.page.text(&format!(
        "Five tasks map {} MiB each and touch page after page, each with one request at a time. The first has 500 of the base's 1000 \
         hard disk tickets, the others one soft ticket each of their user's currency: an eighth each. iocost drives the disk at \
         {} operations a second. After {time:.0} s of ours, and when the first had read its file in the paper:",
        inside::FILE >> 20,
        inside::IOPS
    ));
    let cells = |who: &str, paper: &str, pages: u64, due: f64| {
        let part = pages as f64 / all.max(1) as f64;
        vec![who.to_owned(), paper.to_owned(), pages.to_string(), format!("{due:.4}"), format!("{part:.4}")]
    };
    let mut rows = vec![cells("hard share of 50 %", "4096", last[0], 0.5)];
    rows.extend(last[1..].iter().map(|&pages| cells("soft", "about 1000", pages, 0.125)));
    s.page.table("task | pages, paper | pages, ours | part due | part of all", &rows);
    s.page.text(&format!(
        "The first made {ratio:.2} times as much progress as the others on average; in the paper 4.1 times."
    ));
    s.page.goal(
        "Fig. 8: how far the ratio of the first to the others is from 4",
        Limit::Most(5.0),
        (ratio / 4.0 - 1.0).abs() * 100.0,
        "%",
    );
    let furthest = last[1..].iter().map(|&pages| (pages as f64 * 4.0 / others.max(1) as f64 - 1.0).abs());
    s.page.goal(
        "Fig. 8: how far any of the others is from their mean",
        Limit::Most(5.0),
        furthest.fold(0.0, f64::max) * 100.0,
        "%",
    );
    let data: Vec<Row> = seen
        .rows
        .iter()
        .flat_map(|(t, counts)| counts.iter().enumerate().map(|(task, &pages)| Row { t_s: *t, task, pages }))
        .collect();
    s.page.csv("fig8", &data)?;
    let mut plot = Plot::new("Fig. 8: five readers, one with half of the disk", "time, s", "pages");
    plot.legend = Legend::Left;
    for task in 0..last.len() {
        let name = if task == 0 { "hard share of 50 %".to_owned() } else { format!("soft {task}") };
        plot.add(name, Style::Line, seen.rows.iter().map(|(t, n)| (*t, n[task] as f64)).collect());
    }
    s.page.plot("fig8", &plot)
}
