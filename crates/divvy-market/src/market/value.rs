//! Base values: computed when read, and again only where something changed.
//!
//! A currency's *price* is what one of its active soft tickets is worth. Every change of a pool's inputs (its tickets,
//! which of them are active, its exchanges) marks its price stale and counts up the market's clock. A price that is read
//! asks the issuers that back it first, up to the base; it is computed again where it is stale or where one of theirs
//! changed since it was last looked at. So one operation costs a mark, and a read costs the way up.

use super::{BASE, Market, PARTS_PER_TICKET};
use crate::op::{CurrencyId, Kind, Refusal, TicketId};
use crate::ratio::Ratio;
use crate::resource::Resource;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// What a pool was worth when it was last looked at.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    value: Ratio,
    /// Of an active soft ticket; zero where there is none.
    price: Ratio,
    /// What of the value comes on paths of hard tickets from the base.
    reserved: Ratio,
    /// Hard tickets are worth `value * amount / total`.
    total: u32,
    /// The market's clock at the last look, and at the last look that found a change.
    seen: u64,
    changed: u64,
    /// Whether an input of its own changed since.
    stale: bool,
}

impl Market {
    /// The base value of a currency or client: what its active tickets and its exchanges are worth in base tickets.
    /// Zero where it is inactive. For the base currency: what its active tickets are worth together.
    ///
    /// Cost: a look at each ticket on the ways to the base, of which only changed ones are computed again.
    ///
    /// # Errors
    /// [`Refusal::UnknownCurrency`].
    pub fn value(&mut self, currency: CurrencyId, resource: Resource) -> Result<Ratio, Refusal> {
        let node = self.node(currency)?;
        if node == BASE {
            let tickets: Vec<u32> = self.issued(BASE, resource).collect();
            let mut sum = Ratio::ZERO;
            for ticket in tickets {
                sum += &self.ticket_value_of(ticket);
            }
            return Ok(sum);
        }
        Ok(self.node_value(node, resource))
    }

    /// What a client counts for when it is scheduled: its value, raised by its compensation. Zero where it is idle, also
    /// while it lends its rights to whom it waits for.
    ///
    /// # Errors
    /// [`Refusal::UnknownCurrency`] and [`Refusal::NotAClient`].
    pub fn weight(&mut self, client: CurrencyId, resource: Resource) -> Result<Ratio, Refusal> {
        let node = self.client(client)?;
        if !self.nodes[node].competes.contains(resource) {
            return Ok(Ratio::ZERO);
        }
        let value = self.node_value(node, resource);
        let compensation = self.rare(node, resource).and_then(|rare| rare.compensation);
        Ok(compensation.map_or(value.clone(), |(used, quantum)| value.mul_div(quantum, used)))
    }

    /// The base value of a ticket; zero while it is inactive.
    ///
    /// # Errors
    /// [`Refusal::UnknownTicket`].
    pub fn ticket_value(&mut self, ticket: TicketId) -> Result<Ratio, Refusal> {
        let ticket = self.ticket(ticket)?;
        Ok(self.ticket_value_of(ticket))
    }

    /// Notes that an input of `node`'s value or price changed.
    pub(super) fn touch(&mut self, node: u32, resource: Resource) {
        self.clock += 1;
        self.mark(node, resource);
        let Some(pool) = self.pool(node, resource) else { return };
        // The base's price moves only while it has hard tickets; else every ticket of it is worth its amount. What it was when somebody last
        // relied on it is not known of a market that was read back.
        let moves =
            node != BASE || pool.issued_hard > 0 || pool.cache.as_ref().is_none_or(|c| c.price != Ratio::ONE);
        let follow = moves
            && pool.rare.as_ref().is_some_and(|rare| !rare.watched.is_empty() || !rare.gives.is_empty());
        if follow {
            self.dirty.push((node, resource));
        }
        if let Some(cache) = &mut self.pool_mut(node, resource).cache {
            cache.stale = true;
        }
    }

    pub(super) fn ticket_value_of(&mut self, ticket: u32) -> Ratio {
        let (issuer, resource) = (self.tickets[ticket].issuer, self.tickets[ticket].resource);
        if !self.tickets[ticket].active {
            return Ratio::ZERO;
        }
        self.refresh(issuer, resource);
        self.ticket_value_seen(ticket)
    }

    /// As [`Market::ticket_value_of`], where the issuer was just refreshed and the ticket is active.
    fn ticket_value_seen(&self, ticket: u32) -> Ratio {
        let ticket = &self.tickets[ticket];
        let amount = u64::from(ticket.amount);
        let pool = self.pool(ticket.issuer, ticket.resource).expect("whoever issued has a pool");
        let cache = pool.cache.as_ref().expect("it was refreshed");
        match ticket.kind {
            Kind::Soft | Kind::Transfer => cache.price.mul_div(amount, 1),
            Kind::Hard => cache.value.mul_div(amount, pool.hard_total.into()),
        }
    }

