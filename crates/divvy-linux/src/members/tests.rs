//! Members on a machine that the test scripts: what vanishes, recycles, refuses and stops at the wrong moment.

mod accounts;
mod random;
mod stranger;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use rustix::io::Errno;

use super::*;
use crate::guard::RuntimeDir;
use crate::owner::Users;
use crate::world::script::{Process, Script, pid};
use crate::{Error, Signal};

const MS: u64 = 1_000_000;

/// Every process of a script began later.
const BORN: Option<StartTime> = Some(StartTime(0));

/// A script, a table, and the time.
struct Stage {
    script: Script,
    table: Table,
    tally: Tally,
    now: Instant,
    _dir: tempfile::TempDir,
}

impl Stage {
    fn new(script: Script, capacity: u32) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let runtime = RuntimeDir::open_or_create(&dir.path().join("run")).expect("a runtime directory");
        let table = Table::create(&runtime, capacity).expect("a table");
        Self { script, table, tally: Tally::default(), now: Instant(5_000 * MS), _dir: dir }
    }

    fn look(&mut self, held: bool) -> Look<'_> {
        Look { table: &mut self.table, tally: &mut self.tally, now: self.now, held, frozen: false }
    }

    /// An attached client of `pids`, released.
    fn attached(&mut self, children: Children, pids: &[i32]) -> Members<Script> {
        let mut members = Members::attached(self.script.clone(), children);
        for &n in pids {
            members.admit(pid(n), None, &mut self.look(false)).expect("scripted").expect("there");
        }
        members
    }

    fn total(&mut self, members: &mut Members<Script>) -> u64 {
        members.total(&mut self.look(false)).expect("scripted").0 / MS
    }

    fn pass(&mut self, ms: u64) {
        self.now = self.now + Nanos(ms * MS);
    }
}

fn held(members: &Members<Script>) -> Vec<i32> {
    let mut held: Vec<i32> = members.known().filter(|k| k.held).map(|k| k.pid.as_raw_pid()).collect();
    held.sort_unstable();
    held
}

#[test]
fn what_was_used_before_is_not_charged_and_what_came_after_is() {
    let script = Script::default().with(10, State::Running, 500).with(11, State::Sleeping, 70);
    let mut stage = Stage::new(script, 8);
    let mut members = stage.attached(Children::Counted, &[10, 11]);
    assert_eq!(stage.total(&mut members), 0);
    stage.script.runs(10, 30);
    stage.script.runs(11, 5);
    assert_eq!(stage.total(&mut members), 35);
    // Born in the client: its whole time is the client's.
    let script = stage.script.clone().with(12, State::Running, 9);
    members.admit(pid(12), BORN, &mut stage.look(false)).unwrap();
    assert_eq!(stage.total(&mut members), 44);
    // A clock that goes back is a stranger's; the total does not.
    script.change(10, |p| p.cpu = Nanos(3 * MS));
    assert_eq!(stage.total(&mut members), 44);
    assert_eq!(members.len(), 2);
}

#[test]
fn a_members_end_is_charged_once_whoever_waits_for_it() {
    let script = Script::default().with(10, State::Running, 1000).with(11, State::Running, 200);
    script.change(11, |p| p.parent = 10);
    let mut stage = Stage::new(script, 8);
    let mut members = stage.attached(Children::Counted, &[10, 11]);
    stage.script.runs(11, 60);
    assert_eq!(stage.total(&mut members), 60);
    // It ends as a zombie after 20 ms more; its parent waits, which shows its whole 280 ms as its children's time.
    stage.script.runs(11, 20);
    stage.script.change(11, |p| p.state = State::Zombie);
    members.end(pid(11), &mut stage.look(false));
    let ended = members.take_ended();
    assert_eq!(ended, [Ended { pid: pid(11), parent: Some(pid(10)), time: Nanos(280 * MS) }]);
    members.expect(pid(10), ended[0].time);
    stage.script.ends(11);
    stage.script.change(10, |p| p.children = 28);
    members.account_children(&mut stage.look(false), 1).unwrap();
    assert_eq!(stage.total(&mut members), 80);
    // A short-lived child that nobody saw: 50 ms, and 1 ms to wait for it. Before that shows in its parent's clock, its
    // state is not read again.
    stage.script.change(10, |p| p.children = 33);
    stage.script.0.borrow_mut().stats = 0;
    members.account_children(&mut stage.look(false), 0).unwrap();
    assert_eq!((stage.total(&mut members), stage.script.0.borrow().stats), (80, 0));
    stage.script.runs(10, 1);
    stage.total(&mut members);
    members.account_children(&mut stage.look(false), 0).unwrap();
    assert_eq!((stage.total(&mut members), stage.script.0.borrow().stats), (131, 1));
    // By now it is known to make children: what they used comes with the next total.
    stage.script.change(10, |p| p.children = 36);
    stage.script.runs(10, 1);
    assert_eq!(stage.total(&mut members), 162);
}

