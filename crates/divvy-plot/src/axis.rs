//! Axes: where a number goes, and which numbers are written beside it.

/// How numbers are spread along an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Evenly.
    #[default]
    Linear,
    /// By their logarithms. Numbers must be greater than 0.
    Log,
}

/// One axis.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Axis {
    /// What it shows, with its unit.
    pub label: String,
    /// How numbers are spread.
    pub scale: Scale,
    /// Written at 0, 1, 2, ... in place of numbers; empty for an axis of numbers.
    pub words: Vec<String>,
}

impl Axis {
    /// An axis of words, which stand at 0, 1, 2, ...
    #[must_use]
    pub fn words(label: &str, words: Vec<String>) -> Self {
        Self { label: label.into(), scale: Scale::Linear, words }
    }

    /// An even axis.
    #[must_use]
    pub fn linear(label: &str) -> Self {
        Self { label: label.into(), scale: Scale::Linear, words: Vec::new() }
    }

    /// A logarithmic axis.
    #[must_use]
    pub fn log(label: &str) -> Self {
        Self { label: label.into(), scale: Scale::Log, words: Vec::new() }
    }
}

/// A stretch of an axis, with its marks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Range {
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) ticks: Vec<(f64, String)>,
    scale: Scale,
}

impl Range {
    /// The stretch that holds all of `numbers`, widened to whole marks if `round`; about `nr` marks.
    pub(crate) fn of(
        numbers: impl Iterator<Item = f64>,
        scale: Scale,
        nr: usize,
        round: bool,
    ) -> Option<Self> {
        let usable = |x: &f64| x.is_finite() && (scale == Scale::Linear || *x > 0.0);
        let (low, high) =
            numbers.filter(usable).fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| (a.min(x), b.max(x)));
        if low > high {
            return None;
        }
        Some(match scale {
            Scale::Linear => Self::linear(low, high, nr, round),
            Scale::Log => Self::log(low, high),
        })
    }

    fn linear(mut low: f64, mut high: f64, nr: usize, round: bool) -> Self {
        if low == high {
            let room = if low == 0.0 { 1.0 } else { low.abs() * 0.5 };
            (low, high) = (low - room, high + room);
        }
        let rough = (high - low) / nr.max(1) as f64;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|&s| s >= rough * 0.999);
        let step = step.unwrap_or(power * 10.0);
        // Rounding must not add a step to a number that stands on a mark.
        let (first, last) = (low / step, high / step);
        if round {
            low = (first + 1e-9).floor() * step;
            high = (last - 1e-9).ceil() * step;
        }
        let from = (low / step - 1e-9).ceil() as i64;
        let to = (high / step + 1e-9).floor() as i64;
        let ticks = (from..=to).map(|i| i as f64 * step).map(|x| (x, number(x, step))).collect();
        Self { low, high, ticks, scale: Scale::Linear }
    }

    fn log(low: f64, high: f64) -> Self {
        let (from, to) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        let to = to.max(from + 1);
        let marks: &[f64] = if to - from <= 2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let (low, high) = (10f64.powi(from), 10f64.powi(to));
        let ticks = (from..=to)
            .flat_map(|power| marks.iter().map(move |m| m * 10f64.powi(power)))
            .filter(|&x| x <= high * 1.000_001)
            .map(|x| (x, number(x, x)))
            .collect();
        Self { low, high, ticks, scale: Scale::Log }
    }

    /// A stretch with a mark for each word.
    pub(crate) fn of_words(words: &[String]) -> Self {
        let ticks = words.iter().enumerate().map(|(i, word)| (i as f64, word.clone())).collect();
        Self { low: -0.5, high: words.len() as f64 - 0.5, ticks, scale: Scale::Linear }
    }

    /// How far along the stretch `x` is: 0 at its low end, 1 at its high end.
    pub(crate) fn part(&self, x: f64) -> f64 {
        match self.scale {
            Scale::Linear => (x - self.low) / (self.high - self.low),
            Scale::Log => {
                let low = self.low.log10();
                (x.max(self.low * 1e-3).log10() - low) / (self.high.log10() - low)
            }
        }
    }
}

/// `x` with as many decimals as `step` has, commas between thousands.
fn number(x: f64, step: f64) -> String {
    let decimals = (-(step.log10() + 1e-9).floor()).clamp(0.0, 9.0) as usize;
    let text = format!("{:.decimals$}", x.abs());
    let (whole, rest) = text.split_once('.').map_or((text.as_str(), ""), |(whole, rest)| (whole, rest));
    let mut out = String::new();
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if !rest.is_empty() {
        out.push('.');
        out.push_str(rest);
    }
    let is_zero = out.chars().all(|c| matches!(c, '0' | '.' | ','));
    if x < 0.0 && !is_zero { format!("-{out}") } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(range: &Range) -> Vec<&str> {
        range.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn marks_are_round_numbers() {
        let range = Range::of([0.0, 60.0].into_iter(), Scale::Linear, 6, true).unwrap();
        assert_eq!(labels(&range), ["0", "10", "20", "30", "40", "50", "60"]);
        let range = Range::of([-0.83, 1.0].into_iter(), Scale::Linear, 5, true).unwrap();
        assert_eq!(labels(&range), ["-1.0", "-0.5", "0.0", "0.5", "1.0"]);
        let range = Range::of([-398.0, 12_479.0].into_iter(), Scale::Linear, 4, false).unwrap();
        assert_eq!((range.low, labels(&range)), (-398.0, vec!["0", "5,000", "10,000"]));
        let range = Range::of([2.0, 90_000.0].into_iter(), Scale::Log, 5, true).unwrap();
        assert_eq!(labels(&range), ["1", "10", "100", "1,000", "10,000", "100,000"]);
        assert!((range.part(10.0) - 0.2).abs() < 1e-12);
    }

    #[test]
    fn odd_ranges_still_have_a_length() {
        for x in [0.0, 7.0, -3.0] {
            let range = Range::of(std::iter::once(x), Scale::Linear, 5, true).unwrap();
            assert!(range.low < x && x < range.high && !range.ticks.is_empty(), "{x}");
        }
        assert_eq!(Range::of([f64::NAN, f64::INFINITY].into_iter(), Scale::Linear, 5, true), None);
        assert_eq!(Range::of([0.0, -1.0].into_iter(), Scale::Log, 5, true), None);
    }
}
