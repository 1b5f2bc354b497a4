//! Virtual time as an exact mixed fraction, and the clocks that run in it.
//!
//! A client of share `s` that used `w` ns of CPU stands at virtual time `w / s`; a queue of total share `S` that
//! handed out `w` ns stands at `w / S`. Fixed-point numbers would break the ties on which the papers' examples turn,
//! so a virtual time is `whole + num / den` nanoseconds per unit of share, and stays exact for as long as its
//! denominator is at most 2^62. A set of clients that never changes keeps the denominators it began with. Each change
//! of the total share may multiply one in; when it would grow past 2^62 the time is rounded down to a multiple of
//! `1 / divisor`, that is, by less than one nanosecond *of service* of the client or queue that it belongs to.

use core::cmp::Ordering;

use crate::gcd;

/// The largest denominator kept: two of them multiplied with a numerator below stay under 2^124.
const DEN_MAX: u128 = 1 << 62;

/// A point in virtual time: `whole + num / den` nanoseconds of service per unit of share. Compares by value.
#[derive(Clone, Copy, Debug)]
pub struct VirtualTime {
    whole: u64,
    num: u64,
    den: u64,
}

impl VirtualTime {
    /// The start.
    pub const ZERO: Self = Self { whole: 0, num: 0, den: 1 };

    /// `num / den` in lowest terms with `den > 0`.
    #[must_use]
    pub fn as_fraction(&self) -> (u128, u64) {
        let g = gcd(self.num, self.den);
        let den = self.den / g;
        (u128::from(self.whole) * u128::from(den) + u128::from(self.num / g), den)
    }

    /// The same time with a denominator that `divisor` divides; rounded down to `1 / divisor` where that would need a
    /// denominator above 2^62. `divisor` is 1 to 2^62.
    fn divided_by(self, divisor: u64) -> Self {
        debug_assert!(divisor > 0 && u128::from(divisor) <= DEN_MAX);
        if self.num == 0 {
            return Self { den: divisor, ..self };
        }
        let g = gcd(self.num, self.den);
        let (num, den) = (self.num / g, self.den / g);
        let wide = u128::from(den / gcd(den, divisor)) * u128::from(divisor);
        if wide <= DEN_MAX {
            let wide = wide as u64;
            return Self { num: num * (wide / den), den: wide, ..self };
        }
        let num = u128::from(num) * u128::from(divisor) / u128::from(den);
        Self { num: num as u64, den: divisor, ..self }
    }

    /// Brings two times to one denominator; rounds `other` down if it must.
    fn aligned(self, other: Self) -> (Self, Self) {
        let a = self.divided_by(other.den);
        // `a.den` is a multiple of `other.den`, so this is exact.
        let scale = a.den / other.den;
        (a, Self { num: other.num * scale, den: a.den, ..other })
    }

    /// `self + span`, saturating.
    #[must_use]
    pub fn plus(self, span: Self) -> Self {
        let (a, b) = self.aligned(span);
        let sum = a.num + b.num;
        let (carry, num) = if sum >= a.den { (1, sum - a.den) } else { (0, sum) };
        Self { whole: a.whole.saturating_add(b.whole).saturating_add(carry), num, den: a.den }
    }

    /// `self - earlier`, or zero where `earlier` is in fact later.
    #[must_use]
    pub fn minus(self, earlier: Self) -> Self {
        if self <= earlier {
            return Self::ZERO;
        }
        let (a, b) = self.aligned(earlier);
        if a.num >= b.num {
            Self { whole: a.whole.saturating_sub(b.whole), num: a.num - b.num, den: a.den }
        } else {
            Self { whole: a.whole.saturating_sub(b.whole + 1), num: a.den - b.num + a.num, den: a.den }
        }
    }

    /// Service of a client of `share` over this span of virtual time, in ns, rounded up.
    #[must_use]
    pub fn service(self, share: u64) -> u128 {
        let share = u128::from(share);
        u128::from(self.whole) * share + (u128::from(self.num) * share).div_ceil(u128::from(self.den))
    }
}

