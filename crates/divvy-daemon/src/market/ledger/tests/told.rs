//! What a refusal tells beside its cause.

use super::*;

#[test]
fn a_misspelt_name_and_too_much_of_a_trade_are_told_with_what_there_is() {
    let mut bench = Bench::new("");
    bench.admit(ALICE, "build", 1);
    bench.admit(BOB, "test", 1);
    let said = |refusal: Refusal| format!("{}; {}", refusal.message, refusal.fix);
    for (word, meant) in [
        ("biuld", "did you mean 'build'?"),
        ("bob/tset", "did you mean 'bob/test'?"),
        ("alise", "did you mean 'alice'?"),
        ("elsewhere-else", ""),
    ] {
        let refused = said(bench.ask(ALICE, Ask::Currency(word.to_owned())).unwrap_err());
        let begin = format!("no currency or client is called '{word}'; see `divvy currency ls`");
        let rest = refused.strip_prefix(&begin).unwrap_or_else(|| panic!("{refused}"));
        assert_eq!(rest.trim_start_matches("; "), meant);
    }
    // She alone is in her currency, and has what it has: 1000.
    let offer = |n| NewOffer {
        party: Some("build".to_owned()),
        gives: Give { resource: Resource::Cpu, amount: n },
        wants: Give { resource: Resource::Disk, amount: 1 },
        wait_ns: None,
    };
    let refused = said(bench.ask(ALICE, Ask::CreateOffer(offer(1001))).unwrap_err());
    assert!(refused.contains(": of cpu it has 1000, in base tickets, and would give 1001; "), "{refused}");
    bench.ask(ALICE, Ask::CreateOffer(offer(1000))).unwrap();
}

/// The client's old ticket is gone, so that it would be left with nothing.
#[test]
fn what_nice_made_is_not_ended_under_its_client() {
    let mut bench = Bench::new("");
    let client = bench.admit(BOB, "task", 1).currency;
    let nice = NewNice { client: "task".to_owned(), from: None, resource: None, amount: 100 };
    bench.ask(BOB, Ask::Nice(nice)).unwrap();
    for uid in [BOB, ROOT] {
        let refused = bench.ask(uid, Ask::DestroyCurrency("bob/task-nice".to_owned())).unwrap_err();
        assert_eq!(refused.code, ErrorCode::Refused);
        assert!(
            refused.message.contains("funds bob/task, which would be left with nothing"),
            "{}",
            refused.message
        );
    }
    // It goes with its client, and what it had goes back.
    bench.ask(BOB, Ask::Leave { client }).unwrap();
    assert_eq!(bench.code(BOB, Ask::Currency("task-nice".to_owned())), ErrorCode::NoSuchCurrency);
    let backing = bench.ledger.market.backing_of(bench.ledger.users[&BOB].currency, Resource::Cpu);
    assert_eq!(backing.iter().map(|ticket| ticket.amount).sum::<u64>(), 1000);
}
