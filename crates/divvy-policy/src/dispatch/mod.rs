//! Dispatchers: which client runs next on a free CPU, and for how long at the most.

mod engine;
mod fair;
mod rounds;

pub mod drr;
pub mod error;
pub mod lottery;
pub mod rng;
pub mod static_run;
pub mod stride;
pub mod vtime;
pub mod vtrr;
pub mod wf2q;
pub mod wfq;
pub mod wrr;

pub use engine::ParamError;
