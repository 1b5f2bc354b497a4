//! Limits of disks where the kernel keeps none: a client that has had more bytes than its rate allows is held until it may.
//!
//! *Problem*: without cgroups, or without their io controller, nobody slows a program that reads or writes. *Idea*: bytes are
//! counted by the kernel for each process (`/proc/PID/io`); whoever has had too many is suspended as long as it takes. *Terms*: a
//! client has an *allowance* of bytes read and one of bytes written, which grow by its rate to [`BURST`] of it at most; what is had
//! comes off, and may leave a debt. *Algorithm*: while it runs, it is looked at again when its allowance may be spent, at the
//! highest speed that it had lately (which halves in [`FORGET`] without), within [`SOON`] and [`LATE`]; with a debt it is held until that is
//! paid. *Properties*: in any time `t` it has at most `rate * (t + BURST)`, and what it had in one look
//! (`over_any_time_nobody_has_more_than_the_rate`), however late looks are: what one has let through is paid for before the client goes on
//! (`what_a_late_look_let_through_is_paid_for`). One that was fast lately cannot take much unseen by pausing
//! (`who_pauses_between_files_is_looked_at_as_often`). *Weak spots*: bytes of
//! all disks together; what was written counts when it goes to the cache; a process that ends unnoticed by another member
//! takes along what it had since the last look; a fast disk gives what is far too much within one look, and is paid for by a long pause.

use std::collections::{BTreeMap, BTreeSet};

use divvy_linux::clock;
use divvy_linux::procfs::{self, DiskUse};
use divvy_policy::{ClientId, Instant, Nanos};

use super::{Scheduler, internal};
use crate::message::Refusal;
use divvy_api::types::ErrorCode;

/// Saved up at most: what the rate is in this time.
const BURST: Nanos = Nanos::from_millis(100);
/// Looks are no closer than this, and no further apart.
const SOON: Nanos = Nanos::from_millis(5);
const LATE: Nanos = Nanos::from_millis(100);
/// A speed that was seen counts half as much after such a time without it.
const FORGET: Nanos = LATE;
/// Looks take at most one part in so many of the time.
const LOOK_PART: u64 = 50;
/// Members that are looked at.
pub(super) const MEMBERS_MAX: usize = 4096;

/// Bytes read, and written, that may still be had: times a second in ns, so that nothing is rounded.
type Allowance = [i128; 2];

/// A process: its pid, and when it began.
pub(super) type Member = (i32, u64);

/// One client's limit.
#[derive(Clone, Debug)]
struct Bound {
    /// Bytes a second.
    rate: u64,
    allowance: Allowance,
    /// Bytes a second that it read, and wrote, when it was fastest of late.
    speed: [u64; 2],
    /// Each member at the last look.
    seen: BTreeMap<Member, DiskUse>,
    /// CPU time of the last look.
    cost: Nanos,
    looked: Instant,
    next: Instant,
    held: bool,
    /// Its user has paused it, too.
    paused: bool,
}

impl Bound {
    fn full(rate: u64) -> Allowance {
        [i128::from(rate) * i128::from(BURST.0); 2]
    }

    /// Takes in what was had by `now`; whether it is to be held from now on.
    fn take(&mut self, used: DiskUse, now: Instant, cost: Nanos) -> bool {
        let passed = now.since(self.looked);
        self.looked = now;
        let grown = i128::from(self.rate) * i128::from(passed.0);
        let mut wait = if self.held { SOON } else { LATE };
        let mut debt = false;
        for ((left, speed), bytes) in
            self.allowance.iter_mut().zip(&mut self.speed).zip([used.read, used.written])
        {
            let spent = i128::from(bytes) * 1_000_000_000;
            *left = (*left + grown - spent).min(Self::full(self.rate)[0]);
            if !self.held {
                // Whoever is held has no speed, and nothing is learned of it.
                *speed = later_speed(*speed, bytes, passed);
            }
            if *left < 0 {
                let rate = u128::from(self.rate.max(1));
                let until = u64::try_from(left.unsigned_abs() / rate + 1).unwrap_or(u64::MAX);
                wait = if debt { wait.max(Nanos(until)) } else { Nanos(until) };
                debt = true;
            } else if *speed > 0 && !debt && !self.held {
                let until = left.unsigned_abs() / u128::from(*speed);
                wait = wait.min(Nanos(u64::try_from(until).unwrap_or(u64::MAX)));
            }
        }
        // The time of a look that the machine's host took away counts as its cost, too: one that is dear alone is not waited out.
        let rest = Nanos(cost.min(self.cost).0.saturating_mul(LOOK_PART));
        self.cost = cost;
        self.next = now + wait.max(SOON).max(rest);
        debt
    }
}

