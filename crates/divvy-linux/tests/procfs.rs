//! What `/proc` says is read as the kernel means it, names with parentheses and vanished processes included.

mod common;

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use common::{Victim, nobody, wait_for};
use divvy_linux::procfs::{self, Pending, SchedstatFile, SignalSet, Stat, StatFile};
use divvy_linux::{Pid, ProcessRef, Signal, StartTime, State};
use divvy_policy::Nanos;
use proptest::prelude::*;
use rustix::process::{Resource, Rlimit};

/// A whole line of Linux 6.18, with another name put in.
fn line(name: &str) -> String {
    format!(
        "4711 ({name}) S 1 4710 4709 34816 4711 4194304 5188 71001 4 5 93 41 708 -1 20 0 3 0 64437 8540160 1338 \
         18446744073709551615 94 95 96 0 0 0 65536 3670020 1266777851 1 0 0 17 1 0 0 0 0 0 97 98 99 100 101 102 103 0\n"
    )
}

#[test]
fn a_stat_line_reads_field_by_field() {
    let stat = Stat::parse(line("bash").as_bytes()).expect("a real line");
    assert_eq!(stat.pid.as_raw_nonzero().get(), 4711);
    assert_eq!(stat.comm.as_bytes(), b"bash");
    assert_eq!(stat.state, State::Sleeping);
    assert_eq!(stat.ppid.map(|p| p.as_raw_nonzero().get()), Some(1));
    assert_eq!(stat.pgrp.map(|p| p.as_raw_nonzero().get()), Some(4710));
    assert_eq!(stat.session.map(|p| p.as_raw_nonzero().get()), Some(4709));
    assert_eq!((stat.utime, stat.stime, stat.cutime), (93, 41, 708));
    // The kernel prints cstime signed; one below zero counts as none.
    assert_eq!(stat.cstime, 0);
    assert_eq!(stat.ticks_of_children(), 708);
    assert_eq!(stat.num_threads, 3);
    assert_eq!(stat.start, StartTime(64437));
}

#[test]
fn a_name_may_hold_anything() {
    for name in ["a b", "(", ")", ") R 1 2 3", "(sd-pam)", "x) S 0 (y", "", "tab\there", "new\nline"] {
        let stat = Stat::parse(line(name).as_bytes()).expect(name);
        assert_eq!(stat.comm.as_bytes(), name.as_bytes());
        assert_eq!((stat.state, stat.start), (State::Sleeping, StartTime(64437)), "{name:?}");
    }
}

#[test]
fn a_cut_or_foreign_line_is_refused_and_names_the_field() {
    let whole = line("bash");
    assert_eq!(Stat::parse(b""), Err("comm"));
    assert_eq!(Stat::parse(b"12 (no end"), Err("comm"));
    assert_eq!(Stat::parse(b"x (a) S"), Err("pid"));
    assert_eq!(Stat::parse(b"0 (a) S"), Err("pid"));
    assert_eq!(Stat::parse(b"12 (a)"), Err("state"));
    assert_eq!(Stat::parse(b"12 (a) S 1 2 3 4"), Err("tpgid"));
    // Cut inside the start time it must not read as an earlier one.
    let inside = whole.find("64437").expect("there") + 3;
    assert_eq!(Stat::parse(&whole.as_bytes()[..inside]), Err("vsize"));
    assert_eq!(Stat::parse(whole.replace("64437", "99999999999999999999").as_bytes()), Err("starttime"));
}

proptest! {
    #[test]
    fn no_bytes_make_the_parsers_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Stat::parse(&bytes);
        let _ = Pending::parse(&bytes);
        let _ = procfs::Schedstat::parse(&bytes);
    }

    #[test]
    fn any_name_survives(name in proptest::collection::vec(any::<u8>(), 0..64)) {
        let whole = line("NAME");
        let at = whole.find("NAME").expect("there");
        let bytes = [&whole.as_bytes()[..at], &name, &whole.as_bytes()[at + 4..]].concat();
        let stat = Stat::parse(&bytes).expect("only the name is odd");
        prop_assert_eq!(stat.comm.as_bytes(), &name[..]);
        prop_assert_eq!(stat.start, StartTime(64437));
    }
}

