//! Thawing and taking apart a tree of cgroups: the one algorithm of owner, guardian and rescue.
//!
//! Allocates nothing and cannot panic, for the guardian runs it in a forked process. Everything is found by the paths
//! that the owner wrote into its table before it made the tree, and a tree with another inode than the one noted there is
//! somebody else's and left alone: the kernel gives each cgroup a number that it does not use again.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;

use super::brake::{Brake, Braked};
use super::room::Controller;

/// Longest path of a cgroup that a table keeps, without its end.
pub(crate) const PATH_MAX: usize = 1400;
/// A leaf whose processes make others while they are moved is looked at this often.
const MOVES_MAX: u32 = 64;
/// To this depth all cgroups that a client's own processes have made in its leaf are emptied before any is removed: each level takes
/// some KiB of the stack. Below it they go one by one.
const DEPTH_MAX: u32 = 32;
/// A leaf in which cgroups are made while it is taken apart is looked at this often.
const ROUNDS_MAX: u32 = 8;
/// The file that puts a leaf behind the others.
const IDLE: &CStr = c"cpu.idle";
/// The file that moves.
const PROCS: &CStr = c"cgroup.procs";
const CONTROL: &CStr = c"cgroup.subtree_control";
/// With this the names of cgroups begin that are around the leaves of one user.
const USER: u8 = b'u';
/// An attribute of a leaf's part: where its processes were before, and go back to.
pub(crate) const HOME: &CStr = c"user.divvy.home";

/// A path that fits into a table, with its end.
#[derive(Clone, Copy)]
pub(crate) struct FixedPath {
    bytes: [u8; PATH_MAX + 1],
}

impl FixedPath {
    /// `bytes` as a path; `None` if it is empty, too long or no path.
    pub(crate) fn new(bytes: &[u8]) -> Option<Self> {
        let mut path = Self { bytes: [0; PATH_MAX + 1] };
        if bytes.is_empty() || bytes.len() > PATH_MAX || bytes.contains(&0) {
            return None;
        }
        path.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(path)
    }

    pub(crate) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.as_c_str().to_bytes()
    }
}

/// Controllers that are on for the children of the cgroup around a tree because of its owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SwitchedOn(u32);

impl SwitchedOn {
    /// Each controller's bit, and what puts it off.
    const OFF: [(Controller, u32, &[u8]); 4] = [
        (Controller::Cpu, 1, b"-cpu"),
        (Controller::Memory, 2, b"-memory"),
        (Controller::Io, 4, b"-io"),
        (Controller::Cpuset, 8, b"-cpuset"),
    ];
    const MASK: u32 = 15;

    /// These and `controller`.
    pub(crate) fn with(self, controller: Controller) -> Self {
        Self::OFF.iter().fold(self, |all, &(c, bit, _)| if c == controller { Self(all.0 | bit) } else { all })
    }

    /// As a table keeps them.
    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    /// From a table; bits that mean nothing are passed over.
    pub(crate) const fn of_bits(bits: u32) -> Self {
        Self(bits & Self::MASK)
    }

    fn each(self, mut off: impl FnMut(&'static [u8])) {
        Self::OFF.iter().filter(|(_, bit, _)| self.0 & bit != 0).for_each(|&(_, _, text)| off(text));
    }
}

/// A tree of cgroups as a table names it.
#[derive(Clone, Copy)]
pub(crate) struct TreeImage {
    /// The tree's own directory, whose subdirectories are its leaves.
    pub root: FixedPath,
    /// Where processes go when the tree is taken apart.
    pub home: FixedPath,
    /// The inode of the root; 0 before it was made.
    pub inode: u64,
    /// What is to be put off in the `cgroup.subtree_control` of the directory around the root.
    pub disable: SwitchedOn,
}

/// What was done to a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Undone {
    /// Leaves that were frozen and are no more.
    pub thawed: u32,
    /// Cgroups that were removed.
    pub removed: u32,
    /// The first thing that failed.
    pub failed: Option<Errno>,
}

