//! Where runs are made: the CPUs that are divided, the one that watches, and what every run needs.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use divvy_linux::CpuMask;

use super::cgroups::Hierarchies;
use super::programs::Program;
use super::work::REAL;

/// What the programs find on their path: the system's, whatever the caller has before it.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
/// Marks everything that is started.
const MARK: &str = "DIVVY_REAL";

/// The place. Dropping it removes its directories.
pub(in crate::paper) struct Arena {
    pub(in crate::paper) hierarchies: Hierarchies,
    /// What is divided.
    pub(in crate::paper) cpus: Vec<u32>,
    /// Where this program watches, and loads are made: not divided, where there is another.
    pub(in crate::paper) watch_cpu: u32,
    pub(in crate::paper) divvy: PathBuf,
    pub(in crate::paper) own: PathBuf,
    pub(in crate::paper) rustc: Option<PathBuf>,
    /// Says whether the runs shall end.
    pub(in crate::paper) check: Box<dyn Fn() -> Result<()>>,
    root: PathBuf,
    memory: PathBuf,
    runs: Cell<u32>,
    /// Ends whoever is left if this program is killed: it sees its input end.
    keeper: Option<(Child, ChildStdin)>,
}

impl Arena {
    /// The first `n` of `cpus` are divided; this program (its first thread, and what that starts) goes to the CPU after
    /// them, or to the last if there is none.
    ///
    /// # Errors
    /// Where there are too few, or the kernel's books cannot be had.
    pub(in crate::paper) fn new(
        cpus: &[u32],
        n: usize,
        divvy: PathBuf,
        check: Box<dyn Fn() -> Result<()>>,
    ) -> Result<Self> {
        ensure!(n > 0 && n <= cpus.len(), "there are {} CPUs: --cpus takes 1 to {0}", cpus.len());
        let hierarchies = Hierarchies::find()?;
        let watch_cpu = cpus.get(n).or(cpus.last()).copied().context("no CPU")?;
        let name = format!("divvy-real-{}", std::process::id());
        let root = std::env::temp_dir().join(&name);
        std::fs::create_dir(&root).with_context(|| format!("create {}", root.display()))?;
        let shared = Path::new("/dev/shm");
        let memory = if shared.is_dir() { shared.join(&name) } else { root.join("memory") };
        std::fs::create_dir(&memory).with_context(|| format!("create {}", memory.display()))?;
        let own = std::env::current_exe().context("find this program")?;
        let mut arena = Self {
            hierarchies,
            cpus: cpus[..n].to_vec(),
            watch_cpu,
            divvy,
            own,
            rustc: rustc(),
            check,
            root,
            memory,
            runs: Cell::new(0),
            keeper: None,
        };
        arena.keep(&name)?;
        CpuMask::only(watch_cpu).apply(rustix::process::getpid())?;
        Ok(arena)
    }

    fn keep(&mut self, name: &str) -> Result<()> {
        let mut command = Command::new(&self.own);
        command
            .args([REAL, "keeper", &format!("{name}-")])
            .args([&self.root, &self.memory])
            .stdin(Stdio::piped());
        // A terminal's Ctrl-C is for this program: the keeper outlives it.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().context("start the keeper")?;
        let input = child.stdin.take().context("the keeper's input")?;
        self.keeper = Some((child, input));
        Ok(())
    }

    /// The divided CPUs as divvy takes them.
    pub(in crate::paper) fn cpu_list(&self) -> String {
        self.cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
    }

    /// A directory in memory, for what several runs share.
    pub(in crate::paper) fn memory(&self) -> &Path {
        &self.memory
    }

    /// A new run's name, its directory, and one in memory.
    pub(in crate::paper) fn places(&self) -> Result<(String, PathBuf, PathBuf)> {
        let run = self.runs.get();
        self.runs.set(run + 1);
        let (dir, counts) = (self.root.join(run.to_string()), self.memory.join(run.to_string()));
        for dir in [&dir, &counts] {
            std::fs::create_dir(dir).with_context(|| format!("create {}", dir.display()))?;
        }
        Ok((format!("divvy-real-{}-{run}", std::process::id()), dir, counts))
    }

    /// The same environment for everybody, whoever calls.
    pub(in crate::paper) fn environment(&self, command: &mut Command) {
        let who = |role: &str, what: &str| format!("GIT_{role}_{what}");
        command.env_clear().env("PATH", PATH).env("LANG", "C.UTF-8").env("HOME", &self.root);
        command.env(MARK, std::process::id().to_string()).env("DIVVY_RUNTIME_DIR", self.root.join("run"));
        command.env("GIT_CONFIG_NOSYSTEM", "1");
        for role in ["AUTHOR", "COMMITTER"] {
            command.env(who(role, "NAME"), "A").env(who(role, "EMAIL"), "a@example.org");
            command.env(who(role, "DATE"), "2026-01-01T00:00:00Z");
        }
    }

    /// What is missing of what a program needs.
    pub(super) fn missing(&self, program: &Program) -> Vec<&'static str> {
        program.needs.iter().copied().filter(|name| !self.has(name)).collect()
    }

    /// Whether a program is installed.
    pub(in crate::paper) fn has(&self, name: &str) -> bool {
        match name {
            "rustc" => self.rustc.is_some(),
            _ => PATH.split(':').any(|dir| Path::new(dir).join(name).exists()),
        }
    }

    /// Makes a program's inputs, and says where they are.
    ///
    /// # Errors
    /// Where the script that makes them fails.
    pub(super) fn prepare(&self, program: &Program) -> Result<PathBuf> {
        let dir = self.root.join("inputs");
        self.discard(&dir)?;
        std::fs::create_dir(&dir).with_context(|| format!("create {}", dir.display()))?;
        for (name, text) in program.files {
            std::fs::write(dir.join(name), text).with_context(|| format!("write {name}"))?;
        }
        let mut command = Command::new("/bin/sh");
        self.environment(&mut command);
        let script = program.prepare.concat();
        command.args(["-ec", &script]).current_dir(&dir).stdin(Stdio::null()).stdout(Stdio::null());
        let status = command.status().context("start a shell")?;
        ensure!(status.success(), "the inputs of {} cannot be made: {status}", program.name);
        Ok(dir)
    }

    fn discard(&self, dir: &Path) -> Result<()> {
        match std::fs::remove_dir_all(dir) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(e).with_context(|| format!("remove {}", dir.display()))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if let Some((mut child, input)) = self.keeper.take() {
            drop(input);
            // It has nothing left to do.
            let _ = child.wait();
        }
        for dir in [&self.root, &self.memory] {
            // What cannot be removed is small.
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

/// The compiler itself: what is on the path may be a program that looks for it anew each time.
fn rustc() -> Option<PathBuf> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).stderr(Stdio::null()).output().ok()?;
    let path = Path::new(String::from_utf8(output.stdout).ok()?.trim()).join("bin/rustc");
    path.is_file().then_some(path)
}
