//! Service against the ideal fluid model: what each client should have had by now if CPU time were infinitely fine.
//!
//! # Model
//! At each moment the runnable clients share P CPUs in proportion to their shares, but none gets more than one CPU: who
//! would is given exactly one, and the rest is shared out again (water filling). A client's *entitlement* is the
//! integral of that; its *service error* is service received minus entitlement.
//!
//! # Exactness
//! Time is in integer nanoseconds, and everything is kept multiplied by a common denominator, the least common multiple
//! of all sums of shares met so far. Should that exceed 2^52 (many different sums), it grows no further, each step is
//! rounded down to a fraction of a nanosecond, and [`FluidErrors::is_exact`] says so.
//!
//! # Cost
//! O(1) a decision: an error only falls while its client waits and only rises while it runs, so it is looked at where
//! runs begin and end. O(n) when the denominator changes; O(n log n) at each change on several CPUs.

use divvy_policy::{ClientId, CpuId, Grant, Instant, Nanos, gcd_wide};

use super::Fraction;
use crate::machine::{Change, Observer};

const DENOMINATOR_MAX: u128 = 1 << 52;

/// One client's service error over a run, in quanta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceError {
    /// Furthest behind.
    pub min: Fraction,
    /// Furthest ahead.
    pub max: Fraction,
    /// Service received.
    pub service: Fraction,
    /// Entitlement.
    pub entitlement: Fraction,
}

/// The range of one client's service error, as reports show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ErrorRow {
    /// Furthest behind.
    pub min: Fraction,
    /// Furthest ahead.
    pub max: Fraction,
}

/// Times in nanoseconds times the denominator.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    share: u64,
    active: bool,
    capped: bool,
    received: i128,
    /// Entitlement up to `since`.
    base: i128,
    since: Instant,
    since_virtual: i128,
    min: i128,
    max: i128,
}

/// Observes the service errors of every client that joins.
#[derive(Clone, Debug)]
pub struct FluidErrors {
    cpus: u64,
    rows: Vec<Row>,
    now: Instant,
    denominator: u128,
    /// Entitlement of one unit of share among those not capped.
    virtual_time: i128,
    /// Sum of shares of active clients that are not capped.
    total: u64,
    nr_capped: u64,
    /// Sum of shares of all active clients.
    active: u64,
    /// Somebody changed at this moment: the rates must be found anew before time moves.
    stale: bool,
    exact: bool,
}

impl FluidErrors {
    /// The model for `cpus` CPUs, with no clients yet.
    #[must_use]
    pub const fn new(cpus: u32) -> Self {
        Self {
            cpus: cpus as u64,
            rows: Vec::new(),
            now: Instant::ZERO,
            denominator: 1,
            virtual_time: 0,
            total: 0,
            nr_capped: 0,
            active: 0,
            stale: false,
            exact: true,
        }
    }

    /// Whether no step had to be rounded.
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        self.exact
    }

    /// The errors of all clients that ever joined, by id, in units of `quantum`.
    #[must_use]
    pub fn errors(&self, quantum: Nanos) -> Vec<ServiceError> {
        let unit = self.denominator as i128 * i128::from(quantum.0.max(1));
        let entitled = |row: &Row| Fraction::new(self.entitlement(row), unit);
        self.rows
            .iter()
            .map(|row| ServiceError {
                min: Fraction::new(row.min, unit),
                max: Fraction::new(row.max, unit),
                service: Fraction::new(row.received, unit),
                entitlement: entitled(row),
            })
            .collect()
    }

    /// Moves the model to `now`, at the rates that held since the last change.
    #[inline]
    fn advance(&mut self, now: Instant) {
        let span = now.since(self.now).0;
        if span == 0 {
            return;
        }
        if std::mem::take(&mut self.stale) {
            self.refill();
        }
        self.now = now;
        if self.total == 0 {
            return;
        }
        let (rate, total) = (self.cpus - self.nr_capped, u128::from(self.total));
        let work = u128::from(span) * u128::from(rate);
        let step = if self.denominator.is_multiple_of(total) {
            work * (self.denominator / total)
        } else {
            self.exact = false;
            work * self.denominator / total
        };
        self.virtual_time += step as i128;
    }

    fn entitlement(&self, row: &Row) -> i128 {
        if !row.active {
            row.base
        } else if row.capped {
            row.base + i128::from(self.now.since(row.since).0) * self.denominator as i128
        } else {
            row.base + i128::from(row.share) * (self.virtual_time - row.since_virtual)
        }
    }

    /// Looks at the error of client `index` now.
    #[inline]
    fn note(&mut self, index: usize) {
        let error = self.rows[index].received - self.entitlement(&self.rows[index]);
        let row = &mut self.rows[index];
        row.min = row.min.min(error);
        row.max = row.max.max(error);
    }

    /// Books the entitlement of client `index` up to now.
    fn settle(&mut self, index: usize) {
        let entitlement = self.entitlement(&self.rows[index]);
        let row = &mut self.rows[index];
        row.base = entitlement;
        row.since = self.now;
        row.since_virtual = self.virtual_time;
    }

    /// Finds the rates anew after changes. Sums that lasted no time leave no trace in the denominator.
    fn refill(&mut self) {
        if self.cpus == 1 {
            self.total = self.active;
        } else {
            self.refill_many();
        }
        if self.total > 0 {
            self.widen(u128::from(self.total));
        }
    }

    /// Water filling: the largest shares are capped while they would get more than a CPU of what is left.
    fn refill_many(&mut self) {
        let mut active: Vec<usize> = (0..self.rows.len()).filter(|&i| self.rows[i].active).collect();
        active.sort_by_key(|&i| (std::cmp::Reverse(self.rows[i].share), i));
        let mut total: u64 = active.iter().map(|&i| self.rows[i].share).sum();
        let mut nr_capped = 0;
        while let Some(&i) = active.get(nr_capped as usize) {
            let share = self.rows[i].share;
            let wants = u128::from(share) * u128::from(self.cpus.saturating_sub(nr_capped));
            if nr_capped >= self.cpus || wants < u128::from(total) {
                break;
            }
            total -= share;
            nr_capped += 1;
        }
        for (place, &i) in active.iter().enumerate() {
            let capped = (place as u64) < nr_capped;
            if self.rows[i].capped != capped {
                self.settle(i);
                self.rows[i].capped = capped;
            }
        }
        self.total = total;
        self.nr_capped = nr_capped;
    }

    /// Makes the denominator a multiple of `total`, if it stays small enough.
    fn widen(&mut self, total: u128) {
        let factor = total / gcd_wide(total, self.denominator);
        if factor == 1 || self.denominator * factor > DENOMINATOR_MAX {
            return;
        }
        self.denominator *= factor;
        let factor = factor as i128;
        self.virtual_time *= factor;
        for row in &mut self.rows {
            for scaled in
                [&mut row.received, &mut row.base, &mut row.since_virtual, &mut row.min, &mut row.max]
            {
                *scaled *= factor;
            }
        }
    }
}

