//! The processes of one client, and the CPU time that all of them have used, those gone included.
//!
//! **Two kinds.** A *command* is a process that we started, the leader of a process group, with all its descendants: they
//! are ours to wait for, and what ends them is sent to the group at once. An *attached* client is any set of processes that ran
//! before we came or come from elsewhere: who belongs to it is said from outside ([`Members::admit`], [`Members::take`]),
//! and each is signalled by itself.
//!
//! **Time.** A client's time is `settled + vanished + sum over members of (own clock + time of the children it waited for)`,
//! each counted from when the process became a member. When a member ends and its parent waits for it, the kernel
//! moves its time to the parent's children's time, so it must not be counted there again.
//! - Command: what nobody waited for is kept in `vanished` until the parent's children's time shows that it was counted
//!   after all; what we waited for ourselves is settled.
//! - Attached: what a member had is settled at its end, and its parent, if it is a member of any client, is told to
//!   expect as much ([`Members::expect`]): that part of its children's time is not charged.
//!
//! Children's time comes in ticks of 10 ms: the sum may lag behind by less than one, or go back by as much, which
//! whoever charges makes up later. What a process used between the last look and its end is known only where its parent is
//! a member whose children are counted; else nobody tells.
//!
//! **Idle members.** Only members that use CPU are suspended. One that sleeps and has not used any for a second (or slept
//! when it was attached) is *idle*: it is neither signalled nor its state read. Its clock is looked at in turn, a few at
//! each look, and all of them once a second or as often as the host allows; when it shows CPU time it is active again, and held if its client is. In a
//! command, the leader and parents of members are never idle: they could make others while their client is held.

mod ends;
mod meter;
mod owner;
mod scan;
mod stop;
mod suspension;
#[cfg(test)]
mod tests;
mod threads;
mod total;
mod wrappers;

use std::rc::Rc;

use divvy_policy::{Instant, Nanos};

use crate::guard::{Reach, Slot, Table};
use crate::procfs::{StartTime, Stat, State};
use crate::world::{Live, World};
use crate::{Pid, Result};
use meter::Meter;
use suspension::Suspension;
use threads::Busy;
use total::Counted;
use wrappers::Wrappers;

/// Nanoseconds in one of `/proc`'s clock ticks (`USER_HZ` is 100 on every Linux).
const TICK_NS: u64 = 10_000_000;
/// So many members are compared one by one with a list of those that are there.
const COMPARED_MAX: usize = 16;
/// How many vanished members are remembered.
const LOST_MAX: usize = 16;
/// A member that sleeps and has not used any CPU for this long is left alone.
pub const IDLE_AFTER: Nanos = Nanos::from_secs(1);
/// Idle members whose clocks are read at each look at their client.
const IDLE_LOOKS: usize = 16;
/// Where so few members make children, the children's time is read with every total, else at scans.
const FORKERS_FEW: usize = 4;
/// Members of which a review asks whether they have children that nobody saw.
const CHILDREN_LOOKS: usize = 16;
/// What looks and signals have cost, counted, and what looks may still cost.
#[derive(Clone, Copy, Debug)]
pub struct Tally {
    pub reads: u64,
    pub signals: u64,
    /// Clients that have told of a member that cannot be held.
    pub unheld: u64,
    /// Idle members that may be looked at until the host allows more: however many there are, and however often somebody
    /// asks for their clients, the cost is bounded.
    pub idle_looks_left: usize,
}

impl Default for Tally {
    fn default() -> Self {
        Self { reads: 0, signals: 0, unheld: 0, idle_looks_left: usize::MAX }
    }
}

/// How the members of a client are held, if they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// One by one: who is new is held, too.
    pub held: bool,
    /// With their cgroup.
    pub frozen: bool,
}

impl From<bool> for Standing {
    fn from(held: bool) -> Self {
        Self { held, frozen: false }
    }
}

/// What a look at a client's processes needs.
pub struct Look<'a> {
    pub table: &'a mut Table,
    pub tally: &'a mut Tally,
    pub now: Instant,
    /// What the members are meant to be.
    pub held: bool,
    /// Their cgroup is frozen: what they seem to do says nothing.
    pub frozen: bool,
}

