//! Disks, in real time: where time is counted in instructions, a disk's answer comes when the clock has gone on already.

mod page;
mod rights;

use divvy_linux::cgroup::room::{Cgroup, DeviceIoMax, IO_MAX, IO_STAT, IoMax, Limit};
use divvy_linux::clock;

use super::backend::{Daemon, check_success, dirs, eventually, trees};
use super::room::{MAX_BOUND_ERROR, check_near};
use super::{Child, Group, scratch_disk, set_scheduler, sleep};

const MIB: u64 = 1 << 20;
/// Of a limit that suspending keeps: no more than this, and where the machine has little time, much less.
const GATE: std::ops::Range<f64> = 0.6..1.1;
/// Over so many seconds: a host that is busy delays a look by 100 ms now and then, in which the disk gives nearly 1 MiB; that is paid for,
/// but the last one after the end.
const GATE_S: u64 = 20;
/// The lower of a reader's two limits, where the machine reads several times as much.
const LOW: u64 = 2 * MIB;

/// Two limits for a reader that reads `free` bytes a second without one: on a machine that has little time they are less than on others.
fn limits(free: f64) -> [u64; 2] {
    println!("{free:.0} bytes a second without a limit");
    let low = (free / 8.0 / 1024.0) as u64 * 1024;
    [low.min(LOW), 2 * low.min(LOW)]
}

#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn a_disk_keeps_to_its_bound() {
    let (path, disk) = scratch_disk();
    let group = Group::new("disk");
    let rate = 2 * MIB;
    let max = IoMax { wbps: Limit::At(rate), ..IoMax::NONE };
    group.cgroup.set(&IO_MAX, &DeviceIoMax(disk, max)).expect("there is the disk");
    assert_eq!(group.cgroup.get(&IO_MAX).expect("readable")[&disk], max);
    let wbytes =
        || group.cgroup.get(&IO_STAT).expect("readable").get(&disk).copied().unwrap_or_default().wbytes;
    let line =
        format!("while :; do dd if=/dev/zero of={path} bs=64k count=64 oflag=direct 2>/dev/null; done");
    let _child = Child::start(&group.cgroup, &line);
    sleep(1_000);
    let (from, began) = (wbytes(), clock::now());
    sleep(6_000);
    let (bytes, time) = (wbytes() - from, clock::now().since(began));
    check_near("bytes a second", bytes as f64 / time.as_secs_f64(), rate as f64, MAX_BOUND_ERROR);
}

/// `told`: what divvyd says of the client now.
#[track_caller]
fn check_gate(got: f64, limit: u64, told: &serde_json::Value) {
    println!("{got:.0} bytes a second for {limit}: {:.3}", got / limit as f64);
    assert!(GATE.contains(&(got / limit as f64)), "{got} bytes a second for {limit}: {told}");
}

