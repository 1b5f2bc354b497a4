//! Where the dashboard's data come from, and what they are.

use divvy_api::types::Uses;
pub(crate) use divvy_engine::ClientState as State;
use divvy_policy::Nanos;
use serde::Serialize;

/// The version of what `divvy top --json` prints.
pub(crate) const SNAPSHOT_VERSION: u32 = 1;

/// What is there at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Snapshot {
    pub(crate) version: u32,
    /// Where it comes from.
    pub(crate) source: String,
    pub(crate) policy: String,
    pub(crate) quantum_ns: u64,
    /// How many CPUs are divided.
    pub(crate) cpus: u32,
    /// Since the scheduler began.
    pub(crate) now_ns: u64,
    /// Nothing more will come.
    pub(crate) ended: bool,
    /// Errors of cycles, where the source knows them.
    pub(crate) cycles: Option<Cycles>,
    #[serde(rename = "self")]
    pub(crate) own: Own,
    pub(crate) clients: Vec<Client>,
}

/// Errors of the cycles that count, as fractions: RMS over the clients of (service - due) / due.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Cycles {
    pub(crate) count: u64,
    pub(crate) median: f64,
    pub(crate) mean: f64,
    pub(crate) max: f64,
}

/// What divvy itself has cost, in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Own {
    /// `None` where the source does not know.
    pub(crate) cpu_ns: Option<u64>,
    pub(crate) wakeups: u64,
    pub(crate) reads: u64,
    pub(crate) signals: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Client {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// What kind of row it is.
    #[serde(skip_serializing_if = "Kind::is_client")]
    pub(crate) kind: Kind,
    /// Groups and runs that it is in.
    #[serde(skip)]
    pub(crate) depth: usize,
    /// Where it stands in the tree.
    #[serde(skip)]
    pub(crate) order: usize,
    /// Shares of all that is beside it, its own among them.
    #[serde(skip)]
    pub(crate) beside: u64,
    /// Whether anybody beside it had CPU time: before that, there is nothing that it could have a part of.
    #[serde(skip)]
    pub(crate) measured: bool,
    /// What belongs to it: `tree:123`, `user:alice`; empty where the source does not say.
    pub(crate) selector: String,
    pub(crate) share: u64,
    /// The most CPU time that it may have, in millionths of one CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limit_ppm: Option<u64>,
    /// What the share comes to on these CPUs, in the same unit.
    pub(crate) effective_share: f64,
    /// Share as a fraction of all shares.
    pub(crate) requested_fraction: f64,
    /// Effective share as a fraction of all effective shares.
    pub(crate) effective_fraction: f64,
    /// CPU time as a fraction of that of all clients.
    pub(crate) achieved_fraction: f64,
    /// `achieved / effective - 1`.
    pub(crate) relative_error: f64,
    pub(crate) service_ns: u64,
    pub(crate) state: State,
    /// CPUs that it can use at once.
    pub(crate) width: u32,
    /// What it has of memory and disks.
    #[serde(skip_serializing_if = "Uses::is_unknown")]
    pub(crate) uses: Uses,
    /// Processes that may not be signalled.
    pub(crate) not_permitted: u32,
    /// Its processes.
    pub(crate) nr_members: usize,
    /// The first of them; `None` where the source does not know them.
    pub(crate) members: Option<Vec<Member>>,
}

/// What a row of the dashboard is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    #[default]
    Client,
    /// Of clients: its numbers are sums over theirs.
    Group,
    /// A `divvy share`, above its tasks.
    Run,
    /// One of these.
    Task,
}

impl Kind {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
    fn is_client(&self) -> bool {
        *self == Self::Client
    }

    /// Whether its CPU time is its own, and not that of rows below it.
    pub(crate) fn is_leaf(self) -> bool {
        matches!(self, Self::Client | Self::Task)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Member {
    pub(crate) pid: i32,
    pub(crate) name: String,
    pub(crate) state: String,
    /// Whether divvy may signal it.
    pub(crate) permitted: bool,
}

/// What a user can change about a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Share(u64),
    /// Paused: held until it is resumed; its share goes to the others.
    Pause(bool),
}

/// Where snapshots come from. It may block; it has a thread of its own.
pub(crate) trait Source: Send {
    /// What is there now. `elapsed` is how long the dashboard has been looking, without the time in which it was frozen.
    ///
    /// # Errors
    /// One line for the user. The dashboard goes on with what it has and asks again.
    fn snapshot(&mut self, elapsed: Nanos) -> Result<Snapshot, String>;

    /// Changes a client; says in one line what was done.
    ///
    /// # Errors
    /// One line for the user: what cannot be done, and what can.
    fn change(&mut self, client: u32, change: Change) -> Result<String, String>;
}
