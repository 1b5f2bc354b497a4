//! One run as two processes: a *front end* that stays with the terminal, and a *scheduler* that has left it.
//!
//! The front end is the process that was started: in its caller's session and process group, where the terminal's signals
//! and the shell's job control find it. The scheduler is its child, in a session of its own. A session is an autogroup to
//! the kernel: a scheduler in the user's session competes with everything that the user runs there, and is woken late.
//!
//! What the scheduler starts can be in a third session, one for all: of two autogroups the kernel lets one that computes go
//! on for milliseconds while a process of the other has just woken, which it does not within one. The scheduler starts them as
//! a member of that session and then leaves it ([`Link::leave_commands`]). So their groups have nobody in the session who
//! could resume them, as groups in sessions of their own have not, and the kernel does not hang up on them if the
//! scheduler dies while they stand.
//!
//! Between the two is a socket (the *link*). The front end hears at the same place of signals, of what the scheduler says
//! and of its end. Signals that ask for something are passed on as signals; everything else goes through the link, whose
//! format is the caller's business.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;

use divvy_policy::Nanos;
use nix::sys::signal::{
    SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal as NixSignal, sigaction, sigprocmask,
};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::error::{START, last_errno};
use crate::reactor::is_ignored;
use crate::stand_in::ended;
use crate::{Error, Exit, Pid, ProcessRef, Result, Signal, clock, own};

/// What the scheduler's process is called.
const NAME: &std::ffi::CStr = c"divvy-scheduler";

/// Signals that the front end takes, unless whoever started it has them ignored.
const TAKEN: [NixSignal; 8] = [
    NixSignal::SIGINT,
    NixSignal::SIGTERM,
    NixSignal::SIGHUP,
    NixSignal::SIGQUIT,
    NixSignal::SIGUSR1,
    NixSignal::SIGUSR2,
    NixSignal::SIGWINCH,
    NixSignal::SIGTSTP,
];

/// What the scheduler leaves, and what it starts with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// The session, and so the terminal.
    Session,
    /// Only the process group: what it starts can still open the terminal.
    Group,
}

/// Which of the two goes on with the call's return.
#[derive(Debug)]
pub enum Split {
    /// The process that was there.
    Front(Front),
    /// The new one.
    Scheduler(Link),
}

/// The front end's side.
#[derive(Debug)]
pub struct Front {
    scheduler: ProcessRef,
    signals: SignalFd,
    link: UnixStream,
    /// The link has been closed on the other side.
    closed: bool,
    unread: Vec<u8>,
    /// How the scheduler ended, until it is told.
    exit: Option<Exit>,
    /// It has been waited for: its pid may be anybody's.
    waited: bool,
}

/// What a front end hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A signal to the front end.
    Asked(NixSignal),
    /// A line from the scheduler, without its end.
    Said(Vec<u8>),
    /// The scheduler has ended, and all that it said was heard.
    Ended(Exit),
    /// The descriptor that was given is ready, or has been closed on its other side.
    Ready,
    /// Nothing, for as long as was to be waited.
    Nothing,
}

/// The scheduler's side.
#[derive(Debug)]
pub struct Link {
    stream: UnixStream,
    front: Pid,
    /// CPU time of the front end before the split.
    front_cpu: Nanos,
    /// It is in the session of what it starts.
    leaves_commands: bool,
}

/// The limit of open files from before it was raised.
#[derive(Clone, Copy, Debug)]
pub struct OpenFiles(libc::rlimit);

impl OpenFiles {
    /// Raises the limit as far as it may go.
    ///
    /// # Errors
    /// [`Error::System`] where the kernel refuses.
    pub fn raise() -> Result<Self> {
        own::raise_open_files().map(Self)
    }

    /// Puts the limit back; what is open stays open.
    pub fn restore(self) {
        // SAFETY: the kernel reads one whole struct. It was so before, so it can be so.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const self.0) };
    }
}

fn system(what: &'static str) -> impl Fn(nix::Error) -> Error {
    move |e| Error::system(what, "", Errno::from_raw_os_error(e as i32))
}

