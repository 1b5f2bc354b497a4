//! Many runs of one scenario: replications with other seeds, and the points of a grid.
//!
//! A study lists its runs as [`Item`]s that depend on nothing but themselves. The caller runs them, on as many threads
//! and in whatever order it likes, and hands the reports back: [`Study::merge`] gives the same answer in any order.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use crate::metrics::{Estimate, Welford};
use crate::output::{Report, csv_cell};
use crate::rng::replication_seed;
use crate::scenario::{Files, PolicyFactory, Scenario, ScenarioError, Seg, check};
use crate::simulate::{SimError, simulate};

/// The most points of a grid.
const POINTS_MAX: usize = 1_000_000;

/// The most runs: points times replications.
const RUNS_MAX: usize = 1_000_000;

/// All runs of a scenario.
#[derive(Clone, Debug)]
pub struct Study {
    points: Vec<Point>,
    replications: u32,
}

/// One point of the grid.
#[derive(Clone, Debug)]
struct Point {
    values: BTreeMap<String, Value>,
    scenario: Arc<Scenario>,
}

/// One run: a point of the grid and a replication.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its place among all items of the study, from 0.
    pub index: usize,
    /// The scenario, with the point's values filled in.
    pub scenario: Arc<Scenario>,
    /// The seed. Replication r has the same seed at every point: common random numbers sharpen comparisons.
    pub seed: u64,
}

impl Item {
    /// Runs it.
    ///
    /// # Errors
    /// As [`simulate`].
    pub fn run<F: PolicyFactory>(&self, files: Files<'_>, factory: &F) -> Result<Report, SimError> {
        simulate(&self.scenario, self.seed, files, factory)
    }
}

impl Study {
    /// The study that `scenario` describes: its grid times its replications. The last key of the grid varies fastest.
    ///
    /// # Errors
    /// [`ScenarioError`] where a value does not fit its key; the key is `sweep.` and the key in question.
    pub fn new(scenario: &Scenario) -> Result<Self, ScenarioError> {
        let mut plain = scenario.clone();
        plain.sweep = BTreeMap::new();
        let replications = plain.replications;
        let size = scenario.sweep.values().try_fold(1usize, |n, values| n.checked_mul(values.len()));
        if size.is_none_or(|size| size > POINTS_MAX) {
            return Err(ScenarioError::new("sweep", format!("more than {POINTS_MAX} points")));
        }
        let points = size.unwrap_or(usize::MAX);
        if points.saturating_mul(replications as usize) > RUNS_MAX {
            let message =
                format!("{replications} replications at {points} points: more than {RUNS_MAX} runs");
            return Err(ScenarioError::new("replications", message));
        }
        let base = serde_json::to_value(&plain).map_err(|e| ScenarioError::new("", e.to_string()))?;
        let mut grid: Vec<BTreeMap<String, Value>> = vec![BTreeMap::new()];
        for (key, values) in &scenario.sweep {
            let with = |point: &BTreeMap<String, Value>, value: &Value| {
                let mut point = point.clone();
                point.insert(key.clone(), value.clone());
                point
            };
            grid = grid.iter().flat_map(|point| values.iter().map(move |value| with(point, value))).collect();
        }
        let points = grid.into_iter().map(|values| point(&base, values)).collect::<Result<_, _>>()?;
        Ok(Self { points, replications })
    }

    /// Its runs, in the order of their indexes.
    pub fn items(&self) -> impl Iterator<Item = Item> {
        self.points.iter().enumerate().flat_map(move |(nr, point)| {
            (0..self.replications).map(move |replication| Item {
                index: nr * self.replications as usize + replication as usize,
                scenario: Arc::clone(&point.scenario),
                seed: replication_seed(point.scenario.seed, u64::from(replication)),
            })
        })
    }

    /// How many runs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.points.len() * self.replications as usize
    }

    /// Whether there is nothing to run. Never so for a study made from a scenario.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sums up reports, each with the index of its item, in any order.
    #[must_use]
    pub fn merge(&self, mut reports: Vec<(usize, Report)>) -> Summary {
        reports.sort_by_key(|(index, _)| *index);
        let rows = self.points.iter().enumerate().map(|(nr, point)| {
            let mut measures: BTreeMap<&'static str, Welford> = BTreeMap::new();
            let mut ended: BTreeMap<&'static str, u64> = BTreeMap::new();
            for (index, report) in &reports {
                if index / self.replications as usize == nr {
                    *ended.entry(report.ended).or_default() += 1;
                    for (name, x) in measures_of(report) {
                        measures.entry(name).or_default().push(x);
                    }
                }
            }
            SummaryRow {
                values: point.values.clone(),
                policy: point.scenario.decider().name.clone(),
                ended,
                measures: measures.into_iter().map(|(name, stats)| (name, stats.estimate().into())).collect(),
            }
        });
        Summary { points: rows.collect() }
    }
}

