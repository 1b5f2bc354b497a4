//! What comes out of a run: one structure, written as JSON, CSV or a timeline.

use std::fmt::Write;

use divvy_engine::chrome::{ChromeTrace, Run};
use divvy_policy::Nanos;
use serde::Serialize;

use crate::metrics::{self, ErrorRow, Fraction, GroupResponses, Series};

/// Everything that was measured on one run. Indexes of clients count from 0; fractions are exact, in quanta.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Report {
    /// The scenario's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The policy's name.
    pub policy: String,
    /// The seed that was used.
    pub seed: u64,
    /// Shares of the clients that were there from the start.
    pub shares: Vec<u64>,
    /// The quantum, in nanoseconds: the unit of service errors and of the schedule.
    pub quantum_ns: u64,
    /// CPUs.
    pub cpus: u32,
    /// Why the run ended: `finished`, `until`, `decision-limit`, `event-limit`, `client-limit`, `quiet`, `endless` or `stalled`.
    pub ended: &'static str,
    /// Simulated time, in nanoseconds.
    pub time_ns: u64,
    /// Who had each quantum; null when idle. Absent unless asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Vec<Option<u32>>>,
    /// There was more than could be kept.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub schedule_truncated: bool,
    /// The range of service errors over all clients and moments. Absent unless asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_error: Option<ErrorSummary>,
    /// The clients that were there from the start.
    pub per_client: Vec<ClientReport>,
    /// Response times, if there were any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub responses: Option<ResponseReport>,
    /// The same for each group of requests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<ResponseReport>,
    /// How evenly clients were served.
    pub fairness: Fairness,
    /// CPU time received, as a fraction of CPUs x simulated time.
    pub utilization: f64,
    /// What the scheduler had to do.
    pub operations: Operations,
    /// Runs, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
    /// Service over time under a fluid model, if runs were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<Series>,
    /// What a gate above a kernel did and cost, if the scenario has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<GateReport>,
}

/// What a gate above a kernel did and cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct GateReport {
    /// How often it woke.
    pub wakeups: u64,
    /// Clocks and states read.
    pub reads: u64,
    /// Clients held or released.
    pub signals: u64,
    /// Its own CPU time as a fraction of simulated time: of one CPU.
    pub own_cpu: f64,
    /// Cycles ended; 0 for dispatchers, which know none.
    pub cycles: u64,
    /// Root mean square relative error of a cycle (ALPS, section 3.3): median, mean and maximum over all but the first
    /// four cycles. Absent if there were no more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycle_error: Option<CycleErrorReport>,
    /// CPU time in which nobody ran, the gate neither, in nanoseconds.
    pub idle_ns: u64,
    /// The longest time in a row in which a CPU idled while a held client would have run, in nanoseconds.
    pub idle_with_held_longest_ns: u64,
    /// Time that was stolen from the machine, in nanoseconds.
    pub stolen_ns: u64,
}

/// The error of cycles, as fractions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CycleErrorReport {
    /// Half the cycles are within this.
    pub median: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// The worst cycle.
    pub max: f64,
}

/// The range of service errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ErrorSummary {
    /// Furthest behind.
    pub min: Fraction,
    /// Furthest ahead.
    pub max: Fraction,
    /// False if there were so many different sums of shares that steps were rounded (to under 1 ns).
    pub exact: bool,
}

/// One client.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClientReport {
    /// Its name, if it has one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its share.
    pub share: u64,
    /// Furthest behind, and ahead. Absent unless asked for.
    #[serde(flatten)]
    pub error: Option<ErrorRow>,
    /// CPU time received, in quanta.
    pub service: Fraction,
    /// CPU time received, in nanoseconds.
    pub service_ns: u64,
    /// When it left, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_ns: Option<u64>,
}

