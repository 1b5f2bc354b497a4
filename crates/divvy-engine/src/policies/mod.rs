//! Policies by name: the registry, the one reading of `name:key=value,...`, and the gates made of it.
//!
//! A parameter is checked twice: its form here, its range by the policy's own constructor. Both answers name the
//! parameter. Where `quantum`, `tick` or `slice` of a dispatcher is not set, the run's quantum stands for it.

mod factory;
mod fair;
mod gates;
mod params;
mod pbs;
mod span;
mod spec;

use divvy_policy::PolicyInfo;
use divvy_policy::dispatch::{
    drr, eevdf, fcfs, gps, las, linux22, lottery, mlfb, pbs as pbs_policy, pbs_fluid, rr, stride, vtrr, wf2q,
    wfq, wrr,
};
use divvy_policy::gate::{ALPS_BASIC_INFO, ALPS_INFO, KERNEL_INFO, RATE_INFO, exact};

pub use factory::{Dispatch, Policies, PolicyContext, PolicyError, PolicyFactory, PolicyVisitor};
pub use gates::{AnyGate, BoxedGate, GateSpec, SpecError};
pub use params::{ParamError, Params};
pub use span::Span;
pub use spec::{ParamValue, PolicySpec};

/// The gates there are, the default first.
pub const GATES: [&PolicyInfo; 4] = [&exact::INFO, &ALPS_INFO, &ALPS_BASIC_INFO, &RATE_INFO];

/// Dispatchers, as [`Policies`] makes them. Each also makes a gate ([`divvy_policy::gate::dispatched`]).
pub const DISPATCHERS: [&PolicyInfo; 14] = [
    &vtrr::INFO,
    &pbs_policy::INFO,
    &wrr::INFO,
    &drr::INFO,
    &wfq::INFO,
    &wf2q::INFO,
    &stride::INFO,
    &lottery::INFO,
    &fcfs::INFO,
    &rr::INFO,
    &las::INFO,
    &mlfb::INFO,
    &linux22::INFO,
    &eevdf::INFO,
];

/// Fluid models, which only a simulation takes in a dispatcher's place.
pub const MODELS: [&PolicyInfo; 2] = [&gps::INFO, &pbs_fluid::INFO];

/// Parameters of dispatchers for which the run's quantum stands where they are not set.
pub const QUANTA: [&str; 3] = ["quantum", "tick", "slice"];

/// Every policy there is: dispatchers, models, then gates.
pub fn all() -> impl Iterator<Item = &'static PolicyInfo> {
    DISPATCHERS.into_iter().chain(MODELS).chain(GATES)
}

/// Every policy that can schedule live processes: gates, then dispatchers.
pub fn live() -> impl Iterator<Item = &'static PolicyInfo> {
    GATES.into_iter().chain(DISPATCHERS)
}

/// What comes with the back end that divides by weights: a gate that holds nobody, and in no list.
pub const KERNEL: &str = KERNEL_INFO.name;

/// The policy called `name`.
#[must_use]
pub fn find(name: &str) -> Option<&'static PolicyInfo> {
    all().chain([&KERNEL_INFO]).find(|info| info.name == name)
}
