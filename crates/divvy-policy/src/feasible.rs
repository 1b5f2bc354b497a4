//! Feasible shares: what clients can have of several CPUs when each can use only so many at once.
//!
//! **Problem.** On 2 CPUs, shares 1:1:6 ask for 1.5 CPUs for one thread. It can use one; dividing as if it used more
//! leaves the machine idle.
//!
//! **Idea.** Water-filling: whoever asks for more than it can use gets just that, and the others divide what is left in
//! proportion to their shares, as Surplus Fair Scheduling does for weights.
//!
//! **Terms.** A client of *width* w can use w CPUs at once. Its share is *infeasible* if `share * cpus > w * shares`.
//!
//! **Algorithm.** Sort by share per width, largest first; cap while infeasible among those that are left, each time
//! with the CPUs and shares that are left.
//!
//! **Properties.** (tests) `feasible_shares_are_kept`, `infeasible_ones_get_what_they_can_use`,
//! `nothing_is_left_that_somebody_could_use`.

use alloc::vec::Vec;

use crate::{CpuLimit, Share};

/// One client's claim on the CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its share.
    pub share: Share,
    /// CPUs that it can use at once; 0 counts as 1.
    pub width: u32,
}

/// What a client can have, as an exact fraction of one CPU: `numerator / denominator`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTime {
    /// CPUs, times the denominator.
    pub numerator: u128,
    /// Never 0.
    pub denominator: u128,
}

impl CpuTime {
    /// The fraction as a float, for printing only.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }
}

/// Divides `cpus` CPUs among `claims`: for each, in the same order, the CPUs that it can have. Their sum is `cpus`, or
/// the sum of the widths if that is less. Cost: O(n log n).
#[must_use]
pub fn water_fill(claims: &[Claim], cpus: u32) -> Vec<CpuTime> {
    let width = |c: &Claim| u128::from(c.width.max(1));
    let share = |c: &Claim| u128::from(c.share.get());
    let mut order: Vec<usize> = (0..claims.len()).collect();
    // Largest share per width first, by cross-multiplication; then by index.
    order.sort_by(|&a, &b| {
        let (ca, cb) = (&claims[a], &claims[b]);
        (share(cb) * width(ca)).cmp(&(share(ca) * width(cb))).then(a.cmp(&b))
    });
    let mut shares: u128 = claims.iter().map(share).sum();
    let mut cpus = u128::from(cpus);
    let mut result = alloc::vec![CpuTime { numerator: 0, denominator: 1 }; claims.len()];
    let mut feasible = 0;
    for &i in &order {
        let c = &claims[i];
        if share(c) * cpus <= width(c) * shares {
            break;
        }
        result[i] = CpuTime { numerator: width(c).min(cpus), denominator: 1 };
        cpus -= width(c).min(cpus);
        shares -= share(c);
        feasible += 1;
    }
    for &i in &order[feasible..] {
        result[i] = CpuTime { numerator: share(&claims[i]) * cpus, denominator: shares };
    }
    result
}

