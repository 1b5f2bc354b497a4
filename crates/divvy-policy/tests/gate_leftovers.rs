//! The gates where whoever is held has what the others leave of the CPUs.

mod gate_common;

use divvy_policy::gate::exact::{Exact, ExactParams};
use divvy_policy::gate::lag::Lag;
use divvy_policy::{Gate, Policy};
use gate_common::{MS, World};

fn exact() -> Exact {
    Exact::new(ExactParams::default()).unwrap()
}

fn lag() -> Lag {
    Lag::new(ExactParams { cpus: 2, ..ExactParams::default() }).unwrap()
}

/// The parts of the CPU time used between 1 s and 5 s, in per mille.
fn parts<P: Policy<Decision = Gate>>(w: &mut World<P>) -> Vec<u64> {
    w.run_until(1_000 * MS);
    let before = w.used();
    w.run_until(5_000 * MS);
    let got: Vec<u64> = w.used().iter().zip(&before).map(|(now, then)| now - then).collect();
    let all: u64 = got.iter().sum();
    assert!(all >= w.cpus * 4_000 * MS * 98 / 100, "a CPU idles: {got:?}");
    got.iter().map(|used| used * 1_000 / all).collect()
}

#[test]
fn what_the_others_leave_is_charged() {
    // One that sleeps for a tenth of the time, with 3 of 4 shares: what the other has meanwhile is of its own due.
    let mut w = World::new(exact(), 1);
    w.join_sleeper(3, 9 * MS, MS);
    w.join(1);
    w.leave_to_others();
    let got = parts(&mut w);
    assert!(got[0].abs_diff(750) <= 5, "{got:?}");
}

#[test]
fn who_cannot_use_its_share_leaves_it_to_the_other() {
    let mut w = World::new(exact(), 1);
    w.join_sleeper(3, 5 * MS, 5 * MS);
    w.join(1);
    w.leave_to_others();
    let got = parts(&mut w);
    assert!(got[0] >= 450, "it could use half, and is due three quarters: {got:?}");
}

/// Who sleeps now and then and is within its share has the CPU whenever it wakes: who computes has the rest in its own turn, too. They
/// shared the CPU evenly then, and of the half that it could use and was due the sleeper had 37 %.
#[test]
fn who_sleeps_has_up_to_its_share() {
    let us = MS / 1_000;
    let naps =
        [(5_000, 5_000), (4_700, 5_300), (2_000, 2_000), (7_000, 5_000), (1_300, 2_900), (11_000, 17_000)];
    for (on, off) in naps {
        for [own, others] in [[3, 1], [1, 1], [2, 3], [1, 3]] {
            let mut w = World::new(exact(), 1);
            w.join_sleeper(own, on * us, off * us);
            w.join(others);
            w.leave_to_others();
            let got = parts(&mut w);
            let due = (1_000 * on / (on + off)).min(1_000 * own / (own + others));
            assert!(got[0].abs_diff(due) <= 15, "{own}:{others}, {on} us awake, {off} asleep: {got:?}");
        }
    }
    // A server that needs little, beside three.
    let mut w = World::new(exact(), 1);
    w.join_sleeper(1, MS, 19 * MS);
    for _ in 0..3 {
        w.join(1);
    }
    w.leave_to_others();
    let got = parts(&mut w);
    assert!(got[0].abs_diff(50) <= 3, "a twentieth: {got:?}");
    assert!(got[1..].iter().all(|got| got.abs_diff(317) <= 5), "and the others alike: {got:?}");
}

/// Of two that need three CPUs of two, one has what the other leaves. A stranger that computes has that, and the one had 4 to 13 % of what
/// both had, for as long as the stranger was there.
#[test]
fn whom_strangers_leave_nothing_comes_as_others_do() {
    let mut w = World::new(lag(), 2);
    let (one, wide) = (w.join(1), w.join_wide(1, 2));
    w.leave_to_others();
    w.run_until(1_000 * MS);
    assert!(!w.clients[wide.index()].released, "it has the CPU that is left");
    w.strangers = 1;
    let used = |w: &World<Lag>| [one, wide].map(|client| w.clients[client.index()].used);
    let before = used(&w);
    w.run_until(9_000 * MS);
    let got: Vec<u64> = used(&w).iter().zip(before).map(|(now, then)| now - then).collect();
    assert!(got[1] * 10 >= (got[0] + got[1]) * 4, "{got:?}");
    // And has what is left again when the stranger has gone.
    w.strangers = 0;
    w.run_until(12_000 * MS);
    let before = used(&w);
    w.run_until(22_000 * MS);
    assert!(!w.clients[wide.index()].released);
    let got: Vec<u64> = used(&w).iter().zip(before).map(|(now, then)| now - then).collect();
    assert!(got[0].abs_diff(got[1]) * 50 <= got[0], "{got:?}");
}

