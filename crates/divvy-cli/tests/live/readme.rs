//! Every command that the README and the pages for beginners show is run.

use std::process::Stdio;

use crate::harness::{PATIENCE, Running, Sandbox, eventually, on_our_cpu};

const README: &str = include_str!("../../../../README.md");
const TUTORIAL: &str = include_str!("../../../../docs/tutorial.md");
const SHARE: &str = include_str!("../../../../docs/share.md");
/// How a reader who has not installed divvy calls it; here it is the one under test.
const CALLS: [&str; 1] = ["cargo run --release --bin divvy --"];
const TEST: &str = "scripts/test.sh";

/// The commands in blocks marked `sh`, lines that end in `\` joined.
fn commands(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    for block in page.split("```sh\n").skip(1) {
        let block = block.split("```").next().expect("a block").replace("\\\n", " ");
        let lines = block.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        found.extend(lines.map(str::to_owned));
    }
    found
}

#[test]
fn every_example_of_the_readme_runs() {
    run_all(README, 7);
}

#[test]
fn every_example_of_the_tutorial_runs() {
    run_all(TUTORIAL, 12);
}

#[test]
fn every_example_of_the_reference_runs() {
    run_all(SHARE, 2);
}

/// Runs the commands of a page, of which there are so many at least.
fn run_all(page: &str, least: usize) {
    let commands = commands(page);
    assert!(commands.len() >= least, "{commands:#?}");
    let sandbox = Sandbox::own();
    let mut path = sandbox.program().parent().expect("a directory").as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    for command in commands {
        if command == TEST {
            continue; // It runs this very test.
        }
        let mut line = on_our_cpu(&command);
        for call in CALLS {
            line = line.replace(call, "divvy");
        }
        assert!(!line.contains("cargo"), "unknown call: {line}");
        let mut shell = sandbox.command("/bin/sh");
        // Examples without an end of their own get Ctrl-C.
        let endless = !line.contains("--for") && line.starts_with("divvy share");
        shell.args(["-c", &format!("exec {line}")]).env("PATH", &path);
        if line.contains(" && ") || line.contains('>') {
            shell = sandbox.command("/bin/sh");
            shell.args(["-c", &line]).env("PATH", &path);
        }
        let child = shell.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("a shell");
        let running = Running { child };
        if endless {
            let scheduler = running.scheduler().as_raw_nonzero().get();
            eventually(&format!("a command of: {line}"), || {
                sandbox.processes().iter().any(|p| p.parent == scheduler && !p.is_divvy()).then_some(())
            });
            running.signal(rustix::process::Signal::INT);
        }
        let mut child = running.child;
        let status =
            eventually(&format!("the end of: {line} (within {PATIENCE:?})"), || child.try_wait().unwrap());
        let said = std::io::read_to_string(child.stderr.take().unwrap()).unwrap_or_default();
        let ok = if endless { status.code() == Some(130) } else { status.success() };
        assert!(ok, "{status}: {command}\n{said}");
        eprintln!("ran: {command}");
    }
}

/// The quick start has the two commands: a run, and all tests; and CI runs the same as the second.
#[test]
fn the_quick_start_is_two_commands() {
    let section = README.split("\n## ").find(|s| s.starts_with("Quick start")).expect("a quick start");
    let commands: Vec<String> =
        commands(README).into_iter().filter(|c| section.replace("\\\n", " ").contains(c.as_str())).collect();
    assert_eq!(commands.len(), 2, "{commands:#?}");
    assert!(commands[0].starts_with(CALLS[0]) && commands[0].contains("--for 10s"), "{commands:#?}");
    assert_eq!(commands[0].matches("sha256sum /dev/zero").count(), 3);
    assert_eq!(commands[1], TEST);
    assert!(include_str!("../../../../.ci/run").contains(TEST));
}
