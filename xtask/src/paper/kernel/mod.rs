//! VTRR section 5, PBS section 4 and the lottery of Fig. 6 under sched_ext in the test machine, beside the fluid model, the
//! simulator, the live gate and the kernel's own scheduler.

mod accuracy;
mod clients;
mod cost;
mod fig4;
mod fig6;
mod group_a;
mod group_b;
mod inside;
mod kept;
mod latency;
mod microscope;
mod parts;
mod programs;
mod requests;
mod storm;
mod two_cpus;
mod wakers;

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use divvy_linux::clock;
use serde::{Deserialize, Serialize};

use kept::Kept;

use super::Setting;
use crate::PaperArgs;
use crate::live::Starter;

/// The hidden subcommand that carries out studies in the machine.
pub(crate) const STUDY: &str = "kernel-study";
/// What studies run in the machine, beside divvy.
const PROGRAMS: [&str; 2] = ["/usr/bin/flac", "/usr/bin/stress-ng"];
/// An instruction of the machine takes 2^N ns of its clock in quick runs.
const SHIFT_QUICK: u32 = 4;

/// Who divides the CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum By {
    /// The kernel's own scheduler, shares being weights of cgroups.
    Own,
    /// divvy-scx with a policy.
    Scx(String),
    /// `divvy share` with a policy and a quantum in ms: by signals.
    Gate(String, u64),
}

impl By {
    fn text(&self) -> String {
        match self {
            Self::Own => "the kernel's own, by weights".to_owned(),
            Self::Scx(policy) => format!("sched_ext, {policy}"),
            Self::Gate(policy, quantum) => format!("live gate, {policy}, quantum {quantum} ms"),
        }
    }
}

/// One client: a process, and what it makes. A job is one word of a command line, in which a thousand have to fit: what is as it is by
/// default is left out.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Client {
    share: u64,
    #[serde(skip_serializing_if = "is_default")]
    arrival_ms: u64,
    /// CPU time, in ms, after which it ends.
    #[serde(skip_serializing_if = "is_default")]
    demand_ms: Option<f64>,
    #[serde(skip_serializing_if = "is_default")]
    work: Work,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What a client does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
enum Work {
    /// It never sleeps.
    #[default]
    Computes,
    /// It computes for `work_ms` and sleeps for `sleep_ms`, again and again.
    Naps { work_ms: f64, sleep_ms: f64 },
    /// Two processes pass a byte to and fro through pipes; counted in rounds.
    PingPong,
    /// A process wakes its workers, each of which then works for `work_ms`.
    Wakes { workers: u32, every_ms: f64, work_ms: f64 },
    /// flac encodes sound; counted in bytes written.
    Encodes,
    /// A container with a few processes; counted in CPU time, in us.
    Container,
    /// A user thinks for a time by chance, then has stretches of work done with a sleep between each two.
    Thinks { think_ms: f64, stretches: u32, work_ms: f64, gap_ms: f64 },
    /// A user thinks for a time by chance, then asks a web server for `low` to `high` bytes; counted in CPU time of their answers, in us.
    Requests { think_ms: f64, low: u64, high: u64 },
}

impl Work {
    /// Whether it notes how long something took, each time.
    fn takes_samples(self) -> bool {
        matches!(self, Self::Wakes { .. } | Self::Thinks { .. } | Self::Requests { .. })
    }
}

impl Client {
    fn with_share(share: u64) -> Self {
        Self { share, ..Self::default() }
    }
}

/// One run: clients under a scheduler, looked at from `warm_ms` on, every `every_ms`, up to `length_ms`.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Spec {
    name: String,
    by: By,
    clients: Vec<Client>,
    warm_ms: u64,
    every_ms: u64,
    length_ms: u64,
    /// After that it is looked at so often, for so long, so that an end can be chosen.
    tail_ms: Option<(u64, u64)>,
    /// From then on shares are these.
    change: Option<(u64, Vec<u64>)>,
    /// Whether what clients do is told by their own CPU clocks, not by turns of their loops.
    by_clock: bool,
    /// Whether the kernel is to count what each BPF program costs.
    count_programs: bool,
}

