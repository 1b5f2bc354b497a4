//! What is scheduled: programs that compute, or compute and sleep in turns.
//!
//! They are this program itself, started as `xtask spin PARENT`, `xtask io PARENT RUN_MS SLEEP_MS LOG`, `xtask threads
//! PARENT N` or `xtask tree PARENT N`, so that an experiment needs nothing else. They end when the scheduler that started them does, however it went.

use std::io::Write as _;

use anyhow::{Context as _, Result, bail};
use divvy_linux::clock;
use divvy_policy::Nanos;

/// The hidden subcommand that computes.
pub(crate) const SPIN: &str = "spin";
/// The hidden subcommand that computes and sleeps in turns.
pub(crate) const IO: &str = "io";
/// The hidden subcommand whose threads compute.
pub(crate) const THREADS: &str = "threads";
/// The hidden subcommand whose children compute.
pub(crate) const TREE: &str = "tree";

/// Ends this process when its parent does; ends it at once if that is gone already.
pub(crate) fn end_with_parent(args: &mut impl Iterator<Item = String>) -> Result<()> {
    let parent: u32 = args.next().context("the parent's pid is missing")?.parse()?;
    die_with_parent(libc::SIGKILL);
    if std::os::unix::process::parent_id() != parent {
        bail!("the scheduler that started this client has ended");
    }
    Ok(())
}

/// Asks the kernel to send `signal` to this process when the thread that started it ends.
pub(crate) fn die_with_parent(signal: i32) {
    // SAFETY: takes and returns numbers only.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) };
}

/// Computes until killed.
pub(crate) fn spin(mut args: impl Iterator<Item = String>) -> Result<()> {
    end_with_parent(&mut args)?;
    compute()
}

fn compute() -> ! {
    let mut x = 1_u64;
    loop {
        x = std::hint::black_box(x.wrapping_mul(31).wrapping_add(7));
    }
}

/// The next argument, a whole number that is called `what`.
pub(crate) fn number(args: &mut impl Iterator<Item = String>, what: &str) -> Result<u64> {
    Ok(args.next().with_context(|| format!("{what} is missing"))?.parse()?)
}

/// Computes in N threads until killed.
pub(crate) fn threads(mut args: impl Iterator<Item = String>) -> Result<()> {
    end_with_parent(&mut args)?;
    for _ in 1..number(&mut args, "N")? {
        std::thread::Builder::new().spawn(|| compute())?;
    }
    compute()
}

/// Starts N children that compute, and waits for them.
pub(crate) fn tree(mut args: impl Iterator<Item = String>) -> Result<()> {
    end_with_parent(&mut args)?;
    let own = std::env::current_exe().context("find this program")?;
    let pid = std::process::id().to_string();
    let start = |_| std::process::Command::new(&own).args([SPIN, &pid]).spawn();
    let children: Result<Vec<_>, _> = (0..number(&mut args, "N")?).map(start).collect();
    for mut child in children? {
        child.wait()?;
    }
    Ok(())
}

/// Computes for RUN_MS of CPU time, sleeps for SLEEP_MS, and so on until killed. With LOG = 1 each sleep's beginning
/// and end (monotonic, ns) go to standard output as a line.
pub(crate) fn io(mut args: impl Iterator<Item = String>) -> Result<()> {
    end_with_parent(&mut args)?;
    let run = Nanos::from_millis(number(&mut args, "RUN_MS")?);
    let sleep = Nanos::from_millis(number(&mut args, "SLEEP_MS")?);
    let logs = number(&mut args, "LOG")? == 1;
    let mut out = std::io::stdout().lock();
    let mut x = 1_u64;
    // Due on the CPU clock, so that what is computed too much in one turn is taken from the next.
    let mut due = clock::own_thread_cpu();
    loop {
        due += run;
        while clock::own_thread_cpu() < due {
            for _ in 0..2_000 {
                x = std::hint::black_box(x.wrapping_mul(31).wrapping_add(7));
            }
        }
        let asleep = clock::now();
        clock::sleep(sleep);
        if logs {
            writeln!(out, "{} {}", asleep.0, clock::now().0)?;
            out.flush()?;
        }
    }
}
