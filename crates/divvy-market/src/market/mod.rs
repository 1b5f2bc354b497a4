//! The market: the graph of currencies and tickets, and the one way to change it.
//!
//! Terms. A *node* is a currency or client; its books for one resource are a *pool*. A ticket hangs in two rings: the
//! tickets that its issuer issued, and those that back its holder. A ticket is *active* when its holder is; a client is
//! active while it competes, and any node while one of the tickets that it issued is.
//!
//! Order of an operation: everything that may refuse it is asked first and changes nothing; then it is done, and cannot
//! fail; then it is *settled*: exchanges that are no longer covered are undone.

mod activity;
mod audit;
mod changed;
mod dealer;
mod exchange;
mod fund;
mod graph;
mod lodge;
mod nice;
mod promise;
mod right;
mod scratch;
mod value;
mod view;

pub use audit::Fault;
pub use changed::{Changed, Revision, Weight};
pub use promise::Promises;
pub use right::Right;
pub use view::{CurrencyView, ExchangeView, OfferView, Source, TicketView};

use crate::broker::{Broker, Caller, Permission};
use crate::op::{Amount, CurrencyId, ExchangeId, Kind, Made, Moment, OfferId, Op, Outcome, Refusal, Side};
use crate::resource::{Resource, Resources};
use crate::slab::{NONE, Slab};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::mem;
use value::Cache;

/// Currencies on the longest path from the base to a client, at the most.
pub const CURRENCY_DEPTH_MAX: u16 = 64;
/// The hard tickets that are the whole of a currency's rights, unless it set another total.
pub const HARD_TOTAL_DEFAULT: u32 = 1000;
/// Into how many parts an exchange ticket of an idle party is divided among several funders.
pub const PARTS_PER_TICKET: u64 = 1_000_000;

/// The base currency's slot.
const BASE: u32 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
enum NodeKind {
    Base,
    Currency,
    Client,
}

#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Node {
    kind: NodeKind,
    /// What it competes for. Nothing, for a currency.
    competes: Resources,
    /// Nodes on the longest path from the base; 0 where nothing backs it.
    depth: u16,
    broker: Broker,
    /// Its pool for each resource, or [`NONE`] as long as it needs none.
    pools: [u32; 3],
}

/// A node's books for one resource.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Pool {
    /// Sum of the amounts of all soft and transfer tickets issued, and of the active ones.
    issued_soft: u64,
    active_soft: u64,
    /// Sum of the amounts of all hard tickets issued; never above the total.
    issued_hard: u32,
    hard_total: u32,
    /// How many of the tickets issued are active.
    active_issued: u32,
    /// The first ticket of each ring.
    backing: u32,
    issued: u32,
    /// What only few pools need.
    rare: Option<Box<Rare>>,
    #[cfg_attr(feature = "serde", serde(skip))]
    cache: Option<Box<Cache>>,
}

#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Rare {
    /// Exchange tickets that count here, its own and those that idle holders left with it, in parts of a base ticket.
    burden: i128,
    /// Exchanges that it is a party to and that move this resource.
    exchanges: BTreeSet<ExchangeId>,
    /// Those of them in which it gives this resource.
    gives: BTreeSet<ExchangeId>,
    /// Tickets issued whose holder gave something away, or has one further down that did.
    watched: BTreeSet<u32>,
    /// What it used of its last quantum, and the quantum.
    compensation: Option<(u64, u64)>,
}

#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Ticket {
    kind: Kind,
    resource: Resource,
    active: bool,
    amount: u32,
    issuer: u32,
    holder: u32,
    issued_next: u32,
    issued_prev: u32,
    backing_next: u32,
    backing_prev: u32,
}

/// The part of its holder's burden that an inactive ticket took to its issuer.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Lodged {
    /// What the ticket was worth when the holder went idle: the key by which the burden is divided.
    weight: u64,
    part: i128,
}

/// Two parties and what each gives. The four base tickets of section 3.2.2 are its two sides, each read twice: `a` holds
/// `-a_gives` and `+b_gives`, `b` the opposite. They come and go together.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Exchange {
    a: u32,
    a_gives: Side,
    b: u32,
    b_gives: Side,
}

#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Offer {
    party: u32,
    gives: Side,
    wants: Side,
    until: Option<Moment>,
}

/// A user who may issue base tickets, and what it owns.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Bounded {
    bounds: [Option<u64>; 3],
    owned: BTreeSet<u32>,
}

