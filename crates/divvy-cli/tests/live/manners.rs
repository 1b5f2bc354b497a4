//! What people expect of a command-line program, because every other one does it.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use crate::daemon::client;
use crate::harness::{Sandbox, eventually};
use crate::terminal::Session;

/// As env, nice, nohup and timeout have them: 127 for a command that is not there, 126 for one that cannot be executed.
#[test]
fn a_command_that_cannot_run_has_the_codes_that_shells_know() {
    let sandbox = Sandbox::own();
    let script = |name: &str, text: &str, mode: u32| {
        let path = sandbox.write(name, text);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("a mode");
        path.to_str().expect("a path").to_owned()
    };
    let plain = script("plain", "text", 0o644);
    let orphan = script("orphan", "#!/no/such/interpreter\n", 0o755);
    for (command, code, said) in [
        ("no-such-program", 127, "command not found"),
        ("/no/such/program", 127, "command not found"),
        (orphan.as_str(), 127, "No such file"),
        (plain.as_str(), 126, "cannot be executed"),
        ("/", 126, "cannot be executed"),
    ] {
        let timeout = sandbox.command("timeout").args(["9", command]).output().expect("timeout");
        assert_eq!(timeout.status.code(), Some(code), "timeout {command}");
        let outcome = sandbox.run(&["run", "--", command]);
        assert_eq!(outcome.code, Some(code), "{command}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(said), "{command}: {}", outcome.stderr);
    }
}

#[test]
fn a_share_is_set_in_either_notation() {
    let sandbox = Sandbox::own();
    let running = sandbox.start(&["run", "--name", "nap", "--", "sleep", "60"]);
    eventually("the client", || client(&sandbox, "nap"));
    for (args, share) in
        [(&["set", "nap", "3"][..], 3), (&["set", "nap", "-s", "4"], 4), (&["set", "-s", "5", "nap"], 5)]
    {
        let outcome = sandbox.run(args);
        assert_eq!(outcome.code, Some(0), "{args:?}: {}", outcome.stderr);
        assert_eq!(client(&sandbox, "nap").expect("it sleeps")["share"], share, "{args:?}");
    }
    for args in [&["set", "nap"][..], &["set", "nap", "3", "-s", "4"], &["set", "nap", "much"]] {
        assert_eq!(sandbox.run(args).code, Some(2), "{args:?}");
    }
    running.signal(rustix::process::Signal::TERM);
    assert_eq!(running.end().code, None, "it ends as its command does");
}

#[test]
fn a_misspelt_name_is_guessed() {
    let sandbox = Sandbox::own();
    let running = sandbox.start(&["run", "--name", "compile", "--group", "build", "--", "sleep", "60"]);
    eventually("the client", || client(&sandbox, "compile"));
    for (args, code, said) in [
        (&["pause", "comple"][..], 6, "; did you mean 'compile'?"),
        (&["set", "buid/", "3"], 6, "; did you mean 'build/'?"),
        (&["detach", "nothing-like-it"], 6, "no client is called 'nothing-like-it'; see `divvy ls`\n"),
        (&["rnu", "true"], 2, "; did you mean 'run'?"),
        (&["share", "--qiet", "1:true"], 2, "; did you mean '--quiet'?"),
        (&["share", "--backend", "signal", "1:true"], 2, "; did you mean 'signals'?"),
        (&["attach", "tre:1"], 2, "; did you mean 'tree'?"),
        // Other tools' words, and what is typed first of all.
        (&["stop", "compile"], 2, "; did you mean 'divvy pause NAME'?"),
        (&["status"], 2, "; did you mean 'divvy ls'?"),
        (&["share", "make", "-j4"], 2, "; a command of several words is quoted: 2:'make -j4'"),
        (&["share", "build:2:true"], 2, "; write build=2:COMMAND: an equals sign after the name"),
    ] {
        let outcome = sandbox.run(args);
        assert_eq!(outcome.code, Some(code), "{args:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(said), "{args:?}: {}", outcome.stderr);
        assert_eq!(outcome.stderr.lines().count(), 1, "{args:?}: {}", outcome.stderr);
    }
    running.signal(rustix::process::Signal::TERM);
    assert_eq!(running.end().code, None, "it ends as its command does");
}

#[test]
fn who_says_nothing_is_helped() {
    let sandbox = Sandbox::own();
    for (args, words) in [
        (&[][..], ["Usage: divvy <COMMAND>", "share ", "completions"]),
        (&["currency"], ["Usage: divvy currency <COMMAND>", "tree", "create"]),
    ] {
        let outcome = sandbox.run(args);
        assert_eq!(outcome.code, Some(2), "{args:?}: {}", outcome.stderr);
        for word in words {
            assert!(outcome.stderr.contains(word), "{args:?}: no '{word}': {}", outcome.stderr);
        }
    }
}

/// On a terminal of 60 columns, or 40, `ls` and `top` say who the clients are.
#[test]
fn a_narrow_terminal_shows_names() {
    let sandbox = Sandbox::own();
    let name = "night-build";
    let running = sandbox.start(&["run", "--name", name, "--limit", "50%", "--", "sleep", "60"]);
    eventually("the client", || client(&sandbox, name));
    for columns in [60, 40] {
        let mut session = Session::start_command(sandbox.divvy(&["ls"]), columns);
        let (code, lines) = session.end();
        assert_eq!(code, Some(0), "{lines:#?}");
        // What a terminal breaks takes two lines of it.
        assert_eq!(lines.len(), 3, "{columns}: {lines:#?}");
        assert!(lines[1].starts_with(&format!("{name} ")), "{columns}: {lines:#?}");
        let mut command = sandbox.divvy(&["top"]);
        command.env("LANG", "C.UTF-8").env("TERM", "xterm-256color").env_remove("LC_ALL");
        let mut session = Session::start_command(command, columns);
        let row = format!(">{name} ");
        session.wait_for("its row", |lines| lines.iter().any(|line| line.starts_with(&row)));
        session.keys(b"q");
        assert_eq!(session.end().0, Some(0));
    }
    running.signal(rustix::process::Signal::TERM);
    assert_eq!(running.end().code, None, "it ends as its command does");
}

/// Where there is no standard output (`>&-`) nothing that was asked for can be read. /dev/null, by whatever flags, is one.
#[test]
fn a_closed_output_is_said() {
    let sandbox = Sandbox::own();
    let run = |args: &str, redirect: &str| {
        let mut command = sandbox.command("sh");
        command.args(["-c", &format!("exec {} {args} {redirect}", env!("CARGO_BIN_EXE_divvy"))]);
        let outcome = command.stdin(Stdio::null()).output().expect("a shell");
        (outcome.status.code(), String::from_utf8(outcome.stderr).expect("text"))
    };
    for args in
        ["policies", "ls", "ls --json", "doctor", "rules", "completions bash", "--version", "ls --help"]
    {
        // What is open to be read takes nothing either.
        assert_eq!(run(args, "1</etc/passwd"), run(args, ">&-"), "{args}");
        let (code, said) = run(args, ">&-");
        assert_eq!(code, Some(4), "{args}: {said}");
        let told = "divvy: write to standard output: Bad file descriptor";
        assert!(said.starts_with(told) && said.lines().count() == 1, "{args}: {said}");
        for null in [">/dev/null", "1<>/dev/null"] {
            let (code, said) = run(args, null);
            // What a machine lacks is the doctor's to say.
            assert!(code == Some(0) || (args, code) == ("doctor", Some(1)), "{args} {null}: {said}");
            assert_eq!(said, "", "{args} {null}");
        }
    }
    // All would be lost, at the end or as it comes: nothing is begun.
    for args in ["share --json 1:'touch begun'", "share --tag 1:'touch begun'"] {
        let (code, said) = run(args, ">&-");
        assert!(code == Some(4) && said.contains("standard output"), "{args}: {said}");
        assert!(!sandbox.path("begun").exists(), "{args}");
    }
    // Commands find closed what we found closed, as they do without us.
    let plain =
        sandbox.command("sh").args(["-c", "sh -c 'echo lost; exit 7' >&-"]).status().expect("a shell");
    assert_eq!(plain.code(), Some(7));
    for args in ["share --quiet 1:'echo lost || exit 7'", "run -- sh -c 'echo lost || exit 7'"] {
        for (redirect, exit) in [(">&-", 7), (">/dev/null", 0)] {
            let (code, said) = run(args, redirect);
            let expected = if args.starts_with("share") && exit != 0 { 1 } else { exit };
            assert_eq!(code, Some(expected), "{args} {redirect}: {said}");
        }
    }
}

/// `| head` has had enough: that is no failure, and nothing is said of it. What cannot be written otherwise is one.
/// But for a run's report, which would be lost (`ends::a_reader_that_has_gone_ends_nothing`).
#[test]
fn a_closed_pipe_ends_quietly() {
    let sandbox = Sandbox::own();
    for args in [
        &["policies"][..],
        &["ls"],
        &["doctor"],
        &["sim", "--shares", "2,1"],
        &["completions", "bash"],
        &["--help"],
        &["--version"],
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let closed = sandbox.divvy(args).stdout(writer).stderr(Stdio::piped()).output().expect("run divvy");
        let full = std::fs::File::options().write(true).open("/dev/full").expect("/dev/full");
        let full = sandbox.divvy(args).stdout(full).stderr(Stdio::piped()).output().expect("run divvy");
        let said = String::from_utf8_lossy(&closed.stderr).into_owned();
        assert_eq!(said, "", "{args:?}");
        assert!(matches!(closed.status.code(), Some(0 | 1)), "{args:?}: {}", closed.status);
        assert_eq!(full.status.code(), Some(4), "{args:?}: {}", String::from_utf8_lossy(&full.stderr));
    }
}

#[test]
fn tasks_are_called_what_they_are_called() {
    let sandbox = Sandbox::own();
    let tasks = ["build=2:sleep 60", "1:sleep 60"];
    let outcome = sandbox.run(&["share", "--for", "50ms", "--json", tasks[0], tasks[1]]);
    let report: serde_json::Value = serde_json::from_slice(&outcome.stdout).expect("JSON");
    let names: Vec<&str> =
        report["clients"].as_array().expect("clients").iter().filter_map(|c| c["name"].as_str()).collect();
    assert_eq!(names, ["build", "sleep"]);
}

/// The signal was divvy's own: who reads the summary is told why it came, and who parses the report that it came.
#[test]
fn who_was_ended_by_divvy_is_said_to_have_been() {
    let sandbox = Sandbox::own();
    let deaf = "deaf=1:trap '' TERM; while :; do sleep 60; done";
    let own = "own=1:kill -TERM $$; sleep 60";
    let args =
        ["share", "--for", "500ms", "--grace", "100ms", "--report", "report.json", "1:sleep 60", deaf, own];
    let outcome = sandbox.run(&args);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    for (name, state) in [("sleep", "ended after --for"), ("deaf", "killed at the end"), ("own", "signal 15")]
    {
        let row = outcome.stderr.lines().rfind(|line| line.starts_with(name)).expect("its row");
        assert!(row.contains(state), "{name}: {}", outcome.stderr);
    }
    let report = std::fs::read_to_string(sandbox.path("report.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["clients"][0]["exit"]["signal"], 15);
}
