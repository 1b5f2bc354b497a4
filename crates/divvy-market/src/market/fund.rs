//! Funding: tickets given, changed and taken away, and who may do so (Table 1).

use super::{BASE, Market, NodeKind, Ticket};
use crate::broker::{Caller, Permission};
use crate::op::{Amount, CurrencyId, Kind, Made, Refusal, TicketId};
use crate::resource::Resource;
use crate::slab::NONE;
use alloc::vec::Vec;

impl Market {
    pub(super) fn ticket(&self, id: TicketId) -> Result<u32, Refusal> {
        self.tickets.find(id.slot, id.generation).ok_or(Refusal::UnknownTicket(id))
    }

    pub(super) fn ticket_id(&self, ticket: u32) -> TicketId {
        TicketId { slot: ticket, generation: self.tickets.generation(ticket) }
    }

    pub(super) fn op_fund(
        &mut self,
        caller: &Caller,
        holder: CurrencyId,
        issuer: CurrencyId,
        resource: Resource,
        amount: Amount,
        kind: Kind,
    ) -> Result<Made, Refusal> {
        let (holder, issuer) = (self.inner(holder)?, self.node(issuer)?);
        if kind == Kind::Transfer {
            return Err(Refusal::TransferTicket);
        }
        self.check_fund(caller, holder, issuer, resource, amount.get(), kind)?;
        self.check_room(0, 1)?;
        let ticket = self.add_ticket(holder, issuer, resource, amount.raw(), kind);
        Ok(Made::Ticket(self.ticket_id(ticket)))
    }

    /// Asks everything that could refuse to back `holder` with `more` tickets of `issuer`.
    fn check_fund(
        &self,
        caller: &Caller,
        holder: u32,
        issuer: u32,
        resource: Resource,
        more: u64,
        kind: Kind,
    ) -> Result<(), Refusal> {
        self.check_permission(caller, holder, Permission::Fund)?;
        let may_issue = self.check_permission(caller, issuer, Permission::Issue);
        if issuer == BASE && may_issue.is_err() && kind == Kind::Soft {
            self.check_bound(caller, holder, resource, more, may_issue)?;
        } else {
            may_issue?;
        }
        if self.nodes[issuer].kind == NodeKind::Client {
            return Err(Refusal::ClientsDoNotIssue(self.currency_id(issuer)));
        }
        self.check_edge(holder, issuer)?;
        if kind == Kind::Hard {
            let (issued, total) = self.hard(issuer, resource);
            let left = u64::from(total - issued);
            if more > left {
                return Err(Refusal::HardExhausted { left });
            }
        }
        Ok(())
    }

    pub(super) fn op_set_amount(
        &mut self,
        caller: &Caller,
        ticket: TicketId,
        amount: Amount,
    ) -> Result<(), Refusal> {
        let ticket_index = self.ticket(ticket)?;
        let Ticket { kind, resource, holder, issuer, amount: before, .. } = self.tickets[ticket_index];
        if kind == Kind::Transfer {
            return Err(Refusal::TransferTicket);
        }
        if amount.raw() > before {
            self.check_fund(caller, holder, issuer, resource, amount.get() - u64::from(before), kind)?;
        } else {
            self.check_take(caller, ticket_index)?;
        }
        self.change_amount(ticket_index, amount.raw());
        Ok(())
    }

    pub(super) fn op_unfund(&mut self, caller: &Caller, ticket: TicketId) -> Result<(), Refusal> {
        let ticket = self.ticket(ticket)?;
        self.check_take(caller, ticket)?;
        self.remove_ticket(ticket);
        Ok(())
    }

    fn check_take(&self, caller: &Caller, ticket: u32) -> Result<(), Refusal> {
        let Ticket { holder, issuer, .. } = self.tickets[ticket];
        let change = self.check_permission(caller, holder, Permission::Change);
        if change.is_err() && self.check_permission(caller, issuer, Permission::Issue).is_err() {
            return Err(Refusal::MayNotTake(self.ticket_id(ticket)));
        }
        Ok(())
    }

