//! superd's rate enforcement: a client is ready while its utilization in this period is below its weight.
//!
//! **Problem.** Each client is to run at a fixed rate, and sleepers must not save up.
//!
//! **Idea.** Look at the end of every scheduling decision interval; forget the past at the end of every rate
//! enforcement period.
//!
//! **Terms.** S is the interval, R the period (a whole number of intervals), `t` the intervals since the period
//! began, `c_i(t)` the CPU time used since then, `u_i = c_i / (t * S)` the utilization (0 at t = 0),
//! `w_i = share / sum of shares` the weight.
//!
//! **Algorithm.** `READY(t) = {i : u_i(t) < w_i}`; the others are held. In integers: `c_i * shares < share_i * t * S`.
//!
//! **Properties.** (tests) `rates_are_shares_of_the_wall_clock`, `a_period_forgets`, `everybody_is_ready_at_zero`.
//!
//! **Weak spots.** Rates are of wall time on one CPU: whatever a stranger or the scheduler uses is taken from the
//! client with the largest share (section 4.3), and a CPU idles when all are ahead of their rates. A client may
//! exceed its rate by an interval.

use alloc::collections::{BTreeMap, VecDeque};

use super::{
    AnyGate, GateEntry, GateParamError, QUANTUM_MAX, QUANTUM_MIN, Question, check_quantum, steps_after,
};
use crate::{ClientId, Domain, Event, EventError, Gate, Instant, Nanos, Policy, PolicyInfo, Share, param};

/// `rate` for the list of policies.
pub const RATE: GateEntry = GateEntry {
    info: PolicyInfo {
        name: "rate",
        summary: "superd's rate enforcement: held while the utilization in this period is above the weight",
        complexity: "O(n) an interval",
        source: "superd, section 2.2",
        params: &[
            param!(
                "quantum",
                Domain::Quantum(QUANTUM_MIN, QUANTUM_MAX),
                "10ms",
                "the scheduling decision interval S"
            ),
            param!(
                "period",
                Domain::Form("a multiple of the interval"),
                "1s",
                "the rate enforcement period R, after which the past is forgotten"
            ),
        ],
        ..PolicyInfo::GATE
    },
    make: |params| {
        let period = params.form("period", |text| text.parse().ok())?;
        Ok(AnyGate::new(Rate::new(RateParams { interval: params.time("quantum")?, period })?))
    },
};

/// How a [`Rate`] is made.
#[derive(Clone, Copy, Debug)]
pub struct RateParams {
    /// S: the scheduling decision interval, 1 ms to 10 s.
    pub interval: Nanos,
    /// R: the rate enforcement period, a whole number of intervals.
    pub period: Nanos,
}

#[derive(Clone, Debug)]
struct Client {
    share: Share,
    /// c_i: CPU time used in this period.
    used: u128,
    ready: bool,
    charge: Question,
}

/// The gate of superd; see the module's text.
#[derive(Clone, Debug)]
pub struct Rate {
    params: RateParams,
    clients: BTreeMap<ClientId, Client>,
    shares: u128,
    next_id: u32,
    period_start: Instant,
    tick: Option<Instant>,
    owed: Option<usize>,
    periods: u64,
    out: VecDeque<Gate>,
}

impl Rate {
    /// A gate without clients; its first period begins when the first client joins.
    ///
    /// # Errors
    /// [`GateParamError::Quantum`], [`GateParamError::Period`].
    pub fn new(params: RateParams) -> Result<Self, GateParamError> {
        check_quantum(params.interval)?;
        if params.period.0 == 0 || !params.period.0.is_multiple_of(params.interval.0) {
            return Err(GateParamError::Period { period: params.period, interval: params.interval });
        }
        Ok(Self {
            params,
            clients: BTreeMap::new(),
            shares: 0,
            next_id: 0,
            period_start: Instant::ZERO,
            tick: None,
            owed: None,
            periods: 0,
            out: VecDeque::new(),
        })
    }

    fn measure(&mut self, now: Instant) {
        // Intervals whose ends could not be served in time are over all the same.
        let intervals = now.since(self.period_start).0 / self.params.interval.0;
        self.tick = steps_after(self.period_start, self.params.interval, intervals + 1);
        for (&client, c) in &mut self.clients {
            c.charge = Question::Decided;
            self.out.push_back(Gate::Measure { client });
        }
        self.owed = Some(self.clients.len());
    }

    fn decide(&mut self, now: Instant) {
        self.owed = None;
        if now.since(self.period_start) >= self.params.period {
            let periods = now.since(self.period_start).0 / self.params.period.0;
            self.period_start = self.period_start + Nanos(periods * self.params.period.0);
            self.periods += 1;
            self.out.push_back(Gate::CycleEnd { cycles: self.periods });
            for c in self.clients.values_mut() {
                c.used = 0;
            }
        }
        let intervals = now.since(self.period_start).0 / self.params.interval.0;
        let elapsed = u128::from(intervals * self.params.interval.0);
        for (&client, c) in &mut self.clients {
            let ready = intervals == 0
                || c.used.saturating_mul(self.shares) < u128::from(c.share.get()).saturating_mul(elapsed);
            if ready != c.ready {
                c.ready = ready;
                self.out.push_back(if ready {
                    Gate::Release { client, cpu: None }
                } else {
                    Gate::Hold { client }
                });
            }
        }
    }

    /// Whether a decision is still about somebody; a question counts as asked from now on.
    fn still_holds(&mut self, decision: Gate) -> bool {
        let Some(client) = decision.client() else { return true };
        let Some(c) = self.clients.get_mut(&client) else { return false };
        if let Gate::Measure { .. } = decision {
            c.charge.tell();
        }
        true
    }

    fn get(&mut self, client: ClientId) -> Result<&mut Client, EventError> {
        self.clients.get_mut(&client).ok_or(EventError::UnknownClient(client))
    }
}

impl Policy for Rate {
    type Decision = Gate;

    fn on_event(&mut self, now: Instant, event: Event) -> Result<(), EventError> {
        match event {
            Event::Join { client, share } => {
                if client.0 < self.next_id {
                    return Err(EventError::DuplicateClient(client));
                }
                self.next_id = client.0 + 1;
                if self.clients.is_empty() {
                    self.period_start = now;
                    self.tick = Some(now);
                }
                self.shares += u128::from(share.get());
                self.clients.insert(client, Client { share, used: 0, ready: false, charge: Question::None });
            }
            Event::Leave { client } => {
                let c = self.clients.remove(&client).ok_or(EventError::UnknownClient(client))?;
                self.shares -= u128::from(c.share.get());
                if let (true, Some(owed)) = (c.charge.open(), &mut self.owed) {
                    *owed -= 1;
                }
                if self.clients.is_empty() {
                    self.tick = None;
                }
            }
            Event::Reshare { client, share } => {
                let c = self.get(client)?;
                let old = core::mem::replace(&mut c.share, share);
                self.shares = self.shares - u128::from(old.get()) + u128::from(share.get());
            }
            Event::Charge { client, used } => {
                let c = self.get(client)?;
                c.used += u128::from(used.0);
                if let (true, Some(owed)) = (c.charge.answer(), &mut self.owed) {
                    *owed -= 1;
                }
            }
            // Whoever waives its share by blocking is owed nothing for it (section 2.2).
            Event::Block { client } | Event::Wake { client } => {
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
            match (self.owed, self.tick) {
                (Some(0), _) => self.decide(now),
                (None, Some(tick)) if now >= tick => self.measure(now),
                _ => return None,
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.tick
    }
}
