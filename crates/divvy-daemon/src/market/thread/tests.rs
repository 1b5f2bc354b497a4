//! The market's thread, asked as the API asks it.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel as pipe};

use divvy_market::{Kind, Resource};

use super::*;
use crate::market::ledger::tests::{ALICE, BOB, CAROL, ROOT, identity, who};
use crate::market::names::scripted::Scripted;
use divvy_api::market::{Graph, NewCurrency, NewOffer, NewTicket};

/// A market in a directory of its own.
struct Market {
    handle: Handle,
    running: Running,
    fed: Receiver<Vec<(CurrencyId, u64)>>,
    api: tokio::runtime::Runtime,
}

/// Follows what it is told, and tells what everybody is worth after each change.
struct Tell(Sender<Vec<(CurrencyId, u64)>>, BTreeMap<CurrencyId, u64>);

impl Feed for Tell {
    fn tell(&mut self, _: Resource, changed: Changed) {
        if changed.all {
            self.1.clear();
        }
        for (client, weight) in changed.weights {
            match weight {
                Some(weight) => self.1.insert(client, weight.all),
                None => self.1.remove(&client),
            };
        }
        let _ = self.0.send(self.1.iter().map(|(&client, &value)| (client, value)).collect());
    }

    fn resources(&self) -> &'static [Resource] {
        &[Resource::Cpu]
    }
}

fn begin(dir: &Path, policy: &str) -> Market {
    let (sender, fed) = pipe();
    let mut begin = Start::at(StoreConfig::at(dir.join("state")), Policy::parse(policy).unwrap());
    begin.names = Box::new(Scripted);
    begin.feed = Box::new(Tell(sender, BTreeMap::new()));
    let (handle, running) = start(begin).unwrap();
    let api = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    Market { handle, running, fed, api }
}

impl Market {
    fn ask(&self, uid: u32, ask: Ask) -> Result<Said, Refusal> {
        self.api.block_on(self.handle.ask(who(uid), ask))
    }

    fn create(&self, uid: u32, name: &str) -> Result<Said, Refusal> {
        self.ask(uid, Ask::CreateCurrency(NewCurrency { name: name.to_owned(), ..NewCurrency::default() }))
    }

    fn admit(&self, uid: u32, name: &str, amount: u64) -> Admitted {
        let ask = Ask::Admit {
            name: name.to_owned(),
            amount,
            identity: identity(9),
            parent: None,
            from: None,
            job: None,
        };
        match self.ask(uid, ask) {
            Ok(Said::Admitted(admitted)) => admitted,
            other => panic!("{other:?}"),
        }
    }

    fn graph(&self) -> Graph {
        match self.ask(ROOT, Ask::Graph) {
            Ok(Said::Graph(graph)) => graph,
            other => panic!("{other:?}"),
        }
    }

    /// What everybody is worth, in the smallest whole numbers, once it is this: the feed is told often while clients come.
    fn until_fed(&self, wanted: &[u64]) {
        let patience = Duration::from_secs(60);
        let mut last = Vec::new();
        while last != wanted {
            let told =
                self.fed.recv_timeout(patience).unwrap_or_else(|_| panic!("told {last:?}, not {wanted:?}"));
            let unit = told.iter().fold(0, |unit, &(_, value)| divvy_policy::gcd(unit, value)).max(1);
            last = told.iter().map(|&(_, value)| value / unit).collect();
        }
    }
}

#[test]
fn what_was_answered_is_there_after_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let market = begin(dir.path(), "");
    assert_eq!(market.running.recovered(), Recovered { snapshot: None, replayed: 0, damaged: 0 });
    let task = market.admit(ALICE, "task", 2);
    market.create(BOB, "build").unwrap();
    assert_eq!(market.create(BOB, "build").unwrap_err().code, ErrorCode::NameTaken);
    let before = market.graph();
    market.running.stop().unwrap();
    let gone = market.api.block_on(market.handle.ask(who(ALICE), Ask::Graph));
    assert_eq!(gone.unwrap_err().code, ErrorCode::Leaving);

    let market = begin(dir.path(), "");
    assert_eq!(market.running.recovered(), Recovered { snapshot: Some(2), replayed: 0, damaged: 0 });
    assert_eq!(market.running.clients(), std::slice::from_ref(&task));
    assert_eq!(market.graph(), before);
    market.ask(ROOT, Ask::Leave { client: task.currency }).unwrap();
    market.running.stop().unwrap();
    assert_eq!(begin(dir.path(), "").running.clients(), []);
}

