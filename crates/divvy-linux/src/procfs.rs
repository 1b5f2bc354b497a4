//! `/proc`: who a process is, what it does, and what its threads wait for.
//!
//! Two layers. Parsers ([`Stat::parse`] and the `*_raw` readers inside the crate) take bytes, allocate nothing and
//! cannot panic, so that the guardian can use them in a forked process. Readers answer `Ok(None)` for a process
//! that is not there (any more) and say everything else with operation, object and cause.

mod disk_use;
mod memory_use;
mod pending;
mod running;
mod threads;

use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use divvy_policy::Nanos;
use rustix::fs::{Mode, OFlags, RawDir};
use rustix::io::Errno;
use rustix::process::Pid;

use crate::{Error, Result};
pub use disk_use::{DiskUse, disk_use};
pub use memory_use::memory_use;
pub use pending::{Pending, SignalSet, StatusFile, has_stopped_itself, pending, pending_of};
pub use running::{Running, running, thread_stat};
pub(crate) use threads::ThreadFiles;
pub use threads::{threads, threads_while};

/// Enough for the first 22 fields of a `stat` line: 20 digits each, and a name of 64 bytes.
const STAT_BYTES: usize = 1024;

/// Where the kernel tells [`boot_id`].
pub(crate) const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// When a process (or thread) began, in clock ticks (10 ms) since boot. With the pid it names a process for good:
/// a recycled pid has another start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StartTime(pub u64);

impl StartTime {
    /// A time since boot, rounded up.
    pub(crate) fn of(since_boot: Nanos) -> Self {
        let per_second = u128::from(rustix::param::clock_ticks_per_second());
        let ticks = (u128::from(since_boot.0) * per_second).div_ceil(1_000_000_000);
        Self(u64::try_from(ticks).unwrap_or(u64::MAX))
    }
}

/// What a thread is doing, the letter of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// R: runs, or waits for a CPU.
    Running,
    /// S: waits for an event, and a signal would wake it.
    Sleeping,
    /// D: waits for an event, mostly the disk, and no signal would wake it.
    DiskSleep,
    /// T: suspended by a signal.
    Stopped,
    /// t: suspended by a tracer.
    Traced,
    /// Z: ended, and not waited for yet.
    Zombie,
    /// X: ended.
    Dead,
    /// I: an idle kernel thread.
    Idle,
    /// P: parked (kernel threads).
    Parked,
    /// A letter that this version does not know.
    Other(u8),
}

impl State {
    /// The state that `letter` stands for.
    #[must_use]
    pub const fn from_letter(letter: u8) -> Self {
        match letter {
            b'R' => Self::Running,
            b'S' => Self::Sleeping,
            b'D' => Self::DiskSleep,
            b'T' => Self::Stopped,
            b't' => Self::Traced,
            b'Z' => Self::Zombie,
            b'X' | b'x' => Self::Dead,
            b'I' => Self::Idle,
            b'P' => Self::Parked,
            other => Self::Other(other),
        }
    }

    /// Whether the thread waits for an event of its own (S, D).
    #[must_use]
    pub const fn is_asleep(self) -> bool {
        matches!(self, Self::Sleeping | Self::DiskSleep)
    }

    /// Whether somebody suspended the thread (T, t).
    #[must_use]
    pub const fn is_suspended(self) -> bool {
        matches!(self, Self::Stopped | Self::Traced)
    }

    /// Whether the thread has ended (Z, X).
    #[must_use]
    pub const fn is_ended(self) -> bool {
        matches!(self, Self::Zombie | Self::Dead)
    }
}

/// A command's name as the kernel keeps it: at most 64 bytes, not necessarily UTF-8. Longer ones are cut.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Comm {
    bytes: [u8; 64],
    len: u8,
}

impl Comm {
    fn new(name: &[u8]) -> Self {
        let mut bytes = [0; 64];
        let mut len = 0;
        for (to, from) in bytes.iter_mut().zip(name) {
            *to = *from;
            len += 1;
        }
        Self { bytes, len }
    }

