//! A market's values divide simulated clients, through [`Portions`], the exact gate and the engine.

mod live_common;

use divvy_engine::policies::GateSpec;
use divvy_engine::portion::Portions;
use divvy_market::{
    Amount, Broker, Caller, CurrencyId, Kind, Made, Market, Op, Presence, Ratio, Resource, Resources,
};
use divvy_policy::{ClientId, Instant, Nanos};
use divvy_sim::live::{MachineSpec, Program, Step};
use live_common::{Load, Sim, build, computes, gate, turn_until};

const CPU: Resource = Resource::Cpu;

/// A market, and what its values are worth to an engine whose clients are its clients, in order.
struct Divided {
    market: Market,
    clients: Vec<CurrencyId>,
    portions: Portions,
    engine: Sim,
    /// Shares that were changed.
    reshared: usize,
}

fn apply(market: &mut Market, op: &Op) -> Made {
    market.apply(&Caller::superuser(), op).expect("the superuser may").made
}

fn fund(market: &mut Market, holder: CurrencyId, issuer: CurrencyId, n: u64) {
    let amount = Amount::new(n).expect("an amount");
    apply(market, &Op::Fund { holder, issuer, resource: CPU, amount, kind: Kind::Soft });
}

fn currency(market: &mut Market, of: u32) -> CurrencyId {
    match apply(market, &Op::CreateCurrency { broker: Broker::private(of, of) }) {
        Made::Currency(id) => id,
        made => panic!("{made:?}"),
    }
}

fn client(market: &mut Market, of: u32) -> CurrencyId {
    let competes = Resources::NONE.with(CPU);
    match apply(market, &Op::CreateClient { broker: Broker::private(of, of), competes }) {
        Made::Currency(id) => id,
        made => panic!("{made:?}"),
    }
}

/// In 2^-32 base tickets, as the daemon has it.
fn fixed(value: &Ratio) -> u128 {
    (value.to_f64() * 2f64.powi(32)) as u128
}

impl Divided {
    fn new(market: Market, clients: Vec<CurrencyId>, cpus: u32, loads: &[Load], seed: u64) -> Self {
        let mut spec = GateSpec { cpus, ..gate("exact", cpus) };
        let portions = Portions::new(&mut spec).expect("a policy");
        let engine = build(MachineSpec::typical(cpus, seed), &spec, loads);
        let mut all = Self { market, clients, portions, engine, reshared: 0 };
        all.feed();
        all.reshared = 0;
        all
    }

    /// Tells the engine what everybody is worth by now: those whose share is another, all at once.
    fn feed(&mut self) {
        let values: Vec<u128> =
            self.clients.iter().map(|&c| fixed(&self.market.weight(c, CPU).expect("it lives"))).collect();
        let competing = values.iter().filter(|&&v| v > 0).count();
        self.portions.set_whole(values.iter().sum(), competing);
        for (i, &value) in values.iter().enumerate().filter(|(_, v)| **v > 0) {
            let (share, client) = (self.portions.share(value), ClientId(i as u32));
            if self.engine.ledger().clients()[i].share != share {
                self.engine.reshare(client, share).expect("it is there");
                self.reshared += 1;
            }
        }
    }

    fn presence(&mut self, client: usize, presence: Presence) {
        apply(&mut self.market, &Op::SetPresence { client: self.clients[client], resource: CPU, presence });
        self.feed();
    }

    fn used(&self) -> Vec<u64> {
        (0..self.clients.len()).map(|i| self.engine.host().used(ClientId(i as u32)).0).collect()
    }

    /// What each used until `to`, as a fraction of what all did.
    fn fractions_until(&mut self, to: u64) -> Vec<f64> {
        let before = self.used();
        turn_until(&mut self.engine, Instant(to));
        let used: Vec<u64> = self.used().iter().zip(&before).map(|(a, b)| a - b).collect();
        used.iter().map(|&u| u as f64 / used.iter().sum::<u64>() as f64).collect()
    }
}

fn check(fractions: &[f64], expected: &[f64], error_max: f64) {
    for (got, due) in fractions.iter().zip(expected) {
        assert!((got - due).abs() <= error_max * due, "{got} of {due}: {fractions:?}");
    }
}

const S: u64 = 1_000_000_000;
/// How long B3 sleeps, and is awake: 600 cycles, so that a turn more or less at an end is at most .2 % of anybody's time.
const HALF: u64 = 120;

