//! Threads: what one does, and where it runs.

use std::os::fd::AsFd;

use super::{ProcPath, STAT_BYTES, StartTime, Stat, State, number, open_raw, pread_whole, stat_raw};
use crate::{Pid, Result};

/// Fields of `/proc/PID/task/TID/stat`, counted from the state: when a thread began, and the CPU that it ran on last.
const START: usize = 19;
const PROCESSOR: usize = 36;

/// A thread that runs, or waits to, on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// The kernel's number of the CPU.
    pub cpu: u32,
    /// When the thread began.
    pub start: StartTime,
}

/// Where thread `tid` runs; `None` where it does not, or cannot be looked at. 6 us.
#[must_use]
pub fn running(tid: Pid) -> Option<Running> {
    let path = ProcPath::of_thread(tid, tid, "stat");
    of(open_raw(&path).ok()??)
}

/// The same of the thread whose stat file is open.
pub(super) fn of(file: impl AsFd) -> Option<Running> {
    let mut buffer = [0; STAT_BYTES];
    let read = pread_whole(file, &mut buffer).ok()??;
    parse(buffer.get(..read)?)
}

/// What thread `tid` of process `pid` is and does; `None` if there is no such thread.
///
/// # Errors
/// As [`stat`](super::stat).
pub fn thread_stat(pid: Pid, tid: Pid) -> Result<Option<Stat>> {
    let path = ProcPath::of_thread(pid, tid, "stat");
    stat_raw(&path).map_err(|e| e.on(&path))
}

fn parse(line: &[u8]) -> Option<Running> {
    let close = line.iter().rposition(|&b| b == b')')?;
    let mut fields = line.get(close + 2..)?.split(|&b| b == b' ').enumerate();
    let mut field = |wanted| fields.find(|&(i, _)| i == wanted).map(|(_, field)| field);
    let runs = matches!(field(0)?, [letter] if State::from_letter(*letter) == State::Running);
    let start = StartTime(number(field(START)?)?);
    let cpu = u32::try_from(number(field(PROCESSOR)?)?).ok()?;
    runs.then_some(Running { cpu, start })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_of_a_thread_that_runs_is_told() {
        let line = |state: &str| {
            format!(
                "77 (a) b) {state} 1 77 77 0 -1 64 0 0 0 0 1 2 3 4 20 0 2 0 900 1 2 3 4 5 6 7 8 0 0 0 0 0 0 0 17 5 0"
            )
        };
        assert_eq!(parse(line("R").as_bytes()), Some(Running { cpu: 5, start: StartTime(900) }));
        assert_eq!((parse(line("S").as_bytes()), parse(b"77 (a) R 1 2")), (None, None));
        // This one runs, on one of those that it may run on.
        let own = rustix::thread::gettid();
        let there = running(own).expect("it runs");
        assert!(crate::CpuMask::of_thread(own).unwrap().unwrap().contains(there.cpu));
        let stat = thread_stat(rustix::process::getpid(), own).unwrap().unwrap();
        assert_eq!(there.start, stat.start);
    }
}
