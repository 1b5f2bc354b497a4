//! Small processes of our own, forked and not executed: what the guardian and the listener have in common.
//!
//! The owner may have threads; of a forked process only the forking thread goes on, and a lock that another held stays
//! locked for ever. So the code from the fork on allocates nothing, takes no lock, cannot panic, and makes system calls only.
//! An aide's parent is not told of its end by SIGCHLD, and `waitpid(-1)` does not see it (it is a "clone child" to the
//! kernel): an owner that reaps strangers does not meet it. Its end shows in its pidfd alone.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;

use crate::error::last_errno;
use crate::pidfd;

/// The owner's handle of an aide. Dropping it leaves the aide as it is.
#[derive(Debug)]
pub(crate) struct Aide {
    fd: OwnedFd,
    pid: Pid,
}

impl Aide {
    /// Forks a process that does nothing but `live`, with every signal blocked from its first instruction on.
    ///
    /// # Errors
    /// What the kernel says where it gives no process or descriptor.
    pub(crate) fn fork<T>(duty: &mut T, live: extern "C" fn(&mut T) -> !) -> rustix::io::Result<Self> {
        use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
        let errno = |e: nix::errno::Errno| Errno::from_raw_os_error(e as i32);
        let mut before = SigSet::empty();
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut before)).map_err(errno)?;
        let forked = Self::fork_here(duty, live);
        // Only the owner comes here.
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None).map_err(errno)?;
        forked
    }

    fn fork_here<T>(duty: &mut T, live: extern "C" fn(&mut T) -> !) -> rustix::io::Result<Self> {
        let mut fd: libc::c_int = -1;
        let none = std::ptr::null_mut::<libc::c_void>();
        // No signal number in the flags' low byte: a child that tells nobody of its end. The library's `fork` would set
        // SIGCHLD and run handlers that are of no use to a process that calls the kernel only.
        //
        // SAFETY: with neither CLONE_VM nor a stack this is a fork: the child runs on its own copy of this stack. It
        // calls nothing but `live`, which never returns and is made of system calls.
        let pid = unsafe {
            libc::syscall(libc::SYS_clone, libc::CLONE_PIDFD as libc::c_ulong, none, &raw mut fd, none, none)
        };
        match pid {
            0 => live(duty),
            -1 => Err(last_errno()),
            pid => {
                // SAFETY: the kernel has just made this descriptor for us.
                let fd = unsafe { OwnedFd::from_raw_fd(fd) };
                let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
                Ok(Self { fd, pid })
            }
        }
    }

    /// Its pid. It is a child of the owner, and nobody's client.
    pub(crate) const fn pid(&self) -> Pid {
        self.pid
    }

    /// Kills and reaps it.
    ///
    /// # Errors
    /// What the kernel says where it cannot be killed or waited for.
    pub(crate) fn end(&self) -> rustix::io::Result<()> {
        pidfd::signal_raw(self.as_fd(), rustix::process::Signal::KILL)?;
        loop {
            // SAFETY: an all-zero `siginfo_t` is a value of it.
            let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
            // SAFETY: the descriptor is open for the call and `info` is ours to be written to.
            let waited = unsafe {
                libc::waitid(
                    libc::P_PIDFD,
                    self.fd.as_raw_fd() as libc::id_t,
                    &mut info,
                    libc::WEXITED | libc::__WALL,
                )
            };
            if waited == 0 {
                return Ok(());
            }
            match last_errno() {
                // Somebody has reaped it for us.
                Errno::CHILD => return Ok(()),
                Errno::INTR => {}
                e => return Err(e),
            }
        }
    }
}

impl AsFd for Aide {
    /// Its pidfd: readable once it has died.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// In an aide: leaves the owner's session, terminal, pipes and directory, and keeps only two descriptors. Each step is as good
/// as it can be done: an aide that could not open `/dev/null` is still one.
pub(crate) fn settle(keep: [BorrowedFd<'_>; 2], name: &CStr) {
    let _ = rustix::process::setsid();
    let (a, b) = (keep[0].as_raw_fd() as u32, keep[1].as_raw_fd() as u32);
    let (low, high) = (a.min(b), a.max(b));
    for (first, last) in [(0, low.wrapping_sub(1)), (low + 1, high.wrapping_sub(1)), (high + 1, u32::MAX)] {
        // `wrapping_sub` of 0 makes an empty range: nothing is below descriptor 0.
        if first <= last && !(first == 0 && low == 0) {
            close_range(first, last);
        }
    }
    // The lowest free numbers are given first: 0, 1 and 2, unless the owner kept our two there.
    for _ in 0..3 {
        if let Ok(null) = rustix::fs::open(c"/dev/null", OFlags::RDWR, Mode::empty()) {
            let _ = std::os::fd::IntoRawFd::into_raw_fd(null);
        }
    }
    let _ = rustix::process::chdir(c"/");
    let _ = rustix::thread::set_name(name);
}

/// Closes every descriptor from `first` to `last`.
fn close_range(first: u32, last: u32) {
    // SAFETY: closes descriptors of this process alone; the two that are in use are outside of the range.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if done != 0 {
        // Before Linux 5.9. Descriptors above the limit of today can be left from a higher one; that many do not occur.
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(1 << 20);
        for fd in first..last.min(u32::try_from(limit).unwrap_or(1 << 20)) {
            // SAFETY: as above.
            unsafe { libc::close(fd as libc::c_int) };
        }
    }
}
