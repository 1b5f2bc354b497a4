//! Repairing what dead owners left: for the case that owner and guardian died together.

use std::fmt;
use std::os::fd::OwnedFd;

use divvy_policy::Nanos;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;

use super::dir::RuntimeDir;
use super::guardian::HUNG_AFTER;
use super::table::{
    BEAT_NS_OFFSET, HEADER_BYTES, HIGH_WATER_OFFSET, Header, Place, Reach, SECOND_OFFSET, SLOT_BYTES,
    SlotCells, SlotImage, TREE_OFFSET,
};
use super::tree::{SecondCells, TreeCells};
use super::walk::{Live, Processes, READY_MAX, Verdict, Wanted, resume_held};
use crate::cgroup::raw::{self, PATH_MAX};
use crate::{Error, Result, StartTime, State, clock};

/// A process that could not be resumed. Its table is kept, so that a later rescue may try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The process (or the thread whose affinity could not be put back).
    pub pid: Pid,
    /// What the kernel said.
    pub cause: Errno,
}

/// What a rescue found and did. Pids in rising order, each once.
#[derive(Debug, Default)]
pub struct Report {
    /// SIGCONT was sent to these.
    pub resumed: Vec<Pid>,
    /// So many cgroups were frozen, and are thawed.
    pub thawed: u32,
    /// So many cgroups of dead owners were removed.
    pub cgroups: u32,
    /// These had ended.
    pub gone: Vec<Pid>,
    /// The pids of these belong to other processes by now, which were not touched.
    pub foreign: Vec<Pid>,
    /// These could not be resumed.
    pub failed: Vec<Failure>,
    /// Owners that live: their tables were left alone.
    pub still_owned: Vec<Pid>,
    /// Of these, the ones that stand suspended themselves: what they held was resumed, as their guardians would have
    /// done, and their tables were left.
    pub stopped_owners: Vec<Pid>,
    /// Tables of another boot, deleted: nobody of them is suspended any more.
    pub stale_boot: u32,
    /// Tables of another pid namespace (a container's), left alone: their pids mean nothing here.
    pub elsewhere: u32,
    /// Tables that were worked off and deleted.
    pub repaired: u32,
    /// What could not be read or removed; each table was left as it is.
    pub errors: Vec<Error>,
}

impl Report {
    /// Whether everything that should have been resumed was.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.failed.is_empty() && self.errors.is_empty()
    }

    fn finish(mut self) -> Self {
        let key = |pid: &Pid| pid.as_raw_pid();
        for pids in [
            &mut self.resumed,
            &mut self.gone,
            &mut self.foreign,
            &mut self.still_owned,
            &mut self.stopped_owners,
        ] {
            pids.sort_unstable_by_key(key);
            pids.dedup();
        }
        // One that was reached on a second way is not gone.
        let resumed = std::mem::take(&mut self.resumed);
        self.gone.retain(|pid| resumed.binary_search_by_key(&key(pid), key).is_err());
        self.failed.sort_unstable_by_key(|failure| key(&failure.pid));
        self.failed.dedup();
        Self { resumed, ..self }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (resumed, gone, foreign) = (self.resumed.len(), self.gone.len(), self.foreign.len());
        write!(
            f,
            "resumed {resumed}, gone {gone}, recycled pids left alone {foreign}, failed {}",
            self.failed.len()
        )?;
        write!(f, "; tables: repaired {}, of living owners {}", self.repaired, self.still_owned.len())?;
        write!(f, ", of another boot {}, of another namespace {}", self.stale_boot, self.elsewhere)?;
        write!(f, "; cgroups: thawed {}, removed {}", self.thawed, self.cgroups)?;
        write!(f, "; with errors {}", self.errors.len())
    }
}

/// Resumes exactly the processes that are held in a table of `dir` whose owner is dead, and deletes the tables that are
/// done with. A process is one pid and one start time: whoever has the pid since is not touched.
///
/// # Errors
/// [`Error::System`] where the directory or `/proc` cannot be read. What goes wrong with one table is in the report and
/// does not keep the others from being worked off.
pub fn rescue(dir: &RuntimeDir) -> Result<Report> {
    rescue_with(dir, &Live::default(), &Place::here()?)
}

