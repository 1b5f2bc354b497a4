//! The command lines of what talks to divvyd.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgGroup, Args as ClapArgs};
use divvy_api::types::{Bounds, NewClient};
use divvy_linux::CpuMask;

use super::group::{self, GroupArg};
use super::which::{self, Ask, Which};
use crate::bounds::{self, Limits, Reserve};
use crate::{Failure, completions, cpus, limit};

/// What a new client is to have.
#[derive(Debug, ClapArgs)]
pub(crate) struct Terms {
    /// Its share, 1 to 1000000
    #[arg(long, short, value_name = "N", default_value_t = 1, value_parser = limit::parse_share)]
    pub(crate) share: u64,

    /// The most that it may have, all its processes together, however idle the rest is: of CPU time 50% (of ONE CPU) or 1.5 (CPUs) in
    /// each window of 100 ms; with --backend cgroup also cpu:1.5,memory:2G,disk:10M, the last a second (docs/limits.md)
    #[arg(long, value_name = "LIMIT", value_parser = bounds::parse_limits)]
    pub(crate) limit: Option<Limits>,

    /// What it is sure of, before shares divide the rest: disk:30% (of what all clients have), with --backend cgroup also
    /// cpu:20% (of ALL CPUs), memory:512M. At the system's divvyd hard tickets, of --from or your own currency:
    /// cpu:20%,memory:25%,disk:30% of what that has (docs/limits.md)
    #[arg(long, value_name = "RESERVE", value_parser = bounds::parse_reserve)]
    pub(crate) reserve: Option<Reserve>,

    /// CPUs that it may use, with all that it starts, of those that divvyd divides: 0,2-3, as taskset -c has them. Where divvyd
    /// weighs by cgroups or the kernel's own scheduler divides (--backend cgroup, kernel)
    #[arg(long, value_name = "LIST")]
    pub(crate) cpus: Option<String>,

    /// Its share of the disks, if not that of the CPU; at your own divvyd, which divides disks from the first of them on
    /// (docs/limits.md)
    #[arg(long, value_name = "N", value_parser = limit::parse_share)]
    pub(crate) disk_share: Option<u64>,

    /// The currency whose tickets it gets, at the system's divvyd [default: your own]
    #[arg(long, value_name = "CURRENCY")]
    pub(crate) from: Option<String>,

    /// The job that it is a task of, at the system's divvyd: the tasks of one job have its share together. The first one's
    /// share is the job's, and the job ends with its last task
    #[arg(long, value_name = "JOB")]
    pub(crate) job: Option<String>,
}

impl Terms {
    /// The CPUs that it is to be kept to.
    ///
    /// # Errors
    /// [`Failure`] where that is no list of CPUs.
    pub(super) fn cpus(&self) -> Result<Option<CpuMask>, Failure> {
        self.cpus.as_deref().map(cpus::parse).transpose()
    }

    /// A client of these terms, of the system's divvyd or the user's own, whose processes are the caller's to name.
    ///
    /// # Errors
    /// [`Failure`] where a limit or reservation is not one that it keeps.
    pub(super) fn client(&self, system: bool) -> Result<NewClient, Failure> {
        let limit_ppm = self.limit.and_then(|limits| limits.cpu_ppm()).filter(|&ppm| ppm > 0);
        limit::warn(limit_ppm);
        Ok(NewClient {
            share: self.share,
            limit_ppm,
            bounds: Bounds {
                cpus: self.cpus()?,
                ..bounds::bounds(self.limit, self.reserve, self.disk_share, system)?
            },
            from: self.from.clone(),
            job: self.job.clone(),
            ..NewClient::default()
        })
    }

    /// Says of which of its reservations there is no effect here.
    pub(super) fn warn_of_no_effect(&self, which: &Which) {
        let asked = self.reserve.map_or_else(Vec::new, |reserve| reserve.resources());
        if !asked.is_empty()
            && let Ok(api) = which.choice().and_then(|choice| Ok(choice.api()?))
        {
            super::warn_of_no_effect(&api, &asked);
        }
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) terms: Terms,

    /// The group that it is in: NAME, NAME/NAME for a group within a group, or NAME=3 to give the group that share. What a
    /// group has is divided among its clients by their shares. It is made if it is not there, with the share 1, and ends with
    /// its last client
    #[arg(long = "group", value_name = "NAME[=SHARE]", value_parser = group::parse, add = completions::groups())]
    pub(crate) group: Option<GroupArg>,

    /// What to call it; made from the command if not given
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// Print the client as JSON, in one line on standard error, before the command starts
    #[arg(long)]
    pub(crate) json: bool,

    /// The command and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, add = completions::command_line())]
    pub(crate) command: Vec<OsString>,

    #[command(flatten)]
    pub(crate) which: Which,
}

