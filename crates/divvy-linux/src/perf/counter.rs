//! One counter of CPU time for a process and all descendants that it will have.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use divvy_policy::Nanos;
use perf_event_open_sys::bindings::{
    PERF_COUNT_SW_TASK_CLOCK, PERF_FLAG_FD_CLOEXEC, PERF_TYPE_SOFTWARE, perf_event_attr,
};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use crate::error::last_errno;
use crate::{Error, Result};

/// CPU time of a process and its descendants since it was opened.
#[derive(Debug)]
pub struct TreeCounter(OwnedFd);

fn attributes() -> perf_event_attr {
    let mut attr = perf_event_attr::default();
    attr.type_ = PERF_TYPE_SOFTWARE;
    attr.config = u64::from(PERF_COUNT_SW_TASK_CLOCK);
    attr.size = size_of::<perf_event_attr>() as u32;
    attr.set_inherit(1);
    // An ordinary user may not ask for the kernel's part of hardware events; a clock counts it all the same.
    attr.set_exclude_kernel(1);
    attr.set_exclude_hv(1);
    attr
}

/// Opens a counter for the calling process. A system call and no more: for use between fork and exec too.
fn open_own() -> rustix::io::Result<OwnedFd> {
    let mut attr = attributes();
    let flags = PERF_FLAG_FD_CLOEXEC as libc::c_ulong;
    // SAFETY: the kernel reads the attributes, which are whole and of the size that they say.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, &raw mut attr, 0, -1, -1, flags) };
    if fd < 0 {
        return Err(last_errno());
    }
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

impl TreeCounter {
    /// Whether this process may open counters.
    ///
    /// # Errors
    /// [`Error::Permission`] where `perf_event_paranoid` or a filter forbids it, [`Error::System`] for anything else.
    pub fn check() -> Result<()> {
        open_own().map(drop).map_err(|e| Error::system("open a perf counter", "of this process", e))
    }

    /// CPU time used since the counter was opened, by the process and its descendants, those that have ended included. One
    /// system call, 1 us where none of them runs, up to 20 us where some run on other CPUs, which are asked.
    ///
    /// # Errors
    /// [`Error::System`] where the kernel does not answer.
    pub fn read(&self) -> Result<Nanos> {
        let mut value = [0; 8];
        match rustix::io::read(&self.0, &mut value) {
            Ok(8) => Ok(Nanos(u64::from_ne_bytes(value))),
            Ok(_) => Err(Error::system("read a perf counter", "of a command", Errno::IO)),
            Err(e) => Err(Error::system("read a perf counter", "of a command", e)),
        }
    }
}

/// How a counter comes from the child, which opens it for itself before it executes its command, to us.
///
/// To open it from here, once the child runs, would miss what it has forked by then.
#[derive(Debug)]
pub struct CounterSeed {
    ours: OwnedFd,
    childs: OwnedFd,
}

impl CounterSeed {
    /// A pair of sockets; `None` where there is none to be had: there will be no counter then.
    pub fn new() -> Option<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, childs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::DGRAM, flags, None).ok()?;
        Some(Self { ours, childs })
    }

    /// The child's end, for [`CounterSeed::sow`].
    pub fn childs_end(&self) -> i32 {
        self.childs.as_raw_fd()
    }

    /// In the child: opens the counter, and the event of its switches on CPU `switches`, and sends them. Where that fails
    /// nothing is sent. Calls the kernel only.
    pub fn sow(end: BorrowedFd<'_>, switches: Option<u32>) {
        let Ok(counter) = open_own() else { return };
        let event = switches.and_then(|cpu| super::switches::open_own(cpu).ok());
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let both = [counter.as_fd(), event.as_ref().map_or(counter.as_fd(), |event| event.as_fd())];
        let fds = if event.is_some() { &both[..] } else { &both[..1] };
        if control.push(SendAncillaryMessage::ScmRights(fds)) {
            let _ = rustix::net::sendmsg(end, &[IoSlice::new(b"c")], &mut control, SendFlags::NOSIGNAL);
        }
    }

    /// The counter that the child has sent, once it executes its command, and the event of its switches.
    pub fn reap(self) -> (Option<TreeCounter>, Option<OwnedFd>) {
        self.receive().unwrap_or_default()
    }

    fn receive(&self) -> Option<(Option<TreeCounter>, Option<OwnedFd>)> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0; 1];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        rustix::net::recvmsg(&self.ours, &mut [IoSliceMut::new(&mut byte)], &mut control, flags).ok()?;
        control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => Some((fds.next().map(TreeCounter), fds.next())),
            _ => None,
        })
    }
}
