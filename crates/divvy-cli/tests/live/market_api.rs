//! The market over the API of a system's divvyd: every path as the document says, by people who may and who may not.

use serde_json::{Value, json};

use crate::api::{Seen, check_all_asked, check_on};
use crate::harness::eventually;
use crate::system::{System, alice_uid, as_user, bob_uid, system_sandbox};

/// Bases of the users' currencies: alice has twice as much of everything.
fn policy() -> String {
    let terms = "cpu = 2000\nmemory = 2000\ndisk = 2000
[limits]
currencies = 5
tickets = 40
offers = 3
requests_per_second = 1000000
burst = 1000000
";
    format!("[users.{}]\n{terms}", alice_uid())
}

/// Asks as a user, checked against the document.
struct Asker<'a> {
    system: &'a System<'a>,
    seen: Seen,
}

impl Asker<'_> {
    fn ask(&mut self, uid: u32, method: &str, path: &str, body: &Value, status: u16) -> Value {
        let system = self.system;
        let seen = &mut self.seen;
        as_user(uid, || check_on(system.connect(), seen, method, path, body, status))
    }

    fn get(&mut self, uid: u32, path: &str) -> Value {
        self.ask(uid, "GET", path, &Value::Null, 200)
    }

    /// Makes something; what came of it.
    fn make(&mut self, uid: u32, what: &str, body: &Value) -> Value {
        self.ask(uid, "POST", &format!("/v1/market/{what}"), body, 201)["result"].clone()
    }

    fn end(&mut self, uid: u32, what: &str, id: &Value) -> Value {
        let id = id.as_str().map_or_else(|| id.to_string(), str::to_owned);
        self.ask(uid, "DELETE", &format!("/v1/market/{what}/{id}"), &Value::Null, 200)
    }

    /// Is refused; says the message.
    fn refused(
        &mut self,
        uid: u32,
        (method, path, body): (&str, &str, &Value),
        status: u16,
        code: &str,
    ) -> String {
        let answer = self.ask(uid, method, path, body, status);
        assert_eq!(answer["error"]["code"], code, "{method} {path} {body}: {answer}");
        answer["error"]["message"].as_str().unwrap().to_owned()
    }

    /// Everything that there is, but for what only says who looked.
    fn graph(&mut self) -> Value {
        self.get(0, "/v1/market")
    }
}

fn give(resource: &str, amount: u64) -> Value {
    json!({ "resource": resource, "amount": amount })
}

fn ticket(issuer: &Value, holder: &Value, amount: u64, kind: &str) -> Value {
    json!({ "issuer": issuer, "holder": holder, "resource": "cpu", "amount": amount, "kind": kind })
}

/// The user's own currency: made with the first that the user makes, which is ended again.
fn own_currency(asker: &mut Asker<'_>, uid: u32) -> Value {
    let first = asker.make(uid, "currencies", &json!({ "name": "first" }));
    asker.end(uid, "currencies", &first["id"]);
    let all = asker.get(uid, "/v1/market/currencies")["currencies"].clone();
    let owner = uid.to_string();
    let own = all.as_array().unwrap().iter().find(|c| c["owner"].as_str() == Some(&owner)).unwrap();
    own["id"].clone()
}

