//! Where cgroups of our own can be made: found from `/proc/self/mountinfo` and `/proc/self/cgroup`.
//!
//! A directory is *ours* (delegated) if we may write to it and to its `cgroup.procs`. A process may be moved where its old
//! and its new cgroup have an ancestor of both that is ours: so our own cgroup is looked at first, and then those around
//! it as long as they are ours.
//!
//! To freeze, any cgroup of version 2 below one that is ours will do, else (before Linux 5.2, or where version 2 is not mounted or not
//! ours) our own of version 1 in the hierarchy of the freezer. Weights need the cpu controller: of version 2 where
//! it is on for the children of such a cgroup that has no processes itself, or can be put on. With processes in it the kernel
//! takes `+cpu`, too, and makes all children `domain invalid`: nobody can be in them (our own process we can move); else of
//! version 1.

use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::{mounts, procfs};

use super::brake::Brake;
use super::files::{Files, Real};
use super::weights::Knob;

/// What has to be done before children of a cgroup have weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enable {
    /// Nothing: they have.
    Nothing,
    /// `+cpu` into its `cgroup.subtree_control`.
    Control,
    /// The same, after we have moved ourselves into a child: nobody else is in it.
    MoveAndControl,
}

/// A hierarchy of cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hierarchy {
    /// That of version 2.
    Unified,
    /// That of version 1 with the cpu controller.
    Cpu,
    /// That of version 1 with the freezer.
    Freezer,
}

/// A cgroup below which we can make our own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ground {
    /// Where children are made.
    pub dir: PathBuf,
    /// Our own cgroup in that hierarchy, where processes are moved at the end that were not elsewhere before.
    pub home: PathBuf,
    /// Where the hierarchy is mounted.
    pub mount: PathBuf,
    /// The part of it that is mounted there: `/` for all of it.
    pub shown: PathBuf,
    /// Of which hierarchy it is.
    pub hierarchy: Hierarchy,
    /// The file that takes weights, where it is to divide.
    pub knob: Knob,
    /// What is to be done before.
    pub enable: Enable,
}

/// What this process can do with cgroups; where it cannot, why not, and what would help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// Where clients can be frozen.
    pub freezer: Result<Ground, String>,
    /// Where clients can have weights.
    pub weights: Result<Ground, String>,
}

/// How to get a delegated cgroup.
pub(crate) const FIX: &str = "start divvy with: systemd-run --user --scope -p Delegate=yes divvy share ...";

/// The same for a user's own divvyd.
pub(super) const FIX_OF_DAEMON: &str =
    "start divvyd with: systemd-run --user --scope -p Delegate=yes divvyd --user ...";

/// Our own cgroup in one hierarchy: where it is mounted, and our directory below that.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Own {
    hierarchy: Hierarchy,
    mount: PathBuf,
    shown: PathBuf,
    dir: PathBuf,
}

impl Survey {
    /// What this process can do.
    #[must_use]
    pub fn new() -> Self {
        Self::of(&mounts::own(), &procfs::cgroup_text("self"), &Real)
    }

    /// The same as if version 2 were not mounted, for tests of version 1 on a machine that has both.
    #[doc(hidden)]
    #[must_use]
    pub fn of_version_1() -> Self {
        let all = mounts::own();
        let kept = all.lines().filter(|line| !line.contains(" - cgroup2 ")).map(|line| format!("{line}\n"));
        Self::of(&kept.collect::<String>(), &procfs::cgroup_text("self"), &Real)
    }

