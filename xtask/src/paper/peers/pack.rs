//! The clients of one run, and every process that was started for it: found by a mark, and ended with it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, bail};
use divvy_linux::{CpuMask, Pid, ProcessRef, Signal, clock, procfs};
use divvy_policy::Nanos;

use super::ClientWork;
use crate::client::die_with_parent;

/// The hidden subcommand that is a client.
pub(crate) const CLIENT: &str = "peer";
/// The name that this program is called by where it is to be divvy.
pub(crate) const DIVVY: &str = "divvy";
const MARK: &str = "DIVVY_PEERS";
/// Everybody is there, or gone, within this.
const PATIENCE: Nanos = Nanos::from_secs(20);
/// CPU time after which a client ends by itself, s, whatever has become of this program.
const CPU_MAX: u64 = 300;
/// A client that sleeps half of the time is awake, and then asleep, for so long.
const HALF: Nanos = Nanos::from_millis(100);

/// A client: tells its pid in a file, and computes until it is killed.
pub(crate) fn client(mut args: impl Iterator<Item = String>) -> Result<()> {
    let file = PathBuf::from(args.next().context("the file for the pid is missing")?);
    let half = args.next().as_deref() == Some("half");
    let limit = libc::rlimit { rlim_cur: CPU_MAX, rlim_max: CPU_MAX };
    // SAFETY: the limit is a whole, live struct.
    unsafe { libc::setrlimit(libc::RLIMIT_CPU, &limit) };
    let unfinished = file.with_extension("new");
    std::fs::write(&unfinished, std::process::id().to_string())?;
    std::fs::rename(&unfinished, &file)?;
    let mut x = 1_u64;
    loop {
        let begun = clock::now();
        while !half || clock::now().since(begun) < HALF {
            for _ in 0..20_000 {
                x = std::hint::black_box(x.wrapping_mul(31).wrapping_add(7));
            }
        }
        clock::sleep(HALF);
    }
}

/// A directory, a mark, and the processes that carry it. Dropping it ends them.
pub(super) struct Pack {
    dir: PathBuf,
    mark: String,
    own: PathBuf,
    pub(super) cpu: u32,
    pub(super) clients: Vec<Pid>,
    children: Vec<Child>,
    /// Divvies that were started: they are asked to end before anybody is killed, for they put things in order.
    divvies: Vec<Pid>,
    /// Cgroups made for the clients, the outer before the inner.
    pub(super) groups: Vec<PathBuf>,
}