/// Splits this process in two; see the module's text.
///
/// # Errors
/// [`Error::System`] where the kernel gives no process or descriptor. Where there is a scheduler already, it sees the end
/// of its link.
///
/// # Safety
/// No other thread of the process holds a lock, or will ever do anything that the two do.
pub unsafe fn split(leave: Leave) -> Result<Split> {
    // A child could not be waited for whose end is ignored.
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: the default action runs no code of ours.
    unsafe { sigaction(NixSignal::SIGCHLD, &default) }.map_err(system("set the action for SIGCHLD"))?;
    let taken = TAKEN.into_iter().filter(|signal| !is_ignored(*signal));
    let taken: SigSet = taken.chain([NixSignal::SIGCHLD]).collect();
    let mut before = SigSet::empty();
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&taken), Some(&mut before)).map_err(system("block signals"))?;
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    let signals = SignalFd::with_flags(&taken, flags).map_err(system("open a signalfd"))?;
    let no_link =
        |e: io::Error| Error::system("open", "a socket", Errno::from_io_error(&e).unwrap_or(Errno::IO));
    let (ours, theirs) = UnixStream::pair().map_err(no_link)?;
    let (front, front_cpu) = (rustix::process::getpid(), clock::own_process_cpu());
    let forked = match leave {
        // SAFETY: by this function's own condition the child may do what a process may.
        Leave::Session => unsafe { fork_into_session() },
        // SAFETY: as above.
        Leave::Group => unsafe { fork() },
    };
    match forked.map_err(|e| Error::system(START, "a process", e))? {
        None => {
            // Signals of the terminal stay blocked until they cannot come any more.
            if leave == Leave::Group {
                let left = rustix::process::setpgid(None, None);
                left.map_err(|e| Error::system("leave", "the terminal", e))?;
            }
            let _ = rustix::thread::set_name(NAME); // Only a name.
            sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None).map_err(system("unblock signals"))?;
            let leaves_commands = leave == Leave::Session;
            Ok(Split::Scheduler(Link { stream: theirs, front, front_cpu, leaves_commands }))
        }
        Some(pid) => {
            drop(theirs);
            ours.set_nonblocking(true).map_err(no_link)?;
            let scheduler = ProcessRef::open_child(pid)?;
            Ok(Split::Front(Front {
                scheduler,
                signals,
                link: ours,
                closed: false,
                unread: Vec::new(),
                exit: None,
                waited: false,
            }))
        }
    }
}

/// Forks: none in the child.
///
/// # Safety
/// As [`split`].
unsafe fn fork() -> rustix::io::Result<Option<Pid>> {
    // SAFETY: by the function's own condition.
    match unsafe { libc::fork() } {
        -1 => Err(last_errno()),
        0 => Ok(None),
        child => Pid::from_raw(child).ok_or(Errno::SRCH).map(Some),
    }
}

/// Forks into a session that is nobody's yet: none in the child, which does not lead it, so that it can leave it again. Its
/// leader, another child, has ended by then.
///
/// # Safety
/// As [`split`].
unsafe fn fork_into_session() -> rustix::io::Result<Option<Pid>> {
    let (mut told, teller) = std::io::pipe().map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    // The leader's child becomes ours when it ends.
    let before = nix::sys::prctl::get_child_subreaper().unwrap_or(false);
    nix::sys::prctl::set_child_subreaper(true).map_err(|e| Errno::from_raw_os_error(e as i32))?;
    // SAFETY: by the function's own condition.
    let Some(leader) = (unsafe { fork() })? else {
        drop(told);
        // SAFETY: as above.
        let child = rustix::process::setsid().and_then(|_| unsafe { fork() });
        let number = match child {
            Ok(None) => return Ok(None),
            Ok(Some(pid)) => pid.as_raw_nonzero().get(),
            Err(e) => -e.raw_os_error(),
        };
        // If nobody hears it, nobody is there to schedule for.
        let _ = (&teller).write_all(&number.to_ne_bytes());
        // SAFETY: ends the process without running what the other has to run.
        unsafe { libc::_exit(0) }
    };
    drop(teller);
    let mut number = [0; 4];
    let heard = told.read_exact(&mut number);
    // SAFETY: our own child, whose status nobody wants.
    unsafe { libc::waitpid(leader.as_raw_nonzero().get(), std::ptr::null_mut(), 0) };
    let _ = nix::sys::prctl::set_child_subreaper(before); // It was possible a moment ago.
    heard.map_err(|_| Errno::SRCH)?;
    match i32::from_ne_bytes(number) {
        child if child > 0 => Pid::from_raw(child).ok_or(Errno::SRCH).map(Some),
        error => Err(Errno::from_raw_os_error(-error)),
    }
}

impl Front {
    /// Waits until something happens: no longer than `limit`, and, where `also` is given, until that can be read.
    ///
    /// # Errors
    /// [`Error::System`] where the signalfd or the child cannot be waited for.
    pub fn next(&mut self, also: Option<BorrowedFd<'_>>, limit: Option<Nanos>) -> Result<Event> {
        let limit = limit.map(|limit| clock::now() + limit);
        loop {
            if let Some(line) = self.line() {
                return Ok(Event::Said(line));
            }
            match self.signals.read_signal() {
                Ok(Some(info)) => match NixSignal::try_from(info.ssi_signo as i32) {
                    Ok(NixSignal::SIGCHLD) | Err(_) => {}
                    Ok(signal) => return Ok(Event::Asked(signal)),
                },
                Ok(None) | Err(nix::Error::EINTR) => {}
                Err(e) => return Err(system("read the signalfd")(e)),
            }
            if !self.waited
                && let Some(exit) = ended(self.scheduler.pid())?
            {
                (self.waited, self.exit) = (true, Some(exit));
                // What it said before its end has been written by now, and is told first.
                self.listen();
                self.closed = true;
                continue;
            }
            if let Some(exit) = self.exit.take() {
                return Ok(Event::Ended(exit));
            }
            let left = limit.map(|limit| limit.since(clock::now()));
            if left == Some(Nanos::ZERO) {
                return Ok(Event::Nothing);
            }
            if self.wait(also, left)? {
                return Ok(Event::Ready);
            }
            self.listen();
        }
    }

