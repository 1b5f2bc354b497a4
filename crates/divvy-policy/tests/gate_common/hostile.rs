//! A driver that does what no sane one does, within the contract.

use divvy_policy::{ClientId, Event, EventError, Gate, Instant, Nanos, Policy, Share};
use proptest::prelude::*;

use super::MS;

/// What a hostile driver may do.
#[derive(Clone, Debug)]
pub enum Op {
    Event(Event),
    /// Time passes.
    Pass(u64),
    /// Whoever is held has what the others leave, or not.
    Leftovers(bool),
    /// The driver wakes when it is asked to, or not.
    Punctual(bool),
    /// To hold and to release clients takes so long.
    SwitchCost(u64),
    /// Takes so many decisions and answers each question with this, or not at all.
    Poll(u8, Option<u64>, bool),
}

/// Any operation; charges of up to `most` ns.
pub fn op(most: u64) -> impl Strategy<Value = Op> {
    let client = (0u32..8).prop_map(ClientId);
    let share = prop_oneof![1u64..10, Just(Share::MAX.get())].prop_map(|s| Share::new(s).unwrap());
    let ns = prop_oneof![Just(0), 0u64..100 * MS, Just(most)];
    prop_oneof![
        (client.clone(), share.clone()).prop_map(|(client, share)| Op::Event(Event::Join { client, share })),
        client.clone().prop_map(|client| Op::Event(Event::Leave { client })),
        (client.clone(), share).prop_map(|(client, share)| Op::Event(Event::Reshare { client, share })),
        client.clone().prop_map(|client| Op::Event(Event::Wake { client })),
        client.clone().prop_map(|client| Op::Event(Event::Wake { client })),
        client.clone().prop_map(|client| Op::Event(Event::Block { client })),
        (client.clone(), ns.clone())
            .prop_map(|(client, ns)| Op::Event(Event::Charge { client, used: Nanos(ns) })),
        (client, 0u32..6).prop_map(|(client, cpus)| Op::Event(Event::Width { client, cpus })),
        prop_oneof![0u64..50 * MS, Just(u64::MAX / 8)].prop_map(Op::Pass),
        any::<bool>().prop_map(Op::Leftovers),
        any::<bool>().prop_map(Op::Punctual),
        prop_oneof![0u64..5 * MS, Just(u64::MAX)].prop_map(Op::SwitchCost),
        (0u8..20, prop::option::of(ns), any::<bool>())
            .prop_map(|(n, answer, state)| Op::Poll(n, answer, state)),
    ]
}

/// Plays `ops`, then answers whatever is asked until the policy comes to an end.
pub fn survive<P: Policy<Decision = Gate>>(mut policy: P, ops: &[Op]) -> Result<(), TestCaseError> {
    const MOST_DECISIONS: usize = 500;
    let mut now = 0u64;
    let mut present = std::collections::BTreeSet::new();
    let mut unanswered = Vec::new();
    for op in ops {
        match *op {
            Op::Event(event) => {
                let done = policy.on_event(Instant(now), event);
                match (event, done) {
                    (Event::Join { client, .. }, Ok(())) => drop(present.insert(client)),
                    (Event::Leave { client }, Ok(())) => drop(present.remove(&client)),
                    _ => {}
                }
            }
            Op::Pass(ns) => now = now.saturating_add(ns),
            Op::Leftovers(used) => policy.set_leftovers(used),
            Op::Punctual(punctual) => policy.set_punctual(punctual),
            Op::SwitchCost(ns) => policy.set_switch_cost(Nanos(ns)),
            Op::Poll(n, answer, blocked) => {
                for _ in 0..n {
                    let Some(decision) = policy.poll_decision(Instant(now)) else { break };
                    match answer {
                        Some(ns) => reply(&mut policy, now, decision, ns, blocked)?,
                        None => unanswered.push(decision),
                    }
                }
            }
        }
    }
    for decision in unanswered {
        reply(&mut policy, now, decision, 0, false)?;
    }
    for _ in 0..MOST_DECISIONS {
        let Some(decision) = policy.poll_decision(Instant(now)) else { return Ok(()) };
        if let Gate::Release { client, .. } | Gate::Hold { client } | Gate::Measure { client } = decision {
            prop_assert!(present.contains(&client), "{decision:?} about a client that left");
        }
        reply(&mut policy, now, decision, 0, false)?;
    }
    prop_assert!(false, "the policy does not come to an end");
    Ok(())
}

fn reply<P: Policy<Decision = Gate>>(
    policy: &mut P,
    now: u64,
    decision: Gate,
    ns: u64,
    blocked: bool,
) -> Result<(), TestCaseError> {
    let event = match decision {
        Gate::Measure { client } => Event::Charge { client, used: Nanos(ns) },
        Gate::Observe { client } if blocked => Event::Block { client },
        Gate::Observe { client } => Event::Wake { client },
        _ => return Ok(()),
    };
    match policy.on_event(Instant(now), event) {
        Ok(()) | Err(EventError::UnknownClient(_)) => Ok(()), // It left before its answer came.
        Err(other) => Err(TestCaseError::fail(format!("{other:?}"))),
    }
}
