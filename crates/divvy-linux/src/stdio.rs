//! Which standard streams were there when this process was started.
//!
//! Rust's runtime puts /dev/null in the place of standard streams that are closed (`>&-`), so that no file that is opened later gets
//! their number: from `main` on, what is written there is lost and nothing fails. /dev/null may as well be meant. So it is
//! looked before the runtime begins, as constructors of a program are called.

use std::io::{self, Stdout, Write as _};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

static STDOUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);
/// Which of the three had no file, by bits.
static WERE_CLOSED: AtomicU8 = AtomicU8::new(0);

/// Called by the loader, before Rust's runtime.
#[used]
// SAFETY: the section is one of pointers to functions of this form (the C library hands over arguments that are not taken); this one
// makes system calls and writes to memory that is there from the start.
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    for fd in libc::STDIN_FILENO..=libc::STDERR_FILENO {
        // SAFETY: it only asks for a number's flags, whatever that is.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        if flags == -1 {
            WERE_CLOSED.fetch_or(1 << fd, Ordering::Relaxed);
        }
        // What is open to be read (`1<FILE`) takes nothing either, and Rust's library says that it did.
        if fd == libc::STDOUT_FILENO && (flags == -1 || flags & libc::O_ACCMODE == libc::O_RDONLY) {
            STDOUT_WAS_CLOSED.store(true, Ordering::Relaxed);
        }
    }
}

/// Whether whoever started this process left it no standard output.
#[must_use]
pub fn stdout_was_closed() -> bool {
    STDOUT_WAS_CLOSED.load(Ordering::Relaxed)
}

/// Standard output, for whatever is written there.
///
/// # Errors
/// `EBADF` where it was closed: it is nobody's then, though nothing that is written there fails.
pub fn stdout() -> io::Result<Stdout> {
    if stdout_was_closed() { Err(io::Error::from_raw_os_error(libc::EBADF)) } else { Ok(io::stdout()) }
}

/// Has `print` write to standard output what was asked for. A reader that has gone (`| head`) has had enough, and is no error.
///
/// # Errors
/// As [`stdout`], and where it cannot be written: whoever asked has not got it.
pub fn print_by(print: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let mut out = stdout()?;
    match print().and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}

/// Has programs that are started from here on find closed what we found closed, rather than the runtime's /dev/null: what they
/// write there fails, as it would without us.
pub fn hand_on_closed() {
    let closed = WERE_CLOSED.load(Ordering::Relaxed);
    for fd in (libc::STDIN_FILENO..=libc::STDERR_FILENO).filter(|fd| closed & 1 << fd != 0) {
        // SAFETY: the runtime keeps the number open for good; whoever is given another file for it gets that without the flag.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}
