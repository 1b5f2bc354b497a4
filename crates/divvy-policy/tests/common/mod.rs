//! A small machine that runs tasks with run/sleep programs under a dispatcher. Exact, in nanoseconds.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::collections::VecDeque;

use divvy_policy::{ClientId, CpuId, Event, Grant, Instant, Nanos, Policy, Share};

/// Any policy that grants CPUs.
pub type Dispatcher = dyn Policy<Decision = Grant>;

/// One step of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Run(u64),
    Sleep(u64),
}

/// A task: created at `create`, it runs its program, which may begin with a sleep, and leaves.
#[derive(Clone, Debug)]
pub struct Task {
    pub create: u64,
    pub share: u64,
    pub program: Vec<Step>,
}

impl Task {
    /// Wants the CPU from `create` on, for ever.
    pub fn persistent(create: u64, share: u64) -> Self {
        Self { create, share, program: vec![Step::Run(u64::MAX)] }
    }
}

/// What came out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// (from, to, task, cpu), contiguous runs of a task on a CPU merged.
    pub runs: Vec<(u64, u64, usize, usize)>,
    /// When each task left.
    pub done: Vec<Option<u64>>,
    /// CPU time of each task.
    pub ran: Vec<u64>,
    /// When each run of each task's program ended.
    pub ends: Vec<Vec<u64>>,
    /// CPU time during which a CPU was idle although a runnable task held none.
    pub wasted: u64,
}

#[derive(Debug)]
struct Running {
    task: usize,
    ends: u64,
}

/// The machine at one moment.
struct Machine<'a> {
    policy: &'a mut Dispatcher,
    tasks: &'a [Task],
    out: Outcome,
    programs: Vec<VecDeque<Step>>,
    wakes: Vec<Option<u64>>,
    joined: Vec<bool>,
    runnable: Vec<bool>,
    cpus: Vec<Option<Running>>,
    now: u64,
}

fn id(task: usize) -> ClientId {
    ClientId(task as u32)
}

impl Machine<'_> {
    fn tell(&mut self, event: Event) {
        self.policy.on_event(Instant(self.now), event).unwrap();
    }

    /// Runs and slices that end now.
    fn end_runs(&mut self) {
        for cpu in 0..self.cpus.len() {
            let Some(&Running { task, ends }) = self.cpus[cpu].as_ref() else { continue };
            let finished = self.programs[task].front() == Some(&Step::Run(0));
            if finished {
                self.programs[task].pop_front();
                self.out.ends[task].push(self.now);
                self.runnable[task] = false;
                match self.programs[task].pop_front() {
                    Some(Step::Sleep(length)) => {
                        self.wakes[task] = Some(self.now + length);
                        self.tell(Event::Block { client: id(task) });
                    }
                    Some(Step::Run(_)) => panic!("two runs in a row"),
                    None => {
                        self.out.done[task] = Some(self.now);
                        self.tell(Event::Leave { client: id(task) });
                    }
                }
            }
            if finished || ends <= self.now {
                self.cpus[cpu] = None;
                self.tell(Event::Free { cpu: CpuId(cpu as u32) });
            }
        }
    }

    /// Tasks that come or wake now.
    fn wake(&mut self) {
        for task in 0..self.tasks.len() {
            if self.wakes[task].is_none_or(|t| t > self.now) {
                continue;
            }
            self.wakes[task] = None;
            if !std::mem::replace(&mut self.joined[task], true) {
                let share = Share::new(self.tasks[task].share).unwrap();
                self.tell(Event::Join { client: id(task), share });
                if let Some(&Step::Sleep(length)) = self.programs[task].front() {
                    self.programs[task].pop_front();
                    self.wakes[task] = Some(self.now + length);
                    continue;
                }
            }
            self.runnable[task] = true;
            self.tell(Event::Wake { client: id(task) });
        }
    }

    fn grant(&mut self) {
        while let Some(grant) = self.policy.poll_decision(Instant(self.now)) {
            let task = grant.client.index();
            assert!(self.runnable[task], "granted a blocked client");
            assert!(grant.slice > Nanos::ZERO);
            assert!(!self.cpus.iter().flatten().any(|r| r.task == task), "granted a client twice");
            let ends = self.now.saturating_add(grant.slice.0);
            self.cpus[grant.cpu.index()] = Some(Running { task, ends });
        }
    }

    /// The next moment at which anything happens, `until` at the latest.
    fn next(&self, until: u64) -> u64 {
        let mut next = until;
        for running in self.cpus.iter().flatten() {
            let Some(Step::Run(left)) = self.programs[running.task].front() else { panic!("not running") };
            next = next.min(running.ends).min(self.now.saturating_add(*left));
        }
        self.wakes.iter().flatten().fold(next, |next, &t| next.min(t))
    }

    /// Whoever has a CPU runs up to `next`, each charge cut into `pieces`.
    fn run_until(&mut self, next: u64, pieces: u64) {
        let from = std::mem::replace(&mut self.now, next);
        let span = next - from;
        let held = self.cpus.iter().flatten().count();
        let nr_runnable = self.runnable.iter().filter(|r| **r).count();
        self.out.wasted += span * (nr_runnable.min(self.cpus.len()) - held) as u64;
        for cpu in 0..self.cpus.len() {
            let Some(task) = self.cpus[cpu].as_ref().map(|running| running.task) else { continue };
            match self.out.runs.iter_mut().rev().find(|run| run.3 == cpu) {
                Some(last) if last.2 == task && last.1 == from => last.1 = next,
                _ => self.out.runs.push((from, next, task, cpu)),
            }
            self.out.ran[task] += span;
            if let Some(Step::Run(left)) = self.programs[task].front_mut() {
                *left -= if *left == u64::MAX { 0 } else { span };
            }
            for piece in 0..pieces {
                let used = span * (piece + 1) / pieces - span * piece / pieces;
                self.tell(Event::Charge { client: id(task), used: Nanos(used) });
            }
        }
    }
}

/// Runs `tasks` under `policy` on `nr_cpus` CPUs until `until`, each charge cut into `pieces`.
pub fn run(policy: &mut Dispatcher, tasks: &[Task], nr_cpus: usize, until: u64, pieces: u64) -> Outcome {
    let n = tasks.len();
    let mut machine = Machine {
        policy,
        tasks,
        out: Outcome { done: vec![None; n], ran: vec![0; n], ends: vec![vec![]; n], ..Outcome::default() },
        programs: tasks.iter().map(|t| t.program.iter().copied().collect()).collect(),
        wakes: tasks.iter().map(|t| Some(t.create)).collect(),
        joined: vec![false; n],
        runnable: vec![false; n],
        cpus: (0..nr_cpus).map(|_| None).collect(),
        now: 0,
    };
    for cpu in 0..nr_cpus {
        machine.tell(Event::Free { cpu: CpuId(cpu as u32) });
    }
    loop {
        machine.end_runs();
        machine.wake();
        machine.grant();
        let next = machine.next(until);
        if next <= machine.now || machine.out.done.iter().all(Option::is_some) {
            return machine.out;
        }
        machine.run_until(next, pieces);
    }
}
