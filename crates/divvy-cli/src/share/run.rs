//! One run from its first command to its report.

use std::cell::RefCell;
use std::fs::File;
use std::io::{IsTerminal as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, channel};

use divvy_api::runs::ShareRun;
use divvy_api::types::{Bounds, Client};
use divvy_engine::{
    ClientLedger, ClientState, EngineError, Exit, Host as _, HostError, Recorder, Session, Standing,
};
use divvy_linux::cgroup::Chosen;
use divvy_linux::front::Link;
use divvy_linux::{Asked, Command, CpuMask, CpuTimes, HostParams, LinuxHost, Signal, clock};
use divvy_policy::{ClientId, CpuLimit, Instant, Nanos, Share};

use super::backend::{self, BackendReport};
use super::link::{FrontEnd, Told};
use super::outlet::Outlet;
use super::report::{self, ClientReport, REPORT_VERSION, Report, TogetherReport};
use super::showcase::Showcase;
use super::table::{self, Row};
use super::tasks::{self, Task, What};
use super::together::{self, Plan, Together};
use super::trace::{self, Failed, TraceFile};
use super::{gate_spec, nanos, verdict};
use crate::args::ShareArgs;
use crate::{Code, END_WAIT, Failure, capable, deliver, give_up_on_stderr, tell_in_time};

/// The table on a terminal is redrawn this often.
const REDRAW: Nanos = Nanos::from_millis(200);
/// Where there is no terminal, lines come this often.
const PLAIN: Nanos = Nanos::from_secs(5);
/// Bytes of such lines that may wait for whoever reads them.
const PLAIN_ROOM: usize = 64 * 1024;
/// Slots for members outside of their commands' process groups.
const SPARE_SLOTS: u32 = 16 * 1024;

pub(super) struct Run<'a> {
    args: &'a ShareArgs,
    tasks: Vec<Task>,
    engine: Session<LinuxHost>,
    front: FrontEnd,
    /// The front end draws a table.
    has_table: bool,
    /// Clients that Ctrl-Z suspended.
    suspended: Vec<ClientId>,
    /// Where there is no terminal: standard error, for as long as it is scheduled.
    plain: Option<Outlet>,
    /// What it did not take.
    plain_dropped: u64,
    started: Instant,
    /// What the CPUs had done before.
    times_before: Option<CpuTimes>,
    ended_by: Ended,
    /// The trace, once it has ended; dropped, it is written to its end.
    recording: Option<Box<dyn Recorder>>,
    trace_failed: Failed,
    trace_name: Option<String>,
    warnings: Vec<String>,
    backend: Chosen,
    /// Where `divvy ls` and `top` see it, unless they see the tasks as divvyd's clients.
    showcase: Option<Showcase>,
    /// The tasks as divvyd's clients, where it divides them.
    together: Option<Together>,
    /// What there is to be said of divvyd's clients, where it does not.
    neighbours: Option<Receiver<String>>,
}

/// Where a command's standard output and error go; ours if `None`.
pub(super) type Streams = (Option<OwnedFd>, Option<OwnedFd>);

/// What the front end has left to the scheduler.
pub(super) struct Ends {
    pub(super) link: Link,
    /// One for each task, where the front end forwards what they print.
    pub(super) writers: Option<Vec<Streams>>,
    /// The front end draws a table.
    pub(super) table: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Commands,
    Time,
    Signal(Asked),
}

/// What the commands that still run at the end are ended with.
const TERM: i32 = Signal::TERM.as_raw();
const KILL: i32 = Signal::KILL.as_raw();

fn no_thread(e: std::io::Error) -> Failure {
    Failure::new(Code::System, format!("start a thread: {e}"))
}

fn broken(e: EngineError) -> Failure {
    Failure::new(Code::System, e)
}

