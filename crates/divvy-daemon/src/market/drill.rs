//! The store under fire, for `examples/durable.rs` and the tests: a child process runs the market under load and is killed at
//! a random moment, again and again; whatever it acknowledged must be there, and nothing by halves.
//!
//! The child says what it is about to do (*intent*) and what was acknowledged, a line each, through a pipe that outlives it.
//! Each of its users has one request on the way at a time. So the parent knows each user's things exactly, but for one
//! request that may or may not have been done: it has to be there whole, or not at all.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use divvy_linux::clock;
use divvy_market::{Kind, Resource};
use divvy_policy::Nanos;
use divvy_policy::dispatch::rng::SplitMix64;
use serde::{Deserialize, Serialize};

use super::message::{Admitted, Ask, Handle, Identity, Said, Who};
use super::names::Names;
use super::policy::Policy;
use super::store::{Store, StoreConfig};
use super::thread::{Start, start};
use divvy_api::market::{Graph, NewCurrency, NewTicket, TicketChange};

/// Users of the load: 2001 and so on, called `u2001`.
const USERS: u32 = 12;
const FIRST: u32 = 2001;
/// A user with more things than this rather ends some.
const THINGS: usize = 12;
/// Snapshots come often, so that many kills fall into one.
const SNAPSHOT_AFTER: u64 = 300;
const POLICY: &str = "[limits]\nrequests_per_second = 1000000000\nburst = 1000000000\ntickets = 1000000\nclients = 1000000\ncurrencies = 1000000";

struct Called;

impl Names for Called {
    fn user_id(&self, name: &str) -> Option<u32> {
        name.strip_prefix('u')?.parse().ok()
    }

    fn user_name(&self, uid: u32) -> Option<String> {
        Some(format!("u{uid}"))
    }

    fn user_group(&self, uid: u32) -> Option<u32> {
        Some(uid)
    }

    fn group_id(&self, name: &str) -> Option<u32> {
        self.user_id(name)
    }

    fn group_name(&self, gid: u32) -> Option<String> {
        self.user_name(gid)
    }
}

/// What a user does. Tickets are told by their amounts.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Deed {
    Create {
        name: String,
    },
    Admit {
        name: String,
        amount: u64,
    },
    Fund {
        name: String,
        amount: u64,
    },
    Alter {
        name: String,
        resource: Resource,
        from: u64,
        to: u64,
    },
    Unfund {
        name: String,
        resource: Resource,
        amount: u64,
    },
    Destroy {
        name: String,
    },
    Leave {
        name: String,
    },
    /// Something that is refused.
    Wrong,
}

/// A line of the pipe.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Line {
    Intent(u32, Deed),
    /// It was acknowledged: done, or refused.
    Said(u32, bool),
}

/// A currency or client of a user, with the tickets of the user's own currency that it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Thing {
    client: bool,
    tickets: Vec<(Resource, u64)>,
}

/// What a user has, by name.
type Things = BTreeMap<String, Thing>;

impl Deed {
    /// Does it to `things`.
    fn follow(&self, things: &mut Things) {
        match self {
            Self::Create { name } => {
                things.insert(name.clone(), Thing::default());
            }
            Self::Admit { name, amount } => {
                let tickets = Resource::ALL.map(|resource| (resource, *amount)).to_vec();
                things.insert(name.clone(), Thing { client: true, tickets });
            }
            Self::Fund { name, amount } => {
                things.entry(name.clone()).or_default().tickets.push((Resource::Cpu, *amount));
            }
            Self::Alter { name, resource, from, to } => {
                let thing = things.entry(name.clone()).or_default();
                if let Some(ticket) = thing.tickets.iter_mut().find(|ticket| **ticket == (*resource, *from)) {
                    ticket.1 = *to;
                }
            }
            Self::Unfund { name, resource, amount } => {
                let thing = things.entry(name.clone()).or_default();
                if let Some(at) = thing.tickets.iter().position(|ticket| *ticket == (*resource, *amount)) {
                    thing.tickets.remove(at);
                }
            }
            Self::Destroy { name } | Self::Leave { name } => {
                things.remove(name);
            }
            Self::Wrong => {}
        }
        things.values_mut().for_each(|thing| thing.tickets.sort_unstable());
    }

