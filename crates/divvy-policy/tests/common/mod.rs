//! A small machine that runs tasks with run/sleep programs under a dispatcher. Exact, in nanoseconds.
#![allow(dead_code, reason = "each test file uses its own part")]

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

struct Running {
    task: usize,
    ends: u64,
}

/// Runs `tasks` under `policy` on `nr_cpus` CPUs until `until`, each charge cut into `pieces`.
pub fn run(policy: &mut Dispatcher, tasks: &[Task], nr_cpus: usize, until: u64, pieces: u64) -> Outcome {
    let n = tasks.len();
    let mut out =
        Outcome { done: vec![None; n], ran: vec![0; n], ends: vec![vec![]; n], ..Outcome::default() };
    let mut programs: Vec<std::collections::VecDeque<Step>> =
        tasks.iter().map(|t| t.program.iter().copied().collect()).collect();
    let mut wakes: Vec<Option<u64>> = tasks.iter().map(|t| Some(t.create)).collect();
    let mut joined = vec![false; n];
    let mut runnable = vec![false; n];
    let mut cpus: Vec<Option<Running>> = (0..nr_cpus).map(|_| None).collect();
    let mut now = 0;
    let id = |task: usize| ClientId(task as u32);
    for cpu in 0..nr_cpus {
        policy.on_event(Instant(0), Event::Free { cpu: CpuId(cpu as u32) }).unwrap();
    }
    loop {
        let at = Instant(now);
        for (cpu, holding) in cpus.iter_mut().enumerate() {
            let Some(running) = holding else { continue };
            let (task, ends) = (running.task, running.ends);
            let finished = programs[task].front() == Some(&Step::Run(0));
            if finished {
                programs[task].pop_front();
                out.ends[task].push(now);
                runnable[task] = false;
                match programs[task].pop_front() {
                    Some(Step::Sleep(length)) => {
                        wakes[task] = Some(now + length);
                        policy.on_event(at, Event::Block { client: id(task) }).unwrap();
                    }
                    Some(Step::Run(_)) => panic!("two runs in a row"),
                    None => {
                        out.done[task] = Some(now);
                        policy.on_event(at, Event::Leave { client: id(task) }).unwrap();
                    }
                }
            }
            if finished || ends <= now {
                *holding = None;
                policy.on_event(at, Event::Free { cpu: CpuId(cpu as u32) }).unwrap();
            }
        }
        for task in 0..n {
            if wakes[task].is_some_and(|t| t <= now) {
                wakes[task] = None;
                if !joined[task] {
                    joined[task] = true;
                    let share = Share::new(tasks[task].share).unwrap();
                    policy.on_event(at, Event::Join { client: id(task), share }).unwrap();
                    if let Some(&Step::Sleep(length)) = programs[task].front() {
                        programs[task].pop_front();
                        wakes[task] = Some(now + length);
                        continue;
                    }
                }
                runnable[task] = true;
                policy.on_event(at, Event::Wake { client: id(task) }).unwrap();
            }
        }
        while let Some(grant) = policy.poll_decision(at) {
            let task = grant.client.index();
            assert!(runnable[task], "granted a blocked client");
            assert!(grant.slice > Nanos::ZERO);
            assert!(!cpus.iter().flatten().any(|r| r.task == task), "granted a client twice");
            cpus[grant.cpu.index()] = Some(Running { task, ends: now.saturating_add(grant.slice.0) });
        }
        // The next moment at which anything happens.
        let mut next = until;
        for running in cpus.iter().flatten() {
            let Some(Step::Run(left)) = programs[running.task].front() else { panic!("not running") };
            next = next.min(running.ends).min(now.saturating_add(*left));
        }
        next = wakes.iter().flatten().fold(next, |next, &t| next.min(t));
        if next <= now || out.done.iter().all(Option::is_some) {
            return out;
        }
        let span = next - now;
        let held = cpus.iter().flatten().count();
        let nr_runnable = runnable.iter().filter(|r| **r).count();
        out.wasted += span * (nr_runnable.min(nr_cpus) - held) as u64;
        for (cpu, running) in cpus.iter().enumerate() {
            let Some(running) = running else { continue };
            let task = running.task;
            match out.runs.iter_mut().rev().find(|run| run.3 == cpu) {
                Some(last) if last.2 == task && last.1 == now => last.1 = next,
                _ => out.runs.push((now, next, task, cpu)),
            }
            out.ran[task] += span;
            if let Some(Step::Run(left)) = programs[task].front_mut() {
                *left -= if *left == u64::MAX { 0 } else { span };
            }
            for piece in 0..pieces {
                let used = span * (piece + 1) / pieces - span * piece / pieces;
                policy
                    .on_event(Instant(next), Event::Charge { client: id(task), used: Nanos(used) })
                    .unwrap();
            }
        }
        now = next;
    }
}
