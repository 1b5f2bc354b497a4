//! How exact on two CPUs; shares that can be had, and one that no single task can use.

use anyhow::Result;
use serde::Serialize;

use super::accuracy::short;
use super::parts::{errors, worst};
use super::{By, Client, Seen, Spec, Study, Work};
use crate::paper::Setting;
use crate::paper::page::{Limit, percent};

/// Shares, and what is due to clients of one task each: nobody can use more than one CPU.
const CASES: [(&str, &[u64], &[u64]); 2] =
    [("1:2:3:2", &[1, 2, 3, 2], &[1, 2, 3, 2]), ("1:1:6", &[1, 1, 6], &[1, 1, 2])];
/// The last of four clients with these shares sleeps: hardly, and most of the time.
const SLEEPERS: [u64; 4] = [1, 2, 3, 2];
/// How long it computes, and then sleeps, in ms.
const NAPS: [(f64, f64); 3] = [(100.0, 5.0), (10.0, 10.0), (10.0, 90.0)];
/// A client that leaves and comes back gains nothing.
const MAX_GAIN: f64 = 1.0;
/// The loader looks at who can use what five times a second.
const WARM_MS: u64 = 2_000;
const MAX_ERROR: f64 = 3.0;

#[derive(Serialize)]
struct Row {
    case: &'static str,
    scheduler: String,
    client: usize,
    share: u64,
    due: f64,
    service_s: f64,
}

/// Who divides both CPUs.
fn schedulers() -> [By; 3] {
    [By::Scx("stride".to_owned()), By::Scx("vtrr".to_owned()), By::Own]
}

/// With a thread of qemu's for each CPU, one now and then runs what the kernel has patched away, when sched_ext comes or goes.
const COUNTED: [&str; 2] = ["--profile", "two-cpus-counted"];

/// Both cases by stride and VTRR, and by the kernel's own scheduler.
pub(super) fn two_cpus(s: &mut Setting, study: &Study) -> Result<()> {
    let length = s.pick(12_000, 30_000);
    let schedulers = schedulers();
    let mut specs = Vec::new();
    for (case, shares, _) in CASES {
        for by in &schedulers {
            let name = format!("{case} on two CPUs, {}", by.text());
            let mut spec = Spec::new(name, by.clone(), shares, WARM_MS, length);
            spec.by_clock = true;
            specs.push(spec);
        }
    }
    let all = study.run_on(&COUNTED, specs)?;
    s.page.heading("Two CPUs");
    s.page.text(&format!(
        "Clients of one task each that compute, on two CPUs, {} s; what they got is told by their own CPU clocks. The second \
         case cannot be had as it is asked for: 6 of 8 of two CPUs is one and a half, of which one task can use one, and the others divide what \
         is left. The emulated CPUs take turns, and their clock counts the instructions of both.",
        length / 1_000
    ));
    let (mut table, mut data) = (Vec::new(), Vec::new());
    let of_cases = all.chunks(schedulers.len());
    for ((case, shares, due), of_case) in CASES.into_iter().zip(of_cases) {
        let sum: u64 = due.iter().sum();
        for (by, seen) in schedulers.iter().zip(of_case) {
            let service = seen.service()?;
            let (got, error) = (service.iter().sum::<f64>(), worst(&errors(&service, due)));
            let parts: Vec<String> = service.iter().map(|of| percent(of / got)).collect();
            let wanted: Vec<String> = due.iter().map(|&due| percent(due as f64 / sum as f64)).collect();
            table.push(vec![
                case.to_owned(),
                by.text(),
                parts.join(" : "),
                wanted.join(" : "),
                percent(error),
            ]);
            if let By::Scx(policy) = by {
                let goal = format!("{case} on two CPUs under {policy}: largest error of a client");
                s.page.goal(goal, Limit::Most(MAX_ERROR), error * 100.0, "%");
            }
            for (client, ((&share, &due), &service_s)) in shares.iter().zip(due).zip(&service).enumerate() {
                let due = due as f64 / sum as f64;
                data.push(Row { case, scheduler: short(by), client, share, due, service_s });
            }
        }
    }
    s.page.table("shares | scheduler | parts, % | due, % | largest error, %", &table);
    s.page.csv("two-cpus", &data)?;
    sleepers(s, study, length)
}

