//! Storage by index whose slots are used again, with ids that are not.

use alloc::vec::Vec;

/// Slots of one block. Blocks never move, so growing costs one block and not a copy of everything.
const BLOCK: usize = 1024;
/// No slot.
pub(crate) const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Slot<T> {
    /// How often the slot was used before. An id is a slot and a generation, so an id is never given twice.
    generation: u32,
    next_free: u32,
    value: Option<T>,
}

/// Values by `u32` index.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Slab<T> {
    blocks: Vec<Vec<Slot<T>>>,
    first_free: u32,
    len: u32,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { blocks: Vec::new(), first_free: NONE, len: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether one more value has a place: indices end one below [`NONE`].
    pub(crate) fn has_room(&self, wanted: usize) -> bool {
        self.len() + wanted < NONE as usize && self.slots() + wanted < NONE as usize
    }

    fn slots(&self) -> usize {
        self.blocks.last().map_or(0, |last| (self.blocks.len() - 1) * BLOCK + last.len())
    }

    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        self.blocks.get(index as usize / BLOCK)?.get(index as usize % BLOCK)
    }

    fn slot_mut(&mut self, index: u32) -> &mut Slot<T> {
        &mut self.blocks[index as usize / BLOCK][index as usize % BLOCK]
    }

    /// Puts `value` into a free slot. The caller asked [`Slab::has_room`] first.
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        self.len += 1;
        if self.first_free != NONE {
            let index = self.first_free;
            let slot = self.slot_mut(index);
            let next = slot.next_free;
            slot.value = Some(value);
            self.first_free = next;
            return index;
        }
        let index = self.slots();
        if index.is_multiple_of(BLOCK) {
            self.blocks.push(Vec::with_capacity(BLOCK));
        }
        let slot = Slot { generation: 0, next_free: NONE, value: Some(value) };
        self.blocks[index / BLOCK].push(slot);
        u32::try_from(index).expect("has_room was asked")
    }

    /// Takes the value out of slot `index`. A slot whose generations are used up is left empty for good.
    pub(crate) fn remove(&mut self, index: u32) -> T {
        let free = self.first_free;
        let slot = self.slot_mut(index);
        let value = slot.value.take().expect("only live slots are removed");
        if slot.generation < u32::MAX {
            slot.generation += 1;
            slot.next_free = free;
            self.first_free = index;
        }
        self.len -= 1;
        value
    }

    pub(crate) fn generation(&self, index: u32) -> u32 {
        self.slot(index).map_or(0, |slot| slot.generation)
    }

    /// The index, where slot and generation are those of a value that lives.
    pub(crate) fn find(&self, index: u32, generation: u32) -> Option<u32> {
        let slot = self.slot(index)?;
        (slot.generation == generation && slot.value.is_some()).then_some(index)
    }

    /// Live values with their indices, in the order of the indices.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let slots = self.blocks.iter().flatten();
        slots.enumerate().filter_map(|(i, slot)| slot.value.as_ref().map(|value| (i as u32, value)))
    }
}

impl<T> core::ops::Index<u32> for Slab<T> {
    type Output = T;
    fn index(&self, index: u32) -> &T {
        let slot = &self.blocks[index as usize / BLOCK][index as usize % BLOCK];
        slot.value.as_ref().expect("an index inside the market names a live value")
    }
}

impl<T> core::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, index: u32) -> &mut T {
        self.slot_mut(index).value.as_mut().expect("an index inside the market names a live value")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_used_again_and_an_id_is_not() {
        let mut slab = Slab::new();
        let a = slab.insert('a');
        let old = slab.generation(a);
        assert_eq!(slab.remove(a), 'a');
        let b = slab.insert('b');
        assert_eq!(a, b);
        assert_eq!(slab.find(a, old), None);
        assert_eq!(slab.find(b, slab.generation(b)), Some(b));
        assert_eq!(slab.find(7, 0), None);
    }

    #[test]
    fn blocks_are_crossed() {
        let mut slab = Slab::new();
        let n = 3 * BLOCK as u32 + 1;
        for i in 0..n {
            assert_eq!(slab.insert(i), i);
        }
        assert!((0..n).all(|i| slab[i] == i));
        assert_eq!(slab.iter().count(), slab.len());
    }
}