    /// The name's bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

impl fmt::Display for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.as_bytes()))
    }
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.as_bytes()))
    }
}

/// What `/proc/PID/stat` (or `/proc/PID/task/TID/stat`) says, as far as divvy asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The process, or in a thread's file the thread.
    pub pid: Pid,
    /// The command's name; may hold spaces and parentheses.
    pub comm: Comm,
    /// What it is doing; in a process's file: what its main thread is doing.
    pub state: State,
    /// Its parent; `None` where that is outside of what we can see, and for the kernel's first threads.
    pub ppid: Option<Pid>,
    /// Its process group; `None` for kernel threads.
    pub pgrp: Option<Pid>,
    /// Its session; `None` for kernel threads.
    pub session: Option<Pid>,
    /// The foreground process group of its terminal; `None` where it has none.
    pub foreground: Option<Pid>,
    /// User time of its threads, in clock ticks.
    pub utime: u64,
    /// System time of its threads, in clock ticks.
    pub stime: u64,
    /// User time of children that it waited for, and of theirs, in clock ticks.
    pub cutime: u64,
    /// System time of children that it waited for, and of theirs, in clock ticks.
    pub cstime: u64,
    /// How many threads it has; 0 once it is dead.
    pub num_threads: u32,
    /// When it began.
    pub start: StartTime,
}

impl Stat {
    /// CPU time of the children that it waited for, in clock ticks.
    #[must_use]
    pub const fn ticks_of_children(&self) -> u64 {
        self.cutime.saturating_add(self.cstime)
    }

    /// The line's meaning, or the name of the first field that does not read. Needs the first 22 fields only. The
    /// name ends at the *last* `)`: nothing but numbers comes after it, and anything may be in it.
    ///
    /// # Errors
    /// The name of the field that is missing or malformed, as `proc_pid_stat(5)` calls it.
    pub fn parse(line: &[u8]) -> Result<Self, &'static str> {
        let open = line.iter().position(|&b| b == b'(').ok_or("comm")?;
        let close = line.iter().rposition(|&b| b == b')').filter(|&c| c > open).ok_or("comm")?;
        let pid = number(line.get(..open).unwrap_or_default().trim_ascii())
            .and_then(to_pid)
            .flatten()
            .ok_or("pid")?;
        let comm = Comm::new(line.get(open + 1..close).unwrap_or_default());

        let mut rest = line
            .get(close + 1..)
            .unwrap_or_default()
            .split(|&b| b == b' ' || b == b'\n')
            .filter(|field| !field.is_empty());
        let state = match rest.next() {
            Some([letter]) => State::from_letter(*letter),
            _ => return Err("state"),
        };
        let mut next = |name: &'static str| rest.next().ok_or(name);
        let ppid = optional_pid(next("ppid")?).ok_or("ppid")?;
        let pgrp = optional_pid(next("pgrp")?).ok_or("pgrp")?;
        let session = optional_pid(next("session")?).ok_or("session")?;
        next("tty_nr")?;
        let foreground = optional_pid(next("tpgid")?).ok_or("tpgid")?;
        for skipped in ["flags", "minflt", "cminflt", "majflt", "cmajflt"] {
            next(skipped)?;
        }
        let utime = number(next("utime")?).ok_or("utime")?;
        let stime = number(next("stime")?).ok_or("stime")?;
        let cutime = signed(next("cutime")?).ok_or("cutime")?;
        let cstime = signed(next("cstime")?).ok_or("cstime")?;
        for skipped in ["priority", "nice"] {
            next(skipped)?;
        }
        let num_threads =
            number(next("num_threads")?).and_then(|n| u32::try_from(n).ok()).ok_or("num_threads")?;
        next("itrealvalue")?;
        let start = StartTime(number(next("starttime")?).ok_or("starttime")?);
        // A starttime that the end of the buffer cut would be a wrong one: what follows it must be there too.
        next("vsize")?;
        Ok(Self {
            pid,
            comm,
            state,
            ppid,
            pgrp,
            session,
            foreground,
            utime,
            stime,
            cutime,
            cstime,
            num_threads,
            start,
        })
    }
}

