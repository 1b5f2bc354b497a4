//! What the API's requests and answers are made of. Their document, `docs/openapi.json`, is made
//! of them (`tests/openapi.rs`).
//!
//! Times are in nanoseconds, fractions numbers with 1 for all. Requested, effective and achieved are three different
//! fractions: what the shares say, what the CPUs and the clients' threads allow, and what was measured.

pub use divvy_engine::{ClientState, Exit};
use divvy_linux::CpuMask;
pub use divvy_linux::{Explanation, Finding, Status as FindingStatus};
use serde::{Deserialize, Deserializer, Serialize};

/// The largest share that a client can ask for: more only makes cycles too long to come to an end.
pub const SHARE_MAX: u64 = 1_000_000;

/// What a batch system's plugin and divvy expect of each other, as a number: raised where a plugin of before would be misunderstood.
pub const PLUGIN_INTERFACE: u32 = 1;
/// The least limit, 1 % of one CPU, in millionths.
pub const LIMIT_PPM_MIN: u64 = 10_000;
/// The greatest, 4096 CPUs.
pub const LIMIT_PPM_MAX: u64 = 4_096_000_000;
/// Members that a client is listed with, unless more are asked for.
pub const MEMBERS_SHOWN: usize = 64;

/// What may be left out, and is not nothing where it is given.
pub(crate) fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// The scheduler itself: `GET /v1/status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Status {
    /// Version of the divvyd that answers.
    pub version: String,
    /// Its process.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub pid: i32,
    /// The name of its machine, as the kernel has it; empty from a divvyd that does not say.
    #[serde(default)]
    pub host: String,
    /// Another one for each divvyd that was ever started; empty from one that does not say.
    #[serde(default)]
    pub instance: String,
    /// Its policy, with parameters where it has any.
    pub policy: String,
    /// The options of its command line that say how it divides, as `--cpus 0-1`; none from one that does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Vec<String>>,
    /// The administrator's policy, of the system's divvyd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_file: Option<PolicyInForce>,
    /// By what clients are held, or weighed.
    #[serde(default)]
    pub backend: BackendInfo,
    /// CPU time of one share in one cycle.
    #[cfg_attr(feature = "schema", schemars(range(min = 1_000_000)))]
    pub quantum_ns: u64,
    /// The CPUs that it divides, by the kernel's numbers.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub cpus: Vec<u32>,
    /// Time since it began.
    pub uptime_ns: u64,
    /// How long ago all of this was so: mostly less than 20 ms, and 250 ms at most.
    #[serde(default)]
    pub age_ns: u64,
    /// What it has cost.
    #[serde(rename = "self")]
    pub own: OwnCost,
    /// Clients that have not left.
    pub clients: usize,
    /// How much of the time all clients' processes waited, with the back ends that use cgroups. Looked at
    /// once a second at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pressure: Vec<Pressure>,
}

/// The administrator's policy file, and whether what it says holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyInForce {
    /// The file.
    pub path: String,
    /// There was none when it was last read: the defaults hold.
    pub is_default: bool,
    /// It was changed, made or removed since it was last read: that holds from a reload on.
    pub changed: bool,
    /// It was removed since: a reload, or the next start, goes by the defaults, or is refused where `--policy-file` named it.
    #[serde(default)]
    pub gone: bool,
    /// What its `[scheduler]` or `[presence]` says is not what divvyd was started with: that holds from the next start on.
    #[serde(default)]
    pub from_next_start: bool,
    /// Why what it says was not taken when it was last read: what held before that holds. None where it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// By what clients are held, or weighed, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Backend"))]
pub struct BackendInfo {
    /// What `--backend` said.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["signals", "freezer", "cgroup", "kernel", "auto"])))]
    pub asked: String,
    /// What is used.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["signals", "freezer", "cgroup", "kernel"])))]
    pub used: String,
    /// Why that one.
    pub why: String,
    /// Whether a client can be kept to some of the CPUs (`cpus` of [`Bounds`]).
    #[serde(default)]
    pub keeps_cpus: bool,
    /// The CPUs to which whoever starts a client has to keep it (`sched_setaffinity`): those that are divided, where the machine
    /// has more and no cpuset keeps clients to them.
    #[serde(default, with = "crate::cpus", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub starts_on: Option<CpuMask>,
    /// What gives effect to rights, resource by resource: to memory and disk only where there is a market.
    #[serde(default)]
    pub enforced: Vec<Enforcement>,
}

