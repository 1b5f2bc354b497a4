//! Whole numbers of any length, for the fractions that 128 bits cannot hold.
//!
//! Only what exact fractions need: sum, difference, product, division, greatest common divisor, order. Digits are
//! `u32`, least significant first, without leading zeros; zero has no digits.

use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Ordering;

#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Nat(Vec<u32>);

impl From<u128> for Nat {
    fn from(mut n: u128) -> Self {
        let mut digits = Vec::with_capacity(4);
        while n != 0 {
            digits.push(n as u32);
            n >>= 32;
        }
        Self(digits)
    }
}

impl Nat {
    pub(crate) const fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    /// The number, where 128 bits hold it.
    pub(crate) fn to_u128(&self) -> Option<u128> {
        if self.0.len() > 4 {
            return None;
        }
        Some(self.0.iter().rev().fold(0, |n, &digit| n << 32 | u128::from(digit)))
    }

    /// The nearest float below, for printing; infinity where it is too large for one.
    pub(crate) fn to_f64(&self) -> f64 {
        self.0.iter().rev().fold(0.0, |n, &digit| n * 4_294_967_296.0 + f64::from(digit))
    }

    fn trimmed(mut digits: Vec<u32>) -> Self {
        while digits.last() == Some(&0) {
            digits.pop();
        }
        Self(digits)
    }

    pub(crate) fn add(&self, other: &Self) -> Self {
        let (long, short) = if self.0.len() >= other.0.len() { (self, other) } else { (other, self) };
        let mut digits = Vec::with_capacity(long.0.len() + 1);
        let mut carry = 0;
        for (i, &digit) in long.0.iter().enumerate() {
            carry += u64::from(digit) + u64::from(short.0.get(i).copied().unwrap_or(0));
            digits.push(carry as u32);
            carry >>= 32;
        }
        digits.push(carry as u32);
        Self::trimmed(digits)
    }

    /// `self - other`; `other` is not larger.
    pub(crate) fn sub(&self, other: &Self) -> Self {
        let mut digits = self.0.clone();
        let mut borrow = 0;
        for (i, digit) in digits.iter_mut().enumerate() {
            let taken = u64::from(other.0.get(i).copied().unwrap_or(0)) + borrow;
            let left = (1 << 32) + u64::from(*digit) - taken;
            *digit = left as u32;
            borrow = u64::from(left >> 32 == 0);
        }
        assert!(borrow == 0, "only a smaller number is taken away");
        Self::trimmed(digits)
    }

    pub(crate) fn mul(&self, other: &Self) -> Self {
        let mut digits = vec![0u32; self.0.len() + other.0.len()];
        for (i, &a) in self.0.iter().enumerate() {
            let mut carry = 0;
            for (j, &b) in other.0.iter().enumerate() {
                carry += u64::from(a) * u64::from(b) + u64::from(digits[i + j]);
                digits[i + j] = carry as u32;
                carry >>= 32;
            }
            digits[i + other.0.len()] = carry as u32;
        }
        Self::trimmed(digits)
    }

    fn shl(&self, bits: u32) -> Self {
        let mut digits = Vec::with_capacity(self.0.len() + 1);
        let mut carry = 0;
        for &digit in &self.0 {
            carry |= u64::from(digit) << bits;
            digits.push(carry as u32);
            carry >>= 32;
        }
        digits.push(carry as u32);
        Self::trimmed(digits)
    }

    fn shr(&self, bits: u32) -> Self {
        let mut digits = self.0.clone();
        let mut above = 0u64;
        for digit in digits.iter_mut().rev() {
            above = above << 32 | u64::from(*digit);
            *digit = (above >> bits) as u32;
            above &= (1 << bits) - 1;
        }
        Self::trimmed(digits)
    }

    /// Quotient and remainder. `divisor` is not zero.
    ///
    /// Source: Knuth, The Art of Computer Programming 2, 4.3.1, algorithm D.
    pub(crate) fn div_rem(&self, divisor: &Self) -> (Self, Self) {
        let n = divisor.0.len();
        if *self < *divisor {
            return (Self(Vec::new()), self.clone());
        }
        if n == 1 {
            let by = u64::from(divisor.0[0]);
            let mut digits = self.0.clone();
            let mut rest = 0u64;
            for digit in digits.iter_mut().rev() {
                let part = rest << 32 | u64::from(*digit);
                *digit = (part / by) as u32;
                rest = part % by;
            }
            return (Self::trimmed(digits), Self::from(u128::from(rest)));
        }
        let shift = divisor.0[n - 1].leading_zeros();
        let v = divisor.shl(shift).0;
        let mut u = self.shl(shift).0;
        u.resize(self.0.len() + 1, 0);
        let mut quotient = vec![0u32; self.0.len() - n + 1];
        for j in (0..quotient.len()).rev() {
            quotient[j] = quotient_digit(&mut u[j..=j + n], &v);
        }
        (Self::trimmed(quotient), Self::trimmed(u).shr(shift))
    }

