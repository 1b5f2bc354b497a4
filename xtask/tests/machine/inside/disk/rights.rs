//! `divvyd --system --backend cgroup` gives effect to rights to memory and disks; real programs press on both.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use divvy_linux::Pid;
use divvy_linux::cgroup::room::{
    Cgroup, CostModel, CostQos, CostSettings, Device, IO_BFQ_WEIGHT, IO_COST_MODEL, IO_COST_QOS, IO_STAT,
    IO_WEIGHT, Limit, MEMORY_CURRENT, MEMORY_LOW, MEMORY_MAX, MEMORY_MIN,
};

use super::super::backend::{Daemon, check_success, dirs, eventually, trees};
use super::super::{Group, ROOT, scratch_disk, set_scheduler, sleep};
use super::MIB;

/// What is guaranteed is never undercut by more than this fraction of it.
const MAX_UNDERCUT: f64 = 0.02;
/// Parts of a disk come out within this fraction, by iocost.
const MAX_DISK_ERROR: f64 = 0.05;
const POLICY: &str = "/etc/divvy/divvyd.toml";
const TASK: [&str; 2] = ["xtask", "isolation-task"];
const ALICE: u32 = 1001;
const BOB: u32 = 1002;

/// The system's divvyd in a cgroup of its own, with a policy.
pub(super) fn divvyd(work: &Group, policy: &str) -> Daemon {
    fs::create_dir_all("/etc/divvy").expect("root may");
    fs::write(POLICY, policy).expect("root may");
    let _ = fs::remove_dir_all("/var/lib/divvy");
    let line = format!("echo 0 >{}/cgroup.procs; exec divvyd --system \"$@\"", work.cgroup.path().display());
    let mut shell = Command::new("sh");
    shell.args(["-c", &line, "divvyd"]);
    Daemon::start(shell, &["--backend", "cgroup"], PathBuf::from("/run/divvy"), true)
}

fn divvyd_command() -> Command {
    let mut command = Command::new("divvyd");
    command.arg("--system");
    command
}

/// A task of the paper that a user runs as a client; ended with the test.
struct Client {
    run: std::process::Child,
    leaf: Cgroup,
    /// That around all leaves of its user.
    user: Cgroup,
}

impl Client {
    /// It is the client with the next id.
    fn run(daemon: &Daemon, tree: &Path, number: usize, uid: u32, task: &[&str]) -> Self {
        let name = format!("task{number}");
        let words = ["run", "--name", &name, "--"].into_iter().chain(TASK);
        let mut run = daemon.divvy(&words.collect::<Vec<_>>());
        let count = format!("/tmp/count{number}");
        run.arg(task[0]).arg(&count).args(&task[1..]).uid(uid).gid(uid).stdin(Stdio::null());
        let _ = fs::remove_file(&count);
        let run = run.spawn().expect("divvy");
        let dir = tree.join(format!("u{uid}/c{number}"));
        eventually("the client", || {
            Some(()).filter(|()| fs::read(&count).is_ok_and(|n| n.iter().any(|&b| b > 0)))
        });
        let user = Cgroup::open(&tree.join(format!("u{uid}"))).expect("its user's cgroup");
        Self { run, leaf: Cgroup::open(&dir).expect("its cgroup"), user }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It asks the command to end, wherever that is by now.
        let _ = rustix::process::kill_process(Pid::from_child(&self.run), rustix::process::Signal::TERM);
        let _ = self.run.wait();
    }
}

pub(super) fn tree_in(dir: &Path) -> PathBuf {
    let trees = dirs(dir, "divvy-");
    assert_eq!(trees.len(), 1, "{trees:?}");
    trees.into_iter().next().expect("one")
}

pub(super) fn at(limit: Limit) -> u64 {
    match limit {
        Limit::At(bytes) => bytes,
        Limit::Max => panic!("no bound"),
    }
}

/// The machine's disk as swap, for a while.
struct Swap(String);