    pub(super) fn op_adopt(
        &mut self,
        caller: &Caller,
        child: CurrencyId,
        parent: CurrencyId,
    ) -> Result<Made, Refusal> {
        let (child, parent) = (self.inner(child)?, self.inner(parent)?);
        let mut copies = Vec::new();
        for resource in Resource::ALL {
            let fits = |&ticket: &u32| {
                let Ticket { kind, issuer, .. } = self.tickets[ticket];
                kind == Kind::Soft && issuer != BASE
            };
            let Some(first) = self.backing(parent, resource).find(fits) else { continue };
            let Ticket { issuer, amount, .. } = self.tickets[first];
            self.check_fund(caller, child, issuer, resource, amount.into(), Kind::Soft)?;
            copies.push((issuer, resource, amount));
        }
        self.check_room(0, copies.len())?;
        let mut made = Vec::new();
        for (issuer, resource, amount) in copies {
            let ticket = self.add_ticket(child, issuer, resource, amount, Kind::Soft);
            made.push(self.ticket_id(ticket));
        }
        Ok(Made::Tickets(made))
    }

    /// How many hard tickets are out, and how many are the whole.
    pub(super) fn hard(&self, node: u32, resource: Resource) -> (u32, u32) {
        let pool = self.pool(node, resource);
        pool.map_or((0, super::HARD_TOTAL_DEFAULT), |pool| (pool.issued_hard, pool.hard_total))
    }

    /// Backs `holder` with a new ticket. Everything was asked before.
    pub(super) fn add_ticket(
        &mut self,
        holder: u32,
        issuer: u32,
        resource: Resource,
        amount: u32,
        kind: Kind,
    ) -> u32 {
        let ticket = self.tickets.insert(Ticket {
            kind,
            resource,
            active: false,
            amount,
            issuer,
            holder,
            issued_next: NONE,
            issued_prev: NONE,
            backing_next: NONE,
            backing_prev: NONE,
        });
        self.link(ticket);
        let pool = self.pool_mut(issuer, resource);
        match kind {
            Kind::Hard => pool.issued_hard += amount,
            Kind::Soft | Kind::Transfer => pool.issued_soft += u64::from(amount),
        }
        if self.is_watched(holder, resource) {
            self.watch(ticket, true);
        }
        self.touch(issuer, resource);
        self.touch(holder, resource);
        if self.active(holder, resource) {
            self.set_active(ticket, true);
        } else {
            // Exchange tickets of an idle party that nobody funded until now have a place to go.
            self.lodge(holder, resource);
        }
        self.refresh_depth(holder);
        ticket
    }

    /// Takes a ticket away, and with it the exchanges of an idle holder that it carried.
    pub(super) fn remove_ticket(&mut self, ticket: u32) {
        let Ticket { kind, resource, amount, issuer, holder, .. } = self.tickets[ticket];
        if self.lodged.contains_key(&ticket) {
            self.undo_through(holder, resource);
            let lodged = self.lodged.remove(&ticket);
            assert!(lodged.is_none_or(|lodged| lodged.part == 0), "what a ticket carried goes back first");
        }
        self.set_active(ticket, false);
        if self.is_watched(holder, resource) {
            self.watch(ticket, false);
        }
        self.unlink(ticket);
        let pool = self.pool_mut(issuer, resource);
        match kind {
            Kind::Hard => pool.issued_hard -= amount,
            Kind::Soft | Kind::Transfer => pool.issued_soft -= u64::from(amount),
        }
        self.touch(issuer, resource);
        self.touch(holder, resource);
        self.tickets.remove(ticket);
        self.refresh_depth(holder);
        if self.niced.contains_key(&issuer) {
            self.emptied.insert(issuer);
        }
    }

    /// Sets a ticket's amount. Everything was asked before.
    pub(super) fn change_amount(&mut self, ticket: u32, amount: u32) {
        let Ticket { kind, resource, amount: before, issuer, holder, active, .. } = self.tickets[ticket];
        self.tickets[ticket].amount = amount;
        let pool = self.pool_mut(issuer, resource);
        match kind {
            Kind::Hard => pool.issued_hard = pool.issued_hard - before + amount,
            Kind::Soft | Kind::Transfer => {
                pool.issued_soft = pool.issued_soft - u64::from(before) + u64::from(amount);
                if active {
                    pool.active_soft = pool.active_soft - u64::from(before) + u64::from(amount);
                }
            }
        }
        self.touch(issuer, resource);
        self.touch(holder, resource);
    }
}
