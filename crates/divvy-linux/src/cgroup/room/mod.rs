//! A cgroup of version 2 by its own files, typed: what each reads as, what can be written to it, and what a refusal means.
//!
//! *Idea*: a directory that is held open ([`Cgroup`]), and constants for its files ([`Attribute`]), each of which knows the
//! type that it reads as and the one that it is set to. Everything is relative to the directory, so that a cgroup that was
//! removed and made again by somebody else under the same name is not taken for the first.
//!
//! *Terms*: kernel's `Documentation/admin-guide/cgroup-v2.rst`; `max` is [`Limit::Max`], never a number.
//!
//! Errors name file, value and cgroup, and say what would help: which controller is to be put on, what range there is.

mod cpu;
mod io;
mod memory;
mod text;

use std::fmt;
use std::marker::PhantomData;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;

use super::survey::FIX;
use crate::error::{Error, Result};

pub use cpu::{CPU_MAX, CPU_PRESSURE, CPU_STAT, CPU_WEIGHT, CPUSET_CPUS, CPUSET_EFFECTIVE, CpuMax, CpuStat};
pub use io::{
    Cost, CostModel, CostQos, CostSettings, Device, DeviceIoMax, DeviceWeight, IO_BFQ_WEIGHT, IO_COST_MODEL,
    IO_COST_QOS, IO_MAX, IO_PRESSURE, IO_STAT, IO_WEIGHT, IoMax, IoStat, IoWeights, PerDevice,
};
pub use memory::{
    MEMORY_CURRENT, MEMORY_EVENTS, MEMORY_HIGH, MEMORY_LOW, MEMORY_MAX, MEMORY_MIN, MEMORY_PRESSURE,
    MemoryEvents,
};
pub(super) use text::Parse;
pub(super) use text::Spell;
pub use text::{Hundredths, Limit, Pressure, Stall};

/// `CGROUP2_SUPER_MAGIC`.
const MAGIC: i64 = 0x6367_7270;
const PROCS: &str = "cgroup.procs";
const SUBTREE: &str = "cgroup.subtree_control";
const DIRECTORY: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What a cgroup's children can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    /// CPU time.
    Cpu,
    /// Memory.
    Memory,
    /// Disks.
    Io,
    /// Which CPUs.
    Cpuset,
}

impl Controller {
    /// All, in order.
    pub const ALL: [Self; 4] = [Self::Cpu, Self::Memory, Self::Io, Self::Cpuset];

    /// The kernel's name of it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Io => "io",
            Self::Cpuset => "cpuset",
        }
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a file is set to that cannot be.
#[derive(Clone, Copy, Debug)]
pub enum ReadOnly {}

/// A file of a cgroup: reads as `R`, is set to `W`.
#[derive(Debug)]
pub struct Attribute<R, W = R> {
    name: &'static str,
    controller: Controller,
    /// What it takes, for one who gave it something else.
    takes: &'static str,
    types: PhantomData<fn(W) -> R>,
}

impl<R, W> Attribute<R, W> {
    const fn new(name: &'static str, controller: Controller, takes: &'static str) -> Self {
        Self { name, controller, takes, types: PhantomData }
    }

    /// The file's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

/// A cgroup that is held open: the one that it was, whatever is made under its path later.
#[derive(Debug)]
pub struct Cgroup {
    dir: OwnedFd,
    path: PathBuf,
    inode: u64,
}

impl Cgroup {
    /// The cgroup at `path`.
    ///
    /// # Errors
    /// [`Error::Cgroup`] where there is none, or a directory of something else: version 1, say.
    pub fn open(path: &Path) -> Result<Self> {
        let found = Self::open_any(path)?;
        // Every directory's file system can be asked for, and this one is open.
        let kind = rustix::fs::fstatfs(&found.dir).map(|stat| stat.f_type);
        if kind != Ok(MAGIC) {
            let fix = "it is no cgroup of version 2: mount one, or boot with cgroup_no_v1=all where version 1 has the \
                       controllers";
            return Err(found.error("open", "the cgroup", None, Errno::OPNOTSUPP, fix.to_owned()));
        }
        Ok(found)
    }

    /// The same for a directory of whatever kind.
    pub(crate) fn open_any(path: &Path) -> Result<Self> {
        let opened = rustix::fs::open(path, DIRECTORY, Mode::empty());
        Self::of(opened, path.to_owned())
    }

