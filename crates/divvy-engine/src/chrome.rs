//! Chrome's trace format, which Perfetto and chrome://tracing open: a JSON object with a list of events.
//!
//! [`ChromeTrace`] writes events one by one, so that a trace of any length needs no memory. [`TraceEvents`] makes them
//! of a divvy trace: a row for each client with its stretches of being released (held is the gap between them), curves
//! of the CPU time received, and one of the errors of cycles.
//!
//! Format: "Trace Event Format" by the Chromium authors; `X` is a complete event, `C` a counter, `i` a moment, `M` a
//! name. Times are in microseconds, with decimals.

use std::io::{self, Write};

use divvy_policy::{ClientId, Instant, Nanos};
use serde::Serialize;
use serde_json::{Value, json};

use crate::session::ClientState;
use crate::timeline::{Playback, Stretch, Stretches};
use crate::trace::{Trace, TraceHeader, TraceLine};

/// The process that all rows belong to. 0 is the idle process to Perfetto.
const PROCESS: u32 = 1;

/// One run of something in a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Run<'a> {
    /// Its row, from 0.
    pub row: u32,
    /// What is written on it.
    pub name: &'a str,
    /// What can be searched and filtered by.
    pub category: &'a str,
    /// Its beginning, ns.
    pub from_ns: u64,
    /// Its end, ns.
    pub to_ns: u64,
    /// Details: an object, or null.
    pub args: Value,
}

/// Writes a trace in Chrome's format, event by event.
#[derive(Debug)]
pub struct ChromeTrace<W> {
    out: W,
    first: bool,
}

impl<W: Write> ChromeTrace<W> {
    /// Begins a trace of one process called `name`. `about` is an object that says what was run.
    ///
    /// # Errors
    /// Those of `out`, as everywhere here.
    pub fn new(mut out: W, name: &str, about: &Value) -> io::Result<Self> {
        write!(out, "{{\"displayTimeUnit\":\"ms\",\"otherData\":{about},\"traceEvents\":[")?;
        let mut trace = Self { out, first: true };
        trace.event(&json!({
            "name": "process_name", "ph": "M", "pid": PROCESS, "tid": 0, "args": { "name": name }
        }))?;
        Ok(trace)
    }

    /// Names a row; rows stand in the order of their numbers.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn row(&mut self, row: u32, name: &str) -> io::Result<()> {
        let tid = thread(row);
        self.event(&json!({
            "name": "thread_name", "ph": "M", "pid": PROCESS, "tid": tid, "args": { "name": name }
        }))?;
        self.event(&json!({
            "name": "thread_sort_index", "ph": "M", "pid": PROCESS, "tid": tid, "args": { "sort_index": row }
        }))
    }

    /// Writes a run.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn run(&mut self, run: &Run<'_>) -> io::Result<()> {
        self.event(&json!({
            "name": run.name, "cat": run.category, "ph": "X", "pid": PROCESS, "tid": thread(run.row),
            "ts": micros(run.from_ns), "dur": micros(run.to_ns.saturating_sub(run.from_ns)), "args": run.args
        }))
    }

    /// Writes a moment in a row.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn moment(&mut self, row: u32, name: &str, at_ns: u64) -> io::Result<()> {
        self.event(&json!({
            "name": name, "ph": "i", "s": "t", "pid": PROCESS, "tid": thread(row), "ts": micros(at_ns)
        }))
    }

    /// Writes a point of the curve called `name`, in `unit`.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn point(&mut self, name: &str, unit: &str, at_ns: u64, value: f64) -> io::Result<()> {
        self.event(&json!({
            "name": name, "ph": "C", "pid": PROCESS, "tid": 0, "ts": micros(at_ns), "args": { unit: value }
        }))
    }

    /// Ends the trace, and returns what it was written to.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.write_all(b"\n]}\n")?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn event(&mut self, event: &impl Serialize) -> io::Result<()> {
        self.out.write_all(if std::mem::take(&mut self.first) { b"\n" } else { b",\n" })?;
        Ok(serde_json::to_writer(&mut self.out, event)?)
    }
}

/// The thread that stands for a row. 0 is the idle thread to Perfetto.
fn thread(row: u32) -> u32 {
    row.saturating_add(1)
}

fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// Turns the lines of a divvy trace into events of Chrome's format, as they come.
#[derive(Debug)]
pub struct TraceEvents<W> {
    trace: ChromeTrace<W>,
    playback: Playback,
    open: Stretches,
    /// Cycles whose errors were written.
    counted: u64,
    /// When the last cycle ended.
    cycle_at: Instant,
}

