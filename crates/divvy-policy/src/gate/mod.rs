//! Gates: policies that say which clients may run for now, and leave the fine slicing to whoever runs them.
//!
//! [`Alps`] and [`Rate`] are the published algorithms, with their O(n) loops; [`Exact`] is our own and the default;
//! [`Lag`] is what takes its place on several CPUs; [`Dispatched`] makes a gate of any dispatcher; [`Kernel`] holds nobody, for
//! where the kernel divides by weights. [`Limited`] goes around any of them, and keeps clients within their limits.

mod alps;
pub mod dispatched;
pub mod exact;
mod kernel;
pub mod lag;
pub mod limited;
mod observer;
mod rate;
mod roster;
#[cfg(test)]
mod turns;

pub use crate::params::Scale;
pub use alps::{ALPS, ALPS_BASIC, Alps, AlpsParams, AlpsVariant};
pub use dispatched::{Dispatched, DispatchedParams};
pub use exact::{EXACT, Exact, ExactParams};
pub use kernel::{KERNEL, Kernel, KernelParams};
pub use lag::Lag;
pub use limited::Limited;
pub use rate::{RATE, Rate, RateParams};

use alloc::boxed::Box;
use core::fmt;

use crate::{
    Dispatch, Event, EventError, Gate, Instant, Nanos, ParamError, Params, Policy, PolicyInfo, PolicyVisitor,
    Share, gcd,
};

/// The gates there are, the default first: one line each.
pub const GATES: &[&GateEntry] = &[&EXACT, &ALPS, &ALPS_BASIC, &RATE];

/// A gate of the list: what it tells about itself, and how it is made.
#[derive(Debug)]
pub struct GateEntry {
    /// For `divvy policies`, and to read parameters by.
    pub info: PolicyInfo,
    /// The gate with these parameters; [`GateError`] names the first that is wrong.
    pub make: fn(&Params<'_>) -> Result<AnyGate, GateError>,
}

/// Why no gate can be made of what was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GateError {
    /// A parameter is unknown, or of a wrong form, or out of its range.
    Param(ParamError),
    /// The gate refuses a value.
    Value(GateParamError),
}

impl fmt::Display for GateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Param(error) => error.fmt(f),
            Self::Value(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for GateError {}

impl From<ParamError> for GateError {
    fn from(error: ParamError) -> Self {
        Self::Param(error)
    }
}

impl From<GateParamError> for GateError {
    fn from(error: GateParamError) -> Self {
        Self::Value(error)
    }
}

/// Any gate; what it decides is what the one inside decides.
#[derive(Debug)]
pub struct AnyGate(Box<dyn Boxed>);

trait Boxed: Policy<Decision = Gate> + fmt::Debug + Send {
    fn boxed(&self) -> Box<dyn Boxed>;
}

impl<P: Policy<Decision = Gate> + Clone + fmt::Debug + Send + 'static> Boxed for P {
    fn boxed(&self) -> Box<dyn Boxed> {
        Box::new(self.clone())
    }
}

impl AnyGate {
    /// `gate`, its type forgotten.
    pub fn new(gate: impl Policy<Decision = Gate> + Clone + fmt::Debug + Send + 'static) -> Self {
        Self(Box::new(gate))
    }

    /// The gate that `params` are for, or that the dispatcher makes that they are for; `None` where there is no such
    /// policy.
    ///
    /// # Errors
    /// [`GateError`] names the first parameter that is wrong.
    pub fn of(params: &Params<'_>) -> Result<Option<Self>, GateError> {
        /// Puts the gate around whichever dispatcher comes.
        struct Around(DispatchedParams);

        impl PolicyVisitor for Around {
            type Output = Result<AnyGate, GateParamError>;

            fn visit<P: Dispatch>(self, policy: P) -> Self::Output {
                Ok(AnyGate::new(Dispatched::new(policy, self.0)?))
            }
        }

        let mut gates = GATES.iter().chain([&&KERNEL]);
        if let Some(entry) = gates.find(|entry| entry.info.name == params.info().name) {
            return (entry.make)(params).map(Some);
        }
        // The shortest slice that a hand-over is worth is the gate's to check, as for any quantum.
        let quantum =
            params.info().quantum().map_or(Ok(params.run().quantum), |param| params.time(param.name))?;
        let around = Around(DispatchedParams { quantum, cpus: params.run().cpus });
        Ok(crate::dispatch::with(params, around)?.transpose()?)
    }
}

