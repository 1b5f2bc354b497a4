//! The pictures of a trace.

use divvy_engine::{ClientState, Timeline};
use divvy_plot::{Axis, Bar, Chart, Gantt, Line, Lines, Panel, Panels, Style};
use divvy_policy::{Instant, Nanos};

use super::{Show, Window, cycle_errors};

/// Places along the time axis.
const PLACES: u64 = 600;
/// Clients with a curve of their own.
const CURVES_MAX: usize = 18;
/// Clients with a row of their own.
const ROWS_MAX: usize = 60;
/// Cycles whose states are shown where no time was asked for.
const CYCLES_SHOWN: usize = 12;
/// The time that is shown of a run without cycles.
const SHOWN: Nanos = Nanos::from_secs(2);
/// More cycles than this are summed up.
const DOTS_MAX: usize = 300;
/// Windows for which they are summed up.
const WINDOWS: u64 = 150;
/// Errors below this many % are drawn there: a logarithm has no zero.
const ERROR_MIN: f64 = 1e-3;

/// The picture of `window`. Strips show the last cycles of it only, unless it was `chosen`.
pub(super) fn chart(run: &Timeline, window: Window, show: &[Show], chosen: bool) -> Chart {
    let panels = show.iter().filter_map(|show| match show {
        Show::Service => Some(Panel { chart: service(run, window), height: 330 }),
        Show::Errors => Some(Panel { chart: errors(run, window)?, height: 260 }),
        Show::Strips => {
            let rows = run.clients.len().min(ROWS_MAX) as u32;
            let window = if chosen { window } else { last_cycles(run, window) };
            Some(Panel { chart: strips(run, window), height: 130 + rows.clamp(2, ROWS_MAX as u32) * 30 })
        }
    });
    Chart::Panels(Panels(panels.collect()))
}

/// Seconds since the run's beginning.
fn seconds(run: &Timeline, at: Instant) -> f64 {
    at.since(run.start).as_secs_f64()
}

fn what_was_run(run: &Timeline) -> String {
    let gate = &run.header.gate;
    let plural = if gate.cpus == 1 { "" } else { "s" };
    format!("{}, quantum {} ms, {} CPU{plural}", gate.policy, gate.quantum_ns as f64 / 1e6, gate.cpus)
}

fn named(run: &Timeline, client: usize) -> String {
    let client = &run.clients[client];
    format!("{} (share {})", client.name, client.share)
}

fn service(run: &Timeline, window: Window) -> Chart {
    let mut shown: Vec<usize> = (0..run.clients.len()).collect();
    shown.sort_by_key(|&i| (std::cmp::Reverse(run.clients[i].total()), i));
    shown.truncate(CURVES_MAX);
    shown.sort_unstable();
    let step = |place: u64| {
        let ns = u128::from(window.length().0) * u128::from(place) / u128::from(PLACES);
        window.from + Nanos(ns as u64)
    };
    let lines = shown.iter().map(|&i| {
        let client = &run.clients[i];
        let point = |at: Instant| (seconds(run, at), client.received_by(at).as_secs_f64());
        Line::new(&named(run, i), (0..=PLACES).map(|place| point(step(place))))
    });
    let rest = run.clients.len() - shown.len();
    let what = match rest {
        0 => String::from("CPU time received"),
        _ => format!("CPU time received (the largest; {rest} more)"),
    };
    Chart::Lines(Lines {
        title: format!("{what}: {}", what_was_run(run)),
        x: Axis::linear("time, s"),
        y: Axis::linear("CPU time, s"),
        lines: lines.collect(),
    })
}

