//! Signals that wait to be delivered, and how a process came to stand.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::{Pid, Signal};

use super::{ProcPath, RawError, State, number, open_raw, pread_whole};
use crate::Result;

/// A set of signals, as `/proc/PID/status` prints them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignalSet(pub u64);

impl SignalSet {
    /// The four signals that suspend a process unless it handles them (SIGSTOP: whether it wants or not).
    pub const STOPS: Self =
        Self(bit(Signal::STOP) | bit(Signal::TSTP) | bit(Signal::TTIN) | bit(Signal::TTOU));

    /// Whether `signal` is in the set.
    #[must_use]
    pub const fn contains(self, signal: Signal) -> bool {
        self.0 & bit(signal) != 0
    }

    /// Whether the two sets have a signal in common.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// Bit `n - 1` stands for signal `n`.
const fn bit(signal: Signal) -> u64 {
    1 << (signal.as_raw() - 1)
}

/// The signals that wait to be delivered, and whether they wait because the process is suspended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// Whether the main thread is suspended by a signal (`State` is T). Where a tracer has stopped it every signal waits,
    /// ours as well.
    pub suspended: bool,
    /// To the main thread (`SigPnd`).
    pub thread: SignalSet,
    /// To the process (`ShdPnd`).
    pub process: SignalSet,
    /// Signals that the main thread blocks (`SigBlk`).
    pub blocked: SignalSet,
}

impl Pending {
    /// Whether a signal waits that will suspend the process, or asks it to suspend itself. One that the main thread
    /// blocks does neither.
    #[must_use]
    pub const fn has_stop(self) -> bool {
        (self.thread.0 | self.process.0) & !self.blocked.0 & SignalSet::STOPS.0 != 0
    }

    /// Whether SIGSTOP waits, which nobody can block, handle or ignore.
    #[must_use]
    pub const fn has_sigstop(self) -> bool {
        self.thread.contains(Signal::STOP) || self.process.contains(Signal::STOP)
    }

    /// The same, and a SIGSTOP waits.
    #[must_use]
    pub const fn and_sigstop(mut self) -> Self {
        self.thread = SignalSet(self.thread.0 | 1 << (libc::SIGSTOP - 1));
        self
    }

    /// The meaning of a `status` file, or the name of the line that does not read.
    ///
    /// # Errors
    /// `State`, `SigPnd`, `ShdPnd` or `SigBlk`, whichever is missing or malformed.
    pub fn parse(status: &[u8]) -> Result<Self, &'static str> {
        // In one go, and no further than it takes: the file has 60 lines, and is read at each hand-over.
        let mut values = Self::LINES.map(|_| None);
        for line in status.split(|&b| b == b'\n') {
            let named = |name: &str| line.strip_prefix(name.as_bytes())?.strip_prefix(b":");
            let mut missing = Self::LINES.iter().zip(&mut values).filter(|(_, value)| value.is_none());
            if let Some((value, found)) = missing.find_map(|(name, value)| Some((value, named(name)?))) {
                *value = Some(found.trim_ascii());
                if values.iter().all(Option::is_some) {
                    break;
                }
            }
        }
        let [state, thread, process, blocked] = values;
        let [state_line, thread_line, process_line, blocked_line] = Self::LINES;
        let set = |value: Option<&[u8]>, name| value.and_then(hexadecimal).map(SignalSet).ok_or(name);
        let state = state.and_then(|value| value.first().copied()).ok_or(state_line)?;
        Ok(Self {
            suspended: matches!(State::from_letter(state), State::Stopped),
            thread: set(thread, thread_line)?,
            process: set(process, process_line)?,
            blocked: set(blocked, blocked_line)?,
        })
    }

    /// The lines of a `status` file that tell it.
    const LINES: [&'static str; 4] = ["State", "SigPnd", "ShdPnd", "SigBlk"];
}

fn hexadecimal(field: &[u8]) -> Option<u64> {
    if field.is_empty() || field.len() > 16 {
        return None;
    }
    field.iter().try_fold(0_u64, |n, &b| Some(n << 4 | u64::from(char::from(b).to_digit(16)?)))
}

