//! `divvy plot`: a recorded trace as pictures, as text, or for Perfetto.

mod charts;
mod text;

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use divvy_engine::chrome::TraceEvents;
use divvy_engine::{ClientState, Divergence, Timeline, TraceReader};
use divvy_policy::{Instant, Nanos};
use serde_json::{Value, json};

use crate::{Code, Failure, files, print, tell, trace_file};

#[derive(Debug, ClapArgs)]
pub(crate) struct PlotArgs {
    /// A file that `divvy share --trace` wrote
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,

    /// Draw a picture to FILE, as SVG
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,

    /// Draw a picture to FILE, as PNG
    #[arg(long, value_name = "FILE")]
    pub(crate) png: Option<PathBuf>,

    /// Write the whole trace to FILE for Perfetto (ui.perfetto.dev) or chrome://tracing
    #[arg(long, value_name = "FILE")]
    pub(crate) perfetto: Option<PathBuf>,

    /// What the picture shows, from above
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "service,errors,strips")]
    pub(crate) show: Vec<Show>,

    /// Leave out what was before this time since the beginning: 2s, 1500ms
    #[arg(long, value_name = "TIME", value_parser = divvy_api::time::parse)]
    pub(crate) from: Option<Duration>,

    /// Leave out what was after this time since the beginning
    #[arg(long, value_name = "TIME", value_parser = divvy_api::time::parse)]
    pub(crate) to: Option<Duration>,

    /// Print the numbers as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Show {
    /// CPU time received over time
    Service,
    /// The error of each cycle
    Errors,
    /// Who was released, asleep or held; without --from and --to the last cycles only
    Strips,
}

/// The part of a run that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    from: Instant,
    to: Instant,
}

impl Window {
    fn of(args: &PlotArgs, run: &Timeline) -> Result<Self, Failure> {
        let length = run.end.since(run.start);
        let at = |time: Duration| run.start + Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        let from = args.from.map_or(run.start, at);
        let to = args.to.map_or(run.end, at).min(run.end);
        if from >= to {
            let text = format!(
                "--from and --to leave nothing of the trace, which is {:.3} s long; times count from its beginning",
                length.as_secs_f64()
            );
            return Err(Failure::new(Code::Usage, text));
        }
        Ok(Self { from, to })
    }

    fn length(self) -> Nanos {
        self.to.since(self.from)
    }
}

pub(crate) fn run(args: &PlotArgs) -> Result<Code, Failure> {
    let outputs = [("--perfetto", &args.perfetto), ("--svg", &args.svg), ("--png", &args.png)];
    files::check_outputs(&outputs, [args.trace.as_path()])?;
    let bad = |e: Divergence| trace_file::unusable(&args.trace, &e);
    let run = trace_file::with_lines(&args.trace, |lines| Timeline::read(lines))?.map_err(bad)?;
    if run.clients.is_empty() || run.end == run.start {
        let text =
            format!("{}: nothing happens in this trace: it ended before it began", args.trace.display());
        return Err(Failure::new(Code::File, text));
    }
    let window = Window::of(args, &run)?;
    if run.cut_off {
        tell(format_args!("divvy: {}: the last line is incomplete and was left out", args.trace.display()));
    }
    if let Some(file) = &args.perfetto {
        write_perfetto(&args.trace, file)?;
    }
    if args.svg.is_some() || args.png.is_some() {
        let zoomed = args.from.is_some() || args.to.is_some();
        let chart = charts::chart(&run, window, &args.show, zoomed);
        let failed = |e: divvy_plot::PlotError| Failure::new(Code::Failed, format!("draw: {e}"));
        if let Some(file) = &args.svg {
            write_file(file, chart.to_svg().map_err(failed)?.as_bytes())?;
        }
        if let Some(file) = &args.png {
            write_file(file, &chart.to_png().map_err(failed)?)?;
        }
    }
    if args.json {
        print(serde_json::to_string_pretty(&numbers(&run, window)).unwrap_or_default())?;
    } else {
        print(text::text(&run, window).join("\n"))?;
    }
    Ok(Code::Done)
}

fn write_file(file: &Path, bytes: &[u8]) -> Result<(), Failure> {
    std::fs::write(file, bytes).map_err(|e| crate::files::failed("write", file, &e))
}

