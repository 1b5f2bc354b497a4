//! Nobody is ever held: whoever runs the clients divides, by weights or as it pleases.
//!
//! **Problem.** Where the kernel itself can divide by share (CPU weights of cgroups), a gate would only be in its way; but
//! what came of it is to be seen in the same accounts.
//!
//! **Idea.** Release everybody; end a cycle whenever a gate would.
//!
//! **Terms.** Q is the quantum, S the sum of the shares in their unit, m the number of CPUs, n that of clients.
//!
//! **Algorithm.** A client is released when it joins. Every `S * Q / m` of wall time each is looked at (asleep or not),
//! and a cycle ends; after [`CYCLE_MAX`], or `n * Q / m` where that is longer, at the latest. Shares of a market have no unit in
//! common, and a cycle of theirs would be of many seconds, in which nobody is seen to sleep.
//!
//! **Properties.** (tests) `everybody_is_released_once_and_never_held`, `a_cycle_ends_when_a_gates_would`,
//! `sleepers_are_looked_for_whatever_the_shares`.
//!
//! **Weak spots.** It divides nothing. A cycle is of wall time: whatever strangers take is missing from all.

use alloc::collections::{BTreeMap, VecDeque};

use super::{
    AnyGate, GateEntry, GateParamError, QUANTUM_MAX, QUANTUM_MIN, Question, Scale, ShareUnit, check_quantum,
    steps_after,
};
use crate::{
    ClientId, Domain, Event, EventError, Gate, Instant, Nanos, Policy, PolicyInfo, Run, Share, param,
};

/// `kernel`, which is not for the list of policies: it comes with the back end that divides by weights.
pub const KERNEL: GateEntry = GateEntry {
    info: PolicyInfo {
        name: "kernel",
        summary: "holds nobody: the kernel divides, by the weights of the cgroup back end",
        complexity: "O(n) a cycle",
        source: "none",
        params: &[param!(
            "quantum",
            Domain::Quantum(QUANTUM_MIN, QUANTUM_MAX),
            "10ms",
            "wall time of one share in one cycle of the accounts"
        )],
        ..PolicyInfo::GATE
    },
    make: |params| {
        let Run { cpus, scale, .. } = *params.run();
        Ok(AnyGate::new(Kernel::new(KernelParams { quantum: params.time("quantum")?, cpus, scale })?))
    },
};

/// A cycle of so many clients that their number is no matter is no longer than that, whatever their shares.
const CYCLE_MAX: Nanos = Nanos::from_millis(500);

/// How a [`Kernel`] is made.
#[derive(Clone, Copy, Debug)]
pub struct KernelParams {
    /// Wall time of one share in one cycle on one CPU, 1 ms to 10 s.
    pub quantum: Nanos,
    /// CPUs that are divided, 1 to 4096.
    pub cpus: u32,
    /// The unit of shares.
    pub scale: Scale,
}

#[derive(Clone, Debug)]
struct Client {
    share: Share,
    state: Question,
}

/// The gate that holds nobody; see the module's text.
#[derive(Clone, Debug)]
pub struct Kernel {
    params: KernelParams,
    clients: BTreeMap<ClientId, Client>,
    unit: ShareUnit,
    next_id: u32,
    /// When this cycle began.
    begun: Option<Instant>,
    /// Looks that this cycle's end waits for.
    owed: Option<usize>,
    cycles: u64,
    out: VecDeque<Gate>,
}

impl Kernel {
    /// A gate without clients; its first cycle begins when the first client joins.
    ///
    /// # Errors
    /// [`GateParamError::Quantum`], [`GateParamError::Cpus`].
    pub fn new(params: KernelParams) -> Result<Self, GateParamError> {
        check_quantum(params.quantum)?;
        if !(1..=4096).contains(&params.cpus) {
            return Err(GateParamError::Cpus(params.cpus));
        }
        Ok(Self {
            params,
            clients: BTreeMap::new(),
            unit: ShareUnit::new(params.scale),
            next_id: 0,
            begun: None,
            owed: None,
            cycles: 0,
            out: VecDeque::new(),
        })
    }

    /// When this cycle ends: the shares that there are by now count.
    fn end(&self) -> Option<Instant> {
        let of = |quanta: u128| {
            quanta.saturating_mul(u128::from(self.params.quantum.0)) / u128::from(self.params.cpus)
        };
        let most = of(self.clients.len() as u128).max(u128::from(CYCLE_MAX.0));
        let cycle = u64::try_from(of(self.unit.total_quanta()).min(most)).unwrap_or(u64::MAX).max(1);
        steps_after(self.begun?, Nanos(cycle), 1)
    }

    fn get(&mut self, client: ClientId) -> Result<&mut Client, EventError> {
        self.clients.get_mut(&client).ok_or(EventError::UnknownClient(client))
    }

    /// Whether a decision is still about somebody; a question counts as asked from now on.
    fn still_holds(&mut self, decision: Gate) -> bool {
        let Some(client) = decision.client() else { return true };
        let Some(c) = self.clients.get_mut(&client) else { return false };
        if let Gate::Observe { .. } = decision {
            c.state.tell();
        }
        true
    }
}

impl Policy for Kernel {
    type Decision = Gate;

