//! divvyd's life: who starts it, when it leaves, and what a command that runs under it notices.

use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;

use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::harness::{SPIN, Sandbox, as_both_users, cpu, eventually, one_cpu, skip};

as_both_users! {
    a_command_runs_as_if_nobody_were_there
    two_calls_at_once_start_one_scheduler
    the_scheduler_leaves_after_its_last_client
}

/// Starts a scheduler with these options.
pub fn start_divvyd(sandbox: &Sandbox, options: &[&str]) {
    let divvyd = sandbox.program().with_file_name("divvyd");
    let output = sandbox.command(divvyd).args(["--user", "--background"]).args(options).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The clients that `divvy ls` lists.
pub fn clients(sandbox: &Sandbox) -> Vec<Value> {
    let outcome = sandbox.run(&["ls", "--json"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let list: Value = serde_json::from_slice(&outcome.stdout).expect("JSON");
    list["clients"].as_array().expect("clients").clone()
}

/// The client of that name.
pub fn client(sandbox: &Sandbox, name: &str) -> Option<Value> {
    clients(sandbox).into_iter().find(|c| c["name"] == name)
}

fn a_command_runs_as_if_nobody_were_there(sandbox: &Sandbox) {
    // Streams, directory, environment, arguments and exit code.
    let script = r#"read line; echo "$line|$GREETING|$PWD|$1|$2"; echo aside >&2; exit 7"#;
    let mut command =
        sandbox.divvy(&["run", "-s", "3", "--name", "job", "--", "sh", "-c", script, "sh", "a  b", "--json"]);
    command.env("GREETING", "good day").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("start divvy");
    child.stdin.take().unwrap().write_all(b"said in\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", String::from_utf8_lossy(&output.stderr));
    let dir = std::fs::canonicalize(sandbox.path("")).unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said, format!("said in|good day|{}|a  b|--json\n", dir.display()));
    assert_eq!(output.stderr, b"aside\n");
    // Whoever waits for us sees the signal that ended the command.
    let mut running = sandbox.start(&["run", "--", "sh", "-c", "kill -TERM $$"]);
    let status = eventually("the end", || running.child.try_wait().unwrap());
    assert_eq!(status.signal(), Some(Signal::TERM.as_raw()));
    // What is sent to us reaches the command, and its answer comes back.
    let mut running = sandbox.start(&[
        "run",
        "--name",
        "trap",
        "--",
        "sh",
        "-c",
        "trap 'exit 9' USR1; while :; do sleep 0.01; done",
    ]);
    eventually("the client", || client(sandbox, "trap").filter(|c| c["nr_members"].as_u64() >= Some(1)));
    // The shell sets its trap a moment after it became a client.
    eventually("the loop", || (!sandbox.with("sleep").is_empty()).then_some(()));
    // Its process is explained with the client that it is in, and is not said to be somebody else's to resume.
    let explained = || {
        let pid = client(sandbox, "trap").unwrap()["members"][0]["pid"].to_string();
        String::from_utf8(sandbox.run(&["explain", &pid]).stdout).unwrap()
    };
    assert!(explained().contains("It is in the client trap, which is "), "{}", explained());
    assert_eq!(sandbox.run(&["pause", "trap"]).code, Some(0));
    let said = explained();
    assert!(said.contains("It is in the client trap, which is paused now."), "{said}");
    assert!(!said.contains("Somebody else has suspended it"), "{said}");
    assert_eq!(sandbox.run(&["resume", "trap"]).code, Some(0));
    running.signal(Signal::USR1);
    assert_eq!(running.wait(), Some(9));
}

/// Once it was due at all times to tell the kernel of whoever had ended, also where no kernel divides.
#[test]
fn it_sleeps_when_a_client_has_ended() {
    for backend in ["signals", "auto"] {
        let sandbox = Sandbox::own();
        start_divvyd(&sandbox, &["--backend", backend]);
        let _sleeps = sandbox.start(&["run", "--name", "sleeps", "--", "sleep", "1000"]);
        eventually("the client", || client(&sandbox, "sleeps"));
        assert_eq!(sandbox.run(&["run", "--name", "ends", "--", "true"]).code, Some(0));
        eventually("its end", || client(&sandbox, "ends").is_none().then_some(()));
        let from = cpu(&sandbox.schedulers());
        std::thread::sleep(std::time::Duration::from_secs(1));
        let used = cpu(&sandbox.schedulers()) - from;
        assert!(used < 20, "{backend}: {used} % of a CPU, where nobody does anything");
    }
}

#[test]
fn a_command_that_cannot_start_says_why_and_is_no_client() {
    let sandbox = Sandbox::own();
    for (args, code, said) in [
        (&["run", "--", "no-such-program"][..], 127, "command not found: 'no-such-program'"),
        (&["run", "--", ""], 2, "the command's first word is empty; give the name of a program"),
        (&["run", "-s", "0", "--", "true"], 2, "a share is a whole number from 1 to 1000000"),
        (&["run", "-s", "18446744073709551616", "true"], 2, "a share is a whole number from 1 to 1000000"),
        (&["set", "nobody", "much"], 2, "a share is a whole number from 1 to 1000000"),
        (&["set", "nobody", "+1"], 2, "and no change of one: write what it is to be"),
        (&["run", "--name", "a b", "--", "true"], 2, "it may have no blanks"),
        (&["run"], 2, "required arguments were not provided"),
        (&["attach", "-s", "1"], 2, "required arguments were not provided"),
        (&["attach", "--tree", "4194305"], 6, "there is no process 4194305"),
        (&["attach", "session:4194305"], 6, "there is no process in session:4194305"),
        (&["attach", "group:4194305"], 6, "there is no process in group:4194305"),
        (&["attach", "1"], 5, "it is never touched: it is the first process"),
        (&["attach", "--user", "no-such-user"], 6, "there is no user 'no-such-user'"),
        (&["attach", "user:no-such-user"], 6, "there is no user 'no-such-user'; give a name or a number"),
        (&["attach", "--dry-run", "user:no-such-user"], 6, "there is no user 'no-such-user'"),
        (&["attach", "--cgroup", "a/b"], 2, "is no absolute path"),
        (&["set", "nobody", "-s", "2"], 6, "no client is called 'nobody'"),
        (&["detach", "nobody"], 6, "no client is called 'nobody'"),
        (&["pause", "nobody"], 6, "no client is called 'nobody'"),
        (&["pause", "all"], 6, "all of yours are --all"),
        (&["resume", "nobody"], 6, "no client is called 'nobody'"),
        (&["explain", "4194305"], 6, ""),
        (&["explain", "0"], 2, "'0' is no process number"),
        (&["explain", "build"], 2, "'build' is no process number; give a positive number"),
        (&["explain", "-1"], 2, "'-1' is no process number; give a positive number"),
    ] {
        let outcome = sandbox.run(args);
        assert_eq!(outcome.code, Some(code), "{args:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(said), "{args:?}: {}", outcome.stderr);
        assert!(outcome.stderr.lines().count() <= 1, "one line: {}", outcome.stderr);
    }
    let outcome = sandbox.run(&["run", "--", sandbox.program().to_str().expect("text"), "ls"]);
    assert!(
        outcome.code == Some(2) && outcome.stderr.contains("divvy is nobody's client"),
        "{}",
        outcome.stderr
    );
    assert_eq!(clients(&sandbox), [] as [Value; 0]);
}

#[test]
fn a_scheduler_that_cannot_be_had_is_told_with_its_own_code() {
    let sandbox = Sandbox::own();
    let run = |dir: &str| {
        let mut command = sandbox.divvy(&["run", "--", "true"]);
        let output = command.env("DIVVY_RUNTIME_DIR", dir).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let open = sandbox.path("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let (code, said) = run(open.to_str().unwrap());
    assert_eq!(code, Some(5), "{said}");
    assert!(said.contains("others can look into it (mode 755); chmod 700 it"), "{said}");
    let link = sandbox.path("link");
    std::os::unix::fs::symlink(sandbox.path("elsewhere"), &link).unwrap();
    let (code, said) = run(link.to_str().unwrap());
    assert_eq!(code, Some(5), "{said}");
    assert!(said.contains("it is a symbolic link"), "{said}");
    let (code, said) = run("run/here");
    assert_eq!(code, Some(5), "{said}");
    assert!(said.contains("give the whole path"), "{said}");
    let (code, said) = run(&format!("{}/{}", sandbox.path("").display(), "x".repeat(120)));
    assert_eq!(code, Some(5), "{said}");
    assert!(said.contains("name a shorter directory"), "{said}");
    // Without divvyd beside it or on the path.
    let alone = sandbox.path("alone");
    std::fs::create_dir(&alone).unwrap();
    std::fs::copy(sandbox.program(), alone.join("divvy")).unwrap();
    let mut command = sandbox.command(alone.join("divvy"));
    let output = command.args(["run", "--", "/bin/true"]).env("PATH", "/bin").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("install divvyd beside divvy"), "{said}");
}

/// divvyd tells what its host found on its way, once, in its log.
#[test]
fn warnings_are_in_the_log() {
    let sandbox = Sandbox::own();
    start_divvyd(&sandbox, &["--linger", "forever"]);
    let files = || std::fs::read_dir(sandbox.path("run")).unwrap().flatten().map(|e| e.path());
    let table =
        eventually("its table", || files().find(|path| path.extension().is_some_and(|e| e == "table")));
    std::fs::remove_file(&table).unwrap();
    let log = || std::fs::read_to_string(sandbox.path("run/divvyd.log")).unwrap_or_default();
    let said = eventually("the warning", || Some(log()).filter(|log| log.contains("was removed")));
    let line =
        format!("divvyd: {} was removed: if divvy and its guardian are killed, no rescue", table.display());
    assert_eq!(said.lines().filter(|l| l.starts_with(&line)).count(), 1, "{said}");
    kill_process(sandbox.schedulers()[0].pid, Signal::TERM).unwrap();
    eventually("its end", || sandbox.schedulers().is_empty().then_some(()));
}

/// As for divvy share: a published gate does not cap shares, so what a client is due is what was asked for.
#[test]
fn dues_are_those_of_the_policy() {
    let sandbox = Sandbox::own();
    if std::thread::available_parallelism().unwrap().get() < 2 {
        return skip("dues_are_those_of_the_policy", "on one CPU no share is capped");
    }
    for (policy, due) in [("alps:quantum=20ms", 0.9), ("exact", 0.5)] {
        start_divvyd(&sandbox, &["--policy", policy]);
        let names = [("a", "1"), ("b", "9")];
        let mut running = names.map(|(name, share)| {
            let started = sandbox.start(&["run", "-s", share, "--name", name, "--", "sh", "-c", SPIN]);
            eventually("the client", || client(&sandbox, name));
            started
        });
        let big = client(&sandbox, "b").unwrap();
        assert_eq!(big["effective_fraction"].as_f64(), Some(due), "{policy}: {big}");
        kill_process(sandbox.schedulers()[0].pid, Signal::TERM).unwrap();
        sandbox.kill_clients();
        for r in &mut running {
            eventually("its end", || r.child.try_wait().unwrap());
        }
        eventually("the scheduler to end", || sandbox.schedulers().is_empty().then_some(()));
    }
}

/// Calls that all find no scheduler, at once.
const CALLS: usize = 8;

fn two_calls_at_once_start_one_scheduler(sandbox: &Sandbox) {
    let running: Vec<_> = (0..CALLS).map(|_| sandbox.start(&["run", "--", "sleep", "60"])).collect();
    let names = eventually("all to be clients", || {
        let names: Vec<String> =
            clients(sandbox).iter().map(|c| c["name"].as_str().unwrap().to_owned()).collect();
        (names.len() == CALLS).then_some(names)
    });
    let mut expected: Vec<String> = (2..=CALLS).map(|n| format!("sleep#{n}")).collect();
    expected.insert(0, "sleep".into());
    assert_eq!(names, expected, "in the order of their ids");
    let schedulers =
        eventually("one scheduler", || Some(sandbox.schedulers()).filter(|found| found.len() == 1));
    // Another one in the foreground is refused; in the background, one serves already.
    let divvyd = sandbox.program().with_file_name("divvyd");
    let output = sandbox.command(&divvyd).arg("--user").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains(&format!("another divvyd of this user runs already (pid {})", schedulers[0].pid)),
        "{said}"
    );
    let output = sandbox.command(&divvyd).args(["--user", "--background"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    // Options that would change nothing are no success.
    let begin = |options: &[&str]| {
        let output =
            sandbox.command(&divvyd).args(["--user", "--background"]).args(options).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let cpu = one_cpu();
    let (code, said) = begin(&["--cpus", &cpu]);
    let told =
        format!("runs already, with no options: --cpus {cpu} would change nothing; end it first (kill ");
    assert!(code == Some(1) && said.contains(&told), "{said}");
    assert_eq!(begin(&["--policy", "exact", "--backend", "signals"]), (Some(0), String::new()), "as it is");
    assert_eq!(begin(&["--backend", "auto"]).0, Some(1));
    for process in sandbox.with("sleep") {
        let _ = kill_process(process.pid, Signal::KILL);
    }
    for mut running in running {
        eventually("the end", || running.child.try_wait().unwrap());
    }
    // Without clients it is waited for, and the one with these options comes after it.
    assert_eq!(begin(&["--linger", "60s", "--cpus", &cpu]), (Some(0), String::new()));
    assert_ne!(sandbox.schedulers()[0].pid, schedulers[0].pid);
    assert_eq!(begin(&["--cpus", &cpu, "--linger", "1m"]), (Some(0), String::new()), "it does what is asked");
    assert_eq!(begin(&[]), (Some(0), String::new()));
    let (code, said) = begin(&["--protect", "cat"]);
    assert!(
        code == Some(1) && said.contains(&format!("with --cpus {cpu} --linger 1m: --protect cat would")),
        "{said}"
    );
    let _ = kill_process(sandbox.schedulers()[0].pid, Signal::TERM);
    eventually("its end", || sandbox.schedulers().is_empty().then_some(()));
}

fn the_scheduler_leaves_after_its_last_client(sandbox: &Sandbox) {
    let outcome = sandbox.run(&["run", "--", "true"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    eventually("nobody to be left", || sandbox.processes().is_empty().then_some(()));
    assert!(!sandbox.path("run/api.sock").exists());
    let left: Vec<_> =
        std::fs::read_dir(sandbox.path("run")).unwrap().flatten().map(|e| e.file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().ends_with(".table")), "{left:?}");
    // And another one comes when it is called.
    let outcome = sandbox.run(&["run", "--", "true"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    // With clients it stays, longer than it would without.
    let mut running = sandbox.start(&["run", "--name", "stay", "--", "sleep", "60"]);
    eventually("the client", || client(sandbox, "stay"));
    let scheduler = sandbox.schedulers()[0].pid;
    std::thread::sleep(std::time::Duration::from_secs(4));
    assert_eq!(sandbox.schedulers()[0].pid, scheduler);
    // Asked to end, it lets its clients run on.
    kill_process(scheduler, Signal::TERM).unwrap();
    eventually("the scheduler to end", || sandbox.schedulers().is_empty().then_some(()));
    assert_eq!(sandbox.with("sleep").len(), 1);
    assert!(running.child.try_wait().unwrap().is_none());
    assert_eq!(sandbox.suspended(), []);
}

/// Trees of processes, `EACH` of them and their parent, which in some trees makes others all the time.
const TREES: usize = 10;
const EACH: usize = 49;
/// One tree in so many goes on: the others are paused.
const RUNS: usize = 5;

/// 500 members, most of them held and some of them forking, and then no scheduler: nobody stays suspended.
#[test]
fn killed_with_hundreds_held_it_leaves_nobody_suspended() {
    let sandbox = Sandbox::own();
    start_divvyd(&sandbox, &["--cpus", &one_cpu()]);
    let gate = sandbox.path("gate");
    let made = sandbox.command("mkfifo").arg(&gate).status().unwrap();
    assert!(made.success());
    // They sleep until the gate opens, lest hundreds of them compute before they are clients.
    let wait = format!("read line < {}", gate.display());
    let member = format!("{wait}; {SPIN} # member");
    let script = format!(
        "i=0; while [ $i -lt {EACH} ]; do sh -c '{member}' & i=$((i+1)); done; {wait}; while :; do /bin/true; done # forks"
    );
    let tree = || sandbox.command("nice").args(["-n", "19", "sh", "-c", &script]).spawn().unwrap();
    let trees: Vec<_> = (0..TREES).map(|_| tree()).collect();
    // Their parents' command lines have the word inside.
    let members = || {
        let mut found = sandbox.with("# member");
        found.retain(|p| p.command.trim_end().ends_with("# member"));
        found
    };
    eventually("all members", || (members().len() == TREES * EACH).then_some(()));
    for (i, tree) in trees.iter().enumerate() {
        let (pid, name) = (tree.id().to_string(), format!("tree{i}"));
        let outcome = sandbox.run(&["attach", "--tree", &pid, "--as", &name]);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        if i % RUNS != 0 {
            let outcome = sandbox.run(&["pause", &name]);
            assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        }
    }
    std::fs::write(&gate, "").expect("open the gate");
    // Whoever computes is found out when it does, and held from then on: all of the trees that are paused.
    let paused = (TREES - TREES / RUNS) * EACH;
    let held = eventually("most of the paused to be held", || {
        let held = sandbox.suspended().len();
        (held >= paused * 9 / 10).then_some(held)
    });
    let scheduler = sandbox.schedulers()[0].pid;
    kill_process(scheduler, Signal::KILL).unwrap();
    let start = std::time::Instant::now();
    eventually("nobody to be suspended, and the guardian to be done", || {
        (sandbox.suspended().is_empty() && sandbox.guardian().is_none()).then_some(())
    });
    println!("{held} of {} were held; all ran again within {:?}", TREES * (EACH + 1), start.elapsed());
    let before = cpu(&members());
    eventually("them to run on", || (cpu(&members()) > before + 20).then_some(()));
    sandbox.kill_clients();
    for mut tree in trees {
        let _ = tree.wait();
    }
}

/// A shell with job control does not take a command that is held for one that was stopped by Ctrl-Z.
#[test]
fn a_shell_does_not_see_its_command_stopped() {
    let sandbox = Sandbox::own();
    if !std::path::Path::new("/bin/bash").exists() {
        return skip(
            "a_shell_does_not_see_its_command_stopped",
            "no bash: others have no job control without a terminal",
        );
    }
    start_divvyd(&sandbox, &["--cpus", &one_cpu()]); // So that one of two is held.
    let divvy = sandbox.program().display().to_string();
    // `set -m`: as an interactive shell, it would be told of a child that stops, and go on with `echo`.
    let script = format!(
        "set -m; '{divvy}' run --name a -- sh -c 'i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; echo done'; echo after"
    );
    let mut other = sandbox.start(&["run", "--name", "b", "-s", "3", "--", "sh", "-c", SPIN]);
    eventually("the other", || client(&sandbox, "b"));
    let output = sandbox.command("bash").args(["-c", &script]).output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "done\nafter\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let pid = sandbox.with(SPIN).iter().find(|p| p.comm == "sh").expect("the other").pid;
    kill_process(pid, Signal::KILL).unwrap();
    let status = eventually("its end", || other.child.try_wait().unwrap());
    assert_eq!(status.signal(), Some(Signal::KILL.as_raw()));
}
