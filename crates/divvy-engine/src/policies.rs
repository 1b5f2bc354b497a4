//! Gates by name: what a user asks for, and the policy made of it.

use divvy_policy::gate::{
    ALPS_BASIC_INFO, ALPS_INFO, Alps, AlpsParams, AlpsVariant, Exact, ExactParams, GateParamError, RATE_INFO,
    Rate, RateParams, Scale, exact,
};
use divvy_policy::{Event, EventError, Gate, Instant, Nanos, Policy, PolicyInfo};
use serde::{Deserialize, Serialize};

/// The gates there are, the default first.
pub const GATES: [&PolicyInfo; 4] = [&exact::INFO, &ALPS_INFO, &ALPS_BASIC_INFO, &RATE_INFO];

/// A gate's name and parameters, as a trace's header keeps them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateSpec {
    /// `exact`, `alps`, `alps-basic` or `rate`.
    pub policy: String,
    /// Quantum (superd: interval), ns.
    pub quantum_ns: u64,
    /// CPUs that are divided.
    pub cpus: u32,
    /// Whether shares are divided by their greatest common divisor.
    pub scale_shares: bool,
    /// Longest run in one go, ns; `exact` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice_ns: Option<u64>,
    /// Clients released for each CPU; `exact` only.
    pub presence: u32,
    /// Rate enforcement period, ns; `rate` only.
    pub period_ns: u64,
}

impl Default for GateSpec {
    fn default() -> Self {
        Self {
            policy: exact::INFO.name.to_owned(),
            quantum_ns: 10_000_000,
            cpus: 1,
            scale_shares: true,
            slice_ns: None,
            presence: 1,
            period_ns: 1_000_000_000,
        }
    }
}

/// Why no gate can be made of a [`GateSpec`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// There is no gate of that name.
    #[error("unknown policy '{0}': the policies are {names}", names = gate_names())]
    UnknownPolicy(String),
    /// A parameter is out of its range.
    #[error(transparent)]
    Param(#[from] GateParamError),
}

fn gate_names() -> String {
    GATES.map(|info| info.name).join(", ")
}

/// Any gate; what it decides is what the one inside decides.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "one value a run")]
pub enum AnyGate {
    /// The default.
    Exact(Exact),
    /// ALPS, any variant.
    Alps(Alps),
    /// superd's rate enforcement.
    Rate(Rate),
}

impl GateSpec {
    /// The gate that this names.
    ///
    /// # Errors
    /// [`SpecError`] names what is wrong.
    pub fn make(&self) -> Result<AnyGate, SpecError> {
        let quantum = Nanos(self.quantum_ns);
        let scale = if self.scale_shares { Scale::ByGcd } else { Scale::AsGiven };
        let alps = |variant| Alps::new(AlpsParams { quantum, variant, scale }).map(AnyGate::Alps);
        Ok(match self.policy.as_str() {
            "exact" => AnyGate::Exact(Exact::new(ExactParams {
                quantum,
                cpus: self.cpus,
                scale,
                slice: self.slice_ns.map(Nanos),
                presence: self.presence,
            })?),
            "alps" => alps(AlpsVariant::OptimizedIo)?,
            "alps-basic" => alps(AlpsVariant::Basic)?,
            "rate" => {
                AnyGate::Rate(Rate::new(RateParams { interval: quantum, period: Nanos(self.period_ns) })?)
            }
            other => return Err(SpecError::UnknownPolicy(other.to_owned())),
        })
    }
}

impl Policy for AnyGate {
    type Decision = Gate;

    fn on_event(&mut self, now: Instant, event: Event) -> Result<(), EventError> {
        match self {
            Self::Exact(p) => p.on_event(now, event),
            Self::Alps(p) => p.on_event(now, event),
            Self::Rate(p) => p.on_event(now, event),
        }
    }

    fn poll_decision(&mut self, now: Instant) -> Option<Gate> {
        match self {
            Self::Exact(p) => p.poll_decision(now),
            Self::Alps(p) => p.poll_decision(now),
            Self::Rate(p) => p.poll_decision(now),
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Exact(p) => p.poll_timeout(),
            Self::Alps(p) => p.poll_timeout(),
            Self::Rate(p) => p.poll_timeout(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_gate_listed_can_be_made_and_no_other() {
        for info in GATES {
            let spec = GateSpec { policy: info.name.to_owned(), ..GateSpec::default() };
            assert!(spec.make().is_ok(), "{}", info.name);
        }
        let error = GateSpec { policy: "fair".into(), ..GateSpec::default() }.make().unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown policy 'fair': the policies are exact, alps, alps-basic, rate"
        );
        let error = GateSpec { quantum_ns: 999_999, ..GateSpec::default() }.make().unwrap_err();
        assert_eq!(error.to_string(), "a quantum of 999999 ns is outside 1 ms to 10 s");
    }
}