impl Pack {
    pub(super) fn new(cpu: u32) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mark = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(format!("divvy-peers-{mark}"));
        std::fs::create_dir(&dir).with_context(|| format!("create {}", dir.display()))?;
        let own = std::env::current_exe().context("find this program")?;
        Ok(Self {
            dir,
            mark,
            own,
            cpu,
            clients: Vec::new(),
            children: Vec::new(),
            divvies: Vec::new(),
            groups: Vec::new(),
        })
    }

    fn path(&self, client: usize) -> PathBuf {
        self.dir.join(client.to_string())
    }

    /// The command of a client for a shell.
    pub(super) fn shell(&self, client: usize, work: ClientWork) -> String {
        let quoted = |path: &Path| format!("'{}'", path.display().to_string().replace('\'', r"'\''"));
        format!("exec {} {CLIENT} {} {}", quoted(&self.own), quoted(&self.path(client)), work.word())
    }

    /// Any program with the mark, on the run's CPU, that says nothing.
    pub(super) fn command(&self, program: impl Into<OsString>) -> Command {
        let mut command = Command::new(program.into());
        command.env(MARK, &self.mark).env("DIVVY_RUNTIME_DIR", self.dir.join("run"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut mask = CpuMask::default();
        mask.insert(self.cpu);
        // SAFETY: one system call, on the caller's own thread.
        unsafe {
            command.pre_exec(move || {
                let all = nix::sys::signal::SigSet::empty();
                nix::sys::signal::sigprocmask(nix::sys::signal::SigmaskHow::SIG_SETMASK, Some(&all), None)?;
                mask.apply(rustix::process::getpid()).map(drop).map_err(|_| std::io::ErrorKind::Other.into())
            });
        }
        command
    }

    /// This program.
    pub(super) fn this_program(&self) -> Command {
        self.command(&self.own)
    }

    /// This program as divvy.
    pub(super) fn divvy(&self) -> Command {
        let mut command = self.this_program();
        command.arg0(DIVVY);
        command
    }

    /// Starts divvy.
    pub(super) fn spawn_divvy(&mut self, command: Command) -> Result<Pid> {
        let pid = self.spawn(command)?;
        self.divvies.push(pid);
        Ok(pid)
    }

    /// Starts a program that lives as long as the pack at the most.
    pub(super) fn spawn(&mut self, mut command: Command) -> Result<Pid> {
        let child = command.spawn().with_context(|| format!("start {}", command.get_program().display()))?;
        let pid = Pid::from_raw(child.id() as i32).context("a child's pid")?;
        self.children.push(child);
        Ok(pid)
    }

    /// Starts the clients by ourselves.
    pub(super) fn start_clients(&mut self, works: &[ClientWork]) -> Result<()> {
        for (i, work) in works.iter().enumerate() {
            let mut command = self.command(&self.own);
            command.arg(CLIENT).arg(self.path(i)).arg(work.word());
            // A tool that ends with this program leaves nobody suspended for ever.
            // SAFETY: one system call, which takes and returns numbers.
            unsafe {
                command.pre_exec(|| {
                    die_with_parent(libc::SIGKILL);
                    Ok(())
                });
            }
            self.spawn(command)?;
        }
        Ok(())
    }

    /// Waits until `n` clients have told their pids.
    pub(super) fn meet(&mut self, n: usize) -> Result<()> {
        let begun = clock::now();
        loop {
            let tell = |i| {
                let text = std::fs::read_to_string(self.path(i)).ok()?;
                Pid::from_raw(text.trim().parse().ok()?)
            };
            if let Some(all) = (0..n).map(tell).collect::<Option<Vec<Pid>>>() {
                self.clients = all;
                return Ok(());
            }
            for child in &mut self.children {
                if let Some(status) = child.try_wait()?.filter(|s| !s.success()) {
                    bail!("what was to run the clients has ended: {status}");
                }
            }
            if clock::now().since(begun) > PATIENCE {
                bail!("the clients have not begun");
            }
            clock::sleep(Nanos::from_millis(5));
        }
    }

    /// Makes a cgroup that goes with the pack.
    pub(super) fn make_group(&mut self, dir: &Path) -> Result<()> {
        std::fs::create_dir(dir).with_context(|| format!("make {}", dir.display()))?;
        self.groups.push(dir.to_owned());
        Ok(())
    }

    /// Every living process with the mark.
    pub(super) fn processes(&self) -> Vec<Pid> {
        let mark = format!("{MARK}={}", self.mark).into_bytes();
        let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        all.filter_map(|entry| {
            let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
            let environment = std::fs::read(entry.path().join("environ")).ok()?;
            environment.split(|&b| b == 0).any(|variable| variable == mark).then_some(pid)
        })
        .collect()
    }

    /// Those of them that are called so by the kernel.
    pub(super) fn called(&self, name: &str) -> Vec<Pid> {
        let mut found = self.processes();
        found.retain(|pid| {
            procfs::stat(*pid).ok().flatten().is_some_and(|stat| stat.comm.as_bytes() == name.as_bytes())
        });
        found
    }

    /// Sends a signal to a process of ours, if it is still there.
    pub(super) fn signal(pid: Pid, signal: Signal) {
        // What cannot be signalled has ended.
        if let Ok(Some(process)) = ProcessRef::open(pid) {
            let _ = process.signal(signal);
        }
    }

    /// Waits until `done`, with patience.
    pub(super) fn wait(what: &str, done: impl FnMut() -> bool) -> Result<()> {
        match Self::wait_for(PATIENCE, done) {
            true => Ok(()),
            false => bail!("waited in vain for {what}"),
        }
    }

    /// Waits until `done`, but no longer than `time`; whether it is.
    pub(super) fn wait_for(time: Nanos, mut done: impl FnMut() -> bool) -> bool {
        let begun = clock::now();
        while !done() {
            if clock::now().since(begun) > time {
                return false;
            }
            clock::sleep(Nanos::from_millis(2));
        }
        true
    }

    /// Collects our children that have ended.
    pub(super) fn reap(&mut self) {
        self.children.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_))));
    }

    /// Ends everybody.
    pub(super) fn end(&mut self) -> Result<()> {
        let divvies = std::mem::take(&mut self.divvies);
        for &pid in &divvies {
            Self::signal(pid, Signal::CONT);
            Self::signal(pid, Signal::TERM);
        }
        let _ = Self::wait("divvy's end", || {
            self.reap();
            let left = self.processes();
            divvies.iter().all(|pid| !left.contains(pid))
        });
        Self::wait("the end of all", || {
            self.reap();
            let left = self.processes();
            left.iter().for_each(|&pid| Self::signal(pid, Signal::KILL));
            left.is_empty()
        })?;
        let groups = std::mem::take(&mut self.groups);
        Self::wait("the cgroups to be empty", || {
            groups.iter().rev().all(|dir| !dir.exists() || std::fs::remove_dir(dir).is_ok())
        })
    }
}

impl Drop for Pack {
    fn drop(&mut self) {
        let _ = self.end();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