#[test]
fn children_that_are_not_chosen_are_not_charged() {
    let mut stage = Stage::new(Script::default().with(10, State::Running, 0), 8);
    let mut members = stage.attached(Children::NotOurs, &[10]);
    stage.script.change(10, |p| p.children = 100);
    stage.script.runs(10, 7);
    members.review(&mut stage.look(false)).unwrap();
    assert_eq!(stage.total(&mut members), 7);
}

#[test]
fn a_member_that_goes_to_another_client_is_charged_there_from_then_on() {
    let mut stage = Stage::new(Script::default().with(10, State::Running, 40), 8);
    let mut first = stage.attached(Children::Counted, &[10]);
    stage.script.runs(10, 11);
    first.suspend(&mut stage.look(true)).unwrap();
    assert_eq!(stage.script.sent(), [(10, Signal::STOP)]);
    assert!(first.take(pid(10), &mut stage.look(true)).unwrap());
    assert_eq!(stage.script.sent(), [(10, Signal::CONT)], "whoever gets it decides about it");
    assert_eq!((stage.table.nr_held(), first.len()), (0, 0));
    let mut second = stage.attached(Children::Counted, &[10]);
    stage.script.runs(10, 5);
    assert_eq!((stage.total(&mut first), stage.total(&mut second)), (11, 5));
    assert!(!first.take(pid(10), &mut stage.look(true)).unwrap(), "it is no member any more");
}

#[test]
fn who_cannot_be_read_is_let_go_all_the_same() {
    for why in [Errno::MFILE, Errno::SRCH, Errno::PERM] {
        // Room for as many as there are members: a slot that is not given back is missed below.
        let mut stage = Stage::new(four(), 4);
        let mut members = stage.attached(Children::Counted, &[10, 11, 12, 13]);
        for n in 10..14 {
            stage.script.runs(n, 10);
        }
        stage.total(&mut members);
        members.suspend(&mut stage.look(true)).unwrap();
        assert_eq!((held(&members), stage.table.nr_held()), (vec![10, 11, 12, 13], 4));
        stage.script.sent();
        for n in 10..13 {
            stage.script.change(n, |p| p.unreadable = Some(why));
        }
        // One goes to another client, one is said to have ended, and one is hidden from us by now.
        assert!(members.take(pid(10), &mut stage.look(true)).unwrap(), "{why}");
        members.end(pid(11), &mut stage.look(true));
        assert_eq!(stage.script.sent(), [(10, Signal::CONT), (11, Signal::CONT)], "{why}");
        assert_eq!((held(&members), stage.table.nr_held()), (vec![12, 13], 2));
        assert!(members.total(&mut stage.look(true)).is_err());
        assert_eq!(members.last_total(), Nanos(40 * MS), "charged as it was last read");
        stage.script.change(12, |p| p.unreadable = None);
        // A number that is another's: nobody is signalled, and the slot is free all the same.
        stage.script.change(12, |p| (p.start, p.cpu) = (999, Nanos::ZERO));
        stage.total(&mut members);
        assert_eq!((stage.script.sent(), stage.table.nr_held()), (vec![], 1));
        for n in 20..23 {
            let script = stage.script.clone().with(n, State::Running, 0);
            members.admit(pid(n), BORN, &mut stage.look(true)).unwrap().expect("there");
            assert_eq!(script.state(n), State::Stopped);
        }
        assert_eq!((held(&members), stage.table.nr_held()), (vec![13, 20, 21, 22], 4));
    }
}

