//! Short words for building markets in tests: every operation is the superuser's, and the books are checked after it.
#![allow(dead_code, reason = "each test binary uses its part")]

use divvy_market::{
    Amount, Broker, Caller, CurrencyId, ExchangeId, Kind, Made, Market, Op, Outcome, Presence, Ratio,
    Refusal, Resource, Resources, Side, TicketId,
};

pub const CPU: Resource = Resource::Cpu;
pub const MEMORY: Resource = Resource::Memory;
pub const DISK: Resource = Resource::Disk;

pub fn amount(n: u64) -> Amount {
    Amount::new(n).expect("an amount of the test")
}

pub fn side(resource: Resource, n: u64) -> Side {
    Side { resource, amount: amount(n) }
}

pub fn apply(market: &mut Market, op: Op) -> Outcome {
    let outcome =
        market.apply(&Caller::superuser(), &op).unwrap_or_else(|refusal| panic!("{op:?}: {refusal}"));
    market.audit().unwrap_or_else(|fault| panic!("{op:?}: {fault:?}"));
    outcome
}

pub fn refused(market: &mut Market, caller: &Caller, op: Op) -> Refusal {
    let refusal = market.apply(caller, &op).expect_err("a refusal");
    market.audit().unwrap_or_else(|fault| panic!("{op:?}: {fault:?}"));
    refusal
}

/// A currency of user `uid` and its group of the same number.
pub fn currency(market: &mut Market, uid: u32) -> CurrencyId {
    let Made::Currency(id) = apply(market, Op::CreateCurrency { broker: Broker::private(uid, uid) }).made
    else {
        panic!("it makes a currency")
    };
    id
}

/// A client of user `uid` that competes for everything.
pub fn client(market: &mut Market, uid: u32) -> CurrencyId {
    let op = Op::CreateClient { broker: Broker::private(uid, uid), competes: Resources::ALL };
    let Made::Currency(id) = apply(market, op).made else { panic!("it makes a client") };
    id
}

pub fn fund(
    market: &mut Market,
    holder: CurrencyId,
    issuer: CurrencyId,
    resource: Resource,
    n: u64,
) -> TicketId {
    funds(market, holder, issuer, resource, n, Kind::Soft)
}

pub fn funds(
    market: &mut Market,
    holder: CurrencyId,
    issuer: CurrencyId,
    resource: Resource,
    n: u64,
    kind: Kind,
) -> TicketId {
    let op = Op::Fund { holder, issuer, resource, amount: amount(n), kind };
    let Made::Ticket(id) = apply(market, op).made else { panic!("it makes a ticket") };
    id
}

pub fn exchange(
    market: &mut Market,
    a: CurrencyId,
    a_gives: Side,
    b: CurrencyId,
    b_gives: Side,
) -> ExchangeId {
    let Made::Exchange { exchange, .. } = apply(market, Op::Exchange { a, a_gives, b, b_gives }).made else {
        panic!("it makes an exchange")
    };
    exchange
}

pub fn idle(market: &mut Market, client: CurrencyId, resource: Resource) -> Outcome {
    apply(market, Op::SetPresence { client, resource, presence: Presence::Idle })
}

pub fn wake(market: &mut Market, client: CurrencyId, resource: Resource) -> Outcome {
    apply(market, Op::SetPresence { client, resource, presence: Presence::Competing })
}

pub fn value(market: &mut Market, id: CurrencyId, resource: Resource) -> String {
    market.value(id, resource).expect("it lives").to_string()
}

/// A client's part of what all have.
pub fn part(market: &mut Market, id: CurrencyId, resource: Resource) -> Option<Ratio> {
    let total = market.total(resource);
    market.value(id, resource).expect("it lives").over(&total)
}
