//! Dispatchers: policies that say which client runs next on a free CPU, and for how long at the most.
//!
//! One module a policy, each [`Listed`](crate::Listed): a rule within the one dispatcher (`dispatcher.rs`). A client
//! that blocks on its CPU stays there until the CPU is handed back, and is granted no other meanwhile. A grant for a CPU
//! that has not been handed back takes it from its client: the driver charges that client first, then lets the other one
//! run. No CPU is granted before its first [`Event::Free`](crate::Event::Free).

mod dispatcher;
mod fair;
mod float;
mod pbs_params;
mod ring;
mod rounds;

pub mod drr;
pub mod eevdf;
pub mod fcfs;
pub mod fixed;
pub mod gps;
pub mod las;
#[cfg(test)]
mod lifo;
pub mod linux22;
pub mod lottery;
pub mod mlfb;
pub mod pbs;
pub mod pbs_fluid;
pub mod rng;
pub mod rr;
pub mod service_error;
pub mod static_run;
pub mod stride;
pub mod vtime;
pub mod vtrr;
pub mod wf2q;
pub mod wfq;
pub mod wrr;

/// Fluid models, which only a simulation takes in a dispatcher's place.
pub const MODELS: &[&crate::PolicyInfo] = &[&gps::INFO, &pbs_fluid::INFO];

crate::registry::dispatchers! {
    vtrr::Vtrr,
    pbs::Pbs,
    wrr::Wrr,
    drr::Drr,
    wfq::Wfq,
    wf2q::Wf2q,
    stride::Stride,
    lottery::Lottery,
    fcfs::Fcfs,
    rr::Rr,
    las::Las,
    mlfb::Mlfb,
    linux22::Linux22,
    eevdf::Eevdf,
}
