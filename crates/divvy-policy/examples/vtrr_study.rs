//! Figures 1 and 2 of the VTRR paper on one core: 40 (clients, sum of shares) pairs x K share assignments x WRR, WFQ and
//! VTRR; prints the mean extremes of each pair and what it cost. `vtrr_study [K] [SEED]`, by default 10,000 and 1.

use std::time::Instant;

use divvy_policy::dispatch::rng::SplitMix64;
use divvy_policy::dispatch::static_run::{Extremes, StaticRun, uniform_shares};

fn add(sums: &mut [i64; 2], ends: Extremes) {
    sums[0] += ends.min;
    sums[1] += ends.max;
}

/// CPU time that this thread has used, in seconds, where the kernel tells.
fn cpu_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(text.split_whitespace().next()?.parse::<u64>().ok()? as f64 / 1e9)
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn now() -> Instant {
    Instant::now()
}

fn main() {
    let number = |at: usize, default: u64| {
        std::env::args().nth(at).map_or(default, |text| text.parse().expect("a whole number"))
    };
    let (rounds, seed) = (number(1, 10_000), number(2, 1));
    let mut rng = SplitMix64::new(seed);
    let mut run = StaticRun::default();
    let mut spent = [0.0; 4];
    let mut decisions = 0u64;
    let (start, cpu_start) = (now(), cpu_seconds());
    println!(
        "   N     S   WRR min   max        WFQ min   max      VTRR min   max   (mean over {rounds}, quanta)"
    );
    for total in [128u32, 256, 512, 1024, 2048] {
        for clients in (2..=16).step_by(2) {
            let mut sums = [[0i64; 2]; 3];
            let mut sets = vec![0u32; clients * rounds as usize];
            let mut mark = now();
            let mut lap = |slot: usize| {
                spent[slot] += mark.elapsed().as_secs_f64();
                mark = now();
            };
            sets.chunks_mut(clients).for_each(|shares| uniform_shares(&mut rng, total, shares));
            lap(0);
            for shares in sets.chunks(clients) {
                run.load(shares).expect("shares that were scaled to the total");
                add(&mut sums[0], run.wrr());
            }
            lap(1);
            for shares in sets.chunks(clients) {
                run.load(shares).expect("shares that were scaled to the total");
                add(&mut sums[1], run.wfq());
            }
            lap(2);
            for shares in sets.chunks(clients) {
                run.load(shares).expect("shares that were scaled to the total");
                add(&mut sums[2], run.vtrr());
            }
            lap(3);
            decisions += 3 * rounds * u64::from(total);
            let mean = |sum: i64| sum as f64 / (rounds * u64::from(total)) as f64;
            let [wrr, wfq, vtrr] = sums.map(|[min, max]| format!("{:9.3} {:8.3}", mean(min), mean(max)));
            println!("{clients:4} {total:5} {wrr} {wfq} {vtrr}");
        }
    }
    println!("{decisions} decisions in {:.2} s", start.elapsed().as_secs_f64());
    if let (Some(before), Some(after)) = (cpu_start, cpu_seconds()) {
        println!("CPU time {:.2} s", after - before);
    }
    println!(
        "shares {:.2} s, wrr {:.2} s, wfq {:.2} s, vtrr {:.2} s",
        spent[0], spent[1], spent[2], spent[3]
    );
}