/// The decimal number that `field` is, and nothing else.
fn number(field: &[u8]) -> Option<u64> {
    if field.is_empty() {
        return None;
    }
    field.iter().try_fold(0_u64, |n, &b| match b {
        b'0'..=b'9' => n.checked_mul(10)?.checked_add(u64::from(b - b'0')),
        _ => None,
    })
}

/// A number that the kernel prints with a sign; below zero (it overflowed) counts as zero.
fn signed(field: &[u8]) -> Option<u64> {
    match field {
        [b'-', digits @ ..] => number(digits).map(|_| 0),
        digits => number(digits),
    }
}

/// A pid, or `Some(None)` for 0.
fn to_pid(n: u64) -> Option<Option<Pid>> {
    i32::try_from(n).ok().map(Pid::from_raw)
}

/// A pid field that may be 0 or -1 for "none".
fn optional_pid(field: &[u8]) -> Option<Option<Pid>> {
    match field {
        [b'-', digits @ ..] => number(digits).map(|_| None),
        digits => number(digits).and_then(to_pid),
    }
}

/// A path below `/proc`, built without allocating.
#[derive(Clone, Copy)]
pub(crate) struct ProcPath {
    bytes: [u8; 64],
    len: usize,
}

impl ProcPath {
    /// `/proc/PID/` and then `file`.
    pub(crate) fn of(pid: Pid, file: &str) -> Self {
        Self { bytes: [0; 64], len: 0 }.text("/proc/").number(pid).text("/").text(file)
    }

    /// `/proc/PID/task/TID/` and then `file`.
    pub(crate) fn of_thread(pid: Pid, tid: Pid, file: &str) -> Self {
        Self { bytes: [0; 64], len: 0 }
            .text("/proc/")
            .number(pid)
            .text("/task/")
            .number(tid)
            .text("/")
            .text(file)
    }

    /// Appends `text`; what would not leave room for the final zero is dropped, and no path here is that long.
    fn text(mut self, text: &str) -> Self {
        for &b in text.as_bytes() {
            if self.len + 1 < self.bytes.len()
                && let Some(to) = self.bytes.get_mut(self.len)
            {
                *to = b;
                self.len += 1;
            }
        }
        self
    }

    fn number(self, pid: Pid) -> Self {
        let mut digits = [0_u8; 10];
        let mut rest = pid.as_raw_nonzero().get().unsigned_abs();
        let mut used = 0;
        for to in digits.iter_mut().rev() {
            *to = b'0' + (rest % 10) as u8;
            rest /= 10;
            used += 1;
            if rest == 0 {
                break;
            }
        }
        let shown = digits.get(digits.len() - used..).unwrap_or_default();
        self.text(std::str::from_utf8(shown).unwrap_or_default())
    }

    pub(crate) fn as_c_str(&self) -> &std::ffi::CStr {
        std::ffi::CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }
}

impl fmt::Display for ProcPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.as_c_str().to_string_lossy())
    }
}

/// Whether `errno` says that the process is gone: its directory is (`ENOENT`), or it went after the file was opened
/// (`ESRCH`).
const fn is_gone(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::SRCH)
}

fn open_raw(path: &ProcPath) -> rustix::io::Result<Option<OwnedFd>> {
    match rustix::fs::open(path.as_c_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(fd) => Ok(Some(fd)),
        Err(e) if is_gone(e) => Ok(None),
        Err(e) => Err(e),
    }
}

