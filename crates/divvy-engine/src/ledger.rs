//! The accounts: what each client was due, what it got, and the error of every cycle.
//!
//! Floats only print here: nothing in this module decides who runs.

use std::collections::VecDeque;

use divvy_policy::feasible::{Claim, water_fill_limited};
use divvy_policy::{ClientId, CpuLimit, Nanos, Share};

/// Cycles left out of the statistics at the start of a run, as in ALPS, section 3.3.
pub const START_UP_CYCLES: u64 = 4;

/// A client is as wide as it was seen to be in so many cycles.
const NARROW_CYCLES: u64 = 16;

/// One client's account.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientLedger {
    /// What it asked for.
    pub share: Share,
    /// The most CPU time that it may have, where there is a most.
    pub limit: Option<CpuLimit>,
    /// CPUs that it can use at once: the most of the last 16 cycles, for threads rest now and then.
    pub width: u32,
    /// The most that it was seen to use since it was seen to use less than that, and the cycle in which that was.
    narrower: Option<(u32, u64)>,
    /// Still in the run.
    pub present: bool,
    /// Seen blocked when last looked at.
    pub blocked: bool,
    /// Held until the next window, for it has had its limit in this one.
    pub at_limit: bool,
    /// Held by the user's wish: its share goes to the others.
    pub paused: bool,
    /// CPU time received.
    pub service: Nanos,
    /// Its effective share as a fraction of all that were present when the last cycle ended.
    effective: f64,
    cycle: u64,
    cycle_service: Nanos,
    excluded: bool,
}

impl ClientLedger {
    /// Whether it counts in a cycle that begins now.
    fn counts(&self) -> bool {
        self.present && !self.blocked && !self.at_limit
    }
}

/// What a client was to get and what it got.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Standing {
    /// What the share comes to on these CPUs, in the same unit: less where a client cannot use so much.
    pub effective_share: f64,
    /// Share as a fraction of all shares that count.
    pub requested_fraction: f64,
    /// Effective share as a fraction of all that count.
    pub effective_fraction: f64,
    /// Service as a fraction of all service.
    pub achieved_fraction: f64,
    /// `achieved / effective - 1`; 0 where nobody got anything, or this one was to get nothing.
    pub relative_error: f64,
}

/// Median, mean and maximum of the errors of cycles; see [`CycleStats::errors`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CycleErrors {
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub median: f64,
    /// Largest.
    pub max: f64,
}

/// Cycles whose errors are kept: the last ones, hours of them, in 4 MiB.
const CYCLES_KEPT: usize = 1 << 20;

/// Root-mean-square relative errors, one for each cycle; where there were more than 2^20, the last of them.
#[derive(Clone, Debug, Default)]
pub struct CycleStats {
    /// Cycles ended, start-up cycles included.
    pub ended: u64,
    errors: VecDeque<f32>,
}

impl CycleStats {
    /// Cycles that count.
    #[must_use]
    pub fn counted(&self) -> u64 {
        self.errors.len() as u64
    }

    /// The error of each cycle that counts, in order, as fractions.
    pub fn iter(&self) -> impl Iterator<Item = f64> + '_ {
        self.errors.iter().map(|&e| f64::from(e))
    }

    /// The error of the last cycle that counts, as a fraction.
    #[must_use]
    pub fn last(&self) -> Option<f64> {
        self.errors.back().map(|&e| f64::from(e))
    }

    /// Mean, median and maximum over the cycles that count; `None` if there are none.
    #[must_use]
    pub fn errors(&self) -> Option<CycleErrors> {
        let mut sorted: Vec<f32> = self.errors.iter().copied().collect();
        sorted.sort_by(f32::total_cmp);
        let (n, max) = (sorted.len(), *sorted.last()?);
        let median = (f64::from(sorted[(n - 1) / 2]) + f64::from(sorted[n / 2])) / 2.0;
        let mean = self.iter().sum::<f64>() / n as f64;
        Some(CycleErrors { mean, median, max: f64::from(max) })
    }
}

