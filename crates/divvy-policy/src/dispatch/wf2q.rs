//! Worst-case fair weighted fair queueing (WF2Q; Bennett and Zhang 1996) for a CPU.
//!
//! **Problem.** Weighted fair queueing lets a large share run far ahead of the fluid model.
//! **Idea.** As WFQ, but a quantum may run only once it has started in the fluid model.
//! **Terms.** As [`super::wfq`]; a client is *eligible* when its virtual time is not after the queue's.
//! **Algorithm.** Among eligible clients the smallest virtual finishing time runs, ties as [`Tie`] says. On one CPU
//! somebody is always eligible; on several all of them may be running, then the earliest start runs.
//! **Properties** (`tests/laws.rs`): `wf2q_error_is_within_one_quantum`, `split_charges_equal_the_whole`,
//! `renaming_permutes`, `scaling_shares_changes_nothing`, `work_conserving`, `rejected_events_change_nothing`,
//! `flapping_earns_nothing`; schedules of `golden/vtrr_static.json`.
//! **Weak spots.** O(n) a choice.

use super::dispatcher::{Dispatcher, policy};
pub use super::fair::Tie;
use super::fair::{Fair, Key, Queue, Return, Setup, TIES};
use crate::{Domain, Listed, Nanos, ParamError, Params, PolicyInfo, RangeError, param, words};

impl Listed for Wf2q {
    const INFO: PolicyInfo = PolicyInfo {
        name: "wf2q",
        summary: "WFQ among the clients that the fluid model has started: error within one quantum",
        complexity: "O(n)",
        source: "VTRR, section 2.4 [3]; Bennett and Zhang 1996",
        params: &[
            param!("quantum", Domain::Quantum(Nanos(1), Nanos::from_secs(1)), "10ms", "length of a slice"),
            param!("tie", Domain::Word(&words(&TIES)), "share", "who goes first among equal finishing times"),
        ],
        ..PolicyInfo::DISPATCHER
    };

    fn make(params: &Params<'_>) -> Result<Self, ParamError> {
        let (tie, quantum) = (params.choice("tie", &TIES)?, params.time("quantum")?);
        Ok(Self::new(Wf2qParams { cpus: params.run().cpus, quantum, tie })?)
    }
}

/// Parameters of [`Wf2q`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wf2qParams {
    /// CPUs to divide, at least 1.
    pub cpus: u32,
    /// Length of a slice, 1 ns to 1 s.
    pub quantum: Nanos,
    /// Who goes first among equal finishing times.
    pub tie: Tie,
}

impl Default for Wf2qParams {
    fn default() -> Self {
        Self { cpus: 1, quantum: Nanos::from_millis(10), tie: Tie::default() }
    }
}

/// WF2Q; see the module.
#[derive(Clone, Debug)]
pub struct Wf2q(Dispatcher<Fair>);

impl Wf2q {
    /// A dispatcher without clients.
    ///
    /// # Errors
    /// [`RangeError`] where a parameter is out of range.
    pub fn new(params: Wf2qParams) -> Result<Self, RangeError> {
        let Wf2qParams { cpus, quantum, tie } = params;
        Self::INFO.check(cpus, &[("quantum", quantum.into())])?;
        let (key, comeback) = (Key::EligibleFinish, Return::Clamp);
        let setup = Setup { quantum: quantum.0, tie, queue: Queue::List, key, comeback, stride1: None };
        Ok(Self(Dispatcher::new(Fair::new(setup), cpus)))
    }
}

policy!(Wf2q);
