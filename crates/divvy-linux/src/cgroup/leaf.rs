//! One client's cgroup: who is in it, what they have used, and what keeps them from running.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use divvy_policy::{CpuLimit, Nanos};
use rustix::io::Errno;

use super::brake::{Brake, Braked};
use super::ceiling::Ceilings;
use super::rights::Given;
use super::tree::failed;
use super::users::Due;
use crate::{Pid, Result};

/// One client's cgroup.
#[derive(Debug)]
pub(crate) struct Leaf {
    /// Its client's number.
    pub(crate) client: usize,
    pub(super) dir: PathBuf,
    /// The cgroup's number: another one of the same name has another.
    pub(super) inode: u64,
    /// What it is to have.
    pub(super) due: Due,
    /// What keeps its processes from running.
    pub(super) hold: Hold,
    /// What freezes it, where there is such a file.
    pub(super) freeze: Option<(Brake, File)>,
    /// `cpu.idle`, where the leaf is to run when nobody else wants the CPU.
    pub(super) behind: Option<File>,
    /// `cgroup.procs`, until somebody is in it.
    pub(super) procs: Option<File>,
    /// `cpu.stat`, where there is one that has a usage.
    pub(super) usage: Option<File>,
    pub(super) weight: u64,
    /// What it was given of memory and disks.
    pub(super) given: Given,
    /// What it may not exceed, as the kernel was told.
    pub(super) ceilings: Ceilings,
    /// And of the CPU.
    pub(super) limit: Option<CpuLimit>,
    /// Cgroups in it for those that ran before, by where they were.
    pub(super) parts: Vec<(PathBuf, PathBuf)>,
    /// Whether it was told that a process could not be moved.
    pub(super) told: bool,
    /// In whose cgroup it is, if in any user's.
    pub(super) user: Option<u32>,
    /// The client's cgroup in another hierarchy, which is the one that freezes and counts.
    pub(super) second: Option<Box<Leaf>>,
}

/// Bytes of a list of processes that are read at once: some hundred of them.
const LISTED: usize = 1024;

/// What keeps a leaf's processes from running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// `cgroup.freeze`, or `freezer.state` of version 1.
    Freezer,
    /// Signals to each of them.
    Signals,
    /// Nothing but a pause.
    Weight,
}

impl Leaf {
    /// Its cgroup.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Bytes of memory that the kernel keeps for it.
    pub(crate) fn memory_due(&self) -> u64 {
        self.given.kept()
    }

    /// The `cgroup.procs` of each of its hierarchies, for a child that writes itself into it before it becomes what it is to be.
    pub(crate) fn procs(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let second = self.second.as_ref().and_then(|leaf| leaf.procs.as_ref());
        self.procs.iter().chain(second).map(File::as_fd)
    }

    /// Nobody else is to go into it from here: a descriptor less for each client, but for the one by which members are listed.
    pub(crate) fn close(mut self) -> Self {
        if self.behind.is_none() || self.hold != Hold::Freezer || self.second.is_some() {
            self.procs = None;
        }
        self
    }

    /// The one that freezes and counts.
    fn freezer(&self) -> &Self {
        self.second.as_deref().unwrap_or(self)
    }

    /// Whether its processes are held one by one, by signals.
    pub(crate) fn is_signalled(&self) -> bool {
        self.hold == Hold::Signals
    }

    /// Whether what was used in it is all that a command has used, to the last switch: where it holds whoever is in it, nobody leaves
    /// it unnoticed.
    pub(crate) fn counts(&self) -> bool {
        self.hold == Hold::Freezer && self.freezer().usage.is_some()
    }

    /// Who is in it; `None` where that cannot be read.
    pub(crate) fn pids(&self) -> Option<Vec<Pid>> {
        let opened;
        let file = match &self.freezer().procs {
            Some(file) => file,
            None => {
                opened = File::open(self.freezer().dir.join("cgroup.procs")).ok()?;
                &opened
            }
        };
        let (mut text, mut length) = (vec![0; LISTED], 0);
        // Of what fits into a page the kernel leaves nothing out, so that less than was asked for is all that there is.
        loop {
            let read = file.read_at(&mut text[length..], length as u64).ok()?;
            length += read;
            if length < text.len() {
                break;
            }
            text.resize(length + LISTED, 0);
        }
        let pids = std::str::from_utf8(&text[..length]).ok()?.split_whitespace();
        Some(pids.filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect())
    }

    /// Whether anybody is in it, or below it; `None` where that cannot be read, as with version 1. In one that is gone nobody is.
    pub(crate) fn is_populated(&self) -> Option<bool> {
        let dir = &self.freezer().dir;
        match std::fs::read_to_string(dir.join("cgroup.events")) {
            Ok(text) => Some(text.lines().any(|line| line == "populated 1")),
            Err(e) => (is_gone(Errno::from_io_error(&e)) && !dir.exists()).then_some(false),
        }
    }

