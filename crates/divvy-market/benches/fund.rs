//! Funding and unfunding in a market of 1,000,000 tickets, each followed by the read of a value that it changed.

mod big;

use big::{Big, CPU, LEVELS};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};

fn fund(c: &mut Criterion) {
    let mut group = c.benchmark_group("1,000,000 tickets");
    let mut big = Big::new();
    for level in [0, LEVELS.len() / 2, LEVELS.len() - 1] {
        let big = std::cell::RefCell::new(&mut big);
        group.bench_function(
            format!("fund and unfund at depth {}, reading a leaf after each", level + 1),
            |b| {
                b.iter_batched(
                    || {
                        let mut big = big.borrow_mut();
                        loop {
                            let (issuer, client) = big.pick(level);
                            if let Some(leaf) = big.leaf_below(issuer) {
                                break (issuer, client, leaf);
                            }
                        }
                    },
                    |(issuer, client, leaf)| {
                        let mut big = big.borrow_mut();
                        let ticket = big.fund(client, issuer);
                        let with = big.market.value(leaf, CPU);
                        big.unfund(ticket);
                        (with, big.market.value(leaf, CPU))
                    },
                    BatchSize::SmallInput,
                );
            },
        );
    }
    group.finish();
}

criterion_group!(benches, fund);
criterion_main!(benches);
