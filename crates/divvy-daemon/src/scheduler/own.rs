//! What a user's own scheduler has in the place of a market: groups, and who is idle in them.

use divvy_linux::clock;
use divvy_policy::{ClientId, Instant, Share};

use super::groups::{self, Asked, Groups, IDLE_AFTER, Path};
use super::presence::Presences;
use super::{Scheduler, parse_share};
use crate::message::{Answer, Refusal};
use divvy_api::types::{Change, ErrorCode, Group, GroupChange, NewClient};

/// Groups, and who competes in them.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) groups: Groups,
    presences: Presences,
}

impl Own {
    pub(super) fn new() -> Self {
        Self { groups: Groups::default(), presences: Presences::new(IDLE_AFTER) }
    }

    /// When somebody becomes idle if nothing happens first; nobody need know where there is no group.
    pub(super) fn next(&self) -> Option<Instant> {
        if self.groups.is_empty() { None } else { self.presences.next() }
    }
}

/// The group that a new client is to be in, if it is to be in one.
pub(super) fn asked(new: &NewClient) -> Result<Option<Asked>, Refusal> {
    match (&new.group, new.group_share) {
        (Some(group), share) => {
            Ok(Some(Asked { path: groups::parse(group)?, share: share.map(parse_share).transpose()? }))
        }
        (None, None) => Ok(None),
        (None, Some(_)) => {
            let text = "`group_share` is given and no `group`";
            Err(Refusal::new(ErrorCode::BadRequest, text, "name the group, or leave `group_share` out"))
        }
    }
}

impl Scheduler {
    /// Between two turns: notes who is idle by now, and gives the others what that leaves in their groups.
    pub(super) fn keep_groups(&mut self) {
        let Some(own) = &mut self.own else { return };
        let now = clock::now();
        let mut changed = false;
        for (client, asleep) in self.log.take_seen() {
            if own.presences.see(client, asleep, now) {
                own.groups.set_idle(client, false);
                changed = true;
            }
        }
        while let Some(client) = own.presences.take_idle(now) {
            own.groups.set_idle(client, true);
            changed = true;
        }
        if changed {
            self.apply_groups();
        }
    }

    /// A client has come, of which the gate knows already.
    pub(super) fn enter_group(&mut self, client: ClientId, share: Share, group: Option<&Asked>) {
        let Some(own) = &mut self.own else { return };
        own.presences.join(client, clock::now());
        let made = own.groups.join(client, share, group);
        self.share_by_file(&made);
    }

    /// A client goes to this group, or to none, and stays what it is.
    pub(super) fn migrate(&mut self, client: ClientId, group: Option<&Asked>) {
        let service = self.engine.ledger().clients()[client.index()].service;
        let Some(own) = &mut self.own else { return };
        let made = own.groups.migrate(client, service, group);
        self.rebase();
        self.share_by_file(&made);
    }

    /// Groups that the user's file gives shares to have them from their first clients on.
    fn share_by_file(&mut self, made: &[Path]) {
        if let Some(own) = &mut self.own {
            for group in made {
                if let Some(share) = self.rules.share_of(group) {
                    own.groups.set_group_share(group, share);
                }
            }
        }
        self.apply_groups();
    }

    /// A client has left.
    pub(super) fn leave_group(&mut self, client: ClientId) {
        let service = self.engine.ledger().clients()[client.index()].service;
        let Some(own) = &mut self.own else { return };
        own.presences.leave(client);
        own.groups.leave(client, service);
        self.apply_groups();
    }

    /// Tells the gate the shares that groups and reservations come to, where they are others.
    pub(super) fn apply_groups(&mut self) {
        let Some(own) = &self.own else { return };
        let shares = own.groups.shares();
        self.divide_disks_anew(&shares);
        let ledger = self.engine.ledger().clients();
        let shares = self.with_reserves(shares);
        let others = shares.into_iter().filter_map(|(client, share)| {
            let known = &ledger[client.index()];
            let share = Share::new(share).ok()?;
            (known.present && known.share != share).then_some((client, share))
        });
        let changes = others.collect();
        self.reshare_all(changes);
    }