/// What the file at `path` begins with, as far as `buffer` goes; `None` if the process is gone.
fn read_once<'a>(path: &ProcPath, buffer: &'a mut [u8]) -> Result<Option<&'a [u8]>> {
    match open_raw(path).and_then(|fd| fd.map_or(Ok(None), |fd| pread_raw(fd, buffer))) {
        Ok(None | Some(0)) => Ok(None),
        Ok(Some(n)) => Ok(Some(buffer.get(..n).unwrap_or_default())),
        Err(e) => Err(RawError::from(e).on(path)),
    }
}

/// Reads from `fd` at its start until `buffer` is full or the file ends. How much was read; `None` if the process is
/// gone.
fn pread_raw(fd: impl AsFd, buffer: &mut [u8]) -> rustix::io::Result<Option<usize>> {
    let mut read = 0;
    loop {
        let Some(room) = buffer.get_mut(read..).filter(|room| !room.is_empty()) else {
            return Ok(Some(read));
        };
        match rustix::io::pread(&fd, room, read as u64) {
            Ok(0) => return Ok(Some(read)),
            Ok(n) => read += n,
            Err(Errno::INTR) => {}
            Err(e) if is_gone(e) => return Ok(None),
            Err(e) => return Err(e),
        }
    }
}

/// Reads all of a file of `/proc` that the kernel writes in one go (`single_open`) and that `buffer` has room for: one
/// call, where [`pread_raw`] needs another to see the end.
fn pread_whole(fd: impl AsFd, buffer: &mut [u8]) -> rustix::io::Result<Option<usize>> {
    loop {
        match rustix::io::pread(&fd, &mut *buffer, 0) {
            Ok(n) => return Ok(Some(n)),
            Err(Errno::INTR) => {}
            Err(e) if is_gone(e) => return Ok(None),
            Err(e) => return Err(e),
        }
    }
}

/// Why a raw reading failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RawError {
    Errno(Errno),
    Malformed(&'static str),
}

impl From<Errno> for RawError {
    fn from(e: Errno) -> Self {
        Self::Errno(e)
    }
}

impl RawError {
    pub(crate) fn on(self, path: &ProcPath) -> Error {
        match self {
            Self::Errno(cause) => Error::system("read", path, cause),
            Self::Malformed(what) => Error::Malformed { object: path.to_string(), what },
        }
    }
}

/// The stat file at `path`; allocates nothing.
pub(crate) fn stat_raw(path: &ProcPath) -> Result<Option<Stat>, RawError> {
    match open_raw(path)? {
        Some(fd) => stat_of(&fd),
        None => Ok(None),
    }
}

fn stat_of(fd: impl AsFd) -> Result<Option<Stat>, RawError> {
    let mut buffer = [0; STAT_BYTES];
    match pread_whole(fd, &mut buffer)? {
        None | Some(0) => Ok(None),
        Some(n) => Stat::parse(buffer.get(..n).unwrap_or_default()).map(Some).map_err(RawError::Malformed),
    }
}

/// What process `pid` is and does; `None` if there is no such process. 6.5 us.
///
/// # Errors
/// [`Error::System`] or [`Error::Permission`] where the kernel refuses, [`Error::Malformed`] where it does not write
/// what its manual says.
pub fn stat(pid: Pid) -> Result<Option<Stat>> {
    let path = ProcPath::of(pid, "stat");
    stat_raw(&path).map_err(|e| e.on(&path))
}

/// What `/proc/PID/cgroup` says of a process, or of `"self"`: a line for each hierarchy, `number:controllers:path`. Nothing
/// where there is none.
#[must_use]
pub fn cgroup_text(process: impl std::fmt::Display) -> String {
    std::fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default()
}

/// The paths of `pid` in all hierarchies of cgroups, each once.
#[must_use]
pub fn cgroups(pid: Pid) -> Vec<String> {
    let text = cgroup_text(pid);
    // The path may have colons.
    let mut paths: Vec<String> =
        text.lines().filter_map(|l| l.splitn(3, ':').nth(2).map(str::to_owned)).collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}

