//! Disks divided by shares where the kernel does not: whoever has had more than its part, of those that want the disk, is held.
//!
//! *Problem*: without cgroups, or without anything that divides a disk, whoever asks for most has most of it. *Idea*: as for limits
//! ([`super::disk_gate`]), the kernel counts the bytes of each process (`/proc/PID/io`); who is ahead of the others, by share, is
//! suspended until they have caught up. *Terms*: a client's *time* is the bytes that it had, by its weight; it *wants* the disk if it
//! waits for it (state D) or had an eighth of its part at least, in one of three looks of late; the *clock* is the least time of those that
//! want it. *Algorithm*: at each look, [`LOOK`] apart, whoever wants the disk and is ahead of the clock by more than two looks' worth of all
//! bytes is held, and released at half of that. Who begins to want it begins at the clock. *Properties*: parts of those that
//! want it all the time come to the weights (`parts_come_to_the_weights`); what one does not use is the others' after 8 looks
//! (`who_leaves_the_disk_or_wants_little_of_it_holds_nobody_up`); who was away has nothing saved up (`nothing_is_saved_up`). *Weak spots*:
//! as for limits; bytes are what is divided, so that many small reads cost more of a disk than their part; and a program that
//! computes as well is held as a whole, so this is done only from the first share or reservation of disks on.

use std::collections::BTreeMap;

use divvy_linux::{State, clock, procfs};
use divvy_policy::{ClientId, Instant, Nanos};

use super::Scheduler;
use super::disk_gate::{MEMBERS_MAX, Member, since};
use crate::message::Refusal;
use divvy_api::types::{Bounds, Enforcement, ErrorCode};
use divvy_linux::procfs::DiskUse;

/// From one look to the next, at least; at [`IDLE`] where nobody wants the disk.
const LOOK: Nanos = Nanos::from_millis(20);
const IDLE: Nanos = Nanos::from_millis(100);
/// Looks take at most one part in so many of the time.
const LOOK_PART: u64 = 50;
/// Looks after which one that does not want the disk any more counts as such.
const WANTS: u32 = 8;
/// Who has had nothing in so many looks waits for something else, be it in the same state: a server of files that is away.
const VAIN: u32 = 50;
/// Bytes of a weight of 1 are so much time.
const SCALE: u128 = 1 << 32;

/// What a client had since the last look, and whether one of its processes waits for a disk.
#[derive(Clone, Copy, Debug, Default)]
struct Had {
    bytes: u64,
    waits: bool,
}

/// One client's part.
#[derive(Clone, Debug, Default)]
struct Part {
    weight: u64,
    time: u128,
    /// Each member at the last look.
    seen: BTreeMap<Member, DiskUse>,
    /// How many looks it may not want the disk until it counts as one that does not.
    wants: u32,
    /// Looks since it last had anything.
    vain: u32,
    held: bool,
    /// Its user has paused it.
    paused: bool,
}

/// How disks are divided.
#[derive(Debug, Default)]
pub(super) struct DiskShares {
    /// What each client's part is in proportion to.
    weights: BTreeMap<ClientId, u64>,
    /// Those that are held and released here, where the kernel does not divide.
    parts: BTreeMap<ClientId, Part>,
    next: Option<Instant>,
    /// CPU time of the last look.
    cost: Nanos,
    clock: u128,
    /// Bytes of all in a look, of late.
    pace: u128,
}

impl DiskShares {
    /// When everybody is to be looked at.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// What a client's part of the disks is in proportion to; 0 for one that is not known.
    pub(super) fn weight(&self, client: ClientId) -> u64 {
        self.weights.get(&client).copied().unwrap_or(0)
    }

    /// Whether a client is held, for others have had too little.
    pub(super) fn holds(&self, client: ClientId) -> bool {
        self.parts.get(&client).is_some_and(|part| part.held)
    }

    /// A user has paused a client, or has resumed it.
    pub(super) fn set_paused(&mut self, client: ClientId, paused: bool) {
        if let Some(part) = self.parts.get_mut(&client) {
            part.paused = paused;
        }
    }

    pub(super) fn leave(&mut self, client: ClientId) {
        self.parts.remove(&client);
        self.weights.remove(&client);
    }

