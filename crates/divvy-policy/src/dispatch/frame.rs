//! What the dispatchers of this folder do alike: the table of clients, the table of CPUs, grants and preemption.
//!
//! A policy is a [`Rule`] inside a [`Frame`]. The frame checks events before anything changes, knows who holds which
//! CPU, and asks the rule only two things: who is best now, and for how long.

use alloc::vec;
use alloc::vec::Vec;

use super::ring::NONE;
use crate::{ClientId, CpuId, Event, EventError, Grant, Instant, Nanos, Share};

/// In the index: this id never joined.
const NEVER: u32 = u32::MAX;
/// In the index: this id has left.
const GONE: u32 = u32::MAX - 1;

/// What a client is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Not runnable.
    Blocked,
    /// Runnable, on no CPU.
    Ready,
    /// Granted this CPU.
    Holding(u32),
}

/// One client, with what the rule keeps about it.
#[derive(Clone, Debug)]
pub(super) struct Row<D> {
    pub(super) id: ClientId,
    pub(super) share: Share,
    pub(super) standing: Standing,
    pub(super) data: D,
}

/// Clients by slot. A slot is used again after its client has left; an id never is.
pub(super) type Rows<D> = Vec<Row<D>>;

/// A moment at which a CPU is decided on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Occasion {
    pub(super) now: Instant,
    /// Which CPU.
    pub(super) cpu: u32,
    /// Who ran on this CPU until now and still could, or [`NONE`].
    pub(super) current: u32,
    /// Who holds the CPU and may be chosen although not ready, or [`NONE`] where the CPU is free.
    pub(super) holder: u32,
}

/// How a policy differs from the others. Slots are those of the frame's table.
pub(super) trait Rule {
    /// Kept for each client.
    type Data;

    /// What is kept about a client that joins now, blocked.
    fn join(&mut self, now: Instant, id: ClientId, share: Share) -> Self::Data;
    /// `slot` has become runnable.
    fn wake(&mut self, now: Instant, slot: u32, rows: &mut Rows<Self::Data>, current: u32);
    /// `slot` is no longer runnable; `was` is ready or holding.
    fn block(&mut self, now: Instant, slot: u32, rows: &mut Rows<Self::Data>, was: Standing);
    /// `slot`, blocked by now, is about to be forgotten.
    fn leave(&mut self, _slot: u32, _rows: &mut Rows<Self::Data>) {}
    /// The share of `slot` is about to become `share`; its row still holds the old one.
    fn reshare(&mut self, now: Instant, slot: u32, share: Share, rows: &mut Rows<Self::Data>);
    /// `slot` has used CPU time.
    fn charge(&mut self, now: Instant, slot: u32, used: Nanos, rows: &mut Rows<Self::Data>);
    /// `slot` gives its CPU back and stays runnable.
    fn put_back(&mut self, now: Instant, slot: u32, rows: &mut Rows<Self::Data>);
    /// `slot` is given a CPU.
    fn take(&mut self, now: Instant, slot: u32, rows: &mut Rows<Self::Data>);
    /// The best of the ready clients and the occasion's holder. The frame asks only where there is one.
    fn choose(&mut self, occasion: Occasion, rows: &mut Rows<Self::Data>) -> u32;
    /// How long `slot` may keep a CPU that it is given now.
    fn slice(&mut self, now: Instant, slot: u32, rows: &Rows<Self::Data>) -> Nanos;
    /// Whether a client that wakes may take a CPU from another one.
    fn preempts(&self) -> bool;
    /// Whether `a` comes before `b`, both of which hold a CPU: the last in this order loses its CPU first.
    fn precedes(&self, now: Instant, a: u32, b: u32, rows: &Rows<Self::Data>) -> bool;
}

#[derive(Clone, Copy, Debug)]
struct Cpu {
    holder: u32,
    current: u32,
    asking: bool,
}

/// A [`Rule`] with its clients and CPUs.
#[derive(Clone, Debug)]
pub(super) struct Frame<R: Rule> {
    pub(super) rule: R,
    pub(super) rows: Rows<R::Data>,
    index: Vec<u32>,
    unused: Vec<u32>,
    cpus: Vec<Cpu>,
    nr_ready: u32,
    nr_asking: u32,
    /// Wakes since the last time every CPU was looked at.
    wakes: u32,
}

