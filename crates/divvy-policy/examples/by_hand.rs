//! A dispatcher driven by hand: `cargo run -p divvy-policy --example by_hand`.
//!
//! Whoever has CPUs to give away tells the policy what happens, and asks it what to do. Here two clients want one CPU for a
//! second; the second has three times the share of the first.

use divvy_policy::dispatch::stride::{Stride, StrideParams};
use divvy_policy::{ClientId, CpuId, Event, Grant, Instant, Nanos, Policy as _, Share};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut policy = Stride::new(StrideParams::default())?;
    let mut now = Instant(0);
    let mut used = [Nanos::ZERO; 2];
    for (id, share) in [(0, 1), (1, 3)] {
        let client = ClientId(id);
        policy.on_event(now, Event::Join { client, share: Share::new(share)? })?;
        policy.on_event(now, Event::Wake { client })?;
    }
    policy.on_event(now, Event::Free { cpu: CpuId(0) })?;
    while now < Instant(1_000_000_000) {
        let Some(Grant { cpu, client, slice }) = policy.poll_decision(now) else { break };
        // It runs for as long as it may, and the policy is told.
        now = now + slice;
        used[client.index()] += slice;
        policy.on_event(now, Event::Charge { client, used: slice })?;
        policy.on_event(now, Event::Free { cpu })?;
    }
    println!("share 1: {}, share 3: {}", used[0], used[1]);
    assert_eq!(used[0].0 * 3, used[1].0);
    Ok(())
}
