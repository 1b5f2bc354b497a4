//! Random operations on a market, and what must hold after each of them.
//!
//! The test of laws and the stress run share this. Everything about a market is asked through its public views, and
//! values are worked out by another library's fractions, so that a slip in the market's own sums cannot hide.
#![allow(dead_code, reason = "each user of this takes its part")]

use divvy_market::{
    Amount, Broker, Caller, CurrencyId, ExchangeId, ExchangeView, Kind, Made, Market, Mode, Moment, OfferId,
    Op, Outcome, PARTS_PER_TICKET, Presence, Refusal, Resource, Resources, Side, TicketId, TicketView,
};
use divvy_policy::dispatch::rng::SplitMix64;
use num_bigint::BigInt;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

pub type Exact = num_rational::Ratio<BigInt>;

/// Users 1 to 4 are in groups 10 to 13 and, all but the last, in 20.
const USERS: u64 = 4;

/// A source of numbers: from a seed, or bytes that somebody chose.
pub enum Numbers {
    Seeded(SplitMix64),
    /// The bytes, and how many of them were used.
    Told(Vec<u8>, usize),
}

impl Numbers {
    pub const fn seeded(seed: u64) -> Self {
        Self::Seeded(SplitMix64::new(seed))
    }

    pub fn next(&mut self) -> u64 {
        match self {
            Self::Seeded(rng) => rng.next_u64(),
            Self::Told(..) => (0..8).fold(0, |n, _| n << 8 | u64::from(self.byte())),
        }
    }

    /// The next byte that was told; 0 once there is none.
    fn byte(&mut self) -> u8 {
        let Self::Told(bytes, used) = self else { return self.next() as u8 };
        *used += 1;
        bytes.get(*used - 1).copied().unwrap_or(0)
    }

    /// Whether all that was told is used up.
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Told(bytes, used) if *used >= bytes.len())
    }

    /// From 0 to `end`, that not included. Of what is told it takes as few bytes as will do, so that a byte that
    /// changes changes one thing.
    pub fn below(&mut self, end: u64) -> u64 {
        match self {
            Self::Seeded(_) => self.next() % end,
            Self::Told(..) if end <= 1 << 8 => u64::from(self.byte()) % end,
            Self::Told(..) => (u64::from(self.byte()) << 8 | u64::from(self.byte())) % end,
        }
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        if from.is_empty() { None } else { Some(from[self.below(from.len() as u64) as usize]) }
    }
}

/// How large a market is allowed to grow.
#[derive(Clone, Copy)]
pub struct Size {
    pub currencies: usize,
    pub clients: usize,
    pub tickets: usize,
}

/// A market and the ids that were made in it, some of which may have ended.
pub struct World {
    pub market: Market,
    pub size: Size,
    pub currencies: Vec<CurrencyId>,
    pub clients: Vec<CurrencyId>,
    pub tickets: Vec<TicketId>,
    pub exchanges: Vec<ExchangeId>,
    pub offers: Vec<OfferId>,
    clock: u64,
}

impl World {
    pub fn new(size: Size) -> Self {
        let market = Market::new();
        let currencies = vec![market.base()];
        let (clients, tickets, exchanges, offers) = Default::default();
        Self { market, size, currencies, clients, tickets, exchanges, offers, clock: 0 }
    }

    /// Somebody and something to do, mostly sensible.
    pub fn draw(&mut self, numbers: &mut Numbers) -> (Caller, Op) {
        let op = self.draw_op(numbers);
        let uid = numbers.below(USERS) as u32 + 1;
        let mut groups = vec![uid + 9];
        if uid < 4 {
            groups.push(20);
        }
        let caller = if numbers.below(3) > 0 { Caller::superuser() } else { Caller::user(uid, groups) };
        (caller, op)
    }

