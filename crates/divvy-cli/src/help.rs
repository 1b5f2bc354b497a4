//! What the help of each command ends with: examples of it, and its own exit codes, the numbers of [`Code`](crate::Code).

use std::fmt::Write as _;

use clap::{Arg, Command};

/// A way to end.
type End = (&'static str, &'static str);

const DONE: End = ("0", "it ended as asked");
const USAGE: End = ("2", "the arguments cannot be used");
const OUTPUT: End = ("4", "standard output cannot be written");
const FILE: End = ("4", "a file, or standard output, cannot be read or written, or is not what it should be");
const SYSTEM: End = ("5", "the system refused: a permission, a limit, a failed call");
const NO_CLIENT: End = ("6", "there is no such client or group");
const NO_PROCESS: End = ("6", "there is no such process, user, currency or group");
const NO_CURRENCY: End = ("6", "there is no such currency, client, ticket, exchange, offer, user or group");
const SCHEDULER: End = ("7", "the scheduler (divvyd) cannot be started or reached");
const SYSTEM_SCHEDULER: End = ("7", "the system's divvyd cannot be reached, or keeps no market");
const NOT_YOURS: End = ("8", "the client is not yours: its owner, or a superuser, can");
const DENIED: End = ("8", "the market does not permit you that: an owner, or a superuser, can");
const REFUSED: End =
    ("9", "the market cannot do that: a cycle, more than there is, above a bound or a limit");
const LIMIT: End = ("9", "you have as many clients as one may have, or the market cannot do that");
const SIGNAL: End = ("128+N", "signal N asked for the end (130: Ctrl-C)");

/// What a command that changes the market can end with.
const MARKET: &[End] = &[DONE, USAGE, OUTPUT, SYSTEM, NO_CURRENCY, SYSTEM_SCHEDULER, DENIED, REFUSED];
/// What one that reads a client of divvyd's and changes it can.
const CLIENT: &[End] = &[DONE, USAGE, OUTPUT, SYSTEM, NO_CLIENT, SCHEDULER, NOT_YOURS];
/// A simulation.
const SIMULATION: &[End] = &[
    DONE,
    ("1", "a run could not end and was cut off at its limit, or a picture cannot be drawn"),
    USAGE,
    FILE,
];
/// What reads, and asks nobody.
const PRINTS: &[End] = &[DONE, USAGE, OUTPUT];

const NAMES: &str = "\
Names:
  build, alice/build  what you called so, or alice did: a currency or a client
  alice               that user's own currency
  base                where every right comes from
  17, 17.2            an id";

/// How the help of a command ends.
struct Ending {
    /// The command, as it is typed after `divvy`; nothing for `divvy` itself.
    path: &'static str,
    /// Command lines, with a word about each.
    examples: &'static [(&'static str, &'static str)],
    /// None for a command that does nothing without one of its own commands, which have theirs.
    ends: &'static [End],
}

const fn ending(
    path: &'static str,
    examples: &'static [(&'static str, &'static str)],
    ends: &'static [End],
) -> Ending {
    Ending { path, examples, ends }
}

