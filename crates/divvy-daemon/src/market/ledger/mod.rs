//! The ledger: the market, and what the market does not know: who is called what, which user owns what, who was admitted.
//!
//! It does no input or output and reads no clock; moments, names and the policy are handed in. So the same requests in the
//! same order make the same ledger, and a log of [`Record`]s is the ledger.
//!
//! **A request is done whole or not at all.** One that needs several operations asks everything that could refuse a later
//! one before it does the first. Where that cannot be asked (a superuser names a user who has no currency yet, and what
//! follows is refused) the ledger goes back to a copy. Should an operation be refused all the same after another was
//! done, that is a mistake of ours: the answer is [`Failed::Broken`], and the ledger must be made again from the store.

mod admit;
pub(crate) mod asks;
mod effective;
mod explain;
#[cfg(test)]
mod laws;
mod legs;
#[cfg(test)]
mod legs_tests;
#[cfg(test)]
pub(super) mod random;
mod resolve;
mod site;
#[cfg(test)]
mod site_tests;
mod terms;
#[cfg(test)]
pub(super) mod tests;
mod users;
mod view;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use divvy_market::{
    Amount, Caller, Changed, CurrencyId, ExchangeId, ExchangeView, Made, Market, Moment, OfferId, Op,
    Outcome, Presence, Resource, Revision, TicketId,
};
use serde::{Deserialize, Serialize};

use super::message::{Admitted, Ask, Cpus, Identity, Limits, Said, Who};
use super::names::Names;
use super::policy::Policy;
use super::record::{Charge, Fingerprint, Record, Step};
use crate::message::Refusal;
use divvy_api::market::Aftermath;
use divvy_api::site::JOB_PREFIX;
use divvy_api::types::ErrorCode;
use legs::Legs;
use view::terms_of;

/// A user's own currency.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct User {
    currency: CurrencyId,
    /// The base tickets of each resource that the policy gave it when it was looked at last.
    granted: [u64; 3],
}

/// What a user calls something.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Name {
    uid: u32,
    name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Client {
    uid: u32,
    identity: Identity,
}

/// What counts against a user's limits. Currencies and tickets that are gone are left out when they are counted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Charged {
    currencies: BTreeSet<CurrencyId>,
    tickets: BTreeSet<TicketId>,
    offers: BTreeSet<OfferId>,
    exchanges: BTreeSet<ExchangeId>,
}

/// An exchange that is over, for its parties to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Its number: `3`, or `1.0` of one over nodes.
    pub(crate) exchange: String,
    /// Who gave what: `alice gives 10 disk, bob gives 20 cpu`.
    pub(crate) terms: String,
    /// Why it ended.
    pub(crate) why: &'static str,
    /// The users of whom the parties are, but for who cancelled it.
    pub(crate) parties: BTreeSet<u32>,
}

/// The site's table that holds, beside the currencies that it made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct HeldTable {
    /// Of the one that was given last.
    version: u64,
    /// What it does not name and has not ended yet.
    kept: BTreeSet<CurrencyId>,
}

/// The market and everything about it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Ledger {
    market: Market,
    now_ns: u64,
    users: BTreeMap<u32, User>,
    named: BTreeMap<CurrencyId, Name>,
    #[serde(skip)]
    by_name: BTreeMap<Name, CurrencyId>,
    clients: BTreeMap<CurrencyId, Client>,
    charged: BTreeMap<u32, Charged>,
    /// The bounds that the policy set last.
    bounds: BTreeMap<u32, [Option<u64>; 3]>,
    #[serde(skip)]
    policy: Policy,
    /// What clients may not exceed, of those that have such bounds. The last field: snapshots of format 1 end before it.
    limits: BTreeMap<CurrencyId, Limits>,
    /// Stands behind everything else in a snapshot, then the legs, then the CPUs.
    #[serde(skip)]
    site: HeldTable,
    #[serde(skip)]
    legs: Legs,
    /// The CPUs that clients are kept to, of those that are.
    #[serde(skip)]
    cpus: BTreeMap<CurrencyId, Cpus>,
    /// Exchanges that ended since this was taken last.
    #[serde(skip)]
    ended: Vec<Ended>,
}

