//! `cargo xtask`: checks, manual pages, installation, the papers' experiments over live processes, and a machine for tests.
//!
//! This program never decides who runs: it starts workloads, lets divvy's engine divide the CPU among them, and
//! writes down what came of it.

mod ci;
mod client;
mod cluster;
mod crowd;
mod dist;
mod install;
mod live;
mod man;
mod paper;
mod vm;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args as ClapArgs, Parser, Subcommand};

/// What the project does to itself.
#[derive(Debug, Parser)]
#[command(name = "xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a paper's experiments, over live processes or simulated, and write docs/results
    Paper {
        /// Which paper
        #[command(subcommand)]
        paper: Paper,
    },
    /// Run a scenario in JSON and print what it took and what came of it, for scripts/peers/simulators.py
    TimeScenario {
        /// The scenario
        file: PathBuf,
    },
    /// Check everything: format, lints, documentation, purity, tests
    Ci,
    /// Write manual pages and shell completions of divvy
    Man {
        /// Where to
        #[arg(long, value_name = "DIR", default_value = "target/man")]
        out: PathBuf,
    },
    /// A virtual machine with cgroup v2, for tests and experiments that need a kernel of their own
    Vm {
        /// What to do with it
        #[command(subcommand)]
        vm: vm::Vm,
    },
    /// A site of Slurm on this machine, in namespaces: three nodes with a divvyd each (root)
    Cluster(cluster::ClusterArgs),
    /// Make what users install: an archive of static programs, and a Debian package
    Dist(dist::DistArgs),
    /// Install divvy with its manual pages and completions
    Install(install::InstallArgs),
}

#[derive(Debug, Subcommand)]
enum Paper {
    /// ALPS: Table 1 (accuracy and overhead), Fig. 9 (I/O), Table 3 (several schedulers), Figs 11-12 (scale)
    Alps(PaperArgs),
    /// Clients of many processes: users, thousands of processes, a fork storm, several schedulers, requests under load
    Groups(PaperArgs),
    /// superd: section 4 (accuracy of the rate policy), Figs 2-4
    Superd(PaperArgs),
    /// VTRR: worked examples, Figs 1-2 (error surfaces), Fig. 3 (cost of choosing), Figs 4-6 (one second), simulated
    Vtrr(PaperArgs),
    /// PBS: Figs 2-3 (processor shares), the eleven properties, groups A, B, C, and queueing theory, simulated
    Pbs(PaperArgs),
    /// No paper: cpulimit, nice, kernel weights and divvy's back ends on the same work; what kill -9 leaves
    Peers(PaperArgs),
    /// Isolation with Flexibility: Fig. 6 and section 3.2 over live processes of three users (root), and the library's speed
    Market(PaperArgs),
    /// Isolation with Flexibility: Figs 7-11 (memory, disks, exchanges), by the kernel in the test machine
    Isolation(PaperArgs),
    /// Several CPUs: threads, trees, sleepers and strangers on two CPUs, live; 4 to 64 CPUs, simulated
    Cpus(PaperArgs),
    /// VTRR, PBS and the lottery as the kernel's scheduler, through sched_ext, in the test machine
    Kernel(PaperArgs),
    /// No paper: real programs beside one that computes, under divvy, the kernel's weights and cpulimit (root)
    Real(paper::real::RealArgs),
    /// ALPS's and VTRR's services, of today: web servers and databases of three users under load, audio encoders, tests, virtual machines (root)
    Services(PaperArgs),
    /// No paper: divvy beside Slurm, on a site of three nodes in namespaces: shares, starts, changes of fairshare (root)
    Cluster(PaperArgs),
}

#[derive(Clone, Debug, ClapArgs)]
struct PaperArgs {
    /// Fewer and shorter runs: about two minutes
    #[arg(long)]
    quick: bool,
    /// Where the page, the data and the plots go
    #[arg(long, value_name = "DIR", default_value = "docs/results")]
    out: PathBuf,
    /// Runs on one CPU that are made at the same time, each on a CPU of its own; as many as there are CPUs at the most
    #[arg(long, value_name = "N", default_value_t = 2)]
    lanes: usize,
    /// Only the parts whose names contain this, or one of several between commas
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Where divvy and divvyd are, for alps, groups, market, real, services and kernel (and divvy-scx, for kernel); built for release if not given
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// Take what machines of an earlier run came to, of the same programs and studies, and make the rest (kernel)
    #[arg(long)]
    resume: bool,
}

