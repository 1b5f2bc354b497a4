//! Operations one by one: who may, what comes of them, what is refused.

mod build;

use build::{
    CPU, DISK, MEMORY, amount, apply, client, currency, exchange, fund, funds, idle, refused, side, value,
    wake,
};
use divvy_market::{
    Broker, CURRENCY_DEPTH_MAX, Caller, Conflict, CurrencyId, Kind, Made, Market, Mode, Moment, Op, Outcome,
    Refusal, Resources, Source, TicketId,
};

/// Table 1 in full: for each row every mode of owner, group and others, asked by one of each class.
#[test]
fn brokers_check_what_table_1_says() {
    let (owner, member, other) =
        (Caller::user(5, vec![50]), Caller::user(6, vec![50]), Caller::user(7, vec![70]));
    for bits in 0..8u16 {
        let [f, c, i] = [4, 2, 1].map(|bit| bits & bit != 0);
        for (caller, shift) in [(&owner, 6), (&member, 3), (&other, 0)] {
            // All bits of the other classes are set: they must not help.
            let mode = Mode::try_from(0o777 & !(7 << shift) | bits << shift).unwrap();
            let broker = Broker { owner: 5, group: 50, mode };
            let open = Broker { owner: 1, group: 1, mode: Mode::try_from(0o777).unwrap() };
            let shut = Broker { owner: 1, group: 1, mode: Mode::try_from(0o000).unwrap() };
            let mut market = Market::new();
            let mut new = |broker| match apply(&mut market, Op::CreateCurrency { broker }).made {
                Made::Currency(id) => id,
                other => panic!("{other:?} is no currency"),
            };
            let (asked, open, shut) = (new(broker), new(open), new(shut));
            let funding = |holder, issuer| Op::Fund {
                holder,
                issuer,
                resource: CPU,
                amount: amount(1),
                kind: Kind::Soft,
            };
            let allows = |market: &Market, op: Op| market.clone().apply(caller, &op).is_ok();
            // Fund A with tickets of B: f on A and i on B.
            assert_eq!(allows(&market, funding(asked, open)), f, "{mode} {caller:?}");
            assert_eq!(allows(&market, funding(open, asked)), i, "{mode} {caller:?}");
            assert!(!allows(&market, funding(shut, asked)) && !allows(&market, funding(asked, shut)));
            // Take tickets of B away from A: c on A or i on B.
            let held = fund(&mut market, asked, shut, CPU, 1);
            assert_eq!(allows(&market, Op::Unfund { ticket: held }), c, "{mode} {caller:?}");
            let less = Op::SetAmount { ticket: held, amount: amount(1) };
            assert_eq!(allows(&market, less), c, "{mode} {caller:?}");
            let mut market = market.clone();
            apply(&mut market, Op::Unfund { ticket: held });
            let issued = fund(&mut market, shut, asked, CPU, 1);
            assert_eq!(allows(&market, Op::Unfund { ticket: issued }), i, "{mode} {caller:?}");
            // Destroy: c.
            assert_eq!(allows(&market, Op::Destroy { currency: asked }), c, "{mode} {caller:?}");
        }
    }
}

/// Table 1, first row: owner and group must both be the caller's; a superuser may name any.
#[test]
fn who_creates_names_itself() {
    let caller = Caller::user(5, vec![50]);
    for (owner, group, may) in [(5, 50, true), (6, 50, false), (5, 60, false), (6, 60, false)] {
        let broker = Broker::private(owner, group);
        for op in [Op::CreateCurrency { broker }, Op::CreateClient { broker, competes: Resources::NONE }] {
            assert_eq!(Market::new().apply(&caller, &op).is_ok(), may, "{owner} {group}");
            assert!(Market::new().apply(&Caller::superuser(), &op).is_ok());
        }
    }
}

