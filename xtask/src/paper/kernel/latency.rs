//! How long wake-ups take, and how fast two processes hand a byte to and fro, beside the kernel's own scheduler.

use anyhow::Result;
use serde::Serialize;

use super::accuracy::short;
use super::{By, Client, Seen, Spec, Study, Work};
use crate::paper::Setting;
use crate::paper::page::{Limit, number};

/// An instruction takes 2 ns: what a wake-up costs is then what it costs on a machine of today.
const SHIFT: u32 = 1;
const WARM_MS: u64 = 200;
/// No worse than so many times the kernel's own.
const MAX_RATIO: f64 = 1.2;
/// As schbench does it: one process wakes five, which work for a little. They come one after another, so that delays have as many
/// steps: the median of an even number would be at the edge of one, where one late cycle in a hundred counts as all of them.
const WAKES: Work = Work::Wakes { workers: 5, every_ms: 20.0, work_ms: 0.5 };

/// What clients do, and how it is called.
const CASES: [(&str, &[Work]); 4] = [
    ("ping-pong, alone", &[Work::PingPong]),
    ("ping-pong, beside one that computes", &[Work::PingPong, Work::Computes]),
    ("five workers, alone", &[WAKES]),
    ("five workers, beside two that compute", &[WAKES, Work::Computes, Work::Computes]),
];

#[derive(Serialize)]
struct Row {
    scheduler: String,
    case: &'static str,
    rounds_a_second: Option<f64>,
    wake_ups: usize,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    max_us: Option<f64>,
    switches: u64,
}

fn row(by: &By, case: &'static str, seen: &Seen) -> Result<Row> {
    let (from, to) = seen.ends()?;
    let seconds = (to.at_ns - from.at_ns) as f64 / 1e9;
    let waking = !seen.latencies_ns.is_empty();
    let p = |p| waking.then(|| seen.latency_us(p)).transpose();
    Ok(Row {
        scheduler: short(by),
        case,
        rounds_a_second: (!waking).then(|| (to.done[0] - from.done[0]) as f64 / seconds),
        wake_ups: seen.latencies_ns.len(),
        p50_us: p(0.5)?,
        p99_us: p(0.99)?,
        max_us: p(1.0)?,
        switches: seen.switches,
    })
}

/// The kernel's own first, then ours; goals by how many times as long, or as slow.
pub(super) fn latency(s: &mut Setting, study: &Study) -> Result<()> {
    let schedulers = [By::Own, By::Scx("stride".to_owned()), By::Scx("vtrr".to_owned())];
    let length = s.pick(1_000, 2_000);
    let mut specs = Vec::new();
    for (case, works) in CASES {
        for by in &schedulers {
            let mut spec = Spec::new(
                format!("{case}, {}", by.text()),
                by.clone(),
                &vec![1; works.len()],
                WARM_MS,
                length,
            );
            spec.clients = works.iter().map(|&work| Client { work, ..Client::with_share(1) }).collect();
            specs.push(spec);
        }
    }
    let all = study.run(SHIFT, specs)?;
    s.page.heading("Wake-ups and switches");
    s.page.text(&format!(
        "Ping-pong: two processes of a client pass a byte to and fro through pipes; rounds in a second, two switches each. Five workers: a \
         process wakes five others by a futex every 20 ms, each of which works for 0.5 ms, as schbench does it; from the moment before the \
         call that wakes to the worker's next instruction. The five come one after another: the median has to wait for two of its fellows. \
         Clients have equal shares; {length} ms, {} ns an instruction. The ratio is how many times as slow, or as late, as under the kernel's \
         own scheduler.",
        1 << study.shift(SHIFT)
    ));
    let (mut table, mut data) = (Vec::new(), Vec::new());
    for ((case, _), of_case) in CASES.iter().zip(all.chunks(schedulers.len())) {
        let rows: Vec<Row> =
            schedulers.iter().zip(of_case).map(|(by, seen)| row(by, case, seen)).collect::<Result<_>>()?;
        for at in 0..rows.len() {
            let (own, ours) = (&rows[0], &rows[at]);
            let mut ratios = Vec::new();
            if let (Some(own), Some(ours)) = (own.rounds_a_second, ours.rounds_a_second) {
                ratios.push(("rounds", own / ours));
            }
            if let (Some(own), Some(ours)) = (own.p50_us, ours.p50_us) {
                ratios.push(("median", ours / own));
            }
            if let (Some(own), Some(ours)) = (own.p99_us, ours.p99_us) {
                ratios.push(("99th percentile", ours / own));
            }
            let cell = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number);
            let text = ratios.iter().map(|(_, ratio)| number(*ratio)).collect::<Vec<_>>().join(", ");
            table.push(vec![
                (*case).to_owned(),
                ours.scheduler.clone(),
                cell(ours.rounds_a_second),
                cell(ours.p50_us),
                cell(ours.p99_us),
                cell(ours.max_us),
                text,
            ]);
            if at > 0 {
                for (what, ratio) in ratios {
                    s.page.goal(
                        format!("{case} under {}: {what} beside the kernel's own", ours.scheduler),
                        Limit::Most(MAX_RATIO),
                        ratio,
                        "times",
                    );
                }
            }
        }
        data.extend(rows);
    }
    s.page.table(
        "case | scheduler | rounds/s | median, us | 99th percentile, us | longest, us | ratios",
        &table,
    );
    s.page.csv("latency", &data)
}
