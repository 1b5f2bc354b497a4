//! Looking at the states of a client's threads: who runs, who sleeps, who is new.

use divvy_policy::Nanos;

use super::{Kind, Look, Members, Scan};
use crate::procfs::{StartTime, Stat, State};
use crate::world::World;
use crate::{Pid, Result};

/// Idle members whose clocks are read where somebody asks whether the client wants the CPU.
const IDLE_LOOKS_MANY: usize = 64;
/// A look at all states that cost more than this is not repeated at once.
const SCAN_CHEAP: Nanos = Nanos::from_micros(100);
/// Looks at all states take at most one part in this many of the time.
const SCAN_REST: u64 = 200;

impl<W: World> Members<W> {
    /// Looks at the threads of active members until `enough` run, those of the youngest members first. With `children`,
    /// looks at every member of a command, and for new ones too: children of members, in the group or not.
    ///
    /// # Errors
    /// As [`World::stat`], [`World::threads`].
    pub fn scan(&mut self, look: &mut Look<'_>, children: bool, enough: u32) -> Result<Scan> {
        self.look_at_some_idle(look, IDLE_LOOKS_MANY)?;
        if matches!(self.kind, Kind::Attached { .. }) {
            return self.scan_attached(look, enough);
        }
        let idle = self.idle.len() as u32;
        let mut scan = Scan { asleep: idle, threads: idle, ..Scan::default() };
        if !children {
            return self.scan_states(scan, look, enough);
        }
        let mut found = Vec::new();
        let mut i = 0;
        while i < self.active.len() {
            let pid = self.active[i].pid;
            look.tally.reads += 1;
            let Some(stat) = self.state_of(i, look)? else { continue };
            if stat.num_threads > 1 {
                let m = &mut self.active[i];
                let (world, process) = (&self.world, &m.process);
                let mut busy = m.busy.begin(look.held || look.frozen);
                world.threads(process, stat.num_threads, &mut |thread| {
                    scan.count(thread.state);
                    busy.iter_mut().for_each(|busy| busy.see(pid, &thread));
                    // A thread that has just ended had handed its children on: the next scan sees them.
                    let _ = world.children(pid, thread.pid, &mut found);
                })?;
            } else {
                scan.count(stat.state);
                self.active[i]
                    .busy
                    .begin(look.held || look.frozen)
                    .into_iter()
                    .for_each(|busy| busy.see(pid, &stat));
                self.world.children(pid, pid, &mut found)?;
            }
            self.active[i].forks |= !found.is_empty();
            // New members are appended, and looked at in their turn.
            for child in found.drain(..) {
                self.add(child, look)?;
            }
            i += 1;
        }
        Ok(scan)
    }

    /// What active member `i` is and does; `None` where it has ended: another stands in its place then.
    fn state_of(&mut self, i: usize, look: &mut Look<'_>) -> Result<Option<Stat>> {
        look.tally.reads += 1;
        let stat = self.world.state(&self.active[i].process)?;
        match &stat {
            Some(stat) => {
                self.active[i].threads = stat.num_threads;
                if !look.held {
                    self.see_released(i, stat.state.is_suspended(), look);
                }
                self.regroup(i, stat.pgrp);
            }
            None => {
                let gone = self.active.swap_remove(i);
                self.vanish(gone, look);
            }
        }
        Ok(stat)
    }

    /// States of a command's members, the youngest first: of a shell, a driver and a compiler it is the compiler that runs.
    fn scan_states(&mut self, mut scan: Scan, look: &mut Look<'_>, enough: u32) -> Result<Scan> {
        for i in (0..self.active.len()).rev() {
            if scan.running >= enough {
                break;
            }
            let pid = self.active[i].pid;
            match self.state_of(i, look)? {
                Some(stat) if stat.num_threads > 1 => {
                    let m = &mut self.active[i];
                    let mut busy = m.busy.begin(look.held || look.frozen);
                    self.world.threads_while(&m.process, stat.num_threads, &mut |thread| {
                        scan.count(thread.state);
                        busy.iter_mut().for_each(|busy| busy.see(pid, &thread));
                        scan.running < enough
                    })?;
                }
                Some(stat) => {
                    scan.count(stat.state);
                    self.active[i]
                        .busy
                        .begin(look.held || look.frozen)
                        .into_iter()
                        .for_each(|busy| busy.see(pid, &stat));
                }
                None => {}
            }
        }
        Ok(scan)
    }

