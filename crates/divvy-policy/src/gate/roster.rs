//! What gates know alike: who their clients are, and what the driver has been asked.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::{ClientId, EventError, Gate};

/// The clients of a gate, each found by its id in one step: ids are dense (see [`ClientId`]). Slots of those who have left
/// are used again.
#[derive(Clone, Debug)]
pub(super) struct Roster<C> {
    slots: Vec<u32>,
    clients: Vec<Option<C>>,
    vacant: Vec<usize>,
    next_id: u32,
}

const NO_SLOT: u32 = u32::MAX;

impl<C> Default for Roster<C> {
    fn default() -> Self {
        Self { slots: Vec::new(), clients: Vec::new(), vacant: Vec::new(), next_id: 0 }
    }
}

impl<C> Roster<C> {
    pub(super) fn len(&self) -> usize {
        self.clients.len() - self.vacant.len()
    }

    /// Where `client` is found, while it is one.
    pub(super) fn find(&self, client: ClientId) -> Option<usize> {
        let slot = self.slots.get(client.index()).copied().filter(|&slot| slot != NO_SLOT)?;
        Some(slot as usize)
    }

    /// As [`find`](Self::find).
    ///
    /// # Errors
    /// [`EventError::UnknownClient`].
    pub(super) fn slot(&self, client: ClientId) -> Result<usize, EventError> {
        self.find(client).ok_or(EventError::UnknownClient(client))
    }

    pub(super) fn at(&self, slot: usize) -> Option<&C> {
        self.clients[slot].as_ref()
    }

    pub(super) fn at_mut(&mut self, slot: usize) -> Option<&mut C> {
        self.clients[slot].as_mut()
    }

    pub(super) fn get(&self, client: ClientId) -> Option<&C> {
        self.at(self.find(client)?)
    }

    pub(super) fn get_mut(&mut self, client: ClientId) -> Option<&mut C> {
        let slot = self.find(client)?;
        self.at_mut(slot)
    }

    /// Takes a client in.
    ///
    /// # Errors
    /// [`EventError::DuplicateClient`] for an id that was used before, or one less than that.
    pub(super) fn join(&mut self, client: ClientId, newcomer: C) -> Result<(), EventError> {
        if client.0 < self.next_id {
            return Err(EventError::DuplicateClient(client));
        }
        self.next_id = client.0 + 1;
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.clients.push(None);
            self.clients.len() - 1
        });
        self.slots.resize(client.index() + 1, NO_SLOT);
        self.slots[client.index()] = slot as u32;
        self.clients[slot] = Some(newcomer);
        Ok(())
    }

    /// Takes a client out.
    ///
    /// # Errors
    /// [`EventError::UnknownClient`].
    pub(super) fn leave(&mut self, client: ClientId) -> Result<C, EventError> {
        let slot = self.slot(client)?;
        let gone = self.clients[slot].take().ok_or(EventError::UnknownClient(client))?;
        self.slots[client.index()] = NO_SLOT;
        self.vacant.push(slot);
        Ok(gone)
    }
}

/// The answer that the driver owes about a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Await {
    #[default]
    Nothing,
    /// A measurement is decided; the driver has not been told yet.
    ToBeAsked,
    Charge,
    State,
}

/// Clients that the driver may be asked about.
pub(super) trait Awaited {
    fn awaits(&mut self, client: ClientId) -> Option<&mut Await>;
}

/// Decisions that the driver has yet to be told, and how many answers it owes.
#[derive(Clone, Debug, Default)]
pub(super) struct Outbox {
    decisions: VecDeque<Gate>,
    owed: usize,
}

impl Outbox {
    pub(super) fn push(&mut self, decision: Gate) {
        self.decisions.push_back(decision);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.decisions.is_empty()
    }

    /// Whether the driver owes answers: nothing is decided before they are there.
    pub(super) fn is_owed(&self) -> bool {
        self.owed > 0
    }

    /// Asks how much `client` has used, unless something was asked about it already.
    pub(super) fn measure(&mut self, client: ClientId, awaits: &mut Await) {
        if *awaits == Await::Nothing {
            *awaits = Await::ToBeAsked;
            self.owed += 1;
            self.decisions.push_back(Gate::Measure { client });
        }
    }

    /// The answer was not enough: asks for the state of `client`, too.
    pub(super) fn observe(&mut self, client: ClientId, awaits: &mut Await) {
        *awaits = Await::State;
        self.decisions.push_back(Gate::Observe { client });
    }

    /// Whatever was asked is answered, or will not be: the client has left.
    pub(super) fn answered(&mut self, awaits: &mut Await) {
        if core::mem::take(awaits) != Await::Nothing {
            self.owed -= 1;
        }
    }

    /// The next decision that is still about somebody; a measurement counts as asked for from now on.
    pub(super) fn next(&mut self, clients: &mut impl Awaited) -> Option<Gate> {
        while let Some(decision) = self.decisions.pop_front() {
            let Some(client) = decision.client() else { return Some(decision) };
            let Some(awaits) = clients.awaits(client) else { continue };
            if matches!(decision, Gate::Measure { .. }) && *awaits == Await::ToBeAsked {
                *awaits = Await::Charge;
            }
            return Some(decision);
        }
        None
    }
}
