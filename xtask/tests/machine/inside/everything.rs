//! `everything = true` where the kernel divides: users who never heard of divvy have what is theirs, and nobody is stopped.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::backend::{Daemon, check_parts, check_success, eventually, leaves, used};
use super::{SPIN, check_inside, sleep};

const POLICY: &str = "/etc/divvy/divvyd.toml";
const ALICE: u32 = 1001;
const BOB: u32 = 1002;

/// A policy, and programs of users who do nothing but compute, for the time of a test.
struct Machine(Vec<Child>);

impl Machine {
    fn new(policy: &str) -> Self {
        check_inside();
        fs::create_dir_all("/etc/divvy").expect("root may");
        fs::write(POLICY, policy).expect("root may");
        Self(Vec::new())
    }

    fn compute(&mut self, uid: u32) {
        let mut shell = Command::new("sh");
        shell.args(["-c", SPIN]).uid(uid).gid(uid).stdin(Stdio::null());
        self.0.push(shell.spawn().expect("a shell"));
    }

    /// What the kernel says of each of them in a file of `/proc`.
    fn told(&self, file: &str) -> Vec<String> {
        let of = |child: &Child| fs::read_to_string(format!("/proc/{}/{file}", child.id())).expect("alive");
        self.0.iter().map(of).collect()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_file(POLICY);
    }
}

#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn users_who_never_heard_of_divvy_are_divided_by_weights() {
    let mut machine =
        Machine::new("[users.default]\neverything = true\n[users.alice]\ncpu = 3000\neverything = true\n");
    let mut daemon = Daemon::system(&["--backend", "cgroup"]);
    machine.compute(ALICE);
    let before = machine.told("cgroup");
    (0..3).for_each(|_| machine.compute(BOB));
    let clients = eventually("everybody's processes to be clients", || {
        let told = check_success(&mut daemon.divvy(&["ls", "--json"]));
        let told: Value = serde_json::from_str(&told).expect("JSON");
        let clients: Vec<(String, u64)> = told["clients"]
            .as_array()
            .expect("clients")
            .iter()
            .map(|c| {
                (c["name"].as_str().expect("a name").to_owned(), c["nr_members"].as_u64().expect("a number"))
            })
            .collect();
        let has = |name: &str, n: u64| clients.contains(&(name.to_owned(), n));
        (has("alice/everything", 1) && has("bob/everything", 3)).then_some(clients)
    });
    assert_eq!(clients.len(), 2, "root's are left alone: {clients:?}");
    // alice has 3000 of 4000 tickets, however many processes bob has.
    let shares: Vec<u64> =
        clients.iter().map(|(name, _)| if name.starts_with("alice/") { 3 } else { 1 }).collect();
    sleep(500);
    check_parts(&used(&leaves()), &shares);
    let cgroups = machine.told("cgroup");
    assert!(cgroups[0].contains("/u1001/c") && cgroups[1].contains("/u1002/c"), "{cgroups:?}");
    let all = machine.told("status");
    assert!(all.iter().all(|status| status.contains("State:\tR")), "nobody is stopped: {all:?}");
    // That is not the user's to leave.
    let mut detach = daemon.divvy(&["detach", "everything"]);
    let refused = detach.uid(BOB).gid(BOB).output().expect("divvy");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("the policy divides all that bob runs"), "{said}");
    // One user's, as `ls --user` has it.
    let told = check_success(&mut daemon.divvy(&["ls", "--user", "bob"]));
    assert!(told.contains("bob/everything") && !told.contains("alice"), "{told}");
    // When divvyd goes, all are where they were, and go on.
    daemon.stop();
    assert_eq!(machine.told("cgroup"), vec![before[0].clone(); 4]);
}
