//! What others have done to the cgroups of a tree underneath: controllers switched off, for good or for a moment, and cgroups removed
//! or made again.
//!
//! The kernel tells nobody. So the tree is looked at now and then, and before a client is to have other bounds; what is found is mended
//! with the next [`give`](Tree::give).

use std::os::unix::fs::MetadataExt as _;

use super::leaf::Leaf;
use super::rights::Offers;
use super::room::{
    Attribute, CPU_MAX, CPU_WEIGHT, CPUSET_CPUS, Controller, CpuMax, DeviceWeight, IO_BFQ_WEIGHT, IO_MAX,
    IO_WEIGHT, IoWeights, Limit, MEMORY_LOW, MEMORY_MAX, MEMORY_MIN,
};
use super::tree::Tree;
use super::users::WithLeaves;
use super::weights::Knob;
use crate::Result;

/// So many leaves are looked at in one go, each in its turn.
const LOOKED_MAX: usize = 64;
const CONTROL: &str = "cgroup.subtree_control";

/// Whose leaves are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// This client's.
    One(usize),
    /// Those whose turn it is.
    Next,
    /// Nobody's: only what is around them.
    Nobody,
}

impl Tree {
    /// Looks whether the tree is as it was made; whether there is something for [`give`](Tree::give) to mend.
    ///
    /// # Errors
    /// A root that is gone and cannot be made again.
    pub(crate) fn look_underneath(&mut self, whose: Whose, clients: &mut impl WithLeaves) -> Result<bool> {
        if !self.purpose.keeps() {
            return Ok(false);
        }
        let gone = std::fs::metadata(&self.root).is_err();
        if gone {
            self.make(self.cpus)?;
            self.note_lost_all();
        }
        let off = self.switched_off();
        for &controller in &off {
            self.switch_on(controller);
        }
        let come = self.take_up();
        self.upkeep.to_be_noted |= gone || come;
        let mut forget = gone || come || !off.is_empty();
        let all = match whose {
            Whose::One(client) => vec![client],
            Whose::Next => self.next_leaves(),
            Whose::Nobody => Vec::new(),
        };
        let mut lost = false;
        for client in all {
            let Some(Some(leaf)) = clients.leaf(client) else { continue };
            if leaf.is_there() {
                forget |= !self.has_what_it_was_given(leaf);
            } else {
                self.note_lost(leaf);
                lost = true;
            }
        }
        if forget {
            self.forget(clients);
        }
        Ok(lost || forget)
    }

    /// Puts on what could not be had, and can be by now; whether anything came of it.
    fn take_up(&mut self) -> bool {
        if self.ground.knob != Knob::Weight || !self.offers.lacks_any() {
            return false;
        }
        let come = self.offers.take_up(&Offers::look(&self.ground, &*self.files));
        come.iter().for_each(|&controller| self.switch_on(controller));
        come.into_iter().any(|controller| self.offers.missing(controller).is_none())
    }

    /// Whether all are to be told their bounds once more, since this was last asked.
    pub(crate) fn take_forgotten(&mut self) -> bool {
        std::mem::take(&mut self.upkeep.forgotten)
    }

    /// Whether the table is to say something else of the tree since this was last asked: its root was made again, or more controllers
    /// are on because of us.
    pub(crate) fn take_to_be_noted(&mut self) -> bool {
        std::mem::take(&mut self.upkeep.to_be_noted)
    }

