//! What a market can be asked: its currencies, tickets, exchanges and offers, and where a value comes from.

use super::{BASE, Exchange, Market, Node, NodeKind, Offer, PARTS_PER_TICKET, Ticket};
use crate::broker::Broker;
use crate::op::{CurrencyId, ExchangeId, Kind, Moment, OfferId, Refusal, Side, TicketId};
use crate::ratio::Ratio;
use crate::resource::{Resource, Resources};
use alloc::vec::Vec;

/// A currency or client as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CurrencyView {
    /// Its id.
    pub id: CurrencyId,
    /// Whether it is a client, a leaf that competes.
    pub client: bool,
    /// Who may do what with it.
    pub broker: Broker,
    /// What it competes for; nothing, for a currency.
    pub competes: Resources,
    /// For what it is active: its tickets count.
    pub active: Resources,
    /// Currencies on the longest path from the base to it.
    pub depth: u16,
    /// The currency that `nice` took it from, where it was made so.
    pub niced_from: Option<CurrencyId>,
}

/// A ticket as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TicketView {
    /// Its id.
    pub id: TicketId,
    /// Whose ticket it is.
    pub issuer: CurrencyId,
    /// Whom it backs.
    pub holder: CurrencyId,
    /// What it gives a right to.
    pub resource: Resource,
    /// How many it stands for.
    pub amount: u64,
    /// Soft, hard or transfer.
    pub kind: Kind,
    /// Whether it counts: whether its holder is active.
    pub active: bool,
    /// Parts of base tickets ([`PARTS_PER_TICKET`]) that its idle holder got (or, negative, gave away) in exchanges and
    /// that count at the issuer for now.
    pub lodged: i128,
}

/// An exchange as it stands: `a` gives `a_gives` and gets `b_gives`, `b` the opposite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ExchangeView {
    /// Its id.
    pub id: ExchangeId,
    /// One party; where an offer was taken up, who made that.
    pub a: CurrencyId,
    /// What it gives.
    pub a_gives: Side,
    /// The other party.
    pub b: CurrencyId,
    /// What that gives.
    pub b_gives: Side,
}

/// An offer that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct OfferView {
    /// Its id.
    pub id: OfferId,
    /// For whom.
    pub party: CurrencyId,
    /// What it gives.
    pub gives: Side,
    /// What it wants.
    pub wants: Side,
    /// When it ends by itself.
    pub until: Option<Moment>,
}

/// One thing that a value is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Source {
    /// A ticket, and what it is worth.
    Ticket(TicketView, Ratio),
    /// An exchange it is a party to, and what that gives (or, negative, takes).
    Exchange(ExchangeId, Ratio),
    /// Exchanges of idle holders below, as much of them as counts here.
    Lodged(TicketId, Ratio),
    /// What it had of exchanges and left with its funders, being idle: the negative of that.
    PassedOn(Ratio),
}

impl Source {
    /// What it adds to the value.
    #[must_use]
    pub const fn value(&self) -> &Ratio {
        match self {
            Self::Ticket(_, value)
            | Self::Exchange(_, value)
            | Self::Lodged(_, value)
            | Self::PassedOn(value) => value,
        }
    }
}

impl Market {
    /// The base currency: every right comes from it. It belongs to user 0.
    #[must_use]
    pub fn base(&self) -> CurrencyId {
        self.currency_id(BASE)
    }

    /// A currency or client, if it lives.
    #[must_use]
    pub fn currency(&self, id: CurrencyId) -> Option<CurrencyView> {
        let node = self.node(id).ok()?;
        Some(self.view_currency(node, &self.nodes[node]))
    }

