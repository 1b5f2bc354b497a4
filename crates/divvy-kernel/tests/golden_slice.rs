//! PBS, LAS and FCFS of `bpf/core.h`, compiled natively, on the machine of divvy-policy's own tests: the recorded schedules of
//! `golden/pbs_slice.json`, and random tasks beside divvy-policy.

#[path = "../../divvy-policy/tests/common/mod.rs"]
mod common;
mod native;

use std::sync::{Mutex, MutexGuard};

use common::{Outcome, Step, Task, run};
use divvy_kernel::policy::{Kind, Policy as Named};
use divvy_policy::dispatch::fcfs::{Fcfs, FcfsParams};
use divvy_policy::dispatch::las::{Las, LasParams};
use divvy_policy::dispatch::rng::SplitMix64;
use divvy_policy::{ClientId, CpuId, Event, EventError, Grant, Instant, Nanos, Policy};
use native::*;
use serde_json::Value;

/// Nanoseconds in the unit of `pbs_slice.json`.
const US: u64 = 1_000;
const QUANTUM: u64 = 4_000_000;

/// The one state that there is, for one test at a time.
static ONLY: Mutex<()> = Mutex::new(());

/// One CPU that asks `core.h` when a slice ends, when its client sleeps, and when another wakes: whoever is first then has the CPU, the one that
/// woke or a third. (The scheduler makes way for the one that woke alone.) Slices end on multiples of the quantum, as in the recorded schedules.
struct Native {
    quantum: u64,
    /// Who is on the CPU.
    current: u32,
    /// Who was on it last; nobody once that one sleeps.
    last: u32,
    asks: bool,
    woken: Vec<u32>,
    _only: MutexGuard<'static, ()>,
}

/// Client 0 of `core.h` came before all: nobody of the tests is that one.
fn known(client: ClientId) -> u32 {
    client.0 + 1
}

#[expect(clippy::undocumented_unsafe_blocks, reason = "all take numbers, and the state is this test's alone")]
impl Native {
    fn new(policy: &Named) -> Self {
        let only = ONLY.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let alpha = u64::try_from(policy.alpha.0).expect("not negative");
        unsafe {
            dvn_start(policy.kind as u32, policy.quantum, policy.seed, alpha);
            dvn_sessions(policy.beta(), policy.excludes_sleep(), policy.gamma.0);
        }
        for (row, (log, reciprocal)) in (0..).zip(divvy_kernel::log_rows()) {
            unsafe { dvn_log_row(row, log, reciprocal) };
        }
        Self {
            quantum: policy.quantum,
            current: NONE,
            last: NONE,
            asks: false,
            woken: Vec::new(),
            _only: only,
        }
    }

    /// Whoever has the CPU waits again.
    fn put_back(&mut self) {
        if self.current != NONE {
            unsafe { dvn_return(self.current) };
            self.current = NONE;
        }
    }

    fn sleeps(&mut self, id: u32, now: u64) {
        let busy = id == self.current;
        unsafe { dvn_block(id, busy, now) };
        if busy {
            (self.current, self.last) = (NONE, NONE);
        }
    }
}

#[expect(clippy::undocumented_unsafe_blocks, reason = "all take numbers, and the state is this test's alone")]
impl Policy for Native {
    type Decision = Grant;

    fn on_event(&mut self, Instant(now): Instant, event: Event) -> Result<(), EventError> {
        match event {
            Event::Join { client, share } => unsafe { dvn_join(known(client), share.get()) },
            Event::Wake { client } => {
                unsafe { dvn_wake(known(client), now) };
                self.woken.push(known(client));
            }
            Event::Block { client } | Event::Leave { client } => self.sleeps(known(client), now),
            Event::Charge { client, used } => unsafe { dvn_charge(known(client), used.0) },
            Event::Reshare { client, share } => unsafe { dvn_reshare(known(client), share.get()) },
            Event::Free { .. } => {
                self.put_back();
                self.asks = true;
            }
            event => panic!("{event:?}: the machine of these tests sends no such event"),
        }
        Ok(())
    }

