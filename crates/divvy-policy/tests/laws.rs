//! What must hold of every dispatcher that takes no CPU from anybody, over random lives of random clients.

mod support;

use divvy_policy::dispatch::rng::SplitMix64;
use divvy_policy::dispatch::service_error::{Fraction, service_errors};
use divvy_policy::dispatch::vtrr::{Insert, Reset, Vtrr, VtrrParams};
use divvy_policy::dispatch::{drr, stride, wfq, wrr};
use divvy_policy::{ClientId, CpuId, Event, Grant, Instant, Nanos, Policy};
use proptest::collection::vec;
use proptest::prelude::*;
use support::{CLIENTS, Machine, Op, Q, dispatcher, dispatchers, populate, run, send};

/// A life: everybody joins at first; then mostly quanta, and now and then something else.
fn life() -> impl Strategy<Value = Vec<Op>> {
    let client = 0..CLIENTS;
    let op = prop_oneof![
        12 => (0..4u32, prop_oneof![3 => Just(16u64), 1 => 0..=16u64]).prop_map(|(cpu, used)| Op::Finish { cpu, used }),
        1 => (0..4u32, 0..=16u64).prop_map(|(cpu, used)| Op::FinishLate { cpu, used }),
        4 => client.clone().prop_map(|client| Op::Wake { client }),
        3 => client.clone().prop_map(|client| Op::Block { client }),
        2 => (client.clone(), 1..20u64).prop_map(|(client, share)| Op::Reshare { client, share }),
        1 => (client.clone(), 1..20u64).prop_map(|(client, share)| Op::Join { client, share }),
        1 => client.prop_map(|client| Op::Leave { client }),
    ];
    (vec(1..20u64, CLIENTS as usize - 1), vec(op, 1..150)).prop_map(|(shares, ops)| {
        let joins = (0u32..)
            .zip(shares)
            .flat_map(|(client, share)| [Op::Join { client, share }, Op::Wake { client }]);
        joins.chain(ops).collect()
    })
}

fn shares(most: u64) -> impl Strategy<Value = Vec<u64>> {
    vec(1..most, 1..10)
}

fn live(mut machine: Machine, ops: &[Op]) -> Machine {
    ops.iter().for_each(|&op| machine.apply(op));
    machine
}

/// The same life for every dispatcher, plain and changed by `twist`: the same grants, by client before renaming.
fn check_same(ops: &[Op], cpus: u32, twist: impl Fn(&mut Machine)) {
    for ((name, plain), (_, twisted)) in dispatchers(cpus).into_iter().zip(dispatchers(cpus)) {
        let plain = live(Machine::new(name, plain, cpus), ops);
        let mut twisted = Machine::new(name, twisted, cpus);
        twist(&mut twisted);
        assert_eq!(live(twisted, ops).log, plain.log, "{name}");
    }
}

/// Two dispatchers that must decide alike.
fn check_alike(ops: &[Op], cpus: u32, a: &'static str, b: &'static str) {
    let [a, b] = [a, b].map(|name| live(Machine::new(name, dispatcher(name, cpus), cpus), ops));
    assert_eq!(a.log, b.log, "{} and {}", a.name, b.name);
}

fn finish_early(policy: &mut dyn Policy<Decision = Grant>, used: u64) -> ClientId {
    send(policy, Event::Free { cpu: CpuId(0) });
    let grant = policy.poll_decision(Instant::ZERO).expect("a client is runnable");
    send(policy, Event::Charge { client: grant.client, used: Nanos(used) });
    grant.client
}

