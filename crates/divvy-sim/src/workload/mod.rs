//! Who wants the CPU, when, and for how long.

mod dist;
mod mix;
mod rtapp;
mod shares;
mod trace;

pub use dist::Dist;
pub use mix::{Action, Endless, Job, Mix, Population, Program, Script, Source, Step, Users};
pub use rtapp::{RtApp, RtAppError, parse_rt_app};
pub use shares::random_shares;
pub use trace::{TraceError, parse_jobs};
