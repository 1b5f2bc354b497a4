//! What a process notices of being suspended and resumed: every row of `docs/stopped.md`, lived through.
//!
//! The tables of the document are the expectation: a row that says something else than what happens here fails, and so
//! does a case without a row.
#![allow(clippy::disallowed_methods, reason = "these tests live in real time")]

#[path = "common/skip.rs"]
mod skip;
mod suspend;

use std::collections::BTreeMap;

use skip::skip;
use suspend::calls::{CALLS, Call, outcome_of};
use suspend::{Method, cases};

const DOCUMENT: &str = include_str!("../../../docs/stopped.md");

/// The rows of the table that begins with a header cell `first`: cells by row.
fn table(first: &str) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut inside = false;
    for line in DOCUMENT.lines() {
        let cells: Vec<String> = line.split('|').map(|c| c.trim().to_owned()).collect();
        if cells.len() < 3 {
            inside = false;
        } else if cells[1] == first {
            inside = true;
        } else if inside && !cells[1].starts_with("--") {
            rows.push(cells[1..cells.len() - 1].to_vec());
        }
    }
    assert!(!rows.is_empty(), "docs/stopped.md has no table '{first}'");
    rows
}

/// Compares a column of a table with what happened.
fn check(rows: &[Vec<String>], column: usize, seen: &BTreeMap<String, String>) {
    let told: BTreeMap<String, String> =
        rows.iter().map(|row| (row[0].trim_matches('`').to_owned(), row[column].clone())).collect();
    assert_eq!(&told, seen, "docs/stopped.md (left) and what happened (right)");
}

#[test]
fn calls_that_wait() {
    let rows = table("waiting in");
    let seen = |method, column: usize| -> Option<BTreeMap<String, String>> {
        let returns = |call: &Call| {
            rows.iter().any(|row| row[0].trim_matches('`') == call.name && row[column] == "EINTR")
        };
        let outcome = |call| outcome_of(call, method, returns(call));
        CALLS.iter().map(|call| Some((call.name.to_owned(), outcome(call)?.to_owned()))).collect()
    };
    check(&rows, 1, &seen(Method::Signals, 1).expect("signals can always be had"));
    match seen(Method::Freezer, 2) {
        Some(seen) => check(&rows, 2, &seen),
        None => skip("calls_that_wait (freezer)", "no cgroup v2 that we may change"),
    }
}

#[test]
fn everything_else() {
    let rows = table("what");
    let seen = |method| -> Option<BTreeMap<String, String>> {
        cases::CASES.iter().map(|(name, case)| Some(((*name).to_owned(), case(method)?.to_owned()))).collect()
    };
    check(&rows, 1, &seen(Method::Signals).expect("signals can always be had"));
    match seen(Method::Freezer) {
        Some(seen) => check(&rows, 2, &seen),
        None => skip("everything_else (freezer)", "no cgroup v2 that we may change"),
    }
}
