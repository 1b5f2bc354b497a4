//! What is traded where, and between whom.

use core::fmt;
use divvy_market::{Amount, Resource};

/// A node of the site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeId(pub u32);

/// Where something is traded: a node, or a class of nodes, which stands for each node in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct PlaceId(pub u32);

/// A user, by the number that all nodes of the site know the user by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UserId(pub u32);

/// An offer at the dealer. Later offers have larger ids; never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct OfferId(pub u64);

/// An exchange. Later exchanges of a dealer's term have larger numbers; never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "SiteExchangeId"))]
pub struct ExchangeId {
    /// The dealer's term: see [`crate::Dealer::new`].
    pub term: u64,
    /// Its number in that term.
    pub number: u64,
}

impl fmt::Display for ExchangeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.term, self.number)
    }
}

/// What one party gives or wants: so many tickets on the node, or on each node of the class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Side {
    /// Where.
    pub place: PlaceId,
    /// Of which resource.
    pub resource: Resource,
    /// How many base tickets.
    pub amount: Amount,
}

/// One direction of an exchange on one node: tickets that one user has and the other shall have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "SiteLeg"))]
pub struct Leg {
    /// Who gives.
    pub giver: UserId,
    /// Who gets.
    pub taker: UserId,
    /// Of which resource.
    pub resource: Resource,
    /// How many base tickets.
    pub amount: Amount,
}

/// Why a node does not take part in an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "SiteRefusal"))]
pub enum Refusal {
    /// The node knows no such user.
    UnknownUser(UserId),
    /// The user does not have there what it would give, beside what it gives already.
    NotEnough(UserId),
    /// The node's market refuses it: no room, or too deep a path of tickets.
    Impossible(UserId),
}

impl Refusal {
    /// Whose offer cannot be met.
    #[must_use]
    pub const fn user(self) -> UserId {
        match self {
            Self::UnknownUser(user) | Self::NotEnough(user) | Self::Impossible(user) => user,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownUser(user) => write!(f, "user {} is not known there", user.0),
            Self::NotEnough(user) => write!(f, "user {} does not have there what it would give", user.0),
            Self::Impossible(user) => write!(f, "what user {} gives cannot be moved there", user.0),
        }
    }
}
