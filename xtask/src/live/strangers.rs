//! Strangers: processes that compute beside the clients, come and go, and are nobody's clients.
//!
//! They are kept by a process of their own, `xtask strangers PARENT SEED MOST AWAY_MS STAY_MS KIND CPUS`, so that neither the
//! scheduler nor the clients know of them.

use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};
use divvy_linux::{CpuMask, Pid, clock};
use divvy_policy::{Instant, Nanos};
use divvy_sim::rng::{SplitMix64, exponential};

use super::{Kind, Strangers};
use crate::client;

/// The hidden subcommand that keeps strangers.
pub(crate) const STRANGERS: &str = "strangers";
/// Mean time for which one that wanders stays on a CPU, ms.
const WANDER_MS: u64 = 30;

/// Strangers, until it is dropped.
#[derive(Debug)]
pub(crate) struct Crowd(Child);

impl Crowd {
    /// Starts strangers on `cpus`.
    ///
    /// # Errors
    /// Where the process that keeps them cannot be started.
    pub(crate) fn start(strangers: Strangers, cpus: &[u32]) -> Result<Self> {
        let own = std::env::current_exe().context("find this program")?;
        let numbers = [strangers.seed, u64::from(strangers.most), strangers.away_ms, strangers.stay_ms];
        let cpus: Vec<String> = cpus.iter().map(u32::to_string).collect();
        let child = Command::new(own)
            .args([STRANGERS.to_owned(), std::process::id().to_string()])
            .args(numbers.map(|n| n.to_string()))
            .args([serde_json::to_string(&strangers.kind)?, cpus.join(",")])
            .stdin(Stdio::null())
            .spawn()
            .context("start strangers")?;
        Ok(Self(child))
    }
}

impl Drop for Crowd {
    /// Ends the strangers: the kernel ends each when the process that keeps them does.
    fn drop(&mut self) {
        // What cannot be killed has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A place for a stranger.
struct Place {
    child: Option<Child>,
    kind: Kind,
    /// When it comes or goes.
    next: Instant,
    /// When it moves.
    moves: Instant,
}

/// Keeps strangers until it is killed.
pub(crate) fn keep_strangers(mut args: impl Iterator<Item = String>) -> Result<()> {
    client::end_with_parent(&mut args)?;
    let mut number = |what: &str| client::number(&mut args, what);
    let (seed, most) = (number("SEED")?, number("MOST")?);
    let (away, stay) = (number("AWAY_MS")?, number("STAY_MS")?);
    let kind: Kind = serde_json::from_str(&args.next().context("KIND is missing")?)?;
    let mask: CpuMask = args.next().context("CPUS is missing")?.parse()?;
    let cpus: Vec<u32> = mask.iter().collect();
    if cpus.is_empty() {
        bail!("no CPU for strangers");
    }
    let mut rng = SplitMix64::new(seed);
    let mut time = |mean_ms: u64| Nanos((exponential(&mut rng) * mean_ms as f64 * 1e6) as u64);
    let kinds = [Kind::Free, Kind::Pinned, Kind::Wander];
    let begun = clock::now();
    let mut places: Vec<Place> = (0..most as usize)
        .map(|i| {
            let kind = if kind == Kind::All { kinds[i % kinds.len()] } else { kind };
            Place { child: None, kind, next: begun + time(away), moves: Instant::ZERO }
        })
        .collect();
    let mut turn = 0;
    loop {
        let now = clock::now();
        for place in &mut places {
            let comes = place.child.is_none();
            let (due, moves) = (place.next <= now, place.kind == Kind::Wander && place.moves <= now);
            if due && !comes {
                if let Some(mut child) = place.child.take() {
                    child.kill()?;
                    child.wait()?;
                }
                place.next = now + time(away);
            } else if due || moves && !comes {
                // In turn: which CPU is no matter of luck, only when.
                turn += 1;
                let only = CpuMask::only(cpus[turn % cpus.len()]);
                if comes {
                    place.child = Some(stranger()?);
                    place.next = now + time(stay);
                }
                place.moves = now + time(WANDER_MS);
                let on = if place.kind == Kind::Free { mask } else { only };
                let pid = place.child.as_ref().and_then(|c| Pid::from_raw(c.id() as i32));
                on.apply(pid.context("a stranger's pid")?)?;
            }
        }
        let wake = places.iter().map(|p| match p.kind {
            Kind::Wander if p.child.is_some() => p.next.min(p.moves),
            _ => p.next,
        });
        clock::sleep(wake.min().unwrap_or(Instant(u64::MAX)).since(clock::now()));
    }
}

fn stranger() -> Result<Child> {
    let own = std::env::current_exe().context("find this program")?;
    let pid = std::process::id().to_string();
    Command::new(own).args([client::SPIN, &pid]).spawn().context("start a stranger")
}
