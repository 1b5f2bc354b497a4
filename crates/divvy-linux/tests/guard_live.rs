//! Nothing that an owner suspended stays suspended, whatever becomes of the owner and of its guardian.

mod common;
#[path = "common/owner.rs"]
mod owner;

use std::ops::ControlFlow;

use common::{PATIENCE, Victim, wait_for};
use divvy_linux::guard::{
    Guardian, HUNG_AFTER, Live, Place, Reach, Report, RuntimeDir, SavedAffinity, Table,
};
use divvy_linux::guard::{rescue, rescue_with};
use divvy_linux::{CpuMask, Pid, ProcessRef, Signal, State, clock, procfs};
use divvy_policy::{Instant, Nanos};
use owner::{Held, Owner, Random};

/// Moments at which an owner is killed, of the test.
const KILLS: usize = 200;
/// Moments at which owner and guardian are killed together.
const DOUBLE_KILLS: usize = 50;

fn runtime_dir() -> (tempfile::TempDir, RuntimeDir) {
    let parent = tempfile::tempdir().expect("a directory");
    let dir = RuntimeDir::open_or_create(&parent.path().join("divvy")).expect("private");
    (parent, dir)
}

fn nr_files(dir: &RuntimeDir) -> usize {
    std::fs::read_dir(dir.path()).expect("readable").count()
}

fn is_stopped(pid: Pid) -> bool {
    procfs::stat(pid).expect("readable").is_some_and(|s| s.state == State::Stopped)
}

fn nr_stopped(clients: &[(Pid, Reach)]) -> usize {
    clients.iter().filter(|(pid, _)| is_stopped(*pid)).count()
}

fn spinners(n: usize) -> (Vec<Victim>, Vec<(Pid, Reach)>) {
    let victims: Vec<_> = (0..n).map(|_| Victim::nice_spinner()).collect();
    let clients = victims.iter().map(|v| (v.pid(), Reach::Process)).collect();
    (victims, clients)
}

/// Holds and releases at random as fast as it can.
fn hold_and_release_for_ever(held: Held, seed: u64) -> ! {
    let mut random = Random(seed);
    loop {
        let i = random.below(held.clients.len() as u64) as usize;
        // Most are held at any moment, as under a gate.
        match random.below(4) {
            0 => held.release(i),
            _ => held.hold(i),
        }
        held.table.beat(clock::now());
    }
}

/// Prints what a test measured: median and greatest.
fn print_spread(what: &str, mut spans: Vec<Nanos>) {
    spans.sort_unstable();
    let ms = |n: Nanos| n.as_secs_f64() * 1e3;
    println!(
        "{what}: median {:.2} ms, greatest {:.2} ms of {}",
        ms(spans[spans.len() / 2]),
        ms(spans[spans.len() - 1]),
        spans.len()
    );
}

#[test]
fn killed_at_any_moment_an_owner_leaves_nobody_suspended() {
    let (_parent, dir) = runtime_dir();
    let (_victims, clients) = spinners(20);
    let seed = 0x5eed_0001;
    let mut random = Random(seed);
    let (mut until_resumed, mut found_held) = (Vec::new(), 0);
    for moment in 0..KILLS {
        let n = 1 + random.below(20) as usize;
        let (life, delay) = (random.below(u64::MAX), Nanos::from_micros(random.below(4_000)));
        let owner = Owner::fork(&dir, &clients[..n], |held| hold_and_release_for_ever(held, life));
        clock::sleep(delay);
        let killed = clock::now();
        owner.kill();
        found_held += nr_stopped(&clients).min(1);
        wait_for("nobody to be suspended", || nr_stopped(&clients) == 0);
        until_resumed.push(clock::now().since(killed));
        // The guardian takes the table away when it has finished: after that nothing changes any more.
        wait_for("the table to be removed", || nr_files(&dir) == 0);
        assert_eq!(nr_stopped(&clients), 0, "moment {moment} of seed {seed:#x}");
    }
    print_spread("kill of the owner until all resumed", until_resumed);
    println!("somebody was still seen suspended after the kill in {found_held} of {KILLS} moments");
}