/// What gives effect to rights to one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Enforcement {
    /// To what.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["cpu", "memory", "disk"])))]
    pub resource: String,
    /// By which signals or files of cgroups; null where nothing does.
    #[serde(default)]
    pub by: Option<String>,
    /// What is to be known beside that: why not, how far, and what would help. Mostly empty.
    #[serde(default)]
    pub note: String,
}

impl std::fmt::Display for Enforcement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.by, self.note.as_str()) {
            (Some(by), "") => write!(f, "by {by}"),
            (Some(by), note) => write!(f, "by {by}; {note}"),
            (None, note) => write!(f, "rights are kept and not enforced: {note}"),
        }
    }
}

/// How much of the time processes waited for a resource: the kernel's pressure stall information. Fractions are of the time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pressure {
    /// `cpu`, `memory` or `disk`.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["cpu", "memory", "disk"])))]
    pub resource: String,
    /// At least one waited, in the last 10 s.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub some_avg10: f64,
    /// The same in the last minute.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub some_avg60: f64,
    /// Time for which at least one waited, since the client's cgroup (or that of all clients) was made.
    pub some_total_ns: u64,
    /// All waited, in the last 10 s; not there where the kernel does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub full_avg10: Option<f64>,
    /// Time for which all waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_total_ns: Option<u64>,
}

impl Pressure {
    /// What the kernel tells of the cgroup at `dir`: nothing where there is none.
    #[must_use]
    pub fn of(dir: Option<&std::path::Path>) -> Vec<Self> {
        let told = |(resource, p): (&str, divvy_linux::cgroup::room::Pressure)| Self {
            resource: resource.to_owned(),
            some_avg10: p.some.avg10.0 as f64 / 1e4,
            some_avg60: p.some.avg60.0 as f64 / 1e4,
            some_total_ns: p.some.total.0,
            full_avg10: p.full.map(|full| full.avg10.0 as f64 / 1e4),
            full_total_ns: p.full.map(|full| full.total.0),
        };
        dir.map(divvy_linux::cgroup::pressures).unwrap_or_default().into_iter().map(told).collect()
    }
}

/// What the scheduler itself has cost since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OwnCost {
    /// CPU time of all its threads.
    pub cpu_ns: u64,
    /// CPU time as a fraction of the time of one CPU since it began.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub overhead: f64,
    /// How often its scheduling loop woke.
    pub wakeups: u64,
    /// Looks at a process's clock or state.
    pub reads: u64,
    /// Signals sent, one for a whole process group.
    pub signals: u64,
    /// Scans of the machine's processes for new members.
    pub scans: u64,
}

/// All clients that have not left: `GET /v1/clients`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Clients {
    /// What `achieved_fraction` is measured over: the time since the last change of who takes part or of a share.
    pub window_ns: u64,
    /// How long ago all of this was so, but for the members' states: mostly less than 20 ms, and 250 ms at most. One's own
    /// changes always show.
    #[serde(default)]
    pub age_ns: u64,
    /// By rising id.
    pub clients: Vec<Client>,
    /// Groups of clients, by path: whatever a group is in comes before it. Only from a user's own divvyd.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Group>,
}

/// Clients that have a share together, which is divided among them: a member of [`Clients`], and the answer to
/// `PATCH /v1/groups/{group}`. Numbers are sums over the clients in it and in the groups in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Group {
    /// Its path: `build`, or `build/tests` for a group within a group.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub name: String,
    /// Its share among the clients and groups that are beside it.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = SHARE_MAX)))]
    pub share: u64,
    /// What its clients are to have by their shares, as a fraction of all.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub requested_fraction: f64,
    /// Their effective shares, as a fraction of all effective shares.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub effective_fraction: f64,
    /// Their CPU time, as a fraction of all clients', since the last change.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub achieved_fraction: f64,
    /// `achieved_fraction / effective_fraction - 1`; 0 where nothing was received.
    #[cfg_attr(feature = "schema", schemars(range(min = -1)))]
    pub relative_error: f64,
    /// CPU time of its clients, of those that have left too.
    pub service_ns: u64,
    /// How many they are now.
    pub clients: usize,
    /// Whether all of them are paused.
    pub paused: bool,
}

