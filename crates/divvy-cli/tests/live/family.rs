//! A command's children are part of it, however they came and went.

use std::time::Duration;

use serde_json::Value;

use crate::harness::{ENOUGH_TICKS, SPIN, Sandbox, check_fractions, client, eventually, one_cpu};

/// divvy reads children's time in ticks of 10 ms and the shell prints it in such; a few of them in seconds.
const MAX_CHARGE_ERROR: f64 = 0.1;

/// Runs `family` beside a spinner of the same share on one CPU: each gets half. What `family` had is returned.
fn beside_a_spinner(sandbox: &Sandbox, family: &str) -> Value {
    let report = sandbox.share_for_ticks(ENOUGH_TICKS, &[&format!("1:{family}"), &format!("1:{SPIN}")]);
    assert_eq!(sandbox.processes(), [], "a child was left behind");
    check_fractions(&report, &[0.5, 0.5]);
    report
}

#[test]
fn children_in_the_background() {
    beside_a_spinner(&Sandbox::own(), &format!("({SPIN}) & ({SPIN}) & wait"));
}

#[test]
fn a_child_in_a_session_of_its_own() {
    beside_a_spinner(&Sandbox::own(), &format!("setsid sh -c '{SPIN}' & wait"));
}

/// The leader and the middle are gone when the grandchild computes.
#[test]
fn a_command_that_forks_twice() {
    let report = beside_a_spinner(&Sandbox::own(), &format!("(({SPIN}) & )"));
    assert_eq!(client(&report, 0, "exit"), &serde_json::json!({ "code": 0 }));
}

/// As a daemon does it: fork, a session of its own, fork again, and the leader gone at once.
#[test]
fn a_command_that_becomes_a_daemon() {
    let report = beside_a_spinner(&Sandbox::own(), &format!("setsid -f sh -c '({SPIN}) &'"));
    assert_eq!(client(&report, 0, "exit"), &serde_json::json!({ "code": 0 }));
}

/// Children that are gone before anybody looks are charged all the same. The shell says at its end what the kernel
/// booked for it and for all that it waited for.
#[test]
fn a_storm_of_short_lived_children() {
    let sandbox = Sandbox::own();
    let storm =
        "trap 'times > times; exit 0' TERM; while :; do sha256sum /bin/sh /bin/sh /bin/sh > /dev/null; done";
    let report = beside_a_spinner(&sandbox, storm);
    let charged = client(&report, 0, "service_ns").as_u64().unwrap() as f64 / 1e9;
    let booked = shell_times(&std::fs::read_to_string(sandbox.path("times")).unwrap());
    eprintln!("charged {charged:.2} s of {booked:.2} s that the kernel booked");
    assert!((charged / booked - 1.0).abs() <= MAX_CHARGE_ERROR, "charged {charged} s, booked {booked} s");
}

/// Seconds in the output of the shell's `times`: `0m1.230000s 0m0.120000s`, own then children's.
fn shell_times(text: &str) -> f64 {
    let seconds = |word: &str| {
        let (minutes, seconds) = word.strip_suffix('s')?.split_once('m')?;
        Some(minutes.parse::<f64>().ok()? * 60.0 + seconds.parse::<f64>().ok()?)
    };
    text.split_whitespace().map(|word| seconds(word).unwrap_or_else(|| panic!("{text}"))).sum()
}

/// A child leaves its parent's group when it has long been known, while no process is made that would call for another
/// look. It is held and ended all the same.
#[test]
fn a_child_that_leaves_its_group_late() {
    let sandbox = Sandbox::own();
    // The shell waits without making a process, and setsid takes the place of the one that waited.
    let late = format!("(: late; while [ ! -e go ]; do :; done; exec setsid sh -c ': late; {SPIN}') & wait");
    let mut running = sandbox.start(&[
        "share",
        "--quiet",
        "--quantum",
        "300ms",
        "--cpus",
        &one_cpu(),
        &format!("1:{late}"),
        &format!("1:{SPIN}"),
    ]);
    sandbox.wait_for(2, "late");
    std::thread::sleep(Duration::from_millis(500));
    sandbox.write("go", "");
    let session = eventually("it to leave", || {
        sandbox.with("late").into_iter().find(|p| p.command.starts_with("sh -c : late"))
    });
    for _ in 0..2 {
        let state =
            |held: bool| sandbox.with("late").iter().any(|p| p.pid == session.pid && p.is_held() == held);
        eventually("it to be held", || state(true).then_some(()));
        eventually("it to be released", || state(false).then_some(()));
    }
    running.signal(rustix::process::Signal::INT);
    assert_eq!(running.wait(), Some(130));
    assert_eq!(sandbox.processes(), [], "it was left behind");
}

/// A child that was made while its parent was released is held with it the next time.
#[test]
fn children_are_held_with_their_parent() {
    let sandbox = Sandbox::own();
    let family = format!("1:: family; setsid sh -c ': family; {SPIN}' & {SPIN}");
    let mut running = sandbox.start(&[
        "share",
        "--quiet",
        "--quantum",
        "300ms",
        "--cpus",
        &one_cpu(),
        &family,
        &format!("1:{SPIN}"),
    ]);
    // The child is found within a few looks.
    let both = |held: bool| {
        let family = sandbox.with("family");
        family.len() == 2 && family.iter().all(|p| p.is_held() == held)
    };
    for _ in 0..3 {
        eventually("both to be held", || both(true).then_some(()));
        eventually("both to be released", || both(false).then_some(()));
    }
    running.signal(rustix::process::Signal::INT);
    assert_eq!(running.wait(), Some(130));
    std::thread::sleep(Duration::from_millis(1));
    assert_eq!(sandbox.processes(), [], "a child was left behind");
}

/// As with `sudo` in a script: its process of another user is left alone, and the rest of the command is divided and ended.
#[test]
fn a_child_of_another_user() {
    let Some(sandbox) = Sandbox::nobody("a_child_of_another_user") else { return };
    let setpriv = sandbox.path("as-root");
    let path = std::env::split_paths("/usr/bin:/bin:/usr/sbin").map(|dir| dir.join("setpriv"));
    let original = path.into_iter().find(|p| p.exists()).expect("setpriv, which the sandbox uses itself");
    std::fs::copy(original, &setpriv).expect("a copy");
    std::fs::set_permissions(&setpriv, std::os::unix::fs::PermissionsExt::from_mode(0o4755)).expect("ours");
    let child = format!("{} --reuid=0 --regid=0 --clear-groups sleep 3071 & {SPIN}", setpriv.display());
    let running = sandbox.start(&[
        "share",
        "--for",
        "3s",
        "--cpus",
        &one_cpu(),
        "--report",
        "report.json",
        "--quiet",
        &format!("1:{child}"),
        &format!("1:{SPIN}"),
    ]);
    let sleeper = eventually("a child of another user", || {
        let found = sandbox.with("3071").into_iter().find(|p| p.comm == "sleep")?;
        let status = std::fs::read_to_string(format!("/proc/{}/status", found.pid.as_raw_nonzero())).ok()?;
        status.contains("Uid:\t0\t0\t0\t0").then_some(found.pid)
    });
    let mut running = running;
    assert_eq!(running.wait(), Some(0));
    check_fractions(&sandbox.report("report.json"), &[0.5, 0.5]);
    let left = sandbox.processes();
    assert!(left.iter().all(|p| p.pid == sleeper && !p.is_held()), "{left:?}");
}
