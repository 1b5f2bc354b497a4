//! The ledger request by request.

mod exchanges;
mod told;

use divvy_market::{Kind, Presence, Resource};

use super::*;
use crate::market::names::scripted::Scripted;
use divvy_api::market::*;

/// A ledger, and whoever asks it.
pub(in crate::market) struct Bench {
    pub(in crate::market) ledger: Ledger,
    pub(in crate::market) now_ns: u64,
    pub(in crate::market) log: Vec<Record>,
}

pub(in crate::market) const ROOT: u32 = 0;
pub(in crate::market) const ALICE: u32 = 1001;
pub(in crate::market) const BOB: u32 = 1002;
pub(in crate::market) const CAROL: u32 = 1003;

/// Whoever is `uid`: in the group of the same number, and alice and bob in `staff`.
pub(in crate::market) fn who(uid: u32) -> Who {
    let mut gids = vec![uid];
    if uid == ALICE || uid == BOB {
        gids.push(50);
    }
    Who { uid, gids, pid: 7, by_root: false }
}

pub(in crate::market) fn identity(pid: i32) -> Identity {
    Identity { selector: format!("tree:{pid}"), process: Some((pid, 5)), boot: "b".to_owned() }
}

pub(in crate::market) fn image(ledger: &Ledger) -> Vec<u8> {
    ledger.to_bytes().unwrap()
}

impl Bench {
    pub(in crate::market) fn new(policy: &str) -> Self {
        Self { ledger: Ledger::new(Policy::parse(policy).unwrap()), now_ns: 1000, log: Vec::new() }
    }

    /// Asks, checks every law after it, and that a refusal changed nothing and a change can be replayed.
    pub(in crate::market) fn ask(&mut self, uid: u32, ask: Ask) -> Result<Said, Refusal> {
        self.now_ns += 1;
        let before = image(&self.ledger);
        let mut copy = Ledger::from_bytes(&before, Policy::default()).unwrap();
        let done = self.ledger.apply(&Scripted, &who(uid), &ask, self.now_ns);
        self.ledger.audit().unwrap_or_else(|fault| panic!("after {ask:?}: {fault}"));
        let after = image(&self.ledger);
        match done {
            Ok(Done { said, record }) => {
                match &record {
                    None => assert_eq!(before, after, "{ask:?} says that it changed nothing"),
                    Some(record) => {
                        let line = serde_json::to_string(record).unwrap();
                        let record: Record = serde_json::from_str(&line).unwrap();
                        copy.replay(&record).unwrap_or_else(|e| panic!("{line}: {e}"));
                        assert_eq!(image(&copy), after, "a replay of {line} is another ledger");
                    }
                }
                self.log.extend(record);
                Ok(said)
            }
            Err(Failed::Refused(refusal)) => {
                assert_eq!(before, after, "{ask:?} was refused and changed something: {}", refusal.message);
                Err(refusal)
            }
            Err(Failed::Broken(refusal)) => panic!("{ask:?} was done in part: {}", refusal.message),
        }
    }

    pub(in crate::market) fn code(&mut self, uid: u32, ask: Ask) -> ErrorCode {
        let said = format!("{ask:?}");
        self.ask(uid, ask).map(|done| panic!("{said} was done: {done:?}")).unwrap_err().code
    }

    pub(in crate::market) fn admit(&mut self, uid: u32, name: &str, amount: u64) -> Admitted {
        self.admit_child(uid, name, amount, None)
    }

    fn admit_child(&mut self, uid: u32, name: &str, amount: u64, parent: Option<CurrencyId>) -> Admitted {
        let ask = Ask::Admit {
            name: name.to_owned(),
            amount,
            identity: identity(9),
            parent,
            from: None,
            job: None,
        };
        match self.ask(uid, ask) {
            Ok(Said::Admitted(admitted)) => admitted,
            other => panic!("{other:?}"),
        }
    }

    pub(in crate::market) fn currency(&mut self, word: &str) -> Currency {
        match self.ask(ROOT, Ask::Currency(word.to_owned())) {
            Ok(Said::Currency(currency)) => currency,
            other => panic!("{other:?}"),
        }
    }

    fn create(&mut self, uid: u32, name: &str, mode: &str) -> Currency {
        let new = NewCurrency { name: name.to_owned(), group: None, mode: Some(mode.to_owned()) };
        match self.ask(uid, Ask::CreateCurrency(new)) {
            Ok(Said::ChangedCurrency(changed)) => changed.result,
            other => panic!("{other:?}"),
        }
    }

    fn fund(&mut self, uid: u32, holder: &str, issuer: &str, n: u64) -> Result<Ticket, Refusal> {
        match self.ask(uid, fund(holder, issuer, n)) {
            Ok(Said::ChangedTicket(changed)) => Ok(changed.result),
            Ok(other) => panic!("{other:?}"),
            Err(refusal) => Err(refusal),
        }
    }

    fn value(&mut self, word: &str) -> String {
        self.currency(word).standing[0].value.clone()
    }

    fn shares(&mut self) -> Vec<u64> {
        self.ledger.shares(1000).into_iter().map(|(_, share)| share).collect()
    }
}

fn fund(holder: &str, issuer: &str, amount: u64) -> Ask {
    let (holder, issuer) = (holder.to_owned(), issuer.to_owned());
    Ask::CreateTicket(NewTicket { holder, issuer, resource: Resource::Cpu, amount, kind: Kind::Soft })
}