/// What came of a request that was done.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) said: Said,
    /// What is to be logged before anybody is told; `None` where nothing changed.
    pub(crate) record: Option<Record>,
}

/// What came of one that was not.
#[derive(Debug)]
pub(crate) enum Failed {
    /// It was refused, and nothing changed.
    Refused(Refusal),
    /// It was done in part: a mistake of ours. The ledger is of no use any more.
    Broken(Refusal),
}

/// Why a log cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplayError {
    /// The market refuses what it did before.
    #[error("operation {op:?} was done once and is refused now: {refusal}")]
    Refused { op: Op, refusal: divvy_market::Refusal },
    /// The market does something else than before.
    #[error("what comes of it is not what came of it")]
    Different,
}

/// Why a snapshot's contents cannot be trusted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImageError {
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] postcard::Error),
    #[error("its books are wrong: {0}")]
    Wrong(String),
}

impl Ledger {
    /// A ledger with nothing but the base currency, under `policy`.
    #[must_use]
    pub(crate) fn new(policy: Policy) -> Self {
        Self { policy, ..Self::default() }
    }

    /// A ledger around a market, with no names: for measurements.
    pub(crate) fn of(market: Market) -> Self {
        Self { market, ..Self::default() }
    }

    /// Everything that it is, for a snapshot.
    ///
    /// # Errors
    /// Where there is no memory for it.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, postcard::Error> {
        postcard::to_stdvec(&(self, &self.site, &self.legs, &self.cpus))
    }

    /// What [`Ledger::to_bytes`] wrote, if every sum and law holds.
    ///
    /// # Errors
    /// [`ImageError`].
    pub(crate) fn from_bytes(bytes: &[u8], policy: Policy) -> Result<Self, ImageError> {
        let (mut ledger, rest): (Self, &[u8]) = postcard::take_from_bytes(bytes)?;
        // Format 1 ends here.
        if !rest.is_empty() {
            let (site, rest) = postcard::take_from_bytes(rest)?;
            ledger.site = site;
            // And format 2 here.
            if !rest.is_empty() {
                let (legs, rest) = postcard::take_from_bytes(rest)?;
                ledger.legs = legs;
                // And format 3 here.
                if !rest.is_empty() {
                    ledger.cpus = postcard::from_bytes(rest)?;
                }
            }
        }
        ledger.policy = policy;
        ledger.by_name = ledger.named.iter().map(|(&id, name)| (name.clone(), id)).collect();
        ledger.audit().map_err(ImageError::Wrong)?;
        Ok(ledger)
    }

    /// Checks every law of the market and that everything named, owned and admitted lives.
    ///
    /// # Errors
    /// The first thing that is wrong, in words.
    pub(crate) fn audit(&mut self) -> Result<(), String> {
        self.market.audit().map_err(|fault| format!("{fault:?}"))?;
        if self.by_name.len() != self.named.len() {
            return Err("two currencies have one name".to_owned());
        }
        let owned = self.users.values().map(|user| &user.currency);
        for id in self.named.keys().chain(owned) {
            if self.market.currency(*id).is_none_or(|view| view.id == self.market.base()) {
                return Err(format!("currency {id} has a name or user and is not there"));
            }
        }
        let mut bounded = self.limits.keys().chain(self.cpus.keys());
        if let Some(id) = bounded.find(|id| !self.clients.contains_key(id)) {
            return Err(format!("{id} has limits or CPUs and is no client"));
        }
        match self.clients.keys().find(|id| !self.market.currency(**id).is_some_and(|view| view.client)) {
            Some(id) => Err(format!("client {id} was admitted and is not there")),
            None => Ok(()),
        }
    }

    pub(crate) fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// The caller that `who` is to the market: user 0 and whom the policy names are superusers.
    pub(crate) fn caller(&self, names: &dyn Names, who: &Who) -> Caller {
        let superuser = self.policy.admins.has(names, who);
        Caller { uid: who.uid, groups: who.gids.clone(), superuser }
    }

    /// Does what is asked, or says why not.
    ///
    /// # Errors
    /// [`Failed::Refused`]: nothing changed.
    pub(crate) fn apply(
        &mut self,
        names: &dyn Names,
        who: &Who,
        ask: &Ask,
        now_ns: u64,
    ) -> Result<Done, Failed> {
        let caller = self.caller(names, who);
        let mut work = Work::new(self, names, caller, now_ns);
        let said = work.answer(ask);
        work.finish(said)
    }

    /// Makes what the policy says true: what users and bounds get. Nothing that users did is taken back beyond that.
    pub(crate) fn follow_policy(&mut self, names: &dyn Names, now_ns: u64) -> Option<Record> {
        let mut work = Work::new(self, names, Caller::superuser(), now_ns);
        work.follow_policy();
        work.record()
    }

    /// Ends the offers and leases whose time has come.
    pub(crate) fn tick(&mut self, names: &dyn Names, now_ns: u64) -> Option<Record> {
        let now = Moment(now_ns.max(self.now_ns));
        let is_due = |ending: Option<Moment>| ending.is_some_and(|ending| ending <= now);
        let (offers, leases) = (is_due(self.market.next_ending()), is_due(self.legs.next_ending()));
        let mut work = Work::new(self, names, Caller::superuser(), now_ns);
        if offers {
            // Nobody is refused this, and the clock does not go back.
            let _ = work.try_op(Op::Expire { now });
        }
        if leases {
            work.end_leases();
        }
        work.record()
    }

    /// The exchanges that ended since this was asked last, through whatever it was.
    pub(crate) fn take_ended(&mut self) -> Vec<Ended> {
        std::mem::take(&mut self.ended)
    }

    /// When the next offer or lease ends, ns since 1970.
    pub(crate) fn next_tick(&self) -> Option<u64> {
        let next = [self.market.next_ending(), self.legs.next_ending()];
        next.into_iter().flatten().min().map(|moment| moment.0)
    }

    /// Notes which clients compete for the CPU. Clients that have left and news that is old are passed over.
    pub(crate) fn presences(
        &mut self,
        names: &dyn Names,
        changes: &[(CurrencyId, Presence)],
        now_ns: u64,
    ) -> Option<Record> {
        let resource = Resource::Cpu;
        let mut work = Work::new(self, names, Caller::superuser(), now_ns);
        for &(client, presence) in changes {
            let Some(view) = work.ledger.market.currency(client).filter(|view| view.client) else { continue };
            if view.competes.contains(resource) != (presence == Presence::Competing) {
                // It is a client that lives, and the caller a superuser: there is nothing to refuse.
                let _ = work.try_op(Op::SetPresence { client, resource, presence });
            }
        }
        work.record()
    }

    /// Does again what was logged.
    ///
    /// # Errors
    /// [`ReplayError`]; the ledger is of no use then.
    pub(crate) fn replay(&mut self, record: &Record) -> Result<(), ReplayError> {
        let mut outcome = Fingerprint::EMPTY;
        for step in &record.steps {
            match step {
                Step::Do(op) => outcome = outcome.and_outcome(&self.replay_op(&record.caller, op)?),
                Step::DoAsDivvyd(op) => {
                    outcome = outcome.and_outcome(&self.replay_op(&Caller::superuser(), op)?);
                }
                other => self.note(other),
            }
        }
        if outcome != record.outcome {
            return Err(ReplayError::Different);
        }
        self.now_ns = self.now_ns.max(record.at_ns);
        Ok(())
    }

    fn replay_op(&mut self, caller: &Caller, op: &Op) -> Result<Outcome, ReplayError> {
        let outcome = self.market.apply(caller, op);
        let outcome = outcome.map_err(|refusal| ReplayError::Refused { op: *op, refusal })?;
        self.absorb(op, &outcome);
        Ok(outcome)
    }

    /// What the clients that compete for the CPU get, as whole numbers of about `scale` in all: see [`Market::shares`].
    #[cfg(test)]
    pub(crate) fn shares(&mut self, scale: u32) -> Vec<(CurrencyId, u64)> {
        self.market.shares(Resource::Cpu, scale)
    }

    /// What changed of what clients weigh: see [`Market::changed_weights`].
    pub(crate) fn changed(&mut self, resource: Resource, parts: u64, since: Option<Revision>) -> Changed {
        self.market.changed_weights(resource, parts, since)
    }

    /// Every client that was admitted and has not left.
    pub(crate) fn clients(&self, names: &dyn Names) -> Vec<Admitted> {
        self.clients.keys().filter_map(|&id| self.admitted(names, id)).collect()
    }

    pub(crate) fn is_client(&self, id: CurrencyId) -> bool {
        self.clients.contains_key(&id)
    }

    /// About how much there is to look at for an answer that shows all.
    pub(crate) fn size(&self) -> usize {
        self.market.nr_tickets() + self.market.nr_currencies()
    }

    /// How many currencies (clients and the base among them), tickets and clients there are.
    pub(crate) fn sizes(&self) -> (usize, usize, usize) {
        (self.market.nr_currencies(), self.market.nr_tickets(), self.clients.len())
    }

    pub(crate) fn nr_tickets(&self) -> usize {
        self.market.nr_tickets()
    }

    /// Follows an operation that was done: what ended has no name any more.
    fn absorb(&mut self, op: &Op, outcome: &Outcome) {
        let destroyed = if let Op::Destroy { currency } = op { Some(*currency) } else { None };
        for id in outcome.ended.iter().copied().chain(destroyed) {
            self.forget(id);
        }
        for exchange in &outcome.undone {
            for charged in self.charged.values_mut() {
                charged.exchanges.remove(exchange);
            }
        }
        let taken = if let Made::Exchange { taken, .. } = outcome.made { taken } else { None };
        for offer in outcome.lapsed.iter().copied().chain(taken) {
            for charged in self.charged.values_mut() {
                charged.offers.remove(&offer);
            }
        }
    }

    fn forget(&mut self, id: CurrencyId) {
        if let Some(name) = self.named.remove(&id) {
            self.by_name.remove(&name);
        }
        self.clients.remove(&id);
        self.limits.remove(&id);
        self.cpus.remove(&id);
        self.users.retain(|_, user| user.currency != id);
    }

    /// Follows a step that is no operation.
    fn note(&mut self, step: &Step) {
        match step {
            Step::Do(_) | Step::DoAsDivvyd(_) => {}
            Step::User { uid, currency, granted } => {
                self.users.insert(*uid, User { currency: *currency, granted: *granted });
            }
            Step::Granted { uid, granted } => {
                if let Some(user) = self.users.get_mut(uid) {
                    user.granted = *granted;
                }
            }
            Step::PolicyBounds { uid, bounds } => {
                if *bounds == [None; 3] {
                    self.bounds.remove(uid);
                } else {
                    self.bounds.insert(*uid, *bounds);
                }
            }
            Step::Name { currency, uid, name } => {
                let name = Name { uid: *uid, name: name.clone() };
                if let Some(old) = self.named.insert(*currency, name.clone()) {
                    self.by_name.remove(&old);
                }
                self.by_name.insert(name, *currency);
            }
            Step::Client { currency, uid, identity } => {
                self.clients.insert(*currency, Client { uid: *uid, identity: identity.clone() });
            }
            Step::Limits { client, limits } => {
                if *limits == Limits::default() {
                    self.limits.remove(client);
                } else {
                    self.limits.insert(*client, *limits);
                }
            }
            Step::Cpus { client, cpus } => {
                if *cpus == Cpus::default() {
                    self.cpus.remove(client);
                } else {
                    self.cpus.insert(*client, *cpus);
                }
            }
            Step::Charge { uid, what } => self.charge(*uid, *what),
            Step::SiteExchange { exchange, entry, moved } => self.legs.note(*exchange, entry.as_ref(), moved),
            Step::Site { version, kept } => {
                self.site = HeldTable { version: *version, kept: kept.iter().copied().collect() };
            }
        }
    }

    fn charge(&mut self, uid: u32, what: Charge) {
        let charged = self.charged.entry(uid).or_default();
        match what {
            Charge::Currency(id) => {
                charged.currencies.insert(id);
            }
            Charge::Ticket(id) => {
                charged.tickets.insert(id);
            }
            Charge::Offer(id) => {
                charged.offers.insert(id);
            }
            Charge::Exchange(id) => {
                charged.exchanges.insert(id);
            }
        }
        // Now and then, when the number doubled, what is gone is swept out: so a list is at most twice what lives.
        if charged.currencies.len().is_power_of_two() {
            charged.currencies.retain(|&id| self.market.currency(id).is_some());
        }
        if charged.tickets.len().is_power_of_two() {
            charged.tickets.retain(|&id| self.market.ticket_view(id).is_some());
        }
    }

    fn admitted(&self, names: &dyn Names, id: CurrencyId) -> Option<Admitted> {
        let client = self.clients.get(&id)?;
        Some(Admitted {
            currency: id,
            name: self.named.get(&id).map_or_else(|| self.name_of(names, id), |name| name.name.clone()),
            uid: client.uid,
            identity: client.identity.clone(),
            amount: self.share_ticket(id).map_or(0, |ticket| ticket.amount),
            limits: self.limits.get(&id).copied().unwrap_or_default(),
            cpus: self.cpus.get(&id).copied().unwrap_or_default(),
        })
    }

    /// The user whose own currency this is, if it is one.
    fn whose_own(&self, id: CurrencyId) -> Option<u32> {
        let owner = self.market.currency(id)?.broker.owner;
        self.users.get(&owner).filter(|user| user.currency == id).map(|_| owner)
    }

    /// Whose a currency is, until it is forgotten.
    fn owner_of(&self, id: CurrencyId) -> Option<u32> {
        let named = self.named.get(&id).map(|name| name.uid);
        let own = || self.users.iter().find(|(_, user)| user.currency == id).map(|(&uid, _)| uid);
        named.or_else(own).or_else(|| self.market.currency(id).map(|view| view.broker.owner))
    }

    /// Whether the user issued the ticket, and was not given it.
    fn issued_by_user(&self, uid: u32, ticket: TicketId) -> bool {
        self.charged.get(&uid).is_some_and(|charged| charged.tickets.contains(&ticket))
    }

    /// The ticket whose amount is a client's share: its first, or where it is a job's task, the job's.
    fn share_ticket(&self, client: CurrencyId) -> Option<divvy_market::TicketView> {
        self.first_ticket(self.job_of(client).unwrap_or(client))
    }

    /// The job's currency that funds a client, if one does.
    fn job_of(&self, client: CurrencyId) -> Option<CurrencyId> {
        let issuer = self.first_ticket(client)?.issuer;
        self.named.get(&issuer)?.name.starts_with(JOB_PREFIX).then_some(issuer)
    }

    /// A client's first soft cpu ticket: its share of its issuer.
    fn first_ticket(&self, client: CurrencyId) -> Option<divvy_market::TicketView> {
        let backing = self.market.backing_of(client, Resource::Cpu);
        backing.into_iter().find(|ticket| ticket.kind == divvy_market::Kind::Soft)
    }
}

