//! Standing in for a child: for a caller that shall see an ordinary process that runs, while the child is suspended and
//! resumed.
//!
//! The child stays in our process group, so the terminal's signals reach both, and Ctrl-Z and `fg` work on both. What
//! somebody sends to us alone is passed on.
//!
//! Between us and the child is a process in a group of its own, the *keeper*: it passes on what we pass on, and ends as the
//! child does. It is there for the kernel, which hangs up (SIGHUP) on a process group with suspended members once nobody in
//! it has a parent elsewhere in the session: at the end of the script that ran us in the background, say. The child's
//! parent is in another group.
//!
//! The kernel does so when the last who has such a parent ends, too, and that may be the child: a script that cron, `ssh` or a service
//! started is in a group without one, and would be hung up, with all that is held in it, whenever a command ends that it ran by us. So the keeper has
//! a second child in our group, the *peg*, which does nothing. When the command has ended the keeper comes back into the group, which the
//! kernel takes for no end of anything, and the peg is nobody's connection to anywhere then, and can go.

use nix::sys::signal::{
    SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal as NixSignal, sigaction, sigprocmask,
};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::io::Errno;
use rustix::process::WaitOptions;

use crate::error::{START, last_errno};
use crate::{Error, Exit, Pid, ProcessRef, Result, Signal};

/// Signals that are passed on rather than taken.
const PASSED_ON: [NixSignal; 7] = [
    NixSignal::SIGINT,
    NixSignal::SIGQUIT,
    NixSignal::SIGTERM,
    NixSignal::SIGHUP,
    NixSignal::SIGUSR1,
    NixSignal::SIGUSR2,
    NixSignal::SIGALRM,
];

/// Which of the two goes on with the call's return.
#[derive(Debug)]
pub enum Fork {
    /// The new one, with the signal mask from before.
    Child,
    /// The one that was there.
    Parent(StandIn),
}

/// The parent of a child that it stands in for.
#[derive(Debug)]
pub struct StandIn {
    child: ProcessRef,
    signals: SignalFd,
}

fn system(what: &'static str) -> impl Fn(nix::Error) -> Error {
    move |e| Error::system(what, "", Errno::from_raw_os_error(e as i32))
}

/// Forks, twice; the child is called `name`, lest it be taken for a divvy that is never touched.
///
/// # Errors
/// [`Error::Processes`] or [`Error::System`] where the kernel gives no process or descriptor: in the parent, or in the process
/// between the two, which is to end with it; the parent is told as of the child's end. There is no child then.
///
/// # Safety
/// The process has one thread.
pub unsafe fn fork(name: &str) -> Result<Fork> {
    // A child could not be waited for whose end is ignored.
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: the default action runs no code of ours.
    unsafe { sigaction(NixSignal::SIGCHLD, &default) }.map_err(system("set the action for SIGCHLD"))?;
    let taken: SigSet = PASSED_ON.into_iter().chain([NixSignal::SIGCHLD]).collect();
    let mut before = SigSet::empty();
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&taken), Some(&mut before)).map_err(system("block signals"))?;
    let signals = SignalFd::with_flags(&taken, SfdFlags::SFD_CLOEXEC).map_err(system("open a signalfd"))?;
    // SAFETY: there is one thread, by this function's own condition; the child may do what a process may.
    match unsafe { libc::fork() } {
        -1 => Err(Error::system(START, "a process", last_errno())),
        0 => {
            // SAFETY: as above.
            unsafe { keep(signals) }?;
            sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None).map_err(system("unblock signals"))?;
            let short: Vec<u8> = name.bytes().filter(|&b| b != 0).take(15).collect();
            if let Ok(name) = std::ffi::CString::new(short) {
                let _ = rustix::thread::set_name(&name); // Only a name.
            }
            Ok(Fork::Child)
        }
        child => Ok(Fork::Parent(StandIn { child: child_of(child)?, signals })),
    }
}

/// What the keeper ends with where it cannot wait for the child: the system refused.
const NOT_STARTED: i32 = 5;

fn child_of(raw: i32) -> Result<ProcessRef> {
    ProcessRef::open_child(Pid::from_raw(raw).ok_or_else(|| Error::system(START, "a process", Errno::SRCH))?)
}

