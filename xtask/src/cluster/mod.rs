//! `cargo xtask cluster`: a site of Slurm on this one machine, to try divvy beside it.
//!
//! *Machine*: namespaces of processes, mounts, network, names (`machine.rs`, `machine.sh`), with copies of `/etc` and
//! directories of its own, so that Slurm's packages work as they are installed and nothing of the host's is touched. The
//! kernel kills everything in it with its first process, and that with the program that made it: nothing is left, however
//! it ends. *Site*: munge, slurmctld, slurmdbd on a MariaDB (`accounting.rs`), and three slurmd with a divvyd each
//! (`site.rs`). *Quick*: what has to hold (`quick.rs`). *Faults*: what has to hold when something breaks (`faults.rs`). *Push*: what fairshare says comes to every node (`push.rs`). *Measure*: numbers for a page (`measure.rs`). *Scale*: many nodes (`scale.rs`). *Usage*: what fairshare charges (`usage.rs`). *Page*: docs/slurm.md, followed (`page.rs`).

mod accounting;
mod faults;
mod machine;
mod measure;
mod page;
mod push;
mod quick;
mod scale;
mod site;
mod usage;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args as ClapArgs, Subcommand};
use divvy_linux::{Pid, ProcessRef, Signal, StartTime, clock};
use divvy_policy::Nanos;

pub(crate) use machine::{INIT, MACHINE, MAIN, enter, init, main};
pub(crate) use measure::{ROW, Row};

use crate::live::Starter;
use crate::{ci, install};

/// Programs that the machine is made of, or runs, and the Debian package of each.
const NEEDED: [(&str, &str); 15] = [
    ("munged", "munge"),
    ("slurmctld", "slurmctld"),
    ("slurmd", "slurmd"),
    ("slurmdbd", "slurmdbd"),
    ("mariadbd", "mariadb-server"),
    ("mariadb-install-db", "mariadb-server"),
    ("srun", "slurm-client"),
    ("make", "make"),
    ("cc", "gcc"),
    ("ip", "iproute2"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("runuser", "util-linux"),
    ("setpriv", "util-linux"),
    ("useradd", "passwd"),
];
const HEADER: &str = "/usr/include/slurm/spank.h";
/// Where programs of the system are, whatever this user's path says.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// What a machine says when all of its site answers.
const UP: &str = "cluster: up";
/// How long a site may take to come up, or to go.
const PATIENCE: Nanos = Nanos::from_secs(60);

#[derive(Clone, Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ClusterArgs {
    /// Bring a site up, check that divvy divides its nodes and fails no job, and take it down: 40 s
    #[arg(long)]
    quick: bool,
    /// Where divvy and divvyd are; built for release if not given
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Bring a site up, and leave it running: a controller, accounting, the nodes n1 to n3 with a divvyd each, users alice, bob, carol
    Up {
        /// Where divvy and divvyd are; built for release if not given
        #[arg(long, value_name = "DIR")]
        programs: Option<PathBuf>,
    },
    /// Run a command as root in the site that is up
    Run {
        /// On this node instead of beside the controller: n1, n2 or n3
        #[arg(long, value_name = "NODE")]
        node: Option<String>,
        /// The command and its arguments
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Take the site down that is up
    Down,
    /// Bring a site up without divvy, follow docs/slurm.md on it, and take it down
    Page {
        /// Where divvy and divvyd are; built for release if not given
        #[arg(long, value_name = "DIR")]
        programs: Option<PathBuf>,
    },
    /// Bring a site up, check that its fairshare charges what jobs used (`divvy site usage`), and take it down: 2 to 3 minutes
    Usage {
        /// Where divvy and divvyd are; built for release if not given
        #[arg(long, value_name = "DIR")]
        programs: Option<PathBuf>,
    },
    /// Bring a site up, break each of its parts, check that jobs, shares and tables survive it, and take it down: 4 minutes
    Faults {
        /// How often a job of 12 processes is suspended
        #[arg(long, value_name = "N", default_value_t = 20)]
        suspensions: u32,
        /// Where divvy and divvyd are; built for release if not given
        #[arg(long, value_name = "DIR")]
        programs: Option<PathBuf>,
    },
    /// Bring a site of many nodes up, each with a job that sleeps, measure how long a change of fairshare takes to be on all of them
    /// and what their divvyd cost, and take it down: 3 minutes for 200
    Scale {
        /// How many nodes: 2 to 500
        #[arg(long, value_name = "N", default_value_t = scale::NODES, value_parser = clap::value_parser!(u32).range(2..=500))]
        nodes: u32,
        /// Where divvy and divvyd are; built for release if not given
        #[arg(long, value_name = "DIR")]
        programs: Option<PathBuf>,
    },
    /// Say whether all is here that a site needs
    Check,
}

/// What the machine's main process is to do.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Job {
    /// The directory of divvy and divvyd.
    programs: PathBuf,
    /// The plugin for Slurm.
    plugin: PathBuf,
    /// What the plugin is made of.
    sources: PathBuf,
    task: Task,
}