/// One request on its way.
struct Work<'a> {
    ledger: &'a mut Ledger,
    names: &'a dyn Names,
    caller: Caller,
    at_ns: u64,
    steps: Vec<Step>,
    outcome: Fingerprint,
    aftermath: Aftermath,
    /// Why exchanges over nodes end, that end now.
    legs_end: &'static str,
    /// The ledger as it was, where an operation may be refused after another was done.
    before: Option<Box<Ledger>>,
}

impl<'a> Work<'a> {
    fn new(ledger: &'a mut Ledger, names: &'a dyn Names, caller: Caller, now_ns: u64) -> Self {
        let at_ns = now_ns.max(ledger.now_ns);
        let (steps, outcome) = (Vec::new(), Fingerprint::EMPTY);
        Self {
            ledger,
            names,
            caller,
            at_ns,
            steps,
            outcome,
            aftermath: Aftermath::default(),
            legs_end: "",
            before: None,
        }
    }

    /// Closes the request.
    fn finish(mut self, said: Result<Said, Refusal>) -> Result<Done, Failed> {
        match said {
            Ok(said) => Ok(Done { said, record: self.record() }),
            Err(refusal) if self.steps.is_empty() => Err(Failed::Refused(refusal)),
            Err(refusal) => match self.before.take() {
                Some(before) => {
                    *self.ledger = *before;
                    Err(Failed::Refused(refusal))
                }
                None => {
                    let text = format!("the market did a request in part: {}", refusal.message);
                    Err(Failed::Broken(Refusal::new(ErrorCode::Internal, text, "ask again; report this")))
                }
            },
        }
    }

