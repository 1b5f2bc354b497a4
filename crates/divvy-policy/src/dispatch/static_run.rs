//! Whole cycles of WRR, WFQ and VTRR over clients that never block, for studies of millions of share assignments.
//!
//! **Problem.** Figures 1 and 2 of the VTRR paper are 952 million scheduling decisions.
//! **Idea.** With quanta that are always used up, and shares that do not change, each algorithm is a loop over a few
//! integers. The state recurs after as many quanta as the sum of shares, so that one cycle tells all.
//! **Terms.** Errors are integers over the sum of shares `S`: `W * S - t * s` after `t` quanta, `W` of them the client's.
//! **Algorithm.** Clients are sorted by falling share (WRR's and VTRR's order, and WFQ's order of ties). An error falls
//! while a client waits and rises while it runs, so only the client that runs is looked at, before and after.
//! WRR has a closed form for each turn. VTRR is the loop of section 3.1. WFQ is a tree of winners without branches over
//! finishing times `k / s` in fixed point: of 40 bits, so that two of them that differ, by at least `1 / (s * s')`,
//! never round to the same number, and two that are equal always do.
//! **Properties** (`tests/static_run.rs`): `kernels_equal_the_policies`; Figures 1 and 2 within four standard errors
//! of `golden/fig12_uniform.json`.
//! **Weak spots.** Sums of shares up to 2^20, at most 65,536 clients.

use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;

use super::rng::SplitMix64;
use super::service_error::{Fraction, Range};

/// The largest sum of shares.
pub const TOTAL_MAX: u32 = 1 << 20;
/// Bits below the point of a finishing time.
const FRACTION_BITS: u32 = 40;
/// Bits of a finishing time's key that name the client.
const RANK_BITS: u32 = 16;

/// Why shares cannot be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SharesError {
    /// None, or one of 0.
    Zero,
    /// A sum above [`TOTAL_MAX`], or more than 65,536 clients.
    TooLarge,
}

impl fmt::Display for SharesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero => f.write_str("shares must be at least 1"),
            Self::TooLarge => {
                write!(f, "the sum of shares must be at most {TOTAL_MAX}, of at most 65536 clients")
            }
        }
    }
}

impl core::error::Error for SharesError {}

/// The smallest and the largest service error of one cycle, times the sum of shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extremes {
    /// Furthest behind, over `total`.
    pub min: i64,
    /// Furthest ahead, over `total`.
    pub max: i64,
    /// The sum of shares.
    pub total: u32,
}

impl Extremes {
    const fn start(total: u32) -> Self {
        Self { min: 0, max: 0, total }
    }

