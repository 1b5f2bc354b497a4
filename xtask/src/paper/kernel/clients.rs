//! Clients in the machine: processes that count what they do in memory that they share with the program that made them, as the
//! test programs of the papers did (where their demand is CPU time, by their own clocks).

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use anyhow::{Context as _, Result, bail, ensure};
use divvy_linux::clock;
use divvy_policy::Nanos;
use divvy_sim::rng::SplitMix64;
use divvy_sim::scenario::Span;
use divvy_sim::workload::Dist;

use super::inside::stand_above;
use super::{Client, Work, requests};

/// Turns of a client's inner loop that are a unit of its work.
const TURNS: u32 = 40;
/// Wake-ups of which a delay is kept, of each client.
const SAMPLES: usize = 1 << 14;
/// Workers that one client may wake at most.
const WORKERS: usize = 128;

const COMPUTES: u32 = 0;
const PING_PONG: u32 = 1;
const WAKES: u32 = 2;
const ENCODES: u32 = 3;
const CONTAINER: u32 = 4;
const THINKS: u32 = 5;
const REQUESTS: u32 = 6;

/// The index of the sizes that users of a web server ask for.
pub(super) const PARETO: f64 = 1.2;
/// Sound for encoders: two channels of 16 bits, which no encoder reaches the end of.
const SOUND: &CStr = c"/tmp/sound.raw";
const SOUND_FRAMES: u32 = 12_000_000;
/// What runs in a container: a first process, a pipeline, and something that forks.
const CONTAINED: &CStr = c"mount -t proc proc /proc; hostname contained; (while :; do (:); done) & \
                           (while :; do head -c 100000 /bin/busybox | gzip | gunzip >/dev/null; done) & while :; do :; done";

/// What a client and this program share: lines of the cache for each.
#[repr(C, align(64))]
pub(super) struct Slot {
    /// A futex: 0 closed, 1 open.
    gate: AtomicU32,
    kind: AtomicU32,
    /// Ends once it has done so much; never where it is 0.
    demand: AtomicU64,
    done: AtomicU64,
    /// Units between two sleeps (of one worker after each wake-up), and how long such a sleep is, in ns; 0: it never sleeps. Or the
    /// fewest and the most bytes that it asks for.
    burst: AtomicU64,
    nap: AtomicU64,
    /// How long it thinks, on average, in ns.
    think: AtomicU64,
    /// 1: what it does is counted by its own CPU clock, in us, not by turns.
    by_clock: AtomicU32,
    /// Or stretches of work in an answer.
    nr_workers: AtomicU32,
    posts: [Post; WORKERS],
}

/// How a worker is woken.
#[repr(C)]
struct Post {
    /// A futex: 1 with something to do.
    word: AtomicU32,
    sent_ns: AtomicU64,
}

/// How long each wake-up or answer took, in ns, and how much was asked for.
#[repr(C)]
pub(super) struct Samples {
    count: AtomicU64,
    ns: [AtomicU64; SAMPLES],
    sizes: [AtomicU64; SAMPLES],
}

impl Samples {
    fn add(&self, ns: u64, size: u64) {
        let at = self.count.fetch_add(1, Ordering::Relaxed) as usize;
        if at < SAMPLES {
            self.sizes[at].store(size, Ordering::Relaxed);
            self.ns[at].store(ns, Ordering::Relaxed);
        }
    }
}

