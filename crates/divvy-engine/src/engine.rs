//! One loop over a policy and a host.

use std::collections::BTreeSet;

use divvy_policy::gate::Limited;
use divvy_policy::{ClientId, CpuLimit, Event, EventError, Gate, Instant, Nanos, Policy, Share};

use crate::host::{Host, HostError, News, Observed, SelfCost};
use crate::ledger::Ledger;
use crate::trace::{Recorder, TraceLine};

/// A client that left the run, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Who.
    pub client: ClientId,
    /// [`HostError::Gone`] for one that ended, else what kept us from going on with it.
    pub why: HostError,
}

/// Why the loop cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The host failed as a whole.
    #[error("{0}")]
    Host(HostError),
    /// The policy refused an event: the engine's own fault.
    #[error("the policy refused an event: {0}")]
    Policy(#[from] EventError),
}

#[derive(Clone, Copy, Debug, Default)]
struct Running {
    alive: bool,
    /// CPU time in the ledger.
    seen: Nanos,
    /// CPU time that the policy was told of. Less than `seen` where a cycle's end was audited.
    told: Nanos,
    paused: Option<Wish>,
    /// How it was released last.
    turn: Wish,
    /// Since when it is known to sleep, or to be stopped.
    blocked_at: Option<Instant>,
    /// For how long it was known to, up to then.
    blocked_for: Nanos,
}

/// What the policy would have a paused client do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Wish {
    #[default]
    Released,
    Behind,
    Held,
}

/// A gate, the host that enforces it, and the accounts. See the crate's text.
pub struct Engine<P, H> {
    policy: Limited<P>,
    host: H,
    ledger: Ledger,
    clients: Vec<Running>,
    alive: usize,
    /// Who may run: what a cycle's end has to look at.
    released: BTreeSet<ClientId>,
    wakeups: u64,
    /// The policy was told of something since it was last asked to decide.
    unserved: bool,
    /// Whether the policy was told that those that are held have what the others leave.
    leaves: bool,
    /// Who is never held, as the host was told.
    capped: Vec<ClientId>,
    /// Whether the host wakes in time, as the policy was told.
    punctual: bool,
    /// What it takes to hold and release clients of many threads, as the policy was told.
    switch_cost: Nanos,
    lost: Vec<Lost>,
    recorder: Option<Box<dyn Recorder>>,
}

impl<P: Policy<Decision = Gate>, H: Host> Engine<P, H> {
    /// With these accounts, of nobody yet.
    pub(crate) fn with_ledger(self, ledger: Ledger) -> Self {
        Self { ledger, ..self }
    }

    /// An engine without clients that divides `cpus` CPUs.
    pub fn new(policy: P, host: H, cpus: u32) -> Self {
        Self {
            policy: Limited::new(policy, cpus),
            host,
            ledger: Ledger::new(cpus),
            clients: Vec::new(),
            alive: 0,
            released: BTreeSet::new(),
            wakeups: 0,
            unserved: false,
            leaves: false,
            capped: Vec::new(),
            punctual: false,
            switch_cost: Nanos::ZERO,
            lost: Vec::new(),
            recorder: None,
        }
    }

    /// Records every event and decision from now on.
    pub fn record_to(&mut self, recorder: Box<dyn Recorder>) {
        self.recorder = Some(recorder);
    }

    /// Ends the recording and gives the recorder back, if there is one.
    pub fn stop_recording(&mut self) -> Option<Box<dyn Recorder>> {
        self.recorder.take()
    }

    /// The id that the next client will have: what the host must know it by before it joins.
    #[must_use]
    pub fn next_client(&self) -> ClientId {
        ClientId(self.clients.len() as u32)
    }

    /// The host.
    pub fn host(&self) -> &H {
        &self.host
    }

    /// The host, for what a caller must tell it.
    pub fn host_mut(&mut self) -> &mut H {
        &mut self.host
    }

    /// The accounts.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// See [`Policy::balance`].
    pub fn balance(&self, client: ClientId) -> Option<i128> {
        self.policy.balance(client)
    }

    /// How often the loop has woken.
    pub fn wakeups(&self) -> u64 {
        self.wakeups
    }

    /// For how long `client` was known to sleep, or to be stopped, since it joined: as far as anybody looked.
    pub fn blocked_for(&mut self, client: ClientId) -> Nanos {
        let now = self.host.now();
        let c = self.clients.get(client.index()).copied().unwrap_or_default();
        c.blocked_for + c.blocked_at.map_or(Nanos::ZERO, |at| now.since(at))
    }