    /// Sleeps until there is something to be looked at; whether `also` is ready.
    fn wait(&self, also: Option<BorrowedFd<'_>>, left: Option<Nanos>) -> Result<bool> {
        let left = left.map(|n| Timespec {
            tv_sec: (n.0 / 1_000_000_000) as i64,
            tv_nsec: (n.0 % 1_000_000_000) as i64,
        });
        let mut polled = vec![PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN)];
        if !self.closed {
            polled.push(PollFd::from_borrowed_fd(self.link.as_fd(), PollFlags::IN));
        }
        let own = polled.len();
        polled.extend(also.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        match poll(&mut polled, left.as_ref()) {
            Ok(_) => Ok(polled.get(own).is_some_and(|fd| !fd.revents().is_empty())),
            Err(Errno::INTR) => Ok(false),
            Err(e) => Err(Error::system("wait for", "the scheduler", e)),
        }
    }

    fn listen(&mut self) {
        let mut bytes = [0; 16 * 1024];
        while !self.closed {
            match self.link.read(&mut bytes) {
                Ok(0) => self.closed = true,
                Ok(n) => self.unread.extend_from_slice(&bytes[..n]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    // One that cannot be read says nothing any more.
                    self.closed |= e.kind() != io::ErrorKind::WouldBlock;
                    return;
                }
            }
        }
    }

    fn line(&mut self) -> Option<Vec<u8>> {
        let end = self.unread.iter().position(|&b| b == b'\n')?;
        let mut line: Vec<u8> = self.unread.drain(..=end).collect();
        line.pop();
        Some(line)
    }

    /// Tells the scheduler a word of one byte, without waiting.
    pub fn tell(&mut self, word: u8) {
        // One that is gone, or hears nothing of so many words, is not to be told.
        let _ = self.link.write(&[word]);
    }

    /// Has the scheduler's end told once more.
    pub fn tell_again(&mut self, exit: Exit) {
        self.exit = Some(exit);
    }

    /// Passes a signal on to the scheduler.
    pub fn pass_on(&self, signal: NixSignal) {
        // One that has ended needs none, and no other has its pidfd.
        if let Some(signal) = Signal::from_named_raw(signal as i32) {
            let _ = self.scheduler.signal(signal);
        }
    }

    /// Stops this process, as SIGTSTP does to everybody, and returns when it was resumed: at once where the kernel stops
    /// nobody, since nobody would be there to resume it.
    pub fn stop_self(&self) {
        let only: SigSet = [NixSignal::SIGTSTP].into_iter().collect();
        let _ = nix::sys::signal::kill(nix::unistd::getpid(), NixSignal::SIGTSTP);
        // It waits, for it is blocked; here it is taken, and what comes next was not asked for twice.
        let _ = sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&only), None);
        let _ = sigprocmask(SigmaskHow::SIG_BLOCK, Some(&only), None);
    }
}

impl Link {
    /// Leaves the session of what was started for one of the scheduler's own: to be called once all has been started, and before
    /// anything is suspended. What is started later is in the scheduler's session, and should get one of its own.
    ///
    /// # Errors
    /// [`Error::System`] where the kernel refuses.
    pub fn leave_commands(&mut self) -> Result<()> {
        if std::mem::take(&mut self.leaves_commands) {
            rustix::process::setsid()
                .map_err(|e| Error::system("leave", "the session of the commands", e))?;
        }
        Ok(())
    }

    /// CPU time that the front end has used since the split; zero once it is gone.
    #[must_use]
    pub fn front_cpu(&self) -> Nanos {
        if rustix::process::getppid() != Some(self.front) {
            return Nanos::ZERO; // It is gone, and its pid may be anybody's.
        }
        let used = clock::process_cpu(self.front).ok().flatten().unwrap_or(Nanos::ZERO);
        used.saturating_sub(self.front_cpu)
    }

    /// Another handle of the socket, to be written to or read from.
    ///
    /// # Errors
    /// Where there is no descriptor left.
    pub fn stream(&self) -> io::Result<UnixStream> {
        self.stream.try_clone()
    }
}
