//! What it costs to follow what very many clients are worth, for `benches/leaves.rs`: the market's own thread, what lies between,
//! and the part of the scheduler that writes, without processes in the leaves.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use divvy_engine::policies::{GateSpec, KERNEL};
use divvy_engine::portion::Portions;
use divvy_linux::cgroup::{Due, ManyLeaves};
use divvy_linux::{Waker, clock};
use divvy_market::{CurrencyId, Presence};
use divvy_policy::dispatch::rng::SplitMix64;
use divvy_policy::{ClientId, Instant, Nanos, Share};

use crate::budget::Budget;
use crate::market::message::{Ask, Handle, Identity, Said, Who};
use crate::market::policy::Policy;
use crate::market::stats::Stats;
use crate::market::{self, StoreConfig};
use crate::scheduler::{Admins, System, Terms, Values, WRITE_BUDGET};
use crate::system::ToScheduler;

/// Requests that are under way at once while clients are made.
const AT_ONCE: usize = 256;
/// The first user's number.
const USERS_FROM: u32 = 100_000;
/// How often everybody is looked at, for comparison.
const NR_WHOLE: u64 = 5;
/// Nobody is kept from having so many clients, nor from asking for them as fast as can be.
const POLICY: &str = "[limits]
clients = 1000000
tickets = 1000000
currencies = 1000000
requests_per_second = 1000000
burst = 1000000
";

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// Clients, one leaf each.
    pub clients: usize,
    /// Whose they are, as many of each.
    pub users: usize,
    /// So many a second fall asleep or wake.
    pub changes_per_second: usize,
    /// For how long, after a second of the same.
    pub seconds: u64,
    /// Plain files in there in the place of cgroups.
    pub plain: Option<&'a Path>,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Of which kind the files were.
    pub files: &'static str,
    /// How long it took.
    pub wall_ns: u64,
    /// CPU time in which the market worked out what changed.
    pub values_ns: u64,
    /// CPU time in which that was taken in and written.
    pub writes_ns: u64,
    /// CPU time of the market's thread in all: it also keeps who sleeps, on disk, too.
    pub market_ns: u64,
    /// How often was written, and how many files.
    pub passes: u64,
    /// Files that were written.
    pub written: u64,
    /// Clients that were told of, once for each time.
    pub told: u64,
    /// From a change to when it was written, or to the end, on average and at the most.
    pub late_ns: (u64, u64),
    /// CPU time of one look at what all clients are due and at all leaves, as if everything had changed.
    pub whole_ns: u64,
}

/// A market with clients, the leaves, and who has which share.
struct Machine {
    handle: Handle,
    running: market::Running,
    stats: Stats,
    system: System,
    leaves: ManyLeaves,
    clients: Vec<CurrencyId>,
    shares: Vec<Share>,
    budget: Budget,
    /// When clients fell asleep or woke that was not written yet.
    changed: HashMap<ClientId, Instant>,
    late: (u64, u64, u64),
}

/// Measures `load`, with the market in `dir`.
///
/// # Errors
/// What there has to be, and is not.
pub fn leaves(load: &Load<'_>, dir: &Path) -> Result<Cost, String> {
    let mut machine = Machine::make(load, dir)?;
    let mut numbers = SplitMix64::new(1);
    let mut asleep = vec![false; load.clients];
    // What everybody is worth at first, however long that takes.
    while !machine.system.has_news() {
        clock::sleep(Nanos::from_millis(10));
    }
    clock::sleep(Nanos::from_secs(1));
    machine.write(clock::now());
    let mut cost = Cost::default();
    for (seconds, counts) in [(1, false), (load.seconds, true)] {
        let (begun, before) = (clock::now(), machine.spent());
        let end = begun + Nanos::from_secs(seconds);
        let mut done = 0;
        machine.late = (0, 0, 0);
        cost = machine.run(end, |machine| {
            let due = clock::now().since(begun).0 * load.changes_per_second as u64 / 1_000_000_000;
            for _ in done..due {
                let client = (numbers.next_u64() % load.clients as u64) as usize;
                asleep[client] = !asleep[client];
                let presence = if asleep[client] { Presence::Idle } else { Presence::Competing };
                // One that is again what it was is not written.
                let id = ClientId(client as u32);
                if machine.changed.remove(&id).is_none() {
                    machine.changed.insert(id, clock::now());
                }
                machine.handle.presence(machine.clients[client], presence);
            }
            done = due.max(done);
        });
        if counts {
            let after = machine.spent();
            cost.wall_ns = clock::now().since(begun).0;
            (cost.values_ns, cost.market_ns) = (after.0 - before.0, after.1 - before.1);
            machine.count_who_waits();
            let (sum, count, most) = machine.late;
            cost.late_ns = (sum / count.max(1), most);
        }
    }
    cost.files = machine.leaves.kind();
    let begun = clock::own_thread_cpu();
    for _ in 0..NR_WHOLE {
        machine.write_all()?;
    }
    cost.whole_ns = clock::own_thread_cpu().saturating_sub(begun).0 / NR_WHOLE;
    machine.running.stop().map_err(|e| e.to_string())?;
    Ok(cost)
}