/// What is to be changed about a group: `PATCH /v1/groups/{group}`. At least one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(extend("minProperties" = 1)))]
#[serde(deny_unknown_fields)]
pub struct GroupChange {
    /// Another share among what is beside it.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = SHARE_MAX)))]
    pub share: Option<u64>,
    /// Hold all its clients until they are resumed, or resume them.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

/// What a client is sure of and what it may not exceed, beside its share and the limit of its CPU time. The kernel keeps it: only
/// the back end `cgroup` has it, but for what is of disks, and `fix` of the refusal says what is missing. In a change, what is not given stays as it is
/// and 0 takes it back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// Part of the CPUs that it has before shares divide the rest, in millionths of all that are divided: 950000 at most, of
    /// all clients together. The system's divvyd issues hard tickets for it, of so many millionths of what the currency has that funds the client (`from`, else its user's own).
    /// An answer shows what a user's own divvyd keeps; the system's tickets are in the market.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(max = 1_000_000)))]
    pub reserve_cpu_ppm: Option<u64>,
    /// Bytes of memory that nobody takes from it while it has no more; only of a user's own divvyd.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub reserve_memory_bytes: Option<u64>,
    /// The same as a part of the memory, in millionths of what the currency has, as for the CPUs; only of the system's divvyd.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(max = 1_000_000)))]
    pub reserve_memory_ppm: Option<u64>,
    /// Part of the disks that it has before shares divide the rest, in millionths of what all clients have together, as for the
    /// CPUs; at the system's divvyd hard tickets, too.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(max = 1_000_000)))]
    pub reserve_disk_ppm: Option<u64>,
    /// Its share of the disks, 1 to [`SHARE_MAX`]; its share where there is none. Only of a user's own divvyd, in which disks are
    /// divided from the first such share or reservation on; by the back end `cgroup` always, where the kernel can.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(max = 1_000_000)))]
    pub disk_share: Option<u64>,
    /// Bytes of memory that it may have at most.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub limit_memory_bytes: Option<u64>,
    /// Bytes a second that it may read, and as many that it may write, of each disk.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub limit_disk_bytes: Option<u64>,
    /// CPUs that it may use, of those that are divided: `0,2-3`; in a change, `all` takes it back.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    #[serde(default, with = "crate::cpus", skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuMask>,
}

impl Bounds {
    /// Whether it says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// These, changed by `change`: what is 0 there is taken back.
    #[must_use]
    pub fn changed_by(self, change: Self) -> Self {
        let of = |had: Option<u64>, gets: Option<u64>| gets.map_or(had, |n| (n > 0).then_some(n));
        Self {
            reserve_cpu_ppm: of(self.reserve_cpu_ppm, change.reserve_cpu_ppm),
            reserve_memory_bytes: of(self.reserve_memory_bytes, change.reserve_memory_bytes),
            reserve_memory_ppm: of(self.reserve_memory_ppm, change.reserve_memory_ppm),
            reserve_disk_ppm: of(self.reserve_disk_ppm, change.reserve_disk_ppm),
            disk_share: of(self.disk_share, change.disk_share),
            limit_memory_bytes: of(self.limit_memory_bytes, change.limit_memory_bytes),
            limit_disk_bytes: of(self.limit_disk_bytes, change.limit_disk_bytes),
            cpus: change.cpus.map_or(self.cpus, |cpus| (!cpus.is_empty()).then_some(cpus)),
        }
    }
}

