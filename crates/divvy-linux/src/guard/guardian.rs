//! The guardian: a small process that resumes what divvy held, the moment divvy is gone or hangs.
//!
//! It is forked from the owner and not a program of its own, so there is nothing to install and nothing to find. The owner may
//! have threads; of a forked process only the forking thread goes on, and a lock that another held stays locked for ever. So
//! the code from the fork on allocates nothing, takes no lock, cannot panic, and makes system calls only.
//!
//! It is alone in a session of its own, blocks every signal that can be blocked, and keeps two descriptors: the
//! owner's pidfd and the runtime directory. So Ctrl-C, a hang-up, or a signal to the owner's group or session does not
//! reach it, and it keeps no terminal and no pipe open. Its parent is not told of its end by SIGCHLD, and
//! `waitpid(-1)` does not see it (it is a "clone child" to the kernel): an owner that reaps strangers does
//! not meet it. Its end shows in its pidfd alone.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use divvy_policy::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;
use std::sync::atomic::Ordering;

use super::rescue::ticks;
use super::table::{SlotImage, Table, View};
use super::walk::{Live, READY_MAX, Ready, Verdict, Wanted, resume_held};
use crate::cgroup::raw;
use crate::error::last_errno;
use crate::procfs::{ProcPath, stat_raw};
use crate::{Error, Result, clock, own, pidfd};

/// How often an owner has to [beat](Table::beat) at least.
pub const BEAT_INTERVAL: Nanos = Nanos::from_millis(200);
/// An owner without a heartbeat for this long that somebody suspended: what it holds is resumed.
pub const STOPPED_AFTER: Nanos = Nanos::from_millis(500);
/// An owner without a heartbeat for this long, whatever it does: what it holds is resumed.
pub const HUNG_AFTER: Nanos = Nanos::from_secs(5);

/// How often the guardian looks at the heartbeat. The owner's death wakes it at once.
const ROUND: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// The longest time without a heartbeat that one round can add: a guardian that was itself kept from running (or a
/// machine that slept) has not seen the owner miss anything.
const ROUND_COUNTS_MAX: Nanos = Nanos::from_millis(200);

/// The owner's handle of its guardian.
///
/// Dropping it leaves the guardian at its post until the owner's end.
#[derive(Debug)]
pub struct Guardian {
    fd: OwnedFd,
    pid: Pid,
}

impl Guardian {
    /// Forks a guardian for `table`, owned by this process.
    ///
    /// # Errors
    /// [`Error::System`] where the kernel gives no process or descriptor.
    pub fn start(table: &Table) -> Result<Self> {
        let failed = |e| Error::system("start", "the guardian", e);
        let owner = pidfd::open_raw(table.owner()).and_then(|fd| fd.ok_or(Errno::SRCH)).map_err(failed)?;
        // Room for every group of a full table; untouched memory costs nothing.
        let mut wanted = vec![Wanted::default(); table.view().capacity() as usize];
        let mut duty = Duty {
            view: table.view(),
            owner_fd: owner.as_fd(),
            owner: table.owner(),
            dir: table.dir().as_fd(),
            name: table.name(),
            wanted: &mut wanted,
            ready: Vec::with_capacity(READY_MAX),
            seen: Seen::default(),
        };
        let (pid, fd) = fork_quietly(&mut duty).map_err(failed)?;
        Ok(Self { fd, pid })
    }

    /// Its pid. It is a child of the owner, and nobody's client.
    #[must_use]
    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// Whether it lives. (One that somebody stopped does, and is of no use: see [`Table::guardian_beats`].)
    ///
    /// # Errors
    /// [`Error::System`] where polling fails.
    pub fn is_alive(&self) -> Result<bool> {
        pidfd::is_alive_raw(self.as_fd()).map_err(|e| Error::system("poll", "the guardian's pidfd", e))
    }

    /// Puts a new guardian in the place of this one, which is killed if it still lives. To be called when its pidfd
    /// becomes readable. `table` is the one that it was started for.
    ///
    /// # Errors
    /// As [`Guardian::start`]; the old one is gone then, and this handle stays readable: try again.
    pub fn respawn(&mut self, table: &Table) -> Result<()> {
        self.end()?;
        *self = Self::start(table)?;
        Ok(())
    }

    /// Ends the guardian, for an owner that holds nobody any more and lives on.
    ///
    /// # Errors
    /// [`Error::System`] where it cannot be killed or waited for.
    pub fn dismiss(self) -> Result<()> {
        self.end()
    }

