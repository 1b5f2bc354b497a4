//! A machine whose cgroups are of version 1: the CPU and the freezer serve, and memory and disks are said not to.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use divvy_linux::{Pid, procfs};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::backend::{Daemon, check_parts, check_success, dirs, eventually, output};
use super::{ROOT, SPIN, check_inside, sleep};

/// Mounts these in the place of version 2.
fn mount_version_one() {
    check_inside();
    let root = Path::new(ROOT);
    if root.join("freezer").exists() {
        return; // Another test was here.
    }
    fs::write(root.join("cgroup.subtree_control"), "-cpu -io -memory -pids").expect("nobody is below it");
    unmount(ROOT, UnmountFlags::empty()).expect("root may");
    mount("none", ROOT, "tmpfs", MountFlags::empty(), None::<&std::ffi::CStr>).expect("root may");
    for (name, options) in [("cpu", c"cpu,cpuacct"), ("freezer", c"freezer"), ("blkio", c"blkio")] {
        let dir = root.join(name);
        fs::create_dir(&dir).expect("root may");
        mount("none", &dir, "cgroup", MountFlags::empty(), Some(options)).expect("the kernel has it");
    }
}

/// A shell that computes until the test ends.
struct Spinner(std::process::Child);

impl Spinner {
    fn start() -> Self {
        Self(Command::new("sh").args(["-c", SPIN]).stdin(Stdio::null()).spawn().expect("a shell"))
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    fn ticks(&self) -> u64 {
        procfs::stat(self.pid()).expect("readable").expect("alive").utime
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn trees(controller: &str) -> Vec<PathBuf> {
    dirs(&Path::new(ROOT).join(controller), "divvy-").into_iter().collect()
}

/// Two that are attached as 1:3 are divided so.
fn check_divided(daemon: &Daemon, spinners: &[Spinner; 2]) {
    for (spinner, share) in spinners.iter().zip(["1", "3"]) {
        check_success(&mut daemon.divvy(&["attach", "-s", share, "--tree", &spinner.pid().to_string()]));
    }
    sleep(500);
    let begun = spinners.each_ref().map(Spinner::ticks);
    sleep(10_000);
    let ended = spinners.each_ref().map(Spinner::ticks);
    check_parts(&[0, 1].map(|i: usize| ended[i] - begun[i]), &[1, 3]);
}

#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn cpu_shares_divide_and_the_rest_is_refused() {
    mount_version_one();
    let spinners = [(); 2].map(|()| Spinner::start());
    let mut daemon = Daemon::user("own", &["--backend", "cgroup"]);
    check_divided(&daemon, &spinners);
    for option in [["--limit", "memory:1G"], ["--reserve", "memory:1M"]] {
        let done = output(daemon.divvy(&["run"]).args(option).args(["--", "true"]));
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{said}");
        assert!(said.contains("version 1 of cgroups has the memory controller, or nobody has: "), "{said}");
        assert!(said.contains("boot with cgroup_no_v1=all"), "{said}");
    }
    let told = check_success(&mut daemon.divvy(&["ls", "--wide"]));
    assert!(told.contains("memory: rights are kept and not enforced: version 1 of cgroups has"), "{told}");
    assert!(told.contains("disk: by suspending, by /proc/PID/io"), "{told}");
    // Killed with its guardian, it leaves its cgroups to the next one.
    daemon.kill_with_its_guardian();
    assert_eq!(trees("cpu").len(), 1, "nobody is left to remove it");
    let mut next = Daemon::user("own", &["--backend", "cgroup"]);
    let all = trees("cpu");
    assert!(
        all.len() == 1 && all[0].to_string_lossy().contains(&format!("divvy-{}-", next.pid())),
        "{all:?}"
    );
    next.stop();
    assert!(trees("cpu").is_empty());
    for spinner in &spinners {
        let places = fs::read_to_string(format!("/proc/{}/cgroup", spinner.pid())).expect("alive");
        assert!(places.lines().all(|line| line.ends_with(":/")), "{places}");
    }
}

#[test]
#[ignore = "runs in the test machine: cargo xtask vm test"]
fn the_freezer_holds() {
    mount_version_one();
    let spinners = [(); 2].map(|()| Spinner::start());
    let mut daemon = Daemon::user("own", &["--backend", "freezer"]);
    check_divided(&daemon, &spinners);
    let all = trees("freezer");
    assert_eq!(all.len(), 1, "{all:?}");
    eventually("somebody to be frozen", || {
        let states = dirs(&all[0], "c")
            .into_iter()
            .filter_map(|leaf| fs::read_to_string(leaf.join("freezer.state")).ok());
        states.into_iter().any(|state| state.trim() == "FROZEN").then_some(())
    });
    daemon.kill_with_its_guardian();
    check_success(&mut daemon.divvy(&["rescue"]));
    assert!(trees("freezer").is_empty());
    let begun = spinners.each_ref().map(Spinner::ticks);
    eventually("both to run", || {
        [0, 1].iter().all(|&i: &usize| spinners[i].ticks() > begun[i]).then_some(())
    });
}