/// One client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Client {
    /// Never given twice by the same divvyd.
    pub id: u32,
    /// Unique among those that have not left.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 80)))]
    pub name: String,
    /// Which processes it is: `pid:`, `tree:`, `user:`, `group:`, `session:`, `cgroup:`, `name:`, `command:` or `below:` and then
    /// which. A command that divvyd started is a tree.
    pub selector: String,
    /// Whose it is, by name or number; only from a system's divvyd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Its id in the market; only from a system's divvyd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
    /// The group that it is in, by its path; only from a user's own divvyd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// What it asks for, within its group if it is in one; from a system's divvyd, the tickets that its first issuer gave it.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = SHARE_MAX)))]
    pub share: u64,
    /// The most CPU time that it may have, in millionths of one CPU; not there where there is no most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = LIMIT_PPM_MIN, max = LIMIT_PPM_MAX)))]
    pub limit_ppm: Option<u64>,
    /// What else it is sure of, and may not exceed.
    #[serde(default, skip_serializing_if = "Bounds::is_empty")]
    pub bounds: Bounds,
    /// What the share comes to on these CPUs, in the same unit: less where it has too few threads to use it, or a limit. 0
    /// for one that does not take part.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub effective_share: f64,
    /// Share as a fraction of the shares of all that take part: those neither paused nor gone. 0 for one that does not.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub requested_fraction: f64,
    /// Effective share as a fraction of all effective shares. 0 for one that does not take part.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub effective_fraction: f64,
    /// CPU time as a fraction of the CPU time of all clients, both since the last change (`window_ns`).
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub achieved_fraction: f64,
    /// `achieved_fraction / effective_fraction - 1`; 0 where nothing was received or the client does not take part.
    #[cfg_attr(feature = "schema", schemars(range(min = -1)))]
    pub relative_error: f64,
    /// CPU time received since it became a client.
    pub service_ns: u64,
    /// What it does just now.
    pub state: ClientState,
    /// CPUs that it can use at once, as far as is known: its threads that want one.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub width: u32,
    /// Processes that it is known to have.
    pub nr_members: usize,
    /// Of these, those that may not be signalled: they run undivided.
    pub not_permitted: usize,
    /// The first of them: 64, unless another number was asked for, and in a list 512 for all clients together.
    pub members: Vec<Member>,
    /// How its command ended, once it has. Only for commands that divvyd started itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    /// What it has of memory and disks, and is due of them.
    #[serde(default, skip_serializing_if = "Uses::is_unknown")]
    pub uses: Uses,
    /// How much of the time its processes waited, where it is asked for alone and has a cgroup.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pressure: Vec<Pressure>,
    /// Why it left, if not because it ended or was detached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What a client has of memory and disks beside what it is due, as of the last second: by the kernel's books of its cgroup where
/// there are any, else by its processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Uses {
    /// Bytes of memory: what is charged to its cgroup, the cache among it, else what its processes have resident.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Bytes of memory that the kernel keeps for it while it has no more; not there where none are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_due_bytes: Option<u64>,
    /// Bytes a second that it read from disks, over the last second or since it became a client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_read_bytes_per_s: Option<u64>,
    /// Bytes a second that it wrote to disks; without a cgroup, to the cache on their way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_written_bytes_per_s: Option<u64>,
    /// Its part of the disks as a fraction of all clients' that compete, where disks are divided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_due_fraction: Option<f64>,
    /// What it read and wrote as a fraction of what all clients did; not there where nobody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_achieved_fraction: Option<f64>,
}

impl Uses {
    /// Whether nothing is known.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }
}

/// One process of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Member {
    /// Its pid.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub pid: i32,
    /// Its name, as the kernel has it; empty for one that has just ended.
    pub name: String,
    /// What it does.
    pub state: MemberState,
    /// Whether divvyd may signal it.
    pub permitted: bool,
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum MemberState {
    /// Runs or waits for a CPU.
    Running,
    /// Sleeps.
    Asleep,
    /// Stands suspended, by us or by somebody else.
    Suspended,
    /// Has ended.
    Ended,
}

