//! Namespaces that are a machine: who enters them, its first process, and what runs in it.

use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{WaitOptions, wait};

use super::{Job, PATH, Task, UP, faults, measure, page, quick, scale, site, usage};
use crate::client;

/// The hidden subcommands: outside of the machine, its first process, and what that waits for.
pub(crate) const MACHINE: &str = "cluster-machine";
pub(crate) const INIT: &str = "cluster-init";
pub(crate) const MAIN: &str = "cluster-main";

/// In the machine: divvy's sources, as far as an administrator needs them, with built programs.
pub(super) const SOURCES: &str = "/mnt/sources";

/// A command that is a machine with this job. A `bound` one ends with the process that starts it.
///
/// # Errors
/// Where this program cannot be found.
pub(super) fn command(job: &Job, bound: bool) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("find this program")?);
    let parent = if bound { std::process::id() } else { 0 };
    command.args([MACHINE, &parent.to_string(), &serde_json::to_string(job)?]);
    // What the host's user has set is not the machine's.
    command.env_clear().env("PATH", PATH).env("LANG", "C.UTF-8").current_dir("/");
    if !bound {
        command.process_group(0);
    }
    Ok(command)
}

/// `cluster-machine PARENT JOB`: makes the namespaces. Their first process is killed with this one, which is killed with
/// its parent, where that is to be.
pub(crate) fn enter(mut args: impl Iterator<Item = String>) -> Result<()> {
    let parent = client::number(&mut args, "the parent's pid")?;
    if parent != 0 {
        client::die_with_parent(libc::SIGKILL);
        ensure!(
            u64::from(std::os::unix::process::parent_id()) == parent,
            "whoever wanted a machine has ended"
        );
    } else {
        let _ = rustix::process::setsid();
    }
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc"]);
    let cause =
        unshare.arg(std::env::current_exe().context("find this program")?).arg(INIT).args(args).exec();
    Err(cause).context("start unshare (Debian: apt-get install util-linux)")
}

/// `cluster-init JOB`, the first process: prepares the machine, starts what is to run in it, takes in whoever is left over,
/// and ends with that. Whatever is still there then, the kernel kills.
pub(crate) fn init(mut args: impl Iterator<Item = String>) -> Result<()> {
    let text = args.next().context("the job is missing")?;
    let job: Job = serde_json::from_str(&text).context("understand the job")?;
    let mut sh = Command::new("sh");
    sh.args(["-eu", "-c", include_str!("machine.sh"), "sh"])
        .arg(&job.programs)
        .arg(&job.plugin)
        .arg(&job.sources);
    let status = sh.status().context("start sh")?;
    ensure!(status.success(), "cluster: the machine cannot be prepared: {status}");
    // The path of this program may be hidden by now.
    let main = Command::new("/proc/self/exe")
        .arg0("xtask")
        .args([MAIN, &text])
        .spawn()
        .context("start this program")?;
    let pid = i32::try_from(main.id()).context("a pid")?;
    let status = loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((who, status))) if who.as_raw_nonzero().get() == pid => {
                break ExitStatus::from_raw(status.as_raw());
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e).context("wait for what runs in the machine"),
        }
    };
    std::process::exit(status.code().unwrap_or(1))
}

/// `cluster-main JOB`: a site, and what is to be done with it.
pub(crate) fn main(mut args: impl Iterator<Item = String>) -> Result<()> {
    let text = args.next().context("the job is missing")?;
    let job: Job = serde_json::from_str(&text).context("understand the job")?;
    let with_divvy = !matches!(job.task, Task::Page);
    let nodes = if let Task::Scale(nodes) = job.task { nodes } else { site::NODES.len() as u32 };
    let done = site::Site::start(with_divvy, nodes).and_then(|mut site| {
        println!("{UP}");
        match job.task {
            Task::Quick => quick::run(&mut site),
            Task::Page => page::run(&mut site),
            Task::Faults(suspensions) => faults::run(&mut site, suspensions),
            Task::Measure { quick } => measure::run(&mut site, quick),
            Task::Scale(_) => scale::run(&mut site),
            Task::Usage => usage::run(&mut site),
            Task::Stay => site.stay(),
        }
    });
    done.inspect_err(|_| eprintln!("{}", site::logs()))
}