fn change(word: &str, change: CurrencyChange) -> Ask {
    Ask::ChangeCurrency(word.to_owned(), change)
}

/// Requests for a trade between alice and bob: each has 1000 of everything.
fn offer(gives: (Resource, u64), wants: (Resource, u64), wait_ns: Option<u64>) -> Ask {
    Ask::CreateOffer(NewOffer {
        party: None,
        gives: give(gives.0, gives.1),
        wants: give(wants.0, wants.1),
        wait_ns,
    })
}

fn give(resource: Resource, amount: u64) -> Give {
    Give { resource, amount }
}

#[test]
fn a_user_gets_a_currency_on_first_use() {
    let mut bench = Bench::new("[users.bob]\ncpu = 500\n[users.default]\nmemory = 7");
    assert_eq!(bench.code(ROOT, Ask::Currency("alice".to_owned())), ErrorCode::NoSuchCurrency);
    let task = bench.admit(ALICE, "task", 3);
    assert_eq!((task.name.as_str(), task.uid, task.amount), ("task", ALICE, 3));
    let alice = bench.currency("alice");
    assert_eq!(
        (alice.owner.as_str(), alice.group.as_str(), alice.mode.as_str()),
        ("alice", "alice", "fci------")
    );
    let values: Vec<&str> = alice.standing.iter().map(|standing| standing.value.as_str()).collect();
    assert_eq!(values, ["1000", "7", "1000"]);
    bench.admit(BOB, "task", 1);
    assert_eq!(bench.value("bob/task"), "500");
    let task = bench.currency("alice/task");
    assert!(task.client && task.depth == 2);
    assert_eq!(task.standing[0].requested, 1000.0 / 1500.0);
    assert_eq!(bench.shares(), [2, 1]);
    // Once more changes nothing about it.
    bench.admit(ALICE, "other", 1);
    assert_eq!(bench.value("alice"), "1000");
    assert_eq!(bench.value("alice/task"), "750");
}

#[test]
fn names_are_found_and_shown() {
    let mut bench = Bench::new("");
    let build = bench.create(ALICE, "build", "700");
    assert_eq!(build.name, "alice/build");
    for word in ["alice/build", "1001/build", &build.id] {
        assert_eq!(bench.currency(word).id, build.id);
    }
    let Ok(Said::Currency(own)) = bench.ask(ALICE, Ask::Currency("build".to_owned())) else { panic!() };
    assert_eq!(own.id, build.id);
    assert_eq!(bench.code(BOB, Ask::Currency("build".to_owned())), ErrorCode::NoSuchCurrency);
    assert_eq!(bench.currency("base").depth, 0);
    for word in ["", "/", "alice/", "nobody/x", "99", "99.1", "bob", "alice/build/x"] {
        assert_eq!(bench.code(ALICE, Ask::Currency(word.to_owned())), ErrorCode::NoSuchCurrency, "{word}");
    }
    for name in ["", "17", "1.2", "base", "a/b", "a b", "-a", "\u{e9}t\u{e9}", &"x".repeat(65)] {
        let new = NewCurrency { name: name.to_owned(), ..NewCurrency::default() };
        assert_eq!(bench.code(ALICE, Ask::CreateCurrency(new)), ErrorCode::BadRequest, "{name}");
    }
    let of_a_user = NewCurrency { name: "bob".to_owned(), ..NewCurrency::default() };
    assert_eq!(bench.code(ALICE, Ask::CreateCurrency(of_a_user)), ErrorCode::NameTaken);
    let again = NewCurrency { name: "build".to_owned(), ..NewCurrency::default() };
    assert_eq!(bench.code(ALICE, Ask::CreateCurrency(again.clone())), ErrorCode::NameTaken);
    assert!(bench.ask(BOB, Ask::CreateCurrency(again)).is_ok(), "bob has names of his own");
}

/// Whoever does what a refusal says is not refused again.
#[test]
fn a_name_that_is_a_users_leads_to_one_that_can_be_had() {
    let mut bench = Bench::new("");
    let new = |name: &str, mode: Option<&str>| {
        Ask::CreateCurrency(NewCurrency { name: name.to_owned(), group: None, mode: mode.map(str::to_owned) })
    };
    // Nobody is sent to make what only an administrator can make.
    let fix = |bench: &mut Bench, uid| bench.ask(uid, Ask::Currency("bob".to_owned())).unwrap_err().fix;
    assert!(fix(&mut bench, ALICE).ends_with("or by `divvy currency create bob` of an administrator's"));
    assert!(fix(&mut bench, ROOT).ends_with("or by `divvy currency create bob`"));
    bench.ask(ALICE, new("bob-2", None)).unwrap();
    let refusal = bench.ask(ALICE, new("bob", None)).unwrap_err();
    assert_eq!(
        (refusal.code, refusal.fix.as_str()),
        (ErrorCode::NameTaken, "choose another name, as 'bob-3'")
    );
    assert!(refusal.message.starts_with("'bob' is a user of this machine"), "{refusal:?}");
    bench.ask(ALICE, new("bob-3", None)).unwrap();
    let refusal = bench.ask(ROOT, new("bob", Some("740"))).unwrap_err();
    assert_eq!(
        refusal.fix,
        "choose another name, as 'bob-2'; that user's own has neither --mode nor --group"
    );
    bench.ask(ROOT, new("bob", None)).unwrap();
    let refusal = bench.ask(ROOT, new("bob", None)).unwrap_err();
    assert_eq!(refusal.fix, "see `divvy currency tree`, or choose another name, as 'bob-2'");
    bench.ask(ROOT, new("bob-2", None)).unwrap();
}

