//! Seeded random numbers: one small generator for each concern, so that one more draw in one leaves the others alone.

use divvy_policy::dispatch::rng::mix;

pub use divvy_policy::dispatch::rng::SplitMix64;

/// An exponential variate of mean 1.
pub fn exponential(rng: &mut SplitMix64) -> f64 {
    -libm::log(1.0 - rng.uniform())
}

/// The generator of one concern of a live machine: equal seeds and concerns give equal numbers.
pub(crate) const fn of_machine(seed: u64, concern: u64) -> SplitMix64 {
    let mut rng = SplitMix64::new(seed ^ concern.wrapping_mul(0xd1b5_4a32_d192_ed03));
    rng.next_u64();
    rng
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
