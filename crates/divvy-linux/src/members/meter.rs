//! A command's CPU time by one counter of its whole tree ([`TreeCounter`](crate::perf::TreeCounter)).
//!
//! A single process is read by its CPU clock, which is cheaper and counts the way from one process to the next as well; from
//! the first fork on the counter is read, in whose time nobody can be missing or be counted twice. On several CPUs the
//! counter is read from the start: a clock is up to a tick behind where its process runs on another CPU than the reader.
//!
//! The clocks of the members are read all the same, though seldom: they tell who does nothing and may be left alone.
//!
//! **What the counter misses.** A process takes its event out before it is through with its end: since Linux 6.16 before it gives
//! its memory back, which is a twelfth of what a loop of short commands uses. The kernel's own accounts have it, in ticks,
//! once the parent has waited. So these are read now and then, with the clocks of those that live, and what they show beyond
//! the counter is charged over as much time again, in proportion to what is counted. They show no more than was used, and no
//! less later: neither does this.

use divvy_policy::{Instant, Nanos};

use super::{IDLE_AFTER, IDLE_LOOKS, Look, Members, TICK_NS};
use crate::Result;
use crate::world::World;

/// The kernel's accounts are read this often, and as much less often for each so many members,
const BOOKS_INTERVAL: Nanos = Nanos::from_millis(100);
const BOOKS_EACH: u64 = 8;
/// where there are no more members than this;
const BOOKS_MEMBERS: usize = 16;
/// and no more is charged for them than this part of what is counted.
const PART_MAX: u64 = 4;

/// What the counter has missed.
#[derive(Clone, Copy, Debug, Default)]
struct Missed {
    /// As much was known when the accounts were last read; and when that was, and what the counter showed.
    known: Nanos,
    at: Instant,
    counted_then: Nanos,
    /// As much of it is charged.
    charged: Nanos,
    /// What is charged of the rest for so much counted.
    part: (Nanos, Nanos),
    counted: Nanos,
}

impl Missed {
    fn is_due(&self, now: Instant, members: usize) -> bool {
        now.since(self.at) >= Nanos(BOOKS_INTERVAL.0 * (1 + members as u64 / BOOKS_EACH))
    }

    /// The accounts show `books`, and the counter, with what was before it, `shown`.
    fn compare(&mut self, now: Instant, books: Nanos, shown: Nanos, counted: Nanos) {
        self.known = self.known.max(books.saturating_sub(shown));
        let lately = counted.saturating_sub(self.counted_then);
        let rest = self.known.saturating_sub(self.charged);
        self.part = (rest.min(Nanos(lately.0 / PART_MAX)), lately);
        (self.at, self.counted_then) = (now, counted);
    }

    /// What is charged beside what the counter shows, now that this is `counted`.
    fn charge(&mut self, counted: Nanos) -> Nanos {
        let (rest, lately) = self.part;
        let more = counted.saturating_sub(std::mem::replace(&mut self.counted, counted));
        let due = u128::from(more.0) * u128::from(rest.0) / u128::from(lately.0.max(1));
        self.charged = Nanos(self.charged.0 + due as u64).min(self.known.max(self.charged));
        self.charged
    }
}

/// The counter, and what it does not show.
#[derive(Debug)]
pub(super) struct Meter<C> {
    counter: C,
    /// Read even while there is one process only.
    always: bool,
    /// What the client had used beyond what the counter showed when it was first read.
    before: Option<Nanos>,
    /// When the members' clocks were last read.
    clocks_read: Instant,
    missed: Missed,
}

impl<W: World> Members<W> {
    /// These members, their time read from `counter`, if there is one; `always`, or from their first fork on.
    pub fn metered(mut self, counter: Option<W::Counter>, always: bool) -> Self {
        let (clocks_read, missed) = (Instant::ZERO, Missed::default());
        self.meter = counter.map(|counter| Meter { counter, always, before: None, clocks_read, missed });
        self
    }

    /// Whether a counter tells of them.
    pub fn is_metered(&self) -> bool {
        self.meter.is_some()
    }

