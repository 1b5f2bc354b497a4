//! Sending a client's threads to CPUs without keeping them there.
//!
//! A thread is confined to a CPU for as long as two system calls take. One that is sent to ours may take our place in between, and run
//! for milliseconds before we come to put its affinity back: what it makes in that time has inherited the CPU ([`Heirs`]). So has
//! what a thread that runs was about to make in a moment of microseconds, for a fork begins with a copy of its maker.
//!
//! **Marks.** What was confined by whoever owns it has to stay so. So a thread that runs is marked meanwhile: its policy, if it is the
//! ordinary one, is `SCHED_BATCH`, which differs by nothing but what happens when it wakes, and is inherited as the CPU is. Where the
//! kernel tells who was made by whom, and when, whoever was made in or right after such a moment is asked for the mark.

use std::collections::VecDeque;

use divvy_policy::{Instant, Nanos};

use crate::guard::{SavedAffinity, Slot, Table};
use crate::members::Members;
use crate::procfs::{self, StartTime};
use crate::{CpuMask, Error, Pid, Result, clock};

/// A client of more threads than this is left where the kernel puts it: sending one takes 6 us.
pub const THREADS_MAX: usize = 64;

/// Whoever was confined for no longer than this was moved, and has hardly run meanwhile.
const UNNOTICED: Nanos = Nanos::from_micros(60);
/// Of so many threads and processes it is looked whether they were made in such a moment.
const HEIRS_MAX: usize = 256;

/// No fork takes longer,
const MAKING_MAX: Nanos = Nanos::from_millis(100);
/// and most of them take no longer than this.
const MAKING_USUAL: Nanos = Nanos::from_micros(300);
/// As many moments are remembered for what is told to have been made in them.
const MOMENTS_KEPT: usize = 2 * THREADS_MAX;

/// Threads that were confined, and may have made others, which are confined for good if nobody looks after them.
///
/// Where the kernel tells of them it is known by their mark, or, of whoever was confined for long as it woke, which has none, by their
/// time. Else whoever was confined for long is looked at at once, and, as somebody may have been in the making then, once more at the
/// client's next look.
#[derive(Debug, Default)]
pub struct Heirs {
    /// The kernel tells whom the client makes.
    told: bool,
    long: Vec<Confined>,
    /// The latest last.
    moments: VecDeque<Moment>,
}

/// `tid`, which may run on `mask`, was confined to `only`.
#[derive(Clone, Copy, Debug)]
struct Confined {
    tid: Pid,
    only: CpuMask,
    mask: CpuMask,
    marked: bool,
}

/// From when to when somebody was confined.
#[derive(Clone, Copy, Debug)]
struct Moment {
    confined: Confined,
    begun: Instant,
    ended: Instant,
    /// What it made first after the end may have been begun before: this is past.
    passed: bool,
}

/// Whether a thread has this policy, and its children would have it too (`SCHED_RESET_ON_FORK`).
fn has_policy(tid: Pid, policy: i32) -> bool {
    // SAFETY: a number goes in, and a number comes out.
    unsafe { libc::syscall(libc::SYS_sched_getscheduler, tid.as_raw_nonzero().get()) == i64::from(policy) }
}

fn set_policy(tid: Pid, policy: i32) -> bool {
    // The kernel's `sched_param`: C libraries have more in theirs.
    let (priority, number) = (0_i32, tid.as_raw_nonzero().get());
    // SAFETY: the kernel reads a priority, which is whole.
    unsafe { libc::syscall(libc::SYS_sched_setscheduler, number, policy, &raw const priority) == 0 }
}

/// Takes a mark away, if the thread has one; says whether it had. Calls the kernel only.
pub(crate) fn unmark(tid: Pid) -> bool {
    has_policy(tid, libc::SCHED_BATCH) && set_policy(tid, libc::SCHED_OTHER)
}

impl Heirs {
    /// From now on [`Heirs::free_made`] is called for whomever the client makes.
    pub fn are_told(&mut self) {
        self.told = true;
    }

