//! Live processes as an engine's host: signals hold and release, the kernel's CPU clocks measure.

mod adopt;
mod behind;
mod condition;
mod counted;
mod cpus;
mod dear;
mod descent;
mod dozes;
mod guardian_link;
mod held_check;
mod hold;
mod leaf_time;
mod leaves;
mod looks;
mod naps;
mod notices;
mod own_cpu;
mod preferred;
mod priority;
mod switches;

use std::collections::VecDeque;
use std::os::fd::AsFd as _;

use divvy_engine::{Exit, Host, HostError, News, Observed, SelfCost, take_width};
use divvy_policy::{ClientId, CpuId, CpuLimit, Instant, Nanos};
use nix::sys::signal::Signal as NixSignal;

use crate::attach::Attached;
use crate::cgroup::{Leaf, Means, Tree};
use crate::clients::ById;
use crate::guard::{BEAT_INTERVAL, Environment, Report, RuntimeDir, Table, rescue};
use crate::lanes::Lanes;
use crate::members::{Look, Members, Standing, Tally};
use crate::procfs::{LastPid, Latest, StartTime};
use crate::reactor::{Reactor, Waker};
use crate::select::Selector;
use crate::spawn::{Command, Inherit, Spawned, spawn};
use crate::world::Live;
use crate::{CpuMask, Delivery, Error, Pid, Result, Signal, clock, own, perf, slice};
use adopt::{Family, MARK, mark};
use behind::{Rest, Rests};
pub(crate) use condition::Condition;
use counted::LeafCheck;
use cpus::{asked_or_all, within_quota};
pub use cpus::{check_cpus, cpus_to_divide};
use descent::{Descent, Kin};
use guardian_link::GuardianLink;
use held_check::HeldCheck;
use hold::{OwnSleep, PutOff};
use leaf_time::LeafTime;
use naps::{Listener, Naps};
use notices::Notices;
pub use notices::Warning;
use priority::Priority;

/// How a [`LinuxHost`] is made.
#[derive(Clone, Debug)]
pub struct HostParams {
    /// The kernel's numbers of the CPUs that clients may use; what this process may use itself if `None`.
    pub cpus: Option<CpuMask>,
    /// Slots in the table of held processes: clients, and members outside of their client's process group.
    pub capacity: u32,
}

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) members: Members,
    pub(crate) condition: Condition,
    /// Held because others come first: it may have what they leave.
    pub(crate) waits: bool,
    /// What it was attached by; `None` for a command.
    pub(crate) selector: Option<Selector>,
    /// When it was attached: whoever began later has used nothing before.
    pub(crate) since: StartTime,
    pub(crate) had_members: bool,
    /// CPUs that its members may use.
    pub(crate) cpus_max: u32,
    /// Its clock when it was held, or at the first audit since.
    audited: Option<Nanos>,
    seen: held_check::Seen,
    scanned: Instant,
    scanned_pid: Latest,
    width: u32,
    cpu: Option<u32>,
    /// Where its threads are to run, if it has several and they are not to run everywhere.
    pub(crate) lanes: Lanes,
    exit: Option<Exit>,
    /// Its cgroup, where that is what holds it, or weighs it.
    pub(crate) leaf: Option<Leaf>,
    /// What the kernel has told of its processes.
    kin: Kin,
    naps: Naps,
    rest: Rest,
    doze: dozes::Doze,
    dear: dear::Dear,
    switches: switches::Switches,
    /// Since when it is held.
    stood_since: Instant,
    /// Its cgroup counts what it uses, if that holds it.
    counted: bool,
    leaf_check: LeafCheck,
    /// Otherwise: what it used by that and by what is read of its processes.
    leaf_time: LeafTime,
}

