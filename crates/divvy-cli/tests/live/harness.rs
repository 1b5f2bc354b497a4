//! Runs divvy as a user would, and leaves nothing behind, whatever a test does.
//!
//! Every process that descends from a [`Sandbox`] carries its mark in the environment. That is how it is found again,
//! in whatever session or process group it is and whoever its parent has become, and how nobody else's is touched.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::Value;
use tempfile::TempDir;

use crate::daemon_program;
pub use crate::skip::skip;

/// How long a test waits for what must come; a slow machine only makes the test slower.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at how much was worked: a look takes a few ms, and competes.
const WORK_INTERVAL: Duration = Duration::from_millis(30);
/// Enough ticks of 10 ms for a ratio: the end of a run cuts a cycle, which is 60 to 90 ms long in these tests.
pub const ENOUGH_TICKS: u64 = 150;
/// How far a fraction of all CPU time may be from its target where the machine is busy with other things.
pub const MAX_FRACTION_ERROR: f64 = 0.05;
/// The front end's exit code where the scheduler was killed.
pub const SCHEDULER_DIED: i32 = 7;
/// A shell that computes for ever.
pub const SPIN: &str = "while :; do :; done";

const MARK: &str = "DIVVY_TEST_MARK";
/// What the scheduler of a `divvy share` is called: the child of the process that was started.
const SCHEDULER: &str = "divvy-scheduler";
const NOBODY: u32 = 65_534;

/// Who runs divvy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// Whoever runs the tests.
    Own,
    /// A user without any privilege. Only root can become one.
    Nobody,
    /// Root, in a directory that everybody can look into; others act by [`Sandbox::command_as`].
    RootAmongOthers,
}

/// A directory, a user, and every process that was started in it. Dropping it ends them.
pub struct Sandbox {
    dir: TempDir,
    mark: String,
    user: User,
    divvy: PathBuf,
}

/// A process of a sandbox, as `/proc` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: Pid,
    pub parent: i32,
    pub state: char,
    pub comm: String,
    pub command: String,
    /// Ticks of 10 ms.
    pub cpu: u64,
    /// The same, of the children that it has waited for.
    pub waited: u64,
    /// Its cgroup is frozen.
    pub frozen: bool,
}

impl Process {
    /// Whether it does nothing until it is let go: it is held, or waits in vfork() for a child that is, which no signal
    /// interrupts.
    pub fn stands(&self) -> bool {
        self.is_held() || self.state == 'D'
    }

    /// Whether it is suspended or frozen.
    pub fn is_held(&self) -> bool {
        self.state == 'T' || self.frozen
    }
}

/// Whether the cgroup of a process is frozen, in the hierarchy of version 2.
fn is_frozen(dir: &Path) -> bool {
    let cgroup = std::fs::read_to_string(dir.join("cgroup")).unwrap_or_default();
    let Some(path) = cgroup.lines().find_map(|line| line.strip_prefix("0::/")) else { return false };
    let mounts = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(Path::new);
    let events = mounts.map(|mount| mount.join(path).join("cgroup.events"));
    events.iter().any(|events| std::fs::read_to_string(events).is_ok_and(|text| text.contains("frozen 1")))
}

/// How a run of divvy ended.
#[derive(Debug)]
pub struct Outcome {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

/// A divvy that runs.
pub struct Running {
    pub child: Child,
}

/// Which of a run's two processes is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    FrontEnd,
    Scheduler,
    Both,
}

impl Victim {
    pub const ALL: [Self; 3] = [Self::Scheduler, Self::FrontEnd, Self::Both];
}

/// Runs a test as the user who runs the tests and as one without privilege.
macro_rules! as_both_users {
    ($($name:ident)*) => { $(mod $name {
        #[test]
        fn as_own_user() {
            super::$name(&crate::harness::Sandbox::own());
        }
        #[test]
        fn unprivileged() {
            if let Some(sandbox) = crate::harness::Sandbox::nobody(stringify!($name)) {
                super::$name(&sandbox);
            }
        }
    })* };
}
pub(crate) use as_both_users;

impl Sandbox {
    pub fn own() -> Self {
        Self::new(User::Own)
    }

