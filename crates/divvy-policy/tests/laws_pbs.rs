//! Laws of PBS and of the dispatchers that it is compared with, over random task sets.

mod common;

use std::collections::BTreeSet;

use common::{Dispatcher, Outcome, Step, Task, run};
use divvy_policy::dispatch::fixed::Fixed;
use divvy_policy::dispatch::pbs::{
    Alpha, Guard, Inactive, Pbs, PbsParams, Search, SecondTerm, Sessions, Threshold,
};
use divvy_policy::dispatch::{eevdf, fcfs, las, linux22, mlfb, rr};
use divvy_policy::{
    ClientId, CpuId, Event, EventError, Given, Grant, Instant, Nanos, Policy, RangeError, Share,
};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn ratio(num: i64, den: u64) -> Fixed {
    Fixed::ratio(num, den).unwrap()
}

fn study(alpha: Alpha, cpus: u32) -> PbsParams {
    PbsParams { alpha, guard: Guard::Study, quantum: Nanos(MS), cpus, ..PbsParams::default() }
}

fn pbs(params: PbsParams) -> Box<Dispatcher> {
    Box::new(Pbs::new(params).unwrap())
}

const BETA_3: Sessions =
    Sessions { threshold: Threshold::Multiple(Fixed::int(3)), inactive: Inactive::Excluded };

/// Every kind of PBS.
fn pbs_variants(cpus: u32) -> Vec<(&'static str, PbsParams)> {
    let half = study(Alpha::Finite(ratio(1, 2)), cpus);
    let second = SecondTerm { epsilon: ratio(7, 10), alpha: Fixed::ONE, sessions: Sessions::LIFETIME };
    vec![
        ("pbs 1", study(Alpha::Finite(Fixed::ONE), cpus)),
        ("pbs 1/2 beta -3", PbsParams { sessions: BETA_3, ..half }),
        (
            "pbs 1/2 beta 0",
            PbsParams {
                sessions: Sessions {
                    threshold: Threshold::Multiple(Fixed::ZERO),
                    inactive: Inactive::Counted,
                },
                ..half
            },
        ),
        ("pbs 2 gamma", PbsParams { gamma: ratio(7, 100), ..study(Alpha::Finite(Fixed::int(2)), cpus) }),
        ("pbs epsilon", PbsParams { sessions: BETA_3, second: Some(second), ..half }),
        ("pbs -1", study(Alpha::Finite(Fixed::int(-1)), cpus)),
        ("pbs 0", study(Alpha::Fcfs, cpus)),
        ("pbs inf", study(Alpha::Las, cpus)),
        ("pbs -0", study(Alpha::Plcfs, cpus)),
        (
            "pbs O(1)",
            PbsParams {
                search: Search::Sample { keep: 2, sample: 1 },
                ..study(Alpha::Finite(Fixed::ONE), cpus)
            },
        ),
        ("pbs O(1) wide", PbsParams { search: Search::Sample { keep: 3, sample: 2 }, ..half }),
    ]
}