#[test]
fn who_cannot_be_resumed_stays_on_record_when_it_is_let_go() {
    let mut stage = Stage::new(four(), 4);
    let mut members = stage.attached(Children::Counted, &[10, 11]);
    for n in [10, 11] {
        stage.script.runs(n, 10);
    }
    stage.total(&mut members);
    members.suspend(&mut stage.look(true)).unwrap();
    for n in [10, 11] {
        stage.script.change(n, |p| p.refuses = true);
    }
    assert!(matches!(members.take(pid(10), &mut stage.look(true)), Err(Error::Permission { .. })));
    members.end(pid(11), &mut stage.look(true));
    assert_eq!((members.len(), stage.table.nr_held()), (0, 2), "the guardian and the rescue try again");
}

#[test]
fn only_members_that_use_cpu_are_stopped() {
    let mut script = Script::default().with(10, State::Running, 0);
    for n in 11..60 {
        script = script.with(n, State::Sleeping, 300);
    }
    let mut stage = Stage::new(script, 64);
    let all: Vec<i32> = (10..60).collect();
    let mut members = stage.attached(Children::Counted, &all);
    assert_eq!(members.nr_idle(), 49);
    stage.script.runs(10, 10);
    stage.total(&mut members);
    stage.script.sent();
    stage.script.0.borrow_mut().stats = 0;
    members.suspend(&mut stage.look(true)).unwrap();
    assert_eq!(stage.script.sent(), [(10, Signal::STOP)]);
    assert_eq!(stage.script.0.borrow().stats, 0, "nobody's state was read");
    assert_eq!(stage.table.nr_held(), 1);
    // One wakes while the others are held: a few looks in turn find it, and it is held like them.
    stage.script.runs(40, 2);
    for _ in 0..49_usize.div_ceil(IDLE_LOOKS) {
        members.total(&mut stage.look(true)).unwrap();
    }
    assert_eq!(stage.script.sent(), [(40, Signal::STOP)]);
    assert_eq!(held(&members), [10, 40]);
    members.resume(&mut stage.look(false)).unwrap();
    let mut sent = stage.script.sent();
    sent.sort_by_key(|(n, _)| *n);
    assert_eq!(sent, [(10, Signal::CONT), (40, Signal::CONT)]);
    assert_eq!(stage.table.nr_held(), 0);
    // It sleeps for more than a second: it is left alone again.
    stage.script.change(40, |p| p.state = State::Sleeping);
    stage.pass(IDLE_AFTER.0 / MS + 1);
    stage.script.runs(10, 10);
    stage.total(&mut members);
    members.suspend(&mut stage.look(true)).unwrap();
    assert_eq!(stage.script.sent(), [(10, Signal::STOP)]);
    assert_eq!(members.nr_idle(), 49);
    assert_eq!(members.total(&mut stage.look(true)).unwrap(), Nanos(22 * MS), "idle or not, all is charged");
}

#[test]
fn however_often_somebody_asks_no_more_idle_members_are_looked_at_than_may_be() {
    let mut script = Script::default().with(10, State::Running, 0);
    for n in 11..111 {
        script = script.with(n, State::Sleeping, 300);
    }
    let mut stage = Stage::new(script, 128);
    let all: Vec<i32> = (10..111).collect();
    let mut members = stage.attached(Children::Counted, &all);
    stage.tally = Tally { idle_looks_left: 40, ..Tally::default() };
    for _ in 0..10 {
        stage.total(&mut members);
    }
    // The one that is active at each call, and 40 of the others.
    assert_eq!((stage.tally.reads, stage.tally.idle_looks_left), (10 + 40, 0));
    // They had their turn; once more are allowed, the next have theirs.
    stage.script.runs(100, 7);
    assert_eq!(stage.total(&mut members), 0);
    stage.tally.idle_looks_left = 60;
    for _ in 0..4 {
        stage.total(&mut members);
    }
    assert_eq!((stage.total(&mut members), members.nr_idle()), (7, 99));
}