/// The machine knows no user of this number.
const NO_ACCOUNT: u32 = 7777;

#[test]
fn a_user_without_an_account_has_a_name_too() {
    let mut bench = Bench::new("");
    let asked = |word: &str| Ask::Currency(word.to_owned());
    let refusal = bench.ask(ROOT, asked("uid:7777")).unwrap_err();
    assert!(refusal.fix.contains("`divvy currency create uid:7777`"), "{refusal:?}");
    let task = bench.admit(NO_ACCOUNT, "task", 1);
    assert_eq!(bench.currency("uid:7777").name, "uid:7777");
    assert_eq!(bench.currency(&task.currency.to_string()).name, "7777/task");
    bench.create(NO_ACCOUNT, "build", "700");
    assert_eq!(bench.fund(NO_ACCOUNT, "build", "uid:7777", 5).unwrap().issuer, "uid:7777");
    // By an account's number it is found as well, and shown by the account's name.
    bench.admit(ALICE, "task", 1);
    assert_eq!(bench.currency("uid:1001").name, "alice");
    // Nobody else takes the name, and an administrator can make what it names.
    let new = NewCurrency { name: "uid:8888".to_owned(), ..NewCurrency::default() };
    assert_eq!(bench.code(ALICE, Ask::CreateCurrency(new.clone())), ErrorCode::NameTaken);
    bench.ask(ROOT, Ask::CreateCurrency(new)).unwrap();
    assert_eq!(bench.currency("uid:8888").owner, "8888");
    for word in ["uid:", "uid:x", "uid:-1", "uid:99999999999"] {
        assert_eq!(bench.code(ALICE, asked(word)), ErrorCode::NoSuchCurrency, "{word}");
    }
}

#[test]
fn a_name_is_free_again_when_its_currency_is_gone() {
    let mut bench = Bench::new("");
    let first = bench.create(ALICE, "build", "700");
    bench.ask(ALICE, Ask::DestroyCurrency("build".to_owned())).unwrap();
    let second = bench.create(ALICE, "build", "700");
    assert_ne!(first.id, second.id, "ids are never given twice");
}

#[test]
fn who_may_do_what_is_said_in_names() {
    let mut bench = Bench::new("");
    bench.create(ALICE, "build", "700");
    bench.admit(BOB, "task", 1);
    let refusal = bench.fund(BOB, "alice/build", "bob", 5).unwrap_err();
    assert_eq!(refusal.code, ErrorCode::NotPermitted);
    assert_eq!(refusal.message, "not permitted: user bob needs f (fund) on alice/build");
    assert!(refusal.fix.contains("alice") && refusal.fix.contains("divvy currency chmod"), "{}", refusal.fix);
    bench
        .ask(ALICE, change("build", CurrencyChange { mode: Some("704".to_owned()), ..Default::default() }))
        .unwrap();
    bench.fund(BOB, "alice/build", "bob", 5).unwrap();
    let refusal = bench.fund(BOB, "bob", "base", 5).unwrap_err();
    assert_eq!(refusal.message, "not permitted: user bob needs i (issue) on base");
    assert_eq!(
        bench.code(
            BOB,
            change("alice", CurrencyChange { mode: Some("777".to_owned()), ..Default::default() })
        ),
        ErrorCode::NotPermitted
    );
    assert_eq!(
        bench.code(BOB, Ask::SetBound("bob".to_owned(), Bound { resource: Resource::Cpu, bound: Some(9) })),
        ErrorCode::NotPermitted
    );
    assert_eq!(bench.code(BOB, Ask::Reload(Box::default())), ErrorCode::NotPermitted);
}

#[test]
fn bad_requests_are_refused_by_name() {
    let mut bench = Bench::new("");
    bench.create(ALICE, "a", "700");
    bench.create(ALICE, "b", "700");
    let ticket = bench.fund(ALICE, "b", "a", 5).unwrap();
    let cycle = bench.fund(ALICE, "a", "b", 5).unwrap_err();
    assert_eq!(
        (cycle.code, cycle.message.as_str()),
        (ErrorCode::Refused, "a cycle: alice/a would come to back itself")
    );
    for (n, code) in
        [(0, ErrorCode::BadRequest), (1 << 32, ErrorCode::BadRequest), (u64::MAX, ErrorCode::BadRequest)]
    {
        assert_eq!(bench.fund(ALICE, "b", "a", n).unwrap_err().code, code);
        assert_eq!(bench.code(ALICE, Ask::ChangeTicket(ticket.id.clone(), TicketChange { amount: n })), code);
    }
    assert_eq!(bench.code(ALICE, Ask::Ticket("nine".to_owned())), ErrorCode::NoSuchTicket);
    assert_eq!(bench.code(ALICE, Ask::DestroyTicket("999".to_owned())), ErrorCode::NoSuchTicket);
    assert_eq!(bench.code(ALICE, Ask::CancelExchange(4)), ErrorCode::NoSuchExchange);
    assert_eq!(bench.code(ALICE, Ask::WithdrawOffer(4)), ErrorCode::NoSuchOffer);
    assert_eq!(bench.code(ALICE, change("a", CurrencyChange::default())), ErrorCode::BadRequest);
    for mode in ["", "8", "+40", "778", "7777", "rwx------", "fcifcifc", "-f-------"] {
        let bad = CurrencyChange { mode: Some(mode.to_owned()), ..Default::default() };
        assert_eq!(bench.code(ALICE, change("a", bad)), ErrorCode::BadRequest, "{mode}");
    }
    let bad = CurrencyChange { owner: Some("nobody-here".to_owned()), ..Default::default() };
    assert_eq!(bench.code(ALICE, change("a", bad)), ErrorCode::NoSuchUser);
    let transfer = Ask::CreateTicket(NewTicket {
        holder: "b".to_owned(),
        issuer: "a".to_owned(),
        resource: Resource::Cpu,
        amount: 1,
        kind: Kind::Transfer,
    });
    assert_eq!(bench.code(ALICE, transfer), ErrorCode::Refused);
    assert_eq!(bench.code(ALICE, Ask::DestroyCurrency("base".to_owned())), ErrorCode::Refused);
}

