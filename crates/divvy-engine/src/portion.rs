//! Shares of a policy for values that come from outside: a market's, that are fractions and change at any moment.
//!
//! **Problem.** A gate's cycle is the sum of all shares times a quantum. Fractions like 1000/3 and 500, told apart to a
//! thousandth, would make cycles of minutes if each part of a thousand were a quantum; and if the parts were made anew
//! whenever somebody comes, wakes or sleeps, everybody's share would change each time.
//!
//! **Idea.** Under `exact`, a share is a *time*: [`SHARE_TIME`], 10 ns, of a cycle whose length is given
//! ([`CYCLE`], or [`TURN`] for each client where there are many). All that is rounded is 10 ns of a cycle, so a share is
//! right to 0.1 % down to a quota of 10 us. What a value is worth in shares (the *rate*) stays as it is while the
//! cycle is between half and twice its length: if one user's tasks fall asleep, nobody else's shares change.
//!
//! Policies that count in whole quanta get [`PARTS`] shares in all: right to 0.1 % of the whole, with cycles as long as that
//! makes them. Dispatchers, which know no cycle, get [`PARTS_NO_CYCLE`].

use divvy_policy::{Cycle, Nanos, Share};

use crate::policies::{GateSpec, SpecError};

/// CPU time of one share under `exact`.
pub const SHARE_TIME: Nanos = Nanos(10);
/// The length of a cycle of few clients: 200 ms, of which a hand-over (30 us) is 0.02 %.
pub const CYCLE: Nanos = Nanos::from_millis(200);
/// CPU time that a client has in one go on average, at the least: cycles of more clients are longer.
pub const TURN: Nanos = Nanos::from_millis(4);
/// All shares together under a gate that counts in quanta.
pub const PARTS: u64 = 1000;
/// All shares together under a dispatcher.
pub const PARTS_NO_CYCLE: u64 = 1_000_000;

/// How values become shares.
#[derive(Clone, Debug)]
pub struct Portions {
    whole: Whole,
    /// So many shares for so much value.
    rate: Option<(u64, u128)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whole {
    /// Shares are times of a cycle on so many CPUs.
    Cycle { cpus: u32 },
    /// Shares are parts of so many.
    Parts(u64),
}

impl Portions {
    /// For the policy of `spec`, which is changed to take such shares.
    ///
    /// # Errors
    /// [`SpecError`] where there is no such policy.
    pub fn new(spec: &mut GateSpec) -> Result<Self, SpecError> {
        let whole = match spec.parse()?.info().cycle {
            Cycle::Given => {
                spec.share_ns = Some(SHARE_TIME.0);
                Whole::Cycle { cpus: spec.cpus.max(1) }
            }
            Cycle::Quanta => Whole::Parts(PARTS),
            Cycle::None => Whole::Parts(PARTS_NO_CYCLE),
        };
        Ok(Self { whole, rate: None })
    }

    /// All shares together for so many clients.
    fn target(&self, clients: usize) -> u64 {
        match self.whole {
            Whole::Cycle { cpus } => {
                // Of a cycle of C on k CPUs, a client has C * k / n on average.
                let all =
                    (CYCLE.0.saturating_mul(u64::from(cpus))).max(TURN.0.saturating_mul(clients as u64));
                all / SHARE_TIME.0
            }
            Whole::Parts(parts) => parts.max(clients as u64),
        }
    }

    /// The share of one of so many clients who are worth the same: for one of whom that is not known yet. With a share of next to
    /// nothing it would owe whatever it used until then.
    #[must_use]
    pub fn usual(&self, clients: usize) -> Share {
        let share = self.target(clients) / clients.max(1) as u64;
        Share::new(share.clamp(1, Share::MAX.get())).unwrap_or(Share::ONE)
    }

    /// Takes in what all that compete are worth together, and how many they are. Says whether a value is worth another
    /// share from now on: then everybody's changes.
    pub fn set_whole(&mut self, sum: u128, clients: usize) -> bool {
        if sum == 0 {
            return false;
        }
        let target = self.target(clients);
        let keeps = match self.whole {
            // Parts that are few are made anew each time: half of them would be half as exact. Where clients are as many, a
            // share is one part more or less anyway.
            Whole::Parts(parts) if clients as u64 <= parts => self.rate == Some((target, sum)),
            Whole::Parts(_) | Whole::Cycle { .. } => self.rate.is_some_and(|rate| {
                let now = at_rate(rate, sum);
                now >= u128::from(target / 2) && now <= u128::from(target) * 2
            }),
        };
        if !keeps {
            self.rate = Some((target, sum));
        }
        !keeps
    }

