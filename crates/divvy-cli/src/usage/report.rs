//! `divvy usage report`: lines of the file as a table.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use serde::Serialize;

use super::account::Line;
use super::{ReportArgs, unix_seconds};
use crate::remote::json;
use crate::strip::plain;
use crate::{Code, Failure, print};

/// What is reported.
#[derive(Debug, PartialEq, Serialize)]
struct Report {
    version: u32,
    /// Of the first line that counts, seconds since 1970 (UTC).
    from: u64,
    /// Of the last one.
    to: u64,
    /// Who used most, first.
    users: Vec<Row>,
}

/// One user.
#[derive(Debug, PartialEq, Serialize)]
struct Row {
    user: String,
    cpu_ns: u64,
    /// Of the CPU time of all users.
    fraction: f64,
    /// What shares came to, of the CPU time of all users.
    due_fraction: f64,
    /// Of what the CPUs could have given while they were looked at.
    machine_fraction: f64,
}

pub(super) fn run(args: &ReportArgs) -> Result<Code, Failure> {
    let text = std::fs::read_to_string(&args.file).map_err(|e| {
        let fix = match e.kind() {
            ErrorKind::NotFound => "; `divvy usage record` writes it",
            _ => "",
        };
        Failure::new(Code::File, format!("read {}: {}{fix}", args.file.display(), crate::files::cause(&e)))
    })?;
    let since = args.since.map_or(0, |since| unix_seconds().saturating_sub(since.as_secs()));
    let report = of(&text, since).map_err(|(number, e)| {
        let text =
            format!("{}, line {number}: {e}; is it what `divvy usage record` wrote?", args.file.display());
        Failure::new(Code::File, text)
    })?;
    match args.json {
        true => print(json(&report)?)?,
        false => table(&report).iter().try_for_each(print)?,
    }
    Ok(Code::Done)
}

/// Sums over all lines that end after `since`.
///
/// # Errors
/// The number of the line that is none, and why.
fn of(text: &str, since: u64) -> Result<Report, (usize, serde_json::Error)> {
    let mut lines = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line: Line = serde_json::from_str(line).map_err(|e| (number + 1, e))?;
        lines.push(line);
    }
    lines.retain(|line| line.to > since);
    let mut sums: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    // All users of one write share the machine's time.
    let mut machine: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    for line in &lines {
        let sum = sums.entry(&line.user).or_default();
        (sum.0, sum.1) = (sum.0 + line.cpu_ns, sum.1 + line.due_ns);
        machine.insert((line.from, line.to), line.machine_ns);
    }
    let all: u64 = sums.values().map(|sum| sum.0).sum();
    let machine: u64 = machine.values().sum();
    let part = |of: u64, all: u64| if all > 0 { of as f64 / all as f64 } else { 0.0 };
    let mut users: Vec<Row> = sums
        .into_iter()
        .map(|(user, (cpu_ns, due_ns))| Row {
            user: user.to_owned(),
            cpu_ns,
            fraction: part(cpu_ns, all),
            due_fraction: part(due_ns, all),
            machine_fraction: part(cpu_ns, machine),
        })
        .collect();
    users.sort_by(|a, b| b.cpu_ns.cmp(&a.cpu_ns).then_with(|| a.user.cmp(&b.user)));
    let from = lines.iter().map(|line| line.from).min().unwrap_or(0);
    let to = lines.iter().map(|line| line.to).max().unwrap_or(0);
    Ok(Report { version: 1, from, to, users })
}

fn table(report: &Report) -> Vec<String> {
    if report.users.is_empty() {
        return vec!["nobody used anything in that time".to_owned()];
    }
    let wide = report.users.iter().map(|row| row.user.chars().count()).max().unwrap_or(0).max(4);
    let mut lines = vec![format!(
        "{:wide$} {:>12} {:>8} {:>8} {:>10}",
        "user", "CPU time", "of all %", "due %", "machine %"
    )];
    for row in &report.users {
        let hours = row.cpu_ns as f64 / 3.6e12;
        let time =
            if hours >= 1.0 { format!("{hours:.2} h") } else { format!("{:.2} s", row.cpu_ns as f64 / 1e9) };
        let percent = |part: f64| part * 100.0;
        lines.push(format!(
            "{:wide$} {time:>12} {:>8.2} {:>8.2} {:>10.2}",
            plain(&row.user),
            percent(row.fraction),
            percent(row.due_fraction),
            percent(row.machine_fraction)
        ));
    }
    let moment = |s: u64| {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(s);
        humantime::format_rfc3339_seconds(time).to_string()
    };
    lines.push(format!("from {} to {}", moment(report.from), moment(report.to)));
    lines.push(
        "due: what shares came to while users competed; machine: of what the CPUs could have given"
            .to_owned(),
    );
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(from: u64, to: u64, user: &str, cpu_ns: u64, due_ns: u64) -> String {
        let line = Line { from, to, user: user.to_owned(), cpu_ns, due_ns, machine_ns: 8_000_000_000 };
        serde_json::to_string(&line).expect("JSON") + "\n"
    }

    #[test]
    fn lines_are_summed_by_user() {
        let text = line(0, 10, "bob", 1_000_000_000, 2_000_000_000)
            + &line(0, 10, "alice", 3_000_000_000, 2_000_000_000)
            + &line(10, 20, "alice", 4_000_000_000, 4_000_000_000);
        let report = of(&text, 0).expect("lines");
        let rows: Vec<_> = report
            .users
            .iter()
            .map(|r| (r.user.as_str(), r.cpu_ns, r.fraction, r.machine_fraction))
            .collect();
        // 7 of 8 s of all; of the machine 7 of 16, whose two stretches are counted once each.
        assert_eq!(rows, [("alice", 7_000_000_000, 0.875, 0.4375), ("bob", 1_000_000_000, 0.125, 0.0625)]);
        assert_eq!((report.from, report.to, report.users[1].due_fraction), (0, 20, 0.25));
        let late = of(&text, 10).expect("lines");
        assert_eq!((late.from, late.users.len()), (10, 1), "only what ended later");
        let lines = table(&report);
        assert_eq!(lines[0], "user      CPU time of all %    due %  machine %");
        assert_eq!(lines[1], "alice       7.00 s    87.50    75.00      43.75");
        assert_eq!(lines[3], "from 1970-01-01T00:00:00Z to 1970-01-01T00:00:20Z");
        assert_eq!(table(&of("", 0).expect("none")).len(), 1);
        let (number, _) = of(&(text + "{\"from\":1}\n"), 0).expect_err("no line");
        assert_eq!(number, 4);
    }
}
