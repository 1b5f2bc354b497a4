//! Exchanges of tickets between users over the nodes of a site: who gives which node what, under a lease.
//!
//! Problem: a user has rights on every node of a site and needs them on a few. Two users whose needs differ can trade, cpu on
//! one node for cpu or memory on another, if neither can be left giving without getting, and nobody else is touched.
//!
//! Idea: one [`Dealer`] matches exact complements. An exchange has a leg on each node of either place (a node, or a class of
//! nodes): there the giver's tickets become the taker's. It runs in two phases, *hold* and *give*, and ends everywhere once it
//! ends anywhere. On each node an [`Agent`] does that to the node's market, which knows nothing of other nodes. What is given
//! is given under a [`Lease`] that the node itself ends when it is not renewed, and the dealer renews only what all of the
//! exchange's nodes prove to give.
//!
//! It never reads a clock, sends or stores anything: moments and messages are handed in, what is to be sent and made durable is
//! handed out. The dealer is its [`Record`]s; a node's entries are kept with its market.
//!
//! Use: the dealer's host makes [`Dealer::take_records`] durable, then sends [`Dealer::orders`] to the nodes of
//! [`Dealer::take_to_tell`], and to all several times in half a lease. A node answers each with [`Agent::report`].
//!
//! Source: Sullivan & Seltzer, "Isolation with Flexibility", USENIX 2000, section 3.2, for exchanges and the dealer on one
//! machine. Over nodes: two-phase commit, where Gray and Cheriton's leases (SOSP 1989) take the place of blocking.
//!
//! *Properties*, each with its test: one side never gives without the other for more than a lease (`tests/courses.rs`, every
//! course of a small site for its first ticks, then the worst of them; `tests/random.rs`, random ones of a larger); no ticket is made or lost, whoever takes no
//! part keeps its part on each node, and the dealer equals its records (`tests/random.rs`).
//!
//! *Weak spots*: an exchange over a class ends when one node of the class is away for a lease. Clocks must run equally fast: by
//! as much as they differ over a lease, one side can give for longer. The dealer's host is one; while it is away nothing is
//! renewed.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod agent;
mod dealer;
mod message;
mod record;
mod terms;
mod tickets;

pub use agent::{Agent, Entry, Market};
pub use dealer::{Dealer, Exchange, Lease, Offer, OfferError, Phase, WrongRecord};
pub use message::{DealerStamp, NodeStamp, Order, Orders, Report, State, Step};
pub use record::{Lapse, Record, Why};
pub use terms::{ExchangeId, Leg, NodeId, OfferId, PlaceId, Refusal, Side, UserId};
pub use tickets::{give, movable, take_back};

/// What the README shows, tried.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
