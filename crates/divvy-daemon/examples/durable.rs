//! What the market's store is worth: kills at random moments, and how fast it is.
//!
//! `cargo run --release -p divvy-daemon --example durable -- kill DIR [OPERATIONS [KILLS [SEED]]]`, 100,000 and 1,000 unless
//! told: processes that run the market in DIR under load are killed with signal 9, and everything that they acknowledged
//! has to be there.
//!
//! `durable load DIR [SECONDS [ASKERS]]`: how many requests the market's thread answers, 10 s and 64 unless told.
//!
//! `durable snapshot DIR [TICKETS]`: how long a snapshot takes, of 1,000,000 unless told.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use divvy_daemon::market::drill::{self, Plan};

const USAGE: &str = "usage: durable kill DIR [OPERATIONS [KILLS [SEED]]]
       durable load DIR [SECONDS [ASKERS]]
       durable snapshot DIR [TICKETS]";

fn kill(dir: &Path, operations: u64, kills: u64, seed: u64) {
    let program = std::env::current_exe().expect("this program's path");
    let plan = Plan { operations, kills, seed, life: Duration::from_millis(150) };
    let report = drill::drill(dir, plan, |seed| {
        let mut command = Command::new(&program);
        command.arg("child").arg(dir).arg(seed.to_string());
        command
    });
    println!("{report:#?}");
    println!("everything acknowledged was there, and nothing by halves");
}

fn load(dir: &Path, seconds: u64, askers: u64) {
    let answered = drill::load(dir, u32::try_from(askers).unwrap_or(u32::MAX), Duration::from_secs(seconds));
    let rate = answered.requests as f64 / answered.took.as_secs_f64();
    println!("{answered:#?}\n{rate:.0} requests a second");
}

fn snapshot(dir: &Path, tickets: u64) {
    for (what, value) in drill::snapshot(dir, u32::try_from(tickets).unwrap_or(u32::MAX)) {
        println!("{value:>12.3} {what}");
    }
}

/// The words after the directory as numbers, and these where there are none; `None` where one is no number.
fn numbers<const N: usize>(words: &[String], otherwise: [u64; N]) -> Option<[u64; N]> {
    let mut numbers = otherwise;
    for (number, word) in numbers.iter_mut().zip(words) {
        *number = word.parse().ok()?;
    }
    (words.len() <= N).then_some(numbers)
}

fn done(words: &[String]) -> Option<()> {
    let (what, dir) = (words.first()?, Path::new(words.get(1)?));
    let rest = &words[2..];
    match what.as_str() {
        "child" => numbers(rest, [1]).map(|[seed]| drill::child(dir, seed)),
        "kill" => numbers(rest, [100_000, 1000, 1])
            .map(|[operations, kills, seed]| kill(dir, operations, kills, seed)),
        "load" => numbers(rest, [10, 64]).map(|[seconds, askers]| load(dir, seconds, askers)),
        "snapshot" => numbers(rest, [1_000_000]).map(|[tickets]| snapshot(dir, tickets)),
        _ => None,
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if done(&words).is_some() {
        return ExitCode::SUCCESS;
    }
    eprintln!("{USAGE}");
    ExitCode::from(2)
}