/// As [`rescue()`], in a world of the caller's making.
///
/// # Errors
/// As [`rescue()`].
pub fn rescue_with<P: Processes>(dir: &RuntimeDir, processes: &P, here: &Place) -> Result<Report> {
    let mut report = Report::default();
    for name in dir.names()? {
        let text = name.to_bytes();
        let done = match text.strip_prefix(b"held-") {
            Some(rest) if rest.ends_with(b".table") => rescue_table(dir, &name, processes, here, &mut report),
            Some(rest) if rest.ends_with(b".tmp") => remove_unfinished(dir, &name, rest, processes),
            _ => Ok(()),
        };
        if let Err(e) = done {
            report.errors.push(e);
        }
    }
    Ok(report.finish())
}

fn rescue_table<P: Processes>(
    dir: &RuntimeDir,
    name: &std::ffi::CStr,
    processes: &P,
    here: &Place,
    report: &mut Report,
) -> Result<()> {
    let Some((header, first, file)) = read_header(dir, name)? else { return Ok(()) };
    if header.boot_id != here.boot_id {
        dir.remove(name)?;
        report.stale_boot += 1;
        return Ok(());
    }
    if header.pid_namespace != here.pid_namespace {
        report.elsewhere += 1;
        return Ok(());
    }
    let owned = is_same_and_alive(processes, header.owner, header.owner_start)?;
    if owned {
        report.still_owned.push(header.owner);
        // An owner that stands has nobody released in time. Its guardian does, unless that was suspended with it; a
        // second SIGCONT changes nothing, and an owner that goes on finds its clients running and holds them anew.
        let identity = processes
            .identify(header.owner)
            .map_err(|e| Error::system("find the owner, process", header.owner, e))?;
        if identity.is_none_or(|i| i.state != State::Stopped) {
            return Ok(());
        }
        report.stopped_owners.push(header.owner);
    }

    let path = dir.path_of(name);
    let corrupt = |what: &str| Error::CorruptTable { path: path.clone(), what: what.to_owned() };
    let second = SecondCells::image_of_bytes(&first[SECOND_OFFSET..]).map_err(corrupt)?;
    let tree = TreeCells::<PATH_MAX>::image_of_bytes(&first[TREE_OFFSET..]).map_err(corrupt)?;
    let mut failed = false;
    for tree in second.iter().chain(&tree) {
        let undone = if owned { raw::thaw(tree) } else { raw::dissolve(tree) };
        report.thawed += undone.thawed;
        report.cgroups += undone.removed;
        if let Some(cause) = undone.failed {
            failed = true;
            let root = String::from_utf8_lossy(tree.root.bytes()).into_owned();
            report.errors.push(Error::system("thaw and remove cgroup", root, cause));
        }
    }
    let slots = read_slots(dir, name, &file, &header, &first)?;
    let nr_groups = slots.iter().filter(|slot| matches!(slot.reach, Reach::Group { .. })).count();
    let mut wanted = vec![Wanted::default(); nr_groups];
    let mut ready = Vec::with_capacity(slots.len().min(READY_MAX));
    let latest = latest_member(&first);
    resume_held(processes, slots.into_iter(), latest, &mut ready, &mut wanted, &mut |pid, verdict| {
        match verdict {
            Verdict::Resumed => report.resumed.push(pid),
            Verdict::Gone => report.gone.push(pid),
            Verdict::Foreign => report.foreign.push(pid),
            Verdict::Failed(cause) => {
                failed = true;
                report.failed.push(Failure { pid, cause });
            }
        }
    });
    if !failed && !owned {
        dir.remove(name)?;
        report.repaired += 1;
    }
    Ok(())
}

