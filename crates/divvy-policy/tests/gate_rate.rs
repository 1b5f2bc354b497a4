//! superd's rate enforcement.

mod gate_common;

use divvy_policy::Nanos;
use divvy_policy::gate::{Rate, RateParams};
use gate_common::{Charges, MS, World};

fn rate(interval_ms: u64, period_ms: u64) -> Rate {
    let (interval, period) = (Nanos::from_millis(interval_ms), Nanos::from_millis(period_ms));
    Rate::new(RateParams { interval, period }).unwrap()
}

fn world(shares: &[u64]) -> World<Rate> {
    let mut w = World::new(rate(10, 100), 1);
    for &share in shares {
        w.join(share);
    }
    w.poll();
    w
}

#[test]
fn everybody_is_ready_at_zero() {
    // t = 0: u_i = 0 / 0 counts as 0, below every weight.
    let mut w = world(&[1, 4, 95]);
    assert_eq!(w.released(), [0, 1, 2]);
    // t = 1: A used 10 of 10 ms: u = 1 >= 1/100. B: 0 < 4/100. C: 0 < 95/100.
    w.give(0, 10 * MS);
    w.poll_at(10 * MS);
    assert_eq!(w.released(), [1, 2]);
    // t = 2: C used 10 of 20 ms: 1/2 < 95/100. B still nothing.
    w.give(2, 10 * MS);
    w.poll_at(20 * MS);
    assert_eq!(w.released(), [1, 2]);
    // t = 3: B used 10 of 30 ms: 1/3 >= 4/100.
    w.give(1, 10 * MS);
    w.poll_at(30 * MS);
    assert_eq!(w.released(), [2]);
    // t = 0 of the next period, at 100 ms: all are ready again, whatever they used.
    for t in 4..10 {
        w.give(2, 10 * MS);
        w.poll_at(t * 10 * MS);
    }
    w.poll_at(100 * MS);
    assert_eq!(w.released(), [0, 1, 2]);
}

#[test]
fn rates_are_shares_of_the_wall_clock() {
    /// A client exceeds its rate by at most an interval, and is below it by what the others exceed theirs.
    const INTERVALS_OFF: u64 = 3;
    let mut w = World::new(rate(10, 1000), 1);
    for share in [1, 2, 3, 4] {
        w.join(share);
    }
    w.run_until(1000 * MS);
    for (used, due) in w.used().into_iter().zip([100, 200, 300, 400]) {
        assert!(used.abs_diff(due * MS) <= INTERVALS_OFF * 10 * MS, "{used} of {due} ms");
    }
    // The rate is of wall time: alone with a client that sleeps, the other gets no more than its rate.
    let mut w = World::new(rate(10, 1000), 1);
    w.join(1);
    w.join_sleeper(1, MS, 10_000 * MS);
    w.run_until(1000 * MS);
    assert!(w.used()[0] <= 510 * MS && w.used()[0] >= 490 * MS, "{}", w.used()[0]);
}

#[test]
fn a_period_forgets() {
    // The second sleeps through the first period and is owed nothing for it: 50 : 50 in the next, not 0 : 100.
    let mut w = World::new(rate(10, 1000), 1);
    w.join(1);
    w.join(1);
    w.clients[1].asleep_until = Some(1000 * MS);
    w.run_until(1000 * MS);
    let before = w.used();
    assert_eq!(before[1], 0);
    w.run_until(2000 * MS);
    let first = w.used()[0] - before[0];
    assert!((490 * MS..=510 * MS).contains(&first), "{first}");
    // The same used more than its rate at the end of a period: nothing of it is held against it.
    let mut w = world(&[1, 1]);
    for t in 1..10 {
        w.poll_at(t * 10 * MS);
    }
    w.give(0, 90 * MS);
    w.poll_at(100 * MS);
    assert_eq!(w.released(), [0, 1]);
    w.give(1, 10 * MS);
    w.poll_at(110 * MS); // A: 0 of 10 ms in this period.
    assert_eq!(w.released(), [0]);
}

#[test]
fn a_split_charge_counts_as_the_whole() {
    let mut worlds = [Charges::Whole, Charges::Split].map(|charges| {
        let mut w = world(&[1, 2, 5]);
        w.charges = charges;
        w
    });
    for w in &mut worlds {
        w.run_until(700 * MS);
    }
    assert_eq!(worlds[0].moves(), worlds[1].moves());
    assert_eq!(worlds[0].cycles(), 7);
}