/// Where a currency that `nice` made got its base tickets.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Niced {
    origin: u32,
    resource: Resource,
    amount: u32,
}

/// Tickets, currencies and exchanges, and what all of them are worth.
///
/// Values are computed when they are read, and only those are computed again whose inputs changed: a read costs a look at
/// each ticket on the way to the base.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Market {
    nodes: Slab<Node>,
    pools: Slab<Pool>,
    tickets: Slab<Ticket>,
    exchanges: BTreeMap<ExchangeId, Exchange>,
    exchange_next: u64,
    offers: BTreeMap<OfferId, Offer>,
    offer_next: u64,
    /// Offers by what they give and want, oldest first: the dealer's queues.
    queues: BTreeSet<(Side, Side, OfferId)>,
    /// Offers that end, by when.
    endings: BTreeSet<(Moment, OfferId)>,
    now: Moment,
    lodged: BTreeMap<u32, Lodged>,
    bounded: BTreeMap<u32, Bounded>,
    niced: BTreeMap<u32, Niced>,
    /// Counts changes of anything that a value depends on; see [`value`].
    #[cfg_attr(feature = "serde", serde(skip))]
    clock: u64,
    /// Whose weights may have changed, for each resource.
    #[cfg_attr(feature = "serde", serde(skip))]
    marks: [changed::Marks; 3],
    /// Changed pools above a party that gave something away: what is to be settled.
    #[cfg_attr(feature = "serde", serde(skip))]
    dirty: Vec<(u32, Resource)>,
    #[cfg_attr(feature = "serde", serde(skip))]
    undone: Vec<ExchangeView>,
    #[cfg_attr(feature = "serde", serde(skip))]
    lapsed: Vec<OfferId>,
    #[cfg_attr(feature = "serde", serde(skip))]
    ended: Vec<CurrencyId>,
    /// Currencies of `nice` that lost a ticket and may have none left.
    #[cfg_attr(feature = "serde", serde(skip))]
    emptied: BTreeSet<u32>,
}

impl Default for Market {
    fn default() -> Self {
        Self::new()
    }
}

impl Market {
    /// A market with nothing but the base currency, which user 0 owns.
    #[must_use]
    pub fn new() -> Self {
        let mut nodes = Slab::new();
        let broker = Broker::private(0, 0);
        let base =
            Node { kind: NodeKind::Base, competes: Resources::NONE, depth: 0, broker, pools: [NONE; 3] };
        assert_eq!(nodes.insert(base), BASE);
        Self {
            nodes,
            pools: Slab::new(),
            tickets: Slab::new(),
            exchanges: BTreeMap::new(),
            exchange_next: 0,
            offers: BTreeMap::new(),
            offer_next: 0,
            queues: BTreeSet::new(),
            endings: BTreeSet::new(),
            now: Moment(0),
            lodged: BTreeMap::new(),
            bounded: BTreeMap::new(),
            niced: BTreeMap::new(),
            clock: 0,
            marks: Default::default(),
            dirty: Vec::new(),
            undone: Vec::new(),
            lapsed: Vec::new(),
            ended: Vec::new(),
            emptied: BTreeSet::new(),
        }
    }

    /// Does `op` for `caller`, whole or not at all, and says what came of it.
    ///
    /// # Errors
    /// Why it was refused. Nothing changed then.
    pub fn apply(&mut self, caller: &Caller, op: &Op) -> Result<Outcome, Refusal> {
        self.undone.clear();
        let made = self.perform(caller, op)?;
        self.settle();
        while let Some(node) = self.emptied.pop_first() {
            if self.niced.contains_key(&node) && !self.issues_any(node) {
                self.ended.push(self.currency_id(node));
                self.destroy(node);
                self.settle();
            }
        }
        Ok(Outcome {
            made,
            undone: self.undone.iter().map(|view| view.id).collect(),
            lapsed: mem::take(&mut self.lapsed),
            ended: mem::take(&mut self.ended),
        })
    }