/// Reads the trace once more, line by line, so that one of any length can be turned.
fn write_perfetto(trace: &Path, file: &Path) -> Result<(), Failure> {
    let cannot = |e: std::io::Error| crate::files::failed("write", file, &e);
    let out = BufWriter::new(File::create(file).map_err(cannot)?);
    let turned = trace_file::with_lines(trace, |lines| -> Result<std::io::Result<()>, Divergence> {
        let reader = TraceReader::new(lines)?;
        let mut events = match TraceEvents::new(out, reader.header()) {
            Ok(events) => events,
            Err(e) => return Ok(Err(e)),
        };
        for read in reader {
            match read {
                Err(Divergence::CutOff { .. }) => break,
                read => {
                    if let Err(e) = events.line(&read?.1) {
                        return Ok(Err(e));
                    }
                }
            }
        }
        Ok(events.finish().and_then(|mut out| out.flush()))
    })?;
    turned.map_err(|e| trace_file::unusable(trace, &e))?.map_err(cannot)
}

/// What one client had of a window.
struct Had {
    service: Nanos,
    /// Of what all clients received in the window.
    achieved: f64,
    /// `achieved / target - 1`; 0 where nobody received anything.
    error: f64,
}

fn had(run: &Timeline, window: Window) -> Vec<Had> {
    let service: Vec<Nanos> = run
        .clients
        .iter()
        .map(|c| {
            let before = if window.from == run.start { Nanos::ZERO } else { c.received_by(window.from) };
            c.received_by(window.to).saturating_sub(before)
        })
        .collect();
    let all: u64 = service.iter().map(|s| s.0).sum();
    let rows = run.clients.iter().zip(service);
    rows.map(|(client, service)| {
        let achieved = if all == 0 { 0.0 } else { service.0 as f64 / all as f64 };
        let error = if all == 0 { 0.0 } else { achieved / client.target - 1.0 };
        Had { service, achieved, error }
    })
    .collect()
}

/// A client's state at the window's end.
fn state_at_end(run: &Timeline, client: usize, window: Window) -> ClientState {
    let stretches = &run.clients[client].stretches;
    let last = stretches.iter().rev().find(|s| s.from < window.to);
    last.filter(|s| s.to >= window.to).map_or(ClientState::Left, |s| s.state)
}

/// Statistics of the cycles that ended in a window: how many count, and the mean, median and largest error.
fn cycle_errors(run: &Timeline, window: Window) -> Option<(usize, [f64; 3])> {
    let in_window = run.cycles.iter().filter(|c| c.at >= window.from && c.at <= window.to);
    let mut errors: Vec<f64> = in_window.filter_map(|c| c.error).collect();
    errors.sort_by(f64::total_cmp);
    let (nr, &largest) = (errors.len(), errors.last()?);
    let median = f64::midpoint(errors[(nr - 1) / 2], errors[nr / 2]);
    Some((nr, [errors.iter().sum::<f64>() / nr as f64, median, largest]))
}

fn numbers(run: &Timeline, window: Window) -> Value {
    let clients: Vec<Value> = had(run, window)
        .iter()
        .enumerate()
        .map(|(i, had)| {
            let client = &run.clients[i];
            let part = |state| client.part_in(state, window.from, window.to);
            json!({
                "name": client.name, "share": client.share.get(), "service_ns": had.service.0,
                "target_fraction": client.target, "achieved_fraction": had.achieved,
                "relative_error": had.error, "state": state_at_end(run, i, window).as_str(),
                "time_fractions": {
                    "running": part(ClientState::Running), "asleep": part(ClientState::Asleep),
                    "held": part(ClientState::Held)
                }
            })
        })
        .collect();
    let errors = cycle_errors(run, window);
    let counted = errors.map_or(0, |(nr, _)| nr);
    let errors = errors.map(|(_, [mean, median, max])| json!({ "mean": mean, "median": median, "max": max }));
    json!({
        "version": 1, "policy": run.header.gate.policy, "quantum_ns": run.header.gate.quantum_ns,
        "cpus": run.header.gate.cpus, "from_ns": window.from.since(run.start).0,
        "to_ns": window.to.since(run.start).0, "clients": clients,
        "cycles": { "count": counted, "rms_relative_error": errors }, "cut_off": run.cut_off
    })
}
