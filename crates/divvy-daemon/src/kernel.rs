//! `--backend kernel`: the kernel's weights as with `cgroup`, and `divvy-scx` beside them, which makes a policy the kernel's
//! scheduler and takes each client's share from the weight of its cgroup, as it changes.
//!
//! Whatever ends divvy-scx gives the CPUs back to the kernel's own scheduler, which divides by the same weights: the back end
//! is `cgroup` then, and says so. It is not started again: why it ended is for a human to look at.

use std::io::BufReader;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use divvy_linux::cgroup::{Ground, Knob};
use divvy_linux::{Finding, Status, clock};
use divvy_policy::Nanos;

use crate::daemon::Failure;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The name of the back end.
pub(crate) const KERNEL_BACKEND: &str = "kernel";
const PROGRAM: &str = "divvy-scx";
/// Where it may be, beside the directory of this program and those of `PATH`.
const PLACES: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/usr/bin"];
/// The policy where nobody asks for another. Its order depends on proportions alone: weights are large numbers, of which VTRR would make
/// cycles of minutes.
const POLICY: &str = "stride";
/// What divvy-scx knows; its parameters it checks itself.
const POLICIES: [&str; 7] = ["stride", "vtrr", "lottery", "pbs", "las", "fcfs", "rr"];
/// By this code divvy-scx says that its arguments cannot be used.
const USAGE: i32 = 2;
/// How often it is looked after.
const PERIOD: Nanos = Nanos::from_millis(100);
/// In periods: it lets go within this, or is killed, by which the kernel lets go.
pub(crate) const PATIENCE: u32 = 100;
/// What it says once it has attached.
const ATTACHED: &str = " divides the CPUs among ";

/// What there is to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    program: PathBuf,
    policy: String,
    /// Where the cgroup of all clients is made.
    dir: PathBuf,
    mount: PathBuf,
}

impl Plan {
    /// What is needed to make `policy`, or [`POLICY`], the kernel's scheduler for clients in cgroups on `ground`.
    ///
    /// One that lets go is waited for, `patience` periods long.
    ///
    /// # Errors
    /// What is missing, with the fix.
    pub(crate) fn new(ground: &Ground, policy: Option<&str>, patience: u32) -> Result<Self, String> {
        if ground.knob != Knob::Weight || !ground.dir.starts_with(&ground.mount) {
            return Err("it needs cgroup v2 with its cpu controller".to_owned());
        }
        wait_for_kernel(patience, || {
            divvy_linux::doctor().into_iter().find(|finding| finding.what == "sched_ext")
        })?;
        let program = find().ok_or_else(|| {
            format!("there is no {PROGRAM} beside divvyd or in PATH; docs/kernel.md has how to build it")
        })?;
        let policy = policy.unwrap_or(POLICY).to_owned();
        Ok(Self { program, policy, dir: ground.dir.clone(), mount: ground.mount.clone() })
    }

    /// Lets divvy-scx look at the policy's parameters, and the kernel's verifier at its programs, before there is any client.
    ///
    /// # Errors
    /// What one of them says.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let failed = |why: &str| format!("--backend {KERNEL_BACKEND}: {PROGRAM}: {why}");
        let done = Command::new(&self.program).args(["check", "--policy", &self.policy]).output();
        let done = done.map_err(|e| Failure::system(failed(&e.to_string())))?;
        let said = String::from_utf8_lossy(&done.stderr);
        let why = failed(said.lines().next().unwrap_or("without a word"));
        match done.status.code() {
            Some(0) => Ok(()),
            Some(USAGE) => Err(Failure::usage(why)),
            _ => Err(Failure::system(why)),
        }
    }

    /// The cgroup around all clients, once there are any, as a path from the root.
    fn tree(&self) -> Option<String> {
        let prefix = format!("divvy-{}-", std::process::id());
        let entries = std::fs::read_dir(&self.dir).ok()?.flatten();
        let found = entries.map(|entry| entry.path()).find(|path| name_of(path).starts_with(&prefix))?;
        // Made at the start, and of clients' cgroups when there are clients; divvyd's own is `self`.
        let mut within = std::fs::read_dir(&found).ok()?.flatten();
        within.find(|entry| entry.path().is_dir() && name_of(&entry.path()) != "self")?;
        Some(format!("/{}", found.strip_prefix(&self.mount).ok()?.display()))
    }

    fn start(&self, tree: &str) -> std::io::Result<Child> {
        let mut command = Command::new(&self.program);
        command.args(["run", "--policy", &self.policy, "--weights", tree]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        // SAFETY: prctl and sigprocmask are system calls that may be made between fork and exec. The signals that divvyd
        // waits for would be blocked in its child, too.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                let mut none = std::mem::MaybeUninit::uninit();
                libc::sigemptyset(none.as_mut_ptr());
                libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
                Ok(())
            });
        }
        command.spawn()
    }
}

