//! Every interleaving of divvy's steps with the kernel's and a stranger's, until no new state turns up.
//!
//! A client is a process that leads a group and, once it has forked, a child in it. A step of divvy's is one system call or
//! one store to the table; between any two of them the kernel and the stranger do what they like, so that every state is
//! also one in which divvy may be killed. The rules themselves are the ones that the host uses ([`Suspension`]); in which
//! order the host carries them out is repeated here, and held against the host's code by `members/tests/random.rs`.
//!
//! What a guardian does beside a living divvy is what a stranger can do: it sends SIGCONT.

use std::collections::HashMap;

use super::{Release, Seen, Suspension};

/// A process: what the kernel has of it, what divvy knows, and what only the search knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Process {
    alive: bool,
    ended: bool,
    in_group: bool,
    stands: bool,
    /// A stop signal waits.
    waits: bool,
    /// One of its threads has taken a stop signal, and the main thread does not know yet.
    taking: bool,

    known: bool,
    suspension: Suspension,
    alone: bool,
    /// Divvy believes it in the group.
    grouped: bool,
    /// It left the group with the group's stop signal waiting, in the middle of the call by which it left: out of the
    /// reach of the group's slot until divvy looks at it.
    slipped: bool,
    slot: bool,
    slot_held: bool,

    /// A stranger's stop is the last word on it but for stops of ours.
    wanted: bool,
    /// That stop could be told from ours.
    clear: bool,
}

/// What divvy is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Idle,
    StopGroup,
    /// Hold process `.0`, and those after it below `.1`.
    Hold(u8, u8, Whom),
    LookState(u8, u8, Whom),
    Mark(u8, u8, Whom),
    Send(u8, u8, Whom),
    /// Ask whether a stop waits behind ours; the flag says that the group's members were met.
    Ask(u8, bool),
    ContinueGroup,
    Continue(u8),
    Clear(u8),
    ClearAll,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Whom {
    All,
    OutsideOfGroup,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    processes: [Process; 2],
    group_held: bool,
    at_once: bool,
    held: bool,
    step: Step,
}

/// What is changed about divvy, to see that the search finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rules {
    /// As they are.
    Ours,
    /// One that does not stand is sent another stop signal, and what waits is somebody else's all the same.
    TwiceTakenForOnce,
    /// The table says so after the signal.
    MarkedLate,
    /// The table says so before SIGCONT.
    ClearedEarly,
    /// A member that was signalled by itself goes by its group's slot.
    NoSlotOfItsOwn,
}

const LAST: u8 = 2;

impl State {
    fn start() -> Self {
        let leader =
            Process { alive: true, in_group: true, known: true, grouped: true, ..Process::default() };
        Self {
            processes: [leader, Process::default()],
            group_held: false,
            at_once: false,
            held: false,
            step: Step::Idle,
        }
    }

    fn with(mut self, i: u8, change: impl FnOnce(&mut Process)) -> Self {
        change(&mut self.processes[i as usize]);
        self
    }

    fn at(self, step: Step) -> Self {
        Self { step, ..self }
    }

    fn get(&self, i: u8) -> Process {
        self.processes[i as usize]
    }

    fn each(mut self, mut change: impl FnMut(&mut Process)) -> Self {
        self.processes.iter_mut().for_each(&mut change);
        self
    }

    /// Whether a guardian that came now would resume it.
    fn is_covered(&self, p: &Process) -> bool {
        p.in_group && self.group_held || p.slot && p.slot_held
    }

    /// What is wrong in this state.
    fn fault(&self) -> Option<&'static str> {
        for p in self.processes.iter().filter(|p| p.alive) {
            let unseen = p.slipped && (!p.known || p.grouped);
            if !(p.stands || p.waits || p.taking) || p.wanted || unseen {
                continue;
            }
            if !self.is_covered(p) {
                return Some("it is to stand by our doing alone, and is not marked");
            }
            if self.step == Step::Idle && !self.held {
                return Some("it is to stand after its release, and nobody else wants it so");
            }
        }
        None
    }
}

impl Process {
    fn stop(&mut self) {
        // A second one that finds the first still waiting is dropped.
        self.waits = true;
    }

    fn cont(&mut self) {
        (self.stands, self.waits, self.taking) = (false, false, false);
        (self.wanted, self.clear) = (false, false);
    }

    /// Our stop signal reaches it.
    fn our_stop(&mut self) {
        if self.waits || self.suspension == Suspension::Twice {
            self.clear = false;
        }
        self.stop();
    }
}