impl Client {
    /// One of `members`, not held, of which nothing is known yet.
    pub(crate) fn new(members: Members) -> Self {
        Self {
            members,
            condition: Condition::Released,
            waits: false,
            selector: None,
            since: StartTime(0),
            had_members: false,
            cpus_max: u32::MAX,
            audited: None,
            seen: held_check::Seen::default(),
            scanned: Instant::ZERO,
            scanned_pid: Latest::default(),
            width: 1,
            cpu: None,
            lanes: Lanes::default(),
            exit: None,
            leaf: None,
            kin: Kin::default(),
            naps: Naps::default(),
            rest: Rest::default(),
            doze: dozes::Doze::default(),
            dear: dear::Dear::default(),
            switches: switches::Switches::default(),
            stood_since: Instant::ZERO,
            counted: false,
            leaf_check: LeafCheck::default(),
            leaf_time: LeafTime::default(),
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        self.condition.is_held()
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.condition.is_gone()
    }

    /// Whether its members are to be stopped one by one: those in a cgroup are held with it.
    pub(crate) fn stops(&self) -> bool {
        self.condition.stands() && self.leaf.as_ref().is_none_or(Leaf::is_signalled)
    }

    /// How its members are held, if they are.
    pub(crate) fn standing(&self) -> Standing {
        let held = self.stops();
        Standing { held, frozen: self.condition.stands() && !held }
    }

    /// Whether it stands, as far as it was our doing.
    fn stands(&self, look: &mut Look<'_>) -> bool {
        let leaf = self.leaf.as_ref().filter(|leaf| !leaf.is_signalled());
        leaf.map_or_else(|| self.members.all_suspended(look), Leaf::is_frozen)
    }
}

/// The host of live processes. Dropping it releases everything that it holds and ends the guardian.
#[derive(Debug)]
pub struct LinuxHost {
    pub(crate) reactor: Reactor,
    pub(crate) table: Table,
    guardian: GuardianLink,
    pub(crate) clients: ById<Client>,
    pub(crate) attached: Attached,
    family: Family,
    pub(crate) news: VecDeque<News>,
    put_off: PutOff,
    /// Released clients of several threads whose CPUs have changed.
    pub(crate) unplaced: Vec<ClientId>,
    own_cpu: own_cpu::OwnCpu,
    switch_costs: switches::SwitchCosts,
    /// Who is never held, as the policy says, and who weighs more than others therefore.
    capped: Vec<ClientId>,
    preferred: Vec<ClientId>,
    priority: Option<Priority>,
    /// Clients of several threads that were released since we slept, and may run anywhere.
    pub(crate) wakened: Vec<ClientId>,
    asked: Vec<NixSignal>,
    inherit: Inherit,
    pub(crate) cpus: Vec<u32>,
    last_pid: Option<LastPid>,
    held_check: HeldCheck,
    beaten: Instant,
    /// How long we sleep.
    own_sleep: OwnSleep,
    /// CPU time of this process before the host was made.
    cpu_before: Nanos,
    pub(crate) tally: Tally,
    rescued: Report,
    pub(crate) notices: Notices,
    /// The clients' cgroups, where there are any.
    tree: Option<Tree>,
    /// The CPUs that are divided, where the machine has more.
    starts_on: Option<CpuMask>,
    /// Whether commands get counters of their CPU time.
    counters: bool,
    /// Whether commands have cgroups that hold and count.
    counted: bool,
    pub(crate) descent: Descent,
    listener: Listener,
    books: Option<dozes::Books>,
    rests: Rests,
}

impl LinuxHost {
    /// A host without clients: takes the signals, opens the table of held processes, starts the guardian, and resumes
    /// whatever an earlier divvy of this user left suspended.
    ///
    /// # Errors
    /// [`Error`] names what could not be had: the runtime directory, the table, a CPU, the guardian.
    pub fn new(params: &HostParams) -> Result<Self> {
        Self::with_means(params, Means::Signals)
    }

    /// As [`new`](Self::new), with the table in `dir` instead of where the environment says.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn new_in(params: &HostParams, dir: &RuntimeDir) -> Result<Self> {
        Self::with(params, Means::Signals, dir)
    }

    /// As [`with_means`](Self::with_means), with the table in `dir` instead of where the environment says.
    ///
    /// # Errors
    /// As [`with_means`](Self::with_means).
    pub fn with_means_in(params: &HostParams, means: Means, dir: &RuntimeDir) -> Result<Self> {
        Self::with(params, means, dir)
    }

