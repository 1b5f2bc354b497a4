//! ALPS as published: an allowance in quanta, looked at once a quantum.
//!
//! **Problem.** An ordinary process is to divide CPU time among others, without being told when they run or block.
//!
//! **Idea.** Let everybody with allowance left run, and leave it to the kernel to slice among them; look once a
//! quantum at what was used, and hold those that have had what they were due.
//!
//! **Terms.** `allowance_i` is the CPU time that client i may still use in this cycle (the paper counts it in
//! quanta, we in nanoseconds), `t_c` the CPU time left in the cycle, `S * Q` a cycle's length, `count` the quanta
//! looked at, `update_i` the quantum at which i is looked at next.
//!
//! **Algorithm.** Algorithm 1 (basic: every eligible client is read every quantum), Algorithm 2 (optimized: a client
//! with `a` quanta left cannot be through in fewer than `ceil(a)` of them) and Algorithm 3 (a client seen blocked
//! gives up one quantum). All loops are O(n), as printed; [`super::Exact`] is the one whose cost is not.
//!
//! **Properties.** (tests) `a_cycle_gives_shares_in_proportion`, `errors_are_repaid_in_the_next_cycle`,
//! `optimized_reads_less_and_decides_the_same` (where the kernel gives whole quanta; else Optimized may end a cycle a
//! quantum later), `a_blocked_client_does_not_delay_the_cycle`.
//!
//! **Weak spots.** What happens inside a quantum is seen only at its end: with kernel slices of 4 ms, RMS errors of
//! 1 to 20 % a cycle. A client that sleeps for 2 ms in every 4 gets 24 % of its 33 %.

use alloc::collections::{BTreeMap, VecDeque};

use super::{
    AnyGate, GateEntry, GateError, GateParamError, QUANTUM_MAX, QUANTUM_MIN, Question, Scale, ShareUnit,
    check_quantum, steps_after,
};
use crate::{
    ClientId, Domain, Event, EventError, Gate, Instant, Nanos, ParamInfo, Params, Policy, PolicyInfo, Share,
    param,
};

const PARAMS: &[ParamInfo] = &[param!(
    "quantum",
    Domain::Quantum(QUANTUM_MIN, QUANTUM_MAX),
    "10ms",
    "how often the clients are looked at; a cycle is the sum of the shares times this"
)];

/// `alps-basic` for the list of policies.
pub const ALPS_BASIC: GateEntry = GateEntry {
    info: PolicyInfo {
        name: "alps-basic",
        summary: "Basic ALPS: every eligible client is read every quantum, blocked or not",
        complexity: "O(n) a quantum",
        source: "ALPS, section 3.1, Algorithm 1",
        params: PARAMS,
        ..PolicyInfo::GATE
    },
    make: |params| make(params, AlpsVariant::Basic),
};

/// `alps` for the list of policies.
pub const ALPS: GateEntry = GateEntry {
    info: PolicyInfo {
        name: "alps",
        summary: "Optimized ALPS: reads a client only when it could be through; blocked clients give up a quantum",
        complexity: "O(n) a quantum, fewer reads",
        source: "ALPS, sections 4 and 4.3, Algorithms 2 and 3",
        params: PARAMS,
        ..PolicyInfo::GATE
    },
    make: |params| make(params, AlpsVariant::OptimizedIo),
};

fn make(params: &Params<'_>, variant: AlpsVariant) -> Result<AnyGate, GateError> {
    let (quantum, scale) = (params.time("quantum")?, params.run().scale);
    Ok(AnyGate::new(Alps::new(AlpsParams { quantum, variant, scale })?))
}

/// Which of the paper's algorithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlpsVariant {
    /// Algorithm 1.
    Basic,
    /// Algorithm 2, without the rule for blocked clients.
    Optimized,
    /// Algorithm 2 with the measurement loop of Algorithm 3. What users get as `alps`.
    OptimizedIo,
}

/// How an [`Alps`] is made.
#[derive(Clone, Copy, Debug)]
pub struct AlpsParams {
    /// Q: how often the clients are looked at, 1 ms to 10 s.
    pub quantum: Nanos,
    /// Which algorithm.
    pub variant: AlpsVariant,
    /// Whether shares are scaled by their greatest common divisor.
    pub scale: Scale,
}

#[derive(Clone, Debug)]
struct Client {
    share: Share,
    /// CPU time left in this cycle, ns; negative when more was used than was due.
    allowance: i128,
    eligible: bool,
    /// The quantum at which it is looked at next.
    update: u64,
    charge: Question,
    state: Question,
}

/// The ALPS gate; see the module's text.
#[derive(Clone, Debug)]
pub struct Alps {
    params: AlpsParams,
    clients: BTreeMap<ClientId, Client>,
    unit: ShareUnit,
    next_id: u32,
    /// t_c: CPU time left in this cycle, ns.
    cycle_left: i128,
    count: u64,
    cycles: u64,
    tick: Option<Instant>,
    /// Answers that the driver still owes to the measurement loop; `Some(0)` means that it is time to decide.
    owed: Option<usize>,
    out: VecDeque<Gate>,
}

impl Alps {
    /// A gate without clients. Its first quantum ends one quantum after the first client has joined; the clients
    /// that joined by then are released at once, since their allowances are positive.
    ///
    /// # Errors
    /// [`GateParamError::Quantum`].
    pub fn new(params: AlpsParams) -> Result<Self, GateParamError> {
        check_quantum(params.quantum)?;
        Ok(Self {
            params,
            clients: BTreeMap::new(),
            unit: ShareUnit::new(params.scale),
            next_id: 0,
            cycle_left: 0,
            count: 0,
            cycles: 0,
            tick: None,
            owed: None,
            out: VecDeque::new(),
        })
    }

