//! Process events: the kernel tells of forks, executions and changed identities (the netlink connector, `cn_proc`).
//!
//! Where they can be had (root, or Linux 6.6 for anybody; not from inside a pid, user or network namespace of one's own) a
//! client's new members are known at the next wake-up. The socket wakes nobody: it is read whenever the scheduler is
//! awake anyway, so that a storm of forks costs a message each, not a wake-up each. Where more come than the kernel
//! keeps for us, it says so, and a scan finds the rest.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

use crate::error::last_errno;
use crate::{Error, Pid, Result};

/// Messages that wait for us at the most, in bytes.
const BUFFER: libc::c_int = 4 << 20;
/// Messages taken at one wake-up, at the most.
const MESSAGES_MAX: usize = 4096;

const NLMSG_HEADER: usize = 16;
const CN_HEADER: usize = 20;
/// What the kernel calls us by: `CN_IDX_PROC`, `CN_VAL_PROC`.
const CN_PROC: u32 = 1;
const LISTEN: u32 = 1;
const EVENT_NONE: u32 = 0;
const EVENT_FORK: u32 = 1;
const EVENT_EXEC: u32 = 2;
const EVENT_UID: u32 = 4;
const EVENT_SID: u32 = 0x80;
const EVENT_COMM: u32 = 0x200;

/// What happened to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEvent {
    /// `parent` has made `child`.
    Fork {
        /// Who made it.
        parent: Pid,
        /// The new process.
        child: Pid,
    },
    /// It runs another program, or has another name or session.
    Changed(Pid),
    /// It has another user.
    User(Pid),
    /// Some events were lost: only a scan tells what happened.
    Lost,
}

/// A socket on which the kernel tells of processes.
#[derive(Debug)]
pub struct ProcessEvents {
    fd: OwnedFd,
}

impl ProcessEvents {
    /// Asks the kernel to tell of processes.
    ///
    /// # Errors
    /// [`Error::Permission`] where that is for root only, [`Error::System`] where this kernel or namespace has none.
    pub fn open() -> Result<Self> {
        let failed = |what| Error::system(what, "process events", last_errno());
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: makes a descriptor; takes and returns numbers only.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_CONNECTOR) };
        if fd < 0 {
            return Err(failed("open a socket for"));
        }
        // SAFETY: the kernel has just made this descriptor for us.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let raw = fd.as_raw_fd();
        let size = size_of::<libc::c_int>() as libc::socklen_t;
        let buffer = BUFFER;
        for option in [libc::SO_RCVBUFFORCE, libc::SO_RCVBUF] {
            // SAFETY: the kernel reads one number. The first needs a privilege, the second does what it can.
            if unsafe { libc::setsockopt(raw, libc::SOL_SOCKET, option, (&raw const buffer).cast(), size) }
                == 0
            {
                break;
            }
        }
        // SAFETY: an all-zero address is a value of it.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        address.nl_groups = CN_PROC;
        let length = size_of_val(&address) as libc::socklen_t;
        // SAFETY: the kernel reads one whole address.
        if unsafe { libc::bind(raw, (&raw const address).cast(), length) } != 0 {
            return Err(failed("listen to"));
        }
        let message = request();
        // SAFETY: the kernel reads `message`, which outlives the call.
        let sent = unsafe { libc::send(raw, message.as_ptr().cast(), message.len(), 0) };
        if sent != message.len() as isize {
            return Err(failed("ask for"));
        }
        let events = Self { fd };
        events.acknowledged()?;
        Ok(events)
    }

    /// The kernel answers while it is asked: no answer means that it does not tell us of anybody.
    fn acknowledged(&self) -> Result<()> {
        let mut buffer = [0; 4096];
        for _ in 0..MESSAGES_MAX {
            let Some(n) = self.receive(&mut buffer)? else {
                return Err(Error::system("ask for", "process events", Errno::NOSYS));
            };
            let Some((EVENT_NONE, data)) = payload(&buffer[..n]) else { continue };
            return match word(data, 16) {
                Some(0) => Ok(()),
                Some(refused) => {
                    Err(Error::system("ask for", "process events", Errno::from_raw_os_error(refused as i32)))
                }
                None => Err(Error::system("ask for", "process events", Errno::PROTO)),
            };
        }
        Ok(()) // So many events came in between that it does tell.
    }

    /// One message; `None` if none waits.
    fn receive(&self, buffer: &mut [u8]) -> Result<Option<usize>> {
        // SAFETY: the kernel writes at most the buffer's length to it.
        let n = unsafe { libc::recv(self.fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        match (n, last_errno()) {
            (0.., _) => Ok(Some(n as usize)),
            (_, Errno::AGAIN | Errno::INTR) => Ok(None),
            (_, e) => Err(Error::system("read", "process events", e)),
        }
    }

    /// Calls `each` with what has happened since the last call; threads are left out.
    pub fn drain(&self, mut each: impl FnMut(ProcessEvent)) {
        let mut buffer = [0; 4096];
        for _ in 0..MESSAGES_MAX {
            match self.receive(&mut buffer) {
                Ok(Some(n)) => {
                    if let Some(event) = payload(&buffer[..n]).and_then(|(what, data)| parse(what, data)) {
                        each(event);
                    }
                }
                Ok(None) => return,
                Err(_) => {
                    each(ProcessEvent::Lost);
                    return;
                }
            }
        }
        each(ProcessEvent::Lost); // More than can be taken in one go: a scan is cheaper.
    }
}

/// The message that asks for events.
fn request() -> Vec<u8> {
    let length = NLMSG_HEADER + CN_HEADER + 4;
    let mut bytes = Vec::with_capacity(length);
    let done = libc::NLMSG_DONE as u16;
    bytes.extend((length as u32).to_ne_bytes());
    bytes.extend(done.to_ne_bytes());
    bytes.extend(0_u16.to_ne_bytes()); // Flags.
    bytes.extend([0_u32, 0].map(u32::to_ne_bytes).concat()); // Sequence, sender.
    bytes.extend([CN_PROC, CN_PROC, 0, 0].map(u32::to_ne_bytes).concat()); // To whom; sequence, acknowledgement.
    bytes.extend(4_u16.to_ne_bytes());
    bytes.extend(0_u16.to_ne_bytes());
    bytes.extend(LISTEN.to_ne_bytes());
    bytes
}

/// The kind of event of a message, and the event's bytes.
fn payload(message: &[u8]) -> Option<(u32, &[u8])> {
    let connector = message.get(NLMSG_HEADER..)?;
    if word(connector, 0)? != CN_PROC || word(connector, 4)? != CN_PROC {
        return None;
    }
    let event = connector.get(CN_HEADER..)?;
    Some((word(event, 0)?, event))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|b| u32::from_ne_bytes(*b))
}

