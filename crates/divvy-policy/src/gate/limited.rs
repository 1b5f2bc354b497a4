//! Limits: no client gets more CPU time than it may have, whatever its share.
//!
//! **Problem.** Shares divide what there is: a client that is alone gets all of it. Sometimes it shall not, however idle
//! the CPUs are: heat, a quota that was paid for, a program that is to behave on a laptop as in a container of half a CPU.
//!
//! **Idea.** Around any gate. A client that has had its limit is held, and the gate within is told that it sleeps; so
//! what it leaves is divided as a sleeper's time is: by the shares of the others.
//!
//! **Terms.** Time is cut into *windows* of [`WINDOW`], 100 ms, counted from the driver's epoch, the same for all. A limit
//! of r CPUs is a *budget* of r * 100 ms in each. The *credit* is what is left of it; a debt where that is negative.
//!
//! **Algorithm.** Each charge is taken from the credit. With [`GRAIN`] or less left, the client is *at its limit*: it is
//! held, and the gate within hears of a [`Event::Block`]. When the next window begins a budget is added. Whoever was at its
//! limit keeps its debt or its grain, whoever was not loses what it has not used; with more than a grain of credit the
//! client is released again, if the gate within wants it released, and said to be awake. So that it is known when a client
//! gets there, it is measured when its threads could have used its credit up, and at the end of each window in which
//! it may run.
//!
//! **Properties.** (tests) `every_gate_keeps_limits`, `use_stays_within_the_limit`, `the_others_get_what_is_left_by_share`,
//! `no_limit_decides_the_same`, `a_debt_is_paid_from_the_next_windows`, `unused_budgets_are_lost`,
//! `sleepers_and_pauses_are_not_woken_by_a_window`.
//!
//! **Weak spots.** Whoever is held late has had too much by then; that is a debt, so it is an error of windows, not of
//! the long run. A client of more threads than the driver has told of is found out by its debt. A window costs a measurement
//! for each client with a limit that may run. To the gate within, a client at its limit sleeps: under `exact` one whose share
//! is little more than its limit forfeits some of it; `alps` and `rate` give a sleeper's time to others late, or not.
//! Cost: O(clients with limits) a window's end or measurement, else O(log n).
//!
//! Source: the terms are those of the kernel's bandwidth control (`cpu.max`, `cpu.cfs_quota_us`), which hands the budget to
//! CPUs in slices; we measure, and carry what was too much.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::{ClientId, CpuLimit, Event, EventError, Gate, Instant, Nanos, Policy};

/// A budget is for so long.
pub const WINDOW: Nanos = Nanos::from_millis(100);
/// What is left of a budget and is not worth another turn: 200 us. It is added to the next.
pub const GRAIN: Nanos = Nanos::from_micros(200);

/// What is known of each client.
#[derive(Clone, Copy, Debug)]
struct Client {
    /// By what the gate within has it run, if it does.
    wanted: Option<Gate>,
    /// What the driver said last of its state.
    blocked: bool,
    width: u32,
}

/// The account of a client with a limit.
#[derive(Clone, Copy, Debug)]
struct Account {
    limit: CpuLimit,
    /// What is left of the budget, ns.
    credit: i128,
    /// The window that it is of.
    window: u64,
    /// It has had its limit: held, and a sleeper to the gate within.
    at_limit: bool,
    /// It is to be measured then, or, at its limit, looked at.
    due: Option<Instant>,
    /// A measurement was asked for.
    asked: bool,
    /// When it was charged last, or began to run after that.
    since: Instant,
}

impl Account {
    fn budget(&self) -> i128 {
        budget(self.limit)
    }

    /// Adds the budgets of the windows that have begun by `now`.
    fn roll(&mut self, now: Instant) {
        let window = window_of(now);
        let Some(passed) = window.checked_sub(self.window).filter(|&passed| passed > 0) else { return };
        self.window = window;
        let budget = self.budget();
        let first = self.credit.saturating_add(budget);
        // Whoever was at its limit keeps a grain beside its budget, of the last window and no other.
        let keeps = self.at_limit && passed == 1;
        self.credit =
            if keeps { first } else { first.saturating_add(budget * i128::from(passed - 1)).min(budget) };
    }
}

