//! Who is never touched, and why; and what divvy would do about a process.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::owner::users;
use crate::procfs::{self, Comm, StartTime};
use crate::select::{matches_glob, user_name};
use crate::{CpuMask, Error, Pid, ProcessRef, Result, root_made};

/// Suspending one of these takes the desktop with it, or somebody's way to the machine.
static SERVERS: [(&str, Why); 25] = [
    ("X", Why::Display),
    ("Xorg*", Why::Display),
    ("Xwayland", Why::Display),
    ("Xvnc*", Why::Display),
    ("gnome-shell", Why::Display),
    ("mutter*", Why::Display),
    ("kwin*", Why::Display),
    ("plasmashell", Why::Display),
    ("sway", Why::Display),
    ("weston*", Why::Display),
    ("[Hh]yprland", Why::Display),
    ("wayfire", Why::Display),
    ("labwc", Why::Display),
    ("cosmic-comp", Why::Display),
    ("pipewire*", Why::Sound),
    ("wireplumber", Why::Sound),
    ("pulseaudio", Why::Sound),
    ("jackd*", Why::Sound),
    ("systemd*", Why::Session),
    ("(sd-pam)", Why::Session),
    ("dbus-daemon", Why::Session),
    ("dbus-broker*", Why::Session),
    ("sshd*", Why::Session),
    ("tmux: server", Why::Session),
    ("divvy*", Why::OtherDivvy),
];

/// Names that programs give themselves, and the files of those.
static RENAMED: [(&str, &str); 2] = [("tmux: server", "tmux"), ("(sd-pam)", "systemd*")];

/// Why a process is never touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is divvy itself.
    Divvy,
    /// It is another divvy, or a guardian.
    OtherDivvy,
    /// It is the shell that divvy was called from, or one of that shell's ancestors.
    Ancestor,
    /// It is the first process.
    Init,
    /// It is a part of the kernel.
    Kernel,
    /// It serves a display.
    Display,
    /// It serves sound.
    Sound,
    /// It keeps a user's session together.
    Session,
    /// It is on a list: whose, and where that is.
    Listed(Arc<str>),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Listed(list) => return write!(f, "it is on {list}"),
            Self::Divvy => "it is divvy itself",
            Self::OtherDivvy => "it is another divvy or its guardian",
            Self::Ancestor => "it is the shell that divvy was called from, or one of its ancestors",
            Self::Init => "it is the first process",
            Self::Kernel => "it is a part of the kernel",
            Self::Display => "it serves a display",
            Self::Sound => "it serves sound",
            Self::Session => "it keeps a session together",
        })
    }
}

/// The processes that are never touched: divvy itself and any other, the caller's shell and its ancestors, the first
/// process, the kernel's, display, sound and session servers, and what the user adds.
#[derive(Clone, Debug, Default)]
pub struct Protection {
    own: Option<Pid>,
    ancestors: Vec<(Pid, StartTime)>,
    servers: bool,
    /// A name counts where only root can have given it.
    of_root_only: bool,
    /// Patterns, and the lists that they are on.
    names: Vec<(String, Arc<str>)>,
}

impl Protection {
    /// Protects this process, its parent and all ancestors, and everybody who is protected by name.
    #[must_use]
    pub fn standard() -> Self {
        let own = rustix::process::getpid();
        let mut protection = Self { own: Some(own), servers: true, ..Self::default() };
        protection.add_caller(own);
        protection
    }

    /// Protects nobody but the first process and the kernel's.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Protects the ancestors of `caller` too: the shell that asked a daemon, say.
    pub fn add_caller(&mut self, caller: Pid) {
        let mut next = Some(caller);
        // A chain that was read while it changed may have a ring.
        while let Some(pid) = next.filter(|&pid| !self.ancestors.iter().any(|&(known, _)| known == pid)) {
            let Ok(Some(stat)) = procfs::stat(pid) else { return };
            self.ancestors.push((pid, stat.start));
            next = stat.ppid;
        }
    }

