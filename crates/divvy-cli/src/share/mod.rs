//! `divvy share`: run commands and divide the CPU among them.

mod backend;
mod front;
mod link;
mod outlet;
pub(crate) mod report;
mod run;
mod screen;
mod shell;
mod showcase;
pub(crate) mod table;
mod tag;
mod tasks;
mod together;
mod trace;
mod verdict;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::IsTerminal as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use divvy_api::cpus::Keeper;
use divvy_engine::policies::{self, CYCLE_LONGEST, CYCLE_MAX, Chosen as Policy, GateSpec, KERNEL, SpecError};
use divvy_linux::cgroup::{Backend, Chosen};
use divvy_linux::front::{Leave, OpenFiles, Split, split};
use rustix::fs::OFlags;
use rustix::io::Errno;

pub(crate) use tasks::check_command;

use crate::args::ShareArgs;
use crate::{Code, Failure, capable, cpus, files, limit, nearest};

pub(crate) use backend::BackendArg;
pub(crate) use trace::TraceFormat;

pub(crate) fn run(args: Box<ShareArgs>) -> Result<Code, Failure> {
    if args.time.is_some_and(|time| time.is_zero()) {
        return Err(Failure::new(Code::Usage, "--for 0s: no time at all; give more than 0, or leave it out"));
    }
    let mut tasks = tasks::all(&args.tasks, args.file.as_deref())?;
    tasks::limit(&mut tasks, &args.limit)?;
    let limits: BTreeSet<u64> = tasks.iter().filter_map(|task| Some(task.limit?.ppm())).collect();
    limits.into_iter().for_each(|ppm| limit::warn(Some(ppm)));
    let cpus = tasks::keep_to(&mut tasks, &args.cpus)?;
    let divided = divvy_linux::cpus_to_divide(cpus)?; // Refused before anything is started.
    // Started, if need be, before there is a scheduler whose child it would be.
    let plan = together::Plan::make(&args, cpus.as_ref())?;
    if plan.is_some() {
        tasks::name_as_clients(&mut tasks);
    }
    let backend = backend::choose(&args, &tasks, plan.is_some())?;
    let status = plan.as_ref().map(|plan| &plan.status);
    let (by, all, used) = match status {
        Some(status) => (Keeper::Starter, &status.cpus, status.backend.used.as_str()),
        None => (Keeper::Run, &divided, backend.backend.name()),
    };
    for task in &tasks {
        let check = |mask| cpus::check(&format!("{}: cpus {mask}", task.name), mask, by, all, used);
        task.cpus.as_ref().map(check).transpose()?;
    }
    if !status.is_some_and(|status| status.backend.keeps_cpus) {
        let divided = status.map(|status| crate::cpus::to_start_on(&status.backend)).transpose()?.flatten();
        tasks.iter_mut().for_each(|task| task.keep_by_itself(divided));
    }
    if args.json || args.tag {
        // All would be lost at the end, or as it comes.
        divvy_linux::stdio::stdout().map_err(crate::not_written)?;
    }
    // The policy's parameters are checked before anything is touched: for one CPU, as for any number.
    let spec = gate_spec(&args, &backend, 1, plan.is_some());
    let policy = spec.parse().map_err(unusable)?;
    policy.make().map_err(unusable)?;
    policy
        .check_options(&[
            ("slice", args.slice.is_some()),
            ("presence", args.presence.is_some()),
            ("period", args.period.is_some()),
            ("unscaled", args.unscaled),
        ])
        .map_err(|e| Failure::new(Code::Usage, e))?;
    if plan.is_none() {
        check_cycle(&policy, &tasks)?;
    }
    // What cannot be written later is better known before anything runs.
    files::check_outputs(&[("--report", &args.report), ("--trace", &args.trace)], args.file.as_deref())?;
    let report = args.report.as_deref().map(create).transpose()?;
    let trace = args.trace.as_deref().map(create).transpose()?;
    // Where there is a table, or lines are tagged, commands print to the front end, which must go on reading if the
    // scheduler is killed.
    let table = shows_table(&args);
    let forwards = table || args.tag;
    let files = forwards.then(OpenFiles::raise).and_then(Result::ok);
    let pipes = forwards.then(|| pipes_of(&args, &tasks)).transpose()?;
    let leave = if args.keep_terminal { Leave::Group } else { Leave::Session };
    // SAFETY: no thread has been started; one that waits for this one to end (`main`) holds no lock.
    match unsafe { split(leave) }? {
        Split::Front(front) => {
            drop((tasks, report, trace));
            front::run(front, pipes.map(|(readers, _)| readers), table, plan.is_some())
        }
        Split::Scheduler(link) => {
            if let Some(files) = files {
                files.restore();
            }
            let writers = pipes.map(|(_, writers)| writers);
            run::Run::start(&args, tasks, cpus, backend, trace, plan, run::Ends { link, writers, table })?
                .finish(report)
        }
    }
}

