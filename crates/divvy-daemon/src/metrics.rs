//! What is counted and measured, in the text format of OpenMetrics, which Prometheus reads.
//!
//! Paths are counted by their templates and unknown methods together, so that no client of the API can make this grow.

use std::sync::{Arc, Mutex, PoisonError};

use axum::http::{Method, StatusCode};
use divvy_policy::Nanos;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::market::stats::Stats;
use divvy_api::types::{Pressure, Status};

/// What the text of [`Metrics::text`] is.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Bounds of the buckets that times are counted in, seconds.
const SECONDS: [f64; 14] =
    [1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0, 5.0];

/// One kind of request and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Asked {
    method: &'static str,
    path: String,
    status: u16,
}

/// One kind of request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    method: &'static str,
    path: String,
}

/// Everything that is counted. Clones count together.
#[derive(Clone, Debug)]
pub(crate) struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Registry,
    requests: Family<Asked, Counter>,
    times: Family<Kind, Histogram, fn() -> Histogram>,
    scheduler: Arc<SchedulerMetrics>,
}

/// What the scheduler last told. It counts for itself.
#[derive(Debug, Default)]
struct SchedulerMetrics(Mutex<Option<Status>>);

impl Metrics {
    /// Nothing counted yet. What the market counts is told too.
    pub(crate) fn new(market: Option<&Stats>) -> Self {
        let mut registry = Registry::with_prefix("divvy");
        let scheduler = Arc::new(SchedulerMetrics::default());
        let requests = Family::default();
        let times: Family<Kind, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(SECONDS));
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("daemon", "The divvyd that tells this", version);
        registry.register(
            "requests",
            "Requests answered, by what was asked for and the status",
            requests.clone(),
        );
        registry.register_with_unit(
            "request_duration",
            "Time from a request's head to its answer",
            Unit::Seconds,
            times.clone(),
        );
        registry.register_collector(Box::new(Arc::clone(&scheduler)));
        market.into_iter().for_each(|market| market.register(&mut registry));
        Self(Arc::new(Inner { registry, requests, times, scheduler }))
    }

    /// Counts a request for `path` (a template) that took `time`.
    pub(crate) fn request(&self, method: &Method, path: &str, status: StatusCode, time: Nanos) {
        let (method, path) = (method_name(method), path.to_owned());
        let kind = Kind { method, path: path.clone() };
        self.0.times.get_or_create(&kind).observe(time.0 as f64 / 1e9);
        self.0.requests.get_or_create(&Asked { method, path, status: status.as_u16() }).inc();
    }

    /// Everything, with what the scheduler says of itself, if it says something.
    pub(crate) fn text(&self, scheduler: Option<Status>) -> String {
        *self.0.scheduler.0.lock().unwrap_or_else(PoisonError::into_inner) = scheduler;
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.0.registry);
        text
    }
}

impl Collector for SchedulerMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let help = "Lines of the log that were dropped, since nobody read them in time";
        counter(&mut encoder, "log_lines_dropped", help, crate::logs::dropped())?;
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(status) = last.as_ref() else { return Ok(()) };
        let own = &status.own;
        let seconds = |ns: u64| ns as f64 / 1e9;
        let backend = &status.backend;
        let of = [("asked", &backend.asked), ("used", &backend.used), ("why", &backend.why)];
        let backend = Info::new(of.map(|(key, value)| (key, value.clone())));
        let help = "By what clients are held, or weighed: what was asked for, what was taken, and why";
        backend.encode(encoder.encode_descriptor(
            "scheduler_backend",
            help,
            None,
            backend.metric_type(),
        )?)?;
        pressure(&mut encoder, &status.pressure)?;
        gauge(&mut encoder, "clients", "Clients that are divided", status.clients as u64)?;
        gauge(&mut encoder, "cpus", "CPUs that are divided", status.cpus.len() as u64)?;
        gauge(&mut encoder, "uptime_seconds", "Time since divvyd began", seconds(status.uptime_ns))?;
        let help = "CPU time that divvyd itself has used, of all its threads";
        counter(&mut encoder, "own_cpu_seconds", help, seconds(own.cpu_ns))?;
        for (name, help, value) in [
            ("scheduler_wakeups", "How often the scheduling loop woke", own.wakeups),
            ("scheduler_reads", "Looks at a process's clock or state", own.reads),
            ("scheduler_signals", "Signals sent", own.signals),
            ("scheduler_scans", "Scans of the machine's processes", own.scans),
        ] {
            counter(&mut encoder, name, help, value)?;
        }
        Ok(())
    }
}

/// For whom the kernel waited.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Waiting {
    resource: String,
    kind: &'static str,
}

