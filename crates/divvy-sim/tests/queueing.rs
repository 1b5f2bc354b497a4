//! Simulated queues against theory, by replication, with fixed seeds.

mod common;

use common::{Smalls, toml};
use divvy_sim::analytic::{mg1_fcfs, mg1_las, mg1_ps, mmk, mva};
use divvy_sim::scenario::Scenario;
use divvy_sim::study::{Mean, Study};

/// How many standard errors a mean over replications may be off; the seeds are fixed, so this either holds or not.
const ROOM: f64 = 3.0;

fn response_mean(scenario: &Scenario) -> Mean {
    let study = Study::new(scenario).unwrap();
    let reports = study.items().map(|item| (item.index, item.run(&[], &Smalls).unwrap())).collect();
    study.merge(reports).points[0].measures["response_mean"]
}

#[track_caller]
fn check_theory(what: &str, scenario: &Scenario, theory: f64) {
    let got = response_mean(scenario);
    assert!((got.mean - theory).abs() <= ROOM * got.standard_error, "{what}: {got:?}, theory {theory}");
    // The interval says something: it is narrower than a tenth of what it measures.
    assert!(got.half_width < theory / 10.0, "{what}: {got:?}");
}

/// An M/G/k queue at rate 0.7 a second for each CPU.
fn queue(policy: &str, size: &str, cpus: u32, replications: u32) -> Scenario {
    let between = 1_000_000_000 * 10 / (7 * u64::from(cpus));
    toml(&format!(
        "policy = \"{policy}\"
         replications = {replications}
         machine.cpus = {cpus}
         run = {{ until = \"20000s\", warmup = \"1000s\" }}
         [[arrivals]]
         between = {{ exponential = {{ mean = \"{between}ns\" }} }}
         size = {size}"
    ))
}

#[test]
fn exponential_sizes_are_the_same_to_all() {
    let size = "{ exponential = { mean = \"1s\" } }";
    for policy in ["fcfs", "rr:quantum=100ms", "las:quantum=100ms"] {
        check_theory(policy, &queue(policy, size, 1, 10), mmk(0.7, 1.0, 1));
    }
}

#[test]
fn hyperexponential_sizes_tell_policies_apart() {
    let text = "{ hyperexponential = { p-long = 0.1, long = \"5.5s\", short = \"500ms\" } }";
    let (fcfs, rr, las) = (
        queue("fcfs", text, 1, 16),
        queue("rr:quantum=50ms", text, 1, 10),
        queue("las:quantum=50ms", text, 1, 10),
    );
    let size = fcfs.arrivals[0].size;
    check_theory("FCFS", &fcfs, mg1_fcfs(0.7, &size));
    check_theory("PS", &rr, mg1_ps(0.7, &size));
    check_theory("LAS", &las, mg1_las(0.7, &size));
}

#[test]
fn equal_sizes_make_fcfs_best() {
    let text = "{ const = \"1s\" }";
    let (fcfs, rr) = (queue("fcfs", text, 1, 5), queue("rr:quantum=20ms", text, 1, 10));
    let size = fcfs.arrivals[0].size;
    check_theory("FCFS", &fcfs, mg1_fcfs(0.7, &size));
    check_theory("PS", &rr, mg1_ps(0.7, &size));
}

#[test]
fn three_cpus_are_an_m_m_3_queue() {
    let text = "{ exponential = { mean = \"1s\" } }";
    check_theory("M/M/3", &queue("fcfs", text, 3, 10), mmk(2.1, 1.0, 3));
}

#[test]
fn thinking_users_are_a_closed_network() {
    let scenario = toml(
        "policy = \"rr:quantum=100ms\"
         replications = 8
         run = { until = \"20000s\", warmup = \"500s\" }
         [[users]]
         count = 8
         think = { exponential = { mean = \"25s\" } }
         work = { exponential = { mean = \"3s\" } }",
    );
    check_theory("MVA", &scenario, mva(8, 3.0, 25.0).response);
}
