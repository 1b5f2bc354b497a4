//! A node's part: it holds and gives what the dealer orders, and ends by itself what is not renewed.
//!
//! *Problem*: node and dealer may lose each other at any moment, and what was given must come back without a word.
//!
//! *Idea*: what is given has a lease that counts from a report of the node's own, by the node's own clock. Whoever renews it
//! must have heard that report, so a message that was late on its way renews nothing.

use crate::message::{DealerStamp, NodeStamp, Order, Orders, Report, State, Step};
use crate::terms::{ExchangeId, Leg, NodeId, Refusal};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use divvy_market::Moment;

/// The market of a node, as far as legs are concerned.
pub trait Market {
    /// Whether the giver has so many tickets, and `held` more that were promised elsewhere, and the taker is known.
    ///
    /// # Errors
    /// Why the leg cannot be; nothing changes in either case.
    fn check(&mut self, leg: &Leg, held: u64) -> Result<(), Refusal>;

    /// Moves the tickets of all legs from givers to takers, or of none.
    ///
    /// # Errors
    /// Why it cannot; nothing has changed then.
    fn give(&mut self, exchange: ExchangeId, legs: &[Leg]) -> Result<(), Refusal>;

    /// Moves them back. What the market itself has ended since is passed over.
    fn take_back(&mut self, exchange: ExchangeId, legs: &[Leg]);
}

/// An exchange on this node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Entry {
    /// What it is here.
    pub legs: Vec<Leg>,
    /// How far it is.
    pub state: State,
    /// When it ends unless it is renewed, by the node's clock.
    pub until: Moment,
}

/// The node's state: what it holds and gives.
///
/// The entries are to be kept over a restart, with the market; what was heard need not be. The node's clock must not go back,
/// not even over a restart; time at which the node did not run counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Agent {
    node: NodeId,
    entries: BTreeMap<ExchangeId, Entry>,
    heard: Option<DealerStamp>,
    revision: u64,
}

impl Agent {
    /// A node that knows of no exchange.
    #[must_use]
    pub const fn new(node: NodeId) -> Self {
        Self { node, entries: BTreeMap::new(), heard: None, revision: 0 }
    }

    /// A node with what it had before it restarted. Call [`Agent::on_time`] before anything else.
    #[must_use]
    pub fn restored(node: NodeId, entries: impl IntoIterator<Item = (ExchangeId, Entry)>) -> Self {
        Self { entries: entries.into_iter().collect(), ..Self::new(node) }
    }

    /// Every exchange that it knows, by id.
    #[must_use]
    pub const fn entries(&self) -> &BTreeMap<ExchangeId, Entry> {
        &self.entries
    }

    /// The next moment at which something ends by itself: when to call [`Agent::on_time`].
    #[must_use]
    pub fn next_ending(&self) -> Option<Moment> {
        self.entries.values().map(|entry| entry.until).min()
    }

    /// What the node has to say.
    #[must_use]
    pub fn report(&self, now: Moment) -> Report {
        let states = self.entries.iter().map(|(&id, entry)| (id, entry.state)).collect();
        let stamp = NodeStamp { sent: now, revision: self.revision };
        Report { node: self.node, stamp, heard: self.heard, states }
    }

    /// Ends what was not renewed in time.
    pub fn on_time(&mut self, now: Moment, market: &mut impl Market) {
        let over = |entry: &Entry| entry.until <= now;
        let ended: Vec<ExchangeId> =
            self.entries.iter().filter(|(_, entry)| over(entry)).map(|(&id, _)| id).collect();
        for id in ended {
            self.end(id, market);
        }
    }

    /// Ends an exchange here, whatever its lease: a giver has lost what it gives, or an administrator wants it so. The dealer
    /// hears of it with the next report, and ends the other legs.
    pub fn end(&mut self, id: ExchangeId, market: &mut impl Market) {
        let Some(entry) = self.entries.remove(&id) else { return };
        if entry.state == State::Given {
            market.take_back(id, &entry.legs);
        }
    }

    /// Does what the dealer orders. Orders older than what was heard are passed over.
    pub fn on_orders(&mut self, now: Moment, orders: &Orders, market: &mut impl Market) {
        self.on_time(now, market);
        self.revision += 1;
        if self.heard.is_some_and(|heard| orders.stamp <= heard) {
            return;
        }
        self.heard = Some(orders.stamp);
        let wanted: BTreeSet<ExchangeId> = orders.orders.iter().map(|order| order.exchange).collect();
        let unwanted: Vec<ExchangeId> =
            self.entries.keys().copied().filter(|id| !wanted.contains(id)).collect();
        for id in unwanted {
            self.end(id, market);
        }
        // A clock that went back is not to make a lease longer.
        let Some(from) = orders.heard.map(|heard| heard.sent).filter(|&sent| sent <= now) else { return };
        let until = Moment(from.0.saturating_add(orders.lease_ns));
        if until <= now {
            return;
        }
        for order in orders.orders.iter().filter(|order| order.renew) {
            self.on_order(order, until, market);
        }
    }

    fn on_order(&mut self, order: &Order, until: Moment, market: &mut impl Market) {
        let id = order.exchange;
        let state = match (order.step, self.entries.get(&id).map(|entry| entry.state)) {
            (Step::Hold, None) => match self.check(&order.legs, market) {
                Ok(()) => State::Held,
                Err(refusal) => State::Refused(refusal),
            },
            (Step::Give, Some(State::Held)) => match market.give(id, &order.legs) {
                Ok(()) => State::Given,
                Err(refusal) => State::Refused(refusal),
            },
            // What was not held is not given: it may have ended here a moment ago, and the dealer does not know yet.
            (Step::Give, None) => return,
            (_, Some(state)) => state,
        };
        let entry =
            self.entries.entry(id).or_insert_with(|| Entry { legs: order.legs.clone(), state, until });
        entry.state = state;
        entry.until = entry.until.max(until);
    }

    /// Whether the givers have what the legs need beside what is held for others.
    fn check(&self, legs: &[Leg], market: &mut impl Market) -> Result<(), Refusal> {
        for (nth, leg) in legs.iter().enumerate() {
            let held = self.entries.values().filter(|entry| entry.state == State::Held);
            let promised = held.flat_map(|entry| &entry.legs).chain(&legs[..nth]);
            let same = |other: &&Leg| other.giver == leg.giver && other.resource == leg.resource;
            market.check(leg, promised.filter(same).map(|leg| leg.amount.get()).sum())?;
        }
        Ok(())
    }
}
