//! An ordinary user of a machine with systemd: no cgroup is theirs to change, and their own systemd makes one for each `divvy share`.
//!
//! Here systemd is not the first process, so that the test lets alice move her own processes within her slice; on a machine of its own
//! the first process does that for her systemd.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use serde_json::Value;

use super::backend::{check_success, dirs, eventually, output};
use super::{Group, ROOT, SPIN};
use crate::page;

const ALICE: u32 = 1001;
const HOME: &str = "/tmp/alice";
const RUNTIME: &str = "/run/user/1001";

/// Alice, logged in: a session, and a systemd with its bus.
struct Login {
    systemd: Child,
    slice: PathBuf,
    _groups: [Group; 2],
}

impl Login {
    fn new() -> Self {
        // By the cgroup of the first process a systemd finds out whether the kernel can freeze.
        let groups = ["user.slice", "init.scope"].map(Group::new);
        let slice = Path::new(ROOT).join(format!("user.slice/user-{ALICE}.slice"));
        let (session, manager) = (slice.join("session-1.scope"), slice.join(format!("user@{ALICE}.service")));
        for dir in [&session, &manager] {
            fs::create_dir_all(dir).expect("root may");
        }
        for dir in [slice.parent().expect("a parent"), &slice] {
            fs::write(dir.join("cgroup.subtree_control"), "+cpu +memory +pids").expect("they are there");
        }
        let hers =
            ["", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"].map(|name| manager.join(name));
        for path in hers.iter().chain([&slice.join("cgroup.procs")]) {
            chown(path, Some(ALICE), Some(ALICE)).expect("root may");
        }
        let units = format!("{HOME}/.config/systemd/user");
        // She has no terminal, so that she is asked for only as one whose systemd goes on when she has logged out.
        for dir in ["/run/systemd/system", RUNTIME, &units, "/var/lib/systemd/linger/alice"] {
            fs::create_dir_all(dir).expect("a directory");
        }
        let service = format!(
            "[Unit]\nDefaultDependencies=no\nRequires=dbus.socket\n[Service]\nType=notify\nExecStart=/bin/dbus-daemon --config-file={HOME}/bus.conf \
             --address=systemd: --nofork --nopidfile --systemd-activation\n"
        );
        let bus = format!(
            "<busconfig><type>session</type><listen>unix:path={RUNTIME}/bus</listen><auth>EXTERNAL</auth>\
             <policy context=\"default\"><allow send_destination=\"*\" eavesdrop=\"true\"/><allow eavesdrop=\"true\"/><allow own=\"*\"/></policy></busconfig>"
        );
        for (path, text) in [
            (format!("{units}/default.target"), "[Unit]\nRequires=dbus.service\n"),
            // What a service of hers comes after, and before.
            (format!("{units}/basic.target"), "[Unit]\nDefaultDependencies=no\n"),
            (format!("{units}/shutdown.target"), "[Unit]\nDefaultDependencies=no\n"),
            (
                format!("{units}/dbus.socket"),
                "[Unit]\nDefaultDependencies=no\n[Socket]\nListenStream=%t/bus\n",
            ),
            (format!("{units}/dbus.service"), &service),
            (format!("{HOME}/bus.conf"), &bus),
        ] {
            fs::write(path, text).expect("written");
        }
        for dir in [HOME, RUNTIME] {
            chown(dir, Some(ALICE), Some(ALICE)).expect("root may");
        }
        let mut start = Command::new("systemd");
        as_alice_in(&manager, start.args(["--user", "--unit=default.target"]));
        let systemd = start.spawn().expect("systemd");
        let login = Self { systemd, slice, _groups: groups };
        eventually("alice's systemd to be on her bus", || {
            let mut list = Command::new("busctl");
            as_alice_in(&session, list.args(["--user", "status", "org.freedesktop.systemd1"]));
            let done = list.output().expect("busctl");
            done.status.success().then_some(())
        });
        login
    }

    /// A command of alice's in her session, which says at last where its shell is.
    fn command(&self, line: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{line} && cat /proc/self/cgroup")]);
        as_alice_in(&self.slice.join("session-1.scope"), &mut command);
        command
    }

    fn scopes(&self) -> usize {
        dirs(&self.slice.join(format!("user@{ALICE}.service/app.slice")), "divvy-").len()
    }
}

/// Has a command be alice's, in a cgroup: into that root puts it.
fn as_alice_in(cgroup: &Path, command: &mut Command) {
    let procs = fs::File::options().write(true).open(cgroup.join("cgroup.procs")).expect("root may");
    command.uid(ALICE).gid(ALICE).envs([("HOME", HOME), ("XDG_RUNTIME_DIR", RUNTIME)]);
    let enter = move || Ok(rustix::io::write(&procs, b"0").map(|_| ())?);
    // SAFETY: a system call, which is all that is permitted between fork and exec.
    unsafe { command.pre_exec(enter) };
}

impl Drop for Login {
    fn drop(&mut self) {
        let _ = self.systemd.kill();
        let _ = self.systemd.wait();
        fs::write(self.slice.join("cgroup.kill"), "1").expect("the kernel has it");
    }
}

fn report(path: &str) -> Value {
    serde_json::from_slice(&fs::read(path).expect("written")).expect("a report")
}

#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn who_is_logged_in_gets_a_scope_from_systemd() {
    let login = Login::new();
    let path = format!("{HOME}/report.json");
    let share = format!("divvy share --quiet --for 5s --report {path} '1:{SPIN}' '3:{SPIN}'");
    let where_after = check_success(&mut login.command(&share));
    assert!(where_after.ends_with("/session-1.scope\n"), "her shell stays in her session: {where_after}");
    let report = report(&path);
    let backend = &report["backend"];
    assert_eq!(
        (&backend["used"], &report["self"]["accounts"]),
        (&"idle".into(), &"cgroups".into()),
        "{report}"
    );
    let why = backend["why"].as_str().expect("a word");
    assert!(why.contains("/app.slice/divvy-") && why.ends_with(".scope is ours"), "{why}");
    let got = report["clients"][1]["achieved_fraction"].as_f64().expect("a number");
    assert!((got - 0.75).abs() < 0.01, "{got} of 0.75");
    eventually("systemd to remove the empty scope", || (login.scopes() == 0).then_some(()));
}