#[test]
fn the_scheduler_is_told_what_each_gets() {
    let dir = tempfile::tempdir().unwrap();
    let market = begin(dir.path(), "[users.bob]\ncpu = 500");
    let (a, b) = (market.admit(ALICE, "a", 1), market.admit(ALICE, "b", 3));
    market.admit(BOB, "c", 1);
    market.until_fed(&[1, 3, 2]);
    market.handle.presence(b.currency, Presence::Idle);
    market.until_fed(&[2, 1]);
    market.handle.presence(b.currency, Presence::Competing);
    market.handle.presence(a.currency, Presence::Idle);
    market.until_fed(&[2, 1]);
    let fund = NewTicket {
        holder: "bob/c".to_owned(),
        issuer: "base".to_owned(),
        resource: Resource::Cpu,
        amount: 500,
        kind: Kind::Soft,
    };
    market.ask(ROOT, Ask::CreateTicket(fund)).unwrap();
    market.until_fed(&[1, 1]);
    market.running.stop().unwrap();
    // Who was idle is idle still, until somebody says otherwise.
    let market = begin(dir.path(), "[users.bob]\ncpu = 500");
    market.until_fed(&[1, 1]);
}

#[test]
fn a_user_who_asks_too_often_is_told_when_to_ask_again() {
    let dir = tempfile::tempdir().unwrap();
    let market = begin(dir.path(), "[limits]\nrequests_per_second = 1\nburst = 3");
    let asked: Vec<Option<ErrorCode>> =
        (0..6).map(|_| market.ask(ALICE, Ask::Graph).err().map(|refusal| refusal.code)).collect();
    assert_eq!(asked[..3], [None; 3]);
    assert!(asked[3..].contains(&Some(ErrorCode::Limit)), "{asked:?}");
    for _ in 0..20 {
        market.ask(ROOT, Ask::Graph).unwrap();
    }
    market.ask(BOB, Ask::Graph).unwrap();
}

#[test]
fn the_audit_log_says_who_did_what() {
    let dir = tempfile::tempdir().unwrap();
    let market = begin(dir.path(), "");
    market.create(ALICE, "a").unwrap();
    market.create(ALICE, "a").unwrap_err();
    market.create(BOB, "b").unwrap();
    market.graph();
    let audit = |uid| match market.ask(uid, Ask::Audit { since: 0 }) {
        Ok(Said::Audit(audit)) => audit.entries,
        other => panic!("{other:?}"),
    };
    let all = audit(ROOT);
    let told: Vec<(u32, i32, bool)> =
        all.iter().map(|line| (line.uid, line.pid, line.refused.is_some())).collect();
    assert_eq!(told, [(ALICE, 7, false), (ALICE, 7, true), (BOB, 7, false)]);
    assert_eq!(all[0].what["ask"], "create-currency");
    assert_eq!(all[0].what["request"]["name"], "a");
    assert_eq!(all[0].what["steps"][0]["do_as_divvyd"]["op"], "create_currency", "the first use");
    assert_eq!(all[1].refused.as_deref(), Some("user alice has something called 'a' already"));
    assert!(audit(BOB).iter().all(|line| line.uid == BOB));
    assert_eq!(audit(CAROL), []);
    let long = "x".repeat(AUDIT_REFUSED);
    market.create(BOB, &long).unwrap_err();
    market.create(BOB, "c").unwrap();
    let bobs = audit(BOB);
    assert_eq!(bobs[1].what, json!({ "ask": "create-currency", "too_long": true }));
}

#[test]
fn clients_are_called_by_their_names_in_the_audit_log() {
    let dir = tempfile::tempdir().unwrap();
    let market = begin(dir.path(), "");
    let client = market.admit(ALICE, "task", 2).currency;
    market.ask(ALICE, Ask::SetShare { client, amount: 3 }).unwrap();
    market.ask(ROOT, Ask::Leave { client }).unwrap();
    let Ok(Said::Audit(audit)) = market.ask(ROOT, Ask::Audit { since: 0 }) else { panic!() };
    for (line, ask) in audit.entries[1..].iter().zip(["set-share", "leave"]) {
        let what = &line.what;
        let told = (&what["ask"], &what["client"], &what["id"]);
        assert_eq!(told, (&json!(ask), &json!("alice/task"), &json!(client.to_string())));
    }
    assert_eq!(audit.entries.len(), 3);
}

