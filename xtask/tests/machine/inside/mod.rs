//! What runs in the machine, as root, alone, on a kernel with cgroup v2 and nothing else.

use std::fs;
use std::path::Path;

const ROOT: &str = "/sys/fs/cgroup";

/// Refuses to run anywhere else: these tests change the machine's cgroups.
fn check_inside() {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    assert_eq!(name.trim(), "divvy-vm", "this test runs in the test machine: cargo xtask vm test");
}

#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn all_controllers_are_version_two() {
    check_inside();
    let own = fs::read_to_string("/proc/self/cgroup").expect("readable");
    assert_eq!(own, "0::/\n", "one hierarchy");
    let on = fs::read_to_string(Path::new(ROOT).join("cgroup.subtree_control")).expect("readable");
    assert_eq!(on.trim(), "cpu io memory pids");
}
