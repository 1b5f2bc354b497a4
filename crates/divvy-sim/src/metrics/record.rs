//! Observers that keep something of a run: schedules, runs, response times, what each client received.

use divvy_policy::{ClientId, CpuId, Grant, Instant, Nanos};

use super::{BatchMeans, Histogram, Welford};
use crate::machine::{Change, Observer, Response};

/// FNV-1a over whole numbers, one step a number: h = (h xor x) * 0x100000001b3 mod 2^64, from 0xcbf29ce484222325.
#[must_use]
pub fn fnv1a64(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(FNV_START, fnv_step)
}

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

const fn fnv_step(hash: u64, number: u64) -> u64 {
    (hash ^ number).wrapping_mul(0x100_0000_01b3)
}

/// Who had each quantum of a one-CPU machine: an entry for each quantum begun, `None` where the CPU was idle.
#[derive(Clone, Debug)]
pub struct Schedule {
    quantum: Nanos,
    switch_cost: Nanos,
    limit: usize,
    entries: Vec<Option<ClientId>>,
    truncated: bool,
    /// The slice under way: who, and how much of it has run.
    current: Option<(ClientId, Nanos)>,
    last_end: Instant,
}

impl Schedule {
    /// Records up to `limit` entries of `quantum`.
    #[must_use]
    pub const fn new(quantum: Nanos, switch_cost: Nanos, limit: usize) -> Self {
        Self {
            quantum,
            switch_cost,
            limit,
            entries: Vec::new(),
            truncated: false,
            current: None,
            last_end: Instant::ZERO,
        }
    }

    /// The entries so far.
    #[must_use]
    pub fn entries(&self) -> &[Option<ClientId>] {
        &self.entries
    }

    /// Whether there were more than could be kept.
    #[must_use]
    pub const fn is_truncated(&self) -> bool {
        self.truncated
    }

    fn push(&mut self, who: Option<ClientId>, span: Nanos) {
        let nr = usize::try_from(span.0.div_ceil(self.quantum.0.max(1))).unwrap_or(usize::MAX);
        let room = self.limit - self.entries.len();
        self.truncated |= nr > room;
        self.entries.extend(std::iter::repeat_n(who, nr.min(room)));
    }

    fn close(&mut self) {
        if let Some((client, ran)) = self.current.take() {
            self.push(Some(client), ran);
        }
    }
}

impl Observer for Schedule {
    fn on_run(&mut self, _cpu: CpuId, client: ClientId, from: Instant, to: Instant) {
        let idle = from.since(self.last_end).saturating_sub(self.switch_cost);
        if idle > Nanos::ZERO {
            self.close();
            self.push(None, idle);
        }
        self.last_end = to;
        match &mut self.current {
            Some((current, ran)) if *current == client => *ran += to.since(from),
            _ => {
                self.close();
                self.current = Some((client, to.since(from)));
            }
        }
    }

    fn on_decision(&mut self, _now: Instant, _grant: &Grant) {
        self.close();
    }

    fn on_end(&mut self, now: Instant) {
        self.close();
        let idle = now.since(self.last_end);
        self.push(None, idle);
    }
}

/// A stretch of time in which one client had one CPU without a break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Where.
    pub cpu: CpuId,
    /// Who.
    pub client: ClientId,
    /// From when.
    pub from: Instant,
    /// Until when.
    pub to: Instant,
}

/// All runs, slices that follow each other joined. Keeps the first `limit` and a hash of all.
#[derive(Clone, Debug)]
pub struct RunLog {
    limit: usize,
    unit: Nanos,
    open: Vec<Option<Run>>,
    runs: Vec<Run>,
    nr_runs: u64,
    hash: u64,
}

impl RunLog {
    /// Keeps `limit` runs; the hash is over times in units of `unit`.
    #[must_use]
    pub const fn new(limit: usize, unit: Nanos) -> Self {
        Self { limit, unit, open: Vec::new(), runs: Vec::new(), nr_runs: 0, hash: FNV_START }
    }

    /// The first runs, by end.
    #[must_use]
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// How many there were.
    #[must_use]
    pub const fn nr_runs(&self) -> u64 {
        self.nr_runs
    }

    /// [`fnv1a64`] over from, to and client of every run.
    #[must_use]
    pub const fn hash(&self) -> u64 {
        self.hash
    }

    fn close(&mut self, run: Run) {
        if self.runs.len() < self.limit {
            self.runs.push(run);
        }
        self.nr_runs += 1;
        let unit = self.unit.0.max(1);
        for number in [run.from.0 / unit, run.to.0 / unit, u64::from(run.client.0)] {
            self.hash = fnv_step(self.hash, number);
        }
    }
}

