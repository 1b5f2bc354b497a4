//! Pictures of reports and sweeps.

use std::collections::BTreeSet;

use divvy_plot::{Areas, Axis, Bar, Chart, Gantt, Line, Lines, Sheet, Style, Surface};
use divvy_sim::output::Report;
use divvy_sim::study::{Summary, SummaryRow};

use super::args::{PictureArgs, Plot, SweepPlot};
use super::source::{shares_text, usage};
use super::write_file;
use crate::{Code, Failure};

/// Windows of time in a picture.
const WINDOWS: usize = 900;
/// Clients with a row of their own.
const ROWS_MAX: usize = 400;
/// Clients with a curve or an area of their own.
const CURVES_MAX: usize = 18;

/// Writes `chart` as the arguments ask.
pub(super) fn write(args: &PictureArgs, chart: &Chart) -> Result<(), Failure> {
    let failed = |error: divvy_plot::PlotError| Failure::new(Code::Failed, format!("draw: {error}"));
    if let Some(file) = &args.svg {
        write_file(file, chart.to_svg().map_err(failed)?.as_bytes())?;
    }
    if let Some(file) = &args.png {
        write_file(file, &chart.to_png().map_err(failed)?)?;
    }
    Ok(())
}

/// The unit in which a time of `ns` is short, and its length.
fn unit(ns: u64) -> (&'static str, f64) {
    match ns {
        0..5_000 => ("ns", 1.0),
        5_000..5_000_000 => ("µs", 1e3),
        5_000_000..5_000_000_000 => ("ms", 1e6),
        _ => ("s", 1e9),
    }
}

/// The chart of one run.
pub(super) fn of_report(report: &Report, plot: Plot) -> Result<Chart, Failure> {
    match plot {
        Plot::Gantt => gantt(report),
        Plot::Service => service(report),
        Plot::Areas | Plot::Surface => areas(report),
    }
}

fn title(report: &Report, what: &str) -> String {
    let whom = report.name.clone().unwrap_or_else(|| match report.shares.len() {
        0 => String::new(),
        _ => format!("shares {}", shares_text(&report.shares)),
    });
    let gap = if whom.is_empty() { "" } else { ", " };
    format!("{what}: {}{gap}{whom}", report.policy)
}

fn gantt(report: &Report) -> Result<Chart, Failure> {
    let Some(timeline) = &report.timeline else {
        return Err(usage(format!(
            "{} is a model, which has no runs: --plot areas or service",
            report.policy
        )));
    };
    let (name, length) = unit(report.time_ns);
    let clients: BTreeSet<u32> =
        timeline.runs.iter().map(|run| run.2).chain(0..report.per_client.len() as u32).collect();
    let all = clients.len();
    let clients: Vec<u32> = clients.into_iter().take(ROWS_MAX).collect();
    let what = if all > ROWS_MAX {
        format!("Who ran when (the first {ROWS_MAX} of {all})")
    } else {
        "Who ran when".into()
    };
    let several = report.cpus > 1;
    let bars = timeline.runs.iter().filter_map(|&(from, to, client, cpu)| {
        let row = clients.binary_search(&client).ok()?;
        Some(Bar { row, colour: cpu as usize, from: from as f64 / length, to: to as f64 / length })
    });
    // Of runs that could not all be kept, the first are shown.
    let kept = timeline.runs.len() as u64 == timeline.nr_runs;
    let end = if kept { report.time_ns } else { timeline.runs.last().map_or(0, |run| run.1) };
    Ok(Chart::Gantt(Gantt {
        title: title(report, &what),
        time: Axis::linear(&format!("time, {name}")),
        rows: clients.iter().map(|&client| named(report, client)).collect(),
        colours: if several {
            (0..report.cpus).map(|cpu| format!("CPU {cpu}")).collect()
        } else {
            Vec::new()
        },
        start: 0.0,
        end: end as f64 / length,
        bars: bars.collect(),
    }))
}

/// A client's name, with its share where there is more than one.
fn named(report: &Report, client: u32) -> String {
    let name = report.client_name(client);
    let mixed = report.shares.windows(2).any(|pair| pair[0] != pair[1]);
    match report.shares.get(client as usize) {
        Some(share) if mixed => format!("{name} (share {share})"),
        _ => name,
    }
}

