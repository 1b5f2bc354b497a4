//! A scheduler whose clients are many users', and whose shares a market says.
//!
//! Values come from the market's thread into a slot of which only the newest counts; they are taken between two turns and
//! told to the engine as one batch. What the scheduler has to say, who competes and who has left, goes out without
//! waiting.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use divvy_engine::portion::Portions;
use divvy_linux::cgroup::Rights;
use divvy_linux::{Waker, clock};
use divvy_market::{CurrencyId, Presence};
use divvy_policy::{ClientId, Instant, Nanos, Share};

use super::Scheduler;
use super::presence::Presences;
use crate::market::message::Who;
use crate::message::Refusal;
use divvy_api::types::ErrorCode;

/// A share that is off by less than one in so many is left as it is.
const SAME: u64 = 4096;

/// What each client that competes is worth, in any unit that is the same for all.
type Valued = Vec<(CurrencyId, u64)>;

/// Where the market leaves what everybody is worth. Clones are of the same place.
#[derive(Clone)]
pub(crate) struct Values {
    slot: Arc<Mutex<Option<Valued>>>,
    rights: Arc<Mutex<Option<HashMap<CurrencyId, Rights>>>>,
    waker: Waker,
}

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Values").finish_non_exhaustive()
    }
}

impl Values {
    /// A place that wakes the scheduler which waits on `waker`.
    pub(crate) fn new(waker: Waker) -> Self {
        Self { slot: Arc::default(), rights: Arc::default(), waker }
    }

    /// Leaves the values of all that compete; those that were left before are forgotten.
    pub(crate) fn put(&self, values: Valued) {
        *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(values);
        self.waker.wake();
    }

    /// As [`put`](Self::put), for what everybody has a right to of memory and disks.
    pub(crate) fn put_rights(&self, rights: HashMap<CurrencyId, Rights>) {
        *self.rights.lock().unwrap_or_else(PoisonError::into_inner) = Some(rights);
        self.waker.wake();
    }

    /// The newest, if there are new ones. Whoever is just putting some wakes us after it.
    fn take(&self) -> Option<Valued> {
        self.slot.try_lock().ok()?.take()
    }

    fn take_rights(&self) -> Option<HashMap<CurrencyId, Rights>> {
        self.rights.try_lock().ok()?.take()
    }
}

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
pub(super) struct System {
    terms: Terms,
    presences: Presences,
    values: HashMap<CurrencyId, u64>,
    rights: HashMap<CurrencyId, Rights>,
}

impl System {
    pub(super) fn new(terms: Terms) -> Self {
        let presences = Presences::new(terms.idle_after);
        Self { terms, presences, values: HashMap::new(), rights: HashMap::new() }
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
        if let Some(values) = system.terms.values.take() {
            system.values = values.into_iter().collect();
            self.apply_values();
        }
        if let Some(system) = &mut self.system
            && let Some(rights) = system.terms.values.take_rights()
        {
            system.rights = rights;
            self.weights.stale = true;
        }
    }

    /// What each client has a right to of memory and disks: as far as the market has told, or by its own bounds.
    pub(super) fn rights(&self) -> BTreeMap<ClientId, Rights> {
        let Some(system) = &self.system else { return self.reserved_memory() };
        let of = |currency| system.rights.get(&currency).copied();
        let present = self.book.present();
        present.filter_map(|(client, entry)| Some((client, of(entry.owner.as_ref()?.currency)?))).collect()
    }

    /// The share of a client that comes, until the market has told what it is worth.
    pub(super) fn newcomers_share(&self) -> Share {
        self.system.as_ref().map_or(Share::ONE, |system| system.terms.portions.usual(self.book.len() + 1))
    }

    /// A client of the market has come: it competes, and has a share by what is known of its value.
    pub(super) fn enter_market(&mut self, client: ClientId) {
        let Some(system) = &mut self.system else { return };
        system.presences.join(client, clock::now());
        self.apply_values();
    }

    /// Gives every client the share that its value is worth: those whose share is another, all at once. Shares count from
    /// each client's next cycle on, so what the present one has promised is kept. A client without a value, idle or
    /// not known to the market yet, keeps the share that it had: it is right as soon as it competes.
    fn apply_values(&mut self) {
        let Some(system) = &mut self.system else { return };
        let ledger = self.engine.ledger().clients();
        let mut valued: Vec<(ClientId, u64)> = Vec::with_capacity(ledger.len());
        for (client, entry) in self.book.present() {
            let value = entry.owner.as_ref().and_then(|owner| system.values.get(&owner.currency));
            valued.extend(value.filter(|value| **value > 0).map(|&value| (client, value)));
        }
        let whole = valued.iter().map(|&(_, value)| u128::from(value)).sum();
        system.terms.portions.set_whole(whole, valued.len());
        let mut changes = Vec::new();
        for (client, value) in valued {
            let share = system.terms.portions.share(u128::from(value));
            let before = ledger[client.index()].share;
            if share.get().abs_diff(before.get()) > before.get() / SAME {
                changes.push((client, share));
            }
        }
        self.reshare_all(changes);
    }
}
