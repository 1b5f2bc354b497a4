//! A scheduler whose clients are many users', and whose shares a market says.
//!
//! Values come from the market's thread into a slot, in which what changed lies until it is taken, once for each client; it is
//! taken between two turns, and told to the engine as one batch. What the scheduler has to say, who competes and who has
//! left, goes out without waiting.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use divvy_engine::portion::Portions;
use divvy_linux::cgroup::Due;
use divvy_linux::{Selector, clock};
use divvy_market::{CurrencyId, Presence};
use divvy_policy::{ClientId, Instant, Nanos, Share};

use super::Scheduler;
use super::add::ancestry;
use super::presence::Presences;
use super::worth::{Values, Worth};
use crate::market::message::Who;
use crate::message::Refusal;
use divvy_api::types::ErrorCode;

/// A share that is off by less than one in so many is left as it is.
const SAME: u64 = 4096;

/// Users and groups that may do everything, by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Admins(Arc<RwLock<(Vec<u32>, Vec<u32>)>>);

impl Admins {
    /// From now on these, and user 0.
    pub(crate) fn set(&self, users: Vec<u32>, groups: Vec<u32>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = (users, groups);
    }

    /// Whether `who` is one of them.
    pub(crate) fn include(&self, who: &Who) -> bool {
        let admins = self.0.read().unwrap_or_else(PoisonError::into_inner);
        who.uid == 0 || admins.0.contains(&who.uid) || who.gids.iter().any(|gid| admins.1.contains(gid))
    }
}

/// What a market's scheduler is made with.
#[derive(Clone)]
pub(crate) struct Terms {
    pub(crate) portions: Portions,
    pub(crate) values: Values,
    pub(crate) idle_after: Nanos,
    pub(crate) admins: Admins,
    /// Told who competes and who does not any more; must not wait.
    pub(crate) tell_presence: Arc<dyn Fn(CurrencyId, Presence) + Send + Sync>,
    /// Told who has left; must not wait.
    pub(crate) tell_left: Arc<dyn Fn(CurrencyId) + Send + Sync>,
}

impl fmt::Debug for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Terms").field("idle_after", &self.idle_after).finish_non_exhaustive()
    }
}

/// Whose a client is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) uid: u32,
    /// The user's name, or number where there is none.
    pub(crate) user: String,
    /// The client in the market.
    pub(crate) currency: CurrencyId,
    /// Its first ticket: what is shown as its share.
    pub(crate) amount: u64,
}

/// The market's side of a scheduler.
#[derive(Debug)]
pub(crate) struct System {
    terms: Terms,
    presences: Presences,
    worth: Worth,
}

impl System {
    pub(crate) fn new(terms: Terms) -> Self {
        let presences = Presences::new(terms.idle_after);
        Self { terms, presences, worth: Worth::default() }
    }

    /// A client has come: it competes, and is worth what is known of it. The market is told: one of before the start may have been idle,
    /// or paused, then.
    pub(crate) fn join(&mut self, client: ClientId, currency: CurrencyId) {
        self.presences.join(client, clock::now());
        (self.terms.tell_presence)(currency, Presence::Competing);
        self.worth.join(client, currency);
    }

    /// Whether there is news of what clients are worth.
    pub(crate) fn has_news(&self) -> bool {
        self.terms.values.is_fresh()
    }

    /// Takes in what changed. Returns the clients that may be worth something else.
    pub(crate) fn take_news(&mut self) -> Vec<ClientId> {
        self.terms.values.take().map_or_else(Vec::new, |news| self.worth.take(news))
    }

    /// The shares that `changed` are worth by now, where they are others than they `had`: of everybody, where all values
    /// together are another number of shares. A client without a value, idle or not known to the market yet, keeps the share
    /// that it had: it is right as soon as it competes.
    pub(crate) fn shares(
        &mut self,
        changed: &[ClientId],
        had: impl Fn(ClientId) -> Share,
    ) -> Vec<(ClientId, Share)> {
        let (whole, clients) = self.worth.whole();
        let anew = self.terms.portions.set_whole(whole, clients);
        let portions = &self.terms.portions;
        let other = |(client, value): (ClientId, u64)| {
            let (share, before) = (portions.share(value.into()), had(client).get());
            (share.get().abs_diff(before) > before / SAME).then_some((client, share))
        };
        if anew {
            return self.worth.values().filter_map(other).collect();
        }
        changed.iter().filter_map(|&client| other((client, self.worth.value(client)?))).collect()
    }

    /// What the kernel is to give to a client.
    pub(crate) fn due(&self, client: ClientId) -> Due {
        // Whether it counts is what its value says, not whether it competes by now: what it leaves, and what others have of
        // that, is written together.
        let (share, counts) = (self.worth.last_value(client), self.worth.counts(client));
        Due { share, counts, rights: self.worth.rights(client) }
    }