    /// Every currency and client, the base first, in the order of their slots.
    pub fn currencies(&self) -> impl Iterator<Item = CurrencyView> + '_ {
        self.nodes.iter().map(|(index, node)| self.view_currency(index, node))
    }

    fn view_currency(&self, index: u32, node: &Node) -> CurrencyView {
        let active = Resource::ALL.iter().filter(|&&resource| self.active(index, resource));
        CurrencyView {
            id: self.currency_id(index),
            client: node.kind == NodeKind::Client,
            broker: node.broker,
            competes: node.competes,
            active: active.fold(Resources::NONE, |set, &resource| set.with(resource)),
            depth: node.depth,
            niced_from: self.niced.get(&index).map(|niced| self.currency_id(niced.origin)),
        }
    }

    /// A ticket, if it is there.
    #[must_use]
    pub fn ticket_view(&self, id: TicketId) -> Option<TicketView> {
        let ticket = self.ticket(id).ok()?;
        Some(self.view_ticket(ticket, &self.tickets[ticket]))
    }

    /// Every ticket, in the order of their slots. The base tickets of exchanges are in [`Market::exchanges`].
    pub fn tickets(&self) -> impl Iterator<Item = TicketView> + '_ {
        self.tickets.iter().map(|(index, ticket)| self.view_ticket(index, ticket))
    }

    /// The tickets that back a currency, in the order they came; none where it has ended.
    #[must_use]
    pub fn backing_of(&self, currency: CurrencyId, resource: Resource) -> Vec<TicketView> {
        let Ok(node) = self.node(currency) else { return Vec::new() };
        self.backing(node, resource).map(|ticket| self.view_ticket(ticket, &self.tickets[ticket])).collect()
    }

    /// The tickets that a currency issued, in the order they came; none where it has ended.
    #[must_use]
    pub fn issued_by(&self, currency: CurrencyId, resource: Resource) -> Vec<TicketView> {
        let Ok(node) = self.node(currency) else { return Vec::new() };
        self.issued(node, resource).map(|ticket| self.view_ticket(ticket, &self.tickets[ticket])).collect()
    }

    fn view_ticket(&self, index: u32, ticket: &Ticket) -> TicketView {
        TicketView {
            id: self.ticket_id(index),
            issuer: self.currency_id(ticket.issuer),
            holder: self.currency_id(ticket.holder),
            resource: ticket.resource,
            amount: ticket.amount.into(),
            kind: ticket.kind,
            active: ticket.active,
            lodged: self.lodged.get(&index).map_or(0, |lodged| lodged.part),
        }
    }

    /// Every exchange, oldest first.
    pub fn exchanges(&self) -> impl Iterator<Item = ExchangeView> + '_ {
        self.exchanges.iter().map(|(&id, exchange)| self.exchange_view(id, exchange))
    }

    /// What the exchanges were that the last operation ended, in the order of [`Outcome::undone`](crate::Outcome::undone).
    /// Empty in a market that was read back, until the next operation.
    pub fn just_undone(&self) -> &[ExchangeView] {
        &self.undone
    }

    pub(super) fn exchange_view(&self, id: ExchangeId, exchange: &Exchange) -> ExchangeView {
        let Exchange { a, a_gives, b, b_gives } = *exchange;
        ExchangeView { id, a: self.currency_id(a), a_gives, b: self.currency_id(b), b_gives }
    }

    /// Every waiting offer, oldest first.
    pub fn offers(&self) -> impl Iterator<Item = OfferView> + '_ {
        self.offers.iter().map(|(&id, &Offer { party, gives, wants, until })| OfferView {
            id,
            party: self.currency_id(party),
            gives,
            wants,
            until,
        })
    }

    /// How many of a currency's hard tickets its soft tickets share (the paper's `soft_tix`, Fig. 2), where it issued any
    /// hard ticket.
    #[must_use]
    pub fn soft_tix(&self, currency: CurrencyId, resource: Resource) -> Option<u64> {
        let (issued, total) = self.hard(self.node(currency).ok()?, resource);
        (issued > 0).then(|| u64::from(total - issued))
    }

    /// How many tickets there are, those of exchanges not counted.
    #[must_use]
    pub fn nr_tickets(&self) -> usize {
        self.tickets.len()
    }

    /// How many currencies and clients there are, the base among them.
    #[must_use]
    pub fn nr_currencies(&self) -> usize {
        self.nodes.len()
    }

    /// What a currency's value is made of; the parts add up to [`Market::value`] exactly.
    ///
    /// # Errors
    /// [`Refusal::UnknownCurrency`], and [`Refusal::BaseCurrency`]: the base is where values come from.
    pub fn explain(&mut self, currency: CurrencyId, resource: Resource) -> Result<Vec<Source>, Refusal> {
        let node = self.inner(currency)?;
        let tickets: Vec<u32> = self.backing(node, resource).collect();
        let mut sources = Vec::new();
        for ticket in tickets {
            let value = self.ticket_value_of(ticket);
            sources.push(Source::Ticket(self.view_ticket(ticket, &self.tickets[ticket]), value));
        }
        let mine: Vec<ExchangeId> =
            self.rare(node, resource).map_or_else(Vec::new, |rare| rare.exchanges.iter().copied().collect());
        for id in mine {
            let sides = self.exchanges[&id].sides();
            let side =
                sides.iter().find(|(.., side)| side.resource == resource).expect("it moves this resource");
            let value = Ratio::from(side.2.amount.get());
            sources.push(Source::Exchange(id, if side.0 == node { -&value } else { value }));
        }
        for ticket in self.issued(node, resource) {
            if let Some(lodged) = self.lodged.get(&ticket) {
                let value = Ratio::of_parts(lodged.part, PARTS_PER_TICKET);
                sources.push(Source::Lodged(self.ticket_id(ticket), value));
            }
        }
        let burden = self.burden(node, resource);
        if !self.active(node, resource) && !burden.is_zero() {
            sources.push(Source::PassedOn(-&burden));
        }
        Ok(sources)
    }
}