    /// The share for a value, to the nearest; at least one.
    #[must_use]
    pub fn share(&self, value: u128) -> Share {
        let Some((shares, of)) = self.rate else { return Share::ONE };
        let share = at_rate((shares.saturating_mul(2), of), value).div_ceil(2);
        let share = u64::try_from(share).unwrap_or(u64::MAX).clamp(1, Share::MAX.get());
        Share::new(share).unwrap_or(Share::ONE)
    }
}

/// What `value` is worth in shares, rounded down.
fn at_rate((shares, of): (u64, u128), value: u128) -> u128 {
    match value.checked_mul(u128::from(shares)) {
        Some(product) => product / of,
        // Values of 2^64 and more: what is cut off is less than one in 2^32.
        None => (value >> 32).saturating_mul(u128::from(shares)) / (of >> 32).max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn portions(policy: &str, cpus: u32) -> Portions {
        let mut spec = GateSpec { policy: policy.into(), cpus, ..GateSpec::default() };
        let portions = Portions::new(&mut spec).unwrap();
        assert_eq!(spec.share_ns, (policy == "exact").then_some(10));
        assert!(spec.make().is_ok());
        portions
    }

    fn shares(portions: &Portions, values: &[u128]) -> Vec<u64> {
        values.iter().map(|&v| portions.share(v).get()).collect()
    }

    #[test]
    fn one_whose_value_is_not_known_has_an_equal_part() {
        let usual = |policy, n: usize| portions(policy, 1).usual(n).get();
        assert_eq!([0, 1, 4, 100].map(|n| usual("exact", n)), [20_000_000, 20_000_000, 5_000_000, 400_000]);
        assert_eq!([1, 4, 5000].map(|n| usual("alps", n)), [1000, 250, 1]);
    }

    #[test]
    fn the_papers_example_in_shares_of_10_ns() {
        let mut p = portions("exact", 1);
        // In 2^-32 base tickets: 1000/3, 2000/3 twice, 0 for B3.
        let third = |n: u128| ((n * 1000) << 32) / 3;
        assert!(p.set_whole(2000 << 32, 4));
        // 200 ms are 20,000,000 shares.
        assert_eq!(shares(&p, &[third(1), third(2)]), [3_333_333, 6_666_667]);
        // B3 wakes: the sum is as before, and so is everybody's rate.
        assert!(!p.set_whole(2000 << 32, 5));
        assert_eq!(shares(&p, &[third(1), 500 << 32]), [3_333_333, 5_000_000]);
        // All of A falls asleep: half of the cycle, at the same rate; then all but B1, and the rate is another.
        assert!(!p.set_whole(1000 << 32, 3));
        assert!(p.set_whole(999 << 32, 3));
        assert_eq!(p.share(999 << 32).get(), 20_000_000);
        assert!(!p.set_whole(0, 0));
    }

    #[test]
    fn cycles_of_many_clients_are_longer_and_those_of_many_cpus_hold_more() {
        let mut p = portions("exact", 1);
        p.set_whole(500, 500);
        // 4 ms each: 2 s.
        assert_eq!(p.share(1).get(), 400_000);
        let mut p = portions("exact", 8);
        p.set_whole(500, 500);
        assert_eq!(p.share(1).get(), 400_000, "250 ms on each CPU");
        p.set_whole(1_000_000, 2);
        assert_eq!(p.share(500_000).get(), 80_000_000);
    }

    #[test]
    fn what_is_worth_next_to_nothing_has_a_share_and_what_is_worth_more_than_fits_is_cut() {
        let mut p = portions("exact", 1);
        assert_eq!(p.share(7), Share::ONE, "before anybody's value is known");
        p.set_whole(u128::from(u64::MAX) << 40, 2);
        assert_eq!(shares(&p, &[0, 1, u128::from(u64::MAX) << 39]), [1, 1, 10_000_000]);
        let mut p = portions("exact", 4096);
        p.set_whole(1, 1);
        assert_eq!(p.share(1), Share::MAX);
    }

    #[test]
    fn other_policies_get_a_thousand_parts() {
        let mut p = portions("alps", 1);
        assert!(p.set_whole(3, 3));
        assert_eq!(p.share(1).get(), 333);
        assert!(p.set_whole(4, 4));
        assert_eq!(p.share(1).get(), 250);
        assert!(!p.set_whole(4, 4));
        let mut p = portions("stride", 1);
        p.set_whole(3, 3);
        assert_eq!(p.share(1).get(), 333_333);
    }

    #[test]
    fn where_clients_are_as_many_as_parts_nobody_elses_share_changes_with_one() {
        let mut p = portions("alps", 1);
        assert!(p.set_whole(2000, 2000));
        assert!(!p.set_whole(1999, 1999), "one has left");
        assert_eq!(shares(&p, &[1, 3]), [1, 3]);
        assert!(!p.set_whole(900, 1001));
        assert!(p.set_whole(450, 1001), "less than half of the parts");
        assert!(p.set_whole(449, 1000) && p.set_whole(448, 999), "few are as exact as they can be");
    }
}
