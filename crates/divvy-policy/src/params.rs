//! A policy's parameters as a user gave them, read by what the policy's [`PolicyInfo`] says of them.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::Nanos;
use crate::dispatch::fixed::{FIXED_BITS, Fixed};
use crate::registry::{Domain, Given, PolicyInfo, RangeError};

/// What a policy is made for, besides its own parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// CPUs that are divided.
    pub cpus: u32,
    /// The run's quantum.
    pub quantum: Nanos,
    /// A seed of the policy's own, for a lottery.
    pub seed: u64,
    /// Whether shares are divided by their greatest common divisor; gates only.
    pub scale: Scale,
    /// CPU time of one share in one cycle, where that is not the quantum; for [`Cycle::Given`](crate::Cycle::Given).
    pub share_time: Option<Nanos>,
    /// The longest cycle; for [`Cycle::Given`](crate::Cycle::Given).
    pub cycle_max: Option<Nanos>,
}

impl Default for Run {
    fn default() -> Self {
        let (scale, share_time, cycle_max) = (Scale::default(), None, None);
        Self { cpus: 1, quantum: Nanos::from_millis(10), seed: 1, scale, share_time, cycle_max }
    }
}

/// Whether shares are divided by their greatest common divisor before they are turned into quanta.
///
/// Source: ALPS, section 2.1: the cycle is `S * Q` "assuming the shares have been scaled by their greatest common
/// divisor"; its workloads (Table 1) were not scaled. Proportions are the same, the cycle's length is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// 10:20:30 has the cycle of 1:2:3.
    #[default]
    ByGcd,
    /// 10:20:30 has a cycle ten times that of 1:2:3.
    AsGiven,
}

/// A parameter is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamError {
    /// Its name.
    pub name: String,
    /// What is wrong, and what was expected.
    pub message: String,
}

impl fmt::Display for ParamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.message)
    }
}

impl core::error::Error for ParamError {}

impl From<RangeError> for ParamError {
    fn from(error: RangeError) -> Self {
        Self { name: error.name().into(), message: error.to_string() }
    }
}

/// The parameters of one policy. What is not given has its default, which is read in the same way.
#[derive(Clone, Debug)]
pub struct Params<'a> {
    info: &'a PolicyInfo,
    run: Run,
    given: BTreeMap<String, String>,
}

impl<'a> Params<'a> {
    /// What was given for the policy of `info`, by name.
    ///
    /// # Errors
    /// [`ParamError`] where the policy has no parameter of such a name.
    pub fn new(
        info: &'a PolicyInfo,
        run: Run,
        given: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ParamError> {
        let given: BTreeMap<String, String> = given.into_iter().collect();
        if let Some(name) = given.keys().find(|name| info.param(name).is_none()) {
            let known: Vec<&str> = info.params.iter().map(|param| param.name).collect();
            let message = if known.is_empty() {
                String::from("unknown parameter, this policy has none")
            } else {
                format!("unknown parameter, expected one of {}", known.join(", "))
            };
            return Err(ParamError { name: name.clone(), message });
        }
        Ok(Self { info, run, given })
    }

    /// Whose parameters these are.
    #[must_use]
    pub const fn info(&self) -> &'a PolicyInfo {
        self.info
    }

    /// What the policy is made for.
    #[must_use]
    pub const fn run(&self) -> &Run {
        &self.run
    }

