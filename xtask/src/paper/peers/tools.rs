//! What divides: cpulimit, nice, the kernel's weights by hand, and divvy with each back end.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use divvy_linux::Pid;
use divvy_linux::cgroup::{Enable, Ground, Survey};
use divvy_policy::Nanos;

use super::ClientWork;
use super::pack::Pack;
use crate::live::LOOP;

/// A tool, in the order of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tool {
    Cpulimit,
    Nice,
    Weights,
    Signals,
    Freezer,
    Cgroup,
    /// The least that divides by suspending, as a floor.
    Minimal,
}

pub(super) const TOOLS: [Tool; 7] =
    [Tool::Cpulimit, Tool::Nice, Tool::Weights, Tool::Signals, Tool::Freezer, Tool::Cgroup, Tool::Minimal];
/// The quantum of the minimal loop: as divvy's.
const QUANTUM: Nanos = Nanos::from_millis(10);

/// The weights of nice 0 to 19 in the kernel's table (`sched_prio_to_weight`).
const NICE_WEIGHTS: [u64; 20] =
    [1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87, 70, 56, 45, 36, 29, 23, 18, 15];

/// The nice values that come closest to `shares`: the largest is nice 0.
pub(super) fn nice_values(shares: &[u64]) -> Vec<i32> {
    let most = shares.iter().copied().max().unwrap_or(1).max(1);
    let nearest = |share: u64| {
        let off = |n: &usize| {
            // The level whose ratio to the wanted weight is nearest to 1.
            let wanted = share as f64 / most as f64 * NICE_WEIGHTS[0] as f64;
            (NICE_WEIGHTS[*n] as f64 / wanted).ln().abs()
        };
        (0..NICE_WEIGHTS.len()).min_by(|a, b| off(a).total_cmp(&off(b))).unwrap_or(0) as i32
    };
    shares.iter().map(|&share| nearest(share)).collect()
}

/// Percent of a CPU for each client, at least 1.
pub(super) fn limits(shares: &[u64]) -> Vec<u64> {
    let all: u64 = shares.iter().sum();
    shares.iter().map(|share| ((share * 100 + all / 2) / all.max(1)).max(1)).collect()
}