impl Slot {
    /// Says what a client is to do, before it is there; `rate` is units in a second.
    pub(super) fn set(&self, client: &Client, by_clock: bool, rate: f64) {
        let units = |ms: f64| (ms / 1_000.0 * rate).round() as u64;
        self.demand.store(units(client.demand_ms.unwrap_or(0.0)), Ordering::Relaxed);
        self.by_clock.store(u32::from(by_clock), Ordering::Relaxed);
        match client.work {
            Work::Computes => {}
            Work::Naps { work_ms, sleep_ms } => {
                self.burst.store(units(work_ms).max(1), Ordering::Relaxed);
                self.nap.store((sleep_ms * 1e6) as u64, Ordering::Relaxed);
            }
            Work::Encodes => self.kind.store(ENCODES, Ordering::Relaxed),
            Work::Container => self.kind.store(CONTAINER, Ordering::Relaxed),
            Work::PingPong => self.kind.store(PING_PONG, Ordering::Relaxed),
            Work::Wakes { workers, every_ms, work_ms } => {
                self.kind.store(WAKES, Ordering::Relaxed);
                self.nr_workers.store(workers, Ordering::Relaxed);
                self.burst.store(units(work_ms).max(1), Ordering::Relaxed);
                self.nap.store((every_ms * 1e6) as u64, Ordering::Relaxed);
            }
            Work::Thinks { think_ms, stretches, work_ms, gap_ms } => {
                self.kind.store(THINKS, Ordering::Relaxed);
                self.nr_workers.store(stretches, Ordering::Relaxed);
                self.burst.store(units(work_ms).max(1), Ordering::Relaxed);
                self.nap.store((gap_ms * 1e6) as u64, Ordering::Relaxed);
                self.think.store((think_ms * 1e6) as u64, Ordering::Relaxed);
            }
            Work::Requests { think_ms, low, high } => {
                self.kind.store(REQUESTS, Ordering::Relaxed);
                self.burst.store(low, Ordering::Relaxed);
                self.nap.store(high, Ordering::Relaxed);
                self.think.store((think_ms * 1e6) as u64, Ordering::Relaxed);
            }
        }
    }
}

/// Memory that this program's children share with it, for as long as it lives.
///
/// `T` has to be made of atomic integers alone.
fn shared<T: Sync>(count: usize) -> Result<&'static [T]> {
    let size = count.max(1) * size_of::<T>();
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, of nothing that anybody else has.
    let at = unsafe {
        libc::mmap(std::ptr::null_mut(), size, access, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1, 0)
    };
    ensure!(at != libc::MAP_FAILED, "map {size} bytes: {}", std::io::Error::last_os_error());
    // SAFETY: zeroed, aligned to a page, never unmapped, and all zeroes are integers.
    Ok(unsafe { std::slice::from_raw_parts(at.cast::<T>(), count) })
}

pub(super) fn slots(count: usize) -> Result<&'static [Slot]> {
    shared(count)
}

/// For clients that wake others or answer, by their slots.
pub(super) fn samples(count: usize) -> Result<&'static [Samples]> {
    shared(count)
}

fn futex(word: &AtomicU32, operation: i32, value: u32) {
    // SAFETY: the word outlives the call; there is no timeout.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, std::ptr::null::<libc::timespec>());
    }
}

fn wait(word: &AtomicU32) {
    while word.load(Ordering::Acquire) == 0 {
        futex(word, libc::FUTEX_WAIT, 0);
    }
}

fn wake(word: &AtomicU32) {
    word.store(1, Ordering::Release);
    futex(word, libc::FUTEX_WAKE, 1);
}

fn nap(ns: u64) {
    let ns = i64::try_from(ns).unwrap_or(0);
    let time = libc::timespec { tv_sec: ns / 1_000_000_000, tv_nsec: ns % 1_000_000_000 };
    // SAFETY: the time is a local; what is left is not asked for.
    unsafe { libc::nanosleep(&time, std::ptr::null_mut()) };
}

/// One unit of work.
fn unit(x: &mut u64) {
    for _ in 0..TURNS {
        *x = std::hint::black_box(x.wrapping_mul(31).wrapping_add(7));
    }
}

/// What a client does once its gate is open.
fn work(slot: &Slot, samples: Option<&Samples>, seed: u64) -> ! {
    wait(&slot.gate);
    match (slot.kind.load(Ordering::Relaxed), samples) {
        (PING_PONG, _) => ping_pong(slot),
        (WAKES, Some(samples)) => wake_workers(slot, samples),
        (THINKS, Some(samples)) => think(slot, samples, seed),
        (REQUESTS, Some(samples)) => request(slot, samples, seed),
        (COMPUTES, _) => compute(slot),
        (ENCODES, _) => encode(),
        (CONTAINER, _) => contain(),
        // SAFETY: ends this process, and runs nothing of the one it was made from.
        _ => unsafe { libc::_exit(1) },
    }
}

