//! What this machine permits, and how to get more.

use std::path::Path;

use rustix::process::Resource;
use serde::{Deserialize, Serialize};

use crate::cgroup::{Hierarchy, Knob, Lifetime, Survey, scope};
use crate::events::ProcessEvents;
use crate::guard::Environment;
use crate::quota::quota_of;
use crate::{CpuMask, ProcessRef, mounts, own, perf, procfs, sched_ext};

/// Files that divvy may need for each process: its pidfd and one more.
const FILES_PER_PROCESS: u64 = 2;
/// Below so many processes the limit of open files is worth a word.
const PROCESSES_MANY: u64 = 2000;

/// How much of something there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "FindingStatus"))]
pub enum Status {
    /// All that divvy can use.
    Good,
    /// Less; divvy works, with the loss that the finding names.
    Limited,
    /// None.
    Missing,
}

impl Status {
    /// The word for it, as in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Limited => "limited",
            Self::Missing => "missing",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Finding {
    /// What was looked at.
    pub what: String,
    /// What was found, and what it means for divvy.
    pub found: String,
    /// Whether that is enough.
    pub status: Status,
    /// How to get more, where there is a way.
    pub fix: Option<String>,
}

fn finding(what: &str, status: Status, found: impl Into<String>, fix: Option<&str>) -> Finding {
    Finding { what: what.to_owned(), found: found.into(), status, fix: fix.map(str::to_owned) }
}

/// What this machine permits this process: process events, pidfds, CPU clocks, `/proc`, limits, CPUs, cgroups, the
/// kernel's scheduler, the runtime directory (which is made if it is not there).
#[must_use]
pub fn doctor() -> Vec<Finding> {
    let survey = Survey::new();
    vec![
        process_events(),
        pidfds(),
        others_clocks(),
        perf_events(),
        wake_ups(),
        schedstat(),
        children(),
        hidden_processes(),
        open_files(),
        cpus(),
        quota(),
        cgroup_delegation(&survey),
        cpu_weights(&survey),
        schedulers_of_programs(),
        runtime_directory(),
    ]
}

fn schedulers_of_programs() -> Finding {
    match sched_ext::support() {
        Ok(found) => finding("sched_ext", Status::Good, found, None),
        Err(sched_ext::Lack { found, fix }) => {
            let fix = format!("not needed for divvy's other back ends; for divvy-scx: {fix}");
            finding("sched_ext", Status::Limited, found, Some(&fix))
        }
    }
}

fn process_events() -> Finding {
    match ProcessEvents::open() {
        Ok(_) => finding(
            "process events",
            Status::Good,
            "the kernel tells of forks: new members are known at once",
            None,
        ),
        Err(e) => finding(
            "process events",
            Status::Limited,
            format!("{e}: new members are found by scans, once a second"),
            Some("run as root outside of a container, or on Linux 6.6 or newer"),
        ),
    }
}

fn pidfds() -> Finding {
    let own = rustix::process::getpid();
    let Ok(Some(process)) = ProcessRef::open(own) else {
        let fix = Some("use Linux 5.3 or newer, with /proc mounted");
        return finding(
            "pidfds",
            Status::Missing,
            "processes cannot be named safely: divvy does not work",
            fix,
        );
    };
    match process.group_has_members() {
        Ok(None) => finding(
            "pidfds",
            Status::Limited,
            "process groups are signalled one member at a time",
            Some("use Linux 6.9 or newer"),
        ),
        _ => finding("pidfds", Status::Good, "processes and process groups can be signalled safely", None),
    }
}

fn others_clocks() -> Finding {
    match crate::clock::process_cpu(rustix::process::getppid().unwrap_or(rustix::process::getpid())) {
        Ok(Some(_)) => finding("CPU clocks", Status::Good, "CPU time of processes is read in ns", None),
        _ => finding("CPU clocks", Status::Missing, "CPU time of other processes cannot be read", None),
    }
}

fn perf_events() -> Finding {
    let opened = perf::TreeCounter::check().and_then(|()| perf::Lineage::open().map(drop));
    match opened {
        Ok(()) if perf::is_allowed() => finding(
            "perf events",
            Status::Good,
            "the kernel counts each command's whole tree, and tells of every fork and exit in it",
            None,
        ),
        Ok(()) => finding(
            "perf events",
            Status::Limited,
            "DIVVY_ACCOUNTS=clocks: commands are counted by clocks and scans",
            Some("unset DIVVY_ACCOUNTS"),
        ),
        Err(e) => finding(
            "perf events",
            Status::Limited,
            format!(
                "{e}: commands are counted by clocks and scans, which cost more and see short-lived children late"
            ),
            Some(
                "sysctl kernel.perf_event_paranoid=2 (or less), and a container that permits perf_event_open",
            ),
        ),
    }
}

fn wake_ups() -> Finding {
    // A thread of its own: this one is to stay as it is.
    match std::thread::spawn(own::wake_at_once).join() {
        Ok(true) => finding(
            "wake-ups",
            Status::Good,
            "a real-time priority is permitted: divvy runs when it is time",
            None,
        ),
        _ => finding(
            "wake-ups",
            Status::Limited,
            "no real-time priority is permitted: beside many processes that wake each other divvy may run late",
            Some(
                "run as root, or permit it (a line `YOU - rtprio 2` in /etc/security/limits.conf, then log in anew)",
            ),
        ),
    }
}

fn schedstat() -> Finding {
    match procfs::schedstat(rustix::process::getpid()) {
        Ok(Some(_)) => finding(
            "schedstat",
            Status::Good,
            "/proc/PID/schedstat tells how long a process waited for a CPU",
            None,
        ),
        _ => finding(
            "schedstat",
            Status::Limited,
            "/proc/PID/schedstat is not there: waiting times are not shown; shares do not need them",
            Some("use a kernel with CONFIG_SCHED_INFO"),
        ),
    }
}

fn children() -> Finding {
    let own = rustix::process::getpid();
    match procfs::children(own, own, &mut Vec::new()) {
        Ok(Some(())) => finding("children", Status::Good, "/proc tells of a process's children", None),
        _ => finding(
            "children",
            Status::Limited,
            "/proc has no lists of children: a command's children are held with its process group only",
            Some("use a kernel with CONFIG_PROC_CHILDREN"),
        ),
    }
}

/// The value of `hidepid` in the last line of a `mountinfo` for `/proc`; empty if there is none.
fn hidepid(mountinfo: &str) -> String {
    let last = mounts::parse(mountinfo).filter(|mount| mount.point == Path::new("/proc")).last();
    let option = last.and_then(|mount| mount.options().find_map(|option| option.strip_prefix("hidepid=")));
    option.unwrap_or_default().to_owned()
}

fn hidden_processes() -> Finding {
    match hidepid(&mounts::own()).as_str() {
        "" | "0" | "off" => finding("/proc", Status::Good, "everybody's processes can be seen", None),
        _ if rustix::process::geteuid().is_root() => {
            finding("/proc", Status::Good, "it is mounted with hidepid, which does not concern root", None)
        }
        value => finding(
            "/proc",
            Status::Limited,
            format!("it is mounted with hidepid={value}: only your own processes can be seen and divided"),
            Some(
                "that is enough for your own; for others', run as root or in the group that hidepid's gid= names",
            ),
        ),
    }
}

fn open_files() -> Finding {
    let limit = rustix::process::getrlimit(Resource::Nofile).maximum;
    let processes = limit.map_or(u64::MAX, |files| files / FILES_PER_PROCESS);
    match limit {
        Some(files) if processes < PROCESSES_MANY => finding(
            "open files",
            Status::Limited,
            format!("at most {files}: about {processes} processes can be divided"),
            Some("raise the hard limit of open files (ulimit -Hn, or limits.conf)"),
        ),
        Some(files) => finding("open files", Status::Good, format!("at most {files}"), None),
        None => finding("open files", Status::Good, "no limit", None),
    }
}

fn cpus() -> Finding {
    match CpuMask::of_thread(rustix::process::getpid()) {
        Ok(Some(mask)) => {
            let n = mask.iter().count();
            finding("CPUs", Status::Good, format!("{n} can be divided: {mask}"), None)
        }
        _ => finding("CPUs", Status::Missing, "which CPUs there are cannot be read", None),
    }
}

fn quota() -> Finding {
    match quota_of(rustix::process::getpid()) {
        None => finding("CPU quota", Status::Good, "no cgroup around divvy limits CPU time", None),
        Some(q) => finding(
            "CPU quota",
            Status::Limited,
            format!(
                "the cgroup around divvy gets {} ms of CPU time in {} ms: as many clients run at once as {} CPUs hold",
                q.quota_us / 1000,
                q.period_us / 1000,
                q.cpus()
            ),
            Some("raise the container's CPU limit"),
        ),
    }
}

/// For whom systemd makes a scope, where it does.
fn scopes(with_cpu: bool) -> Option<&'static str> {
    let asks = |lifetime| scope::can_ask(with_cpu, lifetime).is_ok();
    if asks(Lifetime::Daemon) {
        Some("each divvy share, and for a divvyd of yours")
    } else {
        asks(Lifetime::Run).then_some("each divvy share")
    }
}