#[test]
fn a_change_of_several_things_is_whole_or_not_at_all() {
    let mut bench = Bench::new("");
    bench.create(ALICE, "a", "700");
    let letters = CurrencyChange { mode: Some("fcif----i".to_owned()), ..Default::default() };
    let Ok(Said::ChangedCurrency(changed)) = bench.ask(ALICE, change("a", letters)) else { panic!() };
    assert_eq!(changed.result.mode, "fcif----i");
    let all = |owner: &str, group: &str, total| CurrencyChange {
        mode: Some("740".to_owned()),
        owner: Some(owner.to_owned()),
        group: Some(group.to_owned()),
        hard_total: Some(give(Resource::Cpu, total)),
    };
    // Each of these is refused for another one of its parts (`ask` compares the ledger before and after).
    assert_eq!(bench.code(ALICE, change("a", all("bob", "staff", 10))), ErrorCode::NotPermitted);
    assert_eq!(bench.code(ALICE, change("a", all("alice", "carol", 10))), ErrorCode::NotPermitted);
    assert_eq!(bench.code(BOB, change("alice/a", all("alice", "staff", 10))), ErrorCode::NotPermitted);
    assert_eq!(bench.code(ALICE, change("a", all("alice", "staff", 0))), ErrorCode::BadRequest);
    let Ok(Said::ChangedCurrency(changed)) = bench.ask(ALICE, change("a", all("alice", "staff", 10))) else {
        panic!()
    };
    assert_eq!((changed.result.group.as_str(), changed.result.standing[0].hard_total), ("staff", 10));
    bench.create(BOB, "a", "700");
    assert_eq!(bench.code(ROOT, change("alice/a", all("bob", "staff", 20))), ErrorCode::NameTaken);
    bench.ask(BOB, Ask::DestroyCurrency("a".to_owned())).unwrap();
    bench.ask(ROOT, change("alice/a", all("bob", "staff", 20))).unwrap();
    assert_eq!(bench.currency("bob/a").owner, "bob");
}

/// What a policy makes of all that a user runs, nobody keeps from being by a name, and only an administrator lets it go.
#[test]
fn all_that_a_user_runs_is_the_policys() {
    let mut bench = Bench::new("[users.default]\neverything = true");
    let all = |uid: u32| Ask::Admit {
        name: "everything".to_owned(),
        amount: 1,
        identity: Identity { selector: format!("user:{uid}"), process: None, boot: String::new() },
        parent: None,
        from: None,
        job: None,
    };
    for ask in [
        Ask::CreateCurrency(NewCurrency { name: "everything".to_owned(), ..NewCurrency::default() }),
        all(ALICE), // Alice's processes, by Bob.
    ] {
        assert_eq!(bench.code(BOB, ask), ErrorCode::NameTaken);
    }
    let Ok(Said::Admitted(made)) = bench.ask(BOB, all(BOB)) else { panic!("it is his own") };
    let may = Ask::MayLeave { client: made.currency };
    assert_eq!(bench.code(BOB, may.clone()), ErrorCode::NotPermitted);
    bench.ask(ROOT, may.clone()).unwrap();
    let other = bench.admit(BOB, "other", 1);
    bench.ask(BOB, Ask::MayLeave { client: other.currency }).unwrap();
    bench.ask(ROOT, Ask::Reload(Box::default())).unwrap();
    bench.ask(BOB, may).unwrap();
}

#[test]
fn a_users_own_currency_and_clients_stay_where_they_are() {
    let mut bench = Bench::new("");
    let task = bench.admit(ALICE, "task", 1);
    let to_bob = CurrencyChange { owner: Some("bob".to_owned()), ..Default::default() };
    assert_eq!(bench.code(ROOT, change("alice", to_bob.clone())), ErrorCode::Refused);
    assert_eq!(bench.code(ROOT, change("alice/task", to_bob)), ErrorCode::Refused);
    assert_eq!(bench.code(ALICE, Ask::DestroyCurrency("alice".to_owned())), ErrorCode::NotPermitted);
    assert_eq!(bench.code(ALICE, Ask::DestroyCurrency("task".to_owned())), ErrorCode::Refused);
    assert_eq!(bench.code(BOB, Ask::Leave { client: task.currency }), ErrorCode::NotPermitted);
    bench.ask(ALICE, Ask::Leave { client: task.currency }).unwrap();
    assert_eq!(bench.code(ALICE, Ask::Leave { client: task.currency }), ErrorCode::NoSuchCurrency);
    bench.ask(ROOT, Ask::DestroyCurrency("alice".to_owned())).unwrap();
    bench.admit(ALICE, "task", 1);
    assert_eq!(bench.value("alice"), "1000", "made anew");
}