/// The base name of the program of `pid` as it was called; `None` for a kernel thread, or where it cannot be read.
#[must_use]
pub fn program(pid: Pid) -> Option<String> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let first = line.split(|&b| b == 0).next().filter(|first| !first.is_empty())?;
    let name = String::from_utf8_lossy(first).into_owned();
    Path::new(&name).file_name().map(|base| base.to_string_lossy().into_owned())
}

/// This boot's id, as the kernel writes it: pids mean nothing after another one.
///
/// # Errors
/// [`Error::System`] where it cannot be read.
pub fn boot_id() -> Result<String> {
    let text = std::fs::read_to_string(BOOT_ID).map_err(|e| {
        let cause = e.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
        Error::system("read", BOOT_ID, cause)
    })?;
    Ok(text.trim().to_owned())
}

/// `/proc/PID/stat`, kept open: 2.9 us a reading. The file stays that of the process it was opened for, and reads as
/// gone once that has been waited for, whoever has the pid then.
#[derive(Debug)]
pub struct StatFile {
    fd: OwnedFd,
    pid: Pid,
}

impl AsFd for StatFile {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl StatFile {
    /// The stat file of whoever has `pid` now; `None` for nobody.
    ///
    /// # Errors
    /// As [`stat`].
    pub fn open(pid: Pid) -> Result<Option<Self>> {
        let path = ProcPath::of(pid, "stat");
        let fd = open_raw(&path).map_err(|e| Error::system("open", path, e))?;
        Ok(fd.map(|fd| Self { fd, pid }))
    }

    /// The stat file of the thread that has `tid` now; `None` if process `pid` has none.
    pub(crate) fn open_thread(pid: Pid, tid: Pid) -> Result<Option<Self>> {
        let path = ProcPath::of_thread(pid, tid, "stat");
        let fd = open_raw(&path).map_err(|e| Error::system("open", path, e))?;
        Ok(fd.map(|fd| Self { fd, pid: tid }))
    }

    /// What it says now; `None` once the process has been waited for.
    ///
    /// # Errors
    /// As [`stat`].
    pub fn read(&self) -> Result<Option<Stat>> {
        stat_of(&self.fd).map_err(|e| e.on(&ProcPath::of(self.pid, "stat")))
    }

    /// Where its thread runs, of a process the main one, as [`running`] tells it.
    pub(crate) fn running(&self) -> Option<Running> {
        running::of(&self.fd)
    }
}

/// What `schedstat` says: time on a CPU and time spent waiting for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Schedstat {
    /// Time on a CPU.
    pub ran: Nanos,
    /// Time spent runnable without a CPU. Booked when the wait ends: it lags while a thread still waits.
    pub waited: Nanos,
    /// How often it was given a CPU.
    pub slices: u64,
}

impl Schedstat {
    /// The line's meaning, or the name of the first field that does not read.
    ///
    /// # Errors
    /// The name of the field that is missing or malformed.
    pub fn parse(line: &[u8]) -> Result<Self, &'static str> {
        let mut fields = line.trim_ascii().split(|&b| b == b' ');
        let mut next = |name| fields.next().and_then(number).ok_or(name);
        Ok(Self { ran: Nanos(next("run time")?), waited: Nanos(next("wait time")?), slices: next("slices")? })
    }
}

/// `/proc/PID/schedstat`, kept open: 0.6 us a reading. Of the *main thread* only, in spite of its place. As
/// [`StatFile`], it never becomes another process's.
#[derive(Debug)]
pub struct SchedstatFile {
    fd: OwnedFd,
    path: ProcPath,
}

impl fmt::Debug for ProcPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl SchedstatFile {
    /// The schedstat file of the main thread of whoever has `pid` now; `None` for nobody.
    ///
    /// # Errors
    /// As [`stat`].
    pub fn open(pid: Pid) -> Result<Option<Self>> {
        let path = ProcPath::of(pid, "schedstat");
        let fd = open_raw(&path).map_err(|e| Error::system("open", path, e))?;
        Ok(fd.map(|fd| Self { fd, path }))
    }

