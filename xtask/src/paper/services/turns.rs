//! The least that a program does which divides by suspending: one client after the other has the CPU for its share of a cycle, by
//! the clock, while the others are frozen or stopped. It reads nothing of what they use (by signals, who there is): whoever sleeps in
//! its turn leaves the CPU idle, and who is made while the rest is stopped runs on until the next time. What this costs whoever holds clients pays as well, and what a client's work costs more for being held is the same.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use divvy_linux::{Pid, ProcessRef, Signal, clock};
use divvy_policy::{Instant, Nanos};

use crate::client;

/// The first argument of a copy of this program that does so.
pub(crate) const TURNS: &str = "turns-of-services";
/// As divvy's, where nothing else is asked for.
const QUANTUM: Nanos = Nanos::from_millis(10);

/// By what clients are held; a word of the copy's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Means {
    Freezer,
    Signals,
}

impl Means {
    const ALL: [Self; 2] = [Self::Freezer, Self::Signals];

    const fn word(self) -> &'static str {
        match self {
            Self::Freezer => "freezer",
            Self::Signals => "signals",
        }
    }
}

/// The arguments of a copy that divides clients of these shares, whose cgroups are these.
pub(super) fn arguments(means: Means, shares: &[u64], cgroups: &[PathBuf]) -> Vec<String> {
    let clients = shares.iter().zip(cgroups).map(|(share, dir)| format!("{share}:{}", dir.display()));
    let own = std::process::id().to_string();
    [TURNS, &own, means.word()].map(str::to_owned).into_iter().chain(clients).collect()
}

/// One client.
struct Client {
    turn: Nanos,
    dir: PathBuf,
    freezer: Option<File>,
    /// Opened once.
    members: BTreeMap<i32, ProcessRef>,
}

impl Client {
    fn of(word: &str, means: Means) -> Result<Self> {
        let (share, dir) = word.split_once(':').context("a client is SHARE:CGROUP")?;
        let (share, dir): (u64, PathBuf) = (share.parse()?, dir.into());
        let open = || File::options().write(true).open(dir.join("cgroup.freeze"));
        let freezer = (means == Means::Freezer).then(open).transpose();
        let freezer = freezer.with_context(|| format!("open {}/cgroup.freeze", dir.display()))?;
        Ok(Self { turn: Nanos(share * QUANTUM.0), dir, freezer, members: BTreeMap::new() })
    }

    fn hold(&mut self, held: bool) -> Result<()> {
        if let Some(freezer) = &mut self.freezer {
            freezer.rewind()?;
            return Ok(freezer.write_all(if held { b"1" } else { b"0" })?);
        }
        let listed = std::fs::read_to_string(self.dir.join("cgroup.procs"))?;
        let mut before = std::mem::take(&mut self.members);
        for pid in listed.lines().filter_map(|line| line.parse().ok()) {
            let known = before.remove(&pid);
            let open = || ProcessRef::open(Pid::from_raw(pid)?).ok().flatten();
            // Whoever has ended meanwhile is not held.
            let Some(process) = known.or_else(open) else { continue };
            let _ = process.signal(if held { Signal::STOP } else { Signal::CONT });
            self.members.insert(pid, process);
        }
        Ok(())
    }
}

/// Divides until it is killed, or whoever started it ends; then whoever is held stays so until the cgroups are swept.
pub(crate) fn work(mut args: impl Iterator<Item = String>) -> Result<()> {
    client::end_with_parent(&mut args)?;
    let means = args.next();
    let Some(means) = Means::ALL.into_iter().find(|known| Some(known.word()) == means.as_deref()) else {
        bail!("{TURNS}: no such means: {means:?}");
    };
    let mut clients = args.map(|word| Client::of(&word, means)).collect::<Result<Vec<_>>>()?;
    clients.iter_mut().try_for_each(|client| client.hold(true))?;
    let mut until = clock::now();
    loop {
        for client in &mut clients {
            client.hold(false)?;
            until = until.max(clock::now()) + client.turn;
            sleep_until(until);
            client.hold(true)?;
        }
    }
}

fn sleep_until(time: Instant) {
    let left = time.since(clock::now());
    if left > Nanos::ZERO {
        clock::sleep(left);
    }
}
