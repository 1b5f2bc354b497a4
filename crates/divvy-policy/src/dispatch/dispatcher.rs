//! What every dispatcher of this folder shares: the table of clients, the CPUs, preemption, and the checks of every
//! event.
//!
//! A [`Rule`] orders clients; the [`Dispatcher`] around it knows who is runnable, who is on which CPU and which CPUs
//! ask for a client. So each rule is only the idea of its paper.

use alloc::vec;
use alloc::vec::Vec;

use crate::{ClientId, CpuId, Event, EventError, Grant, Instant, Nanos, Share};

/// A client's place in the tables of a dispatcher; reused after the client has left.
pub(super) type Slot = u32;

/// No slot, no node, no CPU.
pub(super) const NONE: u32 = u32::MAX;
/// In the table of ids: the client has left.
const LEFT: u32 = u32::MAX - 1;

/// What a rule keeps about each client, by slot.
#[derive(Clone, Debug)]
pub(super) struct Table<T>(Vec<T>);

impl<T> Table<T> {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// The entry of a client that joins: a new slot is the next one, an old one is overwritten.
    pub(super) fn put(&mut self, slot: Slot, entry: T) {
        if slot as usize == self.0.len() {
            self.0.push(entry);
        } else {
            self.0[slot as usize] = entry;
        }
    }
}

impl<T> core::ops::Deref for Table<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> core::ops::DerefMut for Table<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

impl<T> core::ops::Index<Slot> for Table<T> {
    type Output = T;

    #[inline]
    fn index(&self, slot: Slot) -> &T {
        &self.0[slot as usize]
    }
}

impl<T> core::ops::IndexMut<Slot> for Table<T> {
    #[inline]
    fn index_mut(&mut self, slot: Slot) -> &mut T {
        &mut self.0[slot as usize]
    }
}

/// A moment at which a CPU is decided on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Occasion {
    pub(super) now: Instant,
    /// Which CPU.
    pub(super) cpu: u32,
    /// Who was last on this CPU and can still run, or [`NONE`].
    pub(super) current: Slot,
    /// Who is on the CPU and may stay there, or [`NONE`] where the CPU asks.
    pub(super) holder: Slot,
}

/// Who is granted a CPU, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pick {
    pub(super) slot: Slot,
    pub(super) client: ClientId,
    pub(super) slice: Nanos,
}

/// The idea of one policy. The dispatcher calls it with facts that hold: slots are live, transitions are real.
///
/// A client that blocks on its CPU stays there until the CPU is handed back, runnable again (`busy`) or not.
pub(super) trait Rule {
    /// A client joined in `slot`, blocked.
    fn join(&mut self, now: Instant, slot: Slot, client: ClientId, share: Share);
    /// The client of `slot` left. It is blocked and on no CPU by now.
    fn leave(&mut self, _slot: Slot) {}
    /// A blocked client became runnable. `busy`: it is still on the CPU that it was granted. `current`: who was last on
    /// the first CPU.
    fn wake(&mut self, now: Instant, slot: Slot, busy: bool, current: Slot);
    /// A runnable client blocked. `busy`: it is still on its CPU.
    fn block(&mut self, now: Instant, slot: Slot, busy: bool);
    /// A client's share is `share` from now on.
    fn reshare(&mut self, slot: Slot, share: Share);
    /// A client used CPU time.
    fn charge(&mut self, slot: Slot, used: Nanos);
    /// A runnable client came off its CPU.
    fn put_back(&mut self, slot: Slot);
    /// Chooses a client that is runnable and on no CPU, and notes that it now is on one. `None` where the occasion's
    /// holder goes before all of them; the dispatcher asks only where there is one.
    fn pick(&mut self, occasion: Occasion) -> Option<Pick>;
    /// Whether a client that wakes may take a CPU from another one.
    fn preempts(&self) -> bool {
        false
    }
    /// Whether `a` comes before `b`, both of which are on a CPU: the last in this order loses its CPU first.
    fn precedes(&self, _now: Instant, a: Slot, b: Slot) -> bool {
        a < b
    }
}

/// A CPU. What a decision needs of the client on it stands here, so that choosing among very many clients does not
/// touch their tables.
#[derive(Clone, Copy, Debug)]
struct Cpu {
    /// Who is on it, or [`NONE`].
    slot: Slot,
    client: ClientId,
    runnable: bool,
    /// Who was last on it and can still run, or [`NONE`].
    current: Slot,
}

impl Cpu {
    const EMPTY: Self = Self { slot: NONE, client: ClientId(0), runnable: false, current: NONE };
}

