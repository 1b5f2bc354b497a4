//! The table of held processes: shared memory for the guardian and a journal for the rescue, in one file.
//!
//! *Why a mapped file and not a file written anew per change.* The file is made complete (`tmp`, fsync, rename) and
//! then mapped `MAP_SHARED`. Its pages are the page cache's: they belong to the kernel, outlive every process that
//! wrote to them, and are what any later `read` of the file sees. So one store to a slot is in the journal at once, without a
//! system call, on a path that runs at every hand-over; a rename per change would cost an fsync. What a mapped file does
//! not survive is the machine going down, and then nobody is suspended any more: the header carries the boot's id, and the table
//! of another boot is deleted.
//!
//! *Write ahead.* The owner sets a slot's held bit **before** it sends SIGSTOP and clears it **after** SIGCONT was
//! sent. A crash at any instruction in between leaves the bit set for a process that runs: resuming it is harmless. The bit
//! is never clear for a process that stands.
//!
//! *A reader may come between any two stores*, for the writer may be killed there. A slot has one word of flags, and each
//! change of meaning is one store of it:
//! - *add*: all other fields first, then `flags = USED` (Release). Cut short: the slot is still free.
//! - *hold / release*: one bit of `flags`.
//! - *save affinity*: thread and mask first, then the bit. Cut short: nothing was changed on the thread yet.
//! - *remove*: `flags = 0` in one store. The old fields stay behind unseen.
//!
//! A reader that runs beside a *living* writer (the guardian, when the owner hangs) may see an identity torn between two
//! processes. The identity check fails then, nobody is signalled, and the owner still lives.
//!
//! *Full disks.* The file has a hole where no slot was ever used; space for slots is allocated before the first
//! store to them, so that a full disk is an error of [`Table::add`] and not a SIGBUS.

use std::ffi::{CStr, CString};
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use divvy_policy::Instant;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::process::Pid;

use super::dir::RuntimeDir;
use super::tree::{SECOND_BYTES, SecondCells, TREE_BYTES, TreeCells};
use crate::affinity::{CpuMask, MASK_WORDS};
use crate::cgroup::raw::{TreeImage, Undone};
use crate::error::ALLOCATE;
use crate::procfs::{self, BOOT_ID};
use crate::{Error, Result, StartTime};

/// Slots of an ordinary table: more than divvy can divide among, and 12 MiB of address space, of which only the
/// used part costs memory.
pub const CAPACITY: u32 = 65_536;

/// No table has more slots: a file that says so is none of ours, and reading it would take all memory.
pub(crate) const CAPACITY_MAX: u32 = 16 * CAPACITY;

/// The first page: what never changes ([`Header`]), then what does ([`LiveCells`]).
pub(crate) const HEADER_BYTES: usize = 4096;
const LIVE_OFFSET: usize = 256;
/// Where in the file the tree of cgroups is, and the second one.
pub(crate) const TREE_OFFSET: usize = 512;
pub(crate) const SECOND_OFFSET: usize = TREE_OFFSET + TREE_BYTES;
const MAGIC: [u8; 8] = *b"DIVVYTBL";
const VERSION: u32 = 1;
/// Slots whose space is allocated at a time.
const GROWTH: u32 = 256;

const USED: u32 = 1;
const HELD: u32 = 2;
const AFFINITY: u32 = 4;
const GROUP: u32 = 8;
const MARKED: u32 = 16;

/// Where and when we are: what decides whether the pids of a table mean anything to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// This boot's id.
    pub boot_id: [u8; 16],
    /// The inode of our pid namespace: a container has its own.
    pub pid_namespace: u64,
}

impl Place {
    /// This boot, and this process's namespace.
    ///
    /// # Errors
    /// [`Error::System`] or [`Error::Malformed`] where `/proc` does not tell.
    pub fn here() -> Result<Self> {
        const NAMESPACE: &str = "/proc/self/ns/pid";
        let malformed = || Error::Malformed { object: BOOT_ID.to_owned(), what: "the boot's id" };
        let digits = procfs::boot_id()?.replace('-', "");
        let boot_id = u128::from_str_radix(&digits, 16).map_err(|_| malformed())?.to_be_bytes();
        let namespace = rustix::fs::stat(NAMESPACE).map_err(|e| Error::system("stat", NAMESPACE, e))?;
        Ok(Self { boot_id, pid_namespace: namespace.st_ino })
    }
}

