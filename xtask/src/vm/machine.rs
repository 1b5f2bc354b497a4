//! qemu: its profiles, its life, and what comes out of it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum;
use divvy_linux::clock;
use divvy_policy::Nanos;
use rustix::event::{PollFd, PollFlags, poll};

use super::guest;

pub(super) const QEMU: &str = "qemu-system-x86_64";
/// A machine with nothing that was not asked for.
pub(super) const BARE: [&str; 9] =
    ["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-machine", "pc", "-cpu", "max"];
/// What its kernel is told: the same addresses, and so the same costs, in every run. Left to itself,
/// the kernel tests its ciphers for the first seconds, in a thread that has half of the CPU meanwhile.
pub(super) const LINE: &str = "console=ttyS0 quiet loglevel=3 panic=-1 oops=panic nokaslr norandmaps psi=1 \
                               random.trust_cpu=1 cryptomgr.notests";
/// And that of one whose cgroups are of version 2 alone.
const VERSION_TWO: &str = " cgroup_no_v1=all";
/// And that of a machine in real time. On a busy host it finds two of its clocks apart, and patches its code for that while it
/// runs: what qemu may take for a breakpoint. Or it waits for a timer's interrupts, has too few of them in its loop, and
/// panics.
const REAL_TIME: &str = " tsc=reliable no_timer_check";
/// How much of a console is shown when a machine died.
const TAIL: usize = 2_000;
/// What the kernel says when it meets a breakpoint of its own making that it has taken back: it patches itself by them, and
/// qemu before 8.1, with a thread for each CPU, may run what stood there before (`Always lock pages before translation`).
const STALE_BREAKPOINT: &str = "Oops: int3";
/// A machine that died of that is started again, so often in all.
const STARTS: usize = 3;
/// Results of one machine, at most.
const OUT_BYTES: u64 = 256 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Profile {
    /// One CPU; time is counted in instructions
    Deterministic,
    /// Two CPUs, in real time
    TwoCpus,
    /// Two CPUs that take turns; time is counted in the instructions of both
    TwoCpusCounted,
    /// Four CPUs that take turns, as well
    FourCpusCounted,
}

/// A machine that can be started.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) profile: Profile,
    pub(super) shift: u8,
    pub(super) memory_mib: u32,
    pub(super) kernel: PathBuf,
    pub(super) initrd: PathBuf,
    pub(super) disk_mib: Option<u32>,
    pub(super) disk_rate: Option<u64>,
    /// Whether cgroups of version 1 can be mounted.
    pub(super) version_one: bool,
    /// Where what it leaves in `/out` goes.
    pub(super) out: Option<PathBuf>,
    pub(super) timeout: Option<Nanos>,
    /// Whether the terminal is the machine's console.
    pub(super) interactive: bool,
}