    /// It is not any more, and not all is known that was made.
    pub fn are_lost(&mut self) {
        self.told = false;
        let mut seen = Vec::new();
        for moment in std::mem::take(&mut self.moments).into_iter().rev() {
            if !seen.contains(&moment.confined.tid) {
                seen.push(moment.confined.tid);
                moment.confined.free_heirs();
            }
        }
    }

    /// Whoever was made while somebody was confined for long, and may run on that CPU alone, may run wherever its maker may.
    pub fn free(&mut self) {
        for confined in std::mem::take(&mut self.long) {
            confined.free_heirs();
        }
    }

    /// `tid`, a process or thread that `maker` is told to have made by `at`, may run wherever that may, if it has a mark of such a moment.
    pub fn free_made(&mut self, maker: Pid, tid: Pid, at: Instant) {
        let of_maker = self.moments.iter_mut().filter(|moment| moment.confined.tid == maker);
        for moment in of_maker.filter(|moment| moment.begun <= at && !moment.passed) {
            moment.passed = at > moment.ended;
            let soon = at.since(moment.ended) <= MAKING_USUAL;
            let in_time = if moment.confined.marked { at.since(moment.ended) <= MAKING_MAX } else { soon };
            if in_time && moment.confined.free_heir(tid, soon) {
                Confined { tid, ..moment.confined }.free_heirs();
            }
        }
    }

    fn note(&mut self, confined: Confined, begun: Instant) {
        let ended = clock::now();
        let long = ended.since(begun) > UNNOTICED;
        if !self.told {
            if long {
                confined.free_heirs();
                self.long.push(confined);
            }
            return;
        }
        if !(long || confined.marked) {
            return;
        }
        if self.moments.len() == MOMENTS_KEPT {
            self.moments.pop_front();
        }
        self.moments.push_back(Moment { confined, begun, ended, passed: false });
    }
}

impl Confined {
    /// Other threads of the same process, and whatever it and they have made. Who has ended, or is not ours to change, is left alone.
    fn free_heirs(&self) {
        let mut processes = vec![self.tid];
        let mut seen = 0;
        while let Some(process) = processes.pop()
            && seen < HEIRS_MAX
        {
            let mut threads = Vec::new();
            let _ = procfs::threads(process, |thread| threads.push(thread.pid));
            for tid in threads {
                seen += 1;
                if tid != self.tid {
                    self.free_heir(tid, false);
                }
                let _ = procfs::children(process, tid, &mut processes);
            }
        }
    }

    /// Lets `tid` run wherever its maker may, and takes its mark away, if it has inherited both; of one that was not marked only the CPU
    /// tells, and of one that was made `soon` the mark does, for it is set first and taken back last. Says whether it had.
    fn free_heir(&self, tid: Pid, soon: bool) -> bool {
        let confined = self.is_confined(tid);
        let is_heir = match self.marked {
            true => (confined || soon) && unmark(tid),
            false => confined,
        };
        if is_heir && confined {
            let _ = self.mask.apply(tid);
        }
        is_heir
    }

    fn is_confined(&self, tid: Pid) -> bool {
        CpuMask::of_thread(tid).is_ok_and(|mask| mask == Some(self.only))
    }
}

/// The only thread of a client while it may run on one CPU only. The guardian knows what to put back should we die
/// meanwhile.
pub struct Steered {
    confined: Confined,
    begun: Instant,
}

impl Steered {
    /// Confines a client's only thread to `cpu`: it moves there, or, if it runs there, its clock is brought up to date.
    /// `None` for a client of several threads, and for one that may not run there or nowhere else, or is not ours to move.
    ///
    /// # Errors
    /// As [`CpuMask::apply`].
    pub fn begin(members: &Members, table: &Table, cpu: u32) -> Result<Option<Self>> {
        let Some((process, slot)) = members.only_thread() else { return Ok(None) };
        // Whoever wakes with a mark would wait for a tick of the kernel.
        Self::confine((process.pid(), process.start()), cpu, table, slot, false)
    }

