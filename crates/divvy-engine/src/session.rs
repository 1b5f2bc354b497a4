//! A run: the policy that was asked for, the engine made of it, and what its clients do.
//!
//! `divvy share`, `divvyd`, the simulator and the studies drive one of these, so that the same policy over the same host has
//! the same accounts, states and errors of cycles in each.

use std::ops::{Deref, DerefMut};

use divvy_policy::{ClientId, Gate, Instant, Policy};
use serde::{Deserialize, Serialize};

use crate::engine::Engine;
use crate::host::{Host, HostError, News};
use crate::policies::{AnyGate, Chosen, GateSpec, SpecError};
use crate::trace::{TRACE_VERSION, TraceHeader};

/// What a client does. One that has just joined is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum ClientState {
    /// It may run, and was not seen asleep.
    Running,
    /// Kept from running until it is its turn.
    #[default]
    Held,
    /// Kept from running until the next window of 100 ms, for it has had its limit in this one.
    Limited,
    /// It may run and does not want to, as far as was seen.
    Asleep,
    /// Somebody else stopped it.
    Stopped,
    /// Held by its user's wish until it is resumed.
    Paused,
    /// It ended, was detached, or was lost.
    Left,
}

impl ClientState {
    /// The state in one word, as in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Held => "held",
            Self::Limited => "limited",
            Self::Asleep => "asleep",
            Self::Stopped => "stopped",
            Self::Paused => "paused",
            Self::Left => "left",
        }
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Exit {
    /// It exited with this code.
    Code(#[cfg_attr(feature = "schema", schemars(range(min = 0, max = 255)))] i32),
    /// This signal ended it.
    Signal(#[cfg_attr(feature = "schema", schemars(range(min = 1, max = 64)))] i32),
}

/// A policy over a host. It is its [`Engine`], and knows what that was made of.
pub struct Session<H, P = AnyGate> {
    policy: Chosen,
    engine: Engine<P, H>,
}

impl<H: Host> Session<H> {
    /// A run without clients under the policy of `spec`.
    ///
    /// # Errors
    /// [`SpecError`] where no gate can be made of it.
    pub fn new(spec: &GateSpec, host: H) -> Result<Self, SpecError> {
        Self::watched(spec, host, |gate| gate)
    }
}

impl<H: Host, P: Policy<Decision = Gate>> Session<H, P> {
    /// As [`Session::new`], with the gate inside of what `watch` makes of it, which decides the same.
    ///
    /// # Errors
    /// As [`Session::new`].
    pub fn watched(spec: &GateSpec, host: H, watch: impl FnOnce(AnyGate) -> P) -> Result<Self, SpecError> {
        let policy = spec.parse()?;
        let engine = Engine::new(watch(policy.make()?), host, policy.cpus_of_dues());
        let engine = engine.with_ledger(policy.ledger());
        Ok(Self { policy, engine })
    }

    /// What was asked for.
    pub fn policy(&self) -> &Chosen {
        &self.policy
    }

    /// The header of a recording whose clients are called `clients`.
    pub fn header(&self, clients: Vec<String>) -> TraceHeader {
        TraceHeader { divvy_trace: TRACE_VERSION, gate: self.policy.spec().clone(), clients }
    }

    /// What a client that has joined does.
    ///
    /// # Panics
    /// If it never joined.
    pub fn state(&self, client: ClientId) -> ClientState {
        let account = &self.engine.ledger().clients()[client.index()];
        match account {
            a if !a.present => ClientState::Left,
            a if a.paused => ClientState::Paused,
            _ if self.engine.host().is_stopped(client) => ClientState::Stopped,
            a if a.blocked => ClientState::Asleep,
            a if a.at_limit => ClientState::Limited,
            _ if self.engine.is_released(client) => ClientState::Running,
            _ => ClientState::Held,
        }
    }

    /// For the end of a run, when nobody is scheduled any more: waits once, until `until` or for news, and returns how many
    /// clients have ended meanwhile.
    ///
    /// # Errors
    /// As [`Host::wait`].
    pub fn wait_for_ends(&mut self, until: Instant) -> Result<usize, HostError> {
        let host = self.engine.host_mut();
        host.wait(Some(until))?;
        let news = std::iter::from_fn(|| host.next_news());
        Ok(news.filter(|news| matches!(news, News::Gone(_))).count())
    }
}

impl<H, P> Deref for Session<H, P> {
    type Target = Engine<P, H>;

    fn deref(&self) -> &Self::Target {
        &self.engine
    }
}

impl<H, P> DerefMut for Session<H, P> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.engine
    }
}
