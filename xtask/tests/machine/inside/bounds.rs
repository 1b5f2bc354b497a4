//! Reservation, share and limit of one client together, as the kernel keeps them.

use std::path::Path;
use std::process::Stdio;

use divvy_linux::cgroup::room::{Cgroup, Limit, MEMORY_LOW, MEMORY_MAX, MEMORY_MIN};

use super::backend::{Daemon, check_parts, check_success, dirs, eventually, leaves, output, used};
use super::{SPIN, check_inside};

const MIB: u64 = 1 << 20;

/// A client of `divvy run`, ended with the test.
struct Run(std::process::Child);

impl Run {
    fn start(daemon: &Daemon, options: &[&str], number: usize) -> Self {
        let words = ["run"].iter().chain(options).chain(&["--", "sh", "-c", SPIN]).copied();
        let mut run = daemon.divvy(&words.collect::<Vec<_>>());
        let run = run.stdin(Stdio::null()).spawn().expect("divvy");
        eventually("the client", || (leaves_of_own().len() == number).then_some(()));
        Self(run)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let pid = divvy_linux::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

fn leaves_of_own() -> Vec<Cgroup> {
    let trees = dirs(super::ROOT.as_ref(), "divvy-");
    let all = trees.iter().flat_map(|tree| dirs(tree, "c"));
    all.map(|dir| Cgroup::open(&dir).expect("there")).collect()
}

#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn reservation_share_and_limit_hold_together() {
    check_inside();
    let mut daemon = Daemon::user("own", &["--backend", "cgroup"]);
    // 40 % reserved, and of the other 60 % by shares 1:3 a quarter: 55 %. The limits are not reached.
    let sure = ["--share", "1", "--reserve", "cpu:40%,memory:48M", "--limit", "cpu:90%,memory:64M"];
    let first = Run::start(&daemon, &[&["--name", "first"], &sure[..]].concat(), 1);
    let second = Run::start(&daemon, &["--name", "second", "--share", "3"], 2);
    let both = leaves();
    super::sleep(500);
    check_parts(&used(&both), &[55, 45]);
    let at = |leaf: &Cgroup| [MEMORY_MIN, MEMORY_LOW, MEMORY_MAX].map(|file| leaf.get(&file).expect("there"));
    let of = |mib: u64| Limit::At(mib * MIB);
    assert_eq!(at(&both[0]), [of(48), of(48), of(64)]);
    assert_eq!(at(&both[1]), [of(0), of(0), Limit::Max]);
    let told = check_success(&mut daemon.divvy(&[
        "set",
        "second",
        "--limit",
        "memory:100M",
        "--reserve",
        "cpu:10%",
    ]));
    assert!(told.contains("share 3, reserved cpu 10%, limit of memory 100M"), "{told}");
    // 40 % and a quarter of 50 %, 10 % and three quarters.
    super::sleep(500);
    check_parts(&used(&both), &[525, 475]);
    // What is shown is what was asked for.
    let told = check_success(&mut daemon.divvy(&["ls", "--json"]));
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(told["clients"][0]["share"], 1);
    assert_eq!(told["clients"][0]["bounds"]["reserve_cpu_ppm"], 400_000);
    let effective = told["clients"][0]["effective_fraction"].as_f64().expect("a number");
    assert!((effective - 0.525).abs() < 0.001, "{effective}");
    // Two that compute on one CPU: one of them always waits.
    let wide = check_success(&mut daemon.divvy(&["ls", "--wide"]));
    let waited =
        wide.lines().find_map(|line| line.strip_prefix("of the last 10 s some client waited, for cpu "));
    let waited: f64 = waited.and_then(|text| text.split(' ').next()?.parse().ok()).expect(&wide);
    assert!(waited > 50.0, "{wide}");
    // Too much promised: nothing changes.
    let all = || both.iter().map(at).collect::<Vec<_>>();
    let before = all();
    for (options, code, why) in [
        (
            &["--reserve", "cpu:90%"][..],
            9,
            "90 % of the CPUs cannot be reserved: 40 % are already, and 95 % can be",
        ),
        (&["--reserve", "memory:100G"], 2, "is more than the limit of"),
        // 48 MiB are the first one's.
        (
            &["--limit", "memory:none", "--reserve", "memory:100G"],
            9,
            "102400 MiB of memory cannot be reserved: 48 MiB are already, and ",
        ),
        (&["--limit", "cpu:5%"], 2, "a reservation of 10 % of 1 CPUs is more than the limit"),
    ] {
        let done = output(daemon.divvy(&["set", "second"]).args(options));
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(
            done.status.code() == Some(code) && said.contains(why),
            "{options:?}: {}: {said}",
            done.status
        );
        assert_eq!(all(), before, "{options:?}");
    }
    check_success(&mut daemon.divvy(&["set", "second", "--limit", "memory:none", "--reserve", "cpu:none"]));
    check_success(&mut daemon.divvy(&[
        "set",
        "first",
        "--limit",
        "none",
        "--reserve",
        "cpu:none,memory:none",
    ]));
    eventually("it all to be taken back", || (at(&both[0])[0] == of(0)).then_some(()));
    assert_eq!((at(&both[0])[2], at(&both[1])[2]), (of(64), Limit::Max));
    super::sleep(500);
    check_parts(&used(&both), &[1, 3]);
    drop((first, second));
    daemon.stop();
}

/// A program that takes more than its limit of memory is killed by the kernel, and nobody else is.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn a_limit_of_memory_is_the_programs_own_end() {
    check_inside();
    let mut daemon = Daemon::user("own", &["--backend", "cgroup"]);
    let task = ["xtask", "isolation-task", "memory", "/tmp/count", "67108864", "1"];
    let run = ["run", "--limit", "memory:16M", "--"];
    let done = output(&mut daemon.divvy(&[&run[..], &task].concat()));
    use std::os::unix::process::ExitStatusExt as _;
    assert_eq!(done.status.signal(), Some(9), "{}: {}", done.status, String::from_utf8_lossy(&done.stderr));
    let pages = std::fs::read("/tmp/count").expect("it counted");
    let pages = u64::from_ne_bytes(*pages.first_chunk().expect("eight bytes"));
    assert!((1_000..5_000).contains(&pages), "{pages} pages of 4096 that are 16 MiB");
    assert!(Path::new("/run/own/api.sock").exists());
    daemon.stop();
}

#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn where_nothing_keeps_bounds_they_are_refused() {
    check_inside();
    let mut daemon = Daemon::user("own", &[]);
    for options in [["--reserve", "cpu:20%"], ["--limit", "memory:1G"]] {
        let done = output(daemon.divvy(&["run"]).args(options).args(["--", "true"]));
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{said}");
        assert!(
            said.contains("by signals only shares and limits of CPU time and of disks are kept"),
            "{said}"
        );
        assert!(said.contains("start divvyd with --backend cgroup"), "{said}");
    }
    check_success(&mut daemon.divvy(&["run", "--limit", "cpu:50%", "--", "true"]));
    daemon.stop();
}
