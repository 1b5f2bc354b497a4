//! Random requests by several users, hostile ones among them: names that are somebody else's, ids that are gone, amounts that
//! are none.

use divvy_market::{CurrencyId, Kind, Presence, Resource};
use divvy_policy::dispatch::rng::SplitMix64;

use super::tests::{ALICE, BOB, CAROL, ROOT, identity};
use crate::market::message::{Ask, Cpus, Limits, Terms};
use divvy_api::market::{
    Bound, CurrencyChange, Give, NewCurrency, NewExchange, NewNice, NewOffer, NewTicket, TicketChange,
};

/// A seeded source of numbers.
pub(in crate::market) struct Numbers(SplitMix64);

impl Numbers {
    pub(in crate::market) const fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    pub(in crate::market) fn below(&mut self, end: u64) -> u64 {
        self.0.next_u64() % end
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }
}

/// What there is to ask for.
#[derive(Clone, Debug)]
pub(in crate::market) enum Drawn {
    Ask(u32, Box<Ask>),
    Presence(CurrencyId, Presence),
    /// Time passes, so many ns.
    Time(u64),
}

const USERS: [u32; 4] = [ROOT, ALICE, BOB, CAROL];
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn resource(numbers: &mut Numbers) -> Resource {
    numbers.pick(&[Resource::Cpu, Resource::Cpu, Resource::Disk, Resource::Memory])
}

fn amount(numbers: &mut Numbers) -> u64 {
    match numbers.below(20) {
        0 => numbers.pick(&[0, u64::MAX, 1 << 32, u32::MAX.into()]),
        _ => 1 + numbers.below(300),
    }
}

fn give(numbers: &mut Numbers) -> Give {
    Give { resource: resource(numbers), amount: amount(numbers) }
}

/// A currency or client, mostly one that can be there, and mostly the caller's.
fn word(numbers: &mut Numbers, uid: u32) -> String {
    let owner = if numbers.chance(4) { numbers.pick(&USERS[1..]) } else { uid };
    let user = match owner {
        ALICE => "alice",
        BOB => "bob",
        CAROL => "carol",
        _ => "root",
    };
    match numbers.below(20) {
        0 => "base".to_owned(),
        1 => numbers.below(30).to_string(),
        2 => numbers.pick(&["", "/", "nobody/a", "1.1", "x y", "alice/alice/a"]).to_owned(),
        3..=7 => user.to_owned(),
        8..=13 => format!("{user}/t{}", numbers.below(4)),
        _ => format!("{user}/{}", numbers.pick(&NAMES)),
    }
}

fn mode(numbers: &mut Numbers) -> String {
    numbers.pick(&["700", "777", "770", "704", "000", "fcif--f--", "888", "nine"]).to_owned()
}

/// Somebody and something.
pub(in crate::market) fn draw(numbers: &mut Numbers) -> Drawn {
    let uid = numbers.pick(&[ALICE, ALICE, BOB, BOB, CAROL, CAROL, ROOT]);
    let ask = match numbers.below(40) {
        0 => return Drawn::Time(numbers.below(50)),
        1..=4 => {
            let presence = numbers.pick(&[Presence::Idle, Presence::Competing]);
            return Drawn::Presence(id(numbers), presence);
        }
        5..=10 => admit(numbers),
        11..=19 => Ask::CreateTicket(NewTicket {
            holder: word(numbers, uid),
            issuer: word(numbers, uid),
            resource: resource(numbers),
            amount: amount(numbers),
            kind: numbers.pick(&[Kind::Soft, Kind::Soft, Kind::Hard, Kind::Transfer]),
        }),
        20..=22 => Ask::ChangeTicket(numbers.below(40).to_string(), TicketChange { amount: amount(numbers) }),
        23..=24 => Ask::DestroyTicket(numbers.below(40).to_string()),
        25..=27 => Ask::CreateCurrency(NewCurrency {
            name: numbers.pick(&["a", "b", "c", "d", "alice", "17", ""]).to_owned(),
            group: numbers.chance(3).then(|| numbers.pick(&["staff", "root", "alice"]).to_owned()),
            mode: numbers.chance(2).then(|| mode(numbers)),
        }),
        28..=29 => change(numbers, uid),
        30 => Ask::DestroyCurrency(word(numbers, uid)),
        31..=34 => trade(numbers, uid),
        _ => rare(numbers, uid),
    };
    Drawn::Ask(uid, Box::new(ask))
}

