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
        Show::Service => {
            let chart = service(run, window);
            let height = if let Chart::Multiples(many) = &chart { many.height() } else { 330 };
            Some(Panel { chart, height })
        }
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
    let lines = Lines {
        title: format!("{what}: {}", what_was_run(run)),
        x: Axis::linear("time, s"),
        y: Axis::linear("CPU time, s"),
        lines: lines.collect(),
    };
    lines.into_chart()
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
        let part = u128::from(at.since(window.from).0) * u128::from(WINDOWS);
        (part / u128::from(window.length().0.max(1))).min(u128::from(WINDOWS) - 1)
    };
    for group in errors.chunk_by(|a, b| place(a.0) == place(b.0)) {
        let mut sorted: Vec<f64> = group.iter().map(|&(_, error)| error.max(ERROR_MIN)).collect();
        sorted.sort_by(f64::total_cmp);
        let at = seconds(run, group[group.len() / 2].0);
        medians.push((at, sorted[sorted.len() / 2]));
        largest.push((at, sorted[sorted.len() - 1]));
    }
    let each = format!("of each {:.1} s", window.length().as_secs_f64() / WINDOWS as f64);
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
                _ => continue,
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Two clients that share a CPU 1:1 in turns of 10 ms, the first 1 % ahead in every tenth cycle.
    fn run(cycles: u64) -> Timeline {
        let mut lines = vec![
            r#"{"divvy_trace":2,"gate":{"policy":"exact","quantum_ns":10000000,"cpus":1,"scale_shares":true,"presence":1,"period_ns":1000000000},"clients":["a","b"]}"#.to_owned(),
            r#"{"t":0,"e":"join","c":0,"share":1}"#.to_owned(),
            r#"{"t":0,"e":"join","c":1,"share":1}"#.to_owned(),
        ];
        for cycle in 0..cycles {
            for c in 0..2 {
                let t = cycle * 20_000_000 + c * 10_000_000;
                let ns = if cycle % 10 == 9 && c == 0 { 10_200_000 } else { 10_000_000 };
                lines.push(format!(r#"{{"t":{t},"e":"release","c":{c},"cpu":0}}"#));
                lines.push(format!(r#"{{"t":{},"e":"charge","c":{c},"ns":{ns}}}"#, t + 10_000_000));
                lines.push(format!(r#"{{"t":{},"e":"hold","c":{c}}}"#, t + 10_000_000));
            }
            lines.push(format!(r#"{{"t":{},"e":"cycle","n":{}}}"#, (cycle + 1) * 20_000_000, cycle + 1));
        }
        Timeline::read(lines.into_iter()).unwrap()
    }

    fn panels(cycles: u64, chosen: bool) -> Vec<Chart> {
        let run = run(cycles);
        let window = Window { from: run.start, to: run.end };
        let Chart::Panels(Panels(panels)) =
            chart(&run, window, &[Show::Service, Show::Errors, Show::Strips], chosen)
        else {
            panic!("no panels")
        };
        panels.into_iter().map(|panel| panel.chart).collect()
    }

    #[test]
    fn few_cycles_are_dots_and_many_are_summed_up() {
        let [_, Chart::Lines(few), _] = &panels(100, false)[..] else { panic!("three charts") };
        // The first four do not count.
        assert_eq!((few.lines[0].points.len(), few.lines[0].style), (96, Style::Dots));
        // 10.2 and 10 of 20.2: both are 0.99 % off.
        let largest = few.lines[0].points.iter().map(|p| p.1).fold(0.0, f64::max);
        assert!((largest - 100.0 * 0.1 / 10.1).abs() < 1e-3, "{largest}");
        let [_, Chart::Lines(many), _] = &panels(3000, false)[..] else { panic!("three charts") };
        let [medians, largest, _] = &many.lines[..] else { panic!("three curves") };
        assert_eq!((medians.points.len(), largest.points.len()), (150, 150));
        assert!(medians.points.iter().all(|p| p.1 == ERROR_MIN), "nothing is drawn at its least");
        assert!(largest.points.iter().all(|p| (p.1 - 0.990_1).abs() < 1e-3));
        // Before the fifth cycle there is nothing to show of errors.
        assert_eq!(panels(4, false).len(), 2);
    }

    #[test]
    fn strips_show_the_last_cycles_unless_a_time_was_chosen() {
        let strips = |chosen| match panels(100, chosen).pop() {
            Some(Chart::Gantt(strips)) => strips,
            _ => panic!("strips come last"),
        };
        let last = strips(false);
        // 12 cycles of 20 ms, in each of which each client runs once.
        assert!(
            (last.start - 1.76).abs() < 1e-9 && (last.end - 2.0).abs() < 1e-9,
            "{} {}",
            last.start,
            last.end
        );
        assert_eq!(last.bars.len(), 24);
        let all = strips(true);
        assert_eq!((all.start, all.bars.len()), (0.0, 200));
    }

    #[test]
    fn curves_end_at_what_was_received() {
        let [Chart::Lines(service), ..] = &panels(100, false)[..] else { panic!("three charts") };
        let ends: Vec<f64> = service.lines.iter().map(|line| line.points.last().unwrap().1).collect();
        // 10 ms in each of 100 cycles; 0.2 ms more in each tenth for the first.
        assert!((ends[0] - 1.002).abs() < 1e-9 && (ends[1] - 1.0).abs() < 1e-9, "{ends:?}");
    }
}
