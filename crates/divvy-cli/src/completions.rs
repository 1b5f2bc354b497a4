//! `divvy completions`: scripts by which a shell completes the command line, names of clients and groups too.
//!
//! Such a script asks `divvy` itself, with [`VARIABLE`] set: commands and options are those of the `divvy` that is installed,
//! and names those of the divvyd that runs. None is started for it.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::DirEntry;
use std::os::unix::fs::PermissionsExt as _;

use clap::Args as ClapArgs;
use clap_complete::Shell;
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use clap_complete::env::{CompleteEnv, Shells};
use divvy_api::types::Clients;
use serde_json::json;

use crate::remote::which::Which;
use crate::{Code, Failure, capable, print};

/// Set to the name of a shell, it has divvy complete the words after `--` instead of doing what they say.
const VARIABLE: &str = "DIVVY_COMPLETE";
/// What completes for zsh.
const ZSH_FUNCTION: &str = "_clap_dynamic_completer_divvy";

#[derive(Debug, ClapArgs)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: Shell,

    /// Print the script as a member of a JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// The script by which `shell` (`bash`, `zsh`, `fish`, `elvish`, `powershell`) completes `divvy`; `None` for any other.
#[must_use]
pub fn script(shell: &str) -> Option<String> {
    let mut script = Vec::new();
    let completer = Shells::builtins();
    completer.completer(shell)?.write_registration(VARIABLE, "divvy", "divvy", "divvy", &mut script).ok()?;
    let mut script = String::from_utf8(script).ok()?.trim().to_owned() + "\n";
    if shell == "zsh" {
        // Found in $fpath it is called as a function, which has to complete the first time too.
        script += &format!("if [[ ${{funcstack[1]}} == _divvy ]]; then {ZSH_FUNCTION} \"$@\"; fi\n");
    }
    Some(script)
}

pub(crate) fn run(args: &CompletionsArgs) -> Result<Code, Failure> {
    let shell = args.shell.to_string();
    let script = script(&shell).ok_or_else(|| Failure::new(Code::Usage, format!("{shell}: no script")))?;
    if args.json {
        print(json!({ "version": 1, "shell": shell, "script": script }))?;
    } else {
        print(script.trim_end())?;
    }
    Ok(Code::Done)
}

/// Completes the command line, and ends, where a shell asks for that.
pub(crate) fn answer_shell() {
    CompleteEnv::with_factory(crate::command).var(VARIABLE).complete();
}

/// The clients and groups that the command line can mean.
pub(crate) fn clients() -> ArgValueCandidates {
    ArgValueCandidates::new(|| listed().map_or_else(Vec::new, |list| of_clients(&list)))
}

/// Groups alone.
pub(crate) fn groups() -> ArgValueCandidates {
    ArgValueCandidates::new(|| listed().map_or_else(Vec::new, |list| of_groups(&list).collect()))
}

/// A command and its arguments: files, and where there is none of that name, programs. Which word of the command it is, nobody
/// tells.
pub(crate) fn command_line() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let files = PathCompleter::any().complete(current);
        if files.is_empty() && !current.is_empty() {
            return programs(&current.to_string_lossy()).into_iter().map(CompletionCandidate::new).collect();
        }
        files
    })
}

/// The programs on the `PATH` whose names begin so, in the order of the alphabet.
fn programs(word: &str) -> BTreeSet<String> {
    let path = capable::variable("PATH").unwrap_or_default();
    let dirs = path.split(':').filter(|dir| !dir.is_empty()).filter_map(|dir| std::fs::read_dir(dir).ok());
    let begins = |entry: &DirEntry| entry.file_name().to_string_lossy().starts_with(word);
    // A link is what it leads to.
    let is_program = |entry: &DirEntry| {
        let file = std::fs::metadata(entry.path()).ok();
        file.is_some_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    let programs = dirs.flat_map(|dir| dir.flatten()).filter(begins).filter(is_program);
    programs.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// What the divvyd lists that is asked on this command line; `None` where none runs.
fn listed() -> Option<Clients> {
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    Which::among(words).choice().ok()?.api().ok()?.clients().ok()
}

fn of_clients(list: &Clients) -> Vec<CompletionCandidate> {
    let clients = list.clients.iter().map(|client| {
        CompletionCandidate::new(&client.name)
            .help(Some(format!("{}, share {}", client.selector, client.share).into()))
    });
    clients.chain(of_groups(list)).collect()
}

fn of_groups(list: &Clients) -> impl Iterator<Item = CompletionCandidate> {
    list.groups.iter().map(|group| {
        CompletionCandidate::new(&group.name).help(Some(format!("group, share {}", group.share).into()))
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::ValueEnum as _;

    use super::*;

    /// What completes the last of `words`.
    fn completed(words: &[&str]) -> Vec<String> {
        let words: Vec<OsString> = ["divvy"].iter().chain(words).map(OsString::from).collect();
        let last = words.len() - 1;
        let here = std::env::current_dir().expect("a directory");
        let found = clap_complete::engine::complete(&mut crate::command(), words, last, Some(&here));
        let found = found.expect("completions");
        found.iter().map(|candidate| candidate.get_value().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn every_shell_has_a_script_that_asks_divvy() {
        for shell in Shell::value_variants() {
            let script = script(&shell.to_string()).expect("a script");
            assert!(script.contains(VARIABLE) && script.contains(" -- "), "{shell}: {script}");
        }
        assert_eq!(script("cmd.exe"), None);
        let zsh = script("zsh").expect("a script");
        assert!(zsh.starts_with("#compdef divvy\n"), "{zsh}");
        assert!(zsh.contains(&format!("function {ZSH_FUNCTION}()")), "it is called by its name: {zsh}");
    }

    #[test]
    fn every_command_and_option_is_completed() {
        fn check(command: &clap::Command, path: &[&str]) {
            for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
                let mut words = [path, &[""]].concat();
                assert!(completed(&words).iter().any(|word| word == sub.get_name()), "{words:?}");
                words[path.len()] = sub.get_name();
                check(sub, &words);
            }
            let options = completed(&[path, &["--"]].concat());
            for option in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
                let Some(long) = option.get_long() else { continue };
                assert!(options.contains(&format!("--{long}")), "{path:?}: --{long} of {options:?}");
            }
        }
        check(&crate::command(), &[]);
        assert_eq!(completed(&["completions", "ba"]), ["bash"]);
    }

    #[test]
    fn commands_are_programs_and_arguments_files() {
        assert!(completed(&["run", "--", "chmo"]).contains(&"chmod".to_owned()));
        assert!(completed(&["run", "chmo"]).contains(&"chmod".to_owned()));
        // Tests run in the directory of their package.
        assert_eq!(completed(&["run", "--", "cat", "Cargo.t"]), ["Cargo.toml"]);
        assert_eq!(completed(&["run", "--", "tests/sim"]), ["tests/sim.rs"], "a path is a command too");
        assert_eq!(completed(&["run", "--", "no-such-program"]), [""; 0]);
        assert_eq!(completed(&["plot", "Cargo.t"]), ["Cargo.toml"]);
    }
}
