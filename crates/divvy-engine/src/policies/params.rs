//! A policy's parameters, taken one by one; what is left over at the end was not meant for it.

use std::collections::BTreeMap;
use std::fmt;

use super::{ParamValue, Span};

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

impl std::error::Error for ParamError {}

/// The parameters of a policy under construction. Take each that the policy knows, then [`finish`](Params::finish).
///
/// A number may come as a text (from `name:key=value`), so each taker reads texts too.
#[derive(Clone, Debug)]
pub struct Params<'a> {
    values: &'a BTreeMap<String, ParamValue>,
    known: Vec<&'static str>,
}

impl<'a> Params<'a> {
    /// None taken yet.
    #[must_use]
    pub const fn new(values: &'a BTreeMap<String, ParamValue>) -> Self {
        Self { values, known: Vec::new() }
    }

    fn take(&mut self, name: &'static str) -> Option<&'a ParamValue> {
        self.known.push(name);
        self.values.get(name)
    }

    /// The value of `name` read by `parse`; `None` if it is not given. `expected` says what `parse` takes: `1 to 10`.
    ///
    /// # Errors
    /// [`ParamError`] where `parse` answers `None`.
    pub fn parse<T>(
        &mut self,
        name: &'static str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, ParamError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let text = value.to_string();
        match parse(&text) {
            Some(parsed) => Ok(Some(parsed)),
            None => {
                Err(ParamError { name: name.into(), message: format!("\"{text}\", expected {expected}") })
            }
        }
    }

    /// A time, `default` if not given.
    ///
    /// # Errors
    /// [`ParamError`] where it is not a time.
    pub fn time(&mut self, name: &'static str, default: Span) -> Result<Span, ParamError> {
        let parsed = self.parse(name, "a time such as \"4ms\"", |text| text.parse().ok())?;
        Ok(parsed.unwrap_or(default))
    }

    /// A whole number from `low` to `high`, `default` if not given.
    ///
    /// # Errors
    /// [`ParamError`] where it is not.
    pub fn int(&mut self, name: &'static str, low: u64, high: u64, default: u64) -> Result<u64, ParamError> {
        let expected = format!("a whole number from {low} to {high}");
        let parsed =
            self.parse(name, &expected, |text| text.parse().ok().filter(|n| (low..=high).contains(n)))?;
        Ok(parsed.unwrap_or(default))
    }

    /// A number, `inf` and `-inf` allowed; `None` if not given.
    ///
    /// # Errors
    /// [`ParamError`] where it is not a number.
    pub fn number(&mut self, name: &'static str) -> Result<Option<f64>, ParamError> {
        self.parse(name, "a number or inf", |text| text.parse().ok().filter(|x: &f64| !x.is_nan()))
    }

    /// A flag, `default` if not given.
    ///
    /// # Errors
    /// [`ParamError`] where it is neither true nor false.
    pub fn flag(&mut self, name: &'static str, default: bool) -> Result<bool, ParamError> {
        Ok(self.parse(name, "true or false", |text| text.parse().ok())?.unwrap_or(default))
    }

    /// One of `choices`, the first if not given.
    ///
    /// # Errors
    /// [`ParamError`] where it is none of them.
    ///
    /// # Panics
    /// If `choices` is empty.
    pub fn choice<T: Copy>(&mut self, name: &'static str, choices: &[(&str, T)]) -> Result<T, ParamError> {
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        let find = |text: &str| choices.iter().find(|(word, _)| *word == text).map(|&(_, value)| value);
        Ok(self.parse(name, &words.join(", "), find)?.unwrap_or(choices[0].1))
    }

    /// Nothing is left over.
    ///
    /// # Errors
    /// [`ParamError`] naming the first parameter that was not taken, and those that can be.
    pub fn finish(self) -> Result<(), ParamError> {
        match self.values.keys().find(|name| !self.known.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) => {
                let message = if self.known.is_empty() {
                    String::from("unknown parameter, this policy has none")
                } else {
                    format!("unknown parameter, expected one of {}", self.known.join(", "))
                };
                Err(ParamError { name: name.clone(), message })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::PolicySpec;

    #[test]
    fn parameters_are_read_from_texts_and_numbers_alike() {
        let text: PolicySpec = "x:a=0.5,n=3,q=4ms,sign=-,b=inf".parse().unwrap();
        let typed = PolicySpec::new("x")
            .with("a", 0.5)
            .with("n", 3)
            .with("q", "4ms")
            .with("sign", "-")
            .with("b", "inf");
        for spec in [text, typed] {
            let mut params = Params::new(&spec.params);
            assert_eq!(params.number("a"), Ok(Some(0.5)));
            assert_eq!(params.int("n", 1, 9, 1), Ok(3));
            assert_eq!(params.time("q", Span(1)), Ok(Span(4_000_000)));
            assert_eq!(params.choice("sign", &[("+", 1), ("-", -1)]), Ok(-1));
            assert_eq!(params.number("b"), Ok(Some(f64::INFINITY)));
            assert_eq!(params.flag("absent", true), Ok(true));
            assert_eq!(params.finish(), Ok(()));
        }
    }

    #[test]
    fn wrong_parameters_are_named() {
        let spec = PolicySpec::new("x").with("n", 0).with("tie", "coin").with("alhpa", 1.0);
        let mut params = Params::new(&spec.params);
        let shown = |error: ParamError| error.to_string();
        assert_eq!(
            params.int("n", 1, 9, 1).map_err(shown),
            Err("n: \"0\", expected a whole number from 1 to 9".into())
        );
        assert_eq!(
            params.choice("tie", &[("share", 0), ("id", 1)]).map_err(shown),
            Err("tie: \"coin\", expected share, id".into())
        );
        let error = params.finish().map_err(shown);
        assert_eq!(error, Err("alhpa: unknown parameter, expected one of n, tie".into()));
    }
}