/// Modes are the owner's; owners are a superuser's; another of one's own groups is one's own choice.
#[test]
fn who_owns_may_open_and_not_give_away() {
    let mut market = Market::new();
    let mine = currency(&mut market, 5);
    let (owner, other) = (Caller::user(5, vec![5, 50]), Caller::user(6, vec![5]));
    let mode = Mode::try_from(0o750).unwrap();
    assert_eq!(refused(&mut market, &other, Op::SetMode { currency: mine, mode }), Refusal::NotOwner(mine));
    market.apply(&owner, &Op::SetMode { currency: mine, mode }).unwrap();
    let to = |owner, group| Op::SetOwner { currency: mine, owner, group };
    assert_eq!(refused(&mut market, &owner, to(6, 5)), Refusal::NotYourIds);
    assert_eq!(refused(&mut market, &owner, to(5, 51)), Refusal::NotYourIds);
    assert_eq!(refused(&mut market, &other, to(6, 5)), Refusal::NotOwner(mine));
    market.apply(&owner, &to(5, 50)).unwrap();
    apply(&mut market, to(6, 60));
    assert_eq!(market.currency(mine).unwrap().broker, Broker { owner: 6, group: 60, mode });
}

fn offer(market: &mut Market, party: CurrencyId, gives: (u64, u64), now: u64, until: Option<u64>) -> Outcome {
    let (gives, wants) = (side(CPU, gives.0), side(DISK, gives.1));
    apply(market, Op::Offer { party, gives, wants, now: Moment(now), until: until.map(Moment) })
}

fn wanted(market: &mut Market, party: CurrencyId, gives: (u64, u64), now: u64) -> Outcome {
    let (gives, wants) = (side(DISK, gives.0), side(CPU, gives.1));
    apply(market, Op::Offer { party, gives, wants, now: Moment(now), until: None })
}

fn traders(market: &mut Market, count: usize) -> Vec<CurrencyId> {
    let base = market.base();
    let ids: Vec<CurrencyId> = (0..count).map(|_| client(market, 1)).collect();
    for &id in &ids {
        fund(market, id, base, CPU, 100);
        fund(market, id, base, DISK, 100);
    }
    ids
}

/// Exact complements only, the oldest first, never one's own, and only who can cover.
#[test]
fn the_dealer_serves_the_oldest_that_fits() {
    let mut market = Market::new();
    let ids = traders(&mut market, 5);
    let Made::Offer { offer: first, .. } = offer(&mut market, ids[0], (30, 10), 0, None).made else {
        panic!("waits")
    };
    // Its own complement is no deal.
    let Made::Offer { offer: own, .. } = wanted(&mut market, ids[0], (10, 30), 0).made else {
        panic!("waits")
    };
    apply(&mut market, Op::Withdraw { offer: own });
    let Made::Offer { offer: second, .. } = offer(&mut market, ids[1], (30, 10), 1, None).made else {
        panic!("waits")
    };
    // Another rate: told of both, in their order.
    let Made::Offer { conflicts, .. } = wanted(&mut market, ids[2], (10, 29), 2).made else {
        panic!("waits")
    };
    let told = |offer| Conflict { offer, gives: side(CPU, 30), wants: side(DISK, 10) };
    assert_eq!(conflicts, [told(first), told(second)]);
    // The first cannot cover any more: the second is taken, and the first waits on.
    idle(&mut market, ids[0], CPU);
    let Made::Exchange { taken, .. } = wanted(&mut market, ids[3], (10, 30), 4).made else {
        panic!("a deal")
    };
    assert_eq!(taken, Some(second));
    assert_eq!(value(&mut market, ids[3], CPU), "130");
    assert_eq!(value(&mut market, ids[1], DISK), "110");
    wake(&mut market, ids[0], CPU);
    let Made::Exchange { taken, .. } = wanted(&mut market, ids[4], (10, 30), 5).made else {
        panic!("a deal")
    };
    assert_eq!(taken, Some(first));
    assert_eq!(market.offers().count(), 1);
    assert_eq!(market.total(CPU).to_string(), "500");
}