    /// As [`LinuxHost::new`], with another way to enforce what was decided. What is attached is moved into cgroups of ours,
    /// and back when it is let go, by us, by the guardian or by a rescue.
    ///
    /// # Errors
    /// As [`LinuxHost::new`], and where the cgroups cannot be made.
    pub fn with_means(params: &HostParams, means: Means) -> Result<Self> {
        Self::with(params, means, &Environment::read().open_or_create()?)
    }

    fn with(params: &HostParams, means: Means, dir: &RuntimeDir) -> Result<Self> {
        // A program that ran in this process before us (`cargo run` turns into what it built) is no cost of ours.
        let cpu_before = clock::own_process_cpu();
        let asked = asked_or_all(params.cpus)?;
        let cpus = within_quota(&asked);
        let starts_on = leaves::not_all(asked);
        let files = own::raise_open_files().ok();
        own::adopt_orphans()?;
        let rescued = rescue(dir)?;
        let table = Table::create(dir, params.capacity)?;
        // Before the guardian is forked: it goes where we go.
        let tree = Tree::grow(means, &table, cpus.len(), starts_on)?;
        let mut reactor = Reactor::new()?;
        if params.cpus.is_some() && cpus.len() == 1 {
            // A CPU clock is exact on the CPU where its process runs: read it there.
            CpuMask::only(cpus[0]).apply(rustix::process::getpid())?;
        }
        // Late wake-ups only cost accuracy; an old kernel knows no slices of one's own choice.
        let slice = slice::ask_for_short_slices();
        let priority = slice.and_then(Priority::raise);
        // Where clients have what sleepers leave, nobody has to hear of sleeps.
        let listener = match perf::is_allowed() && !tree.as_ref().is_some_and(Tree::gives_way) {
            true => Listener::open(&cpus),
            false => Listener::default(),
        };
        // Where cgroups hold and count, nobody has to be told of.
        // On another CPU than ours their books may be a tick behind.
        let is_one =
            CpuMask::of_thread(rustix::process::getpid())?.is_some_and(|mask| mask.iter().count() == 1);
        let counted = is_one && perf::cgroups_are_allowed() && tree.as_ref().is_some_and(Tree::counts);
        let inherit =
            Inherit { mask: reactor.outer_mask(), files, cpus: params.cpus, slice, switches: listener.cpu() };
        table.beat(clock::now());
        let guardian = GuardianLink::start(&table, &mut reactor)?;
        let mut host = Self {
            reactor,
            table,
            guardian,
            clients: ById::default(),
            attached: Attached::new(),
            family: Family::default(),
            news: VecDeque::new(),
            put_off: PutOff::default(),
            unplaced: Vec::new(),
            own_cpu: own_cpu::OwnCpu::default(),
            switch_costs: switches::SwitchCosts::default(),
            capped: Vec::new(),
            preferred: Vec::new(),
            priority,
            wakened: Vec::new(),
            asked: Vec::new(),
            inherit,
            books: dozes::Books::of(&asked),
            cpus,
            last_pid: LastPid::open().ok(),
            held_check: HeldCheck::default(),
            beaten: Instant::ZERO,
            own_sleep: OwnSleep::default(),
            cpu_before,
            tally: Tally::default(),
            rescued,
            notices: Notices::new(leaves::warnings(tree.as_ref(), params.cpus.and(starts_on))),
            starts_on,
            tree,
            counters: !counted && perf::is_allowed() && perf::TreeCounter::check().is_ok(),
            descent: if perf::is_allowed() && !counted { Descent::open() } else { Descent::default() },
            counted,
            listener,
            rests: Rests::default(),
        };
        if let Some(switches) = host.listener.switches() {
            host.listener.number = Some(host.reactor.watch(switches.as_fd())?);
        }
        host.beat();
        Ok(host)
    }

    /// The kernel's numbers of the CPUs that are divided.
    #[must_use]
    pub fn cpus(&self) -> &[u32] {
        &self.cpus
    }