#[test]
fn what_root_did_for_a_user_is_roots_deed() {
    let dir = tempfile::tempdir().unwrap();
    let market = begin(dir.path(), "");
    let new = NewCurrency { name: "a".to_owned(), ..NewCurrency::default() };
    let in_place_of = Who { by_root: true, ..who(ALICE) };
    market.api.block_on(market.handle.ask(in_place_of, Ask::CreateCurrency(new))).unwrap();
    for asks in [ROOT, ALICE] {
        let Ok(Said::Audit(audit)) = market.ask(asks, Ask::Audit { since: 0 }) else { panic!() };
        assert_eq!((audit.entries[0].uid, &audit.entries[0].what["by"]), (ALICE, &json!("root")));
    }
    let owner = market.graph().currencies.into_iter().find(|c| c.name == "alice/a").map(|c| c.owner);
    assert_eq!(owner.as_deref(), Some("alice"));
}

#[test]
fn a_policy_is_followed_at_the_start_and_on_reload() {
    let dir = tempfile::tempdir().unwrap();
    let market = begin(dir.path(), "");
    market.admit(ALICE, "a", 1);
    market.admit(BOB, "b", 1);
    market.until_fed(&[1, 1]);
    let policy = |text| Box::new(Policy::parse(text).unwrap());
    assert_eq!(market.ask(ALICE, Ask::Reload(policy(""))).unwrap_err().code, ErrorCode::NotPermitted);
    market
        .ask(ROOT, Ask::Reload(policy("[users.alice]\ncpu = 3000\n[admins]\nusers = [\"carol\"]")))
        .unwrap();
    market.until_fed(&[3, 1]);
    market
        .ask(
            CAROL,
            Ask::SetBound(
                "bob".to_owned(),
                divvy_api::market::Bound { resource: Resource::Cpu, bound: Some(1) },
            ),
        )
        .unwrap();
    market.running.stop().unwrap();
    let market = begin(dir.path(), "[users.alice]\ncpu = 500");
    market.until_fed(&[1, 2]);
    let Ok(Said::Audit(audit)) = market.ask(ROOT, Ask::Audit { since: 0 }) else { panic!() };
    assert_eq!(audit.entries.last().unwrap().what["ask"], "start");
}

#[test]
fn who_was_a_party_is_told_that_an_exchange_is_over_whoever_ended_it() {
    let dir = tempfile::tempdir().unwrap();
    let market = begin(dir.path(), "");
    market.admit(ALICE, "a", 1);
    market.admit(BOB, "b", 1);
    let trade = || {
        for (uid, gives, wants) in
            [(ALICE, Resource::Disk, Resource::Cpu), (BOB, Resource::Cpu, Resource::Disk)]
        {
            let give = |resource| divvy_api::market::Give { resource, amount: 600 };
            let offer = NewOffer { party: None, gives: give(gives), wants: give(wants), wait_ns: None };
            market.ask(uid, Ask::CreateOffer(offer)).unwrap();
        }
    };
    let ends = |market: &Market, uid| {
        let Ok(Said::Audit(audit)) = market.ask(uid, Ask::Audit { since: 0 }) else { panic!() };
        let of_end = audit.entries.into_iter().filter(|line| line.what["ask"] == "exchange-ended");
        of_end.map(|line| (line.uid, line.pid, line.what)).collect::<Vec<_>>()
    };
    let told = |n: u64, why: &str| {
        let was = "alice gives 600 disk, bob gives 600 cpu";
        json!({ "ask": "exchange-ended", "exchange": n.to_string(), "was": was, "why": why })
    };
    trade();
    let policy = |text| Ask::Reload(Box::new(Policy::parse(text).unwrap()));
    market.ask(ROOT, policy("[users.bob]\ncpu = 599")).unwrap();
    let no_longer = told(0, "a party can no longer cover it");
    assert_eq!(ends(&market, ALICE), [(ALICE, 0, no_longer.clone())]);
    assert_eq!(ends(&market, BOB), [(BOB, 0, no_longer)]);
    assert_eq!(ends(&market, CAROL), []);
    // Who ends it has its answer; who ends with it, or while divvyd was away, is told as well.
    market.ask(ROOT, policy("")).unwrap();
    trade();
    market.ask(ALICE, Ask::CancelExchange(1)).unwrap();
    assert_eq!(ends(&market, BOB)[1..], [(BOB, 0, told(1, "a party cancelled it"))]);
    assert_eq!(ends(&market, ALICE).len(), 1);
    trade();
    market.ask(ROOT, Ask::CancelExchange(2)).unwrap();
    assert_eq!(ends(&market, ALICE)[1..], [(ALICE, 0, told(2, "an administrator cancelled it"))]);
    trade();
    market.running.stop().unwrap();
    let market = begin(dir.path(), "[users.alice]\ndisk = 599");
    assert_eq!(ends(&market, ALICE)[2..], [(ALICE, 0, told(3, "a party can no longer cover it"))]);
    assert_eq!(ends(&market, BOB).len(), 4);
}

