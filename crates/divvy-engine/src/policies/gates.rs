//! What a user asks to schedule live processes with, and the gate made of it.

use std::fmt;

use divvy_policy::gate::{
    Alps, AlpsParams, AlpsVariant, Dispatched, DispatchedParams, Exact, ExactParams, GateParamError, Kernel,
    KernelParams, Lag, Rate, RateParams, Scale, exact,
};
use divvy_policy::{Event, EventError, Gate, Instant, Kind, Nanos, Policy, PolicyInfo};
use serde::{Deserialize, Serialize};

use super::{
    Dispatch, ParamError, Params, Policies, PolicyContext, PolicyError, PolicyFactory, PolicySpec,
    PolicyVisitor, QUANTA, Span, find, live,
};

/// A gate's or dispatcher's name and parameters, as a trace's header keeps them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateSpec {
    /// Any of [`live`], with parameters: `exact`, `las`, `pbs:alpha=2`, `lottery:seed=7`. They go before the members below.
    pub policy: String,
    /// Quantum (superd: interval), ns.
    pub quantum_ns: u64,
    /// CPUs that are divided.
    pub cpus: u32,
    /// Whether shares are divided by their greatest common divisor; gates only.
    pub scale_shares: bool,
    /// Longest run in one go, ns; `exact` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice_ns: Option<u64>,
    /// CPU time of one share in one cycle, ns, where that is not the quantum; `exact` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_ns: Option<u64>,
    /// The longest cycle, ns, where shares such as 997 and 1009 would make a longer one; `exact` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycle_ns_max: Option<u64>,
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
            share_ns: None,
            cycle_ns_max: None,
            presence: 1,
            period_ns: 1_000_000_000,
        }
    }
}

/// Why no gate can be made of a [`GateSpec`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The text is no name with parameters.
    #[error("policy {0}")]
    Form(String),
    /// There is no policy of that name.
    #[error("unknown policy '{0}': the policies are {names}", names = live_names())]
    UnknownPolicy(String),
    /// A fluid model grants nothing.
    #[error("{0} is a model, which only simulations take (divvy sim): the policies are {names}", names = live_names())]
    Model(String),
    /// A parameter is unknown, or of a wrong form, or out of a dispatcher's range.
    #[error("{policy}: {error}")]
    Policy {
        /// The policy's name.
        policy: String,
        /// What is wrong.
        error: ParamError,
    },
    /// A parameter is out of its range.
    #[error(transparent)]
    Param(#[from] GateParamError),
}

/// The greatest common divisor.
fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn live_names() -> String {
    live().map(|info| info.name).collect::<Vec<_>>().join(", ")
}

/// Any gate; what it decides is what the one inside decides.
#[derive(Clone, Debug)]
pub enum AnyGate {
    /// The default, on one CPU.
    Exact(Box<Exact>),
    /// The default, on several.
    Lag(Box<Lag>),
    /// ALPS, any variant.
    Alps(Alps),
    /// superd's rate enforcement.
    Rate(Rate),
    /// Nobody is held.
    Kernel(Kernel),
    /// Any dispatcher.
    Dispatched(BoxedGate),
}

/// The gate around a dispatcher whose type is forgotten.
#[derive(Debug)]
pub struct BoxedGate(Box<dyn Boxed>);

trait Boxed: Policy<Decision = Gate> + fmt::Debug + Send {
    fn boxed(&self) -> Box<dyn Boxed>;
}

impl<D: Dispatch> Boxed for Dispatched<D> {
    fn boxed(&self) -> Box<dyn Boxed> {
        Box::new(self.clone())
    }
}

impl Clone for BoxedGate {
    fn clone(&self) -> Self {
        Self(self.0.boxed())
    }
}

/// Puts the gate around whichever dispatcher the factory made.
struct Around(DispatchedParams);

impl PolicyVisitor for Around {
    type Output = Result<AnyGate, GateParamError>;

    fn visit<P: Dispatch>(self, policy: P) -> Self::Output {
        Ok(AnyGate::Dispatched(BoxedGate(Box::new(Dispatched::new(policy, self.0)?))))
    }
}