#[test]
fn pending_stops_are_seen_in_both_masks() {
    let status = |thread: &str, process: &str| {
        Pending::parse(
            format!("Name:\tx\nState:\tT (stopped)\nSigQ:\t0/9\nSigPnd:\t{thread}\nShdPnd:\t{process}\nSigBlk:\t0\n").as_bytes(),
        )
    };
    // Signal n is bit n - 1: SIGSTOP 19, SIGTSTP 20, SIGTTIN 21, SIGTTOU 22; SIGCONT 18 and SIGTERM 15 are none.
    for (mask, stops) in
        [("0", false), ("40000", true), ("80000", true), ("100000", true), ("200000", true), ("24000", false)]
    {
        assert_eq!(status(mask, "0").expect(mask).has_stop(), stops, "thread {mask}");
        assert_eq!(status("0000000000000000", mask).expect(mask).has_stop(), stops, "process {mask}");
    }
    assert!(SignalSet(0x4000).contains(Signal::TERM) && !SignalSet(0x4000).contains(Signal::STOP));
    assert_eq!(status("xyz", "0"), Err("SigPnd"));
    assert_eq!(Pending::parse(b"State:\tS (sleeping)\nSigPnd:\t0\n"), Err("ShdPnd"));
    assert_eq!(Pending::parse(b"State:\tS (sleeping)\nSigPnd:\t0\nShdPnd:\t0\n"), Err("SigBlk"));
    assert_eq!(Pending::parse(b"SigPnd:\t0\nShdPnd:\t0\n"), Err("State"));
    assert!(status("0", "0").expect("read").suspended);
}

#[test]
fn a_blocked_stop_stays_pending_and_stops_nobody() {
    // A process can block SIGTSTP (not SIGSTOP); a shell's trap would handle it, so the child inherits a mask.
    use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
    let set = SigSet::from(nix::sys::signal::Signal::SIGTSTP);
    let mut before = SigSet::empty();
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), Some(&mut before)).expect("own mask");
    let child = Victim::spinner();
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None).expect("own mask");

    assert!(!procfs::pending(child.pid()).expect("readable").expect("alive").has_stop());
    child.process().signal(Signal::TSTP).expect("own child");
    let pending = procfs::pending(child.pid()).expect("readable").expect("alive");
    // A computing thread may have been told of it already: then it is the thread's.
    let waits = |set: SignalSet| set.contains(Signal::TSTP);
    assert!(waits(pending.thread) || waits(pending.process), "{pending:?}");
    assert!(waits(pending.blocked) && !pending.has_stop(), "{pending:?}");
    assert_ne!(child.stat().state, State::Stopped);
}

#[test]
fn a_live_process_is_seen_run_stop_and_vanish() {
    let mut child = Victim::spinner();
    let own = rustix::process::getpid();
    let stat = child.stat();
    assert_eq!((stat.ppid, stat.num_threads), (Some(own), 1));
    assert_eq!(stat.session, procfs::stat(own).expect("readable").expect("alive").session);
    let file = StatFile::open(child.pid()).expect("readable").expect("alive");
    let sched = SchedstatFile::open(child.pid()).expect("readable").expect("alive");
    wait_for("it to compute", || sched.read().expect("readable").expect("alive").ran > Nanos::from_millis(5));
    child.stop();
    assert_eq!(file.read().expect("readable").expect("alive").state, State::Stopped);
    let mut states = Vec::new();
    procfs::threads(child.pid(), |thread| states.push((thread.pid, thread.state)))
        .expect("readable")
        .expect("alive");
    assert_eq!(states, [(child.pid(), State::Stopped)]);

    let pid = child.pid();
    child.kill_and_reap();
    assert_eq!(procfs::stat(pid).expect("normal"), None);
    assert_eq!(file.read().expect("normal"), None);
    assert_eq!(sched.read().expect("normal"), None);
}

#[test]
fn children_and_threads_are_found() {
    let mut child = Victim::group("sleep 60 & sleep 60 & echo $!; wait");
    let last: i32 = child.line().parse().expect("a pid");
    let mut found = Vec::new();
    procfs::children(child.pid(), child.pid(), &mut found).expect("readable").expect("CONFIG_PROC_CHILDREN");
    assert_eq!(found.len(), 2);
    assert!(found.iter().any(|p| p.as_raw_nonzero().get() == last));

    let mut names = Vec::new();
    std::thread::scope(|scope| {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        std::thread::Builder::new()
            .name("second (of 2)".into())
            .spawn_scoped(scope, move || stopped.recv().is_err())
            .expect("a thread");
        wait_for("the thread's name", || {
            names.clear();
            procfs::threads(rustix::process::getpid(), |t| names.push(t.comm.to_string()))
                .expect("readable")
                .expect("alive");
            names.iter().any(|name| name == "second (of 2)")
        });
        drop(stop);
    });
    assert!(names.len() >= 2);
}

/// What it answers to each, which nobody else writes there.
const DONE: u8 = 1;

/// This test's own program, run anew: starts a thread for each `+`, and ends its oldest for each `-`.
fn start_and_end_threads() -> ! {
    let mut threads = std::collections::VecDeque::new();
    let mut told = [0];
    while std::io::stdin().read_exact(&mut told).is_ok() {
        if told == *b"+" {
            let (stop, stopped) = std::sync::mpsc::channel::<()>();
            threads.push_back((stop, std::thread::spawn(move || stopped.recv().is_err())));
        } else if let Some((stop, thread)) = threads.pop_front() {
            drop(stop);
            thread.join().expect("it ends");
        }
        std::io::stdout().write_all(&[DONE]).and_then(|()| std::io::stdout().flush()).expect("a pipe");
    }
    std::process::exit(0)
}