    fn record(self) -> Option<Record> {
        if self.steps.is_empty() {
            return None;
        }
        self.ledger.now_ns = self.at_ns;
        let Self { at_ns, caller, steps, outcome, .. } = self;
        Some(Record { at_ns, caller, steps, outcome })
    }

    /// An operation by the caller.
    fn try_op(&mut self, op: Op) -> Result<Made, divvy_market::Refusal> {
        let outcome = self.ledger.market.apply(&self.caller, &op)?;
        Ok(self.follow(op, Step::Do(op), outcome))
    }

    /// As [`Work::try_op`], refused in words.
    fn op(&mut self, op: Op) -> Result<Made, Refusal> {
        self.try_op(op).map_err(|refusal| self.in_words(refusal))
    }

    /// An operation by divvyd.
    fn divvyd_op(&mut self, op: Op) -> Result<Made, divvy_market::Refusal> {
        let outcome = self.ledger.market.apply(&Caller::superuser(), &op)?;
        Ok(self.follow(op, Step::DoAsDivvyd(op), outcome))
    }

    fn follow(&mut self, op: Op, step: Step, outcome: Outcome) -> Made {
        let ended: Vec<Ended> =
            self.ledger.market.just_undone().iter().map(|view| self.ended(&op, view)).collect();
        self.ledger.ended.extend(ended);
        self.ledger.absorb(&op, &outcome);
        self.outcome = self.outcome.and_outcome(&outcome);
        self.steps.push(step);
        self.aftermath.undone.extend(outcome.undone.iter().map(|id| id.0));
        self.aftermath.lapsed.extend(outcome.lapsed.iter().map(|id| id.0));
        self.aftermath.ended.extend(outcome.ended.iter().map(ToString::to_string));
        outcome.made
    }