impl<W: Write> TraceEvents<W> {
    /// Begins with a trace's header.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(out: W, header: &TraceHeader) -> io::Result<Self> {
        let name = format!("divvy: {} on {} CPU(s)", header.gate.policy, header.gate.cpus);
        let about =
            json!({ "divvy_trace": header.divvy_trace, "gate": header.gate, "clients": header.clients });
        Ok(Self {
            trace: ChromeTrace::new(out, &name, &about)?,
            playback: Playback::new(header),
            open: Stretches::default(),
            counted: 0,
            cycle_at: Instant(0),
        })
    }

    /// Takes the next line.
    ///
    /// # Errors
    /// Those of the writer; [`io::ErrorKind::InvalidData`] for a line that cannot follow those before it.
    pub fn line(&mut self, line: &TraceLine) -> io::Result<()> {
        let about = self.playback.apply(line);
        let about = about.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
        self.cycle_error()?;
        let at = self.since_start(self.playback.now());
        match line.what {
            Trace::Cycle { .. } => self.cycle_at = self.playback.now(),
            Trace::Join { c, share } => {
                let name = self.playback.name(ClientId(c));
                self.trace.row(c, &format!("{name} (share {share})"))?;
                self.trace.moment(c, "joins", at)?;
            }
            Trace::Reshare { c, share } => self.trace.moment(c, &format!("share {share}"), at)?,
            Trace::Limit { c, .. } => {
                let limit = self.playback.ledger().clients()[c as usize].limit;
                let text = limit.map_or_else(|| "no limit".to_owned(), |limit| format!("limit {limit}"));
                self.trace.moment(c, &text, at)?;
            }
            Trace::AtLimit { c, held: true } => self.trace.moment(c, "at its limit", at)?,
            Trace::Leave { c } => self.trace.moment(c, "leaves", at)?,
            Trace::Charge { c, ns } if ns > 0 => {
                let sum = self.playback.ledger().clients()[c as usize].service;
                let name = format!("CPU time of {}", self.playback.name(ClientId(c)));
                self.trace.point(&name, "ms", at, sum.0 as f64 / 1e6)?;
            }
            _ => {}
        }
        if let Some(client) = about
            && let Some(stretch) = self.open.note(&self.playback, client)
        {
            self.stretch(client, &stretch)?;
        }
        Ok(())
    }

    /// Ends what is open, and the trace; returns what it was written to.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn finish(mut self) -> io::Result<W> {
        self.playback.settle();
        self.cycle_error()?;
        for (client, stretch) in std::mem::take(&mut self.open).finish(self.playback.now()) {
            self.stretch(client, &stretch)?;
        }
        self.trace.finish()
    }

    /// A cycle's error, once it is known.
    fn cycle_error(&mut self) -> io::Result<()> {
        let cycles = self.playback.ledger().cycles();
        if cycles.counted() == self.counted {
            return Ok(());
        }
        self.counted = cycles.counted();
        let (error, at) = (cycles.last().unwrap_or(0.0), self.since_start(self.cycle_at));
        self.trace.point("error of the cycle (RMS)", "%", at, error * 100.0)
    }

    fn stretch(&mut self, client: ClientId, stretch: &Stretch) -> io::Result<()> {
        if stretch.state == ClientState::Held {
            return Ok(()); // The gap says it.
        }
        let run = Run {
            row: client.0,
            name: stretch.state.as_str(),
            category: "released",
            from_ns: self.since_start(stretch.from),
            to_ns: self.since_start(stretch.to),
            args: stretch.cpu.map_or(Value::Null, |cpu| json!({ "cpu": cpu })),
        };
        self.trace.run(&run)
    }

    fn since_start(&self, at: Instant) -> u64 {
        let Nanos(ns) = at.since(self.playback.start());
        ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::GateSpec;

    fn events(lines: &[TraceLine]) -> Value {
        let header = TraceHeader {
            divvy_trace: crate::TRACE_VERSION,
            gate: GateSpec::default(),
            clients: vec!["a \"b\"".into()],
        };
        let mut events = TraceEvents::new(Vec::new(), &header).unwrap();
        lines.iter().for_each(|line| events.line(line).unwrap());
        serde_json::from_slice(&events.finish().unwrap()).unwrap()
    }

    fn of_phase<'a>(trace: &'a Value, phase: &str) -> Vec<&'a Value> {
        trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == phase).collect()
    }

    #[test]
    fn a_trace_is_valid_from_its_first_event() {
        let trace = events(&[]);
        assert_eq!(trace["displayTimeUnit"], "ms");
        assert_eq!(trace["otherData"]["gate"]["policy"], "exact");
        assert_eq!(of_phase(&trace, "M").len(), 1);
    }

    #[test]
    fn released_stretches_are_runs_in_microseconds() {
        let line = |t, what| TraceLine { t, what };
        let trace = events(&[
            line(5_000, Trace::Join { c: 0, share: 2 }),
            line(6_500, Trace::Release { c: 0, cpu: Some(1) }),
            line(9_000, Trace::Charge { c: 0, ns: 2_000_000 }),
            line(9_000, Trace::Hold { c: 0 }),
            line(10_000, Trace::Release { c: 0, cpu: None }),
            line(12_000, Trace::Idle),
        ]);
        let names: Vec<&Value> = of_phase(&trace, "M").iter().map(|e| &e["args"]["name"]).collect();
        assert_eq!(names[1], "a \"b\" (share 2)");
        let runs: Vec<(f64, f64)> = of_phase(&trace, "X")
            .iter()
            .map(|e| (e["ts"].as_f64().unwrap(), e["dur"].as_f64().unwrap()))
            .collect();
        // From 1.5 to 4 us after the start, and from 5 us to the trace's end at 7.
        assert_eq!(runs, [(1.5, 2.5), (5.0, 2.0)]);
        assert_eq!(of_phase(&trace, "X")[0]["args"]["cpu"], 1);
        let point = of_phase(&trace, "C")[0];
        assert_eq!(
            (point["name"].as_str(), point["args"]["ms"].as_f64()),
            (Some("CPU time of a \"b\""), Some(2.0))
        );
        // No run touches what Perfetto takes for the idle process.
        assert!(trace["traceEvents"].as_array().unwrap().iter().all(|e| e["pid"] == 1));
        assert!(of_phase(&trace, "X").iter().all(|e| e["tid"] == 1));
    }

    #[test]
    fn a_line_that_cannot_be_is_refused() {
        let header =
            TraceHeader { divvy_trace: crate::TRACE_VERSION, gate: GateSpec::default(), clients: vec![] };
        let mut events = TraceEvents::new(Vec::new(), &header).unwrap();
        let error = events.line(&TraceLine { t: 0, what: Trace::Hold { c: 0 } }).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
