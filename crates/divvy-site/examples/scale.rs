//! What a site of 1,000 nodes and 10,000 users costs its dealer, and how long a change takes to be everywhere.
//!
//! `cargo run --release -p divvy-site --example scale [NODES USERS]` simulates it: each node has a real `divvy-market`, messages
//! take .1 to 1 ms, one of a hundred is lost. Times of the site are simulated; what the dealer takes is measured.

#[path = "../tests/node/mod.rs"]
mod node;

use divvy_market::{Amount, Moment, Resource};
use divvy_policy::dispatch::rng::SplitMix64;
use divvy_site::{
    Agent, Dealer, ExchangeId, Lease, NodeId, Orders, PlaceId, Record, Report, Side, State, UserId,
};
use node::Node;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;
const LEASE_NS: u64 = 10 * S;
/// Between messages of the dealer to one node.
const BEAT_NS: u64 = LEASE_NS / 16;
const LOST_PERCENT: u64 = 1;
/// Offers come in this time.
const OFFERS_NS: u64 = 10 * S;

enum Event {
    Beat(usize),
    Orders(usize, Orders),
    Report(Report),
    Offer(UserId, Side, Side),
}

#[derive(Default)]
struct Cost {
    took: Duration,
    calls: u32,
}

impl Cost {
    #[expect(clippy::disallowed_methods, reason = "this program measures time, and decides nothing by it")]
    fn of<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let begun = std::time::Instant::now();
        let done = work();
        self.took += begun.elapsed();
        self.calls += 1;
        done
    }

    fn us(&self) -> f64 {
        self.took.as_secs_f64() * 1e6 / f64::from(self.calls.max(1))
    }
}

struct Site {
    now: u64,
    dealer: Dealer,
    records: Vec<Record>,
    nodes: Vec<(Agent, Node)>,
    /// Nodes that nobody reaches.
    away: Vec<bool>,
    events: BinaryHeap<Reverse<(u64, u64, usize)>>,
    bodies: BTreeMap<usize, Event>,
    sent: usize,
    random: SplitMix64,
    offering: Cost,
    ordering: Cost,
    reporting: Cost,
    messages: u64,
    /// When each exchange was matched, and when it was on so many of its nodes.
    matched: BTreeMap<u64, u64>,
    on: BTreeMap<u64, usize>,
    begun: BTreeMap<u64, u64>,
}

impl Site {
    fn new(nodes: usize) -> Self {
        let mut dealer = Dealer::new(1, Lease::new(LEASE_NS), Moment(0));
        for node in 0..nodes as u32 {
            dealer.set_place(Moment(0), PlaceId(node), vec![NodeId(node)]);
        }
        let all = (0..nodes as u32).map(NodeId).collect();
        dealer.set_place(Moment(0), PlaceId(nodes as u32), all);
        let mut site = Self {
            now: 0,
            dealer,
            records: Vec::new(),
            nodes: (0..nodes as u32).map(|node| (Agent::new(NodeId(node)), Node::default())).collect(),
            away: vec![false; nodes],
            events: BinaryHeap::new(),
            bodies: BTreeMap::new(),
            sent: 0,
            random: SplitMix64::new(1),
            offering: Cost::default(),
            ordering: Cost::default(),
            reporting: Cost::default(),
            messages: 0,
            matched: BTreeMap::new(),
            on: BTreeMap::new(),
            begun: BTreeMap::new(),
        };
        for node in 0..nodes {
            let at = site.random.below(BEAT_NS);
            site.at(at, Event::Beat(node));
        }
        site
    }

    fn at(&mut self, at: u64, event: Event) {
        self.sent += 1;
        self.events.push(Reverse((at, self.sent as u64, self.sent)));
        self.bodies.insert(self.sent, event);
    }

    fn post(&mut self, node: usize, event: Event) {
        self.messages += 1;
        if !self.away[node] && self.random.below(100) >= LOST_PERCENT {
            let at = self.now + MS / 10 + self.random.below(MS * 9 / 10);
            self.at(at, event);
        }
    }

    fn send(&mut self, node: usize) {
        let (now, dealer) = (Moment(self.now), &self.dealer);
        let orders = self.ordering.of(|| dealer.orders(now, NodeId(node as u32)));
        self.post(node, Event::Orders(node, orders));
    }

    /// Makes records durable (here: keeps them), and tells at once whom they concern.
    fn follow(&mut self) {
        let records = self.dealer.take_records();
        for record in &records {
            if let Record::Matched { exchange, .. } = record {
                self.matched.insert(*exchange, self.now);
            }
        }
        self.records.extend(records);
        for node in self.dealer.take_to_tell() {
            self.send(node.0 as usize);
        }
    }

    fn run(&mut self, until: u64) {
        while let Some(&Reverse((at, _, body))) = self.events.peek()
            && at <= until
        {
            self.events.pop();
            self.now = at;
            match self.bodies.remove(&body).expect("it is taken once") {
                Event::Beat(node) => {
                    self.send(node);
                    self.at(at + BEAT_NS, Event::Beat(node));
                }
                Event::Orders(node, orders) => self.deliver(node, &orders),
                Event::Report(report) => {
                    let dealer = &mut self.dealer;
                    self.reporting.of(|| dealer.on_report(Moment(at), &report));
                    self.follow();
                }
                Event::Offer(user, gives, wants) => {
                    let dealer = &mut self.dealer;
                    let done = self.offering.of(|| dealer.offer(Moment(at), user, gives, wants, None));
                    done.expect("places are there");
                    self.follow();
                }
            }
        }
        self.now = until;
    }

