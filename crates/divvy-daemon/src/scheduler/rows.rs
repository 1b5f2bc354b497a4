//! Clients as the API shows them: accounts, states, members.

use std::sync::Arc;

use divvy_engine::ClientLedger;
use divvy_linux::{Exit as HostExit, State, clock};
use divvy_policy::{ClientId, CpuLimit, Instant, Nanos};

use super::book::Entry;
use super::view::{Row, View};
use super::{Scheduler, internal_text};
use crate::message::Refusal;
use divvy_api::types::{Client, ClientState, Exit, Member, MemberState};

/// All clocks are read anew for a report at most this often.
const AUDIT_INTERVAL: Nanos = Nanos::from_millis(20);

/// What all clients' numbers are fractions of.
struct Totals {
    /// Effective shares as fractions, by id.
    effective: Vec<f64>,
    /// Effective share per fraction.
    rate: f64,
    /// Shares of all that take part.
    shares: u64,
    /// CPU time that all have received since the last change.
    service: u64,
}

fn takes_part(c: &ClientLedger) -> bool {
    c.present && !c.paused
}

impl Scheduler {
    /// Shows how everybody stands, where somebody wants to know. Cost: a look at the clocks of who may run just now, and
    /// a row for each client.
    pub(super) fn publish_if_wanted(&mut self) {
        let Some(members) = self.publisher.wanted() else { return };
        let at = clock::now();
        self.audit();
        let totals = self.totals();
        let host = self.engine.host();
        let row = |(id, entry): (ClientId, &Arc<Entry>)| {
            let members = host.known_members(id, members);
            Some(Row { client: self.row(id, &totals)?, entry: Arc::clone(entry), members })
        };
        let rows = self.book.entries().filter_map(row).collect();
        let (window_ns, left) = (at.since(self.base_at).0, self.book.left());
        let of_users = self.system.is_some();
        let status = self.status();
        self.publisher.publish(View { at, status, window_ns, rows, left, members, of_users });
    }

    /// One of them, as of now.
    pub(super) fn client(&mut self, client: ClientId, members: usize) -> Result<Client, Refusal> {
        self.audit();
        let totals = self.totals();
        let members = self.members(client, members);
        let row = self.row(client, &totals).ok_or_else(|| internal_text("a client without an entry"))?;
        Ok(Client { members, ..row })
    }

    fn audit(&mut self) {
        let now = clock::now();
        if now.since(self.audited) >= AUDIT_INTERVAL {
            self.audit_now(now);
        }
    }

    /// Reads the clocks of those who may run: what the others have used was entered when they were held. Nobody's list of
    /// processes is looked through for it, which can take long, and which the schedule has done in its own time.
    fn audit_now(&mut self, now: Instant) {
        self.audited = now;
        for client in self.engine.released() {
            if let Some(total) = self.engine.host_mut().peek(client) {
                self.engine.account(client, total);
            }
        }
    }

    /// Who takes part, or a share, is about to change or has changed: what is achieved is measured from here.
    pub(super) fn rebase(&mut self) {
        self.audit_now(clock::now());
        let ledger = self.engine.ledger().clients();
        self.base = self.book.present().map(|(id, _)| (id, ledger[id.index()].service)).collect();
        self.base_at = self.audited;
    }

    /// CPU time that a client has received since the last change.
    fn since_base(&self, client: ClientId) -> u64 {
        let service = self.engine.ledger().clients()[client.index()].service;
        service.saturating_sub(self.base.get(&client).copied().unwrap_or(Nanos::ZERO)).0
    }

    fn totals(&self) -> Totals {
        let ledger = self.engine.ledger();
        // Whoever is idle in a market has no rights just now: the others' are fractions of the rest.
        let counts = |i: usize, c: &ClientLedger| {
            takes_part(c) && self.system.as_ref().is_none_or(|s| s.competes(ClientId(i as u32)))
        };
        let effective = ledger.effective_of(counts);
        let all = || ledger.clients().iter().enumerate().zip(&effective);
        let part = || all().filter(|((i, c), _)| counts(*i, c)).map(|((_, c), f)| (c, f));
        Totals {
            // The largest fraction for each share is what a client gets that is not capped.
            rate: part().map(|(c, f)| f / c.share.get() as f64).fold(0.0, f64::max),
            shares: part().map(|(c, _)| c.share.get()).sum(),
            service: self.book.present().map(|(id, _)| self.since_base(id)).sum(),
            effective,
        }
    }

    fn row(&self, client: ClientId, totals: &Totals) -> Option<Client> {
        let entry = self.book.entry(client)?;
        let account = &self.engine.ledger().clients()[client.index()];
        let effective = totals.effective[client.index()];
        let part = |of: f64, all: f64| if all > 0.0 { of / all } else { 0.0 };
        let achieved = part(self.since_base(client) as f64, totals.service as f64);
        let competes = self.system.as_ref().is_none_or(|system| system.competes(client));
        let requested = if takes_part(account) && competes { account.share.get() as f64 } else { 0.0 };
        // What was asked for is a ticket's amount, where the engine's shares are the market's values.
        let share = entry.owner.as_ref().map_or(account.share.get(), |owner| owner.amount);
        let judged = totals.service > 0 && effective > 0.0;
        let host = self.engine.host();
        let (nr_members, not_permitted) = (host.nr_members(client), host.nr_not_permitted(client));
        Some(Client {
            id: client.0,
            name: entry.shown(),
            selector: entry.selector.clone(),
            user: entry.owner.as_ref().map(|owner| owner.user.clone()),
            currency: entry.owner.as_ref().map(|owner| owner.currency.to_string()),
            share,
            limit_ppm: account.limit.map(CpuLimit::ppm),
            effective_share: part(effective, totals.rate) * share as f64 / account.share.get() as f64,
            requested_fraction: part(requested, totals.shares as f64),
            effective_fraction: effective,
            achieved_fraction: achieved,
            relative_error: if judged { achieved / effective - 1.0 } else { 0.0 },
            service_ns: account.service.0,
            state: self.state(client, account),
            width: account.width,
            nr_members,
            not_permitted,
            members: Vec::new(),
            exit: host.exit(client).map(|exit| match exit {
                HostExit::Code(code) => Exit::Code(code),
                HostExit::Signal(signal) => Exit::Signal(signal),
            }),
            why: None,
        })
    }

    fn state(&self, client: ClientId, account: &ClientLedger) -> ClientState {
        if !account.present {
            ClientState::Left
        } else if account.paused {
            ClientState::Paused
        } else if self.engine.host().is_stopped_elsewhere(client) {
            ClientState::Stopped
        } else if account.blocked {
            ClientState::Asleep
        } else if account.at_limit {
            ClientState::Limited
        } else if self.engine.is_released(client) {
            ClientState::Running
        } else {
            ClientState::Held
        }
    }

    fn members(&self, client: ClientId, shown: usize) -> Vec<Member> {
        let first = self.engine.host().members_up_to(client, shown);
        let members = first.into_iter().map(|m| Member {
            pid: m.pid.as_raw_nonzero().get(),
            name: m.name,
            state: member_state(m.state),
            permitted: m.permitted,
        });
        members.collect()
    }
}

pub(super) fn member_state(state: State) -> MemberState {
    if state.is_ended() {
        MemberState::Ended
    } else if state.is_suspended() {
        MemberState::Suspended
    } else if state.is_asleep() {
        MemberState::Asleep
    } else {
        MemberState::Running
    }
}