fn compute(slot: &Slot) -> ! {
    let (demand, by_clock) =
        (slot.demand.load(Ordering::Relaxed), slot.by_clock.load(Ordering::Relaxed) != 0);
    let (burst, sleep) = (slot.burst.load(Ordering::Relaxed), slot.nap.load(Ordering::Relaxed));
    let from = clock::own_thread_cpu();
    let (mut x, mut next_sleep) = (1_u64, burst);
    loop {
        unit(&mut x);
        let done = if by_clock {
            clock::own_thread_cpu().0.saturating_sub(from.0) / 1_000
        } else {
            slot.done.load(Ordering::Relaxed) + 1
        };
        slot.done.store(done, Ordering::Relaxed);
        if demand > 0 && done >= demand {
            // SAFETY: ends this process, and runs nothing of the one it was made from.
            unsafe { libc::_exit(0) };
        }
        if burst > 0 && done >= next_sleep {
            nap(sleep);
            next_sleep = done + burst;
        }
    }
}

/// Another process of the same client, which ends with this one: 0 to the new one.
fn fork_with_self() -> i32 {
    // SAFETY: this process has one thread.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        crate::client::die_with_parent(libc::SIGKILL);
    }
    if pid < 0 {
        // SAFETY: ends this process, and runs nothing of the one it was made from.
        unsafe { libc::_exit(1) };
    }
    pid
}

