//! What it costs divvyd to follow what very many clients are worth, with cgroups of the kernel's.

use anyhow::{Context as _, Result, anyhow};
use divvy_daemon::measured::{self, Load};
use serde::{Deserialize, Serialize};

use crate::client::number;

/// What came of it.
#[derive(Debug, Serialize, Deserialize)]
pub(in super::super) struct Leaves {
    pub(in super::super) clients: usize,
    pub(in super::super) users: usize,
    pub(in super::super) changes: usize,
    /// A second: clients whose values were told, times that something was written, files that were.
    pub(in super::super) told: f64,
    pub(in super::super) passes: f64,
    pub(in super::super) written: f64,
    /// Of a CPU, as fractions: to work values out, and to write them.
    pub(in super::super) values: f64,
    pub(in super::super) writes: f64,
    /// From a change to its weight, ms: on average, and at the most.
    pub(in super::super) late_ms: [f64; 2],
}

/// `figleaves SECONDS CLIENTS USERS CHANGES`: so many fall asleep or wake each second.
pub(super) fn run(mut args: impl Iterator<Item = String>) -> Result<Leaves> {
    let seconds = number(&mut args, "SECONDS")?;
    let clients = usize::try_from(number(&mut args, "CLIENTS")?)?;
    let users = usize::try_from(number(&mut args, "USERS")?)?;
    let changes = usize::try_from(number(&mut args, "CHANGES")?)?;
    let dir = tempfile::tempdir().context("make a directory for the market")?;
    let load = Load { clients, users, changes_per_second: changes, seconds, plain: None };
    let cost = measured::leaves(&load, dir.path()).map_err(|why| anyhow!(why))?;
    let wall = cost.wall_ns.max(1) as f64;
    let a_second = |n: u64| n as f64 * 1e9 / wall;
    Ok(Leaves {
        clients,
        users,
        changes,
        told: a_second(cost.told),
        passes: a_second(cost.passes),
        written: a_second(cost.written),
        values: cost.values_ns as f64 / wall,
        writes: cost.writes_ns as f64 / wall,
        late_ms: [cost.late_ns.0 as f64 / 1e6, cost.late_ns.1 as f64 / 1e6],
    })
}