/// Response times of some requests, in seconds. Numbers that do not exist (the spread of one request) are null.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ResponseReport {
    /// The group, or `all`.
    pub name: String,
    /// Requests answered.
    pub count: u64,
    /// Mean.
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub mean: f64,
    /// Half the width of the mean's 95 % confidence interval, by batch means.
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub half_width: f64,
    /// Standard deviation.
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub sd: f64,
    /// The fastest.
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub min: f64,
    /// The slowest.
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub max: f64,
    /// Half are answered within this; within 1.6 %, as all quantiles here.
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub p50: f64,
    /// 95 % are.
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub p95: f64,
    /// 99 % are.
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub p99: f64,
    /// Mean of response time divided by CPU time.
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub slowdown: f64,
    /// Largest of those.
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub slowdown_max: f64,
    /// Requests answered per second.
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub throughput: f64,
    /// Sum of all response times, in nanoseconds, exact (saturating).
    pub sum_ns: u64,
    /// The first response times in nanoseconds, in the order of completion, as many as were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub first_ns: Vec<u64>,
}

impl ResponseReport {
    /// The report on `responses`, answered in a stretch of `span`.
    pub(crate) fn new(name: &str, responses: &GroupResponses, span: Nanos) -> Self {
        let seconds = &responses.seconds;
        // Classes reach beyond the largest number in them.
        let quantile = |part| {
            let class = responses.histogram.quantile(part);
            class.map_or(f64::NAN, |ns| Nanos(ns).as_secs_f64().min(seconds.max()))
        };
        Self {
            name: name.into(),
            count: seconds.count(),
            mean: seconds.mean(),
            half_width: responses.batches.estimate().half_width,
            sd: seconds.sd(),
            min: seconds.min(),
            max: seconds.max(),
            p50: quantile(0.5),
            p95: quantile(0.95),
            p99: quantile(0.99),
            slowdown: responses.slowdown.mean(),
            slowdown_max: responses.slowdown.max(),
            throughput: seconds.count() as f64 / span.as_secs_f64(),
            sum_ns: u64::try_from(responses.sum).unwrap_or(u64::MAX),
            first_ns: Vec::new(),
        }
    }
}

/// How evenly the clients that were there from the start were served at the end of the run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Fairness {
    /// Jain's index of service divided by share: 1 is perfectly fair.
    pub jain: f64,
    /// The largest difference between two clients' service divided by share, in quanta: 0 is perfectly fair.
    pub gap: Fraction,
}

/// What the scheduler had to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Operations {
    /// Grants.
    pub decisions: u64,
    /// Grants to another client than the CPU ran last.
    pub switches: u64,
    /// Grants that took a CPU away in the middle of a slice.
    pub preemptions: u64,
    /// Events that the policy was told.
    pub events: u64,
    /// CPU time lost in switching, in nanoseconds.
    pub overhead_ns: u64,
    /// CPU time left idle while a client wanted it, in nanoseconds.
    pub idle_with_work_ns: u64,
}

/// Who ran where, when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Timeline {
    /// How many runs there were.
    pub nr_runs: u64,
    /// FNV-1a over from, to (both in units of the scenario's resolution) and client of every run, in hexadecimal.
    pub hash: String,
    /// The first of them: from and to in nanoseconds, client, CPU.
    pub runs: Vec<(u64, u64, u32, u32)>,
}

impl Timeline {
    pub(crate) fn new(log: &crate::metrics::RunLog) -> Self {
        let row = |run: &metrics::Run| (run.from.0, run.to.0, run.client.0, run.cpu.0);
        Self {
            nr_runs: log.nr_runs(),
            hash: format!("{:016x}", log.hash()),
            runs: log.runs().iter().map(row).collect(),
        }
    }
}

impl Report {
    /// The name of a client: the scenario's, or its number.
    #[must_use]
    pub fn client_name(&self, client: u32) -> String {
        match self.per_client.get(client as usize).map(|row| row.name.as_str()) {
            None | Some("") => format!("client {client}"),
            Some(name) => name.into(),
        }
    }