    /// Takes in what each has had, one look long. Returns who is to be held from now on, or released.
    fn take(&mut self, had: &BTreeMap<ClientId, Had>) -> Vec<(ClientId, bool)> {
        let of = |client: &ClientId| had.get(client).copied().unwrap_or_default();
        let all: u128 = self.parts.keys().map(|client| u128::from(of(client).bytes)).sum();
        self.pace = (self.pace * 3 + all).div_ceil(4);
        let competes = |part: &Part| part.wants > 0 && !part.paused;
        let having = |(client, part): &(&ClientId, &mut Part)| competes(part) || of(client).bytes > 0;
        let weights = self.parts.iter_mut().filter(having).map(|(_, part)| u128::from(part.weight));
        let weights = weights.sum::<u128>().max(1);
        for (client, part) in &mut self.parts {
            let Had { bytes, waits } = of(client);
            let much = bytes > 0 && u128::from(bytes) * 8 * weights >= all * u128::from(part.weight);
            if part.wants == 0 {
                part.time = part.time.max(self.clock);
            }
            part.time += u128::from(bytes) * SCALE / u128::from(part.weight.max(1));
            if !part.held {
                part.vain = if bytes > 0 { 0 } else { part.vain.saturating_add(1) };
                let waits = waits && part.vain < VAIN;
                // Whoever is held cannot want anything, and did.
                part.wants =
                    if waits || much { (part.wants + 2).min(WANTS) } else { part.wants.saturating_sub(1) };
            }
        }
        let competing = self.parts.values().filter(|part| competes(part)).map(|part| part.time);
        self.clock = self.clock.max(competing.min().unwrap_or(0));
        let lead = self.pace * 2 * SCALE / weights;
        let mut changes = Vec::new();
        for (&client, part) in &mut self.parts {
            let most = self.clock + if part.held { lead / 2 } else { lead };
            let hold = competes(part) && part.time > most;
            if hold != part.held {
                changes.push((client, hold));
            }
        }
        changes
    }
}

impl Scheduler {
    /// Whether a user has paused a client. Whoever is held for what it had of disks is paused to the engine, too.
    pub(super) fn is_paused_by_user(&self, client: ClientId) -> bool {
        self.engine.ledger().clients().get(client.index()).is_some_and(|account| account.paused)
    }

    /// Whether a client is held for what it had of disks: by its limit, or for the others' parts.
    pub(super) fn held_for_disks(&self, client: ClientId) -> bool {
        self.disk_gate.holds(client) || self.disk_shares.holds(client)
    }

    /// What everybody's part of the disks is in proportion to, if somebody asks for one that is not its share of the CPU.
    fn disk_weights(&self, shares: &[(ClientId, u64)]) -> Option<BTreeMap<ClientId, u64>> {
        let own = self.own.as_ref()?;
        let bounds = |client| self.book.entry(client).map_or_else(Default::default, |entry| entry.bounds);
        let asks = |bounds: Bounds| bounds.disk_share.is_some() || bounds.reserve_disk_ppm.is_some();
        if !shares.iter().any(|&(client, _)| asks(bounds(client))) {
            return None;
        }
        let of_client = |&(client, share): &(ClientId, u64)| {
            let within = own.groups.share(client).unwrap_or(share).max(1);
            // In a group, so many times what its share would have come to.
            let disk = bounds(client).disk_share.unwrap_or(within);
            let share = u128::from(share) * u128::from(disk) * 1000 / u128::from(within);
            (
                u64::try_from(share).unwrap_or(u64::MAX),
                bounds(client).reserve_disk_ppm.unwrap_or(0),
                own.groups.counts(client),
            )
        };
        let promises: Vec<super::bounds::Promise> = shares.iter().map(of_client).collect();
        let clients = shares.iter().map(|&(client, _)| client);
        Some(clients.zip(super::bounds::entitlements(&promises)).collect())
    }

    /// Works out what everybody's part of the disks is, and divides them by it: from the first share or reservation of disks on,
    /// and where the kernel does not do it.
    pub(super) fn divide_disks_anew(&mut self, shares: &[(ClientId, u64)]) {
        let asked = self.disk_weights(shares);
        let by_us = asked.is_some() && !self.kernel_divides_disks();
        // Nobody asks for the others' parts but the kernel.
        let others = || if self.follows { shares.iter().copied().collect() } else { BTreeMap::new() };
        let weights = asked.unwrap_or_else(others);
        if self.follows {
            let changed =
                weights.iter().filter(|&(client, weight)| self.disk_shares.weight(*client) != *weight);
            self.weights.owed.extend(changed.map(|(&client, _)| client));
        }
        self.disk_shares.weights = weights;
        let gone: Vec<ClientId> = match by_us {
            true => Vec::new(),
            false => self.disk_shares.parts.keys().copied().collect(),
        };
        for client in gone {
            self.release_from_shares(client);
            self.disk_shares.parts.remove(&client);
        }
        if !by_us {
            self.disk_shares.next = None;
            return;
        }
        for (client, weight) in self.disk_shares.weights.clone() {
            if let Some(part) = self.disk_shares.parts.get_mut(&client) {
                part.weight = weight;
            } else if let Ok(seen) = self.disk_use(client) {
                let (time, paused) = (self.disk_shares.clock, self.is_paused_by_user(client));
                let part = Part { weight, time, seen, paused, ..Part::default() };
                self.disk_shares.parts.insert(client, part);
            }
        }
        self.disk_shares.next.get_or_insert_with(|| clock::now() + LOOK);
    }

