//! Scenarios under the fluid models: GPS takes any workload of one CPU, the fluid PBS single bursts.

use divvy_policy::dispatch::gps::INFO as GPS;
use divvy_policy::dispatch::pbs_fluid::{FluidPbs, FluidTask, INFO as PBS};
use divvy_policy::{ClientId, Instant, Nanos, PolicyInfo, Run, Share};

use crate::machine::{Change, End, FluidMachine, Observer, Response, Stats};
use crate::metrics::Series;
use crate::output::Report;
use crate::scenario::{EventOp, Files, Params, PolicyError, Scenario, ScenarioError, build, located};
use crate::simulate::{Always, Ran, Runner, SimError};
use crate::workload::{Mix, Step};

/// Moments at which a fluid PBS is looked at, if its service over time is asked for.
const POINTS: u64 = 900;
/// Departures are computed in floating point: they are looked for this much, in ns, beyond the last that can be.
const SLACK: u64 = 1000;

pub(super) fn simulate(scenario: &Scenario, seed: u64, files: Files<'_>) -> Result<Report, SimError> {
    let machine = &scenario.machine;
    let name = &scenario.policy.name;
    if machine.cpus != 1 || machine.tick.is_some() || machine.switch_cost.0 != 0 {
        let message = format!("{name} models one CPU without ticks or switching costs");
        return Err(ScenarioError::new("machine", message).into());
    }
    let plan = build(scenario, seed, files)?;
    let runner = Runner { scenario, seed, plan };
    if name == "gps" { gps(&runner) } else { pbs(&runner) }
}

fn param(error: crate::scenario::ParamError) -> SimError {
    located(PolicyError::from(error)).into()
}

