//! What clients and others do to the cgroups of a divvyd underneath it: it is taken apart all the same, and mended.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use divvy_linux::cgroup::room::{
    CPU_MAX, CPU_WEIGHT, Cgroup, IO_MAX, IoMax, Limit, MEMORY_MAX, MEMORY_MIN, PerDevice,
};

use super::backend::{Daemon, cgroup_of, check_parts, check_success, dirs, eventually, output, trees, used};
use super::{Child, Group, ROOT, SPIN, scratch_disk, sleep};

const MIB: u64 = 1 << 20;

fn attach(daemon: &Daemon, child: &Child, options: &[&str]) {
    let tree = format!("tree:{}", child.pid);
    check_success(&mut daemon.divvy(&[&["attach"], options, &[tree.as_str()]].concat()));
}

/// The tree's one leaf of this number.
fn leaf(number: usize) -> PathBuf {
    let all = trees();
    assert_eq!(all.len(), 1, "{all:?}");
    all.first().expect("one").join(format!("c{number}"))
}

/// Makes in a client's cgroup what is a user's to make there, and puts the client into some of it.
fn make_in(part: &Path, which: &str, child: &Child) {
    let threads = |dir: &Path| {
        fs::create_dir(dir).expect("root may");
        fs::write(dir.join("cgroup.type"), "threaded").expect("the kernel has it");
    };
    match which {
        "a cgroup of threads" => threads(&part.join("t")),
        "a thread in one" => {
            threads(&part.join("t"));
            fs::write(part.join("t/cgroup.threads"), child.pid.to_string()).expect("root may");
        }
        "forty of them" => {
            let deepest = (0..40).fold(part.to_owned(), |dir, _| dir.join("n"));
            fs::create_dir_all(&deepest).expect("root may");
            fs::write(deepest.join("cgroup.procs"), child.pid.to_string()).expect("root may");
        }
        other => panic!("{other}"),
    }
}

#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn what_clients_make_in_their_cgroups_goes_with_them() {
    let work = Group::new("work");
    for which in ["a cgroup of threads", "a thread in one", "forty of them"] {
        for backend in ["cgroup", "freezer"] {
            for end in ["detach", "the guardian", "a rescue"] {
                let child = Child::start(&work.cgroup, SPIN);
                let mut daemon = Daemon::user("own", &["--backend", backend]);
                attach(&daemon, &child, &["--name", "it"]);
                let dir = leaf(0);
                make_in(&dir.join("p0"), which, &child);
                match end {
                    "detach" => {
                        check_success(&mut daemon.divvy(&["detach", "it"]));
                        assert!(!dir.exists(), "{which}, {backend}, {end}");
                        daemon.stop();
                    }
                    "the guardian" => {
                        daemon.child.kill().expect("ours");
                        daemon.child.wait().expect("our child");
                    }
                    _ => {
                        daemon.kill_with_its_guardian();
                        check_success(&mut daemon.divvy(&["rescue"]));
                    }
                }
                eventually(&format!("nothing to be left: {which}, {backend}, {end}"), || {
                    trees().is_empty().then_some(())
                });
                assert_eq!(cgroup_of(child.pid), "0::/work", "{which}, {backend}, {end}");
            }
        }
    }
}

/// Two clients of a divvyd, 1:3, of which the first has limits and a reservation.
struct Two {
    children: [Child; 2],
    daemon: Daemon,
    root: PathBuf,
    /// The first one's limit of CPU time, us in each 100 ms.
    quota: u64,
    _work: Group,
}

impl Two {
    fn new() -> Self {
        let work = Group::new("work");
        let children = [(); 2].map(|()| Child::start(&work.cgroup, SPIN));
        let daemon = Daemon::user("own", &["--backend", "cgroup"]);
        let bounds = ["--limit", "memory:50M,cpu:90%,disk:5M", "--reserve", "memory:8M"];
        attach(&daemon, &children[0], &[&["-s", "1", "--name", "a"], &bounds[..]].concat());
        attach(&daemon, &children[1], &["-s", "3", "--name", "b"]);
        let root = trees().pop_first().expect("one");
        let two = Self { children, daemon, root, quota: 90_000, _work: work };
        two.check("both to be as asked for");
        two
    }

    fn dir(&self, number: usize) -> PathBuf {
        self.root.join(format!("c{number}"))
    }

    fn used(&self) -> Vec<u64> {
        used(&[0, 1].map(|number| Cgroup::open(&self.dir(number)).expect("there")))
    }

    /// Whether a client is in its cgroup, and that has what was asked for.
    fn is_whole(&self, number: usize) -> bool {
        let Ok(leaf) = Cgroup::open(&self.dir(number)) else { return false };
        let is_first = number == 0;
        let at = |bytes: u64| if is_first { Limit::At(bytes) } else { Limit::Max };
        let (rate, min) = (Limit::At(5 * MIB), Limit::At(if is_first { 8 * MIB } else { 0 }));
        let throttled = |max: PerDevice<IoMax>| {
            max.is_empty() != is_first && max.values().all(|max| (max.rbps, max.wbps) == (rate, rate))
        };
        leaf.get(&MEMORY_MAX).is_ok_and(|kept| kept == at(50 * MIB))
            && leaf.get(&IO_MAX).is_ok_and(throttled)
            && leaf.get(&MEMORY_MIN).is_ok_and(|kept| kept == min)
            && leaf.get(&CPU_WEIGHT).is_ok_and(|weight| weight != 100)
            && leaf.get(&CPU_MAX).is_ok_and(|cpu| cpu.quota == at(self.quota))
            && cgroup_of(self.children[number].pid).contains(&format!("/c{number}/"))
    }