    fn perform(&mut self, caller: &Caller, op: &Op) -> Result<Made, Refusal> {
        let done = |()| Made::Nothing;
        match *op {
            Op::CreateCurrency { broker } => {
                self.op_create(caller, broker, NodeKind::Currency, Resources::NONE)
            }
            Op::CreateClient { broker, competes } => {
                self.op_create(caller, broker, NodeKind::Client, competes)
            }
            Op::Destroy { currency } => self.op_destroy(caller, currency).map(done),
            Op::SetMode { currency, mode } => self.op_set_mode(caller, currency, mode).map(done),
            Op::SetOwner { currency, owner, group } => {
                self.op_set_owner(caller, currency, owner, group).map(done)
            }
            Op::SetHardTotal { currency, resource, total } => {
                self.op_set_hard_total(caller, currency, resource, total).map(done)
            }
            Op::Fund { holder, issuer, resource, amount, kind } => {
                self.op_fund(caller, holder, issuer, resource, amount, kind)
            }
            Op::SetAmount { ticket, amount } => self.op_set_amount(caller, ticket, amount).map(done),
            Op::Unfund { ticket } => self.op_unfund(caller, ticket).map(done),
            Op::Adopt { child, parent } => self.op_adopt(caller, child, parent),
            Op::SetPresence { client, resource, presence } => {
                self.op_set_presence(caller, client, resource, presence).map(done)
            }
            Op::Wait { client, holder, resource } => self.op_wait(caller, client, holder, resource),
            Op::Compensate { client, resource, used, quantum } => {
                self.op_compensate(caller, client, resource, (used.get(), quantum.get())).map(done)
            }
            Op::SetBound { uid, resource, bound } => {
                self.op_set_bound(caller, uid, resource, bound).map(done)
            }
            Op::Nice { client, from, resource, amount } => {
                self.op_nice(caller, client, from, resource, amount)
            }
            Op::Renice { currency, amount } => self.op_renice(caller, currency, amount).map(done),
            Op::Exchange { a, a_gives, b, b_gives } => self.op_exchange(caller, a, a_gives, b, b_gives),
            Op::CancelExchange { exchange } => self.op_cancel(caller, exchange).map(done),
            Op::Offer { party, gives, wants, now, until } => {
                self.op_offer(caller, party, gives, wants, now, until)
            }
            Op::Withdraw { offer } => self.op_withdraw(caller, offer).map(done),
            Op::Expire { now } => self.op_expire(now).map(done),
        }
    }

    fn op_create(
        &mut self,
        caller: &Caller,
        broker: Broker,
        kind: NodeKind,
        competes: Resources,
    ) -> Result<Made, Refusal> {
        if !caller.may_create(&broker) {
            return Err(Refusal::NotYourIds);
        }
        self.check_room(1, 0)?;
        let node = self.create(broker, kind, competes);
        Ok(Made::Currency(self.currency_id(node)))
    }

    fn create(&mut self, broker: Broker, kind: NodeKind, competes: Resources) -> u32 {
        let node = self.nodes.insert(Node { kind, competes, depth: 0, broker, pools: [NONE; 3] });
        if let Some(bounded) = self.bounded.get_mut(&broker.owner) {
            bounded.owned.insert(node);
        }
        for resource in Resource::ALL {
            self.mark(node, resource);
        }
        node
    }

    fn op_destroy(&mut self, caller: &Caller, currency: CurrencyId) -> Result<(), Refusal> {
        let node = self.inner(currency)?;
        self.check_permission(caller, node, Permission::Change)?;
        self.destroy(node);
        Ok(())
    }

    /// Ends `node` with all that hangs on it.
    fn destroy(&mut self, node: u32) {
        for resource in Resource::ALL {
            while let Some(exchange) =
                self.rare(node, resource).and_then(|rare| rare.exchanges.last().copied())
            {
                self.undo(exchange);
            }
        }
        self.lapse_offers_of(node);
        self.give_back(node);
        for resource in Resource::ALL {
            while let Some(ticket) = self.first_issued(node, resource) {
                self.remove_ticket(ticket);
            }
            while let Some(ticket) = self.first_backing(node, resource) {
                self.remove_ticket(ticket);
            }
        }
        for pool in self.nodes[node].pools.into_iter().filter(|&pool| pool != NONE) {
            self.pools.remove(pool);
        }
        self.dirty.retain(|&(dirty, _)| dirty != node);
        if let Some(bounded) = self.bounded.get_mut(&self.nodes[node].broker.owner) {
            bounded.owned.remove(&node);
        }
        self.emptied.remove(&node);
        self.mark_end(node);
        self.nodes.remove(node);
    }

    fn op_set_mode(
        &mut self,
        caller: &Caller,
        currency: CurrencyId,
        mode: crate::broker::Mode,
    ) -> Result<(), Refusal> {
        let node = self.node(currency)?;
        if !caller.superuser && caller.uid != self.nodes[node].broker.owner {
            return Err(Refusal::NotOwner(currency));
        }
        self.nodes[node].broker.mode = mode;
        Ok(())
    }

