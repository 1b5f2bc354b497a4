//! Waiting for a time, a signal or a child: epoll, an absolute timerfd and two signalfds on one thread.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use divvy_policy::{Instant, Nanos};
use nix::sys::signal::{
    SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal as NixSignal, sigaction, sigprocmask,
};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{EventfdFlags, epoll};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

use crate::{Error, Pid, Result, clock};

const TIMER: u64 = 0;
const SIGNALS: u64 = 1;
const WAKE: u64 = 2;
const CHILDREN: u64 = 3;
/// Descriptors that a caller watches get their numbers from here up.
const WATCHED: u64 = 4;

/// In the long run children's ends wake us once in this time at most: programs that make thousands of orphans a second
/// would have us reap them one by one.
const ENDS_INTERVAL: Nanos = Nanos::from_millis(10);
/// Ends that may come at once before that.
const ENDS_AT_ONCE: u64 = 20;

/// Wakes the scheduling thread out of its wait, from any thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// One that wakes nobody, for measurements without a scheduler.
    ///
    /// # Errors
    /// What the system refused.
    #[doc(hidden)]
    pub fn of_nobody() -> rustix::io::Result<Self> {
        Ok(Self(Arc::new(rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK)?)))
    }

    /// Ends the present wait, or the next one at once if there is none. Any number of calls before a wait is one.
    pub fn wake(&self) {
        // It can only fail where the counter is full, and then the wait has been ended 2^64 times already.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

/// Told once, and then not until it is asked for again.
const ONCE: epoll::EventFlags = epoll::EventFlags::IN.union(epoll::EventFlags::ONESHOT);

/// Processes that a caller watches have their pids for numbers, and this bit.
const PROCESS: u64 = 1 << 63;

/// What ended a wait.
#[derive(Clone, Debug, Default)]
pub struct Woken {
    /// A child ended.
    pub child: bool,
    /// Signals that ask this process for something, in order.
    pub signals: Vec<NixSignal>,
    /// Watched descriptors that are ready, by the numbers that [`Reactor::watch`] gave.
    pub ready: Vec<u64>,
}

/// The descriptors that the scheduling thread sleeps on.
#[derive(Debug)]
pub struct Reactor {
    epoll: std::os::fd::OwnedFd,
    timer: std::os::fd::OwnedFd,
    signals: SignalFd,
    children: SignalFd,
    ends: Ends,
    waker: Waker,
    armed: Option<Instant>,
    watched: u64,
    /// The mask that this process had, which its children get.
    mask: SigSet,
}

/// How often children's ends wake us: [`ENDS_AT_ONCE`] of them whenever they come, more of them once in
/// [`ENDS_INTERVAL`] (a generic cell rate algorithm).
#[derive(Debug, Default)]
struct Ends {
    /// When all that were told would have been due at the long run's rate.
    told: Instant,
    /// Until when the next are not heard.
    deaf_until: Option<Instant>,
}

impl Ends {
    /// Some end is told at `now`.
    fn tell(&mut self, now: Instant) {
        self.told = self.told.max(now) + ENDS_INTERVAL;
        let heard = Instant(self.told.0.saturating_sub(ENDS_INTERVAL.0 * ENDS_AT_ONCE));
        self.deaf_until = (heard > now).then_some(heard);
    }
}

/// Signals that are asked for through the signalfd rather than delivered, besides SIGCHLD. Those of [`IGNORABLE`] only
/// where whoever started us does not have them ignored.
const TAKEN: [NixSignal; 5] =
    [NixSignal::SIGINT, NixSignal::SIGTERM, NixSignal::SIGHUP, NixSignal::SIGQUIT, NixSignal::SIGWINCH];

/// `nohup` has SIGHUP ignored, and a shell without job control SIGINT and SIGQUIT for what it runs in the background. A
/// signalfd would take them all the same.
const IGNORABLE: [NixSignal; 3] = [NixSignal::SIGHUP, NixSignal::SIGINT, NixSignal::SIGQUIT];

/// Whether whoever started us has `signal` ignored.
pub(crate) fn is_ignored(signal: NixSignal) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: no new action is given, and the old one is written to room of its type; all zeros are a value of it too.
    let action = unsafe {
        let _ = libc::sigaction(signal as libc::c_int, std::ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}

impl Reactor {
    /// Blocks the signals that it takes, for the calling thread and those it makes later, and opens the descriptors.
    ///
    /// # Errors
    /// [`Error::System`] where the kernel refuses one of them.
    pub fn new() -> Result<Self> {
        let sys = |what| move |e: nix::Error| Error::system(what, "", Errno::from_raw_os_error(e as i32));
        let is_taken = |signal: &NixSignal| !(IGNORABLE.contains(signal) && is_ignored(*signal));
        let taken = TAKEN.into_iter().filter(is_taken).collect::<SigSet>();
        let (ends, mut mask) = (SigSet::from_iter([NixSignal::SIGCHLD]), SigSet::empty());
        let blocked = taken.into_iter().chain(&ends).collect::<SigSet>();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&blocked), Some(&mut mask)).map_err(sys("block signals"))?;
        // We hear of children that end, not of each one that we suspend and resume.
        let quiet = SigAction::new(SigHandler::SigDfl, SaFlags::SA_NOCLDSTOP, SigSet::empty());
        // SAFETY: the default action runs no code of ours.
        unsafe { sigaction(NixSignal::SIGCHLD, &quiet) }.map_err(sys("set the action for SIGCHLD"))?;
        let open = |signals: &SigSet| {
            SignalFd::with_flags(signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
                .map_err(sys("open a signalfd"))
        };
        let (signals, children) = (open(&taken)?, open(&ends)?);
        let sys = |what| move |e| Error::system(what, "", e);
        let timer = rustix::time::timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )
        .map_err(sys("open a timerfd"))?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(sys("open an epoll descriptor"))?;
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET; // An edge need not be read away.
        epoll::add(&epoll, &timer, epoll::EventData::new_u64(TIMER), edge).map_err(sys("watch the timer"))?;
        let level = epoll::EventFlags::IN;
        epoll::add(&epoll, signals.as_fd(), epoll::EventData::new_u64(SIGNALS), level)
            .map_err(sys("watch the signals"))?;
        epoll::add(&epoll, children.as_fd(), epoll::EventData::new_u64(CHILDREN), ONCE)
            .map_err(sys("watch children's ends"))?;
        let wake = rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(sys("open an eventfd"))?;
        epoll::add(&epoll, &wake, epoll::EventData::new_u64(WAKE), edge).map_err(sys("watch the eventfd"))?;
        let waker = Waker(Arc::new(wake));
        Ok(Self {
            epoll,
            timer,
            signals,
            children,
            ends: Ends::default(),
            waker,
            armed: None,
            watched: WATCHED,
            mask,
        })
    }

    /// The signal mask from before, for children.
    #[must_use]
    pub fn outer_mask(&self) -> SigSet {
        self.mask
    }

    /// What ends a wait from another thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Watches `fd` until it is closed; the number tells it apart in [`Woken::ready`].
    ///
    /// # Errors
    /// [`Error::System`] where epoll refuses it.
    pub fn watch(&mut self, fd: BorrowedFd<'_>) -> Result<u64> {
        let number = self.watched;
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(number), epoll::EventFlags::IN)
            .map_err(|e| Error::system("watch a descriptor", "", e))?;
        self.watched += 1;
        Ok(number)
    }

    /// Watches the pidfd of `pid` until the process ends or the descriptor is closed; it is told once.
    ///
    /// # Errors
    /// [`Error::System`] where epoll refuses it.
    pub fn watch_process(&mut self, fd: impl AsFd, pid: Pid) -> Result<()> {
        let data = epoll::EventData::new_u64(PROCESS | u64::from(pid.as_raw_pid().unsigned_abs()));
        epoll::add(&self.epoll, fd, data, ONCE).map_err(|e| Error::system("watch process", pid, e))
    }

    /// The process that a number in [`Woken::ready`] stands for, if it is one that was watched as such.
    #[must_use]
    pub fn watched_process(number: u64) -> Option<Pid> {
        (number & PROCESS != 0).then(|| Pid::from_raw((number & 0x7fff_ffff) as i32)).flatten()
    }

    /// Stops watching `fd`.
    pub fn unwatch(&mut self, fd: impl AsFd) {
        // A descriptor that is not watched any more is what was asked for.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Sets the timer for a [`wait`](Self::wait) that follows, so that nothing is left to be done before it.
    ///
    /// # Errors
    /// [`Error::System`] where the timer cannot be set.
    pub fn arm_for(&mut self, until: Option<Instant>, now: Instant) -> Result<()> {
        self.hear_ends_if_due(now)?;
        let sleeps = until.is_none_or(|until| until > now);
        let until = until.into_iter().chain(self.ends.deaf_until).min();
        if sleeps && self.armed != until { self.arm(until) } else { Ok(()) }
    }

    /// Sleeps until `until` (`None`: for ever) or something happens. Does not sleep where `until` has passed. Of
    /// children's ends that come in a flood it tells up to 10 ms late, of many at once.
    ///
    /// # Errors
    /// [`Error::System`] where epoll or a descriptor fails.
    pub fn wait(&mut self, until: Option<Instant>, mut now: Instant) -> Result<Woken> {
        loop {
            self.arm_for(until, now)?;
            let sleeps = until.is_none_or(|until| until > now);
            if let Some(woken) = self.wait_once(sleeps)? {
                return Ok(woken);
            }
            // The timer ran out: for the caller, or because children's ends are heard again.
            let Some(due) = self.ends.deaf_until else { return Ok(Woken::default()) };
            now = clock::now();
            if due > now || until.is_some_and(|until| until <= now) {
                return Ok(Woken::default());
            }
        }
    }

    /// What woke us, if it was more than the timer.
    fn wait_once(&mut self, sleeps: bool) -> Result<Option<Woken>> {
        let mut events = [const { std::mem::MaybeUninit::uninit() }; 16];
        let timeout = if sleeps { None } else { Some(&Timespec { tv_sec: 0, tv_nsec: 0 }) };
        let mut woken = Woken::default();
        let ready = match epoll::wait(&self.epoll, &mut events, timeout) {
            Ok((ready, _)) => ready,
            Err(Errno::INTR) => return Ok(Some(woken)),
            Err(e) => return Err(Error::system("wait on epoll", "", e)),
        };
        let (mut signals, mut tells) = (false, false);
        for event in ready {
            tells |= event.data.u64() != TIMER;
            match event.data.u64() {
                TIMER => self.armed = None,
                SIGNALS => signals = true,
                WAKE => {} // An edge: nothing to read, and whoever woke us says why elsewhere.
                CHILDREN => woken.child = true,
                number => woken.ready.push(number),
            }
        }
        if signals {
            take_signals(&mut self.signals, |signal| woken.signals.push(signal))?;
        }
        if woken.child {
            self.take_ends()?;
        }
        Ok((tells || !sleeps).then_some(woken))
    }

    fn take_ends(&mut self) -> Result<()> {
        take_signals(&mut self.children, |_| ())?;
        self.ends.tell(clock::now());
        if self.ends.deaf_until.is_none() { self.hear_ends() } else { Ok(()) }
    }

    fn hear_ends_if_due(&mut self, now: Instant) -> Result<()> {
        if self.ends.deaf_until.take_if(|due| *due <= now).is_some() { self.hear_ends() } else { Ok(()) }
    }

    /// Has epoll tell of the next end, once.
    fn hear_ends(&self) -> Result<()> {
        epoll::modify(&self.epoll, self.children.as_fd(), epoll::EventData::new_u64(CHILDREN), ONCE)
            .map_err(|e| Error::system("watch children's ends", "", e))
    }

    fn arm(&mut self, until: Option<Instant>) -> Result<()> {
        // A zero value would disarm the timer: the moment 0 has passed, and does not come here.
        let ns = until.map_or(0, |t| t.0);
        let spec = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 },
        };
        rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &spec)
            .map_err(|e| Error::system("set the timer", "", e))?;
        self.armed = until;
        Ok(())
    }
}

