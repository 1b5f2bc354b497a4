//! Against directories that look like cgroups. What the kernel makes of it: `xtask/tests/machine/inside/disk/rights.rs`.

use std::rc::Rc;

use rustix::io::Errno;

use super::super::files::fixture::Fixture;
use super::super::raw::SwitchedOn;
use super::super::survey::{Enable, Hierarchy};
use super::super::tree::Purpose;
use super::super::users::Due;
use super::*;
use crate::{Error, Pid, StartTime};

const FILES: &[(&str, &str)] = &[
    ("cgroup.procs", ""),
    ("cgroup.controllers", "cpu io memory pids\n"),
    ("cgroup.subtree_control", ""),
    ("cgroup.freeze", "0"),
    ("cpu.weight", "100"),
    ("memory.min", "0\n"),
    ("memory.low", "0\n"),
    ("memory.max", "max\n"),
    ("io.weight", "default 100\n"),
    ("io.bfq.weight", "default 100\n"),
];
const MIB: u64 = 1 << 20;
const HALF: u64 = WHOLE / 2;

/// A tree in a cgroup of 1000 MiB.
fn tree(fixture: &Rc<Fixture>, own: &[(&str, &str)]) -> Tree {
    fixture.cgroup("", &[]);
    for file in ["memory.min", "memory.low", "memory.max"] {
        std::fs::remove_file(fixture.path(file)).expect("the root has none");
    }
    let bounded = [&[("memory.max", "1048576000\n")], own].concat();
    fixture.cgroup("own", &bounded);
    let dir = fixture.path("own");
    let (mount, shown) = (fixture.path(""), "/".into());
    let (hierarchy, knob, enable) = (Hierarchy::Unified, Knob::Weight, Enable::Control);
    let ground = Ground { dir: dir.clone(), home: dir, mount, shown, hierarchy, knob, enable };
    let pid = Pid::from_raw(7).expect("positive");
    Tree::with_files(ground, Purpose::Keep, pid, StartTime(9), Rc::<Fixture>::clone(fixture))
}

/// What was written since the last look, without the tree's own path.
fn written(fixture: &Fixture) -> Vec<String> {
    let all = std::mem::take(&mut *fixture.written.borrow_mut());
    all.iter().map(|(path, text)| format!("{}={text}", path.replace("own/divvy-7-9", "T"))).collect()
}

fn rights(memory_reserved: u64, memory_shared: u64, disk: u64) -> Rights {
    Rights { memory_reserved, memory_shared, disk, ..Rights::default() }
}

fn keep(tree: &mut Tree, rights: &[Rights], leaves: &mut [Leaf]) -> Result<()> {
    leaves.iter_mut().zip(rights).for_each(|(leaf, rights)| leaf.due.rights = *rights);
    let levels = Levels::of(leaves);
    tree.keep(leaves, &levels, true)
}

#[test]
fn five_percent_of_the_memory_are_nobodys() {
    let all = Rights { memory_reserved: HALF, memory_shared: HALF, ..Rights::default() };
    assert_eq!(bounds(1000 * MIB, &all), (475 * MIB, 950 * MIB));
    assert_eq!(bounds(1000 * MIB, &rights(WHOLE, 0, 0)), (950 * MIB, 950 * MIB));
    assert_eq!(bounds(1000 * MIB, &rights(0, WHOLE * 2, 0)), (0, 950 * MIB), "never more");
    // Whole pages.
    assert_eq!(bounds(101 * MIB + 5, &rights(1, 0, 0)), (0, 0));
    // Small machines: 32 MiB, or half.
    assert_eq!([100, 64, 40].map(|mib| reservable(mib * MIB) / MIB), [68, 32, 20]);
    assert_eq!(bounds(0, &all), (0, 0));
}

#[test]
fn weights_are_in_the_proportion_of_parts() {
    assert_eq!(weights(&[WHOLE / 5, WHOLE / 5 * 4], 10_000), [Some(2_500), Some(10_000)]);
    assert_eq!(weights(&[0, 7], 1_000), [None, Some(1_000)], "one of no account now keeps what it has");
    assert_eq!(weights(&[1, WHOLE], 1_000), [Some(1), Some(1_000)]);
    assert_eq!(weights(&[], 1_000), []);
    assert_eq!(weights(&[0], 1_000), [None]);
}

#[test]
fn what_the_kernel_has_taken_for_itself_is_not_counted() {
    let text = "MemTotal: 2000 kB\nMemFree:    100 kB\nActive:  30 kB\nInactive: 20 kB\nActive(anon): 7 kB\n\
                SReclaimable: 5 kB\nUnevictable: 900 kB\n";
    assert_eq!(not_wired(text), Some(155 * 1024));
    assert_eq!(not_wired("MemFree: 100 kB\n"), None);
}

