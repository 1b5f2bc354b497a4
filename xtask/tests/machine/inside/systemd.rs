//! An ordinary user of a machine with systemd: no cgroup is theirs to change, and their own systemd makes one for each `divvy share`
//! and for their divvyd.
//!
//! Here systemd is not the first process. On a machine of its own the first process moves alice's processes within her slice, for her
//! systemd, whoever else asks for it; so here her systemd alone is in a group that may, and no other process of hers is.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use divvy_linux::Pid;
use divvy_linux::cgroup::room::Cgroup;
use rustix::process::{Signal, kill_process};
use serde_json::Value;

use super::backend::{
    Daemon, check_parts, check_success, dirs, eventually, kill_with_guardian, output, used,
};
use super::{Group, ROOT, SPIN};
use crate::page;

const ALICE: u32 = 1001;
/// The group of those who may move processes within her slice.
const MOVERS: u32 = 2001;
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
        for path in &hers {
            chown(path, Some(ALICE), Some(ALICE)).expect("root may");
        }
        let procs = slice.join("cgroup.procs");
        chown(&procs, None, Some(MOVERS)).expect("root may");
        fs::set_permissions(&procs, fs::Permissions::from_mode(0o664)).expect("root may");
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
        as_alice_of(&[MOVERS], &manager, start.args(["--user", "--unit=default.target"]));
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

    /// The one scope that there is.
    fn scope(&self) -> PathBuf {
        let mut all = dirs(&self.slice.join(format!("user@{ALICE}.service/app.slice")), "divvy-");
        assert_eq!(all.len(), 1, "{all:?}");
        all.pop_first().expect("one")
    }

    /// A command of alice's in her session, which goes on beside the test.
    fn start(&self, words: &[&str]) -> Spinner {
        let mut command = Command::new(words[0]);
        as_alice_in(&self.slice.join("session-1.scope"), command.args(&words[1..]).stdin(Stdio::null()));
        Spinner(command.spawn().expect("a program"))
    }

    /// What divides alice's clients, and why.
    fn backend(&self) -> (String, String) {
        let told = check_success(&mut self.command("divvy ls --json"));
        // After it comes where her shell is.
        let mut told = serde_json::Deserializer::from_str(&told).into_iter::<Value>();
        let told = told.next().expect("an answer").expect("JSON");
        let word = |name: &str| told["backend"][name].as_str().expect("a word").to_owned();
        (word("used"), word("why"))
    }
}

/// A process beside the test, asked to end with it.
struct Spinner(Child);

impl Spinner {
    fn end(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.end();
    }
}

/// Where the processes are that compute: below which cgroups, each.
fn spinners() -> Vec<PathBuf> {
    let words = format!("sh\0-c\0{SPIN}\0");
    let all = fs::read_dir("/proc").expect("readable").flatten().map(|entry| entry.path());
    let spins = |dir: &PathBuf| fs::read(dir.join("cmdline")).is_ok_and(|line| line == words.as_bytes());
    let place = |dir: PathBuf| fs::read_to_string(dir.join("cgroup")).ok();
    let places = all.filter(spins).filter_map(place);
    let mut places: Vec<PathBuf> = places
        .map(|text| Path::new(ROOT).join(text.trim().strip_prefix("0::/").expect("version 2")))
        .collect();
    places.sort();
    places
}

/// The leaves of a scope's tree, in the order of their clients.
fn leaves_in(around: &Path) -> Vec<Cgroup> {
    let trees = dirs(around, "divvy-");
    assert_eq!(trees.len(), 1, "{trees:?}");
    trees.iter().flat_map(|tree| dirs(tree, "c")).map(|dir| Cgroup::open(&dir).expect("there")).collect()
}

/// Has a command be alice's, in a cgroup: into that root puts it.
fn as_alice_in(cgroup: &Path, command: &mut Command) {
    as_alice_of(&[], cgroup, command);
}

