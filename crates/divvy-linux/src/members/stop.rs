//! Suspending and resuming a client's members, and telling our own suspensions from somebody else's.
//!
//! What to send to whom, and whose doing a suspension is, [`Suspension`](super::Suspension) says; here it is
//! done. The table says so before the first stop signal is sent, and until the last process was resumed. Members are
//! suspended one by one, a command's too: a child that is being forked when its group is stopped may be born standing
//! after the group was resumed. How far apart the signals are is measured ([`Skew`]); a child that was made meanwhile is
//! found by the next look at the client.
//!
//! Who is to be held has a slot in the table of its own: a member may leave its group at any moment, and the group's slot
//! would not reach it any more. Only a leader is found by that, wherever it goes.
//!
//! A member that may not be signalled (it runs as another user by now) is left out: it counts, it is charged (unless the
//! client has an owner, who is not charged for what others run), and the rest goes on.

use divvy_policy::Nanos;

use super::suspension::{Release, Seen};
use super::{IDLE_AFTER, Kind, Look, Member, Members, Skew};
use crate::world::World;
use crate::{Delivery, Error, GroupDelivery, Pid, Result, Signal, clock};

/// A client of so few members is looked at more closely: the state of each that did not use its turn is read.
const FEW: usize = 4;
/// In a client of more members nobody is noted for a child that ended while its parent stood.
const FAMILY_MAX: usize = 16;
/// For so many turns after a child was held its parent may stop itself for that: it may itself be held between seeing that and
/// doing so.
const MIRROR_TURNS: u64 = 16;
/// In a larger client, a member that used CPU this lately is suspended without a look at its state.
const SURELY_ACTIVE: Nanos = Nanos::from_millis(200);
/// Of a client with more members than this, so many are asked at each release whether somebody else has stopped them,
/// in turn; all of them once one was. (About 5 us each.)
const OTHERS_LOOKS: usize = 16;

impl<W: World> Members<W> {
    /// Suspends all members that are not idle; the table says so before the first signal is sent.
    ///
    /// # Errors
    /// As [`World::signal`]; [`Error::Permission`] where not one member of a command may be signalled.
    pub fn suspend(&mut self, look: &mut Look<'_>) -> Result<Delivery> {
        self.leave_out(look)?;
        let begun = clock::now();
        let delivery = self.suspend_each(look)?;
        let last = clock::now().since(begun);
        self.skew = Skew { last, max: self.skew.max.max(last) };
        Ok(delivery)
    }

    /// Members that have done nothing while they might: those that sleep are idle now, and those that somebody else has
    /// suspended are not ours. In a client of many only a few are looked at each time, in turn.
    fn leave_out(&mut self, look: &mut Look<'_>) -> Result<()> {
        if self.len() == 1 && matches!(self.kind, Kind::Command { .. }) {
            return Ok(());
        }
        let few = self.len() <= FEW;
        let mut left = FEW;
        for _ in 0..self.active.len() {
            if left == 0 || self.active.is_empty() {
                break;
            }
            let i = self.quiet_next % self.active.len();
            let m = &self.active[i];
            let quiet = look.now.since(m.used_at);
            let unused = m.clock == m.released_at && !m.suspension.is_ours();
            let looks = match self.kind {
                Kind::Command { .. } => quiet >= IDLE_AFTER && !m.forks,
                Kind::Attached { .. } => few || quiet >= SURELY_ACTIVE,
            };
            if !(unused && looks) {
                self.quiet_next = i + 1;
                continue;
            }
            left -= 1;
            look.tally.reads += 1;
            let (pid, start) = (m.pid, m.start);
            let stat = self.world.stat(pid)?.filter(|s| s.start == start);
            if let Some(stat) = stat {
                self.see_released(i, stat.state.is_suspended(), look);
                let idle = stat.state.is_asleep() && self.may_idle(&self.active[i], look);
                if idle && self.all_asleep(i, look)? {
                    self.lay_idle(i); // Another stands in its place now, and is next.
                    continue;
                }
            }
            self.quiet_next = i + 1;
        }
        Ok(())
    }

