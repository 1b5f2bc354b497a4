//! What a policy tells about itself: name, parameters with the values that they take, cost, the place it comes from, and
//! how it is made of what a user gave.

use core::fmt;

use crate::dispatch::fixed::Fixed;
use crate::params::{ParamError, Params};
use crate::{Grant, Nanos, Policy};

/// Gate, dispatcher or model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Decides who may run for now ([`crate::Gate`]).
    Gate,
    /// Decides who runs next on a CPU ([`crate::Grant`]).
    Dispatcher,
    /// Says what each client is entitled to at every instant; grants nothing.
    Model,
}

/// The time in which everybody is given what they are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cycle {
    /// The policy knows none.
    None,
    /// The sum of shares times the quantum.
    Quanta,
    /// The same, or what [`Run::share_time`](crate::Run::share_time) and [`Run::cycle_max`](crate::Run::cycle_max) make of it.
    Given,
}

/// The values that a parameter takes. Bounds are included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Domain {
    /// A time, for which the run's quantum stands where it is not given.
    Quantum(Nanos, Nanos),
    /// A time.
    Time(Nanos, Nanos),
    /// A whole number.
    Whole(u64, u64),
    /// A number.
    Number(Fixed, Fixed),
    /// One of these words.
    Word(&'static [&'static str]),
    /// What the policy reads itself, in words.
    Form(&'static str),
}

/// The value of a parameter, for [`Domain::contains`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// A time.
    Time(Nanos),
    /// A whole number.
    Whole(u64),
    /// A number.
    Number(Fixed),
}

impl From<Nanos> for Given {
    fn from(time: Nanos) -> Self {
        Self::Time(time)
    }
}

impl From<u32> for Given {
    fn from(n: u32) -> Self {
        Self::Whole(n.into())
    }
}

impl From<u64> for Given {
    fn from(n: u64) -> Self {
        Self::Whole(n)
    }
}

impl From<Fixed> for Given {
    fn from(x: Fixed) -> Self {
        Self::Number(x)
    }
}

impl Domain {
    /// Whether the value is one of these. What the policy reads itself, it judges itself.
    #[must_use]
    pub fn contains(self, given: Given) -> bool {
        match (self, given) {
            (Self::Quantum(min, max) | Self::Time(min, max), Given::Time(time)) => {
                (min..=max).contains(&time)
            }
            (Self::Whole(min, max), Given::Whole(n)) => (min..=max).contains(&n),
            (Self::Number(min, max), Given::Number(x)) => (min..=max).contains(&x),
            (Self::Form(_), _) => true,
            _ => false,
        }
    }
}

impl fmt::Display for Domain {
    /// `1ns to 1s`, `0 to 9`, `list, heap`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Quantum(min, max) | Self::Time(min, max) => write!(f, "{min} to {max}"),
            Self::Whole(min, max) => write!(f, "{min} to {max}"),
            Self::Number(min, max) => write!(f, "{min} to {max}"),
            Self::Word(words) => {
                for (i, word) in words.iter().enumerate() {
                    write!(f, "{}{word}", if i == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
            Self::Form(text) => f.write_str(text),
        }
    }
}

impl fmt::Display for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(time) => time.fmt(f),
            Self::Whole(n) => n.fmt(f),
            Self::Number(x) => x.fmt(f),
        }
    }
}

/// The words of a table of choices, for [`Domain::Word`].
#[must_use]
pub const fn words<T, const N: usize>(choices: &[(&'static str, T); N]) -> [&'static str; N] {
    let mut words = [""; N];
    let mut i = 0;
    while i < N {
        words[i] = choices[i].0;
        i += 1;
    }
    words
}

/// One parameter of a policy, as a user may set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParamInfo {
    /// As written in `policy:name=value`.
    pub name: &'static str,
    /// Values allowed.
    pub domain: Domain,
    /// What it is when not given; read as a user's text would be.
    pub default: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
}

/// A [`ParamInfo`]: name, domain, default, summary. A macro, so that a domain may borrow what stands in its place.
macro_rules! param {
    ($name:literal, $domain:expr, $default:literal, $summary:literal $(,)?) => {
        crate::ParamInfo { name: $name, domain: $domain, default: $default, summary: $summary }
    };
}
pub(crate) use param;

/// One policy of the library, as `divvy policies` lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyInfo {
    /// The name that users type.
    pub name: &'static str,
    /// Gate, dispatcher or model.
    pub kind: Kind,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Cost of one decision, n clients.
    pub complexity: &'static str,
    /// Paper and section.
    pub source: &'static str,
    /// What can be set.
    pub params: &'static [ParamInfo],
    /// Whether nobody is given more CPUs than it can use, and the others what is left of its share.
    pub capped: bool,
    /// What a cycle is.
    pub cycle: Cycle,
}

