//! Markets for tests: made by real operations, and shown as the API shows them.

use std::collections::BTreeMap;

use divvy_api::market::{Currency, Exchange, Explained, Give, Graph, Offer, Standing, Ticket, Why};
use divvy_market::{
    Amount, Broker, Caller, CurrencyId, CurrencyView, Kind, Made, Market, Moment, Op, Presence, Resource,
    Resources, Side, Source,
};

/// A market, and what its currencies are called.
pub(super) struct Fair {
    market: Market,
    names: BTreeMap<CurrencyId, String>,
    ids: BTreeMap<String, CurrencyId>,
}

fn amount(n: u64) -> Amount {
    Amount::new(n).unwrap()
}

fn float(ratio: &impl ToString) -> f64 {
    let text = ratio.to_string();
    let (n, d) = text.split_once('/').unwrap_or((&text, "1"));
    n.parse::<f64>().unwrap() / d.parse::<f64>().unwrap()
}

impl Fair {
    pub(super) fn new() -> Self {
        let market = Market::new();
        let base = market.base();
        let mut fair = Self { market, names: BTreeMap::new(), ids: BTreeMap::new() };
        fair.call(base, "base");
        fair
    }

    fn call(&mut self, id: CurrencyId, name: &str) {
        self.names.insert(id, name.to_owned());
        self.ids.insert(name.to_owned(), id);
    }

    fn apply(&mut self, op: Op) -> Made {
        self.market.apply(&Caller::superuser(), &op).unwrap().made
    }

    fn id(&self, name: &str) -> CurrencyId {
        self.ids[name]
    }

    fn owner(name: &str) -> u32 {
        if name.starts_with("alice") { 1000 } else { 1001 }
    }

    pub(super) fn currency(&mut self, name: &str) -> &mut Self {
        let broker = Broker::private(Self::owner(name), Self::owner(name));
        let Made::Currency(id) = self.apply(Op::CreateCurrency { broker }) else { unreachable!() };
        self.call(id, name);
        self
    }

    pub(super) fn client(&mut self, name: &str) -> &mut Self {
        let broker = Broker::private(Self::owner(name), Self::owner(name));
        let op = Op::CreateClient { broker, competes: Resources::ALL };
        let Made::Currency(id) = self.apply(op) else { unreachable!() };
        self.call(id, name);
        self
    }

    pub(super) fn fund(&mut self, holder: &str, issuer: &str, of: Resource, n: u64, kind: Kind) -> &mut Self {
        let (holder, issuer) = (self.id(holder), self.id(issuer));
        self.apply(Op::Fund { holder, issuer, resource: of, amount: amount(n), kind });
        self
    }

    pub(super) fn sleep(&mut self, client: &str) -> &mut Self {
        let client = self.id(client);
        for resource in Resource::ALL {
            self.apply(Op::SetPresence { client, resource, presence: Presence::Idle });
        }
        self
    }

    pub(super) fn nice(&mut self, client: &str, from: &str, n: u64, called: &str) -> &mut Self {
        let op = Op::Nice {
            client: self.id(client),
            from: self.id(from),
            resource: Resource::Cpu,
            amount: amount(n),
        };
        let Made::Currency(id) = self.apply(op) else { panic!("nice makes a currency") };
        self.call(id, called);
        self
    }

    pub(super) fn offer(&mut self, party: &str, gives: (Resource, u64), wants: (Resource, u64)) -> &mut Self {
        let side = |(resource, n): (Resource, u64)| Side { resource, amount: amount(n) };
        let party = self.id(party);
        let op = Op::Offer { party, gives: side(gives), wants: side(wants), now: Moment(0), until: None };
        self.apply(op);
        self
    }

    fn name(&self, id: CurrencyId) -> String {
        self.names[&id].clone()
    }

