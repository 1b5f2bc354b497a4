//! VTRR, sections 2 to 5.3, side by side, simulated.

mod cost;
mod surfaces;

use anyhow::{Result, anyhow};
use divvy_policy::dispatch::linux22::{Linux22, Linux22Params};
use divvy_policy::dispatch::service_error::{pair_errors, service_errors};
use divvy_policy::dispatch::vtrr::{Vtrr, VtrrParams};
use divvy_policy::dispatch::wfq::{Tie, Wfq, WfqParams};
use divvy_policy::dispatch::wrr::{Wrr, WrrParams};
use divvy_policy::{Grant, Nanos, Policy};
use serde::Serialize;

use super::experiment::Experiment;
use super::page::number;
use super::plot::{Axis, Plot, Style};
use super::simulated::{Busy, Reproduces, Simulated};
use crate::PaperArgs;

/// One part of the page.
/// Runs the experiments and writes `OUT/vtrr.md`.
///
/// # Errors
/// The first experiment or file that fails.
pub(crate) fn run(args: &PaperArgs) -> Result<()> {
    let mut study = Experiment::<Simulated>::new(args, "vtrr")?;
    study.parts(&[
        ("examples", examples),
        ("surfaces", surfaces::surfaces),
        ("cost", cost::cost),
        ("microscope", microscope),
    ])?;
    study.finish(
        "VTRR, side by side",
        &["Everything here is computed by the policies of `divvy-policy`; nothing ran under a kernel. Service errors are in \
           quanta (the paper's tu), behind below 0, ahead above. Where the paper's text leaves a choice, divvy's reading is in \
           the header of `dispatch/vtrr`."],
    )
}

/// The clients of the next `quanta` grants.
fn schedule<P: Policy<Decision = Grant>>(policy: P, shares: &[u64], quanta: usize) -> Result<Vec<usize>> {
    let mut busy = Busy::new(policy, shares.iter().copied(), 0)?;
    let next = |_| {
        let client = busy.grant().client.index();
        busy.step();
        client
    };
    Ok((0..quanta).map(next).collect())
}

#[derive(Serialize)]
struct Example {
    policy: &'static str,
    paper_order: &'static str,
    paper_errors: &'static str,
    order: String,
    errors: String,
    gap_of_a_and_b: String,
}

/// A, B, C with shares 3, 2, 1 (sections 2 and 3.1).
fn examples(study: &mut Experiment<Simulated>) -> Result<()> {
    let shares = [3, 2, 1];
    let wfq = |tie| Wfq::new(WfqParams { tie, ..WfqParams::default() }).map_err(|e| anyhow!("{e:?}"));
    let wrr = Wrr::new(WrrParams::default()).map_err(|e| anyhow!("{e:?}"))?;
    let vtrr = Vtrr::new(VtrrParams::default()).map_err(|e| anyhow!("{e:?}"))?;
    let runs = [
        ("WRR", "AAABBC", "-1 to 3/2", schedule(wrr, &shares, 6)?),
        ("WFQ, ties to the larger share", "-", "-5/6 to 1", schedule(wfq(Tie::LargerShare)?, &shares, 6)?),
        ("WFQ, ties to the next in turn", "ABABCA", "-", schedule(wfq(Tie::RoundRobin)?, &shares, 6)?),
        ("VTRR", "ABCABA", "A and B: 1/3", schedule(vtrr, &shares, 6)?),
    ];
    let mut rows = Vec::new();
    for (policy, paper_order, paper_errors, order) in runs {
        let errors = service_errors(&shares, &order).map_err(|e| anyhow!("{e:?}"))?.all;
        let gap = pair_errors(&shares, &order, 0, 1).map_err(|e| anyhow!("{e:?}"))?.virtual_gap;
        let order = order.iter().map(|&client| ["A", "B", "C"][client]).collect();
        let errors = format!("{} to {}", errors.min, errors.max);
        rows.push(Example {
            policy,
            paper_order,
            paper_errors,
            order,
            errors,
            gap_of_a_and_b: gap.to_string(),
        });
    }
    for row in &rows {
        let order = row.paper_order == "-" || row.paper_order == row.order;
        let errors = match row.paper_errors.strip_prefix("A and B: ") {
            Some(gap) => gap == row.gap_of_a_and_b,
            None => row.paper_errors == "-" || row.paper_errors == row.errors,
        };
        let ours = format!("{}; {}; A and B part by {}", row.order, row.errors, row.gap_of_a_and_b);
        let paper = format!("{}; {}", row.paper_order, row.paper_errors);
        study.claim(
            &format!("3, 2, 1 under {}", row.policy),
            &paper,
            &ours,
            Reproduces::when(order && errors),
        );
    }
    let together = rows.iter().any(|r| r.order == "ABABCA" && r.errors == "-5/6 to 1");
    study.claim(
        "3, 2, 1 under WFQ: the printed order has the printed errors",
        "ABABCA; -5/6 to 1",
        "ABABCA has -2/3 to 2/3; -5/6 to 1 belongs to ABAABC",
        Reproduces::when(together),
    );
    study.page.heading("Worked examples: shares 3, 2, 1");
    let line = |r: &Example| {
        [r.policy, r.paper_order, &r.order, r.paper_errors, &r.errors, &r.gap_of_a_and_b]
            .map(str::to_owned)
            .to_vec()
    };
    let table: Vec<Vec<String>> = rows.iter().map(line).collect();
    study.page.columns(
        &[
            "policy",
            "order, paper",
            "order, ours",
            "errors, paper",
            "errors, ours",
            "how far A and B part, quanta a share",
        ],
        &table,
    );
    study.page.text(
        "The paper prints one order and one range for WFQ; they belong to different rules for ties. Its \"error between A \
         and B\" is the largest difference of their virtual times.",
    );
    study.page.csv("examples", &rows)
}