    fn of(opened: Result<OwnedFd, Errno>, path: PathBuf) -> Result<Self> {
        let stat = opened.and_then(|dir| Ok((rustix::fs::fstat(&dir)?.st_ino, dir)));
        match stat {
            Ok((inode, dir)) => Ok(Self { dir, path, inode }),
            Err(cause) => {
                let fix = match cause {
                    Errno::NOENT => "there is no such cgroup".to_owned(),
                    _ => FIX.to_owned(),
                };
                let path = path.into_boxed_path();
                Err(Error::Cgroup {
                    operation: "open",
                    file: "the cgroup".into(),
                    path,
                    fix: fix.into(),
                    cause,
                })
            }
        }
    }

    /// Where it was found.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The number by which the kernel knows it, and which is not used again.
    #[must_use]
    pub const fn inode(&self) -> u64 {
        self.inode
    }

    /// Whether it is still there: what is at its path is this very cgroup.
    #[must_use]
    pub fn exists(&self) -> bool {
        rustix::fs::stat(&self.path).is_ok_and(|stat| stat.st_ino == self.inode)
    }

    /// A cgroup in it.
    ///
    /// # Errors
    /// [`Error::Cgroup`].
    pub fn child(&self, name: &str) -> Result<Self> {
        Self::of(rustix::fs::openat(&self.dir, name, DIRECTORY, Mode::empty()), self.path.join(name))
    }

    /// Makes a cgroup in it.
    ///
    /// # Errors
    /// [`Error::Cgroup`]; one that is there already is one.
    pub fn make(&self, name: &str) -> Result<Self> {
        let mode = Mode::RWXU | Mode::RGRP | Mode::XGRP | Mode::ROTH | Mode::XOTH;
        rustix::fs::mkdirat(&self.dir, name, mode).map_err(|e| self.refused("make", name, None, e, None))?;
        self.child(name)
    }

    /// Removes a cgroup in it; one that is not there is removed.
    ///
    /// # Errors
    /// [`Error::Cgroup`]: most of all that it is not empty.
    pub fn remove(&self, name: &str) -> Result<()> {
        match rustix::fs::unlinkat(&self.dir, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::BUSY) => {
                let fix = "processes or cgroups are in it: move or end them".to_owned();
                Err(self.error("remove", name, None, Errno::BUSY, fix))
            }
            Err(e) => Err(self.refused("remove", name, None, e, None)),
        }
    }

    /// What a file says.
    ///
    /// # Errors
    /// [`Error::Cgroup`]; [`Error::Malformed`] where it reads as nothing that the kernel documents.
    pub fn get<R: Parse, W>(&self, file: &Attribute<R, W>) -> Result<R> {
        let text = self.read(file.name, Some(file.controller))?;
        R::parse(&text).map_err(|what| Error::Malformed {
            object: self.path.join(file.name).display().to_string(),
            what,
        })
    }

    /// Sets a file.
    ///
    /// # Errors
    /// [`Error::Cgroup`], which names file and value. Nothing was changed then.
    pub fn set<R, W: Spell>(&self, file: &Attribute<R, W>, value: &W) -> Result<()> {
        let text = value.spell();
        let done = self.write(file.name, &text);
        done.map_err(|e| {
            self.refused("write", file.name, Some(&text), e, Some((file.controller, file.takes)))
        })
    }

    /// The controllers that it has for its children.
    ///
    /// # Errors
    /// [`Error::Cgroup`].
    pub fn controllers(&self) -> Result<Vec<Controller>> {
        self.list("cgroup.controllers")
    }

    /// The controllers that are on for its children.
    ///
    /// # Errors
    /// [`Error::Cgroup`].
    pub fn enabled(&self) -> Result<Vec<Controller>> {
        self.list(SUBTREE)
    }

    fn list(&self, file: &str) -> Result<Vec<Controller>> {
        let text = self.read(file, None)?;
        let has = |c: &Controller| text.split_whitespace().any(|word| word == c.name());
        Ok(Controller::ALL.into_iter().filter(has).collect())
    }

