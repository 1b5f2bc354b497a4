//! Base-2 logarithms and tunable constants as integers.
//!
//! Priorities of PBS are sums of logarithms. They decide, so they are integers: a [`Fixed`] counts units of 2^-32,
//! and [`log2`] answers in the same unit with an error below 2^-32 (tested over the whole range against an exact
//! bit-by-bit logarithm).

use core::fmt;
use core::str::FromStr;

/// A signed number in units of 2^-32, for parameters such as alpha and for logarithms. Range: about +-2^31.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fixed(pub i64);

/// Bits behind the point of a [`Fixed`].
pub const FIXED_BITS: u32 = 32;

/// Why a text or a ratio is not a [`Fixed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FixedError {
    /// Not of the form `3`, `-0.4` or `2/5`.
    Malformed,
    /// Beyond +-2^31.
    OutOfRange,
}

impl fmt::Display for FixedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "expected a number such as 3, -0.4 or 2/5",
            Self::OutOfRange => "must lie within +-2147483648",
        })
    }
}

impl core::error::Error for FixedError {}

impl Fixed {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// One.
    pub const ONE: Self = Self(1 << FIXED_BITS);

    /// The whole number `n`.
    #[must_use]
    pub const fn int(n: i32) -> Self {
        Self((n as i64) << FIXED_BITS)
    }

    /// `num / den`, rounded to the nearest multiple of 2^-32, halves away from zero.
    ///
    /// # Errors
    /// [`FixedError::Malformed`] where `den` is 0, [`FixedError::OutOfRange`] beyond +-2^31.
    pub const fn ratio(num: i64, den: u64) -> Result<Self, FixedError> {
        if den == 0 {
            return Err(FixedError::Malformed);
        }
        // 2 * num * 2^32 / den, then half of it rounded: (2x + 1) / 2 rounds x to the nearest.
        let magnitude = ((num.unsigned_abs() as u128) << (FIXED_BITS + 1)) / den as u128;
        let rounded = magnitude.div_ceil(2);
        if rounded > i64::MAX as u128 {
            return Err(FixedError::OutOfRange);
        }
        Ok(Self(if num < 0 { -(rounded as i64) } else { rounded as i64 }))
    }

    /// `self * other`, rounded down. Saturates, so that an impossible priority stays at the end of the order.
    #[must_use]
    pub const fn times(self, other: Self) -> Self {
        let product = (self.0 as i128 * other.0 as i128) >> FIXED_BITS;
        if product > i64::MAX as i128 {
            Self(i64::MAX)
        } else if product < i64::MIN as i128 {
            Self(i64::MIN)
        } else {
            Self(product as i64)
        }
    }

    /// As a float, for printing only.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / (1u64 << FIXED_BITS) as f64
    }
}

impl fmt::Display for Fixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_f64().fmt(f)
    }
}

impl FromStr for Fixed {
    type Err = FixedError;

    /// Reads `3`, `-0.4` or `2/5`, up to 9 digits behind the point.
    ///
    /// # Errors
    /// [`FixedError`] where the text has another form or the number is too large.
    fn from_str(text: &str) -> Result<Self, FixedError> {
        if let Some((num, den)) = text.split_once('/') {
            let den = den.parse().map_err(|_| FixedError::Malformed)?;
            return Self::ratio(num.parse().map_err(|_| FixedError::Malformed)?, den);
        }
        let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
        let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty()
            || digits.ends_with('.')
            || part.len() > 9
            || !all_digits(whole)
            || !all_digits(part)
        {
            return Err(FixedError::Malformed);
        }
        let whole: i64 = whole.parse().map_err(|_| FixedError::OutOfRange)?;
        let den = 10u64.pow(part.len() as u32);
        let part: i64 = if part.is_empty() { 0 } else { part.parse().map_err(|_| FixedError::Malformed)? };
        let num =
            whole.checked_mul(den as i64).and_then(|n| n.checked_add(part)).ok_or(FixedError::OutOfRange)?;
        Self::ratio(if negative { -num } else { num }, den)
    }
}

/// Leading bits that select a row of [`TABLE`].
const ROW_BITS: u32 = 8;
/// Bits behind the point inside [`log2`].
const WORK_BITS: u32 = 40;
/// log2(e) in units of 2^-30: 1.442695040888963.
const LOG2_E: i64 = 1_549_082_005;

/// For the midpoint c of every 1/256th of [1, 2): log2(c) in units of 2^-40, and 1/c in units of 2^-63.
static TABLE: [(i64, u64); 1 << ROW_BITS] = table();

const fn table() -> [(i64, u64); 1 << ROW_BITS] {
    let mut rows = [(0, 0); 1 << ROW_BITS];
    let mut k = 0;
    while k < rows.len() {
        // c = 1 + (k + 1/2) / 256 in units of 2^-63.
        let c = (1u64 << 63) + ((2 * k as u64 + 1) << (63 - ROW_BITS - 1));
        rows[k] = (log2_of_mantissa(c), ((1u128 << 126) / c as u128) as u64);
        k += 1;
    }
    rows
}