pub(super) fn nanos(time: std::time::Duration) -> Nanos {
    Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// Whether there is a qemu to start.
///
/// # Errors
/// With what would help.
pub(super) fn check() -> Result<()> {
    let found = Command::new(QEMU).arg("--version").stdout(Stdio::null()).status();
    let fix = "install qemu-system-x86, or run scripts/setup.sh";
    ensure!(
        found.with_context(|| format!("{QEMU} is missing: {fix}"))?.success(),
        "{QEMU} does not run: {fix}"
    );
    Ok(())
}

impl Machine {
    fn command(&self, work: &Path) -> Result<Command> {
        let mut qemu = Command::new(QEMU);
        qemu.args(BARE).args(["-m", &self.memory_mib.to_string()]);
        match self.profile {
            Profile::Deterministic | Profile::TwoCpusCounted | Profile::FourCpusCounted => {
                let cpus = match self.profile {
                    Profile::Deterministic => "1",
                    Profile::FourCpusCounted => "4",
                    _ => "2",
                };
                // A halted CPU takes no time: the clock goes on to the next timer at once.
                let icount = format!("shift={},sleep=off,align=off", self.shift);
                qemu.args(["-smp", cpus, "-accel", "tcg,thread=single", "-icount", &icount, "-seed", "1"]);
                qemu.args(["-rtc", "base=2026-01-01T00:00:00,clock=vm"]);
            }
            Profile::TwoCpus => {
                qemu.args(["-smp", "2", "-accel", "tcg,thread=multi"]);
            }
        }
        let mut line = LINE.to_owned();
        if !self.version_one {
            line.push_str(VERSION_TWO);
        }
        if self.profile == Profile::TwoCpus {
            line.push_str(REAL_TIME);
        }
        qemu.arg("-kernel").arg(&self.kernel).arg("-initrd").arg(&self.initrd).args(["-append", &line]);
        qemu.args(["-device", &format!("isa-debug-exit,iobase={:#x},iosize=4", guest::EXIT_PORT)]);
        let mux = if self.interactive { "mux=on,signal=off" } else { "mux=off" };
        let log = work.join("console");
        qemu.args(["-chardev", &format!("stdio,id=console,{mux},logfile={}", log.display())]);
        qemu.args(["-serial", "chardev:console"]);
        if self.interactive {
            qemu.args(["-mon", "chardev=console,mode=readline"]);
        }
        if self.out.is_some() {
            disk(&mut qemu, work, guest::OUT_DISK, OUT_BYTES, None)?;
        }
        if let Some(mib) = self.disk_mib {
            disk(&mut qemu, work, guest::SCRATCH_DISK, u64::from(mib) << 20, self.disk_rate)?;
        }
        Ok(qemu)
    }

    /// Starts it, waits for its end, and returns the code of the command in it.
    ///
    /// # Errors
    /// That it cannot be started, ended without a word, or took too long; with the end of its console.
    pub(super) fn run(&self, work: &Path) -> Result<u8> {
        for _ in 1..STARTS {
            match self.run_once(work) {
                Err(e) if format!("{e:#}").contains(STALE_BREAKPOINT) => {
                    eprintln!(
                        "vm: qemu ran a breakpoint that was there no more, as it does before 8.1: started again"
                    );
                }
                ended => return ended,
            }
        }
        self.run_once(work)
    }

    fn run_once(&self, work: &Path) -> Result<u8> {
        let mut qemu = self.command(work)?;
        if !self.interactive {
            qemu.stdin(Stdio::null()).stdout(Stdio::piped());
        }
        // SAFETY: prctl is a system call that takes and returns numbers, and may be called between fork and exec.
        unsafe {
            qemu.pre_exec(|| {
                crate::client::die_with_parent(libc::SIGKILL);
                Ok(())
            });
        }
        let mut child = qemu.spawn().with_context(|| format!("start {QEMU}"))?;
        let passed = self.pass_on(&mut child);
        if passed.is_err() {
            let _ = child.kill();
        }
        let status = child.wait().context("wait for qemu")?;
        let console = fs::read(work.join("console")).unwrap_or_default();
        let console = String::from_utf8_lossy(&console).replace('\r', "");
        let tail = || {
            let from = console.char_indices().rev().nth(TAIL).map_or(0, |(at, _)| at);
            format!("the end of its console:\n{}", console.get(from..).unwrap_or_default().trim_end())
        };
        if let Err(e) = passed {
            bail!("{e:#}; {}", tail());
        }
        // Both have to be there: the line alone could be anybody's, the status says no code.
        let said = console.lines().rev().find_map(|line| line.strip_prefix(guest::EXIT_LINE));
        let code = said.and_then(|code| code.trim().parse::<u8>().ok());
        let (Some(code), Some(guest::EXIT_STATUS)) = (code, status.code()) else {
            let of = if console.contains(STALE_BREAKPOINT) { STALE_BREAKPOINT } else { "no known cause" };
            bail!("the machine died of {of} (qemu: {status}); {}", tail());
        };
        if let Some(out) = &self.out {
            unpack(&work.join(guest::OUT_DISK), out)?;
        }
        Ok(code)
    }

    /// Passes its console on until it ends.
    fn pass_on(&self, child: &mut Child) -> Result<()> {
        let Some(mut console) = child.stdout.take() else { return Ok(()) };
        let end = self.timeout.map(|timeout| clock::now() + timeout);
        let mut buffer = [0; 4096];
        loop {
            if let Some(end) = end {
                let left = end.since(clock::now());
                let time = rustix::time::Timespec {
                    tv_sec: i64::try_from(left.0 / 1_000_000_000).unwrap_or(i64::MAX),
                    tv_nsec: i64::try_from(left.0 % 1_000_000_000).unwrap_or(0),
                };
                let ready = poll(&mut [PollFd::new(&console, PollFlags::IN)], Some(&time));
                match ready {
                    Ok(0) => {
                        let time = humantime::format_duration(std::time::Duration::from_nanos(
                            self.timeout.map_or(0, |t| t.0),
                        ));
                        bail!("the machine was not through after {time} and was stopped");
                    }
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(e) => return Err(e).context("wait for the console"),
                }
            }
            match console.read(&mut buffer).context("read the console")? {
                0 => return Ok(()),
                n => {
                    let text: Vec<u8> = buffer[..n].iter().copied().filter(|&b| b != b'\r').collect();
                    let mut out = std::io::stdout().lock();
                    out.write_all(&text).and_then(|()| out.flush()).context("write to standard output")?;
                }
            }
        }
    }
}

/// A disk that the machine knows by its name.
fn disk(qemu: &mut Command, work: &Path, name: &str, bytes: u64, rate: Option<u64>) -> Result<()> {
    let path = work.join(name);
    let file = fs::File::create(&path).with_context(|| format!("create {}", path.display()))?;
    file.set_len(bytes).with_context(|| format!("make {} {bytes} bytes long", path.display()))?;
    let rate = rate.map_or(String::new(), |rate| format!(",throttling.bps-total={rate}"));
    let drive = format!("file={},if=none,id={name},format=raw,cache=unsafe{rate}", path.display());
    qemu.args(["-drive", &drive, "-device", &format!("virtio-blk-pci,drive={name},serial={name}")]);
    Ok(())
}

/// Takes what the machine wrote onto the disk for results.
fn unpack(disk: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("create {}", to.display()))?;
    let output = Command::new("tar").arg("-xf").arg(disk).arg("--no-same-owner").arg("-C").arg(to).output();
    let output = output.context("start tar")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "unpack the machine's results: {}", errors.trim());
    Ok(())
}
