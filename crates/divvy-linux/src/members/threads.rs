//! Which threads run, and which of a process is to take its stop signal.
//!
//! A stop signal goes to one thread of a process, which takes it on its way back to the program, and then tells the others. Unless
//! somebody names one the kernel picks the main thread. Where we have just taken the CPU from that, or it sleeps, it takes the
//! signal when it is let run again, after up to a tick of the kernel, and the others run on meanwhile on other CPUs. So, where several
//! CPUs are divided, the signal is sent to a thread that runs on another than ours: it is interrupted, and takes it at once.

use super::{Member, Members};
use crate::procfs::{self, StartTime, Stat, State};
use crate::steer::THREADS_MAX;
use crate::world::World;
use crate::{Pid, Signal};

/// So many threads of a process are looked at for one that runs elsewhere.
const LOOKS_MAX: usize = 4;

/// The threads of a process that were found to run when they were last looked at, with their start times.
#[derive(Debug, Default)]
pub(super) struct Busy {
    main: Option<(Pid, StartTime)>,
    others: Vec<(Pid, StartTime)>,
}

impl Busy {
    /// All are looked at anew; not so while the client is `held`: of whoever stands nothing is seen, and what is known holds.
    pub(super) fn begin(&mut self, held: bool) -> Option<&mut Self> {
        if held {
            return None;
        }
        self.main = None;
        self.others.clear();
        Some(self)
    }

    /// A thread of `pid` was looked at.
    pub(super) fn see(&mut self, pid: Pid, thread: &Stat) {
        if thread.state != State::Running {
        } else if thread.pid == pid {
            self.main = Some((pid, thread.start));
        } else if self.others.len() < THREADS_MAX {
            self.others.push((thread.pid, thread.start));
        }
    }
}

impl Members {
    /// Those of `threads` of its members that run, and on which CPUs.
    pub fn running_of(&self, threads: &[(Pid, StartTime)]) -> Vec<((Pid, StartTime), u32)> {
        // Who runs is mostly one of the youngest; and whoever has the number of one that has ended is nobody's to move.
        let kept = |tid| self.active.iter().rev().find_map(|m| m.process.running_kept(tid));
        let running = |tid| kept(tid).unwrap_or_else(|| procfs::running(tid));
        let there = |&(tid, start): &(Pid, StartTime)| {
            running(tid).filter(|there| there.start == start).map(|there| ((tid, start), there.cpu))
        };
        threads.iter().filter_map(there).collect()
    }
}

impl<W: World> Members<W> {
    /// These members, where several CPUs are divided.
    pub fn on_several_cpus(mut self, several: bool) -> Self {
        self.on_several_cpus = several;
        self
    }

    /// The threads that were found to run when they were last looked at, with their start times, those of the youngest members first: up
    /// to `most`.
    pub fn busy(&self, most: usize) -> Vec<(Pid, StartTime)> {
        let of = |m: &Member<W::Process>| {
            let all = m.busy.main.into_iter().chain(m.busy.others.iter().copied());
            all.filter(|_| m.permitted).collect::<Vec<_>>()
        };
        self.active.iter().rev().flat_map(of).take(most).collect()
    }

    /// Sends a stop signal to a thread of `m` that takes it at once, and says to which; `None` where none was found.
    pub(super) fn stop_by_thread(&self, m: &Member<W::Process>) -> Option<Pid> {
        let others = m.busy.others.iter().copied().take(LOOKS_MAX);
        let mut others = others.filter(|_| self.on_several_cpus && m.threads > 1);
        let stop = |&thread: &_| self.world.signal_elsewhere(&m.process, thread, Signal::STOP);
        others.find(stop).map(|(tid, _)| tid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_run_are_kept_in_mind_until_they_are_looked_at_anew() {
        let (own, line) = (rustix::process::getpid(), |tid: i32, state: &str| {
            let line = format!("{tid} (x) {state} 1 7 7 0 -1 64 0 0 0 0 1 2 3 4 20 0 2 0 {tid} 1 2");
            Stat::parse(line.as_bytes()).expect("a line")
        });
        let main = own.as_raw_nonzero().get();
        let at = |tid: i32| (Pid::from_raw(tid).expect("positive"), StartTime(tid as u64));
        let mut busy = Busy::default();
        for (tid, state) in [(main, "R"), (main + 1, "S"), (main + 2, "R"), (main + 3, "T")] {
            busy.see(own, &line(tid, state));
        }
        assert!(busy.begin(true).is_none());
        assert_eq!((busy.main, &busy.others[..]), (Some(at(main)), &[at(main + 2)][..]));
        busy.begin(false).expect("it runs").see(own, &line(main, "S"));
        assert!(busy.main.is_none() && busy.others.is_empty());
    }
}