/// Every dispatcher of this folder.
fn everyone(cpus: u32) -> Vec<(&'static str, Box<Dispatcher>)> {
    let mut all: Vec<(&'static str, Box<Dispatcher>)> =
        pbs_variants(cpus).into_iter().map(|(name, params)| (name, pbs(params))).collect();
    let (quantum, slice) = (Nanos(MS), Nanos(MS));
    for arrival in [fcfs::Arrival::Join, fcfs::Arrival::Wake] {
        all.push(("fcfs", Box::new(fcfs::Fcfs::new(fcfs::FcfsParams { arrival, cpus }).unwrap())));
    }
    for quanta in [rr::Quanta::Whole, rr::Quanta::Grid] {
        all.push(("rr", Box::new(rr::Rr::new(rr::RrParams { quantum, quanta, cpus }).unwrap())));
    }
    for since in [las::Since::Join, las::Since::Wake] {
        all.push(("las", Box::new(las::Las::new(las::LasParams { quantum, since, cpus }).unwrap())));
    }
    for on_wake in [mlfb::OnWake::Keep, mlfb::OnWake::Top] {
        let params = mlfb::MlfbParams { quantum, levels: 4, on_wake, cpus };
        all.push(("mlfb", Box::new(mlfb::Mlfb::new(params).unwrap())));
    }
    let params = linux22::Linux22Params { tick: Nanos(MS), ticks_per_share: 5, cpus };
    all.push(("linux-2.2", Box::new(linux22::Linux22::new(params).unwrap())));
    for preempt in [eevdf::Preempt::AtSlice, eevdf::Preempt::OnWake] {
        let params = eevdf::EevdfParams { slice, preempt, cpus };
        all.push(("eevdf", Box::new(eevdf::Eevdf::new(params).unwrap())));
    }
    all
}

fn arb_task() -> impl Strategy<Value = Task> {
    let run = 1_000..20 * MS;
    let pair = (1_000..10 * MS, 1_000..20 * MS);
    (0..30 * MS, 1u64..10, run, prop::collection::vec(pair, 0..5)).prop_map(|(create, share, first, rest)| {
        let mut program = vec![Step::Run(first)];
        program.extend(rest.into_iter().flat_map(|(sleep, run)| [Step::Sleep(sleep), Step::Run(run)]));
        Task { create, share, program }
    })
}

fn arb_tasks() -> impl Strategy<Value = Vec<Task>> {
    prop::collection::vec(arb_task(), 1..7).prop_map(|mut tasks| {
        // No two at one nanosecond.
        let mut taken = BTreeSet::new();
        for task in &mut tasks {
            while !taken.insert(task.create) {
                task.create += 1;
            }
        }
        tasks
    })
}

/// Passes everything on under other ids, and slips events in that must be refused.
struct Renamed {
    inner: Box<Dispatcher>,
    ids: Vec<u32>,
    nr_cpus: u32,
    disturb: bool,
}

impl Renamed {
    fn id(&self, client: ClientId) -> ClientId {
        ClientId(self.ids[client.index()])
    }

    fn disturb(&mut self, now: Instant, event: Event) {
        let stranger = ClientId(1_000_000);
        let cpu = CpuId(self.nr_cpus);
        let mut refused = |event, error| assert_eq!(self.inner.on_event(now, event), Err(error));
        refused(Event::Wake { client: stranger }, EventError::UnknownClient(stranger));
        refused(Event::Block { client: stranger }, EventError::UnknownClient(stranger));
        refused(Event::Leave { client: stranger }, EventError::UnknownClient(stranger));
        refused(Event::Reshare { client: stranger, share: Share::MAX }, EventError::UnknownClient(stranger));
        refused(Event::Charge { client: stranger, used: Nanos(1) }, EventError::UnknownClient(stranger));
        refused(Event::Width { client: stranger, cpus: 2 }, EventError::UnknownClient(stranger));
        refused(Event::Free { cpu }, EventError::UnknownCpu(cpu));
        if let Event::Charge { client, .. } = event {
            refused(Event::Join { client, share: Share::MAX }, EventError::DuplicateClient(client));
            refused(Event::Width { client, cpus: 0 }, EventError::ZeroWidth(client));
        }
    }
}

impl Policy for Renamed {
    type Decision = Grant;

    fn on_event(&mut self, now: Instant, event: Event) -> Result<(), EventError> {
        let event = match event {
            Event::Join { client, share } => Event::Join { client: self.id(client), share },
            Event::Leave { client } => Event::Leave { client: self.id(client) },
            Event::Reshare { client, share } => Event::Reshare { client: self.id(client), share },
            Event::Wake { client } => Event::Wake { client: self.id(client) },
            Event::Block { client } => Event::Block { client: self.id(client) },
            Event::Charge { client, used } => Event::Charge { client: self.id(client), used },
            Event::Width { client, cpus } => Event::Width { client: self.id(client), cpus },
            Event::Free { cpu } => Event::Free { cpu },
        };
        if self.disturb {
            self.disturb(now, event);
        }
        let done = self.inner.on_event(now, event);
        if let (true, Event::Leave { client }) = (self.disturb, event) {
            let again = Event::Join { client, share: Share::ONE };
            assert_eq!(self.inner.on_event(now, again), Err(EventError::DuplicateClient(client)));
            assert_eq!(self.inner.on_event(now, event), Err(EventError::UnknownClient(client)));
        }
        done
    }

    fn poll_decision(&mut self, now: Instant) -> Option<Grant> {
        let grant = self.inner.poll_decision(now)?;
        let client = self.ids.iter().position(|&id| id == grant.client.0).unwrap();
        Some(Grant { client: ClientId(client as u32), ..grant })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.inner.poll_timeout()
    }
}

fn check_same(name: &str, have: &Outcome, want: &Outcome) -> Result<(), TestCaseError> {
    let first = have.runs.iter().zip(&want.runs).position(|(a, b)| a != b);
    prop_assert!(
        have == want,
        "{}: runs part at {:?}: {:?}",
        name,
        first,
        first.map(|i| (have.runs[i], want.runs[i]))
    );
    Ok(())
}

/// As [`check_same`], but whose CPU is whose matters on one CPU only.
fn check_same_service(
    name: &str,
    cpus: u32,
    mut have: Outcome,
    mut want: Outcome,
) -> Result<(), TestCaseError> {
    if cpus > 1 {
        have.runs.clear();
        want.runs.clear();
    }
    check_same(name, &have, &want)
}

/// Longer than every task set takes.
const FOREVER: u64 = 10_000 * MS;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_cpu_idles_with_work(tasks in arb_tasks(), cpus in 1u32..4) {
        for (name, mut policy) in everyone(cpus) {
            let outcome = run(&mut *policy, &tasks, cpus as usize, FOREVER, 1);
            prop_assert_eq!(outcome.wasted, 0, "{}", name);
            prop_assert!(outcome.done.iter().all(Option::is_some), "{}: not everyone is done", name);
        }
    }

    #[test]
    fn a_split_charge_equals_the_whole(tasks in arb_tasks(), cpus in 1u32..3, pieces in 2u64..9) {
        for ((name, mut whole), (_, mut split)) in everyone(cpus).into_iter().zip(everyone(cpus)) {
            let want = run(&mut *whole, &tasks, cpus as usize, FOREVER, 1);
            check_same(name, &run(&mut *split, &tasks, cpus as usize, FOREVER, pieces), &want)?;
        }
    }

    /// Other ids in the same order change nothing for anyone. In the opposite order they change nothing where ties
    /// end before the id, which they do here: no two tasks are created at one nanosecond. The counters of linux-2.2,
    /// the deadlines of eevdf and the levels of mlfb tie for all that.
    #[test]
    fn renaming_permutes(tasks in arb_tasks(), cpus in 1u32..3) {
        for ((name, mut plain), (_, other)) in everyone(cpus).into_iter().zip(everyone(cpus)) {
            let want = run(&mut *plain, &tasks, cpus as usize, FOREVER, 1);
            let n = tasks.len() as u32;
            let backwards = !matches!(name, "linux-2.2" | "eevdf" | "mlfb");
            let ids = (0..n).map(|id| if backwards { 3 * (n - id) } else { 3 * id + 1 }).collect();
            let mut renamed = Renamed { inner: other, ids, nr_cpus: cpus, disturb: false };
            check_same(name, &run(&mut renamed, &tasks, cpus as usize, FOREVER, 1), &want)?;
        }
    }

    #[test]
    fn a_rejected_event_changes_nothing(tasks in arb_tasks(), cpus in 1u32..3) {
        for ((name, mut plain), (_, other)) in everyone(cpus).into_iter().zip(everyone(cpus)) {
            let want = run(&mut *plain, &tasks, cpus as usize, FOREVER, 1);
            let ids = (0..tasks.len() as u32).collect();
            let mut disturbed = Renamed { inner: other, ids, nr_cpus: cpus, disturb: true };
            check_same(name, &run(&mut disturbed, &tasks, cpus as usize, FOREVER, 1), &want)?;
        }
    }

    /// Section 2: all times times K add (1 - alpha) log2 K to every priority. Exact in our integers where K is a power of 2.
    #[test]
    fn stretched_time_changes_nothing(tasks in arb_tasks(), power in 1u32..6) {
        let k = 1u64 << power;
        let stretched: Vec<Task> = tasks.iter().map(|task| Task {
            create: task.create * k,
            share: task.share,
            program: task.program.iter().map(|step| match *step {
                Step::Run(length) => Step::Run(length * k),
                Step::Sleep(length) => Step::Sleep(length * k),
            }).collect(),
        }).collect();
        for (name, params) in pbs_variants(1) {
            let mut want = run(&mut *pbs(params), &tasks, 1, FOREVER, 1);
            for (from, to, ..) in &mut want.runs {
                (*from, *to) = (*from * k, *to * k);
            }
            want.done.iter_mut().flatten().chain(&mut want.ran).chain(want.ends.iter_mut().flatten()).for_each(|time| *time *= k);
            let params = PbsParams { quantum: Nanos(params.quantum.0 * k), ..params };
            check_same(name, &run(&mut *pbs(params), &stretched, 1, FOREVER * k, 1), &want)?;
        }
    }

    /// beta = +infinity and one moment of creation: every T is the same, so whatever alpha is, the least S / share runs.
    #[test]
    fn one_session_ever_forgets_alpha_when_all_is_equal(mut tasks in arb_tasks()) {
        tasks.iter_mut().for_each(|task| (task.create, task.share) = (7, 1 << (task.share % 4)));
        let want = run(&mut *pbs(study(Alpha::Finite(Fixed::ONE), 1)), &tasks, 1, FOREVER, 1);
        for alpha in [ratio(1, 2), Fixed::int(2), Fixed::int(4), Fixed::int(16)] {
            let outcome = run(&mut *pbs(study(Alpha::Finite(alpha), 1)), &tasks, 1, FOREVER, 1);
            check_same("pbs", &outcome, &want)?;
        }
    }

    /// On one CPU run by run; on several PBS moves clients from CPU to CPU at the grid, but serves the same ones.
    #[test]
    fn alpha_zero_is_fcfs(tasks in arb_tasks(), cpus in 1u32..3) {
        let new = |arrival| fcfs::Fcfs::new(fcfs::FcfsParams { arrival, cpus }).unwrap();
        let want = run(&mut new(fcfs::Arrival::Join), &tasks, cpus as usize, FOREVER, 1);
        let outcome = run(&mut *pbs(study(Alpha::Fcfs, cpus)), &tasks, cpus as usize, FOREVER, 1);
        check_same_service("beta +inf", cpus, outcome, want)?;

        let sessions = Sessions { threshold: Threshold::Multiple(Fixed::ZERO), inactive: Inactive::Counted };
        let want = run(&mut new(fcfs::Arrival::Wake), &tasks, cpus as usize, FOREVER, 1);
        let params = PbsParams { sessions, ..study(Alpha::Fcfs, cpus) };
        let outcome = run(&mut *pbs(params), &tasks, cpus as usize, FOREVER, 1);
        check_same_service("beta 0", cpus, outcome, want)?;
    }

    #[test]
    fn alpha_infinite_is_las(tasks in arb_tasks(), cpus in 1u32..3) {
        let new = |since| las::Las::new(las::LasParams { quantum: Nanos(MS), since, cpus }).unwrap();
        let want = run(&mut new(las::Since::Join), &tasks, cpus as usize, FOREVER, 1);
        let outcome = run(&mut *pbs(study(Alpha::Las, cpus)), &tasks, cpus as usize, FOREVER, 1);
        check_same("beta +inf", &outcome, &want)?;

        let sessions = Sessions { threshold: Threshold::Multiple(Fixed::ZERO), inactive: Inactive::Counted };
        let want = run(&mut new(las::Since::Wake), &tasks, cpus as usize, FOREVER, 1);
        let params = PbsParams { sessions, ..study(Alpha::Las, cpus) };
        check_same("beta 0", &run(&mut *pbs(params), &tasks, cpus as usize, FOREVER, 1), &want)?;
    }

    /// Any alpha above 0 is processor sharing between tasks that came together: services stay within a quantum.
    #[test]
    fn equal_arrivals_share_equally(n in 2usize..8, num in 1i64..64, quanta in 10u64..200) {
        let tasks = vec![Task::persistent(0, 1); n];
        let params = study(Alpha::Finite(ratio(num, 4)), 1);
        let outcome = run(&mut *pbs(params), &tasks, 1, quanta * MS, 1);
        let (least, most) = (outcome.ran.iter().min().unwrap(), outcome.ran.iter().max().unwrap());
        prop_assert!(most - least <= MS, "{:?}", outcome.ran);
    }

    /// The bound of the module's header, for tasks that never block: A + (n - 1) (q + K/k S 2^(1/alpha)).
    #[test]
    fn a_wait_is_bounded(
        tasks in prop::collection::vec((0u64..300 * MS, 1u64..9), 2..6),
        alpha in prop::sample::select(vec![(1, 16), (1, 4), (1, 2), (1, 1), (2, 1), (5, 1), (16, 1)]),
    ) {
        let tasks: Vec<_> = tasks.into_iter().map(|(create, share)| Task::persistent(create, share)).collect();
        let params = PbsParams { guard: Guard::StarvationFree, ..study(Alpha::Finite(ratio(alpha.0, alpha.1)), 1) };
        let until = 1_000 * MS;
        let outcome = run(&mut *pbs(params), &tasks, 1, until, 1);
        let born = tasks.iter().map(|t| t.create).min().unwrap();
        let largest = tasks.iter().map(|t| t.share).max().unwrap() as f64;
        let factor = (alpha.1 as f64 / alpha.0 as f64).exp2();
        for (id, task) in tasks.iter().enumerate() {
            let (mut since, mut service) = (task.create, 0);
            let mine = outcome.runs.iter().filter(|run| run.2 == id).map(|run| (run.0, run.1));
            for (from, to) in mine.chain([(until, until)]) {
                let waited = (from - since) as f64;
                let others = (tasks.len() - 1) as f64;
                let owed = largest / task.share as f64 * service as f64 * factor;
                let bound = (since - born) as f64 + others * (MS as f64 + owed);
                prop_assert!(waited <= bound * 1.000_001, "task {} waited {} of at most {}", id, waited, bound);
                (since, service) = (to, service + (to - from));
            }
        }
    }

    /// Theorem 1 of EEVDF: with requests of one slice, -slice < lag < slice, at every decision while nobody blocks.
    #[test]
    fn eevdf_lag_is_bounded(shares in prop::collection::vec(1u64..100, 1..8), decisions in 1u64..300) {
        let slice = Nanos(MS);
        let mut policy = eevdf::Eevdf::new(eevdf::EevdfParams { slice, ..eevdf::EevdfParams::default() }).unwrap();
        for (id, &share) in shares.iter().enumerate() {
            let client = ClientId(id as u32);
            policy.on_event(Instant(0), Event::Join { client, share: Share::new(share).unwrap() }).unwrap();
            policy.on_event(Instant(0), Event::Wake { client }).unwrap();
        }
        let mut now = Instant(0);
        let mut total = 0;
        for _ in 0..decisions {
            policy.on_event(now, Event::Free { cpu: CpuId(0) }).unwrap();
            let grant = policy.poll_decision(now).unwrap();
            now = now + grant.slice;
            policy.on_event(now, Event::Charge { client: grant.client, used: grant.slice }).unwrap();
            total += grant.slice.0;
            let lags: Vec<_> = (0..shares.len()).map(|id| policy.lag(ClientId(id as u32)).unwrap()).collect();
            prop_assert!(lags.iter().all(|lag| lag.unsigned_abs() <= MS + 1), "{:?}", lags);
            // Lags sum to 0, up to rounding down a nanosecond each.
            let sum: i64 = lags.iter().sum();
            prop_assert!((-(lags.len() as i64)..=0).contains(&sum), "{:?}", lags);
        }
        prop_assert_eq!(total, now.0);
    }

    #[test]
    fn rr_takes_turns(n in 1usize..8, quanta in 1u64..100) {
        let tasks = vec![Task::persistent(0, 1); n];
        let mut policy = rr::Rr::new(rr::RrParams { quantum: Nanos(MS), ..rr::RrParams::default() }).unwrap();
        let outcome = run(&mut policy, &tasks, 1, quanta * MS, 1);
        for (id, &ran) in outcome.ran.iter().enumerate() {
            prop_assert_eq!(ran, (quanta + (n - 1 - id) as u64) / n as u64 * MS);
        }
    }

    /// While services differ, only the least served run: those that were behind never get ahead by more than a quantum.
    #[test]
    fn las_keeps_services_together(creates in prop::collection::vec(0u64..20, 2..6)) {
        let tasks: Vec<_> = creates.iter().map(|&create| Task::persistent(create * MS, 1)).collect();
        let mut policy = las::Las::new(las::LasParams { quantum: Nanos(MS), ..las::LasParams::default() }).unwrap();
        let outcome = run(&mut policy, &tasks, 1, 500 * MS, 1);
        let (least, most) = (outcome.ran.iter().min().unwrap(), outcome.ran.iter().max().unwrap());
        prop_assert!(most - least <= MS, "{:?}", outcome.ran);
    }

    /// A level is left when its allotment is used up: with 1 ms doubling, services of 1, 3, 7 ms.
    #[test]
    fn mlfb_sinks_by_service(used in 0u64..20 * MS) {
        let params = mlfb::MlfbParams { quantum: Nanos(MS), levels: 4, ..mlfb::MlfbParams::default() };
        let mut policy = mlfb::Mlfb::new(params).unwrap();
        let client = ClientId(0);
        policy.on_event(Instant(0), Event::Join { client, share: Share::ONE }).unwrap();
        policy.on_event(Instant(0), Event::Charge { client, used: Nanos(used) }).unwrap();
        let level = [1, 3, 7].iter().filter(|&&bound| used >= bound * MS).count() as u32;
        prop_assert_eq!(policy.level(client), Some(level));
    }
}