    /// Enters in the books that a client sleeps, or does not.
    fn note_blocked(&mut self, client: ClientId, blocked: bool) {
        let now = self.host.now();
        let c = &mut self.clients[client.index()];
        match (c.blocked_at, blocked) {
            (None, true) => c.blocked_at = Some(now),
            (Some(at), false) => {
                c.blocked_for += now.since(at);
                c.blocked_at = None;
            }
            _ => {}
        }
        self.ledger.set_blocked(client.index(), blocked);
    }

    /// Clients that have not left.
    pub fn nr_clients(&self) -> usize {
        self.alive
    }

    /// What the scheduler itself has cost so far.
    pub fn self_cost(&mut self) -> SelfCost {
        self.host.self_cost()
    }

    /// Whether `client` may run at the moment.
    pub fn is_released(&self, client: ClientId) -> bool {
        self.released.contains(&client)
    }

    /// The clients that have left since this was last asked.
    pub fn take_lost(&mut self) -> Vec<Lost> {
        std::mem::take(&mut self.lost)
    }

    /// Takes in the client that the host knows by [`next_client`](Self::next_client), held as it is now.
    ///
    /// # Errors
    /// [`EngineError::Policy`] if the policy refuses it.
    pub fn join(&mut self, share: Share) -> Result<ClientId, EngineError> {
        let client = self.next_client();
        self.event(Event::Join { client, share })?;
        self.clients.push(Running { alive: true, ..Running::default() });
        self.alive += 1;
        self.ledger.join(share);
        self.event(Event::Wake { client })?;
        Ok(client)
    }

    /// Gives a client another share from now on.
    ///
    /// # Errors
    /// [`EngineError::Policy`] for a client that is not there.
    pub fn reshare(&mut self, client: ClientId, share: Share) -> Result<(), EngineError> {
        self.event(Event::Reshare { client, share })?;
        self.ledger.reshare(client.index(), share);
        Ok(())
    }

    /// Gives a client a limit from now on, another one, or none: the host keeps it, where it can, or else the policy, by
    /// holding the client until the next window begins ([`Limited`]).
    ///
    /// # Errors
    /// [`EngineError::Policy`] for a client that is not there, [`EngineError::Host`] where the host could not do what it can: the
    /// client has the limit that it had.
    pub fn set_limit(&mut self, client: ClientId, limit: Option<CpuLimit>) -> Result<(), EngineError> {
        self.check_present(client)?;
        let kept = match self.host.limit(client, limit) {
            Ok(kept) => kept,
            Err(HostError::Gone) => return self.lose(client, HostError::Gone),
            Err(why) => return Err(EngineError::Host(why)),
        };
        if self.is_released(client) {
            // What it used before is not of this limit.
            self.carry_out(Gate::Measure { client })?;
        }
        if !self.alive(client) {
            return Ok(());
        }
        self.ledger.set_limit(client.index(), limit);
        let by_policy = if kept { None } else { limit };
        let now = self.host.now();
        self.policy.set_limit(now, client, by_policy)?;
        self.unserved = true;
        self.record(|| TraceLine::limit(now, client, by_policy));
        self.note_limit(client);
        Ok(())
    }

    /// Whether `client` is held because it has had its limit in this window.
    pub fn is_at_limit(&self, client: ClientId) -> bool {
        self.policy.is_at_limit(client)
    }

    /// Enters in the books whether a client is at its limit.
    fn note_limit(&mut self, client: ClientId) {
        let at_limit = self.policy.is_at_limit(client);
        if self.ledger.clients()[client.index()].at_limit != at_limit {
            self.ledger.set_at_limit(client.index(), at_limit);
            let now = self.host.now();
            self.record(|| TraceLine::at_limit(now, client, at_limit));
        }
    }

    /// Enters in the books who is at its limit.
    fn note_limits(&mut self) {
        for client in self.policy.limited().collect::<Vec<_>>() {
            self.note_limit(client);
        }
    }

    /// Whether `client` is held by [`pause`](Self::pause).
    pub fn is_paused(&self, client: ClientId) -> bool {
        self.clients.get(client.index()).is_some_and(|c| c.alive && c.paused.is_some())
    }

