//! One run: a program and those that compute beside it, under one tool, watched from another CPU by the kernel's books.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use divvy_linux::{CpuMask, Pid, ProcessRef, Signal, clock};
use divvy_policy::{Instant, Nanos};

use super::arena::Arena;
use super::cgroups::{Cgroups, OWN};
use super::outcome::{Outcome, Report, Sample, Watch};
use super::programs::{Count, Program};
use super::work::{REAL, records};
use crate::paper::machine::busy;

/// Everybody has begun, or gone, within this.
const PATIENCE: Nanos = Nanos::from_secs(30);
/// CPU time of one share in one cycle, divvy's ordinary quantum: also the window in which the kernel's weights are judged.
pub(super) const QUANTUM: Nanos = Nanos::from_millis(10);
/// Counts are looked at this often: a cycle is a whole number of these.
const STEP: Nanos = Nanos::from_millis(5);
/// Connections of a load.
const CONNECTIONS: &str = "4";

/// Who divides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tool {
    Divvy,
    Weights,
    /// Of the runs under the kernel's weights those before divvy's, and those after it: two measurements of the same.
    Before,
    After,
    Cpulimit,
    /// Nobody: the program is alone on the CPU.
    Alone,
    /// The kernel, with those beside the program in the idle class: they have only what it leaves.
    Beneath,
}

impl Tool {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Divvy => "divvy",
            Self::Weights => "kernel's weights",
            Self::Before => "kernel's weights, before",
            Self::After => "kernel's weights, after",
            Self::Cpulimit => "cpulimit",
            Self::Alone => "alone",
            Self::Beneath => "beside idle ones",
        }
    }
}

/// What is run, by whom, and for how long.
#[derive(Clone, Debug)]
pub(super) struct Spec<'a> {
    pub(super) program: &'a Program,
    /// Where its inputs are.
    pub(super) inputs: &'a Path,
    /// The program's share, and of each that computes beside it.
    pub(super) shares: &'a [u64],
    pub(super) tool: Tool,
    /// All that the program can use of the CPUs, if that is known.
    pub(super) can_use: Option<f64>,
    /// How long it is watched.
    pub(super) window: Nanos,
}

/// A run in the making. Dropping it ends everybody.
pub(super) struct Trial<'a> {
    arena: &'a Arena,
    spec: &'a Spec<'a>,
    dir: PathBuf,
    /// Where counts are: in memory, so that to count costs little.
    counts: PathBuf,
    groups: Cgroups,
    children: Vec<Child>,
    load: Option<Child>,
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        // Whoever was in the cgroups is killed; what is left of a directory is small.
        let _ = self.groups.end();
        for child in self.children.iter_mut().chain(&mut self.load) {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.dir);
        let _ = std::fs::remove_dir_all(&self.counts);
    }
}

impl<'a> Trial<'a> {
    /// Makes the run.
    ///
    /// # Errors
    /// Where a program does not begin, ends early, or divvy fails; nobody is left then.
    pub(super) fn run(arena: &'a Arena, spec: &'a Spec<'a>) -> Result<Outcome> {
        let weights = matches!(spec.tool, Tool::Weights | Tool::Beneath).then_some(spec.shares);
        let (name, dir, counts) = arena.places()?;
        let groups = Cgroups::new(&arena.hierarchies, name, spec.shares.len(), weights)?;
        if spec.tool == Tool::Beneath {
            (1..spec.shares.len()).try_for_each(|i| groups.idle(&i.to_string()))?;
        }
        let mut trial = Self { arena, spec, dir, counts, groups, children: Vec::new(), load: None };
        trial.start()?;
        trial.wait_until_all_work()?;
        clock::sleep(Nanos::from_millis(spec.program.warm_ms));
        let watch = trial.watch()?;
        let totals: Vec<Nanos> =
            (0..spec.shares.len()).map(|i| trial.groups.used(&i.to_string())).collect::<Result<_>>()?;
        // The load goes first: a server that is ended is no failure that somebody should read of.
        if let Some(mut load) = trial.load.take() {
            load.kill().and_then(|()| load.wait()).context("end the load")?;
        }
        let report = if spec.tool == Tool::Divvy { Some(trial.end_divvy()?) } else { None };
        let left = if report.is_some() { trial.left() } else { 0 };
        let requests = match spec.program.count {
            Count::Requests => {
                records(&std::fs::read(trial.count_file(0, Count::Requests)).context("read the requests")?)
            }
            _ => Vec::new(),
        };
        trial.groups.end()?;
        Ok(Outcome::new(spec, &watch, &totals, report.as_ref(), left, &requests))
    }

    fn count_file(&self, client: usize, count: Count) -> PathBuf {
        let kind = match count {
            Count::Marks => "marks",
            Count::Word => "word",
            Count::Requests => "requests",
        };
        self.counts.join(format!("{client}.{kind}"))
    }

