//! `divvy market audit`: who did what.

use divvy_daemon::market::types::{Audit, AuditEntry};

use serde_json::Value;

use super::args::AuditArgs;
use super::{moment, refused};
use crate::remote::json;
use crate::{Code, Failure, print};

pub(super) fn run(args: &AuditArgs) -> Result<Code, Failure> {
    let api = args.system.api()?;
    let mut all = Audit { next: args.since, entries: Vec::new() };
    loop {
        // One answer is a part; what was there when we asked comes to an end.
        let part = api.market_audit(all.next).map_err(refused)?;
        let done = part.entries.is_empty() || part.next <= all.next;
        all.next = part.next.max(all.next);
        if args.json {
            all.entries.extend(part.entries);
        } else {
            part.entries.iter().try_for_each(|entry| print(line(entry)))?;
        }
        if done {
            break;
        }
    }
    if args.json {
        print(json(&all)?)?;
    }
    Ok(Code::Done)
}

/// What was asked for; the operations that it came to are left to `--json`.
fn asked(what: &Value) -> String {
    match (what["ask"].as_str(), &what["request"]) {
        (Some(ask), Value::Null) => ask.to_owned(),
        (Some(ask), request) => format!("{ask} {request}"),
        (None, _) => what.to_string(),
    }
}

/// `12 2026-11-22T02:40:18Z user 1000 pid 4711: create-ticket {"holder":"build",...}`.
pub(super) fn line(entry: &AuditEntry) -> String {
    let refused = entry.refused.as_ref().map_or_else(String::new, |why| format!("  REFUSED: {why}"));
    let who = match entry.pid {
        0 => "divvyd".to_owned(),
        pid => format!("user {} pid {pid}", entry.uid),
    };
    format!("{} {} {who}: {}{refused}", entry.seq, moment(entry.t_unix_ns), asked(&entry.what))
}
