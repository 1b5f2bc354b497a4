//! One scenario, one seed, one report.

use divvy_policy::{Grant, Instant, Nanos, Policy};

use crate::machine::{End, Machine, MachineError, Observer, Stats};
use crate::metrics::{
    ClientTable, ErrorRow, FluidErrors, Fraction, Responses, RunLog, Schedule, ServiceError, jain,
};
use crate::output::{ClientReport, ErrorSummary, Fairness, Operations, Report, ResponseReport, Timeline};
use crate::scenario::{
    Files, Plan, PolicyFactory, PolicyVisitor, Scenario, ScenarioError, Span, build, located,
};
use crate::workload::Mix;

/// Entries of a schedule that is kept without being asked for.
const SCHEDULE_DEFAULT: u32 = 10_000;

/// Why there is no report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SimError {
    /// The scenario cannot be run.
    Scenario(ScenarioError),
    /// The policy broke its contract.
    Machine(MachineError),
}

impl std::fmt::Display for SimError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Scenario(error) => error.fmt(f),
            Self::Machine(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SimError {}

impl From<ScenarioError> for SimError {
    fn from(error: ScenarioError) -> Self {
        Self::Scenario(error)
    }
}

/// Runs `scenario` with `seed` under the policy that `factory` makes. `files` are the texts of its traces, in order.
///
/// # Errors
/// [`SimError`] where the scenario cannot be run or the policy breaks its contract. A run that reaches its limit of
/// decisions is no error: its report says so.
pub fn simulate<F: PolicyFactory>(
    scenario: &Scenario,
    seed: u64,
    files: Files<'_>,
    factory: &F,
) -> Result<Report, SimError> {
    let plan = build(scenario, seed, files)?;
    let context = plan.context;
    let runner = Runner { scenario, seed, plan };
    factory
        .with_policy(&scenario.policy, &context, runner)
        .map_err(|error| SimError::Scenario(located(error)))?
}

pub(crate) struct Runner<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) seed: u64,
    pub(crate) plan: Plan,
}

/// What every run watches.
pub(crate) type Always = (Responses, ClientTable);
/// What is watched if it is asked for.
pub(crate) type Asked = (Option<FluidErrors>, (Option<Schedule>, Option<RunLog>));

impl PolicyVisitor for Runner<'_> {
    type Output = Result<Report, SimError>;

    fn visit<P: Policy<Decision = Grant>>(self, policy: P) -> Self::Output {
        let asked = self.asked();
        let always = self.always();
        // Two machines, so that the plain one pays nothing for what is not asked for.
        if let (None, (None, None)) = asked {
            let (ran, always) = self.run(policy, always)?;
            Ok(self.report(&ran, always, asked))
        } else {
            let (ran, (always, asked)) = self.run(policy, (always, asked))?;
            Ok(self.report(&ran, always, asked))
        }
    }
}

/// What a machine leaves behind, its type forgotten.
pub(crate) struct Ran {
    pub(crate) end: End,
    pub(crate) now: Instant,
    pub(crate) stats: Stats,
    pub(crate) services: Vec<(divvy_policy::ClientId, Nanos)>,
}