    pub(crate) fn of(mountinfo: &str, cgroup: &str, files: &dyn Files) -> Self {
        let two = own(mountinfo, cgroup, Hierarchy::Unified);
        let one = |hierarchy: Hierarchy| {
            let own = own(mountinfo, cgroup, hierarchy)?;
            is_ours(&own.dir, files)?;
            Ok(ground(own.dir.clone(), &own, Enable::Nothing))
        };
        let or_one = |two: String, hierarchy: Hierarchy| {
            one(hierarchy).map_err(|one: String| format!("{two}; version 1: {one}"))
        };
        let freezer = two.clone().and_then(|own| freezer(&own, files)).or_else(|two| {
            // Most machines have none, and need not be told.
            let is_there = mounts::parse(mountinfo).any(|mount| Hierarchy::Freezer.is_mounted_by(&mount));
            if is_there { or_one(two, Hierarchy::Freezer) } else { Err(two) }
        });
        let weights = two.and_then(|own| weights(&own, files)).or_else(|two| or_one(two, Hierarchy::Cpu));
        Self { freezer, weights }
    }
}

impl Survey {
    /// The same with `fix` as what would help, where that is not to start `divvy share` in another way.
    #[must_use]
    pub fn with_fix(self, fix: &str) -> Self {
        let advise = |lack: String| lack.replace(FIX, fix);
        Self { freezer: self.freezer.map_err(advise), weights: self.weights.map_err(advise) }
    }

    /// The same where systemd was asked for a cgroup and gave none, because of `why`.
    pub(super) fn without_scope(self, why: &str) -> Self {
        // The fix stays the last thing that is read.
        let add = |lack: String| match lack.split_once(&format!("; {FIX}")) {
            Some((lack, rest)) => format!("{lack}; and {why}; {FIX}{rest}"),
            None => format!("{lack}; and {why}"),
        };
        Self { freezer: self.freezer.map_err(add), weights: self.weights.map_err(add) }
    }
}

/// How a cgroup is called that is made only to see what the kernel has, with the pid of whoever makes it behind.
const PROBE: &str = "divvy-probe-";

impl Default for Survey {
    fn default() -> Self {
        Self::new()
    }
}

impl Ground {
    /// Whether the kernel has `cpu.idle` (Linux 5.15): a cgroup of the cpu controller has one itself, but for the first of a hierarchy,
    /// which is told by a child that is made for that. While the controller is off for the children, these have none.
    pub(super) fn gives_way(&self) -> bool {
        if self.dir.join("cpu.idle").exists() {
            return true;
        }
        remove_stale_probes(&self.dir);
        let probe = self.dir.join(format!("{PROBE}{}", rustix::process::getpid()));
        let made = rustix::fs::mkdir(&probe, rustix::fs::Mode::from_raw_mode(0o755)).is_ok();
        let has = probe.join("cpu.idle").exists();
        made && rustix::fs::rmdir(&probe).is_ok() && has
    }

    /// The cgroup of a process in this hierarchy; `None` for one that has ended.
    pub(crate) fn cgroup_of(&self, pid: crate::Pid) -> Option<PathBuf> {
        let text = procfs::cgroup_text(pid);
        let below = Path::new(self.hierarchy.path(&text)?).strip_prefix(&self.shown).ok()?;
        Some(if below.as_os_str().is_empty() { self.mount.clone() } else { self.mount.join(below) })
    }
}

/// Removes what processes left that were killed while they asked what the kernel has.
fn remove_stale_probes(dir: &Path) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PROBE)?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = rustix::fs::rmdir(entry.path()); // Nobody is in it; else it stays.
        }
    }
}

fn ground(dir: PathBuf, own: &Own, enable: Enable) -> Ground {
    let (mount, shown, hierarchy) = (own.mount.clone(), own.shown.clone(), own.hierarchy);
    let knob = if hierarchy == Hierarchy::Unified { Knob::Weight } else { Knob::Shares };
    Ground { dir, home: own.dir.clone(), mount, shown, hierarchy, knob, enable }
}

