//! A market divides live processes of several users. They have no accounts; what the kernel says of them is their number.

use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::accounts::nobody;
use crate::harness::{Process, SPIN, Sandbox, cpu, eventually, one_cpu};
use crate::system::{System, as_user, system_sandbox};

fn alice_uid() -> u32 {
    nobody(4)
}

fn bob_uid() -> u32 {
    nobody(5)
}

/// Of no other test: all that runs as this user becomes a client.
fn carol_uid() -> u32 {
    nobody(6)
}

const POLICY: &str = "[presence]\nidle_after = \"300ms\"\n";
/// How far a part may be from what is due, of all: a cycle's rest of about twenty.
const MAX_PART_ERROR: f64 = 0.05;
/// CPU time that a part is measured over, in ticks of 10 ms: about fifteen cycles.
const MEASURED_TICKS: u64 = 300;

/// A process of a user's. Dropping the sandbox ends it.
fn process_of(sandbox: &Sandbox, uid: u32, script: &str) -> Child {
    let process = sandbox.command_as(uid, "sh").args(["-c", script]).spawn().expect("start a shell");
    // Until then it is root's, who starts it.
    eventually("the process to be its user's", || {
        let comm = std::fs::read_to_string(format!("/proc/{}/comm", process.id())).expect("it runs");
        (comm.trim() == "sh").then_some(())
    });
    process
}

fn ask(system: &System<'_>, uid: u32, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let answer = as_user(uid, || system.ask(method, path, &text));
    (answer.status, serde_json::from_str(&answer.body).unwrap_or(Value::Null))
}

fn must(system: &System<'_>, uid: u32, method: &str, path: &str, body: &Value) -> Value {
    let (status, answer) = ask(system, uid, method, path, body);
    assert!((200..300).contains(&status), "{method} {path} {body}: {status} {answer}\n{}", system.log());
    answer
}

fn refused(system: &System<'_>, uid: u32, (method, path, body): (&str, &str, &Value), code: &str) -> Value {
    let (_, answer) = ask(system, uid, method, path, body);
    assert_eq!(answer["error"]["code"], code, "{method} {path} {body} of {uid}: {answer}");
    answer["error"].clone()
}

/// Makes a process a client of its user.
fn attach(system: &System<'_>, uid: u32, name: &str, share: u64, process: &Child) -> Value {
    let selector = format!("tree:{}", process.id());
    let new = json!({ "name": name, "share": share, "selector": selector });
    must(system, uid, "POST", "/v1/clients", &new)
}

fn clients(system: &System<'_>) -> Vec<Value> {
    must(system, alice_uid(), "GET", "/v1/clients", &Value::Null)["clients"]
        .as_array()
        .expect("clients")
        .clone()
}

/// The market's currencies, by name.
fn currencies(system: &System<'_>) -> Vec<String> {
    let all = must(system, bob_uid(), "GET", "/v1/market/currencies", &Value::Null)["currencies"].clone();
    let names = all.as_array().expect("currencies").iter().map(|c| c["name"].as_str().unwrap().to_owned());
    names.collect()
}

/// What each task got of all that they got, over enough cycles.
fn parts(sandbox: &Sandbox, words: &[&str]) -> Vec<f64> {
    let look = || -> Vec<u64> {
        let used = |word: &&str| sandbox.with(word).iter().map(|p| cpu(std::slice::from_ref(p))).sum();
        words.iter().map(used).collect()
    };
    let before = look();
    let used = eventually("enough CPU time", || {
        let used: Vec<u64> = look().iter().zip(&before).map(|(a, b)| a.saturating_sub(*b)).collect();
        (used.iter().sum::<u64>() >= MEASURED_TICKS).then_some(used)
    });
    used.iter().map(|&u| u as f64 / used.iter().sum::<u64>() as f64).collect()
}

fn check_parts(parts: &[f64], due: &[f64]) {
    for (part, due) in parts.iter().zip(due) {
        assert!((part - due).abs() <= MAX_PART_ERROR, "{parts:?}, and {due} is due");
    }
}