    /// Protects whoever has a name that matches `pattern`, as in `name:` selectors. It is on `list`: whose that is, and where, as in
    /// "your list (divvyd --protect)".
    pub fn add_name(&mut self, pattern: impl Into<String>, list: &Arc<str>) {
        self.names.push((pattern.into(), Arc::clone(list)));
    }

    /// From now on a name protects nobody but what is root's, or runs a program that only root can have put where it is: for a host
    /// that many users share, where whoever calls a program `sshd-mine` would leave what is divided.
    #[must_use]
    pub fn believing_root_only(self) -> Self {
        Self { of_root_only: true, ..self }
    }

    /// Why whoever has `pid` now is never touched; `None` if it may be, or is not there.
    #[must_use]
    pub fn check(&self, pid: Pid) -> Option<Why> {
        let stat = procfs::stat(pid).ok().flatten()?;
        self.why(pid, stat.start, &stat.comm, stat.ppid)
    }

    /// As [`check`](Self::check), for a process that has been looked at.
    pub(crate) fn why(&self, pid: Pid, start: StartTime, comm: &Comm, parent: Option<Pid>) -> Option<Why> {
        if self.own == Some(pid) {
            return Some(Why::Divvy);
        }
        if pid.as_raw_pid() == 1 {
            return Some(Why::Init);
        }
        if comm.as_bytes() == b"kthreadd" && parent.is_none() || parent.is_some_and(is_kernel) {
            return Some(Why::Kernel);
        }
        if self.ancestors.contains(&(pid, start)) {
            return Some(Why::Ancestor);
        }
        let name = String::from_utf8_lossy(comm.as_bytes());
        let mut listed = self.names.iter().filter(|(pattern, _)| matches_glob(pattern, &name));
        if let Some((_, list)) = listed.find(|(pattern, _)| self.believes(pid, pattern)) {
            return Some(Why::Listed(Arc::clone(list)));
        }
        let mut servers = SERVERS.iter().filter(|(pattern, _)| self.servers && matches_glob(pattern, &name));
        servers.find(|(pattern, _)| self.believes(pid, pattern)).map(|(_, why)| why.clone())
    }

    /// Whether the name of `pid`, which `pattern` matches, says what it is.
    fn believes(&self, pid: Pid, pattern: &str) -> bool {
        if !self.of_root_only || root_made::runs_as_root(pid) {
            return true;
        }
        match root_made::program(pid) {
            Ok(program) => program.is_some_and(|program| {
                let called =
                    RENAMED.iter().find(|(name, _)| *name == pattern).map_or(pattern, |(_, file)| file);
                // The kernel's names have 15 characters, and so may a pattern.
                let short: String = program.chars().take(15).collect();
                matches_glob(called, &program) || matches_glob(called, &short)
            }),
            // Where that cannot be seen, rather a user too many is left alone than a session held.
            Err(e) => e.kind() == std::io::ErrorKind::PermissionDenied,
        }
    }
}

/// Whether `pid` is the parent of the kernel's own processes. In a namespace of pids number 2 is anybody's.
fn is_kernel(pid: Pid) -> bool {
    pid.as_raw_pid() == 2
        && procfs::stat(pid)
            .ok()
            .flatten()
            .is_some_and(|s| s.comm.as_bytes() == b"kthreadd" && s.ppid.is_none())
}

