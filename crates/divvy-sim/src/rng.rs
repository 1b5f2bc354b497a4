//! Seeded random numbers: one small generator for each concern, so that one more draw in one leaves the others alone.

/// SplitMix64 (Steele, Lea and Flood 2014): 64 bits of state, period 2^64, equal output on every machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// The generator that starts from `seed`; any seed is as good as any other.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 random bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// A uniform number in [0, 1), a multiple of 2^-53.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
    }

    /// A uniform integer in [0, n), by multiplication: the bias is less than n / 2^64. Zero where `n` is 0.
    pub const fn below(&mut self, n: u64) -> u64 {
        ((self.next_u64() as u128 * n as u128) >> 64) as u64
    }

    /// An exponential variate of mean 1.
    pub fn exponential(&mut self) -> f64 {
        -libm::log(1.0 - self.uniform())
    }
}

/// SplitMix64's output function: a bijection that spreads every bit over all others.
const fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// What random numbers are drawn for. Each has streams of its own, one for each user, source or group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concern {
    /// Thinking times of users: stream i starts from `seed + 7919 * (i + 1)` (the rule of `golden/group_a.json`).
    Think,
    /// Times between arrivals at an open source.
    Arrival,
    /// CPU time asked for.
    Work,
    /// Inactive periods inside a request.
    Gap,
    /// Shares drawn at random.
    Shares,
    /// A policy's own lottery.
    Policy,
}

/// The generator of stream `index` of `concern` in a run seeded with `seed`.
#[must_use]
pub const fn stream(seed: u64, concern: Concern, index: u64) -> SplitMix64 {
    let base = match concern {
        Concern::Think => seed,
        other => mix(seed ^ ((other as u64) << 56)),
    };
    SplitMix64::new(base.wrapping_add(7919u64.wrapping_mul(index.wrapping_add(1))))
}

/// The seed of replication `nr` of a scenario seeded with `seed`; replication 0 is the scenario itself.
#[must_use]
pub const fn replication_seed(seed: u64, nr: u64) -> u64 {
    if nr == 0 { seed } else { mix(seed ^ mix(nr)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_three_numbers_of_seed_42() {
        // golden/lottery.json, splitmix64_seed42_first3.
        let mut rng = SplitMix64::new(42);
        let first = [rng.next_u64(), rng.next_u64(), rng.next_u64()];
        assert_eq!(first, [13_679_457_532_755_275_413, 2_949_826_092_126_892_291, 5_139_283_748_462_763_858]);
    }

    #[test]
    fn streams_of_one_seed_differ() {
        let concerns =
            [Concern::Think, Concern::Arrival, Concern::Work, Concern::Gap, Concern::Shares, Concern::Policy];
        let mut firsts: Vec<u64> =
            concerns.iter().flat_map(|&c| (0..8).map(move |i| stream(5, c, i).next_u64())).collect();
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts.len(), concerns.len() * 8);
        assert_eq!(stream(5, Concern::Think, 0), SplitMix64::new(5 + 7919));
        assert_eq!(replication_seed(5, 0), 5);
        assert_ne!(replication_seed(5, 1), replication_seed(5, 2));
    }
}
