//! What users can do to each other, which is nothing: attacks one by one, and section 3.2's experiment, simulated.

mod build;

use build::{
    CPU, DISK, MEMORY, amount, apply, client, currency, exchange, fund, funds, idle, part, refused, side,
    value, wake,
};
use divvy_market::{Caller, CurrencyId, Kind, Market, Op, Presence, Ratio, Refusal, Resource};

/// A group's currency with two members; one trades away what it has only while the other sleeps, and falls asleep.
///
/// Judged as it lies there, the exchange would stand: the group's total is 100 - 100 = 0, and whoever wakes gets 0. Judged
/// as if awake, the sleeper has 100 * 50 / 100 - 100 < 0, and the exchange ends as the sibling wakes.
#[test]
fn a_sleeper_cannot_leave_its_sibling_with_nothing() {
    let mut market = Market::new();
    let base = market.base();
    let group = currency(&mut market, 9);
    let [thief, victim] = [2, 3].map(|uid| client(&mut market, uid));
    let friend = client(&mut market, 2);
    for resource in [CPU, DISK] {
        fund(&mut market, friend, base, resource, 10);
        fund(&mut market, group, base, resource, 100);
        fund(&mut market, thief, group, resource, 50);
        fund(&mut market, victim, group, resource, 50);
    }
    idle(&mut market, victim, CPU);
    let id = exchange(&mut market, thief, side(CPU, 100), friend, side(DISK, 1));
    idle(&mut market, thief, CPU);
    assert_eq!(value(&mut market, friend, CPU), "110");
    let outcome = wake(&mut market, victim, CPU);
    assert_eq!(outcome.undone, [id]);
    assert_eq!(value(&mut market, victim, CPU), "100");
    assert_eq!(value(&mut market, friend, CPU), "10");
}

/// An idle party keeps an exchange that it could cover if it woke, and its siblings have at least what they would have then.
#[test]
fn a_sleeper_that_could_cover_keeps_its_exchange() {
    let mut market = Market::new();
    let base = market.base();
    let group = currency(&mut market, 9);
    let [party, sibling, stranger] = [2, 3, 4].map(|uid| client(&mut market, uid));
    for resource in [CPU, DISK] {
        fund(&mut market, stranger, base, resource, 100);
        fund(&mut market, group, base, resource, 100);
        fund(&mut market, party, group, resource, 1);
        fund(&mut market, sibling, group, resource, 3);
    }
    exchange(&mut market, party, side(CPU, 25), stranger, side(DISK, 40));
    assert_eq!(value(&mut market, party, CPU), "0");
    assert_eq!(value(&mut market, sibling, CPU), "75");
    assert!(idle(&mut market, party, CPU).undone.is_empty());
    assert!(idle(&mut market, party, DISK).undone.is_empty());
    // What it gave and got counts at its funder while it sleeps: 100 - 25, and 100 + 40.
    assert_eq!(value(&mut market, sibling, CPU), "75");
    assert_eq!(value(&mut market, sibling, DISK), "140");
    assert!(wake(&mut market, party, DISK).undone.is_empty());
    // 100 / 4 + 40.
    assert_eq!(value(&mut market, party, DISK), "65");
    assert_eq!(value(&mut market, sibling, DISK), "75");
}

/// An idle party's exchange is divided among its funders as they give, to a millionth of a ticket, and all comes back.
#[test]
fn several_funders_carry_in_proportion() {
    let mut market = Market::new();
    let base = market.base();
    let [one, two] = [2, 3].map(|uid| currency(&mut market, uid));
    let [party, stranger, of_one, of_two] = [2, 4, 2, 3].map(|uid| client(&mut market, uid));
    for resource in [CPU, DISK] {
        fund(&mut market, stranger, base, resource, 300);
        fund(&mut market, one, base, resource, 300);
        fund(&mut market, two, base, resource, 300);
        // 300 * 1 / 3 = 100 and 300 * 2 / 3 = 200.
        fund(&mut market, party, one, resource, 1);
        fund(&mut market, of_one, one, resource, 2);
        fund(&mut market, party, two, resource, 2);
        fund(&mut market, of_two, two, resource, 1);
    }
    exchange(&mut market, party, side(DISK, 10), stranger, side(CPU, 30));
    idle(&mut market, party, CPU);
    // One third of 30 and two thirds; weights are whole numbers of about a milliardth, parts of a millionth.
    // 200, 100 that the party leaves while it is idle, and a third of 30.
    assert_eq!(value(&mut market, of_one, CPU), "310");
    let sum = &market.value(of_one, CPU).unwrap() + &market.value(of_two, CPU).unwrap();
    assert_eq!(sum.to_string(), "630");
    wake(&mut market, party, CPU);
    assert_eq!(value(&mut market, of_one, CPU), "200");
    assert_eq!(value(&mut market, party, CPU), "330");
    // A funder that leaves the sleeper takes the exchange with it, and hands no debt to the other.
    idle(&mut market, party, DISK);
    let ticket = market.backing_of(party, DISK)[0].id;
    assert_eq!(apply(&mut market, Op::Unfund { ticket }).undone.len(), 1);
    assert_eq!(value(&mut market, of_two, DISK), "300");
}