impl GateSpec {
    /// CPUs that what each client is due is reckoned with, by an [`Engine`](crate::Engine) or a [`Ledger`](crate::Ledger):
    /// those that are divided, for a policy that gives nobody more of them than it can use, and what is left to the
    /// others. One for the published gates, which divide by shares as they are, and leave CPUs idle where those are
    /// infeasible: on one CPU no share is.
    #[must_use]
    pub fn cpus_of_dues(&self) -> u32 {
        let caps = |(info, _): (&PolicyInfo, _)| info.kind != Kind::Gate || info.name == exact::INFO.name;
        // What names no policy makes no gate either.
        if self.parse().is_ok_and(caps) { self.cpus } else { 1 }
    }

    /// The policy that this names, and its parameters.
    ///
    /// # Errors
    /// [`SpecError`] where the text is none, or names what cannot be used live.
    pub fn parse(&self) -> Result<(&'static PolicyInfo, PolicySpec), SpecError> {
        let spec: PolicySpec = self.policy.parse().map_err(SpecError::Form)?;
        match find(&spec.name) {
            None => Err(SpecError::UnknownPolicy(spec.name)),
            Some(info) if info.kind == Kind::Model => Err(SpecError::Model(spec.name)),
            Some(info) => Ok((info, spec)),
        }
    }

    /// The gate that this names.
    ///
    /// # Errors
    /// [`SpecError`] names what is wrong.
    pub fn make(&self) -> Result<AnyGate, SpecError> {
        let (info, spec) = self.parse()?;
        let wrong = |error| SpecError::Policy { policy: spec.name.clone(), error };
        if info.kind == Kind::Gate {
            let plain = self.with_params(&spec).map_err(wrong)?;
            return plain.make_gate(info.name);
        }
        // The shortest slice that a hand-over is worth is the gate's to check, as for any quantum.
        let around = Around(DispatchedParams { quantum: self.quantum()?, cpus: self.cpus });
        let context = PolicyContext { cpus: self.cpus, quantum: Span(self.quantum_ns), seed: 1 };
        match Policies.with_policy(&spec, &context, around) {
            Ok(gate) => Ok(gate?),
            Err(PolicyError::Param(error)) => Err(wrong(error)),
            Err(PolicyError::Unknown { name, .. }) => Err(SpecError::UnknownPolicy(name)),
        }
    }

    /// The quantum in effect: the policy's own parameter, or the run's.
    ///
    /// # Errors
    /// [`SpecError`] where there is no such policy, or its quantum is no time.
    pub fn quantum(&self) -> Result<Nanos, SpecError> {
        let (info, spec) = self.parse()?;
        let known = info.params.iter().map(|param| param.name);
        // A gate's slice is not its quantum.
        let name = known.filter(|name| info.kind == Kind::Dispatcher || *name == "quantum");
        let Some(name) = name.into_iter().find(|name| QUANTA.contains(name)) else {
            return Ok(Nanos(self.quantum_ns));
        };
        let quantum = Params::new(&spec.params).time(name, Span(self.quantum_ns));
        quantum.map(Span::nanos).map_err(|error| SpecError::Policy { policy: spec.name.clone(), error })
    }

    /// The CPU time of one share in one cycle; `None` for dispatchers, which know no cycle.
    ///
    /// # Errors
    /// As [`GateSpec::quantum`].
    pub fn cycle_quantum(&self) -> Result<Option<Nanos>, SpecError> {
        let (info, _) = self.parse()?;
        Ok(if info.kind == Kind::Gate { Some(self.quantum()?) } else { None })
    }