/// What the kernel and the stranger may do, whatever divvy does.
fn others(state: &State, threads: bool, to: &mut Vec<State>) {
    for i in 0..LAST {
        let p = state.get(i);
        if !p.alive {
            // A process with a signal waiting does not fork: the kernel restarts the call after the signal.
            let parent = state.get(0);
            if i == 1 && !p.ended && !(parent.stands || parent.waits || parent.taking) {
                for in_group in [true, false] {
                    to.push(state.with(i, |p| (p.alive, p.in_group) = (true, in_group)));
                }
            }
            continue;
        }
        if p.waits && !p.stands && !p.taking {
            to.push(state.with(i, |p| {
                p.waits = false;
                (p.taking, p.stands) = (threads, !threads);
            }));
        }
        if p.taking {
            to.push(state.with(i, |p| (p.taking, p.stands) = (false, true)));
        }
        if i == 1 {
            to.push(state.with(i, |p| *p = Process { ended: true, ..Process::default() }));
        }
        if i == 1 && p.in_group && !p.stands {
            to.push(state.with(i, |p| {
                // Whose stop it took with it cannot be told: divvy finds out where it is only when it looks.
                (p.in_group, p.slipped, p.clear) = (false, p.waits || p.taking, false);
            }));
        }
        to.push(state.with(i, Process::cont));
        // Between our look and our SIGCONT nothing can be told; nor where ours was undone and we do not know of it.
        let asked = match state.step {
            Step::Ask(next, _) => i < next,
            Step::ContinueGroup | Step::Continue(_) | Step::Clear(_) => true,
            _ => false,
        };
        let undone = p.suspension.is_ours() && !p.stands && !p.taking;
        let tells = p.known
            && p.grouped == p.in_group
            && !p.waits
            && !asked
            && !undone
            && p.suspension != Suspension::Twice;
        to.push(state.with(i, |p| {
            p.stop();
            (p.wanted, p.clear) = (true, p.clear || tells);
        }));
    }
}

/// Divvy's next step; `Err` where it does what it must not.
fn divvy(state: &State, rules: Rules, threads: bool, to: &mut Vec<State>) -> Result<(), &'static str> {
    let next = |i: u8, end: u8, whom: Whom| Step::Hold(i + 1, end, whom);
    match state.step {
        Step::Idle => idle(state, to),
        Step::StopGroup => {
            let sent = state.each(|p| {
                if p.alive && p.in_group {
                    p.our_stop();
                }
                if p.known && p.grouped {
                    p.suspension.sent();
                }
            });
            to.push(State { at_once: true, ..sent }.at(Step::Hold(0, LAST, Whom::OutsideOfGroup)));
        }
        Step::Hold(i, end, _) if i >= end => to.push(state.at(Step::Idle)),
        Step::Hold(i, end, whom) => {
            let p = state.get(i);
            if !p.known || !p.alive || (whom == Whom::OutsideOfGroup && p.grouped) {
                to.push(state.at(next(i, end, whom)));
            } else if p.suspension == Suspension::Free {
                to.push(state.at(Step::Mark(i, end, whom)));
            } else {
                // The signals that wait, and the state before them in the same file.
                if p.stands {
                    hold(state, i, end, whom, Seen::Stands, to);
                } else if rules == Rules::TwiceTakenForOnce {
                    to.push(state.at(Step::Mark(i, end, whom)));
                } else if p.waits {
                    hold(state, i, end, whom, Seen::OnItsWay, to);
                } else {
                    to.push(state.at(Step::LookState(i, end, whom)));
                }
                hold(state, i, end, whom, Seen::Unknown, to);
            }
        }
        Step::LookState(i, end, whom) => {
            let seen = match state.get(i) {
                p if p.stands => Seen::Stands,
                _ if threads => Seen::Unclear,
                _ => Seen::Runs,
            };
            hold(state, i, end, whom, seen, to);
        }
        Step::Mark(i, end, whom) => {
            let marked = match i {
                0 => State { group_held: rules != Rules::MarkedLate, ..*state },
                _ => state.with(i, |p| {
                    p.slot = rules != Rules::NoSlotOfItsOwn || !p.grouped;
                    p.slot_held = rules != Rules::MarkedLate;
                }),
            };
            to.push(marked.at(Step::Send(i, end, whom)));
        }
        Step::Send(i, end, whom) => {
            let sent = state.with(i, |p| {
                p.suspension.sent();
                if rules == Rules::TwiceTakenForOnce {
                    p.suspension = Suspension::Once;
                }
                if p.alive {
                    p.our_stop();
                }
                (p.alone, p.slot_held) = (true, p.slot_held || p.slot);
            });
            to.push(State { group_held: sent.group_held || i == 0, ..sent }.at(next(i, end, whom)));
        }
        Step::Ask(..) | Step::ContinueGroup | Step::Continue(_) | Step::Clear(_) | Step::ClearAll => {
            return release(state, rules, to);
        }
    }
    Ok(())
}

