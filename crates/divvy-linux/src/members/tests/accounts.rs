//! Whose time is counted, by clocks and by a counter: never twice, and nobody's lost.

use super::*;

#[test]
fn a_counter_counts_whom_nobody_has_seen() {
    let script = Script::default().with(10, State::Running, 3);
    let mut stage = Stage::new(script.clone(), 8);
    let leader = (pid(10), StartTime(100));
    let members = Members::command(script.clone(), leader, &mut stage.table).unwrap();
    let mut members = members.metered(Some(()), false);
    script.0.borrow_mut().counted = Some(Nanos(2 * MS));
    // One process: its clock says as much for less, the way to its first instruction included.
    assert_eq!(members.total(&mut stage.look(false)).unwrap(), Nanos(3 * MS));
    // A child that came and went unseen, of 40 ms, and that its parent has not waited for.
    script.runs(10, 1);
    script.0.borrow_mut().counted = Some(Nanos(43 * MS));
    members.note_forked();
    assert_eq!(members.total(&mut stage.look(false)).unwrap(), Nanos(43 * MS));
    // Waited for, it is in the parent's account as well, and is not counted again.
    script.change(10, |p| p.children = 4);
    script.runs(10, 2);
    script.0.borrow_mut().counted = Some(Nanos(45 * MS));
    assert_eq!(members.total(&mut stage.look(false)).unwrap(), Nanos(45 * MS));
    // Without it the clocks go on from what was told: nothing goes back, and nothing is told twice.
    script.0.borrow_mut().counted = None;
    assert_eq!(
        members.total(&mut stage.look(false)).unwrap(),
        Nanos(46 * MS),
        "6 of its own, 40 of its children"
    );
}

#[test]
fn what_the_counter_misses_is_charged_to_less_than_a_tick() {
    // A shell that has a child compute for 8 ms, again and again; the counter misses 1 ms of each. One lives, at 6 of its 8 ms.
    let script = Script::default().with(10, State::Sleeping, 0).with(11, State::Running, 6);
    script.change(11, |p| (p.parent, p.group) = (10, 10));
    let mut stage = Stage::new(script.clone(), 8);
    let leader = (pid(10), StartTime(100));
    let mut members =
        Members::command(script.clone(), leader, &mut stage.table).unwrap().metered(Some(()), false);
    script.0.borrow_mut().counted = Some(Nanos(6 * MS));
    members.note_forked();
    members.scan(&mut stage.look(false), true, u32::MAX).unwrap();
    for ended in 1..=200 {
        stage.pass(16);
        script.change(10, |p| p.children = ended * 8 / 10);
        script.0.borrow_mut().counted = Some(Nanos((6 + ended * 7) * MS));
        let (truly, told) = ((6 + ended * 8) * MS, members.total(&mut stage.look(false)).unwrap().0);
        assert!(told <= truly, "{told} of {truly}");
        // 100 ms until it is known and as long until it is charged, and a tick.
        assert!(ended < 20 || told + 20 * MS >= truly, "{told} of {truly}");
    }
}

#[test]
fn a_parent_that_ends_after_its_child_is_charged_for_it_once() {
    // sh -c 'sha256sum big; true': the child is seen, ends and is waited for, and then the shell ends, unread since.
    let script = Script::default().with(10, State::Running, 2).with(11, State::Running, 0);
    script.change(11, |p| (p.parent, p.group) = (10, 10));
    let mut stage = Stage::new(script.clone(), 8);
    let leader = (pid(10), StartTime(100));
    let mut members = Members::command(script.clone(), leader, &mut stage.table).unwrap();
    members.scan(&mut stage.look(false), true, u32::MAX).unwrap();
    script.runs(11, 1840);
    assert_eq!(members.total(&mut stage.look(false)).unwrap(), Nanos(1842 * MS));
    script.ends(11);
    // Nobody has read the shell's account of its children yet.
    assert_eq!(members.total(&mut stage.look(false)).unwrap(), Nanos(1842 * MS));
    script.change(10, |p| (p.state, p.children) = (State::Zombie, 184));
    let look = &mut stage.look(false);
    members.close_account(pid(10), look);
    members.reap(pid(10), Nanos(1842 * MS), look.table);
    assert_eq!(members.total(&mut stage.look(false)).unwrap(), Nanos(1842 * MS), "once, not twice");
}

/// A shell whose cgroup counts for it, until one of its children leaves that. What was counted is not charged again.
#[test]
fn clocks_go_on_where_a_cgroup_has_counted() {
    let script = Script::default().with(10, State::Running, 3).with(11, State::Running, 0);
    script.change(11, |p| (p.parent, p.group) = (10, 10));
    let mut stage = Stage::new(script.clone(), 8);
    let leader = (pid(10), StartTime(100));
    let mut members = Members::command(script.clone(), leader, &mut stage.table).unwrap();
    // Half an hour of children that it has waited for, and one that lives.
    script.change(10, |p| p.children = 180_000);
    script.runs(11, 40);
    let told = Nanos(1_800_043 * MS);
    assert_eq!(members.tell(told), told);
    assert_eq!(members.tell(Nanos(7)), told, "totals do not go back");
    members.scan(&mut stage.look(false), true, u32::MAX).unwrap();
    assert_eq!(members.total(&mut stage.look(false)).unwrap(), told, "it is not for clocks to say");
    // What the child used after it had left is no more than its clock shows.
    script.runs(11, 6);
    members.count_from(&mut stage.look(false)).unwrap();
    let told = told + Nanos(6 * MS);
    assert_eq!(members.total(&mut stage.look(false)).unwrap(), told);
    script.runs(11, 5);
    script.runs(10, 2);
    assert_eq!(members.total(&mut stage.look(false)).unwrap(), told + Nanos(7 * MS));
    // The child ends and is waited for: 4 ticks of it are in its parent's account, and it is charged for once.
    script.ends(11);
    script.change(10, |p| p.children = 180_004);
    script.runs(10, 1);
    let total = members.total(&mut stage.look(false)).unwrap();
    assert!(total >= told + Nanos(7 * MS) && total <= told + Nanos(8 * MS), "{total:?}");
}