#[test]
fn controllers_are_put_on_and_only_what_changed_is_written() {
    let fixture = Rc::new(Fixture::new(FILES));
    let mut tree = tree(&fixture, &[("cgroup.subtree_control", "io\n")]);
    tree.make(1).expect("nothing is refused");
    assert_eq!(
        written(&fixture),
        [
            "own/cgroup.subtree_control=+cpu",
            "T/cgroup.subtree_control=+cpu",
            "own/cgroup.subtree_control=+memory",
            "T/cgroup.subtree_control=+memory",
            "T/cgroup.subtree_control=+io",
            "T/cpu.weight=100",
        ]
    );
    let ours = SwitchedOn::default().with(Controller::Cpu).with(Controller::Memory);
    assert_eq!(tree.image().expect("short paths").disable, ours, "io was on before us");
    let mut leaves = [0, 1].map(|client| tree.leaf(client).expect("a leaf"));
    written(&fixture);
    // 950 MiB, a quarter and a half of it.
    let (quarter, half) = (950 * MIB / 4, 950 * MIB / 2);
    let mut now = [rights(WHOLE / 4, WHOLE / 4, WHOLE / 5), rights(0, HALF, WHOLE / 5 * 4)];
    keep(&mut tree, &now, &mut leaves).expect("nothing is refused");
    let io = |leaf: &str, weight: u64, bfq: u64| {
        (format!("T/{leaf}/io.weight=default {weight}"), format!("T/{leaf}/io.bfq.weight=default {bfq}"))
    };
    let ((a, a_bfq), (b, b_bfq)) = (io("c0", 2500, 250), io("c1", 10_000, 1000));
    assert_eq!(
        written(&fixture),
        [
            format!("T/memory.min={quarter}"),
            format!("T/memory.low={}", half * 2),
            format!("T/c0/memory.min={quarter}"),
            format!("T/c0/memory.low={half}"),
            format!("T/c1/memory.low={half}"),
            a,
            b,
            a_bfq,
            b_bfq,
        ]
    );
    keep(&mut tree, &now, &mut leaves).expect("nothing is refused");
    assert_eq!(written(&fixture), [""; 0], "nothing changed");
    // The second gives half of its memory back; its disk is of no account.
    now[1] = rights(0, WHOLE / 4, 0);
    keep(&mut tree, &now, &mut leaves).expect("nothing is refused");
    let less = [
        format!("T/c1/memory.low={quarter}"),
        format!("T/memory.low={}", half + quarter),
        "T/c0/io.weight=default 10000".to_owned(),
        "T/c0/io.bfq.weight=default 1000".to_owned(),
    ];
    assert_eq!(written(&fixture), less, "the root is protected as long as its leaves are");
    // A kernel without BFQ.
    for leaf in &mut leaves {
        std::fs::remove_file(leaf.dir.join("io.bfq.weight")).expect("it is there");
    }
    now[1].disk = 1;
    keep(&mut tree, &now, &mut leaves).expect("that is no error");
    assert_eq!(leaves[1].given.weights, [1, 1000], "{:?}", written(&fixture));
    // Somebody has removed a cgroup: the others have what they are to have.
    std::fs::remove_dir_all(&leaves[0].dir).expect("it is there");
    now = [rights(0, 0, 3), rights(0, HALF, 7)];
    let text = keep(&mut tree, &now, &mut leaves).expect_err("removed").to_string();
    assert!(text.contains("c0/memory.min"), "{text}");
    assert!(written(&fixture).contains(&format!("T/c1/memory.low={half}")));
}