impl Hierarchy {
    /// The controller by which one of version 1 is told.
    const fn controller(self) -> Option<&'static str> {
        match self {
            Self::Unified => None,
            Self::Cpu => Some("cpu"),
            Self::Freezer => Some("freezer"),
        }
    }

    /// Whether a mount is of it.
    fn is_mounted_by(self, mount: &mounts::Mount<'_>) -> bool {
        match self.controller() {
            None => mount.kind == "cgroup2",
            Some(controller) => mount.is_v1_with(controller),
        }
    }

    /// The file by which its cgroups are frozen.
    pub(super) const fn brake(self) -> Brake {
        match self {
            Self::Unified => Brake::Freeze,
            Self::Cpu | Self::Freezer => Brake::State,
        }
    }

    /// A process's path in its hierarchy, by `/proc/PID/cgroup`.
    fn path(self, cgroup: &str) -> Option<&str> {
        cgroup.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            let fits = match self.controller() {
                None => line.starts_with("0::"),
                Some(controller) => controllers.split(',').any(|name| name == controller),
            };
            fits.then_some(path)
        })
    }
}

fn own(mountinfo: &str, cgroup: &str, hierarchy: Hierarchy) -> Result<Own, String> {
    let missing = match hierarchy {
        Hierarchy::Unified => "cgroup v2 is not mounted",
        Hierarchy::Cpu => "no hierarchy with the cpu controller is mounted",
        Hierarchy::Freezer => "no hierarchy with the freezer is mounted",
    };
    let (mut found, mut seen) = (None, false);
    for mount in mounts::parse(mountinfo) {
        if !hierarchy.is_mounted_by(&mount) {
            continue;
        }
        let (path, shown, mount) = (hierarchy.path(cgroup), mount.root, mount.point);
        seen = true;
        // A mount may show only a part of the hierarchy, and a container's `/proc` a path outside of it.
        let below = path.and_then(|path| Path::new(path).strip_prefix(&shown).ok());
        if let Some(below) = below.filter(|below| !below.starts_with("..")) {
            let dir = if below.as_os_str().is_empty() { mount.clone() } else { mount.join(below) };
            found = Some(Own { hierarchy, mount, shown, dir });
        }
    }
    match found {
        Some(own) => Ok(own),
        None if seen => Err("our own cgroup is outside of what is mounted".to_owned()),
        None => Err(missing.to_owned()),
    }
}

fn is_ours(dir: &Path, files: &dyn Files) -> Result<(), String> {
    let refused = |path: &Path, e: Errno| match e {
        Errno::NOENT => format!("there is no {}; mount the cgroup file system", path.display()),
        e => format!("{} is not ours to change ({e}); {FIX}", path.display()),
    };
    files.writable(dir).map_err(|e| refused(dir, e))?;
    let procs = dir.join("cgroup.procs");
    files.writable(&procs).map_err(|e| refused(&procs, e))
}

/// Our own cgroup and those around it, as far as they are ours.
fn ours<'a>(own: &'a Own, files: &'a dyn Files) -> Result<impl Iterator<Item = &'a Path>, String> {
    is_ours(&own.dir, files)?;
    let up = own.dir.ancestors().take_while(|dir| dir.starts_with(&own.mount));
    Ok(up.take_while(|dir| is_ours(dir, files).is_ok()))
}

fn freezer(own: &Own, files: &dyn Files) -> Result<Ground, String> {
    let mut last = None;
    for dir in ours(own, files)? {
        // Where controllers are on for the children, or the cgroup is a threaded one, they may not be what they seem.
        match files.read(&dir.join("cgroup.type")) {
            Ok(kind) if kind.trim() != "domain" => {
                last = Some(format!("{} is a {} cgroup", dir.display(), kind.trim()));
            }
            // The real root alone has no type, and is never frozen itself.
            Ok(_) if files.read(&dir.join(Brake::Freeze.name())) == Err(Errno::NOENT) => {
                last = Some(format!("{} has no cgroup.freeze (Linux 5.2)", dir.display()));
            }
            _ => return Ok(ground(dir.to_owned(), own, Enable::Nothing)),
        }
    }
    Err(format!("{}; {FIX}", last.unwrap_or_default()))
}

