//! The most CPU time that a client may have, as a number and as people write it.

use core::fmt;
use core::num::NonZeroU32;
use core::str::FromStr;

/// The most CPU time that a client may have in a time, in millionths of one CPU: 0.01 to 4096 CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuLimit(NonZeroU32);

/// Why something is not a [`CpuLimit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitError {
    /// Neither a percentage nor a number of CPUs.
    Form,
    /// Less than [`CpuLimit::MIN`].
    TooSmall,
    /// More than [`CpuLimit::MAX`].
    TooLarge,
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form => f.write_str("no limit; write 50% (of one CPU) or 1.5 (CPUs)"),
            Self::TooSmall => f.write_str("a limit is at least 1% of one CPU, that is 0.01"),
            Self::TooLarge => f.write_str("a limit is at most 4096 CPUs"),
        }
    }
}

impl core::error::Error for LimitError {}

/// One CPU.
const ONE_PPM: u64 = 1_000_000;

impl CpuLimit {
    /// The smallest limit, 1 % of one CPU.
    pub const MIN: Self = Self(NonZeroU32::MIN.saturating_add(9_999));
    /// The largest, 4096 CPUs.
    pub const MAX: Self = Self(NonZeroU32::MIN.saturating_add(4_095_999_999));

    /// `ppm` millionths of one CPU as a limit.
    ///
    /// # Errors
    /// [`LimitError::TooSmall`], [`LimitError::TooLarge`].
    pub const fn new(ppm: u64) -> Result<Self, LimitError> {
        if ppm < Self::MIN.ppm() {
            return Err(LimitError::TooSmall);
        }
        if ppm > Self::MAX.ppm() {
            return Err(LimitError::TooLarge);
        }
        match NonZeroU32::new(ppm as u32) {
            Some(ppm) => Ok(Self(ppm)),
            None => Err(LimitError::TooSmall),
        }
    }

    /// In millionths of one CPU.
    #[must_use]
    pub const fn ppm(self) -> u64 {
        self.0.get() as u64
    }

    /// In CPUs; for printing only.
    #[must_use]
    pub fn as_cpus(self) -> f64 {
        self.ppm() as f64 / ONE_PPM as f64
    }
}

impl fmt::Display for CpuLimit {
    /// In percent of one CPU: `50%`, `12.5%`, `150%`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.ppm() / 10_000, self.ppm() % 10_000);
        if rest == 0 {
            return write!(f, "{whole}%");
        }
        let (mut digits, mut rest) = (4, rest);
        while rest % 10 == 0 {
            (digits, rest) = (digits - 1, rest / 10);
        }
        write!(f, "{whole}.{rest:0digits$}%")
    }
}

impl FromStr for CpuLimit {
    type Err = LimitError;

    /// `50%` is half of one CPU, as is `0.5`; `1.5` and `150%` are one and a half. Finer than a millionth is refused.
    fn from_str(text: &str) -> Result<Self, LimitError> {
        let text = text.trim();
        match text.strip_suffix('%') {
            Some(percent) => Self::new(decimal(percent.trim_end(), 4)?),
            None => Self::new(decimal(text, 6)?),
        }
    }
}

/// A decimal number times ten to the power of `digits`, exactly.
fn decimal(text: &str, digits: usize) -> Result<u64, LimitError> {
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_number = all_digits(whole) && all_digits(rest) && !(whole.is_empty() && rest.is_empty());
    if !is_number || rest.len() > digits {
        return Err(LimitError::Form);
    }
    let mut value: u64 = 0;
    let padding = core::iter::repeat_n(b'0', digits - rest.len());
    for digit in whole.bytes().chain(rest.bytes()).chain(padding) {
        let next = value.checked_mul(10).and_then(|value| value.checked_add(u64::from(digit - b'0')));
        value = next.ok_or(LimitError::TooLarge)?;
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use std::string::ToString as _;

    use super::*;

    #[test]
    fn limits_are_read_and_written() {
        for (text, ppm, shown) in [
            ("50%", 500_000, "50%"),
            ("0.5", 500_000, "50%"),
            (".5", 500_000, "50%"),
            ("1.5", 1_500_000, "150%"),
            ("150 %", 1_500_000, "150%"),
            ("1", 1_000_000, "100%"),
            ("1%", 10_000, "1%"),
            ("12.5%", 125_000, "12.5%"),
            ("33.3333%", 333_333, "33.3333%"),
            ("1.05%", 10_500, "1.05%"),
            ("4096", 4_096_000_000, "409600%"),
        ] {
            let limit: CpuLimit = text.parse().unwrap();
            assert_eq!((limit.ppm(), limit.to_string().as_str()), (ppm, shown), "{text}");
            assert_eq!(limit.to_string().parse(), Ok(limit));
        }
        for (text, error) in [
            ("", LimitError::Form),
            ("%", LimitError::Form),
            (".", LimitError::Form),
            ("-1", LimitError::Form),
            ("1e3", LimitError::Form),
            ("1.5.1", LimitError::Form),
            ("half", LimitError::Form),
            ("33.33333%", LimitError::Form),
            ("0", LimitError::TooSmall),
            ("0.5%", LimitError::TooSmall),
            ("4096.1", LimitError::TooLarge),
            ("99999999999999999999%", LimitError::TooLarge),
        ] {
            assert_eq!(text.parse::<CpuLimit>(), Err(error), "{text}");
        }
    }
}