#[test]
fn who_may_not_be_signalled_counts_and_the_rest_goes_on() {
    let script =
        Script::default().with(10, State::Running, 0).with(11, State::Running, 0).with(12, State::Running, 0);
    script.change(11, |p| p.refuses = true);
    let mut stage = Stage::new(script, 8);
    let mut members = stage.attached(Children::Counted, &[10, 11, 12]);
    assert_eq!(members.nr_not_permitted(), 1);
    for n in 10..13 {
        stage.script.runs(n, 10);
    }
    assert_eq!(stage.total(&mut members), 30);
    // One runs a setuid program between the look and the signal.
    stage.script.change(12, |p| p.refuses = true);
    members.suspend(&mut stage.look(true)).unwrap();
    assert_eq!((held(&members), members.nr_not_permitted(), stage.table.nr_held()), (vec![10], 2, 1));
    members.resume(&mut stage.look(false)).unwrap();
    // And is itself again later.
    stage.script.change(12, |p| p.refuses = false);
    members.review(&mut stage.look(false)).unwrap();
    assert_eq!(members.nr_not_permitted(), 1);
    members.suspend(&mut stage.look(true)).unwrap();
    assert_eq!(held(&members), [10, 12]);
}

#[test]
fn a_command_that_nobody_may_signal_is_told_of() {
    let script = Script::default().with(10, State::Running, 0);
    let mut stage = Stage::new(script.clone(), 8);
    let mut members = Members::command(script.clone(), (pid(10), StartTime(100)), &mut stage.table).unwrap();
    script.change(10, |p| p.refuses = true);
    assert!(matches!(members.suspend(&mut stage.look(true)), Err(Error::Permission { .. })));
}

#[test]
fn who_vanishes_in_the_middle_is_nobody() {
    let script =
        Script::default().with(10, State::Running, 0).with(11, State::Running, 0).with(12, State::Running, 0);
    let mut stage = Stage::new(script, 8);
    let mut members = stage.attached(Children::Counted, &[10, 11, 12]);
    for n in 10..13 {
        stage.script.runs(n, 10);
    }
    stage.total(&mut members);
    // Between the look and the signal one ends, and another's number goes to a stranger.
    stage.script.ends(10);
    stage.script.change(11, |p| p.start = 999);
    members.suspend(&mut stage.look(true)).unwrap();
    assert_eq!(stage.script.sent(), [(12, Signal::STOP)], "the stranger was not touched");
    assert_eq!(stage.script.state(11), State::Running);
    let scan = members.scan(&mut stage.look(false), false, 8).unwrap();
    assert_eq!((scan.suspended, members.len()), (1, 1));
    assert_eq!(stage.total(&mut members), 30);
    let mut ended: Vec<i32> = members.take_ended().iter().map(|e| e.pid.as_raw_pid()).collect();
    ended.sort_unstable();
    assert_eq!(ended, [10, 11]);
    assert_eq!(stage.table.nr_held(), 1, "the slots of the others are free");
    stage.script.ends(12);
    members.end(pid(12), &mut stage.look(false));
    assert!(members.is_empty() && stage.table.nr_held() == 0);
    assert!(members.admit(pid(12), None, &mut stage.look(false)).unwrap().is_none(), "it was too late");
}

#[test]
fn without_room_in_the_table_nobody_is_held_unseen() {
    let script = Script::default().with(10, State::Running, 0).with(11, State::Running, 0);
    let mut stage = Stage::new(script, 1);
    let mut members = stage.attached(Children::Counted, &[10, 11]);
    for n in [10, 11] {
        stage.script.runs(n, 10);
    }
    stage.total(&mut members);
    members.suspend(&mut stage.look(true)).unwrap();
    assert_eq!((held(&members).len(), stage.table.nr_held()), (1, 1));
}

