//! Many processes that run before anybody schedules them: a server with its workers, sleepers, a storm of forks.
//!
//! They are this program itself, started as `xtask crowd PARENT UID CPU WORK N`. The first process forks the others, says
//! that they are there, and waits: for each line on its standard input it writes how much they have done so far; at the end
//! of its input, or with its parent, all of them end.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsRawFd as _;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result, bail, ensure};
use divvy_linux::{CpuMask, Pid, clock, procfs};
use divvy_policy::Nanos;

use crate::client;

/// The hidden subcommand that is many processes.
pub(crate) const CROWD: &str = "crowd";

/// In place of a CPU's number: all that there are.
const ANY: &str = "any";
/// Requests that are always under way, more than there are workers: the paper's 325 (ALPS, section 5.3).
const REQUESTS: usize = 325;
/// CPU time of a request, in two halves: from the least to the greatest. The paper's machine served 100 a second.
const REQUEST_US: (u64, u64) = (5_000, 15_000);
/// Between the halves the worker waits as for a database.
const DATABASE_US: (u64, u64) = (500, 3_500);
/// CPU time of a child in a storm.
const STORM_CHILD: Nanos = Nanos::from_micros(100);

/// What the processes of a crowd do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// So many workers of a server, always with requests to serve.
    Serve(usize),
    /// So many processes of which the second number computes, and the others sleep.
    Sleep(usize, usize),
    /// One process that makes so many short-lived children a second, one after the other, and computes meanwhile.
    Storm(u64),
}

impl Doing {
    fn words(self) -> [String; 3] {
        let (word, n, m) = match self {
            Self::Serve(n) => ("serve", n as u64, 0),
            Self::Sleep(n, busy) => ("sleep", n as u64, busy as u64),
            Self::Storm(rate) => ("storm", rate, 0),
        };
        [word.to_owned(), n.to_string(), m.to_string()]
    }
}

/// A crowd that runs. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Crowd {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Crowd {
    /// Starts a crowd as user `uid` (which only root may name, but for one's own) on `cpu`, or on all, and waits until it is
    /// complete.
    ///
    /// # Errors
    /// Where it cannot be started whole.
    pub(crate) fn start(uid: u32, cpu: Option<u32>, doing: Doing) -> Result<Self> {
        let own = std::env::current_exe().context("find this program")?;
        let cpu = cpu.map_or_else(|| ANY.to_owned(), |cpu| cpu.to_string());
        let words = [std::process::id().to_string(), uid.to_string(), cpu];
        let mut child = Command::new(own)
            .arg(CROWD)
            .args(words)
            .args(doing.words())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start a crowd")?;
        let lines = BufReader::new(child.stdout.take().context("a crowd's output")?);
        let mut crowd = Self { child, lines };
        ensure!(crowd.line()? == "ready", "a crowd of {doing:?} as user {uid} could not be started");
        Ok(crowd)
    }

    /// The process whose descendants the others are.
    pub(crate) fn pid(&self) -> Result<Pid> {
        Pid::from_raw(self.child.id() as i32).context("a crowd's pid")
    }

    /// What it has done so far: requests, or children.
    pub(crate) fn done(&mut self) -> Result<u64> {
        let input = self.child.stdin.as_mut().context("a crowd's input")?;
        writeln!(input).context("ask a crowd")?;
        self.line()?.parse().context("a crowd's answer")
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.lines.read_line(&mut line).context("read from a crowd")?;
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// CPU time of all processes of a tree, and of children that they have waited for, as the kernel has it.
pub(crate) fn booked_by_tree(root: Pid) -> Nanos {
    let (mut sum, mut next) = (Nanos::ZERO, vec![root]);
    while let Some(pid) = next.pop() {
        sum += booked(pid);
        // What cannot be read has ended, and its parent has its time.
        let _ = procfs::threads(pid, |thread| drop(procfs::children(pid, thread.pid, &mut next)));
    }
    sum
}

/// The same of all processes of a user.
pub(crate) fn booked_by_user(uid: u32) -> Nanos {
    let mut sum = Nanos::ZERO;
    let of_user = |pid: Pid| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        line.and_then(|l| l.split_whitespace().next()?.parse::<u32>().ok()) == Some(uid)
    };
    let _ = procfs::processes(|pid| {
        if of_user(pid) {
            sum += booked(pid);
        }
    });
    sum
}

fn booked(pid: Pid) -> Nanos {
    let own = clock::process_cpu(pid).ok().flatten().unwrap_or_default();
    let ticks = procfs::stat(pid).ok().flatten().map_or(0, |s| s.cutime + s.cstime);
    own + Nanos::from_millis(10 * ticks)
}

