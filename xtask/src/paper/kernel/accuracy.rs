//! How exact: three clients with shares 1, 2, 3, and fifty with shares by chance.

use anyhow::Result;
use divvy_sim::rng::SplitMix64;
use serde::Serialize;

use super::parts::{errors, rms, simulated, worst};
use super::{By, Seen, Spec, Study};
use crate::paper::Setting;
use crate::paper::page::{Limit, percent};
use crate::paper::plot::{Axis, Plot, Style};

const THREE: [u64; 3] = [1, 2, 3];
/// An instruction takes 8 ns.
const SHIFT: u32 = 3;
/// Of VTRR's own implementation (section 5.3).
const QUANTUM_MS: u64 = 20;
/// One tick of the kernel.
const SHORT_MS: u64 = 4;
/// How often clients are looked at where an end is chosen.
const TAIL_MS: u64 = 2;

#[derive(Serialize)]
struct Row {
    scheduler: String,
    client: usize,
    share: u64,
    service_s: f64,
    error: f64,
}

fn rows(by: &str, seen: &Seen, shares: &[u64]) -> Result<Vec<Row>> {
    let service = seen.service()?;
    let errors = errors(&service, shares);
    let one = |(client, ((&share, &service_s), error))| Row {
        scheduler: by.to_owned(),
        client,
        share,
        service_s,
        error,
    };
    Ok(shares.iter().zip(&service).zip(errors).enumerate().map(one).collect())
}

/// Runs of `length` ms, or a little more: to where the clients have had whole cycles.
fn in_whole_cycles(
    study: &Study,
    schedulers: &[By],
    shares: &[u64],
    quantum_ms: u64,
    warm: impl Fn(&By) -> u64,
    length: u64,
) -> Result<Vec<Seen>> {
    let cycle = shares.iter().sum::<u64>() * quantum_ms;
    // A little of the CPU is nobody's, so that a cycle of service takes longer than a cycle.
    let tail = cycle + cycle / 5;
    let spec = |by: &By| {
        let mut spec = Spec::new(by.text(), by.clone(), shares, warm(by), length);
        spec.tail_ms = Some((TAIL_MS, tail));
        spec
    };
    let all = study.run(SHIFT, schedulers.iter().map(spec).collect())?;
    let looks = usize::try_from(tail / TAIL_MS)?;
    all.into_iter().map(|seen| seen.in_whole_cycles(cycle as f64 / 1e3, looks)).collect()
}

/// 1:2:3, by everything that there is.
pub(super) fn three(s: &mut Setting, study: &Study) -> Result<()> {
    let (warm, length) = (1_200, s.pick(6_000, 40_000));
    let schedulers = [
        By::Scx("stride".to_owned()),
        By::Scx("vtrr".to_owned()),
        By::Scx("pbs:alpha=2".to_owned()),
        By::Scx("las".to_owned()),
        By::Scx("lottery:seed=7".to_owned()),
        By::Gate("exact".to_owned(), 10),
        By::Gate("vtrr".to_owned(), QUANTUM_MS),
        By::Gate("stride".to_owned(), QUANTUM_MS),
        By::Own,
    ];
    // PBS and LAS look at what a client has had since it came: no part of that may be left out.
    let from = |by: &By| match by {
        By::Scx(policy) if policy.starts_with("pbs") || policy == "las" => 0,
        _ => warm,
    };
    let all = in_whole_cycles(study, &schedulers, &THREE, QUANTUM_MS, from, length)?;
    s.page.heading("Three clients, 1:2:3");
    s.page.text(&format!(
        "{} s of clients that compute, and on to the end of a cycle of what they got, {} ns an instruction, quanta of {QUANTUM_MS} ms (10 ms under the gate `exact`). Errors are fractions of a client's \
         due part of what the three got, of which a quantum is {} % for the first; simulated: the same policy and span without any cost; the fluid model is the due part \
         itself. Of a lottery a standard deviation of the first client's part is {} %.",
        length / 1_000,
        1 << study.shift(SHIFT),
        percent(QUANTUM_MS as f64 * 6.0 / length as f64),
        percent(sigma(1.0 / 6.0, length as f64 / QUANTUM_MS as f64) * 6.0)
    ));
    let (mut table, mut data) = (Vec::new(), Vec::new());
    for (by, seen) in schedulers.iter().zip(&all) {
        let (service, text) = (seen.service()?, by.text());
        let errors = errors(&service, &THREE);
        let sum: f64 = service.iter().sum();
        let model = match by {
            By::Scx(policy) | By::Gate(policy, _) => policy.split(':').next().unwrap_or_default(),
            By::Own => "",
        };
        let model = simulated(model, QUANTUM_MS, &THREE, from(by), from(by) + length)
            .map_or_else(|_| "-".to_owned(), |got| percent(worst(&super::parts::errors(&got, &THREE))));
        let (start, end) = seen.ends()?;
        let used = sum / ((end.at_ns - start.at_ns) as f64 / 1e9);
        let part = |i: usize| percent(service[i] / sum);
        table.push(vec![
            text.clone(),
            part(0),
            part(1),
            part(2),
            percent(worst(&errors)),
            model,
            percent(used),
        ]);
        data.extend(rows(&text, seen, &THREE)?);
        match by {
            By::Scx(policy) if policy == "stride" || policy == "vtrr" => {
                s.page.goal(
                    format!("1:2:3 under {policy}: largest error of a client"),
                    Limit::Most(0.5),
                    worst(&errors) * 100.0,
                    "%",
                );
            }
            By::Scx(policy) if policy.starts_with("pbs") || policy == "las" => {
                s.page.goal(
                    format!("1:2:3 under {policy}: largest error of a client"),
                    Limit::Most(3.0),
                    worst(&errors) * 100.0,
                    "%",
                );
            }
            _ => {}
        }
    }
    s.page.table(
        "scheduler | first, % | second, % | third, % | largest error, % | simulated, % | CPU left to clients, %",
        &table,
    );
    s.page.csv("three", &data)
}