proptest! {
    /// The machine asserts, after each event, that no CPU idles while a client waits, that who is granted is runnable
    /// and on no other CPU, and that only a CPU that asks is granted.
    #[test]
    fn work_conserving(ops in life(), cpus in 1..4u32) {
        for (name, policy) in dispatchers(cpus) {
            live(Machine::new(name, policy, cpus), &ops);
        }
    }

    #[test]
    fn split_charges_equal_the_whole(ops in life(), cpus in 1..4u32, split in 2..9u64) {
        check_same(&ops, cpus, |machine| machine.split = split);
    }

    #[test]
    fn rejected_events_change_nothing(ops in life(), cpus in 1..4u32) {
        check_same(&ops, cpus, |machine| machine.noise = true);
    }

    /// Ids that stand in the same order make the same schedule.
    #[test]
    fn renaming_permutes(ops in life(), cpus in 1..4u32) {
        check_same(&ops, cpus, |machine| machine.rename = |client| 13 * client + 5);
    }

    /// Where no shares are equal, ids mean nothing to the policies whose ties go by share, nor to the lottery, which
    /// goes by order of arrival.
    #[test]
    fn any_renaming_permutes_distinct_shares(mut shares in shares(50), quanta in 1..200usize) {
        shares.sort_unstable();
        shares.dedup();
        for name in ["wrr", "drr", "wfq heap", "wfq list", "wf2q", "lottery tree", "vtrr incremental"] {
            let mut plain = dispatcher(name, 1);
            populate(plain.as_mut(), &shares);
            let plain = run(plain.as_mut(), quanta);
            let last = shares.len() - 1;
            let mut mirrored = dispatcher(name, 1);
            for (id, &s) in shares.iter().enumerate() {
                let client = ClientId((last - id) as u32);
                send(mirrored.as_mut(), Event::Join { client, share: support::share(s) });
                send(mirrored.as_mut(), Event::Wake { client });
            }
            let mirrored: Vec<usize> = run(mirrored.as_mut(), quanta).into_iter().map(|id| last - id).collect();
            prop_assert_eq!(plain, mirrored, "{}", name);
        }
    }

    #[test]
    fn scaling_shares_changes_nothing(shares in shares(50), factor in 2..1_000u64, parts in vec(1..=Q.0, 200)) {
        for name in ["wfq heap", "wfq rr", "wf2q", "stride", "lottery list", "lottery tree"] {
            let [plain, scaled] = [1, factor].map(|factor| {
                let mut policy = dispatcher(name, 1);
                populate(policy.as_mut(), &shares.iter().map(|s| s * factor).collect::<Vec<_>>());
                parts.iter().map(|&used| finish_early(policy.as_mut(), used).0).collect::<Vec<_>>()
            });
            prop_assert_eq!(plain, scaled, "{}", name);
        }
    }

    #[test]
    fn list_equals_heap(ops in life(), cpus in 1..4u32) {
        use wfq::{Queue, Tie};
        for tie in [Tie::LargerShare, Tie::SmallerShare, Tie::Id, Tie::Fifo, Tie::Lifo, Tie::RoundRobin] {
            let [list, heap] = [Queue::List, Queue::Heap].map(|queue| {
                let policy = wfq::Wfq::new(wfq::WfqParams { cpus, quantum: Q, tie, queue }).unwrap();
                live(Machine::new("wfq", Box::new(policy), cpus), &ops).log
            });
            prop_assert_eq!(list, heap, "{:?}", tie);
        }
    }

    #[test]
    fn list_equals_tree(ops in life(), cpus in 1..4u32) {
        check_alike(&ops, cpus, "lottery list", "lottery tree");
    }

    #[test]
    fn vtrr_incremental_reset_decides_alike(ops in life()) {
        check_alike(&ops, 1, "vtrr whole", "vtrr incremental");
    }

    /// With distinct shares, there is only one place for each; the class queues find it too.
    #[test]
    fn vtrr_classes_decide_alike(ops in life(), max_share in 1..40u32) {
        let ops: Vec<Op> = ops.into_iter().map(|op| match op {
            // Shares that differ from client to client.
            Op::Join { client, share } => Op::Join { client, share: share * 7 + u64::from(client) },
            Op::Reshare { client, share } => Op::Reshare { client, share: share * 7 + u64::from(client) },
            other => other,
        }).collect();
        let [plain, classes] = [Insert::Traverse, Insert::Classes { max_share }].map(|insert| {
            let params = VtrrParams { quantum: Q, insert, ..Default::default() };
            live(Machine::new("vtrr", Box::new(Vtrr::new(params).unwrap()), 1), &ops).log
        });
        prop_assert_eq!(plain, classes);
    }

    /// WFQ never lets a client fall a whole quantum behind (VTRR, section 2.4). Service errors sum up to zero.
    #[test]
    fn wfq_error_is_above_minus_one(shares in shares(60), tie in 0..6usize) {
        use wfq::Tie;
        let tie = [Tie::LargerShare, Tie::SmallerShare, Tie::Id, Tie::Fifo, Tie::Lifo, Tie::RoundRobin][tie];
        let mut policy = wfq::Wfq::new(wfq::WfqParams { quantum: Q, tie, ..Default::default() }).unwrap();
        populate(&mut policy, &shares);
        let errors = service_errors(&shares, &run(&mut policy, 2 * shares.iter().sum::<u64>() as usize)).unwrap();
        prop_assert!(errors.all.min > Fraction::new(-1, 1));
        prop_assert!(errors.last.iter().all(|&last| last == Fraction::ZERO));
    }

    #[test]
    fn wf2q_error_is_within_one_quantum(shares in shares(60)) {
        let mut policy = dispatcher("wf2q", 1);
        populate(policy.as_mut(), &shares);
        let quanta = 2 * shares.iter().sum::<u64>() as usize;
        let all = service_errors(&shares, &run(policy.as_mut(), quanta)).unwrap().all;
        prop_assert!(all.min > Fraction::new(-1, 1) && all.max < Fraction::new(1, 1), "{all:?}");
    }

    #[test]
    fn wrr_is_exact_at_the_end_of_a_round(shares in shares(30), rounds in 1..4usize) {
        for order in [wrr::Order::LargestFirst, wrr::Order::ById] {
            let mut policy = wrr::Wrr::new(wrr::WrrParams { quantum: Q, order, ..Default::default() }).unwrap();
            populate(&mut policy, &shares);
            let quanta = rounds * shares.iter().sum::<u64>() as usize;
            let errors = service_errors(&shares, &run(&mut policy, quanta)).unwrap();
            prop_assert!(errors.last.iter().all(|&last| last == Fraction::ZERO));
        }
    }

    /// Service over share differs between any two by at most a round's credit and a slice of each (Shreedhar and
    /// Varghese, theorem 2, for packets of one slice).
    #[test]
    fn drr_deficits_bound_the_error(shares in shares(20), credit in 100..2_000u64, quanta in 1..300usize) {
        let params = drr::DrrParams { quantum: Q, credit: Nanos(credit), ..Default::default() };
        let mut policy = drr::Drr::new(params).unwrap();
        populate(&mut policy, &shares);
        let mut service = vec![0u64; shares.len()];
        for client in run(&mut policy, quanta) {
            service[client] += Q.0;
            for (a, b) in (0..shares.len()).flat_map(|a| (0..a).map(move |b| (a, b))) {
                let (sa, sb) = (shares[a], shares[b]);
                let apart = (service[a] * sb).abs_diff(service[b] * sa);
                prop_assert!(apart <= credit * sa * sb + Q.0 * (sa + sb), "{sa} {sb}: {apart}");
            }
        }
    }

    #[test]
    fn vtrr_counters_and_errors_are_zero_at_the_end_of_a_cycle(shares in shares(40), cycles in 1..4u64) {
        for reset in [Reset::Whole, Reset::Incremental] {
            let mut policy = Vtrr::new(VtrrParams { quantum: Q, reset, ..Default::default() }).unwrap();
            populate(&mut policy, &shares);
            // The cycle in which the clients came one by one is over when its counters are used up.
            while policy.counters_sum() > 0 {
                run(&mut policy, 1);
            }
            let quanta = cycles * shares.iter().sum::<u64>();
            let errors = service_errors(&shares, &run(&mut policy, quanta as usize)).unwrap();
            prop_assert!(errors.last.iter().all(|&last| last == Fraction::ZERO));
            prop_assert_eq!(policy.counters_sum(), 0);
            for client in 0..shares.len() {
                prop_assert_eq!(policy.counter(ClientId(client as u32)), Some(0));
            }
        }
    }

    /// Where every quantum comes out a little short, as those do that end on ticks, nobody loses any of its cycles: after 50
    /// of them each client is within two quanta of its part of what all got.
    #[test]
    fn vtrr_short_quanta_cost_nobody(shares in vec(1..11u64, 2..60), short in 0..20u64, seed: u64) {
        let mut policy = Vtrr::new(VtrrParams { quantum: Q, ..Default::default() }).unwrap();
        populate(&mut policy, &shares);
        let mut random = SplitMix64::new(seed);
        let (mut service, mut all, sum) = (vec![0; shares.len()], 0, shares.iter().sum::<u64>());
        let first = policy.cycle();
        while policy.cycle() < first + 50 {
            send(&mut policy, Event::Free { cpu: CpuId(0) });
            let client = policy.poll_decision(Instant::ZERO).unwrap().client;
            let used = Q.0 - short * Q.0 / 100 - random.below(1 + short * Q.0 / 100);
            send(&mut policy, Event::Charge { client, used: Nanos(used) });
            service[client.index()] += used;
            all += used;
        }
        for (&share, service) in shares.iter().zip(service) {
            let off = (service * sum).abs_diff(all * share);
            prop_assert!(off <= 2 * Q.0 * sum, "share {share} of {sum}: {service} of {all}");
        }
    }

    /// Where quanta come out now short, now long, as those do that others' wake-ups cut and ticks end, nobody loses what it was due either.
    #[test]
    fn vtrr_uneven_quanta_cost_nobody(shares in vec(1..11u64, 2..20), uneven in 0..26u64, seed: u64) {
        let mut policy = Vtrr::new(VtrrParams { quantum: Q, ..Default::default() }).unwrap();
        populate(&mut policy, &shares);
        let mut random = SplitMix64::new(seed);
        let (mut service, mut all, sum) = (vec![0; shares.len()], 0, shares.iter().sum::<u64>());
        let first = policy.cycle();
        while policy.cycle() < first + 500 {
            send(&mut policy, Event::Free { cpu: CpuId(0) });
            let client = policy.poll_decision(Instant::ZERO).unwrap().client;
            let most = uneven * Q.0 / 100;
            let used = Q.0 - most + random.below(1 + 2 * most);
            send(&mut policy, Event::Charge { client, used: Nanos(used) });
            service[client.index()] += used;
            all += used;
        }
        for (&share, service) in shares.iter().zip(service) {
            let off = (service * sum).abs_diff(all * share);
            prop_assert!(off <= 3 * Q.0 * sum, "share {share} of {sum}: {service} of {all}");
        }
    }

    /// Of two neighbours in the queue the later is due no more, but for the one that comes after who ran last. Whole
    /// quanta, and clients that come, go and change their shares.
    #[test]
    fn vtrr_keeps_the_counter_invariant(shares in shares(12), ops in vec((0..10u32, 0..4u32, 1..12u64), 1..200)) {
        let mut policy = Vtrr::new(VtrrParams { quantum: Q, ..Default::default() }).unwrap();
        populate(&mut policy, &shares);
        for (client, what, s) in ops {
            let client = ClientId(client % shares.len() as u32);
            match what {
                0 => send(&mut policy, Event::Block { client }),
                1 => send(&mut policy, Event::Wake { client }),
                2 => send(&mut policy, Event::Reshare { client, share: support::share(s) }),
                _ => {}
            }
            if policy.queue().is_empty() {
                continue;
            }
            run(&mut policy, 1);
            let counters: Vec<i64> = policy.queue().iter().map(|&c| policy.counter(c).unwrap()).collect();
            let breaks = counters.windows(2).filter(|pair| pair[1] > pair[0]).count();
            prop_assert!(breaks <= 1, "{counters:?}");
            prop_assert!(counters.iter().all(|&c| c >= 0), "{counters:?}");
            prop_assert_eq!(policy.counters_sum() * i128::from(Q.0), counters.iter().map(|&c| i128::from(c)).sum());
        }
    }

    /// Over clients that stay, the leads and lags against the queue's virtual time sum up to nothing, whatever parts of
    /// their quanta they use: share x virtual time is service, and all service is total x the queue's virtual time.
    #[test]
    fn virtual_lags_sum_to_zero(shares in shares(1_000), parts in vec(0..=2 * Q.0, 1..200)) {
        let mut policy = wfq::Wfq::new(wfq::WfqParams { quantum: Q, ..Default::default() }).unwrap();
        populate(&mut policy, &shares);
        for &used in &parts {
            finish_early(&mut policy, used);
        }
        let times = (0u32..).zip(&shares).map(|(id, &s)| policy.virtual_time(ClientId(id)).unwrap().service(s));
        let total: u64 = shares.iter().sum();
        prop_assert_eq!(times.sum::<u128>(), policy.queue_virtual_time().service(total));
        prop_assert_eq!(policy.queue_virtual_time().service(total), u128::from(parts.iter().sum::<u64>()));
    }

    /// A client that blocks and is back at once, as often as it likes, has not more than a quantum over what it would
    /// have had by staying; under VTRR, whose cycles end earlier for what it gives up, not more than its share.
    #[test]
    fn flapping_earns_nothing(shares in vec(1..20u64, 2..7), flaps in vec(any::<bool>(), 1..300)) {
        for name in ["wrr", "drr", "wfq heap", "wf2q", "stride", "vtrr strict", "vtrr classes"] {
            let [stays, flaps_] = [false, true].map(|may_flap| {
                let mut policy = dispatcher(name, 1);
                populate(policy.as_mut(), &shares);
                let client = ClientId(0);
                let mut quanta = 0u64;
                for &flap in &flaps {
                    if flap && may_flap {
                        send(policy.as_mut(), Event::Block { client });
                        send(policy.as_mut(), Event::Wake { client });
                    }
                    quanta += u64::from(finish_early(policy.as_mut(), Q.0) == client);
                }
                quanta
            });
            let allowed = if name.starts_with("vtrr") { shares[0].max(1) } else { 1 };
            prop_assert!(flaps_ <= stays + allowed, "{}: {} by flapping, {} by staying", name, flaps_, stays);
        }
    }
}