    /// What tells of the CPU time and the processes of commands, for people: cgroups, perf events, or clocks and `/proc`.
    #[must_use]
    pub fn accounts(&self) -> &'static str {
        if self.counted {
            return "cgroups";
        }
        match (self.counters, self.descent.is_told()) {
            (true, true) => "perf events",
            (true, false) => "perf counters and scans",
            (false, true) => "clocks and fork events",
            (false, false) => "clocks and scans",
        }
    }

    /// What an earlier divvy had left suspended.
    #[must_use]
    pub fn rescued(&self) -> &Report {
        &self.rescued
    }

    /// The guardian's pid.
    #[must_use]
    pub fn guardian(&self) -> Option<Pid> {
        self.guardian.pid()
    }

    /// Starts `command` as the client with the next id, held.
    ///
    /// # Errors
    /// [`Error::Spawn`] where it cannot be executed; the table's errors. Nothing is left running on error.
    pub fn spawn(&mut self, command: Command) -> Result<ClientId> {
        let client = self.clients.next_id();
        self.own_cpu.end();
        self.beat(); // Thousands are made in a row, and those before are held.
        let mut command = command;
        command.env.push((MARK.into(), mark(rustix::process::getpid(), client).into()));
        let leaf = self.tree.as_mut().map(|tree| tree.leaf_of(client.index(), None)).transpose()?;
        let procs: Vec<_> = leaf.iter().flat_map(Leaf::procs).collect();
        let naps = Naps::of(!command.own_session);
        let Spawned { leader, counter, switches } = spawn(command, &self.inherit, &procs, self.counters)?;
        let pid = leader.pid();
        let members = match Members::command(Live, leader, &mut self.table) {
            Ok(members) => members,
            Err(e) => {
                // Our child, not waited for: it still has its pid.
                if let Ok(Some(child)) = crate::ProcessRef::open(pid) {
                    let _ = child.signal(Signal::KILL);
                }
                return Err(e);
            }
        };
        let leaf = leaf.map(Leaf::close);
        // Who has forked unseen is seen late where nobody tells; on another CPU a clock is behind.
        let always = self.cpus.len() > 1 || !self.descent.is_told();
        let members = members.metered(counter, always).on_several_cpus(self.cpus.len() > 1);
        self.clients.push(Client { leaf, naps, counted: self.counted, ..Client::new(members) });
        self.family.by_leader.insert(pid, client);
        self.found_client(pid, client);
        if let Some(event) = switches {
            self.listen_to(client, event);
        }
        self.hold_client(client.index()).map_err(|(e, _)| e)?;
        Ok(client)
    }

    /// The leader's pid; `None` for an attached client.
    #[must_use]
    pub fn leader(&self, client: ClientId) -> Option<Pid> {
        self.clients.get(client.index()).and_then(|c| c.members.leader())
    }

    /// How a client's leader ended, once it has.
    #[must_use]
    pub fn exit(&self, client: ClientId) -> Option<Exit> {
        self.clients.get(client.index()).and_then(|c| c.exit)
    }

    /// Processes that the client is known to have.
    #[must_use]
    pub fn nr_members(&self, client: ClientId) -> usize {
        self.clients.get(client.index()).map_or(0, |c| c.members.len())
    }

    /// Sends a signal to every process of a client that has not ended.
    ///
    /// # Errors
    /// As [`crate::ProcessRef::signal`].
    pub fn signal(&mut self, client: ClientId, signal: Signal) -> Result<Delivery> {
        self.release_if_due(client);
        if self.clients.get(client.index()).is_none_or(|c| c.is_gone()) {
            return Ok(Delivery::Gone);
        }
        // Processes that have been made since the last look shall not survive. All clients are ended in one go: what
        // was found for the first holds for the others.
        let counted = self.clients[client.index()].is_counted();
        if counted {
            let _ = self.list_members(client.index());
        }
        if self.adopt_is_due() {
            if counted { self.adopt_strays() } else { self.adopt_orphans() }
        }
        let Some(c) = self.clients.get_mut(client.index()) else { return Ok(Delivery::Gone) };
        let look = &mut Look::new(&mut self.table, &mut self.tally, clock::now(), c.standing());
        let _ = c.members.scan(look, true, u32::MAX);
        c.members.signal(signal, look)
    }

    /// Signals that asked this process for something (SIGINT, SIGTERM, ...) since the last call.
    pub fn take_asked(&mut self) -> Vec<NixSignal> {
        std::mem::take(&mut self.asked)
    }

    /// What the user should know, since the last call. Each thing once.
    pub fn take_warnings(&mut self) -> Vec<Warning> {
        self.notices.take()
    }

    /// What ends a wait of this host from another thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.reactor.waker()
    }

    fn beat(&mut self) {
        let now = clock::now();
        self.beaten = now;
        self.table.beat(now);
    }

    /// The last process that was made on this machine by now.
    pub(crate) fn latest_pid(&self) -> Latest {
        Latest::of(self.last_pid.as_ref())
    }
}

