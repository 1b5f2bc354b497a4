//! The machine of the fluid model: one CPU that serves all runnable clients at once, each at its fraction.
//!
//! It drives a workload as the other machine does, and tells observers of changes and answers; there are no runs to
//! tell of. What a client has had is told by [`Gps`] to 2^-64 ns; the workload hears of the end of a burst at the next
//! whole nanosecond.

use std::collections::BTreeMap;

use divvy_policy::dispatch::gps::Gps;
use divvy_policy::{ClientId, Event, EventError, Instant, Nanos};

use super::control::Op;
use super::{CLIENTS_MAX, Change, Control, End, Limits, MachineError, Next, Observer, Stats, Workload};

#[derive(Clone, Copy, Debug)]
struct Entry {
    tag: u32,
    /// It wants the CPU until it is stopped, rather than for a burst.
    endless: bool,
    stopped: bool,
    active: bool,
}

/// A fluid CPU with a workload and an observer.
#[derive(Debug)]
pub struct FluidMachine<W, O = ()> {
    gps: Gps,
    workload: W,
    observer: O,
    control: Control,
    clients: BTreeMap<ClientId, Entry>,
    now: Instant,
    stats: Stats,
}

impl<W: Workload, O: Observer> FluidMachine<W, O> {
    /// A machine at time zero.
    #[must_use]
    pub fn new(workload: W, observer: O) -> Self {
        let (gps, control) = (Gps::new(), Control::default());
        let (clients, now, stats) = (BTreeMap::new(), Instant::ZERO, Stats::default());
        Self { gps, workload, observer, control, clients, now, stats }
    }

    /// Runs from the start to one of the ends that [`End`] lists, calling `look` at every instant at which something
    /// changed. Call it once. A run of clients that stay for ever, without an end in time, ends at
    /// [`End::Endless`] at the last change. Bursts of programs cannot be stopped from outside.
    ///
    /// # Errors
    /// [`MachineError`] where the workload breaks its contract.
    pub fn run(&mut self, limits: &Limits, mut look: impl FnMut(&Self)) -> Result<End, MachineError> {
        self.workload.on_start(&mut self.control);
        self.apply_ops()?;
        self.fire_timers()?;
        look(self);
        let end = loop {
            let next = match (self.control.next_timer_at(), self.gps.poll_timeout()) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            let Some(next) = next.map(|at| at.max(self.now)).filter(|&at| at <= limits.until) else {
                break self.end_of_events(next.is_some(), limits);
            };
            if self.stats.events >= limits.decisions {
                break End::DecisionLimit;
            }
            if self.clients.len() > CLIENTS_MAX {
                break End::ClientLimit;
            }
            self.stats.events += 1;
            self.now = next;
            self.gps.advance(next);
            self.end_bursts()?;
            self.fire_timers()?;
            look(self);
            if next == limits.until {
                break End::Until;
            }
        };
        self.gps.advance(self.now);
        look(self);
        let present: u64 = self.services().map(|(_, service)| service.0).sum();
        self.stats.busy += Nanos(present);
        self.observer.on_end(self.now);
        Ok(end)
    }

    /// What was counted: instants at which something changed, and CPU time received.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The present instant.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Clients that are there, by id, with the CPU time that each received, to the nearest nanosecond.
    pub fn services(&self) -> impl Iterator<Item = (ClientId, Nanos)> {
        self.clients.keys().filter_map(|&client| Some((client, self.gps.entitlement(client)?.round())))
    }

    /// The observer, after the run.
    pub fn into_observer(self) -> O {
        self.observer
    }

    fn end_of_events(&mut self, more: bool, limits: &Limits) -> End {
        if self.clients.is_empty() && !more {
            return End::Finished;
        }
        if limits.until != Instant(u64::MAX) {
            self.now = limits.until;
            return End::Until;
        }
        let active = self.clients.values().any(|entry| entry.active);
        if active { End::Endless } else { End::Quiet }
    }