impl<'a> Run<'a> {
    /// Starts everything, held; on error nothing is left running.
    pub(super) fn start(
        args: &'a ShareArgs,
        tasks: Vec<Task>,
        cpus: Option<CpuMask>,
        backend: Chosen,
        trace: Option<(File, String)>,
        plan: Option<Plan>,
        ends: Ends,
    ) -> Result<Self, Failure> {
        let params = HostParams { cpus, capacity: tasks.len() as u32 + SPARE_SLOTS };
        let host = LinuxHost::with_means(&params, backend.means.clone())?;
        // Its threads have the signals blocked that the host takes.
        let front = FrontEnd::new(ends.link, host.waker(), ends.writers.is_some()).map_err(no_thread)?;
        let showcase = if plan.is_none() { Showcase::open(host.waker()) } else { None };
        let spec = gate_spec(args, &backend, host.cpus().len() as u32, plan.is_some());
        let mut engine = Session::new(&spec, host).map_err(|e| Failure::new(Code::Usage, e))?;
        let trace_failed = Rc::new(RefCell::new(None));
        let mut trace_name = None;
        if let Some((file, name)) = trace {
            let header = engine.header(tasks.iter().map(|t| t.name.clone()).collect());
            let failed: Failed = Rc::clone(&trace_failed);
            let outlet = Outlet::start("divvy-trace", file, trace::ROOM).map_err(no_thread)?;
            engine.record_to(Box::new(TraceFile::new(outlet, args.trace_format, &header, failed)));
            trace_name = Some(name);
        }
        let warnings = backend.warning().into_iter().collect();
        let (started, ended_by) = (clock::now(), Ended::Commands);
        let plain = None;
        let mut run = Self {
            args,
            tasks,
            engine,
            front,
            has_table: ends.table,
            suspended: Vec::new(),
            plain,
            plain_dropped: 0,
            started,
            times_before: None,
            ended_by,
            recording: None,
            trace_failed,
            trace_name,
            warnings,
            backend,
            showcase,
            together: None,
            neighbours: None,
        };
        if let Err(failure) = run.start_commands(ends.writers).and_then(|()| run.join_others(plan)) {
            run.kill_all();
            return Err(failure);
        }
        Ok(run)
    }

    fn start_commands(&mut self, writers: Option<Vec<Streams>>) -> Result<(), Failure> {
        // On one CPU sleepers gain by one session for all. On several an autogroup for each weighs more, beside strangers.
        let one_session = self.engine.host().cpus().len() == 1;
        if !one_session {
            self.front.leave_commands()?;
        }
        let thawed = self.engine.host().rescued().thawed;
        if thawed > 0 {
            let what = if thawed == 1 { "1 cgroup".to_owned() } else { format!("{thawed} cgroups") };
            self.warnings.push(format!("thawed {what} that an earlier divvy had left frozen"));
        }
        let rescued = self.engine.host().rescued().resumed.len();
        if rescued > 0 {
            let what = if rescued == 1 { "1 process".to_owned() } else { format!("{rescued} processes") };
            self.warnings.push(format!("resumed {what} that an earlier divvy had left suspended"));
        }
        if let Some(text) = backend::choice(self.args.backend, &self.backend)
            && self.tells()
        {
            tell_in_time(format_args!("divvy: {text}"));
        }
        // What cannot be attached is better known before anything runs.
        for selector in self.tasks.iter().filter_map(Task::selector) {
            self.engine.host().can_attach(selector)?;
        }
        self.started = clock::now();
        self.times_before = CpuTimes::read(self.engine.host().cpus()).ok();
        let mut writers = writers.into_iter().flatten();
        for i in 0..self.tasks.len() {
            let streams = writers.next();
            let task = self.tasks[i].clone();
            let start = match task.what {
                What::Command(command) => command,
                What::Attach(selector) => {
                    let client = self.engine.host_mut().attach(&selector)?;
                    self.join(task.share, task.limit)?;
                    if self.engine.host().nr_members(client) == 0 && self.tells() {
                        tell_in_time(crate::remote::nobody_yet(&task.name));
                    }
                    continue;
                }
            };
            let no_pipe = |e| Failure::new(Code::System, format!("open a descriptor for {}: {e}", task.name));
            let (stdout, stderr) = match streams {
                Some(streams) => streams,
                // Standard output is the report's alone.
                None if self.args.json => {
                    (Some(std::io::stderr().as_fd().try_clone_to_owned().map_err(no_pipe)?), None)
                }
                None => (None, None),
            };
            let own_session = !self.args.keep_terminal && !one_session;
            let tasks::Command { argv, dir, env, cpus } = start;
            let command = Command { argv, dir, env, stdout, stderr, cpus, own_session };
            self.engine.host_mut().spawn(command)?;
            self.join(task.share, task.limit)?;
        }
        self.front.leave_commands()?;
        if !self.has_table
            && let Ok(stderr) = std::io::stderr().as_fd().try_clone_to_owned()
        {
            self.plain =
                Some(Outlet::start("divvy-plain", File::from(stderr), PLAIN_ROOM).map_err(no_thread)?);
        }
        self.engine.serve().map_err(broken)
    }