/// Offers end at their time, when they are withdrawn, and with their party; the clock does not go back.
#[test]
fn offers_end() {
    let mut market = Market::new();
    let ids = traders(&mut market, 3);
    let Made::Offer { offer: timed, .. } = offer(&mut market, ids[0], (1, 1), 10, Some(20)).made else {
        panic!("waits")
    };
    let Made::Offer { offer: kept, .. } = offer(&mut market, ids[1], (1, 1), 11, None).made else {
        panic!("waits")
    };
    assert_eq!(market.next_ending(), Some(Moment(20)));
    let any = Caller::user(77, vec![]);
    assert_eq!(refused(&mut market, &any, Op::Expire { now: Moment(9) }), Refusal::ClockWentBack);
    assert_eq!(market.apply(&any, &Op::Expire { now: Moment(19) }).unwrap().lapsed, []);
    assert_eq!(market.apply(&any, &Op::Expire { now: Moment(20) }).unwrap().lapsed, [timed]);
    let withdraw = Op::Withdraw { offer: kept };
    assert!(matches!(refused(&mut market, &any, withdraw), Refusal::Denied { .. }));
    assert_eq!(apply(&mut market, withdraw).lapsed, [kept]);
    assert_eq!(refused(&mut market, &Caller::superuser(), withdraw), Refusal::UnknownOffer(kept));
    // An offer whose time came is no more taken, though nobody said so before.
    offer(&mut market, ids[0], (1, 1), 30, Some(31));
    assert!(matches!(wanted(&mut market, ids[1], (1, 1), 31).made, Made::Offer { .. }));
    let Made::Offer { offer: last, .. } = offer(&mut market, ids[2], (9, 9), 32, None).made else {
        panic!("waits")
    };
    assert_eq!(apply(&mut market, Op::Destroy { currency: ids[2] }).lapsed, [last]);
    let early = Op::Offer {
        party: ids[0],
        gives: side(CPU, 1),
        wants: side(DISK, 2),
        now: Moment(40),
        until: Some(Moment(40)),
    };
    assert_eq!(refused(&mut market, &Caller::superuser(), early), Refusal::EndsBeforeNow);
    assert_eq!(market.next_ending(), None);
}

/// Section 3.2.2: whoever exits, cancels or loses what it traded away takes all four tickets along.
#[test]
fn exchanges_end_whole() {
    let end = |how: &dyn Fn(&mut Market, &[CurrencyId], TicketId) -> Outcome| {
        let mut market = Market::new();
        let ids = traders(&mut market, 2);
        let id = exchange(&mut market, ids[0], side(CPU, 60), ids[1], side(DISK, 10));
        let ticket = market.backing_of(ids[0], CPU)[0].id;
        assert_eq!(how(&mut market, &ids, ticket).undone, [id]);
        assert_eq!(value(&mut market, ids[1], CPU), "100");
        assert_eq!(value(&mut market, ids[1], DISK), "100");
        let gone = Op::CancelExchange { exchange: id };
        assert_eq!(refused(&mut market, &Caller::superuser(), gone), Refusal::UnknownExchange(id));
    };
    end(&|market, ids, _| apply(market, Op::Destroy { currency: ids[0] }));
    end(&|market, _, ticket| apply(market, Op::Unfund { ticket }));
    end(&|market, _, ticket| apply(market, Op::SetAmount { ticket, amount: amount(59) }));
    end(&|market, _, _| {
        let exchange = market.exchanges().next().unwrap().id;
        apply(market, Op::CancelExchange { exchange })
    });
}

/// Newest first, and no more than it takes (readings of section 3.2.2).
#[test]
fn the_newest_exchange_goes_first() {
    let mut market = Market::new();
    let ids = traders(&mut market, 4);
    let made: Vec<_> = ids[1..]
        .iter()
        .map(|&other| exchange(&mut market, ids[0], side(CPU, 30), other, side(DISK, 10)))
        .collect();
    let ticket = market.backing_of(ids[0], CPU)[0].id;
    assert_eq!(apply(&mut market, Op::SetAmount { ticket, amount: amount(35) }).undone, [made[2], made[1]]);
    assert_eq!(value(&mut market, ids[0], CPU), "5");
    assert_eq!(value(&mut market, ids[0], DISK), "110");
}