    /// What is achieved is what is due, and a little less.
    fn standing(&mut self, c: &CurrencyView, resource: Resource) -> Standing {
        let market = &mut self.market;
        let mut promises = market.promises(resource);
        let promised = (float(&promises.value(c.id).unwrap()), float(&promises.total()));
        let total = market.total(resource);
        // The base is what all of it is worth.
        let own = if c.id == market.base() { total.clone() } else { market.value(c.id, resource).unwrap() };
        let part = |(own, all): (f64, f64)| if all > 0.0 { own / all } else { 0.0 };
        let effective = part((float(&own), float(&total)));
        Standing {
            resource,
            value: own.to_string(),
            requested: part(promised),
            effective,
            achieved: (resource == Resource::Cpu).then_some(effective * 0.99),
            active: c.active.contains(resource),
            hard_total: 1000,
            hard_issued: 0,
        }
    }

    fn shown(&mut self, c: &CurrencyView) -> Currency {
        let name = self.name(c.id);
        let owner = if name == "base" { "root" } else { name.split('/').next().unwrap() };
        Currency {
            id: c.id.to_string(),
            client: c.client,
            scheduled: None,
            owner: owner.to_owned(),
            name,
            group: "users".to_owned(),
            mode: c.broker.mode.to_string(),
            depth: c.depth,
            niced_from: c.niced_from.map(|id| self.name(id)),
            standing: Resource::ALL.into_iter().map(|resource| self.standing(c, resource)).collect(),
        }
    }

    /// As `GET /v1/market` has it.
    pub(super) fn graph(&mut self) -> Graph {
        let side = |side: Side| Give { resource: side.resource, amount: side.amount.get() };
        let views: Vec<_> = self.market.currencies().collect();
        let currencies = views.iter().map(|view| self.shown(view)).collect();
        let views: Vec<_> = self.market.tickets().collect();
        let tickets = views.into_iter().map(|t| Ticket {
            id: t.id.to_string(),
            issuer: self.names[&t.issuer].clone(),
            holder: self.names[&t.holder].clone(),
            resource: t.resource,
            amount: t.amount,
            kind: t.kind,
            active: t.active,
            value: self.market.ticket_value(t.id).unwrap().to_string(),
        });
        let tickets = tickets.collect();
        let exchanges = self.market.exchanges().map(|x| Exchange {
            id: x.id.0,
            a: self.name(x.a),
            a_gives: side(x.a_gives),
            b: self.name(x.b),
            b_gives: side(x.b_gives),
        });
        let offers = self.market.offers().map(|o| Offer {
            id: o.id.0,
            party: self.name(o.party),
            gives: side(o.gives),
            wants: side(o.wants),
            until_unix_ns: o.until.map(|moment| moment.0),
        });
        Graph { currencies, tickets, exchanges: exchanges.collect(), offers: offers.collect() }
    }

    /// As `GET /v1/market/explain/{currency}` has it.
    pub(super) fn explained(&mut self, name: &str, resource: Resource) -> Explained {
        let graph = self.graph();
        let currency = graph.currencies.iter().find(|c| c.name == name).unwrap().clone();
        let parts = self.whys(&graph, self.id(name), resource);
        Explained { currency, resource, parts }
    }

    fn whys(&mut self, graph: &Graph, id: CurrencyId, resource: Resource) -> Vec<Why> {
        let Ok(sources) = self.market.explain(id, resource) else { return Vec::new() };
        let mut whys = Vec::new();
        for source in sources {
            let value = source.value().to_string();
            whys.push(match source {
                Source::Ticket(t, _) => {
                    let issued: Vec<_> = self.market.issued_by(t.issuer, resource);
                    let active: u64 =
                        issued.iter().filter(|t| t.active && t.kind == Kind::Soft).map(|t| t.amount).sum();
                    let issuer = self.name(t.issuer);
                    let id = t.id.to_string();
                    Why {
                        what: "ticket".into(),
                        words: format!("{} of the {active} active soft tickets of {issuer}", t.amount),
                        value,
                        ticket: graph.tickets.iter().find(|ticket| ticket.id == id).cloned(),
                        from: self.whys(graph, t.issuer, resource),
                    }
                }
                Source::Exchange(id, _) => Why {
                    what: "exchange".into(),
                    words: format!("exchange {}", id.0),
                    value,
                    ticket: None,
                    from: Vec::new(),
                },
                Source::Lodged(..) | Source::PassedOn(_) => panic!("no sleeper trades here"),
            });
        }
        whys
    }
}