#[derive(Debug)]
struct Member<P> {
    process: Rc<P>,
    pid: Pid,
    start: StartTime,
    /// In a command's process group: what is sent to end the client reaches it with that.
    in_group: bool,
    /// Its slot in the table of held processes, once it was to be held; a command's leader has the command's.
    slot: Option<Slot>,
    clock: Nanos,
    /// What its clock showed when it became a member.
    clock_before: Nanos,
    /// CPU time of the children that it waited for.
    children: Nanos,
    /// Of that, what is not this client's to pay, or has been charged already.
    children_before: Nanos,
    /// CPU time of members that have ended and that it has yet to wait for: charged already.
    expected: Nanos,
    /// Its clock when its children's time was last read. To wait for a child takes CPU time.
    children_read_at: Option<Nanos>,
    threads: u32,
    parent: Option<Pid>,
    /// It has, or had, children.
    forks: bool,
    /// Until the client was held so many times it may stop itself because a child of it was held.
    mirrors_until: u64,
    permitted: bool,
    /// It is the client's owner's: what it uses is charged.
    owned: bool,
    busy: Busy,
    /// Whose doing it is that it stands.
    suspension: Suspension,
    /// The thread that its last stop signal was sent to; the kernel chose one if there is none.
    stopped_by: Option<Pid>,
    /// We have suspended it at some time.
    was_held: bool,
    /// When its clock was last seen to rise.
    used_at: Instant,
    /// Its clock when it was last released.
    released_at: Nanos,
}

impl<P> Member<P> {
    fn used(&self) -> Nanos {
        let children = self.children.saturating_sub(self.children_before);
        self.clock.saturating_sub(self.clock_before) + children
    }

    fn see(&mut self, clock: Nanos, now: Instant) {
        if clock > self.clock {
            if !self.owned {
                self.clock_before += clock.saturating_sub(self.clock);
            }
            (self.clock, self.used_at) = (clock, now);
        }
    }
}

#[derive(Debug)]
enum Kind<P> {
    Command {
        /// Kept after its end: the group can be signalled through its pidfd as long as it has members.
        leader: Rc<P>,
        /// The whole group's slot in the table.
        slot: Option<Slot>,
    },
    Attached {
        /// Whether the time of children that members have waited for is the client's.
        children: Children,
    },
}

/// Whether the time of children that a member waited for belongs to its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Children {
    /// Children of members are members: what one used that came and went unseen is charged by its parent's account.
    Counted,
    /// Children are members only if they are chosen themselves.
    NotOurs,
}

/// What a scan of a client's processes found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// Threads that run or wait for a CPU.
    pub running: u32,
    /// Threads that stand suspended.
    pub suspended: u32,
    /// Threads that sleep.
    pub asleep: u32,
    /// All threads.
    pub threads: u32,
}

/// The last look at the states of an attached client's members.
#[derive(Clone, Copy, Debug, Default)]
struct Scanned {
    found: Scan,
    /// When another may be made.
    again: Instant,
    /// The client's CPU time then.
    total: Nanos,
}

/// A member that was found to have ended, for whoever keeps lists of all members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    pub pid: Pid,
    /// Its parent when it was last seen.
    pub parent: Option<Pid>,
    /// All CPU time that its parent's account shows once it has been waited for; zero where that account settles it.
    pub time: Nanos,
}

/// What a member is like, as far as it is known without another look.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    pub pid: Pid,
    pub start: StartTime,
    pub used: Nanos,
    pub permitted: bool,
    pub held: bool,
}

/// How long it took to send a client's members their stop signals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skew {
    /// From the first to the last signal, the last time.
    pub last: Nanos,
    /// The longest so far.
    pub max: Nanos,
}

/// The processes of one client.
#[derive(Debug)]
pub struct Members<W: World = Live> {
    world: W,
    kind: Kind<W::Process>,
    /// What counts the time of the whole tree, where there is such a counter.
    meter: Option<Meter<W::Counter>>,
    /// Whose processes alone are held and charged; `None` for everybody's.
    owner: Option<u32>,
    active: Vec<Member<W::Process>>,
    idle: Vec<Member<W::Process>>,
    /// What the idle ones have used.
    idle_used: Nanos,
    idle_next: usize,
    /// CPU time of members that have ended, where no account will show it again.
    settled: Nanos,
    /// CPU time of a command's members that somebody else waited for, or nobody, as far as no parent has shown it.
    vanished: Nanos,
    /// The last of those that vanished: one that we wait for after all is counted once.
    lost: Vec<(Pid, Nanos)>,
    /// Several CPUs are divided.
    on_several_cpus: bool,
    /// Some member has had children: their time has to be read too.
    has_forked: bool,
    /// The largest total told so far: totals do not go back.
    told: Nanos,
    counted: Counted,
    ended: Vec<Ended>,
    skew: Skew,
    scanned: Scanned,
    pending_next: usize,
    children_next: usize,
    quiet_next: usize,
    /// How many times the client was held.
    holds: u64,
    /// Parents outside the client.
    wrappers: Wrappers,
    unheld: Unheld,
}