/// As [`water_fill`], where a claim may have a limit beside its width: it gets the lesser of the two, and the others what
/// that leaves.
#[must_use]
pub fn water_fill_limited(claims: &[(Claim, Option<CpuLimit>)], cpus: u32) -> Vec<CpuTime> {
    if claims.iter().all(|(_, limit)| limit.is_none()) {
        return water_fill(&claims.iter().map(|&(claim, _)| claim).collect::<Vec<_>>(), cpus);
    }
    // The same in millionths of CPUs, of which 4096 CPUs have as many as a width can say.
    const PPM: u32 = 1_000_000;
    let scaled = |&(claim, limit): &(Claim, Option<CpuLimit>)| {
        let width = claim.width.max(1).saturating_mul(PPM);
        let limit = limit.map_or(u64::MAX, CpuLimit::ppm);
        Claim { width: u32::try_from(limit).map_or(width, |limit| limit.min(width)), ..claim }
    };
    let parts = water_fill(&claims.iter().map(scaled).collect::<Vec<_>>(), cpus.saturating_mul(PPM));
    let in_cpus = |part: CpuTime| CpuTime { denominator: part.denominator * u128::from(PPM), ..part };
    parts.into_iter().map(in_cpus).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fill(shares: &[(u64, u32)], cpus: u32) -> Vec<f64> {
        let claims: Vec<Claim> =
            shares.iter().map(|&(s, width)| Claim { share: Share::new(s).unwrap(), width }).collect();
        water_fill(&claims, cpus).iter().map(|t| t.as_f64()).collect()
    }

    #[test]
    fn limits_leave_the_rest_to_the_others() {
        let check = |claims: &[(u64, u32, &str)], cpus, parts: &[f64]| {
            let claim = |&(share, width, limit): &(u64, u32, &str)| {
                (Claim { share: Share::new(share).unwrap(), width }, limit.parse().ok())
            };
            let filled = water_fill_limited(&claims.iter().map(claim).collect::<Vec<_>>(), cpus);
            let filled: Vec<f64> = filled.iter().map(|part| part.as_f64()).collect();
            assert_eq!(filled, parts, "{claims:?}");
        };
        // 3:1:1 with 30 % for the first: the others have 35 % each.
        check(&[(3, 1, "30%"), (1, 1, ""), (1, 1, "")], 1, &[0.3, 0.35, 0.35]);
        // A limit above the share changes nothing; one above the width, nothing either.
        check(&[(1, 1, "80%"), (1, 1, "")], 1, &[0.5, 0.5]);
        check(&[(1, 1, "1.5"), (1, 1, ""), (6, 4, "")], 2, &[0.25, 0.25, 1.5]);
        // Limits that leave CPUs idle.
        check(&[(1, 1, "25%"), (1, 3, "1.5")], 4, &[0.25, 1.5]);
        // What one leaves the next may not take either.
        check(&[(2, 4, "50%"), (2, 4, "60%"), (1, 4, "")], 4, &[0.5, 0.6, 2.9]);
    }

    #[test]
    fn feasible_shares_are_kept() {
        assert_eq!(fill(&[(1, 1), (2, 1), (3, 1)], 1), [1.0 / 6.0, 2.0 / 6.0, 3.0 / 6.0]);
        // 3 of 8 shares of 2 CPUs are 3/4 of one: feasible.
        assert_eq!(fill(&[(1, 1), (2, 1), (3, 1), (2, 1)], 2), [0.25, 0.5, 0.75, 0.5]);
    }

    #[test]
    fn infeasible_ones_get_what_they_can_use() {
        assert_eq!(fill(&[(1, 1), (1, 1), (6, 1)], 2), [0.5, 0.5, 1.0]);
        // With two threads the big one can have its 1.5 CPUs.
        assert_eq!(fill(&[(1, 1), (1, 1), (6, 2)], 2), [0.25, 0.25, 1.5]);
        assert_eq!(fill(&[(1, 1), (2, 1)], 4), [1.0, 1.0]);
        assert!(fill(&[], 4).is_empty());
    }

    proptest! {
        #[test]
        fn nothing_is_left_that_somebody_could_use(
            claims in prop::collection::vec((1u64..1000, 1u32..5), 1..30), cpus in 1u32..64,
        ) {
            let got = fill(&claims, cpus);
            let widths: u32 = claims.iter().map(|c| c.1).sum();
            let sum: f64 = got.iter().sum();
            prop_assert!((sum - f64::from(cpus.min(widths))).abs() < 1e-9);
            // No client gets more than it can use, and those below that get equal amounts for each share.
            let mut rate: Option<f64> = None;
            for (&(share, width), &cpu) in claims.iter().zip(&got) {
                prop_assert!(cpu <= f64::from(width) + 1e-9);
                if cpu < f64::from(width) - 1e-9 {
                    let r = cpu / share as f64;
                    prop_assert!(rate.is_none_or(|rate| (rate - r).abs() < 1e-9));
                    rate = Some(r);
                }
            }
            // Nobody who is capped would have got less for each share than the others.
            if let Some(rate) = rate {
                for (&(share, _), &cpu) in claims.iter().zip(&got) {
                    prop_assert!(cpu / share as f64 <= rate + 1e-9);
                }
            }
        }
    }
}
