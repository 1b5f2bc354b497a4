//! The static kernels against the policies and against the study's golden means.

mod support;

use divvy_policy::Nanos;
use divvy_policy::dispatch::rng::SplitMix64;
use divvy_policy::dispatch::service_error::service_errors;
use divvy_policy::dispatch::static_run::{Extremes, SharesError, StaticRun, TOTAL_MAX, uniform_shares};
use divvy_policy::dispatch::{vtrr, wfq, wrr};
use support::{Dispatcher, golden, populate, run};

type Kernel = fn(&mut StaticRun) -> Extremes;

fn check_kernels(kernels: &mut StaticRun, shares: &[u32]) {
    let wide: Vec<u64> = shares.iter().map(|&s| s.into()).collect();
    let total: u32 = shares.iter().sum();
    let quantum = Nanos(1);
    let policies: [(Dispatcher, Kernel); 3] = [
        (Box::new(wrr::Wrr::new(wrr::WrrParams { quantum, ..Default::default() }).unwrap()), |k| k.wrr()),
        (Box::new(wfq::Wfq::new(wfq::WfqParams { quantum, ..Default::default() }).unwrap()), StaticRun::wfq),
        (
            Box::new(vtrr::Vtrr::new(vtrr::VtrrParams { quantum, ..Default::default() }).unwrap()),
            StaticRun::vtrr,
        ),
    ];
    kernels.load(shares).unwrap();
    for (at, (mut policy, kernel)) in policies.into_iter().enumerate() {
        populate(policy.as_mut(), &wide);
        let errors = service_errors(&wide, &run(policy.as_mut(), total as usize)).unwrap();
        assert_eq!(kernel(kernels).range(), errors.all, "kernel {at}, shares {shares:?}");
    }
}

#[test]
fn kernels_equal_the_policies() {
    let mut rng = SplitMix64::new(2_024);
    let mut kernels = StaticRun::default();
    for case in 0..3_000 {
        // Mostly small sets with many ties; some of them large enough for every size of the tree, and for the list.
        let clients = 1 + rng.below(if case % 50 == 0 { 100 } else { 20 }) as usize;
        let total = clients as u32 + rng.below(if case % 10 == 0 { 500 } else { 60 }) as u32;
        let mut shares = vec![0; clients];
        uniform_shares(&mut rng, total, &mut shares);
        assert_eq!(shares.iter().sum::<u32>(), total);
        assert!(shares.iter().all(|&s| s >= 1));
        check_kernels(&mut kernels, &shares);
    }
    check_kernels(&mut kernels, &[7]);
    check_kernels(&mut kernels, &[3_000, 2_000, 1_000]);
}

#[test]
fn impossible_shares_are_refused() {
    let mut kernels = StaticRun::default();
    assert_eq!(kernels.load(&[]), Err(SharesError::Zero));
    assert_eq!(kernels.load(&[3, 0]), Err(SharesError::Zero));
    assert_eq!(kernels.load(&[TOTAL_MAX, 1]), Err(SharesError::TooLarge));
    assert_eq!(kernels.load(&[u32::MAX, u32::MAX]), Err(SharesError::TooLarge));
}

/// VTRR, Figures 1 and 2, with fewer assignments: means within four standard errors, ours and the golden file's.
#[test]
fn figures_1_and_2_are_reproduced() {
    const K: usize = 400;
    let file = golden("fig12_uniform.json");
    let mut rng = SplitMix64::new(1);
    let mut kernels = StaticRun::default();
    let rows = file["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 40);
    for row in rows {
        let number = |key: &str| row[key].as_u64().unwrap();
        let mut shares = vec![0; number("N") as usize];
        // Sum and sum of squares of each extreme, in quanta.
        let mut sums = [[[0.0f64; 2]; 2]; 3];
        for _ in 0..K {
            uniform_shares(&mut rng, number("S") as u32, &mut shares);
            kernels.load(&shares).unwrap();
            for (sum, ends) in sums.iter_mut().zip([kernels.wrr(), kernels.wfq(), kernels.vtrr()]) {
                for (sum, end) in sum.iter_mut().zip([ends.range().min, ends.range().max]) {
                    sum[0] += end.as_f64();
                    sum[1] += end.as_f64() * end.as_f64();
                }
            }
        }
        for (algo, sum) in ["wrr", "wfq", "vtrr"].iter().zip(sums) {
            for (end, [sum, squares]) in sum.into_iter().enumerate() {
                let mean = sum / K as f64;
                let se = ((squares / K as f64 - mean * mean).max(0.0) / (K - 1) as f64).sqrt();
                let want = |at: usize| row[*algo][at].as_f64().unwrap();
                let allowed = 4.0 * se.hypot(want(2 + end));
                let off = (mean - want(end)).abs();
                assert!(off <= allowed, "{algo} N {} S {}: {mean} is {off} off", row["N"], row["S"]);
            }
        }
    }
}
