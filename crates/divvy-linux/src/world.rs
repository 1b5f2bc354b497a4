//! The processes of a machine, as far as clients need them: this machine, or one that a test scripts.
//!
//! The guardian has a trait of its own, [`Processes`](crate::guard): what it does after a fork may not allocate, and these may.

#[cfg(test)]
pub(crate) mod script;

use std::os::fd::AsFd as _;

use divvy_policy::Nanos;

use crate::owner::{self, Users};
use crate::perf::TreeCounter;
use crate::procfs::{self, Pending, Stat};
use crate::{Delivery, Error, GroupDelivery, Pid, ProcessRef, Result, Signal, StartTime, clock, own};

/// What can be asked of processes, and done to them. A process that vanished is `None` or [`Delivery::Gone`].
pub trait World {
    /// Names one process for good, as a pidfd with a start time does.
    type Process: std::fmt::Debug;

    /// Counts the CPU time of a process and all its descendants.
    type Counter: std::fmt::Debug;

    /// CPU time of a tree since its counter was made.
    ///
    /// # Errors
    /// As [`TreeCounter::read`].
    fn count(&self, counter: &Self::Counter) -> Result<Nanos>;

    /// The process that has `pid` now, with what it is and does.
    ///
    /// # Errors
    /// As [`ProcessRef::meet`].
    fn meet(&self, pid: Pid) -> Result<Option<(Self::Process, Stat)>>;

    /// Its pid and start time.
    fn identity(process: &Self::Process) -> (Pid, StartTime);

    /// What whoever has `pid` now is and does.
    ///
    /// # Errors
    /// As [`procfs::stat`].
    fn stat(&self, pid: Pid) -> Result<Option<Stat>>;

    /// What a process is and does, asked again and again; `None` once it has been waited for.
    ///
    /// # Errors
    /// As [`procfs::stat`].
    fn state(&self, process: &Self::Process) -> Result<Option<Stat>> {
        let (pid, start) = Self::identity(process);
        Ok(self.stat(pid)?.filter(|stat| stat.start == start))
    }

    /// It will not be asked for its threads for a while: what is kept for that may be let go.
    fn rest(&self, _process: &Self::Process) {}

    /// Calls `each` with every thread of a process that was just seen to have `count`.
    ///
    /// # Errors
    /// As [`procfs::threads`].
    fn threads(&self, process: &Self::Process, count: u32, each: &mut dyn FnMut(Stat)) -> Result<()> {
        self.threads_while(process, count, &mut |stat| {
            each(stat);
            true
        })
    }

    /// As [`threads`](Self::threads), as long as `each` says so.
    ///
    /// # Errors
    /// As [`procfs::threads`].
    fn threads_while(
        &self,
        process: &Self::Process,
        count: u32,
        each: &mut dyn FnMut(Stat) -> bool,
    ) -> Result<()>;

    /// Appends to `found` the children that thread `tid` of `pid` made.
    ///
    /// # Errors
    /// As [`procfs::children`].
    fn children(&self, pid: Pid, tid: Pid, found: &mut Vec<Pid>) -> Result<()>;

    /// CPU time of whoever has `pid` now.
    ///
    /// # Errors
    /// As [`clock::process_cpu`].
    fn cpu(&self, pid: Pid) -> Result<Option<Nanos>>;

    /// Signals that wait to be delivered to it, and, if stops do, to `thread`.
    ///
    /// # Errors
    /// As [`procfs::pending`].
    fn pending(&self, process: &Self::Process, thread: Option<Pid>) -> Result<Option<Pending>>;

    /// Whether whoever has `pid` now stands by a stop signal that it sent itself.
    fn has_stopped_itself(&self, pid: Pid) -> bool;

    /// Sends a signal.
    ///
    /// # Errors
    /// As [`ProcessRef::signal`].
    fn signal(&self, process: &Self::Process, signal: Signal) -> Result<Delivery>;

    /// The same, for one of its threads to take, if that runs, or waits to, on another CPU than ours. Says whether it was sent.
    fn signal_elsewhere(&self, process: &Self::Process, thread: (Pid, StartTime), signal: Signal) -> bool;

    /// Whether we may signal it; `None` if it has ended.
    ///
    /// # Errors
    /// As [`ProcessRef::may_signal`].
    fn may_signal(&self, process: &Self::Process) -> Result<Option<bool>>;

    /// The users that whoever has `pid` now runs as.
    ///
    /// # Errors
    /// As [`users`](crate::owner::users).
    fn users(&self, pid: Pid) -> Result<Option<Users>>;

    /// Calls `each` with every process that we can see, and what tells it from another with its number.
    ///
    /// # Errors
    /// As [`procfs::processes`].
    fn each(&self, each: &mut dyn FnMut(Pid, u64)) -> Result<()>;

    /// As [`procfs::cgroups`].
    fn cgroups(&self, pid: Pid) -> Vec<String>;

    /// As [`procfs::program`].
    fn program(&self, pid: Pid) -> Option<String>;