/// The first reason why a member could not be held, for whoever tells the user; later ones are the same story.
#[derive(Debug, Default)]
enum Unheld {
    #[default]
    Nobody,
    ToTell(crate::Error),
    Told,
}

impl<W: World> Members<W> {
    /// The client of a process that leads a process group, entered in the table.
    ///
    /// # Errors
    /// As [`Table::add`], [`World::stat`].
    pub fn command(world: W, leader: W::Process, table: &mut Table) -> Result<Self> {
        let (pid, start) = W::identity(&leader);
        let session = world.stat(pid)?.map_or(Some(pid), |s| s.session);
        let slot = Some(table.add(pid, start, Reach::Group { session })?);
        let leader = Rc::new(leader);
        let first = Member {
            process: Rc::clone(&leader),
            in_group: true,
            pid,
            start,
            slot: None,
            clock: Nanos::ZERO,
            clock_before: Nanos::ZERO,
            children: Nanos::ZERO,
            children_before: Nanos::ZERO,
            expected: Nanos::ZERO,
            children_read_at: None,
            threads: 1,
            parent: None,
            forks: true, // A leader is never idle.
            mirrors_until: 0,
            permitted: true,
            owned: true,
            busy: Busy::default(),
            suspension: Suspension::Free,
            stopped_by: None,
            was_held: false,
            used_at: Instant::ZERO,
            released_at: Nanos::ZERO,
        };
        let mut members = Self::of(world, Kind::Command { leader, slot });
        members.active.push(first);
        Ok(members)
    }

    /// A client of processes that will be [admitted](Members::admit).
    pub fn attached(world: W, children: Children) -> Self {
        Self::of(world, Kind::Attached { children })
    }

    fn of(world: W, kind: Kind<W::Process>) -> Self {
        Self {
            world,
            kind,
            meter: None,
            owner: None,
            active: Vec::new(),
            idle: Vec::new(),
            idle_used: Nanos::ZERO,
            idle_next: 0,
            settled: Nanos::ZERO,
            vanished: Nanos::ZERO,
            lost: Vec::new(),
            on_several_cpus: false,
            has_forked: false,
            told: Nanos::ZERO,
            counted: Counted::Here { more: Nanos::ZERO },
            ended: Vec::new(),
            skew: Skew::default(),
            scanned: Scanned::default(),
            pending_next: 0,
            children_next: 0,
            quiet_next: 0,
            holds: 0,
            wrappers: Wrappers::default(),
            unheld: Unheld::Nobody,
        }
    }

    /// A member is not held, and the client goes on: the first time, that is to be told.
    fn note_unheld(&mut self, why: crate::Error, look: &mut Look<'_>) {
        if matches!(self.unheld, Unheld::Nobody) {
            self.unheld = Unheld::ToTell(why);
            look.tally.unheld += 1;
        }
    }

    /// Why some member is not held, once.
    pub fn take_unheld(&mut self) -> Option<crate::Error> {
        match std::mem::replace(&mut self.unheld, Unheld::Told) {
            Unheld::ToTell(why) => Some(why),
            before => {
                self.unheld = before;
                None
            }
        }
    }

    /// The pid of a command's leader, which is the process group's number.
    pub fn leader(&self) -> Option<Pid> {
        match &self.kind {
            Kind::Command { leader, .. } => Some(W::identity(leader).0),
            Kind::Attached { .. } => None,
        }
    }

    /// Members that are known.
    pub fn len(&self) -> usize {
        self.active.len() + self.idle.len()
    }

    /// Members that are left alone because they do nothing.
    pub fn nr_idle(&self) -> usize {
        self.idle.len()
    }

    /// Members that may not be signalled.
    pub fn nr_not_permitted(&self) -> usize {
        self.active.iter().chain(&self.idle).filter(|m| !m.permitted).count()
    }

    /// How far apart the stop signals of one hold were.
    pub fn skew(&self) -> Skew {
        self.skew
    }

    /// Whether some member is known to have had children.
    pub fn has_forked(&self) -> bool {
        self.has_forked
    }

    /// Whether all that are known have ended.
    pub fn is_empty(&self) -> bool {
        self.active.is_empty() && self.idle.is_empty()
    }

