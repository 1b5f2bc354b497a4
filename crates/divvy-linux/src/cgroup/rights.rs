//! Rights to memory and disks, given to the leaves of a tree.
//!
//! *Memory*: what is reserved for a client becomes its leaf's `memory.min`, that and what it shares `memory.low`. All there
//! is to be had is [`RESERVABLE`] percent of the memory that the kernel has not taken for itself, or of the least
//! `memory.max` around the tree; the rest, [`REST_MIN`] at least, is nobody's, and whoever has no rights lives there
//! (source: *Isolation with Flexibility*, section 4.4). The tree's root, and the cgroup of each user, are given as much as their leaves
//! together, for the kernel protects nobody further than the cgroup around it.
//!
//! *Disks*: parts of a whole become `io.weight` (iocost) and `io.bfq.weight` (BFQ), whichever there is; the kernel looks at
//! the one of whatever divides a disk ([`super::disks`]), and counts only who uses the disk.
//!
//! Only what changed is written. What cannot be had is told by [`Offers`] and [`Enforced`], and the rest is done.

use std::path::{Path, PathBuf};

use super::disks::{self, Disk};
use super::files::Files;
use super::leaf::Leaf;
use super::room::{
    Attribute, Controller, IO_BFQ_WEIGHT, IO_WEIGHT, Limit, MEMORY_LOW, MEMORY_MAX, MEMORY_MIN, Parse,
};
use super::survey::Ground;
use super::tree::Tree;
use super::users::Levels;
use super::weights::{Knob, deviation};
use crate::Result;

/// Of so many parts all there is of a resource consists.
pub const WHOLE: u64 = 1 << 32;
/// At most so many percent of the memory are kept for clients.
const RESERVABLE: u64 = 95;
/// And so many bytes at least are not; of a machine smaller than twice that, half.
const REST_MIN: u64 = 32 << 20;
/// What can be had is taken to be what it was while it is within one part in so many of that.
const SAME: u64 = 64;
/// The largest weights that the kernel takes.
const IO_WEIGHT_MAX: u64 = 10_000;
const BFQ_WEIGHT_MAX: u64 = 1_000;
/// The files that take a weight of the disks, and the largest.
pub(super) const DISK_WEIGHTS: [(&str, u64); 2] =
    [(IO_WEIGHT.name(), IO_WEIGHT_MAX), (IO_BFQ_WEIGHT.name(), BFQ_WEIGHT_MAX)];

/// What a client has a right to; of the memory in parts of [`WHOLE`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Of the memory, whoever comes or goes.
    pub memory_reserved: u64,
    /// Of the memory, in bytes, beside that.
    pub memory_bytes: u64,
    /// Of the memory, with whoever else competes.
    pub memory_shared: u64,
    /// Of each disk, in any unit that is the same for all; 0 where that is not known or of no account now: it keeps the weight
    /// that it has.
    pub disk: u64,
}

/// What was written last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Given {
    /// `memory.min`, bytes.
    pub(super) min: u64,
    /// `memory.low`, bytes.
    pub(super) low: u64,
    /// `io.weight` and `io.bfq.weight`; 0 for the kernel's own.
    pub(super) weights: [u64; 2],
    /// The memory that can be had, of a tree's root.
    memory: u64,
    /// The files may say something else by now.
    pub(super) stale: bool,
}

impl Given {
    /// Bytes of memory that are kept for a leaf.
    pub(super) const fn kept(&self) -> u64 {
        if self.low > self.min { self.low } else { self.min }
    }

    /// All is to be written, whatever was.
    pub(super) const fn forget(&mut self) {
        self.stale = true;
        self.weights = [0; 2];
    }
}

/// Whether leaves can have a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    /// Nobody asks for it.
    Unasked,
    /// It is on around the tree.
    On,
    /// It is not on around the tree before we put it on.
    ByUs,
    /// Why not.
    Missing(String),
}

/// What of memory, disks and sets of CPUs can be had for the leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offers {
    memory: Offer,
    io: Offer,
    cpuset: Offer,
}

impl Default for Offers {
    fn default() -> Self {
        Self { memory: Offer::Unasked, io: Offer::Unasked, cpuset: Offer::Unasked }
    }
}

