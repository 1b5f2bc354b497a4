//! What a scheduler has to survive: forks, changes of affinity, CPUs that come and go, and thousands of tasks, all at once.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use divvy_linux::clock;
use divvy_policy::{Instant, Nanos};
use serde::{Deserialize, Serialize};

use super::clients::{Clients, samples, slots};
use super::inside::{Groups, Scheduler, stand_above};
use super::{Job, Study};
use crate::paper::Setting;
use crate::paper::machine::counted;
use crate::paper::page::{Limit, number};

const POLICIES: [&str; 4] = ["stride", "vtrr", "lottery:seed=7", "pbs"];
/// In a quick run, on the slow CPU.
const QUICK_SLOW: [&str; 2] = [POLICIES[1], POLICIES[3]];
/// On a CPU of 15 million instructions a second.
const CROWD_SLOW: usize = 2_000;
/// On two CPUs an instruction of either takes 2^N ns.
const SHIFT_TWO: u32 = 3;
const SHIFT_SLOW: u32 = 6;
/// Two clients that compute, the storm, the crowd, and one that a hundredth of the machine is left to.
const SHARES: [u64; 5] = [10, 20, 30, 30, 1];
const COMPUTING: [usize; 3] = [0, 1, 4];
const STORM: usize = 2;
const CROWD: usize = 3;
const STATE: &str = "/sys/kernel/sched_ext/state";
const ONLINE: &str = "/sys/devices/system/cpu/cpu1/online";
/// Every second a CPU is away for this.
const AWAY_MS: u64 = 300;
const PRESENT_MS: u64 = 700;
const LOOK_MS: u64 = 100;

/// One storm.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Storm {
    policy: String,
    /// Of the crowd.
    tasks: usize,
    unplugs: bool,
    /// After so long without a turn the kernel ejects the scheduler.
    watchdog_s: u64,
    seconds: u64,
}

/// What a scheduler was after one.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct After {
    /// How often a CPU was taken away, and the longest that the kernel took for it, in seconds.
    unplugged: u64,
    unplug_s: f64,
    /// Processes made meanwhile, on the whole machine.
    forks: u64,
    /// CPU time of each client, in us.
    used: Vec<u64>,
    /// The longest that one of those with a client of its own went without a turn, in seconds; to a look.
    wait_s: f64,
    /// What failed: nothing, where all went well.
    error: String,
}

fn set_online(on: bool) -> Result<()> {
    std::fs::write(ONLINE, if on { "1" } else { "0" }).with_context(|| format!("write to {ONLINE}"))
}

/// stress-ng in a cgroup, by a shell that goes there first.
fn stress_ng(group: &Path, seconds: u64) -> Result<Child> {
    let line = format!(
        "echo 0 >{}/cgroup.procs; exec stress-ng --quiet --timeout {seconds}s --affinity 4 --affinity-rand --fork 4 --switch 2 --yield 2",
        group.display()
    );
    Command::new("sh").args(["-c", &line]).stdin(Stdio::null()).spawn().context("start stress-ng")
}

/// Since when each has done nothing more.
struct Waits {
    counts: Vec<(u64, f64)>,
    longest: Vec<f64>,
}

impl Waits {
    fn new(count: usize) -> Self {
        Self { counts: vec![(0, 0.0); count], longest: vec![0.0; count] }
    }

    fn look(&mut self, at_s: f64, counts: &[u64]) {
        for ((known, longest), &count) in self.counts.iter_mut().zip(&mut self.longest).zip(counts) {
            *longest = longest.max(at_s - known.1);
            if known.0 != count {
                *known = (count, at_s);
            }
        }
    }

    fn longest(&self) -> f64 {
        self.longest.iter().copied().fold(0.0, f64::max)
    }
}