#[test]
fn a_sleeping_owners_death_is_noticed_at_once() {
    // As in life: the owner sleeps until its next timer, and most clients stand.
    let (_parent, dir) = runtime_dir();
    let (_victims, clients) = spinners(20);
    let mut latencies = Vec::new();
    for _ in 0..30 {
        let owner = Owner::fork(&dir, &clients, |held| {
            (0..20).for_each(|i| held.hold(i));
            held.beat_for_ever(|_| {})
        });
        wait_for("all to be held", || nr_stopped(&clients) == 20);
        let killed = clock::now();
        owner.kill();
        wait_for("nobody to be suspended", || nr_stopped(&clients) == 0);
        latencies.push(clock::now().since(killed));
        wait_for("the table to be removed", || nr_files(&dir) == 0);
    }
    print_spread("kill of a sleeping owner until all 20 resumed", latencies);
}

#[test]
fn killed_together_owner_and_guardian_leave_work_that_the_rescue_does() {
    let (_parent, dir) = runtime_dir();
    let (_victims, clients) = spinners(8);
    let mut random = Random(0x5eed_0002);
    let (mut rescues, mut with_work) = (Vec::new(), 0);
    // A busy machine may not let an owner come to its first hold in time: then it is given longer, and more moments.
    let mut moment = 0;
    while moment < DOUBLE_KILLS || (with_work < DOUBLE_KILLS / 10 && moment < 20 * DOUBLE_KILLS) {
        let n = 1 + random.below(8) as usize;
        let longest = 4_000 * (1 + (moment / DOUBLE_KILLS) as u64);
        let (life, delay) = (random.below(u64::MAX), Nanos::from_micros(random.below(longest)));
        moment += 1;
        let owner = Owner::fork(&dir, &clients[..n], |held| hold_and_release_for_ever(held, life));
        clock::sleep(delay);
        rustix::process::kill_process(owner.guardian, Signal::KILL).expect("our own");
        owner.kill();
        let stopped: Vec<_> = clients.iter().map(|c| c.0).filter(|&pid| is_stopped(pid)).collect();
        let begun = clock::now();
        let report = rescue(&dir).expect("readable");
        rescues.push(clock::now().since(begun));
        assert!(report.is_clean() && report.repaired == 1, "moment {moment}: {report}");
        // Whoever stands was held by the table; whoever was held may have been about to stand.
        assert!(stopped.iter().all(|pid| report.resumed.contains(pid)), "moment {moment}: {report:?}");
        assert!(report.gone.is_empty() && report.foreign.is_empty(), "{report:?}");
        with_work += usize::from(!stopped.is_empty());
        wait_for("nobody to be suspended", || nr_stopped(&clients) == 0);
        assert_eq!(nr_files(&dir), 0);
    }
    assert!(with_work >= DOUBLE_KILLS / 10, "too few moments ({with_work}) at which somebody was suspended");
    print_spread("a rescue", rescues);
}

#[test]
fn a_killed_guardian_is_noticed_and_replaced() {
    let (_parent, dir) = runtime_dir();
    let (_victims, clients) = spinners(3);
    let mut owner = Owner::fork(&dir, &clients, |held| {
        (0..3).for_each(|i| held.hold(i));
        held.beat_for_ever(|held| {
            if !held.guardian.is_alive().expect("poll") {
                held.guardian.respawn(&held.table).expect("another guardian");
                held.tell(held.guardian.pid());
            }
        })
    });
    for _ in 0..3 {
        let old = owner.guardian;
        rustix::process::kill_process(old, Signal::KILL).expect("the guardian");
        owner.guardian = Pid::from_raw(owner.heard() as i32).expect("a pid");
        assert_ne!(owner.guardian, old);
        wait_for("the old one to be reaped", || procfs::stat(old).expect("readable").is_none());
    }
    wait_for("all to be held", || nr_stopped(&clients) == 3);
    owner.kill();
    wait_for("nobody to be suspended", || nr_stopped(&clients) == 0);
    wait_for("the table to be removed", || nr_files(&dir) == 0);
}

#[test]
fn a_stopped_owner_loses_its_hold_and_is_told_so() {
    let (_parent, dir) = runtime_dir();
    let (_victims, clients) = spinners(4);
    let mut owner = Owner::fork(&dir, &clients, |held| {
        (0..4).for_each(|i| held.hold(i));
        let mut seen = 0;
        held.beat_for_ever(|held| {
            let generation = held.table.generation();
            if generation != seen {
                seen = generation;
                (0..4).for_each(|i| held.hold(i));
                held.tell_number(generation);
            }
        })
    });
    wait_for("all to be held", || nr_stopped(&clients) == 4);
    let (mut generation, mut latencies) = (0, Vec::new());
    for _ in 0..2 {
        owner.signal(Signal::STOP);
        latencies.push(wait_for("all to be resumed", || nr_stopped(&clients) == 0));
        // They stay so while the owner stands.
        clock::sleep(Nanos::from_millis(700));
        assert_eq!(nr_stopped(&clients), 0);
        owner.signal(Signal::CONT);
        let told = owner.heard();
        assert!(told > generation, "{told} after {generation}");
        generation = told;
        wait_for("all to be held anew", || nr_stopped(&clients) == 4);
    }
    print_spread("stop of the owner until all resumed", latencies);
    owner.kill();
    wait_for("nobody to be suspended", || nr_stopped(&clients) == 0);
}