#[test]
fn a_superuser_can_name_a_user_who_was_never_there() {
    let mut bench = Bench::new("");
    // Refused in the end: bob's currency is not there either (`ask` compares).
    assert_eq!(bench.fund(ROOT, "bob", "alice/none", 5).unwrap_err().code, ErrorCode::NoSuchCurrency);
    assert_eq!(bench.fund(ROOT, "bob", "bob", 5).unwrap_err().code, ErrorCode::Refused);
    let hard = NewTicket {
        holder: "bob".to_owned(),
        issuer: "base".to_owned(),
        resource: Resource::Cpu,
        amount: 2000,
        kind: Kind::Hard,
    };
    assert_eq!(bench.code(ROOT, Ask::CreateTicket(hard)), ErrorCode::Refused);
    assert_eq!(
        bench.fund(ALICE, "bob", "base", 5).unwrap_err().code,
        ErrorCode::NoSuchCurrency,
        "not for anybody"
    );
    bench.fund(ROOT, "bob", "base", 500).unwrap();
    bench.admit(BOB, "task", 1);
    assert_eq!(bench.value("bob/task"), "1500");
    let new = |name: &str| Ask::CreateCurrency(NewCurrency { name: name.to_owned(), ..Default::default() });
    bench.ask(ROOT, new("alice")).unwrap();
    assert_eq!(bench.code(ALICE, new("alice")), ErrorCode::NameTaken);
    bench.ask(CAROL, new("carol")).unwrap();
}

#[test]
fn a_child_joins_the_issuer_of_its_parents_first_ticket() {
    let mut bench = Bench::new("");
    let parent = bench.admit(ALICE, "make", 10);
    bench.create(ALICE, "build", "700");
    bench.fund(ALICE, "build", "alice", 10).unwrap();
    let ticket = bench.fund(ALICE, "make", "build", 4).unwrap();
    let child = bench.admit_child(ALICE, "cc", 5, Some(parent.currency));
    let backing = bench.ledger.market.backing_of(child.currency, Resource::Cpu);
    assert_eq!(backing.len(), 1);
    assert_eq!(
        (bench.ledger.name_of(&Scripted, backing[0].issuer), backing[0].amount),
        ("alice".to_owned(), 5)
    );
    // The parent moves to the other currency: so do its children from then on.
    let first = bench.ledger.first_ticket(parent.currency).unwrap();
    bench.ask(ALICE, Ask::DestroyTicket(first.id.to_string())).unwrap();
    assert_ne!(first.id.to_string(), ticket.id);
    let child = bench.admit_child(ALICE, "ld", 5, Some(parent.currency));
    let backing = bench.ledger.market.backing_of(child.currency, Resource::Cpu);
    assert_eq!(bench.ledger.name_of(&Scripted, backing[0].issuer), "alice/build");
    // Somebody else's client is nobody's parent, and base tickets are not passed on.
    let child = bench.admit_child(BOB, "cc", 5, Some(parent.currency));
    let backing = bench.ledger.market.backing_of(child.currency, Resource::Cpu);
    assert_eq!(bench.ledger.name_of(&Scripted, backing[0].issuer), "bob");
    let rooted = bench.admit(CAROL, "rooted", 1);
    let first = bench.ledger.first_ticket(rooted.currency).unwrap();
    bench.ask(ROOT, Ask::DestroyTicket(first.id.to_string())).unwrap();
    bench.fund(ROOT, "carol/rooted", "base", 900).unwrap();
    let before = bench.currency("base").standing[0].requested;
    let child = bench.admit_child(CAROL, "forked", 1, Some(rooted.currency));
    let backing = bench.ledger.market.backing_of(child.currency, Resource::Cpu);
    assert_eq!(bench.ledger.name_of(&Scripted, backing[0].issuer), "carol");
    assert_eq!(bench.currency("base").standing[0].requested, before);
}

#[test]
fn a_share_is_the_first_cpu_ticket() {
    let mut bench = Bench::new("");
    let (one, two) = (bench.admit(ALICE, "one", 1), bench.admit(ALICE, "two", 1));
    bench.ask(ALICE, Ask::SetShare { client: two.currency, amount: 3 }).unwrap();
    assert_eq!(bench.shares(), [1, 3]);
    assert_eq!(bench.code(BOB, Ask::SetShare { client: two.currency, amount: 3 }), ErrorCode::NotPermitted);
    assert_eq!(bench.code(ALICE, Ask::SetShare { client: two.currency, amount: 0 }), ErrorCode::BadRequest);
    let base = bench.ledger.market.base();
    assert_eq!(bench.code(ROOT, Ask::SetShare { client: base, amount: 3 }), ErrorCode::Refused);
    let first = bench.ledger.first_ticket(one.currency).unwrap();
    bench.ask(ALICE, Ask::DestroyTicket(first.id.to_string())).unwrap();
    assert_eq!(bench.code(ALICE, Ask::SetShare { client: one.currency, amount: 3 }), ErrorCode::Refused);
}