impl Swap {
    fn on() -> Self {
        let (path, disk) = scratch_disk();
        set_scheduler(disk, "none");
        check_success(Command::new("mkswap").arg(&path));
        check_success(Command::new("swapon").arg(&path));
        // What is read ahead is charged to whoever was next to it, and is nobody's resident memory.
        fs::write("/proc/sys/vm/page-cluster", "0").expect("root may");
        Self(path)
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        let _ = Command::new("swapoff").arg(&self.0).status();
    }
}

/// Three tasks of 64 MiB each in 96 MiB. One has a hard share of the memory, which it keeps.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn a_hard_share_of_the_memory_is_kept_under_pressure() {
    let work = Group::new("work");
    work.cgroup.set(&MEMORY_MAX, &Limit::At(96 * MIB)).expect("in range");
    let _swap = Swap::on();
    let mut daemon = divvyd(&work, "");
    let tree = tree_in(work.cgroup.path());
    let size = (64 * MIB).to_string();
    let clients: Vec<Client> = ["1", "2", "3"]
        .iter()
        .enumerate()
        .map(|(i, seed)| Client::run(&daemon, &tree, i, 0, &["memory", &size, seed]))
        .collect();
    let leaf = |i: usize| &clients[i].leaf;
    let min = |i: usize| at(leaf(i).get(&MEMORY_MIN).expect("there"));
    let low = |i: usize| at(leaf(i).get(&MEMORY_LOW).expect("there"));
    // By soft tickets all three share what is not kept back: 32 MiB are.
    let all = 64 * MIB;
    eventually("what they share", || (low(0) == all / 3 / 4096 * 4096).then_some(()));
    assert_eq!((0..3).map(min).sum::<u64>(), 0);
    let mut reserve = daemon.divvy(&["reserve", "root/task0", "--from", "base", "500"]);
    check_success(reserve.args(["--resource", "memory"]));
    // And nothing else.
    let mut unfund = daemon.divvy(&["unfund", "root/task0", "--from", "root"]);
    check_success(unfund.args(["--resource", "memory"]));
    let half = all / 2;
    // They are written one after another.
    let all_of = || ([0, 1, 2].map(min), [0, 1, 2].map(low));
    let due = ([half, 0, 0], [half, half / 2, half / 2]);
    eventually("what is reserved", || (all_of() == due).then_some(()));
    let root = Cgroup::open(&tree).expect("there");
    assert_eq!(at(root.get(&MEMORY_MIN).expect("there")), half, "the tree protects its leaves");
    let current = |i: usize| leaf(i).get(&MEMORY_CURRENT).expect("there");
    eventually("it to have its share", || (current(0) >= half).then_some(()));
    let pids = leaf(0).processes().expect("there").into_iter();
    let parts = dirs(leaf(0).path(), "p").into_iter();
    let pids: Vec<_> = pids
        .chain(parts.flat_map(|part| Cgroup::open(&part).and_then(|c| c.processes()).expect("there")))
        .collect();
    let resident = || {
        let status = |pid| fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let kib = |text: String| {
            let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).map(str::trim)?;
            line.strip_suffix(" kB")?.parse::<u64>().ok()
        };
        pids.iter().filter_map(|pid| kib(status(pid))).sum::<u64>() * 1024
    };
    let (looks, mut least, mut residents) = (50, u64::MAX, 0);
    for _ in 0..looks {
        sleep(100);
        least = least.min(current(0));
        residents += resident();
    }
    let mean_resident = residents / looks;
    println!("guaranteed {half}, charged at least {least}, resident on average {mean_resident}");
    let pressed: u64 = fs::read_to_string(work.cgroup.path().join("memory.stat"))
        .expect("readable")
        .lines()
        .find_map(|line| line.strip_prefix("pgsteal ")?.parse().ok())
        .expect("a number");
    assert!(pressed > 1000, "there was no pressure: {pressed} pages taken");
    // What the kernel protects is what is charged. Of that, what comes back from swap is not mapped yet at every look.
    for bytes in [least, mean_resident] {
        let kept = bytes as f64 / half as f64;
        assert!(kept >= 1.0 - MAX_UNDERCUT, "{bytes} of {half}: {kept}");
    }
    drop(clients);
    daemon.stop();
    assert!(dirs(work.cgroup.path(), "divvy-").is_empty());
    assert_eq!(work.cgroup.enabled().expect("readable"), []);
}

