//! Offers, exchanges and nice.

use super::*;

#[test]
fn users_trade_through_the_dealer() {
    let (cpu, disk) = (Resource::Cpu, Resource::Disk);
    let mut bench = Bench::new("");
    assert_eq!(
        bench.code(ALICE, offer((disk, 300), (cpu, 200), None)),
        ErrorCode::NoSuchCurrency,
        "no currency yet"
    );
    bench.admit(ALICE, "a", 1);
    bench.admit(BOB, "b", 1);
    assert_eq!(bench.code(ALICE, offer((disk, 1001), (cpu, 200), None)), ErrorCode::Refused);
    assert_eq!(bench.code(ALICE, offer((disk, 1), (disk, 2), None)), ErrorCode::Refused);
    assert_eq!(bench.code(ALICE, offer((disk, 1), (cpu, 2), Some(0))), ErrorCode::BadRequest);
    let Ok(Said::Offered(long)) = bench.ask(ALICE, offer((disk, 1), (cpu, 2), Some(u64::MAX))) else {
        panic!()
    };
    bench.ask(ALICE, Ask::WithdrawOffer(long.result.offer.unwrap().id)).unwrap();
    let Ok(Said::Offered(first)) = bench.ask(ALICE, offer((disk, 300), (cpu, 200), Some(1000))) else {
        panic!()
    };
    let waits = first.result.offer.unwrap();
    assert_eq!((waits.party.as_str(), waits.until_unix_ns), ("alice", Some(bench.now_ns + 1000)));
    // At another rate: told of the other, and waiting too.
    let Ok(Said::Offered(other)) = bench.ask(BOB, offer((cpu, 100), (disk, 300), None)) else { panic!() };
    assert_eq!(other.result.conflicts, std::slice::from_ref(&waits));
    let others = other.result.offer.unwrap().id;
    assert_eq!(bench.code(ALICE, Ask::WithdrawOffer(others)), ErrorCode::NotPermitted);
    bench.ask(BOB, Ask::WithdrawOffer(others)).unwrap();
    let Ok(Said::Offered(made)) = bench.ask(BOB, offer((cpu, 200), (disk, 300), None)) else { panic!() };
    let exchange = made.result.exchange.unwrap();
    assert_eq!((exchange.a.as_str(), exchange.b.as_str()), ("alice", "bob"));
    assert_eq!((bench.value("alice/a"), bench.value("bob/b")), ("1200".to_owned(), "800".to_owned()));
    assert_eq!(bench.currency("alice").standing[0].requested, 0.5, "an exchange is no promise");
    assert_eq!(bench.currency("alice").standing[0].effective, 0.6);
    assert_eq!(bench.code(CAROL, Ask::CancelExchange(exchange.id)), ErrorCode::NotPermitted);
    // Bob's cpu is cut below what it gave: the exchange ends, and the answer says so.
    let tickets = bench.ledger.market.backing_of(bench.ledger.users[&BOB].currency, cpu);
    let ask = Ask::ChangeTicket(tickets[0].id.to_string(), TicketChange { amount: 199 });
    let Ok(Said::ChangedTicket(cut)) = bench.ask(ROOT, ask) else { panic!() };
    assert_eq!(cut.aftermath.undone, [exchange.id]);
    assert_eq!(bench.value("alice/a"), "1000");
}

#[test]
fn exchanges_count_as_tickets() {
    let mut bench = Bench::new("[limits]\ntickets = 2");
    bench.admit(ALICE, "a", 1);
    bench.admit(ALICE, "b", 1);
    let exchange = || {
        Ask::CreateExchange(NewExchange {
            a: "a".to_owned(),
            a_gives: give(Resource::Cpu, 1),
            b: "b".to_owned(),
            b_gives: give(Resource::Disk, 1),
        })
    };
    let Ok(Said::Exchange(first)) = bench.ask(ALICE, exchange()) else { panic!() };
    bench.ask(ALICE, exchange()).unwrap();
    assert_eq!(bench.code(ALICE, exchange()), ErrorCode::Limit);
    assert_eq!(bench.code(ALICE, fund("a", "alice", 1)), ErrorCode::Limit);
    bench.ask(ALICE, Ask::CancelExchange(first.result.id)).unwrap();
    bench.ask(ALICE, exchange()).unwrap();
}

