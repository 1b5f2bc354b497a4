//! Who descends from us: every fork and exit below this process, as the kernel tells them.
//!
//! One event for each CPU, inherited by whatever the calling thread starts, writes into a ring. The rings wake nobody: they are
//! read whenever the scheduler is awake anyway and needs to know, so that a storm of forks costs a record each, not a
//! wake-up each. A ring that was full says so.

use perf_event::events::Software;
use perf_event::{Builder, Clock, ReadFormat, SampleFlag, Sampler};
use rustix::io::Errno;

use crate::{CpuMask, Error, Pid, Result};

/// Pages of a ring, beside its first: 32 KiB, some 500 records.
const RING_BYTES: usize = 8 * 4096;
/// Records of the rings have this much behind what they say: pid and thread, time.
const TRAILER: usize = 16;
/// pid, parent, thread, the parent's thread: 4 bytes each, then the time, 8.
const RELATION: usize = 24;

const LOST: u32 = 2;
const EXIT: u32 = 4;
const FORK: u32 = 7;

/// What happened below us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// `parent` has made `child`.
    Fork {
        /// Who made it.
        parent: Pid,
        /// Which of its threads.
        maker: Pid,
        /// The new process.
        child: Pid,
    },
    /// A process has another thread.
    Thread {
        /// The process.
        of: Pid,
        /// Which of its threads has made it.
        maker: Pid,
        /// The new thread.
        tid: Pid,
    },
    /// A thread of this process has ended, its only one perhaps.
    Exit(Pid),
    /// More happened than the ring could hold: only a scan tells what.
    Lost,
}

/// The rings of all CPUs. Made by the thread that starts the processes in question.
pub struct Lineage {
    rings: Vec<Sampler>,
    /// Read, and not told yet: with the time of each.
    waiting: Vec<(u64, Relation)>,
}

impl std::fmt::Debug for Lineage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lineage").field("rings", &self.rings.len()).finish_non_exhaustive()
    }
}

impl Lineage {
    /// Asks the kernel to tell of whatever the calling thread starts from now on.
    ///
    /// # Errors
    /// [`Error::Permission`] where `perf_event_paranoid` or a filter forbids it, [`Error::System`] where the kernel has no
    /// memory for the rings (`perf_event_mlock_kb`) or no such events.
    pub fn open() -> Result<Self> {
        let failed = |e: std::io::Error| {
            let errno = e.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
            Error::system("open perf events", "for what this process starts", errno)
        };
        let mut rings = Vec::new();
        // There is an event for each CPU that runs anybody.
        for cpu in CpuMask::online()?.iter().map(|cpu| cpu as usize) {
            let mut builder = Builder::new(Software::DUMMY);
            builder.observe_self().one_cpu(cpu).inherit(true).exclude_kernel(true).exclude_hv(true);
            builder
                .enabled(true)
                .read_format(ReadFormat::empty())
                .task(true)
                .wakeup_watermark(RING_BYTES / 2)
                .sample_id_all(true);
            builder.sample(SampleFlag::TID | SampleFlag::TIME).clockid(Clock::MONOTONIC);
            match builder.build().and_then(|counter| counter.sampled(RING_BYTES)) {
                Ok(ring) => rings.push(ring),
                // A CPU that is switched off tells nothing, and runs nobody.
                Err(e) if e.raw_os_error() == Some(Errno::NODEV.raw_os_error()) => {}
                Err(e) => return Err(failed(e)),
            }
        }
        Ok(Self { rings, waiting: Vec::new() })
    }

    /// What has happened since the last call, in order.
    pub fn take(&mut self) -> Vec<(u64, Relation)> {
        for ring in &mut self.rings {
            while let Some(record) = ring.next_record() {
                let body = record.to_contiguous();
                if let Some(found) = relation(record.ty(), &body) {
                    self.waiting.push(found);
                }
            }
        }
        self.waiting.sort_by_key(|&(at, _)| at);
        std::mem::take(&mut self.waiting)
    }
}

/// What a record says, and when it was written, ns of `CLOCK_MONOTONIC`.
fn relation(kind: u32, body: &[u8]) -> Option<(u64, Relation)> {
    let word = |at: usize| body.get(at..at + 4)?.try_into().ok().map(i32::from_ne_bytes);
    let pid = |at: usize| word(at).and_then(Pid::from_raw);
    let time = |at: usize| body.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes);
    match kind {
        LOST => Some((body.len().checked_sub(TRAILER / 2).and_then(time).unwrap_or(0), Relation::Lost)),
        FORK | EXIT if body.len() >= RELATION => {
            let (own, parent, at) = (pid(0)?, pid(4), time(16)?);
            let (tid, maker) = (pid(8), pid(12));
            let what = match kind {
                EXIT => Relation::Exit(own),
                _ if parent == Some(own) => Relation::Thread { of: own, maker: maker?, tid: tid? },
                _ => Relation::Fork { parent: parent?, maker: maker?, child: own },
            };
            Some((at, what))
        }
        _ => None,
    }
}