    /// Suspends each of the active members that does not stand already.
    fn suspend_each(&mut self, look: &mut Look<'_>) -> Result<Delivery> {
        // The table first: one store each, before any signal.
        self.mark_all(look, true);
        let mut delivery = Delivery::Gone;
        let mut left = None;
        for i in 0..self.active.len() {
            // The member is put back whatever happens, and those after it are tried all the same.
            let mut m = self.active.swap_remove(i);
            if let Err(e) = self.stop_one(&mut m, look) {
                left = Some(e);
            }
            if m.suspension.is_ours() {
                delivery = Delivery::Sent;
            }
            self.active.push(m);
            let last = self.active.len() - 1;
            self.active.swap(i, last);
        }
        self.note_parents();
        match left {
            Some(e) => Err(e),
            None => self.check_permitted(delivery),
        }
    }

    /// Whoever has a child that we hold may stop itself for that some turns later, be it that the child has ended by then.
    fn note_parents(&mut self) {
        self.holds += 1;
        if !(2..=FAMILY_MAX).contains(&self.len()) {
            return;
        }
        for i in 0..self.active.len() {
            if let Some(parent) = self.active[i].parent.filter(|_| self.active[i].suspension.is_ours()) {
                let parent = self.active.iter_mut().chain(&mut self.idle).find(|m| m.pid == parent);
                parent.into_iter().for_each(|m| m.mirrors_until = self.holds + MIRROR_TURNS);
            }
        }
    }

    /// A command that nobody may signal cannot be divided; in any other client the rest goes on.
    fn check_permitted(&self, delivery: Delivery) -> Result<Delivery> {
        match (&self.kind, self.active.first()) {
            (Kind::Command { .. }, Some(m)) if self.active.iter().chain(&self.idle).all(|m| !m.permitted) => {
                Err(Error::system("signal process", m.pid, rustix::io::Errno::PERM))
            }
            _ => Ok(delivery),
        }
    }

    /// Says in the table that all that may be held are, or that nobody is.
    fn mark_all(&self, look: &Look<'_>, held: bool) {
        if let Kind::Command { slot: Some(slot), .. } = &self.kind {
            look.table.set_held(slot, held);
        }
        for m in self.active.iter().filter(|m| !held || m.permitted && !m.suspension.is_elsewhere()) {
            if let Some(slot) = &m.slot {
                look.table.set_held(slot, held);
            }
        }
    }

    /// Suspends one member, if it does not stand already: the table says so first.
    pub(super) fn stop_one(&mut self, m: &mut Member<W::Process>, look: &mut Look<'_>) -> Result<()> {
        if !m.permitted {
            return Ok(());
        }
        // It may have become somebody else's since the last look: by `sudo`, say. What cannot be looked at is left alone.
        self.look_whose(m).inspect_err(|_| m.permitted = false)?;
        if !m.permitted {
            // One that we hold already is let go.
            self.resume_one(m, look)?;
            Self::give_up(m, look);
            return Ok(());
        }
        let mut suspension = m.suspension;
        let send = suspension.hold(|| self.see(m, look));
        m.suspension = suspension;
        let leads = Some(m.pid) == self.leader();
        if m.slot.is_none() && !leads && send {
            m.slot = self.enter(m.pid, m.start, look);
        }
        let covering = match &self.kind {
            Kind::Command { slot, .. } if leads => slot.as_ref(),
            _ => None,
        };
        let slot = m.slot.as_ref().or(covering);
        if let Some(slot) = slot.filter(|_| send || m.suspension.is_ours()) {
            look.table.set_held(slot, true);
        }
        if !send || slot.is_none() {
            return Ok(());
        }
        look.tally.signals += 1;
        m.stopped_by = self.stop_by_thread(m);
        let sent = match m.stopped_by {
            Some(_) => Ok(Delivery::Sent),
            None => self.world.signal(&m.process, Signal::STOP),
        };
        match sent {
            Ok(Delivery::Sent) => {
                m.suspension.sent();
                m.was_held = true;
            }
            Ok(Delivery::Gone) => {}
            Err(Error::Permission { .. }) => Self::give_up(m, look),
            Err(e) => return Err(e),
        }
        Ok(())
    }

