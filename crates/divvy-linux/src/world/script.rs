//! A machine that a test scripts: what vanishes, recycles, refuses, hides and stops at the wrong moment.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use divvy_policy::Nanos;
use rustix::io::Errno;

use super::World;
use crate::owner::Users;
use crate::procfs::{Pending, SignalSet, Stat};
use crate::{Delivery, Error, GroupDelivery, Pid, Result, Signal, StartTime, State};

#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) start: u64,
    pub(crate) state: State,
    pub(crate) cpu: Nanos,
    /// Ticks of 10 ms.
    pub(crate) children: u64,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) refuses: bool,
    /// No descriptor is left for it.
    pub(crate) unopenable: bool,
    /// Neither its clock nor its state can be read, for this reason.
    pub(crate) unreadable: Option<Errno>,
    /// A stop signal waits.
    pub(crate) pending_stop: bool,
    /// It does not come to take a stop signal by itself.
    pub(crate) slow: bool,
    /// Somebody else wants it suspended.
    pub(crate) wanted: bool,
    /// It has sent its stop signal itself.
    pub(crate) stopped_itself: bool,
    pub(crate) users: Users,
    /// What tells it from another with its number, in the list of processes.
    pub(crate) inode: u64,
    pub(crate) comm: String,
    pub(crate) cgroup: String,
    pub(crate) program: String,
}

impl Process {
    /// A signal waits for it.
    pub(crate) fn wakes(&mut self) {
        if self.state == State::Sleeping {
            self.state = State::Running;
        }
    }
}

type Happens = Box<dyn FnMut(&mut BTreeMap<i32, Process>)>;

/// What happens to the processes between any two calls.
pub(crate) struct Meanwhile(pub(crate) Happens);

impl std::fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meanwhile").finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Machine {
    pub(crate) processes: BTreeMap<i32, Process>,
    /// Signals that were sent: to whom, and which.
    pub(crate) sent: Vec<(i32, Signal)>,
    /// Threads that run on another CPU than ours.
    pub(crate) elsewhere: Vec<i32>,
    /// States that were read.
    pub(crate) stats: u64,
    /// What the counter of the tree shows; `None` once it cannot be read any more.
    pub(crate) counted: Option<Nanos>,
    /// What happens between any two calls.
    pub(crate) meanwhile: Option<Meanwhile>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Script(pub(crate) Rc<RefCell<Machine>>);

pub(crate) fn pid(n: i32) -> Pid {
    Pid::from_raw(n).expect("not zero")
}

impl Script {
    pub(crate) fn with(self, n: i32, state: State, cpu_ms: u64) -> Self {
        let process = Process {
            start: 100,
            state,
            cpu: Nanos::from_millis(cpu_ms),
            children: 0,
            parent: 1,
            group: n,
            refuses: false,
            unopenable: false,
            unreadable: None,
            pending_stop: false,
            slow: false,
            wanted: false,
            stopped_itself: false,
            users: Users::all(1000),
            inode: 7_000 + n as u64,
            comm: "x".into(),
            cgroup: "/".into(),
            program: "x".into(),
        };
        self.0.borrow_mut().processes.insert(n, process);
        self
    }

    pub(crate) fn change(&self, n: i32, change: impl FnOnce(&mut Process)) {
        change(self.0.borrow_mut().processes.get_mut(&n).expect("there"));
    }

    pub(crate) fn runs(&self, n: i32, ms: u64) {
        self.change(n, |p| p.cpu += Nanos::from_millis(ms));
    }

    pub(crate) fn ends(&self, n: i32) {
        self.0.borrow_mut().processes.remove(&n);
    }

    pub(crate) fn sent(&self) -> Vec<(i32, Signal)> {
        std::mem::take(&mut self.0.borrow_mut().sent)
    }

    pub(crate) fn state(&self, n: i32) -> State {
        self.0.borrow().processes[&n].state
    }

    /// Before each call, whatever it is.
    fn pass(&self) {
        let machine = &mut *self.0.borrow_mut();
        if let Some(meanwhile) = &mut machine.meanwhile {
            (meanwhile.0)(&mut machine.processes);
        }
    }

    fn get(&self, pid: Pid) -> Option<Process> {
        self.pass();
        self.0.borrow().processes.get(&pid.as_raw_pid()).cloned()
    }

    fn read(&self, pid: Pid) -> Result<Option<Process>> {
        match self.get(pid) {
            Some(Process { unreadable: Some(why), .. }) => Err(Error::system("read process", pid, why)),
            process => Ok(process),
        }
    }
}

impl World for Script {
    type Process = (Pid, StartTime);
    type Counter = ();

    fn count(&self, _: &()) -> Result<Nanos> {
        let counted = self.0.borrow().counted;
        counted.ok_or_else(|| Error::system("read a perf counter", "of a command", Errno::BADF))
    }