    fn tell(&mut self, event: Event) -> Result<(), MachineError> {
        let at = self.now;
        self.gps.on_event(at, event).map_err(|error| MachineError::Refused { at, event, error })
    }

    fn entry(&mut self, client: ClientId) -> Result<&mut Entry, MachineError> {
        let at = self.now;
        self.clients.get_mut(&client).ok_or(MachineError::UnknownClient { at, client })
    }

    fn end_bursts(&mut self) -> Result<(), MachineError> {
        while let Some(done) = self.gps.poll_completion() {
            let client = done.client;
            let tag = self.entry(client)?.tag;
            match self.workload.on_burst_end(self.now, client, tag, &mut self.control) {
                Next::Run(burst) => self.start(client, burst)?,
                Next::Sleep => {
                    self.entry(client)?.active = false;
                    self.observer.on_change(self.now, client, Change::Block);
                }
                Next::Exit => self.leave(client)?,
            }
            self.apply_ops()?;
        }
        Ok(())
    }

    fn fire_timers(&mut self) -> Result<(), MachineError> {
        while let Some(token) = self.control.pop_timer(self.now) {
            self.workload.on_timer(self.now, token, &mut self.control);
            self.apply_ops()?;
        }
        Ok(())
    }

    fn apply_ops(&mut self) -> Result<(), MachineError> {
        let ops = std::mem::take(&mut self.control.ops);
        ops.iter().try_for_each(|&op| self.apply(op))?;
        self.control.ops = ops;
        self.control.ops.clear();
        Ok(())
    }

    fn apply(&mut self, op: Op) -> Result<(), MachineError> {
        match op {
            Op::Respond(response) => {
                self.observer.on_response(&response);
                Ok(())
            }
            Op::Join { client, share, tag } => {
                self.observer.on_change(self.now, client, Change::Join { share });
                self.clients.insert(client, Entry { tag, endless: false, stopped: false, active: false });
                self.tell(Event::Join { client, share })
            }
            Op::Start { client, burst } => self.start(client, burst),
            Op::Resume { client } => {
                let entry = self.entry(client)?;
                entry.stopped = false;
                if entry.endless { self.wake(client) } else { Ok(()) }
            }
            Op::Stop { client } => {
                let entry = self.entry(client)?;
                entry.stopped = true;
                if std::mem::take(&mut entry.active) {
                    self.observer.on_change(self.now, client, Change::Block);
                    self.tell(Event::Block { client })?;
                }
                Ok(())
            }
            Op::Leave { client } => self.leave(client),
            Op::Reshare { client, share } => {
                self.observer.on_change(self.now, client, Change::Reshare { share });
                self.tell(Event::Reshare { client, share })
            }
        }
    }

    fn start(&mut self, client: ClientId, burst: Nanos) -> Result<(), MachineError> {
        let entry = self.entry(client)?;
        entry.endless = burst == Nanos::MAX;
        if entry.endless {
            return if entry.stopped { Ok(()) } else { self.wake(client) };
        }
        if !std::mem::replace(&mut entry.active, true) {
            self.observer.on_change(self.now, client, Change::Wake);
        }
        let at = self.now;
        let unknown = |_: EventError| MachineError::UnknownClient { at, client };
        self.gps.submit(at, client, burst.max(Nanos(1))).map_err(unknown)
    }

    fn wake(&mut self, client: ClientId) -> Result<(), MachineError> {
        self.entry(client)?.active = true;
        self.observer.on_change(self.now, client, Change::Wake);
        self.tell(Event::Wake { client })
    }

    fn leave(&mut self, client: ClientId) -> Result<(), MachineError> {
        self.entry(client)?;
        let service = self.gps.entitlement(client).map_or(Nanos::ZERO, |fluid| fluid.round());
        self.stats.busy += service;
        self.clients.remove(&client);
        self.observer.on_change(self.now, client, Change::Leave { service });
        self.tell(Event::Leave { client })
    }
}
