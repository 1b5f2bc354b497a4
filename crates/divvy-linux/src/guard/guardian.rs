//! The guardian: a small process that resumes what divvy held, the moment divvy is gone or hangs.
//!
//! It is an [aide](crate::aide) of the owner and not a program of its own, so there is nothing to install and nothing to find.
//!
//! It is alone in a session of its own, blocks every signal that can be blocked, and keeps two descriptors: the
//! owner's pidfd and the runtime directory. So Ctrl-C, a hang-up, or a signal to the owner's group or session does not
//! reach it, and it keeps no terminal and no pipe open.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use divvy_policy::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::AtFlags;
use rustix::io::Errno;
use rustix::process::Pid;
use std::sync::atomic::Ordering;

use super::table::{SlotImage, Table, View};
use super::walk::{Live, READY_MAX, Ready, Verdict, Wanted, resume_held};
use crate::aide::{Aide, settle};
use crate::cgroup::raw;
use crate::error::START;
use crate::procfs::{ProcPath, stat_raw};
use crate::{Error, Result, StartTime, clock, own, pidfd};

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
pub struct Guardian(Aide);

impl Guardian {
    /// Forks a guardian for `table`, owned by this process.
    ///
    /// # Errors
    /// [`Error::System`] where the kernel gives no process or descriptor.
    pub fn start(table: &Table) -> Result<Self> {
        let failed = |e| Error::system(START, "the guardian", e);
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
        Aide::fork(&mut duty, watch).map(Self).map_err(failed)
    }

    /// Its pid. It is a child of the owner, and nobody's client.
    #[must_use]
    pub const fn pid(&self) -> Pid {
        self.0.pid()
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
        self.0.end().map_err(|e| Error::system("end", "the guardian", e))
    }
}

impl AsFd for Guardian {
    /// Its pidfd: readable once it has died, which calls for [`Guardian::respawn`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
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
    settle([duty.owner_fd, duty.dir], c"divvy-guardian");
    own::come_first();
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

    /// Takes the trees of cgroups apart, if the dead owner had any; whether nothing is left of them.
    fn dissolve(&self) -> bool {
        self.view.undo_trees(raw::dissolve)
    }

    /// Resumes everything held; whether nothing was left undone.
    fn resume_all(&mut self) -> bool {
        let latest = StartTime::of(clock::since_boot());
        let mut done = self.view.undo_trees(raw::thaw);
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
        if self.seen.silent < STOPPED_AFTER || !(holds() || self.view.has_trees()) {
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
