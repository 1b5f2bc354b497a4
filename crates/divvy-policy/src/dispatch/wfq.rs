//! Weighted fair queueing for a CPU.
//!
//! **Problem.** Round-robin by turns is far from proportional inside a round.
//! **Idea.** Run whoever would be first to finish its next quantum if all were served at once, each at its share.
//! **Terms.** A client's *virtual time* is its service divided by its share (VTRR, eq. 3); its *virtual finishing time*
//! (VFT) is what that will be after one more quantum; the queue's virtual time advances by `used / total share`.
//! **Algorithm.** The smallest VFT runs for a quantum; ties as [`Tie`] says, then by id. A newcomer stands at the queue's
//! virtual time; so does a client that comes back, unless it is ahead of it. A change of share keeps the service error.
//! List and heap ([`Queue`]) decide alike.
//! **Properties** (`tests/laws.rs`): `wfq_error_is_above_minus_one`, `virtual_lags_sum_to_zero`, `list_equals_heap`,
//! `split_charges_equal_the_whole`, `renaming_permutes`, `scaling_shares_changes_nothing`, `work_conserving`,
//! `rejected_events_change_nothing`, `flapping_earns_nothing`; schedules of `golden/vtrr_static.json`.
//! **Weak spots.** No upper bound on the service error: a large share beside many small ones runs half of its cycle at
//! once (25 quanta ahead for shares 50 and 50 x 1). O(n) or O(log n) a choice.

use super::dispatcher::{Dispatcher, policy};
use super::fair::{Fair, Key, QUEUES, Return, Setup, TIES};
pub use super::fair::{Queue, Tie};
use super::vtime::VirtualTime;
use crate::{ClientId, Domain, Listed, Nanos, ParamError, Params, PolicyInfo, RangeError, param, words};

impl Listed for Wfq {
    const INFO: PolicyInfo = PolicyInfo {
        name: "wfq",
        summary: "weighted fair queueing: the smallest virtual finishing time runs",
        complexity: "O(log n) by heap, O(n) by list",
        source: "VTRR, section 2.4",
        params: &[
            param!("quantum", Domain::Quantum(Nanos(1), Nanos::from_secs(1)), "10ms", "length of a slice"),
            param!("tie", Domain::Word(&words(&TIES)), "share", "who goes first among equal finishing times"),
            param!("queue", Domain::Word(&words(&QUEUES)), "heap", "how the smallest is found"),
        ],
        ..PolicyInfo::DISPATCHER
    };

    fn make(params: &Params<'_>) -> Result<Self, ParamError> {
        let (tie, queue) = (params.choice("tie", &TIES)?, params.choice("queue", &QUEUES)?);
        Ok(Self::new(WfqParams { cpus: params.run().cpus, quantum: params.time("quantum")?, tie, queue })?)
    }
}

/// Parameters of [`Wfq`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WfqParams {
    /// CPUs to divide, at least 1.
    pub cpus: u32,
    /// Length of a slice, 1 ns to 1 s.
    pub quantum: Nanos,
    /// Who goes first among equal finishing times.
    pub tie: Tie,
    /// How the smallest finishing time is found.
    pub queue: Queue,
}

impl Default for WfqParams {
    fn default() -> Self {
        Self { cpus: 1, quantum: Nanos::from_millis(10), tie: Tie::default(), queue: Queue::default() }
    }
}

/// Weighted fair queueing; see the module.
#[derive(Clone, Debug)]
pub struct Wfq(Dispatcher<Fair>);

impl Wfq {
    /// A dispatcher without clients.
    ///
    /// # Errors
    /// [`RangeError`] where a parameter is out of range.
    pub fn new(params: WfqParams) -> Result<Self, RangeError> {
        let WfqParams { cpus, quantum, tie, queue } = params;
        Self::INFO.check(cpus, &[("quantum", quantum.into())])?;
        let setup = Setup {
            quantum: quantum.0,
            tie,
            queue,
            key: Key::Finish,
            comeback: Return::Clamp,
            stride1: None,
        };
        Ok(Self(Dispatcher::new(Fair::new(setup), cpus)))
    }

    /// The virtual time of a client that is in.
    #[must_use]
    pub fn virtual_time(&self, client: ClientId) -> Option<VirtualTime> {
        self.0.slot(client).map(|slot| self.0.rule.client_time(slot))
    }

    /// The queue's virtual time.
    #[must_use]
    pub fn queue_virtual_time(&self) -> VirtualTime {
        self.0.rule.queue_time()
    }
}

policy!(Wfq);
