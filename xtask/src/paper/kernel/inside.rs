//! What runs in the machine: clients that count what they have done, one scheduler over them, and a look at the counts.
//!
//! A client is a process that counts turns of a loop in memory that it shares with this program, as the test programs of the
//! papers did (where its demand is CPU time, by its own clock). This program looks under SCHED_FIFO, above every scheduler that is
//! studied, so that it looks on time and takes nobody's turn.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use anyhow::{Context as _, Result, bail, ensure};
use divvy_linux::clock;
use divvy_policy::{Instant, Nanos};
use serde_json::Value;

use super::{By, Job, Look, Program, Seen, Spec};

const ROOT: &str = "/sys/fs/cgroup";
const SHARES: &str = "/run/shares.toml";
/// Where the kernel says whether it counts what BPF programs cost.
const BPF_STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";
/// Turns of a client's inner loop between two looks at its demand.
const TURNS: u32 = 40;
/// A unit of work is measured over so long, so often: the best counts, for the kernel has work of its own now and then.
const CALIBRATION: Nanos = Nanos::from_millis(200);
const CALIBRATIONS: usize = 5;
/// The kernel ends what it does after its start within this.
const SETTLED: Nanos = Nanos::from_secs(2);

/// What a client and this program share: a line of the cache for each.
#[repr(C, align(64))]
struct Slot {
    /// A futex: 0 closed, 1 open.
    gate: AtomicU32,
    /// Ends once it has done so much; never where it is 0.
    demand: AtomicU64,
    done: AtomicU64,
    /// Units between two sleeps, and how long such a sleep is, in ns; 0: it never sleeps.
    burst: AtomicU64,
    nap: AtomicU64,
    /// 1: what it does is counted by its own CPU clock, in us, not by turns.
    by_clock: AtomicU32,
}

/// Slots in memory that this program's children share with it, for as long as it lives.
fn slots(count: usize) -> Result<&'static [Slot]> {
    let size = count.max(1) * size_of::<Slot>();
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, of nothing that anybody else has.
    let at = unsafe {
        libc::mmap(std::ptr::null_mut(), size, access, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1, 0)
    };
    ensure!(at != libc::MAP_FAILED, "map {size} bytes: {}", std::io::Error::last_os_error());
    // SAFETY: zeroed, aligned to a page, never unmapped, and all zeroes are a slot.
    Ok(unsafe { std::slice::from_raw_parts(at.cast::<Slot>(), count) })
}

fn futex(word: &AtomicU32, operation: i32, value: u32) {
    // SAFETY: the word outlives the call; there is no timeout.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, std::ptr::null::<libc::timespec>());
    }
}

/// What a client does once its gate is open.
fn work(slot: &Slot) -> ! {
    while slot.gate.load(Ordering::Acquire) == 0 {
        futex(&slot.gate, libc::FUTEX_WAIT, 0);
    }
    let (demand, burst) = (slot.demand.load(Ordering::Relaxed), slot.burst.load(Ordering::Relaxed));
    let nap = i64::try_from(slot.nap.load(Ordering::Relaxed)).unwrap_or(0);
    let nap = libc::timespec { tv_sec: nap / 1_000_000_000, tv_nsec: nap % 1_000_000_000 };
    let by_clock = slot.by_clock.load(Ordering::Relaxed) != 0;
    let from = clock::own_thread_cpu();
    let mut x = 1_u64;
    loop {
        for _ in 0..TURNS {
            x = std::hint::black_box(x.wrapping_mul(31).wrapping_add(7));
        }
        let done = if by_clock {
            clock::own_thread_cpu().0.saturating_sub(from.0) / 1_000
        } else {
            slot.done.load(Ordering::Relaxed) + 1
        };
        slot.done.store(done, Ordering::Relaxed);
        if demand > 0 && done >= demand {
            // SAFETY: ends this process, and runs nothing of the one it was made from.
            unsafe { libc::_exit(0) };
        }
        if burst > 0 && done.is_multiple_of(burst) {
            // SAFETY: the time is a local; what is left is not asked for.
            unsafe { libc::nanosleep(&nap, std::ptr::null_mut()) };
        }
    }
}

/// Processes, killed with this value.
struct Clients {
    pids: Vec<i32>,
    slots: &'static [Slot],
}

impl Clients {
    /// As many as there are slots, waiting at their gates.
    fn fork(slots: &'static [Slot]) -> Result<Self> {
        let mut clients = Self { pids: Vec::new(), slots };
        for slot in slots {
            // SAFETY: this process has one thread; the child calls system calls alone, and never returns.
            match unsafe { libc::fork() } {
                0 => {
                    crate::client::die_with_parent(libc::SIGKILL);
                    work(slot)
                }
                pid if pid > 0 => clients.pids.push(pid),
                _ => bail!("fork a client: {}", std::io::Error::last_os_error()),
            }
        }
        Ok(clients)
    }

    fn open(&self, id: usize) {
        self.slots[id].gate.store(1, Ordering::Release);
        futex(&self.slots[id].gate, libc::FUTEX_WAKE, 1);
    }