/// CPU time of a window.
fn budget(limit: CpuLimit) -> i128 {
    i128::from(limit.ppm()) * i128::from(WINDOW.0) / 1_000_000
}

const fn window_of(now: Instant) -> u64 {
    now.0 / WINDOW.0
}

/// When the window of `now` ends.
fn end_of(now: Instant) -> Instant {
    Instant(window_of(now).saturating_add(1).saturating_mul(WINDOW.0))
}

/// A gate whose clients may have limits; see the module's text. Without any it is the gate within.
#[derive(Clone, Debug)]
pub struct Limited<G> {
    gate: G,
    cpus: u32,
    /// By id; `None` for one that has left.
    clients: Vec<Option<Client>>,
    accounts: BTreeMap<ClientId, Account>,
    /// Clients that have not left, and those of them that are at their limits.
    present: usize,
    resting: usize,
    /// The first `due` of all accounts.
    next: Option<Instant>,
    out: VecDeque<Gate>,
}

impl<G: Policy<Decision = Gate>> Limited<G> {
    /// `gate`, whose clients use at most `cpus` CPUs at once.
    pub fn new(gate: G, cpus: u32) -> Self {
        let (clients, accounts) = (Vec::new(), BTreeMap::new());
        let (cpus, out) = (cpus.max(1), VecDeque::new());
        Self { gate, cpus, clients, accounts, present: 0, resting: 0, next: None, out }
    }

    /// The gate within.
    pub fn gate(&self) -> &G {
        &self.gate
    }

    /// Gives a client a limit from now on, another one, or none. What it has had in this window under the limit before
    /// counts; what it had before that does not, so the driver charges it first.
    ///
    /// # Errors
    /// [`EventError::UnknownClient`]. Nothing changes on error.
    pub fn set_limit(
        &mut self,
        now: Instant,
        client: ClientId,
        limit: Option<CpuLimit>,
    ) -> Result<(), EventError> {
        self.client(client)?;
        match (limit, self.accounts.get_mut(&client)) {
            (Some(limit), Some(account)) => {
                account.roll(now);
                account.credit += budget(limit) - account.budget();
                account.limit = limit;
            }
            (Some(limit), None) => {
                // Of the window that there is now, a part of the budget for the rest of it.
                let rest = i128::from(end_of(now).since(now).0);
                let (credit, window) = (budget(limit) * rest / i128::from(WINDOW.0), window_of(now));
                let account =
                    Account { limit, credit, window, at_limit: false, due: None, asked: false, since: now };
                self.accounts.insert(client, account);
            }
            (None, Some(_)) => {
                if self.is_at_limit(client) {
                    self.let_go(now, client)?;
                }
                self.accounts.remove(&client);
            }
            (None, None) => {}
        }
        self.settle(now, client)
    }

    /// The limit of a client.
    #[must_use]
    pub fn limit(&self, client: ClientId) -> Option<CpuLimit> {
        self.accounts.get(&client).map(|account| account.limit)
    }

    /// Whether a client is held because it has had its limit.
    #[must_use]
    pub fn is_at_limit(&self, client: ClientId) -> bool {
        self.accounts.get(&client).is_some_and(|account| account.at_limit)
    }