/// Reads all that `from` holds.
fn take_signals(from: &mut SignalFd, mut take: impl FnMut(NixSignal)) -> Result<()> {
    loop {
        match from.read_signal() {
            Ok(Some(info)) => {
                let _ = NixSignal::try_from(info.ssi_signo as i32).map(&mut take);
            }
            Ok(None) => return Ok(()),
            Err(e) => return Err(Error::system("read the signalfd", "", Errno::from_raw_os_error(e as i32))),
        }
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        // Whoever goes on without us gets its signals back.
        let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.mask), None);
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::raise;

    use super::*;

    #[test]
    fn what_was_ignored_on_entry_stays_ignored() {
        let ignored = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
        // SAFETY: nobody else in this process has an action for it, and none runs code.
        let before = unsafe { sigaction(NixSignal::SIGHUP, &ignored) }.expect("ours");
        let mut reactor = Reactor::new().expect("a reactor");
        // To this thread only: the others have not blocked them.
        raise(NixSignal::SIGHUP).expect("ignored");
        raise(NixSignal::SIGQUIT).expect("blocked");
        let woken = reactor.wait(Some(Instant(1)), Instant(2)).expect("a look");
        assert_eq!(woken.signals, [NixSignal::SIGQUIT]);
        drop(reactor);
        // SAFETY: as above.
        unsafe { sigaction(NixSignal::SIGHUP, &before) }.expect("ours");
        let mut reactor = Reactor::new().expect("a reactor");
        raise(NixSignal::SIGHUP).expect("blocked");
        let woken = reactor.wait(Some(Instant(1)), Instant(2)).expect("a look");
        assert_eq!(woken.signals, [NixSignal::SIGHUP]);
    }

    /// `daemon` of stress-ng makes 3,600 orphans a second: reaping each as it came took 12 % of a CPU.
    #[test]
    fn a_flood_of_ends_is_told_at_a_bounded_rate_and_none_is_lost() {
        let mut reactor = Reactor::new().expect("a reactor");
        let begun = clock::now();
        let mut told = 0;
        let mut is_left = false;
        for _ in 0..500 {
            raise(NixSignal::SIGCHLD).expect("blocked");
            let woken = reactor.wait(Some(Instant(1)), clock::now()).expect("a look");
            told += u64::from(woken.child);
            is_left = !woken.child;
        }
        let most = ENDS_AT_ONCE + clock::now().since(begun).0 / ENDS_INTERVAL.0 + 1;
        assert!((ENDS_AT_ONCE..=most).contains(&told), "{told} of at most {most}");
        // What is left comes by itself, and asks for no look before.
        if is_left {
            let now = clock::now();
            assert!(reactor.wait(Some(now + Nanos::from_secs(60)), now).expect("a wait").child);
        }
        let now = clock::now();
        assert!(
            !reactor.wait(Some(now + Nanos::from_millis(30)), now).expect("a wait").child,
            "there is no more"
        );
    }
}