/// A user who forks takes from its own tasks only, and a fork of a task that the base funds gets nothing.
#[test]
fn forks_multiply_nothing() {
    let mut market = Market::new();
    let base = market.base();
    let [alice, bob] = [1, 2].map(|uid| currency(&mut market, uid));
    let [hers, his] = [1, 2].map(|uid| client(&mut market, uid));
    for (user, task) in [(alice, hers), (bob, his)] {
        fund(&mut market, user, base, CPU, 100);
        fund(&mut market, task, user, CPU, 7);
    }
    for _ in 0..99 {
        let child = client(&mut market, 2);
        apply(&mut market, Op::Adopt { child, parent: his });
    }
    assert_eq!(value(&mut market, his, CPU), "1");
    assert_eq!(value(&mut market, hers, CPU), "100");
    let rich = client(&mut market, 2);
    fund(&mut market, rich, base, CPU, 50);
    let child = client(&mut market, 2);
    apply(&mut market, Op::Adopt { child, parent: rich });
    assert_eq!(value(&mut market, child, CPU), "0");
}

/// A user whose hundred children give all they have to their parent moves nothing outside its own currency (section 3.2).
#[test]
fn children_that_trade_to_their_parent_take_from_their_own_currency() {
    let mut market = Market::new();
    let base = market.base();
    let [alice, bob] = [1, 2].map(|uid| currency(&mut market, uid));
    let [hers, his] = [1, 2].map(|uid| client(&mut market, uid));
    for (user, task) in [(alice, hers), (bob, his)] {
        for resource in [CPU, DISK] {
            fund(&mut market, user, base, resource, 1000);
            fund(&mut market, task, user, resource, 10);
        }
    }
    for _ in 0..9 {
        let child = client(&mut market, 2);
        apply(&mut market, Op::Adopt { child, parent: his });
    }
    let children: Vec<CurrencyId> = market
        .issued_by(bob, CPU)
        .iter()
        .map(|ticket| ticket.holder)
        .filter(|&holder| holder != his)
        .collect();
    for child in children {
        exchange(&mut market, child, side(CPU, 100), his, side(DISK, 1));
    }
    assert_eq!(value(&mut market, his, CPU), "1000");
    assert_eq!(value(&mut market, hers, CPU), "1000");
    assert_eq!(market.total(CPU).to_string(), "2000");
}

/// The bound on base tickets counts every way in, and sleep and exchanges do not widen it.
#[test]
fn a_bound_is_no_mint() {
    let mut market = Market::new();
    let base = market.base();
    let [user, other] = [currency(&mut market, 2), currency(&mut market, 3)];
    let [task, spare, theirs] = [client(&mut market, 2), client(&mut market, 2), client(&mut market, 3)];
    let funding = fund(&mut market, user, base, CPU, 100);
    fund(&mut market, other, base, CPU, 100);
    fund(&mut market, task, user, CPU, 1);
    fund(&mut market, theirs, other, CPU, 1);
    apply(&mut market, Op::SetBound { uid: 2, resource: CPU, bound: Some(100) });
    let caller = Caller::user(2, vec![2]);
    let issue =
        |holder, n| Op::Fund { holder, issuer: base, resource: CPU, amount: amount(n), kind: Kind::Soft };
    assert_eq!(refused(&mut market, &caller, issue(spare, 1)), Refusal::AboveBound { bound: 100 });
    idle(&mut market, task, CPU);
    assert_eq!(refused(&mut market, &caller, issue(spare, 1)), Refusal::AboveBound { bound: 100 });
    market.apply(&caller, &Op::SetAmount { ticket: funding, amount: amount(90) }).unwrap();
    market.apply(&caller, &issue(spare, 10)).unwrap();
    // Back to 100 is above the bound now, and so is a base ticket's own growth.
    let back = Op::SetAmount { ticket: funding, amount: amount(91) };
    assert_eq!(refused(&mut market, &caller, back), Refusal::AboveBound { bound: 100 });
    // Not into what others own, hard or not.
    let gift = refused(&mut market, &caller, issue(theirs, 1));
    assert!(matches!(gift, Refusal::Denied { .. }), "{gift:?}");
    let hard = Op::Fund { holder: spare, issuer: base, resource: CPU, amount: amount(1), kind: Kind::Hard };
    assert!(matches!(refused(&mut market, &caller, hard), Refusal::Denied { .. }));
    assert_eq!(value(&mut market, theirs, CPU), "100");
}

