//! Clients that are started one after another for longer than an owner may be silent. Alone in its file, for a host takes the process's
//! signals and children.
#![allow(clippy::disallowed_methods, reason = "this test lives in real time")]

mod common;

use std::time::{Duration, Instant};

use common::{Ended, is_suspended};
use divvy_linux::guard::HUNG_AFTER;
use divvy_linux::{Command, HostParams, LinuxHost};

/// How long what must come may take.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn who_starts_clients_for_long_is_not_taken_to_hang() {
    let dir = tempfile::tempdir().expect("a directory");
    // SAFETY: the only thread of the test, before any other reads the environment.
    unsafe { std::env::set_var("DIVVY_RUNTIME_DIR", dir.path().join("run")) };
    let mut host = LinuxHost::new(&HostParams { cpus: None, capacity: 64 }).expect("a host");
    let mut ended = Ended(Vec::new());
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_nanos(HUNG_AFTER.0) + Duration::from_secs(2) {
        let argv = ["/bin/sh", "-c", "while :; do :; done"].map(Into::into).to_vec();
        let client = host.spawn(Command { argv, ..Command::default() }).expect("a shell");
        ended.0.push(host.leader(client).expect("a leader"));
        let asked = Instant::now();
        while !ended.0.iter().all(|&pid| is_suspended(pid)) {
            assert!(
                asked.elapsed() < PATIENCE,
                "somebody runs: the guardian has resumed what it took for left behind"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}