    fn poll_decision(&mut self, Instant(now): Instant) -> Option<Grant> {
        let woken = std::mem::take(&mut self.woken);
        if !self.asks && (woken.is_empty() || self.current == NONE) {
            return None;
        }
        let (current, asked) = (self.current, self.asks);
        let preempts = !asked && woken.into_iter().any(|id| unsafe { dvn_preempts(id, current, now) });
        self.put_back();
        let id = unsafe { dvn_pick(self.last, now) };
        if id == NONE {
            return None;
        }
        (self.current, self.last, self.asks) = (id, id, false);
        if !asked && id == current {
            assert!(!preempts, "{now}: {id} makes way for one that woke, and would be chosen");
            return None;
        }
        let slice = Nanos(self.quantum - now % self.quantum);
        Some(Grant { cpu: CpuId(0), client: ClientId(id - 1), slice })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// The policy of a recorded case; none of it where `core.h` has no such parameter: the O(1) search, the second term.
fn named(parameters: &Value) -> Option<Named> {
    if !parameters["algorithm"].is_null() || !parameters["eps"].is_null() {
        return None;
    }
    let quantum = format!("quantum={}us", parameters["q"]);
    if parameters["alpha"] == "inf" {
        return Some(format!("las:{quantum}").parse().expect("a policy"));
    }
    let mut text = format!("pbs:{quantum},alpha={}", parameters["alpha"]);
    if let Some(sign) = parameters["sign"].as_str() {
        let beta = parameters["beta"].to_string();
        text += &format!(",beta={}{}", sign.trim_start_matches('+'), beta.trim_matches('"'));
    }
    if !parameters["gamma"].is_null() {
        text += &format!(",gamma={}", parameters["gamma"]);
    }
    Some(text.parse().expect("a policy"))
}

fn tasks(case: &Value) -> Vec<Task> {
    let number = |value: &Value| value.as_u64().expect("a number");
    let step = |step: &Value| {
        let length = number(&step[1]) * US;
        if step[0] == "run" { Step::Run(length) } else { Step::Sleep(length) }
    };
    let list = |value: &Value| value.as_array().expect("a list").clone();
    let task = |task: &Value| Task {
        create: number(&task["create"]) * US,
        // delta = alpha log2(share): 0, and 1 where alpha is.
        share: if task["delta"] == 0.0 { 1 } else { 2 },
        program: list(&task["program"]).iter().map(step).collect(),
    };
    list(&case["tasks"]).iter().map(task).collect()
}

/// FNV-1a over the start, end and task of every run, one step a number, in microseconds.
fn fingerprint(outcome: &Outcome) -> String {
    let numbers = outcome.runs.iter().flat_map(|&(from, to, task, _)| [from / US, to / US, task as u64]);
    let hash = numbers.fold(0xcbf2_9ce4_8422_2325_u64, |h, x| (h ^ x).wrapping_mul(0x100_0000_01b3));
    format!("{hash:016x}")
}

fn check(policy: &Named, case: &Value) {
    let id = format!("{} by {policy}", case["id"]);
    let until = case["t_end"].as_u64().expect("a number") * US;
    let outcome = run(&mut Native::new(policy), &tasks(case), 1, until, 1);
    for (at, want) in case["run_log_first"].as_array().expect("a list").iter().enumerate() {
        let (from, to, task, _) = outcome.runs[at];
        let have = [from / US, to / US, task as u64].map(Value::from).to_vec();
        assert_eq!(have, *want.as_array().expect("a list"), "{id}: run {at}");
    }
    assert_eq!(outcome.runs.len() as u64, case["n_runs"].as_u64().expect("a number"), "{id}: runs");
    assert_eq!(fingerprint(&outcome), case["run_log_fnv"].as_str().expect("a text"), "{id}: run log");
    assert_eq!(outcome.wasted, 0, "{id}: idle with work");
}

#[test]
fn schedules_of_pbs_are_the_golden_ones() {
    let path = format!("{}/../../golden/pbs_slice.json", env!("CARGO_MANIFEST_DIR"));
    let cases: Vec<Value> =
        serde_json::from_str(&std::fs::read_to_string(path).expect("golden")).expect("JSON");
    let mut checked = 0;
    for case in &cases {
        let Some(policy) = named(&case["params"]) else { continue };
        check(&policy, case);
        checked += 1;
        if case["params"]["alpha"] == 0 {
            // What PBS is with an alpha of 0 (section 2).
            check(&Named { kind: Kind::Fcfs, ..policy }, case);
        }
    }
    assert_eq!(checked, 12, "of {}; two have the O(1) search, one a second term", cases.len());
}

/// Tasks that come one after another, and run and sleep for times by chance.
fn random_tasks(seed: u64, sleeps: bool) -> Vec<Task> {
    let mut random = SplitMix64::new(seed);
    let mut create = 0;
    let mut task = |_| {
        create += 1 + random.below(20 * QUANTUM);
        let mut program = vec![Step::Run(1 + random.below(40 * QUANTUM))];
        for _ in 0..if sleeps { random.below(12) } else { 0 } {
            program.push(Step::Sleep(1 + random.below(5 * QUANTUM)));
            program.push(Step::Run(1 + random.below(10 * QUANTUM)));
        }
        Task { create, share: 1 + random.below(4), program }
    };
    (0..6).map(&mut task).collect()
}

#[test]
fn las_and_fcfs_choose_as_divvy_policy_does() {
    let until = 1_000 * QUANTUM;
    for seed in 1..=200 {
        let quantum = Nanos(QUANTUM);
        let tasks = random_tasks(seed, true);
        let mut las = Las::new(LasParams { quantum, ..LasParams::default() }).expect("in range");
        let native: Named = "las:quantum=4ms".parse().expect("a policy");
        let have = run(&mut Native::new(&native), &tasks, 1, until, 1);
        assert_eq!(have, run(&mut las, &tasks, 1, until, 1), "las, seed {seed}");
        // Whoever wakes waits for the end of a slice in the kernel, and takes the CPU back at once in divvy-policy: of tasks that sleep
        // they make different schedules.
        let tasks = random_tasks(seed, false);
        let mut fcfs = Fcfs::new(FcfsParams::default()).expect("in range");
        let native: Named = "fcfs:quantum=4ms".parse().expect("a policy");
        let have = run(&mut Native::new(&native), &tasks, 1, until, 1);
        assert_eq!(have, run(&mut fcfs, &tasks, 1, until, 1), "fcfs, seed {seed}");
    }
}