    /// Whether `cgroup`, a process's, is this one or below it.
    pub(crate) fn contains(&self, cgroup: &Path) -> bool {
        cgroup.starts_with(&self.freezer().dir)
    }

    /// Somebody has taken its processes out of it: from now on signals hold them. It is thawed, and behind nobody.
    ///
    /// # Errors
    /// As [`Leaf::thaw`]: whoever is in it stays frozen until it is taken apart.
    pub(crate) fn give_up_freezing(&mut self) -> Result<()> {
        self.hold = Hold::Signals;
        // Nobody puts it back any more. In one that is gone nobody is behind.
        let _ = self.put_behind(false);
        self.behind = None;
        self.thaw()
    }

    /// The same without any descriptor: it can be given weights and rights, and neither be frozen nor looked at.
    pub(super) fn without_files(self) -> Self {
        Self { freeze: None, behind: None, procs: None, usage: None, ..self }
    }

    /// Whether this is the first time that a process that could not be moved is told of.
    pub(crate) fn tells_once(&mut self) -> bool {
        !std::mem::replace(&mut self.told, true)
    }

    fn set_frozen(&self, frozen: bool) -> Result<()> {
        let leaf = self.freezer();
        let Some((brake, file)) = &leaf.freeze else { return Ok(()) };
        leaf.write(brake.name(), file, brake.word(frozen), brake.operation(frozen))
    }

    fn write(&self, name: &str, file: &File, text: &str, operation: &'static str) -> Result<()> {
        loop {
            match file.write_at(text.as_bytes(), 0) {
                Ok(_) => return Ok(()),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => {
                    let cause = Errno::from_io_error(&e).unwrap_or(Errno::IO);
                    return Err(failed(operation, &self.dir.join(name), cause));
                }
            }
        }
    }

    /// Whether it can be put behind all others.
    pub(crate) fn gives_way(&self) -> bool {
        self.behind.is_some()
    }

    /// Lets its processes run only where nobody else of the tree wants the CPU, or as its weight says again.
    ///
    /// # Errors
    /// [`Error::System`] or [`Error::Permission`].
    pub(crate) fn put_behind(&self, behind: bool) -> Result<()> {
        let Some(file) = &self.behind else { return Ok(()) };
        let (text, operation) = if behind { ("1", "write 1 to") } else { ("0", "write 0 to") };
        self.write("cpu.idle", file, text, operation)
    }

    /// Keeps all of its processes from running: each at its next return from the kernel. Does nothing in a leaf that has
    /// only a weight.
    ///
    /// # Errors
    /// [`Error::System`] or [`Error::Permission`].
    pub(crate) fn freeze(&self) -> Result<()> {
        self.set_frozen(true)
    }

    /// Lets them run again.
    ///
    /// # Errors
    /// As [`Leaf::freeze`].
    pub(crate) fn thaw(&self) -> Result<()> {
        self.set_frozen(false)
    }

    /// Whether the kernel was told to freeze it, and nobody has taken that back.
    pub(crate) fn is_frozen(&self) -> bool {
        let file = self.freezer().freeze.as_ref();
        let state = file.and_then(|(brake, file)| brake.read(file));
        matches!(state, Some(Braked::Freezing | Braked::Frozen))
    }

    /// CPU time of all that ever were in it; `None` where the kernel does not tell. May be a tick behind a process that
    /// runs just now.
    pub(crate) fn usage(&self) -> Option<Nanos> {
        let mut text = [0; 64];
        let read = self.freezer().usage.as_ref()?.read_at(&mut text, 0).ok()?;
        parse_usage(text.get(..read)?)
    }
}

/// Whether an error says that the cgroup is not there any more.
pub(crate) fn is_gone(e: Option<Errno>) -> bool {
    matches!(e, Some(Errno::NOENT | Errno::NODEV))
}

/// The first line of `cpu.stat`: `usage_usec 1234`.
fn parse_usage(text: &[u8]) -> Option<Nanos> {
    let line = text.split(|&b| b == b'\n').next()?;
    let digits = std::str::from_utf8(line.strip_prefix(b"usage_usec ")?).ok()?;
    digits.trim().parse::<u64>().ok()?.checked_mul(1_000).map(Nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_read_in_us() {
        assert_eq!(parse_usage(b"usage_usec 12\nuser_usec 3\n"), Some(Nanos(12_000)));
        assert_eq!(parse_usage(b"nr_periods 0\n"), None);
        assert_eq!(parse_usage(b""), None);
    }
}