/// Section 4.6: what goes with a nice job comes back when its last task ends, and its children share it meanwhile.
#[test]
fn nice_moves_funding_and_gives_it_back() {
    let mut market = Market::new();
    let base = market.base();
    let user = currency(&mut market, 2);
    let [hog, task] = [0; 2].map(|_| client(&mut market, 2));
    fund(&mut market, user, base, CPU, 60);
    fund(&mut market, user, base, CPU, 40);
    fund(&mut market, hog, user, CPU, 1);
    fund(&mut market, task, user, CPU, 1);
    let caller = Caller::user(2, vec![2]);
    let nice = |n| Op::Nice { client: hog, from: user, resource: CPU, amount: amount(n) };
    assert_eq!(refused(&mut market, &caller, nice(101)), Refusal::NotEnough(user));
    let Made::Currency(niced) = market.apply(&caller, &nice(50)).unwrap().made else { panic!("a currency") };
    assert_eq!(market.currency(niced).unwrap().niced_from, Some(user));
    assert_eq!(market.niced(hog, user, CPU), Some(niced));
    assert_eq!(market.niced(task, user, CPU), None);
    let child = client(&mut market, 2);
    apply(&mut market, Op::Adopt { child, parent: hog });
    idle(&mut market, task, CPU);
    // 50 for the two of them, though everybody else of the user sleeps.
    assert_eq!([hog, child].map(|id| value(&mut market, id, CPU)), ["25", "25"]);
    assert_eq!(market.niced(hog, user, CPU), None, "it is not the only one");
    // It may have another amount of the same, up to all that there is.
    let renice = |n| Op::Renice { currency: niced, amount: amount(n) };
    assert_eq!(refused(&mut market, &caller, renice(101)), Refusal::NotEnough(user));
    let other = Caller::user(3, vec![3]);
    assert!(matches!(refused(&mut market, &other, renice(10)), Refusal::Denied { .. }));
    for (n, each) in [(100, "50"), (2, "1"), (50, "25")] {
        market.apply(&caller, &renice(n)).unwrap();
        assert_eq!([hog, child].map(|id| value(&mut market, id, CPU)), [each, each], "{n}");
        assert_eq!(market.total(CPU).to_string(), n.to_string(), "all that is awake has");
    }
    assert_eq!(apply(&mut market, Op::Destroy { currency: hog }).ended, []);
    assert_eq!(apply(&mut market, Op::Destroy { currency: child }).ended, [niced]);
    wake(&mut market, task, CPU);
    assert_eq!(value(&mut market, user, CPU), "100");
}

/// Whatever is made nice of what, and given other amounts, a user has as many base tickets as before.
#[test]
fn nice_of_nice_mints_nothing() {
    let mut seed = 1_u64;
    let mut below = |n: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % n
    };
    let (mut made, mut changed) = (0, 0);
    for _ in 0..200 {
        let mut market = Market::new();
        let (base, user) = (market.base(), currency(&mut market, 2));
        fund(&mut market, user, base, CPU, 1000);
        let clients = [0; 3].map(|_| client(&mut market, 2));
        for client in clients {
            fund(&mut market, client, user, CPU, 1);
        }
        let (caller, mut currencies) = (Caller::user(2, vec![2]), vec![user]);
        for _ in 0..20 {
            let of = currencies[below(currencies.len())];
            let n = amount(1 + below(1000) as u64);
            let op = match below(2) {
                0 => Op::Nice { client: clients[below(3)], from: of, resource: CPU, amount: n },
                _ => Op::Renice { currency: of, amount: n },
            };
            let Ok(outcome) = market.apply(&caller, &op) else { continue };
            changed += u32::from(matches!(op, Op::Renice { .. }));
            if let Made::Currency(nice) = outcome.made {
                made += 1;
                currencies.push(nice);
            }
            currencies.retain(|id| !outcome.ended.contains(id));
            let of_base = market.tickets().filter(|t| t.issuer == base && t.resource == CPU);
            assert_eq!(of_base.map(|t| t.amount).sum::<u64>(), 1000, "{op:?}");
        }
    }
    assert!(made > 500 && changed > 100, "{made} made, {changed} changed");
}