/// The speed that a client may have next, bytes a second: that of the last look, or what is left of an earlier one that was higher.
fn later_speed(before: u64, bytes: u64, passed: Nanos) -> u64 {
    let passed = u128::from(passed.0.max(1));
    let seen = u128::from(bytes) * 1_000_000_000 / passed;
    let forgotten = u128::from(before) * passed.min(u128::from(FORGET.0)) / (2 * u128::from(FORGET.0));
    let left = before.saturating_sub(u64::try_from(forgotten).unwrap_or(u64::MAX));
    left.max(u64::try_from(seen).unwrap_or(u64::MAX))
}

/// What all members of a client had since the last look. What a child had that has ended was taken over by its parent, and is
/// known of both; where nobody took it over, it is left out.
pub(super) fn since(before: &BTreeMap<Member, DiskUse>, now: &BTreeMap<Member, DiskUse>) -> DiskUse {
    let of = |field: fn(&DiskUse) -> u64| {
        let had: u64 = before.values().map(field).sum();
        let has: u64 = now.values().map(field).sum();
        let had_by_those_here: u64 =
            now.keys().filter_map(|key| before.get(key)).map(field).fold(0, u64::saturating_add);
        has.checked_sub(had).unwrap_or_else(|| has.saturating_sub(had_by_those_here))
    };
    DiskUse { read: of(|used| used.read), written: of(|used| used.written) }
}

/// All clients whose disk use is bounded here.
#[derive(Debug, Default)]
pub(super) struct DiskGate {
    bounds: BTreeMap<ClientId, Bound>,
    /// Each of them by its next look, so that a wake-up costs those that are due, not all.
    looks: BTreeSet<(Instant, ClientId)>,
}

impl DiskGate {
    /// When somebody is to be looked at.
    pub(super) fn next(&self) -> Option<Instant> {
        self.looks.first().map(|&(at, _)| at)
    }

    /// The first whose look is due by `now`; it has none until it is changed.
    fn take_due(&mut self, now: Instant) -> Option<ClientId> {
        let &(at, client) = self.looks.first().filter(|&&(at, _)| at <= now)?;
        self.looks.remove(&(at, client));
        Some(client)
    }

    /// Changes a client's bound, and with it perhaps its next look; `None` if it has none.
    fn change<T>(&mut self, client: ClientId, change: impl FnOnce(&mut Bound) -> T) -> Option<T> {
        let bound = self.bounds.get_mut(&client)?;
        self.looks.remove(&(bound.next, client));
        let done = change(bound);
        self.looks.insert((bound.next, client));
        Some(done)
    }

    fn insert(&mut self, client: ClientId, bound: Bound) {
        self.leave(client);
        self.looks.insert((bound.next, client));
        self.bounds.insert(client, bound);
    }

    /// Whether a client is held for what it had of disks.
    pub(super) fn holds(&self, client: ClientId) -> bool {
        self.bounds.get(&client).is_some_and(|bound| bound.held)
    }

    pub(super) fn leave(&mut self, client: ClientId) {
        if let Some(bound) = self.bounds.remove(&client) {
            self.looks.remove(&(bound.next, client));
        }
    }

    /// A user has paused a client, or has resumed it.
    pub(super) fn set_paused(&mut self, client: ClientId, paused: bool) {
        if let Some(bound) = self.bounds.get_mut(&client) {
            bound.paused = paused;
        }
    }
}

