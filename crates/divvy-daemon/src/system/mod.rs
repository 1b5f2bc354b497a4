//! `divvyd --system`: one divvyd for everybody, run by root, which keeps the market.
//!
//! Three threads: the scheduler's, which waits for nobody; the API's, which serves everybody on a socket open to all and
//! knows by the kernel who asks; the market's, which owns what is kept on disk. They end in this order: the API refuses
//! whatever comes, the scheduler releases everybody, the market puts on disk what it has acknowledged.

pub(crate) mod in_force;
mod maintenance;
mod market_bridge;
mod notify;
mod place;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use divvy_engine::Session;
use divvy_engine::policies::GateSpec;
use divvy_linux::cgroup::{Backend, Means};
use divvy_linux::guard::CAPACITY;
use divvy_linux::{CpuMask, HostParams, LinuxHost, check_cpus};
use sd_notify::NotifyState;

use crate::backend::{self, BackendArg, Whose};
use crate::connection_limit::ConnectionLimit;
use crate::daemon::{Failure, Linger, Overrides, nanos};
use crate::kernel::{KERNEL_BACKEND, Keeper, Plan, check_policy};
use crate::limit::Limiter;
use crate::local::Local;
use crate::logs;
use crate::lookers::Lookers;
use crate::market::policy::Policy;
use crate::market::stats::Stats;
use crate::market::{self, StoreConfig};
use crate::message;
use crate::metrics::Metrics;
use crate::protect::Shelter;
use crate::routes::{Context, router};
use crate::scheduler::{End, Scheduler, Settings, Values};
use crate::server::Server;
use crate::subscribers::Subscribers;
use divvy_api::types::BackendInfo;
use in_force::InForce;
use maintenance::Maintenance;
pub(crate) use market_bridge::ToScheduler;
use notify::{Manager, Notifier};
use place::{POLICY_FILE, RUN_DIR, STATE_DIR, SystemPlace, SystemPlaceError, read_policy};

/// The codes of a market's file that is not what it should be, and of a system that refuses.
const FILE: u8 = 4;
const SYSTEM: u8 = 5;

/// Where a system's divvyd is, and how it logs.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SystemArgs {
    /// The directory of the socket, of --system
    #[arg(long, value_name = "DIR", default_value = RUN_DIR, conflicts_with = "user")]
    run_dir: PathBuf,

    /// The directory where the market is kept, of --system
    #[arg(long, value_name = "DIR", default_value = STATE_DIR, conflicts_with = "user")]
    state_dir: PathBuf,

    /// The administrator's policy (TOML), of --system; /etc/divvy/divvyd.toml if it is there
    #[arg(long, value_name = "FILE", conflicts_with = "user")]
    policy_file: Option<PathBuf>,

    /// The form of the log, of --system
    #[arg(long, value_name = "FORM", default_value = "text", conflicts_with = "user")]
    log_format: logs::Format,
}

/// The policy's file, and whether it has to be there.
#[derive(Clone, Debug)]
struct PolicyFile {
    path: PathBuf,
    has_to_be: bool,
}

/// A policy as it was read.
struct Read {
    policy: Policy,
    /// Whether there is a file; the defaults hold where there is none.
    is_there: bool,
}

impl PolicyFile {
    fn read(&self) -> Result<Read, SystemPlaceError> {
        let Some(text) = read_policy(&self.path, self.has_to_be)? else {
            return Ok(Read { policy: Policy::default(), is_there: false });
        };
        let wrong = |e: crate::market::policy::PolicyError| SystemPlaceError::Policy {
            path: self.path.clone(),
            why: e.to_string().trim_end().to_owned(),
        };
        Policy::parse(&text).map(|policy| Read { policy, is_there: true }).map_err(wrong)
    }
}

