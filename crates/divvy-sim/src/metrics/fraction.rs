//! Exact fractions, for numbers that are shown.

use std::fmt;

use divvy_policy::gcd_wide;

/// A fraction in lowest terms, its denominator positive. Shown as `a/b`, or `a` where b is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fraction {
    numerator: i128,
    denominator: i128,
}

impl Fraction {
    /// Zero.
    pub const ZERO: Self = Self { numerator: 0, denominator: 1 };

    /// `numerator / denominator` in lowest terms.
    ///
    /// # Panics
    /// If `denominator` is zero.
    #[must_use]
    pub fn new(numerator: i128, denominator: i128) -> Self {
        assert!(denominator != 0, "a fraction has a denominator");
        let common = gcd_wide(numerator.unsigned_abs(), denominator.unsigned_abs()) as i128;
        let sign = denominator.signum();
        Self { numerator: sign * (numerator / common), denominator: sign * (denominator / common) }
    }

    /// Above the line.
    #[must_use]
    pub const fn numerator(self) -> i128 {
        self.numerator
    }

    /// Below the line, at least 1.
    #[must_use]
    pub const fn denominator(self) -> i128 {
        self.denominator
    }

    /// The nearest float, for plots.
    #[must_use]
    pub fn to_f64(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }
}

impl Ord for Fraction {
    /// By value. The parts are compared by continued fractions, so nothing can overflow.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let (mut a, mut b, mut c, mut d) =
            (self.numerator, self.denominator, other.numerator, other.denominator);
        loop {
            let (whole, theirs) = (a.div_euclid(b), c.div_euclid(d));
            if whole != theirs {
                return whole.cmp(&theirs);
            }
            let (rest, other_rest) = (a.rem_euclid(b), c.rem_euclid(d));
            match (rest, other_rest) {
                (0, 0) => return std::cmp::Ordering::Equal,
                (0, _) => return std::cmp::Ordering::Less,
                (_, 0) => return std::cmp::Ordering::Greater,
                // rest / b against other_rest / d is d / other_rest against b / rest.
                _ => (a, b, c, d) = (d, other_rest, b, rest),
            }
        }
    }
}

impl PartialOrd for Fraction {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.denominator == 1 {
            write!(f, "{}", self.numerator)
        } else {
            write!(f, "{}/{}", self.numerator, self.denominator)
        }
    }
}

impl serde::Serialize for Fraction {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl std::str::FromStr for Fraction {
    type Err = ParseFractionError;

    /// Reads `a/b` or `a`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (above, below) = text.split_once('/').unwrap_or((text, "1"));
        let numerator = above.parse().map_err(|_| ParseFractionError)?;
        match below.parse() {
            Ok(denominator) if denominator > 0 => Ok(Self::new(numerator, denominator)),
            _ => Err(ParseFractionError),
        }
    }
}

/// A text is not a fraction such as `-3/4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseFractionError;

impl fmt::Display for ParseFractionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected a fraction such as -3/4")
    }
}

impl std::error::Error for ParseFractionError {}

impl<'de> serde::Deserialize<'de> for Fraction {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// As it is written: a text.
#[cfg(feature = "schema")]
impl schemars::JsonSchema for Fraction {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Fraction".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "A fraction in lowest terms: \"3/2\", \"-1\"",
            "type": "string",
            "pattern": "^-?[0-9]+(/[0-9]+)?$"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowest_terms_and_the_sign_above() {
        assert_eq!(Fraction::new(-6, 4).to_string(), "-3/2");
        assert_eq!(Fraction::new(6, -4).to_string(), "-3/2");
        assert_eq!(Fraction::new(0, 7), Fraction::ZERO);
        assert_eq!(Fraction::new(8, 4).to_string(), "2");
        assert_eq!("-3/2".parse(), Ok(Fraction::new(-6, 4)));
        let sorted: Vec<Fraction> = ["-5/6", "-3/4", "0", "1/3", "2/5", "1/2", "3/2", "7/4"]
            .iter()
            .map(|text| text.parse().unwrap())
            .collect();
        assert!(sorted.is_sorted() && sorted.windows(2).all(|pair| pair[0] < pair[1]));
        let (large, larger) =
            (Fraction::new(i128::MAX - 1, i128::MAX), Fraction::new(i128::MAX, i128::MAX - 1));
        assert!(large < larger);
        assert_eq!("1/0".parse::<Fraction>(), Err(ParseFractionError));
    }
}
