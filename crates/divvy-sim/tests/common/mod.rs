//! Small policies, written for clearness and not for speed, to try the simulator with.
#![allow(dead_code, reason = "each test file uses a part")]

use divvy_policy::{ClientId, CpuId, Event, EventError, Grant, Instant, Nanos, Policy};
use divvy_sim::scenario::{PolicyContext, PolicyError, PolicyFactory, PolicySpec, PolicyVisitor, Scenario};

/// How a [`Small`] policy chooses.
#[derive(Clone, Debug)]
pub enum Rule {
    /// In order of waking, to the end.
    Fcfs,
    /// In turns of a quantum.
    Rr,
    /// Least service first, a quantum at a time.
    Las,
    /// Weighted fair queueing, all runnable from the start: least (quanta + 1) / share, then the larger share, then id.
    Wfq,
    /// Largest share first, as many quanta as it has shares.
    Wrr,
    /// PBS in floating point, as the paper writes it.
    Pbs(Pbs),
}

/// Parameters of PBS (paper, sections 2, 4 and 5).
#[derive(Clone, Debug)]
pub struct Pbs {
    pub main: Term,
    pub gamma: f64,
    pub eps: f64,
    pub second: Term,
}

/// alpha and beta with its sign.
#[derive(Clone, Copy, Debug)]
pub struct Term {
    pub alpha: f64,
    pub beta: f64,
    pub exclude: bool,
}

#[derive(Clone, Copy, Debug)]
struct Session {
    start: Instant,
    service: u64,
    inactive: u64,
}

#[derive(Clone, Debug)]
struct Client {
    share: u64,
    ready: bool,
    left: bool,
    cpu: Option<usize>,
    service: u64,
    order: u64,
    activated: bool,
    blocked_at: Instant,
    nr_inactive: u64,
    sum_inactive: u64,
    sessions: [Session; 2],
}

#[derive(Clone, Debug)]
pub struct Small {
    rule: Rule,
    quantum: u64,
    clients: Vec<Option<Client>>,
    /// Those that are ready, in no order: every rule's order is total.
    ready: Vec<usize>,
    holders: Vec<Option<usize>>,
    asking: Vec<bool>,
    current: Option<usize>,
    next_order: u64,
    woken: bool,
}

impl Small {
    pub fn new(rule: Rule, cpus: u32, quantum: Nanos) -> Self {
        let n = cpus as usize;
        Self {
            rule,
            quantum: quantum.0,
            clients: Vec::new(),
            ready: Vec::new(),
            holders: vec![None; n],
            asking: vec![false; n],
            current: None,
            next_order: 0,
            woken: false,
        }
    }

    fn get(&mut self, client: ClientId) -> Result<&mut Client, EventError> {
        match self.clients.get_mut(client.index()) {
            Some(Some(c)) if !c.left => Ok(c),
            _ => Err(EventError::UnknownClient(client)),
        }
    }

    fn terms(&self) -> Option<[Term; 2]> {
        if let Rule::Pbs(pbs) = &self.rule { Some([pbs.main, pbs.second]) } else { None }
    }

    fn wake(&mut self, now: Instant, client: ClientId) -> Result<(), EventError> {
        let (order, terms) = (self.next_order, self.terms());
        let c = self.get(client)?;
        if c.ready {
            return Ok(());
        }
        c.ready = true;
        c.order = order;
        if !c.activated {
            c.activated = true;
            for (session, term) in c.sessions.iter_mut().zip(terms.into_iter().flatten()) {
                if term.beta.is_finite() || term.exclude {
                    session.start = now;
                }
            }
        } else {
            let span = now.since(c.blocked_at).0;
            for (session, term) in c.sessions.iter_mut().zip(terms.into_iter().flatten()) {
                let average = c.sum_inactive as f64 / c.nr_inactive as f64;
                let long = c.nr_inactive > 0 && span as f64 >= term.beta * average;
                if long || term.beta == 0.0 {
                    *session = Session { start: now, service: 0, inactive: 0 };
                } else {
                    session.inactive += span;
                }
            }
            c.nr_inactive += 1;
            c.sum_inactive += span;
        }
        self.next_order += 1;
        self.woken = true;
        self.ready.push(client.index());
        Ok(())
    }

