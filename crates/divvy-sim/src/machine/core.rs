//! The machine's loop. The order of things within an instant is told in the parent module.

use divvy_policy::{ClientId, CpuId, Event, Grant, Instant, Nanos, Policy, Share};

use super::control::Op;
use super::slots::{NONE, Slot, Slots};
use super::{
    CLIENTS_MAX, Change, Clock, Config, Control, End, Limits, MachineError, Next, Observer, OnBlock, OnWake,
    Stats, Workload,
};

/// Never.
const NEVER: Instant = Instant(u64::MAX);
/// The most decisions at one instant, beyond one for each CPU, before the policy counts as caught in a loop.
const DECISIONS_PER_INSTANT: u64 = 10_000;

/// One CPU. Idle where `slot` is `NONE`; then `end` is `NEVER`.
#[derive(Clone, Copy, Debug)]
struct Cpu {
    /// The next instant at which this CPU must be looked at: end of slice or burst.
    end: Instant,
    slice_end: Instant,
    /// Where the uncharged part of the run begins; in the future while the CPU is still switching.
    from: Instant,
    slot: u32,
    client: ClientId,
    /// The client that ran last, `NONE` before the first.
    last: u32,
    /// `Free` is still to be told, at the next tick.
    free_due: bool,
}

const IDLE: Cpu = Cpu {
    end: NEVER,
    slice_end: NEVER,
    from: Instant::ZERO,
    slot: NONE,
    client: ClientId(NONE),
    last: NONE,
    free_due: false,
};

/// A simulated machine that runs `workload` under `policy` and tells `observer` what happens.
#[derive(Debug)]
pub struct Machine<P, W, O = ()> {
    config: Config,
    policy: P,
    workload: W,
    observer: O,
    control: Control,
    slots: Slots,
    cpus: Vec<Cpu>,
    now: Instant,
    stats: Stats,
    /// Instants and timers so far.
    nr_steps: u64,
    nr_runnable: u32,
    nr_running: u32,
    /// Somebody woke, joined or changed at this instant.
    woken: bool,
    /// A burst ended at this instant.
    burst_ended: bool,
    /// The policy has heard of something since it was last asked.
    pending: bool,
}