/// Whether divvy-scx knows a policy of this name, before the machine is asked for anything.
///
/// # Errors
/// It knows none; those that there are.
pub(crate) fn check_policy(policy: &str) -> Result<(), Failure> {
    let name = policy.split(':').next().unwrap_or_default();
    if POLICIES.contains(&name) {
        return Ok(());
    }
    let text =
        format!("--policy {policy}: with --backend {KERNEL_BACKEND} there are {}", POLICIES.join(", "));
    Err(Failure::usage(text))
}

/// Until the kernel takes a scheduler. The divvy-scx of a divvyd that was killed is still there for a moment: the kernel tells it of
/// that, and it takes a while to let go.
///
/// # Errors
/// What is in the way, with the fix.
fn wait_for_kernel(patience: u32, look: impl Fn() -> Option<Finding>) -> Result<(), String> {
    for tries in 0.. {
        let Some(finding) = look() else { return Err("nothing is known of sched_ext here".to_owned()) };
        let is_ours = finding.status == Status::Good && finding.found.contains("already");
        if finding.status == Status::Good && !is_ours {
            return Ok(());
        }
        if !is_ours || tries >= patience {
            let fix = if is_ours { Some("end that divvy-scx first".to_owned()) } else { finding.fix };
            return Err(fix.map_or_else(|| finding.found.clone(), |fix| format!("{}; {fix}", finding.found)));
        }
        clock::sleep(PERIOD);
    }
    Ok(())
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[expect(clippy::disallowed_methods, reason = "a program is looked for where a shell would")]
fn find() -> Option<PathBuf> {
    let own = std::env::current_exe().ok().and_then(|path| Some(path.parent()?.to_owned()));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = own.into_iter().chain(std::env::split_paths(&path)).chain(PLACES.map(PathBuf::from));
    places.map(|dir| dir.join(PROGRAM)).find(|program| program.is_file())
}

/// How far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// The cgroup of all clients is made with the first of them.
    Waits,
    Starts,
    Divides,
    /// Why.
    Ended(String),
}

#[derive(Debug)]
struct Shared {
    state: State,
    /// What it said last, but for that it has attached.
    said: String,
    stop: bool,
    /// Why it is to let go, before divvyd ends.
    gives_way: Option<String>,
}

/// Looks after divvy-scx in a thread of its own; it ends with this value.
#[derive(Debug)]
pub(crate) struct Keeper {
    policy: String,
    shared: Arc<Mutex<Shared>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    pub(crate) fn start(plan: Plan) -> std::io::Result<Self> {
        let shared = Arc::new(Mutex::new(Shared {
            state: State::Waits,
            said: String::new(),
            stop: false,
            gives_way: None,
        }));
        let (its, policy) = (Arc::clone(&shared), plan.policy.clone());
        let thread =
            std::thread::Builder::new().name("kernel".to_owned()).spawn(move || keep(&plan, &its))?;
        Ok(Self { policy, shared, thread: Some(thread) })
    }

    /// By what the CPUs are divided now, and what is to be known of it.
    pub(crate) fn by(&self) -> (String, String) {
        let weights = "the kernel's CPU weights".to_owned();
        let shared = lock(&self.shared);
        if let (State::Divides, Some(why)) = (&shared.state, &shared.gives_way) {
            return (format!("sched_ext, {}", self.policy), format!("{PROGRAM} is being ended: {why}"));
        }
        match &shared.state {
            State::Waits => (weights, format!("{PROGRAM} is started with the first client")),
            State::Starts => (weights, format!("{PROGRAM} is being started")),
            State::Divides => (format!("sched_ext, {}", self.policy), String::new()),
            State::Ended(why) => (weights, format!("{PROGRAM} has ended: {why}")),
        }
    }

    /// Lets go of the kernel's scheduler for good, for this reason.
    pub(crate) fn give_way(&self, why: &str) {
        let mut shared = lock(&self.shared);
        if !shared.stop && !matches!(shared.state, State::Ended(_)) {
            shared.stop = true;
            shared.gives_way = Some(why.to_owned());
            tracing::info!(why, "divvy-scx is ended: the kernel's own scheduler divides by weights");
        }
    }

    /// Whether it divides, or is going to: it has not ended, nor been asked to.
    pub(crate) fn goes_on(&self) -> bool {
        let shared = lock(&self.shared);
        !shared.stop && !matches!(shared.state, State::Ended(_))
    }