    fn op_set_owner(
        &mut self,
        caller: &Caller,
        currency: CurrencyId,
        owner: u32,
        group: u32,
    ) -> Result<(), Refusal> {
        let node = self.inner(currency)?;
        let before = self.nodes[node].broker.owner;
        if !caller.superuser {
            if caller.uid != before {
                return Err(Refusal::NotOwner(currency));
            }
            if owner != before || !caller.groups.contains(&group) {
                return Err(Refusal::NotYourIds);
            }
        }
        self.nodes[node].broker.owner = owner;
        self.nodes[node].broker.group = group;
        if let Some(bounded) = self.bounded.get_mut(&before) {
            bounded.owned.remove(&node);
        }
        if let Some(bounded) = self.bounded.get_mut(&owner) {
            bounded.owned.insert(node);
        }
        Ok(())
    }

    fn op_set_hard_total(
        &mut self,
        caller: &Caller,
        currency: CurrencyId,
        resource: Resource,
        total: Amount,
    ) -> Result<(), Refusal> {
        let node = self.node(currency)?;
        self.check_permission(caller, node, Permission::Issue)?;
        if self.nodes[node].kind == NodeKind::Client {
            return Err(Refusal::ClientsDoNotIssue(currency));
        }
        let issued = self.pool(node, resource).map_or(0, |pool| pool.issued_hard);
        if total.raw() < issued {
            return Err(Refusal::HardExhausted { left: 0 });
        }
        self.pool_mut(node, resource).hard_total = total.raw();
        self.touch(node, resource);
        Ok(())
    }

    // Looking things up.

    fn node(&self, id: CurrencyId) -> Result<u32, Refusal> {
        self.nodes.find(id.slot, id.generation).ok_or(Refusal::UnknownCurrency(id))
    }

    /// A node that is not the base.
    fn inner(&self, id: CurrencyId) -> Result<u32, Refusal> {
        match self.node(id)? {
            BASE => Err(Refusal::BaseCurrency),
            node => Ok(node),
        }
    }

    fn client(&self, id: CurrencyId) -> Result<u32, Refusal> {
        let node = self.node(id)?;
        if self.nodes[node].kind == NodeKind::Client { Ok(node) } else { Err(Refusal::NotAClient(id)) }
    }

    fn currency_id(&self, node: u32) -> CurrencyId {
        CurrencyId { slot: node, generation: self.nodes.generation(node) }
    }

    fn check_permission(&self, caller: &Caller, node: u32, permission: Permission) -> Result<(), Refusal> {
        if self.nodes[node].broker.allows(caller, permission) {
            return Ok(());
        }
        Err(Refusal::Denied { currency: self.currency_id(node), permission })
    }

    /// Room for so many more nodes and tickets, and the pools that these need.
    fn check_room(&self, nodes: usize, tickets: usize) -> Result<(), Refusal> {
        let room = self.nodes.has_room(nodes)
            && self.tickets.has_room(tickets)
            && self.pools.has_room(2 * tickets + 6 * nodes + 6);
        if room { Ok(()) } else { Err(Refusal::Full) }
    }

    fn pool(&self, node: u32, resource: Resource) -> Option<&Pool> {
        match self.nodes[node].pools[resource.index()] {
            NONE => None,
            pool => Some(&self.pools[pool]),
        }
    }

    fn pool_mut(&mut self, node: u32, resource: Resource) -> &mut Pool {
        let mut pool = self.nodes[node].pools[resource.index()];
        if pool == NONE {
            pool = self.pools.insert(Pool {
                issued_soft: 0,
                active_soft: 0,
                issued_hard: 0,
                hard_total: HARD_TOTAL_DEFAULT,
                active_issued: 0,
                backing: NONE,
                issued: NONE,
                rare: None,
                cache: None,
            });
            self.nodes[node].pools[resource.index()] = pool;
        }
        &mut self.pools[pool]
    }

    fn rare(&self, node: u32, resource: Resource) -> Option<&Rare> {
        self.pool(node, resource)?.rare.as_deref()
    }

    fn rare_mut(&mut self, node: u32, resource: Resource) -> &mut Rare {
        self.pool_mut(node, resource).rare.get_or_insert_default()
    }

    fn issues_any(&self, node: u32) -> bool {
        Resource::ALL.iter().any(|&resource| self.first_issued(node, resource).is_some())
    }
}
