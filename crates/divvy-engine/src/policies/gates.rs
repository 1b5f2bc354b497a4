//! What a user asks to schedule live processes with, and the gate made of it.

use divvy_policy::gate::{AnyGate, EXACT, GateError, GateParamError, Scale};
use divvy_policy::{Cycle, Kind, Nanos, ParamError, Params, PolicyInfo, Run, gcd};
use serde::{Deserialize, Serialize};

use super::{PolicySpec, find, live};
use crate::Ledger;

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
            policy: EXACT.info.name.to_owned(),
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
#[non_exhaustive]
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
    /// An option of the command line is a parameter of other policies.
    #[error("--{option} is an option of --policy {owners}, not of {policy}; leave it out")]
    Foreign {
        /// Its name.
        option: String,
        /// The policies that have it.
        owners: String,
        /// The one that has not.
        policy: String,
    },
    /// A parameter is out of its range.
    #[error(transparent)]
    Param(#[from] GateParamError),
}

fn live_names() -> String {
    live().map(|info| info.name).collect::<Vec<_>>().join(", ")
}

/// A cycle longer than this cannot be meant.
pub const CYCLE_MAX: Nanos = Nanos::from_secs(24 * 3600);
/// Where no quantum is asked for, no cycle is longer: [`GateSpec::cycle_ns_max`].
pub const CYCLE_LONGEST: Nanos = Nanos::from_secs(1);

/// What a [`GateSpec`] names, read once: it answers every later question.
#[derive(Clone, Debug)]
pub struct Chosen {
    spec: GateSpec,
    info: &'static PolicyInfo,
    params: Params<'static>,
    quantum: Nanos,
}

impl Chosen {
    /// What it was read from.
    #[must_use]
    pub const fn spec(&self) -> &GateSpec {
        &self.spec
    }

    /// The policy.
    #[must_use]
    pub const fn info(&self) -> &'static PolicyInfo {
        self.info
    }

    /// The quantum in effect: the policy's own parameter, or the run's.
    #[must_use]
    pub const fn quantum(&self) -> Nanos {
        self.quantum
    }

    /// Checks that the options that were given are parameters of this policy: each its name, and whether it was given.
    ///
    /// # Errors
    /// [`SpecError::Foreign`] names the first that was meant for another.
    pub fn check_options(&self, options: &[(&str, bool)]) -> Result<(), SpecError> {
        let has = |info: &PolicyInfo, option: &str| {
            let scales = option == "unscaled" && info.name != "rate";
            info.kind == Kind::Gate && (scales || info.param(option).is_some())
        };
        let Some((option, _)) = options.iter().find(|(option, given)| *given && !has(self.info, option))
        else {
            return Ok(());
        };
        let owners: Vec<&str> = live().filter(|info| has(info, option)).map(|info| info.name).collect();
        let (option, policy) = ((*option).to_owned(), self.info.name.to_owned());
        Err(SpecError::Foreign { option, owners: owners.join(", "), policy })
    }

    /// CPUs that what each client is due is reckoned with, by an [`Engine`](crate::Engine) or a [`Ledger`](crate::Ledger):
    /// those that are divided, for a policy that gives nobody more of them than it can use, and what is left to the
    /// others. One for the published gates, which divide by shares as they are, and leave CPUs idle where those are
    /// infeasible: on one CPU no share is.
    #[must_use]
    pub const fn cpus_of_dues(&self) -> u32 {
        if self.info.capped { self.params.run().cpus } else { 1 }
    }

    /// Accounts of no clients yet, for whom dues are reckoned as this policy gives them.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        let ledger = Ledger::new(self.cpus_of_dues());
        // The kernel divides all CPUs; a published gate leaves some of them idle.
        if self.info.name == "kernel" { ledger.as_asked(self.params.run().cpus) } else { ledger }
    }

    /// The CPU time of one share in one cycle; `None` for dispatchers, which know no cycle.
    #[must_use]
    pub fn cycle_quantum(&self) -> Option<Nanos> {
        (self.info.cycle != Cycle::None).then_some(self.quantum)
    }

    /// The longest that a cycle of these shares can be, in CPU time, where nobody is dear to hold
    /// ([`Policy::set_switch_cost`](divvy_policy::Policy::set_switch_cost)); `None` for dispatchers, which know no cycle.
    #[must_use]
    pub fn cycle(&self, shares: &[u64]) -> Option<u128> {
        let quantum = u128::from(self.cycle_quantum()?.0);
        let Run { cpus, scale, cycle_max, .. } = *self.params.run();
        let unit = match scale {
            Scale::ByGcd => shares.iter().fold(0, |unit, &share| gcd(unit, share)),
            Scale::AsGiven => 1,
        };
        let quanta: u128 = shares.iter().map(|share| u128::from(share / unit.max(1))).sum();
        let bounded = cycle_max.filter(|_| self.info.cycle == Cycle::Given);
        let turns = shares.len() as u128 * quantum;
        let longest = bounded.map_or(u128::MAX, |max| (u128::from(max.0) * u128::from(cpus)).max(turns));
        Some((quanta * quantum).min(longest))
    }

    /// The gate.
    ///
    /// # Errors
    /// [`SpecError`] names the first parameter that is wrong.
    pub fn make(&self) -> Result<AnyGate, SpecError> {
        let unknown = || SpecError::UnknownPolicy(self.info.name.to_owned());
        let made = AnyGate::of(&self.params).map_err(|error| match error {
            GateError::Param(error) => SpecError::Policy { policy: self.info.name.to_owned(), error },
            GateError::Value(error) => SpecError::Param(error),
        });
        made?.ok_or_else(unknown)
    }
}

