//! A process that cannot be mistaken for another: its pid, its start time and a pidfd.
//!
//! A pid alone names whoever has it now. A pidfd names one process for good, so the order matters: the pidfd is
//! opened first, then the start time is read, then the pidfd is asked whether its process still lives. If it does,
//! the start time was its own, and every signal sent through the pidfd reaches it or nobody.

use std::cell::{OnceCell, RefCell};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::error::last_errno;
use crate::own::{open_files_left, open_files_thought_left};
use crate::procfs::{
    Pending, ProcPath, Running, StartTime, Stat, StatFile, StatusFile, ThreadFiles, running, stat, stat_raw,
    threads_while,
};
use crate::{Error, Result};

/// `PIDFD_SIGNAL_PROCESS_GROUP` of `linux/pidfd.h` (Linux 6.9), which neither libc nor rustix has.
const PIDFD_SIGNAL_PROCESS_GROUP: libc::c_uint = 1 << 2;

/// Files of `/proc` are kept open for reading again only where so many more may be opened.
pub(crate) const DESCRIPTORS_PLENTY: u64 = 4096;

/// What became of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The kernel took it.
    Sent,
    /// The process has ended: nobody was signalled.
    Gone,
}

/// What became of a signal to a process group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupDelivery {
    /// The kernel took it, for every member at once.
    Sent,
    /// The group has no members left.
    Gone,
    /// This kernel (before Linux 6.9) cannot signal a group through a pidfd: signal each member through its own.
    Unsupported,
}

/// One process: its pid, its start time, and a pidfd that was opened before the start time was read.
#[derive(Debug)]
pub struct ProcessRef {
    fd: OwnedFd,
    pid: Pid,
    start: StartTime,
    /// Kept open by whoever asks for its state more than once.
    stat: RefCell<Option<StatFile>>,
    /// Those of its threads, once they were asked for, while it has several.
    threads: RefCell<ThreadFiles>,
    /// Its `/proc/PID/status`, once it was asked for: to read it again costs 5 us, to open it anew 7.
    status: OnceCell<StatusFile>,
}

impl ProcessRef {
    /// The process that has `pid` now; `None` for nobody, or if it ended meanwhile (waited for or not).
    ///
    /// # Errors
    /// [`Error::System`] where the kernel refuses: the limit of open files, or a `/proc` that cannot be read.
    pub fn open(pid: Pid) -> Result<Option<Self>> {
        Ok(Self::meet(pid)?.map(|(process, _)| process))
    }

    /// As [`ProcessRef::open`], with what the process was and did then.
    ///
    /// # Errors
    /// As [`ProcessRef::open`].
    pub fn meet(pid: Pid) -> Result<Option<(Self, Stat)>> {
        let Some(fd) = open_raw(pid).map_err(|e| Error::system("open a pidfd of process", pid, e))? else {
            return Ok(None);
        };
        let Some(file) = StatFile::open(pid)? else { return Ok(None) };
        let Some(stat) = file.read()? else { return Ok(None) };
        // The file was opened by number: it is this process's, as what it said was, if that one lives now.
        let kept = (open_files_left(fd.as_fd()) >= DESCRIPTORS_PLENTY).then_some(file);
        let process = Self { stat: RefCell::new(kept), ..Self::bare(fd, pid, stat.start) };
        Ok(process.is_alive()?.then_some((process, stat)))
    }

    /// The process that has `pid` now if it began at `start`; `None` if that one has ended, whoever has its pid.
    ///
    /// # Errors
    /// As [`ProcessRef::open`].
    pub fn open_exact(pid: Pid, start: StartTime) -> Result<Option<Self>> {
        Ok(Self::open(pid)?.filter(|process| process.start == start))
    }

    /// A child of ours that nobody has waited for: it has its pid, and a start time, even if it has ended.
    ///
    /// # Errors
    /// As [`ProcessRef::open`]; [`Error::System`] (`ESRCH`) if it is no such child.
    pub fn open_child(pid: Pid) -> Result<Self> {
        let gone = || Error::system("open a pidfd of child", pid, Errno::SRCH);
        let fd =
            open_raw(pid).map_err(|e| Error::system("open a pidfd of child", pid, e))?.ok_or_else(gone)?;
        let path = ProcPath::of(pid, "stat");
        let stat = stat_raw(&path).map_err(|e| e.on(&path))?.ok_or_else(gone)?;
        Ok(Self::bare(fd, pid, stat.start))
    }

    /// The process, with no file of `/proc` kept.
    fn bare(fd: OwnedFd, pid: Pid, start: StartTime) -> Self {
        let (stat, threads) = (RefCell::default(), RefCell::default());
        Self { fd, pid, start, stat, threads, status: OnceCell::new() }
    }

    /// Its pid.
    #[must_use]
    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// When it began.
    #[must_use]
    pub const fn start(&self) -> StartTime {
        self.start
    }

