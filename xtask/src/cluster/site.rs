//! The site's daemons: munge, the controller, and nodes with a divvyd each.
//!
//! A node is a mount namespace in the machine: `/run/divvy`, `/var/lib/divvy`, `/etc/divvy` and `/etc/slurm` are its own, so
//! that each has a divvyd where one is looked for, with a policy and a line for the plugin.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

use anyhow::{Context as _, Result, bail, ensure};
use divvy_api::client::Api;
use divvy_linux::{Pid, clock};
use divvy_policy::Nanos;

use super::{PATIENCE, accounting};

/// The nodes that there are if nothing else is asked for.
pub(super) const NODES: [&str; 3] = ["n1", "n2", "n3"];
const CONF: &str = include_str!("slurm.conf");
/// The port of a node's slurmd is so much more than its number.
const PORTS: u32 = 17_000;
const MUNGE: &str = "/run/munge/munge.socket.2";
const LOGS: &str = "/var/log/slurm";
/// Lines of each log that are shown when something went wrong.
const LINES: usize = 25;
/// How long one command may take: none here does more than wait for a job of a few seconds.
const COMMAND: &str = "30";

/// One node.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: String,
    /// Keeps the node's namespace, whatever of it runs.
    anchor: Child,
    slurmd: Option<Child>,
    divvyd: Option<Child>,
}

/// All that runs.
#[derive(Debug)]
pub(super) struct Site {
    nodes: Vec<Node>,
    others: Vec<(&'static str, Child)>,
}

/// Asks again and again until there is an answer.
///
/// # Errors
/// Names `what` there was none of, after a minute, or the question's own.
pub(super) fn eventually<T>(what: &str, mut ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let until = clock::now() + PATIENCE;
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        ensure!(clock::now() < until, "cluster: still without {what} after {} s", PATIENCE.0 / 1_000_000_000);
        clock::sleep(Nanos::from_millis(20));
    }
}

/// A command that is killed where it takes too long.
pub(super) fn bounded(argv: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", COMMAND]).args(argv).stdin(std::process::Stdio::null());
    command
}

