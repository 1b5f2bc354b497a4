//! Killed at any moment on a busy machine, divvy leaves nobody suspended: shells that sleep, shells that make children,
//! pipelines, and signals that come apart.
//!
//! `DIVVY_TEST_KILLS=1000` makes it longer.

use std::process::Stdio;
use std::time::{Duration, Instant};

use divvy_linux::procfs;
use rustix::process::{Signal, kill_process};

use crate::harness::{Process, Running, SPIN, Sandbox, as_both_users, eventually, one_cpu};

as_both_users! {
    killed_while_the_machine_is_busy
    killed_with_the_guardian_while_the_machine_is_busy
}

/// Kills of each user and kind, unless the environment asks for more.
const KILLS: u64 = 15;
/// The latest moment of a kill, after the start of the process.
const LATEST: Duration = Duration::from_millis(250);
/// The longest wait between two of divvy's signals, us: as long as a hand-over of the CPU on a busy machine.
const DELAYS_US: [&str; 3] = ["0", "300", "5000"];

fn kills() -> u64 {
    std::env::var("DIVVY_TEST_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(KILLS)
}

/// SplitMix64: any order of moments will do, and the seed tells it again.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed >> 16) % n
    }
}

/// Others who compute.
struct Busy {
    strangers: Sandbox,
    children: Vec<std::process::Child>,
}

impl Busy {
    /// One that computes in this session and one in another.
    fn start() -> Self {
        let strangers = Sandbox::own();
        let mut here = strangers.command("sh");
        here.args(["-c", SPIN]);
        let mut there = strangers.command("setsid");
        there.args(["sh", "-c", SPIN]);
        let children = [here, there].into_iter().map(|mut c| c.spawn().expect("a shell")).collect();
        Self { strangers, children }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.strangers.kill_clients();
        for child in &mut self.children {
            let _ = child.wait();
        }
    }
}

fn start(sandbox: &Sandbox, delay: &str) -> Running {
    let sleeper = "while :; do sleep 0.003; done # client";
    let forks = "while :; do /bin/true; done # client";
    let pipeline = "while :; do echo line; done | while read -r l; do :; done # client";
    let family = format!("setsid sh -c '{SPIN} # client' & while :; do /bin/true; done # client");
    let words = [
        format!("2:{sleeper}"),
        format!("1:{sleeper}"),
        format!("3:{forks}"),
        format!("1:{pipeline}"),
        format!("1:{family}"),
        format!("1:{SPIN} # client"),
    ];
    let cpu = one_cpu();
    let mut args = vec!["share", "--quiet", "--cpus", &cpu, "--quantum", "5ms"];
    args.extend(words.iter().map(String::as_str));
    let mut command = sandbox.divvy(&args);
    command.env("DIVVY_TEST_DELAY_US", delay).stdout(Stdio::null()).stderr(Stdio::null());
    Running { child: command.spawn().expect("start divvy") }
}

/// Waits until nobody stands or has a stop to take yet, and nobody is left who could send any. How long that took.
fn check_nobody_stands(sandbox: &Sandbox, what: &str) -> Duration {
    let begun = Instant::now();
    eventually(what, || {
        let is_to_stand = |p: &Process| {
            p.is_held() || procfs::pending(p.pid).ok().flatten().is_some_and(|pending| pending.has_stop())
        };
        let left = sandbox.processes();
        left.iter().all(|p| p.comm != "divvy-guardian" && !is_to_stand(p)).then_some(())
    });
    begun.elapsed()
}

fn print_spread(what: &str, mut took: Vec<Duration>) {
    took.sort_unstable();
    let at = |part: usize| took[(took.len() - 1) * part / 100];
    println!(
        "{what}: {} kills; nobody stood after: median {:?}, 90 % {:?}, greatest {:?}",
        took.len(),
        at(50),
        at(90),
        at(100)
    );
}

fn killed_while_the_machine_is_busy(sandbox: &Sandbox) {
    let _busy = Busy::start();
    let seed = u64::from(std::process::id());
    let mut random = Random(seed);
    let mut took = Vec::new();
    for round in 0..kills() {
        let delay = DELAYS_US[round as usize % DELAYS_US.len()];
        let after = Duration::from_nanos(random.below(LATEST.as_nanos() as u64));
        let mut running = start(sandbox, delay);
        std::thread::sleep(after);
        running.signal(Signal::KILL);
        running.wait();
        let what = format!("nobody to stand (seed {seed}, round {round}, {after:?}, delays {delay} us)");
        took.push(check_nobody_stands(sandbox, &what));
        sandbox.kill_clients();
    }
    print_spread("divvy", took);
}

fn killed_with_the_guardian_while_the_machine_is_busy(sandbox: &Sandbox) {
    let _busy = Busy::start();
    let seed = u64::from(std::process::id());
    let mut random = Random(seed);
    let mut took = Vec::new();
    for round in 0..kills() {
        let delay = DELAYS_US[round as usize % DELAYS_US.len()];
        let after = Duration::from_nanos(random.below(LATEST.as_nanos() as u64));
        let mut running = start(sandbox, delay);
        std::thread::sleep(after);
        // A stopped divvy cannot put another guardian in its place meanwhile.
        running.signal(Signal::STOP);
        if let Some(guardian) = sandbox.guardian() {
            let _ = kill_process(guardian, Signal::KILL);
        }
        running.signal(Signal::KILL);
        running.wait();
        let begun = Instant::now();
        let outcome = sandbox.run(&["rescue"]);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        let what = format!("nobody to stand (seed {seed}, round {round}, {after:?}, delays {delay} us)");
        check_nobody_stands(sandbox, &what);
        took.push(begun.elapsed());
        sandbox.kill_clients();
    }
    print_spread("divvy and its guardian, then a rescue", took);
}