    fn meet(&self, pid: Pid) -> Result<Option<(Self::Process, Stat)>> {
        if self.get(pid).is_some_and(|p| p.unopenable) {
            return Err(Error::system("open a pidfd of process", pid, Errno::MFILE));
        }
        let Some(stat) = self.stat(pid)?.filter(|stat| !stat.state.is_ended()) else { return Ok(None) };
        Ok(Some(((pid, stat.start), stat)))
    }
    fn identity(process: &Self::Process) -> (Pid, StartTime) {
        *process
    }
    fn stat(&self, pid: Pid) -> Result<Option<Stat>> {
        self.0.borrow_mut().stats += 1;
        Ok(self.read(pid)?.map(|p| {
            let letter = match p.state {
                State::Running => 'R',
                State::Stopped => 'T',
                State::Zombie => 'Z',
                _ => 'S',
            };
            let line = format!(
                "{pid} ({}) {letter} {} {g} {g} 0 -1 0 0 0 0 0 0 0 {} 0 20 0 1 0 {} 1 1",
                p.comm,
                p.parent,
                p.children,
                p.start,
                g = p.group
            );
            Stat::parse(line.as_bytes()).expect("a line")
        }))
    }
    fn threads_while(&self, _: &Self::Process, _: u32, _: &mut dyn FnMut(Stat) -> bool) -> Result<()> {
        unreachable!("every process here has one thread")
    }
    fn children(&self, of: Pid, _: Pid, found: &mut Vec<Pid>) -> Result<()> {
        self.pass();
        let machine = self.0.borrow();
        found.extend(
            machine.processes.iter().filter(|(_, p)| p.parent == of.as_raw_pid()).map(|(&n, _)| pid(n)),
        );
        Ok(())
    }
    fn cpu(&self, pid: Pid) -> Result<Option<Nanos>> {
        Ok(self.read(pid)?.map(|p| p.cpu))
    }
    fn signal_elsewhere(&self, _: &Self::Process, (tid, _): (Pid, StartTime), signal: Signal) -> bool {
        let mut machine = self.0.borrow_mut();
        let there = machine.elsewhere.contains(&tid.as_raw_pid());
        if there {
            machine.sent.push((tid.as_raw_pid(), signal));
        }
        there
    }
    fn pending(&self, (pid, _): &Self::Process, _: Option<Pid>) -> Result<Option<Pending>> {
        Ok(self.get(*pid).map(|p| Pending {
            suspended: p.state.is_suspended(),
            thread: SignalSet::default(),
            process: if p.pending_stop { SignalSet::STOPS } else { SignalSet::default() },
            blocked: SignalSet::default(),
        }))
    }
    fn has_stopped_itself(&self, pid: Pid) -> bool {
        self.get(pid).is_some_and(|p| p.stopped_itself && p.state == State::Stopped)
    }
    fn users(&self, pid: Pid) -> Result<Option<Users>> {
        Ok(self.read(pid)?.map(|p| p.users))
    }
    fn each(&self, each: &mut dyn FnMut(Pid, u64)) -> Result<()> {
        self.0.borrow().processes.iter().for_each(|(&n, p)| each(pid(n), p.inode));
        Ok(())
    }
    fn cgroups(&self, pid: Pid) -> Vec<String> {
        self.get(pid).map(|p| p.cgroup).into_iter().collect()
    }
    fn program(&self, pid: Pid) -> Option<String> {
        self.get(pid).map(|p| p.program)
    }
    fn command(&self, pid: Pid) -> Option<String> {
        self.program(pid)
    }
    fn signal(&self, (pid, start): &Self::Process, signal: Signal) -> Result<Delivery> {
        let Some(now) = self.get(*pid).filter(|p| p.start == start.0) else { return Ok(Delivery::Gone) };
        if now.refuses {
            return Err(Error::system("signal process", pid, Errno::PERM));
        }
        self.0.borrow_mut().sent.push((pid.as_raw_pid(), signal));
        self.change(pid.as_raw_pid(), |p| match signal {
            Signal::STOP if p.slow || p.state == State::Stopped => {
                p.pending_stop = true;
                p.wakes();
            }
            Signal::STOP => p.state = State::Stopped,
            Signal::CONT => {
                (p.pending_stop, p.wanted) = (false, false);
                if p.state == State::Stopped {
                    p.state = State::Running;
                }
            }
            _ => {}
        });
        Ok(Delivery::Sent)
    }
    fn may_signal(&self, (pid, start): &Self::Process) -> Result<Option<bool>> {
        Ok(self.get(*pid).filter(|p| p.start == start.0).map(|p| !p.refuses))
    }
    fn signal_group(&self, (leader, _): &Self::Process, signal: Signal) -> Result<GroupDelivery> {
        self.pass();
        // Nothing happens between the signals of a group.
        let meanwhile = self.0.borrow_mut().meanwhile.take();
        let members: Vec<i32> = {
            let machine = self.0.borrow();
            let in_group = machine.processes.iter().filter(|(_, p)| p.group == leader.as_raw_pid());
            in_group.map(|(&n, _)| n).collect()
        };
        // As the kernel does it: whoever may not be signalled is left out, and only if nobody may it is an error.
        let mut done = Ok(GroupDelivery::Gone);
        for n in &members {
            let start = StartTime(self.0.borrow().processes[n].start);
            match (self.signal(&(pid(*n), start), signal), &done) {
                (Ok(_), _) => done = Ok(GroupDelivery::Sent),
                (Err(e), Ok(GroupDelivery::Gone)) => done = Err(e),
                (Err(_), _) => {}
            }
        }
        self.0.borrow_mut().meanwhile = meanwhile;
        done
    }
    fn group_has_members(&self, (leader, _): &Self::Process) -> Result<Option<bool>> {
        Ok(Some(self.0.borrow().processes.values().any(|p| p.group == leader.as_raw_pid())))
    }
}
