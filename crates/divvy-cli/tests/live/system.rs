//! divvyd in its system mode: who is served, what is refused, and what a service manager hears.
//!
//! Only root can run one. Other users are threads of the test that have become them: the kernel tells their uid of each
//! connection.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::process::{Gid, Pid, Signal, Uid, kill_process};
use serde_json::Value;

use crate::accounts::nobody;
use crate::api::{Answer, ask_on};
use crate::harness::{PATIENCE, SPIN, Sandbox, eventually, one_cpu, skip};

pub fn alice_uid() -> u32 {
    nobody(0)
}

pub fn bob_uid() -> u32 {
    nobody(1)
}

/// A system's divvyd in a sandbox. Dropping the sandbox ends it.
pub struct System<'a> {
    pub sandbox: &'a Sandbox,
    pub child: Child,
    pub socket: PathBuf,
}

/// A sandbox that everybody can pass through; `None`, and a word why, where there can be no system's divvyd.
pub fn system_sandbox(test: &str) -> Option<Sandbox> {
    if !rustix::process::geteuid().is_root() {
        skip(test, "not root: a system's divvyd is root's");
        return None;
    }
    let sandbox = Sandbox::own();
    std::fs::set_permissions(sandbox.path(""), PermissionsExt::from_mode(0o711)).expect("ours");
    Some(sandbox)
}

/// The command of a system's divvyd whose directories are in the sandbox.
pub fn system_command(sandbox: &Sandbox, policy: &str, options: &[&str]) -> Command {
    let policy = sandbox.write("divvyd.toml", policy);
    let mut command = sandbox.command(sandbox.program().with_file_name("divvyd"));
    command.arg("--system").arg("--run-dir").arg(sandbox.path("sys-run"));
    command.arg("--state-dir").arg(sandbox.path("sys-state")).arg("--policy-file").arg(policy).args(options);
    command.stderr(std::fs::File::create(sandbox.path("log")).expect("a file"));
    command
}

impl<'a> System<'a> {
    /// One that serves.
    pub fn start(sandbox: &'a Sandbox, policy: &str, options: &[&str]) -> Self {
        Self::of(sandbox, system_command(sandbox, policy, options).spawn().expect("start divvyd"))
    }

    /// One that was started, once it serves.
    pub fn of(sandbox: &'a Sandbox, child: Child) -> Self {
        let mut system = Self { sandbox, child, socket: sandbox.path("sys-run/api.sock") };
        eventually("the system's divvyd", || {
            let ended = system.child.try_wait().expect("our child");
            assert!(ended.is_none(), "it ended: {ended:?}\n{}", system.log());
            UnixStream::connect(&system.socket).ok()
        });
        system
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.sandbox.path("log")).expect("a log")
    }

    pub fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.socket).expect("somebody listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        stream
    }

    pub fn ask(&self, method: &str, path: &str, body: &str) -> Answer {
        ask_on(self.connect(), method, path, body)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("signal divvyd");
    }

    /// Ends it as a service manager would, and returns its exit code.
    pub fn stop(&mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        eventually("divvyd's end", || self.child.try_wait().expect("our child")).code()
    }

    fn wait_for_log(&self, words: &str) {
        eventually(words, || self.log().contains(words).then_some(()));
    }
}

impl Drop for System<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What `act` does as a user of that number and of no group but the one of the same number.
pub fn as_user<T: Send>(uid: u32, act: impl FnOnce() -> T + Send) -> T {
    let become_and_act = move || {
        // Of this thread alone, which ends soon.
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(uid));
        rustix::thread::set_thread_groups(&[]).expect("root may");
        rustix::thread::set_thread_res_gid(gid, gid, gid).expect("root may");
        rustix::thread::set_thread_res_uid(uid, uid, uid).expect("root may");
        act()
    };
    std::thread::scope(|scope| scope.spawn(become_and_act).join()).expect("a thread")
}

fn error(answer: &Answer) -> (u16, String) {
    let body: Value = serde_json::from_str(&answer.body).unwrap_or_else(|e| panic!("{e}: {answer:?}"));
    (answer.status, body["error"]["code"].as_str().unwrap_or_else(|| panic!("{answer:?}")).to_owned())
}