/// The same, of these groups besides.
fn as_alice_of(groups: &'static [u32], cgroup: &Path, command: &mut Command) {
    let procs = fs::File::options().write(true).open(cgroup.join("cgroup.procs")).expect("root may");
    command.envs([("HOME", HOME), ("XDG_RUNTIME_DIR", RUNTIME)]);
    let enter = move || {
        rustix::io::write(&procs, b"0")?;
        // SAFETY: the pointer is to as many numbers; there is one thread.
        let done = unsafe {
            libc::setgroups(groups.len(), groups.as_ptr()) == 0
                && libc::setgid(ALICE) == 0
                && libc::setuid(ALICE) == 0
        };
        if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: system calls, which are all that is permitted between fork and exec.
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

/// Her divvyd gets a scope of its own, and her systemd moves its clients there out of her session, which she may not do herself.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn clients_of_her_divvyd_are_weighed_in_a_scope() {
    let login = Login::new();
    let where_after = check_success(&mut login.command("divvyd --user --background --backend auto"));
    assert!(where_after.ends_with("/session-1.scope\n"), "her shell stays in her session: {where_after}");
    let mut runs = [["3", "big"], ["1", "small"]].map(|[share, name]| {
        let run = login.start(&["divvy", "run", "-s", share, "--name", name, "--", "sh", "-c", SPIN]);
        eventually("the client", || spinners().iter().any(|dir| dir.ends_with("p0")).then_some(()));
        run
    });
    eventually("both", || (spinners().len() == 2).then_some(()));
    let (scope, (backend, why)) = (login.scope(), login.backend());
    assert_eq!(backend, "cgroup", "{why}");
    let ours = format!("{} is ours, and the kernel divides by cpu.weight", scope.display());
    assert_eq!(why, ours);
    let told = check_success(&mut login.command("{ divvy doctor || true; }"));
    assert!(told.contains("makes a scope for each divvy share, and for a divvyd of yours"), "{told}");
    let leaves = leaves_in(&scope);
    let parts: Vec<PathBuf> = leaves.iter().map(|leaf| leaf.path().join("p0")).collect();
    assert_eq!(spinners(), parts);
    check_parts(&used(&leaves), &[3, 1]);
    let log = fs::read_to_string(format!("{RUNTIME}/divvy/divvyd.log")).expect("a log");
    assert!(!log.contains("neither held"), "{log}");
    runs.iter_mut().for_each(Spinner::end);
    eventually("divvyd to end, and systemd to remove the empty scope", || {
        (login.scopes() == 0).then_some(())
    });
}

#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn a_process_of_her_session_is_attached_and_let_go() {
    let login = Login::new();
    check_success(&mut login.command("divvyd --user --background --backend cgroup"));
    let scope = login.scope();
    let mut spinners_of_hers = [(); 3].map(|()| login.start(&["sh", "-c", SPIN]));
    let pids = spinners_of_hers.each_ref().map(|spinner| spinner.0.id());
    // It is nobody's but her systemd's doing.
    let herself = format!("echo {} >{}/cgroup.procs", pids[0], scope.join("home").display());
    assert!(!output(&mut login.command(&herself)).status.success(), "she may not move them herself");
    for (pid, share) in pids.iter().zip([1, 3]) {
        check_success(&mut login.command(&format!("divvy attach -s {share} --name a{share} tree:{pid}")));
    }
    let leaves = leaves_in(&scope);
    let session = login.slice.join("session-1.scope");
    let parts = leaves.iter().map(|leaf| leaf.path().join("p0"));
    assert_eq!(spinners(), [session].into_iter().chain(parts).collect::<Vec<_>>());
    spinners_of_hers[2].end();
    check_parts(&used(&leaves), &[1, 3]);
    // Who joins a client later is moved as well.
    check_success(&mut login.command("divvy attach --name late 'command:sh -c while*'"));
    let mut joins = login.start(&["sh", "-c", SPIN]);
    let joined = || spinners().iter().any(|dir| dir.ends_with("c2/p0"));
    eventually("the third client's process to be moved", || joined().then_some(()));
    joins.end();
    check_success(&mut login.command("divvy detach late"));
    // Nobody is moved back into a session: who is let go runs on beside divvyd.
    check_success(&mut login.command("divvy detach a1"));
    assert_eq!(spinners(), [leaves[1].path().join("p0"), scope.join("home")]);
    spinners_of_hers[1].end();
    eventually("divvyd to end", || dirs(&scope, "divvy-").is_empty().then_some(()));
    assert_eq!(spinners(), [scope.join("home")], "it runs on, and its scope with it");
    spinners_of_hers[0].end();
    eventually("systemd to remove the empty scope", || (login.scopes() == 0).then_some(()));
}

/// Whoever was frozen when her divvyd was killed runs on, by the guardian or, where that was killed too, by a rescue; and no cgroup is
/// left when it has ended.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn nothing_is_left_of_a_scope_whose_divvyd_was_killed() {
    let login = Login::new();
    for is_rescued in [false, true] {
        let mut daemon = Command::new("divvyd");
        as_alice_in(&login.slice.join("session-1.scope"), daemon.args(["--user", "--backend", "freezer"]));
        let mut daemon = Daemon::start(daemon, &[], Path::new(RUNTIME).join("divvy"), false);
        let run = ["divvy", "run", "--", "sh", "-c", SPIN];
        let mut runs = [login.start(&run), login.start(&run)];
        let in_leaves = || spinners().iter().filter(|dir| dir.ends_with("p0")).count() == 2;
        eventually("both clients", || in_leaves().then_some(()));
        let home = login.scope().join("home");
        if is_rescued {
            daemon.kill_with_its_guardian();
            check_success(&mut login.command("divvy rescue"));
        } else {
            daemon.child.kill().expect("our child");
            daemon.child.wait().expect("our child");
        }
        eventually("both to be moved", || spinners().iter().all(|dir| *dir == home).then_some(()));
        let frozen = fs::read_to_string(home.join("cgroup.freeze")).expect("there");
        assert_eq!((frozen.trim(), dirs(&home, "divvy-").len()), ("0", 0));
        runs.iter_mut().for_each(Spinner::end);
        eventually("systemd to remove the empty scope", || (login.scopes() == 0).then_some(()));
    }
}

