//! The threads of a process: what each is and does.

use std::cell::OnceCell;
use std::os::fd::{AsFd, OwnedFd};

use super::{Pending, ProcPath, RawError, Running, Stat, StatFile, StatusFile, numbered_entries, stat_raw};
use crate::own::open_files_thought_left;
use crate::pidfd::DESCRIPTORS_PLENTY;
use crate::{Pid, Result};

/// Of a process of more threads than this no files are kept.
const KEPT_MAX: usize = 64;
/// They are kept only where so many more files may be opened: those of processes come first.
const PLENTY: u64 = 2 * DESCRIPTORS_PLENTY;

/// Calls `each` with what every thread of `pid` is and does ([`Stat::pid`] is the thread's id; its times are the
/// thread's own); `None` if there is no such process. Threads that end meanwhile are left out.
///
/// # Errors
/// As [`stat`](super::stat).
pub fn threads(pid: Pid, mut each: impl FnMut(Stat)) -> Result<Option<()>> {
    threads_while(pid, |stat| {
        each(stat);
        true
    })
}

/// As [`threads`], as long as `each` says so.
///
/// # Errors
/// As [`stat`](super::stat).
pub fn threads_while(pid: Pid, mut each: impl FnMut(Stat) -> bool) -> Result<Option<()>> {
    let path = ProcPath::of(pid, "task");
    let (mut malformed, mut goes_on) = (None, true);
    let walked = numbered_entries(&path, |tid, _| {
        if !goes_on {
            return;
        }
        let path = ProcPath::of_thread(pid, tid, "stat");
        match stat_raw(&path) {
            Ok(Some(stat)) => goes_on = each(stat),
            Ok(None) => {}
            Err(e) => malformed = Some(e.on(&path)),
        }
    });
    match (malformed, walked) {
        (Some(error), _) => Err(error),
        (None, walked) => walked.map_err(|e| RawError::from(e).on(&path)),
    }
}

/// The stat files of a process's threads, kept open: to read one again costs half of what it costs to open it anew, and as long as all are
/// there, and as many as the process has threads, these need not be listed.
#[derive(Debug, Default)]
pub(crate) struct ThreadFiles(Vec<Kept>);

/// What is kept open of one thread. Each names that one for good, whoever has its number later.
#[derive(Debug)]
struct Kept {
    stat: StatFile,
    /// What it is signalled by, once it was.
    pidfd: OnceCell<OwnedFd>,
    /// Its signals that wait, once they were asked for.
    status: OnceCell<StatusFile>,
}

impl Kept {
    fn tid(&self) -> Pid {
        self.stat.pid
    }

    /// Keeps what was opened, unless descriptors are few.
    fn keep<T: AsFd>(cell: &OnceCell<T>, file: T) {
        if open_files_thought_left(file.as_fd()) >= PLENTY {
            let _ = cell.set(file);
        }
    }
}

impl From<StatFile> for Kept {
    fn from(stat: StatFile) -> Self {
        Self { stat, pidfd: OnceCell::new(), status: OnceCell::new() }
    }
}

impl ThreadFiles {
    /// As [`threads_while`], for process `pid`, which is known to have `count` threads. Keeps their files.
    ///
    /// # Errors
    /// As [`stat`](super::stat).
    pub(crate) fn read_while(
        &mut self,
        pid: Pid,
        count: u32,
        each: &mut dyn FnMut(Stat) -> bool,
    ) -> Result<()> {
        if count as usize > KEPT_MAX {
            self.clear();
            return threads_while(pid, each).map(drop);
        }
        let told = match self.0.len() == count as usize {
            true => self.read_kept(each)?,
            false => Some(0),
        };
        told.map_or(Ok(()), |told| self.list(pid, told, each))
    }

    /// Reads those that are kept, up to the first whose thread has ended, and says how many were told by then; `None` if there is none,
    /// or `each` had enough: where nobody has ended, and as many are there, nobody has come.
    fn read_kept(&mut self, each: &mut dyn FnMut(Stat) -> bool) -> Result<Option<usize>> {
        for i in 0..self.0.len() {
            let Some(stat) = self.0[i].stat.read()? else {
                self.0.swap_remove(i);
                return Ok(Some(i));
            };
            if !each(stat) {
                break;
            }
        }
        Ok(None)
    }

