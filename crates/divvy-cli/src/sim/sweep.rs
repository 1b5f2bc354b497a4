//! `divvy sim sweep`: a grid of parameters, with replications, on all cores.

use divvy_sim::output::Report;
use divvy_sim::scenario::{Scenario, ScenarioError};
use divvy_sim::study::{Study, Summary, SummaryRow};
use indicatif::{ProgressBar, ProgressStyle};
use rayon::prelude::*;
use serde_json::Value;

use super::args::SweepArgs;
use super::picture;
use super::source::{Source, has_param, label, usage};
use super::table::{lines, number};
use crate::{Code, Failure, print, tell};

pub(super) fn run(args: &SweepArgs) -> Result<Code, Failure> {
    let mut source = Source::new(&args.scenario, Some(&args.policy))?;
    source.check_outputs(&args.picture, &None)?;
    let scenario = &mut source.scenario;
    scenario.replications = args.replications.unwrap_or(scenario.replications);
    let mut keys: Vec<String> = Vec::new();
    for vary in &args.vary {
        let (key, values) = parse_vary(vary, scenario)?;
        scenario.sweep.insert(key.clone(), values);
        keys.push(key);
    }
    if args.vary.is_empty() {
        keys = scenario.sweep.keys().cloned().collect();
    } else {
        scenario.sweep.retain(|key, _| keys.contains(key));
    }
    if scenario.replications == 0 {
        return Err(usage("--replications 0: expected at least 1"));
    }
    let study = Study::new(&source.scenario).map_err(|error| by_flag(error, args, &source))?;
    let reports = run_all(&study, &source, "runs")?;
    let cut = reports.iter().filter(|(_, report)| super::text::cut_off(report).is_some()).count();
    let summary = study.merge(reports);
    let measures = measures(&summary, &args.measure)?;
    if args.json {
        print(serde_json::to_string_pretty(&summary).unwrap_or_default())?;
    } else if args.csv {
        print(summary.to_csv().trim_end())?;
    } else {
        let name = title(&source.scenario);
        print(format!("{name}\n\n{}", lines(&rows(&summary, &keys, &measures)).join("\n")))?;
    }
    if args.picture.svg.is_some() || args.picture.png.is_some() {
        let chart = picture::of_summary(&summary, &keys, &measures, args.plot, &title(&source.scenario))?;
        picture::write(&args.picture, &chart)?;
    }
    if cut > 0 {
        tell(format_args!(
            "divvy: {cut} of {} runs could not end and were cut off at their limit",
            study.len()
        ));
        return Ok(Code::Failed);
    }
    Ok(Code::Done)
}

/// Errors of keys that `--vary` names are errors of the command line.
fn by_flag(error: ScenarioError, args: &SweepArgs, source: &Source) -> Failure {
    let key = error.key();
    if args.vary.is_empty() {
        return source.failure(error);
    }
    usage(format!("--vary {}: {}", key.strip_prefix("sweep.").unwrap_or(&key), error.message))
}

fn title(scenario: &Scenario) -> String {
    let mut parts: Vec<String> = scenario.name.iter().cloned().collect();
    let (mut policy, decider) = (scenario.decider().clone(), scenario.decider_key());
    policy.params.retain(|key, _| !scenario.sweep.contains_key(&format!("{decider}.params.{key}")));
    if !scenario.sweep.contains_key(decider) {
        parts.push(label(&policy));
    }
    if scenario.replications > 1 {
        parts.push(format!("{} replications", scenario.replications));
    }
    parts.join(", ")
}

/// `key=a,b,c`; a key without dots that the policy has as a parameter is that parameter.
fn parse_vary(text: &str, scenario: &Scenario) -> Result<(String, Vec<Value>), Failure> {
    let Some((key, list)) = text.split_once('=') else {
        return Err(usage(format!("--vary {text}: no values, expected key=a,b,c")));
    };
    let is_param = !key.contains('.') && has_param(&scenario.decider().name, key);
    let key = if is_param { format!("{}.params.{key}", scenario.decider_key()) } else { key.to_owned() };
    let values: Vec<Value> = list.split(',').map(str::trim).filter(|v| !v.is_empty()).map(value).collect();
    if values.is_empty() {
        return Err(usage(format!("--vary {text}: no values, expected key=a,b,c")));
    }
    Ok((key, values))
}

/// A number, true or false, or a word.
fn value(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(value @ (Value::Number(_) | Value::Bool(_))) => value,
        _ => Value::String(text.into()),
    }
}

/// Runs a study on all cores, with a bar on standard error while it lasts.
pub(super) fn run_all(study: &Study, source: &Source, what: &str) -> Result<Vec<(usize, Report)>, Failure> {
    let bar = ProgressBar::new(study.len() as u64);
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}, {eta} left");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.set_message(what.to_owned());
    let items: Vec<_> = study.items().collect();
    let done = items.par_iter().map(|item| {
        let report = divvy_sim::policies::run(&item.scenario, item.seed, &source.files);
        bar.inc(1);
        report.map(|report| (item.index, slim(report)))
    });
    let done: Result<Vec<_>, _> = done.collect();
    bar.finish_and_clear();
    done.map_err(|error| source.sim_failure(error))
}

/// A report without what a summary does not use: memory for many of them.
fn slim(mut report: Report) -> Report {
    if report.schedule.as_ref().is_some_and(|schedule| schedule.len() > 64) {
        report.schedule = None;
    }
    report.timeline = None;
    report.series = None;
    report
}

/// The measures to show: those asked for, or what such scenarios are run for.
fn measures(summary: &Summary, asked: &[String]) -> Result<Vec<String>, Failure> {
    let known: Vec<&str> =
        summary.points.first().map(|row| row.measures.keys().copied().collect()).unwrap_or_default();
    if let Some(wrong) = asked.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(usage(format!("--measure {wrong}: expected one of {}", known.join(", "))));
    }
    if !asked.is_empty() {
        return Ok(asked.to_vec());
    }
    let usual: &[&str] = if known.contains(&"response_mean") {
        &["response_mean"]
    } else if known.contains(&"error_min") {
        &["error_min", "error_max"]
    } else {
        &["utilization"]
    };
    Ok(usual.iter().map(|&name| name.into()).collect())
}

fn rows(summary: &Summary, keys: &[String], measures: &[String]) -> Vec<Vec<String>> {
    let replicated = summary.points.iter().any(|row| row.measures.values().any(|mean| mean.replications > 1));
    let mut names: Vec<String> = keys.iter().map(|key| picture::short(key).to_owned()).collect();
    if keys.is_empty() {
        names.push("policy".into());
    }
    for measure in measures {
        names.push(measure.clone());
        if replicated {
            names.push("± 95 %".into());
        }
    }
    let mut rows = vec![names];
    for point in &summary.points {
        let SummaryRow { values, policy, measures: means, .. } = point;
        let shown = |key: &String| {
            let value = values.get(key);
            value
                .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
                .unwrap_or_default()
        };
        let mut row: Vec<String> = keys.iter().map(shown).collect();
        if keys.is_empty() {
            row.push(policy.clone());
        }
        for measure in measures {
            let mean = means.get(measure.as_str());
            row.push(mean.map_or("-".into(), |mean| number(mean.mean)));
            if replicated {
                row.push(mean.map_or("-".into(), |mean| number(mean.half_width)));
            }
        }
        rows.push(row);
    }
    rows
}
