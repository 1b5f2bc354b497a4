//! Two users with currencies, tickets and an exchange: `cargo run -p divvy-market --example trade`.
//!
//! Alice has a right to two thirds of the CPU and of the disk, Bob to the rest. Alice computes and Bob reads: she gives him rights
//! to the disk for rights to the CPU, and nobody else's change.

use divvy_market::{
    Amount, Broker, Caller, CurrencyId, Kind, Made, Market, Op, Refusal, Resource, Resources, Side,
};

/// A currency that its user alone may change, with a client in it.
fn user(market: &mut Market, uid: u32, tickets: u64) -> Result<(CurrencyId, CurrencyId), Refusal> {
    let (root, broker, base) = (Caller::superuser(), Broker::private(uid, uid), market.base());
    let Made::Currency(currency) = market.apply(&root, &Op::CreateCurrency { broker })?.made else {
        unreachable!("a currency was asked for")
    };
    let competes = Resources::ALL;
    let Made::Currency(client) = market.apply(&root, &Op::CreateClient { broker, competes })?.made else {
        unreachable!("a client was asked for")
    };
    for resource in [Resource::Cpu, Resource::Disk] {
        let (amount, kind) = (Amount::new(tickets)?, Kind::Soft);
        market.apply(&root, &Op::Fund { holder: currency, issuer: base, resource, amount, kind })?;
        // However many it makes for its clients: together they are worth what backs the currency.
        let amount = Amount::new(7)?;
        market.apply(&root, &Op::Fund { holder: client, issuer: currency, resource, amount, kind })?;
    }
    Ok((currency, client))
}

fn show(market: &mut Market, when: &str, clients: [CurrencyId; 2]) -> Result<Vec<String>, Refusal> {
    let mut values = Vec::new();
    for client in clients {
        for resource in [Resource::Cpu, Resource::Disk] {
            values.push(market.value(client, resource)?.to_string());
        }
    }
    println!(
        "{when}: alice's CPU {}, disk {}; bob's CPU {}, disk {}",
        values[0], values[1], values[2], values[3]
    );
    Ok(values)
}

fn main() -> Result<(), Refusal> {
    let mut market = Market::new();
    let (alice, computes) = user(&mut market, 1001, 200)?;
    let (bob, reads) = user(&mut market, 1002, 100)?;
    let before = show(&mut market, "before", [computes, reads])?;
    assert_eq!(before, ["200", "200", "100", "100"]);
    let side = |resource, amount| Ok(Side { resource, amount: Amount::new(amount)? });
    let trade = Op::Exchange {
        a: alice,
        a_gives: side(Resource::Disk, 90)?,
        b: bob,
        b_gives: side(Resource::Cpu, 60)?,
    };
    market.apply(&Caller::superuser(), &trade)?;
    let after = show(&mut market, "after", [computes, reads])?;
    assert_eq!(after, ["260", "110", "40", "190"]);
    Ok(())
}