/// Each command, and `divvy` itself.
const ENDINGS: &[Ending] = &[
    ending(
        "",
        &[
            ("divvy share 2:'make -j4' 1:'npm test'", "two commands, 2:1, until both have ended"),
            ("divvy run -s 3 -- make -j4", "one that others may come beside"),
            ("divvy ls", "who gets what"),
            ("divvy doctor", "what this machine permits"),
        ],
        &[],
    ),
    ending(
        "share",
        &[
            ("divvy share 2:'make -j4' 1:'npm test'", "two commands, 2:1, until both have ended"),
            ("divvy share --for 30s build=3:'make -j4' 1:@user:bob", "a name, and what bob runs already"),
            ("divvy share --limit 50% --quiet --report run.json 1:./a 1:./b", "at most half a CPU each"),
            (
                "divvy share --group build=2 3:'make -j4' 1:'npm test'",
                "together with what divvy run has started",
            ),
            (
                "divvy share --from tests 3:'make -j4' 1:'npm test'",
                "paid by a currency, at the system's divvyd",
            ),
        ],
        &[
            ("0", "the time was up, or every command exited with 0"),
            ("1", "a command failed"),
            USAGE,
            ("3", "a command cannot be started, or a process not attached; nothing is left running"),
            FILE,
            SYSTEM,
            NO_CURRENCY,
            (
                "7",
                "its scheduler was killed, or --group or --from has no divvyd; what runs goes on, undivided",
            ),
            ("8", "the market does not permit you the tickets of --from"),
            SIGNAL,
        ],
    ),
    ending(
        "run",
        &[
            ("divvy run -s 3 -- make -j4", "three times what a client of share 1 has"),
            ("divvy run --name tests --group build=2 -- npm test", "in a group that has the share 2"),
            (
                "divvy run --limit 50% -- ffmpeg -i in.mkv out.mp4",
                "at most half a CPU, however idle the rest is",
            ),
        ],
        &[
            ("N", "the command's own, as if divvy were not there; where it cannot be started:"),
            ("2", "the arguments cannot be used (or another client has the name)"),
            SYSTEM,
            ("6", "there is no such currency or user"),
            SCHEDULER,
            ("8", "the market does not permit you the tickets of --from"),
            LIMIT,
            ("126", "the command is there and cannot be executed"),
            ("127", "there is no such command"),
        ],
    ),
    ending(
        "attach",
        &[
            ("divvy attach -s 2 4711", "one process"),
            ("divvy attach tree:4711 --name build", "one with all its descendants, called build"),
            ("divvy attach --limit 50% name:'make*' --dry-run", "which processes it would be"),
        ],
        &[
            DONE,
            ("2", "the arguments cannot be used, or another client has the name or the process"),
            OUTPUT,
            ("5", "the system refused: a process that is not yours, a limit, a failed call"),
            NO_PROCESS,
            SCHEDULER,
            ("8", "the market does not permit you the tickets of --from"),
            LIMIT,
        ],
    ),
    ending(
        "set",
        &[
            ("divvy set build 5", "another share"),
            ("divvy set build --limit none", "no limit any more"),
            ("divvy set build --cpus 0,2-3", "on these CPUs only, where the kernel divides"),
            ("divvy set build/ 2", "the group of that name"),
        ],
        &[DONE, USAGE, OUTPUT, SYSTEM, NO_CLIENT, SCHEDULER, NOT_YOURS, REFUSED],
    ),
    ending(
        "ls",
        &[
            ("divvy ls", "who gets what"),
            ("divvy ls --wide", "and which processes each client is"),
            ("divvy ls --json", "for a program"),
            ("divvy ls --system --user alice", "one user's clients"),
        ],
        &[
            DONE,
            USAGE,
            OUTPUT,
            SYSTEM,
            ("6", "this machine knows no such user"),
            SCHEDULER,
            ("9", "you have asked the system's divvyd too often: ask again a little later"),
        ],
    ),
    ending("detach", &[("divvy detach build", "its processes run on, undivided")], CLIENT),
    ending("pause", &[("divvy pause build", "its share goes to the others")], CLIENT),
    ending("resume", &[("divvy resume build", "it goes on")], CLIENT),
    ending(
        "explain",
        &[("divvy explain 4711", "which client it is in, and what would be done with it")],
        &[DONE, USAGE, OUTPUT, SYSTEM, ("6", "there is no such process")],
    ),
    ending("doctor", &[("divvy doctor", "what this machine permits")], &[DONE, USAGE, OUTPUT, SYSTEM]),
    ending(
        "currency",
        &[
            ("divvy currency ls", "all that there are, and what each comes to"),
            ("divvy currency create build", "one of your own"),
        ],
        &[],
    ),
    ending(
        "currency create",
        &[("divvy currency create build --mode 740 --group staff", "staff may fund it")],
        MARKET,
    ),
    ending("currency ls", &[("divvy currency ls --resource disk", "what each comes to")], MARKET),
    ending(
        "currency tree",
        &[
            ("divvy currency tree alice", "what alice's currency backs"),
            ("divvy currency tree --svg -o market.svg", "all of it, as a picture"),
        ],
        &[DONE, USAGE, FILE, SYSTEM, NO_CURRENCY, SYSTEM_SCHEDULER],
    ),
    ending("currency destroy", &[("divvy currency destroy build", "and every ticket of it")], MARKET),
    ending("currency chmod", &[("divvy currency chmod 760 build", "the group may change it too")], MARKET),
    ending("currency chown", &[("divvy currency chown alice:staff build", "alice's from now on")], MARKET),
    ending(
        "currency hard-total",
        &[("divvy currency hard-total build cpu:2000", "2000 are all of it")],
        MARKET,
    ),
    ending("fund", &[("divvy fund build --from alice 300", "a share of what alice's currency has")], MARKET),
    ending(
        "reserve",
        &[("divvy reserve build --from base 250 --resource memory", "250 of 1000: a quarter of the memory")],
        MARKET,
    ),
    ending(
        "unfund",
        &[
            ("divvy unfund 17.2", "the ticket of that id"),
            ("divvy unfund build --from alice", "that of alice's"),
        ],
        MARKET,
    ),
    ending(
        "exchange",
        &[
            ("divvy exchange offer --give disk:50 --want memory:20", "it waits for its complement"),
            ("divvy exchange ls", "what holds, and what waits"),
        ],
        &[],
    ),
    ending(
        "exchange offer",
        &[("divvy exchange offer --give disk:50 --want memory:20 --for 1h", "it waits for an hour")],
        MARKET,
    ),
    ending("exchange ls", &[("divvy exchange ls", "what holds, and what waits")], MARKET),
    ending(
        "exchange cancel",
        &[("divvy exchange cancel 3", "an exchange"), ("divvy exchange cancel --offer 7", "an offer")],
        MARKET,
    ),
    ending("nice", &[("divvy nice build 5", "5 base tickets, whoever of yours sleeps")], MARKET),
    ending(
        "market",
        &[
            ("divvy market explain build", "where its value comes from"),
            ("divvy market audit", "who did what"),
        ],
        &[],
    ),
    ending("market explain", &[("divvy market explain build", "ticket by ticket")], MARKET),
    ending("market audit", &[("divvy market audit --since 100", "from entry 100 on")], MARKET),
    ending("market bound", &[("divvy market bound alice cpu:500", "alice may issue 500")], MARKET),
    ending(
        "site",
        &[
            ("divvy site sync", "accounts and shares, as sacctmgr tells them"),
            ("divvy site show", "the table that holds"),
        ],
        &[],
    ),
    ending(
        "site sync",
        &[
            ("divvy site sync", "as sacctmgr tells it"),
            ("divvy site sync --table accounts.txt --dry-run", "whether a table can be used"),
        ],
        &[DONE, USAGE, FILE, SYSTEM, NO_CURRENCY, SYSTEM_SCHEDULER, DENIED, REFUSED],
    ),
    ending(
        "site usage",
        &[
            ("divvy site usage --prepare", "once: a QOS for each user of an account"),
            ("divvy site usage", "every minute, by cron"),
            ("divvy site usage --dry-run", "what would be set"),
        ],
        &[DONE, USAGE, FILE, SYSTEM],
    ),
    ending("site show", &[("divvy site show", "the table that holds")], MARKET),
    ending(
        "site market",
        &[
            ("divvy site market --nodes nodes.toml", "as docs/market.md sets it up"),
            (
                "divvy site market --nodes nodes.toml --lease 2m",
                "for a site whose nodes are often away for a minute",
            ),
        ],
        &[USAGE, FILE, SYSTEM, SIGNAL],
    ),
    ending(
        "usage",
        &[
            ("divvy usage record usage.jsonl", "until Ctrl-C"),
            ("divvy usage report usage.jsonl --since 7days", "of a week"),
        ],
        &[],
    ),
    ending(
        "usage record",
        &[
            ("divvy usage record usage.jsonl", "until Ctrl-C"),
            (
                "divvy usage record --notify 'mail -s \"CPU\" $DIVVY_USER </dev/null'",
                "tell whoever uses far more",
            ),
        ],
        &[USAGE, FILE, SYSTEM, SCHEDULER, SIGNAL],
    ),
    ending("usage report", &[("divvy usage report --since 7days", "of a week")], &[DONE, USAGE, FILE]),
    ending(
        "rules",
        &[("divvy rules", "what divvyd makes of them"), ("divvy rules check", "what is wrong with the file")],
        &[DONE, USAGE, FILE, SYSTEM, SCHEDULER],
    ),
    ending(
        "rules check",
        &[("divvy rules check new.toml", "a file before it is used")],
        &[DONE, USAGE, FILE],
    ),
    ending("rules start", &[("divvy rules start", "at login")], &[DONE, USAGE, FILE, SYSTEM, SCHEDULER]),
    ending(
        "rescue",
        &[("divvy rescue", "after kill -9 of divvy and its guardian")],
        &[DONE, ("1", "something is left that could not be repaired"), USAGE, OUTPUT, SYSTEM],
    ),
    ending(
        "replay",
        &[("divvy replay run.jsonl", "does the policy still decide so?")],
        &[DONE, ("1", "a decision differs"), USAGE, FILE],
    ),
    ending(
        "plot",
        &[
            ("divvy plot run.jsonl", "as text"),
            ("divvy plot run.jsonl --png run.png --from 2s --to 4s", "two seconds as a picture"),
        ],
        &[DONE, ("1", "the picture cannot be drawn"), USAGE, FILE],
    ),
    ending(
        "top",
        &[
            ("divvy top", "q quits, ? helps"),
            ("divvy top --replay run.jsonl --speed 10", "a recorded run, ten times as fast"),
        ],
        &[DONE, USAGE, FILE, SYSTEM, SCHEDULER, SIGNAL],
    ),
    ending(
        "web",
        &[
            ("divvy web", "on loopback, until Ctrl-C"),
            ("divvy web --no-open --port 8080", "behind an ssh tunnel"),
        ],
        &[USAGE, OUTPUT, SYSTEM, SIGNAL],
    ),
    ending(
        "sim",
        &[
            ("divvy sim --shares 3,2,1 --policy stride", "CPU-bound clients"),
            ("divvy sim scenario.toml --svg run.svg", "a file, and who ran when"),
        ],
        SIMULATION,
    ),
    ending(
        "sim sweep",
        &[("divvy sim sweep scenario.toml --vary machine.cpus=1,2,4 --replications 10", "three machines")],
        SIMULATION,
    ),
    ending(
        "compare",
        &[("divvy compare --shares 3,2,1 --policies vtrr,wfq,stride,lottery", "one scenario, four policies")],
        SIMULATION,
    ),
    ending("policies", &[("divvy policies", "all of them"), ("divvy policies alps", "one, in full")], PRINTS),
    ending(
        "completions",
        &[
            ("divvy completions bash > ~/.local/share/bash-completion/completions/divvy", "for one user"),
            ("divvy completions zsh > ~/.zfunc/_divvy", "where ~/.zfunc is in $fpath"),
            ("divvy completions fish > ~/.config/fish/completions/divvy.fish", "for one user"),
        ],
        PRINTS,
    ),
];