/// iocost on the disk, by a model that is slower than the disk is.
pub(super) fn put_iocost_on(disk: Device) -> Cgroup {
    let root = Cgroup::open(ROOT.as_ref()).expect("mounted");
    root.set(&IO_COST_MODEL, &CostSettings::Model(disk, CostModel::uniform(16 * MIB, 400)))
        .expect("root may");
    // It looks at what was used every 100 ms: long against what an operation of the model takes.
    root.set(&IO_COST_QOS, &CostSettings::Qos(disk, CostQos::as_modelled(50_000))).expect("root may");
    root
}

/// Bytes that each of two read of the disk in a while.
fn read(clients: &[Client], disk: Device, ms: u64) -> [u64; 2] {
    let look = || {
        [0, 1].map(|i: usize| {
            clients[i].leaf.get(&IO_STAT).expect("there").get(&disk).map_or(0, |stat| stat.rbytes)
        })
    };
    let from = look();
    sleep(ms);
    let to = look();
    [to[0] - from[0], to[1] - from[1]]
}

/// Two users have a disk 1:4, then 1:1 for as long as one trades CPU for it.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn a_disk_is_divided_by_tickets_and_exchanges() {
    let (path, disk) = scratch_disk();
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).expect("root may");
    set_scheduler(disk, "none");
    let root = put_iocost_on(disk);
    let work = Group::new("work");
    let mut daemon = divvyd(&work, "[users.alice]\ndisk = 1000\n[users.bob]\ndisk = 4000\n");
    let tree = tree_in(work.cgroup.path());
    let size = (64 * MIB).to_string();
    let run =
        |i: usize, uid, offset: &str| Client::run(&daemon, &tree, i, uid, &["iohog", &path, offset, &size]);
    let mut clients = vec![run(0, ALICE, "0"), run(1, BOB, &size)];
    let weights =
        |clients: &[Client]| [0, 1].map(|i: usize| clients[i].user.get(&IO_WEIGHT).expect("there").default);
    eventually("weights 1:4", || (weights(&clients) == [2_500, 10_000]).then_some(()));
    let bfq = [0, 1].map(|i: usize| clients[i].user.get(&IO_BFQ_WEIGHT).expect("there").default);
    assert_eq!(bfq, [250, 1_000]);
    let doctor = check_success(&mut daemon.divvy(&["doctor"]));
    let name = path.trim_start_matches("/dev/");
    assert!(doctor.contains(&format!("by io.weight on {name}")), "{doctor}");
    assert!(doctor.contains("by memory.min, memory.low"), "{doctor}");
    sleep(1_000);
    let [a, b] = read(&clients, disk, 10_000);
    let ratio = b as f64 / a as f64;
    println!("1:4 by iocost: {a} and {b} bytes, 1:{ratio:.3}");
    assert!((ratio / 4.0 - 1.0).abs() <= MAX_DISK_ERROR, "1:{ratio}");
    // alice gives 500 cpu for 1500 disk: 2500 each.
    let as_user = |uid: u32, words: &[&str]| {
        let mut divvy = daemon.divvy(words);
        check_success(divvy.uid(uid).gid(uid))
    };
    as_user(ALICE, &["exchange", "offer", "--give", "cpu:500", "--want", "disk:1500"]);
    as_user(BOB, &["exchange", "offer", "--give", "disk:1500", "--want", "cpu:500"]);
    eventually("weights 1:1", || (weights(&clients) == [10_000, 10_000]).then_some(()));
    sleep(1_000);
    let [a, b] = read(&clients, disk, 6_000);
    println!("1:1 by iocost: {a} and {b} bytes");
    assert!((b as f64 / a as f64 - 1.0).abs() <= MAX_DISK_ERROR, "{a} {b}");
    as_user(BOB, &["exchange", "cancel", "0"]);
    eventually("weights 1:4 again", || (weights(&clients) == [2_500, 10_000]).then_some(()));
    // A user's second task has half of the user's part, and gives it back when it ends.
    clients.push(run(2, BOB, "0"));
    eventually("weights 1:4, and of these 1:1", || {
        let of = [1, 2].map(|i: usize| clients[i].leaf.get(&IO_WEIGHT).expect("there").default);
        (weights(&clients) == [2_500, 10_000] && of == [10_000, 10_000]).then_some(())
    });
    clients.pop();
    eventually("weights 1:4 once more", || (weights(&clients) == [2_500, 10_000]).then_some(()));
    root.set(&IO_COST_QOS, &CostSettings::Qos(disk, CostQos::default())).expect("root may");
    // BFQ is exact on a disk that it knows from two minutes of use (docs/results/isolation.md); here only that it knows who is to have
    // more. Two readers with one request each do not keep this disk busy, and are served alike unless it waits for the next request of
    // the one that is due more.
    set_scheduler(disk, "bfq");
    for (file, value) in [("strict_guarantees", "1"), ("low_latency", "0")] {
        fs::write(format!("/sys/dev/block/{disk}/queue/iosched/{file}"), value).expect("root may");
    }
    sleep(1_000);
    let [a, b] = read(&clients, disk, 10_000);
    println!("1:4 by BFQ: {a} and {b} bytes, 1:{:.3}", b as f64 / a as f64);
    assert!(b > a, "{a} {b}");
    drop(clients);
    daemon.stop();
    set_scheduler(disk, "none");
}

