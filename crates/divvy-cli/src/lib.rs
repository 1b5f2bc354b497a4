//! `divvy`: divide one machine's CPU among commands in proportion to shares.
//!
//! This crate reads arguments and files, prints, and draws; what it schedules with is in the other crates. It never
//! decides who runs and makes no system call but to print.

#![deny(clippy::print_stdout, clippy::print_stderr)] // They panic where nothing can be written; print and tell do not.

mod args;
mod bounds;
mod capable;
mod completions;
mod cpus;
mod files;
mod help;
mod limit;
mod market;
mod nearest;
mod plot;
mod remote;
mod replay;
mod rescue;
mod rules;
mod share;
mod sim;
mod site;
mod strip;
mod top;
mod trace_file;
mod usage;
mod web;

pub use completions::script as completion_script;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::FromArgMatches as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use divvy_market::Kind;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// How a run of divvy ends; every code that it can return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// It ended as was asked.
    Done,
    /// A command failed; `rescue`, `replay`: something is left to be repaired, or differs; `sim`, `compare`: a run was
    /// cut off at its limit.
    Failed,
    /// The arguments cannot be used.
    Usage,
    /// A command cannot be started, or a process not attached. Nothing is left running, or held.
    NotStarted,
    /// `run`: the command is there and cannot be executed.
    NotExecutable,
    /// `run`: there is no such command.
    NotFound,
    /// A file cannot be read or written.
    File,
    /// The system refused: a permission, a limit, a failed call.
    System,
    /// There is no such client, process, currency, ticket, exchange, offer, user or group.
    NoSuch,
    /// The scheduler cannot be started or reached, or was killed.
    Scheduler,
    /// The market's brokers do not permit that to whoever asks.
    Denied,
    /// The market cannot do that, whoever asks: a cycle, more than there is, above a bound or a limit.
    Refused,
    /// `run`: the command's own code; `share`: what the scheduler ended with.
    Command(u8),
    /// A signal asked for the end.
    Signalled(i32),
}

impl Code {
    fn number(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::NotStarted => 3,
            // As env, nice, nohup and timeout have them.
            Self::NotExecutable => 126,
            Self::NotFound => 127,
            Self::File => 4,
            Self::System => 5,
            Self::NoSuch => 6,
            Self::Scheduler => 7,
            Self::Denied => 8,
            Self::Refused => 9,
            Self::Command(code) => code,
            Self::Signalled(signal) => 128 + signal as u8,
        }
    }
}

/// What went wrong, in one line, and the exit code that scripts can use.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(code: Code, text: impl std::fmt::Display) -> Self {
        Self { code, text: text.to_string() }
    }
}

impl From<divvy_linux::Error> for Failure {
    fn from(e: divvy_linux::Error) -> Self {
        use divvy_linux::Error;
        let code = match e {
            // It could be started if the machine had room for it.
            Error::Spawn { ref cause, .. } if is_shortage(cause) => Code::System,
            Error::Spawn { .. } | Error::Select { .. } | Error::Taken { .. } => Code::NotStarted,
            Error::Cpu { .. } => Code::Usage,
            _ => Code::System,
        };
        Self::new(code, e)
    }
}

/// Whether processes, descriptors or memory are short.
fn is_shortage(e: &std::io::Error) -> bool {
    let short = [Errno::AGAIN, Errno::MFILE, Errno::NFILE, Errno::NOMEM];
    Errno::from_io_error(e).is_some_and(|e| short.contains(&e))
}

/// What is left to be said or recorded at the end is waited for this long, where waiting would keep somebody from ending.
pub(crate) const END_WAIT: Duration = Duration::from_secs(2);

/// Standard error has taken nothing for as long as we wait; it is not waited for again.
static DEAF: AtomicBool = AtomicBool::new(false);