impl Spec {
    /// Clients with `shares` that all come at once; looked at twice.
    fn new(name: impl Into<String>, by: By, shares: &[u64], warm_ms: u64, length_ms: u64) -> Self {
        Self {
            name: name.into(),
            by,
            clients: shares.iter().copied().map(Client::with_share).collect(),
            warm_ms,
            every_ms: length_ms,
            length_ms: warm_ms + length_ms,
            tail_ms: None,
            change: None,
            by_clock: false,
            count_programs: false,
        }
    }

    /// Whether not all clients are there from the beginning.
    fn come_one_by_one(&self) -> bool {
        self.clients.iter().any(|client| client.arrival_ms > 0)
    }

    /// When the clients are looked at.
    fn looks_ms(&self) -> Vec<u64> {
        let body = (0..).map(|n| self.warm_ms + n * self.every_ms).take_while(|&ms| ms <= self.length_ms);
        let (every, length) = self.tail_ms.unwrap_or((1, 0));
        let end = self.length_ms + length;
        let tail = (1..).map(|n| self.length_ms + n * every).take_while(|&ms| ms <= end);
        body.chain(tail).collect()
    }
}

/// What the machine is to do.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Job {
    specs: Vec<Spec>,
    storms: Vec<storm::Storm>,
}

/// What each client had done at a moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Look {
    at_ns: u64,
    done: Vec<u64>,
}

/// One BPF program, and what it cost.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Program {
    name: String,
    runs: u64,
    run_time_ns: u64,
}

/// What a run came to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Seen {
    /// Units of work that a client does in a second when it is alone under the kernel's own scheduler.
    units_a_second: f64,
    looks: Vec<Look>,
    /// Context switches between the first look and the last.
    switches: u64,
    /// Between the first look and the last.
    programs: Vec<Program>,
    /// How long wake-ups or answers took, the shortest first.
    latencies_ns: Vec<u64>,
    /// How much each answer was asked for.
    sizes: Vec<u64>,
}

impl Seen {
    /// The first look and the last.
    fn ends(&self) -> Result<(&Look, &Look)> {
        self.looks.first().zip(self.looks.last()).context("nothing was seen")
    }

    /// Up to the look at which what all did since the first is nearest to whole cycles of so many seconds of work: there a
    /// policy owes nobody a part of a quantum that is still to come. Of the looks at the end, as many as `tail`.
    fn in_whole_cycles(mut self, cycle_s: f64, tail: usize) -> Result<Self> {
        let course = self.course()?;
        let off = |at: usize| {
            let cycles = course[at].1.iter().sum::<f64>() / cycle_s;
            (cycles - cycles.round()).abs()
        };
        let from = course.len().saturating_sub(tail).max(1);
        let best = (from..course.len()).min_by(|&a, &b| off(a).total_cmp(&off(b)));
        self.looks.truncate(best.context("nothing was seen")? + 1);
        Ok(self)
    }

    /// The part `p` of the wake-ups took no longer, in us.
    fn latency_us(&self, p: f64) -> Result<f64> {
        let at = ((self.latencies_ns.len() as f64 * p).ceil() as usize).max(1) - 1;
        Ok(*self.latencies_ns.get(at).context("nobody was woken")? as f64 / 1e3)
    }

    /// What each did between the first look and the last, in seconds of work.
    fn service(&self) -> Result<Vec<f64>> {
        let (from, to) = self.ends()?;
        Ok(to
            .done
            .iter()
            .zip(&from.done)
            .map(|(to, from)| (to - from) as f64 / self.units_a_second)
            .collect())
    }

    /// Of each look: its time in seconds, and what each has done since the first, in seconds of work.
    fn course(&self) -> Result<Vec<(f64, Vec<f64>)>> {
        let (from, _) = self.ends()?;
        let one = |look: &Look| {
            let done =
                look.done.iter().zip(&from.done).map(|(to, from)| (to - from) as f64 / self.units_a_second);
            (look.at_ns as f64 / 1e9, done.collect())
        };
        Ok(self.looks.iter().map(one).collect())
    }
}

/// One part of the page.
type Part = fn(&mut Setting, &Study) -> Result<()>;

