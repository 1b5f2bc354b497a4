//! What holds after any operations by anybody, and what one currency can do to another.

mod random;

use divvy_market::{Caller, CurrencyId, Made, Market, Op, Outcome, Resource, Revision, TicketId, Weight};
use proptest::prelude::*;
use random::{Numbers, Size, World, below, check_values, values, written};
use std::collections::BTreeMap;

const SMALL: Size = Size { currencies: 10, clients: 12, tickets: 60 };

/// Operations to come: each is drawn with numbers of its own, so that leaving one out leaves the others alone.
fn seeds() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(any::<u64>(), 1..150)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Values equal those of a from-scratch calculation with another library's fractions; what a currency's tickets are
    /// worth together is what it is worth; no total is negative; exchange tickets add up.
    #[test]
    fn the_books_are_right_after_every_operation(seeds in seeds()) {
        let mut world = World::new(SMALL);
        for seed in seeds {
            let mut numbers = Numbers::seeded(seed);
            let (caller, op) = world.draw(&mut numbers);
            let said = format!("{caller:?} {op:?}");
            let _ = world.apply(&caller, &op);
            let fault = world.market.audit();
            prop_assert!(fault.is_ok(), "{:?} after {}", fault, said);
            check_values(&mut world.market);
        }
    }

    /// Whoever follows changes, now and then, knows what a look at all says, whatever else is read meanwhile.
    #[test]
    fn changes_lead_to_what_a_look_at_all_says(seeds in seeds()) {
        let (mut world, parts) = (World::new(SMALL), 1_u64 << 20);
        let mut known: [(Option<Revision>, BTreeMap<CurrencyId, Weight>); 3] = Default::default();
        for seed in seeds {
            let mut numbers = Numbers::seeded(seed);
            let (caller, op) = world.draw(&mut numbers);
            let _ = world.apply(&caller, &op);
            match numbers.below(4) {
                0 => continue,
                1 => check_values(&mut world.market),
                _ => {}
            }
            for (resource, (revision, known)) in Resource::ALL.into_iter().zip(&mut known) {
                let changed = world.market.changed_weights(resource, parts, *revision);
                prop_assert_eq!(changed.all, revision.is_none());
                for (client, weight) in changed.weights {
                    match weight {
                        Some(weight) => known.insert(client, weight),
                        None => known.remove(&client),
                    };
                }
                *revision = Some(changed.revision);
                let all: BTreeMap<CurrencyId, u64> =
                    world.market.weights_in_parts(resource, parts).into_iter().collect();
                let followed: BTreeMap<CurrencyId, u64> = known.iter().map(|(&id, weight)| (id, weight.all)).collect();
                prop_assert_eq!(followed, all, "{:?} after {:?}", resource, op);
                // Both look at all: from nothing, and by what was kept.
                let anew: BTreeMap<CurrencyId, u64> = written_anew(&world.market, resource, parts);
                let reserved: BTreeMap<CurrencyId, u64> =
                    known.iter().map(|(&id, weight)| (id, weight.reserved)).collect();
                prop_assert_eq!(reserved, anew, "reserved {:?} after {:?}", resource, op);
            }
        }
    }

    #[test]
    fn a_refused_operation_changes_nothing(seeds in seeds()) {
        let mut world = World::new(SMALL);
        for seed in seeds {
            let (caller, op) = world.draw(&mut Numbers::seeded(seed));
            let before = written(&world.market);
            if world.apply(&caller, &op).is_err() {
                prop_assert_eq!(before, written(&world.market), "{:?}", op);
            }
        }
    }

    /// Equal operations give equal markets and outcomes, also where the market was written down and read back between;
    /// and reading values on the way changes nothing.
    #[test]
    fn a_log_is_the_market(seeds in seeds()) {
        let mut world = World::new(SMALL);
        let mut log = Vec::new();
        for seed in seeds {
            let (caller, op) = world.draw(&mut Numbers::seeded(seed));
            let outcome = world.apply(&caller, &op);
            let line = serde_json::to_string(&(&caller, &op, &outcome)).unwrap();
            log.push(line);
        }
        let mut again = Market::new();
        for line in log {
            let (caller, op, outcome): (Caller, Op, Result<Outcome, divvy_market::Refusal>) =
                serde_json::from_str(&line).unwrap();
            prop_assert_eq!(again.apply(&caller, &op), outcome);
            let _ = values(&mut again, Resource::Cpu);
            again = serde_json::from_str(&written(&again)).unwrap();
        }
        prop_assert_eq!(written(&world.market), written(&again));
    }

    /// Isolation: funding, changing and taking a currency's own tickets, and being idle or not within it, moves values
    /// below it and nowhere else, as long as it stays active or inactive itself. What it passes on to its own funders, being idle, is not
    /// its own: what an idle party got and gave by exchanges, which is its funders' meanwhile (section 3.2.2).
    #[test]
    fn nothing_inside_a_currency_moves_a_value_outside(seeds in seeds()) {
        let mut world = World::new(SMALL);
        for seed in seeds {
            let (caller, op) = world.draw(&mut Numbers::seeded(seed));
            let Some((currency, resource)) = inside(&world.market, &op) else {
                let _ = world.apply(&caller, &op);
                continue;
            };
            let (ours_before, before) = look(&mut world.market, currency, resource);
            let passed_before = passed_on(&world.market, currency, resource);
            let mut reach = below(&world.market, &[currency], resource);
            let Ok(outcome) = world.apply(&caller, &op) else { continue };
            let (ours_after, after) = look(&mut world.market, currency, resource);
            reach.extend(below(&world.market, &[currency], resource));
            if ours_before != ours_after || !outcome.undone.is_empty() {
                continue;
            }
            if passed_before != passed_on(&world.market, currency, resource) {
                prop_assert!(!ours_after, "an active currency passes nothing on");
                continue;
            }
            for (id, value) in before {
                if !reach.contains(&id) {
                    prop_assert_eq!(Some(&value), after.get(&id), "{} by {:?}", id, op);
                }
            }
        }
    }

    /// Section 3.2: an exchange touches the parties and what they back; every other right stays, and where both parties
    /// are active, so does every other's part of the whole.
    #[test]
    fn an_exchange_leaves_those_who_take_no_part_alone(seeds in seeds()) {
        let mut world = World::new(SMALL);
        for seed in seeds {
            let (caller, op) = world.draw(&mut Numbers::seeded(seed));
            let Op::Exchange { a, a_gives, b, b_gives } = op else {
                let _ = world.apply(&caller, &op);
                continue;
            };
            let pick = |market: &mut Market| [a_gives.resource, b_gives.resource].map(|r| (r, values(market, r), market.total(r)));
            let before = pick(&mut world.market);
            let active = |market: &Market, r| [a, b].iter().all(|&party| market.currency(party).is_some_and(|p| p.active.contains(r)));
            let both: Vec<bool> = before.iter().map(|(r, ..)| active(&world.market, *r)).collect();
            let Ok(outcome) = world.apply(&caller, &op) else { continue };
            if !outcome.undone.is_empty() {
                continue;
            }
            let after = pick(&mut world.market);
            for (((resource, before, total), (_, after, total_after)), both) in before.iter().zip(&after).zip(both) {
                if !both {
                    continue;
                }
                let parties = below(&world.market, &[a, b], *resource);
                for (id, value) in before {
                    if !parties.contains(id) {
                        prop_assert_eq!(Some(value), after.get(id), "{} by {:?}", id, op);
                    }
                }
                // A party that backs nobody loses nothing on the way: what the one gave, the other has.
                let leaves = [a, b].iter().all(|&party| world.market.currency(party).is_some_and(|p| p.client && p.competes.contains(*resource)));
                if leaves {
                    prop_assert_eq!(total, total_after);
                }
            }
        }
    }
}

