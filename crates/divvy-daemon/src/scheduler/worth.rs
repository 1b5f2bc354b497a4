//! What clients are worth: what of that changed, on its way from the market, and what is known of everybody.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use divvy_linux::Waker;
use divvy_linux::cgroup::{Rights, WHOLE};
use divvy_market::{Changed, CurrencyId, Resource, Weight};
use divvy_policy::ClientId;

use crate::market::PARTS;

/// A whole that is off by less than one in so many is taken to be what it was: its parts were rounded down.
const CLOSE: u128 = 1 << 16;

/// What changed of one resource since it was last taken.
#[derive(Debug, Default)]
pub(super) struct News {
    is_fresh: bool,
    /// Whoever is not named does not compete.
    all: bool,
    /// What clients weigh by now, in [`PARTS`] of a base ticket; `None` for one that competes no more.
    weights: HashMap<CurrencyId, Option<Weight>>,
    /// The base's hard tickets, where it issued any.
    hard_total: Option<u64>,
}

/// Where the market leaves what changed. Clones are of the same place.
#[derive(Clone)]
pub(crate) struct Values {
    slot: Arc<Mutex<[News; 3]>>,
    waker: Waker,
}

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Values").finish_non_exhaustive()
    }
}

impl Values {
    /// A place that wakes the scheduler which waits on `waker`.
    pub(crate) fn new(waker: Waker) -> Self {
        Self { slot: Arc::default(), waker }
    }

    /// Leaves what changed. Of a client whose last change was not taken yet, the new one counts.
    pub(crate) fn put(&self, resource: Resource, changed: Changed) {
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        let news = &mut slot[resource.index()];
        if changed.all {
            (news.all, news.weights) = (true, HashMap::with_capacity(changed.weights.len()));
        }
        news.weights.extend(changed.weights);
        (news.is_fresh, news.hard_total) = (true, changed.hard_total);
        drop(slot);
        self.waker.wake();
    }

    /// Whether there is something to be taken. Whoever is just putting it there wakes us after it.
    pub(super) fn is_fresh(&self) -> bool {
        self.slot.try_lock().is_ok_and(|slot| slot.iter().any(|news| news.is_fresh))
    }

    /// What changed since the last time, of each resource in the order of [`Resource::ALL`].
    pub(super) fn take(&self) -> Option<[News; 3]> {
        Some(std::mem::take(&mut *self.slot.try_lock().ok()?))
    }
}

/// What all clients weigh of one resource, by what the market has told.
#[derive(Debug, Default)]
struct Known {
    weights: HashMap<CurrencyId, Weight>,
    /// All weights together.
    sum: u128,
    /// All there is, of which a weight is a part: more than the sum, where not all hard tickets of the base are held.
    whole: u128,
}

impl Known {
    /// Takes in what changed; whose weight is another is given to `changed`, with that. Says whether the whole is another.
    fn take(&mut self, news: News, mut changed: impl FnMut(CurrencyId, Option<Weight>)) -> bool {
        let gone: Vec<CurrencyId> = if news.all {
            self.weights.keys().filter(|id| !news.weights.contains_key(id)).copied().collect()
        } else {
            Vec::new()
        };
        let gone = gone.into_iter().map(|id| (id, None));
        for (id, weight) in news.weights.into_iter().chain(gone) {
            let had = match weight {
                Some(weight) => self.weights.insert(id, weight),
                None => self.weights.remove(&id),
            };
            if had != weight {
                let of = |weight: Option<Weight>| weight.map_or(0, |weight| u128::from(weight.all));
                self.sum = self.sum + of(weight) - of(had);
                changed(id, weight);
            }
        }
        let hard_total = u128::from(news.hard_total.unwrap_or(0)) * u128::from(PARTS);
        let whole = self.sum.max(hard_total);
        let differs = whole.abs_diff(self.whole) > self.whole / CLOSE;
        if differs {
            self.whole = whole;
        }
        differs
    }
}

/// What one that competes is worth: one that nothing backs the least that there is, so that the others have the rest. (What is worth
/// 0 competes no more, and keeps the share that it had.)
fn value_of(weight: &Weight) -> u64 {
    weight.all.max(1)
}

/// A client that is present.
#[derive(Clone, Copy, Debug)]
struct Present {
    currency: CurrencyId,
    /// What it is worth; 0 where it is idle, or not known.
    value: u64,
    /// What it was worth last that was anything.
    last: u64,
}