/// Where clients are held by signals the kernel keeps no limit of disks: whoever has had too many bytes is suspended meanwhile. The
/// program makes a child for each MiB, which may be over before anybody has seen it.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn signals_keep_a_limit_of_a_disk_too() {
    let (path, disk) = scratch_disk();
    set_scheduler(disk, "none");
    let line = format!(
        "i=0; while :; do dd if={path} of=/dev/null bs=64k count=16 skip=$((i % 64 * 16)) iflag=direct 2>/dev/null; i=$((i + 1)); done"
    );
    let name = std::fs::canonicalize(&path).expect("the disk");
    let stat = format!("/sys/class/block/{}/stat", name.file_name().expect("a name").to_string_lossy());
    let rate = |seconds: u64| {
        // Sectors read, of 512 bytes.
        let read = || -> u64 {
            let text = std::fs::read_to_string(&stat).expect("readable");
            text.split_whitespace().nth(2).and_then(|n| n.parse().ok()).expect("a number")
        };
        let (from, began) = (read(), clock::now());
        sleep(seconds * 1_000);
        ((read() - from) * 512) as f64 / clock::now().since(began).as_secs_f64()
    };
    let group = Group::new("free");
    let free = Child::start(&group.cgroup, &line);
    sleep(500);
    let [low, high] = limits(rate(3));
    drop((free, group));
    let mut daemon = Daemon::user("own", &[]);
    let limit = format!("disk:{low}");
    let mut run = daemon.divvy(&["run", "--name", "reader", "--limit", &limit, "--", "sh", "-c", &line]);
    let mut run = run.stdin(std::process::Stdio::null()).spawn().expect("divvy");
    let ls = |daemon: &Daemon| -> serde_json::Value {
        serde_json::from_str(&check_success(&mut daemon.divvy(&["ls", "--json"]))).expect("JSON")
    };
    let row = |told: &serde_json::Value| told["clients"].get(0).cloned();
    eventually("the client", || row(&ls(&daemon)));
    sleep(2_000);
    check_gate(rate(GATE_S), low, &ls(&daemon));
    check_success(&mut daemon.divvy(&["set", "reader", "--limit", &format!("disk:{high}")]));
    sleep(2_000);
    check_gate(rate(GATE_S), high, &ls(&daemon));
    // A pause holds as it does, and ends as it does.
    check_success(&mut daemon.divvy(&["pause", "reader"]));
    sleep(500);
    assert!(rate(2) < 1.0, "it is paused");
    check_success(&mut daemon.divvy(&["resume", "reader"]));
    check_success(&mut daemon.divvy(&["set", "reader", "--limit", "disk:none"]));
    sleep(500);
    eventually("it to have more than that", || (rate(2) > 1.25 * high as f64).then_some(()));
    check_success(&mut daemon.divvy(&["detach", "reader"]));
    run.kill().expect("ours");
    run.wait().expect("our child");
    daemon.stop();
}

/// A client's limit of a disk is kept, reading and writing, changed and taken back.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn a_clients_limit_of_a_disk_is_kept() {
    let (path, disk) = scratch_disk();
    let read =
        |group: &Cgroup| group.get(&IO_STAT).expect("readable").get(&disk).map_or(0, |stat| stat.rbytes);
    let rate = |group: &Cgroup, seconds: u64| {
        let (from, began) = (read(group), clock::now());
        sleep(seconds * 1_000);
        (read(group) - from) as f64 / clock::now().since(began).as_secs_f64()
    };
    let line =
        format!("while :; do dd if={path} of=/dev/null bs=64k count=64 iflag=direct 2>/dev/null; done");
    let group = Group::new("free");
    let free = Child::start(&group.cgroup, &line);
    sleep(500);
    let [low, high] = limits(rate(&group.cgroup, 3));
    drop((free, group));
    let mut daemon = Daemon::user("own", &["--backend", "cgroup"]);
    let limit = format!("disk:{low}");
    let mut run = daemon.divvy(&["run", "--name", "reader", "--limit", &limit, "--", "sh", "-c", &line]);
    let mut run = run.stdin(std::process::Stdio::null()).spawn().expect("divvy");
    let leaf = eventually("the client", || trees().iter().flat_map(|tree| dirs(tree, "c")).next());
    let leaf = Cgroup::open(&leaf).expect("there");
    let max = |rate| IoMax { rbps: rate, wbps: rate, ..IoMax::NONE };
    eventually("its limit", || {
        (leaf.get(&IO_MAX).expect("readable").get(&disk) == Some(&max(Limit::At(low)))).then_some(())
    });
    sleep(1_000);
    check_near("bytes a second", rate(&leaf, 6), low as f64, MAX_BOUND_ERROR);
    check_success(&mut daemon.divvy(&["set", "reader", "--limit", &format!("disk:{high}")]));
    sleep(1_000);
    check_near("bytes a second", rate(&leaf, 6), high as f64, MAX_BOUND_ERROR);
    check_success(&mut daemon.divvy(&["set", "reader", "--limit", "disk:none"]));
    assert_eq!(leaf.get(&IO_MAX).expect("readable").get(&disk), None);
    let free = rate(&leaf, 2);
    assert!(free > (2 * high) as f64, "{free} bytes a second without a limit");
    let pid = divvy_linux::Pid::from_child(&run);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("ours");
    let _ = run.wait();
    daemon.stop();
}
