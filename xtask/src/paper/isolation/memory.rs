//! Fig. 7: four tasks that need more memory than there is, two of which have hard shares of it.

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;

use super::super::Setting;
use super::super::page::Limit;
use super::super::plot::{Legend, Plot, Style};
use super::Machine;
use super::inside::{HARD, Owned};

/// Pages of 4 KiB.
const PAGE: u64 = 4096;
const NAMES: [&str; 4] = ["500 hard tickets", "350 hard tickets", "none", "none, too"];

#[derive(Debug, Serialize)]
struct Row {
    t_s: f64,
    task: usize,
    pages: u64,
}

pub(super) fn fig7(s: &mut Setting) -> Result<()> {
    let seconds: u64 = s.pick(8, 60);
    let machine = Machine { two_cpus: false, shift: 3, memory_mib: 1024, add: &[] };
    let seen: Owned = machine.run(s, "fig7", &[seconds.to_string()])?;
    ensure!(seen.rows.iter().all(|(_, owned)| owned.len() == NAMES.len()), "four tasks were to be seen");
    // Each has what it is guaranteed before it can lose it.
    let settled = |(_, owned): &(f64, Vec<u64>)| (0..2).all(|i| owned[i] >= seen.guaranteed[i]);
    let from = seen.rows.iter().position(settled).context("nobody ever had what it was guaranteed")?;
    let rows = &seen.rows[from..];
    let least = |i: usize| rows.iter().map(|(_, owned)| owned[i]).min().unwrap_or(0);
    let mean = |i: usize| rows.iter().map(|(_, owned)| owned[i]).sum::<u64>() / rows.len().max(1) as u64;
    s.page.heading("Four tasks that need more memory than there is (section 5.3, Fig. 7)");
    s.page.text(&format!(
        "Four tasks read portions of 4 KiB of one file of 128 MiB, at random, into random places of a buffer of 32 MiB each, in 64 MiB \
         of memory, of which {:.1} can be kept for clients: eight times the paper's files, buffers and memory that can be \
         reserved. Two have 500 and 350 of the base's hard tickets, in the proportion of the paper's 500 and 350 pages; the others \
         have none. Buffers go to swap. What is charged to each is looked at four times a second, {} times from when both had what \
         they are guaranteed; {} pages were taken from somebody meanwhile.",
        seen.guaranteed[0] as f64 * 1000.0 / HARD[0] as f64 / (1 << 20) as f64,
        rows.len(),
        seen.taken
    ));
    let cells: Vec<Vec<String>> = (0..NAMES.len())
        .map(|i| {
            let paper = ["500", "350", "none", "none"][i];
            let pages = |bytes: u64| (bytes / PAGE).to_string();
            vec![
                NAMES[i].to_owned(),
                paper.to_owned(),
                pages(seen.guaranteed[i]),
                pages(least(i)),
                pages(mean(i)),
                seen.copied[i].to_string(),
            ]
        })
        .collect();
    s.page.table(
        "task | guaranteed pages, paper | guaranteed pages, ours | least that it had | mean | portions that it read",
        &cells,
    );
    s.page.text(
        "As in the paper, those with hard shares lose pages only while they have more than these, and the others live on what is \
         left.",
    );
    let undercut = (0..2).map(|i| 1.0 - least(i) as f64 / seen.guaranteed[i].max(1) as f64);
    s.page.goal(
        "Fig. 7: the most by which a guarantee was undercut",
        Limit::Most(2.0),
        undercut.fold(0.0, f64::max) * 100.0,
        "%",
    );
    let poorest = mean(0).min(mean(1)) as f64 / mean(2).max(mean(3)).max(1) as f64;
    s.page.goal(
        "Fig. 7: what the poorer of the guaranteed had on average, against the richer of the others",
        Limit::Least(1.2),
        poorest,
        "times",
    );
    let data: Vec<Row> = seen
        .rows
        .iter()
        .flat_map(|(t, owned)| {
            owned.iter().enumerate().map(|(task, bytes)| Row { t_s: *t, task, pages: bytes / PAGE })
        })
        .collect();
    s.page.csv("fig7", &data)?;
    let mut plot =
        Plot::new("Fig. 7: memory of four tasks, two with guarantees", "time, s", "pages of 4 KiB");
    plot.legend = Legend::Right;
    for (i, name) in NAMES.iter().enumerate() {
        let points = seen.rows.iter().map(|(t, owned)| (*t, (owned[i] / PAGE) as f64)).collect();
        plot.add(*name, Style::Line, points);
    }
    let ends = [seen.rows.first(), seen.rows.last()].into_iter().flatten().map(|(t, _)| *t);
    let ends: Vec<f64> = ends.collect();
    for (hard, bytes) in HARD.iter().zip(&seen.guaranteed).take(2) {
        let points = ends.iter().map(|t| (*t, (bytes / PAGE) as f64)).collect();
        plot.add(format!("guaranteed: {hard} tickets"), Style::Dashed, points);
    }
    s.page.plot("fig7", &plot)
}