    /// What is told of an exchange that `op` has ended, before what ended with it is forgotten.
    fn ended(&self, op: &Op, view: &ExchangeView) -> Ended {
        let owners = [view.a, view.b].map(|party| self.ledger.owner_of(party));
        let mut parties: BTreeSet<u32> = owners.into_iter().flatten().collect();
        let why = match op {
            Op::CancelExchange { exchange } if *exchange == view.id => {
                if parties.remove(&self.caller.uid) {
                    "a party cancelled it"
                } else {
                    "an administrator cancelled it"
                }
            }
            Op::Destroy { currency } if [view.a, view.b].contains(currency) => "a party's currency ended",
            _ => "a party can no longer cover it",
        };
        let terms = terms_of(&self.show_exchange(view));
        Ended { exchange: view.id.0.to_string(), terms, why, parties }
    }

    fn note(&mut self, step: Step) {
        self.ledger.note(&step);
        self.steps.push(step);
    }
}

/// `n` as an amount of tickets.
fn amount(n: u64) -> Result<Amount, Refusal> {
    Amount::new(n).map_err(|refusal| {
        let fix = format!("give 1 to {}", Amount::MAX);
        Refusal::new(ErrorCode::BadRequest, format!("{n} tickets: {refusal}"), fix)
    })
}
