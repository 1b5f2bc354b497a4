//! What every dispatcher of this folder shares: the table of clients, the CPUs, and the checks of every event.
//!
//! A [`Rule`] orders clients; the [`Dispatcher`] around it knows who is runnable, who is on which CPU and which CPUs
//! ask for a client. So each rule is only the idea of its paper.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use crate::{ClientId, CpuId, Event, EventError, Grant, Nanos, Share};

/// A client's place in the tables of a dispatcher; reused after the client has left.
pub(super) type Slot = u32;

/// No slot, no node, no CPU.
pub(super) const NONE: u32 = u32::MAX;
/// In the table of ids: the client has left.
const LEFT: u32 = u32::MAX - 1;

/// Why a policy cannot be made with these parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamError {
    /// A policy divides at least one CPU.
    NoCpu,
    /// The quantum is zero, or longer than the policy can count (see its parameters).
    Quantum(Nanos),
    /// Another parameter, by its name in the policy's `INFO`, is outside its range.
    Range(&'static str),
}

impl fmt::Display for ParamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCpu => f.write_str("cpus must be at least 1"),
            Self::Quantum(q) => write!(f, "quantum of {} ns is out of range", q.0),
            Self::Range(name) => write!(f, "{name} is out of range"),
        }
    }
}

impl core::error::Error for ParamError {}

/// The longest quantum: one second, so that share times quantum counts in 63 bits with room for a carried cycle.
pub(super) const QUANTUM_MAX: Nanos = Nanos::from_secs(1);

/// Checks what every dispatcher's parameters have in common.
pub(super) fn check_params(cpus: u32, quantum: Nanos) -> Result<(), ParamError> {
    if cpus == 0 {
        return Err(ParamError::NoCpu);
    }
    if quantum == Nanos::ZERO || quantum > QUANTUM_MAX {
        return Err(ParamError::Quantum(quantum));
    }
    Ok(())
}

/// The idea of one policy. The dispatcher calls it with facts that hold: slots are live, transitions are real.
pub(super) trait Rule {
    /// A client joined in `slot`, blocked.
    fn join(&mut self, slot: Slot, client: ClientId, share: u64);
    /// The client of `slot` left. It is blocked and on no CPU by now.
    fn leave(&mut self, slot: Slot);
    /// A blocked client became runnable. `busy`: it is still on the CPU that it was granted.
    fn wake(&mut self, slot: Slot, busy: bool);
    /// A runnable client blocked. `busy`: it is still on its CPU.
    fn block(&mut self, slot: Slot, busy: bool);
    /// A client's share is `share` from now on.
    fn reshare(&mut self, slot: Slot, share: u64);
    /// A client used `used` ns.
    fn charge(&mut self, slot: Slot, used: u64);
    /// A client came off its CPU.
    fn returned(&mut self, slot: Slot, runnable: bool);
    /// Chooses a client that is runnable and on no CPU; the rule notes that it now is on one.
    fn pick(&mut self) -> Option<(Slot, ClientId)>;
}

/// A CPU. What a decision needs of the client on it stands here, so that choosing among very many clients does not
/// touch their tables.
#[derive(Clone, Copy, Debug)]
struct Lane {
    /// Who is on it, or [`NONE`].
    slot: Slot,
    client: ClientId,
    runnable: bool,
}

impl Lane {
    const EMPTY: Self = Self { slot: NONE, client: ClientId(0), runnable: false };
}

/// A rule, its clients and its CPUs.
#[derive(Clone, Debug)]
pub(super) struct Dispatcher<R> {
    pub(super) rule: R,
    slice: Nanos,
    /// Slot of a client by id; [`NONE`] if it never joined, [`LEFT`] if it left.
    slots: Vec<u32>,
    /// Whether the client of each slot can run.
    runnable: Vec<bool>,
    vacant: Vec<Slot>,
    lanes: Vec<Lane>,
    /// CPUs that ask for a client, one bit each.
    asking: Vec<u64>,
    nr_asking: u32,
    /// The CPU granted last: most charges are for the client on it.
    recent: usize,
}

