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

use crate::Share;

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