/// Sums over the clients that count in this cycle, from which its error follows without visiting them:
/// with `r_i = service_i / share_i`, `sum (r_i * S / C - 1)^2 = (S/C)^2 * sum r_i^2 - 2 * S/C * sum r_i + n`.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    n: u64,
    shares: f64,
    service: f64,
    rates: f64,
    squares: f64,
}

/// The accounts of all clients, and the statistics of cycles.
///
/// The error of a cycle is ALPS's (section 3.3): for each client `(service - due) / due`, where `due` is its
/// effective share of what all received in that cycle; then the root of the mean square. Clients that were seen
/// blocked in a cycle do not count in it: nothing says what they were due.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    clients: Vec<ClientLedger>,
    cpus: u32,
    cycle: u64,
    /// The present cycle's sums.
    sums: Sums,
    /// Clients that are present and awake, and their effective shares: who counts when a cycle begins.
    counting: u64,
    counting_shares: f64,
    stats: CycleStats,
    /// Clients that may be narrower than they are thought to be.
    narrowing: Vec<usize>,
    stale: bool,
    /// CPUs that are divided by shares as they are.
    as_asked: Option<u32>,
}

impl Ledger {
    /// Accounts of no clients on `cpus` CPUs.
    #[must_use]
    pub fn new(cpus: u32) -> Self {
        Self { cpus: cpus.max(1), ..Self::default() }
    }

    /// The same of `cpus` CPUs that are divided by shares as they are, whatever clients can use of them.
    #[must_use]
    pub fn as_asked(mut self, cpus: u32) -> Self {
        self.as_asked = Some(cpus.max(1));
        self
    }

    /// The clients that ever were, by id.
    #[must_use]
    pub fn clients(&self) -> &[ClientLedger] {
        &self.clients
    }

    /// The statistics of cycles so far.
    #[must_use]
    pub fn cycles(&self) -> &CycleStats {
        &self.stats
    }

    /// CPU time that a client had received when the last cycle ended.
    #[must_use]
    pub fn service_of_cycles(&self, client: ClientId) -> Nanos {
        let c = &self.clients[client.index()];
        let since = if c.cycle == self.cycle { c.cycle_service } else { Nanos::ZERO };
        c.service.saturating_sub(since)
    }

    pub(crate) fn join(&mut self, share: Share) {
        self.clients.push(ClientLedger {
            share,
            limit: None,
            width: 1,
            narrower: None,
            present: true,
            blocked: false,
            at_limit: false,
            paused: false,
            service: Nanos::ZERO,
            effective: 0.0,
            cycle: self.cycle,
            cycle_service: Nanos::ZERO,
            excluded: true, // It was not there for the whole cycle.
        });
        self.counting += 1;
        self.stale = true;
    }

    pub(crate) fn leave(&mut self, i: usize) {
        self.exclude(i);
        self.recount(i, |c| c.present = false);
        self.stale = true;
    }

    pub(crate) fn reshare(&mut self, i: usize, share: Share) {
        self.exclude(i);
        self.clients[i].share = share;
        self.stale = true;
    }

    pub(crate) fn set_limit(&mut self, i: usize, limit: Option<CpuLimit>) {
        self.exclude(i);
        self.clients[i].limit = limit;
        self.stale = true;
    }

    /// A client at its limit does not count in a cycle, as one that is blocked.
    pub(crate) fn set_at_limit(&mut self, i: usize, at_limit: bool) {
        if at_limit {
            self.exclude(i);
        } else {
            self.enter_cycle(i);
        }
        self.recount(i, |c| c.at_limit = at_limit);
    }

    pub(crate) fn widen(&mut self, i: usize, width: u32) {
        let c = &mut self.clients[i];
        if width >= c.width {
            self.stale |= width > c.width;
            (c.width, c.narrower) = (width, None);
        } else if let Some((most, _)) = &mut c.narrower {
            *most = width.max(*most);
        } else {
            c.narrower = Some((width, self.cycle));
            self.narrowing.push(i);
        }
    }

