//! The formulas of queueing theory against golden values, and against each other where they must agree.

mod common;

use common::golden;
use divvy_sim::analytic::{mg1_fcfs, mg1_las, mg1_las_of_size, mg1_ps, mm1, mmk, mva};
use divvy_sim::scenario::Span;
use divvy_sim::workload::Dist;

const S: u64 = 1_000_000_000;

/// The sizes of `golden/mg1.json`, all of mean 1 s, at a load of 0.7. The golden file gives only names; these are the
/// distributions that give its theory values.
const RATE: f64 = 0.7;
const EXPONENTIAL: Dist = Dist::Exponential { mean: Span(S) };
const CONSTANT: Dist = Dist::Const(Span(S));
const HYPER: Dist = Dist::Hyperexponential { p_long: 0.1, long: Span(11 * S / 2), short: Span(S / 2) };
const PARETO: Dist = Dist::BoundedPareto { shape: 1.5, low: Span(344_207_592), high: Span(344_207_592_201) };

#[track_caller]
fn check_near(what: &str, got: f64, exact: f64, relative: f64) {
    assert!((got / exact - 1.0).abs() <= relative, "{what}: got {got}, expected {exact}");
}

#[test]
fn formulas_give_the_golden_theory() {
    let golden = golden("mg1.json");
    let mut nr_checked = 0;
    for (name, dist) in [("M/M/1", EXPONENTIAL), ("M/D/1", CONSTANT), ("M/H2/1", HYPER), ("M/BP/1", PARETO)] {
        for (policy, got) in
            [("FCFS", mg1_fcfs(RATE, &dist)), ("PS", mg1_ps(RATE, &dist)), ("LAS", mg1_las(RATE, &dist))]
        {
            let key = format!("{name}:{policy}");
            if let Some(theory) = golden[&key]["theory"].as_f64() {
                check_near(&key, got, theory, 1e-5);
                nr_checked += 1;
            }
        }
    }
    assert_eq!(nr_checked, 11);
    let group_a = common::golden("group_a.json");
    check_near("MVA", mva(8, 3.0, 25.0).response, group_a["mva_ps"].as_f64().unwrap(), 1e-6);
}

#[test]
fn las_of_equal_sizes_is_the_worst_case() {
    // All jobs are cut at the same size: (1 + 0.7 / 0.6) / 0.3 = 65/9. The golden simulation says 7.287 +- 0.087.
    check_near("M/D/1 LAS", mg1_las(RATE, &CONSTANT), 65.0 / 9.0, 1e-12);
}

#[test]
fn blind_policies_are_equal_for_exponential_sizes() {
    let exact = mm1(RATE, 1.0);
    check_near("M/M/1", exact, 10.0 / 3.0, 1e-12);
    check_near("FCFS", mg1_fcfs(RATE, &EXPONENTIAL), exact, 1e-12);
    check_near("LAS", mg1_las(RATE, &EXPONENTIAL), exact, 1e-6);
    check_near("M/M/k, k = 1", mmk(RATE, 1.0, 1), exact, 1e-12);
    // A job of no size waits for nobody under LAS.
    assert!(mg1_las_of_size(RATE, &EXPONENTIAL, 1e-9) < 1e-8);
}

#[test]
fn overload_is_infinite() {
    assert_eq!(mm1(1.0, 1.0), f64::INFINITY);
    assert_eq!(mmk(2.5, 1.0, 2), f64::INFINITY);
    assert_eq!(mg1_fcfs(2.0, &CONSTANT), f64::INFINITY);
    assert_eq!(mg1_las(2.0, &CONSTANT), f64::INFINITY);
}

#[test]
fn two_servers_by_hand() {
    // M/M/2 at load 1: C = 1/3, T = 1 + (1/3) / (2 - 1) = 4/3.
    check_near("M/M/2", mmk(1.0, 1.0, 2), 4.0 / 3.0, 1e-12);
}

#[test]
fn closed_network_by_hand() {
    // One user never waits; two: R = 1 (1 + 1/2), X = 2 / (1 + 3/2) = 4/5, Q = 6/5.
    assert_eq!(mva(1, 1.0, 1.0).response, 1.0);
    let two = mva(2, 1.0, 1.0);
    check_near("R", two.response, 1.5, 1e-12);
    check_near("X", two.throughput, 0.8, 1e-12);
    check_near("Q", two.queue, 1.2, 1e-12);
}