    /// The total by the counter; `None` where there is none, or a clock says as much for less.
    pub(super) fn total_by_counter(&mut self, look: &mut Look<'_>) -> Result<Option<Nanos>> {
        let Some(meter) = self.meter.as_ref().filter(|m| m.always || self.has_forked) else {
            return Ok(None);
        };
        look.tally.reads += 1;
        let Ok(mut counted) = self.world.count(&meter.counter) else {
            self.meter = None; // Clocks and scans do.
            return Ok(None);
        };
        let before = match meter.before {
            Some(before) => before,
            None => self.used_before(counted)?,
        };
        let is_time = look.now.since(meter.clocks_read) >= IDLE_AFTER;
        let members = self.len();
        let compares = self.has_forked && members <= BOOKS_MEMBERS && meter.missed.is_due(look.now, members);
        let books = if compares { self.booked(look)? } else { None };
        if books.is_some()
            && let Some(meter) = &self.meter
        {
            // What is used while the others are read is in both.
            look.tally.reads += 1;
            counted = self.world.count(&meter.counter).map_or(counted, |later| later.max(counted));
        }
        let mut missed = Nanos::ZERO;
        if let Some(meter) = &mut self.meter {
            meter.before = Some(before);
            missed = meter.missed.charge(counted);
            if let Some(books) = books {
                meter.missed.compare(look.now, books, before + counted, counted);
            }
            if is_time {
                meter.clocks_read = look.now;
            }
        }
        if is_time {
            self.read_clocks(look)?;
        }
        self.look_at_some_idle(look, IDLE_LOOKS)?;
        self.told = self.told.max(before + counted + missed);
        Ok(Some(self.told))
    }

    /// What the members' clocks show, and the kernel's accounts of those that they have waited for. These first. `None` where one
    /// was waited for meanwhile: what it used could be in both its own and its parent's.
    fn booked(&self, look: &mut Look<'_>) -> Result<Option<Nanos>> {
        let members = || self.active.iter().chain(&self.idle);
        let mut ticks = 0;
        let mut there = Vec::with_capacity(self.len());
        for member in members() {
            look.tally.reads += 1;
            if let Some(stat) = self.world.state(&member.process)? {
                ticks += stat.ticks_of_children();
                there.push(member.pid);
            }
        }
        let mut booked = Nanos(ticks * TICK_NS);
        for pid in there {
            look.tally.reads += 1;
            match self.world.cpu(pid)? {
                Some(used) => booked += used,
                None => return Ok(None),
            }
        }
        Ok(Some(booked))
    }

    /// What the first process had used before its counter was made, and has used in switches, which no counter shows.
    fn used_before(&self, counted: Nanos) -> Result<Nanos> {
        let leader = match self.leader() {
            Some(leader) => self.world.cpu(leader)?,
            None => None,
        };
        Ok(leader.unwrap_or(self.told).saturating_sub(counted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A loop of commands of which a twelfth is missed, and 10 ms more for accounts that are behind.
    #[test]
    fn what_is_missed_is_charged_soon_and_never_more() {
        let mut missed = Missed::default();
        let ms = |ms: u64| Nanos::from_millis(ms);
        for step in 1..=3_000 {
            let counted = ms(step * 11);
            let charged = missed.charge(counted);
            assert!(charged <= ms(step), "{charged:?} of {step} ms");
            let known = step.saturating_sub(20);
            assert!(step < 300 || charged >= ms(known - 100), "{charged:?} of {step} ms");
            let now = Instant::ZERO + ms(step * 12);
            if missed.is_due(now, 1) {
                let books = ms(step * 12 - 10);
                missed.compare(now, books, counted, counted);
            }
        }
        // Whoever falls behind in the accounts, since a child was nobody's to wait for, is not charged less for it.
        let before = missed.charged;
        missed.compare(Instant(u64::MAX), Nanos::ZERO, ms(33_000), ms(33_000));
        assert!(missed.charge(ms(33_010)) >= before);
    }
}
