//! Stop signals of divvy's and of somebody else's that meet in one process.

use super::*;

impl Script {
    /// Somebody else stops `n`.
    fn stranger_stops(&self, n: i32) {
        self.change(n, |p| match p.state {
            State::Stopped => p.pending_stop = true,
            _ if p.slow => p.pending_stop = true,
            _ => p.state = State::Stopped,
        });
    }

    /// Somebody else resumes `n`.
    fn stranger_resumes(&self, n: i32) {
        self.change(n, |p| (p.state, p.pending_stop) = (State::Running, false));
    }

    /// `n` comes to take the stop signal that waits.
    fn takes(&self, n: i32) {
        self.change(n, |p| {
            if std::mem::take(&mut p.pending_stop) {
                p.state = State::Stopped;
            }
        });
    }

    fn standing(&self) -> Vec<i32> {
        let machine = self.0.borrow();
        machine.processes.iter().filter(|(_, p)| p.state == State::Stopped).map(|(&n, _)| n).collect()
    }
}

/// A command whose leader is `first`, with all up to `last` in its group.
fn command(stage: &mut Stage, first: i32, last: i32) -> Members<Script> {
    for n in first..=last {
        stage.script.change(n, |p| p.group = first);
        if n > first {
            stage.script.change(n, |p| p.parent = first);
        }
    }
    let leader = (pid(first), StartTime(100));
    let mut members = Members::command(stage.script.clone(), leader, &mut stage.table).unwrap();
    members.scan(&mut stage.look(false), true, 8).unwrap();
    assert_eq!(members.len() as i32, last - first + 1);
    members
}

#[test]
fn whoever_somebody_else_has_stopped_is_not_resumed() {
    let script = Script::default().with(10, State::Running, 0).with(11, State::Stopped, 0);
    let mut stage = Stage::new(script, 8);
    let mut members = stage.attached(Children::Counted, &[10, 11]);
    stage.script.runs(10, 10);
    stage.total(&mut members);
    members.suspend(&mut stage.look(true)).unwrap();
    assert_eq!(held(&members), [10]);
    // The other is stopped by somebody else while it is ours: that signal waits behind ours.
    stage.script.change(10, |p| p.pending_stop = true);
    stage.script.sent();
    members.resume(&mut stage.look(false)).unwrap();
    assert_eq!(stage.script.sent(), []);
    assert_eq!(stage.table.nr_held(), 0);
    // Whoever stopped them resumes them: they are ours to hold again.
    for n in [10, 11] {
        stage.script.change(n, |p| (p.state, p.pending_stop) = (State::Running, false));
        stage.script.runs(n, 5);
    }
    let scan = members.scan(&mut stage.look(false), false, 8).unwrap();
    assert_eq!(scan.running, 2);
    members.suspend(&mut stage.look(true)).unwrap();
    assert_eq!(held(&members), [10, 11]);
}

#[test]
fn one_that_somebody_resumed_is_held_again_and_nobody_else_is_signalled() {
    let script = Script::default().with(10, State::Running, 0).with(11, State::Running, 0);
    let mut stage = Stage::new(script, 8);
    let mut members = stage.attached(Children::Counted, &[10, 11]);
    for n in [10, 11] {
        stage.script.runs(n, 10);
    }
    stage.total(&mut members);
    members.suspend(&mut stage.look(true)).unwrap();
    assert!(members.all_suspended(&mut stage.look(true)));
    stage.script.change(11, |p| p.state = State::Running);
    assert!(!members.all_suspended(&mut stage.look(true)));
    stage.script.sent();
    members.suspend_the_others(&mut stage.look(true)).unwrap();
    assert_eq!(stage.script.sent(), [(11, Signal::STOP)]);
}

/// A shell that sleeps looks as if it ran until it comes to take its stop: that is no reason to send another, and another
/// is no reason to take it for somebody else's.
#[test]
fn a_member_that_is_slow_to_stop_is_not_sent_two_and_not_given_away() {
    let mut stage = Stage::new(Script::default().with(10, State::Running, 0), 8);
    let mut members = command(&mut stage, 10, 10);
    stage.script.change(10, |p| p.slow = true);
    members.suspend(&mut stage.look(true)).unwrap();
    for _ in 0..3 {
        assert!(!members.all_suspended(&mut stage.look(true)));
        members.suspend_the_others(&mut stage.look(true)).unwrap();
    }
    assert_eq!(stage.script.sent(), [(10, Signal::STOP)]);
    stage.script.takes(10);
    assert_eq!((stage.table.nr_held(), held(&members)), (1, vec![10]));
    members.resume(&mut stage.look(true)).unwrap();
    assert_eq!((stage.script.state(10), stage.table.nr_held()), (State::Running, 0));
    assert!(!members.are_elsewhere());
}

