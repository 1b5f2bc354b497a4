//! How much of the scheduler's CPU time each user's requests may take.
//!
//! A request is counted elsewhere; here it is weighed. Some cost a thousand times what others do (a dry run looks at every
//! process, a list at every member), and whoever asks for such as often as the policy lets them ask for anything would leave
//! the scheduler no time to schedule. So each user has a part of its time, with something saved up, and whoever has used
//! it up waits. What is charged is CPU time, so that nobody pays for the moments in which others had the CPU. The time is handed in.

use std::collections::HashMap;

use divvy_policy::{Instant, Nanos};

/// Each user's requests may take one part in so many of the scheduler's time.
const PART: u64 = 10;
/// As much of its time may be taken at once.
const AT_ONCE: Nanos = Nanos::from_millis(500);
/// Users that are remembered before those who owe nothing are swept out.
const USERS: usize = 1024;

/// When each user's debt is paid.
#[derive(Debug, Default)]
pub(crate) struct Spent(HashMap<u32, Instant>);

impl Spent {
    /// Whether user `uid` may ask for something dear.
    ///
    /// # Errors
    /// How long the user has to wait until then.
    pub(crate) fn check(&self, uid: u32, now: Instant) -> Result<(), Nanos> {
        let owed = self.0.get(&uid).map_or(0, |paid| paid.0.saturating_sub(now.0));
        match owed.saturating_sub(AT_ONCE.0 * PART) {
            0 => Ok(()),
            wait => Err(Nanos(wait)),
        }
    }

    /// A request of user `uid` took so much CPU time.
    pub(crate) fn charge(&mut self, uid: u32, time: Nanos, now: Instant) {
        if self.0.len() >= USERS {
            self.0.retain(|_, paid| *paid > now);
        }
        let paid = self.0.entry(uid).or_insert(now);
        *paid = Instant(paid.0.max(now.0).saturating_add(time.0.saturating_mul(PART)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_users_requests_take_a_part_of_the_time_whatever_each_costs() {
        for cost in [1, 20, 110, 400] {
            let mut spent = Spent::default();
            let (mut now, mut taken) = (0, 0);
            // Asks again as soon as it is answered, for a minute.
            while now < 60_000 {
                match spent.check(7, Instant(now * MS)) {
                    Ok(()) => {
                        (now, taken) = (now + cost, taken + cost);
                        spent.charge(7, Nanos::from_millis(cost), Instant(now * MS));
                    }
                    Err(wait) => now += wait.0.div_ceil(MS),
                }
            }
            assert!((6000..=6000 + 500 + cost).contains(&taken), "{cost}: {taken} ms of 60 s");
        }
    }

    #[test]
    fn nobody_waits_for_what_another_asks() {
        let mut spent = Spent::default();
        spent.charge(7, Nanos::from_secs(3), Instant(0));
        assert_eq!(spent.check(7, Instant(0)), Err(Nanos::from_secs(25)));
        assert_eq!(spent.check(8, Instant(0)), Ok(()));
        assert_eq!(spent.check(7, Instant(25_000 * MS)), Ok(()), "what was saved up is there again in time");
    }

    #[test]
    fn only_who_owes_is_remembered() {
        let mut spent = Spent::default();
        for uid in 0..10 * USERS as u32 {
            spent.charge(uid, Nanos(1), Instant(u64::from(uid) * MS));
        }
        assert!(spent.0.len() <= USERS);
    }
}
