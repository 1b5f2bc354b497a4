//! From a policy's name to the policy, without losing its type.
//!
//! A factory hands the policy that it made to a visitor, whose method is generic: the machine is compiled once for each
//! policy, and no decision goes through a pointer. [`Policies`] makes those of the library; a study with policies of its
//! own has a factory of its own.

use std::fmt;

use divvy_policy::{ParamError, Params, PolicyVisitor, Run};

use super::{DISPATCHERS, PolicySpec, Span, find};

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
#[non_exhaustive]
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
        let known: Vec<&str> = DISPATCHERS.iter().map(|info| info.name).collect();
        let unknown = || PolicyError::unknown(&spec.name, &known);
        let info = find(&spec.name).ok_or_else(unknown)?;
        let PolicyContext { cpus, quantum, seed } = *context;
        let run = Run { cpus, quantum: quantum.nanos(), seed, ..Run::default() };
        let params = Params::new(info, run, spec.texts())?;
        divvy_policy::dispatch::with(&params, visitor)?.ok_or_else(unknown)
    }
}