impl GateSpec {
    /// The policy that this names, and its parameters.
    ///
    /// # Errors
    /// [`SpecError`] where the text is none, or names what cannot be used live, or a parameter that there is not, or
    /// gives no time for the quantum.
    pub fn parse(&self) -> Result<Chosen, SpecError> {
        let spec: PolicySpec = self.policy.parse().map_err(SpecError::Form)?;
        let info = match find(&spec.name) {
            None => return Err(SpecError::UnknownPolicy(spec.name)),
            Some(info) if info.kind == Kind::Model => return Err(SpecError::Model(spec.name)),
            Some(info) => info,
        };
        let run = Run {
            cpus: self.cpus,
            quantum: Nanos(self.quantum_ns),
            seed: 1,
            scale: if self.scale_shares { Scale::ByGcd } else { Scale::AsGiven },
            share_time: self.share_ns.map(Nanos),
            cycle_max: self.cycle_ns_max.map(Nanos),
        };
        // The members that are parameters of some gates; what the text says goes before them.
        let members = [
            ("slice", self.slice_ns.map(|ns| Nanos(ns).to_string())),
            ("presence", Some(self.presence.to_string())),
            ("period", Some(Nanos(self.period_ns).to_string())),
        ];
        let members = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        let own = members.filter(|(name, _)| info.kind == Kind::Gate && info.param(name).is_some());
        let wrong = |error| SpecError::Policy { policy: spec.name.clone(), error };
        let params = Params::new(info, run, own.chain(spec.texts())).map_err(wrong)?;
        let quantum = info.quantum().map_or(Ok(run.quantum), |param| params.time(param.name));
        Ok(Chosen { spec: self.clone(), info, quantum: quantum.map_err(wrong)?, params })
    }

    /// The gate that this names.
    ///
    /// # Errors
    /// As [`GateSpec::parse`] and [`Chosen::make`].
    pub fn make(&self) -> Result<AnyGate, SpecError> {
        self.parse()?.make()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(policy: &str) -> GateSpec {
        GateSpec { policy: policy.into(), ..GateSpec::default() }
    }

    /// By the kernel's weights a limit of one CPU is half of two; a published gate leaves one of them idle.
    #[test]
    fn dues_beside_a_limit_are_of_the_cpus_that_are_divided() {
        let limited = |policy: &str| {
            let mut ledger = GateSpec { cpus: 2, ..spec(policy) }.parse().unwrap().ledger();
            for share in [1, 1] {
                ledger.join(divvy_policy::Share::new(share).unwrap());
            }
            ledger.set_limit(0, Some("25%".parse().unwrap()));
            ledger.effective(|_| true)
        };
        assert_eq!(limited("kernel"), [0.125, 0.875]);
        assert_eq!(limited("alps"), [0.25, 0.75]);
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
            ("pbs:alpha=20", "pbs: alpha: 20 is out of range, expected 1/16 to 16; with guard=study"),
            ("pbs:alhpa=1", "pbs: alhpa: unknown parameter, expected one of alpha, guard,"),
            ("lottery:seed=x", "lottery: seed: \"x\", expected a whole number from 0 to"),
            ("stride:quantum=1us", "a quantum of 1 us is outside 1 ms to 10 s"),
            ("vtrr:quantum=5s", "vtrr: quantum: 5s is out of range, expected 1ns to 1s"),
            ("exact:slice=1us", "a slice of 1 us is shorter than 1 ms"),
            ("exact:presence=0", "exact: presence: 0 is out of range, expected 1 to 64"),
            ("alps:slice=1ms", "alps: slice: unknown parameter, expected one of quantum"),
            ("fcfs:arrival", "policy \"arrival\" has no value, expected key=value"),
            ("exact:quantum=999us", "exact: quantum: 999us is out of range, expected 1ms to 10s"),
        ] {
            let error = spec(bad).make().unwrap_err().to_string();
            assert!(error.starts_with(answer), "{bad}: {error}");
        }
        // Where the run's quantum stands for a parameter, nobody gave it to the policy.
        for policy in ["las", "exact"] {
            let error = GateSpec { quantum_ns: 999_999, ..spec(policy) }.make().unwrap_err();
            assert_eq!(error.to_string(), "a quantum of 999999 ns is outside 1 ms to 10 s");
        }
        let error = GateSpec { presence: 65, ..GateSpec::default() }.make().unwrap_err();
        assert_eq!(error.to_string(), "exact: presence: 65 is out of range, expected 1 to 64");
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
            assert_eq!(
                GateSpec { cpus: 4, ..spec(policy) }.parse().unwrap().cpus_of_dues(),
                cpus,
                "{policy}"
            );
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