    fn on_event(&mut self, now: Instant, event: Event) -> Result<(), EventError> {
        match event {
            Event::Join { client, share } => {
                if client.0 < self.next_id {
                    return Err(EventError::DuplicateClient(client));
                }
                self.next_id = client.0 + 1;
                self.unit.add(share);
                self.clients.insert(client, Client { share, state: Question::None });
                self.out.push_back(Gate::Release { client, cpu: None });
                self.begun.get_or_insert(now);
            }
            Event::Leave { client } => {
                let c = self.clients.remove(&client).ok_or(EventError::UnknownClient(client))?;
                self.unit.remove(c.share);
                if let (true, Some(owed)) = (c.state.open(), &mut self.owed) {
                    *owed -= 1;
                }
                if self.clients.is_empty() {
                    self.begun = None;
                }
            }
            Event::Reshare { client, share } => {
                let old = core::mem::replace(&mut self.get(client)?.share, share);
                self.unit.remove(old);
                self.unit.add(share);
            }
            Event::Block { client } | Event::Wake { client } => {
                let c = self.get(client)?;
                if let (true, Some(owed)) = (c.state.answer(), &mut self.owed) {
                    *owed -= 1;
                }
            }
            Event::Charge { client, .. } => {
                self.get(client)?;
            }
            Event::Width { client, cpus } => {
                self.get(client)?;
                if cpus == 0 {
                    return Err(EventError::ZeroWidth(client));
                }
            }
            Event::Free { cpu } => return Err(EventError::UnknownCpu(cpu)),
        }
        Ok(())
    }

    fn poll_decision(&mut self, now: Instant) -> Option<Gate> {
        loop {
            while let Some(decision) = self.out.pop_front() {
                if self.still_holds(decision) {
                    return Some(decision);
                }
            }
            match (self.owed, self.end()) {
                (Some(0), _) => {
                    self.owed = None;
                    self.cycles += 1;
                    // A cycle begins when the last one has ended, however late that was.
                    self.begun = (!self.clients.is_empty()).then_some(now);
                    self.out.push_back(Gate::CycleEnd { cycles: self.cycles });
                }
                (None, Some(end)) if now >= end => {
                    for (&client, c) in &mut self.clients {
                        c.state = Question::Decided;
                        self.out.push_back(Gate::Observe { client });
                    }
                    self.owed = Some(self.clients.len());
                }
                _ => return None,
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.end()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn gate(shares: &[u64]) -> (Kernel, Vec<Gate>) {
        let params = KernelParams { quantum: Nanos::from_millis(10), cpus: 2, scale: Scale::ByGcd };
        let mut gate = Kernel::new(params).unwrap();
        for (i, &share) in shares.iter().enumerate() {
            let client = ClientId(i as u32);
            gate.on_event(Instant::ZERO, Event::Join { client, share: Share::new(share).unwrap() }).unwrap();
            gate.on_event(Instant::ZERO, Event::Wake { client }).unwrap();
        }
        let decided = all(&mut gate, Instant::ZERO);
        (gate, decided)
    }

    fn all(gate: &mut Kernel, now: Instant) -> Vec<Gate> {
        let mut found = Vec::new();
        while let Some(decision) = gate.poll_decision(now) {
            found.push(decision);
            if let Gate::Observe { client } = decision {
                gate.on_event(now, Event::Block { client }).unwrap();
            }
        }
        found
    }

    #[test]
    fn everybody_is_released_once_and_never_held() {
        let (mut gate, decided) = gate(&[10, 20, 30]);
        let release = |client| Gate::Release { client: ClientId(client), cpu: None };
        assert_eq!(decided, [release(0), release(1), release(2)]);
        for ms in 1..1000 {
            for decision in all(&mut gate, Instant::ZERO + Nanos::from_millis(ms)) {
                assert!(!matches!(decision, Gate::Release { .. } | Gate::Hold { .. }), "{decision:?}");
            }
        }
    }

    #[test]
    fn sleepers_are_looked_for_whatever_the_shares() {
        // 2006 quanta of 10 ms on two CPUs are 10 s.
        let (gate, _) = gate(&[997, 1009]);
        assert_eq!(gate.poll_timeout(), Some(Instant::ZERO + CYCLE_MAX));
        // A thousand clients are looked at as seldom as if all had the same share.
        let shares: Vec<u64> = (1..=1_000).collect();
        let (gate, _) = self::gate(&shares);
        assert_eq!(gate.poll_timeout(), Some(Instant::ZERO + Nanos::from_secs(5)));
    }

    #[test]
    fn a_cycle_ends_when_a_gates_would() {
        // 10:20:30 is 1:2:3; 6 quanta of 10 ms on two CPUs are 30 ms.
        let (mut gate, _) = gate(&[10, 20, 30]);
        let at = |ms| Instant::ZERO + Nanos::from_millis(ms);
        assert_eq!(gate.poll_timeout(), Some(at(30)));
        assert_eq!(all(&mut gate, at(29)), []);
        let observe = |client| Gate::Observe { client: ClientId(client) };
        assert_eq!(
            all(&mut gate, at(31)),
            [observe(0), observe(1), observe(2), Gate::CycleEnd { cycles: 1 }]
        );
        assert_eq!(gate.poll_timeout(), Some(at(61)), "a late cycle is not made up for");
        // One that leaves while it is asked for answers by that.
        assert_eq!(gate.poll_decision(at(61)), Some(observe(0)));
        gate.on_event(at(61), Event::Wake { client: ClientId(0) }).unwrap();
        gate.on_event(at(61), Event::Leave { client: ClientId(1) }).unwrap();
        assert_eq!(gate.poll_decision(at(61)), Some(observe(2)));
        assert_eq!(gate.poll_decision(at(61)), None);
        gate.on_event(at(62), Event::Leave { client: ClientId(2) }).unwrap();
        assert_eq!(gate.poll_decision(at(62)), Some(Gate::CycleEnd { cycles: 2 }));
        gate.on_event(at(62), Event::Leave { client: ClientId(0) }).unwrap();
        assert_eq!((gate.poll_decision(at(999)), gate.poll_timeout()), (None, None));
        let event = Event::Charge { client: ClientId(0), used: Nanos(1) };
        assert_eq!(gate.on_event(at(999), event), Err(EventError::UnknownClient(ClientId(0))));
    }
}