    /// What it says now; `None` once the process has been waited for.
    ///
    /// # Errors
    /// As [`stat`].
    pub fn read(&self) -> Result<Option<Schedstat>> {
        let mut buffer = [0; 128];
        match pread_raw(&self.fd, &mut buffer).map_err(|e| RawError::from(e).on(&self.path))? {
            None | Some(0) => Ok(None),
            Some(n) => Schedstat::parse(buffer.get(..n).unwrap_or_default())
                .map(Some)
                .map_err(|what| RawError::Malformed(what).on(&self.path)),
        }
    }
}

/// Time that the main thread of `pid` ran and waited for a CPU; `None` if there is no such process.
///
/// # Errors
/// As [`stat`].
pub fn schedstat(pid: Pid) -> Result<Option<Schedstat>> {
    match SchedstatFile::open(pid)? {
        Some(file) => file.read(),
        None => Ok(None),
    }
}

/// Who traces `pid` (a debugger, `strace`); `None` if nobody does, or there is no such process.
///
/// # Errors
/// As [`stat`].
pub fn tracer(pid: Pid) -> Result<Option<Pid>> {
    let path = ProcPath::of(pid, "status");
    let mut buffer = [0; 8192];
    let Some(read) = read_once(&path, &mut buffer)? else { return Ok(None) };
    let tracer = read.split(|&b| b == b'\n').find_map(|line| line.strip_prefix(b"TracerPid:"));
    Ok(tracer.and_then(|value| number(value.trim_ascii())).and_then(to_pid).flatten())
}

/// Appends to `found` the children that thread `tid` of process `pid` made (and that have not been handed to another
/// parent); `None` if there is no such thread, or the kernel was built without `CONFIG_PROC_CHILDREN`. While children
/// come and go the list may miss some: the kernel promises a whole one only of a process that stands still.
///
/// # Errors
/// As [`stat`].
pub fn children(pid: Pid, tid: Pid, found: &mut Vec<Pid>) -> Result<Option<()>> {
    let path = ProcPath::of_thread(pid, tid, "children");
    let Some(fd) = open_raw(&path).map_err(|e| Error::system("open", path, e))? else { return Ok(None) };
    let mut buffer = vec![0; 4096];
    let text = loop {
        match pread_raw(&fd, &mut buffer).map_err(|e| RawError::from(e).on(&path))? {
            None => return Ok(None),
            // A full buffer may have cut the last pid: take it all anew in a larger one.
            Some(n) if n == buffer.len() => buffer.resize(n * 4, 0),
            Some(n) => break buffer.get(..n).unwrap_or_default(),
        }
    };
    for field in text.split(|&b| b == b' ').filter(|field| !field.is_empty()) {
        let child = number(field).and_then(to_pid).flatten();
        found.push(child.ok_or_else(|| RawError::Malformed("a child's pid").on(&path))?);
    }
    Ok(Some(()))
}

/// The pid made last, kept open: as long as it stays the same, nobody has made a process or thread.
#[derive(Debug)]
pub struct LastPid(std::fs::File);

impl LastPid {
    /// Opens `/proc/loadavg`.
    ///
    /// # Errors
    /// [`Error::System`] where it cannot be opened.
    pub fn open() -> Result<Self> {
        let file = std::fs::File::open("/proc/loadavg");
        file.map(Self).map_err(|e| {
            Error::system("open", "/proc/loadavg", Errno::from_io_error(&e).unwrap_or(Errno::IO))
        })
    }

    /// The number, which is of use only to be compared.
    ///
    /// # Errors
    /// [`Error::System`] or [`Error::Malformed`] where it cannot be read.
    pub fn read(&self) -> Result<u64> {
        let mut buffer = [0; 128];
        let n = rustix::io::pread(&self.0, &mut buffer, 0)
            .map_err(|e| Error::system("read", "/proc/loadavg", e))?;
        let text = buffer[..n].trim_ascii_end();
        let last = text.rsplit(|&b| b == b' ').next().and_then(number);
        last.ok_or(Error::Malformed { object: "/proc/loadavg".into(), what: "the last pid" })
    }
}

