//! From a policy's name to the policy, without losing its type.
//!
//! A factory hands the policy that it made to a visitor, whose method is generic: the machine is compiled once for each
//! policy, and no decision goes through a pointer. A factory is one `match` with one arm a policy:
//!
//! ```
//! # use divvy_policy::*;
//! # use divvy_engine::policies::*;
//! # #[derive(Clone, Debug)]
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
//! #     fn visit<P: Dispatch>(self, _: P) {}
//! # }
//! let refused = Mine.with_policy(&PolicySpec::new("fifo"), &context, Nothing).unwrap_err();
//! assert_eq!(refused.to_string(), "no policy is called \"fifo\", expected one of rr");
//! ```

use std::fmt;

use divvy_policy::{Grant, Nanos, Policy};

use super::{ParamError, Params, PolicySpec, Span};

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
    fn visit<P: Dispatch>(self, policy: P) -> Self::Output;
}

/// A dispatcher that can be kept: [`AnyGate`](super::AnyGate) holds one of unknown type.
pub trait Dispatch: Policy<Decision = Grant> + Clone + fmt::Debug + Send + 'static {}

impl<P: Policy<Decision = Grant> + Clone + fmt::Debug + Send + 'static> Dispatch for P {}

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

/// Makes every dispatcher of [`DISPATCHERS`](super::DISPATCHERS), each with its own type.
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
            name => Err(PolicyError::unknown(name, &super::DISPATCHERS.map(|info| info.name))),
        }
    }
}

/// Reads one policy's parameters and makes it.
pub(super) struct Maker<'a> {
    pub(super) params: Params<'a>,
    pub(super) spec: &'a PolicySpec,
    pub(super) context: &'a PolicyContext,
}

impl Maker<'_> {
    /// The time called `name`; the scenario's quantum if it is not given.
    pub(super) fn time(&mut self, name: &'static str) -> Result<Nanos, ParamError> {
        Ok(self.params.time(name, self.context.quantum)?.nanos())
    }

    /// A whole number of 32 bits; its range is the policy's to check.
    pub(super) fn count(&mut self, name: &'static str, default: u32) -> Result<u32, ParamError> {
        Ok(self.params.int(name, 0, u64::from(u32::MAX), u64::from(default))? as u32)
    }

    /// The policy that its constructor made, once no parameter is left over. A refusal begins with the parameter's name.
    pub(super) fn made<P, E: std::fmt::Display>(self, made: Result<P, E>) -> Result<P, ParamError> {
        self.params.finish()?;
        made.map_err(|error| {
            let message = error.to_string();
            let name = message.split(' ').next().unwrap_or_default();
            ParamError { name: name.into(), message }
        })
    }
}
