//! `divvy usage report`: lines of the file as a table.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use serde::Serialize;

use super::account::Line;
use super::{ReportArgs, unix_seconds};
use crate::remote::json;
use crate::strip::plain;
use crate::{Code, Failure, print, tell};

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
    let bytes = std::fs::read(&args.file).map_err(|e| {
        let fix = match e.kind() {
            ErrorKind::NotFound => "; `divvy usage record` writes it",
            _ => "",
        };
        Failure::new(Code::File, format!("read {}: {}{fix}", args.file.display(), crate::files::cause(&e)))
    })?;
    let since = args.since.map_or(0, |since| unix_seconds().saturating_sub(since.as_secs()));
    // What is no text is a line that cannot be read.
    let (lines, unread) = read(&String::from_utf8_lossy(&bytes));
    if let Some((number, e)) = unread.first() {
        let file = args.file.display();
        if lines.is_empty() {
            let text = format!("{file}, line {number}: {e}; is it what `divvy usage record` wrote?");
            return Err(Failure::new(Code::File, text));
        }
        let more = if unread.len() > 1 { format!(" and {} more", unread.len() - 1) } else { String::new() };
        tell(format_args!("divvy: {file}: line {number}{more} cannot be read, and is left out: {e}"));
    }
    let report = of(lines, since);
    match args.json {
        true => print(json(&report)?)?,
        false => table(&report).iter().try_for_each(print)?,
    }
    Ok(Code::Done)
}

/// The lines of a file, and the numbers of those that are none, with why: what a crash cut off.
fn read(text: &str) -> (Vec<Line>, Vec<(usize, String)>) {
    let (mut lines, mut unread) = (Vec::new(), Vec::new());
    for (number, line) in text.lines().enumerate() {
        match serde_json::from_str(line) {
            Ok(line) => lines.push(line),
            Err(e) => unread.push((number + 1, in_line(&e))),
        }
    }
    (lines, unread)
}

/// The parser's words without its line: it has seen but one.
fn in_line(e: &serde_json::Error) -> String {
    let text = e.to_string();
    text.split(" at line ").next().unwrap_or(&text).to_owned()
}

/// Sums over all lines that end after `since`.
fn of(mut lines: Vec<Line>, since: u64) -> Report {
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
    Report { version: 1, from, to, users }
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
        let of = |text: &str, since| of(read(text).0, since);
        let report = of(&text, 0);
        let rows: Vec<_> = report
            .users
            .iter()
            .map(|r| (r.user.as_str(), r.cpu_ns, r.fraction, r.machine_fraction))
            .collect();
        // 7 of 8 s of all; of the machine 7 of 16, whose two stretches are counted once each.
        assert_eq!(rows, [("alice", 7_000_000_000, 0.875, 0.4375), ("bob", 1_000_000_000, 0.125, 0.0625)]);
        assert_eq!((report.from, report.to, report.users[1].due_fraction), (0, 20, 0.25));
        let late = of(&text, 10);
        assert_eq!((late.from, late.users.len()), (10, 1), "only what ended later");
        let lines = table(&report);
        assert_eq!(lines[0], "user      CPU time of all %    due %  machine %");
        assert_eq!(lines[1], "alice       7.00 s    87.50    75.00      43.75");
        assert_eq!(lines[3], "from 1970-01-01T00:00:00Z to 1970-01-01T00:00:20Z");
        assert_eq!(table(&of("", 0)).len(), 1);
    }

    #[test]
    fn a_line_that_was_cut_off_spoils_no_other() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("u.jsonl");
        let whole = line(0, 10, "bob", 1, 2);
        std::fs::write(&file, [whole.as_bytes(), b"{\"from\":\"\xe3\x81"].concat()).expect("written");
        for _ in 0..2 {
            super::super::append(&file, &whole).expect("added");
        }
        super::super::append(&file, "").expect("nothing added");
        let bytes = std::fs::read(&file).expect("written");
        let text = String::from_utf8_lossy(&bytes);
        let (lines, unread) = read(&text);
        assert_eq!((lines.len(), text.lines().count()), (3, 4), "{text}");
        assert_eq!(unread.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [2]);
        assert!(!unread[0].1.contains("line") && unread[0].1.contains("EOF"), "{unread:?}");
        let args = ReportArgs { file: file.clone(), since: None, json: true };
        assert!(run(&args).is_ok());
        std::fs::write(&file, "no\n").expect("written");
        let failure = run(&args).expect_err("nothing is in it");
        assert!(
            failure.text.ends_with("line 1: expected ident; is it what `divvy usage record` wrote?"),
            "{}",
            failure.text
        );
    }
}
