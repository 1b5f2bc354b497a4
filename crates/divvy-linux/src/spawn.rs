//! Starting a command in a process group, or session, of its own, and waiting for children.

use std::ffi::OsString;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Stdio;

use nix::sys::signal::{SigSet, SigmaskHow};

use divvy_policy::Nanos;

use crate::affinity::CpuMask;
use crate::perf::{CounterSeed, TreeCounter};
use crate::slice::Slice;
use crate::{Error, Pid, ProcessRef, Result};
use divvy_engine::Exit;

/// A command to start.
#[derive(Debug, Default)]
pub struct Command {
    /// Program and arguments; the program is looked up in `PATH` unless it has a slash.
    pub argv: Vec<OsString>,
    /// Working directory; ours if `None`.
    pub dir: Option<PathBuf>,
    /// Variables to set beside our own.
    pub env: Vec<(OsString, OsString)>,
    /// Where standard output goes; ours if `None`.
    pub stdout: Option<OwnedFd>,
    /// Where standard error goes; ours if `None`.
    pub stderr: Option<OwnedFd>,
    /// The CPUs that it may use, it and what it starts; those of all if `None`.
    pub cpus: Option<CpuMask>,
    /// Whether it gets a session of its own (and loses the terminal) rather than only a process group. It survives us while it
    /// stands suspended only if we are not in its session: the kernel sends SIGHUP to a stopped process group that becomes
    /// orphaned in its session. So it does in one that we leave afterwards (`Link::leave_commands`).
    pub own_session: bool,
}

/// What every child gets that divvy itself has changed or narrowed.
#[derive(Clone, Copy, Debug)]
pub struct Inherit {
    /// The signal mask from before divvy took signals.
    pub mask: SigSet,
    /// The limit of open files from before divvy raised it.
    pub files: Option<libc::rlimit>,
    /// The CPUs that it may use; unchanged if `None`.
    pub cpus: Option<CpuMask>,
    /// The slice from before divvy asked for a shorter one.
    pub slice: Option<Slice>,
    /// The CPU on which the kernel is to tell of its switches.
    pub switches: Option<u32>,
}

/// A command that was started.
#[derive(Debug)]
pub struct Spawned {
    /// Its first process.
    pub leader: ProcessRef,
    /// The counter of its CPU time, and of that of all its descendants.
    pub counter: Option<TreeCounter>,
    /// The event of its switches.
    pub switches: Option<OwnedFd>,
}

/// Starts `command` as the leader of a new process group. Standard input is `/dev/null`: several commands cannot share
/// a keyboard. The child is ours to wait for. Where there are `leaves`, the `cgroup.procs` of cgroups, it goes there
/// before it becomes the command: none of its children is ever elsewhere. With `counted`, a counter of its CPU time and that
/// of all its descendants comes back, where the kernel gives one.
///
/// # Errors
/// [`Error::Spawn`] where it cannot be executed.
pub fn spawn(
    command: Command,
    inherit: &Inherit,
    leaves: &[BorrowedFd<'_>],
    counted: bool,
) -> Result<Spawned> {
    let failed = |e: std::io::Error, argv: &[OsString]| {
        let name = argv.first().cloned().unwrap_or_default().to_string_lossy().into_owned();
        Error::Spawn { command: name, cause: e }
    };
    let Some((program, args)) = command.argv.split_first() else {
        return Err(failed(std::io::ErrorKind::InvalidInput.into(), &command.argv));
    };
    let mut process = std::process::Command::new(program);
    process.args(args).stdin(Stdio::null()).envs(command.env.iter().map(|(k, v)| (k, v)));
    if let Some(dir) = &command.dir {
        process.current_dir(dir);
    }
    if let Some(fd) = command.stdout {
        process.stdout(fd);
    }
    if let Some(fd) = command.stderr {
        process.stderr(fd);
    }
    let (inherit, own_session) = (*inherit, command.own_session);
    let cpus = command.cpus.or(inherit.cpus);
    // The child has its own copy until it executes the command, and the number is open for as long as we are here.
    let leaves: Vec<_> = leaves.iter().map(|leaf| leaf.as_raw_fd()).collect();
    let seed = if counted { CounterSeed::new() } else { None };
    let childs_end = seed.as_ref().map(CounterSeed::childs_end);
    // SAFETY: between fork and exec the closure makes only async-signal-safe system calls, and allocates nothing.
    unsafe {
        process.pre_exec(move || {
            for &leaf in &leaves {
                // SAFETY: the caller keeps the descriptor open until the child was made.
                rustix::io::write(BorrowedFd::borrow_raw(leaf), b"0")?; // 0 is whoever writes.
            }
            if own_session {
                rustix::process::setsid()?;
            } else {
                rustix::process::setpgid(None, None)?;
            }
            if let Some(cpus) = cpus {
                cpus.apply_raw(rustix::process::getpid())?;
            }
            if let Some(files) = inherit.files {
                // SAFETY: the limit is a whole, live struct.
                libc::setrlimit(libc::RLIMIT_NOFILE, &files);
            }
            if let Some(slice) = inherit.slice {
                slice.restore();
            }
            nix::sys::signal::sigprocmask(SigmaskHow::SIG_SETMASK, Some(&inherit.mask), None)?;
            if let Some(end) = childs_end {
                // SAFETY: the child has its own copy of the pair, which its parent keeps until it has been made.
                CounterSeed::sow(BorrowedFd::borrow_raw(end), inherit.switches);
            }
            Ok(())
        });
    }
    let child = process.spawn().map_err(|e| failed(e, &command.argv))?;
    let pid = Pid::from_raw(child.id() as i32).expect("a child's pid is positive");
    // Ours and not waited for: the pid is still the child's, even if it has ended already.
    let leader = ProcessRef::open_child(pid)?;
    let (counter, switches) = seed.map(CounterSeed::reap).unwrap_or_default();
    Ok(Spawned { leader, counter, switches })
}

/// A child that has ended and its status, left as it is.
pub fn next_ended() -> Option<(Pid, Exit)> {
    // SAFETY: an all-zero `siginfo_t` is a value of it.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    // SAFETY: `info` is ours to be written to.
    let waited = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, flags) };
    if waited != 0 {
        return None;
    }
    // SAFETY: waitid filled in the fields of SIGCHLD, or left zeroes.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    let exit = if info.si_code == libc::CLD_EXITED { Exit::Code(status) } else { Exit::Signal(status) };
    Pid::from_raw(pid).map(|pid| (pid, exit))
}

/// Waits for a child that has ended: the CPU time of it and of the children that it waited for.
pub fn wait_for(pid: Pid) -> Nanos {
    // SAFETY: an all-zero `rusage` is a value of it.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let raw = pid.as_raw_nonzero().get();
    // SAFETY: the status may be null, and `usage` is ours to be written to.
    let waited =
        unsafe { libc::wait4(raw, std::ptr::null_mut(), libc::WNOHANG | libc::__WALL, &raw mut usage) };
    if waited != raw {
        return Nanos::ZERO;
    }
    let ns = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1_000;
    Nanos(ns(usage.ru_utime) + ns(usage.ru_stime))
}
