//! A scenario's workload on the simulated machine: who joins, sleeps, answers and leaves is told by a [`Mix`], and what
//! truly happened, whatever the gate saw of it, is kept for observers.

use std::collections::{BTreeMap, VecDeque};

use divvy_engine::News;
use divvy_policy::{ClientId, CpuId, Instant, Nanos, Share};

use super::super::program::Program;
use super::{ClientState, Kernel, State, Thread};
use crate::machine::{Change, Control, Next, Op, Response, Workload as _};
use crate::workload::Mix;

/// What truly happened. Clients have the workload's numbers here.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Seen {
    Run { cpu: CpuId, client: ClientId, from: Instant, to: Instant },
    Change { at: Instant, client: ClientId, change: Change },
    Response(Response),
}

/// A workload with what the machine and the engine's driver must know of it.
#[derive(Clone, Debug)]
pub(super) struct Driver {
    workload: Mix,
    control: Control,
    /// The workload's number and mark of each of the machine's clients, and the way back.
    ids: Vec<(ClientId, u32)>,
    index: BTreeMap<ClientId, usize>,
    /// Clients that the engine has not been told of, and shares that have changed, by the machine's numbers.
    joins: VecDeque<Share>,
    reshares: VecDeque<(ClientId, Share)>,
    seen: Vec<Seen>,
    /// Who ran last on each CPU, and how often that changed.
    last: Vec<Option<ClientId>>,
    switches: u64,
}

impl Driver {
    /// The client of the machine's number `client` has run.
    pub(super) fn ran(&mut self, cpu: usize, client: usize, from: u64, to: u64) {
        let client = self.ids[client].0;
        if self.last.len() <= cpu {
            self.last.resize(cpu + 1, None);
        }
        if self.last[cpu].replace(client) != Some(client) {
            self.switches += 1;
        }
        self.seen.push(Seen::Run { cpu: CpuId(cpu as u32), client, from: Instant(from), to: Instant(to) });
    }

    pub(super) fn next_timer_at(&self) -> Option<u64> {
        self.control.next_timer_at().map(|at| at.0)
    }

    /// Whether somebody waits to be told to the engine.
    pub(super) fn has_joins(&self) -> bool {
        !self.joins.is_empty()
    }
}

impl Kernel {
    /// Runs `workload` from now on, time zero.
    pub(in super::super) fn drive(&mut self, workload: Mix) {
        let mut driver = Box::new(Driver {
            workload,
            control: Control::default(),
            ids: Vec::new(),
            index: BTreeMap::new(),
            joins: VecDeque::new(),
            reshares: VecDeque::new(),
            seen: Vec::new(),
            last: Vec::new(),
            switches: 0,
        });
        driver.workload.on_start(&mut driver.control);
        self.driver = Some(driver);
        self.apply_ops();
        self.fire_timers();
    }

    pub(in super::super) fn take_joins(&mut self) -> Vec<Share> {
        self.driver.as_mut().map(|d| d.joins.drain(..).collect()).unwrap_or_default()
    }

    pub(in super::super) fn take_reshares(&mut self) -> Vec<(ClientId, Share)> {
        self.driver.as_mut().map(|d| d.reshares.drain(..).collect()).unwrap_or_default()
    }

    pub(in super::super) fn take_seen(&mut self) -> Vec<Seen> {
        self.driver.as_mut().map(|d| std::mem::take(&mut d.seen)).unwrap_or_default()
    }

    /// Whether somebody will come who is not there yet.
    pub(in super::super) fn expects_somebody(&self) -> bool {
        self.driver.as_ref().is_some_and(|d| d.has_joins() || d.next_timer_at().is_some())
    }

    /// CPU time of each client that ever was, by the workload's numbers; and how often CPUs turned to another.
    pub(in super::super) fn services(&self) -> (Vec<(ClientId, Nanos)>, u64) {
        let Some(driver) = &self.driver else { return (Vec::new(), 0) };
        let rows = driver.ids.iter().enumerate().map(|(client, (id, _))| (*id, self.used(client, false)));
        (rows.collect(), driver.switches)
    }

    fn see(&mut self, client: usize, change: Change) {
        let at = Instant(self.now);
        if let Some(driver) = &mut self.driver {
            let client = driver.ids[client].0;
            driver.seen.push(Seen::Change { at, client, change });
        }
    }

