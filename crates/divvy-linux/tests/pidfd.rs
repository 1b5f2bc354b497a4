//! A `ProcessRef` reaches its own process or nobody.

mod common;

use common::{Victim, nobody, wait_for};
use divvy_linux::{Delivery, GroupDelivery, Pid, ProcessRef, Signal, StartTime, State, procfs};

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

#[test]
fn a_stop_that_is_sent_to_a_thread_stops_the_process_and_waits_where_it_was_sent() {
    let mut child = Victim::spinner();
    let (process, tid) = (child.process(), child.pid());
    assert_eq!(process.signal_thread(tid, Signal::STOP).expect("own child"), Delivery::Sent);
    wait_for("the stop", || child.stat().state == State::Stopped);
    // Another one waits behind it, for that thread and not for the process.
    assert!(!process.pending_of(tid).expect("readable").expect("alive").has_stop());
    assert_eq!(process.signal_thread(tid, Signal::STOP).expect("own child"), Delivery::Sent);
    let waits = process.pending_of(tid).expect("readable").expect("alive");
    assert!(waits.suspended && waits.thread.contains(Signal::STOP) && !waits.process.contains(Signal::STOP));
    // What takes a stop back takes all of it back.
    assert_eq!(process.signal(Signal::CONT).expect("own child"), Delivery::Sent);
    wait_for("the resumption", || child.stat().state == State::Running);
    assert!(!process.pending_of(tid).expect("readable").expect("alive").has_stop());
    // Of another process's thread it has none: its own is asked.
    let others = rustix::thread::gettid();
    assert_eq!(process.signal_thread(others, Signal::STOP).expect("normal"), Delivery::Gone);
    assert_eq!(process.pending_of(others).expect("readable"), process.pending().expect("readable"));
    child.kill_and_reap();
    assert_eq!(process.signal_thread(tid, Signal::STOP).expect("normal"), Delivery::Gone);
    assert_eq!(process.pending_of(tid).expect("normal"), None);
}
