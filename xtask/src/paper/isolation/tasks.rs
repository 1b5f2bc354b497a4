//! The paper's tasks, as this program itself: `xtask isolation-task KIND ...`. Each counts what it does in the first eight
//! bytes of a file, for whoever looks on.

use std::fs::OpenOptions;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use crate::client::number;
use crate::paper::real::Word;

/// Pages are looked at one by one.
const PAGE: usize = 4096;

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
        // SAFETY: the mapping is this long and ours. What is advised may be passed over.
        unsafe { libc::madvise(self.at.cast(), self.bytes, advice) };
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
    if kind == "fig8" {
        return super::inside::fig8(args);
    }
    let word = Word::open(&PathBuf::from(args.next().context("the file to count in is missing")?))?;
    match kind.as_str() {
        "memory" => memory(&word, args),
        "iohog" => iohog(&word, args),
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

/// `iohog COUNT FILE OFFSET BYTES`: maps a part of a file and touches the first byte of each page, so that each is read from
/// the disk, one request at a time (sections 5.4 and 5.5); counts pages, and begins again at the end.
fn iohog(word: &Word, mut args: impl Iterator<Item = String>) -> Result<()> {
    let path = PathBuf::from(args.next().context("FILE is missing")?);
    let file = OpenOptions::new().read(true).open(&path);
    let file = file.with_context(|| format!("open {}", path.display()))?;
    let offset = i64::try_from(number(&mut args, "OFFSET")?)?;
    let bytes = usize::try_from(number(&mut args, "BYTES")?)?;
    let part = Mapping::new(bytes, Some((&file, offset)))?;
    loop {
        // No page is read that is not asked for, and none is there before it is.
        part.advise(libc::MADV_RANDOM);
        part.advise(libc::MADV_DONTNEED);
        // SAFETY: takes and returns numbers.
        unsafe {
            libc::posix_fadvise(file.as_raw_fd(), offset, i64::try_from(bytes)?, libc::POSIX_FADV_DONTNEED)
        };
        for page in 0..bytes / PAGE {
            part.read(page);
            word.add(1);
        }
    }
}
