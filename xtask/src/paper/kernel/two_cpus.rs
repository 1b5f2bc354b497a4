//! How exact on two CPUs; shares that can be had, and one that no single task can use.

use anyhow::Result;
use serde::Serialize;

use super::accuracy::short;
use super::parts::{errors, worst};
use super::{By, Spec, Study};
use crate::paper::Setting;
use crate::paper::page::{Limit, percent};

/// Shares, and what is due to clients of one task each: nobody can use more than one CPU.
const CASES: [(&str, &[u64], &[u64]); 2] =
    [("1:2:3:2", &[1, 2, 3, 2], &[1, 2, 3, 2]), ("1:1:6", &[1, 1, 6], &[1, 1, 2])];
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

/// Both cases by stride and VTRR, and by the kernel's own scheduler.
pub(super) fn two_cpus(s: &mut Setting, study: &Study) -> Result<()> {
    let length = s.pick(12_000, 30_000);
    let schedulers = [By::Scx("stride".to_owned()), By::Scx("vtrr".to_owned()), By::Own];
    let mut specs = Vec::new();
    for (case, shares, _) in CASES {
        for by in &schedulers {
            let name = format!("{case} on two CPUs, {}", by.text());
            let mut spec = Spec::new(name, by.clone(), shares, WARM_MS, length);
            spec.by_clock = true;
            specs.push(spec);
        }
    }
    // With a thread of qemu's for each CPU, one now and then runs what the kernel has patched away, when sched_ext comes or goes.
    let all = study.run_on(&["--profile", "two-cpus-counted"], specs)?;
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
    s.page.csv("two-cpus", &data)
}
