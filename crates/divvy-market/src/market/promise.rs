//! What was promised, were everybody active; and the values as whole numbers for a scheduler.

use super::scratch::Scratch;
use super::{BASE, Market};
use crate::op::CurrencyId;
use crate::ratio::{Ratio, gcd};
use crate::resource::Resource;
use alloc::vec::Vec;

/// Values were every client competing, nobody waiting for anybody and nothing exchanged. Each is worked out once, however
/// many are asked for.
pub struct Promises<'a> {
    market: &'a Market,
    resource: Resource,
    scratch: Scratch<'a>,
}

impl Promises<'_> {
    /// What `currency` would be worth; for the base, what all its tickets would be worth together. `None` where it has
    /// ended.
    pub fn value(&mut self, currency: CurrencyId) -> Option<Ratio> {
        match self.market.node(currency).ok()? {
            BASE => Some(self.total()),
            node => Some(self.scratch.value(node)),
        }
    }

    /// What all the base's tickets would be worth: the whole that what was promised to a currency is a part of.
    #[must_use]
    pub fn total(&self) -> Ratio {
        let Some(pool) = self.market.pool(BASE, self.resource) else { return Ratio::ZERO };
        if pool.issued_hard == 0 {
            return pool.issued_soft.into();
        }
        let soft = if pool.issued_soft > 0 { pool.hard_total - pool.issued_hard } else { 0 };
        u64::from(pool.issued_hard + soft).into()
    }
}

impl Market {
    /// What each currency has a right to once everybody is active. Cost: a look at each ticket above those asked for.
    #[must_use]
    pub const fn promises(&self, resource: Resource) -> Promises<'_> {
        Promises { market: self, resource, scratch: Scratch::nominal(self, resource, 0) }
    }

    /// How many of a currency's hard tickets are out, and how many are the whole of its rights; `None` where it has ended.
    #[must_use]
    pub fn hard_tickets(&self, currency: CurrencyId, resource: Resource) -> Option<(u64, u64)> {
        let (issued, total) = self.hard(self.node(currency).ok()?, resource);
        Some((issued.into(), total.into()))
    }

    /// Whether so many more currencies and tickets have a place. Only a market of 2^32 of them has none.
    #[must_use]
    pub fn has_room(&self, currencies: usize, tickets: usize) -> bool {
        self.check_room(currencies, tickets).is_ok()
    }

    /// Whole numbers for a scheduler that takes integer shares: what the clients that compete for `resource` weigh.
    ///
    /// Where the smallest whole numbers that are to each other exactly as the weights add up to at most `scale`, it is
    /// these: two clients at 1000/3 and 2000/3 come out as 1 and 2, and a cycle of theirs is short. Where they are larger,
    /// the shares are [`Market::apportion`]'s parts of `scale`, off by less than one part each.
    ///
    /// A client that weighs anything at all never comes out as 0: a scheduler would not run it, and a right however small
    /// is a right. What would be less than a part is one part, so with `n` such clients the sum can be `scale + n`, and
    /// whoever has `s` parts is served at least `s / (scale + n)` of all. A client that weighs nothing has 0.
    pub fn shares(&mut self, resource: Resource, scale: u32) -> Vec<(CurrencyId, u64)> {
        let clients: Vec<CurrencyId> =
            self.competitors(resource).into_iter().map(|node| self.currency_id(node)).collect();
        let mut weights = Vec::with_capacity(clients.len());
        for client in clients {
            weights.push((client, self.weight(client, resource).unwrap_or(Ratio::ZERO)));
        }
        if let Some(exact) = smallest(&weights, scale) {
            return exact;
        }
        let mut parts = self.apportion(resource, scale);
        // Both lists are of the same clients in the same order.
        for ((_, part), (_, weight)) in parts.iter_mut().zip(&weights) {
            if *part == 0 && !weight.is_zero() {
                *part = 1;
            }
        }
        parts
    }

    /// What the clients that compete for `resource` weigh, in parts of a base ticket, rounded down; one that weighs anything
    /// has at least one part, and none more than a `u64` holds. Unlike [`Market::shares`], the number of one client
    /// changes only where its own rights do.
    pub fn weights_in_parts(&mut self, resource: Resource, parts: u64) -> Vec<(CurrencyId, u64)> {
        let clients: Vec<CurrencyId> =
            self.competitors(resource).into_iter().map(|node| self.currency_id(node)).collect();
        let mut weights = Vec::with_capacity(clients.len());
        for client in clients {
            let weight = self.weight(client, resource).unwrap_or(Ratio::ZERO);
            let whole =
                weight.mul_div(parts, 1).floor().map_or(u64::MAX, |n| u64::try_from(n).unwrap_or(u64::MAX));
            weights.push((client, if weight.is_zero() { 0 } else { whole.max(1) }));
        }
        weights
    }
}

/// The smallest whole numbers in the proportion of the weights, if they add up to at most `scale`.
fn smallest(weights: &[(CurrencyId, Ratio)], scale: u32) -> Option<Vec<(CurrencyId, u64)>> {
    let (mut denominator, mut common) = (1u128, 0u128);
    for (_, weight) in weights {
        let (_, below) = weight.small()?;
        denominator = (denominator / gcd(denominator, below)).checked_mul(below)?;
    }
    let mut scaled = Vec::with_capacity(weights.len());
    for (client, weight) in weights {
        let (above, below) = weight.small()?;
        let whole = (denominator / below).checked_mul(above)?;
        if whole != 0 {
            common = gcd(common, whole);
        }
        scaled.push((*client, whole));
    }
    let mut sum = 0u128;
    let mut shares = Vec::with_capacity(scaled.len());
    for (client, whole) in scaled {
        let share = if whole == 0 { 0 } else { whole / common };
        sum = sum.checked_add(share)?;
        shares.push((client, u64::try_from(share).ok()?));
    }
    (sum <= scale.into()).then_some(shares)
}
