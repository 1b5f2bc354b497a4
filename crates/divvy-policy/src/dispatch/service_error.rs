//! Service errors of a schedule, as exact fractions.
//!
//! A schedule is who ran in each quantum. The *service error* of a client after `t` quanta is what it received less
//! what it was entitled to, `W - t * s / S` quanta (VTRR, eq. 2): all errors of a schedule are integers over `S`, the
//! sum of shares, and are kept so. Positive: ahead of the ideal.

use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;

use crate::gcd_wide;

/// An exact fraction. Compares by value; prints as `a/b` in lowest terms, or `a`.
#[derive(Clone, Copy, Debug)]
pub struct Fraction {
    num: i128,
    den: u64,
}

impl Fraction {
    /// Nothing.
    pub const ZERO: Self = Self { num: 0, den: 1 };

    /// `num / den`, with `num` within 63 bits either way.
    ///
    /// # Panics
    /// If `den` is 0.
    #[must_use]
    pub const fn new(num: i64, den: u64) -> Self {
        assert!(den > 0, "a denominator is not 0");
        Self { num: num as i128, den }
    }

    /// Numerator and denominator in lowest terms; the denominator is at least 1.
    #[must_use]
    pub const fn lowest(self) -> (i128, u64) {
        // The denominator is at least 1, so their common divisor is too.
        let common = gcd_wide(self.num.unsigned_abs(), self.den as u128);
        (self.num / common as i128, (self.den as u128 / common) as u64)
    }

    /// As a float, for printing and statistics only.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        self.num as f64 / self.den as f64
    }
}

impl PartialEq for Fraction {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Fraction {}

impl PartialOrd for Fraction {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Fraction {
    /// By cross-multiplication: |numerators| below 2^63 and denominators below 2^64 stay within 127 bits.
    fn cmp(&self, other: &Self) -> Ordering {
        (self.num * i128::from(other.den)).cmp(&(other.num * i128::from(self.den)))
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lowest() {
            (num, 1) => write!(f, "{num}"),
            (num, den) => write!(f, "{num}/{den}"),
        }
    }
}

/// The smallest and the largest service error over the quantum boundaries of a schedule, in quanta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Furthest behind; never above 0, the error at the start.
    pub min: Fraction,
    /// Furthest ahead; never below 0.
    pub max: Fraction,
}

/// Service errors of a schedule, taken at every quantum boundary from 0 on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceErrors {
    /// Over all clients.
    pub all: Range,
    /// Of each client.
    pub clients: Vec<Range>,
    /// Quanta that each received.
    pub service: Vec<u64>,
    /// Error of each at the end.
    pub last: Vec<Fraction>,
}

/// What makes a schedule impossible to judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScheduleError {
    /// No shares, or one that is 0, or their sum times the number of quanta is beyond 2^62.
    Shares,
    /// A quantum was given to a client that has no share.
    UnknownClient(usize),
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shares => {
                f.write_str("shares must be at least 1 and their sum times the quanta below 2^62")
            }
            Self::UnknownClient(c) => write!(f, "client {c} runs but has no share"),
        }
    }
}

impl core::error::Error for ScheduleError {}

fn total_share(shares: &[u64], quanta: usize) -> Result<u64, ScheduleError> {
    let total = shares.iter().try_fold(0u64, |sum, &s| if s == 0 { None } else { sum.checked_add(s) });
    let total = total.filter(|&t| t > 0).ok_or(ScheduleError::Shares)?;
    let product = u128::from(total) * (quanta as u128 + 1);
    if product < 1 << 62 { Ok(total) } else { Err(ScheduleError::Shares) }
}

