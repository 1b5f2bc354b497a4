//! What holds after any requests by anybody.

use proptest::prelude::*;

use super::random::{Drawn, Numbers, draw};
use super::tests::{ALICE, BOB, Bench, CAROL, ROOT};
use super::*;
use crate::market::names::scripted::Scripted;
use divvy_api::market::{Currency, CurrencyChange, NewTicket};

fn seeds(most: usize) -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(any::<u64>(), 1..most)
}

fn do_drawn(bench: &mut Bench, drawn: Drawn) -> bool {
    match drawn {
        Drawn::Ask(uid, ask) => bench.ask(uid, *ask).is_ok(),
        Drawn::Presence(client, presence) => {
            let record = bench.ledger.presences(&Scripted, &[(client, presence)], bench.now_ns);
            bench.log.extend(record);
            true
        }
        Drawn::Time(ns) => {
            bench.now_ns += ns;
            let record = bench.ledger.tick(&Scripted, bench.now_ns);
            bench.log.extend(record);
            true
        }
    }
}

/// Of every currency and client of a user: the values of all resources, now and promised.
fn values(ledger: &mut Ledger, uid: u32) -> Vec<(CurrencyId, Vec<String>)> {
    let ids: Vec<CurrencyId> =
        ledger.market.currencies().filter(|view| view.broker.owner == uid).map(|view| view.id).collect();
    let value = |ledger: &mut Ledger, id| {
        let now = Resource::ALL.map(|resource| ledger.market.value(id, resource).unwrap().to_string());
        let promised =
            Resource::ALL.map(|resource| ledger.market.promises(resource).value(id).unwrap().to_string());
        now.into_iter().chain(promised).collect()
    };
    ids.into_iter().map(|id| (id, value(ledger, id))).collect()
}

/// How many base tickets there are of each resource, but for those of exchanges.
fn issued(ledger: &Ledger) -> [u64; 3] {
    let base = ledger.market.base();
    Resource::ALL
        .map(|resource| ledger.market.issued_by(base, resource).iter().map(|ticket| ticket.amount).sum())
}

/// Whether it is something that carol must not be touched by: all that others ask, but for what superusers may, and for
/// what would make the worth of every base ticket another.
fn concerns_only_others(uid: u32, ask: &Ask) -> bool {
    let trades = matches!(ask, Ask::CreateOffer(_) | Ask::CreateExchange(_) | Ask::CancelExchange(_));
    match uid {
        ROOT => false,
        CAROL => !trades,
        _ => true,
    }
}

/// A quarter of the usual number of cases: each compares ledgers byte for byte after every request. `PROPTEST_CASES` in the
/// environment says how many are usual.
fn few() -> ProptestConfig {
    let usual = ProptestConfig::default();
    ProptestConfig { cases: usual.cases.div_ceil(4), ..usual }
}