    /// Something that a user with these things can do.
    fn draw(things: &Things, numbers: &mut SplitMix64, count: &mut u64) -> Self {
        let nth = |n: u64| things.iter().nth(n as usize % things.len().max(1));
        let amount = 1 + numbers.below(1000);
        let Some((name, thing)) = nth(numbers.below(1000)) else {
            *count += 1;
            return Self::Create { name: format!("c{count}") };
        };
        let name = name.clone();
        let kind = if things.len() > THINGS { 9 } else { numbers.below(12) };
        let ticket = thing.tickets.get(numbers.below(thing.tickets.len().max(1) as u64) as usize).copied();
        match (kind, ticket) {
            (0 | 1, _) => {
                *count += 1;
                Self::Create { name: format!("c{count}") }
            }
            (2 | 3, _) => {
                *count += 1;
                Self::Admit { name: format!("t{count}"), amount }
            }
            (4 | 5, Some((resource, from))) => Self::Alter { name, resource, from, to: amount },
            (6 | 7, Some((resource, amount))) => Self::Unfund { name, resource, amount },
            (8, _) => Self::Wrong,
            (9, _) if thing.client => Self::Leave { name },
            (9, _) => Self::Destroy { name },
            _ => Self::Fund { name, amount },
        }
    }
}

fn things_of(graph: &Graph) -> BTreeMap<u32, Things> {
    let mut all: BTreeMap<u32, Things> = (FIRST..FIRST + USERS).map(|uid| (uid, Things::new())).collect();
    let split = |name: &str| {
        let (user, name) = name.split_once('/')?;
        Some((Called.user_id(user)?, name.to_owned()))
    };
    for currency in &graph.currencies {
        if let Some((uid, name)) = split(&currency.name) {
            all.entry(uid).or_default().insert(name, Thing { client: currency.client, tickets: Vec::new() });
        }
    }
    for ticket in &graph.tickets {
        if let Some((uid, name)) = split(&ticket.holder) {
            let thing = all.entry(uid).or_default().entry(name).or_default();
            thing.tickets.push((ticket.resource, ticket.amount));
        }
    }
    all.values_mut().flat_map(BTreeMap::values_mut).for_each(|thing| thing.tickets.sort_unstable());
    all
}

/// The market in `dir` under load, until the process is killed. Lines go to standard error.
///
/// # Panics
/// Where the market cannot start, or does not do what it should.
pub fn child(dir: &Path, seed: u64) {
    let (handle, running) = begin(dir);
    // Those that were there are found again.
    let graph = ask_now(&handle, who(0), Ask::Graph);
    let Ok(Said::Graph(graph)) = graph else { panic!("{graph:?}") };
    let clients = running.clients().to_vec();
    let api = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    api.block_on(async {
        let users: Vec<_> = (FIRST..FIRST + USERS)
            .map(|uid| User::new(uid, &graph, &clients, handle.clone(), seed).live())
            .collect();
        let mut tasks = tokio::task::JoinSet::new();
        users.into_iter().for_each(|user| drop(tasks.spawn(user)));
        while let Some(ended) = tasks.join_next().await {
            ended.expect("users live until they are killed");
        }
    });
}

fn begin(dir: &Path) -> (Handle, super::thread::Running) {
    let policy = Policy::parse(POLICY).expect("a sound policy");
    let store = StoreConfig { snapshot_after: SNAPSHOT_AFTER, ..StoreConfig::at(dir) };
    let begin = Start { names: Box::new(Called), ..Start::at(store, policy) };
    start(begin).unwrap_or_else(|e| panic!("the market does not start: {e}"))
}

fn ask_now(handle: &Handle, who: Who, ask: Ask) -> Result<Said, crate::message::Refusal> {
    let api = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    api.block_on(handle.ask(who, ask))
}

fn who(uid: u32) -> Who {
    Who { uid, gids: vec![uid], pid: 1, by_root: false }
}

/// A user of the load, with the ids of what it has.
struct User {
    uid: u32,
    handle: Handle,
    things: Things,
    tickets: Vec<(String, Resource, u64, String)>,
    clients: BTreeMap<String, divvy_market::CurrencyId>,
    numbers: SplitMix64,
    count: u64,
}

