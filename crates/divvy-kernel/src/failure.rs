//! What went wrong, and the exit code that says of which kind it is.

use std::fmt;
use std::io::{self, Write as _};

/// An error with its exit code.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub code: u8,
    /// What was done, to what, and why it failed.
    pub error: anyhow::Error,
}

/// The kernel let go of the scheduler by itself.
pub const EJECTED: u8 = 1;
/// The arguments cannot be used.
pub const USAGE: u8 = 2;
/// A file cannot be read or is not what it should be.
pub const FILE: u8 = 4;
/// The system refused.
pub const SYSTEM: u8 = 5;
/// There is no such client, process or cgroup, or no divvy-scx that runs.
pub const ABSENT: u8 = 6;

impl Failure {
    /// With a code.
    pub fn new(code: u8, error: impl Into<anyhow::Error>) -> Self {
        Self { code, error: error.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.error)
    }
}

/// Says something to whoever looks on. Nobody need do so.
pub fn say(what: &str) {
    let _ = writeln!(io::stderr(), "divvy-scx: {what}");
}

/// Prints an answer. Whoever has read enough of it may have gone.
///
/// # Errors
/// That it cannot be written.
pub fn print(text: &str) -> Result<(), Failure> {
    match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(SYSTEM, anyhow::Error::new(e).context("write to standard output")))
        }
        _ => Ok(()),
    }
}

/// Gives an error its exit code.
pub trait OrFail<T> {
    /// The value, or the error with `code`.
    ///
    /// # Errors
    /// The error that was there.
    fn or_fail(self, code: u8) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> OrFail<T> for Result<T, E> {
    fn or_fail(self, code: u8) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(code, error))
    }
}