    /// Writes the script of a client, and says how a shell begins it.
    fn script(&self, client: usize, port: u16) -> Result<String> {
        let place = self.dir.join(client.to_string());
        std::fs::create_dir(&place).with_context(|| format!("create {}", place.display()))?;
        let hog = format!("exec $X {REAL} hog $W {}", self.arena.cpus.len());
        let body = if client == 0 { self.spec.program.run } else { &hog };
        let values = [
            ("C", self.count_file(client, Count::Marks)),
            ("W", self.count_file(client, Count::Word)),
            ("R", self.count_file(client, Count::Requests)),
            ("IN", self.spec.inputs.to_owned()),
            ("X", self.arena.own.clone()),
            ("RUSTC", self.arena.rustc.clone().unwrap_or_default()),
            ("PORT", port.to_string().into()),
            ("HOME", place.clone()),
            ("TMPDIR", place.clone()),
        ];
        let values: Vec<String> =
            values.iter().map(|(k, v)| format!("export {k}='{}'\n", v.display())).collect();
        let path = self.dir.join(format!("{client}.sh"));
        let text = format!(
            "{}cd '{}'\nexec >/dev/null 2>'{}'\nm() {{ printf . >>$C; }}\n{body}\n",
            values.concat(),
            place.display(),
            self.dir.join(format!("{client}.err")).display()
        );
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        Ok(format!("{}exec /bin/sh '{}'", self.groups.enter(&client.to_string()), path.display()))
    }