/// The header of a table, its first page and the file; `None` if the file has been removed meanwhile.
fn read_header(dir: &RuntimeDir, name: &std::ffi::CStr) -> Result<Option<(Header, Vec<u8>, OwnedFd)>> {
    let path = dir.path_of(name);
    let failed = |what, e| Error::system(what, path.display(), e);
    let corrupt = |what: &str| Error::CorruptTable { path: path.clone(), what: what.to_owned() };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err(corrupt("it is a symbolic link")),
        Err(e) => return Err(failed("open", e)),
    };
    let stat = rustix::fs::fstat(&file).map_err(|e| failed("stat", e))?;
    if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() {
        return Err(corrupt("it is not a regular file"));
    }
    let uid = rustix::process::geteuid().as_raw();
    if stat.st_uid != uid {
        return Err(corrupt(&format!(
            "it belongs to user {}, not to user {uid} who runs divvy",
            stat.st_uid
        )));
    }
    let bytes = u64::try_from(stat.st_size).unwrap_or(0);
    if bytes < HEADER_BYTES as u64 {
        return Err(corrupt("it is cut short"));
    }
    let first = read_exact(&file, 0, HEADER_BYTES).map_err(|e| failed("read", e))?;
    let header = Header::parse(&first).map_err(corrupt)?;
    if bytes != header.file_bytes() {
        return Err(corrupt(&format!("it has {bytes} bytes and should have {}", header.file_bytes())));
    }
    Ok(Some((header, first, file)))
}

/// What the slots in use say.
fn read_slots(
    dir: &RuntimeDir,
    name: &std::ffi::CStr,
    file: &OwnedFd,
    header: &Header,
    first: &[u8],
) -> Result<Vec<SlotImage>> {
    let path = dir.path_of(name);
    let corrupt = |what: &str| Error::CorruptTable { path: path.clone(), what: what.to_owned() };
    let high_water =
        first.get(HIGH_WATER_OFFSET..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_ne_bytes(*b));
    if high_water > header.capacity {
        return Err(corrupt("it uses more slots than it has"));
    }
    let bytes = read_exact(file, HEADER_BYTES as u64, high_water as usize * SLOT_BYTES)
        .map_err(|e| Error::system("read", path.display(), e))?;
    let mut slots = Vec::new();
    for slot in bytes.as_chunks::<SLOT_BYTES>().0 {
        slots.extend(SlotCells::image_of_bytes(slot).map_err(corrupt)?);
    }
    Ok(slots)
}

fn read_exact(file: &OwnedFd, at: u64, len: usize) -> rustix::io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let mut read = 0;
    while read < len {
        match rustix::io::pread(file, &mut bytes[read..], at + read as u64) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => read += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(bytes)
}

/// The latest start of a process that the owner can have held: its last heartbeat, and the longest time that the
/// guardian lets it go without one.
fn latest_member(first: &[u8]) -> StartTime {
    let beat =
        first.get(BEAT_NS_OFFSET..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_ne_bytes(*b));
    // Start times count the machine's sleep and heartbeats do not: what has been slept so far is added, which is too
    // much where it was slept later, and never too little.
    let slept = clock::since_boot().saturating_sub(Nanos(clock::now().0));
    StartTime::of(Nanos(beat) + slept + HUNG_AFTER)
}

/// Whether the process that began at `start` still has `pid` and has not ended.
fn is_same_and_alive<P: Processes>(processes: &P, pid: Pid, start: StartTime) -> Result<bool> {
    let failed = |e| Error::system("find the owner, process", pid, e);
    let Some(handle) = processes.open(pid).map_err(failed)? else { return Ok(false) };
    let same = processes.identify(pid).map_err(failed)?.is_some_and(|identity| identity.start == start);
    Ok(same && processes.is_alive(&handle).map_err(failed)?)
}

/// Removes the temporary file of an owner that died before its table was complete: it never held anybody. The name
/// says whose it is.
fn remove_unfinished<P: Processes>(
    dir: &RuntimeDir,
    name: &std::ffi::CStr,
    rest: &[u8],
    processes: &P,
) -> Result<()> {
    let mut numbers =
        rest.split(|&b| b == b'-').map(|part| std::str::from_utf8(part).ok()?.parse::<u64>().ok());
    let pid = numbers.next().flatten().and_then(|n| i32::try_from(n).ok()).and_then(Pid::from_raw);
    let start = numbers.next().flatten().map(StartTime);
    match (pid, start) {
        (Some(pid), Some(start)) if !is_same_and_alive(processes, pid, start)? => dir.remove(name),
        _ => Ok(()),
    }
}
