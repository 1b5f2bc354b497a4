//! Whose process is whose, as the kernel tells it ([`Lineage`]): commands' descendants without a scan.
//!
//! What was told is sorted to the clients at once and taken in when somebody asks about one: a process that came and went in
//! between costs nothing but its two records.

use std::collections::{HashMap, VecDeque};

use divvy_policy::{ClientId, Instant, Nanos};

use super::{Client, LinuxHost};
use crate::members::Look;
use crate::perf::{Lineage, Relation};
use crate::procfs::State;
use crate::{Pid, Result, clock, procfs};

/// Whoever ends tells so before it is through, and its parent hears of it when it is: so long after that, at most, it is
/// thought to be on the way,
const DYING_MAX: Nanos = Nanos::from_millis(100);
/// and no more than so many of a client, the youngest.
const DYING_KEPT: usize = 8;

/// A living process below us.
#[derive(Clone, Copy, Debug)]
struct Descendant {
    client: ClientId,
    threads: u32,
}

/// Everybody that commands have made and that lives.
#[derive(Debug, Default)]
pub(crate) struct Descent {
    /// `None` where the kernel does not tell.
    lineage: Option<Lineage>,
    alive: HashMap<Pid, Descendant>,
    /// Told before what they follow from was, for that was told by another CPU: they are tried once more.
    early: Vec<(u64, Relation)>,
    /// Something was not told: every command has to be scanned.
    pub(super) overruns: u64,
}

/// What was told of one client and not taken in yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kin {
    born: Vec<Pid>,
    departed: Vec<Pid>,
    /// Somebody was born, be it that nobody is left to be taken in.
    forked: bool,
    dying: Dying,
    /// Living processes.
    alive: u32,
    /// Overruns up to which its processes have been scanned for.
    scanned: u64,
    /// Something was not told of it at some time: who has ended unheard is thought to live.
    patchy: bool,
}

/// Processes that were told to have ended, of which some still want the CPU for their last steps: the parent sleeps until
/// then, and nobody else of the client may be awake.
#[derive(Clone, Debug, Default)]
struct Dying(VecDeque<(Pid, Instant)>);

impl Dying {
    fn note(&mut self, pid: Pid, at: Instant) {
        if self.0.len() == DYING_KEPT {
            self.0.pop_front();
        }
        self.0.push_back((pid, at));
    }

    /// Whether one of them is still to end; `state` tells what becomes of it.
    fn any(&mut self, now: Instant, state: impl Fn(Pid) -> Option<State>) -> bool {
        self.0.retain(|&(pid, at)| {
            now.since(at) < DYING_MAX && state(pid).is_some_and(|state| !state.is_ended())
        });
        !self.0.is_empty()
    }
}

impl Descent {
    pub(super) fn open() -> Self {
        Self { lineage: Lineage::open().ok(), ..Self::default() }
    }

    /// Whether the kernel tells.
    pub(super) fn is_told(&self) -> bool {
        self.lineage.is_some()
    }
}

impl LinuxHost {
    /// Whether all members of command `i` are told by the kernel, so that none has to be looked for.
    pub(super) fn is_told(&self, i: usize) -> bool {
        let c = &self.clients[i];
        c.is_counted()
            || self.descent.is_told() && c.selector.is_none() && c.kin.scanned == self.descent.overruns
    }

    /// Whether that holds for every command.
    pub(super) fn all_are_told(&self) -> bool {
        let told = |c: &Client| self.descent.is_told() && c.kin.scanned == self.descent.overruns;
        let mut commands = self.clients.iter().filter(|c| c.selector.is_none() && !c.is_gone());
        (self.descent.is_told() || self.counted) && commands.all(|c| c.is_counted() || told(c))
    }

    /// `leader` was made by us for `client`.
    pub(super) fn found_client(&mut self, leader: Pid, client: ClientId) {
        if self.descent.is_told() {
            self.descent.alive.insert(leader, Descendant { client, threads: 1 });
            let kin = &mut self.clients[client.index()].kin;
            (kin.alive, kin.scanned) = (1, self.descent.overruns);
            self.clients[client.index()].lanes.heirs.are_told();
        }
    }

    /// Sorts what the kernel has told since the last time to the clients.
    pub(super) fn follow(&mut self) {
        let Some(lineage) = &mut self.descent.lineage else { return };
        let told = lineage.take();
        if told.is_empty() {
            return;
        }
        let again = std::mem::take(&mut self.descent.early).into_iter().map(|(at, what)| (at, what, true));
        let mut all: Vec<_> = again.chain(told.into_iter().map(|(at, what)| (at, what, false))).collect();
        all.sort_by_key(|&(at, ..)| at);
        for (at, relation, again) in all {
            // Whoever was early twice is not below a command of ours: the guardian, say.
            if !self.relate(relation, Instant(at)) && !again {
                self.descent.early.push((at, relation));
            }
        }
    }

