//! From a scenario to a machine, a workload and limits.

use divvy_policy::{Instant, Nanos, Share};

use super::check::nr_share_clients;
use super::{
    EventOp, OnBlockSpec, OnWakeSpec, PolicyContext, Scenario, ScenarioError, Shares, Span, StepSpec,
    TraceFormat,
};
use crate::machine::{Clock, Config, Limits, OnBlock, OnWake};
use crate::rng::{Concern, stream};
use crate::workload::{
    Action, Endless, Job, Population, Program, RtApp, Script, Source, Step, Users, parse_jobs, parse_rt_app,
    random_shares,
};

/// The quantum of a scenario that gives none.
const QUANTUM_DEFAULT: Span = Span(10_000_000);

/// Texts of the files that a scenario names, in the order of its `traces`. Reading them is the caller's business.
pub type Files<'a> = &'a [String];

/// A scenario made ready.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The machine.
    pub config: Config,
    /// Where it stops.
    pub limits: Limits,
    /// Who is there.
    pub population: Population,
    /// What the policy is made for.
    pub context: PolicyContext,
    /// The names of response groups.
    pub groups: Vec<String>,
    /// The names of clients that are there from the start; empty where none was given.
    pub names: Vec<String>,
}

/// Makes a checked scenario ready to run with `seed`.
///
/// # Errors
/// [`ScenarioError`] where a trace is wrong or missing.
pub fn build(scenario: &Scenario, seed: u64, files: Files<'_>) -> Result<Plan, ScenarioError> {
    let quantum = scenario.quantum.unwrap_or(QUANTUM_DEFAULT);
    let mut builder = Builder::default();
    builder.population.resolution = scenario.run.resolution.nanos();
    builder.add_shares(scenario, seed);
    builder.add_events(scenario);
    builder.add_clients(scenario);
    builder.add_users(scenario);
    builder.add_sources(scenario);
    builder.add_jobs(scenario);
    let duration = builder.add_traces(scenario, files)?;
    builder.population.jobs.sort_by_key(|job| job.arrival);
    let machine = &scenario.machine;
    let config = Config {
        cpus: machine.cpus,
        switch_cost: machine.switch_cost.nanos(),
        clock: machine.tick.map_or(Clock::Event, |tick| Clock::Tick {
            period: tick.nanos(),
            on_block: match machine.on_block {
                OnBlockSpec::AtOnce => OnBlock::AtOnce,
                OnBlockSpec::NextTick => OnBlock::NextTick,
            },
        }),
        on_wake: match machine.on_wake {
            OnWakeSpec::PolicyDecides => OnWake::PolicyDecides,
            OnWakeSpec::Redecide => OnWake::Redecide,
        },
    };
    let asked = scenario.run.until.map(Span::instant);
    let quanta = scenario.run.quanta.map(|n| Instant(n.saturating_mul(quantum.0)));
    let until = asked.or(quanta).or(duration.map(|span| Instant::ZERO + span)).unwrap_or(Instant(u64::MAX));
    Ok(Plan {
        config,
        limits: Limits { until, decisions: scenario.run.decisions },
        population: builder.population,
        context: PolicyContext {
            cpus: machine.cpus,
            quantum,
            seed: stream(seed, Concern::Policy, 0).next_u64(),
        },
        groups: builder.groups,
        names: builder.names,
    })
}

#[derive(Default)]
struct Builder {
    population: Population,
    groups: Vec<String>,
    names: Vec<String>,
}

/// A share that was checked.
fn share(number: u64) -> Share {
    Share::new(number).unwrap_or(Share::ONE)
}

impl Builder {
    fn group(&mut self, name: Option<&String>, kind: &str, index: usize) -> u32 {
        self.groups.push(name.cloned().unwrap_or_else(|| format!("{kind}[{index}]")));
        (self.groups.len() - 1) as u32
    }

    fn add_names(&mut self, name: Option<&String>, count: u32) {
        let name = name.map_or("", String::as_str);
        for i in 0..count {
            self.names.push(if count == 1 || name.is_empty() { name.into() } else { format!("{name}-{i}") });
        }
    }

    fn add_shares(&mut self, scenario: &Scenario, seed: u64) {
        let list = match &scenario.shares {
            None => Vec::new(),
            Some(Shares::List(list)) => list.clone(),
            Some(Shares::Random(spec)) => {
                let mut rng = stream(seed, Concern::Shares, 0);
                random_shares(spec.random.clients as usize, spec.random.total, &mut rng)
            }
        };
        let start = Some(Instant::ZERO);
        self.population.endless.extend(list.iter().map(|&n| Endless { share: share(n), start }));
        self.add_names(None, nr_share_clients(scenario));
    }

