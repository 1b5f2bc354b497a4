//! A cgroup of one's own from systemd: a scope, delegated, as `systemd-run --user --scope -p Delegate=yes` makes them.
//!
//! In a login session no cgroup is an ordinary user's to change, but the user's own systemd has one that is, and makes scopes there for
//! whoever asks over D-Bus (`StartTransientUnit`). systemd's own `busctl` does the asking: it is there where systemd is, and knows
//! where its bus is. This process is moved into the scope, and whatever it starts is born there. An empty scope is gone by itself.
//!
//! A divvyd has clients that it did not start, in login sessions. It may not move them: the cgroup around such a session and its scope
//! is root's. systemd may, and does (`AttachProcessesToUnit`, [`super::migrate`]).
//!
//! Whoever runs in a service, a container or a batch system's cgroup stays there: it is where that is counted, limited and ended. So
//! does whoever is in a scope with limits.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use divvy_policy::Nanos;
use rustix::io::Errno;

use super::files::{Files, Real};
use crate::reactor::is_ignored;
use crate::{clock, mounts, procfs};

/// What there is where systemd is the first process (`sd_booted(3)`).
const BOOTED: &str = "/run/systemd/system";
/// Users whose systemd runs on when they have logged out, by name.
const LINGER: &str = "/var/lib/systemd/linger";
/// How long systemd may take to answer, and then to move us.
pub(super) const PATIENCE: Nanos = Nanos::from_secs(2);
/// How often we look whether we have been moved.
const LOOK: Nanos = Nanos::from_millis(1);
/// Files of a scope's cgroup that say `max` (with a period, perhaps) where nothing is limited.
const LIMITS: [&str; 4] = ["cpu.max", "memory.max", "memory.high", "memory.swap.max"];

/// The cgroup within a divvyd's scope where it is itself, and whoever was its client and cannot be moved back.
const HOME: &str = "home";

/// How long that lasts for which a scope is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// A run's: as long as the session, where it is in the foreground.
    Run,
    /// A divvyd's, whose clients may outlive any session.
    Daemon,
}

/// Where somebody is, and whose systemd is to be asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    bus: &'static str,
    runtime_dir: PathBuf,
    /// Where cgroups of version 2 are.
    mounted: PathBuf,
}

/// Whether systemd would be asked for a scope, for this process as it is now: one with the cpu controller, or any.
///
/// # Errors
/// Why not.
pub(crate) fn can_ask(with_cpu: bool, lifetime: Lifetime) -> Result<(), String> {
    whom(with_cpu, lifetime, &procfs::cgroup_text("self")).map(|_| ())
}

/// The same for a process in `cgroup`, by its `/proc/PID/cgroup`.
pub(super) fn whom(with_cpu: bool, lifetime: Lifetime, cgroup: &str) -> Result<Place, String> {
    let uid = rustix::process::geteuid().as_raw();
    if !is_first_namespace() {
        return Err("systemd does not know us by our number: this is a container".to_owned());
    }
    let lingers = crate::user_name(uid).is_some_and(|name| Path::new(LINGER).join(name).exists());
    if !lingers && (lifetime == Lifetime::Daemon || !ends_with_session()) {
        return Err(
            "what is to outlive the session is not moved out of it (loginctl enable-linger)".to_owned()
        );
    }
    place(Path::new("/"), uid, with_cpu, &mounts::own(), cgroup, &Real)
}