/// VTRR, section 4: a priority of 20 ticks of 10 ms is a quantum of 21 ticks.
#[test]
fn linux22_runs_a_quantum_of_priority_plus_one_ticks() {
    let mut policy = linux22::Linux22::new(linux22::Linux22Params::default()).unwrap();
    let outcome = run(&mut policy, &[Task::persistent(0, 1), Task::persistent(0, 1)], 1, 840 * MS, 1);
    // 0 and 1 use theirs up; after the reset at 420 ms they tie, and who ran last goes on.
    assert_eq!(outcome.runs, [(0, 210 * MS, 0, 0), (210 * MS, 630 * MS, 1, 0), (630 * MS, 840 * MS, 0, 0)]);
    // At 420 and at 840 ms.
    assert_eq!(policy.resets(), 2);
}

/// A counter that is never used converges to twice the priority: 20, 30, 35, 37, 38, 39, 39.
#[test]
fn linux22_sleepers_gain_at_most_twice() {
    let mut policy = linux22::Linux22::new(linux22::Linux22Params::default()).unwrap();
    let sleeper = ClientId(1);
    policy.on_event(Instant(0), Event::Join { client: sleeper, share: Share::ONE }).unwrap();
    let mut counters = vec![policy.counter(sleeper).unwrap()];
    policy.on_event(Instant(0), Event::Join { client: ClientId(0), share: Share::ONE }).unwrap();
    policy.on_event(Instant(0), Event::Wake { client: ClientId(0) }).unwrap();
    let mut now = Instant(0);
    for _ in 0..6 {
        policy.on_event(now, Event::Free { cpu: CpuId(0) }).unwrap();
        let grant = policy.poll_decision(now).unwrap();
        now = now + grant.slice;
        policy.on_event(now, Event::Charge { client: grant.client, used: grant.slice }).unwrap();
        counters.push(policy.counter(sleeper).unwrap());
    }
    assert_eq!(counters, [20, 20, 30, 35, 37, 38, 39]);
}