/// Nothing is left of what was put on and written: when divvyd ends, and when the next one finds what a dead one left.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn nothing_is_left_of_rights_after_a_crash() {
    let work = Group::new("work");
    work.cgroup.set(&MEMORY_MAX, &Limit::At(256 * MIB)).expect("in range");
    let mut daemon = divvyd(&work, "");
    let tree = tree_in(work.cgroup.path());
    let client = Client::run(&daemon, &tree, 0, ALICE, &["memory", &MIB.to_string(), "1"]);
    let low = || at(client.leaf.get(&MEMORY_LOW).expect("there"));
    eventually("its memory", || (low() > 200 * MIB).then_some(()));
    assert_eq!(work.cgroup.enabled().expect("readable").len(), 3);
    daemon.kill_with_its_guardian();
    sleep(500);
    assert!(tree.exists(), "nobody is left to remove it");
    // Not in there: as long as controllers are on for its children, nobody can be.
    let mut next =
        Daemon::start(divvyd_command(), &["--backend", "cgroup"], PathBuf::from("/run/divvy"), true);
    assert!(!tree.exists());
    assert_eq!(work.cgroup.enabled().expect("readable"), []);
    let tree = tree_in(ROOT.as_ref());
    eventually("it to be divided again", || {
        let user = dirs(&tree, "u").into_iter().next()?;
        let leaf = dirs(&user, "c").into_iter().next()?;
        (at(Cgroup::open(&leaf).ok()?.get(&MEMORY_LOW).ok()?) > 200 * MIB).then_some(())
    });
    next.stop();
    assert!(trees().is_empty());
    drop(client);
}

/// Without the controllers CPU time is divided all the same, and what is not is told.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn what_is_missing_is_told() {
    let root = Path::new(ROOT);
    fs::write(root.join("cgroup.subtree_control"), "-memory -io").expect("root may");
    let work = Group::new("work");
    let mut daemon = divvyd(&work, "");
    let doctor = check_success(&mut daemon.divvy(&["doctor"]));
    for controller in ["memory", "io"] {
        let said = format!("not enforced: /sys/fs/cgroup/work has no {controller} controller: put it on");
        assert!(doctor.contains(&said), "{doctor}");
    }
    let log = fs::read_to_string("/tmp/divvyd.log").expect("a log");
    let begun = log.lines().find(|line| line.contains("serves")).expect("it says that it serves");
    assert!(begun.contains("has no memory controller") && begun.contains("has no io controller"), "{begun}");
    daemon.stop();
    fs::write(root.join("cgroup.subtree_control"), "+memory +io").expect("root may");
}
