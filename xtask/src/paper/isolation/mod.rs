//! Isolation with Flexibility, sections 5.3 to 5.5: memory, disks and exchanges, enforced by the kernel in the test machine.

mod tasks;

pub(crate) use tasks::task;

/// The hidden subcommand that is one of the paper's tasks.
pub(crate) const TASK: &str = "isolation-task";
