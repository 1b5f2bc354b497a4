//! A hand-over on several CPUs: the predecessor's hold may be put off until its successor runs, but no longer; and what is
//! started keeps what the scheduler changes about itself only. Alone in its file, for a host takes the process's signals and children.
#![allow(clippy::disallowed_methods, reason = "this test lives in real time")]

mod common;

use common::{Ended, wait_for};
use divvy_engine::Host as _;
use divvy_linux::{Command, CpuMask, HostParams, LinuxHost, Pid, clock, procfs};
use divvy_policy::{ClientId, CpuId};

const ROUNDS: usize = 50;

fn is_suspended(pid: Pid) -> bool {
    procfs::stat(pid).expect("readable").expect("our child").state.is_suspended()
}

fn affinity(pid: Pid) -> CpuMask {
    CpuMask::of_thread(pid).expect("readable").expect("our child")
}

/// The slice that the kernel gives a process, ns.
fn slice(pid: Pid) -> u64 {
    let mut attr = [0_u64; 7]; // `struct sched_attr`: size and policy, flags, nice and priority, runtime, ...
    let size = size_of_val(&attr) as u32;
    // SAFETY: the kernel writes at most `size` bytes to an array of that size.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, pid.as_raw_pid(), attr.as_mut_ptr(), size, 0) };
    assert_eq!(got, 0, "{}", std::io::Error::last_os_error());
    attr[3]
}

/// Whatever comes after a hold, it finds the client suspended: a wait, a question about anybody, or its own release.
#[test]
fn a_hold_that_is_put_off_is_done_before_anything_else() {
    let dir = tempfile::tempdir().expect("a directory");
    // SAFETY: the only thread of the test, before any other reads the environment.
    unsafe { std::env::set_var("DIVVY_RUNTIME_DIR", dir.path().join("run")) };
    let slice_before = slice(rustix::thread::gettid());
    let mut host = LinuxHost::new(&HostParams { cpus: None, capacity: 8 }).expect("a host");
    let cpus = host.cpus().len() as u32;
    let own = affinity(rustix::process::getpid());
    let mut ended = Ended(Vec::new());
    let mut start = || -> (ClientId, Pid) {
        let argv = ["/bin/sh", "-c", "while :; do :; done"].map(Into::into).to_vec();
        let client = host.spawn(Command { argv, ..Command::default() }).expect("a shell");
        let pid = host.leader(client).expect("a leader");
        ended.0.push(pid);
        (client, pid)
    };
    let ((first, first_pid), (second, second_pid)) = (start(), start());
    // The scheduler asks for a short slice for itself (where the kernel knows of any); what it starts does not get it.
    println!("slices: {slice_before} ns before, {} ns with a host", slice(rustix::thread::gettid()));
    assert_eq!((slice(first_pid), slice(second_pid)), (slice_before, slice_before));
    for round in 0..ROUNDS {
        let lane = Some(CpuId(round as u32 % cpus));
        host.release(first, lane).expect("alive");
        wait_for("the first to run", || !is_suspended(first_pid));
        host.hold(first).expect("alive");
        host.release(second, lane).expect("alive");
        wait_for("the second to run", || !is_suspended(second_pid));
        match round % 3 {
            0 => host.wait(Some(clock::now())).expect("the host works"),
            1 => drop(host.measure(second).expect("alive")),
            _ => drop(host.observe(second).expect("alive")),
        }
        wait_for("the first to be held", || is_suspended(first_pid));
        // Held and released in one go: it runs, and stays so.
        host.hold(second).expect("alive");
        host.release(second, lane).expect("alive");
        host.wait(Some(clock::now())).expect("the host works");
        wait_for("the second to run", || !is_suspended(second_pid));
        assert_eq!((affinity(first_pid), affinity(second_pid)), (own, own), "round {round}");
        host.hold(second).expect("alive");
    }
}