#[test]
fn presence_counts_within_a_currency() {
    let mut bench = Bench::new("");
    let (a, b) = (bench.admit(ALICE, "a", 1), bench.admit(ALICE, "b", 1));
    bench.admit(BOB, "c", 1);
    assert_eq!(bench.shares(), [1, 1, 2]);
    let record = bench.ledger.presences(&Scripted, &[(a.currency, Presence::Idle)], 5).unwrap();
    assert_eq!(
        bench.ledger.shares(1000).iter().map(|s| s.1).collect::<Vec<_>>(),
        [1, 1],
        "the sibling gains"
    );
    assert_eq!(record.steps.len(), 1);
    assert_eq!(bench.ledger.presences(&Scripted, &[(a.currency, Presence::Idle)], 5), None, "old news");
    bench.ask(ALICE, Ask::Leave { client: b.currency }).unwrap();
    assert_eq!(bench.ledger.presences(&Scripted, &[(b.currency, Presence::Idle)], 5), None, "it has left");
    let memory = bench.currency("alice").standing[1].active;
    assert!(memory, "it has its memory while it sleeps");
}

#[test]
fn nobody_has_more_than_all_beside_a_sleeper_with_a_hard_ticket() {
    let mut bench = Bench::new("");
    let sleeps = bench.admit(ALICE, "sleeps", 1);
    bench.admit(ALICE, "runs", 1);
    bench.admit(BOB, "task", 1);
    let hard = Ask::CreateTicket(NewTicket {
        holder: "sleeps".to_owned(),
        issuer: "alice".to_owned(),
        resource: Resource::Cpu,
        amount: 500,
        kind: Kind::Hard,
    });
    bench.ask(ALICE, hard).unwrap();
    let soft = bench.ledger.first_ticket(sleeps.currency).unwrap().id;
    bench.ask(ALICE, Ask::DestroyTicket(soft.to_string())).unwrap();
    bench.ledger.presences(&Scripted, &[(sleeps.currency, Presence::Idle)], bench.now_ns);
    // Of alice's 1000, half is kept for one that sleeps: 500 and bob's 1000 are all that anybody has.
    assert_eq!(bench.value("alice"), "1000");
    assert_eq!(bench.value("alice/runs"), "500");
    let effective = |bench: &mut Bench, word: &str| bench.currency(word).standing[0].effective;
    for (word, part) in [("base", 1.0), ("alice", 1.0 / 3.0), ("alice/runs", 1.0 / 3.0), ("bob", 2.0 / 3.0)] {
        assert!(
            (effective(&mut bench, word) - part).abs() < 1e-12,
            "{word}: {}",
            effective(&mut bench, word)
        );
    }
    bench.ledger.presences(&Scripted, &[(sleeps.currency, Presence::Competing)], bench.now_ns);
    for (word, part) in [("base", 1.0), ("alice", 0.5), ("alice/sleeps", 0.25), ("bob", 0.5)] {
        assert!(
            (effective(&mut bench, word) - part).abs() < 1e-12,
            "{word}: {}",
            effective(&mut bench, word)
        );
    }
}

#[test]
fn limits_hold_for_each_user_and_not_for_superusers() {
    let mut bench = Bench::new("[limits]\ncurrencies = 2\ntickets = 3\noffers = 1\nclients = 2");
    bench.create(ALICE, "a", "700");
    bench.create(ALICE, "b", "777");
    let new = |name: &str| Ask::CreateCurrency(NewCurrency { name: name.to_owned(), ..Default::default() });
    let refusal = bench.ask(ALICE, new("c")).unwrap_err();
    assert_eq!(
        (refusal.code, refusal.message.as_str()),
        (ErrorCode::Limit, "user alice has 2 currencies, as many as one may have")
    );
    // Who had more before the limit is told both.
    let lower = |text: &str| Ask::Reload(Box::new(Policy::parse(text).unwrap()));
    bench.ask(ROOT, lower("[limits]\ncurrencies = 1")).unwrap();
    assert_eq!(
        bench.ask(ALICE, new("c")).unwrap_err().message,
        "user alice has 2 currencies, and one may have 1"
    );
    bench.ask(ROOT, lower("[limits]\ncurrencies = 2\ntickets = 3\noffers = 1\nclients = 2")).unwrap();
    bench.ask(ALICE, Ask::DestroyCurrency("a".to_owned())).unwrap();
    bench.create(ALICE, "a", "777");
    for n in 1..=3 {
        bench.fund(ALICE, "b", "a", n).unwrap();
    }
    assert_eq!(bench.code(ALICE, fund("b", "a", 1)), ErrorCode::Limit);
    bench.fund(BOB, "alice/b", "alice/a", 4).unwrap();
    bench.fund(ROOT, "alice/b", "alice/a", 5).unwrap();
    bench.ask(ALICE, Ask::DestroyCurrency("b".to_owned())).unwrap();
    bench.create(ALICE, "b", "777");
    bench.fund(ALICE, "b", "a", 1).unwrap();
    bench.admit(ALICE, "x", 1);
    let y = bench.admit(ALICE, "y", 1);
    let z = || Ask::Admit {
        name: "z".to_owned(),
        amount: 1,
        identity: identity(1),
        parent: None,
        from: None,
        job: None,
    };
    assert_eq!(bench.code(ALICE, z()), ErrorCode::Limit);
    bench.ask(ALICE, Ask::Leave { client: y.currency }).unwrap();
    bench.ask(ALICE, z()).unwrap();
    let offer = |n| {
        Ask::CreateOffer(NewOffer {
            party: None,
            gives: give(Resource::Disk, n),
            wants: give(Resource::Cpu, 1),
            wait_ns: Some(10),
        })
    };
    bench.ask(ALICE, offer(1)).unwrap();
    assert_eq!(bench.code(ALICE, offer(2)), ErrorCode::Limit);
    bench.now_ns += 10;
    let record = bench.ledger.tick(&Scripted, bench.now_ns).unwrap();
    assert_eq!(record.steps.len(), 1);
    bench.ask(ALICE, offer(2)).unwrap();
}