    fn draw_op(&mut self, numbers: &mut Numbers) -> Op {
        let kind = numbers.below(100);
        let crowded = self.currencies.len() > self.size.currencies || self.clients.len() > self.size.clients;
        let full = self.tickets.len() > self.size.tickets;
        match kind {
            _ if crowded && kind < 40 => Op::Destroy { currency: self.some_node(numbers) },
            _ if full && kind < 40 => Op::Unfund { ticket: self.some_ticket(numbers) },
            0..=2 => Op::CreateCurrency { broker: broker(numbers) },
            3..=6 => {
                let competes =
                    [Resources::ALL, Resources::NONE.with(Resource::Cpu)][numbers.below(2) as usize];
                Op::CreateClient { broker: broker(numbers), competes }
            }
            7..=36 => self.draw_fund(numbers),
            37..=44 => Op::SetAmount { ticket: self.some_ticket(numbers), amount: amount(numbers) },
            45..=50 => Op::Unfund { ticket: self.some_ticket(numbers) },
            51..=64 => {
                let presence = [Presence::Idle, Presence::Competing][numbers.below(2) as usize];
                Op::SetPresence { client: self.some_client(numbers), resource: resource(numbers), presence }
            }
            65..=68 => Op::Wait {
                client: self.some_client(numbers),
                holder: self.some_node(numbers),
                resource: resource(numbers),
            },
            69..=79 => {
                let (a_gives, b_gives) = sides(numbers);
                let (a, b) = (self.some_giver(numbers, a_gives), self.some_giver(numbers, b_gives));
                Op::Exchange { a, a_gives, b, b_gives }
            }
            80..=85 => {
                self.clock += numbers.below(4);
                let (gives, wants) = sides(numbers);
                let until = (numbers.below(2) == 0).then(|| Moment(self.clock + numbers.below(40)));
                Op::Offer {
                    party: self.some_giver(numbers, gives),
                    gives,
                    wants,
                    now: Moment(self.clock),
                    until,
                }
            }
            86..=88 => self.draw_nice(numbers),
            _ => self.draw_rare(numbers),
        }
    }

    fn draw_fund(&mut self, numbers: &mut Numbers) -> Op {
        let kinds = [Kind::Soft, Kind::Soft, Kind::Soft, Kind::Hard];
        Op::Fund {
            holder: self.some_node(numbers),
            issuer: self.some_issuer(numbers),
            resource: resource(numbers),
            amount: amount(numbers),
            kind: kinds[numbers.below(4) as usize],
        }
    }

    fn draw_nice(&mut self, numbers: &mut Numbers) -> Op {
        // Of those that `nice` made there are few: most others are refused.
        let niced = self
            .currencies
            .iter()
            .filter(|id| self.market.currency(**id).is_some_and(|currency| currency.niced_from.is_some()));
        let niced: Vec<CurrencyId> = niced.copied().collect();
        if numbers.below(3) == 0
            && let Some(currency) = numbers.pick(&niced).or_else(|| numbers.pick(&self.currencies))
        {
            return Op::Renice { currency, amount: amount(numbers) };
        }
        Op::Nice {
            client: self.some_client(numbers),
            from: numbers.pick(&self.currencies).unwrap_or(self.market.base()),
            resource: resource(numbers),
            amount: amount(numbers),
        }
    }

    fn draw_rare(&mut self, numbers: &mut Numbers) -> Op {
        let unit = |n: u64| NonZeroU64::new(n).expect("at least one");
        match numbers.below(11) {
            0 => Op::CancelExchange { exchange: numbers.pick(&self.exchanges).unwrap_or(ExchangeId(7)) },
            1 => Op::Withdraw { offer: numbers.pick(&self.offers).unwrap_or(OfferId(7)) },
            2 => {
                self.clock += numbers.below(3);
                Op::Expire { now: Moment(self.clock) }
            }
            3 => Op::Adopt { child: self.some_client(numbers), parent: self.some_client(numbers) },
            4 => Op::SetMode { currency: self.some_node(numbers), mode: mode(numbers) },
            5 => Op::SetOwner {
                currency: self.some_node(numbers),
                owner: numbers.below(USERS) as u32 + 1,
                group: numbers.below(USERS) as u32 + 10,
            },
            6 => Op::SetHardTotal {
                currency: numbers.pick(&self.currencies).unwrap_or(self.market.base()),
                resource: resource(numbers),
                total: Amount::new(numbers.below(2000) + 1).expect("small"),
            },
            7 => Op::SetBound {
                uid: numbers.below(USERS) as u32 + 1,
                resource: resource(numbers),
                bound: (numbers.below(4) > 0).then(|| numbers.below(300)),
            },
            8 => {
                let (used, quantum) = (unit(numbers.below(120) + 1), unit(100));
                let client = self.some_client(numbers);
                Op::Compensate { client, resource: resource(numbers), used, quantum }
            }
            _ => Op::Destroy { currency: self.some_node(numbers) },
        }
    }

