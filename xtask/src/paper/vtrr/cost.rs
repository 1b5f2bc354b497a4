//! Figure 3: what a decision costs, by number of clients.

use anyhow::{Result, anyhow};
use divvy_linux::clock;
use divvy_policy::dispatch::fixed::Fixed;
use divvy_policy::dispatch::linux22::{Linux22, Linux22Params};
use divvy_policy::dispatch::lottery::{self, Lottery, LotteryParams};
use divvy_policy::dispatch::pbs::{Alpha, Guard, Pbs, PbsParams, Search};
use divvy_policy::dispatch::rng::SplitMix64;
use divvy_policy::dispatch::stride::{Stride, StrideParams};
use divvy_policy::dispatch::vtrr::{Insert, Vtrr, VtrrParams};
use divvy_policy::dispatch::wfq::{Queue, Wfq, WfqParams};
use divvy_policy::{Grant, Policy};
use indicatif::ProgressBar;
use serde::Serialize;

use crate::paper::experiment::Experiment;
use crate::paper::page::{Limit, number};
use crate::paper::plot::{Axis, Legend, Plot, Style};
use crate::paper::simulated::{Busy, Reproduces, Simulated};
use crate::paper::stats::median;

const SIZES: [u32; 9] = [1, 10, 50, 100, 150, 200, 1_000, 10_000, 100_000];
/// What the median is taken over lasts about so long, ns.
const BATCH_NS: u64 = 200_000;

#[derive(Serialize)]
struct Cost {
    policy: &'static str,
    clients: u32,
    median_ns: f64,
    least_ns: f64,
    batches: usize,
}

/// How long one cell is measured.
#[derive(Clone, Copy)]
struct Patience {
    warm_ns: u64,
    measured_ns: u64,
}

/// One decision: the client that runs is charged, its CPU comes free, the next client is chosen.
fn measure<P: Policy<Decision = Grant>>(
    name: &'static str,
    policy: P,
    clients: u32,
    patience: Patience,
) -> Result<Cost> {
    let mut rng = SplitMix64::new(1);
    let shares = (0..clients).map(|_| 1 + rng.below(100));
    let mut busy = Busy::new(policy, shares, 1_000)?;
    // Past the start, where all virtual times are equal, as far as patience goes.
    let (start, mut decided) = (clock::now(), 0u64);
    while decided < 3 * u64::from(clients) && clock::now().since(start).0 < patience.warm_ns {
        (0..64).for_each(|_| busy.step());
        decided += 64;
    }
    let mut batch = |decisions: u64| {
        let from = clock::now();
        (0..decisions).for_each(|_| busy.step());
        clock::now().since(from).0
    };
    let mut decisions = 1;
    while batch(decisions) < BATCH_NS / 2 {
        decisions *= 2;
    }
    let (from, mut costs) = (clock::now(), Vec::new());
    while clock::now().since(from).0 < patience.measured_ns {
        costs.push(batch(decisions) as f64 / decisions as f64);
    }
    let least_ns = costs.iter().copied().fold(f64::INFINITY, f64::min);
    let median_ns = median(&costs).unwrap_or(f64::NAN);
    Ok(Cost { policy: name, clients, median_ns, least_ns, batches: costs.len() })
}

/// The cell of `clients` under each policy; `None` where building it alone would take minutes.
fn cells(clients: u32, patience: Patience) -> Result<Vec<Cost>> {
    let bad = |e: divvy_policy::RangeError| anyhow!("{e:?}");
    let vtrr = |insert| Vtrr::new(VtrrParams { insert, ..VtrrParams::default() }).map_err(bad);
    let wfq = |queue| Wfq::new(WfqParams { queue, ..WfqParams::default() }).map_err(bad);
    let lottery = |search| Lottery::new(LotteryParams { search, ..LotteryParams::default() }).map_err(bad);
    let pbs = |search| {
        let alpha = Alpha::Finite(Fixed(3 << 30));
        Pbs::new(PbsParams { alpha, search, guard: Guard::Study, ..PbsParams::default() })
            .map_err(|e| anyhow!("{e:?}"))
    };
    let linux = Linux22::new(Linux22Params { ticks_per_share: 1, ..Linux22Params::default() });
    let mut costs =
        vec![measure("VTRR, classes", vtrr(Insert::Classes { max_share: 1_000 })?, clients, patience)?];
    if clients <= 10_000 {
        costs.push(measure("VTRR, traverse", vtrr(Insert::Traverse)?, clients, patience)?);
    }
    costs.push(measure("WFQ, heap", wfq(Queue::Heap)?, clients, patience)?);
    costs.push(measure("WFQ, list", wfq(Queue::List)?, clients, patience)?);
    costs.push(measure("Linux 2.2", linux.map_err(|e| anyhow!("{e}"))?, clients, patience)?);
    costs.push(measure("lottery, tree", lottery(lottery::Search::Tree)?, clients, patience)?);
    costs.push(measure("lottery, list", lottery(lottery::Search::List)?, clients, patience)?);
    let stride = Stride::new(StrideParams::default()).map_err(bad)?;
    costs.push(measure("stride, heap", stride, clients, patience)?);
    costs.push(measure("PBS, O(n)", pbs(Search::Scan)?, clients, patience)?);
    costs.push(measure("PBS, O(1)", pbs(Search::Sample { keep: 2, sample: 2 })?, clients, patience)?);
    Ok(costs)
}