fn cgroup_delegation(survey: &Survey) -> Finding {
    let what = "cgroup delegation";
    match &survey.freezer {
        Ok(ground) => {
            let version = if ground.hierarchy == Hierarchy::Freezer { ", by version 1" } else { "" };
            let found = format!(
                "{} is ours: --backend freezer can hold clients unseen{version}",
                ground.dir.display()
            );
            finding(what, Status::Good, found, None)
        }
        Err(_) if let Some(whom) = scopes(false) => finding(
            what,
            Status::Good,
            format!("systemd makes a scope for {whom}: --backend freezer can hold clients unseen"),
            None,
        ),
        Err(why) => finding(
            what,
            Status::Limited,
            format!("no cgroup is ours to change ({})", reason(why)),
            Some(
                "not needed for --backend signals; for the freezer: systemd-run --user --scope -p Delegate=yes",
            ),
        ),
    }
}

fn cpu_weights(survey: &Survey) -> Finding {
    let what = "CPU weights";
    match &survey.weights {
        Ok(ground) => {
            let version = match ground.knob {
                Knob::Weight => "cpu.weight of version 2",
                Knob::Shares => "cpu.shares of version 1",
            };
            let found = format!("{} in {}: --backend cgroup can divide", version, ground.dir.display());
            finding(what, Status::Good, found, None)
        }
        Err(_) if let Some(whom) = scopes(true) => finding(
            what,
            Status::Good,
            format!("cpu.weight of version 2 in the scope that systemd makes for {whom}"),
            None,
        ),
        Err(why) => finding(
            what,
            Status::Limited,
            format!("the kernel's weights cannot be used ({})", reason(why)),
            Some("not needed for --backend signals; for weights: systemd-run --user --scope -p Delegate=yes"),
        ),
    }
}