#[test]
fn where_nothing_can_be_written_nothing_is_answered_as_done() {
    let dir = tempfile::tempdir().unwrap();
    let (sender, fed) = pipe();
    let store = StoreConfig::at(dir.path().join("state"));
    let mut with = Start::at(StoreConfig { pages_max: Some(40), ..store }, Policy::default());
    with.names = Box::new(Scripted);
    with.feed = Box::new(Tell(sender, BTreeMap::new()));
    let (handle, running) = start(with).unwrap();
    let api = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let market = Market { handle, running, fed, api };
    let (a, _b) = (market.admit(ALICE, "a", 1), market.admit(ALICE, "b", 1));
    market.until_fed(&[1, 1]);
    market.handle.presence(a.currency, Presence::Idle);
    market.until_fed(&[1]);
    // Until the disk is full.
    let mut done = Vec::new();
    let refusal = loop {
        let name = format!("c{}", done.len());
        match market.create(ROOT, &name) {
            Ok(_) => done.push(format!("root/{name}")),
            Err(refusal) => break refusal,
        }
        assert!(done.len() < 10_000, "40 pages hold no more");
    };
    assert_eq!(refusal.code, ErrorCode::Busy);
    assert!(refusal.message.contains("the disk is full: make room"), "{}", refusal.message);
    let there = |market: &Market| -> Vec<String> {
        let graph = market.graph();
        graph.currencies.into_iter().map(|c| c.name).filter(|name| name.starts_with("root/")).collect()
    };
    assert_eq!(there(&market), done, "what was acknowledged, and nothing else");
    let again = market.create(ROOT, "another").unwrap_err();
    assert!(again.message.contains("nothing can be written"), "{}", again.message);
    // What was said of presence holds also in the ledger that was made again.
    market.handle.presence(a.currency, Presence::Competing);
    market.until_fed(&[1, 1]);
    drop((market.handle, market.fed));
    let _ = market.running.stop();
    let market = begin(dir.path(), "");
    assert_eq!(there(&market), done);
    market.create(ROOT, "another").unwrap();
}

/// Keeps the thread waiting until it is told to go on.
struct Wait(Receiver<()>);

impl Feed for Wait {
    fn tell(&mut self, _: Resource, _: Changed) {
        let _ = self.0.recv();
    }

    fn resources(&self) -> &'static [Resource] {
        &[Resource::Cpu]
    }
}

#[test]
fn who_looks_waits_for_nobody_who_changes_something() {
    let dir = tempfile::tempdir().unwrap();
    let (go_on, wait) = pipe();
    let mut begin = Start::at(StoreConfig::at(dir.path().join("state")), Policy::default());
    begin.names = Box::new(Scripted);
    begin.feed = Box::new(Wait(wait));
    let (handle, running) = start(begin).unwrap();
    let api = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let identity = identity(9);
    let client =
        Ask::Admit { name: "task".to_owned(), amount: 1, identity, parent: None, from: None, job: None };
    let asked = |ask: Ask| {
        let handle = handle.clone();
        api.spawn(async move { handle.ask(who(ALICE), ask).await })
    };
    // The thread tells what that is worth, and answers then. What comes meanwhile is one batch.
    let admitted = asked(client);
    let new = NewCurrency { name: "build".to_owned(), ..NewCurrency::default() };
    let (made, seen) = (asked(Ask::CreateCurrency(new)), asked(Ask::Currency("build".to_owned())));
    let began = api.spawn(async move { go_on.send(()) });
    api.block_on(began).unwrap().unwrap();
    assert!(api.block_on(admitted).unwrap().is_ok());
    assert!(api.block_on(made).unwrap().is_ok());
    // It was asked after the other, and is answered from what was on disk before that was done.
    assert_eq!(api.block_on(seen).unwrap().unwrap_err().code, ErrorCode::NoSuchCurrency);
    assert!(api.block_on(handle.ask(who(ALICE), Ask::Currency("build".to_owned()))).is_ok());
    running.stop().unwrap();
}
