//! What a client is sure of, and may not exceed, beside its share: reservations of CPU and memory, limits of memory and disks.
//!
//! *CPU*: what is reserved are parts of all CPUs that are divided; shares divide the rest, so a client with a reservation `r` and a
//! share `s` is due `r + (1 - R) * s / S`, where `R` and `S` are everybody's together: what hard and soft tickets of one
//! currency come to (*Isolation with Flexibility*, section 2.4). The engine is given that as its shares. Whoever sleeps leaves
//! its part to the others, reserved or not. *Memory*: `memory.min` and `memory.low`. *Limits*: `memory.max` and `io.max`.
//! In a market reservations are its hard tickets, and only limits and CPUs are kept here.

use divvy_linux::CpuMask;
use divvy_linux::cgroup::{Ceilings, Check, Due, NotKept, Rights};
use divvy_policy::{ClientId, CpuLimit};

use super::{Scheduler, parse_share, system};
use crate::backend::AUTO_BACKEND;
use crate::kernel::KERNEL_BACKEND;
use crate::message::Refusal;
use divvy_api::cpus::{self, Keeper};
use divvy_api::types::{Bounds, ErrorCode};

/// One, in millionths.
const WHOLE_PPM: u64 = 1_000_000;
/// At most so much of the CPUs is reserved: the rest is for whoever has only a share.
const RESERVABLE_PPM: u64 = 950_000;
/// Shares of all together where somebody has a reservation: parts of the CPUs are right to a ten thousandth.
const PARTS: u128 = 10_000;
/// Less memory than this holds no program.
const MEMORY_MIN: u64 = 1 << 20;
/// Less than this a second is no use of a disk.
const DISK_MIN: u64 = 4096;

fn percent(ppm: u64) -> f64 {
    ppm as f64 / 10_000.0
}

fn bad(message: String, fix: &str) -> Refusal {
    Refusal::new(ErrorCode::BadRequest, message, fix)
}

fn not_kept(e: NotKept) -> Refusal {
    match e {
        NotKept::Missing(why) => bad(
            format!("nothing keeps this limit here: {why}"),
            "leave it out; `divvy doctor` says what this machine can give effect to",
        ),
        NotKept::Failed(e) => system(e),
    }
}

fn ceilings(bounds: Bounds) -> Ceilings {
    Ceilings { memory: bounds.limit_memory_bytes, disk: bounds.limit_disk_bytes, cpus: bounds.cpus }
}

/// What a client has: its share, millionths of all that are reserved for it, and whether it counts now.
pub(super) type Promise = (u64, u64, bool);

/// What clients are due, as shares of about [`PARTS`] in all. Whoever does not count is due what it would be if it alone did
/// as well, and the others are due theirs without it.
pub(super) fn entitlements(clients: &[Promise]) -> Vec<u64> {
    let counting = || clients.iter().filter(|&&(.., counts)| counts);
    let shares_of_all: u128 = counting().map(|&(share, ..)| u128::from(share)).sum();
    let reserved_by_all: u128 = counting().map(|&(_, ppm, _)| u128::from(ppm)).sum();
    let whole = u128::from(WHOLE_PPM);
    let due = |&(share, ppm, counts): &Promise| {
        let own = |of: u64| if counts { 0 } else { u128::from(of) };
        let (shares, reserved) = (shares_of_all + own(share), reserved_by_all + own(ppm));
        let rest = whole.saturating_sub(reserved);
        // Of shares * whole in all.
        let due = u128::from(ppm) * shares + rest * u128::from(share);
        let all = (shares * whole).max(1);
        u64::try_from((due * PARTS * 2 / all).div_ceil(2)).unwrap_or(1).max(1)
    };
    clients.iter().map(due).collect()
}

