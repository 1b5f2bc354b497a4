//! Which threads run, and which of a process is to take its stop signal.
//!
//! A stop signal goes to one thread of a process, which takes it on its way back to the program, and then tells the others. Unless
//! somebody names one the kernel picks the main thread. Where we have just taken the CPU from that, or it sleeps, it takes the
//! signal when it is let run again, after up to a tick of the kernel, and the others run on meanwhile on other CPUs. So, where several
//! CPUs are divided, the signal is sent to a thread that runs on another than ours: it is interrupted, and takes it at once.

use super::{Member, Members};
use crate::Pid;
use crate::procfs::{Stat, State};
use crate::steer::THREADS_MAX;
use crate::world::World;

/// So many threads of a process are looked at for one that runs elsewhere.
const LOOKS_MAX: usize = 4;

/// The threads of a process that were found to run when they were last looked at.
#[derive(Debug, Default)]
pub(super) struct Busy {
    main: bool,
    others: Vec<Pid>,
}

impl Busy {
    /// All are looked at anew.
    pub(super) fn begin(&mut self) -> &mut Self {
        self.main = false;
        self.others.clear();
        self
    }

    /// A thread of `pid` was looked at.
    pub(super) fn see(&mut self, pid: Pid, thread: &Stat) {
        if thread.state != State::Running {
        } else if thread.pid == pid {
            self.main = true;
        } else if self.others.len() < THREADS_MAX {
            self.others.push(thread.pid);
        }
    }
}

impl<W: World> Members<W> {
    /// These members, where several CPUs are divided.
    pub fn on_several_cpus(mut self, several: bool) -> Self {
        self.on_several_cpus = several;
        self
    }

    /// The threads that were found to run when they were last looked at, those of the youngest members first: up to `most`.
    pub fn busy(&self, most: usize) -> Vec<Pid> {
        let of = |m: &Member<W::Process>| {
            let main = (m.busy.main && m.permitted).then_some(m.pid);
            let others = m.busy.others.iter().copied().filter(|_| m.permitted);
            main.into_iter().chain(others).collect::<Vec<_>>()
        };
        self.active.iter().rev().flat_map(of).take(most).collect()
    }

    /// The thread of a member that is to take its stop signal; `None` where the kernel may choose.
    pub(super) fn to_take_a_stop(&self, m: &Member<W::Process>) -> Option<Pid> {
        let others = m.busy.others.iter().copied().take(LOOKS_MAX);
        others
            .filter(|_| self.on_several_cpus && m.threads > 1)
            .find(|&thread| self.world.runs_elsewhere(thread))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::CpuMask;
    use crate::world::Live;

    #[test]
    fn those_that_run_are_kept_in_mind_until_they_are_looked_at_anew() {
        let (own, line) = (rustix::process::getpid(), |tid: i32, state: &str| {
            let line = format!("{tid} (x) {state} 1 7 7 0 -1 64 0 0 0 0 1 2 3 4 20 0 2 0 900 1 2");
            Stat::parse(line.as_bytes()).expect("a line")
        });
        let main = own.as_raw_nonzero().get();
        let mut busy = Busy::default();
        for (tid, state) in [(main, "R"), (main + 1, "S"), (main + 2, "R"), (main + 3, "T")] {
            busy.see(own, &line(tid, state));
        }
        assert!(busy.main && busy.others == [Pid::from_raw(main + 2).expect("positive")]);
        busy.begin().see(own, &line(main, "S"));
        assert!(!busy.main && busy.others.is_empty());
    }

    #[test]
    fn a_thread_on_another_cpu_runs_elsewhere() {
        let own = rustix::thread::gettid();
        let all = CpuMask::of_thread(own).expect("readable").expect("a thread");
        let cpus: Vec<u32> = all.iter().collect();
        let [ours, another, ..] = cpus[..] else {
            eprintln!("SKIP: this machine has one CPU");
            return;
        };
        let over = Arc::new(AtomicBool::new(false));
        let (told, tid) = std::sync::mpsc::channel();
        let until = Arc::clone(&over);
        let other = std::thread::spawn(move || {
            told.send(rustix::thread::gettid()).expect("somebody asks");
            while !until.load(Ordering::Relaxed) {}
        });
        let tid = tid.recv().expect("it began");
        CpuMask::only(ours).apply(own).expect("ours");
        let elsewhere = [another, ours].map(|cpu| {
            CpuMask::only(cpu).apply(tid).expect("ours");
            Live.runs_elsewhere(tid)
        });
        all.apply(own).expect("ours");
        over.store(true, Ordering::Relaxed);
        other.join().expect("it ends");
        assert_eq!(elsewhere, [true, false]);
        assert!(!Live.runs_elsewhere(tid), "it has ended");
    }
}