/// A rule, its clients and its CPUs.
#[derive(Clone, Debug)]
pub(super) struct Dispatcher<R> {
    pub(super) rule: R,
    /// Slot of a client by id; [`NONE`] if it never joined, [`LEFT`] if it left.
    slots: Vec<u32>,
    /// Whether the client of each slot can run.
    runnable: Table<bool>,
    vacant: Vec<Slot>,
    cpus: Vec<Cpu>,
    /// CPUs that ask for a client, one bit each.
    asking: Vec<u64>,
    nr_asking: u32,
    /// Clients that are runnable and on no CPU.
    nr_ready: u32,
    /// Wakes since the last time every CPU was looked at.
    wakes: u32,
    /// The CPU granted last: most charges are for the client on it.
    recent: usize,
}

impl<R: Rule> Dispatcher<R> {
    pub(super) fn new(rule: R, cpus: u32) -> Self {
        Self {
            rule,
            slots: Vec::new(),
            runnable: Table::new(),
            vacant: Vec::new(),
            cpus: vec![Cpu::EMPTY; cpus as usize],
            asking: vec![0; (cpus as usize).div_ceil(64)],
            nr_asking: 0,
            nr_ready: 0,
            wakes: 0,
            recent: 0,
        }
    }

    /// The slot of a client that is in.
    pub(super) fn slot(&self, client: ClientId) -> Option<Slot> {
        self.slots.get(client.index()).copied().filter(|&slot| slot < LEFT)
    }

    fn known(&self, client: ClientId) -> Result<Slot, EventError> {
        self.slot(client).ok_or(EventError::UnknownClient(client))
    }

    /// Whether the client of `slot` can run.
    pub(super) fn is_runnable(&self, slot: Slot) -> bool {
        self.runnable[slot]
    }

    /// Applies one event; see [`crate::Policy::on_event`].
    #[inline]
    pub(super) fn on_event(&mut self, now: Instant, event: Event) -> Result<(), EventError> {
        match event {
            Event::Charge { client, used } => {
                let cpu = &self.cpus[self.recent];
                let near = cpu.slot != NONE && cpu.client == client;
                let slot = if near { cpu.slot } else { self.known(client)? };
                self.rule.charge(slot, used);
                Ok(())
            }
            Event::Free { cpu } => self.free(cpu),
            other => self.on_rare(now, other),
        }
    }

    fn on_rare(&mut self, now: Instant, event: Event) -> Result<(), EventError> {
        match event {
            Event::Join { client, share } => return self.join(now, client, share),
            Event::Leave { client } => self.leave(now, client)?,
            Event::Reshare { client, share } => {
                let slot = self.known(client)?;
                self.rule.reshare(slot, share);
            }
            Event::Wake { client } => {
                let slot = self.known(client)?;
                self.wake(now, slot);
            }
            Event::Block { client } => {
                let slot = self.known(client)?;
                self.block(now, slot);
            }
            Event::Width { client, cpus } => {
                self.known(client)?;
                if cpus == 0 {
                    return Err(EventError::ZeroWidth(client));
                }
                // A client is on one CPU at a time: what it could use beyond that is not divided here.
            }
            Event::Charge { .. } | Event::Free { .. } => unreachable!("handled by the caller"),
        }
        Ok(())
    }

    #[inline]
    fn free(&mut self, cpu: CpuId) -> Result<(), EventError> {
        let Some(entry) = self.cpus.get_mut(cpu.index()) else {
            return Err(EventError::UnknownCpu(cpu));
        };
        let Cpu { slot, runnable, .. } = *entry;
        entry.slot = NONE;
        let (word, bit) = (cpu.index() / 64, 1u64 << (cpu.index() % 64));
        if self.asking[word] & bit == 0 {
            self.asking[word] |= bit;
            self.nr_asking += 1;
        }
        if slot != NONE && runnable {
            self.put_back(slot);
        }
        Ok(())
    }

    #[inline]
    fn put_back(&mut self, slot: Slot) {
        self.nr_ready += 1;
        self.rule.put_back(slot);
    }

    /// The CPU that a client is on. O(CPUs).
    fn cpu_of(&mut self, slot: Slot) -> Option<&mut Cpu> {
        self.cpus.iter_mut().find(|cpu| cpu.slot == slot)
    }

    fn wake(&mut self, now: Instant, slot: Slot) {
        if core::mem::replace(&mut self.runnable[slot], true) {
            return;
        }
        let on = self.cpu_of(slot).map(|cpu| {
            cpu.runnable = true;
            cpu.current = slot;
        });
        self.nr_ready += u32::from(on.is_none());
        self.wakes = self.wakes.saturating_add(1);
        let current = self.cpus[0].current;
        self.rule.wake(now, slot, on.is_some(), current);
    }