    /// Takes one fact in, of time `at`; says whether it is known whom it is about.
    fn relate(&mut self, relation: Relation, at: Instant) -> bool {
        let alive = &mut self.descent.alive;
        match relation {
            Relation::Fork { parent, maker, child } => {
                let Some(&Descendant { client, .. }) = alive.get(&parent) else {
                    return alive.contains_key(&child); // A leader: it is known without.
                };
                alive.insert(child, Descendant { client, threads: 1 });
                // Whoever is not divided any more may have processes that live on.
                let Some(c) = self.clients.get_mut(client.index()) else { return true };
                let kin = &mut c.kin;
                kin.born.push(child);
                kin.forked = true;
                kin.alive += 1;
                c.lanes.heirs.free_made(maker, child, at);
            }
            Relation::Thread { of, maker, tid } => {
                let Some(process) = alive.get_mut(&of) else { return false };
                process.threads += 1;
                if let Some(c) = self.clients.get_mut(process.client.index()) {
                    c.lanes.heirs.free_made(maker, tid, at);
                }
            }
            Relation::Exit(of) => {
                let Some(process) = alive.get_mut(&of) else { return false };
                process.threads = process.threads.saturating_sub(1);
                if process.threads == 0 {
                    let client = process.client;
                    alive.remove(&of);
                    let Some(c) = self.clients.get_mut(client.index()) else { return true };
                    let kin = &mut c.kin;
                    kin.alive = kin.alive.saturating_sub(1);
                    kin.dying.note(of, at);
                    match kin.born.iter().position(|&born| born == of) {
                        Some(unseen) => drop(kin.born.swap_remove(unseen)),
                        None => kin.departed.push(of),
                    }
                }
            }
            Relation::Lost => {
                // What ended unheard would be thought to live for good.
                alive.clear();
                self.descent.overruns += 1;
                self.clients.iter_mut().for_each(|c| c.lanes.heirs.are_lost());
            }
        }
        true
    }

    /// Takes in what was told of command `i`: its new processes are members, held if it is, and those that have ended are
    /// none any more.
    ///
    /// # Errors
    /// As [`Members::add`](crate::members::Members::add).
    pub(super) fn catch_up(&mut self, i: usize) -> Result<()> {
        if self.clients[i].is_counted() {
            return self.list_members(i);
        }
        self.follow();
        let c = &mut self.clients[i];
        let kin = &mut c.kin;
        if !std::mem::take(&mut kin.forked) && kin.departed.is_empty() {
            return Ok(());
        }
        let (born, departed) = (std::mem::take(&mut kin.born), std::mem::take(&mut kin.departed));
        let look = &mut Look::new(&mut self.table, &mut self.tally, clock::now(), c.standing());
        c.members.note_forked();
        for pid in departed {
            c.members.end(pid, look);
        }
        let mut done = Ok(());
        for pid in born {
            // One that cannot be held is a member all the same, and so are those after it.
            done = c.members.add(pid, look).and(done);
        }
        done
    }

    /// Whether a process of client `i` that was told to have ended is not through with it.
    pub(super) fn is_one_dying(&mut self, i: usize, now: Instant) -> bool {
        let state = |pid| procfs::stat(pid).ok().flatten().map(|stat| stat.state);
        self.clients[i].kin.dying.any(now, state)
    }

    /// Whether no process of command `i` is left, as far as the kernel has told; `None` where it does not tell.
    pub(super) fn none_left(&mut self, i: usize) -> Option<bool> {
        let c = &self.clients[i];
        if c.is_counted() {
            return c.leaf.as_ref().and_then(|leaf| leaf.is_populated()).map(|somebody| !somebody);
        }
        self.follow();
        let told = self.is_told(i) && !self.clients[i].kin.patchy;
        told.then(|| self.clients[i].kin.alive == 0)
    }

    /// Command `i` was scanned for new members: from here on what the kernel tells of them is whole again.
    pub(super) fn told_anew(&mut self, i: usize) {
        if !self.descent.is_told() || self.is_told(i) || self.clients[i].selector.is_some() {
            return;
        }
        let client = ClientId(i as u32);
        for (pid, threads) in self.clients[i].members.pids_and_threads() {
            self.descent.alive.insert(pid, Descendant { client, threads });
        }
        let alive = self.clients[i].members.len() as u32;
        let kin = &mut self.clients[i].kin;
        (kin.patchy, kin.scanned, kin.alive) = (true, self.descent.overruns, alive);
        self.clients[i].lanes.heirs.are_told();
    }

    /// The client of a process below us that is known to live.
    pub(super) fn descends_from(&self, pid: Pid) -> Option<ClientId> {
        if self.counted {
            return self.counted_with(pid);
        }
        let client = self.descent.alive.get(&pid)?.client;
        self.clients.get(client.index()).is_some_and(|c| !c.is_gone()).then_some(client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_was_told_to_have_ended_is_awake_until_it_has() {
        let pid = |n| Pid::from_raw(n).expect("positive");
        let at = |ms| Instant::ZERO + Nanos::from_millis(ms);
        let mut dying = Dying::default();
        for n in 1..=20 {
            dying.note(pid(n), at(n as u64));
        }
        // The youngest is on its last steps, the others have ended or been waited for.
        let state = |of: Pid| match of.as_raw_nonzero().get() {
            20 => Some(State::Running),
            19 => Some(State::Zombie),
            _ => None,
        };
        assert!(dying.any(at(21), state));
        assert_eq!(dying.0.len(), 1);
        assert!(!dying.any(at(22), |_| Some(State::Zombie)));
        assert!(!dying.any(at(22), |_| Some(State::Running)), "it is forgotten");
        // A number that somebody else has by now is none of ours.
        dying.note(pid(21), at(30));
        assert!(!dying.any(at(200), |_| Some(State::Running)));
    }
}
