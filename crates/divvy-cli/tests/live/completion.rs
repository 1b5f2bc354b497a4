//! Completion of the command line: what the shells' scripts are answered, and bash as it is used.

use std::process::Command;

use crate::daemon::client;
use crate::harness::{Sandbox, eventually, skip};

/// What `divvy` answers a shell's script, word by word, for the last of `words`.
fn answer(sandbox: &Sandbox, shell: &str, words: &[&str]) -> Vec<String> {
    let mut divvy = sandbox.divvy(&["--"]);
    divvy.args(words).env("DIVVY_COMPLETE", shell);
    divvy.env("_CLAP_IFS", "\n").env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string());
    let output = divvy.output().expect("divvy");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect()
}

/// What bash, with divvy's script, has for the last of `words`.
fn by_bash(sandbox: &Sandbox, words: &[&str]) -> Vec<String> {
    let script = r#"
        source <(divvy completions bash) || exit
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        "$(complete -p divvy | sed 's/.* -F \([^ ]*\) .*/\1/')" divvy "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}""#;
    let mut path = sandbox.program().parent().expect("a directory").as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let mut bash = sandbox.command("bash");
    bash.args(["--norc", "-c", script, "bash"]).args(words).env("PATH", path);
    let output = bash.output().expect("bash");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect()
}

#[test]
fn names_of_clients_and_groups_are_completed() {
    let sandbox = Sandbox::own();
    assert_eq!(answer(&sandbox, "fish", &["divvy", "set", "jo"]), [""; 0], "there is no divvyd");
    assert_eq!(sandbox.processes(), [], "and none was started for it");
    let sleeper = ["--", "sleep", "600"];
    let runs =
        [&["run", "--name", "job-one", "-s", "3"][..], &["run", "--name", "job-two", "--group", "joint=2"]];
    // One after the other: clients are listed as they came.
    let running = runs.map(|run| {
        let running = sandbox.start(&[run, &sleeper].concat());
        eventually("a client", || client(&sandbox, run[2]));
        running
    });
    for command in ["set", "pause", "resume", "detach"] {
        let names = answer(&sandbox, "fish", &["divvy", command, "jo"]);
        let names: Vec<_> =
            names.iter().map(|line| line.split_once('\t').expect("a name and what it is")).collect();
        assert_eq!(names.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["job-one", "job-two", "joint"]);
        assert!(names[0].1.ends_with(", share 3"), "{names:?}");
        assert_eq!(names[2].1, "group, share 2");
    }
    let zsh = answer(&sandbox, "zsh", &["divvy", "pause", "job-o"]);
    assert!(zsh.len() == 1 && zsh[0].starts_with("job-one:"), "{zsh:?}");
    assert_eq!(answer(&sandbox, "bash", &["divvy", "run", "--group", ""]), ["joint"]);
    assert_eq!(
        answer(&sandbox, "bash", &["divvy", "set", "--system", "jo"]),
        [""; 0],
        "none of the system's"
    );
    if Command::new("bash").arg("--version").output().is_ok() {
        assert_eq!(by_bash(&sandbox, &["divvy", "set", "jo"]), ["job-one", "job-two", "joint"]);
        assert_eq!(by_bash(&sandbox, &["divvy", "atta"]), ["attach"]);
        assert_eq!(by_bash(&sandbox, &["divvy", "attach", "--dry"]), ["--dry-run"]);
    } else {
        skip("names_of_clients_and_groups_are_completed", "no bash");
    }
    sandbox.kill_clients();
    drop(running);
}
