//! VTRR, Figs 4 to 6: one second of five clients with shares 1 to 5.

use anyhow::Result;
use serde::Serialize;

use super::accuracy::short;
use super::parts::simulated;
use super::{By, Seen, Spec, Study};
use crate::paper::Setting;
use crate::paper::page::number;
use crate::paper::plot::{Plot, Style};

const SHARES: [u64; 5] = [1, 2, 3, 4, 5];
const QUANTUM_MS: u64 = 20;
/// An instruction takes 2 ns.
const SHIFT: u32 = 1;
const LOOK_MS: u64 = 2;
const SECOND_MS: u64 = 1_000;
/// With more runs than that in the second, only its beginning is drawn.
const RUNS_SHOWN: usize = 150;
const CLOSE_MS: u64 = 120;
/// Whole cycles of 300 ms come before.
const WARM_MS: u64 = 1_200;

#[derive(Serialize)]
struct Row {
    scheduler: String,
    t_ms: f64,
    share: u64,
    error_ms: f64,
}

/// Service errors of each client in ms, at times in ms, against the fluid model over what all of them got.
fn service_errors(course: &[(f64, Vec<f64>)]) -> Vec<(f64, Vec<f64>)> {
    let sum: u64 = SHARES.iter().sum();
    let start = course.first().map_or(0.0, |(t, _)| *t);
    let one = |(t, done): &(f64, Vec<f64>)| {
        let all: f64 = done.iter().sum();
        let error = |(share, done): (&u64, &f64)| (done - all * *share as f64 / sum as f64) * 1e3;
        ((t - start) * 1e3, SHARES.iter().zip(done).map(error).collect())
    };
    course.iter().map(one).collect()
}

fn extremes(errors: &[(f64, Vec<f64>)]) -> (f64, f64) {
    let all = errors.iter().flat_map(|(_, errors)| errors);
    all.fold((0.0, 0.0), |(low, high), &e| (f64::min(low, e), f64::max(high, e)))
}

/// How often another client has the CPU than at the look before, in looks at which exactly one had worked.
fn runs(seen: &Seen) -> usize {
    let mut last = None;
    let mut count = 0;
    for pair in seen.looks.windows(2) {
        let worked: Vec<usize> =
            (0..SHARES.len()).filter(|&id| pair[1].done[id] > pair[0].done[id]).collect();
        if let [one] = worked[..] {
            count += usize::from(last != Some(one));
            last = Some(one);
        }
    }
    count
}

fn model(policy: &str) -> Result<Vec<(f64, Vec<f64>)>> {
    (0..=SECOND_MS / LOOK_MS)
        .map(|n| {
            let ms = n * LOOK_MS;
            Ok((ms as f64 / 1e3, simulated(policy, QUANTUM_MS, &SHARES, WARM_MS, WARM_MS + ms)?))
        })
        .collect()
}

/// The second under the microscope.
pub(super) fn microscope(s: &mut Setting, study: &Study) -> Result<()> {
    let schedulers = [
        By::Scx("vtrr".to_owned()),
        By::Scx("stride".to_owned()),
        By::Gate("vtrr".to_owned(), QUANTUM_MS),
        By::Own,
    ];
    let spec = |by: &By| {
        let mut spec = Spec::new(by.text(), by.clone(), &SHARES, WARM_MS, SECOND_MS);
        spec.every_ms = LOOK_MS;
        spec
    };
    let all = study.run(SHIFT, schedulers.iter().map(spec).collect())?;
    s.page.heading("VTRR: one second under the microscope (section 5.3, Figs 4 to 6)");
    s.page.text(&format!(
        "Five clients with shares 1 to 5, quanta of {QUANTUM_MS} ms, looked at every {LOOK_MS} ms. The paper shows no numbers: Linux of \
         its day is the least even of the three, WFQ and VTRR repeat every 300 ms. Service errors are against the fluid model \
         over what the five got. {} ns an instruction.",
        1 << study.shift(SHIFT)
    ));
    let mut series = vec![
        ("simulated vtrr".to_owned(), service_errors(&model("vtrr")?), None),
        ("simulated stride".to_owned(), service_errors(&model("stride")?), None),
    ];
    for (by, seen) in schedulers.iter().zip(&all) {
        series.push((short(by), service_errors(&seen.course()?), Some(runs(seen))));
    }
    let (mut table, mut data) = (Vec::new(), Vec::new());
    for (name, errors, runs) in &series {
        let (low, high) = extremes(errors);
        let runs = runs.map_or_else(|| "-".to_owned(), |runs| runs.to_string());
        table.push(vec![name.clone(), number(low), number(high), runs]);
        for (t_ms, errors) in errors {
            let row = |(share, &error_ms)| Row { scheduler: name.clone(), t_ms: *t_ms, share, error_ms };
            data.extend((1..).zip(errors).map(row));
        }
    }
    s.page.table("scheduler | furthest behind, ms | furthest ahead, ms | runs seen in the second", &table);
    for (name, errors, runs) in &series {
        if runs.is_none() && name != "simulated vtrr" {
            continue;
        }
        // Who switches every few ms would be a scribble over a whole second.
        let shown_ms = if runs.is_some_and(|runs| runs > RUNS_SHOWN) { CLOSE_MS } else { SECOND_MS };
        let span =
            if shown_ms == SECOND_MS { "one second".to_owned() } else { format!("the first {shown_ms} ms") };
        let mut plot = Plot::new(format!("Service error in {span}: {name}"), "time, ms", "service error, ms");
        for (at, share) in SHARES.iter().enumerate() {
            let shown = errors.iter().filter(|(t, _)| *t <= shown_ms as f64);
            plot.add(format!("share {share}"), Style::Line, shown.map(|(t, e)| (*t, e[at])).collect());
        }
        s.page.plot(&format!("error-{}", name.replace(['_', ' ', '\''], "-")), &plot)?;
    }
    s.page.csv("microscope", &data)
}