    /// States of an attached client's active members, until `enough` threads were found to run. Where that is dear it is
    /// not done at every call: clocks tell as well that somebody runs.
    fn scan_attached(&mut self, look: &mut Look<'_>, enough: u32) -> Result<Scan> {
        let total = self.total(look)?;
        let ran = total > std::mem::replace(&mut self.scanned.total, total);
        if look.now < self.scanned.again {
            let running = if ran { self.scanned.found.running.max(1) } else { self.scanned.found.running };
            return Ok(Scan { running, ..self.scanned.found });
        }
        let begun = crate::clock::now();
        let idle = self.idle.len() as u32;
        let mut scan = Scan { asleep: idle, threads: idle, ..Scan::default() };
        let mut i = 0;
        while i < self.active.len() && scan.running < enough {
            let pid = self.active[i].pid;
            look.tally.reads += 1;
            let stat = self.world.state(&self.active[i].process)?;
            let Some(stat) = stat.filter(|s| !s.state.is_ended()) else {
                let gone = self.active.swap_remove(i);
                self.vanish(gone, look);
                continue;
            };
            let before = scan;
            if stat.num_threads > 1 {
                look.tally.reads += u64::from(stat.num_threads);
                let m = &mut self.active[i];
                let mut busy = m.busy.begin(look.held || look.frozen);
                self.world.threads(&m.process, stat.num_threads, &mut |thread| {
                    scan.count(thread.state);
                    busy.iter_mut().for_each(|busy| busy.see(pid, &thread));
                })?;
            } else {
                scan.count(stat.state);
                self.active[i]
                    .busy
                    .begin(look.held || look.frozen)
                    .into_iter()
                    .for_each(|busy| busy.see(pid, &stat));
            }
            let m = &mut self.active[i];
            (m.threads, m.parent) = (stat.num_threads, stat.ppid);
            // Whom somebody else resumes while the client is held shows at the next audit: it is still to stand.
            if !look.held {
                self.see_released(i, stat.state.is_suspended(), look);
            }
            let asleep = scan.asleep - before.asleep == scan.threads - before.threads;
            if asleep && self.may_idle(&self.active[i], look) {
                self.lay_idle(i);
            } else {
                i += 1;
            }
        }
        let cost = crate::clock::now().since(begun);
        let rest = if cost > SCAN_CHEAP { Nanos(cost.0 * SCAN_REST) } else { Nanos::ZERO };
        (self.scanned.found, self.scanned.again) = (scan, look.now + rest);
        Ok(scan)
    }

    /// Every thread of the active members that we may signal, by id and start time; `None` if there are more than `most`. Of a process that
    /// was last seen to have one, that one.
    ///
    /// # Errors
    /// As [`World::threads`].
    pub fn threads(&self, most: usize, look: &mut Look<'_>) -> Result<Option<Vec<(Pid, StartTime)>>> {
        let mut found = Vec::new();
        for m in self.active.iter().filter(|m| m.permitted) {
            if m.threads == 1 {
                found.push((m.pid, m.start));
            } else if found.len() + m.threads as usize <= most {
                look.tally.reads += 1 + u64::from(m.threads);
                let Some(stat) = self.world.state(&m.process)? else { continue };
                let each = &mut |thread: Stat| found.push((thread.pid, thread.start));
                self.world.threads(&m.process, stat.num_threads, each)?;
            } else {
                return Ok(None);
            }
        }
        Ok((found.len() <= most).then_some(found))
    }

    /// Whether it takes no reads to list the threads: every active member was last seen to have one.
    pub fn have_one_thread_each(&self) -> bool {
        self.active.iter().all(|m| m.threads == 1)
    }

    /// Whether every thread of active member `i` sleeps.
    pub(super) fn all_asleep(&self, i: usize, look: &mut Look<'_>) -> Result<bool> {
        let m = &self.active[i];
        look.tally.reads += 1;
        let Some(stat) = self.world.state(&m.process)? else { return Ok(true) };
        let mut scan = Scan::default();
        if stat.num_threads > 1 {
            look.tally.reads += u64::from(stat.num_threads);
            self.world.threads(&m.process, stat.num_threads, &mut |thread| scan.count(thread.state))?;
        } else {
            scan.count(stat.state);
        }
        Ok(scan.threads == scan.asleep)
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
