//! Limited permission to issue base tickets, and what it is for: `nice`.

use super::scratch::Scratch;
use super::{BASE, Bounded, Market, Niced, NodeKind, Ticket};
use crate::broker::{Broker, Caller, Permission};
use crate::op::{Amount, CurrencyId, Kind, Made, Refusal};
use crate::ratio::Ratio;
use crate::resource::{Resource, Resources};
use alloc::vec::Vec;

impl Market {
    pub(super) fn op_set_bound(
        &mut self,
        caller: &Caller,
        uid: u32,
        resource: Resource,
        bound: Option<u64>,
    ) -> Result<(), Refusal> {
        if !caller.superuser {
            return Err(Refusal::SuperuserOnly);
        }
        if !self.bounded.contains_key(&uid) {
            let owned = self.nodes.iter().filter(|(index, node)| *index != BASE && node.broker.owner == uid);
            let owned = owned.map(|(index, _)| index).collect();
            self.bounded.insert(uid, Bounded { bounds: [None; 3], owned });
        }
        let bounded = self.bounded.get_mut(&uid).expect("just made");
        bounded.bounds[resource.index()] = bound;
        if bounded.bounds == [None; 3] {
            self.bounded.remove(&uid);
        }
        Ok(())
    }

    /// Asks whether `caller`, who may not issue base tickets as such, may issue `more` to `holder` within its bound.
    ///
    /// Source: section 3.4. What counts is what the caller's currencies get from currencies of others, the base among
    /// them, were everybody active and no exchange made, in soft tickets of the base. So nobody's sleep, no trade, and nothing that is
    /// reserved widens anybody's bound.
    pub(super) fn check_bound(
        &self,
        caller: &Caller,
        holder: u32,
        resource: Resource,
        more: u64,
        otherwise: Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let bounded = self.bounded.get(&caller.uid).filter(|bounded| bounded.owned.contains(&holder));
        let Some((bounded, bound)) = bounded.and_then(|b| Some((b, b.bounds[resource.index()]?))) else {
            return otherwise;
        };
        let mut scratch = Scratch::nominal(self, resource, more);
        let price = scratch.base_price();
        // In soft tickets of the base: where some of it is reserved one is worth less, or nothing, and so many are so many.
        let (mut tickets, mut income) = (more, Ratio::ZERO);
        for &node in &bounded.owned {
            for index in self.backing(node, resource) {
                let ticket = &self.tickets[index];
                if self.nodes[ticket.issuer].broker.owner == caller.uid {
                    continue;
                }
                if ticket.issuer == BASE && ticket.kind == Kind::Soft {
                    tickets = tickets.saturating_add(u64::from(ticket.amount));
                } else {
                    income += &scratch.ticket(index);
                }
            }
        }
        income += &price.mul_div(tickets, 1);
        let is_above = if price.is_zero() { tickets > bound } else { income > price.mul_div(bound, 1) };
        if is_above { Err(Refusal::AboveBound { bound }) } else { Ok(()) }
    }

    /// Source: section 4.6 and Fig. 4. We differ: the paper's utility leaves the tickets with the new currency for ever;
    /// here they go back when it funds nobody any more, else a user would get poorer with every nice job.
    pub(super) fn op_nice(
        &mut self,
        caller: &Caller,
        client: CurrencyId,
        from: CurrencyId,
        resource: Resource,
        amount: Amount,
    ) -> Result<Made, Refusal> {
        let (client, from) = (self.client(client)?, self.inner(from)?);
        self.check_permission(caller, from, Permission::Change)?;
        self.check_permission(caller, client, Permission::Change)?;
        let funding: u64 =
            self.base_funding(from, resource).iter().map(|&t| u64::from(self.tickets[t].amount)).sum();
        if funding < amount.get() {
            return Err(Refusal::NotEnough(self.currency_id(from)));
        }
        self.check_depth(client, 2)?;
        self.check_room(1, 2)?;
        let Broker { owner, group, mode } = self.nodes[from].broker;
        let nice = self.create(Broker { owner, group, mode }, NodeKind::Currency, Resources::NONE);
        // First the new funding, then the old goes: the client is never without, so no exchange of it ends needlessly.
        self.add_ticket(nice, BASE, resource, amount.raw(), Kind::Soft);
        self.add_ticket(client, nice, resource, amount.raw(), Kind::Soft);
        for ticket in self.between(from, client, resource) {
            self.remove_ticket(ticket);
        }
        self.take_base_funding(from, resource, amount.raw());
        self.niced.insert(nice, Niced { origin: from, resource, amount: amount.raw() });
        Ok(Made::Currency(self.currency_id(nice)))
    }