/// A byte goes to another process and back, through two pipes: two switches. Counted in rounds.
fn ping_pong(slot: &Slot) -> ! {
    let (mut there, mut back) = ([0_i32; 2], [0_i32; 2]);
    // SAFETY: room for two descriptors each.
    let made = unsafe { libc::pipe(there.as_mut_ptr()) == 0 && libc::pipe(back.as_mut_ptr()) == 0 };
    let first = made && fork_with_self() != 0;
    let (from, to) = if first { (back[0], there[1]) } else { (there[0], back[1]) };
    let mut byte = [0_u8; 1];
    // SAFETY: one byte of a local.
    let write = |byte: &[u8; 1]| unsafe { libc::write(to, byte.as_ptr().cast(), 1) } == 1;
    // The first sends the byte off; then both send on what they get.
    let mut passed = made && (!first || write(&byte));
    while passed {
        // SAFETY: one byte of a local.
        passed = unsafe { libc::read(from, byte.as_mut_ptr().cast(), 1) } == 1;
        if first {
            slot.done.store(slot.done.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        passed = passed && write(&byte);
    }
    // SAFETY: ends this process, and runs nothing of the one it was made from.
    unsafe { libc::_exit(1) }
}

/// Makes the sound that encoders read: three notes and some noise.
pub(super) fn make_sound() -> Result<()> {
    let path = Path::new(OsStr::from_bytes(SOUND.to_bytes()));
    if path.exists() {
        return Ok(());
    }
    let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
    let mut out = BufWriter::with_capacity(1 << 16, file);
    let mut noise = 1_u32;
    for t in 0..SOUND_FRAMES {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Triangles of three periods, in frames: 440 Hz and what goes with it.
        let note = |period: u32| ((t % period) as i32 - (period / 2) as i32).abs() * (20_000 / period as i32);
        let sample = note(100) + note(134) / 2 + note(67) / 3 - 9_000 + (noise >> 24) as i32;
        let bytes = (sample as i16).to_le_bytes();
        out.write_all(&bytes).and_then(|()| out.write_all(&bytes)).context("write the sound")?;
    }
    out.flush().context("write the sound")
}

/// Becomes a real encoder. How much it has written is how far it is.
fn encode() -> ! {
    let flac = c"/bin/flac";
    let args = [
        flac,
        c"--silent",
        c"-8",
        c"--no-md5-sum",
        c"--stdout",
        c"--force-raw-format",
        c"--endian=little",
        c"--sign=signed",
        c"--channels=2",
        c"--bps=16",
        c"--sample-rate=44100",
        c"-",
    ];
    let mut argv: Vec<*const libc::c_char> = args.iter().map(|arg| arg.as_ptr()).collect();
    argv.push(std::ptr::null());
    // SAFETY: the texts live until the program is another one; where that fails, this process ends.
    unsafe {
        let (sound, null) =
            (libc::open(SOUND.as_ptr(), libc::O_RDONLY), libc::open(c"/dev/null".as_ptr(), libc::O_WRONLY));
        libc::dup2(sound, 0);
        libc::dup2(null, 1);
        libc::execv(flac.as_ptr(), argv.as_ptr());
        libc::_exit(1)
    }
}

/// Becomes the first process of a container: processes, mounts, name and IPC of its own.
fn contain() -> ! {
    let spaces = libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWUTS | libc::CLONE_NEWIPC;
    // SAFETY: root may; numbers and texts that live until the program is another one.
    unsafe {
        if libc::unshare(spaces) != 0 || fork_with_self() != 0 {
            // The first of the new space is a child of this one, which waits until it is killed.
            loop {
                libc::pause();
            }
        }
        let root = c"/".as_ptr();
        libc::mount(
            std::ptr::null(),
            root,
            std::ptr::null(),
            libc::MS_REC | libc::MS_PRIVATE,
            std::ptr::null(),
        );
        let argv = [c"sh".as_ptr(), c"-c".as_ptr(), CONTAINED.as_ptr(), std::ptr::null()];
        libc::execv(c"/bin/sh".as_ptr(), argv.as_ptr());
        libc::_exit(1)
    }
}

/// The bytes that a process has written: an encoder does so frame by frame, and reads a MiB at a time.
fn written(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("wchar:"))?.trim().parse().ok()
}

/// As schbench does it: one process wakes its workers now and then, each of which notes how long that took, and works a little.
fn wake_workers(slot: &Slot, samples: &Samples) -> ! {
    let count = (slot.nr_workers.load(Ordering::Relaxed) as usize).min(WORKERS);
    for post in &slot.posts[..count] {
        if fork_with_self() == 0 {
            answer(slot, post, samples);
        }
    }
    loop {
        nap(slot.nap.load(Ordering::Relaxed));
        for post in &slot.posts[..count] {
            // Whoever still works is not woken.
            if post.word.load(Ordering::Acquire) == 0 {
                post.sent_ns.store(clock::now().0, Ordering::Relaxed);
                wake(&post.word);
            }
        }
    }
}

fn answer(slot: &Slot, post: &Post, samples: &Samples) -> ! {
    let burst = slot.burst.load(Ordering::Relaxed);
    let mut x = 1_u64;
    loop {
        wait(&post.word);
        samples.add(clock::now().0.saturating_sub(post.sent_ns.load(Ordering::Relaxed)), 1);
        for _ in 0..burst {
            unit(&mut x);
        }
        slot.done.fetch_add(burst, Ordering::Relaxed);
        post.word.store(0, Ordering::Release);
    }
}

/// As the users of PBS's group A: thinks for a time of an exponential distribution, and notes how long all that it then has done took. Its
/// times are the same under every scheduler.
fn think(slot: &Slot, samples: &Samples, seed: u64) -> ! {
    let (burst, mean) = (slot.burst.load(Ordering::Relaxed), slot.think.load(Ordering::Relaxed) as f64);
    let mut random = SplitMix64::new(seed);
    let mut x = 1_u64;
    loop {
        let pause = by_chance(&mut random, mean);
        // From the end of thinking, whenever the first turn comes.
        let began = clock::now() + pause;
        nap(pause.0);
        for stretch in 0..slot.nr_workers.load(Ordering::Relaxed) {
            if stretch > 0 {
                nap(slot.nap.load(Ordering::Relaxed));
            }
            for _ in 0..burst {
                unit(&mut x);
            }
            slot.done.fetch_add(burst, Ordering::Relaxed);
        }
        samples.add(clock::now().since(began).0, 1);
    }
}

/// A time of an exponential distribution with this mean in ns.
fn by_chance(random: &mut SplitMix64, mean: f64) -> Nanos {
    // Above 0 and at most 1.
    let chance = ((random.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    Nanos((-chance.ln() * mean) as u64)
}

/// As the clients of PBS's group B, on a machine of their own: nobody who is studied makes them wait. Thinks, then asks the web server for
/// a number of bytes by [`PARETO`]. Times and sizes are the same under every scheduler.
fn request(slot: &Slot, samples: &Samples, user: u64) -> ! {
    let (low, high) = (slot.burst.load(Ordering::Relaxed), slot.nap.load(Ordering::Relaxed));
    let mean = slot.think.load(Ordering::Relaxed) as f64;
    let sizes = Dist::BoundedPareto { shape: PARETO, low: Span(low), high: Span(high) };
    let mut random = SplitMix64::new(user);
    let mut failed = stand_above(true);
    while failed.is_ok() {
        nap(by_chance(&mut random, mean).0);
        let (bytes, began) = (sizes.sample(&mut random, Nanos(1)).0, clock::now());
        failed = requests::ask(user, bytes);
        // An answer that failed is one of nothing, and its output says why.
        samples.add(clock::now().since(began).0, if failed.is_ok() { bytes } else { 0 });
    }
    eprintln!("a user of the web server: {failed:?}");
    // SAFETY: ends this process, and runs nothing of the one it was made from.
    unsafe { libc::_exit(1) }
}

/// Processes, killed with this value.
pub(super) struct Clients {
    pub(super) pids: Vec<i32>,
    slots: &'static [Slot],
    samples: &'static [Samples],
}

impl Clients {
    /// As many as there are slots, waiting at their gates.
    pub(super) fn fork(slots: &'static [Slot], samples: &'static [Samples]) -> Result<Self> {
        let mut clients = Self { pids: Vec::new(), slots, samples };
        for (id, slot) in slots.iter().enumerate() {
            // SAFETY: this process has one thread; the child calls system calls alone, and never returns.
            match unsafe { libc::fork() } {
                0 => {
                    crate::client::die_with_parent(libc::SIGKILL);
                    work(slot, samples.get(id), id as u64)
                }
                pid if pid > 0 => clients.pids.push(pid),
                _ => bail!("fork a client: {}", std::io::Error::last_os_error()),
            }
        }
        Ok(clients)
    }

    pub(super) fn open(&self, id: usize) {
        wake(&self.slots[id].gate);
    }

    /// What each has done; of an encoder, the bytes that it has written.
    pub(super) fn counts(&self) -> Vec<u64> {
        let one = |(slot, &pid): (&Slot, &i32)| match slot.kind.load(Ordering::Relaxed) {
            ENCODES => written(pid).unwrap_or(0),
            _ => slot.done.load(Ordering::Relaxed),
        };
        self.slots.iter().zip(&self.pids).map(one).collect()
    }

    /// # Errors
    /// One of them has ended.
    pub(super) fn check_there(&self) -> Result<()> {
        for &pid in &self.pids {
            // SAFETY: our child; it is not waited for, and how it ended is not asked for.
            let ended = unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) };
            ensure!(ended == 0, "client {pid} has ended");
        }
        Ok(())
    }

    pub(super) fn forget_samples(&self) {
        self.samples.iter().for_each(|samples| samples.count.store(0, Ordering::Relaxed));
    }

    /// How long wake-ups or answers took since they were last forgotten, in ns, and how much was asked for, of all clients, the shortest
    /// first.
    pub(super) fn samples(&self) -> Vec<(u64, u64)> {
        let of = |samples: &Samples| {
            let count = (samples.count.load(Ordering::Relaxed) as usize).min(SAMPLES);
            let all = samples.ns[..count].iter().zip(&samples.sizes);
            all.map(|(ns, size)| (ns.load(Ordering::Relaxed), size.load(Ordering::Relaxed)))
                .collect::<Vec<_>>()
        };
        let mut all: Vec<(u64, u64)> = self.samples.iter().flat_map(of).collect();
        all.sort_unstable();
        all
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        for &pid in &self.pids {
            // SAFETY: our child, not waited for yet, so that the number is still its own.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        for &pid in &self.pids {
            // SAFETY: our child; how it ended is not asked for.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        }
    }
}
