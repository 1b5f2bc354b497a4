//! Sequences of operations on a market, by root and four users: every law that the market's own tests hold it to.
#![no_main]

#[path = "../../crates/divvy-market/tests/random/mod.rs"]
mod random;

use divvy_market::{Market, Resource};
use libfuzzer_sys::fuzz_target;
use random::{Numbers, Size, World, check_values, written};

/// Small, so that parties meet often and the whole market can be checked after each operation.
const SIZE: Size = Size { currencies: 6, clients: 8, tickets: 40 };
/// Operations in one sequence; longer ones find nothing that is not found here, and are slow.
const OPERATIONS_MAX: u64 = 120;
/// How many operations pass between comparisons of all values with a from-scratch calculation.
const BETWEEN_ORACLES: u64 = 12;

fuzz_target!(|data: &[u8]| {
    let mut numbers = Numbers::Told(data.to_vec(), 0);
    let mut world = World::new(SIZE);
    for number in 1..=OPERATIONS_MAX {
        if numbers.is_over() {
            break;
        }
        let (caller, op) = world.draw(&mut numbers);
        let before = written(&world.market);
        if world.apply(&caller, &op).is_err() {
            assert_eq!(before, written(&world.market), "{op:?} was refused and changed something");
        }
        // Among the laws are that no total is negative and that exchange tickets sum to zero.
        world.market.audit().unwrap_or_else(|fault| panic!("after operation {number}, {op:?}: {fault:?}"));
        if number.is_multiple_of(BETWEEN_ORACLES) {
            check_values(&mut world.market);
        }
    }
    check_values(&mut world.market);
    check_kept(&mut world.market);
});

/// What is written down and read back is the same market, with the same values.
fn check_kept(market: &mut Market) {
    let text = written(market);
    let mut back: Market = serde_json::from_str(&text).expect("what a market wrote is a market");
    assert_eq!(written(&back), text);
    back.audit().unwrap_or_else(|fault| panic!("read back: {fault:?}"));
    for resource in Resource::ALL {
        assert_eq!(random::values(&mut back, resource), random::values(market, resource), "{resource}");
        assert_eq!(back.total(resource).to_string(), market.total(resource).to_string(), "{resource}");
    }
}
