//! The rings of tickets, cycles and depth.

use super::{BASE, CURRENCY_DEPTH_MAX, Market, Ticket};
use crate::op::{Kind, Refusal};
use crate::resource::Resource;
use crate::slab::NONE;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

impl Market {
    pub(super) fn first_backing(&self, node: u32, resource: Resource) -> Option<u32> {
        self.pool(node, resource).map(|pool| pool.backing).filter(|&ticket| ticket != NONE)
    }

    pub(super) fn first_issued(&self, node: u32, resource: Resource) -> Option<u32> {
        self.pool(node, resource).map(|pool| pool.issued).filter(|&ticket| ticket != NONE)
    }

    /// The ticket after `ticket` that backs the same holder, in the order they came.
    pub(super) fn next_backing(&self, ticket: u32) -> Option<u32> {
        let Ticket { backing_next: next, holder, resource, .. } = self.tickets[ticket];
        (Some(next) != self.first_backing(holder, resource)).then_some(next)
    }

    /// The ticket after `ticket` of the same issuer, in the order they came.
    pub(super) fn next_issued(&self, ticket: u32) -> Option<u32> {
        let Ticket { issued_next: next, issuer, resource, .. } = self.tickets[ticket];
        (Some(next) != self.first_issued(issuer, resource)).then_some(next)
    }

    pub(super) fn backing(&self, node: u32, resource: Resource) -> impl Iterator<Item = u32> + '_ {
        core::iter::successors(self.first_backing(node, resource), |&ticket| self.next_backing(ticket))
    }

    pub(super) fn issued(&self, node: u32, resource: Resource) -> impl Iterator<Item = u32> + '_ {
        core::iter::successors(self.first_issued(node, resource), |&ticket| self.next_issued(ticket))
    }

    /// Puts a ticket at the end of both rings.
    pub(super) fn link(&mut self, ticket: u32) {
        let Ticket { issuer, holder, resource, .. } = self.tickets[ticket];
        let first = self.pool_mut(issuer, resource).issued;
        if first == NONE {
            self.pool_mut(issuer, resource).issued = ticket;
            (self.tickets[ticket].issued_next, self.tickets[ticket].issued_prev) = (ticket, ticket);
        } else {
            let last = self.tickets[first].issued_prev;
            (self.tickets[ticket].issued_next, self.tickets[ticket].issued_prev) = (first, last);
            self.tickets[last].issued_next = ticket;
            self.tickets[first].issued_prev = ticket;
        }
        let first = self.pool_mut(holder, resource).backing;
        if first == NONE {
            self.pool_mut(holder, resource).backing = ticket;
            (self.tickets[ticket].backing_next, self.tickets[ticket].backing_prev) = (ticket, ticket);
        } else {
            let last = self.tickets[first].backing_prev;
            (self.tickets[ticket].backing_next, self.tickets[ticket].backing_prev) = (first, last);
            self.tickets[last].backing_next = ticket;
            self.tickets[first].backing_prev = ticket;
        }
    }

    /// Takes a ticket out of both rings.
    pub(super) fn unlink(&mut self, ticket: u32) {
        let Ticket { issuer, holder, resource, .. } = self.tickets[ticket];
        let Ticket { issued_next, issued_prev, backing_next, backing_prev, .. } = self.tickets[ticket];
        self.tickets[issued_prev].issued_next = issued_next;
        self.tickets[issued_next].issued_prev = issued_prev;
        let pool = self.pool_mut(issuer, resource);
        if pool.issued == ticket {
            pool.issued = if issued_next == ticket { NONE } else { issued_next };
        }
        self.tickets[backing_prev].backing_next = backing_next;
        self.tickets[backing_next].backing_prev = backing_prev;
        let pool = self.pool_mut(holder, resource);
        if pool.backing == ticket {
            pool.backing = if backing_next == ticket { NONE } else { backing_next };
        }
    }

    /// Refuses a ticket of `issuer` for `holder` that would close a cycle, whatever its resource, or a path too long.
    ///
    /// Source: section 2.3. The look is upward from the issuer, where the graph is narrow.
    pub(super) fn check_edge(&self, holder: u32, issuer: u32) -> Result<(), Refusal> {
        if holder == issuer {
            return Err(Refusal::Cycle { through: self.currency_id(holder) });
        }
        if self.issues_any(holder) {
            let mut seen = BTreeSet::new();
            let mut above = vec![issuer];
            while let Some(node) = above.pop() {
                for resource in Resource::ALL {
                    for ticket in self.backing(node, resource) {
                        let from = self.tickets[ticket].issuer;
                        if from == holder {
                            return Err(Refusal::Cycle { through: self.currency_id(holder) });
                        }
                        if from != BASE && seen.insert(from) {
                            above.push(from);
                        }
                    }
                }
            }
        }
        self.check_depth(holder, self.nodes[issuer].depth + 1)
    }

    /// Refuses a depth of `holder` that makes it or anything below it too deep.
    pub(super) fn check_depth(&self, holder: u32, depth: u16) -> Result<(), Refusal> {
        if depth <= self.nodes[holder].depth {
            return Ok(());
        }
        let height = if self.issues_any(holder) { self.height(holder, &mut BTreeMap::new()) } else { 0 };
        if depth.saturating_add(height) > CURRENCY_DEPTH_MAX { Err(Refusal::TooDeep) } else { Ok(()) }
    }

    /// Nodes on the longest path down from `node`, itself not counted. At most [`CURRENCY_DEPTH_MAX`] calls deep.
    fn height(&self, node: u32, known: &mut BTreeMap<u32, u16>) -> u16 {
        if let Some(&height) = known.get(&node) {
            return height;
        }
        let mut height = 0;
        for resource in Resource::ALL {
            for ticket in self.issued(node, resource) {
                height = height.max(1 + self.height(self.tickets[ticket].holder, known));
            }
        }
        known.insert(node, height);
        height
    }

    /// Works out `node`'s depth again, and that of all below it where it changed.
    pub(super) fn refresh_depth(&mut self, node: u32) {
        let mut stale = vec![node];
        while let Some(node) = stale.pop() {
            let mut depth = 0;
            for resource in Resource::ALL {
                for ticket in self.backing(node, resource) {
                    depth = depth.max(self.nodes[self.tickets[ticket].issuer].depth + 1);
                }
            }
            if depth == self.nodes[node].depth {
                continue;
            }
            self.nodes[node].depth = depth;
            for resource in Resource::ALL {
                let holders: Vec<u32> =
                    self.issued(node, resource).map(|ticket| self.tickets[ticket].holder).collect();
                stale.extend(holders);
            }
        }
    }

    /// Tickets of `issuer` that back `holder`, of one resource, in the order they came.
    pub(super) fn between(&self, issuer: u32, holder: u32, resource: Resource) -> Vec<u32> {
        self.backing(holder, resource).filter(|&ticket| self.tickets[ticket].issuer == issuer).collect()
    }

    /// The soft tickets of the base among them, newest first.
    pub(super) fn base_funding(&self, holder: u32, resource: Resource) -> Vec<u32> {
        let mut tickets = self.between(BASE, holder, resource);
        tickets.retain(|&ticket| self.tickets[ticket].kind == Kind::Soft);
        tickets.reverse();
        tickets
    }
}
