//! A `ProcessRef` reaches its own process or nobody.

mod common;

use common::skip::skip;
use common::{Victim, nobody, wait_for};
use divvy_linux::pidfd::PIDFD_THREAD;
use divvy_linux::{CpuMask, Delivery, GroupDelivery, Pid, ProcessRef, Signal, StartTime, State, procfs};
use std::process::{Command, Stdio};

#[test]
fn it_signals_and_notices_the_end() {
    let mut child = Victim::spinner();
    let process = child.process();
    assert_eq!((process.pid(), process.start()), (child.pid(), child.start_time()));
    assert!(process.is_alive().expect("poll"));
    assert_eq!(process.signal(Signal::STOP).expect("own child"), Delivery::Sent);
    wait_for("the stop", || child.stat().state == State::Stopped);
    assert_eq!(process.signal(Signal::CONT).expect("own child"), Delivery::Sent);
    wait_for("the resumption", || child.stat().state == State::Running);

    process.signal(Signal::KILL).expect("own child");
    // Ended is enough: it need not have been waited for.
    wait_for("the end", || !process.is_alive().expect("poll"));
    assert_eq!(child.stat().state, State::Zombie);
    assert!(ProcessRef::open(child.pid()).expect("normal").is_none(), "a zombie is not there any more");
    child.kill_and_reap();
    assert_eq!(process.signal(Signal::CONT).expect("normal"), Delivery::Gone);
}

#[test]
fn another_start_time_is_another_process() {
    let child = Victim::spinner();
    let StartTime(ticks) = child.start_time();
    assert!(ProcessRef::open_exact(child.pid(), StartTime(ticks)).expect("pidfd").is_some());
    assert!(ProcessRef::open_exact(child.pid(), StartTime(ticks + 1)).expect("pidfd").is_none());
    assert!(ProcessRef::open_exact(child.pid(), StartTime(ticks - 1)).expect("pidfd").is_none());
}

#[test]
fn nobody_is_a_normal_answer() {
    assert!(ProcessRef::open(nobody()).expect("normal").is_none());
}

#[test]
fn a_group_is_signalled_whole_even_after_its_leader_ended() {
    let mut leader = Victim::group("sleep 60 & echo $!; wait");
    let member = Pid::from_raw(leader.line().parse().expect("a pid")).expect("not zero");
    let group = leader.process();
    let state = || procfs::stat(member).expect("readable").map(|s| s.state);
    for ended in [false, true] {
        if ended {
            group.signal(Signal::KILL).expect("own child");
            wait_for("the leader's end", || !group.is_alive().expect("poll"));
        }
        if group.signal_group(Signal::STOP).expect("own group") == GroupDelivery::Unsupported {
            eprintln!("SKIP: this kernel cannot signal a group through a pidfd (before Linux 6.9)");
            return;
        }
        wait_for("the member's stop", || state() == Some(State::Stopped));
        assert_eq!(group.signal_group(Signal::CONT).expect("own group"), GroupDelivery::Sent);
        wait_for("the member's resumption", || state() == Some(State::Sleeping));
    }
    group.signal_group(Signal::KILL).expect("own group");
    wait_for("the member's end", || state().is_none_or(State::is_ended));
}

#[test]
fn a_process_that_leads_no_group_has_none() {
    let child = Victim::spinner();
    let answer = child.process().signal_group(Signal::CONT).expect("no group");
    assert!(matches!(answer, GroupDelivery::Gone | GroupDelivery::Unsupported), "{answer:?}");
}

