//! The kernel beneath: threads, run queues and ticks.

mod driven;

pub(crate) use self::driven::Seen;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use divvy_engine::News;
use divvy_policy::{ClientId, Nanos};

use super::program::{Program, Step};
use super::spec::{ClockLag, Fault, FaultAt, MachineSpec, Placement};
use crate::rng::{SplitMix64, of_machine};

/// The CPU that the scheduler runs on.
pub(super) const OWN_CPU: usize = 0;
/// From a client's unannounced end to the news of it.
const NEWS_DELAY: u64 = 5_000_000;
/// Threads of a client that has several are not sent to its CPUs again before.
const SEND_INTERVAL: u64 = 4_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Running,
    /// In the queue of its CPU.
    Ready,
    Sleeping,
    /// Would run, but its client is suspended.
    Suspended,
    Exited,
}

#[derive(Clone, Debug)]
struct Thread {
    /// `None` for a stranger.
    client: Option<usize>,
    program: Program,
    /// What it does is told by the machine's workload, not by its program.
    driven: bool,
    next_step: usize,
    /// CPU time left in the present step.
    left: u64,
    state: State,
    used: u64,
    /// What others see of `used` while it runs.
    visible: u64,
    vruntime: u64,
    cpu: usize,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ClientState {
    threads: Vec<usize>,
    pub(super) held: bool,
    pub(super) stopped: bool,
    pub(super) refused: bool,
    pub(super) vanished: bool,
    living: u32,
    /// CPUs that its threads are sent to when it is released; none for wherever there is room.
    lanes: Vec<usize>,
    /// When they were last sent there.
    sent: u64,
    stores: BTreeMap<usize, Store>,
    /// What threads that have ended had used.
    ended_used: u64,
}

/// What threads of a client hand to each other ([`Step::Give`], [`Step::Take`]).
#[derive(Clone, Debug, Default)]
struct Store {
    units: u64,
    /// Threads that wait for a unit, the first first.
    waiting: VecDeque<usize>,
}

impl ClientState {
    fn suspended(&self) -> bool {
        self.held || self.stopped
    }

    pub(super) fn ended(&self) -> bool {
        self.vanished || self.living == 0
    }
}

#[derive(Clone, Debug, Default)]
struct Cpu {
    queue: Vec<usize>,
    current: Option<usize>,
    min_vruntime: u64,
}

/// How a simulated machine's time was spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineStats {
    /// CPU time in which nobody ran, the scheduler neither, over all CPUs; stolen time left out.
    pub idle: Nanos,
    /// The part of `idle` in which a held client would have run.
    pub wasted: Nanos,
    /// The longest time in a row in which one CPU was idle while a held client would have run. A CPU that becomes idle at the moment
    /// at which another is taken has been idle as long as that: its thread has only moved. Where the scheduler itself runs on a CPU,
    /// that ends it.
    pub wasted_longest: Nanos,
    /// Wall time stolen.
    pub stolen: Nanos,
}

/// Whether running on ends when there is news.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    Time,
    TimeOrNews,
}

#[derive(Clone, Debug)]
pub(super) struct Kernel {
    pub(super) now: u64,
    spec: MachineSpec,
    threads: Vec<Thread>,
    pub(super) clients: Vec<ClientState>,
    cpus: Vec<Cpu>,
    wakes: BinaryHeap<Reverse<(u64, usize)>>,
    faults: VecDeque<FaultAt>,
    late_news: VecDeque<(u64, ClientId)>,
    /// Released clients whose CPUs have changed.
    to_send: Vec<usize>,
    next_tick: u64,
    theft: SplitMix64,
    next_theft: u64,
    stolen_until: u64,
    pub(super) news: VecDeque<News>,
    /// Threads that would run were their clients not held.
    held_wanting: usize,
    /// For how long each CPU has been idle while a held client would have run.
    wasting: Vec<u64>,
    pub(super) stats: MachineStats,
    pub(super) late_by: u64,
    pub(super) broken: bool,
    /// Steps of the machine so far, and how many it may do.
    pub(super) nr_steps: u64,
    pub(super) steps_max: u64,
    driver: Option<Box<driven::Driver>>,
}

