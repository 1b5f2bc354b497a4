//! What it costs divvyd to follow what 100,000 clients are worth: values worked out, and what changed of them written to leaves;
//! and beside it what it would cost to look at everybody each time.
//!
//! `cargo bench -p divvy-daemon --bench leaves` writes plain files in a directory (in memory, where there is /dev/shm: 700 MB);
//! `-- --cgroups` makes cgroups of the kernel's below ours. `--clients N`, `--users N`, `--changes N` a second, `--seconds N`.

use std::path::Path;
use std::process::ExitCode;

use divvy_daemon::measured::{Cost, Load, leaves};
use divvy_linux::clock;
use divvy_market::{
    Amount, Broker, Caller, CurrencyId, Kind, Made, Market, Op, Presence, Resource, Resources,
};
use divvy_policy::Nanos;

/// Users, and changes a second.
const ROWS: [(usize, usize); 4] = [(1000, 10), (1000, 100), (100_000, 1000), (10, 10)];
/// Values are told in parts of a base ticket.
const PARTS: u64 = 1 << 20;
/// Memory and disks are divided into so many parts.
const WHOLE: u64 = 1 << 32;
/// Passes a second, at most.
const PASSES: u64 = 10;

fn number(args: &[String], name: &str) -> Option<usize> {
    let at = args.iter().position(|arg| arg == name)?;
    args.get(at + 1)?.parse().ok()
}

/// CPU time of one look at a market after one of its clients fell asleep.
struct Looks {
    /// How many values may have changed, and the time to work these out.
    changed: (usize, Nanos),
    /// The time to work out all.
    all: Nanos,
}

fn make(market: &mut Market, op: &Op, issuer: CurrencyId, amount: u64) -> CurrencyId {
    let root = Caller::superuser();
    let Made::Currency(holder) = market.apply(&root, op).expect("the superuser may").made else {
        unreachable!("it makes one")
    };
    for resource in Resource::ALL {
        let amount = Amount::new(amount).expect("small");
        let fund = Op::Fund { holder, issuer, resource, amount, kind: Kind::Soft };
        market.apply(&root, &fund).expect("the superuser may");
    }
    holder
}

fn look(clients: usize, users: usize) -> Looks {
    let mut market = Market::new();
    let (base, broker) = (market.base(), Broker::private(1, 1));
    let user = Op::CreateCurrency { broker };
    let of_users: Vec<_> = (0..users).map(|_| make(&mut market, &user, base, 1000)).collect();
    let client = Op::CreateClient { broker, competes: Resources::ALL };
    let all: Vec<_> =
        (0..clients).map(|i| make(&mut market, &client, of_users[i % users], 1 + i as u64 % 10)).collect();
    let since = Resource::ALL.map(|resource| Some(market.changed_weights(resource, PARTS, None).revision));
    let say = |market: &mut Market, presence: Presence| {
        let op = Op::SetPresence { client: all[0], resource: Resource::Cpu, presence };
        market.apply(&Caller::superuser(), &op).expect("the superuser may");
        clock::own_thread_cpu()
    };
    let begun = say(&mut market, Presence::Idle);
    let changed = Resource::ALL.into_iter().zip(since);
    let nr_changed =
        changed.map(|(resource, since)| market.changed_weights(resource, PARTS, since).weights.len()).sum();
    let changed = (nr_changed, clock::own_thread_cpu().saturating_sub(begun));
    let begun = say(&mut market, Presence::Competing);
    let shares = market.weights_in_parts(Resource::Cpu, PARTS);
    let rights = [Resource::Memory, Resource::Disk].map(|resource| market.rights_in_parts(resource, WHOLE));
    let all = clock::own_thread_cpu().saturating_sub(begun);
    assert_eq!([shares.len(), rights[0].len(), rights[1].len()], [clients; 3]);
    Looks { changed, all }
}

fn print_row(load: &Load<'_>, cost: &Cost, looks: &Looks) {
    let percent = |ns: u64| ns as f64 * 100.0 / cost.wall_ns as f64;
    let a_second = |n: u64| n as f64 * 1e9 / cost.wall_ns as f64;
    let whole = Nanos(looks.all.0 + cost.whole_ns);
    println!(
        "| {} | {} | {} | {} | {:.2} | {:.2} | {:.2} | {:.2} | {:.1} | {:.0} | {:.0} | {:.0} | {:.0} | {} in {:.2} | {:.0} | {:.0} |",
        load.clients,
        load.users,
        load.changes_per_second,
        cost.files,
        percent(cost.values_ns),
        percent(cost.writes_ns),
        percent(cost.values_ns + cost.writes_ns),
        percent(cost.market_ns),
        a_second(cost.passes),
        a_second(cost.told),
        a_second(cost.written),
        cost.late_ns.0 as f64 / 1e6,
        cost.late_ns.1 as f64 / 1e6,
        looks.changed.0,
        looks.changed.1.0 as f64 / 1e6,
        whole.0 as f64 / 1e6,
        (whole.0 * PASSES) as f64 / 1e7,
    );
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let cgroups = args.iter().any(|arg| arg == "--cgroups");
    let clients = number(&args, "--clients").unwrap_or(100_000);
    let seconds = number(&args, "--seconds").unwrap_or(60) as u64;
    let rows = match (number(&args, "--users"), number(&args, "--changes")) {
        (None, None) => ROWS.to_vec(),
        (users, changes) => vec![(users.unwrap_or(1000), changes.unwrap_or(1000))],
    };
    println!(
        "| clients | users | changes/s | files | values % | writes % | together % | market's thread % | passes/s | values told/s \
         | files written/s | late ms: mean | most | values of one change in ms | all: ms a pass | % with {PASSES} a second |"
    );
    println!("|{}", "---|".repeat(16));
    for (users, changes_per_second) in rows {
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let dir = match dir {
            Ok(dir) => dir,
            Err(e) => {
                eprintln!("make a directory for files: {e}");
                return ExitCode::FAILURE;
            }
        };
        let plain = (!cgroups).then_some(dir.path());
        let load = Load { clients, users: users.min(clients), changes_per_second, seconds, plain };
        match leaves(&load, dir.path()) {
            Ok(cost) => print_row(&load, &cost, &look(clients, load.users)),
            Err(why) => {
                eprintln!("{clients} clients of {users} users: {why}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
