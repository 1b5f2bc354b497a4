//! A client that is kept to some CPUs, as the kernel's cpusets do it.

use std::fs;
use std::process::{Command, Stdio};

use divvy_linux::Pid;
use divvy_linux::cgroup::room::CPU_WEIGHT;

use super::backend::{Daemon, check_success, eventually, leaves, output, trees, used};
use super::{ROOT, SPIN, check_inside, sleep};

/// Of two CPUs, in real time beside whatever the host does, a client's part of one is within this fraction of what is due.
const MAX_ERROR: f64 = 0.1;

/// A program that computes, ended with the test.
struct Program(std::process::Child);

impl Program {
    fn start(command: &[&str]) -> Self {
        Self(Command::new(command[0]).args(&command[1..]).stdin(Stdio::null()).spawn().expect("there"))
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    /// As the kernel writes it.
    fn cpus(&self) -> String {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("alive");
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:\t")).expect("a list").to_owned()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a CPU has done since the start, in ticks: in user code, nicely, in the kernel, idle, waiting for disks, in interrupts (proc(5)).
fn ticks(cpu: u32) -> [u64; 7] {
    let stat = fs::read_to_string("/proc/stat").expect("readable");
    let line = stat.lines().find_map(|line| line.strip_prefix(&format!("cpu{cpu} "))).expect("the CPU");
    let mut numbers = line.split_whitespace().map(|n| n.parse().expect("a number"));
    std::array::from_fn(|_| numbers.next().expect("as many"))
}

fn attach(daemon: &Daemon, program: &Program, options: &[&str]) -> String {
    let tree = format!("tree:{}", program.pid());
    check_success(&mut daemon.divvy(&[&["attach", &tree][..], options].concat()))
}

#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn clients_are_kept_to_cpus_and_given_all_back() {
    check_inside();
    let mut daemon = Daemon::user("own", &["--backend", "cgroup"]);
    let spin = ["sh", "-c", SPIN];
    let (first, second) = (Program::start(&spin), Program::start(&spin));
    // Who has had CPUs of its own before has them still, and again.
    let own = Program::start(&[&["taskset", "1"][..], &spin].concat());
    eventually("taskset", || (own.cpus() == "0").then_some(()));
    let told = attach(&daemon, &first, &["--name", "first", "--cpus", "1"]);
    assert!(told.contains("share 1, CPUs 1"), "{told}");
    attach(&daemon, &second, &["--name", "second", "-s", "3"]);
    attach(&daemon, &own, &["--name", "own", "--cpus", "0,1"]);
    assert_eq!([first.cpus(), second.cpus(), own.cpus()], ["1", "0-1", "0"]);
    let told = check_success(&mut daemon.divvy(&["set", "second", "--cpus", "1"]));
    assert!(told.contains("second: share 3, CPUs 1"), "{told}");
    assert_eq!(second.cpus(), "1");
    // Two on one CPU, by their shares; the third has the other CPU.
    // Writing them is given little of the time, and this machine is slow.
    eventually("the weights", || {
        let weights: Vec<u64> = leaves().iter().map(|leaf| leaf.get(&CPU_WEIGHT).expect("there")).collect();
        (weights[1] / weights[0] >= 3 && weights[0] == weights[2]).then_some(())
    });
    sleep(500);
    let before = ticks(0);
    let used = used(&leaves());
    let ticks = ticks(0).into_iter().zip(before).map(|(to, from)| to - from).collect::<Vec<u64>>();
    let part = used[0] as f64 / (used[0] + used[1]) as f64;
    assert!((part / 0.25 - 1.0).abs() < MAX_ERROR, "{used:?}");
    // All of it, that is, but for what divvyd, this test and the emulated devices use, a quarter of a CPU where the machine is slow.
    let idle = ticks[3] + ticks[4];
    assert!(used[2] * 2 > used[0] + used[1] && idle * 5 < ticks.iter().sum(), "{used:?}, {ticks:?}");
    let told: serde_json::Value =
        serde_json::from_str(&check_success(&mut daemon.divvy(&["ls", "--json"]))).expect("JSON");
    let cpus = [0, 1, 2].map(|i| told["clients"][i]["bounds"]["cpus"].as_str().unwrap_or("none").to_owned());
    assert_eq!(cpus, ["1", "1", "0-1"]);
    for (cpus, why) in [
        ("5", "divvyd does not divide CPU 5; name some of 0-1"),
        ("1-0", "--cpus 1-0: the range 1-0 is empty"),
        ("both", "--cpus both: 'both' is no CPU; write numbers and ranges"),
    ] {
        let done = output(&mut daemon.divvy(&["set", "first", "--cpus", cpus]));
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.code() == Some(2) && said.contains(why), "{}: {said}", done.status);
    }
    assert_eq!(first.cpus(), "1", "nothing has changed");
    // A command begins there, and what it starts.
    let line = "sh -c 'grep Cpus_allowed_list /proc/self/status'";
    let said = check_success(&mut daemon.divvy(&["run", "--cpus", "1", "--", "sh", "-c", line]));
    assert_eq!(said, "Cpus_allowed_list:\t1\n");
    // All of them again: asked for, let go of, and where divvyd is killed.
    check_success(&mut daemon.divvy(&["set", "second", "--cpus", "all"]));
    check_success(&mut daemon.divvy(&["detach", "first"]));
    assert_eq!([first.cpus(), second.cpus(), own.cpus()], ["0-1", "0-1", "0"]);
    check_success(&mut daemon.divvy(&["set", "second", "--cpus", "0"]));
    assert_eq!(second.cpus(), "0");
    daemon.child.kill().expect("ours");
    daemon.child.wait().expect("our child");
    eventually("the guardian", || trees().is_empty().then_some(()));
    assert_eq!([first.cpus(), second.cpus(), own.cpus()], ["0-1", "0-1", "0"]);
    let on = || fs::read_to_string(format!("{ROOT}/cgroup.subtree_control")).expect("readable");
    eventually("the controller to be off", || (!on().contains("cpuset")).then_some(()));
}

/// Clients are on the CPUs that are divided, and so with each other: beside each other on two they would have half of the machine each.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn clients_are_where_cpus_are_divided() {
    check_inside();
    let spin = ["sh", "-c", SPIN];
    let (first, second) = (Program::start(&spin), Program::start(&spin));
    let mut daemon = Daemon::user("own", &["--backend", "cgroup", "--cpus", "1"]);
    attach(&daemon, &first, &["--name", "first"]);
    attach(&daemon, &second, &["--name", "second", "-s", "3"]);
    assert_eq!([first.cpus(), second.cpus()], ["1", "1"]);
    eventually("the weights", || {
        let weights: Vec<u64> = leaves().iter().map(|leaf| leaf.get(&CPU_WEIGHT).expect("there")).collect();
        (weights[1] / weights[0] >= 3).then_some(())
    });
    sleep(500);
    let used = used(&leaves());
    let part = used[0] as f64 / (used[0] + used[1]) as f64;
    assert!((part / 0.25 - 1.0).abs() < MAX_ERROR, "{used:?}");
    // One that is given them all back has those that are divided; nobody can be sent elsewhere.
    let list = "grep Cpus_allowed_list /proc/self/status";
    assert_eq!(check_success(&mut daemon.divvy(&["run", "sh", "-c", list])), "Cpus_allowed_list:\t1\n");
    check_success(&mut daemon.divvy(&["set", "first", "--cpus", "1"]));
    check_success(&mut daemon.divvy(&["set", "first", "--cpus", "all"]));
    let done = output(&mut daemon.divvy(&["set", "first", "--cpus", "0"]));
    assert_eq!(done.status.code(), Some(2), "{done:?}");
    assert_eq!(first.cpus(), "1");
    // Switched off and on underneath, they are there again.
    let tree = trees().pop_first().expect("one");
    fs::write(tree.join("cgroup.subtree_control"), "-cpuset").expect("root may");
    eventually("the first to be sent back", || {
        let told = output(&mut daemon.divvy(&["set", "first", "--limit", "memory:512M"]));
        (told.status.success() && first.cpus() == "1").then_some(())
    });
    daemon.stop();
    assert_eq!([first.cpus(), second.cpus()], ["0-1", "0-1"]);
    // By signals whoever starts a client keeps it there.
    let mut daemon = Daemon::user("own", &["--backend", "signals", "--cpus", "1"]);
    assert_eq!(check_success(&mut daemon.divvy(&["run", "sh", "-c", list])), "Cpus_allowed_list:\t1\n");
    let said = check_success(&mut daemon.divvy(&["share", "--group", "tasks", &format!("1:{list}")]));
    assert!(said.contains("Cpus_allowed_list:\t1\n"), "{said}");
    daemon.stop();
}

