//! `divvy-scx`.

use std::process::ExitCode;

use clap::Parser as _;
use divvy_kernel::args::{Args, Command};
use divvy_kernel::failure::say;
use divvy_kernel::{scheduler, status};

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match &args.command {
        Command::Run(args) => scheduler::run(args),
        Command::Check { policy } => scheduler::check(*policy),
        Command::Status { json } => status::status(*json),
        Command::Stats { interval, json } => status::stats(*interval, *json),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say(&failure.to_string());
            ExitCode::from(failure.code)
        }
    }
}
