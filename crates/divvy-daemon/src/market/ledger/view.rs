//! The market as the API shows it.

use std::collections::BTreeMap;

use divvy_market::{
    CurrencyId, CurrencyView, ExchangeId, ExchangeView, OfferId, OfferView, Ratio, Resource, Side, TicketId,
    TicketView,
};

use super::Work;
use super::effective::Effective;
use crate::message::Refusal;
use divvy_api::market::{Currency, Exchange, Give, Graph, Offer, Standing, Ticket};

/// Of one currency, cpu, memory and disk: its exact value now, and were everybody active, and its part of what all who
/// are active now have.
struct Values {
    now: [Ratio; 3],
    promised: [Ratio; 3],
    effective: [f64; 3],
}

/// What everybody was promised, of which what one was promised is a part.
struct Wholes {
    promised: [Ratio; 3],
}

const ZEROS: [Ratio; 3] = [const { Ratio::ZERO }; 3];

fn part(value: &Ratio, whole: &Ratio) -> f64 {
    value.over(whole).map_or(0.0, |part| part.to_f64())
}

/// `alice gives 10 disk, bob gives 20 cpu`.
pub(super) fn terms_of(exchange: &Exchange) -> String {
    let Exchange { a, a_gives, b, b_gives, .. } = exchange;
    let (gives, gets) = (&a_gives.resource, &b_gives.resource);
    format!("{a} gives {} {gives}, {b} gives {} {gets}", a_gives.amount, b_gives.amount)
}

impl Work<'_> {
    pub(super) fn currency(&mut self, id: CurrencyId) -> Result<Currency, Refusal> {
        let view = self.ledger.market.currency(id);
        let view = view.ok_or_else(|| self.in_words(divvy_market::Refusal::UnknownCurrency(id)))?;
        let (wholes, mut values) = self.values(&[id]);
        let values =
            values.remove(&id).unwrap_or(Values { now: ZEROS, promised: ZEROS, effective: [0.0; 3] });
        Ok(self.show(&view, &wholes, &values, &mut BTreeMap::new()))
    }

    /// Values of these, and the wholes. Whoever is asked for has values; each is worked out once.
    fn values(&mut self, ids: &[CurrencyId]) -> (Wholes, BTreeMap<CurrencyId, Values>) {
        let market = &mut self.ledger.market;
        let mut values = BTreeMap::new();
        for &id in ids {
            let now = Resource::ALL.map(|resource| market.value(id, resource).unwrap_or(Ratio::ZERO));
            values.insert(id, Values { now, promised: ZEROS, effective: [0.0; 3] });
        }
        let mut promised = ZEROS;
        for (index, resource) in Resource::ALL.into_iter().enumerate() {
            let mut effective = Effective::of(market, resource);
            for (&id, values) in &mut values {
                values.effective[index] = effective.part(id);
            }
            let mut promises = market.promises(resource);
            promised[index] = promises.total();
            for (&id, values) in &mut values {
                values.promised[index] = promises.value(id).unwrap_or(Ratio::ZERO);
            }
        }
        (Wholes { promised }, values)
    }

    fn show(
        &self,
        view: &CurrencyView,
        wholes: &Wholes,
        values: &Values,
        users: &mut BTreeMap<(bool, u32), String>,
    ) -> Currency {
        let market = &self.ledger.market;
        let mut called = |is_group: bool, id: u32| {
            let look = || if is_group { self.group(id) } else { self.user(id) };
            users.entry((is_group, id)).or_insert_with(look).clone()
        };
        let (owner, group) = (called(false, view.broker.owner), called(true, view.broker.group));
        let standing = |(index, resource): (usize, Resource)| {
            let (hard_issued, hard_total) = market.hard_tickets(view.id, resource).unwrap_or_default();
            Standing {
                resource,
                value: values.now[index].to_string(),
                requested: part(&values.promised[index], &wholes.promised[index]),
                effective: values.effective[index],
                achieved: None,
                active: view.active.contains(resource),
                hard_total,
                hard_issued,
            }
        };
        Currency {
            id: view.id.to_string(),
            name: self.name(view.id),
            client: view.client,
            scheduled: None,
            owner,
            group,
            mode: view.broker.mode.to_string(),
            depth: view.depth,
            niced_from: view.niced_from.map(|id| self.name(id)),
            standing: Resource::ALL.into_iter().enumerate().map(standing).collect(),
        }
    }

    pub(super) fn ticket(&mut self, id: TicketId) -> Result<Ticket, Refusal> {
        let view = self.ledger.market.ticket_view(id);
        let view = view.ok_or_else(|| self.in_words(divvy_market::Refusal::UnknownTicket(id)))?;
        Ok(self.show_ticket(&view))
    }

    pub(super) fn show_ticket(&mut self, view: &TicketView) -> Ticket {
        let value = self.ledger.market.ticket_value(view.id).unwrap_or(Ratio::ZERO);
        Ticket {
            id: view.id.to_string(),
            issuer: self.name(view.issuer),
            holder: self.name(view.holder),
            resource: view.resource,
            amount: view.amount,
            kind: view.kind,
            active: view.active,
            value: value.to_string(),
        }
    }

    pub(super) fn exchange(&self, id: ExchangeId) -> Result<Exchange, Refusal> {
        let view = self.ledger.market.exchanges().find(|view| view.id == id);
        let view = view.ok_or_else(|| self.in_words(divvy_market::Refusal::UnknownExchange(id)))?;
        Ok(self.show_exchange(&view))
    }

    pub(super) fn show_exchange(&self, view: &ExchangeView) -> Exchange {
        Exchange {
            id: view.id.0,
            a: self.name(view.a),
            a_gives: give(view.a_gives),
            b: self.name(view.b),
            b_gives: give(view.b_gives),
        }
    }

    pub(super) fn offer(&self, id: OfferId) -> Result<Offer, Refusal> {
        let view = self.ledger.market.offers().find(|view| view.id == id);
        let view = view.ok_or_else(|| self.in_words(divvy_market::Refusal::UnknownOffer(id)))?;
        Ok(self.show_offer(&view))
    }

    fn show_offer(&self, view: &OfferView) -> Offer {
        Offer {
            id: view.id.0,
            party: self.name(view.party),
            gives: give(view.gives),
            wants: give(view.wants),
            until_unix_ns: view.until.map(|moment| moment.0),
        }
    }

    pub(super) fn graph(&mut self) -> Graph {
        let views: Vec<CurrencyView> = self.ledger.market.currencies().collect();
        let ids: Vec<CurrencyId> = views.iter().map(|view| view.id).collect();
        let (wholes, values) = self.values(&ids);
        let mut users = BTreeMap::new();
        let currencies =
            views.iter().map(|view| self.show(view, &wholes, &values[&view.id], &mut users)).collect();
        let tickets: Vec<TicketView> = self.ledger.market.tickets().collect();
        let tickets = tickets.iter().map(|view| self.show_ticket(view)).collect();
        let market = &self.ledger.market;
        let exchanges = market.exchanges().map(|view| self.show_exchange(&view)).collect();
        let offers = market.offers().map(|view| self.show_offer(&view)).collect();
        Graph { currencies, tickets, exchanges, offers }
    }
}

fn give(side: Side) -> Give {
    Give { resource: side.resource, amount: side.amount.get() }
}
