//! The smallest traces that showed a mistake once.

use divvy_market::{
    Amount, Broker, Caller, CurrencyId, Kind, Made, Market, Op, Presence, Resource, Resources, Side, TicketId,
};

const BROKER: Broker = Broker::private(1, 1);

fn does(market: &mut Market, op: Op) -> Made {
    let outcome =
        market.apply(&Caller::superuser(), &op).unwrap_or_else(|refusal| panic!("{op:?}: {refusal}"));
    market.audit().unwrap_or_else(|fault| panic!("{op:?}: {fault:?}"));
    outcome.made
}

fn made(market: &mut Market, op: Op) -> CurrencyId {
    let Made::Currency(id) = does(market, op) else { panic!("{op:?} makes a currency") };
    id
}

fn funds(
    market: &mut Market,
    holder: CurrencyId,
    issuer: CurrencyId,
    resource: Resource,
    n: u64,
    kind: Kind,
) -> TicketId {
    let op = Op::Fund { holder, issuer, resource, amount: Amount::new(n).unwrap(), kind };
    let Made::Ticket(id) = does(market, op) else { panic!("{op:?} makes a ticket") };
    id
}

/// A new hard total moved the value of hard tickets, and was seen only where soft tickets were active as well.
#[test]
fn a_new_hard_total_reaches_who_holds_hard_tickets_only() {
    let mut market = Market::new();
    let base = market.base();
    let currency = made(&mut market, Op::CreateCurrency { broker: BROKER });
    let client = made(&mut market, Op::CreateClient { broker: BROKER, competes: Resources::ALL });
    let inner = made(&mut market, Op::CreateCurrency { broker: BROKER });
    funds(&mut market, currency, base, Resource::Cpu, 100, Kind::Soft);
    funds(&mut market, inner, currency, Resource::Cpu, 200, Kind::Hard);
    funds(&mut market, client, inner, Resource::Cpu, 1, Kind::Soft);
    // 100 * 200 / 1000, then 100 * 200 / 400.
    assert_eq!(market.value(client, Resource::Cpu).unwrap().to_string(), "20");
    let total = Amount::new(400).unwrap();
    does(&mut market, Op::SetHardTotal { currency, resource: Resource::Cpu, total });
    assert_eq!(market.value(client, Resource::Cpu).unwrap().to_string(), "50");
}

/// An idle party whose last worthy funder left had its next exchange counted nowhere, though it had another funder.
#[test]
fn a_worthless_funder_carries_what_nobody_else_can() {
    let mut market = Market::new();
    let base = market.base();
    let cpu = |n| Side { resource: Resource::Cpu, amount: Amount::new(n).unwrap() };
    let disk = |n| Side { resource: Resource::Disk, amount: Amount::new(n).unwrap() };
    let [worthless, worthy] = [0; 2].map(|_| made(&mut market, Op::CreateCurrency { broker: BROKER }));
    let [party, other, sibling] =
        [0; 3].map(|_| made(&mut market, Op::CreateClient { broker: BROKER, competes: Resources::ALL }));
    for resource in [Resource::Cpu, Resource::Disk] {
        funds(&mut market, other, base, resource, 100, Kind::Soft);
    }
    funds(&mut market, party, base, Resource::Cpu, 100, Kind::Soft);
    funds(&mut market, worthy, base, Resource::Disk, 100, Kind::Soft);
    funds(&mut market, party, worthless, Resource::Disk, 1, Kind::Soft);
    funds(&mut market, sibling, worthless, Resource::Disk, 1, Kind::Soft);
    let ticket = funds(&mut market, party, worthy, Resource::Disk, 1, Kind::Soft);
    does(&mut market, Op::SetPresence { client: party, resource: Resource::Disk, presence: Presence::Idle });
    let exchange = Op::Exchange { a: party, a_gives: cpu(5), b: other, b_gives: disk(20) };
    does(&mut market, exchange);
    does(&mut market, Op::Unfund { ticket });
    assert_eq!(market.exchanges().count(), 0, "the funder took the exchange with it");
    does(&mut market, exchange);
    assert_eq!(market.value(sibling, Resource::Disk).unwrap().to_string(), "20");
}

/// Two exchanges of an idle party weighed each other up, so its ticket carried nothing; one of them ended with a currency
/// above, and the other's part was then lost when that currency's tickets went.
#[test]
fn exchanges_that_weigh_each_other_up_go_together() {
    let mut market = Market::new();
    let base = market.base();
    let side = |resource, n| Side { resource, amount: Amount::new(n).unwrap() };
    let [top, upper, lower] = [0; 3].map(|_| made(&mut market, Op::CreateCurrency { broker: BROKER }));
    let [party, other, stays] =
        [0; 3].map(|_| made(&mut market, Op::CreateClient { broker: BROKER, competes: Resources::ALL }));
    for resource in [Resource::Cpu, Resource::Disk] {
        funds(&mut market, top, base, resource, 100, Kind::Soft);
        funds(&mut market, upper, top, resource, 1, Kind::Soft);
        funds(&mut market, stays, top, resource, 1, Kind::Soft);
        funds(&mut market, lower, upper, resource, 1, Kind::Soft);
        funds(&mut market, party, lower, resource, 1, Kind::Soft);
        funds(&mut market, other, base, resource, 100, Kind::Soft);
    }
    let (cpu, disk) = (side(Resource::Cpu, 5), side(Resource::Disk, 5));
    does(&mut market, Op::Exchange { a: lower, a_gives: disk, b: party, b_gives: cpu });
    does(&mut market, Op::Exchange { a: other, a_gives: cpu, b: party, b_gives: disk });
    does(&mut market, Op::SetPresence { client: party, resource: Resource::Disk, presence: Presence::Idle });
    assert_eq!(market.value(stays, Resource::Disk).unwrap().to_string(), "95");
    does(&mut market, Op::Destroy { currency: upper });
    assert_eq!(market.exchanges().count(), 0);
    assert_eq!(market.value(stays, Resource::Disk).unwrap().to_string(), "100");
}