    pub(crate) fn gcd(&self, other: &Self) -> Self {
        let (mut a, mut b) = (self.clone(), other.clone());
        while !b.is_zero() {
            let (_, rest) = a.div_rem(&b);
            a = b;
            b = rest;
        }
        a
    }
}

/// One digit of a quotient: how often `v` (its highest bit set) fits into `u`, which is left with the rest.
fn quotient_digit(u: &mut [u32], v: &[u32]) -> u32 {
    let n = v.len();
    let top = u64::from(u[n]) << 32 | u64::from(u[n - 1]);
    let (mut guess, mut rest) = (top / u64::from(v[n - 1]), top % u64::from(v[n - 1]));
    while guess >> 32 != 0 || guess * u64::from(v[n - 2]) > (rest << 32 | u64::from(u[n - 2])) {
        guess -= 1;
        rest += u64::from(v[n - 1]);
        if rest >> 32 != 0 {
            break;
        }
    }
    let (mut borrow, mut carry) = (0i64, 0u64);
    for i in 0..n {
        carry += guess * u64::from(v[i]);
        let left = i64::from(u[i]) - i64::from(carry as u32) + borrow;
        u[i] = left as u32;
        borrow = left >> 32;
        carry >>= 32;
    }
    let left = i64::from(u[n]) - carry as i64 + borrow;
    u[n] = left as u32;
    if left < 0 {
        // The guess was one too high: give one divisor back.
        guess -= 1;
        let mut carry = 0u64;
        for i in 0..n {
            carry += u64::from(u[i]) + u64::from(v[i]);
            u[i] = carry as u32;
            carry >>= 32;
        }
        u[n] = u[n].wrapping_add(carry as u32);
    }
    guess as u32
}

impl PartialOrd for Nat {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Nat {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.len().cmp(&other.0.len()).then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }
}

impl core::fmt::Display for Nat {
    /// Decimal.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let billion = Self::from(1_000_000_000);
        let mut groups = Vec::new();
        let mut rest = self.clone();
        while !rest.is_zero() {
            let (quotient, group) = rest.div_rem(&billion);
            groups.push(group.0.first().copied().unwrap_or(0));
            rest = quotient;
        }
        write!(f, "{}", groups.pop().unwrap_or(0))?;
        groups.iter().rev().try_for_each(|group| write!(f, "{group:09}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    fn nat() -> impl Strategy<Value = Nat> {
        // Digits at the ends of their range reach the rare branches of the division.
        let digit = prop_oneof![Just(0), Just(1), Just(u32::MAX), Just(1 << 31), any::<u32>()];
        prop::collection::vec(digit, 0..9).prop_map(Nat::trimmed)
    }

    proptest! {
        #[test]
        fn division_undoes_multiplication(a in nat(), b in nat(), c in nat()) {
            prop_assume!(!b.is_zero());
            let (_, rest) = c.div_rem(&b);
            prop_assert_eq!(a.mul(&b).add(&rest).div_rem(&b), (a, rest));
        }

        #[test]
        fn the_divisor_divides_and_is_the_greatest(a in nat(), b in nat(), c in nat()) {
            prop_assume!(!c.is_zero() && !a.is_zero());
            let common = a.mul(&c).gcd(&b.mul(&c));
            prop_assert!(a.mul(&c).div_rem(&common).1.is_zero());
            prop_assert!(common.div_rem(&c).1.is_zero());
        }

        #[test]
        fn small_numbers_agree_with_u128(a: u64, b: u64) {
            let (wide_a, wide_b) = (u128::from(a), u128::from(b));
            prop_assert_eq!(Nat::from(wide_a).mul(&Nat::from(wide_b)).to_u128(), Some(wide_a * wide_b));
            prop_assert_eq!(Nat::from(wide_a * wide_b).to_string(), (wide_a * wide_b).to_string());
            prop_assert_eq!(Nat::from(wide_a).cmp(&Nat::from(wide_b)), a.cmp(&b));
            let (big, small) = (wide_a.max(wide_b), wide_a.min(wide_b));
            prop_assert_eq!(Nat::from(big).sub(&Nat::from(small)).to_u128(), Some(big - small));
        }
    }
}