impl<R: Rule> Dispatcher<R> {
    pub(super) fn new(rule: R, cpus: u32, slice: Nanos) -> Self {
        Self {
            rule,
            slice,
            slots: Vec::new(),
            runnable: Vec::new(),
            vacant: Vec::new(),
            lanes: vec![Lane::EMPTY; cpus as usize],
            asking: vec![0; (cpus as usize).div_ceil(64)],
            nr_asking: 0,
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
        self.runnable[slot as usize]
    }

    #[inline]
    pub(super) fn on_event(&mut self, event: Event) -> Result<(), EventError> {
        match event {
            Event::Charge { client, used } => {
                let lane = &self.lanes[self.recent];
                let near = lane.slot != NONE && lane.client == client;
                let slot = if near { lane.slot } else { self.known(client)? };
                self.rule.charge(slot, used.0);
                Ok(())
            }
            Event::Free { cpu } => self.free(cpu),
            other => self.on_rare(other),
        }
    }

    fn on_rare(&mut self, event: Event) -> Result<(), EventError> {
        match event {
            Event::Join { client, share } => return self.join(client, share),
            Event::Leave { client } => self.leave(client)?,
            Event::Reshare { client, share } => {
                let slot = self.known(client)?;
                self.rule.reshare(slot, share.get());
            }
            Event::Wake { client } => {
                let slot = self.known(client)?;
                if !core::mem::replace(&mut self.runnable[slot as usize], true) {
                    let lane = self.lane_of(slot);
                    if let Some(lane) = lane {
                        self.lanes[lane].runnable = true;
                    }
                    self.rule.wake(slot, lane.is_some());
                }
            }
            Event::Block { client } => {
                let slot = self.known(client)?;
                if core::mem::replace(&mut self.runnable[slot as usize], false) {
                    let lane = self.lane_of(slot);
                    if let Some(lane) = lane {
                        self.lanes[lane].runnable = false;
                    }
                    self.rule.block(slot, lane.is_some());
                }
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
        let Some(lane) = self.lanes.get_mut(cpu.index()) else {
            return Err(EventError::UnknownCpu(cpu));
        };
        let Lane { slot, runnable, .. } = *lane;
        lane.slot = NONE;
        let (word, bit) = (cpu.index() / 64, 1u64 << (cpu.index() % 64));
        if self.asking[word] & bit == 0 {
            self.asking[word] |= bit;
            self.nr_asking += 1;
        }
        if slot != NONE {
            self.rule.returned(slot, runnable);
        }
        Ok(())
    }

    /// The CPU that a client is on. O(CPUs).
    fn lane_of(&self, slot: Slot) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.slot == slot)
    }

    fn join(&mut self, client: ClientId, share: Share) -> Result<(), EventError> {
        let index = client.index();
        if self.slots.get(index).is_some_and(|&slot| slot != NONE) {
            return Err(EventError::DuplicateClient(client));
        }
        if index >= self.slots.len() {
            self.slots.resize(index + 1, NONE);
        }
        let slot = if let Some(slot) = self.vacant.pop() {
            self.runnable[slot as usize] = false;
            slot
        } else {
            self.runnable.push(false);
            (self.runnable.len() - 1) as Slot
        };
        self.slots[index] = slot;
        self.rule.join(slot, client, share.get());
        Ok(())
    }

    fn leave(&mut self, client: ClientId) -> Result<(), EventError> {
        let slot = self.known(client)?;
        let (lane, runnable) = (self.lane_of(slot), self.runnable[slot as usize]);
        if runnable {
            self.rule.block(slot, lane.is_some());
        }
        if let Some(lane) = lane {
            // The CPU is not asking before its driver says so, but nobody is on it any more.
            self.lanes[lane] = Lane::EMPTY;
            self.rule.returned(slot, false);
        }
        self.rule.leave(slot);
        self.slots[client.index()] = LEFT;
        self.runnable[slot as usize] = false;
        self.vacant.push(slot);
        Ok(())
    }

    #[inline]
    pub(super) fn poll(&mut self) -> Option<Grant> {
        if self.nr_asking == 0 {
            return None;
        }
        let (slot, client) = self.rule.pick()?;
        let word = self.asking.iter().position(|&word| word != 0)?;
        let cpu = word * 64 + self.asking[word].trailing_zeros() as usize;
        self.asking[word] &= self.asking[word] - 1;
        self.nr_asking -= 1;
        self.lanes[cpu] = Lane { slot, client, runnable: true };
        self.recent = cpu;
        Some(Grant { cpu: CpuId(cpu as u32), client, slice: self.slice })
    }
}

/// Makes a public policy of a dispatcher around a private rule.
macro_rules! policy {
    ($name:ident) => {
        impl crate::Policy for $name {
            type Decision = crate::Grant;

            #[inline]
            fn on_event(
                &mut self,
                _now: crate::Instant,
                event: crate::Event,
            ) -> Result<(), crate::EventError> {
                self.0.on_event(event)
            }

            #[inline]
            fn poll_decision(&mut self, _now: crate::Instant) -> Option<crate::Grant> {
                self.0.poll()
            }

            /// Never: a dispatcher is asked by its CPUs.
            fn poll_timeout(&self) -> Option<crate::Instant> {
                None
            }
        }
    };
}
pub(super) use policy;
