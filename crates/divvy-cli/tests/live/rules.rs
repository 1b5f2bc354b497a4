//! Rules in a file: processes that match become clients by themselves, for as long as the file says so.

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::daemon::{client, clients};
use crate::harness::{Sandbox, as_both_users, eventually};
use crate::page::block;

as_both_users! {
    what_matches_a_rule_is_a_client
}

/// A process that ends with the test.
struct Script(Child);

impl Script {
    fn pid(&self) -> i64 {
        i64::from(self.0.id())
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a script of that name, which becomes the kernel's name of its process.
fn start(sandbox: &Sandbox, name: &str, script: &str) -> Script {
    let path = sandbox.write(name, &format!("#!/bin/sh\n{script}\n"));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = sandbox.command(&path);
    Script(command.arg("--of-a-rule").stdout(Stdio::null()).spawn().expect("a script"))
}

fn members(client: &Value) -> Vec<i64> {
    client["members"].as_array().unwrap().iter().map(|m| m["pid"].as_i64().unwrap()).collect()
}

fn what_matches_a_rule_is_a_client(sandbox: &Sandbox) {
    let rules = |text: &str| drop(sandbox.write("config.toml", text));
    let spin = "while :; do :; done";
    let outcome = sandbox.run(&["rules"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(String::from_utf8_lossy(&outcome.stdout).contains("there is no such file"));
    assert_eq!(sandbox.run(&["rules", "start"]).code, Some(4), "no file, no rules");

    rules(
        "[[rule]]\nname = 'crunch-*'\nshare = 2\nlimit = '50%'\n\n\
         [[rule]]\nname = 'crunch-*'\nbelow = 'outer'\nas = 'inner'\ngroup = 'deep'\n\n\
         [[rule]]\ncommand = '*/tr[ae]in --of-a-rule'\n\n[groups]\ndeep = 5\n",
    );
    let check = sandbox.run(&["rules", "check"]);
    let said = String::from_utf8(check.stdout).unwrap();
    assert!(said.starts_with("line 1: crunch-*: name:crunch-*, share 2, limit 50%\n"), "{said}");
    assert!(said.contains("line 6: inner: below:outer:name:crunch-*, share 1, in group deep\n"), "{said}");
    let json: Value = serde_json::from_slice(&sandbox.run(&["rules", "check", "--json"]).stdout).unwrap();
    assert_eq!((&json["rules"][0]["limit_ppm"], &json["groups"]["deep"]), (&500_000.into(), &5.into()));
    let alone = start(sandbox, "crunch-a", spin);
    let train = start(sandbox, "train", spin);
    drop(start(sandbox, "crunch-b", spin)); // It is there for `outer` to run.
    let _outer = start(sandbox, "outer", "./crunch-b");
    let started = sandbox.run(&["rules", "start"]);
    assert_eq!(started.code, Some(0), "{}", started.stderr);
    let said = String::from_utf8(started.stdout).unwrap();
    assert_eq!(said.matches(", followed\n").count(), 3, "{said}");
    let one = eventually("the first rule's client", || {
        client(sandbox, "crunch-*").filter(|c| members(c) == [alone.pid()])
    });
    assert_eq!((&one["share"], &one["limit_ppm"]), (&2.into(), &500_000.into()));
    let inner = eventually("what is below outer", || {
        client(sandbox, "inner").filter(|c| c["members"][0]["name"] == "crunch-b" && c["nr_members"] == 1)
    });
    assert_eq!(inner["group"], "deep");
    let groups: Value = serde_json::from_slice(&sandbox.run(&["ls", "--json"]).stdout).unwrap();
    assert_eq!(groups["groups"][0]["share"], 5);
    eventually("what is told by its command line", || {
        clients(sandbox).into_iter().find(|c| members(c) == [train.pid()])
    });
    // Who comes later is found too.
    let later = start(sandbox, "crunch-c", spin);
    eventually("who comes later", || {
        client(sandbox, "crunch-*").filter(|c| members(c).contains(&later.pid()))
    });

    // A change of the file is a change of its clients: another share, and what no rule below is about any more is the first's.
    sandbox.run(&["set", "crunch-*", "--limit", "none"]);
    rules("[[rule]]\nname = 'crunch-*'\nshare = 7\nlimit = '50%'\n");
    let changed = eventually("the change", || {
        client(sandbox, "crunch-*").filter(|c| c["share"] == 7 && c["nr_members"] == 3)
    });
    assert_eq!(
        (&changed["id"], changed.get("limit_ppm")),
        (&one["id"], None),
        "what the file did not change"
    );
    assert_eq!(clients(sandbox).len(), 1);
    // By signals nobody is kept to some CPUs: such a rule has no client, and it is said why.
    rules("[[rule]]\nname = 'crunch-*'\nshare = 7\nlimit = '50%'\n\n[[rule]]\nname = 'none-*'\ncpus = '0'\n");
    let check = sandbox.run(&["rules", "check"]);
    let said = String::from_utf8(check.stdout).unwrap();
    assert!(said.contains("line 6: none-*: name:none-*, share 1, CPUs 0\n"), "{said}");
    assert_eq!(check.code, Some(4), "{said}");
    assert!(check.stderr.contains("config.toml: line 6: none-* would not be followed: "), "{}", check.stderr);
    eventually("the refusal", || {
        let told = String::from_utf8(sandbox.run(&["rules"]).stdout).unwrap();
        told.contains("by signals, and keeps nobody ").then_some(())
    });
    assert_eq!(clients(sandbox).len(), 1);
    // A file that cannot be used changes nothing, and says where.
    rules("[[rule]]\nname = 'crunch-*'\nshar = 1\n");
    let refused = eventually("the error", || Some(sandbox.run(&["rules"])).filter(|o| o.code == Some(4)));
    assert!(
        refused.stderr.contains("config.toml: line 3: unknown key `shar`; a rule has `name`"),
        "{}",
        refused.stderr
    );
    assert_eq!(sandbox.run(&["rules", "check"]).code, Some(4));
    let refused = sandbox.run(&["rules", "check", "."]);
    assert_eq!(refused.code, Some(4));
    assert!(refused.stderr.contains("it is a directory; name the file"), "{}", refused.stderr);
    assert_eq!(client(sandbox, "crunch-*").unwrap()["share"], 7);
    // Without rules divvyd has nothing to do, and leaves; nobody stays suspended.
    std::fs::remove_file(sandbox.path("config.toml")).unwrap();
    eventually("divvyd to leave", || (!sandbox.path("run/api.sock").exists()).then_some(()));
    eventually("nobody to be held", || sandbox.suspended().is_empty().then_some(()));
}

/// The group of a rule is a place of its client, and no other client: who goes to another group keeps id and account.
#[test]
fn a_client_goes_to_the_group_that_its_rule_names() {
    let sandbox = Sandbox::own();
    let rule = |group: &str| {
        let text = format!("[[rule]]\nname = 'crunch-*'\nas = 'crunch'\n{group}\n\n[groups]\nnight = 3\n");
        drop(sandbox.write("config.toml", &text));
    };
    let _crunch = start(&sandbox, "crunch-a", "while :; do :; done");
    rule("group = 'day'");
    assert_eq!(sandbox.run(&["rules", "start"]).code, Some(0));
    let before = eventually("some CPU time", || {
        client(&sandbox, "crunch").filter(|c| c["service_ns"].as_u64() > Some(1_000_000))
    });
    assert_eq!(before["group"], "day");
    for (line, group, share) in
        [("group = 'night'", Some("night"), 3), ("", None, 0), ("group = 'day'", Some("day"), 1)]
    {
        rule(line);
        assert_eq!(sandbox.run(&["rules"]).code, Some(0));
        let after = client(&sandbox, "crunch").expect("it is there still");
        assert_eq!((&after["id"], after["group"].as_str()), (&before["id"], group));
        assert!(after["service_ns"].as_u64() >= before["service_ns"].as_u64(), "{after}");
        let all: Value = serde_json::from_slice(&sandbox.run(&["ls", "--json"]).stdout).unwrap();
        let groups = all["groups"].as_array().cloned().unwrap_or_default();
        let shown: Vec<_> = groups.iter().map(|g| (g["name"].as_str(), g["share"].as_u64())).collect();
        let expected: Vec<_> = group.iter().map(|_| (group, Some(share))).collect();
        assert_eq!(shown, expected);
    }
}

/// CPUs that divvyd does not divide are none that a rule can have, whether one runs or not: it is said as divvyd says it.
#[test]
fn a_rule_of_cpus_that_are_not_there_is_told_of_before_divvyd_reads_it() {
    let sandbox = Sandbox::own();
    sandbox.write("config.toml", "[[rule]]\nname = 'none-*'\n\n[[rule]]\nname = 'far-*'\ncpus = '0,1000'\n");
    let said = |args: &[&str]| {
        let outcome = sandbox.run(args);
        (outcome.code, outcome.stderr, String::from_utf8(outcome.stdout).unwrap())
    };
    let why = "divvyd does not divide CPU 1000; name some of ";
    let check = || {
        let (code, err, out) = said(&["rules", "check"]);
        assert!(code == Some(4) && out.contains("line 1: none-*: name:none-*, share 1\n"), "{out}{err}");
        assert!(err.contains(&format!("config.toml: line 4: far-* would not be followed: {why}")), "{err}");
        assert!(!err.contains("line 1"), "{err}");
        let (code, _, out) = said(&["rules", "check", "--json"]);
        let json: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((code, &json["rules"][0]["why"]), (Some(4), &Value::Null));
        assert!(json["rules"][1]["why"].as_str().unwrap().starts_with(why), "{json}");
    };
    check();
    for args in [&["rules", "start"][..], &["rules"], &["rules", "--json"], &["rules", "start", "--json"]] {
        let (code, _, out) = said(args);
        assert!(
            code == Some(4) && out.contains("divvyd does not divide CPU 1000"),
            "{args:?}: {code:?}, {out}"
        );
    }
    check();
}

/// Of a change of which a part is refused nothing is done, and that is told; a client that was let go is made anew with a rule that is another.
#[test]
fn a_refused_change_changes_nothing() {
    let sandbox = Sandbox::own();
    let rule = |rest: &str, code| {
        let text = format!("[[rule]]\nname = 'crunch-*'\nas = 'crunch'\n{rest}\n");
        drop(sandbox.write("config.toml", &text));
        let outcome = sandbox.run(&["rules"]);
        assert_eq!(outcome.code, Some(code));
        String::from_utf8(outcome.stdout).expect("text")
    };
    let _crunch = start(&sandbox, "crunch-a", "while :; do :; done");
    drop(sandbox.write("config.toml", "[[rule]]\nname = 'crunch-*'\nas = 'crunch'\nshare = 2\n"));
    assert_eq!(sandbox.run(&["rules", "start"]).code, Some(0));
    let before = client(&sandbox, "crunch").expect("it runs");
    let state = |c: &Value| (c["id"].clone(), c["share"].clone(), c["group"].clone());
    // No machine has that CPU.
    let told = rule("share = 5\ngroup = 'night'\ncpus = '1023'", 4);
    assert!(told.contains("not followed as it is now: ") && told.contains("CPU 1023"), "{told}");
    assert_eq!(state(&client(&sandbox, "crunch").expect("it runs")), state(&before));
    let told = rule("share = 5\ngroup = 'night'", 0);
    assert!(told.contains(", followed"), "{told}");
    let after = client(&sandbox, "crunch").expect("it runs");
    assert_eq!(state(&after), (before["id"].clone(), 5.into(), "night".into()));
    assert_eq!(sandbox.run(&["detach", "crunch"]).code, Some(0));
    assert!(rule("share = 5\ngroup = 'night' # as it was", 0).contains("it was let go"));
    assert!(rule("share = 5\ngroup = 'day'", 0).contains(", followed"));
    let again = client(&sandbox, "crunch").expect("it is made anew");
    assert_eq!((&again["group"], &again["share"]), (&"day".into(), &5.into()));
}

/// However shortly before they were written, what is told of the rules is of those.
#[test]
fn what_was_just_written_is_what_is_told() {
    let sandbox = Sandbox::own();
    for (i, command) in
        [&["rules", "start"][..], &["rules"], &["rules", "start"], &["rules"]].iter().enumerate()
    {
        sandbox.write("config.toml", &format!("[[rule]]\nname = 'none-{i}-*'\n"));
        let outcome = sandbox.run(command);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        let said = String::from_utf8(outcome.stdout).unwrap();
        assert!(said.starts_with(&format!("line 1: none-{i}-*: ")), "{i}: {said}");
    }
    sandbox.write("config.toml", "[[rule]]\nnam = 'none'\n");
    let outcome = sandbox.run(&["rules"]);
    assert_eq!(outcome.code, Some(4), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("line 2: unknown key `nam`; a rule has `name`"), "{}", outcome.stderr);
}

/// The rule of docs/recipes.md has a kernel of Jupyter.
#[test]
fn the_recipe_for_notebooks_is_true() {
    let sandbox = Sandbox::own();
    sandbox.write("config.toml", block(include_str!("../../../../docs/recipes.md"), "toml"));
    let mut kernel = sandbox.command("sh");
    kernel.args(["-c", "sleep 600; exit", "python3", "-m", "ipykernel_launcher", "-f", "kernel.json"]);
    let kernel = Script(kernel.spawn().expect("a shell"));
    let outcome = sandbox.run(&["rules", "start"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    eventually("the kernel to be a member", || {
        let notebooks = client(&sandbox, "notebooks")?;
        assert_eq!(notebooks["share"], 2);
        notebooks["members"].as_array()?.iter().any(|member| member["pid"] == kernel.pid()).then_some(())
    });
}

/// The file and the commands of docs/rules.md.
#[test]
fn the_page_is_true() {
    const PAGE: &str = include_str!("../../../../docs/rules.md");
    let sandbox = Sandbox::own();
    sandbox.write("config.toml", block(PAGE, "toml"));
    let commands: Vec<&str> = block(PAGE, "sh").lines().filter_map(|line| line.split('#').next()).collect();
    assert_eq!(commands.len(), 4);
    for command in commands {
        let args: Vec<&str> = command.split_whitespace().skip(1).collect();
        let outcome = sandbox.run(&args);
        assert_eq!(outcome.code, Some(0), "{command}: {}", outcome.stderr);
        let said = String::from_utf8(outcome.stdout).unwrap();
        assert!(said.contains("cc1*") && said.contains("training"), "{command}: {said}");
    }
    assert_eq!(client(&sandbox, "training").unwrap()["share"], 5);
}
