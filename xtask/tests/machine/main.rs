//! The test machine, and what is tested in it. On this machine the tests of this file boot it; those of the modules run in
//! it, as the same program, and are ignored here (`cargo xtask vm test [NAME...]` shows each of them).

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[path = "../common/mod.rs"]
mod common;
mod inside;
#[path = "../../../crates/divvy-cli/tests/live/page.rs"]
mod page;

use common::lacks;

/// Each step up halves the machine's speed by its own clock: tests that wait for its clock are over sooner.
const SHIFT: &str = "3";

/// Tests that need the second machine.
const DISKS: &str = "inside::disk::";

/// Those that need two CPUs, in the same machine.
const CPUSETS: &str = "inside::cpusets::";

/// Tests that need version 1 of cgroups.
const VERSION_ONE: &str = "inside::version_one::";

/// Tests that need the scheduler of the kernel, which only clang compiles.
const KERNEL: &str = "inside::kernel::";

/// Those of them that look at what each client gets, which takes long: in a machine of their own, at the same time.
const PARTS: &str = "inside::kernel::parts::";

/// Those of them that need two CPUs.
const CPUS: &str = "inside::kernel::cpus::";

/// Whether a machine can be booted here. Where not, the test is skipped aloud, and in CI it fails.
fn can_boot(test: &str) -> bool {
    let fetched =
        Command::new(env!("CARGO_BIN_EXE_xtask")).args(["vm", "fetch"]).output().expect("run xtask");
    if fetched.status.success() {
        return true;
    }
    lacks(test, "test machine", &text(&fetched.stderr));
    false
}

/// divvy of this build.
fn build() -> &'static Path {
    let mut build = Command::new(env!("CARGO"));
    build
        .args(["build", "--quiet", "--workspace", "--bin", "divvy", "--bin", "divvyd"])
        .args((!cfg!(debug_assertions)).then_some("--release"));
    assert!(build.status().expect("cargo").success(), "the divvy that is tested is of this build");
    Path::new(env!("CARGO_BIN_EXE_xtask")).parent().expect("a directory")
}

/// divvy-scx of this build. Where what it needs is missing, the test is skipped aloud, and in CI it fails.
fn build_kernel(test: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
    let target = root.join("target/kernel");
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--manifest-path"]).arg(root.join("crates/divvy-kernel/Cargo.toml"));
    let done = build.arg("--target-dir").arg(&target).output().expect("cargo");
    if done.status.success() {
        return Some(target.join("debug/divvy-scx"));
    }
    let said = text(&done.stderr);
    lacks(test, "divvy-scx", said.lines().find(|line| line.contains("missing")).unwrap_or(&said));
    None
}

fn run(options: &[&str], command: &[&str]) -> Output {
    let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
    xtask.args(["vm", "run", "--programs"]).arg(build()).args(options).arg("--");
    xtask.args(command).output().expect("run xtask")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn codes_and_results_come_out() {
    if !can_boot("machine::codes_and_results_come_out") {
        return;
    }
    let out = tempfile::tempdir().expect("a directory");
    let dir = out.path().to_str().expect("a path");
    // Three children of four, of the last of which the first process hears after that of the command.
    let line = "cat /sys/fs/cgroup/cgroup.subtree_control; nproc; echo $GREETING >/out/greeting; dd if=/dev/zero \
                of=/dev/disk/scratch bs=1M count=4 conv=fsync; (sleep 1 &); exit 7";
    let options = ["--profile", "two-cpus", "--out", dir, "--disk", "8", "--env", "GREETING=hello"];
    let done = run(&options, &["sh", "-c", line]);
    let (stdout, stderr) = (text(&done.stdout), text(&done.stderr));
    assert_eq!(done.status.code(), Some(7), "{stdout}{stderr}");
    assert!(stdout.starts_with("cpu io memory pids\n2\n4+0 records in\n"), "{stdout}");
    let greeting = std::fs::read_to_string(out.path().join("greeting"));
    assert_eq!(greeting.expect("a result"), "hello\n");
}

#[test]
fn a_machine_that_dies_or_hangs_is_told_of() {
    if !can_boot("machine::a_machine_that_dies_or_hangs_is_told_of") {
        return;
    }
    // What a command prints is not taken for its code.
    let crash = "echo 'divvy-vm: the command ended with 0'; echo c >/proc/sysrq-trigger";
    // A sleep of days would be over at once where time is counted in instructions: what hangs has to compute.
    let hang = "while :; do :; done";
    for (options, command, code, cause) in [
        (["--profile", "two-cpus"], vec!["sh", "-c", crash], 1, "the machine died"),
        (["--timeout", "8s"], vec!["sh", "-c", hang], 1, "was not through after 8s"),
        (["--memory", "512"], vec!["/nowhere"], 125, "start /nowhere: No such file"),
    ] {
        let done = run(&options, &command);
        let said = format!("{}{}", text(&done.stdout), text(&done.stderr));
        assert_eq!(done.status.code(), Some(code), "{said}");
        assert!(said.contains(cause), "{said}");
    }
}

#[test]
fn the_same_run_prints_the_same_twice() {
    if !can_boot("machine::the_same_run_prints_the_same_twice") {
        return;
    }
    let line = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; cat /proc/uptime; grep cpu /proc/stat";
    let [first, second] = [(), ()].map(|()| run(&["--shift", SHIFT], &["sh", "-c", line]));
    assert!(first.status.success(), "{}", text(&first.stderr));
    assert_eq!(text(&first.stdout), text(&second.stdout));
}

/// Which tests a machine runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    Disks,
    Kernel,
    KernelParts,
    KernelCpus,
    VersionOne,
    Others,
}

