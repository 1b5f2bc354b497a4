//! Dispatchers over live processes: jobs one after another, short ones first, shares.

use serde_json::Value;

use crate::harness::{
    ENOUGH_TICKS, MAX_FRACTION_ERROR, SPIN, Sandbox, check_fractions, check_report, client, one_cpu,
};

/// Rounds of a shell's loop before a job counts as begun: what it may run before the gate has seen that it does, some tens of ms
/// where divvy itself has to wait for a CPU. Were jobs served side by side, each would be past it long before another's end.
const WARM_UP: u32 = 40_000;

/// A job of so many rounds, that notes when it began and when it ended. Nothing in it forks or sleeps.
fn job(name: &str, rounds: u32) -> String {
    format!(
        "1:i=0; while [ $i -lt {WARM_UP} ]; do i=$((i + 1)); done; read began rest < /proc/uptime; \
         while [ $i -lt {rounds} ]; do i=$((i + 1)); done; read ended rest < /proc/uptime; \
         echo $began $ended > {name}"
    )
}

/// When a job began and ended, in hundredths of a second since the machine was started.
fn times(sandbox: &Sandbox, name: &str) -> (u64, u64) {
    let text = std::fs::read_to_string(sandbox.path(name)).expect("the job's note");
    let times: Vec<u64> =
        text.split_whitespace().map(|t| t.replace('.', "").parse().expect("a time")).collect();
    (times[0], times[1])
}

fn run_jobs(sandbox: &Sandbox, policy: &str, jobs: &[(&str, u32)]) -> Vec<(u64, u64)> {
    let commands: Vec<String> = jobs.iter().map(|(name, rounds)| job(name, *rounds)).collect();
    let cpu = one_cpu();
    let mut args = vec!["share", "--cpus", &cpu, "--policy", policy, "--json"];
    args.extend(commands.iter().map(String::as_str));
    let outcome = sandbox.run(&args);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let report = check_report(&String::from_utf8(outcome.stdout).unwrap());
    assert_eq!(report["policy"], policy);
    assert_eq!(report["cycles"]["rms_relative_error"], Value::Null, "a dispatcher knows no cycles");
    jobs.iter().map(|(name, _)| times(sandbox, name)).collect()
}

#[test]
fn fcfs_queues_jobs_one_after_another() {
    let sandbox = Sandbox::own();
    let times = run_jobs(&sandbox, "fcfs", &[("a", 600_000), ("b", 200_000), ("c", 400_000)]);
    for pair in times.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "each is through before the next begins: {times:?}");
    }
}

#[test]
fn las_finishes_the_short_ones_first() {
    let sandbox = Sandbox::own();
    let times = run_jobs(&sandbox, "las", &[("a", 900_000), ("b", 300_000), ("c", 600_000)]);
    assert!(times[1].1 < times[2].1 && times[2].1 < times[0].1, "{times:?}");
    // The long one had begun long before the short ones were through.
    assert!(times[0].0 < times[1].1, "{times:?}");
}

#[test]
fn pbs_goes_from_one_to_the_other() {
    let sandbox = Sandbox::own();
    let jobs = [("a", 600_000), ("b", 200_000)];
    let times = run_jobs(&sandbox, "pbs:alpha=0,guard=study", &jobs);
    assert!(times[0].1 <= times[1].0, "alpha 0 is first come, first served: {times:?}");
    let times = run_jobs(&sandbox, "pbs:alpha=2", &jobs);
    assert!(times[1].1 < times[0].1, "with alpha 2 the short one is through first: {times:?}");
}

#[test]
fn proportional_dispatchers_divide_live_processes() {
    let sandbox = Sandbox::own();
    let commands: Vec<String> = (1..=3).map(|n| format!("{n}:{SPIN}")).collect();
    for policy in ["stride", "vtrr", "wrr", "drr", "wfq", "wf2q", "eevdf", "lottery:seed=7,quantum=1ms"] {
        let mut args = vec!["--policy", policy];
        args.extend(commands.iter().map(String::as_str));
        check_fractions(&sandbox.share_for_ticks(ENOUGH_TICKS, &args), &[1.0 / 6.0, 2.0 / 6.0, 3.0 / 6.0]);
    }
}

/// Round robin has no shares: whatever they say, all get the same.
#[test]
fn round_robin_gives_each_the_same() {
    let sandbox = Sandbox::own();
    let commands: Vec<String> = (1..=3).map(|n| format!("{n}:{SPIN}")).collect();
    let mut args = vec!["--policy", "rr"];
    args.extend(commands.iter().map(String::as_str));
    check_fractions(&sandbox.share_for_ticks(ENOUGH_TICKS, &args), &[1.0 / 3.0; 3]);
}

#[test]
fn a_sleeper_leaves_its_time_and_takes_its_turn() {
    let sandbox = Sandbox::own();
    let sleeper = "2:while :; do sleep 0.02; i=0; while [ $i -lt 3000 ]; do i=$((i + 1)); done; done";
    let (a, b) = (format!("1:{SPIN}"), format!("1:{SPIN}"));
    let report = sandbox.share_for_ticks(2 * ENOUGH_TICKS, &["--policy", "stride", &a, sleeper, &b]);
    let part = |i| client(&report, i, "achieved_fraction").as_f64().unwrap();
    assert!(part(1) > 0.0 && part(1) < 0.5, "{report}");
    assert!((part(0) - part(2)).abs() <= MAX_FRACTION_ERROR, "{report}");
}

#[test]
fn traces_of_dispatchers_replay() {
    let sandbox = Sandbox::own();
    let cpu = one_cpu();
    for policy in ["las", "pbs:alpha=2,beta=3", "lottery:seed=7"] {
        let commands =
            [format!("1:{SPIN}"), "2:while :; do sleep 0.01; done".to_owned(), "3:true".to_owned()];
        let mut args = vec!["share", "--for", "1s", "--quiet", "--cpus", &cpu, "--policy", policy];
        args.extend(["--trace", "trace.jsonl"]);
        args.extend(commands.iter().map(String::as_str));
        let outcome = sandbox.run(&args);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
        let replayed = sandbox.run(&["replay", "trace.jsonl"]);
        assert_eq!(replayed.code, Some(0), "{policy}: {}", replayed.stderr);
        let header = std::fs::read_to_string(sandbox.path("trace.jsonl")).unwrap();
        assert!(header.lines().next().unwrap().contains(&format!("\"policy\":\"{policy}\"")), "{header}");
    }
}