/// What is reserved of the base makes its soft tickets worth less, and a user's bound no wider: it was none at all then.
#[test]
fn a_bound_holds_beside_reservations() {
    // Of 1000 hard tickets of the base: some, and all.
    for reserved in [1, 400, 1000] {
        let mut market = Market::new();
        let base = market.base();
        let [user, other] = [currency(&mut market, 2), currency(&mut market, 3)];
        let [spare, theirs] = [client(&mut market, 2), client(&mut market, 3)];
        fund(&mut market, user, base, CPU, 1000);
        fund(&mut market, other, base, CPU, 1000);
        let total = Op::SetHardTotal { currency: base, resource: CPU, total: amount(1000) };
        apply(&mut market, total);
        let hard = Op::Fund {
            holder: theirs,
            issuer: base,
            resource: CPU,
            amount: amount(reserved),
            kind: Kind::Hard,
        };
        apply(&mut market, hard);
        apply(&mut market, Op::SetBound { uid: 2, resource: CPU, bound: Some(3000) });
        let caller = Caller::user(2, vec![2]);
        let issue =
            |n| Op::Fund { holder: spare, issuer: base, resource: CPU, amount: amount(n), kind: Kind::Soft };
        for too_many in [2001, 9000, 9_000_000] {
            assert_eq!(
                refused(&mut market, &caller, issue(too_many)),
                Refusal::AboveBound { bound: 3000 },
                "{reserved}"
            );
        }
        market.apply(&caller, &issue(1500)).unwrap();
        assert_eq!(refused(&mut market, &caller, issue(501)), Refusal::AboveBound { bound: 3000 });
        market.apply(&caller, &issue(500)).unwrap();
    }
}

/// Dhrystone and iohog of section 5.5.
#[derive(Clone, Copy, PartialEq)]
enum Task {
    /// Always wants the CPU, never the disk.
    Dhrystone,
    /// Computes for [`COMPUTE`] quanta, then waits for one disk request.
    Iohog,
}

const COMPUTE: u64 = 1;
/// Quanta that the disk takes for a request.
const SEEK: u64 = 4;
const QUANTA: u64 = 6_000;

/// Two dhrystones and five iohogs, each with 1000 CPU and 1000 disk tickets from the base.
struct Server {
    market: Market,
    tasks: Vec<(Task, CurrencyId)>,
    /// Virtual times: who is furthest behind is served.
    passes: [Vec<u128>; 2],
    served: [Vec<u64>; 2],
    computed: Vec<u64>,
}

impl Server {
    fn new() -> Self {
        let mut market = Market::new();
        let base = market.base();
        let kinds = [
            Task::Dhrystone,
            Task::Dhrystone,
            Task::Iohog,
            Task::Iohog,
            Task::Iohog,
            Task::Iohog,
            Task::Iohog,
        ];
        let tasks: Vec<_> = kinds.iter().map(|&kind| (kind, client(&mut market, 1))).collect();
        for &(_, task) in &tasks {
            fund(&mut market, task, base, CPU, 1000);
            fund(&mut market, task, base, DISK, 1000);
            idle(&mut market, task, DISK);
            idle(&mut market, task, MEMORY);
        }
        let n = tasks.len();
        Self {
            market,
            tasks,
            passes: [vec![0; n], vec![0; n]],
            served: [vec![0; n], vec![0; n]],
            computed: vec![0; n],
        }
    }

    fn set(&mut self, task: usize, resource: Resource, presence: Presence) {
        let op = Op::SetPresence { client: self.tasks[task].1, resource, presence };
        let outcome = self.market.apply(&Caller::superuser(), &op).unwrap();
        assert_eq!(outcome.undone, [], "an exchange that its parties can cover stays");
        if presence == Presence::Competing {
            // Who was away has no claim to the time before: it starts with whoever is furthest behind.
            let at = usize::from(resource == DISK);
            let others =
                (0..self.tasks.len()).filter(|&other| other != task && self.competes(other, resource));
            let least = others.map(|other| self.passes[at][other]).min();
            let pass = &mut self.passes[at][task];
            *pass = (*pass).max(least.unwrap_or(0));
        }
    }

    fn competes(&self, task: usize, resource: Resource) -> bool {
        self.market.currency(self.tasks[task].1).unwrap().competes.contains(resource)
    }

