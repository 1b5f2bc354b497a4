//! ALPS against tables worked by hand, and its properties.

mod gate_common;

use divvy_policy::Nanos;
use divvy_policy::gate::{Alps, AlpsParams, AlpsVariant, Scale};
use gate_common::{Charges, MS, World};
use proptest::prelude::*;

fn alps(variant: AlpsVariant) -> Alps {
    Alps::new(AlpsParams { quantum: Nanos::from_millis(10), variant, scale: Scale::ByGcd }).unwrap()
}

/// A world in which `shares` have joined at 0 and the first quantum has begun.
fn world(variant: AlpsVariant, shares: &[u64]) -> World<Alps> {
    let mut w = World::new(alps(variant), 1);
    for &share in shares {
        w.join(share);
    }
    w.poll();
    w
}

/// Quantum `n` ends (counted from 1); `used` ran in it.
fn quantum(w: &mut World<Alps>, n: u64, used: &[(u32, u64)]) -> Vec<u32> {
    for &(client, ms) in used {
        w.give(client, ms * MS);
    }
    w.poll_at(n * 10 * MS);
    w.released()
}

#[test]
fn a_cycle_gives_shares_in_proportion() {
    for variant in [AlpsVariant::Basic, AlpsVariant::Optimized, AlpsVariant::OptimizedIo] {
        let mut w = world(variant, &[1, 2, 3]);
        // Allowances 10, 20, 30 ms; t_c = 60. The kernel gives whole quanta: A B C B C C.
        assert_eq!(w.released(), [0, 1, 2]);
        assert_eq!(quantum(&mut w, 1, &[(0, 10)]), [1, 2]); // A 0: held. t_c = 50
        assert_eq!(quantum(&mut w, 2, &[(1, 10)]), [1, 2]); // B 10
        assert_eq!(quantum(&mut w, 3, &[(2, 10)]), [1, 2]); // C 20
        assert_eq!(quantum(&mut w, 4, &[(1, 10)]), [2]); // B 0: held. t_c = 20
        assert_eq!(quantum(&mut w, 5, &[(2, 10)]), [2]); // C 10
        assert_eq!(w.cycles(), 0);
        // C 0, t_c = 0: the cycle ends, and all have 10, 20, 30 again before anybody is held.
        assert_eq!(quantum(&mut w, 6, &[(2, 10)]), [0, 1, 2]);
        assert_eq!((w.cycles(), w.used()), (1, vec![10 * MS, 20 * MS, 30 * MS]));
    }
}

#[test]
fn errors_are_repaid_in_the_next_cycle() {
    let mut w = world(AlpsVariant::Basic, &[1, 1]);
    // Allowances 10, 10; t_c = 20. A runs for 10 of its quantum, and is held 7 ms late: 17 - 10 = 7 too much.
    assert_eq!(quantum(&mut w, 1, &[(0, 17)]), [1]); // A -7, t_c = 3
    // B 0, t_c = -7: the cycle ends. A 10 - 7 = 3, B 10, t_c = 13.
    assert_eq!(quantum(&mut w, 2, &[(1, 10)]), [0, 1]);
    // A 3 - 3 = 0: held after the 3 ms that it is still due. t_c = 10
    assert_eq!(quantum(&mut w, 3, &[(0, 3)]), [1]);
    // B 0, t_c = 0. Both have had 20 ms in two cycles.
    assert_eq!(quantum(&mut w, 4, &[(1, 10)]), [0, 1]);
    assert_eq!((w.cycles(), w.used()), (2, vec![20 * MS, 20 * MS]));
}

#[test]
fn a_blocked_client_does_not_delay_the_cycle() {
    let mut w = World::new(alps(AlpsVariant::OptimizedIo), 1);
    w.join(1);
    let sleeper = w.join_sleeper(2, 1, 100 * MS);
    w.poll(); // Allowances 10, 20; t_c = 30; update 1 and 2.
    w.run_until(10 * MS - 1);
    assert_eq!(w.clients[sleeper.index()].used, 1); // It is asleep since.
    w.run_until(10 * MS); // A 10 - 10 (a ns is the sleeper's) = 0.000001: goes on, looked at after one more quantum.
    w.run_until(20 * MS); // A -10. B 20 - 0 - 10 (seen blocked), t_c = 30 - 20 - 10 = 0: the cycle ends after 20 ms.
    assert_eq!(w.cycles(), 1);
    // Basic ALPS does not look whether it is blocked: t_c = 30 - 10 = 20 as long as B sleeps.
    let mut w = World::new(alps(AlpsVariant::Basic), 1);
    w.join(1);
    w.join_sleeper(2, 1, 100 * MS);
    w.run_until(100 * MS);
    assert_eq!(w.cycles(), 0);
    assert!(w.released() == [1], "A waits for the sleeper, and the CPU idles");
}

proptest! {
    /// Where the kernel gives whole quanta (else Optimized may end a cycle a quantum later).
    #[test]
    fn optimized_reads_less_and_decides_the_same(
        shares in prop::collection::vec(1u64..6, 2..6), picks in prop::collection::vec(0usize..100, 10..120),
    ) {
        let mut basic = world(AlpsVariant::Basic, &shares);
        let mut optimized = world(AlpsVariant::Optimized, &shares);
        for (n, pick) in picks.iter().enumerate() {
            let eligible = basic.released();
            prop_assert_eq!(&eligible, &optimized.released());
            let used = [(eligible[pick % eligible.len()], 10)];
            quantum(&mut basic, n as u64 + 1, &used);
            quantum(&mut optimized, n as u64 + 1, &used);
        }
        prop_assert_eq!(basic.moves(), optimized.moves());
        prop_assert!(optimized.reads <= basic.reads);
        if shares.iter().all(|&s| s > 1) && shares.iter().any(|&s| s != shares[0]) {
            prop_assert!(optimized.reads < basic.reads);
        }
    }

    #[test]
    fn a_split_charge_counts_as_the_whole(shares in prop::collection::vec(1u64..9, 1..6)) {
        for variant in [AlpsVariant::Basic, AlpsVariant::OptimizedIo] {
            let mut whole = World::new(alps(variant), 1);
            let mut split = World::new(alps(variant), 1);
            split.charges = Charges::Split;
            for w in [&mut whole, &mut split] {
                for &share in &shares {
                    w.join(share);
                }
                w.run_until(500 * MS);
            }
            prop_assert_eq!(whole.moves(), split.moves());
        }
    }
}

#[test]
fn a_leaver_takes_just_its_own_time_out_of_the_cycle() {
    let mut w = world(AlpsVariant::Basic, &[1, 1, 1]);
    // Allowances 10, 10, 10; t_c = 30. A used 25 when it is read: A -15, t_c = 5 = -15 + 10 + 10.
    assert_eq!(quantum(&mut w, 1, &[(0, 25)]), [1, 2]);
    w.leave(divvy_policy::ClientId(0));
    // Without A t_c = 20: B and C still have 10 each, and the cycle ends after both had it.
    assert_eq!(quantum(&mut w, 2, &[(1, 10)]), [2]);
    assert_eq!(w.cycles(), 0);
    quantum(&mut w, 3, &[(2, 10)]);
    assert_eq!(w.cycles(), 1);
}
