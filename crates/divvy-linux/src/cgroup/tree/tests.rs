//! Trees in directories that look like cgroups, and in the kernel's own.

use super::super::files::fixture::Fixture;
use super::super::survey::{Hierarchy, Survey};
use super::super::weights::Knob;
use super::*;

const FILES: &[(&str, &str)] = &[
    ("cgroup.procs", ""),
    ("cgroup.subtree_control", ""),
    ("cgroup.freeze", "0"),
    ("cgroup.events", "populated 1\nfrozen 0\n"),
    ("cpu.weight", "100"),
    ("cpu.idle", "0"),
    ("cpu.max", "max 100000"),
    ("cpu.cfs_period_us", "100000"),
    ("cpu.cfs_quota_us", "-1"),
    ("cpu.stat", "usage_usec 1234567\nuser_usec 1\n"),
];

fn tree(fixture: &Rc<Fixture>, purpose: Purpose, enable: Enable) -> Tree {
    fixture.cgroup("own", &[]);
    let dir = fixture.path("own");
    let (mount, shown) = (fixture.path(""), "/".into());
    let (hierarchy, knob) = (Hierarchy::Unified, Knob::Weight);
    let ground = Ground { dir: dir.clone(), home: dir, mount, shown, hierarchy, knob, enable };
    let pid = Pid::from_raw(7).expect("positive");
    Tree::with_files(ground, purpose, pid, StartTime(9), Rc::<Fixture>::clone(fixture))
}

fn written(fixture: &Fixture) -> Vec<String> {
    fixture.written.borrow().iter().map(|(path, text)| format!("{path}={text}")).collect()
}

#[test]
fn weights_are_written_after_the_controller_is_on() {
    let fixture = Rc::new(Fixture::new(FILES));
    let mut tree = tree(&fixture, Purpose::Weigh(vec![25, 50]), Enable::MoveAndControl);
    tree.make(2).expect("nothing is refused");
    let leaf = tree.leaf(1).expect("a leaf");
    assert_eq!(leaf.usage(), Some(divvy_policy::Nanos(1_234_567_000)));
    assert_eq!(
        written(&fixture),
        [
            "own/divvy-7-9/self/cgroup.procs=0",
            "own/cgroup.subtree_control=+cpu",
            "own/divvy-7-9/cgroup.subtree_control=+cpu",
            "own/divvy-7-9/self/cpu.weight=10000",
            "own/divvy-7-9/cpu.weight=200",
            "own/divvy-7-9/c1/cpu.weight=50",
        ]
    );
    let image = tree.image().expect("short paths");
    assert_eq!(image.disable, SwitchedOn::default().with(Controller::Cpu));
    assert_ne!(image.inode, 0);
    assert_eq!(image.root.bytes(), fixture.path("own/divvy-7-9").to_str().unwrap().as_bytes());
}

/// Where the cpu controller is in the hierarchy that freezes, one leaf does both.
#[test]
fn a_leaf_of_version_2_freezes_and_gives_way() {
    for freezes in [true, false] {
        let fixture = Rc::new(Fixture::new(FILES));
        let mut tree = tree(&fixture, Purpose::Idle { weights: vec![7], freezes }, Enable::Nothing);
        tree.make(1).expect("nothing is refused");
        assert!(tree.gives_way() && tree.counts() == freezes);
        let mut leaf = tree.leaf(0).expect("a leaf").close();
        assert!(leaf.gives_way() && leaf.counts() == freezes && leaf.is_signalled() != freezes);
        assert_eq!(leaf.is_populated(), Some(true));
        std::fs::write(leaf.dir().join("cgroup.procs"), "12\n345\n").expect("a file");
        let pids: Vec<_> =
            leaf.pids().expect("readable").iter().map(|pid| pid.as_raw_nonzero().get()).collect();
        assert_eq!(pids, [12, 345]);
        assert!(leaf.contains(leaf.dir()) && leaf.contains(&leaf.dir().join("below")));
        assert!(!leaf.contains(&fixture.path("own")));
        if freezes {
            leaf.freeze().expect("nothing is refused");
            assert!(leaf.is_frozen());
            // Who has left is not held by it any more, and whoever has not is let go.
            leaf.put_behind(true).expect("nothing is refused");
            leaf.give_up_freezing().expect("nothing is refused");
            assert!(!leaf.is_frozen() && leaf.is_signalled() && !leaf.counts() && !leaf.gives_way());
            let idle = std::fs::read_to_string(leaf.dir().join("cpu.idle")).expect("a file");
            assert_eq!(idle.trim(), "0", "it is behind nobody");
        }
        std::fs::remove_dir_all(leaf.dir()).expect("a directory");
        assert_eq!(leaf.is_populated(), Some(false), "in what is gone nobody is");
    }
}