    /// Why it has ended, if it has.
    pub(crate) fn ended(&self) -> Option<String> {
        match &lock(&self.shared).state {
            State::Ended(why) => Some(why.clone()),
            _ => None,
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        lock(&self.shared).stop = true;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// In which user's cgroup that of a newcomer of user `uid` is to be, if in any: while a scheduler of ours divides, clients' cgroups are
/// beside each other, for it takes each of them for a client. One that is `limited` makes it give way.
pub(crate) fn user_around(keeper: Option<&Keeper>, uid: u32, limited: bool) -> Option<u32> {
    let flat = keeper.is_some_and(Keeper::goes_on) && !limited;
    (!flat).then_some(uid)
}

fn lock(shared: &Mutex<Shared>) -> std::sync::MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn keep(plan: &Plan, shared: &Arc<Mutex<Shared>>) {
    divide(plan, shared);
    let mut shared = lock(shared);
    if let Some(why) = shared.gives_way.clone() {
        shared.state = State::Ended(why);
    }
}

fn divide(plan: &Plan, shared: &Arc<Mutex<Shared>>) {
    let tree = loop {
        if lock(shared).stop {
            return;
        }
        match plan.tree() {
            Some(tree) => break tree,
            None => clock::sleep(PERIOD),
        }
    };
    {
        let mut shared = lock(shared);
        if shared.stop {
            return;
        }
        shared.state = State::Starts;
    }
    let mut child = match plan.start(&tree) {
        Ok(child) => child,
        Err(e) => return ended(shared, format!("start {}: {e}", plan.program.display())),
    };
    if let Some(said) = child.stderr.take() {
        let its = Arc::clone(shared);
        // It ends with the child's last word.
        let listens = std::thread::Builder::new().name("kernel-log".to_owned());
        let _ = listens.spawn(move || listen(BufReader::new(said), &its));
    }
    loop {
        match child.try_wait() {
            Ok(None) if lock(shared).stop => return stop(&mut child),
            Ok(None) => clock::sleep(PERIOD),
            Ok(Some(status)) => {
                // Its last word may be on the way.
                clock::sleep(PERIOD);
                let said = lock(shared).said.clone();
                return ended(shared, if said.is_empty() { status.to_string() } else { said });
            }
            // The scheduler takes in all children of this process, and may have been first.
            Err(_) => {
                let said = lock(shared).said.clone();
                return ended(shared, if said.is_empty() { "without a word".to_owned() } else { said });
            }
        }
    }
}

fn listen(said: impl std::io::BufRead, shared: &Mutex<Shared>) {
    for line in said.lines().map_while(Result::ok) {
        let line = line.trim_start_matches("divvy-scx: ").to_owned();
        tracing::info!(said = line, "divvy-scx");
        let mut shared = lock(shared);
        if line.contains(ATTACHED) {
            // It may have been asked to let go before it had begun.
            if !shared.stop {
                shared.state = State::Divides;
            }
        } else {
            shared.said = line;
        }
    }
}

fn ended(shared: &Mutex<Shared>, why: String) {
    let mut shared = lock(shared);
    if !shared.stop {
        tracing::warn!(why, "divvy-scx has ended: the kernel's own scheduler divides by weights");
        shared.state = State::Ended(why);
    }
}

fn stop(child: &mut Child) {
    let pid = i32::try_from(child.id()).ok().and_then(divvy_linux::Pid::from_raw);
    // Not waited for yet, so that the number is its own.
    if let Some(pidfd) = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) {
        let _ = pidfd_send_signal(&pidfd, Signal::TERM);
    }
    for _ in 0..PATIENCE {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        clock::sleep(PERIOD);
    }
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(state: State) -> Arc<Mutex<Shared>> {
        Arc::new(Mutex::new(Shared { state, said: String::new(), stop: false, gives_way: None }))
    }

    #[test]
    fn it_divides_once_it_says_so_and_its_last_word_is_why_it_ended() {
        let shared = shared(State::Starts);
        let keeper = Keeper { policy: "vtrr".to_owned(), shared: Arc::clone(&shared), thread: None };
        assert!(keeper.by().1.contains("is being started"));
        let line = "divvy-scx: vtrr:quantum=20ms divides the CPUs among 0 clients and the rest; Ctrl-C\n";
        listen(line.as_bytes(), &shared);
        assert_eq!(keeper.by(), ("sched_ext, vtrr".to_owned(), String::new()));
        assert_eq!(keeper.ended(), None);
        listen("divvy-scx: the watchdog ejected it\n".as_bytes(), &shared);
        let said = lock(&shared).said.clone();
        ended(&shared, said);
        let (by, note) = keeper.by();
        assert_eq!(by, "the kernel's CPU weights");
        assert_eq!(note, "divvy-scx has ended: the watchdog ejected it");
    }

    #[test]
    fn newcomers_are_in_their_users_cgroup_once_it_gives_way() {
        let keeper = |state| Keeper { policy: "stride".to_owned(), shared: shared(state), thread: None };
        for (state, asked, around) in [
            (State::Waits, false, None),
            (State::Starts, false, None),
            (State::Divides, false, None),
            // It lets go within a moment, and whoever comes stays for longer.
            (State::Waits, true, Some(7)),
            (State::Divides, true, Some(7)),
            (State::Ended("killed".to_owned()), false, Some(7)),
        ] {
            let keeper = keeper(state.clone());
            if asked {
                keeper.give_way("a limit was asked for");
            }
            assert_eq!(user_around(Some(&keeper), 7, false), around, "{state:?}, asked {asked}");
        }
        // Nobody looks after one, or this is the one for whom it gives way.
        assert_eq!(user_around(None, 7, false), Some(7));
        assert_eq!(user_around(Some(&keeper(State::Divides)), 7, true), Some(7));
    }

    #[test]
    fn the_scheduler_of_a_divvyd_that_was_killed_is_waited_for() {
        let good = |found: &str| Finding {
            what: "sched_ext".to_owned(),
            found: found.to_owned(),
            status: Status::Good,
            fix: None,
        };
        let there = "the kernel has a scheduler already (divvy_stride, enabled)";
        let looks = std::cell::Cell::new(0);
        let lets_go = || {
            looks.set(looks.get() + 1);
            Some(good(if looks.get() < 3 { there } else { "divvy-scx can run" }))
        };
        assert_eq!(wait_for_kernel(5, lets_go), Ok(()));
        assert_eq!(looks.get(), 3);
        let stays = wait_for_kernel(1, || Some(good(there)));
        assert_eq!(stays, Err(format!("{there}; end that divvy-scx first")));
        // Whatever is nobody's of ours is not waited for.
        let other = Finding { status: Status::Limited, fix: Some("the fix".to_owned()), ..good("rusty") };
        looks.set(0);
        let refused = wait_for_kernel(5, || {
            looks.set(looks.get() + 1);
            Some(other.clone())
        });
        assert_eq!((refused, looks.get()), (Err("rusty; the fix".to_owned()), 1));
    }

    fn plan(program: PathBuf, dir: &Path) -> Plan {
        Plan { program, policy: "pbs:alpha=x".to_owned(), dir: dir.to_owned(), mount: dir.to_owned() }
    }

    #[test]
    fn a_policy_that_divvy_scx_does_not_know_is_refused_by_name() {
        for known in ["vtrr", "pbs:alpha=2", "stride:quantum=8ms"] {
            assert!(check_policy(known).is_ok(), "{known}");
        }
        for unknown in ["exact", "", "strid", "pbs2:alpha=1"] {
            let refused = check_policy(unknown).expect_err(unknown);
            assert_eq!(refused.code, 2, "{unknown}");
            assert!(refused.text.ends_with("there are stride, vtrr, lottery, pbs, las, fcfs, rr"));
        }
    }

    #[test]
    fn what_divvy_scx_says_of_its_arguments_is_why_it_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().expect("a directory");
        for (code, want) in [(0, None), (2, Some(2)), (5, Some(5))] {
            let program = dir.path().join(format!("scx{code}"));
            let lines = format!("#!/bin/sh\necho \"not $*\" >&2\nexit {code}\n");
            std::fs::write(&program, lines).expect("ours");
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("ours");
            let refused = plan(program, dir.path()).check().err();
            assert_eq!(refused.as_ref().map(|failure| failure.code), want);
            let text = refused.map(|failure| failure.text);
            let said = "--backend kernel: divvy-scx: not check --policy pbs:alpha=x";
            assert_eq!(text, want.map(|_| said.to_owned()));
        }
    }

    #[test]
    fn a_program_that_ends_at_once_is_told_of() {
        let dir = tempfile::tempdir().expect("a directory");
        let name = format!("divvy-{}-1", std::process::id());
        // Of one client, without whom it would not be started.
        std::fs::create_dir_all(dir.path().join(name).join("1")).expect("ours");
        let plan = plan("/bin/false".into(), dir.path());
        let keeper = Keeper::start(plan).expect("a thread");
        for _ in 0..1_000 {
            if keeper.ended().is_some() {
                break;
            }
            clock::sleep(Nanos::from_millis(10));
        }
        assert_eq!(keeper.ended().as_deref(), Some("exit status: 1"));
    }
}
