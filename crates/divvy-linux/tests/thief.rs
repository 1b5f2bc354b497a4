//! A held client that somebody else resumes is found, also where it is released now and then and so could hide what it took among what
//! it was given. Alone in its file, for a host takes the process's signals and children.
#![allow(clippy::disallowed_methods, reason = "this test lives in real time")]

mod common;

use common::{Ended, PATIENCE};
use divvy_engine::{Host as _, News};
use divvy_linux::{Command, CpuMask, HostParams, LinuxHost, Signal, clock};
use divvy_policy::Nanos;

const TURN: Nanos = Nanos::from_millis(50);
/// The thief has one turn of so many, so that what it takes and what it is given are measured together.
const TURNS: usize = 3;

#[test]
fn who_was_resumed_cannot_hide_in_its_own_turns() {
    let dir = tempfile::tempdir().expect("a directory");
    // SAFETY: the only thread of the test, before any other reads the environment.
    unsafe { std::env::set_var("DIVVY_RUNTIME_DIR", dir.path().join("run")) };
    let first = CpuMask::of_thread(rustix::process::getpid()).expect("readable").expect("this process");
    let first = first.iter().next().expect("a CPU");
    let cpus = Some(CpuMask::only(first));
    let mut host = LinuxHost::new(&HostParams { cpus, capacity: 8 }).expect("a host");
    let argv = || ["/bin/sh", "-c", "while :; do :; done"].map(Into::into).to_vec();
    let clients =
        [(); 3].map(|()| host.spawn(Command { argv: argv(), ..Command::default() }).expect("a shell"));
    let leaders = clients.map(|client| host.leader(client).expect("a leader"));
    let _ended = Ended(leaders.to_vec());
    // All of the time is the clients' for a while, or nobody were looked at rarely.
    let began = clock::now();
    let mut found = None;
    for turn in 0.. {
        let client = clients[if turn % TURNS == 0 { 0 } else { 1 + turn % 2 }];
        let until = clock::now() + TURN;
        host.release(client, None).expect("alive");
        let robs = clock::now().since(began) > Nanos::from_secs(3) && client != clients[0];
        while clock::now() < until {
            if robs {
                rustix::process::kill_process(leaders[0], Signal::CONT).expect("ours");
            }
            host.wait(Some(until)).expect("the host works");
            while let Some(news) = host.next_news() {
                if robs && news == News::Resumed(clients[0]) {
                    found = Some(clock::now().since(began));
                }
            }
        }
        host.measure(client).expect("alive");
        host.hold(client).expect("alive");
        if found.is_some() {
            break;
        }
        assert!(clock::now().since(began) < PATIENCE, "the thief was not found");
    }
}