/// How far the suspension of a held slot reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The process alone.
    Process,
    /// Every member of the process group that the process leads or led, in this session.
    Group {
        /// The group's session; `None` for one whose leader is in no pid namespace that we see into, as where a
        /// container's command was started from outside.
        session: Option<Pid>,
    },
}

/// The mask that a thread had before it was changed for a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedAffinity {
    /// The thread.
    pub tid: Pid,
    /// When the thread began: the other half of its identity.
    pub start: StartTime,
    /// Where it may run by its own will.
    pub mask: CpuMask,
    /// Its policy is `SCHED_BATCH` meanwhile, and the ordinary one by its own will.
    pub marked: bool,
}

/// A place in a [`Table`]. Not to be copied: [`Table::remove`] takes it back.
#[derive(Debug, PartialEq, Eq)]
pub struct Slot(u32);

/// What never changes in a table: whose it is, and where and when its pids mean anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub capacity: u32,
    pub owner: Pid,
    pub owner_start: StartTime,
    pub boot_id: [u8; 16],
    pub pid_namespace: u64,
}

impl Header {
    /// How many bytes a table's file has.
    pub fn file_bytes(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.capacity) * size_of::<SlotCells>() as u64
    }

    fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(LIVE_OFFSET);
        bytes.extend(MAGIC);
        for word in [VERSION, HEADER_BYTES as u32, size_of::<SlotCells>() as u32, self.capacity] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(self.owner.as_raw_nonzero().get().to_ne_bytes());
        bytes.extend(0_u32.to_ne_bytes());
        bytes.extend(self.owner_start.0.to_ne_bytes());
        bytes.extend(self.boot_id);
        bytes.extend(self.pid_namespace.to_ne_bytes());
        let sum = checksum(&bytes);
        bytes.extend(sum.to_ne_bytes());
        bytes
    }

    /// What the first page of a file says, or why it is none of ours.
    pub fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        let mut rest = bytes;
        let magic = take::<8>(&mut rest).ok_or("it is cut short")?;
        if magic != MAGIC {
            return Err("it does not begin as a table does");
        }
        let mut word = || take::<4>(&mut rest).map(u32::from_ne_bytes).ok_or("it is cut short");
        let (version, header, slot, capacity) = (word()?, word()?, word()?, word()?);
        let (owner, _) = (word()?, word()?);
        if version != VERSION {
            return Err("another version of divvy wrote it");
        }
        let mut long = || take::<8>(&mut rest).map(u64::from_ne_bytes).ok_or("it is cut short");
        let owner_start = StartTime(long()?);
        let (boot_low, boot_high, pid_namespace) = (long()?, long()?, long()?);
        let sum = long()?;
        let summed = bytes.len() - rest.len() - size_of::<u64>();
        if bytes.get(..summed).map(checksum) != Some(sum) {
            return Err("its header's checksum is wrong");
        }
        if (header as usize, slot as usize) != (HEADER_BYTES, size_of::<SlotCells>()) {
            return Err("its sizes are not this version's");
        }
        if capacity > CAPACITY_MAX {
            return Err("it has more slots than any table (1048576)");
        }
        let owner = i32::try_from(owner).ok().and_then(Pid::from_raw).ok_or("its owner is no pid")?;
        let mut boot_id = [0; 16];
        for (to, from) in
            boot_id.iter_mut().zip(boot_low.to_ne_bytes().into_iter().chain(boot_high.to_ne_bytes()))
        {
            *to = from;
        }
        Ok(Self { capacity, owner, owner_start, boot_id, pid_namespace })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

/// FNV-1a, 64 bits.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

const _: () = assert!(CAPACITY_MAX == 1_048_576);

/// What changes in the first page.
#[repr(C)]
pub(crate) struct LiveCells {
    /// Heartbeats so far.
    pub beats: AtomicU64,
    /// When the last one was, ns of `CLOCK_MONOTONIC`.
    pub beat_ns: AtomicU64,
    /// Raised by a guardian when it begins and when it ends resuming under a living owner.
    pub generation: AtomicU64,
    /// Rounds of the guardian so far: its own heartbeat.
    pub guardian_beats: AtomicU64,
    /// Slots below this one were used at some time.
    pub high_water: AtomicU32,
}

