//! A system's divvyd on private directories, and tasks that users run with `divvy run`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use divvy_api::client::Api;
use divvy_linux::{Pid, ProcessRef, Signal, clock};
use divvy_policy::Nanos;

use super::accounts::Account;

/// How long we wait for what must come.
const PATIENCE: Nanos = Nanos::from_secs(30);

/// Waits until `done` gives something.
fn wait_for<T>(what: &str, mut done: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let until = clock::now() + PATIENCE;
    loop {
        if let Some(value) = done()? {
            return Ok(value);
        }
        ensure!(clock::now() < until, "waited {} s for {what}", PATIENCE.0 / 1_000_000_000);
        pause(Duration::from_millis(20));
    }
}

/// Sleeps.
#[expect(
    clippy::disallowed_methods,
    reason = "an experiment waits for time to pass, and decides nothing by it"
)]
pub(super) fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Ends a child of ours: politely, then surely.
fn end(child: &mut Child) {
    let process = ProcessRef::open(Pid::from_child(child)).ok().flatten();
    if let Some(process) = process {
        let _ = process.signal(Signal::TERM);
        let ended = wait_for("an end", || Ok(child.try_wait()?));
        if ended.is_err() {
            let _ = child.kill();
        }
    }
    let _ = child.wait();
}

/// `divvyd --system`, running.
#[derive(Debug)]
pub(super) struct Server {
    dir: PathBuf,
    daemon: Child,
    pub(super) api: Api,
}

impl Server {
    /// A divvyd that divides `cpus`, with this policy, in a directory of its own.
    ///
    /// # Errors
    /// Where it cannot be built or started; with the end of its log.
    pub(super) fn start(programs: Option<&Path>, cpus: &[u32], policy: &str) -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("divvy-market-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        for place in ["", "bin"] {
            let place = dir.join(place);
            fs::create_dir_all(&place).with_context(|| format!("create {}", place.display()))?;
            fs::set_permissions(&place, fs::Permissions::from_mode(0o755))?;
        }
        for program in ["divvy", "divvyd"] {
            let to = dir.join("bin").join(program);
            let from = match programs {
                Some(dir) => dir.join(program),
                None => crate::install::built(program)?,
            };
            fs::copy(&from, &to).with_context(|| format!("copy {}", from.display()))?;
            fs::set_permissions(&to, fs::Permissions::from_mode(0o755))?;
        }
        fs::write(dir.join("policy.toml"), policy)?;
        let log = fs::File::create(dir.join("log"))?;
        let list: Vec<String> = cpus.iter().map(u32::to_string).collect();
        let mut command = Command::new(dir.join("bin/divvyd"));
        command.args(["--system", "--cpus", &list.join(",")]);
        for (option, place) in
            [("--run-dir", "run"), ("--state-dir", "state"), ("--policy-file", "policy.toml")]
        {
            command.arg(option).arg(dir.join(place));
        }
        let mut daemon =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().context("start divvyd")?;
        let socket = dir.join("run/api.sock");
        let api = wait_for("divvyd", || {
            if let Some(status) = daemon.try_wait()? {
                bail!("divvyd: {status}: {}", fs::read_to_string(dir.join("log")).unwrap_or_default().trim());
            }
            Ok(Api::of_system_at(&socket).ok().filter(|api| api.status().is_ok()))
        });
        match api {
            Ok(api) => Ok(Self { dir, daemon, api }),
            Err(e) => {
                end(&mut daemon);
                Err(e)
            }
        }
    }

    /// What divvyd itself has used.
    pub(super) fn own_cpu(&self) -> Option<Nanos> {
        self.api.status().ok().map(|status| Nanos(status.own.cpu_ns))
    }

    /// `divvy ARGS` as a user.
    fn divvy(&self, of: &Account, args: &[&str]) -> Command {
        let mut command = Command::new(self.dir.join("bin/divvy"));
        command.args(args).env_clear().env("PATH", "/usr/bin:/bin").current_dir("/");
        command.env("DIVVY_SYSTEM_SOCKET", self.dir.join("run/api.sock")).env("DIVVY_MODE", "system");
        command.uid(of.uid).gid(of.gid).stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// Runs `divvy ARGS` as a user to its end.
    ///
    /// # Errors
    /// What it says where it fails.
    pub(super) fn tell(&self, of: &Account, args: &[&str]) -> Result<()> {
        let done = self.divvy(of, args).stderr(Stdio::piped()).output().context("start divvy")?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "divvy {}: {}: {}", args.join(" "), done.status, said.trim());
        Ok(())
    }

    /// Starts a task of a user, which sleeps for so long and then computes.
    ///
    /// # Errors
    /// Where it does not become a client.
    pub(super) fn task(&self, of: &Account, name: &str, share: u64, sleeps_s: u64) -> Result<Task> {
        let share = share.to_string();
        let script = format!("sleep {sleeps_s}; while :; do :; done");
        let args = ["run", "--name", name, "--share", &share, "--", "/bin/sh", "-c", &script];
        let log = fs::File::options().append(true).open(self.dir.join("log"))?;
        let mut child = self.divvy(of, &args).stderr(log).spawn().context("start divvy run")?;
        let shown = format!("{}/{name}", of.name);
        let found = wait_for(&shown, || {
            if let Some(status) = child.try_wait()? {
                bail!("divvy run of {shown}: {status}");
            }
            let clients = self.api.clients().map_err(|e| anyhow!("{e}"))?;
            let row = clients.clients.into_iter().find(|client| client.name == shown);
            Ok(row.and_then(|row| row.selector.strip_prefix("tree:")?.parse().ok()).and_then(Pid::from_raw))
        });
        let process = found.and_then(|pid| ProcessRef::open(pid)?.context("it has ended"));
        match process {
            Ok(process) => Ok(Task { name: name.to_owned(), process, child }),
            Err(e) => {
                end(&mut child);
                Err(e)
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.daemon);
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A task of a user's. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) name: String,
    process: ProcessRef,
    child: Child,
}

impl Task {
    /// CPU time that it has used, read from the kernel and not from divvyd.
    ///
    /// # Errors
    /// Where it has ended.
    pub(super) fn used(&self) -> Result<Nanos> {
        let used = clock::process_cpu(self.process.pid())?;
        used.filter(|_| self.process.is_alive().unwrap_or(false))
            .with_context(|| format!("{} has ended", self.name))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        let _ = self.process.signal(Signal::KILL);
        // `divvy run` ends with what it runs.
        if wait_for("divvy run", || Ok(self.child.try_wait()?)).is_err() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