impl Clone for AnyGate {
    fn clone(&self) -> Self {
        Self((*self.0).boxed())
    }
}

impl Policy for AnyGate {
    type Decision = Gate;

    fn on_event(&mut self, now: Instant, event: Event) -> Result<(), EventError> {
        self.0.on_event(now, event)
    }

    fn poll_decision(&mut self, now: Instant) -> Option<Gate> {
        self.0.poll_decision(now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.0.poll_timeout()
    }

    fn set_leftovers(&mut self, used: bool) {
        self.0.set_leftovers(used);
    }

    fn set_punctual(&mut self, punctual: bool) {
        self.0.set_punctual(punctual);
    }

    fn set_switch_cost(&mut self, cost: crate::Nanos) {
        self.0.set_switch_cost(cost);
    }

    fn balance(&self, client: crate::ClientId) -> Option<i128> {
        self.0.balance(client)
    }

    fn capped(&self) -> &[crate::ClientId] {
        self.0.capped()
    }
}

/// The shortest quantum that a gate takes: 1 ms. Below it the hand-over itself, 15 to 30 us, is seen in the result.
pub const QUANTUM_MIN: Nanos = Nanos::from_millis(1);
/// The longest quantum that a gate takes: 10 s.
pub const QUANTUM_MAX: Nanos = Nanos::from_secs(10);

/// Why a gate could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GateParamError {
    /// The quantum (or interval) is outside [`QUANTUM_MIN`] to [`QUANTUM_MAX`].
    Quantum(Nanos),
    /// There must be at least one CPU, and at most 4096.
    Cpus(u32),
    /// The gate is for one CPU: [`Lag`] divides several.
    SeveralCpus(u32),
    /// The slice must be at least 1 ms.
    Slice(Nanos),
    /// At least one client is released for each CPU, at most 64.
    Presence(u32),
    /// A share's time is more than nothing, and at most [`QUANTUM_MAX`].
    ShareTime(Nanos),
    /// The longest cycle must be at least 1 ms.
    Cycle(Nanos),
    /// The period must be a whole number of intervals, at least one.
    Period {
        /// The period asked for.
        period: Nanos,
        /// The interval that it is not a multiple of.
        interval: Nanos,
    },
}

/// A time in the largest unit of which it is a whole number: `11 s`, `999999 ns`.
struct InWords(Nanos);

impl fmt::Display for InWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
        let unit = units.into_iter().find(|(ns, _)| self.0.0 != 0 && self.0.0.is_multiple_of(*ns));
        let (ns, name) = unit.unwrap_or((1, "ns"));
        write!(f, "{} {name}", self.0.0 / ns)
    }
}

impl fmt::Display for GateParamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quantum(q) => write!(f, "a quantum of {} is outside 1 ms to 10 s", InWords(*q)),
            Self::Cpus(n) => write!(f, "{n} CPUs: there must be 1 to 4096"),
            Self::SeveralCpus(n) => {
                write!(f, "{n} CPUs: the exact gate divides one, the gate by lag several")
            }
            Self::Slice(s) => write!(f, "a slice of {} is shorter than 1 ms", InWords(*s)),
            Self::Cycle(t) => write!(f, "a longest cycle of {} is less than 1 ms", InWords(*t)),
            Self::ShareTime(t) => write!(f, "a share of {} is outside 1 ns to 10 s", InWords(*t)),
            Self::Presence(n) => write!(f, "{n} clients released for each CPU: there must be 1 to 64"),
            Self::Period { period, interval } => {
                write!(
                    f,
                    "a period of {} is not a whole number of intervals of {}, one at least",
                    InWords(*period),
                    InWords(*interval)
                )
            }
        }
    }
}