/// What the machine is made of.
struct Study {
    scheduler: PathBuf,
    /// Where divvy and divvyd are.
    programs: PathBuf,
    quick: bool,
    starter: Starter,
    kept: Kept,
    /// Machines of this run, and how many of them an earlier one had made.
    machines: Cell<(usize, usize)>,
}

impl Study {
    fn new(args: &PaperArgs, starter: Starter) -> Result<Self> {
        // Where divvy and divvyd are given, divvy-scx may lie beside them.
        let given = args.programs.as_ref().map(|dir| dir.join("divvy-scx")).filter(|file| file.is_file());
        Ok(Self {
            scheduler: match given {
                Some(file) => file,
                None => build(!cfg!(debug_assertions))?,
            },
            programs: match &args.programs {
                Some(dir) => dir.clone(),
                None => crate::vm::built(&std::env::current_exe().context("find this program")?)?,
            },
            quick: args.quick,
            starter,
            kept: Kept::new(
                crate::ci::root().join("target/kernel/studies"),
                args.resume,
                args.only.is_none(),
            )?,
            machines: Cell::default(),
        })
    }

    /// How slow the machine is: an instruction takes 2^N ns of its clock.
    fn shift(&self, full: u32) -> u32 {
        if self.quick { SHIFT_QUICK } else { full }
    }

    /// Carries out `specs` one after another in a machine with one CPU whose clock counts instructions of 2^`full` ns.
    fn run(&self, full: u32, specs: Vec<Spec>) -> Result<Vec<Seen>> {
        self.run_on(&["--shift", &self.shift(full).to_string()], specs)
    }

    /// The same in a machine with these options.
    fn run_on(&self, machine: &[&str], specs: Vec<Spec>) -> Result<Vec<Seen>> {
        let count = specs.len();
        let job = Job { specs, ..Job::default() };
        let seen: Vec<Seen> = self.in_machine(machine, &job, "seen.json")?;
        ensure!(seen.len() == count, "{} of {count} runs came out of the machine", seen.len());
        Ok(seen)
    }

    /// What a machine with these options made of a job, by the file that it left; of an earlier run, if this one resumes it.
    fn in_machine<T: serde::de::DeserializeOwned>(
        &self,
        options: &[&str],
        job: &Job,
        file: &str,
    ) -> Result<T> {
        let job = serde_json::to_string(job)?;
        let mut programs = vec![self.scheduler.clone()];
        programs.extend(PROGRAMS.map(PathBuf::from));
        for program in &programs {
            ensure!(program.is_file(), "{} is missing: run scripts/setup.sh", program.display());
        }
        let own = ["divvy", "divvyd"].map(|name| self.programs.join(name));
        let place = self.kept.place(&job, options, &[programs.as_slice(), &own].concat())?;
        let (all, earlier) = self.machines.get();
        let text = if let Some(text) = self.kept.take(&place)? {
            self.machines.set((all + 1, earlier + 1));
            text
        } else {
            self.machines.set((all + 1, earlier));
            let text = self.start(options, &job, &programs, file)?;
            self.kept.put(&place, &text)?;
            text
        };
        serde_json::from_slice(&text).context("understand what was seen")
    }