const MICRO_CLIENTS: u64 = 5;
/// With shares 1 to 5 and quanta of 20 ms the pattern repeats after 300 ms, as the paper has it.
const MICRO_QUANTUM: Nanos = Nanos::from_millis(20);
const SECOND: u64 = 1_000_000_000;

#[derive(Serialize)]
struct Run {
    policy: &'static str,
    from_ms: f64,
    to_ms: f64,
    client: u32,
}

/// What one policy does in a second.
struct Second {
    policy: &'static str,
    runs: Vec<Run>,
    /// Of each client: time in ms, error in ms.
    errors: Vec<Vec<(f64, f64)>>,
}

impl Second {
    fn of<P: Policy<Decision = Grant>>(name: &'static str, policy: P) -> Result<Self> {
        let total: u64 = (1..=MICRO_CLIENTS).sum();
        let mut busy = Busy::new(policy, 1..=MICRO_CLIENTS, 0)?;
        let mut received = [0u64; MICRO_CLIENTS as usize];
        let mut second =
            Self { policy: name, runs: Vec::new(), errors: vec![vec![(0.0, 0.0)]; MICRO_CLIENTS as usize] };
        let mut at = 0;
        while at < SECOND {
            let Grant { client, slice, .. } = busy.grant();
            let ran = slice.0.min(SECOND - at);
            let ms = |ns: u64| ns as f64 / 1e6;
            let run = Run { policy: name, from_ms: ms(at), to_ms: ms(at + ran), client: client.0 + 1 };
            second.runs.push(run);
            at += ran;
            received[client.index()] += ran;
            for ((share, received), errors) in (1..).zip(received).zip(&mut second.errors) {
                let error = received as f64 - (at * share) as f64 / total as f64;
                errors.push((ms(at), error / 1e6));
            }
            busy.step();
        }
        Ok(second)
    }

    /// The length after which the schedule repeats, in ms: that of a cycle or of several; `None` within half a second.
    fn period_ms(&self) -> Option<f64> {
        let same = |shift: usize| {
            let pairs = self.runs.iter().zip(&self.runs[shift..]);
            // The last run is cut off.
            pairs.take(self.runs.len() - shift - 1).all(|(a, b)| {
                a.client == b.client && (a.to_ms - a.from_ms - (b.to_ms - b.from_ms)).abs() < 1e-6
            })
        };
        let shifts = 1..self.runs.len() / 2;
        shifts.into_iter().find(|&shift| same(shift)).map(|shift| self.runs[shift].from_ms)
    }

    fn extremes(&self) -> (f64, f64) {
        let all = self.errors.iter().flatten().map(|&(_, error)| error);
        all.fold((0.0, 0.0), |(low, high), e| (f64::min(low, e), f64::max(high, e)))
    }
}