/// What divvy would do with a process, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Explanation {
    /// The process.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub pid: i32,
    /// Whether it is there at all; where it is not, nothing else means anything.
    pub found: bool,
    /// The kernel's name of it.
    pub name: String,
    /// Its real user, by name where there is one.
    pub user: String,
    /// What it is doing.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["running", "asleep", "stopped", "traced", "ended"])))]
    pub state: String,
    /// Its parent.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub parent: Option<i32>,
    /// Its process group.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub group: Option<i32>,
    /// Its session.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub session: Option<i32>,
    /// Its paths in the hierarchies of cgroups.
    pub cgroups: Vec<String>,
    /// Its threads.
    pub threads: u32,
    /// CPUs that it may use, as the kernel writes lists of them.
    pub cpus: String,
    /// Whether divvy may send it signals.
    pub permitted: bool,
    /// Why it is never touched, if it is not.
    pub protected: Option<String>,
    /// Whether divvy would schedule it.
    pub schedulable: bool,
    /// What divvy would do, or what to do about it, in whole sentences.
    pub would: Vec<String>,
}

/// What divvy would do about whoever has `pid` now, as it is told to the user `whom`, if one is given: what others' processes read and
/// write is not, as the kernel keeps it.
///
/// # Errors
/// As [`procfs::stat`], [`ProcessRef::open`].
pub fn explain(pid: Pid, protection: &Protection, whom: Option<u32>) -> Result<Explanation> {
    let raw = |pid: Option<Pid>| pid.map(Pid::as_raw_pid);
    let mut said = Explanation {
        pid: pid.as_raw_pid(),
        found: false,
        name: String::new(),
        user: String::new(),
        state: "ended".to_owned(),
        parent: None,
        group: None,
        session: None,
        cgroups: Vec::new(),
        threads: 0,
        cpus: String::new(),
        permitted: false,
        protected: None,
        schedulable: false,
        would: Vec::new(),
    };
    let (Some(stat), Some(process)) = (procfs::stat(pid)?, ProcessRef::open(pid)?) else {
        said.would.push(format!("There is no process {pid}, or it has ended, or /proc hides it."));
        return Ok(said);
    };
    let Some(permitted) = process.may_signal()? else { return Ok(said) };
    let why = protection.why(pid, stat.start, &stat.comm, stat.ppid);
    let users = users(pid)?;
    let is_theirs = |whom| users.is_some_and(|users| users.is_owned_by(whom));
    (said.found, said.permitted) = (true, permitted);
    said.name = stat.comm.to_string();
    said.user = users.map_or_else(String::new, |u| user_name(u.real).unwrap_or_else(|| u.real.to_string()));
    said.state = state_name(stat.state).to_owned();
    (said.parent, said.group, said.session) = (raw(stat.ppid), raw(stat.pgrp), raw(stat.session));
    said.cgroups = procfs::cgroups(pid);
    said.threads = stat.num_threads;
    said.cpus = CpuMask::of_thread(pid).ok().flatten().map_or_else(String::new, |mask| mask.to_string());
    said.protected = why.as_ref().map(ToString::to_string);
    said.schedulable = said.permitted && why.is_none();
    said.would = sentences(&said, why, &stat, &process, whom.is_none_or(is_theirs))?;
    Ok(said)
}

/// The state of a process in a word.
pub fn state_name(state: procfs::State) -> &'static str {
    use procfs::State;
    match state {
        State::Running => "running",
        State::Stopped => "stopped",
        State::Traced => "traced",
        State::Zombie | State::Dead => "ended",
        _ => "asleep",
    }
}

