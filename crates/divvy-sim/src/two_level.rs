//! Scenarios with a gate: the engine that runs live, above a simulated kernel ([`crate::live`]), under a scenario's workload.
//!
//! The observers are those of every other run, and see what truly happened on the machine, not what the gate saw of it: so
//! service errors, response times and runs mean the same.

use std::cell::Cell;
use std::rc::Rc;

use divvy_engine::policies::{GateSpec, SpecError};
use divvy_engine::{Recorder, Session, Trace, TraceLine};
use divvy_policy::Instant;

use crate::live::{ClockLag, Costs, Latency, MachineSpec, Placement, Program, Seen, SimHost, Steal};
use crate::machine::{CLIENTS_MAX, End, Observer, Stats};
use crate::output::{CycleErrorReport, GateReport, Report};
use crate::rng::{Concern, stream};
use crate::scenario::{
    ClockLagSpec, Files, KernelSpec, PlacementSpec, PolicySpec, Scenario, ScenarioError, build,
};
use crate::simulate::{Always, Asked, Ran, Runner, SimError};
use crate::workload::{Mix, Population, Step};

/// Runs `scenario` with `seed` under the gate that it names.
pub(crate) fn simulate(scenario: &Scenario, seed: u64, files: Files<'_>) -> Result<Report, SimError> {
    let plan = build(scenario, seed, files)?;
    let spec = GateSpec {
        policy: scenario.decider().to_string(),
        quantum_ns: plan.context.quantum.0,
        cpus: scenario.machine.cpus,
        ..GateSpec::default()
    };
    let kernel = scenario.kernel.unwrap_or_default();
    let host = SimHost::new(machine(&kernel, scenario.machine.cpus, seed));
    let mut engine = Session::new(&spec, host).map_err(|error| misplaced(&error, scenario.decider()))?;
    if plan.limits.until == Instant(u64::MAX) && never_ends(&plan.population) {
        return Err(ScenarioError::new("run", "somebody never leaves, expected until or quanta").into());
    }
    let runner = Runner { scenario, seed, plan };
    let host = engine.host_mut();
    for _ in 0..kernel.strangers {
        host.add_stranger(Program::compute());
    }
    host.drive(Mix::new(runner.plan.population.clone(), seed));
    host.set_horizon(runner.plan.limits.until);
    host.set_steps_max(runner.plan.limits.steps());
    let counts = Counts::default();
    engine.record_to(Box::new(counts.clone()));
    let (errors, (_, log)) = runner.asked();
    let mut watched = (runner.always(), (errors, (None, log)));
    let end = run(&runner, &mut engine, &mut watched)?;
    let now = engine.host().time();
    watched.on_end(now);
    let (services, switches) = engine.host().services();
    let (told, decided) = counts.0.get();
    let machine = engine.host().stats();
    let stats = Stats {
        decisions: decided,
        switches,
        events: told,
        busy: divvy_policy::Nanos(services.iter().map(|(_, used)| used.0).sum()),
        overhead: engine.self_cost().cpu,
        idle_with_work: machine.wasted,
        ..Stats::default()
    };
    let done = gate_report(&mut engine, now);
    let (always, asked) = watched;
    let mut report = runner.report(&Ran { end, now, stats, services }, always, asked);
    report.gate = Some(done);
    Ok(report)
}

/// What is watched: as in every run, but for schedules, which have no quanta here.
type Watched = (Always, Asked);

fn run(runner: &Runner<'_>, engine: &mut Session<SimHost>, watched: &mut Watched) -> Result<End, SimError> {
    let broken = |error: &dyn std::fmt::Display| ScenarioError::new("gate", error.to_string());
    let limits = runner.plan.limits;
    loop {
        for share in engine.host_mut().take_joins() {
            engine.join(share).map_err(|error| broken(&error))?;
        }
        for (client, share) in engine.host_mut().take_reshares() {
            // Whoever has left in the meantime needs no other share.
            if engine.ledger().clients().get(client.index()).is_some_and(|c| c.present) {
                engine.reshare(client, share).map_err(|error| broken(&error))?;
            }
        }
        engine.host_mut().take_seen().into_iter().for_each(|seen| show(watched, &seen));
        if engine.host().time() >= limits.until {
            return Ok(End::Until);
        }
        if engine.nr_clients() == 0 && !engine.host().expects_somebody() {
            return Ok(End::Finished);
        }
        if engine.wakeups() >= limits.decisions {
            return Ok(End::DecisionLimit);
        }
        if engine.host().stands_still() {
            return Ok(End::EventLimit);
        }
        if engine.nr_clients() > CLIENTS_MAX {
            return Ok(End::ClientLimit);
        }
        engine.turn(Some(limits.until)).map_err(|error| broken(&error))?;
    }
}

