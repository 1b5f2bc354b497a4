//! What a run was: `--report`, `--json` and the summary. Its schema is `docs/report.schema.json`.

use divvy_engine::{Engine, Exit, Host, Ledger};
use divvy_linux::Membership;
use divvy_policy::{CpuLimit, Gate, Nanos, Policy};
use serde::Serialize;

use super::backend::BackendReport;
use super::tasks::Task;
use super::together::{Accounts, Among};

/// The version of the report's format.
pub(crate) const REPORT_VERSION: u32 = 1;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) version: u32,
    pub(crate) divvy: &'static str,
    pub(crate) policy: String,
    pub(crate) backend: BackendReport,
    pub(crate) quantum_ns: u64,
    pub(crate) cpus: Vec<u32>,
    pub(crate) wall_ns: u64,
    /// CPU time of all clients as a fraction of the wall time of all CPUs.
    pub(crate) utilization: f64,
    pub(crate) ended_by: String,
    pub(crate) clients: Vec<ClientReport>,
    /// Where divvyd divided them, together with its other clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) together: Option<TogetherReport>,
    pub(crate) cycles: CyclesReport,
    /// Whether each client got its share, and if not, why.
    pub(crate) verdict: String,
    /// CPU time of others, the hypervisor's among it where it tells, as a fraction of the wall time of all CPUs.
    pub(crate) strangers: f64,
    #[serde(rename = "self")]
    pub(crate) own: OwnReport,
    /// Whether the policy gives everybody its due in cycles.
    #[serde(skip)]
    pub(crate) has_cycles: bool,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct ClientReport {
    pub(crate) name: String,
    pub(crate) share: u64,
    /// The most that it may have, and what it had of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<LimitReport>,
    /// What the share comes to on these CPUs, in the same unit: less where a client cannot use so much.
    pub(crate) effective_share: f64,
    pub(crate) service_ns: u64,
    /// Effective share as a fraction of all effective shares.
    pub(crate) target_fraction: f64,
    /// Service as a fraction of all service.
    pub(crate) achieved_fraction: f64,
    /// `achieved / target - 1`.
    pub(crate) relative_error: f64,
    /// What it was attached by; `None` for a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) selector: Option<String>,
    /// `None` while it runs, and for what is not our child.
    pub(crate) exit: Option<Exit>,
    /// What people are told in the place of the signal that we have sent ourselves.
    #[serde(skip)]
    pub(crate) ended_by_us: Option<&'static str>,
}

/// What all tasks of a run had together of what divvyd divided.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TogetherReport {
    /// The group that they were in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) group: Option<String>,
    /// The currency that paid for them, at the system's divvyd.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) currency: Option<String>,
    /// What they were to get, as a fraction of the CPU time of all of divvyd's clients. Nothing where these had none.
    pub(crate) target_fraction: Option<f64>,
    /// What they got of it.
    pub(crate) achieved_fraction: Option<f64>,
}

impl TogetherReport {
    pub(super) fn new(among: &Among, of_all: Option<(f64, f64)>) -> Self {
        let (target_fraction, achieved_fraction) = of_all.unzip();
        let (group, currency) = match among {
            Among::Group(group) => (Some(group.path().to_owned()), None),
            Among::Currency(currency) => (None, Some(currency.clone())),
        };
        Self { group, currency, target_fraction, achieved_fraction }
    }

    /// A line for people.
    pub(super) fn line(&self) -> String {
        let among = match (&self.group, &self.currency) {
            (_, Some(currency)) => format!("currency {currency}"),
            (group, None) => format!("group {}", group.as_deref().unwrap_or_default()),
        };
        match (self.target_fraction, self.achieved_fraction) {
            (Some(target), Some(achieved)) => format!(
                "{among}: these tasks got {:.2} % of the CPU time of all of divvyd's clients, due {:.2} %",
                achieved * 100.0,
                target * 100.0
            ),
            _ => format!("{among}: divvyd's clients had no CPU time yet"),
        }
    }
}

