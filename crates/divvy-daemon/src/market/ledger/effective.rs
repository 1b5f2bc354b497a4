//! What everybody has together just now, as parts of what all clients that compete have.
//!
//! A client's part is its value. A currency's is what those have whom it funds: where several fund one, in proportion to
//! what their tickets are worth to it. So no currency has more than all, whatever it has a right to and nobody uses: what a
//! hard ticket keeps for a client that sleeps is nobody's just now (the paper, section 2.4, fixes what it stands for, and
//! not who has the rest). The same is done with what was measured (`achieved.rs`), so the two can be compared.
//!
//! For people to read: floats print here and decide nothing.

use std::collections::BTreeMap;

use divvy_market::{CurrencyId, Market, Ratio, Resource, TicketView};

/// Parts of one resource; each is worked out once.
pub(super) struct Effective<'a> {
    market: &'a mut Market,
    resource: Resource,
    /// What all have, once it is needed: a look at each currency and client.
    whole: Option<Ratio>,
    parts: BTreeMap<CurrencyId, f64>,
}

impl<'a> Effective<'a> {
    /// Of all that compete for `resource` now.
    pub(super) const fn of(market: &'a mut Market, resource: Resource) -> Self {
        Self { market, resource, whole: None, parts: BTreeMap::new() }
    }

    /// What all have together.
    fn whole(&mut self) -> &Ratio {
        self.whole.get_or_insert_with(|| self.market.total(self.resource))
    }

    /// Whether anybody has anything: mostly the first who competes has.
    fn has_any(&mut self) -> bool {
        let first = self.market.currencies().find(|view| view.competes.contains(self.resource));
        let Some(first) = first else { return false };
        self.market.value(first.id, self.resource).is_ok_and(|value| !value.is_zero())
            || !self.whole().is_zero()
    }

    /// The part of `id`, 0 to 1. Cost: a look at each ticket below it; at most [`divvy_market::CURRENCY_DEPTH_MAX`] calls
    /// deep.
    pub(super) fn part(&mut self, id: CurrencyId) -> f64 {
        if let Some(&part) = self.parts.get(&id) {
            return part;
        }
        let Some(view) = self.market.currency(id) else { return 0.0 };
        let part = if !view.active.contains(self.resource) {
            0.0
        } else if id == self.market.base() {
            if self.has_any() { 1.0 } else { 0.0 }
        } else if view.competes.contains(self.resource) {
            let value = self.market.value(id, self.resource).unwrap_or(Ratio::ZERO);
            value.over(self.whole()).map_or(0.0, |part| part.to_f64())
        } else {
            let issued = self.market.issued_by(id, self.resource);
            issued.iter().filter(|ticket| ticket.active).map(|ticket| self.through(ticket)).sum()
        };
        self.parts.insert(id, part);
        part
    }

    /// What of its holder's part a ticket stands for.
    fn through(&mut self, ticket: &TicketView) -> f64 {
        let part = self.part(ticket.holder);
        if part == 0.0 {
            return 0.0;
        }
        let backing: Vec<TicketView> =
            self.market.backing_of(ticket.holder, self.resource).into_iter().filter(|t| t.active).collect();
        if backing.len() == 1 {
            return part;
        }
        let mut worth =
            |ticket: &TicketView| self.market.ticket_value(ticket.id).map_or(0.0, |value| value.to_f64());
        let (own, all) = (worth(ticket), backing.iter().map(worth).sum::<f64>());
        if all > 0.0 {
            return part * own / all;
        }
        let amounts: f64 = backing.iter().map(|ticket| ticket.amount as f64).sum();
        part * ticket.amount as f64 / amounts.max(1.0)
    }
}
