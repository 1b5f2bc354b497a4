//! The paper's tasks, as this program itself: `xtask isolation-task KIND ...`. Each counts what it does in the first eight
//! bytes of a file, for whoever looks on.

use std::fs::OpenOptions;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use nix::unistd::Pid;
use rustix::fs::Advice;

use crate::client::number;
use crate::paper::real::Word;

/// Pages are looked at one by one.
const PAGE: usize = 4096;
/// A reader forgets so many pages at once. Thousands would take the CPU for longer than anybody's turn there is.
const FORGET: usize = 16;

/// Memory of our own, or a file's, never unmapped.
struct Mapping {
    at: *mut u8,
    bytes: usize,
}

impl Mapping {
    fn new(bytes: usize, file: Option<(&std::fs::File, i64)>) -> Result<Self> {
        let (flags, protection, fd, offset) = match file {
            Some((file, offset)) => (libc::MAP_SHARED, libc::PROT_READ, file.as_raw_fd(), offset),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::PROT_READ | libc::PROT_WRITE, -1, 0),
        };
        // SAFETY: a new mapping, wherever the kernel puts it.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, fd, offset) };
        if at == libc::MAP_FAILED {
            bail!("map {bytes} bytes: {}", std::io::Error::last_os_error());
        }
        Ok(Self { at: at.cast(), bytes })
    }

    fn advise(&self, advice: i32) {
        self.advise_pages(0..self.bytes / PAGE, advice);
    }

    /// Advises on some of its pages.
    fn advise_pages(&self, pages: Range<usize>, advice: i32) {
        // SAFETY: within the mapping, which is ours. What is advised may be passed over.
        unsafe { libc::madvise(self.at.add(pages.start * PAGE).cast(), pages.len() * PAGE, advice) };
    }

    /// Reads the first byte of a page.
    fn read(&self, page: usize) {
        // SAFETY: within the mapping, which is readable.
        let _ = std::hint::black_box(unsafe { self.at.add(page * PAGE).read_volatile() });
    }

    /// Writes the first byte of a page of our own memory.
    fn write(&self, page: usize, byte: u8) {
        // SAFETY: within the mapping, which is ours alone and writable where it is called.
        unsafe { self.at.add(page * PAGE).write_volatile(byte) };
    }
}

impl Mapping {
    /// Reads a portion of a file, of one page, into a page of our own memory.
    fn fill(&self, page: usize, file: &std::fs::File, portion: usize) -> Result<()> {
        // SAFETY: within the mapping, which is ours alone and writable where it is called; nobody else refers to it.
        let into = unsafe { std::slice::from_raw_parts_mut(self.at.add(page * PAGE), PAGE) };
        Ok(std::os::unix::fs::FileExt::read_exact_at(file, into, (portion * PAGE) as u64)?)
    }
}

/// Numbers that look random, the same ones every time.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

/// Does what the command line says until it is killed.
///
/// # Errors
/// Where the arguments make no sense, or memory, file or disk cannot be had.
pub(crate) fn task(mut args: impl Iterator<Item = String>) -> Result<()> {
    let kind = args.next().context("the kind of task is missing")?;
    if kind.starts_with("fig") {
        return super::inside::experiment(&kind, args);
    }
    let word = Word::open(&PathBuf::from(args.next().context("the file to count in is missing")?))?;
    match kind.as_str() {
        "memory" => memory(&word, args),
        "copy" => copy(&word, args),
        "compute" => compute(&word),
        "storm" => storm(&word, args),
        "trace" => trace(&word, args),
        "crowd" => crowd(&word, args),
        "iohog" => iohog(&word, args),
        "phone" => phone(&word, args),
        _ => bail!("there is no task called {kind}"),
    }
}

/// `memory COUNT BYTES SEED`: writes to pages of so much memory at random, as section 5.3's tasks do, and counts pages.
fn memory(word: &Word, mut args: impl Iterator<Item = String>) -> Result<()> {
    let bytes = usize::try_from(number(&mut args, "BYTES")?)?;
    let mut random = Random(number(&mut args, "SEED")?.max(1));
    let buffer = Mapping::new(bytes, None)?;
    // One page is what is kept or taken, whatever the kernel would rather give.
    buffer.advise(libc::MADV_NOHUGEPAGE);
    let pages = bytes / PAGE;
    for page in 0..pages {
        buffer.write(page, 1);
        word.add(1);
    }
    loop {
        let page = random.below(pages);
        buffer.write(page, page as u8);
        word.add(1);
    }
}

/// `copy COUNT FILE BYTES BUFFER SEED`: reads portions of 4 KiB of a file of so many bytes, at random, into random places of a
/// buffer, as section 5.3's tasks do, and counts them.
fn copy(word: &Word, mut args: impl Iterator<Item = String>) -> Result<()> {
    let file = open(&mut args)?;
    let portions = usize::try_from(number(&mut args, "BYTES")?)? / PAGE;
    let buffer = Mapping::new(usize::try_from(number(&mut args, "BUFFER")?)?, None)?;
    buffer.advise(libc::MADV_NOHUGEPAGE);
    let mut random = Random(number(&mut args, "SEED")?.max(1));
    let pages = buffer.bytes / PAGE;
    loop {
        let portion = random.below(portions);
        buffer.fill(random.below(pages), &file, portion)?;
        word.add(1);
    }
}

/// `compute COUNT`: computes, and counts every 2000 steps.
fn compute(word: &Word) -> Result<()> {
    let mut x = 1_u64;
    loop {
        for _ in 0..2_000 {
            x = std::hint::black_box(x.wrapping_mul(31).wrapping_add(7));
        }
        word.add(1);
    }
}

