//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args as ClapArgs, Parser, Subcommand};

use crate::policy::Policy;

const AFTER: &str = "\
Examples:
  divvy-scx run --policy vtrr --shares shares.toml --for 1m
  divvy-scx run --policy pbs:alpha=2 --weights /     # the cgroups below the root, by their cpu.weight
  divvy-scx stats --interval 1s --json

Exit codes: 0 ended as asked; 1 the kernel ejected the scheduler; 2 the arguments cannot be used; 4 a file cannot be read \
or is not what it should be; 5 the system refused; 6 there is no such process or cgroup, or no divvy-scx that runs";

/// Divides all CPUs of this machine among clients in proportion to shares: a CPU scheduler for the kernel's sched_ext.
#[derive(Debug, Parser)]
#[command(name = "divvy-scx", version, after_help = AFTER)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What there is to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Take over the machine's CPUs until Ctrl-C or SIGTERM; whatever ends this program gives them back to the kernel
    Run(RunArgs),
    /// Which scheduler the kernel has, and whether it is ours
    Status {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Let the kernel's verifier look at the programs of every policy; nothing is scheduled
    Check {
        /// At those of this one alone
        #[arg(long, value_name = "POLICY")]
        policy: Option<Policy>,
    },
    /// What each client got
    Stats {
        /// Over so long; since the start if not given
        #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
        interval: Option<Duration>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

/// What `run` can be told.
#[derive(Debug, ClapArgs)]
#[command(group(ArgGroup::new("clients").required(true).args(["shares", "weights"])))]
pub struct RunArgs {
    /// stride, vtrr, lottery, pbs, las, fcfs or rr, with parameters: vtrr:quantum=20ms, lottery:seed=7,
    /// pbs:alpha=2,beta=-3,gamma=0.07
    #[arg(long, value_name = "POLICY", default_value = "vtrr")]
    pub policy: Policy,
    /// A file that says who the clients are, and their shares; it is read again on SIGHUP
    #[arg(long, value_name = "FILE")]
    pub shares: Option<PathBuf>,
    /// The cgroups in this one are the clients, and their cpu.weight are the shares (/ is the root)
    #[arg(long, value_name = "CGROUP")]
    pub weights: Option<PathBuf>,
    /// The kernel ejects the scheduler if a task waits for longer
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = watchdog)]
    pub watchdog: Duration,
    /// End after so long
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub length: Option<Duration>,
    /// For tests of the way back: after so long the programs are told something impossible, and have to end the scheduler by an error
    #[arg(long, hide = true, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub fault_after: Option<Duration>,
}

/// What the kernel takes.
fn watchdog(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|e| e.to_string())?;
    let allowed = Duration::from_millis(100)..=Duration::from_secs(30);
    if allowed.contains(&time) {
        Ok(time)
    } else {
        Err("must be 100ms to 30s, the kernel's limit".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound() {
        Args::command().debug_assert();
        assert!(Args::try_parse_from(["divvy-scx", "run"]).is_err(), "no clients");
        assert!(
            Args::try_parse_from(["divvy-scx", "run", "--shares", "a", "--weights", "/"]).is_err(),
            "two kinds"
        );
        assert!(Args::try_parse_from(["divvy-scx", "run", "--weights", "/", "--watchdog", "31s"]).is_err());
        assert!(
            Args::try_parse_from(["divvy-scx", "run", "--weights", "/", "--policy", "pbs:alpha=2"]).is_ok()
        );
    }

    #[test]
    fn every_example_can_be_given() {
        let examples: Vec<&str> =
            AFTER.lines().filter_map(|line| line.strip_prefix("  divvy-scx ")).collect();
        assert!(!examples.is_empty());
        for example in examples {
            let words = example.split('#').next().unwrap_or_default().split_whitespace();
            let args = Args::try_parse_from(std::iter::once("divvy-scx").chain(words));
            assert!(args.is_ok(), "{example}: {}", args.unwrap_err());
        }
    }
}
