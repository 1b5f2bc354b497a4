//! Distributions of times: drawn from in simulation, integrated over in the formulas of queueing theory.

use divvy_policy::Nanos;
use serde::{Deserialize, Serialize};

use crate::rng::{SplitMix64, exponential};
use crate::scenario::Span;

/// A distribution of times, written as a table with one key: `{ exponential = { mean = "25s" } }`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Dist {
    /// Always the same.
    Const(Span),
    /// Evenly spread from low to high.
    #[serde(rename_all = "kebab-case")]
    Uniform {
        /// The shortest.
        low: Span,
        /// The longest.
        high: Span,
    },
    /// Exponential.
    #[serde(rename_all = "kebab-case")]
    Exponential {
        /// Its mean.
        mean: Span,
    },
    /// Hyperexponential of two phases: exponential of mean `long` with probability `p-long`, of mean `short` otherwise.
    #[serde(rename_all = "kebab-case")]
    Hyperexponential {
        /// Between 0 and 1.
        p_long: f64,
        /// Mean of the rare phase.
        long: Span,
        /// Mean of the common phase.
        short: Span,
    },
    /// Pareto cut off at both ends: heavy-tailed sizes such as those of files.
    #[serde(rename_all = "kebab-case")]
    BoundedPareto {
        /// The tail's index, greater than 0; the smaller, the heavier.
        shape: f64,
        /// The smallest size, greater than 0.
        low: Span,
        /// The largest size.
        high: Span,
    },
}

impl Dist {
    /// What is wrong with its parameters: the key and the reason.
    #[must_use]
    pub fn defect(&self) -> Option<(&'static str, String)> {
        let positive = |key, span: Span| (span.0 == 0).then(|| (key, String::from("expected more than 0")));
        let rising = |low: Span, high: Span| {
            (low >= high).then(|| ("high", format!("expected more than low, which is {low}")))
        };
        match *self {
            Self::Const(_) => None,
            Self::Uniform { low, high } => rising(low, high),
            Self::Exponential { mean } => positive("mean", mean),
            Self::Hyperexponential { p_long, long, short } => (!(p_long > 0.0 && p_long < 1.0))
                .then(|| ("p-long", format!("{p_long} is out of range, expected a number between 0 and 1")))
                .or_else(|| positive("long", long))
                .or_else(|| positive("short", short)),
            Self::BoundedPareto { shape, low, high } => (!(shape > 0.0 && shape.is_finite()))
                .then(|| ("shape", format!("{shape} is out of range, expected a number greater than 0")))
                .or_else(|| positive("low", low))
                .or_else(|| rising(low, high)),
        }
    }

    /// Draws a time, cut down to a multiple of `resolution`. A constant draws nothing from `rng`.
    pub fn sample(&self, rng: &mut SplitMix64, resolution: Nanos) -> Nanos {
        let unit = resolution.0.max(1);
        let units = |span: Span| span.0 as f64 / unit as f64;
        let drawn = match *self {
            Self::Const(span) => return span.nanos(),
            Self::Uniform { low, high } => units(low) + rng.uniform() * (units(high) - units(low)),
            Self::Exponential { mean } => exponential(rng) * units(mean),
            Self::Hyperexponential { p_long, long, short } => {
                let mean = if rng.uniform() < p_long { long } else { short };
                exponential(rng) * units(mean)
            }
            Self::BoundedPareto { shape, low, high } => {
                let cut = 1.0 - libm::pow(units(low) / units(high), shape);
                units(low) * libm::pow(1.0 - rng.uniform() * cut, -1.0 / shape)
            }
        };
        // A float beyond the range of u64 saturates: such a time is for ever.
        Nanos((drawn as u64).saturating_mul(unit))
    }