    pub(crate) fn set_blocked(&mut self, i: usize, blocked: bool) {
        if blocked {
            self.exclude(i);
        } else {
            self.enter_cycle(i); // Whoever was blocked when the cycle began does not count in it.
        }
        self.recount(i, |c| c.blocked = blocked);
    }

    /// Takes a client out of the division, or in again; it is marked blocked meanwhile.
    pub(crate) fn set_paused(&mut self, i: usize, paused: bool) {
        self.clients[i].paused = paused;
        self.stale = true;
    }

    /// Applies a change that may move a client in or out of those who count when a cycle begins.
    fn recount(&mut self, i: usize, change: impl FnOnce(&mut ClientLedger)) {
        let c = &mut self.clients[i];
        let before = c.counts();
        change(c);
        match (before, c.counts()) {
            (true, false) => {
                self.counting -= 1;
                self.counting_shares -= c.effective;
            }
            (false, true) => {
                self.counting += 1;
                self.counting_shares += c.effective;
            }
            _ => {}
        }
    }

    /// Takes a client out of this cycle's sums.
    fn exclude(&mut self, i: usize) {
        self.enter_cycle(i);
        let c = &mut self.clients[i];
        if !std::mem::replace(&mut c.excluded, true) {
            let (service, rate) = (c.cycle_service.0 as f64, c.cycle_service.0 as f64 / c.effective);
            self.sums.n -= 1;
            self.sums.shares -= c.effective;
            self.sums.service -= service;
            self.sums.rates -= rate;
            self.sums.squares -= rate * rate;
        }
    }

    /// A client is touched for the first time in a cycle: its service in it starts at zero.
    fn enter_cycle(&mut self, i: usize) {
        let c = &mut self.clients[i];
        if c.cycle != self.cycle {
            c.cycle = self.cycle;
            c.cycle_service = Nanos::ZERO;
            c.excluded = !c.counts();
        }
    }

    pub(crate) fn charge(&mut self, i: usize, used: Nanos) {
        self.enter_cycle(i);
        let c = &mut self.clients[i];
        c.service += used;
        let before = c.cycle_service.0 as f64 / c.effective;
        c.cycle_service += used;
        if !c.excluded {
            let after = c.cycle_service.0 as f64 / c.effective;
            self.sums.service += used.0 as f64;
            self.sums.rates += after - before;
            self.sums.squares += after * after - before * before;
        }
    }

    /// Ends a cycle: its error is kept, unless it is one of the first, or nobody counted in it.
    pub(crate) fn end_cycle(&mut self) {
        self.stats.ended += 1;
        let s = self.sums;
        if self.stats.ended > START_UP_CYCLES && s.n > 0 && s.service > 0.0 {
            let unit = s.shares / s.service;
            let sum = unit * unit * s.squares - 2.0 * unit * s.rates + s.n as f64;
            if self.stats.errors.len() == CYCLES_KEPT {
                self.stats.errors.pop_front();
            }
            self.stats.errors.push_back((sum.max(0.0) / s.n as f64).sqrt() as f32);
        }
        self.cycle += 1;
        self.narrow();
        self.update_effective();
        self.sums = Sums { n: self.counting, shares: self.counting_shares, ..Sums::default() };
    }

    /// Clients that were seen to use fewer CPUs for some cycles cannot use more.
    fn narrow(&mut self) {
        let Self { clients, narrowing, cycle, stale, .. } = self;
        narrowing.retain(|&i| {
            let Some((width, since)) = clients[i].narrower else { return false };
            let lasts = *cycle - since >= NARROW_CYCLES;
            if lasts {
                (clients[i].width, clients[i].narrower) = (width, None);
                *stale = true;
            }
            !lasts
        });
    }