/// A reason of the survey without its fix, which is told beside it.
fn reason(why: &str) -> String {
    why.replace(&format!("; {}", crate::cgroup::FIX), "")
}

fn runtime_directory() -> Finding {
    let environment = Environment::read();
    match environment.open_or_create() {
        Ok(dir) => finding("runtime directory", Status::Good, dir.path().display().to_string(), None),
        Err(e) => finding("runtime directory", Status::Missing, e.to_string(), Some("set DIVVY_RUNTIME_DIR")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finding_says_something_and_a_lack_says_how_to_get_more() {
        let findings = doctor();
        assert_eq!(findings.len(), 15);
        for f in &findings {
            assert!(!f.found.is_empty() && !f.found.contains('\n'), "{f:?}");
            assert!(f.status == Status::Good || f.fix.is_some() || f.what == "CPU clocks", "{f:?}");
        }
        let status = |what| findings.iter().find(|f| f.what == what).map(|f| f.status);
        assert_ne!(status("pidfds"), Some(Status::Missing));
        assert_eq!(status("CPU clocks"), Some(Status::Good));
    }

    #[test]
    fn hidepid_is_that_of_the_mount_on_top() {
        let line = |options| format!("22 1 0:21 / /proc rw,nosuid - proc proc {options}\n");
        assert_eq!(hidepid(&line("rw")), "");
        assert_eq!(hidepid(&line("rw,hidepid=2")), "2");
        assert_eq!(hidepid(&format!("{}{}", line("rw"), line("rw,hidepid=invisible,gid=4"))), "invisible");
        assert_eq!(hidepid(&format!("{}{}", line("rw,hidepid=1"), line("rw"))), "");
        assert_eq!(hidepid("22 1 0:21 / /elsewhere/proc rw - proc proc rw,hidepid=2\n"), "");
    }
}