/// Section 5.3, Fig. 6, on one CPU and, each task twice, on two.
#[test]
fn the_papers_five_tasks_in_two_currencies() {
    for cpus in [1, 2] {
        let mut market = Market::new();
        let base = market.base();
        let [a, b] = [1, 2].map(|of| currency(&mut market, of));
        fund(&mut market, a, base, 1000);
        fund(&mut market, b, base, 1000);
        let mut clients = Vec::new();
        let mut loads = Vec::new();
        let late = Program::once_then(
            vec![Step::Sleep(Nanos::from_secs(HALF))],
            vec![Step::Run(Nanos::from_secs(3600))],
        );
        for (issuer, of, amount) in [(a, 1, 100), (a, 1, 200), (b, 2, 100), (b, 2, 200), (b, 2, 300)] {
            for _ in 0..cpus {
                let id = client(&mut market, of);
                fund(&mut market, id, issuer, amount);
                clients.push(id);
                loads.push(match amount {
                    300 => Load { share: 1, threads: vec![late.clone()] },
                    _ => computes(1),
                });
            }
        }
        let sleepers = clients.len() - cpus as usize..clients.len();
        let mut all = Divided::new(market, clients, cpus, &loads, 6);
        for sleeper in sleepers.clone() {
            all.presence(sleeper, Presence::Idle);
        }
        turn_until(&mut all.engine, Instant(S));
        let each = |parts: [f64; 5]| -> Vec<f64> {
            parts.iter().flat_map(|p| vec![p / f64::from(cpus); cpus as usize]).collect()
        };
        let before = all.fractions_until(HALF * S);
        check(
            &before[..sleepers.start],
            &each([1. / 6., 1. / 3., 1. / 6., 1. / 3., 0.])[..sleepers.start],
            0.005,
        );
        all.reshared = 0;
        for sleeper in sleepers {
            all.presence(sleeper, Presence::Competing);
        }
        // A's shares are what they were, and B3's what it had before it slept: only B1 and B2 are told.
        if cpus == 1 {
            assert_eq!(all.reshared, 2);
        }
        let of_a = all.engine.ledger().clients()[0].share;
        turn_until(&mut all.engine, Instant((HALF + 1) * S));
        let after = all.fractions_until(2 * HALF * S);
        check(&after, &each([1. / 6., 1. / 3., 1. / 12., 1. / 6., 1. / 4.]), 0.005);
        assert_eq!(all.engine.ledger().clients()[0].share, of_a);
    }
}

/// Five hundred clients whose values nothing divides: cycles of two seconds, and each has what it is due.
#[test]
fn five_hundred_clients_of_odd_values() {
    let mut market = Market::new();
    let base = market.base();
    let mut clients = Vec::new();
    let mut due = Vec::new();
    for user in 0..10u64 {
        let own = currency(&mut market, user as u32 + 1);
        fund(&mut market, own, base, 997 + user);
        let amounts: Vec<u64> = (0..50).map(|i| 50 + (user * 7 + i * 13) % 101).collect();
        for &n in &amounts {
            let id = client(&mut market, user as u32 + 1);
            fund(&mut market, id, own, n);
            clients.push(id);
            due.push((997 + user) as f64 * n as f64 / amounts.iter().sum::<u64>() as f64);
        }
    }
    let whole: f64 = due.iter().sum();
    due.iter_mut().for_each(|d| *d /= whole);
    let loads: Vec<Load> = clients.iter().map(|_| computes(1)).collect();
    let mut all = Divided::new(market, clients, 2, &loads, 9);
    turn_until(&mut all.engine, Instant(8 * S));
    let cycles = all.engine.ledger().cycles().ended;
    let got = all.fractions_until(208 * S);
    let cycles = all.engine.ledger().cycles().ended - cycles;
    // 500 * 4 ms on two CPUs are 1 s.
    assert!((190..=210).contains(&cycles), "{cycles} cycles in 200 s");
    let worst = got.iter().zip(&due).map(|(g, d)| (g / d - 1.0).abs()).fold(0.0, f64::max);
    assert!(worst < 0.01, "{worst}");
}

/// Shares that change ten times a second, all at once, disturb nothing: errors are those of shares that stay.
#[test]
fn a_batch_of_new_shares_in_every_cycle_keeps_the_long_run() {
    let mut market = Market::new();
    let base = market.base();
    let own = currency(&mut market, 1);
    fund(&mut market, own, base, 1000);
    let clients: Vec<CurrencyId> = (0..4).map(|_| client(&mut market, 1)).collect();
    let mut tickets = Vec::new();
    for &holder in &clients {
        let op = Op::Fund {
            holder,
            issuer: own,
            resource: CPU,
            amount: Amount::new(100).unwrap(),
            kind: Kind::Soft,
        };
        let Made::Ticket(id) = apply(&mut market, &op) else { panic!("a ticket") };
        tickets.push(id);
    }
    let loads: Vec<Load> = clients.iter().map(|_| computes(1)).collect();
    let mut all = Divided::new(market, clients, 1, &loads, 3);
    // Every 100 ms another two of four have the double: on average all have the same.
    let before = all.used();
    for step in 0..600u64 {
        for (i, &ticket) in tickets.iter().enumerate() {
            let n = if (i as u64 + step) % 4 < 2 { 200 } else { 100 };
            apply(&mut all.market, &Op::SetAmount { ticket, amount: Amount::new(n).unwrap() });
        }
        all.feed();
        turn_until(&mut all.engine, Instant((step + 1) * S / 10));
    }
    let used: Vec<f64> = all.used().iter().zip(&before).map(|(a, b)| (a - b) as f64).collect();
    let sum: f64 = used.iter().sum();
    assert!(sum > 0.98 * 60.0 * S as f64, "the CPU is busy: {sum}");
    for used in used {
        assert!((used / sum * 4.0 - 1.0).abs() < 0.02, "{}", used / sum);
    }
}