#[test]
fn somebody_who_was_held_in_a_stopped_owners_last_gasp_is_resumed_too() {
    // The owner is stopped, its clients are resumed, it goes on for a moment without a beat, holds, and is stopped again.
    let (_parent, dir) = runtime_dir();
    let (_victims, clients) = spinners(1);
    let owner = Owner::fork(&dir, &clients, |held| {
        loop {
            held.hold(0);
            clock::sleep(Nanos::from_millis(50));
        }
    });
    wait_for("it to be held", || nr_stopped(&clients) == 1);
    for _ in 0..3 {
        owner.signal(Signal::STOP);
        wait_for("it to be resumed", || nr_stopped(&clients) == 0);
        owner.signal(Signal::CONT);
        wait_for("it to be held again", || nr_stopped(&clients) == 1);
    }
    owner.signal(Signal::STOP);
    wait_for("it to be resumed", || nr_stopped(&clients) == 0);
}

#[test]
fn a_hung_owner_loses_its_hold() {
    let (_parent, dir) = runtime_dir();
    let (_victims, clients) = spinners(2);
    // It holds, beats once more, and sleeps for ever: not stopped, only of no use.
    let mut owner = Owner::fork(&dir, &clients, |mut held| {
        (0..2).for_each(|i| held.hold(i));
        let now = clock::now();
        held.table.beat(now);
        held.tell_number(now.0);
        clock::sleep(PATIENCE + PATIENCE);
    });
    // By its own clock: when we come to see that both are held says nothing of when it beat.
    let beaten = Instant(owner.heard());
    wait_for("both to be held", || nr_stopped(&clients) == 2);
    wait_for("both to be resumed", || nr_stopped(&clients) == 0);
    let silent = clock::now().since(beaten);
    assert!(silent >= HUNG_AFTER, "an owner that is merely slow keeps its hold: {silent:?}");
}

#[test]
fn a_living_owner_keeps_its_hold_through_a_rescue() {
    let (_parent, dir) = runtime_dir();
    let (_victims, clients) = spinners(2);
    let owner = Owner::fork(&dir, &clients, |held| {
        (0..2).for_each(|i| held.hold(i));
        held.beat_for_ever(|_| {})
    });
    wait_for("both to be held", || nr_stopped(&clients) == 2);
    let report = rescue(&dir).expect("readable");
    assert_eq!((report.still_owned, report.resumed), (vec![owner.pid()], vec![]));
    assert_eq!((nr_stopped(&clients), nr_files(&dir)), (2, 1));
}

/// A group whose leader and three more processes compute, of which the owner knows the leader only.
fn computing_group() -> (Victim, Vec<(Pid, Reach)>) {
    let mut leader =
        Victim::group("for i in 1 2 3; do (while :; do :; done) & echo $!; done; while :; do :; done");
    let mut members: Vec<Pid> =
        (0..3).map(|_| Pid::from_raw(leader.line().parse().expect("a pid")).expect("not zero")).collect();
    members.push(leader.pid());
    let session = leader.stat().session;
    (leader, members.into_iter().map(|pid| (pid, Reach::Group { session })).collect())
}

#[test]
fn members_that_the_owner_never_met_are_resumed_with_their_group() {
    let (_parent, dir) = runtime_dir();
    let (_leader, members) = computing_group();
    for _ in 0..5 {
        let owner = Owner::fork(&dir, &members[3..], |held| {
            held.hold(0);
            held.beat_for_ever(|_| {})
        });
        wait_for("the whole group to be held", || nr_stopped(&members) == 4);
        owner.kill();
        wait_for("the whole group to be resumed", || nr_stopped(&members) == 0);
        wait_for("the table to be removed", || nr_files(&dir) == 0);
    }
}

