//! The clocks: monotonic time, and the CPU time of processes and threads.
//!
//! This is the one module of the workspace that reads a clock or sleeps; everything else is handed the time.
//!
//! A process's CPU clock is exact when the process runs on the reader's own CPU. While it runs on another one the
//! clock is brought up to date at that CPU's tick, so it may be up to a tick (4 ms at HZ=250) behind.

use divvy_policy::{Instant, Nanos};
use nix::time::ClockId;
use rustix::io::Errno;
use rustix::process::Pid;

use crate::{Error, Result};

/// The kernel's number for "scheduler time, in nanoseconds" in a CPU clock's id (`CPUCLOCK_SCHED`).
const CPUCLOCK_SCHED: libc::clockid_t = 2;

/// Now, in nanoseconds of `CLOCK_MONOTONIC`: since an unspecified start, never set, and standing still while the
/// machine sleeps.
#[must_use]
pub fn now() -> Instant {
    Instant(known(rustix::time::ClockId::Monotonic))
}

/// Now, in nanoseconds since boot, time asleep included (`CLOCK_BOOTTIME`): the clock of
/// [`StartTime`](crate::StartTime).
#[must_use]
pub fn since_boot() -> Nanos {
    Nanos(known(rustix::time::ClockId::Boottime))
}

/// Now, in nanoseconds since 1970 (UTC): what a calendar says. It can be set, and then go back.
#[must_use]
pub fn unix() -> Nanos {
    Nanos(known(rustix::time::ClockId::Realtime))
}

/// CPU time that this whole process has used.
#[must_use]
pub fn own_process_cpu() -> Nanos {
    Nanos(known(rustix::time::ClockId::ProcessCPUTime))
}

/// CPU time that the calling thread has used.
#[must_use]
pub fn own_thread_cpu() -> Nanos {
    Nanos(known(rustix::time::ClockId::ThreadCPUTime))
}

/// CPU time that process `pid` has used, over all of its threads, those that ended included; `None` if there is no
/// such process. Its children are not in it, waited for or not. Needs no privilege. One system call, about 0.2 us.
///
/// The answer is about whoever has the pid now: the caller holds a [`ProcessRef`](crate::ProcessRef), and a process
/// that is still alive in it after the reading is the one that was read.
///
/// # Errors
/// [`Error::System`] where the kernel refuses for any other reason.
pub fn process_cpu(pid: Pid) -> Result<Option<Nanos>> {
    match process_cpu_raw(pid) {
        Ok(used) => Ok(used),
        Err(cause) => Err(Error::system("read the CPU clock of process", pid, cause)),
    }
}

/// As [`process_cpu`], for places that may not allocate.
pub(crate) fn process_cpu_raw(pid: Pid) -> rustix::io::Result<Option<Nanos>> {
    match nix::time::clock_gettime(ClockId::from_raw(process_clock(pid))) {
        Ok(t) => Ok(Some(Nanos(nanos(t.tv_sec(), t.tv_nsec())))),
        Err(nix::errno::Errno::EINVAL | nix::errno::Errno::ESRCH) => Ok(None),
        Err(e) => Err(Errno::from_raw_os_error(e as i32)),
    }
}

/// The id of the CPU clock of `pid`, made as `clock_getcpuclockid(3)` makes it: the complement of the pid, shifted
/// over three bits that say "whole process" (0 in bit 2) and which of its clocks.
const fn process_clock(pid: Pid) -> libc::clockid_t {
    (!(pid.as_raw_nonzero().get() as libc::clockid_t) << 3) | CPUCLOCK_SCHED
}

/// Waits for `span`, at the least. For start-up, shutdown and tests; the engine waits in its timer.
#[expect(clippy::disallowed_methods, reason = "this module owns the clock")]
pub fn sleep(span: Nanos) {
    std::thread::sleep(std::time::Duration::from_nanos(span.0));
}

fn known(id: rustix::time::ClockId) -> u64 {
    let t = rustix::time::clock_gettime(id);
    nanos(t.tv_sec, t.tv_nsec)
}

/// Nanoseconds of a kernel time. These clocks are never negative and reach 2^64 ns after 584 years; saturates.
fn nanos(sec: i64, nsec: i64) -> u64 {
    (sec.max(0) as u64).saturating_mul(1_000_000_000).saturating_add(nsec.max(0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::getpid;

    #[test]
    fn the_made_clock_id_is_the_librarys() {
        let made = process_clock(getpid());
        let theirs = ClockId::pid_cpu_clock_id(nix::unistd::Pid::from_raw(getpid().as_raw_nonzero().get()));
        assert_eq!(ClockId::from_raw(made), theirs.expect("own clock"));
    }

    #[test]
    fn cpu_time_passes_while_computing_and_not_while_asleep() {
        let (process, thread) = (own_process_cpu(), own_thread_cpu());
        let mut x = 1_u64;
        while own_thread_cpu().saturating_sub(thread) < Nanos::from_millis(5) {
            x = std::hint::black_box(x.wrapping_mul(31));
        }
        assert!(own_process_cpu().saturating_sub(process) >= Nanos::from_millis(5));
        let outside = process_cpu(getpid()).expect("own clock").expect("alive");
        assert!(outside >= process + Nanos::from_millis(5) && outside <= own_process_cpu());

        let (thread, start) = (own_thread_cpu(), now());
        sleep(Nanos::from_millis(20));
        assert!(now().since(start) >= Nanos::from_millis(20));
        assert!(own_thread_cpu().saturating_sub(thread) < Nanos::from_millis(20));
    }

    #[test]
    fn nobody_has_no_clock() {
        // Beyond the kernel's greatest pid (2^22).
        let nobody = Pid::from_raw((1 << 22) + 1).expect("not zero");
        assert_eq!(process_cpu(nobody).expect("normal"), None);
    }
}