impl Kernel {
    pub(super) fn new(spec: MachineSpec) -> Self {
        let mut kernel = Self {
            now: 0,
            threads: Vec::new(),
            clients: Vec::new(),
            cpus: vec![Cpu::default(); spec.cpus.max(1) as usize],
            wakes: BinaryHeap::new(),
            faults: VecDeque::new(),
            late_news: VecDeque::new(),
            to_send: Vec::new(),
            next_tick: spec.tick.0,
            theft: of_machine(spec.seed, 1),
            next_theft: u64::MAX,
            stolen_until: 0,
            news: VecDeque::new(),
            held_wanting: 0,
            wasting: vec![0; spec.cpus.max(1) as usize],
            stats: MachineStats::default(),
            late_by: 0,
            broken: false,
            nr_steps: 0,
            steps_max: u64::MAX,
            driver: None,
            spec,
        };
        kernel.plan_theft();
        kernel
    }

    fn plan_theft(&mut self) {
        if let Some(steal) = self.spec.steal {
            self.next_theft = self.now + 1 + self.theft.between(0, steal.every.0.saturating_mul(2));
        }
    }

    pub(super) fn add_fault(&mut self, fault: FaultAt) {
        let at = self.faults.partition_point(|f| f.at <= fault.at);
        self.faults.insert(at, fault);
    }

    /// A new client, held.
    pub(super) fn add_client(&mut self, programs: Vec<Program>) -> usize {
        let client = self.clients.len();
        self.clients.push(ClientState { held: true, ..ClientState::default() });
        for program in programs {
            self.add_thread(Some(client), program, client % self.cpus.len());
        }
        client
    }

    pub(super) fn add_thread(&mut self, client: Option<usize>, program: Program, cpu: usize) {
        let tid = self.threads.len();
        self.threads.push(Thread {
            client,
            program,
            driven: false,
            next_step: 0,
            left: 0,
            state: State::Sleeping,
            used: 0,
            visible: 0,
            vruntime: 0,
            cpu,
        });
        if let Some(client) = client {
            self.clients[client].threads.push(tid);
            self.clients[client].living += 1;
        }
        self.begin_step(tid);
    }

    /// The thread is through with a step: goes on to the next that takes time.
    fn begin_step(&mut self, tid: usize) {
        if self.threads[tid].driven {
            return self.next_burst(tid);
        }
        loop {
            let thread = &mut self.threads[tid];
            if thread.next_step >= thread.program.steps.len() {
                thread.next_step = thread.program.again;
            }
            let step = thread.program.steps[thread.next_step].clone();
            thread.next_step += 1;
            match step {
                Step::Run(time) if time.0 > 0 => {
                    thread.left = time.0;
                    return self.make_ready(tid, None);
                }
                Step::Sleep(time) if time.0 > 0 => {
                    thread.state = State::Sleeping;
                    self.wakes.push(Reverse((self.now + time.0, tid)));
                    return;
                }
                Step::Run(_) | Step::Sleep(_) => {}
                Step::Spawn(program) => {
                    let (client, cpu) = (thread.client, thread.cpu);
                    self.add_thread(client, program, cpu);
                }
                Step::Give(store) => self.give(tid, store),
                Step::Take(store) => {
                    if !self.take(tid, store) {
                        return;
                    }
                }
                Step::Exit => return self.exit(tid),
            }
        }
    }

    /// Puts a unit into a store of the thread's client; whoever waits for it takes it.
    fn give(&mut self, tid: usize, store: usize) {
        let Some(client) = self.threads[tid].client else { return };
        let store = self.clients[client].stores.entry(store).or_default();
        match store.waiting.pop_front() {
            Some(waiting) => self.begin_step(waiting),
            None => store.units += 1,
        }
    }

    /// Takes a unit out of a store, or waits for one; says whether there was one. A stranger, who has no stores, goes on.
    fn take(&mut self, tid: usize, store: usize) -> bool {
        let Some(client) = self.threads[tid].client else { return true };
        let store = self.clients[client].stores.entry(store).or_default();
        if store.units > 0 {
            store.units -= 1;
            return true;
        }
        store.waiting.push_back(tid);
        self.threads[tid].state = State::Sleeping;
        false
    }

