//! Random operations on a market for as long as you like, with every law checked again and again.
//!
//! `cargo run --release -p divvy-market --example stress -- [OPERATIONS [SEED [FROM]]]`, 10,000,000 and 1 unless told. It goes
//! through markets of several sizes, and through several markets of each. It ends at the first law that does not hold,
//! with the operation's number; with the same seed, and every operation checked and told from a number FROM on, the
//! culprit is found.

#[path = "../tests/random/mod.rs"]
mod random;

use random::{Numbers, Size, World, check_values, written};
use std::collections::BTreeMap;

const SIZES: [Size; 3] = [
    Size { currencies: 8, clients: 10, tickets: 50 },
    Size { currencies: 30, clients: 60, tickets: 300 },
    Size { currencies: 150, clients: 600, tickets: 4000 },
];
/// Operations on one market before the next begins.
const PER_MARKET: u64 = 50_000;

#[derive(Default)]
struct Tally {
    done: u64,
    refused: u64,
    audits: u64,
    oracles: u64,
    unchanged: u64,
    undone: u64,
    largest: usize,
    reasons: BTreeMap<String, u64>,
}

/// Every law after one operation in so many: the fewer tickets, the oftener.
fn check(world: &mut World, number: u64, careful: bool, tally: &mut Tally) {
    let tickets = world.market.nr_tickets() as u64 + 10;
    if careful || number.is_multiple_of(tickets) {
        world.market.audit().unwrap_or_else(|fault| panic!("after operation {number}: {fault:?}"));
        tally.audits += 1;
    }
    if careful || number.is_multiple_of(8 * tickets) {
        check_values(&mut world.market);
        tally.oracles += 1;
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|word| {
        word.parse::<u64>().unwrap_or_else(|_| {
            eprintln!("stress: `{word}` is no whole number; usage: stress [OPERATIONS [SEED [FROM]]]");
            std::process::exit(2)
        })
    });
    let operations = arguments.next().unwrap_or(10_000_000);
    let seed = arguments.next().unwrap_or(1);
    let from = arguments.next().unwrap_or(u64::MAX);
    let mut numbers = Numbers::seeded(seed);
    let mut tally = Tally::default();
    let mut world = World::new(SIZES[0]);
    for number in 0..operations {
        if number.is_multiple_of(operations.div_ceil(10)) {
            println!("{number} operations, {} tickets", world.market.nr_tickets());
        }
        if number.is_multiple_of(PER_MARKET) {
            world = World::new(SIZES[(number / PER_MARKET) as usize % SIZES.len()]);
        }
        let (caller, op) = world.draw(&mut numbers);
        // Writing a market down costs much; a sample of all operations is compared to the letter.
        let before = (numbers.below(500) == 0).then(|| written(&world.market));
        let outcome = world.apply(&caller, &op);
        if number >= from {
            println!("{number}: {op:?}: {outcome:?}");
        }
        match outcome {
            Ok(outcome) => {
                tally.done += 1;
                tally.undone += outcome.undone.len() as u64;
            }
            Err(refusal) => {
                tally.refused += 1;
                let word = format!("{refusal:?}");
                let word = word.split([' ', '(', '{']).next().unwrap_or_default().to_owned();
                *tally.reasons.entry(word).or_default() += 1;
                if let Some(before) = before {
                    assert!(
                        before == written(&world.market),
                        "operation {number} was refused and changed something"
                    );
                    tally.unchanged += 1;
                }
            }
        }
        tally.largest = tally.largest.max(world.market.nr_tickets());
        check(&mut world, number, number >= from, &mut tally);
    }
    report(operations, seed, &tally);
}

fn report(operations: u64, seed: u64, tally: &Tally) {
    println!("{operations} operations from seed {seed}: {} done, {} refused", tally.done, tally.refused);
    println!("largest market: {} tickets; exchanges undone: {}", tally.largest, tally.undone);
    println!(
        "laws: {} audits of all books, {} comparisons of all values with a from-scratch calculation, \
         {} refused operations compared to the letter",
        tally.audits, tally.oracles, tally.unchanged
    );
    for (reason, times) in &tally.reasons {
        println!("  {reason}: {times}");
    }
    println!("every law held");
}