impl<P, W, O> Machine<P, W, O>
where
    P: Policy<Decision = Grant>,
    W: Workload,
    O: Observer,
{
    /// A machine at time zero, on which nothing has happened yet.
    ///
    /// # Panics
    /// If `config` has no CPU, or ticks of no length.
    #[must_use]
    pub fn new(config: Config, policy: P, workload: W, observer: O) -> Self {
        assert!(config.cpus > 0, "a machine has at least one CPU");
        if let Clock::Tick { period, .. } = config.clock {
            assert!(period > Nanos::ZERO, "a tick takes time");
        }
        Self {
            config,
            policy,
            workload,
            observer,
            control: Control::default(),
            slots: Slots::default(),
            cpus: vec![IDLE; config.cpus as usize],
            now: Instant::ZERO,
            stats: Stats::default(),
            nr_steps: 0,
            nr_runnable: 0,
            nr_running: 0,
            woken: false,
            burst_ended: false,
            pending: false,
        }
    }

    /// Runs from the start to one of the ends that [`End`] lists. Call it once.
    ///
    /// # Errors
    /// [`MachineError`] where the policy or the workload breaks its contract.
    pub fn run(&mut self, limits: &Limits) -> Result<End, MachineError> {
        self.workload.on_start(&mut self.control);
        self.apply_ops()?;
        for cpu in 0..self.config.cpus {
            self.tell(Event::Free { cpu: CpuId(cpu) })?;
        }
        // Timers at zero belong to the first instant, before the first choice.
        self.fire_timers()?;
        self.pending = true;
        self.decide()?;
        let end = loop {
            let Some(next) = self.next_instant() else { break self.end_of_events(limits) };
            if next > limits.until {
                self.advance(limits.until);
                break End::Until;
            }
            if self.stats.decisions >= limits.decisions {
                break End::DecisionLimit;
            }
            self.nr_steps += 1;
            if self.nr_steps > limits.steps() {
                break End::EventLimit;
            }
            if self.slots.len() > CLIENTS_MAX {
                break End::ClientLimit;
            }
            self.advance(next);
            self.end_slices()?;
            if self.control.next_timer_at().is_some_and(|at| at <= next) {
                self.fire_timers()?;
            }
            if next == limits.until {
                break End::Until;
            }
            self.decide()?;
        };
        self.charge_all()?;
        self.observer.on_end(self.now);
        Ok(end)
    }

    /// What was counted.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The present instant.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Clients that are there, by id, with the CPU time that each received.
    pub fn services(&self) -> impl Iterator<Item = (ClientId, Nanos)> {
        self.slots.iter().map(|slot| (slot.client, slot.service))
    }

    /// How many entries the machine's tables of clients hold: what its memory grows with.
    #[must_use]
    pub fn nr_client_entries(&self) -> usize {
        self.slots.nr_entries()
    }

    /// The policy, workload and observer, for whoever wants to look at them after the run.
    pub fn into_parts(self) -> (P, W, O) {
        (self.policy, self.workload, self.observer)
    }

    fn next_instant(&self) -> Option<Instant> {
        let mut next = NEVER;
        for cpu in &self.cpus {
            next = next.min(cpu.end);
        }
        if let Some(at) = self.control.next_timer_at() {
            next = next.min(at);
        }
        // A policy that asks for a moment that is already past was asked then and had nothing to say.
        if let Some(at) = self.policy.poll_timeout().filter(|&at| at > self.now) {
            next = next.min(self.on_grid(at));
        }
        if self.pending {
            next = next.min(self.on_grid(self.now + Nanos(1)));
        }
        (next != NEVER).then_some(next.max(self.now))
    }

    /// The first instant from `at` on at which a decision may be taken.
    fn on_grid(&self, at: Instant) -> Instant {
        match self.config.clock {
            Clock::Event => at,
            Clock::Tick { period, .. } => at.0.checked_next_multiple_of(period.0).map_or(NEVER, Instant),
        }
    }

    /// Nothing will ever happen: what there is now lasts until the run's end, or for ever.
    fn end_of_events(&mut self, limits: &Limits) -> End {
        if self.slots.len() == 0 {
            return End::Finished;
        }
        if self.nr_runnable > 0 && self.nr_running == 0 {
            return End::Stalled;
        }
        if limits.until < NEVER {
            self.advance(limits.until);
            return End::Until;
        }
        if self.nr_running > 0 { End::Endless } else { End::Quiet }
    }

    #[inline]
    fn advance(&mut self, to: Instant) {
        if self.nr_running < self.config.cpus && self.nr_running < self.nr_runnable {
            let idle = self.config.cpus.min(self.nr_runnable) - self.nr_running;
            let span = to.since(self.now);
            self.stats.idle_with_work += Nanos(span.0.saturating_mul(u64::from(idle)));
        }
        self.now = to;
        self.woken = false;
        self.burst_ended = false;
    }

    #[inline]
    fn tell(&mut self, event: Event) -> Result<(), MachineError> {
        self.stats.events += 1;
        let at = self.now;
        self.policy.on_event(at, event).map_err(|error| MachineError::Refused { at, event, error })
    }

    /// Charges the client on CPU `index` up to now.
    #[inline]
    fn charge(&mut self, index: usize) -> Result<(), MachineError> {
        let cpu = &mut self.cpus[index];
        if cpu.slot == NONE || cpu.from >= self.now {
            return Ok(());
        }
        let (client, from) = (cpu.client, cpu.from);
        cpu.from = self.now;
        let used = self.now.since(from);
        let slot = self.slots.get(cpu.slot);
        slot.remaining = slot.remaining.saturating_sub(used);
        slot.service += used;
        self.stats.busy += used;
        self.observer.on_run(CpuId(index as u32), client, from, self.now);
        self.tell(Event::Charge { client, used })
    }

    fn charge_all(&mut self) -> Result<(), MachineError> {
        (0..self.cpus.len()).try_for_each(|index| self.charge(index))
    }

    /// Empties CPU `index`; nobody is told.
    #[inline]
    fn vacate(&mut self, index: usize) {
        let cpu = &mut self.cpus[index];
        // A switch that was not finished gives back what it did not use.
        self.stats.overhead = self.stats.overhead.saturating_sub(cpu.from.since(self.now));
        self.slots.get(cpu.slot).cpu = NONE;
        cpu.slot = NONE;
        cpu.end = NEVER;
        self.nr_running -= 1;
    }

    #[inline]
    fn tell_free(&mut self, index: usize) -> Result<(), MachineError> {
        self.pending = true;
        if matches!(self.config.clock, Clock::Tick { .. }) {
            self.cpus[index].free_due = true;
            return Ok(());
        }
        self.tell(Event::Free { cpu: CpuId(index as u32) })
    }

    /// Step 1 of an instant: slices and bursts that are over.
    #[inline]
    fn end_slices(&mut self) -> Result<(), MachineError> {
        for index in 0..self.cpus.len() {
            if self.cpus[index].end == self.now {
                self.end_slice(index)?;
            }
        }
        Ok(())
    }

    #[inline]
    fn end_slice(&mut self, index: usize) -> Result<(), MachineError> {
        self.charge(index)?;
        let cpu = self.cpus[index];
        if self.slots.get(cpu.slot).remaining == Nanos::ZERO && !self.end_burst(index)? {
            return Ok(());
        }
        if self.cpus[index].slot != NONE {
            self.vacate(index);
            self.tell_free(index)?;
        }
        Ok(())
    }

    /// Ends the burst of the client on CPU `index`; whether its slice is over too.
    fn end_burst(&mut self, index: usize) -> Result<bool, MachineError> {
        let Cpu { slot, client, slice_end, .. } = self.cpus[index];
        let tag = self.slots.get(slot).tag;
        self.burst_ended = true;
        let next = self.workload.on_burst_end(self.now, client, tag, &mut self.control);
        let over = match next {
            Next::Run(burst) => {
                let burst = burst.max(Nanos(1));
                self.slots.get(slot).remaining = burst;
                self.cpus[index].end = slice_end.min(self.now + burst);
                self.cpus[index].end == self.now
            }
            Next::Sleep => {
                self.block(slot)?;
                true
            }
            Next::Exit => {
                self.vacate(index);
                self.leave(slot)?;
                self.tell_free(index)?;
                false
            }
        };
        self.apply_ops()?;
        Ok(over)
    }

    fn block(&mut self, slot: u32) -> Result<(), MachineError> {
        let entry = self.slots.get(slot);
        entry.runnable = false;
        let client = entry.client;
        self.nr_runnable -= 1;
        self.pending = true;
        self.observer.on_change(self.now, client, Change::Block);
        self.tell(Event::Block { client })
    }

    fn leave(&mut self, slot: u32) -> Result<(), MachineError> {
        let Slot { client, service, runnable, .. } = *self.slots.get(slot);
        self.nr_runnable -= u32::from(runnable);
        self.slots.remove(slot);
        self.pending = true;
        self.observer.on_change(self.now, client, Change::Leave { service });
        self.tell(Event::Leave { client })
    }

    fn wake(&mut self, slot: u32) -> Result<(), MachineError> {
        let entry = self.slots.get(slot);
        if entry.runnable || entry.stopped || entry.remaining == Nanos::ZERO {
            return Ok(());
        }
        entry.runnable = true;
        let client = entry.client;
        self.nr_runnable += 1;
        self.woken = true;
        self.pending = true;
        self.observer.on_change(self.now, client, Change::Wake);
        self.tell(Event::Wake { client })
    }

    /// Step 2 of an instant: timers of the workload.
    fn fire_timers(&mut self) -> Result<(), MachineError> {
        let mut first = true;
        while let Some(token) = self.control.pop_timer(self.now) {
            self.nr_steps += 1;
            if std::mem::take(&mut first) {
                self.charge_all()?;
            }
            self.workload.on_timer(self.now, token, &mut self.control);
            self.apply_ops()?;
        }
        if self.woken && self.config.on_wake == OnWake::Redecide {
            for index in 0..self.cpus.len() {
                if self.cpus[index].slot != NONE {
                    self.vacate(index);
                    self.tell_free(index)?;
                }
            }
        }
        Ok(())
    }

    fn apply_ops(&mut self) -> Result<(), MachineError> {
        if self.control.ops.is_empty() {
            return Ok(());
        }
        let ops = std::mem::take(&mut self.control.ops);
        for &op in &ops {
            self.apply(op)?;
        }
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
            Op::Join { client, share, tag } => self.join(client, share, tag),
            Op::Start { client, burst } => {
                let slot = self.find(client)?;
                self.slots.get(slot).remaining = burst.max(Nanos(1));
                if let Some(index) = self.running_on(slot) {
                    self.cpus[index].end = self.cpus[index].slice_end.min(self.cpus[index].from + burst);
                }
                self.wake(slot)
            }
            Op::Resume { client } => {
                let slot = self.find(client)?;
                self.slots.get(slot).stopped = false;
                self.wake(slot)
            }
            Op::Stop { client } => {
                let slot = self.find(client)?;
                self.slots.get(slot).stopped = true;
                if !self.slots.get(slot).runnable {
                    return Ok(());
                }
                let on = self.take_off(slot)?;
                self.block(slot)?;
                on.map_or(Ok(()), |index| self.tell_free(index))
            }
            Op::Leave { client } => {
                let slot = self.find(client)?;
                let on = self.take_off(slot)?;
                self.leave(slot)?;
                on.map_or(Ok(()), |index| self.tell_free(index))
            }
            Op::Reshare { client, share } => {
                self.find(client)?;
                self.pending = true;
                self.woken = true;
                self.observer.on_change(self.now, client, Change::Reshare { share });
                self.tell(Event::Reshare { client, share })
            }
        }
    }

    fn join(&mut self, client: ClientId, share: Share, tag: u32) -> Result<(), MachineError> {
        self.observer.on_change(self.now, client, Change::Join { share });
        self.tell(Event::Join { client, share })?;
        if self.slots.insert(client, tag) {
            Ok(())
        } else {
            Err(MachineError::UnknownClient { at: self.now, client })
        }
    }

    fn find(&self, client: ClientId) -> Result<u32, MachineError> {
        self.slots.find(client).ok_or(MachineError::UnknownClient { at: self.now, client })
    }

    fn running_on(&mut self, slot: u32) -> Option<usize> {
        let cpu = self.slots.get(slot).cpu;
        (cpu != NONE).then_some(cpu as usize)
    }

    /// Takes a client off its CPU, if it runs; which one that was.
    fn take_off(&mut self, slot: u32) -> Result<Option<usize>, MachineError> {
        let Some(index) = self.running_on(slot) else { return Ok(None) };
        self.charge(index)?;
        self.vacate(index);
        Ok(Some(index))
    }

    /// Step 3 of an instant: the policy decides, if it may.
    #[inline]
    fn decide(&mut self) -> Result<(), MachineError> {
        if let Clock::Tick { period, on_block } = self.config.clock {
            let on_grid = self.now.0.is_multiple_of(period.0);
            let may_decide = on_grid || (self.burst_ended && on_block == OnBlock::AtOnce);
            if !may_decide {
                return Ok(());
            }
            for index in 0..self.cpus.len() {
                if std::mem::take(&mut self.cpus[index].free_due) {
                    self.tell(Event::Free { cpu: CpuId(index as u32) })?;
                }
            }
        }
        self.pending = false;
        let mut nr_decisions = 0;
        while let Some(grant) = self.policy.poll_decision(self.now) {
            self.carry_out(&grant)?;
            nr_decisions += 1;
            if nr_decisions > DECISIONS_PER_INSTANT + u64::from(self.config.cpus) {
                return Err(MachineError::Livelock { at: self.now });
            }
        }
        Ok(())
    }

    #[inline]
    fn carry_out(&mut self, grant: &Grant) -> Result<(), MachineError> {
        let at = self.now;
        let Grant { cpu, client, slice } = *grant;
        let index = cpu.index();
        if index >= self.cpus.len() {
            return Err(MachineError::NoSuchCpu { at, cpu });
        }
        if slice == Nanos::ZERO {
            return Err(MachineError::EmptySlice { at, client });
        }
        let Some(slot) = self.slots.find(client) else { return Err(MachineError::CannotRun { at, client }) };
        let Slot { runnable, cpu: on, .. } = *self.slots.get(slot);
        if !runnable || (on != NONE && on as usize != index) {
            return Err(MachineError::CannotRun { at, client });
        }
        self.stats.decisions += 1;
        // Whoever runs there is charged first, so that observers see the account as it is at the decision.
        self.charge(index)?;
        self.observer.on_decision(at, grant);
        if on == NONE {
            self.put_on(index, slot, client);
        }
        let remaining = self.slots.get(slot).remaining;
        let slice_end = self.on_grid(self.cpus[index].from + slice);
        let cpu = &mut self.cpus[index];
        cpu.slice_end = slice_end;
        cpu.end = slice_end.min(cpu.from + remaining);
        Ok(())
    }

    /// Puts the client in `slot` on CPU `index`, in place of whoever runs there.
    #[inline]
    fn put_on(&mut self, index: usize, slot: u32, client: ClientId) {
        if self.cpus[index].slot != NONE {
            self.vacate(index);
            self.stats.preemptions += 1;
        }
        let mut from = self.now;
        let cpu = &mut self.cpus[index];
        if cpu.last != client.0 {
            self.stats.switches += 1;
            self.stats.overhead += self.config.switch_cost;
            from = from + self.config.switch_cost;
            cpu.last = client.0;
        }
        cpu.from = from;
        cpu.slot = slot;
        cpu.client = client;
        self.slots.get(slot).cpu = index as u32;
        self.nr_running += 1;
    }
}