    /// The mean in seconds.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.truncated_moments(f64::INFINITY).0
    }

    /// The second moment in seconds squared.
    #[must_use]
    pub fn second_moment(&self) -> f64 {
        self.truncated_moments(f64::INFINITY).1
    }

    /// E[min(X, x)] and E[min(X, x)^2], in seconds.
    #[must_use]
    pub fn truncated_moments(&self, x: f64) -> (f64, f64) {
        match *self {
            Self::Const(span) => {
                let least = span.secs().min(x);
                (least, least * least)
            }
            Self::Uniform { low, high } => {
                let (low, high) = (low.secs(), high.secs());
                let top = x.clamp(low, high);
                if x <= low {
                    return (x, x * x);
                }
                // Integrals of P(X > t) and of 2 t P(X > t) from low to top, P(X > t) = (high - t) / (high - low).
                let width = high - low;
                let first = (high * (top - low) - (top * top - low * low) / 2.0) / width;
                let cubes = (top * top * top - low * low * low) / 3.0;
                let second = 2.0 * (high * (top * top - low * low) / 2.0 - cubes) / width;
                (low + first, low * low + second)
            }
            Self::Exponential { mean } => exponential_moments(mean.secs(), x),
            Self::Hyperexponential { p_long, long, short } => {
                let (a, b) = (exponential_moments(long.secs(), x), exponential_moments(short.secs(), x));
                (p_long * a.0 + (1.0 - p_long) * b.0, p_long * a.1 + (1.0 - p_long) * b.1)
            }
            Self::BoundedPareto { shape, low, high } => {
                let (low, high) = (low.secs(), high.secs());
                if x <= low {
                    return (x, x * x);
                }
                // P(X > t) = (low^a t^-a - r) / (1 - r) with r = (low / high)^a.
                let (top, r) = (x.min(high), libm::pow(low / high, shape));
                let scale = libm::pow(low, shape);
                let first = (scale * power_integral(-shape, low, top) - r * (top - low)) / (1.0 - r);
                let second =
                    scale * power_integral(1.0 - shape, low, top) - r * (top * top - low * low) / 2.0;
                (low + first, low * low + 2.0 * second / (1.0 - r))
            }
        }
    }

    /// P(X <= x), x in seconds.
    #[must_use]
    pub fn cdf(&self, x: f64) -> f64 {
        match *self {
            Self::Const(span) => f64::from(u8::from(x >= span.secs())),
            Self::Uniform { low, high } => ((x - low.secs()) / (high.secs() - low.secs())).clamp(0.0, 1.0),
            Self::Exponential { mean } => 1.0 - libm::exp(-x / mean.secs()),
            Self::Hyperexponential { p_long, long, short } => {
                let (a, b) = (libm::exp(-x / long.secs()), libm::exp(-x / short.secs()));
                p_long * (1.0 - a) + (1.0 - p_long) * (1.0 - b)
            }
            Self::BoundedPareto { shape, low, high } => {
                let (low, high) = (low.secs(), high.secs());
                let x = x.clamp(low, high);
                (1.0 - libm::pow(low / x, shape)) / (1.0 - libm::pow(low / high, shape))
            }
        }
    }

    /// A range in seconds, its low end above 0, outside which nearly nothing (under 1e-11) lies.
    #[must_use]
    pub fn support(&self) -> (f64, f64) {
        match *self {
            Self::Const(span) => (span.secs(), span.secs()),
            Self::Uniform { low, high } => (low.secs().max(high.secs() * 1e-12), high.secs()),
            Self::Exponential { mean } => (mean.secs() * 1e-12, mean.secs() * 40.0),
            Self::Hyperexponential { long, short, .. } => {
                (long.secs().min(short.secs()) * 1e-12, long.secs().max(short.secs()) * 40.0)
            }
            Self::BoundedPareto { low, high, .. } => (low.secs(), high.secs()),
        }
    }
}

/// E[min(X, x)] and E[min(X, x)^2] of an exponential of mean `mean`.
fn exponential_moments(mean: f64, x: f64) -> (f64, f64) {
    if x == f64::INFINITY {
        return (mean, 2.0 * mean * mean);
    }
    let (z, tail) = (x / mean, libm::exp(-x / mean));
    (mean * (1.0 - tail), 2.0 * mean * mean * (1.0 - tail * (1.0 + z)))
}

/// The integral of t^power from `from` to `to`.
fn power_integral(power: f64, from: f64, to: f64) -> f64 {
    let next = power + 1.0;
    if next.abs() < 1e-12 {
        libm::log(to / from)
    } else {
        (libm::pow(to, next) - libm::pow(from, next)) / next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Welford;

    const S: u64 = 1_000_000_000;

    fn all() -> [Dist; 5] {
        [
            Dist::Const(Span(S)),
            Dist::Uniform { low: Span(S / 2), high: Span(2 * S) },
            Dist::Exponential { mean: Span(S) },
            Dist::Hyperexponential { p_long: 0.1, long: Span(11 * S / 2), short: Span(S / 2) },
            Dist::BoundedPareto { shape: 1.5, low: Span(344_207_592), high: Span(344_207_592_000) },
        ]
    }

    #[test]
    fn samples_have_the_moments_of_the_formulas() {
        for dist in all() {
            let mut rng = SplitMix64::new(1);
            let (mut plain, mut cut, mut below) = (Welford::default(), Welford::default(), 0u32);
            for _ in 0..200_000 {
                let x = dist.sample(&mut rng, Nanos(1)).as_secs_f64();
                plain.push(x);
                cut.push(x.min(1.2) * x.min(1.2));
                below += u32::from(x <= 1.2);
            }
            let near = |stats: &Welford, exact: f64| {
                let room = 4.0 * stats.estimate().standard_error + 1e-6;
                assert!((stats.mean() - exact).abs() <= room, "{dist:?}: {} {exact}", stats.mean());
            };
            near(&plain, dist.mean());
            near(&cut, dist.truncated_moments(1.2).1);
            assert!((f64::from(below) / 200_000.0 - dist.cdf(1.2)).abs() < 0.005, "{dist:?}");
        }
    }

    #[test]
    fn resolution_cuts_down() {
        let mut rng = SplitMix64::new(3);
        let dist = Dist::Exponential { mean: Span(S) };
        assert!((0..100).all(|_| dist.sample(&mut rng, Nanos(1000)).0.is_multiple_of(1000)));
    }

    #[test]
    fn defects_are_named() {
        let key = |dist: Dist| dist.defect().map(|(key, _)| key);
        assert_eq!(key(Dist::Exponential { mean: Span(0) }), Some("mean"));
        assert_eq!(key(Dist::Uniform { low: Span(2), high: Span(1) }), Some("high"));
        assert_eq!(key(Dist::BoundedPareto { shape: -1.0, low: Span(1), high: Span(2) }), Some("shape"));
        let hyper = Dist::Hyperexponential { p_long: f64::NAN, long: Span(1), short: Span(1) };
        assert_eq!(key(hyper), Some("p-long"));
        assert!(all().iter().all(|dist| dist.defect().is_none()));
    }
}