/// Section 4.3: whoever waits lends its rights to whom it waits for, along a chain and across currencies, until it wakes.
#[test]
fn waiting_lends_and_waking_takes_back() {
    let mut market = Market::new();
    let base = market.base();
    let ids: Vec<CurrencyId> = (0..4).map(|_| client(&mut market, 1)).collect();
    for (&id, n) in ids.iter().zip([80, 40, 20, 10]) {
        fund(&mut market, id, base, CPU, n);
    }
    let wait = |client, holder| Op::Wait { client, holder, resource: CPU };
    apply(&mut market, wait(ids[0], ids[1]));
    assert_eq!(value(&mut market, ids[1], CPU), "120");
    assert_eq!(market.weight(ids[0], CPU).unwrap().to_string(), "0");
    apply(&mut market, wait(ids[1], ids[2]));
    assert_eq!(value(&mut market, ids[2], CPU), "140");
    let cycle = refused(&mut market, &Caller::superuser(), wait(ids[2], ids[0]));
    assert_eq!(cycle, Refusal::Cycle { through: ids[0] });
    // For two at once: half each.
    apply(&mut market, wait(ids[0], ids[3]));
    assert_eq!(value(&mut market, ids[3], CPU), "50");
    assert_eq!(market.total(CPU).to_string(), "150");
    wake(&mut market, ids[0], CPU);
    assert_eq!(
        ["80", "40", "60", "10"],
        [0, 1, 2, 3].map(|at| value(&mut market, ids[at], CPU)).each_ref().map(|v| v.as_str())
    );
    // If nobody awake is waited for, nothing is lent.
    idle(&mut market, ids[2], CPU);
    assert_eq!(market.total(CPU).to_string(), "90");
}

/// Everything that a caller can get wrong, and that it changes nothing (`refused` looks at the books).
#[test]
fn bad_operations_are_refused_by_name() {
    let mut market = Market::new();
    let base = market.base();
    let root = Caller::superuser();
    let (one, task) = (currency(&mut market, 1), client(&mut market, 1));
    let ticket = fund(&mut market, one, base, CPU, 10);
    let gone = currency(&mut market, 1);
    apply(&mut market, Op::Destroy { currency: gone });
    let again = currency(&mut market, 1);
    assert_ne!(gone, again, "an id is not given twice");
    let funding = |holder, issuer, kind| Op::Fund { holder, issuer, resource: CPU, amount: amount(1), kind };
    let side = |resource, n| build::side(resource, n);
    let deal = |a, a_gives, b, b_gives| Op::Exchange { a, a_gives, b, b_gives };
    let rows = [
        (Op::Destroy { currency: gone }, Refusal::UnknownCurrency(gone)),
        (Op::Destroy { currency: base }, Refusal::BaseCurrency),
        (funding(base, one, Kind::Soft), Refusal::BaseCurrency),
        (funding(gone, one, Kind::Soft), Refusal::UnknownCurrency(gone)),
        (funding(one, task, Kind::Soft), Refusal::ClientsDoNotIssue(task)),
        (funding(one, base, Kind::Transfer), Refusal::TransferTicket),
        (funding(one, one, Kind::Soft), Refusal::Cycle { through: one }),
        (
            Op::SetHardTotal { currency: task, resource: CPU, total: amount(1) },
            Refusal::ClientsDoNotIssue(task),
        ),
        (Op::Unfund { ticket: "77".parse().unwrap() }, Refusal::UnknownTicket("77".parse().unwrap())),
        (Op::Wait { client: one, holder: task, resource: CPU }, Refusal::NotAClient(one)),
        (Op::Nice { client: one, from: one, resource: CPU, amount: amount(1) }, Refusal::NotAClient(one)),
        (deal(one, side(CPU, 1), one, side(DISK, 1)), Refusal::SameParty),
        (deal(one, side(CPU, 1), task, side(CPU, 1)), Refusal::SameResource),
        (deal(base, side(CPU, 1), task, side(DISK, 1)), Refusal::BaseCurrency),
        (deal(task, side(DISK, 1), one, side(MEMORY, 1)), Refusal::NotEnough(task)),
    ];
    for (op, refusal) in rows {
        assert_eq!(refused(&mut market, &root, op), refusal, "{op:?}");
        assert!(!refusal.to_string().is_empty());
    }
    assert_eq!(build::amount(1), divvy_market::Amount::new(1).unwrap());
    assert_eq!(divvy_market::Amount::new(0), Err(Refusal::ZeroAmount));
    assert_eq!(divvy_market::Amount::new(1 << 32), Err(Refusal::AmountTooLarge));
    // The largest amounts add up without overflow, and values stay exact.
    let most = divvy_market::Amount::MAX.get();
    for _ in 0..3 {
        fund(&mut market, one, base, CPU, most);
    }
    let [first, second] = [fund(&mut market, task, one, CPU, most), fund(&mut market, again, one, CPU, most)];
    assert_ne!(first, second);
    apply(&mut market, Op::SetAmount { ticket, amount: amount(1) });
    assert_eq!(value(&mut market, task, CPU), (3 * u128::from(most) + 1).to_string());
}

