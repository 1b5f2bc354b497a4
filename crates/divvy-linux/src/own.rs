//! What divvy asks the kernel for its own sake: to be woken in time, to stay in memory, to open many files, to adopt orphans.

use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use crate::{Error, Result};

/// Has the calling process come before ordinary ones, as far as that is permitted to it: a real-time priority, else the
/// best nice value that there is, for its session's autogroup too. Makes system calls only, and keeps the short slice of
/// [`ask_for_short_slices`] where nothing is permitted.
pub fn come_first() {
    // One more than whom it watches over, where that is permitted: it may never let go of the CPU.
    if [2, 1].into_iter().any(|priority| set_real_time(libc::SCHED_FIFO, priority)) {
        return;
    }
    // RLIMIT_NICE counts from 20 downwards: 40 allows -20, 0 allows 20 and so nothing.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nice).current.unwrap_or(40);
    let allowed = 20 - i32::try_from(limit.min(40)).unwrap_or(0);
    for nice in [-20, allowed] {
        if nice < 0 && rustix::process::setpriority_process(None, nice).is_ok() {
            let digit = |n: u32| b'0' + (n % 10) as u8;
            let n = nice.unsigned_abs();
            write_autogroup(&if n < 10 { [b'-', digit(n), b' '] } else { [b'-', digit(n / 10), digit(n)] });
            return;
        }
    }
}

/// Gives the calling thread the least real-time priority, which what it starts does not have, if that is permitted; says
/// whether it was. It takes turns with others of that priority. A system call and no more.
pub fn wake_at_once() -> bool {
    set_real_time(libc::SCHED_RR, 1)
}

/// Whether the calling thread has got a real-time priority, which what it starts does not have.
fn set_real_time(policy: libc::c_int, priority: libc::c_int) -> bool {
    // Under such a limit whoever goes on for long without a sleep is ended by the kernel.
    let limited = rustix::process::getrlimit(rustix::process::Resource::Rttime).current.is_some();
    !limited && set_scheduler(policy | libc::SCHED_RESET_ON_FORK, priority)
}

/// Has the calling process come after all others, in its session and, by that, on its CPU: no more than a tick's delay for
/// anybody, and a CPU that idles runs it at once. Makes system calls only.
pub fn come_last() {
    write_autogroup(b"19 ");
    // Where it is refused the process is like others.
    set_scheduler(libc::SCHED_IDLE, 0);
}

/// Whether the kernel has given the calling thread this scheduling policy. The kernel is asked itself: musl's function of
/// the name only fails.
fn set_scheduler(policy: libc::c_int, priority: libc::c_int) -> bool {
    // SAFETY: the kernel reads one int, which is what its `struct sched_param` is.
    unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) == 0 }
}

/// Without autogroups there is no such file. A space at the end is left out by the kernel.
fn write_autogroup(nice: &[u8]) {
    let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC;
    if let Ok(file) = rustix::fs::open(c"/proc/self/autogroup", flags, rustix::fs::Mode::empty()) {
        let _ = rustix::io::write(&file, nice);
    }
}

/// Keeps what the calling process uses, and will use, from being taken out of memory.
///
/// # Errors
/// [`Error::Permission`] where that is not permitted, to the end: with a limit of locked memory (ulimit -l) and without
/// CAP_IPC_LOCK, memory asked for later would be refused beyond it.
pub fn stay_in_memory() -> Result<()> {
    use rustix::mm::MlockAllFlags as Lock;
    let refused = |cause| {
        let fix = "where memory is short, divvyd answers late: give it CAP_IPC_LOCK";
        let object = "divvyd in memory".to_owned();
        Error::Permission { operation: "keep", object, fix, cause }
    };
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
    if limit.is_some() && !has_ipc_lock() {
        return Err(refused(Errno::PERM));
    }
    rustix::mm::mlockall(Lock::CURRENT | Lock::FUTURE | Lock::ONFAULT).map_err(refused)
}

/// Whether no limit of locked memory holds for the calling thread.
fn has_ipc_lock() -> bool {
    use rustix::thread::CapabilitySet;
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK))
}

/// Raises the limit of open files as far as it may go, and returns what it was.
///
/// # Errors
/// [`Error::System`] where the kernel refuses.
pub fn raise_open_files() -> Result<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let failed = |what| Error::system(what, "RLIMIT_NOFILE", last_errno());
    // SAFETY: the kernel writes one whole struct.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(failed("read the limit"));
    }
    let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
    // SAFETY: the kernel reads one whole struct.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } != 0 {
        return Err(failed("raise the limit"));
    }
    Ok(limit)
}

/// The limit of open files as it was when somebody last asked whether there is room for one more.
static OPEN_FILES: AtomicU64 = AtomicU64::new(0);

/// How many descriptors there may be above `fd`. The kernel gives the lowest that is free, so no more are left.
pub fn open_files_left(fd: BorrowedFd<'_>) -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    OPEN_FILES.store(limit, Ordering::Relaxed);
    limit.saturating_sub(above(fd))
}

/// As [`open_files_left`], by the limit that was read last: no system call but the first time.
pub fn open_files_thought_left(fd: BorrowedFd<'_>) -> u64 {
    match OPEN_FILES.load(Ordering::Relaxed) {
        0 => open_files_left(fd),
        limit => limit.saturating_sub(above(fd)),
    }
}

/// The number of descriptors up to `fd`.
fn above(fd: BorrowedFd<'_>) -> u64 {
    1 + u64::from(fd.as_raw_fd().unsigned_abs())
}

/// Makes this process the parent of descendants whose own parents have ended.
///
/// # Errors
/// [`Error::System`] where the kernel refuses.
pub fn adopt_orphans() -> Result<()> {
    // SAFETY: takes and returns numbers only.
    if unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } != 0 {
        return Err(Error::system("become the subreaper", "of our descendants", last_errno()));
    }
    Ok(())
}

pub(crate) fn last_errno() -> Errno {
    match nix::errno::Errno::last_raw() {
        0 => Errno::IO, // Nothing has failed yet: the caller's own result says which.
        raw => Errno::from_raw_os_error(raw),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use rustix::process::{Resource, getrlimit, setrlimit};
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

    use super::*;

    #[test]
    fn the_limit_of_open_files_is_known_before_anybody_has_asked() {
        let file = std::fs::File::open("/").expect("there is one");
        let thought = open_files_thought_left(file.as_fd());
        assert!(thought > 0);
        assert_eq!(thought, open_files_left(file.as_fd()));
    }

    /// As much as is there now could be locked, and what is asked for later would be refused.
    #[test]
    fn memory_is_not_locked_up_to_a_limit() {
        let before = getrlimit(Resource::Memlock);
        let wide = 1 << 40;
        let limit = before.maximum.map_or(wide, |most| most.min(wide));
        let mut sets = capabilities(None).expect("readable");
        let effective = sets.effective;
        sets.effective.remove(CapabilitySet::IPC_LOCK);
        set_capabilities(None, sets).expect("fewer may be had");
        setrlimit(Resource::Memlock, rustix::process::Rlimit { current: Some(limit), ..before })
            .expect("lower");
        let refused = stay_in_memory().expect_err("there is a limit").to_string();
        setrlimit(Resource::Memlock, before).expect("as it was");
        sets.effective = effective;
        set_capabilities(None, sets).expect("as it was");
        assert!(refused.contains("CAP_IPC_LOCK"), "{refused}");
    }
}
