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
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// `floor(next * n / 2^64)`: a number below `n`, uniform but for a bias of at most `n / 2^64`. One draw.
    ///
    /// `n` must be below 2^96, which no sum of weights in this crate reaches; 0 answers 0.
    pub const fn below(&mut self, n: u128) -> u128 {
        let r = self.next_u64() as u128;
        // n = hi * 2^64 + lo, so r * n / 2^64 = r * hi + r * lo / 2^64, and r * hi is an integer.
        let (hi, lo) = (n >> 64, n & u64::MAX as u128);
        r * hi + ((r * lo) >> 64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_is_the_high_half_of_the_product() {
        let mut a = SplitMix64::new(9);
        let mut b = a;
        for n in [1u128, 6, 1 << 40, (1 << 64) - 1] {
            let r = u128::from(b.next_u64());
            assert_eq!(a.below(n), (r * n) >> 64);
        }
        // Wider than 64 bits: scaling by a power of two only adds bits at the bottom.
        let mut c = a;
        assert_eq!(a.below(6 << 70) >> 70, c.below(6));
    }
}
