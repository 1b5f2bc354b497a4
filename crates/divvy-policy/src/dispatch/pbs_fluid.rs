//! The fluid PBS: what PBS does when quanta are infinitesimal (section 3 and appendix A.1).
//!
//! **Problem.** The properties of section 3.2 and the figures speak of processor shares at an instant, which no
//! schedule of quanta has. **Idea.** While a set of tasks stays *scheduled*, all of it has one priority, so service is
//! `S_k = T_k^(1/alpha) / sum T_i^(1/alpha) * sum S_i` (eq. 8), in closed form; only changes of the set need to be found.
//!
//! **Events.** An *arrival* joins at once (property 4) and may *interrupt* the older ones: all of them for alpha > 1.
//! Without an arrival the oldest may *drop* out where its share reaches 0 (alpha < 1, property 11), and a
//! non-scheduled task *joins* when its priority, growing linearly, meets that of the set.
//!
//! **Algorithm.** From event to event: steps that grow by 2% each look for the first change of sign, bisection finds it
//! to the last bit. Floats are inherent here: powers of T with real exponents. alpha = 0 (oldest takes all) and
//! alpha = infinity (the least served share equally) are exact cases of their own. Logarithms keep weights finite at
//! alpha = 0.01, where T^100 would not be.
//!
//! **Properties** (`tests/paper_pbs.rs`): `golden_fluid` within 1e-6; `properties_*`; `closed_forms`.
//!
//! **Weak spots.** A set that changes twice within 2% of the time since the last event keeps only the net change.
//! Against the paper: in Figure 3 with alpha = 0.4 task 1 drops out at 3.678 s and joins at 6.697 s, not "at 5 s", and
//! there is no interruption at all for alpha up to 1/3.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use super::float::{exp2, log2};
use crate::{Domain, PolicyInfo, param};

/// What `divvy policies` says of the fluid PBS.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "pbs-fluid",
    summary: "PBS with infinitesimal quanta: exact processor shares (a model, not a schedule)",
    complexity: "O(n^2) a step of the search for the next change of the set",
    source: "PBS, section 3 and appendix A.1",
    params: &[param!(
        "alpha",
        Domain::Form("0, inf, or 0.001 to 1000"),
        "1",
        "weight of attained service against age"
    )],
    ..PolicyInfo::MODEL
};

/// A task of the fluid model. Times in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FluidTask {
    /// When it arrives, at least 0.
    pub arrival: f64,
    /// Service until it departs, above 0; infinite for a persistent task.
    pub demand: f64,
}

/// How the scheduled set changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetChange {
    /// A task that was not scheduled is again.
    Join,
    /// A task lost its share by and by.
    Drop,
    /// A task lost its share to an arrival.
    Interrupt,
}

/// One change of the scheduled set. Arrivals and departures are not listed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SetEvent {
    /// When, in seconds.
    pub at: f64,
    /// What.
    pub change: SetChange,
    /// Index of the task.
    pub task: usize,
}

/// Why a model cannot be made.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum FluidError {
    /// alpha must be 0, infinite, or 1e-3 to 1e3.
    Alpha(f64),
    /// An arrival is negative or not finite.
    Arrival(usize),
    /// A demand is not above 0.
    Demand(usize),
}

impl fmt::Display for FluidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alpha(alpha) => write!(f, "alpha is {alpha}; must be 0, inf, or 0.001 to 1000"),
            Self::Arrival(task) => write!(f, "arrival of task {task} must be at least 0 and finite"),
            Self::Demand(task) => write!(f, "demand of task {task} must be above 0"),
        }
    }
}

impl core::error::Error for FluidError {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    ToCome,
    Waiting,
    Scheduled,
    Departed,
}

#[derive(Clone, Copy, Debug)]
struct State {
    task: FluidTask,
    phase: Phase,
    service: f64,
    completion: Option<f64>,
}

/// First step of the search after an event, relative to the largest time in play.
const FIRST_STEP: f64 = 1e-10;
/// Growth of the steps.
const STEP_GROWTH: f64 = 1.02;
/// Below this a share is taken for zero, and a set for unchanged: rounding in eq. 10 is far smaller.
const SHARE_ZERO: f64 = 1e-11;