/// What it printed.
///
/// # Errors
/// Where it fails, with what it said.
pub(super) fn done(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("start {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}: {}", output.status, said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A command of `user` beside the controller, and what came of it.
pub(super) fn as_user(user: &str, argv: &[&str]) -> Result<Output> {
    let mut command = bounded(&["runuser", "-u", user, "--"]);
    command.args(argv).current_dir("/tmp").output().with_context(|| format!("start {argv:?} as {user}"))
}

/// The end of every log, for whoever wants to know why.
pub(super) fn logs() -> String {
    let mut text = String::from("cluster: the site's logs end with");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(LOGS).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.sort();
    for file in files {
        let log = std::fs::read_to_string(&file).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        text.push_str(&format!("\n== {}\n", file.display()));
        text.push_str(&lines[lines.len().saturating_sub(LINES)..].join("\n"));
    }
    text
}

/// A daemon that stays in the foreground, its words in a log.
pub(super) fn daemon(name: &str, command: &mut Command) -> Result<Child> {
    let path = Path::new(LOGS).join(format!("{name}.out"));
    let log = std::fs::File::create(&path).with_context(|| format!("create {}", path.display()))?;
    let errors = log.try_clone().context("the same file")?;
    command.stdin(std::process::Stdio::null()).stdout(log).stderr(errors).current_dir("/");
    command.spawn().with_context(|| format!("start {name}"))
}

pub(super) fn as_daemon(user: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", user, "--regid", user, "--init-groups", "--"]);
    command
}

/// The one CPU that the nodes' divvyd divide: the last that this machine lends us.
pub(super) fn cpu() -> Result<usize> {
    let set = rustix::thread::sched_getaffinity(None).context("ask for our CPUs")?;
    (0..rustix::thread::CpuSet::MAX_CPU).rev().find(|&cpu| set.is_set(cpu)).context("no CPU is ours")
}

impl Site {
    /// Brings all of it up, with so many nodes, with divvy or without; every node is idle and answers.
    ///
    /// # Errors
    /// What does not start.
    pub(super) fn start(with_divvy: bool, nodes: u32) -> Result<Self> {
        let (conf, names) = (conf(nodes), (1..=nodes).map(|n| format!("n{n}")));
        write("/etc/slurm/slurm.conf", &conf)?;
        write("/etc/slurm/plugstack.conf", "")?;
        if with_divvy {
            install_divvy()?;
        }
        let munged = daemon("munged", as_daemon("munge").args(["munged", "--foreground"]))?;
        eventually("munge's socket", || Ok(Path::new(MUNGE).exists().then_some(())))?;
        let accounting = accounting::start()?;
        let slurmctld = daemon("slurmctld", as_daemon("slurm").args(["slurmctld", "-D"]))?;
        let mut site = Self { nodes: Vec::new(), others: vec![("munged", munged), ("slurmctld", slurmctld)] };
        site.others.extend(accounting);
        for name in names {
            site.nodes.push(Node::start(name, &conf)?);
        }
        for node in &mut site.nodes {
            if with_divvy {
                node.set_plugin("")?;
                node.set_policy("[users.alice]\ncpu = 1000\n\n[users.bob]\ncpu = 3000\n")?;
                node.start_divvyd()?;
            }
        }
        eventually("nodes that are idle", || {
            site.check()?;
            let said = bounded(&["sinfo", "-h", "-N", "-o", "%t"]).output().context("start sinfo")?;
            let said = String::from_utf8_lossy(&said.stdout).into_owned();
            Ok((said.lines().filter(|state| *state == "idle").count() == site.nodes.len()).then_some(()))
        })?;
        Ok(site)
    }

    /// # Errors
    /// Where there is no such node.
    pub(super) fn node(&mut self, name: &str) -> Result<&mut Node> {
        self.nodes.iter_mut().find(|node| node.name == name).with_context(|| format!("no node {name}"))
    }

    /// All nodes, in the order of their numbers.
    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Whether all that was started still runs.
    ///
    /// # Errors
    /// Names who has ended.
    fn check(&mut self) -> Result<()> {
        let others = self.others.iter_mut().map(|(name, child)| (*name, child));
        let slurmds =
            self.nodes.iter_mut().filter_map(|node| Some((node.name.as_str(), node.slurmd.as_mut()?)));
        for (name, child) in others.chain(slurmds) {
            if let Some(status) = child.try_wait().with_context(|| format!("look after {name}"))? {
                bail!("cluster: {name} ended by {status}");
            }
        }
        Ok(())
    }

    /// Kills a daemon of the site's: `slurmctld` or `slurmdbd`.
    ///
    /// # Errors
    /// Where it does not run.
    pub(super) fn kill(&mut self, name: &str) -> Result<()> {
        let at = self.others.iter().position(|(daemon, _)| *daemon == name);
        let (_, child) = self.others.remove(at.with_context(|| format!("cluster: no {name} runs"))?);
        kill_child(&mut Some(child))
    }

    /// Starts slurmctld, which is not running.
    pub(super) fn start_slurmctld(&mut self) -> Result<()> {
        let slurmctld = daemon("slurmctld", as_daemon("slurm").args(["slurmctld", "-D"]))?;
        self.others.push(("slurmctld", slurmctld));
        Ok(())
    }

    /// The same, slurmdbd.
    pub(super) fn start_slurmdbd(&mut self) -> Result<()> {
        let slurmdbd = daemon("slurmdbd", as_daemon("slurm").args(["slurmdbd", "-D"]))?;
        self.others.push(("slurmdbd", slurmdbd));
        Ok(())
    }

    /// Until the machine is ended, or something in it ends by itself.
    ///
    /// # Errors
    /// Names who has ended.
    pub(super) fn stay(mut self) -> Result<()> {
        loop {
            self.check()?;
            clock::sleep(Nanos::from_secs(1));
        }
    }
}

/// Kills a daemon that cannot do anything about it, and waits for it.
fn kill_child(daemon: &mut Option<Child>) -> Result<()> {
    let mut child = daemon.take().context("cluster: that daemon does not run")?;
    child.kill().context("kill a daemon")?;
    child.wait().context("wait for a daemon").map(drop)
}

/// slurm.conf of a site of so many nodes.
fn conf(nodes: u32) -> String {
    CONF.replace("n[1-3]", &format!("n[1-{nodes}]"))
        .replace("[17001-17003]", &format!("[{}-{}]", PORTS + 1, PORTS + nodes))
}

/// divvy and the plugin for whoever is on the site, and a policy.
fn install_divvy() -> Result<()> {
    let programs =
        ["divvy", "divvyd"].map(|name| format!("{}/target/release/{name}", super::machine::SOURCES));
    done(bounded(&["install", "-m", "755"]).args(programs).arg("/usr/local/bin/"))?;
    write("/etc/slurm/plugstack.conf", &plugstack(""))
}

pub(super) fn write(path: &str, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("write {path}"))
}

/// A line of `plugstack.conf` for the plugin, with more arguments.
pub(super) fn plugstack(more: &str) -> String {
    format!("required /usr/local/lib/divvy/spank_divvy.so divvy=/usr/local/bin/divvy {more}\n")
}

impl Node {
    fn start(name: String, conf: &str) -> Result<Self> {
        let own = format!("/mnt/nodes/{name}");
        for dir in ["slurm", "divvy"] {
            std::fs::create_dir_all(format!("{own}/{dir}")).context("create the node's directory")?;
        }
        write(&format!("{own}/slurm/slurm.conf"), conf)?;
        write(&format!("{own}/slurm/plugstack.conf"), "")?;
        let script = "mkdir -p /run/divvy /var/lib/divvy /etc/divvy && mount -t tmpfs -o mode=755 none /run/divvy && \
                      mount -t tmpfs -o mode=700 none /var/lib/divvy && mount --bind \"$1/divvy\" /etc/divvy && \
                      mount --bind \"$1/slurm\" /etc/slurm && exec sleep infinity";
        let mut anchor = Command::new("unshare");
        anchor.args(["--mount", "sh", "-eu", "-c", script, "sh", &own]).process_group(0);
        std::fs::create_dir_all(format!("/var/spool/slurmd/{name}"))
            .context("create the node's directory")?;
        let anchor = daemon(&name, &mut anchor)?;
        let mut node = Self { name, anchor, slurmd: None, divvyd: None };
        node.wait_for_directories()?;
        node.start_slurmd()?;
        Ok(node)
    }

    /// Starts this node's slurmd, in a process group of its own: what ends a job's group ends no other's.
    pub(super) fn start_slurmd(&mut self) -> Result<()> {
        let mut slurmd = Command::new("nsenter");
        slurmd.args(["--mount", "--wd=/", "--target", &self.anchor.id().to_string()]);
        slurmd.args(["slurmd", "-D", "-N", &self.name]).process_group(0);
        self.slurmd = Some(daemon(&format!("slurmd-{}", self.name), &mut slurmd)?);
        Ok(())
    }

    /// Kills this node's slurmd, as a machine that runs out of memory does.
    pub(super) fn kill_slurmd(&mut self) -> Result<()> {
        kill_child(&mut self.slurmd)
    }

    /// As [`kill_slurmd`](Self::kill_slurmd), divvyd.
    pub(super) fn kill_divvyd(&mut self) -> Result<()> {
        kill_child(&mut self.divvyd)
    }

    /// A command on this node.
    pub(super) fn command(&self, argv: &[&str]) -> Command {
        let mut command = bounded(&["nsenter", "--mount", "--wd=/", "--target"]);
        command.arg(self.anchor.id().to_string()).args(argv);
        command
    }

    /// This node's divvyd.
    ///
    /// # Errors
    /// Where it does not answer.
    pub(super) fn api(&self) -> Result<Api> {
        Ok(Api::of_system_at(&self.path("/run/divvy/api.sock"))?)
    }

    /// This node's divvyd, while it runs.
    pub(super) fn divvyd(&self) -> Option<Pid> {
        // nsenter has become it.
        self.divvyd.as_ref().map(Pid::from_child)
    }

    /// A file as this node sees it.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.anchor.id()))
    }

    /// Gives the plugin's line in this node's `plugstack.conf` more arguments: the next task has them.
    pub(super) fn set_plugin(&self, more: &str) -> Result<()> {
        write(&format!("/mnt/nodes/{}/slurm/plugstack.conf", self.name), &plugstack(more))
    }

    /// The node has directories of its own.
    fn wait_for_directories(&self) -> Result<()> {
        eventually("the node's directories", || {
            let own =
                std::fs::read_to_string(format!("/proc/{}/mounts", self.anchor.id())).unwrap_or_default();
            Ok(own.contains(" /etc/slurm ").then_some(()))
        })
    }

    /// Writes the policy of this node's divvyd, which divides one CPU.
    pub(super) fn set_policy(&self, text: &str) -> Result<()> {
        let scheduler = format!("[scheduler]\ncpus = \"{}\"\n", cpu()?);
        write(&format!("/mnt/nodes/{}/divvy/divvyd.toml", self.name), &format!("{text}\n{scheduler}"))
    }

    /// Starts this node's divvyd and waits until it answers.
    ///
    /// # Errors
    /// Where it ends or does not answer.
    pub(super) fn start_divvyd(&mut self) -> Result<()> {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--wd=/", "--target", &self.anchor.id().to_string(), "divvyd", "--system"]);
        let name = format!("divvyd-{}", self.name);
        let mut child = daemon(&name, command.process_group(0))?;
        eventually("an answer of the node's divvyd", || {
            if let Some(status) = child.try_wait().context("look after divvyd")? {
                bail!("cluster: {name} ended by {status}");
            }
            let asked = self.command(&["divvy", "ls", "--system"]).output().context("start divvy")?;
            Ok(asked.status.success().then_some(()))
        })?;
        self.divvyd = Some(child);
        Ok(())
    }

    /// Ends this node's divvyd and waits for it.
    ///
    /// # Errors
    /// Where it cannot be signalled.
    pub(super) fn stop_divvyd(&mut self) -> Result<()> {
        let Some(mut child) = self.divvyd.take() else { return Ok(()) };
        let process = divvy_linux::ProcessRef::open_child(Pid::from_child(&child))?;
        process.signal(divvy_linux::Signal::TERM)?;
        let status = child.wait().context("wait for divvyd")?;
        ensure!(status.success(), "cluster: {}'s divvyd ended by {status}", self.name);
        Ok(())
    }

    /// What of its slurmd's log speaks of divvy.
    pub(super) fn log(&self) -> String {
        let log = std::fs::read_to_string(format!("{LOGS}/slurmd-{}.log", self.name)).unwrap_or_default();
        log.lines().filter(|line| line.contains("divvy: ")).map(|line| format!("{line}\n")).collect()
    }
}
