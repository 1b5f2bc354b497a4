//! The threads of a process: what each is and does.

use std::os::fd::AsFd as _;

use super::{ProcPath, RawError, Running, Stat, StatFile, numbered_entries, stat_raw};
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
pub(crate) struct ThreadFiles(Vec<StatFile>);

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
            let Some(stat) = self.0[i].read()? else {
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
        let seen: Vec<Pid> = before.iter().take(told).map(|file| file.pid).collect();
        let (mut failed, mut goes_on, mut keeps) = (None, true, true);
        let walked = numbered_entries(&path, |tid, _| {
            if failed.is_some() || !(goes_on || keeps) {
                return;
            }
            let kept = before.iter().position(|file| file.pid == tid).map(|i| before.swap_remove(i));
            let wanted = goes_on && !seen.contains(&tid);
            match Self::open(pid, tid, kept, wanted) {
                Ok(Some((file, stat))) => {
                    // The kernel gives the lowest number that is free.
                    keeps &= open_files_thought_left(file.as_fd()) >= PLENTY;
                    if keeps {
                        self.0.push(file);
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

    /// The file of a thread, the one that is `kept` if it is still that thread's, and what it says, if that is wanted; `None` if the thread
    /// has ended.
    fn open(
        pid: Pid,
        tid: Pid,
        kept: Option<StatFile>,
        wanted: bool,
    ) -> Result<Option<(StatFile, Option<Stat>)>> {
        if !wanted {
            // One that cannot be opened now is opened when it is wanted.
            let file = kept.or_else(|| StatFile::open_thread(pid, tid).ok().flatten());
            return Ok(file.map(|file| (file, None)));
        }
        if let Some(file) = kept
            && let Some(stat) = file.read()?
        {
            return Ok(Some((file, Some(stat))));
        }
        let Some(file) = StatFile::open_thread(pid, tid)? else { return Ok(None) };
        Ok(file.read()?.map(|stat| (file, Some(stat))))
    }

    /// Where thread `tid` runs, if its file is kept, as [`running`](super::running) tells it.
    pub(crate) fn running(&self, tid: Pid) -> Option<Option<Running>> {
        self.0.iter().find(|file| file.pid == tid).map(StatFile::running)
    }

    /// Closes them.
    pub(crate) fn clear(&mut self) {
        self.0 = Vec::new();
    }
}