/// `None` where no cycle counts.
fn errors(run: &Timeline, window: Window) -> Option<Chart> {
    let (nr, [_, median, largest]) = cycle_errors(run, window)?;
    let in_window = run.cycles.iter().filter(|c| c.at >= window.from && c.at <= window.to);
    let errors: Vec<(Instant, f64)> = in_window.filter_map(|c| Some((c.at, c.error? * 100.0))).collect();
    let drawn = |percent: f64| percent.max(ERROR_MIN);
    let mut lines = if nr <= DOTS_MAX {
        let points = errors.iter().map(|&(at, error)| (seconds(run, at), drawn(error)));
        let mut dots = Line::new("one cycle", points);
        dots.style = Style::Dots;
        vec![dots]
    } else {
        summed_up(run, window, &errors)
    };
    let ends = [window.from, window.to].map(|at| (seconds(run, at), drawn(median * 100.0)));
    lines.push(Line::new(&format!("median: {} %", percent(median)), ends).dashed());
    Some(Chart::Lines(Lines {
        title: format!("Error of each cycle (RMS over clients), largest {} %", percent(largest)),
        x: Axis::linear("time, s"),
        y: Axis::log("error, %"),
        lines,
    }))
}

/// Very many cycles, by equal windows of time: the median and the largest error of each.
fn summed_up(run: &Timeline, window: Window, errors: &[(Instant, f64)]) -> Vec<Line> {
    let (mut medians, mut largest) = (Vec::new(), Vec::new());
    let place = |at: Instant| {
        u128::from(at.since(window.from).0) * u128::from(WINDOWS) / u128::from(window.length().0.max(1))
    };
    for group in errors.chunk_by(|a, b| place(a.0) == place(b.0)) {
        let mut sorted: Vec<f64> = group.iter().map(|&(_, error)| error.max(ERROR_MIN)).collect();
        sorted.sort_by(f64::total_cmp);
        let at = seconds(run, group[group.len() / 2].0);
        medians.push((at, sorted[sorted.len() / 2]));
        largest.push((at, sorted[sorted.len() - 1]));
    }
    let each = format!("of {:.1} s", window.length().as_secs_f64() / WINDOWS as f64);
    vec![Line::new(&format!("median {each}"), medians), Line::new(&format!("largest {each}"), largest)]
}

/// A fraction in %, with two digits that count.
fn percent(fraction: f64) -> String {
    let percent = fraction * 100.0;
    if percent >= 10.0 {
        format!("{percent:.0}")
    } else if percent >= 1.0 {
        format!("{percent:.1}")
    } else if percent >= 0.1 {
        format!("{percent:.2}")
    } else {
        format!("{percent:.3}")
    }
}

fn last_cycles(run: &Timeline, window: Window) -> Window {
    let ends: Vec<Instant> =
        run.cycles.iter().map(|c| c.at).filter(|&at| at > window.from && at <= window.to).collect();
    match ends.len().checked_sub(CYCLES_SHOWN + 1) {
        Some(first) => Window { from: ends[first], to: ends[ends.len() - 1] },
        None if window.length() > SHOWN && ends.is_empty() => {
            Window { from: Instant(window.to.0.saturating_sub(SHOWN.0)), ..window }
        }
        None => window,
    }
}

fn strips(run: &Timeline, window: Window) -> Chart {
    let rows = run.clients.len().min(ROWS_MAX);
    let mut bars = Vec::new();
    for (row, client) in run.clients.iter().enumerate().take(rows) {
        let first = client.stretches.partition_point(|s| s.to <= window.from);
        for stretch in client.stretches[first..].iter().take_while(|s| s.from < window.to) {
            let colour = match stretch.state {
                ClientState::Running => 0,
                ClientState::Asleep => 1,
                ClientState::Held | ClientState::Left => continue,
            };
            let (from, to) = (stretch.from.max(window.from), stretch.to.min(window.to));
            bars.push(Bar { row, colour, from: seconds(run, from), to: seconds(run, to) });
        }
    }
    let what = if rows < run.clients.len() {
        format!("Released (the first {rows} of {}; held in the gaps)", run.clients.len())
    } else {
        "Released (held in the gaps)".into()
    };
    Chart::Gantt(Gantt {
        title: what,
        time: Axis::linear("time, s"),
        rows: (0..rows).map(|i| named(run, i)).collect(),
        colours: vec!["running".into(), "asleep".into()],
        start: seconds(run, window.from),
        end: seconds(run, window.to),
        bars,
    })
}
