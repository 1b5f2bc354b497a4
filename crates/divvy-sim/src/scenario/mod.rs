//! Scenario files: one TOML or JSON text that says everything about a run. `docs/scenario.md` describes them for
//! users; `docs/scenario.schema.json` is [`schema`].
//!
//! Reading is strict: an unknown key, a value of the wrong kind and a value that cannot be are each answered with the
//! line, the key and what was expected ([`ScenarioError`]).

mod build;
mod check;
mod error;
mod params;
mod policy;
mod span;
mod types;

pub use build::{Files, Plan, build};
pub use check::check;
pub(crate) use error::parse_path;
pub use error::{Format, ScenarioError, Seg};
pub use params::{ParamError, Params};
pub use policy::{PolicyContext, PolicyError, PolicyFactory, PolicyVisitor};
pub use span::Span;
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

/// The JSON Schema of scenario files.
#[must_use]
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Scenario).into()
}