/// The time for which clients' processes waited, resource by resource.
fn pressure(to: &mut DescriptorEncoder, told: &[Pressure]) -> Result<(), std::fmt::Error> {
    if told.is_empty() {
        return Ok(());
    }
    let help =
        "Time for which at least one process of all clients waited for a resource (some), or all did (full)";
    let mut family = to.encode_descriptor("pressure_seconds", help, None, MetricType::Counter)?;
    for of in told {
        for (kind, ns) in [("some", Some(of.some_total_ns)), ("full", of.full_total_ns)] {
            let Some(ns) = ns else { continue };
            let labels = Waiting { resource: of.resource.clone(), kind };
            ConstCounter::new(ns as f64 / 1e9).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

/// One number that rises and falls.
pub(crate) fn gauge<N>(
    to: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    value: N,
) -> Result<(), std::fmt::Error>
where
    ConstGauge<N>: EncodeMetric,
{
    let gauge = ConstGauge::new(value);
    gauge.encode(to.encode_descriptor(name, help, None, gauge.metric_type())?)
}

/// One number that only rises.
pub(crate) fn counter<N>(
    to: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    value: N,
) -> Result<(), std::fmt::Error>
where
    ConstCounter<N>: EncodeMetric,
{
    let counter = ConstCounter::new(value);
    counter.encode(to.encode_descriptor(name, help, None, counter.metric_type())?)
}

fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use divvy_api::types::OwnCost;

    fn has(text: &str, line: &str) {
        assert!(text.lines().any(|l| l == line), "no line '{line}' in\n{text}");
    }

    #[test]
    fn what_is_counted_is_told() {
        let metrics = Metrics::new(None);
        let path = "/v1/clients/{client}";
        metrics.request(&Method::GET, path, StatusCode::OK, Nanos::from_micros(300));
        metrics.request(&Method::GET, path, StatusCode::OK, Nanos::from_millis(2));
        metrics.request(&Method::GET, path, StatusCode::NOT_FOUND, Nanos::from_secs(70));
        let brew = Method::from_bytes(b"BREW").expect("a method");
        metrics.request(&brew, "none", StatusCode::METHOD_NOT_ALLOWED, Nanos::from_micros(1));
        let status = Status {
            version: "1".into(),
            pid: 7,
            host: "n1".into(),
            instance: "a".into(),
            policy: "exact".into(),
            options: None,
            policy_file: None,
            backend: divvy_api::types::BackendInfo {
                asked: "auto".into(),
                used: "cgroup".into(),
                why: "it is ours".into(),
                ..Default::default()
            },
            quantum_ns: 1,
            cpus: vec![0, 3],
            uptime_ns: 2_500_000_000,
            age_ns: 0,
            own: OwnCost { cpu_ns: 1_500_000_000, wakeups: 9, ..OwnCost::default() },
            clients: 5,
            pressure: vec![Pressure {
                resource: "disk".into(),
                some_total_ns: 1_250_000_000,
                full_total_ns: Some(500_000_000),
                ..Pressure::default()
            }],
        };
        let text = metrics.text(Some(status));
        let get = "method=\"GET\",path=\"/v1/clients/{client}\"";
        has(&text, &format!("divvy_requests_total{{{get},status=\"200\"}} 2"));
        has(&text, &format!("divvy_requests_total{{{get},status=\"404\"}} 1"));
        has(&text, "divvy_requests_total{method=\"other\",path=\"none\",status=\"405\"} 1");
        let bucket = |le: &str| format!("divvy_request_duration_seconds_bucket{{le=\"{le}\",{get}}}");
        has(&text, &format!("{} 0", bucket("0.00025")));
        has(&text, &format!("{} 1", bucket("0.0005")));
        has(&text, &format!("{} 2", bucket("5.0")));
        has(&text, &format!("{} 3", bucket("+Inf")));
        has(&text, "divvy_scheduler_backend_info{asked=\"auto\",used=\"cgroup\",why=\"it is ours\"} 1");
        has(&text, "divvy_pressure_seconds_total{resource=\"disk\",kind=\"some\"} 1.25");
        has(&text, "divvy_pressure_seconds_total{resource=\"disk\",kind=\"full\"} 0.5");
        has(&text, "divvy_clients 5");
        has(&text, "divvy_cpus 2");
        has(&text, "divvy_own_cpu_seconds_total 1.5");
        has(&text, "divvy_scheduler_wakeups_total 9");
        assert!(text.ends_with("# EOF\n"), "{text}");
        // A scheduler that says nothing is not told of with what it said before.
        assert!(!metrics.text(None).contains("divvy_clients "));
    }
}
