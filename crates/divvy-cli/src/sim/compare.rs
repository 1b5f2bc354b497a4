//! `divvy compare`: one scenario under several policies, side by side.

use divvy_plot::{Axis, Chart, Line, Lines, Style};
use divvy_sim::output::Report;
use divvy_sim::scenario::PolicySpec;
use divvy_sim::study::{Mean, Study, Summary, SummaryRow};
use serde_json::json;

use super::args::CompareArgs;
use super::source::{Source, label, parse_policy, shares_text, usage};
use super::table::{lines, number};
use super::text::{cut_off, fraction};
use super::{picture, sweep};
use crate::{Code, Failure, print, tell};

/// A policy with what its runs gave.
struct Column {
    label: String,
    reports: Vec<Report>,
    summary: SummaryRow,
}

pub(crate) fn run(args: &CompareArgs) -> Result<Code, Failure> {
    let mut source = Source::new(&args.scenario, None)?;
    source.check_outputs(&args.picture, &None)?;
    let replications = args.replications.unwrap_or(source.scenario.replications);
    if replications == 0 {
        return Err(usage("--replications 0: expected at least 1"));
    }
    source.scenario.replications = replications;
    source.scenario.sweep.clear();
    let mut columns: Vec<Column> = Vec::new();
    let of_file = (source.scenario.policy.clone(), source.scenario.gate.clone());
    for policy in split(&args.policies)? {
        (source.scenario.policy, source.scenario.gate) = of_file.clone();
        source.decide_by(policy);
        columns.push(column(&source)?);
    }
    let single = replications == 1;
    if args.json {
        print(json_text(&columns, single))?;
    } else if args.csv {
        print(csv_text(&columns).trim_end())?;
    } else {
        let rows = if single { exact_rows(&columns) } else { mean_rows(&columns) };
        let head = source.scenario.name.clone().into_iter();
        let head = head.chain((!single).then(|| format!("means of {replications} replications ± 95 %")));
        let text: Vec<String> = head.chain(lines(&rows)).collect();
        print(text.join("\n"))?;
    }
    if args.picture.svg.is_some() || args.picture.png.is_some() {
        let name = source.scenario.name.clone().unwrap_or_else(|| {
            format!("Policies side by side, shares {}", shares_text(&args.scenario.shares))
        });
        picture::write(&args.picture, &chart(&columns, name))?;
    }
    let mut code = Code::Done;
    for column in &columns {
        if let Some(why) = column.reports.iter().find_map(cut_off) {
            tell(format_args!("divvy: {}: {why}", column.label));
            code = Code::Failed;
        }
    }
    Ok(code)
}

/// The policies of a list. A part such as `queue=list` belongs to the policy before it.
fn split(lists: &[String]) -> Result<Vec<PolicySpec>, Failure> {
    let mut texts: Vec<String> = Vec::new();
    for part in lists.iter().flat_map(|list| list.split(',')).map(str::trim).filter(|part| !part.is_empty()) {
        let is_param = part.split_once('=').is_some_and(|(key, _)| !key.contains(':'));
        match texts.last_mut() {
            Some(last) if is_param => {
                *last = format!("{last}{}{part}", if last.contains(':') { "," } else { ":" })
            }
            _ => texts.push(part.to_owned()),
        }
    }
    if texts.is_empty() {
        return Err(usage("--policies: none, expected a list such as vtrr,wfq,stride"));
    }
    let parse =
        |text: &String| parse_policy(text).map_err(|e| usage(e.text.replacen("--policy", "--policies", 1)));
    texts.iter().map(parse).collect()
}

fn column(source: &Source) -> Result<Column, Failure> {
    let label = label(source.scenario.decider());
    let study = Study::new(&source.scenario).map_err(|error| source.failure(error))?;
    let reports = sweep::run_all(&study, source, &label).map_err(|failure| {
        // The policy came from the command line, whatever file the rest is from.
        Failure::new(failure.code, format!("--policies {label}: {}", failure.text))
    })?;
    let mut summary = study.merge(reports.clone());
    let Some(summary) = summary.points.pop() else { return Err(usage("nothing to run")) };
    Ok(Column { label, reports: reports.into_iter().map(|(_, report)| report).collect(), summary })
}

fn json_text(columns: &[Column], single: bool) -> String {
    let results: Vec<_> = columns
        .iter()
        .map(|column| {
            let report = if single { column.reports.first() } else { None };
            let mut row = json!({ "policy": column.label, "measures": column.summary.measures });
            if let Some(report) = report {
                row["report"] = json!(report);
            }
            row
        })
        .collect();
    serde_json::to_string_pretty(&json!({ "results": results })).unwrap_or_default()
}

/// A row for each policy and measure.
fn csv_text(columns: &[Column]) -> String {
    let row = |column: &Column| SummaryRow { policy: column.label.clone(), ..column.summary.clone() };
    Summary { points: columns.iter().map(row).collect() }.to_csv()
}

/// What one policy shows of a measure, if it has it.
type Cell<'a> = &'a dyn Fn(&Column) -> Option<String>;