    fn some_issuer(&self, numbers: &mut Numbers) -> CurrencyId {
        let base = self.market.base();
        if numbers.below(4) == 0 { base } else { numbers.pick(&self.currencies).unwrap_or(base) }
    }

    /// Mostly one that has what it would give.
    fn some_giver(&mut self, numbers: &mut Numbers, gives: Side) -> CurrencyId {
        let enough = exact(gives.amount.get());
        for _ in 0..6 {
            let node = self.some_node(numbers);
            let value = self.market.value(node, gives.resource).expect("only live ones are kept").to_string();
            if node != self.market.base() && value.parse::<Exact>().expect("a fraction") >= enough {
                return node;
            }
        }
        self.some_node(numbers)
    }

    fn some_client(&self, numbers: &mut Numbers) -> CurrencyId {
        numbers.pick(&self.clients).unwrap_or(self.market.base())
    }

    fn some_node(&self, numbers: &mut Numbers) -> CurrencyId {
        let from = if numbers.below(2) == 0 { &self.clients } else { &self.currencies };
        numbers.pick(from).unwrap_or(self.market.base())
    }

    /// A ticket that is there, mostly: those that are gone are forgotten when they are met.
    fn some_ticket(&mut self, numbers: &mut Numbers) -> TicketId {
        while !self.tickets.is_empty() {
            let at = numbers.below(self.tickets.len() as u64) as usize;
            let ticket = self.tickets[at];
            if self.market.ticket_view(ticket).is_some() {
                return ticket;
            }
            self.tickets.swap_remove(at);
        }
        "99999.7".parse().expect("an id")
    }

    /// Applies and keeps the lists of ids.
    pub fn apply(&mut self, caller: &Caller, op: &Op) -> Result<Outcome, Refusal> {
        let outcome = self.market.apply(caller, op)?;
        match (&outcome.made, op) {
            (Made::Currency(id), Op::CreateClient { .. }) => self.clients.push(*id),
            (Made::Currency(id), _) => self.currencies.push(*id),
            (Made::Ticket(id), _) => self.tickets.push(*id),
            (Made::Tickets(ids), _) => self.tickets.extend(ids),
            (Made::Exchange { exchange, .. }, _) => self.exchanges.push(*exchange),
            (Made::Offer { offer, .. }, _) => self.offers.push(*offer),
            (Made::Nothing, _) => {}
        }
        if let Op::Destroy { currency } = op {
            forget(&mut self.currencies, &[*currency]);
            forget(&mut self.clients, &[*currency]);
        }
        forget(&mut self.currencies, &outcome.ended);
        forget(&mut self.exchanges, &outcome.undone);
        forget(&mut self.offers, &outcome.lapsed);
        if let Made::Exchange { taken: Some(taken), .. } = outcome.made {
            forget(&mut self.offers, &[taken]);
        }
        Ok(outcome)
    }
}

fn forget<T: PartialEq>(list: &mut Vec<T>, gone: &[T]) {
    if !gone.is_empty() {
        list.retain(|id| !gone.contains(id));
    }
}

fn resource(numbers: &mut Numbers) -> Resource {
    // Mostly two of them, so that its graph gets deep.
    Resource::ALL[[0, 0, 2, 2, 1][numbers.below(5) as usize]]
}

fn amount(numbers: &mut Numbers) -> Amount {
    let n = match numbers.below(40) {
        0 => u64::from(u32::MAX),
        1..=8 => numbers.below(5000) + 1,
        _ => numbers.below(60) + 1,
    };
    Amount::new(n).expect("in range")
}

