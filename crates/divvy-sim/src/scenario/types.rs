//! The tables of a scenario file. What a key means is said once, here: the schema is made of these comments.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::{Deserialize, Deserializer, Serialize, de};

use super::{PolicySpec, Span};
use crate::workload::Dist;

/// Everything about a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Scenario {
    /// A title, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Seed of all random numbers. Equal seeds give equal runs.
    #[serde(default = "one")]
    pub seed: u64,
    /// Who decides: a name, `name:key=value,...`, or a table of `name` and `params`. Required unless there is a `gate`.
    #[serde(default = "nobody", skip_serializing_if = "is_nobody")]
    pub policy: PolicySpec,
    /// Who decides above a simulated kernel, as over live processes: a gate, or a dispatcher as one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<PolicySpec>,
    /// The length of a quantum: handed to the policy (unless its own parameters say otherwise), and the unit of service
    /// errors and schedules. 10ms if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantum: Option<Span>,
    /// The hardware.
    #[serde(default)]
    pub machine: MachineSpec,
    /// The kernel beneath a `gate`. A typical one if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelSpec>,
    /// CPU-bound clients, one for each share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shares: Option<Shares>,
    /// Clients with programs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<ClientSpec>,
    /// Closed users, who think between requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<UserSpec>,
    /// Open sources of jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arrivals: Vec<ArrivalSpec>,
    /// Single jobs: each is a client that joins, runs and leaves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobSpec>,
    /// Workloads kept in other files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub traces: Vec<TraceSpec>,
    /// What is done to clients from outside, by time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventSpec>,
    /// When the run ends.
    #[serde(default)]
    pub run: RunSpec,
    /// What is kept of it.
    #[serde(default)]
    pub measure: MeasureSpec,
    /// How often the run is repeated with other seeds, for confidence intervals. At least 1.
    #[serde(default = "one_u32")]
    pub replications: u32,
    /// A grid: keys of this file, dots between tables, with the values that each takes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sweep: BTreeMap<String, Vec<serde_json::Value>>,
}

const fn one() -> u64 {
    1
}

fn nobody() -> PolicySpec {
    PolicySpec::new("")
}

fn is_nobody(policy: &PolicySpec) -> bool {
    policy.name.is_empty()
}

const fn one_u32() -> u32 {
    1
}

impl Scenario {
    /// A scenario in which nobody wants the CPU yet.
    #[must_use]
    pub fn new(policy: PolicySpec) -> Self {
        Self {
            name: None,
            seed: 1,
            policy,
            gate: None,
            quantum: None,
            machine: MachineSpec::default(),
            kernel: None,
            shares: None,
            clients: Vec::new(),
            users: Vec::new(),
            arrivals: Vec::new(),
            jobs: Vec::new(),
            traces: Vec::new(),
            events: Vec::new(),
            run: RunSpec::default(),
            measure: MeasureSpec::default(),
            replications: 1,
            sweep: BTreeMap::new(),
        }
    }
}

/// The hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct MachineSpec {
    /// How many CPUs, 1 to 4096.
    #[serde(default = "one_u32")]
    pub cpus: u32,
    /// Time a CPU loses when it turns to another client.
    #[serde(default)]
    pub switch_cost: Span,
    /// Decisions on a grid of this period only; at any moment if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tick: Option<Span>,
    /// With `tick`: what a CPU does whose client blocks between two ticks.
    #[serde(default)]
    pub on_block: OnBlockSpec,
    /// What a client that wakes does to running ones.
    #[serde(default)]
    pub on_wake: OnWakeSpec,
}

impl Default for MachineSpec {
    fn default() -> Self {
        Self {
            cpus: 1,
            switch_cost: Span(0),
            tick: None,
            on_block: OnBlockSpec::AtOnce,
            on_wake: OnWakeSpec::PolicyDecides,
        }
    }
}

/// What a CPU does whose client blocks between two ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum OnBlockSpec {
    /// It is given to the next client at once.
    #[default]
    AtOnce,
    /// It idles until the tick.
    NextTick,
}

