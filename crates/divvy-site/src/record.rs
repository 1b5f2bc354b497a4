//! What a dealer did: it is its records.

use crate::terms::{NodeId, OfferId, PlaceId, Refusal, Side, UserId};
use alloc::vec::Vec;
use divvy_market::Moment;

/// Why an exchange ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Why {
    /// A node cannot do its part.
    Refused(NodeId, Refusal),
    /// Not every node held its part in time. No tickets had moved.
    NotHeld,
    /// Nothing was heard from a node for half a lease.
    Away(NodeId),
    /// It has ended on a node: a giver lost what it gave, or the node began anew.
    EndedOn(NodeId),
    /// A party wants it so.
    Cancelled(UserId),
}

/// Why an offer is gone without an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Lapse {
    /// Its user took it back.
    Withdrawn,
    /// Its time was over.
    Expired,
    /// A node cannot do what its user gives.
    Refused(NodeId, Refusal),
}

/// One change of a dealer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "did", rename_all = "snake_case")
)]
pub enum Record {
    /// A place is these nodes from now on; exchanges that there are keep theirs.
    Place {
        /// Which.
        place: PlaceId,
        /// Its nodes.
        nodes: Vec<NodeId>,
    },
    /// An offer waits.
    Offered {
        /// Its id.
        offer: OfferId,
        /// Whose it is.
        user: UserId,
        /// What the user gives.
        gives: Side,
        /// What for.
        wants: Side,
        /// When it ends.
        until: Option<Moment>,
    },
    /// An offer is gone.
    Lapsed {
        /// Which.
        offer: OfferId,
        /// Why.
        why: Lapse,
    },
    /// Two offers became an exchange: the first phase begins.
    Matched {
        /// Its number in this term.
        exchange: u64,
        /// The offers, the older first.
        offers: [OfferId; 2],
        /// When.
        at: Moment,
    },
    /// Every node holds its part: the second phase begins, and there is no way back but to the end.
    Committed {
        /// Which exchange.
        exchange: u64,
        /// When.
        at: Moment,
    },
    /// Every node gives its part.
    Began {
        /// Which exchange.
        exchange: u64,
    },
    /// It is to end everywhere. Offers of one that was not committed wait again, but for one that was refused.
    Ending {
        /// Which exchange.
        exchange: u64,
        /// Why.
        why: Why,
        /// When.
        at: Moment,
    },
    /// It has ended everywhere.
    Over {
        /// Which exchange.
        exchange: u64,
    },
}