    /// Gives one turn of a resource by stride, the passes whole numbers.
    fn serve(&mut self, resource: Resource) -> Option<usize> {
        let at = usize::from(resource == DISK);
        let competing = (0..self.tasks.len()).filter(|&task| self.competes(task, resource));
        let next = competing.min_by_key(|&task| (self.passes[at][task], task))?;
        let weight = self.market.weight(self.tasks[next].1, resource).unwrap().floor().unwrap();
        self.passes[at][next] += (1 << 60) / weight as u128;
        self.served[at][next] += 1;
        Some(next)
    }

    fn run(&mut self) {
        for quantum in 0..QUANTA {
            if let Some(task) = self.serve(CPU)
                && self.tasks[task].0 == Task::Iohog
            {
                self.computed[task] += 1;
                if self.computed[task].is_multiple_of(COMPUTE) {
                    self.set(task, CPU, Presence::Idle);
                    self.set(task, DISK, Presence::Competing);
                }
            }
            if quantum % SEEK == 0
                && let Some(task) = self.serve(DISK)
            {
                self.set(task, DISK, Presence::Idle);
                self.set(task, CPU, Presence::Competing);
            }
        }
    }

    /// What a task got of all that was served.
    fn share(&self, task: usize, resource: Resource) -> Ratio {
        let served = &self.served[usize::from(resource == DISK)];
        Ratio::new(served[task] as i64, served.iter().sum()).unwrap()
    }
}

/// Section 5.5, Fig. 10: one dhrystone gives one iohog n disk tickets for n CPU tickets. Whoever takes no part keeps its rights,
/// one seventh of each resource, to the ticket, and gets at least so much service, though it may get less than before:
/// the traded tickets are used more.
#[test]
fn those_who_take_no_part_keep_their_rights_and_their_minimal_shares() {
    let mut before = Server::new();
    before.run();
    let seventh = Ratio::new(1, 7).unwrap();
    let (mut dhrystone_lost, mut iohogs_lost) = (false, false);
    for n in (100..=800).step_by(100) {
        let mut server = Server::new();
        let (giver, taker) = (server.tasks[0].1, server.tasks[2].1);
        wake(&mut server.market, giver, DISK);
        exchange(&mut server.market, giver, side(DISK, n), taker, side(CPU, n));
        idle(&mut server.market, giver, DISK);
        server.run();
        assert_eq!(server.market.exchanges().count(), 1);
        for task in [1, 3, 4, 5, 6] {
            let (kind, id) = server.tasks[task];
            let resource = if kind == Task::Dhrystone { CPU } else { DISK };
            assert!(
                server.share(task, resource) >= seventh,
                "{n}: task {task} got {}",
                server.share(task, resource)
            );
            if server.share(task, resource) < before.share(task, resource) {
                *if kind == Task::Dhrystone { &mut dhrystone_lost } else { &mut iohogs_lost } = true;
            }
            for resource in [CPU, DISK] {
                for other in 0..server.tasks.len() {
                    wake(&mut server.market, server.tasks[other].1, resource);
                }
                assert_eq!(part(&mut server.market, id, resource), Some(seventh.clone()));
            }
        }
    }
    assert!(
        dhrystone_lost && iohogs_lost,
        "what the traded tickets are used for is taken from slack, as in the paper"
    );
}

/// Hard shares of the base are kept from everybody who has soft ones, and a hard path to the base is a reservation.
#[test]
fn a_reservation_stands_whoever_comes() {
    let mut market = Market::new();
    let base = market.base();
    let [user, crowd] = [1, 2].map(|uid| currency(&mut market, uid));
    let [reserved, crowded] = [1, 2].map(|uid| client(&mut market, uid));
    apply(&mut market, Op::SetHardTotal { currency: base, resource: MEMORY, total: amount(4000) });
    funds(&mut market, user, base, MEMORY, 1000, Kind::Hard);
    funds(&mut market, reserved, user, MEMORY, 500, Kind::Hard);
    fund(&mut market, crowd, base, MEMORY, 1);
    fund(&mut market, crowded, crowd, MEMORY, 1);
    // 1000 of 4000 pages, and half (500 of 1000) of these.
    assert_eq!(value(&mut market, reserved, MEMORY), "500");
    for uid in 3..20 {
        let late = client(&mut market, uid);
        fund(&mut market, late, base, MEMORY, 1000);
        assert_eq!(value(&mut market, reserved, MEMORY), "500");
    }
    // 3000 / 17001.
    assert_eq!(value(&mut market, crowded, MEMORY), "1000/5667");
}
