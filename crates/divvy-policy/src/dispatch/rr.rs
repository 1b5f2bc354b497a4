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

use core::fmt;

use super::dispatcher::{Dispatcher, Grid, Occasion, Pick, Rule, Slot, Table, policy};
use super::ring::Queues;
use crate::{ClientId, Instant, Kind, Nanos, ParamInfo, PolicyInfo, Share};

/// What `divvy policies` says of round robin.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "rr",
    kind: Kind::Dispatcher,
    summary: "the same quantum to each in turn; shares have no effect",
    complexity: "O(1)",
    source: "PBS, section 1",
    params: &[
        ParamInfo { name: "quantum", range: "1ns to 1h", default: "4ms", summary: "length of a turn" },
        ParamInfo {
            name: "quanta",
            range: "whole or grid",
            default: "whole",
            summary: "whether a turn lasts a quantum, or until the next multiple of it",
        },
    ],
};

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

/// Which parameter is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RrError {
    /// The quantum must be 1 ns to 1 h.
    Quantum(Nanos),
    /// There must be a CPU.
    NoCpu,
}

impl fmt::Display for RrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quantum(q) => write!(f, "quantum is {} ns; must be 1 ns to 1 h", q.0),
            Self::NoCpu => f.write_str("cpus is 0; must be at least 1"),
        }
    }
}

impl core::error::Error for RrError {}

/// Round robin as a [`crate::Policy`].
#[derive(Clone, Debug)]
pub struct Rr(Dispatcher<RrRule>);

policy!(Rr);

impl Rr {
    /// A policy without clients.
    ///
    /// # Errors
    /// [`RrError`] names the first parameter that is impossible.
    pub fn new(params: RrParams) -> Result<Self, RrError> {
        if params.quantum == Nanos::ZERO || params.quantum > Nanos::from_secs(3600) {
            return Err(RrError::Quantum(params.quantum));
        }
        if params.cpus == 0 {
            return Err(RrError::NoCpu);
        }
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