/// Two clients of 1:1; one blocks 1 ms ahead or behind, sleeps a long time, and is owed the same when it is back.
#[test]
fn eevdf_sleep_keeps_lag() {
    let slice = Nanos(2 * MS);
    let mut policy =
        eevdf::Eevdf::new(eevdf::EevdfParams { slice, ..eevdf::EevdfParams::default() }).unwrap();
    let (a, b, at) = (ClientId(0), ClientId(1), Instant);
    for client in [a, b] {
        policy.on_event(at(0), Event::Join { client, share: Share::ONE }).unwrap();
        policy.on_event(at(0), Event::Wake { client }).unwrap();
    }
    // A runs for 2 ms: V = 1 ms, so B is owed 1 ms.
    policy.on_event(at(0), Event::Charge { client: a, used: slice }).unwrap();
    assert_eq!((policy.lag(a), policy.lag(b)), (Some(-(MS as i64)), Some(MS as i64)));
    policy.on_event(at(0), Event::Block { client: b }).unwrap();
    policy.on_event(at(0), Event::Charge { client: a, used: Nanos(100 * MS) }).unwrap();
    policy.on_event(at(1), Event::Wake { client: b }).unwrap();
    assert_eq!(policy.lag(b), Some(MS as i64));

    // B works that off and 1 ms more. Then it is in debt, stays in the average while it blocks, and its debt shrinks
    // only as A runs.
    policy.on_event(at(1), Event::Charge { client: b, used: Nanos(4 * MS) }).unwrap();
    assert_eq!(policy.lag(b), Some(-(MS as i64)));
    policy.on_event(at(1), Event::Block { client: b }).unwrap();
    policy.on_event(at(2), Event::Wake { client: b }).unwrap();
    assert_eq!(policy.lag(b), Some(-(MS as i64)));
    policy.on_event(at(2), Event::Block { client: b }).unwrap();
    policy.on_event(at(3), Event::Charge { client: a, used: Nanos(10 * MS) }).unwrap();
    // It would be owed 4 ms by now; a debtor's sleep earns nothing.
    policy.on_event(at(4), Event::Wake { client: b }).unwrap();
    assert_eq!(policy.lag(b), Some(0));
}