/// Also with several heads, and beside one that sleeps on and on.
#[test]
fn heads_that_give_way_take_their_turns() {
    for presence in [1, 2] {
        let mut w = World::new(Exact::new(ExactParams { presence, ..ExactParams::default() }).unwrap(), 1);
        w.join_sleeper(1, MS, 3_600_000 * MS);
        w.join_sleeper(1, 2 * MS, 18 * MS);
        for _ in 0..3 {
            w.join(1);
        }
        w.leave_to_others();
        let got = parts(&mut w);
        assert!(got[1].abs_diff(100) <= 5, "a tenth: {got:?}");
        assert!(got[2..].iter().all(|got| got.abs_diff(300) <= 10), "and the others alike: {got:?}");
    }
}

/// What is left of its quota, as if it were alone, would be looked at ever sooner: 4.7 times a cycle here.
#[test]
fn heads_that_give_way_are_looked_at_once_a_quantum() {
    let mut w = World::new(exact(), 1);
    w.join_sleeper(1, 3 * MS, 3 * MS);
    let head = w.join(1);
    w.leave_to_others();
    let got = parts(&mut w);
    assert!(got[0] >= 480, "{got:?}");
    let from = w.log.len();
    w.run_until(9_000 * MS);
    let asked = w.log[from..].iter().filter(|(_, gate)| *gate == Gate::Measure { client: head }).count();
    assert!(asked <= 500, "{asked} looks in 200 cycles");
}

#[test]
fn heads_are_released_as_soon_as_nothing_is_left_to_others() {
    let mut w = World::new(exact(), 1);
    w.join_sleeper(1, MS, 50 * MS);
    let computes = w.join(50);
    w.leave_to_others();
    w.run_until(205 * MS);
    assert!(w.clients[computes.index()].behind, "it gives way");
    w.policy.set_leftovers(false);
    w.poll_at(205 * MS);
    assert!(w.clients[computes.index()].released, "{:?}", w.log.last());
}

#[test]
fn a_gift_of_hours_is_no_debt_of_hours() {
    let mut w = World::new(exact(), 1);
    let (_, other) = (w.join(1), w.join(1));
    w.leave_to_others();
    w.run_until(200 * MS);
    // The first slept for an hour in which the other had all.
    w.clients[other.index()].used += 3_600_000 * MS;
    w.run_until(1_000 * MS);
    let before = w.used();
    w.run_until(3_000 * MS);
    let got: Vec<u64> = w.used().iter().zip(&before).map(|(now, then)| now - then).collect();
    assert!(got[1] >= 900 * MS, "it repays 100 ms at most: {got:?}");
}

#[test]
fn whoever_comes_to_the_front_is_asked_what_it_had() {
    let mut w = World::new(exact(), 1);
    w.join_all(2);
    w.leave_to_others();
    w.run_until(100 * MS);
    let log = &w.log;
    let releases = log.iter().zip(log.iter().skip(1)).filter_map(|(a, b)| match (a.1, b.1) {
        (Gate::Release { client, .. }, next) => Some((client, next)),
        _ => None,
    });
    let (asked, late): (Vec<_>, Vec<_>) =
        releases.partition(|&(client, next)| next == Gate::Measure { client });
    assert!(asked.len() >= 5 && late.is_empty(), "{log:?}");
}

#[test]
fn several_cpus_are_divided_as_well() {
    let mut w = World::new(lag(), 2);
    for share in [1, 2, 3, 2] {
        w.join(share);
    }
    w.leave_to_others();
    let got = parts(&mut w);
    let due = [125_u64, 250, 375, 250];
    assert!(got.iter().zip(due).all(|(got, due)| got.abs_diff(due) <= 10), "{got:?}");
}

/// Whose threads do not fit beside the others has what these leave in its own turn, too: its threads were on all CPUs, and a loop of
/// compilers beside two threads got 35 % of the 50 that it can use.
#[test]
fn threads_are_in_nobodys_way() {
    for (shares, due) in [([3, 1], [500_u64, 500]), ([1, 1], [500, 500]), ([1, 3], [250, 750])] {
        let mut w = World::new(lag(), 2);
        w.join(shares[0]);
        w.join_wide(shares[1], 2);
        w.leave_to_others();
        let got = parts(&mut w);
        assert!(got.iter().zip(due).all(|(got, due)| got.abs_diff(due) <= 10), "{shares:?}: {got:?}");
    }
}

#[test]
fn clients_of_several_threads_take_turns_at_what_is_left() {
    type Row<'a> = (u32, &'a [(u64, u32)], &'a [u64]);
    let rows: [Row<'_>; 4] = [
        (2, &[(1, 2), (3, 2)], &[250, 750]),
        (3, &[(1, 2), (1, 2)], &[500, 500]),
        (3, &[(1, 2), (2, 2)], &[333, 667]),
        (4, &[(3, 1), (1, 3), (1, 2)], &[250, 375, 375]),
    ];
    for (cpus, loads, due) in rows {
        let params = ExactParams { cpus, ..ExactParams::default() };
        let mut w = World::new(Lag::new(params).unwrap(), u64::from(cpus));
        for &(share, threads) in loads {
            w.join_wide(share, threads);
        }
        w.leave_to_others();
        let got = parts(&mut w);
        assert!(got.iter().zip(due).all(|(got, due)| got.abs_diff(*due) <= 10), "{loads:?}: {got:?}");
    }
}