#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
enum Task {
    /// Check what has to hold, and end.
    Quick,
    /// Break each of its parts, suspend a job so often, and end.
    Faults(u32),
    /// Have what was used go back to Slurm, and end.
    Usage,
    /// Measure shares, starts and pushes, for a page; in a quick run few of them.
    Measure { quick: bool },
    /// Measure a site of so many nodes, for a page.
    Scale(u32),
    /// Follow the page for administrators, and end.
    Page,
    /// Wait to be ended.
    Stay,
}

/// A machine that stays, as `target/cluster/machine.json` remembers it: the process whose end is its end.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Machine {
    pid: i32,
    start: u64,
}

/// Does what was asked for; the code is that of the command, where one was run.
///
/// # Errors
/// What is missing on this machine, with the fix, or what went wrong.
pub(crate) fn run(args: &ClusterArgs) -> Result<u8> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "cluster: only root makes a machine of namespaces; use sudo"
    );
    match &args.what {
        None if args.quick => through(args.programs.as_deref(), Task::Quick),
        None => bail!("cluster: give --quick, or one of up, run, down, page, usage, faults, scale, check"),
        Some(What::Up { programs }) => up(programs.as_deref()).map(|()| 0),
        Some(What::Run { node, command }) => run_in(node.as_deref(), command),
        Some(What::Down) => down().map(|()| 0),
        Some(What::Page { programs }) => through(programs.as_deref(), Task::Page),
        Some(What::Usage { programs }) => through(programs.as_deref(), Task::Usage),
        Some(What::Faults { programs, suspensions }) => {
            through(programs.as_deref(), Task::Faults(*suspensions))
        }
        Some(What::Scale { programs, nodes }) => through(programs.as_deref(), Task::Scale(*nodes)),
        Some(What::Check) => check_programs().map(|()| 0),
    }
}

fn find(program: &str) -> bool {
    PATH.split(':').any(|dir| Path::new(dir).join(program).is_file())
}

/// # Errors
/// Names the packages that are missing.
fn check_programs() -> Result<()> {
    let mut missing: Vec<&str> =
        NEEDED.into_iter().filter(|(program, _)| !find(program)).map(|(_, package)| package).collect();
    if !Path::new(HEADER).is_file() {
        missing.push("libslurm-dev");
    }
    missing.dedup();
    ensure!(
        missing.is_empty(),
        "cluster: missing here: {}; scripts/setup.sh installs it (Debian: apt-get install {})",
        missing.join(", "),
        missing.join(" ")
    );
    Ok(())
}

/// What goes into the machine: the programs, built if they are not given, and the plugin.
fn prepare(programs: Option<&Path>, task: Task) -> Result<Job> {
    check_programs()?;
    let programs = match programs {
        Some(dir) => {
            let dir = dir.canonicalize().with_context(|| format!("find {}", dir.display()))?;
            for program in ["divvy", "divvyd"] {
                let path = dir.join(program);
                ensure!(
                    path.is_file(),
                    "{}: no such program; cargo build --bin divvy --bin divvyd",
                    path.display()
                );
            }
            dir
        }
        None => {
            install::built("divvyd")?;
            install::built("divvy")?.parent().context("a program is in a directory")?.to_owned()
        }
    };
    let out = dir()?;
    let mut make = Command::new("make");
    make.arg("-s").arg("-C").arg(ci::root().join("contrib/slurm"));
    let made = make.arg(format!("OUT={}", out.display())).status().context("start make")?;
    ensure!(made.success(), "make -C contrib/slurm: {made}");
    Ok(Job { programs, plugin: out.join("spank_divvy.so"), sources: ci::root().join("contrib/slurm"), task })
}

/// Where the plugin is built and a machine that stays is remembered.
fn dir() -> Result<PathBuf> {
    let dir = install::target_dir().join("cluster");
    std::fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
    dir.canonicalize().with_context(|| format!("find {}", dir.display()))
}

/// A machine that comes, does its task and goes.
fn through(programs: Option<&Path>, task: Task) -> Result<u8> {
    let job = prepare(programs, task)?;
    let status = machine::command(&job, true)?.status().context("start the machine")?;
    ensure!(status.code().is_some(), "cluster: the machine ended by {status}");
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// What a site of three nodes, and one of many ([`scale::NODES`], if not `quick`), said while they were measured ([`ROW`]).
///
/// # Errors
/// What is missing on this machine, or went wrong.
pub(crate) fn measured(programs: Option<&Path>, quick: bool, starter: &Starter) -> Result<String> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "cluster: only root makes a machine of namespaces; use sudo"
    );
    let said = measured_by(programs, Task::Measure { quick }, starter)?;
    if quick {
        return Ok(said);
    }
    Ok(said + &measured_by(programs, Task::Scale(scale::NODES), starter)?)
}