/// Whatever is made nice of what, there are as many base tickets as before.
#[test]
fn nice_mints_nothing() {
    let mut bench = Bench::new("");
    bench.admit(ALICE, "a", 1);
    bench.admit(ALICE, "b", 1);
    let mut nice = |client: &str, amount, from: Option<String>| {
        let new = NewNice { client: client.to_owned(), from, resource: None, amount };
        match bench.ask(ALICE, Ask::Nice(new)) {
            Ok(Said::ChangedCurrency(made)) => Some(made.result.name),
            _ => None,
        }
    };
    let first = nice("a", 1000, None).expect("all of it");
    nice("b", 1000, Some(first)).expect("of what a has");
    // There is nothing left in it that could go back.
    for amount in [1, 1000, 1] {
        nice("a", amount, None);
    }
    let sum: u64 =
        ["alice", "alice/a", "alice/b"].map(|name| bench.value(name).parse().unwrap_or(0)).iter().sum();
    assert!(sum <= 1000, "{sum} of 1000");
    assert_eq!(bench.ledger.market.total(Resource::Cpu).to_string(), "1000");
}

/// An administrator's `nice` of a user's client makes it less, and not more at the administrator's cost.
#[test]
fn a_superusers_nice_takes_from_the_clients_user() {
    let mut bench = Bench::new("[admins]\nusers = [\"bob\"]");
    bench.admit(ALICE, "sim", 1);
    bench.admit(ALICE, "other", 1);
    bench.admit(BOB, "his", 1);
    for superuser in [ROOT, BOB] {
        let new = NewNice { client: "alice/sim".to_owned(), from: None, resource: None, amount: 10 };
        bench.ask(superuser, Ask::Nice(new)).unwrap();
        let values = ["alice/sim", "alice/other", "alice", "bob"].map(|name| bench.value(name));
        assert_eq!(values, ["10", "990", "990", "1000"], "{superuser}");
    }
    let named =
        NewNice { client: "alice/other".to_owned(), from: Some("bob".into()), resource: None, amount: 10 };
    bench.ask(BOB, Ask::Nice(named)).unwrap();
    assert_eq!(bench.value("bob"), "990");
}

/// By whatever currency a client is funded, that gives; nobody else.
#[test]
fn a_superusers_nice_knows_who_funds_the_client() {
    let mut bench = Bench::new("");
    bench.admit(ALICE, "first", 1);
    bench.create(ALICE, "work", "fci------");
    let admit = Ask::Admit {
        name: "sim".to_owned(),
        amount: 1,
        identity: identity(9),
        parent: None,
        from: Some("work".to_owned()),
        job: None,
    };
    bench.ask(ALICE, admit).unwrap();
    let nice = |bench: &mut Bench| {
        let new = NewNice { client: "alice/sim".to_owned(), from: None, resource: None, amount: 10 };
        bench.ask(ROOT, Ask::Nice(new))
    };
    let refusal = nice(&mut bench).unwrap_err();
    assert_eq!(refusal.message, "alice/work has 0 cpu base tickets that could go with it, not 10");
    bench.fund(ROOT, "alice/work", "base", 100).unwrap();
    nice(&mut bench).unwrap();
    assert_eq!(["alice/sim", "alice"].map(|name| bench.value(name)), ["10", "1000"]);
    bench.fund(ALICE, "alice/sim", "alice", 1).unwrap();
    let refusal = nice(&mut bench).unwrap_err();
    assert_eq!(refusal.message, "alice/sim has cpu tickets of alice and of alice/work");
}

/// What a user's own currency funds would be without for good.
#[test]
fn a_users_own_currency_is_not_ended_under_its_clients() {
    let mut bench = Bench::new("");
    let build = bench.admit(ALICE, "build", 1);
    let test = bench.admit(ALICE, "test", 1);
    let end = || Ask::DestroyCurrency("alice".to_owned());
    let refusal = bench.ask(ROOT, end()).unwrap_err();
    assert_eq!(refusal.code, ErrorCode::Refused);
    assert!(refusal.message.ends_with("divided just now: alice/build and 1 more"), "{}", refusal.message);
    bench.ask(ALICE, Ask::Leave { client: build.currency }).unwrap();
    assert!(bench.ask(ROOT, end()).unwrap_err().message.ends_with("just now: alice/test"));
    // What it funds another currency with it funds that one's clients with.
    bench.create(ALICE, "work", "fci------");
    bench.fund(ALICE, "alice/work", "alice", 5).unwrap();
    bench.fund(ALICE, "alice/test", "alice/work", 5).unwrap();
    for own in bench.ledger.market.backing_of(test.currency, Resource::Cpu) {
        if bench.ledger.name_of(&Scripted, own.issuer) == "alice" {
            bench.ask(ROOT, Ask::DestroyTicket(own.id.to_string())).unwrap();
        }
    }
    assert!(bench.ask(ROOT, end()).unwrap_err().message.ends_with("just now: alice/test"));
    // A currency that is no user's own can go: whoever asks is told who has nothing then.
    bench.ask(ALICE, Ask::DestroyCurrency("work".to_owned())).unwrap();
}