impl Offers {
    /// What there is on `ground`.
    pub(super) fn look(ground: &Ground, files: &dyn Files) -> Self {
        let offer = |controller: Controller| {
            if ground.knob == Knob::Shares {
                return Offer::Missing(format!(
                    "version 1 of cgroups has the {controller} controller, or nobody has: boot with cgroup_no_v1=all"
                ));
            }
            let has = |file: &str| {
                let text = files.read(&ground.dir.join(file)).unwrap_or_default();
                text.split_whitespace().any(|word| word == controller.name())
            };
            match (has("cgroup.subtree_control"), has("cgroup.controllers")) {
                (true, _) => Offer::On,
                (false, true) => Offer::ByUs,
                (false, false) => Offer::Missing(format!(
                    "{} has no {controller} controller: put it on in the cgroup around it (+{controller} in its \
                     cgroup.subtree_control; systemd: Delegate=yes), or, where version 1 has it, boot with cgroup_no_v1=all",
                    ground.dir.display()
                )),
            }
        };
        let cpuset = if files.keeps_affinities() {
            offer(Controller::Cpuset)
        } else {
            let why = "before Linux 6.2 a process forgets in a cpuset what taskset had said";
            Offer::Missing(why.to_owned())
        };
        Self { memory: offer(Controller::Memory), io: offer(Controller::Io), cpuset }
    }

    fn of(&self, controller: Controller) -> &Offer {
        match controller {
            Controller::Memory => &self.memory,
            Controller::Io => &self.io,
            Controller::Cpuset => &self.cpuset,
            Controller::Cpu => &Offer::Unasked,
        }
    }

    /// Why leaves do not have a controller; `None` where they do.
    pub(super) fn missing(&self, controller: Controller) -> Option<&str> {
        match self.of(controller) {
            Offer::On | Offer::ByUs => None,
            Offer::Missing(why) => Some(why),
            Offer::Unasked => {
                Some("nothing of memory and disks is divided here: start divvyd with --backend cgroup")
            }
        }
    }

    /// Controllers that are on around the tree because of us, or are to be.
    pub(super) fn to_be_put_on(&self) -> impl Iterator<Item = Controller> + '_ {
        Controller::ALL.into_iter().filter(|&controller| *self.of(controller) == Offer::ByUs)
    }

    /// Whether the leaves are to have a controller, and if so, whether it is to be put on around the tree first.
    pub(super) fn wanted(&self, controller: Controller) -> Option<bool> {
        match self.of(controller) {
            Offer::On => Some(false),
            Offer::ByUs => Some(true),
            Offer::Unasked | Offer::Missing(_) => None,
        }
    }

    /// What came of putting a controller on.
    pub(super) fn became(&mut self, controller: Controller, done: Result<()>) {
        let Err(e) = done else { return };
        let fix = match e.errno() {
            Some(rustix::io::Errno::NOENT) => {
                format!(
                    "put {controller} on in the cgroups around it (+{controller} in cgroup.subtree_control)"
                )
            }
            _ => "other processes may be in the cgroup around divvyd's; start divvyd in one of its own"
                .to_owned(),
        };
        self.set(controller, Offer::Missing(format!("{e}; {fix}")));
    }

    fn set(&mut self, controller: Controller, offer: Offer) {
        match controller {
            Controller::Memory => self.memory = offer,
            Controller::Io => self.io = offer,
            Controller::Cpuset => self.cpuset = offer,
            Controller::Cpu => {}
        }
    }

    /// Whether something could not be had.
    pub(super) fn lacks_any(&self) -> bool {
        Controller::ALL.into_iter().any(|controller| matches!(self.of(controller), Offer::Missing(_)))
    }

    /// Takes up what there was not, and there is by `now`: which controllers that are.
    pub(super) fn take_up(&mut self, now: &Self) -> Vec<Controller> {
        let missing = |offers: &Self, c| matches!(offers.of(c), Offer::Missing(_));
        let come: Vec<Controller> =
            Controller::ALL.into_iter().filter(|&c| missing(self, c) && now.has(c)).collect();
        for &controller in &come {
            self.set(controller, now.of(controller).clone());
        }
        come
    }

    fn has(&self, controller: Controller) -> bool {
        matches!(self.of(controller), Offer::On | Offer::ByUs)
    }
}

/// What gives effect to rights to one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enforced {
    /// `cpu`, `memory` or `disk`.
    pub resource: &'static str,
    /// By which files or signals; `None` where nothing does.
    pub by: Option<String>,
    /// What is to be known beside that: why not, how far, and what would help.
    pub note: String,
}

impl Enforced {
    /// Nothing gives effect to rights to `resource`, for this reason.
    #[must_use]
    pub fn not(resource: &'static str, why: impl Into<String>) -> Self {
        Self { resource, by: None, note: why.into() }
    }
}

/// `part` of [`WHOLE`] of `bytes`, in whole pages.
fn pages(bytes: u64, part: u64) -> u64 {
    let of = u128::from(bytes) * u128::from(part.min(WHOLE)) / u128::from(WHOLE);
    let of = u64::try_from(of).unwrap_or(u64::MAX);
    of - of % (rustix::param::page_size() as u64).max(1)
}

