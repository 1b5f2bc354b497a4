//! A command's CPU time by one counter of its whole tree ([`TreeCounter`](crate::perf::TreeCounter)).
//!
//! A single process is read by its CPU clock, which is cheaper and counts the way from one process to the next as well; from
//! the first fork on the counter is read, in whose time nobody can be missing or be counted twice. On several CPUs the
//! counter is read from the start: a clock is up to a tick behind where its process runs on another CPU than the reader.
//!
//! The clocks of the members are read all the same, though seldom: they tell who does nothing and may be left alone.

use divvy_policy::{Instant, Nanos};

use super::{IDLE_AFTER, IDLE_LOOKS, Look, Members};
use crate::Result;
use crate::world::World;

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
}

impl<W: World> Members<W> {
    /// These members, their time read from `counter`, if there is one; `always`, or from their first fork on.
    pub fn metered(mut self, counter: Option<W::Counter>, always: bool) -> Self {
        self.meter =
            counter.map(|counter| Meter { counter, always, before: None, clocks_read: Instant::ZERO });
        self
    }

    /// The total by the counter; `None` where there is none, or a clock says as much for less.
    pub(super) fn total_by_counter(&mut self, look: &mut Look<'_>) -> Result<Option<Nanos>> {
        let Some(meter) = self.meter.as_ref().filter(|m| m.always || self.has_forked) else {
            return Ok(None);
        };
        look.tally.reads += 1;
        let Ok(counted) = self.world.count(&meter.counter) else {
            self.meter = None; // Clocks and scans do.
            return Ok(None);
        };
        let before = match meter.before {
            Some(before) => before,
            None => self.used_before(counted)?,
        };
        let is_time = look.now.since(meter.clocks_read) >= IDLE_AFTER;
        if let Some(meter) = &mut self.meter {
            meter.before = Some(before);
            if is_time {
                meter.clocks_read = look.now;
            }
        }
        if is_time {
            self.read_clocks(look)?;
        }
        self.look_at_some_idle(look, IDLE_LOOKS)?;
        self.told = self.told.max(before + counted);
        Ok(Some(self.told))
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