/// Serves everybody until it is told to end.
///
/// # Safety
/// To be called first in `main`: this process has one thread, and nobody owns a descriptor but the standard ones.
pub(crate) unsafe fn run(args: &SystemArgs, overrides: &Overrides) -> Result<ExitCode, Failure> {
    if !rustix::process::geteuid().is_root() {
        let text = "divvyd --system divides everybody's processes and has to be root's; \
                    start it as root, or your own with `divvyd --user`";
        return Err(Failure::system(text));
    }
    // SAFETY: by this function's own condition.
    let manager = unsafe { Manager::take() }.map_err(Failure::system)?;
    let file = PolicyFile {
        path: args.policy_file.clone().unwrap_or_else(|| POLICY_FILE.into()),
        has_to_be: args.policy_file.is_some(),
    };
    let in_force = Arc::new(InForce::new(file.path.clone()));
    let modified = in_force.modified();
    let Read { policy, is_there } = file.read().map_err(Failure::usage)?;
    in_force.took(is_there, modified, false);
    let (settings, means, kernel) = settings(&policy, overrides)?;
    let cpus = overrides.cpus.or(policy.scheduler.cpus);
    if let Some(cpus) = &cpus {
        let of = match overrides.cpus {
            Some(_) => "--cpus".to_owned(),
            None => format!("policy {}: [scheduler] cpus", file.path.display()),
        };
        check_cpus(cpus).map_err(|e| Failure::usage(format!("{of}: {e}")))?;
    }
    let place = SystemPlace::open_or_create(&args.run_dir, &args.state_dir).map_err(|e| match e {
        SystemPlaceError::Taken { .. } => Failure { code: 1, text: e.to_string() },
        e => Failure::system(e),
    })?;
    let everywhere = CpuMask::of_thread(rustix::process::getpid()).ok().flatten();
    let host = LinuxHost::with_means_in(&HostParams { cpus, capacity: CAPACITY }, means, place.run_dir());
    let host = host.map_err(Failure::system)?;
    // Its thread inherits that signals go to the scheduler.
    let own = CpuMask::of_thread(rustix::process::getpid()).ok().flatten();
    // The scheduler stays on the CPU that it divides, if that is one; who answers need not wait for the clients there.
    let _ = everywhere.map(|cpus| cpus.apply(rustix::process::getpid()));
    let log = logs::start(args.log_format);
    let path = file.path.display().to_string();
    let socket = manager.socket.is_none().then(|| place.run_dir().path().join(divvy_api::place::SOCKET));
    let begun =
        begin(host, place, manager, settings, (file, in_force), policy, overrides).and_then(|mut running| {
            let told = if is_there { "policy read" } else { "there is no such file: the defaults hold" };
            tracing::info!(policy = path, "{told}");
            if let Some(plan) = kernel {
                let failed = |e| Failure::system(format!("start a thread: {e}"));
                running.scheduler.set_kernel(Keeper::start(plan).map_err(failed)?);
            }
            Ok(running)
        });
    let _ = own.map(|cpus| cpus.apply(rustix::process::getpid()));
    if let (Err(_), Some(socket)) = (&begun, socket) {
        let _ = std::fs::remove_file(socket); // Whoever waits for it would find nobody.
    }
    let ended = begun.and_then(Running::run);
    if let Err(failure) = &ended {
        tracing::error!(code = failure.code, "{}", failure.text);
    }
    drop(log);
    ended.map_err(|failure| Failure { text: String::new(), ..failure })
}

/// How it schedules: as the command line says, else as the policy does.
fn settings(policy: &Policy, overrides: &Overrides) -> Result<(Settings, Means, Option<Plan>), Failure> {
    let terms = &policy.scheduler;
    let mut spec =
        GateSpec { policy: terms.policy.clone(), quantum_ns: nanos(terms.quantum).0, ..GateSpec::default() };
    // Under the kernel's scheduler the policy that is asked for is its own, and none of a gate's.
    let mut of_gate = overrides.clone();
    let by = overrides.backend.unwrap_or_default();
    let of_kernel = if by == BackendArg::Kernel { of_gate.policy.take() } else { None };
    of_kernel.as_deref().map_or(Ok(()), check_policy)?;
    of_gate.apply(&mut spec)?;
    spec.make().map_err(Failure::usage)?;
    let default = GateSpec::default().policy;
    let named = (terms.policy != default).then_some(terms.policy.as_str());
    let (means, mut backend) = backend::pick(&of_gate, Whose::System, named, &mut spec)?;
    let cpus = overrides.cpus.as_ref().or(terms.cpus.as_ref());
    let kernel = backend::plan_kernel(by, of_kernel.as_deref(), cpus, &means, &mut backend)?;
    let linger = overrides.linger.and_then(Linger::time);
    let options = overrides.told();
    Ok((Settings { spec, linger, reload: None, market: None, backend, options }, means, kernel))
}

/// A divvyd that serves.
struct Running {
    scheduler: Scheduler,
    server: Server,
    place: SystemPlace,
    /// The socket is the manager's, which listens on.
    activated: bool,
    notifier: Arc<Notifier>,
    market: market::Running,
    backend: BackendInfo,
}

