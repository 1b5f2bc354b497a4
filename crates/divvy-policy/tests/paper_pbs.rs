//! PBS against its paper: the recorded schedules and the fluid model of `golden/`.

mod common;

use common::{Outcome, Step, Task, run};
use divvy_policy::Nanos;
use divvy_policy::dispatch::fixed::Fixed;
use divvy_policy::dispatch::pbs::{
    Alpha, Guard, Inactive, Pbs, PbsParams, Search, SecondTerm, Sessions, Threshold,
};
use divvy_policy::dispatch::pbs_fluid::{FluidPbs, FluidTask, SetChange};
use serde_json::Value;

/// Nanoseconds in the unit of `pbs_slice.json`.
const US: u64 = 1_000;

fn golden(name: &str) -> Vec<Value> {
    let path = format!("{}/../../golden/{name}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(&path).expect(&path)).expect("golden files are JSON")
}

fn fixed(value: &Value) -> Fixed {
    value.to_string().parse().expect("a number")
}

fn sessions(beta: &Value, sign: &Value) -> Sessions {
    let threshold = match beta {
        Value::Null => Threshold::Never,
        Value::String(inf) if inf == "inf" => Threshold::Never,
        beta => Threshold::Multiple(fixed(beta)),
    };
    Sessions { threshold, inactive: if sign == "-" { Inactive::Excluded } else { Inactive::Counted } }
}

fn params(p: &Value) -> PbsParams {
    let number = |key: &str| if p[key].is_null() { Fixed::ZERO } else { fixed(&p[key]) };
    PbsParams {
        alpha: match &p["alpha"] {
            Value::String(inf) if inf == "inf" => Alpha::Las,
            alpha if fixed(alpha) == Fixed::ZERO => Alpha::Fcfs,
            alpha => Alpha::Finite(fixed(alpha)),
        },
        guard: Guard::Study,
        quantum: Nanos(p["q"].as_u64().unwrap() * US),
        sessions: sessions(&p["beta"], &p["sign"]),
        gamma: number("gamma"),
        second: (!p["eps"].is_null()).then(|| SecondTerm {
            epsilon: number("eps"),
            alpha: number("alpha2"),
            sessions: sessions(&p["beta2"], &p["sign2"]),
        }),
        search: match p["algorithm"].as_str() {
            Some("O1") => Search::Sample {
                keep: p["L"].as_u64().unwrap() as u32,
                sample: p["M"].as_u64().unwrap() as u32,
            },
            _ => Search::Scan,
        },
        cpus: 1,
    }
}

/// delta = |alpha| log2(share): the recorded offsets are 0 and, at alpha = 1, 1.
fn share_of_offset(delta: f64, alpha: f64) -> u64 {
    let share = (delta / alpha.max(1e-9)).exp2();
    assert!(share.fract() == 0.0, "offset {delta} at alpha {alpha} is no whole share");
    share as u64
}

fn tasks(case: &Value) -> Vec<Task> {
    let alpha = case["params"]["alpha"].as_f64().unwrap_or(1.0);
    let step = |step: &Value| {
        let length = step[1].as_u64().unwrap() * US;
        if step[0] == "run" { Step::Run(length) } else { Step::Sleep(length) }
    };
    let task = |task: &Value| Task {
        create: task["create"].as_u64().unwrap() * US,
        share: share_of_offset(task["delta"].as_f64().unwrap(), alpha),
        program: task["program"].as_array().unwrap().iter().map(step).collect(),
    };
    case["tasks"].as_array().unwrap().iter().map(task).collect()
}

/// FNV-1a over the start, end and task of every run, one step a number, in microseconds.
fn fingerprint(outcome: &Outcome) -> String {
    let numbers = outcome.runs.iter().flat_map(|&(from, to, task, _)| [from / US, to / US, task as u64]);
    let hash = numbers.fold(0xcbf2_9ce4_8422_2325u64, |h, x| (h ^ x).wrapping_mul(0x100_0000_01b3));
    format!("{hash:016x}")
}

/// All fifteen cases are exact: the smallest margin between two priorities that decided is 7.1e-7, and ours are off by
/// less than (1 + alpha) * 2^-32 plus 2^-33 * log2 S for the rounding of alpha: below 1e-8.
#[test]
fn golden_slice() {
    let cases = golden("pbs_slice.json");
    assert_eq!(cases.len(), 15);
    for case in &cases {
        let id = case["id"].as_str().unwrap();
        let until = case["t_end"].as_u64().unwrap() * US;
        let mut policy = Pbs::new(params(&case["params"])).unwrap();
        let outcome = run(&mut policy, &tasks(case), 1, until, 1);
        let first = case["run_log_first"].as_array().unwrap();
        for (i, want) in first.iter().enumerate() {
            let (from, to, task, _) = outcome.runs[i];
            let have = [from / US, to / US, task as u64];
            assert_eq!(have.map(Value::from).to_vec(), *want.as_array().unwrap(), "{id}: run {i}");
        }
        let done: Vec<_> = outcome.done.iter().map(|t| Value::from(t.map(|t| t / US))).collect();
        assert_eq!(done, *case["done"].as_array().unwrap(), "{id}: done");
        let ran: Vec<_> = outcome.ran.iter().map(|t| Value::from(t / US)).collect();
        assert_eq!(ran, *case["ran"].as_array().unwrap(), "{id}: ran");
        assert_eq!(outcome.runs.len() as u64, case["n_runs"].as_u64().unwrap(), "{id}: n_runs");
        assert_eq!(fingerprint(&outcome), case["run_log_fnv"].as_str().unwrap(), "{id}: run log");
        assert_eq!(outcome.wasted, 0, "{id}: idle with work");
    }
}

fn f64s(value: &Value) -> Vec<f64> {
    let number = |v: &Value| if v == "inf" { f64::INFINITY } else { v.as_f64().unwrap() };
    value.as_array().unwrap().iter().map(number).collect()
}

fn fluid(alpha: f64, arrivals: &[f64], demands: &[f64]) -> FluidPbs {
    let task = |(&arrival, &demand)| FluidTask { arrival, demand };
    let tasks: Vec<_> = arrivals.iter().zip(demands).map(task).collect();
    FluidPbs::new(alpha, &tasks).unwrap()
}

fn check_close(have: f64, want: f64, tolerance: f64, what: &str) {
    assert!((have - want).abs() <= tolerance, "{what}: {have}, want {want}");
}

/// Figures 2 and 3 and the closed forms: completions, service of every second, changes of the set and shares at an
/// instant, each within the file's 1e-6.
#[test]
fn golden_fluid() {
    let cases = golden("pbs_fluid.json");
    assert_eq!(cases.len(), 20);
    for case in &cases {
        let id = case["id"].as_str().unwrap();
        let alpha = case["alpha"].as_f64().unwrap_or(f64::INFINITY);
        let (arrivals, demands) = (f64s(&case["arrivals"]), f64s(&case["demands"]));
        let n = arrivals.len();

        let mut model = fluid(alpha, &arrivals, &demands);
        let mut before = vec![0.0; n];
        for (second, window) in case["window_share"].as_array().unwrap().iter().enumerate() {
            model.advance((second + 1) as f64);
            for (task, want) in f64s(window).into_iter().enumerate() {
                let have = model.service(task) - before[task];
                check_close(have, want, 1e-6, &format!("{id}: second {second}, task {task}"));
                before[task] = model.service(task);
            }
        }
        // A completion at the very end of the last window may be a rounding error past it.
        if case["t_end"].is_null() {
            model.advance(model.now() + 1.0);
        }
        for (task, want) in case["completion"].as_array().unwrap().iter().enumerate() {
            match want.as_f64() {
                None => assert_eq!(model.completion(task), None, "{id}: task {task}"),
                Some(want) => {
                    let have = model.completion(task).unwrap_or(f64::NAN);
                    check_close(have, want, 1e-6, &format!("{id}: completion of {task}"));
                }
            }
        }
        let wanted = case["set_events"].as_array().unwrap();
        let have: Vec<_> = model.events().iter().map(|e| (e.change, e.task)).collect();
        assert_eq!(have.len(), wanted.len(), "{id}: {:?}", model.events());
        for (event, want) in model.events().iter().zip(wanted) {
            let name = match event.change {
                SetChange::Join => "join",
                SetChange::Drop => "drop",
                SetChange::Interrupt => "interrupt",
            };
            assert_eq!(
                (Value::from(name), Value::from(event.task)),
                (want[1].clone(), want[2].clone()),
                "{id}"
            );
            check_close(
                event.at,
                want[0].as_f64().unwrap(),
                1e-6,
                &format!("{id}: {name} of {}", event.task),
            );
        }
        let mut model = fluid(alpha, &arrivals, &demands);
        for want in case["instant_share"].as_array().unwrap() {
            let at = want[0].as_f64().unwrap();
            model.advance(at);
            for (task, want) in f64s(&want[1]).into_iter().enumerate() {
                check_close(model.share(task), want, 1e-6, &format!("{id}: share of {task} at {at}"));
            }
        }
    }
}