    /// Starts a machine, and reads the file that it leaves.
    fn start(&self, options: &[&str], job: &str, programs: &[PathBuf], file: &str) -> Result<Vec<u8>> {
        let out = std::env::temp_dir().join(format!("divvy-kernel-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&out);
        let own = std::env::current_exe().context("find this program")?;
        let mut machine = Command::new(own);
        machine.args(["vm", "run", "--timeout", "2h", "--memory", "2048"]).args(options);
        for program in programs {
            machine.arg("--add").arg(program);
        }
        machine.arg("--programs").arg(&self.programs).arg("--out").arg(&out);
        machine.arg("--env").arg(format!("DIVVY_STUDY={job}")).args(["--", "xtask", STUDY]);
        let done = self.starter.status(&mut machine).context("start the machine")?;
        ensure!(done.success(), "the study failed in the machine: {done}");
        let file = out.join(file);
        let text = std::fs::read(&file).with_context(|| format!("read {}", file.display()));
        let _ = std::fs::remove_dir_all(&out);
        text
    }

    /// Of how many machines an earlier run had made the results, if it had of any.
    fn taken(&self) -> Option<String> {
        let (all, earlier) = self.machines.get();
        (earlier > 0).then(|| {
            format!(
                "Of the {all} machines of this run, what {earlier} came to is of earlier starts of it, with the same programs and \
                 studies (`--resume`)."
            )
        })
    }
}

/// divvy-scx, in the directory that its tests use.
///
/// # Errors
/// Where it cannot be built.
pub(crate) fn build(release: bool) -> Result<PathBuf> {
    let root = crate::ci::root();
    let target = root.join("target/kernel");
    let mut cargo = crate::ci::cargo(&root);
    cargo
        .args(["build", "--quiet", "--manifest-path", "crates/divvy-kernel/Cargo.toml", "--target-dir"])
        .arg(&target);
    if release {
        cargo.arg("--release");
    }
    let status = cargo.status().context("start cargo")?;
    ensure!(
        status.success(),
        "divvy-scx cannot be built ({status}); scripts/setup.sh installs what it needs"
    );
    let profile = if release { "release" } else { "debug" };
    Ok(target.join(profile).join("divvy-scx"))
}

/// The hidden subcommand.
///
/// # Errors
/// What failed, by the name of its run.
pub(crate) fn study() -> Result<()> {
    ensure!(
        Path::new(crate::vm::INIT).exists(),
        "{STUDY} runs in the test machine: cargo xtask paper kernel"
    );
    inside::run()
}

/// Runs the studies in the machine and writes `OUT/kernel.md`.
///
/// # Errors
/// Where there is no machine, or a study fails in it.
pub(crate) fn run(args: &PaperArgs) -> Result<()> {
    let mut setting = Setting::new(args, "kernel")?;
    let study = Study::new(args, setting.bench.starter())?;
    let parts: [(&str, Part); 13] = [
        ("accuracy", accuracy::three),
        ("clients", accuracy::many),
        ("cpus", two_cpus::two_cpus),
        ("lottery", fig6::lottery),
        ("wakers", wakers::wakers),
        ("latency", latency::latency),
        ("cost", cost::cost),
        ("programs", programs::programs),
        ("storms", storm::storms),
        ("fig4", fig4::fig4),
        ("group-a", group_a::group_a),
        ("group-b", group_b::group_b),
        ("microscope", microscope::microscope),
    ];
    let mut preface = vec![
        format!(
            "Written by `cargo xtask paper kernel`: `divvy-scx` in the test machine (Linux 6.18.15, `cargo xtask vm`, one CPU in \
             software), beside the kernel's own scheduler and `divvy share` in the same machine. Its clock counts instructions, \
             {}, so that a run can be repeated and nothing else is in it; caches cost nothing there. How to use \
             `divvy-scx` is in [kernel.md](../kernel.md).",
            if setting.quick { "16 ns each" } else { "1 to 64 ns each as every part says" }
        ),
        "A client is a process that counts turns of a loop, as in the papers' test programs. If nothing else is said, what it got is told \
         from that count, in CPU time of a client that has the machine for itself: none of the kernel's accounts is in it, \
         and the time that schedulers, interrupts and switches take is nobody's."
            .to_owned(),
    ];
    preface.extend(setting.left_out());
    let title = "Policies as the kernel's scheduler";
    let preface = |study: &Study| preface.iter().cloned().chain(study.taken()).collect::<Vec<_>>();
    let wanted: Vec<_> = parts.into_iter().filter(|(name, _)| setting.wants(name)).collect();
    for (at, (name, part)) in wanted.iter().enumerate() {
        let began = clock::now();
        part(&mut setting, &study)?;
        eprintln!("{name}: {:.0} s", clock::now().since(began).as_secs_f64());
        if at + 1 < wanted.len() {
            // A long run that is ended leaves what it has.
            let mut so_far = preface(&study);
            so_far.push(format!("**This run was ended after its part `{name}`.**"));
            setting.page.write(title, &so_far)?;
        }
    }
    setting.conclude(title, &preface(&study))
}