    /// The currency that `nice` made of `from` for `client`, and which funds nobody else.
    #[must_use]
    pub fn niced(&self, client: CurrencyId, from: CurrencyId, resource: Resource) -> Option<CurrencyId> {
        let (client, from) = (self.client(client).ok()?, self.inner(from).ok()?);
        let is_of = |nice: u32, niced: &Niced| {
            if niced.origin != from || niced.resource != resource {
                return false;
            }
            let held = self.between(nice, client, resource).len();
            let issued = || self.tickets.iter().filter(|(_, ticket)| ticket.issuer == nice).count();
            held > 0 && held == issued()
        };
        let found = self.niced.iter().find(|(nice, niced)| is_of(**nice, niced));
        found.map(|(nice, _)| self.currency_id(*nice))
    }

    pub(super) fn op_renice(
        &mut self,
        caller: &Caller,
        currency: CurrencyId,
        amount: Amount,
    ) -> Result<(), Refusal> {
        let nice = self.inner(currency)?;
        let Some(&Niced { origin, resource, amount: recorded }) = self.niced.get(&nice) else {
            return Err(Refusal::NotEnough(currency));
        };
        self.check_permission(caller, origin, Permission::Change)?;
        self.check_permission(caller, nice, Permission::Change)?;
        let funding = |node: u32| -> u64 {
            self.base_funding(node, resource).iter().map(|&t| u64::from(self.tickets[t].amount)).sum()
        };
        // Of what it had somebody may have taken some, or given it more.
        let has = u32::try_from(funding(nice)).unwrap_or(u32::MAX).min(recorded);
        let (less, more) = (has.saturating_sub(amount.raw()), amount.raw().saturating_sub(has));
        if funding(origin) < u64::from(more) {
            return Err(Refusal::NotEnough(self.currency_id(origin)));
        }
        self.move_base_funding(nice, origin, resource, less);
        self.move_base_funding(origin, nice, resource, more);
        // What has gone on from it to another that `nice` made comes back to it, and from it to the origin.
        if let Some(niced) = self.niced.get_mut(&nice) {
            niced.amount = (recorded - less).saturating_add(more);
        }
        Ok(())
    }

    fn move_base_funding(&mut self, from: u32, to: u32, resource: Resource, amount: u32) {
        if amount > 0 {
            self.take_base_funding(from, resource, amount);
            self.return_to(to, resource, amount);
        }
    }

    /// Takes so many soft base tickets from `node`, which has them, newest first.
    fn take_base_funding(&mut self, node: u32, resource: Resource, mut amount: u32) {
        for ticket in self.base_funding(node, resource) {
            let has = self.tickets[ticket].amount;
            if has > amount {
                self.change_amount(ticket, has - amount);
                return;
            }
            self.remove_ticket(ticket);
            amount -= has;
            if amount == 0 {
                return;
            }
        }
    }

    /// Before `node` ends: if `nice` made it, what it still has of its base tickets goes back where it came from; what
    /// was made from it in turn will go there too.
    pub(super) fn give_back(&mut self, node: u32) {
        let niced = self.niced.remove(&node);
        for other in self.niced.values_mut().filter(|other| other.origin == node) {
            other.origin = niced.as_ref().map_or(BASE, |niced| niced.origin);
        }
        // What was made from a currency that ends for good has nowhere to go back to.
        self.niced.retain(|_, other| other.origin != BASE);
        let Some(Niced { origin, resource, amount }) = niced else { return };
        let mut left = amount;
        for ticket in self.base_funding(node, resource) {
            let Ticket { amount: has, .. } = self.tickets[ticket];
            let back = has.min(left);
            left -= back;
            if has > back {
                self.change_amount(ticket, has - back);
            } else {
                self.remove_ticket(ticket);
            }
            if back > 0 {
                self.return_to(origin, resource, back);
            }
        }
    }

    fn return_to(&mut self, origin: u32, resource: Resource, amount: u32) {
        let tickets: Vec<u32> = self.base_funding(origin, resource);
        let grown = tickets
            .iter()
            .find_map(|&ticket| Some((ticket, self.tickets[ticket].amount.checked_add(amount)?)));
        match grown {
            Some((ticket, amount)) => self.change_amount(ticket, amount),
            // There is room: at least as much was taken away for this currency to be made.
            None => {
                self.add_ticket(origin, BASE, resource, amount, Kind::Soft);
            }
        }
    }
}
