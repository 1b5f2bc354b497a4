//! Values of markets that are not: were everybody active, or were one idle party awake.

use super::value::soft_price;
use super::{BASE, Lodged, Market, PARTS_PER_TICKET, Ticket};
use crate::op::Kind;
use crate::ratio::Ratio;
use crate::resource::Resource;
use alloc::collections::{BTreeMap, BTreeSet};

/// What is different from the market as it is.
enum Supposition {
    /// Every ticket is active, exchanges and transfers are left out, and the base issued so many soft tickets more.
    AllActive { more: u64 },
    /// These inactive tickets are active too; their amounts add up to these sums, by issuer; and these parts of exchange
    /// tickets are back with whom they belong to, by the node that they left.
    Awake { tickets: BTreeSet<u32>, soft: BTreeMap<u32, u64>, returned: BTreeMap<u32, i128> },
}

/// Values under a supposition, each computed once.
pub(super) struct Scratch<'a> {
    market: &'a Market,
    resource: Resource,
    supposition: Supposition,
    values: BTreeMap<u32, Ratio>,
}

impl<'a> Scratch<'a> {
    /// As if every client competed and nobody had exchanged anything: the paper's *nominal* values.
    pub(super) const fn nominal(market: &'a Market, resource: Resource, more: u64) -> Self {
        Self { market, resource, supposition: Supposition::AllActive { more }, values: BTreeMap::new() }
    }

    /// As if `node`, which is idle, competed.
    pub(super) fn awake(market: &'a Market, node: u32, resource: Resource) -> Self {
        let (mut tickets, mut soft, mut returned) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
        let mut woken = alloc::vec![node];
        let mut seen = BTreeSet::from([node]);
        while let Some(node) = woken.pop() {
            for index in market.backing(node, resource) {
                let Ticket { kind, amount, issuer, .. } = market.tickets[index];
                tickets.insert(index);
                if kind != Kind::Hard {
                    *soft.entry(issuer).or_default() += u64::from(amount);
                }
                if let Some(Lodged { part, .. }) = market.lodged.get(&index) {
                    *returned.entry(issuer).or_default() += part;
                }
                if issuer != BASE && !market.active(issuer, resource) && seen.insert(issuer) {
                    woken.push(issuer);
                }
            }
        }
        let supposition = Supposition::Awake { tickets, soft, returned };
        Self { market, resource, supposition, values: BTreeMap::new() }
    }

    fn counts(&self, index: u32) -> bool {
        let ticket = &self.market.tickets[index];
        match &self.supposition {
            Supposition::AllActive { .. } => ticket.kind != Kind::Transfer,
            Supposition::Awake { tickets, .. } => ticket.active || tickets.contains(&index),
        }
    }

    fn price(&mut self, node: u32) -> Ratio {
        let Some(pool) = self.market.pool(node, self.resource) else { return Ratio::ZERO };
        let (hard, issued, active) =
            ((pool.issued_hard, pool.hard_total), pool.issued_soft, pool.active_soft);
        let soft = match &self.supposition {
            Supposition::AllActive { more } => issued + if node == BASE { *more } else { 0 },
            Supposition::Awake { soft, .. } => active + soft.get(&node).copied().unwrap_or(0),
        };
        let value = self.value(node);
        soft_price(node == BASE, &value, hard, soft)
    }

    /// What `node` would be worth. At most [`super::CURRENCY_DEPTH_MAX`] calls deep.
    pub(super) fn value(&mut self, node: u32) -> Ratio {
        let (_, total) = self.market.hard(node, self.resource);
        if node == BASE {
            return u64::from(total).into();
        }
        if let Some(value) = self.values.get(&node) {
            return value.clone();
        }
        let mut value = match &self.supposition {
            Supposition::AllActive { .. } => Ratio::ZERO,
            Supposition::Awake { returned, .. } => {
                let burden = self.market.rare(node, self.resource).map_or(0, |rare| rare.burden);
                let returned = returned.get(&node).copied().unwrap_or(0);
                Ratio::of_parts(burden - returned, PARTS_PER_TICKET)
            }
        };
        for ticket in self.market.backing(node, self.resource) {
            value += &self.ticket(ticket);
        }
        self.values.insert(node, value.clone());
        value
    }

    /// What a ticket would be worth.
    pub(super) fn ticket(&mut self, index: u32) -> Ratio {
        if !self.counts(index) {
            return Ratio::ZERO;
        }
        let Ticket { kind, amount, issuer, .. } = self.market.tickets[index];
        match kind {
            Kind::Soft | Kind::Transfer => self.price(issuer).mul_div(amount.into(), 1),
            Kind::Hard => {
                let (_, total) = self.market.hard(issuer, self.resource);
                self.value(issuer).mul_div(amount.into(), total.into())
            }
        }
    }

    /// What one more soft ticket of the base would be worth.
    pub(super) fn base_price(&mut self) -> Ratio {
        if self.market.pool(BASE, self.resource).is_none() { Ratio::ONE } else { self.price(BASE) }
    }
}