    fn exit(&mut self, tid: usize) {
        self.threads[tid].state = State::Exited;
        let Some(client) = self.threads[tid].client else { return };
        self.clients[client].living -= 1;
        // What has ended is looked at no more: clients may start threads for as long as the run takes.
        self.clients[client].threads.retain(|&thread| thread != tid);
        self.clients[client].ended_used += self.threads[tid].used;
        if self.clients[client].living == 0 {
            self.news.push_back(News::Gone(ClientId(client as u32)));
        }
    }

    fn make_ready(&mut self, tid: usize, hint: Option<usize>) {
        if self.threads[tid].client.is_some_and(|c| self.clients[c].suspended()) {
            self.threads[tid].state = State::Suspended;
            self.held_wanting += usize::from(self.counts_as_held(tid));
            return;
        }
        let cpu = hint.unwrap_or_else(|| self.place(tid));
        self.enqueue(cpu, tid);
    }

    /// Whether the thread's client is held by the scheduler, which could release it.
    fn counts_as_held(&self, tid: usize) -> bool {
        self.threads[tid].client.is_some_and(|c| {
            let c = &self.clients[c];
            c.held && !c.stopped && !c.vanished && !c.refused
        })
    }

    fn place(&self, tid: usize) -> usize {
        let last = self.threads[tid].cpu;
        if self.spec.placement == Placement::Stack {
            return last;
        }
        let load = |cpu: usize| self.cpus[cpu].queue.len() + usize::from(self.cpus[cpu].current.is_some());
        (0..self.cpus.len()).min_by_key(|&cpu| (load(cpu), cpu != last, cpu)).unwrap_or(last)
    }

    fn enqueue(&mut self, cpu: usize, tid: usize) {
        let floor = self.cpus[cpu].min_vruntime.saturating_sub(self.spec.tick.0);
        let thread = &mut self.threads[tid];
        if thread.cpu != cpu {
            // Its place in another CPU's order means nothing here.
            thread.vruntime = self.cpus[cpu].min_vruntime;
            thread.cpu = cpu;
        }
        thread.vruntime = thread.vruntime.max(floor);
        thread.state = State::Ready;
        self.cpus[cpu].queue.push(tid);
        let granularity = 1_000_000;
        match self.cpus[cpu].current {
            None => self.dispatch(cpu),
            Some(current) if self.threads[tid].vruntime + granularity < self.threads[current].vruntime => {
                self.yield_cpu(cpu);
                self.dispatch(cpu);
            }
            Some(_) => {}
        }
    }

    fn yield_cpu(&mut self, cpu: usize) {
        if let Some(tid) = self.cpus[cpu].current.take() {
            let thread = &mut self.threads[tid];
            thread.visible = thread.used;
            thread.state = State::Ready;
            self.cpus[cpu].queue.push(tid);
        }
    }

    fn least(&self, cpu: usize) -> Option<usize> {
        let queue = &self.cpus[cpu].queue;
        (0..queue.len()).min_by_key(|&i| (self.threads[queue[i]].vruntime, queue[i]))
    }

    fn dispatch(&mut self, cpu: usize) {
        debug_assert!(self.cpus[cpu].current.is_none());
        if self.cpus[cpu].queue.is_empty() && self.spec.placement == Placement::Spread {
            self.pull(cpu);
        }
        let Some(index) = self.least(cpu) else { return };
        let tid = self.cpus[cpu].queue.swap_remove(index);
        self.threads[tid].state = State::Running;
        self.cpus[cpu].current = Some(tid);
        self.cpus[cpu].min_vruntime = self.cpus[cpu].min_vruntime.max(self.threads[tid].vruntime);
    }

    /// An empty CPU takes a waiting thread from the longest queue.
    fn pull(&mut self, cpu: usize) {
        let Some(from) = (0..self.cpus.len()).max_by_key(|&c| (self.cpus[c].queue.len(), Reverse(c))) else {
            return;
        };
        if let Some(index) = self.least(from) {
            let tid = self.cpus[from].queue.swap_remove(index);
            self.threads[tid].cpu = cpu;
            self.threads[tid].vruntime = self.cpus[cpu].min_vruntime;
            self.cpus[cpu].queue.push(tid);
        }
    }

    /// Takes a thread off its CPU or out of its queue.
    fn remove(&mut self, tid: usize) {
        let cpu = self.threads[tid].cpu;
        match self.threads[tid].state {
            State::Running => {
                self.cpus[cpu].current = None;
                self.threads[tid].visible = self.threads[tid].used;
            }
            State::Ready => self.cpus[cpu].queue.retain(|&t| t != tid),
            State::Suspended => self.held_wanting -= usize::from(self.counts_as_held(tid)),
            State::Sleeping | State::Exited => return,
        }
        if self.cpus[cpu].current.is_none() {
            self.dispatch(cpu);
        }
    }

