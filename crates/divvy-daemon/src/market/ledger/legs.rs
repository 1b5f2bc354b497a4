//! This node's part in exchanges over nodes: base tickets go from one user's own currency to another's, and come back.
//!
//! What is done when says [`divvy_site::Agent`]. Here are its operations on the market. The taker gets a currency for each leg,
//! which has the tickets and funds the taker's own one: so nobody's own base tickets are mixed with those of a leg, and all
//! of a leg ends with one operation.
//!
//! What the agent has heard of the dealer is not kept: after a restart it hears again.

use std::collections::BTreeMap;

use divvy_market::{Broker, CurrencyId, Kind, Made, Moment, Op, Resource};
use divvy_site::{Agent, Entry, ExchangeId, Leg, NodeId, Orders, Refusal as SiteRefusal, UserId};
use serde::{Deserialize, Serialize};

use super::{Ended, Work};
use crate::market::message::Said;
use crate::market::record::{MovedLeg, Step};
use crate::message::Refusal;

/// Which exchanges there are, and what they moved.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Legs {
    /// As is on disk: a lease may have been renewed since.
    entries: BTreeMap<ExchangeId, Entry>,
    moved: BTreeMap<ExchangeId, Vec<MovedLeg>>,
    /// Made of the entries when it is first needed.
    #[serde(skip)]
    agent: Option<Agent>,
}

impl Legs {
    pub(super) fn note(&mut self, exchange: ExchangeId, entry: Option<&Entry>, moved: &[MovedLeg]) {
        match entry {
            Some(entry) => drop(self.entries.insert(exchange, entry.clone())),
            None => drop(self.entries.remove(&exchange)),
        }
        if moved.is_empty() {
            self.moved.remove(&exchange);
        } else {
            self.moved.insert(exchange, moved.to_vec());
        }
        self.agent = None;
    }

    /// When the next lease ends.
    pub(super) fn next_ending(&self) -> Option<Moment> {
        match &self.agent {
            Some(agent) => agent.next_ending(),
            None => self.entries.values().map(|entry| entry.until).min(),
        }
    }

    /// What others have of a currency's base tickets.
    pub(super) fn given_away(&self, giver: CurrencyId, resource: Resource) -> u64 {
        let moved = self.moved.values().flatten();
        let of = moved.filter(|moved| moved.giver == giver && moved.leg.resource == resource);
        of.map(|moved| moved.leg.amount.get()).sum()
    }
}

