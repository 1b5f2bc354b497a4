//! Groups of a user's own divvyd: shares within shares, over live processes.

use serde_json::Value;

use crate::daemon::start_divvyd;
use crate::harness::{MAX_FRACTION_ERROR, SPIN, Sandbox, eventually, one_cpu};

/// CPU time of a window that is measured: about ten cycles of each of these runs.
const MEASURED_NS: u64 = 2_500_000_000;

fn list(sandbox: &Sandbox) -> Value {
    let outcome = sandbox.run(&["ls", "--json"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    serde_json::from_slice(&outcome.stdout).expect("JSON")
}

/// What `names` received of all that they did, in a window that begins now.
fn parts(sandbox: &Sandbox, names: &[&str]) -> Vec<f64> {
    let look = || -> Vec<u64> {
        let list = list(sandbox);
        let of = |name: &&str| {
            let clients = list["clients"].as_array().unwrap();
            let client = clients.iter().find(|c| c["name"] == **name).unwrap_or_else(|| panic!("{list:#}"));
            client["service_ns"].as_u64().unwrap()
        };
        names.iter().map(of).collect()
    };
    let before = look();
    let used = eventually("enough CPU time", || {
        let used: Vec<u64> = look().iter().zip(&before).map(|(a, b)| a - b).collect();
        (used.iter().sum::<u64>() >= MEASURED_NS).then_some(used)
    });
    used.iter().map(|&u| u as f64 / used.iter().sum::<u64>() as f64).collect()
}

pub fn check(sandbox: &Sandbox, names: &[&str], due: &[f64]) {
    let got = parts(sandbox, names);
    for (got_one, due_one) in got.iter().zip(due) {
        assert!((got_one - due_one).abs() <= MAX_FRACTION_ERROR, "{names:?}: got {got:?}, due {due:?}");
    }
}

fn must(sandbox: &Sandbox, args: &[&str]) -> String {
    let outcome = sandbox.run(args);
    assert_eq!(outcome.code, Some(0), "{args:?}: {}", outcome.stderr);
    String::from_utf8(outcome.stdout).unwrap()
}

/// A build of share 3 with two commands in it, 1:2, beside one of share 1: 1/4, 1/2, 1/4.
#[test]
fn what_a_group_has_is_divided_within_it() {
    let sandbox = &Sandbox::unprivileged();
    start_divvyd(sandbox, &["--cpus", &one_cpu(), "--linger", "60s"]);
    let started: Vec<_> = [
        &["run", "--group", "build=3", "--name", "a", "--", "sh", "-c", SPIN][..],
        &["run", "--group", "build", "-s", "2", "--name", "b", "--", "sh", "-c", SPIN],
        &["run", "--name", "other", "--", "sh", "-c", SPIN],
    ]
    .into_iter()
    .map(|args| {
        let running = sandbox.start(args);
        let name = args[args.iter().position(|a| *a == "--name").unwrap() + 1];
        eventually(name, || {
            sandbox.run(&["ls"]).stdout.windows(name.len()).any(|w| w == name.as_bytes()).then_some(())
        });
        running
    })
    .collect();
    check(sandbox, &["a", "b", "other"], &[0.25, 0.5, 0.25]);
    let table = must(sandbox, &["ls"]);
    let names: Vec<&str> = table.lines().filter_map(|line| line.get(..9)).collect();
    assert_eq!(names[1..5], ["other    ", "build/   ", "  a      ", "  b      "], "{table}");

    // What a member that is paused leaves goes to its sibling: 3/4, 1/4.
    assert_eq!(must(sandbox, &["pause", "a"]), "a: paused; its share goes to the others\n");
    check(sandbox, &["b", "other"], &[0.75, 0.25]);
    assert_eq!(must(sandbox, &["pause", "a"]), "a: already paused\n");
    assert_eq!(must(sandbox, &["resume", "a"]), "a: resumed\n");
    assert_eq!(must(sandbox, &["resume", "a"]), "a: was not paused\n");
    // Several at a time, and with their groups; what is refused for one is done for the others.
    assert_eq!(
        must(sandbox, &["pause", "build/a", "other"]),
        "a: paused; its share goes to the others\nother: paused; its share goes to the others\n"
    );
    let resumed = sandbox.run(&["resume", "a", "nobody", "other", "--json"]);
    assert_eq!(resumed.code, Some(6), "{}", resumed.stderr);
    assert!(resumed.stderr.starts_with("divvy: no client is called 'nobody'"), "{}", resumed.stderr);
    let resumed: Value = serde_json::from_slice(&resumed.stdout).expect("JSON");
    assert_eq!((&resumed[0]["name"], &resumed[1]["name"]), (&"a".into(), &"other".into()), "{resumed}");
    assert_eq!(must(sandbox, &["set", "build/b", "2"]), "b: share 2\n");
    // As a client's share can, so can a group's.
    assert_eq!(must(sandbox, &["set", "build", "1"]), "build/: share 1\n");
    check(sandbox, &["a", "b", "other"], &[1.0 / 6.0, 1.0 / 3.0, 0.5]);
    assert_eq!(must(sandbox, &["pause", "build/"]), "build/: paused; its share goes to the others\n");
    let paused = list(sandbox)["groups"][0].clone();
    assert_eq!((&paused["paused"], &paused["clients"]), (&true.into(), &2.into()), "{paused}");
    assert_eq!(must(sandbox, &["pause", "build/"]), "build/: already paused\n");
    assert_eq!(must(sandbox, &["resume", "build"]), "build/: 2 clients resumed\n");
    assert_eq!(must(sandbox, &["resume", "build"]), "build/: none of its clients was paused\n");
    let refused = sandbox.run(&["set", "build", "--limit", "50%"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("limits, reservations and CPUs are for clients"), "{}", refused.stderr);
    // Who is called by no name is no group either.
    let refused = sandbox.run(&["set", "biuld", "--limit", "50%"]);
    assert_eq!(refused.code, Some(6), "{}", refused.stderr);
    assert!(refused.stderr.contains("no client is called 'biuld'"), "{}", refused.stderr);
    assert!(refused.stderr.contains("did you mean 'build/'?"), "{}", refused.stderr);
    assert!(must(sandbox, &["detach", "build"]).starts_with("build/: 2 clients detached after "));
    assert!(list(sandbox).get("groups").is_none());
    drop(started);
}

/// What a member leaves that sleeps goes to its siblings, and not to other groups, once it has slept for a second.
#[test]
fn what_a_sleeper_leaves_stays_in_its_group() {
    let sandbox = Sandbox::own();
    start_divvyd(&sandbox, &["--cpus", &one_cpu(), "--linger", "60s"]);
    let spin = |args: &[&str]| sandbox.start(&[args, &["--", "sh", "-c", SPIN]].concat());
    let _sleeper =
        sandbox.start(&["run", "--group", "left", "-s", "2", "--name", "sleeper", "--", "sleep", "600"]);
    let _busy = [
        spin(&["run", "--group", "left", "--name", "busy"]),
        spin(&["run", "--group", "right", "--name", "there"]),
    ];
    let fraction = |name: &str| {
        let list = list(&sandbox);
        let client = list["clients"].as_array().unwrap().iter().find(|c| c["name"] == name).cloned();
        client.map_or(0.0, |c| c["effective_fraction"].as_f64().unwrap())
    };
    // With the sleeper awake it is a third of a half; so the target says that it is idle.
    eventually("the sleeper to be idle", || ((fraction("busy") - 0.5).abs() < 1e-9).then_some(()));
    check(&sandbox, &["busy", "there"], &[0.5, 0.5]);
}

#[test]
fn a_group_that_cannot_be_is_refused() {
    let sandbox = Sandbox::own();
    for (args, code, said) in [
        (&["run", "--group", "a b", "--", "true"][..], 2, "it may have no blanks"),
        (&["run", "--group", "a/b/c/d/e", "--", "true"], 2, "groups go 4 deep at most"),
        (&["run", "--group", "build=0", "--", "true"], 2, "a share is a whole number from 1 to 1000000"),
        (&["run", "--group", "build=x", "--", "true"], 2, "write build=3"),
        (&["set", "nobody/", "3"], 6, "is called 'nobody"),
    ] {
        let outcome = sandbox.run(args);
        assert_eq!(outcome.code, Some(code), "{args:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(said), "{args:?}: {}", outcome.stderr);
    }
}
