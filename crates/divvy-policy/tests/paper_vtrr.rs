//! The VTRR paper's examples, and every exact case of the golden files about it.

mod support;

use divvy_policy::dispatch::service_error::{pair_errors, service_errors};
use divvy_policy::dispatch::vtrr::{Choice, InsertPath, Reset, Vtrr, VtrrParams};
use divvy_policy::dispatch::{stride, vtime::VirtualTime, wf2q, wfq, wrr};
use divvy_policy::{ClientId, CpuId, Event, Instant, Nanos, Policy};
use serde_json::Value;
use support::{Dispatcher, fnv1a64, golden, populate, run, send, share};

fn numbers(value: &Value) -> Vec<u64> {
    value.as_array().expect("a list").iter().map(|n| n.as_u64().expect("a whole number")).collect()
}

fn tie(name: &str) -> wfq::Tie {
    match name {
        "share" => wfq::Tie::LargerShare,
        "small" => wfq::Tie::SmallerShare,
        "id" => wfq::Tie::Id,
        "fifo" => wfq::Tie::Fifo,
        "lifo" => wfq::Tie::Lifo,
        "rr" => wfq::Tie::RoundRobin,
        other => panic!("tie {other}"),
    }
}

/// Every variant of the algorithm that must give the golden schedule.
fn variants(algo: &str, params: &Value) -> Vec<Dispatcher> {
    let (cpus, quantum) = (1, Nanos(1));
    let tied = tie(params["tie"].as_str().unwrap_or("share"));
    match algo {
        "wrr" => {
            vec![Box::new(wrr::Wrr::new(wrr::WrrParams { cpus, quantum, ..Default::default() }).unwrap())]
        }
        "wfq" => [wfq::Queue::List, wfq::Queue::Heap]
            .map(|queue| {
                let wfq = wfq::Wfq::new(wfq::WfqParams { cpus, quantum, tie: tied, queue }).unwrap();
                Box::new(wfq) as Dispatcher
            })
            .into(),
        "wf2q" => vec![Box::new(wf2q::Wf2q::new(wf2q::Wf2qParams { cpus, quantum, tie: tied }).unwrap())],
        "stride" => [stride::Queue::List, stride::Queue::Heap]
            .map(|queue| {
                let init = match params["init"].as_str() {
                    Some("zero") => stride::Init::Zero,
                    _ => stride::Init::Stride,
                };
                let stride1 = params["stride1"].as_u64();
                let params = stride::StrideParams { cpus, quantum, init, stride1, queue };
                Box::new(stride::Stride::new(params).unwrap()) as Dispatcher
            })
            .into(),
        "vtrr" => [Reset::Whole, Reset::Incremental]
            .map(|reset| {
                let params = VtrrParams { cpus, quantum, reset, ..Default::default() };
                Box::new(Vtrr::new(params).unwrap()) as Dispatcher
            })
            .into(),
        other => panic!("algorithm {other}"),
    }
}

fn check_schedule(case: &Value, schedule: &[usize], shares: &[u64]) {
    let id = &case["id"];
    if let Value::Array(_) = case["seq"] {
        let seq: Vec<u64> = schedule.iter().map(|&c| c as u64).collect();
        assert_eq!(seq, numbers(&case["seq"]), "{id}");
    } else {
        let (first, last) = (numbers(&case["seq_first"]), numbers(&case["seq_last"]));
        let part = |part: &[usize]| part.iter().map(|&c| c as u64).collect::<Vec<_>>();
        assert_eq!(part(&schedule[..first.len()]), first, "{id}");
        assert_eq!(part(&schedule[schedule.len() - last.len()..]), last, "{id}");
    }
    assert_eq!(format!("{:016x}", fnv1a64(schedule)), case["seq_fnv1a64"].as_str().unwrap(), "{id}");
    let errors = service_errors(shares, schedule).unwrap();
    assert_eq!(errors.all.min.to_string(), case["err_min"], "{id}");
    assert_eq!(errors.all.max.to_string(), case["err_max"], "{id}");
    if let Some(clients) = case["per_client"].as_array() {
        assert_eq!(clients.len(), errors.clients.len(), "{id}");
        for (range, want) in errors.clients.iter().zip(clients) {
            assert_eq!([&range.min.to_string(), &range.max.to_string()], [&want[0], &want[1]], "{id}");
        }
    }
    if let (Some(gap), Some(service)) = (case["vt_gap_01"].as_str(), case["pair_error_01"].as_str()) {
        let pair = pair_errors(shares, schedule, 0, 1).unwrap();
        assert_eq!(
            (pair.virtual_gap.to_string(), pair.service.to_string()),
            (gap.into(), service.into()),
            "{id}"
        );
    }
}