/// One slot. See the module's header for the order of stores.
#[repr(C, align(64))]
pub(crate) struct SlotCells {
    flags: AtomicU32,
    pid: AtomicU32,
    start: AtomicU64,
    /// The group's session; 0 for a process alone, and for a session that has no number here.
    session: AtomicU32,
    thread: AtomicU32,
    thread_start: AtomicU64,
    mask: [AtomicU64; MASK_WORDS],
}

const _: () = assert!(size_of::<SlotCells>() == 192 && LIVE_OFFSET + size_of::<LiveCells>() <= TREE_OFFSET);
const _: () = assert!(SECOND_OFFSET.is_multiple_of(8) && SECOND_OFFSET + SECOND_BYTES <= HEADER_BYTES);

/// What a slot said when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotImage {
    pub pid: Pid,
    pub start: StartTime,
    pub reach: Reach,
    pub held: bool,
    pub affinity: Option<SavedAffinity>,
}

impl SlotCells {
    /// What the slot says; `None` for a free one, or one whose identity is torn.
    fn image(&self) -> Option<SlotImage> {
        let flags = self.flags.load(Ordering::Acquire);
        if flags & USED == 0 {
            return None;
        }
        let pid = |cell: &AtomicU32| i32::try_from(cell.load(Ordering::Relaxed)).ok().and_then(Pid::from_raw);
        let affinity = match (flags & AFFINITY != 0, pid(&self.thread)) {
            (true, Some(tid)) => {
                let mut mask = CpuMask::default();
                for (to, from) in mask.words.iter_mut().zip(&self.mask) {
                    *to = from.load(Ordering::Relaxed);
                }
                let start = StartTime(self.thread_start.load(Ordering::Relaxed));
                Some(SavedAffinity { tid, start, mask, marked: flags & MARKED != 0 })
            }
            _ => None,
        };
        Some(SlotImage {
            pid: pid(&self.pid)?,
            start: StartTime(self.start.load(Ordering::Relaxed)),
            reach: match flags & GROUP {
                0 => Reach::Process,
                _ => Reach::Group { session: pid(&self.session) },
            },
            held: flags & HELD != 0,
            affinity,
        })
    }

    /// What the slot in these bytes of a file says; `None` for a free one.
    pub fn image_of_bytes(bytes: &[u8; size_of::<Self>()]) -> Result<Option<SlotImage>, &'static str> {
        // SAFETY: the type is a sequence of integers without padding between fields that are read, for which every
        // bit pattern is a value; an atomic has the representation of its integer.
        let cells: Self = unsafe { std::mem::transmute_copy(bytes) };
        match cells.image() {
            None if cells.flags.load(Ordering::Relaxed) & USED != 0 => Err("a slot in use names no pid"),
            image => Ok(image),
        }
    }
}

/// The mapped table, as both owner and guardian see it. Reading it allocates nothing.
#[derive(Clone, Copy)]
pub(crate) struct View {
    base: NonNull<u8>,
    capacity: u32,
}

impl View {
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }

    pub fn live(&self) -> &LiveCells {
        // SAFETY: the mapping lives as long as the `Table` (or, in the guardian, the process), is page-aligned, and
        // has the header's page; the cells are atomics, for which shared and outside writes are no data race.
        unsafe { self.base.add(LIVE_OFFSET).cast::<LiveCells>().as_ref() }
    }

    /// The tree of cgroups, if the owner has one.
    pub fn tree(&self) -> &TreeCells {
        // SAFETY: as in `live`.
        unsafe { self.base.add(TREE_OFFSET).cast::<TreeCells>().as_ref() }
    }

    /// The second tree of cgroups, if the owner has two.
    pub fn second_tree(&self) -> &SecondCells {
        // SAFETY: as in `live`.
        unsafe { self.base.add(SECOND_OFFSET).cast::<SecondCells>().as_ref() }
    }

    /// Whether the owner has any.
    pub fn has_trees(&self) -> bool {
        self.tree().is_noted() || self.second_tree().is_noted()
    }

    /// Does `undo` to each of the trees; whether all was done.
    pub fn undo_trees(&self, undo: impl Fn(&TreeImage) -> Undone) -> bool {
        let done = |tree: Option<TreeImage>| tree.is_none_or(|tree| undo(&tree).failed.is_none());
        // Frozen processes are in the second one, where there are two.
        done(self.second_tree().image()) & done(self.tree().image())
    }

    fn cells(&self, index: u32) -> Option<&SlotCells> {
        if index >= self.capacity {
            return None;
        }
        // SAFETY: as in `live`; the index is below the capacity, for which the mapping was made, and the header's
        // page keeps the slots aligned to 64.
        Some(unsafe { self.base.add(HEADER_BYTES).cast::<SlotCells>().add(index as usize).as_ref() })
    }

    /// How many slots have to be looked at.
    pub fn len(&self) -> u32 {
        self.live().high_water.load(Ordering::Acquire).min(self.capacity)
    }

    /// What slot `index` says; `None` for a free one.
    pub fn image(&self, index: u32) -> Option<SlotImage> {
        self.cells(index)?.image()
    }
}