/// Section 5.3, Fig. 6: B3 takes from B's tasks when it wakes, and nothing from A's.
#[test]
fn five_tasks_in_two_currencies_have_the_papers_parts() {
    let Some(sandbox) = system_sandbox("five_tasks_in_two_currencies_have_the_papers_parts") else { return };
    let system = System::start(&sandbox, POLICY, &["--cpus", &one_cpu()]);
    let gate = sandbox.path("gate");
    let made = std::process::Command::new("mkfifo").args(["-m", "666"]).arg(&gate).status();
    assert!(made.expect("mkfifo").success());
    let tasks = [
        ("A1", alice_uid(), 100),
        ("A2", alice_uid(), 200),
        ("B1", bob_uid(), 100),
        ("B2", bob_uid(), 200),
        ("B3", bob_uid(), 300),
    ];
    let mut processes = Vec::new();
    for (name, uid, share) in tasks {
        let first = if name == "B3" { format!("read x < {}", gate.display()) } else { String::new() };
        let process = process_of(&sandbox, uid, &format!(": task-{name}\n{first}\n{SPIN}"));
        let made = attach(&system, uid, name, share, &process);
        assert_eq!(made["name"], format!("{uid}/{name}"));
        processes.push(process);
    }
    let target = |name: &str| {
        let all = clients(&system);
        all.iter().find(|c| c["name"].as_str().unwrap().ends_with(name)).unwrap()["requested_fraction"]
            .as_f64()
            .unwrap()
    };
    eventually("B3 to be idle, and B1 to have its tickets", || {
        ((target("B1") - 1.0 / 6.0).abs() < 1e-3).then_some(())
    });
    let words = ["task-A1", "task-A2", "task-B1", "task-B2", "task-B3"];
    let before = parts(&sandbox, &words);
    check_parts(&before, &[1.0 / 6.0, 1.0 / 3.0, 1.0 / 6.0, 1.0 / 3.0, 0.0]);
    let mut open = std::fs::OpenOptions::new().write(true).open(&gate).expect("it waits at the other end");
    open.write_all(b"go\n").expect("it reads");
    eventually("B3 to compete", || ((target("B1") - 1.0 / 12.0).abs() < 1e-3).then_some(()));
    let after = parts(&sandbox, &words);
    check_parts(&after, &[1.0 / 6.0, 1.0 / 3.0, 1.0 / 12.0, 1.0 / 6.0, 1.0 / 4.0]);
    // The market says what was served.
    let graph = must(&system, bob_uid(), "GET", "/v1/market", &Value::Null);
    let b3 = graph["currencies"]
        .as_array()
        .unwrap()
        .iter()
        .find(|c| c["name"].as_str().is_some_and(|name| name.ends_with("/B3")));
    let b3 = b3.expect("it is a client");
    assert!(b3["scheduled"].is_u64() && b3["standing"][0]["achieved"].as_f64().unwrap() > 0.0, "{b3}");
    end(&mut processes);
    eventually("nobody to be left in the market", || {
        (!currencies(&system).iter().any(|name| name.contains('/'))).then_some(())
    });
    assert!(sandbox.suspended().is_empty());
}

fn end(processes: &mut Vec<Child>) {
    for mut process in processes.drain(..) {
        process.kill().expect("our child");
        process.wait().expect("our child");
    }
}