/// Takes the second CPU away and gives it back, again and again. How often, and the longest that the kernel took for it, in seconds.
fn unplug_until(end: Instant) -> Result<(u64, f64)> {
    stand_above(true)?;
    let (mut times, mut longest) = (0, 0.0_f64);
    while clock::now() < end {
        clock::sleep(Nanos::from_millis(PRESENT_MS));
        let begun = clock::now();
        set_online(false)?;
        longest = longest.max(clock::now().since(begun).as_secs_f64());
        times += 1;
        clock::sleep(Nanos::from_millis(AWAY_MS));
        set_online(true)?;
    }
    Ok((times, longest))
}

/// Looks at `clients` until `end`, or until the kernel has let go of the scheduler.
fn watch(clients: &Clients, began: Instant, end: Instant) -> Result<(Waits, String)> {
    stand_above(true)?;
    let mut waits = Waits::new(COMPUTING.len());
    let mut error = String::new();
    while clock::now() < end && error.is_empty() {
        clock::sleep(Nanos::from_millis(LOOK_MS));
        let at_s = clock::now().since(began).as_secs_f64();
        waits.look(at_s, &clients.counts());
        let state = std::fs::read_to_string(STATE).context("read the state")?;
        if state.trim() != "enabled" {
            error = format!("after {at_s:.1} s the kernel says {}", state.trim());
        }
    }
    stand_above(false)?;
    Ok((waits, error))
}

/// Carries one out, in the machine.
fn storm(storm: &Storm) -> Result<After> {
    let own = COMPUTING.len();
    let slots = slots(own + storm.tasks)?;
    let clients = Clients::fork(slots, samples(0)?)?;
    let groups = Groups::new(&SHARES)?;
    for (at, &pid) in clients.pids.iter().enumerate() {
        groups.put(COMPUTING.get(at).copied().unwrap_or(CROWD), pid)?;
    }
    let scheduler = Scheduler::scx(&storm.policy, SHARES.into_iter(), storm.watchdog_s)?;
    let (began, forks, used) = (clock::now(), counted("processes")?, groups.usage()?);
    let end = began + Nanos::from_secs(storm.seconds);
    let mut stress = stress_ng(groups.dir(STORM), storm.seconds)?;
    (0..slots.len()).for_each(|id| clients.open(id));
    let (unplugged, watched) = std::thread::scope(|scope| {
        let unplugs = storm.unplugs.then(|| scope.spawn(|| unplug_until(end)));
        let watched = watch(&clients, began, end);
        (unplugs.map_or(Ok((0, 0.0)), |unplugs| unplugs.join().expect("it does not panic")), watched)
    });
    let ((waits, error), (unplugged, unplug_s)) = (watched?, unplugged?);
    let mut after = After { unplugged, unplug_s, error, ..After::default() };
    after.forks = counted("processes")? - forks;
    after.used = groups.usage()?.iter().zip(&used).map(|(to, from)| to - from).collect();
    after.wait_s = waits.longest();
    drop(clients);
    let ended = stress.wait().context("wait for stress-ng")?;
    if !ended.success() {
        after.error = format!("{} stress-ng: {ended}", after.error);
    }
    if let Err(e) = scheduler.end() {
        after.error = format!("{} {e:#}", after.error);
    }
    println!("{}: {after:?}", storm.policy);
    Ok(after)
}

/// Those of a job, in the machine.
pub(super) fn inside(storms: &[Storm]) -> Result<Vec<After>> {
    storms.iter().map(|of| storm(of).with_context(|| format!("a storm under {}", of.policy))).collect()
}

/// Those of a machine with these options.
fn run(study: &Study, options: &[&str], storms: &[Storm]) -> Result<Vec<After>> {
    let job = Job { storms: storms.to_vec(), ..Job::default() };
    let all: Vec<After> = study.in_machine(options, &job, "storms.json")?;
    ensure!(all.len() == storms.len(), "{} of {} storms came out of the machine", all.len(), storms.len());
    Ok(all)
}