impl Scheduler {
    /// What each member of `client` had of disks.
    ///
    /// # Errors
    /// Why that of none of them can be read.
    pub(super) fn disk_use(&self, client: ClientId) -> divvy_linux::Result<BTreeMap<Member, DiskUse>> {
        let mut all = BTreeMap::new();
        let mut refused = None;
        for member in self.engine.host().known_members(client, MEMBERS_MAX) {
            match procfs::disk_use(member.pid) {
                Ok(Some(used)) => drop(all.insert((member.pid.as_raw_pid(), member.start.0), used)),
                Ok(None) => {}
                Err(e) => refused = Some(e),
            }
        }
        match refused {
            Some(e) if all.is_empty() => Err(e),
            _ => Ok(all),
        }
    }

    /// Keeps a client within so many bytes a second, read and as many written; 0 and `None` lift that.
    ///
    /// # Errors
    /// [`ErrorCode::NotPermitted`] where what its processes have cannot be read: it has the bound that it had.
    pub(super) fn bound_disk(&mut self, client: ClientId, rate: Option<u64>) -> Result<(), Refusal> {
        let Some(rate) = rate.filter(|&rate| rate > 0) else {
            self.release_disk(client)?;
            self.disk_gate.leave(client);
            return Ok(());
        };
        let again = |bound: &mut Bound| (bound.rate, bound.next) = (rate, clock::now());
        if self.disk_gate.change(client, again).is_some() {
            return Ok(());
        }
        let seen = self.disk_use(client).map_err(|e| {
            let fix = "limit the disk use of processes of your own, or start divvyd with --backend cgroup";
            Refusal::new(ErrorCode::NotPermitted, format!("nothing keeps a limit of disks here: {e}"), fix)
        })?;
        let (now, paused) = (clock::now(), self.is_paused_by_user(client));
        let allowance = Bound::full(rate);
        let (speed, looked, next) = ([0; 2], now, now + SOON);
        let bound = Bound { rate, allowance, speed, seen, cost: Nanos(0), looked, next, held: false, paused };
        self.disk_gate.insert(client, bound);
        Ok(())
    }

    fn release_disk(&mut self, client: ClientId) -> Result<(), Refusal> {
        let bounds = &mut self.disk_gate.bounds;
        let Some(bound) = bounds.get_mut(&client).filter(|bound| bound.held) else { return Ok(()) };
        bound.held = false;
        let held = bound.paused || self.disk_shares.holds(client);
        if held { Ok(()) } else { self.engine.resume(client).map_err(internal) }
    }

