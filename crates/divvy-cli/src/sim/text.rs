//! A report for people.

use divvy_sim::metrics::Fraction;
use divvy_sim::output::{ClientReport, GateReport, Report, ResponseReport};
use divvy_sim::scenario::Span;

use super::source::shares_text;
use super::table::{lines, number};

/// Entries of the schedule that are shown.
const SCHEDULE_SHOWN: usize = 60;
/// Clients that are shown.
const CLIENTS_SHOWN: usize = 40;

/// The whole report; `policy` with its parameters.
pub(super) fn report(report: &Report, policy: &str) -> String {
    let mut out = head(report, policy);
    if let Some(schedule) = &report.schedule {
        out.push(String::new());
        out.push(format!("schedule  {}", schedule_text(schedule)));
    }
    if !report.per_client.is_empty() {
        out.push(String::new());
        out.extend(lines(&client_rows(report)));
        let more = report.per_client.len().saturating_sub(CLIENTS_SHOWN);
        if more > 0 {
            out.push(format!("... and {more} more (--json and --csv list all)"));
        }
    }
    if let Some(all) = &report.responses {
        out.push(String::new());
        let mut rows = vec![response_names()];
        rows.extend(report.groups.iter().chain([all]).map(response_row));
        out.extend(lines(&rows));
    }
    out.push(String::new());
    out.extend(lines(&summary(report)));
    out.join("\n")
}

fn head(report: &Report, policy: &str) -> Vec<String> {
    let mut out: Vec<String> = report.name.iter().cloned().collect();
    let above = if report.gate.is_some() { " above a kernel" } else { "" };
    let mut line = format!("{policy}{above}");
    let (nr, shares) = (report.shares.len(), shares_text(&report.shares));
    match nr {
        0 => {}
        1 => line += &format!(", 1 client of share {shares}"),
        nr => line += &format!(", {nr} clients of shares {shares}"),
    }
    let cpus = if report.cpus == 1 { "1 CPU".into() } else { format!("{} CPUs", report.cpus) };
    line += &format!(", {cpus}, quantum {}, seed {}", Span(report.quantum_ns), report.seed);
    out.push(line);
    out
}

/// The first entries, an idle quantum as `-`.
fn schedule_text(schedule: &[Option<u32>]) -> String {
    let shown = schedule.iter().take(SCHEDULE_SHOWN);
    let mut text: Vec<String> =
        shown.map(|who| who.map_or("-".into(), |client| client.to_string())).collect();
    let more = schedule.len().saturating_sub(SCHEDULE_SHOWN);
    if more > 0 {
        text.push(format!("... ({more} more)"));
    }
    text.join(" ")
}

/// An exact fraction, or the nearest number where that would be long.
pub(super) fn fraction(x: Fraction) -> String {
    let exact = x.to_string();
    if exact.len() <= 11 { exact } else { number(x.to_f64()) }
}

fn client_rows(report: &Report) -> Vec<Vec<String>> {
    let named = report.per_client.iter().any(|row| !row.name.is_empty());
    let finished = report.per_client.iter().any(|row| row.finished_ns.is_some());
    let errors = report.per_client.iter().any(|row| row.error.is_some());
    let total: f64 = report.per_client.iter().map(|row| row.service_ns as f64).sum();
    let mut names = vec!["client"];
    names.extend(named.then_some("name"));
    names.extend(["share", "service, quanta", "service, %"]);
    names.extend(errors.then_some(["error min", "error max"]).into_iter().flatten());
    names.extend(finished.then_some("left at"));
    let mut rows = vec![names.into_iter().map(String::from).collect::<Vec<_>>()];
    for (index, client) in report.per_client.iter().take(CLIENTS_SHOWN).enumerate() {
        let ClientReport { name, share, error, service, service_ns, finished_ns } = client;
        let mut row = vec![index.to_string()];
        row.extend(named.then(|| name.clone()));
        let part =
            if total > 0.0 { format!("{:.2}", *service_ns as f64 / total * 100.0) } else { "-".into() };
        row.extend([share.to_string(), fraction(*service), part]);
        if errors {
            let of = |pick: fn(&divvy_sim::metrics::ErrorRow) -> Fraction| {
                error.as_ref().map_or("-".into(), |error| fraction(pick(error)))
            };
            row.extend([of(|e| e.min), of(|e| e.max)]);
        }
        row.extend(finished.then(|| finished_ns.map_or("-".into(), time)));
        rows.push(row);
    }
    rows
}

/// A moment in seconds, to the microsecond.
fn time(ns: u64) -> String {
    format!("{:.6} s", ns as f64 / 1e9)
}

fn response_names() -> Vec<String> {
    ["group", "answers", "mean, s", "± 95 %", "sd", "median", "95 %", "99 %", "max", "slowdown", "per s"]
        .map(String::from)
        .to_vec()
}

fn response_row(row: &ResponseReport) -> Vec<String> {
    let numbers =
        [row.mean, row.half_width, row.sd, row.p50, row.p95, row.p99, row.max, row.slowdown, row.throughput];
    let mut cells = vec![row.name.clone(), row.count.to_string()];
    cells.extend(numbers.map(number));
    cells
}