    /// Whether `name` was given.
    #[must_use]
    pub fn is_given(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    fn domain(&self, name: &str) -> Domain {
        self.info.param(name).map_or(Domain::Form("nothing"), |param| param.domain)
    }

    fn text(&self, name: &str) -> &str {
        let default = self.info.param(name).map_or("", |param| param.default);
        self.given.get(name).map_or(default, String::as_str)
    }

    fn wrong(&self, name: &str) -> ParamError {
        let domain = self.domain(name);
        let what = match domain {
            Domain::Quantum(..) | Domain::Time(..) => "a time from ",
            Domain::Whole(..) => "a whole number from ",
            Domain::Number(..) => "a number from ",
            Domain::Word(_) | Domain::Form(_) => "",
        };
        ParamError { name: name.into(), message: format!("\"{}\", expected {what}{domain}", self.text(name)) }
    }

    /// The value of `name` as `parse` reads it.
    ///
    /// # Errors
    /// [`ParamError`] where `parse` answers `None`.
    pub fn form<T>(&self, name: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, ParamError> {
        parse(self.text(name)).ok_or_else(|| self.wrong(name))
    }

    /// A value of the domain of `name`.
    fn within<T: Copy + Into<Given>>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, ParamError> {
        let value = self.form(name, parse)?;
        match self.info.param(name) {
            Some(param) if !param.domain.contains(value.into()) => {
                Err(self.info.outside(param.name, value.into()).into())
            }
            _ => Ok(value),
        }
    }

    /// A time. Where a quantum is not given, it is the run's, for the policy to check.
    ///
    /// # Errors
    /// [`ParamError`] where it is none, or out of its range.
    pub fn time(&self, name: &str) -> Result<Nanos, ParamError> {
        if matches!(self.domain(name), Domain::Quantum(..)) && !self.is_given(name) {
            return Ok(self.run.quantum);
        }
        self.within::<Nanos>(name, |text| text.parse().ok())
    }

    /// A whole number.
    ///
    /// # Errors
    /// As [`Params::time`].
    pub fn whole<T: TryFrom<u64>>(&self, name: &str) -> Result<T, ParamError> {
        let n: u64 = self.within(name, |text| text.parse().ok())?;
        T::try_from(n).map_err(|_| self.wrong(name))
    }

    /// A number.
    ///
    /// # Errors
    /// As [`Params::time`].
    pub fn number(&self, name: &str) -> Result<Fixed, ParamError> {
        self.within(name, number)
    }

    /// One of `choices`.
    ///
    /// # Errors
    /// [`ParamError`] where it is none of them.
    pub fn choice<T: Copy>(&self, name: &str, choices: &[(&str, T)]) -> Result<T, ParamError> {
        self.form(name, |text| choices.iter().find(|(word, _)| *word == text).map(|&(_, value)| value))
    }
}

/// A number as written, or one that a computation left with more digits than people write.
pub(crate) fn number(text: &str) -> Option<Fixed> {
    text.parse().ok().or_else(|| {
        let scaled = text.parse::<f64>().ok()? * (1u64 << FIXED_BITS) as f64;
        let fits = scaled.is_finite() && scaled.abs() < i64::MAX as f64;
        // To the nearest: a cast cuts off.
        fits.then(|| Fixed((scaled + 0.5f64.copysign(scaled)) as i64))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::words;
    use crate::{Cycle, ParamInfo};

    const TIES: [(&str, u8); 2] = [("share", 0), ("id", 1)];
    const fn param(name: &'static str, domain: Domain, default: &'static str) -> ParamInfo {
        ParamInfo { name, domain, default, summary: "" }
    }
    const INFO: PolicyInfo = PolicyInfo {
        name: "x",
        params: &[
            param("q", Domain::Quantum(Nanos(1), Nanos::from_secs(1)), "10ms"),
            param("t", Domain::Time(Nanos(1), Nanos::from_secs(1)), "2.5ms"),
            param("n", Domain::Whole(1, 9), "3"),
            param("x", Domain::Number(Fixed::ZERO, Fixed::ONE), "0.5"),
            param("tie", Domain::Word(&words(&TIES)), "id"),
        ],
        ..PolicyInfo::DISPATCHER
    };

    fn params(given: &[(&str, &str)]) -> Result<Params<'static>, ParamError> {
        let texts = given.iter().map(|&(name, value)| (name.into(), value.into()));
        Params::new(&INFO, Run::default(), texts)
    }

    #[test]
    fn what_is_not_given_has_its_default() {
        assert_eq!(INFO.cycle, Cycle::None);
        let none = params(&[]).unwrap();
        assert_eq!(none.time("q"), Ok(Run::default().quantum));
        assert_eq!(none.time("t"), Ok(Nanos(2_500_000)));
        assert_eq!((none.whole("n"), none.choice("tie", &TIES)), (Ok(3u32), Ok(1)));
        assert_eq!(none.number("x"), Fixed::ratio(1, 2).map_err(|_| unreachable!()));
        let given = params(&[("q", "4ms"), ("n", "9"), ("x", "1/3"), ("tie", "share")]).unwrap();
        assert_eq!((given.time("q"), given.whole("n")), (Ok(Nanos::from_millis(4)), Ok(9u64)));
        assert_eq!(given.number("x"), Fixed::ratio(1, 3).map_err(|_| unreachable!()));
        assert_eq!(given.choice("tie", &TIES), Ok(0));
        assert!(given.is_given("n") && !given.is_given("t"));
    }

    /// Digits beyond the ninth, which a computed number has, are read too: to the nearest.
    #[test]
    fn a_computed_number_is_the_nearest() {
        for (text, num, den) in
            [("0.30000000000000004", 3, 10), ("-0.3333333333333333", -1, 3), ("1e-1", 1, 10)]
        {
            assert_eq!(number(text), Fixed::ratio(num, den).ok(), "{text}");
        }
        assert_eq!((number("NaN"), number("inf"), number("1e300"), number("x")), (None, None, None, None));
    }

    #[test]
    fn wrong_parameters_are_named() {
        for (name, value, answer) in [
            ("q", "2s", "q: 2s is out of range, expected 1ns to 1s"),
            ("t", "4", "t: \"4\", expected a time from 1ns to 1s"),
            ("n", "0", "n: 0 is out of range, expected 1 to 9"),
            ("n", "one", "n: \"one\", expected a whole number from 1 to 9"),
            ("x", "2", "x: 2 is out of range, expected 0 to 1"),
            ("tie", "coin", "tie: \"coin\", expected share, id"),
            ("alhpa", "1", "alhpa: unknown parameter, expected one of q, t, n, x, tie"),
        ] {
            let read = params(&[(name, value)]).and_then(|params| {
                params.time("q")?;
                params.time("t")?;
                params.whole::<u32>("n")?;
                params.number("x")?;
                params.choice("tie", &TIES)
            });
            assert_eq!(read.unwrap_err().to_string(), answer);
        }
    }
}
