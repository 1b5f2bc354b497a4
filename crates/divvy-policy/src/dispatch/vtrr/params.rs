//! What can be set about VTRR, and what it tells of its choices.

use super::Vtrr;
use super::classes::CLASS_MAX;
use crate::{Domain, Listed, Nanos, ParamError, Params, PolicyInfo, param, words};

const RESETS: [(&str, Reset); 2] = [("whole", Reset::Whole), ("incremental", Reset::Incremental)];
const REJOINS: [(&str, Rejoin); 2] = [("paper", Rejoin::Paper), ("strict", Rejoin::Strict)];

impl Listed for Vtrr {
    const INFO: PolicyInfo = PolicyInfo {
        name: "vtrr",
        summary: "virtual-time round-robin: O(1) and nearly as accurate as fair queueing",
        complexity: "O(1) to choose; O(n) to wake, O(1) with classes",
        source: "VTRR, section 3",
        params: &[
            param!("quantum", Domain::Quantum(Nanos(1), Nanos::from_secs(1)), "10ms", "length of a slice"),
            param!(
                "reset",
                Domain::Word(&words(&RESETS)),
                "incremental",
                "all counters at once at the end of a cycle, or each when it is next looked at"
            ),
            param!(
                "classes",
                Domain::Whole(0, CLASS_MAX as u64),
                "0",
                "shares up to this are queued in O(1), equal shares by arrival; 0: by id, along the queue"
            ),
            param!(
                "rejoin",
                Domain::Word(&words(&REJOINS)),
                "paper",
                "counter of a client that is back in the same cycle: as published, or never more than it left with"
            ),
        ],
        ..PolicyInfo::DISPATCHER
    };

    fn make(params: &Params<'_>) -> Result<Self, ParamError> {
        let insert = match params.whole("classes")? {
            0 => Insert::Traverse,
            max_share => Insert::Classes { max_share },
        };
        let (reset, rejoin) = (params.choice("reset", &RESETS)?, params.choice("rejoin", &REJOINS)?);
        let (cpus, quantum) = (params.run().cpus, params.time("quantum")?);
        Ok(Self::new(VtrrParams { cpus, quantum, reset, insert, rejoin })?)
    }
}

/// When the time counters get a new cycle's worth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reset {
    /// All at once: O(n) at the end of a cycle.
    Whole,
    /// Each when it is next looked at: O(1) always (section 3.3).
    #[default]
    Incremental,
}

/// How a client finds its place in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Insert {
    /// Between its last neighbours if they are still right, else along the queue; equal shares by id.
    #[default]
    Traverse,
    /// At the end of the class of its share, O(1) for shares up to `max_share`; equal shares by arrival. Larger shares
    /// go along the part of the queue that is above.
    Classes {
        /// 1 to 262,143; costs 4 bytes each.
        max_share: u32,
    },
}

/// What a client may find in its time counter when it is back in the cycle in which it left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rejoin {
    /// The paper's order: not more than it left with, *then* not less than the next in the queue. A client ahead of one
    /// with a larger share of its cycle left gains by blocking for a moment, again and again.
    #[default]
    Paper,
    /// Never more than it left with: leaving earns nothing. If the next in the queue is due more, it runs next.
    Strict,
}

/// Parameters of [`Vtrr`](super::Vtrr).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VtrrParams {
    /// CPUs to divide, at least 1.
    pub cpus: u32,
    /// Length of a slice, 1 ns to 1 s.
    pub quantum: Nanos,
    /// When the time counters get a new cycle's worth.
    pub reset: Reset,
    /// How a client finds its place in the queue.
    pub insert: Insert,
    /// What a client may find when it is back in the cycle in which it left.
    pub rejoin: Rejoin,
}

impl Default for VtrrParams {
    fn default() -> Self {
        let (reset, insert, rejoin) = (Reset::default(), Insert::default(), Rejoin::default());
        Self { cpus: 1, quantum: Nanos::from_millis(10), reset, insert, rejoin }
    }
}

/// Why a client was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// There was no current client: the head.
    Start,
    /// All counters were used up: a new cycle, and the head.
    Reset,
    /// The end of the queue: the head.
    End,
    /// The next client's counter was larger than the current one's.
    Counter,
    /// The next client fulfilled the VFT inequality.
    Vft,
    /// It did not: back to the head.
    Back,
    /// The one that the rules chose is on another CPU, or a head that is due nothing: the first after it that may run.
    Passed,
}

/// How a client last found its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsertPath {
    /// Along the queue.
    Traverse,
    /// Between its last neighbours.
    Refs,
    /// At the end of its share's class.
    Class,
}