    fn deliver(&mut self, node: usize, orders: &Orders) {
        let now = self.now;
        let (agent, market) = &mut self.nodes[node];
        let given = |agent: &Agent| {
            let given = agent.entries().iter().filter(|(_, entry)| entry.state == State::Given);
            given.map(|(id, _)| *id).collect::<Vec<ExchangeId>>()
        };
        let before = given(agent);
        agent.on_orders(Moment(now), orders, market);
        for id in given(agent).into_iter().filter(|id| !before.contains(id)) {
            *self.on.entry(id.number).or_default() += 1;
            self.begun.insert(id.number, now);
        }
        let report = agent.report(Moment(now));
        self.post(node, Event::Report(report));
    }

    /// From the match to the last node that gives, of the exchanges from `first` on: half of them, 99 %, all; ms.
    fn spread(&self, first: u64) -> (usize, f64, f64, f64) {
        let took = self.begun.range(first..).map(|(number, at)| at - self.matched[number]);
        let mut took: Vec<u64> = took.collect();
        took.sort_unstable();
        let ms = |nth: usize| took[nth.min(took.len() - 1)] as f64 / MS as f64;
        (took.len(), ms(took.len() / 2), ms(took.len() * 99 / 100), ms(took.len()))
    }

    fn gives_somewhere(&self, number: u64) -> usize {
        let of = |(agent, _): &&(Agent, Node)| {
            agent.entries().iter().any(|(id, entry)| id.number == number && entry.state == State::Given)
        };
        self.nodes.iter().filter(of).count()
    }
}

fn side(place: u64, amount: u64) -> Side {
    let amount = Amount::new(amount).expect("a small number");
    Side { place: PlaceId(place as u32), resource: Resource::Cpu, amount }
}

fn main() {
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let (nr_nodes, nr_users) = (numbers.first().map_or(1000, |n| *n), numbers.get(1).map_or(10_000, |n| *n));
    let mut site = Site::new(nr_nodes);
    site.run(2 * S);
    println!(
        "{nr_nodes} nodes, {nr_users} users; a lease of {} s, a message to each node every {} ms",
        LEASE_NS / S,
        BEAT_NS / MS
    );

    // Everybody trades with somebody, 100 tickets on one node for 100 on another.
    for pair in 0..nr_users as u64 / 2 {
        let (a, b) = (site.random.below(nr_nodes as u64), site.random.below(nr_nodes as u64 - 1));
        let b = if b >= a { b + 1 } else { b };
        for (user, gives, wants) in [(2 * pair, a, b), (2 * pair + 1, b, a)] {
            let at = site.now + site.random.below(OFFERS_NS);
            site.at(at, Event::Offer(UserId(user as u32), side(gives, 100), side(wants, 100)));
        }
    }
    site.run(site.now + OFFERS_NS + S);
    let (nr, half, most, all) = site.spread(0);
    println!(
        "exchanges of two nodes: {nr} begun; from the match to both nodes: {half:.1} ms half, {most:.1} ms 99 %, {all:.1} ms all"
    );
    println!("an offer takes the dealer {:.1} us with its match", site.offering.us());

    // The quiet site, for ten seconds.
    (site.ordering, site.reporting, site.messages) = (Cost::default(), Cost::default(), 0);
    site.run(site.now + 10 * S);
    let busy = (site.ordering.took + site.reporting.took).as_secs_f64() / 10.0;
    println!(
        "in quiet: {} messages a second, {:.1} us to make orders, {:.1} us to take a report in: {:.2} % of one CPU",
        site.messages / 10,
        site.ordering.us(),
        site.reporting.us(),
        busy * 100.0
    );

    // Two users trade on every node.
    let (first, messages) = (site.matched.len() as u64, site.messages);
    let strangers = [nr_users as u32, nr_users as u32 + 1].map(UserId);
    let class = side(nr_nodes as u64, 50);
    let memory = Side { resource: Resource::Memory, ..class };
    for (user, gives, wants) in [(strangers[0], class, memory), (strangers[1], memory, class)] {
        site.at(site.now, Event::Offer(user, gives, wants));
    }
    site.run(site.now + 5 * S);
    let (_, _, _, all) = site.spread(first);
    println!("an exchange on every node: on {} of them, the last after {all:.1} ms", site.on[&first]);
    let beats = 2 * nr_nodes as u64 * 5 * S / BEAT_NS;
    println!("  {} messages for it beside the usual", (site.messages - messages).saturating_sub(beats));

    // One node goes away: what it has a part in ends everywhere, the exchange on every node among it.
    site.away[0] = true;
    let from = site.now;
    while site.gives_somewhere(first) > 1 && site.now < from + 4 * LEASE_NS {
        site.run(site.now + 100 * MS);
    }
    println!("a node is away: the others have ended {:.1} s later", (site.now - from) as f64 / S as f64);

    // A dealer that starts again from its records.
    site.follow();
    let mut replay = Cost::default();
    let records = &site.records;
    site.dealer =
        replay.of(|| Dealer::replay(1, Lease::new(LEASE_NS), records, Moment(site.now)).expect("its own"));
    println!("{} records, replayed in {:.1} ms", site.records.len(), replay.us() / 1000.0);
    let before = site.dealer.exchanges().count();
    site.run(site.now + LEASE_NS);
    println!("of {before} exchanges {} are there a lease later", site.dealer.exchanges().count());
}
