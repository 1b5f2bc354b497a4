//! `--backend`: by what a run's clients are held or weighed, and what is told of it.

use clap::ValueEnum;
use divvy_api::types::Status;
use divvy_engine::policies::KERNEL;
use divvy_linux::cgroup::{Asked, Backend, Chosen, Lifetime, Refused, Wish};
use serde::Serialize;

use super::tasks::Task;
use crate::args::ShareArgs;
use crate::{Code, Failure};

/// What `--backend` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendArg {
    /// SIGSTOP and SIGCONT: needs nothing
    Signals,
    /// cgroup.freeze: parents, terminals and handlers do not see it
    Freezer,
    /// The kernel's CPU weights: nobody is ever held
    Cgroup,
    /// cgroup, else freezer, else signals
    Auto,
    /// Signals where all compute, cpu.idle beside somebody who sleeps now and then
    Idle,
}

/// The back end's part of the report.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BackendReport {
    asked: &'static str,
    used: String,
    why: String,
    /// What each client's cgroup weighs, in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    weights: Option<Vec<u64>>,
    /// The largest relative deviation of the weights from the shares.
    #[serde(skip_serializing_if = "Option::is_none")]
    weights_deviation: Option<f64>,
    #[serde(skip)]
    backend: Backend,
}

/// The back end for these tasks on this machine. Where they are divided `together` with others, no task is held or weighed by this
/// run.
///
/// # Errors
/// Where one was asked for by name that does not go with the other arguments, or that the machine does not have.
pub(super) fn choose(args: &ShareArgs, tasks: &[Task], together: bool) -> Result<Chosen, Failure> {
    if args.policy.as_deref().is_some_and(|p| p.split(':').next() == Some(KERNEL)) {
        let text =
            format!("--policy {KERNEL}: holds nobody, and comes with --backend cgroup; give that instead");
        return Err(Failure::new(Code::Usage, text));
    }
    let asked = match args.backend {
        None if together => Asked::Signals,
        None => Asked::Nothing,
        Some(BackendArg::Signals) => Asked::Signals,
        Some(BackendArg::Freezer) => Asked::Freezer,
        Some(BackendArg::Idle) => Asked::Idle,
        Some(BackendArg::Cgroup) => Asked::Cgroup,
        Some(BackendArg::Auto) => Asked::Auto,
    };
    let shares: Vec<u64> = tasks.iter().map(|task| task.share.get()).collect();
    let attached = tasks.iter().find_map(Task::selector).map(ToString::to_string);
    let policy = args.policy.as_deref();
    let limited = tasks.iter().any(|task| task.limit.is_some());
    let wish = Wish { asked, policy, attached: attached.as_deref(), shares: &shares, limited };
    divvy_linux::cgroup::choose_here(&wish, Lifetime::Run).map_err(|refused| match refused {
        Refused::Usage(text) => Failure::new(Code::Usage, text),
        Refused::Machine(text) => Failure::new(Code::System, text),
    })
}

/// What was chosen, for one who left the choice to divvy.
pub(super) fn choice(asked: Option<BackendArg>, chosen: &Chosen) -> Option<String> {
    (asked == Some(BackendArg::Auto)).then(|| format!("backend {}: {}", chosen.backend, chosen.why))
}

impl BackendReport {
    pub(super) fn new(asked: Option<BackendArg>, chosen: &Chosen) -> Self {
        Self {
            asked: match asked {
                None => "default",
                Some(BackendArg::Signals) => "signals",
                Some(BackendArg::Freezer) => "freezer",
                Some(BackendArg::Cgroup) => "cgroup",
                Some(BackendArg::Auto) => "auto",
                Some(BackendArg::Idle) => "idle",
            },
            used: chosen.backend.name().to_owned(),
            why: chosen.why.clone(),
            weights: chosen.weights.as_ref().map(|w| w.values.clone()),
            weights_deviation: chosen.weights.as_ref().map(|w| w.deviation_ppm as f64 / 1e6),
            backend: chosen.backend,
        }
    }

    /// That of the divvyd that divided the tasks.
    pub(super) fn of_divvyd(status: &Status) -> Self {
        Self {
            asked: "default",
            used: status.backend.used.clone(),
            why: status.backend.why.clone(),
            weights: None,
            weights_deviation: None,
            backend: Backend::Signals,
        }
    }

    /// What is counted as `signals` in a report.
    pub(super) fn deeds(&self) -> &'static str {
        match self.backend {
            Backend::Freezer => "freezes and thaws",
            Backend::Idle => "signals and writes",
            Backend::Signals | Backend::Cgroup => "signals",
        }
    }

    /// A line of the summary, where there is something to be said.
    pub(super) fn line(&self) -> Option<String> {
        match (self.backend, self.asked) {
            // The summary has no word for what nobody asked for.
            (Backend::Signals, "signals") | (_, "default") => None,
            (Backend::Cgroup, _) => Some(format!(
                "backend cgroup ({}): the kernel divides, by weights of {:?}",
                self.why,
                self.weights.as_deref().unwrap_or_default()
            )),
            (backend, _) => Some(format!("backend {backend} ({})", self.why)),
        }
    }
}
