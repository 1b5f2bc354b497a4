//! What this program does where it is a client, a load, or the keeper of a run: hidden behind one word of the command line.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result, bail};
use divvy_linux::clock;
use divvy_policy::{Instant, Nanos};

use super::{cgroups, load};
use crate::client::number;

/// The hidden subcommand.
pub(crate) const REAL: &str = "real";
/// CPU time after which a process of ours ends by itself, s, whatever has become of the one that started it.
const CPU_MAX: u64 = 300;
/// What a counting loop does between two counts: about 2 us.
const STEPS: u32 = 2_000;
/// How much the feeder gives at a time, and counts.
const BLOCK: usize = 4096;

/// `real hog|feed|nap|duty|load|keeper ...`.
pub(crate) fn work(mut args: impl Iterator<Item = String>) -> Result<()> {
    let word = args.next().context("what work is missing")?;
    let limit = libc::rlimit { rlim_cur: CPU_MAX, rlim_max: CPU_MAX };
    // SAFETY: the limit is a whole, live struct.
    unsafe { libc::setrlimit(libc::RLIMIT_CPU, &limit) };
    match word.as_str() {
        "hog" => hog(args),
        "feed" => feed(args),
        "nap" => nap(args),
        "duty" => duty(args),
        "load" => load::load(args),
        "keeper" => keeper(args),
        _ => bail!("there is no work called {word}"),
    }
}

/// A number that other processes see: the first eight bytes of a file.
pub(in crate::paper) struct Word {
    at: *const AtomicU64,
}

// SAFETY: the mapping lives as long as the process, and is used by atomic operations only.
unsafe impl Send for Word {}
// SAFETY: as above.
unsafe impl Sync for Word {}

impl Word {
    /// That of the file at `path`, which is made if it is not there.
    ///
    /// # Errors
    /// Where it cannot be opened or mapped.
    pub(in crate::paper) fn open(path: &Path) -> Result<Self> {
        let failed = || format!("open {}", path.display());
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .with_context(failed)?;
        file.set_len(8).with_context(failed)?;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping of a file that is as long; it is never unmapped.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), 8, protection, flags, std::os::fd::AsRawFd::as_raw_fd(&file), 0)
        };
        if at == libc::MAP_FAILED {
            bail!("map {}: {}", path.display(), std::io::Error::last_os_error());
        }
        Ok(Self { at: at.cast() })
    }

    /// Adds to it, for all to see.
    pub(in crate::paper) fn add(&self, n: u64) {
        // SAFETY: mapped, aligned to a page, and never unmapped.
        unsafe { &*self.at }.fetch_add(n, Ordering::Relaxed);
    }
}

fn path(args: &mut impl Iterator<Item = String>) -> Result<std::path::PathBuf> {
    Ok(args.next().context("the file is missing")?.into())
}

fn steps(x: &mut u64) {
    for _ in 0..STEPS {
        *x = std::hint::black_box(x.wrapping_mul(31).wrapping_add(7));
    }
}

/// `hog FILE THREADS`: computes in so many threads, and counts.
fn hog(mut args: impl Iterator<Item = String>) -> Result<()> {
    let word = Arc::new(Word::open(&path(&mut args)?)?);
    let count = |word: &Word| -> ! {
        let mut x = 1;
        loop {
            steps(&mut x);
            word.add(1);
        }
    };
    for _ in 1..number(&mut args, "THREADS")? {
        let word = Arc::clone(&word);
        std::thread::Builder::new().spawn(move || count(&word))?;
    }
    count(&word)
}

/// `feed INPUT FILE`: writes INPUT over and over to standard output, and counts blocks of 4 KiB.
fn feed(mut args: impl Iterator<Item = String>) -> Result<()> {
    let input = std::fs::read(path(&mut args)?).context("read the input")?;
    let word = Word::open(&path(&mut args)?)?;
    let mut out = File::from(std::os::fd::AsFd::as_fd(&std::io::stdout()).try_clone_to_owned()?);
    loop {
        for block in input.chunks(BLOCK) {
            if out.write_all(block).is_err() {
                return Ok(()); // Whoever reads has ended.
            }
            word.add(1);
        }
    }
}

