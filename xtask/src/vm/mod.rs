//! `cargo xtask vm`: a machine of our own, in software, whose kernel has what this one may lack: cgroup v2 with all
//! controllers, and nobody else on it.
//!
//! *Kernel*: a Debian package pinned by version and checksum, unpacked into a cache (`kernel.rs`). *Disk*: none; what goes
//! in is an initial file system made of this program, of divvy and divvyd, of busybox, and of the files that were asked
//! for with the libraries that they need (`image.rs`). *Machine*: qemu (`machine.rs`), in one of four profiles. *Inside*,
//! this program is the first process (`guest.rs`): it mounts, runs one command, and ends the machine with its code. *Small*: a
//! machine that does nothing but work and count, for who divides machines (`small.rs`).

mod guest;
mod image;
mod kernel;
mod machine;
pub(crate) mod small;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args as ClapArgs, Subcommand};

pub(crate) use guest::{INIT, init, load};
use image::Image;
use machine::{Machine, Profile};

#[derive(Debug, Subcommand)]
pub(crate) enum Vm {
    /// Fetch and unpack the kernel, and say whether a machine can be started here
    Fetch,
    /// Run a command in the machine: its output comes out on standard output, and its exit code is this program's
    Run(RunArgs),
    /// A prompt in the machine; `exit` ends it
    Shell(MachineArgs),
    /// Boot the machine and run the tests of cgroups and back ends in it
    Test {
        /// Only those whose names contain one of these
        filter: Vec<String>,
    },
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct MachineArgs {
    /// `deterministic`: one CPU, and time counted in instructions, so that a run can be repeated; `two-cpus-counted`: two that
    /// take turns; `four-cpus-counted`: four; `two-cpus`: two, in real time
    #[arg(long, value_enum, default_value_t = Profile::Deterministic)]
    profile: Profile,
    /// An instruction takes 2^N ns, where they are counted: each step up halves the machine's speed, and the time that a test takes
    /// which measures by the machine's clock
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=8))]
    shift: u8,
    /// Memory in MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(256..=16384))]
    memory: u32,
    /// An empty disk of so many MiB, which the machine finds as /dev/disk/scratch
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=65536))]
    disk: Option<u32>,
    /// Let that disk move no more than so many bytes a second
    #[arg(long, value_name = "BYTES", requires = "disk")]
    disk_rate: Option<u64>,
    /// Leave version 1 of cgroups on: its hierarchies can be mounted in the place of version 2
    #[arg(long)]
    version_one: bool,
    /// Put a file in, at /bin/NAME, with the libraries it needs (repeat for more)
    #[arg(long, value_name = "FILE")]
    add: Vec<PathBuf>,
    /// Put divvy and divvyd in from this directory; they are built if not given
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    machine: MachineArgs,
    /// Take what the command leaves in /out, and put it here
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// A variable of the command's environment (repeat for more)
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Stop the machine after so long
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = humantime::parse_duration)]
    timeout: std::time::Duration,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// What the first process of the machine is to do.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Job {
    /// The command.
    argv: Vec<String>,
    /// Variables beside those that every command gets.
    env: BTreeMap<String, String>,
}

/// Does what was asked for; the code is the command's in the machine.
///
/// # Errors
/// What is missing here, with the fix; a machine that died, with the end of its console.
pub(crate) fn run(vm: &Vm) -> Result<u8> {
    match vm {
        Vm::Fetch => {
            machine::check()?;
            println!("vm: the kernel is in {}", kernel::ready()?.dir.display());
            Ok(0)
        }
        Vm::Run(args) => command(args),
        Vm::Shell(args) => shell(args),
        Vm::Test { filter } => test(filter),
    }
}

fn command(args: &RunArgs) -> Result<u8> {
    let mut env = BTreeMap::new();
    for pair in &args.env {
        let Some((name, value)) = pair.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            bail!("--env {pair}: give NAME=VALUE");
        };
        env.insert(name.to_owned(), value.to_owned());
    }
    let work = Work::new()?;
    let job = Job { argv: args.command.clone(), env };
    let mut machine = prepare(&args.machine, &job, &work)?;
    machine.timeout = Some(machine::nanos(args.timeout));
    machine.out = args.out.clone();
    machine.run(&work.dir)
}

