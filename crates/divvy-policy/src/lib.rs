//! Scheduling policies as pure state machines: events in, decisions out.
//!
//! This crate never reads a clock, a process, a file or a random source that it was not handed; it allocates, and
//! does nothing else. Equal inputs give equal outputs, byte for byte.
//!
//! Two kinds of policy live here (`Policy::Decision` tells them apart):
//! - a **gate** ([`Gate`]) says which clients may run for now and leaves the fine slicing to whoever runs them;
//! - a **dispatcher** ([`Grant`]) says which client runs next on a free CPU, and for how long at the most.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod dispatch;
pub mod feasible;
pub mod gate;
mod limit;
pub mod params;
mod policy;
mod registry;
mod units;

pub use limit::{CpuLimit, LimitError};
pub use params::{ParamError, Params, Run};
pub use policy::{Event, EventError, Gate, Grant, Policy};
use registry::param;
pub use registry::{
    Cycle, Dispatch, Domain, Given, Kind, Listed, ParamInfo, PolicyInfo, PolicyVisitor, RangeError, words,
};
pub use units::{ClientId, CpuId, Instant, Nanos, Share, ShareError, TimeError, gcd, gcd_wide};

/// What the README shows, tried.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