/// `crowd COUNT N FILE OFFSET BYTES`: N readers as `iohog` is one, each of its own part.
fn crowd(word: &Word, mut args: impl Iterator<Item = String>) -> Result<()> {
    let readers = number(&mut args, "N")?;
    let path = args.next().context("FILE is missing")?;
    let (offset, bytes) = (number(&mut args, "OFFSET")?, number(&mut args, "BYTES")?);
    std::thread::scope(|scope| {
        let start = |i: u64| {
            let words = [path.clone(), (offset + i * bytes).to_string(), bytes.to_string()];
            std::thread::Builder::new().spawn_scoped(scope, move || iohog(word, words.into_iter()))
        };
        let readers: Result<Vec<_>, _> = (0..readers).map(start).collect();
        for reader in readers? {
            reader.join().map_err(|_| anyhow::anyhow!("a reader panicked"))??;
        }
        Ok(())
    })
}

/// `storm COUNT CHILDREN`: so many children that compute; then without end resumes every process of its user, and starts one
/// that ends at once. Counts those.
fn storm(word: &Word, mut args: impl Iterator<Item = String>) -> Result<()> {
    for _ in 0..number(&mut args, "CHILDREN")? {
        std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().context("start sh")?;
    }
    loop {
        // Every process that it may signal: its user's.
        let _ = nix::sys::signal::kill(Pid::from_raw(-1), nix::sys::signal::Signal::SIGCONT);
        std::process::Command::new("true").status().context("start true")?;
        word.add(1);
    }
}

/// `trace COUNT CHILDREN`: so many children that compute, which it traces; without end it stops and continues each of them, and
/// counts that. They end with it.
fn trace(word: &Word, mut args: impl Iterator<Item = String>) -> Result<()> {
    let seize = |_| -> Result<Pid> {
        let mut child = std::process::Command::new("sh");
        let child = child.args(["-c", "while :; do :; done"]).spawn().context("start sh")?;
        let pid = Pid::from_raw(i32::try_from(child.id())?);
        ptrace(libc::PTRACE_SEIZE, pid, libc::PTRACE_O_EXITKILL).context("trace a child")?;
        Ok(pid)
    };
    let children = (0..number(&mut args, "CHILDREN")?).map(seize).collect::<Result<Vec<_>>>()?;
    loop {
        for &pid in &children {
            ptrace(libc::PTRACE_INTERRUPT, pid, 0).context("stop a child")?;
            nix::sys::wait::waitpid(pid, None).context("wait for a child")?;
            ptrace(libc::PTRACE_CONT, pid, 0).context("continue a child")?;
            word.add(1);
        }
    }
}

/// Asks the kernel for something about a child that is traced or is to be.
fn ptrace(request: libc::c_uint, child: Pid, data: i32) -> std::io::Result<()> {
    let nothing = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: the requests that are made take a number of a process and options, and touch no memory of ours.
    match unsafe { libc::ptrace(request, child.as_raw(), nothing, libc::c_long::from(data)) } {
        -1 => Err(std::io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// `phone COUNT DATABASE ENTRIES SEED`: looks up the numbers of entries at random, one by one, as section 5.6's servers do, and
/// counts queries.
fn phone(word: &Word, mut args: impl Iterator<Item = String>) -> Result<()> {
    let path = PathBuf::from(args.next().context("DATABASE is missing")?);
    let entries = usize::try_from(number(&mut args, "ENTRIES")?)?;
    let mut random = Random(number(&mut args, "SEED")?.max(1));
    let book = super::book::Book::open(&path)?;
    loop {
        book.look_up(random.below(entries) as u64)?;
        word.add(1);
    }
}

/// The file that the next argument names.
fn open(args: &mut impl Iterator<Item = String>) -> Result<std::fs::File> {
    let path = PathBuf::from(args.next().context("FILE is missing")?);
    OpenOptions::new().read(true).open(&path).with_context(|| format!("open {}", path.display()))
}

/// `iohog COUNT FILE OFFSET BYTES`: maps a part of a file and touches the first byte of each page, so that each is read from
/// the disk, one request at a time (sections 5.4 and 5.5); counts pages, and begins again at the end.
fn iohog(word: &Word, mut args: impl Iterator<Item = String>) -> Result<()> {
    let file = open(&mut args)?;
    let offset = number(&mut args, "OFFSET")?;
    let bytes = usize::try_from(number(&mut args, "BYTES")?)?;
    let part = Mapping::new(bytes, Some((&file, i64::try_from(offset)?)))?;
    // No page is read that is not asked for.
    part.advise(libc::MADV_RANDOM);
    loop {
        read_round(&part, &file, offset, || word.add(1));
    }
}

/// Touches every page of a part of a file that begins at `offset`. Those of the round before are forgotten just before they are
/// touched, a few at a time: until then they are memory that the reader has.
fn read_round(part: &Mapping, file: &std::fs::File, offset: u64, mut done: impl FnMut()) {
    let pages = part.bytes / PAGE;
    for begin in (0..pages).step_by(FORGET) {
        let next = begin..pages.min(begin + FORGET);
        // What is mapped is not forgotten.
        part.advise_pages(next.clone(), libc::MADV_DONTNEED);
        let length = NonZeroU64::new((next.len() * PAGE) as u64);
        // Advice that is passed over is seen by what is read from the disk (`Site::measure_readers`).
        let _ = rustix::fs::fadvise(file, offset + (begin * PAGE) as u64, length, Advice::DontNeed);
        for page in next {
            part.read(page);
            done();
        }
    }
}