    /// The same in quanta.
    #[must_use]
    pub const fn range(&self) -> Range {
        Range {
            min: Fraction::new(self.min, self.total as u64),
            max: Fraction::new(self.max, self.total as u64),
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Runner {
    share: i64,
    /// Quanta received, times the sum of shares.
    received: i64,
    /// Time counter.
    counter: i64,
}

/// Room for one set of shares; after the first of the largest size, nothing is allocated any more.
#[derive(Default)]
pub struct StaticRun {
    /// By falling share; one runner of share 0 ends the list.
    runners: Vec<Runner>,
    total: u32,
}

impl StaticRun {
    /// Takes a set of shares, in any order.
    ///
    /// # Errors
    /// [`SharesError`] where they are out of range; then the last set stays.
    pub fn load(&mut self, shares: &[u32]) -> Result<(), SharesError> {
        if shares.is_empty() || shares.contains(&0) {
            return Err(SharesError::Zero);
        }
        let total = shares.iter().try_fold(0u32, |sum, &s| sum.checked_add(s)).unwrap_or(u32::MAX);
        if total > TOTAL_MAX || shares.len() > 1 << RANK_BITS {
            return Err(SharesError::TooLarge);
        }
        self.total = total;
        self.runners.clear();
        self.runners.extend(shares.iter().map(|&s| Runner { share: s.into(), ..Runner::default() }));
        self.runners.sort_unstable_by_key(|runner| Reverse(runner.share));
        self.runners.push(Runner::default());
        Ok(())
    }

    /// Weighted round-robin, largest share first. O(clients).
    #[must_use]
    pub fn wrr(&self) -> Extremes {
        let total = i64::from(self.total);
        let mut ends = Extremes::start(self.total);
        let mut before = 0;
        for &Runner { share, .. } in &self.runners {
            // It waits for all before it, then runs its whole turn.
            ends.min = ends.min.min(-before * share);
            before += share;
            ends.max = ends.max.max(share * (total - before));
        }
        ends
    }

    /// VTRR, whole quanta. O(sum of shares).
    pub fn vtrr(&mut self) -> Extremes {
        let total = i64::from(self.total);
        for runner in &mut self.runners {
            runner.received = 0;
            runner.counter = runner.share;
        }
        let (mut min, mut max) = (0, 0);
        let mut at = 0;
        for t in 0..total {
            let current = &mut self.runners[at];
            let behind = current.received - t * current.share;
            min = behind.min(min);
            max = (behind + total - current.share).max(max);
            current.received += total;
            current.counter -= 1;
            let left = current.counter;
            // The runner of share 0 at the end has a counter of 0 and is never chosen.
            let next = &self.runners[at + 1];
            let due = next.received < (t + 2) * next.share && next.counter > 0;
            at = if next.counter > left || due { at + 1 } else { 0 };
        }
        Extremes { min, max, total: self.total }
    }

    /// WFQ with ties to the larger share. O(sum of shares x log(clients)) up to 64 clients, x clients above.
    pub fn wfq(&mut self) -> Extremes {
        match self.runners.len() - 1 {
            0..=2 => self.wfq_tree::<2, 4>(),
            3..=4 => self.wfq_tree::<4, 8>(),
            5..=8 => self.wfq_tree::<8, 16>(),
            9..=16 => self.wfq_tree::<16, 32>(),
            17..=64 => self.wfq_tree::<64, 128>(),
            _ => self.wfq_list(),
        }
    }

    /// `LEAVES` is a power of two that is at least the number of clients, `NODES` twice that.
    fn wfq_tree<const LEAVES: usize, const NODES: usize>(&self) -> Extremes {
        let total = i64::from(self.total);
        let mut lanes = [Lane::IDLE; LEAVES];
        // Node 1 is the root, the children of node n are 2n and 2n + 1, and the leaves are the last half.
        let mut tree = [u64::MAX; NODES];
        let clients = self.runners.len() - 1;
        for (rank, runner) in self.runners[..clients].iter().enumerate() {
            lanes[rank] = Lane::new(rank, runner.share);
            tree[LEAVES + rank] = lanes[rank].next();
        }
        for node in (1..LEAVES).rev() {
            tree[node] = tree[2 * node].min(tree[2 * node + 1]);
        }
        let (mut min, mut max) = (0, 0);
        let mut elapsed = 0;
        while elapsed < total {
            let rank = tree[1] as usize % LEAVES;
            let lane = &mut lanes[rank];
            let mut key = lane.ready;
            let behind = lane.received - elapsed * lane.share;
            min = behind.min(min);
            max = (behind + total - lane.share).max(max);
            lane.received += total;
            lane.next();
            let mut node = (LEAVES + rank) % NODES;
            tree[node] = key;
            while node > 1 {
                key = key.min(tree[node ^ 1]);
                node /= 2;
                tree[node] = key;
            }
            elapsed += 1;
        }
        Extremes { min, max, total: self.total }
    }

    fn wfq_list(&mut self) -> Extremes {
        let total = i64::from(self.total);
        let clients = self.runners.len() - 1;
        for runner in &mut self.runners {
            runner.received = 0;
            runner.counter = 1;
        }
        let mut ends = Extremes::start(self.total);
        for t in 0..total {
            // `counter` is k of the finishing time k / share. Strictly smaller: ties stay with the larger share.
            let mut first = 0;
            for at in 1..clients {
                let (a, b) = (&self.runners[at], &self.runners[first]);
                if a.counter * b.share < b.counter * a.share {
                    first = at;
                }
            }
            let runner = &mut self.runners[first];
            let behind = runner.received - t * runner.share;
            ends.min = ends.min.min(behind);
            ends.max = ends.max.max(behind + total - runner.share);
            runner.received += total;
            runner.counter += 1;
        }
        ends
    }
}

/// One client of the tree of winners.
#[derive(Clone, Copy)]
struct Lane {
    /// The key that follows the one in the tree.
    ready: u64,
    /// `2^40 / share` in the place of a key's time, and its remainder.
    step: u64,
    rest: u32,
    /// The remainders so far, below the share.
    carry: u32,
    share: i64,
    received: i64,
}

impl Lane {
    /// A leaf without a client; its key is above all others and is never chosen.
    const IDLE: Self = Self { ready: u64::MAX, step: 0, rest: 0, carry: 0, share: 0, received: 0 };

    /// A client of rank `rank`, whose first key, `1 / share`, is ready.
    fn new(rank: usize, share: i64) -> Self {
        let one = 1u64 << FRACTION_BITS;
        let (step, rest) = (one / share as u64, one % share as u64);
        let mut lane = Self {
            ready: rank as u64,
            step: step << RANK_BITS,
            rest: rest as u32,
            carry: 0,
            share,
            received: 0,
        };
        lane.next();
        lane
    }

    /// The key that was ready; makes the one after it: `floor(k * 2^40 / share)` above the rank.
    #[inline]
    fn next(&mut self) -> u64 {
        let key = self.ready;
        let carry = self.carry + self.rest;
        let over = i64::from(carry) >= self.share;
        self.carry = if over { carry - self.share as u32 } else { carry };
        self.ready = key + self.step + (u64::from(over) << RANK_BITS);
        key
    }
}

/// Draws shares uniform in (0, 1) and scales them to integers that sum up to `total`: by largest remainder, equal
/// remainders by index, and each at least 1 at the cost of the largest (the study of VTRR, section 5.1).
///
/// # Panics
/// If there are no shares, or more than `total`.
pub fn uniform_shares(rng: &mut SplitMix64, total: u32, shares: &mut [u32]) {
    assert!(!shares.is_empty() && shares.len() <= total as usize, "shares are 1 to {total}");
    // 32 random bits each, kept in `shares` until scaled; odd, so that none is 0.
    let mut sum = 0u64;
    for share in shares.iter_mut() {
        *share = (rng.next_u64() >> 32) as u32 | 1;
        sum += u64::from(*share);
    }
    let scaled =
        |draw: u32| (u64::from(draw) * u64::from(total) / sum, u64::from(draw) * u64::from(total) % sum);
    let given: u64 = shares.iter().map(|&draw| scaled(draw).0).sum();
    // As many as were lost by rounding down: those with the largest remainders, found by taking the largest below the
    // last one taken, in order of (remainder, falling index).
    let mut cut = (u64::MAX, Reverse(0));
    for _ in given..u64::from(total) {
        let rests = shares.iter().enumerate().map(|(at, &draw)| (scaled(draw).1, Reverse(at)));
        cut = rests.filter(|&rest| rest < cut).max().unwrap_or(cut);
    }
    let all_cut = given == u64::from(total);
    for (at, share) in shares.iter_mut().enumerate() {
        let (whole, rest) = scaled(*share);
        *share = whole as u32 + u32::from(!all_cut && (rest, Reverse(at)) >= cut);
    }
    while let Some(zero) = shares.iter().position(|&share| share == 0) {
        let largest = (0..shares.len()).max_by_key(|&at| (shares[at], Reverse(at))).unwrap_or(0);
        shares[largest] -= 1;
        shares[zero] = 1;
    }
}
