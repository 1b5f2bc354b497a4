//! Where it takes the driver long to hold clients and to release them, cycles are as long as that is worth.

mod gate_common;

use divvy_policy::gate::{Exact, ExactParams, Lag};
use divvy_policy::{Gate, Nanos, Policy};
use gate_common::{MS, World};

const SECONDS: u64 = 8;

/// Cycles a second of one client more than there are CPUs, all of one share, where to hold and release all takes so many us.
fn cycles<P: Policy<Decision = Gate>>(policy: P, cpus: u64, us: u64) -> u64 {
    let mut w = World::new(policy, cpus);
    for _ in 0..=cpus {
        w.join(1);
    }
    w.policy.set_switch_cost(Nanos::from_micros(us));
    w.run_until(SECONDS * 1000 * MS);
    let all: u64 = w.used().iter().sum();
    assert_eq!(all, cpus * SECONDS * 1000 * MS, "no CPU idles");
    for used in w.used() {
        // Within a part in the last cycle.
        assert!(used.abs_diff(all / (cpus + 1)) <= 250 * MS, "{:?} of {us} us", w.used());
    }
    w.cycles() / SECONDS
}

fn params(cpus: u32, cycle_max: Option<u64>) -> ExactParams {
    ExactParams { cpus, cycle_max: cycle_max.map(Nanos::from_millis), ..ExactParams::default() }
}

#[test]
fn cycles_are_as_long_as_switches_are_worth() {
    let exact = |us, cycle_max| cycles(Exact::new(params(1, cycle_max)).unwrap(), 1, us);
    let lag = |us, cycle_max| cycles(Lag::new(params(2, cycle_max)).unwrap(), 2, us);
    // A cycle of 20 ms, and one of 15. 300 us are a 64th of that and less; 1 ms is one of 64 ms.
    assert_eq!([exact(0, Some(1_000)), exact(300, Some(1_000))], [50, 50]);
    assert_eq!(exact(1_000, Some(1_000)), 15);
    assert_eq!([lag(0, Some(1_000)), lag(200, Some(1_000))], [66, 66]);
    assert!((15..=16).contains(&lag(1_000, Some(1_000))));
    // No longer than a quarter of a second or the longest cycle, and as long as they were where whoever started the run said how long.
    assert_eq!([exact(100_000, Some(1_000)), exact(100_000, Some(200))], [4, 5]);
    assert_eq!([exact(100_000, None), lag(100_000, None)], [50, 66]);
    // Turns that are slices end as often in a longer cycle.
    let slice = Some(Nanos::from_millis(5));
    let sliced = Exact::new(ExactParams { slice, ..params(1, Some(1_000)) }).unwrap();
    assert_eq!(cycles(sliced, 1, 100_000), 50);
}
