//! `divvy market audit`: who did what.

use divvy_api::market::{Audit, AuditEntry};

use serde_json::Value;

use super::args::AuditArgs;
use super::{moment, refused};
use crate::remote::json;
use crate::strip::plain;
use crate::{Code, Failure, print};

pub(super) fn run(args: &AuditArgs) -> Result<Code, Failure> {
    let api = args.ask.of.api()?;
    let mut all = Audit { next: args.since, entries: Vec::new() };
    loop {
        // One answer is a part; what was there when we asked comes to an end.
        let part = api.market_audit(all.next).map_err(refused)?;
        let done = part.entries.is_empty() || part.next <= all.next;
        all.next = part.next.max(all.next);
        if args.ask.json {
            all.entries.extend(part.entries);
        } else {
            part.entries.iter().try_for_each(|entry| print(line(entry)))?;
        }
        if done {
            break;
        }
    }
    if args.ask.json {
        print(json(&all)?)?;
    }
    Ok(Code::Done)
}

/// What was asked for, as `ask name=value ...`; the operations that it came to are left to `--json`.
fn asked(what: &Value) -> String {
    let (Some(ask), Some(members)) = (what["ask"].as_str(), what.as_object()) else {
        return what.to_string();
    };
    let mut words = vec![ask.to_owned()];
    let bare = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut add = |name: &str, value: &Value| words.push(format!("{name}={}", bare(value)));
    for (name, value) in members.iter().filter(|(name, _)| *name != "ask" && *name != "steps") {
        match value.as_object().filter(|_| name == "request") {
            Some(request) => request.iter().for_each(|(name, value)| add(name, value)),
            None => add(name, value),
        }
    }
    words.join(" ")
}

/// `12 2026-11-22T02:40:18Z user 1000 pid 4711: create-ticket holder=build issuer=alice ...`.
pub(super) fn line(entry: &AuditEntry) -> String {
    let refused = entry.refused.as_ref().map_or_else(String::new, |why| format!("  REFUSED: {why}"));
    let who = match entry.pid {
        0 => "divvyd".to_owned(),
        pid => format!("user {} pid {pid}", entry.uid),
    };
    // Refused requests are told as they were asked: by anybody, and with anything in them.
    plain(&format!("{} {} {who}: {}{refused}", entry.seq, moment(entry.t_unix_ns), asked(&entry.what)))
}
