//! What the log is made of: who had what done, and when.
//!
//! Equal operations by equal callers give equal markets, so the log is the market; what the ledger knows beside the market
//! (names, users, clients) is logged as steps of its own. A step says everything that it needs: replaying one looks up no
//! name and no policy.

use divvy_market::{Caller, CurrencyId, ExchangeId, OfferId, Op, Outcome, TicketId};
use serde::{Deserialize, Serialize};

use divvy_site::{Entry, ExchangeId as SiteExchange, Leg};

use super::message::{Cpus, Identity, Limits};

/// What one request did, whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// When: ns since 1970 (UTC). Never less than in the record before.
    pub(crate) at_ns: u64,
    /// For whom.
    pub(crate) caller: Caller,
    /// In this order.
    pub(crate) steps: Vec<Step>,
    /// Of everything that came of the operations, so that a replay that goes another way is found out.
    pub(crate) outcome: Fingerprint,
}

impl Record {
    /// Whether it only says how far leases of exchanges over nodes go.
    pub(crate) fn is_of_leases_only(&self) -> bool {
        self.steps.iter().all(|step| matches!(step, Step::SiteExchange { .. }))
    }
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Step {
    /// An operation by the caller.
    Do(Op),
    /// An operation by divvyd itself, as a superuser.
    DoAsDivvyd(Op),
    /// The currency is that user's own, with so many base tickets of each resource from the policy.
    User { uid: u32, currency: CurrencyId, granted: [u64; 3] },
    /// What the policy grants a user became this.
    Granted { uid: u32, granted: [u64; 3] },
    /// The bounds that the policy set for a user last.
    PolicyBounds { uid: u32, bounds: [Option<u64>; 3] },
    /// The currency has this name among the user's.
    Name { currency: CurrencyId, uid: u32, name: String },
    /// The currency is a client of these processes.
    Client { currency: CurrencyId, uid: u32, identity: Identity },
    /// The client may have no more than that, from now on.
    Limits { client: CurrencyId, limits: Limits },
    /// Something counts against the limits of a user.
    Charge { uid: u32, what: Charge },
    /// A site's table of this version holds; `kept` are the currencies that it does not name and has not ended.
    Site { version: u64, kept: Vec<CurrencyId> },
    /// An exchange over nodes is so far here, or has ended; `moved` are the legs whose tickets the takers have.
    SiteExchange { exchange: SiteExchange, entry: Option<Entry>, moved: Vec<MovedLeg> },
    /// The client may use these CPUs only, from now on; none: all of them.
    Cpus { client: CurrencyId, cpus: Cpus },
}

/// A leg of an exchange over nodes whose tickets the taker has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MovedLeg {
    pub(crate) leg: Leg,
    /// The giver's currency.
    pub(crate) giver: CurrencyId,
    /// The currency that has the tickets and funds the taker's own.
    pub(crate) holder: CurrencyId,
    /// The tickets.
    pub(crate) ticket: TicketId,
}

/// What is limited per user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Charge {
    Currency(CurrencyId),
    Ticket(TicketId),
    Offer(OfferId),
    Exchange(ExchangeId),
}

/// A short number made of everything it was shown (FNV-1a, 64 bits): it guards against mistakes, not against malice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Fingerprint(u64);

impl Fingerprint {
    pub(crate) const EMPTY: Self = Self(0xcbf2_9ce4_8422_2325);

    /// This and `bytes` after it.
    #[must_use]
    pub(crate) fn and(self, bytes: &[u8]) -> Self {
        Self(bytes.iter().fold(self.0, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)))
    }

    /// This and an outcome after it.
    #[must_use]
    pub(crate) fn and_outcome(self, outcome: &Outcome) -> Self {
        // An outcome is ids in lists, which can always be written.
        self.and(&serde_json::to_vec(outcome).unwrap_or_default())
    }

    /// As SQLite keeps it.
    pub(crate) const fn bits(self) -> i64 {
        self.0.cast_signed()
    }

    pub(crate) const fn from_bits(bits: i64) -> Self {
        Self(bits.cast_unsigned())
    }
}
