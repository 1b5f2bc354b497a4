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

fn schedulers() -> Vec<By> {
    let policies = ["stride", "vtrr", "lottery:seed=7", "rr"].map(|policy| By::Scx(policy.to_owned()));
    policies.into_iter().chain([By::Own]).collect()
}

/// A crowd that wakes at once, as nobody else is there, asks for four fifths of the CPU,
const CROWD: Work = Work::Wakes { workers: 100, every_ms: 1_000.0, work_ms: 8.0 };
/// and one that has its part of the CPU whenever it wakes for less than a tenth.
const NAPS: Work = Work::Naps { work_ms: 5.0, sleep_ms: 50.0 };
/// Of its work under the kernel's own scheduler.
const MIN_WORK: f64 = 0.9;

pub(super) fn wakers(s: &mut Setting, study: &Study) -> Result<()> {
    many(s, study)?;
    at_once(s, study)
}

/// One that wakes, and one that computes, with the same share.
fn many(s: &mut Setting, study: &Study) -> Result<()> {
    let length = s.pick(6_000, 30_000);
    let schedulers = schedulers();
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

/// A crowd that wakes at once, and one that comes while it has the CPU.
fn at_once(s: &mut Setting, study: &Study) -> Result<()> {
    let length = s.pick(6_000, 30_000);
    let schedulers = schedulers();
    let spec = |by: &By| {
        let name = format!("a crowd that wakes at once, {}", by.text());
        let mut spec = Spec::new(name, by.clone(), &[1, 1], WARM_MS, length);
        spec.clients[0].work = CROWD;
        spec.clients[1].work = NAPS;
        spec
    };
    let all = study.run(SHIFT, schedulers.iter().map(spec).collect())?;
    let service = all.iter().map(|seen| seen.service()).collect::<Result<Vec<_>>>()?;
    let own = service.last().map_or(0.0, |own| own[1]);
    s.page.text(&format!(
        "A process wakes 100 others each second, each of which works for 8 ms; beside them one with the same share works for 5 ms and sleeps for 50, \
         again and again, for {} s. Work that was done, in seconds. When each of the crowd that came while nobody else was there had a place in the CPU's own queue, \
         whoever came next waited for all of them.",
        length / 1_000
    ));
    let mut table = Vec::new();
    for (by, service) in schedulers.iter().zip(&service) {
        table.push(vec![by.text(), format!("{:.2}", service[0]), format!("{:.3}", service[1])]);
        if let By::Scx(policy) = by {
            s.page.goal(
                format!(
                    "beside a crowd of 100 that wakes at once under {policy}: work, beside the kernel's own"
                ),
                Limit::Least(MIN_WORK),
                service[1] / own,
                "times",
            );
        }
    }
    s.page.table("scheduler | the crowd, s | the other, s", &table);
    Ok(())
}