/// The pid that was made last at some moment, as far as the kernel tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Latest(Option<u64>);

impl Latest {
    /// The pid made last by now. Where it cannot be read, that is unknown.
    pub(crate) fn of(file: Option<&LastPid>) -> Self {
        Self(file.and_then(|file| file.read().ok()))
    }

    /// Whether a process or thread may have been made since it was `before`: surely not only where both are known.
    pub(crate) fn has_changed_since(self, before: Self) -> bool {
        self.0.is_none() || self != before
    }
}

/// Calls `each` with the pid of every process that we can see.
///
/// # Errors
/// [`Error::System`] where `/proc` cannot be read.
pub fn processes(mut each: impl FnMut(Pid)) -> Result<()> {
    processes_with_inode(|pid, _| each(pid))
}

/// As [`processes`], with the inode of each process's directory: a recycled pid has another one.
///
/// # Errors
/// As [`processes`].
pub fn processes_with_inode(each: impl FnMut(Pid, u64)) -> Result<()> {
    let path = ProcPath { bytes: [0; 64], len: 0 }.text("/proc");
    match numbered_entries(&path, each) {
        Ok(Some(())) => Ok(()),
        Ok(None) => Err(Error::system("read", path, Errno::NOENT)),
        Err(e) => Err(Error::system("read", path, e)),
    }
}

/// As [`processes`], for places that may not allocate.
pub(crate) fn processes_raw(mut each: impl FnMut(Pid)) -> rustix::io::Result<()> {
    let path = ProcPath { bytes: [0; 64], len: 0 }.text("/proc");
    numbered_entries(&path, |pid, _| each(pid))?.ok_or(Errno::NOENT)
}

/// Calls `each` with every entry of the directory `path` whose name is a number; `None` if it is gone. Allocates
/// nothing.
fn numbered_entries(path: &ProcPath, mut each: impl FnMut(Pid, u64)) -> rustix::io::Result<Option<()>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = match rustix::fs::open(path.as_c_str(), flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(e) if is_gone(e) => return Ok(None),
        Err(e) => return Err(e),
    };
    let mut buffer = [MaybeUninit::uninit(); 8192];
    let mut entries = RawDir::new(fd, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(e) if is_gone(e) => return Ok(None),
            Err(e) => return Err(e),
        };
        if let Some(pid) = number(entry.file_name().to_bytes()).and_then(to_pid).flatten() {
            each(pid, entry.ino());
        }
    }
    Ok(Some(()))
}

/// Bytes of a command line that are read: patterns are about its beginning, and whose it is can make it megabytes long.
const COMMAND_MAX: u64 = 4096;

/// The command line of `pid`, its words joined by blanks, as far as its first 4096 bytes; `None` for a kernel thread, or where it
/// cannot be read.
#[must_use]
pub fn command_line(pid: Pid) -> Option<String> {
    use std::io::Read as _;

    let mut line = Vec::new();
    std::fs::File::open(format!("/proc/{pid}/cmdline"))
        .ok()?
        .take(COMMAND_MAX)
        .read_to_end(&mut line)
        .ok()?;
    let words = line.strip_suffix(b"\0").unwrap_or(&line);
    (!words.is_empty()).then(|| String::from_utf8_lossy(words).replace('\0', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_where_it_is_known_has_nobody_been_made() {
        let file = LastPid::open().expect("readable");
        let before = Latest::of(Some(&file));
        assert_ne!(before, Latest::default());
        std::process::Command::new("true").status().expect("run");
        assert!(Latest::of(Some(&file)).has_changed_since(before));
        assert!(!before.has_changed_since(before));
        assert!(before.has_changed_since(Latest::default()));
        // Not known: somebody may always have been made.
        assert!(Latest::of(None).has_changed_since(Latest::of(None)));
    }
}