#[test]
fn every_path_of_the_market_answers_as_its_document_says() {
    let Some(sandbox) = system_sandbox("every_path_of_the_market_answers_as_its_document_says") else {
        return;
    };
    let mut system = System::start(&sandbox, &policy(), &[]);
    let mut asker = Asker { system: &system, seen: Seen::new() };
    let (alice, bob) = (own_currency(&mut asker, alice_uid()), own_currency(&mut asker, bob_uid()));
    let shown = asker.get(bob_uid(), &format!("/v1/market/currencies/{}", alice.as_str().unwrap()));
    // Nobody competes: all that is known is what was promised.
    assert_eq!(
        (&shown["owner"], &shown["standing"][0]["value"]),
        (&json!(alice_uid().to_string()), &json!("0"))
    );
    assert_eq!(
        shown["standing"][0]["requested"].as_f64().map(|f| (f * 3000.0).round()),
        Some(2000.0),
        "{shown}"
    );

    // Currencies: made, changed, funded, explained, ended.
    let build = asker.make(alice_uid(), "currencies", &json!({ "name": "build", "mode": "740" }));
    assert_eq!(build["name"], format!("{}/build", alice_uid()));
    let path = format!("/v1/market/currencies/{}", build["id"].as_str().unwrap());
    let changed = asker.ask(alice_uid(), "PATCH", &path, &json!({ "mode": "fci------" }), 200);
    assert_eq!(changed["result"]["mode"], "fci------");
    let funded = asker.make(alice_uid(), "tickets", &ticket(&alice, &build["id"], 100, "soft"));
    let place = format!("/v1/market/tickets/{}", funded["id"].as_str().unwrap());
    assert_eq!(asker.get(bob_uid(), &place)["amount"], 100);
    let changed = asker.ask(alice_uid(), "PATCH", &place, &json!({ "amount": 250 }), 200);
    assert_eq!(changed["result"]["amount"], 250);
    let hard = json!({ "hard_total": give("cpu", 10) });
    let changed = asker.ask(
        alice_uid(),
        "PATCH",
        &format!("/v1/market/currencies/{}", alice.as_str().unwrap()),
        &hard,
        200,
    );
    assert_eq!(changed["result"]["standing"][0]["hard_total"], 10);
    let by_name = asker.get(bob_uid(), &format!("/v1/market/currencies/{}%2Fbuild", alice_uid()));
    assert_eq!(by_name["id"], build["id"]);
    let why = asker.get(alice_uid(), &format!("/v1/market/explain/{}%2Fbuild", alice_uid()));
    assert_eq!(why["parts"].as_array().unwrap().len(), 1, "{why}");
    asker.get(alice_uid(), &format!("/v1/market/explain/{}?resource=disk", bob.as_str().unwrap()));
    check_denied(&mut asker, [&alice, &bob], &build["id"], &place);

    // Whoever sleeps has nothing to give.
    let offer = json!({ "gives": give("disk", 20), "wants": give("cpu", 10) });
    let said = asker.refused(alice_uid(), ("POST", "/v1/market/offers", &offer), 409, "refused");
    assert!(said.contains("does not have what it would give"), "{said}");
    let both = json!({ "a": alice, "a_gives": give("cpu", 1), "b": bob, "b_gives": give("disk", 1) });
    asker.refused(0, ("POST", "/v1/market/exchanges", &both), 409, "refused");

    // Permission to issue base tickets. What is nice is a client, and those come with the scheduler.
    let bound = json!({ "resource": "cpu", "bound": 50 });
    assert_eq!(
        asker.ask(0, "PUT", &format!("/v1/market/bounds/{bob_uid}", bob_uid = bob_uid()), &bound, 200),
        bound
    );
    let none = json!({ "client": "nobody", "amount": 5 });
    asker.refused(bob_uid(), ("POST", "/v1/market/nice", &none), 404, "no-such-currency");

    check_site(&mut asker);
    asker.end(alice_uid(), "tickets", &funded["id"]);
    let gone = asker.end(alice_uid(), "currencies", &build["id"]);
    assert_eq!(gone["result"]["name"], format!("{}/build", alice_uid()));
    check_audit(&mut asker);
    check_limits(&mut asker, &alice);

    let graph = asker.graph();
    let asked = std::mem::take(&mut asker.seen);
    // Trades, and what is nice, need clients that compete.
    let needs_clients = |path: &str| ["nice", "offers", "exchanges"].iter().any(|word| path.contains(word));
    check_all_asked(&asked, |path| path.starts_with("/v1/market") && !needs_clients(path));
    // All of it is there after an orderly end, and after none.
    assert_eq!(system.stop(), Some(0), "{}", system.log());
    for _ in 0..2 {
        let again = System::start(&sandbox, &policy(), &[]);
        let mut asker = Asker { system: &again, seen: Seen::new() };
        assert_eq!(asker.graph(), graph);
        again.signal(rustix::process::Signal::KILL);
    }
}

