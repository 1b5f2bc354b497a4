//! Lottery draws of the golden file, and the tickets of "Isolation with Flexibility", section 4.3.

mod support;

use divvy_policy::dispatch::lottery::{Compensation, LendError, Lottery, LotteryParams, Search};
use divvy_policy::dispatch::rng::SplitMix64;
use divvy_policy::{ClientId, CpuId, Event, Instant, Nanos, Policy};
use support::{Q, fnv1a64, golden, populate, run, send};

fn lottery(seed: u64, search: Search, compensation: Compensation) -> Lottery {
    Lottery::new(LotteryParams { cpus: 1, quantum: Q, seed, search, compensation }).unwrap()
}

#[test]
fn draws_are_the_golden_ones() {
    let file = golden("lottery.json");
    let mut rng = SplitMix64::new(42);
    for want in file["splitmix64_seed42_first3"].as_array().unwrap() {
        assert_eq!(rng.next_u64().to_string(), want.as_str().unwrap());
    }
    for case in file["cases"].as_array().unwrap() {
        let list =
            |key: &str| case[key].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect::<Vec<_>>();
        let shares = list("shares");
        for search in [Search::List, Search::Tree] {
            let mut policy = lottery(case["seed"].as_u64().unwrap(), search, Compensation::On);
            populate(&mut policy, &shares);
            let seq = run(&mut policy, case["quanta"].as_u64().unwrap() as usize);
            let first: Vec<u64> = seq[..40].iter().map(|&c| c as u64).collect();
            assert_eq!(first, list("first"), "{}", case["id"]);
            assert_eq!(format!("{:016x}", fnv1a64(&seq)), case["seq_fnv1a64"].as_str().unwrap());
            let counts: Vec<u64> =
                (0..shares.len()).map(|c| seq.iter().filter(|&&who| who == c).count() as u64).collect();
            assert_eq!(counts, list("counts"), "{}", case["id"]);
        }
    }
}

/// CPU time of two clients of equal share, of which client 0 gives up its CPU after a fifth of each quantum.
fn fifth_user(compensation: Compensation) -> [u64; 2] {
    let mut policy = lottery(3, Search::Tree, compensation);
    populate(&mut policy, &[1, 1]);
    let mut service = [0; 2];
    for _ in 0..40_000 {
        send(&mut policy, Event::Free { cpu: CpuId(0) });
        let grant = policy.poll_decision(Instant::ZERO).unwrap();
        let client = grant.client;
        let used = if client.0 == 0 { Nanos(Q.0 / 5) } else { Q };
        send(&mut policy, Event::Charge { client, used });
        service[client.index()] += used.0;
        if client.0 == 0 {
            send(&mut policy, Event::Block { client });
            send(&mut policy, Event::Free { cpu: CpuId(0) });
            send(&mut policy, Event::Wake { client });
        }
    }
    service
}

#[test]
fn compensation_makes_half_users_whole() {
    // With tickets worth five, client 0 wins 5 of 6 draws, a fifth of a quantum each: as much as client 1 in all.
    let [early, whole] = fifth_user(Compensation::On);
    assert!(early.abs_diff(whole) * 20 < whole, "{early} {whole}");
    let [early, whole] = fifth_user(Compensation::Off);
    assert!((early * 5).abs_diff(whole) * 20 < whole, "{early} {whole}");
}

#[test]
fn a_loan_moves_the_lenders_share() {
    let [a, b, c, d] = [0, 1, 2, 3].map(ClientId);
    for search in [Search::List, Search::Tree] {
        let mut policy = lottery(11, search, Compensation::On);
        populate(&mut policy, &[3, 1, 4, 8]);
        send(&mut policy, Event::Block { client: d });
        assert_eq!(policy.lend(a, b), Err(LendError::Runnable(a)));
        send(&mut policy, Event::Block { client: a });
        policy.lend(a, b).unwrap();
        assert_eq!(policy.funding(b), Some(4));
        // B with 4 tickets against C with 4.
        let wins = run(&mut policy, 4_000).iter().filter(|&&who| who == 1).count();
        assert!(wins.abs_diff(2_000) < 150, "{wins}");
        // B waits for C in turn: C has all 8, and the loan of A goes along.
        send(&mut policy, Event::Block { client: b });
        policy.lend(b, c).unwrap();
        assert_eq!((policy.funding(b), policy.funding(c)), (Some(4), Some(8)));
        send(&mut policy, Event::Block { client: c });
        assert_eq!(policy.lend(c, a), Err(LendError::Cycle));
        assert_eq!(policy.lend(c, c), Err(LendError::Cycle));
        // A larger share of A reaches C through B, and leaves with A's waking.
        send(&mut policy, Event::Reshare { client: a, share: support::share(5) });
        assert_eq!(policy.funding(c), Some(10));
        send(&mut policy, Event::Wake { client: a });
        assert_eq!((policy.funding(b), policy.funding(c)), (Some(1), Some(5)));
        // A borrower that leaves gives back what it held of others.
        send(&mut policy, Event::Leave { client: c });
        assert_eq!((policy.funding(b), policy.funding(c)), (Some(1), None));
        assert_eq!(policy.lend(b, c), Err(LendError::UnknownClient(c)));
        policy.lend(b, a).unwrap();
        policy.revoke(b).unwrap();
        assert_eq!(policy.funding(a), Some(5));
    }
}
