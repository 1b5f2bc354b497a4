//! Three users' services at 1:2:3: pages of web servers, and transactions of databases.

use anyhow::Result;
use divvy_linux::clock;
use divvy_policy::Nanos;
use serde::{Deserialize, Serialize};

use super::divided::{Divided, Division};
use super::goals::Goals;
use super::load::{self, Served};
use super::service::{Kind, Service, Template};
use super::{each, rows};
use crate::paper::Setting;
use crate::paper::page::{Limit, number, percent};
use crate::paper::plot::{Plot, Style};
use crate::paper::real::arena::Arena;
use crate::paper::stats::worst;

const SHARES: [u64; 3] = [1, 2, 3];
const ALL: f64 = 6.0;
/// In the order in which they are measured.
const DIVISIONS: [Division; 8] = [
    Division::Nobody,
    Division::Default,
    Division::Signals,
    Division::Weights,
    Division::Paper,
    Division::Cgroup,
    Division::FreezeInTurn,
    Division::StopInTurn,
];

/// What one user's service did under one division; a row of the data. What is not known is not a number.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Row {
    division: Division,
    /// What divvy used.
    #[serde(default)]
    backend: String,
    share: u64,
    per_second: f64,
    /// Of a request; of a transaction, the mean.
    median_ms: f64,
    p99_ms: f64,
    failed: u64,
    /// Of the CPU, by the kernel's books.
    used: f64,
    /// divvy's own, of the CPU; in each row of a division.
    own: f64,
}

/// What is measured, and in which words.
struct Words {
    part: &'static str,
    title: &'static str,
    text: &'static str,
    unit: &'static str,
    middle: &'static str,
    /// What a quick run measures.
    quick: &'static [Division],
}

const WEB: Words = Words {
    part: "web",
    title: "Three users' web servers at 1:2:3",
    text: "Each user has an Apache (prefork) with PHP and a MariaDB; a page of its bulletin board is, as in RUBBoS, a list \
           of stories, a story with its comments, a search, a user's page or a new comment. `ab` asks for pages over 8 connections to each service.",
    unit: "requests a second",
    middle: "median, ms",
    quick: &[Division::Nobody, Division::Default, Division::Signals],
};

const OLTP: Words = Words {
    part: "oltp",
    title: "Three users' databases at 1:2:3",
    text: "Each user has a MariaDB; `sysbench oltp_read_write` has 8 transactions under way in each, of 20 statements.",
    unit: "transactions a second",
    middle: "mean, ms",
    quick: &[Division::Signals],
};

pub(super) fn web(s: &mut Setting, arena: &Arena) -> Result<()> {
    part(s, arena, &WEB, Kind::Web)
}

pub(super) fn transactions(s: &mut Setting, arena: &Arena) -> Result<()> {
    part(s, arena, &OLTP, Kind::Database)
}

fn part(s: &mut Setting, arena: &Arena, words: &Words, kind: Kind) -> Result<()> {
    let mut not = Vec::new();
    let rows = rows(s, words.part, || {
        let template = Template::new(arena.memory())?;
        let seconds = s.pick(3, 15);
        let divisions = s.pick(words.quick, &DIVISIONS[..]);
        each(s, words.part, divisions, &mut not, |division| {
            measure(arena, division, kind, &template, seconds)
        })
    })?;
    if rows.is_empty() {
        return Ok(());
    }
    write(s, words, &rows)?;
    for line in not {
        s.page.text(&line);
    }
    Ok(())
}

fn measure(
    arena: &Arena,
    division: Division,
    kind: Kind,
    template: &Template,
    seconds: u32,
) -> Result<Vec<Row>> {
    let mut divided = Divided::new(arena, division, &SHARES)?;
    let services = Service::three(kind, template, &divided)?;
    let commands: Vec<String> = services.iter().map(Service::command).collect();
    divided.start(division, &SHARES, &commands)?;
    for service in &services {
        service.wait(&mut divided)?;
    }
    let load = |divided: &mut Divided<'_>, seconds| match kind {
        Kind::Web => load::pages(divided, &services, seconds),
        Kind::Database => load::transactions(divided, &services, seconds),
    };
    if kind == Kind::Database {
        load::prepare_transactions(&mut divided, &services)?;
    }
    // First for a moment, so that whatever is filled at first is full.
    load(&mut divided, 2)?;
    let before = divided.books()?;
    let served = load(&mut divided, seconds)?;
    let used = divided.books()?.since(&before).known(division);
    let backend = divided.end(division)?;
    clock::sleep(Nanos::from_millis(200));
    let row = |(k, served): (usize, &Served)| Row {
        division,
        backend: backend.clone(),
        share: SHARES[k],
        per_second: served.per_second,
        median_ms: served.median_ms,
        p99_ms: served.p99_ms,
        failed: served.failed,
        used: used.clients[k],
        own: used.own,
    };
    Ok(served.iter().enumerate().map(row).collect())
}

