//! From a policy's name to the policy, without losing its type.
//!
//! A factory hands the policy that it made to a visitor, whose method is generic: the machine is compiled once for each
//! policy, and no decision goes through a pointer. A factory is one `match` with one arm a policy:
//!
//! ```
//! # use divvy_policy::*;
//! # use divvy_sim::scenario::*;
//! # struct Rr;
//! # impl Rr { fn new(_: u32, _: Nanos) -> Self { Rr } }
//! # impl Policy for Rr {
//! #     type Decision = Grant;
//! #     fn on_event(&mut self, _: Instant, _: Event) -> Result<(), EventError> { Ok(()) }
//! #     fn poll_decision(&mut self, _: Instant) -> Option<Grant> { None }
//! #     fn poll_timeout(&self) -> Option<Instant> { None }
//! # }
//! struct Mine;
//! impl PolicyFactory for Mine {
//!     fn with_policy<V: PolicyVisitor>(
//!         &self,
//!         spec: &PolicySpec,
//!         context: &PolicyContext,
//!         visitor: V,
//!     ) -> Result<V::Output, PolicyError> {
//!         let mut params = Params::new(&spec.params);
//!         match spec.name.as_str() {
//!             "rr" => {
//!                 let quantum = params.time("quantum", context.quantum)?;
//!                 params.finish()?;
//!                 Ok(visitor.visit(Rr::new(context.cpus, quantum.nanos())))
//!             }
//!             name => Err(PolicyError::unknown(name, &["rr"])),
//!         }
//!     }
//! }
//! # let context = PolicyContext { cpus: 1, quantum: Span(1), seed: 1 };
//! # struct Nothing;
//! # impl PolicyVisitor for Nothing {
//! #     type Output = ();
//! #     fn visit<P: Policy<Decision = Grant>>(self, _: P) {}
//! # }
//! let refused = Mine.with_policy(&PolicySpec::new("fifo"), &context, Nothing).unwrap_err();
//! assert_eq!(refused.to_string(), "no policy is called \"fifo\", expected one of rr");
//! ```

use std::fmt;

use divvy_policy::{Grant, Policy};

use super::{ParamError, PolicySpec, ScenarioError, Span};

/// What a policy is made for, besides its own parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyContext {
    /// CPUs that it divides.
    pub cpus: u32,
    /// The scenario's quantum.
    pub quantum: Span,
    /// A seed of its own, for a lottery.
    pub seed: u64,
}

/// What is done with a policy once its type is known.
pub trait PolicyVisitor {
    /// What comes out.
    type Output;
    /// Uses the policy.
    fn visit<P: Policy<Decision = Grant>>(self, policy: P) -> Self::Output;
}

/// Makes policies by name.
pub trait PolicyFactory {
    /// Makes the policy that `spec` names and shows it to `visitor`.
    ///
    /// # Errors
    /// [`PolicyError`] where there is none of that name, or a parameter is wrong.
    fn with_policy<V: PolicyVisitor>(
        &self,
        spec: &PolicySpec,
        context: &PolicyContext,
        visitor: V,
    ) -> Result<V::Output, PolicyError>;
}

/// A policy cannot be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyError {
    /// No policy has this name.
    Unknown {
        /// As given.
        name: String,
        /// Names that there are.
        known: Vec<String>,
    },
    /// A parameter is wrong.
    Param(ParamError),
}

impl PolicyError {
    /// No policy is called `name`; `known` are.
    #[must_use]
    pub fn unknown(name: &str, known: &[&str]) -> Self {
        Self::Unknown { name: name.into(), known: known.iter().map(|&name| name.into()).collect() }
    }

    /// The same error at its place in a scenario.
    #[must_use]
    pub fn into_scenario_error(self) -> ScenarioError {
        match &self {
            Self::Unknown { .. } => ScenarioError::new("policy.name", self.to_string()),
            Self::Param(error) => {
                ScenarioError::new(&format!("policy.params.{}", error.name), error.message.clone())
            }
        }
    }
}

impl From<ParamError> for PolicyError {
    fn from(error: ParamError) -> Self {
        Self::Param(error)
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name, known } => {
                write!(f, "no policy is called \"{name}\", expected one of {}", known.join(", "))
            }
            Self::Param(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PolicyError {}
