//! A panic of whoever owns the host: unwinding releases everything. Alone in its file, for a host takes the process's
//! signals and children.
#![allow(clippy::disallowed_methods, reason = "this test lives in real time")]

mod common;

use std::time::{Duration, Instant};

use common::{Ended, is_suspended};
use divvy_linux::{Command, HostParams, LinuxHost};

/// How long what must come may take.
const PATIENCE: Duration = Duration::from_secs(60);

fn eventually(what: &str, found: impl Fn() -> bool) {
    let start = Instant::now();
    while !found() {
        assert!(start.elapsed() < PATIENCE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_panic_releases_what_was_held() {
    let dir = tempfile::tempdir().expect("a directory");
    // SAFETY: the only thread of the test, before any other reads the environment.
    unsafe { std::env::set_var("DIVVY_RUNTIME_DIR", dir.path().join("run")) };
    let mut ended = Ended(Vec::new());
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut host = LinuxHost::new(&HostParams { cpus: None, capacity: 8 }).expect("a host");
        for _ in 0..3 {
            let argv = ["/bin/sh", "-c", "while :; do :; done"].map(Into::into).to_vec();
            let client = host.spawn(Command { argv, ..Command::default() }).expect("a shell");
            ended.0.push(host.leader(client).expect("a leader"));
        }
        eventually("all are held", || ended.0.iter().all(|&pid| is_suspended(pid)));
        panic!("on purpose");
    }));
    assert!(panicked.is_err());
    eventually("nobody is held", || !ended.0.iter().any(|&pid| is_suspended(pid)));
    let left = std::fs::read_dir(dir.path().join("run")).expect("the runtime directory").count();
    assert_eq!(left, 0, "the table is gone with the last that was held");
}