fn summary(report: &Report) -> Vec<Vec<String>> {
    let mut rows: Vec<(&str, String)> = Vec::new();
    if let Some(error) = report.service_error {
        let about = if error.exact { "" } else { " (rounded to under 1 ns a step)" };
        rows.push((
            "service error",
            format!("{} to {} quanta{about}", fraction(error.min), fraction(error.max)),
        ));
    }
    if report.per_client.len() > 1 {
        let (jain, gap) = (report.fairness.jain, fraction(report.fairness.gap));
        let text = format!("Jain's index {jain:.6}, largest gap in service per share {gap} quanta");
        rows.push(("fairness", text));
    }
    if let Some(gate) = &report.gate {
        return gate_summary(report, gate, rows);
    }
    let done = &report.operations;
    let text = format!(
        "{} decisions, {} switches, {} preemptions, {} events",
        done.decisions, done.switches, done.preemptions, done.events
    );
    rows.push(("scheduling", text));
    let mut text = format!("{:.2} %", report.utilization * 100.0);
    if done.overhead_ns > 0 {
        text += &format!(", {} s lost in switching", number(done.overhead_ns as f64 / 1e9));
    }
    if done.idle_with_work_ns > 0 {
        text += &format!(", {} s idle with work waiting", number(done.idle_with_work_ns as f64 / 1e9));
    }
    rows.push(("CPU used", text));
    rows.push(("ended", format!("at {}: {}", time(report.time_ns), end_text(report.ended))));
    rows.into_iter().map(|(name, text)| vec![name.to_owned(), text]).map(left).collect()
}

/// The rest of the summary where a gate decides above a kernel.
fn gate_summary(report: &Report, gate: &GateReport, mut rows: Vec<(&str, String)>) -> Vec<Vec<String>> {
    let done = &report.operations;
    let text = match gate.cycle_error {
        Some(e) => format!(
            "{} ended; RMS relative error: median {:.3} %, mean {:.3} %, largest {:.2} %",
            gate.cycles,
            e.median * 100.0,
            e.mean * 100.0,
            e.max * 100.0
        ),
        None => format!("{} ended", gate.cycles),
    };
    rows.push(("cycles", text));
    let text = format!(
        "{} wake-ups, {} reads, {} signals, {} events; {:.3} % of a CPU",
        gate.wakeups,
        gate.reads,
        gate.signals,
        done.events,
        gate.own_cpu * 100.0
    );
    rows.push(("scheduling", text));
    let mut text = format!("{:.2} %, {} switches", report.utilization * 100.0, done.switches);
    if done.idle_with_work_ns > 0 {
        text += &format!(
            ", {} s idle beside held clients, {} s at the longest",
            number(done.idle_with_work_ns as f64 / 1e9),
            number(gate.idle_with_held_longest_ns as f64 / 1e9)
        );
    }
    if gate.stolen_ns > 0 {
        text += &format!(", {} s stolen", number(gate.stolen_ns as f64 / 1e9));
    }
    rows.push(("CPU used", text));
    rows.push(("ended", format!("at {}: {}", time(report.time_ns), end_text(report.ended))));
    rows.into_iter().map(|(name, text)| vec![name.to_owned(), text]).map(left).collect()
}

/// Texts stand to the left.
fn left(mut row: Vec<String>) -> Vec<String> {
    let text = row.pop().unwrap_or_default();
    vec![format!("{:<13}  {text}", row.concat())]
}

fn end_text(ended: &str) -> &str {
    match ended {
        "finished" => "everybody has left",
        "until" => "the time was up",
        "decision-limit" => "the limit of decisions",
        "event-limit" => "the limit of events",
        "client-limit" => "the limit of clients",
        "quiet" => "everybody sleeps for ever",
        "endless" => "somebody runs for ever",
        other => other,
    }
}

/// Why a run was cut off, if it was.
pub(super) fn cut_off(report: &Report) -> Option<String> {
    let decisions = report.operations.decisions;
    match report.ended {
        "decision-limit" => Some(format!(
            "the run could not end: cut off after {decisions} decisions, at {} (run.decisions is the limit; run.until, \
             run.quanta or --until end a run)",
            time(report.time_ns)
        )),
        "event-limit" => Some(format!(
            "the run could not end: cut off after more than ten events for each of run.decisions, with {decisions} \
             decisions, at {} (run.until, run.quanta or --until end a run)",
            time(report.time_ns)
        )),
        "client-limit" => Some(format!(
            "more clients came than left: cut off at {} clients, at {} (run.until, run.quanta or --until end a run)",
            divvy_sim::machine::CLIENTS_MAX,
            time(report.time_ns)
        )),
        "endless" => Some(format!(
            "the run could not end: somebody runs for ever from {} on (run.until, run.quanta or --until end a run)",
            time(report.time_ns)
        )),
        "stalled" => {
            Some(format!("{} left clients waiting for ever at {}", report.policy, time(report.time_ns)))
        }
        _ => None,
    }
}