    fn add_events(&mut self, scenario: &Scenario) {
        let mut events: Vec<_> = scenario.events.iter().collect();
        events.sort_by_key(|event| event.at);
        for event in events {
            let number = share(event.share.unwrap_or(1));
            let action = match event.op {
                EventOp::Create => Action::Create(number),
                EventOp::New => Action::New(number),
                EventOp::Wake => Action::Wake,
                EventOp::Block => Action::Block,
                EventOp::Exit => Action::Exit,
                EventOp::Share => Action::Reshare(number),
            };
            if matches!(event.op, EventOp::Create | EventOp::New) {
                self.population.endless.push(Endless { share: number, start: None });
                self.add_names(None, 1);
            }
            self.population.script.push(Script { at: event.at.instant(), client: event.client, action });
        }
    }

    fn add_clients(&mut self, scenario: &Scenario) {
        for (index, spec) in scenario.clients.iter().enumerate() {
            let group = self.group(spec.name.as_ref(), "clients", index);
            let mut steps: Vec<Step> = spec
                .program
                .iter()
                .map(|step| match *step {
                    StepSpec::Run(span) => Step::Run(span.nanos()),
                    StepSpec::Sleep(span) => Step::Sleep(span.nanos()),
                    StepSpec::Period(span) => Step::Period(span.nanos()),
                })
                .collect();
            if steps.is_empty() {
                steps.push(Step::Run(Nanos::MAX));
            }
            let repeat = (spec.repeat > 0).then_some(spec.repeat);
            let program =
                Program { group, share: share(spec.share), start: spec.start.instant(), steps, repeat };
            self.population.programs.extend(std::iter::repeat_n(program, spec.count as usize));
            self.add_names(spec.name.as_ref(), spec.count);
        }
    }

    fn add_users(&mut self, scenario: &Scenario) {
        for (index, spec) in scenario.users.iter().enumerate() {
            let group = self.group(spec.name.as_ref(), "users", index);
            self.population.users.push(Users {
                group,
                count: spec.count,
                share: share(spec.share),
                think: spec.think,
                segments: spec.segments,
                work: spec.work,
                gap: spec.gap,
            });
            self.add_names(spec.name.as_ref(), spec.count);
        }
    }

    fn add_sources(&mut self, scenario: &Scenario) {
        for (index, spec) in scenario.arrivals.iter().enumerate() {
            let group = self.group(spec.name.as_ref(), "arrivals", index);
            self.population.sources.push(Source {
                group,
                share: share(spec.share),
                between: spec.between,
                size: spec.size,
                jobs: spec.jobs,
            });
        }
    }

    fn add_jobs(&mut self, scenario: &Scenario) {
        if scenario.jobs.is_empty() {
            return;
        }
        self.groups.push("jobs".into());
        let group = (self.groups.len() - 1) as u32;
        self.population.jobs.extend(scenario.jobs.iter().map(|job| Job {
            group,
            arrival: job.at.instant(),
            size: job.size.nanos(),
            share: share(job.share),
        }));
    }

    /// Adds the traces; how long the longest of them says it runs.
    fn add_traces(&mut self, scenario: &Scenario, files: Files<'_>) -> Result<Option<Nanos>, ScenarioError> {
        let mut longest = None;
        for (index, trace) in scenario.traces.iter().enumerate() {
            let key = format!("traces[{index}].file");
            let refuse = |what: String| ScenarioError::new(&key, format!("{}: {what}", trace.file));
            let text = files.get(index).ok_or_else(|| refuse("was not read".into()))?;
            match trace.format {
                TraceFormat::Csv => {
                    let group = self.group(Some(&trace.file), "traces", index);
                    let jobs = parse_jobs(text, group).map_err(|error| refuse(error.to_string()))?;
                    self.population.jobs.extend(jobs);
                }
                TraceFormat::RtApp => {
                    let first = self.groups.len() as u32;
                    let RtApp { programs, duration } =
                        parse_rt_app(text, first).map_err(|error| refuse(error.to_string()))?;
                    longest = longest.max(duration);
                    self.add_programs(programs);
                }
            }
        }
        Ok(longest)
    }

    fn add_programs(&mut self, programs: Vec<(String, Program)>) {
        let place = self.population.programs.len() + self.population.endless.len();
        for (offset, (name, program)) in programs.into_iter().enumerate() {
            while self.groups.len() <= program.group as usize {
                self.groups.push(name.clone());
            }
            self.population.programs.push(program);
            self.names.insert(place + offset, name);
        }
    }
}