fn weights(own: &Own, files: &dyn Files) -> Result<Ground, String> {
    let has_cpu = |dir: &Path, name: &str| {
        files.read(&dir.join(name)).is_ok_and(|text| text.split_whitespace().any(|c| c == "cpu"))
    };
    let mut why = format!("{} has no cpu controller", own.dir.display());
    for dir in ours(own, files)? {
        if !has_cpu(dir, "cgroup.controllers") {
            continue;
        }
        let at = |enable| ground(dir.to_owned(), own, enable);
        let on = has_cpu(dir, "cgroup.subtree_control");
        let enable = if on { Enable::Nothing } else { Enable::Control };
        // The real root alone has no type, and may have processes beside children with controllers.
        if files.read(&dir.join("cgroup.type")) == Err(Errno::NOENT) {
            return Ok(at(enable));
        }
        let procs = files.read(&dir.join("cgroup.procs")).unwrap_or_default();
        let me = rustix::process::getpid().to_string();
        if procs.split_whitespace().next().is_none() {
            return Ok(at(enable));
        }
        if on {
            // Somebody put it on all the same.
            why = format!(
                "processes are in {}, whose children have the cpu controller: no process can be in these; {FIX}",
                dir.display()
            );
            continue;
        }
        if procs.split_whitespace().all(|pid| pid == me) && dir == own.dir {
            return Ok(at(Enable::MoveAndControl));
        }
        why = format!(
            "other processes are in {}: with the cpu controller on, nobody could be in its children; {FIX}",
            dir.display()
        );
    }
    Err(why)
}

#[cfg(test)]
mod tests {
    use super::super::files::fixture::Fixture;
    use super::*;

    const DOMAIN: &[(&str, &str)] = &[
        ("cgroup.type", "domain\n"),
        ("cgroup.procs", ""),
        ("cgroup.controllers", "cpu memory\n"),
        ("cgroup.subtree_control", "\n"),
        ("cgroup.freeze", "0\n"),
        ("cpu.weight", "100\n"),
    ];

    /// A machine of systemd: root, user.slice, a delegated user@7.service with an app in it.
    fn systemd(different: &[(&str, &str)]) -> Fixture {
        let fixture = Fixture::new(DOMAIN);
        fixture.cgroup("v2", &[]);
        std::fs::remove_file(fixture.path("v2/cgroup.type")).expect("the root has none");
        fixture.cgroup("v2/user@7", &[("cgroup.subtree_control", "memory")]);
        fixture.cgroup("v2/user@7/app", different);
        fixture
    }

    fn own(fixture: &Fixture, shown: &str, dir: PathBuf) -> Own {
        Own { hierarchy: Hierarchy::Unified, mount: fixture.path("v2"), shown: shown.into(), dir }
    }

    fn survey(fixture: &Fixture, cgroup: &str) -> Survey {
        let mounts = format!(
            "31 20 0:26 / {} rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n\
             32 20 0:27 /docker {} rw - cgroup cgroup rw,cpu,cpuacct\n\
             33 20 0:28 / /memory rw - cgroup cgroup rw,memory\n",
            fixture.path("v2").display(),
            fixture.path("v1").display(),
        );
        Survey::of(&mounts, cgroup, fixture)
    }

    #[test]
    fn our_own_cgroup_comes_first() {
        let fixture = systemd(&[("cgroup.subtree_control", "cpu")]);
        let found = survey(&fixture, "0::/user@7/app\n");
        let app = fixture.path("v2/user@7/app");
        assert_eq!(found.freezer, Ok(ground(app.clone(), &own(&fixture, "/", app.clone()), Enable::Nothing)));
        assert_eq!(found.weights, Ok(ground(app.clone(), &own(&fixture, "/", app), Enable::Nothing)));
    }

