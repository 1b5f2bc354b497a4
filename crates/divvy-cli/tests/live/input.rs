//! What cannot be used is refused in one line, with the right code, before anything is started.

use std::os::unix::fs::PermissionsExt as _;

use crate::harness::{Sandbox, as_both_users};

as_both_users! { bad_input_starts_nothing }

fn bad_input_starts_nothing(sandbox: &Sandbox) {
    sandbox.write("no.toml", "[[task]]\nshare = 1\ncomand = 'true'\n");
    sandbox.write("nodir.toml", "[[task]]\nshare = 1\ncommand = 'true'\ndir = '/no/such/dir'\n");
    sandbox.write("zero.toml", "[[task]]\nshare = 0\ncommand = 'true'\n");
    sandbox.write("noexec", "#!/bin/sh\n");
    sandbox.write("both.toml", "[[task]]\nshare = 1\ncommand = 'true'\nattach = 'pid:1'\n");
    // (arguments, code, words that name the cause, words that name the fix)
    let rows: &[(&[&str], i32, &str, &str)] = &[
        (&["sleep 1"], 2, "no share", "SHARE:COMMAND"),
        (&["0:true"], 2, "share 0", "from 1 to 1000000"),
        (&["-3:true"], 2, "-3", ""),
        (&["--", "-3:true"], 2, "share -3", "from 1 to 1000000"),
        (&["1000001:true"], 2, "share 1000001", "from 1 to 1000000"),
        (&["99999999999999999999999999999999999999999:true"], 2, "is no share", "from 1 to 1000000"),
        (&["1.5:true"], 2, "'1.5' is no share", "whole number"),
        (&["1:"], 2, "the command is empty", "SHARE:COMMAND"),
        (&["1:   "], 2, "the command is empty", "SHARE:COMMAND"),
        (&["1:no-such-program --at-all"], 3, "command not found: 'no-such-program'", "full path"),
        (&["1:./noexec"], 3, "'./noexec' cannot be executed", "check"),
        (&["1:@"], 2, "what kind of selector", "tree:123 or user:alice"),
        (&["1:@slice:a"], 2, "'slice' is no kind of selector", "tree:123 or user:alice"),
        (&["1:@usr:root"], 2, "'usr' is no kind of selector", "did you mean 'user'?"),
        (&["1:@pid:x"], 2, "'x' is no process number", "positive number"),
        (&["1:@user:no-such-user"], 3, "no user 'no-such-user'", "id(1)"),
        (&["1:@cgroup:a"], 2, "'a' is no absolute path", "/proc/PID/cgroup"),
        (&["1:@pid:1"], 3, "never touched: it is the first process", "another process"),
        (&["1:@pid:4194305"], 3, "there is no process 4194305", "ps"),
        (&["1:@tree:4194305"], 3, "there is no process 4194305", "ps"),
        (&["--file", "both.toml"], 2, "both command and attach", "one of them"),
        (&["--file", "nowhere.toml"], 4, "nowhere.toml: there is no such file", "docs/tasks.md"),
        (&["--file", "."], 4, "it is a directory", "name a file"),
        (&["--file", "no.toml"], 4, "line 3", "comand"),
        (&["--file", "zero.toml"], 2, "share 0", "from 1 to 1000000"),
        (&["--file", "nodir.toml"], 3, "/no/such/dir", "no such directory"),
        (&["--policy", "fair"], 2, "unknown policy 'fair'", "exact, alps, alps-basic, rate"),
        (&["--policy", "exakt"], 2, "unknown policy 'exakt'", "did you mean 'exact'?"),
        (&["--policy", "pbs:alpha=20"], 2, "alpha: 20 is out of range", "1/16 to 16"),
        (&["--policy", "las:qauntum=1ms"], 2, "qauntum: unknown parameter", "expected one of quantum, since"),
        (&["--policy", "stride:quantum=1us"], 2, "quantum of 1 us", "1 ms to 10 s"),
        (&["--policy", "gps"], 2, "gps is a model", "exact, alps, alps-basic, rate"),
        (&["--policy", "rr:4ms"], 2, "\"4ms\" has no value", "key=value"),
        (&["--quantum", "999us"], 2, "quantum", "1 ms to 10 s"),
        (&["--quantum", "11s"], 2, "quantum", "1 ms to 10 s"),
        (&["--quantum", "0s"], 2, "quantum", "1 ms to 10 s"),
        (&["--quantum", "10"], 2, "'10'", "--quantum"),
        (&["--for", "soon"], 2, "'soon'", "--for"),
        (&["--slice", "1us"], 2, "slice", "1 ms"),
        (&["--presence", "0"], 2, "presence: 0", "1 to 64"),
        (
            &["--policy", "rate", "--quantum", "30ms", "--period", "1s"],
            2,
            "period",
            "whole number of intervals",
        ),
        (
            &["--policy", "rate", "--slice", "2ms"],
            2,
            "--slice is an option of --policy exact",
            "leave it out",
        ),
        (&["--policy", "alps", "--presence", "2"], 2, "--presence is an option of --policy exact", "leave"),
        (&["--policy", "las:quantum=5ms", "--slice", "2ms"], 2, "exact, not of las", "leave it out"),
        (&["--period", "1s"], 2, "--period is an option of --policy rate, not of exact", "leave it out"),
        (&["--policy", "vtrr", "--unscaled"], 2, "exact, alps, alps-basic, not of vtrr", "leave it out"),
        (&["--policy", "rate", "--unscaled"], 2, "exact, alps, alps-basic, not of rate", "leave it out"),
        (&["--cpus", "4000"], 2, "CPU 4000", ""),
        (&["--cpus", "99999"], 2, "CPU 99999", "0,2-3"),
        (&["--cpus", "x"], 2, "'x' is no CPU", "0,2-3"),
        (&["--cpus", "3-2"], 2, "empty", "0,2-3"),
        (&["--report", "/no/such/x"], 4, "there is no directory /no/such;", "(mkdir -p /no/such)"),
        (&["--trace", "."], 4, ".", "create"),
        (&["--quantum", "10s", "--unscaled", "1000000:true"], 2, "a cycle of", "smaller shares"),
        (&["--no-such-option"], 2, "--no-such-option", "--help"),
    ];
    for (args, code, cause, fix) in rows {
        let mut all = vec!["share", "1:touch started"];
        all.extend(*args);
        check_refused(sandbox, &all, *code, cause, fix);
    }
    check_refused(sandbox, &["share"], 2, "SHARE:COMMAND", "--help");
    check_refused(sandbox, &["shore", "1:touch started"], 2, "shore", "did you mean 'share'?");
    check_refused(sandbox, &["replay"], 2, "FILE", "--help");
}

