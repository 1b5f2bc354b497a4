//! `turns`: one client at a time, a quantum each. The example of `docs/new-policy.md`.
//!
//! **Problem.** The least that a gate has to do. **Idea.** Release the next, hold the last. **Algorithm.** Clients stand in
//! the order of their ids; a turn ends a quantum after it began, or when its client leaves. **Weak spots.** Shares have
//! no effect, and a client that sleeps has its turn all the same.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{AnyGate, GateEntry, QUANTUM_MAX, QUANTUM_MIN};
use crate::{ClientId, Cycle, Domain, Event, EventError, Gate, Instant, Nanos, Policy, PolicyInfo, param};

/// `turns` for the list of policies.
pub const TURNS: GateEntry = GateEntry {
    info: PolicyInfo {
        name: "turns",
        summary: "one client at a time, a quantum each; shares have no effect",
        complexity: "O(1) a turn",
        source: "docs/new-policy.md",
        params: &[param!("quantum", Domain::Quantum(QUANTUM_MIN, QUANTUM_MAX), "10ms", "length of a turn")],
        cycle: Cycle::None,
        ..PolicyInfo::GATE
    },
    make: |params| Ok(AnyGate::new(Turns::new(params.time("quantum")?))),
};

/// The gate; see the module.
#[derive(Clone, Debug)]
pub struct Turns {
    quantum: Nanos,
    /// Those that are in, by id.
    clients: Vec<ClientId>,
    next_id: u32,
    /// Whose turn it is, and when that ends.
    turn: Option<(ClientId, Instant)>,
    out: VecDeque<Gate>,
}

impl Turns {
    /// A gate without clients.
    #[must_use]
    pub fn new(quantum: Nanos) -> Self {
        Self { quantum, clients: Vec::new(), next_id: 0, turn: None, out: VecDeque::new() }
    }

    fn next(&self, last: Option<ClientId>) -> Option<ClientId> {
        let after = self.clients.iter().find(|&&client| last.is_none_or(|last| client > last));
        after.or(self.clients.first()).copied()
    }
}

impl Policy for Turns {
    type Decision = Gate;

    fn on_event(&mut self, now: Instant, event: Event) -> Result<(), EventError> {
        match event {
            Event::Join { client, .. } if client.0 < self.next_id => {
                return Err(EventError::DuplicateClient(client));
            }
            Event::Join { client, .. } => {
                self.clients.push(client);
                self.next_id = client.0 + 1;
            }
            Event::Free { cpu } => return Err(EventError::UnknownCpu(cpu)),
            Event::Leave { client }
            | Event::Reshare { client, .. }
            | Event::Wake { client }
            | Event::Block { client }
            | Event::Charge { client, .. }
            | Event::Width { client, .. } => {
                let place = self.clients.binary_search(&client);
                let place = place.map_err(|_| EventError::UnknownClient(client))?;
                match event {
                    Event::Width { cpus: 0, .. } => return Err(EventError::ZeroWidth(client)),
                    Event::Leave { .. } => {
                        self.clients.remove(place);
                        self.turn = self.turn.map(|(on, end)| (on, if on == client { now } else { end }));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn poll_decision(&mut self, now: Instant) -> Option<Gate> {
        if self.turn.is_none_or(|(_, end)| now >= end) {
            let last = self.turn.take().map(|(last, _)| last);
            let next = self.next(last)?;
            if last != Some(next) {
                let stays = last.filter(|last| self.clients.contains(last));
                self.out.extend(stays.map(|client| Gate::Hold { client }));
                self.out.push_back(Gate::Release { client: next, cpu: None });
            }
            self.turn = Some((next, now + self.quantum));
        }
        // Whoever has left since is neither held nor released.
        while let Some(decision) = self.out.pop_front() {
            if decision.client().is_some_and(|client| self.clients.contains(&client)) {
                return Some(decision);
            }
        }
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.turn.map(|(_, end)| end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Params, Run, Share};

    #[test]
    fn turns_go_round_and_end_with_whoever_leaves() {
        let params = Params::new(&TURNS.info, Run::default(), [("quantum".into(), "20ms".into())]).unwrap();
        let mut gate = (TURNS.make)(&params).unwrap();
        let at = |ms| Instant::ZERO + Nanos::from_millis(ms);
        let [a, b, c] = [0, 1, 2].map(ClientId);
        for client in [a, b, c] {
            gate.on_event(at(0), Event::Join { client, share: Share::ONE }).unwrap();
        }
        let decided = |gate: &mut AnyGate, ms| -> Vec<Gate> {
            core::iter::from_fn(|| gate.poll_decision(at(ms))).collect()
        };
        let release = |client| Gate::Release { client, cpu: None };
        assert_eq!(decided(&mut gate, 0), [release(a)]);
        assert_eq!((decided(&mut gate, 19), gate.poll_timeout()), (Vec::new(), Some(at(20))));
        assert_eq!(decided(&mut gate, 20), [Gate::Hold { client: a }, release(b)]);
        gate.on_event(at(25), Event::Leave { client: b }).unwrap();
        assert_eq!(decided(&mut gate, 25), [release(c)]);
        assert_eq!(decided(&mut gate, 45), [Gate::Hold { client: c }, release(a)]);
        assert_eq!(gate.on_event(at(45), Event::Wake { client: b }), Err(EventError::UnknownClient(b)));
        let again = Event::Join { client: b, share: Share::ONE };
        assert_eq!(gate.on_event(at(45), again), Err(EventError::DuplicateClient(b)));
    }
}
