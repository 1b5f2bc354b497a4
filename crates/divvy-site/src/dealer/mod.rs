//! The site's dealer: matches offers, and sees each exchange through its two phases and to its end.
//!
//! *Problem*: two users trade rights on different nodes. Neither is ever to give without getting for longer than a lease,
//! whatever becomes of messages, nodes and the dealer; and nothing is to be asked of nodes beyond what each can do alone.
//!
//! *Idea*: what the dealer decides is a [`Record`], made durable before a message goes out. What it knows of nodes is only
//! known for a while: it renews a lease while the newest word of *every* node of the exchange is younger than half a lease.
//!
//! *Why it holds*: say a node gives at time t. Its lease was renewed by a message that the dealer made at t - L or later, L
//! being half the lease, for the lease counts from a report that the dealer had heard by then. The dealer had proof then that
//! every other node gave after t - 2 L, for each report says which message of the dealer's its node had heard; or the
//! exchange was committed after t - 2 L. So no node gives for more than a lease, 2 L, after another has ceased to. Only the
//! dealer's clock is compared with itself, and each node's with itself; they need to run equally fast, and not back.

mod matching;

use crate::message::{DealerStamp, NodeStamp, Order, Orders, Report, State, Step};
use crate::record::{Lapse, Record, Why};
use crate::terms::{ExchangeId, Leg, NodeId, OfferId, PlaceId, Side, UserId};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::fmt;
use divvy_market::Moment;

/// For how long one side of an exchange may give without the other, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    half_ns: u64,
}

impl Lease {
    /// A lease of so many nanoseconds, at least 2.
    ///
    /// # Panics
    /// If it is shorter.
    #[must_use]
    pub const fn new(ns: u64) -> Self {
        assert!(ns >= 2, "a lease has two halves");
        Self { half_ns: ns / 2 }
    }

    /// How long a node goes on without news of the dealer, and the dealer without news of a node.
    #[must_use]
    pub const fn half_ns(self) -> u64 {
        self.half_ns
    }
}

/// An offer that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Offer {
    /// Whose it is.
    pub user: UserId,
    /// What the user gives.
    pub gives: Side,
    /// What for.
    pub wants: Side,
    /// When it ends if it was not matched; `None` is never.
    pub until: Option<Moment>,
}

/// How far an exchange is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Its nodes are asked to hold.
    Preparing,
    /// All of them held; they are told to give.
    Committed,
    /// All of them have given.
    Active,
    /// They are told to end.
    Ending,
}

/// An exchange.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Exchange {
    /// The two offers that it was made of, the older first.
    pub offers: [(OfferId, Offer); 2],
    /// How far it is.
    pub phase: Phase,
    /// Since when, by the dealer's clock; of an active one, since it was committed.
    pub since: Moment,
    /// The record with which its orders changed last.
    revision: u64,
    parts: BTreeMap<NodeId, Part>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Part {
    legs: Vec<Leg>,
    /// Volatile: what the node said last, and the dealer's moment of which it is proof.
    seen: Option<(State, Moment)>,
    /// Volatile: whether the node said that it has ended.
    gone: bool,
}

/// Volatile: what is known of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Known {
    newest: Option<NodeStamp>,
    /// The newest message of ours that it had heard.
    proof: Option<DealerStamp>,
}

/// Why an offer or its withdrawal is refused. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OfferError {
    /// There is no such place, or no node in it.
    UnknownPlace(PlaceId),
    /// What is given and wanted is of the same place and resource.
    SameResource,
    /// It ends before it begins.
    EndsBeforeNow,
    /// No such offer waits.
    UnknownOffer(OfferId),
    /// There is no such exchange, or it ends already.
    UnknownExchange(u64),
    /// It is somebody else's.
    NotYours,
}

impl fmt::Display for OfferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPlace(place) => write!(f, "there is no place {}", place.0),
            Self::SameResource => f.write_str("an exchange is of two different resources or places"),
            Self::EndsBeforeNow => f.write_str("the offer ends before it begins"),
            Self::UnknownOffer(offer) => write!(f, "no offer {} waits", offer.0),
            Self::UnknownExchange(number) => write!(f, "there is no exchange {number}"),
            Self::NotYours => f.write_str("it is another user's"),
        }
    }
}