impl Undone {
    fn fail(&mut self, e: Errno) {
        self.failed.get_or_insert(e);
    }
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The tree's root, if it is there and the one that was meant.
fn open_root(tree: &TreeImage) -> Result<Option<OwnedFd>, Errno> {
    let root = match rustix::fs::open(tree.root.as_c_str(), DIRECTORY, Mode::empty()) {
        Ok(root) => root,
        Err(Errno::NOENT | Errno::NODEV) => return Ok(None),
        Err(e) => return Err(e),
    };
    let inode = rustix::fs::fstat(&root)?.st_ino;
    Ok((tree.inode == 0 || inode == tree.inode).then_some(root))
}

/// Calls `each` with every subdirectory of `dir`.
fn each_leaf(dir: BorrowedFd<'_>, mut each: impl FnMut(&CStr)) -> Result<(), Errno> {
    // A descriptor of its own: reading moves its place.
    let listed = rustix::fs::openat(dir, c".", DIRECTORY, Mode::empty())?;
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(listed, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type() == FileType::Directory && name != c"." && name != c".." {
            each(name);
        }
    }
    Ok(())
}

fn write_file(dir: impl AsFd, name: &CStr, text: &[u8]) -> Result<(), Errno> {
    let file = rustix::fs::openat(dir, name, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    loop {
        match rustix::io::write(&file, text) {
            Err(Errno::INTR) => {}
            done => return done.map(|_| ()),
        }
    }
}

/// Thaws every leaf, and has none stand behind the others. A tree that is gone, or another's, is none to thaw.
pub(crate) fn thaw(tree: &TreeImage) -> Undone {
    let mut undone = Undone::default();
    match open_root(tree) {
        Ok(Some(root)) => thaw_leaves(root.as_fd(), &mut undone),
        Ok(None) => {}
        Err(e) => undone.fail(e),
    }
    undone
}

/// Whether a directory of a tree is around the leaves of one user.
fn is_user(name: &CStr) -> bool {
    name.to_bytes().first() == Some(&USER)
}

fn thaw_leaves(root: BorrowedFd<'_>, undone: &mut Undone) {
    let mut done = Undone::default();
    let listed = each_leaf(root, |name| {
        match thaw_one(root, name) {
            Ok(frozen) => done.thawed += u32::from(frozen),
            // Version 1 has no such file beside the cpu controller, and freezes nobody; a leaf that has gone holds nobody.
            Err(Errno::NOENT | Errno::NODEV) => {}
            Err(e) => done.fail(e),
        }
        if is_user(name)
            && let Ok(user) = rustix::fs::openat(root, name, DIRECTORY, Mode::empty())
        {
            thaw_leaves(user.as_fd(), &mut done);
        }
    });
    undone.thawed += done.thawed;
    if let Some(e) = done.failed.or(listed.err()) {
        undone.fail(e);
    }
}

/// Thaws one leaf; whether it was frozen.
fn thaw_one(root: BorrowedFd<'_>, name: &CStr) -> Result<bool, Errno> {
    let leaf = rustix::fs::openat(root, name, DIRECTORY, Mode::empty())?;
    // Nor is it to stand behind the others any more. Where there is no such file, or nothing to write, it does not.
    let _ = write_file(&leaf, IDLE, b"0");
    let open = |brake: Brake| {
        let file = rustix::fs::openat(&leaf, brake.file(), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        file.map(|file| (brake, file))
    };
    let [two, one] = Brake::ALL;
    let (brake, file) = match open(two) {
        Err(Errno::NOENT) => open(one)?,
        opened => opened?,
    };
    // Unknown counts as frozen.
    let frozen = brake.read(&file) != Some(Braked::Thawed);
    loop {
        match rustix::io::pwrite(&file, brake.word(false).as_bytes(), 0) {
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
            Ok(_) => return Ok(frozen),
        }
    }
}

/// Puts a controller off for the children of a cgroup.
fn put_off(root: BorrowedFd<'_>, dir: &CStr, off: &[u8]) -> Result<(), Errno> {
    let written = rustix::fs::openat(root, dir, DIRECTORY, Mode::empty())
        .and_then(|dir| write_file(&dir, CONTROL, off));
    match written {
        // Another divvy has its tree beside ours, and the controller stays on for that one.
        Err(Errno::BUSY) => Ok(()),
        done => done,
    }
}

/// Thaws every leaf, moves whoever is left in one home, and removes all of them and the root.
pub(crate) fn dissolve(tree: &TreeImage) -> Undone {
    let mut undone = Undone::default();
    let root = match open_root(tree) {
        Ok(Some(root)) => root,
        Ok(None) => return undone,
        Err(e) => {
            undone.fail(e);
            return undone;
        }
    };
    thaw_leaves(root.as_fd(), &mut undone);
    tree.disable.each(|off| {
        // From the inside: what is on for the leaves of a user stays on around them.
        let _ = each_leaf(root.as_fd(), |name| {
            if is_user(name) {
                let _ = put_off(root.as_fd(), name, off);
            }
        });
        // Where a controller is on for the leaves of a cgroup, that cgroup can have no processes.
        for dir in [c".", c".."] {
            if let Err(e) = put_off(root.as_fd(), dir, off) {
                undone.fail(e);
            }
        }
    });
    let home = open_procs(tree.home.as_c_str());
    let home = home.as_ref().map(AsFd::as_fd).map_err(|e| *e);
    let mut removed = 0;
    if let Err(e) = take_apart(root.as_fd(), home, &mut removed) {
        undone.removed += removed;
        undone.fail(e);
        return undone;
    }
    undone.removed += removed;
    match rustix::fs::rmdir(tree.root.as_c_str()) {
        Ok(()) => undone.removed += 1,
        Err(Errno::NOENT) => {}
        Err(e) => undone.fail(e),
    }
    undone
}

/// Empties and removes all leaves of `around`, and with them the cgroups of users; the first thing that failed, after the rest
/// was done.
fn take_apart(
    around: BorrowedFd<'_>,
    home: Result<BorrowedFd<'_>, Errno>,
    removed: &mut u32,
) -> Result<(), Errno> {
    let mut failed = None;
    let listed = each_leaf(around, |name| {
        let mut empty_it = || {
            let home = home?;
            if is_user(name) {
                let user = rustix::fs::openat(around, name, DIRECTORY, Mode::empty())?;
                take_apart(user.as_fd(), Ok(home), removed)
            } else {
                empty(around, name, home, removed)
            }
        };
        let done = empty_and_remove(around, name, &mut empty_it);
        match done {
            Ok(()) => *removed += 1,
            Err(e) => {
                failed.get_or_insert(e);
            }
        }
    });
    failed.map_or(listed, Err)
}

/// Removes a leaf that `empty` empties, once more where somebody makes cgroups in it meanwhile.
fn empty_and_remove(
    around: BorrowedFd<'_>,
    name: &CStr,
    empty: &mut dyn FnMut() -> Result<(), Errno>,
) -> Result<(), Errno> {
    let mut round = 0;
    loop {
        let emptied = empty();
        let e = match remove(around, name) {
            Ok(()) => return Ok(()),
            Err(e) => emptied.err().unwrap_or(e),
        };
        round += 1;
        // One that is busy without any has somebody in it who does not go.
        if e != Errno::BUSY || round >= ROUNDS_MAX || !has_leaves(around, name) {
            return Err(e);
        }
    }
}

fn has_leaves(around: BorrowedFd<'_>, name: &CStr) -> bool {
    let dir = rustix::fs::openat(around, name, DIRECTORY, Mode::empty());
    dir.is_ok_and(|dir| first_leaf(dir.as_fd()).is_ok_and(|first| first.is_some()))
}

/// Takes one leaf of a tree apart, whoever is in it.
pub(crate) fn dissolve_leaf(tree: &TreeImage, name: &CStr) -> Result<(), Errno> {
    let Some(root) = open_root(tree)? else { return Ok(()) };
    match thaw_one(root.as_fd(), name) {
        Ok(_) | Err(Errno::NOENT | Errno::NODEV) => {}
        Err(e) => return Err(e),
    }
    let home = open_procs(tree.home.as_c_str())?;
    empty_and_remove(root.as_fd(), name, &mut || empty(root.as_fd(), name, home.as_fd(), &mut 0))
}

fn open_procs(dir: &CStr) -> Result<OwnedFd, Errno> {
    let dir = rustix::fs::open(dir, DIRECTORY, Mode::empty())?;
    rustix::fs::openat(&dir, PROCS, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Moves every process of a leaf: of its parts to where they were before, if that is still there; all others home.
/// The parts are removed and counted, with what is in them.
fn empty(root: BorrowedFd<'_>, name: &CStr, home: BorrowedFd<'_>, removed: &mut u32) -> Result<(), Errno> {
    let leaf = rustix::fs::openat(root, name, DIRECTORY, Mode::empty())?;
    // With them go the threads that they have in cgroups of threads below.
    let mut failed = move_all(root, name, home);
    each_leaf(leaf.as_fd(), |part| {
        let back = home_of(leaf.as_fd(), part).and_then(|path| open_procs(path.as_c_str()).ok());
        let mut moved = |to| clear(leaf.as_fd(), part, to, DEPTH_MAX, removed);
        let moved = match back {
            Some(back) => moved(back.as_fd()).or_else(|_| moved(home)),
            None => moved(home),
        };
        match moved.and_then(|()| remove(leaf.as_fd(), part)) {
            Ok(()) => *removed += 1,
            Err(e) => failed = Err(e),
        }
    })?;
    failed.and(move_all(root, name, home))
}

/// Moves every process of a part, and of the cgroups that its own processes have made in it, which are removed and counted.
fn clear(
    around: BorrowedFd<'_>,
    name: &CStr,
    to: BorrowedFd<'_>,
    depth: u32,
    removed: &mut u32,
) -> Result<(), Errno> {
    let part = rustix::fs::openat(around, name, DIRECTORY, Mode::empty())?;
    // First those in it: of a part that has cgroups of threads the processes are its own, wherever their threads are.
    let moved = move_all(around, name, to);
    let mut failed = Ok(());
    each_leaf(part.as_fd(), |inner| {
        let cleared = match depth.checked_sub(1) {
            Some(depth) => clear(part.as_fd(), inner, to, depth, removed),
            None => clear_one_by_one(part.as_fd(), inner, to, removed),
        };
        match cleared.and_then(|()| remove(part.as_fd(), inner)) {
            Ok(()) => *removed += 1,
            Err(e) => failed = Err(e),
        }
    })?;
    failed.and(moved)
}

/// As [`clear`], to any depth, by going down to the last cgroup again and again. One that stays ends it.
fn clear_one_by_one(
    around: BorrowedFd<'_>,
    name: &CStr,
    to: BorrowedFd<'_>,
    removed: &mut u32,
) -> Result<(), Errno> {
    move_all(around, name, to)?;
    loop {
        let mut parent = rustix::fs::openat(around, name, DIRECTORY, Mode::empty())?;
        let Some(mut last) = first_leaf(parent.as_fd())? else { return Ok(()) };
        loop {
            move_all(parent.as_fd(), last.as_c_str(), to)?;
            let there = rustix::fs::openat(&parent, last.as_c_str(), DIRECTORY, Mode::empty())?;
            let Some(next) = first_leaf(there.as_fd())? else { break };
            (parent, last) = (there, next);
        }
        remove(parent.as_fd(), last.as_c_str())?;
        *removed += 1;
    }
}

/// The name of some subdirectory of `dir`.
fn first_leaf(dir: BorrowedFd<'_>) -> Result<Option<FixedPath>, Errno> {
    let mut first = None;
    each_leaf(dir, |name| {
        if first.is_none() {
            first = FixedPath::new(name.to_bytes());
        }
    })?;
    Ok(first)
}

/// Where the processes of a leaf's part were before, if that was noted.
fn home_of(leaf: BorrowedFd<'_>, part: &CStr) -> Option<FixedPath> {
    let dir = rustix::fs::openat(leaf, part, DIRECTORY, Mode::empty()).ok()?;
    let mut path = [0; PATH_MAX];
    let length = rustix::fs::fgetxattr(&dir, HOME, &mut path).ok()?;
    FixedPath::new(path.get(..length)?)
}

/// A cgroup whose last process is about to be gone is busy for some moments more.
fn remove(root: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    let mut tries = 0;
    loop {
        match rustix::fs::unlinkat(root, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::BUSY) if tries < 50 => {
                tries += 1;
                let _ =
                    rustix::thread::nanosleep(&rustix::thread::Timespec { tv_sec: 0, tv_nsec: 1_000_000 });
            }
            Err(e) => return Err(e),
        }
    }
}

/// Moves every process of a leaf, until a look finds none.
fn move_all(root: BorrowedFd<'_>, name: &CStr, home: BorrowedFd<'_>) -> Result<(), Errno> {
    let leaf = rustix::fs::openat(root, name, DIRECTORY, Mode::empty())?;
    for _ in 0..MOVES_MAX {
        let mut moved = false;
        let mut refused = None;
        each_number(leaf.as_fd(), |digits| match rustix::io::write(home, digits) {
            Ok(_) => moved = true,
            // It has ended.
            Err(Errno::SRCH) => {}
            Err(e) => refused = Some(e),
        })?;
        if let Some(e) = refused {
            return Err(e);
        }
        if !moved {
            return Ok(());
        }
    }
    Err(Errno::BUSY)
}

/// Calls `each` with every line of a leaf's `cgroup.procs`. One longer than a pid is none.
fn each_number(leaf: BorrowedFd<'_>, mut each: impl FnMut(&[u8])) -> Result<(), Errno> {
    let procs = rustix::fs::openat(leaf, PROCS, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let (mut buffer, mut line, mut length) = ([0; 4096], [0; 16], 0);
    loop {
        let read = match rustix::io::read(&procs, &mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(Errno::INTR) => continue,
            // A cgroup of threads: their processes are those of one around it.
            Err(Errno::OPNOTSUPP) => return Ok(()),
            Err(e) => return Err(e),
        };
        for &byte in buffer.iter().take(read) {
            match byte {
                b'0'..=b'9' => {
                    if let Some(digit) = line.get_mut(length) {
                        *digit = byte;
                    }
                    length += 1;
                }
                _ => {
                    // 0 stands for a process that our namespace does not have.
                    if let Some(digits) = line.get(..length).filter(|d| !d.is_empty() && *d != b"0") {
                        each(digits);
                    }
                    length = 0;
                }
            }
        }
    }
}