fn params(scenario: &Scenario, info: &'static PolicyInfo) -> Result<Params<'static>, SimError> {
    Params::new(info, Run::default(), scenario.policy.texts()).map_err(param)
}

fn gps(runner: &Runner<'_>) -> Result<Report, SimError> {
    let scenario = runner.scenario;
    params(scenario, &GPS)?;
    let endless = runner.plan.population.endless.len();
    let stops =
        |event: &crate::scenario::EventSpec| event.op == EventOp::Block && event.client as usize >= endless;
    if let Some(index) = scenario.events.iter().position(stops) {
        let message = "gps stops only clients of shares and events, not programs or users";
        return Err(ScenarioError::new(&format!("events[{index}].client"), message).into());
    }
    let mix = Mix::new(runner.plan.population.clone(), runner.seed);
    let mut machine = FluidMachine::new(mix, runner.always());
    let keep = scenario.measure.runs as usize;
    let mut series = (keep > 0).then(Series::default);
    let end = machine.run(&runner.plan.limits, |machine| {
        if let Some(series) = series.as_mut().filter(|series| series.times_ns.len() < keep) {
            let services = machine.services().map(|(client, service)| (client.0, service.0));
            series.push(machine.now().0, services);
        }
    });
    let end = end.map_err(SimError::Machine)?;
    let services = machine.services().collect();
    let ran = Ran { end, now: machine.now(), stats: *machine.stats(), services };
    let mut report = runner.report(&ran, machine.into_observer(), (None, (None, None)));
    report.series = series;
    Ok(report)
}

/// One task of the fluid PBS, and where it is reported.
struct Task {
    arrival: Instant,
    demand: Option<Nanos>,
    group: u32,
}

/// The tasks of a scenario, or the key that the fluid PBS knows nothing of.
fn tasks(runner: &Runner<'_>) -> Result<Vec<Task>, ScenarioError> {
    let fail = |key: &str, what: &str| Err(ScenarioError::new(key, format!("pbs-fluid {what}")));
    let population = &runner.plan.population;
    if !population.users.is_empty() {
        return fail("users", "knows single bursts only: shares, clients with one run, jobs");
    }
    if !population.sources.is_empty() {
        return fail("arrivals", "knows single bursts only: shares, clients with one run, jobs");
    }
    if !population.script.is_empty() {
        return fail("events", "takes no events");
    }
    let all_equal = population.endless.iter().all(|c| c.share == Share::ONE)
        && population.programs.iter().all(|c| c.share == Share::ONE)
        && population.jobs.iter().all(|c| c.share == Share::ONE);
    if !all_equal {
        return fail("shares", "knows no shares, expected 1 for everybody");
    }
    let mut tasks = Vec::new();
    for endless in &population.endless {
        tasks.push(Task { arrival: endless.start.unwrap_or(Instant::ZERO), demand: None, group: 0 });
    }
    for program in &population.programs {
        let demand = match (program.steps.as_slice(), program.repeat) {
            ([Step::Run(Nanos::MAX)], _) => None,
            ([Step::Run(work)], Some(1)) => Some(*work),
            _ => return fail("clients", "knows programs of one run only"),
        };
        tasks.push(Task { arrival: program.start, demand, group: program.group });
    }
    for job in &population.jobs {
        tasks.push(Task { arrival: job.arrival, demand: Some(job.size), group: job.group });
    }
    Ok(tasks)
}

fn seconds(time: u64) -> f64 {
    Nanos(time).as_secs_f64()
}

fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

fn pbs(runner: &Runner<'_>) -> Result<Report, SimError> {
    let scenario = runner.scenario;
    let number = |text: &str| text.parse().ok().filter(|alpha: &f64| !alpha.is_nan());
    let alpha = params(scenario, &PBS)?.form("alpha", number).map_err(param)?;
    let tasks = tasks(runner)?;
    let fluid_tasks: Vec<FluidTask> = tasks
        .iter()
        .map(|task| FluidTask {
            arrival: seconds(task.arrival.0),
            demand: task.demand.map_or(f64::INFINITY, |demand| seconds(demand.0)),
        })
        .collect();
    let mut model = FluidPbs::new(alpha, &fluid_tasks)
        .map_err(|error| ScenarioError::new("policy.params.alpha", error.to_string()))?;
    let last = tasks.iter().map(|task| task.arrival.0).max().unwrap_or(0);
    // By then everybody who leaves at all has left.
    let work: u64 =
        tasks.iter().filter_map(|task| task.demand).fold(0, |sum, work| sum.saturating_add(work.0));
    let idle_end = last.saturating_add(work).saturating_add(SLACK);
    let until = runner.plan.limits.until.0;
    let endless = tasks.iter().any(|task| task.demand.is_none());
    if endless && until == u64::MAX {
        return Err(ScenarioError::new("run", "somebody never leaves, expected until or quanta").into());
    }
    let mut series = Series::default();
    series.push(0, (0..tasks.len()).map(|task| (task as u32, 0)));
    let horizon = until.min(if endless { u64::MAX } else { idle_end });
    let points = if scenario.measure.runs > 0 { POINTS } else { 1 };
    for point in 1..=points {
        let at = (u128::from(horizon) * u128::from(point) / u128::from(points)) as u64;
        model.advance(seconds(at));
        let done = (0..tasks.len()).all(|task| model.completion(task).is_some());
        let ends = (0..tasks.len()).filter_map(|task| model.completion(task)).fold(0.0, f64::max);
        let at = if done { nanos(ends).min(at) } else { at };
        series.push(at, (0..tasks.len()).map(|task| (task as u32, nanos(model.service(task)))));
        if done {
            break;
        }
    }
    Ok(report(runner, &tasks, &model, series))
}

fn report(runner: &Runner<'_>, tasks: &[Task], model: &FluidPbs, series: Series) -> Report {
    let mut always: Always = runner.always();
    let mut left: Vec<(u64, usize)> =
        (0..tasks.len()).filter_map(|task| Some((nanos(model.completion(task)?), task))).collect();
    left.sort_unstable();
    for (index, task) in tasks.iter().enumerate() {
        always.on_change(task.arrival, ClientId(index as u32), Change::Join { share: Share::ONE });
    }
    for &(at, task) in &left {
        let (client, finished) = (ClientId(task as u32), Instant(at));
        let work = tasks[task].demand.unwrap_or_default();
        always.on_change(finished, client, Change::Leave { service: work });
        let Task { group, arrival, .. } = tasks[task];
        always.on_response(&Response { client, group, arrived: arrival, finished, work });
    }
    let present = (0..tasks.len()).filter(|&task| model.completion(task).is_none());
    let services: Vec<(ClientId, Nanos)> =
        present.map(|task| (ClientId(task as u32), Nanos(nanos(model.service(task))))).collect();
    let busy = (0..tasks.len()).map(|task| nanos(model.service(task))).sum();
    let stats = Stats { busy: Nanos(busy), events: model.events().len() as u64, ..Stats::default() };
    let end = if services.is_empty() { End::Finished } else { End::Until };
    let now = Instant(series.times_ns.last().copied().unwrap_or(0));
    let mut report = runner.report(&Ran { end, now, stats, services }, always, (None, (None, None)));
    if runner.scenario.measure.runs > 0 {
        report.series = Some(series);
    }
    report
}