impl User {
    fn new(uid: u32, graph: &Graph, clients: &[Admitted], handle: Handle, seed: u64) -> Self {
        let things = things_of(graph).remove(&uid).unwrap_or_default();
        let prefix = format!("u{uid}/");
        let own = |name: &String| name.strip_prefix(&prefix).map(ToOwned::to_owned);
        let tickets = graph.tickets.iter().filter_map(|ticket| {
            Some((own(&ticket.holder)?, ticket.resource, ticket.amount, ticket.id.clone()))
        });
        let clients = clients.iter().filter(|client| client.uid == uid);
        let numbers = SplitMix64::new(seed.wrapping_mul(USERS.into()).wrapping_add(uid.into()));
        Self {
            uid,
            handle,
            tickets: tickets.collect(),
            clients: clients.map(|client| (client.name.clone(), client.currency)).collect(),
            count: things.keys().filter_map(|name| name[1..].parse().ok()).max().unwrap_or(0),
            things,
            numbers,
        }
    }

    async fn live(mut self) {
        loop {
            let deed = self.draw();
            tell(&Line::Intent(self.uid, deed.clone()));
            let said = self.handle.ask(who(self.uid), self.ask(&deed)).await;
            tell(&Line::Said(self.uid, said.is_ok()));
            match said {
                Ok(said) => self.note(&deed, &said),
                Err(refusal) => assert!(matches!(deed, Deed::Wrong), "{deed:?}: {refusal:?}"),
            }
        }
    }

    fn draw(&mut self) -> Deed {
        loop {
            let deed = Deed::draw(&self.things, &mut self.numbers, &mut self.count);
            // Ids of a client's first tickets are not told to whoever admitted it: they are known in the next life.
            match &deed {
                Deed::Alter { name, resource, from: amount, .. }
                | Deed::Unfund { name, resource, amount }
                    if self.ticket(name, *resource, *amount).is_none() => {}
                _ => return deed,
            }
        }
    }

    fn ticket(&self, name: &String, resource: Resource, amount: u64) -> Option<String> {
        let found = self.tickets.iter().find(|t| (&t.0, t.1, t.2) == (name, resource, amount));
        found.map(|found| found.3.clone())
    }

    fn ask(&self, deed: &Deed) -> Ask {
        let own = format!("u{}", self.uid);
        let ticket = |name, resource, amount| self.ticket(name, resource, amount).unwrap_or_default();
        match deed {
            Deed::Create { name } => {
                Ask::CreateCurrency(NewCurrency { name: name.clone(), ..NewCurrency::default() })
            }
            Deed::Admit { name, amount } => {
                let selector = "tree:1".to_owned();
                let identity = Identity { selector, process: Some((1, 1)), boot: String::new() };
                Ask::Admit {
                    name: name.clone(),
                    amount: *amount,
                    identity,
                    parent: None,
                    from: None,
                    job: None,
                }
            }
            Deed::Fund { name, amount } => Ask::CreateTicket(NewTicket {
                holder: name.clone(),
                issuer: own,
                resource: Resource::Cpu,
                amount: *amount,
                kind: Kind::Soft,
            }),
            Deed::Alter { name, resource, from, to } => {
                Ask::ChangeTicket(ticket(name, *resource, *from), TicketChange { amount: *to })
            }
            Deed::Unfund { name, resource, amount } => Ask::DestroyTicket(ticket(name, *resource, *amount)),
            Deed::Destroy { name } => Ask::DestroyCurrency(name.clone()),
            Deed::Leave { name } => {
                // Who is drawn was admitted.
                Ask::Leave { client: self.clients[name] }
            }
            Deed::Wrong => Ask::DestroyCurrency("base".to_owned()),
        }
    }

