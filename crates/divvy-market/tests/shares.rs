//! Whole shares for a scheduler, and what was promised were everybody active.

mod build;
mod random;

use build::{CPU, client, currency, exchange, fund, funds, idle, side};
use divvy_market::{
    Amount, Broker, Caller, CurrencyId, Kind, Made, Market, Op, Presence, Resource, Resources,
};
use proptest::prelude::*;
use random::{Exact, Numbers, Size, World};

const SMALL: Size = Size { currencies: 10, clients: 12, tickets: 60 };

fn shares(market: &mut Market, scale: u32) -> Vec<u64> {
    market.shares(CPU, scale).into_iter().map(|(_, share)| share).collect()
}

#[test]
fn shares_are_the_smallest_whole_numbers_that_are_exact() {
    // Figs. 5 and 6: of 12 while B3 is awake, and of 6 while it sleeps, whatever the scale.
    let mut market = Market::new();
    let base = market.base();
    let (a, b) = (currency(&mut market, 1), currency(&mut market, 2));
    for user in [a, b] {
        fund(&mut market, user, base, CPU, 1000);
    }
    let tasks: Vec<CurrencyId> = [(a, 100), (a, 200), (b, 100), (b, 200), (b, 300)]
        .map(|(issuer, n)| {
            let task = client(&mut market, 3);
            fund(&mut market, task, issuer, CPU, n);
            task
        })
        .to_vec();
    assert_eq!(shares(&mut market, 1000), [2, 4, 1, 2, 3]);
    let parts = |market: &mut Market| -> Vec<u64> {
        market.weights_in_parts(CPU, 300).into_iter().map(|(_, value)| value).collect()
    };
    // 1000/3 tickets are 100,000 of 300th parts.
    assert_eq!(parts(&mut market), [100_000, 200_000, 50_000, 100_000, 150_000]);
    idle(&mut market, tasks[4], CPU);
    assert_eq!(shares(&mut market, 1000), [1, 2, 1, 2]);
    assert_eq!(parts(&mut market), [100_000, 200_000, 100_000, 200_000], "A's are what they were");
    assert_eq!(shares(&mut market, 6), [1, 2, 1, 2], "exactly as many as the scale");
    assert_eq!(shares(&mut market, 5).iter().sum::<u64>(), 5, "fewer: by largest remainder");
}

#[test]
fn nobody_with_a_right_has_no_share() {
    let mut market = Market::new();
    let base = market.base();
    let (large, small, none) = (client(&mut market, 1), client(&mut market, 2), client(&mut market, 3));
    fund(&mut market, large, base, CPU, 4_000_000_000);
    fund(&mut market, small, base, CPU, 1);
    assert_eq!(market.apportion(CPU, 1000), [(large, 1000), (small, 0), (none, 0)]);
    assert_eq!(market.shares(CPU, 1000), [(large, 1000), (small, 1), (none, 0)]);
}

#[test]
fn a_promise_counts_sleepers_and_no_exchanges() {
    let mut market = Market::new();
    let base = market.base();
    let (a, b) = (currency(&mut market, 1), currency(&mut market, 2));
    fund(&mut market, a, base, CPU, 300);
    fund(&mut market, a, base, Resource::Disk, 300);
    fund(&mut market, b, base, CPU, 100);
    fund(&mut market, b, base, Resource::Disk, 100);
    let (x, y, z) = (client(&mut market, 1), client(&mut market, 1), client(&mut market, 2));
    for resource in [CPU, Resource::Disk] {
        fund(&mut market, x, a, resource, 1);
        fund(&mut market, y, a, resource, 2);
        fund(&mut market, z, b, resource, 1);
    }
    exchange(&mut market, x, side(CPU, 50), z, side(Resource::Disk, 10));
    idle(&mut market, y, CPU);
    let mut promises = market.promises(CPU);
    let promised: Vec<String> =
        [base, a, b, x, y, z].iter().map(|&id| promises.value(id).unwrap().to_string()).collect();
    assert_eq!(promised, ["400", "300", "100", "100", "200", "100"]);
    // With a hard ticket the base is worth its hard total.
    funds(&mut market, z, base, CPU, 250, Kind::Hard);
    let mut promises = market.promises(CPU);
    assert_eq!(promises.total().to_string(), "1000");
    assert_eq!(promises.value(z).unwrap().to_string(), "875/2", "250 hard, and 100 of 400 of the other 750");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// Whoever weighs something has a share; exact shares are to each other as the weights, others are off by less than
    /// one part. And a promise is the value in a market where all that sleep were woken and all exchanges cancelled.
    #[test]
    fn shares_and_promises_are_those_of_the_weights(
        seeds in prop::collection::vec(any::<u64>(), 1..120),
        scale in 1u32..3000,
    ) {
        let mut world = World::new(SMALL);
        for seed in seeds {
            let (caller, op) = world.draw(&mut Numbers::seeded(seed));
            let _ = world.apply(&caller, &op);
        }
        let mut market = world.market;
        for resource in Resource::ALL {
            let shares = market.shares(resource, scale);
            let parts = market.apportion(resource, scale);
            let weights: Vec<Exact> = shares
                .iter()
                .map(|&(id, _)| market.weight(id, resource).unwrap().to_string().parse().unwrap())
                .collect();
            let nothing = Exact::from_integer(0.into());
            for ((&(_, share), weight), &(_, part)) in shares.iter().zip(&weights).zip(&parts) {
                prop_assert_eq!(share == 0, *weight == nothing);
                let exact = shares.iter().zip(&weights).all(|(&(_, other), other_weight)| {
                    Exact::from_integer(other.into()) * weight == Exact::from_integer(share.into()) * other_weight
                });
                prop_assert!(exact || share == part.max(1) || *weight == nothing);
            }
        }
        let root = Caller::superuser();
        // A currency that backs nobody is never active, but its tickets count in a promise: give it somebody.
        let currencies: Vec<_> =
            market.currencies().filter(|node| !node.client && node.id != market.base()).map(|node| node.id).collect();
        for issuer in currencies {
            let (broker, competes) = (Broker::private(1, 1), Resources::NONE);
            let made = market.apply(&root, &Op::CreateClient { broker, competes }).unwrap().made;
            let Made::Currency(holder) = made else { unreachable!() };
            for resource in Resource::ALL {
                let (amount, kind) = (Amount::new(1).unwrap(), Kind::Soft);
                // At the end of the longest path there is no room below, and then nothing is promised further down either.
                let _ = market.apply(&root, &Op::Fund { holder, issuer, resource, amount, kind });
            }
        }
        let mut awake = market.clone();
        let exchanges: Vec<_> = awake.exchanges().map(|exchange| exchange.id).collect();
        for exchange in exchanges {
            let _ = awake.apply(&root, &Op::CancelExchange { exchange });
        }
        let clients: Vec<_> = awake.currencies().filter(|node| node.client).map(|node| node.id).collect();
        for &client in &clients {
            for resource in Resource::ALL {
                let presence = Presence::Competing;
                awake.apply(&root, &Op::SetPresence { client, resource, presence }).unwrap();
            }
        }
        for resource in Resource::ALL {
            let mut promises = market.promises(resource);
            for &client in &clients {
                let promised = promises.value(client).unwrap();
                prop_assert_eq!(promised.to_string(), awake.value(client, resource).unwrap().to_string());
            }
        }
    }
}
