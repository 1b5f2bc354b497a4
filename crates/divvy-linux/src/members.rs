//! The processes of one client, and the CPU time that all of them have used, those gone included.
//!
//! A client's time is `reaped + vanished + sum over members of (own clock + time of the children it waited for)`.
//! When a member ends and its parent waits for it, the kernel moves its time to the parent's children's time, so the
//! sum stays as it was and nothing is counted twice. What nobody waited for is kept in `vanished` until the parent's
//! children's time shows that it was counted after all. Children's time comes in ticks of 10 ms: the sum may lag
//! behind by less than one, or go back by as much, which whoever charges makes up later.

use std::rc::Rc;

use divvy_policy::Nanos;

use crate::guard::{Reach, Slot, Table};
use crate::procfs::{self, StartTime, State};
use crate::{Delivery, GroupDelivery, Pid, ProcessRef, Result, Signal, clock};

/// Nanoseconds in one of `/proc`'s clock ticks (`USER_HZ` is 100 on every Linux).
const TICK_NS: u64 = 10_000_000;

/// How many vanished members are remembered.
const LOST_MAX: usize = 16;

#[derive(Debug)]
struct Member {
    process: Rc<ProcessRef>,
    /// In the leader's process group: signalled with it.
    in_group: bool,
    /// Its slot in the table of held processes, where it is not covered by the group's.
    slot: Option<Slot>,
    clock: Nanos,
    /// CPU time of the children that it waited for.
    children: Nanos,
    threads: u32,
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

/// The processes of one client: a leader of a process group and its descendants.
#[derive(Debug)]
pub struct Members {
    /// Kept after its end: the group can be signalled through its pidfd as long as it has members.
    leader: Rc<ProcessRef>,
    members: Vec<Member>,
    /// The whole group's slot in the table.
    slot: Option<Slot>,
    /// CPU time of members that we waited for, their waited-for children included.
    reaped: Nanos,
    /// CPU time of members that somebody else waited for, or nobody, as far as no parent has shown it.
    vanished: Nanos,
    /// The last of those that vanished: one that we wait for after all is counted once.
    lost: Vec<(Pid, Nanos)>,
    /// Some member has had children: their time has to be read too.
    has_forked: bool,
    /// The largest total told so far: totals do not go back.
    told: Nanos,
}

impl Members {
    /// The client of a process that leads a process group, entered in the table.
    ///
    /// # Errors
    /// As [`Table::add`], [`procfs::stat`].
    pub fn new(leader: ProcessRef, table: &mut Table) -> Result<Self> {
        let pid = leader.pid();
        let session = procfs::stat(pid)?.map_or(Some(pid), |s| s.session);
        let slot = table.add(pid, leader.start(), Reach::Group { session })?;
        let (in_group, slot) = (true, Some(slot));
        let leader = Rc::new(leader);
        let first = Member {
            process: Rc::clone(&leader),
            in_group,
            slot: None,
            clock: Nanos::ZERO,
            children: Nanos::ZERO,
            threads: 1,
        };
        Ok(Self {
            leader,
            members: vec![first],
            slot,
            reaped: Nanos::ZERO,
            vanished: Nanos::ZERO,
            lost: Vec::new(),
            has_forked: false,
            told: Nanos::ZERO,
        })
    }

    /// The pid of the leader, which is the process group's number.
    #[must_use]
    pub fn leader(&self) -> Pid {
        self.leader.pid()
    }

    /// Members that are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether it is certain that nobody is left: no member is known, none ever had children, and the leader's group is
    /// empty. Cheap, and for most clients the end.
    #[must_use]
    pub fn all_ended(&self) -> bool {
        self.members.is_empty()
            && !self.has_forked
            && self.leader.group_has_members().is_ok_and(|has| has == Some(false))
    }

    /// Whether all that are known have ended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The only thread of a client that has just one, with the slot for its saved affinity.
    #[must_use]
    pub fn only_thread(&self) -> Option<(&ProcessRef, &Slot)> {
        match (self.members.as_slice(), &self.slot) {
            ([one], Some(slot)) if one.threads == 1 => Some((&one.process, slot)),
            _ => None,
        }
    }

    /// CPU time used by all members since the client began. Never goes back; may lag by less than 10 ms where members
    /// have children that came and went, and by a tick of the kernel where they run on other CPUs. `held` is what the
    /// members are meant to be: one that is found to have left the process group is suspended by itself.
    ///
    /// # Errors
    /// As [`clock::process_cpu`], [`Table::add`].
    pub fn total(&mut self, table: &mut Table, held: bool, reads: &mut u64) -> Result<Nanos> {
        let mut i = 0;
        while i < self.members.len() {
            *reads += 1;
            let m = &mut self.members[i];
            // A clock that goes back is that of a stranger with a recycled pid.
            match clock::process_cpu(m.process.pid())?.filter(|&now| now >= m.clock) {
                Some(now) => {
                    m.clock = now;
                    i += 1;
                }
                None => self.vanish(i, table),
            }
        }
        if self.has_forked {
            self.read_children(table, held, reads)?;
        }
        let sum = self.members.iter().fold(self.reaped + self.vanished, |sum, m| sum + m.clock + m.children);
        self.told = self.told.max(sum);
        Ok(self.told)
    }