    /// A member that may not be signalled counts, and keeps its slot for when it may be signalled again. Nothing says any
    /// more that we hold it, unless we may.
    fn give_up(m: &mut Member<W::Process>, look: &Look<'_>) {
        m.permitted = false;
        if let Some(slot) = m.slot.as_ref().filter(|_| !m.suspension.is_ours()) {
            look.table.set_held(slot, false);
        }
    }

    /// What a look at a member shows of its suspension.
    fn see(&self, m: &Member<W::Process>, look: &mut Look<'_>) -> Seen {
        look.tally.reads += 1;
        match self.world.pending(&m.process, m.stopped_by) {
            Ok(Some(p)) if p.suspended => return Seen::Stands,
            Ok(Some(p)) if p.has_stop() => return Seen::OnItsWay,
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => return Seen::Unknown,
        }
        // In this order: what did not wait any more, and has not made it stand by now, was taken back by a SIGCONT;
        // unless the one that took it was another thread than the main one, whose state this is.
        look.tally.reads += 1;
        match self.world.stat(m.pid) {
            Ok(Some(s)) if s.start != m.start || s.state.is_ended() => Seen::Unknown,
            Ok(Some(s)) if s.state.is_suspended() => Seen::Stands,
            Ok(Some(s)) if s.num_threads == 1 => Seen::Runs,
            Ok(Some(_)) => Seen::Unclear,
            Ok(None) | Err(_) => Seen::Unknown,
        }
    }

    /// Whether somebody else wants a member suspended that stands by one stop signal of ours.
    fn is_wanted(&self, m: &Member<W::Process>, look: &mut Look<'_>) -> bool {
        self.waits(m, look) && !self.mirrors(m, look)
    }

    /// Whether a member that stands has stopped itself for its child stood by our doing. `su`, `runuser` and `sudo` wait for
    /// their child's stops, stop themselves when they see one, and go on when somebody resumes them: a shell whose job
    /// they are does, and we have to. A stop of somebody else's is not taken for that: it finds the wrapper in another
    /// call, or has stopped the child as well.
    fn mirrors(&self, m: &Member<W::Process>, look: &mut Look<'_>) -> bool {
        let has_children = self.active.iter().chain(&self.idle).any(|c| c.parent == Some(m.pid));
        (has_children || m.mirrors_until > self.holds) && self.has_mirrored(m.pid, look)
    }

    /// Whether one that stands has stopped itself, while none of its children that are members stands but by our doing.
    pub(super) fn has_mirrored(&self, wrapper: Pid, look: &mut Look<'_>) -> bool {
        let mut children = self.active.iter().chain(&self.idle).filter(|c| c.parent == Some(wrapper));
        look.tally.reads += 1;
        self.world.has_stopped_itself(wrapper)
            && children.all(|c| match c.suspension.is_ours() {
                true => !self.waits(c, look),
                false => !self.stands(c, look),
            })
    }

    /// Whether a member stands, as far as can be seen.
    fn stands(&self, m: &Member<W::Process>, look: &mut Look<'_>) -> bool {
        look.tally.reads += 1;
        let stat = self.world.stat(m.pid).ok().flatten();
        stat.is_some_and(|s| s.start == m.start && s.state.is_suspended())
    }