/// Slurm stops a task's processes one by one; so does `kill -STOP`.
#[test]
fn whichever_member_somebody_else_stops_is_left_to_them_and_all_others_are_resumed() {
    for (kind, stranger) in [true, false].into_iter().flat_map(|k| (10..26).map(move |n| (k, n))) {
        for while_held in [true, false] {
            let script = (10..26).fold(Script::default(), |script, n| script.with(n, State::Running, 0));
            let mut stage = Stage::new(script.clone(), 32);
            let mut members = match kind {
                true => command(&mut stage, 10, 25),
                false => stage.attached(Children::Counted, &(10..26).collect::<Vec<_>>()),
            };
            // All of them have run since they were last released.
            (10..26).for_each(|n| script.runs(n, 1));
            stage.total(&mut members);
            for round in 0..3 {
                if round == 0 && !while_held {
                    script.stranger_stops(stranger);
                }
                members.suspend(&mut stage.look(true)).unwrap();
                assert_eq!(script.standing().len(), 16);
                if round == 0 && while_held {
                    script.stranger_stops(stranger);
                }
                members.resume(&mut stage.look(true)).unwrap();
                assert_eq!((script.standing(), stage.table.nr_held()), (vec![stranger], 0), "round {round}");
            }
            // It is ours again once they let it go, also if they do so while we hold the rest.
            members.suspend(&mut stage.look(true)).unwrap();
            assert!(members.all_suspended(&mut stage.look(true)));
            script.stranger_resumes(stranger);
            assert!(!members.all_suspended(&mut stage.look(true)), "somebody is to be held again");
            members.suspend_the_others(&mut stage.look(true)).unwrap();
            assert_eq!(held(&members).len(), 16);
            members.resume(&mut stage.look(true)).unwrap();
            assert_eq!((script.standing(), stage.table.nr_held()), (vec![], 0));
        }
    }
}

/// Of forty, sixteen are looked at each time; who stops one of them stops most likely all.
#[test]
fn of_many_some_are_looked_at_in_turn_and_all_once_one_was_stopped() {
    let all: Vec<i32> = (10..50).collect();
    let script = all.iter().fold(Script::default(), |script, &n| script.with(n, State::Running, 0));
    let mut stage = Stage::new(script.clone(), 64);
    let mut members = stage.attached(Children::Counted, &all);
    for turn in 0..3 {
        all.iter().for_each(|&n| script.runs(n, 1));
        stage.total(&mut members);
        members.suspend(&mut stage.look(true)).unwrap();
        if turn == 2 {
            all.iter().for_each(|&n| script.stranger_stops(n));
        }
        let before = stage.tally.reads;
        members.resume(&mut stage.look(true)).unwrap();
        let looks = stage.tally.reads - before;
        assert_eq!((looks, script.standing().len()), if turn == 2 { (40, 40) } else { (16, 0) });
    }
    assert!(members.are_elsewhere());
    assert_eq!(stage.table.nr_held(), 0);
}

/// A member that leaves its group is out of the reach of the group's slot, and of the group's SIGCONT.
#[test]
fn who_leaves_the_group_unseen_is_found_by_its_own_slot_and_resumed() {
    let script = Script::default().with(10, State::Running, 0).with(11, State::Running, 0);
    let mut stage = Stage::new(script.clone(), 8);
    let mut members = command(&mut stage, 10, 11);
    members.suspend(&mut stage.look(true)).unwrap();
    // Somebody else resumes it, it goes away, and is held anew before anybody has looked at its group.
    script.stranger_resumes(11);
    script.change(11, |p| p.group = 11);
    members.suspend_the_others(&mut stage.look(true)).unwrap();
    assert_eq!((script.standing(), stage.table.nr_held()), (vec![10, 11], 2));
    members.resume(&mut stage.look(true)).unwrap();
    assert_eq!((script.standing(), stage.table.nr_held()), (vec![], 0));
}

#[test]
fn a_member_of_a_group_that_a_full_table_has_no_room_for_goes_free_and_is_told_of() {
    let script = four();
    script.change(11, |p| (p.parent, p.group) = (10, 10));
    let mut stage = Stage::new(script.clone(), 1);
    let mut members = Members::command(script.clone(), (pid(10), StartTime(100)), &mut stage.table).unwrap();
    members.scan(&mut stage.look(false), true, 8).unwrap();
    members.suspend(&mut stage.look(true)).unwrap();
    assert_eq!((held(&members), script.state(11)), (vec![10], State::Running));
    assert!(matches!(members.take_unheld(), Some(Error::TableFull { capacity: 1, .. })));
}

