//! `golden/tickets.json`: the paper's figures and worked examples as scripts of operations, with exact values.

use divvy_market::{
    Amount, Broker, Caller, CurrencyId, ExchangeId, Kind, Made, Market, Mode, Moment, Op, Permission,
    Presence, Ratio, Refusal, Resource, Resources, Side, TicketId,
};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::num::NonZeroU64;

/// A script that runs: names for ids, in the order they were made.
#[derive(Default)]
struct Run {
    market: Market,
    names: BTreeMap<String, CurrencyId>,
    clients: Vec<(String, CurrencyId)>,
    tickets: Vec<TicketId>,
    exchanges: Vec<ExchangeId>,
    checks: usize,
}

/// How the scripts name an outcome: a word, and a reason or a count.
type Told = (&'static str, Value);

fn text(value: &Value) -> &str {
    value.as_str().expect("a string")
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a whole number")
}

fn small(value: &Value) -> u32 {
    u32::try_from(number(value)).expect("32 bits")
}

fn resource(value: &Value) -> Resource {
    text(value).parse().expect("a resource")
}

fn amount(value: &Value) -> Amount {
    Amount::new(number(value)).expect("an amount")
}

/// The caller that the last argument names, or root, and the arguments before it.
fn caller(step: &[Value]) -> (Caller, &[Value]) {
    let Some(named) = step.last().and_then(|last| last.get("as")) else { return (Caller::superuser(), step) };
    let groups = named[1].as_array().expect("groups").iter().map(small).collect();
    let caller = Caller { uid: small(&named[0]), groups, superuser: number(&named[2]) == 1 };
    (caller, &step[..step.len() - 1])
}

impl Run {
    fn id(&self, name: &Value) -> CurrencyId {
        if text(name) == "base" { self.market.base() } else { self.names[text(name)] }
    }

    fn op(&self, step: &[Value]) -> Op {
        let side = |at: usize| Side { resource: resource(&step[at]), amount: amount(&step[at + 1]) };
        match text(&step[0]) {
            word @ ("currency" | "principal") => {
                let mode = step.get(4).map_or(0o700, |mode| u16::from_str_radix(text(mode), 8).unwrap());
                let mode = Mode::try_from(mode).unwrap();
                let broker = Broker { owner: small(&step[2]), group: small(&step[3]), mode };
                if word == "currency" {
                    Op::CreateCurrency { broker }
                } else {
                    Op::CreateClient { broker, competes: Resources::ALL }
                }
            }
            "fund" => Op::Fund {
                holder: self.id(&step[1]),
                issuer: self.id(&step[2]),
                amount: amount(&step[3]),
                resource: resource(&step[4]),
                kind: if step.get(5).is_some_and(|hard| number(hard) == 1) { Kind::Hard } else { Kind::Soft },
            },
            "set" => {
                Op::SetAmount { ticket: self.tickets[number(&step[1]) as usize], amount: amount(&step[2]) }
            }
            "unfund" => Op::Unfund { ticket: self.tickets[number(&step[1]) as usize] },
            "destroy" => Op::Destroy { currency: self.id(&step[1]) },
            "competing" => Op::SetPresence {
                client: self.id(&step[1]),
                resource: resource(&step[2]),
                presence: if number(&step[3]) == 1 { Presence::Competing } else { Presence::Idle },
            },
            "exchange" => Op::Exchange {
                a: self.id(&step[1]),
                a_gives: side(2),
                b: self.id(&step[4]),
                b_gives: side(5),
            },
            "cancel" => Op::CancelExchange { exchange: self.exchanges[number(&step[1]) as usize] },
            // The script names first what the party wants, then what it gives.
            "offer" => Op::Offer {
                party: self.id(&step[1]),
                gives: side(4),
                wants: side(2),
                now: Moment(0),
                until: None,
            },
            "nice" => Op::Nice {
                client: self.id(&step[1]),
                from: self.id(&step[2]),
                amount: amount(&step[3]),
                resource: Resource::Cpu,
            },
            "bound" => Op::SetBound {
                uid: small(&step[1]),
                resource: resource(&step[2]),
                bound: Some(number(&step[3])),
            },
            other => panic!("no operation {other}"),
        }
    }

    fn step(&mut self, step: &[Value]) -> Told {
        let (caller, step) = caller(step);
        let op = self.op(step);
        let outcome = match self.market.apply(&caller, &op) {
            Ok(outcome) => outcome,
            Err(refusal) => return ("denied", reason(&op, refusal).into()),
        };
        match outcome.made {
            Made::Currency(id) => {
                let name = match op {
                    Op::Nice { .. } => format!("nice_{}", text(&step[1])),
                    _ => text(&step[1]).to_owned(),
                };
                if matches!(op, Op::CreateClient { .. }) {
                    self.clients.push((name.clone(), id));
                }
                self.names.insert(name, id);
            }
            Made::Ticket(id) => self.tickets.push(id),
            Made::Exchange { exchange, taken } => {
                self.exchanges.push(exchange);
                if taken.is_some() {
                    return ("done", Value::Null);
                }
            }
            Made::Offer { conflicts, .. } => return ("queued", conflicts.len().into()),
            Made::Nothing | Made::Tickets(_) => {}
        }
        ("ok", Value::Null)
    }

    /// Values of all but the base, shares of competing clients, and soft-ticket funding where there is any.
    fn check(&mut self, expected: &Map<String, Value>) {
        for (word, expected) in expected {
            let resource: Resource = word.parse().expect("a resource");
            let values: BTreeMap<String, String> = self
                .names
                .iter()
                .map(|(name, &id)| (name.clone(), self.market.value(id, resource).unwrap().to_string()))
                .collect();
            assert_eq!(serde_json::to_value(values).unwrap(), expected["value"], "values of {word}");

            let total = self.market.total(resource);
            let mut shares = BTreeMap::new();
            for (name, id) in &self.clients {
                if self.market.currency(*id).unwrap().competes.contains(resource) {
                    let share: Option<Ratio> = self.market.value(*id, resource).unwrap().over(&total);
                    shares.extend(share.map(|share| (name.clone(), share.to_string())));
                }
            }
            assert_eq!(serde_json::to_value(shares).unwrap(), expected["share"], "shares of {word}");

            let mut soft_tix = BTreeMap::new();
            let base = ("base".to_owned(), self.market.base());
            for (name, id) in self.names.clone().into_iter().chain([base]) {
                soft_tix.extend(self.market.soft_tix(id, resource).map(|tix| (name, tix.to_string())));
            }
            assert_eq!(
                serde_json::to_value(soft_tix).unwrap(),
                expected["soft_tix"],
                "soft tickets of {word}"
            );
        }
        self.market.audit().expect("the books are right");
        self.checks += 1;
    }
}

/// The scripts' word for a refusal.
fn reason(op: &Op, refusal: Refusal) -> &'static str {
    match (op, refusal) {
        (_, Refusal::Cycle { .. }) => "cycle",
        (_, Refusal::HardExhausted { .. }) => "hard tickets exhausted",
        (_, Refusal::NotYourIds) => "create",
        (Op::Destroy { .. }, Refusal::Denied { permission: Permission::Change, .. }) => "destroy",
        (Op::Unfund { .. }, Refusal::MayNotTake(_)) => "unfund",
        (Op::Fund { .. }, Refusal::Denied { permission: Permission::Fund, .. }) => "fund: f",
        // Who has a bound and would pass it lacks the permission as much as who has none.
        (
            Op::Fund { .. },
            Refusal::Denied { permission: Permission::Issue, .. } | Refusal::AboveBound { .. },
        ) => "fund: i",
        (Op::Nice { .. }, Refusal::NotEnough(_)) => "nice: not enough funding",
        (Op::Nice { .. }, Refusal::Denied { .. }) => "nice",
        (Op::Exchange { .. }, Refusal::NotEnough(_)) => "exchange: not enough",
        other => panic!("the scripts have no word for {other:?}"),
    }
}