/// How much of `memory` bytes can be kept for clients.
fn reservable(memory: u64) -> u64 {
    (memory / 100 * RESERVABLE).min(memory.saturating_sub(REST_MIN)).max(memory / 2)
}

/// `memory.min` and `memory.low` for rights to `memory` bytes.
fn bounds(memory: u64, rights: &Rights) -> (u64, u64) {
    let kept = reservable(memory);
    let all = rights.memory_reserved.saturating_add(rights.memory_shared);
    let bytes = rights.memory_bytes.min(kept);
    (pages(kept, rights.memory_reserved) + bytes, pages(kept, all) + bytes)
}

/// Weights of 1 to `most` in the proportion of `parts`, to the nearest, the largest being `most`; `None` for a part of 0.
fn weights(parts: &[u64], most: u64) -> Vec<Option<u64>> {
    let largest = u128::from(parts.iter().copied().max().unwrap_or(0).max(1));
    let weight = |&part: &u64| {
        let weight = (u128::from(part) * u128::from(most) * 2).div_ceil(largest) / 2;
        (part > 0).then(|| u64::try_from(weight).unwrap_or(most).clamp(1, most))
    };
    parts.iter().map(weight).collect()
}

/// How far weights are off these parts, in millionths; whoever is of no account has none.
fn off(parts: &[u64], weights: &[Option<u64>]) -> u64 {
    let present = |of: &mut dyn Iterator<Item = u64>| of.filter(|&part| part > 0).collect::<Vec<u64>>();
    let parts = present(&mut parts.iter().copied());
    deviation(&parts, &present(&mut weights.iter().map(|weight| weight.unwrap_or(0))))
}

