//! Exchanges: made of four base tickets, watched, and undone when somebody can no longer cover what it gave.

use super::scratch::Scratch;
use super::{Exchange, Market, PARTS_PER_TICKET};
use crate::broker::{Caller, Permission};
use crate::op::{CurrencyId, ExchangeId, Made, Refusal, Side};
use crate::ratio::Ratio;
use crate::resource::Resource;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

impl Market {
    pub(super) fn op_exchange(
        &mut self,
        caller: &Caller,
        a: CurrencyId,
        a_gives: Side,
        b: CurrencyId,
        b_gives: Side,
    ) -> Result<Made, Refusal> {
        let (a, b) = (self.inner(a)?, self.inner(b)?);
        if a == b {
            return Err(Refusal::SameParty);
        }
        if a_gives.resource == b_gives.resource {
            return Err(Refusal::SameResource);
        }
        for party in [a, b] {
            self.check_trader(caller, party)?;
        }
        self.check_covered(a, a_gives)?;
        self.check_covered(b, b_gives)?;
        let exchange = self.make_exchange(Exchange { a, a_gives, b, b_gives });
        Ok(Made::Exchange { exchange, taken: None })
    }

    /// Trading gives funding (`f`) and takes funding away (`c`).
    pub(super) fn check_trader(&self, caller: &Caller, party: u32) -> Result<(), Refusal> {
        self.check_permission(caller, party, Permission::Fund)?;
        self.check_permission(caller, party, Permission::Change)
    }

    /// Refuses what the party does not have now. This only fills caches.
    pub(super) fn check_covered(&mut self, party: u32, gives: Side) -> Result<(), Refusal> {
        let value = self.node_value(party, gives.resource);
        if value < Ratio::from(gives.amount.get()) {
            return Err(Refusal::NotEnough(self.currency_id(party)));
        }
        Ok(())
    }

    /// Issues the four tickets. Everything was asked before.
    pub(super) fn make_exchange(&mut self, exchange: Exchange) -> ExchangeId {
        let id = ExchangeId(self.exchange_next);
        self.exchange_next += 1;
        for (giver, taker, side) in exchange.sides() {
            self.set_gives(giver, side.resource, id, true);
            self.rare_mut(giver, side.resource).exchanges.insert(id);
            self.rare_mut(taker, side.resource).exchanges.insert(id);
            let parts = i128::from(side.amount.get() * PARTS_PER_TICKET);
            self.add_burden(giver, side.resource, -parts);
            self.add_burden(taker, side.resource, parts);
        }
        self.exchanges.insert(id, exchange);
        id
    }

    /// Takes the four tickets back. Nothing, where the exchange has ended already.
    pub(super) fn undo(&mut self, id: ExchangeId) {
        let Some(exchange) = self.exchanges.remove(&id) else { return };
        for (giver, taker, side) in exchange.sides() {
            let parts = i128::from(side.amount.get() * PARTS_PER_TICKET);
            self.add_burden(taker, side.resource, -parts);
            self.add_burden(giver, side.resource, parts);
            self.rare_mut(taker, side.resource).exchanges.remove(&id);
            self.rare_mut(giver, side.resource).exchanges.remove(&id);
            self.set_gives(giver, side.resource, id, false);
        }
        self.undone.push(self.exchange_view(id, &exchange));
    }

    pub(super) fn op_cancel(&mut self, caller: &Caller, id: ExchangeId) -> Result<(), Refusal> {
        let exchange = self.exchanges.get(&id).ok_or(Refusal::UnknownExchange(id))?;
        let (a, b) = (exchange.a, exchange.b);
        let first = self.check_permission(caller, a, Permission::Change);
        if first.is_err() && self.check_permission(caller, b, Permission::Change).is_err() {
            first?;
        }
        self.undo(id);
        Ok(())
    }

    // Who is watched: whoever gave something away, and every issuer above, so that a change finds them.

    pub(super) fn is_watched(&self, node: u32, resource: Resource) -> bool {
        self.rare(node, resource).is_some_and(|rare| !rare.gives.is_empty() || !rare.watched.is_empty())
    }

    fn set_gives(&mut self, node: u32, resource: Resource, id: ExchangeId, gives: bool) {
        let was_watched = self.is_watched(node, resource);
        let rare = self.rare_mut(node, resource);
        if gives {
            rare.gives.insert(id);
        } else {
            rare.gives.remove(&id);
        }
        self.spread_watch(node, resource, was_watched);
    }

    /// Tells the issuer of `ticket` whether its holder is watched; at most [`super::CURRENCY_DEPTH_MAX`] calls deep.
    pub(super) fn watch(&mut self, ticket: u32, watched: bool) {
        let (issuer, resource) = (self.tickets[ticket].issuer, self.tickets[ticket].resource);
        let was_watched = self.is_watched(issuer, resource);
        let rare = self.rare_mut(issuer, resource);
        if watched {
            rare.watched.insert(ticket);
        } else {
            rare.watched.remove(&ticket);
        }
        self.spread_watch(issuer, resource, was_watched);
    }

    fn spread_watch(&mut self, node: u32, resource: Resource, was_watched: bool) {
        let watched = self.is_watched(node, resource);
        if watched == was_watched {
            return;
        }
        let tickets: Vec<u32> = self.backing(node, resource).collect();
        for ticket in tickets {
            self.watch(ticket, watched);
        }
    }

    /// Undoes what is no longer covered, newest first, until nobody's total is negative.
    ///
    /// Source: section 3.2.2: an exchange ends when a party "loses the resource rights that it traded away". Only parties
    /// below a changed pool are looked at. We differ: an idle party is judged as if it were awake. Else it could trade away
    /// rights that it has only while its siblings sleep, fall asleep, and leave them with nothing when they wake.
    pub(super) fn settle(&mut self) {
        while !self.dirty.is_empty() {
            let mut below: Vec<(u32, Resource)> = core::mem::take(&mut self.dirty);
            below.sort_unstable();
            below.dedup();
            let mut seen: BTreeSet<(u32, Resource)> = below.iter().copied().collect();
            let mut newest = None;
            while let Some((node, resource)) = below.pop() {
                newest = newest.max(self.uncovered(node, resource));
                let Some(rare) = self.rare(node, resource) else { continue };
                for &ticket in &rare.watched {
                    let holder = (self.tickets[ticket].holder, resource);
                    if seen.insert(holder) {
                        below.push(holder);
                    }
                }
            }
            if let Some(exchange) = newest {
                self.undo(exchange);
                // The others are looked at again, now without it.
                self.dirty.extend(seen);
            }
        }
    }

    /// The newest exchange that must end because of `node`'s total.
    fn uncovered(&mut self, node: u32, resource: Resource) -> Option<ExchangeId> {
        let rare = self.rare(node, resource)?;
        let (newest, burden) = (rare.gives.last().copied(), rare.burden);
        if self.active(node, resource) {
            if burden >= 0 || !self.node_value(node, resource).is_negative() {
                return None;
            }
            return self.through(node, resource, |rare| &rare.gives).pop();
        }
        newest.filter(|_| Scratch::awake(self, node, resource).value(node).is_negative())
    }
}

impl Exchange {
    /// Who gives what to whom, both ways.
    pub(super) const fn sides(&self) -> [(u32, u32, Side); 2] {
        [(self.a, self.b, self.a_gives), (self.b, self.a, self.b_gives)]
    }
}
