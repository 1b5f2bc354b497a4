//! Weights in proportion to shares, within what the kernel takes.
//!
//! A share is 1 to 1000000, a weight 1 to 10000 (`cpu.weight`) or 2 to 262144 (`cpu.shares`). Only proportions count, so
//! shares are divided by their greatest common divisor and multiplied by the largest number that keeps all of them in
//! range: then they are exact, or off by what the kernel rounds. Where the largest is beyond the range, all are rounded,
//! and the deviation is told.

use divvy_policy::gcd;

/// A file that takes a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knob {
    /// `cpu.weight` of cgroup v2. The kernel computes with `weight * 1024 / 100`, rounded.
    Weight,
    /// `cpu.shares` of cgroup v1. The kernel computes with it as it is.
    Shares,
}

/// Deviations above this are worth a warning, in millionths.
pub const DEVIATION_WARN_PPM: u64 = 1_000;
/// Weights that deviate by more than this are no division by these shares, in millionths.
pub const DEVIATION_MAX_PPM: u64 = 50_000;

impl Knob {
    /// The file's name.
    #[must_use]
    pub const fn file(self) -> &'static str {
        match self {
            Self::Weight => "cpu.weight",
            Self::Shares => "cpu.shares",
        }
    }

    /// The smallest and the largest weight that it takes.
    #[must_use]
    pub const fn range(self) -> (u64, u64) {
        match self {
            Self::Weight => (1, 10_000),
            Self::Shares => (2, 262_144),
        }
    }

    /// The weight of one ordinary process.
    #[must_use]
    pub const fn ordinary(self) -> u64 {
        match self {
            Self::Weight => 100,
            Self::Shares => 1024,
        }
    }

    /// What the kernel computes with where the file says `weight`.
    const fn in_effect(self, weight: u64) -> u64 {
        match self {
            Self::Weight => (weight * 1024 + 50) / 100,
            Self::Shares => weight,
        }
    }

    /// Multiples of this are not rounded by the kernel.
    const fn grain(self) -> u64 {
        match self {
            Self::Weight => 25, // 25 * 1024 / 100 = 256
            Self::Shares => 1,
        }
    }
}

/// How far what a leaf gets by its weight is from what it is due, at the worst, in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Off {
    /// Of the CPU.
    pub cpu: u64,
    /// Of disks that iocost divides, and of those that BFQ does.
    pub disks: [u64; 2],
}

impl Off {
    /// This, around what is `below` off.
    pub(super) fn over(self, below: Self) -> Self {
        let [a, b] = [0, 1].map(|i: usize| self.disks[i].saturating_add(below.disks[i]));
        Self { cpu: self.cpu.saturating_add(below.cpu), disks: [a, b] }
    }

    /// The larger of each.
    pub(super) fn or(self, other: Self) -> Self {
        let [a, b] = [0, 1].map(|i: usize| self.disks[i].max(other.disks[i]));
        Self { cpu: self.cpu.max(other.cpu), disks: [a, b] }
    }
}

/// Weights, one for each share in their order, and how far off they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weights {
    /// What is written.
    pub values: Vec<u64>,
    /// The largest relative deviation of a client's part from what its share asks for, in millionths, rounded up.
    pub deviation_ppm: u64,
}

/// Weights for `knob` in proportion to `shares`, each 1 to 1000000; empty for none.
#[must_use]
pub fn scale(shares: &[u64], knob: Knob) -> Weights {
    let (low, high) = knob.range();
    let unit = shares.iter().fold(0, |unit, &share| gcd(unit, share)).max(1);
    let most = shares.iter().map(|share| share / unit).max().unwrap_or(1).max(1);
    let values: Vec<u64> = if most <= high {
        let factor = high / most;
        let factor = if factor >= knob.grain() { factor - factor % knob.grain() } else { factor };
        shares.iter().map(|share| (share / unit * factor).clamp(low, high)).collect()
    } else {
        shares.iter().map(|share| ((share / unit * high + most / 2) / most).clamp(low, high)).collect()
    };
    let effect: Vec<u64> = values.iter().map(|&weight| knob.in_effect(weight)).collect();
    let deviation_ppm = deviation(shares, &effect);
    Weights { values, deviation_ppm }
}

/// The largest relative deviation of a part by `effect` from that by `shares`, in millionths, rounded up.
pub(super) fn deviation(shares: &[u64], effect: &[u64]) -> u64 {
    let sum = |of: &[u64]| of.iter().map(|&part| u128::from(part)).sum::<u128>();
    let (all_shares, all_effect) = (sum(shares), sum(effect));
    let pairs = shares.iter().zip(effect);
    let off = pairs.map(|(&share, &effect)| {
        // effect / all_effect against share / all_shares, over one denominator.
        let (got, due) = (u128::from(effect) * all_shares, u128::from(share) * all_effect);
        (got.abs_diff(due) * 1_000_000).div_ceil(due.max(1))
    });
    off.max().map_or(0, |ppm| u64::try_from(ppm).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(knob: Knob, shares: &[u64], values: &[u64], deviation_ppm: u64) {
        let weights = scale(shares, knob);
        assert_eq!((weights.values.as_slice(), weights.deviation_ppm), (values, deviation_ppm), "{shares:?}");
    }

    #[test]
    fn shares_in_range_are_exact() {
        // 10000 / 3 = 3333, of which 3325 is a multiple of 25.
        check(Knob::Weight, &[1, 2, 3], &[3325, 6650, 9975], 0);
        check(Knob::Weight, &[10, 20, 30], &[3325, 6650, 9975], 0);
        check(Knob::Weight, &[7], &[10_000], 0);
        check(Knob::Weight, &[1, 400], &[25, 10_000], 0);
        check(Knob::Shares, &[1, 10], &[26_214, 262_140], 0);
        check(Knob::Shares, &[1, 131_072], &[2, 262_144], 0);
        check(Knob::Weight, &[], &[], 0);
    }

    #[test]
    fn what_the_kernel_rounds_is_told() {
        // Factor 1: the kernel makes 10 of 10.24 and 102400 of 102400; due is 10.2397 of 102410.
        // 10 / 102410 against 1 / 10001: 2.34 % less.
        check(Knob::Weight, &[1, 10_000], &[1, 10_000], 23_436);
    }

    #[test]
    fn shares_beyond_the_range_are_rounded_and_told() {
        // 1 would be .01 of a weight: it gets 1, and with it a hundred times what it asked for.
        let weights = scale(&[1, 1_000_000], Knob::Weight);
        assert_eq!(weights.values, [1, 10_000]);
        assert!(weights.deviation_ppm > 90_000_000, "{weights:?}");
        // 2 is the least that cpu.shares takes: 262144 / 1000000 comes to 8 times less.
        let weights = scale(&[1, 1_000_000], Knob::Shares);
        assert_eq!(weights.values, [2, 262_144]);
        assert!((6_000_000..7_000_000).contains(&weights.deviation_ppm), "{weights:?}");
        let weights = scale(&[400_001, 1_000_000], Knob::Weight);
        assert_eq!(weights.values, [4_000, 10_000]);
        assert!(weights.deviation_ppm <= 3, "{weights:?}");
    }

    #[test]
    fn scaling_all_shares_changes_nothing() {
        for knob in [Knob::Weight, Knob::Shares] {
            assert_eq!(scale(&[3, 5, 1000], knob), scale(&[300, 500, 100_000], knob));
        }
    }
}
