//! A market of 1,000,000 tickets in 10,000 currencies, six currencies deep.
#![allow(dead_code, reason = "the bench and the table of results each take their part")]

use divvy_market::{
    Amount, Broker, Caller, CurrencyId, Kind, Made, Market, Op, Outcome, Resource, Resources, TicketId,
};
use divvy_policy::dispatch::rng::SplitMix64;

/// Currencies at each depth: 10,000.
pub const LEVELS: [usize; 6] = [4, 20, 90, 420, 1_900, 7_566];
/// Tickets: one for each currency and one for each of 990,000 clients.
pub const TICKETS: usize = 1_000_000;
pub const CPU: Resource = Resource::Cpu;

/// A seeded source of numbers.
pub struct Numbers(SplitMix64);

impl Numbers {
    pub fn below(&mut self, end: usize) -> usize {
        (self.0.next_u64() % end as u64) as usize
    }

    fn amount(&mut self) -> Amount {
        Amount::new(self.below(1000) as u64 + 1).expect("small")
    }
}

pub struct Big {
    pub market: Market,
    pub root: Caller,
    /// By depth, the highest first.
    pub levels: Vec<Vec<CurrencyId>>,
    pub clients: Vec<CurrencyId>,
    pub numbers: Numbers,
}

impl Big {
    pub fn new() -> Self {
        let (market, root) = (Market::new(), Caller::superuser());
        let mut big = Self {
            market,
            root,
            levels: Vec::new(),
            clients: Vec::new(),
            numbers: Numbers(SplitMix64::new(1)),
        };
        let broker = Broker::private(1, 1);
        let mut above = vec![big.market.base()];
        for size in LEVELS {
            let level: Vec<CurrencyId> = (0..size)
                .map(|_| {
                    let currency = big.make(Op::CreateCurrency { broker });
                    let issuer = above[big.numbers.below(above.len())];
                    big.fund(currency, issuer);
                    currency
                })
                .collect();
            big.levels.push(level.clone());
            above = level;
        }
        while big.market.nr_tickets() < TICKETS {
            let client = big.make(Op::CreateClient { broker, competes: Resources::ALL });
            // Nine of ten at the lowest level, the others anywhere.
            let level =
                if big.numbers.below(10) > 0 { LEVELS.len() - 1 } else { big.numbers.below(LEVELS.len()) };
            let issuer = big.levels[level][big.numbers.below(LEVELS[level])];
            big.fund(client, issuer);
            big.clients.push(client);
        }
        big
    }

    fn apply(&mut self, op: &Op) -> Outcome {
        self.market.apply(&self.root, op).expect("the superuser may")
    }

    fn make(&mut self, op: Op) -> CurrencyId {
        let Made::Currency(id) = self.apply(&op).made else { unreachable!("it makes one") };
        id
    }

    pub fn fund(&mut self, holder: CurrencyId, issuer: CurrencyId) -> TicketId {
        let amount = self.numbers.amount();
        let op = Op::Fund { holder, issuer, resource: CPU, amount, kind: Kind::Soft };
        let Made::Ticket(id) = self.apply(&op).made else { unreachable!("it makes one") };
        id
    }

    pub fn unfund(&mut self, ticket: TicketId) {
        self.apply(&Op::Unfund { ticket });
    }

    /// A currency of a level, one of its clients' tickets' holders below it if any, and a client to fund.
    pub fn pick(&mut self, level: usize) -> (CurrencyId, CurrencyId) {
        let issuer = self.levels[level][self.numbers.below(LEVELS[level])];
        let client = self.clients[self.numbers.below(self.clients.len())];
        (issuer, client)
    }

    /// A client at the end of a random way down from `currency`.
    pub fn leaf_below(&mut self, currency: CurrencyId) -> Option<CurrencyId> {
        let mut node = currency;
        loop {
            let issued = self.market.issued_by(node, CPU);
            if issued.is_empty() {
                return self.market.currency(node).filter(|view| view.client).map(|view| view.id);
            }
            node = issued[self.numbers.below(issued.len())].holder;
        }
    }
}