    /// A driven thread has used its burst up.
    pub(super) fn next_burst(&mut self, tid: usize) {
        let now = Instant(self.now);
        let (Some(client), Some(driver)) = (self.threads[tid].client, &mut self.driver) else { return };
        let (id, tag) = driver.ids[client];
        match driver.workload.on_burst_end(now, id, tag, &mut driver.control) {
            Next::Run(burst) => {
                self.threads[tid].left = burst.0.max(1);
                self.make_ready(tid, None);
            }
            Next::Sleep => {
                self.threads[tid].state = State::Sleeping;
                self.see(client, Change::Block);
            }
            Next::Exit => self.quit(client, tid),
        }
        self.apply_ops();
    }

    fn quit(&mut self, client: usize, tid: usize) {
        self.see(client, Change::Leave { service: Nanos(self.threads[tid].used) });
        self.exit(tid);
    }

    pub(super) fn fire_timers(&mut self) {
        let now = Instant(self.now);
        while let Some(driver) = &mut self.driver
            && let Some(token) = driver.control.pop_timer(now)
        {
            driver.workload.on_timer(now, token, &mut driver.control);
            self.apply_ops();
        }
    }

    fn apply_ops(&mut self) {
        while let Some(driver) = &mut self.driver
            && !driver.control.ops.is_empty()
        {
            for op in std::mem::take(&mut driver.control.ops) {
                self.apply(op);
            }
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Join { client, share, tag } => self.join_driven(client, share, tag),
            Op::Respond(response) => {
                if let Some(driver) = &mut self.driver {
                    driver.seen.push(Seen::Response(response));
                }
            }
            Op::Start { client, .. }
            | Op::Resume { client }
            | Op::Stop { client }
            | Op::Leave { client }
            | Op::Reshare { client, .. } => {
                let index = self.driver.as_ref().and_then(|driver| driver.index.get(&client).copied());
                // Whoever has left is not acted on any more.
                if let Some(index) = index.filter(|&index| !self.clients[index].ended()) {
                    self.apply_to(index, op);
                }
            }
        }
    }

    fn apply_to(&mut self, client: usize, op: Op) {
        let tid = self.clients[client].threads[0];
        let wants = self.threads[tid].state != State::Sleeping;
        let stopped = self.clients[client].stopped;
        match op {
            Op::Start { burst, .. } => {
                self.threads[tid].left = burst.0.max(1);
                if !wants {
                    if !stopped {
                        self.see(client, Change::Wake);
                    }
                    self.make_ready(tid, None);
                }
            }
            Op::Resume { .. } if stopped => {
                self.change(client, None, |c| c.stopped = false);
                if wants {
                    self.see(client, Change::Wake);
                }
            }
            Op::Stop { .. } if !stopped => {
                let held = self.clients[client].held;
                self.change(client, None, |c| c.stopped = true);
                if wants {
                    self.see(client, Change::Block);
                }
                if !held {
                    self.news.push_back(News::Stopped(ClientId(client as u32)));
                }
            }
            Op::Leave { .. } => {
                self.remove(tid);
                self.quit(client, tid);
            }
            Op::Reshare { share, .. } => {
                if let Some(driver) = &mut self.driver {
                    driver.reshares.push_back((ClientId(client as u32), share));
                }
                self.see(client, Change::Reshare { share });
            }
            Op::Resume { .. } | Op::Stop { .. } | Op::Join { .. } | Op::Respond(_) => {}
        }
    }

    /// A new client, held, with one thread that sleeps.
    fn join_driven(&mut self, id: ClientId, share: Share, tag: u32) {
        let (client, tid) = (self.clients.len(), self.threads.len());
        self.clients.push(ClientState {
            threads: vec![tid],
            held: true,
            living: 1,
            ..ClientState::default()
        });
        self.threads.push(Thread {
            client: Some(client),
            program: Program { steps: Vec::new(), again: 0 },
            driven: true,
            next_step: 0,
            left: 0,
            state: State::Sleeping,
            used: 0,
            visible: 0,
            vruntime: 0,
            cpu: client % self.cpus.len(),
        });
        if let Some(driver) = &mut self.driver {
            driver.ids.push((id, tag));
            driver.index.insert(id, client);
            driver.joins.push_back(share);
        }
        self.see(client, Change::Join { share });
    }
}