/// Shares 4 and 2: as published, the large one gets its counter raised to the other's each time that it is back, and
/// after its 4 quanta of the cycle it goes on for ever.
#[test]
fn vtrr_as_published_rewards_flapping() {
    for (name, served) in [("vtrr incremental", 0), ("vtrr strict", 20)] {
        let mut policy = dispatcher(name, 1);
        populate(policy.as_mut(), &[4, 2]);
        let mut other = 0;
        for _ in 0..60 {
            let client = ClientId(0);
            send(policy.as_mut(), Event::Block { client });
            send(policy.as_mut(), Event::Wake { client });
            other += usize::from(run(policy.as_mut(), 1)[0] == 1);
        }
        assert_eq!(other, served, "{name}");
    }
}

/// Stride keeps how far a client was behind when it slept, WFQ does not.
#[test]
fn stride_remembers_a_lag_across_sleep() {
    let after = |policy: &mut dyn Policy<Decision = Grant>| {
        populate(policy, &[2, 1, 1]);
        // A B .. : C, which has had nothing after two quanta, sleeps and is back after 40 more.
        run(policy, 2);
        send(policy, Event::Block { client: ClientId(2) });
        run(policy, 40);
        send(policy, Event::Wake { client: ClientId(2) });
        run(policy, 1)[0]
    };
    let mut stride = stride::Stride::new(stride::StrideParams { quantum: Q, ..Default::default() }).unwrap();
    assert_eq!(after(&mut stride), 2);
    let mut wfq = wfq::Wfq::new(wfq::WfqParams { quantum: Q, ..Default::default() }).unwrap();
    assert_eq!(after(&mut wfq), 0);
}

