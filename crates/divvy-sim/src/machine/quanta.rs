//! The smallest machine: one CPU, clients that never block, one quantum after another.
//!
//! The papers' studies of static shares run hundreds of millions of quanta; here each costs the policy's own work and a
//! few additions. Service errors are exact: they are kept multiplied by the sum of shares, in integers.

use divvy_policy::{ClientId, CpuId, Event, EventError, Grant, Instant, Nanos, Policy, Share};

use crate::metrics::Fraction;

/// Service errors of clients with static shares, at every boundary between quanta.
///
/// A client's error only falls while it waits and only rises while it runs, so its extremes over all boundaries are
/// met where its own quanta begin and end, and at the last boundary: a quantum costs O(1), not O(n).
#[derive(Clone, Debug)]
pub struct StaticErrors {
    total: i64,
    quanta: i64,
    rows: Vec<Row>,
}

/// Errors are in quanta times the sum of shares.
#[derive(Clone, Copy, Debug)]
struct Row {
    share: i64,
    received: i64,
    min: i64,
    max: i64,
}

/// The extremes of one client's service error, in quanta, and the quanta that it received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorRange {
    /// The smallest error: how far it fell behind.
    pub min: Fraction,
    /// The largest error: how far it got ahead.
    pub max: Fraction,
    /// Quanta received.
    pub quanta: u64,
}

impl StaticErrors {
    /// Nothing has run yet.
    #[must_use]
    pub fn new(shares: &[u64]) -> Self {
        let rows = shares
            .iter()
            .map(|&share| Row { share: share as i64, received: 0, min: 0, max: 0 })
            .collect::<Vec<_>>();
        Self { total: rows.iter().map(|row| row.share).sum(), quanta: 0, rows }
    }

    /// Client `index` receives the next quantum.
    #[inline]
    pub fn on_quantum(&mut self, index: usize) {
        let row = &mut self.rows[index];
        let before = row.received * self.total - self.quanta * row.share;
        self.quanta += 1;
        row.received += 1;
        row.min = row.min.min(before);
        row.max = row.max.max(before + self.total - row.share);
    }

    /// The smallest and largest error of any client at any boundary so far, in quanta times the sum of shares.
    #[must_use]
    pub fn range_scaled(&self) -> (i64, i64) {
        self.rows.iter().fold((0, 0), |(min, max), row| {
            let last = row.received * self.total - self.quanta * row.share;
            (min.min(row.min).min(last), max.max(row.max))
        })
    }

    /// The range of each client, in quanta.
    #[must_use]
    pub fn ranges(&self) -> Vec<ErrorRange> {
        let fraction = |scaled: i64| Fraction::new(i128::from(scaled), i128::from(self.total));
        self.rows
            .iter()
            .map(|row| {
                let last = row.received * self.total - self.quanta * row.share;
                ErrorRange {
                    min: fraction(row.min.min(last)),
                    max: fraction(row.max),
                    quanta: row.received as u64,
                }
            })
            .collect()
    }
}

/// Runs `quanta` quanta of length `quantum` under `policy`, among clients 0, 1, ... that hold `shares` and never block,
/// calling `on_quantum` with each quantum's client.
///
/// A grant longer than a quantum counts as several; the last is cut where the run ends.
///
/// # Errors
/// The policy's own, if it refuses an event. The run also stops early, without error, if the policy stops granting:
/// the answer is the number of quanta that ran.
pub fn run_static<P: Policy<Decision = Grant>>(
    policy: &mut P,
    shares: &[Share],
    quantum: Nanos,
    quanta: u64,
    mut on_quantum: impl FnMut(ClientId),
) -> Result<u64, EventError> {
    let cpu = CpuId(0);
    let mut now = Instant::ZERO;
    for (index, &share) in shares.iter().enumerate() {
        policy.on_event(now, Event::Join { client: ClientId(index as u32), share })?;
    }
    for index in 0..shares.len() {
        policy.on_event(now, Event::Wake { client: ClientId(index as u32) })?;
    }
    policy.on_event(now, Event::Free { cpu })?;
    let mut nr_run = 0;
    while nr_run < quanta {
        let Some(Grant { client, slice, .. }) = policy.poll_decision(now) else { return Ok(nr_run) };
        let mut used = Nanos::ZERO;
        loop {
            on_quantum(client);
            nr_run += 1;
            used += quantum;
            if used >= slice || nr_run == quanta {
                break;
            }
        }
        now = now + used;
        policy.on_event(now, Event::Charge { client, used })?;
        policy.on_event(now, Event::Free { cpu })?;
    }
    Ok(nr_run)
}
