//! Random courses of a site of real markets: offers, classes, messages lost, doubled, late and out of order, clocks that tell
//! different times, nodes and a dealer that are away, restart and lose what they had.

mod node;

use divvy_market::{Amount, Moment, Resource};
use divvy_site::{
    Agent, Dealer, ExchangeId, Lease, Market as _, NodeId, Orders, Phase, PlaceId, Record, Report, Side,
    UserId,
};
use node::{GRANT, Node};
use proptest::prelude::*;
use std::collections::BTreeMap;

const HALF: u64 = 40;
const LEASE: Lease = Lease::new(2 * HALF);
const NODES: u32 = 4;
const USERS: u32 = 5;
/// Takes no part in anything.
const BYSTANDER: UserId = UserId(99);
/// The nodes one by one, and then this class of the first two.
const CLASS: PlaceId = PlaceId(NODES);

#[derive(Clone, Debug)]
enum Event {
    Pass(u64),
    Offer {
        user: u32,
        give: (u32, Resource),
        want: (u32, Resource),
        rate: u64,
    },
    Withdraw(usize),
    Cancel(usize),
    Send(u32),
    /// Messages go out to everybody and arrive at once, answers too.
    Round,
    Orders {
        nth: usize,
        keep: bool,
    },
    Report {
        nth: usize,
        keep: bool,
    },
    NodeAway(u32),
    NodeBack(u32),
    EmptyNode(u32),
    EndOn(u32, usize),
    RestartDealer,
    EmptyDealer,
}

fn side() -> impl Strategy<Value = (u32, Resource)> {
    (0..=NODES, prop_oneof![Just(Resource::Cpu), Just(Resource::Memory)])
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (1..HALF / 3).prop_map(Event::Pass),
        5 => (0..USERS, side(), side(), 1..3u64).prop_map(|(user, give, want, rate)| Event::Offer { user, give, want, rate }),
        1 => any::<usize>().prop_map(Event::Withdraw),
        1 => any::<usize>().prop_map(Event::Cancel),
        6 => (0..NODES).prop_map(Event::Send),
        8 => Just(Event::Round),
        10 => (any::<usize>(), any::<bool>()).prop_map(|(nth, keep)| Event::Orders { nth, keep }),
        10 => (any::<usize>(), any::<bool>()).prop_map(|(nth, keep)| Event::Report { nth, keep }),
        1 => (0..NODES).prop_map(Event::NodeAway),
        2 => (0..NODES).prop_map(Event::NodeBack),
        1 => (0..NODES).prop_map(Event::EmptyNode),
        1 => (0..NODES, any::<usize>()).prop_map(|(node, nth)| Event::EndOn(node, nth)),
        1 => Just(Event::RestartDealer),
        1 => Just(Event::EmptyDealer),
    ]
}

struct Site {
    now: u64,
    dealer: Dealer,
    term: u64,
    records: Vec<Record>,
    nodes: Vec<(Agent, Node, bool)>,
    orders: Vec<(usize, Orders)>,
    reports: Vec<Report>,
    /// The nodes of every exchange that there ever was, and since when only some of them give.
    parts: BTreeMap<ExchangeId, Vec<usize>>,
    one_sided: BTreeMap<ExchangeId, u64>,
}

impl Site {
    fn new() -> Self {
        let nodes = (0..NODES).map(|node| (Agent::new(NodeId(node)), populated(), true)).collect();
        let mut site = Self {
            now: 1000,
            dealer: Dealer::new(0, LEASE, Moment(0)),
            term: 0,
            records: Vec::new(),
            nodes,
            orders: Vec::new(),
            reports: Vec::new(),
            parts: BTreeMap::new(),
            one_sided: BTreeMap::new(),
        };
        site.begin_term();
        site
    }

    fn begin_term(&mut self) {
        self.term += 1;
        self.dealer = Dealer::new(self.term, LEASE, Moment(self.now));
        for node in 0..NODES {
            self.dealer.set_place(Moment(self.now), PlaceId(node), vec![NodeId(node)]);
        }
        self.dealer.set_place(Moment(self.now), CLASS, vec![NodeId(0), NodeId(1)]);
        self.records = self.dealer.take_records();
    }

    /// Each node's clock tells another time.
    fn clock(&self, node: usize) -> Moment {
        Moment(self.now + 7000 * node as u64)
    }

    fn deliver(&mut self, node: usize, orders: &Orders) {
        let now = self.clock(node);
        let (agent, market, up) = &mut self.nodes[node];
        if *up {
            agent.on_orders(now, orders, market);
            self.reports.push(agent.report(now));
        }
    }

    fn send(&self, node: usize) -> Orders {
        self.dealer.orders(Moment(self.now), NodeId(node as u32))
    }