    fn quantum(&self) -> i128 {
        i128::from(self.params.quantum.0)
    }

    fn due_ns(&self, share: Share) -> i128 {
        i128::from(self.unit.quanta(share)) * self.quantum()
    }

    /// The measurement loop: asks for what `read-progress(i)` reads, of every client that the algorithm looks at.
    fn measure(&mut self) {
        self.count += 1;
        let mut owed = 0;
        for (&client, c) in &mut self.clients {
            let looked_at =
                c.eligible && (self.params.variant == AlpsVariant::Basic || c.update <= self.count);
            if !looked_at {
                continue;
            }
            c.charge = Question::Decided;
            owed += 1;
            self.out.push_back(Gate::Measure { client });
            if self.params.variant == AlpsVariant::OptimizedIo {
                c.state = Question::Decided;
                owed += 1;
                self.out.push_back(Gate::Observe { client });
            }
        }
        self.owed = Some(owed);
    }

    /// The rest of the algorithm: the cycle's end, new allowances, who is eligible.
    fn decide(&mut self) {
        self.owed = None;
        let mut cycles = 0;
        let (quantum, cycle_ns) = (self.quantum(), self.unit.total_quanta() as i128 * self.quantum());
        if self.cycle_left <= 0 && !self.clients.is_empty() {
            cycles = 1;
            self.cycle_left += cycle_ns;
            self.cycles += 1;
            self.out.push_back(Gate::CycleEnd { cycles: self.cycles });
        }
        for (&client, c) in &mut self.clients {
            c.allowance += i128::from(self.unit.quanta(c.share)) * quantum * cycles;
            let eligible = c.allowance > 0;
            if eligible != c.eligible {
                c.eligible = eligible;
                self.out.push_back(if eligible {
                    Gate::Release { client, cpu: None }
                } else {
                    Gate::Hold { client }
                });
            }
            if c.update <= self.count {
                let quanta_left = (c.allowance + quantum - 1).div_euclid(quantum);
                let quanta_left = quanta_left.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
                c.update = self.count.saturating_add_signed(quanta_left);
            }
        }
    }

    /// Whether a decision is still about somebody; a question counts as asked from now on.
    fn still_holds(&mut self, decision: Gate) -> bool {
        let Some(client) = decision.client() else { return true };
        let Some(c) = self.clients.get_mut(&client) else { return false };
        match decision {
            Gate::Measure { .. } => c.charge.tell(),
            Gate::Observe { .. } => c.state.tell(),
            _ => {}
        }
        true
    }

    fn answered(&mut self) {
        if let Some(owed) = &mut self.owed {
            *owed -= 1;
        }
    }

    fn on_state(&mut self, client: ClientId, blocked: bool) -> Result<(), EventError> {
        let quantum = self.quantum();
        let c = self.clients.get_mut(&client).ok_or(EventError::UnknownClient(client))?;
        if !c.state.answer() {
            return Ok(()); // Only what the measurement loop sees counts (Algorithm 3).
        }
        if blocked {
            c.allowance -= quantum;
            self.cycle_left -= quantum;
        }
        self.answered();
        Ok(())
    }
}

impl Policy for Alps {
    type Decision = Gate;

    fn on_event(&mut self, now: Instant, event: Event) -> Result<(), EventError> {
        match event {
            Event::Join { client, share } => {
                if client.0 < self.next_id {
                    return Err(EventError::DuplicateClient(client));
                }
                self.next_id = client.0 + 1;
                self.unit.add(share);
                let allowance = self.due_ns(share);
                self.cycle_left += allowance;
                let (update, eligible) = (self.count, false);
                let (charge, state) = (Question::None, Question::None);
                let c = Client { share, allowance, eligible, update, charge, state };
                self.clients.insert(client, c);
                self.tick.get_or_insert(now);
            }
            Event::Leave { client } => {
                let c = self.clients.remove(&client).ok_or(EventError::UnknownClient(client))?;
                self.unit.remove(c.share);
                // The time left in a cycle is the sum of all allowances, debts included.
                self.cycle_left -= c.allowance;
                for question in [c.charge, c.state] {
                    if question.open() {
                        self.answered();
                    }
                }
                if self.clients.is_empty() {
                    self.tick = None;
                }
            }
            Event::Reshare { client, share } => {
                let c = self.clients.get_mut(&client).ok_or(EventError::UnknownClient(client))?;
                self.unit.remove(c.share);
                self.unit.add(share);
                c.share = share;
            }
            Event::Charge { client, used } => {
                let c = self.clients.get_mut(&client).ok_or(EventError::UnknownClient(client))?;
                c.allowance -= i128::from(used.0);
                self.cycle_left -= i128::from(used.0);
                if c.charge.answer() {
                    self.answered();
                }
            }
            Event::Block { client } => self.on_state(client, true)?,
            Event::Wake { client } => self.on_state(client, false)?,
            Event::Width { client, cpus } => {
                self.clients.get(&client).ok_or(EventError::UnknownClient(client))?;
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
            match (self.owed, self.tick) {
                (Some(0), _) => self.decide(),
                (Some(_), _) | (None, None) => return None,
                (None, Some(tick)) if now < tick => return None,
                (None, Some(tick)) => {
                    // Timer events that could not be served in time are one event, as with setitimer.
                    let missed = now.since(tick).0 / self.params.quantum.0;
                    self.tick = steps_after(tick, self.params.quantum, missed + 1);
                    self.measure();
                }
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.tick
    }
}