/// Two CPUs and a client that asks for more than one of them: nobody idles, nobody starves, and no debt outlives it.
#[test]
fn shares_beyond_a_cpu_leave_the_rest_to_the_others() {
    for (name, policy) in dispatchers(2).into_iter().filter(|&(name, _)| name != "rr") {
        let mut machine = Machine::new(name, policy, 2);
        for (client, share) in [(0, 18), (1, 1), (2, 1)] {
            machine.apply(Op::Join { client, share });
            machine.apply(Op::Wake { client });
        }
        for step in 0..4_000 {
            machine.apply(Op::Finish { cpu: step % 2, used: 16 });
        }
        let quanta: Vec<u64> = machine.service.iter().map(|ns| ns / Q.0).collect();
        if !name.starts_with("lottery") {
            assert!(quanta[0] >= 1_700, "{name}: {quanta:?}");
        }
        assert!(quanta[1] >= 800 && quanta[2] >= 800, "{name}: {quanta:?}");
        // The large one leaves: the others share what there is at once.
        machine.apply(Op::Leave { client: 0 });
        for step in 0..40 {
            machine.apply(Op::Finish { cpu: step % 2, used: 16 });
        }
        let later: Vec<u64> = machine.service.iter().map(|ns| ns / Q.0).collect();
        assert!((1..3).all(|c| later[c] - quanta[c] >= 15), "{name}: {quanta:?} {later:?}");
    }
}
