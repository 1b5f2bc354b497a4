//! From the command line to a scenario: a file and what is set over it, or shares alone.

use std::path::{Path, PathBuf};

use divvy_policy::{Kind, PolicyInfo};
use divvy_sim::scenario::{Format, ParamValue, PolicySpec, Scenario, ScenarioError};
use divvy_sim::simulate::SimError;

use super::args::{PictureArgs, PolicyArgs, ScenarioArgs};
use crate::{Code, Failure, files, nearest};

/// A scenario or trace of more bytes is not read: it is held in memory as a whole.
const FILE_MAX: u64 = 256 << 20;
/// The most entries of a schedule that is asked for by `--quanta`.
const SCHEDULE_MAX: u64 = 10_000_000;

/// A scenario, and where it came from.
pub(super) struct Source {
    pub(super) scenario: Scenario,
    /// The texts of its traces.
    pub(super) files: Vec<String>,
    file: Option<(PathBuf, String, Format)>,
}

impl Source {
    /// Reads the file, if there is one, and sets what the arguments say.
    pub(super) fn new(args: &ScenarioArgs, policy: Option<&PolicyArgs>) -> Result<Self, Failure> {
        let mut source = match &args.file {
            Some(path) => Self::read(path)?,
            None => Self {
                scenario: Scenario::of_shares(
                    PolicySpec::new("vtrr"),
                    &args.shares,
                    quantum(args),
                    one_cycle(args),
                ),
                files: Vec::new(),
                file: None,
            },
        };
        source.set(args);
        if let Some(policy) = policy {
            source.set_policy(policy)?;
        }
        divvy_sim::scenario::check(&source.scenario).map_err(|error| source.failure(error))?;
        Ok(source)
    }

    /// Whether what is to be written can be, and is none of the files that were read.
    pub(super) fn check_outputs(
        &self,
        picture: &PictureArgs,
        trace: &Option<PathBuf>,
    ) -> Result<(), Failure> {
        let outputs = [("--trace", trace), ("--svg", &picture.svg), ("--png", &picture.png)];
        let file = self.file.as_ref().map(|(path, ..)| path.as_path());
        let folder = file.and_then(Path::parent).unwrap_or(Path::new(""));
        let traces: Vec<PathBuf> =
            self.scenario.traces.iter().map(|trace| folder.join(&trace.file)).collect();
        files::check_outputs(&outputs, file.into_iter().chain(traces.iter().map(PathBuf::as_path)))
    }

    fn read(path: &Path) -> Result<Self, Failure> {
        let text = read_text(path)?;
        let is_json = path.extension().is_some_and(|ext| ext.eq_ignore_ascii_case("json"));
        let format = if is_json { Format::Json } else { Format::Toml };
        let scenario =
            Scenario::parse(&text, format).map_err(|error| Failure::new(Code::File, placed(path, &error)))?;
        let mut source = Self { scenario, files: Vec::new(), file: Some((path.to_owned(), text, format)) };
        let folder = path.parent().unwrap_or_else(|| Path::new(""));
        for (index, trace) in source.scenario.traces.iter().enumerate() {
            let text = read_text(&folder.join(&trace.file)).map_err(|failure| {
                source.failure(ScenarioError::new(&format!("traces[{index}].file"), failure.text))
            })?;
            source.files.push(text);
        }
        Ok(source)
    }

    fn set(&mut self, args: &ScenarioArgs) {
        let scenario = &mut self.scenario;
        if let Some(quanta) = args.quanta {
            (scenario.run.quanta, scenario.run.until) = (Some(quanta), None);
            if scenario.measure.schedule.is_none() && args.file.is_none() {
                scenario.measure.schedule = Some(quanta.clamp(10_000, SCHEDULE_MAX) as u32);
            }
        }
        if let Some(until) = args.until {
            (scenario.run.quanta, scenario.run.until) = (None, Some(until));
        }
        scenario.quantum = args.quantum.or(scenario.quantum);
        scenario.machine.cpus = args.cpus.unwrap_or(scenario.machine.cpus);
        scenario.seed = args.seed.unwrap_or(scenario.seed);
    }

