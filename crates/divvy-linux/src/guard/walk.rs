//! Resuming what a table says is held: the one algorithm of guardian and rescue.
//!
//! Allocates nothing and cannot panic, for the guardian runs it in a forked process. Knows processes through
//! [`Processes`] only, so that a test can show it a recycled pid.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Pid, Signal};

use super::table::{Reach, SavedAffinity, SlotImage};
use crate::affinity::CpuMask;
use crate::procfs::{ProcPath, RawError, State, processes_raw, stat_raw};
use crate::{Delivery, GroupDelivery, StartTime, pidfd};

/// What tells one process from another that has its pid later, and one group from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// When it began.
    pub start: StartTime,
    /// What it is doing.
    pub state: State,
    /// Its process group.
    pub pgrp: Option<Pid>,
    /// Its session; `None` for one whose leader no pid namespace of ours has.
    pub session: Option<Pid>,
}

/// The processes of a machine, as far as resuming needs them.
pub trait Processes {
    /// Names one process for good, as a pidfd does.
    type Handle;

    /// A handle of whoever has `pid` now; `None` for nobody.
    ///
    /// # Errors
    /// What the kernel said.
    fn open(&self, pid: Pid) -> rustix::io::Result<Option<Self::Handle>>;

    /// Who has `pid` now (a thread's id will do); `None` for nobody.
    ///
    /// # Errors
    /// What the kernel said; `EPROTO` where `/proc` did not read as it should.
    fn identify(&self, pid: Pid) -> rustix::io::Result<Option<Identity>>;

    /// Whether the process of `handle` has not ended.
    ///
    /// # Errors
    /// What the kernel said.
    fn is_alive(&self, handle: &Self::Handle) -> rustix::io::Result<bool>;

    /// Sends SIGCONT to the process of `handle`.
    ///
    /// # Errors
    /// What the kernel said.
    fn resume(&self, handle: &Self::Handle) -> rustix::io::Result<Delivery>;

    /// Sends SIGCONT to the process group that the process of `handle` leads.
    ///
    /// # Errors
    /// What the kernel said.
    fn resume_group(&self, handle: &Self::Handle) -> rustix::io::Result<GroupDelivery>;

    /// Lets thread `tid` run on `mask` only.
    ///
    /// # Errors
    /// What the kernel said.
    fn set_affinity(&self, tid: Pid, mask: &CpuMask) -> rustix::io::Result<Delivery>;

    /// Gives thread `tid` the ordinary policy, if it has `SCHED_BATCH`.
    fn unmark(&self, tid: Pid);

    /// Calls `each` with the pid of every process, until there are no more.
    ///
    /// # Errors
    /// What the kernel said.
    fn each(&self, each: &mut dyn FnMut(Pid)) -> rustix::io::Result<()>;
}

/// This machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Live {
    /// Never signal a group at once, as if on a kernel before Linux 6.9: each member through its own pidfd.
    pub member_by_member: bool,
}

impl Processes for Live {
    type Handle = OwnedFd;

    fn open(&self, pid: Pid) -> rustix::io::Result<Option<OwnedFd>> {
        pidfd::open_raw(pid)
    }

    fn identify(&self, pid: Pid) -> rustix::io::Result<Option<Identity>> {
        match stat_raw(&ProcPath::of(pid, "stat")) {
            Ok(stat) => Ok(stat.map(|s| Identity {
                start: s.start,
                state: s.state,
                pgrp: s.pgrp,
                session: s.session,
            })),
            Err(RawError::Errno(e)) => Err(e),
            Err(RawError::Malformed(_)) => Err(Errno::PROTO),
        }
    }

    fn is_alive(&self, handle: &OwnedFd) -> rustix::io::Result<bool> {
        pidfd::is_alive_raw(handle.as_fd())
    }

    fn resume(&self, handle: &OwnedFd) -> rustix::io::Result<Delivery> {
        pidfd::signal_raw(handle.as_fd(), Signal::CONT)
    }

    fn resume_group(&self, handle: &OwnedFd) -> rustix::io::Result<GroupDelivery> {
        match self.member_by_member {
            true => Ok(GroupDelivery::Unsupported),
            false => pidfd::signal_group_raw(handle.as_fd(), Signal::CONT),
        }
    }

    fn set_affinity(&self, tid: Pid, mask: &CpuMask) -> rustix::io::Result<Delivery> {
        mask.apply_raw(tid)
    }

    fn unmark(&self, tid: Pid) {
        crate::steer::unmark(tid);
    }

    fn each(&self, each: &mut dyn FnMut(Pid)) -> rustix::io::Result<()> {
        processes_raw(each)
    }
}

/// What became of one process that was to be resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// SIGCONT was sent.
    Resumed,
    /// It has ended.
    Gone,
    /// Another process has its pid: not touched.
    Foreign,
    /// The kernel refused.
    Failed(Errno),
}