#[derive(Serialize)]
struct Sleeper {
    scheduler: String,
    work_ms: f64,
    sleep_ms: f64,
    client: usize,
    share: u64,
    /// Its part of both CPUs.
    part: f64,
    /// Of the sleeper its part while it is awake; of the others theirs of what it leaves.
    due: f64,
}

/// What a client that sleeps for `sleep` after each `work` has of two CPUs at its share whenever it is awake.
fn due((work, sleep): (f64, f64)) -> f64 {
    let rate = own_part() * 2.0;
    work / (work / rate + sleep) / 2.0
}

/// What the sleeper's share is worth, of two CPUs.
fn own_part() -> f64 {
    SLEEPERS[3] as f64 / SLEEPERS.iter().sum::<u64>() as f64
}

/// One client that sleeps beside three that compute, on two CPUs.
fn sleepers(s: &mut Setting, study: &Study, length: u64) -> Result<()> {
    let mut specs = Vec::new();
    for nap in NAPS {
        for by in schedulers() {
            let name = format!("{} ms of work and {} of sleep on two CPUs, {}", nap.0, nap.1, by.text());
            let mut spec = Spec::new(name, by, &SLEEPERS, WARM_MS, length);
            spec.by_clock = true;
            let work = Work::Naps { work_ms: nap.0, sleep_ms: nap.1 };
            spec.clients[3] = Client { work, ..Client::with_share(SLEEPERS[3]) };
            specs.push(spec);
        }
    }
    let all = study.run_on(&COUNTED, specs)?;
    s.page.text(&format!(
        "With one that sleeps: clients with shares {}, of which the last computes for a time, then sleeps for a time, again and again. What is \
         due to it is {} % of both CPUs while it is awake; who keeps what it was owed while it sleeps may give it more, up to so much of all \
         time. VTRR does not: of what a client had left in its cycle it comes back with no more than its part of the rest of it, which costs a fraction of a quantum \
         with each sleep. Others divide what it leaves, as 1:2:3. (A CPU that waits for its turn is charged as if it computed: 10 ms of work are up to 13 by \
         the sleeper's own clock.)",
        SLEEPERS.map(|share| share.to_string()).join(":"),
        percent(own_part()),
    ));
    let (mut table, mut data) = (Vec::new(), Vec::new());
    for (nap, of_nap) in NAPS.into_iter().zip(all.chunks(3)) {
        for (by, seen) in schedulers().iter().zip(of_nap) {
            sleeper(s, nap, by, seen, &mut table, &mut data)?;
        }
    }
    s.page.table(
        "work, ms | sleep, ms | scheduler | parts of both CPUs, % | due to the last, % | largest error of the others, %",
        &table,
    );
    s.page.csv("two-cpus-sleepers", &data)
}

/// One run's row, goals and data.
fn sleeper(
    s: &mut Setting,
    nap: (f64, f64),
    by: &By,
    seen: &Seen,
    table: &mut Vec<Vec<String>>,
    data: &mut Vec<Sleeper>,
) -> Result<()> {
    let (service, (from, to), due) = (seen.service()?, seen.ends()?, due(nap));
    let both = (to.at_ns - from.at_ns) as f64 / 1e9 * 2.0;
    let parts: Vec<f64> = service.iter().map(|of| of / both).collect();
    let others = worst(&errors(&service[..3], &SLEEPERS[..3]));
    table.push(vec![
        nap.0.to_string(),
        nap.1.to_string(),
        by.text(),
        parts.iter().map(|&part| percent(part)).collect::<Vec<_>>().join(" : "),
        percent(due),
        percent(others),
    ]);
    if let By::Scx(policy) = by {
        let who = format!("{} ms of work and {} of sleep on two CPUs under {policy}", nap.0, nap.1);
        let gain = (parts[3] / own_part() - 1.0) * 100.0;
        s.page.goal(format!("{who}: more than its share"), Limit::Most(MAX_GAIN), gain, "%");
        s.page.goal(
            format!("{who}: largest error of the others"),
            Limit::Most(MAX_ERROR),
            others * 100.0,
            "%",
        );
    }
    for (client, (&share, &part)) in SLEEPERS.iter().zip(&parts).enumerate() {
        let scheduler = short(by);
        let (work_ms, sleep_ms) = nap;
        let due = if client == 3 { due } else { share as f64 / 6.0 * (1.0 - parts[3]) };
        data.push(Sleeper { scheduler, work_ms, sleep_ms, client, share, part, due });
    }
    Ok(())
}
