//! Suspending and resuming a client's members, and telling our own suspensions from somebody else's.
//!
//! The table says so before the first stop signal is sent, and until the last process was resumed. A command none of
//! whose members is idle is suspended at once, as a process group: none can fork its way out. Everybody else is
//! suspended one by one; how far apart the signals are is measured ([`Skew`]).
//!
//! A member that may not be signalled (it runs as another user by now) is left out: it counts, it is charged (unless the
//! client has an owner, who is not charged for what others run), and the rest goes on.

use divvy_policy::Nanos;

use super::{IDLE_AFTER, Kind, Look, Member, Members, Skew};
use crate::world::World;
use crate::{Delivery, Error, GroupDelivery, Result, Signal, clock};

/// A client of so few members is looked at more closely: the state of each that did not use its turn is read.
const FEW: usize = 4;
/// In a larger client, a member that used CPU this lately is suspended without a look at its state.
const SURELY_ACTIVE: Nanos = Nanos::from_millis(200);

impl<W: World> Members<W> {
    /// Suspends all members that are not idle; the table says so before the first signal is sent.
    ///
    /// # Errors
    /// As [`World::signal`]; [`Error::Permission`] where not one member of a command may be signalled.
    pub fn suspend(&mut self, look: &mut Look<'_>) -> Result<Delivery> {
        self.leave_out(look)?;
        let begun = clock::now();
        let delivery = match &self.kind {
            Kind::Command { .. } if self.idle.is_empty() => self.suspend_group(look)?,
            _ => self.suspend_each(look, |_| true)?,
        };
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
            let unused = m.clock == m.released_at && !m.stopped;
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
            let attached = matches!(self.kind, Kind::Attached { .. });
            if let Some(stat) = stat {
                self.active[i].stopped_elsewhere = attached && stat.state.is_suspended();
                let idle = stat.state.is_asleep() && self.may_idle(&self.active[i], look.now);
                if idle && self.all_asleep(i, look)? {
                    self.lay_idle(i); // Another stands in its place now, and is next.
                    continue;
                }
            }
            self.quiet_next = i + 1;
        }
        Ok(())
    }

    fn suspend_group(&mut self, look: &mut Look<'_>) -> Result<Delivery> {
        if self.active.is_empty() {
            return Ok(Delivery::Gone);
        }
        self.mark_all(look, true);
        look.tally.signals += 1;
        let Kind::Command { leader, at_once, .. } = &mut self.kind else { return Ok(Delivery::Gone) };
        // Where the group refuses, each member answers for itself.
        *at_once = matches!(self.world.signal_group(leader, Signal::STOP), Ok(GroupDelivery::Sent));
        if !*at_once {
            return self.suspend_each(look, |_| true);
        }
        self.active.iter_mut().filter(|m| m.in_group).for_each(|m| m.stopped = true);
        self.suspend_each(look, |m| !m.in_group)?;
        Ok(Delivery::Sent)
    }

    /// Suspends each of the active members that `choose` names, by itself.
    fn suspend_each(
        &mut self,
        look: &mut Look<'_>,
        choose: impl Fn(&Member<W::Process>) -> bool,
    ) -> Result<Delivery> {
        // The table first: one store each, before any signal.
        self.mark_all(look, true);
        let mut delivery = Delivery::Gone;
        let mut left = None;
        for i in 0..self.active.len() {
            if !choose(&self.active[i]) {
                continue;
            }
            // The member is put back whatever happens, and those after it are tried all the same.
            let mut m = self.active.swap_remove(i);
            if let Err(e) = self.stop_one(&mut m, look) {
                left = Some(e);
            }
            if m.stopped {
                delivery = Delivery::Sent;
            }
            self.active.push(m);
            let last = self.active.len() - 1;
            self.active.swap(i, last);
        }
        match left {
            Some(e) => Err(e),
            None => self.check_permitted(delivery),
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
        for m in self.active.iter().filter(|m| !held || m.permitted && !m.stopped_elsewhere) {
            if let Some(slot) = &m.slot {
                look.table.set_held(slot, held);
            }
        }
    }

    /// Suspends one member, if it is ours to suspend: the table says so first.
    pub(super) fn stop_one(&mut self, m: &mut Member<W::Process>, look: &mut Look<'_>) -> Result<()> {
        if !m.permitted || m.stopped_elsewhere {
            return Ok(());
        }
        let covering = match &self.kind {
            Kind::Command { slot, .. } if m.in_group => slot.as_ref(),
            _ => None,
        };
        // It may have become somebody else's since the last look: by `sudo`, say. What cannot be looked at is left alone.
        self.look_whose(m).inspect_err(|_| m.permitted = false)?;
        if !m.permitted {
            // One that we hold already is let go.
            self.resume_one(m, look)?;
            Self::give_up(m, look);
            return Ok(());
        }
        let Some(slot) = m.slot.as_ref().or(covering) else { return Ok(()) };
        look.table.set_held(slot, true);
        look.tally.signals += 1;
        match self.world.signal(&m.process, Signal::STOP) {
            Ok(Delivery::Sent) => m.stopped = true,
            Ok(Delivery::Gone) => {}
            Err(Error::Permission { .. }) => Self::give_up(m, look),
            Err(e) => return Err(e),
        }
        Ok(())
    }

    /// A member that may not be signalled: it counts, but nothing says any more that we hold it. It keeps its slot for
    /// when it may be signalled again.
    fn give_up(m: &mut Member<W::Process>, look: &Look<'_>) {
        (m.permitted, m.stopped) = (false, false);
        if let Some(slot) = &m.slot {
            look.table.set_held(slot, false);
        }
    }

    /// Suspends the members that do not stand suspended, each by itself: a second stop signal to one that stands would
    /// stay pending, and look like somebody else's.
    ///
    /// # Errors
    /// As [`World::signal`].
    pub fn suspend_the_others(&mut self, look: &mut Look<'_>) -> Result<Delivery> {
        let mut runs = Vec::new();
        let mut left = None;
        for m in &self.active {
            look.tally.reads += 1;
            match self.world.stat(m.pid) {
                Ok(Some(s)) if !s.state.is_suspended() && !s.state.is_ended() => runs.push(m.pid),
                Ok(_) => {}
                Err(e) => left = Some(e),
            }
        }
        self.suspend_each(look, |m| runs.contains(&m.pid))?;
        left.map_or_else(|| self.check_permitted(Delivery::Sent), Err)
    }

    /// Resumes all that we have suspended; the table says so after the last signal was sent.
    ///
    /// # Errors
    /// As [`World::signal`].
    pub fn resume(&mut self, look: &mut Look<'_>) -> Result<Delivery> {
        let mut delivery = Delivery::Gone;
        let at_once = match &mut self.kind {
            Kind::Command { leader, at_once, .. } if *at_once => {
                look.tally.signals += 1;
                *at_once = false;
                // Where the group refuses, each member is resumed by itself.
                matches!(self.world.signal_group(leader, Signal::CONT), Ok(GroupDelivery::Sent))
            }
            _ => false,
        };
        if at_once {
            delivery = Delivery::Sent;
            self.active.iter_mut().filter(|m| m.in_group).for_each(|m| m.stopped = false);
        }
        let mut left = None;
        for i in 0..self.active.len() {
            let mut m = self.active.swap_remove(i);
            if m.stopped {
                match self.resume_one(&mut m, look) {
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
        Ok(delivery)
    }

    /// Resumes one member if we have suspended it.
    pub(super) fn resume_one(&self, m: &mut Member<W::Process>, look: &mut Look<'_>) -> Result<()> {
        if m.stopped {
            look.tally.signals += 1;
            match self.world.signal(&m.process, Signal::CONT) {
                Err(Error::Permission { .. }) if !self.stands(m) => {
                    // It never stood: its group was signalled, and it was left out. It is not ours to hold.
                    Self::give_up(m, look);
                    return Ok(());
                }
                done => done?,
            };
            m.stopped = false;
        }
        if let Some(slot) = &m.slot {
            look.table.set_held(slot, false);
        }
        Ok(())
    }

    /// Whether a member stands suspended; one that cannot be looked at may.
    fn stands(&self, m: &Member<W::Process>) -> bool {
        match self.world.stat(m.pid) {
            Ok(stat) => stat.is_some_and(|s| s.start == m.start && s.state.is_suspended()),
            Err(_) => true,
        }
    }

    /// Whether all members that we have suspended stand suspended.
    pub fn all_suspended(&self, look: &mut Look<'_>) -> bool {
        let attached = matches!(self.kind, Kind::Attached { .. });
        self.active.iter().filter(|m| m.permitted && (m.stopped || !attached)).all(|m| {
            look.tally.reads += 1;
            let stat = self.world.stat(m.pid).ok().flatten();
            stat.is_none_or(|s| s.state.is_suspended() || s.state.is_ended())
        })
    }

    /// Says that nobody is held by us: somebody else stopped the members.
    pub fn disown(&mut self, look: &Look<'_>) {
        if let Kind::Command { at_once, .. } = &mut self.kind {
            *at_once = false;
        }
        self.active.iter_mut().for_each(|m| m.stopped = false);
        self.mark_all(look, false);
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

    /// Whether somebody else has sent a stop signal to a command that waits behind our own suspension. We send one only to
    /// members that are not suspended, so one that is pending while the leader *is* suspended was sent by somebody else.
    ///
    /// # Errors
    /// As [`World::pending`].
    pub fn stop_is_pending(&self, look: &mut Look<'_>) -> Result<bool> {
        let Some(leader) = self.leader() else { return Ok(false) };
        look.tally.reads += 1;
        Ok(self.world.pending(leader)?.is_some_and(|p| p.suspended && p.has_stop()))
    }

    /// Finds members of an attached client that somebody else has stopped while we held them: they stay as they are, and
    /// are no longer ours to resume. Of a client with many members a few are looked at each time, in turn.
    ///
    /// # Errors
    /// As [`World::pending`].
    pub fn leave_to_others(&mut self, look: &mut Look<'_>) -> Result<()> {
        if matches!(self.kind, Kind::Command { .. }) {
            return Ok(());
        }
        for _ in 0..self.active.len().min(FEW) {
            let i = self.pending_next % self.active.len();
            self.pending_next = i + 1;
            let m = &mut self.active[i];
            if !m.stopped {
                continue;
            }
            look.tally.reads += 1;
            if self.world.pending(m.pid)?.is_some_and(|p| p.suspended && p.has_stop()) {
                (m.stopped, m.stopped_elsewhere) = (false, true);
                if let Some(slot) = &m.slot {
                    look.table.set_held(slot, false);
                }
            }
        }
        Ok(())
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