    /// Effective shares as fractions of all of the clients that `take_part`, by id; 0 for the others. An effective
    /// share is what a client can have of the CPUs with the threads that it has, and within its limit.
    #[must_use]
    pub fn effective(&self, take_part: impl Fn(&ClientLedger) -> bool) -> Vec<f64> {
        self.effective_of(|_, client| take_part(client))
    }

    /// As [`effective`](Self::effective), of those chosen by their numbers too.
    #[must_use]
    pub fn effective_of(&self, take_part: impl Fn(usize, &ClientLedger) -> bool) -> Vec<f64> {
        let part: Vec<usize> = (0..self.clients.len()).filter(|&i| take_part(i, &self.clients[i])).collect();
        // A limit is of one CPU, and a part of all.
        let as_asked = self.as_asked.filter(|_| part.iter().any(|&i| self.clients[i].limit.is_some()));
        let claim = |&i: &usize| {
            let c = &self.clients[i];
            (Claim { share: c.share, width: as_asked.unwrap_or(c.width) }, c.limit)
        };
        let cpus = as_asked.unwrap_or(self.cpus);
        let cpus = water_fill_limited(&part.iter().map(claim).collect::<Vec<_>>(), cpus);
        let total: f64 = cpus.iter().map(|c| c.as_f64()).sum();
        let mut effective = vec![0.0; self.clients.len()];
        for (&i, cpu) in part.iter().zip(&cpus) {
            effective[i] = cpu.as_f64() / total;
        }
        effective
    }

    /// How each client stands, by id: those for whom `counts` says so take part, and `service` is what each has received.
    #[must_use]
    pub fn standings(
        &self,
        counts: impl Fn(usize, &ClientLedger) -> bool,
        service: impl Fn(usize, &ClientLedger) -> Nanos,
    ) -> Vec<Standing> {
        let effective = self.effective_of(&counts);
        let clients = || self.clients.iter().enumerate();
        let requested: Vec<u64> =
            clients().map(|(i, c)| if counts(i, c) { c.share.get() } else { 0 }).collect();
        let service: Vec<u64> = clients().map(|(i, c)| service(i, c).0).collect();
        let (shares, all) = (requested.iter().sum::<u64>() as f64, service.iter().sum::<u64>() as f64);
        let part = |of: f64, whole: f64| if whole > 0.0 { of / whole } else { 0.0 };
        // The largest fraction for each share is what a client gets that is not capped.
        let share = |i: usize| self.clients[i].share.get() as f64;
        let rate = effective.iter().enumerate().map(|(i, f)| f / share(i)).fold(0.0, f64::max);
        let standing = |(i, &effective): (usize, &f64)| {
            let achieved = part(service[i] as f64, all);
            Standing {
                effective_share: part(effective, rate),
                requested_fraction: part(requested[i] as f64, shares),
                effective_fraction: effective,
                achieved_fraction: achieved,
                relative_error: if all > 0.0 && effective > 0.0 { achieved / effective - 1.0 } else { 0.0 },
            }
        };
        effective.iter().enumerate().map(standing).collect()
    }