impl core::error::Error for OfferError {}

/// A record that no dealer can have made after those before it: some are missing, or were changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongRecord {
    /// Its place among the records, from 0.
    pub index: usize,
}

impl fmt::Display for WrongRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record {} does not follow from those before it", self.index)
    }
}

impl core::error::Error for WrongRecord {}

/// The dealer's state. Offers, places and exchanges come of its records alone; what nodes said, and when, is not kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Dealer {
    term: u64,
    lease: Lease,
    revision: u64,
    places: BTreeMap<PlaceId, Vec<NodeId>>,
    offers: BTreeMap<OfferId, Offer>,
    queues: BTreeSet<(Side, Side, OfferId)>,
    endings: BTreeSet<(Moment, OfferId)>,
    offer_next: u64,
    exchange_next: u64,
    exchanges: BTreeMap<u64, Exchange>,
    on_node: BTreeMap<NodeId, BTreeSet<u64>>,
    // Volatile from here on.
    started: Moment,
    now: Moment,
    /// When exchanges are looked at next.
    next_look: Moment,
    nodes: BTreeMap<NodeId, Known>,
    records: Vec<Record>,
    to_tell: BTreeSet<NodeId>,
    /// Whether a node came back since offers were last looked through.
    returned: bool,
}

impl Dealer {
    /// A dealer without places, offers and exchanges. Nodes obey the highest `term` that they have heard: a dealer that lost its
    /// records begins another one, higher than all before (the time at which it begins will do), and what the lost one had
    /// made ends.
    #[must_use]
    pub const fn new(term: u64, lease: Lease, now: Moment) -> Self {
        Self {
            term,
            lease,
            revision: 0,
            places: BTreeMap::new(),
            offers: BTreeMap::new(),
            queues: BTreeSet::new(),
            endings: BTreeSet::new(),
            offer_next: 0,
            exchange_next: 0,
            exchanges: BTreeMap::new(),
            on_node: BTreeMap::new(),
            started: now,
            now,
            next_look: now,
            nodes: BTreeMap::new(),
            records: Vec::new(),
            to_tell: BTreeSet::new(),
            returned: false,
        }
    }

