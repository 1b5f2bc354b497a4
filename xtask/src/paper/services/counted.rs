//! Clients that count what they do, line by line: test suites of three users, and three virtual machines, at 1:2:3.

use anyhow::{Context as _, Result, ensure};
use divvy_linux::clock;
use divvy_policy::Nanos;
use serde::{Deserialize, Serialize};

use super::divided::{Divided, Division};
use super::goals::Goals;
use super::{each, rows};
use crate::paper::Setting;
use crate::paper::page::{number, percent};
use crate::paper::real::arena::Arena;
use crate::paper::stats::worst;

const SHARES: [u64; 3] = [1, 2, 3];
const ALL: f64 = 6.0;
/// Everybody has counted something within this: a machine with one of six shares boots six times as slowly as by itself.
const PATIENCE: Nanos = Nanos::from_secs(240);

/// What is measured, and in which words.
pub(super) struct Counted {
    pub(super) part: &'static str,
    pub(super) title: &'static str,
    pub(super) text: &'static str,
    pub(super) unit: &'static str,
    /// Whether a line says that one more is done.
    pub(super) counts: fn(&str) -> bool,
    /// Whether all cost the same, so that the counts have to be as the shares are.
    pub(super) alike: bool,
    pub(super) quick: &'static [Division],
    pub(super) full: &'static [Division],
}

/// What one client did; a row of the data.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Row {
    division: Division,
    /// What divvy used.
    #[serde(default)]
    backend: String,
    share: u64,
    per_second: f64,
    /// Of the CPU, by the kernel's books.
    used: f64,
    own: f64,
}

impl Counted {
    /// Measures it if it is wanted, with what `scripts` gives for the clients' directory, and writes it down.
    pub(super) fn run(
        &self,
        s: &mut Setting,
        arena: &Arena,
        scripts: impl Fn(&Divided<'_>) -> Result<Vec<String>>,
    ) -> Result<()> {
        let mut not = Vec::new();
        let rows = rows(s, self.part, || {
            let divisions = s.pick(self.quick, self.full);
            each(s, self.part, divisions, &mut not, |division| {
                self.measure(arena, division, &scripts, s.pick(4, 30), s.quick)
            })
        })?;
        if !rows.is_empty() {
            self.write(s, &rows)?;
        }
        not.iter().for_each(|line| s.page.text(line));
        Ok(())
    }

    fn counts(&self, divided: &Divided<'_>) -> Vec<usize> {
        let of = |k| divided.said(k).lines().filter(|line| (self.counts)(line)).count();
        (0..SHARES.len()).map(of).collect()
    }

    fn measure(
        &self,
        arena: &Arena,
        division: Division,
        scripts: impl Fn(&Divided<'_>) -> Result<Vec<String>>,
        seconds: u64,
        quick: bool,
    ) -> Result<Vec<Row>> {
        let mut divided = Divided::new(arena, division, &SHARES)?;
        let scripts = scripts(&divided)?;
        divided.start(division, &SHARES, &scripts)?;
        let until = clock::now() + PATIENCE;
        while self.counts(&divided).contains(&0) {
            divided.check()?;
            ensure!(clock::now() < until, "somebody does nothing{}", divided.complaints());
            clock::sleep(Nanos::from_millis(100));
        }
        let (begun, books, first) = (clock::now(), divided.books()?, self.counts(&divided));
        let until = begun + PATIENCE;
        let mut slept = 0;
        // A short measurement goes on until everybody has counted once more: a test suite with one of six shares of a
        // slow CPU has not passed another test in four seconds.
        let waits = |now: &[usize]| quick && now.iter().zip(&first).any(|(now, before)| now == before);
        while slept < seconds || waits(&self.counts(&divided)) {
            ensure!(clock::now() < until, "somebody does nothing any more{}", divided.complaints());
            clock::sleep(Nanos::from_secs(1));
            divided.check().context("somebody has ended")?;
            slept += 1;
        }
        let (used, last) = (divided.books()?.since(&books).known(division), self.counts(&divided));
        let wall = clock::now().since(begun).0 as f64 / 1e9;
        let backend = divided.end(division)?;
        let row = |k: usize| Row {
            division,
            backend: backend.clone(),
            share: SHARES[k],
            per_second: (last[k] - first[k]) as f64 / wall,
            used: used.clients[k],
            own: used.own,
        };
        Ok((0..SHARES.len()).map(row).collect())
    }

    fn write(&self, s: &mut Setting, rows: &[Row]) -> Result<()> {
        s.page.heading(self.title);
        s.page.text(self.text);
        let mut table = Vec::new();
        for &division in self.full {
            let of = of(rows, division);
            let (done, used) = (sum(&of, |r| r.per_second), sum(&of, |r| r.used));
            for row in &of {
                table.push(vec![
                    division.label(&row.backend),
                    row.share.to_string(),
                    number(row.per_second),
                    percent(row.per_second / done),
                    percent(row.used / used),
                    percent(used),
                    percent(row.own),
                ]);
            }
        }
        let head = ["who divides", "share", self.unit, "of all, %", "of their CPU time, %", "CPU used, %"];
        let head: Vec<&str> = head.into_iter().chain(["divvy's own, %"]).collect();
        s.page.columns(&head, &table);
        s.page.csv(self.part, rows)?;
        self.goals(s, rows);
        Ok(())
    }

    fn goals(&self, s: &mut Setting, rows: &[Row]) {
        let nobody = of(rows, Division::Nobody);
        for division in Division::GOALS {
            let divvy = of(rows, division);
            if divvy.is_empty() {
                continue;
            }
            let least = division.least(&divvy[0].backend).map(|least| (least, of(rows, least)));
            let least = least.filter(|(_, rows)| !rows.is_empty());
            let name = format!("{}, {}", self.part, division.name());
            let mut goals = Goals { page: &mut s.page, of: name, divvy, least };
            if self.alike {
                goals.done(
                    self.unit,
                    |rows| 100.0 * error(rows, |row| row.per_second),
                    |rows| 100.0 * error(rows, |row| row.per_second / row.used * row.share as f64),
                );
            }
            goals.used(|rows| 100.0 * error(rows, |row| row.used));
            if self.alike && !nobody.is_empty() {
                let all = sum(&nobody, |row| row.per_second);
                goals.kept(self.unit, |rows| 100.0 * sum(rows, |row| row.per_second) / all);
            }
            goals.own(|rows| 100.0 * rows[0].own);
        }
    }
}

fn of(rows: &[Row], division: Division) -> Vec<&Row> {
    rows.iter().filter(|row| row.division == division).collect()
}

fn sum(rows: &[&Row], value: impl Fn(&Row) -> f64) -> f64 {
    rows.iter().map(|row| value(row)).sum()
}

/// The largest error of a part of what is due, relative to it.
fn error(rows: &[&Row], value: impl Fn(&Row) -> f64) -> f64 {
    let all = sum(rows, &value);
    worst(rows.iter().map(|row| (value(row) / all * ALL / row.share as f64 - 1.0).abs()))
}