/// The fluid model, advanced by the caller.
///
/// ```
/// use divvy_policy::dispatch::pbs_fluid::{FluidPbs, FluidTask};
/// // Two tasks of 2 s, a second apart, alpha = 1: S_1 = t^2 / (2t - 1), so the first ends at 2 + sqrt(2).
/// let task = |arrival| FluidTask { arrival, demand: 2.0 };
/// let mut fluid = FluidPbs::new(1.0, &[task(0.0), task(1.0)])?;
/// fluid.advance(10.0);
/// assert!((fluid.completion(0).unwrap() - (2.0 + 2f64.sqrt())).abs() < 1e-9);
/// assert!((fluid.completion(1).unwrap() - 4.0).abs() < 1e-9);
/// # Ok::<(), divvy_policy::dispatch::pbs_fluid::FluidError>(())
/// ```
#[derive(Clone, Debug)]
pub struct FluidPbs {
    alpha: f64,
    now: f64,
    states: Vec<State>,
    events: Vec<SetEvent>,
}

impl FluidPbs {
    /// The model at time 0, before any arrival.
    ///
    /// # Errors
    /// [`FluidError`] where alpha, an arrival or a demand is impossible.
    pub fn new(alpha: f64, tasks: &[FluidTask]) -> Result<Self, FluidError> {
        if !(alpha == 0.0 || alpha == f64::INFINITY || (1e-3..=1e3).contains(&alpha)) {
            return Err(FluidError::Alpha(alpha));
        }
        for (i, task) in tasks.iter().enumerate() {
            if !(task.arrival >= 0.0 && task.arrival.is_finite()) {
                return Err(FluidError::Arrival(i));
            }
            if task.demand.is_nan() || task.demand <= 0.0 {
                return Err(FluidError::Demand(i));
            }
        }
        let state = |&task| State { task, phase: Phase::ToCome, service: 0.0, completion: None };
        let states = tasks.iter().map(state).collect();
        let mut model = Self { alpha, now: 0.0, states, events: vec![] };
        model.arrive();
        Ok(model)
    }

    /// The present time, in seconds.
    #[must_use]
    pub fn now(&self) -> f64 {
        self.now
    }

    /// Service of `task` so far, in seconds.
    #[must_use]
    pub fn service(&self, task: usize) -> f64 {
        self.states[task].service
    }

    /// When `task` departed, if it has.
    #[must_use]
    pub fn completion(&self, task: usize) -> Option<f64> {
        self.states[task].completion
    }

    /// Whether `task` is scheduled: gets a positive share right after now (an oldest task whose share only touches zero counts).
    #[must_use]
    pub fn is_scheduled(&self, task: usize) -> bool {
        self.states[task].phase == Phase::Scheduled
    }

    /// Whether `task` has arrived and not departed.
    #[must_use]
    pub fn is_active(&self, task: usize) -> bool {
        matches!(self.states[task].phase, Phase::Scheduled | Phase::Waiting)
    }

    /// log2 of the priority `T / S^alpha` of an active `task`; infinite where S = 0, or alpha is infinite.
    #[must_use]
    pub fn priority(&self, task: usize) -> f64 {
        self.priority_at(task, self.states[task].service, self.now)
    }

    /// The processor share of `task` right after now (eq. 10), 0 to 1.
    #[must_use]
    pub fn share(&self, task: usize) -> f64 {
        let set = self.set();
        let shares = self.shares(&set, self.now);
        set.iter().position(|&i| i == task).map_or(0.0, |at| shares[at].clamp(0.0, 1.0))
    }

    /// Changes of the scheduled set so far.
    #[must_use]
    pub fn events(&self) -> &[SetEvent] {
        &self.events
    }

    /// Moves on to `until` (seconds), through all arrivals, departures and changes of the set on the way. No effect if that is past.
    pub fn advance(&mut self, until: f64) {
        while self.now < until {
            let arrivals = self.states.iter().filter(|s| s.phase == Phase::ToCome).map(|s| s.task.arrival);
            let end = arrivals.fold(until, f64::min);
            if self.set().is_empty() {
                self.now = end;
            } else {
                self.advance_set(end);
            }
            self.arrive();
        }
    }

