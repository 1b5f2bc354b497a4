//! Dispatchers: policies that say which client runs next on a free CPU, and for how long.
//!
//! One module a policy, each with its `INFO`. A grant for a CPU that has not been handed back takes it from its
//! client: the driver charges that client first, then lets the other one run. No CPU is granted before its first
//! [`Event::Free`](crate::Event::Free).

pub mod eevdf;
pub mod fcfs;
pub mod fixed;
mod float;
mod frame;
pub mod gps;
pub mod las;
pub mod linux22;
pub mod mlfb;
pub mod pbs;
pub mod pbs_fluid;
mod pbs_params;
mod ring;
pub mod rr;