/// What is wrong with a policy, and which one may have been meant.
fn unusable(e: SpecError) -> Failure {
    let hint = match &e {
        SpecError::UnknownPolicy(name) => nearest::hint(name, policies::live().map(|info| info.name)),
        _ => String::new(),
    };
    Failure::new(Code::Usage, format!("{e}{hint}"))
}

fn shows_table(args: &ShareArgs) -> bool {
    !args.quiet && !args.json && std::io::stderr().is_terminal() && !capable::is_dumb()
}

/// A pipe for each stream of each command that is tagged or would go to the terminal: the front end's ends, and those of the
/// commands, one for each task.
fn pipes_of(args: &ShareArgs, tasks: &[tasks::Task]) -> Result<(screen::Pipes, Vec<run::Streams>), Failure> {
    let (mut pipes, mut writers) = (screen::Pipes::default(), Vec::new());
    // Standard output is the report's alone.
    let out = if args.json { screen::To::Err } else { screen::To::Out };
    let names = tasks.iter().filter(|task| task.selector().is_none()).map(|task| task.name.as_str());
    let mut tags = args.tag.then(|| tag::tags(names)).into_iter().flatten();
    for task in tasks {
        let no_pipe = |e| Failure::new(Code::System, format!("open a pipe for {}: {e}", task.name));
        writers.push(match task.selector() {
            Some(_) => (None, None),
            None => pipes.for_command(out, tags.next()).map_err(no_pipe)?,
        });
    }
    Ok((pipes, writers))
}

/// Opens a file to be written. A fifo that nobody reads would have us wait, for ever perhaps, before anything runs.
fn create(path: &Path) -> Result<(File, String), Failure> {
    files::check_dir(path)?;
    let name = path.display();
    let failed = |e: std::io::Error| {
        if e.raw_os_error() == Some(Errno::NXIO.raw_os_error()) {
            let text = format!("create {name}: it is a fifo that nobody reads; start its reader first");
            return Failure::new(Code::File, text);
        }
        files::failed("create", path, &e)
    };
    let mut options = File::options();
    let nonblocking = OFlags::NONBLOCK.bits() as i32;
    let file = options
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(nonblocking)
        .open(path)
        .map_err(failed)?;
    // Whoever writes waits for its reader: a thread of its own, or one that has nothing else to do.
    rustix::io::ioctl_fionbio(&file, false).map_err(|e| failed(e.into()))?;
    Ok((file, name.to_string()))
}

fn check_cycle(policy: &Policy, tasks: &[tasks::Task]) -> Result<(), Failure> {
    let shares: Vec<u64> = tasks.iter().map(|t| t.share.get()).collect();
    // Dispatchers know no cycle.
    let cycle = policy.cycle(&shares).unwrap_or(0);
    if cycle > u128::from(CYCLE_MAX.0) {
        let text = format!(
            "shares of {} in all at a quantum of {}: a cycle of {} hours; use smaller shares or a shorter quantum",
            shares.iter().sum::<u64>(),
            humantime::format_duration(Duration::from_nanos(policy.spec().quantum_ns)),
            cycle / Duration::from_secs(3600).as_nanos()
        );
        return Err(Failure::new(Code::Usage, text));
    }
    Ok(())
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// `together`: divvyd decides, and the run's own policy holds nobody.
fn gate_spec(args: &ShareArgs, backend: &Chosen, cpus: u32, together: bool) -> GateSpec {
    let default = GateSpec::default();
    if together {
        // Its cycles mean nothing, and so need no looks at the clients.
        let quantum_ns = Duration::from_secs(10).as_nanos() as u64;
        return GateSpec { policy: KERNEL.to_owned(), quantum_ns, cpus, cycle_ns_max: None, ..default };
    }
    let policy = match backend.backend {
        Backend::Cgroup => KERNEL.to_owned(),
        Backend::Signals | Backend::Freezer | Backend::Idle => {
            args.policy.clone().unwrap_or_else(|| default.policy.clone())
        }
    };
    GateSpec {
        policy,
        quantum_ns: args.quantum.map_or(default.quantum_ns, nanos),
        cpus,
        scale_shares: !args.unscaled,
        slice_ns: args.slice.map(nanos),
        share_ns: None,
        // Who says what a share is worth means it.
        cycle_ns_max: if args.quantum.is_none() { Some(CYCLE_LONGEST.0) } else { None },
        presence: args.presence.unwrap_or(default.presence),
        period_ns: args.period.map_or(default.period_ns, nanos),
    }
}