    /// Tells the gate new shares, all at once.
    pub(super) fn reshare_all(&mut self, changes: Vec<(ClientId, Share)>) {
        if changes.is_empty() {
            return;
        }
        self.rebase_if_affordable();
        if self.follows && self.system.is_none() {
            self.weights.owed.extend(changes.iter().map(|&(client, _)| client));
        }
        for (client, share) in changes {
            if let Err(e) = self.engine.reshare(client, share) {
                crate::say(format_args!("client {}: a share of {share} was not taken: {e}", client.0));
            }
        }
    }

    /// Whether a client counts as one that competes.
    pub(super) fn competes(&self, client: ClientId) -> bool {
        match (&self.system, &self.own) {
            (Some(system), _) => system.competes(client),
            (None, Some(own)) => own.groups.competes(client),
            (None, None) => true,
        }
    }

    /// The groups of a user's own divvyd, by path.
    fn group(&self, key: &str) -> Result<Path, Refusal> {
        let own = self.own.as_ref().ok_or_else(|| {
            let text = "the system's divvyd has currencies in the place of groups";
            Refusal::new(
                ErrorCode::NoSuchClient,
                text,
                "see `divvy currency --help`, or ask your own (--own)",
            )
        })?;
        own.groups.find(key)
    }

    /// Changes a group: its share among what is beside it, and whether all its clients are paused.
    pub(super) fn change_group(&mut self, key: &str, change: GroupChange) -> Result<Answer, Refusal> {
        let path = self.group(key)?;
        if change == GroupChange::default() {
            let fix = "give `share` or `paused`";
            return Err(Refusal::new(ErrorCode::BadRequest, "nothing is to be changed", fix));
        }
        let share = change.share.map(parse_share).transpose()?;
        if let (Some(share), Some(own)) = (share, &mut self.own) {
            own.groups.set_group_share(&path, share);
            self.apply_groups();
        }
        if let Some(paused) = change.paused {
            for client in self.within(&path) {
                self.change(client, Change { paused: Some(paused), ..Change::default() })?;
            }
        }
        self.group_answer(&path)
    }

    /// Lets all clients of a group go, and so the group.
    pub(super) fn detach_group(&mut self, key: &str) -> Result<Answer, Refusal> {
        let path = self.group(key)?;
        let last = self.group_answer(&path)?;
        for client in self.within(&path) {
            self.detach(client)?;
        }
        Ok(last)
    }

    fn within(&self, path: &str) -> Vec<ClientId> {
        self.own.iter().flat_map(|own| own.groups.within(path)).collect()
    }

    fn group_answer(&mut self, path: &str) -> Result<Answer, Refusal> {
        self.audit();
        let found = self.group_rows().into_iter().find(|group| group.name == *path);
        let group = found.ok_or_else(|| super::internal_text("a group without clients"))?;
        Ok(Answer::Group(Box::new(group)))
    }

    /// Every group as the API shows it: sums over the clients in and below it.
    pub(super) fn group_rows(&self) -> Vec<Group> {
        let Some(own) = self.own.as_ref().filter(|own| !own.groups.is_empty()) else { return Vec::new() };
        let standings = self.standings();
        let rows = own.groups.iter().map(|(path, kept)| {
            let mut group = Group {
                name: path.to_string(),
                share: kept.share,
                requested_fraction: 0.0,
                effective_fraction: 0.0,
                achieved_fraction: 0.0,
                relative_error: 0.0,
                service_ns: kept.past.0,
                clients: 0,
                paused: true,
            };
            for client in own.groups.within(path).filter_map(|client| self.row(client, &standings)) {
                group.requested_fraction += client.requested_fraction;
                group.effective_fraction += client.effective_fraction;
                group.achieved_fraction += client.achieved_fraction;
                let before = own.groups.before(ClientId(client.id)).0;
                group.service_ns += client.service_ns.saturating_sub(before);
                group.clients += 1;
                group.paused &= client.state == divvy_api::types::ClientState::Paused;
            }
            if group.achieved_fraction > 0.0 && group.effective_fraction > 0.0 {
                group.relative_error = group.achieved_fraction / group.effective_fraction - 1.0;
            }
            group
        });
        rows.collect()
    }
}
