//! `divvy market audit`: who did what.

use divvy_api::market::{Audit, AuditEntry, BY, ENDED};
use divvy_linux::{clock, user_name};

use serde_json::Value;

use super::args::{AuditArgs, Since};
use super::{moment, refused};
use crate::remote::json;
use crate::strip::plain;
use crate::{Code, Failure, print};

pub(super) fn run(args: &AuditArgs) -> Result<Code, Failure> {
    let api = args.ask.of.api()?;
    let uid = args.user.as_deref().map(uid_of).transpose()?;
    let (from, after) = match args.since {
        None => (0, 0),
        Some(Since::Entry(number)) => (number, 0),
        Some(Since::Time(time)) => {
            let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            (0, clock::unix().0.saturating_sub(time))
        }
    };
    let wanted = |entry: &AuditEntry| {
        // What divvyd did by itself has number 0 as well, and is not root's.
        let of_user = |uid| match uid {
            0 => entry.pid != 0 && (entry.uid == 0 || is_by_root(entry)),
            uid => entry.uid == uid,
        };
        entry.t_unix_ns >= after && uid.is_none_or(of_user)
    };
    let mut all = Audit { next: from, entries: Vec::new() };
    let mut any = false;
    loop {
        // One answer is a part; what was there when we asked comes to an end.
        let part = api.market_audit(all.next).map_err(refused)?;
        let done = part.entries.is_empty() || part.next <= all.next;
        all.next = part.next.max(all.next);
        any |= part.entries.iter().any(wanted);
        if args.ask.json {
            all.entries.extend(part.entries.into_iter().filter(wanted));
        } else {
            part.entries
                .iter()
                .filter(|entry| wanted(entry))
                .try_for_each(|entry| print(line(entry, user_name)))?;
        }
        if done {
            break;
        }
    }
    if args.ask.json {
        print(json(&all)?)?;
    }
    let own = rustix::process::getuid().as_raw();
    match args.user.as_deref() {
        // Nobody but superusers is told what others did: nothing is no answer.
        Some(user) if !any && own != 0 && uid != Some(own) => {
            let text = format!(
                "user {user} has asked for nothing that you may see: what others did is told to superusers only"
            );
            Err(Failure::new(Code::NoSuch, text))
        }
        _ => Ok(Code::Done),
    }
}

/// The number of the user that `--user` names. Who has no account any more is there by its number.
fn uid_of(word: &str) -> Result<u32, Failure> {
    divvy_linux::user_id(word).or_else(|| word.parse().ok()).ok_or_else(|| {
        let text = format!("--user {word}: this machine knows no such user; `getent passwd` has all");
        Failure::new(Code::NoSuch, text)
    })
}

/// What was asked for, as `ask name=value ...`; the operations that it came to are left to `--json`.
fn asked(what: &Value) -> String {
    let (Some(ask), Some(members)) = (what["ask"].as_str(), what.as_object()) else {
        return what.to_string();
    };
    let mut words = vec![ask.to_owned()];
    let bare = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut add = |name: &str, value: &Value| words.push(format!("{name}={}", bare(value)));
    let told_elsewhere = ["ask", "steps", BY];
    for (name, value) in members.iter().filter(|(name, _)| !told_elsewhere.contains(&name.as_str())) {
        match value.as_object().filter(|_| name == "request") {
            Some(request) => request.iter().for_each(|(name, value)| add(name, value)),
            None => add(name, value),
        }
    }
    words.join(" ")
}

/// Whether root asked, in the place of the user among whose lines it is.
fn is_by_root(entry: &AuditEntry) -> bool {
    entry.what[BY] == "root"
}

/// `12 2026-11-22T02:40:18Z user alice pid 4711: create-ticket holder=build issuer=alice ...`; who has no account, by number.
pub(super) fn line(entry: &AuditEntry, name: impl Fn(u32) -> Option<String>) -> String {
    let refused = entry.refused.as_ref().map_or_else(String::new, |why| format!("  REFUSED: {why}"));
    let user = || name(entry.uid).unwrap_or_else(|| entry.uid.to_string());
    let who = match entry.pid {
        0 if entry.uid == 0 => "divvyd".to_owned(),
        0 if entry.what["ask"] == ENDED => format!("divvyd to {}", user()),
        0 => format!("user {}", user()),
        pid if is_by_root(entry) => format!("user root pid {pid} for {}", user()),
        pid => format!("user {} pid {pid}", user()),
    };
    // Refused requests are told as they were asked: by anybody, and with anything in them.
    plain(&format!("{} {} {who}: {}{refused}", entry.seq, moment(entry.t_unix_ns), asked(&entry.what)))
}