/// Shares act as delta = alpha log2 share: 1:2:4 get 1:2:4 of the CPU in the long run, at every alpha (eq. 6).
#[test]
fn shares_come_out_in_the_long_run() {
    for alpha in [ratio(1, 2), Fixed::ONE, Fixed::int(2), Fixed::int(8), Fixed::int(-2)] {
        for search in [Search::Scan, Search::Sample { keep: 2, sample: 2 }] {
            let params = PbsParams { search, ..study(Alpha::Finite(alpha), 1) };
            let tasks = [1, 2, 4].map(|share| Task::persistent(0, share));
            let outcome = run(&mut *pbs(params), &tasks, 1, 70_000 * MS, 1);
            for (ran, share) in outcome.ran.iter().zip([1, 2, 4]) {
                let want = 10_000 * MS * share;
                assert!(ran.abs_diff(want) <= want / 500, "alpha {alpha}: {:?}", outcome.ran);
            }
        }
    }
}

/// The first to block leaves its place in the list of the runnable to the last: of those that have had nothing the smallest id is next all the same.
#[test]
fn who_had_nothing_is_ordered_by_id_whoever_left() {
    let mut policy = Pbs::new(PbsParams::default()).expect("in range");
    let mut tell = |event| assert!(policy.on_event(Instant::ZERO, event).is_ok(), "{event:?}");
    for client in [0, 1, 2].map(ClientId) {
        tell(Event::Join { client, share: Share::ONE });
        tell(Event::Wake { client });
    }
    tell(Event::Block { client: ClientId(0) });
    tell(Event::Free { cpu: CpuId(0) });
    let next = policy.poll_decision(Instant::ZERO).map(|grant| grant.client);
    assert_eq!(next, Some(ClientId(1)));
}

