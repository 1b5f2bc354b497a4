//! What the site's dealer orders, on one node.

use divvy_api::site::{Orders, Report};
use divvy_api::types::ErrorCode;
use divvy_market::{Amount, Moment, Resource};
use divvy_site::{DealerStamp, ExchangeId, Leg, Order, Refusal, State, Step, UserId};

use super::Ledger;
use super::tests::{ALICE, BOB, Bench, CAROL, ROOT};
use crate::market::message::{Ask, Said};
use crate::market::names::scripted::Scripted;
use crate::market::policy::Policy;

const ID: ExchangeId = ExchangeId { term: 1, number: 0 };
const LEASE_NS: u64 = 1000;

/// A dealer that wants one thing at a time.
struct Dealer {
    sent: u64,
    heard: Option<Report>,
}

impl Dealer {
    /// Two messages, as a lease counts from a report that the dealer has heard.
    fn order(&mut self, bench: &mut Bench, step: Option<Step>, legs: &[Leg]) -> Option<State> {
        for _ in 0..2 {
            self.sent += 1;
            let order = |step| Order { exchange: ID, legs: legs.to_vec(), step, renew: true };
            let orders = Orders {
                stamp: DealerStamp { term: 1, sent: Moment(self.sent), revision: 0 },
                heard: self.heard.as_ref().map(|report| report.stamp),
                lease_ns: LEASE_NS,
                orders: step.map(order).into_iter().collect(),
            };
            let Ok(Said::Report(report)) = bench.ask(ROOT, Ask::Orders(orders)) else { panic!("a report") };
            self.heard = Some(report);
        }
        self.heard.as_ref().and_then(|report| report.states.first()).map(|(_, state)| *state)
    }

    fn give(&mut self, bench: &mut Bench, legs: &[Leg]) -> Option<State> {
        self.order(bench, Some(Step::Hold), legs);
        self.order(bench, Some(Step::Give), legs)
    }
}

fn leg(giver: u32, taker: u32, amount: u64) -> Leg {
    let amount = Amount::new(amount).unwrap();
    Leg { giver: UserId(giver), taker: UserId(taker), resource: Resource::Cpu, amount }
}

/// Alice, bob and carol with a task each and 1000 base tickets.
fn bench() -> (Bench, Dealer) {
    let mut bench = Bench::new("");
    for uid in [ALICE, BOB, CAROL] {
        bench.admit(uid, "task", 1);
    }
    (bench, Dealer { sent: 0, heard: None })
}

fn values(bench: &mut Bench) -> [String; 3] {
    ["alice", "bob", "carol"].map(|word| bench.currency(word).standing[0].value.clone())
}

fn check_values(bench: &mut Bench, expected: [&str; 3]) {
    assert_eq!(values(bench), expected.map(str::to_owned));
}

const BEFORE: [&str; 3] = ["1000", "1000", "1000"];

#[test]
fn tickets_go_and_come_back_with_the_lease() {
    let (mut bench, mut dealer) = bench();
    let legs = [leg(ALICE, BOB, 300)];
    assert_eq!(dealer.order(&mut bench, Some(Step::Give), &legs), None, "what was not held is not given");
    assert_eq!(dealer.order(&mut bench, Some(Step::Hold), &legs), Some(State::Held));
    check_values(&mut bench, BEFORE);
    assert_eq!(dealer.order(&mut bench, Some(Step::Give), &legs), Some(State::Given));
    check_values(&mut bench, ["700", "1300", "1000"]);
    assert_eq!(bench.currency("bob/exchange.1.0").standing[0].value, "300");
    // Renewed, which is on disk only now and then, and after a restart it is still there.
    for _ in 0..5 {
        bench.now_ns += LEASE_NS / 2;
        assert_eq!(dealer.order(&mut bench, Some(Step::Give), &legs), Some(State::Given));
    }
    bench.ledger = Ledger::from_bytes(&bench.ledger.to_bytes().unwrap(), Policy::default()).unwrap();
    assert_eq!(dealer.order(&mut bench, Some(Step::Give), &legs), Some(State::Given));
    // The dealer is away for a lease.
    let due = bench.ledger.next_tick().unwrap();
    assert!(due <= bench.now_ns + LEASE_NS);
    assert!(bench.ledger.tick(&Scripted, due - 1).is_none());
    let before = bench.ledger.to_bytes().unwrap();
    let record = bench.ledger.tick(&Scripted, due).unwrap();
    let mut copy = Ledger::from_bytes(&before, Policy::default()).unwrap();
    copy.replay(&record).unwrap();
    assert_eq!(copy.to_bytes().unwrap(), bench.ledger.to_bytes().unwrap());
    bench.now_ns = due;
    check_values(&mut bench, BEFORE);
    assert_eq!(bench.ledger.next_tick(), None);
    assert_eq!(dealer.order(&mut bench, Some(Step::Give), &legs), None, "it does not come back");
}