/// A path of [`CURRENCY_DEPTH_MAX`] currencies is the longest; one above a long path is refused as well as one below.
#[test]
fn depth_is_bounded() {
    let mut market = Market::new();
    let base = market.base();
    let ids: Vec<CurrencyId> = (0..CURRENCY_DEPTH_MAX).map(|_| currency(&mut market, 1)).collect();
    fund(&mut market, ids[1], base, CPU, 1);
    for pair in ids[1..].windows(2) {
        fund(&mut market, pair[1], pair[0], CPU, 1);
    }
    fund(&mut market, ids[0], base, CPU, 3);
    let last = fund(&mut market, ids[1], ids[0], CPU, 1);
    let task = client(&mut market, 1);
    let below =
        Op::Fund { holder: task, issuer: ids[63], resource: CPU, amount: amount(1), kind: Kind::Soft };
    assert_eq!(refused(&mut market, &Caller::superuser(), below), Refusal::TooDeep);
    let top = currency(&mut market, 1);
    fund(&mut market, top, base, CPU, 1);
    let above = Op::Fund { holder: ids[0], issuer: top, resource: DISK, amount: amount(1), kind: Kind::Soft };
    assert_eq!(refused(&mut market, &Caller::superuser(), above), Refusal::TooDeep);
    apply(&mut market, Op::Unfund { ticket: last });
    apply(&mut market, below);
    assert_eq!(value(&mut market, task, CPU), "1");
}

/// The parts that a value is explained by add up to it, also for who idles and for who carries an idle party's exchange.
#[test]
fn explanations_add_up() {
    let mut market = Market::new();
    let base = market.base();
    let user = currency(&mut market, 1);
    let [task, sibling, other] = [0; 3].map(|_| client(&mut market, 1));
    for resource in [CPU, DISK] {
        funds(&mut market, user, base, resource, 250, Kind::Hard);
        fund(&mut market, task, user, resource, 1);
        fund(&mut market, sibling, user, resource, 2);
        fund(&mut market, other, base, resource, 5);
    }
    exchange(&mut market, task, side(CPU, 40), other, side(DISK, 7));
    for asleep in [false, true] {
        if asleep {
            idle(&mut market, task, CPU);
        }
        for id in [user, task, sibling, other] {
            for resource in [CPU, DISK] {
                let sources = market.explain(id, resource).unwrap();
                let mut sum = divvy_market::Ratio::ZERO;
                sources.iter().for_each(|source| sum += source.value());
                assert_eq!(sum.to_string(), value(&mut market, id, resource), "{id} {resource} {sources:?}");
            }
        }
    }
    let sources = market.explain(user, CPU).unwrap();
    assert!(matches!(&sources[1], Source::Lodged(_, value) if value.to_string() == "-40"), "{sources:?}");
}

/// What the base's tickets were worth when somebody relied on it is not known of a market that was read back: whoever gave away what it has no
/// more ends its exchange there, too.
#[test]
fn a_market_that_was_read_back_ends_the_same_exchanges() {
    for read_back in [false, true] {
        let mut market = Market::new();
        let base = market.base();
        let (a, b, other) = (client(&mut market, 1), client(&mut market, 2), currency(&mut market, 3));
        fund(&mut market, a, base, CPU, 4);
        fund(&mut market, b, base, DISK, 20);
        // While somebody has a hard ticket the soft ones are worth all the rest; without one no more than they say.
        let hard = funds(&mut market, other, base, CPU, 1, Kind::Hard);
        let made = exchange(&mut market, a, side(CPU, 20), b, side(DISK, 20));
        if read_back {
            market = serde_json::from_str(&serde_json::to_string(&market).unwrap()).unwrap();
        }
        let ended = apply(&mut market, Op::Unfund { ticket: hard }).undone;
        assert_eq!(ended, [made], "read back: {read_back}");
    }
}
