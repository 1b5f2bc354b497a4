//! What `divvy share` divides is seen beside what divvyd does: in `divvy ls` and `divvy top`.

use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::daemon::start_divvyd;
use crate::harness::{SPIN, Sandbox, as_both_users, eventually, one_cpu};

as_both_users! {
    a_run_is_seen_beside_divvyd
}

pub fn json(sandbox: &Sandbox, args: &[&str]) -> Value {
    let outcome = sandbox.run(args);
    assert_eq!(outcome.code, Some(0), "{args:?}: {}", outcome.stderr);
    serde_json::from_slice(&outcome.stdout).expect("JSON")
}

pub fn sockets(sandbox: &Sandbox) -> usize {
    let entries = std::fs::read_dir(sandbox.path("run")).map(|all| all.flatten().collect()).unwrap_or(vec![]);
    entries.iter().filter(|e| e.file_name().to_string_lossy().starts_with("share-")).count()
}

/// Whoever sees a task in the list and would change it is told why that cannot be.
fn check_undivided(sandbox: &Sandbox) {
    for args in [&["set", "small", "3"][..], &["pause", "small"], &["resume", "small"], &["detach", "small"]]
    {
        let outcome = sandbox.run(args);
        assert_eq!(outcome.code, Some(6), "{args:?}: {}", outcome.stderr);
        let told = outcome.stderr.contains("that divides by itself") && outcome.stderr.contains("--group");
        assert!(told, "{args:?}: {}", outcome.stderr);
    }
}

fn a_run_is_seen_beside_divvyd(sandbox: &Sandbox) {
    assert_eq!(sandbox.run(&["top", "--json"]).code, Some(7), "there is nothing to see");
    let cpu = one_cpu();
    let (big, small) = (format!("big=3:{SPIN}"), format!("small=1:{SPIN}"));
    let run = sandbox.start(&["share", "--quiet", "--cpus", &cpu, &big, &small]);
    // Without any divvyd.
    let seen = eventually("both tasks to have run", || {
        let all = json(sandbox, &["ls", "--json"]);
        let tasks = all["runs"][0]["clients"].as_array()?.clone();
        let ran = |t: &Value| t["service_ns"].as_u64() > Some(100_000_000);
        (tasks.len() == 2 && tasks.iter().all(ran)).then_some(all["runs"][0].clone())
    });
    assert_eq!(seen["policy"], "exact");
    let of = |i: usize, field: &str| seen["clients"][i][field].clone();
    assert_eq!((of(0, "name"), of(0, "share"), of(1, "name")), ("big".into(), 3.into(), "small".into()));
    assert_eq!((of(0, "effective_fraction"), of(1, "effective_fraction")), (0.75.into(), 0.25.into()));
    let table = String::from_utf8(sandbox.run(&["ls"]).stdout).unwrap();
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 4, "{table}");
    assert!(
        lines[0].starts_with(&format!("divvy share (pid {}, exact, CPUs {cpu})", seen["pid"])),
        "{table}"
    );
    assert!(lines[2].starts_with("big") && lines[3].starts_with("small"), "{table}");
    check_undivided(sandbox);
    // With one, and a group in it.
    start_divvyd(sandbox, &["--linger", "60s"]);
    check_undivided(sandbox);
    let client = sandbox.start(&["run", "--group", "idle=2", "--name", "sleeper", "--", "sleep", "600"]);
    let top = eventually("the client", || {
        let top = json(sandbox, &["top", "--json"]);
        (top["clients"].as_array()?.len() == 5).then_some(top)
    });
    let rows: Vec<(String, String, u64)> = top["clients"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let text = |field: &str| row[field].as_str().unwrap_or("client").to_owned();
            (text("name"), text("kind"), row["share"].as_u64().unwrap())
        })
        .collect();
    let row = |name: &str, kind: &str, share| (name.to_owned(), kind.to_owned(), share);
    assert_eq!(
        rows,
        [
            row("idle/", "group", 2),
            row("sleeper", "client", 1),
            row(&format!("share {}", seen["pid"]), "run", 1),
            row("big", "task", 3),
            row("small", "task", 1),
        ]
    );
    drop(client);
    // Its end takes it away; and where its scheduler is killed, whoever looks does.
    assert_eq!(sockets(sandbox), 1);
    run.signal(Signal::TERM);
    let outcome = run.end();
    assert_eq!((outcome.code, sockets(sandbox)), (Some(143), 0), "{}", outcome.stderr);
    let run = sandbox.start(&["share", "--quiet", &format!("1:{SPIN}")]);
    eventually("the run", || (sockets(sandbox) == 1).then_some(()));
    kill_process(run.scheduler(), Signal::KILL).unwrap();
    eventually("nobody to be seen", || {
        let all = json(sandbox, &["ls", "--json"]);
        (all.get("runs").is_none() && sockets(sandbox) == 0).then_some(())
    });
    sandbox.kill_clients();
}
