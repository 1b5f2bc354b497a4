//! The machine beneath a gate: a deterministic [`Host`], so that the engine that runs live also runs here.
//!
//! **Problem.** Two schedulers stand one above the other: a gate lets clients run, and a kernel slices among those.
//! What comes of it depends on ticks, placement, late wake-ups and whatever goes wrong; a live machine shows a
//! different mixture of them every time.
//!
//! **Idea.** Simulate the kernel just as far as a gate can feel it, to the nanosecond and from a seed: equal machines
//! and programs give equal traces, byte for byte.
//!
//! **Model.** Each CPU has a queue ordered by virtual run time; a switch happens when a thread blocks, at a tick, or
//! when one wakes that is 1 ms behind. Threads follow [`Program`]s. The scheduler sleeps, wakes late by a seeded
//! [`Latency`], and takes the CPU time of its operations from CPU 0. [`Steal`] stops everybody; a [`Fault`] happens at
//! the time it was scheduled for.
//!
//! **Weak spots.** Threads of one client do not wait for each other; a context switch, cache or turbo costs nothing;
//! the scheduler is never preempted in the middle of an operation, except by stolen time.

mod host;
mod kernel;
mod program;
mod spec;

pub use host::SimHost;
pub use kernel::MachineStats;
pub(crate) use kernel::Seen;
pub use program::{Program, Step};
pub use spec::{ClockLag, Costs, Fault, FaultAt, Latency, MachineSpec, Placement, Steal};

#[cfg(doc)]
use divvy_engine::Host;