fn check_refused(sandbox: &Sandbox, args: &[&str], code: i32, cause: &str, fix: &str) {
    let outcome = sandbox.run(args);
    assert_eq!(outcome.code, Some(code), "{args:?}: {}", outcome.stderr);
    assert_eq!(outcome.stderr.lines().count(), 1, "one line: {}", outcome.stderr);
    assert!(outcome.stderr.starts_with("divvy: "), "{}", outcome.stderr);
    assert!(outcome.stderr.contains(cause), "{args:?}: no '{cause}' in {}", outcome.stderr);
    assert!(outcome.stderr.contains(fix), "{args:?}: no '{fix}' in {}", outcome.stderr);
    assert!(outcome.stdout.is_empty());
    assert!(!sandbox.path("started").exists(), "{args:?}: something was started");
    assert_eq!(sandbox.processes(), [], "{args:?}");
}

#[test]
fn an_unsafe_runtime_directory_is_refused() {
    let sandbox = Sandbox::own();
    let run = sandbox.path("run");
    std::fs::create_dir(&run).unwrap();
    std::fs::set_permissions(&run, std::fs::Permissions::from_mode(0o777)).unwrap();
    check_refused(&sandbox, &["share", "1:touch started"], 5, "others can write to it", "DIVVY_RUNTIME_DIR");
    std::fs::remove_dir(&run).unwrap();
    std::fs::write(&run, "").unwrap();
    check_refused(&sandbox, &["share", "1:touch started"], 5, "it is not a directory", "DIVVY_RUNTIME_DIR");
}