/// Leaves a suspended group behind, owner and guardian dead.
fn abandoned_group(dir: &RuntimeDir, members: &[(Pid, Reach)]) {
    let owner = Owner::fork(dir, &members[3..], |held| {
        held.hold(0);
        held.beat_for_ever(|_| {})
    });
    wait_for("the whole group to be held", || nr_stopped(members) == 4);
    rustix::process::kill_process(owner.guardian, Signal::KILL).expect("our own");
    owner.kill();
    assert_eq!(nr_stopped(members), 4);
}

fn check_rescued(report: &Report, members: &[(Pid, Reach)]) {
    assert!(report.is_clean() && report.repaired == 1, "{report:?}");
    wait_for("the whole group to be resumed", || nr_stopped(members) == 0);
}

#[test]
fn a_group_is_rescued_at_once_member_by_member_and_without_its_leader() {
    let (_parent, dir) = runtime_dir();
    let (mut leader, members) = computing_group();
    abandoned_group(&dir, &members);
    let report = rescue(&dir).expect("readable");
    check_rescued(&report, &members);
    assert!(report.resumed.contains(&leader.pid()));

    // As on a kernel before Linux 6.9.
    abandoned_group(&dir, &members);
    let report =
        rescue_with(&dir, &Live { member_by_member: true }, &Place::here().expect("here")).expect("readable");
    check_rescued(&report, &members);
    assert_eq!(report.resumed.len(), 4, "{report:?}");

    // The leader is killed while it stands, and waited for: its pid names nobody. Its children become ours, for a group
    // without a parent in its session would be resumed (and hung up) by the kernel.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).expect("permitted");
    abandoned_group(&dir, &members);
    let pgid = leader.pid();
    leader.kill_and_reap();
    assert_eq!(nr_stopped(&members), 3);
    let report = rescue(&dir).expect("readable");
    assert_eq!((report.resumed.len(), report.gone.as_slice()), (3, &[pgid][..]), "{report:?}");
    wait_for("the members to be resumed", || nr_stopped(&members) == 0);
    for (pid, _) in &members[..3] {
        // Still members of our group, so still ours.
        let member = ProcessRef::open(*pid).expect("pidfd").expect("alive");
        assert_eq!(procfs::stat(*pid).expect("readable").and_then(|s| s.pgrp), Some(pgid));
        member.signal(Signal::KILL).expect("our own");
        rustix::process::waitpid(Some(*pid), rustix::process::WaitOptions::empty())
            .expect("our child by now");
    }
    rustix::process::set_child_subreaper(None).expect("permitted");
}

/// Whether a client that an owner started, suspended and left by dying lives on and runs.
fn survives_its_parents_death(own_session: bool) -> bool {
    use std::os::unix::process::CommandExt;
    let (_parent, dir) = runtime_dir();
    let mut owner = Owner::fork(&dir, &[], |mut held| {
        // Whoever adopts the client is in another session then, wherever the test runs.
        rustix::process::setsid().expect("no group leader");
        let mut command = std::process::Command::new("sleep");
        command.arg("60");
        if own_session {
            // SAFETY: only a system call between fork and exec.
            unsafe { command.pre_exec(|| rustix::process::setsid().map(|_| ()).map_err(Into::into)) };
        } else {
            command.process_group(0);
        }
        let client = Pid::from_child(&command.spawn().expect("sleep"));
        let process = ProcessRef::open(client).expect("pidfd").expect("alive");
        let session = procfs::stat(client).expect("readable").expect("alive").session;
        let slot = held.table.add(client, process.start(), Reach::Group { session }).expect("room");
        held.clients.push((process, slot, true));
        held.hold(0);
        held.tell(client);
        held.beat_for_ever(|_| {})
    });
    let client = Pid::from_raw(owner.heard() as i32).expect("a pid");
    wait_for("it to be held", || is_stopped(client));
    let process = ProcessRef::open(client).expect("pidfd").expect("alive");
    owner.kill();
    wait_for("it not to be suspended", || !is_stopped(client));
    wait_for("the table to be removed", || nr_files(&dir) == 0);
    // A hang-up is on its way by now, and takes its time on a busy machine.
    let is_alive = || process.is_alive().expect("poll");
    if own_session {
        clock::sleep(Nanos::from_millis(300));
    } else {
        wait_for("the hang-up to end it", || !is_alive());
    }
    let alive = is_alive();
    process.signal(Signal::KILL).expect("our own");
    alive
}

#[test]
fn a_client_in_a_session_of_its_own_outlives_the_owner_that_started_it() {
    assert!(survives_its_parents_death(true));
}