    /// As [`procfs::command_line`].
    fn command(&self, pid: Pid) -> Option<String>;

    /// Sends a signal to the group that it leads or led.
    ///
    /// # Errors
    /// As [`ProcessRef::signal_group`].
    fn signal_group(&self, process: &Self::Process, signal: Signal) -> Result<GroupDelivery>;

    /// Whether the group that it leads or led has members.
    ///
    /// # Errors
    /// As [`ProcessRef::group_has_members`].
    fn group_has_members(&self, process: &Self::Process) -> Result<Option<bool>>;
}

/// Descriptors kept for reading `/proc`, another guardian, and what else comes up.
const DESCRIPTORS_KEPT: u64 = 32;

/// This machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Live;

/// Nothing, in what is released.
#[cfg(not(debug_assertions))]
const fn delay() {}

/// Waits before a signal, for a while up to `DIVVY_TEST_DELAY_US` that the time of day picks: for tests of what comes
/// between two signals, a kill above all.
#[cfg(debug_assertions)]
fn delay() {
    use std::sync::OnceLock;
    static LONGEST: OnceLock<Option<u64>> = OnceLock::new();
    #[expect(clippy::disallowed_methods, reason = "a test's wish, never in what is released")]
    let longest = LONGEST.get_or_init(|| std::env::var("DIVVY_TEST_DELAY_US").ok()?.parse().ok());
    if let Some(longest) = longest {
        clock::sleep(Nanos(clock::now().0 / 7 % (longest * 1000 + 1)));
    }
}

impl World for Live {
    type Process = ProcessRef;
    type Counter = TreeCounter;

    fn count(&self, counter: &TreeCounter) -> Result<Nanos> {
        counter.read()
    }

    /// The last descriptors are not given to members: without any, nobody's state could be read.
    fn meet(&self, pid: Pid) -> Result<Option<(ProcessRef, Stat)>> {
        let met = ProcessRef::meet(pid)?;
        let is_last = |p: &ProcessRef| own::open_files_thought_left(p.as_fd()) < DESCRIPTORS_KEPT;
        if met.as_ref().is_some_and(|(process, _)| is_last(process)) {
            return Err(Error::system("keep a pidfd of process", pid, rustix::io::Errno::MFILE));
        }
        Ok(met)
    }

    fn identity(process: &ProcessRef) -> (Pid, StartTime) {
        (process.pid(), process.start())
    }

    fn stat(&self, pid: Pid) -> Result<Option<Stat>> {
        procfs::stat(pid)
    }

    /// Descriptors are for pidfds first.
    fn state(&self, process: &ProcessRef) -> Result<Option<Stat>> {
        process.stat()
    }

    fn rest(&self, process: &ProcessRef) {
        process.forget_threads();
    }

    fn threads_while(
        &self,
        process: &ProcessRef,
        count: u32,
        each: &mut dyn FnMut(Stat) -> bool,
    ) -> Result<()> {
        process.threads_while(count, each)
    }

    fn children(&self, pid: Pid, tid: Pid, found: &mut Vec<Pid>) -> Result<()> {
        procfs::children(pid, tid, found).map(drop)
    }

    fn cpu(&self, pid: Pid) -> Result<Option<Nanos>> {
        clock::process_cpu(pid)
    }

    fn pending(&self, process: &ProcessRef, thread: Option<Pid>) -> Result<Option<Pending>> {
        match thread {
            Some(thread) => process.pending_of(thread),
            None => process.pending(),
        }
    }

    fn has_stopped_itself(&self, pid: Pid) -> bool {
        procfs::has_stopped_itself(pid)
    }

    fn signal(&self, process: &ProcessRef, signal: Signal) -> Result<Delivery> {
        delay();
        process.signal(signal)
    }

    fn signal_elsewhere(&self, process: &ProcessRef, thread: (Pid, StartTime), signal: Signal) -> bool {
        delay();
        process.signal_elsewhere(thread, signal)
    }

    fn may_signal(&self, process: &ProcessRef) -> Result<Option<bool>> {
        process.may_signal()
    }

    fn users(&self, pid: Pid) -> Result<Option<Users>> {
        owner::users(pid)
    }

    fn each(&self, each: &mut dyn FnMut(Pid, u64)) -> Result<()> {
        procfs::processes_with_inode(each)
    }

    fn cgroups(&self, pid: Pid) -> Vec<String> {
        procfs::cgroups(pid)
    }

    fn program(&self, pid: Pid) -> Option<String> {
        procfs::program(pid)
    }

    fn command(&self, pid: Pid) -> Option<String> {
        procfs::command_line(pid)
    }

    fn signal_group(&self, process: &ProcessRef, signal: Signal) -> Result<GroupDelivery> {
        delay();
        process.signal_group(signal)
    }

    fn group_has_members(&self, process: &ProcessRef) -> Result<Option<bool>> {
        process.group_has_members()
    }
}