    /// Controllers that the leaves were to have.
    fn controllers(&self) -> impl Iterator<Item = Controller> + '_ {
        Controller::ALL.into_iter().filter(|&controller| match controller {
            Controller::Cpu => self.ground.knob == Knob::Weight,
            other => self.offers.missing(other).is_none(),
        })
    }

    fn switched_off(&self) -> Vec<Controller> {
        if self.ground.knob != Knob::Weight {
            return Vec::new(); // Each has a hierarchy of its own there.
        }
        let Ok(on) = self.files.read(&self.root.join(CONTROL)) else { return Vec::new() };
        self.controllers().filter(|c| !on.split_whitespace().any(|word| word == c.name())).collect()
    }

    /// Puts a controller on again for all. Where it is refused, that is what there is to tell of it.
    fn switch_on(&mut self, controller: Controller) {
        if controller == Controller::Cpu {
            let _ = self.put_cpu_on().and_then(|()| self.weigh_ours());
        } else {
            self.put_on(controller);
        }
        let text = format!("+{controller}");
        for around in self.users.values() {
            let _ = self.write(&around.dir.join(CONTROL), &text);
        }
    }

    /// Clients whose turn it is to be looked at.
    fn next_leaves(&mut self) -> Vec<usize> {
        let all = self.clients_with_leaves();
        if all.is_empty() {
            return all;
        }
        let from = self.upkeep.looked % all.len();
        self.upkeep.looked = from + LOOKED_MAX;
        all.iter().cycle().skip(from).take(LOOKED_MAX.min(all.len())).copied().collect()
    }

    /// Whether the files of a leaf say what was written into them last; one that is not there does not.
    fn has_what_it_was_given(&self, leaf: &Leaf) -> bool {
        if self.ground.knob != Knob::Weight {
            return true;
        }
        let has = |controller| self.offers.missing(controller).is_none();
        let (given, most) = (leaf.given, leaf.ceilings);
        let weighs = |file: &Attribute<IoWeights, DeviceWeight>, due: u64| {
            due == 0 || self.read(&leaf.dir, file).is_some_and(|weights| weights.default == due)
        };
        let keeps = |file: &Attribute<Limit>, due: u64| {
            self.read(&leaf.dir, file).is_some_and(|kept| is_kept(kept, due))
        };
        let throttles = |rate: u64| {
            let rate = Limit::At(rate);
            let disks = self.read(&leaf.dir, &IO_MAX).unwrap_or_default();
            !disks.is_empty() && disks.values().all(|max| (max.rbps, max.wbps) == (rate, rate))
        };
        let cpu = leaf.weight == 0 || self.read(&leaf.dir, &CPU_WEIGHT) == Some(leaf.weight);
        let quota = leaf.limit.is_none_or(|limit| self.read(&leaf.dir, &CPU_MAX) == Some(CpuMax::of(limit)));
        let protects = given.stale || keeps(&MEMORY_MIN, given.min) && keeps(&MEMORY_LOW, given.low);
        let memory = || protects && most.memory.is_none_or(|bytes| keeps(&MEMORY_MAX, bytes));
        let [iocost, bfq] = given.weights;
        let io =
            || weighs(&IO_WEIGHT, iocost) && weighs(&IO_BFQ_WEIGHT, bfq) && most.disk.is_none_or(throttles);
        let cpus = || most.cpus.is_none_or(|cpus| self.read(&leaf.dir, &CPUSET_CPUS) == Some(cpus));
        cpu && quota
            && (!has(Controller::Memory) || memory())
            && (!has(Controller::Io) || io())
            && (!has(Controller::Cpuset) || cpus())
    }

    /// Takes nothing for written: all is written again.
    fn forget(&mut self, clients: &mut impl WithLeaves) {
        self.given.forget();
        for around in self.users.values_mut() {
            around.given.forget();
            around.weight = 0;
        }
        for client in self.clients_with_leaves() {
            if let Some(Some(leaf)) = clients.leaf(client) {
                leaf.given.forget();
                leaf.weight = 0;
            }
        }
        self.note_all_stale();
        self.upkeep.forgotten = true;
    }
}

/// What was found, and is to be told.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    /// How many leaves were looked at, from the first on.
    looked: usize,
    forgotten: bool,
    to_be_noted: bool,
}

/// Whether the kernel keeps a limit of so many bytes: it does in whole pages, and what is more than any machine has is none.
fn is_kept(kept: Limit, due: u64) -> bool {
    let pages = |bytes: u64| bytes / (rustix::param::page_size() as u64).max(1);
    match kept {
        Limit::At(kept) => pages(kept) == pages(due),
        Limit::Max => due > u64::MAX / 4,
    }
}

impl Leaf {
    /// Whether its cgroup is the one that was made, and none of the same name.
    pub(super) fn is_there(&self) -> bool {
        std::fs::metadata(&self.dir).is_ok_and(|dir| dir.ino() == self.inode)
    }
}