    /// The longest that a cycle of these shares can be, in CPU time; `None` for dispatchers, which know no cycle.
    ///
    /// # Errors
    /// As [`GateSpec::quantum`].
    pub fn cycle(&self, shares: &[u64]) -> Result<Option<u128>, SpecError> {
        let Some(quantum) = self.cycle_quantum()? else { return Ok(None) };
        let unit = if self.scale_shares { shares.iter().fold(0, |unit, &share| gcd(unit, share)) } else { 1 };
        let quanta: u128 = shares.iter().map(|share| u128::from(share / unit.max(1))).sum();
        let cycle = quanta * u128::from(quantum.0);
        let bounded = self.cycle_ns_max.filter(|_| self.parse().is_ok_and(|(info, _)| info.name == "exact"));
        let turns = shares.len() as u128 * u128::from(quantum.0);
        let longest = bounded.map_or(u128::MAX, |ns| (u128::from(ns) * u128::from(self.cpus)).max(turns));
        Ok(Some(cycle.min(longest)))
    }

    /// The same with a gate's parameters read into the members that they stand for.
    fn with_params(&self, spec: &PolicySpec) -> Result<Self, ParamError> {
        let mut plain = Self { policy: spec.name.clone(), ..self.clone() };
        let mut params = Params::new(&spec.params);
        plain.quantum_ns = params.time("quantum", Span(self.quantum_ns))?.0;
        if plain.quantum_ns != self.quantum_ns {
            plain.cycle_ns_max = None; // Who says what a share is worth means it.
        }
        match spec.name.as_str() {
            "exact" => {
                let slice = |text: &str| match text {
                    "none" => Some(None),
                    time => time.parse().ok().map(|span: Span| Some(span.0)),
                };
                let slice = params.parse("slice", "none, or a time such as \"4ms\"", slice)?;
                plain.slice_ns = slice.unwrap_or(self.slice_ns);
                plain.presence = params.int("presence", 1, 64, u64::from(self.presence))? as u32;
            }
            "rate" => plain.period_ns = params.time("period", Span(self.period_ns))?.0,
            _ => {}
        }
        params.finish()?;
        Ok(plain)
    }

    fn make_gate(&self, name: &str) -> Result<AnyGate, SpecError> {
        let quantum = Nanos(self.quantum_ns);
        let scale = if self.scale_shares { Scale::ByGcd } else { Scale::AsGiven };
        let alps = |variant| Alps::new(AlpsParams { quantum, variant, scale }).map(AnyGate::Alps);
        Ok(match name {
            "exact" => {
                let params = ExactParams {
                    quantum,
                    cpus: self.cpus,
                    scale,
                    slice: self.slice_ns.map(Nanos),
                    presence: self.presence,
                    share_time: self.share_ns.map(Nanos),
                    cycle_max: self.cycle_ns_max.map(Nanos),
                };
                if self.cpus > 1 {
                    AnyGate::Lag(Box::new(Lag::new(params)?))
                } else {
                    AnyGate::Exact(Box::new(Exact::new(params)?))
                }
            }
            "alps" => alps(AlpsVariant::OptimizedIo)?,
            "alps-basic" => alps(AlpsVariant::Basic)?,
            "rate" => {
                AnyGate::Rate(Rate::new(RateParams { interval: quantum, period: Nanos(self.period_ns) })?)
            }
            "kernel" => AnyGate::Kernel(Kernel::new(KernelParams { quantum, cpus: self.cpus, scale })?),
            other => return Err(SpecError::UnknownPolicy(other.to_owned())),
        })
    }
}

impl Policy for AnyGate {
    type Decision = Gate;

    fn on_event(&mut self, now: Instant, event: Event) -> Result<(), EventError> {
        match self {
            Self::Exact(p) => p.on_event(now, event),
            Self::Lag(p) => p.on_event(now, event),
            Self::Alps(p) => p.on_event(now, event),
            Self::Rate(p) => p.on_event(now, event),
            Self::Kernel(p) => p.on_event(now, event),
            Self::Dispatched(p) => p.0.on_event(now, event),
        }
    }

