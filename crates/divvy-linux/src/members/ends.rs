//! Members that end, that are waited for, and that go to another client.

use divvy_policy::Nanos;

use super::{Ended, Kind, LOST_MAX, Look, Member, Members};
use crate::guard::Table;
use crate::world::World;
use crate::{Pid, Result};

impl<W: World> Members<W> {
    /// Undoes what we did to somebody who is no member any more, be it readable or not: it is resumed if we have suspended
    /// it, and its slot is free. One that cannot be resumed stays in the table, for the guardian and the rescue.
    fn withdraw(&self, m: &mut Member<W::Process>, look: &mut Look<'_>) -> Result<()> {
        self.resume_one(m, look)?;
        if let Some(slot) = m.slot.take() {
            look.table.remove(slot);
        }
        Ok(())
    }

    /// A member has gone, and it was not us who waited for it.
    pub(super) fn vanish(&mut self, mut gone: Member<W::Process>, look: &mut Look<'_>) {
        // It may only be hidden from us. Who cannot be resumed stays in the table; there is nothing else to do about it.
        let _ = self.withdraw(&mut gone, look);
        let used = gone.used();
        let mut time = Nanos::ZERO;
        match self.kind {
            Kind::Command { .. } => {
                self.vanished += used;
                self.lost.push((gone.pid, used));
                if self.lost.len() > LOST_MAX {
                    self.lost.remove(0);
                }
                self.has_forked = true; // It was somebody's child.
            }
            Kind::Attached { .. } => {
                self.settled += used;
                time = gone.clock + gone.children;
                self.resume_wrapper_of(&gone, look);
            }
        }
        self.ended.push(Ended { pid: gone.pid, parent: gone.parent, time });
    }

    /// One of ours has ended and is about to be waited for: while it can be read, what its children used is charged to it
    /// and not to those that nobody has waited for yet, for it will be in what waiting for it tells.
    pub fn close_account(&mut self, pid: Pid, look: &mut Look<'_>) {
        if self.meter.is_some() {
            return;
        }
        // Its children that have been waited for are found to be gone first, for what they used is in its account by now.
        let _ = self.read_clocks(look);
        let Some(i) = self.active.iter().position(|m| m.pid == pid) else { return };
        look.tally.reads += 1;
        if let Ok(Some(stat)) = self.world.stat(pid)
            && stat.start == self.active[i].start
        {
            self.book_children(i, &stat);
        }
    }

    /// We have waited for `pid`, a member or one too short-lived to be known; `usage` is its own time and that of
    /// children that it waited for.
    pub fn reap(&mut self, pid: Pid, usage: Nanos, table: &mut Table) {
        self.settled += usage;
        let of = |members: &[Member<W::Process>]| members.iter().position(|m| m.pid == pid);
        let gone = match (of(&self.active), of(&self.idle)) {
            (Some(i), _) => self.active.swap_remove(i),
            (None, Some(i)) => self.take_idle(i),
            (None, None) => {
                if let Some(i) = self.lost.iter().position(|&(lost, _)| lost == pid) {
                    let (_, used) = self.lost.swap_remove(i);
                    self.vanished = self.vanished.saturating_sub(used);
                }
                self.has_forked |= Some(pid) != self.leader();
                return;
            }
        };
        if let Some(slot) = gone.slot {
            table.remove(slot);
        }
        self.ended.push(Ended { pid, parent: None, time: Nanos::ZERO });
    }

    /// Lets a member go, resumed if it was held: it belongs to nobody, or to another client, from now on. What it used
    /// so far stays charged. Whether it was one.
    ///
    /// # Errors
    /// As [`World::signal`]: it could not be resumed, and stays in the table.
    pub fn take(&mut self, pid: Pid, look: &mut Look<'_>) -> Result<bool> {
        let of = |members: &[Member<W::Process>]| members.iter().position(|m| m.pid == pid);
        let mut m = match (of(&self.active), of(&self.idle)) {
            (Some(i), _) => self.active.swap_remove(i),
            (None, Some(i)) => self.take_idle(i),
            (None, None) => return Ok(false),
        };
        // What cannot be read is charged as it was last read.
        if let Ok(Some(clock)) = self.world.cpu(pid) {
            m.see(clock, look.now);
        }
        self.settled += m.used();
        self.withdraw(&mut m, look).map(|()| true)
    }

    /// The pidfd of `pid` says that it has ended, be it waited for or not: its clock is read for the last time, if it can be.
    pub fn end(&mut self, pid: Pid, look: &mut Look<'_>) {
        let of = |members: &[Member<W::Process>]| members.iter().position(|m| m.pid == pid);
        let mut gone = match (of(&self.active), of(&self.idle)) {
            (Some(i), _) => self.active.swap_remove(i),
            (None, Some(i)) => self.take_idle(i),
            (None, None) => return,
        };
        look.tally.reads += 1;
        // As long as it is a zombie its clock and its children's time can be read, and its pid is its own.
        let stat = self.world.stat(pid).ok().flatten();
        if let Some(stat) = stat.filter(|s| s.start == gone.start) {
            if let Ok(Some(clock)) = self.world.cpu(pid) {
                gone.see(clock, look.now);
            }
            gone.parent = stat.ppid;
            self.active.push(gone);
            let last = self.active.len() - 1;
            self.book_children(last, &stat);
            gone = self.active.swap_remove(last);
        }
        self.vanish(gone, look);
    }

    /// Whether `pid` is a member that has not ended.
    pub fn lives(&self, pid: Pid) -> bool {
        let member = self.active.iter().chain(&self.idle).find(|m| m.pid == pid);
        let state = member.and_then(|m| self.world.state(&m.process).ok().flatten());
        state.is_some_and(|stat| !stat.state.is_ended())
    }

    /// A member has made a process that has ended before anybody saw it.
    pub fn note_forked(&mut self) {
        self.has_forked = true;
    }

    /// The parent of somebody who has ended, and whose `time` was charged, will show it as its children's.
    pub fn expect(&mut self, parent: Pid, time: Nanos) {
        if let Some(m) = self.active.iter_mut().chain(&mut self.idle).find(|m| m.pid == parent) {
            m.expected += time;
            m.forks = true;
        }
    }

    /// Notes that `parent` has made a member.
    pub fn note_parent(&mut self, parent: Pid) {
        self.expect(parent, Nanos::ZERO);
    }
}
