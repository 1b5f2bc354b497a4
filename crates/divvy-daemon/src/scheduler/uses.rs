//! What clients have of memory and disks, and are due of them: for whoever looks, and measured only while somebody does.
//!
//! By the kernel's books of the client's cgroup where it has one with the controller (`memory.current`, `io.stat`), else by its
//! processes (`/proc/PID/statm`, `/proc/PID/io`). At most once a second, and for half a percent of the time: of very many clients some
//! are told of as they were a while ago.

use std::collections::BTreeMap;

use divvy_linux::cgroup::{disk_had, memory_held};
use divvy_linux::clock;
use divvy_linux::procfs::{self, DiskUse};
use divvy_policy::{ClientId, Instant, Nanos};

use super::Scheduler;
use super::disk_gate::{MEMBERS_MAX, Member, since};
use crate::budget::{Budget, counted};
use divvy_api::types::Uses as Told;

/// A round takes so much CPU time at most; the next goes on behind it.
const ROUND: Nanos = Nanos::from_millis(5);
/// Rates are of this time at least.
const RATE_OVER: Nanos = Nanos::from_millis(500);

/// What a client had of disks so far, by whatever tells it.
#[derive(Clone, Debug)]
enum Had {
    Cgroup(DiskUse),
    Members(BTreeMap<Member, DiskUse>),
}

impl Had {
    /// What was had between the two.
    fn since(&self, before: &Self) -> DiskUse {
        match (before, self) {
            (Self::Members(before), Self::Members(now)) => since(before, now),
            (Self::Cgroup(before), Self::Cgroup(now)) => DiskUse {
                read: now.read.saturating_sub(before.read),
                written: now.written.saturating_sub(before.written),
            },
            _ => DiskUse::default(),
        }
    }
}

/// One client.
#[derive(Clone, Debug)]
struct Sample {
    at: Instant,
    had: Option<Had>,
    memory: Option<u64>,
    /// Bytes a second.
    rate: Option<DiskUse>,
}

/// All clients, as they were looked at last.
#[derive(Debug)]
pub(super) struct Uses {
    samples: BTreeMap<ClientId, Sample>,
    /// The last of a round that was not finished.
    after: Option<ClientId>,
    /// What is due to all, where disks are divided, and what all had a second.
    disk_due: Option<u64>,
    disk_rate: u64,
    budget: Budget,
}

impl Default for Uses {
    fn default() -> Self {
        let budget = Budget::new(200, Nanos::from_secs(1));
        Self { samples: BTreeMap::new(), after: None, disk_due: None, disk_rate: 0, budget }
    }
}

fn per_second(bytes: u64, passed: Nanos) -> u64 {
    u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(passed.0.max(1))).unwrap_or(u64::MAX)
}

fn sum(of: DiskUse) -> u64 {
    of.read.saturating_add(of.written)
}

impl Uses {
    pub(super) fn leave(&mut self, client: ClientId) {
        self.samples.remove(&client);
    }

    /// How many had to be asked for what a client had of disks: its cgroup, or each of its processes.
    fn files(&self, client: ClientId) -> usize {
        match self.samples.get(&client).map(|sample| &sample.had) {
            Some(Some(Had::Members(members))) => members.len().max(1),
            _ => 1,
        }
    }

    /// Whether a client had anything of disks between the last two looks.
    fn has_rate(&self, client: ClientId) -> bool {
        self.samples.get(&client).and_then(|sample| sample.rate).is_some_and(|rate| sum(rate) > 0)
    }
}