/// Towards 0 from below the latest arrival runs to its end, and whom it interrupted goes on: a stack.
/// 0 is created at 0 with 10 ms, 1 at 3 ms with 5 ms, 2 at 4 ms with 2 ms: 2 ends at 6, 1 at 10, 0 at 17.
#[test]
fn alpha_zero_from_below_is_plcfs() {
    let task =
        |create: u64, run: u64| Task { create: create * MS, share: 1, program: vec![Step::Run(run * MS)] };
    let tasks = [task(0, 10), task(3, 5), task(4, 2)];
    for alpha in [Alpha::Plcfs, Alpha::Finite(Fixed(-(1 << 12)))] {
        let outcome = run(&mut *pbs(study(alpha, 1)), &tasks, 1, FOREVER, 1);
        assert_eq!(outcome.done, [17, 10, 6].map(|t| Some(t * MS)), "{alpha:?}");
    }
}

/// Alpha near its limits schedules Figure 2's tasks as the limits do, to a few quanta of 1 ms.
#[test]
fn the_limits_are_approached_from_both_sides() {
    let task =
        |create: u64, run: u64| Task { create: create * MS, share: 1, program: vec![Step::Run(run * MS)] };
    let tasks = [task(0, 4500), task(1000, 2500), task(3000, 3000), task(5000, 2000)];
    let done = |alpha| run(&mut *pbs(study(alpha, 1)), &tasks, 1, 20_000 * MS, 1).done;
    let near = |alpha, limit, quanta: u64| {
        for (have, want) in done(alpha).iter().zip(done(limit)) {
            assert!(have.unwrap().abs_diff(want.unwrap()) <= quanta * MS, "{alpha:?}: {:?}", done(alpha));
        }
    };
    near(Alpha::Finite(ratio(1, 1 << 20)), Alpha::Fcfs, 4);
    near(Alpha::Finite(Fixed::int(1024)), Alpha::Las, 8);
    near(Alpha::Finite(Fixed::int(-1024)), Alpha::Las, 8);
    assert_ne!(done(Alpha::Finite(Fixed::ONE)), done(Alpha::Las));
}