    /// The clients with limits, by id.
    pub fn limited(&self) -> impl Iterator<Item = ClientId> + '_ {
        self.accounts.keys().copied()
    }

    fn client(&self, client: ClientId) -> Result<Client, EventError> {
        self.clients.get(client.index()).copied().flatten().ok_or(EventError::UnknownClient(client))
    }

    fn update(&mut self, client: ClientId, change: impl FnOnce(&mut Client)) {
        if let Some(Some(known)) = self.clients.get_mut(client.index()) {
            change(known);
        }
    }

    fn ask(&mut self, client: ClientId) {
        if let Some(account) = self.accounts.get_mut(&client)
            && !core::mem::replace(&mut account.asked, true)
        {
            self.out.push_back(Gate::Measure { client });
        }
    }

    /// Holds a client that has had its limit, or lets it go on that has credit again; then sets when to look next.
    fn settle(&mut self, now: Instant, client: ClientId) -> Result<(), EventError> {
        let Some(account) = self.accounts.get(&client) else {
            self.set_next();
            return Ok(());
        };
        let has_credit = account.credit > i128::from(GRAIN.0);
        match (account.at_limit, has_credit) {
            (false, false) => self.stop(now, client)?,
            (true, true) => self.let_go(now, client)?,
            _ => {}
        }
        self.set_due(now, client)
    }

    /// The client is at its limit.
    fn stop(&mut self, now: Instant, client: ClientId) -> Result<(), EventError> {
        if self.client(client)?.wanted.is_some() {
            self.out.push_back(Gate::Hold { client });
        }
        if let Some(account) = self.accounts.get_mut(&client) {
            account.at_limit = true;
            self.resting += 1;
        }
        self.gate.on_event(now, Event::Block { client })
    }

    /// The client goes on as the gate within wants it to. Whether one sleeps that did when it was held is looked at.
    fn let_go(&mut self, now: Instant, client: ClientId) -> Result<(), EventError> {
        if let Some(account) = self.accounts.get_mut(&client) {
            account.at_limit = false;
            self.resting -= 1;
        }
        let known = self.client(client)?;
        if let Some(decision) = known.wanted {
            self.out.push_back(decision);
        }
        if known.blocked {
            self.out.push_back(Gate::Observe { client });
            return Ok(());
        }
        self.gate.on_event(now, Event::Wake { client })
    }

    /// Sets when a client with a limit is to be looked at next.
    fn set_due(&mut self, now: Instant, client: ClientId) -> Result<(), EventError> {
        let known = self.client(client)?;
        let width = known.width.clamp(1, self.cpus);
        if let Some(account) = self.accounts.get_mut(&client) {
            // Whoever begins to run has been charged what it used before.
            if account.due.is_none() && !account.asked {
                account.roll(now);
                account.since = now;
            }
            let end = end_of(now);
            let due = if account.at_limit {
                Some(end)
            } else if known.wanted.is_none() || known.blocked || account.asked {
                None
            } else {
                let through = u64::try_from(account.credit / i128::from(width)).unwrap_or(u64::MAX);
                Some((account.since + Nanos(through)).max(now + GRAIN).min(end))
            };
            account.due = due.filter(|&due| due > now); // At the end of time there is no next window.
        }
        self.set_next();
        Ok(())
    }

    fn set_next(&mut self) {
        self.next = self.accounts.values().filter_map(|account| account.due).min();
    }

    /// Does what is due by `now`: measures whoever may have had its limit, and begins windows.
    fn look(&mut self, now: Instant) -> Result<(), EventError> {
        let is_due = |account: &Account| account.due.is_some_and(|due| due <= now);
        let due = self.accounts.iter().filter(|(_, account)| is_due(account)).map(|(&client, _)| client);
        for client in due.collect::<Vec<_>>() {
            if self.is_at_limit(client) {
                if let Some(account) = self.accounts.get_mut(&client) {
                    account.roll(now);
                }
                self.settle(now, client)?;
            } else {
                self.ask(client);
                self.set_due(now, client)?;
            }
        }
        Ok(())
    }

    /// Applies an event of the driver's to the gate within, unless a client at its limit is a sleeper to it.
    fn pass_on(&mut self, now: Instant, event: Event) -> Result<(), EventError> {
        let (Event::Block { client } | Event::Wake { client }) = event else {
            return self.gate.on_event(now, event);
        };
        if self.is_at_limit(client) {
            return Ok(());
        }
        self.gate.on_event(now, event)
    }

    /// What becomes of a decision of the gate within: the driver's to carry out, or nobody's.
    fn filter(&mut self, now: Instant, decision: Gate) -> Result<Option<Gate>, EventError> {
        match decision {
            Gate::Release { client, .. } | Gate::Behind { client } | Gate::Hold { client } => {
                let wanted = if let Gate::Hold { .. } = decision { None } else { Some(decision) };
                self.update(client, |known| known.wanted = wanted);
                if self.is_at_limit(client) {
                    return Ok(None);
                }
                if let Some(account) = self.accounts.get(&client) {
                    // Some gates hold first, and measure when the client is to run again.
                    if wanted.is_none() && now.since(account.since) > GRAIN {
                        self.ask(client);
                    }
                    self.set_due(now, client)?;
                }
            }
            Gate::Observe { client } if self.is_at_limit(client) => {
                self.gate.on_event(now, Event::Block { client })?;
                return Ok(None);
            }
            Gate::Observe { .. } | Gate::Measure { .. } | Gate::CycleEnd { .. } => {}
        }
        Ok(Some(decision))
    }

    /// Whether a decision of ours is still about somebody.
    fn still_holds(&self, decision: Gate) -> bool {
        decision.client().is_none_or(|client| self.client(client).is_ok())
    }
}

