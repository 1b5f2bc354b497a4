//! A run as a file of lines, and the proof that replaying it gives the same decisions.
//!
//! The first line is a [`TraceHeader`], every other a [`TraceLine`], each a JSON object (format: `docs/trace.md`).
//! [`TraceReader`] reads them, [`replay`] feeds them to a policy anew, [`Playback`](crate::Playback) keeps the accounts.

use divvy_policy::gate::Limited;
use divvy_policy::{
    ClientId, CpuId, CpuLimit, Event, EventError, Gate, Instant, LimitError, Nanos, Policy, Share, ShareError,
};
use serde::{Deserialize, Serialize};

use crate::policies::{GateSpec, SpecError};

/// The version of the format that is written, which a header carries. Version 2, which has no limits, and version 1, which has
/// no [`Trace::Audit`] either, are read as well.
pub const TRACE_VERSION: u32 = 3;

/// What was run: enough to make the same policy again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceHeader {
    /// [`TRACE_VERSION`], or an older one.
    pub divvy_trace: u32,
    /// The gate.
    pub gate: GateSpec,
    /// Names of the clients, by id.
    pub clients: Vec<String>,
}

/// One event, decision, or "nothing more for now", at a moment in ns since the host's epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceLine {
    /// When, ns.
    pub t: u64,
    /// What.
    #[serde(flatten)]
    pub what: Trace,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "e")]
#[expect(
    missing_docs,
    reason = "each is the event or decision of its name, but for what is told of accounts, and of how decisions are carried out"
)]
pub enum Trace {
    Join { c: u32, share: u64 },
    Leave { c: u32 },
    Reshare { c: u32, share: u64 },
    Wake { c: u32 },
    Block { c: u32 },
    Charge { c: u32, ns: u64 },
    Width { c: u32, cpus: u32 },
    Leftovers { used: bool },
    Punctual { on: bool },
    SwitchCost { ns: u64 },
    Limit { c: u32, ppm: u64 },
    Free { cpu: u32 },
    Release { c: u32, cpu: Option<u32> },
    Hold { c: u32 },
    Behind { c: u32 },
    Measure { c: u32 },
    Observe { c: u32 },
    Cycle { n: u64 },
    Audit { c: u32, ns: u64 },
    AtLimit { c: u32, held: bool },
    Idle,
}

/// Takes the lines of a trace, in order.
pub trait Recorder {
    /// Keeps one line. A recorder that cannot says so by its own means; scheduling goes on.
    fn record(&mut self, line: &TraceLine);
}

impl TraceLine {
    /// The line for an event.
    #[must_use]
    pub fn event(now: Instant, event: Event) -> Self {
        let what = match event {
            Event::Join { client, share } => Trace::Join { c: client.0, share: share.get() },
            Event::Leave { client } => Trace::Leave { c: client.0 },
            Event::Reshare { client, share } => Trace::Reshare { c: client.0, share: share.get() },
            Event::Wake { client } => Trace::Wake { c: client.0 },
            Event::Block { client } => Trace::Block { c: client.0 },
            Event::Charge { client, used } => Trace::Charge { c: client.0, ns: used.0 },
            Event::Width { client, cpus } => Trace::Width { c: client.0, cpus },
            Event::Free { cpu } => Trace::Free { cpu: cpu.0 },
        };
        Self { t: now.0, what }
    }

    /// The line for an answer to `poll_decision`.
    #[must_use]
    pub fn decision(now: Instant, decision: Option<Gate>) -> Self {
        let what = match decision {
            None => Trace::Idle,
            Some(Gate::Release { client, cpu }) => Trace::Release { c: client.0, cpu: cpu.map(|c| c.0) },
            Some(Gate::Hold { client }) => Trace::Hold { c: client.0 },
            Some(Gate::Behind { client }) => Trace::Behind { c: client.0 },
            Some(Gate::Measure { client }) => Trace::Measure { c: client.0 },
            Some(Gate::Observe { client }) => Trace::Observe { c: client.0 },
            Some(Gate::CycleEnd { cycles }) => Trace::Cycle { n: cycles },
        };
        Self { t: now.0, what }
    }