#[test]
fn a_limit_holds_however_many_tickets_came_and_went() {
    let mut bench = Bench::new("[limits]\ntickets = 5");
    bench.create(ALICE, "a", "700");
    bench.create(ALICE, "b", "700");
    let mut tickets = std::collections::VecDeque::new();
    for n in 1..=40 {
        tickets.push_back(bench.fund(ALICE, "b", "a", n).unwrap());
        if tickets.len() == 5 {
            assert_eq!(bench.code(ALICE, fund("b", "a", 1)), ErrorCode::Limit);
            let oldest = tickets.pop_front().unwrap();
            bench.ask(ALICE, Ask::DestroyTicket(oldest.id)).unwrap();
        }
    }
    assert!(bench.ledger.charged[&ALICE].tickets.len() <= 16, "what is gone is swept out now and then");
}

#[test]
fn another_policy_changes_what_it_granted_and_nothing_else() {
    let mut bench = Bench::new("");
    bench.admit(ALICE, "a", 1);
    bench.admit(BOB, "b", 1);
    bench.fund(ROOT, "alice", "base", 50).unwrap();
    let nice = Ask::Nice(NewNice { client: "alice/a".to_owned(), from: None, resource: None, amount: 150 });
    bench.ask(ALICE, nice).unwrap();
    let reload = |text: &str| Ask::Reload(Box::new(Policy::parse(text).unwrap()));
    bench.ask(ROOT, reload("[users.alice]\ncpu = 1500\n[bounds.bob]\ncpu = 1100")).unwrap();
    let base = |bench: &Bench, uid: u32| {
        let tickets = bench.ledger.market.backing_of(bench.ledger.users[&uid].currency, Resource::Cpu);
        tickets.iter().map(|ticket| ticket.amount).sum::<u64>()
    };
    assert_eq!(base(&bench, ALICE), 1000 + 50 - 150 + 500);
    assert_eq!(base(&bench, BOB), 1000);
    bench.fund(BOB, "b", "base", 100).unwrap();
    assert_eq!(bench.fund(BOB, "b", "base", 1).unwrap_err().code, ErrorCode::Refused, "above the bound");
    bench.ask(ROOT, reload("[users.alice]\ncpu = 100")).unwrap();
    assert_eq!(base(&bench, ALICE), 50 + 100 - 150);
    assert_eq!(
        bench.fund(BOB, "b", "base", 1).unwrap_err().code,
        ErrorCode::NotPermitted,
        "no bound any more"
    );
    let steps = bench.log.len();
    bench.ask(ROOT, reload("[users.alice]\ncpu = 100")).unwrap();
    assert_eq!(bench.log.len(), steps, "the same policy changes nothing");
    // A user who is new gets what the policy says now.
    bench.ask(ROOT, reload("[users.default]\ncpu = 7")).unwrap();
    bench.admit(CAROL, "c", 1);
    assert_eq!((base(&bench, CAROL), base(&bench, BOB)), (7, 7));
}

#[test]
fn what_a_user_was_given_it_cannot_lose_by_mistake() {
    let mut bench = Bench::new("[bounds.alice]\ncpu = 1500");
    bench.admit(ALICE, "a", 1);
    let backing = |bench: &Bench, uid: u32| {
        bench.ledger.market.backing_of(bench.ledger.users[&uid].currency, Resource::Cpu)
    };
    let sum = |bench: &Bench, uid: u32| backing(bench, uid).iter().map(|t| t.amount).sum::<u64>();
    let given = backing(&bench, ALICE)[0].id.to_string();
    let lower = |ticket: &str, amount| Ask::ChangeTicket(ticket.to_owned(), TicketChange { amount });
    let refusal = bench.ask(ALICE, Ask::DestroyTicket(given.clone())).unwrap_err();
    assert_eq!(refusal.code, ErrorCode::NotPermitted);
    assert!(
        refusal.message.contains("were given to alice") && refusal.fix.contains("administrator"),
        "{refusal:?}"
    );
    assert_eq!(bench.code(ALICE, lower(&given, 999)), ErrorCode::NotPermitted);
    // What she issued to herself, within her bound, is hers to take back.
    let own = bench.fund(ALICE, "alice", "base", 200).unwrap();
    bench.ask(ALICE, lower(&own.id, 100)).unwrap();
    bench.ask(ALICE, Ask::DestroyTicket(own.id)).unwrap();
    assert_eq!(sum(&bench, ALICE), 1000);
    // So is any ticket that is not of the base.
    let build = bench.create(ALICE, "build", "700");
    let funded = bench.fund(ALICE, &build.id, "alice", 5).unwrap();
    bench.ask(ALICE, Ask::DestroyTicket(funded.id)).unwrap();
    // An administrator takes it, and a reload of the policy gives it back.
    bench.ask(ROOT, Ask::DestroyTicket(given)).unwrap();
    assert_eq!(sum(&bench, ALICE), 0);
    let reload = |text: &str| Ask::Reload(Box::new(Policy::parse(text).unwrap()));
    bench.ask(ROOT, reload("[bounds.alice]\ncpu = 1500")).unwrap();
    assert_eq!(sum(&bench, ALICE), 1000, "as the policy says");
    let ticket = backing(&bench, ALICE)[0].id.to_string();
    bench.ask(ROOT, lower(&ticket, 300)).unwrap();
    bench.ask(ROOT, reload("[users.alice]\ncpu = 1200")).unwrap();
    assert_eq!(sum(&bench, ALICE), 1200, "and no more than that");
    // What `nice` lent on, and what is more than the policy says, stays as it is.
    let nice = Ask::Nice(NewNice { client: "alice/a".to_owned(), from: None, resource: None, amount: 150 });
    bench.ask(ALICE, nice).unwrap();
    bench.fund(ROOT, "alice", "base", 70).unwrap();
    let steps = bench.log.len();
    bench.ask(ROOT, reload("[users.alice]\ncpu = 1200")).unwrap();
    assert_eq!((sum(&bench, ALICE), bench.log.len()), (1200 - 150 + 70, steps));
}

