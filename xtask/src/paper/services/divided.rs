//! Commands of several users on one CPU, divided by somebody, until dropped.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use divvy_linux::{CpuMask, Pid, ProcessRef, Signal, clock};
use divvy_policy::{Instant, Nanos};
use serde::{Deserialize, Serialize};

use super::turns::{self, Means};
use crate::paper::real::arena::Arena;
use crate::paper::real::cgroups::{Cgroups, OWN};
use crate::paper::real::trial::on;

/// divvy has ended within this.
const PATIENCE: Nanos = Nanos::from_secs(20);

/// Who divides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Division {
    #[serde(rename = "nobody")]
    Nobody,
    /// As it comes: no back end is asked for.
    #[serde(rename = "divvy, default")]
    Default,
    #[serde(rename = "divvy, signals")]
    Signals,
    /// As the paper set it: Q = 100 ms.
    #[serde(rename = "divvy, Q = 100 ms")]
    Paper,
    #[serde(rename = "divvy, cgroup")]
    Cgroup,
    #[serde(rename = "kernel's weights")]
    Weights,
    /// The least that holding takes.
    #[serde(rename = "minimal loop, freezer")]
    FreezeInTurn,
    #[serde(rename = "minimal loop, signals")]
    StopInTurn,
}

impl Division {
    /// divvy's, for which there are goals.
    pub(super) const GOALS: [Self; 3] = [Self::Default, Self::Cgroup, Self::Signals];

    /// What a part measures that does not compare more.
    pub(super) const USUAL: [Self; 6] =
        [Self::Default, Self::Cgroup, Self::Signals, Self::Weights, Self::FreezeInTurn, Self::StopInTurn];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Nobody => "nobody",
            Self::Default => "divvy, default",
            Self::Signals => "divvy, signals",
            Self::Paper => "divvy, Q = 100 ms",
            Self::Cgroup => "divvy, cgroup",
            Self::Weights => "kernel's weights",
            Self::FreezeInTurn => "minimal loop, freezer",
            Self::StopInTurn => "minimal loop, signals",
        }
    }

    /// What divvy is told, where it is divvy who divides.
    const fn options(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Default => Some(&[]),
            Self::Signals => Some(&["--backend", "signals"]),
            Self::Paper => Some(&["--backend", "signals", "--quantum", "100ms"]),
            Self::Cgroup => Some(&["--backend", "cgroup"]),
            Self::Nobody | Self::Weights | Self::FreezeInTurn | Self::StopInTurn => None,
        }
    }

    /// By what a minimal loop holds.
    const fn in_turn(self) -> Option<Means> {
        match self {
            Self::FreezeInTurn => Some(Means::Freezer),
            Self::StopInTurn => Some(Means::Signals),
            _ => None,
        }
    }

    /// What divides by the same means as divvy does here, and does no more than that; `backend` is what divvy took.
    pub(super) fn least(self, backend: &str) -> Option<Self> {
        match (self, backend) {
            (Self::Default, "idle" | "freezer") => Some(Self::FreezeInTurn),
            (Self::Default, "signals") | (Self::Signals, _) => Some(Self::StopInTurn),
            (Self::Cgroup, _) => Some(Self::Weights),
            _ => None,
        }
    }

    /// With the back end that divvy took, where it chose.
    pub(super) fn label(self, backend: &str) -> String {
        if self == Self::Default && !backend.is_empty() {
            format!("{} ({backend})", self.name())
        } else {
            self.name().to_owned()
        }
    }

    /// Whether divvy may take its clients to cgroups of its own.
    pub(super) const fn moves(self) -> bool {
        matches!(self, Self::Default | Self::Cgroup)
    }
}

/// CPU time so far, by the kernel's books.
#[derive(Clone, Debug)]
pub(super) struct Books {
    at: Instant,
    clients: Vec<Nanos>,
    own: Nanos,
}

/// What was used between two looks at the books, as fractions of one CPU.
#[derive(Clone, Debug, Default)]
pub(super) struct Used {
    pub(super) clients: Vec<f64>,
    pub(super) own: f64,
}