#[test]
fn users_have_power_over_their_own_processes_only() {
    let Some(sandbox) = system_sandbox("users_have_power_over_their_own_processes_only") else { return };
    let system = System::start(&sandbox, POLICY, &["--cpus", &one_cpu()]);
    let mut processes = vec![
        process_of(&sandbox, alice_uid(), &format!(": hers\n{SPIN}")),
        process_of(&sandbox, bob_uid(), SPIN),
    ];
    let [hers, his] = [processes[0].id(), processes[1].id()];
    let new = |selector: String| json!({ "name": "x", "share": 1, "selector": selector });
    for kind in ["pid", "tree"] {
        let post = ("POST", "/v1/clients", &new(format!("{kind}:{his}")));
        let error = refused(&system, alice_uid(), post, "not-permitted");
        assert!(error["message"].as_str().unwrap().contains("is not yours"), "{error}");
        let mut dry = new(format!("{kind}:{his}"));
        dry["dry_run"] = json!(true);
        refused(&system, alice_uid(), ("POST", "/v1/clients", &dry), "not-permitted");
    }
    refused(
        &system,
        alice_uid(),
        ("POST", "/v1/clients", &new(format!("user:{bob_uid}", bob_uid = bob_uid()))),
        "not-permitted",
    );
    let command = json!({ "share": 1, "command": { "argv": ["true"] } });
    let error = refused(&system, alice_uid(), ("POST", "/v1/clients", &command), "bad-request");
    assert!(error["fix"].as_str().unwrap().contains("divvy run"), "{error}");
    // What was refused has left nothing in the market.
    assert!(!currencies(&system).iter().any(|name| name.contains('/')), "{:?}", currencies(&system));

    let made = attach(&system, alice_uid(), "hers", 5, &processes[0]);
    assert_eq!((&made["share"], &made["user"]), (&json!(5), &json!(alice_uid().to_string())));
    // Anybody looks; only the owner and root touch.
    let path = format!("/v1/clients/{}", made["id"]);
    assert_eq!(
        must(&system, bob_uid(), "GET", &path, &Value::Null)["name"],
        format!("{alice_uid}/hers", alice_uid = alice_uid())
    );
    for (method, body) in
        [("PATCH", json!({ "paused": true })), ("PATCH", json!({ "share": 9 })), ("DELETE", Value::Null)]
    {
        let error = refused(&system, bob_uid(), (method, &path, &body), "not-permitted");
        assert!(error["message"].as_str().unwrap().contains("belongs to"), "{error}");
    }
    assert_eq!(must(&system, alice_uid(), "PATCH", "/v1/clients/hers", &json!({ "share": 7 }))["share"], 7);
    must(&system, 0, "PATCH", &path, &json!({ "paused": true }));
    eventually("her process to stand", || (sandbox.with(": hers")[0].state == 'T').then_some(()));
    must(&system, alice_uid(), "PATCH", "/v1/clients/hers", &json!({ "paused": false }));
    // A name is each user's own, and a broad selector takes from nobody else.
    let mine = json!({ "name": "hers", "share": 1, "selector": "name:sh" });
    let made = must(&system, bob_uid(), "POST", "/v1/clients", &mine);
    eventually("his shell to be a member", || {
        let row = must(&system, bob_uid(), "GET", &format!("/v1/clients/{}", made["id"]), &Value::Null);
        let members = row["members"].as_array().unwrap().clone();
        assert!(members.iter().all(|m| m["pid"] != hers), "{row}");
        members.iter().any(|m| m["pid"] == his).then_some(())
    });
    must(&system, alice_uid(), "DELETE", "/v1/clients/hers", &Value::Null);
    assert!(
        !currencies(&system).contains(&format!("{alice_uid}/hers", alice_uid = alice_uid())),
        "a detached client has left the market"
    );
    eventually("her process to run", || (sandbox.with(": hers")[0].state != 'T').then_some(()));
    end(&mut processes);
}

/// In a tree of alice's runs a program that bob lent her his rights for (set-uid).
#[test]
fn what_runs_with_anothers_rights_is_neither_held_nor_charged() {
    let Some(sandbox) = system_sandbox("what_runs_with_anothers_rights_is_neither_held_nor_charged") else {
        return;
    };
    let system = System::start(&sandbox, POLICY, &["--cpus", &one_cpu()]);
    let lent = sandbox.path("lent");
    std::fs::copy("/usr/bin/sha256sum", &lent).expect("copy a program");
    chown(&lent, Some(bob_uid()), None).expect("root may");
    std::fs::set_permissions(&lent, PermissionsExt::from_mode(0o4755)).expect("ours");
    let script = format!(": tree\n{} /dev/zero &\n{SPIN}", lent.display());
    let mut processes =
        vec![process_of(&sandbox, alice_uid(), &script), process_of(&sandbox, alice_uid(), SPIN)];
    let lent_runs = || -> Option<Process> { sandbox.with("/lent").into_iter().find(|p| p.comm == "lent") };
    eventually("the lent program", lent_runs);
    let tree = attach(&system, alice_uid(), "tree", 1, &processes[0]);
    attach(&system, alice_uid(), "other", 1, &processes[1]);
    let row = || must(&system, alice_uid(), "GET", &format!("/v1/clients/{}", tree["id"]), &Value::Null);
    let members = eventually("both to be members", || {
        let row = row();
        (row["nr_members"] == 2).then(|| row["members"].as_array().unwrap().clone())
    });
    let not_permitted: Vec<&str> =
        members.iter().filter(|m| m["permitted"] == false).map(|m| m["name"].as_str().unwrap()).collect();
    assert_eq!((not_permitted, &row()["not_permitted"]), (vec!["lent"], &json!(1)));
    let before =
        (row()["service_ns"].as_u64().unwrap(), cpu(&[lent_runs().unwrap()]), cpu(&sandbox.with(": tree")));
    let mut held = false;
    eventually("the lent program to have run, and its tree's shell to have been held", || {
        let lent = lent_runs().expect("it runs");
        assert_ne!(lent.state, 'T', "nobody holds what is bob's");
        held |= sandbox.with(": tree").iter().any(|p| p.comm == "sh" && p.state == 'T');
        (held && cpu(&[lent]) - before.1 > 50).then_some(())
    });
    let charged = row()["service_ns"].as_u64().unwrap() - before.0;
    let shell: u64 =
        sandbox.with(": tree").iter().filter(|p| p.comm == "sh").map(|p| cpu(std::slice::from_ref(p))).sum();
    // Ticks, and two of them at the edges; the kernel's own clock lags by as much.
    let own = (shell.saturating_sub(before.2) + 5) * 10_000_000;
    assert!(charged <= own, "{charged} ns are charged, of which the shell used {own} at the most");
    end(&mut processes);
}