/// What is known of all clients.
#[derive(Debug, Default)]
pub(super) struct Worth {
    resources: [Known; 3],
    present: HashMap<ClientId, Present>,
    by_currency: HashMap<CurrencyId, ClientId>,
    /// What those present are worth together, and how many are worth anything.
    sum: u128,
    valued: usize,
}

impl Worth {
    pub(super) fn join(&mut self, client: ClientId, currency: CurrencyId) {
        self.present.insert(client, Present { currency, value: 0, last: 0 });
        self.by_currency.insert(currency, client);
        let known = self.resources[Resource::Cpu.index()].weights.get(&currency);
        self.set_value(client, known.map_or(0, value_of));
    }

    pub(super) fn leave(&mut self, client: ClientId) {
        self.set_value(client, 0);
        if let Some(left) = self.present.remove(&client) {
            // Unless it has come again, as another.
            if self.by_currency.get(&left.currency) == Some(&client) {
                self.by_currency.remove(&left.currency);
            }
        }
    }

    fn set_value(&mut self, client: ClientId, value: u64) {
        let Some(present) = self.present.get_mut(&client) else { return };
        self.sum = self.sum + u128::from(value) - u128::from(present.value);
        self.valued = self.valued + usize::from(value > 0) - usize::from(present.value > 0);
        present.value = value;
        if value > 0 {
            present.last = value;
        }
    }

    /// Takes in what changed, of each resource. Returns the clients that are worth something else by it, or have other rights,
    /// by id.
    pub(super) fn take(&mut self, news: [News; 3]) -> Vec<ClientId> {
        let mut changed: HashSet<ClientId> = HashSet::new();
        for (resource, news) in Resource::ALL.into_iter().zip(news).filter(|(_, news)| news.is_fresh) {
            let mut values = Vec::new();
            let known = &mut self.resources[resource.index()];
            let whole_changed = known.take(news, |id, weight| {
                if let Some(&client) = self.by_currency.get(&id) {
                    values.push((client, weight.as_ref().map_or(0, value_of)));
                }
            });
            changed.extend(values.iter().map(|&(client, _)| client));
            match resource {
                Resource::Cpu => values.into_iter().for_each(|(client, value)| self.set_value(client, value)),
                // A part of all memory is another part of another whole; of disks only proportions count.
                Resource::Memory if whole_changed => changed.extend(self.present.keys()),
                Resource::Memory | Resource::Disk => {}
            }
        }
        let mut changed: Vec<ClientId> = changed.into_iter().collect();
        changed.sort_unstable();
        changed
    }

    /// What those present are worth together, and how many are worth anything.
    pub(super) const fn whole(&self) -> (u128, usize) {
        (self.sum, self.valued)
    }

    /// What a client is worth, where it is worth anything just now.
    pub(super) fn value(&self, client: ClientId) -> Option<u64> {
        self.present.get(&client).map(|present| present.value).filter(|&value| value > 0)
    }

    /// Whether a client is worth anything just now, as far as was ever told.
    pub(super) fn counts(&self, client: ClientId) -> bool {
        self.present.get(&client).is_none_or(|present| present.value > 0 || present.last == 0)
    }