    /// Whether the kernel divides some disk by what it is told.
    pub(super) fn kernel_divides_disks(&self) -> bool {
        self.engine.host().enforced().iter().any(|told| told.resource == "disk" && told.by.is_some())
    }

    /// Whether disks are divided now, by the kernel or here.
    pub(super) fn divides_disks(&self) -> bool {
        !self.disk_shares.parts.is_empty() || self.kernel_divides_disks()
    }

    /// A user's own divvyd divides by itself what the kernel does not.
    pub(super) fn note_disks_by_us(&self, all: &mut Vec<Enforcement>) {
        if self.own.is_none() || all.iter().any(|told| told.resource == "disk" && told.by.is_some()) {
            return;
        }
        let before = all.iter().position(|told| told.resource == "disk").map(|at| all.remove(at));
        let since = "from the first --disk-share or --reserve disk:30% on, all disks together";
        let note = before.map_or_else(|| since.to_owned(), |told| format!("{since}; {}", told.note));
        let by = Some("suspending, by /proc/PID/io".to_owned());
        all.push(Enforcement { resource: "disk".to_owned(), by, note });
    }

    /// Whether a client's part of the disks can be seen to.
    ///
    /// # Errors
    /// [`ErrorCode::NotPermitted`] where what its processes have cannot be read.
    pub(super) fn check_disk_share(&self, client: ClientId, to: Bounds) -> Result<(), Refusal> {
        let asked = to.disk_share.is_some() || to.reserve_disk_ppm.is_some();
        if !asked || self.kernel_divides_disks() {
            return Ok(());
        }
        self.disk_use(client).map(drop).map_err(|e| {
            let fix = "give shares of disks to processes of your own, or start divvyd with --backend cgroup";
            Refusal::new(ErrorCode::NotPermitted, format!("nothing divides disks for it here: {e}"), fix)
        })
    }

    fn release_from_shares(&mut self, client: ClientId) {
        let Some(part) = self.disk_shares.parts.get_mut(&client).filter(|part| part.held) else { return };
        part.held = false;
        if !part.paused && !self.disk_gate.holds(client) {
            self.told_of_disks(client, |scheduler| scheduler.engine.resume(client));
        }
    }

    fn told_of_disks(
        &mut self,
        client: ClientId,
        change: impl FnOnce(&mut Self) -> Result<(), divvy_engine::EngineError>,
    ) {
        if let Err(e) = change(self) {
            crate::say(format_args!("client {}: its part of the disks: {e}", client.0));
        }
    }

    /// Between two turns: looks at everybody when that is due, and holds or releases.
    pub(super) fn share_disks(&mut self) {
        if self.disk_shares.next.is_none_or(|next| next > clock::now()) {
            return;
        }
        let begun = clock::own_thread_cpu();
        let mut all = BTreeMap::new();
        for client in self.disk_shares.parts.keys().copied().collect::<Vec<_>>() {
            let Ok(seen) = self.disk_use(client) else { continue };
            let Some(part) = self.disk_shares.parts.get_mut(&client) else { continue };
            let used = since(&part.seen, &seen);
            if !seen.is_empty() {
                part.seen = seen;
            }
            let waits = !part.held && self.waits_for_disk(client);
            all.insert(client, Had { bytes: used.read.saturating_add(used.written), waits });
        }
        for (client, hold) in self.disk_shares.take(&all) {
            if !hold {
                self.release_from_shares(client);
                continue;
            }
            if let Some(part) = self.disk_shares.parts.get_mut(&client) {
                part.held = true;
            }
            self.told_of_disks(client, |scheduler| scheduler.engine.hold_apart(client));
        }
        let cost = clock::own_thread_cpu().saturating_sub(begun);
        let idle = self.disk_shares.parts.values().all(|part| part.wants == 0);
        // One look that is dear alone is not waited out: the machine's host may have taken its time.
        let before = std::mem::replace(&mut self.disk_shares.cost, cost);
        let rest = Nanos(cost.min(before).0.saturating_mul(LOOK_PART));
        let wait = (if idle { IDLE } else { LOOK }).max(rest);
        self.disk_shares.next = Some(clock::now() + wait);
    }

