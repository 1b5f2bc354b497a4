//! The policies of `bpf/core.h`, compiled natively: the golden cases, and random ones beside divvy-policy.

mod native;

use std::sync::{Mutex, MutexGuard};

use divvy_kernel::policy::Kind;
use divvy_policy::dispatch::fixed::log2;
use divvy_policy::dispatch::lottery::{Lottery, LotteryParams};
use divvy_policy::dispatch::pbs::{Pbs, PbsParams};
use divvy_policy::dispatch::rng::SplitMix64;
use divvy_policy::dispatch::stride::{Stride, StrideParams};
use divvy_policy::dispatch::vtrr::{Rejoin, Vtrr, VtrrParams};
use divvy_policy::{ClientId, CpuId, Event, Grant, Instant, Nanos, Policy, Share};
use native::*;
use serde_json::Value;

/// The one state that there is, for one test at a time.
struct Core {
    quantum: u64,
    current: u32,
    now: u64,
    _only: MutexGuard<'static, ()>,
}

static ONLY: Mutex<()> = Mutex::new(());

#[expect(clippy::undocumented_unsafe_blocks, reason = "all take numbers, and the state is this test's alone")]
impl Core {
    fn new(kind: Kind, quantum: u64, seed: u64) -> Self {
        let only = ONLY.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        unsafe { dvn_start(kind as u32, quantum, seed, 1 << 32) };
        for (row, (log, reciprocal)) in (0..).zip(divvy_kernel::log_rows()) {
            unsafe { dvn_log_row(row, log, reciprocal) };
        }
        Self { quantum, current: NONE, now: 0, _only: only }
    }

    /// VTRR by the paper's own rule for whoever comes back in the same cycle, stride by its own global pass.
    fn published(self) -> Self {
        unsafe { dvn_as_published() };
        self
    }

    fn join(&mut self, id: u32, share: u64) {
        unsafe { dvn_join(id, share) };
    }

    fn wake(&mut self, id: u32) {
        unsafe { dvn_wake(id, self.now) };
    }

    fn block(&mut self, id: u32) {
        unsafe { dvn_block(id, id == self.current, self.now) };
        if id == self.current {
            self.current = NONE;
        }
    }

    fn reshare(&mut self, id: u32, share: u64) {
        unsafe { dvn_reshare(id, share) };
    }

    /// One decision: who ran goes back among the waiting.
    fn pick(&mut self) -> u32 {
        if self.current != NONE {
            unsafe { dvn_return(self.current) };
        }
        self.current = unsafe { dvn_pick(self.current, self.now) };
        self.current
    }

    fn charge(&mut self, id: u32, used: u64) {
        unsafe { dvn_charge(id, used) };
    }

    /// Whoever is chosen uses so much.
    fn turn(&mut self, used: u64) -> u32 {
        let id = self.pick();
        self.charge(id, used);
        id
    }

    fn run(&mut self, quanta: usize) -> Vec<u32> {
        (0..quanta).map(|_| self.turn(self.quantum)).collect()
    }

    fn queue(&self) -> Vec<u32> {
        let mut all = Vec::new();
        let mut at = unsafe { dvn_following(NONE) };
        while at != NONE {
            all.push(at);
            at = unsafe { dvn_following(at) };
        }
        all
    }

    fn counter(&self, id: u32) -> i64 {
        unsafe { dvn_counter(id) }
    }
}