#[test]
fn a_child_made_on_the_way_to_a_stop_is_held_at_the_next_look() {
    let script = four();
    let mut stage = Stage::new(script.clone(), 8);
    let mut members = Members::command(script.clone(), (pid(10), StartTime(100)), &mut stage.table).unwrap();
    members.suspend(&mut stage.look(true)).unwrap();
    // It went to a session of its own, and has a child itself.
    script.change(11, |p| p.parent = 10);
    script.change(12, |p| p.parent = 11);
    members.scan(&mut stage.look(true), true, 8).unwrap();
    assert_eq!((held(&members), stage.table.nr_held()), (vec![10, 11, 12], 3));
    assert_eq!((script.state(12), script.state(13)), (State::Stopped, State::Running));
}

/// `su -c CMD`, `runuser`: they see their child stopped, stop themselves, and wait for whoever resumes them.
#[test]
fn a_wrapper_that_mirrors_our_stop_is_resumed_and_one_that_mirrors_a_strangers_is_not() {
    let wrapped = |script: &Script, stage: &mut Stage| {
        script.change(11, |p| p.group = 11);
        command(stage, 10, 11)
    };
    let script = Script::default().with(10, State::Running, 0).with(11, State::Running, 0);
    // While it is held: our stop waits behind its own.
    let mut stage = Stage::new(script.clone(), 8);
    let mut members = wrapped(&script, &mut stage);
    script.change(10, |p| (p.state, p.stopped_itself) = (State::Stopped, true));
    members.suspend(&mut stage.look(true)).unwrap();
    members.resume(&mut stage.look(true)).unwrap();
    assert_eq!((script.standing(), stage.table.nr_held()), (vec![], 0));
    // After its release.
    script.change(10, |p| (p.state, p.stopped_itself) = (State::Stopped, true));
    members.scan(&mut stage.look(false), true, 8).unwrap();
    assert_eq!(script.standing(), Vec::<i32>::new());
    // A stranger's stop of the wrapper, which finds it waiting for its child.
    for of_child in [false, true] {
        members.suspend(&mut stage.look(true)).unwrap();
        script.change(10, |p| p.stopped_itself = of_child);
        script.stranger_stops(if of_child { 11 } else { 10 });
        if of_child {
            script.stranger_stops(10);
        }
        members.resume(&mut stage.look(true)).unwrap();
        members.scan(&mut stage.look(false), true, 8).unwrap();
        assert_eq!(script.standing(), if of_child { vec![10, 11] } else { vec![10] });
        script.stranger_resumes(10);
        script.stranger_resumes(11);
    }
}

/// Root's `runuser`, whose child is another user's client.
#[test]
fn a_wrapper_outside_an_attached_client_is_resumed_too() {
    let script = Script::default().with(10, State::Sleeping, 0).with(11, State::Running, 0);
    script.change(11, |p| p.parent = 10);
    let mut stage = Stage::new(script.clone(), 8);
    let mut members = stage.attached(Children::NotOurs, &[11]);
    let mirrors = |itself| script.change(10, |p| (p.state, p.stopped_itself) = (State::Stopped, itself));
    let turn = |members: &mut Members<Script>, stage: &mut Stage| {
        stage.pass(200);
        members.suspend(&mut stage.look(true)).unwrap();
        members.resume(&mut stage.look(false)).unwrap();
    };
    // One that has done so before its child was ever held has not done so for us.
    mirrors(true);
    members.resume(&mut stage.look(false)).unwrap();
    assert_eq!(script.standing(), [10]);
    script.stranger_resumes(10);
    turn(&mut members, &mut stage);
    mirrors(true);
    turn(&mut members, &mut stage);
    assert_eq!(script.standing(), Vec::<i32>::new());
    // A stranger's stop of the wrapper, and of both.
    for both in [false, true] {
        mirrors(both);
        if both {
            script.stranger_stops(11);
        }
        turn(&mut members, &mut stage);
        assert_eq!(script.standing(), if both { vec![10, 11] } else { vec![10] });
        script.stranger_resumes(10);
        script.stranger_resumes(11);
        turn(&mut members, &mut stage);
    }
    // Its child has ended.
    members.suspend(&mut stage.look(true)).unwrap();
    mirrors(true);
    members.resume(&mut stage.look(false)).unwrap();
    assert_eq!(script.standing(), [10], "not yet looked at again");
    script.ends(11);
    stage.total(&mut members);
    members.scan(&mut stage.look(false), false, 8).unwrap();
    assert!(members.is_empty());
    assert_eq!(script.standing(), Vec::<i32>::new());
}
