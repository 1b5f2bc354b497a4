//! Policies by name: the list of them, the one reading of `name:key=value,...`, and the gates made of it.

mod factory;
mod gates;
mod span;
mod spec;

use divvy_policy::PolicyInfo;
use divvy_policy::gate::{GATES, KERNEL as KERNEL_GATE};

pub use divvy_policy::dispatch::{DISPATCHERS, MODELS};
pub use divvy_policy::gate::AnyGate;
pub use divvy_policy::{ParamError, Params, PolicyVisitor, Run};
pub use factory::{Policies, PolicyContext, PolicyError, PolicyFactory};
pub use gates::{CYCLE_LONGEST, CYCLE_MAX, Chosen, GateSpec, SpecError};
pub use span::Span;
pub use spec::{ParamValue, PolicySpec};

fn gates() -> impl Iterator<Item = &'static PolicyInfo> {
    GATES.iter().map(|entry| &entry.info)
}

/// Every policy there is: dispatchers, models, then gates.
pub fn all() -> impl Iterator<Item = &'static PolicyInfo> {
    DISPATCHERS.iter().chain(MODELS).copied().chain(gates())
}

/// Every policy that can schedule live processes: gates, then dispatchers.
pub fn live() -> impl Iterator<Item = &'static PolicyInfo> {
    gates().chain(DISPATCHERS.iter().copied())
}

/// What comes with the back end that divides by weights: a gate that holds nobody, and in no list.
pub const KERNEL: &str = KERNEL_GATE.info.name;

/// The policy called `name`.
#[must_use]
pub fn find(name: &str) -> Option<&'static PolicyInfo> {
    all().chain([&KERNEL_GATE.info]).find(|info| info.name == name)
}