    fn round(&mut self) {
        for node in 0..self.nodes.len() {
            let orders = self.send(node);
            self.deliver(node, &orders);
            if self.nodes[node].2 {
                let report = self.reports.pop().expect("it answered");
                self.dealer.on_report(Moment(self.now), &report);
                self.keep_records();
            }
        }
    }

    fn pass(&mut self, ns: u64) {
        for _ in 0..ns {
            self.now += 1;
            for node in 0..self.nodes.len() {
                let now = self.clock(node);
                let (agent, market, up) = &mut self.nodes[node];
                if *up && agent.next_ending().is_some_and(|ending| ending <= now) {
                    agent.on_time(now, market);
                }
            }
            self.check_sides();
        }
        self.dealer.on_time(Moment(self.now));
    }

    fn apply(&mut self, event: &Event) {
        let now = Moment(self.now);
        match *event {
            Event::Pass(ns) => self.pass(ns),
            Event::Offer { user, give, want, rate } => {
                let side = |(place, resource): (u32, Resource), amount| Side {
                    place: PlaceId(place),
                    resource,
                    amount: Amount::new(amount).unwrap(),
                };
                let (gives, wants) = (side(give, 300), side(want, 300 * rate.min(2)));
                // Some are of one and the same resource and place.
                let _ =
                    self.dealer.offer(now, UserId(user), gives, wants, Some(Moment(self.now + 20 * HALF)));
            }
            Event::Withdraw(nth) => {
                let offer = self.dealer.offers().nth(nth % 7).map(|(id, offer)| (id, offer.user));
                if let Some((id, user)) = offer {
                    self.dealer.withdraw(now, user, id).unwrap();
                }
            }
            Event::Cancel(nth) => {
                let all: Vec<_> = self.dealer.exchanges().map(|(n, e)| (n, e.offers[0].1.user)).collect();
                if let Some(&(number, user)) = all.get(nth % 7) {
                    let _ = self.dealer.cancel(now, user, number);
                }
            }
            Event::Send(node) => self.orders.push((node as usize, self.send(node as usize))),
            Event::Round => self.round(),
            Event::Orders { nth, keep } if !self.orders.is_empty() => {
                let nth = nth % self.orders.len();
                let (node, orders) = self.orders[nth].clone();
                self.deliver(node, &orders);
                if !keep {
                    self.orders.remove(nth);
                }
            }
            Event::Report { nth, keep } if !self.reports.is_empty() => {
                let nth = nth % self.reports.len();
                let report = self.reports[nth].clone();
                self.dealer.on_report(now, &report);
                if !keep {
                    self.reports.remove(nth);
                }
            }
            Event::NodeAway(node) => self.nodes[node as usize].2 = false,
            Event::NodeBack(node) => self.restart(node as usize),
            Event::EmptyNode(node) => {
                self.nodes[node as usize] = (Agent::new(NodeId(node)), populated(), true);
            }
            Event::EndOn(node, nth) => {
                let (agent, market, up) = &mut self.nodes[node as usize];
                if let Some(&id) = agent.entries().keys().nth(nth % 3).filter(|_| *up) {
                    agent.end(id, market);
                }
            }
            Event::RestartDealer => {
                self.dealer = Dealer::replay(self.term, LEASE, &self.records, now).unwrap()
            }
            Event::EmptyDealer => self.begin_term(),
            Event::Orders { .. } | Event::Report { .. } => {}
        }
        self.keep_records();
        self.check();
    }

    fn restart(&mut self, node: usize) {
        let now = self.clock(node);
        let (agent, market, up) = &mut self.nodes[node];
        *agent = Agent::restored(NodeId(node as u32), agent.entries().clone());
        agent.on_time(now, market);
        *up = true;
    }

    fn keep_records(&mut self) {
        self.records.extend(self.dealer.take_records());
        self.dealer.take_to_tell();
        for (number, exchange) in self.dealer.exchanges() {
            let nodes = exchange.parts().map(|(node, _)| node.0 as usize).collect();
            self.parts.insert(ExchangeId { term: self.term, number }, nodes);
        }
    }

    fn is_giving(&self, exchange: ExchangeId, node: usize) -> bool {
        self.nodes[node].2 && self.nodes[node].1.moved.contains_key(&exchange)
    }

    /// Both sides of each exchange give, or neither, or that was otherwise a lease ago.
    fn check_sides(&mut self) {
        for (&exchange, nodes) in &self.parts {
            let giving = nodes.iter().filter(|&&node| self.is_giving(exchange, node)).count();
            if giving == 0 || giving == nodes.len() {
                self.one_sided.remove(&exchange);
                continue;
            }
            let since = *self.one_sided.entry(exchange).or_insert(self.now);
            assert!(self.now - since <= 2 * HALF, "{exchange} is one-sided since {since}, now {}", self.now);
        }
    }

