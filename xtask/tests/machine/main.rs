//! The test machine, and what is tested in it. On this machine the tests of this file boot it; those of the modules run in
//! it, as the same program, and are ignored here (`cargo xtask vm test [NAME...]` shows each of them).

use std::path::Path;
use std::process::{Command, Output};

mod inside;

/// Each step up halves the machine's speed by its own clock: tests that wait for its clock are over sooner.
const SHIFT: &str = "3";

/// Tests that need the second machine.
const DISKS: &str = "inside::disk::";

/// Says why nothing was tested; `scripts/test.sh` lists and counts these.
#[expect(clippy::disallowed_methods, reason = "where the skips are counted is said by the environment")]
fn skip(test: &str, reason: &str) {
    use std::io::Write as _;
    eprintln!("SKIPPED {test}: {reason}");
    if let Some(path) = std::env::var_os("DIVVY_TEST_SKIPS") {
        let file = std::fs::OpenOptions::new().append(true).open(path);
        let _ = file.and_then(|mut file| writeln!(file, "{test}: {reason}"));
    }
}

/// Whether a machine can be booted here. Where not, the test is skipped aloud, and in CI it fails.
#[expect(clippy::disallowed_methods, reason = "whether this is CI is said by the environment")]
fn can_boot(test: &str) -> bool {
    let fetched =
        Command::new(env!("CARGO_BIN_EXE_xtask")).args(["vm", "fetch"]).output().expect("run xtask");
    if fetched.status.success() {
        return true;
    }
    let why = String::from_utf8_lossy(&fetched.stderr).trim().replace('\n', " ");
    assert!(std::env::var_os("CI").is_none(), "no test machine in CI: {why}");
    skip(test, &why);
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

/// Runs the tests of the modules in the machine: those of disks, or the others.
#[expect(clippy::disallowed_methods, reason = "which tests are wanted is said by the environment")]
fn check_inside(name: &str, machine: &[&str], disks: bool) {
    if !can_boot(name) {
        return;
    }
    let named = std::env::var("DIVVY_VM_TESTS").unwrap_or_default();
    let wanted: Vec<&str> = named.split_whitespace().filter(|name| name.contains("disk") == disks).collect();
    if wanted.is_empty() && !named.trim().is_empty() {
        return; // None of them is in this machine.
    }
    let own = std::env::current_exe().expect("this program");
    let (path, file) = (own.to_str().expect("a path"), own.file_name().expect("a name"));
    let program = format!("/bin/{}", file.to_str().expect("a name"));
    let mut command = vec![program.as_str(), "--ignored", "--test-threads=1", "--show-output"];
    // Several words mean any of them.
    if disks && wanted.is_empty() {
        command.push(DISKS);
    } else if !disks {
        command.extend(["--skip", DISKS]);
    }
    command.extend(&wanted);
    let mut options = vec!["--disk", "64", "--add", path];
    options.extend(machine);
    let done = run(&options, &command);
    let stdout = text(&done.stdout);
    println!("{stdout}");
    assert!(done.status.success(), "{stdout}{}", text(&done.stderr));
    let result = stdout.lines().find(|line| line.starts_with("test result: ok. ")).expect("a result");
    assert!(!result.starts_with("test result: ok. 0 passed"), "no such test: {named}");
}

#[test]
fn tests_inside_pass() {
    check_inside("machine::tests_inside_pass", &["--shift", SHIFT], false);
}

/// In real time: a disk's answers come in no other.
#[test]
fn disk_tests_inside_pass() {
    check_inside("machine::disk_tests_inside_pass", &["--profile", "two-cpus"], true);
}
