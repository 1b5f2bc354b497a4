//! What each client gets, on one CPU, by each policy.

use std::fs;
use std::process::Command;

use divvy_linux::cgroup::room::{CPU_STAT, CPU_WEIGHT, Cgroup, Controller};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

use super::super::{Child, Group, SPIN, sleep};
use super::{MAX_ERROR_EDGES, SHORT_WINDOW_MS, Scheduler, Three, check_parts};

/// Policies are within this fraction of each client's part over [`LONG_WINDOW_MS`].
const MAX_ERROR: f64 = 0.005;
/// PBS gives by what a client has had since it came, so that its error shrinks as that grows.
const MAX_ERROR_PBS: f64 = 0.03;
/// Round-robin counts turns: one, which [`SHORT_WINDOW_MS`] may cut, is half of this.
const MAX_ERROR_TURNS: f64 = 0.01;
/// Of [`SHORT_WINDOW_MS`], with what is before the first look of the loader: a few tenths of a second.
const MAX_ERROR_LATE: f64 = 0.1;
/// In whole cycles of six quanta of 20 ms.
const WINDOW_MS: u64 = 30_000;
/// The same, where a bound is narrow: a quantum at each end, which the window may cut, is .4 % of the least part.
const LONG_WINDOW_MS: u64 = 60_000;
/// How far a lottery may be off, in standard deviations of the number of wins: of 16,000 runs one.
const MAX_SIGMAS: f64 = 4.0;
const QUANTUM_US: f64 = 20_000.0;

#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn policies_divide_by_shares() {
    let three = Three::new();
    // With one arrival for all, PBS gives in proportion to shares (section 5.2), LAS too, and round-robin does not look.
    for (policy, parts, max_error) in [
        ("stride", [1, 2, 3], MAX_ERROR),
        ("vtrr", [1, 2, 3], MAX_ERROR),
        ("pbs:alpha=2", [1, 2, 3], MAX_ERROR_PBS),
        ("las", [1, 2, 3], MAX_ERROR),
        ("rr", [1, 1, 1], MAX_ERROR_TURNS),
    ] {
        println!("{policy}");
        let mut scheduler = Scheduler::with_shares(policy, &three.shares([1, 2, 3]));
        let window = if max_error > MAX_ERROR { SHORT_WINDOW_MS } else { LONG_WINDOW_MS };
        check_parts(three.used(window), parts, |_, _| max_error);
        scheduler.stop();
    }
}

#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn a_lottery_divides_by_chance() {
    let three = Three::new();
    let mut scheduler = Scheduler::with_shares("lottery:seed=7", &three.shares([1, 2, 3]));
    // Of n draws a client with the chance p wins n p, with a standard deviation of sqrt(n p (1 - p)).
    let sigmas = |p: f64, all: f64| MAX_SIGMAS * ((1.0 - p) / (p * all / QUANTUM_US)).sqrt();
    check_parts(three.used(WINDOW_MS), [1, 2, 3], sigmas);
    scheduler.stop();
}

#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn weights_are_shares_and_follow() {
    let three = Three::new();
    for (group, weight) in three.groups.iter().zip([100, 200, 300]) {
        group.cgroup.set(&CPU_WEIGHT, &weight).expect("root may");
    }
    let mut scheduler = Scheduler::start(&["--policy", "vtrr", "--weights", "/"]);
    // A cycle of 600 quanta takes as many seconds as anybody has; small numbers make short cycles.
    for (group, weight) in three.groups.iter().zip([6, 2, 4]) {
        group.cgroup.set(&CPU_WEIGHT, &weight).expect("root may");
    }
    // A cycle of the shares before may be under way.
    sleep(13_000);
    check_parts(three.used(WINDOW_MS), [6, 2, 4], |_, _| 2.0 * MAX_ERROR);
    let stats = Command::new("divvy-scx").args(["stats", "--json"]).output().expect("divvy-scx");
    let stats: Value = serde_json::from_slice(&stats.stdout).expect("JSON");
    let shares: Vec<_> = stats["clients"]
        .as_array()
        .expect("clients")
        .iter()
        .map(|c| (c["name"].clone(), c["share"].clone()))
        .collect();
    let want = [("rest", 100), ("one", 6), ("three", 4), ("two", 2)];
    assert_eq!(shares, want.map(|(name, share)| (name.into(), share.into())), "{stats}");
    scheduler.stop();
}

/// Weights of some thousands beside a rest of 100 would leave that a hundredth of the CPU, and its own loader is among the rest: nobody
/// who comes would be known for many seconds.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn however_large_weights_are_the_rest_has_its_part_and_who_comes_is_known() {
    let (tree, others) = (Group::new("tree"), Group::new("others"));
    tree.cgroup.enable(Controller::Cpu, true).expect("root may");
    let leaf = |name: &str| {
        let leaf = tree.cgroup.make(name).expect("root may");
        leaf.set(&CPU_WEIGHT, &10_000).expect("root may");
        let child = Child::start(&leaf, SPIN);
        (leaf, child)
    };
    let (early, _early) = leaf("early");
    let _others = [(); 3].map(|()| Child::start(&others.cgroup, SPIN));
    let used =
        |of: &[&Cgroup]| of.iter().map(|c| c.get(&CPU_STAT).expect("there").usage.0 / 1_000).sum::<u64>();
    // From before it is there: this program is among the rest, too, and would not see what it has to wait for.
    let from = [&early, &others.cgroup].map(|c| used(&[c]));
    let mut scheduler = Scheduler::start(&["--policy", "stride", "--weights", "/tree"]);
    let (late, _late) = leaf("late");
    sleep(SHORT_WINDOW_MS);
    // The tree weighs 100, as much as everybody else.
    let got = [used(&[&early, &late]) - from[0], used(&[&others.cgroup]) - from[1]];
    check_parts(got, [1, 1], |_, _| MAX_ERROR_LATE);
    let from = [&early, &late].map(|c| used(&[c]));
    sleep(SHORT_WINDOW_MS);
    let got = [&early, &late].map(|c| used(&[c]));
    check_parts([got[0] - from[0], got[1] - from[1]], [1, 1], |_, _| MAX_ERROR_EDGES);
    scheduler.stop();
}

