//! A parent is told of a child that signals hold, and hears nothing of one that the freezer holds. Alone in its file, for
//! a host takes the process's signals and children.
#![allow(clippy::disallowed_methods, reason = "this test lives in real time")]

mod common;

use common::skip::skip;
use common::wait_for;
use divvy_engine::Host as _;
use divvy_linux::cgroup::{Means, Survey};
use divvy_linux::{Command, HostParams, LinuxHost, Pid, Signal, clock, procfs};
use divvy_policy::{ClientId, Nanos};
use rustix::process::WaitOptions;

const ROUNDS: usize = 20;

/// Whether this process, the parent, is told that `pid` was stopped.
fn told(pid: Pid) -> bool {
    let options = WaitOptions::UNTRACED | WaitOptions::NOHANG;
    let told = rustix::process::waitpid(Some(pid), options).expect("our child");
    told.is_some_and(|(_, status)| status.stopped())
}

/// What the client has used. The guardian hears each time that the host lives, lest it resumes all after some seconds.
fn used(host: &mut LinuxHost, client: ClientId) -> Nanos {
    host.wait(Some(clock::now())).expect("the host works");
    while host.next_news().is_some() {}
    host.measure(client).expect("alive")
}

/// Holds and releases a shell that computes; how often its parent was told that it was stopped.
fn reports(means: Means) -> usize {
    let signals = means == Means::Signals;
    let params = HostParams { cpus: None, capacity: 8 };
    let mut host = LinuxHost::with_means(&params, means).expect("a host");
    let argv = ["/bin/sh", "-c", "while :; do :; done"].map(Into::into).to_vec();
    let client = host.spawn(Command { argv, ..Command::default() }).expect("a shell");
    let pid = host.leader(client).expect("a leader");
    let mut reports = 0;
    for _ in 0..ROUNDS {
        host.release(client, None).expect("alive");
        let before = used(&mut host, client);
        wait_for("it to run", || used(&mut host, client) > before);
        host.hold(client).expect("alive");
        let stopped = || procfs::stat(pid).expect("readable").expect("our child").state.is_suspended();
        let mut last = used(&mut host, client);
        wait_for("it to stand", || {
            clock::sleep(Nanos::from_millis(5));
            // A frozen process looks like one that waits: it stands once its clock does.
            let stands = std::mem::replace(&mut last, used(&mut host, client)) == last;
            if signals { stopped() } else { stands }
        });
        reports += usize::from(told(pid));
    }
    host.signal(client, Signal::KILL).expect("alive");
    host.release(client, None).expect("it may be gone");
    let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
    reports
}

#[test]
fn a_parent_does_not_notice_the_freezer() {
    let dir = tempfile::tempdir().expect("a directory");
    // SAFETY: the only thread of the test, before any other reads the environment.
    unsafe { std::env::set_var("DIVVY_RUNTIME_DIR", dir.path().join("run")) };
    assert_eq!(reports(Means::Signals), ROUNDS, "signals are told of");
    match Survey::new().freezer {
        Ok(ground) => assert_eq!(reports(Means::Freezer(ground)), 0, "the freezer is not"),
        Err(why) => skip("a_parent_does_not_notice_the_freezer (freezer)", &why),
    }
}
