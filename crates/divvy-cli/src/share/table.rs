//! The table of clients, as lines of text.

use divvy_policy::CpuLimit;
use unicode_width::UnicodeWidthStr as _;

use crate::remote::table::is_due_nothing;
use crate::strip::fit;

/// One client's line.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) share: u64,
    pub(crate) limit: Option<CpuLimit>,
    pub(crate) target: f64,
    pub(crate) achieved: f64,
    pub(crate) error: f64,
    pub(crate) state: String,
    pub(crate) cpu_ns: u64,
}

const NAME_MAX: usize = 24;
/// Columns of the states that come and go, so that the table does not jump.
const STATE_MIN: usize = 9;

/// A header and one line for each row; limits where there are any. Fractions are of all CPU time that the rows have received; the error is of the
/// target.
pub(crate) fn lines(rows: &[Row], color: bool) -> Vec<String> {
    let width = rows.iter().map(|r| r.name.width()).max().unwrap_or(0).clamp(7, NAME_MAX);
    let states = rows.iter().map(|r| r.state.chars().count()).max().unwrap_or(0).max(STATE_MIN);
    let bold = |text: String| if color { format!("\x1b[1m{text}\x1b[0m") } else { text };
    let limits = rows.iter().any(|r| r.limit.is_some());
    let limited = |text: &str| if limits { format!(" {text:>8}") } else { String::new() };
    let header = format!(
        "{:<width$} {:>7}{} {:>9} {:>10} {:>9}  {:<states$} {:>10}",
        "command",
        "share",
        limited("limit"),
        "target %",
        "achieved %",
        "error %",
        "state",
        "CPU time"
    );
    let mut lines = vec![bold(header)];
    // Before anybody had anything there is no part of it.
    let measured = rows.iter().any(|row| row.achieved > 0.0);
    let of_measured = |text: String| if measured { text } else { "-".to_owned() };
    for row in rows {
        let line = format!(
            "{} {:>7}{} {:>9.2} {:>10} {:>9}  {:<states$} {:>8.2} s",
            fit(&row.name, width),
            row.share,
            limited(&row.limit.map_or_else(|| "-".to_owned(), |limit| limit.to_string())),
            row.target * 100.0,
            of_measured(format!("{:.2}", row.achieved * 100.0)),
            if is_due_nothing(row.target) {
                "-".to_owned()
            } else {
                of_measured(format!("{:+.2}", row.error * 100.0))
            },
            row.state,
            row.cpu_ns as f64 / 1e9,
        );
        let dim = color && row.state != "running" && row.state != "held";
        lines.push(if dim { format!("\x1b[2m{line}\x1b[0m") } else { line });
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_lines_up() {
        let row = |name: &str, share, error| Row {
            name: name.into(),
            share,
            limit: None,
            target: 1.0 / 6.0,
            achieved: 0.1669,
            error,
            state: "running".into(),
            cpu_ns: 1_669_000_000,
        };
        let lines =
            lines(&[row("a", 1, 0.0014), row("a-name-that-is-far-too-long-for-it", 1_000_000, -1.0)], false);
        assert_eq!(
            lines,
            [
                "command                    share  target % achieved %   error %  state       CPU time",
                "a                              1     16.67      16.69     +0.14  running       1.67 s",
                "a-name-that-is-far-too-… 1000000     16.67      16.69   -100.00  running       1.67 s",
            ]
        );
    }

    #[test]
    fn letters_that_are_wide_line_up_too() {
        let row = |name: &str| Row {
            name: name.into(),
            share: 1,
            limit: None,
            target: 1.0,
            achieved: 0.5,
            error: 0.0,
            state: "asleep".into(),
            cpu_ns: 0,
        };
        let lines = lines(&[row("build"), row("日本語日本")], false);
        let columns: Vec<usize> = lines.iter().map(|line| line.width()).collect();
        assert_eq!(columns, [columns[0]; 3], "{lines:#?}");
    }

    #[test]
    fn what_nobody_has_measured_is_no_number() {
        let row = Row {
            name: "a".into(),
            share: 1,
            limit: None,
            target: 1.0,
            achieved: 0.0,
            error: 0.0,
            state: "asleep".into(),
            cpu_ns: 0,
        };
        assert_eq!(
            lines(&[row], false)[1],
            "a             1    100.00          -         -  asleep        0.00 s"
        );
    }

    #[test]
    fn limits_have_a_column_where_there_are_any() {
        let row = |name: &str, limit: &str| Row {
            name: name.into(),
            share: 1,
            limit: limit.parse().ok(),
            target: 0.5,
            achieved: 0.5,
            error: 0.0,
            state: "running".into(),
            cpu_ns: 0,
        };
        assert_eq!(
            lines(&[row("a", "12.5%"), row("b", "")], false),
            [
                "command   share    limit  target % achieved %   error %  state       CPU time",
                "a             1    12.5%     50.00      50.00     +0.00  running       0.00 s",
                "b             1        -     50.00      50.00     +0.00  running       0.00 s",
            ]
        );
    }
}
