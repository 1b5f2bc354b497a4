//! docs/admin.md's section on memory and disks: its commands, as they stand there, on the disk of this machine.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use divvy_linux::cgroup::room::{Cgroup, CostQos, CostSettings, IO_COST_QOS, MEMORY_MIN};

use super::super::backend::{dirs, eventually};
use super::super::{Group, ROOT, scratch_disk, set_scheduler};
use super::MIB;
use super::rights::{at, divvyd, tree_in};
use crate::page::{self, Block};

const PAGE: &str = include_str!("../../../../../docs/admin.md");
/// Parts of the disk, in hundredths of all: less than half of what the exchange moves, however busy the machine is around this one.
const MAX_POINTS_OFF: f64 = 10.0;
/// Memory that can be kept is what there is at the moment: of this fraction of it, another.
const MAX_MEMORY_OFF: f64 = 0.05;

/// In the place of a program that busybox has not.
const RUNUSER: &str =
    "#!/bin/sh\nuser=$2\nshift 3\nexec su -s /bin/sh -c 'exec \"$0\" \"$@\"' -- \"$user\" \"$@\"\n";

/// A line of a client: its name, the MiB that are kept for it, its part of all that disks do, and what is due to it, in hundredths.
fn client(line: &str) -> Option<(&str, [f64; 3])> {
    let (name, told) = line.split_once(": ")?;
    let number = |before: &str, after: &str| -> Option<f64> {
        let end = told.find(after)?;
        told[..end].rsplit_once(before)?.1.parse().ok()
    };
    Some((name, [number("(", " MiB are kept")?, number("(", " % of all")?, number("due ", " %)")?]))
}

/// The lines of clients, by name, and all others.
fn clients(text: &str) -> (Vec<(&str, [f64; 3])>, String) {
    let mut found: Vec<_> = text.lines().filter_map(client).collect();
    found.sort_by_key(|(name, _)| *name);
    let others = text.lines().filter(|line| client(line).is_none());
    (found, others.collect::<Vec<_>>().join("\n"))
}

/// What the commands print.
fn follow(commands: &str) -> String {
    // What goes on in the background keeps no pipe open.
    let output = "/tmp/printed";
    let line = format!("exec >{output} 2>&1\n{commands}");
    let done = Command::new("sh").args(["-e", "-c", &line]).stdin(Stdio::null()).status().expect("a shell");
    let printed = fs::read_to_string(output).expect("what it printed");
    println!("{commands}{printed}");
    assert!(done.success(), "{done}: {printed}");
    printed
}

/// Checks what was printed against what is shown; `scale` is this machine's memory by the page's. Returns the MiB that are kept for
/// each client.
fn check(shown: Block<'_>, printed: &str, scale: &mut Option<f64>) -> Vec<f64> {
    assert_eq!(shown.kind, "text");
    let ((due, said), (got, told)) = (clients(shown.text), clients(printed));
    page::check(&said, &told).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(due.len(), got.len(), "{printed}");
    for ((due_name, due), (name, got)) in due.iter().zip(&got) {
        assert_eq!(due_name, name, "{printed}");
        assert_eq!(due[2], got[2], "{name} is due another part of the disk: {printed}");
        assert!((got[1] - got[2]).abs() <= MAX_POINTS_OFF, "{name}: {} of {}: {printed}", got[1], got[2]);
        let scale = *scale.get_or_insert(got[0] / due[0]);
        let off = got[0] / due[0] / scale - 1.0;
        assert!(off.abs() <= MAX_MEMORY_OFF, "{name}: {} MiB: {printed}", got[0]);
    }
    got.iter().map(|(_, got)| got[0]).collect()
}

#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn memory_and_disk_are_traded_as_the_page_says() {
    let (path, disk) = scratch_disk();
    let mode = |path: &str, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    mode(&path, 0o666).expect("root may");
    fs::create_dir_all("/usr/local/bin").expect("root may");
    fs::write("/bin/runuser", RUNUSER).expect("root may");
    mode("/bin/runuser", 0o755).expect("root may");
    set_scheduler(disk, "none");
    let root = Cgroup::open(ROOT.as_ref()).expect("mounted");
    // Its model is slow enough to be what the readers wait for, however busy the machine is around this one: who waits for a CPU leaves
    // the disk to others, and parts would be those of the CPU.
    let here = |text: &str| {
        text.replace("/srv/data", &path).replace("/sys/block/vda/", &format!("/sys/dev/block/{disk}/"))
    };
    follow(&here(page::block(PAGE, "sh iocost")));
    assert!(root.get(&IO_COST_QOS).expect("readable")[&disk].enable, "the page has put iocost on");
    let work = Group::new("work");
    let mut daemon = divvyd(&work, "[users.alice]\ncpu = 2000\n[users.bob]\ncpu = 1000\n");
    let all = page::blocks(PAGE);
    let ours: Vec<&[Block<'_>]> = all.windows(2).filter(|two| two[0].kind == "sh cgroup").collect();
    assert_eq!(ours.len(), 3, "the blocks of the section");
    let (mut scale, mut all_mib) = (None, 0.0);
    for two in ours {
        let printed = follow(&here(two[0].text));
        let kept: f64 = check(two[1], &printed, &mut scale).iter().sum();
        all_mib = f64::max(all_mib, kept);
    }
    let users = dirs(&tree_in(work.cgroup.path()), "u");
    let min = |leaf: &Path| at(Cgroup::open(leaf).expect("there").get(&MEMORY_MIN).expect("there")) as f64;
    eventually("a quarter of all that can be kept", || {
        let leaves: Vec<_> = users.iter().flat_map(|user| dirs(user, "c")).collect();
        let reserved: f64 = leaves.iter().map(|leaf| min(leaf)).sum();
        let due = all_mib * MIB as f64 / 4.0;
        ((reserved / due - 1.0).abs() <= MAX_MEMORY_OFF).then_some(())
    });
    for user in users {
        fs::write(user.join("cgroup.kill"), "1").expect("the kernel has it");
    }
    daemon.stop();
    root.set(&IO_COST_QOS, &CostSettings::Qos(disk, CostQos::default())).expect("root may");
}