    fn check(&self, what: &str) {
        eventually(what, || [0, 1].into_iter().all(|number| self.is_whole(number)).then_some(()));
    }

    /// Gives the first one a limit: before that is done, divvyd looks.
    fn set(&self, limit: &str) {
        check_success(&mut self.daemon.divvy(&["set", "a", "--limit", limit]));
    }

    /// Removes a client's cgroup, as whoever may write there can.
    fn remove(&self, number: usize) {
        let pid = self.children[number].pid.to_string();
        fs::write(Path::new(ROOT).join("work/cgroup.procs"), pid).expect("root may");
        for dir in dirs(&self.dir(number), "p").iter().chain([&self.dir(number)]) {
            fs::remove_dir(dir).expect("nobody is in it");
        }
    }

    /// Nothing is written again and again once all is as asked for; and it all goes with divvyd.
    fn end(mut self) {
        let told = || fs::read_to_string("/tmp/divvyd.log").expect("a log");
        // What is told of all of it is told by then.
        sleep(12_000);
        let before = told();
        assert!(before.contains("somebody has"), "{before}");
        sleep(25_000);
        assert_eq!(told(), before);
        self.daemon.kill_with_its_guardian();
        check_success(&mut self.daemon.divvy(&["rescue"]));
        assert!(trees().is_empty());
        assert!(self.children.iter().all(|child| cgroup_of(child.pid) == "0::/work"));
    }
}

#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn what_others_write_is_written_over() {
    let two = Two::new();
    let (_, disk) = scratch_disk();
    let no_rate = format!("{disk} rbps=max wbps=max");
    let values = [
        ("cpu.max", "20000 100000"),
        ("cpu.max", "max 100000"),
        ("memory.max", "104857600"),
        ("memory.max", "max"),
        ("memory.min", "0"),
        ("io.max", no_rate.as_str()),
    ];
    for (i, (file, text)) in values.into_iter().enumerate() {
        fs::write(two.dir(0).join(file), text).expect("root may");
        assert!(!two.is_whole(0), "{file}");
        // The first is seen by the look of every ten seconds.
        if i > 0 {
            two.set("memory:50M");
        }
        two.check(file);
    }
    two.end();
}

/// What is switched off, and on again, loses all that was written.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn what_is_switched_off_is_put_on_again() {
    let two = Two::new();
    let write = |text: &str| fs::write(two.root.join("cgroup.subtree_control"), text).expect("root may");
    write("-memory -cpu -io");
    write("+memory +cpu +io");
    two.check("what was lost for a moment");
    write("-memory -cpu -io");
    two.check("what was switched off");
    check_parts(&two.used(), &[1, 3]);
    // At once, where it is asked for.
    write("-memory");
    two.set("memory:50M");
    assert!(two.is_whole(0));
    let told = check_success(&mut two.daemon.divvy(&["ls", "--json"]));
    assert!(told.contains("\"limit_memory_bytes\": 52428800"), "{told}");
    two.end();
}

#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn what_is_removed_is_made_again() {
    let mut two = Two::new();
    // Another one of the same name is none that has limits.
    for again in [false, true] {
        two.remove(0);
        if again {
            fs::create_dir(two.dir(0)).expect("root may");
        }
        two.set("cpu:80%");
        two.quota = 80_000;
        two.check("the leaf to be made anew");
    }
    [0, 1].iter().for_each(|&number| two.remove(number));
    fs::remove_dir(&two.root).expect("nobody is in it");
    two.check("all to be made anew");
    two.end();
}

#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn a_limit_of_cgroups_is_named() {
    let work = Group::new("work");
    let children = [(); 2].map(|()| Child::start(&work.cgroup, SPIN));
    let mut daemon = Daemon::user("own", &["--backend", "cgroup"]);
    attach(&daemon, &children[0], &[]);
    let root = trees().pop_first().expect("one");
    fs::write(root.join("cgroup.max.descendants"), "2").expect("root may");
    let tree = format!("tree:{}", children[1].pid);
    let refused = output(&mut daemon.divvy(&["attach", &tree]));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("raise cgroup.max.descendants"), "{said}");
    daemon.stop();
}

/// A controller that was not to be had, and comes later, is put on, and put off again by whoever takes the tree apart.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn a_controller_that_comes_is_taken_up_and_put_off_again() {
    let root = Path::new(ROOT);
    let (work, place) = (Group::new("work"), Group::new("place"));
    let child = Child::start(&work.cgroup, SPIN);
    fs::write(root.join("cgroup.subtree_control"), "-io").expect("root may");
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("echo 0 >{ROOT}/place/cgroup.procs; exec divvyd \"$@\""), "divvyd"]);
    let mut daemon = Daemon::of("own", 0, shell, &["--backend", "cgroup"]);
    attach(&daemon, &child, &["--limit", "disk:2M"]);
    let control = place.cgroup.path().join("cgroup.subtree_control");
    let is_on = || fs::read_to_string(&control).expect("there").split_whitespace().any(|word| word == "io");
    assert!(!is_on());
    fs::write(root.join("cgroup.subtree_control"), "+io").expect("root may");
    let tree = dirs(place.cgroup.path(), "divvy-").pop_first().expect("its tree");
    let throttled = || Cgroup::open(&tree.join("c0")).and_then(|leaf| leaf.get(&IO_MAX)).unwrap_or_default();
    eventually("the kernel to keep the limit", || (!throttled().is_empty()).then_some(()));
    assert!(is_on());
    daemon.kill_with_its_guardian();
    check_success(&mut daemon.divvy(&["rescue"]));
    assert!(!tree.exists() && !is_on(), "{:?}", fs::read_to_string(&control));
}
