//! `divvy completions`: scripts that complete the command line.

use clap::Args as ClapArgs;
use clap_complete::Shell;
use serde_json::json;

use crate::{Code, Failure, print};

#[derive(Debug, ClapArgs)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: Shell,

    /// Print the script as a member of a JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(args: &CompletionsArgs) -> Result<Code, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::command(), "divvy", &mut script);
    let script = String::from_utf8_lossy(&script);
    if args.json {
        print(json!({ "version": 1, "shell": args.shell.to_string(), "script": script }))?;
    } else {
        print(script.trim_end())?;
    }
    Ok(Code::Done)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn every_shell_knows_every_command() {
        let command = crate::command();
        for shell in Shell::value_variants() {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut crate::command(), "divvy", &mut script);
            let script = String::from_utf8(script).unwrap();
            let mut ahead: Vec<&clap::Command> = command.get_subcommands().collect();
            while let Some(sub) = ahead.pop() {
                assert!(script.contains(sub.get_name()), "{shell}: {}", sub.get_name());
                ahead.extend(sub.get_subcommands());
            }
        }
    }
}