/// The clients to show, each with its part of every window: all, or those that received most; and the sum of the rest,
/// with their number.
struct Shown {
    clients: Vec<(u32, Vec<f64>)>,
    rest: Option<(usize, Vec<f64>)>,
}

fn shown(report: &Report) -> Result<Shown, Failure> {
    let parts = report.windows(WINDOWS).ok_or_else(|| {
        let nr = report.timeline.as_ref().map_or(0, |timeline| timeline.nr_runs);
        let text =
            format!("{nr} runs are more than are kept for a picture: shorten the run, or raise measure.runs");
        Failure::new(Code::Failed, text)
    })?;
    let mut order: Vec<(u32, Vec<f64>)> = (0..).zip(parts).collect();
    if order.len() <= CURVES_MAX {
        return Ok(Shown { clients: order, rest: None });
    }
    let total = |parts: &[f64]| parts.iter().sum::<f64>();
    order.sort_by(|a, b| total(&b.1).total_cmp(&total(&a.1)).then(a.0.cmp(&b.0)));
    let rest = order.split_off(CURVES_MAX);
    order.sort_by_key(|(client, _)| *client);
    let mut sum = vec![0.0; WINDOWS];
    for (_, parts) in &rest {
        sum.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
    }
    Ok(Shown { clients: order, rest: Some((rest.len(), sum)) })
}

fn areas(report: &Report) -> Result<Chart, Failure> {
    let (name, length) = unit(report.time_ns);
    let Shown { clients, rest } = shown(report)?;
    let names = clients.iter().map(|(client, _)| named(report, *client));
    let names = names.chain(rest.iter().map(|(nr, _)| format!("{nr} others"))).collect();
    let parts =
        clients.into_iter().map(|(_, parts)| parts).chain(rest.into_iter().map(|(_, parts)| parts)).collect();
    Ok(Chart::Areas(Areas {
        title: title(report, "Processor shares"),
        x: Axis::linear(&format!("time, {name}")),
        y: Axis::linear(if report.cpus == 1 { "part of the CPU" } else { "CPUs" }),
        end: report.time_ns as f64 / length,
        top: f64::from(report.cpus),
        names,
        parts,
    }))
}

fn service(report: &Report) -> Result<Chart, Failure> {
    let (name, length) = unit(report.time_ns);
    let window = report.time_ns as f64 / length / WINDOWS as f64;
    let Shown { clients, rest } = shown(report)?;
    let lines = clients.into_iter().map(|(client, parts)| {
        let mut received = 0.0;
        let mut points = vec![(0.0, 0.0)];
        for (i, part) in parts.iter().enumerate() {
            received += part * window;
            points.push(((i + 1) as f64 * window, received));
        }
        Line::new(&named(report, client), points)
    });
    let what = match rest {
        None => String::from("Service over time"),
        Some((nr, _)) => format!("Service over time (the largest; {nr} more)"),
    };
    let lines = Lines {
        title: title(report, &what),
        x: Axis::linear(&format!("time, {name}")),
        y: Axis::linear(&format!("CPU time received, {name}")),
        lines: lines.collect(),
    };
    Ok(lines.into_chart())
}

/// The chart of a sweep: curves over one key, or a surface over two.
pub(super) fn of_summary(
    summary: &Summary,
    keys: &[String],
    measures: &[String],
    plot: Option<SweepPlot>,
    name: &str,
) -> Result<Chart, Failure> {
    let plot = plot.unwrap_or(if keys.len() == 2 { SweepPlot::Surface } else { SweepPlot::Lines });
    match (plot, keys) {
        (SweepPlot::Surface, [first, second]) => Ok(surface(summary, (first, second), measures, name)),
        (SweepPlot::Surface, _) => Err(usage("--plot surface takes two varied keys, neither more nor fewer")),
        (SweepPlot::Lines, []) => Err(usage("a picture of a sweep takes a varied key: --vary key=a,b,c")),
        (SweepPlot::Lines, [first, rest @ ..]) => Ok(curves(summary, first, rest, measures, name)),
    }
}