    fn note(&mut self, deed: &Deed, said: &Said) {
        deed.follow(&mut self.things);
        match (deed, said) {
            (Deed::Admit { name, .. }, Said::Admitted(admitted)) => {
                self.clients.insert(name.clone(), admitted.currency);
            }
            (Deed::Fund { name, amount }, Said::ChangedTicket(made)) => {
                self.tickets.push((name.clone(), Resource::Cpu, *amount, made.result.id.clone()));
            }
            (Deed::Alter { .. } | Deed::Unfund { .. }, Said::ChangedTicket(changed)) => {
                let id = &changed.result.id;
                let at = self.tickets.iter().position(|ticket| ticket.3 == *id).expect("it was asked for");
                match deed {
                    Deed::Alter { to, .. } => self.tickets[at].2 = *to,
                    _ => drop(self.tickets.swap_remove(at)),
                }
            }
            (Deed::Destroy { name } | Deed::Leave { name }, _) => {
                self.tickets.retain(|ticket| ticket.0 != *name);
                self.clients.remove(name);
            }
            _ => {}
        }
    }
}

/// One write for one line: a pipe takes it whole.
fn tell(line: &Line) {
    let mut text = serde_json::to_string(line).expect("a line can be written");
    text.push('\n');
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// How long the drill goes on: until both are reached.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Acknowledged changes.
    pub operations: u64,
    /// Processes killed.
    pub kills: u64,
    /// Of the moments and of what is done.
    pub seed: u64,
    /// Each process lives a random time up to this, from its start on.
    pub life: Duration,
}

/// What the drill saw.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Changes that were acknowledged, each found again.
    pub operations: u64,
    /// Processes killed.
    pub kills: u64,
    /// Requests that were on the way when their process was killed, and of these, those that were done nonetheless.
    pub underway: u64,
    /// As said.
    pub underway_done: u64,
    /// Processes that were killed before they said anything: while they recovered.
    pub silent: u64,
    /// Things and tickets at the end.
    pub left: (usize, usize),
}

/// Kills `child` processes, which run [`child`] in `dir` with the seed they are given, and looks after each what is on disk.
///
/// # Panics
/// With the first thing that was acknowledged and is not there, or is there by halves; or where the market cannot be opened.
pub fn drill(dir: &Path, plan: Plan, mut command: impl FnMut(u64) -> Command) -> Report {
    let mut numbers = SplitMix64::new(plan.seed);
    let mut known: BTreeMap<u32, Things> = (FIRST..FIRST + USERS).map(|uid| (uid, Things::new())).collect();
    let mut report = Report::default();
    while report.kills < plan.kills || report.operations < plan.operations {
        let life = Nanos(numbers.below(plan.life.as_nanos() as u64));
        let child = command(numbers.below(u64::MAX)).stderr(Stdio::piped()).spawn().expect("start the child");
        let (lines, other) = kill_after(child, life);
        report.kills += 1;
        report.silent += u64::from(lines.is_empty());
        let underway = follow(&lines, &mut known, &mut report);
        look(dir, &mut known, &underway, &mut report, &other);
    }
    report
}

/// The lines of a child that was killed after `life`, and what else it said.
fn kill_after(mut child: Child, life: Nanos) -> (Vec<Line>, String) {
    let pipe = child.stderr.take().expect("it has a pipe");
    let reader = std::thread::spawn(move || {
        let (mut lines, mut other) = (Vec::new(), String::new());
        for text in BufReader::new(pipe).lines().map_while(Result::ok) {
            match serde_json::from_str(&text) {
                Ok(line) => lines.push(line),
                Err(_) => drop(writeln!(other, "{text}")),
            }
        }
        (lines, other)
    });
    clock::sleep(life);
    let early = child.try_wait().expect("wait for the child");
    child.kill().expect("kill the child");
    child.wait().expect("wait for the child");
    let (lines, other) = reader.join().expect("read the lines");
    assert!(early.is_none(), "the child ended by itself: {other}");
    (lines, other)
}

/// Takes in what was acknowledged; what is left are the requests on the way.
fn follow(lines: &[Line], known: &mut BTreeMap<u32, Things>, report: &mut Report) -> BTreeMap<u32, Deed> {
    let mut underway = BTreeMap::new();
    for line in lines {
        match line {
            Line::Intent(uid, deed) => {
                assert!(underway.insert(*uid, deed.clone()).is_none(), "one at a time");
            }
            Line::Said(uid, done) => {
                let deed = underway.remove(uid).expect("what is answered was asked");
                if *done {
                    deed.follow(known.entry(*uid).or_default());
                    report.operations += 1;
                }
            }
        }
    }
    underway
}

