//! What dealer and nodes tell each other.
//!
//! Each message says all that its sender has to say just now, so one that is lost, late, doubled or out of order does no
//! harm: only the newest counts. Each also says which was the newest that its sender heard. So both sides know how old
//! what they know is by their own clock, and no clock is compared with another.

use crate::terms::{ExchangeId, Leg, NodeId, Refusal};
use alloc::vec::Vec;
use divvy_market::Moment;

/// Which message of the dealer's: newer ones are larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DealerStamp {
    /// The dealer's term.
    pub term: u64,
    /// When it was sent, by the dealer's clock.
    pub sent: Moment,
    /// How many records the dealer had made.
    pub revision: u64,
}

/// Which message of a node's: newer ones are larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeStamp {
    /// When it was sent, by the node's clock.
    pub sent: Moment,
    /// How many messages the node had heard since it started.
    pub revision: u64,
}

/// How far an exchange is to go on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "SiteStep"))]
pub enum Step {
    /// Keep the tickets for it; nobody has them yet (the first phase).
    Hold,
    /// Give them, where they were held (the second phase).
    Give,
}

/// What a node is to do about one exchange.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "SiteOrder"))]
pub struct Order {
    /// Which exchange.
    pub exchange: ExchangeId,
    /// What it is on this node: one leg, or both.
    pub legs: Vec<Leg>,
    /// How far.
    pub step: Step,
    /// Whether the lease begins anew with this message.
    pub renew: bool,
}

/// From the dealer to a node: every exchange that is to be there. What is not among them is to end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "SiteOrders"))]
pub struct Orders {
    /// Which message this is.
    pub stamp: DealerStamp,
    /// The newest report of the node's that the dealer has heard. A lease counts from when that was sent.
    pub heard: Option<NodeStamp>,
    /// How long the node may go on after that, ns: half of the site's lease.
    pub lease_ns: u64,
    /// The exchanges, by id.
    pub orders: Vec<Order>,
}

/// How far an exchange is on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "SiteState"))]
pub enum State {
    /// The tickets are kept for it.
    Held,
    /// The takers have them.
    Given,
    /// It cannot be.
    Refused(Refusal),
}

/// From a node to the dealer: every exchange that it knows. What is not among them has ended there, or never began.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "SiteReport"))]
pub struct Report {
    /// Whose report.
    pub node: NodeId,
    /// Which message this is.
    pub stamp: NodeStamp,
    /// The newest message of the dealer's that the node has heard.
    pub heard: Option<DealerStamp>,
    /// The exchanges, by id.
    pub states: Vec<(ExchangeId, State)>,
}