    pub(super) fn admins(&self) -> &Admins {
        &self.terms.admins
    }

    /// Whether a client counts as one that competes.
    pub(super) fn competes(&self, client: ClientId) -> bool {
        self.presences.competes(client)
    }

    /// When something is to be done if nothing happens first.
    pub(super) fn next(&self) -> Option<Instant> {
        self.presences.next()
    }

    pub(super) fn leave(&mut self, client: ClientId, owner: &Owner) {
        self.presences.leave(client);
        self.worth.leave(client);
        (self.terms.tell_left)(owner.currency);
    }
}

impl Scheduler {
    /// Whether `who` may change, pause or detach `client`.
    pub(super) fn check_owner(&self, client: ClientId, who: &Who) -> Result<(), Refusal> {
        let (Some(system), Some(entry)) = (&self.system, self.book.entry(client)) else { return Ok(()) };
        let owner = entry.owner.as_ref();
        if owner.is_some_and(|owner| owner.uid == who.uid) || system.admins().include(who) {
            return Ok(());
        }
        let whose = owner.map_or("divvyd", |owner| owner.user.as_str());
        let text = format!("client '{}' belongs to {whose}", entry.shown());
        Err(Refusal::new(ErrorCode::NotPermitted, text, "ask its owner, or an administrator"))
    }

    /// Refuses to pause all that whoever asks runs, and what they ask from: their shells would be held as well, and nobody of theirs be
    /// left to resume it.
    pub(super) fn check_pause(&self, client: ClientId, who: &Who) -> Result<(), Refusal> {
        let (Some(system), Some(entry)) = (&self.system, self.book.entry(client)) else { return Ok(()) };
        let is_all = entry.selector == Selector::User(who.uid).to_string();
        let asks_from_it = || {
            who.process()
                .is_some_and(|pid| ancestry(pid).any(|pid| self.engine.host().client_of(pid) == Some(client)))
        };
        if system.admins().include(who) || !is_all && !asks_from_it() {
            return Ok(());
        }
        let what = if is_all { "is all that you run, your shells too" } else { "has the shell that asks" };
        let text = format!("client '{}' {what}: nobody would be left to resume it", entry.shown());
        let fix = "pause a client of yours beside it (divvy run, divvy attach), or ask an administrator";
        Err(Refusal::new(ErrorCode::NotPermitted, text, fix))
    }

    /// Between two turns: says who competes by now, and takes in what everybody is worth.
    pub(super) fn keep_market(&mut self) {
        let Some(system) = &mut self.system else { return };
        let now = clock::now();
        let currency = |client: ClientId| Some(self.book.entry(client)?.owner.as_ref()?.currency);
        for (client, asleep) in self.log.take_seen() {
            if system.presences.see(client, asleep, now)
                && let Some(currency) = currency(client)
            {
                (system.terms.tell_presence)(currency, Presence::Competing);
            }
        }
        while let Some(client) = system.presences.take_idle(now) {
            if let Some(currency) = currency(client) {
                (system.terms.tell_presence)(currency, Presence::Idle);
            }
        }
        if !system.has_news() {
            return;
        }
        if self.follows {
            // With what the kernel is told of it, and no more often.
            self.weights.stale = true;
        } else {
            self.take_values();
        }
    }

    /// Takes in what clients are worth by now, and gives them the shares for it.
    pub(super) fn take_values(&mut self) {
        let Some(system) = &mut self.system else { return };
        let changed = system.take_news();
        self.apply_values(&changed);
    }

    /// The share of a client that comes, until the market has told what it is worth.
    pub(super) fn newcomers_share(&self) -> Share {
        self.system.as_ref().map_or(Share::ONE, |system| system.terms.portions.usual(self.book.len() + 1))
    }

    /// A client of the market has come: it competes, and has a share by what is known of its value.
    pub(super) fn enter_market(&mut self, client: ClientId) {
        let Some(currency) = self.book.entry(client).and_then(|e| Some(e.owner.as_ref()?.currency)) else {
            return;
        };
        let Some(system) = &mut self.system else { return };
        system.join(client, currency);
        self.apply_values(&[client]);
    }

    /// Gives clients the shares that their values are worth: those whose share is another, all at once. Shares count from
    /// each client's next cycle on, so what the present one has promised is kept.
    fn apply_values(&mut self, changed: &[ClientId]) {
        let Some(system) = &mut self.system else { return };
        let ledger = self.engine.ledger().clients();
        let shares = system.shares(changed, |client| ledger[client.index()].share);
        if self.follows {
            self.weights.owed.extend(changed);
        }
        self.reshare_all(shares);
    }
}