#[test]
fn every_script_gives_its_outcomes_and_values() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("../../../golden/tickets.json")).unwrap();
    assert_eq!(cases.len(), 12, "the file holds 12 scripts");
    let (mut steps, mut checks) = (0, 0);
    for case in &cases {
        eprintln!("{}: {}", text(&case["id"]), text(&case["note"]));
        let mut run = Run::default();
        let mut outcomes = case["outcomes"].as_array().unwrap().iter();
        for step in case["script"].as_array().unwrap() {
            let step = step.as_array().unwrap();
            if text(&step[0]) == "check" {
                run.check(case["checks"][run.checks].as_object().unwrap());
                continue;
            }
            let (word, more) = run.step(step);
            let expected = outcomes.next().expect("an outcome for each step");
            assert_eq!(*expected, serde_json::json!([step[0], word, more]), "{step:?}");
            steps += 1;
        }
        assert!(outcomes.next().is_none(), "no outcome is left over");
        assert_eq!(run.market.exchanges().count() as u64, number(&case["exchanges_left"]));
        assert_eq!(run.checks, case["checks"].as_array().unwrap().len());
        checks += run.checks;
    }
    assert_eq!((steps, checks), (185, 31), "the whole file was run");
}

/// Section 4.3: a client that used a fifth of its quantum weighs five times its value until it is told otherwise; its value,
/// and everybody else's, stay.
#[test]
fn compensation_raises_a_weight_and_no_value() {
    let mut run = Run::default();
    for step in [r#"["principal","a",1,1]"#, r#"["principal","b",1,1]"#, r#"["fund","a","base",100,"cpu"]"#] {
        let step: Vec<Value> = serde_json::from_str(step).unwrap();
        assert_eq!(run.step(&step).0, "ok");
    }
    let client = run.names["a"];
    let n = |n| NonZeroU64::new(n).unwrap();
    let compensate = |used, quantum| Op::Compensate {
        client,
        resource: Resource::Cpu,
        used: n(used),
        quantum: n(quantum),
    };
    let root = Caller::superuser();
    run.market.apply(&root, &compensate(20, 100)).unwrap();
    assert_eq!(run.market.weight(client, Resource::Cpu).unwrap().to_string(), "500");
    assert_eq!(run.market.value(client, Resource::Cpu).unwrap().to_string(), "100");
    assert_eq!(run.market.apply(&root, &compensate(101, 100)), Err(Refusal::UsedTooMuch));
    run.market.apply(&root, &compensate(100, 100)).unwrap();
    assert_eq!(run.market.weight(client, Resource::Cpu).unwrap().to_string(), "100");
}
