//! Nobody is ever held: whoever runs the clients divides, by weights or as it pleases.
//!
//! **Problem.** Where the kernel itself can divide by share (CPU weights of cgroups), a gate would only be in its way; but
//! what came of it is to be seen in the same accounts.
//!
//! **Idea.** Release everybody; end a cycle whenever a gate would.
//!
//! **Terms.** Q is the quantum, S the sum of the shares in their unit, m the number of CPUs, n that of clients.
//!
//! **Algorithm.** A client is released when it joins. Every `S * Q / m` of wall time each is measured, and a cycle ends; after
//! [`CYCLE_MAX`], or `n * Q / m` where that is longer, at the latest. Shares of a market have no unit in common, and a cycle of theirs
//! would be of many seconds, in which nobody is seen to sleep. Whether a client is asleep is looked at only where its account does not
//! tell: it used less than its part of the time that passed, an eighth of that aside, was asleep when it was last looked at, or that is
//! [`CYCLE_MAX`] ago. A program of many threads is cheap to measure and dear to look at.
//!
//! **Properties.** (tests) `everybody_is_released_once_and_never_held`, `a_cycle_ends_when_a_gates_would`,
//! `sleepers_are_looked_for_whatever_the_shares`, `whose_account_tells_is_not_looked_at`.
//!
//! **Weak spots.** It divides nothing. A cycle is of wall time: whatever strangers take is missing from all. Who used its part and fell
//! asleep is thought to be awake for one cycle more; whose threads have become fewer, to be able to use as many CPUs as before for up to
//! [`CYCLE_MAX`].

use alloc::collections::BTreeMap;

use super::roster::{Await, Awaited, Outbox};
use super::{
    AnyGate, GateEntry, GateParamError, QUANTUM_MAX, QUANTUM_MIN, Scale, ShareUnit, check_quantum,
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
    awaits: Await,
    /// When its state was read last, and whether it was asleep then.
    seen: Option<Instant>,
    blocked: bool,
    /// What it has used in this cycle.
    used: Nanos,
}

/// The clients, by id.
#[derive(Clone, Debug, Default)]
struct Clients(BTreeMap<ClientId, Client>);

impl Awaited for Clients {
    fn awaits(&mut self, client: ClientId) -> Option<&mut Await> {
        self.0.get_mut(&client).map(|c| &mut c.awaits)
    }
}