impl Scheduler {
    /// Whether a client, or one that is to be, can have these bounds with this limit of CPU time. Nothing is changed.
    ///
    /// # Errors
    /// [`ErrorCode::BadRequest`] for what cannot be kept here, with what would help; [`ErrorCode::Refused`] where too much is
    /// promised.
    pub(super) fn check_bounds(
        &self,
        client: Option<ClientId>,
        limit: Option<CpuLimit>,
        change: Bounds,
    ) -> Result<(), Refusal> {
        let had =
            client.and_then(|client| self.book.entry(client)).map_or_else(Bounds::default, |e| e.bounds);
        let to = had.changed_by(change);
        let used = self.backend().used;
        self.check_limit_is_kept(limit)?;
        if to.is_empty() {
            return Ok(());
        }
        if let Some(cpus) = to.cpus.filter(|_| had.cpus != to.cpus) {
            self.check_cpus(&cpus, &used)?;
        }
        let of_disks = Bounds {
            limit_disk_bytes: to.limit_disk_bytes,
            reserve_disk_ppm: to.reserve_disk_ppm,
            disk_share: to.disk_share,
            ..Bounds::default()
        };
        if used != "cgroup" && used != KERNEL_BACKEND && to != of_disks {
            let text = format!(
                "by {used} only shares and limits of CPU time and of disks are kept, and reservations of disks: no other reservation, and no \
                 limit of memory"
            );
            return Err(bad(
                text,
                "start divvyd with --backend cgroup; `divvy doctor` says whether it can be had",
            ));
        }
        if self.system.is_none() && to.reserve_memory_ppm.is_some() {
            let text = "only the system's divvyd has parts of the memory".to_owned();
            return Err(bad(text, "give `reserve_memory_bytes` (--reserve memory:512M)"));
        }
        let reserves =
            [to.reserve_cpu_ppm, to.reserve_memory_bytes, to.reserve_disk_ppm].iter().any(Option::is_some);
        if self.system.is_some() && reserves {
            let text = "the system's divvyd reserves by hard tickets".to_owned();
            return Err(bad(text, "`divvy reserve CLIENT --from CURRENCY AMOUNT --resource RESOURCE`"));
        }
        if self.system.is_some() && to.disk_share.is_some() {
            let text = "the system's divvyd divides disks by tickets".to_owned();
            return Err(bad(text, "`divvy fund CLIENT --from CURRENCY AMOUNT --resource disk`"));
        }
        to.disk_share.map(parse_share).transpose()?;
        let too_small = |what: &str, n: Option<u64>, least: u64| match n {
            Some(n) if n < least => {
                Err(bad(format!("{what} of {n} bytes: at least {least} are needed"), "give more, or none"))
            }
            _ => Ok(()),
        };
        too_small("a limit of memory", to.limit_memory_bytes, MEMORY_MIN)?;
        too_small("a limit of a disk", to.limit_disk_bytes, DISK_MIN)?;
        self.check_reserve("the CPUs", client, to.reserve_cpu_ppm, |bounds| bounds.reserve_cpu_ppm)?;
        self.check_reserve("the disks", client, to.reserve_disk_ppm, |bounds| bounds.reserve_disk_ppm)?;
        self.check_cpu_limit(to.reserve_cpu_ppm.unwrap_or(0), limit)?;
        // What it has stays, though less may be reservable by now.
        let memory = |bounds: Bounds| (bounds.reserve_memory_bytes, bounds.limit_memory_bytes);
        if memory(had) == memory(to) { Ok(()) } else { self.check_memory(client, to) }
    }

    /// The kernel's own limits hold where its own scheduler runs: `auto` goes back to that, who asked for another keeps it.
    pub(super) fn check_limit_is_kept(&self, limit: Option<CpuLimit>) -> Result<(), Refusal> {
        let backend = self.backend();
        if backend.used == KERNEL_BACKEND && backend.asked != AUTO_BACKEND && limit.is_some() {
            let text = "under divvy-scx as the kernel's scheduler no limit of CPU time is kept".to_owned();
            return Err(bad(text, "start divvyd with --backend auto or cgroup"));
        }
        Ok(())
    }

