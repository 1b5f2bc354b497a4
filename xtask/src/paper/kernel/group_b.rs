//! PBS, group B (section 4.2.2, Fig. 8): users of a real web server that ask for files of Pareto sizes, by alpha and beta.

use anyhow::{Result, ensure};
use divvy_sim::scenario::Span;
use divvy_sim::workload::Dist;
use serde::Serialize;
use serde_json::{Value, json};

use super::clients::PARETO;
use super::parts::{OverAlpha, simulated_pbs};
use super::{By, Client, Seen, Spec, Study, Work};
use crate::paper::Setting;
use crate::paper::page::{Limit, number};
use crate::paper::pbs::{Outcome, group_b_outcomes};

const USERS: usize = 30;
const SLICE_MS: u64 = 4;
/// An instruction takes 64 ns, as for group A.
const SHIFT: u32 = 6;
/// On such a machine the smallest answer takes a quarter of a second, a few times what it takes to start its programs.
const LOW: u64 = 60_000;
const HIGH: u64 = 1_000 * LOW;
const THINK_MS: f64 = 40_000.0;
const POINTS: [(&str, &str); 7] =
    [("0.1", "0"), ("1", "0"), ("2", "0"), ("5", "0"), ("0.1", "-3"), ("1", "-3"), ("5", "-3")];

#[derive(Serialize)]
struct Row {
    scheduler: String,
    answers: usize,
    mean_s: f64,
    /// Standard error of the mean, as if answers were independent of each other.
    error_s: f64,
    median_s: f64,
    /// Of those asked for less than the average size.
    small_mean_s: f64,
    /// CPU time of all answers, as a part of the machine.
    load: f64,
    simulated_s: Option<f64>,
    simulated_half_width_s: Option<f64>,
    simulated_median_s: Option<f64>,
}

/// Small ones are not told apart in the simulator; the median is one of them.
const PICTURES: [OverAlpha<Row>; 3] = [
    OverAlpha {
        name: "group-b",
        title: "Group B: mean of all answers",
        measured: |row| row.mean_s,
        simulated: |row| row.simulated_s,
    },
    OverAlpha {
        name: "group-b-small",
        title: "Group B: mean of small answers",
        measured: |row| row.small_mean_s,
        simulated: |_| None,
    },
    OverAlpha {
        name: "group-b-median",
        title: "Group B: median of all answers",
        measured: |row| row.median_s,
        simulated: |row| row.simulated_median_s,
    },
];

fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len().max(1) as f64
}

impl Row {
    fn new(scheduler: String, seen: &Seen, small: f64) -> Result<Self> {
        ensure!(seen.sizes.iter().all(|&size| size > 0), "{scheduler}: the web server has failed a user");
        let times: Vec<f64> = seen.latencies_ns.iter().map(|&ns| ns as f64 / 1e9).collect();
        let sized = times.iter().zip(&seen.sizes);
        let of_small: Vec<f64> =
            sized.filter(|&(_, &size)| (size as f64) < small).map(|(&time, _)| time).collect();
        let average = mean(&times);
        let squares: Vec<f64> = times.iter().map(|t| (t - average).powi(2)).collect();
        let (from, to) = seen.ends()?;
        let used: u64 = to.done.iter().zip(&from.done).map(|(to, from)| to - from).sum();
        Ok(Self {
            scheduler,
            answers: times.len(),
            mean_s: average,
            error_s: (mean(&squares) / times.len().max(1) as f64).sqrt(),
            median_s: seen.latency_us(0.5)? / 1e6,
            small_mean_s: mean(&of_small),
            load: used as f64 * 1e3 / (to.at_ns - from.at_ns) as f64,
            simulated_s: None,
            simulated_half_width_s: None,
            simulated_median_s: None,
        })
    }

    fn compare(&mut self, simulated: &Outcome) {
        self.simulated_s = Some(simulated.mean.mean);
        self.simulated_half_width_s = Some(simulated.mean.half_width);
        self.simulated_median_s = Some(simulated.median.mean);
    }
}