#[test]
fn nice_takes_a_part_and_gives_it_back() {
    let mut bench = Bench::new("");
    let job = bench.admit(ALICE, "job", 1);
    bench.admit(ALICE, "shell", 1);
    let nice = |amount| Ask::Nice(NewNice { client: "job".to_owned(), from: None, resource: None, amount });
    assert_eq!(bench.code(ALICE, nice(1001)), ErrorCode::Refused);
    let elsewhere =
        Ask::Nice(NewNice { client: "alice/job".to_owned(), from: None, resource: None, amount: 1 });
    assert_eq!(bench.code(BOB, elsewhere), ErrorCode::NoSuchCurrency, "bob has no currency yet");
    let Ok(Said::ChangedCurrency(made)) = bench.ask(ALICE, nice(100)) else { panic!() };
    assert_eq!(made.result.niced_from.as_deref(), Some("alice"));
    assert_eq!(made.result.name, "alice/job-nice");
    assert_eq!((bench.value("alice/job"), bench.value("alice")), ("100".to_owned(), "900".to_owned()));
    // Another amount is not one more: the same currency has it.
    for (amount, left) in [(1, "999"), (1, "999"), (1000, "0"), (300, "700"), (100, "900")] {
        let Ok(Said::ChangedCurrency(again)) = bench.ask(ALICE, nice(amount)) else { panic!("{amount}") };
        assert_eq!(again.result.id, made.result.id);
        let values = (bench.value("alice/job"), bench.value("alice"));
        assert_eq!(values, (amount.to_string(), left.to_owned()), "{amount}");
    }
    let refusal = bench.ask(ALICE, nice(1001)).unwrap_err();
    let said = "alice has 1000 cpu base tickets that could go with it, not 1001";
    assert_eq!((refusal.code, refusal.message.as_str()), (ErrorCode::Refused, said));
    // What it was funded with meanwhile goes, as at the first time: else it would not be small.
    bench.ask(ALICE, fund("job", "alice", 7)).unwrap();
    bench.ask(ALICE, nice(100)).unwrap();
    assert_eq!((bench.value("alice/job"), bench.value("alice")), ("100".to_owned(), "900".to_owned()));
    let set = |client, amount| Ask::SetShare { client, amount };
    assert_eq!(bench.code(ALICE, set(job.currency, 5)), ErrorCode::Refused, "it would change nothing");
    let child = bench.admit_child(ALICE, "child", 100, Some(job.currency));
    assert_eq!(bench.value("alice/child"), "50", "children share it");
    bench.ask(ALICE, set(child.currency, 300)).unwrap();
    assert_eq!(bench.value("alice/child"), "75", "of what they share");
    bench.ask(ALICE, set(child.currency, 100)).unwrap();
    // One of them alone leaves the other what they had.
    let alone = NewNice { client: "child".to_owned(), from: None, resource: None, amount: 10 };
    bench.ask(ALICE, Ask::Nice(alone)).unwrap();
    let values = ["alice/job", "alice/child", "alice"].map(|name| bench.value(name));
    assert_eq!(values, ["100", "10", "890"]);
    bench.ask(ALICE, Ask::Leave { client: child.currency }).unwrap();
    bench.ask(ALICE, Ask::Leave { client: job.currency }).unwrap();
    assert_eq!(bench.value("alice"), "1000");
    assert_eq!(bench.code(ALICE, Ask::Currency(made.result.id)), ErrorCode::NoSuchCurrency);
    // What is called so already keeps its name.
    for name in ["job-nice", "job"] {
        bench.admit(ALICE, name, 1);
    }
    let Ok(Said::ChangedCurrency(second)) = bench.ask(ALICE, nice(100)) else { panic!() };
    assert_eq!(second.result.name, second.result.id);
}
