//! How often a user may ask a system's divvyd for anything: as often as the administrator's policy says.
//!
//! It is asked before anything else is done for a request, so that one that is too many costs next to nothing. The market
//! counts what it is asked itself, by the same measure.

use std::sync::{Arc, Mutex, PoisonError};

use divvy_linux::clock;

use crate::market::bucket::Buckets;
use crate::market::message::Who;
use crate::market::names::SystemNames;
use crate::market::policy::Policy;
use crate::message::Refusal;
use divvy_api::types::ErrorCode;

/// A bucket for each user. Clones count together.
#[derive(Clone, Debug)]
pub(crate) struct Limiter(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    policy: Policy,
    buckets: Buckets,
    names: SystemNames,
}

impl Limiter {
    /// Nobody has asked yet.
    pub(crate) fn new(policy: Policy) -> Self {
        let names = SystemNames::default();
        Self(Arc::new(Mutex::new(Inner { policy, buckets: Buckets::default(), names })))
    }

    /// From now on another policy holds.
    pub(crate) fn set_policy(&self, policy: Policy) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).policy = policy;
    }

    /// Counts a request of `who`; superusers ask as often as they like.
    ///
    /// # Errors
    /// [`ErrorCode::Limit`] where it is one too many just now.
    pub(crate) fn check(&self, who: &Who) -> Result<(), Refusal> {
        if who.uid == 0 {
            return Ok(());
        }
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Inner { policy, buckets, names } = &mut *inner;
        let (rate, burst) = (policy.limits.requests_per_second, policy.limits.burst);
        let Err(wait) = buckets.take(who.uid, 1, (rate, burst), clock::now()) else { return Ok(()) };
        // Names are only looked up for who has nothing left.
        if policy.admins.has(names, who) {
            return Ok(());
        }
        let text = format!("user {} asks more than {rate} times a second, or {burst} times at once", who.uid);
        Err(Refusal::new(ErrorCode::Limit, text, format!("ask again in {} ms", wait.0.div_ceil(1_000_000))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_a_measure_and_superusers_none() {
        let text =
            "[limits]\nrequests_per_second = 1\nburst = 3\n[admins]\nusers = [\"7\"]\ngroups = [\"50\"]";
        let limiter = Limiter::new(Policy::parse(text).unwrap());
        let who = |uid, gid| Who { uid, gids: vec![gid], pid: 1, by_root: false };
        for (uid, gid) in [(0, 0), (7, 7), (8, 50)] {
            assert!((0..20).all(|_| limiter.check(&who(uid, gid)).is_ok()), "{uid}");
        }
        for uid in [9, 10] {
            let through = (0..20).filter(|_| limiter.check(&who(uid, uid)).is_ok()).count();
            assert!((3..20).contains(&through), "{uid}: {through}");
            let refusal = limiter.check(&who(uid, uid)).unwrap_err();
            assert_eq!(refusal.code, ErrorCode::Limit);
            assert!(refusal.message.starts_with(&format!("user {uid} asks more than 1 times a second")));
        }
        limiter.set_policy(Policy::default());
        assert!(limiter.check(&who(11, 11)).is_ok());
    }
}
