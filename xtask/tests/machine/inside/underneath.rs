//! What clients and others do to the cgroups of a divvyd underneath it: it is taken apart all the same, and mended.

use std::fs;
use std::path::{Path, PathBuf};

use divvy_linux::cgroup::room::{CPU_MAX, CPU_WEIGHT, Cgroup, CpuMax, Limit, MEMORY_MAX, MEMORY_MIN};

use super::backend::{Daemon, check_parts, check_success, dirs, eventually, output, trees, used};
use super::{Child, Group, ROOT, SPIN, check_inside};

const MIB: u64 = 1 << 20;

fn cgroup_of(child: &Child) -> String {
    fs::read_to_string(format!("/proc/{}/cgroup", child.pid)).expect("alive").trim().to_owned()
}

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
                assert_eq!(cgroup_of(&child), "0::/work", "{which}, {backend}, {end}");
            }
        }
    }
}

/// What is switched off, and on again, loses all that was written; a leaf that is removed, or made again, too.
#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn what_is_changed_underneath_is_mended() {
    check_inside();
    let work = Group::new("work");
    let children = [(); 2].map(|()| Child::start(&work.cgroup, SPIN));
    let mut daemon = Daemon::user("own", &["--backend", "cgroup"]);
    attach(
        &daemon,
        &children[0],
        &["-s", "1", "--name", "a", "--limit", "memory:50M,cpu:90%", "--reserve", "memory:8M"],
    );
    attach(&daemon, &children[1], &["-s", "3", "--name", "b"]);
    let root = trees().pop_first().expect("one");
    let at = |number: usize| Cgroup::open(&root.join(format!("c{number}"))).expect("there");
    let is_whole = |number: usize| {
        let Ok(leaf) = Cgroup::open(&root.join(format!("c{number}"))) else { return false };
        let (min, max) = if number == 0 { (8, Limit::At(50 * MIB)) } else { (0, Limit::Max) };
        let limited = |cpu: CpuMax| matches!(cpu.quota, Limit::At(_)) == (number == 0);
        leaf.get(&MEMORY_MAX).is_ok_and(|kept| kept == max)
            && leaf.get(&MEMORY_MIN).is_ok_and(|kept| kept == Limit::At(min * MIB))
            && leaf.get(&CPU_WEIGHT).is_ok_and(|weight| weight != 100)
            && leaf.get(&CPU_MAX).is_ok_and(limited)
            && cgroup_of(&children[number]).contains(&format!("/c{number}/"))
    };
    let whole = |what: &str| {
        eventually(what, || [0, 1].into_iter().all(is_whole).then_some(()));
        let told = check_success(&mut daemon.divvy(&["ls", "--json"]));
        assert!(told.contains("\"limit_memory_bytes\": 52428800"), "{told}");
    };
    whole("both to be as asked for");
    let control = root.join("cgroup.subtree_control");
    let write = |text: &str| fs::write(&control, text).expect("root may");
    write("-memory -cpu");
    write("+memory +cpu");
    whole("what was lost for a moment");
    write("-memory -cpu");
    whole("what was switched off");
    check_parts(&used(&[at(0), at(1)]), &[1, 3]);
    // At once, where it is asked for.
    write("-memory");
    check_success(&mut daemon.divvy(&["set", "a", "--limit", "memory:50M"]));
    assert!(is_whole(0));
    // A cgroup that somebody removes, or makes again.
    for again in [false, true] {
        fs::write(Path::new(ROOT).join("work/cgroup.procs"), children[0].pid.to_string()).expect("root may");
        for dir in dirs(&root.join("c0"), "p").iter().chain([&root.join("c0")]) {
            fs::remove_dir(dir).expect("nobody is in it");
        }
        if again {
            fs::create_dir(root.join("c0")).expect("root may");
        }
        check_success(&mut daemon.divvy(&["set", "a", "--limit", "cpu:80%"]));
        eventually("the leaf to be made anew", || is_whole(0).then_some(()));
    }
    // And all of them.
    for (number, child) in children.iter().enumerate() {
        fs::write(Path::new(ROOT).join("work/cgroup.procs"), child.pid.to_string()).expect("root may");
        for dir in
            dirs(&root.join(format!("c{number}")), "p").iter().chain([&root.join(format!("c{number}"))])
        {
            fs::remove_dir(dir).expect("nobody is in it");
        }
    }
    fs::remove_dir(&root).expect("nobody is in it");
    eventually("all to be made anew", || (root.exists() && dirs(&root, "c").len() == 2).then_some(()));
    whole("both to be as asked for once more");
    daemon.kill_with_its_guardian();
    check_success(&mut daemon.divvy(&["rescue"]));
    assert!(trees().is_empty());
    assert!(children.iter().all(|child| cgroup_of(child) == "0::/work"));
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
