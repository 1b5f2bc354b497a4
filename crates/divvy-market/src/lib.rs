//! Tickets, currencies, brokers and exchanges: who has a right to how much of each resource, exactly.
//!
//! Problem: several users share a machine. Each must keep the rights that somebody gave to it whatever the others
//! do (*isolation*), and yet be free to divide them, to lend them and to trade disk for CPU (*flexibility*).
//!
//! Idea: rights are *tickets*. A ticket is issued by a *currency* and backs (funds) another, and a currency's tickets
//! share what backs it in proportion to their amounts. All goes back to the *base currency*, so every ticket has a
//! *base value*, and no currency can give away more than it has. A *broker* guards each currency. Two parties can
//! exchange rights through four base tickets, two of them negative, and nobody else is touched.
//!
//! Use: one [`Market`]; every change is an [`Op`] that some [`Caller`] asks for, and [`Market::apply`] does it whole or
//! not at all. The crate reads no clock, process or file: equal operations give equal markets, so a log of operations
//! is the market.
//!
//! ```
//! use divvy_market::{Amount, Broker, Caller, Kind, Made, Market, Op, Resource, Resources};
//!
//! let mut market = Market::new();
//! let root = Caller::superuser();
//! let broker = Broker::private(1000, 1000);
//! let Made::Currency(alice) = market.apply(&root, &Op::CreateCurrency { broker })?.made else { unreachable!() };
//! let competes = Resources::ALL;
//! let Made::Currency(task) = market.apply(&root, &Op::CreateClient { broker, competes })?.made else { unreachable!() };
//! let (resource, kind) = (Resource::Cpu, Kind::Soft);
//! let base = market.base();
//! let amount = Amount::new(300)?;
//! market.apply(&root, &Op::Fund { holder: alice, issuer: base, resource, amount, kind })?;
//! let amount = Amount::new(7)?;
//! market.apply(&root, &Op::Fund { holder: task, issuer: alice, resource, amount, kind })?;
//! assert_eq!(market.value(task, resource)?.to_string(), "300");
//! # Ok::<(), divvy_market::Refusal>(())
//! ```
//!
//! Source: Sullivan & Seltzer, "Isolation with Flexibility: A Resource Management Framework for Central Servers",
//! USENIX 2000. `docs/market.md` explains the model with the paper's figures in numbers.
//!
//! *Properties*, each with its test in `tests/laws.rs`: values equal those of a from-scratch calculation; what a
//! currency's tickets are worth together is what backs it; nothing inside one currency changes a value outside it; a
//! refused operation changes nothing; no total is negative; exchange tickets sum to zero.
//!
//! *Weak spots*: a value with many different ancestors has a long fraction (it stays exact, and gets slower); a
//! currency that is backed by thousands of tickets is summed ticket by ticket.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod broker;
mod market;
mod op;
mod ratio;
mod resource;
mod slab;

pub use broker::{Broker, Caller, Mode, Permission};
pub use market::{
    CURRENCY_DEPTH_MAX, Changed, CurrencyView, ExchangeView, Fault, HARD_TOTAL_DEFAULT, Market, OfferView,
    PARTS_PER_TICKET, Promises, Revision, Right, Source, TicketView, Weight,
};
pub use op::{
    Amount, Conflict, CurrencyId, ExchangeId, Kind, Made, Moment, OfferId, Op, Outcome, Presence, Refusal,
    Side, TicketId,
};
pub use ratio::Ratio;
pub use resource::{Resource, Resources};

/// What the README shows, tried.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