#[test]
fn what_cannot_be_had_is_told_and_the_rest_is_done() {
    // No memory controller.
    let fixture = Rc::new(Fixture::new(FILES));
    let mut tree = tree(&fixture, &[("cgroup.controllers", "cpu io\n")]);
    tree.make(1).expect("the cpu controller is what is needed");
    let [memory, disk] = &tree.enforced()[..] else { panic!("two") };
    assert_eq!((memory.resource, &memory.by), ("memory", &None));
    assert!(memory.note.contains("has no memory controller: put it on"), "{}", memory.note);
    assert_eq!(disk.resource, "disk");
    let mut leaves = [tree.leaf(0).expect("a leaf")];
    written(&fixture);
    keep(&mut tree, &[rights(HALF, 0, HALF)], &mut leaves).expect("what can be had");
    assert_eq!(written(&fixture), ["T/c0/io.weight=default 10000", "T/c0/io.bfq.weight=default 1000"]);
    // The kernel refuses a controller that it said it had.
    let fixture = Rc::new(Fixture::new(FILES));
    let mut tree = self::tree(&fixture, &[("cgroup.subtree_control", "cpu io memory\n")]);
    tree.ground.enable = Enable::Nothing;
    fixture.refuse("own/divvy-7-9/cgroup.subtree_control", Errno::BUSY);
    assert!(tree.make(1).is_err(), "without the cpu controller there is nothing to do");
    let mut offers = Offers { memory: Offer::ByUs, io: Offer::On, cpuset: Offer::Unasked };
    offers.became(Controller::Memory, Err(Error::TableFull { path: "t".into(), capacity: 1 }));
    assert!(!offers.has(Controller::Memory) && offers.has(Controller::Io));
    assert_eq!(offers.to_be_put_on().count(), 0);
    // Version 1.
    let ground = Ground { knob: Knob::Shares, ..tree.ground.clone() };
    let offers = Offers::look(&ground, &*fixture);
    let Offer::Missing(why) = &offers.memory else { panic!("{offers:?}") };
    assert!(why.contains("cgroup_no_v1=all"), "{why}");
}

#[test]
fn a_cgroup_around_that_is_not_protected_is_told_of() {
    let fixture = Rc::new(Fixture::new(FILES));
    let tree = tree(&fixture, &[]);
    let told = tree.memory_enforced();
    assert_eq!(told.by.as_deref(), Some("memory.min, memory.low"));
    let own = fixture.path("own");
    let expected = format!(
        "950 of 1000 MiB can be kept for clients, against what is outside of {} no more than 0 MiB: raise memory.min",
        own.display()
    );
    assert!(told.note.starts_with(&expected), "{}", told.note);
    for file in ["memory.min", "memory.low"] {
        std::fs::write(own.join(file), "max\n").expect("a file");
    }
    assert_eq!(tree.memory_enforced().note, "950 of 1000 MiB can be kept for clients");
}

#[test]
fn disks_are_told_with_what_would_help() {
    let disk = |name: &str, by: &[&'static str]| Disk {
        name: name.to_owned(),
        device: None,
        by: by.to_vec(),
        seq: String::new(),
    };
    let told =
        disks_enforced(&[disk("sda", &["io.weight"]), disk("sdb", &[]), disk("vda", &["io.bfq.weight"])]);
    assert_eq!(told.by.as_deref(), Some("io.weight on sda, io.bfq.weight on vda"));
    assert!(told.note.starts_with("nothing divides sdb: choose its scheduler (echo bfq > "), "{}", told.note);
    assert_eq!(disks_enforced(&[]).note, "there is no disk");
    let told = disks_enforced(&[disk("a", &[]), disk("b", &[])]);
    assert!(told.by.is_none() && told.note.starts_with("nothing divides a, b: "), "{}", told.note);
}