/// The owner's table: made once at its start, and the journal of everything that it suspends.
pub struct Table {
    view: View,
    header: Header,
    dir: RuntimeDir,
    name: CString,
    file: OwnedFd,
    /// Slots given back, the last one first.
    free: Vec<u32>,
    /// Slots below this one have their space allocated.
    allocated: u32,
}

// SAFETY: the mapping belongs to the table alone and is used through atomics only.
unsafe impl Send for Table {}
// SAFETY: as above; what takes `&self` only loads and stores atomics.
unsafe impl Sync for Table {}

impl Table {
    /// A new table of `capacity` slots (see [`CAPACITY`]; at most 16 times as many) in `dir`, owned by this process.
    ///
    /// # Errors
    /// [`Error::System`] or [`Error::Permission`] where the file cannot be made, filled, renamed or mapped: nothing is
    /// left behind.
    pub fn create(dir: &RuntimeDir, capacity: u32) -> Result<Self> {
        // More tables than one in a process are for tests only, but must not share a name.
        static MADE: AtomicU32 = AtomicU32::new(0);
        let capacity = capacity.min(CAPACITY_MAX);
        let place = Place::here()?;
        let owner = rustix::process::getpid();
        let owner_start = procfs::stat(owner)?
            .ok_or_else(|| Error::system("find", "our own process in /proc", Errno::SRCH))?
            .start;
        let header = Header {
            capacity,
            owner,
            owner_start,
            boot_id: place.boot_id,
            pid_namespace: place.pid_namespace,
        };
        let stem = format!("{owner}-{}-{}", owner_start.0, MADE.fetch_add(1, Ordering::Relaxed));
        let temporary = file_name(format!("held-{stem}.tmp"));
        let name = file_name(format!("held-{stem}.table"));

        let dir = dir.duplicate()?;
        let made = Self::write(&dir, &temporary, &header).and_then(|file| {
            let failed = |what, e| Error::system(what, dir.path_of(&name).display(), e);
            let view = Self::map(&file, &header).map_err(|e| failed("map", e))?;
            rustix::fs::renameat(&dir, &temporary, &dir, &name).map_err(|e| failed("rename to", e))?;
            Ok((file, view))
        });
        let (file, view) = match made {
            Ok(made) => made,
            Err(e) => {
                // What went wrong first is what the caller has to know.
                let _ = dir.remove(&temporary);
                return Err(e);
            }
        };
        let table = Self { view, header, dir, name, file, free: Vec::new(), allocated: GROWTH.min(capacity) };
        rustix::fs::fsync(&table.dir)
            .map_err(|e| Error::system("sync directory", table.dir.path().display(), e))?;
        Ok(table)
    }

    /// Writes a whole file under a temporary name and syncs it.
    fn write(dir: &RuntimeDir, temporary: &CStr, header: &Header) -> Result<OwnedFd> {
        let failed = |what, e| Error::system(what, dir.path_of(temporary).display(), e);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(dir, temporary, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|e| failed("create", e))?;
        rustix::fs::ftruncate(&file, header.file_bytes()).map_err(|e| failed("extend", e))?;
        allocate(&file, 0, header, GROWTH.min(header.capacity)).map_err(|e| failed(ALLOCATE, e))?;
        write_at(&file, &header.to_bytes(), 0).map_err(|e| failed("write", e))?;
        rustix::fs::fsync(&file).map_err(|e| failed("sync", e))?;
        Ok(file)
    }