    /// The total as last read.
    #[must_use]
    pub fn last_total(&self) -> Nanos {
        self.told
    }

    fn read_children(&mut self, table: &mut Table, held: bool, reads: &mut u64) -> Result<()> {
        for i in 0..self.members.len() {
            *reads += 1;
            let m = &mut self.members[i];
            if let Some(stat) = procfs::stat(m.process.pid())?.filter(|s| s.start == m.process.start()) {
                let children = Nanos((stat.cutime + stat.cstime) * TICK_NS);
                // What a parent has waited for is counted there from now on.
                self.vanished = self.vanished.saturating_sub(children.saturating_sub(m.children));
                m.children = m.children.max(children);
                self.regroup(i, stat.pgrp, table, held)?;
            }
        }
        Ok(())
    }

    /// A member that has left the leader's process group (`setsid`, `setpgid`) is reached by itself from now on.
    fn regroup(&mut self, i: usize, pgrp: Option<Pid>, table: &mut Table, held: bool) -> Result<()> {
        let leader = self.leader.pid();
        let m = &mut self.members[i];
        if !m.in_group || pgrp == Some(leader) || pgrp.is_none() {
            return Ok(());
        }
        let slot = table.add(m.process.pid(), m.process.start(), Reach::Process)?;
        m.in_group = false;
        if held {
            table.set_held(&slot, true);
        }
        m.slot = Some(slot);
        if held {
            m.process.signal(Signal::STOP)?;
        }
        Ok(())
    }

    /// A member has gone, and it was not us who waited for it.
    fn vanish(&mut self, i: usize, table: &mut Table) {
        let mut gone = self.members.swap_remove(i);
        if let Some(slot) = gone.slot.take() {
            table.remove(slot);
        }
        let used = gone.clock + gone.children;
        self.vanished += used;
        self.lost.push((gone.process.pid(), used));
        if self.lost.len() > LOST_MAX {
            self.lost.remove(0);
        }
        self.has_forked = true; // It was somebody's child.
    }

    /// We have waited for `pid`, a member or one too short-lived to be known; `usage` is its own time and that of
    /// children that it waited for.
    pub fn reap(&mut self, pid: Pid, usage: Nanos, table: &mut Table) {
        self.reaped += usage;
        let Some(i) = self.members.iter().position(|m| m.process.pid() == pid) else {
            if let Some(i) = self.lost.iter().position(|&(lost, _)| lost == pid) {
                let (_, used) = self.lost.swap_remove(i);
                self.vanished = self.vanished.saturating_sub(used);
            }
            self.has_forked |= pid != self.leader.pid();
            return;
        };
        let gone = self.members.swap_remove(i);
        if let Some(slot) = gone.slot {
            table.remove(slot);
        }
    }

    /// Looks at every thread of every member, and, with `children`, for new members: children of members, in the group
    /// or not.
    ///
    /// # Errors
    /// As [`procfs::stat`], [`procfs::threads`].
    pub fn scan(&mut self, table: &mut Table, held: bool, children: bool, reads: &mut u64) -> Result<Scan> {
        let mut scan = Scan::default();
        let mut found = Vec::new();
        let mut i = 0;
        while i < self.members.len() {
            let m = &mut self.members[i];
            let pid = m.process.pid();
            *reads += 1 + u64::from(children);
            let Some(stat) = procfs::stat(pid)?.filter(|s| s.start == m.process.start()) else {
                self.vanish(i, table);
                continue;
            };
            m.threads = stat.num_threads;
            self.regroup(i, stat.pgrp, table, held)?;
            if stat.num_threads > 1 {
                procfs::threads(pid, |thread| {
                    scan.count(thread.state);
                    if children {
                        // A thread that has just ended had handed its children on: the next scan sees them.
                        let _ = procfs::children(pid, thread.pid, &mut found);
                    }
                })?;
            } else {
                scan.count(stat.state);
                if children {
                    procfs::children(pid, pid, &mut found)?;
                }
            }
            // New members are appended, and looked at in their turn.
            for child in found.drain(..) {
                self.add(child, table, held)?;
            }
            i += 1;
        }
        Ok(scan)
    }

