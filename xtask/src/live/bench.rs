//! Carries out runs in processes of their own: one after the other, or side by side on CPUs of their own.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, bail};
use divvy_linux::{CpuMask, Pid, ProcessRef, Signal, clock};
use divvy_policy::Nanos;
use indicatif::{ProgressBar, ProgressStyle};
use nix::sys::signal::{SigSet, Signal as NixSignal};

use super::{RUN, RunResult, RunSpec};

/// Runs that are made together begin so long after they were started.
const LEAD: Nanos = Nanos::from_millis(300);

/// Processes that are to be ended when this one is asked to.
#[derive(Debug, Default)]
struct Running {
    next: AtomicU64,
    asked: AtomicBool,
    /// Each with the signal that ends it.
    processes: Mutex<BTreeMap<u64, (ProcessRef, Signal)>>,
}

impl Running {
    fn with<T>(&self, f: impl FnOnce(&mut BTreeMap<u64, (ProcessRef, Signal)>) -> T) -> T {
        f(&mut self.processes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn end_all(&self) {
        self.asked.store(true, Ordering::SeqCst);
        self.with(|all| {
            for (process, signal) in all.values() {
                // What cannot be signalled has ended.
                let _ = process.signal(*signal);
            }
        });
    }

    fn is_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }

    /// Has `child` ended by `signal` with this program from now on; its number is for [`forget`](Self::forget).
    fn take(&self, child: &Child, signal: Signal) -> Result<u64> {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        let pid = Pid::from_raw(child.id() as i32).context("a child's pid")?;
        let process = ProcessRef::open_child(pid)?;
        self.with(|all| all.insert(number, (process, signal)));
        if self.is_asked() {
            self.end_all(); // Asked between the caller's check and the entry above.
        }
        Ok(number)
    }

    fn forget(&self, number: u64) {
        self.with(|all| all.remove(&number));
    }
}

/// Starts programs that are ended when this one is asked to end.
#[derive(Clone, Debug)]
pub(crate) struct Starter(Arc<Running>);

impl Starter {
    /// How `command` ended. It ends with the calling thread at the latest.
    ///
    /// # Errors
    /// Where it cannot be started; says so where this program was asked to end.
    pub(crate) fn status(&self, command: &mut Command) -> Result<ExitStatus> {
        self.through(command, Signal::TERM, |mut child| child.wait())
    }

    /// The same of one that only SIGKILL ends (`unshare --fork`), and what it printed.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub(crate) fn output_of_namespaces(&self, command: &mut Command) -> Result<Output> {
        self.through(command.stdout(Stdio::piped()), Signal::KILL, Child::wait_with_output)
    }

    fn through<T>(
        &self,
        command: &mut Command,
        end: Signal,
        wait: impl FnOnce(Child) -> std::io::Result<T>,
    ) -> Result<T> {
        // SAFETY: system calls that take and return numbers, which may be made between fork and exec.
        unsafe {
            command.pre_exec(|| {
                crate::client::die_with_parent(libc::SIGTERM);
                // What is blocked here would be there.
                Ok(SigSet::empty().thread_set_mask()?)
            });
        }
        let child = command.spawn()?;
        let number = self.0.take(&child, end)?;
        let ended = wait(child);
        self.0.forget(number);
        if self.0.is_asked() { bail!("interrupted") } else { Ok(ended?) }
    }
}

/// Where runs are made.
#[derive(Debug)]
pub(crate) struct Bench {
    cpus: Vec<u32>,
    lanes: usize,
    running: Arc<Running>,
    bar: ProgressBar,
}