/// Has systemd make a scope, `with_cpu` or without that controller, and this process be moved into it: a divvyd, which makes cgroups
/// beside the one where it is, into one of its own there.
///
/// # Errors
/// Why there is none, or none that serves.
pub(crate) fn enter(with_cpu: bool, lifetime: Lifetime) -> Result<(), String> {
    let place = whom(with_cpu, lifetime, &procfs::cgroup_text("self"))?;
    let pid = rustix::process::getpid();
    let start = procfs::stat(pid).ok().flatten().map_or(0, |stat| stat.start.0);
    let name = format!("divvy-{pid}-{start}.scope");
    let suffix = format!("/{name}");
    let is_there = || unified(&procfs::cgroup_text("self")).is_some_and(|path| path.ends_with(&suffix));
    let asked = ask(&place, &name, pid);
    let until = clock::now() + PATIENCE;
    while asked.is_ok() && !is_there() && clock::now() < until {
        clock::sleep(LOOK);
    }
    match asked {
        _ if is_there() && lifetime == Lifetime::Run => Ok(()),
        _ if is_there() => go_home(&place).map_err(|e| format!("make cgroup {HOME} in {name}: {e}")),
        Ok(()) => Err(format!("systemd has made {name}, but moved nobody there")),
        Err(why) => Err(format!("systemd gives no scope: {why}")),
    }
}

/// Moves this process from its scope into a cgroup there. A cgroup that divides among its children has no processes itself, so that
/// whoever is let go could not be moved to where we are.
fn go_home(place: &Place) -> Result<(), Errno> {
    let text = procfs::cgroup_text("self");
    let path = unified(&text).ok_or(Errno::NOENT)?;
    let home = place.mounted.join(path.trim_start_matches('/')).join(HOME);
    Real.make(&home)?;
    Real.write(&home.join("cgroup.procs"), "0")
}

/// Whether our number is the one that systemd knows us by.
fn is_first_namespace() -> bool {
    // PROC_PID_INIT_INO: the kernel's number of the first namespace.
    std::fs::metadata("/proc/self/ns/pid").is_ok_and(|meta| meta.ino() == 0xEFFF_FFFC)
}

/// Whether we are to end with the session: in the foreground of its terminal, and not told to live on (nohup). A session in which
/// nobody is left is over, and with the last one of a user their systemd ends, and all that it started.
fn ends_with_session() -> bool {
    let terminal = std::fs::File::open("/dev/tty");
    // There is none where whoever made the group is of another namespace, or the kernel itself.
    let group = procfs::stat(rustix::process::getpid()).ok().flatten().and_then(|stat| stat.pgrp);
    let foreground =
        terminal.is_ok_and(|tty| rustix::termios::tcgetpgrp(tty).is_ok_and(|there| Some(there) == group));
    foreground && !is_ignored(nix::sys::signal::Signal::SIGHUP)
}

/// The path in the hierarchy of version 2.
fn unified(cgroup: &str) -> Option<&str> {
    cgroup.lines().find_map(|line| line.strip_prefix("0::"))
}

/// Whom to ask, for user `uid` in `cgroup`; paths of the machine are below `root`.
fn place(
    root: &Path,
    uid: u32,
    with_cpu: bool,
    mountinfo: &str,
    cgroup: &str,
    files: &dyn Files,
) -> Result<Place, String> {
    let below = |path: &str| root.join(path.trim_start_matches('/'));
    if !below(BOOTED).is_dir() {
        return Err("systemd does not run this machine".to_owned());
    }
    let path = unified(cgroup).ok_or("cgroup v2 is not mounted")?;
    let slice = format!("/user.slice/user-{uid}.slice/");
    if !path.starts_with(&slice) || !path.ends_with(".scope") {
        return Err(format!("{path} is no scope of this user's session"));
    }
    let mounted = mounts::parse(mountinfo)
        .filter(|mount| mount.kind == "cgroup2" && mount.root == Path::new("/"))
        .map(|mount| mount.point)
        .last();
    let mounted = mounted.ok_or("cgroup v2 is not mounted")?;
    let dir = mounted.join(path.trim_start_matches('/'));
    for name in LIMITS {
        // A controller that is off limits nothing.
        let Ok(text) = files.read(&dir.join(name)) else { continue };
        if text.split_whitespace().next() != Some("max") {
            return Err(format!(
                "{} limits what is in it, and a scope of our own would not be",
                dir.join(name).display()
            ));
        }
    }
    // What systemd can give is what there is where it makes its scopes.
    let giver = match uid {
        0 => mounted.clone(),
        _ => mounted.join(slice.trim_start_matches('/')).join(format!("user@{uid}.service")),
    };
    let controllers = files.read(&giver.join("cgroup.controllers")).unwrap_or_default();
    if with_cpu && !controllers.split_whitespace().any(|name| name == "cpu") {
        return Err(format!("systemd has no cpu controller to give in {}", giver.display()));
    }
    let runtime_dir = format!("/run/user/{uid}");
    let of = |bus| Place { bus, runtime_dir: runtime_dir.clone().into(), mounted };
    match uid {
        0 => Ok(of("--system")),
        _ if below(&runtime_dir).join("bus").exists() => Ok(of("--user")),
        _ => Err(format!("there is no message bus of user {uid} ({runtime_dir}/bus)")),
    }
}