impl core::error::Error for GateParamError {}

/// How far a question to the driver has come. Only what arrives after the driver was told of it is the answer: a
/// charge that was split may bring its first part before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Question {
    /// There is none, or it was answered.
    #[default]
    None,
    /// Decided; the driver has not been told yet.
    Decided,
    /// The driver was told, and owes the answer.
    Asked,
}

impl Question {
    /// Whether an answer is still to come.
    pub(crate) fn open(self) -> bool {
        self != Self::None
    }

    /// The driver is told now.
    pub(crate) fn tell(&mut self) {
        if *self == Self::Decided {
            *self = Self::Asked;
        }
    }

    /// Takes an event for the answer, if the driver was told of the question.
    pub(crate) fn answer(&mut self) -> bool {
        let answers = *self == Self::Asked;
        if answers {
            *self = Self::None;
        }
        answers
    }
}

/// The moment `steps` steps after `start`; `None` where no clock gets there.
pub(crate) fn steps_after(start: Instant, step: Nanos, steps: u64) -> Option<Instant> {
    step.0.checked_mul(steps).and_then(|ns| start.0.checked_add(ns)).map(Instant)
}

fn check_quantum(quantum: Nanos) -> Result<(), GateParamError> {
    if quantum < QUANTUM_MIN || quantum > QUANTUM_MAX {
        return Err(GateParamError::Quantum(quantum));
    }
    Ok(())
}

/// The unit that shares are counted in: their greatest common divisor, or 1. Cost: O(1) on a join, O(distinct
/// shares) on a leave or change of share, nothing at a decision.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShareUnit {
    scale: Scale,
    counts: alloc::collections::BTreeMap<u64, u64>,
    sum: u128,
    unit: u64,
}

impl ShareUnit {
    pub(crate) fn new(scale: Scale) -> Self {
        Self { scale, ..Self::default() }
    }

    pub(crate) fn add(&mut self, share: Share) {
        *self.counts.entry(share.get()).or_insert(0) += 1;
        self.sum += u128::from(share.get());
        self.unit = gcd(self.unit, share.get());
    }

    pub(crate) fn remove(&mut self, share: Share) {
        let Some(count) = self.counts.get_mut(&share.get()) else { return };
        self.sum -= u128::from(share.get());
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&share.get());
            if self.scale == Scale::ByGcd {
                self.unit = self.counts.keys().fold(0, |acc, &s| gcd(acc, s));
            }
        }
    }

    /// What one quantum stands for.
    pub(crate) fn unit(&self) -> u64 {
        match self.scale {
            Scale::ByGcd => self.unit.max(1),
            Scale::AsGiven => 1,
        }
    }

    /// `share` in quanta.
    pub(crate) fn quanta(&self, share: Share) -> u64 {
        share.get() / self.unit()
    }

    /// All shares in quanta.
    pub(crate) fn total_quanta(&self) -> u128 {
        self.in_quanta(self.sum)
    }

    /// A sum of shares in quanta.
    pub(crate) fn in_quanta(&self, shares: u128) -> u128 {
        shares / u128::from(self.unit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_follows_joins_and_leaves() {
        let share = |n| Share::new(n).unwrap();
        let mut unit = ShareUnit::new(Scale::ByGcd);
        for n in [10, 20, 30] {
            unit.add(share(n));
        }
        assert_eq!((unit.quanta(share(30)), unit.total_quanta()), (3, 6));
        unit.add(share(15)); // gcd(10, 20, 30, 15) = 5
        assert_eq!((unit.quanta(share(30)), unit.total_quanta()), (6, 15));
        unit.remove(share(15));
        assert_eq!((unit.quanta(share(30)), unit.total_quanta()), (3, 6));
        let mut as_given = ShareUnit::new(Scale::AsGiven);
        as_given.add(share(10));
        assert_eq!(as_given.quanta(share(10)), 10);
    }
}