fn show(watched: &mut Watched, seen: &Seen) {
    match *seen {
        Seen::Run { cpu, client, from, to } => watched.on_run(cpu, client, from, to),
        Seen::Change { at, client, change } => watched.on_change(at, client, change),
        Seen::Response(response) => watched.on_response(&response),
    }
}

/// Events told and holds and releases decided.
#[derive(Clone, Default)]
struct Counts(Rc<Cell<(u64, u64)>>);

impl Recorder for Counts {
    fn record(&mut self, line: &TraceLine) {
        let (told, decided) = self.0.get();
        self.0.set(match line.what {
            Trace::Release { .. } | Trace::Hold { .. } | Trace::Behind { .. } => (told, decided + 1),
            Trace::Measure { .. }
            | Trace::Observe { .. }
            | Trace::Cycle { .. }
            | Trace::AtLimit { .. }
            | Trace::Idle => (told, decided),
            _ => (told + 1, decided),
        });
    }
}

fn gate_report(engine: &mut Session<SimHost>, now: Instant) -> GateReport {
    let (cost, machine) = (engine.self_cost(), engine.host().stats());
    let cycles = engine.ledger().cycles();
    let errors = cycles.errors();
    GateReport {
        wakeups: engine.wakeups(),
        reads: cost.reads,
        signals: cost.signals,
        own_cpu: cost.cpu.0 as f64 / now.0.max(1) as f64,
        cycles: cycles.ended,
        cycle_error: errors.map(|e| CycleErrorReport { median: e.median, mean: e.mean, max: e.max }),
        idle_ns: machine.idle.0,
        idle_with_held_longest_ns: machine.wasted_longest.0,
        stolen_ns: machine.stolen.0,
    }
}

fn never_ends(population: &Population) -> bool {
    let endless = |program: &crate::workload::Program| {
        program.repeat.is_none() || program.steps.contains(&Step::Run(divvy_policy::Nanos::MAX))
    };
    !population.endless.is_empty()
        || !population.users.is_empty()
        || population.programs.iter().any(endless)
        || population.sources.iter().any(|source| source.jobs.is_none())
}

fn machine(kernel: &KernelSpec, cpus: u32, seed: u64) -> MachineSpec {
    let (latency, costs) = (kernel.latency, kernel.costs);
    MachineSpec {
        cpus,
        tick: kernel.tick.nanos(),
        placement: match kernel.placement {
            PlacementSpec::Spread => Placement::Spread,
            PlacementSpec::Stack => Placement::Stack,
        },
        clock_lag: match kernel.clock_lag {
            ClockLagSpec::None => ClockLag::None,
            ClockLagSpec::Tick => ClockLag::Tick,
        },
        latency: Latency {
            low: latency.low.nanos(),
            high: latency.high.nanos(),
            late_one_in: latency.late_one_in,
        },
        costs: Costs {
            wake: costs.wake.nanos(),
            read: costs.read.nanos(),
            state: costs.state.nanos(),
            resume: costs.resume.nanos(),
            suspend: costs.suspend.nanos(),
            // Clients of a scenario have one thread each.
            steer: divvy_policy::Nanos::ZERO,
        },
        steal: kernel.steal.map(|steal| Steal { every: steal.every.nanos(), longest: steal.longest.nanos() }),
        seed: stream(seed, Concern::Policy, 1).next_u64(),
    }
}

/// The error of a gate at its place in the scenario.
fn misplaced(error: &SpecError, gate: &PolicySpec) -> ScenarioError {
    match error {
        SpecError::Policy { error, .. } => {
            ScenarioError::new(&format!("gate.params.{}", error.name), error.message.clone())
        }
        SpecError::Param(error) if gate.params.is_empty() => ScenarioError::new("quantum", error.to_string()),
        SpecError::Param(error) => ScenarioError::new("gate.params", error.to_string()),
        _ => ScenarioError::new("gate.name", error.to_string()),
    }
}
