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

use super::dispatcher::{Dispatcher, policy};
use super::rounds::{Rank, Rounds};
use crate::{Domain, Listed, Nanos, ParamError, Params, PolicyInfo, RangeError, param};

impl Listed for Drr {
    const INFO: PolicyInfo = PolicyInfo {
        name: "drr",
        summary: "deficit round-robin: rounds of share x credit, served in whole slices",
        complexity: "O(1) to choose if share x credit is worth a slice, else O(n)",
        source: "VTRR, section 2.2; Shreedhar and Varghese 1995",
        params: &[
            param!("quantum", Domain::Quantum(Nanos(1), Nanos::from_secs(1)), "10ms", "length of a slice"),
            param!(
                "credit",
                Domain::Time(Nanos(1), Nanos::from_secs(1)),
                "the quantum",
                "credit of a round for a share of 1"
            ),
        ],
        ..PolicyInfo::DISPATCHER
    };

    fn make(params: &Params<'_>) -> Result<Self, ParamError> {
        let quantum = params.time("quantum")?;
        // With a credit of one quantum, each round is worth share quanta.
        let credit = if params.is_given("credit") { params.time("credit")? } else { quantum };
        Ok(Self::new(DrrParams { cpus: params.run().cpus, quantum, credit })?)
    }
}

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
    /// [`RangeError`] where a parameter is out of range.
    pub fn new(params: DrrParams) -> Result<Self, RangeError> {
        let times = [("quantum", params.quantum.into()), ("credit", params.credit.into())];
        Self::INFO.check(params.cpus, &times)?;
        let rounds = Rounds::new(Rank::ByArrival, params.credit, params.quantum.0, params.quantum);
        Ok(Self(Dispatcher::new(rounds, params.cpus)))
    }
}

policy!(Drr);