/// Where the pages are that help texts name (`cargo xtask install` and the packages put them there).
const PAGES: &str =
    "Pages that are named (docs/limits.md) are below share/doc/divvy of where divvy is installed.";

impl Ending {
    fn text(&self) -> String {
        let mut text = String::from("Examples:\n");
        let (line, about) = (|e: &(&str, &str)| e.0.chars().count(), 44);
        let width = self.examples.iter().map(line).filter(|&width| width <= about).max().unwrap_or(0);
        for (example, about) in self.examples {
            let _ = writeln!(text, "  {example:<width$}  # {about}");
        }
        if self.path.split(' ').next().is_some_and(is_of_market) {
            let _ = write!(text, "\n{NAMES}\n");
        }
        if !self.ends.is_empty() {
            text.push_str("\nExit codes:\n");
        }
        let width = self.ends.iter().map(|(code, _)| code.len()).max().unwrap_or(0);
        for (code, about) in self.ends {
            let _ = writeln!(text, "  {code:<width$}  {about}");
        }
        if self.ends.is_empty() {
            let command = format!("divvy {}", self.path);
            let _ = writeln!(
                text,
                "\n{} COMMAND --help has examples, and the exit codes of that command.",
                command.trim_end()
            );
        }
        if self.path.is_empty() {
            text.push_str(PAGES);
        }
        text.trim_end().to_owned()
    }
}