/// A table of measures (rows) by policy (columns), from texts that `cell` makes.
fn table(columns: &[Column], rows: &[(&str, Cell<'_>)]) -> Vec<Vec<String>> {
    let mut out =
        vec![std::iter::once(String::new()).chain(columns.iter().map(|c| c.label.clone())).collect()];
    for (name, cell) in rows {
        let cells: Vec<Option<String>> = columns.iter().map(cell).collect();
        if cells.iter().any(Option::is_some) {
            let cells = cells.into_iter().map(|cell| cell.unwrap_or_else(|| "-".into()));
            out.push(std::iter::once((*name).to_owned()).chain(cells).collect());
        }
    }
    out
}

/// One run each: exact errors.
fn exact_rows(columns: &[Column]) -> Vec<Vec<String>> {
    let report = |column: &Column| column.reports.first().cloned();
    // Of one client, or of jobs that come and go, there is nothing to compare.
    let fairness = |column: &Column| {
        let report = column.reports.first()?;
        (report.per_client.len() > 1).then_some(report.fairness)
    };
    let response = |pick: fn(&divvy_sim::output::ResponseReport) -> f64| {
        move |column: &Column| {
            let responses = column.reports.first()?.responses.clone()?;
            Some(number(pick(&responses)))
        }
    };
    let operation = |pick: fn(&divvy_sim::output::Operations) -> u64| {
        move |column: &Column| Some(pick(&column.reports.first()?.operations).to_string())
    };
    let schedule = |column: &Column| {
        let schedule = report(column)?.schedule?;
        let short = schedule.len() <= 24 && !schedule.is_empty();
        let who = |who: &Option<u32>| who.map_or("-".into(), |client| client.to_string());
        short.then(|| schedule.iter().map(who).collect::<Vec<_>>().join(" "))
    };
    table(
        columns,
        &[
            ("schedule", &schedule),
            ("service error, min", &|c| Some(fraction(report(c)?.service_error?.min))),
            ("service error, max", &|c| Some(fraction(report(c)?.service_error?.max))),
            ("Jain's index", &|c| Some(format!("{:.6}", fairness(c)?.jain))),
            ("gap, service per share", &|c| Some(fraction(fairness(c)?.gap))),
            ("answers", &|c| Some(report(c)?.responses?.count.to_string())),
            ("response mean, s", &response(|r| r.mean)),
            ("± 95 % (batch means)", &response(|r| r.half_width)),
            ("response sd, s", &response(|r| r.sd)),
            ("response 95 %, s", &response(|r| r.p95)),
            ("slowdown", &response(|r| r.slowdown)),
            ("answers per s", &response(|r| r.throughput)),
            ("decisions", &operation(|o| o.decisions)),
            ("switches", &operation(|o| o.switches)),
            ("preemptions", &operation(|o| o.preemptions)),
            ("error per cycle, median", &|c| Some(number(report(c)?.gate?.cycle_error?.median))),
            ("own CPU, %", &|c| Some(format!("{:.3}", report(c)?.gate?.own_cpu * 100.0))),
            ("CPU used, %", &|c| Some(format!("{:.2}", report(c)?.utilization * 100.0))),
            ("ended", &|c| Some(report(c)?.ended.to_owned())),
        ],
    )
}

/// Several runs each: means with their intervals.
fn mean_rows(columns: &[Column]) -> Vec<Vec<String>> {
    let mean = |name: &'static str| {
        move |column: &Column| {
            let Mean { mean, half_width, .. } = column.summary.measures.get(name)?;
            Some(format!("{} ± {}", number(*mean), number(*half_width)))
        }
    };
    table(
        columns,
        &[
            ("service error, min", &mean("error_min")),
            ("service error, max", &mean("error_max")),
            ("Jain's index", &mean("jain")),
            ("response mean, s", &mean("response_mean")),
            ("response sd, s", &mean("response_sd")),
            ("response 95 %, s", &mean("response_p95")),
            ("slowdown", &mean("slowdown")),
            ("answers per s", &mean("throughput")),
            ("decisions", &mean("decisions")),
            ("switches", &mean("switches")),
            ("error per cycle, median", &mean("cycle_error_median")),
            ("own CPU, part", &mean("own_cpu")),
            ("CPU used, part", &mean("utilization")),
        ],
    )
}

/// Response times if there are any, else service errors, policy by policy.
fn chart(columns: &[Column], title: String) -> Chart {
    let answered = columns.iter().all(|column| column.summary.measures.contains_key("response_mean"));
    let (measures, label): (&[&str], _) = if answered {
        (&["response_mean"], "response mean, s")
    } else {
        (&["error_min", "error_max"], "service error, quanta")
    };
    let line = |measure: &&str| {
        let means = columns.iter().map(|column| column.summary.measures.get(*measure));
        let points =
            means.clone().enumerate().map(|(i, mean)| (i as f64, mean.map_or(f64::NAN, |mean| mean.mean)));
        let mut line = Line::new(&measure.replace('_', " "), points);
        line.style = Style::Dots;
        line.half_widths = means.map(|mean| mean.map_or(f64::NAN, |mean| mean.half_width)).collect();
        line
    };
    let names = columns.iter().map(|column| column.label.clone()).collect();
    Chart::Lines(Lines {
        title,
        x: Axis::words("", names),
        y: Axis::linear(label),
        lines: measures.iter().map(line).collect(),
    })
}
