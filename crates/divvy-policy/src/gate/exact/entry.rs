//! What `exact` tells about itself, and how it is made of what a user gave.

use super::{Exact, ExactParams};
use crate::gate::{AnyGate, GateEntry, GateError, Lag, QUANTUM_MAX, QUANTUM_MIN};
use crate::{Cycle, Domain, Params, PolicyInfo, Run, param};

/// `exact` for the list of policies.
pub const EXACT: GateEntry = GateEntry {
    info: PolicyInfo {
        name: "exact",
        summary: "Event-driven proportional share: one client released for each CPU, charged to the nanosecond",
        complexity: "O(due clients) a wake-up; O(log n) with slices or several CPUs",
        source: "divvy; after ALPS, sections 3 and 4",
        params: &[
            param!(
                "quantum",
                Domain::Quantum(QUANTUM_MIN, QUANTUM_MAX),
                "10ms",
                "CPU time of one share in one cycle"
            ),
            param!(
                "slice",
                Domain::Form("none, or 1ms or more"),
                "none",
                "longest run in one go; none runs a whole allowance, short slices even it out for more signals"
            ),
            param!(
                "presence",
                Domain::Whole(1, 64),
                "1",
                "clients released for each CPU: how many processes strangers compete with"
            ),
        ],
        capped: true,
        cycle: Cycle::Given,
        ..PolicyInfo::GATE
    },
    make,
};

/// Exact on one CPU, [`Lag`] on several.
fn make(params: &Params<'_>) -> Result<AnyGate, GateError> {
    let slice = |text: &str| match text {
        "none" => Some(None),
        time => time.parse().ok().map(Some),
    };
    // Who says what a share is worth means it.
    let quantum = params.time("quantum")?;
    let own = quantum != params.run().quantum;
    let Run { cpus, scale, share_time, cycle_max, .. } = *params.run();
    let exact = ExactParams {
        quantum,
        cpus,
        scale,
        slice: params.form("slice", slice)?,
        presence: params.whole("presence")?,
        share_time,
        cycle_max: cycle_max.filter(|_| !own),
    };
    if cpus > 1 { Ok(AnyGate::new(Lag::new(exact)?)) } else { Ok(AnyGate::new(Exact::new(exact)?)) }
}