    fn block(&mut self, now: Instant, client: ClientId) -> Result<(), EventError> {
        let c = self.get(client)?;
        if c.ready {
            c.ready = false;
            c.blocked_at = now;
            if let Some(cpu) = c.cpu.take() {
                self.holders[cpu] = None;
            }
            self.ready.retain(|&index| index != client.index());
        }
        if self.current == Some(client.index()) {
            self.current = None;
        }
        Ok(())
    }

    fn priority(&self, pbs: &Pbs, now: Instant, index: usize) -> f64 {
        let c = self.clients[index].as_ref().unwrap();
        let term = |term: &Term, session: &Session| {
            let mut t = now.since(session.start).0;
            if term.exclude {
                t -= session.inactive;
            }
            let (t, s) = ((t as f64).log2(), session.service as f64);
            if term.alpha == 0.0 {
                t
            } else if s == 0.0 {
                f64::INFINITY
            } else if term.alpha.is_infinite() {
                -s
            } else {
                t - term.alpha * s.log2()
            }
        };
        let bonus = if self.current == Some(index) { pbs.gamma } else { 0.0 };
        let offset = if c.share > 1 { pbs.main.alpha * (c.share as f64).log2() } else { 0.0 };
        let second = if pbs.eps == 0.0 { 0.0 } else { pbs.eps * term(&pbs.second, &c.sessions[1]) };
        term(&pbs.main, &c.sessions[0]) + second + bonus + offset
    }

    /// The best of the ready clients that are on no CPU, or on CPU `also`.
    fn best(&self, now: Instant, also: Option<usize>) -> Option<usize> {
        let candidates = self.ready.iter().filter_map(|&i| {
            let c = self.clients[i].as_ref()?;
            (c.cpu.is_none() || c.cpu == also).then_some((i, c))
        });
        match &self.rule {
            Rule::Fcfs | Rule::Rr => candidates.min_by_key(|(_, c)| c.order).map(|(i, _)| i),
            Rule::Las => candidates.min_by_key(|(_, c)| (c.service, c.order)).map(|(i, _)| i),
            Rule::Wrr => candidates
                .min_by_key(|(i, c)| (c.service / (c.share * self.quantum), std::cmp::Reverse(c.share), *i))
                .map(|(i, _)| i),
            Rule::Wfq => candidates
                .min_by(|(i, a), (j, b)| {
                    let finish =
                        |c: &Client, d: &Client| (c.service / self.quantum + 1) as u128 * u128::from(d.share);
                    finish(a, b).cmp(&finish(b, a)).then(b.share.cmp(&a.share)).then(i.cmp(j))
                })
                .map(|(i, _)| i),
            Rule::Pbs(pbs) => candidates
                .map(|(i, c)| (self.priority(pbs, now, i), c.sessions[0].start, i))
                .max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)).then(b.2.cmp(&a.2)))
                .map(|(.., i)| i),
        }
    }

    fn grant(&mut self, now: Instant, cpu: usize, index: usize) -> Grant {
        self.asking[cpu] = false;
        self.holders[cpu] = Some(index);
        self.current = Some(index);
        let c = self.clients[index].as_mut().unwrap();
        c.cpu = Some(cpu);
        let slice = match &self.rule {
            Rule::Fcfs => u64::MAX,
            Rule::Pbs(_) => self.quantum - now.0 % self.quantum,
            Rule::Wrr => self.quantum * (c.share - c.service / self.quantum % c.share),
            _ => self.quantum,
        };
        Grant { cpu: CpuId(cpu as u32), client: ClientId(index as u32), slice: Nanos(slice) }
    }
}

impl Policy for Small {
    type Decision = Grant;