    /// What `node`, which is not the base, is worth.
    pub(super) fn node_value(&mut self, node: u32, resource: Resource) -> Ratio {
        if !self.active(node, resource) {
            return Ratio::ZERO;
        }
        let mut ticket = self.first_backing(node, resource);
        while let Some(here) = ticket {
            self.refresh(self.tickets[here].issuer, resource);
            ticket = self.next_backing(here);
        }
        self.node_value_seen(node, resource)
    }

    /// As [`Market::node_value`], where every issuer was just refreshed and `node` is active.
    fn node_value_seen(&self, node: u32, resource: Resource) -> Ratio {
        let mut value = self.burden(node, resource);
        for ticket in self.backing(node, resource) {
            value += &self.ticket_value_seen(ticket);
        }
        value
    }

    /// What `node`, whose value was just asked for, has on paths of active hard tickets from the base; nothing where it is
    /// inactive.
    pub(super) fn reserved(&self, node: u32, resource: Resource) -> Ratio {
        let mut sum = Ratio::ZERO;
        if !self.active(node, resource) {
            return sum;
        }
        for ticket in self.backing(node, resource) {
            let ticket = &self.tickets[ticket];
            if ticket.active && ticket.kind == Kind::Hard {
                let pool = self.pool(ticket.issuer, resource).expect("whoever issued has a pool");
                let cache = pool.cache.as_ref().expect("it was refreshed");
                if !cache.reserved.is_zero() {
                    sum += &cache.reserved.mul_div(u64::from(ticket.amount), pool.hard_total.into());
                }
            }
        }
        sum
    }

    /// Whether what tickets of `node` are worth is another than when the clock said `seen`, as far as was looked.
    pub(super) fn changed_since(&self, node: u32, resource: Resource, seen: u64) -> bool {
        let cache = self.pool(node, resource).and_then(|pool| pool.cache.as_ref());
        cache.is_none_or(|cache| cache.changed > seen)
    }

    /// The exchange tickets that count at `node`.
    pub(super) fn burden(&self, node: u32, resource: Resource) -> Ratio {
        self.rare(node, resource).map_or(Ratio::ZERO, |rare| Ratio::of_parts(rare.burden, PARTS_PER_TICKET))
    }

    /// Brings the cache of a node that issued tickets up to date. At most [`super::CURRENCY_DEPTH_MAX`] calls deep.
    pub(super) fn refresh(&mut self, node: u32, resource: Resource) {
        let before = self.pool(node, resource).and_then(|pool| pool.cache.as_ref());
        let (seen, mut stale) = before.map_or((0, true), |cache| (cache.seen, cache.stale));
        if !stale && seen == self.clock {
            return;
        }
        let active = self.active(node, resource);
        if node != BASE && active {
            let mut ticket = self.first_backing(node, resource);
            while let Some(here) = ticket {
                let issuer = self.tickets[here].issuer;
                self.refresh(issuer, resource);
                let cache = self.pool(issuer, resource).and_then(|pool| pool.cache.as_ref());
                stale |= cache.is_none_or(|cache| cache.changed > seen);
                ticket = self.next_backing(here);
            }
        }
        let clock = self.clock;
        if stale {
            let value = match (node, active) {
                (BASE, _) => Ratio::from(u64::from(self.hard(BASE, resource).1)),
                (_, true) => self.node_value_seen(node, resource),
                (_, false) => Ratio::ZERO,
            };
            let price = self.price(node, resource, &value);
            let reserved = match self.hard(BASE, resource) {
                (0, _) => Ratio::ZERO,
                (_, total) if node == BASE => u64::from(total).into(),
                _ => self.reserved(node, resource),
            };
            let pool = self.pool_mut(node, resource);
            let total = pool.hard_total;
            let same = |old: &&Cache| {
                old.value == value && old.price == price && old.reserved == reserved && old.total == total
            };
            let changed = pool.cache.as_deref().filter(same).map_or(clock, |old| old.changed);
            let cache = Cache { value, price, reserved, total, seen: clock, changed, stale: false };
            match &mut pool.cache {
                Some(old) => **old = cache,
                none => *none = Some(Box::new(cache)),
            }
        } else if let Some(cache) = &mut self.pool_mut(node, resource).cache {
            cache.seen = clock;
        }
    }