/// Thirty users of a web server under the kernel's own scheduler, round-robin and PBS.
pub(super) fn group_b(s: &mut Setting, study: &Study) -> Result<()> {
    let (warm_ms, length_ms) = s.pick((20_000, 60_000), (200_000, 1_600_000));
    // What a faster machine is asked as often as it can bear.
    let think_ms = THINK_MS / f64::from(1 << (SHIFT - study.shift(SHIFT)));
    let points = &POINTS[s.pick(3, 0)..s.pick(4, POINTS.len())];
    let mut schedulers = vec![By::Own, By::Scx(format!("rr:quantum={SLICE_MS}ms"))];
    let pbs = |(alpha, beta): &(&str, &str)| format!("pbs:quantum={SLICE_MS}ms,alpha={alpha},beta={beta}");
    schedulers.extend(points.iter().map(|point| By::Scx(pbs(point))));
    let work = Work::Requests { think_ms, low: LOW, high: HIGH };
    let spec = |by: &By| {
        let mut spec = Spec::new(by.text(), by.clone(), &[1; USERS], warm_ms, length_ms);
        spec.clients = vec![Client { work, ..Client::with_share(1) }; USERS];
        spec
    };
    let all = study.run(SHIFT, schedulers.iter().map(spec).collect())?;
    let sizes = Dist::BoundedPareto { shape: PARETO, low: Span(LOW), high: Span(HIGH) };
    let small = sizes.mean() * 1e9;
    let mut rows = Vec::new();
    for (by, seen) in schedulers.iter().zip(&all) {
        rows.push(Row::new(by.text(), seen, small)?);
    }
    // What an answer takes, on average, is what all took under the kernel's own scheduler.
    let asked: u64 = all[0].sizes.iter().sum();
    let took_s = rows[0].load * length_ms as f64 / 1e3;
    let low_s = took_s / asked as f64 * LOW as f64;
    let policies: Vec<Value> = std::iter::once(json!("rr")).chain(points.iter().map(simulated_pbs)).collect();
    let simulated = group_b_outcomes(USERS, think_ms / 1e3, low_s, &policies)?;
    for (row, simulated) in rows[1..].iter_mut().zip(&simulated) {
        row.compare(simulated);
    }
    s.page.heading("PBS: users of a web server (group B, section 4.2.2, Fig. 8)");
    s.page.text(&format!(
        "{USERS} users think for {} s on average and then ask a web server (busybox's httpd) for {} KB to {} MB, by a Pareto distribution of \
         index {PARETO}. A script reads as much and answers with its MD5 sum: a shell, `head` and `md5sum`, in the cgroup of the user who \
         asked. Users are on the same machine, but before everybody in it. {} s after the first {} s, {} ns an instruction; thinking times \
         and sizes are the same under every scheduler. Times in s, `+-` twice the standard error, as if answers were independent; small ones \
         are those asked for less than the average, {} KB. The load is what answers took of the CPU. Simulated: sizes alone, by another \
         generator, so that the smallest takes {} s, as it takes here on average of all bytes; what starting programs costs is in that. \
         Answers that were still under way at the end are left out, the largest among them: one run does not tell apart means of all answers that \
         are near each other. The web server itself, until a script is in its user's cgroup, is the rest's, which has a share of 100, and in no load.",
        number(think_ms / 1e3),
        LOW / 1_000,
        HIGH / 1_000_000,
        length_ms / 1_000,
        warm_ms / 1_000,
        1 << study.shift(SHIFT),
        number(small / 1e3),
        number(low_s),
    ));
    let or_none = |of: Option<f64>| of.map_or_else(|| "-".to_owned(), number);
    let table: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            vec![
                row.scheduler.clone(),
                row.answers.to_string(),
                format!("{} +- {}", number(row.mean_s), number(2.0 * row.error_s)),
                row.simulated_s.zip(row.simulated_half_width_s).map_or_else(
                    || "-".to_owned(),
                    |(mean, half)| format!("{} +- {}", number(mean), number(half)),
                ),
                number(row.small_mean_s),
                number(row.median_s),
                or_none(row.simulated_median_s),
                number(row.load),
            ]
        })
        .collect();
    s.page.table(
        "scheduler | answers | mean | simulated | mean of small ones | median | simulated | load",
        &table,
    );
    claims(s, &rows);
    if !study.quick {
        PICTURES.iter().try_for_each(|picture| picture.draw(s, points, &rows))?;
    }
    s.page.csv("group-b", &rows)
}

/// What section 4.2.2 says of a large alpha.
fn claims(s: &mut Setting, rows: &[Row]) {
    let large = rows[2..].iter().find(|row| row.scheduler.ends_with("alpha=5,beta=0"));
    let Some(large) = large else { return };
    for (other, name) in [(&rows[1], "round-robin"), (&rows[0], "the kernel's own")] {
        let what = format!("web server under PBS, alpha 5, beta 0: mean of small answers beside {name}");
        s.page.goal(what, Limit::Most(1.0), large.small_mean_s / other.small_mean_s, "times");
    }
}
