//! Shares drawn at random, as in the study of VTRR (its section 4, Figs 1 and 2).

use crate::rng::SplitMix64;

/// `clients` shares that sum to `total`: uniform(0, 1) numbers scaled to `total` by largest remainders, at least 1 each.
///
/// The remainder of each scaled number is compared exactly; equal remainders go to the smaller index. Who is left with
/// nothing is given 1, taken from the client that has most (the smallest index among equals).
///
/// # Panics
/// If `clients` is 0 or more than `total`.
pub fn random_shares(clients: usize, total: u64, rng: &mut SplitMix64) -> Vec<u64> {
    assert!(clients > 0 && clients as u64 <= total, "every client needs a share of at least 1");
    // 53-bit numbers, as a float in [0, 1) would have; the sum of up to 2^32 of them fits in 85 bits.
    let draws: Vec<u128> = (0..clients).map(|_| u128::from(rng.next_u64() >> 11)).collect();
    let sum: u128 = draws.iter().sum::<u128>().max(1);
    let scaled = |draw: u128| draw * u128::from(total);
    let mut shares: Vec<u64> = draws.iter().map(|&draw| (scaled(draw) / sum) as u64).collect();
    let mut order: Vec<usize> = (0..clients).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(scaled(draws[i]) % sum), i));
    let missing = total - shares.iter().sum::<u64>();
    for &i in order.iter().cycle().take(missing as usize) {
        shares[i] += 1;
    }
    for i in 0..clients {
        if shares[i] == 0 {
            let richest = (0..clients).max_by_key(|&j| (shares[j], std::cmp::Reverse(j))).unwrap_or(i);
            shares[richest] -= 1;
            shares[i] = 1;
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_sum_to_the_total_and_nobody_goes_without() {
        let mut rng = SplitMix64::new(9);
        for (clients, total) in [(1, 1), (2, 128), (16, 128), (16, 16), (7, 8), (100, 2048)] {
            for _ in 0..100 {
                let shares = random_shares(clients, total, &mut rng);
                assert_eq!((shares.len(), shares.iter().sum::<u64>()), (clients, total));
                assert!(shares.iter().all(|&share| share >= 1));
            }
        }
    }

    #[test]
    fn shares_are_symmetric() {
        // Each of two clients has half of 128 on average; the standard deviation of a share is 128 * .19 or so.
        let mut rng = SplitMix64::new(4);
        let sum: u64 = (0..10_000).map(|_| random_shares(2, 128, &mut rng)[0]).sum();
        assert!((sum as f64 / 10_000.0 - 64.0).abs() < 1.5);
    }
}