    /// Who is there has changed: the effective shares of the next cycle follow. Cost: O(n log n), only then.
    fn update_effective(&mut self) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        let effective = self.effective(|c| c.present && !c.paused);
        self.counting_shares = 0.0;
        for (c, effective) in self.clients.iter_mut().zip(effective) {
            c.effective = effective;
            if c.counts() {
                self.counting_shares += effective;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 25 % of one CPU are an eighth of two, whoever divides these.
    #[test]
    fn a_limit_is_of_one_cpu_where_shares_are_as_they_are() {
        let dues = |mut ledger: Ledger, limit: Option<&str>| {
            for share in [1, 1, 2] {
                ledger.join(Share::new(share).unwrap());
            }
            let limit = limit.map(|limit| limit.parse().unwrap());
            ledger.set_limit(0, limit);
            ledger.effective(|_| true)
        };
        let by_weights = || Ledger::new(1).as_asked(2);
        assert_eq!(dues(by_weights(), Some("25%")), [0.125, 0.875 / 3.0, 1.75 / 3.0]);
        assert_eq!(dues(by_weights(), None), dues(Ledger::new(1), None));
    }

    fn ledger(shares: &[u64]) -> Ledger {
        let mut ledger = Ledger::new(1);
        for &s in shares {
            ledger.join(Share::new(s).unwrap());
        }
        for _ in 0..START_UP_CYCLES {
            ledger.end_cycle();
        }
        ledger
    }

    fn cycle(ledger: &mut Ledger, used: &[u64]) -> f64 {
        for (i, &ns) in used.iter().enumerate() {
            // In two charges: the account depends only on the total.
            ledger.charge(i, Nanos(ns / 3));
            ledger.charge(i, Nanos(ns - ns / 3));
        }
        ledger.end_cycle();
        ledger.cycles().iter().last().unwrap()
    }

    #[test]
    fn the_error_is_the_papers() {
        let mut l = ledger(&[1, 2, 3]);
        assert!(cycle(&mut l, &[100, 200, 300]) < 1e-6);
        // Due 100, 200, 300 of 600; errors .1, -.05, 0: sqrt((.01 + .0025) / 3).
        assert!((cycle(&mut l, &[110, 190, 300]) - (0.0125f64 / 3.0).sqrt()).abs() < 1e-6);
        // One that got nothing is 100 % off: due 100 and 200, got 0 and 300 beside 300 of 300.
        assert!((cycle(&mut l, &[0, 300, 300]) - (1.25f64 / 3.0).sqrt()).abs() < 1e-6);
    }

    #[test]
    fn what_was_received_in_cycles_is_known_in_the_next_one() {
        let mut l = ledger(&[1, 2]);
        cycle(&mut l, &[100, 200]);
        let of_cycles = |l: &Ledger| [0, 1].map(|id| l.service_of_cycles(ClientId(id)).0);
        assert_eq!(of_cycles(&l), [100, 200]);
        l.charge(0, Nanos(70));
        assert_eq!((of_cycles(&l), l.clients()[0].service), ([100, 200], Nanos(170)));
        l.end_cycle();
        assert_eq!(of_cycles(&l), [170, 200]);
    }

    #[test]
    fn whoever_was_blocked_does_not_count() {
        let mut l = ledger(&[1, 2, 3]);
        l.set_blocked(1, true);
        // The others are due 1/4 and 3/4 of what they got.
        assert!(cycle(&mut l, &[100, 55, 300]) < 1e-6);
        assert!(cycle(&mut l, &[100, 0, 300]) < 1e-6);
        l.set_blocked(1, false); // Awake in the middle of a cycle: counts from the next.
        assert!(cycle(&mut l, &[100, 7, 300]) < 1e-6);
        assert!((cycle(&mut l, &[110, 190, 300]) - (0.0125f64 / 3.0).sqrt()).abs() < 1e-6);
        l.leave(0);
        assert!(cycle(&mut l, &[0, 200, 300]) < 1e-6);
    }

    #[test]
    fn a_client_is_as_wide_as_it_was_lately() {
        let mut l = Ledger::new(2);
        l.join(Share::ONE);
        for (width, cycles, expected) in [(2, 1, 2), (1, 10, 2), (2, 10, 2), (1, 15, 2), (1, 1, 1), (2, 0, 2)]
        {
            l.widen(0, width);
            (0..cycles).for_each(|_| l.end_cycle());
            assert_eq!(l.clients()[0].width, expected, "after {cycles} cycles with {width}");
        }
    }

    #[test]
    fn start_up_is_left_out() {
        let mut l = Ledger::new(1);
        l.join(Share::ONE);
        for _ in 0..START_UP_CYCLES + 2 {
            l.charge(0, Nanos(5));
            l.end_cycle();
        }
        assert_eq!((l.cycles().ended, l.cycles().counted()), (START_UP_CYCLES + 2, 2));
        assert_eq!(Ledger::new(1).cycles().errors(), None);
    }
}