    fn block(&mut self, now: Instant, slot: Slot) {
        if !core::mem::replace(&mut self.runnable[slot], false) {
            return;
        }
        let mut busy = false;
        for cpu in &mut self.cpus {
            if cpu.slot == slot {
                (busy, cpu.runnable) = (true, false);
            }
            if cpu.current == slot {
                cpu.current = NONE;
            }
        }
        self.nr_ready -= u32::from(!busy);
        self.rule.block(now, slot, busy);
    }

    fn join(&mut self, now: Instant, client: ClientId, share: Share) -> Result<(), EventError> {
        let index = client.index();
        if self.slots.get(index).is_some_and(|&slot| slot != NONE) {
            return Err(EventError::DuplicateClient(client));
        }
        if index >= self.slots.len() {
            self.slots.resize(index + 1, NONE);
        }
        let slot = self.vacant.pop().unwrap_or(self.runnable.len() as Slot);
        self.runnable.put(slot, false);
        self.slots[index] = slot;
        self.rule.join(now, slot, client, share);
        Ok(())
    }

    fn leave(&mut self, now: Instant, client: ClientId) -> Result<(), EventError> {
        let slot = self.known(client)?;
        self.block(now, slot);
        // The CPU is not asking before its driver says so, but nobody is on it any more.
        if let Some(cpu) = self.cpu_of(slot) {
            *cpu = Cpu::EMPTY;
        }
        self.rule.leave(slot);
        self.slots[client.index()] = LEFT;
        self.vacant.push(slot);
        Ok(())
    }

    /// The next decision; see [`crate::Policy::poll_decision`]. CPUs that ask are served by number, then wakes may
    /// preempt.
    #[inline]
    pub(super) fn poll(&mut self, now: Instant) -> Option<Grant> {
        if self.nr_asking == 0 || self.nr_ready == 0 {
            return if self.rule.preempts() { self.preempt(now) } else { None };
        }
        let word = self.asking.iter().position(|&word| word != 0)?;
        let cpu = word * 64 + self.asking[word].trailing_zeros() as usize;
        if self.rule.preempts() && self.cpus.len() == 1 {
            self.wakes = 0;
        }
        let current = self.cpus[cpu].current;
        let pick = self.rule.pick(Occasion { now, cpu: cpu as u32, current, holder: NONE })?;
        self.asking[word] &= self.asking[word] - 1;
        self.nr_asking -= 1;
        Some(self.grant(cpu, pick))
    }

    /// Takes CPUs from their holders for clients that woke, the last in the rule's order first.
    fn preempt(&mut self, now: Instant) -> Option<Grant> {
        // A wake displaces one client at the most, and more displacements than CPUs change nothing.
        self.wakes = if self.nr_ready == 0 { 0 } else { self.wakes.min(self.cpus.len() as u32) };
        while self.wakes > 0 {
            self.wakes -= 1;
            let mut victim: Option<(usize, Slot)> = None;
            for (cpu, entry) in
                self.cpus.iter().enumerate().filter(|(_, cpu)| cpu.slot != NONE && cpu.runnable)
            {
                if victim.is_none_or(|(_, last)| self.rule.precedes(now, last, entry.slot)) {
                    victim = Some((cpu, entry.slot));
                }
            }
            let (cpu, holder) = victim?;
            let occasion = Occasion { now, cpu: cpu as u32, current: self.cpus[cpu].current, holder };
            if let Some(pick) = self.rule.pick(occasion) {
                self.put_back(holder);
                return Some(self.grant(cpu, pick));
            }
        }
        None
    }

    #[inline]
    fn grant(&mut self, cpu: usize, pick: Pick) -> Grant {
        let Pick { slot, client, slice } = pick;
        self.cpus[cpu] = Cpu { slot, client, runnable: true, current: slot };
        self.nr_ready -= 1;
        self.recent = cpu;
        Grant { cpu: CpuId(cpu as u32), client, slice }
    }
}

/// Makes a public policy of a private rule in a dispatcher.
macro_rules! policy {
    ($name:ident) => {
        impl crate::Policy for $name {
            type Decision = crate::Grant;

            #[inline]
            fn on_event(
                &mut self,
                now: crate::Instant,
                event: crate::Event,
            ) -> Result<(), crate::EventError> {
                self.0.on_event(now, event)
            }

            #[inline]
            fn poll_decision(&mut self, now: crate::Instant) -> Option<crate::Grant> {
                self.0.poll(now)
            }

            /// Never: a dispatcher is asked by its CPUs.
            fn poll_timeout(&self) -> Option<crate::Instant> {
                None
            }
        }
    };
}
pub(super) use policy;

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