/// Writes a line to standard error. Nobody may be reading any more, which ends nothing.
pub(crate) fn tell(line: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Writes a line to standard error, unless it takes nothing for [`END_WAIT`]: a pipe that nobody reads, a terminal that
/// was stopped. Whoever has all of standard error's lock stops this no more than they do.
pub(crate) fn tell_in_time(line: impl std::fmt::Display) {
    // A pipe that can be written to takes so much at once.
    const AT_ONCE: usize = 4096;
    let text = format!("{line}\n");
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let wait = if DEAF.load(Ordering::Relaxed) { 0 } else { END_WAIT.as_secs() as i64 };
        let wait = Timespec { tv_sec: wait, tv_nsec: 0 };
        let mut polled = [PollFd::from_borrowed_fd(rustix::stdio::stderr(), PollFlags::OUT)];
        match poll(&mut polled, Some(&wait)) {
            Ok(0) => return give_up_on_stderr(),
            Err(Errno::INTR) => continue,
            Ok(_) | Err(_) => {}
        }
        match rustix::io::write(rustix::stdio::stderr(), &rest[..rest.len().min(AT_ONCE)]) {
            Ok(n) => rest = &rest[n..],
            Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// Whether it is so.
pub(crate) fn is_deaf() -> bool {
    DEAF.load(Ordering::Relaxed)
}

/// Standard error is not waited for any more.
pub(crate) fn give_up_on_stderr() {
    DEAF.store(true, Ordering::Relaxed);
}

/// Writes the text that was asked for to standard output. A reader that has gone (`| head`) has had enough, and is no error.
///
/// # Errors
/// [`Failure`] with [`Code::File`] where it cannot be written: whoever asked has not got it.
pub(crate) fn print(text: impl std::fmt::Display) -> Result<(), Failure> {
    match write_out(text) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(not_written),
    }
}

/// Writes what is told beside what a command does, which goes on whether anybody reads that or not.
///
/// # Errors
/// What else than that nobody can read it is in the way: a disk that is full.
pub(crate) fn mention(text: impl std::fmt::Display) -> Result<(), Failure> {
    match write_out(text) {
        Err(e) if e.raw_os_error() == Some(Errno::BADF.raw_os_error()) => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(not_written),
    }
}

/// Writes what a command was run for, which is lost if it is not read: a reader that has gone is an error.
///
/// # Errors
/// As [`print`].
pub(crate) fn deliver(text: impl std::fmt::Display) -> Result<(), Failure> {
    write_out(text).map_err(not_written)
}

fn write_out(text: impl std::fmt::Display) -> std::io::Result<()> {
    let mut out = divvy_linux::stdio::stdout()?.lock();
    writeln!(out, "{text}").and_then(|()| out.flush())
}

fn not_written(e: std::io::Error) -> Failure {
    Failure::new(Code::File, format!("write to standard output: {}", files::cause(&e)))
}

/// The command line as clap knows it, for manual pages and completions.
#[must_use]
pub fn command() -> clap::Command {
    use clap::CommandFactory as _;
    help::with_endings(args::Args::command())
}

/// The arguments that these words are, the program's own name first.
fn parse(words: &[OsString]) -> Result<args::Args, clap::Error> {
    let read = |words: &[OsString]| {
        command().try_get_matches_from(words).and_then(|found| args::Args::from_arg_matches(&found))
    };
    read(words)
        .map_err(|e| wrong_value(words, read).filter(|_| e.kind() == ErrorKind::UnknownArgument).unwrap_or(e))
}

/// What is wrong with a value that begins with a minus, as in `--for -1s`, which clap takes for an option that it does not know:
/// what it says where option and value are one word, if it finds the value wrong then.
fn wrong_value<T>(
    words: &[OsString],
    read: impl Fn(&[OsString]) -> Result<T, clap::Error>,
) -> Option<clap::Error> {
    let options = words.iter().map_while(|word| word.to_str().filter(|word| *word != "--")).count();
    let is_value = |word: &OsString| {
        let after = word.to_str().and_then(|word| word.strip_prefix('-'));
        after.is_some_and(|after| after.starts_with(|c: char| c == '.' || c.is_ascii_digit()))
    };
    let is_option =
        |word: &OsString| word.to_str().is_some_and(|word| word.starts_with('-') && !word.contains('='));
    (1..options).filter(|&at| is_value(&words[at]) && is_option(&words[at - 1])).find_map(|at| {
        let mut whole = words[at - 1].clone();
        // `--for=-1s`, and `-s-1x`.
        whole.push(if words[at - 1].to_string_lossy().starts_with("--") { "=" } else { "" });
        whole.push(&words[at]);
        let joined = [&words[..at - 1], &[whole], &words[at + 1..]].concat();
        let is_of_the_value =
            |e: &clap::Error| matches!(e.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue);
        read(&joined).err().filter(is_of_the_value)
    })
}

/// What other tools' words for it are here.
fn known_elsewhere(word: &str) -> Option<&'static str> {
    Some(match word {
        "withdraw" => "exchange cancel --offer",
        "stop" | "freeze" | "suspend" | "hold" => "pause NAME",
        "continue" | "cont" | "thaw" => "resume NAME",
        "kill" | "quit" | "rm" | "remove" | "release" | "forget" => "detach NAME",
        "status" | "stats" | "list" | "ps" => "ls",
        "limit" | "renice" | "change" => "set NAME",
        "exec" | "start" | "add" => "run",
        "version" => "--version",
        _ => return None,
    })
}

/// Where there is a command of this name, if that is below another.
fn elsewhere(command: &clap::Command, word: &str) -> String {
    let below = |of: &clap::Command| {
        of.find_subcommand(word).map(|found| format!("{} {}", of.get_name(), found.get_name()))
    };
    let found = command.find_subcommand(word).map(|found| found.get_name().to_owned());
    let found = found.or_else(|| command.get_subcommands().find_map(below));
    let found = found.or_else(|| known_elsewhere(word).map(str::to_owned));
    found.map_or_else(String::new, |found| format!("; did you mean 'divvy {found}'?"))
}

/// How that command of this usage is written which takes one client at a time, and was given one word too many.
fn one_at_a_time(usage: &str) -> Option<&'static str> {
    let of = |command: &str| usage.contains(&format!("divvy {command} "));
    if of("set") {
        Some("it takes one client, and its share after it: divvy set NAME 3")
    } else if of("attach") {
        Some("it takes one selector, and the share as an option: divvy attach tree:4711 -s 2")
    } else {
        None
    }
}

