//! `divvy share --tag`: each line that a command prints begins with the command's name.

use std::io::Read as _;
use std::process::Stdio;
use std::time::Duration;

use crate::harness::{SPIN, Sandbox, check_report, eventually};
use crate::terminal::Session;

/// All commands have ended with 0.
const FINE: Option<i32> = Some(0);
/// Longer than divvy waits at its end for a terminal that takes nothing.
const SLOW: Duration = Duration::from_secs(3);

/// The lines that begin with `tag`.
fn lines_of<'a>(text: &'a [u8], tag: &str) -> Vec<&'a str> {
    let text = std::str::from_utf8(text).expect("what was printed");
    text.lines().filter_map(|line| line.strip_prefix(tag)).collect()
}

#[test]
fn lines_begin_with_the_name() {
    let sandbox = Sandbox::own();
    let (build, one) = ("build=2:echo one; echo two >&2; printf three", "t=1:seq 1000");
    let outcome = sandbox.run(&["share", "--tag", "--quiet", build, one]);
    assert_eq!(outcome.code, FINE, "{}", outcome.stderr);
    let numbers: Vec<String> = (1..=1000).map(|n| n.to_string()).collect();
    assert_eq!(lines_of(&outcome.stdout, "build | "), ["one", "three"]);
    assert_eq!(lines_of(&outcome.stdout, "t     | "), numbers);
    assert_eq!(lines_of(&outcome.stdout, "").len(), 1002, "there is nothing else");
    assert_eq!(outcome.stderr, "build | two\n");

    let outcome = sandbox.run(&["share", "--tag", "--json", build, one]);
    check_report(std::str::from_utf8(&outcome.stdout).expect("a report"));
    assert_eq!(
        lines_of(outcome.stderr.as_bytes(), "build | ").len(),
        3,
        "standard output is the report's alone"
    );
    assert_eq!(lines_of(outcome.stderr.as_bytes(), "t     | "), numbers);

    let outcome = sandbox.run(&["share", "--tag", build, one]);
    assert_eq!(outcome.code, FINE);
    let last = outcome.stderr.find("build | two").expect("what was said");
    let summary = outcome.stderr.find("divvy itself:").expect("a summary");
    assert!(last < summary, "the summary ends it: {}", outcome.stderr);
    assert_eq!(sandbox.processes(), []);
}

/// A disk that is full, for the commands' text: they go on, and it is told at the end that not all is there.
#[test]
fn what_cannot_be_written_is_told() {
    let sandbox = Sandbox::own();
    for (command, code) in [("echo lost; touch went-on", Some(4)), ("echo lost; exit 9", Some(1))] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("/dev/full");
        let mut divvy = sandbox.divvy(&["share", "--tag", "--quiet", &format!("a=1:{command}")]);
        let output = divvy.stdout(full).stderr(Stdio::piped()).output().expect("run divvy");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), code, "{said}");
        assert!(said.contains("write to standard output: no space is left"), "{said}");
    }
    assert!(sandbox.path("went-on").exists());
}

#[test]
fn a_reader_that_has_enough_ends_the_command() {
    let sandbox = Sandbox::own();
    let mut shell = sandbox.command("sh");
    shell.args(["-c", "\"$0\" share --tag --quiet y=1:'exec yes' | head -n 1"]).arg(sandbox.program());
    let output = shell.output().expect("a shell");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "y | y\n");
    eventually("yes to end by SIGPIPE, and divvy with it", || sandbox.processes().is_empty().then_some(()));
}

#[test]
fn a_slow_reader_gets_all_of_it() {
    let sandbox = Sandbox::own();
    let mut command = sandbox.divvy(&["share", "--tag", "--quiet", "n=1:seq 20000"]);
    let mut divvy = command.stdout(Stdio::piped()).spawn().expect("start divvy");
    // The pipe is full long before: it takes 64 KiB.
    std::thread::sleep(SLOW);
    let mut text = String::new();
    divvy.stdout.take().expect("a pipe").read_to_string(&mut text).expect("text");
    assert_eq!(divvy.wait().expect("its end").code(), FINE);
    let numbers: Vec<String> = (1..=20_000).map(|n| n.to_string()).collect();
    assert_eq!(lines_of(text.as_bytes(), "n | "), numbers);
}

/// A command that cannot be started leaves nobody waiting for what it never prints.
#[test]
fn a_run_that_cannot_start_ends_at_once() {
    let sandbox = Sandbox::own();
    let dir = sandbox.path("no-such-directory");
    let file = format!("[[task]]\nshare = 1\ncommand = \"true\"\ndir = \"{}\"\n", dir.display());
    let file = sandbox.write("tasks.toml", &file);
    let outcome = sandbox.run(&["share", "--tag", "--file", file.to_str().expect("a path")]);
    assert_eq!(outcome.code, Some(3), "{}", outcome.stderr);
    assert_eq!(sandbox.processes(), []);
}

#[test]
fn tags_are_coloured_on_a_terminal_and_leave_the_table_alone() {
    let sandbox = Sandbox::own();
    let talker = format!("talker=1:echo said; echo complained >&2; {SPIN}");
    let mut command = sandbox.divvy(&["share", "--tag", &talker, &format!("b=1:{SPIN}")]);
    command.env("TERM", "xterm").env_remove("NO_COLOR");
    let mut session = Session::start_command(command, 100);
    let tagged = |lines: &[String], text: &str| lines.iter().filter(|line| line.as_str() == text).count();
    let lines = session.wait_for("both lines above a table", |lines| {
        lines.iter().any(|line| line.starts_with("command"))
            && ["talker | said", "talker | complained"].iter().all(|text| tagged(lines, text) == 1)
    });
    assert!(lines.last().expect("a table").starts_with("b "), "the table is last: {lines:#?}");
    let (code, lines) = session.terminate();
    assert_eq!((code, tagged(&lines, "talker | said")), (Some(143), 1), "{lines:#?}");
    let raw = String::from_utf8_lossy(&session.raw).into_owned();
    assert!(raw.contains("\x1b[36mtalker | \x1b[0msaid\r\n"), "{raw:?}");
}