#[test]
fn who_is_preferred_weighs_more_and_then_what_it_did() {
    let fixture = Rc::new(Fixture::new(FILES));
    let mut tree = tree(&fixture, Purpose::Idle { weights: vec![7, 9_000], freezes: false }, Enable::Nothing);
    tree.make(2).expect("nothing is refused");
    let leaves = [tree.leaf(0).expect("a leaf"), tree.leaf(1).expect("a leaf")];
    let before = written(&fixture).len();
    for leaf in &leaves {
        tree.prefer(leaf, true).expect("nothing is refused");
        tree.prefer(leaf, false).expect("nothing is refused");
    }
    let weight = |(client, weight)| format!("own/divvy-7-9/c{client}/cpu.weight={weight}");
    assert_eq!(written(&fixture)[before..], [(0, 28), (0, 7), (1, 10_000), (1, 9_000)].map(weight));
    fixture.refuse("c0/cpu.weight", Errno::INVAL);
    assert!(tree.prefer(&leaves[0], true).is_err());
}

#[test]
fn limits_are_the_kernels_where_it_divides() {
    let fixture = Rc::new(Fixture::new(FILES));
    let mut tree = tree(&fixture, Purpose::Keep, Enable::Nothing);
    tree.make(1).expect("nothing is refused");
    let mut leaf = tree.leaf(0).expect("a leaf");
    let before = written(&fixture).len();
    for limit in ["50%".parse().ok(), "1.5".parse().ok(), CpuLimit::new(10_000).ok(), None] {
        tree.limit_leaf(&mut leaf, limit).expect("nothing is refused");
    }
    let max = |text: &str| format!("own/divvy-7-9/c0/cpu.max={text} 100000");
    assert_eq!(written(&fixture)[before..], ["50000", "150000", "1000", "max"].map(max));
    // Version 1 has two files for it.
    tree.ground.knob = Knob::Shares;
    let before = written(&fixture).len();
    tree.limit_leaf(&mut leaf, "25%".parse().ok()).expect("nothing is refused");
    tree.limit_leaf(&mut leaf, None).expect("nothing is refused");
    let file = |(name, text)| format!("own/divvy-7-9/c0/cpu.cfs_{name}_us={text}");
    let all = [("period", "100000"), ("quota", "25000"), ("period", "100000"), ("quota", "-1")];
    assert_eq!(written(&fixture)[before..], all.map(file));
    assert!(tree.keeps_limits());
}

/// The cpu controller is refused while anybody is left in the cgroup: the front end goes along.
#[test]
fn a_front_end_is_moved_too() {
    let fixture = Rc::new(Fixture::new(FILES));
    let mut tree = tree(&fixture, Purpose::Weigh(vec![1]), Enable::MoveAndControl);
    let parent = rustix::process::getppid().expect("a parent").as_raw_nonzero();
    std::fs::write(fixture.path("own/cgroup.procs"), format!("1\n{parent}\n")).expect("a file");
    tree.make(1).expect("nothing is refused");
    let procs = "own/divvy-7-9/self/cgroup.procs";
    assert_eq!(written(&fixture)[..2], [format!("{procs}=0"), format!("{procs}={parent}")]);
}