fn text(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A key as people call it.
pub(super) fn short(key: &str) -> &str {
    key.strip_prefix("policy.params.").or_else(|| key.strip_prefix("gate.params.")).unwrap_or(key)
}

/// A varied value as a number: a plain one, or a time in seconds.
fn amount(value: &serde_json::Value) -> Option<f64> {
    value.as_f64().or_else(|| {
        let text = value.as_str()?;
        let time = text.parse::<divvy_sim::scenario::Span>().ok().map(divvy_sim::scenario::Span::secs);
        time.or_else(|| text.parse().ok()).filter(|x: &f64| x.is_finite())
    })
}

/// A measure with its unit.
fn measured(name: &str) -> String {
    match name {
        "response_mean" | "response_max" | "response_p95" | "response_sd" => {
            format!("{}, s", name.replace('_', " "))
        }
        "error_min" | "error_max" => format!("service {}, quanta", name.replace('_', " ")),
        other => other.replace('_', " "),
    }
}

fn curves(summary: &Summary, first: &str, rest: &[String], measures: &[String], name: &str) -> Chart {
    let label = |row: &SummaryRow, measure: &str| {
        let mut parts: Vec<String> = rest
            .iter()
            .map(|key| format!("{} {}", short(key), row.values.get(key).map(text).unwrap_or_default()))
            .collect();
        if measures.len() > 1 {
            parts.push(measure.replace('_', " "));
        }
        if parts.is_empty() { measure.replace('_', " ") } else { parts.join(", ") }
    };
    let mut lines: Vec<Line> = Vec::new();
    let numeric = summary.points.iter().all(|row| row.values.get(first).and_then(amount).is_some());
    let mut words: Vec<String> = Vec::new();
    for row in &summary.points {
        let Some(value) = row.values.get(first) else { continue };
        let word = text(value);
        let place = words.iter().position(|known| *known == word).unwrap_or_else(|| {
            words.push(word);
            words.len() - 1
        });
        let x = if numeric { amount(value).unwrap_or(f64::NAN) } else { place as f64 };
        for measure in measures {
            let Some(mean) = row.measures.get(measure.as_str()) else { continue };
            let label = label(row, measure);
            let at = lines.iter().position(|line| line.name == label).unwrap_or_else(|| {
                lines.push(Line::new(&label, None));
                lines.len() - 1
            });
            lines[at].points.push((x, mean.mean));
            lines[at].half_widths.push(mean.half_width);
        }
    }
    let measure = if let [measure] = measures { measured(measure) } else { String::from("measure") };
    let amounts = || summary.points.iter().filter_map(|row| row.values.get(first).and_then(amount));
    let (low, high) = amounts().fold((f64::INFINITY, 0.0), |(a, b): (f64, f64), x| (a.min(x), b.max(x)));
    let x = if numeric && low > 0.0 && high / low >= 20.0 {
        Axis::log(short(first))
    } else if numeric {
        Axis::linear(short(first))
    } else {
        Axis::words(short(first), words)
    };
    if !numeric {
        lines.iter_mut().for_each(|line| line.style = Style::Dots);
    }
    Lines { title: name.to_owned(), x, y: Axis::linear(&measure), lines }.into_chart()
}

fn surface(summary: &Summary, (first, second): (&String, &String), measures: &[String], name: &str) -> Chart {
    let values = |key: &str| {
        let mut values: Vec<String> = Vec::new();
        for value in summary.points.iter().filter_map(|row| row.values.get(key)).map(text) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        values
    };
    let (x_ticks, y_ticks) = (values(first), values(second));
    let height = |x: &str, y: &str, measure: &str| {
        let is = |row: &SummaryRow, key: &str, value: &str| {
            row.values.get(key).map(text).as_deref() == Some(value)
        };
        let row = summary.points.iter().find(|row| is(row, first, x) && is(row, second, y));
        row.and_then(|row| row.measures.get(measure)).map_or(f64::NAN, |mean| mean.mean)
    };
    let sheets = measures.iter().map(|measure| Sheet {
        name: measure.replace('_', " "),
        heights: y_ticks.iter().map(|y| x_ticks.iter().map(|x| height(x, y, measure)).collect()).collect(),
    });
    let sheets = sheets.collect();
    let z = if measures.iter().all(|measure| measure.starts_with("error_")) {
        String::from("service error, quanta")
    } else if let [measure] = measures {
        measured(measure)
    } else {
        String::from("measure")
    };
    Chart::Surface(Surface {
        title: name.to_owned(),
        x: Axis::linear(short(first)),
        y: Axis::linear(short(second)),
        z: Axis::linear(&z),
        x_ticks,
        y_ticks,
        sheets,
    })
}