    /// Kills and reaps it.
    fn end(&self) -> Result<()> {
        pidfd::signal_raw(self.as_fd(), rustix::process::Signal::KILL)
            .map_err(|e| Error::system("kill", "the guardian", e))?;
        loop {
            // SAFETY: an all-zero `siginfo_t` is a value of it.
            let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
            // SAFETY: the descriptor is open for the call and `info` is ours to be written to.
            let waited = unsafe {
                libc::waitid(
                    libc::P_PIDFD,
                    self.fd.as_raw_fd() as libc::id_t,
                    &mut info,
                    libc::WEXITED | libc::__WALL,
                )
            };
            if waited == 0 {
                return Ok(());
            }
            match last_errno() {
                // Somebody has reaped it for us.
                Errno::CHILD => return Ok(()),
                Errno::INTR => {}
                e => return Err(Error::system("wait for", "the guardian", e)),
            }
        }
    }
}

impl AsFd for Guardian {
    /// Its pidfd: readable once it has died, which calls for [`Guardian::respawn`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Forks `duty`'s process with every signal blocked from its first instruction on.
fn fork_quietly(duty: &mut Duty<'_>) -> rustix::io::Result<(Pid, OwnedFd)> {
    use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
    let errno = |e: nix::errno::Errno| Errno::from_raw_os_error(e as i32);
    let mut before = SigSet::empty();
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut before)).map_err(errno)?;
    let forked = fork(duty);
    // Only the owner comes here.
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None).map_err(errno)?;
    forked
}

fn fork(duty: &mut Duty<'_>) -> rustix::io::Result<(Pid, OwnedFd)> {
    let mut fd: libc::c_int = -1;
    let none = std::ptr::null_mut::<libc::c_void>();
    // No signal number in the flags' low byte: a child that tells nobody of its end. The library's `fork` would set SIGCHLD
    // and run handlers that are of no use to a process that calls the kernel only.
    //
    // SAFETY: with neither CLONE_VM nor a stack this is a fork: the child runs on its own copy of this stack. It
    // calls nothing but `watch`, which never returns and is made of system calls.
    let pid = unsafe {
        libc::syscall(libc::SYS_clone, libc::CLONE_PIDFD as libc::c_ulong, none, &raw mut fd, none, none)
    };
    match pid {
        0 => watch(duty),
        -1 => Err(last_errno()),
        pid => {
            // SAFETY: the kernel has just made this descriptor for us.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
            Ok((pid, fd))
        }
    }
}

/// What the guardian needs: all made before the fork.
struct Duty<'a> {
    view: View,
    owner_fd: BorrowedFd<'a>,
    owner: Pid,
    dir: BorrowedFd<'a>,
    name: &'a CStr,
    wanted: &'a mut [Wanted],
    ready: Vec<Ready<OwnedFd>>,
    seen: Seen,
}

/// What the guardian knows of the heartbeat.
#[derive(Default)]
struct Seen {
    beats: u64,
    /// When the last round was.
    round_at: divvy_policy::Instant,
    /// For how long the heartbeat has stood still.
    silent: Nanos,
    /// The owner's CPU time when what it holds was last resumed in this silence: unless it has run since, it can have
    /// held nobody anew.
    rescued_at: Option<Nanos>,
}

/// The guardian's life. A panic in it (there is no cause for one) ends the process, for it may not unwind into the
/// owner's code.
extern "C" fn watch(duty: &mut Duty<'_>) -> ! {
    settle(duty.owner_fd, duty.dir);
    duty.seen = Seen { beats: duty.beats(), round_at: clock::now(), ..Seen::default() };
    loop {
        let mut polled = [PollFd::from_borrowed_fd(duty.owner_fd, PollFlags::IN)];
        let ended = matches!(rustix::event::poll(&mut polled, Some(&ROUND)), Ok(1..));
        if ended {
            if duty.resume_all() & duty.dissolve() {
                // Removed or not: the owner is dead, nobody is held, and the next rescue would do it.
                let _ = rustix::fs::unlinkat(duty.dir, duty.name, AtFlags::empty());
            }
            // SAFETY: ends the process without running anything of the owner's.
            unsafe { libc::_exit(0) }
        }
        duty.view.live().guardian_beats.fetch_add(1, Ordering::Relaxed);
        duty.look_at_heartbeat();
    }
}

