//! What others have done to the cgroups of a tree underneath: controllers switched off, for good or for a moment, and cgroups removed
//! or made again.
//!
//! The kernel tells nobody. So the tree is looked at now and then, and before a client is to have other bounds; what is found is mended
//! with the next [`give`](Tree::give).

use std::os::unix::fs::MetadataExt as _;

use super::leaf::Leaf;
use super::rights::Offers;
use super::room::{
    CPU_WEIGHT, Controller, IO_MAX, IO_WEIGHT, Limit, MEMORY_LOW, MEMORY_MAX, MEMORY_MIN, Parse as _,
};
use super::tree::Tree;
use super::users::WithLeaves;
use super::weights::Knob;
use crate::Result;

/// So many leaves are looked at in one go, each in its turn.
const LOOKED_MAX: usize = 256;
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
            self.upkeep.root_made = true;
            self.note_lost_all();
        }
        let off = self.switched_off();
        for &controller in &off {
            self.switch_on(controller);
        }
        // What could not be had, and can be by now; where it is refused, nothing has come of it.
        let mut come = self.offers.take_up(&Offers::look(&self.ground, &*self.files));
        come.iter().for_each(|&controller| self.switch_on(controller));
        come.retain(|&controller| self.offers.missing(controller).is_none());
        let mut forget = gone || !off.is_empty() || !come.is_empty();
        let all = match whose {
            Whose::One(client) => vec![client],
            Whose::Next => self.next_leaves(),
            Whose::Nobody => Vec::new(),
        };
        for client in all {
            let Some(Some(leaf)) = clients.leaf(client) else { continue };
            if !leaf.is_there() {
                self.note_lost(leaf);
                self.upkeep.found = true;
            } else {
                forget |= !self.has_what_it_was_given(leaf);
            }
        }
        if forget {
            self.forget(clients);
        }
        Ok(std::mem::take(&mut self.upkeep.found) || forget)
    }

    /// Whether all are to be told their bounds once more, since this was last asked.
    pub(crate) fn take_forgotten(&mut self) -> bool {
        std::mem::take(&mut self.upkeep.forgotten)
    }

    /// Whether the root was made again since this was last asked: then the table is to say so.
    pub(crate) fn take_root_made(&mut self) -> bool {
        std::mem::take(&mut self.upkeep.root_made)
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
        let read = |file: &str| self.files.read(&leaf.dir.join(file)).ok();
        let number = |file: &str, due: u64| read(file).and_then(|text| u64::parse(&text).ok()) == Some(due);
        let limit = |file: &str| read(file).and_then(|text| Limit::parse(&text).ok());
        let has = |controller| self.offers.missing(controller).is_none();
        let given = leaf.given;
        // The kernel keeps whole pages.
        let pages = |bytes: u64| bytes / (rustix::param::page_size() as u64).max(1);
        let memory = |file: &str, due: u64| {
            given.stale || matches!(limit(file), Some(Limit::At(kept)) if pages(kept) == pages(due))
        };
        let bounded =
            leaf.ceilings.memory.is_none() || matches!(limit(MEMORY_MAX.name()), Some(Limit::At(_)));
        let throttled = || read(IO_MAX.name()).is_some_and(|text| !text.trim().is_empty());
        let weighs = || {
            let text = read(IO_WEIGHT.name()).unwrap_or_default();
            text.lines().next() == Some(&*format!("default {}", given.weights[0]))
        };
        (leaf.weight == 0 || number(CPU_WEIGHT.name(), leaf.weight))
            && (!has(Controller::Memory)
                || memory(MEMORY_MIN.name(), given.min) && memory(MEMORY_LOW.name(), given.low) && bounded)
            && (!has(Controller::Io)
                || (given.weights[0] == 0 || weighs()) && (leaf.ceilings.disk.is_none() || throttled()))
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
    found: bool,
    forgotten: bool,
    root_made: bool,
}

impl Leaf {
    /// Whether its cgroup is the one that was made, and none of the same name.
    pub(super) fn is_there(&self) -> bool {
        std::fs::metadata(&self.dir).is_ok_and(|dir| dir.ino() == self.inode)
    }
}