fn main() -> ExitCode {
    // What this program starts copies of itself as comes first: it shall not cost the time of a command line's parser.
    let mut args = std::env::args();
    let name = args.next();
    if name.as_deref() == Some(paper::peers::DIVVY) {
        return divvy_cli::main(); // A tool among its peers, in this very build.
    }
    if name.as_deref() == Some(paper::cpus::DIVVYD) {
        client::die_with_parent(libc::SIGTERM);
        return divvy_daemon::main();
    }
    if name.as_deref() == Some(vm::INIT) && std::process::id() == 1 {
        vm::init();
    }
    let done = match args.next().as_deref() {
        Some(client::SPIN) => client::spin(args),
        Some(client::IO) => client::io(args),
        Some(client::THREADS) => client::threads(args),
        Some(client::TREE) => client::tree(args),
        Some(crowd::CROWD) => crowd::live(args),
        Some(cluster::MACHINE) => cluster::enter(args),
        Some(cluster::INIT) => cluster::init(args),
        Some(cluster::MAIN) => cluster::main(args),
        Some(live::STRANGERS) => live::keep_strangers(args),
        Some(live::RUN) => live::serve_run(),
        Some(live::LOOP) => live::minimal_loop(args),
        Some(paper::real::REAL) => paper::real::work(args),
        Some(paper::services::TURNS) => paper::services::turns(args),
        Some(paper::isolation::TASK) => paper::isolation::task(args),
        Some(paper::kernel::STUDY) => paper::kernel::study(),
        Some(paper::peers::CLIENT) => paper::peers::client(args),
        _ => return end(dispatch(Args::parse())),
    };
    end(done.map(|()| ExitCode::SUCCESS))
}

fn end(done: anyhow::Result<ExitCode>) -> ExitCode {
    match done {
        Ok(code) => code,
        Err(e) => {
            eprintln!("xtask: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(args: Args) -> anyhow::Result<ExitCode> {
    let done = match args.command {
        Command::Vm { vm } => return Ok(ExitCode::from(vm::run(&vm)?)),
        Command::Cluster(args) => return Ok(ExitCode::from(cluster::run(&args)?)),
        Command::Paper { paper: Paper::Alps(args) } => paper::alps::run(&args),
        Command::Paper { paper: Paper::Groups(args) } => paper::groups::run(&args),
        Command::Paper { paper: Paper::Superd(args) } => paper::superd::run(&args),
        Command::Paper { paper: Paper::Vtrr(args) } => paper::vtrr::run(&args),
        Command::Paper { paper: Paper::Pbs(args) } => paper::pbs::run(&args),
        Command::Paper { paper: Paper::Peers(args) } => paper::peers::run(&args),
        Command::Paper { paper: Paper::Market(args) } => paper::market::run(&args),
        Command::Paper { paper: Paper::Isolation(args) } => paper::isolation::run(&args),
        Command::Paper { paper: Paper::Cpus(args) } => paper::cpus::run(&args),
        Command::Paper { paper: Paper::Kernel(args) } => paper::kernel::run(&args),
        Command::Paper { paper: Paper::Real(args) } => paper::real::run(&args),
        Command::Paper { paper: Paper::Services(args) } => paper::services::run(&args),
        Command::Paper { paper: Paper::Cluster(args) } => paper::cluster::run(&args),
        Command::TimeScenario { file } => paper::pbs::time_scenario(&file),
        Command::Ci => ci::run(),
        Command::Man { out } => man::run(&out),
        Command::Install(args) => install::run(&args),
        Command::Dist(args) => dist::run(&args),
    };
    done.map(|()| ExitCode::SUCCESS)
}
