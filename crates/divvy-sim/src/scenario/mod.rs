//! Scenario files: one TOML or JSON text that says everything about a run. `docs/scenario.md` describes them for
//! users; `docs/scenario.schema.json` is `schema` (with the feature of that name).
//!
//! Reading is strict: an unknown key, a value of the wrong kind and a value that cannot be are each answered with the
//! line, the key and what was expected ([`ScenarioError`]).

mod build;
mod check;
mod error;
mod types;

pub use build::{Files, Plan, build};
pub use check::check;
pub use divvy_engine::policies::{
    ParamError, ParamValue, Params, PolicyContext, PolicyError, PolicyFactory, PolicySpec, PolicyVisitor,
    Span,
};
pub(crate) use error::parse_path;
pub use error::{Format, ScenarioError, Seg};
pub use types::*;

impl Scenario {
    /// Reads and checks a scenario.
    ///
    /// # Errors
    /// [`ScenarioError`] with line, key and what was expected.
    pub fn parse(text: &str, format: Format) -> Result<Self, ScenarioError> {
        let scenario: Self = error::read(text, format)?;
        check(&scenario).map_err(|error| error.located(text, format))?;
        Ok(scenario)
    }

    /// Who decides: the gate, where there is one, else the policy.
    #[must_use]
    pub fn decider(&self) -> &PolicySpec {
        self.gate.as_ref().unwrap_or(&self.policy)
    }

    /// As [`Scenario::decider`], for whoever sets it.
    pub fn decider_mut(&mut self) -> &mut PolicySpec {
        self.gate.as_mut().unwrap_or(&mut self.policy)
    }

    /// The key of who decides: `gate` or `policy`.
    #[must_use]
    pub fn decider_key(&self) -> &'static str {
        if self.gate.is_some() { "gate" } else { "policy" }
    }

    /// The scenario of static shares, for `quanta` quanta: all clients want the CPU all the time.
    #[must_use]
    pub fn of_shares(policy: PolicySpec, shares: &[u64], quantum: Span, quanta: u64) -> Self {
        let mut scenario = Self::new(policy);
        scenario.quantum = Some(quantum);
        scenario.shares = Some(Shares::List(shares.to_vec()));
        scenario.run.quanta = Some(quanta);
        scenario
    }
}

/// A policy's error at its place in a scenario.
#[must_use]
pub fn located(error: PolicyError) -> ScenarioError {
    match &error {
        PolicyError::Param(wrong) => {
            ScenarioError::new(&format!("policy.params.{}", wrong.name), wrong.message.clone())
        }
        _ => ScenarioError::new("policy.name", error.to_string()),
    }
}

/// The JSON Schema of scenario files.
#[must_use]
#[cfg(feature = "schema")]
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Scenario).into()
}
