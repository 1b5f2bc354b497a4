//! Deficit round-robin (Shreedhar and Varghese 1995) for a CPU.
//!
//! **Problem.** Weighted round-robin gives every turn at once; fair queueing sorts.
//! **Idea.** Serve whole slices only, and keep what is too little for a slice until the next round.
//! **Terms.** The *deficit* of a client is credit that it has been given and not used.
//! **Algorithm.** Clients stand in the order in which they became runnable. In each round a client's deficit grows by share
//! times credit; it runs slice after slice while the deficit is worth a whole one. With a credit of one quantum this is
//! weighted round-robin in order of arrival; with less, small shares save up over several rounds and large ones run
//! shorter turns.
//! **Properties** (`tests/laws.rs`): `split_charges_equal_the_whole`, `renaming_permutes`, `work_conserving`,
//! `rejected_events_change_nothing`, `flapping_earns_nothing`, `drr_deficits_bound_the_error`.
//! **Weak spots.** With a small credit a choice may pass over many clients that are still saving (rounds in which nobody
//! runs are skipped at once). Joining the order costs O(log n) and a move of O(n) words.

use super::dispatcher::{Dispatcher, ParamError, QUANTUM_MAX, check_params, policy};
use super::rounds::{Rank, Rounds};
use crate::{Kind, Nanos, ParamInfo, PolicyInfo};

/// What `divvy policies` says about deficit round-robin.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "drr",
    kind: Kind::Dispatcher,
    summary: "deficit round-robin: rounds of share x credit, served in whole slices",
    complexity: "O(1) to choose if share x credit is worth a slice, else O(n)",
    source: "VTRR, section 2.2; Shreedhar and Varghese 1995",
    params: &[
        ParamInfo { name: "quantum", range: "1ns to 1s", default: "10ms", summary: "length of a slice" },
        ParamInfo {
            name: "credit",
            range: "1ns to 1s",
            default: "10ms",
            summary: "credit of a round for a share of 1",
        },
    ],
};

/// Parameters of [`Drr`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrrParams {
    /// CPUs to divide, at least 1.
    pub cpus: u32,
    /// Length of a slice, 1 ns to 1 s.
    pub quantum: Nanos,
    /// What a round adds to the deficit of a client of share 1, 1 ns to 1 s.
    pub credit: Nanos,
}

impl Default for DrrParams {
    fn default() -> Self {
        Self { cpus: 1, quantum: Nanos::from_millis(10), credit: Nanos::from_millis(10) }
    }
}

/// Deficit round-robin; see the module.
#[derive(Clone, Debug)]
pub struct Drr(Dispatcher<Rounds>);

impl Drr {
    /// A dispatcher without clients.
    ///
    /// # Errors
    /// [`ParamError`] where a parameter is out of range.
    pub fn new(params: DrrParams) -> Result<Self, ParamError> {
        check_params(params.cpus, params.quantum)?;
        if params.credit == Nanos::ZERO || params.credit > QUANTUM_MAX {
            return Err(ParamError::Range("credit"));
        }
        let rounds = Rounds::new(Rank::ByArrival, params.credit, params.quantum.0, params.quantum);
        Ok(Self(Dispatcher::new(rounds, params.cpus)))
    }
}

policy!(Drr);