    /// Has divvyd divide the tasks, where there is a `plan` for that; else finds out whether there is one whose clients are in the way.
    fn join_others(&mut self, plan: Option<Plan>) -> Result<(), Failure> {
        let waker = self.engine.host().waker();
        if let Some(plan) = plan {
            // Everybody is released, and what holds them from here on is divvyd.
            self.engine.turn(Some(clock::now())).map_err(broken)?;
            let leaders: Vec<_> = self.clients().map(|client| self.engine.host().leader(client)).collect();
            self.together = Some(Together::join(plan, &self.tasks, leaders.into_iter(), waker)?);
        } else if self.tells() {
            let (tell, told) = channel();
            let cpus = self.engine.host().cpus().to_vec();
            let ask = move || {
                if let Some(text) = together::neighbours(&cpus)
                    && tell.send(text).is_ok()
                {
                    waker.wake();
                }
            };
            std::thread::Builder::new().name("divvy-neighbours".into()).spawn(ask).map_err(no_thread)?;
            self.neighbours = Some(told);
        }
        Ok(())
    }

    /// Whether people are told how it goes.
    fn tells(&self) -> bool {
        !self.args.quiet && !self.args.json
    }

    /// Takes in what the host knows by the next client's number.
    fn join(&mut self, share: Share, limit: Option<CpuLimit>) -> Result<(), Failure> {
        let client = self.engine.join(share).map_err(broken)?;
        // Where divvyd divides it keeps the limits.
        if limit.is_some() && self.args.group.is_none() && self.args.from.is_none() {
            self.engine.set_limit(client, limit).map_err(broken)?;
        }
        Ok(())
    }

