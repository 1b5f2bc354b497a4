//! divvy's policies as CPU schedulers of the kernel, through sched_ext: what `divvy-scx` is made of.
//!
//! *BPF* (`bpf/`): `core.h` and what it includes are the policies, `divvy.bpf.c` is what the kernel calls: queues, charging,
//! who is whose client. *Rust*: who the clients are and what their shares are ([`shares`]), loading, watching and letting
//! go ([`scheduler`]), what another process can see of it ([`status`]), and the kernel's reasons in words ([`left`]).
//!
//! Whatever ends the loader ends the scheduler: the kernel takes its own again when the last descriptor is closed.

pub mod args;
mod bpf;
pub mod cgroup;
mod clock;
mod cpus;
pub mod failure;
pub mod left;
mod logs;
pub mod policy;
pub mod scheduler;
pub mod shares;
pub mod status;

pub use logs::log_rows;