    fn set(&self) -> Vec<usize> {
        (0..self.states.len()).filter(|&i| self.states[i].phase == Phase::Scheduled).collect()
    }

    fn sojourn(&self, task: usize, at: f64) -> f64 {
        at - self.states[task].task.arrival
    }

    fn priority_at(&self, task: usize, service: f64, at: f64) -> f64 {
        if self.alpha == 0.0 {
            return log2(self.sojourn(task, at));
        }
        if service <= 0.0 { f64::INFINITY } else { log2(self.sojourn(task, at)) - self.alpha * log2(service) }
    }

    fn is_limit(&self) -> bool {
        self.alpha == 0.0 || self.alpha.is_infinite()
    }

    /// `T_k^(1/alpha) / sum`, by way of logarithms; equal where every T is 0.
    fn weights(&self, set: &[usize], at: f64) -> Vec<f64> {
        if self.is_limit() {
            return vec![1.0 / set.len() as f64; set.len()];
        }
        let mut w: Vec<f64> = set.iter().map(|&i| log2(self.sojourn(i, at)) / self.alpha).collect();
        let max = w.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if max == f64::NEG_INFINITY {
            return vec![1.0 / set.len() as f64; set.len()];
        }
        let mut sum = 0.0;
        for x in &mut w {
            *x = exp2(*x - max);
            sum += *x;
        }
        w.iter().map(|x| x / sum).collect()
    }

    /// Total service of the set at `at`, which is not before now.
    fn total(&self, set: &[usize], at: f64) -> f64 {
        set.iter().map(|&i| self.states[i].service).sum::<f64>() + (at - self.now)
    }

    /// Service of each of the set at `at` (eq. 8); equal steps from the present in the limits of alpha.
    fn services(&self, set: &[usize], at: f64) -> Vec<f64> {
        if self.is_limit() {
            let each = (at - self.now) / set.len() as f64;
            return set.iter().map(|&i| self.states[i].service + each).collect();
        }
        let total = self.total(set, at);
        self.weights(set, at).iter().map(|w| w * total).collect()
    }

    /// Shares of the set at `at`, as eq. 10 has them: negative for a task that must leave the set.
    ///
    /// With w_k the weights and C the total, `S_k' = w_k (1 + C/alpha (1/T_k - sum w_i/T_i))`.
    fn shares(&self, set: &[usize], at: f64) -> Vec<f64> {
        let weights = self.weights(set, at);
        if self.is_limit() || set.len() == 1 {
            return weights;
        }
        let newest = set.iter().map(|&i| self.sojourn(i, at)).fold(f64::INFINITY, f64::min);
        let total = self.total(set, at);
        let oldest = set.iter().map(|&i| self.sojourn(i, at)).fold(0.0, f64::max);
        if oldest <= 0.0 {
            return weights;
        }
        if newest > 0.0 {
            let rate: f64 = set.iter().zip(&weights).map(|(&i, w)| w / self.sojourn(i, at)).sum();
            let share =
                |(&i, w): (&usize, &f64)| w * (1.0 + total / self.alpha * (1.0 / self.sojourn(i, at) - rate));
            return set.iter().zip(&weights).map(share).collect();
        }
        self.shares_at_arrival(set, at, &weights, total)
    }

    /// The limit of [`shares`](Self::shares) at the moment at which some of the set arrive. Their w/T tends to 0 for
    /// alpha < 1, to the reciprocal of the others' sum of T for alpha = 1, to infinity for alpha > 1.
    fn shares_at_arrival(&self, set: &[usize], at: f64, weights: &[f64], total: f64) -> Vec<f64> {
        let is_new = |i: usize| self.sojourn(i, at) <= 0.0;
        let nr_new = set.iter().filter(|&&i| is_new(i)).count() as f64;
        if self.alpha > 1.0 {
            return set.iter().map(|&i| if is_new(i) { 1.0 / nr_new } else { -1.0 }).collect();
        }
        let old = || set.iter().zip(weights).filter(|&(&i, _)| !is_new(i));
        let sum_t: f64 = old().map(|(&i, _)| self.sojourn(i, at)).sum();
        let each_new = if self.alpha < 1.0 { 0.0 } else { 1.0 / sum_t };
        let rate = old().map(|(&i, w)| w / self.sojourn(i, at)).sum::<f64>() + nr_new * each_new;
        let share = |(&i, w): (&usize, &f64)| {
            if is_new(i) {
                total / self.alpha * each_new
            } else {
                w * (1.0 + total / self.alpha * (1.0 / self.sojourn(i, at) - rate))
            }
        };
        set.iter().zip(weights).map(share).collect()
    }