#[test]
fn threads_are_told_while_some_end_and_others_come() {
    const IS_CHILD: &str = "DIVVY_TEST_THREADS";
    #[expect(clippy::disallowed_methods, reason = "what this test says to itself")]
    let is_child = std::env::var_os(IS_CHILD).is_some();
    if is_child {
        start_and_end_threads();
    }
    let name = "threads_are_told_while_some_end_and_others_come";
    let limit = rustix::process::getrlimit(Resource::Nofile);
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
        .expect("allowed");
    if limit.maximum.is_some_and(|most| most < 16_384) {
        common::skip::skip(name, "too few files may be open for any to be kept");
        return;
    }
    let mut child = Command::new(std::env::current_exe().expect("a program"));
    let child = child.args(["--exact", name, "--nocapture"]).env(IS_CHILD, "");
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let process = ProcessRef::open(Pid::from_child(&child)).expect("a pidfd").expect("alive");
    let (mut to, mut from) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
    let mut change = |changes: &str| {
        to.write_all(changes.as_bytes()).expect("it reads");
        for _ in changes.bytes() {
            // What the test's harness says comes before.
            let mut said = [0];
            while said != [DONE] {
                from.read_exact(&mut said).expect("it answers");
            }
        }
    };
    let told = |most: usize| {
        let count = process.stat().expect("readable").expect("alive").num_threads;
        let mut told = Vec::new();
        let each = &mut |thread: Stat| {
            told.push((thread.pid.as_raw_pid(), thread.start));
            told.len() < most
        };
        process.threads_while(count, each).expect("readable");
        told.sort_unstable();
        told
    };
    let there = || {
        let mut there = Vec::new();
        procfs::threads(process.pid(), |thread| there.push((thread.pid.as_raw_pid(), thread.start)))
            .expect("readable");
        there.sort_unstable();
        there
    };
    change("+");
    let mut number = there().len();
    // Files of its threads that are kept open here.
    let kept = || {
        let dir = format!("/proc/{}/task/", process.pid().as_raw_pid());
        let open = std::fs::read_dir("/proc/self/fd").expect("readable").flatten();
        open.filter_map(|fd| fd.path().read_link().ok()).filter(|to| to.starts_with(&dir)).count()
    };
    let (many, few) = ("+".repeat(70), "-".repeat(70));
    for changes in ["+", "++", "-+", "-", "--++", "+-+-", "--", "+++", &many, &few, "---", "+"] {
        change(changes);
        number = number + changes.matches('+').count() - changes.matches('-').count();
        wait_for("the last of those that were joined to be gone", || there().len() == number);
        // Once as it changed, once by the files that were kept; and whoever has enough is told no more.
        assert_eq!((told(usize::MAX), told(usize::MAX)), (there(), there()), "{changes}");
        assert_eq!(kept(), if number > 64 { 0 } else { number }, "{changes}");
        assert_eq!(told(1).len(), 1);
    }
    // As many as before, and another one among those that are not looked at.
    change("-+");
    wait_for("the one that was joined to be gone", || there().len() == number);
    assert_eq!((told(1).len(), told(usize::MAX)), (1, there()));
    // And some that come where one is enough.
    change("+++-");
    wait_for("the last one to be gone", || there().len() == number + 2);
    assert_eq!((told(1).len(), told(usize::MAX)), (1, there()));
    process.forget_threads();
    assert_eq!(kept(), 0);
    drop(to);
    child.wait().expect("it ends");
    assert_eq!(process.stat().expect("normal"), None);
    assert_eq!(process.running(process.pid()), None);
    process.threads_while(2, &mut |_| panic!("there is none")).expect("normal");
}

#[test]
fn nobody_is_a_normal_answer() {
    let pid = nobody();
    assert_eq!(procfs::stat(pid).expect("normal"), None);
    assert_eq!(procfs::thread_stat(pid, pid).expect("normal"), None);
    assert_eq!(procfs::schedstat(pid).expect("normal"), None);
    assert_eq!(procfs::pending(pid).expect("normal"), None);
    assert_eq!(procfs::children(pid, pid, &mut Vec::new()).expect("normal"), None);
    assert_eq!(procfs::threads(pid, |_| panic!("there is none")).expect("normal"), None);
    assert!(StatFile::open(pid).expect("normal").is_none());
}

#[test]
fn every_process_is_walked() {
    let child = Victim::spinner();
    let mut seen = Vec::new();
    procfs::processes(|pid| seen.push(pid)).expect("readable");
    assert!(seen.contains(&child.pid()) && seen.contains(&rustix::process::getpid()));
}
