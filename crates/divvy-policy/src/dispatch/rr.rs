//! `rr`: round robin, the same quantum to each in turn.
//!
//! **Problem.** The standard way to share a processor equally (PBS compares itself with it). **Idea.** One queue; each
//! runs for a quantum and goes to its end. **Algorithm.** A linked queue: waking and handing back append, the first is
//! chosen; quanta are whole or end on the grid ([`Quanta`]). Nobody who wakes takes a CPU from another.
//!
//! **Properties** (`tests/laws_pbs.rs`): `rr_takes_turns` (between clients that never block, services never differ by
//! more than a quantum), and the laws every dispatcher there is put to.
//!
//! **Weak spots.** Shares have no effect (`wrr` is the weighted one); who blocks early in its quantum loses the rest.

use super::dispatcher::{Dispatcher, Grid, Occasion, Pick, Rule, Slot, Table, policy};
use super::ring::Queues;
use crate::{
    ClientId, Domain, Instant, Listed, Nanos, ParamError, Params, PolicyInfo, RangeError, Share, param, words,
};

const QUANTA: [(&str, Quanta); 2] = [("whole", Quanta::Whole), ("grid", Quanta::Grid)];

impl Listed for Rr {
    const INFO: PolicyInfo = PolicyInfo {
        name: "rr",
        summary: "the same quantum to each in turn; shares have no effect",
        complexity: "O(1)",
        source: "PBS, section 1",
        params: &[
            param!("quantum", Domain::Quantum(Nanos(1), Nanos::from_secs(3600)), "4ms", "length of a turn"),
            param!(
                "quanta",
                Domain::Word(&words(&QUANTA)),
                "whole",
                "whether a turn lasts a quantum, or until the next multiple of it"
            ),
        ],
        ..PolicyInfo::DISPATCHER
    };

    fn make(params: &Params<'_>) -> Result<Self, ParamError> {
        let (quantum, quanta) = (params.time("quantum")?, params.choice("quanta", &QUANTA)?);
        Ok(Self::new(RrParams { quantum, quanta, cpus: params.run().cpus })?)
    }
}

/// When a turn ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Quanta {
    /// A quantum after it began.
    #[default]
    Whole,
    /// At the next multiple of the quantum, like a timer interrupt.
    Grid,
}

/// Everything that can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RrParams {
    /// Length of a turn.
    pub quantum: Nanos,
    /// When a turn ends.
    pub quanta: Quanta,
    /// CPUs to divide, at least 1.
    pub cpus: u32,
}

impl Default for RrParams {
    fn default() -> Self {
        Self { quantum: Nanos::from_millis(4), quanta: Quanta::Whole, cpus: 1 }
    }
}

/// Round robin as a [`crate::Policy`].
#[derive(Clone, Debug)]
pub struct Rr(Dispatcher<RrRule>);

policy!(Rr);

impl Rr {
    /// A policy without clients.
    ///
    /// # Errors
    /// [`RangeError`] names the first parameter that is impossible.
    pub fn new(params: RrParams) -> Result<Self, RangeError> {
        Self::INFO.check(params.cpus, &[("quantum", params.quantum.into())])?;
        let (grid, clients, ready) = (Grid::new(params.quantum), Table::new(), Queues::new(1));
        Ok(Self(Dispatcher::new(RrRule { grid, quanta: params.quanta, clients, ready }, params.cpus)))
    }
}

#[derive(Clone, Debug)]
struct RrRule {
    grid: Grid,
    quanta: Quanta,
    clients: Table<ClientId>,
    ready: Queues,
}

impl Rule for RrRule {
    fn join(&mut self, _now: Instant, slot: Slot, client: ClientId, _share: Share) {
        self.clients.put(slot, client);
    }

    fn wake(&mut self, _now: Instant, slot: Slot, busy: bool, _current: Slot) {
        if !busy {
            self.put_back(slot);
        }
    }

    fn block(&mut self, _now: Instant, slot: Slot, busy: bool) {
        if !busy {
            self.ready.remove(0, slot);
        }
    }

    fn reshare(&mut self, _slot: Slot, _share: Share) {}

    fn charge(&mut self, _slot: Slot, _used: Nanos) {}

    fn put_back(&mut self, slot: Slot) {
        self.ready.push_back(0, slot);
    }

    fn pick(&mut self, occasion: Occasion) -> Option<Pick> {
        let slot = self.ready.first(0);
        self.ready.remove(0, slot);
        let slice = match self.quanta {
            Quanta::Whole => self.grid.quantum(),
            Quanta::Grid => self.grid.until_next(occasion.now),
        };
        Some(Pick { slot, client: self.clients[slot], slice })
    }
}