fn begin(
    host: LinuxHost,
    place: SystemPlace,
    manager: Manager,
    mut settings: Settings,
    (file, in_force): (PolicyFile, Arc<InForce>),
    policy: Policy,
    overrides: &Overrides,
) -> Result<Running, Failure> {
    let rescued = host.rescued().resumed.len();
    if rescued > 0 {
        tracing::warn!(processes = rescued, "resumed what an earlier divvy had left suspended");
    }
    settings.spec.cpus = host.cpus().len() as u32;
    let values = Values::new(host.waker());
    let rights = [Backend::Cgroup.name(), KERNEL_BACKEND].contains(&settings.backend.used.as_str());
    let reload = Arc::new(tokio::sync::Notify::new());
    settings.reload = Some(Arc::clone(&reload));
    let shelter = Shelter::system(overrides.protect.clone(), policy.scheduler.protect.clone(), &file.path);
    let (handle, requests) = message::channel(host.waker());
    let Manager { notifier, socket, watchdog } = manager;
    let (notifier, activated) = (Arc::new(notifier), socket.is_some());
    let listener = match socket {
        Some(socket) => socket,
        None => place.listen().map_err(Failure::system)?,
    };
    let stats = Stats::default();
    let start = market::Start {
        stats: stats.clone(),
        feed: Box::new(ToScheduler { values: values.clone(), rights }),
        ..market::Start::at(StoreConfig::at(place.state_dir()), policy.clone())
    };
    let (to_market, market) = market::start(start).map_err(|e| {
        let code = if e.is_of_the_file() { FILE } else { SYSTEM };
        Failure { code, text: e.to_string() }
    })?;
    let recovered = market.recovered();
    tracing::info!(
        replayed = recovered.replayed,
        damaged_snapshots = recovered.damaged,
        clients = market.clients().len(),
        "the market is as it was acknowledged last"
    );
    let ends = (handle.clone(), to_market.clone());
    let known = market.clients().to_vec();
    let (terms, bridge, ready) =
        market_bridge::tie(&mut settings.spec, &policy, values, ends, known).map_err(Failure::usage)?;
    settings.market = Some(terms);
    let session = Session::new(&settings.spec, host).map_err(Failure::usage)?;
    let limiter = Limiter::new(policy.clone());
    let context = Context {
        scheduler: handle.clone(),
        local: Local::new(shelter.clone(), Some(Arc::clone(&in_force))),
        market: Some(to_market.clone()),
        rules: None,
        metrics: Metrics::new(Some(&stats)),
        ready: Some(ready),
        limiter: Some(limiter.clone()),
        lookers: Lookers::new(true),
        subscribers: Subscribers::default(),
    };
    let maintenance = Maintenance {
        scheduler: handle,
        market: to_market,
        notifier: Arc::clone(&notifier),
        watchdog,
        reload,
        file,
        in_force,
        begun_with: policy.clone(),
        policy,
        limiter,
        bridge,
    };
    let server = Server::start(listener, router(context), ConnectionLimit::of_system(), maintenance.run());
    let server = server.map_err(|e| {
        Failure::system(format!("start the thread of the API: {e}{}", divvy_linux::limit_fix(&e)))
    })?;
    let backend = settings.backend.clone();
    let scheduler = Scheduler::new(session, settings, shelter, requests);
    Ok(Running { scheduler, server, place, activated, notifier, market, backend })
}

impl Running {
    fn run(mut self) -> Result<ExitCode, Failure> {
        let enforced = self.scheduler.enforced();
        let told = |resource: &str| {
            enforced
                .iter()
                .find(|told| told.resource == resource)
                .map_or_else(String::new, ToString::to_string)
        };
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            run_dir = %self.place.run_dir().path().display(),
            state_dir = %self.place.state_dir().display(),
            backend = %self.backend.used,
            why = %self.backend.why,
            memory = told("memory"),
            disk = told("disk"),
            socket = if self.activated { "systemd's" } else { "own" },
            "serves"
        );
        self.notifier.tell(&[NotifyState::Ready]);
        let ended = self.scheduler.run();
        // While there are cgroups whose weights it follows.
        self.scheduler.let_go_of_kernel();
        self.notifier.tell(&[NotifyState::Stopping]);
        // Whoever asks from now on is told that we are ending.
        self.server.leave();
        if !self.activated {
            self.place.remove_socket();
        }
        drop(self.scheduler); // Everybody is released.
        self.server.stop();
        if self.market.is_over() {
            return Err(Failure::system(
                "the thread of the market has ended; what it acknowledged is on disk",
            ));
        }
        self.market.stop().map_err(Failure::system)?;
        match ended {
            Ok(End::Idle) => Ok(ExitCode::SUCCESS),
            Ok(End::Asked(signal)) => {
                tracing::info!("ended by {signal}; all clients run on, undivided");
                Ok(ExitCode::SUCCESS)
            }
            Ok(End::ApiGone) => Err(Failure::system("the thread of the API has ended")),
            Err(e) => Err(Failure::system(e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_that_is_not_there_is_known_to_be_none() {
        let dir = tempfile::tempdir().expect("a directory");
        let read = |has_to_be| PolicyFile { path: dir.path().join("divvyd.toml"), has_to_be }.read();
        let none = read(false).expect("none is needed");
        assert!(!none.is_there && none.policy == Policy::default());
        assert!(read(true).is_err_and(|e| e.to_string().contains("divvyd.toml")));
        std::fs::write(dir.path().join("divvyd.toml"), "").expect("written");
        // An empty one says the same, and is there.
        assert!(read(false).is_ok_and(|read| read.is_there && read.policy == Policy::default()));
    }
}