    /// Between two turns: looks at those whose time has come, and holds or releases them.
    pub(super) fn keep_disks(&mut self) {
        let now = clock::now();
        // A look takes the next one at least [`SOON`] from now, so that this ends.
        while let Some(client) = self.disk_gate.take_due(now) {
            let begun = clock::own_thread_cpu();
            // Nobody to look at now, or nobody who may be looked at any more: had nothing.
            let seen = self.disk_use(client).unwrap_or_default();
            let cost = clock::own_thread_cpu().saturating_sub(begun);
            let now = clock::now();
            let took = self.disk_gate.change(client, |bound| {
                let used = since(&bound.seen, &seen);
                if !seen.is_empty() {
                    bound.seen = seen;
                }
                let was = bound.held;
                let hold = bound.take(used, now, cost);
                // Whoever is released stays held until that is done.
                bound.held = was || hold;
                (was, hold)
            });
            let done = match took.unwrap_or_default() {
                (false, true) => self.engine.hold_apart(client).map_err(internal),
                (true, false) => self.release_disk(client),
                _ => Ok(()),
            };
            if let Err(refusal) = done {
                crate::say(format_args!("client {}: its limit of disks: {}", client.0, refusal.message));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const MIB: u64 = 1 << 20;

    fn bound(rate: u64) -> Bound {
        let (allowance, looked) = (Bound::full(rate), Instant(0));
        let next = looked + SOON;
        let (speed, seen) = ([0; 2], BTreeMap::new());
        Bound { rate, allowance, speed, seen, cost: Nanos(0), looked, next, held: false, paused: false }
    }

    /// A program that reads as fast as its disk, for ten seconds: what it had by then.
    fn run(rate: u64, speed: u64) -> u64 {
        let mut bound = bound(rate);
        let mut had = 0;
        while bound.next < Instant(10_000 * MS) {
            let passed = bound.next.since(bound.looked);
            let bytes = if bound.held { 0 } else { speed * (passed.0 / 1_000) / 1_000_000 };
            had += bytes;
            let used = DiskUse { read: bytes, written: bytes / 2 };
            bound.held = bound.take(used, bound.next, Nanos(20_000));
        }
        had
    }

    #[test]
    fn over_any_time_nobody_has_more_than_the_rate() {
        for (rate, speed) in
            [(MIB, 4 * MIB), (4 * MIB, 100 * MIB), (4 * MIB, 2_000 * MIB), (64 * 1024, 3 * MIB)]
        {
            let had = run(rate, speed);
            let most = rate * 10 + rate / 10 + speed * SOON.0 / 1_000_000_000;
            assert!(had <= most && had * 100 >= rate * 10 * 97, "{rate}, {speed}: {had}, {most} at most");
        }
        // One that wants less is never held, and looked at seldom.
        let had = run(4 * MIB, MIB);
        assert!((9 * MIB..=10 * MIB).contains(&had), "{had}");
    }

    /// A program that reads a file of 1 MiB at `speed`, starts the next in `pause`, and so on; each look comes late by what `late` says.
    /// What it had by each look, from when to when: only while it was not held.
    fn run_files(
        rate: u64,
        speed: u64,
        pause: Nanos,
        mut late: impl FnMut() -> Nanos,
    ) -> Vec<(Instant, u64)> {
        let mut bound = bound(rate);
        let mut looks = vec![(Instant(0), 0)];
        let (mut in_file, mut rest) = (0, pause);
        while bound.next < Instant(20_000 * MS) {
            let now = bound.next + late();
            let mut left = if bound.held { Nanos(0) } else { now.since(bound.looked) };
            let mut bytes = 0;
            while left > Nanos(0) {
                if rest > Nanos(0) {
                    let rests = rest.min(left);
                    (rest, left) = (rest.saturating_sub(rests), left.saturating_sub(rests));
                    continue;
                }
                let file_takes = Nanos(((MIB - in_file) * 1_000_000_000).div_ceil(speed));
                let reads = file_takes.min(left);
                let part =
                    if reads == file_takes { MIB - in_file } else { speed * (reads.0 / 1_000) / 1_000_000 };
                (bytes, in_file) = (bytes + part, in_file + part);
                left = left.saturating_sub(reads);
                if in_file == MIB {
                    (in_file, rest) = (0, pause);
                }
            }
            bound.held = bound.take(DiskUse { read: bytes, written: 0 }, now, Nanos(20_000));
            looks.push((now, looks.last().map_or(0, |last| last.1) + bytes));
        }
        looks
    }

    /// The most that was had between two looks, and the most in any stretch of looks beyond the rate and [`BURST`].
    fn most(rate: u64, looks: &[(Instant, u64)]) -> (u64, u64) {
        let one = looks.windows(2).map(|pair| pair[1].1 - pair[0].1).max().unwrap_or(0);
        let due = |from: Instant, to: Instant| {
            u64::try_from(u128::from(rate) * u128::from((to.since(from) + BURST).0) / 1_000_000_000)
                .expect("few")
        };
        let beyond = looks.iter().enumerate().flat_map(|(i, from)| {
            looks[i..].iter().map(move |to| (to.1 - from.1).saturating_sub(due(from.0, to.0)))
        });
        (one, beyond.max().unwrap_or(0))
    }

    /// Looks that are late by up to 100 ms, at random: each one's bytes may be too many, and are not had twice.
    #[test]
    fn what_a_late_look_let_through_is_paid_for() {
        for (rate, speed) in [(2 * MIB, 16 * MIB), (4 * MIB, 50 * MIB), (64 * 1024, 3 * MIB)] {
            let mut seed = 88_172_645_463_325_252_u64;
            let late = || {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                // One of four is late.
                Nanos(if seed.is_multiple_of(4) { seed / 4 % (100 * MS) } else { 0 })
            };
            let looks = run_files(rate, speed, Nanos(10 * MS), late);
            let ((one, beyond), had) = (most(rate, &looks), looks.last().expect("the first").1);
            assert!(beyond <= one, "{rate}, {speed}: {beyond} beyond the rate, {one} in one look");
            assert!(had * 100 >= rate * 20 * 95, "{rate}, {speed}: {had}");
        }
    }

    #[test]
    fn who_pauses_between_files_is_looked_at_as_often() {
        for pause in [10, 30, 60] {
            let looks = run_files(2 * MIB, 16 * MIB, Nanos(pause * MS), || Nanos(0));
            let (one, beyond) = most(2 * MIB, &looks);
            // The first file is read before its speed is known; then at most for a look's time, and what is saved up.
            let early = looks.iter().position(|look| look.1 > 0).expect("it reads") + 1;
            let (later, _) = most(2 * MIB, &looks[early..]);
            assert!(one <= 2 * MIB && beyond <= one, "{pause}: {one}, {beyond}");
            assert!(later <= 16 * MIB * 30 / 1_000, "{pause}: {later} bytes in a look");
        }
    }

    #[test]
    fn one_look_that_took_long_is_not_waited_out_and_those_that_all_do_are() {
        let mut bound = bound(MIB);
        let mut look = |cost_ms: u64| {
            let now = bound.next;
            let used = DiskUse { read: 1_000, written: 0 };
            bound.held = bound.take(used, now, Nanos(cost_ms * MS));
            bound.next.since(now)
        };
        assert!(look(0) <= LATE);
        assert!(look(400) <= LATE, "its host took the CPU away");
        assert!(look(0) <= LATE);
        look(4);
        assert_eq!(look(4), Nanos(4 * MS * LOOK_PART), "a client of many processes");
    }

    #[test]
    fn those_are_looked_at_whose_time_has_come() {
        let mut gate = DiskGate::default();
        for (id, at) in [(1, 30), (2, 10), (3, 20), (4, 10)] {
            gate.insert(ClientId(id), Bound { next: Instant(at), ..bound(MIB) });
        }
        assert_eq!(gate.next(), Some(Instant(10)));
        gate.leave(ClientId(4));
        assert_eq!(gate.take_due(Instant(9)), None);
        assert_eq!(gate.take_due(Instant(20)), Some(ClientId(2)));
        assert_eq!(gate.change(ClientId(2), |bound| bound.next = Instant(25)), Some(()));
        assert_eq!(gate.take_due(Instant(20)), Some(ClientId(3)));
        assert_eq!(gate.take_due(Instant(20)), None);
        assert_eq!(gate.change(ClientId(1), |bound| bound.next = Instant(5)), Some(()));
        assert_eq!(gate.next(), Some(Instant(5)));
        gate.leave(ClientId(1));
        gate.leave(ClientId(3));
        assert_eq!((gate.next(), gate.looks.len()), (Some(Instant(25)), 1));
        assert_eq!(gate.change(ClientId(9), |_| ()), None);
    }

    #[test]
    fn what_a_child_had_is_its_parents_and_counts_once() {
        let key = |pid| (pid, 1);
        let used = |read| DiskUse { read, written: 0 };
        let before = BTreeMap::from([(key(1), used(10)), (key(2), used(100)), (key(3), used(1000))]);
        // 2 has had 5 more, has ended, and was waited for by 1.
        let now = BTreeMap::from([(key(1), used(115)), (key(3), used(1000))]);
        assert_eq!(since(&before, &now), used(5));
        // 3 has ended and nobody of the client's waited for it; 1 has had 7.
        let now = BTreeMap::from([(key(1), used(17)), (key(2), used(100))]);
        assert_eq!(since(&before, &now), used(7));
        // A child that is new has had all that it had here.
        let now = BTreeMap::from([
            (key(1), used(10)),
            (key(2), used(100)),
            (key(3), used(1000)),
            (key(4), used(6)),
        ]);
        assert_eq!(since(&before, &now), used(6));
    }
}