/// What an event of kind `what` says. Its own fields begin after kind, CPU and time: 16 bytes.
fn parse(what: u32, event: &[u8]) -> Option<ProcessEvent> {
    let pid = |index: usize| i32::try_from(word(event, 16 + 4 * index)?).ok().and_then(Pid::from_raw);
    match what {
        EVENT_FORK => {
            let (parent, thread, child) = (pid(1)?, pid(2)?, pid(3)?);
            (thread == child).then_some(ProcessEvent::Fork { parent, child })
        }
        EVENT_EXEC | EVENT_UID | EVENT_SID | EVENT_COMM => {
            let (thread, process) = (pid(0)?, pid(1)?);
            let event = if what == EVENT_UID { ProcessEvent::User } else { ProcessEvent::Changed };
            (thread == process).then_some(event(process))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(what: u32, fields: &[u32]) -> Vec<u8> {
        let mut bytes = request();
        bytes.truncate(NLMSG_HEADER + CN_HEADER);
        bytes.extend([what, 0, 0, 0].map(u32::to_ne_bytes).concat());
        bytes.extend(fields.iter().flat_map(|f| f.to_ne_bytes()));
        bytes
    }

    fn read(bytes: &[u8]) -> Option<ProcessEvent> {
        payload(bytes).and_then(|(what, event)| parse(what, event))
    }

    #[test]
    fn events_read_as_the_kernel_writes_them() {
        let pid = |n| Pid::from_raw(n).expect("not zero");
        let fork = ProcessEvent::Fork { parent: pid(10), child: pid(20) };
        assert_eq!(read(&message(EVENT_FORK, &[11, 10, 20, 20])), Some(fork));
        assert_eq!(read(&message(EVENT_FORK, &[11, 10, 21, 10])), None, "a thread");
        for what in [EVENT_EXEC, EVENT_UID, EVENT_SID, EVENT_COMM] {
            let event = if what == EVENT_UID { ProcessEvent::User } else { ProcessEvent::Changed };
            assert_eq!(read(&message(what, &[20, 20, 5, 5])), Some(event(pid(20))));
            assert_eq!(read(&message(what, &[21, 20, 5, 5])), None, "a thread's");
        }
        assert_eq!(read(&message(0x8000_0000, &[20, 20, 0, 0])), None, "ends are told by pidfds");
    }

    #[test]
    fn what_is_cut_short_or_somebody_elses_is_left_out() {
        let whole = message(EVENT_FORK, &[11, 10, 20, 20]);
        for length in 0..whole.len() {
            assert_eq!(read(&whole[..length]), None, "{length} bytes");
        }
        let mut other = whole;
        other[NLMSG_HEADER] = 9;
        assert_eq!(read(&other), None);
    }
}