/// Signals alone need none, and where the bus is gone they serve.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn without_systemd_signals_serve_and_say_why() {
    let mut login = Login::new();
    let path = format!("{HOME}/report.json");
    let share =
        |more: &str| format!("divvy share --quiet --for 1s --report {path} {more} '1:{SPIN}' '3:{SPIN}'");
    check_success(&mut login.command(&share("--backend signals")));
    assert_eq!((report(&path)["backend"]["why"].as_str(), login.scopes()), (Some("asked for"), 0));
    login.systemd.kill().expect("our child");
    login.systemd.wait().expect("our child");
    check_success(&mut login.command(&share("")));
    let report = report(&path);
    assert_eq!(report["backend"]["used"], "signals");
    let why = report["backend"]["why"].as_str().expect("a word");
    assert!(why.contains("is not ours to change") && why.contains("systemd gives no scope: "), "{why}");
}

/// Whoever has no terminal may outlive the session, and their systemd does not where they do not linger.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn who_does_not_linger_stays_in_the_session() {
    let login = Login::new();
    fs::remove_dir("/var/lib/systemd/linger/alice").expect("root may");
    let path = format!("{HOME}/report.json");
    // In the kernel's own process group, which has no number, as whatever is started before anybody has made one.
    check_success(&mut login.command(&format!("divvy share --quiet --for 1s --report {path} '1:{SPIN}'")));
    let report = report(&path);
    let why = report["backend"]["why"].as_str().expect("a word");
    assert_eq!((&report["backend"]["used"], login.scopes()), (&"signals".into(), 0));
    assert!(why.contains("is not moved out of it (loginctl enable-linger)"), "{why}");
}

/// The block of `docs/backends.md`: the cgroup that systemd delegates serves as it is, and divvy asks for none.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn a_scope_by_hand_serves_as_backends_md_says() {
    let login = Login::new();
    let line = page::block(include_str!("../../../../docs/backends.md"), "sh systemd");
    let done = output(&mut login.command(line.trim_end()));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{}: {said}", done.status);
    assert!(said.contains("backend cgroup: ") && said.contains("/app.slice/run-"), "{said}");
    assert!(said.contains(".scope is ours, and the kernel divides by cpu.weight"), "{said}");
}

/// The column of `docs/compare.md`, for what cannot be run where the others are.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn every_command_of_compare_md_for_systemd_runs() {
    let page = include_str!("../../../../docs/compare.md");
    let cells = |line: &'static str| line.trim_matches('|').split(" | ").map(str::trim).collect::<Vec<_>>();
    let mut rows = page.lines().filter(|line| line.starts_with("| ")).map(cells);
    let titles = rows.next().expect("a table");
    let column = titles.iter().position(|title| *title == "systemd").expect("a column");
    let login = Login::new();
    check_success(&mut login.command("systemd-run --user --unit=UNIT sleep 600"));
    let mut ran = 0;
    for row in rows.filter(|row| row[column] != "-") {
        let line = row[column].strip_prefix('`').and_then(|cell| cell.strip_suffix('`')).expect("a command");
        check_success(&mut login.command(line));
        ran += 1;
    }
    assert!(ran >= 9, "{ran} commands");
    let weight = login.slice.join(format!("user@{ALICE}.service/app.slice/UNIT.service/cpu.weight"));
    assert_eq!(fs::read_to_string(weight).expect("it runs still").trim(), "500", "set-property");
}
