//! Queues of clients without allocation per move: doubly linked lists over table slots.

use alloc::vec;
use alloc::vec::Vec;

use super::dispatcher::{NONE, Slot};

/// Several queues that share one set of links: a slot is in at most one of them. Every operation is O(1).
#[derive(Clone, Debug)]
pub(super) struct Queues {
    /// (previous, next) of each slot.
    links: Vec<(u32, u32)>,
    /// (first, last) of each queue.
    ends: Vec<(u32, u32)>,
}

impl Queues {
    /// `nr_queues` empty queues.
    pub(super) fn new(nr_queues: usize) -> Self {
        Self { links: Vec::new(), ends: vec![(NONE, NONE); nr_queues] }
    }

    /// The first slot of `queue`, or [`NONE`].
    pub(super) fn first(&self, queue: usize) -> Slot {
        self.ends[queue].0
    }

    /// The slot behind `slot`, or [`NONE`].
    pub(super) fn next(&self, slot: Slot) -> Slot {
        self.links[slot as usize].1
    }

    /// Appends `slot`, which must be in no queue.
    pub(super) fn push_back(&mut self, queue: usize, slot: Slot) {
        if self.links.len() <= slot as usize {
            self.links.resize(slot as usize + 1, (NONE, NONE));
        }
        let last = self.ends[queue].1;
        self.links[slot as usize] = (last, NONE);
        match last {
            NONE => self.ends[queue].0 = slot,
            _ => self.links[last as usize].1 = slot,
        }
        self.ends[queue].1 = slot;
    }

    /// Takes `slot` out of `queue`, which must hold it.
    pub(super) fn remove(&mut self, queue: usize, slot: Slot) {
        let (previous, next) = self.links[slot as usize];
        match previous {
            NONE => self.ends[queue].0 = next,
            _ => self.links[previous as usize].1 = next,
        }
        match next {
            NONE => self.ends[queue].1 = previous,
            _ => self.links[next as usize].0 = previous,
        }
    }
}
