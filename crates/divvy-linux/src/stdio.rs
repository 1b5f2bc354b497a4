//! Whether standard output was there when this process was started.
//!
//! Rust's runtime puts /dev/null in the place of standard streams that are closed (`>&-`), so that no file that is opened later gets
//! their number: from `main` on, what is written there is lost and nothing fails. /dev/null may as well be meant. So it is
//! looked before the runtime begins, as constructors of a program are called.

use std::sync::atomic::{AtomicBool, Ordering};

static STDOUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Called by the loader, before Rust's runtime.
#[used]
// SAFETY: the section is one of pointers to functions of this form (the C library hands over arguments that are not taken); this one
// makes a system call and writes to memory that is there from the start.
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: it only asks for a number's flags, whatever that is.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFL) };
    // What is open to be read (`1<FILE`) takes nothing either, and Rust's library says that it did.
    let is_none = flags == -1 || flags & libc::O_ACCMODE == libc::O_RDONLY;
    STDOUT_WAS_CLOSED.store(is_none, Ordering::Relaxed);
}

/// Whether whoever started this process left it no standard output.
#[must_use]
pub fn stdout_was_closed() -> bool {
    STDOUT_WAS_CLOSED.load(Ordering::Relaxed)
}