/// What a client that wakes does to running ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum OnWakeSpec {
    /// Nothing, unless the policy takes a CPU away itself.
    #[default]
    PolicyDecides,
    /// Every CPU is decided anew.
    Redecide,
}

/// The kernel beneath a gate, as far as the gate can feel it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct KernelSpec {
    /// Its tick, on which slices between released clients end.
    pub tick: Span,
    /// Where it lets a client run that becomes runnable.
    pub placement: PlacementSpec,
    /// How fresh the CPU clocks of clients on other CPUs than the gate's are.
    pub clock_lag: ClockLagSpec,
    /// How late the gate wakes.
    pub latency: LatencySpec,
    /// CPU time of what the gate does, taken from CPU 0.
    pub costs: CostsSpec,
    /// Time that a hypervisor takes from everybody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steal: Option<StealSpec>,
    /// CPU-bound processes that are nobody's clients and are never held.
    pub strangers: u32,
}

impl Default for KernelSpec {
    fn default() -> Self {
        Self {
            tick: Span(4_000_000),
            placement: PlacementSpec::Spread,
            clock_lag: ClockLagSpec::None,
            latency: LatencySpec::default(),
            costs: CostsSpec::default(),
            steal: None,
            strangers: 0,
        }
    }
}

/// Where a kernel lets a client run that becomes runnable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PlacementSpec {
    /// On its last CPU if that idles, else on one that does.
    #[default]
    Spread,
    /// On its last CPU, idle or not: another takes it at the next tick.
    Stack,
}

/// How fresh a CPU clock is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ClockLagSpec {
    /// Up to date.
    #[default]
    None,
    /// As of the CPU's last tick.
    Tick,
}

/// How late the gate wakes: uniformly from `low` to `high`, and one time in `late-one-in` by 2 to 4 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct LatencySpec {
    /// At least this.
    pub low: Span,
    /// At most this.
    pub high: Span,
    /// 0 for never.
    pub late_one_in: u64,
}

impl Default for LatencySpec {
    fn default() -> Self {
        Self { low: Span(5_000), high: Span(60_000), late_one_in: 500 }
    }
}

/// CPU time of what a gate does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct CostsSpec {
    /// Being woken.
    pub wake: Span,
    /// Reading one CPU clock.
    pub read: Span,
    /// Reading one state.
    pub state: Span,
    /// Releasing one client.
    pub resume: Span,
    /// Holding one client.
    pub suspend: Span,
}

impl Default for CostsSpec {
    fn default() -> Self {
        Self {
            wake: Span(3_000),
            read: Span(220),
            state: Span(3_000),
            resume: Span(1_600),
            suspend: Span(8_000),
        }
    }
}

/// Time that a hypervisor takes: the clock goes on and nobody runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct StealSpec {
    /// Mean time from the end of one theft to the next.
    pub every: Span,
    /// A theft lasts up to this long, uniformly.
    pub longest: Span,
}

/// CPU-bound clients by their shares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Shares {
    /// One client for each number.
    List(Vec<u64>),
    /// Drawn at random.
    Random(RandomShares),
}

/// A table with the one key `random`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RandomShares {
    /// Uniform numbers scaled to a sum.
    pub random: RandomSpec,
}

/// Uniform numbers scaled to `total` by largest remainders, at least 1 each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RandomSpec {
    /// How many shares (N).
    pub clients: u32,
    /// Their sum (S), at least `clients`.
    pub total: u64,
}