impl Machine {
    fn make(load: &Load<'_>, dir: &Path) -> Result<Self, String> {
        let policy = Policy::parse(POLICY).map_err(|e| e.to_string())?;
        let values = Values::new(Waker::of_nobody().map_err(|e| e.to_string())?);
        let users: Vec<u32> = (0..load.clients).map(|i| USERS_FROM + (i % load.users) as u32).collect();
        let store = StoreConfig::at(dir.join("market"));
        let start = market::Start::at(store.clone(), policy.clone());
        let (handle, running) = market::start(start).map_err(|e| e.to_string())?;
        let clients = admit(&handle, &users)?;
        running.stop().map_err(|e| e.to_string())?;
        // Begun again, it owes no time for those who came.
        let stats = Stats::default();
        let start = market::Start {
            stats: stats.clone(),
            feed: Box::new(ToScheduler { values: values.clone(), rights: true }),
            ..market::Start::at(store, policy)
        };
        let (handle, running) = market::start(start).map_err(|e| e.to_string())?;
        let mut spec = GateSpec { policy: KERNEL.to_owned(), ..GateSpec::default() };
        let terms = Terms {
            portions: Portions::new(&mut spec).map_err(|e| e.to_string())?,
            values,
            idle_after: Nanos::from_secs(1),
            admins: Admins::default(),
            tell_presence: Arc::new(|_, _| {}),
            tell_left: Arc::new(|_| {}),
        };
        let mut system = System::new(terms);
        for (i, &currency) in clients.iter().enumerate() {
            system.join(ClientId(i as u32), currency);
        }
        let leaves = ManyLeaves::make(load.plain, &users)?;
        Ok(Self {
            handle,
            running,
            stats,
            system,
            leaves,
            clients,
            shares: vec![Share::ONE; load.clients],
            budget: WRITE_BUDGET,
            changed: HashMap::new(),
            late: (0, 0, 0),
        })
    }

    /// CPU time for values, and of the market's thread in all, ns.
    fn spent(&self) -> (u64, u64) {
        ((self.stats.seconds_of_values() * 1e9) as u64, thread_cpu("market").unwrap_or(0))
    }

    /// Follows until `end`, as the scheduler does; `changes` is called every few milliseconds.
    fn run(&mut self, end: Instant, mut changes: impl FnMut(&mut Self)) -> Cost {
        let (mut cost, before) = (Cost::default(), self.leaves.written());
        while clock::now() < end {
            changes(self);
            let now = clock::now();
            if self.system.has_news() && now >= self.budget.next() {
                let begun = clock::own_thread_cpu();
                cost.told += self.write(now);
                let took = clock::own_thread_cpu().saturating_sub(begun);
                self.budget.pay(now, took, self.clients.len());
                (cost.passes, cost.writes_ns) = (cost.passes + 1, cost.writes_ns + took.0);
            }
            clock::sleep(Nanos::from_millis(2));
        }
        cost.written = self.leaves.written() - before;
        cost
    }

    /// Takes in and writes what changed.
    fn write(&mut self, now: Instant) -> u64 {
        let changed = self.system.take_news();
        let shares = self.system.shares(&changed, |client| self.shares[client.index()]);
        for (client, share) in shares {
            self.shares[client.index()] = share;
        }
        let dues: Vec<(ClientId, Due)> =
            changed.iter().map(|&client| (client, self.system.due(client))).collect();
        self.leaves.give(&dues).expect("leaves that are ours");
        for client in &changed {
            if let Some(at) = self.changed.remove(client) {
                self.count_late(now.since(at).0);
            }
        }
        changed.len() as u64
    }

    fn count_late(&mut self, late: u64) {
        self.late = (self.late.0 + late, self.late.1 + 1, self.late.2.max(late));
    }

    /// Counts those as well whose changes are not written yet: as late as they are by now.
    fn count_who_waits(&mut self) {
        let now = clock::now();
        for (_, at) in std::mem::take(&mut self.changed) {
            self.count_late(now.since(at).0);
        }
    }

    /// Looks at everybody, and writes what is another than it was.
    fn write_all(&mut self) -> Result<(), String> {
        let clients = (0..self.clients.len()).map(|i| ClientId(i as u32));
        let dues: Vec<(ClientId, Due)> = clients.map(|client| (client, self.system.due(client))).collect();
        self.leaves.give_anew(&dues).map(drop).map_err(|e| e.to_string())
    }
}

/// Has one client of each of `users` admitted.
fn admit(handle: &Handle, users: &[u32]) -> Result<Vec<CurrencyId>, String> {
    let api = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let api = api.map_err(|e| e.to_string())?;
    let mut clients = Vec::with_capacity(users.len());
    for (part, some) in users.chunks(AT_ONCE).enumerate() {
        let asked: Vec<_> = some
            .iter()
            .enumerate()
            .map(|(i, &uid)| {
                let number = part * AT_ONCE + i;
                let identity =
                    Identity { selector: format!("name:c{number}"), process: None, boot: String::new() };
                let (name, amount) = (format!("c{number}"), 1 + number as u64 % 10);
                let ask = Ask::Admit { name, amount, identity, parent: None, from: None, job: None };
                let handle = handle.clone();
                // Root's own number, with no limits of requests, does not do: whose they are is what counts.
                let who = Who { uid, gids: vec![uid], pid: 0, by_root: false };
                api.spawn(async move { handle.ask(who, ask).await })
            })
            .collect();
        for answer in asked {
            match api.block_on(answer).map_err(|e| e.to_string())? {
                Ok(Said::Admitted(admitted)) => clients.push(admitted.currency),
                Ok(said) => return Err(format!("{said:?}")),
                Err(refusal) => return Err(refusal.message),
            }
        }
    }
    Ok(clients)
}

/// CPU time of the thread of this process that is called `name`, ns.
fn thread_cpu(name: &str) -> Option<u64> {
    let tasks = std::fs::read_dir("/proc/self/task").ok()?;
    let dir = tasks
        .flatten()
        .map(|task| task.path())
        .find(|dir| std::fs::read_to_string(dir.join("comm")).is_ok_and(|comm| comm.trim() == name))?;
    let text = std::fs::read_to_string(dir.join("schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}