fn measured_by(programs: Option<&Path>, task: Task, starter: &Starter) -> Result<String> {
    let job = prepare(programs, task)?;
    let output =
        starter.output_of_namespaces(&mut machine::command(&job, true)?).context("start the machine")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "cluster: the machine ended by {}: {said}", output.status);
    Ok(said)
}

fn up(programs: Option<&Path>) -> Result<()> {
    ensure!(
        running()?.is_none(),
        "cluster: a site is up already; take it down with `cargo xtask cluster down`"
    );
    let job = prepare(programs, Task::Stay)?;
    let dir = dir()?;
    let log = dir.join("log");
    let file = std::fs::File::create(&log).with_context(|| format!("create {}", log.display()))?;
    let errors = file.try_clone().context("the same file")?;
    let mut command = machine::command(&job, false)?;
    let mut child =
        command.stdin(Stdio::null()).stdout(file).stderr(errors).spawn().context("start the machine")?;
    let process = ProcessRef::open_child(Pid::from_child(&child))?;
    let kept = Machine { pid: process.pid().as_raw_nonzero().get(), start: process.start().0 };
    let record = dir.join("machine.json");
    std::fs::write(&record, serde_json::to_vec(&kept)?)
        .with_context(|| format!("write {}", record.display()))?;
    let until = clock::now() + PATIENCE;
    loop {
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        if said.lines().any(|line| line == UP) {
            break;
        }
        if let Some(status) = child.try_wait().context("look after the machine")? {
            bail!("cluster: the machine ended by {status}:\n{said}");
        }
        if clock::now() > until {
            process.signal(Signal::KILL)?;
            child.wait().context("wait for the machine")?;
            bail!("cluster: no site after {} s:\n{said}", PATIENCE.0 / 1_000_000_000);
        }
        clock::sleep(Nanos::from_millis(50));
    }
    println!(
        "cluster: up; try `cargo xtask cluster run -- runuser -u alice -- srun -w n1 --divvy-share=3 hostname`"
    );
    println!(
        "         and `cargo xtask cluster run --node n1 -- divvy ls`; it ends with `cargo xtask cluster down`"
    );
    Ok(())
}

/// The machine that is up.
fn running() -> Result<Option<ProcessRef>> {
    let Ok(text) = std::fs::read_to_string(dir()?.join("machine.json")) else { return Ok(None) };
    let machine: Machine = serde_json::from_str(&text).context("understand machine.json; remove it")?;
    let pid = Pid::from_raw(machine.pid).context("a pid")?;
    Ok(ProcessRef::open_exact(pid, StartTime(machine.start))?)
}

/// The first process of the machine: the only child of the one that made it.
fn first(machine: &ProcessRef) -> Result<Pid> {
    let mut children = Vec::new();
    divvy_linux::procfs::children(machine.pid(), machine.pid(), &mut children)?;
    children.first().copied().context("cluster: the machine has no first process")
}

fn run_in(node: Option<&str>, command: &[String]) -> Result<u8> {
    let machine = running()?.context("cluster: no site is up; bring one up with `cargo xtask cluster up`")?;
    let mut nsenter = Command::new("nsenter");
    nsenter.arg("--target").arg(first(&machine)?.to_string());
    nsenter.args(["--mount", "--pid", "--net", "--uts", "--ipc", "--wd=/"]).env("PATH", PATH);
    if let Some(node) = node {
        ensure!(site::NODES.contains(&node), "cluster: --node {node}: there are {}", site::NODES.join(", "));
        let at = format!("exec nsenter --target \"$(cat /run/slurmd-{node}.pid)\" --mount --wd=/ \"$@\"");
        nsenter.args(["sh", "-c", &at, "sh"]);
    }
    let status = nsenter.args(command).status().context("start nsenter")?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

fn down() -> Result<()> {
    let Some(machine) = running()? else {
        println!("cluster: no site is up");
        return Ok(());
    };
    let first = ProcessRef::open(first(&machine)?)?;
    machine.signal(Signal::KILL)?;
    // The kernel kills the first process after it, and with that all others before it is gone.
    let until = clock::now() + PATIENCE;
    while first.as_ref().is_some_and(|first| first.is_alive().unwrap_or(false)) {
        ensure!(clock::now() < until, "cluster: the machine's first process does not end");
        clock::sleep(Nanos::from_millis(10));
    }
    std::fs::remove_file(dir()?.join("machine.json")).context("forget the machine")?;
    println!("cluster: down");
    Ok(())
}