/// Service errors of `schedule` (who ran in each quantum, by index into `shares`) against the ideal of [`VTRR`, eq. 1]:
/// all clients always runnable. Cost O(quanta + clients).
///
/// An error falls while its client waits and rises while it runs, so extremes stand where a client starts or stops.
///
/// # Errors
/// [`ScheduleError`] for shares that are out of range, or a client without one.
///
/// [`VTRR`, eq. 1]: super::vtrr
pub fn service_errors(shares: &[u64], schedule: &[usize]) -> Result<ServiceErrors, ScheduleError> {
    let total = total_share(shares, schedule.len())?;
    let (mut low, mut high) = (vec![0i64; shares.len()], vec![0i64; shares.len()]);
    let mut service = vec![0u64; shares.len()];
    // Errors times S: W * S - t * s, below 2^62 by the check above.
    let error = |share: u64, received: u64, t: usize| (received * total) as i64 - (t as u64 * share) as i64;
    for (t, &client) in schedule.iter().enumerate() {
        let &share = shares.get(client).ok_or(ScheduleError::UnknownClient(client))?;
        low[client] = low[client].min(error(share, service[client], t));
        service[client] += 1;
        high[client] = high[client].max(error(share, service[client], t + 1));
    }
    let last: Vec<i64> = shares.iter().zip(&service).map(|(&s, &w)| error(s, w, schedule.len())).collect();
    let over = |num: i64| Fraction::new(num, total);
    let ranges = low.iter().zip(&high).zip(&last);
    let clients: Vec<Range> =
        ranges.map(|((&low, &high), &last)| Range { min: over(low.min(last)), max: over(high) }).collect();
    let all = Range {
        min: clients.iter().map(|c| c.min).min().unwrap_or(Fraction::ZERO),
        max: clients.iter().map(|c| c.max).max().unwrap_or(Fraction::ZERO),
    };
    Ok(ServiceErrors { all, clients, service, last: last.into_iter().map(over).collect() })
}

/// The two ways to set the first two clients against each other; the VTRR paper's "allocation error between A and B".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairErrors {
    /// `max |Wa / Sa - Wb / Sb|`: how far their virtual times part, in quanta per share.
    pub virtual_gap: Fraction,
    /// `max |Wa - (Wa + Wb) * Sa / (Sa + Sb)|`: the error of their division of what both got, in quanta.
    pub service: Fraction,
}

/// How far clients `a` and `b` part over the quantum boundaries of `schedule`.
///
/// # Errors
/// [`ScheduleError`] as [`service_errors`].
pub fn pair_errors(
    shares: &[u64],
    schedule: &[usize],
    a: usize,
    b: usize,
) -> Result<PairErrors, ScheduleError> {
    total_share(shares, schedule.len())?;
    let share = |client: usize| shares.get(client).copied().ok_or(ScheduleError::UnknownClient(client));
    let (sa, sb) = (share(a)?, share(b)?);
    if sa.checked_mul(sb).is_none_or(|product| product >= 1 << 62) {
        return Err(ScheduleError::Shares);
    }
    let (mut wa, mut wb, mut widest) = (0u64, 0u64, 0u64);
    for &client in schedule {
        wa += u64::from(client == a);
        wb += u64::from(client == b);
        // Wa / Sa - Wb / Sb = (Wa * Sb - Wb * Sa) / (Sa * Sb); Wa - (Wa + Wb) * Sa / (Sa + Sb) has the same numerator
        // over Sa + Sb.
        widest = widest.max((wa * sb).abs_diff(wb * sa));
    }
    let widest = widest as i64;
    Ok(PairErrors { virtual_gap: Fraction::new(widest, sa * sb), service: Fraction::new(widest, sa + sb) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn the_worked_example_of_section_2_2() {
        // A A A B B C with shares 3, 2, 1: after 3 quanta A has 3 - 3/2 = 3/2, and B -1.
        let errors = service_errors(&[3, 2, 1], &[0, 0, 0, 1, 1, 2]).unwrap();
        assert_eq!(errors.all, Range { min: Fraction::new(-1, 1), max: Fraction::new(3, 2) });
        assert_eq!(errors.clients[2].min.to_string(), "-5/6");
        assert!(errors.last.iter().all(|&e| e == Fraction::ZERO));
    }

    #[test]
    fn impossible_schedules_are_refused() {
        assert_eq!(service_errors(&[], &[]), Err(ScheduleError::Shares));
        assert_eq!(service_errors(&[1, 0], &[0]), Err(ScheduleError::Shares));
        assert_eq!(service_errors(&[1, 1], &[2]), Err(ScheduleError::UnknownClient(2)));
        assert_eq!(service_errors(&[u64::MAX, 1], &[0]), Err(ScheduleError::Shares));
        assert_eq!(pair_errors(&[1, 1], &[0], 0, 2), Err(ScheduleError::UnknownClient(2)));
    }
}