    /// What a look at active member `i` showed while its client is released.
    pub(super) fn see_released(&mut self, i: usize, stands: bool, look: &mut Look<'_>) {
        let m = &self.active[i];
        if stands && m.permitted && !m.suspension.is_ours() && self.mirrors(m, look) {
            look.tally.signals += 1;
            // Where that fails it stands as before, and is looked at again.
            let _ = self.world.signal(&m.process, Signal::CONT);
            return;
        }
        self.active[i].suspension.see_released(stands);
    }

    /// Whether a member stands and a stop signal waits behind that. What cannot be looked at keeps nobody from being
    /// resumed.
    fn waits(&self, m: &Member<W::Process>, look: &mut Look<'_>) -> bool {
        look.tally.reads += 1;
        match self.world.pending(&m.process, m.stopped_by) {
            Ok(Some(p)) if p.suspended => p.has_sigstop() || p.has_stop() && self.heeds_terminal(m, look),
            Ok(_) | Err(_) => false,
        }
    }

    /// Whether SIGTSTP, SIGTTIN and SIGTTOU suspend a member at all: the kernel drops them where nobody of the group's
    /// session could resume it. So it is in a session's own group, a command's for one, and where the session's leader has
    /// ended.
    fn heeds_terminal(&self, m: &Member<W::Process>, look: &mut Look<'_>) -> bool {
        look.tally.reads += 2;
        let Ok(Some(stat)) = self.world.stat(m.pid) else { return false };
        let Some(session) = stat.session.filter(|_| stat.session != stat.pgrp) else { return false };
        matches!(self.world.stat(session), Ok(Some(s)) if !s.state.is_ended())
    }

    /// Suspends the members that do not stand suspended, each by itself.
    ///
    /// # Errors
    /// As [`World::signal`].
    pub fn suspend_the_others(&mut self, look: &mut Look<'_>) -> Result<Delivery> {
        self.suspend_each(look)?;
        self.check_permitted(Delivery::Sent)
    }

    /// Resumes all that we have suspended, but those that somebody else has stopped meanwhile; the table says so after the
    /// last signal was sent.
    ///
    /// # Errors
    /// As [`World::signal`].
    pub fn resume(&mut self, look: &mut Look<'_>) -> Result<Delivery> {
        self.leave_to_others(look);
        let mut delivery = Delivery::Gone;
        let mut left = None;
        for i in 0..self.active.len() {
            let mut m = self.active.swap_remove(i);
            if m.suspension.is_ours() {
                match self.continue_one(&mut m, look) {
                    Ok(()) => delivery = Delivery::Sent,
                    Err(e) => left = Some(e),
                }
            }
            m.released_at = m.clock;
            self.active.push(m);
            let last = self.active.len() - 1;
            self.active.swap(i, last);
        }
        if let Some(e) = left {
            return Err(e);
        }
        self.mark_all(look, false);
        self.resume_wrappers_now_and_then(look);
        Ok(delivery)
    }

    /// A member may have left the command's process group (`setsid`, `setpgid`).
    pub(super) fn regroup(&mut self, i: usize, pgrp: Option<Pid>) {
        let leader = self.leader();
        let m = &mut self.active[i];
        m.in_group &= pgrp == leader || pgrp.is_none();
    }

    /// Resumes one member if we have suspended it, and nobody else has.
    pub(super) fn resume_one(&self, m: &mut Member<W::Process>, look: &mut Look<'_>) -> Result<()> {
        let mut suspension = m.suspension;
        let what = suspension.release(|| self.is_wanted(m, look));
        m.suspension = suspension;
        match what {
            Release::Resume => return self.continue_one(m, look),
            Release::Nothing | Release::LeaveToOthers => {}
        }
        if let Some(slot) = &m.slot {
            look.table.set_held(slot, false);
        }
        Ok(())
    }

