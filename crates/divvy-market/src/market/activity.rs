//! Which tickets count: activity spreads upward, from clients that compete to the currencies that back them.

use super::{Market, NodeKind};
use crate::broker::{Caller, Permission};
use crate::op::{CurrencyId, Kind, Made, Presence, Refusal};
use crate::resource::Resource;

impl Market {
    /// Whether `node` is active: it competes, or one of the tickets that it issued is active.
    pub(super) fn active(&self, node: u32, resource: Resource) -> bool {
        self.nodes[node].competes.contains(resource)
            || self.pool(node, resource).is_some_and(|pool| pool.active_issued > 0)
    }

    /// Makes a ticket count, or not. Where that changes whether the issuer is active, the change goes on upward; at most
    /// [`super::CURRENCY_DEPTH_MAX`] calls deep.
    pub(super) fn set_active(&mut self, ticket: u32, active: bool) {
        if self.tickets[ticket].active == active {
            return;
        }
        self.tickets[ticket].active = active;
        let (issuer, resource) = (self.tickets[ticket].issuer, self.tickets[ticket].resource);
        let soft = match self.tickets[ticket].kind {
            Kind::Soft | Kind::Transfer => u64::from(self.tickets[ticket].amount),
            Kind::Hard => 0,
        };
        let was_active = self.active(issuer, resource);
        let pool = self.pool_mut(issuer, resource);
        if active {
            pool.active_issued += 1;
            pool.active_soft += soft;
        } else {
            pool.active_issued -= 1;
            pool.active_soft -= soft;
        }
        self.touch(issuer, resource);
        if was_active != active && self.active(issuer, resource) == active {
            self.turned(issuer, resource, active);
        }
    }

    /// Follows up on `node` having become active or inactive.
    ///
    /// Exchange tickets move first on the way in and last on the way out, so that they are handed over between nodes
    /// whose own state is settled.
    pub(super) fn turned(&mut self, node: u32, resource: Resource, active: bool) {
        if active {
            self.unlodge(node, resource);
        }
        let mut ticket = self.first_backing(node, resource);
        while let Some(here) = ticket {
            self.set_active(here, active);
            ticket = self.next_backing(here);
        }
        if !active {
            self.lodge(node, resource);
        }
        self.touch(node, resource);
    }

    /// Says whether a client competes, and follows up.
    pub(super) fn set_competes(&mut self, client: u32, resource: Resource, competes: bool) {
        let was_active = self.active(client, resource);
        let node = &mut self.nodes[client];
        node.competes = if competes { node.competes.with(resource) } else { node.competes.without(resource) };
        self.mark(client, resource);
        let active = self.active(client, resource);
        if was_active != active {
            self.turned(client, resource, active);
        }
    }

    pub(super) fn op_set_presence(
        &mut self,
        caller: &Caller,
        client: CurrencyId,
        resource: Resource,
        presence: Presence,
    ) -> Result<(), Refusal> {
        let node = self.client(client)?;
        self.check_permission(caller, node, Permission::Change)?;
        match presence {
            Presence::Idle => self.set_competes(node, resource, false),
            Presence::Competing => {
                // It competes before its transfer tickets go: it stays active, and nothing flaps above it.
                self.set_competes(node, resource, true);
                while let Some(ticket) = self.first_issued(node, resource) {
                    self.remove_ticket(ticket);
                }
            }
        }
        Ok(())
    }

    pub(super) fn op_wait(
        &mut self,
        caller: &Caller,
        client: CurrencyId,
        holder: CurrencyId,
        resource: Resource,
    ) -> Result<Made, Refusal> {
        let (waiter, holder) = (self.client(client)?, self.inner(holder)?);
        self.check_permission(caller, holder, Permission::Fund)?;
        self.check_permission(caller, waiter, Permission::Issue)?;
        self.check_edge(holder, waiter)?;
        self.check_room(0, 1)?;
        let ticket = self.add_ticket(holder, waiter, resource, 1, Kind::Transfer);
        self.set_competes(waiter, resource, false);
        Ok(Made::Ticket(self.ticket_id(ticket)))
    }

    pub(super) fn op_compensate(
        &mut self,
        caller: &Caller,
        client: CurrencyId,
        resource: Resource,
        (used, quantum): (u64, u64),
    ) -> Result<(), Refusal> {
        let node = self.client(client)?;
        self.check_permission(caller, node, Permission::Change)?;
        if used > quantum {
            return Err(Refusal::UsedTooMuch);
        }
        debug_assert!(self.nodes[node].kind == NodeKind::Client, "asked above");
        self.rare_mut(node, resource).compensation = (used < quantum).then_some((used, quantum));
        self.mark(node, resource);
        Ok(())
    }
}
