//! What `fuzz/` asks of readers that are nobody else's.

use divvy_market::Mode;

use crate::market::ledger::asks;
use crate::market::policy::Policy;

/// The mode that `text` says, as the API takes it.
#[must_use]
pub fn mode(text: &str) -> Option<Mode> {
    asks::mode(text).ok()
}

/// Whether the administrator's policy that `text` says is the same after it was written down and read again; `None` where
/// it says none.
#[must_use]
pub fn is_policy_kept(text: &str) -> Option<bool> {
    let policy = Policy::parse(text).ok()?;
    Some(
        toml::to_string(&policy)
            .is_ok_and(|written| Policy::parse(&written).is_ok_and(|read| read == policy)),
    )
}