proptest! {
    #![proptest_config(few())]

    /// Nobody has more than all have: of each resource, what clients have adds up to all, what a currency has is no more,
    /// and the base has all if anybody has anything.
    #[test]
    fn parts_are_of_all(seeds in seeds(120)) {
        let mut bench = Bench::new("");
        for seed in seeds {
            do_drawn(&mut bench, draw(&mut Numbers::new(seed)));
            let Ok(Said::Graph(graph)) = bench.ask(ROOT, Ask::Graph) else { panic!() };
            for index in 0..3 {
                let part = |currency: &Currency| currency.standing[index].effective;
                let clients: f64 = graph.currencies.iter().filter(|c| c.client).map(part).sum();
                let base = part(&graph.currencies[0]);
                prop_assert!(base == 0.0 && clients == 0.0 || base == 1.0 && (clients - 1.0).abs() < 1e-9);
                for currency in &graph.currencies {
                    prop_assert!((-1e-9..=1.0 + 1e-9).contains(&part(currency)), "{:?}", currency);
                }
            }
        }
    }

    /// [`Bench::ask`] checks each: every law of the market holds, a refusal changed nothing, and what was done can be done
    /// again from its record with the same ledger at the end. And the whole log gives the same ledger.
    #[test]
    fn whole_or_not_at_all_and_a_log_is_the_ledger(seeds in seeds(120)) {
        let mut bench = Bench::new("");
        for seed in seeds {
            do_drawn(&mut bench, draw(&mut Numbers::new(seed)));
        }
        let mut again = Ledger::new(Policy::default());
        for record in &bench.log {
            again.replay(record).unwrap();
        }
        prop_assert_eq!(again.to_bytes().unwrap(), bench.ledger.to_bytes().unwrap());
        let image = bench.ledger.to_bytes().unwrap();
        let read = Ledger::from_bytes(&image, Policy::default()).unwrap();
        prop_assert_eq!(read.to_bytes().unwrap(), image);
    }

    /// Isolation. Carol keeps what is hers to herself and trades with nobody. Whatever the others do, none of it changes
    /// what anything of hers is worth, or was promised.
    #[test]
    fn nobody_who_keeps_to_oneself_is_touched_by_others(seeds in seeds(150)) {
        let mut bench = Bench::new("[bounds.alice]\ncpu = 1500");
        for uid in [ALICE, BOB, CAROL] {
            bench.admit(uid, "t0", 10);
            bench.admit(uid, "t1", 20);
        }
        for seed in seeds {
            let drawn = draw(&mut Numbers::new(seed));
            if let Drawn::Presence(client, _) = drawn {
                let hers = bench.ledger.clients.get(&client).is_some_and(|client| client.uid == CAROL);
                let before = values(&mut bench.ledger, CAROL);
                do_drawn(&mut bench, drawn);
                prop_assert!(hers || before == values(&mut bench.ledger, CAROL), "presence of {}", client);
                continue;
            }
            let Drawn::Ask(uid, ask) = &drawn else { continue };
            if !concerns_only_others(*uid, ask) {
                continue;
            }
            let opens = |change: &CurrencyChange| change.mode.is_some();
            let opens = match &**ask {
                Ask::ChangeCurrency(_, change) => opens(change),
                Ask::CreateCurrency(new) => new.mode.is_some(),
                _ => false,
            };
            // Carol lets nobody in, and takes nothing from anybody: what is given can be taken back.
            if *uid == CAROL && (opens || matches!(&**ask, Ask::CreateTicket(new) if !new.issuer.starts_with("carol"))) {
                continue;
            }
            let before = values(&mut bench.ledger, CAROL);
            let (uid, said) = (*uid, format!("{ask:?}"));
            do_drawn(&mut bench, drawn);
            if uid != CAROL {
                prop_assert_eq!(before, values(&mut bench.ledger, CAROL), "{} by {}", said, uid);
            }
        }
    }

    /// Conservation. Whoever may not issue base tickets makes none, whatever they ask for, but for those of their first use.
    #[test]
    fn nobody_makes_base_tickets_who_may_not(seeds in seeds(150)) {
        let mut bench = Bench::new("");
        for seed in seeds {
            let drawn = draw(&mut Numbers::new(seed));
            let (before, users) = (issued(&bench.ledger), bench.ledger.users.len() as u64);
            // An administrator can let everybody issue base tickets: then everybody may.
            let base = bench.ledger.market.currency(bench.ledger.market.base()).unwrap();
            let open = base.broker.mode != divvy_market::Mode::PRIVATE;
            let (by, said) = match &drawn {
                Drawn::Ask(uid, ask) => (*uid, format!("{ask:?}")),
                other => (CAROL, format!("{other:?}")),
            };
            do_drawn(&mut bench, drawn);
            let (after, newcomers) = (issued(&bench.ledger), (bench.ledger.users.len() as u64).saturating_sub(users));
            // Root may, and alice and bob may have bounds from root; carol never has.
            if by == CAROL && !open {
                for (was, is) in before.into_iter().zip(after) {
                    prop_assert!(is <= was + 1500 * newcomers, "{}: {} base tickets after {}", said, is, was);
                }
            }
        }
    }
}

/// Random requests are worth something only if each kind is done at times, and refused at times.
#[test]
fn random_requests_reach_every_kind() {
    let mut done: std::collections::BTreeMap<String, (u32, u32)> = std::collections::BTreeMap::new();
    for market in 0..40 {
        let mut ledger = Ledger::new(Policy::default());
        let mut now_ns = 0;
        for n in 0..500 {
            now_ns += 1;
            match draw(&mut Numbers::new(market * 1_000_000 + n)) {
                Drawn::Ask(uid, ask) => {
                    let kind: String =
                        format!("{ask:?}").chars().take_while(char::is_ascii_alphabetic).collect();
                    let outcome = ledger.apply(&Scripted, &super::tests::who(uid), &ask, now_ns);
                    let count = done.entry(kind).or_default();
                    match outcome {
                        Ok(_) => count.0 += 1,
                        Err(Failed::Refused(_)) => count.1 += 1,
                        Err(Failed::Broken(refusal)) => panic!("{ask:?}: {refusal:?}"),
                    }
                }
                Drawn::Presence(client, presence) => {
                    let changed = ledger.presences(&Scripted, &[(client, presence)], now_ns).is_some();
                    done.entry("presence".to_owned()).or_default().0 += u32::from(changed);
                }
                Drawn::Time(ns) => {
                    now_ns += ns;
                    let ended = ledger.tick(&Scripted, now_ns).is_some();
                    done.entry("time".to_owned()).or_default().0 += u32::from(ended);
                }
            }
        }
        ledger.audit().unwrap();
    }
    for (kind, (done, refused)) in &done {
        assert!(*done > 5, "{kind}: done {done} times, refused {refused} times");
    }
    assert_eq!(done.len(), 21, "{done:?}");
}

/// A case that the law above once took for a mistake: root opened the base, and carol made use of it.
#[test]
fn an_administrator_can_open_the_base_to_all() {
    let mut bench = Bench::new("");
    bench.admit(CAROL, "task", 1);
    let fund = |bench: &mut Bench| {
        let (holder, issuer) = ("task".to_owned(), "base".to_owned());
        let (resource, kind) = (Resource::Cpu, divvy_market::Kind::Soft);
        bench.ask(CAROL, Ask::CreateTicket(NewTicket { holder, issuer, resource, amount: 72, kind }))
    };
    assert_eq!(fund(&mut bench).unwrap_err().code, ErrorCode::NotPermitted);
    let open = CurrencyChange { mode: Some("777".to_owned()), ..CurrencyChange::default() };
    bench.ask(ROOT, Ask::ChangeCurrency("base".to_owned(), open)).unwrap();
    fund(&mut bench).unwrap();
    assert_eq!(issued(&bench.ledger)[0], 1072);
}
