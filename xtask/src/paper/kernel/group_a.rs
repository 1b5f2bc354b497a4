//! PBS, group A (section 4.2.1, Fig. 7): eight users that think and compute, by alpha and beta, beside the simulator.

use anyhow::Result;
use serde::Serialize;
use serde_json::json;

use super::parts::{OverAlpha, simulated_pbs};
use super::{By, Client, Seen, Spec, Study, Work};
use crate::paper::Setting;
use crate::paper::page::number;
use crate::paper::pbs::{Outcome, group_a_outcomes};

const USERS: usize = 8;
/// The paper's slice.
const SLICE_MS: u64 = 4;
/// An instruction takes 64 ns: a machine of 15 million a second, so that twenty minutes of its clock are over in one.
const SHIFT: u32 = 6;
const STRETCHES: u32 = 6;
const STRETCH_MS: f64 = 500.0;
/// Alpha and beta. With beta = inf every alpha is the same: all came at once.
const POINTS: [(&str, &str); 7] =
    [("1", "inf"), ("0.1", "-3"), ("0.4", "-3"), ("2", "-3"), ("0.1", "0"), ("0.4", "0"), ("2", "0")];

/// Fig. 7.
const PICTURES: [OverAlpha<Row>; 2] = [
    OverAlpha {
        name: "group-a",
        title: "Group A: mean answer",
        measured: |row| row.mean_s,
        simulated: |row| row.simulated_s,
    },
    OverAlpha {
        name: "group-a-deviation",
        title: "Group A: standard deviation of answers",
        measured: |row| row.sd_s,
        simulated: |row| row.simulated_sd_s,
    },
];

#[derive(Serialize)]
struct Row {
    scheduler: String,
    answers: usize,
    mean_s: f64,
    sd_s: f64,
    /// Standard error of the mean, as if answers were independent of each other.
    error_s: f64,
    simulated_s: Option<f64>,
    simulated_half_width_s: Option<f64>,
    simulated_sd_s: Option<f64>,
}

fn row(scheduler: String, seen: &Seen, simulated: Option<&Outcome>) -> Row {
    let times: Vec<f64> = seen.latencies_ns.iter().map(|&ns| ns as f64 / 1e9).collect();
    let count = times.len().max(1) as f64;
    let mean = times.iter().sum::<f64>() / count;
    let sd = (times.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / count).sqrt();
    Row {
        scheduler,
        answers: times.len(),
        mean_s: mean,
        sd_s: sd,
        error_s: sd / count.sqrt(),
        simulated_s: simulated.map(|o| o.mean.mean),
        simulated_half_width_s: simulated.map(|o| o.mean.half_width),
        simulated_sd_s: simulated.map(|o| o.sd),
    }
}

/// Eight users under the kernel's own scheduler, round-robin and PBS.
pub(super) fn group_a(s: &mut Setting, study: &Study) -> Result<()> {
    let (warm_ms, length_ms) = s.pick((20_000, 100_000), (400_000, 800_000));
    let pbs = |(alpha, beta): &(&str, &str)| format!("pbs:quantum={SLICE_MS}ms,alpha={alpha},beta={beta}");
    let mut schedulers = vec![By::Own, By::Scx(format!("rr:quantum={SLICE_MS}ms"))];
    let points = &POINTS[..s.pick(2, POINTS.len())];
    schedulers.extend(points.iter().map(|point| By::Scx(pbs(point))));
    let work = Work::Thinks { think_ms: 25_000.0, stretches: STRETCHES, work_ms: STRETCH_MS, gap_ms: 10.0 };
    let spec = |by: &By| {
        let mut spec = Spec::new(by.text(), by.clone(), &[1; USERS], warm_ms, length_ms);
        spec.clients = vec![Client { work, ..Client::with_share(1) }; USERS];
        spec
    };
    let all = study.run(SHIFT, schedulers.iter().map(spec).collect())?;
    let policies: Vec<_> = std::iter::once(json!("rr")).chain(points.iter().map(simulated_pbs)).collect();
    let simulated = group_a_outcomes(&policies)?;
    let mut rows = Vec::new();
    for (at, (by, seen)) in schedulers.iter().zip(&all).enumerate() {
        rows.push(row(by.text(), seen, at.checked_sub(1).map(|at| &simulated[at])));
    }
    s.page.heading("PBS: eight users that think and compute (group A, section 4.2.1, Fig. 7)");
    s.page.text(&format!(
        "Each user thinks for 25 s on average, by an exponential distribution, then has six stretches of {STRETCH_MS} ms computed with 10 ms \
         between them, as in the paper; slices of {SLICE_MS} ms. {} s after the first {} s, {} ns an instruction; a stretch is what a client \
         that has the machine for itself does in {STRETCH_MS} ms. Every scheduler has the same thinking times. An answer's time is that from \
         the end of thinking to the end of the last stretch; `+-` is twice its standard error, as if answers were independent. Simulated: \
         the same without any cost, thinking times by another generator, intervals of 95 %. The delay is the mean less the 3 s of work; in the paper it is 10 to \
         30 % less than under round-robin with beta = +inf, 30 to 40 % with beta = -3 and alpha below 0.5, 0 to 10 % with beta = 0 and alpha below 1.",
        length_ms / 1_000,
        warm_ms / 1_000,
        1 << study.shift(SHIFT)
    ));
    let work_s = f64::from(STRETCHES) * STRETCH_MS / 1e3;
    let less = |of: f64, than: f64| number((1.0 - (of - work_s) / (than - work_s)) * 100.0);
    let mut table = Vec::new();
    for row in &rows {
        let (rr, of_rr) = (&rows[1], row.simulated_s.zip(rows[1].simulated_s));
        table.push(vec![
            row.scheduler.clone(),
            row.answers.to_string(),
            format!("{} +- {}", number(row.mean_s), number(2.0 * row.error_s)),
            row.simulated_s.zip(row.simulated_half_width_s).map_or_else(
                || "-".to_owned(),
                |(mean, half)| format!("{} +- {}", number(mean), number(half)),
            ),
            less(row.mean_s, rr.mean_s),
            of_rr.map_or_else(|| "-".to_owned(), |(of, rr)| less(of, rr)),
            number(row.sd_s),
            row.simulated_sd_s.map_or_else(|| "-".to_owned(), number),
        ]);
    }
    s.page.table(
        "scheduler | answers | mean, s | simulated, s | delay less than under rr, % | simulated, % | standard deviation, s | simulated, s",
        &table,
    );
    if !study.quick {
        PICTURES.iter().try_for_each(|picture| picture.draw(s, points, &rows))?;
    }
    s.page.csv("group-a", &rows)
}