    /// Takes in who arrives now, and whom that interrupts.
    fn arrive(&mut self) {
        let arrived = if self.is_limit() { Phase::Waiting } else { Phase::Scheduled };
        let mut any = false;
        for state in &mut self.states {
            if state.phase == Phase::ToCome && state.task.arrival <= self.now {
                state.phase = arrived;
                any = true;
            }
        }
        if !any {
            return;
        }
        if self.is_limit() {
            self.select_limit_set();
            return;
        }
        let mut gone = vec![];
        loop {
            let set = self.set();
            let shares = self.shares(&set, self.now);
            let negative = set.iter().zip(&shares).filter(|&(_, &s)| s < -SHARE_ZERO);
            // The oldest first; the set that is left may then be large enough for the next.
            let oldest =
                |a: &usize, b: &usize| self.states[*a].task.arrival.total_cmp(&self.states[*b].task.arrival);
            let Some(task) = negative.map(|(&i, _)| i).min_by(oldest) else { break };
            self.states[task].phase = Phase::Waiting;
            gone.push(task);
        }
        for &task in gone.iter().rev() {
            self.events.push(SetEvent { at: self.now, change: SetChange::Interrupt, task });
        }
    }

    /// Chooses who is scheduled where alpha is a limit: the oldest, or all of the least served.
    fn select_limit_set(&mut self) {
        let active: Vec<usize> = (0..self.states.len()).filter(|&i| self.is_active(i)).collect();
        for &i in &active {
            self.states[i].phase = Phase::Waiting;
        }
        if self.alpha == 0.0 {
            let oldest = active
                .iter()
                .copied()
                .min_by(|&a, &b| self.states[a].task.arrival.total_cmp(&self.states[b].task.arrival));
            if let Some(i) = oldest {
                self.states[i].phase = Phase::Scheduled;
            }
            return;
        }
        let least = active.iter().map(|&i| self.states[i].service).fold(f64::INFINITY, f64::min);
        for &i in &active {
            // Services that met are set equal where they meet, so that rounding cannot part them.
            if self.states[i].service <= least + SHARE_ZERO * (1.0 + least) {
                self.states[i].phase = Phase::Scheduled;
                self.states[i].service = least;
            }
        }
    }

    /// Moves the set on to `end` or to its first change, whichever comes first.
    fn advance_set(&mut self, end: f64) {
        let set = self.set();
        let start = self.now;
        // Everyone finite is done after this long; persistent sets run to `end`.
        let scale = end.max(1e-3);
        let mut low = start;
        let mut step = FIRST_STEP * scale;
        let mut at = end;
        let mut changed = false;
        while low < end {
            let high = (low + step).min(end);
            if self.has_changed(&set, high) {
                at = self.bisect(&set, low, high);
                changed = true;
                break;
            }
            low = high;
            step = (step * STEP_GROWTH).max((high - start) * (STEP_GROWTH - 1.0));
        }
        let services = self.services(&set, at);
        let leaving = if changed { self.leavers(&set, at) } else { vec![] };
        let joining = if changed { self.joiners(&set, at) } else { vec![] };
        for (&i, service) in set.iter().zip(services) {
            self.states[i].service = service;
        }
        self.now = at;
        if changed {
            self.apply(&set, &leaving, joining);
        }
    }