    /// Schedules until the end, ends what still runs, and reports.
    pub(super) fn finish(mut self, report_to: Option<(File, String)>) -> Result<Code, Failure> {
        let scheduled = self.schedule();
        self.engine.audit();
        // The trace ends with what the report says. What it has yet to write waits until the commands have ended.
        self.recording = self.engine.stop_recording();
        let wall_ns = clock::now().since(self.started).0.max(1);
        let clients = self.client_reports(wall_ns);
        let accounts = self.engine.host().accounts();
        let (cycles, mut own) = report::statistics(&mut self.engine, wall_ns, accounts);
        own.add_front_end(self.front.cpu(), wall_ns);
        if self.tasks.iter().any(|t| t.selector().is_some()) {
            own.membership = Some(self.engine.host().membership());
        }
        let strangers = self.strangers(wall_ns, &clients, own.cpu_ns);
        let (policy, quantum_ns, backend) = match &self.together {
            Some(Together { status, .. }) => {
                (status.policy.clone(), status.quantum_ns, BackendReport::of_divvyd(status))
            }
            None => {
                let policy = self.engine.policy();
                let backend = BackendReport::new(self.args.backend, &self.backend);
                (policy.spec().policy.clone(), policy.quantum().0, backend)
            }
        };
        // divvyd's cycles are not counted here, and a dispatcher has none.
        let has_cycles = self.together.is_none() && self.engine.policy().cycle_quantum().is_some();
        let counted = if has_cycles { cycles.count } else { u64::MAX };
        let used: u64 = clients.iter().map(|c| c.service_ns).sum();
        let shares: Vec<u64> = clients.iter().map(|c| c.share).collect();
        let quantum_ns = match self.engine.policy().cycle(&shares).filter(|_| has_cycles) {
            Some(cycle_ns) => {
                verdict::unit_ns(quantum_ns, used, self.engine.ledger().cycles().ended, cycle_ns)
            }
            None => quantum_ns,
        };
        let verdict = verdict::line(&clients, &self.lives(wall_ns), strangers, (counted, quantum_ns));
        let ran: Vec<bool> = self.clients().map(|c| self.engine.host().exit(c).is_none()).collect();
        self.end_commands();
        scheduled?;
        let cpus = self.cpus().to_vec();
        let mut report = Report {
            version: REPORT_VERSION,
            divvy: env!("CARGO_PKG_VERSION"),
            policy,
            backend,
            quantum_ns,
            wall_ns,
            utilization: used as f64 / (wall_ns as f64 * cpus.len() as f64),
            cpus,
            ended_by: match self.ended_by {
                Ended::Commands => "commands".to_owned(),
                Ended::Time => "time".to_owned(),
                Ended::Signal(signal) => signal.as_str().to_owned(),
            },
            clients,
            together: self.together.as_ref().map(|t| TogetherReport::new(t.among(), t.accounts().of_all())),
            cycles,
            verdict,
            strangers,
            own,
            has_cycles: self.engine.policy().cycle_quantum().is_some(),
        };
        for (i, client) in report.clients.iter_mut().enumerate() {
            client.exit = self.engine.host().exit(ClientId(i as u32));
            client.selector = self.tasks[i].selector().map(ToString::to_string);
            client.ended_by_us = client.exit.filter(|_| ran[i]).and_then(|exit| self.how_we_ended(exit));
        }
        let code = self.code(&report);
        self.publish(&report, report_to)?;
        Ok(code)
    }

    /// The CPUs that are divided.
    fn cpus(&self) -> &[u32] {
        self.together.as_ref().map_or_else(|| self.engine.host().cpus(), |together| &together.status.cpus)
    }

    /// The tasks' part of the report, as of now.
    fn client_reports(&self, wall_ns: u64) -> Vec<ClientReport> {
        let mut clients = report::clients(self.engine.ledger(), &self.tasks, wall_ns);
        if let Some(together) = &self.together {
            report::divide_by(&together.accounts(), &self.tasks, wall_ns, &mut clients);
        }
        clients
    }

    fn clients(&self) -> impl Iterator<Item = ClientId> + use<> {
        (0..self.tasks.len() as u32).map(ClientId)
    }

