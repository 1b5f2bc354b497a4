//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Parser, Subcommand};

use crate::completions::{self, CompletionsArgs};
use crate::limit::{self, NamedLimit};
use crate::market::args::{CurrencyArgs, ExchangeArgs, FundArgs, MarketArgs, NiceArgs, UnfundArgs};
use crate::plot::PlotArgs;
use crate::remote::args::{AttachArgs, ClientArgs, DoctorArgs, ExplainArgs, LsArgs, RunArgs, SetArgs};
use crate::remote::group::{self, GroupArg};
use crate::rules::RulesArgs;
use crate::share::{BackendArg, TraceFormat};
use crate::sim::args::{CompareArgs, PoliciesArgs, SimArgs};
use crate::site::SiteArgs;
use crate::top::TopArgs;
use crate::usage::UsageArgs;
use crate::web::WebArgs;
use divvy_api::time;

/// Divide one machine's CPU among programs in proportion to shares, with or without privilege.
#[derive(Debug, Parser)]
#[command(name = "divvy", version)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Divide the CPU among commands, and processes that run already, by share
    Share(Box<ShareArgs>),
    /// Run a command as a client of the scheduler: the system's, or your own, which is started if need be
    Run(RunArgs),
    /// Make a client of processes that run already: a pid, a tree, a user, a cgroup, a name
    Attach(AttachArgs),
    /// Give a client another share, at any moment
    Set(SetArgs),
    /// List the clients: shares requested, effective and achieved
    Ls(LsArgs),
    /// Let a client go: its processes run on undivided
    Detach(ClientArgs),
    /// Hold a client until it is resumed; its share goes to the others
    Pause(ClientArgs),
    /// Let a paused client run again
    Resume(ClientArgs),
    /// Say what would be done with a process, and why
    Explain(ExplainArgs),
    /// Say what this machine permits, and how to get more
    Doctor(DoctorArgs),
    /// Currencies of the system's market: make, list, draw, change and end them
    Currency(CurrencyArgs),
    /// Give a currency or client a share of what another currency has: a soft ticket
    Fund(FundArgs),
    /// Give a currency or client a fixed part of what another currency has: a hard ticket
    Reserve(FundArgs),
    /// Take a ticket away from whoever holds it
    Unfund(UnfundArgs),
    /// Exchange rights to one resource for rights to another
    Exchange(ExchangeArgs),
    /// Give a client a small share of its own, so that it stays small when others of yours sleep
    Nice(NiceArgs),
    /// Where values come from, who did what, and who may issue base tickets
    Market(MarketArgs),
    /// A site's accounts and users, as Slurm keeps them, as currencies of this node's market
    Site(SiteArgs),
    /// Who used how much: write it down, report it, and tell whoever uses far more than its share
    Usage(UsageArgs),
    /// Your rules: which processes get which share and limit by themselves, kept in a file
    Rules(RulesArgs),
    /// Resume what a divvy that was killed together with its guardian left suspended
    Rescue(RescueArgs),
    /// Feed a recorded trace to its policy anew and compare every decision
    Replay(ReplayArgs),
    /// Draw a recorded trace: CPU time received, the error of each cycle, and who was released when
    Plot(PlotArgs),
    /// Watch the clients of the running divvy, and change their shares; or watch a recorded trace
    Top(TopArgs),
    /// Show the clients, their history and the market on a page in your browser, and change them there
    Web(WebArgs),
    /// Simulate a scenario, or shares given here, under a policy
    Sim(Box<SimArgs>),
    /// Simulate one scenario under several policies, side by side
    Compare(Box<CompareArgs>),
    /// List the policies: what each does, its parameters and its paper
    Policies(PoliciesArgs),
    /// Print a script that completes divvy's command line in a shell
    Completions(CompletionsArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ShareArgs {
    /// A share (1 to 1000000) and a command for the shell, 2:'make -j4', or what runs already: 1:@tree:123, 1:@user:bob
    /// (pid, tree, group, session, user, name, cgroup, command, below). With a name before it, if it is to be called by one: build=2:'make -j4'
    #[arg(value_name = "[NAME=]SHARE:COMMAND", required_unless_present = "file")]
    pub(crate) tasks: Vec<String>,

    /// More tasks, from a TOML file (see docs/tasks.md)
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    /// The most CPU time that a task may have, however idle the CPUs are: 50% (of ONE CPU) or 1.5 (CPUs), for its whole tree,
    /// in each window of 100 ms. NAME=50% for one task, by its name in the table; without a name, for each that has none
    /// of its own. Can be given several times (docs/limits.md)
    #[arg(long, value_name = "[NAME=]LIMIT", value_parser = limit::parse_named)]
    pub(crate) limit: Vec<NamedLimit>,

    /// Have your own divvyd divide the tasks together with all its other clients (divvy run, attach): as clients of this group, by
    /// their shares. NAME, NAME/NAME for a group within a group, or NAME=3 to give the group that share; it is made if it is not
    /// there, with the share 1. Who is held when, and by what, is divvyd's to decide then (docs/share.md)
    #[arg(long, value_name = "NAME[=SHARE]", value_parser = group::parse, add = completions::groups(),
        conflicts_with_all = ["policy", "quantum", "backend", "slice", "presence", "period", "unscaled", "trace"])]
    pub(crate) group: Option<GroupArg>,

    /// Have the system's divvyd divide the tasks together with all its other clients: paid by this currency, by their shares, as
    /// `divvy run --from` has it for one command. Who is held when, and by what, is divvyd's to decide then (docs/market.md)
    #[arg(long, value_name = "CURRENCY",
        conflicts_with_all = ["group", "policy", "quantum", "backend", "slice", "presence", "period", "unscaled", "trace"])]
    pub(crate) from: Option<String>,

    /// End after this time: 30s, 2m, 500ms. Without it, divvy ends with its last command
    #[arg(long = "for", value_name = "TIME", value_parser = time::parse)]
    pub(crate) time: Option<Duration>,

    /// CPU time of one share in one cycle (rate: time between decisions; dispatchers: of one slice), 1ms to 10s. Where it is
    /// not given, shares such as 997 and 1009 get less, so that a cycle is no longer than a second [default: 10ms]
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) quantum: Option<Duration>,

    /// Who decides: NAME or NAME:KEY=VALUE,... A gate (exact, alps, alps-basic, rate) or a dispatcher (fcfs, las,
    /// pbs:alpha=2, vtrr, lottery:seed=7, ...); `divvy policies` lists them [default: exact]
    #[arg(long, value_name = "POLICY")]
    pub(crate) policy: Option<String>,

    /// By what clients are held or weighed: signals (SIGSTOP), freezer (cgroup.freeze), cgroup (the kernel's CPU weights,
    /// without a policy), auto: the best of them that there is, or idle: signals, and cpu.idle beside sleepers (docs/backends.md)
    /// [default: idle where a cgroup is ours, else signals]
    #[arg(long, value_name = "BACKEND")]
    pub(crate) backend: Option<BackendArg>,

    /// CPUs that the commands may use: 0,2-3. All that divvy itself may use if not given. NAME=0,2 for one task, by its name in
    /// the table: of those that are divided, where the kernel divides (--backend cgroup). Can be given several times
    #[arg(long, value_name = "[NAME=]LIST")]
    pub(crate) cpus: Vec<String>,

    /// Longest run in one go (exact): even inside the cycle, for more signals
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) slice: Option<Duration>,

    /// Commands released for each CPU at a time (exact): how many strangers compete with [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) presence: Option<u32>,

    /// Time after which the past is forgotten (rate) [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) period: Option<Duration>,

    /// Do not divide the shares by their greatest common divisor (exact, alps): 10:20 has ten times the cycle of 1:2
    #[arg(long)]
    pub(crate) unscaled: bool,

    /// Leave the commands, and the scheduler with them, in this terminal's session. They can open /dev/tty then, but if divvy
    /// is killed outright the kernel hangs up on those that stand held, and other work in the terminal disturbs it more
    #[arg(long)]
    pub(crate) keep_terminal: bool,

    /// Time between SIGTERM and SIGKILL at the end
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time::parse)]
    pub(crate) grace: Duration,

    /// Write the report (JSON, docs/report.schema.json) to FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,

    /// Record every event and decision in FILE, for divvy replay, plot and top
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,

    /// What the trace is written as
    #[arg(long, value_name = "FORMAT", default_value = "lines", requires = "trace")]
    pub(crate) trace_format: TraceFormat,

    /// Print the report as JSON on standard output instead of the table
    #[arg(long)]
    pub(crate) json: bool,

    /// Begin each line that a command prints with the command's name, as `build | ok`; coloured on a terminal
    #[arg(long)]
    pub(crate) tag: bool,

    /// No table and no summary
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct RescueArgs {
    /// Print what was done as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ReplayArgs {
    /// A file that `divvy share --trace` wrote
    #[arg(value_name = "FILE")]
    pub(crate) trace: PathBuf,

    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
