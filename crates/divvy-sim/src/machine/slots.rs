//! The clients that are there now, in a table whose size does not grow with those that have left.

use std::collections::VecDeque;

use divvy_policy::{ClientId, Nanos};

/// No slot.
pub(super) const NONE: u32 = u32::MAX;
/// The id was there and never comes back.
const GONE: u32 = u32::MAX - 1;

/// One client that is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub client: ClientId,
    /// What is left of its burst; `Nanos::MAX` at the start of an endless one.
    pub remaining: Nanos,
    pub service: Nanos,
    pub tag: u32,
    /// The CPU that it runs on, or `NONE`.
    pub cpu: u32,
    pub runnable: bool,
    /// Stopped from outside.
    pub stopped: bool,
}

/// Clients by id and by slot. Ids are looked up in a window that begins at the oldest client still there, so memory
/// follows the number of ids between the oldest and the youngest, not the number that ever came.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    unused: Vec<u32>,
    window: VecDeque<u32>,
    base: u32,
}

impl Slots {
    /// The slot of `client`, if it is there.
    #[inline]
    pub fn find(&self, client: ClientId) -> Option<u32> {
        let index = client.0.checked_sub(self.base)? as usize;
        self.window.get(index).copied().filter(|&slot| slot < GONE)
    }

    #[inline]
    pub fn get(&mut self, slot: u32) -> &mut Slot {
        &mut self.slots[slot as usize]
    }

    /// Adds a client that is not there; false if the id was used before.
    pub fn insert(&mut self, client: ClientId, tag: u32) -> bool {
        let Some(index) = client.0.checked_sub(self.base) else { return false };
        let index = index as usize;
        if self.window.len() <= index {
            self.window.resize(index + 1, NONE);
        }
        if self.window[index] != NONE {
            return false;
        }
        let entry = Slot {
            client,
            remaining: Nanos::ZERO,
            service: Nanos::ZERO,
            tag,
            cpu: NONE,
            runnable: false,
            stopped: false,
        };
        self.window[index] = if let Some(slot) = self.unused.pop() {
            self.slots[slot as usize] = entry;
            slot
        } else {
            self.slots.push(entry);
            (self.slots.len() - 1) as u32
        };
        true
    }

    /// Removes the client in `slot`.
    pub fn remove(&mut self, slot: u32) {
        let client = self.slots[slot as usize].client;
        self.window[(client.0 - self.base) as usize] = GONE;
        self.unused.push(slot);
        while self.window.front() == Some(&GONE) {
            self.window.pop_front();
            self.base += 1;
        }
    }

    /// How many clients are there.
    pub fn len(&self) -> usize {
        self.slots.len() - self.unused.len()
    }

    /// Entries of both tables.
    pub fn nr_entries(&self) -> usize {
        self.slots.len() + self.window.len()
    }

    /// Every client that is there, by id.
    pub fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.window.iter().filter(|&&slot| slot < GONE).map(|&slot| &self.slots[slot as usize])
    }
}
