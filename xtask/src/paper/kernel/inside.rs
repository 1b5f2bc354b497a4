//! What runs in the machine: clients that count what they have done, one scheduler over them, and a look at the counts. This
//! program looks under SCHED_FIFO, above every scheduler that is studied, so that it looks on time and takes nobody's turn.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use divvy_linux::clock;
use divvy_policy::{Instant, Nanos};
use serde_json::Value;

use super::clients::{Clients, make_sound, samples, slots};
use super::{By, Job, Look, Program, Seen, Spec, Work, requests, storm};
use crate::paper::machine::counted;

const ROOT: &str = "/sys/fs/cgroup";
const SHARES: &str = "/run/shares.toml";
/// Where the kernel says whether it counts what BPF programs cost.
const BPF_STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";
/// A unit of work is measured over so long, so often: the best counts, for the kernel has work of its own now and then.
const CALIBRATION: Nanos = Nanos::from_millis(200);
const CALIBRATIONS: usize = 5;
/// The kernel ends what it does after its start within this.
const SETTLED: Nanos = Nanos::from_secs(2);

/// Puts this program above all schedulers that are studied, or back among them. What it starts is not above them.
pub(super) fn stand_above(above: bool) -> Result<()> {
    let policy = if above { libc::SCHED_FIFO } else { libc::SCHED_OTHER };
    let param = libc::sched_param { sched_priority: i32::from(above) };
    // SAFETY: the parameters are a local.
    let done = unsafe { libc::sched_setscheduler(0, policy | libc::SCHED_RESET_ON_FORK, &param) };
    ensure!(done == 0, "set own scheduling policy: {}", std::io::Error::last_os_error());
    Ok(())
}

/// A cgroup for each client, removed with this value.
pub(super) struct Groups(Vec<PathBuf>);

impl Groups {
    pub(super) fn new(shares: &[u64]) -> Result<Self> {
        let mut groups = Self(Vec::new());
        for (id, share) in shares.iter().enumerate() {
            let dir = Path::new(ROOT).join(format!("c{id}"));
            fs::create_dir(&dir).with_context(|| format!("create {}", dir.display()))?;
            groups.0.push(dir.clone());
            // Weights are 1 to 10000, and 100 is what a cgroup has.
            fs::write(dir.join("cpu.weight"), (share * 100).clamp(1, 10_000).to_string())
                .with_context(|| format!("set the weight of {}", dir.display()))?;
        }
        Ok(groups)
    }

    /// CPU time of all in each, in us.
    pub(super) fn usage(&self) -> Result<Vec<u64>> {
        let one = |dir: &PathBuf| {
            let text = fs::read_to_string(dir.join("cpu.stat"))?;
            let line = text.lines().find_map(|line| line.strip_prefix("usage_usec "));
            line.context("no usage_usec in cpu.stat")?.parse::<u64>().context("a number")
        };
        self.0.iter().map(one).collect()
    }

    pub(super) fn dir(&self, id: usize) -> &Path {
        &self.0[id]
    }

    pub(super) fn put(&self, id: usize, pid: i32) -> Result<()> {
        let file = self.0[id].join("cgroup.procs");
        fs::write(&file, pid.to_string()).with_context(|| format!("put {pid} into {}", file.display()))
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for dir in &self.0 {
            // What a client has started may have outlived it.
            let _ = fs::write(dir.join("cgroup.kill"), "1");
            // Its processes were waited for; the kernel may take a moment longer.
            for _ in 0..200 {
                if fs::remove_dir(dir).is_ok() {
                    break;
                }
                clock::sleep(Nanos::from_millis(5));
            }
        }
    }
}

/// The file that `divvy-scx` reads.
fn write_shares(shares: impl Iterator<Item = u64>) -> Result<()> {
    let entry = |(id, share): (u64, u64)| {
        format!("[[client]]\nname = \"c{id}\"\nshare = {share}\ncgroup = \"/c{id}\"\n")
    };
    let file: String = (0..).zip(shares).map(entry).collect();
    fs::write(SHARES, file).context("write the shares")
}

/// Where the divvyd of a gate listens to which clients come one by one.
const RUNTIME_DIR: &str = "/run/divvy-study";