    fn on_event(&mut self, now: Instant, event: Event) -> Result<(), EventError> {
        match event {
            Event::Join { client, share } => {
                let index = client.index();
                if self.clients.len() <= index {
                    self.clients.resize_with(index + 1, || None);
                }
                if self.clients[index].is_some() {
                    return Err(EventError::DuplicateClient(client));
                }
                let session = Session { start: now, service: 0, inactive: 0 };
                self.clients[index] = Some(Client {
                    share: share.get(),
                    ready: false,
                    left: false,
                    cpu: None,
                    service: 0,
                    order: 0,
                    activated: false,
                    blocked_at: now,
                    nr_inactive: 0,
                    sum_inactive: 0,
                    sessions: [session; 2],
                });
                Ok(())
            }
            Event::Wake { client } => self.wake(now, client),
            Event::Block { client } => self.block(now, client),
            Event::Leave { client } => {
                self.block(now, client)?;
                self.get(client)?.left = true;
                Ok(())
            }
            Event::Reshare { client, share } => {
                self.get(client)?.share = share.get();
                Ok(())
            }
            Event::Charge { client, used } => {
                let c = self.get(client)?;
                c.service += used.0;
                c.sessions.iter_mut().for_each(|session| session.service += used.0);
                Ok(())
            }
            Event::Width { client, .. } => self.get(client).map(|_| ()),
            Event::Free { cpu } => {
                if cpu.index() >= self.asking.len() {
                    return Err(EventError::UnknownCpu(cpu));
                }
                self.asking[cpu.index()] = true;
                if let Some(index) = self.holders[cpu.index()].take() {
                    let c = self.clients[index].as_mut().unwrap();
                    c.cpu = None;
                    // Round robin: to the end of the line.
                    c.order = self.next_order;
                    self.next_order += 1;
                }
                Ok(())
            }
        }
    }

    fn poll_decision(&mut self, now: Instant) -> Option<Grant> {
        if let Some(cpu) = self.asking.iter().position(|&asking| asking) {
            let index = self.best(now, None)?;
            return Some(self.grant(now, cpu, index));
        }
        // Only on one CPU do these preempt.
        let preempts = matches!(self.rule, Rule::Las | Rule::Pbs(_)) && self.holders.len() == 1;
        if std::mem::take(&mut self.woken) && preempts {
            let index = self.best(now, Some(0))?;
            if self.holders[0] != Some(index) {
                let old = self.holders[0].take()?;
                self.clients[old].as_mut().unwrap().cpu = None;
                return Some(self.grant(now, 0, index));
            }
        }
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// Makes [`Small`] policies.
pub struct Smalls;

impl PolicyFactory for Smalls {
    fn with_policy<V: PolicyVisitor>(
        &self,
        spec: &PolicySpec,
        context: &PolicyContext,
        visitor: V,
    ) -> Result<V::Output, PolicyError> {
        let text = |name| spec.params.get(name).map(ToString::to_string);
        let number = |name, default: f64| text(name).map_or(default, |x| x.parse().expect("a number"));
        let negative = |name| text(name).is_some_and(|sign| sign == "-");
        let rule = match spec.name.as_str() {
            "fcfs" => Rule::Fcfs,
            "rr" => Rule::Rr,
            "las" => Rule::Las,
            "wfq" => Rule::Wfq,
            "wrr" => Rule::Wrr,
            "pbs" => {
                let (alpha, beta) = (number("alpha", 1.0), number("beta", f64::INFINITY));
                let main = Term { alpha, beta, exclude: negative("sign") };
                let (alpha, beta) = (number("alpha2", 1.0), number("beta2", f64::INFINITY));
                let second = Term { alpha, beta, exclude: negative("sign2") };
                Rule::Pbs(Pbs { main, gamma: number("gamma", 0.0), eps: number("eps", 0.0), second })
            }
            name => return Err(PolicyError::unknown(name, &["fcfs", "rr", "las", "wfq", "wrr", "pbs"])),
        };
        let quantum = text("quantum").map_or(context.quantum.nanos(), |q| q.parse().expect("a time"));
        Ok(visitor.visit(Small::new(rule, context.cpus, quantum)))
    }
}

/// Reads a golden file of the repository.
pub fn golden(name: &str) -> serde_json::Value {
    let path = format!("{}/../../golden/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("read {path}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("parse {path}: {error}"))
}

/// Reads a scenario in TOML.
pub fn toml(text: &str) -> Scenario {
    Scenario::parse(text, divvy_sim::scenario::Format::Toml).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Reads a scenario in JSON.
pub fn json(value: &serde_json::Value) -> Scenario {
    let text = value.to_string();
    Scenario::parse(&text, divvy_sim::scenario::Format::Json)
        .unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Runs a scenario with its own seed.
pub fn run(scenario: &Scenario) -> divvy_sim::output::Report {
    divvy_sim::simulate::simulate(scenario, scenario.seed, &[], &Smalls)
        .unwrap_or_else(|error| panic!("{error}"))
}