    /// Whether it is certain that nobody is left of a command: no member is known, none ever had children, and the
    /// leader's group is empty. Cheap, and for most clients the end.
    pub fn all_ended(&self) -> bool {
        let Kind::Command { leader, .. } = &self.kind else { return self.is_empty() };
        self.is_empty()
            && !self.has_forked
            && self.world.group_has_members(leader).is_ok_and(|has| has == Some(false))
    }

    /// The only thread of a client that has just one, with the slot for its saved affinity.
    pub fn only_thread(&self) -> Option<(&W::Process, &Slot)> {
        let [one] = self.active.as_slice() else { return None };
        let slot = match &self.kind {
            Kind::Command { slot, .. } => slot.as_ref(),
            Kind::Attached { .. } => one.slot.as_ref(),
        };
        (one.threads == 1 && one.permitted && self.idle.is_empty()).then_some(())?;
        Some((&one.process, slot?))
    }

    /// A slot of the table that is this client's, for what is to be put back about any of its threads.
    pub fn any_slot(&self) -> Option<&Slot> {
        match &self.kind {
            Kind::Command { slot, .. } => slot.as_ref(),
            Kind::Attached { .. } => self.active.iter().find_map(|m| m.slot.as_ref()),
        }
    }

    /// The members that are known.
    pub fn pids(&self) -> impl Iterator<Item = (Pid, StartTime)> + '_ {
        self.active.iter().chain(&self.idle).map(|m| (m.pid, m.start))
    }

    /// Whether exactly `these` are the members that are known; not told of many.
    pub fn are(&self, these: &[Pid]) -> bool {
        let comparable = these.len() <= COMPARED_MAX && self.len() == these.len();
        comparable && self.pids().all(|(pid, _)| these.contains(&pid))
    }

    /// The members that are known, with the threads that each was last seen to have.
    pub fn pids_and_threads(&self) -> impl Iterator<Item = (Pid, u32)> + '_ {
        self.active.iter().chain(&self.idle).map(|m| (m.pid, m.threads))
    }

    /// What is known of each member.
    pub fn known(&self) -> impl Iterator<Item = Known> + '_ {
        self.active.iter().chain(&self.idle).map(|m| Known {
            pid: m.pid,
            start: m.start,
            used: m.used(),
            permitted: m.permitted,
            held: m.suspension.is_ours(),
        })
    }

    /// The members that have been found to have ended since this was last asked.
    pub fn take_ended(&mut self) -> Vec<Ended> {
        std::mem::take(&mut self.ended)
    }

    /// As [`look_at_idle`](Self::look_at_idle), of as many as may be looked at just now.
    ///
    /// # Errors
    /// As [`World::cpu`], [`Table::add`].
    pub fn look_at_some_idle(&mut self, look: &mut Look<'_>, most: usize) -> Result<()> {
        let some = most.min(self.idle.len()).min(look.tally.idle_looks_left);
        look.tally.idle_looks_left -= some;
        self.look_at_idle(look, some)
    }

    /// Reads the clocks of `most` idle members, in turn; who has used CPU time is active from now on.
    ///
    /// # Errors
    /// As [`World::cpu`], [`Table::add`].
    pub fn look_at_idle(&mut self, look: &mut Look<'_>, most: usize) -> Result<()> {
        for _ in 0..most.min(self.idle.len()) {
            if self.idle.is_empty() {
                break;
            }
            let i = self.idle_next % self.idle.len();
            self.idle_next = i + 1;
            look.tally.reads += 1;
            let m = &self.idle[i];
            match self.world.cpu(m.pid)?.filter(|&now| now >= m.clock) {
                Some(now) if now == m.clock => {}
                Some(now) => {
                    let mut woken = self.take_idle(i);
                    woken.see(now, look.now);
                    // It may have left its group meanwhile.
                    if let Some(leader) = self.leader()
                        && woken.in_group
                        && let Ok(Some(stat)) = self.world.stat(woken.pid)
                    {
                        woken.in_group = stat.pgrp.is_none_or(|pgrp| pgrp == leader);
                    }
                    self.activate(woken, look)?;
                }
                None => {
                    let gone = self.take_idle(i);
                    self.vanish(gone, look);
                }
            }
        }
        Ok(())
    }

    fn take_idle(&mut self, i: usize) -> Member<W::Process> {
        let member = self.idle.swap_remove(i);
        self.idle_used = self.idle_used.saturating_sub(member.used());
        member
    }

    /// The active member `i` does nothing: it is left alone from now on.
    fn lay_idle(&mut self, i: usize) {
        let member = self.active.swap_remove(i);
        self.idle_used += member.used();
        self.world.rest(&member.process);
        self.idle.push(member);
    }

    /// Whether an active member that was found asleep is to be left alone.
    fn may_idle(&self, m: &Member<W::Process>, look: &Look<'_>) -> bool {
        let kind = matches!(self.kind, Kind::Attached { .. }) || !m.forks;
        let stands = m.suspension.is_to_stand() || look.frozen;
        kind && !stands && look.now.since(m.used_at) >= IDLE_AFTER
    }

    /// A member that may have to be held: entered in the table, and held if its client is. Where the table has no room
    /// it is never held.
    fn activate(&mut self, mut m: Member<W::Process>, look: &mut Look<'_>) -> Result<()> {
        if m.slot.is_none() && !m.in_group {
            m.slot = self.enter(m.pid, m.start, look);
        }
        // It is a member whatever comes of it, and keeps its slot as long as it is one.
        let done = if look.held { self.stop_one(&mut m, look) } else { Ok(()) };
        self.active.push(m);
        done
    }

    /// Reads the children's time of those active members that `choose` names by number and that have run since it was last
    /// read, as far as their clocks have shown.
    fn read_children(
        &mut self,
        look: &mut Look<'_>,
        choose: impl Fn(usize, &Member<W::Process>) -> bool,
    ) -> Result<()> {
        for i in 0..self.active.len() {
            let m = &self.active[i];
            if m.children_read_at == Some(m.clock) || !choose(i, m) {
                continue;
            }
            look.tally.reads += 1;
            if let Some(stat) = self.world.stat(m.pid)?.filter(|s| s.start == m.start) {
                self.active[i].children_read_at = Some(self.active[i].clock);
                self.book_children(i, &stat);
                self.regroup(i, stat.pgrp);
            }
        }
        Ok(())
    }

    /// Charges what the children's time of active member `i` has risen by, as far as it was not charged already.
    fn book_children(&mut self, i: usize, stat: &Stat) {
        let m = &mut self.active[i];
        let children = Nanos((stat.cutime + stat.cstime) * TICK_NS);
        let rise = children.saturating_sub(m.children);
        if rise == Nanos::ZERO {
            return;
        }
        m.children += rise;
        m.forks = true;
        if !m.owned {
            m.children_before += rise;
            m.expected = m.expected.saturating_sub(rise);
            return;
        }
        match self.kind {
            // What a parent has waited for is counted there from now on.
            Kind::Command { .. } => self.vanished = self.vanished.saturating_sub(rise),
            Kind::Attached { children: Children::Counted } => {
                let known = rise.min(m.expected);
                m.expected = m.expected.saturating_sub(known);
                m.children_before += known;
            }
            Kind::Attached { children: Children::NotOurs } => m.children_before = m.children,
        }
    }

    /// Charges what short-lived children of an attached client's members used: of those known to make any, and of so many
    /// others, in turn.
    ///
    /// # Errors
    /// As [`World::stat`].
    pub fn account_children(&mut self, look: &mut Look<'_>, others: usize) -> Result<()> {
        if !matches!(self.kind, Kind::Attached { children: Children::Counted }) || self.active.is_empty() {
            return Ok(());
        }
        let n = self.active.len();
        let from = self.children_next % n;
        self.children_next = from + others;
        self.read_children(look, |i, m| m.forks || (i + n - from) % n < others)
    }

    /// A member's own slot in the table; without one it is never held.
    fn enter(&mut self, pid: Pid, start: StartTime, look: &mut Look<'_>) -> Option<Slot> {
        match look.table.add(pid, start, Reach::Process) {
            Ok(slot) => Some(slot),
            Err(why) => {
                self.note_unheld(why, look);
                None
            }
        }
    }

    /// Takes in a process that was found to be a descendant of a command, unless it is known or has ended. One that
    /// cannot be had (no descriptor is left, say) is tried again at a later scan, and told of once.
    ///
    /// # Errors
    /// As [`World::signal`]: it is a member then, but not held.
    pub fn add(&mut self, pid: Pid, look: &mut Look<'_>) -> Result<()> {
        if self.pids().any(|(known, _)| known == pid) {
            return Ok(());
        }
        self.has_forked = true;
        let mut member = match self.meet(pid, look.now) {
            Ok(Some(member)) => member,
            Ok(None) => return Ok(()),
            Err(why) => {
                self.note_unheld(why, look);
                return Ok(());
            }
        };
        if let Some(parent) = member.parent {
            self.note_parent(parent);
        }
        // All that it has used is the command's: its clock counts from zero.
        (member.clock, member.clock_before) = (Nanos::ZERO, Nanos::ZERO);
        (member.children, member.children_before) = (Nanos::ZERO, Nanos::ZERO);
        member.used_at = look.now;
        self.activate(member, look)
    }

    /// Takes in a process that belongs to an attached client from now on; what it used before is not charged, unless it
    /// began later than `since`, in the client. Says whether it is there to be taken in: one that has ended is not.
    ///
    /// # Errors
    /// As [`World::meet`].
    pub fn admit(
        &mut self,
        pid: Pid,
        since: Option<StartTime>,
        look: &mut Look<'_>,
    ) -> Result<Option<StartTime>> {
        look.tally.reads += 1;
        let Some(mut m) = self.meet(pid, look.now)? else { return Ok(None) };
        look.tally.reads += 2;
        let born = since.is_some_and(|since| m.start > since);
        if born && m.owned {
            (m.clock_before, m.children_before, m.used_at) = (Nanos::ZERO, Nanos::ZERO, look.now);
        }
        let start = m.start;
        if !born && m.used_at == Instant::ZERO && !m.suspension.is_elsewhere() {
            self.idle_used += m.used();
            self.idle.push(m);
        } else {
            // It is a member all the same.
            if let Err(why) = self.activate(m, look) {
                self.note_unheld(why, look);
            }
        }
        Ok(Some(start))
    }

    /// A process that is to become a member, as it is now; `None` if it has ended. [`Member::used_at`] is zero for one that
    /// sleeps.
    fn meet(&mut self, pid: Pid, now: Instant) -> Result<Option<Member<W::Process>>> {
        let Some((process, stat)) = self.world.meet(pid)? else { return Ok(None) };
        let (_, start) = W::identity(&process);
        // Asked before the pidfd is: if that one lives, the answer was about it.
        let owned = self.is_owned(pid)?;
        let (Some(clock), Some(permitted)) = (self.world.cpu(pid)?, self.world.may_signal(&process)?) else {
            return Ok(None);
        };
        let children = Nanos((stat.cutime + stat.cstime) * TICK_NS);
        Ok(Some(Member {
            process: Rc::new(process),
            pid,
            start,
            in_group: self.leader().is_some() && stat.pgrp == self.leader(),
            slot: None,
            clock,
            clock_before: clock,
            children,
            children_before: children,
            expected: Nanos::ZERO,
            children_read_at: None,
            threads: stat.num_threads,
            parent: stat.ppid,
            forks: false,
            mirrors_until: 0,
            permitted: permitted && owned,
            owned,
            busy: Busy::default(),
            stopped_by: None,
            suspension: match self.kind {
                Kind::Attached { .. } if stat.state.is_suspended() => Suspension::Elsewhere,
                // What it is like is seen at the next look.
                _ => Suspension::Free,
            },
            was_held: false,
            used_at: if stat.state == State::Running { now } else { Instant::ZERO },
            released_at: clock,
        }))
    }

    /// The pidfds of members can be watched.
    pub fn process(&self, pid: Pid) -> Option<&W::Process> {
        self.active.iter().chain(&self.idle).find(|m| m.pid == pid).map(|m| &*m.process)
    }

    /// Once in a while: members that may be signalled now, members that sleep, the CPU of all.
    ///
    /// # Errors
    /// As [`World::cpu`], [`World::stat`].
    pub fn review(&mut self, look: &mut Look<'_>) -> Result<()> {
        self.look_at_some_idle(look, usize::MAX)?;
        self.account_children(look, CHILDREN_LOOKS)?;
        let mut i = 0;
        while i < self.active.len() {
            let m = &mut self.active[i];
            if !m.permitted {
                look.tally.reads += 1;
                m.permitted = self.world.may_signal(&m.process)?.unwrap_or(false);
            }
            if self.owner.is_some() {
                look.tally.reads += 1;
                let mut m = self.active.swap_remove(i);
                let looked = self.look_whose(&mut m);
                self.active.push(m);
                let last = self.active.len() - 1;
                self.active.swap(i, last);
                looked?;
            }
            let quiet = self.may_idle(&self.active[i], look) && self.all_asleep(i, look)?;
            if quiet {
                self.lay_idle(i);
            } else {
                i += 1;
            }
        }
        Ok(())
    }
}
