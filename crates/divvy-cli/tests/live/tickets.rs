//! Tickets of several, and of nobody: what each command does with more than one, and what is left to who has none.

use std::time::Duration;

use serde_json::Value;

use crate::harness::{MAX_FRACTION_ERROR, Sandbox, eventually};
use crate::market::{Fair, NO_SUCH, ROOT, alice_uid, bob_uid};

/// What is refused for one of several is done for the others; and the audit log is told in parts.
#[test]
fn several_are_ended_at_once_and_the_audit_log_is_told_in_parts() {
    let Some(sandbox) = Sandbox::shared("several_are_ended_at_once_and_the_audit_log_is_told_in_parts")
    else {
        return;
    };
    let fair = Fair::open(&sandbox);
    fair.must(alice_uid(), "currency create build");
    fair.must(bob_uid(), "currency create mine");
    let alice = fair.own(alice_uid());
    // One user's, and the last ones', by number or by time.
    let of = |args: &str| fair.json(ROOT, &format!("market audit {args}"))["entries"].clone();
    let seq = |entries: &Value| -> Vec<u64> {
        entries.as_array().expect("entries").iter().map(|e| e["seq"].as_u64().expect("a number")).collect()
    };
    let bobs = of(&format!("--user {}", bob_uid()));
    assert!(
        bobs.as_array().is_some_and(|b| !b.is_empty() && b.iter().all(|e| e["uid"] == bob_uid())),
        "{bobs:#}"
    );
    let all = seq(&of(""));
    assert_eq!(seq(&of("--since 1h")), all);
    let (entry, rest) = (all[all.len() / 2], &all[all.len() / 2..]);
    assert_eq!(seq(&of(&format!("--since {entry}"))), rest);
    std::thread::sleep(Duration::from_millis(2_100));
    assert!(seq(&of(&format!("--since 1s --user {}", bob_uid()))).is_empty());
    let others = format!("market audit --user {}", alice_uid());
    fair.refuses(bob_uid(), &others, NO_SUCH, &["told to superusers only"]);
    fair.refuses(
        ROOT,
        "market audit --user no-such",
        NO_SUCH,
        &["--user no-such: this machine knows no such user"],
    );
    let tickets: Vec<String> = (1..=2)
        .map(|n| {
            fair.json(alice_uid(), &format!("fund build --from {alice} {n}"))["result"]["id"].to_string()
        })
        .collect();
    let several = format!("unfund {} 4711.1 {}", tickets[0], tickets[1]).replace('"', "");
    let outcome = fair.run(alice_uid(), &several);
    assert_eq!(outcome.code, Some(NO_SUCH), "{}", outcome.stderr);
    let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
    assert!(
        said.matches(": taken away").count() == 2 && outcome.stderr.contains("4711"),
        "{said}{}",
        outcome.stderr
    );
    // What sleeps has nothing to give.
    let mut awake = fair.client(alice_uid(), "awake");
    let offers: Vec<String> = (1..=2)
        .map(|n| {
            fair.must(alice_uid(), &format!("exchange offer --give cpu:{n} --want disk:900"));
            fair.json(alice_uid(), "exchange ls")["offers"][n - 1]["id"].to_string()
        })
        .collect();
    let outcome = fair.run(alice_uid(), &format!("exchange cancel --offer {} 4711 {}", offers[0], offers[1]));
    let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
    assert!(
        outcome.code == Some(NO_SUCH) && said.matches(": withdrawn").count() == 2,
        "{said}{}",
        outcome.stderr
    );
    for name in ["one", "two"] {
        fair.must(alice_uid(), &format!("currency create {name}"));
        fair.must(alice_uid(), &format!("fund {name} --from {alice} 1"));
    }
    let both = fair.json(alice_uid(), &format!("unfund one two --from {alice}"));
    assert_eq!(both.as_array().map(Vec::len), Some(2), "{both:#}");
    let ended = fair.must(alice_uid(), "currency destroy one two");
    assert_eq!(ended.matches(": ended, and every ticket").count(), 2, "{ended}");
    sandbox.kill_clients();
    let _ = awake.wait();
}

/// A client that nothing backs any more has nothing while others compete, and takes nothing from who has: else each user could
/// have many such, and with them more than its own.
#[test]
fn who_loses_all_tickets_has_nothing_while_others_compete() {
    const TEST: &str = "who_loses_all_tickets_has_nothing_while_others_compete";
    let Some(sandbox) = Sandbox::shared(TEST) else { return };
    let fair = Fair::open(&sandbox);
    let running =
        [fair.client(alice_uid(), "a"), fair.client(bob_uid(), "one"), fair.client(bob_uid(), "two")];
    let bob = fair.own(bob_uid());
    let parts = || {
        let all = fair.json(ROOT, "ls --system")["clients"].clone();
        let of = |name: &str| {
            let client = all
                .as_array()
                .expect("clients")
                .iter()
                .find(|c| c["name"].as_str().is_some_and(|n| n.ends_with(&format!("/{name}"))))
                .expect("there")
                .clone();
            (
                client["effective_fraction"].as_f64().expect("a number"),
                client["achieved_fraction"].as_f64().expect("a number"),
            )
        };
        ["a", "one", "two"].map(of)
    };
    let told = |due: [f64; 3]| {
        eventually("their parts", || {
            let close = |(got, due): (&(f64, f64), f64)| {
                (got.0 - due).abs() < 0.002 && (got.1 - due).abs() < MAX_FRACTION_ERROR
            };
            parts().iter().zip(due).all(close).then_some(())
        });
    };
    told([2.0 / 3.0, 1.0 / 6.0, 1.0 / 6.0]);
    let taken = fair.run(bob_uid(), &format!("unfund one --from {bob}"));
    let one = format!("{}/one", bob_uid());
    let warning = format!(
        "divvy: warning: {one} has no right to cpu any more, and nothing while others compete: divvy fund {one} AMOUNT \
         --from CURRENCY --resource cpu"
    );
    assert_eq!((taken.code, taken.stderr.trim_end()), (Some(0), warning.as_str()));
    told([2.0 / 3.0, 0.0, 1.0 / 3.0]);
    // It comes back with what it is given, and has all where nobody else wants any.
    fair.must(bob_uid(), &format!("fund one --from {bob} 1"));
    told([2.0 / 3.0, 1.0 / 6.0, 1.0 / 6.0]);
    sandbox.kill_clients();
    for mut client in running {
        let _ = client.wait();
    }
}