    /// A command in a session of its own, on the CPUs that are divided.
    fn command(&self, shell: &str) -> Result<Command> {
        let mut command = Command::new("/bin/sh");
        self.arena.environment(&mut command);
        let err = File::create(self.dir.join("err")).context("create a log")?;
        command.args(["-c", shell, "sh"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(err);
        let mut mask = CpuMask::default();
        self.arena.cpus.iter().for_each(|&cpu| mask.insert(cpu));
        on(&mut command, mask);
        Ok(command)
    }

    fn start(&mut self) -> Result<()> {
        let port = free_port()?;
        let clients: Vec<String> =
            (0..self.spec.shares.len()).map(|i| self.script(i, port)).collect::<Result<_>>()?;
        if self.spec.tool == Tool::Divvy {
            let mut divvy = self.command(&format!("{}exec \"$@\"", self.groups.enter(OWN)))?;
            divvy.arg(&self.arena.divvy).args(["share", "--quiet", "--grace", "1s", "--for", "300s"]);
            divvy.arg("--cpus").arg(self.arena.cpu_list()).arg("--report").arg(self.dir.join("report.json"));
            divvy.args(
                self.spec.shares.iter().zip(&clients).map(|(share, client)| format!("{share}:{client}")),
            );
            self.children.push(divvy.spawn().context("start divvy")?);
        } else {
            for client in &clients {
                let child = self.command(client)?.spawn().context("start a client")?;
                self.children.push(child);
            }
        }
        if self.spec.tool == Tool::Cpulimit {
            self.limit()?;
        }
        if let Some(load) = self.spec.program.load {
            let mut command = Command::new(&self.arena.own);
            self.arena.environment(&mut command);
            command.args([REAL, "load", load.word(), &port.to_string()]);
            command.arg(self.count_file(0, Count::Requests)).arg(CONNECTIONS).stdin(Stdio::null());
            on(&mut command, CpuMask::only(self.arena.watch_cpu));
            self.load = Some(command.spawn().context("start the load")?);
        }
        Ok(())
    }

    /// A cpulimit with children for each client, with its share of the CPUs in whole percents.
    fn limit(&mut self) -> Result<()> {
        let all: u64 = self.spec.shares.iter().sum();
        let pids: Vec<u32> = self.children.iter().map(Child::id).collect();
        for (pid, share) in pids.into_iter().zip(self.spec.shares) {
            let percent = (share * 100 * self.arena.cpus.len() as u64 / all).max(1);
            let shell = format!("{}exec cpulimit -q -m -p {pid} -l {percent}", self.groups.enter(OWN));
            let child = self.command(&shell)?.spawn().context("start cpulimit")?;
            self.children.push(child);
        }
        Ok(())
    }

    /// How many units a client has done.
    fn count(&self, client: usize) -> u64 {
        let count = if client == 0 { self.spec.program.count } else { Count::Word };
        let Ok(file) = File::open(self.count_file(client, count)) else { return 0 };
        let length = file.metadata().map_or(0, |m| m.len());
        match count {
            Count::Marks => length,
            Count::Requests => length / 16,
            Count::Word => {
                let mut word = [0; 8];
                // One that is not there yet has counted nothing.
                file.read_exact_at(&mut word, 0).map_or(0, |()| u64::from_le_bytes(word))
            }
        }
    }

    fn wait_until_all_work(&mut self) -> Result<()> {
        let begun = clock::now();
        while (0..self.spec.shares.len()).any(|client| self.count(client) == 0) {
            self.check()?;
            if clock::now().since(begun) > PATIENCE {
                bail!("it does not begin to work{}", self.complaints());
            }
            clock::sleep(Nanos::from_millis(2));
        }
        Ok(())
    }

    /// Nothing, while everybody runs who should, and nobody has asked for the end.
    fn check(&mut self) -> Result<()> {
        (self.arena.check)()?;
        for child in self.children.iter_mut().chain(&mut self.load) {
            if let Some(status) = child.try_wait()? {
                bail!("a process has ended early: {status}{}", self.complaints());
            }
        }
        Ok(())
    }

    /// What was written to standard error.
    fn complaints(&self) -> String {
        let mut text = String::new();
        for name in ["err", "0.err", "1.err"] {
            let mut part = String::new();
            let read = File::open(self.dir.join(name)).and_then(|f| f.take(500).read_to_string(&mut part));
            if read.is_ok() && !part.trim().is_empty() {
                text += &format!("; {}", part.trim());
            }
        }
        text
    }

    fn sample(&self) -> Sample {
        let hogs = (1..self.spec.shares.len()).map(|i| self.count(i)).sum();
        Sample { at: clock::now(), program: self.count(0), hogs }
    }

    fn books(&self) -> Result<Vec<Nanos>> {
        (0..self.spec.shares.len()).map(|i| self.groups.used(&i.to_string())).collect()
    }

    /// Watches everybody for the time that was asked for.
    fn watch(&mut self) -> Result<Watch> {
        let cycle = QUANTUM.0 * cycle_shares(self.spec.shares) / self.arena.cpus.len() as u64;
        let (before, own_before) = (self.books()?, self.groups.used(OWN)?);
        let (switches_before, busy_before) = (self.switches(), busy(&self.arena.cpus));
        let begun = clock::now();
        let mut samples = vec![self.sample()];
        let mut next = begun;
        while next + STEP <= begun + self.spec.window {
            next = next + STEP;
            clock::sleep(next.since(clock::now()));
            samples.push(self.sample());
        }
        self.check()?;
        let ended = clock::now();
        let busy_after = busy(&self.arena.cpus);
        let used: Vec<Nanos> =
            self.books()?.iter().zip(&before).map(|(now, then)| Nanos(now.0 - then.0)).collect();
        Ok(Watch {
            begun,
            ended,
            cpus: self.arena.cpus.len(),
            samples,
            of_cycle: (cycle / STEP.0).max(1) as usize,
            used,
            own: Nanos(self.groups.used(OWN)?.0 - own_before.0),
            switches: self.switches().saturating_sub(switches_before),
            busy: busy_before.zip(busy_after).map(|(then, now)| now.fraction_since(then)),
        })
    }

    /// How often the tool has slept: voluntary switches of all its threads.
    fn switches(&self) -> u64 {
        let threads = self.groups.processes(OWN).into_iter().flat_map(|pid| {
            std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten().map(|e| e.path())
        });
        let of = |path: PathBuf| -> Option<u64> {
            let text = std::fs::read_to_string(path.join("status")).ok()?;
            text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?.trim().parse().ok()
        };
        threads.filter_map(of).sum()
    }

    /// Asks divvy to end, and reads its report.
    fn end_divvy(&mut self) -> Result<Report> {
        let child = self.children.first_mut().context("divvy was not started")?;
        let pid = Pid::from_raw(child.id() as i32).context("divvy's pid")?;
        ProcessRef::open_child(pid)?.signal(Signal::TERM)?;
        let begun = clock::now();
        while child.try_wait()?.is_none() {
            ensure!(clock::now().since(begun) < PATIENCE, "divvy does not end");
            clock::sleep(Nanos::from_millis(1));
        }
        let path = self.dir.join("report.json");
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("read {}{}", path.display(), self.complaints()))?;
        serde_json::from_str(&text).context("read divvy's report")
    }

    /// Processes of clients that divvy has not ended.
    fn left(&self) -> usize {
        (0..self.spec.shares.len()).map(|i| self.groups.processes(&i.to_string()).len()).sum()
    }
}

/// Shares without their greatest common divisor, summed: what a cycle is made of.
pub(super) fn cycle_shares(shares: &[u64]) -> u64 {
    let gcd = |mut a: u64, mut b: u64| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let common = shares.iter().copied().fold(0, gcd).max(1);
    shares.iter().sum::<u64>() / common
}

/// Has a command run on these CPUs, with no signal blocked, in a session of its own.
pub(in crate::paper) fn on(command: &mut Command, mask: CpuMask) {
    // SAFETY: three system calls, on the caller's own thread.
    unsafe {
        command.pre_exec(move || {
            let none = nix::sys::signal::SigSet::empty();
            nix::sys::signal::sigprocmask(nix::sys::signal::SigmaskHow::SIG_SETMASK, Some(&none), None)?;
            rustix::process::setsid()?;
            mask.apply(rustix::process::getpid()).map(drop).map_err(|_| std::io::ErrorKind::Other.into())
        });
    }
}

/// A port that nobody has now.
fn free_port() -> Result<u16> {
    let socket = std::net::TcpListener::bind(("127.0.0.1", 0)).context("find a free port")?;
    Ok(socket.local_addr()?.port())
}

/// A time at which something ended, in a run's own time.
pub(super) fn inside(watch: &Watch, at: Instant) -> bool {
    at > watch.begun && at <= watch.ended
}