#[test]
fn a_value_is_explained_up_to_the_base() {
    let mut bench = Bench::new("");
    bench.admit(ALICE, "a", 100);
    bench.admit(ALICE, "other", 200);
    bench.create(ALICE, "build", "700");
    bench.fund(ALICE, "build", "alice", 300).unwrap();
    bench.fund(ALICE, "a", "build", 5).unwrap();
    bench.admit(BOB, "b", 1);
    bench
        .ask(
            ALICE,
            Ask::CreateOffer(NewOffer {
                party: Some("a".to_owned()),
                gives: give(Resource::Disk, 10),
                wants: give(Resource::Cpu, 20),
                wait_ns: None,
            }),
        )
        .unwrap();
    bench.ask(BOB, offer((Resource::Cpu, 20), (Resource::Disk, 10), None)).unwrap();
    let Ok(Said::Explained(why)) = bench.ask(BOB, Ask::Explain("alice/a".to_owned(), Resource::Cpu)) else {
        panic!()
    };
    let told: Vec<(&str, &str, &str)> =
        why.parts.iter().map(|part| (part.what.as_str(), part.words.as_str(), part.value.as_str())).collect();
    assert_eq!(
        told,
        [
            ("ticket", "100 of the 600 active soft tickets of alice", "500/3"),
            ("ticket", "5 of the 5 active soft tickets of alice/build", "500"),
            ("exchange", "exchange 0: alice/a gives 10 disk, bob gives 20 cpu", "20"),
        ]
    );
    assert_eq!(why.currency.standing[0].value, "2060/3");
    let up: Vec<&str> = why.parts[0].from.iter().map(|part| part.words.as_str()).collect();
    assert_eq!(up, ["1000 base tickets"]);
    let up = &why.parts[1].from;
    assert_eq!(
        (up[0].words.as_str(), up[0].from.len()),
        ("300 of the 600 active soft tickets of alice", 0),
        "said above"
    );
    assert_eq!(bench.code(BOB, Ask::Explain("base".to_owned(), Resource::Cpu)), ErrorCode::Refused);
    // Reserved: hard tickets, and what they leave.
    let hard = NewTicket {
        holder: "other".to_owned(),
        issuer: "alice".to_owned(),
        resource: Resource::Cpu,
        amount: 250,
        kind: Kind::Hard,
    };
    bench.ask(ALICE, Ask::CreateTicket(hard)).unwrap();
    let Ok(Said::Explained(why)) = bench.ask(BOB, Ask::Explain("alice/other".to_owned(), Resource::Cpu))
    else {
        panic!()
    };
    let words: Vec<&str> = why.parts.iter().map(|part| part.words.as_str()).collect();
    assert_eq!(
        words[0],
        "200 of the 600 active soft tickets of alice, which share 750 of its 1000 hard ones"
    );
    assert_eq!(words[1], "250 of the 1000 hard tickets of alice");
}

#[test]
fn an_explanation_of_many_ways_comes_to_an_end() {
    // Each level is funded twice by the one above: 2^40 ways to the base.
    let mut bench = Bench::new("");
    let mut above = "alice".to_owned();
    bench.admit(ALICE, "t", 1);
    for level in 0..20 {
        for half in ["a", "b"] {
            bench.create(ALICE, &format!("{half}{level}"), "700");
            bench.fund(ALICE, &format!("{half}{level}"), &above, 1).unwrap();
        }
        let below = format!("c{level}");
        bench.create(ALICE, &below, "700");
        bench.fund(ALICE, &below, &format!("a{level}"), 1).unwrap();
        bench.fund(ALICE, &below, &format!("b{level}"), 1).unwrap();
        above = below;
    }
    bench.fund(ALICE, "t", &above, 1).unwrap();
    let Ok(Said::Explained(why)) = bench.ask(ALICE, Ask::Explain("t".to_owned(), Resource::Cpu)) else {
        panic!()
    };
    fn steps(whys: &[Why]) -> usize {
        whys.iter().map(|why| 1 + steps(&why.from)).sum()
    }
    assert!((60..200).contains(&steps(&why.parts)), "{}", steps(&why.parts));
}
