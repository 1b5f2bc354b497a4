//! What clients have a right to of a resource that is kept for them rather than dealt out in turns: memory, say.
//!
//! *Idea*: of a client's base value, what comes on paths of hard tickets from the base is *reserved*: it stays as it is
//! whoever comes or goes. The rest is *shared*, and changes with who else competes. What an exchange brought or took counts
//! with what the party has of its own: with the reservation where there is one, else with the rest.
//!
//! Source: sections 2.4 and 4.4 ("all paths from the root currency to the ticket must involve only hard tickets").

use super::{BASE, Market};
use crate::op::CurrencyId;
use crate::ratio::Ratio;
use crate::resource::Resource;
use alloc::vec::Vec;

/// What of all there is of a resource a client has a right to, in parts of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Right {
    /// Whose.
    pub client: CurrencyId,
    /// Whoever comes or goes.
    pub reserved: u64,
    /// As long as nobody else competes who shares with it.
    pub shared: u64,
}

impl Market {
    /// What each client that competes for `resource` has a right to, in parts of which `whole` are all there is, rounded
    /// down: so all together have no more than the whole.
    ///
    /// All there is are the base's hard tickets, where it issued any: what soft tickets nobody has, or sleepers keep,
    /// is nobody's then. Else all there is belongs to those who compete. Cost: a look at each currency and client, and at
    /// each ticket above those with a hard one.
    pub fn rights_in_parts(&mut self, resource: Resource, whole: u64) -> Vec<Right> {
        let (issued, total) = self.hard(BASE, resource);
        let mut all = self.total(resource);
        if issued > 0 {
            // Where somebody idle gave something away, more than the hard total is had just now.
            all = all.max(Ratio::from(u64::from(total)));
        }
        let clients = self.competitors(resource);
        let mut rights = Vec::with_capacity(clients.len());
        for node in clients {
            let value = self.node_value(node, resource);
            let reserved = self.reserved_of(node, resource, &value);
            let parts = |right: &Ratio| {
                let part = right.over(&all)?.mul_div(whole, 1).floor()?;
                u64::try_from(part).ok()
            };
            rights.push(Right {
                client: self.currency_id(node),
                reserved: parts(&reserved).unwrap_or(0),
                shared: parts(&(&value - &reserved)).unwrap_or(0),
            });
        }
        rights
    }

    /// What of the `value` of a client, which was just asked for, is reserved, with what exchanges brought or took.
    pub(super) fn reserved_of(&self, node: u32, resource: Resource, value: &Ratio) -> Ratio {
        let reserved = self.reserved(node, resource);
        if reserved.is_zero() {
            return reserved;
        }
        (&reserved + &self.burden(node, resource)).clamp(Ratio::ZERO, value.clone())
    }
}