fn sides(numbers: &mut Numbers) -> (Side, Side) {
    let small = |numbers: &mut Numbers| Amount::new([1, 5, 20][numbers.below(3) as usize]).expect("small");
    // Mostly CPU for disk; now and then a resource for itself, which is refused.
    let (one, other) = [(0, 2), (0, 2), (2, 0), (2, 0), (1, 0), (2, 1), (1, 1)][numbers.below(7) as usize];
    let gives = Side { resource: Resource::ALL[one], amount: small(numbers) };
    (gives, Side { resource: Resource::ALL[other], amount: small(numbers) })
}

fn mode(numbers: &mut Numbers) -> Mode {
    Mode::try_from(numbers.below(0o1000) as u16).expect("nine bits")
}

fn broker(numbers: &mut Numbers) -> Broker {
    let owner = numbers.below(USERS) as u32 + 1;
    let mode = if numbers.below(3) == 0 { mode(numbers) } else { Mode::PRIVATE };
    Broker { owner, group: [owner + 9, 20][numbers.below(2) as usize], mode }
}

/// Values worked out from nothing but the views of tickets, exchanges and clients.
pub struct Oracle {
    resource: Resource,
    base: CurrencyId,
    backing: BTreeMap<CurrencyId, Vec<TicketView>>,
    issued: BTreeMap<CurrencyId, Vec<TicketView>>,
    competing: BTreeSet<CurrencyId>,
    hard_left: BTreeMap<CurrencyId, u64>,
    exchanges: Vec<ExchangeView>,
    active: BTreeMap<CurrencyId, bool>,
    values: BTreeMap<CurrencyId, Exact>,
}

fn exact(n: impl Into<BigInt>) -> Exact {
    Exact::from(n.into())
}

impl Oracle {
    pub fn new(market: &Market, resource: Resource) -> Self {
        let mut oracle = Self {
            resource,
            base: market.base(),
            backing: BTreeMap::new(),
            issued: BTreeMap::new(),
            competing: BTreeSet::new(),
            hard_left: BTreeMap::new(),
            exchanges: market.exchanges().collect(),
            active: BTreeMap::new(),
            values: BTreeMap::new(),
        };
        for ticket in market.tickets().filter(|ticket| ticket.resource == resource) {
            oracle.issued.entry(ticket.issuer).or_default().push(ticket.clone());
            oracle.backing.entry(ticket.holder).or_default().push(ticket);
        }
        for node in market.currencies() {
            if node.competes.contains(resource) {
                oracle.competing.insert(node.id);
            }
            oracle.hard_left.extend(market.soft_tix(node.id, resource).map(|left| (node.id, left)));
        }
        oracle
    }

    pub fn active(&mut self, node: CurrencyId) -> bool {
        if let Some(&active) = self.active.get(&node) {
            return active;
        }
        let issued = self.issued.get(&node).cloned().unwrap_or_default();
        let active = self.competing.contains(&node) || issued.iter().any(|ticket| self.active(ticket.holder));
        self.active.insert(node, active);
        active
    }

    /// What `node`'s hard tickets are worth together with what is left for the soft ones: all it issued hard, and left.
    fn hard_total(&self, node: CurrencyId) -> Option<u64> {
        let left = *self.hard_left.get(&node)?;
        let hard = self.issued[&node].iter().filter(|ticket| ticket.kind == Kind::Hard);
        Some(left + hard.map(|ticket| ticket.amount).sum::<u64>())
    }

