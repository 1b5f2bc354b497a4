//! Processes that run already, divided by the user's own scheduler.

use std::io::{BufRead as _, Read as _};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::daemon::{client, clients, start_divvyd};
use crate::harness::{MAX_FRACTION_ERROR, SPIN, Sandbox, eventually, kill, one_cpu};

/// CPU time of all clients after which fractions are looked at: some cycles, and no more.
const WINDOW: u64 = 1_200_000_000;

/// Nobody has to be there yet, and nobody is left to wonder.
#[test]
fn a_selector_that_nobody_matches_yet_is_told() {
    let sandbox = Sandbox::own();
    for what in ["1:@name:no-such-*", "1:@command:no-such-*"] {
        let outcome = sandbox.run(&["share", "--for", "200ms", what]);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        let told = format!("{}: nobody joins it just now: no process matches (ps ", &what[3..]);
        assert!(outcome.stderr.contains(&told), "{}", outcome.stderr);
    }
}

/// A client of which nobody is there, or nobody may be signalled, is not held: what it does is what its processes do.
#[test]
fn who_cannot_be_held_is_not_said_to_be() {
    let Some(sandbox) = Sandbox::nobody("who_cannot_be_held_is_not_said_to_be") else { return };
    let root = Sandbox::own();
    start_divvyd(&sandbox, &["--cpus", &one_cpu()]);
    let name = format!("s{}", std::process::id());
    let start = |sandbox: &Sandbox| {
        let program = sandbox.path(&name);
        std::fs::copy("/bin/sh", &program).expect("a copy of the shell");
        let child = sandbox.command(&program).args(["-c", SPIN]).spawn().expect("it starts");
        sandbox.wait_for(1, &name);
        child
    };
    let (mut ours, mut theirs) = (start(&sandbox), start(&root));
    check(&sandbox, &["attach", "name:no-such-*", "--name", "none"]);
    check(&sandbox, &["attach", &format!("name:{name}"), "--name", "theirs"]);
    let other = sandbox.start(&["run", "-s", "8", "--name", "other", "--", "sh", "-c", SPIN]);
    eventually("the other client", || client(&sandbox, "other"));
    ours.kill().and_then(|()| ours.wait()).expect("ours");
    let state = |name: &str| client(&sandbox, name).expect(name)["state"].clone();
    eventually("theirs alone", || {
        let theirs = client(&sandbox, "theirs").expect("attached");
        (theirs["nr_members"] == 1 && theirs["not_permitted"] == 1).then_some(())
    });
    for _ in 0..20 {
        assert_eq!((state("theirs"), state("none")), ("running".into(), "asleep".into()));
        std::thread::sleep(std::time::Duration::from_millis(30));
    }
    theirs.kill().and_then(|()| theirs.wait()).expect("theirs");
    drop(other);
}