    fn poll_decision(&mut self, now: Instant) -> Option<Gate> {
        match self {
            Self::Exact(p) => p.poll_decision(now),
            Self::Lag(p) => p.poll_decision(now),
            Self::Alps(p) => p.poll_decision(now),
            Self::Rate(p) => p.poll_decision(now),
            Self::Kernel(p) => p.poll_decision(now),
            Self::Dispatched(p) => p.0.poll_decision(now),
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Exact(p) => p.poll_timeout(),
            Self::Lag(p) => p.poll_timeout(),
            Self::Alps(p) => p.poll_timeout(),
            Self::Rate(p) => p.poll_timeout(),
            Self::Kernel(p) => p.poll_timeout(),
            Self::Dispatched(p) => p.0.poll_timeout(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(policy: &str) -> GateSpec {
        GateSpec { policy: policy.into(), ..GateSpec::default() }
    }

    #[test]
    fn every_live_policy_listed_can_be_made_and_no_other() {
        for info in live() {
            assert!(spec(info.name).make().is_ok(), "{}", info.name);
        }
        let error = spec("fair").make().unwrap_err().to_string();
        assert_eq!(
            error,
            "unknown policy 'fair': the policies are exact, alps, alps-basic, rate, vtrr, pbs, wrr, drr, wfq, wf2q, \
             stride, lottery, fcfs, rr, las, mlfb, linux-2.2, eevdf"
        );
        let error = spec("gps").make().unwrap_err().to_string();
        assert!(error.starts_with("gps is a model, which only simulations take"), "{error}");
    }

    #[test]
    fn parameters_are_read_and_what_is_wrong_is_named() {
        for good in [
            "pbs:alpha=2",
            "lottery:seed=7",
            "vtrr:quantum=5ms,classes=100",
            "exact:quantum=5ms,slice=2ms,presence=2",
            "exact:slice=none",
            "rate:quantum=20ms,period=2s",
            "alps:quantum=1ms",
        ] {
            assert!(spec(good).make().is_ok(), "{good}");
        }
        for (bad, answer) in [
            ("pbs:alpha=20", "pbs: alpha: alpha is 20; must be 0.0625 to 16"),
            ("pbs:alhpa=1", "pbs: alhpa: unknown parameter, expected one of alpha, guard,"),
            ("lottery:seed=x", "lottery: seed: \"x\", expected a whole number from 0 to"),
            ("stride:quantum=1us", "a quantum of 1000 ns is outside 1 ms to 10 s"),
            ("vtrr:quantum=5s", "vtrr: quantum: 5s is out of range, expected 1ns to 1s"),
            ("exact:slice=1us", "a slice of 1000 ns is shorter than 1 ms"),
            ("exact:presence=0", "exact: presence: \"0\", expected a whole number from 1 to 64"),
            ("alps:slice=1ms", "alps: slice: unknown parameter, expected one of quantum"),
            ("fcfs:arrival", "policy \"arrival\" has no value, expected key=value"),
            ("exact:quantum=999us", "a quantum of 999000 ns is outside 1 ms to 10 s"),
        ] {
            let error = spec(bad).make().unwrap_err().to_string();
            assert!(error.starts_with(answer), "{bad}: {error}");
        }
        let error = GateSpec { quantum_ns: 999_999, ..spec("las") }.make().unwrap_err();
        assert_eq!(error.to_string(), "a quantum of 999999 ns is outside 1 ms to 10 s");
    }

    #[test]
    fn published_gates_cap_no_share_whatever_their_parameters() {
        for (policy, cpus) in [
            ("exact", 4),
            ("exact:quantum=20ms", 4),
            ("las", 4),
            ("pbs:alpha=2", 4),
            ("alps", 1),
            ("alps-basic", 1),
            ("alps:quantum=20ms", 1),
            ("rate:period=2s", 1),
        ] {
            assert_eq!(GateSpec { cpus: 4, ..spec(policy) }.cpus_of_dues(), cpus, "{policy}");
        }
    }

    #[test]
    fn a_parameter_goes_before_the_member_that_it_stands_for() {
        let from_text = spec("exact:quantum=20ms,slice=2ms").make().unwrap();
        let from_members =
            GateSpec { quantum_ns: 20_000_000, slice_ns: Some(2_000_000), ..GateSpec::default() };
        assert_eq!(format!("{from_text:?}"), format!("{:?}", from_members.make().unwrap()));
    }
}