    /// Sends SIGCONT to one member; the table says so afterwards.
    fn continue_one(&self, m: &mut Member<W::Process>, look: &mut Look<'_>) -> Result<()> {
        look.tally.signals += 1;
        match self.world.signal(&m.process, Signal::CONT) {
            // It became somebody else's on the way, and somebody has resumed it. It is not ours to hold.
            Err(Error::Permission { .. }) if self.see(m, look) == Seen::Runs => m.permitted = false,
            done => drop(done?),
        }
        m.suspension.resumed();
        m.stopped_by = None;
        if let Some(slot) = &m.slot {
            look.table.set_held(slot, false);
        }
        Ok(())
    }

    /// Whether all members that are to stand do, those included that somebody else has suspended.
    pub fn all_suspended(&self, look: &mut Look<'_>) -> bool {
        self.active.iter().filter(|m| m.permitted && m.suspension.is_to_stand()).all(|m| {
            look.tally.reads += 1;
            let stat = self.world.stat(m.pid).ok().flatten();
            stat.is_none_or(|s| s.state.is_suspended() || s.state.is_ended())
        })
    }

    /// Whether somebody else has suspended all members that are not idle.
    pub fn are_elsewhere(&self) -> bool {
        let mut ours = self.active.iter().filter(|m| m.permitted).peekable();
        ours.peek().is_some() && ours.all(|m| m.suspension.is_elsewhere())
    }

    /// Sends `signal` to all members: at once to those in a command's group, then to each of the others.
    ///
    /// # Errors
    /// As [`World::signal`]; a member that has ended, or that may not be signalled beside others that may, is none.
    pub fn signal(&mut self, signal: Signal, look: &mut Look<'_>) -> Result<Delivery> {
        if self.is_empty() {
            return Ok(Delivery::Gone);
        }
        let mut delivery = Delivery::Gone;
        let mut left = None;
        let mut group = None;
        if let Kind::Command { leader, .. } = &self.kind {
            look.tally.signals += 1;
            // Where the group refuses, each member answers for itself.
            group = self.world.signal_group(leader, signal).ok();
            if group == Some(GroupDelivery::Sent) {
                delivery = Delivery::Sent;
            }
        }
        for m in self.active.iter().chain(&self.idle) {
            if m.in_group && group.is_some_and(|g| g != GroupDelivery::Unsupported) {
                continue;
            }
            look.tally.signals += 1;
            match self.world.signal(&m.process, signal) {
                Ok(Delivery::Sent) => delivery = Delivery::Sent,
                Ok(Delivery::Gone) | Err(Error::Permission { .. }) => {}
                Err(e) => left = Some(e),
            }
        }
        left.map_or(Ok(delivery), Err)
    }

    /// Finds members that somebody else has stopped while we held them: they stay as they are, and are no longer ours to
    /// resume. Of a client with many members some are looked at each time, in turn, and all once one was found.
    fn leave_to_others(&mut self, look: &mut Look<'_>) {
        let n = self.active.len();
        let from = self.pending_next % n.max(1);
        let mut most = n.min(OTHERS_LOOKS);
        self.pending_next = from + most;
        let mut looked = 0;
        while looked < most {
            let i = (from + looked) % n;
            looked += 1;
            let m = &self.active[i];
            let mut suspension = m.suspension;
            if suspension.release(|| self.is_wanted(m, look)) != Release::LeaveToOthers {
                continue;
            }
            most = n;
            self.active[i].suspension = suspension;
            if let Some(slot) = &self.active[i].slot {
                look.table.set_held(slot, false);
            }
        }
    }

    /// Gives back every slot of the table.
    pub fn leave_table(&mut self, look: &mut Look<'_>) {
        let command = match &mut self.kind {
            Kind::Command { slot, .. } => slot.take(),
            Kind::Attached { .. } => None,
        };
        let own = self.active.iter_mut().chain(&mut self.idle).filter_map(|m| m.slot.take());
        for slot in command.into_iter().chain(own) {
            look.table.remove(slot);
        }
    }
}