    #[test]
    fn the_controller_is_put_on_where_the_kernel_lets_us() {
        let me = rustix::process::getpid().to_string();
        let (app, around) = ("v2/user@7/app", "v2/user@7");
        for (procs, dir, enable) in [
            ("", app, Enable::Control),
            (me.as_str(), app, Enable::MoveAndControl),
            // Others are in ours; the one around it has no processes of its own.
            ("1\n2\n", around, Enable::Control),
        ] {
            let fixture = systemd(&[("cgroup.procs", procs)]);
            let expected = ground(fixture.path(dir), &own(&fixture, "/", fixture.path(app)), enable);
            assert_eq!(survey(&fixture, "0::/user@7/app").weights, Ok(expected), "{procs:?}");
        }
        // And if that has some too, and the root is not ours:
        let fixture = systemd(&[("cgroup.procs", "1\n")]);
        std::fs::write(fixture.path("v2/user@7/cgroup.procs"), "5\n").expect("a file");
        fixture.refuse("v2/cgroup.procs", Errno::ACCESS);
        let found = survey(&fixture, "0::/user@7/app");
        let why = found.weights.expect_err("processes are in the way");
        assert!(why.starts_with("other processes are in "), "{why}");
        assert!(why.contains(FIX) && why.contains("; version 1: our own cgroup is outside of"), "{why}");
        assert!(found.freezer.is_ok(), "to freeze needs no controller");
        // The root may have both.
        fixture.refused.borrow_mut().clear();
        let root = ground(fixture.path("v2"), &own(&fixture, "/", fixture.path(app)), Enable::Control);
        assert_eq!(survey(&fixture, "0::/user@7/app").weights, Ok(root));
    }

    /// The kernel takes `+cpu` where processes are; what it makes are children that nobody can be in.
    #[test]
    fn where_processes_are_children_are_invalid() {
        let fixture = systemd(&[("cgroup.subtree_control", "cpu"), ("cgroup.procs", "1\n")]);
        let around = ground(
            fixture.path("v2/user@7"),
            &own(&fixture, "/", fixture.path("v2/user@7/app")),
            Enable::Control,
        );
        assert_eq!(survey(&fixture, "0::/user@7/app").weights, Ok(around));
        fixture.refuse("user@7/cgroup.procs", Errno::ACCESS);
        let why = survey(&fixture, "0::/user@7/app").weights.expect_err("the one around it is not ours");
        assert!(why.contains("whose children have the cpu controller: no process can be in these"), "{why}");
    }

    #[test]
    fn what_is_not_delegated_is_told_with_the_fix() {
        for (end, e) in [("app", Errno::ROFS), ("app", Errno::ACCESS), ("app/cgroup.procs", Errno::PERM)] {
            let fixture = systemd(&[("cgroup.subtree_control", "cpu")]);
            fixture.refuse(end, e);
            let found = survey(&fixture, "0::/user@7/app");
            for why in [found.freezer.expect_err("refused"), found.weights.expect_err("refused")] {
                assert!(why.contains("is not ours to change") && why.contains(FIX), "{why}");
            }
        }
        let fixture = systemd(&[]);
        let found = survey(&fixture, "0::/gone\n");
        assert!(found.freezer.expect_err("gone").starts_with("there is no "));
        let found = survey(&fixture, "0::/../outside\n");
        assert_eq!(found.freezer, Err("our own cgroup is outside of what is mounted".to_owned()));
        assert_eq!(Survey::of("", "", &fixture).freezer, Err("cgroup v2 is not mounted".to_owned()));
    }

    #[test]
    fn version_1_has_weights_where_version_2_has_none() {
        let fixture = systemd(&[("cgroup.controllers", "memory")]);
        for name in ["v2/cgroup.controllers", "v2/user@7/cgroup.controllers"] {
            std::fs::write(fixture.path(name), "hugetlb\n").expect("a file");
        }
        fixture.cgroup("v1/box", &[("cpu.shares", "1024")]);
        let found = survey(&fixture, "4:cpu,cpuacct:/docker/box\n0::/user@7/app\n");
        let dir = fixture.path("v1/box");
        let one = Own {
            hierarchy: Hierarchy::Cpu,
            mount: fixture.path("v1"),
            shown: "/docker".into(),
            dir: dir.clone(),
        };
        assert_eq!(found.weights, Ok(ground(dir, &one, Enable::Nothing)));
        fixture.refuse("v1/box", Errno::ACCESS);
        let why = survey(&fixture, "4:cpu,cpuacct:/docker/box\n0::/user@7/app\n").weights.unwrap_err();
        assert!(why.contains("has no cpu controller; version 1: "), "{why}");
    }