fn sentences(
    said: &Explanation,
    why: Option<Why>,
    stat: &procfs::Stat,
    process: &ProcessRef,
    is_theirs: bool,
) -> Result<Vec<String>> {
    let mut told = Vec::new();
    if let Some(why) = why {
        told.push(format!("divvy never touches it: {why}."));
        return Ok(told);
    }
    if !said.permitted {
        told.push(format!(
            "divvy may not signal it: it runs as another user ({}). As a part of a client it counts and is charged, and \
             is never held. Run divvy as that user, or as root.",
            said.user
        ));
        return Ok(told);
    }
    told.push(
        "divvy would suspend it (SIGSTOP) while others have their turn, and resume it (SIGCONT).".into(),
    );
    if is_theirs {
        // Of another that has got its number meanwhile nothing is told.
        let of_disks = of_disks(process.pid())?;
        told.extend(of_disks.filter(|_| process.is_alive().unwrap_or(false)));
    } else {
        told.push(format!("It is another user's ({}): that user, or root, makes it a client.", said.user));
    }
    if stat.state.is_asleep() {
        told.push("It sleeps: it is left alone until it uses CPU time.".into());
    }
    if stat.state.is_suspended() {
        told.push(
            "It is suspended. Whom divvy suspends it resumes; where somebody else did so, it stays so, and counts as \
             blocked until they resume it."
                .into(),
        );
    }
    // In the foreground of its terminal.
    if stat.pgrp.is_some() && stat.pgrp == stat.foreground && stat.ppid.is_some_and(has_job_control) {
        told.push(
            "It is a foreground job of an interactive shell: at its first hold the shell takes it for stopped by Ctrl-Z \
             and shows its prompt. Start it with 'divvy share', or in the background."
                .into(),
        );
    }
    if procfs::tracer(process.pid())?.is_some() {
        told.push("A debugger is attached to it: the debugger sees each of divvy's signals first.".into());
    }
    Ok(told)
}

/// What it had of disks, and what would come of limits and shares of them.
fn of_disks(pid: Pid) -> Result<Option<String>> {
    let kept = "where clients are held by signals or the freezer";
    match procfs::disk_use(pid) {
        Ok(used) => Ok(used.map(|used| {
            format!(
                "It has read {} KiB from disks and written {} KiB to them so far: {kept}, divvyd suspends it too while its \
                 client has had its limit (--limit disk:RATE) or its part (--disk-share, --reserve disk:PERCENT) of them.",
                used.read >> 10,
                used.written >> 10
            )
        })),
        Err(Error::Permission { .. }) => Ok(Some(format!(
            "What it reads from disks and writes to them may not be looked at: {kept}, limits and shares of disks pass it \
             over. Run divvyd as root, or with --backend cgroup."
        ))),
        Err(e) => Err(e),
    }
}