#[test]
fn who_lives_through_a_crash_is_divided_again_and_the_others_leave() {
    let Some(sandbox) = system_sandbox("who_lives_through_a_crash_is_divided_again_and_the_others_leave")
    else {
        return;
    };
    let options = ["--cpus", &one_cpu()];
    let mut system = System::start(&sandbox, POLICY, &options);
    let names = [(alice_uid(), "stays", 300), (bob_uid(), "stays", 100), (bob_uid(), "ends", 500)];
    let mut processes: Vec<Child> = Vec::new();
    let (mut ids, mut path) = (Vec::new(), String::new());
    for (uid, name, share) in names {
        processes.push(process_of(&sandbox, uid, &format!(": of-{uid}-{name}\n{SPIN}")));
        let made = attach(&system, uid, name, share, processes.last().unwrap());
        if ids.is_empty() {
            path = format!("/v1/clients/{}", made["id"]);
        }
        ids.push((made["currency"].clone(), made["share"].clone()));
    }
    // What one request asks for is taken over together: limits that are more than she has of the CPU, and a fifth of hers for sure.
    let disk = 100 << 20;
    let change = json!({
        "limit_ppm": 900_000, "bounds": { "limit_disk_bytes": disk, "reserve_cpu_ppm": 200_000 }
    });
    let told = must(&system, alice_uid(), "PATCH", &path, &change);
    let limits = |row: &Value| (row["limit_ppm"].clone(), row["bounds"].clone());
    let expected = (json!(900_000), json!({ "limit_disk_bytes": disk }));
    assert_eq!(limits(&told), expected, "{told}");
    let hard = |system: &System<'_>| -> Vec<Value> {
        let market = must(system, alice_uid(), "GET", "/v1/market", &Value::Null);
        let tickets = market["tickets"].as_array().unwrap().iter();
        tickets.filter(|ticket| ticket["kind"] == "hard").map(|ticket| ticket["amount"].clone()).collect()
    };
    assert_eq!(hard(&system), [200]);
    // Or not at all: more than all of hers cannot be reserved, and the rest was good.
    let change = json!({ "share": 7, "limit_ppm": 500_000, "bounds": { "reserve_cpu_ppm": 2_000_000 } });
    refused(&system, alice_uid(), ("PATCH", &path, &change), "bad-request");
    let change = json!({ "limit_ppm": 500_000, "bounds": { "reserve_memory_ppm": 1_500_000 } });
    refused(&system, alice_uid(), ("PATCH", &path, &change), "bad-request");
    let told = must(&system, alice_uid(), "GET", &path, &Value::Null);
    assert_eq!((limits(&told), &told["share"]), (expected.clone(), &json!(300)), "{told}");
    assert_eq!(hard(&system), [200]);
    system.signal(Signal::KILL);
    system.child.wait().expect("our child");
    let mut gone = processes.pop().unwrap();
    gone.kill().expect("our child");
    gone.wait().expect("our child");
    eventually("the guardian to resume all", || sandbox.suspended().is_empty().then_some(()));
    drop(system);
    let system = System::start(&sandbox, POLICY, &options);
    let again = eventually("both to be divided again", || {
        let all = clients(&system);
        (all.len() == 2).then_some(all)
    });
    assert_eq!((limits(&again[0]), hard(&system)), (expected, vec![json!(200)]), "{}", again[0]);
    for (row, (i, id)) in again.iter().zip(ids.iter().enumerate()) {
        assert_eq!((&row["currency"], &row["share"]), (&id.0, &id.1), "{row}");
        assert_eq!(row["name"], format!("{}/{}", names[i].0, names[i].1));
    }
    eventually("whoever has ended to have left the market", || {
        (!currencies(&system).contains(&format!("{bob_uid}/ends", bob_uid = bob_uid()))).then_some(())
    });
    let words = [
        format!(": of-{alice_uid}-stays", alice_uid = alice_uid()),
        format!(": of-{bob_uid}-stays", bob_uid = bob_uid()),
    ];
    check_parts(&parts(&sandbox, &[&words[0], &words[1]]), &[0.5, 0.5]);
    end(&mut processes);
}