    /// Holds a client until [`resume`](Self::resume), whatever the policy decides. The policy is told that it blocked, and
    /// gives its time to the others as it would for any sleeper (ALPS: once its cycle is over). No effect on one that is
    /// paused already.
    ///
    /// # Errors
    /// [`EngineError::Policy`] for a client that is not there; the client's own failure is none.
    pub fn pause(&mut self, client: ClientId) -> Result<(), EngineError> {
        self.check_present(client)?;
        self.ledger.set_paused(client.index(), true);
        self.hold_apart(client)
    }

    /// As [`pause`](Self::pause), of a client that goes on taking part in the division, as a sleeper does: for who keeps it within
    /// another bound than a share. It ends with [`resume`](Self::resume), too.
    ///
    /// # Errors
    /// As [`pause`](Self::pause).
    pub fn hold_apart(&mut self, client: ClientId) -> Result<(), EngineError> {
        self.check_present(client)?;
        if self.is_paused(client) {
            return Ok(());
        }
        let mut wish = Wish::Held;
        if self.is_released(client) {
            wish = self.clients[client.index()].turn;
            self.hold(client)?;
            self.carry_out(Gate::Measure { client })?;
        } else {
            let done = self.host.stand(client);
            self.or_lose(client, done)?;
        }
        if !self.alive(client) {
            return Ok(());
        }
        self.clients[client.index()].paused = Some(wish);
        self.note_blocked(client, true);
        Ok(self.event(Event::Block { client })?)
    }

    /// Ends a pause: the client runs again as the policy decides. No effect on one that is not paused.
    ///
    /// # Errors
    /// [`EngineError::Policy`] for a client that is not there; the client's own failure is none.
    pub fn resume(&mut self, client: ClientId) -> Result<(), EngineError> {
        self.check_present(client)?;
        let Some(wish) = self.clients[client.index()].paused.take() else { return Ok(()) };
        self.ledger.set_paused(client.index(), false);
        self.note_blocked(client, false);
        match wish {
            Wish::Released => self.carry_out(Gate::Release { client, cpu: None })?,
            Wish::Behind => self.carry_out(Gate::Behind { client })?,
            Wish::Held => {}
        }
        if self.alive(client) {
            self.event(Event::Wake { client })?;
        }
        Ok(())
    }

    /// Waits for the policy's next time, for news or for `until`, whichever is first, and does what is to be done.
    ///
    /// # Errors
    /// [`EngineError`]; one client's failure is none.
    pub fn turn(&mut self, until: Option<Instant>) -> Result<(), EngineError> {
        if self.unserved {
            self.serve()?; // Clients that joined since would wait for a time that nobody has set yet.
        }
        let at = match (self.policy.poll_timeout(), until) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.host.wait(at).map_err(EngineError::Host)?;
        self.wakeups += 1;
        self.serve()
    }

    /// Takes in the news and carries out every decision that is ready.
    ///
    /// # Errors
    /// [`EngineError`]; one client's failure is none.
    pub fn serve(&mut self) -> Result<(), EngineError> {
        while let Some(news) = self.host.next_news() {
            self.on_news(news)?;
        }
        let leaves = self.host.leaves();
        if leaves != std::mem::replace(&mut self.leaves, leaves) {
            self.policy.set_leftovers(leaves);
            let now = self.host.now();
            self.record(|| TraceLine::leftovers(now, leaves));
        }
        let punctual = self.host.is_punctual();
        if punctual != std::mem::replace(&mut self.punctual, punctual) {
            self.policy.set_punctual(punctual);
            let now = self.host.now();
            self.record(|| TraceLine::punctual(now, punctual));
        }
        let cost = self.host.switch_cost();
        if cost != std::mem::replace(&mut self.switch_cost, cost) {
            self.policy.set_switch_cost(cost);
            let now = self.host.now();
            self.record(|| TraceLine::switch_cost(now, cost));
        }
        loop {
            let now = self.host.now();
            let decision = self.policy.poll_decision(now);
            self.record(|| TraceLine::decision(now, decision));
            match decision {
                Some(decision) => self.carry_out(decision)?,
                None => {
                    self.note_limits();
                    if self.policy.capped() != self.capped {
                        self.capped = self.policy.capped().to_vec();
                        self.host.note_capped(&self.capped);
                    }
                    self.unserved = false;
                    return Ok(());
                }
            }
        }
    }