#[test]
fn static_schedules_are_the_golden_ones() {
    let cases = golden("vtrr_static.json");
    let cases = cases.as_array().unwrap();
    let mut by_tie = 0;
    for case in cases {
        let shares = numbers(&case["shares"]);
        let quanta = case["quanta"].as_u64().unwrap() as usize;
        for mut policy in variants(case["algo"].as_str().unwrap(), &case["params"]) {
            populate(policy.as_mut(), &shares);
            check_schedule(case, &run(policy.as_mut(), quanta), &shares);
        }
        for (name, want) in case["err_by_tie"].as_object().into_iter().flatten() {
            for queue in [wfq::Queue::List, wfq::Queue::Heap] {
                let params = wfq::WfqParams { cpus: 1, quantum: Nanos(1), tie: tie(name), queue };
                let mut policy = wfq::Wfq::new(params).unwrap();
                populate(&mut policy, &shares);
                let all = service_errors(&shares, &run(&mut policy, quanta)).unwrap().all;
                assert_eq!(
                    [&all.min.to_string(), &all.max.to_string()],
                    [&want[0], &want[1]],
                    "{} {name}",
                    case["id"]
                );
            }
            by_tie += 1;
        }
    }
    assert_eq!((cases.len(), by_tie > 60), (65, true));
}

fn fraction(time: VirtualTime, unit: u64) -> String {
    // Times are in ns per share with a quantum of `unit` / 2 half units: the golden file has them in whole units.
    let (num, den) = time.as_fraction();
    let (mut a, mut b) = (num, u128::from(den) * u128::from(unit));
    let (n, d) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    if d / a == 1 { (n / a).to_string() } else { format!("{}/{}", n / a, d / a) }
}

struct Script {
    policy: Vtrr,
    quantum: i64,
    unit: u64,
    left: Vec<(u64, i64, String)>,
    paths: Vec<(u64, u64, InsertPath)>,
    runnable: Vec<bool>,
}

impl Script {
    fn apply(&mut self, event: &Value) {
        let (t, op, id) =
            (event[0].as_u64().unwrap(), event[1].as_str().unwrap(), event[2].as_u64().unwrap());
        let client = ClientId(id as u32);
        if self.runnable.len() <= id as usize {
            self.runnable.resize(id as usize + 1, false);
        }
        let was = self.runnable[id as usize];
        let inserted = match op {
            "create" => {
                send(&mut self.policy, Event::Join { client, share: share(event[3].as_u64().unwrap()) });
                false
            }
            "new" => {
                send(&mut self.policy, Event::Join { client, share: share(event[3].as_u64().unwrap()) });
                send(&mut self.policy, Event::Wake { client });
                self.runnable[id as usize] = true;
                true
            }
            "wake" => {
                send(&mut self.policy, Event::Wake { client });
                self.runnable[id as usize] = true;
                !was
            }
            "block" => {
                send(&mut self.policy, Event::Block { client });
                self.runnable[id as usize] = false;
                false
            }
            "exit" => {
                // What it leaves with is part of the golden file: read it just before.
                send(&mut self.policy, Event::Block { client });
                let (counter, vft) = self.state(client);
                self.left.push((id, counter, vft));
                send(&mut self.policy, Event::Leave { client });
                self.runnable[id as usize] = false;
                false
            }
            "share" => {
                send(&mut self.policy, Event::Reshare { client, share: share(event[3].as_u64().unwrap()) });
                was
            }
            other => panic!("op {other}"),
        };
        if inserted {
            self.paths.push((t, id, self.policy.insert_path(client).unwrap()));
        }
    }