/// The gate that holds nobody; see the module's text.
#[derive(Clone, Debug)]
pub struct Kernel {
    params: KernelParams,
    clients: Clients,
    unit: ShareUnit,
    /// The sum of the shares.
    shares: u128,
    next_id: u32,
    /// When this cycle began.
    begun: Option<Instant>,
    /// All are asked: the cycle ends with their answers.
    ending: bool,
    cycles: u64,
    out: Outbox,
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
            clients: Clients::default(),
            unit: ShareUnit::new(params.scale),
            shares: 0,
            next_id: 0,
            begun: None,
            ending: false,
            cycles: 0,
            out: Outbox::default(),
        })
    }

    /// When this cycle ends: the shares that there are by now count.
    fn end(&self) -> Option<Instant> {
        let of = |quanta: u128| {
            quanta.saturating_mul(u128::from(self.params.quantum.0)) / u128::from(self.params.cpus)
        };
        let most = of(self.clients.0.len() as u128).max(u128::from(CYCLE_MAX.0));
        let cycle = u64::try_from(of(self.unit.total_quanta()).min(most)).unwrap_or(u64::MAX).max(1);
        steps_after(self.begun?, Nanos(cycle), 1)
    }

    fn get(&mut self, client: ClientId) -> Result<&mut Client, EventError> {
        self.clients.0.get_mut(&client).ok_or(EventError::UnknownClient(client))
    }

    /// Whether what `c` has used of this cycle says that it is awake.
    fn tells(&self, now: Instant, c: &Client) -> bool {
        let (Some(begun), Some(seen)) = (self.begun, c.seen) else { return false };
        let elapsed = u128::from(now.since(begun).0);
        // Its part of the time on all CPUs; of one CPU at the most, since it may be of one thread.
        let share = u128::from(c.share.get()).saturating_mul(u128::from(self.params.cpus));
        let part = elapsed.saturating_mul(share) / self.shares.max(1);
        let part = part.min(elapsed);
        !c.blocked && now.since(seen) < CYCLE_MAX && u128::from(c.used.0) * 8 >= part.max(1) * 7
    }

    /// A client was measured: its account tells, or its state is to be read.
    fn judge(&mut self, now: Instant, client: ClientId) {
        let tells = self.clients.0.get(&client).is_some_and(|c| self.tells(now, c));
        let Some(c) = self.clients.0.get_mut(&client) else { return };
        c.used = Nanos::ZERO;
        if tells {
            self.out.answered(&mut c.awaits);
        } else {
            self.out.observe(client, &mut c.awaits);
        }
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
                self.shares += u128::from(share.get());
                let (awaits, seen, blocked, used) = (Await::Nothing, None, false, Nanos::ZERO);
                self.clients.0.insert(client, Client { share, awaits, seen, blocked, used });
                self.out.push(Gate::Release { client, cpu: None });
                self.begun.get_or_insert(now);
            }
            Event::Leave { client } => {
                let mut c = self.clients.0.remove(&client).ok_or(EventError::UnknownClient(client))?;
                self.unit.remove(c.share);
                self.shares -= u128::from(c.share.get());
                self.out.answered(&mut c.awaits);
                if self.clients.0.is_empty() {
                    self.begun = None;
                }
            }
            Event::Reshare { client, share } => {
                let old = core::mem::replace(&mut self.get(client)?.share, share);
                self.unit.remove(old);
                self.unit.add(share);
                self.shares = self.shares - u128::from(old.get()) + u128::from(share.get());
            }
            Event::Block { client } | Event::Wake { client } => {
                let c = self.clients.0.get_mut(&client).ok_or(EventError::UnknownClient(client))?;
                c.blocked = matches!(event, Event::Block { .. });
                if c.awaits == Await::State {
                    c.seen = Some(now);
                    self.out.answered(&mut c.awaits);
                }
            }
            Event::Charge { client, used } => {
                let c = self.get(client)?;
                c.used += used;
                if c.awaits == Await::Charge {
                    self.judge(now, client);
                }
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
            if let Some(decision) = self.out.next(&mut self.clients) {
                return Some(decision);
            }
            if self.ending && !self.out.is_owed() {
                self.ending = false;
                self.cycles += 1;
                // A cycle begins when the last one has ended, however late that was.
                self.begun = (!self.clients.0.is_empty()).then_some(now);
                self.out.push(Gate::CycleEnd { cycles: self.cycles });
            } else if !self.ending && self.end().is_some_and(|end| now >= end) {
                self.ending = true;
                for (&client, c) in &mut self.clients.0 {
                    self.out.measure(client, &mut c.awaits);
                }
            } else {
                return None;
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
            match decision {
                Gate::Measure { client } => {
                    gate.on_event(now, Event::Charge { client, used: Nanos::ZERO }).unwrap();
                }
                Gate::Observe { client } => gate.on_event(now, Event::Block { client }).unwrap(),
                _ => {}
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
        let measure = |client| Gate::Measure { client: ClientId(client) };
        let observe = |client| Gate::Observe { client: ClientId(client) };
        let asked = [measure(0), measure(1), measure(2), observe(0), observe(1), observe(2)];
        let decided = all(&mut gate, at(31));
        assert_eq!((&decided[..6], decided[6]), (&asked[..], Gate::CycleEnd { cycles: 1 }));
        assert_eq!(gate.poll_timeout(), Some(at(61)), "a late cycle is not made up for");
        // One that leaves while it is asked for answers by that.
        let used = |client, ms| Event::Charge { client: ClientId(client), used: Nanos::from_millis(ms) };
        assert_eq!(gate.poll_decision(at(61)), Some(measure(0)));
        gate.on_event(at(61), used(0, 10)).unwrap();
        gate.on_event(at(61), Event::Leave { client: ClientId(1) }).unwrap();
        assert_eq!(gate.poll_decision(at(61)), Some(measure(2)));
        assert_eq!(gate.poll_decision(at(61)), Some(observe(0)), "it was asleep when it was looked at");
        gate.on_event(at(61), Event::Wake { client: ClientId(0) }).unwrap();
        assert_eq!(gate.poll_decision(at(61)), None);
        gate.on_event(at(62), Event::Leave { client: ClientId(2) }).unwrap();
        assert_eq!(gate.poll_decision(at(62)), Some(Gate::CycleEnd { cycles: 2 }));
        gate.on_event(at(62), Event::Leave { client: ClientId(0) }).unwrap();
        assert_eq!((gate.poll_decision(at(999)), gate.poll_timeout()), (None, None));
        let event = Event::Charge { client: ClientId(0), used: Nanos(1) };
        assert_eq!(gate.on_event(at(999), event), Err(EventError::UnknownClient(ClientId(0))));
    }

    #[test]
    fn whose_account_tells_is_not_looked_at() {
        let (mut gate, _) = gate(&[1, 2, 3]);
        // Who uses how much of each cycle of 30 ms on two CPUs, ms, where 10, 20 and 30 are their parts.
        let mut cycle = |cycle: u64, used: [u64; 3], asleep: bool| {
            let now = Instant::ZERO + Nanos::from_millis(30 * cycle);
            let mut looked_at = Vec::new();
            while let Some(decision) = gate.poll_decision(now) {
                match decision {
                    Gate::Measure { client } => {
                        let used = Nanos::from_millis(used[client.index()]);
                        gate.on_event(now, Event::Charge { client, used }).unwrap();
                    }
                    Gate::Observe { client } => {
                        looked_at.push(client.0);
                        let event = if asleep { Event::Block { client } } else { Event::Wake { client } };
                        gate.on_event(now, event).unwrap();
                    }
                    _ => {}
                }
            }
            looked_at
        };
        assert_eq!(cycle(1, [10, 20, 30], false), [0, 1, 2], "nobody was looked at yet");
        assert_eq!(cycle(2, [10, 20, 30], false), []);
        assert_eq!(cycle(3, [9, 18, 27], false), [], "an eighth less is as much");
        assert_eq!(cycle(4, [8, 20, 30], true), [0], "it may have slept");
        assert_eq!(cycle(5, [10, 20, 30], false), [0], "it was asleep");
        assert_eq!(cycle(6, [10, 20, 30], false), []);
        // After 500 ms their states, and how many CPUs they can use, are read again.
        let again: Vec<_> = (7..=24).map(|i| cycle(i, [10, 20, 30], false)).collect();
        let looks: Vec<usize> = [0, 1, 2].map(|i| again.iter().filter(|at| at.contains(&i)).count()).to_vec();
        assert_eq!(looks, [1, 1, 1], "{again:?}");
    }
}