#[test]
fn a_refusal_names_operation_object_and_cause() {
    let weigh = || Purpose::Weigh(vec![1]);
    for (end, e, purpose, answer) in [
        ("divvy-7-9", Errno::ACCESS, weigh(), "make cgroup"),
        ("own/cgroup.subtree_control", Errno::BUSY, weigh(), "write to"),
        ("divvy-7-9/cpu.weight", Errno::INVAL, weigh(), "write to"),
        ("divvy-7-9/cgroup.subtree_control", Errno::NOENT, weigh(), "write to"),
        ("self/cgroup.procs", Errno::PERM, weigh(), "write to"),
    ] {
        let fixture = Rc::new(Fixture::new(FILES));
        fixture.refuse(end, e);
        let mut tree = tree(&fixture, purpose, Enable::MoveAndControl);
        let error = tree.make(1).expect_err(end);
        assert_eq!(error.errno(), Some(e), "{end}");
        let text = error.to_string();
        assert!(text.starts_with(answer) && text.contains(end), "{text}");
        let permission = [Errno::ACCESS, Errno::PERM].contains(&e);
        assert_eq!(text.contains(FIX), permission, "{text}");
    }
}

#[test]
fn a_leaf_that_cannot_be_used_is_not_left() {
    let fixture = Rc::new(Fixture::new(&[("cgroup.procs", ""), ("cgroup.subtree_control", "")]));
    let mut frozen = tree(&fixture, Purpose::Freeze, Enable::Nothing);
    frozen.make(1).expect("nothing is refused");
    let error = frozen.leaf(0).expect_err("no cgroup.freeze").to_string();
    assert!(error.contains("Linux 5.2"), "{error}");
    let fixture = Rc::new(Fixture::new(FILES));
    let mut weighed = tree(&fixture, Purpose::Weigh(vec![1]), Enable::Nothing);
    weighed.make(1).expect("nothing is refused");
    fixture.refuse("c0/cpu.weight", Errno::INVAL);
    assert_eq!(weighed.leaf(0).expect_err("refused").errno(), Some(Errno::INVAL));
    assert_eq!(written(&fixture).len(), 2, "{:?}", written(&fixture));
}

/// The kernel's own files: frozen, thawed, and taken apart with a process in it, which goes home.
#[test]
fn a_live_tree_is_taken_apart_whoever_is_in_it() {
    check_live(Survey::new(), Hierarchy::Unified, "a_live_tree_is_taken_apart_whoever_is_in_it");
}

#[test]
fn a_live_tree_of_version_1_is_taken_apart_whoever_is_in_it() {
    let test = "a_live_tree_of_version_1_is_taken_apart_whoever_is_in_it";
    check_live(Survey::of_version_1(), Hierarchy::Freezer, test);
}