    fn check(&mut self) {
        self.check_sides();
        for (agent, market, _) in &mut self.nodes {
            market.market.audit().unwrap();
            // What is given is what was moved.
            let given = agent.entries().iter().filter(|(_, entry)| entry.state == divvy_site::State::Given);
            assert!(given.map(|(id, _)| id).eq(market.moved.keys()));
            for resource in [Resource::Cpu, Resource::Memory] {
                // No ticket is made or lost.
                assert_eq!(market.total(resource), GRANT * u64::from(USERS + 1));
                for user in 0..USERS {
                    let has = GRANT.cast_signed() + market.balance(UserId(user), resource);
                    assert_eq!(market.value(UserId(user), resource), has.to_string(), "user {user}");
                }
                // Whoever takes no part has what it had, of no more in all.
                assert_eq!(market.value(BYSTANDER, resource), GRANT.to_string());
            }
        }
        let again = Dealer::replay(self.term, LEASE, &self.records, Moment(self.now)).unwrap();
        assert_eq!(durable(&again), durable(&self.dealer), "the dealer is its records");
    }

    /// Everybody is there and every message arrives.
    fn calm(&mut self, rounds: u64) {
        for node in 0..self.nodes.len() {
            self.restart(node);
        }
        for _ in 0..rounds {
            self.round();
            self.pass(HALF / 4);
        }
        self.check();
    }
}

/// A node on which everybody is there and computes.
fn populated() -> Node {
    let mut node = Node::default();
    for user in (0..USERS).map(UserId).chain([BYSTANDER]) {
        node.user(user);
    }
    node
}

type Durable = (Vec<String>, Vec<String>);