#[test]
fn a_newcomer_of_a_held_client_is_held_at_once() {
    let mut stage = Stage::new(Script::default().with(10, State::Running, 0), 8);
    let mut members = Members::attached(stage.script.clone(), Children::Counted);
    members.admit(pid(10), BORN, &mut stage.look(true)).unwrap();
    assert_eq!((stage.script.sent(), stage.table.nr_held()), (vec![(10, Signal::STOP)], 1));
}

#[test]
fn a_commands_idle_children_are_left_alone_but_not_its_leader() {
    let script = Script::default().with(10, State::Sleeping, 0).with(11, State::Running, 0).with(
        12,
        State::Sleeping,
        0,
    );
    for n in [11, 12] {
        script.change(n, |p| (p.parent, p.group) = (10, 10));
    }
    let mut stage = Stage::new(script.clone(), 8);
    let mut members = Members::command(script.clone(), (pid(10), StartTime(100)), &mut stage.table).unwrap();
    members.scan(&mut stage.look(false), true, 8).unwrap();
    assert_eq!(members.len(), 3);
    // All are stopped at once, as a group, as long as nobody is known to be idle.
    members.suspend(&mut stage.look(true)).unwrap();
    assert_eq!(stage.script.sent().len(), 3);
    members.resume(&mut stage.look(false)).unwrap();
    for n in [10, 12] {
        stage.script.change(n, |p| p.state = State::Sleeping);
    }
    stage.script.sent();
    stage.pass(2000);
    stage.script.runs(11, 10);
    stage.total(&mut members);
    members.suspend(&mut stage.look(true)).unwrap();
    let mut sent = stage.script.sent();
    sent.sort_by_key(|(n, _)| *n);
    assert_eq!(sent, [(10, Signal::STOP), (11, Signal::STOP)]);
    // 11 may leave the group whenever it runs: it is signalled by itself, so it has a slot of its own.
    assert_eq!((members.nr_idle(), stage.table.nr_held()), (1, 2));
    members.resume(&mut stage.look(false)).unwrap();
    let mut sent = stage.script.sent();
    sent.sort_by_key(|(n, _)| *n);
    assert_eq!(sent, [(10, Signal::CONT), (11, Signal::CONT)]);
}

/// A command of 10, with 11 in its group, and 12 and 13 in sessions of their own.
fn scattered_command(script: &Script, stage: &mut Stage) -> Members<Script> {
    for n in 11..=13 {
        script.change(n, |p| p.parent = 10);
    }
    script.change(11, |p| p.group = 10);
    let mut members = Members::command(script.clone(), (pid(10), StartTime(100)), &mut stage.table).unwrap();
    members.scan(&mut stage.look(false), true, 8).unwrap();
    assert_eq!(members.len(), 4);
    members
}

fn four() -> Script {
    (10..=13).fold(Script::default(), |script, n| script.with(n, State::Running, 0))
}