impl Duty<'_> {
    fn beats(&self) -> u64 {
        self.view.live().beats.load(Ordering::Acquire)
    }

    fn images(&self) -> impl Iterator<Item = SlotImage> + Clone + use<> {
        let view = self.view;
        (0..view.len()).filter_map(move |index| view.image(index))
    }

    /// Takes the tree of cgroups apart, if the dead owner had one; whether nothing is left of it.
    fn dissolve(&self) -> bool {
        self.view.tree().image().is_none_or(|tree| raw::dissolve(&tree).failed.is_none())
    }

    /// Resumes everything held; whether nothing was left undone.
    fn resume_all(&mut self) -> bool {
        let latest = ticks(clock::since_boot());
        let mut done = self.view.tree().image().is_none_or(|tree| raw::thaw(&tree).failed.is_none());
        let images = self.images();
        resume_held(&Live::default(), images, latest, &mut self.ready, self.wanted, &mut |_, verdict| {
            done &= !matches!(verdict, Verdict::Failed(_));
        });
        done
    }

    /// Resumes everything held if the owner has not beaten for too long.
    fn look_at_heartbeat(&mut self) {
        let (now, beats) = (clock::now(), self.beats());
        let round = now.since(self.seen.round_at).min(ROUND_COUNTS_MAX);
        self.seen.round_at = now;
        if beats != self.seen.beats {
            self.seen = Seen { beats, round_at: now, ..Seen::default() };
            return;
        }
        self.seen.silent += round;
        let holds = || self.images().any(|slot| slot.held || slot.affinity.is_some());
        if self.seen.silent < STOPPED_AFTER || !(holds() || self.view.tree().is_noted()) {
            return;
        }
        // Read before resuming: an owner that runs meanwhile shows in the next round.
        let Ok(Some(cpu)) = clock::process_cpu_raw(self.owner) else { return };
        if self.seen.rescued_at == Some(cpu) {
            return;
        }
        let suspended =
            matches!(stat_raw(&ProcPath::of(self.owner, "stat")), Ok(Some(s)) if s.state.is_suspended());
        if suspended || self.seen.silent >= HUNG_AFTER {
            // Raised at both ends: an owner that comes back in the middle and holds somebody anew, only to see it
            // resumed by us, is told once more when we have finished.
            self.view.live().generation.fetch_add(1, Ordering::AcqRel);
            self.resume_all();
            self.view.live().generation.fetch_add(1, Ordering::AcqRel);
            self.seen.rescued_at = Some(cpu);
        }
    }
}

/// Leaves the owner's session, terminal, pipes and directory. Each step is as good as it can be done: a guardian
/// that could not open `/dev/null` is still a guardian.
fn settle(owner: BorrowedFd<'_>, dir: BorrowedFd<'_>) {
    let _ = rustix::process::setsid();
    own::come_first();
    let (low, high) = match owner.as_raw_fd() < dir.as_raw_fd() {
        true => (owner.as_raw_fd() as u32, dir.as_raw_fd() as u32),
        false => (dir.as_raw_fd() as u32, owner.as_raw_fd() as u32),
    };
    for (first, last) in [(0, low.wrapping_sub(1)), (low + 1, high.wrapping_sub(1)), (high + 1, u32::MAX)] {
        // `wrapping_sub` of 0 makes an empty range: nothing is below descriptor 0.
        if first <= last && !(first == 0 && low == 0) {
            close_range(first, last);
        }
    }
    // The lowest free numbers are given first: 0, 1 and 2, unless the owner kept our two there.
    for _ in 0..3 {
        if let Ok(null) = rustix::fs::open(c"/dev/null", OFlags::RDWR, Mode::empty()) {
            let _ = std::os::fd::IntoRawFd::into_raw_fd(null);
        }
    }
    let _ = rustix::process::chdir(c"/");
    let _ = rustix::thread::set_name(c"divvy-guardian");
}

/// Closes every descriptor from `first` to `last`.
fn close_range(first: u32, last: u32) {
    // SAFETY: closes descriptors of this process alone; the two that are in use are outside of the range.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if done != 0 {
        // Before Linux 5.9. Descriptors above the limit of today can be left from a higher one; that many do not occur.
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(1 << 20);
        for fd in first..last.min(u32::try_from(limit).unwrap_or(1 << 20)) {
            // SAFETY: as above.
            unsafe { libc::close(fd as libc::c_int) };
        }
    }
}