impl Tool {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Cpulimit => "cpulimit",
            Self::Nice => "nice",
            Self::Weights => "weights by hand",
            Self::Signals => "divvy signals",
            Self::Freezer => "divvy freezer",
            Self::Cgroup => "divvy cgroup",
            Self::Minimal => "minimal loop",
        }
    }

    /// The back end, where it is divvy.
    pub(super) const fn backend(self) -> Option<&'static str> {
        match self {
            Self::Signals => Some("signals"),
            Self::Freezer => Some("freezer"),
            Self::Cgroup => Some("cgroup"),
            _ => None,
        }
    }

    /// Why it cannot be had on this machine, if it cannot.
    pub(super) fn missing(self, survey: &Survey) -> Option<String> {
        match self {
            Self::Cpulimit => {
                let mut command = Command::new("cpulimit");
                let started = command.arg("--help").stdout(Stdio::null()).stderr(Stdio::null()).status();
                started.is_err().then(|| "cpulimit is not installed: run scripts/setup.sh".to_owned())
            }
            Self::Nice | Self::Signals | Self::Minimal => None,
            Self::Freezer => survey.freezer.as_ref().err().cloned(),
            Self::Cgroup => survey.weights.as_ref().err().cloned(),
            Self::Weights => match &survey.weights {
                Err(why) => Some(why.clone()),
                Ok(ground) => (ground.enable == Enable::MoveAndControl)
                    .then(|| "this program would have to leave its cgroup".to_owned()),
            },
        }
    }

    /// Starts the clients with this tool over them: its processes, divvy's scheduler first, with its guardian.
    pub(super) fn start(
        self,
        pack: &mut Pack,
        shares: &[u64],
        works: &[ClientWork],
        survey: &Survey,
    ) -> Result<Vec<Pid>> {
        let mut processes = Vec::new();
        if let Some(backend) = self.backend() {
            let mut divvy = pack.divvy();
            let cpu = pack.cpu.to_string();
            divvy.args(["share", "--quiet", "--grace", "1s", "--backend", backend, "--cpus", &cpu]);
            for (i, (share, work)) in shares.iter().zip(works).enumerate() {
                divvy.arg(format!("{share}:{}", pack.shell(i, *work)));
            }
            let front = pack.spawn_divvy(divvy)?;
            pack.meet(shares.len())?;
            // The scheduler, which is what holds clients; its guardian; and the front end, which starts the scheduler.
            processes.extend(pack.called("divvy-scheduler"));
            processes.extend(pack.called("divvy-guardian"));
            processes.extend(pack.called("divvy-listener"));
            processes.push(front);
            return Ok(processes);
        }
        pack.start_clients(works)?;
        pack.meet(shares.len())?;
        match self {
            Self::Cpulimit => {
                for (client, percent) in pack.clients.clone().into_iter().zip(limits(shares)) {
                    let mut command = pack.command("cpulimit");
                    command.args(["-p", &client.to_string(), "-l", &percent.to_string()]);
                    processes.push(pack.spawn(command)?);
                }
            }
            Self::Nice => {
                for (&client, nice) in pack.clients.iter().zip(nice_values(shares)) {
                    rustix::process::setpriority_process(Some(client), nice).context("renice a client")?;
                }
            }
            Self::Minimal => {
                let clients = pack.clients.iter().zip(shares).map(|(pid, share)| format!("{share}:{pid}"));
                let clients: Vec<String> = clients.collect();
                let mut command = pack.this_program();
                let numbers = [u64::from(std::process::id()), QUANTUM.0].map(|n| n.to_string());
                command.arg(LOOP).args(numbers).args(clients);
                processes.push(pack.spawn(command)?);
            }
            _ => match &survey.weights {
                Ok(ground) => by_hand(ground, pack, shares)?,
                Err(why) => bail!("{why}"),
            },
        }
        Ok(processes)
    }
}

/// Puts each client into a cgroup with a weight, as an administrator would.
fn by_hand(ground: &Ground, pack: &mut Pack, shares: &[u64]) -> Result<()> {
    let root = ground.dir.join(format!("peers-{}", std::process::id()));
    let write = |path: PathBuf, text: &str| {
        std::fs::write(&path, text).with_context(|| format!("write {text} to {}", path.display()))
    };
    pack.make_group(&root)?;
    if ground.enable == Enable::Control {
        write(ground.dir.join("cgroup.subtree_control"), "+cpu")?;
    }
    if ground.knob == divvy_linux::cgroup::Knob::Weight {
        write(root.join("cgroup.subtree_control"), "+cpu")?;
    }
    let (low, high) = ground.knob.range();
    for (i, (&client, share)) in pack.clients.clone().iter().zip(shares).enumerate() {
        let dir = root.join(i.to_string());
        pack.make_group(&dir)?;
        let weight = (share * ground.knob.ordinary()).clamp(low, high);
        write(dir.join(ground.knob.file()), &weight.to_string())?;
        write(dir.join("cgroup.procs"), &client.to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nice_values_are_the_nearest() {
        // 1/3 of 1024 is 341: nice 5 has 335. 2/3 is 683: nice 2 has 655. 1/10 is 102: nice 10 has 110.
        assert_eq!(nice_values(&[1, 2, 3]), [5, 2, 0]);
        assert_eq!(nice_values(&[1, 10]), [10, 0]);
        assert_eq!(nice_values(&[1, 1, 4]), [6, 6, 0]);
    }

    #[test]
    fn limits_are_percentages() {
        assert_eq!(limits(&[1, 2, 3]), [17, 33, 50]);
        assert_eq!(limits(&[1, 10]), [9, 91]);
        assert_eq!(limits(&[1, 1000]), [1, 100]);
    }
}
