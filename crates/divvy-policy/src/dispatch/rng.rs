//! The generator that every seeded draw of the library comes from.

/// SplitMix64 (Steele, Lea and Flood 2014): a counter with a mixing function. Equal seeds give equal draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// A generator that starts from `seed`; every seed is good.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 random bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `n`, as [`SplitMix64::below_wide`].
    pub const fn below(&mut self, n: u64) -> u64 {
        self.below_wide(n as u128) as u64
    }

    /// A number from `low` to `high`, both included, as [`SplitMix64::below_wide`].
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below_wide(high.saturating_sub(low) as u128 + 1) as u64
    }

    /// A uniform number in [0, 1), a multiple of 2^-53: for workloads, no policy decides by it.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
    }

    /// `floor(next * n / 2^64)`: a number below `n`, uniform but for a bias of at most `n / 2^64`. One draw.
    ///
    /// `n` must be below 2^96, which no sum of weights in this crate reaches; 0 answers 0.
    pub const fn below_wide(&mut self, n: u128) -> u128 {
        let r = self.next_u64() as u128;
        // n = hi * 2^64 + lo, so r * n / 2^64 = r * hi + r * lo / 2^64, and r * hi is an integer.
        let (hi, lo) = (n >> 64, n & u64::MAX as u128);
        r * hi + ((r * lo) >> 64)
    }
}

/// The output function: a bijection that spreads every bit over all others.
#[must_use]
pub const fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_splitmix64() {
        // The published first outputs for seed 0; golden/lottery.json, splitmix64_seed42_first3.
        let mut rng = SplitMix64::new(0);
        assert_eq!([rng.next_u64(), rng.next_u64()], [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
        let mut rng = SplitMix64::new(42);
        let first = [rng.next_u64(), rng.next_u64(), rng.next_u64()];
        assert_eq!(first, [13_679_457_532_755_275_413, 2_949_826_092_126_892_291, 5_139_283_748_462_763_858]);
        assert!((0..1000).all(|_| (3..=5).contains(&rng.between(3, 5)) && rng.below(7) < 7));
    }

    #[test]
    fn below_is_the_high_half_of_the_product() {
        let mut a = SplitMix64::new(9);
        let mut b = a;
        for n in [1u128, 6, 1 << 40, (1 << 64) - 1] {
            let r = u128::from(b.next_u64());
            assert_eq!(a.below_wide(n), (r * n) >> 64);
        }
        // Wider than 64 bits: scaling by a power of two only adds bits at the bottom.
        let mut c = a;
        assert_eq!(a.below_wide(6 << 70) >> 70, c.below_wide(6));
    }
}
