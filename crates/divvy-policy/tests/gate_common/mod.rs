//! A driver that obeys the contract of `Policy`, over a machine that divides its CPUs evenly among whoever may run.
#![allow(dead_code, reason = "each test binary uses its part")]

pub mod changes;
pub mod hostile;

use divvy_policy::{ClientId, Event, EventError, Gate, Instant, Nanos, Policy, Share};

pub const MS: u64 = 1_000_000;

#[derive(Clone, Debug)]
pub struct Runner {
    pub present: bool,
    pub released: bool,
    /// Whether it is to have what those that are released leave.
    pub behind: bool,
    pub used: u64,
    /// So many CPUs it can use.
    pub threads: u64,
    told: u64,
    /// Runs for `on` of CPU time, then sleeps for `off`.
    on_off: Option<(u64, u64)>,
    /// It stands until then.
    begins: u64,
    left: u64,
    pub asleep_until: Option<u64>,
}

impl Runner {
    /// Whether it never sleeps.
    pub fn computes(&self) -> bool {
        self.on_off.is_none()
    }
}

/// When a charge is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charges {
    /// Only when asked for.
    Whole,
    /// A part at every step, unasked, and the rest when asked for.
    Split,
}

pub struct World<P> {
    pub policy: P,
    pub now: u64,
    pub cpus: u64,
    pub clients: Vec<Runner>,
    pub log: Vec<(u64, Gate)>,
    pub reads: u64,
    pub charges: Charges,
    /// Whoever is held has what the others leave of the CPUs.
    leftovers: bool,
    /// Threads that nobody divides: they compete with whoever is released, and come before whoever has what is left.
    pub strangers: u64,
    /// The policy is called so much later than it asked for, ns.
    pub late: u64,
    /// Whoever was released stands so much longer, and whoever was looked at, ns.
    pub ways: [u64; 2],
}

impl<P: Policy<Decision = Gate>> World<P> {
    pub fn new(policy: P, cpus: u64) -> Self {
        Self {
            policy,
            now: 0,
            cpus,
            clients: vec![],
            log: vec![],
            reads: 0,
            charges: Charges::Whole,
            leftovers: false,
            strangers: 0,
            late: 0,
            ways: [0, 0],
        }
    }

    pub fn event(&mut self, event: Event) -> Result<(), EventError> {
        self.policy.on_event(Instant(self.now), event)
    }

    /// Whoever is held has what the others leave, from now on.
    pub fn leave_to_others(&mut self) {
        self.leftovers = true;
        self.policy.set_leftovers(true);
    }

    /// A client that computes.
    pub fn join(&mut self, share: u64) -> ClientId {
        let client = ClientId(self.clients.len() as u32);
        self.event(Event::Join { client, share: Share::new(share).unwrap() }).unwrap();
        self.event(Event::Wake { client }).unwrap();
        self.clients.push(Runner {
            present: true,
            released: false,
            behind: false,
            used: 0,
            threads: 1,
            told: 0,
            on_off: None,
            begins: 0,
            left: u64::MAX,
            asleep_until: None,
        });
        client
    }

    /// So many clients that compute, each with a share of 1.
    pub fn join_all(&mut self, clients: usize) {
        for _ in 0..clients {
            self.join(1);
        }
    }

    /// A client of so many threads that compute.
    pub fn join_wide(&mut self, share: u64, threads: u32) -> ClientId {
        let client = self.join(share);
        self.clients[client.index()].threads = u64::from(threads);
        self.event(Event::Width { client, cpus: threads }).unwrap();
        client
    }

    pub fn join_sleeper(&mut self, share: u64, on: u64, off: u64) -> ClientId {
        let client = self.join(share);
        self.naps(client, Some((on, off)));
        client
    }

    /// From now on a client runs for `on` of CPU time, then sleeps for `off`, or computes.
    pub fn naps(&mut self, client: ClientId, on_off: Option<(u64, u64)>) {
        let c = &mut self.clients[client.index()];
        (c.on_off, c.left) = (on_off, on_off.map_or(u64::MAX, |(on, _)| on));
    }

    pub fn leave(&mut self, client: ClientId) {
        self.charge(client);
        self.clients[client.index()].present = false;
        self.event(Event::Leave { client }).unwrap();
    }

    /// Uses CPU time on behalf of a client, by hand.
    pub fn give(&mut self, client: u32, ns: u64) {
        assert!(self.clients[client as usize].released, "client {client} runs although it is held");
        self.clients[client as usize].used += ns;
    }

    fn charge(&mut self, client: ClientId) {
        let c = &mut self.clients[client.index()];
        let used = Nanos(c.used - c.told);
        c.told = c.used;
        self.event(Event::Charge { client, used }).unwrap();
    }

