//! Clients as the API shows them: accounts, states, members.

use std::sync::Arc;

use divvy_engine::{ClientLedger, Standing};
use divvy_linux::{State, clock};
use divvy_policy::{ClientId, CpuLimit, Instant, Nanos};

use super::book::Entry;
use super::view::{Row, View};
use super::{Scheduler, internal_text};
use crate::message::Refusal;
use divvy_api::types::{Client, ClientState, Member, MemberState};

/// All clocks are read anew for a report at most this often.
const AUDIT_INTERVAL: Nanos = Nanos::from_millis(20);

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
        self.sample_uses();
        let standings = self.standings();
        let host = self.engine.host();
        let row = |(id, entry): (ClientId, &Arc<Entry>)| {
            let members = host.known_members(id, members);
            Some(Row { client: self.row(id, &standings)?, entry: Arc::clone(entry), members })
        };
        let rows = self.book.entries().filter_map(row).collect();
        let (window_ns, left) = (self.window.length(self.engine.ledger(), at).0, self.book.left());
        let of_users = self.system.is_some();
        let groups = self.group_rows();
        let status = self.status();
        self.publisher.publish(View { at, status, window_ns, rows, groups, left, members, of_users });
    }

    /// One of them, as of now.
    pub(super) fn client(&mut self, client: ClientId, members: usize) -> Result<Client, Refusal> {
        self.audit();
        let standings = self.standings();
        let members = self.members(client, members);
        let row = self.row(client, &standings).ok_or_else(|| internal_text("a client without an entry"))?;
        Ok(Client { members, ..row })
    }

    pub(super) fn audit(&mut self) {
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
        let clients = self.book.present().map(|(id, _)| id);
        self.window.begin(self.engine.ledger(), clients, self.audited);
    }

    /// The same, unless that has taken too much of the time already: where many clients' values change without end, what is
    /// achieved is measured from an earlier moment.
    pub(super) fn rebase_if_affordable(&mut self) {
        let now = clock::now();
        if now < self.rebasing.next() {
            return;
        }
        let begun = clock::own_thread_cpu();
        self.rebase();
        self.rebasing.pay(now, clock::own_thread_cpu().saturating_sub(begun), self.book.len());
    }

    /// How each client stands, by id; what is achieved is of the time since the last change.
    pub(super) fn standings(&self) -> Vec<Standing> {
        let ledger = self.engine.ledger();
        // Whoever is idle in a market has no rights just now: the others' are fractions of the rest.
        let counts = |i: usize, c: &ClientLedger| takes_part(c) && self.competes(ClientId(i as u32));
        let mut since = vec![Nanos::ZERO; ledger.clients().len()];
        self.book.present().for_each(|(id, _)| since[id.index()] = self.window.service(ledger, id));
        ledger.standings(counts, |i, _| since[i])
    }

    pub(super) fn row(&self, client: ClientId, standings: &[Standing]) -> Option<Client> {
        let entry = self.book.entry(client)?;
        let account = &self.engine.ledger().clients()[client.index()];
        let standing = standings[client.index()];
        // What was asked for is a ticket's amount where the engine's shares are the market's values, and a share within a
        // group where there are groups.
        let groups = self.own.as_ref().map(|own| &own.groups);
        let within = groups.and_then(|groups| groups.share(client)).unwrap_or(account.share.get());
        let share = entry.owner.as_ref().map_or(within, |owner| owner.amount);
        let host = self.engine.host();
        let (nr_members, not_permitted) = (host.nr_members(client), host.nr_not_permitted(client));
        Some(Client {
            id: client.0,
            name: entry.shown(),
            selector: entry.selector.clone(),
            user: entry.owner.as_ref().map(|owner| owner.user.clone()),
            currency: entry.owner.as_ref().map(|owner| owner.currency.to_string()),
            group: groups.and_then(|groups| groups.of(client)).map(ToString::to_string),
            share,
            limit_ppm: account.limit.map(CpuLimit::ppm),
            bounds: entry.bounds,
            effective_share: standing.effective_share * share as f64 / account.share.get() as f64,
            requested_fraction: standing.requested_fraction,
            effective_fraction: standing.effective_fraction,
            achieved_fraction: standing.achieved_fraction,
            relative_error: standing.relative_error,
            service_ns: account.service.0,
            state: self.state(client, nr_members > not_permitted),
            width: account.width,
            nr_members,
            not_permitted,
            members: Vec::new(),
            exit: host.exit(client),
            uses: self.uses_of(client),
            pressure: Vec::new(),
            why: None,
        })
    }

    /// What a client does: one that is held for what it had of disks is at its limit, and one of which nobody `can_be_held` is not.
    fn state(&self, client: ClientId, can_be_held: bool) -> ClientState {
        match self.engine.state(client) {
            ClientState::Asleep | ClientState::Held if self.disk_gate.holds(client) => ClientState::Limited,
            ClientState::Asleep if self.disk_shares.holds(client) => ClientState::Held,
            ClientState::Held if !can_be_held => self.state_of_unheld(client),
            state => state,
        }
    }

    /// What a client does that is not to run now, and of which there is nobody who could be held.
    fn state_of_unheld(&self, client: ClientId) -> ClientState {
        let all = self.engine.host().members_up_to(client, usize::MAX);
        let runs = all.iter().any(|member| member_state(member.state) == MemberState::Running);
        if runs { ClientState::Running } else { ClientState::Asleep }
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
