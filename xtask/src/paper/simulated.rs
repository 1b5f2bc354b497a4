//! What the simulated experiments share: what reproduces, and work on all CPUs.

use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use divvy_policy::{ClientId, CpuId, Event, Grant, Instant, Policy, Share};
use indicatif::{ProgressBar, ProgressStyle};

use super::experiment::{Testbed, Took};
use super::machine::Machine;
use crate::PaperArgs;

/// Whether a claim of the paper comes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reproduces {
    Yes,
    Partly,
    No,
}

impl Reproduces {
    /// `Yes` where it does, else `No`.
    pub(super) fn when(does: bool) -> Self {
        if does { Self::Yes } else { Self::No }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::Partly => "**partly**",
            Self::No => "**no**",
        }
    }
}

/// Simulated runs: how busy the machine was when they began, and what of the paper's claims came out.
pub(super) struct Simulated {
    load: String,
    claims: String,
}

impl Simulated {
    /// Notes a claim of the paper, and whether it comes out.
    pub(super) fn claim(&mut self, what: &str, paper: &str, ours: &str, reproduces: Reproduces) {
        self.claims += &format!("| {what} | {paper} | {ours} | {} |\n", reproduces.text());
    }
}

impl Testbed for Simulated {
    fn new(_: &PaperArgs) -> Result<Self> {
        Ok(Self { load: load(), claims: String::new() })
    }

    fn before(&self, took: Took) -> Vec<String> {
        vec![format!(
            "Machine: {}. It took {took}. Load average (1, 5, 15 minutes) at the start {}, at the end {}: times were \
             measured beside whatever else ran.",
            Machine::this(cores()).text(),
            self.load,
            load()
        )]
    }

    fn after(&self) -> Option<String> {
        let head = "## What reproduces\n\n| claim | paper | ours | reproduces |\n|---|---|---|---|\n";
        Some(format!("{head}{}", self.claims.trim_end()))
    }
}

/// The load averages, as the kernel writes them.
fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let three: Vec<&str> = text.split_whitespace().take(3).collect();
    if three.is_empty() { "unknown".to_owned() } else { three.join(", ") }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// CPU time that this thread has used, in seconds; not a number where the kernel does not tell.
pub(super) fn cpu_seconds() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns: Option<u64> = text.split_whitespace().next().and_then(|ns| ns.parse().ok());
    ns.map_or(f64::NAN, |ns| ns as f64 / 1e9)
}

/// `work` of each item, on all CPUs, with a progress bar; the results are in the order of the items.
pub(super) fn on_all_cpus<T: Sync, R: Send>(
    name: &str,
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let style = ProgressStyle::with_template("{msg:12} [{bar:40}] {pos}/{len} {eta}");
    let bar = ProgressBar::new(items.len() as u64)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        .with_message(name.to_owned());
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(items.len())));
    std::thread::scope(|scope| {
        for _ in 0..cores().min(items.len()) {
            scope.spawn(|| {
                while let Some((at, item)) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    items.get(at).map(|item| (at, item))
                } {
                    let result = work(item);
                    bar.inc(1);
                    done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((at, result));
                }
            });
        }
    });
    bar.finish();
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

/// A policy with clients that never block, on one CPU.
pub(super) struct Busy<P> {
    policy: P,
    now: Instant,
    grant: Grant,
}

impl<P: Policy<Decision = Grant>> Busy<P> {
    /// Clients 0, 1, ... with `shares` join one after another, `apart` ns between them, and the first of them runs.
    ///
    /// # Errors
    /// Where the policy refuses one.
    pub(super) fn new(mut policy: P, shares: impl Iterator<Item = u64>, apart: u64) -> Result<Self> {
        let mut now = Instant(0);
        for (id, share) in (0..).zip(shares) {
            let client = ClientId(id);
            let share = Share::new(share).map_err(|_| anyhow::anyhow!("a share out of range"))?;
            for event in [Event::Join { client, share }, Event::Wake { client }] {
                policy.on_event(now, event).map_err(|e| anyhow::anyhow!("{event:?}: {e:?}"))?;
            }
            now = Instant(now.0 + apart);
        }
        policy.on_event(now, Event::Free { cpu: CpuId(0) }).map_err(|e| anyhow::anyhow!("{e:?}"))?;
        let grant = policy.poll_decision(now).ok_or_else(|| anyhow::anyhow!("nobody runs"))?;
        Ok(Self { policy, now, grant })
    }

    /// The grant that is being run.
    pub(super) fn grant(&self) -> Grant {
        self.grant
    }

    /// Runs the grant to its end and takes the next decision.
    #[inline]
    pub(super) fn step(&mut self) {
        let Grant { client, slice, cpu } = self.grant;
        self.now = self.now + slice;
        let charged = self.policy.on_event(self.now, Event::Charge { client, used: slice });
        let freed = self.policy.on_event(self.now, Event::Free { cpu });
        debug_assert!(charged.is_ok() && freed.is_ok(), "a policy takes what it granted");
        if let Some(grant) = self.policy.poll_decision(self.now) {
            self.grant = grant;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use divvy_policy::dispatch::wrr::{Wrr, WrrParams};

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<u64> = (0..100).collect();
        let squares = on_all_cpus("squares", &items, |n| Ok(n * n)).expect("no item fails");
        assert_eq!(squares, items.iter().map(|n| n * n).collect::<Vec<_>>());
        assert!(on_all_cpus("fails", &items, |&n| if n == 7 { anyhow::bail!("7") } else { Ok(n) }).is_err());
    }

    #[test]
    fn a_busy_policy_runs_its_schedule() {
        let wrr = Wrr::new(WrrParams::default()).expect("parameters in range");
        let mut busy = Busy::new(wrr, [3, 2, 1].into_iter(), 0).expect("shares above 0");
        let mut schedule = Vec::new();
        for _ in 0..6 {
            schedule.push(busy.grant().client.0);
            busy.step();
        }
        assert_eq!(schedule, [0, 0, 0, 1, 1, 2]);
    }
}
