//! A process of the test that can be suspended in both ways, and that tells what it noticed.

pub mod calls;
pub mod cases;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use divvy_linux::{Pid, Signal, State, procfs};

/// How long a test waits for what must come.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// How long something that must not come is waited for.
pub const QUIET: Duration = Duration::from_millis(150);

/// How a process is suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// SIGSTOP and SIGCONT.
    Signals,
    /// `cgroup.freeze` of a cgroup of its own.
    Freezer,
}

/// What a victim tells the test through.
pub struct Tell(File);

impl Tell {
    pub fn number(&mut self, n: u64) {
        self.0.write_all(&n.to_ne_bytes()).expect("the test listens");
    }
}

/// A child that lives as the test says. Dropping it ends it, whatever its state.
pub struct Victim {
    pub pid: Pid,
    told: File,
    method: Method,
    cgroup: Option<PathBuf>,
}

impl Victim {
    /// Forks a child that lives `life`; `None` where it could not be suspended in this way.
    pub fn new(method: Method, life: impl FnOnce(&mut Tell)) -> Option<Self> {
        let cgroup = match method {
            Method::Signals => None,
            Method::Freezer => Some(make_cgroup()?),
        };
        let (read, write) = pipe();
        // SAFETY: the child uses what the library makes usable after a fork, and never returns from here.
        let pid = match unsafe { nix::unistd::fork() }.expect("fork") {
            nix::unistd::ForkResult::Child => {
                let lived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    nix::sys::prctl::set_pdeathsig(nix::sys::signal::SIGKILL).expect("prctl");
                    drop(read);
                    life(&mut Tell(write));
                }));
                // SAFETY: ends the process; the test's own end handlers must not run in it.
                unsafe { libc::_exit(i32::from(lived.is_err())) }
            }
            nix::unistd::ForkResult::Parent { child } => {
                Pid::from_raw(child.as_raw()).expect("a child's pid")
            }
        };
        drop(write);
        if let Some(dir) = &cgroup {
            std::fs::write(dir.join("cgroup.procs"), pid.to_string()).expect("move the child");
        }
        Some(Self { pid, told: read, method, cgroup })
    }

    /// The next number that it tells.
    pub fn heard(&mut self) -> u64 {
        self.heard_within(PATIENCE).expect("the child to tell")
    }

    /// The next number that it tells, unless nothing comes for so long.
    pub fn heard_within(&mut self, time: Duration) -> Option<u64> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
        let mut polled = [PollFd::new(&self.told, PollFlags::IN)];
        let mut bytes = [0; 8];
        match poll(&mut polled, Some(&timeout)) {
            Ok(1) => self.told.read_exact(&mut bytes).ok().map(|()| u64::from_ne_bytes(bytes)),
            _ => None,
        }
    }

    pub fn state(&self) -> State {
        procfs::stat(self.pid).expect("readable").expect("not waited for").state
    }

    /// Waits until it sleeps in the call that it said it would make.
    pub fn wait_asleep(&self) {
        eventually("it to sleep", || self.state().is_asleep());
        std::thread::sleep(Duration::from_millis(20));
    }

    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid, signal).expect("our own child, not waited for");
    }

    pub fn suspend(&self) {
        match &self.cgroup {
            None => {
                self.signal(Signal::STOP);
                eventually("it to stand", || self.state().is_suspended());
            }
            Some(dir) => {
                std::fs::write(dir.join("cgroup.freeze"), "1").expect("freeze it");
                let frozen = || std::fs::read_to_string(dir.join("cgroup.events")).expect("readable");
                eventually("it to be frozen", || frozen().lines().any(|line| line == "frozen 1"));
            }
        }
    }

    pub fn resume(&self) {
        match &self.cgroup {
            None => self.signal(Signal::CONT),
            Some(dir) => std::fs::write(dir.join("cgroup.freeze"), "0").expect("thaw it"),
        }
    }

    pub fn method(&self) -> Method {
        self.method
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(self.pid, Signal::KILL);
        if let Some(dir) = &self.cgroup {
            let _ = std::fs::write(dir.join("cgroup.kill"), "1");
            let _ = std::fs::write(dir.join("cgroup.freeze"), "0");
        }
        let _ = rustix::process::waitpid(Some(self.pid), rustix::process::WaitOptions::empty());
        if let Some(dir) = &self.cgroup {
            eventually("the cgroup to be empty", || std::fs::remove_dir(dir).is_ok());
        }
    }
}

/// A process that is no child of ours, suspended; resumed and killed at the end.
pub struct Suspended(Pid, Option<PathBuf>);

impl Suspended {
    /// `None` where it cannot be suspended in this way.
    pub fn new(method: Method, pid: Pid) -> Option<Self> {
        let cgroup = match method {
            Method::Signals => None,
            Method::Freezer => Some(make_cgroup()?),
        };
        match &cgroup {
            None => rustix::process::kill_process(pid, Signal::STOP).expect("it is there"),
            Some(dir) => {
                std::fs::write(dir.join("cgroup.procs"), pid.to_string()).expect("move it");
                std::fs::write(dir.join("cgroup.freeze"), "1").expect("freeze it");
            }
        }
        Some(Self(pid, cgroup))
    }
}

impl Drop for Suspended {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(self.0, Signal::KILL);
        if let Some(dir) = &self.1 {
            let _ = std::fs::write(dir.join("cgroup.freeze"), "0");
            eventually("the cgroup to be empty", || std::fs::remove_dir(dir).is_ok());
        }
    }
}

/// A new cgroup v2 that can be frozen; `None` where none can be made.
fn make_cgroup() -> Option<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mount =
        mounts.lines().find_map(|l| Some(l.split_once(" - cgroup2 ")?.0.split(' ').nth(4)?.to_owned()))?;
    let name = format!("divvy-stopped-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let dir = PathBuf::from(mount).join(name);
    std::fs::create_dir(&dir).ok()?;
    if std::fs::write(dir.join("cgroup.freeze"), "0").is_err() {
        let _ = std::fs::remove_dir(&dir);
        return None;
    }
    Some(dir)
}

/// A pipe's reading and writing end.
pub fn pipe() -> (File, File) {
    let mut ends = [0; 2];
    // SAFETY: makes two descriptors, which are taken over at once.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    // SAFETY: they are ours, and open.
    let [read, write] = ends.map(|fd| File::from(unsafe { OwnedFd::from_raw_fd(fd) }));
    assert!(read.as_raw_fd() >= 0);
    (read, write)
}

/// Waits until `met`, with patience.
#[track_caller]
pub fn eventually(what: &str, mut met: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !met() {
        assert!(begun.elapsed() < PATIENCE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