    /// Puts a controller on for its children, or off.
    ///
    /// Refuses what the kernel takes and nobody means: with processes in it, the cpu controller makes a cgroup whose
    /// children can only have threads of those processes. The root alone may have both.
    ///
    /// # Errors
    /// [`Error::Cgroup`]: it does not have the controller, or processes are in it.
    pub fn enable(&self, controller: Controller, on: bool) -> Result<()> {
        let text = format!("{}{controller}", if on { '+' } else { '-' });
        let is_root = || self.read("cgroup.type", None).is_err();
        let done = if on && !is_root() && !self.processes()?.is_empty() {
            Err(Errno::BUSY)
        } else {
            self.write(SUBTREE, &text)
        };
        done.map_err(|e| {
            let fix = match e {
                Errno::NOENT if self.exists() => format!(
                    "the {controller} controller is not here: put it on in the cgroup around this one; where version 1 has \
                     it, boot with cgroup_no_v1=all"
                ),
                Errno::BUSY if on => "processes are in it, and only cgroups without any can have controllers for their \
                                      children: move them into a child"
                    .to_owned(),
                Errno::BUSY => "a cgroup in it has put the controller on for its own children".to_owned(),
                _ => return self.refused("write", SUBTREE, Some(&text), e, None),
            };
            self.error("write", SUBTREE, Some(&text), e, fix)
        })
    }

    /// Who is in it, without its children's. Those whom our namespace does not have are left out.
    ///
    /// # Errors
    /// [`Error::Cgroup`].
    pub fn processes(&self) -> Result<Vec<Pid>> {
        let text = self.read(PROCS, None)?;
        Ok(text.lines().filter_map(|line| Pid::from_raw(i32::from_str(line.trim()).ok()?)).collect())
    }

    /// Moves a process with all its threads into it; whether it was alive.
    ///
    /// # Errors
    /// [`Error::Cgroup`].
    pub fn take(&self, pid: Pid) -> Result<bool> {
        let text = pid.as_raw_nonzero().to_string();
        match self.write(PROCS, &text) {
            Ok(()) => Ok(true),
            Err(Errno::SRCH) => Ok(false),
            Err(Errno::OPNOTSUPP | Errno::BUSY) if self.exists() => {
                let fix = "controllers are on for its children: move it into one of them".to_owned();
                Err(self.error("write", PROCS, Some(&text), Errno::BUSY, fix))
            }
            Err(e) => Err(self.refused("write", PROCS, Some(&text), e, None)),
        }
    }

    fn read(&self, file: &str, controller: Option<Controller>) -> Result<String> {
        let opened = rustix::fs::openat(&self.dir, file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let read = opened.and_then(|file| {
            let mut text = String::new();
            let done = std::io::Read::read_to_string(&mut std::fs::File::from(file), &mut text);
            done.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO)).map(|_| text)
        });
        read.map_err(|e| self.refused("read", file, None, e, controller.map(|c| (c, ""))))
    }

    fn write(&self, file: &str, text: &str) -> Result<(), Errno> {
        let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.dir, file, flags, Mode::empty())?;
        // The kernel takes such a text whole or not at all.
        loop {
            match rustix::io::write(file.as_fd(), text.as_bytes()) {
                Err(Errno::INTR) => {}
                done => return done.map(|_| ()),
            }
        }
    }

    /// The error for a refusal whose cause says what would help.
    fn refused(
        &self,
        operation: &'static str,
        file: &str,
        value: Option<&str>,
        cause: Errno,
        of: Option<(Controller, &str)>,
    ) -> Error {
        let fix = match (cause, of) {
            (Errno::NOENT | Errno::NODEV, _) if !self.exists() => {
                "the cgroup was removed by somebody else".to_owned()
            }
            (Errno::NOENT, Some((controller, _))) => format!(
                "the {controller} controller is not on here, or the kernel lacks the file: put it on with +{controller} in \
                 cgroup.subtree_control of the cgroup around this one"
            ),
            (Errno::NODEV, Some((Controller::Io, _))) => {
                "there is no such disk, or its driver or scheduler has no such control".to_owned()
            }
            (Errno::INVAL | Errno::RANGE, Some((_, takes))) if !takes.is_empty() => {
                format!("it takes {takes}")
            }
            (Errno::OPNOTSUPP, _) if file.ends_with("pressure") => "boot with psi=1".to_owned(),
            (Errno::ACCESS | Errno::PERM | Errno::ROFS, _) => FIX.to_owned(),
            (Errno::EXIST, _) => "it is there already: remove it, or give another name".to_owned(),
            _ => String::new(),
        };
        self.error(operation, file, value, cause, fix)
    }

    fn error(
        &self,
        operation: &'static str,
        file: &str,
        value: Option<&str>,
        cause: Errno,
        fix: String,
    ) -> Error {
        let file = value.map_or_else(|| file.to_owned(), |value| format!("{file}={value}"));
        let path = self.path.clone().into_boxed_path();
        Error::Cgroup { operation, file: file.into(), path, fix: fix.into(), cause }
    }
}

#[cfg(test)]
mod tests;
