//! Every system call of divvy: reading processes and clocks, signalling through pidfds, and the guardian that resumes
//! whatever divvy suspended.
//!
//! This crate never decides who runs: it does what a policy decided and reports what came of it. It never signals a
//! process whose identity (pid and start time) it has not checked behind an open pidfd, and never changes anything
//! lasting about a process but whether it may run.
//!
//! A process that vanished is a normal answer everywhere (`Ok(None)`, [`Delivery::Gone`]), never an error.

mod affinity;
mod aide;
mod attach;
pub mod background;
mod census;
pub mod cgroup;
mod clients;
pub mod clock;
mod cpu_times;
mod doctor;
mod error;
mod events;
pub mod front;
pub mod guard;
mod host;
mod lanes;
mod members;
mod mounts;
mod own;
mod owner;
mod peer;
mod perf;
pub mod pidfd;
pub mod procfs;
mod protect;
pub mod quota;
mod reactor;
mod root_made;
mod sched_ext;
mod select;
#[cfg(test)]
#[path = "../tests/common/skip.rs"]
mod skip;
mod slice;
mod spawn;
pub mod stack;
pub mod stand_in;
pub mod stdio;
mod steer;
mod world;

pub use affinity::{CpuListError, CpuMask};
pub use attach::{AttachFor, KnownMember, Match, MemberInfo, Membership, Source};
pub use cpu_times::CpuTimes;
pub use divvy_engine::Exit;
pub use doctor::{Finding, Status, doctor};
pub use error::{Error, Result, limit_fix, room_fix};
pub use host::{HostParams, LinuxHost, Warning, check_cpus, cpus_to_divide};
pub use nix::sys::signal::Signal as Asked;
pub use owner::{Users, users};
pub use peer::peer_groups;
pub use pidfd::{Delivery, GroupDelivery, ProcessRef};
pub use procfs::{StartTime, State};
pub use protect::{Explanation, Protection, Why, explain};
pub use reactor::Waker;
pub use rustix::process::{Pid, Signal};
pub use select::{
    Selector, SelectorError, group_id, group_name, matches_glob, user_group, user_id, user_name,
};
pub use spawn::Command;

/// What the README shows, tried.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