    /// Confines a thread to `cpu`, with a mark if it is `marked` and has the ordinary policy. `None` for one that has ended, may not run
    /// there or nowhere else, or is not ours to move.
    fn confine(
        (tid, start): (Pid, StartTime),
        cpu: u32,
        table: &Table,
        slot: &Slot,
        marked: bool,
    ) -> Result<Option<Self>> {
        let Some(mask) = CpuMask::of_thread(tid)?.filter(|mask| mask.contains(cpu)) else { return Ok(None) };
        let only = CpuMask::only(cpu);
        if mask == only {
            return Ok(None);
        }
        let marked = marked && has_policy(tid, libc::SCHED_OTHER);
        table.set_affinity(slot, &SavedAffinity { tid, start, mask, marked });
        let begun = clock::now();
        let marked = marked && set_policy(tid, libc::SCHED_BATCH);
        match only.apply(tid) {
            Ok(_) => Ok(Some(Self { confined: Confined { tid, only, mask, marked }, begun })),
            Err(e) => {
                if marked {
                    unmark(tid);
                }
                table.clear_affinity(slot);
                if matches!(e, Error::Permission { .. }) { Ok(None) } else { Err(e) }
            }
        }
    }

    /// Puts the affinity back.
    ///
    /// # Errors
    /// As [`CpuMask::apply`].
    pub fn end(self, members: &Members, table: &Table, heirs: &mut Heirs) -> Result<()> {
        self.put_back(table, members.only_thread().map(|(_, slot)| slot), heirs)
    }

    fn put_back(self, table: &Table, slot: Option<&Slot>, heirs: &mut Heirs) -> Result<()> {
        let put_back = self.confined.mask.apply(self.confined.tid);
        if self.confined.marked {
            unmark(self.confined.tid);
        }
        put_back?;
        if let Some(slot) = slot {
            table.clear_affinity(slot);
        }
        heirs.note(self.confined, self.begun);
        Ok(())
    }
}

/// Moves a client's only thread to `cpu`, or brings its clock up to date if it runs there, and puts its affinity back
/// at once.
///
/// # Errors
/// As [`CpuMask::apply`].
pub fn steer(members: &Members, table: &Table, cpu: u32, heirs: &mut Heirs) -> Result<()> {
    let Some((process, slot)) = members.only_thread() else { return Ok(()) };
    move_one((process.pid(), process.start()), cpu, table, slot, heirs)
}

/// Moves threads of one client to `cpus`, in turn, or brings their clocks up to date where they are, and puts their
/// affinities back at once. One that may not run on its CPU, has ended or is not ours to move is left alone.
///
/// # Errors
/// As [`CpuMask::apply`].
pub fn spread(
    members: &Members,
    table: &Table,
    threads: &[(Pid, StartTime)],
    cpus: &[u32],
    heirs: &mut Heirs,
) -> Result<()> {
    let Some(slot) = members.any_slot() else { return Ok(()) };
    let to = cpus.iter().cycle();
    threads.iter().zip(to).try_for_each(|(&thread, &cpu)| move_one(thread, cpu, table, slot, heirs))
}