impl Scheduler {
    /// Looks at one client: what it had so far is what later rates begin from.
    pub(super) fn sample_use(&mut self, client: ClientId) {
        let Some(entry) = self.book.entry(client) else { return };
        let cgroup = entry.cgroup.as_deref();
        let of_members = || {
            let members = self.engine.host().known_members(client, MEMBERS_MAX);
            let each = members.iter().filter_map(|member| procfs::memory_use(member.pid).ok().flatten());
            (!members.is_empty()).then(|| each.fold(0, u64::saturating_add))
        };
        let memory = cgroup.and_then(memory_held).or_else(of_members);
        let had = cgroup.and_then(disk_had).map(Had::Cgroup);
        let had = had.or_else(|| self.disk_use(client).ok().map(Had::Members));
        let now = clock::now();
        let before = self.uses.samples.get(&client);
        let sample = match before {
            Some(before) if now.since(before.at) < RATE_OVER => Sample { memory, ..before.clone() },
            Some(before) => {
                let rate = before.had.as_ref().zip(had.as_ref()).map(|(before_had, had)| {
                    let (used, passed) = (had.since(before_had), now.since(before.at));
                    DiskUse { read: per_second(used.read, passed), written: per_second(used.written, passed) }
                });
                Sample { at: now, had, memory, rate }
            }
            None => Sample { at: now, had, memory, rate: None },
        };
        self.uses.samples.insert(client, sample);
    }

    /// Looks at those who were not looked at in the last second, as far as there is time.
    pub(super) fn sample_uses(&mut self) {
        let (now, begun) = (clock::now(), clock::own_thread_cpu());
        if now < self.uses.budget.next() {
            return;
        }
        let clients: Vec<ClientId> = self.book.present().map(|(client, _)| client).collect();
        let first = self.uses.after.take().map_or(0, |after| clients.partition_point(|&c| c <= after));
        let mut files = 0;
        for &client in &clients[first..] {
            self.sample_use(client);
            files += self.uses.files(client);
            if counted(clock::own_thread_cpu().saturating_sub(begun), files) > ROUND {
                self.uses.after = Some(client);
                break;
            }
        }
        let due = clients.iter().fold(0_u64, |all, &client| all.saturating_add(self.disk_due(client)));
        self.uses.disk_due = Some(due).filter(|&due| due > 0 && self.divides_disks());
        let rates = self.uses.samples.values().filter_map(|sample| sample.rate);
        self.uses.disk_rate = rates.map(sum).fold(0, u64::saturating_add);
        self.uses.budget.pay(now, clock::own_thread_cpu().saturating_sub(begun), files);
    }

    /// A client's part of the disks, in a unit that is the same for all. Whoever waits for a disk all the time leaves its CPU time to
    /// others, and not its part of the disks.
    fn disk_due(&self, client: ClientId) -> u64 {
        let wants = self.competes(client) || self.uses.has_rate(client);
        if wants { self.due(client).rights.disk } else { 0 }
    }

    /// What a client has and is due, as it was looked at last.
    pub(super) fn uses_of(&self, client: ClientId) -> Told {
        let Some(sample) = self.uses.samples.get(&client) else { return Told::default() };
        let fraction = |part: u64, all: u64| (all > 0).then(|| part as f64 / all as f64);
        Told {
            memory_bytes: sample.memory,
            memory_due_bytes: self.engine.host().memory_due(client),
            disk_read_bytes_per_s: sample.rate.map(|rate| rate.read),
            disk_written_bytes_per_s: sample.rate.map(|rate| rate.written),
            disk_due_fraction: self.uses.disk_due.and_then(|all| fraction(self.disk_due(client), all)),
            disk_achieved_fraction: sample.rate.and_then(|rate| fraction(sum(rate), self.uses.disk_rate)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_had_is_told_by_one_book() {
        let used = |read, written| DiskUse { read, written };
        let of = |n| Had::Members(BTreeMap::from([((1, 1), used(n, n))]));
        assert_eq!(of(9).since(&of(4)), used(5, 5));
        assert_eq!(Had::Cgroup(used(7, 3)).since(&Had::Cgroup(used(2, 3))), used(5, 0));
        assert_eq!(Had::Cgroup(used(7, 3)).since(&of(2)), used(0, 0), "two books do not make a rate");
        assert_eq!(per_second(10, Nanos::from_secs(2)), 5);
    }
}