fn of(rows: &[Row], division: Division) -> Option<Vec<&Row>> {
    let of: Vec<&Row> = rows.iter().filter(|row| row.division == division).collect();
    (of.len() == SHARES.len()).then_some(of)
}

fn total(rows: &[&Row]) -> f64 {
    rows.iter().map(|row| row.per_second).sum()
}

/// The largest error of a part of what is due, relative to it.
fn error(rows: &[&Row], value: impl Fn(&Row) -> f64) -> f64 {
    let all: f64 = rows.iter().map(|row| value(row)).sum();
    worst(rows.iter().map(|row| (value(row) / all * ALL / row.share as f64 - 1.0).abs()))
}

fn write(s: &mut Setting, words: &Words, rows: &[Row]) -> Result<()> {
    s.page.heading(words.title);
    s.page.text(words.text);
    let mut table = Vec::new();
    let mut plot = Plot::new(words.title, "who divides", words.unit);
    let measured: Vec<Division> =
        DIVISIONS.into_iter().filter(|&division| of(rows, division).is_some()).collect();
    plot.x_names = measured.iter().map(|division| division.name().to_owned()).collect();
    for (k, share) in SHARES.iter().enumerate() {
        let points = measured.iter().enumerate().filter_map(|(x, &division)| {
            Some((x as f64, of(rows, division)?.get(k).map(|row| row.per_second)?))
        });
        plot.add(format!("share {share}"), Style::Points, points.collect());
    }
    for &division in &measured {
        let rows = of(rows, division).unwrap_or_default();
        let used: f64 = rows.iter().map(|row| row.used).sum();
        for row in &rows {
            table.push(vec![
                division.label(&row.backend),
                row.share.to_string(),
                number(row.per_second),
                percent(row.per_second / total(&rows)),
                percent(row.used / used),
                number(row.per_second / row.used),
                number(row.median_ms),
                number(row.p99_ms),
                row.failed.to_string(),
            ]);
        }
    }
    let per_cpu = format!("{} of CPU time", words.unit);
    let head =
        ["who divides", "share", words.unit, "of all, %", "of their CPU time, %", &per_cpu, words.middle];
    let head: Vec<&str> = head.into_iter().chain(["99 %, ms", "failed"]).collect();
    s.page.columns(&head, &table);
    let lines: Vec<Vec<String>> = measured
        .iter()
        .map(|&division| {
            let rows = of(rows, division).unwrap_or_default();
            let used: f64 = rows.iter().map(|row| row.used).sum();
            vec![
                division.label(&rows[0].backend),
                number(total(&rows)),
                percent(error(&rows, |row| row.per_second)),
                percent(error(&rows, |row| row.used)),
                percent(used),
                percent(rows[0].own),
            ]
        })
        .collect();
    let head = ["who divides", words.unit, "largest error, %", "that of CPU time, %", "CPU used, %"];
    let head: Vec<&str> = head.into_iter().chain(["divvy's own, %"]).collect();
    s.page.columns(&head, &lines);
    let costs: Vec<String> = measured
        .iter()
        .filter(|&&division| division != Division::Nobody)
        .filter_map(|&division| {
            let rows = of(rows, division)?;
            let cost = |row: &Row| row.used / row.per_second;
            Some(format!("{} ({})", number(cost(rows[0]) / cost(rows[2])), division.name()))
        })
        .collect();
    s.page.text(&format!(
        "What one of them costs depends on how long its service has the CPU in one go: with share 1 so many times the CPU time of one with \
         share 3: {}. So parts of what was served are not quite parts of CPU time, whoever divides.",
        costs.join(", ")
    ));
    s.page.csv(words.part, rows)?;
    s.page.plot(words.part, &plot)?;
    goals(s, words, rows);
    Ok(())
}

/// What is asked of each of divvy's ways to divide that was measured.
fn goals(s: &mut Setting, words: &Words, rows: &[Row]) {
    let Some(nobody) = of(rows, Division::Nobody) else { return };
    for division in Division::GOALS {
        let Some(divvy) = of(rows, division) else { continue };
        let least = division.least(&divvy[0].backend).and_then(|least| Some((least, of(rows, least)?)));
        let name = format!("{}, {}", words.part, division.name());
        let mut goals = Goals { page: &mut s.page, of: name, divvy, least };
        goals.done(
            words.unit,
            |rows| 100.0 * error(rows, |row| row.per_second),
            |rows| 100.0 * error(rows, |row| row.per_second / row.used * row.share as f64),
        );
        goals.used(|rows| 100.0 * error(rows, |row| row.used));
        goals.kept(words.unit, |rows| 100.0 * total(rows) / total(&nobody));
        if let Some(weights) = of(rows, Division::Weights) {
            let what = "99th percentile of each, of that under the kernel's weights";
            goals.goal(what, Limit::Most(1.2), "times", |rows| {
                worst(rows.iter().zip(&weights).map(|(ours, theirs)| ours.p99_ms / theirs.p99_ms.max(1.0)))
            });
        }
        goals.own(|rows| 100.0 * rows[0].own);
    }
}
