//! What the kernel's perf events tell of the processes that we start, so that nothing has to be looked for in `/proc`.
//!
//! - [`TreeCounter`]: one counter for a command and all its descendants, daemons and the dead included. One read gives
//!   the CPU time of all of them, to the nanosecond, whichever CPUs they run on. It cannot count twice.
//! - [`Lineage`]: every fork and exit below this process, in order, without a scan. A process that left its session, its group
//!   and its environment behind is somebody's descendant all the same.
//!
//! Both are to be had without privilege where `kernel.perf_event_paranoid` is 2 or less (the kernel's own default; Debian
//! and Ubuntu set 3 and 4) and no seccomp filter forbids `perf_event_open`. Kernel time is counted by a software clock even where
//! `exclude_kernel` is set, which an ordinary user has to set.
//!
//! What they do not tell: processes that we did not start (attached clients), and what a set-user-id program uses, from
//! which the kernel takes a user's events away.

mod counter;
mod heard;
mod lineage;
mod switches;

pub use counter::{CounterSeed, TreeCounter};
pub use heard::Told;
pub use lineage::{Lineage, Relation};
pub use switches::{SwitchEvent, Switches};

/// The variable that keeps us from what there is for accounts: `clocks` from perf events and cgroups' books, `perf` from these.
const VARIABLE: &str = "DIVVY_ACCOUNTS";

/// Whether perf events may be used: `DIVVY_ACCOUNTS=clocks` in the environment says that they may not, so that clocks and
/// scans, which serve where the kernel refuses them, can be had anywhere.
#[must_use]
pub fn is_allowed() -> bool {
    !says(&["clocks"])
}

/// Whether cgroups' books may be used where there are any, by the same variable.
#[must_use]
pub fn cgroups_are_allowed() -> bool {
    !says(&["clocks", "perf"])
}

#[expect(clippy::disallowed_methods, reason = "a setting of the host, read once at its start")]
fn says(words: &[&str]) -> bool {
    std::env::var_os(VARIABLE).is_some_and(|value| words.iter().any(|word| value == *word))
}