#[test]
fn one_member_of_another_user_keeps_no_other_from_being_stopped_resumed_or_ended() {
    // Whoever it is: the leader, one in its group, one outside of it.
    for refuses in [10, 11, 12] {
        let script = four();
        let mut stage = Stage::new(script.clone(), 8);
        let mut members = scattered_command(&script, &mut stage);
        script.change(refuses, |p| p.refuses = true);
        let rest: Vec<i32> = (10..=13).filter(|&n| n != refuses).collect();
        let standing = || (10..=13).filter(|&n| script.state(n) == State::Stopped).collect::<Vec<_>>();
        for _ in 0..2 {
            members.suspend(&mut stage.look(true)).unwrap();
            assert_eq!(standing(), rest, "held, {refuses} refuses");
            members.suspend_the_others(&mut stage.look(true)).unwrap();
            members.resume(&mut stage.look(false)).unwrap();
            assert_eq!((standing(), stage.table.nr_held()), (vec![], 0), "released, {refuses} refuses");
        }
        assert_eq!(members.nr_not_permitted(), 1);
        for signal in [Signal::TERM, Signal::KILL] {
            script.sent();
            members.signal(signal, &mut stage.look(false)).unwrap();
            let mut sent = script.sent();
            sent.sort_by_key(|(n, _)| *n);
            assert_eq!(sent, rest.iter().map(|&n| (n, signal)).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_group_that_refuses_as_a_whole_leaves_its_members_elsewhere_to_be_resumed() {
    let script = four();
    let mut stage = Stage::new(script.clone(), 8);
    let mut members = scattered_command(&script, &mut stage);
    members.suspend(&mut stage.look(true)).unwrap();
    assert_eq!(held(&members), [10, 11, 12, 13]);
    // Both of the group may not be signalled any more: they stand, and stay on record; the others go on.
    for n in [10, 11] {
        script.change(n, |p| p.refuses = true);
    }
    assert!(matches!(members.resume(&mut stage.look(false)), Err(Error::Permission { .. })));
    assert_eq!((script.state(12), script.state(13)), (State::Running, State::Running));
    assert!(stage.table.nr_held() > 0, "the guardian and the rescue try again");
    for n in [10, 11] {
        script.change(n, |p| p.refuses = false);
    }
    members.resume(&mut stage.look(false)).unwrap();
    assert_eq!((held(&members), stage.table.nr_held()), (vec![], 0));
}

#[test]
fn a_newcomer_that_refuses_gives_its_slot_back_at_its_end() {
    let script = Script::default().with(10, State::Running, 0);
    let mut stage = Stage::new(script.clone(), 2);
    let mut members = Members::command(script.clone(), (pid(10), StartTime(100)), &mut stage.table).unwrap();
    // One slot is left. Were it lost at the first refusal, the last of these would never be held.
    for n in 20..30 {
        script.clone().with(n, State::Running, 0);
        script.change(n, |p| (p.parent, p.refuses) = (10, n < 29));
        members.scan(&mut stage.look(true), true, 8).unwrap();
        assert_eq!(script.state(n) == State::Stopped, n == 29);
        script.ends(n);
        members.total(&mut stage.look(true)).unwrap();
    }
    assert_eq!(members.len(), 1);
}

#[test]
fn a_newcomer_that_cannot_be_had_is_told_of_once_and_the_rest_goes_on() {
    let script = four();
    for n in 11..=13 {
        script.change(n, |p| (p.parent, p.unopenable) = (10, n == 12));
    }
    // The command's own slot, and one more: 11 gets it, and 13 goes without.
    let mut stage = Stage::new(script.clone(), 2);
    let mut members = Members::command(script.clone(), (pid(10), StartTime(100)), &mut stage.table).unwrap();
    assert!(members.take_unheld().is_none());
    for _ in 0..2 {
        members.scan(&mut stage.look(false), true, 8).unwrap();
    }
    assert_eq!((members.len(), stage.tally.unheld), (3, 1));
    let told = members.take_unheld().expect("told").to_string();
    assert!(told.contains("process 12") && told.contains("ulimit -n"), "{told}");
    members.scan(&mut stage.look(false), true, 8).unwrap();
    assert!(members.take_unheld().is_none() && stage.tally.unheld == 1);
    members.suspend(&mut stage.look(true)).unwrap();
    assert_eq!(held(&members), [10, 11]);
    members.resume(&mut stage.look(false)).unwrap();
    assert_eq!(stage.table.nr_held(), 0);
}

#[test]
fn what_is_not_the_owners_is_neither_held_nor_charged() {
    let script = Script::default().with(10, State::Running, 100).with(11, State::Running, 50);
    script.change(11, |p| (p.users, p.parent) = (Users { real: 1000, effective: 0, saved: 0 }, 10));
    let mut stage = Stage::new(script, 8);
    let mut members = Members::attached(stage.script.clone(), Children::Counted).owned_by(Some(1000));
    for n in [10, 11] {
        members
            .admit(pid(n), if n == 11 { BORN } else { None }, &mut stage.look(false))
            .unwrap()
            .expect("there");
    }
    assert_eq!((members.len(), members.nr_not_permitted()), (2, 1));
    stage.script.runs(10, 7);
    stage.script.runs(11, 900);
    assert_eq!(stage.total(&mut members), 7);
    members.suspend(&mut stage.look(true)).unwrap();
    assert_eq!(held(&members), [10]);
    assert_eq!(stage.script.sent(), [(10, Signal::STOP)]);
    members.resume(&mut stage.look(false)).unwrap();
    assert_eq!(stage.script.sent(), [(10, Signal::CONT)]);
    // At its end nothing of it is charged to the parent that waits for it either.
    stage.script.change(11, |p| p.state = State::Zombie);
    members.end(pid(11), &mut stage.look(false));
    let [ended] = members.take_ended()[..] else { panic!("one has ended") };
    members.expect(pid(10), ended.time);
    stage.script.ends(11);
    stage.script.change(10, |p| p.children = 95);
    members.account_children(&mut stage.look(false), 1).unwrap();
    assert_eq!(stage.total(&mut members), 7);
}

#[test]
fn who_becomes_somebody_else_is_let_go_at_the_next_hold_and_taken_back_at_a_review() {
    let script = Script::default().with(10, State::Running, 0).with(11, State::Running, 0);
    let mut stage = Stage::new(script, 8);
    let mut members = Members::attached(stage.script.clone(), Children::Counted).owned_by(Some(1000));
    for n in [10, 11] {
        members.admit(pid(n), None, &mut stage.look(false)).unwrap().expect("there");
    }
    // It executes a set-uid program after the last look.
    stage.script.change(11, |p| p.users.effective = 0);
    members.suspend(&mut stage.look(true)).unwrap();
    assert_eq!((held(&members), members.nr_not_permitted()), (vec![10], 1));
    assert_eq!(stage.script.sent(), [(10, Signal::STOP)], "no signal reaches it");
    stage.script.runs(11, 300);
    members.resume(&mut stage.look(false)).unwrap();
    assert_eq!(stage.total(&mut members), 0);
    assert_eq!(stage.table.nr_held(), 0);
    stage.script.change(11, |p| p.users = Users::all(1000));
    members.review(&mut stage.look(false)).unwrap();
    stage.script.runs(11, 3);
    assert_eq!((stage.total(&mut members), members.nr_not_permitted()), (3, 0));
    stage.script.sent();
    members.suspend(&mut stage.look(true)).unwrap();
    assert_eq!(held(&members), [10, 11]);
    // One that somebody resumed and that became another's while we held it stays free.
    stage.script.change(11, |p| (p.state, p.users) = (State::Running, Users::all(0)));
    members.suspend_the_others(&mut stage.look(true)).unwrap();
    assert_eq!(held(&members), [10]);
    members.resume(&mut stage.look(false)).unwrap();
    assert_eq!(stage.table.nr_held(), 0);
}

/// Where several CPUs are divided, of a process of several threads one takes the stop that runs on another CPU than ours, and it alone is
/// sent one; else the kernel chooses.
#[test]
fn a_stop_goes_to_one_thread_that_takes_it_at_once() {
    for (several, elsewhere, stopped) in [
        (true, &[22][..], 22),
        (true, &[21, 22], 21),
        (true, &[], 10),
        (true, &[77], 10),
        (false, &[21, 22], 10),
    ] {
        let script = Script::default().with(10, State::Running, 0);
        script.0.borrow_mut().elsewhere.extend(elsewhere);
        let mut stage = Stage::new(script, 10);
        let mut members = stage.attached(Children::Counted, &[10]).on_several_cpus(several);
        let m = &mut members.active[0];
        m.threads = 3;
        for n in [10, 21, 22] {
            let line = format!("{n} (x) R 1 7 7 0 -1 64 0 0 0 0 1 2 3 4 20 0 3 0 100 1 2");
            m.busy.see(m.pid, &crate::procfs::Stat::parse(line.as_bytes()).expect("a line"));
        }
        members.suspend(&mut stage.look(true)).expect("scripted");
        members.resume(&mut stage.look(false)).expect("scripted");
        let sent = stage.script.sent();
        assert_eq!(sent, [(stopped, Signal::STOP), (10, Signal::CONT)], "{several} {elsewhere:?}");
        assert_eq!(members.active[0].stopped_by, None);
    }
}