/// What is wrong with the arguments, in one line like every other failure.
fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let cause = text.split("\n\n").next().unwrap_or(&text);
    let words: Vec<&str> = cause.split_whitespace().collect();
    let words = words.join(" ");
    let words = words.strip_prefix("error: ").unwrap_or(&words);
    let hint = meant(error);
    format!("{words}{}", if hint.is_empty() { "; see --help" } else { &hint })
}

/// What a misspelt word was meant to be, as [`nearest::hint`] says it.
fn meant(error: &clap::Error) -> String {
    let text = |kind| match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::StyledStr(text) => Some(text.to_string()),
        _ => None,
    };
    // `divvy share -1:true`.
    let is_number =
        |arg: &String| arg.strip_prefix('-').is_some_and(|n| n.starts_with(|c: char| c.is_ascii_digit()));
    let usage = text(ContextKind::Usage).unwrap_or_default();
    if let Some(unknown) =
        text(ContextKind::InvalidArg).filter(|_| error.kind() == ErrorKind::UnknownArgument)
    {
        if usage.contains("divvy share ") && is_number(&unknown) {
            return "; no option is a number, and a share is a whole number from 1 to 1000000".to_owned();
        }
        if usage.contains("divvy share ") && unknown.starts_with('-') && !unknown.starts_with("--") {
            return "; a command of several words is quoted: 2:'make -j4'; see --help for the options"
                .to_owned();
        }
        if let Some(fix) = one_at_a_time(&usage).filter(|_| !unknown.starts_with('-')) {
            return format!("; {fix}");
        }
    }
    if error.kind() == ErrorKind::MissingRequiredArgument && usage.contains("divvy attach ") {
        return "; say whose: divvy attach tree:4711, or name:'make*'; see --help".to_owned();
    }
    // clap guesses a subcommand by its letters, whatever their order, and knows no 'rnu'.
    if let Some(word) = text(ContextKind::InvalidSubcommand) {
        if word.bytes().all(|b| b.is_ascii_digit()) {
            return "; a list is one word, with commas: 3,2,1".to_owned();
        }
        let command = command();
        let within = usage.split_whitespace().skip_while(|word| *word != "divvy").skip(1);
        let within: Vec<&str> =
            within.map_while(|word| Some(word).filter(|word| !word.starts_with(['<', '[']))).collect();
        let is_top = within.is_empty();
        let above =
            within.into_iter().fold(&command, |above, word| above.find_subcommand(word).unwrap_or(above));
        if is_top && known_elsewhere(&word).is_some() {
            return elsewhere(&command, &word);
        }
        let hint = nearest::hint(&word, above.get_subcommands().map(clap::Command::get_name));
        return if hint.is_empty() { elsewhere(&command, &word) } else { hint };
    }
    let guessed = [ContextKind::SuggestedArg, ContextKind::SuggestedValue].into_iter().find_map(text);
    guessed.map_or_else(String::new, |guessed| format!("; did you mean '{guessed}'?"))
}