/// In the keeper: makes the child, in which alone this returns, and stands in for it.
///
/// # Safety
/// As [`fork`].
unsafe fn keep(signals: SignalFd) -> Result<()> {
    // SAFETY: by this function's own condition.
    match unsafe { libc::fork() } {
        -1 => Err(Error::system(START, "a process", last_errno())),
        0 => Ok(()),
        child => {
            // Where the group is one of outside our namespace it has no number, and there is no way back into it.
            // SAFETY: takes and returns numbers only.
            let group = Pid::from_raw(unsafe { libc::getpgrp() });
            // SAFETY: as above.
            let peg = group.and_then(|_| unsafe { peg() });
            // From here on the terminal's signals do not come here: whatever comes is passed on.
            let _ = rustix::process::setpgid(None, None);
            let exit = child_of(child).and_then(|child| StandIn { child, signals }.wait(|_| ()));
            if let Some(peg) = peg {
                let _ = rustix::process::setpgid(None, group);
                let _ = peg.signal(Signal::KILL);
                // It has left the group before we do, and whoever waits for us.
                let _ = rustix::process::waitpid(Some(peg.pid()), WaitOptions::empty());
            }
            let code = match exit {
                Ok(Exit::Code(code)) => code,
                Ok(Exit::Signal(signal)) => {
                    end_by_signal(signal);
                    128 + signal // One that ends nobody.
                }
                Err(_) => NOT_STARTED,
            };
            // SAFETY: ends this process at once, without running what its parent is to run at its own end.
            unsafe { libc::_exit(code) }
        }
    }
}

/// In the keeper: makes a process in our group that waits for its end. Where there is none to be had, it is done without.
///
/// # Safety
/// As [`fork`].
unsafe fn peg() -> Option<ProcessRef> {
    let keeper = rustix::process::getpid();
    // SAFETY: by this function's own condition.
    match unsafe { libc::fork() } {
        -1 => None,
        0 => {
            let _ = sigprocmask(SigmaskHow::SIG_BLOCK, Some(&SigSet::all()), None);
            // SAFETY: nothing of this process is used from here on: whoever waits for the end of a pipe does not wait for it.
            unsafe { libc::syscall(libc::SYS_close_range, 0u32, u32::MAX, 0u32) };
            // SAFETY: takes and returns numbers only.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            if rustix::process::getppid() != Some(keeper) {
                // SAFETY: the keeper ended before it could be told; this process ends with it.
                unsafe { libc::_exit(0) }
            }
            loop {
                // SAFETY: waits, and takes nothing.
                unsafe { libc::pause() };
            }
        }
        peg => child_of(peg).ok(),
    }
}

impl StandIn {
    /// Waits for the child's end and passes signals on until then: how it ended. A signal of the terminal has reached the
    /// child already. `passed` is told of each signal once it is on its way, the terminal's included.
    ///
    /// # Errors
    /// [`Error::System`] where the signalfd or the child cannot be waited for.
    pub fn wait(self, mut passed: impl FnMut(Signal)) -> Result<Exit> {
        loop {
            if let Some(exit) = ended(self.child.pid())? {
                return Ok(exit);
            }
            let info = match self.signals.read_signal() {
                Ok(Some(info)) => info,
                Ok(None) | Err(nix::Error::EINTR) => continue,
                Err(e) => return Err(system("read the signalfd")(e)),
            };
            let by_terminal = info.ssi_code == libc::SI_KERNEL;
            if let Some(signal) = passed_on(info.ssi_signo) {
                if !by_terminal {
                    // One that has ended meanwhile is waited for next; one that became another user's is left to itself.
                    let _ = self.child.signal(signal);
                }
                passed(signal);
            }
        }
    }
}

/// How our child `pid` ended, once it has: it is waited for then, and its pid is anybody's.
pub(crate) fn ended(pid: Pid) -> Result<Option<Exit>> {
    let mut status = 0;
    // SAFETY: waits for our own child; `status` is ours to be written to.
    let waited = unsafe { libc::waitpid(pid.as_raw_nonzero().get(), &raw mut status, libc::WNOHANG) };
    match waited {
        0 => Ok(None),
        -1 if last_errno() == Errno::INTR => Ok(None),
        -1 => Err(Error::system("wait for child", pid, last_errno())),
        _ if libc::WIFSIGNALED(status) => Ok(Some(Exit::Signal(libc::WTERMSIG(status)))),
        _ => Ok(Some(Exit::Code(libc::WEXITSTATUS(status)))),
    }
}

fn passed_on(number: u32) -> Option<Signal> {
    let signal = NixSignal::try_from(number as i32).ok().filter(|s| PASSED_ON.contains(s))?;
    Some(match signal {
        NixSignal::SIGINT => Signal::INT,
        NixSignal::SIGQUIT => Signal::QUIT,
        NixSignal::SIGTERM => Signal::TERM,
        NixSignal::SIGHUP => Signal::HUP,
        NixSignal::SIGUSR1 => Signal::USR1,
        NixSignal::SIGUSR2 => Signal::USR2,
        _ => Signal::ALARM,
    })
}

/// Ends this process by `signal`, without a core of its own: a shell that waits for it sees what ended the child. Returns
/// where the signal ends nobody.
pub fn end_by_signal(signal: i32) {
    let Ok(signal) = NixSignal::try_from(signal) else { return };
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel reads one whole struct.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: the default action runs no code of ours. SIGKILL's cannot be set, and need not be.
    let _ = unsafe { sigaction(signal, &default) };
    let only: SigSet = [signal].into_iter().collect();
    let _ = sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&only), None);
    let _ = nix::sys::signal::raise(signal);
}