/// A group whose members have to be looked for: its number and its session in one word (see [`group_key`]), and the
/// leader's start time, for no member began before it. An array, so that a vector of zeros costs no memory.
pub(crate) type Wanted = [u64; 2];

fn group_key(group: Pid, session: Option<Pid>) -> u64 {
    let half = |pid: Pid| u64::from(pid.as_raw_nonzero().get().unsigned_abs());
    half(group) << 32 | session.map_or(0, half)
}

/// Somebody who is to be resumed, identified already.
#[derive(Debug)]
pub(crate) struct Ready<H> {
    handle: H,
    pid: Pid,
    /// For a group's leader: the group's key, and whether the leader is still in it.
    group: Option<(Wanted, bool)>,
}

/// So many are identified before the first of them is resumed.
pub(crate) const READY_MAX: usize = 4096;

/// Resumes everything held in `slots`, tells `told` what became of each process, and puts saved affinities back.
///
/// Everybody is identified first, which takes most of the time, and then all are resumed in one go: whoever runs again
/// competes with us for the CPU, and would have those after it wait.
///
/// `ready` is room for [`READY_MAX`] of them, or fewer: it is never extended. `wanted` is room for the groups whose
/// members have to be looked for, one entry for each group slot at the most. A member whose leader is gone counts as
/// ours if it began no later than `latest`: whoever came after the owner's death is a stranger that got the group's
/// number again.
pub(crate) fn resume_held<P: Processes>(
    processes: &P,
    slots: impl Iterator<Item = SlotImage> + Clone,
    latest: StartTime,
    ready: &mut Vec<Ready<P::Handle>>,
    wanted: &mut [Wanted],
    told: &mut dyn FnMut(Pid, Verdict),
) {
    let mut nr_wanted = 0;
    let mut want = |group: Wanted| {
        if let Some(room) = wanted.get_mut(nr_wanted) {
            *room = group;
            nr_wanted += 1;
        }
    };
    ready.clear();
    for slot in slots.clone().filter(|slot| slot.held) {
        if ready.len() == ready.capacity() {
            resume_ready(processes, ready, &mut want, told);
        }
        let mut found = identify(processes, &slot);
        if let Found::Failed(Errno::MFILE | Errno::NFILE) = found
            && !ready.is_empty()
        {
            resume_ready(processes, ready, &mut want, told);
            found = identify(processes, &slot);
        }
        match found {
            // Without any room one is resumed at a time.
            Found::Ready(one) if ready.len() == ready.capacity() => {
                resume_one(processes, &one, &mut want, told);
            }
            Found::Ready(one) => ready.push(one),
            Found::Foreign => told(slot.pid, Verdict::Foreign),
            Found::Gone => {
                if let Some(group) = key_of(&slot) {
                    want(group);
                }
                told(slot.pid, Verdict::Gone);
            }
            Found::Failed(e) => {
                if let Some(group) = key_of(&slot) {
                    want(group);
                }
                told(slot.pid, Verdict::Failed(e));
            }
        }
    }
    resume_ready(processes, ready, &mut want, told);
    if let Some(wanted) = wanted.get_mut(..nr_wanted).filter(|wanted| !wanted.is_empty()) {
        wanted.sort_unstable();
        resume_members(processes, wanted, latest, told);
    }
    for saved in slots.filter_map(|slot| slot.affinity) {
        if let Err(e) = restore_affinity(processes, &saved) {
            told(saved.tid, Verdict::Failed(e));
        }
    }
}

fn key_of(slot: &SlotImage) -> Option<Wanted> {
    match slot.reach {
        Reach::Process => None,
        Reach::Group { session } => Some([group_key(slot.pid, session), slot.start.0]),
    }
}

/// Who has a slot's pid.
enum Found<H> {
    /// The slot's own process.
    Ready(Ready<H>),
    /// Nobody.
    Gone,
    /// Another process. While a group has members, its number is given to nobody else. So a leader with another start
    /// time means that the whole group is gone, and the members of the group of that number are strangers.
    Foreign,
    /// The kernel refused.
    Failed(Errno),
}

/// The process of a slot: the handle first, then its identity. A single process has to live as well; a leader that has
/// ended names its group all the same.
fn identify<P: Processes>(processes: &P, slot: &SlotImage) -> Found<P::Handle> {
    let handle = match processes.open(slot.pid) {
        Ok(Some(handle)) => handle,
        Ok(None) => return Found::Gone,
        Err(e) => return Found::Failed(e),
    };
    let identity = match processes.identify(slot.pid) {
        Ok(Some(identity)) => identity,
        Ok(None) => return Found::Gone,
        Err(e) => return Found::Failed(e),
    };
    if identity.start != slot.start {
        return Found::Foreign;
    }
    let group = key_of(slot).map(|key| (key, identity.pgrp == Some(slot.pid)));
    if group.is_none() {
        match processes.is_alive(&handle) {
            Ok(true) => {}
            Ok(false) => return Found::Gone,
            Err(e) => return Found::Failed(e),
        }
    }
    Found::Ready(Ready { handle, pid: slot.pid, group })
}

