//! `divvy`: divide one machine's CPU among commands in proportion to shares.
//!
//! This crate reads arguments and files, prints, and draws; what it schedules with is in the other crates. It never
//! decides who runs and makes no system call but to print.

mod args;
mod replay;
mod rescue;
mod share;
mod sim;

use std::process::ExitCode;

use clap::Parser as _;

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
    /// A command cannot be started. Nothing is left running.
    NotStarted,
    /// A file cannot be read or written.
    File,
    /// The system refused: a permission, a limit, a failed call.
    System,
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
            Self::File => 4,
            Self::System => 5,
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
            Error::Spawn { .. } => Code::NotStarted,
            Error::Cpu { .. } => Code::Usage,
            _ => Code::System,
        };
        Self::new(code, e)
    }
}

fn main() -> ExitCode {
    let args = args::Args::parse();
    let done = match args.command {
        args::Command::Share(args) => share::run(args),
        args::Command::Rescue(args) => rescue::run(&args),
        args::Command::Replay(args) => replay::run(&args),
        args::Command::Sim(args) => sim::run(&args),
        args::Command::Compare(args) => sim::compare::run(&args),
        args::Command::Policies(args) => sim::policies::run(&args),
    };
    let code = done.unwrap_or_else(|failure| {
        eprintln!("divvy: {}", failure.text);
        failure.code
    });
    ExitCode::from(code.number())
}