    /// Releases every client, so that all may run unscheduled. What cannot be released is gone already.
    pub fn release_all(&mut self) {
        for client in self.held() {
            if self.host.release(client, None).is_ok() {
                self.released.insert(client);
            }
        }
    }

    /// Brings the accounts of all clients up to date, without telling the policy: for a report.
    pub fn audit(&mut self) {
        for i in 0..self.clients.len() {
            if self.clients[i].alive {
                self.audit_client(ClientId(i as u32));
            }
        }
    }

    /// The clients that may run at the moment, by id.
    pub fn released(&self) -> Vec<ClientId> {
        self.released.iter().copied().collect()
    }

    /// Brings a client's account up to date with what it has used in all, as [`audit`](Self::audit) does, where the
    /// caller has looked.
    pub fn account(&mut self, client: ClientId, total: Nanos) {
        if !self.alive(client) {
            return;
        }
        let used = self.enter(client.index(), total);
        if self.recorder.is_some() && used > Nanos::ZERO {
            let now = self.host.now();
            self.record(|| TraceLine::audit(now, client, used));
        }
    }

    /// Enters what a client has used by now. A recording keeps it, for what it adds up to; the policy hears of it with
    /// the next charge.
    fn audit_client(&mut self, client: ClientId) {
        if let Ok(total) = self.host.measure(client) {
            self.account(client, total);
        }
    }

    fn record(&mut self, line: impl FnOnce() -> TraceLine) {
        if let Some(recorder) = &mut self.recorder {
            recorder.record(&line());
        }
    }

    fn event(&mut self, event: Event) -> Result<(), EventError> {
        let now = self.host.now();
        self.policy.on_event(now, event)?;
        self.unserved = true;
        self.record(|| TraceLine::event(now, event));
        Ok(())
    }

    fn on_news(&mut self, news: News) -> Result<(), EngineError> {
        match news {
            News::Gone(client) => self.lose(client, HostError::Gone),
            News::Failed(client, why) => self.or_lose(client, Err::<(), _>(why)).map(|_| ()),
            News::Width(client, cpus) if self.alive(client) => self.widen(client, cpus),
            News::Resumed(client) if self.alive(client) && !self.is_released(client) => {
                self.hold(client)?;
                self.carry_out(Gate::Measure { client })
            }
            News::Stopped(client) if self.alive(client) && self.is_released(client) => {
                self.note_blocked(client, true);
                Ok(self.event(Event::Block { client })?)
            }
            News::Slept(client) if self.alive(client) && self.is_released(client) => {
                self.on_state(client, true)
            }
            News::Woke(client) if self.alive(client) && self.is_released(client) => {
                self.on_state(client, false)
            }
            News::AllResumed => {
                for client in self.held() {
                    self.hold(client)?;
                }
                Ok(())
            }
            News::Width(..) | News::Resumed(_) | News::Stopped(_) | News::Slept(_) | News::Woke(_) => Ok(()),
        }
    }

    /// A client fell asleep or woke: what it has used by then is charged first.
    fn on_state(&mut self, client: ClientId, blocked: bool) -> Result<(), EngineError> {
        if self.is_paused(client) {
            return Ok(());
        }
        self.carry_out(Gate::Measure { client })?;
        if !self.alive(client) {
            return Ok(());
        }
        self.note_blocked(client, blocked);
        Ok(self.event(if blocked { Event::Block { client } } else { Event::Wake { client } })?)
    }

    fn widen(&mut self, client: ClientId, cpus: u32) -> Result<(), EngineError> {
        let cpus = cpus.max(1);
        self.ledger.widen(client.index(), cpus);
        Ok(self.event(Event::Width { client, cpus })?)
    }

    fn held(&self) -> Vec<ClientId> {
        let all = (0..self.clients.len() as u32).map(ClientId);
        all.filter(|&c| self.alive(c) && !self.is_released(c)).collect()
    }

    fn alive(&self, client: ClientId) -> bool {
        self.clients.get(client.index()).is_some_and(|c| c.alive)
    }

    fn check_present(&self, client: ClientId) -> Result<(), EventError> {
        if self.alive(client) { Ok(()) } else { Err(EventError::UnknownClient(client)) }
    }

    fn hold(&mut self, client: ClientId) -> Result<(), EngineError> {
        if self.alive(client) {
            self.released.remove(&client);
            let done = self.host.hold(client);
            self.or_lose(client, done)?;
        }
        Ok(())
    }

