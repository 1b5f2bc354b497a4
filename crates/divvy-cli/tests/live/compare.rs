//! Every command of the table in docs/compare.md, as far as this machine has the program.

use crate::follow::search_path;
use crate::harness::{SPIN, Sandbox, eventually, skip};

const PAGE: &str = include_str!("../../../../docs/compare.md");
/// Of these columns every command is run; the others need what no test has.
const RUN: [&str; 4] = ["divvy", "cpulimit", "nice", "taskset"];
/// cpulimit ends with its target, or with the signal that `timeout` sends it.
const ENDED: [i32; 2] = [1, 143];

/// How `timeout` says that it ended its command.
const TIMED_OUT: i32 = 124;

/// The rows of the table, as cells.
fn rows() -> Vec<Vec<String>> {
    let cells = |line: &str| line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect();
    PAGE.lines().filter(|line| line.starts_with("| ")).map(cells).collect()
}

#[test]
fn every_command_of_the_table_runs() {
    let rows = rows();
    let (titles, rows) = rows.split_first().expect("a table");
    assert!(rows.len() >= 15 && rows.iter().all(|row| row.len() == titles.len()), "{rows:#?}");
    let sandbox = Sandbox::own();
    let path = search_path(&sandbox);
    let mut ran = 0;
    for row in rows {
        for (title, cell) in titles.iter().zip(row).skip(1).filter(|(title, _)| RUN.contains(&title.as_str()))
        {
            if cell == "-" {
                assert_ne!(title, "divvy", "{row:?}: what divvy cannot do is no row of its table");
                continue;
            }
            let line = cell.strip_prefix('`').and_then(|cell| cell.strip_suffix('`')).expect("a command");
            let named = |word: &str| line.split_whitespace().any(|w| w == word);
            if named("cpulimit") && std::process::Command::new("cpulimit").arg("--help").output().is_err() {
                skip("every_command_of_the_table_runs", "no cpulimit");
                continue;
            }
            // A fresh client and a fresh process for each: a command may end or detach them.
            let mut process = sandbox.command("sh").args(["-c", SPIN]).spawn().unwrap();
            let job = sandbox.start(&["run", "--name", "job", "--", "sleep", "600"]);
            eventually("the client", || crate::daemon::client(&sandbox, "job"));
            let mut shell = sandbox.command("sh");
            shell.args(["-c", line]).env("PATH", &path).env("PID", process.id().to_string());
            let output = shell.output().unwrap();
            let code = output.status.code().unwrap_or(-1);
            let fine = code == 0
                || (named("timeout") && code == TIMED_OUT)
                || (named("cpulimit") && ENDED.contains(&code));
            let said = [&output.stdout[..], &output.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            // cpulimit ends with 1 for that, too.
            let understood = !said.contains("Usage:");
            assert!(fine && understood, "{line}: {}: {said}", output.status);
            ran += 1;
            let _ = sandbox.run(&["detach", "this"]);
            let _ = sandbox.run(&["detach", "those"]);
            process.kill().unwrap();
            process.wait().unwrap();
            job.signal(rustix::process::Signal::TERM);
            let _ = job.end();
            eventually("the client to have left", || {
                crate::daemon::client(&sandbox, "job").is_none().then_some(())
            });
        }
    }
    assert!(ran >= 20, "{ran} commands");
}
