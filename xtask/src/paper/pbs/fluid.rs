//! Figures 2 and 3 and the eleven properties, of the fluid model.

use anyhow::{Context as _, Result, anyhow};
use divvy_policy::dispatch::pbs_fluid::{FluidPbs, FluidTask, SetChange};
use serde::Serialize;

use crate::paper::areas::{AreaPanel, Areas};
use crate::paper::experiment::Experiment;
use crate::paper::simulated::{Reproduces, Simulated};

const GOLDEN: &str = include_str!("../../../../golden/pbs_fluid.json");
const ALPHAS_2: [f64; 6] = [0.01, 0.4, 1.0, 2.0, 100.0, f64::INFINITY];
const ALPHAS_3: [f64; 6] = [0.01, 0.1, 0.4, 1.0, 2.0, 100.0];

fn model(alpha: f64, arrivals: &[f64], demands: &[f64]) -> Result<FluidPbs> {
    let tasks: Vec<FluidTask> =
        arrivals.iter().zip(demands).map(|(&arrival, &demand)| FluidTask { arrival, demand }).collect();
    FluidPbs::new(alpha, &tasks).map_err(|e| anyhow!("{e}"))
}

/// Processor shares over 0 to `end` seconds, and the model at the end.
fn shares(mut model: FluidPbs, tasks: usize, end: f64) -> (Vec<(f64, Vec<f64>)>, FluidPbs) {
    const STEPS: u32 = 1_200;
    let mut samples = Vec::new();
    for step in 0..=STEPS {
        let at = end * f64::from(step) / f64::from(STEPS);
        model.advance(at);
        samples.push((at, (0..tasks).map(|task| model.share(task)).collect()));
    }
    // Beyond the last departure, rounded as it may be.
    model.advance(end + 1e-6);
    (samples, model)
}

#[derive(Serialize)]
struct Sample {
    alpha: f64,
    time_s: f64,
    task: usize,
    share: f64,
}

fn flat(alpha: f64, samples: &[(f64, Vec<f64>)]) -> impl Iterator<Item = Sample> {
    let every = samples.iter().step_by(10);
    every.flat_map(move |(time_s, shares)| {
        (1..).zip(shares).map(move |(task, &share)| Sample { alpha, time_s: *time_s, task, share })
    })
}

/// Four tasks, shares over 12 s, by alpha.
pub(super) fn figure_2(study: &mut Experiment<Simulated>) -> Result<()> {
    let (arrivals, demands) = ([0.0, 1.0, 3.0, 5.0], [4.5, 2.5, 3.0, 2.0]);
    let golden: Vec<serde_json::Value> = serde_json::from_str(GOLDEN).context("golden/pbs_fluid.json")?;
    let (mut panels, mut table, mut csv, mut worst) = (Vec::new(), Vec::new(), Vec::new(), 0.0_f64);
    let mut near_limits = Vec::new();
    for alpha in ALPHAS_2 {
        let (samples, model) = shares(model(alpha, &arrivals, &demands)?, 4, 12.0);
        let completions: Vec<f64> = (0..4).map(|task| model.completion(task).unwrap_or(f64::NAN)).collect();
        let case = golden.iter().find(|case| {
            case["note"] == "Fig. 2" && (case["alpha"].as_f64().unwrap_or(f64::INFINITY) - alpha).abs() < 1e-9
                || (alpha.is_infinite() && case["note"] == "Fig. 2" && case["alpha"] == "inf")
        });
        let case = case.ok_or_else(|| anyhow!("golden/pbs_fluid.json has no Figure 2 with alpha {alpha}"))?;
        for (task, ours) in completions.iter().enumerate() {
            let off = (ours - case["completion"][task].as_f64().unwrap_or(f64::NAN)).abs();
            worst = if off.is_nan() { f64::INFINITY } else { worst.max(off) };
        }
        near_limits.push(completions.clone());
        table.push(
            std::iter::once(alpha.to_string()).chain(completions.iter().map(|c| format!("{c:.4}"))).collect(),
        );
        csv.extend(flat(alpha, &samples));
        panels.push(AreaPanel { title: format!("alpha = {alpha}"), samples });
    }
    study.page.heading("Figure 2: processor shares of four tasks");
    study.page.text(&format!(
        "Tasks start at 0, 1, 3, 5 s and need 4.5, 2.5, 3, 2 s. Times of completion in s; they differ by at most {worst:.1e} s \
         from `golden/pbs_fluid.json`."
    ));
    study.page.columns(&["alpha", "task 1", "task 2", "task 3", "task 4"], &table);
    let off = |at: usize, want: [f64; 4]| {
        near_limits[at].iter().zip(want).fold(0.0, |m: f64, (a, b)| m.max((a - b).abs()))
    };
    let (fcfs, las) = (off(0, [4.5, 7.0, 10.0, 12.0]), off(4, [12.0, 9.5, 10.5, 8.0]));
    study.claim(
        "alpha = 0.01 is almost FCFS, alpha = 100 almost LAS (Fig. 2)",
        "differences too small to see",
        &format!("completions differ by {fcfs:.4} s and {las:.3} s"),
        Reproduces::when(fcfs < 0.06 && las < 0.06),
    );
    let labels = (1..=4).map(|task| format!("task {task}")).collect();
    let title = "Figure 2: processor shares of four tasks".to_owned();
    let areas = Areas { title, x: "time, s".to_owned(), y: "part of the CPU".to_owned(), labels, panels };
    study.page.picture("figure-2", &areas.title, |dir| areas.write(dir, "figure-2"))?;
    study.page.csv("figure-2", &csv)
}

