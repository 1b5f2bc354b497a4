//! The loop between a gate, which decides, and a host, which enforces: the same over a simulated machine and a live one.
//!
//! This crate knows no syscall, no clock and no process. It never decides: it asks the policy, carries its decisions
//! out through a [`Host`], feeds what happened back as events, accounts for every nanosecond used, by the clients and
//! by itself, and records all of it on request, so that a run can be replayed.
#![forbid(unsafe_code)]

pub mod chrome;
mod engine;
mod host;
mod ledger;
pub mod policies;
pub mod portion;
mod session;
mod timeline;
mod trace;
mod window;

pub use engine::{Engine, EngineError, Lost};
pub use host::{Host, HostError, News, Observed, SelfCost, take_width};
pub use ledger::{ClientLedger, CycleErrors, CycleStats, Ledger, Standing};
pub use session::{ClientState, Exit, Session};
pub use timeline::{ClientTimeline, CycleEnd, Playback, PlaybackError, Stretch, Timeline};
pub use trace::{Divergence, Recorder, TRACE_VERSION, Trace, TraceHeader, TraceLine, TraceReader, replay};
pub use window::Window;

/// What the README shows, tried.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