    /// Changes what keeps a client from running, and suspends or resumes its threads accordingly.
    pub(super) fn change(
        &mut self,
        client: usize,
        hint: Option<usize>,
        change: impl FnOnce(&mut ClientState),
    ) {
        let threads = self.clients[client].threads.clone();
        let wanting: Vec<usize> = threads
            .into_iter()
            .filter(|&t| matches!(self.threads[t].state, State::Running | State::Ready | State::Suspended))
            .collect();
        let before = self.clients[client].suspended() || self.clients[client].vanished;
        let mut after = self.clients[client].clone();
        change(&mut after);
        if !before && !after.suspended() && !after.vanished {
            self.clients[client] = after;
            if hint.is_none_or(|cpu| wanting.iter().all(|&t| self.threads[t].cpu == cpu)) {
                return; // Runs on where it is.
            }
            for &tid in &wanting {
                self.remove(tid);
                self.make_ready(tid, hint);
            }
            return;
        }
        for &tid in &wanting {
            self.remove(tid);
        }
        self.clients[client] = after;
        for (i, &tid) in wanting.iter().enumerate() {
            if self.clients[client].vanished {
                self.threads[tid].state = State::Exited;
            } else {
                let lanes = &self.clients[client].lanes;
                let lane = (!lanes.is_empty()).then(|| lanes[i % lanes.len()]);
                self.make_ready(tid, lane.or(hint));
            }
        }
    }

    /// Releases a client. Its threads are sent to `cpu`; where it has several and runs already, to this CPU beside those
    /// that it was sent to, once all that is decided at one moment is known ([`Kernel::send_all`]). `None` is anywhere.
    pub(super) fn release(&mut self, client: usize, cpu: Option<usize>) {
        let c = &mut self.clients[client];
        if c.held || cpu.is_none() || c.threads.len() == 1 {
            c.lanes.clear();
        }
        c.lanes.extend(cpu);
        if c.held {
            self.change(client, None, |c| c.held = false);
        } else {
            self.to_send.push(client);
        }
    }

    /// Sends the threads of clients whose CPUs have changed to those.
    pub(super) fn send_all(&mut self) -> usize {
        let mut clients = std::mem::take(&mut self.to_send);
        clients.sort_unstable();
        clients.dedup();
        if clients.is_empty() { 0 } else { self.send(&clients) }
    }

    /// Sends a client's threads to its CPUs once more, unless that was done lately: in the meantime any of them may have
    /// gone elsewhere. Says how many there are, of a client that has several.
    pub(super) fn send_again(&mut self, client: usize) -> usize {
        let c = &self.clients[client];
        let lately = c.threads.len() > 1 && self.now < c.sent + SEND_INTERVAL;
        if lately { 0 } else { self.send(&[client]) }
    }

    /// Sends threads to their clients' CPUs. Says how many there are, of clients that have several.
    fn send(&mut self, clients: &[usize]) -> usize {
        let (mut to_send, mut several) = (Vec::new(), 0);
        for &client in clients {
            self.clients[client].sent = self.now;
            let c = &self.clients[client];
            if c.lanes.is_empty() || c.suspended() || c.vanished {
                continue;
            }
            let runs = |&&tid: &&usize| matches!(self.threads[tid].state, State::Running | State::Ready);
            let runnable = c.threads.iter().filter(runs).copied();
            to_send.extend(runnable.enumerate().map(|(i, tid)| (tid, c.lanes[i % c.lanes.len()])));
            several += if c.threads.len() > 1 { c.threads.len() } else { 0 };
        }
        let moves: Vec<(usize, usize)> =
            to_send.iter().copied().filter(|&(tid, cpu)| self.threads[tid].cpu != cpu).collect();
        // Off all CPUs first: one that becomes idle in between takes whoever waits elsewhere.
        let mut left = Vec::new();
        for &(tid, _) in &moves {
            let cpu = self.threads[tid].cpu;
            if self.cpus[cpu].current == Some(tid) {
                self.cpus[cpu].current = None;
                self.threads[tid].visible = self.threads[tid].used;
                left.push(cpu);
            } else {
                self.cpus[cpu].queue.retain(|&t| t != tid);
            }
        }
        for &(tid, cpu) in &moves {
            self.enqueue(cpu, tid);
        }
        for cpu in left {
            if self.cpus[cpu].current.is_none() {
                self.dispatch(cpu);
            }
        }
        several
    }