/// A limit and what was had of it.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct LimitReport {
    #[serde(skip)]
    pub(crate) limit: CpuLimit,
    /// In millionths of one CPU.
    ppm: u64,
    /// CPU time as a fraction of the wall time of one CPU, in millionths.
    achieved_ppm: u64,
}

impl LimitReport {
    pub(super) fn new(limit: CpuLimit, service_ns: u64, wall_ns: u64) -> Self {
        let achieved = u128::from(service_ns) * 1_000_000 / u128::from(wall_ns.max(1));
        Self { limit, ppm: limit.ppm(), achieved_ppm: u64::try_from(achieved).unwrap_or(u64::MAX) }
    }

    /// Whether it had about as much as it may: the run began and ended within a window.
    pub(super) fn is_reached(&self) -> bool {
        self.achieved_ppm >= self.ppm / 20 * 19
    }
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct CyclesReport {
    /// Cycles that count: the first four do not.
    pub(crate) count: u64,
    pub(crate) rms_relative_error: Option<ErrorsReport>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct ErrorsReport {
    pub(crate) mean: f64,
    pub(crate) median: f64,
    pub(crate) max: f64,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct OwnReport {
    /// What tells of commands' CPU time and processes.
    pub(crate) accounts: &'static str,
    pub(crate) cpu_ns: u64,
    /// CPU time as a fraction of the wall time of one CPU.
    pub(crate) overhead: f64,
    pub(crate) wakeups: u64,
    pub(crate) reads: u64,
    pub(crate) signals: u64,
    /// What keeping track of attached clients' members cost; part of `cpu_ns`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) membership: Option<Membership>,
}

impl OwnReport {
    /// Counts the front end's CPU time as well.
    pub(crate) fn add_front_end(&mut self, cpu: Nanos, wall_ns: u64) {
        self.cpu_ns += cpu.0;
        self.overhead = self.cpu_ns as f64 / wall_ns.max(1) as f64;
    }

    /// The CPU time in words. Of what is over at once a rate would be that of the start alone.
    fn cpu(&self, wall_ns: u64) -> String {
        if wall_ns < Nanos::from_secs(1).0 {
            format!("{:.1} ms of CPU time", self.cpu_ns as f64 / 1e6)
        } else {
            format!("{:.3} % of a CPU", self.overhead * 100.0)
        }
    }
}

/// The clients' part of the report, as of now, after `wall_ns`. Exits are filled in as they come.
pub(crate) fn clients(ledger: &Ledger, tasks: &[Task], wall_ns: u64) -> Vec<ClientReport> {
    let standings = ledger.standings(|_, _| true, |_, client| client.service);
    let rows = ledger.clients().iter().zip(tasks).zip(standings);
    rows.map(|((client, task), standing)| ClientReport {
        name: task.name.clone(),
        share: client.share.get(),
        limit: client.limit.map(|limit| LimitReport::new(limit, client.service.0, wall_ns)),
        effective_share: standing.effective_share,
        service_ns: client.service.0,
        target_fraction: standing.effective_fraction,
        achieved_fraction: standing.achieved_fraction,
        relative_error: standing.relative_error,
        selector: None,
        exit: None,
        ended_by_us: None,
    })
    .collect()
}

/// What the clients of `report` were to get where divvyd divided them, which keeps their limits as well.
pub(super) fn divide_by(accounts: &Accounts, tasks: &[Task], wall_ns: u64, report: &mut [ClientReport]) {
    let shares: u64 = tasks.iter().map(|task| task.share.get()).sum();
    let measured = report.iter().any(|client| client.service_ns > 0);
    for (i, (client, task)) in report.iter_mut().zip(tasks).enumerate() {
        let target = accounts.target(i);
        client.target_fraction = target;
        client.effective_share = target * shares as f64;
        client.relative_error =
            if measured && target > 0.0 { client.achieved_fraction / target - 1.0 } else { 0.0 };
        client.limit = task.limit.map(|limit| LimitReport::new(limit, client.service_ns, wall_ns));
    }
}

/// The statistics' part of the report, as of now.
pub(crate) fn statistics<P: Policy<Decision = Gate>, H: Host>(
    engine: &mut Engine<P, H>,
    wall_ns: u64,
    accounts: &'static str,
) -> (CyclesReport, OwnReport) {
    let cost = engine.self_cost();
    let cycles = engine.ledger().cycles();
    let errors = cycles.errors().map(|e| ErrorsReport { mean: e.mean, median: e.median, max: e.max });
    (
        CyclesReport { count: cycles.counted(), rms_relative_error: errors },
        OwnReport {
            accounts,
            cpu_ns: cost.cpu.0,
            overhead: cost.cpu.0 as f64 / wall_ns.max(1) as f64,
            wakeups: engine.wakeups(),
            reads: cost.reads,
            signals: cost.signals,
            membership: None,
        },
    )
}

impl Report {
    /// What those with limits had of one CPU's time; nothing where there are none.
    fn limits(&self) -> Option<String> {
        let limited = self.clients.iter().filter_map(|c| Some((&c.name, c.limit?)));
        let had = limited
            .map(|(name, l)| format!("{name} had {:.2} % (limit {})", l.achieved_ppm as f64 / 1e4, l.limit))
            .collect::<Vec<_>>();
        (!had.is_empty()).then(|| format!("limits, of one CPU: {}", had.join(", ")))
    }

    /// The summary that ends a run, in lines.
    pub(crate) fn summary(&self, color: bool) -> Vec<String> {
        let mut lines = vec![format!(
            "{:.1} s on {} CPU{} ({}), policy {}, quantum {} ms; {:.1} % of the CPU time used",
            self.wall_ns as f64 / 1e9,
            self.cpus.len(),
            if self.cpus.len() == 1 { "" } else { "s" },
            self.ended_by,
            self.policy,
            self.quantum_ns as f64 / 1e6,
            self.utilization * 100.0,
        )];
        let rows = self.clients.iter().map(|c| super::table::Row {
            name: c.name.clone(),
            share: c.share,
            limit: c.limit.map(|limit| limit.limit),
            target: c.target_fraction,
            achieved: c.achieved_fraction,
            error: c.relative_error,
            state: match (c.exit, c.ended_by_us) {
                (None, _) if c.selector.is_some() => "released".to_owned(),
                (None, _) => "running".to_owned(),
                (Some(_), Some(how)) => how.to_owned(),
                (Some(Exit::Code(code)), None) => format!("exit {code}"),
                (Some(Exit::Signal(signal)), None) => format!("signal {signal}"),
            },
            cpu_ns: c.service_ns,
        });
        lines.extend(super::table::lines(&rows.collect::<Vec<_>>(), color));
        lines.push(format!("shares: {}", self.verdict));
        lines.extend(self.together.as_ref().map(TogetherReport::line));
        lines.extend(self.limits());
        lines.extend(self.backend.line());
        let errors = match &self.cycles.rms_relative_error {
            Some(e) => format!(
                "error per cycle (RMS, {} cycles): median {:.3} %, mean {:.3} %, largest {:.2} %",
                self.cycles.count,
                e.median * 100.0,
                e.mean * 100.0,
                e.max * 100.0
            ),
            None if !self.has_cycles => "error per cycle: none, a dispatcher knows no cycles".to_owned(),
            None => "error per cycle: the run ended before the fifth cycle".to_owned(),
        };
        // divvyd's cycles are of all its clients.
        lines.extend(Some(errors).filter(|_| self.together.is_none()));
        lines.push(format!(
            "divvy itself: {}, {} wake-ups, {} reads (of {}), {} {}",
            self.own.cpu(self.wall_ns),
            self.own.wakeups,
            self.own.reads,
            self.own.accounts,
            self.own.signals,
            self.backend.deeds(),
        ));
        if let Some(m) = &self.own.membership {
            lines.push(format!(
                "members: {} of {} processes ({} idle, {} not permitted); {} scans, {:.3} % of a CPU; stops reach a client \
                 within {:.0} us",
                m.members,
                m.processes,
                m.idle,
                m.not_permitted,
                m.scans,
                m.scan_ns as f64 / self.wall_ns.max(1) as f64 * 100.0,
                m.skew_ns_max as f64 / 1e3,
            ));
        }
        lines
    }
}