    fn apply(&mut self, set: &[usize], leaving: &[usize], mut joining: Vec<usize>) {
        let mut departed = false;
        for &i in set {
            let state = &mut self.states[i];
            if state.service >= state.task.demand {
                state.service = state.task.demand;
                state.phase = Phase::Departed;
                state.completion = Some(self.now);
                departed = true;
            }
        }
        if self.is_limit() {
            self.select_limit_set();
            return;
        }
        for &task in leaving {
            if self.states[task].phase == Phase::Scheduled {
                self.states[task].phase = Phase::Waiting;
                self.events.push(SetEvent { at: self.now, change: SetChange::Drop, task });
            }
        }
        // One at a time, the youngest first (property 9): where alpha is just above 1 several meet the set within one
        // unit in the last place of t, and each that joins may leave no share to the next.
        joining.sort_by(|&a, &b| self.states[b].task.arrival.total_cmp(&self.states[a].task.arrival));
        for task in joining {
            let mut with = self.set();
            with.push(task);
            if self.shares(&with, self.now).last().is_none_or(|&share| share <= 0.0) {
                continue;
            }
            self.states[task].phase = Phase::Scheduled;
            self.events.push(SetEvent { at: self.now, change: SetChange::Join, task });
        }
        if departed && self.set().is_empty() {
            self.resume_best();
        }
    }

    /// After the whole set departed: schedules the waiting tasks of the greatest priority.
    fn resume_best(&mut self) {
        let waiting: Vec<usize> = (0..self.states.len()).filter(|&i| self.is_active(i)).collect();
        let best = waiting.iter().map(|&i| self.priority(i)).fold(f64::NEG_INFINITY, f64::max);
        for i in waiting {
            if self.priority(i) >= best - SHARE_ZERO {
                self.states[i].phase = Phase::Scheduled;
                self.events.push(SetEvent { at: self.now, change: SetChange::Join, task: i });
            }
        }
    }

    fn bisect(&self, set: &[usize], mut low: f64, mut high: f64) -> f64 {
        loop {
            let middle = low + (high - low) / 2.0;
            if middle <= low || middle >= high {
                return high;
            }
            if self.has_changed(set, middle) {
                high = middle;
            } else {
                low = middle;
            }
        }
    }

    fn has_changed(&self, set: &[usize], at: f64) -> bool {
        let served = |(&i, s): (&usize, f64)| s >= self.states[i].task.demand;
        set.iter().zip(self.services(set, at)).any(served)
            || !self.leavers(set, at).is_empty()
            || !self.joiners(set, at).is_empty()
    }

    /// Who of the set has no share left at `at`: the oldest, if anyone (property 9).
    fn leavers(&self, set: &[usize], at: f64) -> Vec<usize> {
        // For alpha >= 1 nobody drops out (property 10, appendix A.2).
        if self.alpha >= 1.0 || self.is_limit() || set.len() < 2 {
            return vec![];
        }
        let shares = self.shares(set, at);
        set.iter().zip(shares).filter(|&(_, s)| s < -SHARE_ZERO).map(|(&i, _)| i).collect()
    }

    /// Which waiting tasks have reached the priority of the set at `at`.
    fn joiners(&self, set: &[usize], at: f64) -> Vec<usize> {
        if self.alpha == 0.0 {
            return vec![];
        }
        let waiting = (0..self.states.len()).filter(|&i| self.states[i].phase == Phase::Waiting);
        if self.alpha.is_infinite() {
            let level = self.services(set, at)[0];
            return waiting.filter(|&i| self.states[i].service <= level).collect();
        }
        let services = self.services(set, at);
        // The set's members agree; the oldest has the least rounding.
        let (oldest, service) = set
            .iter()
            .zip(services)
            .min_by(|(a, _), (b, _)| self.states[**a].task.arrival.total_cmp(&self.states[**b].task.arrival))
            .map_or((0, 0.0), |(&i, s)| (i, s));
        let level = self.priority_at(oldest, service, at);
        // Who has just dropped out is level with the set, up to rounding; it joins only where it would have a share.
        let reaches = |&i: &usize| {
            self.priority_at(i, self.states[i].service, at) >= level && {
                let mut with: Vec<usize> = set.to_vec();
                with.push(i);
                self.shares(&with, at).last().is_some_and(|&share| share > 0.0)
            }
        };
        waiting.filter(reaches).collect()
    }
}
