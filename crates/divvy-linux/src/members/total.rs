//! The CPU time that a client has used in all: by a counter, by clocks and accounts, or as somebody else tells it.

use divvy_policy::Nanos;

use super::{Children, FORKERS_FEW, IDLE_LOOKS, Kind, Look, Members};
use crate::Result;
use crate::world::World;

/// Who counts what the members use.
#[derive(Clone, Copy, Debug)]
pub(super) enum Counted {
    /// Their clocks and accounts, which show so much less than there is.
    Here { more: Nanos },
    /// Whoever tells the total.
    Elsewhere,
}

impl<W: World> Members<W> {
    /// CPU time used by all members since the client began. Never goes back. By a counter it is the kernel's own sum; by
    /// clocks it may lag by less than 10 ms where members have children that came and went, and by a tick of the kernel
    /// where they run on other CPUs. Reads the counter, or the clocks of active members, and of some idle ones in turn.
    ///
    /// # Errors
    /// As [`World::cpu`], [`Table::add`](crate::guard::Table::add).
    pub fn total(&mut self, look: &mut Look<'_>) -> Result<Nanos> {
        match self.total_by_counter(look)? {
            Some(total) => Ok(total),
            None => self.total_by_clocks(look),
        }
    }

    /// Reads the clocks of all active members; those that have none any more have ended.
    pub(super) fn read_clocks(&mut self, look: &mut Look<'_>) -> Result<()> {
        let mut i = 0;
        while i < self.active.len() {
            look.tally.reads += 1;
            let m = &mut self.active[i];
            // A clock that goes back is that of a stranger with a recycled pid.
            match self.world.cpu(m.pid)?.filter(|&now| now >= m.clock) {
                Some(now) => {
                    m.see(now, look.now);
                    i += 1;
                }
                None => {
                    let gone = self.active.swap_remove(i);
                    self.vanish(gone, look);
                }
            }
        }
        Ok(())
    }

    fn total_by_clocks(&mut self, look: &mut Look<'_>) -> Result<Nanos> {
        self.read_clocks(look)?;
        self.look_at_some_idle(look, IDLE_LOOKS)?;
        match self.kind {
            Kind::Command { .. } if self.has_forked => self.read_children(look, |_, _| true)?,
            // What many children used is better charged bit by bit: a policy forgives what is owed beyond a turn.
            Kind::Attached { children: Children::Counted }
                if self.active.iter().filter(|m| m.forks).count() <= FORKERS_FEW =>
            {
                self.read_children(look, |_, m| m.forks)?;
            }
            _ => {}
        }
        Ok(self.sum())
    }

    fn sum(&mut self) -> Nanos {
        if let Counted::Here { more } = self.counted {
            self.told = self.told.max(self.sum_of_clocks() + more);
        }
        self.told
    }

    fn sum_of_clocks(&self) -> Nanos {
        let ended = self.settled + self.vanished + self.idle_used;
        self.active.iter().fold(ended, |sum, m| sum + m.used())
    }

    /// The total by what has been read so far, without another look.
    pub fn total_read(&mut self) -> Nanos {
        self.sum()
    }

    /// Something else counts what all members have used, and this is it: the total from now on, until another is told.
    pub fn tell(&mut self, total: Nanos) -> Nanos {
        self.told = self.told.max(total);
        self.counted = Counted::Elsewhere;
        self.told
    }

    /// Nothing else counts any more: what clocks and accounts show from now on is added to the last total, and at once what they show
    /// beyond it, which was used where that did not count.
    ///
    /// # Errors
    /// As [`World::cpu`], [`World::stat`]: whoever told the total goes on telling it.
    pub fn count_from(&mut self, look: &mut Look<'_>) -> Result<()> {
        self.read_clocks(look)?;
        self.look_at_idle(look, usize::MAX)?;
        self.read_children(look, |_, _| true)?;
        self.counted = Counted::Here { more: self.told.saturating_sub(self.sum_of_clocks()) };
        Ok(())
    }

    /// The total as last told.
    pub fn last_total(&self) -> Nanos {
        self.told
    }
}
