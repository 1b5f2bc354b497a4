//! The market's books, checked from the tickets up.

use super::{BASE, CURRENCY_DEPTH_MAX, Market, NodeKind, PARTS_PER_TICKET, Ticket};
use crate::op::{CurrencyId, ExchangeId, Kind, TicketId};
use crate::ratio::Ratio;
use crate::resource::Resource;
use alloc::collections::BTreeMap;

/// A law of the market that does not hold: a bug, never a caller's fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A currency's sums are not those of its tickets.
    Sums(CurrencyId, Resource),
    /// A ticket is active and its holder is not, or the other way round.
    Activity(TicketId),
    /// The active tickets of a currency are not worth what it is worth together (less what is reserved).
    Conservation(CurrencyId, Resource),
    /// A total below zero.
    Negative(CurrencyId, Resource),
    /// Exchange tickets that do not add up: at a party, or those that idle parties passed on.
    Burden(CurrencyId, Resource),
    /// An exchange that only one party knows.
    Exchange(ExchangeId),
    /// A depth that is not one more than the deepest issuer's, or too deep.
    Depth(CurrencyId),
}

#[derive(Default)]
struct Sums {
    soft: u64,
    active_soft: u64,
    hard: u64,
    active_hard: u64,
    active: u32,
    lodged: i128,
    depth: u16,
}

impl Market {
    /// Works every sum and law out again from the tickets: what a daemon may run now and then, and tests after each
    /// operation. Cost: all tickets.
    ///
    /// # Errors
    /// The first law that does not hold.
    pub fn audit(&mut self) -> Result<(), Fault> {
        for (&id, exchange) in &self.exchanges {
            for (giver, taker, side) in exchange.sides() {
                let known =
                    |node| self.rare(node, side.resource).is_some_and(|rare| rare.exchanges.contains(&id));
                if !known(giver) || !known(taker) {
                    return Err(Fault::Exchange(id));
                }
            }
        }
        for resource in Resource::ALL {
            let sums = self.audit_tickets(resource)?;
            let nodes: alloc::vec::Vec<u32> = self.nodes.iter().map(|(index, _)| index).collect();
            for node in nodes {
                let none = Sums::default();
                let sums = sums.get(&node).unwrap_or(&none);
                self.audit_sums(node, resource, sums)?;
                self.audit_value(node, resource, sums)?;
            }
        }
        self.audit_depth()
    }

    fn audit_tickets(&self, resource: Resource) -> Result<BTreeMap<u32, Sums>, Fault> {
        let mut sums: BTreeMap<u32, Sums> = BTreeMap::new();
        for (index, ticket) in self.tickets.iter().filter(|(_, ticket)| ticket.resource == resource) {
            let Ticket { kind, active, amount, issuer, holder, .. } = *ticket;
            if active != self.active(holder, resource) {
                return Err(Fault::Activity(self.ticket_id(index)));
            }
            let sum = sums.entry(issuer).or_default();
            let (all, counted) = match kind {
                Kind::Soft | Kind::Transfer => (&mut sum.soft, &mut sum.active_soft),
                Kind::Hard => (&mut sum.hard, &mut sum.active_hard),
            };
            *all += u64::from(amount);
            if active {
                *counted += u64::from(amount);
                sum.active += 1;
            }
            sum.lodged += self.lodged.get(&index).map_or(0, |lodged| lodged.part);
        }
        Ok(sums)
    }

    fn audit_sums(&self, node: u32, resource: Resource, sums: &Sums) -> Result<(), Fault> {
        let id = self.currency_id(node);
        let Some(pool) = self.pool(node, resource) else {
            return if sums.soft + sums.hard == 0 { Ok(()) } else { Err(Fault::Sums(id, resource)) };
        };
        let mut held: i128 = if node == BASE { 0 } else { sums.lodged };
        for (&exchange, gives) in
            pool.rare.iter().flat_map(|rare| rare.exchanges.iter().map(|id| (id, rare.gives.contains(id))))
        {
            let exchange = self.exchanges.get(&exchange).ok_or(Fault::Exchange(exchange))?;
            let sides = exchange.sides();
            let side = sides
                .iter()
                .find(|(.., side)| side.resource == resource)
                .map(|&(giver, _, side)| (giver, side));
            let (giver, side) = side.ok_or(Fault::Burden(id, resource))?;
            if gives != (giver == node) {
                return Err(Fault::Burden(id, resource));
            }
            let parts = i128::from(side.amount.get() * PARTS_PER_TICKET);
            held += if gives { -parts } else { parts };
        }
        let passed = self.backing(node, resource).filter_map(|ticket| self.lodged.get(&ticket));
        let passed = passed.fold(None, |sum: Option<i128>, lodged| Some(sum.unwrap_or(0) + lodged.part));
        let burden = pool.rare.as_ref().map_or(0, |rare| rare.burden);
        // Who is active keeps all; who is idle passed all of it on, or has no funder.
        let right = held == burden
            && match passed {
                None => self.active(node, resource) || burden == 0 || pool.backing == crate::slab::NONE,
                Some(passed) => !self.active(node, resource) && passed == burden,
            };
        if !right {
            return Err(Fault::Burden(id, resource));
        }
        let counted = (pool.issued_soft, pool.active_soft, u64::from(pool.issued_hard), pool.active_issued);
        let within = pool.issued_hard <= pool.hard_total;
        if counted != (sums.soft, sums.active_soft, sums.hard, sums.active) || !within {
            return Err(Fault::Sums(id, resource));
        }
        Ok(())
    }

    /// What the node's tickets are worth is what the node is worth, less what no active ticket has a claim on.
    fn audit_value(&mut self, node: u32, resource: Resource, sums: &Sums) -> Result<(), Fault> {
        let id = self.currency_id(node);
        let (issued, total) = self.hard(node, resource);
        let value = match node {
            BASE if issued == 0 => Ratio::from(sums.active_soft),
            BASE => u64::from(total).into(),
            _ => self.node_value(node, resource),
        };
        if value.is_negative() {
            return Err(Fault::Negative(id, resource));
        }
        let mut tickets = Ratio::ZERO;
        let active: alloc::vec::Vec<u32> =
            self.issued(node, resource).filter(|&ticket| self.tickets[ticket].active).collect();
        for ticket in active {
            tickets += &self.ticket_value_of(ticket);
        }
        let soft = if sums.active_soft > 0 { u64::from(total) - sums.hard } else { 0 };
        let claimed = value.mul_div(sums.active_hard + soft, total.into());
        if tickets != claimed {
            return Err(Fault::Conservation(id, resource));
        }
        Ok(())
    }

    fn audit_depth(&self) -> Result<(), Fault> {
        let mut sums: BTreeMap<u32, Sums> = BTreeMap::new();
        for (_, ticket) in self.tickets.iter() {
            let sum = sums.entry(ticket.holder).or_default();
            sum.depth = sum.depth.max(self.nodes[ticket.issuer].depth + 1);
        }
        for (index, node) in self.nodes.iter() {
            let depth = sums.get(&index).map_or(0, |sum| sum.depth);
            let base = node.kind == NodeKind::Base;
            if node.depth != depth || depth > CURRENCY_DEPTH_MAX || base != (index == BASE) {
                return Err(Fault::Depth(self.currency_id(index)));
            }
        }
        Ok(())
    }
}
