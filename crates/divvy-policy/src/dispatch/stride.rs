//! Stride scheduling (Waldspurger and Weihl 1995).
//!
//! **Problem.** Lottery scheduling is proportional only in the long run.
//! **Idea.** Deterministic lottery: a client's *pass* grows by its *stride*, the inverse of its share, with each quantum.
//! **Terms.** The *global pass* advances at the inverse of the total share; a client's *remain* is how far it is from it.
//! **Algorithm.** The smallest pass runs, ties by id. A client that blocks keeps its remain, which is added to the global
//! pass when it comes back; part of a quantum costs part of a stride; a change of share scales the remain.
//! The first pass is one stride ([`Init::Stride`], as published) or zero. Strides are exact, or `floor(stride1 / share)`.
//! **Properties** (`tests/laws.rs`): `split_charges_equal_the_whole`, `renaming_permutes`,
//! `scaling_shares_changes_nothing`, `work_conserving`, `rejected_events_change_nothing`, `flapping_earns_nothing`,
//! `stride_remembers_a_lag_across_sleep`; schedules of `golden/vtrr_static.json`.
//! **Weak spots.** As WFQ: no upper bound on the error. A kept lag lets a client that was behind when it slept catch up
//! long after. Fixed strides misjudge shares that do not divide `stride1`.

use super::dispatcher::{Dispatcher, policy};
pub use super::fair::Queue;
use super::fair::{Fair, Key, QUEUES, Return, Setup, Tie};
use crate::{Domain, Listed, Nanos, ParamError, Params, PolicyInfo, RangeError, param, words};

const INITS: [(&str, Init); 2] = [("stride", Init::Stride), ("zero", Init::Zero)];

impl Listed for Stride {
    const INFO: PolicyInfo = PolicyInfo {
        name: "stride",
        summary: "stride scheduling: the smallest pass runs, and grows by one stride",
        complexity: "O(log n) by heap, O(n) by list",
        source: "VTRR, section 2.4 [33]; Waldspurger and Weihl 1995",
        params: &[
            param!("quantum", Domain::Quantum(Nanos(1), Nanos::from_secs(1)), "10ms", "length of a slice"),
            param!("init", Domain::Word(&words(&INITS)), "stride", "a newcomer's first pass"),
            param!(
                "stride1",
                Domain::Form("exact, or 1 to 4611686018427387904"),
                "exact",
                "stride of a share of 1"
            ),
            param!("queue", Domain::Word(&words(&QUEUES)), "heap", "how the smallest is found"),
        ],
        ..PolicyInfo::DISPATCHER
    };

    fn make(params: &Params<'_>) -> Result<Self, ParamError> {
        let exact_or_number = |text: &str| match text {
            "exact" => Some(None),
            text => text.parse().ok().map(Some),
        };
        Ok(Self::new(StrideParams {
            cpus: params.run().cpus,
            quantum: params.time("quantum")?,
            init: params.choice("init", &INITS)?,
            stride1: params.form("stride1", exact_or_number)?,
            queue: params.choice("queue", &QUEUES)?,
        })?)
    }
}

/// A newcomer's first pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Init {
    /// One stride after the global pass.
    #[default]
    Stride,
    /// The global pass.
    Zero,
}

/// Parameters of [`Stride`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrideParams {
    /// CPUs to divide, at least 1.
    pub cpus: u32,
    /// Length of a slice, 1 ns to 1 s.
    pub quantum: Nanos,
    /// A newcomer's first pass.
    pub init: Init,
    /// Strides of `stride1 / share` rounded down (at least 1), 1 to 2^62; exact if `None`.
    pub stride1: Option<u64>,
    /// How the smallest pass is found.
    pub queue: Queue,
}

impl Default for StrideParams {
    fn default() -> Self {
        let queue = Queue::default();
        Self { cpus: 1, quantum: Nanos::from_millis(10), init: Init::default(), stride1: None, queue }
    }
}

/// Stride scheduling; see the module.
#[derive(Clone, Debug)]
pub struct Stride(Dispatcher<Fair>);

impl Stride {
    /// A dispatcher without clients.
    ///
    /// # Errors
    /// [`RangeError`] where a parameter is out of range.
    pub fn new(params: StrideParams) -> Result<Self, RangeError> {
        let StrideParams { cpus, quantum, init, stride1, queue } = params;
        Self::INFO.check(cpus, &[("quantum", quantum.into())])?;
        if let Some(one) = stride1.filter(|one| !(1..=1 << 62).contains(one)) {
            return Err(Self::INFO.outside("stride1", one.into()));
        }
        let key = match init {
            // The pass of the paper is one stride after the virtual time kept here, for ever.
            Init::Stride => Key::Finish,
            Init::Zero => Key::Start,
        };
        let setup =
            Setup { quantum: quantum.0, tie: Tie::Id, queue, key, comeback: Return::KeepLag, stride1 };
        Ok(Self(Dispatcher::new(Fair::new(setup), cpus)))
    }
}

policy!(Stride);
