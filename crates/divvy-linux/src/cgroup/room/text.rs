//! The forms in which the kernel writes values: single numbers, `max`, keyed lines, pressure.

use std::fmt;

use divvy_policy::Nanos;

/// Reads what the kernel writes into a file. The error says which part is missing or malformed.
pub trait Parse: Sized {
    /// The value that `text`, the whole file, stands for.
    ///
    /// # Errors
    /// Which part could not be read.
    fn parse(text: &str) -> Result<Self, &'static str>;
}

/// Spells a value as the kernel takes it.
pub trait Spell {
    /// What is written, in one go.
    fn spell(&self) -> String;
}

/// A bound, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// So much.
    At(u64),
    /// No bound; the greatest of all.
    Max,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(n) => n.fmt(f),
            Self::Max => f.write_str("max"),
        }
    }
}

impl Limit {
    pub(super) fn word(text: &str) -> Option<Self> {
        if text == "max" { Some(Self::Max) } else { text.parse().ok().map(Self::At) }
    }
}

impl Parse for Limit {
    fn parse(text: &str) -> Result<Self, &'static str> {
        Self::word(text.trim()).ok_or("the number, or max,")
    }
}

impl Spell for Limit {
    fn spell(&self) -> String {
        self.to_string()
    }
}

impl Parse for u64 {
    fn parse(text: &str) -> Result<Self, &'static str> {
        text.trim().parse().map_err(|_| "the number")
    }
}

impl Spell for u64 {
    fn spell(&self) -> String {
        self.to_string()
    }
}

/// Microseconds, as the kernel counts time in these files.
pub(super) fn micros(us: u64) -> Nanos {
    Nanos(us.saturating_mul(1_000))
}

/// The number in the line `key number` of `text`; `None` where there is no such line.
pub(super) fn keyed(text: &str, key: &str) -> Option<u64> {
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.filter(|(name, _)| *name == key).find_map(|(_, value)| value.trim().parse().ok())
}

/// A number with two decimals, in hundredths: the kernel's percentages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hundredths(pub u64);

impl fmt::Display for Hundredths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.0 / 100, self.0 % 100)
    }
}

impl Hundredths {
    pub(super) fn word(text: &str) -> Option<Self> {
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        if part.len() > 2 || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let part: u64 = format!("{part:0<2}").parse().ok()?;
        Some(Self(whole.parse::<u64>().ok()?.checked_mul(100)?.checked_add(part)?))
    }
}

/// How much of the time somebody waited, and since when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stall {
    /// Percent of the last 10 s.
    pub avg10: Hundredths,
    /// Percent of the last minute.
    pub avg60: Hundredths,
    /// Percent of the last five minutes.
    pub avg300: Hundredths,
    /// All since the cgroup was made.
    pub total: Nanos,
}

/// A `*.pressure` file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// At least one process waited.
    pub some: Stall,
    /// All waited; older kernels do not tell it of the CPU.
    pub full: Option<Stall>,
}

impl Parse for Pressure {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let line = |name: &str| {
            let rest = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
            let field =
                |key: &str| rest.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
            let average = |key| Hundredths::word(field(key)?);
            Some(Stall {
                avg10: average("avg10")?,
                avg60: average("avg60")?,
                avg300: average("avg300")?,
                total: micros(field("total")?.parse().ok()?),
            })
        };
        Ok(Self { some: line("some").ok_or("the line `some`")?, full: line("full") })
    }
}
