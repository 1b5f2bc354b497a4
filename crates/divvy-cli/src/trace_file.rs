//! Recorded traces, as files.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use crate::{Code, Failure};

/// Does `read` with the lines of a file.
///
/// # Errors
/// [`Failure`] with [`Code::File`] if it cannot be opened, or a line cannot be read (is no text, say).
pub(crate) fn with_lines<T>(
    path: &Path,
    read: impl FnOnce(&mut dyn Iterator<Item = String>) -> T,
) -> Result<T, Failure> {
    let unreadable = |e: std::io::Error| Failure::new(Code::File, format!("read {}: {e}", path.display()));
    let file = BufReader::new(File::open(path).map_err(unreadable)?);
    let mut broken = None;
    let done = read(&mut file.lines().map_while(|line| line.map_err(|e| broken = Some(e)).ok()));
    match broken {
        Some(e) => Err(unreadable(e)),
        None => Ok(done),
    }
}