impl PartialEq for VirtualTime {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for VirtualTime {}

impl PartialOrd for VirtualTime {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for VirtualTime {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.whole.cmp(&other.whole).then_with(|| {
            let (a, b) =
                (u128::from(self.num) * u128::from(other.den), u128::from(other.num) * u128::from(self.den));
            a.cmp(&b)
        })
    }
}

/// A clock that advances by `1 / divisor` of virtual time for each ns of CPU time; the divisor is a share.
///
/// The remainder of every division stays in the clock: 10 ms and 10 ms advance it as 20 ms do.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    whole: u64,
    num: u64,
    divisor: u64,
    /// The denominator of `num` is `divisor * scale`.
    scale: u64,
}

/// A length of virtual time over the denominator of one clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Step {
    whole: u64,
    num: u64,
}

impl Clock {
    /// A clock that stands at `at`, or less than `1 / divisor` before it (see the module). `divisor` is 1 to 2^62.
    #[must_use]
    pub fn new(at: VirtualTime, divisor: u64) -> Self {
        let at = at.divided_by(divisor);
        Self { whole: at.whole, num: at.num, divisor, scale: at.den / divisor }
    }

    /// Where the clock stands.
    #[inline]
    #[must_use]
    pub const fn now(&self) -> VirtualTime {
        VirtualTime { whole: self.whole, num: self.num, den: self.divisor * self.scale }
    }

    /// The share that the clock runs by.
    #[inline]
    #[must_use]
    pub const fn divisor(&self) -> u64 {
        self.divisor
    }

    /// How far `used` ns of CPU time would take this clock.
    #[inline]
    pub(super) const fn step(&self, used: u64) -> Step {
        Step { whole: used / self.divisor, num: used % self.divisor * self.scale }
    }

    /// Advances the clock by a step that was computed for it; saturates after 584 years.
    #[inline]
    pub(super) const fn advance_step(&mut self, step: Step) {
        self.whole = self.whole.saturating_add(step.whole);
        self.num += step.num;
        let den = self.divisor * self.scale;
        if self.num >= den {
            self.num -= den;
            self.whole = self.whole.saturating_add(1);
        }
    }

    /// Advances the clock by `used` ns of CPU time; saturates after 584 years.
    #[inline]
    pub const fn advance(&mut self, used: u64) {
        self.advance_step(self.step(used));
    }

    /// Advances the clock by `used * mul / divisor`; saturates after 584 years.
    pub fn advance_by(&mut self, used: u64, mul: u64) {
        let (wide, divisor) = (u128::from(used) * u128::from(mul), u128::from(self.divisor));
        let whole = u64::try_from(wide / divisor).unwrap_or(u64::MAX);
        self.advance_step(Step { whole, num: (wide % divisor) as u64 * self.scale });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vt(num: u64, den: u64) -> VirtualTime {
        let mut clock = Clock::new(VirtualTime::ZERO, den);
        clock.advance(num);
        clock.now()
    }

    #[test]
    fn sums_differences_and_order_are_exact() {
        // 7/3 + 5/2 = 29/6; 29/6 - 7/3 = 5/2.
        let sum = vt(7, 3).plus(vt(5, 2));
        assert_eq!(sum.as_fraction(), (29, 6));
        assert_eq!(sum.minus(vt(7, 3)), vt(5, 2));
        assert_eq!(vt(5, 2).minus(sum), VirtualTime::ZERO);
        assert!(vt(1, 3) < vt(2, 5) && vt(2, 6) == vt(1, 3) && vt(9, 2) > vt(4, 1));
        assert_eq!(vt(7, 3).service(3), 7);
        assert_eq!(vt(7, 3).service(2), 5);
    }

    #[test]
    fn a_split_charge_equals_the_whole() {
        let mut whole = Clock::new(vt(1, 7), 3);
        let mut split = whole;
        whole.advance(1_000);
        for used in [1, 332, 333, 334] {
            split.advance(used);
        }
        assert_eq!(whole.now(), split.now());
        // 1/7 + 1000/3 = 7003/21.
        assert_eq!(whole.now().as_fraction(), (7_003, 21));
    }

    #[test]
    fn an_overflowing_denominator_rounds_by_less_than_a_nanosecond_of_service() {
        let primes = [4_294_967_291u64, 4_294_967_279, 4_294_967_231];
        let mut clock = Clock::new(VirtualTime::ZERO, primes[0]);
        for share in primes {
            let before = clock.now();
            clock = Clock::new(before, share);
            assert!(clock.now() <= before);
            assert!(before.minus(clock.now()).service(share) <= 1);
            clock.advance(1_000_003);
        }
    }
}