    /// The dealer of `term` that made these records, restarted now. Its clock must not have gone back meanwhile.
    ///
    /// # Errors
    /// [`WrongRecord`] if they are not a dealer's records from its beginning.
    pub fn replay<'a>(
        term: u64,
        lease: Lease,
        records: impl IntoIterator<Item = &'a Record>,
        now: Moment,
    ) -> Result<Self, WrongRecord> {
        let mut dealer = Self::new(term, lease, now);
        for (index, record) in records.into_iter().enumerate() {
            if !dealer.could_do(record) {
                return Err(WrongRecord { index });
            }
            dealer.apply(record);
        }
        dealer.to_tell.clear();
        Ok(dealer)
    }

    /// What was done since this was last asked. It is to be durable before a message is sent.
    pub fn take_records(&mut self) -> Vec<Record> {
        core::mem::take(&mut self.records)
    }

    /// The nodes whose orders changed since this was last asked: they are to be told at once. All others are told from time to
    /// time, several times in half a lease.
    pub fn take_to_tell(&mut self) -> BTreeSet<NodeId> {
        core::mem::take(&mut self.to_tell)
    }

    /// The places, each with its nodes.
    #[must_use]
    pub const fn places(&self) -> &BTreeMap<PlaceId, Vec<NodeId>> {
        &self.places
    }

    /// The offers that wait, oldest first.
    pub fn offers(&self) -> impl Iterator<Item = (OfferId, &Offer)> {
        self.offers.iter().map(|(&id, offer)| (id, offer))
    }

    /// The exchanges that have not ended everywhere, oldest first, by number.
    pub fn exchanges(&self) -> impl Iterator<Item = (u64, &Exchange)> {
        self.exchanges.iter().map(|(&number, exchange)| (number, exchange))
    }

    /// Whether a node has answered a message of the last half lease.
    #[must_use]
    pub fn is_here(&self, node: NodeId) -> bool {
        let proof = self.nodes.get(&node).and_then(|known| known.proof);
        proof.is_some_and(|proof| !self.is_late(proof.sent))
    }

    const fn is_late(&self, moment: Moment) -> bool {
        self.now.0.saturating_sub(moment.0) > self.lease.half_ns
    }

    /// Says which nodes a place is, from now on. Exchanges that there are keep theirs.
    pub fn set_place(&mut self, now: Moment, place: PlaceId, nodes: Vec<NodeId>) {
        self.on_time(now);
        if self.places.get(&place) != Some(&nodes) {
            self.record(Record::Place { place, nodes });
            self.returned = true;
        }
    }

    /// Ends an exchange for one of its parties.
    ///
    /// # Errors
    /// [`OfferError::UnknownExchange`] and [`OfferError::NotYours`].
    pub fn cancel(&mut self, now: Moment, user: UserId, number: u64) -> Result<(), OfferError> {
        self.on_time(now);
        let unknown = OfferError::UnknownExchange(number);
        let exchange = self.exchanges.get(&number).filter(|exchange| exchange.phase != Phase::Ending);
        let exchange = exchange.ok_or(unknown)?;
        let Some(&(mine, _)) = exchange.offers.iter().find(|(_, offer)| offer.user == user) else {
            return Err(OfferError::NotYours);
        };
        self.end(number, Why::Cancelled(user));
        // Where it was not committed, its offers wait again; this user does not want it any more.
        if self.offers.contains_key(&mine) {
            self.record(Record::Lapsed { offer: mine, why: Lapse::Withdrawn });
        }
        Ok(())
    }

    /// What a node is to be told now. Cost: the exchanges on it, with their nodes.
    #[must_use]
    pub fn orders(&self, now: Moment, node: NodeId) -> Orders {
        let known = self.nodes.get(&node).copied().unwrap_or_default();
        let numbers = self.on_node.get(&node).into_iter().flatten();
        let orders = numbers.filter_map(|number| {
            let exchange = &self.exchanges[number];
            let step = match exchange.phase {
                Phase::Preparing => Step::Hold,
                Phase::Committed | Phase::Active => Step::Give,
                Phase::Ending => return None,
            };
            let proven = |part: &Part| {
                let given = part.seen.filter(|(state, _)| *state == State::Given).map(|(_, at)| at);
                let proof = given.map_or(exchange.since, |at| at.max(exchange.since));
                now.0.saturating_sub(proof.0) <= self.lease.half_ns
            };
            let renew = step == Step::Hold || exchange.parts.values().all(proven);
            let exchange_id = ExchangeId { term: self.term, number: *number };
            Some(Order { exchange: exchange_id, legs: exchange.parts[&node].legs.clone(), step, renew })
        });
        Orders {
            stamp: DealerStamp { term: self.term, sent: now, revision: self.revision },
            heard: known.newest,
            lease_ns: self.lease.half_ns,
            orders: orders.collect(),
        }
    }

    /// Takes in what a node says. Reports older than what was heard, and those of nodes of no place, are passed over.
    pub fn on_report(&mut self, now: Moment, report: &Report) {
        self.on_time(now);
        let was_here = self.is_here(report.node);
        let is_known = || self.places.values().any(|nodes| nodes.contains(&report.node));
        if !self.nodes.contains_key(&report.node) && !self.on_node.contains_key(&report.node) && !is_known() {
            return;
        }
        let known = self.nodes.entry(report.node).or_default();
        if known.newest.is_some_and(|newest| report.stamp <= newest) {
            return;
        }
        known.newest = Some(report.stamp);
        let Some(heard) = report.heard.filter(|heard| heard.term == self.term) else { return };
        known.proof = known.proof.max(Some(heard));
        let numbers = self.on_node.get(&report.node).cloned().unwrap_or_default();
        for number in numbers {
            let id = ExchangeId { term: self.term, number };
            let at = report.states.binary_search_by_key(&id, |(id, _)| *id);
            self.judge(number, report.node, at.ok().map(|at| report.states[at].1), heard);
        }
        if !was_here && self.is_here(report.node) {
            self.returned = true;
        }
        self.look_through();
    }

    /// Follows what a node says of one exchange, having heard a message of ours.
    fn judge(&mut self, number: u64, node: NodeId, state: Option<State>, heard: DealerStamp) {
        let Some(exchange) = self.exchanges.get_mut(&number) else { return };
        let Some(part) = exchange.parts.get_mut(&node) else { return };
        // It had heard our newest orders for this exchange, or only older ones.
        let current = heard.revision >= exchange.revision;
        part.seen = state.map(|state| (state, heard.sent));
        part.gone = state.is_none() && current;
        match (exchange.phase, state) {
            (Phase::Ending, _) => {
                if exchange.parts.values().all(|part| part.gone) {
                    self.record(Record::Over { exchange: number });
                }
            }
            (_, Some(State::Refused(refusal))) => self.end(number, Why::Refused(node, refusal)),
            (Phase::Preparing, _) => {
                let held = |part: &Part| matches!(part.seen, Some((State::Held, _)));
                if exchange.parts.values().all(held) {
                    self.record(Record::Committed { exchange: number, at: self.now });
                }
            }
            (Phase::Committed | Phase::Active, None) if current => self.end(number, Why::EndedOn(node)),
            (Phase::Committed, Some(State::Given)) => {
                let given = |part: &Part| matches!(part.seen, Some((State::Given, _)));
                if exchange.parts.values().all(given) {
                    self.record(Record::Began { exchange: number });
                }
            }
            (Phase::Committed | Phase::Active, _) => {}
        }
    }

    /// Lets time pass: offers end, what was not held in time and what a silent node has a part in. Call it several times in
    /// half a lease. Cost: eight times in half a lease, the exchanges with their nodes.
    pub fn on_time(&mut self, now: Moment) {
        if now <= self.now {
            return;
        }
        self.now = now;
        self.end_offers();
        // Nothing depends on when this is: no lease is renewed for long, whatever is found out late.
        if now >= self.next_look {
            self.next_look = Moment(now.0.saturating_add(self.lease.half_ns / 8));
            self.end_exchanges();
        }
        self.look_through();
    }

    fn end_offers(&mut self) {
        while let Some(&(until, offer)) = self.endings.first()
            && until <= self.now
        {
            self.record(Record::Lapsed { offer, why: Lapse::Expired });
        }
    }

    fn end_exchanges(&mut self) {
        let numbers: Vec<u64> = self.exchanges.keys().copied().collect();
        for number in numbers {
            let exchange = &self.exchanges[&number];
            match exchange.phase {
                Phase::Preparing if self.is_late(exchange.since) => self.end(number, Why::NotHeld),
                // Every lease of it is over by then.
                Phase::Ending if self.is_late(exchange.since) => {
                    self.record(Record::Over { exchange: number });
                }
                Phase::Preparing | Phase::Ending => {}
                Phase::Committed | Phase::Active => {
                    let silent = exchange.parts.iter().find(|(_, part)| {
                        let seen = part.seen.map_or(Moment(0), |(_, at)| at);
                        self.is_late(seen.max(exchange.since).max(self.started))
                    });
                    if let Some((&node, _)) = silent {
                        self.end(number, Why::Away(node));
                    }
                }
            }
        }
    }

    fn end(&mut self, exchange: u64, why: Why) {
        let refused = match why {
            Why::Refused(node, refusal) => Some((node, refusal)),
            _ => None,
        };
        let offers = self.exchanges[&exchange].offers;
        let before_commit = self.exchanges[&exchange].phase == Phase::Preparing;
        self.record(Record::Ending { exchange, why, at: self.now });
        if let Some((node, refusal)) = refused.filter(|_| before_commit) {
            let theirs = offers.iter().find(|(_, offer)| offer.user == refusal.user());
            if let Some(&(offer, _)) = theirs {
                self.record(Record::Lapsed { offer, why: Lapse::Refused(node, refusal) });
            }
        }
    }

    /// Whether a record may come next.
    fn could_do(&self, record: &Record) -> bool {
        let is_next = |number: u64, next: u64| (next..u64::MAX).contains(&number);
        let is_in = |exchange: u64, phases: &[Phase]| {
            self.exchanges.get(&exchange).is_some_and(|exchange| phases.contains(&exchange.phase))
        };
        match *record {
            Record::Place { .. } => true,
            Record::Offered { offer, .. } => is_next(offer.0, self.offer_next),
            Record::Lapsed { offer, .. } => self.offers.contains_key(&offer),
            Record::Matched { exchange, offers: [one, other], .. } => {
                let has_place = |offer| {
                    self.offers.get(&offer).is_some_and(|offer| self.places.contains_key(&offer.gives.place))
                };
                is_next(exchange, self.exchange_next) && one != other && has_place(one) && has_place(other)
            }
            Record::Committed { exchange, .. } => is_in(exchange, &[Phase::Preparing]),
            Record::Began { exchange } => is_in(exchange, &[Phase::Committed]),
            Record::Ending { exchange, .. } => {
                is_in(exchange, &[Phase::Preparing, Phase::Committed, Phase::Active])
            }
            Record::Over { exchange } => is_in(exchange, &[Phase::Ending]),
        }
    }

    fn record(&mut self, record: Record) {
        debug_assert!(self.could_do(&record), "{record:?}");
        self.apply(&record);
        self.records.push(record);
    }

    /// The one way in which places, offers and exchanges change.
    fn apply(&mut self, record: &Record) {
        self.revision += 1;
        match *record {
            Record::Place { place, ref nodes } => {
                let mut nodes = nodes.clone();
                nodes.sort_unstable();
                nodes.dedup();
                self.places.insert(place, nodes);
            }
            Record::Offered { offer, user, gives, wants, until } => {
                self.offer_next = offer.0 + 1;
                self.queue(offer, Offer { user, gives, wants, until });
            }
            Record::Lapsed { offer, .. } => drop(self.unqueue(offer)),
            Record::Matched { exchange, offers, at } => self.begin(exchange, offers, at),
            Record::Committed { exchange, at } => self.set_phase(exchange, Phase::Committed, Some(at)),
            Record::Began { exchange } => self.set_phase(exchange, Phase::Active, None),
            Record::Ending { exchange, at, .. } => {
                let before = self.exchanges[&exchange].phase;
                self.set_phase(exchange, Phase::Ending, Some(at));
                if before == Phase::Preparing {
                    for (id, offer) in self.exchanges[&exchange].offers {
                        self.queue(id, offer);
                    }
                    self.returned = true;
                }
            }
            Record::Over { exchange } => {
                let ended = self.exchanges.remove(&exchange).expect("it ends once");
                for node in ended.parts.keys() {
                    let on_node = self.on_node.get_mut(node).expect("it was there");
                    on_node.remove(&exchange);
                    if on_node.is_empty() {
                        self.on_node.remove(node);
                    }
                }
            }
        }
    }

    fn set_phase(&mut self, number: u64, phase: Phase, at: Option<Moment>) {
        let revision = self.revision;
        let exchange = self.exchanges.get_mut(&number).expect("a record is of an exchange that is there");
        exchange.phase = phase;
        if let Some(at) = at {
            exchange.since = at;
            exchange.revision = revision;
            self.to_tell.extend(exchange.parts.keys());
        }
    }

    fn begin(&mut self, number: u64, ids: [OfferId; 2], at: Moment) {
        self.exchange_next = number + 1;
        let offers = ids.map(|id| (id, self.unqueue(id)));
        let mut parts: BTreeMap<NodeId, Part> = BTreeMap::new();
        for (mine, theirs) in [(0, 1), (1, 0)] {
            let (giver, taker) = (offers[mine].1, offers[theirs].1.user);
            let Side { place, resource, amount } = giver.gives;
            for &node in &self.places[&place] {
                let part = parts.entry(node).or_insert(Part { legs: Vec::new(), seen: None, gone: false });
                part.legs.push(Leg { giver: giver.user, taker, resource, amount });
            }
        }
        for &node in parts.keys() {
            self.on_node.entry(node).or_default().insert(number);
            self.to_tell.insert(node);
        }
        let (phase, revision) = (Phase::Preparing, self.revision);
        self.exchanges.insert(number, Exchange { offers, phase, since: at, revision, parts });
    }
}

impl Exchange {
    /// Its nodes, each with what it is there.
    pub fn parts(&self) -> impl Iterator<Item = (NodeId, &[Leg])> {
        self.parts.iter().map(|(&node, part)| (node, part.legs.as_slice()))
    }
}