    /// The line for CPU time that was entered into the accounts and that the policy was not told of yet.
    #[must_use]
    pub fn audit(now: Instant, client: ClientId, used: Nanos) -> Self {
        Self { t: now.0, what: Trace::Audit { c: client.0, ns: used.0 } }
    }

    /// The line for a limit that the policy keeps from now on, or keeps no more.
    #[must_use]
    pub fn limit(now: Instant, client: ClientId, limit: Option<CpuLimit>) -> Self {
        Self { t: now.0, what: Trace::Limit { c: client.0, ppm: limit.map_or(0, CpuLimit::ppm) } }
    }

    /// The line for a client that is held because it has had its limit, or is not any more.
    #[must_use]
    pub fn at_limit(now: Instant, client: ClientId, held: bool) -> Self {
        Self { t: now.0, what: Trace::AtLimit { c: client.0, held } }
    }

    /// The line for whether those that are held have what the others leave.
    #[must_use]
    pub fn leftovers(now: Instant, used: bool) -> Self {
        Self { t: now.0, what: Trace::Leftovers { used } }
    }

    /// The line for whether decisions are carried out when they are due, whoever runs.
    #[must_use]
    pub fn punctual(now: Instant, on: bool) -> Self {
        Self { t: now.0, what: Trace::Punctual { on } }
    }

    /// The line for what it takes to hold and release clients of many threads.
    #[must_use]
    pub fn switch_cost(now: Instant, cost: Nanos) -> Self {
        Self { t: now.0, what: Trace::SwitchCost { ns: cost.0 } }
    }

    /// The limit of this line, if it is one.
    ///
    /// # Errors
    /// [`LimitError`] where the line carries a number that is no limit.
    pub fn as_limit(&self) -> Result<Option<(ClientId, Option<CpuLimit>)>, LimitError> {
        Ok(match self.what {
            Trace::Limit { c, ppm: 0 } => Some((ClientId(c), None)),
            Trace::Limit { c, ppm } => Some((ClientId(c), Some(CpuLimit::new(ppm)?))),
            _ => None,
        })
    }

    /// The event of this line, if it is one.
    ///
    /// # Errors
    /// [`ShareError`] where the line carries a number that is no share.
    pub fn as_event(&self) -> Result<Option<Event>, ShareError> {
        Ok(Some(match self.what {
            Trace::Join { c, share } => Event::Join { client: ClientId(c), share: Share::new(share)? },
            Trace::Leave { c } => Event::Leave { client: ClientId(c) },
            Trace::Reshare { c, share } => Event::Reshare { client: ClientId(c), share: Share::new(share)? },
            Trace::Wake { c } => Event::Wake { client: ClientId(c) },
            Trace::Block { c } => Event::Block { client: ClientId(c) },
            Trace::Charge { c, ns } => Event::Charge { client: ClientId(c), used: Nanos(ns) },
            Trace::Width { c, cpus } => Event::Width { client: ClientId(c), cpus },
            Trace::Free { cpu } => Event::Free { cpu: CpuId(cpu) },
            _ => return Ok(None),
        }))
    }
}

/// As a trace writes it.
fn shown(what: &Trace) -> String {
    serde_json::to_string(what).unwrap_or_else(|_| format!("{what:?}"))
}

/// Where a replay parted from its trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Divergence {
    /// The first line is not a header of a version that is known.
    #[error("line 1: {0}")]
    Header(String),
    /// The policy of the header cannot be made.
    #[error("line 1: {0}")]
    Spec(#[from] SpecError),
    /// A line that cannot be read.
    #[error("line {line}: {why}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// The last line is incomplete: whoever wrote the trace was killed.
    #[error("line {line}: the trace ends in the middle of it")]
    CutOff {
        /// Counted from 1.
        line: usize,
    },
    /// The policy refused an event that it once took.
    #[error("line {line}: {why}")]
    Refused {
        /// Counted from 1.
        line: usize,
        /// Its reason.
        why: EventError,
    },
    /// The policy decided something else.
    #[error("line {line}: the trace says {}, the policy decides {}", shown(recorded), shown(decided))]
    Decision {
        /// Counted from 1.
        line: usize,
        /// What the trace says.
        recorded: Trace,
        /// What came now.
        decided: Trace,
    },
}

