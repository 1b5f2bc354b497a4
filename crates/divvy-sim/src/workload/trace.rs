//! Jobs from a text of comma-separated values.

use divvy_policy::Share;

use super::Job;
use crate::scenario::Span;

/// A line of a job trace is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    /// From 1.
    pub line: usize,
    /// The column's name.
    pub key: &'static str,
    /// What is wrong, and what was expected.
    pub message: String,
}

impl std::fmt::Display for TraceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}, {}: {}", self.line, self.key, self.message)
    }
}

impl std::error::Error for TraceError {}

/// The jobs in `text`: one line each, `arrival,size` or `arrival,size,share`, times with units. Empty lines, lines that
/// begin with `#` and a first line that begins with `arrival` are passed over. Jobs come back sorted by arrival.
///
/// # Errors
/// [`TraceError`] with line, column and what was expected.
pub fn parse_jobs(text: &str, group: u32) -> Result<Vec<Job>, TraceError> {
    let mut jobs = Vec::new();
    for (index, row) in text.lines().enumerate() {
        let (line, row) = (index + 1, row.trim());
        if row.is_empty() || row.starts_with('#') || row.starts_with("arrival") {
            continue;
        }
        let fail = |key, message: String| TraceError { line, key, message };
        let cells: Vec<&str> = row.split(',').map(str::trim).collect();
        let (arrival, size) = match cells[..] {
            [arrival, size] | [arrival, size, _] => (arrival, size),
            _ => return Err(fail("row", format!("{} values, expected arrival,size[,share]", cells.len()))),
        };
        let time = |key, text: &str| text.parse::<Span>().map_err(|message| fail(key, message));
        let (arrival, size) = (time("arrival", arrival)?.instant(), time("size", size)?.nanos());
        if size.0 == 0 {
            return Err(fail("size", "0, expected more than 0".into()));
        }
        let share = match cells.get(2) {
            None => Share::ONE,
            Some(cell) => {
                let number: u64 = cell
                    .parse()
                    .map_err(|_| fail("share", format!("\"{cell}\" is not a whole number of at least 1")))?;
                Share::new(number).map_err(|error| fail("share", error.to_string()))?
            }
        };
        jobs.push(Job { group, arrival, size, share });
    }
    jobs.sort_by_key(|job| job.arrival);
    Ok(jobs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_jobs_in_any_order() {
        let jobs = parse_jobs("arrival,size,share\n# late first\n2s, 5ms, 3\n\n1s,1ms\n", 4).unwrap();
        let seen: Vec<_> =
            jobs.iter().map(|job| (job.arrival.0, job.size.0, job.share.get(), job.group)).collect();
        assert_eq!(seen, [(1_000_000_000, 1_000_000, 1, 4), (2_000_000_000, 5_000_000, 3, 4)]);
    }

    #[test]
    fn says_what_is_wrong_and_where() {
        let error = |text: &str| parse_jobs(text, 0).unwrap_err().to_string();
        assert_eq!(error("1s,1ms\n1s"), "line 2, row: 1 values, expected arrival,size[,share]");
        assert_eq!(error("1s,0"), "line 1, size: 0, expected more than 0");
        assert_eq!(error("1s,1ms,0"), "line 1, share: a share must be at least 1");
        assert!(error("soon,1ms").starts_with("line 1, arrival: \"soon\" is not a time"));
    }
}