    /// Changes a client's limit of CPU time.
    ///
    /// # Errors
    /// It cannot be kept here: the client has the one that it had.
    pub(super) fn set_limit(&mut self, client: ClientId, limit: Option<CpuLimit>) -> Result<(), Refusal> {
        self.check_limit_is_kept(limit)?;
        self.engine.set_limit(client, limit).map_err(super::limited)
    }

    /// Lets a limit that was set, with all that was asked for beside it, hold: the kernel's own scheduler keeps it.
    pub(super) fn let_limit_hold(&self, limit: Option<CpuLimit>) {
        if let Some(keeper) = self.kernel.as_ref().filter(|_| limit.is_some()) {
            keeper.give_way("a limit of CPU time was asked for, which the kernel's own scheduler keeps");
        }
    }

    /// Whether a client can be kept to these CPUs.
    fn check_cpus(&self, cpus: &CpuMask, used: &str) -> Result<(), Refusal> {
        let divided: CpuMask = self.engine.host().cpus().iter().copied().collect();
        cpus::check(cpus, &divided, used, Keeper::Divvyd).map_err(|e| bad(e.what, &e.fix))
    }

    /// What others have of something.
    fn others(&self, client: Option<ClientId>, of: fn(&Bounds) -> Option<u64>) -> u64 {
        let others = self.book.present().filter(|&(id, _)| Some(id) != client);
        others.filter_map(|(_, entry)| of(&entry.bounds)).fold(0, u64::saturating_add)
    }

    /// Whether there is as much of `what` left to reserve.
    fn check_reserve(
        &self,
        what: &str,
        client: Option<ClientId>,
        ppm: Option<u64>,
        of: fn(&Bounds) -> Option<u64>,
    ) -> Result<(), Refusal> {
        let Some(ppm) = ppm.filter(|&ppm| ppm > 0) else { return Ok(()) };
        let others = self.others(client, of);
        if ppm.saturating_add(others) > RESERVABLE_PPM {
            let text = format!(
                "{} % of {what} cannot be reserved: {} % are already, and {} % can be",
                percent(ppm),
                percent(others),
                percent(RESERVABLE_PPM)
            );
            return Err(Refusal::new(
                ErrorCode::Refused,
                text,
                "reserve less, or take another reservation back",
            ));
        }
        Ok(())
    }

    fn check_cpu_limit(&self, ppm: u64, limit: Option<CpuLimit>) -> Result<(), Refusal> {
        let cpus = self.engine.host().cpus().len() as u64;
        match limit {
            Some(limit) if ppm.saturating_mul(cpus) > limit.ppm() => {
                let text = format!(
                    "a reservation of {} % of {cpus} CPUs is more than the limit of {limit} of one",
                    percent(ppm)
                );
                Err(bad(text, "reserve less, or allow more"))
            }
            _ => Ok(()),
        }
    }

    fn check_memory(&self, client: Option<ClientId>, to: Bounds) -> Result<(), Refusal> {
        let Some(bytes) = to.reserve_memory_bytes else { return Ok(()) };
        if let Some(limit) = to.limit_memory_bytes.filter(|&limit| bytes > limit) {
            let text = format!("a reservation of {bytes} bytes of memory is more than the limit of {limit}");
            return Err(bad(text, "reserve less, or allow more"));
        }
        let all = self.engine.host().reservable_memory();
        let all = all.map_err(|why| not_kept(NotKept::Missing(why)))?;
        let others = self.others(client, |bounds| bounds.reserve_memory_bytes);
        if bytes.saturating_add(others) > all {
            let mib = |bytes: u64| bytes.div_ceil(1 << 20);
            let text = format!(
                "{} MiB of memory cannot be reserved: {} MiB are already, and {} MiB can be",
                mib(bytes),
                mib(others),
                all >> 20
            );
            return Err(Refusal::new(
                ErrorCode::Refused,
                text,
                "reserve less, or take another reservation back",
            ));
        }
        Ok(())
    }