    /// The part that each client had of each of `nr` windows of equal length: client by client, then window by window.
    /// With P CPUs the parts of one window sum to at most P. `None` unless runs were asked for and all could be kept.
    #[must_use]
    pub fn windows(&self, nr: usize) -> Option<Vec<Vec<f64>>> {
        if let Some(series) = &self.series {
            return Some(series.windows(nr));
        }
        let timeline = self.timeline.as_ref().filter(|line| line.nr_runs == line.runs.len() as u64)?;
        let nr_clients = timeline.runs.iter().map(|run| run.2 as usize + 1).max().unwrap_or(0);
        let mut parts = vec![vec![0.0; nr]; nr_clients.max(self.per_client.len())];
        let length = self.time_ns as f64 / nr.max(1) as f64;
        for &(from, to, client, _) in &timeline.runs {
            let (from, to) = (from as f64 / length, to as f64 / length);
            let (first, last) = (from as usize, nr.min(to.ceil() as usize));
            for (window, part) in parts[client as usize].iter_mut().enumerate().take(last).skip(first) {
                *part += to.min(window as f64 + 1.0) - from.max(window as f64);
            }
        }
        Some(parts)
    }

    /// The JSON schema of a report as [`Report::to_json`] writes it: `docs/sim.schema.json`.
    #[cfg(feature = "schema")]
    #[must_use]
    pub fn schema() -> serde_json::Value {
        let settings = schemars::generate::SchemaSettings::default().for_serialize();
        settings.into_generator().into_root_schema_for::<Self>().into()
    }

    /// The report as JSON.
    ///
    /// # Panics
    /// Never: every field can be written.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// The timeline in Chrome's trace format, which Perfetto and chrome://tracing open: a row for each CPU.
    ///
    /// Empty of runs unless the scenario asks for them (`measure.runs`).
    #[must_use]
    pub fn to_chrome_trace(&self) -> String {
        // Writing to memory cannot fail, and what is written is text.
        let bytes = self.write_chrome_trace(Vec::new()).unwrap_or_default();
        String::from_utf8(bytes).unwrap_or_default()
    }

    fn write_chrome_trace(&self, out: Vec<u8>) -> std::io::Result<Vec<u8>> {
        let about = serde_json::json!({ "policy": self.policy, "seed": self.seed });
        let mut trace = ChromeTrace::new(out, &format!("divvy sim: {}", self.policy), &about)?;
        for cpu in 0..self.cpus {
            trace.row(cpu, &format!("CPU {cpu}"))?;
        }
        for &(from_ns, to_ns, client, row) in self.timeline.iter().flat_map(|timeline| &timeline.runs) {
            let name = self.client_name(client);
            let args = serde_json::json!({ "client": client });
            trace.run(&Run { row, name: &name, category: "run", from_ns, to_ns, args })?;
        }
        trace.finish()
    }

    /// One row for each client that was there from the start, below a line of names.
    #[must_use]
    pub fn clients_csv(&self) -> String {
        let mut out = String::from("client,name,share,service_ns,error_min,error_max,finished_ns\n");
        for (index, row) in self.per_client.iter().enumerate() {
            let (min, max) =
                row.error.map_or_else(Default::default, |e| (e.min.to_string(), e.max.to_string()));
            let finished = row.finished_ns.map(|ns| ns.to_string()).unwrap_or_default();
            // Writing to a String cannot fail.
            let _ = writeln!(
                out,
                "{index},{},{},{},{min},{max},{finished}",
                csv_cell(&row.name),
                row.share,
                row.service_ns
            );
        }
        out
    }

    /// One row for each run that was kept, below a line of names.
    #[must_use]
    pub fn runs_csv(&self) -> String {
        let mut out = String::from("from_ns,to_ns,client,cpu\n");
        for (from, to, client, cpu) in self.timeline.iter().flat_map(|timeline| &timeline.runs) {
            let _ = writeln!(out, "{from},{to},{client},{cpu}");
        }
        out
    }
}

/// A text as a cell of a CSV row (RFC 4180).
pub(crate) fn csv_cell(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.into()
    }
}