/// One task, and four more at 2.5 s.
pub(super) fn figure_3(study: &mut Experiment<Simulated>) -> Result<()> {
    let (arrivals, demands) = ([0.0, 2.5, 2.5, 2.5, 2.5], [f64::INFINITY; 5]);
    let (mut panels, mut table, mut csv) = (Vec::new(), Vec::new(), Vec::new());
    let (mut out_at_5, mut interrupted, mut drop_at) = (false, 0, f64::NAN);
    for alpha in ALPHAS_3 {
        let (samples, model) = shares(model(alpha, &arrivals, &demands)?, 5, 20.0);
        let text: Vec<String> = model
            .events()
            .iter()
            .filter(|event| event.task == 0)
            .map(|event| {
                let what = match event.change {
                    SetChange::Join => "joins",
                    SetChange::Drop => "drops out",
                    SetChange::Interrupt => "is interrupted",
                };
                format!("{what} at {:.3} s", event.at)
            })
            .collect();
        interrupted += usize::from(!text.is_empty());
        if (alpha - 0.4).abs() < 1e-9 {
            out_at_5 = samples.iter().any(|(at, shares)| (at - 5.0).abs() < 0.01 && shares[0] == 0.0);
            drop_at = model.events().first().map_or(f64::NAN, |event| event.at);
        }
        let text = if text.is_empty() { "always scheduled".to_owned() } else { text.join(", ") };
        table.push(vec![alpha.to_string(), text]);
        csv.extend(flat(alpha, &samples));
        panels.push(AreaPanel { title: format!("alpha = {alpha}"), samples });
    }
    study.claim(
        "Task 1 becomes non-scheduled at 5 s for alpha = 0.4 (Fig. 3)",
        "at 5 s",
        &format!("drops out at {drop_at:.3} s; at 5 s it is {}", if out_at_5 { "out" } else { "in" }),
        if out_at_5 { Reproduces::Partly } else { Reproduces::No },
    );
    let all = interrupted == ALPHAS_3.len();
    let ours = format!("{interrupted} of {} alphas; none for alpha up to 1/3", ALPHAS_3.len());
    study.claim("Task 1 is interrupted in all cases (Fig. 3)", "all", &ours, Reproduces::when(all));
    study.page.heading("Figure 3: four arrivals at once");
    study.page.text(
        "One persistent task, and four more at 2.5 s. The paper says that with alpha = 0.4 task 1 becomes non-scheduled at 5 s, \
         and that it is interrupted in all cases. Neither comes out of the paper's own equations (8 and 10): its share reaches 0 \
         earlier, as below, and it never does for alpha up to 1/3. The property that the figure is to show (11) holds.",
    );
    study.page.columns(&["alpha", "task 1"], &table);
    let labels = (1..=5).map(|task| format!("task {task}")).collect();
    let title = "Figure 3: processor shares when four tasks arrive at once".to_owned();
    let areas = Areas { title, x: "time, s".to_owned(), y: "part of the CPU".to_owned(), labels, panels };
    study.page.picture("figure-3", &areas.title, |dir| areas.write(dir, "figure-3"))?;
    study.page.csv("figure-3", &csv)
}

/// The eleven properties and the tests that check them.
pub(super) fn properties(study: &mut Experiment<Simulated>) -> Result<()> {
    const ROWS: [(&str, &str, &str); 11] = [
        ("1", "Finite priority", "properties_1_2_3_9"),
        ("2", "Faster priority increase for non-scheduled", "properties_1_2_3_9"),
        ("3", "Basic fairness toward seniors", "properties_1_2_3_9"),
        ("4", "Immediate service", "properties_4_5"),
        ("5", "Everybody contributes to the newcomer", "properties_4_5"),
        ("6", "Quick start with a large alpha", "property_6"),
        ("7", "Slow start with a small alpha", "property_7"),
        ("8", "Everybody benefits from the departed", "property_8"),
        ("9", "Newcomers always have share", "properties_1_2_3_9"),
        ("10", "No deprivation with a large alpha", "properties_10_11"),
        ("11", "Possible deprivation from seniors with a small alpha", "properties_10_11"),
    ];
    const TESTS: &str = include_str!("../../../../crates/divvy-policy/tests/paper_pbs.rs");
    for (_, what, test) in ROWS {
        anyhow::ensure!(TESTS.contains(&format!("fn {test}(")), "{what}: there is no test {test}");
    }
    study.page.heading("The eleven properties (section 3.2)");
    study.page.text(
        "Each is a property test over random arrivals in `crates/divvy-policy/tests/paper_pbs.rs`, for the fluid model; \
         `cargo test -p divvy-policy --test paper_pbs` runs them. This page names the tests, it does not run them.",
    );
    let table: Vec<Vec<String>> = ROWS
        .iter()
        .map(|&(nr, what, test)| vec![nr.to_owned(), what.to_owned(), format!("`{test}`")])
        .collect();
    study.page.columns(&["", "property", "test"], &table);
    Ok(())
}