impl Observer for RunLog {
    fn on_run(&mut self, cpu: CpuId, client: ClientId, from: Instant, to: Instant) {
        if self.open.len() <= cpu.index() {
            self.open.resize(cpu.index() + 1, None);
        }
        match &mut self.open[cpu.index()] {
            Some(run) if run.client == client && run.to == from => run.to = to,
            open => {
                if let Some(run) = open.replace(Run { cpu, client, from, to }) {
                    self.close(run);
                }
            }
        }
    }

    fn on_end(&mut self, _now: Instant) {
        for run in std::mem::take(&mut self.open).into_iter().flatten() {
            self.close(run);
        }
    }
}

/// What each of the first `limit` clients received, and when it left.
#[derive(Clone, Debug)]
pub struct ClientTable {
    limit: usize,
    rows: Vec<ClientRow>,
}

/// One client of a [`ClientTable`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientRow {
    /// Its last share; 0 if it never joined.
    pub share: u64,
    /// CPU time received.
    pub service: Nanos,
    /// When it left, if it did.
    pub left: Option<Instant>,
}

impl ClientTable {
    /// Keeps clients 0 to `limit` - 1.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self { limit, rows: Vec::new() }
    }

    /// The clients by id.
    #[must_use]
    pub fn rows(&self) -> &[ClientRow] {
        &self.rows
    }

    /// Enters what clients that are still there received.
    pub fn complete(&mut self, services: impl Iterator<Item = (ClientId, Nanos)>) {
        for (client, service) in services {
            if let Some(row) = self.rows.get_mut(client.index()) {
                row.service = service;
            }
        }
    }
}

impl Observer for ClientTable {
    fn on_change(&mut self, now: Instant, client: ClientId, change: Change) {
        let index = client.index();
        if index >= self.limit {
            return;
        }
        if self.rows.len() <= index {
            self.rows.resize(index + 1, ClientRow::default());
        }
        let row = &mut self.rows[index];
        match change {
            Change::Join { share } | Change::Reshare { share } => row.share = share.get(),
            Change::Leave { service } => {
                row.service = service;
                row.left = Some(now);
            }
            Change::Wake | Change::Block => {}
        }
    }
}

/// Response times and slowdowns of one group of requests, and of all.
#[derive(Clone, Debug)]
pub struct Responses {
    from: Instant,
    until: Instant,
    keep: usize,
    /// First the total, then one for each group.
    groups: Vec<GroupResponses>,
    first: Vec<Nanos>,
}

/// Response times of one group.
#[derive(Clone, Debug)]
pub struct GroupResponses {
    /// Seconds from question to answer.
    pub seconds: Welford,
    /// Response time divided by CPU time asked for.
    pub slowdown: Welford,
    /// Nanoseconds from question to answer.
    pub histogram: Histogram,
    /// Seconds again, for a confidence interval from one long run.
    pub batches: BatchMeans,
    /// Exact sum of all response times in nanoseconds.
    pub sum: u128,
}

impl Default for GroupResponses {
    fn default() -> Self {
        Self {
            seconds: Welford::default(),
            slowdown: Welford::default(),
            histogram: Histogram::default(),
            batches: BatchMeans::new(20),
            sum: 0,
        }
    }
}

impl GroupResponses {
    fn push(&mut self, response: &Response) {
        let time = response.time();
        self.sum += u128::from(time.0);
        let seconds = time.as_secs_f64();
        self.seconds.push(seconds);
        self.batches.push(seconds);
        self.histogram.push(time.0);
        if response.work > Nanos::ZERO {
            self.slowdown.push(time.0 as f64 / response.work.0 as f64);
        }
    }
}

impl Responses {
    /// Counts requests answered from `from` to `until`, both included; keeps the first `keep` times as they are.
    #[must_use]
    pub fn new(nr_groups: usize, from: Instant, until: Instant, keep: usize) -> Self {
        Self { from, until, keep, groups: vec![GroupResponses::default(); nr_groups + 1], first: Vec::new() }
    }

    /// All requests.
    #[must_use]
    pub fn total(&self) -> &GroupResponses {
        &self.groups[0]
    }

    /// Requests of each group.
    #[must_use]
    pub fn groups(&self) -> &[GroupResponses] {
        &self.groups[1..]
    }

    /// The first response times, in the order in which they were completed.
    #[must_use]
    pub fn first(&self) -> &[Nanos] {
        &self.first
    }
}

impl Observer for Responses {
    fn on_response(&mut self, response: &Response) {
        if response.finished < self.from || response.finished > self.until {
            return;
        }
        self.groups[0].push(response);
        self.groups[response.group as usize + 1].push(response);
        if self.first.len() < self.keep {
            self.first.push(response.time());
        }
    }
}
