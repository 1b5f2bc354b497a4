//! Wrappers outside a client: `runuser` and `su` of another user, say, whose child is a member. They stop themselves when
//! they see their child stopped, and nobody but us knows that the child goes on.

use std::collections::HashSet;

use divvy_policy::{Instant, Nanos};

use super::{Kind, Look, Member, Members};
use crate::procfs::StartTime;
use crate::world::World;
use crate::{Pid, Signal};

/// Between two looks at them. They only wait for their child: it does not matter to anybody that one stands for so long.
const LOOK_EVERY: Nanos = Nanos::from_millis(100);
/// For so long after a member was last seen with such a parent that one is looked at: the member may have ended since.
const KNOWN_FOR: Nanos = Nanos::from_secs(5);
/// Of so many at a time.
const KNOWN_MAX: usize = 64;

/// The parent of a member that is no member itself.
#[derive(Clone, Copy, Debug)]
struct Outside {
    pid: Pid,
    start: StartTime,
    until: Instant,
}

/// What is known of a client's.
#[derive(Debug, Default)]
pub(super) struct Wrappers {
    known: Vec<Outside>,
    again: Instant,
}

impl<W: World> Members<W> {
    /// As [`resume_wrappers`](Self::resume_wrappers), if it is time.
    pub(super) fn resume_wrappers_now_and_then(&mut self, look: &mut Look<'_>) {
        if look.now >= self.wrappers.again {
            self.resume_wrappers(look);
        }
    }

    /// Resumes those parents of an attached client's members that have stopped themselves for a child that stood by our
    /// doing, and may be signalled. The client is released: a wrapper that goes on resumes its child.
    pub fn resume_wrappers(&mut self, look: &mut Look<'_>) {
        if matches!(self.kind, Kind::Command { .. }) {
            return;
        }
        self.wrappers.again = look.now + LOOK_EVERY;
        self.wrappers.known.retain(|known| look.now < known.until);
        self.meet_wrappers(look);
        self.resume_known_wrappers(look);
    }

    /// Those that are known as such are resumed, whoever is a member by now.
    pub fn resume_known_wrappers(&mut self, look: &mut Look<'_>) {
        for known in self.wrappers.known.clone() {
            self.resume_wrapper(known, look);
        }
    }

    /// A member has ended: its wrapper has to wait for it, and nobody would look at it any more where it was the last.
    pub(super) fn resume_wrapper_of(&mut self, ended: &Member<W::Process>, look: &mut Look<'_>) {
        let known = self.wrappers.known.iter().find(|known| Some(known.pid) == ended.parent);
        if let Some(&known) = known {
            self.resume_wrapper(known, look);
        }
    }

    fn resume_wrapper(&self, known: Outside, look: &mut Look<'_>) {
        look.tally.reads += 1;
        let stat = self.world.stat(known.pid).ok().flatten().filter(|stat| stat.start == known.start);
        if stat.is_none_or(|stat| !stat.state.is_suspended()) || !self.has_mirrored(known.pid, look) {
            return;
        }
        let Ok(Some((process, _))) = self.world.meet(known.pid) else { return };
        if W::identity(&process).1 == known.start {
            look.tally.signals += 1;
            // Where we may not, it stands until somebody resumes it who may.
            let _ = self.world.signal(&process, Signal::CONT);
        }
    }

    /// Notes the parents of members that we have held: each once, however many children it has.
    pub fn meet_wrappers(&mut self, look: &mut Look<'_>) {
        let until = look.now + KNOWN_FOR;
        let held = self.active.iter().filter(|m| m.was_held);
        let parents: HashSet<Pid> = held.filter_map(|m| m.parent).filter(|&pid| pid != Pid::INIT).collect();
        for pid in parents {
            let known = &mut self.wrappers.known;
            if let Some(known) = known.iter_mut().find(|known| known.pid == pid) {
                known.until = until;
                continue;
            }
            if known.len() == KNOWN_MAX || self.pids().any(|(member, _)| member == pid) {
                continue;
            }
            look.tally.reads += 1;
            if let Ok(Some(stat)) = self.world.stat(pid) {
                self.wrappers.known.push(Outside { pid, start: stat.start, until });
            }
        }
    }
}