/// Eq. 5 with its missing factor: with n tasks, S of service and bonus gamma, a task runs for
/// n/(n-1) S (2^(gamma/alpha) - 1). Here n = 2, alpha = 2, gamma = 2 log2(1 + 1/40): a twentieth of S.
#[test]
fn the_bonus_lengthens_runs_in_proportion_to_service() {
    let gamma = Fixed((2.0 * (1.0f64 + 1.0 / 40.0).log2() * 4_294_967_296.0) as i64);
    let params = PbsParams { gamma, ..study(Alpha::Finite(Fixed::int(2)), 1) };
    let outcome = run(&mut *pbs(params), &vec![Task::persistent(0, 1); 2], 1, 60_000 * MS, 1);
    let mut service = [0u64; 2];
    for (from, to, task, _) in outcome.runs {
        let (ran, had) = (to - from, service[1 - task]);
        if had > 1000 * MS && to < 60_000 * MS {
            let ratio = ran as f64 / had as f64;
            assert!((ratio - 0.05).abs() < 0.005, "ran {ran} after {had}: {ratio}");
        }
        service[task] += ran;
    }
}

#[test]
fn impossible_parameters_are_named() {
    let ok = PbsParams::default();
    let outside = |params: PbsParams, name: &str, given: Given| match Pbs::new(params).unwrap_err() {
        RangeError::Outside { name: wrong, given: value, .. } => assert_eq!((wrong, value), (name, given)),
        other => panic!("{name}: {other:?}"),
    };
    let clash = |params: PbsParams, name: &str| {
        let error = Pbs::new(params).unwrap_err();
        assert!(matches!(error, RangeError::Clash { name: wrong, .. } if wrong == name), "{error:?}");
    };
    for alpha in [Fixed::ZERO, Fixed::int(-1), ratio(1, 17), Fixed::int(17)] {
        outside(PbsParams { alpha: Alpha::Finite(alpha), ..ok }, "alpha", alpha.into());
    }
    for limit in [Alpha::Fcfs, Alpha::Las, Alpha::Plcfs] {
        clash(PbsParams { alpha: limit, ..ok }, "alpha");
        assert!(Pbs::new(PbsParams { alpha: limit, guard: Guard::Study, ..ok }).is_ok());
    }
    for alpha in [Fixed::ZERO, Fixed::int(1025), Fixed::int(-1025)] {
        outside(PbsParams { alpha: Alpha::Finite(alpha), guard: Guard::Study, ..ok }, "alpha", alpha.into());
    }
    outside(PbsParams { quantum: Nanos::ZERO, ..ok }, "quantum", Nanos::ZERO.into());
    outside(PbsParams { gamma: Fixed(-1), ..ok }, "gamma", Fixed(-1).into());
    let beta = |beta| Sessions { threshold: Threshold::Multiple(beta), inactive: Inactive::Counted };
    outside(PbsParams { sessions: beta(Fixed(-1)), ..ok }, "beta", Fixed(-1).into());
    let second = SecondTerm { epsilon: Fixed::ONE, alpha: Fixed::ONE, sessions: Sessions::LIFETIME };
    let with = |second| PbsParams { second: Some(second), ..ok };
    outside(with(SecondTerm { epsilon: Fixed::int(65), ..second }), "epsilon", Fixed::int(65).into());
    outside(with(SecondTerm { sessions: beta(Fixed(-1)), ..second }), "beta2", Fixed(-1).into());
    clash(PbsParams { alpha: Alpha::Las, guard: Guard::Study, ..with(second) }, "epsilon");
    outside(PbsParams { search: Search::Sample { keep: 1, sample: 1 }, ..ok }, "keep", 1u32.into());
    outside(PbsParams { search: Search::Sample { keep: 2, sample: 0 }, ..ok }, "sample", 0u32.into());
    assert_eq!(Pbs::new(PbsParams { cpus: 0, ..ok }).unwrap_err(), RangeError::NoCpu);
    let quantum = rr::RrParams { quantum: Nanos::ZERO, ..rr::RrParams::default() };
    let error = rr::Rr::new(quantum).unwrap_err();
    assert_eq!(
        (error.name(), error.to_string().as_str()),
        ("quantum", "0 is out of range, expected 1ns to 1h")
    );
    let levels = mlfb::MlfbParams { levels: 0, ..mlfb::MlfbParams::default() };
    assert_eq!(mlfb::Mlfb::new(levels).unwrap_err().to_string(), "0 is out of range, expected 1 to 32");
}

/// The same share many times over many clients: what Algorithm 1 gives up against the scan, as a number.
#[test]
fn algorithm_1_stays_close_to_the_scan() {
    let tasks: Vec<_> = (0..50).map(|i| Task::persistent(i * 3 * MS, 1)).collect();
    for search in [Search::Sample { keep: 2, sample: 2 }, Search::Sample { keep: 4, sample: 4 }] {
        let params = PbsParams { search, ..study(Alpha::Finite(Fixed::ONE), 1) };
        let sampled = run(&mut *pbs(params), &tasks, 1, 50_000 * MS, 1);
        let scanned = run(&mut *pbs(study(Alpha::Finite(Fixed::ONE), 1)), &tasks, 1, 50_000 * MS, 1);
        for (a, b) in sampled.ran.iter().zip(&scanned.ran) {
            // A second each by then; at most 3% of it apart.
            assert!(a.abs_diff(*b) <= 30 * MS, "{search:?}: {a} against {b}");
        }
    }
}