/// A site's table comes, is refused to everybody else, and goes again.
fn check_site(asker: &mut Asker<'_>) {
    let path = "/v1/market/site";
    let table = |version: u64, accounts: Value, users: Value| json!({ "version": version, "tickets": 500, "accounts": accounts, "users": users });
    let arts = json!([{ "account": "arts", "parent": "root", "shares": 2 }]);
    let alice = json!([{ "user": alice_uid().to_string(), "account": "arts", "shares": 1 }]);
    let full = table(1, arts.clone(), alice.clone());
    asker.refused(alice_uid(), ("PUT", path, &full), 403, "not-permitted");
    let made = asker.ask(0, "PUT", path, &full, 200);
    assert_eq!((made["version"].as_u64(), made["changes"].as_u64()), (Some(1), Some(12)), "{made}");
    assert_eq!(asker.get(bob_uid(), path)["currencies"], made["currencies"]);
    check_orders(asker);
    // More than any other body may be, and no more than it may be itself.
    let long = "x".repeat(100_000);
    let wrong = table(2, json!([{ "account": long, "parent": "root", "shares": 2 }]), json!([]));
    let said = asker.refused(0, ("PUT", path, &wrong), 400, "bad-request");
    assert!(said.contains("cannot be an account's name"), "{said}");
    let older = table(0, arts, alice);
    asker.refused(0, ("PUT", path, &older), 409, "refused");
    let gone = asker.ask(0, "PUT", path, &table(2, json!([]), json!([])), 200);
    assert_eq!(
        (gone["currencies"].as_array().map(Vec::len), gone["kept"].as_array().map(Vec::len)),
        (Some(1), Some(0))
    );
}

/// What a site's dealer says and hears: something is held, and is not any more.
fn check_orders(asker: &mut Asker<'_>) {
    let path = "/v1/market/site/orders";
    let leg = json!({ "giver": alice_uid(), "taker": bob_uid(), "resource": "disk", "amount": 1 });
    let exchange = json!({ "term": 1, "number": 0 });
    let order = json!({ "exchange": exchange, "legs": [leg], "step": "hold", "renew": true });
    let orders = |sent: u64, heard: &Value, orders: Value| json!({ "stamp": { "term": 1, "sent": sent, "revision": 0 }, "heard": heard, "lease_ns": 60_000_000_000u64, "orders": orders });
    let first = orders(1, &Value::Null, json!([order]));
    asker.refused(alice_uid(), ("POST", path, &first), 403, "not-permitted");
    let report = asker.ask(0, "POST", path, &first, 200);
    assert_eq!(report["states"], json!([]), "a lease counts from a report that the dealer has heard");
    let report = asker.ask(0, "POST", path, &orders(2, &report["stamp"], json!([order])), 200);
    assert_eq!(report["states"], json!([[exchange, "held"]]));
    assert_eq!(report["heard"], json!({ "term": 1, "sent": 2, "revision": 0 }));
    let report = asker.ask(0, "POST", path, &orders(3, &report["stamp"], json!([])), 200);
    assert_eq!(report["states"], json!([]));
    asker.refused(0, ("POST", path, &json!({ "orders": [] })), 400, "bad-request");
}

