//! Crash safety: whatever becomes of divvy, nothing that it suspended stays suspended.
//!
//! Three parts stand behind one another:
//! 1. the [`Table`] of held processes, a file that divvy (the *owner*) maps and writes *before* it suspends anything:
//!    it is the journal that outlives everybody;
//! 2. the [`Guardian`], a small process forked from the owner, that maps the same table, watches the owner's pidfd and
//!    heartbeat, and resumes everything held when the owner dies or hangs;
//! 3. [`rescue()`], which finds the tables of dead owners and repairs what they left: for the case that owner and
//!    guardian died together. Every start of divvy calls it, and `divvy rescue` does nothing else.
//!
//! What the owner has to do: [`Table::set_held`] before SIGSTOP and after SIGCONT; [`Table::beat`] at least every
//! [`BEAT_INTERVAL`]; on each wake-up compare [`Table::generation`] with the last one seen and, where it rose, hold
//! anew whatever should be held; when the guardian's pidfd becomes readable, [`Guardian::respawn`].
//!
//! What none of this can prevent: when an owner dies, the kernel itself sends SIGHUP and then SIGCONT to each process
//! group that thereby loses its last parent in its session while members of it stand (POSIX's orphaned groups). A client that
//! the owner started in its own session is not left suspended then, but hung up. One in a session of its own is not.

mod dir;
mod guardian;
mod rescue;
mod table;
mod tree;
mod walk;

pub use dir::{Environment, RuntimeDir, SYSTEM_DIR};
pub use guardian::{BEAT_INTERVAL, Guardian, HUNG_AFTER, STOPPED_AFTER};
pub use rescue::{Failure, Report, rescue, rescue_with};
pub use table::{CAPACITY, Place, Reach, SavedAffinity, Slot, Table};
#[cfg(test)]
pub(crate) use table::{SlotImage, View};
pub(crate) use tree::TreeCells;
pub use walk::{Identity, Live, Processes};
