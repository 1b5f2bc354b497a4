//! Where a value comes from, ticket by ticket, up to the base.

use std::collections::{BTreeMap, BTreeSet};

use divvy_market::{CurrencyId, Kind, Ratio, Resource, Source, TicketId, TicketView};

use super::Work;
use super::view::terms_of;
use crate::message::Refusal;
use divvy_api::market::{Explained, Why};

/// Steps of one explanation, at most. The parts of the value itself are always all there.
const STEPS_MAX: usize = 4096;

/// What was explained so far.
struct Path {
    resource: Resource,
    /// Each currency is explained once: with several ways to the base the ways are more than anybody can read.
    explained: BTreeSet<CurrencyId>,
    steps: usize,
    /// Active soft tickets of an issuer.
    soft: BTreeMap<CurrencyId, u64>,
}

impl Work<'_> {
    pub(super) fn explain(&mut self, id: CurrencyId, resource: Resource) -> Result<Explained, Refusal> {
        let sources = self.ledger.market.explain(id, resource).map_err(|refusal| self.in_words(refusal))?;
        let mut path = Path { resource, explained: BTreeSet::from([id]), steps: 0, soft: BTreeMap::new() };
        let parts = self.whys(id, &sources, &mut path);
        Ok(Explained { currency: self.currency(id)?, resource, parts })
    }

    fn whys(&mut self, holder: CurrencyId, sources: &[Source], path: &mut Path) -> Vec<Why> {
        path.steps += sources.len();
        sources.iter().map(|source| self.why(holder, source, path)).collect()
    }

    /// One part. At most [`divvy_market::CURRENCY_DEPTH_MAX`] calls deep.
    fn why(&mut self, holder: CurrencyId, source: &Source, path: &mut Path) -> Why {
        let value = source.value().to_string();
        let plain = |what: &str, words: String, value| Why {
            what: what.to_owned(),
            words,
            value,
            ticket: None,
            from: Vec::new(),
        };
        match source {
            Source::Ticket(view, worth) => self.why_ticket(view, worth, path),
            Source::Exchange(id, _) => {
                let words = match self.exchange(*id) {
                    Ok(exchange) => format!("exchange {}: {}", exchange.id, terms_of(&exchange)),
                    Err(_) => format!("exchange {}", id.0),
                };
                plain("exchange", words, value)
            }
            Source::Lodged(ticket, _) => {
                let words = format!(
                    "what {} got and gave in exchanges: it counts here while that is idle",
                    self.holder_of(*ticket)
                );
                plain("lodged", words, value)
            }
            Source::PassedOn(_) => {
                let words = format!(
                    "what {} got and gave in exchanges: it counts at its funders while it is idle",
                    self.name(holder)
                );
                plain("passed-on", words, value)
            }
        }
    }

    fn holder_of(&self, ticket: TicketId) -> String {
        let view = self.ledger.market.ticket_view(ticket);
        view.map_or_else(|| format!("the holder of ticket {ticket}"), |view| self.name(view.holder))
    }

    fn why_ticket(&mut self, view: &TicketView, worth: &Ratio, path: &mut Path) -> Why {
        let base = self.ledger.market.base();
        let words = self.words_for(view, path);
        let mut from = Vec::new();
        if view.issuer != base && view.active && path.steps < STEPS_MAX && path.explained.insert(view.issuer)
        {
            // It is there: it issued the ticket.
            let sources = self.ledger.market.explain(view.issuer, path.resource).unwrap_or_default();
            from = self.whys(view.issuer, &sources, path);
        }
        let ticket = Some(self.show_ticket(view));
        Why { what: "ticket".to_owned(), words, value: worth.to_string(), ticket, from }
    }

    fn words_for(&self, view: &TicketView, path: &mut Path) -> String {
        let market = &self.ledger.market;
        let (issuer, resource, n) = (self.name(view.issuer), path.resource, view.amount);
        let (issued, total) = market.hard_tickets(view.issuer, resource).unwrap_or_default();
        if !view.active {
            return format!("{n} {} tickets of {issuer}, idle", kind(view.kind));
        }
        if view.kind == Kind::Hard {
            return format!("{n} of the {total} hard tickets of {issuer}");
        }
        if view.issuer == market.base() && issued == 0 {
            return format!("{n} base tickets");
        }
        let active = |ticket: &TicketView| ticket.active && ticket.kind != Kind::Hard;
        let all = *path.soft.entry(view.issuer).or_insert_with(|| {
            market
                .issued_by(view.issuer, resource)
                .iter()
                .filter(|ticket| active(ticket))
                .map(|t| t.amount)
                .sum()
        });
        if view.kind == Kind::Transfer {
            return format!("lent by {issuer}, which waits: {n} of {all} parts");
        }
        let left = if issued > 0 {
            format!(", which share {} of its {total} hard ones", total - issued)
        } else {
            String::new()
        };
        format!("{n} of the {all} active soft tickets of {issuer}{left}")
    }
}

const fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Soft => "soft",
        Kind::Hard => "hard",
        Kind::Transfer => "transfer",
    }
}