impl<R: Rule> Frame<R> {
    /// No clients, and `nr_cpus` CPUs that have not asked yet.
    pub(super) fn new(rule: R, nr_cpus: u32) -> Self {
        let idle = Cpu { holder: NONE, current: NONE, asking: false };
        Self {
            rule,
            rows: Vec::new(),
            index: Vec::new(),
            unused: Vec::new(),
            cpus: vec![idle; nr_cpus as usize],
            nr_ready: 0,
            nr_asking: 0,
            wakes: 0,
        }
    }

    /// The slot of `client`.
    pub(super) fn slot(&self, client: ClientId) -> Result<u32, EventError> {
        match self.index.get(client.index()) {
            None | Some(&NEVER | &GONE) => Err(EventError::UnknownClient(client)),
            Some(&slot) => Ok(slot),
        }
    }

    /// Applies one event; see [`crate::Policy::on_event`].
    #[inline]
    pub(super) fn on_event(&mut self, now: Instant, event: Event) -> Result<(), EventError> {
        match event {
            Event::Charge { client, used } => {
                let slot = self.slot(client)?;
                if used > Nanos::ZERO {
                    self.rule.charge(now, slot, used, &mut self.rows);
                }
            }
            Event::Free { cpu } => self.free(now, cpu)?,
            Event::Wake { client } => {
                let slot = self.slot(client)?;
                self.wake(now, slot);
            }
            Event::Block { client } => {
                let slot = self.slot(client)?;
                self.block(now, slot);
            }
            Event::Join { client, share } => self.join(now, client, share)?,
            Event::Leave { client } => {
                let slot = self.slot(client)?;
                self.block(now, slot);
                self.rule.leave(slot, &mut self.rows);
                self.index[client.index()] = GONE;
                self.unused.push(slot);
            }
            Event::Reshare { client, share } => {
                let slot = self.slot(client)?;
                self.rule.reshare(now, slot, share, &mut self.rows);
                self.rows[slot as usize].share = share;
            }
            Event::Width { client, cpus } => {
                self.slot(client)?;
                if cpus == 0 {
                    return Err(EventError::ZeroWidth(client));
                }
            }
        }
        Ok(())
    }

    fn join(&mut self, now: Instant, id: ClientId, share: Share) -> Result<(), EventError> {
        if self.index.get(id.index()).is_some_and(|&slot| slot != NEVER) {
            return Err(EventError::DuplicateClient(id));
        }
        if self.index.len() <= id.index() {
            self.index.resize(id.index() + 1, NEVER);
        }
        let data = self.rule.join(now, id, share);
        let row = Row { id, share, standing: Standing::Blocked, data };
        self.index[id.index()] = if let Some(slot) = self.unused.pop() {
            self.rows[slot as usize] = row;
            slot
        } else {
            self.rows.push(row);
            (self.rows.len() - 1) as u32
        };
        Ok(())
    }

    #[inline]
    fn wake(&mut self, now: Instant, slot: u32) {
        let row = &mut self.rows[slot as usize];
        if row.standing == Standing::Blocked {
            row.standing = Standing::Ready;
            self.nr_ready += 1;
            self.wakes = self.wakes.saturating_add(1);
            let current = self.cpus[0].current;
            self.rule.wake(now, slot, &mut self.rows, current);
        }
    }

    #[inline]
    fn block(&mut self, now: Instant, slot: u32) {
        let was = self.rows[slot as usize].standing;
        match was {
            Standing::Blocked => return,
            Standing::Ready => self.nr_ready -= 1,
            Standing::Holding(cpu) => self.cpus[cpu as usize].holder = NONE,
        }
        for cpu in &mut self.cpus {
            if cpu.current == slot {
                cpu.current = NONE;
            }
        }
        self.rows[slot as usize].standing = Standing::Blocked;
        self.rule.block(now, slot, &mut self.rows, was);
    }

    #[inline]
    fn free(&mut self, now: Instant, cpu: CpuId) -> Result<(), EventError> {
        let entry = self.cpus.get_mut(cpu.index()).ok_or(EventError::UnknownCpu(cpu))?;
        if !entry.asking {
            entry.asking = true;
            self.nr_asking += 1;
            let holder = core::mem::replace(&mut entry.holder, NONE);
            if holder != NONE {
                self.put_back(now, holder);
            }
        }
        Ok(())
    }

    #[inline]
    fn put_back(&mut self, now: Instant, slot: u32) {
        self.rows[slot as usize].standing = Standing::Ready;
        self.nr_ready += 1;
        self.rule.put_back(now, slot, &mut self.rows);
    }