    /// Takes in a process that was found to be a descendant, unless it is known or has ended.
    ///
    /// # Errors
    /// As [`ProcessRef::open`], [`Table::add`].
    pub fn add(&mut self, pid: Pid, table: &mut Table, held: bool) -> Result<()> {
        if self.members.iter().any(|m| m.process.pid() == pid) {
            return Ok(());
        }
        self.has_forked = true;
        let Some(process) = ProcessRef::open(pid)? else { return Ok(()) };
        let Some(stat) = procfs::stat(pid)? else { return Ok(()) };
        let in_group = stat.pgrp == Some(self.leader.pid());
        let slot = if in_group { None } else { Some(table.add(pid, process.start(), Reach::Process)?) };
        if let (true, Some(slot)) = (held, &slot) {
            table.set_held(slot, true);
            process.signal(Signal::STOP)?;
        }
        let (clock, children, threads) = (Nanos::ZERO, Nanos::ZERO, stat.num_threads);
        self.members.push(Member { process: Rc::new(process), in_group, slot, clock, children, threads });
        Ok(())
    }

    /// Suspends all members; the table says so before the first signal is sent.
    ///
    /// # Errors
    /// As [`ProcessRef::signal`].
    pub fn suspend(&self, table: &Table, signals: &mut u64) -> Result<Delivery> {
        for slot in self.slots() {
            table.set_held(slot, true);
        }
        self.signal(Signal::STOP, signals)
    }

    /// Suspends the members that do not stand suspended, each by itself: a second stop signal to one that stands would
    /// stay pending, and look like somebody else's.
    ///
    /// # Errors
    /// As [`ProcessRef::signal`].
    pub fn suspend_the_others(&self, table: &Table, reads: &mut u64, signals: &mut u64) -> Result<Delivery> {
        for slot in self.slots() {
            table.set_held(slot, true);
        }
        for m in &self.members {
            *reads += 1;
            let stat = procfs::stat(m.process.pid())?;
            if stat.is_some_and(|s| !s.state.is_suspended() && !s.state.is_ended()) {
                *signals += 1;
                m.process.signal(Signal::STOP)?;
            }
        }
        Ok(Delivery::Sent)
    }

    /// Resumes all members; the table says so after the last signal was sent.
    ///
    /// # Errors
    /// As [`ProcessRef::signal`].
    pub fn resume(&self, table: &Table, signals: &mut u64) -> Result<Delivery> {
        let delivery = self.signal(Signal::CONT, signals)?;
        for slot in self.slots() {
            table.set_held(slot, false);
        }
        Ok(delivery)
    }

    /// Whether all members stand suspended.
    pub fn all_suspended(&self, reads: &mut u64) -> bool {
        *reads += self.members.len() as u64;
        self.members.iter().all(|m| {
            let stat = procfs::stat(m.process.pid()).ok().flatten();
            stat.is_none_or(|s| s.state.is_suspended() || s.state.is_ended())
        })
    }

    /// Says in the table that nobody is held by us: somebody else stopped the members.
    pub fn disown(&self, table: &Table) {
        for slot in self.slots() {
            table.set_held(slot, false);
        }
    }

    fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.slot.iter().chain(self.members.iter().filter_map(|m| m.slot.as_ref()))
    }

    /// Sends `signal` to all members: at once to those in the group, then to each of the others.
    ///
    /// # Errors
    /// As [`ProcessRef::signal`]; a member that has ended is none.
    pub fn signal(&self, signal: Signal, signals: &mut u64) -> Result<Delivery> {
        if self.members.is_empty() {
            return Ok(Delivery::Gone);
        }
        *signals += 1;
        let group = self.leader.signal_group(signal)?;
        let mut delivery = if group == GroupDelivery::Sent { Delivery::Sent } else { Delivery::Gone };
        for m in self.members.iter().filter(|m| !m.in_group || group == GroupDelivery::Unsupported) {
            *signals += 1;
            if m.process.signal(signal)? == Delivery::Sent {
                delivery = Delivery::Sent;
            }
        }
        Ok(delivery)
    }

    /// Whether somebody else has sent a stop signal that waits behind our own suspension. We send one only to members
    /// that are not suspended, so one that is pending while the leader *is* suspended was sent by somebody else.
    ///
    /// # Errors
    /// As [`procfs::pending`].
    pub fn stop_is_pending(&self, reads: &mut u64) -> Result<bool> {
        *reads += 1;
        Ok(procfs::pending(self.leader.pid())?.is_some_and(|p| p.suspended && p.has_stop()))
    }

    /// Gives back every slot of the table.
    pub fn leave_table(&mut self, table: &mut Table) {
        for slot in self.slot.take().into_iter().chain(self.members.iter_mut().filter_map(|m| m.slot.take()))
        {
            table.remove(slot);
        }
    }

    /// The pids of all members that are known.
    pub fn pids(&self) -> impl Iterator<Item = (Pid, StartTime)> + '_ {
        self.members.iter().map(|m| (m.process.pid(), m.process.start()))
    }
}

impl Scan {
    fn count(&mut self, state: State) {
        if state.is_ended() {
            return;
        }
        self.threads += 1;
        if state.is_suspended() {
            self.suspended += 1;
        } else if state.is_asleep() {
            self.asleep += 1;
        } else {
            self.running += 1;
        }
    }
}