    /// Lets the policy decide, and carries everything out.
    pub fn poll(&mut self) {
        let most = 1000 + 100 * self.clients.len();
        for round in 0.. {
            assert!(round < most, "the policy does not come to an end");
            let Some(decision) = self.policy.poll_decision(Instant(self.now)) else { break };
            self.log.push((self.now, decision));
            match decision {
                Gate::Release { client, .. } => {
                    let begins = self.now + self.ways[0];
                    let c = self.present(client);
                    c.begins = begins;
                    (c.released, c.behind) = (true, false);
                }
                Gate::Behind { client } => {
                    let c = self.present(client);
                    (c.released, c.behind) = (false, true);
                }
                Gate::Hold { client } => {
                    let c = self.present(client);
                    (c.released, c.behind) = (false, false);
                }
                Gate::Measure { client } => {
                    self.reads += 1;
                    let begins = self.now + self.ways[1];
                    self.present(client).begins = begins;
                    self.charge(client);
                }
                Gate::Observe { client } => {
                    self.reads += 1;
                    let asleep = self.present(client).asleep_until.is_some();
                    let event = if asleep { Event::Block { client } } else { Event::Wake { client } };
                    self.event(event).unwrap();
                }
                Gate::CycleEnd { .. } => {}
            }
        }
    }

    fn present(&mut self, client: ClientId) -> &mut Runner {
        let c = &mut self.clients[client.index()];
        assert!(c.present, "a decision about client {}, which has left", client.0);
        c
    }

    /// Moves to `at` by hand, and lets the policy decide.
    pub fn poll_at(&mut self, at: u64) {
        self.now = at;
        self.poll();
    }

    /// Runs the machine until `end`; whoever is released and awake gets an even part of the CPUs.
    pub fn run_until(&mut self, end: u64) {
        self.poll();
        let mut standing = 0;
        while self.now < end {
            let awake = |i: &usize| {
                let c = &self.clients[*i];
                c.present && c.asleep_until.is_none()
            };
            let (running, mut behind): (Vec<usize>, Vec<usize>) =
                (0..self.clients.len()).filter(awake).partition(|&i| self.clients[i].released);
            behind.sort_by_key(|&i| !self.clients[i].behind);
            let threads = |i: usize| (i, self.clients[i].threads);
            let mut running: Vec<(usize, u64)> = running.into_iter().map(threads).collect();
            let mut n: u64 = self.strangers + running.iter().map(|&(_, threads)| threads).sum::<u64>();
            for (i, threads) in behind.into_iter().map(threads).filter(|_| self.leftovers) {
                let left = threads.min(self.cpus.saturating_sub(n));
                n += left;
                running.push((i, left));
            }
            running.retain(|&(_, threads)| threads > 0);
            let timeout = self.policy.poll_timeout().map_or(end, |t| (t.0 + self.late).min(end));
            let mut next = timeout.max(self.now);
            for c in self.clients.iter().filter(|c| c.present) {
                next = c.asleep_until.map_or(next, |at| next.min(at));
            }
            // Nobody is through with a burst in between.
            let burst = running.iter().map(|&(i, _)| self.clients[i].left).min().unwrap_or(u64::MAX);
            if n > 0 && burst < u64::MAX {
                next = next.min(self.now + burst * n.div_ceil(self.cpus).max(1));
            }
            let span = next - self.now;
            // An answer may set a time that has passed already: what is due then is asked at the next call.
            standing = if span == 0 { standing + 1 } else { 0 };
            assert!(standing < 10, "a time that has passed already");
            for &(i, threads) in &running {
                let c = &mut self.clients[i];
                let span = span - c.begins.saturating_sub(self.now).min(span);
                let each = if n <= self.cpus { span } else { span * self.cpus / n };
                let got = (each * threads).min(c.left);
                c.used += got;
                c.left -= if c.on_off.is_some() { got } else { 0 };
            }
            self.now = next;
            self.sleep_and_wake();
            if self.charges == Charges::Split {
                self.charge_parts();
            }
            self.poll();
        }
    }

    fn sleep_and_wake(&mut self) {
        for c in &mut self.clients {
            if c.asleep_until.is_some_and(|at| at <= self.now) {
                c.asleep_until = None;
            }
            if let (Some((on, off)), 0) = (c.on_off, c.left) {
                (c.left, c.asleep_until) = (on, Some(self.now + off));
            }
        }
    }

    fn charge_parts(&mut self) {
        for i in 0..self.clients.len() {
            let c = &mut self.clients[i];
            let part = (c.used - c.told) / 3;
            if c.present && part > 0 {
                c.told += part;
                let client = ClientId(i as u32);
                self.event(Event::Charge { client, used: Nanos(part) }).unwrap();
            }
        }
    }

    pub fn used(&self) -> Vec<u64> {
        self.clients.iter().map(|c| c.used).collect()
    }

    pub fn released(&self) -> Vec<u32> {
        (0..self.clients.len() as u32).filter(|&i| self.clients[i as usize].released).collect()
    }

    pub fn cycles(&self) -> u64 {
        let ends = self.log.iter().filter(|(_, d)| matches!(d, Gate::CycleEnd { .. }));
        ends.count() as u64
    }

    /// Who was held and released, and cycles' ends, with their times; questions left out.
    pub fn moves(&self) -> Vec<(u64, Gate)> {
        let is_move = |d: &Gate| !matches!(d, Gate::Measure { .. } | Gate::Observe { .. });
        self.log.iter().copied().filter(|(_, d)| is_move(d)).collect()
    }
}