    /// What it is and does; `None` once it has been waited for. Keeps a descriptor where there are plenty, which makes every call
    /// but the first half as dear as [`procfs::stat`](crate::procfs::stat).
    ///
    /// # Errors
    /// As [`procfs::stat`](crate::procfs::stat).
    pub fn stat(&self) -> Result<Option<Stat>> {
        let mut kept = self.stat.borrow_mut();
        if open_files_thought_left(self.fd.as_fd()) < DESCRIPTORS_PLENTY {
            *kept = None;
            self.forget_threads();
            return Ok(stat(self.pid)?.filter(|stat| stat.start == self.start));
        }
        if kept.is_none() {
            *kept = StatFile::open(self.pid)?;
        }
        let stat = kept.as_ref().map_or(Ok(None), StatFile::read)?;
        if stat.is_none_or(|stat| stat.num_threads <= 1) {
            self.forget_threads();
        }
        Ok(stat.filter(|stat| stat.start == self.start))
    }

    /// As [`threads_while`], where its [`stat`](Self::stat) has just told that there are `count`. Keeps a
    /// descriptor for each of some tens where there are plenty.
    ///
    /// # Errors
    /// As [`procfs::stat`](crate::procfs::stat).
    pub fn threads_while(&self, count: u32, each: &mut dyn FnMut(Stat) -> bool) -> Result<()> {
        let mut files = self.threads.borrow_mut();
        if open_files_thought_left(self.fd.as_fd()) < DESCRIPTORS_PLENTY {
            files.clear();
            return threads_while(self.pid, each).map(drop);
        }
        files.read_while(self.pid, count, each)
    }

    /// Closes what it keeps of its threads.
    pub fn forget_threads(&self) {
        self.threads.borrow_mut().clear();
    }

    /// Where its thread `tid` runs, as [`procfs::running`](crate::procfs::running) tells it.
    #[must_use]
    pub fn running(&self, tid: Pid) -> Option<Running> {
        self.running_kept(tid).unwrap_or_else(|| running(tid))
    }

    /// The same, where a file is kept that tells.
    pub(crate) fn running_kept(&self, tid: Pid) -> Option<Option<Running>> {
        let kept = self.threads.borrow().running(tid);
        let main = || self.stat.borrow().as_ref().filter(|_| tid == self.pid).map(StatFile::running);
        kept.or_else(main)
    }

    /// Whether it has not ended yet. One system call.
    ///
    /// # Errors
    /// [`Error::System`] where polling fails.
    pub fn is_alive(&self) -> Result<bool> {
        is_alive_raw(self.fd.as_fd()).map_err(|e| Error::system("poll the pidfd of process", self.pid, e))
    }

    /// Sends `signal` to it; one that has ended but not been waited for takes it without effect. 0.4 us.
    ///
    /// # Errors
    /// [`Error::Permission`] where the kernel refuses, [`Error::System`] for any other failure.
    pub fn signal(&self, signal: Signal) -> Result<Delivery> {
        signal_raw(self.fd.as_fd(), signal).map_err(|e| Error::system("signal process", self.pid, e))
    }

