//! How a ledger is written into a snapshot, and how what earlier divvyds wrote is read.
//!
//! A snapshot is the ledger's memory, field by field, without names: what a ledger or a market is made of is what a snapshot
//! is made of. A change raises [`FORMAT`] and leaves a way to read the format before behind in [`read`], with a file of that
//! format among the fixtures. What is read is written anew, in the format of today, with the next snapshot.

use crate::market::ledger::{ImageError, Ledger};
use crate::market::policy::Policy;

/// The format that is written.
pub(super) const FORMAT: i64 = 4;
/// The oldest that is read.
pub(super) const OLDEST: i64 = 1;

pub(super) const fn can_be_read(format: i64) -> bool {
    OLDEST <= format && format <= FORMAT
}

/// What helps whoever has a format that is not read.
pub(super) const fn remedy(format: i64) -> &'static str {
    if format > FORMAT {
        "a newer divvyd wrote it: use that one, or restore the file from a backup of before the upgrade"
    } else {
        "start a divvyd between the two, which writes it anew, or move the file away to begin with an empty market"
    }
}

/// The ledger of a snapshot of `format`, which [`can_be_read`].
pub(super) fn read(format: i64, bytes: &[u8], policy: &Policy) -> Result<Ledger, ImageError> {
    debug_assert!(can_be_read(format));
    // Format 2 ended before the legs of exchanges over nodes, format 3 before the CPUs of clients: there were none.
    if format >= 2 {
        return Ledger::from_bytes(bytes, policy.clone());
    }
    // Format 1 ended before the clients' limits, a map of none is a length of 0, and before the site's table, which is then none.
    let bytes = [bytes, &[0]].concat();
    Ledger::from_bytes(&bytes, policy.clone())
}