impl<'de> Deserialize<'de> for Shares {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Shares;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of shares, or a table with the key random")
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<Shares, A::Error> {
                let mut list = Vec::new();
                while let Some(share) = seq.next_element()? {
                    list.push(share);
                }
                Ok(Shares::List(list))
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Shares, A::Error> {
                RandomShares::deserialize(MapAccessDeserializer::new(map)).map(Shares::Random)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// Clients with a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ClientSpec {
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How many of them.
    #[serde(default = "one_u32")]
    pub count: u32,
    /// The share of each.
    #[serde(default = "one")]
    pub share: u64,
    /// When they join.
    #[serde(default)]
    pub start: Span,
    /// What they do; without it they want the CPU all the time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub program: Vec<StepSpec>,
    /// How often they do it; 0 is for ever.
    #[serde(default = "one")]
    pub repeat: u64,
}

/// One step of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum StepSpec {
    /// Use this much CPU time.
    Run(Span),
    /// Sleep this long.
    Sleep(Span),
    /// Sleep until the next multiple of this since the start.
    Period(Span),
}

/// Closed users.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct UserSpec {
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How many of them.
    #[serde(default = "one_u32")]
    pub count: u32,
    /// The share of each.
    #[serde(default = "one")]
    pub share: u64,
    /// Time from an answer to the next request, and before the first.
    pub think: Dist,
    /// Stretches of CPU time in a request.
    #[serde(default = "one_u32")]
    pub segments: u32,
    /// CPU time of each stretch.
    pub work: Dist,
    /// Inactive time between two stretches.
    #[serde(default = "no_gap")]
    pub gap: Dist,
}

const fn no_gap() -> Dist {
    Dist::Const(Span(0))
}

/// An open source of jobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ArrivalSpec {
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The share of each job.
    #[serde(default = "one")]
    pub share: u64,
    /// Time from one arrival to the next, and before the first.
    pub between: Dist,
    /// CPU time of each job.
    pub size: Dist,
    /// How many; without end if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<u64>,
}

/// A single job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct JobSpec {
    /// When it arrives.
    pub at: Span,
    /// Its CPU time.
    pub size: Span,
    /// Its share.
    #[serde(default = "one")]
    pub share: u64,
}

/// A workload in another file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TraceSpec {
    /// Its path, from the scenario's folder.
    pub file: String,
    /// How it is written.
    pub format: TraceFormat,
}

/// How a trace is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum TraceFormat {
    /// Lines of `arrival,size[,share]`.
    Csv,
    /// rt-app's JSON.
    RtApp,
}

/// One thing done to a client from outside. Events of one moment happen in the order of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct EventSpec {
    /// When.
    pub at: Span,
    /// What.
    pub op: EventOp,
    /// To whom: the client's index, counting `shares`, then clients made by events, then `clients`, then `users`.
    pub client: u32,
    /// With `create`, `new` and `share`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<u64>,
}

/// What is done to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum EventOp {
    /// A CPU-bound client joins, blocked.
    Create,
    /// A CPU-bound client joins and wakes.
    New,
    /// A blocked client goes on.
    Wake,
    /// A client is stopped.
    Block,
    /// A client leaves.
    Exit,
    /// A client's share changes.
    Share,
}

/// When the run ends. Without `until` and `quanta`, when nobody is left; `decisions` bounds it in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RunSpec {
    /// Simulated time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Span>,
    /// Simulated time in quanta.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quanta: Option<u64>,
    /// The most decisions; a run that reaches this could not end, and says so.
    #[serde(default = "decision_limit")]
    pub decisions: u64,
    /// Random times are cut down to multiples of this.
    #[serde(default = "one_ns")]
    pub resolution: Span,
    /// Answers before this do not count.
    #[serde(default)]
    pub warmup: Span,
    /// Answers in the last so much before `until` do not count.
    #[serde(default)]
    pub cooldown: Span,
}

const fn decision_limit() -> u64 {
    100_000_000
}

const fn one_ns() -> Span {
    Span(1)
}

impl Default for RunSpec {
    fn default() -> Self {
        Self {
            until: None,
            quanta: None,
            decisions: decision_limit(),
            resolution: one_ns(),
            warmup: Span(0),
            cooldown: Span(0),
        }
    }
}

/// What is kept of a run. All of it costs memory; nothing else grows with simulated time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct MeasureSpec {
    /// Exact service errors. If not given: on, unless there are users, sources, jobs or traces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_error: Option<bool>,
    /// The most entries of the schedule (one CPU only). If not given: 10000 where service errors are on, else none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<u32>,
    /// The most runs kept for the timeline; the default is 0, and then they are not even counted.
    #[serde(default)]
    pub runs: u32,
    /// The most response times listed one by one.
    #[serde(default)]
    pub responses: u32,
}
