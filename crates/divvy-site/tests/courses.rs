//! Courses of a small site, tick by tick, all of them at first and then the worst: two nodes, one exchange, messages that are
//! lost, late, doubled or out of order, nodes and a dealer that restart or lose all they had. In none does one side give without the other for more than a lease.

use divvy_market::{Amount, Moment, Resource};
use divvy_site::{
    Agent, Dealer, ExchangeId, Lease, Leg, Market, NodeId, Orders, PlaceId, Record, Refusal, Report, Side,
    UserId,
};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};

/// Half a lease is so many ticks.
const HALF: u64 = 3;
const LEASE: Lease = Lease::new(2 * HALF);
/// A node that ceases in one tick has given last in the one before, and what ends with a tick has been given last in the one
/// before that: seen once a tick, a lease is two ticks shorter.
const ALONE_MAX: u64 = 2 * HALF - 2;
const TICKS: u64 = 8;
/// Moments at which a course begins.
const BEGINNINGS: usize = 4;
/// Orders of so many ticks can still arrive, in any order and any number of times.
const ON_THE_WAY: usize = 2;
/// Of each tick, so many states are followed further: all where there are fewer, else those first where one side
/// gives alone for longest, then those where both give. All are checked.
const STATES_MAX: usize = 1_000;
/// Restarts and losses in one course.
const FAULTS_MAX: u32 = 1;

/// A market that only knows whether it gives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Gives(Option<ExchangeId>);

impl Market for Gives {
    fn check(&mut self, _: &Leg, _: u64) -> Result<(), Refusal> {
        Ok(())
    }
    fn give(&mut self, exchange: ExchangeId, _: &[Leg]) -> Result<(), Refusal> {
        assert_eq!(self.0.replace(exchange), None, "given once");
        Ok(())
    }
    fn take_back(&mut self, exchange: ExchangeId, _: &[Leg]) {
        assert_eq!(self.0.take(), Some(exchange), "taken back once");
    }
}

/// A site between two ticks.
#[derive(Clone, Hash)]
struct Site {
    now: u64,
    dealer: Dealer,
    records: Vec<Record>,
    nodes: [(Agent, Gives); 2],
    /// What the dealer sent each node, the newest first.
    orders: [Vec<Orders>; 2],
    late: [Option<Report>; 2],
    one_sided_since: Option<u64>,
    faults: u32,
}

/// What becomes of a node's answer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    Lost,
    Arrives,
    /// With the next tick, after whatever happens to the node.
    Late,
}

/// What becomes of one node's messages in a tick: which orders arrive, if any, and the answer.
type Link = Option<(usize, Answer)>;

#[derive(Clone, Copy, Debug)]
enum Fault {
    RestartNode(usize),
    /// The node loses its disk, market and all.
    EmptyNode(usize),
    /// A giver loses what it gave.
    EndOn(usize),
    RestartDealer,
    /// Its records are lost too.
    EmptyDealer,
}

const ANSWERS: [Answer; 3] = [Answer::Lost, Answer::Arrives, Answer::Late];

const FAULTS: [Fault; 8] = [
    Fault::RestartNode(0),
    Fault::RestartNode(1),
    Fault::EmptyNode(0),
    Fault::EmptyNode(1),
    Fault::EndOn(0),
    Fault::EndOn(1),
    Fault::RestartDealer,
    Fault::EmptyDealer,
];

fn side(place: u32) -> Side {
    Side { place: PlaceId(place), resource: Resource::Cpu, amount: Amount::new(5).unwrap() }
}

impl Site {
    /// Both nodes have been heard, and the offers matched.
    fn new() -> Self {
        let mut dealer = Dealer::new(1, LEASE, Moment(0));
        let mut nodes = [0, 1].map(|node| (Agent::new(NodeId(node)), Gives::default()));
        for node in [0, 1] {
            dealer.set_place(Moment(0), PlaceId(node), vec![NodeId(node)]);
        }
        for (agent, gives) in &mut nodes {
            let report = agent.report(Moment(0));
            dealer.on_report(Moment(0), &report);
            agent.on_orders(Moment(0), &dealer.orders(Moment(0), report.node), gives);
            dealer.on_report(Moment(0), &agent.report(Moment(0)));
        }
        dealer.offer(Moment(0), UserId(1), side(0), side(1), None).unwrap();
        dealer.offer(Moment(0), UserId(2), side(1), side(0), None).unwrap();
        assert_eq!(dealer.exchanges().count(), 1);
        let records = dealer.take_records();
        let orders = [Vec::new(), Vec::new()];
        let (late, one_sided_since) = ([None, None], None);
        Self { now: 0, dealer, records, nodes, orders, late, one_sided_since, faults: 0 }
    }

