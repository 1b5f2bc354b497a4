//! How often a user may ask: a token bucket for each.

use std::collections::BTreeMap;

use divvy_policy::{Instant, Nanos};

/// Users that are remembered. One that is forgotten begins with a full bucket, and only those are forgotten whose bucket is
/// full anyway, as long as there are any.
const USERS: usize = 4096;
/// Parts of a token: what comes in a nanosecond at one request a second.
const TOKEN: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Parts of tokens that were there at the moment.
    parts: u64,
    at: Instant,
}

/// A bucket of `burst` tokens for each user, into which so many a second fall. The time is handed in.
#[derive(Debug, Default)]
pub(crate) struct Buckets(BTreeMap<u32, Bucket>);

impl Buckets {
    /// Takes `cost` tokens of user `uid`, or as many as a bucket can hold. Where there are not so many: how long until there
    /// are.
    ///
    /// # Errors
    /// The time to wait.
    pub(crate) fn take(
        &mut self,
        uid: u32,
        cost: u32,
        (per_second, burst): (u32, u32),
        now: Instant,
    ) -> Result<(), Nanos> {
        let full = u64::from(burst) * TOKEN;
        let price = u64::from(cost.min(burst)) * TOKEN;
        let filled = |bucket: &Bucket| {
            let passed = now.0.saturating_sub(bucket.at.0);
            bucket.parts.saturating_add(passed.saturating_mul(per_second.into())).min(full)
        };
        if !self.0.contains_key(&uid) && self.0.len() >= USERS {
            self.0.retain(|_, bucket| filled(bucket) < full);
            if self.0.len() >= USERS {
                // Everybody of them is asking just now. Whoever has the most left loses the least.
                let most =
                    self.0.iter().max_by_key(|(uid, bucket)| (filled(bucket), **uid)).map(|(&uid, _)| uid);
                most.and_then(|uid| self.0.remove(&uid));
            }
        }
        let bucket = self.0.entry(uid).or_insert(Bucket { parts: full, at: now });
        let parts = filled(bucket);
        *bucket = Bucket { parts, at: now };
        match parts.checked_sub(price) {
            Some(left) => {
                bucket.parts = left;
                Ok(())
            }
            None => Err(Nanos((price - parts).div_ceil(per_second.max(1).into()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    #[test]
    fn a_burst_goes_through_and_then_the_rate_holds() {
        let mut buckets = Buckets::default();
        for _ in 0..5 {
            assert_eq!(buckets.take(7, 1, (10, 5), at(1000)), Ok(()));
        }
        assert_eq!(buckets.take(7, 1, (10, 5), at(1000)), Err(Nanos(100_000_000)));
        assert_eq!(buckets.take(8, 1, (10, 5), at(1000)), Ok(()), "another user has a bucket of its own");
        assert_eq!(buckets.take(7, 1, (10, 5), at(1099)), Err(Nanos(1_000_000)));
        assert_eq!(buckets.take(7, 1, (10, 5), at(1100)), Ok(()));
        let mut through = 0;
        for ms in 1101..11_101 {
            through += u32::from(buckets.take(7, 1, (10, 5), at(ms)).is_ok());
        }
        assert_eq!(through, 100, "ten a second for ten seconds");
    }

    #[test]
    fn what_costs_more_can_be_asked_less_often() {
        let mut buckets = Buckets::default();
        assert_eq!(buckets.take(7, 4, (10, 5), at(0)), Ok(()));
        assert_eq!(buckets.take(7, 4, (10, 5), at(0)), Err(Nanos(300_000_000)));
        assert_eq!(buckets.take(7, 4, (10, 5), at(300)), Ok(()));
        assert_eq!(
            buckets.take(7, 1000, (10, 5), at(700)),
            Err(Nanos(100_000_000)),
            "a bucket full is enough"
        );
        assert_eq!(buckets.take(7, 1000, (10, 5), at(800)), Ok(()));
    }

    #[test]
    fn no_number_of_users_makes_the_table_longer_than_it_may_be() {
        let mut buckets = Buckets::default();
        assert!((0..3).all(|_| buckets.take(1, 1, (1, 3), at(0)).is_ok()));
        for uid in 2..5000 {
            assert_eq!(buckets.take(uid, 1, (1, 3), at(1)), Ok(()));
        }
        assert!(buckets.0.len() <= USERS);
        assert!(buckets.take(1, 1, (1, 3), at(1)).is_err(), "who has nothing left is remembered");
        assert_eq!(buckets.take(2, 1, (1, 3), at(60_000)), Ok(()));
        for uid in 20_000..22_000 {
            let _ = buckets.take(uid, 1, (1, 3), at(60_000));
        }
        assert!(buckets.0.len() <= 2001, "full buckets are forgotten: {}", buckets.0.len());
    }
}