/// Measures all cells, states the goals, draws.
pub(super) fn cost(study: &mut Experiment<Simulated>) -> Result<()> {
    let patience = study.pick(
        Patience { warm_ns: 50_000_000, measured_ns: 30_000_000 },
        Patience { warm_ns: 600_000_000, measured_ns: 300_000_000 },
    );
    let (mut costs, bar) = (Vec::new(), ProgressBar::new(SIZES.len() as u64).with_message("Fig. 3"));
    for clients in SIZES {
        costs.extend(cells(clients, patience)?);
        bar.inc(1);
    }
    bar.finish();
    let of = |policy: &str, clients: u32| {
        let cell = costs.iter().find(|c| c.policy == policy && c.clients == clients);
        cell.map_or(f64::NAN, |c| c.median_ns)
    };
    let many: Vec<f64> = SIZES.iter().filter(|&&n| n >= 10).map(|&n| of("VTRR, classes", n)).collect();
    let flat = many.iter().copied().fold(0.0, f64::max) / many.iter().copied().fold(f64::INFINITY, f64::min);
    let heap = |n| of("WFQ, heap", n) / of("VTRR, classes", n);
    study.page.heading("Figure 3: what choosing a client costs");
    study.page.text(
        "One decision is: the client that runs is charged, its CPU comes free, the next one is chosen. Shares are uniform in 1 \
         to 100. Medians of batches of about 0.2 ms, in ns. \"Traverse\" is not built for 100,000 clients: inserting them one by \
         one along the queue is what `classes` is for; choosing is the same.",
    );
    study.page.goal(
        "VTRR from 10 to 100,000 clients: dearest over cheapest",
        Limit::Most(1.5),
        flat,
        "times",
    );
    study.page.goal("heap WFQ over VTRR at 200 clients", Limit::Least(6.0), heap(200), "times");
    study.page.goal("heap WFQ over VTRR at 100,000 clients", Limit::Least(20.0), heap(100_000), "times");
    claims(study, &of);
    let mut policies: Vec<&str> = Vec::new();
    for cost in &costs {
        if !policies.contains(&cost.policy) {
            policies.push(cost.policy);
        }
    }
    let line = |policy: &&str| {
        let cells = SIZES.iter().map(|&n| number(of(policy, n)));
        std::iter::once((*policy).to_owned()).chain(cells).collect()
    };
    let table: Vec<Vec<String>> = policies.iter().map(line).collect();
    let names = SIZES.map(|n| n.to_string());
    let head: Vec<&str> = std::iter::once("clients").chain(names.iter().map(String::as_str)).collect();
    study.page.columns(&head, &table);
    let draw = |title: &str, most: u32, x_axis| {
        let mut plot = Plot::new(title, "clients", "ns a decision (median)");
        (plot.x_axis, plot.y_axis, plot.legend) = (x_axis, Axis::Log, Legend::Left);
        for policy in &policies {
            let sizes = SIZES.iter().filter(|&&n| n <= most);
            let points = sizes.map(|&n| (f64::from(n), of(policy, n))).filter(|p| p.1.is_finite());
            plot.add(*policy, Style::Line, points.collect());
        }
        plot
    };
    study.page.plot(
        "cost-200",
        &draw("Figure 3: cost of choosing a client, 1 to 200 clients", 200, Axis::Linear),
    )?;
    study.page.plot("cost", &draw("Cost of choosing a client, 1 to 100,000 clients", 100_000, Axis::Log))?;
    study.page.csv("cost", &costs)
}

/// What section 5.2 says.
fn claims(study: &mut Experiment<Simulated>, of: &dyn Fn(&str, u32) -> f64) {
    let vtrr = |n| of("VTRR, classes", n);
    let times = |what: &str| format!("{} times", number(of(what, 200) / vtrr(200)));
    let flat = of("VTRR, classes", 200) / vtrr(10);
    study.claim(
        "VTRR chooses in constant time up to 200 clients (Fig. 3)",
        "less than 800 ns, constant",
        &format!("{} ns at 10, {} ns at 200", number(vtrr(10)), number(vtrr(200))),
        Reproduces::when(flat <= 1.5 && vtrr(200) < 800.0),
    );
    let ratio = |what| of(what, 200) / vtrr(200);
    let near = |ratio: f64, enough: f64| match ratio {
        r if r >= enough => Reproduces::Yes,
        r if r > 1.5 => Reproduces::Partly,
        _ => Reproduces::No,
    };
    let heap = near(ratio("WFQ, heap"), 6.0);
    study.claim("Heap WFQ over VTRR at 200 clients", "more than 6 times", &times("WFQ, heap"), heap);
    let linux = near(ratio("Linux 2.2"), 100.0);
    study.claim("Linux 2.2 over VTRR at 200 clients", "100 times", &times("Linux 2.2"), linux);
    let grows = |what: &str| of(what, 200) > 2.0 * of(what, 10);
    study.claim(
        "Linux 2.2 and list WFQ grow with the number of clients",
        "linearly",
        &format!(
            "200 over 50 clients: Linux {} times, WFQ {} times",
            number(of("Linux 2.2", 200) / of("Linux 2.2", 50)),
            number(of("WFQ, list", 200) / of("WFQ, list", 50))
        ),
        Reproduces::when(grows("Linux 2.2") && grows("WFQ, list")),
    );
    let single = of("Linux 2.2", 1) / vtrr(200);
    let reproduces = near(single, 8.0);
    study.claim(
        "Linux 2.2 with one client over VTRR with 200",
        "almost 10 times",
        &format!("{} times: a scheduler's call in its kernel is not in ours", number(single)),
        reproduces,
    );
}