    /// Whether some thread of the client runs or wants to.
    pub(super) fn wants_cpu(&self, client: usize) -> bool {
        let state = |&t: &usize| self.threads[t].state;
        !self.clients[client].stopped
            && self.clients[client]
                .threads
                .iter()
                .any(|t| matches!(state(t), State::Running | State::Ready | State::Suspended))
    }

    /// CPU time used by a client; what its clock shows, if `seen`.
    pub(super) fn used(&self, client: usize, seen: bool) -> Nanos {
        let lag = seen && self.spec.clock_lag == ClockLag::Tick;
        let of = |&t: &usize| {
            let t = &self.threads[t];
            if lag && t.state == State::Running && t.cpu != OWN_CPU { t.visible } else { t.used }
        };
        Nanos(self.clients[client].threads.iter().map(of).sum::<u64>() + self.clients[client].ended_used)
    }

    /// Threads of a client that run or want to.
    pub(super) fn nr_runnable(&self, client: usize) -> u32 {
        let wants =
            |t: &&usize| matches!(self.threads[**t].state, State::Running | State::Ready | State::Suspended);
        self.clients[client].threads.iter().filter(wants).count() as u32
    }

    /// Threads of a client that have not ended.
    pub(super) fn nr_threads(&self, client: usize) -> u32 {
        self.clients[client].living
    }

    /// Whether there is something that a wait ends with.
    fn has_news(&self) -> bool {
        !self.news.is_empty() || self.driver.as_ref().is_some_and(|driver| driver.has_joins())
    }

    /// Lets the machine run to `until`. `busy`: the scheduler itself computes meanwhile, and needs that long of CPU 0.
    pub(super) fn run_to(&mut self, mut until: u64, busy: bool, stop: Until) {
        while self.now < until && (stop == Until::Time || !self.has_news()) && self.nr_steps < self.steps_max
        {
            self.nr_steps += 1;
            let stolen = self.now < self.stolen_until;
            let mut next = until.min(self.next_tick).min(self.next_theft);
            if stolen {
                next = next.min(self.stolen_until);
            }
            if let Some(&Reverse((at, _))) = self.wakes.peek() {
                next = next.min(at);
            }
            let timer = self.driver.as_ref().and_then(|driver| driver.next_timer_at());
            next = timer.map_or(next, |at| next.min(at));
            next = self.faults.front().map_or(next, |f| next.min(f.at.0));
            next = self.late_news.front().map_or(next, |f| next.min(f.0));
            if !stolen {
                for (i, cpu) in self.cpus.iter().enumerate() {
                    if let (Some(tid), false) = (cpu.current, busy && i == OWN_CPU) {
                        next = next.min(self.now.saturating_add(self.threads[tid].left));
                    }
                }
            }
            let next = next.max(self.now);
            self.pass(next - self.now, busy, stolen);
            self.now = next;
            if self.now >= self.next_theft {
                let longest = self.spec.steal.map_or(0, |s| s.longest.0);
                let length = self.theft.between(0, longest);
                self.stolen_until = self.now + length;
                self.stats.stolen += Nanos(length);
                if busy {
                    until += length;
                }
                self.plan_theft();
                self.next_theft += length;
            }
            self.happen(busy);
        }
        if stop == Until::TimeOrNews && self.now < self.stolen_until {
            self.run_to(self.stolen_until, false, Until::Time);
        }
    }

    fn pass(&mut self, span: u64, busy: bool, stolen: bool) {
        if stolen || span == 0 {
            return;
        }
        let mut idle = Vec::new();
        for (i, cpu) in self.cpus.iter_mut().enumerate() {
            if busy && i == OWN_CPU {
                continue;
            }
            match cpu.current {
                Some(tid) => {
                    let thread = &mut self.threads[tid];
                    thread.left -= span;
                    thread.used += span;
                    thread.vruntime += span;
                    if let (Some(driver), Some(client)) = (&mut self.driver, thread.client) {
                        driver.ran(i, client, self.now, self.now + span);
                    }
                    cpu.min_vruntime = cpu.min_vruntime.max(thread.vruntime.saturating_sub(self.spec.tick.0));
                }
                None => idle.push(i),
            }
        }
        self.stats.idle += Nanos(span * idle.len() as u64);
        self.waste(span, if self.held_wanting > 0 { &idle } else { &[] });
    }