    /// A sandbox of a user without privilege; `None`, and a word why, where there can be none, or where [`Sandbox::own`]
    /// is one already.
    pub fn nobody(test: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skip(test, "not root: the test as the own user is the one without privilege");
            return None;
        }
        Some(Self::new(User::Nobody))
    }

    /// A sandbox of a user without privilege where there can be one, else of whoever runs the tests: for what depends on no user.
    pub fn unprivileged() -> Self {
        Self::new(if rustix::process::geteuid().is_root() { User::Nobody } else { User::Own })
    }

    /// A sandbox of root where other users act too: for the system's divvyd. `None`, and a word why, where there can be none.
    pub fn shared(test: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skip(test, "not root: only root can run the system's divvyd, and act as several users");
            return None;
        }
        Some(Self::new(User::RootAmongOthers))
    }

    fn new(user: User) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let dir = tempfile::Builder::new().prefix("divvy-live-").tempdir().expect("a directory");
        let mark = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let mut divvy = PathBuf::from(env!("CARGO_BIN_EXE_divvy"));
        let divvyd = daemon_program::built_beside(&divvy);
        if user != User::Own {
            if !is_reachable(&divvy) {
                for program in [&divvy, &divvyd] {
                    let copy = dir.path().join(program.file_name().expect("a name"));
                    std::fs::copy(program, &copy).expect("copy divvy to where everybody can reach it");
                }
                divvy = dir.path().join("divvy");
            }
            if user == User::Nobody {
                std::os::unix::fs::chown(dir.path(), Some(NOBODY), Some(NOBODY))
                    .expect("give the directory away");
            } else {
                let mode = std::fs::Permissions::from_mode(0o755);
                std::fs::set_permissions(dir.path(), mode).expect("let others in");
            }
        }
        Self { dir, mark, user, divvy }
    }

    /// A name in the sandbox's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file that the sandbox's user can read.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).expect("write a file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("let it be read");
        path
    }

    /// The program under test.
    pub fn program(&self) -> &Path {
        &self.divvy
    }

    /// Any command, as the sandbox's user and with its mark and runtime directory.
    pub fn command(&self, program: impl Into<OsString>) -> Command {
        match self.user {
            User::Own | User::RootAmongOthers => self.marked(Command::new(program.into())),
            User::Nobody => self.command_as(NOBODY, program),
        }
    }

    /// Any command as user and group `uid`, without other groups; only root can. Its mark is the sandbox's.
    pub fn command_as(&self, uid: u32, program: impl Into<OsString>) -> Command {
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={uid}"), &format!("--regid={uid}"), "--clear-groups"]);
        command.arg(program.into());
        self.marked(command)
    }

    fn marked(&self, mut command: Command) -> Command {
        command
            .env(MARK, &self.mark)
            .env("DIVVY_RUNTIME_DIR", self.path("run"))
            // Whatever serves this machine is none of a test's business.
            .env("DIVVY_SYSTEM_SOCKET", self.path("sys-run/api.sock"))
            // Nor are the rules of whoever runs it.
            .env("DIVVY_CONFIG", self.path("config.toml"))
            .env_remove("DIVVY_MODE")
            .env_remove("XDG_RUNTIME_DIR");
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    /// divvy with these arguments.
    pub fn divvy(&self, args: &[&str]) -> Command {
        let mut command = self.command(&self.divvy);
        command.args(args);
        command
    }

    /// Runs divvy to its end.
    pub fn run(&self, args: &[&str]) -> Outcome {
        self.start(args).end()
    }

    /// Starts divvy; its output is kept for [`Running::end`].
    pub fn start(&self, args: &[&str]) -> Running {
        let mut command = self.divvy(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Running { child: command.spawn().expect("start divvy") }
    }

    /// The report of a `divvy share` on one CPU that ends as [`Sandbox::end_after`] has it.
    pub fn share_for_ticks(&self, ticks: u64, args: &[&str]) -> Value {
        let cpu = one_cpu();
        let common = ["share", "--quiet", "--cpus", &cpu, "--report", "report.json"];
        self.end_after(ticks, self.start(&[&common, args].concat()));
        self.report("report.json")
    }

    /// Asks a run to end once its clients, and what else runs in the sandbox, have used `ticks` of 10 ms of CPU time from now: after so
    /// many cycles, however much of the CPU strangers take.
    pub fn end_after(&self, ticks: u64, mut running: Running) -> Outcome {
        let before = self.worked();
        let ended = eventually("enough work", || {
            std::thread::sleep(WORK_INTERVAL);
            let ended = running.child.try_wait().expect("our child").is_some();
            (ended || self.worked() >= before + ticks).then_some(ended)
        });
        if !ended {
            running.signal(Signal::TERM);
        }
        let outcome = running.end();
        assert_eq!(outcome.code, Some(143), "{}", outcome.stderr);
        outcome
    }

    /// Ticks of 10 ms that all in the sandbox have used, divvy and what nobody has waited for yet not counted.
    pub fn worked(&self) -> u64 {
        self.processes().iter().filter(|p| !p.is_divvy()).map(|p| p.cpu + p.waited).sum()
    }

    /// All living processes with the sandbox's mark.
    pub fn processes(&self) -> Vec<Process> {
        let mark = format!("{MARK}={}", self.mark).into_bytes();
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let dir = entry.path();
            // What cannot be read has ended, or is another user's.
            let Ok(environment) = std::fs::read(dir.join("environ")) else { continue };
            if environment.split(|&b| b == 0).any(|variable| variable == mark) {
                found.extend(process(pid, &dir));
            }
        }
        found
    }

    /// Processes that were started with `word` in their command.
    pub fn with(&self, word: &str) -> Vec<Process> {
        let mut found = self.processes();
        // divvy itself has all the commands among its arguments.
        found.retain(|p| p.command.contains(word) && !p.is_divvy());
        found
    }

    /// Those that stand suspended, or are frozen.
    pub fn suspended(&self) -> Vec<Process> {
        let mut found = self.processes();
        found.retain(Process::is_held);
        found
    }

    /// The guardian, if there is one.
    pub fn guardian(&self) -> Option<Pid> {
        self.processes().into_iter().find(|p| p.comm == "divvy-guardian").map(|p| p.pid)
    }

    /// The schedulers that run, without those that only start one.
    pub fn schedulers(&self) -> Vec<Process> {
        let mut found = self.processes();
        // One in the background has been left by its parent.
        found.retain(|p| p.comm == "divvyd" && !found_parent(p));
        found
    }

    /// Ends everything that is left in the sandbox.
    pub fn kill_clients(&self) {
        // What is killed may have just made another: until there is none.
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            kill(left.iter().map(|process| process.pid));
        }
        eprintln!("left behind: {:?}", self.processes());
    }

    /// Waits until `n` processes have `word` in their command.
    pub fn wait_for(&self, n: usize, word: &str) -> Vec<Process> {
        eventually(&format!("{n} processes with '{word}'"), || {
            Some(self.with(word)).filter(|found| found.len() == n)
        })
    }

    /// The report that divvy wrote, checked against its schema.
    pub fn report(&self, name: &str) -> Value {
        let text = std::fs::read_to_string(self.path(name)).expect("a report");
        check_report(&text)
    }
}