    /// Where the controller is still to be put on, no child would tell.
    #[test]
    fn whether_there_is_cpu_idle_is_told_by_the_cgroup_itself() {
        let me = rustix::process::getpid().to_string();
        for (idle, expected) in [(Some("0\n"), true), (None, false)] {
            let fixture = systemd(&[("cgroup.procs", &me)]);
            if let Some(text) = idle {
                std::fs::write(fixture.path("v2/user@7/app/cpu.idle"), text).expect("a file");
            }
            let ground = survey(&fixture, "0::/user@7/app").weights.expect("ours");
            assert_eq!((ground.enable, ground.gives_way()), (Enable::MoveAndControl, expected));
        }
    }

    /// Version 1 freezes where version 2 is not mounted, not ours, or older than Linux 5.2.
    #[test]
    fn version_1_freezes_where_version_2_does_not() {
        const HOLDERS: &str = "5:freezer:/box\n4:cpu,cpuacct:/docker/box\n0::/user@7/app\n";
        let of = |fixture: &Fixture, unified: bool| {
            let two = format!("31 20 0:26 / {} rw - cgroup2 cgroup2 rw\n", fixture.path("v2").display());
            let one =
                format!("35 20 0:30 / {} rw - cgroup cgroup rw,freezer\n", fixture.path("fr").display());
            Survey::of(&(if unified { two + &one } else { one }), HOLDERS, fixture).freezer
        };
        let fixture = systemd(&[]);
        fixture.cgroup("fr/box", &[("freezer.state", "THAWED\n")]);
        let one = Own {
            hierarchy: Hierarchy::Freezer,
            mount: fixture.path("fr"),
            shown: "/".into(),
            dir: fixture.path("fr/box"),
        };
        let expected = Ok(ground(fixture.path("fr/box"), &one, Enable::Nothing));
        assert_eq!(of(&fixture, false), expected);
        assert_eq!(of(&fixture, true).expect("ours").hierarchy, Hierarchy::Unified, "version 2 comes first");
        fixture.refuse("user@7/app", Errno::ACCESS);
        assert_eq!(of(&fixture, true), expected);
        fixture.refuse("fr/box", Errno::ROFS);
        let why = of(&fixture, true).expect_err("neither is ours");
        assert!(why.contains("; version 1: ") && why.contains("fr/box is not ours to change"), "{why}");
        fixture.refused.borrow_mut().clear();
        for dir in ["v2/user@7/app", "v2/user@7"] {
            std::fs::remove_file(fixture.path(dir).join("cgroup.freeze")).expect("a file");
        }
        fixture.refuse("v2/cgroup.procs", Errno::ACCESS);
        assert_eq!(of(&fixture, true), expected);
        let why = survey(&fixture, HOLDERS).freezer.expect_err("no freezer of version 1 is mounted");
        assert!(
            why.contains("user@7 has no cgroup.freeze (Linux 5.2)") && !why.contains("version 1"),
            "{why}"
        );
    }

    #[test]
    fn a_threaded_cgroup_is_no_ground() {
        let fixture = systemd(&[("cgroup.type", "threaded\n")]);
        let found = survey(&fixture, "0::/user@7/app").freezer.expect("the one around it");
        assert_eq!(found.dir, fixture.path("v2/user@7"));
    }

    #[test]
    fn what_a_killed_process_asked_with_is_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut ended = std::process::Command::new("true").spawn().expect("true");
        ended.wait().expect("it ends");
        let of = |name: String| {
            std::fs::create_dir(dir.path().join(&name)).expect("a directory");
            name
        };
        let stale = of(format!("{PROBE}{}", ended.id()));
        let kept =
            [of(format!("{PROBE}{}", std::process::id())), of(format!("{PROBE}x")), of("other".to_owned())];
        remove_stale_probes(dir.path());
        assert!(!dir.path().join(stale).exists());
        for name in kept {
            assert!(dir.path().join(&name).exists(), "{name}");
        }
    }
}