/// Whether currencies are named on its command line.
fn is_of_market(command: &str) -> bool {
    ["currency", "fund", "reserve", "unfund", "exchange", "nice", "market"].contains(&command)
}

/// `command` with the endings of its help, and that of all below it.
pub(crate) fn with_endings(command: Command) -> Command {
    fn below(command: Command, path: &str) -> Command {
        let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
        let command = names.into_iter().fold(command, |command, name| {
            let path = if path.is_empty() { name.clone() } else { format!("{path} {name}") };
            command.mut_subcommand(name, |sub| below(sub, &path))
        });
        // What is wrong with `--limit -5` is the value, and no argument of that name.
        let takes_value = |arg: &Arg| !arg.is_positional() && arg.get_action().takes_values();
        let command =
            command.mut_args(|arg| if takes_value(&arg) { arg.allow_negative_numbers(true) } else { arg });
        match ENDINGS.iter().find(|ending| ending.path == path) {
            Some(ending) => command.after_help(ending.text()),
            None => command,
        }
    }
    below(command, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `command` and all below it, by their paths.
    fn commands(command: Command) -> Vec<(String, Command)> {
        fn below(command: Command, path: String, all: &mut Vec<(String, Command)>) {
            for sub in command.get_subcommands() {
                let path = format!("{path} {}", sub.get_name()).trim_start().to_owned();
                below(sub.clone(), path, all);
            }
            all.push((path, command));
        }
        let mut all = Vec::new();
        below(command, String::new(), &mut all);
        all
    }

    /// Every command has an ending, and every ending is of a command. Who does nothing without one of its own commands says where
    /// the exit codes are.
    #[test]
    fn every_command_has_examples_and_its_own_exit_codes() {
        let mut all = Vec::new();
        for (path, command) in commands(crate::command()) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.starts_with("Examples:\n"), "divvy {path}: {help}");
            let only_has_commands = command.is_subcommand_required_set();
            let elsewhere = format!("{} COMMAND --help has", format!("divvy {path}").trim_end());
            assert_eq!(help.contains(&elsewhere), only_has_commands, "divvy {path}: {help}");
            assert_eq!(help.contains("Exit codes:\n"), !only_has_commands, "divvy {path}: {help}");
            all.push(path);
        }
        all.sort();
        let mut known: Vec<&str> = ENDINGS.iter().map(|ending| ending.path).collect();
        known.sort_unstable();
        assert_eq!(all, known);
        assert!(all.len() >= 46, "{all:?}");
    }

    /// A line of usage names no option that the help below it does not have.
    #[test]
    fn no_usage_names_what_is_hidden() {
        for (path, mut command) in commands(crate::command()) {
            let usage = command.render_usage().to_string();
            for hidden in command.get_arguments().filter(|arg| arg.is_hide_set()) {
                let name = hidden.get_long().map(|long| format!("--{long}"));
                let is_named = name.is_some_and(|name| usage.contains(&name));
                assert!(!is_named, "divvy {path}: {} in {usage}", hidden.get_id());
            }
        }
    }

    /// The words of a command line, as a shell takes them apart: of quotes and redirections no more than the examples have.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
        for c in line.split(" > ").next().unwrap_or(line).chars() {
            match c {
                '\'' => quoted = !quoted,
                ' ' if !quoted => words.push(std::mem::take(&mut word)),
                c => word.push(c),
            }
        }
        words.push(word);
        words
    }

    #[test]
    fn every_example_is_one_of_its_command() {
        for ending in ENDINGS {
            assert!(!ending.examples.is_empty(), "{}", ending.path);
            for (example, about) in ending.examples {
                let command = format!("divvy {}", ending.path);
                assert!(example.starts_with(&command), "{example}");
                assert!(!about.is_empty());
                let read = crate::command().try_get_matches_from(words(example));
                assert!(read.is_ok(), "{example}: {}", read.unwrap_err());
            }
        }
    }

    #[test]
    fn codes_rise_and_mean_one_thing() {
        for ending in ENDINGS {
            let codes: Vec<u32> = ending
                .ends
                .iter()
                .filter_map(|(code, _)| code.split('+').next().and_then(|code| code.parse().ok()))
                .collect();
            assert!(codes.windows(2).all(|two| two[0] < two[1]), "{}: {codes:?}", ending.path);
        }
    }
}