/// Compares what is on disk with what is known.
fn look(
    dir: &Path,
    known: &mut BTreeMap<u32, Things>,
    underway: &BTreeMap<u32, Deed>,
    report: &mut Report,
    other: &str,
) {
    let policy = Policy::parse(POLICY).expect("a sound policy");
    let opened = Store::open(&StoreConfig::at(dir), &policy);
    let (_store, mut ledger, _) =
        opened.unwrap_or_else(|e| panic!("after {} kills: {e}\n{other}", report.kills));
    ledger.audit().unwrap_or_else(|e| panic!("after {} kills: {e}", report.kills));
    let Ok(super::ledger::Done { said: Said::Graph(graph), .. }) =
        ledger.apply(&Called, &who(0), &Ask::Graph, 0)
    else {
        panic!("a graph can be had")
    };
    let mut there = things_of(&graph);
    for (uid, things) in known.iter_mut() {
        let there = there.remove(uid).unwrap_or_default();
        if let Some(deed) = underway.get(uid) {
            let mut after = things.clone();
            deed.follow(&mut after);
            report.underway += 1;
            if after == there && after != *things {
                report.underway_done += 1;
                *things = after;
            }
        }
        assert_eq!(
            *things,
            there,
            "user {uid} after {} kills, {:?} on the way",
            report.kills,
            underway.get(uid)
        );
    }
    let nr_things = known.values().map(BTreeMap::len).sum();
    report.left = (nr_things, graph.tickets.len());
}

/// What a load was answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answered {
    /// Requests.
    pub requests: u64,
    /// Of these, changes, which were on disk before they were answered.
    pub changes: u64,
    /// How long all of it took.
    pub took: Duration,
    /// From question to answer: the median, the 99th percentile, the longest.
    pub median: Duration,
    /// As said.
    pub p99: Duration,
    /// As said.
    pub longest: Duration,
}

/// Has `askers` users ask the market in `dir` for so long, each one request after the other: changes, and as many that only
/// look. Each user issues and takes back tickets among 8 currencies of its own.
///
/// # Panics
/// Where the market does not do what it should.
#[must_use]
pub fn load(dir: &Path, askers: u32, time: Duration) -> Answered {
    let policy = Policy::parse(POLICY).expect("a sound policy");
    let begin = Start { names: Box::new(Called), ..Start::at(StoreConfig::at(dir), policy) };
    let (handle, running) = start(begin).unwrap_or_else(|e| panic!("the market does not start: {e}"));
    let api = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let begun = clock::now();
    let until = begun + Nanos(time.as_nanos() as u64);
    let took = api.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for uid in FIRST..FIRST + askers {
            tasks.spawn(issue_and_take(handle.clone(), uid, until));
        }
        tasks.join_all().await
    });
    let all = Duration::from_nanos(clock::now().since(begun).0);
    running.stop().unwrap_or_else(|e| panic!("the market does not end: {e}"));
    let changes: u64 = took.iter().map(|(changes, _)| changes).sum();
    let mut took: Vec<u64> = took.into_iter().flat_map(|(_, took)| took).collect();
    took.sort_unstable();
    let at = |part: f64| {
        let index = ((took.len() as f64 * part) as usize).min(took.len().saturating_sub(1));
        Duration::from_nanos(took.get(index).copied().unwrap_or(0))
    };
    let requests = took.len() as u64;
    Answered { requests, changes, took: all, median: at(0.5), p99: at(0.99), longest: at(1.0) }
}

