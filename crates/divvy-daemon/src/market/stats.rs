//! What the market's thread counts and measures, for `/metrics`.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::message::Ask;

/// Bounds of the buckets that the time of a commit is counted in, seconds.
const SECONDS: [f64; 12] = [1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.5, 2.0];

/// One kind of change and what came of it: `done` or `refused`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Operation {
    operation: &'static str,
    outcome: &'static str,
}

/// All of it. Clones count together.
#[derive(Clone, Debug)]
pub(crate) struct Stats {
    operations: Family<Operation, Counter>,
    /// Time of one commit: a batch on disk.
    commits: Histogram,
    failures: Counter,
    /// CPU time in which values were worked out.
    values: Counter<f64, AtomicU64>,
    records: Counter,
    audit_rows: Counter,
    currencies: Gauge,
    tickets: Gauge,
    clients: Gauge,
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            operations: Family::default(),
            commits: Histogram::new(SECONDS),
            failures: Counter::default(),
            values: Counter::default(),
            records: Counter::default(),
            audit_rows: Counter::default(),
            currencies: Gauge::default(),
            tickets: Gauge::default(),
            clients: Gauge::default(),
        }
    }
}

impl Stats {
    /// Has everything told by `registry`.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let all = registry.sub_registry_with_prefix("market");
        all.register(
            "operations",
            "Changes that were asked for, and what came of them",
            self.operations.clone(),
        );
        let help = "Time to put a batch of changes on disk";
        all.register_with_unit("commit_duration", help, Unit::Seconds, self.commits.clone());
        all.register("commit_failures", "Batches that could not be put on disk", self.failures.clone());
        let help = "CPU time in which it was worked out what clients are worth";
        all.register_with_unit("values_cpu", help, Unit::Seconds, self.values.clone());
        all.register("records", "Records put on disk", self.records.clone());
        all.register("audit_rows", "Lines written to the audit log", self.audit_rows.clone());
        all.register("currencies", "Currencies and clients, the base among them", self.currencies.clone());
        all.register("tickets", "Tickets", self.tickets.clone());
        all.register("clients", "Clients of the market", self.clients.clone());
    }

    /// A change was asked for.
    pub(crate) fn asked(&self, ask: &Ask, is_done: bool) {
        let outcome = if is_done { "done" } else { "refused" };
        self.operations.get_or_create(&Operation { operation: name(ask), outcome }).inc();
    }

    /// A batch of so many records and lines was put on disk, or could not be, within `seconds`.
    pub(crate) fn committed(&self, seconds: f64, records: usize, audit_rows: usize, is_done: bool) {
        self.commits.observe(seconds);
        if is_done {
            self.records.inc_by(records as u64);
            self.audit_rows.inc_by(audit_rows as u64);
        } else {
            self.failures.inc();
        }
    }

    /// It was worked out what clients are worth, in `seconds` of CPU time.
    pub(crate) fn worked_out(&self, seconds: f64) {
        self.values.inc_by(seconds);
    }

    /// How much CPU time that took so far, in seconds.
    pub(crate) fn seconds_of_values(&self) -> f64 {
        self.values.get()
    }

    /// How many there are just now.
    pub(crate) fn sizes(&self, (currencies, tickets, clients): (usize, usize, usize)) {
        for (gauge, size) in
            [(&self.currencies, currencies), (&self.tickets, tickets), (&self.clients, clients)]
        {
            gauge.set(i64::try_from(size).unwrap_or(i64::MAX));
        }
    }
}

fn name(ask: &Ask) -> &'static str {
    match ask {
        Ask::CreateCurrency(_) => "create-currency",
        Ask::ChangeCurrency(..) => "change-currency",
        Ask::DestroyCurrency(_) => "destroy-currency",
        Ask::CreateTicket(_) => "create-ticket",
        Ask::ChangeTicket(..) => "change-ticket",
        Ask::DestroyTicket(_) => "destroy-ticket",
        Ask::CreateExchange(_) => "create-exchange",
        Ask::CancelExchange(_) => "cancel-exchange",
        Ask::CreateOffer(_) => "create-offer",
        Ask::WithdrawOffer(_) => "withdraw-offer",
        Ask::Nice(_) => "nice",
        Ask::SetBound(..) => "set-bound",
        Ask::SetSite(_) => "set-site",
        Ask::Orders(_) => "orders",
        Ask::Admit { .. } => "admit",
        Ask::SetShare { .. } => "set-share",
        Ask::SetTerms { .. } => "set-terms",
        Ask::Leave { .. } => "leave",
        Ask::Noted { .. } => "noted",
        Ask::Reload(_) => "reload",
        _ => "look",
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn what_is_counted_is_told() {
        let (stats, mut registry) = (Stats::default(), Registry::with_prefix("divvy"));
        stats.register(&mut registry);
        stats.asked(&Ask::DestroyTicket("1".to_owned()), true);
        stats.asked(&Ask::DestroyTicket("1".to_owned()), false);
        stats.committed(0.003, 5, 7, true);
        stats.committed(3.0, 50, 70, false);
        stats.sizes((3, 4, 2));
        stats.worked_out(0.25);
        stats.worked_out(0.5);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "divvy_market_operations_total{operation=\"destroy-ticket\",outcome=\"done\"} 1",
            "divvy_market_operations_total{operation=\"destroy-ticket\",outcome=\"refused\"} 1",
            "divvy_market_commit_duration_seconds_bucket{le=\"0.0025\"} 0",
            "divvy_market_commit_duration_seconds_bucket{le=\"0.005\"} 1",
            "divvy_market_commit_duration_seconds_count 2",
            "divvy_market_commit_failures_total 1",
            "divvy_market_values_cpu_seconds_total 0.75",
            "divvy_market_records_total 5",
            "divvy_market_audit_rows_total 7",
            "divvy_market_currencies 3",
            "divvy_market_tickets 4",
            "divvy_market_clients 2",
        ] {
            assert!(text.lines().any(|l| l == line), "no line '{line}' in\n{text}");
        }
    }
}