/// The currency that `op` is inside of, and the resource.
fn inside(market: &Market, op: &Op) -> Option<(CurrencyId, Resource)> {
    match *op {
        Op::Fund { issuer, resource, .. } => Some((issuer, resource)),
        Op::SetAmount { ticket, .. } | Op::Unfund { ticket } => {
            market.ticket_view(ticket).map(|ticket| (ticket.issuer, ticket.resource))
        }
        _ => None,
    }
    .filter(|&(issuer, _)| issuer != market.base())
}

/// Whether `currency` is active, and all values.
fn look(
    market: &mut Market,
    currency: CurrencyId,
    resource: Resource,
) -> (bool, BTreeMap<CurrencyId, String>) {
    let active = market.currency(currency).is_some_and(|view| view.active.contains(resource));
    (active, values(market, resource))
}

/// What an idle `currency` passes on with each ticket that funds it.
fn passed_on(market: &Market, currency: CurrencyId, resource: Resource) -> Vec<(TicketId, i128)> {
    let funds = market.tickets().filter(|ticket| ticket.holder == currency && ticket.resource == resource);
    funds.map(|ticket| (ticket.id, ticket.lodged)).collect()
}

/// Random walks must reach what they are for.
#[test]
fn random_operations_reach_every_kind_of_outcome() {
    let mut world = World::new(SMALL);
    let mut numbers = Numbers::seeded(5);
    let mut met: BTreeMap<&'static str, u64> = BTreeMap::new();
    for _ in 0..80_000 {
        let (caller, op) = world.draw(&mut numbers);
        let Ok(outcome) = world.apply(&caller, &op) else {
            *met.entry("refused").or_default() += 1;
            continue;
        };
        let mut meet = |what, when: bool| *met.entry(what).or_default() += u64::from(when);
        meet(
            "undone though nobody cancelled",
            !outcome.undone.is_empty()
                && matches!(op, Op::Fund { .. } | Op::SetPresence { .. } | Op::SetAmount { .. }),
        );
        meet("an offer taken up", matches!(outcome.made, Made::Exchange { taken: Some(_), .. }));
        meet(
            "a conflict told",
            matches!(&outcome.made, Made::Offer { conflicts, .. } if !conflicts.is_empty()),
        );
        meet("an offer timed out", !outcome.lapsed.is_empty() && matches!(op, Op::Expire { .. }));
        meet("a nice currency went back", !outcome.ended.is_empty());
        meet("waiting", matches!(op, Op::Wait { .. }));
        meet("a burden lodged", world.market.tickets().any(|ticket| ticket.lodged != 0));
        meet("a burden lodged with several", lodged_with_several(&world.market));
        meet(
            "base tickets within a bound",
            matches!(op, Op::Fund { issuer, .. } if issuer == world.market.base() && !caller.superuser),
        );
        meet("deep", world.market.currencies().any(|node| node.depth > 6));
    }
    assert_eq!(met.len(), 11);
    assert!(met.values().all(|&times| times >= 10), "{met:#?}");
}

fn lodged_with_several(market: &Market) -> bool {
    let mut holders = BTreeMap::new();
    for ticket in market.tickets().filter(|ticket| ticket.lodged != 0) {
        *holders.entry((ticket.holder, ticket.resource)).or_insert(0) += 1;
    }
    holders.values().any(|&tickets| tickets > 1)
}

/// What is reserved for each client that competes, by a market that was read back and knows nothing but what was written.
fn written_anew(market: &Market, resource: Resource, parts: u64) -> BTreeMap<CurrencyId, u64> {
    let mut anew: Market = serde_json::from_str(&written(market)).expect("as it was written");
    let all = anew.changed_weights(resource, parts, None);
    assert!(all.all);
    all.weights.into_iter().map(|(id, weight)| (id, weight.expect("it competes").reserved)).collect()
}