#[test]
fn a_ceiling_is_written_once_or_it_is_told_why_not() {
    use super::super::ceiling::{Ceilings, NotKept};
    let fixture = Rc::new(Fixture::new(FILES));
    let mut tree = tree(&fixture, &[]);
    tree.make(1).expect("nothing is refused");
    let mut leaf = tree.leaf(0).expect("a leaf");
    let _ = written(&fixture);
    let (none, some) = (Ceilings::default(), Ceilings { memory: Some(64 * MIB), ..Ceilings::default() });
    tree.bound(&mut leaf, none, some).expect("there is a controller");
    tree.bound(&mut leaf, some, some).expect("nothing to do");
    tree.bound(&mut leaf, some, none).expect("there is a controller");
    assert_eq!(written(&fixture), ["T/c0/memory.max=67108864", "T/c0/memory.max=max"]);
    drop(tree);
    let fixture = Rc::new(Fixture::new(FILES));
    let mut tree = self::tree(&fixture, &[("cgroup.controllers", "cpu\n")]);
    tree.make(1).expect("cpu is there");
    let mut leaf = tree.leaf(0).expect("a leaf");
    match tree.bound(&mut leaf, none, some) {
        Err(NotKept::Missing(why)) => assert!(why.contains("has no memory controller: put it on"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert!(tree.reservable().is_err());
}

/// A machine whose disks these are: name, numbers and the kernel's count.
fn sys(dir: &Path, disks: &[(&str, &str, &str)]) {
    let _ = std::fs::remove_dir_all(dir.join("block")); // There is none at first.
    for (name, numbers, seq) in disks {
        let disk = dir.join("block").join(name);
        std::fs::create_dir_all(disk.join("device")).expect("directories");
        std::fs::write(disk.join("dev"), numbers).expect("a file");
        std::fs::write(disk.join("diskseq"), seq).expect("a file");
    }
}

#[test]
fn a_limit_is_kept_on_each_disk_or_on_none() {
    use super::super::ceiling::NotKept;
    let fixture = Rc::new(Fixture::new(FILES));
    let mut tree = tree(&fixture, &[]);
    tree.make(1).expect("nothing is refused");
    let leaf = tree.leaf(0).expect("a leaf");
    std::fs::write(fixture.path("own/divvy-7-9/c0/io.max"), "").expect("a file");
    let (_, all) = (written(&fixture), tempfile::tempdir().expect("a directory"));
    sys(all.path(), &[("vda", "254:0", "1"), ("vdb", "254:16", "2"), ("vdc", "254:32", "3")]);
    let (a, b, c) = ("T/c0/io.max=254:0", "T/c0/io.max=254:16", "T/c0/io.max=254:32");
    let max = |disk: &str, rate: &str| format!("{disk} rbps={rate} wbps={rate} riops=max wiops=max");
    tree.bound_disks(&leaf, None, Some(9), all.path()).expect("each takes it");
    assert_eq!(written(&fixture), [max(a, "9"), max(b, "9"), max(c, "9")]);
    // One that goes meanwhile needs none.
    fixture.refuse("io.max=254:16", Errno::NODEV);
    tree.bound_disks(&leaf, Some(9), Some(8), all.path()).expect("each that is there takes it");
    assert_eq!(written(&fixture), [max(a, "8"), max(c, "8")]);
    // One that throttles nothing: the others have the limit that they had, and somebody else keeps it.
    fixture.refuse("io.max=254:32", Errno::OPNOTSUPP);
    match tree.bound_disks(&leaf, Some(8), Some(7), all.path()) {
        Err(NotKept::Missing(why)) => {
            assert!(why.starts_with("the kernel bounds nothing that vdc does: "), "{why}")
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(written(&fixture), [max(a, "7"), max(a, "8")]);
    tree.bound_disks(&leaf, Some(8), None, all.path()).expect("it has none to lose");
    assert_eq!(written(&fixture), [max(a, "max")]);
    fixture.refuse("io.max=254:0", Errno::NODEV);
    assert!(
        matches!(tree.bound_disks(&leaf, None, Some(7), all.path()), Err(NotKept::Missing(_))),
        "there is no disk"
    );
}

#[test]
fn a_disk_that_comes_is_seen_once() {
    let fixture = Rc::new(Fixture::new(FILES));
    let mut tree = tree(&fixture, &[]);
    let all = tempfile::tempdir().expect("a directory");
    let mut came = |disks: &[(&str, &str, &str)]| {
        sys(all.path(), disks);
        tree.look_at_disks(all.path());
        tree.take_disks_came()
    };
    assert!(came(&[("vda", "254:0", "1")]));
    assert!(!came(&[("vda", "254:0", "1")]));
    assert!(came(&[("vda", "254:0", "1"), ("vdb", "254:16", "2")]));
    assert!(!came(&[("vda", "254:0", "1")]), "one went");
    assert!(came(&[("vda", "254:0", "3")]), "another one in its place");
}

#[test]
fn how_far_weights_of_disks_are_off_is_known() {
    let fixture = Rc::new(Fixture::new(FILES));
    let mut tree = tree(&fixture, &[]);
    tree.make(1).expect("nothing is refused");
    let mut leaves = [0, 1, 2].map(|client| tree.leaf(client).expect("a leaf"));
    let by =
        |by: &'static str| Disk { name: "vda".to_owned(), device: None, by: vec![by], seq: String::new() };
    // 1:30000, and one of no account: 1:10000 and 1:1000 are what can be written.
    keep(&mut tree, &[rights(0, 0, 1), rights(0, 0, 30_000), rights(0, 0, 0)], &mut leaves).expect("taken");
    assert_eq!(tree.deviation().disks, [0, 0], "no disk is divided");
    tree.disks = vec![by("io.weight")];
    let [iocost, bfq] = tree.deviation().disks;
    assert!((1_990_000..=2_000_000).contains(&iocost) && bfq == 0, "{iocost} {bfq}");
    tree.disks = vec![by("io.bfq.weight")];
    let [iocost, bfq] = tree.deviation().disks;
    assert!((28_900_000..=29_000_000).contains(&bfq) && iocost == 0, "{iocost} {bfq}");
    keep(&mut tree, &[rights(0, 0, 2), rights(0, 0, 4), rights(0, 0, 0)], &mut leaves).expect("taken");
    assert_eq!(tree.deviation(), super::super::weights::Off::default());
}

#[test]
fn a_client_is_kept_to_cpus_and_given_all_back() {
    use super::super::ceiling::{Ceilings, NotKept};
    let on = [("cgroup.controllers", "cpuset cpu io memory\n")];
    let fixture = Rc::new(Fixture::new(FILES));
    let mut tree = tree(&fixture, &on);
    assert!(tree.image().expect("short").disable.bits() & 8 != 0, "it is put off again");
    tree.make(1).expect("nothing is refused");
    assert!(tree.keeps_cpus());
    std::fs::write(fixture.path("own/divvy-7-9/cpuset.cpus.effective"), "0-3\n").expect("a file");
    let mut leaf = tree.leaf(0).expect("a leaf");
    std::fs::write(fixture.path("own/divvy-7-9/c0/cpuset.cpus"), "\n").expect("a file");
    let before = written(&fixture);
    assert!(before.contains(&"T/cgroup.subtree_control=+cpuset".to_owned()), "{before:?}");
    let (all, some) = (Ceilings::default(), Ceilings { cpus: "0,2-3".parse().ok(), ..Ceilings::default() });
    tree.bound(&mut leaf, all, some).expect("there is a controller");
    tree.bound(&mut leaf, some, some).expect("nothing to do");
    tree.bound(&mut leaf, some, all).expect("there is a controller");
    assert_eq!(written(&fixture), ["T/c0/cpuset.cpus=0,2-3", "T/c0/cpuset.cpus=0-3"]);
    drop(tree);
    // Where a process would lose the CPUs that it was given before.
    let fixture = Rc::new(Fixture::new(FILES));
    fixture.is_old.set(true);
    let mut tree = self::tree(&fixture, &on);
    tree.make(1).expect("cpu is there");
    assert!(!tree.keeps_cpus() && !written(&fixture).iter().any(|line| line.contains("cpuset")));
    let mut leaf = tree.leaf(0).expect("a leaf");
    match tree.bound(&mut leaf, all, some) {
        Err(NotKept::Missing(why)) => assert!(why.starts_with("before Linux 6.2"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn all_clients_are_kept_to_what_is_divided() {
    let on = [("cgroup.controllers", "cpuset cpu io memory\n")];
    let said = |divided: Option<&str>, effective: &str, is_old: bool| {
        let fixture = Rc::new(Fixture::new(FILES));
        fixture.is_old.set(is_old);
        let mut tree = tree(&fixture, &on);
        tree.divided = divided.map(|list| list.parse().expect("CPUs"));
        tree.make(1).expect("nothing is refused");
        std::fs::write(fixture.path("own/divvy-7-9/cpuset.cpus.effective"), effective).expect("a file");
        std::fs::write(fixture.path("own/divvy-7-9/cpuset.cpus"), "\n").expect("a file");
        written(&fixture);
        // As after somebody has switched it off.
        tree.put_on(Controller::Cpuset);
        let wrote = written(&fixture).into_iter().find(|line| line.starts_with("T/cpuset.cpus="));
        (wrote, tree.not_kept_to_divided().is_some())
    };
    let wrote = |text: &str| Some(text.to_owned());
    assert_eq!(said(Some("0,2"), "0-3\n", false), (wrote("T/cpuset.cpus=0,2"), false));
    assert_eq!(said(Some("0-3"), "0-3\n", false), (None, false), "there are no others");
    assert_eq!(said(Some("0-3"), "0-2\n", false), (None, false), "one is off");
    assert_eq!(said(None, "0-3\n", false), (None, false), "all are divided");
    assert_eq!(said(Some("0"), "0-3\n", true), (None, true), "they would forget what taskset has said");
}

#[test]
fn bytes_are_reserved_beside_parts() {
    // 950 MiB can be kept: half of that, and 10 MiB.
    let both = Rights { memory_reserved: HALF, memory_bytes: 10 * MIB, ..Rights::default() };
    assert_eq!(bounds(1000 * MIB, &both), (485 * MIB, 485 * MIB));
    // No more than there is.
    let all = Rights { memory_bytes: u64::MAX, ..Rights::default() };
    assert_eq!(bounds(1000 * MIB, &all), (950 * MIB, 950 * MIB));
}

/// 950 MiB, and three clients of two users.
#[test]
fn a_users_cgroup_has_what_its_leaves_have_together() {
    let fixture = Rc::new(Fixture::new(FILES));
    let mut tree = tree(&fixture, &[("cgroup.subtree_control", "cpu io memory\n")]);
    tree.make(1).expect("nothing is refused");
    written(&fixture);
    let users = [7, 7, 8].map(Some);
    let mut leaves = [0, 1, 2].map(|client| tree.leaf_of(client, users[client]).expect("a leaf"));
    let made = written(&fixture);
    let on = ["cpu", "memory", "io"].map(|name| format!("T/u7/cgroup.subtree_control=+{name}"));
    assert!(on.iter().all(|line| made.contains(line)), "{made:?}");
    assert_eq!(leaves[1].dir(), tree.dir().join("u7/c1"));
    // A quarter and an eighth of the memory are reserved; 1, 1 and 2 parts of the disks.
    let quarter = 950 * MIB / 4;
    let now = [rights(WHOLE / 4, 0, 100), rights(WHOLE / 8, WHOLE / 8, 100), rights(0, WHOLE / 4, 200)];
    keep(&mut tree, &now, &mut leaves).expect("nothing is refused");
    let all = written(&fixture);
    let at = |line: String| all.iter().position(|l| *l == line).unwrap_or_else(|| panic!("{line}: {all:?}"));
    let around = at(format!("T/u7/memory.min={}", quarter + quarter / 2));
    assert!(at(format!("T/memory.min={}", quarter + quarter / 2)) < around);
    assert!(around < at(format!("T/u7/c0/memory.min={quarter}")));
    at(format!("T/u7/memory.low={}", quarter * 2));
    at(format!("T/u8/memory.low={quarter}"));
    for (dir, weight) in
        [("u7", 10_000), ("u8", 10_000), ("u7/c0", 10_000), ("u7/c1", 10_000), ("u8/c2", 10_000)]
    {
        at(format!("T/{dir}/io.weight=default {weight}"));
    }
    // Less: those inside first.
    let now = [rights(WHOLE / 8, 0, 300), now[1], now[2]];
    keep(&mut tree, &now, &mut leaves).expect("nothing is refused");
    let less = [
        "T/u7/c1/io.weight=default 3333".to_owned(),
        "T/u7/c1/io.bfq.weight=default 333".to_owned(),
        "T/u8/io.weight=default 5000".to_owned(),
        "T/u8/io.bfq.weight=default 500".to_owned(),
    ];
    let all = written(&fixture);
    assert_eq!(all[all.len() - 4..], less);
    let at = |line: String| all.iter().position(|l| *l == line).unwrap_or_else(|| panic!("{line}: {all:?}"));
    assert!(at(format!("T/u7/c0/memory.min={}", quarter / 2)) < at(format!("T/u7/memory.min={quarter}")));
    // Of CPU time 4 of 5 parts are user 7's, and while its second sleeps, 1 of 2: the second's weight stays for when it wakes.
    let mut weigh = |counts: bool| {
        for (leaf, (share, counts)) in leaves.iter_mut().zip([(1, true), (3, counts), (1, true)]) {
            (leaf.due.share, leaf.due.counts) = (share, counts);
        }
        let levels = Levels::of(&leaves);
        tree.weigh_all(&mut leaves, &levels, true).expect("nothing is refused");
        written(&fixture)
    };
    let cpu = |dir: &str, weight: u64| format!("T/{dir}/cpu.weight={weight}");
    let first =
        [cpu("u7/c0", 3325), cpu("u7/c1", 9975), cpu("u8/c2", 10_000), cpu("u7", 10_000), cpu("u8", 2500)];
    assert_eq!(weigh(true), first);
    assert_eq!(weigh(false), [cpu("u8", 10_000)]);
    // With its last leaf a user's cgroup goes, as far as this fixture, which has files in it, lets it.
    let [a, b, c] = leaves;
    drop((a, b));
    std::fs::remove_dir_all(c.dir()).expect("it is there");
    for file in std::fs::read_dir(tree.dir().join("u8")).expect("there").flatten() {
        std::fs::remove_file(file.path()).expect("a file");
    }
    tree.disband(c).expect("somebody else has removed it");
    assert!(!tree.dir().join("u8").exists() && tree.dir().join("u7").exists());
    let again = tree.leaf_of(3, Some(8)).expect("it is made anew");
    assert_eq!(again.dir(), tree.dir().join("u8/c3"));
}

/// Two users with two clients each: whoever is due something else has its own user looked at, and nobody else.
#[test]
fn only_what_changed_is_looked_at_and_written() {
    let fixture = Rc::new(Fixture::new(FILES));
    let mut tree = tree(&fixture, &[("cgroup.controllers", "cpu\n")]);
    tree.make(1).expect("nothing is refused");
    let users = [7, 7, 8, 8].map(Some);
    let mut leaves: Vec<Leaf> =
        (0..4).map(|client| tree.leaf_of(client, users[client]).expect("a leaf")).collect();
    let due = |share: u64, counts: bool| Due { share, counts, rights: Rights::default() };
    for leaf in &mut leaves {
        tree.owe(leaf, due(100, true));
    }
    assert_eq!(tree.stale(), [0, 1, 2, 3]);
    tree.follow(&mut leaves).expect("nothing is refused");
    assert_eq!(tree.stale(), [0; 0]);
    written(&fixture);
    let mut change = |tree: &mut Tree, client: usize, to: Due| {
        tree.owe(&mut leaves[client], to);
        let stale = tree.stale();
        let [first, .., last] = stale[..] else { panic!("{stale:?}") };
        tree.follow(&mut leaves[first..=last]).expect("nothing is refused");
        (stale, written(&fixture))
    };
    // A third of the second user's part; all that it has is twice as much then.
    let cpu = |dir: &str, weight: u64| format!("T/{dir}/cpu.weight={weight}");
    let (stale, wrote) = change(&mut tree, 3, due(300, true));
    assert_eq!(stale, [2, 3]);
    assert_eq!(wrote, [cpu("u8/c2", 3325), cpu("u8/c3", 9975), cpu("u7", 5000)]);
    // It sleeps: what its user has is less, what it has in there stays for when it wakes.
    let (stale, wrote) = change(&mut tree, 3, due(300, false));
    assert_eq!((stale, wrote), (vec![2, 3], vec![cpu("u7", 10_000), cpu("u8", 5000)]));
    // All of a user's are worth more, by as much: nothing is to be written in there, nor around it for a millionth.
    leaves.iter_mut().take(2).for_each(|leaf| tree.owe(leaf, due(100_000_000, true)));
    tree.follow(&mut leaves[..2]).expect("nothing is refused");
    assert_eq!(written(&fixture), [cpu("u8", 1)]);
    leaves.iter_mut().take(2).for_each(|leaf| tree.owe(leaf, due(100_000_100, true)));
    tree.follow(&mut leaves[..2]).expect("nothing is refused");
    assert_eq!(written(&fixture), [""; 0]);
    // What was refused is tried again with the next, whoever's that is.
    fixture.refuse("u7/cpu.weight", Errno::INVAL);
    leaves.iter_mut().take(2).for_each(|leaf| tree.owe(leaf, due(1, true)));
    tree.follow(&mut leaves[..2]).expect_err("refused");
    fixture.refused.borrow_mut().clear();
    written(&fixture);
    assert_eq!(tree.stale(), [0, 1]);
    tree.follow(&mut leaves[..2]).expect("nothing is refused");
    assert_eq!(written(&fixture), [cpu("u7", 200)]);
    assert_eq!(tree.stale(), [0; 0]);
    // One that leaves is nobody's concern but its user's.
    let gone = leaves.remove(0);
    for file in std::fs::read_dir(gone.dir()).expect("there").flatten() {
        std::fs::remove_file(file.path()).expect("a file");
    }
    tree.disband(gone).expect("it is empty");
    assert_eq!(tree.stale(), [1]);
}

/// Of clients that came while a scheduler of ours divided, and those that came after it, each has its part: the first stay beside
/// the cgroups of users, and the values of all are of one kind.
#[test]
fn who_is_beside_the_users_has_its_part_among_them() {
    let fixture = Rc::new(Fixture::new(FILES));
    let mut tree = tree(&fixture, &[("cgroup.controllers", "cpu\n")]);
    tree.make(1).expect("nothing is refused");
    let users = [None, None, Some(7), Some(7)];
    let mut leaves = [0, 1, 2, 3].map(|client| tree.leaf_of(client, users[client]).expect("a leaf"));
    for (leaf, share) in leaves.iter_mut().zip([10, 30, 20, 40]) {
        tree.owe(leaf, Due { share, counts: true, rights: Rights::default() });
    }
    written(&fixture);
    assert_eq!(tree.stale(), [2, 3, 0, 1]);
    tree.follow(&mut leaves).expect("nothing is refused");
    let cpu = |dir: &str, weight: u64| format!("T/{dir}/cpu.weight={weight}");
    let inside = [cpu("u7/c2", 5000), cpu("u7/c3", 10_000)];
    let beside = [cpu("u7", 9900), cpu("c0", 1650), cpu("c1", 4950)];
    assert_eq!(written(&fixture), [&inside[..], &beside].concat());
    // A user's second client doubles what both have: those beside have as much less.
    tree.owe(&mut leaves[3], Due { share: 100, counts: true, rights: Rights::default() });
    assert_eq!(tree.stale(), [2, 3, 0, 1], "whoever is beside the users is looked at with any of them");
    tree.follow(&mut leaves[..]).expect("nothing is refused");
    let inside = [cpu("u7/c2", 2000)];
    let beside = [cpu("c0", 825), cpu("c1", 2475)];
    assert_eq!(written(&fixture), [&inside[..], &beside].concat());
}

/// A place for each leaf, as a host has.
struct Places(Vec<Option<Leaf>>);

impl super::super::users::WithLeaves for Places {
    fn leaf(&mut self, client: usize) -> Option<&mut Option<Leaf>> {
        self.0.get_mut(client)
    }
}

/// Whoever may write there removes a leaf, or a user's whole cgroup, whose processes were moved away.
#[test]
fn what_somebody_has_removed_is_made_anew() {
    use divvy_policy::ClientId;

    use super::super::users::Check;
    let fixture = Rc::new(Fixture::new(FILES));
    let mut tree = tree(&fixture, &[]);
    tree.make(1).expect("nothing is refused");
    let leaves = [Some(1001), Some(1001), Some(1002), Some(1002), None].into_iter().enumerate();
    let leaves = leaves.map(|(i, user)| Some(tree.leaf_of(i, user).expect("a leaf")));
    let mut places = Places(leaves.collect());
    let dues = |share: u64| -> Vec<(ClientId, Due)> {
        let due = |i: u64| Due { share: share + i, counts: true, rights: rights(0, WHOLE / 8, share + i) };
        (0..5).map(|i| (ClientId(i as u32), due(i))).collect()
    };
    let give = |tree: &mut Tree, places: &mut Places, share| {
        tree.give(&dues(share), Check::Nothing, places).map(drop).map_err(|e| e.to_string())
    };
    assert_eq!(give(&mut tree, &mut places, 1), Ok(()));
    assert_eq!(tree.take_remade(), [0; 0]);
    let root = fixture.path("own/divvy-7-9");
    for (removed, remade) in [("u1001/c0", vec![0]), ("c4", vec![4]), ("u1002", vec![2, 3])] {
        std::fs::remove_dir_all(root.join(removed)).expect("there");
        written(&fixture);
        // As much as it was due, and others that are due something else.
        assert_eq!(give(&mut tree, &mut places, 10 + remade[0] as u64 * 10), Ok(()), "{removed}");
        let mut told = tree.take_remade();
        told.sort_unstable();
        assert_eq!(told, remade, "{removed}");
        for &client in &remade {
            let leaf = places.0[client].as_ref().expect("it stays");
            let read = |file: &str| std::fs::read_to_string(leaf.dir().join(file)).expect("made anew");
            assert_eq!(read("cpu.weight"), leaf.weight.to_string(), "{removed}");
            assert_ne!(read("memory.low"), "0\n", "{removed}");
            assert_ne!(read("io.weight"), "default 100\n", "{removed}");
        }
    }
    // One that is due nothing else, as soon as something else was found to be impossible there.
    std::fs::remove_dir_all(root.join("c4")).expect("there");
    tree.note_lost(places.0[4].as_ref().expect("it stays"));
    assert!(tree.give(&[], Check::Nothing, &mut places).is_ok());
    assert_eq!(tree.take_remade(), [4]);
    assert!(root.join("c4").exists());
    // And all of a user whose whole cgroup turns out to be gone, too.
    for gone in ["c4", "u1002"] {
        std::fs::remove_dir_all(root.join(gone)).expect("there");
    }
    tree.note_lost(places.0[4].as_ref().expect("it stays"));
    assert!(tree.give(&[], Check::Nothing, &mut places).is_ok());
    let mut told = tree.take_remade();
    told.sort_unstable();
    assert_eq!(told, [2, 3, 4]);
    // Where even the tree is gone there is nothing to be done: that is said, and everybody stays.
    std::fs::remove_dir_all(&root).expect("there");
    let said = give(&mut tree, &mut places, 100).expect_err("nothing is there");
    assert!(said.contains("divvy-7-9"), "{said}");
    assert!(places.0.iter().all(Option::is_some));
    assert!(give(&mut tree, &mut places, 200).is_err(), "again and again");
}
