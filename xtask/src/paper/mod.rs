//! The papers' experiments: ALPS, superd and the market's over live processes, VTRR and PBS by simulation; groups of
//! processes; divvy beside its peers; and real programs.

pub(crate) mod alps;
mod areas;
pub(crate) mod cluster;
pub(crate) mod cpus;
mod experiment;
pub(crate) mod groups;
pub(crate) mod isolation;
pub(crate) mod kernel;
pub(crate) mod machine;
pub(crate) mod market;
mod page;
pub(crate) mod pbs;
pub(crate) mod peers;
mod plot;
mod png;
pub(crate) mod real;
pub(crate) mod services;
mod simulated;
pub(crate) mod stats;
pub(crate) mod superd;
pub(crate) mod vtrr;

use divvy_engine::policies::GateSpec;

use experiment::{Experiment, Part};

/// An [`Experiment`] over live processes.
type Setting = Experiment;

/// A gate on one CPU with the shares as they are given.
fn gate(policy: &str, quantum_ms: u64) -> GateSpec {
    GateSpec {
        policy: policy.to_owned(),
        quantum_ns: quantum_ms * 1_000_000,
        scale_shares: false,
        ..GateSpec::default()
    }
}