/// The steps of a release.
fn release(state: &State, rules: Rules, to: &mut Vec<State>) -> Result<(), &'static str> {
    match state.step {
        Step::Ask(i, met) if i >= LAST => asked(state, met, to),
        Step::Ask(i, met) => ask(state, i, met, to),
        Step::ContinueGroup => {
            if state.processes.iter().any(|p| p.alive && p.in_group && p.wanted && p.clear) {
                return Err("a stranger's stop is undone with the group's");
            }
            let sent = state.each(|p| {
                if p.alive && p.in_group {
                    p.cont();
                }
                if p.known && p.grouped && !p.alone {
                    p.suspension.resumed();
                }
            });
            to.push(State { at_once: false, ..sent }.at(Step::Continue(0)));
        }
        Step::Continue(i) if i >= LAST => to.push(state.at(Step::ClearAll)),
        Step::Continue(i) => {
            let p = state.get(i);
            if !p.known || !p.suspension.is_ours() {
                to.push(state.at(Step::Continue(i + 1)));
                return Ok(());
            }
            if p.wanted && p.clear {
                return Err("a stranger's stop is undone");
            }
            let early = match i {
                0 if rules == Rules::ClearedEarly => State { group_held: false, ..*state },
                _ => state.with(i, |p| p.slot_held &= rules != Rules::ClearedEarly),
            };
            if early != *state {
                to.push(early);
                return Ok(());
            }
            to.push(
                state
                    .with(i, |p| {
                        if p.alive {
                            p.cont();
                        }
                        p.suspension.resumed();
                        p.alone = false;
                    })
                    .at(Step::Clear(i)),
            );
        }
        Step::Clear(i) => to.push(state.with(i, |p| p.slot_held = false).at(Step::Continue(i + 1))),
        _ => {
            let cleared = state.each(|p| p.slot_held = false);
            to.push(State { group_held: false, held: false, ..cleared }.at(Step::Idle));
        }
    }
    Ok(())
}

/// What divvy may begin: to hold (anew), to release, to look who there is.
fn idle(state: &State, to: &mut Vec<State>) {
    let marked = State { group_held: true, held: true, ..*state }
        .each(|p| p.slot_held |= p.slot && p.known && !p.suspension.is_elsewhere());
    to.push(marked.at(Step::Hold(0, LAST, Whom::All)));
    if !state.held && !state.processes.iter().any(|p| p.known && p.suspension.is_elsewhere()) {
        to.push(marked.at(Step::StopGroup));
    }
    // It is released for good measure where it is not held, too.
    to.push(state.at(Step::Ask(0, false)));
    let child = state.get(1);
    if child.alive && !child.known {
        let met = meet(state);
        to.push(if state.held { met.at(Step::Hold(1, LAST, Whom::All)) } else { met });
    }
    for i in (0..LAST).filter(|&i| state.get(i).known && state.get(i).alive) {
        let p = state.get(i);
        let left = p.grouped && !p.in_group;
        let looked = state.with(i, |p| {
            (p.grouped, p.slot) = (p.in_group, p.slot || left);
            if left {
                left_group(p, state.held);
            } else if !state.held {
                p.suspension.see_released(p.stands);
                p.clear |= p.wanted && p.suspension.is_elsewhere();
            }
        });
        to.push(if left && state.held { looked.at(Step::Hold(i, i + 1, Whom::All)) } else { looked });
    }
}

/// Somebody is found to have left the group, or to be outside of it: the group's stop signal may have been on its way.
fn left_group(p: &mut Process, held: bool) {
    if held {
        p.suspension.doubt();
        p.clear = false;
    } else {
        p.cont();
        p.suspension.resumed();
    }
    p.slot_held |= p.slot && p.suspension.is_ours();
}

/// The child becomes known.
fn meet(state: &State) -> State {
    state.with(1, |p| {
        if !p.known && p.alive {
            (p.known, p.grouped) = (true, p.in_group);
            p.slot = !p.grouped;
            if !p.grouped {
                left_group(p, state.held || state.at_once);
            } else if state.at_once {
                p.suspension.sent();
            }
        }
    })
}