    /// Whether the kernel would let us signal it, which is asked without a signal; `None` if it has ended.
    ///
    /// # Errors
    /// [`Error::System`] where the kernel refuses for another reason than a permission.
    pub fn may_signal(&self) -> Result<Option<bool>> {
        // SAFETY: the descriptor is open for the call, and the kernel reads no memory of ours.
        let asked = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.fd.as_raw_fd(),
                0,
                std::ptr::null::<libc::siginfo_t>(),
                0,
            )
        };
        match (asked, last_errno()) {
            (0, _) => Ok(Some(true)),
            (_, Errno::PERM) => Ok(Some(false)),
            (_, Errno::SRCH) => Ok(None),
            (_, e) => Err(Error::system("ask whether we may signal process", self.pid, e)),
        }
    }

    /// The signals that wait to be delivered to it; `None` if it has ended. 5 us, for which a descriptor is kept where
    /// there are plenty.
    ///
    /// # Errors
    /// As [`procfs::pending`](crate::procfs::pending).
    pub fn pending(&self) -> Result<Option<Pending>> {
        if let Some(file) = self.status.get() {
            return file.pending();
        }
        let Some(file) = StatusFile::open(self.pid)? else { return Ok(None) };
        let pending = file.pending()?;
        // The file was opened by number: it is this process's if that one lives now.
        if !self.is_alive()? {
            return Ok(None);
        }
        if open_files_thought_left(self.fd.as_fd()) >= DESCRIPTORS_PLENTY {
            let _ = self.status.set(file);
        }
        Ok(pending)
    }

    /// The same, and a SIGSTOP that waits for one of its threads.
    ///
    /// # Errors
    /// As [`pending`](Self::pending).
    pub fn pending_of(&self, thread: Pid) -> Result<Option<Pending>> {
        let pending = self.pending()?;
        let there = match &pending {
            Some(pending) if !pending.has_sigstop() => self.threads.borrow().pending(self.pid, thread)?,
            _ => None,
        };
        // The file was opened by number: what it says is about this process if that one lives now.
        let waits = there.is_some_and(|there| there.thread.contains(Signal::STOP)) && self.is_alive()?;
        Ok(pending.map(|pending| if waits { pending.and_sigstop() } else { pending }))
    }

    /// Sends a signal for one of its threads to take (`PIDFD_THREAD`, Linux 6.9), if that runs, or waits to, on another CPU than ours. Says
    /// whether it was sent: whatever keeps us from it, the process can be sent one.
    #[must_use]
    pub fn signal_elsewhere(&self, (tid, start): (Pid, StartTime), signal: Signal) -> bool {
        let ours = rustix::thread::sched_getcpu() as u32;
        let elsewhere = || self.running(tid).is_some_and(|there| there.start == start && there.cpu != ours);
        if !elsewhere() {
            return false;
        }
        let threads = self.threads.borrow();
        if let Some(thread) = threads.pidfd(tid) {
            return rustix::process::pidfd_send_signal(thread, signal).is_ok();
        }
        let Ok(thread) = rustix::process::pidfd_open(tid, PIDFD_THREAD) else { return false };
        // Asked once more after it was opened: this is that thread's.
        let sent = elsewhere() && rustix::process::pidfd_send_signal(&thread, signal).is_ok();
        if sent {
            threads.keep_pidfd(tid, thread);
        }
        sent
    }

    /// Sends `signal` to every member of the process group that this process leads or led: works on after it has
    /// ended, as long as the group has members. All members at once: none can fork its way out. A process that leads
    /// no group has none ([`GroupDelivery::Gone`]).
    ///
    /// # Errors
    /// [`Error::Permission`] where the kernel refuses for every member, [`Error::System`] for any other failure.
    pub fn signal_group(&self, signal: Signal) -> Result<GroupDelivery> {
        signal_group_raw(self.fd.as_fd(), signal)
            .map_err(|e| Error::system("signal process group", self.pid, e))
    }

    /// Whether the process group that this process leads or led has members, ended ones that nobody has waited for
    /// included; `None` where this kernel does not tell. One system call.
    ///
    /// # Errors
    /// [`Error::System`] where the kernel refuses for another reason than a permission.
    pub fn group_has_members(&self) -> Result<Option<bool>> {
        match signal_group_number(self.fd.as_fd(), 0) {
            Ok(GroupDelivery::Sent) | Err(Errno::PERM) => Ok(Some(true)),
            Ok(GroupDelivery::Gone) => Ok(Some(false)),
            Ok(GroupDelivery::Unsupported) => Ok(None),
            Err(e) => Err(Error::system("look for members of process group", self.pid, e)),
        }
    }
}

impl AsFd for ProcessRef {
    /// The pidfd: readable once the process has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A pidfd of whoever has `pid` now; `None` for nobody.
pub(crate) fn open_raw(pid: Pid) -> rustix::io::Result<Option<OwnedFd>> {
    match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Ok(fd) => Ok(Some(fd)),
        // EINVAL and ENOENT: a thread has the number, and no process.
        Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => Ok(None),
        Err(e) => Err(e),
    }
}

/// A descriptor of one thread.
pub const PIDFD_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(libc::O_EXCL as u32);

/// Whether the process of `fd` has not ended. A pidfd becomes readable when its process ends.
pub(crate) fn is_alive_raw(fd: BorrowedFd<'_>) -> rustix::io::Result<bool> {
    let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    loop {
        match rustix::event::poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
            Ok(ready) => return Ok(ready == 0),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
}

pub(crate) fn signal_raw(fd: BorrowedFd<'_>, signal: Signal) -> rustix::io::Result<Delivery> {
    match rustix::process::pidfd_send_signal(fd, signal) {
        Ok(()) => Ok(Delivery::Sent),
        Err(Errno::SRCH) => Ok(Delivery::Gone),
        Err(e) => Err(e),
    }
}

pub(crate) fn signal_group_raw(fd: BorrowedFd<'_>, signal: Signal) -> rustix::io::Result<GroupDelivery> {
    signal_group_number(fd, signal.as_raw())
}

fn signal_group_number(fd: BorrowedFd<'_>, signal: i32) -> rustix::io::Result<GroupDelivery> {
    // SAFETY: the descriptor is open for the call, the null pointer asks for an ordinary signal's information, and
    // the kernel reads no other memory.
    let done = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            fd.as_raw_fd(),
            signal,
            std::ptr::null::<libc::siginfo_t>(),
            PIDFD_SIGNAL_PROCESS_GROUP,
        )
    };
    if done == 0 {
        return Ok(GroupDelivery::Sent);
    }
    match last_errno() {
        Errno::SRCH => Ok(GroupDelivery::Gone),
        // An unknown flag. The signal itself is a valid one by its type.
        Errno::INVAL => Ok(GroupDelivery::Unsupported),
        e => Err(e),
    }
}
