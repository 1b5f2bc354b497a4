//! A client of several threads is sent to the CPUs that it is told, at every look, and keeps its own affinity. Alone in its
//! file, for a host takes the process's signals and children.
#![allow(clippy::disallowed_methods, reason = "this test lives in real time")]

mod common;

use common::wait_for;
use divvy_engine::Host as _;
use divvy_linux::{Command, CpuMask, HostParams, LinuxHost, Pid, Signal, clock};
use divvy_policy::{ClientId, CpuId};

/// A shell that computes beside three children that do.
const SPINNERS: usize = 4;

/// Ends the whole group, whatever becomes of the test.
struct Ended(Pid);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process_group(self.0, Signal::KILL);
        let _ = rustix::process::waitpid(Some(self.0), rustix::process::WaitOptions::empty());
    }
}

/// The processes of a group, and the CPU that each was on last (proc(5), field 39).
fn group(leader: Pid) -> Vec<(Pid, u32)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some((_, rest)) = stat.rsplit_once(')') else { continue };
        let fields: Vec<&str> = rest.split_whitespace().collect();
        if fields[2] == leader.to_string() {
            found.push((Pid::from_raw(pid).expect("a pid"), fields[36].parse().expect("a CPU")));
        }
    }
    found
}

/// Looks at the client until its processes have been on exactly these CPUs.
fn wait_for_cpus(host: &mut LinuxHost, client: ClientId, leader: Pid, cpus: &[u32]) {
    wait_for(&format!("all to be on {cpus:?}"), || {
        host.wait(Some(clock::now())).expect("the host works");
        host.measure(client).expect("alive");
        let on = group(leader);
        on.len() == SPINNERS
            && on.iter().all(|(_, cpu)| cpus.contains(cpu))
            && cpus.iter().all(|cpu| on.iter().any(|(_, on)| on == cpu))
    });
}

#[test]
fn threads_are_sent_to_their_clients_cpus() {
    let dir = tempfile::tempdir().expect("a directory");
    // SAFETY: the only thread of the test, before any other reads the environment.
    unsafe { std::env::set_var("DIVVY_RUNTIME_DIR", dir.path().join("run")) };
    let mut host = LinuxHost::new(&HostParams { cpus: None, capacity: 8 }).expect("a host");
    let Some(&[first, second]) = host.cpus().get(..2) else {
        println!("SKIP: one CPU only, so there is nowhere to be sent");
        return;
    };
    let own = CpuMask::of_thread(rustix::process::getpid()).expect("readable").expect("this process");
    let spin = "while :; do :; done";
    let argv = ["/bin/sh", "-c", &format!("{spin} & {spin} & {spin} & {spin}")].map(Into::into).to_vec();
    let client = host.spawn(Command { argv, ..Command::default() }).expect("a shell");
    let leader = host.leader(client).expect("a leader");
    let _ended = Ended(leader);
    host.release(client, None).expect("alive");
    wait_for("the children", || {
        host.measure(client).expect("alive");
        host.nr_members(client) == SPINNERS
    });
    for lanes in [&[1, 0][..], &[1], &[0], &[0, 1]] {
        host.release(client, None).expect("alive");
        for &lane in lanes {
            host.release(client, Some(CpuId(lane))).expect("alive");
        }
        let cpus: Vec<u32> = lanes.iter().map(|&lane| [first, second][lane as usize]).collect();
        wait_for_cpus(&mut host, client, leader, &cpus);
        for (pid, _) in group(leader) {
            assert_eq!(CpuMask::of_thread(pid).expect("readable"), Some(own), "its own affinity");
        }
    }
    // Held, it is sent nowhere; the first release after that names the first of its CPUs.
    host.hold(client).expect("alive");
    host.release(client, Some(CpuId(1))).expect("alive");
    wait_for_cpus(&mut host, client, leader, &[second]);
}