fn id(numbers: &mut Numbers) -> CurrencyId {
    let generation = if numbers.chance(3) { ".1" } else { "" };
    format!("{}{generation}", numbers.below(30)).parse().unwrap()
}

fn admit(numbers: &mut Numbers) -> Ask {
    let parent = numbers.chance(2).then(|| id(numbers));
    let name = format!("t{}", numbers.below(4));
    Ask::Admit { name, amount: amount(numbers), identity: identity(9), parent, from: None, job: None }
}

fn change(numbers: &mut Numbers, uid: u32) -> Ask {
    let change = CurrencyChange {
        mode: numbers.chance(2).then(|| mode(numbers)),
        owner: numbers.chance(4).then(|| numbers.pick(&["alice", "bob", "1003", "nobody"]).to_owned()),
        group: numbers.chance(4).then(|| numbers.pick(&["staff", "0", "nobody"]).to_owned()),
        hard_total: numbers.chance(3).then(|| give(numbers)),
    };
    Ask::ChangeCurrency(word(numbers, uid), change)
}

fn trade(numbers: &mut Numbers, uid: u32) -> Ask {
    match numbers.below(5) {
        0 => {
            let (a, b) = (word(numbers, uid), word(numbers, uid));
            Ask::CreateExchange(NewExchange { a, a_gives: give(numbers), b, b_gives: give(numbers) })
        }
        1 => Ask::CancelExchange(numbers.below(6)),
        2 => Ask::WithdrawOffer(numbers.below(9)),
        _ => {
            // Few different ones, so that some are each other's complements.
            let one = Give { resource: Resource::Cpu, amount: 10 * (1 + numbers.below(2)) };
            let two = Give { resource: Resource::Disk, amount: 10 };
            let (gives, wants) = if numbers.chance(2) { (one, two) } else { (two, one) };
            let party = (!numbers.chance(3)).then(|| word(numbers, uid));
            let wait_ns = numbers.chance(2).then(|| numbers.below(100));
            Ask::CreateOffer(NewOffer { party, gives, wants, wait_ns })
        }
    }
}

fn terms(numbers: &mut Numbers, uid: u32) -> Terms {
    let nr = numbers.below(3) as usize;
    Terms {
        share: numbers.chance(2).then(|| amount(numbers)),
        reserve: (0..nr).map(|_| (resource(numbers), numbers.below(6) * 200_000)).collect(),
        from: numbers.chance(3).then(|| word(numbers, uid)),
        limits: numbers
            .chance(2)
            .then(|| Limits { memory: Some(numbers.below(9) << 20), ..Limits::default() }),
        cpus: numbers.chance(2).then(|| Cpus((0..numbers.below(3) as u32).collect())),
    }
}

fn rare(numbers: &mut Numbers, uid: u32) -> Ask {
    match numbers.below(8) {
        0 | 1 => Ask::Nice(NewNice {
            client: word(numbers, uid),
            from: numbers.chance(2).then(|| word(numbers, uid)),
            resource: numbers.chance(2).then(|| resource(numbers)),
            amount: amount(numbers),
        }),
        2 => Ask::SetBound(
            numbers.pick(&["alice", "bob", "nobody"]).to_owned(),
            Bound { resource: resource(numbers), bound: numbers.chance(2).then(|| numbers.below(3000)) },
        ),
        3 => Ask::Explain(word(numbers, uid), resource(numbers)),
        4 if numbers.chance(2) => Ask::SetTerms { client: id(numbers), terms: Box::new(terms(numbers, uid)) },
        4 => Ask::SetShare { client: id(numbers), amount: amount(numbers) },
        5 => Ask::Leave { client: id(numbers) },
        6 => Ask::Currency(word(numbers, uid)),
        _ => {
            let policy = numbers.pick(&[
                "",
                "[users.alice]\ncpu = 400",
                "[users.default]\ncpu = 1500\n[bounds.bob]\ncpu = 1700",
                "[limits]\ntickets = 5\nclients = 2\ncurrencies = 1\noffers = 1",
            ]);
            Ask::Reload(Box::new(crate::market::policy::Policy::parse(policy).unwrap()))
        }
    }
}