/// Moves a thread of a client that may run; it is marked if its heirs are told of.
pub(crate) fn move_one(
    thread: (Pid, StartTime),
    cpu: u32,
    table: &Table,
    slot: &Slot,
    heirs: &mut Heirs,
) -> Result<()> {
    match Steered::confine(thread, cpu, table, slot, heirs.told)? {
        Some(steered) => steered.put_back(table, Some(slot), heirs),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    /// What a shell starts while it is confined is confined, too, until its heirs are looked after; what was confined otherwise is not
    /// touched.
    #[test]
    fn what_was_made_in_such_a_moment_may_run_wherever_its_maker_may() {
        let mask = CpuMask::of_thread(rustix::process::getpid()).expect("an affinity").expect("a thread");
        let only = CpuMask::only(mask.iter().next().expect("a CPU"));
        let script = "read x; sleep 60 & (sleep 60 & sleep 60 & echo; wait) & wait";
        let mut shell = Command::new("sh");
        let shell = shell.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.spawn().expect("a shell");
        let tid = Pid::from_child(&shell);
        only.apply(tid).expect("ours to change");
        let begun = clock::now();
        shell.stdin.take().expect("a pipe").write_all(b"\n").expect("it reads");
        let mut said = [0];
        std::io::Read::read_exact(shell.stdout.as_mut().expect("a pipe"), &mut said).expect("a line");
        let family = || {
            let (mut all, mut to_do) = (Vec::new(), vec![tid]);
            while let Some(pid) = to_do.pop() {
                all.push(pid);
                procfs::children(pid, pid, &mut to_do).expect("readable");
            }
            all
        };
        let allowed = || -> Vec<_> {
            family().iter().filter_map(|&pid| CpuMask::of_thread(pid).expect("readable")).collect()
        };
        while family().len() < 5 {
            std::thread::yield_now();
        }
        assert!(allowed().iter().all(|&may| may == only), "all have inherited it");
        mask.apply(tid).expect("ours to change");

        let confined = Confined { tid, only, mask, marked: false };
        let mut heirs = Heirs::default();
        heirs.note(confined, begun);
        let freed = allowed();
        heirs.free();
        let again = allowed();
        for pid in family() {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        let _ = shell.wait();
        assert_eq!((freed, again), (vec![mask; 5], vec![mask; 5]));
        assert!(heirs.long.is_empty(), "they are looked at once more, and no more");
    }

    /// Of what the kernel tells, only who was begun in such a moment is freed: while it lasted, or first after it; and whoever has no mark
    /// was confined by others.
    #[test]
    fn who_was_begun_in_such_a_moment_is_told_by_its_time() {
        let mask = CpuMask::of_thread(rustix::process::getpid()).expect("an affinity").expect("a thread");
        let only = CpuMask::only(mask.iter().next().expect("a CPU"));
        let maker = rustix::process::getpid();
        let nobody = Pid::from_raw(i32::MAX).expect("positive");
        let at = |us: u64| Instant::ZERO + Nanos::from_micros(us);
        let moment = |us| Moment {
            confined: Confined { tid: maker, only, mask, marked: true },
            begun: at(us),
            ended: at(us + 5),
            passed: false,
        };
        let made = || {
            let mut child = Command::new("sleep").arg("60").spawn().expect("sleep");
            let tid = Pid::from_child(&child);
            only.apply(tid).expect("ours to change");
            assert!(set_policy(tid, libc::SCHED_BATCH));
            (tid, move || child.kill().and_then(|()| child.wait().map(drop)).expect("it ends"))
        };
        for (times, freed) in [
            (&[99_u64][..], false),
            (&[103], true),
            (&[104, 130], true),
            (&[130], true),
            (&[130, 131], false),
            (&[130, 400, 404], true),
            (&[130, 404, 406, 407], false),
            (&[200_000], false),
        ] {
            let mut heirs = Heirs::default();
            heirs.moments.extend([moment(100), moment(400)]);
            let (tid, mut end) = made();
            for (i, &us) in times.iter().enumerate() {
                // All but the last are others, that have ended.
                heirs.free_made(maker, if i + 1 == times.len() { tid } else { nobody }, at(us));
            }
            let may = CpuMask::of_thread(tid).expect("readable");
            end();
            assert_eq!(may == Some(mask), freed || mask == only, "{times:?}");
        }
        let mut heirs = Heirs::default();
        heirs.moments.push_back(moment(100));
        let (tid, mut end) = made();
        assert!(unmark(tid) && !unmark(tid));
        heirs.free_made(maker, tid, at(103));
        assert_eq!(CpuMask::of_thread(tid).expect("readable"), Some(only));
        // And whoever has the policy, and no CPU of its own, has it by its own will, unless it was begun between two calls of ours.
        mask.apply(tid).expect("ours to change");
        assert!(set_policy(tid, libc::SCHED_BATCH));
        for (us, left) in [(10_000, true), (130, false)] {
            let mut heirs = Heirs::default();
            heirs.moments.push_back(moment(100));
            heirs.free_made(maker, tid, at(us));
            assert_eq!(has_policy(tid, libc::SCHED_BATCH), left && mask != only, "{us}");
        }
        end();
    }
}