/// This test's own program, run anew: its main thread waits for one that computes.
#[test]
fn a_stop_is_sent_to_a_thread_that_runs_elsewhere_and_stops_the_process() {
    const SPINS: &str = "DIVVY_TEST_SPINS";
    #[expect(clippy::disallowed_methods, reason = "what this test says to itself")]
    let spins = std::env::var_os(SPINS).is_some();
    if spins {
        loop {
            std::hint::spin_loop();
        }
    }
    let own = rustix::thread::gettid();
    let all = CpuMask::of_thread(own).expect("readable").expect("a thread");
    let cpus: Vec<u32> = all.iter().collect();
    let name = "a_stop_is_sent_to_a_thread_that_runs_elsewhere_and_stops_the_process";
    let [ours, another, ..] = cpus[..] else {
        skip(name, "this machine has one CPU");
        return;
    };
    let mut child = Command::new(std::env::current_exe().expect("a program"));
    let child = child.args(["--exact", name, "--nocapture"]).env(SPINS, "").stdout(Stdio::null()).spawn();
    let mut child = child.expect("it starts");
    let process = ProcessRef::open(Pid::from_child(&child)).expect("a pidfd").expect("alive");
    let threads = || {
        let mut all = Vec::new();
        procfs::threads(process.pid(), |thread| all.push(thread)).expect("readable");
        all
    };
    let worker = || threads().into_iter().find(|t| t.pid != process.pid() && t.state == State::Running);
    wait_for("a thread that computes", || worker().is_some());
    let (tid, start) = worker().map(|t| (t.pid, t.start)).expect("it computes");
    let stands = || threads().iter().all(|t| t.state == State::Stopped);

    CpuMask::only(ours).apply(own).expect("ours");
    // Where we are ourselves it would wait for us; and whoever has its number is not it.
    CpuMask::only(ours).apply(tid).expect("our child's");
    assert!(!process.signal_elsewhere((tid, start), Signal::STOP));
    CpuMask::only(another).apply(tid).expect("our child's");
    assert!(!process.signal_elsewhere((tid, StartTime(start.0 + 1)), Signal::STOP));
    assert!(!process.pending_of(tid).expect("readable").expect("alive").has_stop() && !stands());
    let can_be = rustix::process::pidfd_open(tid, PIDFD_THREAD).is_ok();
    if !can_be {
        skip(name, "this kernel sends no signal to a thread (before Linux 6.9)");
    }
    // With files opened for each call, then with files that are kept, the first time and again.
    for keeps in [false, true, true] {
        if keeps {
            process.threads_while(2, &mut |_| true).expect("readable");
        }
        CpuMask::only(ours).apply(own).expect("ours");
        let sent = process.signal_elsewhere((tid, start), Signal::STOP);
        all.apply(own).expect("ours");
        assert_eq!(sent, can_be);
        if !can_be {
            break;
        }
        wait_for("the stop of both", stands);
        assert!(!process.pending_of(tid).expect("readable").expect("alive").has_stop(), "it was taken");
        // It does not run now; and another stop that waits is seen, be it the process's or the thread's.
        assert!(!process.signal_elsewhere((tid, start), Signal::STOP));
        let tgkill = |tid: Pid| {
            let (pid, tid) = (process.pid().as_raw_nonzero().get(), tid.as_raw_nonzero().get());
            // SAFETY: numbers go in, and a number comes out.
            assert_eq!(unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, libc::SIGSTOP) }, 0);
        };
        tgkill(tid);
        assert!(process.pending_of(tid).expect("readable").expect("alive").has_sigstop());
        assert!(
            !process.pending().expect("readable").expect("alive").has_sigstop(),
            "that is the main thread's"
        );
        tgkill(process.pid());
        assert!(process.pending_of(tid).expect("readable").expect("alive").has_sigstop());
        // What takes a stop back takes all of them back.
        assert_eq!(process.signal(Signal::CONT).expect("own child"), Delivery::Sent);
        wait_for("the resumption", || worker().is_some());
        assert!(!process.pending_of(tid).expect("readable").expect("alive").has_stop());
    }
    all.apply(own).expect("ours");
    child.kill().and_then(|()| child.wait()).expect("it ends");
    assert!(!process.signal_elsewhere((tid, start), Signal::STOP), "it has ended");
    assert_eq!(process.pending_of(tid).expect("normal"), None);
}