#[derive(Debug, ClapArgs)]
#[command(group = ArgGroup::new("who").required(true).args(["selector", "tree", "user", "session", "cgroup"]))]
// The other ways to say who are hidden.
#[command(override_usage = "divvy attach [OPTIONS] <SELECTOR>")]
pub(crate) struct AttachArgs {
    #[command(flatten)]
    pub(crate) terms: Terms,

    /// Which processes: a pid, alone or as pid:4711; tree:4711, a process with all its descendants; user:bob; group:4711 and
    /// session:4711; cgroup:/path, as /proc/PID/cgroup has it; name:'make*' and command:'*test*', patterns as for the shell;
    /// below:make:name:'cc1*', the second below the first (docs/daemon.md)
    #[arg(value_name = "SELECTOR", value_parser = which::parse_selector)]
    pub(crate) selector: Option<String>,

    /// tree:PID
    #[arg(long, value_name = "PID", hide = true)]
    pub(crate) tree: Option<u32>,

    /// user:USER
    #[arg(long, value_name = "USER", hide = true)]
    pub(crate) user: Option<String>,

    /// session:SID
    #[arg(long, value_name = "SID", hide = true)]
    pub(crate) session: Option<u32>,

    /// cgroup:PATH
    #[arg(long, value_name = "PATH", hide = true)]
    pub(crate) cgroup: Option<PathBuf>,

    /// The group that they are in: NAME, NAME/NAME for a group within a group, or NAME=3 to give the group that share. What a
    /// group has is divided among its clients by their shares. It is made if it is not there, with the share 1, and ends with
    /// its last client
    #[arg(long = "group", alias = "in-group", value_name = "NAME[=SHARE]", value_parser = group::parse, add = completions::groups())]
    pub(crate) group: Option<GroupArg>,

    /// What to call the client; made from what it is if not given
    #[arg(long, alias = "as", value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// Only say which processes it would be, and which of them would be left alone and why
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// The interface of the batch system's plugin that asks (contrib/slurm)
    #[arg(long, value_name = "N", hide = true)]
    pub(crate) plugin: Option<u32>,

    #[command(flatten)]
    pub(crate) ask: Ask<Which>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SetArgs {
    /// The client's name, or its number; or a group's name (NAME/ where a client is called so too; NAME/CLIENT: a client in it)
    #[arg(value_name = "CLIENT", add = completions::clients())]
    pub(crate) client: String,

    /// Its share from now on, 1 to 1000000
    #[arg(value_name = "SHARE", conflicts_with = "share", value_parser = limit::parse_share, allow_negative_numbers = true)]
    pub(crate) new_share: Option<u64>,

    /// The same, as for `divvy run`
    #[arg(long, short, value_name = "N", value_parser = limit::parse_share)]
    pub(crate) share: Option<u64>,

    /// Its limit from now on: 50% (of ONE CPU), 1.5 (CPUs) or none; cpu:1.5,memory:none,disk:10M (docs/limits.md)
    #[arg(long, value_name = "LIMIT", value_parser = bounds::parse_limits)]
    pub(crate) limit: Option<Limits>,

    /// What it is sure of from now on, as for `divvy run`: cpu:20%,memory:none
    #[arg(long, value_name = "RESERVE", value_parser = bounds::parse_reserve)]
    pub(crate) reserve: Option<Reserve>,

    /// CPUs that it may use from now on, as for `divvy run`: 0,2-3; or all
    #[arg(long, value_name = "LIST")]
    pub(crate) cpus: Option<String>,

    /// Its share of the disks from now on; 0 for that of the CPU
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    pub(crate) disk_share: Option<u64>,

    #[command(flatten)]
    pub(crate) ask: Ask<Which>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ClientArgs {
    /// The client's name, or its number; or a group's name, for all its clients (NAME/ where a client is called so too;
    /// NAME/CLIENT: a client in it). Several are done one by one, and what is refused for one is done for the others all the same
    #[arg(value_name = "CLIENT", required_unless_present = "all", conflicts_with = "all", add = completions::clients())]
    pub(crate) clients: Vec<String>,

    /// All clients that are yours
    #[arg(long)]
    pub(crate) all: bool,

    #[command(flatten)]
    pub(crate) ask: Ask<Which>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct LsArgs {
    /// Every column: the effective and the requested share, and what each client is, in up to 160 columns
    #[arg(long, short)]
    pub(crate) wide: bool,

    /// Only the clients of this user, by name or number; at the system's divvyd, which has many users' (its names are USER/NAME)
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,

    #[command(flatten)]
    pub(crate) ask: Ask<Which>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ExplainArgs {
    /// The process
    #[arg(value_name = "PID", allow_hyphen_values = true)]
    pub(crate) pid: String,

    #[command(flatten)]
    pub(crate) ask: Ask<Which>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) ask: Ask<Which>,
}