impl PolicyInfo {
    /// What all dispatchers have in common; the rest is empty.
    pub const DISPATCHER: Self = Self {
        name: "",
        kind: Kind::Dispatcher,
        summary: "",
        complexity: "",
        source: "",
        params: &[],
        capped: true,
        cycle: Cycle::None,
    };
    /// What the published gates have in common: shares as they are, in cycles of quanta.
    pub const GATE: Self = Self { kind: Kind::Gate, capped: false, cycle: Cycle::Quanta, ..Self::DISPATCHER };
    /// What all models have in common.
    pub const MODEL: Self = Self { kind: Kind::Model, ..Self::DISPATCHER };

    /// The parameter called `name`.
    #[must_use]
    pub fn param(&self, name: &str) -> Option<&'static ParamInfo> {
        self.params.iter().find(|param| param.name == name)
    }

    /// The parameter for which the run's quantum stands.
    #[must_use]
    pub fn quantum(&self) -> Option<&'static ParamInfo> {
        self.params.iter().find(|param| matches!(param.domain, Domain::Quantum(..)))
    }

    /// `given` as the value of `name`, which it cannot have.
    pub(crate) fn outside(&self, name: &'static str, given: Given) -> RangeError {
        let domain = self.param(name).map_or(Domain::Form("nothing"), |param| param.domain);
        RangeError::Outside { name, given, domain }
    }

    /// Checks values against their domains, and that there is a CPU.
    pub(crate) fn check(&self, cpus: u32, values: &[(&'static str, Given)]) -> Result<(), RangeError> {
        if cpus == 0 {
            return Err(RangeError::NoCpu);
        }
        let wrong = |&&(name, given): &&(&'static str, Given)| {
            !self.param(name).is_some_and(|param| param.domain.contains(given))
        };
        values.iter().find(wrong).map_or(Ok(()), |&(name, given)| Err(self.outside(name, given)))
    }
}

/// Why a dispatcher cannot be made with these parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RangeError {
    /// A policy divides at least one CPU.
    NoCpu,
    /// A parameter is outside its domain.
    Outside {
        /// As the policy's [`PolicyInfo`] has it.
        name: &'static str,
        /// Its value.
        given: Given,
        /// Those allowed.
        domain: Domain,
    },
    /// A parameter's value does not go with another's.
    Clash {
        /// As the policy's [`PolicyInfo`] has it.
        name: &'static str,
        /// Why not, in words that follow the name.
        why: &'static str,
    },
}

impl RangeError {
    /// The parameter's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NoCpu => "cpus",
            Self::Outside { name, .. } | Self::Clash { name, .. } => name,
        }
    }
}

impl fmt::Display for RangeError {
    /// What is wrong, without the name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCpu => f.write_str("0 is out of range, expected at least 1"),
            Self::Outside { given, domain, .. } => write!(f, "{given} is out of range, expected {domain}"),
            Self::Clash { why, .. } => f.write_str(why),
        }
    }
}

impl core::error::Error for RangeError {}

/// A dispatcher that can be kept and sent, whatever its type.
pub trait Dispatch: Policy<Decision = Grant> + Clone + fmt::Debug + Send + 'static {}

impl<P: Policy<Decision = Grant> + Clone + fmt::Debug + Send + 'static> Dispatch for P {}

/// What is done with a dispatcher once its type is known, so that no decision goes through a pointer.
pub trait PolicyVisitor {
    /// What comes out.
    type Output;
    /// Uses the policy.
    fn visit<P: Dispatch>(self, policy: P) -> Self::Output;
}

/// A dispatcher of the list ([`crate::dispatch::DISPATCHERS`]): what it tells about itself, and how it is made.
pub trait Listed: Dispatch {
    /// For `divvy policies`, and to read parameters by.
    const INFO: PolicyInfo;

    /// The policy with these parameters.
    ///
    /// # Errors
    /// [`ParamError`] names the first that is wrong.
    fn make(params: &Params<'_>) -> Result<Self, ParamError>;
}

/// Lists dispatchers, and makes them by name: one line each.
macro_rules! dispatchers {
    ($($policy:ty,)*) => {
        /// Every dispatcher.
        pub const DISPATCHERS: &[&crate::PolicyInfo] = &[$(&<$policy as crate::Listed>::INFO),*];

        /// Makes the dispatcher that `params` are for and shows it to `visitor`; `None` where it is none of the list.
        ///
        /// # Errors
        /// [`ParamError`](crate::ParamError) names the first parameter that is wrong.
        pub fn with<V: crate::PolicyVisitor>(
            params: &crate::Params<'_>,
            visitor: V,
        ) -> Result<Option<V::Output>, crate::ParamError> {
            $(if params.info().name == <$policy as crate::Listed>::INFO.name {
                return <$policy as crate::Listed>::make(params).map(|policy| Some(visitor.visit(policy)));
            })*
            Ok(None)
        }
    };
}
pub(crate) use dispatchers;
