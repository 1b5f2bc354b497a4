//! What this machine permits, and how to get more.

use std::path::{Path, PathBuf};

use rustix::process::Resource;
use serde::Serialize;

use crate::census::cgroups_of;
use crate::events::ProcessEvents;
use crate::guard::Environment;
use crate::quota::quota_of;
use crate::{CpuMask, ProcessRef, procfs};

/// Files that divvy may need for each process: its pidfd and one more.
const FILES_PER_PROCESS: u64 = 2;
/// Below so many processes the limit of open files is worth a word.
const PROCESSES_MANY: u64 = 2000;

/// How much of something there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// All that divvy can use.
    Good,
    /// Less; divvy works, with the loss that the finding names.
    Limited,
    /// None.
    Missing,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub what: &'static str,
    /// What was found, and what it means for divvy.
    pub found: String,
    /// Whether that is enough.
    pub status: Status,
    /// How to get more, where there is a way.
    pub fix: Option<String>,
}

fn finding(what: &'static str, status: Status, found: impl Into<String>, fix: Option<&str>) -> Finding {
    Finding { what, found: found.into(), status, fix: fix.map(str::to_owned) }
}

/// What this machine permits this process: process events, pidfds, CPU clocks, `/proc`, limits, CPUs, cgroups, the runtime
/// directory (which is made if it is not there).
#[must_use]
pub fn doctor() -> Vec<Finding> {
    vec![
        process_events(),
        pidfds(),
        others_clocks(),
        schedstat(),
        children(),
        hidden_processes(),
        open_files(),
        cpus(),
        quota(),
        cgroup_delegation(),
        runtime_directory(),
    ]
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
    let mut value = String::new();
    for line in mountinfo.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        if left.split(' ').nth(4) == Some("/proc") {
            let option = right.split([' ', ',']).find_map(|o| o.strip_prefix("hidepid="));
            value = option.unwrap_or_default().to_owned();
        }
    }
    value
}

fn hidden_processes() -> Finding {
    let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    match hidepid(&text).as_str() {
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

/// Where cgroup v2 is mounted, in a `mountinfo`.
fn cgroup2(mountinfo: &str) -> Option<PathBuf> {
    let line =
        mountinfo.lines().find(|l| l.split_once(" - ").is_some_and(|(_, r)| r.starts_with("cgroup2 ")))?;
    line.split(' ').nth(4).map(PathBuf::from)
}

fn cgroup_delegation() -> Finding {
    let what = "cgroup delegation";
    let fix = Some(
        "not needed for shares by signals; for the cgroup back end: systemd-run --user --scope -p Delegate=yes",
    );
    let Some(mount) = cgroup2(&std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default()) else {
        return finding(what, Status::Missing, "cgroup v2 is not mounted", fix);
    };
    let text = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = text.lines().find_map(|l| l.strip_prefix("0::")).unwrap_or("/").to_owned();
    let dir = mount.join(own.trim_start_matches('/'));
    let writable = |path: &Path| rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok();
    let controllers = std::fs::read_to_string(dir.join("cgroup.controllers")).unwrap_or_default();
    let has_cpu = controllers.split_whitespace().any(|c| c == "cpu");
    match (writable(&dir) && writable(&dir.join("cgroup.procs")), has_cpu) {
        (true, true) => {
            finding(what, Status::Good, format!("{} is ours, with the cpu controller", dir.display()), None)
        }
        (true, false) => finding(
            what,
            Status::Limited,
            format!("{} is ours, without the cpu controller", dir.display()),
            fix,
        ),
        (false, _) => {
            let paths = cgroups_of(rustix::process::getpid());
            finding(
                what,
                Status::Missing,
                format!("our cgroup ({}) is not ours to change", paths.join(" ")),
                fix,
            )
        }
    }
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
        assert_eq!(findings.len(), 11);
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

    #[test]
    fn cgroup2_is_found_wherever_it_is() {
        let text = "30 20 0:1 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                    31 20 0:26 / /sys/fs/cgroup/unified rw shared:4 - cgroup2 cgroup2 rw\n";
        assert_eq!(cgroup2(text), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(cgroup2("30 20 0:1 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"), None);
    }
}