impl Bench {
    /// A bench on the CPUs that this process may use, with at most `lanes` runs at a time. Ctrl-C and SIGTERM end what
    /// runs from now on, and make every later run an error.
    ///
    /// # Errors
    /// Where the CPUs or the signals cannot be had.
    pub(crate) fn new(lanes: usize) -> Result<Self> {
        let cpus: Vec<u32> =
            CpuMask::of_thread(rustix::process::getpid())?.unwrap_or_default().iter().collect();
        let running = Arc::new(Running::default());
        let asked: SigSet = [NixSignal::SIGINT, NixSignal::SIGTERM, NixSignal::SIGHUP].into_iter().collect();
        asked.thread_block().context("block signals")?;
        let watched = Arc::clone(&running);
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            while asked.wait().is_ok() {
                watched.end_all();
            }
        })?;
        let bar = ProgressBar::new(0);
        bar.set_style(ProgressStyle::with_template("{bar:30} {pos:>4}/{len} s {eta:>4} left  {msg}")?);
        Ok(Self { lanes: lanes.clamp(1, cpus.len().max(1)), cpus, running, bar })
    }

    /// The kernel's numbers of the CPUs there are.
    pub(crate) fn cpus(&self) -> &[u32] {
        &self.cpus
    }

    /// Runs made at a time.
    pub(crate) fn lanes(&self) -> usize {
        self.lanes
    }

    /// Nothing, unless this program was asked to end.
    ///
    /// # Errors
    /// Says that it was.
    pub(crate) fn check(&self) -> Result<()> {
        if self.running.is_asked() { bail!("interrupted") } else { Ok(()) }
    }

    /// The same question, for whoever cannot keep the bench.
    pub(crate) fn asked(&self) -> Box<dyn Fn() -> Result<()>> {
        let running = Arc::clone(&self.running);
        Box::new(move || if running.is_asked() { bail!("interrupted") } else { Ok(()) })
    }

    /// Starts other programs than runs.
    pub(crate) fn starter(&self) -> Starter {
        Starter(Arc::clone(&self.running))
    }

    /// Carries out all of `specs`, several at a time on CPUs of their own where they name none; results in their order.
    ///
    /// # Errors
    /// The first run's that fails; the others are ended.
    pub(crate) fn run_all(&self, what: &str, specs: &[RunSpec]) -> Result<Vec<RunResult>> {
        let lanes = if specs.iter().all(|s| s.cpus.is_empty()) { self.lanes } else { 1 };
        let seconds: f64 = specs.iter().map(|s| s.seconds).sum();
        self.begin(what, seconds / lanes as f64);
        let next = AtomicU64::new(0);
        let results: Vec<Mutex<Option<Result<RunResult>>>> = specs.iter().map(|_| Mutex::new(None)).collect();
        std::thread::scope(|scope| {
            for lane in 0..lanes {
                let (next, results) = (&next, &results);
                scope.spawn(move || {
                    while let i = next.fetch_add(1, Ordering::SeqCst) as usize
                        && i < specs.len()
                        && !self.running.is_asked()
                    {
                        let mut spec = specs[i].clone();
                        if spec.cpus.is_empty() {
                            spec.cpus = vec![self.cpus[lane]];
                        }
                        self.bar.set_message(format!("{what}: {}", spec.name));
                        let result = self.run_one(&spec);
                        if result.is_err() {
                            self.running.end_all();
                        }
                        self.bar.inc((spec.seconds / lanes as f64).round() as u64);
                        *results[i].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
                    }
                });
            }
        });
        self.bar.finish_and_clear();
        collect(results)
    }

    /// Carries out all of `specs` at the same time, on the CPUs that they name.
    ///
    /// # Errors
    /// As [`Bench::run_all`].
    pub(crate) fn run_together(&self, what: &str, specs: &[RunSpec]) -> Result<Vec<RunResult>> {
        let seconds = specs.iter().map(|s| s.delay + s.seconds).fold(0.0, f64::max);
        self.begin(what, seconds);
        let results: Vec<Mutex<Option<Result<RunResult>>>> = specs.iter().map(|_| Mutex::new(None)).collect();
        let begin = clock::now() + LEAD;
        std::thread::scope(|scope| {
            for (spec, slot) in specs.iter().zip(&results) {
                let at = begin + Nanos((spec.delay * 1e9) as u64);
                let spec = RunSpec { start_at_ns: Some(at.0), ..spec.clone() };
                scope.spawn(move || {
                    let result = self.run_one(&spec);
                    if result.is_err() {
                        self.running.end_all();
                    }
                    *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
                });
            }
        });
        self.bar.finish_and_clear();
        collect(results)
    }

    fn begin(&self, what: &str, seconds: f64) {
        self.bar.reset();
        self.bar.set_length(seconds.round() as u64);
        self.bar.set_message(what.to_owned());
        if self.bar.is_hidden() {
            eprintln!("{what}: {seconds:.0} s");
        }
    }

    /// One run in a process of its own. The calling thread outlives it: the run ends itself when the thread does.
    fn run_one(&self, spec: &RunSpec) -> Result<RunResult> {
        let failed = || format!("run {}", spec.name);
        let own = std::env::current_exe().context("find this program")?;
        let mut child = Command::new(own)
            .arg(RUN)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(failed)?;
        let number = self.running.take(&child, Signal::TERM)?;
        let text = serde_json::to_string(spec)?;
        // A run that does not read has failed, and its status says so.
        let _ = child.stdin.take().map(|mut input| writeln!(input, "{text}"));
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut line).with_context(failed)?;
        }
        let status = child.wait();
        self.running.forget(number);
        let status = status.with_context(failed)?;
        if !status.success() {
            bail!("run {}: {status}", spec.name);
        }
        serde_json::from_str(&line).with_context(failed)
    }
}

fn collect(results: Vec<Mutex<Option<Result<RunResult>>>>) -> Result<Vec<RunResult>> {
    let mut all = Vec::with_capacity(results.len());
    let mut missing = false;
    for slot in results {
        match slot.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(result) => all.push(result?),
            None => missing = true,
        }
    }
    if missing {
        bail!("interrupted");
    }
    Ok(all)
}
