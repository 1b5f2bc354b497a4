//! Exact fractions: 128 bits where they do, any length where they do not.

use alloc::boxed::Box;
use core::cmp::Ordering;
use core::fmt;
use core::ops::{Add, AddAssign, Neg, Sub};

use num_bigint::BigUint;
use num_integer::Integer;
use num_traits::{One, ToPrimitive, Zero};

/// An exact fraction, always reduced. A base value is one of these: `100/3` is a third of 100 base tickets.
///
/// There is no overflow: what does not fit 128 bits is kept at its full length. How long that can get: a value's
/// denominator divides the product of the ticket sums of the currencies that it comes from, at most 64 bits each (and
/// 32 more for each that has hard tickets), times [`crate::PARTS_PER_TICKET`].
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Ratio(Form);

#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
enum Form {
    /// Numerator and denominator, the latter positive. Whatever fits is kept here, so equal ratios have equal forms.
    Small(i128, i128),
    Wide(Box<Wide>),
}

#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Wide {
    negative: bool,
    numerator: BigUint,
    denominator: BigUint,
}

impl Wide {
    /// The reduced ratio of these.
    fn reduce(self) -> Ratio {
        let common = self.numerator.gcd(&self.denominator);
        let (numerator, denominator) = (self.numerator / &common, self.denominator / &common);
        match (numerator.to_i128(), denominator.to_i128()) {
            (Some(n), Some(d)) => Ratio(Form::Small(if self.negative { -n } else { n }, d)),
            _ => Ratio(Form::Wide(Box::new(Self { negative: self.negative, numerator, denominator }))),
        }
    }
}

impl Ratio {
    /// Nothing.
    pub const ZERO: Self = Self(Form::Small(0, 1));
    /// One.
    pub const ONE: Self = Self(Form::Small(1, 1));

    /// `numerator / denominator`, or `None` where `denominator` is 0.
    #[must_use]
    pub fn new(numerator: i64, denominator: u64) -> Option<Self> {
        (denominator != 0).then(|| Self::ONE.mul_div(denominator, 1).recip_times(numerator))
    }

    /// `numerator / parts`, for a whole number of equal parts of a ticket.
    pub(crate) fn of_parts(numerator: i128, parts: u64) -> Self {
        let parts = i128::from(parts);
        let common = gcd(numerator.unsigned_abs(), parts.unsigned_abs()).cast_signed();
        Self(Form::Small(numerator / common, parts / common))
    }

    fn recip_times(&self, factor: i64) -> Self {
        let Form::Small(n, d) = self.0 else { unreachable!("made of 64 bits") };
        let numerator = d * i128::from(factor);
        let common = gcd(numerator.unsigned_abs(), n.unsigned_abs()).cast_signed();
        Self(Form::Small(numerator / common, n / common))
    }

    /// Whether it is below zero.
    #[must_use]
    pub fn is_negative(&self) -> bool {
        match &self.0 {
            Form::Small(n, _) => *n < 0,
            Form::Wide(wide) => wide.negative,
        }
    }

    /// Whether it is zero.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }

    /// The nearest float or one beside it, for printing only.
    #[must_use]
    pub fn to_f64(&self) -> f64 {
        match &self.0 {
            Form::Small(n, d) => *n as f64 / *d as f64,
            Form::Wide(wide) => {
                let float = |n: &BigUint| n.to_f64().unwrap_or(f64::INFINITY);
                let size = float(&wide.numerator) / float(&wide.denominator);
                if wide.negative { -size } else { size }
            }
        }
    }

    /// `self * by / over`; `over` is not 0.
    pub(crate) fn mul_div(&self, by: u64, over: u64) -> Self {
        assert!(over != 0, "nothing is divided among nobody");
        let common = gcd(by.into(), over.into()) as u64;
        let (by, over) = (u128::from(by / common), u128::from(over / common));
        if let Form::Small(n, d) = self.0 {
            let left = gcd(n.unsigned_abs(), over).cast_signed();
            let right = gcd(d.unsigned_abs(), by).cast_signed();
            let numerator = (n / left).checked_mul(by.cast_signed() / right);
            let denominator = (d / right).checked_mul(over.cast_signed() / left);
            if let (Some(n), Some(d)) = (numerator.filter(|n| *n != i128::MIN), denominator) {
                return Self(Form::Small(n, d));
            }
        }
        let mut wide = self.widen();
        wide.numerator *= by;
        wide.denominator *= over;
        wide.reduce()
    }

    /// `self / other`, or `None` where `other` is zero.
    #[must_use]
    pub fn over(&self, other: &Self) -> Option<Self> {
        if other.is_zero() {
            return None;
        }
        let (a, b) = (self.widen(), other.widen());
        let (numerator, denominator) = (a.numerator * b.denominator, a.denominator * b.numerator);
        Some(Wide { negative: a.negative != b.negative, numerator, denominator }.reduce())
    }