/// Who is to become a client: `POST /v1/clients`. Either `command` or `selector` is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(extend("oneOf" = [{ "required": ["command"] }, { "required": ["selector"] }])))]
#[serde(deny_unknown_fields)]
pub struct NewClient {
    /// What to call it: 1 to 64 characters, no blanks and slashes, not only digits, no `-` at the beginning. Made from the command
    /// or selector if not given.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 64)))]
    pub name: Option<String>,
    /// Where another client has the name, add a number to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub numbered: bool,
    /// A whole number. Only ratios of shares mean anything.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = SHARE_MAX)))]
    pub share: u64,
    /// The most CPU time that it may have, in millionths of one CPU: 500000 is half of one. 10000 is the least; 0 is
    /// no limit.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(max = LIMIT_PPM_MAX)))]
    pub limit_ppm: Option<u64>,
    /// What else it is sure of, and may not exceed.
    #[serde(default, skip_serializing_if = "Bounds::is_empty")]
    pub bounds: Bounds,
    /// The currency whose tickets it gets, as a currency is named elsewhere; the caller's own if not given. Only a system's divvyd has any.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub from: Option<String>,
    /// The job that it is a task of: the tasks of one job share what is one currency's, the caller's `job.JOB`. The first makes
    /// it, with the share, and it ends with the last. Only a system's divvyd knows any.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[A-Za-z0-9._-]{1,60}$")))]
    pub job: Option<String>,
    /// The group that it is to be in, by its path (`build`, `build/tests`); it is made if it is not there, and ends with its
    /// last client. Only a user's own divvyd has any.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub group: Option<String>,
    /// The share that the group has from now on, among what is beside it; 1 for a new one if not given.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = SHARE_MAX)))]
    pub group_share: Option<u64>,
    /// A command for divvyd to start.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub command: Option<NewCommand>,
    /// Processes that run already: `pid:`, `tree:`, `user:`, `group:`, `session:`, `cgroup:` or `name:` and then which.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(regex(pattern = "^((pid|tree|group|session):[1-9][0-9]{0,6}|(user|name):.+|cgroup:/.*)$"))
    )]
    pub selector: Option<String>,
    /// Only say what would be done; `selector` only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// The interface of the batch system's plugin that asks, if one does. Another one than this divvyd's is refused.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub plugin: Option<u32>,
}

/// A command to start. Its standard input, output and error are `/dev/null`: a caller with a terminal starts its command
/// itself and attaches it, as `divvy run` does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NewCommand {
    /// Program and arguments; the program is looked up in divvyd's `PATH` unless it has a slash.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 1024)))]
    pub argv: Vec<String>,
    /// Working directory; `/` if not given.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub dir: Option<String>,
    /// Variables beside divvyd's own.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub env: std::collections::BTreeMap<String, String>,
}

/// What is to be changed about a client: `PATCH /v1/clients/{client}`. At least one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(extend("minProperties" = 1)))]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Another share.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = SHARE_MAX)))]
    pub share: Option<u64>,
    /// Another limit, in millionths of one CPU; 0 for none, else 10000 at least.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(max = LIMIT_PPM_MAX)))]
    pub limit_ppm: Option<u64>,
    /// What else it is sure of and may not exceed, from now on.
    #[serde(default, skip_serializing_if = "Bounds::is_empty")]
    pub bounds: Bounds,
    /// Hold it until it is resumed, or resume it.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

/// What attaching a selector would do: the answer to a [`NewClient`] with `dry_run`. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Plan {
    /// What the client would be called.
    pub name: String,
    /// Which processes it would be.
    pub selector: String,
    /// What it would ask for.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = SHARE_MAX)))]
    pub share: u64,
    /// Every process that the selector names just now.
    pub members: Vec<Planned>,
}

/// What would become of one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Planned {
    /// Its pid.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub pid: i32,
    /// Its name, as the kernel has it.
    pub name: String,
    /// Whether it would be divided.
    pub scheduled: bool,
    /// Why not, if not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What happened to clients: `GET /v1/events?since=N`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Events {
    /// What to ask for next.
    pub next: u64,
    /// The clock of the events just now: ns since the machine's start.
    pub now_ns: u64,
    /// Events asked for that are forgotten already: divvyd keeps the last 65,536.
    pub lost: u64,
    /// By rising number; at most 8,192 in one answer.
    #[cfg_attr(feature = "schema", schemars(length(max = 8192)))]
    pub events: Vec<Event>,
}

