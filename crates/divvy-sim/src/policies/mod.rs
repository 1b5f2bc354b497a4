//! Every policy of the library by name: the registry, and the factory that makes dispatchers for the machine.
//!
//! A parameter that a scenario sets is checked twice: its form here, its range by the policy's own constructor. Both
//! answers name the parameter. Where `quantum`, `tick` or `slice` is not set, the scenario's quantum stands for it.

mod fair;
mod fluid;
mod pbs;

use divvy_engine::policies::GATES;
use divvy_policy::dispatch::{
    drr, eevdf, fcfs, gps, las, linux22, lottery, mlfb, pbs as pbs_policy, pbs_fluid, rr, stride, vtrr, wf2q,
    wfq, wrr,
};
use divvy_policy::{Kind, Nanos, PolicyInfo};

use crate::output::Report;
use crate::scenario::{
    Files, ParamError, Params, PolicyContext, PolicyError, PolicyFactory, PolicySpec, PolicyVisitor,
    Scenario, ScenarioError,
};
use crate::simulate::{SimError, simulate};

/// Dispatchers, as [`Policies`] makes them.
pub const DISPATCHERS: [&PolicyInfo; 14] = [
    &vtrr::INFO,
    &pbs_policy::INFO,
    &wrr::INFO,
    &drr::INFO,
    &wfq::INFO,
    &wf2q::INFO,
    &stride::INFO,
    &lottery::INFO,
    &fcfs::INFO,
    &rr::INFO,
    &las::INFO,
    &mlfb::INFO,
    &linux22::INFO,
    &eevdf::INFO,
];

/// Fluid models, which [`run`] takes in a dispatcher's place.
pub const MODELS: [&PolicyInfo; 2] = [&gps::INFO, &pbs_fluid::INFO];

/// Every policy there is: dispatchers, models, then gates.
pub fn all() -> impl Iterator<Item = &'static PolicyInfo> {
    DISPATCHERS.into_iter().chain(MODELS).chain(GATES)
}

/// The policy called `name`.
#[must_use]
pub fn find(name: &str) -> Option<&'static PolicyInfo> {
    all().find(|info| info.name == name)
}

/// Runs `scenario` with `seed` under the dispatcher or model that it names. `files` are the texts of its traces.
///
/// # Errors
/// [`SimError`] where the scenario cannot be run: a name that is none or a gate's, an impossible parameter, a workload
/// that the model does not know; and where the policy breaks its contract.
pub fn run(scenario: &Scenario, seed: u64, files: Files<'_>) -> Result<Report, SimError> {
    let name = scenario.policy.name.as_str();
    match find(name).map(|info| info.kind) {
        Some(Kind::Dispatcher) => {
            simulate(scenario, seed, files, &Policies).map_err(|error| placed(error, scenario))
        }
        Some(Kind::Model) => fluid::simulate(scenario, seed, files),
        Some(Kind::Gate) => {
            let message =
                format!("{name} is a gate, expected a dispatcher or a model: {}", names().join(", "));
            Err(ScenarioError::new("policy.name", message).into())
        }
        None => Err(PolicyError::unknown(name, &names()).into_scenario_error().into()),
    }
}

/// What can be named in a scenario.
fn names() -> Vec<&'static str> {
    DISPATCHERS.into_iter().chain(MODELS).map(|info| info.name).collect()
}

/// An error at a parameter that was not given is the error of the scenario's quantum, which stood for it.
fn placed(error: SimError, scenario: &Scenario) -> SimError {
    let SimError::Scenario(error) = error else { return error };
    let key = error.key();
    let param = key.strip_prefix("policy.params.").unwrap_or_default();
    let stands = ["quantum", "tick", "slice"].contains(&param) && !scenario.policy.params.contains_key(param);
    if stands { ScenarioError::new("quantum", error.message).into() } else { error.into() }
}

/// Makes every dispatcher of [`DISPATCHERS`], each with its own type.
#[derive(Clone, Copy, Debug, Default)]
pub struct Policies;

impl PolicyFactory for Policies {
    fn with_policy<V: PolicyVisitor>(
        &self,
        spec: &PolicySpec,
        context: &PolicyContext,
        visitor: V,
    ) -> Result<V::Output, PolicyError> {
        let params = Params::new(&spec.params);
        let maker = Maker { params, spec, context };
        match spec.name.as_str() {
            "wrr" => Ok(visitor.visit(maker.wrr()?)),
            "drr" => Ok(visitor.visit(maker.drr()?)),
            "wfq" => Ok(visitor.visit(maker.wfq()?)),
            "wf2q" => Ok(visitor.visit(maker.wf2q()?)),
            "stride" => Ok(visitor.visit(maker.stride()?)),
            "lottery" => Ok(visitor.visit(maker.lottery()?)),
            "vtrr" => Ok(visitor.visit(maker.vtrr()?)),
            "pbs" => Ok(visitor.visit(maker.pbs()?)),
            "fcfs" => Ok(visitor.visit(maker.fcfs()?)),
            "rr" => Ok(visitor.visit(maker.rr()?)),
            "las" => Ok(visitor.visit(maker.las()?)),
            "mlfb" => Ok(visitor.visit(maker.mlfb()?)),
            "linux-2.2" => Ok(visitor.visit(maker.linux22()?)),
            "eevdf" => Ok(visitor.visit(maker.eevdf()?)),
            name => Err(PolicyError::unknown(name, &DISPATCHERS.map(|info| info.name))),
        }
    }
}

/// Reads one policy's parameters and makes it.
struct Maker<'a> {
    params: Params<'a>,
    spec: &'a PolicySpec,
    context: &'a PolicyContext,
}

impl Maker<'_> {
    /// The time called `name`; the scenario's quantum if it is not given.
    fn time(&mut self, name: &'static str) -> Result<Nanos, ParamError> {
        Ok(self.params.time(name, self.context.quantum)?.nanos())
    }

    /// A whole number of 32 bits; its range is the policy's to check.
    fn count(&mut self, name: &'static str, default: u32) -> Result<u32, ParamError> {
        Ok(self.params.int(name, 0, u64::from(u32::MAX), u64::from(default))? as u32)
    }

    /// The policy that its constructor made, once no parameter is left over. A refusal begins with the parameter's name.
    fn made<P, E: std::fmt::Display>(self, made: Result<P, E>) -> Result<P, ParamError> {
        self.params.finish()?;
        made.map_err(|error| {
            let message = error.to_string();
            let name = message.split(' ').next().unwrap_or_default();
            ParamError { name: name.into(), message }
        })
    }
}