    /// The greatest whole number that is not above it, where 128 bits hold that.
    #[must_use]
    pub fn floor(&self) -> Option<i128> {
        match &self.0 {
            Form::Small(n, d) => Some(n.div_euclid(*d)),
            Form::Wide(wide) => {
                let (quotient, rest) = wide.numerator.div_rem(&wide.denominator);
                let whole = quotient.to_i128()?;
                match (wide.negative, rest.is_zero()) {
                    (false, _) => Some(whole),
                    (true, true) => Some(-whole),
                    (true, false) => (-whole).checked_sub(1),
                }
            }
        }
    }

    /// Numerator and denominator, where it is not negative and both fit.
    pub(crate) const fn small(&self) -> Option<(u128, u128)> {
        match self.0 {
            Form::Small(n, d) if n >= 0 => Some((n.unsigned_abs(), d.unsigned_abs())),
            _ => None,
        }
    }

    fn widen(&self) -> Wide {
        match &self.0 {
            Form::Small(n, d) => Wide {
                negative: *n < 0,
                numerator: n.unsigned_abs().into(),
                denominator: d.unsigned_abs().into(),
            },
            Form::Wide(wide) => (**wide).clone(),
        }
    }

    fn add_wide(&self, other: &Self) -> Self {
        let (a, b) = (self.widen(), other.widen());
        let (left, right) = (a.numerator * &b.denominator, b.numerator * &a.denominator);
        let denominator = a.denominator * b.denominator;
        let (negative, numerator) = if a.negative == b.negative {
            (a.negative, left + right)
        } else if left >= right {
            (a.negative, left - right)
        } else {
            (b.negative, right - left)
        };
        Wide { negative: negative && !numerator.is_zero(), numerator, denominator }.reduce()
    }
}

/// The sum, where 128 bits hold it (and its negative too). `a/b + c/d` over `b * d / gcd(b, d)` (Knuth 4.5.1).
fn add_small(a: i128, b: i128, c: i128, d: i128) -> Option<Ratio> {
    let common = gcd(b.unsigned_abs(), d.unsigned_abs()).cast_signed();
    let numerator = a.checked_mul(d / common)?.checked_add(c.checked_mul(b / common)?)?;
    if numerator == i128::MIN {
        return None;
    }
    let rest = gcd(numerator.unsigned_abs(), common.unsigned_abs()).cast_signed();
    let denominator = (b / rest).checked_mul(d / common)?;
    Some(Ratio(Form::Small(numerator / rest, denominator)))
}

/// Greatest common divisor; one of the two is not zero.
pub(crate) fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        if let (Ok(a), Ok(b)) = (u64::try_from(a), u64::try_from(b)) {
            return gcd_u64(a, b).into();
        }
        (a, b) = (b, a % b);
    }
    a
}

/// Binary: shifts and differences only, faster than division on 64 bits.
fn gcd_u64(mut a: u64, mut b: u64) -> u64 {
    if a == 0 || b == 0 {
        return a | b;
    }
    let twos = (a | b).trailing_zeros();
    a >>= a.trailing_zeros();
    while b != 0 {
        b >>= b.trailing_zeros();
        (a, b) = (a.min(b), a.abs_diff(b));
    }
    a << twos
}

impl From<u64> for Ratio {
    fn from(n: u64) -> Self {
        Self(Form::Small(n.into(), 1))
    }
}

impl Add<&Ratio> for &Ratio {
    type Output = Ratio;
    fn add(self, other: &Ratio) -> Ratio {
        if let (Form::Small(a, b), Form::Small(c, d)) = (&self.0, &other.0)
            && let Some(sum) = add_small(*a, *b, *c, *d)
        {
            return sum;
        }
        self.add_wide(other)
    }
}

impl AddAssign<&Ratio> for Ratio {
    fn add_assign(&mut self, other: &Ratio) {
        *self = &*self + other;
    }
}

impl Neg for &Ratio {
    type Output = Ratio;
    fn neg(self) -> Ratio {
        match &self.0 {
            Form::Small(n, d) => Ratio(Form::Small(-n, *d)),
            Form::Wide(wide) => {
                let Wide { negative, numerator, denominator } = (**wide).clone();
                Ratio(Form::Wide(Box::new(Wide { negative: !negative, numerator, denominator })))
            }
        }
    }
}

impl Sub<&Ratio> for &Ratio {
    type Output = Ratio;
    fn sub(self, other: &Ratio) -> Ratio {
        self + &-other
    }
}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ratio {
    fn cmp(&self, other: &Self) -> Ordering {
        if let (Form::Small(a, b), Form::Small(c, d)) = (&self.0, &other.0)
            && let (Some(left), Some(right)) = (a.checked_mul(*d), c.checked_mul(*b))
        {
            return left.cmp(&right);
        }
        let rest = self - other;
        if rest.is_negative() {
            Ordering::Less
        } else if rest.is_zero() {
            Ordering::Equal
        } else {
            Ordering::Greater
        }
    }
}