/// The second command cannot be executed although it is there: what was started before it is ended.
#[test]
fn a_command_that_cannot_be_executed_undoes_the_start() {
    let sandbox = Sandbox::own();
    let broken = sandbox.write("broken", "#!/no/such/interpreter\n");
    std::fs::set_permissions(&broken, std::fs::Permissions::from_mode(0o755)).unwrap();
    sandbox.write(
        "tasks.toml",
        "[[task]]\nshare = 1\ncommand = 'sleep 1000'\n[[task]]\nshare = 1\ncommand = ['./broken']\n",
    );
    let outcome = sandbox.run(&["share", "--file", "tasks.toml"]);
    assert_eq!(outcome.code, Some(3), "{}", outcome.stderr);
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("./broken"), "{}", outcome.stderr);
    crate::harness::eventually("everything to be undone", || sandbox.processes().is_empty().then_some(()));
}

/// A bad argument leaves the files of an earlier run alone.
#[test]
fn a_refused_run_leaves_the_old_report() {
    let sandbox = Sandbox::own();
    sandbox.write("report.json", "old");
    for bad in [["--policy", "fair"], ["--cpus", "4000"]] {
        let mut args = vec!["share", "--report", "report.json", "1:true"];
        args.extend(bad);
        assert_eq!(sandbox.run(&args).code, Some(2));
        assert_eq!(std::fs::read_to_string(sandbox.path("report.json")).unwrap(), "old");
    }
}

/// A file that may not grow is a file that cannot be written; SIGXFSZ ends nobody.
#[test]
fn a_limit_of_file_sizes_is_an_error_of_the_file() {
    let sandbox = Sandbox::own();
    let mut command = sandbox.command("/bin/sh");
    command
        .args(["-c", "ulimit -f 0; exec \"$0\" sim --shares 2,1 --svg picture.svg"])
        .arg(sandbox.program());
    let output = command.output().expect("run divvy");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("picture.svg"), "{said}");
}

/// divvyd says so too, and how it can be had.
#[test]
fn a_divvyd_that_may_write_no_file_says_why_it_ends() {
    let sandbox = Sandbox::own();
    let mut command = sandbox.command("/bin/sh");
    command
        .args(["-c", "ulimit -f 0; exec \"$0\" --user --linger forever"])
        .arg(crate::daemon_program::built_beside(sandbox.program()));
    let output = command.output().expect("run divvyd");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(said.contains("raise the limit of a file's size (ulimit -f)"), "{said}");
}

/// Numbers that are none, and nothing to be done at all, are told in words of who writes them.
#[test]
fn what_is_no_number_is_told_with_one_that_is() {
    let sandbox = Sandbox::own();
    for (args, said) in [
        (&["set", "a"][..], "nothing to be changed: write divvy set a 3, or give --limit, --reserve"),
        (
            &["market", "audit", "--since", "tomorrow"],
            "write a time, as in --since 1h, or the number of an entry",
        ),
        (&["web", "--port", "80x"], "a port is a number from 0 to 65535, as in --port 8080"),
        (&["web", "--port", "99999"], "a port is a number from 0 to 65535"),
        (&["share", "--for", "abc", "1:true"], "that is no time; write a number and its unit"),
    ] {
        let outcome = sandbox.run(args);
        assert_eq!(outcome.code, Some(2), "{args:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(said), "{args:?}: {}", outcome.stderr);
    }
}

/// A negative number is a wrong value, not an unknown argument.
#[test]
fn a_negative_value_is_refused_by_the_name_of_its_option() {
    let sandbox = Sandbox::own();
    for (args, said) in [
        (["set", "a", "--limit", "-5"], "invalid value '-5' for '--limit <LIMIT>'"),
        (["set", "a", "-s", "-1"], "invalid value '-1' for '--share <N>': a share is a whole number from 1"),
        (["set", "a", "--reserve", "cpu:-5%"], "write 20%"),
        (
            ["set", "a", "--limit", "-5%"],
            "invalid value '-5%' for '--limit <LIMIT>': '-5%' is no limit; write 50%",
        ),
        (
            ["share", "1:true", "--for", "-1s"],
            "'-1s' for '--for <TIME>': a time is not negative; write a number",
        ),
    ] {
        let outcome = sandbox.run(&args);
        assert_eq!(outcome.code, Some(2), "{args:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(said), "{args:?}: {}", outcome.stderr);
    }
}
