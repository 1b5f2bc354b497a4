//! How long a divvyd that runs takes to answer, each kind of request: median, 99th percentile and maximum.
//!
//! `cargo run --release -p divvy-daemon --example latency -- 1000` asks the user's own divvyd 1000 times each. Load it
//! first, with clients that compute. It changes the share of the first client to what it is.
#![allow(clippy::disallowed_methods, reason = "it measures real time")]

use std::time::{Duration, Instant};

use divvy_api::client::{Api, ApiError};
use divvy_api::types::Change;

fn measure(what: &str, n: usize, mut call: impl FnMut() -> Result<(), ApiError>) -> Result<(), ApiError> {
    let mut times = Vec::with_capacity(n);
    for _ in 0..n {
        // Not in step with anything that repeats.
        std::thread::sleep(Duration::from_micros(1000 + 37 * (times.len() as u64 % 101)));
        let start = Instant::now();
        call()?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    let ms = |i: usize| times[i.min(n - 1)].as_secs_f64() * 1e3;
    println!("| {what} | {:.2} | {:.2} | {:.2} |", ms(n / 2), ms(n * 99 / 100), ms(n - 1));
    Ok(())
}

fn main() -> Result<(), ApiError> {
    let n = std::env::args().nth(1).and_then(|n| n.parse().ok()).filter(|&n| n > 0).unwrap_or(1000);
    let api = Api::of_user()?;
    let list = api.clients()?;
    let members: usize = list.clients.iter().map(|c| c.nr_members).sum();
    println!("{} clients, {members} processes, {n} requests of each kind", list.clients.len());
    println!("| request | median, ms | 99th percentile, ms | longest, ms |");
    println!("|---|---|---|---|");
    measure("status", n, || api.status().map(drop))?;
    measure("clients", n, || api.clients().map(drop))?;
    if let Some(first) = list.clients.first() {
        let change = Change { share: Some(first.share), ..Change::default() };
        measure("change a share", n, || api.change(&first.name, change).map(drop))?;
    }
    let status = api.status()?;
    println!("divvyd itself: {:.2} % of a CPU since it began", status.own.overhead * 100.0);
    Ok(())
}
