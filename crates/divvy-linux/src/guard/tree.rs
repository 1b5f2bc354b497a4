//! The tree of cgroups in a table: written before the tree is made, erased after it was removed.
//!
//! Whoever finds it there thaws the tree, whatever state its leaves are in: to thaw one that runs changes nothing.
//! Paths first, then the state in one store: cut short, there is no tree yet.
//!
//! There may be two: one in the hierarchy of the cpu controller, and one that freezes where that is another hierarchy.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use rustix::io::Errno;

use crate::cgroup::raw::{FixedPath, PATH_MAX, SwitchedOn, TreeImage};

/// There is a tree.
const NOTED: u32 = 1;
/// From this bit on: which controllers are to be put off around it, cpu first.
const DISABLE_SHIFT: u32 = 1;

/// Longest path of the second tree's cgroups: the header's page has no more room.
const SECOND_PATH_MAX: usize = 360;

/// A tree with paths of up to `PATH` bytes, as owner and guardian see it.
#[repr(C)]
pub(crate) struct TreeCells<const PATH: usize = PATH_MAX> {
    state: AtomicU32,
    root_length: AtomicU32,
    home_length: AtomicU32,
    _unused: AtomicU32,
    inode: AtomicU64,
    root: [AtomicU8; PATH],
    home: [AtomicU8; PATH],
}

/// The second tree.
pub(crate) type SecondCells = TreeCells<SECOND_PATH_MAX>;

/// Bytes of the trees in the table's file.
pub(crate) const TREE_BYTES: usize = size_of::<TreeCells>();
pub(crate) const SECOND_BYTES: usize = size_of::<SecondCells>();

fn store(cells: &[AtomicU8], length: &AtomicU32, bytes: &[u8]) {
    for (cell, &byte) in cells.iter().zip(bytes) {
        cell.store(byte, Ordering::Relaxed);
    }
    length.store(bytes.len().min(cells.len()) as u32, Ordering::Relaxed);
}

fn load(cells: &[AtomicU8], length: &AtomicU32) -> Option<FixedPath> {
    let mut bytes = [0; PATH_MAX];
    for (byte, cell) in bytes.iter_mut().zip(cells) {
        *byte = cell.load(Ordering::Relaxed);
    }
    FixedPath::new(bytes.get(..length.load(Ordering::Relaxed) as usize)?)
}

impl<const PATH: usize> TreeCells<PATH> {
    /// Says that `tree` is about to be made, or has been changed.
    ///
    /// # Errors
    /// `ENAMETOOLONG` where there is no room for its paths: nothing is said then.
    pub(crate) fn note(&self, tree: &TreeImage) -> Result<(), Errno> {
        if tree.root.bytes().len().max(tree.home.bytes().len()) > PATH {
            return Err(Errno::NAMETOOLONG);
        }
        // A reader sees the old tree, the new one, or none: the paths of one tree do not change.
        store(&self.root, &self.root_length, tree.root.bytes());
        store(&self.home, &self.home_length, tree.home.bytes());
        self.inode.store(tree.inode, Ordering::Relaxed);
        self.state.store(NOTED | tree.disable.bits() << DISABLE_SHIFT, Ordering::Release);
        Ok(())
    }

    /// Says that there is none any more.
    pub(crate) fn erase(&self) {
        self.state.store(0, Ordering::Release);
    }

    /// Whether there is one.
    pub(crate) fn is_noted(&self) -> bool {
        self.state.load(Ordering::Acquire) & NOTED != 0
    }

    /// The tree, if there is one. Allocates nothing.
    pub(crate) fn image(&self) -> Option<TreeImage> {
        let state = self.state.load(Ordering::Acquire);
        if state & NOTED == 0 {
            return None;
        }
        Some(TreeImage {
            root: load(&self.root, &self.root_length)?,
            home: load(&self.home, &self.home_length)?,
            inode: self.inode.load(Ordering::Relaxed),
            disable: SwitchedOn::of_bits(state >> DISABLE_SHIFT),
        })
    }

    /// The tree that these bytes of a file name, which begin with its cells; none where there are too few.
    ///
    /// # Errors
    /// Where they say that there is one, and do not name it.
    pub(crate) fn image_of_bytes(bytes: &[u8]) -> Result<Option<TreeImage>, &'static str> {
        let Some(bytes) = bytes.get(..size_of::<Self>()) else { return Ok(None) };
        // SAFETY: there are as many bytes, of a sequence of integers without padding, for which every bit pattern is a value; an
        // atomic has the representation of its integer.
        let cells: Self = unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) };
        match cells.image() {
            None if cells.is_noted() => Err("its tree of cgroups has no path"),
            image => Ok(image),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::room::Controller;

    fn blank<const PATH: usize>() -> TreeCells<PATH> {
        // SAFETY: as in `image_of_bytes`.
        unsafe { std::mem::zeroed() }
    }

    #[test]
    fn a_tree_is_noted_and_erased() {
        let cells: TreeCells = blank();
        assert!(cells.image().is_none());
        let path = |text: &str| FixedPath::new(text.as_bytes()).expect("short");
        let disable = SwitchedOn::default().with(Controller::Cpu).with(Controller::Io);
        let tree = TreeImage { root: path("/a/divvy-1-2"), home: path("/a"), inode: 5, disable };
        cells.note(&tree).expect("short");
        let image = cells.image().expect("noted");
        assert_eq!((image.root.bytes(), image.home.bytes()), (b"/a/divvy-1-2".as_slice(), b"/a".as_slice()));
        assert_eq!((image.inode, image.disable), (5, disable));
        // What a table said before there were others: the cpu controller.
        assert_eq!(SwitchedOn::of_bits(3 >> DISABLE_SHIFT), SwitchedOn::default().with(Controller::Cpu));
        cells.erase();
        assert!(cells.image().is_none() && !cells.is_noted());
    }

    /// What there is no room for is not half noted.
    #[test]
    fn the_second_tree_has_short_paths() {
        let cells: SecondCells = blank();
        let path = |length: usize| FixedPath::new(&vec![b'a'; length]).expect("not too long for a first one");
        let of = |root, home| TreeImage {
            root: path(root),
            home: path(home),
            inode: 5,
            disable: SwitchedOn::default(),
        };
        for (root, home) in [(SECOND_PATH_MAX + 1, 1), (1, SECOND_PATH_MAX + 1)] {
            assert_eq!(cells.note(&of(root, home)), Err(Errno::NAMETOOLONG));
            assert!(!cells.is_noted());
        }
        assert_eq!(cells.note(&of(SECOND_PATH_MAX, 7)), Ok(()));
        let image = cells.image().expect("noted");
        assert_eq!((image.root.bytes().len(), image.home.bytes().len()), (SECOND_PATH_MAX, 7));
    }

    #[test]
    fn a_length_that_no_path_has_is_corrupt() {
        let mut bytes = [0; TREE_BYTES];
        assert!(TreeCells::<PATH_MAX>::image_of_bytes(&bytes).is_ok_and(|tree| tree.is_none()));
        bytes[0] = NOTED as u8;
        assert!(TreeCells::<PATH_MAX>::image_of_bytes(&bytes).is_err(), "an empty path");
        bytes[4..8].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert!(TreeCells::<PATH_MAX>::image_of_bytes(&bytes).is_err(), "a path longer than the table");
    }
}