    /// How a command has ended that still ran at the end, where that was by a signal of ours.
    fn how_we_ended(&self, exit: Exit) -> Option<&'static str> {
        match (exit, self.ended_by) {
            (Exit::Signal(TERM), Ended::Time) => Some("ended after --for"),
            (Exit::Signal(TERM), Ended::Signal(_)) => Some("ended with divvy"),
            (Exit::Signal(KILL), Ended::Time | Ended::Signal(_)) => Some("killed at the end"),
            _ => None,
        }
    }

    /// What others had of the CPUs with whom they are not divided, as a fraction of their time; none where the kernel does not tell.
    fn strangers(&self, wall_ns: u64, clients: &[ClientReport], own_ns: u64) -> f64 {
        let cpus = self.cpus();
        let (Some(before), Ok(now)) = (self.times_before, CpuTimes::read(cpus)) else { return 0.0 };
        let times = now.since(before);
        let beside = self.together.as_ref().map_or(0, |together| together.accounts().others_ns());
        let ours = clients.iter().map(|c| c.service_ns).sum::<u64>() + own_ns + beside;
        verdict::others((times.busy + times.stolen).0, ours, wall_ns, cpus.len() as u64)
    }

    /// What is known of each client beside its row.
    fn lives(&mut self, wall_ns: u64) -> Vec<verdict::Life> {
        let told = self.together.as_ref().map(Together::accounts);
        self.clients()
            .map(|client| {
                let ledger = &self.engine.ledger().clients()[client.index()];
                let (ended, width) = (!ledger.present, ledger.width);
                let Some(told) = &told else {
                    let slept = self.engine.blocked_for(client).0 as f64 / wall_ns as f64;
                    let stopped = self.engine.host().is_stopped(client);
                    let kept_to = self.kept_to(client);
                    return verdict::Life {
                        slept,
                        stopped,
                        ended,
                        width,
                        kept_to,
                        ..verdict::Life::default()
                    };
                };
                let i = client.index();
                let (slept, width) = (told.slept(i), told.width(i));
                let stopped = told.state(i) == Some(ClientState::Stopped);
                let (gave_up, let_go) = (slept > 0.0, told.is_let_go(i));
                verdict::Life { slept, stopped, ended, let_go, width, gave_up, kept_to: None }
            })
            .collect()
    }

    /// The CPUs that all of a client's processes together may use, of those that are divided, where these are not all, and divvy was not
    /// asked for that.
    fn kept_to(&self, client: ClientId) -> Option<CpuMask> {
        const MEMBERS: usize = 16;
        let divided: CpuMask = self.cpus().iter().copied().collect();
        let members = self.engine.host().known_members(client, MEMBERS);
        let allowed: Vec<CpuMask> =
            members.iter().filter_map(|member| CpuMask::of_thread(member.pid).ok().flatten()).collect();
        let may: CpuMask =
            divided.iter().filter(|&cpu| allowed.iter().any(|mask| mask.contains(cpu))).collect();
        let asked = self.tasks.get(client.index()).is_some_and(|task| task.cpus.is_some());
        Some(may).filter(|may| !may.is_empty() && *may != divided && !asked)
    }

    fn schedule(&mut self) -> Result<(), Failure> {
        let end = self.args.time.map(|time| self.started + Nanos(nanos(time)));
        let interval = if self.has_table { REDRAW } else { PLAIN };
        let tells = self.tells();
        let mut look = self.started;
        let mut show = self.started + interval;
        self.show(tells && self.has_table);
        while self.goes_on() {
            let look_at = self.together.as_ref().map(|_| look);
            let until = [end, tells.then_some(show), look_at].into_iter().flatten().min();
            self.engine.turn(until).map_err(broken)?;
            if look_at.is_some_and(|at| clock::now() >= at) {
                // Its policy asks nobody for it.
                self.engine.audit();
                look = clock::now() + Nanos(nanos(together::LOOK));
            }
            self.note_lost();
            self.note_told();
            self.note_warnings();
            let mut asked = self.engine.host_mut().take_asked();
            asked.retain(|signal| *signal != Asked::SIGWINCH);
            for told in self.front.take() {
                asked.extend(self.on_told(told)?);
            }
            if let Some(&signal) = asked.first() {
                self.ended_by = Ended::Signal(signal);
                return Ok(());
            }
            let now = clock::now();
            if end.is_some_and(|end| now >= end) {
                self.ended_by = Ended::Time;
                return Ok(());
            }
            if let Some(showcase) = &self.showcase {
                showcase.show(|| self.stands(now));
            }
            if tells && now >= show {
                self.show(true);
                show = now + interval;
            }
        }
        Ok(())
    }

    /// Does what the front end asks for; a signal where that is the end.
    fn on_told(&mut self, told: Told) -> Result<Option<Asked>, Failure> {
        match told {
            Told::Suspend if let Some(together) = &self.together => together.pause(true),
            Told::Resume if let Some(together) = &self.together => together.pause(false),
            Told::Suspend => {
                for client in self.commands() {
                    let present = self.engine.ledger().clients()[client.index()].present;
                    if present && !self.engine.is_paused(client) {
                        self.engine.pause(client).map_err(broken)?;
                        self.suspended.push(client);
                    }
                }
                self.engine.serve().map_err(broken)?;
                self.show(self.has_table);
                self.front.suspended();
            }
            Told::Resume => {
                for client in std::mem::take(&mut self.suspended) {
                    // One that has ended meanwhile need not go on.
                    if self.engine.is_paused(client) {
                        self.engine.resume(client).map_err(broken)?;
                    }
                }
                self.engine.serve().map_err(broken)?;
            }
            Told::Usr1 => self.signal_commands(Signal::USR1),
            Told::Usr2 => self.signal_commands(Signal::USR2),
            Told::Erased | Told::Deaf => {}
            // Nobody sees any more what goes on here, and nobody could end it.
            Told::Gone => return Ok(Some(Asked::SIGHUP)),
        }
        Ok(None)
    }

    fn signal_commands(&mut self, signal: Signal) {
        for client in self.commands() {
            // What cannot be signalled has ended, or is not ours to signal.
            let _ = self.engine.host_mut().signal(client, signal);
        }
    }

    /// Whether somebody is there to be waited for. A client that never ends by itself (`@user:`, `@name:`, `@cgroup:`) is
    /// waited for only where all are such.
    fn goes_on(&self) -> bool {
        let clients = self.engine.ledger().clients().iter().zip(&self.tasks);
        let all_open = self.tasks.iter().all(|t| !t.ends());
        clients.into_iter().any(|(client, task)| client.present && (all_open || task.ends()))
    }

    /// A client that left for another reason than its end goes on without us; the user is told.
    fn note_lost(&mut self) {
        for lost in self.engine.take_lost() {
            if lost.why != HostError::Gone {
                let text =
                    format!("{}: {}; not scheduled any more", self.tasks[lost.client.index()].name, lost.why);
                self.warn(text);
            }
        }
    }

    /// What the threads that ask divvyd have to say.
    fn note_told(&mut self) {
        if let Some(text) = self.neighbours.as_ref().and_then(|told| told.try_recv().ok()) {
            self.tell_user(format!("divvy: {text}"));
        }
        let Some(together) = &self.together else { return };
        let (words, paused) = (together.take_words(), together.take_paused());
        words.into_iter().for_each(|text| self.warn(text));
        if paused {
            self.show(self.has_table);
            self.front.suspended();
        }
    }

    /// Says lines where there is no table, if whoever reads them keeps up.
    fn say(&mut self, lines: &[String]) {
        let text = lines.join("\n") + "\n";
        if self.plain.as_mut().is_none_or(|plain| plain.write_all(text.as_bytes()).is_err()) {
            self.plain_dropped += 1;
        }
    }

    fn tell_user(&mut self, line: String) {
        if self.has_table {
            self.plain_dropped += u64::from(!self.front.print(vec![line]));
        } else {
            self.say(&[line]);
        }
    }

    /// What the host found on its way.
    fn note_warnings(&mut self) {
        for warning in self.engine.host_mut().take_warnings() {
            let name = warning.client.map_or("", |client| self.tasks[client.index()].name.as_str());
            let text = if name.is_empty() { warning.text } else { format!("{name}: {}", warning.text) };
            self.warn(text);
        }
    }

    fn warn(&mut self, text: String) {
        self.tell_user(format!("divvy: {text}"));
        self.warnings.push(text);
    }

    fn state(&self, client: ClientId) -> String {
        match self.engine.host().exit(client) {
            Some(Exit::Code(code)) => format!("exit {code}"),
            Some(Exit::Signal(signal)) => format!("signal {signal}"),
            None if let Some(together) = &self.together => {
                together.state(client.index()).map_or("undivided", ClientState::as_str).to_owned()
            }
            None => match self.engine.state(client) {
                // By Ctrl-Z.
                ClientState::Paused => "suspended".to_owned(),
                state => state.as_str().to_owned(),
            },
        }
    }

    /// How it stands, for `divvy ls` and `top`.
    fn stands(&self, now: Instant) -> ShareRun {
        let (uptime_ns, host) = (now.since(self.started).0, self.engine.host());
        let ledger = self.engine.ledger();
        let standings = ledger.standings(|_, client| client.present, |_, client| client.service);
        let all = ledger.clients().iter().zip(&self.tasks).zip(standings).enumerate();
        let client = |(i, ((account, task), standing)): (usize, ((&ClientLedger, &Task), Standing))| {
            let id = ClientId(i as u32);
            Client {
                id: id.0,
                name: task.name.clone(),
                selector: match (task.selector(), host.leader(id)) {
                    (Some(selector), _) => selector.to_string(),
                    (None, leader) => format!("tree:{}", leader.map_or(0, |pid| pid.as_raw_nonzero().get())),
                },
                share: account.share.get(),
                limit_ppm: account.limit.map(CpuLimit::ppm),
                bounds: Bounds { cpus: task.cpus, ..Bounds::default() },
                effective_share: standing.effective_share,
                requested_fraction: standing.requested_fraction,
                effective_fraction: standing.effective_fraction,
                achieved_fraction: standing.achieved_fraction,
                relative_error: standing.relative_error,
                service_ns: account.service.0,
                state: self.engine.state(id),
                width: account.width,
                nr_members: host.nr_members(id),
                not_permitted: host.nr_not_permitted(id),
                ..Client::default()
            }
        };
        ShareRun {
            pid: i32::try_from(std::process::id()).unwrap_or(0),
            policy: self.engine.policy().spec().policy.clone(),
            cpus: host.cpus().to_vec(),
            uptime_ns,
            clients: all.filter(|(_, ((account, _), _))| account.present).map(client).collect(),
        }
    }

    fn show(&mut self, really: bool) {
        if !really {
            return;
        }
        let wall_ns = clock::now().since(self.started).0;
        let rows: Vec<Row> = self
            .client_reports(wall_ns)
            .into_iter()
            .enumerate()
            .map(|(i, c)| Row {
                state: self.state(ClientId(i as u32)),
                name: c.name,
                share: c.share,
                limit: c.limit.map(|limit| limit.limit),
                target: c.target_fraction,
                achieved: c.achieved_fraction,
                error: c.relative_error,
                cpu_ns: c.service_ns,
            })
            .collect();
        let mut lines = table::lines(&rows, self.has_table && capable::has_color());
        let together = self.together.as_ref().map(|t| TogetherReport::new(t.among(), t.accounts().of_all()));
        lines.extend(together.map(|together| together.line()));
        if self.has_table {
            self.front.table(lines);
        } else {
            self.say(&lines);
        }
    }

    /// Processes that ran before us are released, and go on as they did.
    fn detach_all(&mut self) {
        if let Some(together) = &mut self.together {
            together.end();
        }
        for client in (0..self.tasks.len() as u32).map(ClientId) {
            let host = self.engine.host_mut();
            if host.is_attached(client)
                && let Err(e) = host.detach(client)
            {
                self.warnings.push(format!("{}: {e}; try divvy rescue", self.tasks[client.index()].name));
            }
        }
        // The engine hears that they have left: nobody decides about them any more.
        let _ = self.engine.serve();
    }

    /// Ends what still runs: SIGTERM, then, after the grace or at a second Ctrl-C, SIGKILL. Everything is released
    /// first, so that it can end.
    fn end_commands(&mut self) {
        self.detach_all();
        if self.engine.nr_clients() == 0 {
            return;
        }
        self.signal_commands(Signal::TERM);
        self.engine.release_all();
        if self.has_table {
            let grace = humantime::format_duration(self.args.grace);
            self.tell_user(format!(
                "divvy: ending: SIGTERM sent, SIGKILL in {grace}; Ctrl-C again kills at once"
            ));
        }
        let mut left = self.engine.nr_clients();
        let mut kill_at = Some(clock::now() + Nanos(nanos(self.args.grace)));
        // After SIGKILL they end at once, but for those that sleep where the kernel lets nobody in.
        let give_up = clock::now() + Nanos(nanos(self.args.grace)) + Nanos::from_secs(10);
        while left > 0 && clock::now() < give_up {
            let Ok(ended) = self.engine.wait_for_ends(kill_at.unwrap_or(give_up)) else { break };
            left -= ended;
            let again = self.engine.host_mut().take_asked().iter().any(|s| *s != Asked::SIGWINCH);
            for told in self.front.take() {
                match told {
                    // They are about to end, and are not suspended any more.
                    Told::Suspend => self.front.suspended(),
                    Told::Usr1 => self.signal_commands(Signal::USR1),
                    Told::Usr2 => self.signal_commands(Signal::USR2),
                    Told::Resume | Told::Erased | Told::Deaf | Told::Gone => {}
                }
            }
            if again || kill_at.is_some_and(|at| clock::now() >= at) {
                self.signal_commands(Signal::KILL);
                kill_at = None;
            }
        }
    }

    /// The clients that we have started, and may end.
    fn commands(&self) -> Vec<ClientId> {
        let all = self.tasks.iter().enumerate().filter(|(_, task)| task.selector().is_none());
        all.map(|(i, _)| ClientId(i as u32)).collect()
    }

    /// For a start that failed: nothing that was started goes on.
    fn kill_all(&mut self) {
        for client in self.commands() {
            let _ = self.engine.host_mut().signal(client, Signal::KILL);
        }
        self.detach_all();
    }

    fn publish(mut self, report: &Report, report_to: Option<(File, String)>) -> Result<(), Failure> {
        // The table makes room for the summary, and what commands have printed stands above it.
        if !self.front.end_table() {
            give_up_on_stderr();
        }
        let Self {
            mut engine,
            args,
            plain,
            plain_dropped,
            mut warnings,
            recording,
            trace_failed,
            trace_name,
            ..
        } = self;
        engine.host_mut().reap_the_last();
        // Nothing is left to be scheduled, and signals do again what they do to everybody: whatever is waited for from
        // here on, Ctrl-C ends it.
        drop(engine);
        drop(recording);
        if plain.is_some_and(|plain| plain.finish(END_WAIT).is_err()) {
            give_up_on_stderr();
        }
        if plain_dropped > 0 {
            let times = if plain_dropped == 1 { "once".to_owned() } else { format!("{plain_dropped} times") };
            warnings.push(format!(
                "nobody read standard error in time: what was to be said was left out {times}"
            ));
        }
        let json = serde_json::to_string_pretty(report).map_err(|e| Failure::new(Code::System, e))?;
        if !args.json && !args.quiet {
            for line in report.summary(std::io::stderr().is_terminal() && capable::has_color()) {
                tell_in_time(line);
            }
        }
        for warning in &warnings {
            tell_in_time(format_args!("divvy: {warning}"));
        }
        let said = if args.json { deliver(&json) } else { Ok(()) };
        if let Some((mut file, name)) = report_to {
            let written = file.write_all(json.as_bytes()).and_then(|()| file.write_all(b"\n"));
            written.map_err(|e| {
                Failure::new(Code::File, format!("write {name}: {}", crate::files::cause(&e)))
            })?;
        }
        match (trace_failed.borrow_mut().take(), &trace_name) {
            (Some(e), Some(name)) => {
                Err(Failure::new(Code::File, format!("write {name}: {}", crate::files::cause(&e))))
            }
            _ => said,
        }
    }

    fn code(&self, report: &Report) -> Code {
        match self.ended_by {
            Ended::Signal(signal) => Code::Signalled(signal as i32),
            _ if self.together.as_ref().is_some_and(|together| together.lost().is_some()) => Code::Scheduler,
            Ended::Time => Code::Done,
            Ended::Commands => {
                // How processes end that are not our children nobody tells us.
                let commands = report.clients.iter().filter(|c| c.selector.is_none());
                let failed = commands.into_iter().any(|c| c.exit != Some(Exit::Code(0)));
                if failed { Code::Failed } else { Code::Done }
            }
        }
    }
}
