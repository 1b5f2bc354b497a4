//! A deterministic simulator of CPUs, workloads and scheduling policies.
//!
//! Equal inputs give equal outputs, byte for byte: nothing here reads a clock, a file, the environment or a random
//! source without a seed, and nothing starts a thread. Who wants a scenario from a file reads the file; who wants
//! replications in parallel runs the [`study::Item`]s on threads, in any order.
//!
//! - [`live`]: a simulated machine beneath the engine that runs live: a gate above a kernel's scheduler.
//! - [`machine`]: CPUs that a dispatcher divides, event by event.
//! - [`workload`]: programs, users, open arrivals, traces.
//! - [`metrics`]: exact service errors, response times, fairness, confidence intervals.
//! - [`policies`]: every policy by name.
//! - [`scenario`]: all of it in a file; [`simulate`] runs one, [`study`] many.
//! - [`analytic`]: what queueing theory says about some of them.
#![forbid(unsafe_code)]

pub mod analytic;
pub mod live;
pub mod machine;
pub mod metrics;
pub mod output;
pub mod policies;
pub mod rng;
pub mod scenario;
pub mod simulate;
pub mod study;
mod two_level;
pub mod workload;

/// What the README shows, tried.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