async fn issue_and_take(handle: Handle, uid: u32, until: divvy_policy::Instant) -> (u64, Vec<u64>) {
    let mut took = Vec::new();
    let mut changes = 0;
    let ask = async |took: &mut Vec<u64>, ask: Ask| {
        let before = clock::now();
        let said = handle.ask(who(uid), ask).await.unwrap_or_else(|refusal| panic!("{refusal:?}"));
        took.push(clock::now().since(before).0);
        said
    };
    for n in 0..8 {
        let new = NewCurrency { name: format!("c{n}"), ..NewCurrency::default() };
        // They are there already where the market is not new.
        let _ = handle.ask(who(uid), Ask::CreateCurrency(new)).await;
    }
    let mut numbers = SplitMix64::new(uid.into());
    while clock::now() < until {
        let (holder, issuer) = (format!("c{}", numbers.below(8)), format!("u{uid}"));
        let amount = 1 + numbers.below(1000);
        let new = NewTicket { holder, issuer, resource: Resource::Cpu, amount, kind: Kind::Soft };
        let Said::ChangedTicket(made) = ask(&mut took, Ask::CreateTicket(new)).await else {
            panic!("a ticket")
        };
        ask(&mut took, Ask::Ticket(made.result.id.clone())).await;
        ask(&mut took, Ask::DestroyTicket(made.result.id)).await;
        ask(&mut took, Ask::Currency(format!("u{uid}"))).await;
        changes += 2;
    }
    (changes, took)
}

/// How long a snapshot takes of a market with so many tickets in a hundredth as many currencies: to make it, to write it, and
/// to read it with a check of every law; and how large it is.
///
/// # Panics
/// Where the store cannot be written.
#[must_use]
pub fn snapshot(dir: &Path, tickets: u32) -> [(&'static str, f64); 5] {
    use divvy_market::{Amount, Broker, Caller, Made, Market, Op, Resources};
    let (root, broker) = (Caller::superuser(), Broker::private(1, 1));
    let mut market = Market::new();
    let base = market.base();
    let mut make = |op: Op| market.apply(&root, &op).expect("a sound operation").made;
    let mut ids = Vec::new();
    for n in 0..tickets {
        if n % 100 == 0 {
            let Made::Currency(id) = make(Op::CreateCurrency { broker }) else { unreachable!() };
            ids.push(id);
        }
        let issuer = if n % 100 == 0 { base } else { ids[ids.len() - 1] };
        let holder = if n % 100 == 0 {
            ids[ids.len() - 1]
        } else {
            let Made::Currency(id) = make(Op::CreateClient { broker, competes: Resources::ALL }) else {
                unreachable!()
            };
            id
        };
        let amount = Amount::new(u64::from(n) + 1).expect("not too large");
        make(Op::Fund { holder, issuer, resource: Resource::Cpu, amount, kind: Kind::Soft });
    }
    let ledger = super::ledger::Ledger::of(market);
    let (mut store, ..) = Store::open(&StoreConfig::at(dir), &Policy::default()).expect("a store");
    let timed = |begun: divvy_policy::Instant| clock::now().since(begun).0 as f64 / 1e9;
    let begun = clock::now();
    let bytes = ledger.to_bytes().expect("memory for it");
    let made = timed(begun);
    let begun = clock::now();
    store.put_ledger(&ledger).expect("room for it");
    let written = timed(begun);
    drop(store);
    let begun = clock::now();
    let (_, again, recovered) = Store::open(&StoreConfig::at(dir), &Policy::default()).expect("a store");
    let read = timed(begun);
    assert!(recovered.damaged == 0 && again.nr_tickets() == tickets as usize, "{recovered:?}");
    [
        ("tickets", tickets.into()),
        ("bytes", bytes.len() as f64),
        ("seconds to put it into bytes", made),
        ("seconds for that and writing it", written),
        ("seconds to read and check it", read),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Not a test: what [`what_was_acknowledged_survives_kill_9`] kills. It runs in the directory of the market.
    #[test]
    #[ignore = "the process that another test starts and kills"]
    fn the_child() {
        let seed = std::process::id().into();
        child(Path::new("state"), seed);
    }

    #[test]
    fn what_was_acknowledged_survives_kill_9() {
        let dir = tempfile::tempdir().unwrap();
        let program = std::env::current_exe().unwrap();
        let plan = Plan { operations: 300, kills: 20, seed: 1, life: Duration::from_millis(300) };
        let report = drill(&dir.path().join("state"), plan, |_| {
            let mut command = Command::new(&program);
            command.args(["--exact", "market::drill::tests::the_child", "--ignored", "--nocapture"]);
            command.current_dir(dir.path()).stdout(Stdio::null());
            command
        });
        assert!(report.kills >= 20 && report.operations >= 300, "{report:?}");
        assert!(report.underway > 0, "no kill fell into a request: {report:?}");
    }
}