/// The lines of a trace, read one by one, each with its number (the header is line 1).
#[derive(Debug)]
pub struct TraceReader<I: Iterator<Item = String>> {
    header: TraceHeader,
    lines: std::iter::Peekable<I>,
    /// The number of the line that was read last.
    line: usize,
}

impl<I: Iterator<Item = String>> TraceReader<I> {
    /// Reads the header of a trace from its lines.
    ///
    /// # Errors
    /// [`Divergence::Header`] if the first line is no header of a version that is known.
    pub fn new(mut lines: I) -> Result<Self, Divergence> {
        let first = lines.next().ok_or_else(|| Divergence::Header("the trace is empty".into()))?;
        let header: TraceHeader = serde_json::from_str(&first).map_err(|e| {
            Divergence::Header(if first.contains("\"traceEvents\"") {
                "it was written for Perfetto, which cannot be read back; record with --trace-format lines"
                    .into()
            } else {
                e.to_string()
            })
        })?;
        if !(1..=TRACE_VERSION).contains(&header.divvy_trace) {
            let text = format!("trace version {}; this divvy reads 1 to {TRACE_VERSION}", header.divvy_trace);
            return Err(Divergence::Header(text));
        }
        Ok(Self { header, lines: lines.peekable(), line: 1 })
    }

    /// What was run.
    pub fn header(&self) -> &TraceHeader {
        &self.header
    }
}

impl<I: Iterator<Item = String>> Iterator for TraceReader<I> {
    type Item = Result<(usize, TraceLine), Divergence>;

    fn next(&mut self) -> Option<Self::Item> {
        let text = self.lines.next()?;
        self.line += 1;
        let line = self.line;
        Some(match serde_json::from_str(&text) {
            Ok(read) => Ok((line, read)),
            Err(e) if e.is_eof() && self.lines.peek().is_none() => Err(Divergence::CutOff { line }),
            Err(e) => Err(Divergence::Line { line, why: e.to_string() }),
        })
    }
}

/// Feeds a trace's events to a new policy of the same kind, and compares every decision: how many there were.
///
/// # Errors
/// [`Divergence`] at the first line that differs or cannot be read.
pub fn replay(text: impl Iterator<Item = String>) -> Result<u64, Divergence> {
    let reader = TraceReader::new(text)?;
    let gate = reader.header().gate.parse()?;
    let mut policy = Limited::new(gate.make()?, gate.cpus_of_dues());
    let mut decisions = 0;
    for read in reader {
        let (line, recorded) = read?;
        let bad = |why: String| Divergence::Line { line, why };
        let now = Instant(recorded.t);
        if matches!(recorded.what, Trace::Audit { .. } | Trace::AtLimit { .. }) {
            continue; // The policy never heard of it.
        }
        if let Some((client, limit)) = recorded.as_limit().map_err(|e| bad(e.to_string()))? {
            policy.set_limit(now, client, limit).map_err(|why| Divergence::Refused { line, why })?;
            continue;
        }
        if let Trace::Leftovers { used } = recorded.what {
            policy.set_leftovers(used);
            continue;
        }
        if let Trace::Punctual { on } = recorded.what {
            policy.set_punctual(on);
            continue;
        }
        if let Trace::SwitchCost { ns } = recorded.what {
            policy.set_switch_cost(Nanos(ns));
            continue;
        }
        match recorded.as_event().map_err(|e| bad(e.to_string()))? {
            Some(event) => {
                policy.on_event(now, event).map_err(|why| Divergence::Refused { line, why })?;
            }
            None => {
                let decided = TraceLine::decision(now, policy.poll_decision(now)).what;
                if decided != recorded.what {
                    return Err(Divergence::Decision { line, recorded: recorded.what, decided });
                }
                decisions += u64::from(decided != Trace::Idle);
            }
        }
    }
    Ok(decisions)
}