impl Work<'_> {
    /// Does what the site's dealer orders, and says how far its exchanges are here.
    ///
    /// # Errors
    /// Superusers only.
    pub(super) fn follow_orders(&mut self, orders: &Orders) -> Result<Said, Refusal> {
        if !self.caller.superuser {
            return Err(self.in_words(divvy_market::Refusal::SuperuserOnly));
        }
        let now = Moment(self.at_ns);
        self.legs_end = "the site's dealer ended it, or its lease is over";
        // A renewal is put on disk when what is there is a quarter of a lease behind.
        let report = self.with_agent(orders.lease_ns / 2, |agent, work| {
            agent.on_orders(now, orders, work);
            agent.report(now)
        });
        Ok(Said::Report(report))
    }

    /// Ends what was not renewed.
    pub(super) fn end_leases(&mut self) {
        let now = Moment(self.at_ns);
        self.legs_end = "its lease is over: the site's dealer was not heard";
        self.with_agent(u64::MAX, |agent, work| agent.on_time(now, work));
    }

    /// Ends the exchanges in which a currency gives (of one resource): it is to have less, or to end.
    pub(super) fn end_legs_of(&mut self, giver: CurrencyId, resource: Option<Resource>) {
        let gives = |moved: &MovedLeg| {
            moved.giver == giver && resource.is_none_or(|resource| resource == moved.leg.resource)
        };
        let all = self.ledger.legs.moved.iter().filter(|(_, moved)| moved.iter().any(gives));
        let ids: Vec<ExchangeId> = all.map(|(&id, _)| id).collect();
        if !ids.is_empty() {
            self.legs_end = "who gives is to have less, or ends";
            self.with_agent(u64::MAX, |agent, work| ids.iter().for_each(|&id| agent.end(id, work)));
        }
    }

    /// Whoever gave and took here is to know that the exchange is over.
    fn tell_of_end(&mut self, id: ExchangeId) {
        let legs = self.ledger.legs.moved.get(&id).into_iter().flatten();
        let legs: Vec<Leg> = legs.map(|moved| moved.leg).collect();
        let user = |uid: UserId| self.names.user_name(uid.0).unwrap_or_else(|| uid.0.to_string());
        let terms = legs.iter().map(|leg| {
            let Leg { giver, taker, resource, amount, .. } = leg;
            format!("{} gives {} {amount} {resource} on this node", user(*giver), user(*taker))
        });
        let parties = legs.iter().flat_map(|leg| [leg.giver.0, leg.taker.0]).collect();
        let terms = terms.collect::<Vec<_>>().join(", ");
        let ended = Ended { exchange: id.to_string(), terms, why: self.legs_end, parties };
        self.ledger.ended.push(ended);
    }

    fn take_legs_back(&mut self, exchange: ExchangeId) {
        for MovedLeg { leg, giver, holder, ticket } in
            self.ledger.legs.moved.remove(&exchange).unwrap_or_default()
        {
            if self.ledger.market.currency(holder).is_some() {
                let _ = self.divvyd_op(Op::Destroy { currency: holder });
            }
            for op in divvy_site::take_back(&self.ledger.market, &leg, giver, ticket, |_| false) {
                // A superuser is refused none of them.
                let _ = self.divvyd_op(op);
            }
        }
    }

    /// Lets the agent work on the market, and notes what became different; of leases, those that are `slack_ns` longer.
    fn with_agent<T>(&mut self, slack_ns: u64, work: impl FnOnce(&mut Agent, &mut Self) -> T) -> T {
        let restored = |legs: &Legs| Agent::restored(NodeId(0), legs.entries.clone());
        let mut agent = self.ledger.legs.agent.take().unwrap_or_else(|| restored(&self.ledger.legs));
        let done = work(&mut agent, self);
        let before = &self.ledger.legs.entries;
        let gone = before.keys().filter(|id| !agent.entries().contains_key(id));
        let changed = agent.entries().iter().filter(|(id, entry)| {
            let differs = |old: &Entry| {
                old.state != entry.state || entry.until.0.saturating_sub(old.until.0) > slack_ns
            };
            before.get(id).is_none_or(differs)
        });
        let changed = changed.map(|(&id, entry)| (id, Some(entry.clone())));
        let steps: Vec<_> = gone.map(|&id| (id, None)).chain(changed).collect();
        for (exchange, entry) in steps {
            let moved = self.ledger.legs.moved.get(&exchange).cloned().unwrap_or_default();
            self.note(Step::SiteExchange { exchange, entry, moved });
        }
        self.ledger.legs.agent = Some(agent);
        done
    }

    fn own_of(&mut self, user: UserId) -> Result<CurrencyId, SiteRefusal> {
        // Root has all there is, and no currency of its own to trade with.
        if user.0 == 0 {
            return Err(SiteRefusal::UnknownUser(user));
        }
        match self.ledger.users.get(&user.0) {
            Some(user) => Ok(user.currency),
            None => self.first_use(user.0).map_err(|_| SiteRefusal::Impossible(user)),
        }
    }

    fn give_leg(&mut self, exchange: ExchangeId, leg: &Leg) -> Result<MovedLeg, SiteRefusal> {
        let (giver, taker) = (self.own_of(leg.giver)?, self.own_of(leg.taker)?);
        divvy_site::Market::check(self, leg, 0)?;
        let impossible = SiteRefusal::Impossible(leg.taker);
        let uid = leg.taker.0;
        let name = format!("exchange.{exchange}");
        if self.check_free(&name, uid).is_err() || self.check_room(1, 3).is_err() {
            return Err(impossible);
        }
        let group = self.names.user_group(uid).unwrap_or(uid);
        let made = self.divvyd_op(Op::CreateCurrency { broker: Broker::private(uid, group) });
        let Ok(Made::Currency(holder)) = made else { return Err(impossible) };
        self.note(Step::Name { currency: holder, uid, name });
        let Leg { resource, amount, .. } = *leg;
        let fund = Op::Fund { holder: taker, issuer: holder, resource, amount, kind: Kind::Soft };
        let ops = divvy_site::give(&self.ledger.market, leg, giver, holder, |_| false);
        let mut ticket = None;
        for op in std::iter::once(fund).chain(ops.into_iter().flatten()) {
            match self.divvyd_op(op) {
                Ok(Made::Ticket(made)) => ticket = Some(made),
                Ok(_) => {}
                // Only the first two can be, for the depth of what is below; nothing was taken from the giver then.
                Err(_) => {
                    let _ = self.divvyd_op(Op::Destroy { currency: holder });
                    return Err(impossible);
                }
            }
        }
        let ticket = ticket.ok_or(impossible)?;
        Ok(MovedLeg { leg: *leg, giver, holder, ticket })
    }
}

impl divvy_site::Market for Work<'_> {
    fn check(&mut self, leg: &Leg, held: u64) -> Result<(), SiteRefusal> {
        let giver = self.own_of(leg.giver)?;
        self.own_of(leg.taker)?;
        let has = divvy_site::movable(&self.ledger.market, giver, leg.resource, |_| false);
        if has < held.saturating_add(leg.amount.get()) {
            return Err(SiteRefusal::NotEnough(leg.giver));
        }
        Ok(())
    }

    fn give(&mut self, exchange: ExchangeId, legs: &[Leg]) -> Result<(), SiteRefusal> {
        for leg in legs {
            match self.give_leg(exchange, leg) {
                Ok(moved) => self.ledger.legs.moved.entry(exchange).or_default().push(moved),
                Err(refusal) => {
                    self.take_legs_back(exchange);
                    return Err(refusal);
                }
            }
        }
        Ok(())
    }

    fn take_back(&mut self, exchange: ExchangeId, _: &[Leg]) {
        self.tell_of_end(exchange);
        self.take_legs_back(exchange);
    }
}