fn broken(e: &Error) -> HostError {
    HostError::Broken(e.to_string())
}

fn host_error(e: &Error) -> HostError {
    match e {
        Error::Permission { .. } => HostError::NotPermitted(e.to_string()),
        e if e.errno() == Some(rustix::io::Errno::SRCH) => HostError::Gone,
        e => broken(e),
    }
}

fn delivered(delivery: Result<Delivery>) -> std::result::Result<(), HostError> {
    match delivery {
        Ok(Delivery::Sent) => Ok(()),
        // A client that has just ended will be reaped, and its end told, when its SIGCHLD comes.
        Ok(Delivery::Gone) => Ok(()),
        Err(e) => Err(host_error(&e)),
    }
}

impl Host for LinuxHost {
    fn now(&mut self) -> Instant {
        clock::now()
    }

    fn wait(&mut self, until: Option<Instant>) -> std::result::Result<(), HostError> {
        let leaves = self.leaves_gaps();
        if self.rests.are_on() {
            self.settle_ways();
        }
        self.hold_deferred();
        if !self.news.is_empty() || self.leaves_gaps() != leaves {
            self.release_last();
            return Ok(());
        }
        let (first, releases) = (self.is_punctual(), !self.put_off.releasing.is_empty());
        if first && releases {
            // On our CPU nobody of them runs before we sleep.
            self.release_last();
            if !self.news.is_empty() {
                return Ok(());
            }
        }
        let now = clock::now();
        // The guardian is told that we live, however far away the next decision is.
        let beat = self.beaten + BEAT_INTERVAL;
        let until = until.map_or(beat, |t| t.min(beat));
        let until = self.own_sleep.until(until, now, first, releases);
        if !self.put_off.releasing.is_empty() {
            // The timer first: whoever is released here runs at once, and we may not for milliseconds.
            self.reactor.arm_for(Some(until), now).map_err(|e| broken(&e))?;
            self.release_last();
            if !self.news.is_empty() {
                return Ok(());
            }
        }
        let woken = self.reactor.wait(Some(until), now).map_err(|e| broken(&e))?;
        self.beat();
        self.own_sleep.ended(now, until, self.beaten);
        self.guardian.check(&self.table, &mut self.reactor, self.beaten).map_err(|e| broken(&e))?;
        if self.guardian.take_resumed(&self.table) {
            self.news.push_back(News::AllResumed);
        }
        if woken.child {
            self.reap();
        }
        self.asked.extend(woken.signals);
        for number in woken.ready {
            if self.guardian.is(number) {
                self.guardian.replace(&self.table, &mut self.reactor).map_err(|e| broken(&e))?;
            }
            if Some(number) == self.listener.number {
                self.hear_switches(self.beaten);
            }
            if let Some(pid) = Reactor::watched_process(number) {
                self.member_ended(pid);
            }
        }
        self.end_rests_if_due(self.beaten);
        self.adopt_orphans_if_due();
        self.settle_held(self.beaten);
        self.audit(self.beaten);
        self.switch_costs.forget_stale(self.beaten);
        self.own_cpu.let_go(self.guardian.pid());
        if self.own_cpu.is_due(&self.cpus, self.beaten) {
            self.own_cpu.see_to(&self.cpus, &self.lived_on(), self.beaten);
            self.prefer_capped();
        }
        self.priority.iter_mut().for_each(|priority| priority.see_to(self.beaten));
        self.keep_members(self.beaten);
        self.notices.gather(&mut self.clients, &self.tally, &mut self.table, self.beaten);
        Ok(())
    }

    fn next_news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    fn release(&mut self, client: ClientId, cpu: Option<CpuId>) -> std::result::Result<(), HostError> {
        if self.clients[client.index()].is_gone() {
            return Err(HostError::Gone);
        }
        if self.put_off.deferred.contains(&client) || self.rests.is_open(client) {
            self.hold_deferred();
        }
        if self.cpus.len() == 1 {
            self.put_off.releasing.push((client, cpu));
            return Ok(());
        }
        delivered(self.release_client(client.index(), cpu))
    }

