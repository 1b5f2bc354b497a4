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

use super::frame::{Frame, Grid, Occasion, Rows, Rule, Standing, policy_of_frame};
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
pub struct Rr {
    frame: Frame<RrRule>,
}

policy_of_frame!(Rr);

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
        let rule = RrRule { grid: Grid::new(params.quantum), quanta: params.quanta, ready: Queues::new(1) };
        Ok(Self { frame: Frame::new(rule, params.cpus) })
    }
}

#[derive(Clone, Debug)]
struct RrRule {
    grid: Grid,
    quanta: Quanta,
    ready: Queues,
}

impl Rule for RrRule {
    type Data = ();

    fn join(&mut self, _now: Instant, _id: ClientId, _share: Share) {}

    fn wake(&mut self, _now: Instant, slot: u32, _rows: &mut Rows<()>, _current: u32) {
        self.ready.push_back(0, slot);
    }

    fn block(&mut self, _now: Instant, slot: u32, _rows: &mut Rows<()>, was: Standing) {
        if was == Standing::Ready {
            self.ready.remove(0, slot);
        }
    }

    fn reshare(&mut self, _now: Instant, _slot: u32, _share: Share, _rows: &mut Rows<()>) {}

    fn charge(&mut self, _now: Instant, _slot: u32, _used: Nanos, _rows: &mut Rows<()>) {}

    fn put_back(&mut self, _now: Instant, slot: u32, _rows: &mut Rows<()>) {
        self.ready.push_back(0, slot);
    }

    fn take(&mut self, _now: Instant, slot: u32, _rows: &mut Rows<()>) {
        self.ready.remove(0, slot);
    }

    fn choose(&mut self, _occasion: Occasion, _rows: &mut Rows<()>) -> u32 {
        self.ready.first(0)
    }

    fn slice(&mut self, now: Instant, _slot: u32, _rows: &Rows<()>) -> Nanos {
        match self.quanta {
            Quanta::Whole => self.grid.quantum(),
            Quanta::Grid => self.grid.until_next(now),
        }
    }

    fn preempts(&self) -> bool {
        false
    }

    fn precedes(&self, _now: Instant, a: u32, b: u32, _rows: &Rows<()>) -> bool {
        a < b
    }
}
