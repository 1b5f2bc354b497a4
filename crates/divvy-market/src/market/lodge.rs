//! Exchange tickets of idle parties: they count at the funders until the party wakes.
//!
//! Source: section 3.2.2, last sentence but one: where a party's tickets for a resource are deactivated, "the funding it
//! has obtained through exchanges for that resource is temporarily transferred to the principal's other funders". We do
//! so with what it gave away as well, in proportion to what each funder gives the party, and a funder that is idle
//! itself passes the tickets on. What reaches the base currency counts nowhere: with the party, all that it was funded
//! with is off.
//!
//! The proportion is what the party's tickets were nominally worth when it went idle, and stays until it wakes. So one
//! funder cannot push a debt over to another by issuing more tickets. A funder that takes its ticket away from an idle
//! party ends the exchanges that the ticket carried.

use super::scratch::Scratch;
use super::{BASE, Lodged, Market, Rare};
use crate::op::ExchangeId;
use crate::ratio::Ratio;
use crate::resource::Resource;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Weights of one party's tickets add up to about this. Their products with each other stay far inside 128 bits.
const WEIGHTS: u64 = 1 << 30;

impl Market {
    /// Gives the burden of `node`, which is inactive, to its funders.
    pub(super) fn lodge(&mut self, node: u32, resource: Resource) {
        if self.rare(node, resource).is_none_or(|rare| rare.burden == 0) {
            return;
        }
        let tickets: Vec<u32> = self.backing(node, resource).collect();
        if tickets.is_empty() {
            return;
        }
        if !tickets.iter().any(|ticket| self.lodged.contains_key(ticket)) {
            let mut scratch = Scratch::nominal(self, resource, 0);
            let values: Vec<Ratio> = tickets.iter().map(|&ticket| scratch.ticket(ticket)).collect();
            let mut total = Ratio::ZERO;
            values.iter().for_each(|value| total += value);
            for (&ticket, value) in tickets.iter().zip(&values) {
                let part = value.over(&total).and_then(|part| part.mul_div(WEIGHTS, 1).floor());
                // Where no ticket is worth anything, each carries as much as the others.
                let weight = part.map_or(1, |weight| weight as u64);
                self.lodged.insert(ticket, Lodged { weight, part: 0 });
            }
        }
        self.divide(node, resource);
    }

    /// Divides `node`'s burden by the weights of its tickets; the parts add up to it exactly.
    fn divide(&mut self, node: u32, resource: Resource) {
        let burden = self.rare(node, resource).map_or(0, |rare| rare.burden);
        let carriers: Vec<u32> =
            self.backing(node, resource).filter(|ticket| self.lodged.contains_key(ticket)).collect();
        // Where those that were worth something are gone, the rest carry equally.
        let worth: u64 = carriers.iter().map(|ticket| self.lodged[ticket].weight).sum();
        let weigh = |lodged: &Lodged| if worth == 0 { 1 } else { u128::from(lodged.weight) };
        let total: u128 = carriers.iter().map(|ticket| weigh(&self.lodged[ticket])).sum();
        let size = burden.unsigned_abs();
        let (mut weight, mut given) = (0u128, 0u128);
        for ticket in carriers {
            weight += weigh(&self.lodged[&ticket]);
            let until_here = size / total * weight + size % total * weight / total;
            let part = (until_here - given).cast_signed() * burden.signum();
            given = until_here;
            let lodged = self.lodged.get_mut(&ticket).expect("filtered above");
            let more = part - lodged.part;
            lodged.part = part;
            self.add_burden(self.tickets[ticket].issuer, resource, more);
        }
    }

    /// Takes the burden of `node`, which became active, back from its funders.
    pub(super) fn unlodge(&mut self, node: u32, resource: Resource) {
        if self.lodged.is_empty() {
            return;
        }
        let tickets: Vec<u32> = self.backing(node, resource).collect();
        for ticket in tickets {
            if let Some(lodged) = self.lodged.remove(&ticket) {
                self.add_burden(self.tickets[ticket].issuer, resource, -lodged.part);
            }
        }
    }

    /// Adds exchange tickets to what counts at `node`; where it is inactive, they go on to its funders.
    pub(super) fn add_burden(&mut self, node: u32, resource: Resource, parts: i128) {
        if node == BASE || parts == 0 {
            return;
        }
        self.rare_mut(node, resource).burden += parts;
        self.touch(node, resource);
        if self.active(node, resource) {
            return;
        }
        if self.backing(node, resource).any(|ticket| self.lodged.contains_key(&ticket)) {
            self.divide(node, resource);
        } else {
            self.lodge(node, resource);
        }
    }

    /// Exchanges at `node` and at idle holders below whose tickets it has, in the order of their ids.
    pub(super) fn through(
        &self,
        node: u32,
        resource: Resource,
        which: fn(&Rare) -> &BTreeSet<ExchangeId>,
    ) -> Vec<ExchangeId> {
        let mut found = Vec::new();
        let mut below = alloc::vec![node];
        while let Some(node) = below.pop() {
            found.extend(self.rare(node, resource).into_iter().flat_map(which));
            let lodging = self.issued(node, resource).filter(|ticket| self.lodged.contains_key(ticket));
            below.extend(lodging.map(|ticket| self.tickets[ticket].holder));
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Undoes all exchanges whose tickets `node` passed on, newest first. One that goes can show others that it weighed up.
    pub(super) fn undo_through(&mut self, node: u32, resource: Resource) {
        while let Some(exchange) = self.through(node, resource, |rare| &rare.exchanges).pop() {
            self.undo(exchange);
        }
    }
}