impl Observer for FluidErrors {
    fn on_run(&mut self, _cpu: CpuId, client: ClientId, from: Instant, to: Instant) {
        self.advance(to);
        self.rows[client.index()].received += i128::from(to.since(from).0) * self.denominator as i128;
        self.note(client.index());
    }

    fn on_decision(&mut self, now: Instant, grant: &Grant) {
        self.advance(now);
        self.note(grant.client.index());
    }

    fn on_change(&mut self, now: Instant, client: ClientId, change: Change) {
        self.advance(now);
        let index = client.index();
        if self.rows.len() <= index {
            self.rows.resize(index + 1, Row::default());
        }
        if self.rows[index].active {
            self.note(index);
        }
        self.settle(index);
        let row = &mut self.rows[index];
        let before = if row.active { row.share } else { 0 };
        match change {
            Change::Join { share } | Change::Reshare { share } => row.share = share.get(),
            Change::Wake => row.active = true,
            Change::Block | Change::Leave { .. } => {
                row.active = false;
                row.capped = false;
            }
        }
        let after = if row.active { row.share } else { 0 };
        self.active = self.active - before + after;
        self.stale = true;
    }

    fn on_end(&mut self, now: Instant) {
        self.advance(now);
        (0..self.rows.len()).for_each(|index| self.note(index));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use divvy_policy::Share;

    fn join(model: &mut FluidErrors, at: u64, client: u32, share: u64) {
        let share = Share::new(share).unwrap();
        model.on_change(Instant(at), ClientId(client), Change::Join { share });
        model.on_change(Instant(at), ClientId(client), Change::Wake);
    }

    #[test]
    fn a_newcomer_slows_the_others_down_exactly() {
        let mut model = FluidErrors::new(1);
        join(&mut model, 0, 0, 3);
        join(&mut model, 0, 1, 2);
        join(&mut model, 6, 2, 2);
        model.on_end(Instant(20));
        // 6 ns in fifths, then 14 ns in sevenths: 6*3/5 + 14*3/7 = 48/5; 6*2/5 + 4 = 32/5; 4.
        let errors = model.errors(Nanos(1));
        let entitlements: Vec<String> = errors.iter().map(|e| e.entitlement.to_string()).collect();
        assert_eq!(entitlements, ["48/5", "32/5", "4"]);
        assert_eq!(errors[0].min.to_string(), "-48/5");
        assert!(model.is_exact());
    }

    #[test]
    fn nobody_is_entitled_to_more_than_one_cpu() {
        let mut model = FluidErrors::new(2);
        join(&mut model, 0, 0, 1);
        join(&mut model, 0, 1, 1);
        join(&mut model, 0, 2, 6);
        // 6/8 of two CPUs is more than one: {1, 1, 6} becomes {1/2, 1/2, 1}.
        model.on_end(Instant(10));
        let entitlements: Vec<String> =
            model.errors(Nanos(1)).iter().map(|e| e.entitlement.to_string()).collect();
        assert_eq!(entitlements, ["5", "5", "10"]);
        // With the big one gone two clients have a CPU each.
        model.on_change(Instant(10), ClientId(2), Change::Block);
        model.on_end(Instant(20));
        let entitlements: Vec<String> =
            model.errors(Nanos(1)).iter().map(|e| e.entitlement.to_string()).collect();
        assert_eq!(entitlements, ["15", "15", "10"]);
    }

    #[test]
    fn too_many_sums_are_rounded_and_said_to_be() {
        let mut model = FluidErrors::new(1);
        for (client, share) in [(0, 1), (1, 65_536), (2, 6), (3, 4_294_967_278), (4, 12)] {
            join(&mut model, u64::from(client) * 1000, client, share);
        }
        model.on_end(Instant(10_000));
        assert!(!model.is_exact());
        let sum: f64 = model.errors(Nanos(1)).iter().map(|e| e.entitlement.to_f64()).sum();
        assert!((sum - 10_000.0).abs() < 1.0, "{sum}");
    }
}