impl Runner<'_> {
    pub(crate) fn always(&self) -> Always {
        let run = &self.scenario.run;
        let until = Instant(self.plan.limits.until.0 - run.cooldown.0);
        let keep = self.scenario.measure.responses as usize;
        let responses = Responses::new(self.plan.groups.len(), run.warmup.instant(), until, keep);
        (responses, ClientTable::new(self.plan.population.nr_static()))
    }

    pub(crate) fn asked(&self) -> Asked {
        let (scenario, measure) = (self.scenario, &self.scenario.measure);
        let closed = scenario.users.is_empty()
            && scenario.arrivals.is_empty()
            && scenario.jobs.is_empty()
            && scenario.traces.is_empty();
        let errors = measure.service_error.unwrap_or(closed);
        let entries = measure.schedule.unwrap_or(if errors { SCHEDULE_DEFAULT } else { 0 });
        let config = &self.plan.config;
        let schedule = (entries > 0 && config.cpus == 1)
            .then(|| Schedule::new(self.plan.context.quantum.nanos(), config.switch_cost, entries as usize));
        let unit = scenario.run.resolution.nanos();
        let log = (measure.runs > 0).then(|| RunLog::new(measure.runs as usize, unit));
        (errors.then(|| FluidErrors::new(config.cpus)), (schedule, log))
    }

    fn run<P: Policy<Decision = Grant>, O: Observer>(
        &self,
        policy: P,
        observer: O,
    ) -> Result<(Ran, O), SimError> {
        let workload = Mix::new(self.plan.population.clone(), self.seed);
        let mut machine = Machine::new(self.plan.config, policy, workload, observer);
        let end = machine.run(&self.plan.limits).map_err(SimError::Machine)?;
        let ran =
            Ran { end, now: machine.now(), stats: *machine.stats(), services: machine.services().collect() };
        Ok((ran, machine.into_parts().2))
    }

    pub(crate) fn report(
        &self,
        ran: &Ran,
        (responses, mut table): Always,
        (fluid, (schedule, log)): Asked,
    ) -> Report {
        let quantum = self.plan.context.quantum;
        table.complete(ran.services.iter().copied());
        let errors = fluid.as_ref().map(|fluid| fluid.errors(quantum.nanos()));
        let per_client = self.per_client(&table, errors.as_deref(), quantum);
        let received =
            per_client.iter().filter(|row| row.share > 0).map(|row| row.service_ns as f64 / row.share as f64);
        let capacity = f64::from(self.plan.config.cpus) * ran.now.0 as f64;
        Report {
            name: self.scenario.name.clone(),
            policy: self.scenario.decider().name.clone(),
            seed: self.seed,
            shares: per_client.iter().map(|row| row.share).collect(),
            quantum_ns: quantum.0,
            cpus: self.plan.config.cpus,
            ended: ran.end.as_str(),
            time_ns: ran.now.0,
            schedule_truncated: schedule.as_ref().is_some_and(Schedule::is_truncated),
            schedule: schedule
                .map(|schedule| schedule.entries().iter().map(|who| who.map(|client| client.0)).collect()),
            service_error: errors.as_deref().map(|errors| ErrorSummary {
                min: least(errors.iter().map(|e| e.min)),
                max: most(errors.iter().map(|e| e.max)),
                exact: fluid.as_ref().is_some_and(FluidErrors::is_exact),
            }),
            fairness: Fairness { jain: jain(received), gap: gap(&per_client, quantum) },
            per_client,
            responses: self.responses(&responses, ran.now),
            groups: self.groups(&responses, ran.now),
            utilization: if capacity > 0.0 { ran.stats.busy.0 as f64 / capacity } else { 0.0 },
            operations: Operations {
                decisions: ran.stats.decisions,
                switches: ran.stats.switches,
                preemptions: ran.stats.preemptions,
                events: ran.stats.events,
                overhead_ns: ran.stats.overhead.0,
                idle_with_work_ns: ran.stats.idle_with_work.0,
            },
            timeline: log.as_ref().map(Timeline::new),
            series: None,
            gate: None,
        }
    }

    fn per_client(
        &self,
        table: &ClientTable,
        errors: Option<&[ServiceError]>,
        quantum: Span,
    ) -> Vec<ClientReport> {
        table
            .rows()
            .iter()
            .enumerate()
            .map(|(index, row)| ClientReport {
                name: self.plan.names.get(index).cloned().unwrap_or_default(),
                share: row.share,
                error: errors
                    .and_then(|errors| errors.get(index))
                    .map(|e| ErrorRow { min: e.min, max: e.max }),
                service: Fraction::new(i128::from(row.service.0), i128::from(quantum.0)),
                service_ns: row.service.0,
                finished_ns: row.left.map(|left| left.0),
            })
            .collect()
    }

    /// The stretch in which answers counted.
    fn counted(&self, now: Instant) -> Nanos {
        let run = &self.scenario.run;
        now.since(Instant::ZERO).saturating_sub(run.warmup.nanos()).saturating_sub(run.cooldown.nanos())
    }

    fn responses(&self, responses: &Responses, now: Instant) -> Option<ResponseReport> {
        if self.plan.groups.is_empty() {
            return None;
        }
        let mut report = ResponseReport::new("all", responses.total(), self.counted(now));
        report.first_ns = responses.first().iter().map(|time| time.0).collect();
        Some(report)
    }

    fn groups(&self, responses: &Responses, now: Instant) -> Vec<ResponseReport> {
        if self.plan.groups.len() < 2 {
            return Vec::new();
        }
        let rows = self.plan.groups.iter().zip(responses.groups());
        rows.map(|(name, group)| ResponseReport::new(name, group, self.counted(now))).collect()
    }
}

/// The largest service divided by share, less the smallest, in quanta.
fn gap(clients: &[ClientReport], quantum: Span) -> Fraction {
    let ratio = |row: &ClientReport| Fraction::new(i128::from(row.service_ns), i128::from(row.share));
    let ratios = || clients.iter().filter(|row| row.share > 0).map(ratio);
    let (Some(low), Some(high)) = (ratios().min(), ratios().max()) else { return Fraction::ZERO };
    // Shares are below 2^32 and times below 2^64, so the products fit.
    let over = high.numerator() * low.denominator() - low.numerator() * high.denominator();
    let (share, unit) = (high.denominator() * low.denominator(), i128::from(quantum.0.max(1)));
    let common = Fraction::new(over, unit);
    if share.checked_mul(common.denominator()).is_none() {
        return Fraction::new(over / unit, share);
    }
    Fraction::new(common.numerator(), common.denominator() * share)
}

fn least(errors: impl Iterator<Item = Fraction>) -> Fraction {
    errors.fold(Fraction::ZERO, |a, b| if b < a { b } else { a })
}

fn most(errors: impl Iterator<Item = Fraction>) -> Fraction {
    errors.fold(Fraction::ZERO, |a, b| if b > a { b } else { a })
}
