//! Weighted round-robin.
//!
//! **Problem.** Divide a CPU by shares at constant cost.
//! **Idea.** One turn a round for everybody, as long as its share.
//! **Terms.** A *round* is one turn of each client; *credit* is what is left of a turn.
//! **Algorithm.** Clients stand in a fixed order (largest share first, or by id). The client whose turn it is runs quantum
//! after quantum until it has used share times quantum; then it is the next one's turn. Use beyond the turn is a debt
//! against the next one; a client that blocks loses the rest of its turn.
//! **Properties** (`tests/laws.rs`): `split_charges_equal_the_whole`, `wrr_is_exact_at_the_end_of_a_round`,
//! `renaming_permutes`, `work_conserving`, `rejected_events_change_nothing`, `flapping_earns_nothing`; schedules of
//! `golden/vtrr_static.json` (`tests/paper_vtrr.rs`).
//! **Weak spots.** All of a client's service comes at once: the service error grows with the shares (VTRR, section 2.2:
//! -1000 to 1500 quanta for shares 3000, 2000, 1000). Joining the order costs O(log n) and a move of O(n) words.

use super::dispatcher::{Dispatcher, policy};
use super::rounds::{Rank, Rounds};
use crate::{Domain, Listed, Nanos, ParamError, Params, PolicyInfo, RangeError, param, words};

const ORDERS: [(&str, Order); 2] = [("desc", Order::LargestFirst), ("id", Order::ById)];

impl Listed for Wrr {
    const INFO: PolicyInfo = PolicyInfo {
        name: "wrr",
        summary: "weighted round-robin: a turn of share x quantum each",
        complexity: "O(1) to choose, O(n) words moved to wake",
        source: "VTRR, section 2.2",
        params: &[
            param!("quantum", Domain::Quantum(Nanos(1), Nanos::from_secs(1)), "10ms", "length of a slice"),
            param!("order", Domain::Word(&words(&ORDERS)), "desc", "largest share first, or by id"),
        ],
        ..PolicyInfo::DISPATCHER
    };

    fn make(params: &Params<'_>) -> Result<Self, ParamError> {
        let (cpus, quantum) = (params.run().cpus, params.time("quantum")?);
        Ok(Self::new(WrrParams { cpus, quantum, order: params.choice("order", &ORDERS)? })?)
    }
}

/// The order of turns within a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The largest share first, equal shares by id: the order of the VTRR paper's study.
    #[default]
    LargestFirst,
    /// By id.
    ById,
}

/// Parameters of [`Wrr`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrrParams {
    /// CPUs to divide, at least 1.
    pub cpus: u32,
    /// Length of a slice, 1 ns to 1 s.
    pub quantum: Nanos,
    /// The order of turns.
    pub order: Order,
}

impl Default for WrrParams {
    fn default() -> Self {
        Self { cpus: 1, quantum: Nanos::from_millis(10), order: Order::default() }
    }
}

/// Weighted round-robin; see the module.
#[derive(Clone, Debug)]
pub struct Wrr(Dispatcher<Rounds>);

impl Wrr {
    /// A dispatcher without clients.
    ///
    /// # Errors
    /// [`RangeError`] where a parameter is out of range.
    pub fn new(params: WrrParams) -> Result<Self, RangeError> {
        Self::INFO.check(params.cpus, &[("quantum", params.quantum.into())])?;
        let rank = match params.order {
            Order::LargestFirst => Rank::LargestFirst,
            Order::ById => Rank::ById,
        };
        Ok(Self(Dispatcher::new(Rounds::new(rank, params.quantum, 1, params.quantum), params.cpus)))
    }
}

policy!(Wrr);