    fn counts(&self) -> Vec<u64> {
        self.slots.iter().map(|slot| slot.done.load(Ordering::Relaxed)).collect()
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        for &pid in &self.pids {
            // SAFETY: our child, not waited for yet, so that the number is still its own.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        for &pid in &self.pids {
            // SAFETY: our child; how it ended is not asked for.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        }
    }
}

/// Puts this program above all schedulers that are studied, or back among them. What it starts is not above them.
fn stand_above(above: bool) -> Result<()> {
    let policy = if above { libc::SCHED_FIFO } else { libc::SCHED_OTHER };
    let param = libc::sched_param { sched_priority: i32::from(above) };
    // SAFETY: the parameters are a local.
    let done = unsafe { libc::sched_setscheduler(0, policy | libc::SCHED_RESET_ON_FORK, &param) };
    ensure!(done == 0, "set own scheduling policy: {}", std::io::Error::last_os_error());
    Ok(())
}

/// A cgroup for each client, removed with this value.
struct Groups(Vec<PathBuf>);

impl Groups {
    fn new(shares: &[u64]) -> Result<Self> {
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

    fn put(&self, id: usize, pid: i32) -> Result<()> {
        let file = self.0[id].join("cgroup.procs");
        fs::write(&file, pid.to_string()).with_context(|| format!("put {pid} into {}", file.display()))
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for dir in &self.0 {
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

/// A scheduler that has taken over; it lets go with this value.
struct Scheduler(Option<Child>);

impl Scheduler {
    fn start(spec: &Spec, pids: &[i32]) -> Result<Self> {
        let shares = || spec.clients.iter().map(|client| client.share);
        match &spec.by {
            By::Own => Ok(Self(None)),
            By::Scx(policy) => {
                write_shares(shares())?;
                let mut command = Command::new("divvy-scx");
                command.args(["run", "--policy", policy, "--shares", SHARES]);
                Self::ready(command, " divides the CPUs among ")
            }
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
    fn end(mut self) -> Result<()> {
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

fn wait_until(at: Instant) {
    clock::sleep(at.since(clock::now()));
}

/// Context switches of the machine since it was booted.
fn switches() -> Result<u64> {
    let text = fs::read_to_string("/proc/stat").context("read /proc/stat")?;
    let line = text.lines().find_map(|line| line.strip_prefix("ctxt ")).context("no ctxt in /proc/stat")?;
    Ok(line.parse()?)
}

/// Units of work that one client does in a second when it is alone.
fn calibrate() -> Result<f64> {
    let slots = slots(1)?;
    let clients = Clients::fork(slots)?;
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

/// What the programs in the kernel have cost so far, by the loader's word.
fn programs() -> Result<Vec<Program>> {
    let output = Command::new("divvy-scx").args(["stats", "--json"]).output().context("start divvy-scx")?;
    ensure!(output.status.success(), "divvy-scx stats: {}", String::from_utf8_lossy(&output.stderr));
    let stats: Value = serde_json::from_slice(&output.stdout)?;
    serde_json::from_value(stats["programs"].clone()).context("divvy-scx stats tells of no programs")
}

fn one(spec: &Spec, rate: f64) -> Result<Seen> {
    let slots = slots(spec.clients.len())?;
    let clients = Clients::fork(slots)?;
    let rate = if spec.by_clock { 1e6 } else { rate };
    let units = |ms: f64| (ms / 1_000.0 * rate).round() as u64;
    for (slot, client) in slots.iter().zip(&spec.clients) {
        slot.demand.store(units(client.demand_ms.unwrap_or(0.0)), Ordering::Relaxed);
        slot.by_clock.store(u32::from(spec.by_clock), Ordering::Relaxed);
        if let Some((run, sleep)) = client.turns_ms {
            slot.burst.store(units(run).max(1), Ordering::Relaxed);
            slot.nap.store((sleep * 1e6) as u64, Ordering::Relaxed);
        }
    }
    let shares: Vec<u64> = spec.clients.iter().map(|client| client.share).collect();
    let groups = Groups::new(&shares)?;
    // In their cgroups while they wait, so that a client begins with its first turn.
    for (id, &pid) in clients.pids.iter().enumerate() {
        groups.put(id, pid)?;
    }
    let counts_programs = spec.count_programs && matches!(spec.by, By::Scx(_));
    if counts_programs {
        fs::write(BPF_STATS, "1").with_context(|| format!("write {BPF_STATS}"))?;
    }
    let scheduler = Scheduler::start(spec, &clients.pids)?;
    stand_above(true)?;
    let begin = clock::now() + Nanos::from_millis(20);
    let mut arrivals: Vec<(u64, usize)> =
        spec.clients.iter().enumerate().map(|(id, client)| (client.arrival_ms, id)).collect();
    arrivals.sort_unstable();
    let mut arrivals = arrivals.into_iter().peekable();
    let mut change = spec.change.as_ref();
    let mut looks = (0..).map(|n| spec.warm_ms + n * spec.every_ms).take_while(|&ms| ms <= spec.length_ms);
    let (mut next, mut seen) = (looks.next(), Seen { units_a_second: rate, ..Seen::default() });
    let mut before = (switches()?, Vec::new());
    while let Some(at) = next {
        let arrival = arrivals.peek().map_or(u64::MAX, |&(ms, _)| ms);
        if arrival <= at {
            wait_until(begin + Nanos::from_millis(arrival));
            if let Some((_, shares)) = change.take_if(|(ms, _)| *ms == arrival) {
                scheduler.change(shares)?;
            }
            while let Some((_, id)) = arrivals.next_if(|&(ms, _)| ms == arrival) {
                clients.open(id);
            }
            continue;
        }
        wait_until(begin + Nanos::from_millis(at));
        let now = clock::now();
        seen.looks.push(Look { at_ns: now.since(begin).0, done: clients.counts() });
        if at == spec.warm_ms {
            before = (switches()?, if counts_programs { programs()? } else { Vec::new() });
        }
        next = looks.next();
    }
    seen.switches = switches()? - before.0;
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
    stand_above(false)?;
    scheduler.end()?;
    if counts_programs {
        fs::write(BPF_STATS, "0").with_context(|| format!("write {BPF_STATS}"))?;
    }
    drop(clients);
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
    fs::create_dir_all("/out").context("create /out")?;
    fs::write("/out/seen.json", serde_json::to_vec(&all)?).context("write the results")
}