impl Books {
    pub(super) fn since(&self, before: &Self) -> Used {
        let wall = self.at.since(before.at).0.max(1) as f64;
        let of = |now: Nanos, then: Nanos| now.saturating_sub(then).0 as f64 / wall;
        Used {
            clients: self.clients.iter().zip(&before.clients).map(|(now, then)| of(*now, *then)).collect(),
            own: of(self.own, before.own),
        }
    }
}

impl Used {
    /// The same, not numbers where it cannot be known: books of version 2 are where divvy's own cgroups are, and it takes
    /// its clients out of them.
    pub(super) fn known(mut self, division: Division) -> Self {
        if division.moves() && self.clients.iter().sum::<f64>() < 0.1 {
            self.clients.fill(f64::NAN);
            self.own = f64::NAN;
        }
        self
    }
}

/// The commands and who divides them. Dropping it kills everybody, loads included.
pub(super) struct Divided<'a> {
    arena: &'a Arena,
    clients: usize,
    groups: Cgroups,
    /// divvy, or each command.
    children: Vec<Child>,
    dir: PathBuf,
    memory: PathBuf,
}

impl Drop for Divided<'_> {
    fn drop(&mut self) {
        // Whoever is in the cgroups is killed; what is left of a directory is small.
        let _ = self.groups.end();
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.dir);
        let _ = std::fs::remove_dir_all(&self.memory);
    }
}

impl<'a> Divided<'a> {
    /// Cgroups and directories for so many clients, and for loads; nobody runs yet.
    pub(super) fn new(arena: &'a Arena, division: Division, shares: &[u64]) -> Result<Self> {
        let (name, dir, memory) = arena.places()?;
        let weights = (division == Division::Weights).then_some(shares);
        // The last is that of the loads.
        let groups = Cgroups::new(&arena.hierarchies, name, shares.len() + 1, weights)?;
        if division.in_turn() == Some(Means::Freezer) {
            groups.freezers(shares.len())?; // Made before anybody enters.
        }
        Ok(Self { arena, clients: shares.len(), groups, children: Vec::new(), dir, memory })
    }

    /// A directory in memory, of this division's own.
    pub(super) fn memory(&self) -> &Path {
        &self.memory
    }

    /// Starts `scripts`, each a shell's, with these shares on the CPU that is divided.
    pub(super) fn start(&mut self, division: Division, shares: &[u64], scripts: &[String]) -> Result<()> {
        let mut commands = Vec::new();
        for (k, script) in scripts.iter().enumerate() {
            let path = self.dir.join(format!("{k}.sh"));
            let err = self.dir.join(format!("{k}.err"));
            let text = format!("exec </dev/null >'{0}' 2>'{0}'\n{script}\n", err.display());
            std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
            let enter = self.groups.enter(&k.to_string());
            commands.push(format!("{enter}exec /bin/sh '{}'", path.display()));
        }
        let Some(options) = division.options() else {
            for command in &commands {
                let child = self.command(command, self.cpus(), "err")?.spawn().context("start a client")?;
                self.children.push(child);
            }
            return self.start_in_turn(division, shares);
        };
        let mut divvy =
            self.command(&format!("{}exec \"$@\"", self.groups.enter(OWN)), self.cpus(), "err")?;
        divvy.arg(&self.arena.divvy).args(["share", "--quiet", "--grace", "1s", "--for", "600s", "--report"]);
        divvy.arg(self.report());
        divvy.args(options).args(["--cpus", &self.arena.cpu_list()]);
        divvy.args(shares.iter().zip(&commands).map(|(share, command)| format!("{share}:{command}")));
        self.children.push(divvy.spawn().context("start divvy")?);
        Ok(())
    }

    /// Starts the minimal loop, where one divides.
    fn start_in_turn(&mut self, division: Division, shares: &[u64]) -> Result<()> {
        let Some(means) = division.in_turn() else { return Ok(()) };
        let cgroups = match means {
            Means::Freezer => self.groups.freezers(self.clients)?,
            Means::Signals => self.groups.accounts(self.clients),
        };
        let mut turns =
            self.command(&format!("{}exec \"$@\"", self.groups.enter(OWN)), self.cpus(), "err")?;
        turns.arg(std::env::current_exe()?).args(turns::arguments(means, shares, &cgroups));
        self.children.push(turns.spawn().context("start the minimal loop")?);
        Ok(())
    }