    pub fn value(&mut self, node: CurrencyId) -> Exact {
        if let Some(value) = self.values.get(&node) {
            return value.clone();
        }
        let mut value = exact(0);
        if self.active(node) {
            for ticket in self.backing.get(&node).cloned().unwrap_or_default() {
                value += self.ticket(&ticket);
            }
            for exchange in &self.exchanges {
                for (giver, taker, side) in
                    [(exchange.a, exchange.b, exchange.a_gives), (exchange.b, exchange.a, exchange.b_gives)]
                {
                    if side.resource == self.resource && giver == node {
                        value -= exact(side.amount.get());
                    }
                    if side.resource == self.resource && taker == node {
                        value += exact(side.amount.get());
                    }
                }
            }
            for ticket in self.issued.get(&node).into_iter().flatten() {
                value += Exact::new(ticket.lodged.into(), PARTS_PER_TICKET.into());
            }
        }
        self.values.insert(node, value.clone());
        value
    }

    fn ticket(&mut self, ticket: &TicketView) -> Exact {
        let TicketView { issuer, amount, kind, .. } = *ticket;
        let total = self.hard_total(issuer);
        if issuer == self.base && total.is_none() {
            return exact(amount);
        }
        let value = if issuer == self.base { exact(total.unwrap_or(0)) } else { self.value(issuer) };
        if kind == Kind::Hard {
            return value * Exact::new(amount.into(), total.expect("it issued one").into());
        }
        let mut soft = 0;
        for other in self.issued[&issuer].clone() {
            if other.kind != Kind::Hard && self.active(other.holder) {
                soft += other.amount;
            }
        }
        let left = total.map_or(exact(1), |total| Exact::new(self.hard_left[&issuer].into(), total.into()));
        value * left * Exact::new(amount.into(), soft.into())
    }
}

/// Every value of `resource` as the market says it.
pub fn values(market: &mut Market, resource: Resource) -> BTreeMap<CurrencyId, String> {
    let ids: Vec<CurrencyId> =
        market.currencies().map(|node| node.id).filter(|&id| id != market.base()).collect();
    ids.into_iter().map(|id| (id, market.value(id, resource).expect("it lives").to_string())).collect()
}

/// Every currency's values are those of the oracle.
pub fn check_values(market: &mut Market) {
    for resource in Resource::ALL {
        let mut oracle = Oracle::new(market, resource);
        for (id, value) in values(market, resource) {
            assert_eq!(value, oracle.value(id).to_string(), "{resource} of {id}");
        }
        let competing: Vec<CurrencyId> = oracle.competing.iter().copied().collect();
        let total: Exact = competing.iter().map(|&id| oracle.value(id)).sum();
        assert_eq!(market.total(resource).to_string(), total.to_string(), "{resource} of all");
        check_apportion(market, resource, &total, &mut oracle);
    }
}

/// Parts add up to the scale, and each is less than one off its exact size.
fn check_apportion(market: &mut Market, resource: Resource, total: &Exact, oracle: &mut Oracle) {
    let scale = 1_000_003u32;
    let parts = market.apportion(resource, scale);
    let mut whole = total.clone();
    let mut weights = Vec::new();
    for &(id, _) in &parts {
        let (value, weight) = (oracle.value(id), market.weight(id, resource).expect("a client"));
        let weight: Exact = weight.to_string().parse().expect("a fraction");
        whole += &weight - value;
        weights.push(weight);
    }
    let sum: u64 = parts.iter().map(|&(_, part)| part).sum();
    assert_eq!(sum, if whole == exact(0) { 0 } else { scale.into() }, "{resource}");
    for ((id, part), weight) in parts.iter().zip(weights) {
        let off = exact(*part) * &whole - weight * exact(scale);
        assert!(off.clone() <= whole && -off <= whole, "{resource} of {id}: {part} of {scale}");
    }
}

/// A market as text: everything that it is, and nothing that it only remembers to be quick.
pub fn written(market: &Market) -> String {
    serde_json::to_string(market).expect("a market can be written")
}

/// `from` and everything that it backs, at any distance, through tickets of `resource`.
pub fn below(market: &Market, from: &[CurrencyId], resource: Resource) -> BTreeSet<CurrencyId> {
    let mut found: BTreeSet<CurrencyId> = from.iter().copied().collect();
    let mut next = from.to_vec();
    while let Some(node) = next.pop() {
        for ticket in market.issued_by(node, resource) {
            if found.insert(ticket.holder) {
                next.push(ticket.holder);
            }
        }
    }
    found
}
