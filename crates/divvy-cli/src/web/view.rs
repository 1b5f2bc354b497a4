//! What the page shows: how everybody stands now, and how much CPU time each had got at each of the last looks.
//!
//! Looks are taken once a second whether anybody watches or not, so that a page that is opened later has a history too, and ten
//! pages cost divvyd no more than one.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use divvy_api::client::{ApiError, Choice};
use divvy_linux::clock;
use divvy_policy::Nanos;
use serde::Serialize;

use crate::top::daemon::Daemon;
use crate::top::source::{Client, Snapshot, Source as _};

/// Between two looks.
pub(super) const INTERVAL: Nanos = Nanos::from_secs(1);
/// Looks that are kept: ten minutes of them.
const LOOKS_KEPT: usize = 601;
/// Clients whose CPU time is kept of each look.
const CLIENTS_KEPT: usize = 256;
/// Rows that are shown.
const ROWS_SHOWN: usize = 1_000;

/// What is there, and was.
pub(super) struct View {
    choice: Choice,
    source: Mutex<Daemon>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// Rises when who is asked is another: ids mean something else from then on.
    epoch: u64,
    now: Option<Found>,
    why: Option<String>,
    next: u64,
    looks: VecDeque<Look>,
}

/// What one look found.
struct Found {
    snapshot: Snapshot,
    /// By what the API changes each row; not there where a row cannot be changed.
    paths: Vec<Option<String>>,
}

/// How much CPU time everybody had got at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Look {
    seq: u64,
    /// Of the monotonic clock.
    t_ms: u64,
    /// The client's or task's id, and its CPU time, ns.
    cpu: Vec<(u32, u64)>,
}

/// What the page is told: `GET /api/view?since=N`.
#[derive(Serialize)]
struct Told<'a> {
    epoch: u64,
    /// What to ask for next.
    next: u64,
    t_ms: u64,
    /// Who runs this page.
    user: String,
    /// Whether there is a market to be asked for.
    market: bool,
    /// Why there is nothing to see, or not all.
    why: Option<&'a str>,
    now: Option<Now<'a>>,
    /// Rows that are not shown.
    hidden: usize,
    looks: Vec<&'a Look>,
}

#[derive(Serialize)]
struct Now<'a> {
    source: &'a str,
    policy: &'a str,
    quantum_ns: u64,
    cpus: u32,
    uptime_ns: u64,
    own_cpu_ns: Option<u64>,
    rows: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    client: &'a Client,
    depth: usize,
    /// Shares of all that is beside it.
    beside: u64,
    /// What the API changes it by; not there where it cannot be changed.
    path: Option<&'a str>,
}

impl View {
    pub(super) fn new(choice: Choice) -> Self {
        Self { choice, source: Mutex::new(Daemon::of(None)), seen: Mutex::default() }
    }

    /// Looks once. What it finds is kept as a look of its history if it is `kept`.
    pub(super) fn look(&self, kept: bool) {
        // Whoever reads waits for no answer of divvyd's.
        let found = self.ask(&mut lock(&self.source));
        lock(&self.seen).take(found, kept.then(now_ms));
    }

    fn ask(&self, source: &mut Daemon) -> Result<(Found, Option<String>), String> {
        let mut why = None;
        if !source.has_divvyd() {
            match self.choice.api() {
                Ok(api) => *source = Daemon::of(Some(api)),
                // `divvy share` may run all the same.
                Err(e @ (ApiError::NotRunning(_) | ApiError::NoSystem(_))) => why = Some(e.to_string()),
                Err(e) => return Err(e.to_string()),
            }
        }
        let found = source.snapshot(Nanos::ZERO);
        if found.is_err() {
            *source = Daemon::of(None);
        }
        let snapshot = found?;
        let paths = snapshot.clients.iter().map(|client| source.path_of(client.id)).collect();
        Ok((Found { snapshot, paths }, why))
    }

    /// The view as JSON, with the looks from number `since` on of that epoch.
    pub(super) fn told(&self, epoch: u64, since: u64) -> Vec<u8> {
        let seen = lock(&self.seen);
        let since = if epoch == seen.epoch { since } else { 0 };
        let user = rustix::process::geteuid().as_raw();
        let now = seen.now.as_ref();
        let told = Told {
            epoch: seen.epoch,
            next: seen.next,
            t_ms: now_ms(),
            user: divvy_linux::user_name(user).unwrap_or_else(|| user.to_string()),
            market: matches!(self.choice, Choice::System(_)),
            why: seen.why.as_deref(),
            hidden: now.map_or(0, |now| now.snapshot.clients.len().saturating_sub(ROWS_SHOWN)),
            now: now.map(Now::of),
            looks: seen.looks.iter().filter(|look| look.seq >= since).collect(),
        };
        serde_json::to_vec(&told).unwrap_or_default()
    }
}

impl<'a> Now<'a> {
    fn of(Found { snapshot, paths }: &'a Found) -> Self {
        let row = |(client, path): (&'a Client, &'a Option<String>)| Row {
            client,
            depth: client.depth,
            beside: client.beside,
            path: path.as_deref(),
        };
        Self {
            source: &snapshot.source,
            policy: &snapshot.policy,
            quantum_ns: snapshot.quantum_ns,
            cpus: snapshot.cpus,
            uptime_ns: snapshot.now_ns,
            own_cpu_ns: snapshot.own.cpu_ns,
            rows: snapshot.clients.iter().zip(paths).take(ROWS_SHOWN).map(row).collect(),
        }
    }
}

impl Seen {
    fn take(&mut self, found: Result<(Found, Option<String>), String>, kept: Option<u64>) {
        let (now, why) = match found {
            Ok((now, why)) => (Some(now), why),
            Err(why) => (None, Some(why)),
        };
        let source = |now: &Option<Found>| now.as_ref().map(|now| now.snapshot.source.clone());
        if source(&self.now) != source(&now) {
            self.epoch += 1;
            self.looks.clear();
        }
        if let Some((t_ms, now)) = kept.zip(now.as_ref()) {
            let leaves = now.snapshot.clients.iter().filter(|client| client.kind.is_leaf());
            let cpu = leaves.take(CLIENTS_KEPT).map(|client| (client.id, client.service_ns)).collect();
            self.looks.push_back(Look { seq: self.next, t_ms, cpu });
            self.next += 1;
            if self.looks.len() > LOOKS_KEPT {
                self.looks.pop_front();
            }
        }
        (self.now, self.why) = (now, why);
    }
}

/// A panic elsewhere leaves what was seen before.
fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now_ms() -> u64 {
    clock::now().0 / 1_000_000
}