/// An open `/proc/PID/status`. Names one process for good: once that has ended it reads as gone, whoever has the pid.
#[derive(Debug)]
pub struct StatusFile {
    fd: OwnedFd,
    path: ProcPath,
}

impl AsFd for StatusFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl StatusFile {
    /// That of whoever has `pid` now; `None` for nobody.
    ///
    /// # Errors
    /// As [`stat`](super::stat).
    pub fn open(pid: Pid) -> Result<Option<Self>> {
        let path = ProcPath::of(pid, "status");
        let fd = open_raw(&path).map_err(|e| RawError::from(e).on(&path))?;
        Ok(fd.map(|fd| Self { fd, path }))
    }

    /// That of thread `tid`; `None` if process `pid` has none.
    ///
    /// # Errors
    /// As [`stat`](super::stat).
    pub(crate) fn open_thread(pid: Pid, tid: Pid) -> Result<Option<Self>> {
        let path = ProcPath::of_thread(pid, tid, "status");
        let fd = open_raw(&path).map_err(|e| RawError::from(e).on(&path))?;
        Ok(fd.map(|fd| Self { fd, path }))
    }

    /// The signals that wait to be delivered; `None` once the process has gone. One system call.
    ///
    /// # Errors
    /// As [`stat`](super::stat).
    pub fn pending(&self) -> Result<Option<Pending>> {
        let mut buffer = [0; 8192];
        let read = match pread_whole(&self.fd, &mut buffer) {
            Ok(None | Some(0)) => return Ok(None),
            Ok(Some(n)) => buffer.get(..n).unwrap_or_default(),
            Err(e) => return Err(RawError::from(e).on(&self.path)),
        };
        Pending::parse(read).map(Some).map_err(|what| RawError::Malformed(what).on(&self.path))
    }
}

/// The signals that wait to be delivered to `pid`; `None` if there is no such process.
///
/// # Errors
/// As [`stat`](super::stat).
pub fn pending(pid: Pid) -> Result<Option<Pending>> {
    StatusFile::open(pid)?.map_or(Ok(None), |file| file.pending())
}

/// The same, as thread `tid` of `pid` has them: those that wait for the process, and those that wait for that thread.
///
/// # Errors
/// As [`stat`](super::stat).
pub fn pending_of(pid: Pid, tid: Pid) -> Result<Option<Pending>> {
    StatusFile::open_thread(pid, tid)?.map_or(Ok(None), |file| file.pending())
}

/// Whether `pid` stands in the middle of a call by which it sent a stop signal to itself, or to its group (`kill`, `tkill`,
/// `tgkill`): as `su`, `runuser` and `sudo` do when they see their child stopped. Not so where it cannot be looked at.
#[must_use]
pub fn has_stopped_itself(pid: Pid) -> bool {
    let path = ProcPath::of(pid, "syscall");
    let mut buffer = [0; 256];
    let read = match open_raw(&path).and_then(|fd| fd.map_or(Ok(None), |fd| pread_whole(fd, &mut buffer))) {
        Ok(Some(n)) => buffer.get(..n).unwrap_or_default(),
        Ok(None) | Err(_) => return false,
    };
    is_stop_of_itself(read, pid)
}

/// The number of a call and its arguments, as `/proc/PID/syscall` has them.
fn is_stop_of_itself(line: &[u8], pid: Pid) -> bool {
    let mut fields = line.split(|&b| b == b' ');
    let call = fields.next().and_then(number).and_then(|n| libc::c_long::try_from(n).ok());
    let mut argument = || {
        let digits = fields.next()?.strip_prefix(b"0x")?;
        // An int is the lower half of the register, whatever is in the upper one.
        hexadecimal(digits).map(|n| n as u32 as i32)
    };
    let (first, second, third) = (argument(), argument(), argument());
    let (whom, signal) = match call {
        Some(libc::SYS_kill | libc::SYS_tkill) => (first, second),
        Some(libc::SYS_tgkill) => (first, third),
        _ => return false,
    };
    // 0 and negative numbers name groups: its own, or those it shares with its child.
    let itself = whom.is_some_and(|whom| whom <= 0 || whom == pid.as_raw_nonzero().get());
    let stops = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
    itself && signal.is_some_and(|signal| stops.contains(&signal))
}
