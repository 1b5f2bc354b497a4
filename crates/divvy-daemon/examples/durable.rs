//! What the market's store is worth: kills at random moments, and how fast it is.
//!
//! `cargo run --release -p divvy-daemon --example durable -- kill DIR [OPERATIONS [KILLS [SEED]]]`, 100,000 and 1,000 unless
//! told: processes that run the market in DIR under load are killed with signal 9, and everything that they acknowledged
//! has to be there.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use divvy_daemon::market::drill::{self, Plan};

const USAGE: &str = "usage: durable kill DIR [OPERATIONS [KILLS [SEED]]]";

fn number(word: Option<&String>, otherwise: u64) -> Option<u64> {
    word.map_or(Some(otherwise), |word| word.parse().ok())
}

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

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (what, dir) = (words.first().map(String::as_str), words.get(1).map(Path::new));
    match (what, dir, number(words.get(2), 100_000), number(words.get(3), 1000), number(words.get(4), 1)) {
        (Some("child"), Some(dir), Some(seed), ..) => drill::child(dir, seed),
        (Some("kill"), Some(dir), Some(operations), Some(kills), Some(seed)) => {
            kill(dir, operations, kills, seed);
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