#[test]
fn all_of_a_users_processes_are_a_client_where_the_policy_says_so() {
    let Some(sandbox) = system_sandbox("all_of_a_users_processes_are_a_client_where_the_policy_says_so")
    else {
        return;
    };
    let policy = format!("{POLICY}[users.{carol_uid}]\neverything = true\n", carol_uid = carol_uid());
    let mut processes =
        vec![process_of(&sandbox, carol_uid(), SPIN), process_of(&sandbox, carol_uid(), SPIN)];
    let system = System::start(&sandbox, &policy, &["--cpus", &one_cpu()]);
    let everything = format!("{carol_uid}/everything", carol_uid = carol_uid());
    let members = |name: &str| -> Vec<u64> {
        let all = clients(&system);
        let row = all.iter().find(|c| c["name"] == name);
        let members = row.map_or(Vec::new(), |row| row["members"].as_array().unwrap().clone());
        members.iter().map(|m| m["pid"].as_u64().unwrap()).collect()
    };
    let pids: Vec<u64> = processes.iter().map(|p| u64::from(p.id())).collect();
    eventually("all of hers to be members", || {
        let found = members(&everything);
        pids.iter().all(|pid| found.contains(pid)).then_some(())
    });
    // A narrower client of hers takes one of them.
    attach(&system, carol_uid(), "one", 1, &processes[0]);
    eventually("the narrower client to have it", || {
        (members(&format!("{carol_uid}/one", carol_uid = carol_uid())) == [pids[0]]
            && !members(&everything).contains(&pids[0]))
        .then_some(())
    });
    // A policy that does not want it any more.
    sandbox.write("divvyd.toml", POLICY);
    system.signal(Signal::HUP);
    eventually("the client to have left", || {
        (!clients(&system).iter().any(|c| c["name"] == everything)).then_some(())
    });
    end(&mut processes);
}

/// Section 4.2: a child is funded by the issuer of its parent's first ticket, so it does not add to what that is worth.
#[test]
fn what_runs_inside_a_client_is_funded_as_that_is() {
    let Some(sandbox) = system_sandbox("what_runs_inside_a_client_is_funded_as_that_is") else { return };
    let system = System::start(&sandbox, POLICY, &["--cpus", &one_cpu()]);
    let script = format!(": parent\n(: child; {SPIN}) &\n{SPIN}");
    let mut processes = vec![process_of(&sandbox, alice_uid(), &script)];
    let child = eventually("a child", || {
        let all = sandbox.with(": parent");
        all.into_iter().find(|p| p.pid.as_raw_nonzero().get() != processes[0].id() as i32)
    });
    let parent = attach(&system, alice_uid(), "parent", 100, &processes[0]);
    // The parent is nice: what funds it is a currency made for that.
    let nice = json!({ "client": parent["currency"], "amount": 50 });
    must(&system, alice_uid(), "POST", "/v1/market/nice", &nice);
    let child_pid = child.pid.as_raw_nonzero().get();
    let new = json!({ "name": "child", "share": 100, "selector": format!("tree:{child_pid}") });
    let made = must(&system, alice_uid(), "POST", "/v1/clients", &new);
    let graph = must(&system, alice_uid(), "GET", "/v1/market", &Value::Null);
    let issuer = |name: &str| {
        let tickets = graph["tickets"].as_array().unwrap().iter();
        let mut of = tickets.filter(|t| {
            t["resource"] == "cpu" && t["holder"] == format!("{alice_uid}/{name}", alice_uid = alice_uid())
        });
        of.next().expect("it is funded")["issuer"].clone()
    };
    assert_eq!(issuer("child"), issuer("parent"), "{graph}");
    assert_ne!(made["currency"], parent["currency"]);
    kill_process(Pid::from_raw(child_pid).unwrap(), Signal::KILL).expect("it runs");
    end(&mut processes);
}