impl<G: Policy<Decision = Gate>> Policy for Limited<G> {
    type Decision = Gate;

    fn on_event(&mut self, now: Instant, event: Event) -> Result<(), EventError> {
        self.pass_on(now, event)?;
        match event {
            Event::Join { client, .. } => {
                if client.index() >= self.clients.len() {
                    self.clients.resize(client.index() + 1, None);
                }
                self.present += 1;
                self.clients[client.index()] = Some(Client { wanted: None, blocked: true, width: 1 });
            }
            Event::Leave { client } => {
                self.clients[client.index()] = None;
                self.present -= 1;
                if let Some(account) = self.accounts.remove(&client) {
                    self.resting -= usize::from(account.at_limit);
                    self.set_next();
                }
            }
            Event::Width { client, cpus } => self.update(client, |known| known.width = cpus),
            Event::Block { client } | Event::Wake { client } => {
                let blocked = matches!(event, Event::Block { .. });
                self.update(client, |known| known.blocked = blocked);
                if self.accounts.contains_key(&client) {
                    self.set_due(now, client)?;
                }
            }
            Event::Charge { client, used } => {
                if let Some(account) = self.accounts.get_mut(&client) {
                    // What was used up to the end of a window and is only told of now is of that window.
                    account.credit = account.credit.saturating_sub(i128::from(used.0));
                    account.asked = false;
                    account.since = now;
                    account.roll(now);
                    self.settle(now, client)?;
                }
            }
            Event::Reshare { .. } | Event::Free { .. } => {}
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
            if self.next.is_some_and(|next| next <= now) {
                let done = self.look(now);
                debug_assert_eq!(done, Ok(()), "the gate within knows every client");
                continue;
            }
            let decision = self.gate.poll_decision(now)?;
            let passed = self.filter(now, decision);
            debug_assert!(passed.is_ok(), "the gate within knows whom it decides about");
            if let Ok(Some(decision)) = passed {
                return Some(decision);
            }
        }
    }

    fn set_leftovers(&mut self, used: bool) {
        self.gate.set_leftovers(used);
    }

    fn set_punctual(&mut self, punctual: bool) {
        self.gate.set_punctual(punctual);
    }

    fn set_switch_cost(&mut self, cost: Nanos) {
        self.gate.set_switch_cost(cost);
    }

    fn balance(&self, client: ClientId) -> Option<i128> {
        self.gate.balance(client)
    }

    fn capped(&self) -> &[ClientId] {
        self.gate.capped()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        // Where all are held until a window begins, there is nothing to look after until then.
        if self.resting > 0 && self.resting == self.present {
            return self.next;
        }
        match (self.gate.poll_timeout(), self.next) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}