    fn map(file: &OwnedFd, header: &Header) -> rustix::io::Result<View> {
        let bytes = usize::try_from(header.file_bytes()).map_err(|_| Errno::NOMEM)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice takes no memory from anybody.
        let base =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, file, 0)? };
        let base = NonNull::new(base.cast::<u8>()).ok_or(Errno::NOMEM)?;
        Ok(View { base, capacity: header.capacity })
    }

    /// Where the table's file is.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.dir.path_of(&self.name)
    }

    /// Whether somebody has removed the file: it still serves the guardian, but no rescue would find it.
    #[must_use]
    pub fn is_unlinked(&self) -> bool {
        rustix::fs::fstat(&self.file).is_ok_and(|stat| stat.st_nlink == 0)
    }

    /// Enters a process that may be held later on, with how far its suspension reaches. Nothing is held yet.
    ///
    /// # Errors
    /// [`Error::TableFull`], or [`Error::System`] where the disk is full.
    pub fn add(&mut self, pid: Pid, start: StartTime, reach: Reach) -> Result<Slot> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => self.next_fresh()?,
        };
        if let Some(cells) = self.view.cells(index) {
            let raw = |pid: Pid| pid.as_raw_nonzero().get().unsigned_abs();
            cells.pid.store(raw(pid), Ordering::Relaxed);
            cells.start.store(start.0, Ordering::Relaxed);
            let (session, group) = match reach {
                Reach::Process => (0, 0),
                Reach::Group { session } => (session.map_or(0, raw), GROUP),
            };
            cells.session.store(session, Ordering::Relaxed);
            cells.flags.store(USED | group, Ordering::Release);
        }
        Ok(Slot(index))
    }

    /// A slot that was never used, with its space allocated.
    fn next_fresh(&mut self) -> Result<u32> {
        let live = self.view.live();
        let index = live.high_water.load(Ordering::Relaxed);
        if index >= self.header.capacity {
            return Err(Error::TableFull { path: self.path(), capacity: self.header.capacity });
        }
        if index >= self.allocated {
            let end = self.allocated.saturating_add(GROWTH).min(self.header.capacity);
            allocate(&self.file, self.allocated, &self.header, end)
                .map_err(|e| Error::system(ALLOCATE, self.path().display(), e))?;
            self.allocated = end;
        }
        live.high_water.store(index + 1, Ordering::Release);
        Ok(index)
    }

    /// Says that the slot's process is about to be suspended (call it **before** SIGSTOP), or that it has been resumed
    /// (call it **after** SIGCONT). One atomic instruction.
    pub fn set_held(&self, slot: &Slot, held: bool) {
        self.set_flag(slot, HELD, held);
    }

    /// Whether the slot is held.
    #[must_use]
    pub fn is_held(&self, slot: &Slot) -> bool {
        self.view.cells(slot.0).is_some_and(|cells| cells.flags.load(Ordering::Relaxed) & HELD != 0)
    }

    /// Says that a thread's affinity is about to be changed for a moment, and what to put back if we do not. One
    /// thread at a time for each slot: call [`Table::clear_affinity`] once the thread has its own mask again.
    pub fn set_affinity(&self, slot: &Slot, saved: &SavedAffinity) {
        let Some(cells) = self.view.cells(slot.0) else { return };
        // A reader must not see the old bit over the new mask.
        cells.flags.fetch_and(!(AFFINITY | MARKED), Ordering::AcqRel);
        cells.thread.store(saved.tid.as_raw_nonzero().get().unsigned_abs(), Ordering::Relaxed);
        cells.thread_start.store(saved.start.0, Ordering::Relaxed);
        for (to, from) in cells.mask.iter().zip(saved.mask.words) {
            to.store(from, Ordering::Relaxed);
        }
        self.set_flag(slot, if saved.marked { AFFINITY | MARKED } else { AFFINITY }, true);
    }

    /// Says that the thread has its own affinity again.
    pub fn clear_affinity(&self, slot: &Slot) {
        self.set_flag(slot, AFFINITY | MARKED, false);
    }

    fn set_flag(&self, slot: &Slot, flag: u32, on: bool) {
        if let Some(cells) = self.view.cells(slot.0) {
            match on {
                true => cells.flags.fetch_or(flag, Ordering::Release),
                false => cells.flags.fetch_and(!flag, Ordering::Release),
            };
        }
    }

    /// Takes a slot back, whatever it said: its process has gone, or has been resumed and is no client any more.
    pub fn remove(&mut self, slot: Slot) {
        if let Some(cells) = self.view.cells(slot.0) {
            cells.flags.store(0, Ordering::Release);
            self.free.push(slot.0);
        }
    }

    /// Tells the guardian that the owner is at work. To be called at least every [`BEAT_INTERVAL`](super::BEAT_INTERVAL)
    /// while anything is held.
    pub fn beat(&self, now: Instant) {
        let live = self.view.live();
        live.beat_ns.store(now.0, Ordering::Relaxed);
        live.beats.fetch_add(1, Ordering::Release);
    }

    /// Rises when a guardian resumes what the owner held, because the owner did not beat: once when it begins, once when it
    /// has finished. An owner that sees it risen holds anew whatever should be held; the held bits still stand as it left
    /// them.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.view.live().generation.load(Ordering::Acquire)
    }

    /// Rounds that guardians of this table have made, about ten a second: one that does not rise for a second is stopped,
    /// and as good as dead.
    #[must_use]
    pub fn guardian_beats(&self) -> u64 {
        self.view.live().guardian_beats.load(Ordering::Relaxed)
    }

    /// How many slots are held. Looks at all of them.
    #[must_use]
    pub fn nr_held(&self) -> usize {
        self.images().filter(|image| image.held).count()
    }

    fn images(&self) -> impl Iterator<Item = SlotImage> + '_ {
        (0..self.view.len()).filter_map(|index| self.view.image(index))
    }

    pub(crate) const fn view(&self) -> View {
        self.view
    }

    pub(crate) const fn owner(&self) -> Pid {
        self.header.owner
    }

    pub(crate) const fn owner_identity(&self) -> (Pid, StartTime) {
        (self.header.owner, self.header.owner_start)
    }

    pub(crate) const fn dir(&self) -> &RuntimeDir {
        &self.dir
    }

    pub(crate) fn name(&self) -> &CStr {
        &self.name
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table")
            .field("path", &self.path())
            .field("header", &self.header)
            .finish_non_exhaustive()
    }
}

