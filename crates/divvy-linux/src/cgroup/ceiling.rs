//! What a client's cgroup may not exceed of memory and disks, and which CPUs it may use: `memory.max`, `io.max`, `cpuset.cpus`.
//!
//! A limit of the CPU is the gate's, or `cpu.max` (`tree.rs`). These only the kernel can keep, in a leaf that has the
//! controller.

use std::path::Path;

use rustix::io::Errno;

use super::disks;
use super::leaf::Leaf;
use super::room::{
    CPUSET_CPUS, CPUSET_EFFECTIVE, Controller, Device, DeviceIoMax, IO_MAX, IoMax, Limit, MEMORY_MAX, Spell,
};
use super::tree::{Tree, failed};
use crate::{CpuMask, Error};

/// What a client may not exceed beside its limit of CPU time; `None` of what is not bounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ceilings {
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Bytes a second read, and as many written, of each disk.
    pub disk: Option<u64>,
    /// The CPUs that it may use.
    pub cpus: Option<CpuMask>,
}

/// Why a bound of memory, disks or CPUs is not kept.
#[derive(Debug)]
pub enum NotKept {
    /// There is nothing that would keep it: what is missing, and what would help.
    Missing(String),
    /// The kernel refused.
    Failed(Error),
}

impl From<Error> for NotKept {
    fn from(e: Error) -> Self {
        Self::Failed(e)
    }
}

fn limit(bytes: Option<u64>) -> Limit {
    bytes.map_or(Limit::Max, Limit::At)
}

/// Why a file of a controller was not written: somebody may have switched that off, so that there is none.
fn without(leaf: &Leaf, controller: Controller, e: Error) -> NotKept {
    if e.errno() == Some(Errno::NOENT) && leaf.is_there() {
        let dir = leaf.dir.display();
        return NotKept::Missing(format!(
            "{dir} has no {controller} controller: put it on in the cgroups around it (+{controller} in cgroup.subtree_control)"
        ));
    }
    NotKept::Failed(e)
}

impl Tree {
    /// Bounds what is in `leaf`, where that is another bound than `before`.
    ///
    /// # Errors
    /// [`NotKept`]; what was bounded before the failure stays so.
    pub(crate) fn bound(&self, leaf: &mut Leaf, before: Ceilings, to: Ceilings) -> Result<(), NotKept> {
        if before.cpus != to.cpus {
            self.check_offered(Controller::Cpuset)?;
            self.keep_to(leaf, to.cpus)?;
            leaf.ceilings.cpus = to.cpus;
        }
        if before.memory != to.memory {
            self.check_offered(Controller::Memory)?;
            let done = self.write(&leaf.dir.join(MEMORY_MAX.name()), &limit(to.memory).spell());
            done.map_err(|e| without(leaf, Controller::Memory, e))?;
            leaf.ceilings.memory = to.memory;
        }
        if before.disk != to.disk {
            self.check_offered(Controller::Io)?;
            self.bound_disks(leaf, before.disk, to.disk, Path::new("/sys"))?;
            leaf.ceilings.disk = to.disk;
        }
        Ok(())
    }

    /// No CPUs at all are not taken for any in a cgroup that has processes: whoever may use all is told all.
    fn keep_to(&self, leaf: &Leaf, cpus: Option<CpuMask>) -> Result<(), NotKept> {
        let text = match cpus {
            Some(cpus) => cpus.to_string(),
            None => {
                let path = self.root.join(CPUSET_EFFECTIVE.name());
                self.files.read(&path).map_err(|e| failed("read", &path, e))?.trim().to_owned()
            }
        };
        Ok(self.write(&leaf.dir.join(CPUSET_CPUS.name()), &text)?)
    }

    /// Keeps all leaves together to the CPUs that are divided, where they could use others.
    pub(super) fn keep_all(&self) -> crate::Result<()> {
        let Some(divided) = self.divided else { return Ok(()) };
        if self.read(&self.root, &CPUSET_EFFECTIVE).is_some_and(|all| all.is_within(&divided)) {
            return Ok(());
        }
        self.write(&self.root.join(CPUSET_CPUS.name()), &divided.spell())
    }

    /// Why leaves may use other CPUs than those that are divided; `None` where they may not.
    pub(crate) fn not_kept_to_divided(&self) -> Option<&str> {
        self.offers.missing(Controller::Cpuset).or(self.not_narrowed.as_deref())
    }

    /// Bounds what each disk does, or none: where one takes no bound, that is not kept on each.
    pub(super) fn bound_disks(
        &self,
        leaf: &Leaf,
        before: Option<u64>,
        to: Option<u64>,
        sys: &Path,
    ) -> Result<(), NotKept> {
        let write = |device: Device, rate: Option<u64>| {
            let rate = limit(rate);
            let max = IoMax { rbps: rate, wbps: rate, ..IoMax::NONE };
            self.write(&leaf.dir.join(IO_MAX.name()), &DeviceIoMax(device, max).spell())
        };
        let mut bounded = Vec::new();
        for disk in disks::survey(sys, &self.ground.mount) {
            let Some(device) = disk.device else { continue };
            let e = match write(device, to) {
                Ok(()) => {
                    bounded.push(device);
                    continue;
                }
                Err(e) => e,
            };
            match e.errno() {
                // It went.
                Some(Errno::NODEV) => continue,
                Some(Errno::OPNOTSUPP) if to.is_none() => continue,
                _ => {}
            }
            for &device in &bounded {
                let _ = write(device, before); // It was written a moment ago.
            }
            if e.errno() == Some(Errno::OPNOTSUPP) {
                return Err(NotKept::Missing(format!(
                    "the kernel bounds nothing that {} does: {e}",
                    disk.name
                )));
            }
            return Err(without(leaf, Controller::Io, e));
        }
        if !bounded.is_empty() || to.is_none() {
            return Ok(());
        }
        Err(NotKept::Missing("there is no disk that the kernel could bound (/sys/block)".to_owned()))
    }

    fn check_offered(&self, controller: Controller) -> Result<(), NotKept> {
        self.offers.missing(controller).map_or(Ok(()), |why| Err(NotKept::Missing(why.to_owned())))
    }
}
