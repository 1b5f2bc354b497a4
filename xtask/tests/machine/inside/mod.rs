//! What runs in the machine, as root, alone, on a kernel with cgroup v2 and nothing else.

mod backend;
mod bounds;
mod cpusets;
mod disk;
mod everything;
mod kernel;
mod room;
mod systemd;
mod underneath;
mod version_one;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use divvy_linux::cgroup::room::{Cgroup, Device};
use divvy_linux::{Pid, clock};
use divvy_policy::Nanos;

const ROOT: &str = "/sys/fs/cgroup";
/// Computes until it is killed.
const SPIN: &str = "while :; do :; done";

/// Refuses to run anywhere else: these tests change the machine's cgroups.
fn check_inside() {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    assert_eq!(name.trim(), "divvy-vm", "this test runs in the test machine: cargo xtask vm test");
}

fn sleep(ms: u64) {
    clock::sleep(Nanos::from_millis(ms));
}

/// A cgroup below the root, and all in it, for the time of a test.
struct Group {
    cgroup: Cgroup,
    name: String,
}

impl Group {
    fn new(name: &str) -> Self {
        check_inside();
        let root = Cgroup::open(ROOT.as_ref()).expect("cgroup v2");
        Self { cgroup: root.make(name).expect("root may"), name: name.to_owned() }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let dir = Path::new(ROOT).join(&self.name);
        fs::write(dir.join("cgroup.kill"), "1").expect("the kernel has it");
        remove(&dir);
    }
}

/// Removes a cgroup and all in it. One is busy until the last of those killed is gone.
fn remove(dir: &Path) {
    for _ in 0..1_000 {
        for child in fs::read_dir(dir).into_iter().flatten().flatten() {
            if child.file_type().is_ok_and(|kind| kind.is_dir()) {
                remove(&child.path());
            }
        }
        if fs::remove_dir(dir).is_ok() || !dir.exists() {
            return;
        }
        sleep(10);
    }
    panic!("{} cannot be removed", dir.display());
}

/// A shell's command in a cgroup, killed with the test.
struct Child {
    child: std::process::Child,
    pid: Pid,
}

impl Child {
    /// Starts it in there, so that nothing of it is ever elsewhere. Once it has been there a divvyd may move it at any time.
    fn start(cgroup: &Cgroup, line: &str) -> Self {
        let door =
            fs::File::options().write(true).open(cgroup.path().join("cgroup.procs")).expect("root may");
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).stdin(Stdio::null());
        // SAFETY: write is a system call on a file that is open, and may be called between fork and exec.
        unsafe {
            shell.pre_exec(move || Ok(rustix::io::write(&door, b"0").map(drop)?));
        }
        let child = shell.spawn().expect("a shell");
        let pid = Pid::from_child(&child);
        Self { child, pid }
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end();
    }
}

/// The machine's empty disk: its device file, and its numbers.
fn scratch_disk() -> (String, Device) {
    let path = fs::canonicalize("/dev/disk/scratch").expect("the machine has a disk");
    let number = fs::metadata(&path).expect("a device").rdev();
    let device = Device { major: rustix::fs::major(number), minor: rustix::fs::minor(number) };
    (path.to_string_lossy().into_owned(), device)
}

fn set_scheduler(disk: Device, name: &str) {
    fs::write(format!("/sys/dev/block/{disk}/queue/scheduler"), name).expect("the kernel has it");
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