/// Does what the command line of this process says; the code is for the shell.
pub fn main() -> ExitCode {
    // A file that reaches `ulimit -f` is a file that cannot be written, and not the end of whoever holds others. A handler
    // that does nothing, because commands do not inherit it. What cannot be had is gone without.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    completions::answer_shell();
    divvy_linux::stdio::hand_on_closed();
    let args = match parse(&std::env::args_os().collect::<Vec<_>>()) {
        Ok(args) => args,
        // Help and version are no errors, if they can be read.
        Err(e) if !e.use_stderr() => {
            let lost = divvy_linux::stdio::print_by(|| e.print()).map_err(not_written);
            let Err(Failure { code, text }) = lost else { return ExitCode::SUCCESS };
            tell(format_args!("divvy: {text}"));
            return ExitCode::from(code.number());
        }
        // Who says nothing at all asks what there is to say.
        Err(e) if e.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            tell(e.render());
            return ExitCode::from(Code::Usage.number());
        }
        Err(e) => {
            tell(format_args!("divvy: {}", one_line(&e)));
            return ExitCode::from(Code::Usage.number());
        }
    };
    let schedules = matches!(args.command, args::Command::Share(_));
    let done = match args.command {
        args::Command::Share(args) => share::run(args),
        args::Command::Run(args) => remote::run(&args),
        args::Command::Attach(args) => remote::attach(&args),
        args::Command::Set(args) => remote::set(&args),
        args::Command::Ls(args) => remote::ls(&args),
        args::Command::Detach(args) => remote::detach(&args),
        args::Command::Pause(args) => remote::pause(&args),
        args::Command::Resume(args) => remote::resume(&args),
        args::Command::Explain(args) => remote::explain(&args),
        args::Command::Doctor(args) => remote::doctor(&args),
        args::Command::Currency(args) => market::currency(&args.command),
        args::Command::Fund(args) => market::fund(&args, Kind::Soft),
        args::Command::Reserve(args) => market::fund(&args, Kind::Hard),
        args::Command::Unfund(args) => market::unfund(&args),
        args::Command::Exchange(args) => market::exchange(&args.command),
        args::Command::Nice(args) => market::nice(&args),
        args::Command::Market(args) => market::market(&args.command),
        args::Command::Site(args) => site::run(&args),
        args::Command::Rules(args) => rules::run(&args),
        args::Command::Rescue(args) => rescue::run(&args),
        args::Command::Replay(args) => replay::run(&args),
        args::Command::Plot(args) => plot::run(&args),
        args::Command::Top(args) => top::run(&args),
        args::Command::Usage(args) => usage::run(&args),
        args::Command::Web(args) => web::run(&args),
        args::Command::Sim(args) => sim::run(&args),
        args::Command::Compare(args) => sim::compare::run(&args),
        args::Command::Policies(args) => sim::policies::run(&args),
        args::Command::Completions(args) => completions::run(&args),
    };
    let code = done.unwrap_or_else(|failure| {
        let text = format!("divvy: {}", failure.text);
        if schedules {
            tell_in_time(text)
        } else {
            tell(text)
        }
        failure.code
    });
    ExitCode::from(code.number())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Programs read what divvy says: whatever a command tells, it tells as JSON too.
    #[test]
    fn every_command_has_json() {
        fn check(command: &clap::Command) {
            let has = command.get_arguments().any(|arg| arg.get_long() == Some("json"));
            // One that does nothing without a subcommand tells nothing either.
            assert!(
                has || command.is_subcommand_required_set(),
                "divvy {} has no --json",
                command.get_name()
            );
            command.get_subcommands().for_each(check);
        }
        let command = command();
        assert!(command.get_subcommands().count() >= 25);
        command.get_subcommands().for_each(check);
    }

    #[test]
    fn what_was_meant_is_said_in_one_line() {
        let said = |line: &str| {
            let error = command().try_get_matches_from(line.split(' ')).expect_err(line);
            one_line(&error)
        };
        for (line, text) in [
            ("divvy rnu x", "unrecognized subcommand 'rnu'; did you mean 'run'?"),
            ("divvy currency tre", "unrecognized subcommand 'tre'; did you mean 'tree'?"),
            ("divvy share --qiet 1:x", "unexpected argument '--qiet' found; did you mean '--quiet'?"),
            ("divvy completions bsh", "did you mean 'bash'?"),
            (
                "divvy completions cmd.exe",
                "[possible values: bash, elvish, fish, powershell, zsh]; see --help",
            ),
            ("divvy xyz", "unrecognized subcommand 'xyz'; see --help"),
            (
                "divvy set small big 3",
                "unexpected argument '3' found; it takes one client, and its share after it: divvy set NAME 3",
            ),
            (
                "divvy attach tree:7 tree:8",
                "unexpected argument 'tree:8' found; it takes one selector, and the share as an option: divvy attach tree:4711 -s 2",
            ),
            ("divvy attach 2 tree:8", "the share as an option: divvy attach tree:4711 -s 2"),
            ("divvy tree", "unrecognized subcommand 'tree'; did you mean 'divvy currency tree'?"),
            (
                "divvy exchange withdraw 3",
                "unrecognized subcommand 'withdraw'; did you mean 'divvy exchange cancel --offer'?",
            ),
            ("divvy market ls", "unrecognized subcommand 'ls'; did you mean 'divvy ls'?"),
            ("divvy attach -s 2", "; say whose: divvy attach tree:4711, or name:'make*'; see --help"),
            ("divvy sim --shares 3 2 1", "; a list is one word, with commas: 3,2,1"),
            ("divvy set small --shar 3", "unexpected argument '--shar' found; did you mean '--share'?"),
        ] {
            let said = said(line);
            assert!(said.ends_with(text) && !said.contains('\n'), "{line}: {said}");
        }
    }

    #[test]
    fn a_value_that_begins_with_a_minus_is_seen_as_one() {
        for (line, value, allowed) in [
            ("divvy share --for -1s 1:x", "'-1s' for '--for <TIME>'", "as in 30s, 2m or 500ms"),
            ("divvy share --limit -5% 1:x", "'-5%' for '--limit <[NAME=]LIMIT>'", "write 50% (of one CPU)"),
            ("divvy run --limit -.5% -- x", "'-.5%' for '--limit <LIMIT>'", "write 50% (of one CPU)"),
            ("divvy run -s -5x -- x", "'-5x' for '--share <N>'", "a whole number from 1 to 1000000"),
            ("divvy set x --reserve -5%", "'-5%' for '--reserve <RESERVE>'", "write RESOURCE:VALUE"),
            ("divvy set x -5", "'-5' for '[SHARE]'", "a whole number from 1 to 1000000"),
            ("divvy plot t --from -1s", "'-1s' for '--from <TIME>'", "as in 30s, 2m or 500ms"),
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let said = one_line(&parse(&words).expect_err(line));
            assert!(said.contains(value) && said.contains(allowed), "{line}: {said}");
        }
        // What no option takes is still what it is.
        let words: Vec<OsString> = "divvy share --quiet -5x 1:x".split(' ').map(OsString::from).collect();
        let said = one_line(&parse(&words).expect_err("no such option"));
        assert_eq!(
            said,
            "unexpected argument '-5' found; no option is a number, and a share is a whole number from 1 to 1000000"
        );
    }

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }
}