/// log2 of `m` / 2^63 for `m` in [2^63, 2^64), in units of 2^-40, rounded down: one squaring a bit.
const fn log2_of_mantissa(mut m: u64) -> i64 {
    let mut bits = 0;
    let mut left = WORK_BITS;
    while left > 0 {
        // m in [1, 2) squared is in [1, 4): a 1 bit where it reaches 2.
        let square = m as u128 * m as u128;
        let reaches_two = (square >> 127) as i64;
        m = (square >> (63 + reaches_two as u32)) as u64;
        bits = (bits << 1) | reaches_two;
        left -= 1;
    }
    bits
}

/// log2 of `x` in units of 2^-32, with an error below 2^-32; exact for powers of two. By definition of this function
/// log2(0) = -1, below every other value, because a sojourn of no time must not outrank one of a nanosecond.
///
/// Cost: one wide and four narrow multiplications, one table row of 16 bytes. With c the midpoint of the row and
/// r = m/c - 1 (at most 1/512), log2(m) = log2(c) + (r - r^2/2 + r^3/3) * log2(e); the next term is below 2^-37.
///
/// ```
/// use divvy_policy::dispatch::fixed::{Fixed, log2};
/// assert_eq!(log2(8), Fixed::int(3));
/// assert!((log2(10).as_f64() - 10f64.log2()).abs() < 1.0 / (1u64 << 32) as f64);
/// ```
#[must_use]
#[inline]
pub fn log2(x: u64) -> Fixed {
    if x == 0 {
        return Fixed(-Fixed::ONE.0);
    }
    let zeros = x.leading_zeros();
    let m = x << zeros;
    let (log_c, reciprocal) = TABLE[(m >> (63 - ROW_BITS)) as usize & ((1 << ROW_BITS) - 1)];
    // 1 + r in units of 2^-63, then r in units of 2^-40 (31 bits and sign).
    let one_plus_r = ((u128::from(m) * u128::from(reciprocal)) >> 63) as u64;
    let r = (one_plus_r.wrapping_sub(1 << 63) as i64) >> (63 - WORK_BITS);
    let r2 = (r * r) >> WORK_BITS;
    let r3 = (r2 * r) >> WORK_BITS;
    // r3 is below 2^13 here, so 21845/65536 is 1/3 to the last bit.
    let ln = r - (r2 >> 1) + ((r3 * 21_845) >> 16);
    let fraction = log_c + ((ln * LOG2_E) >> 30);
    let half = 1 << (WORK_BITS - FIXED_BITS - 1);
    Fixed((i64::from(63 - zeros) << FIXED_BITS) + ((fraction + half) >> (WORK_BITS - FIXED_BITS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exact logarithm to 40 bits, by squaring.
    fn reference(x: u64) -> i64 {
        let zeros = x.leading_zeros();
        (i64::from(63 - zeros) << WORK_BITS) + log2_of_mantissa(x << zeros)
    }

    fn check(x: u64) {
        let error = (log2(x).0 << (WORK_BITS - FIXED_BITS)) - reference(x);
        // One unit of 2^-32 is 256 units of 2^-40; the reference itself is rounded down by less than one of them.
        assert!((-255..256).contains(&error), "log2({x}) is off by {error} * 2^-40");
    }

    #[test]
    fn the_error_stays_below_its_bound() {
        for x in 1..100_000 {
            check(x);
        }
        // Both ends and the middle of every row, at every magnitude.
        for row in 0..256u64 {
            for near in [0, 1, 1 << 54, (1 << 55) - 1] {
                let m = (1 << 63) + (row << 55) + near;
                (0..64).for_each(|shift| check((m >> shift).max(1)));
            }
        }
        let mut x = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..100_000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            check((x >> (x & 63)).max(1));
        }
    }

    #[test]
    fn powers_of_two_are_exact_and_zero_is_below_all() {
        for e in 0..64 {
            assert_eq!(log2(1 << e), Fixed::int(e));
        }
        assert_eq!(log2(0), Fixed::int(-1));
    }

    #[test]
    fn numbers_are_read_and_rounded() {
        assert_eq!("2/5".parse(), Fixed::ratio(2, 5));
        assert_eq!("0.4".parse(), Fixed::ratio(2, 5));
        assert_eq!("-0.5".parse(), Ok(Fixed(-(1 << 31))));
        assert_eq!("16".parse(), Ok(Fixed::int(16)));
        // 1/3 * 2^32 = 1431655765.33, and 2/3 * 2^32 = 2863311530.67.
        assert_eq!(Fixed::ratio(1, 3), Ok(Fixed(1_431_655_765)));
        assert_eq!(Fixed::ratio(-2, 3), Ok(Fixed(-2_863_311_531)));
        for bad in ["", "-", ".5", "1.", "1e3", "0x10", "1/0", "--1", "1.0000000001"] {
            assert_eq!(bad.parse::<Fixed>(), Err(FixedError::Malformed), "{bad}");
        }
        assert_eq!("99999999999".parse::<Fixed>(), Err(FixedError::OutOfRange));
    }
}