    /// These CPUs were idle for so long while a held client would have run.
    fn waste(&mut self, span: u64, idle: &[usize]) {
        self.stats.wasted += Nanos(span * idle.len().min(self.held_wanting) as u64);
        let mut ended = Vec::new();
        for cpu in (0..self.wasting.len()).filter(|cpu| !idle.contains(cpu)) {
            ended.push(std::mem::take(&mut self.wasting[cpu]));
        }
        ended.sort_unstable();
        for &cpu in idle {
            if self.wasting[cpu] == 0 {
                self.wasting[cpu] = ended.pop().unwrap_or(0);
            }
            self.wasting[cpu] += span;
            self.stats.wasted_longest = self.stats.wasted_longest.max(Nanos(self.wasting[cpu]));
        }
    }

    /// Everything that falls on this moment.
    fn happen(&mut self, busy: bool) {
        let stolen = self.now < self.stolen_until;
        for cpu in 0..self.cpus.len() {
            if let Some(tid) = self.cpus[cpu].current
                && self.threads[tid].left == 0
                && !(stolen || busy && cpu == OWN_CPU)
            {
                self.threads[tid].visible = self.threads[tid].used;
                self.cpus[cpu].current = None;
                self.begin_step(tid);
                if self.cpus[cpu].current.is_none() {
                    self.dispatch(cpu);
                }
            }
        }
        while let Some(&Reverse((at, tid))) = self.wakes.peek()
            && at <= self.now
        {
            self.wakes.pop();
            if self.threads[tid].state == State::Sleeping {
                self.begin_step(tid);
            }
        }
        self.fire_timers();
        while self.late_news.front().is_some_and(|f| f.0 <= self.now) {
            if let Some((_, client)) = self.late_news.pop_front() {
                self.news.push_back(News::Gone(client));
            }
        }
        while self.faults.front().is_some_and(|f| f.at.0 <= self.now) {
            if let Some(fault) = self.faults.pop_front() {
                self.go_wrong(fault.fault);
            }
        }
        if self.now >= self.next_tick {
            self.next_tick += self.spec.tick.0;
            self.tick();
        }
    }

    fn tick(&mut self) {
        for cpu in 0..self.cpus.len() {
            let Some(current) = self.cpus[cpu].current else {
                if self.cpus[cpu].queue.is_empty() {
                    self.pull(cpu); // Load is balanced at ticks.
                }
                self.dispatch(cpu);
                continue;
            };
            self.threads[current].visible = self.threads[current].used;
            let vruntime = self.threads[current].vruntime;
            if self.least(cpu).is_some_and(|i| self.threads[self.cpus[cpu].queue[i]].vruntime < vruntime) {
                self.yield_cpu(cpu);
                self.dispatch(cpu);
            }
        }
    }

    fn go_wrong(&mut self, fault: Fault) {
        match fault {
            Fault::Late(by) => self.late_by += by.0,
            Fault::Vanish(client) => {
                self.change(client.index(), None, |c| c.vanished = true);
                self.late_news.push_back((self.now + NEWS_DELAY, client));
            }
            Fault::Refuse(client) => self.change(client.index(), None, |c| c.refused = true),
            Fault::Resume(client) => {
                if self.clients[client.index()].held {
                    self.change(client.index(), None, |c| c.held = false);
                    self.news.push_back(News::Resumed(client));
                }
            }
            Fault::Stop(client) => {
                if !self.clients[client.index()].held {
                    self.change(client.index(), None, |c| c.stopped = true);
                    self.news.push_back(News::Stopped(client));
                }
            }
            Fault::Continue(client) => self.change(client.index(), None, |c| c.stopped = false),
            Fault::ResumeAll => {
                for client in 0..self.clients.len() {
                    self.change(client, None, |c| c.held = false);
                }
                self.news.push_back(News::AllResumed);
            }
            Fault::Break => self.broken = true,
        }
    }
}
