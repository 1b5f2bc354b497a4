//! One way to run clients under a gate on a simulated machine, for all tests.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::cell::RefCell;
use std::rc::Rc;

use divvy_engine::policies::GateSpec;
use divvy_engine::{Recorder, Session, TraceHeader, TraceLine};
use divvy_policy::{ClientId, Instant, Nanos, Share};
use divvy_sim::live::{MachineSpec, MachineStats, Program, SimHost};

pub type Sim = Session<SimHost>;

/// A client: its share and the programs of its threads.
#[derive(Clone, Debug)]
pub struct Load {
    pub share: u64,
    pub threads: Vec<Program>,
}

pub fn computes(share: u64) -> Load {
    Load { share, threads: vec![Program::compute()] }
}

pub fn sleeps(share: u64, on_ms: u64, off_ms: u64) -> Load {
    let program = Program::on_off(Nanos::from_millis(on_ms), Nanos::from_millis(off_ms));
    Load { share, threads: vec![program] }
}

pub fn all_compute(shares: &[u64]) -> Vec<Load> {
    shares.iter().map(|&s| computes(s)).collect()
}

pub fn gate(policy: &str, cpus: u32) -> GateSpec {
    GateSpec { policy: policy.into(), cpus, ..GateSpec::default() }
}

/// What came of a run, start-up left out.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// CPU time of each client.
    pub used: Vec<u64>,
    pub wall: u64,
    pub cpus: u32,
    /// RMS relative error of a cycle.
    pub median: f64,
    pub mean: f64,
    pub cycles: u64,
    pub stats: MachineStats,
    pub own_cpu: f64,
    pub wakeups: u64,
}

impl Outcome {
    /// CPU time used by the clients, as a fraction of what there was.
    pub fn utilization(&self) -> f64 {
        self.used.iter().sum::<u64>() as f64 / (self.wall as f64 * f64::from(self.cpus))
    }

    /// Fractions of what the clients used.
    pub fn fractions(&self) -> Vec<f64> {
        let sum = self.used.iter().sum::<u64>() as f64;
        self.used.iter().map(|&u| u as f64 / sum).collect()
    }

    /// The largest relative distance between the fractions and `due`.
    pub fn worst_against(&self, due: &[f64]) -> f64 {
        let sum: f64 = due.iter().sum();
        let pairs = self.fractions().into_iter().zip(due);
        pairs.map(|(got, d)| (got / (d / sum) - 1.0).abs()).fold(0.0, f64::max)
    }
}

pub fn build(machine: MachineSpec, spec: &GateSpec, loads: &[Load]) -> Sim {
    let mut host = SimHost::new(machine);
    for load in loads {
        host.add_client(load.threads.clone());
    }
    let mut engine = Session::new(spec, host).unwrap();
    for load in loads {
        engine.join(Share::new(load.share).unwrap()).unwrap();
    }
    engine
}

pub fn turn_until(engine: &mut Sim, at: Instant) {
    while engine.host().time() < at {
        engine.turn(Some(at)).unwrap();
    }
}

/// Runs `loads` for `start_up` and then for `measured`, in seconds.
pub fn run_for(
    machine: MachineSpec,
    spec: &GateSpec,
    loads: &[Load],
    start_up: u64,
    measured: u64,
) -> Outcome {
    let cpus = machine.cpus;
    let mut engine = build(machine, spec, loads);
    turn_until(&mut engine, Instant(start_up * 1_000_000_000));
    let used = |engine: &Sim| -> Vec<u64> {
        (0..loads.len()).map(|i| engine.host().used(ClientId(i as u32)).0).collect()
    };
    let (from, before, stats) = (engine.host().time().0, used(&engine), engine.host().stats());
    let (cost, wakeups) = (engine.self_cost(), engine.wakeups());
    turn_until(&mut engine, Instant((start_up + measured) * 1_000_000_000));
    let wall = engine.host().time().0 - from;
    let after = engine.host().stats();
    let errors = engine.ledger().cycles().errors().unwrap_or_default();
    Outcome {
        used: used(&engine).iter().zip(&before).map(|(a, b)| a - b).collect(),
        wall,
        cpus,
        median: errors.median,
        mean: errors.mean,
        cycles: engine.ledger().cycles().ended,
        stats: MachineStats {
            idle: after.idle.saturating_sub(stats.idle),
            wasted: after.wasted.saturating_sub(stats.wasted),
            ..after
        },
        own_cpu: (engine.self_cost().cpu.0 - cost.cpu.0) as f64 / wall as f64,
        wakeups: engine.wakeups() - wakeups,
    }
}

/// Keeps the lines of a trace.
#[derive(Clone, Default)]
pub struct Lines(pub Rc<RefCell<Vec<String>>>);

impl Recorder for Lines {
    fn record(&mut self, line: &TraceLine) {
        self.0.borrow_mut().push(serde_json::to_string(line).unwrap());
    }
}

impl Lines {
    /// A recorder whose trace begins with the header of `spec`.
    pub fn of(spec: &GateSpec) -> Self {
        let header =
            TraceHeader { divvy_trace: divvy_engine::TRACE_VERSION, gate: spec.clone(), clients: vec![] };
        Self(Rc::new(RefCell::new(vec![serde_json::to_string(&header).unwrap()])))
    }

    pub fn text(&self) -> Vec<String> {
        self.0.borrow().clone()
    }
}