/// The life of a crowd's first process.
pub(crate) fn live(mut args: impl Iterator<Item = String>) -> Result<()> {
    let parent: u32 = args.next().context("the parent's pid is missing")?.parse()?;
    let uid: u32 = args.next().context("the user is missing")?.parse()?;
    match args.next().context("the CPU is missing")?.as_str() {
        ANY => {}
        cpu => {
            CpuMask::only(cpu.parse().context("the CPU")?).apply(rustix::process::getpid())?;
        }
    }
    // As servers do; it also gives them an autogroup of their own.
    rustix::process::setsid()?;
    become_user(uid)?;
    let word = args.next().context("what to do is missing")?;
    let mut number = || -> Result<u64> { Ok(args.next().context("a number is missing")?.parse()?) };
    let (n, m) = (number()?, number()?);
    // A change of user forgets what was asked for before.
    client::die_with_parent(libc::SIGKILL);
    ensure!(std::os::unix::process::parent_id() == parent, "the experiment has ended");
    let done = counter()?;
    let mut members = Members(Vec::new());
    match word.as_str() {
        "serve" => {
            let (from, to) = std::io::pipe().context("open a pipe")?;
            rustix::io::write(&to, &[0; REQUESTS]).context("make requests")?;
            for i in 0..n {
                let (from, to) = (from.as_raw_fd(), to.as_raw_fd());
                members.fork(|| serve(from, to, done, i + 1))?;
            }
        }
        "sleep" => {
            for i in 0..n.saturating_sub(1) {
                members.fork(|| if i < m { compute_for_ever() } else { sleep_for_ever() })?;
            }
        }
        "storm" => members.fork(|| storm(n, done))?,
        other => bail!("{other}: no such crowd"),
    }
    let mut out = std::io::stdout().lock();
    writeln!(out, "ready")?;
    out.flush()?;
    for line in std::io::stdin().lock().lines() {
        line?;
        writeln!(out, "{}", done.load(Ordering::Relaxed))?;
        out.flush()?;
    }
    Ok(())
}

fn become_user(uid: u32) -> Result<()> {
    if rustix::process::getuid().as_raw() == uid {
        return Ok(());
    }
    // SAFETY: numbers only, and no list of groups; the only thread.
    let done = unsafe {
        libc::setgroups(0, std::ptr::null()) == 0 && libc::setgid(uid) == 0 && libc::setuid(uid) == 0
    };
    ensure!(done, "become user {uid}: {}", std::io::Error::last_os_error());
    Ok(())
}

/// A number that all forked processes share.
fn counter() -> Result<&'static AtomicU64> {
    let (read, write) = (libc::PROT_READ, libc::PROT_WRITE);
    // SAFETY: a new mapping, of zeros.
    let at = unsafe {
        libc::mmap(std::ptr::null_mut(), 8, read | write, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1, 0)
    };
    ensure!(at != libc::MAP_FAILED, "map memory: {}", std::io::Error::last_os_error());
    // SAFETY: it is aligned to a page, of a page's size, and never unmapped; atomics are all that is done to it.
    Ok(unsafe { &*at.cast::<AtomicU64>() })
}

/// The processes that were forked; killed and waited for in the end.
struct Members(Vec<libc::pid_t>);

impl Members {
    /// Forks a process that does `work`, and ends.
    fn fork(&mut self, work: impl FnOnce()) -> Result<()> {
        // SAFETY: this process has one thread, so nothing is locked in the child.
        match unsafe { libc::fork() } {
            -1 => bail!("fork: {}", std::io::Error::last_os_error()),
            0 => {
                client::die_with_parent(libc::SIGKILL);
                work();
                // SAFETY: ends this process.
                unsafe { libc::_exit(0) }
            }
            pid => {
                self.0.push(pid);
                Ok(())
            }
        }
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        for &pid in &self.0 {
            // SAFETY: a number only; a child that was not waited for has its pid.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        for &pid in &self.0 {
            // SAFETY: no status is asked for.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        }
    }
}

/// Computes for `span` of CPU time, and returns what came of it.
fn compute(span: Nanos, mut x: u64) -> u64 {
    let due = clock::own_thread_cpu() + span;
    while clock::own_thread_cpu() < due {
        for _ in 0..500 {
            x = std::hint::black_box(x.wrapping_mul(31).wrapping_add(7));
        }
    }
    x
}

fn compute_for_ever() -> ! {
    let mut x = 1;
    loop {
        x = compute(Nanos::from_secs(1), x);
    }
}

fn sleep_for_ever() -> ! {
    loop {
        clock::sleep(Nanos::from_secs(3600));
    }
}

/// A worker: takes a request, computes, asks a database, computes, and answers; whoever asked asks again at once.
fn serve(from: i32, to: i32, done: &AtomicU64, seed: u64) -> ! {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut between = |(least, most): (u64, u64)| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        Nanos::from_micros(least + random % (most - least))
    };
    let mut byte = [0_u8];
    let mut x = 1;
    loop {
        // SAFETY: the kernel writes one byte to one byte.
        if unsafe { libc::read(from, byte.as_mut_ptr().cast(), 1) } != 1 {
            continue; // A stop and its end may cut it short.
        }
        let work = between(REQUEST_US);
        x = compute(Nanos(work.0 / 2), x);
        clock::sleep(between(DATABASE_US));
        x = compute(Nanos(work.0 / 2), x);
        done.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the kernel reads one byte. There is room: no more are under way than were written first.
        while unsafe { libc::write(to, byte.as_ptr().cast(), 1) } != 1 {}
    }
}

/// Makes `rate` children a second, made up for later where it was held, and computes the rest of the time.
fn storm(rate: u64, done: &AtomicU64) -> ! {
    let begun = clock::now();
    let mut x = 1;
    loop {
        let due = u128::from(clock::now().since(begun).0) * u128::from(rate) / 1_000_000_000;
        if u128::from(done.load(Ordering::Relaxed)) >= due {
            x = compute(STORM_CHILD, x);
            continue;
        }
        // SAFETY: this process has one thread; the child leaves without running anything of the parent's.
        match unsafe { libc::fork() } {
            -1 => clock::sleep(Nanos::from_millis(1)),
            0 => {
                std::hint::black_box(compute(STORM_CHILD, x));
                // SAFETY: ends this process.
                unsafe { libc::_exit(0) }
            }
            pid => {
                // SAFETY: no status is asked for.
                while unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) } == -1
                    && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
                {
                }
                done.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