#[test]
fn a_client_in_the_owners_session_is_hung_up_by_the_kernel_not_left_suspended() {
    // POSIX: a process group that loses its last parent in its session while members stand gets SIGHUP and SIGCONT.
    assert!(!survives_its_parents_death(false));
}

#[test]
fn an_affinity_that_was_changed_for_a_moment_is_put_back() {
    let (_parent, dir) = runtime_dir();
    let (victims, clients) = spinners(1);
    let own = CpuMask::of_thread(clients[0].0).expect("readable").expect("alive");
    let Some(lane) = own.iter().nth(1).map(CpuMask::only) else {
        println!("SKIP: one CPU only, so every affinity is the same");
        return;
    };
    for both in [false, true] {
        let start = victims[0].start_time();
        let owner = Owner::fork(&dir, &clients, |held| {
            let (process, slot, _) = &held.clients[0];
            held.table
                .set_affinity(slot, &SavedAffinity { tid: process.pid(), start, mask: own, marked: false });
            lane.apply(process.pid()).expect("permitted");
            held.beat_for_ever(|_| {})
        });
        let mask = || CpuMask::of_thread(clients[0].0).expect("readable").expect("alive");
        wait_for("the lane", || mask() == lane);
        if both {
            rustix::process::kill_process(owner.guardian, Signal::KILL).expect("our own");
        }
        owner.kill();
        if both {
            assert!(rescue(&dir).expect("readable").is_clean());
        }
        wait_for("its own affinity", || mask() == own);
        wait_for("the table to be removed", || nr_files(&dir) == 0);
    }
}

#[test]
fn the_guardian_is_alone_deaf_and_leaves_no_trace() {
    let (_parent, dir) = runtime_dir();
    let table = Table::create(&dir, 16).expect("table");
    let guardian = Guardian::start(&table).expect("guardian");
    let pid = guardian.pid();
    let stat = || procfs::stat(pid).expect("readable").expect("there");
    wait_for("it to settle", || stat().comm.as_bytes() == b"divvy-guardian");
    assert_eq!((stat().session, stat().pgrp), (Some(pid), Some(pid)));
    assert_eq!(stat().num_threads, 1);

    // Three times /dev/null, the owner's pidfd and the runtime directory.
    let mut kept: Vec<_> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("readable")
        .map(|fd| std::fs::read_link(fd.expect("entry").path()).expect("link").display().to_string())
        .collect();
    kept.sort();
    assert_eq!(kept.iter().filter(|path| *path == "/dev/null").count(), 3, "{kept:?}");
    assert!(kept.contains(&dir.path().display().to_string()) && kept.len() == 5, "{kept:?}");
    assert_eq!(std::fs::read_link(format!("/proc/{pid}/cwd")).expect("link").as_os_str(), "/");

    for signal in
        [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::PIPE, Signal::ALARM]
    {
        rustix::process::kill_process(pid, signal).expect("our own");
    }
    let rounds = table.guardian_beats();
    wait_for("two more rounds", || table.guardian_beats() >= rounds + 2);
    assert!(guardian.is_alive().expect("poll"));
    // An owner that reaps whatever child has ended does not meet it.
    let met = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::NOHANG);
    assert_eq!(met.err(), Some(rustix::io::Errno::CHILD));

    guardian.dismiss().expect("ended");
    assert_eq!(procfs::stat(pid).expect("readable"), None, "reaped");
    drop(table);
    assert_eq!(nr_files(&dir), 0);
}

#[test]
fn a_guardian_forked_among_threads_that_allocate_works() {
    // The other threads hold the allocator's locks half of the time.
    let (_parent, dir) = runtime_dir();
    let table = Table::create(&dir, 16).expect("table");
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    std::hint::black_box(vec![0_u8; 100_000]);
                }
            });
        }
        let outcome = (0..20).try_for_each(|i| {
            let rounds = table.guardian_beats();
            let Ok(guardian) = Guardian::start(&table) else { return ControlFlow::Break(i) };
            let begun = clock::now();
            while table.guardian_beats() == rounds {
                if clock::now().since(begun) > PATIENCE {
                    return ControlFlow::Break(i);
                }
                clock::sleep(Nanos::from_millis(1));
            }
            // No panic in here: the scope would wait for the other threads for ever.
            guardian.dismiss().map_or(ControlFlow::Break(i), ControlFlow::Continue)
        });
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(outcome, ControlFlow::Continue(()), "this guardian never started, made a round or ended");
    });
}
