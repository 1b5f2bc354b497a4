//! A client that wakes many of its own in its turns gains nothing by it.

use anyhow::Result;
use serde::Serialize;

use super::accuracy::short;
use super::{By, Spec, Study, Work};
use crate::paper::Setting;
use crate::paper::page::{Limit, percent};

const SHIFT: u32 = 3;
const WARM_MS: u64 = 1_000;
const QUANTUM_S: f64 = 0.02;
const WORKERS: u32 = 15;
/// They ask for many times the CPU.
const EVERY_MS: f64 = 1.0;
const WORK_MS: f64 = 3.0;
const MAX_GAIN: f64 = 1.0;
/// Of a lottery, in standard deviations of the number of wins.
const MAX_SIGMAS: f64 = 3.0;

#[derive(Serialize)]
struct Row {
    scheduler: String,
    waker_s: f64,
    other_s: f64,
}

/// One that wakes, and one that computes, with the same share.
pub(super) fn wakers(s: &mut Setting, study: &Study) -> Result<()> {
    let length = s.pick(6_000, 30_000);
    let policies = ["stride", "vtrr", "lottery:seed=7", "rr"].map(|policy| By::Scx(policy.to_owned()));
    let schedulers: Vec<By> = policies.into_iter().chain([By::Own]).collect();
    let work = Work::Wakes { workers: WORKERS, every_ms: EVERY_MS, work_ms: WORK_MS };
    let spec = |by: &By| {
        let name = format!("one that wakes {WORKERS}, {}", by.text());
        let mut spec = Spec::new(name, by.clone(), &[1, 1], WARM_MS, length);
        spec.clients[0].work = work;
        spec
    };
    let all = study.run(SHIFT, schedulers.iter().map(spec).collect())?;
    s.page.heading("A client that wakes many of its own");
    s.page.text(&format!(
        "Beside one that computes, with the same share, for {} s: a process wakes {WORKERS} others each {EVERY_MS} ms, each of which works for {WORK_MS} ms. \
         Who is woken in the turn of another of its client may go on with it. When all of them were put into the CPU's own queue, the policy \
         was not asked before the last of them had run: the client had 59 % under a lottery and 56 % under round-robin.",
        length / 1_000
    ));
    let (mut table, mut data) = (Vec::new(), Vec::new());
    for (by, seen) in schedulers.iter().zip(&all) {
        let service = seen.service()?;
        let sum: f64 = service.iter().sum();
        let part = service[0] / sum;
        table.push(vec![by.text(), percent(part), percent(service[1] / sum)]);
        data.push(Row { scheduler: short(by), waker_s: service[0], other_s: service[1] });
        let By::Scx(policy) = by else { continue };
        let who = format!("one that wakes {WORKERS} under {policy}: more than its half");
        if policy.starts_with("lottery") {
            // Of n draws half, with a standard deviation of a half of the root of n.
            let deviation = (sum / QUANTUM_S).sqrt() / 2.0 * QUANTUM_S / sum;
            s.page.goal(who, Limit::Most(MAX_SIGMAS), (part - 0.5) / deviation, "sigma");
        } else if policy != "rr" {
            s.page.goal(who, Limit::Most(MAX_GAIN), (part / 0.5 - 1.0) * 100.0, "%");
        }
    }
    s.page.table("scheduler | the one that wakes, % | the other, %", &table);
    s.page.csv("wakers", &data)
}