impl Drop for Table {
    /// Removes the file if nothing is held, no affinity is to be put back and no tree of cgroups is left; else it stays,
    /// for the guardian and the rescue to work on.
    fn drop(&mut self) {
        let held = self.images().any(|image| image.held || image.affinity.is_some());
        if !held && !self.view.has_trees() {
            // A file that cannot be removed names nobody who is held: the next rescue removes it.
            let _ = self.dir.remove(&self.name);
        }
        // SAFETY: the mapping is ours and of this length, and no reference into it outlives the table.
        let _ =
            unsafe { rustix::mm::munmap(self.view.base.as_ptr().cast(), self.header.file_bytes() as usize) };
    }
}

/// Makes sure that the slots from `from` up to `end` (and with the first of them the header) have space on the disk.
/// They were never used.
fn allocate(file: &OwnedFd, from: u32, header: &Header, end: u32) -> rustix::io::Result<()> {
    let at = |index: u32| HEADER_BYTES as u64 + u64::from(index) * size_of::<SlotCells>() as u64;
    let begin = if from == 0 { 0 } else { at(from) };
    debug_assert!(end <= header.capacity);
    match rustix::fs::fallocate(file, FallocateFlags::empty(), begin, at(end) - begin) {
        // A file system without fallocate: zeros written over the hole do the same.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_at(file, &vec![0; (at(end) - begin) as usize], begin),
        done => done,
    }
}

fn write_at(file: impl AsFd, bytes: &[u8], at: u64) -> rustix::io::Result<()> {
    let mut written = 0;
    while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
        match rustix::io::pwrite(&file, rest, at + written as u64) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => written += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn file_name(name: String) -> CString {
    CString::new(name).expect("made of digits and letters")
}

/// Where in the file the high-water mark is, for a reader that does not map it.
pub(crate) const HIGH_WATER_OFFSET: usize = LIVE_OFFSET + offset_of!(LiveCells, high_water);
/// Where in the file the time of the last heartbeat is.
pub(crate) const BEAT_NS_OFFSET: usize = LIVE_OFFSET + offset_of!(LiveCells, beat_ns);
/// Bytes of a slot.
pub(crate) const SLOT_BYTES: usize = size_of::<SlotCells>();