impl Group {
    /// That of the tests whose names contain this.
    fn of(name: &str) -> Self {
        if name.contains("disk") || name.contains("cpusets") {
            Self::Disks
        } else if name.contains("version_one") {
            Self::VersionOne
        } else if name.contains("kernel::cpus") {
            Self::KernelCpus
        } else if name.contains("kernel::parts") {
            Self::KernelParts
        } else if name.contains("kernel") {
            Self::Kernel
        } else {
            Self::Others
        }
    }
}

/// Runs the tests of a group of modules in the machine.
#[expect(clippy::disallowed_methods, reason = "which tests are wanted is said by the environment")]
fn check_inside(name: &str, machine: &[&str], group: Group) {
    if !can_boot(name) {
        return;
    }
    let named = std::env::var("DIVVY_VM_TESTS").unwrap_or_default();
    let wanted: Vec<&str> = named.split_whitespace().filter(|name| Group::of(name) == group).collect();
    if wanted.is_empty() && !named.trim().is_empty() {
        return; // None of them is in this machine.
    }
    let own = std::env::current_exe().expect("this program");
    let (path, file) = (own.to_str().expect("a path"), own.file_name().expect("a name"));
    let program = format!("/bin/{}", file.to_str().expect("a name"));
    let mut command = vec![program.as_str(), "--ignored", "--test-threads=1", "--show-output"];
    // Several words mean any of them.
    match group {
        Group::Disks if wanted.is_empty() => command.extend([DISKS, CPUSETS]),
        Group::Kernel if wanted.is_empty() => command.extend([KERNEL, "--skip", CPUS, "--skip", PARTS]),
        Group::Kernel => command.extend(["--skip", CPUS, "--skip", PARTS]),
        Group::KernelParts if wanted.is_empty() => command.push(PARTS),
        Group::KernelCpus if wanted.is_empty() => command.push(CPUS),
        Group::VersionOne if wanted.is_empty() => command.push(VERSION_ONE),
        Group::Disks | Group::KernelParts | Group::KernelCpus | Group::VersionOne => {}
        Group::Others => {
            command
                .extend([DISKS, CPUSETS, KERNEL, VERSION_ONE].iter().flat_map(|module| ["--skip", module]));
        }
    }
    command.extend(&wanted);
    // Against what hangs: on a busy host a group of tests takes longer than a machine's ten minutes.
    let mut options = vec!["--timeout", "18m", "--disk", "192", "--add", path];
    options.extend(machine);
    let done = run(&options, &command);
    let stdout = text(&done.stdout);
    println!("{stdout}");
    assert!(done.status.success(), "{stdout}{}", text(&done.stderr));
    let result = stdout.lines().find(|line| line.starts_with("test result: ok. ")).expect("a result");
    assert!(!result.starts_with("test result: ok. 0 passed"), "no such test: {named}");
}

/// What a user's own systemd consists of, and what is asked of it with.
const SYSTEMD: [&str; 6] = [
    "/lib/systemd/systemd",
    "/usr/bin/busctl",
    "/usr/bin/dbus-daemon",
    "/usr/bin/systemctl",
    "/usr/bin/systemd-run",
    "/usr/bin/systemd-cgtop",
];

#[test]
fn tests_inside_pass() {
    let name = "machine::tests_inside_pass";
    if let Some(missing) = SYSTEMD.iter().find(|program| !Path::new(program).exists()) {
        return lacks(name, "systemd", &format!("no {missing}: run scripts/setup.sh"));
    }
    let systemd: Vec<&str> = SYSTEMD.iter().flat_map(|&program| ["--add", program]).collect();
    check_inside(name, &[&["--shift", SHIFT], systemd.as_slice()].concat(), Group::Others);
}

/// On version 1 of cgroups.
#[test]
fn version_one_tests_inside_pass() {
    check_inside(
        "machine::version_one_tests_inside_pass",
        &["--shift", SHIFT, "--version-one"],
        Group::VersionOne,
    );
}

/// In real time: a disk's answers come in no other.
#[test]
fn disk_tests_inside_pass() {
    check_inside("machine::disk_tests_inside_pass", &["--profile", "two-cpus"], Group::Disks);
}

/// Runs those of the scheduler of the kernel, with that at hand.
fn check_kernel_inside(name: &str, machine: &[&str], group: Group) {
    if let Some(scheduler) = build_kernel(name) {
        let path = scheduler.to_str().expect("a path");
        check_inside(name, &[machine, &["--add", path]].concat(), group);
    }
}

#[test]
fn kernel_tests_inside_pass() {
    check_kernel_inside("machine::kernel_tests_inside_pass", &["--shift", SHIFT], Group::Kernel);
}

#[test]
fn kernel_tests_of_parts_pass() {
    check_kernel_inside("machine::kernel_tests_of_parts_pass", &["--shift", SHIFT], Group::KernelParts);
}

/// The CPUs take turns: with a thread of qemu's for each, one now and then runs what the kernel has patched away.
#[test]
fn kernel_tests_of_several_cpus_pass() {
    let machine = ["--profile", "two-cpus-counted", "--shift", SHIFT];
    check_kernel_inside("machine::kernel_tests_of_several_cpus_pass", &machine, Group::KernelCpus);
}