    fn state(&self, client: ClientId) -> (i64, String) {
        let counter = self.policy.counter(client).unwrap();
        assert_eq!(counter % self.quantum, 0);
        let vft = self.policy.finishing_time(client).map_or(String::new(), |vft| fraction(vft, self.unit));
        (counter / self.quantum, vft)
    }

    fn check_final(&self, case: &Value) {
        let (id, end) = (&case["id"], &case["final"]);
        let queue: Vec<u64> = self.policy.queue().iter().map(|c| u64::from(c.0)).collect();
        assert_eq!(queue, numbers(&end["queue"]), "{id}");
        for (key, counter) in end["counter"].as_object().unwrap() {
            let client: u64 = key.parse().unwrap();
            let (have, vft) = match self.left.iter().find(|(gone, ..)| *gone == client) {
                Some((_, counter, vft)) => (*counter, vft.clone()),
                None => self.state(ClientId(client as u32)),
            };
            assert_eq!(have, counter.as_i64().unwrap(), "{id}: counter of {key}");
            match end["vft"].get(key).and_then(Value::as_str) {
                Some(want) => assert_eq!(vft, want, "{id}: VFT of {key}"),
                None => assert_eq!(vft, "", "{id}: VFT of {key}"),
            }
        }
        assert_eq!(fraction(self.policy.queue_virtual_time(), self.unit), end["qvt"], "{id}: QVT");
        assert_eq!(self.policy.cycle(), end["cycle"].as_u64().unwrap(), "{id}: cycle");
        let sum = end["sum_counters"].as_i64().unwrap();
        assert_eq!(self.policy.counters_sum(), i128::from(sum), "{id}: sum");
        let paths: Vec<Value> = self
            .paths
            .iter()
            .map(|&(t, id, path)| {
                let path = match path {
                    InsertPath::Refs => "refs",
                    InsertPath::Traverse => "traverse",
                    InsertPath::Class => "class",
                };
                serde_json::json!([t, id, path])
            })
            .collect();
        assert_eq!(Value::Array(paths), case["insert_paths"], "{id}");
    }
}

fn check_dynamic(case: &Value, reset: Reset) {
    // A quantum of "5/2" is run as 5 half units.
    let (quantum, unit) = match case["Q"].as_str().unwrap() {
        "1" => (1, 1),
        "5/2" => (5, 2),
        other => panic!("quantum {other}"),
    };
    let params = VtrrParams { cpus: 1, quantum: Nanos(quantum), reset, ..Default::default() };
    let policy = Vtrr::new(params).unwrap();
    let (left, paths, runnable) = (Vec::new(), Vec::new(), Vec::new());
    let mut script = Script { policy, quantum: quantum as i64, unit, left, paths, runnable };
    let mut events = case["events"].as_array().unwrap().iter().peekable();
    let (mut seq, mut why) = (Vec::new(), Vec::new());
    for t in 0..case["quanta"].as_u64().unwrap() {
        while let Some(event) = events.next_if(|event| event[0].as_u64() == Some(t)) {
            script.apply(event);
        }
        send(&mut script.policy, Event::Free { cpu: CpuId(0) });
        let grant = script.policy.poll_decision(Instant::ZERO);
        let Some(grant) = grant else {
            seq.push(Value::Null);
            why.push("idle");
            continue;
        };
        seq.push(grant.client.0.into());
        why.push(match script.policy.last_choice() {
            Choice::Start => "start",
            Choice::Reset => "reset",
            Choice::End => "end",
            Choice::Counter => "counter",
            Choice::Vft => "vft",
            Choice::Back => "back",
            Choice::Passed => "passed",
        });
        send(&mut script.policy, Event::Charge { client: grant.client, used: grant.slice });
    }
    assert_eq!(Value::Array(seq), case["seq"], "{}", case["id"]);
    assert_eq!(serde_json::json!(why), case["why"], "{}", case["id"]);
    script.check_final(case);
}

#[test]
fn dynamic_schedules_are_the_golden_ones() {
    let cases = golden("vtrr_dynamic.json");
    let cases = cases.as_array().unwrap();
    assert_eq!(cases.len(), 19);
    for case in cases {
        check_dynamic(case, Reset::Whole);
        check_dynamic(case, Reset::Incremental);
    }
}