/// `duty FILE RUN_MS SLEEP_MS`: computes for so much CPU time, sleeps, and so on; counts what it computes.
fn duty(mut args: impl Iterator<Item = String>) -> Result<()> {
    let word = Word::open(&path(&mut args)?)?;
    let run = Nanos::from_millis(number(&mut args, "RUN_MS")?);
    let sleep = Nanos::from_millis(number(&mut args, "SLEEP_MS")?);
    let (mut x, mut due) = (1, clock::own_thread_cpu());
    loop {
        due += run;
        while clock::own_thread_cpu() < due {
            steps(&mut x);
            word.add(1);
        }
        clock::sleep(sleep);
    }
}

/// A request that was answered: when, and how long it took; 16 bytes in the file of a run.
pub(super) fn record(file: &mut File, end: Instant, took: Nanos) -> std::io::Result<()> {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&end.0.to_le_bytes());
    bytes[8..].copy_from_slice(&took.0.to_le_bytes());
    file.write_all(&bytes)
}

/// The requests that were answered: when, and how long each took.
pub(super) fn records(bytes: &[u8]) -> Vec<(Instant, Nanos)> {
    let word = |b: &[u8]| u64::from_le_bytes(b.try_into().unwrap_or_default());
    bytes.chunks_exact(16).map(|r| (Instant(word(&r[..8])), Nanos(word(&r[8..])))).collect()
}

/// `nap FILE WORK_US PERIOD_US`: a server whose requests come every PERIOD_US and take WORK_US of CPU time; a request's
/// time is from when it was due to when it is done. What came too late to be served in time is still served, in order.
fn nap(mut args: impl Iterator<Item = String>) -> Result<()> {
    let path = path(&mut args)?;
    let mut file =
        OpenOptions::new().append(true).create(true).open(&path).context("open the file of requests")?;
    let work = Nanos::from_micros(number(&mut args, "WORK_US")?);
    let period = Nanos::from_micros(number(&mut args, "PERIOD_US")?);
    let (mut x, mut due) = (1, clock::now());
    loop {
        due = due + period;
        clock::sleep(due.since(clock::now()));
        let begun = clock::own_thread_cpu();
        while clock::own_thread_cpu() < begun + work {
            steps(&mut x);
        }
        let now = clock::now();
        record(&mut file, now, now.since(due))?;
    }
}

/// `keeper PREFIX DIR...`: waits until standard input ends, as it does with the one who started it however that went, and
/// then ends whoever is left in its cgroups, and removes its directories.
fn keeper(mut args: impl Iterator<Item = String>) -> Result<()> {
    let prefix = args.next().context("PREFIX is missing")?;
    // An input that cannot be read has ended too.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    cgroups::sweep(&prefix)?;
    // Whoever ended in good order has removed them.
    args.for_each(|dir| drop(std::fs::remove_dir_all(dir)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let mut file = tempfile::tempfile().expect("a file");
        record(&mut file, Instant(5), Nanos(7)).expect("written");
        record(&mut file, Instant(u64::MAX), Nanos(1 << 40)).expect("written");
        std::io::Seek::rewind(&mut file).expect("a file");
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).expect("read");
        assert_eq!(records(&bytes), [(Instant(5), Nanos(7)), (Instant(u64::MAX), Nanos(1 << 40))]);
        assert_eq!(records(&bytes[..17]).len(), 1, "half a record is none");
    }

    #[test]
    fn a_word_counts_in_its_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let word = Word::open(&dir.path().join("w")).expect("mapped");
        word.add(3);
        word.add(4);
        let bytes = std::fs::read(dir.path().join("w")).expect("read");
        assert_eq!(u64::from_le_bytes(bytes.try_into().expect("eight bytes")), 7);
    }
}