    fn waits_for_disk(&self, client: ClientId) -> bool {
        let members = self.engine.host().known_members(client, MEMBERS_MAX);
        let state = |pid| procfs::stat(pid).ok().flatten().map(|stat| stat.state);
        members.iter().any(|member| state(member.pid) == Some(State::DiskSleep))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a program can read in one look, alone.
    const DISK: u64 = 1 << 21;

    /// A program: its weight, and the bytes that it wants in a look, by the number of the look.
    struct Program(u64, fn(u64) -> u64);

    /// A process that waited for a file server which was away kept everybody else from the disk.
    #[test]
    fn who_waits_in_vain_competes_with_nobody() {
        let mut shares = DiskShares::default();
        for i in 0..2 {
            shares.parts.insert(ClientId(i), Part { weight: 1, ..Part::default() });
        }
        let mut got = 0;
        for _ in 0..500 {
            let bytes = if shares.holds(ClientId(1)) { 0 } else { DISK };
            let had =
                [(ClientId(0), Had { bytes: 0, waits: true }), (ClientId(1), Had { bytes, waits: false })];
            got += bytes / DISK;
            for (client, hold) in shares.take(&had.into()) {
                shares.parts.get_mut(&client).expect("it is there").held = hold;
            }
        }
        assert!(got >= 430, "{got} of 500 looks");
    }

    /// Lets programs read from one disk, which serves all that want it alike, for so many looks; what each had in each look.
    fn run(programs: &[Program], looks: u64) -> Vec<Vec<u64>> {
        let mut shares = DiskShares::default();
        for (i, Program(weight, _)) in programs.iter().enumerate() {
            shares.parts.insert(ClientId(i as u32), Part { weight: *weight, ..Part::default() });
        }
        let mut told = Vec::new();
        for look in 0..looks {
            let wanted = programs
                .iter()
                .enumerate()
                .map(|(i, program)| if shares.holds(ClientId(i as u32)) { 0 } else { (program.1)(look) });
            let wanted: Vec<u64> = wanted.collect();
            // Who wants less than a part leaves the rest to the others.
            let mut had = vec![0; wanted.len()];
            let mut left = DISK;
            while left > 0 {
                let hungry: Vec<usize> = (0..had.len()).filter(|&i| had[i] < wanted[i]).collect();
                let part = (left / hungry.len().max(1) as u64).max(1);
                if hungry.is_empty() {
                    break;
                }
                for i in hungry {
                    let takes = part.min(wanted[i] - had[i]).min(left);
                    had[i] += takes;
                    left -= takes;
                }
            }
            let all = had.iter().enumerate().map(|(i, &bytes)| {
                (ClientId(i as u32), Had { bytes, waits: bytes > 0 && bytes < wanted[i] })
            });
            for (client, hold) in shares.take(&all.collect()) {
                shares.parts.get_mut(&client).expect("it is there").held = hold;
            }
            told.push(had);
        }
        told
    }

    fn sum(looks: &[Vec<u64>], program: usize) -> u64 {
        looks.iter().map(|had| had[program]).sum()
    }

    const ALL: fn(u64) -> u64 = |_| 2 * DISK;

    #[test]
    fn parts_come_to_the_weights() {
        for weights in [&[1, 1][..], &[3, 1], &[1, 2, 3], &[9, 1], &[1, 1, 1, 5]] {
            let programs: Vec<Program> = weights.iter().map(|&weight| Program(weight, ALL)).collect();
            let had = run(&programs, 2000);
            let (all, whole) = (2000 * DISK, weights.iter().sum::<u64>());
            let used: u64 = (0..programs.len()).map(|i| sum(&had, i)).sum();
            assert!(used * 100 >= all * 99, "{weights:?}: the disk was idle: {used} of {all}");
            for (i, weight) in weights.iter().enumerate() {
                let (got, due) = (sum(&had, i), all / whole * weight);
                assert!(got.abs_diff(due) * 100 <= due * 2, "{weights:?}: {i} had {got} of {due}");
            }
        }
    }

    #[test]
    fn who_leaves_the_disk_or_wants_little_of_it_holds_nobody_up() {
        // The one with nine parts of ten is away from look 500 on.
        let had = run(&[Program(9, |look| if look < 500 { 2 * DISK } else { 0 }), Program(1, ALL)], 1000);
        let idle = had[500..].iter().filter(|had| had[1] == 0).count();
        assert!(idle <= WANTS as usize + 2, "{idle} looks");
        // One that wants 2 % of the disk has that, and the other the rest, but for moments.
        let had = run(&[Program(1, |_| DISK / 50), Program(1, ALL)], 1000);
        assert_eq!(sum(&had, 0), 1000 * (DISK / 50));
        assert!(sum(&had, 1) * 100 >= 1000 * DISK * 96, "{}", sum(&had, 1));
        // Who is alone is never held.
        assert!(run(&[Program(1, ALL)], 100).iter().all(|had| had[0] == DISK));
    }

    #[test]
    fn nothing_is_saved_up() {
        let had = run(&[Program(1, |look| if look < 500 { 0 } else { 2 * DISK }), Program(1, ALL)], 1000);
        let (late, other) = (sum(&had[500..], 0), sum(&had[500..], 1));
        assert!(late.abs_diff(other) <= 10 * DISK, "{late} {other}");
    }
}
