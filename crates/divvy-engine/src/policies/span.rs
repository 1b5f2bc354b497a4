//! Times as people write them: `4ms`, `2.5ms`, `1min`.

use std::fmt;

use divvy_policy::{Instant, Nanos, TimeError};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A length of time in nanoseconds, written as a number and a unit (ns, us, ms, s, min, h); decimals are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub u64);

const EXPECTED: &str = "a time such as \"4ms\" (units ns, us, ms, s, min, h)";

impl Span {
    /// As a length of time.
    #[must_use]
    pub const fn nanos(self) -> Nanos {
        Nanos(self.0)
    }

    /// As a moment after zero.
    #[must_use]
    pub const fn instant(self) -> Instant {
        Instant(self.0)
    }

    /// In seconds.
    #[must_use]
    pub fn secs(self) -> f64 {
        self.nanos().as_secs_f64()
    }
}

impl std::str::FromStr for Span {
    type Err = String;

    /// Reads what [`Nanos`] reads.
    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        text.parse().map(|Nanos(ns)| Self(ns)).map_err(|error: TimeError| format!("\"{text}\" {error}"))
    }
}

impl fmt::Display for Span {
    /// As [`Nanos`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.nanos().fmt(f)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Span;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(EXPECTED)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Span, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_i64<E: de::Error>(self, n: i64) -> Result<Span, E> {
                if n == 0 {
                    Ok(Span(0))
                } else {
                    Err(E::custom(format!("{n} has no unit, expected {EXPECTED}")))
                }
            }
            fn visit_u64<E: de::Error>(self, n: u64) -> Result<Span, E> {
                if n == 0 {
                    Ok(Span(0))
                } else {
                    Err(E::custom(format!("{n} has no unit, expected {EXPECTED}")))
                }
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Span {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "A time: a number, decimals allowed, and a unit (ns, us, ms, s, min, h).",
            "anyOf": [
                { "type": "string", "pattern": "^[0-9][0-9_]*([.][0-9]+)? *(ns|us|ms|s|min|h)$" },
                { "const": "0" },
                { "const": 0 },
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_times() {
        for (text, ns, out) in [
            ("4ms", 4_000_000, "4ms"),
            ("2.5ms", 2_500_000, "2500us"),
            ("0.000000001s", 1, "1ns"),
            ("1min", 60_000_000_000, "1min"),
            ("2m", 120_000_000_000, "2min"),
            ("1d", 86_400_000_000_000, "24h"),
            ("90 s", 90_000_000_000, "90s"),
            ("1_000us", 1_000_000, "1ms"),
            ("0", 0, "0"),
        ] {
            assert_eq!(text.parse(), Ok(Span(ns)), "{text}");
            assert_eq!(Span(ns).to_string(), out);
        }
        for (text, error) in [
            ("-3ms", "is negative"),
            ("4", "is not a time"),
            ("ms", "is not a time"),
            ("4 parsecs", "is not a time"),
            ("1.2.3s", "is not a time"),
            ("0.5ns", "finer than a nanosecond"),
            ("999999999h", "more than 584 years"),
        ] {
            let got = text.parse::<Span>().unwrap_err();
            assert!(got.contains(error), "{text}: {got}");
        }
    }
}
