//! The host's end of the guardian: that there is one, and that it does its rounds.

use std::os::fd::AsFd as _;

use divvy_policy::{Instant, Nanos};

use crate::guard::{Guardian, Table};
use crate::reactor::Reactor;
use crate::{Pid, Result, clock};

/// A guardian without a round for this long (it makes about ten a second) is replaced.
const SILENCE: Nanos = Nanos::from_secs(3);

/// The guardian of a table. It outlives this where it has something left to resume.
#[derive(Debug)]
pub(super) struct GuardianLink {
    guardian: Option<Guardian>,
    /// What the reactor calls its end.
    watch: u64,
    /// Its rounds, and when they were last seen to rise.
    beats: (u64, Instant),
    /// How often it has resumed everybody.
    generation: u64,
}

impl GuardianLink {
    /// Forks one.
    pub(super) fn start(table: &Table, reactor: &mut Reactor) -> Result<Self> {
        let generation = table.generation();
        let guardian = Guardian::start(table)?;
        let watch = reactor.watch(guardian.as_fd())?;
        Ok(Self { guardian: Some(guardian), watch, beats: (0, clock::now()), generation })
    }

    pub(super) fn pid(&self) -> Option<Pid> {
        self.guardian.as_ref().map(Guardian::pid)
    }

    /// Whether what the reactor calls `number` is its end.
    pub(super) fn is(&self, number: u64) -> bool {
        number == self.watch
    }

    /// Whether it has resumed everybody since this was last asked: we had not run for too long.
    pub(super) fn take_resumed(&mut self, table: &Table) -> bool {
        let generation = table.generation();
        std::mem::replace(&mut self.generation, generation) != generation
    }

    /// One that somebody suspended shows no rounds, and is of no use: it is replaced as if it had died.
    pub(super) fn check(&mut self, table: &Table, reactor: &mut Reactor, now: Instant) -> Result<()> {
        let beats = table.guardian_beats();
        if beats != self.beats.0 {
            self.beats = (beats, now);
        } else if now.since(self.beats.1) > SILENCE {
            // If it was us who did not run, the next round shows.
            self.beats.1 = now;
            return self.replace(table, reactor);
        }
        Ok(())
    }

    /// Forks another in its place.
    pub(super) fn replace(&mut self, table: &Table, reactor: &mut Reactor) -> Result<()> {
        let Some(mut guardian) = self.guardian.take() else { return Ok(()) };
        reactor.unwatch(guardian.as_fd());
        guardian.respawn(table)?;
        self.watch = reactor.watch(guardian.as_fd())?;
        self.guardian = Some(guardian);
        Ok(())
    }

    /// Ends it, unless something could not be resumed: then it stays, and tries again once we are gone.
    pub(super) fn dismiss(&mut self, table: &Table) {
        if table.nr_held() == 0
            && !table.view().has_trees()
            && let Some(guardian) = self.guardian.take()
        {
            let _ = guardian.dismiss();
        }
    }
}