    /// Starts what makes load, on the CPU that watches, and gives its words.
    pub(super) fn load(&self, program: &str, args: &[String]) -> Result<Child> {
        let enter = self.groups.enter(&self.clients.to_string());
        let mut load =
            self.command(&format!("{enter}exec \"$@\""), CpuMask::only(self.arena.watch_cpu), "load.err")?;
        load.arg(program).args(args).stdout(Stdio::piped());
        load.spawn().with_context(|| format!("start {program}"))
    }

    /// Waits for a load and gives what it printed.
    pub(super) fn loaded(&mut self, load: Child) -> Result<String> {
        let output = load.wait_with_output().context("wait for a load")?;
        self.check()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success(), "a load failed: {}: {said}{}", output.status, self.complaints());
        Ok(said)
    }

    fn report(&self) -> PathBuf {
        self.dir.join("report.json")
    }

    fn cpus(&self) -> CpuMask {
        let mut mask = CpuMask::default();
        self.arena.cpus.iter().for_each(|&cpu| mask.insert(cpu));
        mask
    }

    /// A shell in a session of its own on these CPUs.
    fn command(&self, shell: &str, mask: CpuMask, log: &str) -> Result<Command> {
        let mut command = Command::new("/bin/sh");
        self.arena.environment(&mut command);
        let err = File::create(self.dir.join(log)).context("create a log")?;
        command.args(["-c", shell, "sh"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(err);
        command.current_dir("/");
        on(&mut command, mask);
        Ok(command)
    }

    /// Nothing, while everybody runs who should, and nobody has asked for the end.
    pub(super) fn check(&mut self) -> Result<()> {
        (self.arena.check)()?;
        for child in &mut self.children {
            if let Some(status) = child.try_wait()? {
                bail!("a process has ended early: {status}{}", self.complaints());
            }
        }
        Ok(())
    }

    /// What was written to standard error.
    pub(super) fn complaints(&self) -> String {
        let logs = (0..self.clients).map(|k| format!("{k}.err"));
        let logs = ["err".to_owned(), "load.err".to_owned()].into_iter().chain(logs);
        let mut text = String::new();
        for log in logs {
            let said = std::fs::read(self.dir.join(log)).unwrap_or_default();
            let said = String::from_utf8_lossy(&said[said.len().saturating_sub(600)..]).trim().to_owned();
            if !said.is_empty() {
                text += &format!("; {said}");
            }
        }
        text
    }

    /// What a client has printed.
    pub(super) fn said(&self, client: usize) -> String {
        let said = std::fs::read(self.dir.join(format!("{client}.err"))).unwrap_or_default();
        String::from_utf8_lossy(&said).into_owned()
    }

    /// The processes of a client.
    pub(super) fn processes(&self, client: usize) -> Vec<Pid> {
        self.groups.processes(&client.to_string())
    }

    pub(super) fn books(&self) -> Result<Books> {
        let clients = (0..self.clients).map(|k| self.groups.used(&k.to_string()));
        Ok(Books { at: clock::now(), clients: clients.collect::<Result<_>>()?, own: self.groups.used(OWN)? })
    }

    /// Ends divvy in good order, and then whoever is left; says so if divvy has left anybody. Gives the back end that divvy
    /// used, nothing where it is not divvy who divides.
    pub(super) fn end(mut self, division: Division) -> Result<String> {
        let mut backend = String::new();
        if division.options().is_some() {
            let child = self.children.first_mut().context("divvy was not started")?;
            ProcessRef::open_child(Pid::from_child(child))?.signal(Signal::TERM)?;
            let until = clock::now() + PATIENCE;
            while child.try_wait()?.is_none() {
                ensure!(clock::now() < until, "divvy does not end");
                clock::sleep(Nanos::from_millis(5));
            }
            let left: usize = (0..self.clients).map(|k| self.processes(k).len()).sum();
            ensure!(left == 0, "divvy has ended, and {left} processes of its clients are left");
            let report = std::fs::read(self.report()).context("read divvy's report")?;
            let report: serde_json::Value = serde_json::from_slice(&report).context("divvy's report")?;
            report["backend"]["used"]
                .as_str()
                .context("divvy's report names no back end")?
                .clone_into(&mut backend);
        }
        self.groups.end()?;
        Ok(backend)
    }
}
