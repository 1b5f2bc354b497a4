//! Parallel test suites at 1:2:3: Python's own tests, two at a time, of three users.

use anyhow::{Context as _, Result, ensure};
use divvy_linux::clock;
use divvy_policy::Nanos;
use serde::{Deserialize, Serialize};

use super::divided::{Divided, Division};
use super::{each, rows};
use crate::paper::Setting;
use crate::paper::page::{Limit, number, percent};
use crate::paper::real::arena::Arena;
use crate::paper::stats::worst;

const SHARES: [u64; 3] = [1, 2, 3];
const ALL: f64 = 6.0;
/// Tests that compute, need no network, and take a fraction of a second; each in a process of its own.
const TESTS: &str = "test_json test_base64 test_binascii test_bisect test_heapq test_struct test_string test_textwrap test_csv \
                     test_copy test_difflib test_fractions";
/// Lines of a suite that name a test that has passed: `0:00:01 load avg: 1.00 [ 12] test_json passed`.
const PASSED: &str = " passed";

/// What one suite did; a row of the data.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Row {
    division: Division,
    /// What divvy used.
    #[serde(default)]
    backend: String,
    share: u64,
    /// Tests that have passed, a second.
    per_second: f64,
    /// Of the CPU, by the kernel's books.
    used: f64,
    own: f64,
}

fn passed(divided: &Divided<'_>, client: usize) -> usize {
    divided.said(client).lines().filter(|line| line.contains("] test_") && line.contains(PASSED)).count()
}

fn measure(arena: &Arena, division: Division, seconds: u64) -> Result<Vec<Row>> {
    let mut divided = Divided::new(arena, division, &SHARES)?;
    let memory = divided.memory().to_owned();
    let script = |k: usize| {
        let dir = memory.join(k.to_string());
        let dir = dir.display();
        format!(
            "mkdir {dir}\ncd {dir}\nexport TMPDIR={dir} HOME={dir} PYTHONDONTWRITEBYTECODE=1\n\
             exec /usr/bin/python3 -u -m test -j2 --forever {TESTS}"
        )
    };
    let scripts: Vec<String> = (0..SHARES.len()).map(script).collect();
    divided.start(division, &SHARES, &scripts)?;
    let until = clock::now() + Nanos::from_secs(60);
    while (0..SHARES.len()).any(|k| passed(&divided, k) == 0) {
        divided.check()?;
        ensure!(clock::now() < until, "a suite passes no test{}", divided.complaints());
        clock::sleep(Nanos::from_millis(100));
    }
    let tests = |divided: &Divided<'_>| (0..SHARES.len()).map(|k| passed(divided, k)).collect::<Vec<_>>();
    let (begun, books, first) = (clock::now(), divided.books()?, tests(&divided));
    for _ in 0..seconds {
        clock::sleep(Nanos::from_secs(1));
        divided.check().context("a suite has ended")?;
    }
    let (used, last) = (divided.books()?.since(&books).known(division), tests(&divided));
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

pub(super) fn suites(s: &mut Setting, arena: &Arena) -> Result<()> {
    let mut not = Vec::new();
    let rows = rows(s, "suites", || {
        let divisions = s.pick(&[Division::Signals][..], &Division::USUAL);
        each(s, "suites", divisions, &mut not, |division| measure(arena, division, s.pick(4, 30)))
    })?;
    if rows.is_empty() {
        return Ok(());
    }
    s.page.heading("Three users' test suites at 1:2:3");
    s.page.text(
        "Each user runs some of Python's own tests over and over, two at a time, each in a process of its own (`python3 -m test -j2 \
         --forever`): hundreds of processes that come and go. A test is counted when it has passed, whichever it is.",
    );
    let mut table = Vec::new();
    for division in Division::USUAL {
        let of: Vec<&Row> = rows.iter().filter(|row| row.division == division).collect();
        let (tests, used): (f64, f64) =
            (of.iter().map(|r| r.per_second).sum(), of.iter().map(|r| r.used).sum());
        for row in &of {
            table.push(vec![
                division.label(&row.backend),
                row.share.to_string(),
                number(row.per_second),
                percent(row.per_second / tests),
                percent(row.used / used),
                percent(used),
                percent(row.own),
            ]);
        }
        if Division::GOALS.contains(&division) && !of.is_empty() {
            let who = format!("suites, {}", division.name());
            let error = worst(of.iter().map(|row| (row.used / used * ALL / row.share as f64 - 1.0).abs()));
            s.page.goal(
                format!("{who}: CPU time, largest error of a part of 1:2:3"),
                Limit::Most(2.0),
                100.0 * error,
                "%",
            );
            s.page.goal(format!("{who}: own CPU time"), Limit::Most(0.5), 100.0 * of[0].own, "%");
        }
    }
    let head = ["who divides", "share", "tests a second", "of all, %", "of their CPU time, %", "CPU used, %"];
    let head: Vec<&str> = head.into_iter().chain(["divvy's own, %"]).collect();
    s.page.columns(&head, &table);
    not.iter().for_each(|line| s.page.text(line));
    s.page.csv("suites", &rows)
}