fn divvy(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("DIVVY_RUNTIME_DIR", RUNTIME_DIR).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// A scheduler that has taken over; it lets go with this value.
pub(super) struct Scheduler(Option<Child>);

impl Scheduler {
    fn start(spec: &Spec, pids: &[i32]) -> Result<Self> {
        let shares = || spec.clients.iter().map(|client| client.share);
        match &spec.by {
            By::Own => Ok(Self(None)),
            By::Gate(policy, quantum) if spec.come_one_by_one() => Self::daemon(policy, *quantum),
            By::Scx(policy) => Self::scx(policy, shares(), 20),
            By::Gate(policy, quantum) => {
                let seconds = (spec.length_ms + spec.warm_ms) / 1_000 + 20;
                let mut command = Command::new("divvy");
                command.args(["share", "--quiet", "--for", &format!("{seconds}s"), "--cpus", "0"]);
                command.args(["--policy", policy, "--quantum", &format!("{quantum}ms")]);
                command.args(pids.iter().zip(shares()).map(|(pid, share)| format!("{share}:@pid:{pid}")));
                let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
                let started = Self(Some(child.context("start divvy")?));
                clock::sleep(Nanos::from_millis(500));
                Ok(started)
            }
        }
    }

    /// divvy-scx over the cgroups of as many clients as there are shares.
    pub(super) fn scx(policy: &str, shares: impl Iterator<Item = u64>, watchdog_s: u64) -> Result<Self> {
        write_shares(shares)?;
        let mut command = Command::new("divvy-scx");
        command.args(["run", "--policy", policy, "--shares", SHARES]);
        command.args(["--watchdog", &format!("{watchdog_s}s")]);
        Self::ready(command, " divides the CPUs among ")
    }

    /// A divvyd without clients.
    fn daemon(policy: &str, quantum_ms: u64) -> Result<Self> {
        fs::create_dir_all(RUNTIME_DIR).with_context(|| format!("create {RUNTIME_DIR}"))?;
        fs::set_permissions(RUNTIME_DIR, fs::Permissions::from_mode(0o700))
            .with_context(|| format!("close {RUNTIME_DIR} to others"))?;
        let mut command = divvy("divvyd");
        command.args(["--user", "--linger", "forever", "--cpus", "0", "--policy", policy]);
        command.args(["--quantum", &format!("{quantum_ms}ms")]);
        let started = Self(Some(command.spawn().context("start divvyd")?));
        for _ in 0..200 {
            if Path::new(RUNTIME_DIR).join("api.sock").exists() {
                return Ok(started);
            }
            clock::sleep(Nanos::from_millis(50));
        }
        bail!("divvyd does not serve in {RUNTIME_DIR}")
    }

    fn ready(mut command: Command, word: &str) -> Result<Self> {
        let mut child =
            command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().context("start divvy-scx")?;
        let said = child.stderr.take().context("a pipe")?;
        let mut started = Self(Some(child));
        let mut line = String::new();
        let mut said = BufReader::new(said);
        said.read_line(&mut line).context("hear of divvy-scx")?;
        ensure!(line.contains(word), "divvy-scx does not run: {line}");
        // It says no more until it ends, and that fits into the pipe.
        if let Some(child) = &mut started.0 {
            child.stderr = Some(said.into_inner());
        }
        Ok(started)
    }

    /// Lets `divvy-scx` know of other shares.
    fn change(&self, shares: &[u64]) -> Result<()> {
        write_shares(shares.iter().copied())?;
        let Some(child) = &self.0 else { bail!("nobody reads shares") };
        // SAFETY: our child, not waited for yet.
        unsafe { libc::kill(i32::try_from(child.id())?, libc::SIGHUP) };
        Ok(())
    }

    /// It has to be there still.
    pub(super) fn end(mut self) -> Result<()> {
        let Some(mut child) = self.0.take() else { return Ok(()) };
        // SAFETY: our child, not waited for yet.
        unsafe { libc::kill(i32::try_from(child.id())?, libc::SIGINT) };
        let status = child.wait().context("wait for the scheduler")?;
        let mut said = String::new();
        if let Some(mut stderr) = child.stderr.take() {
            let _ = std::io::Read::read_to_string(&mut stderr, &mut said);
        }
        // divvy says by 130 that it was interrupted.
        ensure!(status.success() || status.code() == Some(130), "the scheduler ended with {status}: {said}");
        Ok(())
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub(super) fn wait_until(at: Instant) {
    clock::sleep(at.since(clock::now()));
}

/// Units of work that one client does in a second when it is alone.
fn calibrate() -> Result<f64> {
    let slots = slots(1)?;
    let clients = Clients::fork(slots, samples(0)?)?;
    clock::sleep(SETTLED);
    clients.open(0);
    let mut best = 0.0_f64;
    for _ in 0..CALIBRATIONS {
        let (from, at) = (clients.counts()[0], clock::now());
        clock::sleep(CALIBRATION);
        let (to, end) = (clients.counts()[0], clock::now());
        let rate = (to - from) as f64 / end.since(at).as_secs_f64();
        println!("a client alone does {rate:.0} units of work in a second");
        best = best.max(rate);
    }
    Ok(best)
}

/// What the programs in the kernel have cost so far, by the loader's word. Who asks is above the scheduler that is studied, as this program
/// is: among a thousand clients it would wait for minutes, and the programs would be counted meanwhile.
fn programs() -> Result<Vec<Program>> {
    let mut command = Command::new("divvy-scx");
    command.args(["stats", "--json"]);
    // SAFETY: sched_setscheduler is a system call that may be made between fork and exec; its parameters are the child's.
    unsafe {
        command.pre_exec(|| {
            let param = libc::sched_param { sched_priority: 1 };
            match libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    let output = command.output().context("start divvy-scx")?;
    ensure!(output.status.success(), "divvy-scx stats: {}", String::from_utf8_lossy(&output.stderr));
    let stats: Value = serde_json::from_slice(&output.stdout)?;
    serde_json::from_value(stats["programs"].clone()).context("divvy-scx stats tells of no programs")
}

/// A process that makes a client of one that runs already, as it would be where a user attaches it, if the gate's clients come one by one.
/// Nobody waits for it here, or looks would be late.
fn attach(spec: &Spec, id: usize, pid: i32) -> Result<Option<Child>> {
    if !matches!(spec.by, By::Gate(..)) || !spec.come_one_by_one() {
        return Ok(None);
    }
    let (share, pid) = (spec.clients[id].share.to_string(), pid.to_string());
    divvy("divvy").args(["attach", "-s", &share, &pid]).spawn().context("start divvy").map(Some)
}

/// The clients of a run at their gates, and the cgroup of each.
fn prepare(spec: &Spec, rate: f64) -> Result<(Clients, Groups)> {
    let slots = slots(spec.clients.len())?;
    for (slot, client) in slots.iter().zip(&spec.clients) {
        slot.set(client, spec.by_clock, rate);
    }
    if spec.clients.iter().any(|client| client.work == Work::Encodes) {
        make_sound()?;
    }
    let sampled = spec.clients.iter().any(|client| client.work.takes_samples());
    let clients = Clients::fork(slots, samples(if sampled { slots.len() } else { 0 })?)?;
    let shares: Vec<u64> = spec.clients.iter().map(|client| client.share).collect();
    let groups = Groups::new(&shares)?;
    // In their cgroups while they wait, so that a client begins with its first turn.
    for (id, &pid) in clients.pids.iter().enumerate() {
        groups.put(id, pid)?;
    }
    Ok((clients, groups))
}

fn one(spec: &Spec, rate: f64) -> Result<Seen> {
    let rate = if spec.by_clock { 1e6 } else { rate };
    let (clients, groups) = prepare(spec, rate)?;
    let counts_programs = spec.count_programs && matches!(spec.by, By::Scx(_));
    if counts_programs {
        fs::write(BPF_STATS, "1").with_context(|| format!("write {BPF_STATS}"))?;
    }
    let server = requests::Server::start_for(spec)?;
    let scheduler = Scheduler::start(spec, &clients.pids)?;
    stand_above(true)?;
    let mut begin = clock::now() + Nanos::from_millis(20);
    let mut arrivals: Vec<(u64, usize)> =
        spec.clients.iter().enumerate().map(|(id, client)| (client.arrival_ms, id)).collect();
    arrivals.sort_unstable();
    let mut arrivals = arrivals.into_iter().peekable();
    let mut change = spec.change.as_ref();
    let mut looks = spec.looks_ms().into_iter();
    let (mut next, mut seen) = (looks.next(), Seen { units_a_second: rate, ..Seen::default() });
    let mut before = (counted("ctxt")?, Vec::new());
    let mut attached = Vec::new();
    while let Some(at) = next {
        let arrival = arrivals.peek().map_or(u64::MAX, |&(ms, _)| ms);
        if arrival <= at {
            wait_until(begin + Nanos::from_millis(arrival));
            if let Some((_, shares)) = change.take_if(|(ms, _)| *ms == arrival) {
                scheduler.change(shares)?;
            }
            while let Some((_, id)) = arrivals.next_if(|&(ms, _)| ms == arrival) {
                clients.open(id);
                attached.extend(attach(spec, id, clients.pids[id])?);
            }
            continue;
        }
        wait_until(begin + Nanos::from_millis(at));
        if at == spec.warm_ms && counts_programs {
            // Nobody has a turn while that is asked for: it is before the time that is looked at.
            let asked = clock::now();
            before.1 = programs()?;
            begin = begin + clock::now().since(asked);
        }
        let now = clock::now();
        let contained =
            spec.clients.iter().any(|client| matches!(client.work, Work::Container | Work::Requests { .. }));
        // What many processes do has no count but the kernel's: of the CPU time of their cgroup.
        let done = if contained { groups.usage()? } else { clients.counts() };
        seen.looks.push(Look { at_ns: now.since(begin).0, done });
        if at == spec.warm_ms {
            clients.forget_samples();
            before.0 = counted("ctxt")?;
        }
        next = looks.next();
    }
    seen.switches = counted("ctxt")? - before.0;
    for mut child in attached {
        let status = child.wait().context("wait for divvy attach")?;
        ensure!(status.success(), "divvy attach ended with {status}");
    }
    if counts_programs {
        let now = programs()?;
        seen.programs = now
            .into_iter()
            .map(|p| {
                let earlier = before.1.iter().find(|b| b.name == p.name);
                let (runs, ns) = earlier.map_or((0, 0), |b| (b.runs, b.run_time_ns));
                Program { name: p.name, runs: p.runs - runs, run_time_ns: p.run_time_ns - ns }
            })
            .collect();
    }
    if server.is_some() {
        clients.check_there()?;
    }
    (seen.latencies_ns, seen.sizes) = clients.samples().into_iter().unzip();
    stand_above(false)?;
    scheduler.end()?;
    if counts_programs {
        fs::write(BPF_STATS, "0").with_context(|| format!("write {BPF_STATS}"))?;
    }
    drop(clients);
    drop(server);
    drop(groups);
    Ok(seen)
}

/// Carries out the studies of `Job` in `$DIVVY_STUDY`, and writes what was seen to `/out/seen.json`.
///
/// # Errors
/// The first that fails, by its name.
#[expect(
    clippy::disallowed_methods,
    reason = "the machine's first process hands the job on by the environment"
)]
pub(super) fn run() -> Result<()> {
    let text = std::env::var("DIVVY_STUDY").context("DIVVY_STUDY is missing")?;
    let job: Job = serde_json::from_str(&text).context("understand DIVVY_STUDY")?;
    fs::create_dir_all("/out").context("create /out")?;
    if !job.storms.is_empty() {
        let all = storm::inside(&job.storms)?;
        return fs::write("/out/storms.json", serde_json::to_vec(&all)?).context("write the results");
    }
    let rate = calibrate()?;
    let mut all = Vec::new();
    for spec in &job.specs {
        let seen = one(spec, rate).with_context(|| spec.name.clone())?;
        let all_done: u64 = seen.looks.last().map_or(0, |look| look.done.iter().sum());
        println!(
            "{}: {} looks, {:.3} s of work",
            spec.name,
            seen.looks.len(),
            all_done as f64 / seen.units_a_second
        );
        std::io::stdout().flush()?;
        all.push(seen);
    }
    fs::write("/out/seen.json", serde_json::to_vec(&all)?).context("write the results")
}
