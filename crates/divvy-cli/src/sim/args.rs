//! The command lines of `divvy sim`, `compare` and `policies`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};

/// What is simulated: a file, or CPU-bound clients given by their shares.
#[derive(Debug, ClapArgs)]
pub(crate) struct ScenarioArgs {
    /// A scenario in TOML, or JSON if its name ends in .json (see docs/scenario.md)
    #[arg(value_name = "FILE", required_unless_present = "shares")]
    pub(crate) file: Option<PathBuf>,

    /// CPU-bound clients with these shares, in the place of a file: 3,2,1
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with = "file", value_parser = one_share)]
    pub(crate) shares: Vec<u64>,

    /// End after so many quanta (with --shares: one cycle, the sum of shares, if not given)
    #[arg(long, value_name = "N", conflicts_with = "until")]
    pub(crate) quanta: Option<u64>,

    /// End after this simulated time: 30s, 500ms
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<divvy_sim::scenario::Span>,

    /// Length of a quantum (10ms if neither this nor the file says)
    #[arg(long, value_name = "TIME")]
    pub(crate) quantum: Option<divvy_sim::scenario::Span>,

    /// CPUs of the simulated machine
    #[arg(long, value_name = "N")]
    pub(crate) cpus: Option<u32>,

    /// Seed of all random numbers
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
}

fn one_share(text: &str) -> Result<u64, String> {
    text.trim()
        .parse()
        .map_err(|_| format!("'{text}' is no share; expected whole numbers of at least 1, as in 3,2,1"))
}

#[derive(Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    pub(crate) command: Option<SimCommand>,

    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SimCommand {
    /// Vary parameters over a grid, with replications, and sum up
    Sweep(Box<SweepArgs>),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PolicyArgs {
    /// A policy: NAME or NAME:KEY=VALUE,... (`divvy policies` lists them). The file's if not given, else vtrr
    #[arg(long, value_name = "POLICY")]
    pub(crate) policy: Option<String>,

    /// A gate, or a dispatcher as one, above a simulated kernel, in the policy's place: what divvy share would do
    #[arg(long, value_name = "POLICY", conflicts_with = "policy")]
    pub(crate) gate: Option<String>,

    /// Set a parameter of the policy; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) param: Vec<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) scenario: ScenarioArgs,

    #[command(flatten)]
    pub(crate) policy: PolicyArgs,

    /// Print everything as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Print a table with commas: of clients, or of runs
    #[arg(long, value_name = "WHAT", num_args = 0..=1, default_missing_value = "clients", conflicts_with = "json")]
    pub(crate) csv: Option<Csv>,

    #[command(flatten)]
    pub(crate) picture: PictureArgs,

    /// What the picture shows
    #[arg(long, value_name = "KIND", default_value = "gantt")]
    pub(crate) plot: Plot,

    /// Write the runs to FILE for Perfetto or chrome://tracing
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PictureArgs {
    /// Draw a picture to FILE, as SVG
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,

    /// Draw a picture to FILE, as PNG
    #[arg(long, value_name = "FILE")]
    pub(crate) png: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Csv {
    /// A row for each client
    Clients,
    /// A row for each run
    Runs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Plot {
    /// Who ran when
    Gantt,
    /// CPU time received over time
    Service,
    /// Processor shares over time
    Areas,
    /// A measure over two varied keys: refused here with the command that draws it
    #[value(hide = true)]
    Surface,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SweepArgs {
    #[command(flatten)]
    pub(crate) scenario: ScenarioArgs,

    #[command(flatten)]
    pub(crate) policy: PolicyArgs,

    /// A key of the scenario or parameter of the policy, and its values: machine.cpus=1,2,4 or alpha=0.5,1,2. Several
    /// make a grid
    #[arg(long, value_name = "KEY=VALUES")]
    pub(crate) vary: Vec<String>,

    /// Runs of each point, with other seeds
    #[arg(long, value_name = "N")]
    pub(crate) replications: Option<u32>,

    /// Measures to show and draw: response_mean,slowdown
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) measure: Vec<String>,

    /// Print everything as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Print everything as a table with commas
    #[arg(long, conflicts_with = "json")]
    pub(crate) csv: bool,

    #[command(flatten)]
    pub(crate) picture: PictureArgs,

    /// What the picture shows: curves over one key, or a surface over two
    #[arg(long, value_name = "KIND")]
    pub(crate) plot: Option<SweepPlot>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SweepPlot {
    /// Curves over the first key, one for each value of the others
    Lines,
    /// A surface over two keys
    Surface,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    pub(crate) scenario: ScenarioArgs,

    /// Policies, each NAME or NAME:KEY=VALUE,...: vtrr,wfq:tie=id,queue=list,stride
    #[arg(long, value_name = "LIST", required = true)]
    pub(crate) policies: Vec<String>,

    /// Runs of each policy, with other seeds: means and confidence intervals
    #[arg(long, value_name = "N")]
    pub(crate) replications: Option<u32>,

    /// Print everything as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Print a row with commas for each policy and measure
    #[arg(long, conflicts_with = "json")]
    pub(crate) csv: bool,

    #[command(flatten)]
    pub(crate) picture: PictureArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PoliciesArgs {
    /// Everything about this one
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