fn refused(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

/// As divvyd has it: connections of one user.
const CONNECTIONS: usize = 64;

#[test]
fn one_users_selectors_and_requests_are_in_no_other_users_way() {
    let Some(sandbox) = system_sandbox("one_users_selectors_and_requests_are_in_no_other_users_way") else {
        return;
    };
    let system = System::start(&sandbox, "", &[]);
    let attach = |uid: u32, selector: &str, more: &str| {
        let body = format!(r#"{{"share":1,"selector":"{selector}"{more}}}"#);
        as_user(uid, || system.ask("POST", "/v1/clients", &body))
    };
    // Of nobody who is hers or his. The test's own session may have begun outside of its pid namespace,
    // where it has no number.
    let mut roots = sandbox.command("setsid").args(["sleep", "600"]).spawn().expect("sleep");
    let session = format!("session:{}", roots.id());
    eventually("a session of its own", || {
        let stat = divvy_linux::procfs::stat(Pid::from_child(&roots)).ok()??;
        (stat.session == Some(stat.pid)).then_some(())
    });
    for selector in ["name:*", "cgroup:/", session.as_str()] {
        for uid in [alice_uid(), bob_uid()] {
            let made = attach(uid, selector, "");
            assert_eq!(made.status, 201, "{selector} of {uid}: {made:?}");
            assert_eq!(error(&attach(uid, selector, "")), refused(409, "process-taken"), "twice");
        }
    }
    // What a process of root's reads and writes is no user's to know.
    let explained = format!("/v1/explain/{}", roots.id());
    let told = |uid: u32| as_user(uid, || system.ask("GET", &explained, "")).body;
    assert!(told(0).contains(" KiB from disks and written "), "{}", told(0));
    assert!(told(alice_uid()).contains("another user's") && !told(alice_uid()).contains("KiB"));
    roots.kill().and_then(|()| roots.wait()).expect("ours");
    // All that she runs, her shells too: nobody of hers could resume it. An administrator could.
    let all = attach(alice_uid(), &format!("user:{}", alice_uid()), "");
    assert_eq!(all.status, 201, "{all:?}");
    let all: Value = serde_json::from_str(&all.body).expect("a client");
    let (path, pause) = (format!("/v1/clients/{}", all["id"]), |paused| format!(r#"{{"paused":{paused}}}"#));
    let paused = as_user(alice_uid(), || system.ask("PATCH", &path, &pause(true)));
    assert_eq!(error(&paused), refused(403, "not-permitted"));
    // Nor is anything else done that was asked for with it.
    let both = as_user(alice_uid(), || system.ask("PATCH", &path, r#"{"share":7,"paused":true}"#));
    assert_eq!(error(&both), refused(403, "not-permitted"));
    let now: Value = serde_json::from_str(&system.ask("GET", &path, "").body).expect("a client");
    assert_eq!(now["share"], 1, "{now}");
    for paused in [true, false] {
        let answer = system.ask("PATCH", &path, &pause(paused));
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    assert_eq!(
        error(&attach(alice_uid(), &format!("name:{}", "*".repeat(1000)), "")),
        refused(400, "bad-request")
    );
    // Looking at all processes again and again is dear: Alice has to wait before long, and Bob does not.
    let plan = |uid| attach(uid, &format!("user:{}", alice_uid()), r#","dry_run":true"#);
    assert_eq!(error(&plan(bob_uid())), refused(403, "not-permitted"), "another's");
    // Several at once: where there are few processes to look at, one after another may be few enough.
    let many = || -> Vec<Answer> {
        std::thread::scope(|scope| {
            let asked: Vec<_> = (0..8).map(|_| scope.spawn(|| plan(alice_uid()))).collect();
            asked.into_iter().map(|asked| asked.join().expect("an answer")).collect()
        })
    };
    let wait = eventually("a plan too many", || many().into_iter().find(|answer| answer.status == 429));
    assert!(
        wait.body.contains("too much of the scheduler's time") || wait.body.contains("times a second"),
        "{wait:?}"
    );
    assert_eq!(as_user(bob_uid(), || system.ask("GET", "/v1/clients", "")).status, 200);
}

#[test]
fn everybody_is_served_and_nobody_can_keep_the_others_out() {
    let Some(sandbox) = system_sandbox("everybody_is_served_and_nobody_can_keep_the_others_out") else {
        return;
    };
    let system = System::start(&sandbox, "", &[]);
    for uid in [0, alice_uid(), bob_uid()] {
        let answer = as_user(uid, || system.ask("GET", "/v1/status", ""));
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let log = system.log();
    assert!(log.contains("serves version="), "{log}");
    // As many connections as one user may have, each of which has been answered: they are all inside.
    let get = b"GET /v1/status HTTP/1.1\r\nhost: divvyd\r\n\r\n";
    let mut inside: Vec<UnixStream> =
        as_user(alice_uid(), || (0..CONNECTIONS).map(|_| system.connect()).collect());
    for stream in &mut inside {
        stream.write_all(get).unwrap();
        assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
    }
    let answer = as_user(alice_uid(), || system.ask("GET", "/v1/status", ""));
    assert_eq!(error(&answer), refused(429, "limit"));
    assert!(
        answer.body.contains(&format!("user {alice_uid} has 64 connections", alice_uid = alice_uid())),
        "{answer:?}"
    );
    for uid in [bob_uid(), 0] {
        assert_eq!(as_user(uid, || system.ask("GET", "/v1/status", "")).status, 200);
    }
    // Connections that wait to be refused keep nobody out either.
    let more: Vec<UnixStream> =
        as_user(alice_uid(), || (0..10 * CONNECTIONS).map(|_| system.connect()).collect());
    assert_eq!(as_user(bob_uid(), || system.ask("GET", "/v1/status", "")).status, 200);
    drop((more, inside));
    eventually("room again", || {
        let answer = as_user(alice_uid(), || system.ask("GET", "/v1/status", ""));
        (answer.status == 200).then_some(())
    });
}

#[test]
fn what_another_user_sends_malformed_oversized_or_slowly_is_bounded() {
    let Some(sandbox) = system_sandbox("what_another_user_sends_malformed_oversized_or_slowly_is_bounded")
    else {
        return;
    };
    let system = System::start(&sandbox, "", &[]);
    as_user(alice_uid(), || {
        for (method, path, body, status, code) in [
            ("GET", "/", "", 404, "no-such-path"),
            ("PUT", "/v1/market", "", 405, "no-such-method"),
            ("POST", "/v1/clients", "{\"name\": ", 400, "bad-request"),
            ("POST", "/v1/clients", "\u{0}\u{1}\u{2}", 400, "bad-request"),
            ("POST", "/v1/clients", "[[[[[[[[", 400, "bad-request"),
            ("POST", "/v1/market/currencies", "{\"name\": ", 400, "bad-request"),
            ("GET", "/v1/market/currencies/%FF%FE", "", 400, "bad-request"),
            ("GET", "/v1/clients/%FF%FE", "", 400, "bad-request"),
        ] {
            assert_eq!(error(&system.ask(method, path, body)), refused(status, code), "{method} {path}");
        }
        let deep = "[".repeat(60_000);
        assert_eq!(error(&system.ask("POST", "/v1/clients", &deep)), refused(400, "bad-request"));
        // By its own word, and in fact.
        let head = "POST /v1/clients HTTP/1.1\r\nhost: divvyd\r\nconnection: close\r\n";
        let mut stream = system.connect();
        stream.write_all(format!("{head}content-length: 18446744073709551615\r\n\r\n").as_bytes()).unwrap();
        assert!(said(&mut stream).starts_with("HTTP/1.1 4"));
        let mut stream = system.connect();
        let _ = stream.write_all(format!("{head}transfer-encoding: chunked\r\n\r\n").as_bytes());
        let chunk = format!("2000\r\n{}\r\n", "x".repeat(0x2000));
        while stream.write_all(chunk.as_bytes()).is_ok() {} // Until it is cut off.
        // Silence, half a head, half a body: none of them is waited for for ever.
        let mut silent = system.connect();
        let mut half_head = system.connect();
        half_head.write_all(b"GET /v1/mar").unwrap();
        let mut half_body = system.connect();
        half_body.write_all(format!("{head}content-length: 10\r\n\r\n{{").as_bytes()).unwrap();
        assert!(said(&mut half_body).starts_with("HTTP/1.1 408"));
        assert_eq!((said(&mut silent).as_str(), said(&mut half_head).as_str()), ("", ""));
    });
    assert_eq!(system.ask("GET", "/v1/status", "").status, 200);
}

/// What comes until the other end closes.
fn said(stream: &mut UnixStream) -> String {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes); // Reset or closed: it is over either way.
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn a_market_of_another_version_is_refused_with_a_code_of_its_own() {
    let test = "a_market_of_another_version_is_refused_with_a_code_of_its_own";
    let Some(sandbox) = system_sandbox(test) else { return };
    let mut system = System::start(&sandbox, "", &[]);
    assert_eq!(system.stop(), Some(0), "{}", system.log());
    let file = sandbox.path("sys-state/market.db");
    let before = std::fs::read(&file).expect("the market");
    // The user version of an SQLite file, big-endian.
    let mut newer = before.clone();
    newer[60..64].copy_from_slice(&99_u32.to_be_bytes());
    for (bytes, words) in [
        (&newer, ["its version is 99", "use a newer divvyd"]),
        (
            &b"no database at all, and long enough to be seen as such by anybody".to_vec(),
            ["damaged", "backup"],
        ),
        (&Vec::new(), ["market.db: it is empty", "or begin with an empty market"]),
    ] {
        std::fs::write(&file, bytes).expect("ours");
        let output = system_command(&sandbox, "", &[]).stderr(Stdio::piped()).output().expect("run divvyd");
        let text = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(4), "{text}");
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        assert!(!sandbox.path("sys-run/api.sock").exists(), "nobody answers there");
    }
    std::fs::write(&file, before).expect("ours");
    let mut system = System::start(&sandbox, "", &[]);
    assert_eq!(system.stop(), Some(0), "{}", system.log());
}

#[test]
fn a_place_that_is_not_safe_is_refused_with_the_fix() {
    let Some(sandbox) = system_sandbox("a_place_that_is_not_safe_is_refused_with_the_fix") else { return };
    let run = |prepare: &dyn Fn(), options: &[&str]| {
        prepare();
        let mut command = system_command(&sandbox, "", options);
        let output = command.stderr(Stdio::piped()).output().expect("run divvyd");
        (output.status.code(), String::from_utf8(output.stderr).expect("text"))
    };
    let chmod = |name: &str, mode| {
        std::fs::set_permissions(sandbox.path(name), PermissionsExt::from_mode(mode)).expect("ours");
    };
    let make = |name: &str| std::fs::create_dir(sandbox.path(name)).expect("a directory");
    let at = |name: &str| sandbox.path(name).display().to_string();
    make("open");
    chmod("open", 0o777);
    make("foreign");
    std::os::unix::fs::chown(sandbox.path("foreign"), Some(alice_uid()), None).expect("root may");
    std::os::unix::fs::symlink(sandbox.path("open"), sandbox.path("link")).expect("a link");
    make("readable");
    let long = at(&"x".repeat(120));
    let foreign = format!("it belongs to user {}", alice_uid());
    for (options, said) in [
        (["--run-dir", &at("open")], "others can write to it (mode 777)"),
        (["--run-dir", &at("foreign")], foreign.as_str()),
        (["--run-dir", &at("link")], "it is a symbolic link; remove it"),
        (["--run-dir", &at("open/below")], "others can write to"),
        (["--run-dir", "relative"], "give the whole path"),
        (["--run-dir", &long], "name a shorter directory"),
        (["--state-dir", &at("open")], "others can write to it (mode 777)"),
        (["--state-dir", &at("readable")], "it is open to others (mode 755); chmod 700 it"),
        (["--state-dir", &at("link")], "it is a symbolic link"),
    ] {
        // A later option counts, where clap is asked to take it twice it says so: only one of each is given.
        let mut command = sandbox.command(sandbox.program().with_file_name("divvyd"));
        command.arg("--system").args(options);
        if options[0] == "--state-dir" {
            command.arg("--run-dir").arg(sandbox.path("sys-run"));
        } else {
            command.arg("--state-dir").arg(sandbox.path("sys-state"));
        }
        let output = command.output().expect("run divvyd");
        let text = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(5), "{options:?}: {text}");
        assert!(text.contains(said), "{options:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
    let (code, text) = run(&|| (), &["--background"]);
    assert_eq!(code, Some(2), "{text}");
    let (code, text) = run(&|| (), &["--user"]);
    assert_eq!(code, Some(2), "{text}");
    // A policy that cannot be used: what is wrong with it, and where.
    for (policy, said) in
        [("[limits]\nburst = 0", "line 2, column 9"), ("[scheduler]\npolicy = \"fairest\"", "fairest")]
    {
        let mut command = system_command(&sandbox, policy, &[]);
        let output = command.stderr(Stdio::piped()).output().expect("run divvyd");
        let text = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(said) && text.contains("divvyd.toml"), "{text}");
    }
    // Nobody but root.
    if let Some(nobody) = Sandbox::nobody("a_place_that_is_not_safe_is_refused_with_the_fix") {
        let output =
            nobody.command(nobody.program().with_file_name("divvyd")).arg("--system").output().unwrap();
        let text = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(5), "{text}");
        assert!(text.contains("has to be root's") && text.contains("divvyd --user"), "{text}");
    }
}

#[test]
fn one_system_has_one_divvyd() {
    let Some(sandbox) = system_sandbox("one_system_has_one_divvyd") else { return };
    let mut system = System::start(&sandbox, "", &[]);
    let pid = system.child.id();
    let another = |options: &[&str]| {
        let mut command = sandbox.command(sandbox.program().with_file_name("divvyd"));
        let output = command.arg("--system").args(options).output().expect("run divvyd");
        (output.status.code(), String::from_utf8(output.stderr).expect("text"))
    };
    let at = |name: &str| sandbox.path(name).display().to_string();
    for (run, state) in [("sys-run", "other-state"), ("other-run", "sys-state")] {
        let (code, text) = another(&["--run-dir", &at(run), "--state-dir", &at(state)]);
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains(&format!("already (pid {pid})")), "{text}");
    }
    assert_eq!(system.ask("GET", "/v1/status", "").status, 200);
    assert_eq!(system.stop(), Some(0), "{}", system.log());
    assert!(!system.socket.exists());
    // And after it, even one that was killed.
    let mut system = System::start(&sandbox, "", &[]);
    system.signal(Signal::KILL);
    system.child.wait().expect("our child");
    let mut system = System::start(&sandbox, "", &[]);
    assert_eq!(system.stop(), Some(0), "{}", system.log());
}

/// What comes at the socket of a service manager.
struct Manager(UnixDatagram);

impl Manager {
    fn new(sandbox: &Sandbox) -> Self {
        let socket = UnixDatagram::bind(sandbox.path("notify")).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a limit");
        Self(socket)
    }

    /// Waits for a message that begins with `line`, and returns it.
    fn hear(&self, line: &str) -> String {
        let mut bytes = [0; 4096];
        loop {
            let n = self.0.recv(&mut bytes).unwrap_or_else(|e| panic!("waited in vain for {line}: {e}"));
            let text = String::from_utf8_lossy(&bytes[..n]).into_owned();
            if text.lines().next() == Some(line) {
                return text;
            }
        }
    }
}

#[test]
fn a_service_manager_hears_how_it_stands_and_hands_down_the_socket() {
    let Some(sandbox) = system_sandbox("a_service_manager_hears_how_it_stands_and_hands_down_the_socket")
    else {
        return;
    };
    let manager = Manager::new(&sandbox);
    // As systemd would make it, in a directory of its own.
    std::fs::create_dir(sandbox.path("handed")).unwrap();
    let path = sandbox.path("handed/api.sock");
    let listener = UnixListener::bind(&path).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
    // Whoever comes before divvyd does is served too.
    let early = UnixStream::connect(&path).unwrap();
    let divvyd = system_command(&sandbox, "", &["--log-format", "json"]);
    let args: Vec<String> = divvyd.get_args().map(|a| a.to_str().unwrap().to_owned()).collect();
    let begin = |pid: &str| {
        let script = format!("exec 3<&0 </dev/null; LISTEN_PID={pid} LISTEN_FDS=1 exec \"$@\"");
        let mut command = sandbox.command("sh");
        command.args(["-c", &script, "sh"]).arg(divvyd.get_program()).args(&args);
        command.env("NOTIFY_SOCKET", sandbox.path("notify"));
        command.env("WATCHDOG_USEC", "200000");
        command.stderr(std::fs::File::create(sandbox.path("log")).unwrap());
        command.stdin(std::os::fd::OwnedFd::from(listener.try_clone().unwrap())).spawn().unwrap()
    };
    let mut system = System { sandbox: &sandbox, child: begin("$$"), socket: path.clone() };
    manager.hear("READY=1");
    assert_eq!(ask_on(early, "GET", "/v1/status", "").status, 200);
    assert!(!sandbox.path("sys-run/api.sock").exists(), "one socket is enough");
    // Signs of life, and what it is doing.
    for _ in 0..3 {
        assert!(manager.hear("WATCHDOG=1").contains("STATUS=divides 0 clients"));
    }
    system.signal(Signal::HUP);
    assert!(manager.hear("RELOADING=1").contains("MONOTONIC_USEC="));
    manager.hear("READY=1");
    system.signal(Signal::TERM);
    manager.hear("STOPPING=1");
    assert_eq!(eventually("the end", || system.child.try_wait().unwrap()).code(), Some(0));
    assert!(path.exists(), "the socket is the manager's");
    // Every line of its log is an object with a level and a message.
    let log = system.log();
    let lines: Vec<Value> = log.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    assert!(lines.iter().any(|l| l["message"] == "serves" && l["level"] == "INFO"), "{log}");
    // What was meant for another process is left alone: it makes a socket of its own.
    system.child = begin("1");
    manager.hear("READY=1");
    system.socket = sandbox.path("sys-run/api.sock");
    assert_eq!(system.ask("GET", "/v1/status", "").status, 200);
    assert_eq!(system.stop(), Some(0));
}

/// Suspended as a whole, it gives no sign of life; so it does while the scheduler alone hangs, which no test can do from
/// outside. The manager would end it then, and its guardian release everybody.
#[test]
fn a_divvyd_that_hangs_gives_no_sign_of_life() {
    let Some(sandbox) = system_sandbox("a_divvyd_that_hangs_gives_no_sign_of_life") else { return };
    let manager = Manager::new(&sandbox);
    let mut command = system_command(&sandbox, "", &[]);
    command.env("NOTIFY_SOCKET", sandbox.path("notify")).env("WATCHDOG_USEC", "100000");
    let mut system = System::of(&sandbox, command.spawn().unwrap());
    manager.hear("WATCHDOG=1");
    system.signal(Signal::STOP);
    eventually("it to stand", || (!sandbox.suspended().is_empty()).then_some(()));
    // What was said before it stood is heard out.
    manager.0.set_nonblocking(true).unwrap();
    while manager.0.recv(&mut [0; 4096]).is_ok() {}
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(manager.0.recv(&mut [0; 4096]).is_err(), "a sign of life");
    system.signal(Signal::CONT);
    manager.0.set_nonblocking(false).unwrap();
    manager.hear("WATCHDOG=1");
    assert_eq!(system.stop(), Some(0), "{}", system.log());
}

#[test]
fn a_reload_loses_nothing_and_a_bad_policy_changes_nothing() {
    let Some(sandbox) = system_sandbox("a_reload_loses_nothing_and_a_bad_policy_changes_nothing") else {
        return;
    };
    let mut system = System::start(&sandbox, "[limits]\nclients = 7\n", &["--cpus", &one_cpu()]);
    let mut spinner = sandbox.command("sh").args(["-c", SPIN]).spawn().unwrap();
    let new = serde_json::json!({ "name": "spin", "share": 2, "selector": format!("tree:{}", spinner.id()) });
    let made = system.ask("POST", "/v1/clients", &new.to_string());
    assert_eq!(made.status, 201, "{made:?}");
    // A connection that is kept over all of it.
    let mut kept = BufReader::new(as_user(alice_uid(), || system.connect()));
    let mut ask_kept = || {
        kept.get_mut().write_all(b"GET /v1/status HTTP/1.1\r\nhost: divvyd\r\n\r\n").unwrap();
        let (mut line, mut length) = (String::new(), 0);
        while line != "\r\n" {
            line.clear();
            assert!(kept.read_line(&mut line).unwrap() > 0, "it was cut off");
            length = line.strip_prefix("content-length: ").map_or(length, |n| n.trim().parse().unwrap());
        }
        let mut body = vec![0; length];
        kept.read_exact(&mut body).unwrap();
        serde_json::from_slice::<Value>(&body).unwrap()["clients"].clone()
    };
    // What others have changed shows within the age that an answer may have.
    eventually("the client in another user's answer", || (ask_kept() == 1).then_some(()));
    sandbox.write("divvyd.toml", "[limits]\nclients = 8\n");
    system.signal(Signal::HUP);
    system.wait_for_log("policy read anew");
    assert_eq!(ask_kept(), 1);
    let status = || serde_json::from_str::<Value>(&system.ask("GET", "/v1/status", "").body).unwrap();
    let in_force = || status()["policy_file"].clone();
    let path = sandbox.path("divvyd.toml").display().to_string();
    let read = serde_json::json!({ "path": path, "is_default": false, "changed": false, "gone": false, "from_next_start": false });
    eventually("the file in the status", || (in_force() == read).then_some(()));
    for (policy, words) in [
        ("[limits]\nclients = many\n", "the old one stays"),
        // Not in the line that the last one was wrong in: its word would be taken for this one's.
        ("\n[limits]\nclients = -1\n", "line 3, column 11"),
        ("[scheduler]\nquantum = \"20ms\"\n", "holds from the next start on"),
        ("[scheduler]\ncpus = \"1000\"\n", "[scheduler] cpus: this machine has no CPU 1000"),
    ] {
        sandbox.write("divvyd.toml", policy);
        system.signal(Signal::HUP);
        system.wait_for_log(words);
        assert_eq!(ask_kept(), 1);
    }
    let refused =
        eventually("the refusal in the status", || in_force()["refused"].as_str().map(str::to_owned));
    assert!(refused.contains("this machine has no CPU 1000"), "{refused}");
    assert_eq!(in_force()["from_next_start"], true, "the quantum of before");
    std::fs::remove_file(sandbox.path("divvyd.toml")).unwrap();
    let told = in_force();
    assert_eq!([&told["changed"], &told["gone"]], [true, true]);
    system.signal(Signal::HUP);
    eventually("a word about the file", || {
        (system.log().matches("the old one stays").count() == 4).then_some(())
    });
    assert_eq!(ask_kept(), 1);
    assert_eq!(system.stop(), Some(0), "{}", system.log());
    assert!(spinner.try_wait().unwrap().is_none(), "it runs on, undivided");
    assert_eq!(sandbox.suspended(), []);
    spinner.kill().unwrap();
    spinner.wait().unwrap();
}

/// They may come yet, so it is no error; but whoever misspelt one has to hear of it.
#[test]
fn users_of_the_policy_who_are_not_there_are_named() {
    let Some(sandbox) = system_sandbox("users_of_the_policy_who_are_not_there_are_named") else { return };
    let policy = "[users]\nno-such-a = { cpu = 5 }\nroot = { cpu = 5 }\ndefault = { cpu = 5 }\n1234567 = { cpu = 5 }\n\
                  [bounds.no-such-b]\ncpu = 5\n[admins]\nusers = ['root', 'no-such-c']\n";
    let mut system = System::start(&sandbox, policy, &["--cpus", &one_cpu()]);
    let lines = |system: &System| -> Vec<String> {
        let log = system.log();
        log.lines().filter(|line| line.contains("no user of that name")).map(str::to_owned).collect()
    };
    let told = eventually("three warnings", || Some(lines(&system)).filter(|lines| lines.len() == 3));
    for (line, (name, table)) in
        told.iter().zip([("no-such-a", "[users]"), ("no-such-b", "[bounds]"), ("no-such-c", "[admins]")])
    {
        assert!(line.contains(name) && line.contains(table), "{line}");
    }
    sandbox.write("divvyd.toml", "[users.no-such-d]\neverything = true\n");
    system.signal(Signal::HUP);
    let told = eventually("another warning", || Some(lines(&system)).filter(|lines| lines.len() == 4));
    assert!(told[3].contains("no-such-d") && told[3].contains("[users]"), "{told:?}");
    assert_eq!(system.stop(), Some(0), "{}", system.log());
}

/// Connections of somebody who asks as fast as answers come.
const FLOOD: usize = 8;
/// Of shares 3 and 1 on one CPU, the larger has 0.75 of it; under a flood of requests at least, and at most.
const FLOODED: std::ops::RangeInclusive<f64> = 0.60..=0.88;
/// CPU time of both, in ticks of 10 ms, over which that is measured.
const FLOOD_TICKS: u64 = 100;

/// Is true once this is dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One user asks without end, far more than is allowed: that user is told so, others are answered, and the CPU is divided
/// as before.
#[test]
fn a_flood_of_requests_is_the_flooders_own_problem() {
    let Some(sandbox) = system_sandbox("a_flood_of_requests_is_the_flooders_own_problem") else { return };
    let policy = "[limits]\nrequests_per_second = 50\nburst = 50\n[users.default]\ncpu = 1000\n";
    let mut system = System::start(&sandbox, policy, &["--cpus", &one_cpu()]);
    let spin = |name: &str, share: u64| {
        let child = sandbox.command("sh").args(["-c", SPIN]).spawn().unwrap();
        let new =
            serde_json::json!({ "name": name, "share": share, "selector": format!("pid:{}", child.id()) });
        let made = system.ask("POST", "/v1/clients", &new.to_string());
        assert_eq!(made.status, 201, "{made:?}");
        let made: Value = serde_json::from_str(&made.body).unwrap();
        (child, format!("/v1/clients/{}?members=0", made["id"]))
    };
    let ((large, path), (small, _)) = (spin("large", 3), spin("small", 1));
    let mut spinners = [large, small];
    let is_over = AtomicBool::new(false);
    let (answered, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (is_over, answered, refused, system) = (&is_over, &answered, &refused, &system);
        // However this ends, the flood does too.
        let _end = Ends(is_over);
        for n in 0..FLOOD {
            scope.spawn(move || {
                as_user(alice_uid(), || {
                    let path = ["/v1/clients", "/v1/market", "/v1/status", "/v1/doctor"][n % 4];
                    while !is_over.load(Ordering::Relaxed) {
                        let status = system.ask("GET", path, "").status;
                        assert!([200, 429].contains(&status), "{status}");
                        let count = if status == 200 { answered } else { refused };
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                });
            });
        }
        let pids: Vec<u32> = spinners.iter().map(std::process::Child::id).collect();
        let ticks = || -> Vec<u64> {
            let all = sandbox.processes();
            let of = |pid: &u32| {
                all.iter().find(|p| p.pid.as_raw_nonzero().get() as u32 == *pid).map_or(0, |p| p.cpu)
            };
            pids.iter().map(of).collect()
        };
        eventually("a flood", || (refused.load(Ordering::Relaxed) > 100).then_some(()));
        let before = ticks();
        let used = eventually("CPU time", || {
            // Within its own measure, everybody else is answered.
            let answer = as_user(bob_uid(), || system.ask("GET", &path, ""));
            assert_eq!(answer.status, 200, "{answer:?}");
            std::thread::sleep(std::time::Duration::from_millis(100));
            let used: Vec<u64> = ticks().iter().zip(&before).map(|(now, then)| now - then).collect();
            (used.iter().sum::<u64>() >= FLOOD_TICKS).then_some(used)
        });
        let large = used[0] as f64 / used.iter().sum::<u64>() as f64;
        assert!(FLOODED.contains(&large), "{large} of the CPU for 3 of 4 shares");
    });
    let (answered, refused) = (answered.into_inner(), refused.into_inner());
    assert!(refused > answered, "{answered} answered, {refused} refused");
    let metrics = system.ask("GET", "/metrics", "").body;
    let line =
        metrics.lines().find(|l| l.starts_with("divvy_requests_total") && l.contains("status=\"429\""));
    assert!(line.is_some(), "{metrics}");
    for spinner in &mut spinners {
        spinner.kill().unwrap();
        spinner.wait().unwrap();
    }
    assert_eq!(system.stop(), Some(0), "{}", system.log());
}
