//! A node with a real `divvy-market`: users are made on first use, each with a thousand base tickets of each resource and a
//! client that competes.
#![allow(dead_code, reason = "each user of this file needs a part of it")]

use divvy_market::{
    Amount, Broker, Caller, CurrencyId, Kind, Made, Market, Op, Resource, Resources, TicketId,
};
use divvy_site::{ExchangeId, Leg, Refusal, UserId};
use std::collections::{BTreeMap, BTreeSet};

pub const GRANT: u64 = 1000;
/// Users beyond this are not known to any node.
pub const USERS_MAX: u32 = 1_000_000;

#[derive(Clone, Debug, Default)]
pub struct Node {
    pub market: Market,
    users: BTreeMap<UserId, CurrencyId>,
    /// The takers' tickets.
    pub moved: BTreeMap<ExchangeId, Vec<(Leg, TicketId)>>,
    /// All of these, as a set.
    of_legs: BTreeSet<TicketId>,
}

fn root() -> Caller {
    Caller::superuser()
}

impl Node {
    fn op(&mut self, op: Op) -> Result<Made, divvy_market::Refusal> {
        self.market.apply(&root(), &op).map(|outcome| outcome.made)
    }

    pub fn user(&mut self, user: UserId) -> CurrencyId {
        if let Some(&currency) = self.users.get(&user) {
            return currency;
        }
        let broker = Broker::private(user.0, user.0);
        let Ok(Made::Currency(own)) = self.op(Op::CreateCurrency { broker }) else { panic!("a currency") };
        let client = Op::CreateClient { broker, competes: Resources::ALL };
        let Ok(Made::Currency(client)) = self.op(client) else { panic!("a client") };
        for resource in Resource::ALL {
            for (holder, issuer, amount) in [(own, self.market.base(), GRANT), (client, own, 1)] {
                let amount = Amount::new(amount).unwrap();
                self.op(Op::Fund { holder, issuer, resource, amount, kind: Kind::Soft }).unwrap();
            }
        }
        self.users.insert(user, own);
        own
    }

    /// What a user's currency is worth.
    pub fn value(&mut self, user: UserId, resource: Resource) -> String {
        let currency = self.user(user);
        self.market.value(currency, resource).unwrap().to_string()
    }

    /// All base tickets of a resource.
    pub fn total(&self, resource: Resource) -> u64 {
        self.market.issued_by(self.market.base(), resource).iter().map(|ticket| ticket.amount).sum()
    }

    /// How many of them legs have moved to a user, less those that they took.
    pub fn balance(&self, user: UserId, resource: Resource) -> i64 {
        let of = self.moved.values().flatten().map(|(leg, _)| leg).filter(|leg| leg.resource == resource);
        of.map(|leg| {
            leg.amount.get().cast_signed() * (i64::from(leg.taker == user) - i64::from(leg.giver == user))
        })
        .sum()
    }
}

impl divvy_site::Market for Node {
    fn check(&mut self, leg: &Leg, held: u64) -> Result<(), Refusal> {
        if let Some(&stranger) = [leg.giver, leg.taker].iter().find(|user| user.0 >= USERS_MAX) {
            return Err(Refusal::UnknownUser(stranger));
        }
        let giver = self.user(leg.giver);
        self.user(leg.taker);
        let has = divvy_site::movable(&self.market, giver, leg.resource, |id| self.of_legs.contains(&id));
        if has < held + leg.amount.get() { Err(Refusal::NotEnough(leg.giver)) } else { Ok(()) }
    }

    fn give(&mut self, exchange: ExchangeId, legs: &[Leg]) -> Result<(), Refusal> {
        let mut moved: Vec<(Leg, TicketId)> = Vec::new();
        for leg in legs {
            let (giver, taker) = (self.user(leg.giver), self.user(leg.taker));
            let ops = divvy_site::give(&self.market, leg, giver, taker, |id| self.of_legs.contains(&id));
            let Some(ops) = ops else {
                self.moved.insert(exchange, moved);
                self.take_back(exchange, legs);
                return Err(Refusal::NotEnough(leg.giver));
            };
            for (nth, op) in ops.into_iter().enumerate() {
                let made = self.op(op).unwrap();
                if let (0, Made::Ticket(ticket)) = (nth, made) {
                    self.of_legs.insert(ticket);
                    moved.push((*leg, ticket));
                }
            }
        }
        self.moved.insert(exchange, moved);
        Ok(())
    }

    fn take_back(&mut self, exchange: ExchangeId, _: &[Leg]) {
        for (leg, ticket) in self.moved.remove(&exchange).expect("what was given is taken back once") {
            let giver = self.user(leg.giver);
            let ops =
                divvy_site::take_back(&self.market, &leg, giver, ticket, |id| self.of_legs.contains(&id));
            for op in ops {
                self.op(op).unwrap();
            }
            self.of_legs.remove(&ticket);
        }
    }
}