    /// What an active soft ticket is worth where the node is worth `value`. A base that issued no hard ticket is worth
    /// what it issued.
    fn price(&self, node: u32, resource: Resource, value: &Ratio) -> Ratio {
        let Some(pool) = self.pool(node, resource) else { return Ratio::ZERO };
        soft_price(node == BASE, value, (pool.issued_hard, pool.hard_total), pool.active_soft)
    }

    /// What all clients that compete for `resource` are worth together: the whole that a client's value is a part of.
    ///
    /// It is what the base's active tickets are worth and what exchanges added, less what hard tickets of idle holders
    /// keep from everybody. So it is no sum over the clients, whose fractions together would be very long. Cost: a look at
    /// each currency and client.
    pub fn total(&mut self, resource: Resource) -> Ratio {
        let issuers: Vec<u32> = self.nodes.iter().map(|(index, _)| index).collect();
        let mut total = Ratio::ZERO;
        for node in issuers {
            if !self.active(node, resource) {
                continue;
            }
            total += &self.burden(node, resource);
            let (claimed, whole) = self.claimed(node, resource);
            if node == BASE {
                total += &Ratio::from(claimed);
            } else if claimed < whole {
                let value = self.node_value(node, resource);
                total = &total - &value.mul_div(whole - claimed, whole);
            }
        }
        total
    }

    /// How much of a node's rights its active tickets have a claim on, and the whole: hard tickets of how many, or, for a
    /// base without these, soft tickets. A node that issued nothing keeps all for itself.
    fn claimed(&self, node: u32, resource: Resource) -> (u64, u64) {
        let Some(pool) = self.pool(node, resource) else { return (0, 0) };
        let (issued, whole) = (u64::from(pool.issued_hard), u64::from(pool.hard_total));
        if issued == 0 {
            return if node == BASE { (pool.active_soft, pool.active_soft) } else { (whole, whole) };
        }
        let active = |&ticket: &u32| self.tickets[ticket].active && self.tickets[ticket].kind == Kind::Hard;
        let hard =
            self.issued(node, resource).filter(active).map(|ticket| u64::from(self.tickets[ticket].amount));
        (hard.sum::<u64>() + if pool.active_soft > 0 { whole - issued } else { 0 }, whole)
    }

    pub(super) fn competitors(&self, resource: Resource) -> Vec<u32> {
        let competing = self.nodes.iter().filter(|(_, node)| node.competes.contains(resource));
        competing.map(|(index, _)| index).collect()
    }

    /// The clients that compete for `resource`, each with a whole number of `scale` equal parts of what all weigh
    /// together, by largest remainder (ties to the smaller id). A client that weighs nothing has 0 parts. For a scheduler
    /// that takes integer shares.
    pub fn apportion(&mut self, resource: Resource, scale: u32) -> Vec<(CurrencyId, u64)> {
        let clients = self.competitors(resource);
        let mut weights = Vec::with_capacity(clients.len());
        let mut total = self.total(resource);
        for client in clients {
            let id = self.currency_id(client);
            let weight = self.weight(id, resource).unwrap_or(Ratio::ZERO);
            if self.rare(client, resource).is_some_and(|rare| rare.compensation.is_some()) {
                total += &(&weight - &self.node_value(client, resource));
            }
            weights.push((id, weight));
        }
        let mut parts = Vec::with_capacity(weights.len());
        let mut rests = Vec::with_capacity(weights.len());
        let mut left = u64::from(scale);
        for (index, (id, weight)) in weights.into_iter().enumerate() {
            let exact = weight.over(&total).map_or(Ratio::ZERO, |part| part.mul_div(scale.into(), 1));
            let whole = exact.floor().and_then(|whole| u64::try_from(whole).ok()).unwrap_or(0);
            left -= whole;
            rests.push((&Ratio::from(whole) - &exact, index));
            parts.push((id, whole));
        }
        if total.is_zero() {
            return parts;
        }
        rests.sort();
        for (_, index) in rests.into_iter().take(left as usize) {
            parts[index].1 += 1;
        }
        parts
    }
}

/// What one of `soft` soft tickets is worth, where the issuer is worth `value` and `issued` of `total` hard tickets are
/// out: `value * (total - issued) / total / soft`. The subtrahend is the paper's `soft_tix` currency (section 2.4).
pub(super) fn soft_price(is_base: bool, value: &Ratio, (issued, total): (u32, u32), soft: u64) -> Ratio {
    if is_base && issued == 0 {
        return Ratio::ONE;
    }
    if soft == 0 {
        return Ratio::ZERO;
    }
    if issued == 0 {
        value.mul_div(1, soft)
    } else {
        value.mul_div((total - issued).into(), total.into()).mul_div(1, soft)
    }
}