    /// Changes a client's bounds, after [`Scheduler::check_bounds`].
    ///
    /// # Errors
    /// What the kernel refused: the client has the bounds that it had.
    pub(super) fn set_bounds(&mut self, client: ClientId, change: Bounds) -> Result<(), Refusal> {
        let Some(entry) = self.book.entry(client) else { return Ok(()) };
        let before = entry.bounds;
        let to = before.changed_by(change);
        if to == before {
            return Ok(());
        }
        self.check_disk_share(client, to)?;
        self.bound_by_kernel_or_gate(client, before, to)?;
        if let Some(entry) = self.book.entry_mut(client) {
            entry.bounds = to;
        }
        self.owe(client);
        self.apply_groups();
        Ok(())
    }

    /// Has the kernel keep limits of memory and disks; where it keeps none of disks, the gate does.
    fn bound_by_kernel_or_gate(
        &mut self,
        client: ClientId,
        before: Bounds,
        to: Bounds,
    ) -> Result<(), Refusal> {
        let used = self.backend().used;
        let host = self.engine.host_mut();
        let (had, gets) = (ceilings(before), ceilings(to));
        let no_disk = |c: Ceilings| Ceilings { disk: None, ..c };
        let kernel_divides = used == "cgroup" || used == KERNEL_BACKEND;
        let refused = if kernel_divides { host.bound(client, had, gets).err() } else { None };
        match refused {
            // What the gate had kept, where a disk took no limit that is gone by now.
            None if kernel_divides => return self.bound_disk(client, None),
            // Of disks the kernel keeps none: whatever else there is to be, it does.
            Some(NotKept::Missing(_)) if had.disk != gets.disk => {
                if let Err(e) = host.bound(client, no_disk(had), no_disk(gets)) {
                    let _ = host.bound(client, no_disk(gets), no_disk(had));
                    return Err(not_kept(e));
                }
                // What the kernel had kept, where it kept any, is not what is to be kept now.
                let _ = host.bound(client, Ceilings { disk: had.disk, ..gets }, no_disk(gets));
            }
            Some(e) => {
                // Of two files the first may have been written.
                let _ = host.bound(client, gets, had);
                return Err(not_kept(e));
            }
            None => {}
        }
        let bounded = self.bound_disk(client, to.limit_disk_bytes);
        if bounded.is_err() && kernel_divides {
            // What the kernel keeps is as it was: nothing is done by half.
            let _ = self.engine.host_mut().bound(client, no_disk(gets), had);
        }
        bounded
    }

    /// Sets the limits of disks once more, for disks that have come since.
    pub(super) fn bound_new_disks(&mut self) {
        let of = self.book.entries().map(|(client, entry)| (client, entry.bounds));
        let bounded: Vec<_> = of.filter(|(_, bounds)| bounds.limit_disk_bytes.is_some()).collect();
        for (client, to) in bounded {
            let before = Bounds { limit_disk_bytes: None, ..to };
            if let Err(refusal) = self.bound_by_kernel_or_gate(client, before, to) {
                crate::say(format_args!("client {}: its limit of disks: {}", client.0, refusal.message));
            }
        }
    }

    /// Sets the limits of clients whose cgroups had to be made anew.
    pub(super) fn bound_remade(&mut self) {
        for client in self.engine.host_mut().take_remade() {
            self.bound_anew(client);
        }
        if self.engine.host_mut().take_forgotten() {
            crate::say("somebody has changed the cgroups of clients underneath: all is written anew");
            let all: Vec<ClientId> = self.book.entries().map(|(client, _)| client).collect();
            all.into_iter().for_each(|client| self.bound_anew(client));
        }
    }

