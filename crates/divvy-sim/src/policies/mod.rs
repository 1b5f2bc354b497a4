//! Scenarios under any policy of the library, by its name in the registry ([`divvy_engine::policies`]).

mod fluid;

pub use divvy_engine::policies::{DISPATCHERS, MODELS, Policies, all, find};
use divvy_policy::Kind;

use crate::output::Report;
use crate::scenario::{Files, PolicyError, Scenario, ScenarioError, located};
use crate::simulate::{SimError, simulate};

/// Runs `scenario` with `seed` under the dispatcher or model that it names, or under its gate above a simulated kernel.
/// `files` are the texts of its traces.
///
/// # Errors
/// [`SimError`] where the scenario cannot be run: a name that is none or a gate's, an impossible parameter, a workload
/// that the model does not know; and where the policy breaks its contract.
pub fn run(scenario: &Scenario, seed: u64, files: Files<'_>) -> Result<Report, SimError> {
    if scenario.gate.is_some() {
        return crate::two_level::simulate(scenario, seed, files);
    }
    let name = scenario.policy.name.as_str();
    match find(name).map(|info| info.kind) {
        Some(Kind::Dispatcher) => {
            simulate(scenario, seed, files, &Policies).map_err(|error| placed(error, scenario))
        }
        Some(Kind::Model) => fluid::simulate(scenario, seed, files),
        Some(Kind::Gate) => {
            let message = format!(
                "{name} is a gate (gate = \"{name}\" runs it above a kernel), expected a dispatcher or a model: {}",
                names().join(", ")
            );
            Err(ScenarioError::new("policy.name", message).into())
        }
        None => Err(located(PolicyError::unknown(name, &names())).into()),
    }
}

/// What can be named in a scenario.
fn names() -> Vec<&'static str> {
    DISPATCHERS.iter().chain(MODELS).map(|info| info.name).collect()
}

/// An error at a parameter that was not given is the error of the scenario's quantum, which stood for it.
fn placed(error: SimError, scenario: &Scenario) -> SimError {
    let SimError::Scenario(error) = error else { return error };
    let key = error.key();
    let param = key.strip_prefix("policy.params.").unwrap_or_default();
    let quantum = find(&scenario.policy.name).and_then(|info| info.quantum());
    let stands = quantum.is_some_and(|own| own.name == param) && !scenario.policy.params.contains_key(param);
    if stands { ScenarioError::new("quantum", error.message).into() } else { error.into() }
}