/// The scenario at one point of the grid.
fn point(base: &Value, values: BTreeMap<String, Value>) -> Result<Point, ScenarioError> {
    let mut filled = base.clone();
    for (key, value) in &values {
        let path = crate::scenario::parse_path(key);
        if !set(&mut filled, &path, value) {
            return Err(ScenarioError::new(&format!("sweep.{key}"), "there is no such key to vary"));
        }
    }
    let of_point = |key: String, message: String| {
        let shown: Vec<String> = values.iter().map(|(key, value)| format!("{key} = {value}")).collect();
        let place = if key.is_empty() { String::from("sweep") } else { format!("sweep.{key}") };
        ScenarioError::new(&place, format!("{message} (with {})", shown.join(", ")))
    };
    let scenario: Scenario = serde_path_to_error::deserialize(filled)
        .map_err(|error| of_point(error.path().to_string(), error.inner().to_string()))?;
    check(&scenario).map_err(|error| of_point(error.key(), error.message))?;
    Ok(Point { values, scenario: Arc::new(scenario) })
}

/// Sets the value at `path`; whether the table or list around it is there.
fn set(root: &mut Value, path: &[Seg], value: &Value) -> bool {
    let Some((first, rest)) = path.split_first() else {
        *root = value.clone();
        return true;
    };
    match (first, root) {
        (Seg::Key(key), Value::Object(table)) => {
            // A table that is left out while it is empty (a policy's params) comes into being with its first key.
            let inner = if rest.is_empty() { Value::Null } else { Value::Object(serde_json::Map::new()) };
            set(table.entry(key.clone()).or_insert(inner), rest, value)
        }
        (Seg::Index(index), Value::Array(list)) => {
            list.get_mut(*index).is_some_and(|at| set(at, rest, value))
        }
        _ => false,
    }
}

/// What is summed up of a report.
fn measures_of(report: &Report) -> Vec<(&'static str, f64)> {
    let mut out = vec![
        ("utilization", report.utilization),
        ("jain", report.fairness.jain),
        ("decisions", report.operations.decisions as f64),
        ("switches", report.operations.switches as f64),
    ];
    if let Some(gate) = report.gate {
        out.push(("own_cpu", gate.own_cpu));
        if let Some(error) = gate.cycle_error {
            out.push(("cycle_error_median", error.median));
            out.push(("cycle_error_mean", error.mean));
        }
    }
    if let Some(error) = report.service_error {
        out.push(("error_min", error.min.to_f64()));
        out.push(("error_max", error.max.to_f64()));
    }
    if let Some(responses) = report.responses.as_ref().filter(|responses| responses.count > 0) {
        out.push(("response_mean", responses.mean));
        out.push(("response_max", responses.max));
        out.push(("response_p95", responses.p95));
        out.push(("slowdown", responses.slowdown));
        out.push(("throughput", responses.throughput));
        if responses.count > 1 {
            out.push(("response_sd", responses.sd));
        }
    }
    out
}

/// A study's results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// One row a point of the grid.
    pub points: Vec<SummaryRow>,
}

/// The results at one point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SummaryRow {
    /// The point.
    pub values: BTreeMap<String, Value>,
    /// The policy's name.
    pub policy: String,
    /// How many replications ended in which way.
    pub ended: BTreeMap<&'static str, u64>,
    /// Means over replications.
    pub measures: BTreeMap<&'static str, Mean>,
}

/// A mean over replications with its 95 % confidence interval; the last two are null for one replication.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// Its standard deviation.
    pub standard_error: f64,
    /// Half the width of its 95 % confidence interval.
    pub half_width: f64,
    /// Replications.
    pub replications: u64,
}

impl From<Estimate> for Mean {
    fn from(estimate: Estimate) -> Self {
        Self {
            mean: estimate.mean,
            standard_error: estimate.standard_error,
            half_width: estimate.half_width,
            replications: estimate.samples,
        }
    }
}

impl Summary {
    /// One row for each point and measure, below a line of names.
    #[must_use]
    pub fn to_csv(&self) -> String {
        let keys: Vec<&String> =
            self.points.first().map(|row| row.values.keys().collect()).unwrap_or_default();
        let mut out = String::new();
        for key in &keys {
            out.push_str(&csv_cell(key));
            out.push(',');
        }
        out.push_str("policy,measure,mean,standard_error,half_width,replications\n");
        for row in &self.points {
            let mut point = String::new();
            for value in row.values.values() {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                point.push_str(&csv_cell(&text));
                point.push(',');
            }
            for (name, mean) in &row.measures {
                out.push_str(&format!(
                    "{point}{},{name},{},{},{},{}\n",
                    csv_cell(&row.policy),
                    mean.mean,
                    number(mean.standard_error),
                    number(mean.half_width),
                    mean.replications
                ));
            }
        }
        out
    }
}

/// A number, or nothing where there is none.
fn number(x: f64) -> String {
    if x.is_finite() { x.to_string() } else { String::new() }
}