/// Storms under several policies, on two CPUs, and on one that is slow.
pub(super) fn storms(s: &mut Setting, study: &Study) -> Result<()> {
    let policies = &POLICIES[..s.pick(2, POLICIES.len())];
    let (crowd, watchdog_s) = (s.pick(300, 2_000), s.pick(8, 20));
    let mut storms = Vec::new();
    for policy in policies.iter().map(|policy| (*policy).to_owned()) {
        let (few, seconds) = (40, 60);
        if !s.quick {
            storms.push(Storm { policy: policy.clone(), tasks: few, unplugs: true, watchdog_s: 20, seconds });
        }
        let seconds = s.pick(10, 60);
        storms.push(Storm { policy, tasks: crowd, unplugs: false, watchdog_s, seconds });
    }
    let slow = |policy: &&str| Storm {
        policy: (*policy).to_owned(),
        tasks: CROWD_SLOW,
        unplugs: false,
        watchdog_s: 20,
        seconds: 60,
    };
    let slow: Vec<Storm> = s.pick(&QUICK_SLOW[..], &POLICIES[..]).iter().map(slow).collect();
    let two_cpus = ["--profile", "two-cpus-counted", "--shift", &SHIFT_TWO.to_string()];
    let mut all = run(study, &two_cpus, &storms)?;
    let fast = storms.len();
    all.extend(run(study, &["--shift", &SHIFT_SLOW.to_string()], &slow)?);
    storms.extend(slow);
    s.page.heading("Storms");
    s.page.text(&format!(
        "On two CPUs, which take turns, {} ns an instruction: three clients of one task that compute (shares 10, 20 and 1), stress-ng (share 30: four \
         processes that fork all the time, four that change their affinity at random, pairs that switch, two that yield), and a crowd that \
         computes (share 30); and either the second CPU is taken away for {AWAY_MS} ms again and again (not in quick runs), or the crowd is one of \
         {crowd}. (Both at once is too much for this machine: under the kernel's own scheduler, too, taking a CPU away from 2,000 took more than five minutes.) What \
         counts is that the kernel's watchdog ({watchdog_s} s for the large crowd, else 20 s) lets the scheduler go on, and that nothing fails. \
         The wait is the longest of the three without a turn, as seen every {LOOK_MS} ms; parts are of what the five used: a task that has waited for half \
         the watchdog's time has a turn whatever its client's share, so that a large crowd has more than its part. The last rows are of a machine with one CPU \
         of {} ns an instruction: there the kernel ended the scheduler under PBS after 43 s, for a stall of RCU, while whoever was taken \
         off the CPU as a reader waited with its crowd.",
        1 << SHIFT_TWO,
        1 << SHIFT_SLOW
    ));
    let mut table = Vec::new();
    for (at, (storm, after)) in storms.iter().zip(&all).enumerate() {
        let machine = if at < fast { "two CPUs" } else { "a slow one" };
        let sum: u64 = after.used.iter().sum();
        let parts: Vec<String> =
            after.used.iter().map(|&used| number(used as f64 / sum.max(1) as f64 * 100.0)).collect();
        table.push(vec![
            machine.to_owned(),
            storm.policy.clone(),
            storm.tasks.to_string(),
            storm.seconds.to_string(),
            if after.error.is_empty() { "there".to_owned() } else { after.error.trim().to_owned() },
            after.forks.to_string(),
            after.unplugged.to_string(),
            number(after.unplug_s),
            number(after.wait_s),
            parts.join(" : "),
        ]);
        let crowd = format!(
            "{machine}, {} s of a storm with a crowd of {} under {}",
            storm.seconds, storm.tasks, storm.policy
        );
        let failed = f64::from(u8::from(!after.error.is_empty()));
        s.page.goal(format!("{crowd}: ejected, or something failed"), Limit::Most(0.0), failed, "times");
        if storm.unplugs {
            s.page.goal(
                format!("{crowd}: a CPU taken away"),
                Limit::Least(2.0),
                after.unplugged as f64,
                "times",
            );
        }
    }
    s.page.table(
        "CPUs | policy | crowd | s | afterwards | processes made | times unplugged | longest that took, s | longest wait, s | parts of 10 : 20 : 30 : 30 : 1, %",
        &table,
    );
    Ok(())
}