    fn tick(&self, links: [Link; 2], fault: Option<Fault>) -> Self {
        let mut site = self.clone();
        site.now += 1;
        let now = Moment(site.now);
        site.dealer.on_time(now);
        site.nodes.iter_mut().for_each(|(agent, gives)| agent.on_time(now, gives));
        if let Some(fault) = fault {
            site.fault(fault);
        }
        for report in std::mem::take(&mut site.late).into_iter().flatten() {
            site.dealer.on_report(now, &report);
        }
        for (node, link) in links.into_iter().enumerate() {
            site.records.extend(site.dealer.take_records());
            site.orders[node].insert(0, site.dealer.orders(now, NodeId(node as u32)));
            site.orders[node].truncate(ON_THE_WAY);
            let Some((nth, answer)) = link else { continue };
            let Some(orders) = site.orders[node].get(nth) else { continue };
            let (agent, gives) = &mut site.nodes[node];
            agent.on_orders(now, orders, gives);
            match answer {
                Answer::Lost => {}
                Answer::Arrives => site.dealer.on_report(now, &agent.report(now)),
                Answer::Late => site.late[node] = Some(agent.report(now)),
            }
        }
        site.records.extend(site.dealer.take_records());
        site.dealer.take_to_tell();
        let one_sided = site.nodes[0].1.0.is_some() != site.nodes[1].1.0.is_some();
        site.one_sided_since = one_sided.then(|| site.one_sided_since.unwrap_or(site.now));
        site
    }

    fn fault(&mut self, fault: Fault) {
        self.faults += 1;
        let now = Moment(self.now);
        match fault {
            Fault::RestartNode(node) => {
                let (agent, _) = &mut self.nodes[node];
                *agent = Agent::restored(NodeId(node as u32), agent.entries().clone());
            }
            Fault::EmptyNode(node) => {
                self.nodes[node] = (Agent::new(NodeId(node as u32)), Gives::default());
            }
            Fault::EndOn(node) => {
                let (agent, gives) = &mut self.nodes[node];
                if let Some(&id) = agent.entries().keys().next() {
                    agent.end(id, gives);
                }
            }
            Fault::RestartDealer => self.dealer = Dealer::replay(1, LEASE, &self.records, now).unwrap(),
            Fault::EmptyDealer => self.dealer = Dealer::new(2, LEASE, now),
        }
    }

    fn one_sided_for(&self) -> u64 {
        self.one_sided_since.map_or(0, |since| self.now - since)
    }

    fn is_given(&self) -> bool {
        self.nodes.iter().all(|(_, gives)| gives.0.is_some())
    }

    /// The smaller, the rather it is followed; of equal sites equal, and else by a hash.
    fn rank(&self) -> (Reverse<u64>, bool, u64) {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        (Reverse(self.one_sided_for()), !self.is_given(), hasher.finish())
    }
}

#[test]
fn no_course_of_events_leaves_one_side_giving_for_more_than_a_lease() {
    let mut links: Vec<Link> = vec![None];
    links.extend((0..ON_THE_WAY).flat_map(|nth| ANSWERS.map(|answer| Some((nth, answer)))));
    let (mut seen, mut given, mut longest, mut all_until) = (0, 0, 0, TICKS);
    // Courses begin where the offers were just matched, and later in a life without any loss.
    let well: [Link; 2] = [Some((0, Answer::Arrives)); 2];
    let begin = std::iter::successors(Some(Site::new()), |site| Some(site.tick(well, None)));
    for begin in begin.take(BEGINNINGS) {
        let mut sites = BTreeMap::from([(begin.rank(), begin)]);
        for tick in 1..=TICKS {
            let mut next = BTreeMap::new();
            for site in sites.values() {
                let faults = FAULTS.iter().copied().map(Some).filter(|_| site.faults < FAULTS_MAX);
                for fault in faults.chain([None]) {
                    for (&a, &b) in links.iter().flat_map(|a| links.iter().map(move |b| (a, b))) {
                        let after = site.tick([a, b], fault);
                        seen += 1;
                        given += u64::from(after.is_given());
                        longest = longest.max(after.one_sided_for());
                        assert!(longest <= ALONE_MAX, "one side gives alone for {longest} ticks");
                        next.insert(after.rank(), after);
                    }
                    while next.len() > STATES_MAX {
                        next.pop_last();
                    }
                }
            }
            if next.len() == STATES_MAX {
                all_until = all_until.min(tick);
            }
            sites = next;
        }
    }
    println!(
        "{seen} steps, all there are for {all_until} ticks; both sides give after {given}, one alone for {longest} ticks"
    );
    assert!(given > 0 && longest == ALONE_MAX, "the search comes to where it matters");
}