/// Who asks for what another client has is told whose it is, and what can be done does.
#[test]
fn processes_of_another_client_are_told_with_its_name() {
    let sandbox = &Sandbox::own();
    let mut child = sandbox.command("sleep").arg("600").spawn().expect("a sleeper");
    let (tree, pid) = (format!("tree:{}", child.id()), format!("pid:{}", child.id()));
    check(sandbox, &["attach", &pid, "--name", "mine"]);
    let refused = sandbox.run(&["attach", &tree]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    let told = format!(
        "divvy: {tree}: its processes belong to client 'mine' already, which is {pid}; change its share: divvy set mine \
         -s N; or let it go first: divvy detach mine\n"
    );
    assert_eq!(refused.stderr, told);
    check(sandbox, &["set", "mine", "-s", "3"]);
    check(sandbox, &["detach", "mine"]);
    check(sandbox, &["attach", &tree]);
    child.kill().and_then(|()| child.wait()).expect("ours");
    // What is to be copied into a shell is quoted.
    check(sandbox, &["attach", "name:no-such-*", "--name", "*"]);
    let refused = sandbox.run(&["attach", "name:no-such-*"]);
    let told = "divvy: client '*' is name:no-such-* already; change its share: divvy set '*' -s N\n";
    assert_eq!(refused.stderr, told);
    // What is never touched is said to be so, by whichever selector: a script has its file's name.
    let sway = sandbox.write("sway", "#!/bin/sh\necho started; read -r end\n");
    std::fs::set_permissions(&sway, PermissionsExt::from_mode(0o755)).expect("ours");
    let mut command = sandbox.command(&sway);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a script");
    child.stdout.as_mut().expect("piped").read_exact(&mut [0; 8]).expect("started");
    let refused = sandbox.run(&["attach", &format!("tree:{}", child.id())]);
    assert!(refused.stderr.contains("it is never touched: it serves a display"), "{}", refused.stderr);
    drop(child.stdin.take());
    child.wait().expect("ours");
}

/// As at a run, whoever attaches what nobody matches is told so, and how to look: a word that is misspelt is seen.
#[test]
fn nobody_who_is_attached_is_told() {
    let sandbox = &Sandbox::own();
    for what in ["name:no-such-*", "below:no-such:name:*"] {
        let outcome = sandbox.run(&["attach", what]);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        let told = format!(
            "divvy: {what}: nobody joins it just now: no process matches (ps -e -o pid,comm,args), or those that do are in another client \
             or never touched (divvy explain PID); those that come later join it\n"
        );
        assert_eq!(outcome.stderr, told);
    }
}

/// Spinners on one CPU, of which divvy knows nothing yet.
fn spinners(sandbox: &Sandbox, n: usize) -> Vec<Child> {
    let cpu = one_cpu();
    let spin = || sandbox.command("taskset").args(["-c", &cpu, "sh", "-c", SPIN]).spawn().expect("a spinner");
    (0..n).map(|_| spin()).collect()
}

fn check(sandbox: &Sandbox, args: &[&str]) -> String {
    let outcome = sandbox.run(args);
    assert_eq!(outcome.code, Some(0), "{args:?}: {}", outcome.stderr);
    String::from_utf8(outcome.stdout).expect("text")
}

/// Waits until the clients have received enough since the last change, and checks what each got of it.
fn check_fractions(sandbox: &Sandbox, due: &[(&str, f64)]) {
    let before: u64 = clients(sandbox).iter().map(|c| c["service_ns"].as_u64().unwrap()).sum();
    let all = eventually("some cycles", || {
        let all = clients(sandbox);
        let now: u64 = all.iter().map(|c| c["service_ns"].as_u64().unwrap()).sum();
        (now >= before + WINDOW).then_some(all)
    });
    for (name, due) in due {
        let c = all.iter().find(|c| c["name"] == *name).expect(name);
        let number = |field: &str| c[field].as_f64().expect(field);
        assert!((number("effective_fraction") - due).abs() < 1e-9, "{c:#}");
        assert!(
            (number("achieved_fraction") - due).abs() < MAX_FRACTION_ERROR,
            "{name}: {due} is due: {c:#}"
        );
    }
}

#[test]
fn running_spinners_are_divided_and_shares_change_while_they_run() {
    let sandbox = &Sandbox::unprivileged();
    start_divvyd(sandbox, &["--cpus", &one_cpu()]);
    let mut running = spinners(sandbox, 3);
    for (i, child) in running.iter().enumerate() {
        let (pid, share) = (child.id().to_string(), (i + 1).to_string());
        let said =
            check(sandbox, &["attach", "-s", &share, &format!("tree:{pid}"), "--name", ["a", "b", "c"][i]]);
        assert!(said.ends_with(&format!("tree:{pid} attached, 1 process, share {share}\n")), "{said}");
    }
    check_fractions(sandbox, &[("a", 1.0 / 6.0), ("b", 2.0 / 6.0), ("c", 3.0 / 6.0)]);
    let said = check(sandbox, &["set", "a", "-s", "5"]);
    assert_eq!(said, "a: share 5\n");
    check_fractions(sandbox, &[("a", 0.5), ("b", 0.2), ("c", 0.3)]);
    // Paused: it stands, and the others have its share.
    check(sandbox, &["pause", "a"]);
    let state = || client(sandbox, "a").expect("a")["state"].clone();
    assert_eq!(state(), "paused");
    check_fractions(sandbox, &[("a", 0.0), ("b", 0.4), ("c", 0.6)]);
    let a = Pid::from_child(&running[0]);
    let stands = || sandbox.suspended().iter().any(|p| p.pid == a);
    assert!(stands());
    // Somebody else's resuming does not end a pause.
    kill_process(a, Signal::CONT).unwrap();
    eventually("it to stand again", || stands().then_some(()));
    check(sandbox, &["resume", "a"]);
    check_fractions(sandbox, &[("a", 0.5), ("b", 0.2), ("c", 0.3)]);
    // Let go, it runs on whatever the others do; the number is as good as the name.
    let id = client(sandbox, "b").expect("b")["id"].to_string();
    check(sandbox, &["detach", &id]);
    check_fractions(sandbox, &[("a", 0.625), ("c", 0.375)]);
    let b = Pid::from_child(&running[1]);
    assert!(sandbox.processes().iter().any(|p| p.pid == b && p.state == 'R'));
    // One that ends leaves by itself, and its share goes to the others.
    running[2].kill().unwrap();
    running[2].wait().unwrap();
    eventually("c to leave", || client(sandbox, "c").is_none().then_some(()));
    check_fractions(sandbox, &[("a", 1.0)]);
    sandbox.kill_clients();
    running.iter_mut().for_each(|child| {
        let _ = child.wait();
    });
}

#[test]
fn a_dry_run_says_what_would_be_and_changes_nothing() {
    let sandbox = Sandbox::own();
    let mut tree = sandbox.command("sh").args(["-c", "sleep 60 & sleep 60; wait"]).spawn().unwrap();
    eventually("both to run", || (sandbox.with("sleep 60").len() >= 3).then_some(()));
    let pid = tree.id().to_string();
    let said = check(&sandbox, &["attach", "--tree", &pid, "--dry-run", "--json"]);
    let plan: Value = serde_json::from_str(&said).unwrap();
    let members = plan["members"].as_array().unwrap();
    assert_eq!(members.len(), 3, "{plan:#}");
    assert!(members.iter().all(|m| m["scheduled"] == true), "{plan:#}");
    assert_eq!((&plan["name"], &plan["share"]), (&"sh".into(), &1.into()));
    assert_eq!(clients(&sandbox), [] as [Value; 0]);
    // In words, and with what is left alone: this test's own process called divvy.
    let own = std::process::id().to_string();
    let said = check(&sandbox, &["attach", "--tree", &own, "--dry-run"]);
    assert!(said.contains("nothing was changed"), "{said}");
    let line = said.lines().find(|l| l.trim_start().starts_with(&format!("{own} "))).expect("our own line");
    assert!(line.contains("left alone: it is the shell that divvy was called from"), "{said}");
    // A second client of the same tree is refused, by its name.
    check(&sandbox, &["attach", "--tree", &pid, "--as", "first"]);
    let outcome = sandbox.run(&["attach", "--tree", &pid]);
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.stderr.contains("client 'first' is tree:"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("divvy set first -s N"), "{}", outcome.stderr);
    let dry = sandbox.run(&["attach", "--tree", &pid, "--dry-run"]);
    assert_eq!((dry.code, dry.stderr), (outcome.code, outcome.stderr), "what is refused would be");
    let outcome = sandbox.run(&["attach", &pid, "--as", "first"]);
    assert_eq!(outcome.code, Some(2), "the name is taken: {}", outcome.stderr);
    sandbox.kill_clients();
    let _ = tree.wait();
}

/// A process that was forked a moment ago, and runs no program of its own: that its birth is heard of after it was attached makes it
/// nobody else. It was let go without a word then.
#[test]
fn who_was_forked_a_moment_ago_stays_a_client() {
    let sandbox = Sandbox::own();
    start_divvyd(&sandbox, &["--linger", "forever", "--cpus", &one_cpu()]);
    // From its first client on it is told of births, and does not hear of them while it has none.
    check(&sandbox, &["run", "--", "true"]);
    for round in 0..3 {
        let script = format!("({SPIN}) & echo $!; wait");
        let mut shell =
            sandbox.command("sh").args(["-c", &script]).stdout(Stdio::piped()).spawn().expect("a shell");
        let mut line = String::new();
        std::io::BufReader::new(shell.stdout.take().expect("piped")).read_line(&mut line).expect("a number");
        let forked = Pid::from_raw(line.trim().parse().expect("a number")).expect("above 0");
        let name = format!("forked-{round}");
        check(&sandbox, &["attach", &format!("pid:{}", forked.as_raw_nonzero()), "--name", &name]);
        let used = || client(&sandbox, &name).map(|client| client["service_ns"].as_u64().expect("a time"));
        eventually("some of its time", || Some(used().expect("it stays") > 200_000_000).filter(|&is| is));
        kill_process(forked, Signal::KILL).expect("ours");
        shell.wait().expect("ours");
    }
}

#[test]
fn one_process_of_several_is_told_of_with_its_children() {
    let sandbox = &Sandbox::own();
    let mut shell = sandbox
        .command("sh")
        .args(["-c", "sleep 600; true"])
        .spawn()
        .expect("a shell that waits for another");
    sandbox.wait_for(2, "600"); // It is in the shell's words, too.
    let outcome = sandbox.run(&["attach", "--limit", "20%", &shell.id().to_string()]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let told = format!("divvy attach tree:{}", shell.id());
    assert!(
        outcome.stderr.contains("its child, process ") && outcome.stderr.contains(&told),
        "{}",
        outcome.stderr
    );
    // All that is ours, and no name has to be known.
    let told = check(sandbox, &["detach", "--all"]);
    assert!(told.starts_with("sh: detached after "), "{told}");
    let outcome = sandbox.run(&["attach", &format!("tree:{}", shell.id())]);
    assert!(outcome.code == Some(0) && outcome.stderr.is_empty(), "{}", outcome.stderr);
    check(sandbox, &["pause", "--all"]);
    check(sandbox, &["resume", "--all"]);
    check(sandbox, &["detach", "--all"]);
    assert_eq!(check(sandbox, &["detach", "--all"]), "no clients of yours: nothing to do\n");
    sandbox.kill_clients();
    shell.wait().expect("ours");
}

/// Two would suspend and resume it; what other programs do is nobody's business.
#[test]
fn what_a_run_divides_is_not_attached_beside_it() {
    let sandbox = &Sandbox::own();
    let sleep = |n: &str| sandbox.command("sleep").arg(n).spawn().expect("sleep");
    let (mut attached, mut other) = (sleep("601"), sleep("602"));
    let mut run = sandbox.divvy(&["share", "--quiet", "1:exec sleep 600", &format!("1:@{}", attached.id())]);
    let mut run = run.spawn().expect("start divvy");
    let task = sandbox.wait_for(1, "sleep 600")[0].pid.as_raw_nonzero().to_string();
    eventually("its socket", || sandbox.run(&["ls"]).stdout.windows(5).any(|w| w == b"sleep").then_some(()));
    let (of_tree, attached_id) = (format!("tree:{task}"), attached.id().to_string());
    for args in [&[&*task][..], &[&of_tree], &[&task, "--dry-run"], &[&attached_id]] {
        let outcome = sandbox.run(&[&["attach"], args].concat());
        assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("divides it already; end that first"), "{}", outcome.stderr);
    }
    check(sandbox, &["attach", &other.id().to_string()]);
    check(sandbox, &["detach", "--all"]);
    sandbox.kill_clients();
    let _ = (attached.wait(), other.wait(), run.wait());
}

/// Were it held first, it would not come to the others.
#[test]
fn who_pauses_all_is_paused_last() {
    let sandbox = Sandbox::own();
    let go = sandbox.path("go");
    let divvy = sandbox.divvy(&[]).get_program().to_string_lossy().into_owned();
    // divvyd has heard of the process by the time that it becomes the command.
    let pause = format!("sleep .5; exec {divvy} pause --all");
    let script = format!("until [ -e {} ]; do sleep .05; done; sh -c '{pause}'; sleep 600", go.display());
    let first = sandbox.start(&["run", "--name", "first", "--", "sh", "-c", &script]);
    let has = |name: &str| client(&sandbox, name);
    eventually("the first", || has("first"));
    let second = sandbox.start(&["run", "--name", "second", "--", "sleep", "600"]);
    eventually("the second", || has("second"));
    sandbox.write("go", "");
    let paused = |name: &str| has(name).filter(|client| client["state"] == "paused");
    eventually("the first to be paused", || paused("first"));
    assert!(paused("second").is_some(), "the other comes before");
    sandbox.kill_clients();
    for running in [first, second] {
        running.end();
    }
}

/// Of whom nobody may be suspended no client is made: it would stand in the table, be divided by nobody, and keep divvyd there.
#[test]
fn what_is_nobodys_to_suspend_is_refused() {
    let Some(sandbox) = Sandbox::nobody("what_is_nobodys_to_suspend_is_refused") else { return };
    let theirs = Sandbox::own();
    let name = format!("n{}", std::process::id());
    std::fs::copy("/bin/sleep", theirs.path(&name)).expect("a copy");
    let mut root = theirs.command(theirs.path(&name)).arg("600").spawn().expect("a sleeper of root's");
    theirs.wait_for(1, &name);
    let refused = sandbox.run(&["attach", &format!("tree:{}", root.id())]);
    let why = format!("tree:{}: its process is another user's, which may not be suspended", root.id());
    assert!(
        refused.code == Some(5) && refused.stderr.contains(&why),
        "{:?}: {}",
        refused.code,
        refused.stderr
    );
    assert!(check(&sandbox, &["ls"]).starts_with("no clients"));
    // By name one's own may come.
    let told = check(&sandbox, &["attach", &format!("name:{name}"), "--name", "some"]);
    assert!(told.contains("1 of them may not be signalled and run undivided"), "{told}");
    check(&sandbox, &["detach", "some"]);
    root.kill().and_then(|()| root.wait()).expect("ours");
}

/// Where divvyd and its guardian were both killed, the next look at clients resumes whom they held.
#[test]
fn whoever_was_left_suspended_runs_again_by_the_next_look() {
    for look in [&["ls"][..], &["resume", "left"], &["doctor"]] {
        let sandbox = Sandbox::own();
        start_divvyd(&sandbox, &["--linger", "forever", "--cpus", &one_cpu()]);
        let mut child = sandbox.command("sh").args(["-c", SPIN]).spawn().expect("a spinner");
        check(&sandbox, &["attach", &format!("tree:{}", child.id()), "--name", "left"]);
        check(&sandbox, &["pause", "left"]);
        eventually("it to be held", || (sandbox.suspended().len() == 1).then_some(()));
        let guardian = sandbox.guardian().expect("a guardian");
        let divvyd = sandbox.schedulers()[0].pid;
        // Stopped first, lest it puts another in the guardian's place.
        kill_process(divvyd, Signal::STOP).expect("ours");
        kill([guardian, divvyd]);
        assert_eq!(sandbox.suspended().len(), 1);
        let outcome = sandbox.run(look);
        let told = "divvy: resumed 1 process that an earlier divvy had left suspended";
        assert!(outcome.stderr.contains(told), "{look:?}: {}", outcome.stderr);
        assert_eq!(sandbox.suspended(), []);
        child.kill().and_then(|()| child.wait()).expect("ours");
    }
}
