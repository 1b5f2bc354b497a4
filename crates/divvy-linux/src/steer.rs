//! Sending a client's threads to CPUs without keeping them there.

use crate::guard::{SavedAffinity, Table};
use crate::members::Members;
use crate::procfs::StartTime;
use crate::{CpuMask, Error, Pid, Result};

/// A client of more threads than this is left where the kernel puts it: sending one takes 6 us.
pub const THREADS_MAX: usize = 64;

/// The only thread of a client while it may run on one CPU only. The guardian knows what to put back should we die
/// meanwhile.
pub struct Steered {
    tid: Pid,
    mask: CpuMask,
}

impl Steered {
    /// Confines a client's only thread to `cpu`: it moves there, or, if it runs there, its clock is brought up to date.
    /// `None` for a client of several threads, and for one that may not run there or nowhere else, or is not ours to move.
    ///
    /// # Errors
    /// As [`CpuMask::apply`].
    pub fn begin(members: &Members, table: &Table, cpu: u32) -> Result<Option<Self>> {
        let Some((process, slot)) = members.only_thread() else { return Ok(None) };
        let tid = process.pid();
        let Some(mask) = CpuMask::of_thread(tid)?.filter(|mask| mask.contains(cpu)) else { return Ok(None) };
        if mask == CpuMask::only(cpu) {
            return Ok(None);
        }
        table.set_affinity(slot, &SavedAffinity { tid, start: process.start(), mask });
        match CpuMask::only(cpu).apply(tid) {
            Ok(_) => Ok(Some(Self { tid, mask })),
            Err(Error::Permission { .. }) => {
                table.clear_affinity(slot);
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// Puts the affinity back.
    ///
    /// # Errors
    /// As [`CpuMask::apply`].
    pub fn end(self, members: &Members, table: &Table) -> Result<()> {
        self.mask.apply(self.tid)?;
        if let Some((_, slot)) = members.only_thread() {
            table.clear_affinity(slot);
        }
        Ok(())
    }
}

/// Moves a client's only thread to `cpu`, or brings its clock up to date if it runs there, and puts its affinity back
/// at once.
///
/// # Errors
/// As [`CpuMask::apply`].
pub fn steer(members: &Members, table: &Table, cpu: u32) -> Result<()> {
    Steered::begin(members, table, cpu)?.map_or(Ok(()), |steered| steered.end(members, table))
}

/// Moves threads of one client to `cpus`, in turn, or brings their clocks up to date where they are, and puts their
/// affinities back at once. One that may not run on its CPU, has ended or is not ours to move is left alone.
///
/// # Errors
/// As [`CpuMask::apply`].
pub fn spread(members: &Members, table: &Table, threads: &[(Pid, StartTime)], cpus: &[u32]) -> Result<()> {
    let Some(slot) = members.any_slot() else { return Ok(()) };
    for (i, &(tid, start)) in threads.iter().enumerate() {
        let only = CpuMask::only(cpus[i % cpus.len()]);
        let Some(mask) = CpuMask::of_thread(tid)?.filter(|mask| *mask != only) else { continue };
        if only.iter().any(|cpu| !mask.contains(cpu)) {
            continue;
        }
        table.set_affinity(slot, &SavedAffinity { tid, start, mask });
        let moved = match only.apply(tid) {
            Ok(_) => mask.apply(tid).map(|_| ()),
            Err(Error::Permission { .. }) => Ok(()),
            Err(e) => Err(e),
        };
        moved?;
        table.clear_affinity(slot);
    }
    Ok(())
}
