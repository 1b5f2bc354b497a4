//! What a large market costs: a part of docs/results/market.md.
//!
//! `cargo run --release -p divvy-market --example measure -- FILE [STRESS...]` writes the part to FILE, where each STRESS is a
//! file with what the stress run of this crate printed, and prints the numbers that are goals. `cargo xtask paper market`
//! calls it so.

#[path = "../benches/big/mod.rs"]
mod big;

use big::{Big, CPU, LEVELS, TICKETS};
use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The system's allocator, which counts what is in use.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes on to the system's allocator as it came; the counter touches no memory of the caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps to the contract of `alloc`, which is the system's too.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the block came from the system's allocator with this layout.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Operations of each kind that are timed.
const ROUNDS: usize = 20_000;

#[expect(clippy::disallowed_methods, reason = "this program measures time, and decides nothing by it")]
fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = std::time::Instant::now();
    let done = work();
    (start.elapsed(), done)
}

struct Times(Vec<Duration>);

impl Times {
    /// The value that `percent` of the times do not pass, in microseconds.
    fn at(&mut self, percent: usize) -> f64 {
        self.0.sort_unstable();
        self.0[(self.0.len() * percent / 100).min(self.0.len() - 1)].as_secs_f64() * 1e6
    }

    fn cells(&mut self) -> String {
        format!("{:.2} | {:.2}", self.at(50), self.at(99))
    }
}

fn times() -> Times {
    Times(Vec::new())
}

/// Funding and unfunding from currencies of one level, each with the read of a leaf that it changed.
fn level(big: &mut Big, level: usize, page: &mut String) -> f64 {
    let (mut fund, mut unfund, mut read, mut both) = (times(), times(), times(), times());
    while fund.0.len() < ROUNDS {
        let (issuer, client) = big.pick(level);
        let Some(leaf) = big.leaf_below(issuer) else { continue };
        let (took, ticket) = timed(|| big.fund(client, issuer));
        let (looked, _) = timed(|| big.market.value(leaf, CPU));
        fund.0.push(took);
        read.0.push(looked);
        both.0.push(took + looked);
        let (took, ()) = timed(|| big.unfund(ticket));
        let (looked, _) = timed(|| big.market.value(leaf, CPU));
        unfund.0.push(took);
        read.0.push(looked);
        both.0.push(took + looked);
    }
    let (fund, unfund, read) = (fund.cells(), unfund.cells(), read.cells());
    writeln!(page, "| {} | {fund} | {unfund} | {read} | {} |", level + 1, both.cells())
        .expect("a string grows");
    both.at(50)
}

/// Funding from a currency of the lowest level, and then the values of all its clients.
fn all_leaves(big: &mut Big) -> (f64, f64) {
    let (mut all, mut leaves) = (times(), 0);
    while all.0.len() < ROUNDS / 10 {
        let (issuer, client) = big.pick(LEVELS.len() - 1);
        let holders: Vec<_> = big.market.issued_by(issuer, CPU).iter().map(|ticket| ticket.holder).collect();
        let (took, ticket) = timed(|| {
            let ticket = big.fund(client, issuer);
            for &holder in &holders {
                big.market.value(holder, CPU).expect("it lives");
            }
            ticket
        });
        leaves += holders.len();
        all.0.push(took);
        big.unfund(ticket);
    }
    let mean = leaves as f64 / all.0.len() as f64;
    (all.at(50), mean)
}

/// The last part of a stress run's output, or the end of this program if the run did not come to its end.
fn laws(path: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| {
        eprintln!("measure: read {path}: {error}");
        std::process::exit(1)
    });
    let report = text.find(" operations from seed ").filter(|_| text.contains("\nevery law held"));
    let Some(report) = report.map(|at| text[..at].rfind('\n').map_or(0, |line| line + 1)) else {
        eprintln!("measure: {path} is not the output of a stress run in which every law held");
        std::process::exit(1)
    };
    let end = text.find("every law held").map_or(text.len(), |at| at + "every law held".len());
    format!("\n```text\n{}\n```\n", &text[report..end])
}

fn main() {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("measure: no file to write; usage: measure FILE [STRESS...]");
        std::process::exit(2)
    };
    let before = IN_USE.load(Ordering::Relaxed);
    let (took, mut big) = timed(Big::new);
    let ids = (big.clients.capacity() + LEVELS.iter().sum::<usize>()) * size_of::<divvy_market::CurrencyId>();
    let whole = IN_USE.load(Ordering::Relaxed) - before - ids;
    let (reads, ()) = timed(|| {
        for &client in &big.clients {
            big.market.value(client, CPU).expect("it lives");
        }
    });
    let (total, _) = timed(|| big.market.total(CPU));
    let seen = IN_USE.load(Ordering::Relaxed) - before - ids;
    let mut page = format!(
        "## The library on its own\n\n\
         Built for release. A market of {TICKETS} tickets in {} currencies, six deep, and {} clients with one ticket each; every client \
         competes, amounts are drawn from 1 to 1000. It took {:.2} s to make, {:.2} us a ticket with its client.\n\n\
         ### Time\n\n\
         Microseconds, over {ROUNDS} operations of each kind. *Read* is the value of a client at the end of a random way \
         down from the currency, which the operation changed; *both* is an operation and the read after it.\n\n\
         | depth of the issuer | fund, median | 99 % | unfund, median | 99 % | read, median | 99 % | both, median | 99 % |\n\
         |---|---|---|---|---|---|---|---|---|\n",
        LEVELS.iter().sum::<usize>(),
        big.clients.len(),
        took.as_secs_f64(),
        took.as_secs_f64() * 1e6 / TICKETS as f64,
    );
    let worst = (0..LEVELS.len()).map(|at| level(&mut big, at, &mut page)).fold(0.0, f64::max);
    let (all, leaves) = all_leaves(&mut big);
    big.market.audit().expect("the books are right after all this");
    let bytes = seen / TICKETS;
    write!(
        page,
        "\nFunding from a currency of the lowest level and then reading all of its clients, {leaves:.0} on average: {all:.1} us \
         (median). The values of all {} clients one by one: {:.2} s; their sum, worked out from the base: {:.1} ms.\n\n\
         ### Memory\n\n\
         {} bytes a ticket with its client, as built; {bytes} with every value looked at once. The ticket itself is 40 of \
         them; the others are the client that holds it, its owner, mode and books.\n",
        big.clients.len(),
        reads.as_secs_f64(),
        total.as_secs_f64() * 1e3,
        whole / TICKETS,
    )
    .expect("a string grows");
    let runs: String = std::env::args().skip(2).map(|path| laws(&path)).collect();
    if !runs.is_empty() {
        write!(page, "\n### Laws\n\nFrom runs of `--example stress`:\n{runs}").expect("a string grows");
    }
    if let Err(error) = std::fs::write(&path, &page) {
        eprintln!("measure: write {path}: {error}");
        std::process::exit(1);
    }
    println!("worst_median_us {worst}\nbytes_a_ticket {bytes}");
}