/// Standard deviation of the part of `draws` that somebody wins with chance `p`.
pub(super) fn sigma(p: f64, draws: f64) -> f64 {
    (p * (1.0 - p) / draws).sqrt()
}

/// Fifty shares of 1 to 10, the same in every run.
fn fifty() -> Vec<u64> {
    let mut random = SplitMix64::new(13);
    (0..50).map(|_| 1 + random.next_u64() % 10).collect()
}

/// Fifty clients with random shares.
pub(super) fn many(s: &mut Setting, study: &Study) -> Result<()> {
    let shares = fifty();
    let sum: u64 = shares.iter().sum();
    // Whole cycles.
    let (warm, length) = (sum * SHORT_MS, s.pick(10, 80) * sum * SHORT_MS);
    let schedulers = [
        By::Scx(format!("stride:quantum={SHORT_MS}ms")),
        By::Scx(format!("vtrr:quantum={SHORT_MS}ms")),
        By::Own,
    ];
    let all = in_whole_cycles(study, &schedulers, &shares, SHORT_MS, |_| warm, length)?;
    s.page.heading("Fifty clients with random shares");
    s.page.text(&format!(
        "Shares of 1 to 10, {sum} in all, quanta of {SHORT_MS} ms, one tick: a cycle takes {:.2} s. {:.1} s of clients that \
         compute, after a first cycle, and on to where they have had whole cycles, {} ns an instruction. A quantum is {} % of what the smallest client gets meanwhile.",
        (sum * SHORT_MS) as f64 / 1e3,
        length as f64 / 1e3,
        1 << study.shift(SHIFT),
        percent(sum as f64 * SHORT_MS as f64 / length as f64)
    ));
    let (mut table, mut data) = (Vec::new(), Vec::new());
    let mut plot = Plot::new("Fifty clients: error by share", "share", "error, %");
    plot.y_axis = Axis::Linear;
    for (by, seen) in schedulers.iter().zip(&all) {
        let (service, text) = (seen.service()?, by.text());
        let errors = errors(&service, &shares);
        let name = match by {
            By::Scx(policy) => policy.split(':').next().unwrap_or_default(),
            _ => "",
        };
        let model = simulated(name, SHORT_MS, &shares, warm, warm + length)
            .map_or_else(|_| "-".to_owned(), |got| percent(worst(&super::parts::errors(&got, &shares))));
        let (start, end) = seen.ends()?;
        let used = service.iter().sum::<f64>() / ((end.at_ns - start.at_ns) as f64 / 1e9);
        table.push(vec![text.clone(), percent(worst(&errors)), percent(rms(&errors)), model, percent(used)]);
        data.extend(rows(&text, seen, &shares)?);
        plot.add(
            short(by),
            Style::Points,
            shares.iter().zip(&errors).map(|(&share, e)| (share as f64, e * 100.0)).collect(),
        );
        if let By::Scx(_) = by {
            s.page.goal(
                format!("50 clients under {name}: largest error of a client"),
                Limit::Most(2.0),
                worst(&errors) * 100.0,
                "%",
            );
        }
    }
    s.page.table(
        "scheduler | largest error, % | root mean square, % | largest, simulated, % | CPU left to clients, %",
        &table,
    );
    s.page.plot("clients", &plot)?;
    s.page.csv("clients", &data)
}

/// A name for a legend.
pub(super) fn short(by: &By) -> String {
    match by {
        By::Own => "kernel's weights".to_owned(),
        By::Scx(policy) => format!("sched_ext {}", policy.split(':').next().unwrap_or_default()),
        By::Gate(policy, _) => format!("live gate {}", policy.split(':').next().unwrap_or_default()),
    }
}
