//! 4 to 64 simulated CPUs, random shares and threads.

use anyhow::Result;
use divvy_engine::Session;
use divvy_policy::feasible::{Claim, water_fill};
use divvy_policy::{ClientId, Instant, Nanos, Share};
use divvy_sim::live::{MachineSpec, Program, SimHost};
use divvy_sim::rng::SplitMix64;
use serde::Serialize;

use crate::paper::page::{Limit, percent};
use crate::paper::stats::{median, worst};
use crate::paper::{Setting, gate};

/// So many CPUs.
const CPUS: [u32; 4] = [4, 8, 16, 64];
/// Cycles that are left out at the start.
const START_UP_CYCLES: u64 = 5;

#[derive(Debug, Serialize)]
struct Row {
    cpus: u32,
    seed: u64,
    clients: usize,
    threads: u32,
    capped: usize,
    cycles: u64,
    error_median: f64,
    error_mean: f64,
    /// Of the worst client, against the capped optimum in CPU time.
    long_run_error: f64,
    used: f64,
    overhead: f64,
}

struct Load {
    share: u64,
    threads: u32,
}

/// Clients of a random number, with random shares and threads: enough threads for all CPUs, and often shares that are
/// not feasible.
fn loads(cpus: u32, rng: &mut SplitMix64) -> Vec<Load> {
    let mut loads = Vec::new();
    let least = u64::from(cpus) + rng.below(2 * u64::from(cpus));
    let mut threads = 0;
    while threads < least || loads.len() < 3 {
        let wide = 1 + rng.below(4);
        // One in eight asks for far more than its threads can use.
        let share = if rng.below(8) == 0 { 20 + rng.below(80) } else { 1 + rng.below(10) };
        threads += wide;
        loads.push(Load { share, threads: wide as u32 });
    }
    loads
}

fn simulate(cpus: u32, seed: u64, cycles: u64) -> Result<Row> {
    let loads = loads(cpus, &mut SplitMix64::new(seed));
    let mut spec = gate("exact", 10);
    spec.cpus = cpus;
    let mut host = SimHost::new(MachineSpec::typical(cpus, seed));
    for load in &loads {
        host.add_client(vec![Program::compute(); load.threads as usize]);
    }
    let mut engine = Session::new(&spec, host)?;
    for load in &loads {
        engine.join(Share::new(load.share)?)?;
    }
    let used = |engine: &Session<SimHost>| -> Vec<f64> {
        (0..loads.len()).map(|i| engine.host().used(ClientId(i as u32)).0 as f64).collect()
    };
    let give_up = Instant(Nanos::from_secs(3600).0);
    let until = |engine: &mut Session<SimHost>, ended: u64| -> Result<()> {
        while engine.ledger().cycles().ended < ended && engine.host().time() < give_up {
            engine.turn(Some(give_up))?;
        }
        Ok(())
    };
    until(&mut engine, START_UP_CYCLES)?;
    let (before, from, own) = (used(&engine), engine.host().time(), engine.self_cost().cpu);
    until(&mut engine, START_UP_CYCLES + cycles)?;
    let wall = engine.host().time().since(from).0 as f64;
    let got: Vec<f64> = used(&engine).iter().zip(&before).map(|(now, before)| now - before).collect();
    let claims: Vec<Claim> = loads
        .iter()
        .map(|l| Ok(Claim { share: Share::new(l.share)?, width: l.threads }))
        .collect::<Result<_>>()?;
    let due: Vec<f64> = water_fill(&claims, cpus).iter().map(|c| c.as_f64()).collect();
    let all: f64 = got.iter().sum();
    let total: f64 = due.iter().sum();
    let errors = got.iter().zip(&due).map(|(got, due)| (got / all / (due / total) - 1.0).abs());
    let stats = engine.ledger().cycles().errors().unwrap_or_default();
    Ok(Row {
        cpus,
        seed,
        clients: loads.len(),
        threads: loads.iter().map(|l| l.threads).sum(),
        capped: loads.iter().zip(&due).filter(|(l, due)| **due >= f64::from(l.threads) - 1e-9).count(),
        cycles: engine.ledger().cycles().counted(),
        error_median: stats.median,
        error_mean: stats.mean,
        long_run_error: worst(errors),
        used: all / (wall * f64::from(cpus)),
        overhead: (engine.self_cost().cpu.0 - own.0) as f64 / wall,
    })
}

/// The part of the page.
pub(super) fn run(s: &mut Setting) -> Result<()> {
    let (seeds, cycles) = s.pick((2, 10), (12, 100));
    let mut rows = Vec::new();
    for cpus in CPUS {
        eprintln!("{cpus} simulated CPUs");
        for seed in 1..=seeds {
            s.bench.check()?;
            rows.push(simulate(cpus, seed, cycles)?);
        }
    }
    s.page.heading("4 to 64 CPUs, simulated");
    s.page.text(
        "The engine and gate that run live, over a simulated kernel (4 ms ticks, wake-ups late by tens of microseconds and one \
         in 500 by milliseconds, each call at its cost). Shares and threads are random by the seed: 1 to 10, one in eight 20 to \
         99; 1 to 4 threads; one to three threads for each CPU. The optimum gives each as many CPUs as it has threads, or \
         its share of what is left (water-filling). Errors against it, in %; the long run is that of the worst client.",
    );
    let table: Vec<Vec<String>> = rows
        .iter()
        .map(|r| {
            let counts = [
                u64::from(r.cpus),
                r.seed,
                r.clients as u64,
                u64::from(r.threads),
                r.capped as u64,
                r.cycles,
            ];
            let numbers = [r.error_median, r.error_mean, r.long_run_error, r.used, r.overhead];
            counts.map(|n| n.to_string()).into_iter().chain(numbers.map(percent)).collect()
        })
        .collect();
    s.page.table(
        "CPUs | seed | clients | threads | capped | cycles | median error | mean | long run | used | own CPU",
        &table,
    );
    s.page.csv("simulated", &rows)?;
    for cpus in CPUS {
        let of = || rows.iter().filter(move |r| r.cpus == cpus);
        let medians: Vec<f64> = of().map(|r| r.error_median).collect();
        let name = |what: &str| format!("{cpus} simulated CPUs: {what}");
        s.page.goal(
            name("median error, worst seed"),
            Limit::Most(1.0),
            worst(medians.iter().copied()) * 100.0,
            "%",
        );
        s.page.goal(
            name("median error, median seed"),
            Limit::Most(1.0),
            median(&medians).unwrap_or(f64::NAN) * 100.0,
            "%",
        );
        s.page.goal(
            name("long run, worst client of any seed"),
            Limit::Most(1.0),
            worst(of().map(|r| r.long_run_error)) * 100.0,
            "%",
        );
        let least = of().map(|r| r.used).fold(f64::INFINITY, f64::min);
        s.page.goal(name("used, least"), Limit::Least(98.0), least * 100.0, "%");
    }
    Ok(())
}