fn shell(args: &MachineArgs) -> Result<u8> {
    let work = Work::new()?;
    // The console becomes the shell's terminal, so that Ctrl-C is for what it runs.
    let line = "exec setsid -c sh -l <>/dev/ttyS0 >&0 2>&1";
    let argv = ["sh", "-c", line].map(str::to_owned).to_vec();
    let mut machine = prepare(args, &Job { argv, env: size_of_terminal() }, &work)?;
    machine.interactive = true;
    eprintln!("vm: `exit` ends the machine, Ctrl-A X kills it");
    machine.run(&work.dir)
}

/// Lines and columns, for the shell's programs: a serial line tells nobody of them.
fn size_of_terminal() -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    if let Ok(size) = rustix::termios::tcgetwinsize(std::io::stdout()) {
        env.insert("LINES".to_owned(), size.ws_row.max(24).to_string());
        env.insert("COLUMNS".to_owned(), size.ws_col.max(80).to_string());
    }
    env
}

/// The tests of this package's `machine` boot the machine themselves.
fn test(filter: &[String]) -> Result<u8> {
    let root = crate::ci::root();
    let mut cargo = crate::ci::cargo(&root);
    cargo.args(["test", "--package", "xtask", "--test", "machine", "--", "--nocapture", "inside_pass"]);
    cargo.env("DIVVY_VM_TESTS", filter.join(" "));
    let status = cargo.status().context("start cargo")?;
    Ok(if status.success() { 0 } else { 1 })
}

/// The machine for `job`, ready to be started.
fn prepare(args: &MachineArgs, job: &Job, work: &Work) -> Result<Machine> {
    machine::check()?;
    let kernel = kernel::ready()?;
    let mut image = Image::new();
    image.base()?;
    image.modules(&kernel)?;
    let own = std::env::current_exe().context("find this program")?;
    image.program(&own, INIT, &work.dir)?;
    image.link("/bin/xtask", INIT);
    let programs = match &args.programs {
        Some(dir) => dir.clone(),
        None => built(&own)?,
    };
    for name in ["divvy", "divvyd"] {
        let program = programs.join(name);
        ensure!(
            program.is_file(),
            "{}: no such program; build it, or leave --programs out",
            program.display()
        );
        image.program(&program, &format!("/bin/{name}"), &work.dir)?;
    }
    for file in &args.add {
        let name = file.file_name().with_context(|| format!("--add {}: no file's name", file.display()))?;
        ensure!(file.is_file(), "--add {}: no such file", file.display());
        image.program(file, &format!("/bin/{}", name.to_string_lossy()), &work.dir)?;
    }
    image.text(guest::JOB, &serde_json::to_vec(job)?, 0o644);
    let initrd = work.dir.join("initrd");
    image.write(&initrd)?;
    Ok(Machine {
        profile: args.profile,
        shift: args.shift,
        memory_mib: args.memory,
        kernel: kernel.image(),
        initrd,
        disk_mib: args.disk,
        disk_rate: args.disk_rate,
        version_one: args.version_one,
        out: None,
        timeout: None,
        interactive: false,
    })
}

/// divvy and divvyd as this program was built, beside it.
pub(crate) fn built(own: &Path) -> Result<PathBuf> {
    let root = crate::ci::root();
    let mut cargo = crate::ci::cargo(&root);
    cargo.args(["build", "--quiet", "--bin", "divvy", "--bin", "divvyd"]);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let status = cargo.status().context("start cargo")?;
    ensure!(status.success(), "cargo build --bin divvy --bin divvyd: {status}");
    Ok(own.parent().context("this program is in no directory")?.to_owned())
}

/// A directory for one machine, removed with it.
struct Work {
    dir: PathBuf,
}

impl Work {
    fn new() -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("divvy-vm-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).with_context(|| format!("create {}", dir.display()))?;
        Ok(Self { dir })
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