/// What follows from a look at a member that is to be held.
fn hold(state: &State, i: u8, end: u8, whom: Whom, seen: Seen, to: &mut Vec<State>) {
    let mut sends = false;
    let mut looked = state.with(i, |p| {
        sends = p.suspension.hold(|| seen);
        p.slot_held |= p.slot && p.suspension.is_ours();
    });
    // Where it was not seen whether ours was undone, a stranger's stop cannot be told from it.
    if seen == Seen::Unclear && looked.get(i).suspension.is_ours() {
        looked = looked.with(i, |p| p.clear = false);
    }
    let step = if sends { Step::Mark(i, end, whom) } else { Step::Hold(i + 1, end, whom) };
    to.push(looked.at(step));
}

/// Whether a member that is to be released is somebody else's.
fn ask(state: &State, i: u8, met: bool, to: &mut Vec<State>) {
    let p = state.get(i);
    let step = Step::Ask(i + 1, met);
    if !p.known {
        to.push(state.at(step));
        return;
    }
    let (mut asked, mut what) = (false, Release::Nothing);
    let seen = state.with(i, |p| {
        let waits = p.stands && p.waits;
        what = p.suspension.release(|| {
            asked = true;
            waits
        });
        p.slot_held &= what != Release::LeaveToOthers;
        // Before it stands, nothing can be told.
        p.clear &= !asked || p.stands;
    });
    to.push(seen.at(step));
    if asked {
        // It cannot be looked at, or there are many and it is not its turn.
        to.push(state.with(i, |p| p.clear = false).at(step));
    }
}

/// All were asked: who is resumed how.
fn asked(state: &State, met: bool, to: &mut Vec<State>) {
    let stays = |p: &Process| p.known && p.grouped && p.suspension.is_elsewhere();
    if !state.at_once || met {
        to.push(State { at_once: false, ..*state }.at(Step::Continue(0)));
    } else if state.processes.iter().any(stays) {
        let child = state.get(1);
        let unknown = child.alive && child.in_group && !child.known;
        to.push(if unknown { meet(state) } else { *state }.at(Step::Ask(0, true)));
        // Where the group cannot be looked through, nobody is spared.
        to.push(state.each(|p| p.clear = false).at(Step::ContinueGroup));
    } else {
        to.push(state.at(Step::ContinueGroup));
    }
}

/// All states that can be reached, or how one is reached that must not be.
fn search(rules: Rules, threads: bool) -> Result<usize, (&'static str, Vec<State>)> {
    let mut from: HashMap<State, State> = HashMap::new();
    let start = State::start();
    from.insert(start, start);
    let way = |from: &HashMap<State, State>, mut state: State| {
        let mut way = vec![state];
        while from[&state] != state {
            state = from[&state];
            way.push(state);
        }
        way.reverse();
        way
    };
    let (mut now, mut to) = (vec![start], Vec::new());
    while !now.is_empty() {
        let mut later = Vec::new();
        for state in now {
            to.clear();
            others(&state, threads, &mut to);
            divvy(&state, rules, threads, &mut to).map_err(|fault| (fault, way(&from, state)))?;
            for &next in &to {
                if let std::collections::hash_map::Entry::Vacant(entry) = from.entry(next) {
                    entry.insert(state);
                    if let Some(fault) = next.fault() {
                        return Err((fault, way(&from, next)));
                    }
                    later.push(next);
                }
            }
        }
        now = later;
    }
    Ok(from.len())
}

#[track_caller]
fn check_holds(threads: bool, states_min: usize) {
    match search(Rules::Ours, threads) {
        Ok(states) => {
            println!("{states} states");
            assert!(states > states_min, "{states}");
        }
        Err((fault, way)) => {
            let way: Vec<String> = way.iter().map(|state| format!("{state:?}")).collect();
            panic!("{fault}:\n{}", way.join("\n"));
        }
    }
}

#[test]
fn processes_of_one_thread_are_never_left_behind() {
    check_holds(false, 10_000);
}

#[test]
fn processes_of_several_threads_are_never_left_behind() {
    check_holds(true, 10_000);
}

/// The search can fail: each of these was once so, or is a slip that is easily made.
#[test]
fn what_is_wrong_is_found() {
    for (rules, threads) in [
        (Rules::TwiceTakenForOnce, false),
        (Rules::TwiceTakenForOnce, true),
        (Rules::MarkedLate, false),
        (Rules::ClearedEarly, false),
        (Rules::NoSlotOfItsOwn, false),
    ] {
        let (fault, way) = search(rules, threads).expect_err("found");
        println!("{rules:?}: {fault}, after {} steps", way.len() - 1);
        assert!(fault.contains("not marked"), "{rules:?}: {fault}");
    }
}