/// One thing that happened to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Event {
    /// Its number, from 0 without gaps.
    pub seq: u64,
    /// When, ns since the machine's start.
    pub t_ns: u64,
    /// To whom.
    pub client: u32,
    /// What.
    pub what: Happening,
}

/// What can happen to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Happening {
    /// It became a client, held.
    Joined,
    /// It may run.
    Released,
    /// It was held.
    Held,
    /// It was seen asleep, or stopped by somebody else.
    Asleep,
    /// It was seen to want the CPU.
    Awake,
    /// Its share is another.
    Reshared,
    /// It was paused.
    Paused,
    /// It was resumed after a pause.
    Resumed,
    /// It is no client any more.
    Left,
}

/// Every error's body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Error"))]
pub struct ErrorBody {
    /// The one member.
    pub error: ErrorInfo,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ErrorInfo {
    /// For programs.
    pub code: ErrorCode,
    /// For people: what was tried, on what, and why it failed.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub message: String,
    /// What would make it work; empty where nothing does.
    pub fix: String,
}

/// What kind of error it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ErrorCode {
    /// 400: the request cannot be read, or asks for what cannot be.
    BadRequest,
    /// 403: the process is on the list of those that are never touched.
    Protected,
    /// 403: the system, divvyd, or the market permits it to somebody else only: the message says who needs which permission on
    /// what.
    NotPermitted,
    /// 404: no such path.
    NoSuchPath,
    /// 404: no client has that name or id.
    NoSuchClient,
    /// 404: no such process.
    NoSuchProcess,
    /// 404: this divvyd keeps no market: it is a user's own.
    NoMarket,
    /// 404: no currency or client of the market has that name or id.
    NoSuchCurrency,
    /// 404: no ticket has that id.
    NoSuchTicket,
    /// 404: no exchange has that id, or not any more.
    NoSuchExchange,
    /// 404: no offer has that id, or not any more.
    NoSuchOffer,
    /// 404: this machine knows no such user.
    NoSuchUser,
    /// 404: this machine knows no such group.
    NoSuchGroup,
    /// 405: the path does not take that method.
    NoSuchMethod,
    /// 408: the request did not come to its end within 10 s.
    TooSlow,
    /// 409: another client has that name.
    NameTaken,
    /// 409: another client has that process.
    ProcessTaken,
    /// 409: the market as it stands does not allow it: a cycle, too deep, not enough left, above a bound, or a
    /// name that is taken.
    Refused,
    /// 413: the body is longer than 65,536 bytes; of a site's table or orders, 16 MiB.
    TooLarge,
    /// 422: the command cannot be started.
    NotStarted,
    /// 429: the user has as much as one may have, of connections, requests a second, currencies, tickets, offers or
    /// clients.
    Limit,
    /// 500: the system refused something that should work.
    Internal,
    /// 503: no room, for the moment: too many requests, or a limit of the system.
    Busy,
    /// 503: divvyd is ending; another one can be started.
    Leaving,
}

impl ErrorCode {
    /// The HTTP status that it comes with.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::Protected | Self::NotPermitted => 403,
            Self::NoSuchPath
            | Self::NoSuchClient
            | Self::NoSuchProcess
            | Self::NoMarket
            | Self::NoSuchCurrency
            | Self::NoSuchTicket
            | Self::NoSuchExchange
            | Self::NoSuchOffer
            | Self::NoSuchUser
            | Self::NoSuchGroup => 404,
            Self::NoSuchMethod => 405,
            Self::TooSlow => 408,
            Self::NameTaken | Self::ProcessTaken | Self::Refused => 409,
            Self::TooLarge => 413,
            Self::NotStarted => 422,
            Self::Limit => 429,
            Self::Internal => 500,
            Self::Busy | Self::Leaving => 503,
        }
    }
}