fn check_live(survey: Survey, hierarchy: Hierarchy, test: &str) {
    let ground = match survey.freezer {
        Ok(ground) => ground,
        Err(why) => return crate::skip::skip(test, &why),
    };
    assert_eq!(ground.hierarchy, hierarchy);
    let own = rustix::process::getpid();
    let start = crate::procfs::stat(own).expect("readable").expect("alive").start;
    let home_of = |pid: Pid| ground.cgroup_of(pid).expect("alive");
    let mut tree = Tree::plan(ground.clone(), Purpose::Freeze, own, start);
    let root = tree.root.clone();
    tree.make(1).expect("it is ours");
    let mut leaf = tree.leaf(0).expect("it is ours");
    let mut children = [(); 2].map(|()| {
        let child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let pid = Pid::from_child(&child);
        (child, pid)
    });
    // One is moved in as a command's process moves itself, one as a process that runs already.
    rustix::io::write(leaf.procs().next().expect("open"), children[0].1.to_string().as_bytes())
        .expect("our child");
    assert!(tree.take(&mut leaf, children[1].1).expect("our child"));
    let homes = children.each_ref().map(|(_, pid)| home_of(*pid));
    assert_eq!(homes, [leaf.dir().to_owned(), leaf.dir().join("p0")]);
    leaf.freeze().expect("it is ours");
    assert!(leaf.is_frozen());
    assert_eq!(leaf.usage().is_some(), hierarchy == Hierarchy::Unified);
    assert_ne!(leaf.is_populated(), Some(false), "there are two");
    // Another tree in its place is not touched.
    let mut foreign = tree.image().expect("short");
    foreign.inode += 1;
    assert_eq!(raw::dissolve(&foreign), Undone::default());
    assert!(leaf.is_frozen());
    assert_eq!(raw::thaw(&tree.image().expect("short")).thawed, 1);
    assert!(!leaf.is_frozen());
    leaf.freeze().expect("it is ours");
    // Killed, it ends when it is let go, if not before.
    children[0].0.kill().expect("ours");
    let undone = tree.dissolve().expect("it is ours");
    assert_eq!((undone.thawed, undone.removed), (1, 3));
    assert!(!root.exists());
    children[0].0.wait().expect("ours");
    assert_eq!(home_of(children[1].1), home_of(own));
    let [_, (mut child, _)] = children;
    child.kill().expect("ours");
    child.wait().expect("ours");
}

/// Of version 1: other words in another file, and the same way back.
#[test]
fn a_tree_of_version_1_freezes_by_its_own_words() {
    const ONE: &[(&str, &str)] = &[("cgroup.procs", ""), ("freezer.state", "THAWED\n")];
    let fixture = Rc::new(Fixture::new(ONE));
    let mut tree = tree(&fixture, Purpose::Freeze, Enable::Nothing);
    tree.ground.hierarchy = Hierarchy::Freezer;
    tree.make(1).expect("nothing is refused");
    let leaf = tree.leaf(0).expect("a leaf").close();
    let state = || std::fs::read_to_string(leaf.dir().join("freezer.state")).expect("there");
    assert!(!leaf.is_frozen() && leaf.usage().is_none());
    leaf.freeze().expect("nothing is refused");
    assert!(leaf.is_frozen() && !leaf.is_signalled() && !leaf.counts());
    assert_eq!((state().as_str(), leaf.is_populated()), ("FROZEN\n", None));
    let undone = raw::thaw(&tree.image().expect("short"));
    assert_eq!((undone.thawed, undone.failed), (1, None));
    assert_eq!((state().as_str(), leaf.is_frozen()), ("THAWED\n", false));
    assert_eq!(raw::thaw(&tree.image().expect("short")), Undone::default(), "nobody stands");
    // One whose file is gone says which, and what was to be written.
    let closed = Leaf { freeze: None, ..tree.leaf(1).expect("a leaf") };
    let read_only = std::fs::File::open(closed.dir().join("freezer.state")).expect("there");
    let refused = Leaf { freeze: Some((Brake::State, read_only)), ..closed };
    let error = refused.freeze().expect_err("it is open for reading").to_string();
    assert!(error.starts_with("write FROZEN to ") && error.contains("c1/freezer.state"), "{error}");
    // A leaf that lacks the file cannot be used, and is told with the way out.
    let two = Rc::new(Fixture::new(&[("cgroup.procs", "")]));
    let mut lacking = self::tree(&two, Purpose::Freeze, Enable::Nothing);
    lacking.ground.hierarchy = Hierarchy::Freezer;
    lacking.make(1).expect("nothing is refused");
    let error = lacking.leaf(0).expect_err("no freezer.state").to_string();
    assert!(error.contains("c0/freezer.state") && error.contains("--backend signals"), "{error}");
}