#[test]
fn what_the_policy_takes_or_an_administrator_ends_ends_the_exchange() {
    let legs = [leg(ALICE, BOB, 1000)];
    let (mut bench, mut dealer) = bench();
    assert_eq!(dealer.give(&mut bench, &legs), Some(State::Given));
    check_values(&mut bench, ["0", "2000", "1000"]);
    // A reload gives nothing back that is only away for a while.
    let reload = |text: &str| Ask::Reload(Box::new(Policy::parse(text).unwrap()));
    bench.ask(ROOT, reload("")).unwrap();
    check_values(&mut bench, ["0", "2000", "1000"]);
    bench.ask(ROOT, reload("[users.alice]\ncpu = 1200")).unwrap();
    check_values(&mut bench, ["200", "2000", "1000"]);
    assert_eq!(bench.ledger.take_ended(), []);
    bench.ask(ROOT, reload("[users.alice]\ncpu = 400")).unwrap();
    check_values(&mut bench, ["400", "1000", "1000"]);
    let told = bench.ledger.take_ended();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].why, "who gives is to have less, or ends");
    assert_eq!(told[0].terms, "alice gives bob 1000 cpu on this node");
    assert_eq!(told[0].parties, std::collections::BTreeSet::from([ALICE, BOB]));
    assert_eq!(dealer.order(&mut bench, Some(Step::Give), &legs), None);
    // The taker's currency is its own to end; the giver has its tickets again with the exchange.
    let legs = [leg(BOB, ALICE, 500)];
    assert_eq!(dealer.order(&mut bench, None, &[]), None);
    assert_eq!(dealer.give(&mut bench, &legs), Some(State::Given));
    bench.ask(ALICE, Ask::DestroyCurrency("exchange.1.0".to_owned())).unwrap();
    check_values(&mut bench, ["400", "500", "1000"]);
    assert_eq!(dealer.order(&mut bench, None, &[]), None);
    check_values(&mut bench, ["400", "1000", "1000"]);
}

#[test]
fn what_cannot_be_is_said_and_changes_nothing() {
    let (mut bench, mut dealer) = bench();
    let both = [leg(ALICE, BOB, 600), leg(BOB, ALICE, 1001)];
    let refused = |refusal| Some(State::Refused(refusal));
    assert_eq!(dealer.order(&mut bench, Some(Step::Hold), &both), refused(Refusal::NotEnough(UserId(BOB))));
    assert_eq!(dealer.order(&mut bench, None, &[]), None);
    let root = [leg(ALICE, ROOT, 1)];
    assert_eq!(
        dealer.order(&mut bench, Some(Step::Hold), &root),
        refused(Refusal::UnknownUser(UserId(ROOT)))
    );
    assert_eq!(dealer.order(&mut bench, None, &[]), None);
    // Somebody has what the taker's currency would be called: the leg that was given already comes back.
    let both = [leg(ALICE, BOB, 600), leg(BOB, ALICE, 900)];
    let new = divvy_api::market::NewCurrency { name: "exchange.1.0".to_owned(), group: None, mode: None };
    bench.ask(ALICE, Ask::CreateCurrency(new)).unwrap();
    assert_eq!(dealer.give(&mut bench, &both), refused(Refusal::Impossible(UserId(ALICE))));
    check_values(&mut bench, BEFORE);
    let orders = Orders {
        stamp: DealerStamp { term: 9, sent: Moment(0), revision: 0 },
        heard: None,
        lease_ns: LEASE_NS,
        orders: Vec::new(),
    };
    assert_eq!(bench.code(ALICE, Ask::Orders(orders)), ErrorCode::NotPermitted);
}
