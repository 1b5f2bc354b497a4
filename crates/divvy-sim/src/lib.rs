//! Deterministic simulation: CPUs, workloads and the policies that divide them.
#![forbid(unsafe_code)]

pub mod live;