    /// Keeps what the policy wishes for a client that is paused; says whether it is.
    fn wish(&mut self, client: ClientId, wish: Wish) -> bool {
        let paused = self.clients.get_mut(client.index()).and_then(|c| c.paused.as_mut());
        paused.is_some_and(|kept| {
            *kept = wish;
            true
        })
    }

    fn carry_out(&mut self, decision: Gate) -> Result<(), EngineError> {
        match decision {
            Gate::Release { client, cpu } => {
                if !self.alive(client) || self.wish(client, Wish::Released) {
                    return Ok(());
                }
                self.released.insert(client);
                self.clients[client.index()].turn = Wish::Released;
                let done = self.host.release(client, cpu);
                self.or_lose(client, done)?;
            }
            Gate::Behind { client } => {
                if self.alive(client) && !self.wish(client, Wish::Behind) {
                    self.released.insert(client);
                    self.clients[client.index()].turn = Wish::Behind;
                    let done = self.host.run_behind(client);
                    self.or_lose(client, done)?;
                }
            }
            Gate::Hold { client } => {
                if self.alive(client) && !self.wish(client, Wish::Held) {
                    self.released.remove(&client);
                    let done = self.host.give_way(client);
                    self.or_lose(client, done)?;
                }
            }
            Gate::Measure { client } => {
                if !self.alive(client) {
                    return Ok(());
                }
                let total = self.host.measure(client);
                if let Some(total) = self.or_lose(client, total)? {
                    self.enter(client.index(), total);
                    self.charge(client)?;
                }
            }
            Gate::Observe { client } => {
                if !self.alive(client) {
                    return Ok(());
                }
                if self.is_paused(client) {
                    return Ok(self.event(Event::Block { client })?);
                }
                let seen = self.host.observe(client);
                if let Some(seen) = self.or_lose(client, seen)? {
                    let blocked = seen == Observed::Blocked;
                    if let Some(cpus) = self.host.take_width(client) {
                        self.widen(client, cpus)?;
                    }
                    self.note_blocked(client, blocked);
                    self.event(if blocked { Event::Block { client } } else { Event::Wake { client } })?;
                }
            }
            Gate::CycleEnd { .. } => {
                // The cycle's error is of what was really used by now, whatever the policy has looked at.
                for client in self.released.iter().copied().collect::<Vec<_>>() {
                    if !self.ledger.clients()[client.index()].blocked {
                        self.audit_client(client);
                    }
                }
                self.ledger.end_cycle();
            }
        }
        Ok(())
    }

    /// Enters a client's total into the ledger, and returns what it has used since. A total that went back is no credit:
    /// a clock's lag is made up later.
    fn enter(&mut self, i: usize, total: Nanos) -> Nanos {
        let c = &mut self.clients[i];
        let used = total.saturating_sub(c.seen);
        c.seen = c.seen.max(total);
        self.ledger.charge(i, used);
        used
    }

    /// Tells the policy what it has not been told yet.
    fn charge(&mut self, client: ClientId) -> Result<(), EngineError> {
        let c = &mut self.clients[client.index()];
        let used = c.seen.saturating_sub(c.told);
        c.told = c.seen;
        self.event(Event::Charge { client, used })?;
        self.note_limit(client);
        Ok(())
    }

    fn or_lose<T>(&mut self, client: ClientId, done: Result<T, HostError>) -> Result<Option<T>, EngineError> {
        match done {
            Ok(value) => Ok(Some(value)),
            Err(HostError::Broken(what)) => Err(EngineError::Host(HostError::Broken(what))),
            Err(why) => self.lose(client, why).map(|()| None),
        }
    }

    /// A client is out of the run; what it used up to its end is charged first. One that has not ended goes on by
    /// itself: it is released, as far as that can be done, whatever was asked of it.
    fn lose(&mut self, client: ClientId, why: HostError) -> Result<(), EngineError> {
        if !self.alive(client) {
            return Ok(());
        }
        let total = self.host.measure(client);
        if why != HostError::Gone {
            let _ = self.host.release(client, None);
        }
        if let Ok(total) = total {
            self.enter(client.index(), total);
            self.charge(client)?;
        }
        self.clients[client.index()].alive = false;
        self.released.remove(&client);
        self.alive -= 1;
        self.event(Event::Leave { client })?;
        self.ledger.leave(client.index());
        self.lost.push(Lost { client, why });
        Ok(())
    }
}