/// Figures 4 to 6: one second of five clients with shares 1 to 5.
fn microscope(study: &mut Experiment<Simulated>) -> Result<()> {
    let quantum = MICRO_QUANTUM;
    let linux =
        Linux22Params { tick: Nanos::from_millis(10), ticks_per_share: 2, ..Linux22Params::default() };
    let seconds = [
        Second::of("Linux 2.2", Linux22::new(linux).map_err(|e| anyhow!("{e}"))?)?,
        Second::of(
            "WFQ",
            Wfq::new(WfqParams { quantum, ..WfqParams::default() }).map_err(|e| anyhow!("{e:?}"))?,
        )?,
        Second::of(
            "VTRR",
            Vtrr::new(VtrrParams { quantum, ..VtrrParams::default() }).map_err(|e| anyhow!("{e:?}"))?,
        )?,
        Second::of(
            "WRR",
            Wrr::new(WrrParams { quantum, ..WrrParams::default() }).map_err(|e| anyhow!("{e:?}"))?,
        )?,
    ];
    study.page.heading("Figures 4 to 6: one second under the microscope");
    study.page.text(
        "Five clients with shares 1 to 5 that never block, quanta of 20 ms. Linux 2.2 has priorities of 20 to 100 ms in place \
         of shares; without interrupts nothing disturbs its order, and a quantum is its priority and one tick of 10 ms. WRR is \
         not in the paper's figures.",
    );
    let line = |s: &Second| {
        let (low, high) = s.extremes();
        let period = s.period_ms().map_or_else(|| "none".to_owned(), |ms| format!("{ms:.0}"));
        vec![s.policy.to_owned(), s.runs.len().to_string(), period, number(low), number(high)]
    };
    let table: Vec<Vec<String>> = seconds.iter().map(line).collect();
    study.page.columns(
        &["policy", "runs", "repeats after, ms", "furthest behind, ms", "furthest ahead, ms"],
        &table,
    );
    let width = |at: usize| seconds[at].extremes().1 - seconds[at].extremes().0;
    let repeats = [1, 2].iter().all(|&at| seconds[at].period_ms() == Some(300.0));
    let repeated = format!("WFQ {}, VTRR {} ms", table[1][2], table[2][2]);
    study.claim("WFQ and VTRR repeat (Figs 5, 6)", "every 300 ms", &repeated, Reproduces::when(repeats));
    study.claim(
        "Linux is the least even at one second (Fig. 4)",
        "poorest of the three",
        &format!("width of errors, ms: Linux {:.0}, WFQ {:.0}, VTRR {:.0}", width(0), width(1), width(2)),
        Reproduces::when(width(0) > width(1) && width(0) > width(2)),
    );
    let linux_repeats = seconds[0].period_ms();
    study.claim(
        "Linux has no repeating pattern (Fig. 4)",
        "none, because interrupts reorder it",
        &linux_repeats.map_or_else(
            || "none".to_owned(),
            |ms| format!("repeats after {ms:.0} ms: the simulation has no interrupts"),
        ),
        Reproduces::when(linux_repeats.is_none()),
    );
    for second in &seconds {
        let file = second.policy.to_lowercase().replace([' ', '.'], "-");
        let mut plot =
            Plot::new(format!("Who runs in one second: {}", second.policy), "time, ms", "client (its share)");
        plot.y_axis = Axis::Rows;
        // Close points make a bar.
        let bars = second.runs.iter().flat_map(|run| {
            let long = run.to_ms - run.from_ms;
            (0..=40).map(move |k| (run.from_ms + long * f64::from(k) / 40.0, f64::from(run.client)))
        });
        plot.add("runs", Style::Points, bars.collect());
        study.page.plot(&format!("schedule-{file}"), &plot)?;
        let mut plot = Plot::new(
            format!("Service error in one second: {}", second.policy),
            "time, ms",
            "service error, ms",
        );
        for (share, errors) in (1..).zip(&second.errors) {
            plot.add(format!("share {share}"), Style::Line, errors.clone());
        }
        study.page.plot(&format!("error-{file}"), &plot)?;
    }
    let runs: Vec<&Run> = seconds.iter().flat_map(|second| &second.runs).collect();
    study.page.csv("microscope", &runs)
}