/// Kills all of these, and waits until they have ended: one that is ending is a living owner to a rescue, and has no
/// environment any more that would tell whose it is.
pub fn kill(pids: impl IntoIterator<Item = Pid>) {
    let ended = pids.into_iter().filter_map(|pid| {
        let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        let _ = pidfd_send_signal(&handle, Signal::KILL);
        Some(handle)
    });
    let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    for handle in ended.collect::<Vec<_>>() {
        let mut polled = [PollFd::new(&handle, PollFlags::IN)];
        if poll(&mut polled, Some(&patience)) == Ok(0) {
            eprintln!("somebody who was killed has not ended");
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.kill_clients();
        // Cgroups that a test has left on purpose.
        let _ = self.divvy(&["rescue"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

impl Process {
    pub fn is_divvy(&self) -> bool {
        ["divvy", SCHEDULER, "divvyd", "divvy-guardian", "divvy-listener"].contains(&self.comm.as_str())
    }
}

impl Running {
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid(), signal).expect("signal divvy");
    }

    /// The scheduler, once there is one.
    pub fn scheduler(&self) -> Pid {
        eventually("a scheduler", || self.scheduler_now())
    }

    fn scheduler_now(&self) -> Option<Pid> {
        let own = self.pid().as_raw_nonzero().get();
        let all = std::fs::read_dir("/proc").expect("/proc").flatten();
        let mut all =
            all.filter_map(|entry| process(entry.file_name().to_str()?.parse().ok()?, &entry.path()));
        all.find(|p| p.parent == own && p.comm == SCHEDULER).map(|p| p.pid)
    }

    pub fn signal_scheduler(&self, signal: Signal) {
        rustix::process::kill_process(self.scheduler(), signal).expect("signal the scheduler");
    }

    /// Kills, and waits for the end of the front end. Where there is no scheduler yet there is one process to be killed.
    pub fn kill(&mut self, victim: Victim) {
        let scheduler = self.scheduler_now();
        if victim != Victim::Scheduler || scheduler.is_none() {
            self.signal(Signal::KILL);
        }
        // Of one that the front end has left behind nobody else gets the pid so soon.
        if victim != Victim::FrontEnd
            && let Some(pid) = scheduler
        {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        let code = self.wait();
        let told = victim == Victim::Scheduler && scheduler.is_some();
        assert_eq!(code, told.then_some(SCHEDULER_DIED), "{victim:?}");
    }

    /// Waits for the end of divvy and of all that hold its output open.
    pub fn end(mut self) -> Outcome {
        // Read side by side: a full pipe would stop the writer.
        fn read(pipe: Option<impl std::io::Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
                bytes
            })
        }
        let (out, err) = (read(self.child.stdout.take()), read(self.child.stderr.take()));
        let code = self.wait();
        eventually("the end of the output: did a command outlive divvy?", || {
            (out.is_finished() && err.is_finished()).then_some(())
        });
        let (stdout, stderr) = (out.join().expect("a reader"), err.join().expect("a reader"));
        Outcome { code, stdout, stderr: String::from_utf8_lossy(&stderr).into_owned() }
    }

    /// Waits for the end of divvy itself; `None` where a signal ended it.
    pub fn wait(&mut self) -> Option<i32> {
        eventually("divvy's end", || self.child.try_wait().expect("our child")).code()
    }
}

fn process(pid: i32, dir: &Path) -> Option<Process> {
    let stat = std::fs::read_to_string(dir.join("stat")).ok()?;
    let (head, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let command = std::fs::read(dir.join("cmdline")).ok()?;
    let ticks = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Process {
        pid: Pid::from_raw(pid)?,
        parent: fields.get(1)?.parse().ok()?,
        state: fields.first()?.chars().next()?,
        comm: head.split_once('(')?.1.to_owned(),
        command: String::from_utf8_lossy(&command).replace('\0', " "),
        cpu: ticks(11)? + ticks(12)?,
        waited: ticks(13)? + ticks(14)?,
        frozen: is_frozen(dir),
    })
    .filter(|p| p.state != 'Z')
}

/// Whether its parent is a divvy or divvyd: it has not gone into the background yet.
fn found_parent(process: &Process) -> bool {
    let comm = std::fs::read_to_string(format!("/proc/{}/comm", process.parent)).unwrap_or_default();
    comm.starts_with("divvy")
}

fn is_reachable(path: &Path) -> bool {
    path.ancestors().all(|part| std::fs::metadata(part).is_ok_and(|m| m.permissions().mode() & 0o001 != 0))
}

/// Waits until `look` finds something, with patience.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// CPU time in ticks of 10 ms of all `processes` together.
pub fn cpu(processes: &[Process]) -> u64 {
    processes.iter().map(|p| p.cpu).sum()
}

/// Two CPUs that this process may use, as a list; a word where it has only one.
pub fn two_cpus(test: &str) -> Option<String> {
    let ours = std::process::id() as i32;
    let mask = divvy_linux::CpuMask::of_thread(Pid::from_raw(ours).expect("a pid")).expect("an affinity");
    let cpus: Vec<String> =
        mask.iter().flat_map(|mask| mask.iter().take(2)).map(|cpu| cpu.to_string()).collect();
    if cpus.len() < 2 {
        skip(test, "it takes two CPUs");
        return None;
    }
    Some(cpus.join(","))
}

/// The number of a CPU that this process may use.
pub fn one_cpu() -> String {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc/self/status");
    let list =
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("a list of CPUs");
    list.trim().split([',', '-']).next().expect("a CPU").to_owned()
}

/// Commands and settings of a page that divides the first CPU, on one that this process may use; and without limits of more than
/// one CPU where it has no more.
pub fn on_our_cpu(page: &str) -> String {
    let cpu = one_cpu();
    let page = page
        .replace("--cpus 0", &format!("--cpus {cpu}"))
        .replace("taskset -c 0 ", &format!("taskset -c {cpu} "))
        .replace("cpus = \"0\"", &format!("cpus = \"{cpu}\""));
    let several = std::thread::available_parallelism().is_ok_and(|n| n.get() > 1);
    if several { page } else { page.replace("--limit big=1.5", "--limit big=0.5") }
}

/// Parses a report and checks it against `docs/report.schema.json`.
pub fn check_report(text: &str) -> Value {
    let schema: Value =
        serde_json::from_str(include_str!("../../../../docs/report.schema.json")).expect("a schema");
    let report: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("no JSON ({e}): {text}"));
    let validator = jsonschema::validator_for(&schema).expect("a valid schema");
    let errors: Vec<String> =
        validator.iter_errors(&report).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(errors.is_empty(), "the report is not as its schema says: {errors:#?}\n{text}");
    report
}

/// A client's member `field` in a report.
pub fn client<'a>(report: &'a Value, index: usize, field: &str) -> &'a Value {
    let value = &report["clients"][index][field];
    assert!(!value.is_null() || field == "exit", "clients[{index}].{field} in {report}");
    value
}

/// Checks that each client's fraction of all CPU time is its target, within [`MAX_FRACTION_ERROR`].
pub fn check_fractions(report: &Value, targets: &[f64]) {
    let clients = report["clients"].as_array().expect("clients");
    assert_eq!(clients.len(), targets.len());
    for (i, target) in targets.iter().enumerate() {
        let achieved = client(report, i, "achieved_fraction").as_f64().expect("a number");
        assert!(
            (achieved - target).abs() <= MAX_FRACTION_ERROR,
            "client {i}: {achieved} of {target}\n{report}"
        );
    }
}
