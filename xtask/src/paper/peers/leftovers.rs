//! What is left behind when whatever controls is killed outright.

use anyhow::Result;
use divvy_linux::cgroup::Survey;
use divvy_linux::{Pid, Signal, clock, procfs};
use divvy_policy::Nanos;
use serde::Serialize;

use super::pack::Pack;
use super::tools::Tool;
use super::{ClientWork, SHARES};

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Killed {
    /// The tool's own processes; nothing, where there are none.
    Tool,
    /// divvy and its guardian at once.
    Both,
    /// The same, and then `divvy rescue` is called.
    BothThenRescue,
}

/// A row of the table.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Left {
    pub(super) tool: &'static str,
    pub(super) killed: &'static str,
    pub(super) clients: usize,
    /// Do not run any more.
    pub(super) standing: usize,
    /// Have another nice value than they began with.
    pub(super) reniced: usize,
    /// Cgroups that were made for them and are still there.
    pub(super) cgroups: usize,
    /// Run, but not in the cgroup that they began in.
    pub(super) moved: usize,
}

/// How long is waited for what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// Before the kill, and after it.
    pub(super) settle: Nanos,
    /// A client that is let run and gets no CPU for so long stands.
    pub(super) look: Nanos,
}

impl Killed {
    const fn name(self, tool: Tool) -> &'static str {
        match (self, tool) {
            (Self::Tool, Tool::Nice | Tool::Weights) => "nothing to kill",
            (Self::Tool, Tool::Cpulimit) => "all cpulimits",
            (Self::Tool, Tool::Minimal) => "the loop",
            (Self::Tool, _) => "divvy",
            (Self::Both, _) => "divvy and its guardian",
            (Self::BothThenRescue, _) => "both; then divvy rescue",
        }
    }
}

fn clocks(clients: &[Pid]) -> Vec<Option<Nanos>> {
    clients.iter().map(|&pid| clock::process_cpu(pid).ok().flatten()).collect()
}

/// Cgroups that bear the name of divvy `pid`, trees and leaves.
fn trees(survey: &Survey, pid: Pid) -> usize {
    let mut grounds: Vec<_> =
        [&survey.freezer, &survey.weights].into_iter().flatten().map(|g| &g.dir).collect();
    grounds.dedup();
    let prefix = format!("divvy-{pid}-");
    let all = grounds.into_iter().filter_map(|dir| std::fs::read_dir(dir).ok()).flatten().flatten();
    let trees = all.filter(|e| e.file_name().to_string_lossy().starts_with(&prefix));
    let leaves = |tree: std::fs::DirEntry| {
        let inside = std::fs::read_dir(tree.path()).into_iter().flatten().flatten();
        inside.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).count() + 1
    };
    trees.map(leaves).sum()
}

/// Kills, waits, and looks.
pub(super) fn look(tool: Tool, killed: Killed, cpu: u32, survey: &Survey, times: Times) -> Result<Left> {
    let mut pack = Pack::new(cpu)?;
    let works = [ClientWork::Spin; SHARES.len()];
    // By limits of 1 % cpulimit has somebody to hold however little of the CPU strangers leave.
    let shares = if tool == Tool::Cpulimit { [1, 1, 98] } else { SHARES };
    let processes = tool.start(&mut pack, &shares, &works, survey)?;
    clock::sleep(times.settle);
    if [Tool::Cpulimit, Tool::Signals, Tool::Minimal].contains(&tool) {
        // At a moment when somebody stands, as somebody nearly always does.
        let clients = pack.clients.clone();
        Pack::wait("somebody to be held", || {
            clients
                .iter()
                .any(|&pid| procfs::stat(pid).ok().flatten().is_some_and(|s| s.state.is_suspended()))
        })?;
    }
    match killed {
        Killed::Tool if tool.backend().is_some() => Pack::signal(processes[0], Signal::KILL),
        Killed::Tool => processes.iter().for_each(|&pid| Pack::signal(pid, Signal::KILL)),
        Killed::Both | Killed::BothThenRescue => {
            // A stopped divvy cannot put another guardian in the place of one that is killed.
            Pack::signal(processes[0], Signal::STOP);
            for &pid in processes.iter().rev() {
                Pack::signal(pid, Signal::KILL);
            }
        }
    }
    let divvy = processes.first().copied();
    clock::sleep(times.settle);
    // On a busy machine a guardian may need longer; it goes when all is done.
    Pack::wait("the guardian's end", || pack.called("divvy-guardian").is_empty())?;
    pack.reap();
    if killed == Killed::BothThenRescue {
        let mut rescue = pack.divvy();
        rescue.arg("rescue");
        rescue.status()?;
    }
    let before = clocks(&pack.clients);
    clock::sleep(times.look);
    let after = clocks(&pack.clients);
    let alive = || before.iter().zip(&after).filter_map(|(a, b)| Some(((*a)?, (*b)?)));
    let own = procfs::cgroup_text("self");
    let nice = |pid: &&Pid| rustix::process::getpriority_process(Some(**pid)).is_ok_and(|nice| nice != 0);
    let left = Left {
        tool: tool.name(),
        killed: killed.name(tool),
        clients: alive().count(),
        standing: alive().filter(|(a, b)| a == b).count(),
        reniced: pack.clients.iter().filter(nice).count(),
        cgroups: pack.groups.iter().filter(|dir| dir.exists()).count()
            + divvy.filter(|_| tool.backend().is_some()).map_or(0, |pid| trees(survey, pid)),
        moved: pack.clients.iter().filter(|&&pid| procfs::cgroup_text(pid) != own).count(),
    };
    if killed == Killed::Both {
        // Whoever stands would stand for ever, and cgroups stay: it is put in order, as a user would have to.
        let mut rescue = pack.divvy();
        rescue.arg("rescue");
        rescue.status()?;
    }
    pack.end()?;
    Ok(left)
}