/// Bytes that the kernel can take back from somebody, or has not given to anybody, by `/proc/meminfo`.
fn not_wired(meminfo: &str) -> Option<u64> {
    let line = |name: &str| {
        let rest = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    let sum = line("MemFree")? + line("Active")? + line("Inactive")? + line("SReclaimable").unwrap_or(0);
    sum.checked_mul(1024)
}

impl Tree {
    /// The cgroups around the tree, from the inside, but for the real root, which has no bounds.
    fn around(&self) -> impl Iterator<Item = PathBuf> + '_ {
        let up = self.ground.dir.ancestors().take_while(|dir| dir.starts_with(&self.ground.mount));
        up.map(Path::to_owned)
    }

    /// What a cgroup's file says; `None` where there is none.
    pub(super) fn read<T: Parse, W>(&self, dir: &Path, file: &Attribute<T, W>) -> Option<T> {
        T::parse(&self.files.read(&dir.join(file.name())).ok()?).ok()
    }

    /// How much memory there is for clients and others.
    fn memory(&self) -> u64 {
        let meminfo = self.files.read(Path::new("/proc/meminfo")).unwrap_or_default();
        let bounds = self.around().filter_map(|dir| match self.read(&dir, &MEMORY_MAX)? {
            Limit::At(most) => Some(most),
            Limit::Max => None,
        });
        bounds.chain(not_wired(&meminfo)).min().unwrap_or(0)
    }

    /// Bytes of memory that can be kept for clients; `None`, with why, where none can.
    pub(crate) fn reservable(&self) -> std::result::Result<u64, String> {
        match self.offers.missing(Controller::Memory) {
            Some(why) => Err(why.to_owned()),
            None => Ok(reservable(if self.given.memory > 0 { self.given.memory } else { self.memory() })),
        }
    }

    /// Looks how much memory there is by now: where that is another amount, everybody's part is.
    pub(super) fn look_at_memory(&mut self) {
        if !self.offers.has(Controller::Memory) {
            return;
        }
        let there = self.memory();
        if there.abs_diff(self.given.memory) > self.given.memory / SAME {
            self.given.memory = there;
            self.note_all_stale();
        }
    }

    /// Looks which disks there are, and what divides them by now: what another one may do is to be written.
    pub(super) fn look_at_disks(&mut self, sys: &Path) {
        if !self.offers.has(Controller::Io) {
            return;
        }
        let there = disks::survey(sys, &self.ground.mount);
        let known = |disk: &Disk| self.disks.iter().any(|d| (d.device, &d.seq) == (disk.device, &disk.seq));
        self.disks_came |= there.iter().any(|disk| !known(disk));
        self.disks = there;
    }

    /// Whether disks have come since this was last asked.
    pub(crate) fn take_disks_came(&mut self) -> bool {
        std::mem::take(&mut self.disks_came)
    }

    /// Gives `leaves`, which are at these `levels`, their memory and their parts of the disks; those beside each other in the
    /// root as well where something changed there, or `anew`.
    pub(super) fn keep(&mut self, leaves: &mut [Leaf], levels: &Levels, anew: bool) -> Result<()> {
        let mut done = Ok(());
        if self.offers.has(Controller::Memory) {
            done = done.and(self.keep_memory(leaves, levels));
        }
        if self.offers.has(Controller::Io) {
            done = done.and(self.weigh_disks(leaves, levels, anew));
        }
        done
    }

    fn keep_memory(&mut self, leaves: &mut [Leaf], levels: &Levels) -> Result<()> {
        if self.given.memory == 0 {
            self.given.memory = self.memory();
        }
        let memory = self.given.memory;
        let bounds: Vec<(u64, u64)> = leaves.iter().map(|leaf| bounds(memory, &leaf.due.rights)).collect();
        let sum = |of: &mut dyn Iterator<Item = (u64, u64)>| of.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        let more = |a: (u64, u64), b: (u64, u64)| (a.0.max(b.0), a.1.max(b.1));
        for (user, places) in &levels.users {
            let of_user = sum(&mut places.iter().map(|&i| bounds[i]));
            if let Some(around) = self.users.get_mut(user) {
                around.sum.memory = of_user;
            }
        }
        let of_users = self.users.values().map(|around| around.sum.memory);
        let all = sum(&mut of_users.chain(levels.root.iter().map(|&i| bounds[i])));
        // Nobody has less than both before and after, so those around have the larger of the two meanwhile.
        let mut done = self.protect_root(more((self.given.min, self.given.low), all));
        for &user in levels.users.keys() {
            let Some(around) = self.users.get(&user) else { continue };
            let to = more((around.given.min, around.given.low), around.sum.memory);
            done = done.and(self.protect_user(user, to));
        }
        for (leaf, to) in leaves.iter_mut().zip(bounds) {
            let dir = leaf.dir.clone();
            done = done.and(self.protect(&dir, &mut leaf.given, to));
        }
        for &user in levels.users.keys() {
            let Some(around) = self.users.get(&user) else { continue };
            done = done.and(self.protect_user(user, around.sum.memory));
        }
        done.and(self.protect_root(all))
    }

    fn protect_user(&mut self, user: u32, to: (u64, u64)) -> Result<()> {
        let Some(mut around) = self.users.remove(&user) else { return Ok(()) };
        let dir = around.dir.clone();
        let done = self.protect(&dir, &mut around.given, to);
        self.users.insert(user, around);
        done
    }

    fn protect_root(&mut self, to: (u64, u64)) -> Result<()> {
        let (root, mut given) = (self.root.clone(), self.given);
        let done = self.protect(&root, &mut given, to);
        self.given = given;
        done
    }

    /// Writes what is another than was given.
    fn protect(&self, dir: &Path, given: &mut Given, (min, low): (u64, u64)) -> Result<()> {
        if given.stale || given.min != min {
            self.write(&dir.join(MEMORY_MIN.name()), &min.to_string())?;
            given.min = min;
        }
        if given.stale || given.low != low {
            self.write(&dir.join(MEMORY_LOW.name()), &low.to_string())?;
            given.low = low;
        }
        given.stale = false;
        Ok(())
    }

    fn weigh_disks(&mut self, leaves: &mut [Leaf], levels: &Levels, anew: bool) -> Result<()> {
        let (mut done, mut others) = (Ok(()), anew || !levels.root.is_empty());
        for (user, places) in &levels.users {
            let parts: Vec<u64> = places.iter().map(|&i| leaves[i].due.rights.disk).collect();
            let mut offs = [0; 2];
            for (which, (_, most)) in DISK_WEIGHTS.into_iter().enumerate() {
                let weights = weights(&parts, most);
                offs[which] = off(&parts, &weights);
                for (&i, weight) in places.iter().zip(weights) {
                    done = done.and(self.weigh_disk_of(&mut leaves[i], which, weight));
                }
            }
            if let Some(around) = self.users.get_mut(user) {
                around.sum.off.disks = offs;
            }
            let disk = parts.iter().fold(0u64, |sum, &part| sum.saturating_add(part));
            if let Some(around) = self.users.get_mut(user).filter(|around| around.sum.disk != disk) {
                around.sum.disk = disk;
                others = true;
            }
        }
        if !others {
            return done;
        }
        // Whoever is of no account now keeps what it has.
        let users: Vec<(u32, u64)> = self.users.iter().map(|(&user, a)| (user, a.sum.disk)).collect();
        let of_leaves = levels.root.iter().map(|&i| leaves[i].due.rights.disk);
        let parts: Vec<u64> = users.iter().map(|of| of.1).chain(of_leaves).collect();
        for (which, (_, most)) in DISK_WEIGHTS.into_iter().enumerate() {
            let weights = weights(&parts, most);
            self.off.disks[which] = off(&parts, &weights);
            let (of_users, of_leaves) = weights.split_at(users.len());
            for ((user, _), &weight) in users.iter().zip(of_users) {
                let Some(around) = self.users.get(user) else { continue };
                let given = self.weigh_disk(&around.dir, around.given, which, weight);
                done = done.and(given.map(|given| {
                    if let Some(around) = self.users.get_mut(user) {
                        around.given = given;
                    }
                }));
            }
            for (&i, &weight) in levels.root.iter().zip(of_leaves) {
                done = done.and(self.weigh_disk_of(&mut leaves[i], which, weight));
            }
        }
        done
    }

    fn weigh_disk_of(&self, leaf: &mut Leaf, which: usize, weight: Option<u64>) -> Result<()> {
        leaf.given = self.weigh_disk(&leaf.dir, leaf.given, which, weight)?;
        Ok(())
    }

    /// Writes a weight of the disks where it is another than was given; what is given then.
    fn weigh_disk(&self, dir: &Path, mut given: Given, which: usize, weight: Option<u64>) -> Result<Given> {
        let Some(weight) = weight.filter(|&weight| given.weights[which] != weight) else { return Ok(given) };
        match self.write(&dir.join(DISK_WEIGHTS[which].0), &format!("default {weight}")) {
            Ok(()) => given.weights[which] = weight,
            // A kernel without iocost, or without BFQ; its disks are told of as such.
            Err(e) if e.errno() == Some(rustix::io::Errno::NOENT) && dir.exists() => {}
            Err(e) => return Err(e),
        }
        Ok(given)
    }

    /// What gives effect to rights, resource by resource: to memory and disks only where that was asked for.
    pub(crate) fn enforced(&self) -> Vec<Enforced> {
        let mut all = Vec::with_capacity(3);
        if !self.purpose.keeps() {
            return all;
        }
        all.push(match &self.offers.memory {
            Offer::Missing(why) => Enforced::not("memory", why),
            _ => self.memory_enforced(),
        });
        all.push(match &self.offers.io {
            Offer::Missing(why) => Enforced::not("disk", why),
            _ => disks_enforced(&disks::survey(Path::new("/sys"), &self.ground.mount)),
        });
        all
    }

    fn memory_enforced(&self) -> Enforced {
        let mib = |bytes: u64| bytes >> 20;
        let memory = if self.given.memory > 0 { self.given.memory } else { self.memory() };
        let kept = reservable(memory);
        let mut note = format!("{} of {} MiB can be kept for clients", mib(kept), mib(memory));
        // Whoever is outside of a cgroup that is protected less takes from us, too.
        let least = self.around().find_map(|dir| {
            let low = self.read(&dir, &MEMORY_LOW)?;
            let min = self.read(&dir, &MEMORY_MIN)?;
            (low.min(min) < Limit::At(kept)).then_some((dir, low.min(min)))
        });
        if let Some((dir, Limit::At(least))) = least {
            note = format!(
                "{note}, against what is outside of {} no more than {} MiB: raise memory.min and memory.low there \
                 (systemd: MemoryMin=, MemoryLow=)",
                dir.display(),
                mib(least)
            );
        }
        Enforced { resource: "memory", by: Some("memory.min, memory.low".to_owned()), note }
    }
}

/// What is to be said of the machine's disks.
fn disks_enforced(found: &[Disk]) -> Enforced {
    let by: Vec<String> = found
        .iter()
        .filter(|disk| !disk.by.is_empty())
        .map(|disk| format!("{} on {}", disk.by.join(" and "), disk.name))
        .collect();
    let none: Vec<&str> =
        found.iter().filter(|disk| disk.by.is_empty()).map(|disk| disk.name.as_str()).collect();
    let note = match none.first() {
        None if found.is_empty() => "there is no disk".to_owned(),
        None => String::new(),
        Some(first) => format!(
            "nothing divides {}: choose its scheduler (echo bfq > /sys/block/{first}/queue/scheduler) or put iocost on \
             (io.cost.qos)",
            none.join(", ")
        ),
    };
    Enforced { resource: "disk", by: (!by.is_empty()).then(|| by.join(", ")), note }
}

#[cfg(test)]
mod tests;
