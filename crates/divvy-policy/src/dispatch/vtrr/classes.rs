//! Where a share belongs in a queue that is sorted by share, in constant time: one entry for each share value.

use alloc::vec;
use alloc::vec::Vec;

use super::NONE;

/// The largest share that can have a class of its own: three levels of 64 bits.
pub(super) const CLASS_MAX: u32 = (1 << 18) - 1;

/// The last queue node of each share value, and a bitmap of three levels that finds the next value in use.
#[derive(Clone, Debug)]
pub(super) struct Classes {
    tails: Vec<u32>,
    bits: [Vec<u64>; 3],
}

impl Classes {
    pub(super) fn new(max: u32) -> Self {
        let size = max as usize + 1;
        let words = |n: usize| vec![0u64; n.div_ceil(64)];
        let low = words(size);
        let mid = words(low.len());
        let top = words(mid.len());
        Self { tails: vec![NONE; size], bits: [low, mid, top] }
    }

    /// The largest share that has a class.
    pub(super) fn max(&self) -> u64 {
        self.tails.len() as u64 - 1
    }

    /// The last node of a share value, or [`NONE`].
    pub(super) fn tail(&self, share: u64) -> u32 {
        self.tails[share as usize]
    }

    /// Sets the last node of a share value.
    pub(super) fn set_tail(&mut self, share: u64, node: u32) {
        let mut at = share as usize;
        self.tails[at] = node;
        for bits in &mut self.bits {
            let word = &mut bits[at / 64];
            let was = *word;
            if node == NONE {
                *word &= !(1 << (at % 64));
                if *word != 0 {
                    return;
                }
            } else {
                *word |= 1 << (at % 64);
                if was != 0 {
                    return;
                }
            }
            at /= 64;
        }
    }

    /// The last node of the smallest share value in use that is at least `share`; [`NONE`] if there is none.
    pub(super) fn tail_from(&self, share: u64) -> u32 {
        let mut at = share as usize;
        for level in 0..3 {
            let bits = &self.bits[level];
            let word = bits.get(at / 64).map_or(0, |word| word & (u64::MAX << (at % 64)));
            if word != 0 {
                at = at / 64 * 64 + word.trailing_zeros() as usize;
                for bits in self.bits[..level].iter().rev() {
                    at = at * 64 + bits[at].trailing_zeros() as usize;
                }
                return self.tails[at];
            }
            // Nothing in this word: go on with the next one, a level up.
            at = at / 64 + 1;
        }
        NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn finds_what_a_sorted_map_finds() {
        let mut rng = crate::dispatch::rng::SplitMix64::new(5);
        for max in [1u32, 63, 64, 4_095, 70_000, CLASS_MAX] {
            let mut classes = Classes::new(max);
            let mut map = BTreeMap::new();
            for step in 0..4_000u32 {
                let share = 1 + rng.below(max.into());
                if rng.below(5) < 2 {
                    classes.set_tail(share, step);
                    map.insert(share, step);
                } else {
                    classes.set_tail(share, NONE);
                    map.remove(&share);
                }
                let asked = 1 + rng.below(max.into());
                let want = map.range(asked..).next().map_or(NONE, |(_, &node)| node);
                assert_eq!(classes.tail_from(asked), want, "max {max}, share {asked}");
            }
        }
    }
}