    fn set_policy(&mut self, args: &PolicyArgs) -> Result<(), Failure> {
        if let Some(text) = &args.policy {
            self.decide_by(parse_policy(text)?);
        }
        if let Some(text) = &args.gate {
            self.scenario.gate =
                Some(parse_policy(text).map_err(|e| usage(e.text.replace("--policy", "--gate")))?);
            self.scenario.policy = PolicySpec::new("");
        }
        for pair in &args.param {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(usage(format!("--param {pair}: no value, expected key=value")));
            };
            let value = ParamValue::Text(value.trim().into());
            self.scenario.decider_mut().params.insert(key.trim().into(), value);
        }
        Ok(())
    }

    /// Has `policy` decide: a gate above a simulated kernel, anything else where the scenario has its decider.
    pub(super) fn decide_by(&mut self, policy: PolicySpec) {
        let is_gate = divvy_sim::policies::find(&policy.name).is_some_and(|info| info.kind == Kind::Gate);
        if is_gate && self.scenario.gate.is_none() {
            self.scenario.gate = Some(policy);
            self.scenario.policy = PolicySpec::new("");
        } else {
            *self.scenario.decider_mut() = policy;
        }
    }

    /// An error of this scenario, with the file and the line if it is in the file.
    pub(super) fn failure(&self, error: ScenarioError) -> Failure {
        match &self.file {
            Some((path, text, format)) => {
                Failure::new(Code::File, placed(path, &error.located(text, *format)))
            }
            None => usage(error),
        }
    }

    /// What a run answered, as a failure.
    pub(super) fn sim_failure(&self, error: SimError) -> Failure {
        match error {
            SimError::Scenario(error) => self.failure(error),
            SimError::Machine(error) => Failure::new(Code::Failed, error),
        }
    }
}

pub(super) fn usage(text: impl std::fmt::Display) -> Failure {
    Failure::new(Code::Usage, text)
}

/// `NAME` or `NAME:KEY=VALUE,...`.
pub(super) fn parse_policy(text: &str) -> Result<PolicySpec, Failure> {
    let policy: PolicySpec = text.parse().map_err(|error: String| usage(format!("--policy: {error}")))?;
    let name = &policy.name;
    if divvy_sim::policies::find(name).is_some() {
        return Ok(policy);
    }
    Err(usage(format!("--policy: {}", no_policy(name))))
}

/// What is said of a name that is no policy's: one that is like it, or all.
pub(super) fn no_policy(name: &str) -> String {
    let all = || divvy_sim::policies::all().map(|info| info.name);
    match nearest::hint(name, all()) {
        hint if hint.is_empty() => {
            format!(
                "no policy is called \"{name}\", expected one of {}",
                all().collect::<Vec<_>>().join(", ")
            )
        }
        hint => format!("no policy is called \"{name}\"{hint}"),
    }
}

fn quantum(args: &ScenarioArgs) -> divvy_sim::scenario::Span {
    args.quantum.unwrap_or(divvy_sim::scenario::Span(10_000_000))
}

/// Quanta of one cycle: the sum of shares.
fn one_cycle(args: &ScenarioArgs) -> u64 {
    args.shares.iter().fold(0u64, |sum, &share| sum.saturating_add(share)).max(1)
}

fn read_text(path: &Path) -> Result<String, Failure> {
    crate::trace_file::read_text(path, FILE_MAX).map_err(|error| crate::files::failed("read", path, &error))
}

/// `file:line: key: what`.
fn placed(path: &Path, error: &ScenarioError) -> String {
    let mut text = path.display().to_string();
    if let Some(line) = error.line {
        text += &format!(":{line}");
    }
    let key = error.key();
    if !key.is_empty() {
        text += &format!(": {key}");
    }
    format!("{text}: {}", error.message)
}

/// A policy with its parameters as the command line takes it.
pub(super) fn label(policy: &PolicySpec) -> String {
    policy.to_string()
}

/// Shares as people write them: `3:2:1`, the middle left out where there are many.
pub(super) fn shares_text(shares: &[u64]) -> String {
    const SHOWN: usize = 8;
    let text = |shares: &[u64]| shares.iter().map(u64::to_string).collect::<Vec<_>>().join(":");
    if shares.len() <= SHOWN + 1 {
        text(shares)
    } else {
        format!("{}:…:{}", text(&shares[..SHOWN - 1]), shares[shares.len() - 1])
    }
}

/// Whether the policy called `name` has a parameter called `key`.
pub(super) fn has_param(name: &str, key: &str) -> bool {
    let info: Option<&PolicyInfo> = divvy_sim::policies::find(name);
    info.is_some_and(|info| info.params.iter().any(|param| param.name == key))
}