/// Resumes all that are ready, and makes room for others.
fn resume_ready<P: Processes>(
    processes: &P,
    ready: &mut Vec<Ready<P::Handle>>,
    want: &mut dyn FnMut(Wanted),
    told: &mut dyn FnMut(Pid, Verdict),
) {
    for one in &*ready {
        resume_one(processes, one, want, told);
    }
    ready.clear();
}

fn resume_one<P: Processes>(
    processes: &P,
    one: &Ready<P::Handle>,
    want: &mut dyn FnMut(Wanted),
    told: &mut dyn FnMut(Pid, Verdict),
) {
    let Some((key, is_in_it)) = one.group else {
        return told(one.pid, resume_alone(processes, &one.handle));
    };
    let (verdict, look) = resume_led(processes, &one.handle, is_in_it);
    if look {
        want(key);
    }
    told(one.pid, verdict);
}

fn resume_alone<P: Processes>(processes: &P, handle: &P::Handle) -> Verdict {
    match processes.resume(handle) {
        Ok(Delivery::Sent) => Verdict::Resumed,
        Ok(Delivery::Gone) => Verdict::Gone,
        Err(e) => Verdict::Failed(e),
    }
}

/// Resumes the group of a leader; also says whether its members have to be looked for one by one.
fn resume_led<P: Processes>(processes: &P, handle: &P::Handle, is_in_it: bool) -> (Verdict, bool) {
    let (group, look) = match processes.resume_group(handle) {
        Ok(GroupDelivery::Sent) => (Verdict::Resumed, false),
        Ok(GroupDelivery::Gone) => (Verdict::Gone, false),
        Ok(GroupDelivery::Unsupported) => (Verdict::Gone, true),
        Err(e) => (Verdict::Failed(e), true),
    };
    if group == Verdict::Resumed && is_in_it {
        return (group, false);
    }
    // The leader is not reached through its group: it was held before it had made one, or has gone to another.
    match (processes.resume(handle), group) {
        (_, Verdict::Resumed) | (Ok(Delivery::Sent), Verdict::Gone) => (Verdict::Resumed, look),
        (Err(e), Verdict::Gone) => (Verdict::Failed(e), look),
        _ => (group, look),
    }
}

/// Resumes the members of the groups in `wanted` (sorted), whoever they are; leaders that were found are resumed again,
/// which changes nothing.
fn resume_members<P: Processes>(
    processes: &P,
    wanted: &[Wanted],
    latest: StartTime,
    told: &mut dyn FnMut(Pid, Verdict),
) {
    let is_ours = |identity: &Identity| {
        let Some(pgrp) = identity.pgrp else { return false };
        let key = group_key(pgrp, identity.session);
        let at = wanted.partition_point(|[group, _]| *group < key);
        wanted
            .get(at)
            .is_some_and(|[group, since]| *group == key && (*since..=latest.0).contains(&identity.start.0))
    };
    // The walk may miss a process that is made meanwhile; but one that stands makes none, and none is made standing.
    let walked = processes.each(&mut |pid| {
        // Most processes are nobody's member: a handle is opened only for one that looks like ours, and then it is
        // asked again who it is.
        let looks_ours = processes.identify(pid).is_ok_and(|identity| identity.as_ref().is_some_and(is_ours));
        if !looks_ours {
            return;
        }
        let verdict = match processes.open(pid) {
            Ok(None) => Verdict::Gone,
            Err(e) => Verdict::Failed(e),
            Ok(Some(handle)) => match processes.identify(pid) {
                Ok(Some(identity)) if is_ours(&identity) => match processes.resume(&handle) {
                    Ok(Delivery::Sent) => Verdict::Resumed,
                    Ok(Delivery::Gone) => Verdict::Gone,
                    Err(e) => Verdict::Failed(e),
                },
                Ok(_) => Verdict::Gone,
                Err(e) => Verdict::Failed(e),
            },
        };
        told(pid, verdict);
    });
    if let Err(e) = walked
        && let Some(pid) =
            wanted.first().and_then(|[group, _]| i32::try_from(group >> 32).ok()).and_then(Pid::from_raw)
    {
        told(pid, Verdict::Failed(e));
    }
}

/// Puts an affinity back, and the policy that was changed with it, if the thread is still the one that it was taken from.
fn restore_affinity<P: Processes>(processes: &P, saved: &SavedAffinity) -> rustix::io::Result<()> {
    if processes.identify(saved.tid)?.is_some_and(|identity| identity.start == saved.start) {
        let put_back = processes.set_affinity(saved.tid, &saved.mask);
        if saved.marked {
            processes.unmark(saved.tid);
        }
        put_back?;
    }
    Ok(())
}