    /// Sets a client's limits in a cgroup that has none.
    fn bound_anew(&mut self, client: ClientId) {
        let Some(entry) = self.book.entry(client) else { return };
        let to = entry.bounds;
        let limit = self.engine.ledger().clients()[client.index()].limit;
        let bounded = self.bound_by_kernel_or_gate(client, Bounds::default(), to);
        let limited = limit.map_or(Ok(()), |limit| self.set_limit(client, Some(limit)));
        if let Err(refusal) = bounded.and(limited) {
            crate::say(format_args!("client {}: its limits: {}", client.0, refusal.message));
        }
    }

    /// Has the cgroups be what they are to be before a client comes, or is to have other bounds: somebody may have changed them.
    pub(super) fn mend_cgroups(&mut self, client: Option<ClientId>) {
        if self.follows && self.engine.host_mut().look_underneath(client) {
            self.write_weights(Check::Nothing);
        }
    }

    /// What clients with these shares are due, where somebody has CPU time reserved.
    pub(super) fn with_reserves(&self, shares: Vec<(ClientId, u64)>) -> Vec<(ClientId, u64)> {
        let reserved = |client| self.book.entry(client).and_then(|entry| entry.bounds.reserve_cpu_ppm);
        if shares.iter().all(|&(client, _)| reserved(client).is_none()) {
            return shares;
        }
        // Without groups a sleeper's part goes to everybody, and nothing need be known of who sleeps.
        let counts = |id| self.own.as_ref().is_none_or(|own| own.groups.counts(id));
        let promise = |&(id, share): &(ClientId, u64)| (share, reserved(id).unwrap_or(0), counts(id));
        let both: Vec<Promise> = shares.iter().map(promise).collect();
        shares.iter().map(|&(client, _)| client).zip(entitlements(&both)).collect()
    }

    /// What the kernel is to give to a client.
    pub(super) fn due(&self, client: ClientId) -> Due {
        if let Some(system) = &self.system {
            return system.due(client);
        }
        let reserved = self.book.entry(client).and_then(|entry| entry.bounds.reserve_memory_bytes);
        Due {
            share: self.engine.ledger().clients()[client.index()].share.get(),
            counts: self.competes(client),
            rights: Rights {
                memory_bytes: reserved.unwrap_or(0),
                disk: self.disk_shares.weight(client),
                ..Rights::default()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_divide_what_reservations_leave() {
        // 20 % reserved; the other 80 % by shares 3:1.
        assert_eq!(entitlements(&[(3, 200_000, true), (1, 0, true)]), [8_000, 2_000]);
        // 50 % and 25 % reserved, a quarter left for 1:1:2.
        assert_eq!(
            entitlements(&[(1, 500_000, true), (1, 250_000, true), (2, 0, true)]),
            [5_625, 3_125, 1_250]
        );
        // Nothing reserved: shares.
        assert_eq!(entitlements(&[(1, 0, true), (3, 0, true)]), [2_500, 7_500]);
        // Nobody is left without any.
        assert_eq!(entitlements(&[(1_000_000, 950_000, true), (1, 0, true)]), [10_000, 1]);
        assert_eq!(entitlements(&[]), [0; 0]);
        // Who idles in a group takes nothing from those outside: 20 % and half of the rest, as without it.
        let idle = entitlements(&[(1, 0, true), (1, 0, false), (1, 200_000, true)]);
        assert_eq!((idle[0], idle[2]), (4_000, 6_000));
    }

    #[test]
    fn what_is_not_given_stays_and_nothing_takes_back() {
        let had =
            Bounds { reserve_cpu_ppm: Some(200_000), limit_memory_bytes: Some(1 << 30), ..Bounds::default() };
        let change =
            Bounds { reserve_cpu_ppm: Some(0), limit_disk_bytes: Some(1 << 20), ..Bounds::default() };
        let now = Bounds {
            limit_memory_bytes: Some(1 << 30),
            limit_disk_bytes: Some(1 << 20),
            ..Bounds::default()
        };
        assert_eq!(had.changed_by(change), now);
    }
}
