//! Users of the machine, for as long as an experiment needs them.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use divvy_linux::{ProcessRef, Signal, procfs, users};

use super::server::pause;

/// What our accounts are called: `divvy-test-PID-N`, by the process that made them.
const PREFIX: &str = "divvy-test-";

/// An account that this program made, and removes when it is dropped.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) name: String,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// Why there can be no accounts here; `None` where there can.
pub(super) fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("accounts can be made by root only".to_owned());
    }
    let there = |program: &str| {
        let found = Command::new(program).arg("--help").stdout(Stdio::null()).stderr(Stdio::null()).status();
        found.is_ok()
    };
    (!there("useradd") || !there("userdel")).then(|| "there is no useradd here".to_owned())
}

fn run(command: &mut Command) -> Result<String> {
    let done = command.stdin(Stdio::null()).output().with_context(|| format!("start {command:?}"))?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{command:?}: {}: {}", done.status, said.trim());
    Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
}

impl Account {
    /// A new account, the `n`th of this program, without a home.
    ///
    /// # Errors
    /// What useradd says.
    pub(super) fn new(n: usize) -> Result<Self> {
        let name = format!("{PREFIX}{}-{n}", std::process::id());
        let mut command = Command::new("useradd");
        command.args([
            "--no-create-home",
            "--home-dir",
            "/nonexistent",
            "--shell",
            "/bin/sh",
            "--user-group",
        ]);
        run(command.arg(&name))?;
        // From here on it is removed whatever happens.
        let mut account = Self { name, uid: u32::MAX, gid: u32::MAX };
        account.uid =
            run(Command::new("id").args(["-u", &account.name]))?.parse().context("a user's number")?;
        account.gid =
            run(Command::new("id").args(["-g", &account.name]))?.parse().context("a group's number")?;
        if account.uid == 0 {
            bail!("{} has number 0", account.name);
        }
        Ok(account)
    }
}

/// Ends whatever still runs as `uid`, which nobody but we had: a shell's last `sleep`, say.
fn end_all_of(uid: u32) -> Result<()> {
    for _ in 0..100 {
        let mut left = Vec::new();
        procfs::processes(|pid| left.push(pid))?;
        left.retain(|&pid| users(pid).ok().flatten().is_some_and(|users| users.is_owned_by(uid)));
        if left.is_empty() {
            return Ok(());
        }
        for pid in left {
            let Some(process) = ProcessRef::open(pid)? else { continue };
            // Asked again behind the pidfd: it cannot be somebody else's with the same number.
            if users(pid)?.is_some_and(|users| users.is_owned_by(uid)) && process.is_alive()? {
                process.signal(Signal::KILL)?;
            }
        }
        pause(Duration::from_millis(20));
    }
    bail!("processes of user {uid} do not end")
}

impl Drop for Account {
    fn drop(&mut self) {
        if self.uid != u32::MAX
            && let Err(e) = end_all_of(self.uid)
        {
            eprintln!("{}: {e:#}", self.name);
        }
        if let Err(e) = run(Command::new("userdel").arg(&self.name)) {
            eprintln!("account {} stays: {e:#}; remove it with userdel", self.name);
        }
    }
}

/// Removes accounts that were left by a program that was killed.
pub(super) fn remove_left() {
    let Ok(list) = std::fs::read_to_string("/etc/passwd") else { return };
    for name in list.lines().filter_map(|line| line.split(':').next()) {
        let maker = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        let Some(maker) = maker.and_then(|pid| pid.parse::<u32>().ok()) else { continue };
        if !std::path::Path::new(&format!("/proc/{maker}")).exists() {
            let uid = divvy_linux::user_id(name).unwrap_or(u32::MAX);
            drop(Account { name: name.to_owned(), uid, gid: u32::MAX });
        }
    }
}