fn ask(place: &Place, name: &str, pid: crate::Pid) -> Result<(), String> {
    let pid = pid.to_string();
    let properties = ["Description", "s", "divvy and what it divides", "Delegate", "b", "true"];
    let more = ["CollectMode", "s", "inactive-or-failed", "PIDs", "au", "1", &pid, "0"];
    let words = ["StartTransientUnit", "ssa(sv)a(sa(sv))", name, "fail", "4"];
    call(place, words.iter().chain(&properties).chain(&more), PATIENCE)
}

/// Has systemd's manager do what `words` say: a method, the kinds of its arguments, and these.
///
/// # Errors
/// What it says, or that it does not answer within `limit`, [`PATIENCE`] at most.
pub(super) fn call(
    place: &Place,
    words: impl IntoIterator<Item: AsRef<OsStr>>,
    limit: Nanos,
) -> Result<(), String> {
    // Root's path may be another user's.
    let mut busctl = Command::new(if place.bus == "--system" { "/usr/bin/busctl" } else { "busctl" });
    busctl.args([place.bus, "--quiet", "--timeout=2", "call"]);
    busctl.args([
        "org.freedesktop.systemd1",
        "/org/freedesktop/systemd1",
        "org.freedesktop.systemd1.Manager",
    ]);
    busctl.args(words);
    // The bus that was found there, whatever the environment names.
    let bus = format!("unix:path={}/bus", place.runtime_dir.display());
    busctl.env("DBUS_SESSION_BUS_ADDRESS", bus).env_remove("DBUS_SYSTEM_BUS_ADDRESS");
    let failed = |e: std::io::Error| format!("busctl, which asks it: {e}");
    let mut child =
        busctl.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(failed)?;
    // Its time limit is that of the answer alone.
    let until = clock::now() + limit.min(PATIENCE);
    while child.try_wait().map_err(failed)?.is_none() {
        if clock::now() > until {
            let _ = child.kill();
            let _ = child.wait();
            return Err("it does not answer".to_owned());
        }
        clock::sleep(LOOK);
    }
    let done = child.wait_with_output().map_err(failed)?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(said.lines().next().unwrap_or_default().trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::files::fixture::Fixture;
    use super::*;

    const UNLIMITED: &[(&str, &str)] = &[("cpu.max", "max 100000\n"), ("memory.max", "max\n")];
    const SESSION: &str = "user.slice/user-7.slice/session-2.scope";
    const MANAGER: &str = "user.slice/user-7.slice/user@7.service";

    /// A machine of systemd, user 7 logged in.
    fn machine() -> Fixture {
        let fixture = Fixture::new(UNLIMITED);
        for dir in ["run/systemd/system", "run/user/7/bus"] {
            std::fs::create_dir_all(fixture.path(dir)).expect("directories");
        }
        fixture.cgroup(&format!("cgroup/{SESSION}"), &[]);
        fixture.cgroup(&format!("cgroup/{MANAGER}"), &[("cgroup.controllers", "cpu memory pids\n")]);
        fixture.cgroup("cgroup", &[("cgroup.controllers", "cpuset cpu io\n")]);
        fixture
    }

    fn of(fixture: &Fixture, uid: u32, path: &str) -> Result<Place, String> {
        let mounts =
            format!("31 20 0:26 / {} rw shared:4 - cgroup2 cgroup2 rw\n", fixture.path("cgroup").display());
        let cgroup = format!("4:cpu:/elsewhere\n0::/{path}\n");
        place(&fixture.path(""), uid, true, &mounts, &cgroup, fixture)
    }

    #[test]
    fn who_is_in_a_session_asks_their_own_systemd() {
        let fixture = machine();
        let mounted = fixture.path("cgroup");
        let theirs = Place { bus: "--user", runtime_dir: "/run/user/7".into(), mounted };
        assert_eq!(of(&fixture, 7, SESSION), Ok(theirs));
        let root = SESSION.replace("user-7", "user-0");
        assert_eq!(of(&fixture, 0, &root).map(|place| place.bus), Ok("--system"));
        // A terminal of a desktop is in a scope of the user's own systemd.
        let terminal = "user.slice/user-7.slice/user@7.service/app.slice/app-terminal-9.scope";
        assert!(of(&fixture, 7, terminal).is_ok());
    }

    #[test]
    fn who_is_kept_somewhere_stays_there() {
        let fixture = machine();
        for path in [
            "",
            "system.slice/cron.service",
            "system.slice/slurmstepd.scope/job_7/step_0",
            "user.slice/user-7.slice/user@7.service/app.slice/runner.service",
            // Somebody else's session: of `su`.
            "user.slice/user-8.slice/session-3.scope",
        ] {
            let why = of(&fixture, 7, path).expect_err(path);
            assert_eq!(why, format!("/{path} is no scope of this user's session"));
        }
        for (file, text) in
            [("cpu.max", "50000 100000\n"), ("memory.max", "1048576\n"), ("memory.high", "0\n")]
        {
            let fixture = machine();
            fixture.cgroup(&format!("cgroup/{SESSION}"), &[(file, text)]);
            let why = of(&fixture, 7, SESSION).expect_err(file);
            assert!(why.contains(&format!("session-2.scope/{file} limits what is in it")), "{why}");
        }
    }

    /// Freezing needs no controller, weights do.
    #[test]
    fn nobody_is_moved_for_a_controller_that_cannot_be_had() {
        let fixture = machine();
        let given = fixture.path(&format!("cgroup/{MANAGER}/cgroup.controllers"));
        std::fs::write(given, "cpuset memory pids\n").expect("a file");
        let why = of(&fixture, 7, SESSION).expect_err("no cpu");
        assert!(why.contains("no cpu controller to give in ") && why.ends_with("user@7.service"), "{why}");
        let mounts = format!("31 20 0:26 / {} rw - cgroup2 cgroup2 rw\n", fixture.path("cgroup").display());
        let cgroup = format!("0::/{SESSION}\n");
        assert!(place(&fixture.path(""), 7, false, &mounts, &cgroup, &fixture).is_ok());
    }

    #[test]
    fn where_there_is_nobody_to_ask_that_is_said() {
        let fixture = machine();
        std::fs::remove_dir_all(fixture.path("run/user")).expect("ours");
        let why = of(&fixture, 7, SESSION).expect_err("no bus of theirs");
        assert_eq!(why, "there is no message bus of user 7 (/run/user/7/bus)");
        std::fs::remove_dir_all(fixture.path("run")).expect("ours");
        assert_eq!(of(&fixture, 7, SESSION), Err("systemd does not run this machine".to_owned()));
        let none =
            place(&machine().path(""), 7, true, "", "0::/user.slice/user-7.slice/a.scope\n", &machine());
        assert_eq!(none, Err("cgroup v2 is not mounted".to_owned()));
    }
}