impl fmt::Display for Ratio {
    /// `100/3`, or `25` where it is whole.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::Small(n, 1) => write!(f, "{n}"),
            Form::Small(n, d) => write!(f, "{n}/{d}"),
            Form::Wide(wide) => {
                let sign = if wide.negative { "-" } else { "" };
                write!(f, "{sign}{}", wide.numerator)?;
                if wide.denominator.is_one() { Ok(()) } else { write!(f, "/{}", wide.denominator) }
            }
        }
    }
}

impl fmt::Debug for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use num_bigint::BigInt;
    type BigRational = num_rational::Ratio<BigInt>;
    use proptest::prelude::*;
    use std::string::ToString;
    use std::vec::Vec;

    fn check_equal(ours: &Ratio, theirs: &BigRational) {
        assert_eq!(ours.to_string(), theirs.to_string());
        assert_eq!(ours.is_negative(), *theirs < BigRational::from(BigInt::from(0)));
        if let Some(whole) = ours.floor() {
            assert_eq!(BigInt::from(whole), theirs.floor().to_integer());
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        MulDiv(u64, u64),
        Add(i64, u64),
        Sub(i64, u64),
        Over(i64, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let n = prop_oneof![1..50u64, 1..u64::MAX];
        let i = prop_oneof![-50..50i64, any::<i64>()];
        prop_oneof![
            (prop_oneof![0..50u64, any::<u64>()], n.clone()).prop_map(|(a, b)| Step::MulDiv(a, b)),
            (i.clone(), n.clone()).prop_map(|(a, b)| Step::Add(a, b)),
            (i.clone(), n.clone()).prop_map(|(a, b)| Step::Sub(a, b)),
            (i, n).prop_map(|(a, b)| Step::Over(a, b)),
        ]
    }

    proptest! {
        /// Long chains cross from 128 bits to the long form and back.
        #[test]
        fn chains_equal_those_of_a_known_library(steps in prop::collection::vec(step(), 1..24)) {
            let (mut ours, mut theirs) = (Ratio::ONE, BigRational::from(BigInt::from(1)));
            for step in steps {
                let big = |a: i64, b: u64| BigRational::new(a.into(), b.into());
                let before = (ours.clone(), theirs.clone());
                match step {
                    Step::MulDiv(a, b) => {
                        ours = ours.mul_div(a, b);
                        theirs *= BigRational::new(a.into(), b.into());
                    }
                    Step::Add(a, b) => {
                        ours += &Ratio::new(a, b).unwrap();
                        theirs += big(a, b);
                    }
                    Step::Sub(a, b) => {
                        ours = &ours - &Ratio::new(a, b).unwrap();
                        theirs -= big(a, b);
                    }
                    Step::Over(a, b) => {
                        if let Some(quotient) = ours.over(&Ratio::new(a, b).unwrap()) {
                            ours = quotient;
                            theirs /= big(a, b);
                        } else {
                            prop_assert_eq!(a, 0);
                        }
                    }
                }
                check_equal(&ours, &theirs);
                prop_assert_eq!(ours.cmp(&before.0), theirs.cmp(&before.1));
            }
        }
    }

    /// Snapshots of markets hold digits of 32 bits, the least significant first, whatever a library keeps.
    #[cfg(feature = "serde")]
    #[test]
    fn a_wide_one_is_written_in_digits_of_32_bits() {
        let wide = Ratio::from(u64::MAX).mul_div(u64::MAX, 3).mul_div(u64::MAX, 1);
        let text = r#"{"Wide":{"negative":false,"numerator":[1431655765,1431655765,1431655766,1431655765,1431655764,1431655765],"denominator":[1]}}"#;
        assert_eq!(serde_json::to_string(&wide).unwrap(), text);
        assert_eq!(serde_json::from_str::<Ratio>(text).unwrap(), wide);
    }

    #[test]
    fn what_fits_is_kept_small_again() {
        let primes = [4_294_967_291u64, 4_294_967_279, 4_294_967_231, 4_294_967_197, 4_294_967_189];
        let mut ratio = Ratio::ONE;
        for prime in primes {
            ratio = ratio.mul_div(1, prime);
        }
        assert!(matches!(ratio.0, Form::Wide(_)));
        for prime in primes {
            ratio = ratio.mul_div(prime, 1);
        }
        assert_eq!(ratio, Ratio::ONE);
        let sizes: Vec<_> = [Ratio::ZERO, Ratio::ONE].iter().map(core::mem::size_of_val).collect();
        assert!(sizes.iter().all(|&size| size <= 48));
    }
}
