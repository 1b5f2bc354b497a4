//! What is kept for a client and what it shares, as parts of all there is.

mod build;
mod random;

use build::{DISK, MEMORY, client, currency, exchange, fund, funds, idle, side};
use divvy_market::{CurrencyId, Kind, Market, Resource};
use proptest::prelude::*;
use random::{Numbers, Size, World};

const SMALL: Size = Size { currencies: 10, clients: 12, tickets: 60 };
const WHOLE: u64 = 1_000_000;

/// What is reserved for each, and what it shares.
#[track_caller]
fn check(market: &mut Market, expected: &[(CurrencyId, u64, u64)]) {
    let rights = market.rights_in_parts(MEMORY, WHOLE);
    let rights: Vec<_> = rights.iter().map(|right| (right.client, right.reserved, right.shared)).collect();
    assert_eq!(rights, expected);
}

#[test]
fn hard_paths_from_the_base_reserve_and_the_rest_is_shared() {
    let mut market = Market::new();
    let base = market.base();
    let (alice, bob) = (currency(&mut market, 1), currency(&mut market, 2));
    let (a, b, c) = (client(&mut market, 1), client(&mut market, 2), client(&mut market, 2));
    fund(&mut market, alice, base, MEMORY, 1000);
    fund(&mut market, bob, base, MEMORY, 1000);
    fund(&mut market, a, alice, MEMORY, 1);
    fund(&mut market, b, bob, MEMORY, 1);
    fund(&mut market, c, bob, MEMORY, 3);
    // Nothing is reserved: 1/2, 1/2 * 1/4, 1/2 * 3/4.
    check(&mut market, &[(a, 0, 500_000), (b, 0, 125_000), (c, 0, 375_000)]);
    idle(&mut market, c, MEMORY);
    check(&mut market, &[(a, 0, 500_000), (b, 0, 500_000)]);
    build::wake(&mut market, c, MEMORY);
    // 200 of the base's 1000 for alice, of which a has half for itself; 800 are shared by two users.
    funds(&mut market, alice, base, MEMORY, 200, Kind::Hard);
    let half = funds(&mut market, a, alice, MEMORY, 500, Kind::Hard);
    // a: half of 200 is reserved; of what alice has beside it (100 + 400), and of half of 400, all is shared.
    check(&mut market, &[(a, 100_000, 500_000), (b, 0, 100_000), (c, 0, 300_000)]);
    // b reserves half of what bob has: that comes and goes with others, so it is shared.
    funds(&mut market, b, bob, MEMORY, 500, Kind::Hard);
    check(&mut market, &[(a, 100_000, 500_000), (b, 0, 250_000), (c, 0, 150_000)]);
    // Nobody has what a sleeper keeps.
    idle(&mut market, b, MEMORY);
    check(&mut market, &[(a, 100_000, 500_000), (c, 0, 200_000)]);
    build::apply(&mut market, divvy_market::Op::Unfund { ticket: half });
    check(&mut market, &[(a, 0, 600_000), (c, 0, 200_000)]);
}

#[test]
fn what_is_traded_counts_with_what_the_party_has() {
    let mut market = Market::new();
    let base = market.base();
    let (a, b, c) = (client(&mut market, 1), client(&mut market, 2), client(&mut market, 3));
    for party in [a, b, c] {
        fund(&mut market, party, base, DISK, 100);
    }
    funds(&mut market, a, base, MEMORY, 300, Kind::Hard);
    funds(&mut market, b, base, MEMORY, 200, Kind::Hard);
    fund(&mut market, c, base, MEMORY, 1);
    check(&mut market, &[(a, 300_000, 0), (b, 200_000, 0), (c, 0, 500_000)]);
    exchange(&mut market, a, side(MEMORY, 50), b, side(DISK, 20));
    check(&mut market, &[(a, 250_000, 0), (b, 250_000, 0), (c, 0, 500_000)]);
    exchange(&mut market, c, side(MEMORY, 100), b, side(DISK, 20));
    check(&mut market, &[(a, 250_000, 0), (b, 350_000, 0), (c, 0, 400_000)]);
    exchange(&mut market, b, side(MEMORY, 10), c, side(DISK, 1));
    check(&mut market, &[(a, 250_000, 0), (b, 340_000, 0), (c, 0, 410_000)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Whatever was done: together no more than all there is, and of what each has no more reserved than it is worth.
    #[test]
    fn rights_are_parts_of_the_whole(seeds in prop::collection::vec(any::<u64>(), 1..120)) {
        let mut world = World::new(SMALL);
        for seed in seeds {
            let (caller, op) = world.draw(&mut Numbers::seeded(seed));
            let _ = world.apply(&caller, &op);
        }
        let mut market = world.market;
        for resource in Resource::ALL {
            let rights = market.rights_in_parts(resource, WHOLE);
            let values = market.weights_in_parts(resource, 1);
            prop_assert_eq!(rights.len(), values.len());
            let all: u64 = rights.iter().map(|right| right.reserved + right.shared).sum();
            prop_assert!(all <= WHOLE, "{all}: {rights:?}");
            let base = market.base();
            let (issued, _) = market.hard_tickets(base, resource).unwrap();
            for right in &rights {
                prop_assert!(issued > 0 || right.reserved == 0);
                let worthless = market.value(right.client, resource).unwrap().is_zero();
                prop_assert!(!worthless || right.reserved + right.shared == 0);
            }
        }
    }
}