/// The paper's Fig. 5 and 6: five tasks in two currencies, B3 asleep.
pub(super) fn two_currencies() -> Fair {
    let mut fair = Fair::new();
    for (user, tasks) in [("alice", &["A1", "A2"][..]), ("bob", &["B1", "B2", "B3"])] {
        fair.currency(user).fund(user, "base", Resource::Cpu, 1000, Kind::Soft);
        for (task, n) in tasks.iter().zip([100, 200, 300]) {
            let name = format!("{user}/{task}");
            fair.client(&name).fund(&name, user, Resource::Cpu, n, Kind::Soft);
        }
    }
    fair.sleep("bob/B3");
    fair
}

/// Alice gave 50 of her disk tickets for 20 of bob's memory; another offer waits.
pub(super) fn an_exchange() -> Fair {
    let mut fair = two_currencies();
    for user in ["alice", "bob"] {
        fair.fund(user, "base", Resource::Memory, 100, Kind::Soft);
        fair.fund(user, "base", Resource::Disk, 100, Kind::Soft);
    }
    fair.fund("alice/A1", "alice", Resource::Memory, 1, Kind::Soft);
    fair.fund("alice/A2", "alice", Resource::Disk, 1, Kind::Soft);
    fair.fund("bob/B1", "bob", Resource::Memory, 1, Kind::Soft);
    fair.fund("bob/B1", "bob", Resource::Disk, 1, Kind::Soft);
    fair.offer("bob", (Resource::Memory, 20), (Resource::Disk, 50));
    fair.offer("alice", (Resource::Disk, 50), (Resource::Memory, 20));
    fair.offer("bob", (Resource::Memory, 10), (Resource::Cpu, 100));
    fair
}

/// A hard ticket, a client that two currencies back, one that is nice, and one that nothing backs.
pub(super) fn all_kinds() -> Fair {
    let mut fair = two_currencies();
    fair.client("alice/held").fund("alice/held", "alice", Resource::Cpu, 300, Kind::Hard);
    fair.fund("bob/B1", "alice", Resource::Cpu, 50, Kind::Soft);
    fair.nice("bob/B2", "bob", 10, "20.1");
    fair.currency("bob/spare");
    fair
}

/// 200 currencies beside each other.
pub(super) fn wide() -> Fair {
    let mut fair = Fair::new();
    for n in 0..200 {
        let (user, task) = (format!("user{n:03}"), format!("user{n:03}/task"));
        fair.currency(&user).fund(&user, "base", Resource::Cpu, 1000 + n, Kind::Soft);
        fair.client(&task).fund(&task, &user, Resource::Cpu, 1, Kind::Soft);
    }
    fair
}

/// A chain of ten currencies, and a client at each end of it.
pub(super) fn deep() -> Fair {
    let mut fair = Fair::new();
    let mut issuer = "base".to_owned();
    for n in 0..10 {
        let name = if n == 0 { "alice".to_owned() } else { format!("alice/project-{n}-of-a-long-name") };
        fair.currency(&name).fund(&name, &issuer, Resource::Cpu, 4_000_000_000, Kind::Soft);
        let client = format!("alice/task{n}");
        fair.client(&client).fund(&client, &name, Resource::Cpu, 4_000_000_000, Kind::Soft);
        issuer = name;
    }
    fair
}

/// One client that twelve currencies back.
pub(super) fn backed_by_many() -> Fair {
    let mut fair = Fair::new();
    fair.client("shared").fund("shared", "base", Resource::Cpu, 5, Kind::Soft);
    for n in 0..12 {
        let user = format!("user{n:02}");
        fair.currency(&user).fund(&user, "base", Resource::Cpu, 1000, Kind::Soft);
        fair.fund("shared", &user, Resource::Cpu, 10 + n, Kind::Soft);
    }
    fair
}