/// What somebody else may not do: the words say who needs what, and nothing changes.
fn check_denied(asker: &mut Asker<'_>, [alice, bob]: [&Value; 2], build: &Value, place: &str) {
    let before = asker.graph();
    let path = format!("/v1/market/currencies/{}", build.as_str().unwrap());
    let (nothing, hers) = (Value::Null, format!("{}/build", alice_uid()));
    let (his_needs, his) = (format!("user {} needs", bob_uid()), format!("user {}", bob_uid()));
    let (only_her, who_holds) =
        (format!("only the owner of {hers}"), format!("needs c on {hers}, who holds it"));
    let his_bound = format!("/v1/market/bounds/{}", bob_uid());
    for (request, status, code, words) in [
        (("PATCH", path.as_str(), &json!({ "mode": "777" })), 403, "not-permitted", only_her.as_str()),
        (("DELETE", path.as_str(), &nothing), 403, "not-permitted", hers.as_str()),
        (("POST", "/v1/market/tickets", &ticket(alice, build, 5, "soft")), 403, "not-permitted", &his_needs),
        (("PATCH", place, &json!({ "amount": 1 })), 403, "not-permitted", &who_holds),
        (("DELETE", place, &nothing), 403, "not-permitted", &who_holds),
        (
            ("POST", "/v1/market/tickets", &ticket(&json!("base"), build, 5, "soft")),
            403,
            "not-permitted",
            &his_needs,
        ),
        (
            ("PUT", his_bound.as_str(), &json!({ "resource": "cpu", "bound": 1_000_000 })),
            403,
            "not-permitted",
            "superuser",
        ),
        (
            (
                "POST",
                "/v1/market/exchanges",
                &json!({ "a": alice, "a_gives": give("cpu", 9), "b": bob, "b_gives": give("disk", 1) }),
            ),
            403,
            "not-permitted",
            &his,
        ),
        (("GET", "/v1/market/currencies/no-such", &nothing), 404, "no-such-currency", "no-such"),
        (("GET", "/v1/market/currencies/99999.9", &nothing), 404, "no-such-currency", ""),
        (("DELETE", "/v1/market/tickets/99999.9", &nothing), 404, "no-such-ticket", ""),
        (("DELETE", "/v1/market/exchanges/99999", &nothing), 404, "no-such-exchange", ""),
        (("DELETE", "/v1/market/offers/99999", &nothing), 404, "no-such-offer", ""),
    ] {
        let said = asker.refused(bob_uid(), request, status, code);
        assert!(said.contains(words), "{request:?}: {said}");
    }
    // And what alice herself cannot: amounts that are none, circles, more than there is.
    for (request, status, code) in [
        (("PATCH", place, &json!({ "amount": 0 })), 400, "bad-request"),
        (("PATCH", place, &json!({ "amount": 4_294_967_296_u64 })), 400, "bad-request"),
        (("POST", "/v1/market/tickets", &ticket(build, alice, 5, "soft")), 409, "refused"),
        (("POST", "/v1/market/tickets", &ticket(build, build, 5, "soft")), 409, "refused"),
        (("POST", "/v1/market/tickets", &ticket(alice, build, 11, "hard")), 409, "refused"),
        (("POST", "/v1/market/tickets", &ticket(alice, build, 5, "transfer")), 409, "refused"),
        (("POST", "/v1/market/currencies", &json!({ "name": "build" })), 409, "name-taken"),
        (("POST", "/v1/market/currencies", &json!({ "name": "a b" })), 400, "bad-request"),
        (("POST", "/v1/market/currencies", &json!({ "name": "x", "mode": "999" })), 400, "bad-request"),
        (
            ("POST", "/v1/market/currencies", &json!({ "name": "x", "group": "no-such-group" })),
            404,
            "no-such-group",
        ),
        (
            (
                "POST",
                "/v1/market/offers",
                &json!({ "gives": give("cpu", 1_000_000), "wants": give("disk", 1) }),
            ),
            409,
            "refused",
        ),
        (
            ("POST", "/v1/market/offers", &json!({ "gives": give("cpu", 1), "wants": give("cpu", 1) })),
            409,
            "refused",
        ),
    ] {
        asker.refused(alice_uid(), request, status, code);
    }
    assert_eq!(asker.graph(), before, "what was refused changed nothing");
}

/// Everybody sees what they did, and only superusers all of it.
fn check_audit(asker: &mut Asker<'_>) {
    let uids = |audit: &Value| -> Vec<u64> {
        audit["entries"].as_array().unwrap().iter().map(|e| e["uid"].as_u64().unwrap()).collect()
    };
    // What was only refused is written a moment later.
    let all = eventually("what root did", || {
        let all = asker.get(0, "/v1/market/audit");
        uids(&all).contains(&0).then_some(all)
    });
    let seen = uids(&all);
    assert!(seen.contains(&u64::from(alice_uid())) && seen.contains(&u64::from(bob_uid())), "{seen:?}");
    assert!(all["entries"].as_array().unwrap().iter().any(|e| e["refused"].is_string()), "{all}");
    let own = asker.get(bob_uid(), "/v1/market/audit");
    assert!(uids(&own).iter().all(|&uid| uid == u64::from(bob_uid())), "{own}");
    let next = all["next"].as_u64().unwrap();
    assert!(asker.get(0, &format!("/v1/market/audit?since={next}"))["next"].as_u64().unwrap() >= next);
}

/// As much as one may have, by the policy above, and one more.
fn check_limits(asker: &mut Asker<'_>, alice: &Value) {
    for n in 0..5 {
        asker.make(alice_uid(), "currencies", &json!({ "name": format!("c{n}") }));
    }
    let said =
        asker.refused(alice_uid(), ("POST", "/v1/market/currencies", &json!({ "name": "c5" })), 429, "limit");
    assert!(said.contains("has 5 currencies"), "{said}");
    let new = ticket(alice, &json!("c0"), 1, "soft");
    let made = (0..100).take_while(|_| {
        let system = asker.system;
        as_user(alice_uid(), || system.ask("POST", "/v1/market/tickets", &new.to_string())).status == 201
    });
    assert!(made.count() <= 40);
    asker.refused(alice_uid(), ("POST", "/v1/market/tickets", &new), 429, "limit");
    asker.make(bob_uid(), "currencies", &json!({ "name": "mine" }));
}