    fn hold(&mut self, client: ClientId) -> std::result::Result<(), HostError> {
        self.release_if_due(client);
        self.rests.close(client);
        self.clients[client.index()].waits = false;
        if self.clients[client.index()].is_gone() {
            return Err(HostError::Gone);
        }
        if self.defers_hold(client.index()) {
            self.put_off.deferred.push(client);
            return Ok(());
        }
        self.place_threads(); // Who takes its CPUs is there first: one that idles takes threads from others.
        self.hold_client(client.index()).map(|_| ()).map_err(|(_, e)| e)
    }

    fn give_way(&mut self, client: ClientId) -> std::result::Result<(), HostError> {
        if !self.let_give_way(client.index())? {
            self.hold(client)?;
            self.clients[client.index()].waits = true;
        }
        Ok(())
    }

    fn run_behind(&mut self, client: ClientId) -> std::result::Result<(), HostError> {
        let i = client.index();
        if self.clients[i].is_gone() {
            return Err(HostError::Gone);
        }
        if self.run_in_turn_behind(i)? { Ok(()) } else { self.release(client, None) }
    }

    fn stand(&mut self, client: ClientId) -> std::result::Result<(), HostError> {
        let gives_way = |c: &Client| c.leaf.as_ref().is_some_and(Leaf::gives_way);
        if gives_way(&self.clients[client.index()]) { self.hold(client) } else { Ok(()) }
    }

    fn leaves(&self) -> bool {
        self.leaves_gaps()
    }

    fn switch_cost(&self) -> Nanos {
        self.switch_costs.told()
    }

    fn note_capped(&mut self, clients: &[ClientId]) {
        self.capped = clients.to_vec();
    }

    fn is_punctual(&self) -> bool {
        self.cpus.len() == 1 && self.priority.as_ref().is_some_and(Priority::is_raised)
    }

    fn measure(&mut self, client: ClientId) -> std::result::Result<Nanos, HostError> {
        let total = self.read_total(client)?;
        self.note_known(client.index(), total);
        Ok(total)
    }

    fn observe(&mut self, client: ClientId) -> std::result::Result<Observed, HostError> {
        let i = client.index();
        self.hold_deferred();
        self.release_if_due(client);
        if self.clients[i].is_gone() {
            return Err(HostError::Gone);
        }
        self.look(i, clock::now()).map_err(|e| host_error(&e))
    }

    fn limit(&mut self, client: ClientId, limit: Option<CpuLimit>) -> std::result::Result<bool, HostError> {
        let kept = self.limit_leaf(client, limit).map_err(|e| host_error(&e))?;
        if kept {
            self.note_limit(client.index(), limit.is_some());
        }
        Ok(kept)
    }

    fn take_width(&mut self, client: ClientId) -> Option<u32> {
        take_width(&mut self.news, client)
    }

    fn is_stopped(&self, client: ClientId) -> bool {
        self.clients.get(client.index()).is_some_and(|c| c.condition.is_stopped())
    }

    fn self_cost(&mut self) -> SelfCost {
        SelfCost {
            cpu: clock::own_process_cpu().saturating_sub(self.cpu_before)
                + self.listener.switches().map_or(Nanos::ZERO, |switches| switches.cost()),
            reads: self.tally.reads,
            signals: self.tally.signals,
        }
    }
}

impl Drop for LinuxHost {
    fn drop(&mut self) {
        for i in self.clients.with_ids().map(|(client, _)| client.index()).collect::<Vec<_>>() {
            self.forget_naps(i);
        }
        for c in self.clients.iter_mut().filter(|c| !c.is_gone()) {
            // Those released too: one of their members may have been left suspended by an error.
            let look = &mut Look::new(&mut self.table, &mut self.tally, clock::now(), false);
            let _ = c.members.resume(look);
            c.members.resume_wrappers(look);
            c.leaf = None;
        }
        if let Some(tree) = self.tree.take() {
            tree.fell(&self.table);
        }
        self.guardian.dismiss(&self.table);
    }
}