/// Whether `pid` leads a session on a terminal, as an interactive shell does.
fn has_job_control(pid: Pid) -> bool {
    procfs::stat(pid).ok().flatten().is_some_and(|s| s.session == Some(pid))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(n: i32) -> Pid {
        Pid::from_raw(n).expect("not zero")
    }

    fn why(protection: &Protection, n: i32, comm: &str, parent: i32) -> Option<Why> {
        let line = format!("{n} ({comm}) S {parent} 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 77 1 1");
        let stat = procfs::Stat::parse(line.as_bytes()).expect("a line");
        protection.why(pid(n), stat.start, &stat.comm, stat.ppid)
    }

    #[test]
    fn whoever_holds_the_session_together_is_left_alone() {
        let standard = Protection::standard();
        let rows = [
            (1, "anything", 0, Some(Why::Init)),
            (2, "kthreadd", 0, Some(Why::Kernel)),
            (999_999, "Xorg", 1, Some(Why::Display)),
            (999_999, "Xorg.bin", 1, Some(Why::Display)),
            (999_999, "Hyprland", 1, Some(Why::Display)),
            (999_999, "pipewire-pulse", 1, Some(Why::Sound)),
            (999_999, "systemd-logind", 1, Some(Why::Session)),
            (999_999, "divvy-guardian", 1, Some(Why::OtherDivvy)),
            (999_999, "divvyd", 1, Some(Why::OtherDivvy)),
            (999_999, "Xeyes", 1, None),
            (999_999, "make", 1, None),
        ];
        for (n, comm, parent, expected) in rows {
            assert_eq!(why(&standard, n, comm, parent), expected, "{comm}");
        }
        assert_eq!(why(&Protection::none(), 999_999, "Xorg", 1), None);
    }

    #[test]
    fn the_caller_and_its_ancestors_are_left_alone() {
        let standard = Protection::standard();
        assert_eq!(standard.check(rustix::process::getpid()), Some(Why::Divvy));
        let parent = rustix::process::getppid().expect("a parent");
        assert!(matches!(standard.check(parent), Some(Why::Ancestor | Why::Init)));
        // The number alone does not protect whoever gets it next.
        assert_eq!(why(&standard, parent.as_raw_pid().max(2), "make", 1), None);
        let mut of_nobody = Protection::none();
        of_nobody.add_caller(rustix::process::getpid());
        assert_eq!(of_nobody.check(rustix::process::getpid()), Some(Why::Ancestor));
    }

    /// The kernel's name of a process is anybody's to choose.
    #[test]
    fn a_name_that_anybody_can_have_protects_nobody_among_users() {
        let dir = tempfile::tempdir().expect("a directory");
        let copy = dir.path().join("sshd-mine");
        std::fs::copy("/bin/sleep", &copy).expect("a copy");
        // As another user's: root's own processes are believed.
        let start = |program: &std::path::Path| {
            let mut command = std::process::Command::new(program);
            if rustix::process::geteuid().is_root() {
                use std::os::unix::process::CommandExt as _;
                command.uid(65_534);
            }
            command.arg("60").spawn().expect("sleep")
        };
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).expect("our directory");
        let mut children = [start(&copy), start(std::path::Path::new("/bin/sleep"))];
        let [mine, system] = children.each_ref().map(Pid::from_child);
        let list: Arc<str> = "a list".into();
        let (mut all, mut roots) = (Protection::standard(), Protection::standard().believing_root_only());
        for protection in [&mut all, &mut roots] {
            protection.add_name("slee*", &list);
        }
        let seen = [all.check(mine), roots.check(mine), roots.check(system)];
        for child in &mut children {
            child.kill().and_then(|()| child.wait()).expect("our child");
        }
        assert_eq!(seen, [Some(Why::Session), None, Some(Why::Listed(list))]);
    }

    #[test]
    fn the_user_may_list_more() {
        let mut protection = Protection::standard();
        protection.add_name("emac*", &"somebody's list (where it is)".into());
        let listed = why(&protection, 999_999, "emacs", 1).expect("listed");
        assert_eq!(listed.to_string(), "it is on somebody's list (where it is)");
        assert_eq!(why(&protection, 999_999, "vi", 1), None);
    }

    #[test]
    fn processes_are_explained() {
        let own = explain(rustix::process::getpid(), &Protection::standard(), None).expect("readable");
        assert!(own.found && own.permitted && !own.schedulable);
        assert_eq!(own.would, ["divvy never touches it: it is divvy itself."]);
        let nobody = explain(pid((1 << 22) + 1), &Protection::standard(), None).expect("normal");
        assert!(!nobody.found && !nobody.schedulable && nobody.would[0].starts_with("There is no process"));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let own = rustix::process::geteuid().as_raw();
        let of = |whom| explain(Pid::from_child(&child), &Protection::standard(), whom);
        let (said, for_us, for_others) = (of(None), of(Some(own)), of(Some(own + 1)));
        child.kill().and_then(|()| child.wait()).expect("our child");
        let said = said.expect("readable");
        assert!(
            said.schedulable && said.threads == 1 && said.parent == Some(std::process::id() as i32),
            "{said:?}"
        );
        assert!(said.would[0].contains("SIGSTOP"), "{said:?}");
        assert!(said.would[1].contains(" KiB from disks and written 0 KiB to them so far"), "{said:?}");
        assert!(for_us.expect("readable").schedulable);
        // Whoever asks for another user is told what /proc tells everybody.
        let told = for_others.expect("readable");
        assert!(told.permitted && told.would[1].starts_with("It is another user's ("), "{told:?}");
        assert!(told.would.iter().all(|line| !line.contains("KiB")), "{told:?}");
    }
}
