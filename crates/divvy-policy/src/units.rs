//! The quantities of scheduling as types of their own, so that a time cannot be passed for a share.

use core::fmt;
use core::num::NonZeroU32;
use core::ops::{Add, AddAssign, Sub};
use core::str::FromStr;

/// A length of time, or an amount of CPU time, in nanoseconds. Range: 0 to about 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// The longest time that can be told.
    pub const MAX: Self = Self(u64::MAX);

    /// `us` microseconds; saturates at [`Nanos::MAX`].
    #[must_use]
    pub const fn from_micros(us: u64) -> Self {
        Self(us.saturating_mul(1_000))
    }

    /// `ms` milliseconds; saturates at [`Nanos::MAX`].
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// `s` seconds; saturates at [`Nanos::MAX`].
    #[must_use]
    pub const fn from_secs(s: u64) -> Self {
        Self(s.saturating_mul(1_000_000_000))
    }

    /// `self - other`, or zero where `other` is longer.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Seconds as a float, for printing only.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

/// Units of time by name, the longest first; the order in which a time is written out.
const UNITS: [(&str, u64); 6] = [
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Others that are read: as sleep(1), timeout(1) and systemd have them.
const ALSO: [(&str, u64); 2] = [("m", 60_000_000_000), ("d", 24 * 3_600_000_000_000)];

/// Why a text is no length of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimeError {
    /// It is not a number and a unit.
    Malformed,
    /// It is below zero.
    Negative,
    /// It has parts of a nanosecond.
    TooFine,
    /// It is beyond [`Nanos::MAX`].
    TooLong,
}

impl fmt::Display for TimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const EXPECTED: &str = "expected a time such as \"4ms\" (units ns, us, ms, s, min, h)";
        match self {
            Self::Malformed => write!(f, "is not a time, {EXPECTED}"),
            Self::Negative => write!(f, "is negative, {EXPECTED}"),
            Self::TooFine => f.write_str("is finer than a nanosecond"),
            Self::TooLong => f.write_str("is more than 584 years"),
        }
    }
}

impl core::error::Error for TimeError {}

impl FromStr for Nanos {
    type Err = TimeError;

    /// Reads `2.5ms`; decimals are exact. `m` is a minute, `d` a day of 24 hours. A plain `0` needs no unit.
    fn from_str(text: &str) -> Result<Self, TimeError> {
        if text.starts_with('-') {
            return Err(TimeError::Negative);
        }
        let split = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
        let (number, unit) = (text[..split].replace('_', ""), text[split..].trim());
        if unit.is_empty() {
            return if number == "0" { Ok(Self::ZERO) } else { Err(TimeError::Malformed) };
        }
        let mut known = UNITS.iter().chain(&ALSO);
        let scale = known.find(|(name, _)| *name == unit).ok_or(TimeError::Malformed)?.1;
        let (whole, part) = number.split_once('.').unwrap_or((&number, ""));
        if whole.is_empty() || part.len() > 18 || part.contains('.') {
            return Err(TimeError::Malformed);
        }
        let whole: u128 = whole.parse().map_err(|_| TimeError::Malformed)?;
        let below = 10u128.pow(part.len() as u32);
        let part: u128 = if part.is_empty() { 0 } else { part.parse().map_err(|_| TimeError::Malformed)? };
        let scaled = part * u128::from(scale);
        if !scaled.is_multiple_of(below) {
            return Err(TimeError::TooFine);
        }
        let total = whole.checked_mul(u128::from(scale)).and_then(|ns| ns.checked_add(scaled / below));
        total.and_then(|ns| u64::try_from(ns).ok()).map(Self).ok_or(TimeError::TooLong)
    }
}

impl fmt::Display for Nanos {
    /// In the longest unit that needs no decimals.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0");
        }
        let fits = |&&(_, scale): &&(&str, u64)| self.0.is_multiple_of(scale);
        let (name, scale) = UNITS.iter().find(fits).unwrap_or(&("ns", 1));
        write!(f, "{}{name}", self.0 / scale)
    }
}

impl Add for Nanos {
    type Output = Self;
    /// Saturates: a sum of times that long means "for ever" to every reader of it.
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// A moment, in nanoseconds since an epoch that the driver chose (a boot, the start of a run, simulated zero).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// The driver's epoch.
    pub const ZERO: Self = Self(0);

    /// Time passed since `earlier`; zero where `earlier` is in fact later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Nanos> for Instant {
    type Output = Self;
    /// Saturates at the last moment that can be told.
    fn add(self, span: Nanos) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Sub<Instant> for Instant {
    type Output = Nanos;
    /// As [`Instant::since`].
    fn sub(self, earlier: Instant) -> Nanos {
        self.since(earlier)
    }
}

/// A client's integer claim, 1 to 4,294,967,295 (the kernel calls it a weight). Only ratios of shares mean anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(NonZeroU32);

/// Why a number is not a [`Share`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShareError {
    /// A share of zero asks for nothing: leave the client out instead.
    Zero,
    /// More than [`Share::MAX`].
    TooLarge,
}

impl fmt::Display for ShareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero => f.write_str("a share must be at least 1"),
            Self::TooLarge => write!(f, "a share must be at most {}", Share::MAX.get()),
        }
    }
}

impl core::error::Error for ShareError {}

impl Share {
    /// The smallest share.
    pub const ONE: Self = Self(NonZeroU32::MIN);
    /// The largest share.
    pub const MAX: Self = Self(NonZeroU32::MAX);

    /// `n` as a share.
    ///
    /// # Errors
    /// [`ShareError`] where `n` is 0 or more than [`Share::MAX`].
    pub const fn new(n: u64) -> Result<Self, ShareError> {
        if n > u32::MAX as u64 {
            return Err(ShareError::TooLarge);
        }
        match NonZeroU32::new(n as u32) {
            Some(n) => Ok(Self(n)),
            None => Err(ShareError::Zero),
        }
    }

    /// The number itself.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get() as u64
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The greatest common divisor; that of 0 and `b` is `b`.
#[must_use]
pub const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// As [`gcd`], of wider numbers.
#[must_use]
pub const fn gcd_wide(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// A client of a policy. Handed out by the driver in rising order from 0 and never reused (a pid is). Policies may
/// keep a table indexed by it, so ids should be dense: four bytes a client that ever joined is what they cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u32);

impl ClientId {
    /// The id as a table index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// One of the CPUs that a policy divides, numbered from 0 without gaps (not the kernel's number).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuId(pub u32);

impl CpuId {
    /// The number as a table index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_one_to_four_billion() {
        assert_eq!(Share::new(0), Err(ShareError::Zero));
        assert_eq!(Share::new(1), Ok(Share::ONE));
        assert_eq!(Share::new(u64::from(u32::MAX)), Ok(Share::MAX));
        assert_eq!(Share::new(u64::from(u32::MAX) + 1), Err(ShareError::TooLarge));
        // A number that would wrap to a small one is refused, not truncated.
        assert_eq!(Share::new((1 << 32) + 3), Err(ShareError::TooLarge));
    }

    #[test]
    fn time_saturates_and_never_runs_backwards() {
        assert_eq!(Instant(5).since(Instant(9)), Nanos::ZERO);
        assert_eq!(Instant(u64::MAX) + Nanos(1), Instant(u64::MAX));
        assert_eq!(Nanos::MAX + Nanos(1), Nanos::MAX);
        assert_eq!(Nanos::from_millis(10), Nanos(10_000_000));
        assert_eq!(Nanos::from_secs(u64::MAX), Nanos::MAX);
    }
}
