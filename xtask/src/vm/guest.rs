//! The first process of the machine: mounts what there is, runs one command, and ends the machine with its code.

use std::ffi::CStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus};

use anyhow::{Context as _, Result, ensure};
use rustix::mount::{MountFlags, mount};
use rustix::process::{WaitOptions, wait};

use super::Job;

/// What the kernel starts: this program, by a name of its own.
pub(crate) const INIT: &str = "/init";
pub(super) const JOB: &str = "/etc/divvy-vm.json";
pub(super) const MODULES: &str = "/lib/modules";
/// Serial numbers of the disks.
pub(super) const OUT_DISK: &str = "out";
pub(super) const SCRATCH_DISK: &str = "scratch";
/// A line of the console that says the command's code.
pub(super) const EXIT_LINE: &str = "divvy-vm: the command ended with ";
/// Writing V to this port ends qemu with status 2V + 1.
pub(super) const EXIT_PORT: u16 = 0xf4;
const EXIT_VALUE: u32 = 0x2a;
pub(super) const EXIT_STATUS: i32 = 0x55;
/// The machine's code where the command could not even be started.
const NOT_STARTED: u8 = 125;

/// What [`INIT`] does. Never returns: the machine ends.
pub(crate) fn init() -> ! {
    let code = set_up().and_then(|()| work()).unwrap_or_else(|e| {
        println!("divvy-vm: {e:#}");
        NOT_STARTED
    });
    println!("\n{EXIT_LINE}{code}");
    let _ = std::io::stdout().flush();
    let _ = rustix::termios::tcdrain(std::io::stdout());
    power_off()
}

fn set_up() -> Result<()> {
    let none = MountFlags::empty();
    for (kind, place, flags, options) in [
        ("proc", "/proc", none, c""),
        ("sysfs", "/sys", none, c""),
        ("devtmpfs", "/dev", none, c""),
        ("devpts", "/dev/pts", none, c"mode=620,ptmxmode=666"),
        ("tmpfs", "/dev/shm", none, c"mode=1777"),
        ("tmpfs", "/tmp", none, c"mode=1777"),
        ("tmpfs", "/run", none, c"mode=755"),
        ("cgroup2", "/sys/fs/cgroup", none, c"nsdelegate"),
    ] {
        fs::create_dir_all(place).with_context(|| format!("create {place}"))?;
        mount(kind, place, kind, flags, options).with_context(|| format!("mount {kind} on {place}"))?;
    }
    for (link, to) in [("/dev/fd", "/proc/self/fd"), ("/dev/stdout", "/proc/self/fd/1")] {
        let _ = std::os::unix::fs::symlink(to, link);
    }
    let order = fs::read_to_string(format!("{MODULES}/order")).context("read the list of modules")?;
    for module in order.lines() {
        load(module, c"")?;
    }
    name_disks()?;
    fs::write("/proc/sys/kernel/hostname", "divvy-vm").context("name the machine")?;
    fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+cpu +memory +io +pids")
        .context("put the controllers on")?;
    let status = Command::new("/bin/busybox").args(["--install", "-s", "/bin"]).status();
    ensure!(status.context("start busybox")?.success(), "busybox --install failed");
    Ok(())
}

/// In the machine: loads a module that it has, called `NAME.ko`, with parameters.
///
/// # Errors
/// Where there is none of that name, or the kernel refuses it.
pub(crate) fn load(module: &str, parameters: &CStr) -> Result<()> {
    let file = fs::File::open(format!("{MODULES}/{module}")).with_context(|| format!("open {module}"))?;
    rustix::system::finit_module(&file, parameters, 0).with_context(|| format!("load {module}"))
}

/// Disks under their serial numbers in `/dev/disk`.
fn name_disks() -> Result<()> {
    fs::create_dir_all("/dev/disk").context("create /dev/disk")?;
    for entry in fs::read_dir("/sys/block").context("read /sys/block")?.flatten() {
        let Ok(serial) = fs::read_to_string(entry.path().join("serial")) else { continue };
        let device = Path::new("/dev").join(entry.file_name());
        let link = Path::new("/dev/disk").join(serial.trim());
        std::os::unix::fs::symlink(&device, &link).with_context(|| format!("link {}", link.display()))?;
    }
    Ok(())
}

/// Runs the command, takes in whoever is left over meanwhile, and puts the results onto their disk.
fn work() -> Result<u8> {
    let job = fs::read(JOB).with_context(|| format!("read {JOB}"))?;
    let job: Job = serde_json::from_slice(&job).with_context(|| format!("understand {JOB}"))?;
    let (program, arguments) = job.argv.split_first().context("no command")?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().current_dir("/root");
    command.envs([
        ("PATH", "/bin"),
        ("HOME", "/root"),
        ("USER", "root"),
        ("LANG", "C.UTF-8"),
        ("TERM", "linux"),
        ("DIVVY_VM", "1"),
    ]);
    let child = command.envs(&job.env).spawn().with_context(|| format!("start {program}"))?;
    let pid = i32::try_from(child.id()).context("a pid")?;
    let status = loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((who, status))) if who.as_raw_nonzero().get() == pid => {
                break ExitStatus::from_raw(status.as_raw());
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e).context("wait for the command"),
        }
    };
    let disk = Path::new("/dev/disk").join(OUT_DISK);
    if disk.exists() {
        let mut tar = Command::new("/bin/busybox");
        let packed = tar.args(["tar", "cf"]).arg(&disk).args(["-C", "/out", "."]).status();
        ensure!(packed.context("start tar")?.success(), "the results in /out could not be written");
        rustix::fs::sync();
    }
    let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(1);
    Ok(u8::try_from(code).unwrap_or(1))
}

/// Ends qemu by its own port: nothing else says how it went.
#[cfg(target_arch = "x86_64")]
fn power_off() -> ! {
    // SAFETY: takes and returns numbers.
    let permitted = unsafe { libc::ioperm(u64::from(EXIT_PORT), 4, 1) } == 0;
    if permitted {
        // SAFETY: the port is there for this (`Machine::command`), and touches no memory.
        unsafe {
            std::arch::asm!("out dx, eax", in("dx") EXIT_PORT, in("eax") EXIT_VALUE, options(nomem, nostack));
        }
    }
    // The first process may not end: the kernel's complaint about that ends the machine, too.
    std::process::exit(i32::from(NOT_STARTED))
}

#[cfg(not(target_arch = "x86_64"))]
fn power_off() -> ! {
    std::process::exit(i32::from(NOT_STARTED))
}