/// A service that is started again has another cgroup, of the same name: it was among the rest from then on.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn a_cgroup_that_is_made_again_is_its_clients() {
    let clients = "rest = 4\n[[client]]\nname = \"one\"\nshare = 1\ncgroup = \"/one\"\n\
                   [[client]]\nname = \"two\"\nshare = 3\ncgroup = \"/two\"\n";
    let (one, two) = (Group::new("one"), Group::new("two"));
    let first = Child::start(&one.cgroup, SPIN);
    let _two = Child::start(&two.cgroup, SPIN);
    let mut scheduler = Scheduler::with_shares("stride", clients);
    sleep(1_000);
    drop(first);
    drop(one);
    let one = Group::new("one");
    let _again = Child::start(&one.cgroup, SPIN);
    sleep(1_000);
    let look = || [&one, &two].map(|g| g.cgroup.get(&CPU_STAT).expect("there").usage.0 / 1_000);
    let from = look();
    sleep(SHORT_WINDOW_MS);
    let to = look();
    check_parts([0, 1].map(|i| to[i] - from[i]), [1, 3], |_, _| MAX_ERROR_EDGES);
    scheduler.stop();
}

/// The file names a process; what it forks is the same client.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn a_process_is_a_client_with_its_children() {
    let (first, second) = (Group::new("first"), Group::new("second"));
    let one = Child::start(&first.cgroup, SPIN);
    // Two that compute, made after the scheduler came: together they have what their parent's share says.
    let two = Child::start(&second.cgroup, "sleep 8; (while :; do :; done) & while :; do :; done");
    let clients = format!(
        "[[client]]\nname = \"one\"\nshare = 1\npid = {}\n[[client]]\nname = \"two\"\nshare = 2\npid = {}\n",
        one.pid, two.pid
    );
    let mut scheduler = Scheduler::with_shares("stride", &clients);
    sleep(9_000);
    let look = || [&first, &second].map(|g| g.cgroup.get(&CPU_STAT).expect("there").usage.0);
    let from = look();
    sleep(WINDOW_MS);
    let [a, b] = [0, 1].map(|i| (look()[i] - from[i]) as f64);
    println!("{:.3} % of 66.667 %", b / (a + b) * 100.0);
    assert!((b / (a + b) / (2.0 / 3.0) - 1.0).abs() <= MAX_ERROR, "{a} {b}");
    scheduler.stop();
}

/// A file that cannot be read when it is to be read again costs nothing but a line.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn a_broken_file_leaves_shares_as_they_were() {
    let three = Three::new();
    let mut scheduler = Scheduler::with_shares("stride", &three.shares([1, 2, 3]));
    let mut read_again = |text: &str| {
        fs::write("/tmp/shares.toml", text).expect("root may");
        kill_process(scheduler.pid(), Signal::HUP).expect("ours");
        // An error in a file is shown with its place, in several lines.
        let mut lines = scheduler.lines.by_ref().map(|line| line.expect("text"));
        lines.find(|line| line.starts_with("divvy-scx: ")).expect("it lives")
    };
    for (text, why) in [
        ("[[client]]\nname = ", "/tmp/shares.toml"),
        ("[[client]]\nname = \"one\"\nshare = 0\ncgroup = \"/one\"\n", "share"),
        ("[[client]]\nname = \"one\"\nshare = 1\ncgroup = \"/nowhere\"\n", "/nowhere"),
    ] {
        let said = read_again(text);
        assert!(said.contains("shares stay as they were: ") && said.contains(why), "{said}");
    }
    check_parts(three.used(SHORT_WINDOW_MS), [1, 2, 3], |_, _| MAX_ERROR_EDGES);
    // A file that is whole again is followed.
    fs::write("/tmp/shares.toml", three.shares([3, 2, 1])).expect("root may");
    kill_process(scheduler.pid(), Signal::HUP).expect("ours");
    sleep(500);
    check_parts(three.used(SHORT_WINDOW_MS), [3, 2, 1], |_, _| MAX_ERROR_EDGES);
    scheduler.stop();
}

/// One with a tiny share has its next turn far off. It is not to wait until then for what it has now.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn a_larger_share_counts_before_the_next_turn_by_the_old_one() {
    let (one, two) = (Group::new("one"), Group::new("two"));
    let _children = [&one, &two].map(|group| Child::start(&group.cgroup, SPIN));
    let clients = |share: u64| {
        format!(
            "rest = 10000\n[[client]]\nname = \"one\"\nshare = {share}\ncgroup = \"/one\"\n\
             [[client]]\nname = \"two\"\nshare = 10000\ncgroup = \"/two\"\n"
        )
    };
    let mut scheduler = Scheduler::with_shares("stride", &clients(1));
    sleep(1_000);
    fs::write("/tmp/shares.toml", clients(10_000)).expect("root may");
    kill_process(scheduler.pid(), Signal::HUP).expect("ours");
    // Long before anybody has waited for too long.
    sleep(300);
    let look = || [&one, &two].map(|g| g.cgroup.get(&CPU_STAT).expect("there").usage.0 / 1_000);
    let from = look();
    sleep(2_000);
    let to = look();
    check_parts([0, 1].map(|i| to[i] - from[i]), [1, 1], |_, _| MAX_ERROR_LATE);
    scheduler.stop();
}