    /// The next decision; see [`crate::Policy::poll_decision`]. CPUs that ask are served by number, then wakes may preempt.
    #[inline]
    pub(super) fn poll_decision(&mut self, now: Instant) -> Option<Grant> {
        if self.nr_ready == 0 {
            self.wakes = 0;
            return None;
        }
        if self.nr_asking > 0 {
            let cpu = self.cpus.iter().position(|cpu| cpu.asking)?;
            let entry = &mut self.cpus[cpu];
            entry.asking = false;
            self.nr_asking -= 1;
            let occasion = Occasion { now, cpu: cpu as u32, current: entry.current, holder: NONE };
            if self.cpus.len() == 1 {
                self.wakes = 0;
            }
            let slot = self.rule.choose(occasion, &mut self.rows);
            return Some(self.grant(now, cpu, slot));
        }
        if !self.rule.preempts() {
            self.wakes = 0;
        }
        // A wake displaces one client at the most, and more displacements than CPUs change nothing.
        self.wakes = self.wakes.min(self.cpus.len() as u32);
        while self.wakes > 0 {
            self.wakes -= 1;
            let grant = self.preempt(now);
            if grant.is_some() {
                return grant;
            }
        }
        None
    }

    /// Takes the CPU of the last holder in the rule's order, if the best ready client is to have it.
    fn preempt(&mut self, now: Instant) -> Option<Grant> {
        let mut victim = None;
        for (cpu, entry) in self.cpus.iter().enumerate() {
            if entry.holder != NONE
                && victim.is_none_or(|(_, last)| self.rule.precedes(now, last, entry.holder, &self.rows))
            {
                victim = Some((cpu, entry.holder));
            }
        }
        let (cpu, holder) = victim?;
        let occasion = Occasion { now, cpu: cpu as u32, current: self.cpus[cpu].current, holder };
        let slot = self.rule.choose(occasion, &mut self.rows);
        if slot == holder {
            return None;
        }
        self.put_back(now, holder);
        Some(self.grant(now, cpu, slot))
    }

    #[inline]
    fn grant(&mut self, now: Instant, cpu: usize, slot: u32) -> Grant {
        self.cpus[cpu].holder = slot;
        self.cpus[cpu].current = slot;
        self.nr_ready -= 1;
        self.rows[slot as usize].standing = Standing::Holding(cpu as u32);
        self.rule.take(now, slot, &mut self.rows);
        let slice = self.rule.slice(now, slot, &self.rows);
        Grant { cpu: CpuId(cpu as u32), client: self.rows[slot as usize].id, slice }
    }
}

/// Makes a policy of a struct with a field `frame: Frame<_>`.
macro_rules! policy_of_frame {
    ($policy:ty) => {
        impl $crate::Policy for $policy {
            type Decision = $crate::Grant;

            #[inline]
            fn on_event(
                &mut self,
                now: $crate::Instant,
                event: $crate::Event,
            ) -> Result<(), $crate::EventError> {
                self.frame.on_event(now, event)
            }

            #[inline]
            fn poll_decision(&mut self, now: $crate::Instant) -> Option<$crate::Grant> {
                self.frame.poll_decision(now)
            }

            fn poll_timeout(&self) -> Option<$crate::Instant> {
                None
            }
        }
    };
}
pub(super) use policy_of_frame;

/// Points in time at all multiples of a quantum. Remembers where it was, because a division costs as much as the rest
/// of a decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    quantum: Nanos,
    /// The last multiple that was passed.
    passed: u64,
}

impl Grid {
    pub(super) fn new(quantum: Nanos) -> Self {
        Self { quantum, passed: 0 }
    }

    pub(super) fn quantum(&self) -> Nanos {
        self.quantum
    }

    /// The time from `now` to the next multiple, a whole quantum on a multiple itself. `now` never goes back.
    #[inline]
    pub(super) fn until_next(&mut self, now: Instant) -> Nanos {
        // Should time go back all the same, this wraps to a large number and the division puts it right.
        let mut beyond = now.0.wrapping_sub(self.passed);
        if beyond >= self.quantum.0 {
            beyond -= self.quantum.0;
            if beyond >= self.quantum.0 {
                beyond = now.0 % self.quantum.0;
            }
            self.passed = now.0 - beyond;
        }
        Nanos(self.quantum.0 - beyond)
    }
}