    /// All that are worth anything, by id.
    pub(super) fn values(&self) -> impl Iterator<Item = (ClientId, u64)> + '_ {
        let valued = self.present.iter().filter(|(_, present)| present.value > 0);
        let mut all: Vec<(ClientId, u64)> =
            valued.map(|(&client, present)| (client, present.value)).collect();
        all.sort_unstable();
        all.into_iter()
    }

    /// What a client is worth, or was last; as much as others are on average, where that was never told.
    pub(super) fn last_value(&self, client: ClientId) -> u64 {
        let last = self.present.get(&client).map_or(0, |present| present.last);
        let usual = || u64::try_from(self.sum / (self.valued.max(1) as u128)).unwrap_or(u64::MAX);
        if last > 0 { last } else { usual().max(1) }
    }

    /// What a client has a right to of memory and disks, as far as the market has told.
    pub(super) fn rights(&self, client: ClientId) -> Rights {
        let Some(present) = self.present.get(&client) else { return Rights::default() };
        let of = |resource: Resource| {
            let known = &self.resources[resource.index()];
            known.weights.get(&present.currency).copied().unwrap_or_default()
        };
        let (memory, disk) = (of(Resource::Memory), of(Resource::Disk));
        let all = self.resources[Resource::Memory.index()].whole.max(1);
        let part = |of: u64| u64::try_from(u128::from(of) * u128::from(WHOLE) / all).unwrap_or(WHOLE);
        Rights {
            memory_reserved: part(memory.reserved),
            memory_shared: part(memory.all.saturating_sub(memory.reserved)),
            disk: disk.all,
            ..Rights::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use divvy_market::{
        Amount, Broker, Caller, Kind, Made, Market, Op, Presence, Resources, Revision, TicketId,
    };
    use divvy_policy::dispatch::rng::SplitMix64;

    use super::*;

    fn made(market: &mut Market, op: Op) -> Made {
        market.apply(&Caller::superuser(), &op).expect("the superuser may").made
    }

    fn currency(market: &mut Market, op: Op) -> CurrencyId {
        let Made::Currency(id) = made(market, op) else { unreachable!("it makes one") };
        id
    }

    fn fund(
        market: &mut Market,
        holder: CurrencyId,
        issuer: CurrencyId,
        of: (Resource, u64, Kind),
    ) -> TicketId {
        let (resource, amount, kind) = of;
        let amount = Amount::new(amount).expect("small");
        let Made::Ticket(id) = made(market, Op::Fund { holder, issuer, resource, amount, kind }) else {
            unreachable!("it makes one")
        };
        id
    }

    /// Leaves what changed in the slot.
    fn feed(market: &mut Market, seen: &mut [Option<Revision>; 3], values: &Values) {
        for resource in Resource::ALL {
            let changed = market.changed_weights(resource, PARTS, seen[resource.index()]);
            seen[resource.index()] = Some(changed.revision);
            values.put(resource, changed);
        }
    }

    /// What a look at all of the market says.
    fn check(market: &mut Market, worth: &Worth, clients: &BTreeMap<ClientId, CurrencyId>) {
        let all: HashMap<CurrencyId, u64> =
            market.weights_in_parts(Resource::Cpu, PARTS).into_iter().collect();
        let disk: HashMap<CurrencyId, u64> =
            market.weights_in_parts(Resource::Disk, PARTS).into_iter().collect();
        let memory = market.rights_in_parts(Resource::Memory, WHOLE);
        let memory: HashMap<CurrencyId, _> = memory.into_iter().map(|right| (right.client, right)).collect();
        // Whoever competes and has nothing left is worth the least.
        let worth_of = |id| all.get(id).map(|&value| value.max(1));
        let present = clients.values().filter_map(worth_of);
        let (sum, count) = present.fold((0u128, 0), |(sum, n), value| (sum + u128::from(value), n + 1));
        assert_eq!(worth.whole(), (sum, count));
        for (&client, id) in clients {
            assert_eq!(worth.value(client), worth_of(id), "{client:?}");
            let rights = worth.rights(client);
            assert_eq!(rights.disk, disk.get(id).copied().unwrap_or(0), "{client:?}");
            let (reserved, shared) = memory.get(id).map_or((0, 0), |right| (right.reserved, right.shared));
            // Parts of a whole that is `CLOSE` to what it is by now.
            let tolerance = WHOLE / CLOSE as u64;
            for (told, due) in [(rights.memory_reserved, reserved), (rights.memory_shared, shared)] {
                assert!(told.abs_diff(due) <= tolerance, "{client:?}: {told} for {due}");
            }
        }
    }

    /// Clients come, leave, sleep and wake, tickets and reservations change; what was taken from the slot now and then is what the
    /// market says, and so is what is begun with in the middle of it.
    #[test]
    fn who_takes_what_changed_knows_what_everybody_is_worth() {
        let mut numbers = SplitMix64::new(7);
        let mut below = |end: u64| numbers.next_u64() % end;
        let mut market = Market::new();
        let (base, broker) = (market.base(), Broker::private(1, 1));
        let users: Vec<CurrencyId> =
            (0..3).map(|_| currency(&mut market, Op::CreateCurrency { broker })).collect();
        for &user in &users {
            for resource in Resource::ALL {
                fund(&mut market, user, base, (resource, 1000, Kind::Soft));
            }
        }
        let values = Values::new(Waker::of_nobody().expect("an eventfd"));
        let (mut worth, mut seen) = (Worth::default(), [None; 3]);
        let mut clients: BTreeMap<ClientId, CurrencyId> = BTreeMap::new();
        let mut reserved: Vec<TicketId> = Vec::new();
        for round in 0..2000u32 {
            let resource = Resource::ALL[below(3) as usize];
            let some =
                clients.iter().nth(below(clients.len().max(1) as u64) as usize).map(|(&c, &id)| (c, id));
            match (below(8), some) {
                (0 | 1, _) | (_, None) => {
                    let id = currency(&mut market, Op::CreateClient { broker, competes: Resources::ALL });
                    let issuer = users[below(3) as usize];
                    for resource in Resource::ALL {
                        fund(&mut market, id, issuer, (resource, 1 + below(9), Kind::Soft));
                    }
                    clients.insert(ClientId(round), id);
                    worth.join(ClientId(round), id);
                }
                (2, Some((client, id))) if clients.len() > 12 => {
                    made(&mut market, Op::Destroy { currency: id });
                    clients.remove(&client);
                    worth.leave(client);
                }
                (3, Some(_)) if reserved.len() < 4 => {
                    let user = users[below(3) as usize];
                    let of = (Resource::Memory, 10 + below(90), Kind::Hard);
                    reserved.push(fund(&mut market, user, base, of));
                }
                (4, Some(_)) if !reserved.is_empty() => {
                    let ticket = reserved.swap_remove(below(reserved.len() as u64) as usize);
                    made(&mut market, Op::Unfund { ticket });
                }
                (n, Some((_, client))) => {
                    let presence = if n % 2 == 0 { Presence::Idle } else { Presence::Competing };
                    made(&mut market, Op::SetPresence { client, resource, presence });
                }
            }
            if below(3) == 0 {
                feed(&mut market, &mut seen, &values);
            }
            if below(3) == 0 {
                feed(&mut market, &mut seen, &values);
                let news = values.take().expect("nobody else has it");
                worth.take(news);
                check(&mut market, &worth, &clients);
            }
            if below(200) == 0 {
                // The market is made again, and tells all.
                seen = [None; 3];
            }
        }
        assert!(clients.len() > 5 && worth.whole().1 > 3);
    }

    #[test]
    fn one_that_is_not_known_is_worth_what_others_are_and_a_sleeper_what_it_was() {
        let mut market = Market::new();
        let (base, broker) = (market.base(), Broker::private(1, 1));
        let clients: Vec<CurrencyId> = [300, 100]
            .map(|amount| {
                let id = currency(&mut market, Op::CreateClient { broker, competes: Resources::ALL });
                fund(&mut market, id, base, (Resource::Cpu, amount, Kind::Soft));
                id
            })
            .to_vec();
        let values = Values::new(Waker::of_nobody().expect("an eventfd"));
        let (mut worth, mut seen) = (Worth::default(), [None; 3]);
        worth.join(ClientId(0), clients[0]);
        assert_eq!((worth.value(ClientId(0)), worth.last_value(ClientId(0))), (None, 1));
        assert!(!values.is_fresh());
        feed(&mut market, &mut seen, &values);
        assert!(values.is_fresh());
        assert_eq!(worth.take(values.take().expect("nobody else has it")), [ClientId(0)]);
        // The second is known before it comes; a third is not.
        worth.join(ClientId(1), clients[1]);
        worth.join(ClientId(2), base);
        let last = |worth: &Worth| [0, 1, 2].map(|i| worth.last_value(ClientId(i)) / PARTS);
        assert_eq!((last(&worth), worth.whole().1), ([300, 100, 200], 2));
        let counts = |worth: &Worth| [0, 1, 2].map(|i| worth.counts(ClientId(i)));
        assert_eq!(counts(&worth), [true; 3]);
        let (client, resource) = (clients[0], Resource::Cpu);
        made(&mut market, Op::SetPresence { client, resource, presence: Presence::Idle });
        feed(&mut market, &mut seen, &values);
        assert_eq!(worth.take(values.take().expect("nobody else has it")), [ClientId(0)]);
        assert_eq!((worth.value(ClientId(0)), last(&worth)), (None, [300, 100, 100]));
        assert_eq!(counts(&worth), [false, true, true]);
    }
}