/// A rule keeps whoever it is about to CPUs, as long as its file says so.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn a_rule_keeps_to_cpus() {
    check_inside();
    let config = "/tmp/rules.toml";
    let write = |cpus: &str| {
        fs::write(config, format!("[[rule]]\ncommand = '*--of-a-rule*'\nas = 'bound'\n{cpus}"))
            .expect("root may");
    };
    write("cpus = '1'\n");
    let program = Program::start(&["sh", "-c", SPIN, "--of-a-rule"]);
    let mut divvyd = Command::new("divvyd");
    divvyd.env("DIVVY_CONFIG", config);
    let mut daemon = Daemon::of("own", 0, divvyd, &["--backend", "cgroup"]);
    let check = |cpus: &str| eventually(cpus, || (program.cpus() == cpus).then_some(()));
    check("1");
    write("cpus = '0'\n");
    check("0");
    // What cannot be is refused aloud, and changes nothing.
    write("cpus = '7'\n");
    eventually("the refusal", || {
        let log = fs::read_to_string("/tmp/divvyd.log").expect("readable");
        log.contains("rule bound (line 1): divvyd does not divide CPU 7").then_some(())
    });
    assert_eq!(program.cpus(), "0");
    write("");
    check("0-1");
    daemon.stop();
}

/// The system's divvyd keeps clients to CPUs over its restarts; where its back end cannot, it divides them without, and says so.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn the_systems_divvyd_keeps_to_cpus_over_restarts() {
    check_inside();
    let again = |options: &[&str]| {
        let mut command = Command::new("divvyd");
        command.arg("--system");
        Daemon::start(command, options, "/run/divvy".into(), true)
    };
    let cgroup = ["--backend", "cgroup"];
    let mut daemon = Daemon::system(&cgroup);
    let spin = ["sh", "-c", SPIN];
    let (first, second) = (Program::start(&spin), Program::start(&spin));
    let told = attach(&daemon, &first, &["--name", "first", "--cpus", "1"]);
    assert!(told.contains("CPUs 1"), "{told}");
    attach(&daemon, &second, &["--name", "second", "--limit", "cpu:150%,memory:512M"]);
    check_success(&mut daemon.divvy(&["set", "root/second", "--cpus", "0"]));
    assert_eq!([first.cpus(), second.cpus()], ["1", "0"]);
    let done = output(&mut daemon.divvy(&["set", "root/first", "--cpus", "5"]));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.code() == Some(2) && said.contains("divvyd does not divide CPU 5"), "{said}");
    // What the market refuses is taken back whole: the other has all that can be reserved.
    check_success(&mut daemon.divvy(&["set", "root/second", "--reserve", "cpu:90%"]));
    let done = output(&mut daemon.divvy(&["set", "root/first", "--cpus", "0", "--reserve", "cpu:20%"]));
    assert!(!done.status.success());
    assert_eq!(first.cpus(), "1");
    check_success(&mut daemon.divvy(&["set", "root/second", "--reserve", "cpu:none"]));
    let listed = |daemon: &Daemon| {
        let told = check_success(&mut daemon.divvy(&["ls", "--json"]));
        let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
        [0, 1].map(|i| told["clients"][i]["bounds"]["cpus"].as_str().unwrap_or("none").to_owned())
    };
    assert_eq!(listed(&daemon), ["1", "0"]);
    daemon.stop();
    assert_eq!([first.cpus(), second.cpus()], ["0-1", "0-1"]);
    // Told again, and after a crash, where nobody said goodbye.
    let mut daemon = again(&cgroup);
    let kept =
        || eventually("them to be kept", || ([first.cpus(), second.cpus()] == ["1", "0"]).then_some(()));
    kept();
    assert_eq!(listed(&daemon), ["1", "0"]);
    daemon.child.kill().expect("ours");
    daemon.child.wait().expect("our child");
    let mut daemon = again(&cgroup);
    kept();
    daemon.stop();
    // By signals nobody is kept to CPUs: divided all the same, and said.
    let mut daemon = again(&["--backend", "signals"]);
    eventually("the warning", || {
        let log = fs::read_to_string("/tmp/divvyd.log").expect("readable");
        (log.matches("CPUs are not kept").count() == 2).then_some(())
    });
    // It puts whoever runs on one CPU or the other, and gives them back.
    daemon.stop();
    assert_eq!([first.cpus(), second.cpus()], ["0-1", "0-1"]);
    // All of them are all of them after a restart as well.
    let mut daemon = again(&cgroup);
    kept();
    check_success(&mut daemon.divvy(&["set", "root/first", "--cpus", "all"]));
    daemon.stop();
    let mut daemon = again(&cgroup);
    eventually("the other", || ([first.cpus(), second.cpus()] == ["0-1", "0"]).then_some(()));
    assert_eq!(listed(&daemon), ["none", "0"]);
    daemon.stop();
}

/// By signals all CPUs are divided together, by the system's divvyd as by a user's.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn where_nobody_is_kept_to_cpus_it_is_refused() {
    check_inside();
    let program = Program::start(&["sh", "-c", SPIN]);
    let tree = format!("tree:{}", program.pid());
    let check_refused = |mut daemon: Daemon, why: &str| {
        let done = output(&mut daemon.divvy(&["attach", &tree, "--cpus", "1"]));
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.code() == Some(2) && said.contains(why), "{}: {said}", done.status);
        assert_eq!(program.cpus(), "0-1");
        daemon.stop();
    };
    let by_signals = "divvyd divides the CPUs 0-1 together, by signals, and keeps nobody to some";
    check_refused(Daemon::user("own", &[]), by_signals);
    check_refused(Daemon::system(&["--backend", "signals"]), by_signals);
}