fn golden(name: &str) -> Value {
    let path = format!("{}/../../golden/{name}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).expect("golden")).expect("JSON")
}

fn numbers(value: &Value) -> Vec<u64> {
    value.as_array().expect("a list").iter().map(|n| n.as_u64().expect("a number")).collect()
}

fn fnv1a64(ids: &[u32]) -> String {
    let step = |hash: u64, &id: &u32| (hash ^ u64::from(id)).wrapping_mul(0x100_0000_01b3);
    format!("{:016x}", ids.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

fn populate(core: &mut Core, shares: &[u64]) {
    for (id, &share) in (0..).zip(shares) {
        core.join(id, share);
        core.wake(id);
    }
}

#[test]
fn static_schedules_are_the_golden_ones() {
    let mut checked = 0;
    for case in golden("vtrr_static.json").as_array().expect("cases") {
        let kind = match case["algo"].as_str() {
            Some("vtrr") => Kind::Vtrr,
            // The kernel's stride starts as published and has exact strides.
            Some("stride") if case["params"] == serde_json::json!({}) => Kind::Stride,
            _ => continue,
        };
        let mut core = Core::new(kind, 1, 1);
        populate(&mut core, &numbers(&case["shares"]));
        let quanta = usize::try_from(case["quanta"].as_u64().expect("a number")).expect("few");
        assert_eq!(
            fnv1a64(&core.run(quanta)),
            case["seq_fnv1a64"].as_str().expect("a text"),
            "{}",
            case["id"]
        );
        checked += 1;
    }
    assert_eq!(checked, 23, "22 of VTRR and one of stride");
}

#[test]
fn draws_are_the_golden_ones() {
    for case in golden("lottery.json")["cases"].as_array().expect("cases") {
        let mut core = Core::new(Kind::Lottery, 1_000_000, case["seed"].as_u64().expect("a number"));
        populate(&mut core, &numbers(&case["shares"]));
        let drawn = core.run(usize::try_from(case["quanta"].as_u64().expect("a number")).expect("few"));
        assert_eq!(fnv1a64(&drawn), case["seq_fnv1a64"].as_str().expect("a text"), "{}", case["id"]);
    }
}

/// What all numbers up to 16 divide. Where shares and their sums do, no clock is ever rounded.
const UNIT: u64 = 720_720;

/// A quantum that every share and every sum of shares of a case divides.
fn quantum_of(case: &Value) -> u64 {
    let gcd = |mut a: u64, mut b: u64| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let mut shares = std::collections::BTreeMap::new();
    let mut runnable = std::collections::BTreeSet::new();
    let mut quantum = 1;
    for event in case["events"].as_array().expect("events") {
        let id = event[2].as_u64().expect("an id");
        shares.extend(event[3].as_u64().map(|share| (id, share)));
        match event[1].as_str().expect("an operation") {
            "new" | "wake" => _ = runnable.insert(id),
            "block" | "exit" => _ = runnable.remove(&id),
            _ => {}
        }
        let total: u64 = runnable.iter().map(|id| shares[id]).sum();
        // A change of share takes the client out in between.
        for number in [shares[&id], total.max(1), total.saturating_sub(shares[&id]).max(1)] {
            quantum = quantum / gcd(quantum, number) * number;
        }
    }
    quantum
}

#[test]
fn dynamic_schedules_are_the_golden_ones() {
    for case in golden("vtrr_dynamic.json").as_array().expect("cases") {
        let mut core = Core::new(Kind::Vtrr, quantum_of(case), 1).published();
        let mut events = case["events"].as_array().expect("events").iter().peekable();
        let mut sequence = Vec::new();
        let mut runnable = std::collections::BTreeSet::new();
        for t in 0..case["quanta"].as_u64().expect("a number") {
            while let Some(event) = events.next_if(|event| event[0] == t) {
                let id = u32::try_from(event[2].as_u64().expect("an id")).expect("small");
                let share = || event[3].as_u64().expect("a share");
                let operation = event[1].as_str().expect("an operation");
                match operation {
                    "create" | "new" => core.join(id, share()),
                    "share" => core.reshare(id, share()),
                    "wake" | "block" | "exit" => {}
                    other => panic!("operation {other}"),
                }
                if matches!(operation, "new" | "wake") && runnable.insert(id) {
                    core.wake(id);
                }
                if matches!(operation, "block" | "exit") && runnable.remove(&id) {
                    core.block(id);
                }
            }
            let id = core.pick();
            sequence.push(if id == NONE { Value::Null } else { id.into() });
            if id != NONE {
                core.charge(id, core.quantum);
            }
        }
        let first = sequence
            .iter()
            .zip(case["seq"].as_array().expect("a list"))
            .position(|(have, want)| have != want);
        assert_eq!(first, None, "{}: the first that differs", case["id"]);
        let queue: Vec<u64> = core.queue().into_iter().map(u64::from).collect();
        assert_eq!(queue, numbers(&case["final"]["queue"]), "{}", case["id"]);
        for (id, want) in case["final"]["counter"].as_object().expect("counters") {
            let have = core.counter(id.parse().expect("an id"));
            assert_eq!(
                have,
                want.as_i64().expect("a number") * i64::try_from(core.quantum).expect("small"),
                "{}: {id}",
                case["id"]
            );
        }
    }
}

/// A policy of divvy-policy, driven in the same way.
struct Model<P> {
    policy: P,
    runnable: Vec<bool>,
    now: Instant,
}

impl<P: Policy<Decision = Grant>> Model<P> {
    fn send(&mut self, event: Event) {
        assert!(self.policy.on_event(self.now, event).is_ok(), "{event:?}");
    }

    fn pick(&mut self) -> u32 {
        self.send(Event::Free { cpu: CpuId(0) });
        self.policy.poll_decision(self.now).map_or(NONE, |grant| grant.client.0)
    }
}

/// Random clients that wake and block, charged whole and partial quanta: the same choices throughout.
fn check_beside<P: Policy<Decision = Grant>>(kind: Kind, published: bool, make: impl Fn(u64) -> P) {
    for seed in 1..=100 {
        let mut random = SplitMix64::new(seed);
        let mut below = |n: u64| random.below(n);
        let clients = 1 + below(4);
        let core = Core::new(kind, QUANTUM, seed);
        let mut core = if published { core.published() } else { core };
        let mut model = Model { policy: make(seed), runnable: Vec::new(), now: Instant::ZERO };
        for id in 0..clients {
            let (client, share) = (u32::try_from(id).expect("small"), 1 + below(4));
            core.join(client, share);
            model.send(Event::Join { client: ClientId(client), share: Share::new(share).expect("positive") });
            model.runnable.push(false);
        }
        for step in 0..2_000 {
            if below(4) == 0 {
                let id = below(clients);
                let (client, runnable) =
                    (ClientId(u32::try_from(id).expect("small")), model.runnable[id as usize]);
                if runnable {
                    core.block(client.0);
                    model.send(Event::Block { client });
                } else {
                    core.wake(client.0);
                    model.send(Event::Wake { client });
                }
                model.runnable[id as usize] = !runnable;
            }
            let (have, want) = (core.pick(), model.pick());
            assert_eq!(have, want, "seed {seed}, step {step}");
            if want != NONE {
                let used = if below(3) == 0 { UNIT * (1 + below(16)) } else { QUANTUM };
                core.charge(want, used);
                model.send(Event::Charge { client: ClientId(want), used: Nanos(used) });
            }
        }
    }
}

const QUANTUM: u64 = 16 * UNIT;

#[test]
fn stride_chooses_as_divvy_policy_does() {
    let make =
        |_| Stride::new(StrideParams { quantum: Nanos(QUANTUM), ..Default::default() }).expect("in range");
    check_beside(Kind::Stride, true, make);
}

#[test]
fn vtrr_chooses_as_divvy_policy_does() {
    for (published, rejoin) in [(true, Rejoin::Paper), (false, Rejoin::Strict)] {
        let params = VtrrParams { quantum: Nanos(QUANTUM), rejoin, ..Default::default() };
        check_beside(Kind::Vtrr, published, |_| Vtrr::new(params).expect("in range"));
    }
}

/// A client that leaves now and then, for some quanta or for no time at all, has no more than its part of what all had, which it would
/// have had if it had stayed: by two quanta at most, one of them its last.
#[test]
fn leaving_and_coming_back_gains_nothing() {
    for kind in [Kind::Stride, Kind::Vtrr] {
        for seed in 1..=100 {
            let mut random = SplitMix64::new(seed);
            let shares: Vec<u64> = (0..2 + random.below(4)).map(|_| 1 + random.below(4)).collect();
            let mut core = Core::new(kind, QUANTUM, seed);
            populate(&mut core, &shares);
            let (longest, mut is_there, mut left) = (1 + random.below(6), true, 1 + random.below(8));
            let (mut all, mut mine) = (0, 0);
            for _ in 0..3_000 {
                if left == 0 && is_there {
                    core.block(0);
                    left = random.below(longest);
                    is_there = false;
                }
                if left == 0 && !is_there {
                    core.wake(0);
                    left = 1 + random.below(8);
                    is_there = true;
                }
                left -= 1;
                let id = core.pick();
                let used = if random.below(3) == 0 { 1 + random.below(QUANTUM) } else { QUANTUM };
                core.charge(id, used);
                all += used;
                mine += if id == 0 { used } else { 0 };
            }
            let total: u64 = shares.iter().sum();
            assert!(mine <= all * shares[0] / total + 2 * QUANTUM, "{kind:?}, seed {seed}: {mine} of {all}");
        }
    }
}

/// One of a large share wakes again and again, waits for a turn of another's to end, and needs little: it is owed nearly all of that, each time.
/// Whoever is new, or has another share from then on, has no more by it, and no less.
#[test]
fn what_a_sleeper_is_owed_is_nobodys_debt() {
    const SLEEPER: u32 = 2;
    for kind in [Kind::Stride, Kind::Vtrr] {
        let mut core = Core::new(kind, QUANTUM, 1);
        populate(&mut core, &[1, 3, 100]);
        for _ in 0..1_000 {
            core.block(SLEEPER);
            core.run(5);
            let computing = core.pick();
            core.wake(SLEEPER);
            core.charge(computing, QUANTUM);
            while core.turn(QUANTUM / 16) != SLEEPER {}
        }
        core.block(SLEEPER);
        let check = |core: &mut Core, shares: &[u64]| {
            const ROUNDS: u64 = 10;
            let total: u64 = shares.iter().sum();
            let mut got = vec![0_u64; shares.len()];
            (0..ROUNDS * total).for_each(|_| got[core.turn(QUANTUM) as usize] += 1);
            for (got, share) in got.into_iter().zip(shares) {
                let due = ROUNDS * share;
                assert!(got.abs_diff(due) <= 2, "{kind:?}, shares {shares:?}: {got} turns of {due}");
            }
        };
        check(&mut core, &[1, 3]);
        core.reshare(0, 3);
        core.reshare(1, 1);
        check(&mut core, &[3, 1]);
        core.join(3, 2);
        core.wake(3);
        check(&mut core, &[3, 1, 0, 2]);
    }
}

/// The same on two CPUs, under stride: whoever sleeps for no time after each turn has no more than its part, and no less.
#[test]
#[expect(clippy::undocumented_unsafe_blocks, reason = "all take numbers, and the state is this test's alone")]
fn on_two_cpus_a_sleep_of_no_length_changes_nothing() {
    let shares = [4, 3, 2, 1, 1, 1];
    let total: u64 = shares.iter().sum();
    for sleeper in 0..shares.len() as u32 {
        let mut core = Core::new(Kind::Stride, QUANTUM, 1);
        unsafe { dvn_cpus(2) };
        populate(&mut core, &shares);
        let mut random = SplitMix64::new(u64::from(sleeper));
        let (mut got, mut all) = ([0; 6], 0);
        for _ in 0..6_000 {
            let both = [(); 2].map(|()| unsafe { dvn_pick(NONE, 0) });
            for id in both {
                let used = 1 + random.below(QUANTUM);
                core.charge(id, used);
                got[id as usize] += used;
                all += used;
                unsafe { dvn_return(id) };
            }
            core.block(sleeper);
            core.wake(sleeper);
        }
        for (got, share) in got.into_iter().zip(shares) {
            let due = all * share / total;
            assert!(got.abs_diff(due) <= 3 * QUANTUM, "{sleeper} sleeps, share {share}: {got} of {due}");
        }
    }
}

/// On two CPUs: a client of a small share has one of them while all others together can use one alone, and then they can use both. Its lead
/// is forgotten but for some quanta, so that it waits for less than the kernel's watchdog does.
#[test]
#[expect(clippy::undocumented_unsafe_blocks, reason = "all take numbers, and the state is this test's alone")]
fn a_lead_that_others_left_is_not_paid_for() {
    const SMALL: u32 = 1;
    for kind in [Kind::Stride, Kind::Vtrr] {
        let mut core = Core::new(kind, 20_000_000, 1);
        unsafe { dvn_cpus(2) };
        populate(&mut core, &[100, 1, 7]);
        unsafe { dvn_block(2, false, 0) };
        // Two CPUs for two clients of one task, for half a second.
        assert!(
            [0, SMALL].contains(&core.pick()) && [0, SMALL].contains(&unsafe { dvn_pick(NONE, 0) }),
            "{kind:?}"
        );
        for _ in 0..25 {
            for id in [0, SMALL] {
                core.charge(id, core.quantum);
            }
        }
        for id in [0, SMALL] {
            unsafe { dvn_return(id) };
        }
        core.current = NONE;
        core.wake(2);
        // Now the others can use both: each has two tasks. In turns of both CPUs, until it has one.
        let mut turns = 0;
        loop {
            let both = [(); 2].map(|()| {
                let id = unsafe { dvn_pick(NONE, 0) };
                unsafe { dvn_return(id) };
                id
            });
            if both.contains(&SMALL) {
                break;
            }
            both.into_iter().for_each(|id| core.charge(id, core.quantum));
            turns += 1;
            assert!(turns < 20 * 50, "{kind:?}: nothing for 20 s");
        }
    }
}

/// On two CPUs: clients come, wait for a CPU that they do not get, and end, each with a lag. It is nobody's lead afterwards: by the bound on
/// leads the largest share would get more than its part, since its bound is the shortest.
#[test]
#[expect(clippy::undocumented_unsafe_blocks, reason = "all take numbers, and the state is this test's alone")]
fn what_others_left_behind_changes_no_parts() {
    let shares = [1, 2, 3, 2];
    let mut core = Core::new(Kind::Stride, QUANTUM, 1);
    unsafe { dvn_cpus(2) };
    populate(&mut core, &shares);
    let turn = |core: &mut Core, got: &mut [u64; 4]| {
        let both = [(); 2].map(|()| unsafe { dvn_pick(NONE, 0) });
        for id in both {
            core.charge(id, QUANTUM);
            got[id as usize] += 1;
            unsafe { dvn_return(id) };
        }
    };
    let mut got = [0; 4];
    for stranger in 4..204 {
        core.join(stranger, 8);
        core.wake(stranger);
        let hidden = unsafe { dvn_hide(stranger, 0) };
        (0..4).for_each(|_| turn(&mut core, &mut got));
        assert_eq!(unsafe { dvn_show(hidden) }, 0);
        core.block(stranger);
    }
    for (got, share) in got.into_iter().zip(shares) {
        assert!(got.abs_diff(200 * share) <= 2, "{got} of {}", 200 * share);
    }
}

/// A turn that is cut short in its first half goes on; and two tasks of a client have one client's turns, whichever of them waits.
#[test]
#[expect(clippy::undocumented_unsafe_blocks, reason = "takes numbers, and the state is this test's alone")]
fn under_rr_turns_are_the_clients_and_whole() {
    let mut core = Core::new(Kind::Rr, QUANTUM, 1);
    populate(&mut core, &[1, 1]);
    unsafe { dvn_return(0) };
    assert_eq!(core.run(6), [0, 1, 0, 1, 0, 1]);
    drop(core);
    let mut core = Core::new(Kind::Rr, QUANTUM, 1);
    populate(&mut core, &[1, 1, 1]);
    assert_eq!(core.pick(), 0);
    core.charge(0, QUANTUM / 4);
    assert_eq!(core.run(4), [0, 1, 2, 0]);
    // Cut in its second half it is over, and the next ones are as much longer.
    assert_eq!(core.pick(), 1);
    core.charge(1, QUANTUM * 3 / 4);
    assert_eq!(core.run(2), [2, 0]);
    // Who falls asleep begins anew.
    assert_eq!(core.pick(), 1);
    core.charge(1, QUANTUM / 4);
    core.block(1);
    core.wake(1);
    assert_eq!(core.run(3), [2, 0, 1]);
}

#[test]
fn lottery_draws_as_divvy_policy_does() {
    let make = |seed| {
        Lottery::new(LotteryParams { quantum: Nanos(QUANTUM), seed, ..Default::default() }).expect("in range")
    };
    check_beside(Kind::Lottery, false, make);
}

/// One that had the CPU for a minute while nobody else wanted it, without ever being chosen, has its part once another comes; and it is chosen
/// while it waits alone.
#[test]
fn a_lottery_forgets_what_nobody_else_wanted() {
    let mut core = Core::new(Kind::Lottery, QUANTUM, 7);
    populate(&mut core, &[1, 1]);
    core.block(1);
    (0..100_000).for_each(|_| core.charge(0, QUANTUM));
    assert_eq!(core.pick(), 0);
    (0..100_000).for_each(|_| core.charge(0, QUANTUM));
    core.wake(1);
    let draws = 1_000;
    let mine = core.run(draws).into_iter().filter(|&id| id == 0).count();
    // Three standard deviations of a half, and what the first draws had less of it.
    assert!(mine.abs_diff(draws / 2) <= 50, "{mine} of {draws}");
}

/// Clients that sleep for random times, by every kind of beta, with and without a bonus: the same choices throughout.
#[test]
#[expect(clippy::undocumented_unsafe_blocks, reason = "takes numbers, and the state is this test's alone")]
fn pbs_chooses_as_divvy_policy_does() {
    for parameters in [
        "beta=inf",
        "beta=-inf",
        "beta=0",
        "beta=3",
        "beta=-3,gamma=0.07",
        "beta=-0.5,gamma=0.3",
        "gamma=0.5",
    ] {
        for seed in 1..=30 {
            let mut random = SplitMix64::new(seed);
            let clients = 2 + u32::try_from(random.below(4)).expect("small");
            let policy: divvy_kernel::policy::Policy =
                format!("pbs:quantum=4ms,{parameters}").parse().expect("a policy");
            let mut core = Core::new(Kind::Pbs, policy.quantum, seed);
            unsafe { dvn_sessions(policy.beta(), policy.excludes_sleep(), policy.gamma.0) };
            let params = PbsParams {
                sessions: policy.sessions,
                gamma: policy.gamma,
                quantum: Nanos(policy.quantum),
                ..PbsParams::default()
            };
            let mut model = Model {
                policy: Pbs::new(params).expect("in range"),
                runnable: Vec::new(),
                now: Instant::ZERO,
            };
            for id in 0..clients {
                let share = 1 + random.below(4);
                core.join(id, share);
                model.send(Event::Join { client: ClientId(id), share: Share::new(share).expect("positive") });
                model.send(Event::Wake { client: ClientId(id) });
                core.wake(id);
                model.runnable.push(true);
            }
            for step in 0..2_000 {
                if random.below(3) == 0 {
                    let client = ClientId(u32::try_from(random.below(u64::from(clients))).expect("small"));
                    let runnable = &mut model.runnable[client.index()];
                    *runnable = !*runnable;
                    if *runnable {
                        core.wake(client.0);
                        model.send(Event::Wake { client });
                    } else {
                        core.block(client.0);
                        model.send(Event::Block { client });
                    }
                }
                let (have, want) = (core.pick(), model.pick());
                assert_eq!(have, want, "{parameters}, seed {seed}, step {step}");
                let used = policy.quantum - random.below(2) * random.below(policy.quantum);
                (core.now, model.now) = (core.now + used, model.now + Nanos(used));
                if want != NONE {
                    core.charge(want, used);
                    model.send(Event::Charge { client: ClientId(want), used: Nanos(used) });
                }
            }
        }
    }
}

#[test]
#[expect(clippy::undocumented_unsafe_blocks, reason = "takes and returns a number")]
fn logarithms_are_those_of_divvy_policy() {
    let _core = Core::new(Kind::Pbs, QUANTUM, 1);
    let mut random = SplitMix64::new(7);
    let edges = (0..64).flat_map(|bit| [1_u64 << bit, (1 << bit) - 1, (1 << bit) | 1]);
    let many = std::iter::repeat_with(|| random.next_u64() >> (random.next_u64() & 63)).take(200_000);
    for x in edges.chain(many).collect::<Vec<_>>() {
        assert_eq!(unsafe { dvn_log2(x) }, log2(x).0, "log2({x})");
    }
}

/// One that is left out for a moment, because nobody of it may run on a CPU, comes back as it was.
#[test]
#[expect(clippy::undocumented_unsafe_blocks, reason = "all take numbers, and the state is this test's alone")]
fn whoever_is_left_out_comes_back() {
    for kind in [Kind::Stride, Kind::Vtrr, Kind::Lottery, Kind::Pbs, Kind::Las, Kind::Fcfs, Kind::Rr] {
        let mut core = Core::new(kind, QUANTUM, 1);
        populate(&mut core, &[3, 2]);
        let hidden = unsafe { dvn_hide(0, 0) };
        assert_eq!(core.run(5), [1; 5], "{kind:?}");
        unsafe { dvn_hide(1, 0) };
        core.current = NONE;
        assert_eq!(core.pick(), NONE, "{kind:?}");
        unsafe { dvn_show(hidden) };
        assert_eq!(core.pick(), 0, "{kind:?}");
    }
}

/// Two CPUs leave clients out at a time, and one of them the same as the other, for it had more that wait meanwhile: all come back.
#[test]
#[expect(clippy::undocumented_unsafe_blocks, reason = "all take numbers, and the state is this test's alone")]
fn whoever_two_leave_out_comes_back() {
    for kind in [Kind::Stride, Kind::Vtrr, Kind::Lottery, Kind::Pbs, Kind::Las, Kind::Fcfs, Kind::Rr] {
        for one_is_first in [true, false] {
            let mut core = Core::new(kind, QUANTUM, 1);
            populate(&mut core, &[3, 2, 1, 1]);
            let show_all = |mut list: u32| {
                while list > 0 {
                    list = unsafe { dvn_show(list) };
                }
            };
            let one = [0, 1, 2].into_iter().fold(0, |list, id| unsafe { dvn_hide(id, list) });
            unsafe { dvn_return(1) };
            let other = [1, 3].into_iter().fold(0, |list, id| unsafe { dvn_hide(id, list) });
            core.current = NONE;
            assert_eq!(core.pick(), NONE, "{kind:?}");
            show_all(if one_is_first { one } else { other });
            show_all(if one_is_first { other } else { one });
            let mut all = [(); 6].map(|()| unsafe { dvn_pick(NONE, 0) });
            all.sort_unstable();
            assert_eq!(all, [0, 1, 1, 2, 3, NONE], "{kind:?}");
        }
    }
}