fn durable(dealer: &Dealer) -> Durable {
    let parts =
        |exchange: &divvy_site::Exchange| exchange.parts().map(|p| format!("{p:?}")).collect::<Vec<_>>();
    let exchanges = dealer
        .exchanges()
        .map(|(n, e)| format!("{n} {:?} {:?} {:?} {:?}", e.offers, e.phase, e.since, parts(e)));
    (dealer.offers().map(|offer| format!("{offer:?}")).collect(), exchanges.collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn both_sides_or_none_and_nobody_else_is_touched(events in prop::collection::vec(event(), 1..200)) {
        let mut site = Site::new();
        site.round();
        for event in &events {
            site.apply(event);
        }
        // In calm all that is not over is in effect, on every node, and nothing else is.
        site.calm(30);
        for (_, exchange) in site.dealer.exchanges() {
            prop_assert_eq!(exchange.phase, Phase::Active);
        }
        let in_effect: usize = site.dealer.exchanges().map(|(_, exchange)| exchange.parts().count()).sum();
        let moved: usize = site.nodes.iter().map(|(_, market, _)| market.moved.len()).sum();
        prop_assert_eq!(in_effect, moved);
        // And when the dealer is gone, all is as it was, after a lease.
        site.pass(2 * HALF);
        for (agent, market, _) in &mut site.nodes {
            prop_assert!(agent.entries().is_empty());
            for user in (0..USERS).map(UserId).chain([BYSTANDER]) {
                prop_assert_eq!(market.value(user, Resource::Cpu), GRANT.to_string());
            }
        }
    }
}

/// Two users trade, and a third keeps its third of the node that neither is on.
#[test]
fn an_exchange_runs_its_course() {
    let mut site = Site::new();
    site.round();
    let side = |place, amount| Side {
        place: PlaceId(place),
        resource: Resource::Cpu,
        amount: Amount::new(amount).unwrap(),
    };
    let (class, node) = (side(CLASS.0, 300), side(2, 400));
    site.dealer.offer(Moment(site.now), UserId(0), class, node, None).unwrap();
    let other = site.dealer.offer(Moment(site.now), UserId(3), side(2, 500), class, None).unwrap();
    // At another rate nothing is matched, and the rate is told.
    assert_eq!(site.dealer.exchanges().count(), 0);
    let mine = divvy_site::Offer { user: UserId(0), gives: class, wants: node, until: None };
    assert_eq!(site.dealer.conflicts(&mine), [other]);
    site.dealer.offer(Moment(site.now), UserId(1), node, class, None).unwrap();
    site.keep_records();
    site.calm(3);
    let value = |site: &mut Site, node: usize, user| site.nodes[node].1.value(UserId(user), Resource::Cpu);
    for node in [0, 1] {
        assert_eq!((value(&mut site, node, 0), value(&mut site, node, 1)), ("700".into(), "1300".into()));
    }
    assert_eq!((value(&mut site, 2, 0), value(&mut site, 2, 1)), ("1400".into(), "600".into()));
    assert_eq!((value(&mut site, 3, 0), value(&mut site, 3, 1)), ("1000".into(), "1000".into()));
    let phases: Vec<Phase> = site.dealer.exchanges().map(|(_, exchange)| exchange.phase).collect();
    assert_eq!(phases, [Phase::Active]);
    // One node of the class is away for a lease: all three end.
    site.nodes[1].2 = false;
    for _ in 0..8 {
        site.pass(HALF / 4);
        site.round();
    }
    site.keep_records();
    for (_, market, _) in [&site.nodes[0], &site.nodes[2]] {
        assert!(market.moved.is_empty());
    }
    site.restart(1);
    assert!(site.nodes[1].1.moved.is_empty());
}

/// Who does not have what it would give has its offer ended; the other's waits on.
#[test]
fn an_offer_that_is_not_covered_ends() {
    let mut site = Site::new();
    site.round();
    let side = |place, amount| Side {
        place: PlaceId(place),
        resource: Resource::Disk,
        amount: Amount::new(amount).unwrap(),
    };
    let poor = site.dealer.offer(Moment(site.now), UserId(0), side(0, 1001), side(1, 5), None).unwrap();
    let other = site.dealer.offer(Moment(site.now), UserId(1), side(1, 5), side(0, 1001), None).unwrap();
    site.keep_records();
    site.calm(3);
    assert_eq!(site.dealer.exchanges().count(), 0);
    assert_eq!(site.dealer.offers().map(|(id, _)| id).collect::<Vec<_>>(), [other]);
    let lapsed = |record: &&Record| matches!(record, Record::Lapsed { offer, .. } if *offer == poor);
    assert_eq!(site.records.iter().filter(lapsed).count(), 1);
    // Two exchanges of what one user has only once: one of them is held.
    for (user, back) in [(2, 3), (3, 2)] {
        site.dealer.offer(Moment(site.now), UserId(user), side(user, 700), side(back, 700), None).unwrap();
    }
    assert_eq!(site.dealer.exchanges().count(), 1);
    let (legs, id) = (
        vec![divvy_site::Leg {
            giver: UserId(0),
            taker: UserId(1),
            resource: Resource::Disk,
            amount: Amount::new(600).unwrap(),
        }],
        ExchangeId { term: 9, number: 9 },
    );
    let market = &mut site.nodes[0].1;
    market.give(id, &legs).unwrap();
    assert!(market.give(ExchangeId { term: 9, number: 10 }, &legs).is_err());
    assert_eq!(market.moved.len(), 1);
    assert!(market.check(&legs[0], 0).is_err(), "400 are left");
}

/// Records of which one is missing, comes twice or is of something else are told, by the first that does not follow.
#[test]
fn records_that_do_not_follow_are_told() {
    let mut site = Site::new();
    site.round();
    let side =
        |place| Side { place: PlaceId(place), resource: Resource::Cpu, amount: Amount::new(5).unwrap() };
    site.dealer.offer(Moment(site.now), UserId(0), side(0), side(1), None).unwrap();
    site.dealer.offer(Moment(site.now), UserId(1), side(1), side(0), None).unwrap();
    site.keep_records();
    site.calm(3);
    let number = site.dealer.exchanges().next().unwrap().0;
    site.dealer.cancel(Moment(site.now), UserId(0), number).unwrap();
    site.keep_records();
    site.calm(3);
    let replay = |records: &[Record]| Dealer::replay(site.term, LEASE, records, Moment(site.now));
    let all = &site.records;
    assert!(replay(all).is_ok() && matches!(all.last(), Some(Record::Over { .. })), "{all:?}");
    let first = all.iter().position(|record| !matches!(record, Record::Place { .. })).unwrap();
    for index in first..all.len() {
        let mut twice = all.clone();
        twice.insert(index, all[index].clone());
        assert_eq!(replay(&twice).unwrap_err().index, index + 1, "{:?} twice", all[index]);
        let mut missing = all.clone();
        missing.remove(index);
        // An exchange may be cancelled before it began; and the last may be still to come.
        let follows = index + 1 == all.len() || matches!(all[index], Record::Began { .. });
        assert_eq!(replay(&missing).is_ok(), follows, "without {:?}", all[index]);
    }
    let far = Record::Offered {
        offer: divvy_site::OfferId(u64::MAX),
        user: UserId(0),
        gives: side(0),
        wants: side(1),
        until: None,
    };
    assert_eq!(replay(&[far]).unwrap_err().index, 0);
}
