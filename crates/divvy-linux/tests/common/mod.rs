//! Processes that a test starts and that never outlive it, even when it fails.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod skip;

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use divvy_linux::{Pid, ProcessRef, Signal, StartTime, State, clock, procfs};
use divvy_policy::Nanos;

/// How long a test waits for what must come; a slow machine only makes the test slower.
pub const PATIENCE: Nanos = Nanos::from_secs(20);
/// Of the time between two looks so much counts.
const ROUND_COUNTS_MAX: Nanos = Nanos::from_millis(100);

/// Ends what a host of this test has started, whatever becomes of it. (A host's own reaping needs SIGCHLD, which the test harness's
/// first thread does not leave to it.)
pub struct Ended(pub Vec<Pid>);

impl Drop for Ended {
    fn drop(&mut self) {
        for pid in &self.0 {
            let _ = rustix::process::kill_process(*pid, Signal::KILL);
            let _ = rustix::process::waitpid(Some(*pid), rustix::process::WaitOptions::empty());
        }
    }
}

/// Whether `pid` is suspended; one that has gone is not.
pub fn is_suspended(pid: Pid) -> bool {
    procfs::stat(pid).expect("readable").is_some_and(|stat| stat.state.is_suspended())
}

/// A process of this test. Dropping it resumes, kills and reaps it, and its whole group if it leads one.
pub struct Victim {
    child: Child,
    leads_group: bool,
}

impl Victim {
    /// `script` in a shell of its own; stdout is a pipe.
    pub fn shell(script: &str) -> Self {
        Self::start(script, false)
    }

    /// `script` in a shell that leads a process group of its own; stdout is a pipe.
    pub fn group(script: &str) -> Self {
        Self::start(script, true)
    }

    /// A process that computes for ever.
    pub fn spinner() -> Self {
        Self::shell("while :; do :; done")
    }

    /// A process that computes for ever with what nobody else wants.
    pub fn nice_spinner() -> Self {
        let victim = Self::shell("exec nice -n 19 sh -c 'while :; do :; done'");
        wait_for("it to be nice", || victim.stat().comm.as_bytes() == b"sh" && victim.is_nice());
        victim
    }

    fn is_nice(&self) -> bool {
        rustix::process::getpriority_process(Some(self.pid())).is_ok_and(|nice| nice == 19)
    }

    fn start(script: &str, leads_group: bool) -> Self {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped());
        if leads_group {
            command.process_group(0);
        }
        Self { child: command.spawn().expect("start a shell"), leads_group }
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn stat(&self) -> procfs::Stat {
        procfs::stat(self.pid()).expect("readable").expect("our own child is there until we reap it")
    }

    pub fn start_time(&self) -> StartTime {
        self.stat().start
    }

    pub fn process(&self) -> ProcessRef {
        ProcessRef::open(self.pid()).expect("pidfd").expect("alive")
    }

    /// Suspends it and waits until it stands.
    pub fn stop(&self) {
        self.process().signal(Signal::STOP).expect("own child");
        wait_for("it to stand", || self.stat().state == State::Stopped);
    }

    pub fn kill_and_reap(&mut self) {
        self.child.kill().expect("own child");
        self.child.wait().expect("own child");
    }

    /// The next whole line that the script prints.
    pub fn line(&mut self) -> String {
        use std::io::Read;
        let out = self.child.stdout.as_mut().expect("piped");
        let mut line = Vec::new();
        let mut byte = [0];
        while out.read(&mut byte).expect("pipe") == 1 && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        String::from_utf8(line).expect("text")
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // Not reaped yet, so the pid and the group's number are still ours.
        if self.leads_group {
            for signal in [Signal::KILL, Signal::CONT] {
                let _ = rustix::process::kill_process_group(self.pid(), signal);
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until `met`, polling; panics with `what` after [`PATIENCE`].
#[track_caller]
pub fn wait_for(what: &str, mut met: impl FnMut() -> bool) -> Nanos {
    let start = clock::now();
    let (mut before, mut waited) = (start, Nanos::ZERO);
    while !met() {
        assert!(waited < PATIENCE, "waited in vain for {what}");
        clock::sleep(Nanos::from_micros(500));
        let now = clock::now();
        // A machine that is away for seconds has not looked in them.
        waited += now.since(std::mem::replace(&mut before, now)).min(ROUND_COUNTS_MAX);
    }
    clock::now().since(start)
}

/// A pid that nobody can have: beyond the kernel's greatest (2^22).
pub fn nobody() -> Pid {
    Pid::from_raw((1 << 22) + 1).expect("not zero")
}
