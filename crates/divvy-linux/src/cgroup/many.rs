//! Very many leaves with nobody in them: for measurements of what it takes to follow what clients are due.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use divvy_policy::ClientId;
use rustix::io::Errno;

use super::files::{Files, Real};
use super::leaf::Leaf;
use super::rights::Offers;
use super::survey::{Enable, Ground, Hierarchy, Survey};
use super::tree::{Purpose, Tree};
use super::users::{Check, Due, WithLeaves};
use super::weights::{Knob, Off};
use crate::{Result, procfs};

/// The files of a leaf that are written, and what is in one that was just made.
const WRITTEN: [(&str, &str); 1] = [("cpu.weight", "100")];
/// Those that have to be there. In plain directories they are one file of many names.
const THERE: [&str; 3] = ["cgroup.procs", "cgroup.freeze", "cgroup.subtree_control"];

/// The kernel's files, or plain ones in a directory, and how many were written.
#[derive(Debug)]
struct Counted {
    /// Where files are plain.
    plain: Option<PathBuf>,
    written: Cell<u64>,
}

impl Files for Counted {
    fn read(&self, path: &Path) -> std::result::Result<String, Errno> {
        Real.read(path)
    }

    fn write(&self, path: &Path, text: &str) -> std::result::Result<(), Errno> {
        self.written.set(self.written.get() + 1);
        // A plain file that is not cut keeps the rest of a longer number.
        let text = if self.plain.is_some() { format!("{text:<16}") } else { text.to_owned() };
        Real.write(path, &text)
    }

    fn make(&self, path: &Path) -> std::result::Result<(), Errno> {
        Real.make(path)?;
        let Some(dir) = &self.plain else { return Ok(()) };
        let failed = |e: std::io::Error| Errno::from_io_error(&e).unwrap_or(Errno::IO);
        for (name, text) in WRITTEN {
            std::fs::write(path.join(name), text).map_err(failed)?;
        }
        // A leaf's are names of its user's: a file system may permit 65,000 of them.
        let around = path.parent().filter(|around| *around != dir && around.parent() != Some(dir));
        let around = around.filter(|around| around.join(THERE[0]).exists());
        for name in THERE {
            match around {
                None => std::fs::write(path.join(name), "").map_err(failed)?,
                Some(around) => std::fs::hard_link(around.join(name), path.join(name)).map_err(failed)?,
            }
        }
        Ok(())
    }

    fn writable(&self, path: &Path) -> std::result::Result<(), Errno> {
        Real.writable(path)
    }

    fn keeps_affinities(&self) -> bool {
        Real.keeps_affinities()
    }
}

/// A tree, and leaves without anybody in them.
#[derive(Debug)]
pub struct ManyLeaves {
    tree: Tree,
    leaves: Vec<Option<Leaf>>,
    files: Rc<Counted>,
}

impl WithLeaves for Vec<Option<Leaf>> {
    fn leaf(&mut self, client: usize) -> Option<&mut Option<Leaf>> {
        self.get_mut(client)
    }
}

impl ManyLeaves {
    /// One leaf for each of `users`, in its cgroup: cgroups of the kernel's below ours, which weigh the CPU and nothing else, or plain directories in `plain`.
    ///
    /// # Errors
    /// Why there can be none.
    pub fn make(plain: Option<&Path>, users: &[u32]) -> std::result::Result<Self, String> {
        let ground = match plain {
            None => Survey::new().weights?,
            Some(dir) => {
                let dir = dir.to_owned();
                let (knob, enable) = (Knob::Weight, Enable::Nothing);
                let hierarchy = Hierarchy::Unified;
                Ground {
                    home: dir.clone(),
                    mount: dir.clone(),
                    dir,
                    shown: "/".into(),
                    hierarchy,
                    knob,
                    enable,
                }
            }
        };
        let files = Rc::new(Counted { plain: plain.map(Path::to_owned), written: Cell::new(0) });
        let own = rustix::process::getpid();
        let start = procfs::stat(own).ok().flatten().ok_or("no entry of its own in /proc")?.start;
        let shared: Rc<dyn Files> = Rc::<Counted>::clone(&files);
        let mut tree = Tree::with_files(ground, Purpose::Keep, own, start, shared);
        // Weights of the CPU alone. Linux numbers 65535 cgroups with the controller `memory`, and `io` brings that with it, unseen:
        // where it is on, one more is refused as busy.
        tree.offers = Offers::default();
        let made = || -> Result<Self> {
            tree.make(1)?;
            let leaves = users.iter().enumerate();
            let leaves = leaves.map(|(i, &user)| Ok(Some(tree.leaf_of(i, Some(user))?.without_files())));
            let leaves = leaves.collect::<Result<Vec<_>>>()?;
            Ok(Self { tree, leaves, files })
        };
        made().map_err(|e| e.to_string())
    }

    /// As [`LinuxHost::give_dues`](crate::LinuxHost::give_dues).
    ///
    /// # Errors
    /// As there.
    pub fn give(&mut self, dues: &[(ClientId, Due)]) -> Result<Off> {
        self.tree.give(dues, Check::Nothing, &mut self.leaves)
    }

    /// The same, and looks at all leaves, whether they are due something else or not.
    ///
    /// # Errors
    /// As there.
    pub fn give_anew(&mut self, dues: &[(ClientId, Due)]) -> Result<Off> {
        self.tree.note_all_stale();
        self.give(dues)
    }

    /// How many files were written so far.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.files.written.get()
    }

    /// Of which files they are.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match (&self.files.plain, self.tree.ground.knob) {
            (Some(_), _) => "plain files",
            (None, Knob::Weight) => "cgroup v2",
            (None, Knob::Shares) => "cgroup v1",
        }
    }
}