/// The unit that comes with divvy, as a service of hers. Killed with its guardian it leaves its cgroup divided, where nobody can be
/// started: it is taken apart beside that, and then divvyd starts anew.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn the_service_starts_anew_after_it_was_killed_with_its_guardian() {
    const UNIT: &str = include_str!("../../../../dist/systemd/divvyd.service");
    let login = Login::new();
    let of_hers =
        |line: &str| line.replace("/usr/local/bin/", "/bin/").replace("--system", "--user --backend cgroup");
    let kept = ["Exec", "Restart", "KillMode=", "Delegate="];
    let lines = UNIT.lines().filter(|line| kept.iter().any(|key| line.starts_with(key))).map(of_hers);
    let lines: Vec<String> = lines.collect();
    assert!(lines.len() >= 6, "{lines:?}");
    let text = format!("[Unit]\nDefaultDependencies=no\n[Service]\n{}\n", lines.join("\n"));
    fs::write(format!("{HOME}/.config/systemd/user/divvyd.service"), text).expect("written");
    check_success(&mut login.command("systemctl --user daemon-reload && systemctl --user start divvyd"));
    let pid = || {
        let told = check_success(&mut login.command("systemctl --user show -P MainPID divvyd"));
        told.lines().next().and_then(|line| Pid::from_raw(line.parse().ok()?))
    };
    let mut run = login.start(&["divvy", "run", "--", "sh", "-c", SPIN]);
    let in_leaf = || spinners().iter().any(|dir| dir.ends_with("p0"));
    eventually("the client", || in_leaf().then_some(()));
    let before = pid().expect("it runs");
    kill_with_guardian(before);
    eventually("another divvyd", || pid().filter(|now| *now != before));
    let slice = login.slice.join(format!("user@{ALICE}.service/app.slice"));
    let service = slice.join("divvyd.service");
    let trees =
        || [&slice, &service].map(|dir| dirs(dir, "divvy-")).into_iter().flatten().collect::<Vec<_>>();
    let of_before = |dir: &PathBuf| dir.to_string_lossy().contains(&format!("/divvy-{before}-"));
    assert!(!trees().iter().any(of_before), "{:?}", trees());
    assert_eq!(spinners(), [service.as_path()], "it runs on where its divvyd was");
    check_success(&mut login.command("divvy run -- true"));
    assert_eq!(login.backend().0, "cgroup");
    run.end();
    check_success(&mut login.command("systemctl --user stop divvyd"));
    eventually("systemd to remove the empty service", || (!service.exists()).then_some(()));
    assert!(dirs(&slice, "divvy-").is_empty());
}

/// Her divvyd as `divvy share`: by signals, where nobody gives it a scope. One that has a scope divides on, and tells who is not moved.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn without_systemd_her_divvyd_says_why_it_does_without() {
    let mut login = Login::new();
    let log = || fs::read_to_string(format!("{RUNTIME}/divvy/divvyd.log")).expect("a log");
    check_success(&mut login.command("divvyd --user --background --backend auto --linger 60s"));
    login.systemd.kill().expect("our child");
    login.systemd.wait().expect("our child");
    check_success(&mut login.command("divvy run -- true"));
    assert!(log().contains("is charged, and neither held nor weighed: systemd moves nobody"), "{}", log());
    let pids = fs::read_to_string(login.scope().join("home/cgroup.procs")).expect("there");
    let divvyd = pids.lines().next().and_then(|pid| Pid::from_raw(pid.parse().ok()?)).expect("divvyd");
    kill_process(divvyd, Signal::TERM).expect("root may");
    eventually("divvyd to end", || (!Path::new(RUNTIME).join("divvy/api.sock").exists()).then_some(()));
    check_success(&mut login.command("divvyd --user --background --backend auto && divvy run -- true"));
    let (backend, why) = login.backend();
    assert_eq!(backend, "signals");
    assert!(why.contains("is not ours to change") && why.contains("systemd gives no scope: "), "{why}");
    let refused = output(&mut login.command("divvyd --user --backend cgroup"));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(5) && said.contains("systemd gives no scope: "), "{said}");
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
    // So may the clients of her divvyd, wherever that was started.
    check_success(&mut login.command("divvyd --user --background --backend auto && divvy run -- true"));
    let (backend, why) = login.backend();
    assert_eq!((backend.as_str(), login.scopes()), ("signals", 0));
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