    /// Lists the threads, opens the files of those that are not kept, and calls `each` for all but the first `told` of
    /// those that are.
    fn list(&mut self, pid: Pid, told: usize, each: &mut dyn FnMut(Stat) -> bool) -> Result<()> {
        let path = ProcPath::of(pid, "task");
        let mut before = std::mem::take(&mut self.0);
        let seen: Vec<Pid> = before.iter().take(told).map(Kept::tid).collect();
        let (mut failed, mut goes_on, mut keeps) = (None, true, true);
        let walked = numbered_entries(&path, |tid, _| {
            if failed.is_some() || !(goes_on || keeps) {
                return;
            }
            let kept = before.iter().position(|kept| kept.tid() == tid).map(|i| before.swap_remove(i));
            let wanted = goes_on && !seen.contains(&tid);
            match Self::open(pid, tid, kept, wanted) {
                Ok(Some((kept, stat))) => {
                    // The kernel gives the lowest number that is free.
                    keeps &= open_files_thought_left(kept.stat.as_fd()) >= PLENTY;
                    if keeps {
                        self.0.push(kept);
                    }
                    goes_on = stat.map_or(goes_on, &mut *each);
                }
                Ok(None) => {}
                Err(e) => failed = Some(e),
            }
        });
        match (failed, walked) {
            (Some(error), _) => Err(error),
            (None, walked) => walked.map(drop).map_err(|e| RawError::from(e).on(&path)),
        }
    }

    /// What is kept of a thread, the `kept` one if that is still of it, and what its file says, if that is wanted; `None` if the thread
    /// has ended.
    fn open(pid: Pid, tid: Pid, kept: Option<Kept>, wanted: bool) -> Result<Option<(Kept, Option<Stat>)>> {
        if !wanted {
            // One that cannot be opened now is opened when it is wanted.
            let opened = || StatFile::open_thread(pid, tid).ok().flatten().map(Kept::from);
            return Ok(kept.or_else(opened).map(|kept| (kept, None)));
        }
        if let Some(kept) = kept
            && let Some(stat) = kept.stat.read()?
        {
            return Ok(Some((kept, Some(stat))));
        }
        let Some(file) = StatFile::open_thread(pid, tid)? else { return Ok(None) };
        Ok(file.read()?.map(|stat| (Kept::from(file), Some(stat))))
    }

    fn of(&self, tid: Pid) -> Option<&Kept> {
        self.0.iter().find(|kept| kept.tid() == tid)
    }

    /// Where thread `tid` runs, if its file is kept, as [`running`](super::running) tells it.
    pub(crate) fn running(&self, tid: Pid) -> Option<Option<Running>> {
        self.of(tid).map(|kept| kept.stat.running())
    }

    /// What thread `tid` is signalled by, if that is kept.
    pub(crate) fn pidfd(&self, tid: Pid) -> Option<&OwnedFd> {
        self.of(tid)?.pidfd.get()
    }

    /// `pidfd` was opened for thread `tid`, which has been looked at since by what is [kept](Self::running) of it.
    pub(crate) fn keep_pidfd(&self, tid: Pid, pidfd: OwnedFd) {
        if let Some(kept) = self.of(tid) {
            Kept::keep(&kept.pidfd, pidfd);
        }
    }

    /// The signals that wait for thread `tid` of `pid`, as [`pending_of`](super::pending_of) tells them.
    ///
    /// # Errors
    /// As [`stat`](super::stat).
    pub(crate) fn pending(&self, pid: Pid, tid: Pid) -> Result<Option<Pending>> {
        let kept = self.of(tid);
        if let Some(file) = kept.and_then(|kept| kept.status.get()) {
            return file.pending();
        }
        let Some(file) = StatusFile::open_thread(pid, tid)? else { return Ok(None) };
        let pending = file.pending()?;
        // The file was opened by number: it is this thread's if that one has not ended.
        if let Some(kept) = kept
            && kept.stat.read()?.is_some()
        {
            Kept::keep(&kept.status, file);
        }
        Ok(pending)
    }

    /// Closes them.
    pub(crate) fn clear(&mut self) {
        self.0 = Vec::new();
    }
}
