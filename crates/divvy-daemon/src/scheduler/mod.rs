//! The scheduling thread: it owns the engine, turns it, and between two turns does what the API asks for.
//!
//! It never waits for a client of the API: requests come through a bounded queue, an eventfd ends the engine's wait, and
//! answers go to channels that take them at once.

mod add;
mod book;
mod bounds;
mod disk_gate;
mod disk_shares;
mod events;
mod groups;
mod own;
mod presence;
mod rows;
mod rules;
mod spent;
mod system;
mod uses;
mod view;
mod worth;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use divvy_engine::policies::{CYCLE_MAX, GateSpec};
use divvy_engine::{EngineError, HostError, Session, Window};
use divvy_linux::cgroup::{Check, DEVIATION_WARN_PPM, Due, Off};
use divvy_linux::{Asked, LinuxHost, Waker, clock};
use divvy_policy::{ClientId, CpuLimit, Instant, Nanos, Share};
use tokio::sync::Notify;

use crate::budget::Budget;
use crate::kernel::Keeper;
use crate::market::message::{Cpus, Limits, Who};
use crate::message::{Answer, Command, Refusal, Request};
use crate::protect::Shelter;
use book::Book;
use divvy_api::types::{BackendInfo, Change, Enforcement, ErrorCode, OwnCost, Pressure, SHARE_MAX, Status};
use events::Log;
pub(crate) use spent::Spent;
pub(crate) use system::{Admins, Owner, System, Terms};
pub(crate) use view::{Publisher, View, Views, channel as views};
pub(crate) use worth::Values;

/// Requests served between two turns; the others wait for the next.
const BATCH: usize = 16;
/// One that was started and has not had a client yet stays at least this long.
pub(crate) const FIRST_LINGER: Nanos = Nanos::from_secs(10);
/// What the kernel is told of shares and rights is written at most once in 100 ms, and for half a percent of the time: with
/// many clients, later. To work it out may take the market as much.
pub(crate) const WRITE_BUDGET: Budget = Budget::new(200, Nanos::from_millis(100));
/// What everybody had is noted anew, for the part that each achieves, for at most one part in so many of the time.
const REBASE_PART: u64 = 200;
/// Weights of disks that are off by more than this, in millionths, are told of: BFQ's range is small.
const DISK_WARN_PPM: u64 = 10_000;
/// How much memory there is to be had is looked at this often, and which disks.
const MACHINE_INTERVAL: Nanos = Nanos::from_secs(10);
/// What the machine has to give effect to rights is looked at this often at most, however often it is asked for.
const ENFORCED_INTERVAL: Nanos = Nanos::from_secs(1);
/// How a scheduler is made.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) spec: GateSpec,
    /// How long it stays after its last client has left; `None` stays for ever.
    pub(crate) linger: Option<Nanos>,
    /// Told when SIGHUP asks for a reload; where there is none, SIGHUP asks for the end.
    pub(crate) reload: Option<Arc<Notify>>,
    /// Where a market says what clients are worth.
    pub(crate) market: Option<Terms>,
    /// By what clients are held, or weighed.
    pub(crate) backend: BackendInfo,
    /// What its command line said of how it divides.
    pub(crate) options: Vec<String>,
}

/// Why the scheduling came to an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// No client was left.
    Idle,
    /// A signal asked for it.
    Asked(Asked),
    /// The API's thread is gone.
    ApiGone,
}

/// The engine and who its clients are.
pub(crate) struct Scheduler {
    engine: Session<LinuxHost>,
    settings: Settings,
    shelter: Shelter,
    requests: Receiver<Request>,
    publisher: Publisher,
    waker: Waker,
    book: Book,
    log: Log,
    started: Instant,
    /// Told from all others by this.
    instance: String,
    leave_at: Option<Instant>,
    /// When all clocks were last read for a report.
    audited: Instant,
    /// Since the last change of who takes part or of a share.
    window: Window,
    system: Option<system::System>,
    /// The groups, where there is no market.
    own: Option<own::Own>,
    rules: rules::RuleBook,
    /// How much of our time each user took, where there are several.
    spent: Spent,
    weights: Weights,
    /// Whether the kernel divides, by what it is told of shares and rights.
    follows: bool,
    rebasing: Budget,
    disk_gate: disk_gate::DiskGate,
    disk_shares: disk_shares::DiskShares,
    uses: uses::Uses,
    /// What gives effect to rights, and how much clients wait, as it was last looked at, and when.
    enforced: Option<(Instant, Vec<Enforcement>, Vec<Pressure>)>,
    /// Who looks after the kernel's scheduler, where that is ours.
    kernel: Option<Keeper>,
}

/// How the kernel is told what clients are due, where it divides.
#[derive(Debug)]
struct Weights {
    /// Somebody came or left, or the market has news.
    stale: bool,
    /// Clients that may be due something else than was written.
    owed: BTreeSet<ClientId>,
    /// It was told that the kernel's ranges are too narrow for these shares: of the CPU, of iocost's disks, of BFQ's.
    told: [bool; 3],
    /// What was told of why they could not be written.
    refused: Option<String>,
    /// When they may be written.
    budget: Budget,
    /// When it was last looked how much memory there is, and which disks.
    looked: Instant,
}

/// A line of the kernel's own; nothing where that cannot be read.
fn kernel_word(name: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    text.trim().to_owned()
}

impl Weights {
    /// When they are to be written, if they are others by now.
    fn due(&self) -> Option<Instant> {
        (self.stale || !self.owed.is_empty()).then(|| self.budget.next())
    }

    /// Says which of the kernel's ranges are too narrow, once until they are not.
    fn tell(&mut self, off: Off) {
        const SHARES: &str =
            "off these shares: its range is 1 to 10000; --backend signals divides them exactly";
        const PARTS: &str = "off these parts of the disks, by its range";
        let [iocost, bfq] = off.disks;
        let all = [
            (off.cpu, DEVIATION_WARN_PPM, "the kernel", SHARES.to_owned()),
            (iocost, DISK_WARN_PPM, "iocost", format!("{PARTS} of 1 to 10000")),
            (bfq, DISK_WARN_PPM, "BFQ", format!("{PARTS} of 1 to 1000")),
        ];
        for ((off, most, whose, from), told) in all.into_iter().zip(&mut self.told) {
            if off > most && !*told {
                crate::say(format_args!("{whose}'s weights are up to {:.2} % {from}", off as f64 / 1e4));
            }
            *told = off > most;
        }
    }
}

impl Scheduler {
    /// A scheduler of nobody yet, that never touches whom `shelter` names.
    pub(crate) fn new(
        mut engine: Session<LinuxHost>,
        settings: Settings,
        shelter: Shelter,
        (requests, publisher): (Receiver<Request>, Publisher),
    ) -> Self {
        let (waker, now) = (engine.host().waker(), clock::now());
        engine.host_mut().protect(shelter.protection());
        let log = Log::default();
        engine.record_to(Box::new(log.clone()));
        let system = settings.market.clone().map(system::System::new);
        log.keep_seen();
        let own = system.is_none().then(own::Own::new);
        let follows = engine.host().follows();
        let leave_at = settings.linger.map(|linger| now + linger.max(FIRST_LINGER));
        Self {
            engine,
            settings,
            shelter,
            requests,
            publisher,
            waker,
            book: Book::default(),
            log,
            started: now,
            instance: kernel_word("random/uuid"),
            leave_at,
            audited: Instant::ZERO,
            window: Window::new(now),
            system,
            own,
            rules: rules::RuleBook::default(),
            spent: Spent::default(),
            weights: Weights {
                stale: false,
                owed: BTreeSet::new(),
                told: [false; 3],
                refused: None,
                budget: WRITE_BUDGET,
                looked: now,
            },
            follows,
            rebasing: Budget::new(REBASE_PART, Nanos(0)),
            disk_gate: disk_gate::DiskGate::default(),
            disk_shares: disk_shares::DiskShares::default(),
            uses: uses::Uses::default(),
            enforced: None,
            kernel: None,
        }
    }

    /// Schedules until there is a reason to end.
    ///
    /// # Errors
    /// [`EngineError`] where the host failed as a whole; everything is released when this is dropped.
    pub(crate) fn run(&mut self) -> Result<End, EngineError> {
        loop {
            let idle_at = self.system.as_ref().and_then(system::System::next);
            let idle_own = self.own.as_ref().and_then(own::Own::next);
            let disks = [self.disk_gate.next(), self.disk_shares.next()];
            let weights = if self.follows { self.weights.due() } else { None };
            let until = [self.leave_at, idle_at, idle_own, weights].into_iter().chain(disks);
            let until = until.flatten().min();
            self.engine.turn(until)?;
            let engine = &self.engine;
            self.window.follow(engine.ledger(), clock::now(), |client| engine.balance(client));
            self.note_lost();
            self.note_warnings();
            self.keep_market();
            self.keep_groups();
            self.keep_disks();
            self.share_disks();
            let mut asked = self.engine.host_mut().take_asked();
            if let Some(reload) = &self.settings.reload {
                asked.retain(|&signal| {
                    signal != Asked::SIGHUP || {
                        reload.notify_one();
                        false
                    }
                });
            }
            if let Some(&signal) = asked.iter().find(|s| **s != Asked::SIGWINCH) {
                return Ok(End::Asked(signal));
            }
            if !self.serve_requests()? {
                return Ok(End::ApiGone);
            }
            self.follow_shares();
            self.publish_if_wanted();
            if self.leave_at.is_some_and(|at| clock::now() >= at) {
                return Ok(End::Idle);
            }
        }
    }

    /// Notes that a client may be due something else by now.
    fn owe(&mut self, client: ClientId) {
        if self.follows {
            self.weights.owed.insert(client);
        }
    }

    /// Tells the kernel what clients are due, where it divides and that is something else by now.
    fn follow_shares(&mut self) {
        if !self.follows {
            return;
        }
        let now = clock::now();
        // Memory that the kernel takes for itself is nobody's, and disks come: nobody tells.
        let check =
            if now.since(self.weights.looked) >= MACHINE_INTERVAL { Check::Machine } else { Check::Nothing };
        self.weights.stale |= check == Check::Machine;
        if self.weights.due().is_none_or(|due| due > now) {
            return;
        }
        let begun = clock::own_thread_cpu();
        self.take_values();
        self.write_weights(check);
        if check == Check::Machine {
            self.weights.looked = now;
        }
        self.weights.budget.pay(now, clock::own_thread_cpu().saturating_sub(begun), self.book.len());
    }

    pub(super) fn write_weights(&mut self, check: Check) {
        self.weights.stale = false;
        let owed = std::mem::take(&mut self.weights.owed).into_iter();
        let present = owed.filter(|&client| self.book.entry(client).is_some());
        let dues: Vec<(ClientId, Due)> = present.map(|client| (client, self.due(client))).collect();
        let given = self.engine.host_mut().give_dues(&dues, check);
        self.bound_remade();
        if self.engine.host_mut().take_disks_came() {
            self.bound_new_disks();
        }
        let refused = given.as_ref().err().map(ToString::to_string);
        let before = std::mem::replace(&mut self.weights.refused, refused);
        match given {
            Ok(off) => self.weights.tell(off),
            // It is tried again and again, and told once.
            Err(e) if before.is_some_and(|before| before == e.to_string()) => {}
            Err(e) => crate::say(format_args!(
                "a client keeps the weight, the memory, or the part of the disks, that it had: {e}"
            )),
        }
    }

    /// Does what waits in the queue, up to a batch; `false` where nobody can ask any more.
    fn serve_requests(&mut self) -> Result<bool, EngineError> {
        for _ in 0..BATCH {
            let request = match self.requests.try_recv() {
                Ok(request) => request,
                Err(TryRecvError::Empty) => return Ok(true),
                Err(TryRecvError::Disconnected) => return Ok(false),
            };
            let answer = self.answer_within_its_part(request.command);
            self.note_lost();
            // Whoever has gone meanwhile need not know.
            let _ = request.reply.send(answer);
            self.engine.serve()?;
        }
        self.waker.wake(); // There may be more: the next wait is none.
        Ok(true)
    }

    /// Answers, unless that is dear and its user's requests have taken too much of our time already.
    fn answer_within_its_part(&mut self, command: Command) -> Result<Answer, Refusal> {
        let Some((uid, dear)) = self.system.as_ref().and_then(|_| command.charged()) else {
            return self.answer(command);
        };
        // CPU time: how long others keep us from running is not the user's doing, and could be somebody else's.
        let begun = clock::own_thread_cpu();
        if dear && let Err(wait) = self.spent.check(uid, clock::now()) {
            let text = format!("what user {uid} asks for takes too much of the scheduler's time");
            let fix = format!("ask again in {} ms, or for less", wait.0.div_ceil(1_000_000));
            return Err(Refusal::new(ErrorCode::Limit, text, fix));
        }
        let answer = self.answer(command);
        self.spent.charge(uid, clock::own_thread_cpu().saturating_sub(begun), clock::now());
        answer
    }

    fn answer(&mut self, command: Command) -> Result<Answer, Refusal> {
        match command {
            Command::Status => Ok(Answer::Status(Box::new(self.status()))),
            Command::Prepare { new, who } => self.prepare(&new, &who),
            Command::Add { new, who, admitted } => {
                let answer = self.add(&new, &who, admitted.as_deref());
                self.stay_a_while();
                answer
            }
            Command::Owned { key, who, pauses } => {
                let client = self.book.find_present(&key, self.asker(&who))?;
                self.check_owner(client, &who)?;
                if pauses {
                    self.check_pause(client, &who)?;
                }
                let owner = self.book.entry(client).and_then(|entry| entry.owner.clone());
                let owner = owner.ok_or_else(|| internal_text("a client without an owner"))?;
                let cpus = self.book.entry(client).and_then(|entry| entry.bounds.cpus).unwrap_or_default();
                Ok(Answer::Owned(client.0, owner, self.limits_of(client), Cpus(cpus)))
            }
            Command::Show { key } => {
                let client = self.book.find_present(&key, None)?;
                Ok(Answer::Client(Box::new(self.client(client, divvy_api::types::MEMBERS_SHOWN)?)))
            }
            Command::Change { key, change, who } => {
                let client = self.book.find_present(&key, self.asker(&who))?;
                self.check_owner(client, &who)?;
                if change.paused == Some(true) {
                    self.check_pause(client, &who)?;
                }
                self.change(client, change)?;
                Ok(Answer::Client(Box::new(self.client(client, divvy_api::types::MEMBERS_SHOWN)?)))
            }
            Command::Detach { key, who } => {
                let client = self.book.find_present(&key, self.asker(&who))?;
                self.check_owner(client, &who)?;
                let mut last = self.client(client, 0)?;
                self.detach(client)?;
                last.state = divvy_api::types::ClientState::Left;
                Ok(Answer::Client(Box::new(last)))
            }
            Command::ChangeGroup { key, change, .. } => self.change_group(&key, change),
            Command::DetachGroup { key, .. } => self.detach_group(&key),
            Command::TakeRules(loaded) => {
                self.take_rules(*loaded);
                Ok(Answer::Rules(self.rules_state()))
            }
            Command::Rules => Ok(Answer::Rules(self.rules_state())),
            Command::Events { since, .. } => Ok(Answer::Events(self.log.since(since, clock::now()))),
        }
    }

    /// What gives effect to rights, resource by resource: to memory and disks only where there is a market.
    pub(crate) fn enforced(&self) -> Vec<Enforcement> {
        let used = self.settings.backend.used.as_str();
        let by = match used {
            "freezer" => self.engine.host().freezes_by().unwrap_or(used),
            "cgroup" => "the kernel's CPU weights",
            other => other,
        };
        let kept = || (by.to_owned(), String::new());
        let (by, note) = self.kernel.as_ref().map_or_else(kept, Keeper::by);
        let mut all = vec![Enforcement { resource: "cpu".to_owned(), by: Some(by), note }];
        let kept = self.engine.host().enforced();
        if self.system.is_some() && kept.is_empty() {
            let note = "start divvyd with --backend cgroup";
            let not = |resource: &str| Enforcement {
                resource: resource.to_owned(),
                by: None,
                note: note.to_owned(),
            };
            all.extend(["memory", "disk"].map(not));
        }
        let told = |e: divvy_linux::cgroup::Enforced| Enforcement {
            resource: e.resource.to_owned(),
            by: e.by,
            note: e.note,
        };
        all.extend(kept.into_iter().map(told));
        self.note_disks_by_us(&mut all);
        all
    }

    /// Lets `keeper` look after the kernel's scheduler for as long as this one schedules.
    pub(crate) fn set_kernel(&mut self, keeper: Keeper) {
        self.kernel = Some(keeper);
    }

    /// Gives the CPUs back to the kernel's own scheduler, where they are not.
    pub(crate) fn let_go_of_kernel(&mut self) {
        self.kernel = None;
    }

    /// The back end that is used now.
    pub(super) fn backend(&self) -> BackendInfo {
        let host = self.engine.host();
        let (keeps_cpus, starts_on) = (host.keeps_cpus(), host.starts_on());
        let info = BackendInfo { keeps_cpus, starts_on, ..self.settings.backend.clone() };
        match self.kernel.as_ref().and_then(Keeper::ended) {
            Some(why) => {
                BackendInfo { used: "cgroup".to_owned(), why: format!("divvy-scx has ended: {why}"), ..info }
            }
            None => info,
        }
    }

    /// By whose names a key is looked up first.
    fn asker(&self, who: &Who) -> Option<u32> {
        self.system.as_ref().map(|_| who.uid)
    }

    fn status(&mut self) -> Status {
        let enforced = match self.enforced.take() {
            Some(looked) if clock::now().since(looked.0) < ENFORCED_INTERVAL => looked,
            _ => (clock::now(), self.enforced(), Pressure::of(self.engine.host().cgroup(None).as_deref())),
        };
        let (told, pressure) = (enforced.1.clone(), enforced.2.clone());
        self.enforced = Some(enforced);
        let uptime = clock::now().since(self.started);
        let cost = self.engine.self_cost();
        let host = self.engine.host();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: rustix::process::getpid().as_raw_nonzero().get(),
            host: kernel_word("hostname"),
            instance: self.instance.clone(),
            policy: self.engine.policy().spec().policy.clone(),
            options: Some(self.settings.options.clone()),
            policy_file: None, // The API's thread knows.
            backend: BackendInfo { enforced: told, ..self.backend() },
            quantum_ns: self.engine.policy().spec().quantum_ns,
            cpus: host.cpus().to_vec(),
            uptime_ns: uptime.0,
            age_ns: 0,
            own: OwnCost {
                cpu_ns: cost.cpu.0,
                overhead: cost.cpu.0 as f64 / uptime.0.max(1) as f64,
                wakeups: self.engine.wakeups(),
                reads: cost.reads,
                signals: cost.signals,
                scans: host.membership().scans,
            },
            clients: self.book.len(),
            pressure,
        }
    }

    fn change(&mut self, client: ClientId, change: Change) -> Result<(), Refusal> {
        if change == Change::default() {
            let fix = "give `share`, `limit_ppm`, `bounds` or `paused`";
            return Err(Refusal::new(ErrorCode::BadRequest, "nothing is to be changed", fix));
        }
        let share = change.share.map(parse_share).transpose()?;
        let limit = change.limit_ppm.map(parse_limit).transpose()?;
        let had = self.engine.ledger().clients()[client.index()].limit;
        self.mend_cgroups(Some(client));
        self.check_bounds(Some(client), limit.unwrap_or(had), change.bounds)?;
        if let Some(share) = share.filter(|_| self.system.is_none()) {
            self.check_cycle(share, Some(client))?;
        }
        // What the kernel may refuse comes first, and nothing of it stays where something else of it is refused.
        if let Some(limit) = limit {
            self.set_limit(client, limit)?;
        }
        if let Err(refusal) = self.set_bounds(client, change.bounds) {
            if limit.is_some() {
                let _ = self.set_limit(client, had);
            }
            return Err(refusal);
        }
        self.let_limit_hold(limit.flatten());
        let owned = self.book.entry_mut(client).and_then(|entry| entry.owner.as_mut());
        if let (Some(owner), Some(share)) = (owned, share) {
            // The market has changed the ticket, and tells what that is worth.
            owner.amount = share.get();
        } else if let Some(share) = share {
            self.rebase();
            if let Some(own) = &mut self.own {
                own.groups.set_share(client, share);
            }
            self.apply_groups();
        } else {
            self.rebase();
        }
        match change.paused {
            Some(true) => {
                self.log.pause(clock::now(), client, true);
                self.engine.pause(client).map_err(internal)?;
                self.disk_gate.set_paused(client, true);
                self.disk_shares.set_paused(client, true);
                self.note_paused(client, true);
            }
            Some(false) => {
                self.engine.resume(client).map_err(internal)?;
                self.disk_gate.set_paused(client, false);
                self.disk_shares.set_paused(client, false);
                if self.held_for_disks(client) {
                    self.engine.hold_apart(client).map_err(internal)?;
                }
                self.log.pause(clock::now(), client, false);
                self.note_paused(client, false);
            }
            None => {}
        }
        Ok(())
    }

    /// What a client may not exceed.
    fn limits_of(&self, client: ClientId) -> Limits {
        let bounds = self.book.entry(client).map_or_else(Default::default, |entry| entry.bounds);
        Limits {
            cpu_ppm: self.engine.ledger().clients()[client.index()].limit.map(CpuLimit::ppm),
            memory: bounds.limit_memory_bytes,
            disk: bounds.limit_disk_bytes,
        }
    }

    fn note_paused(&mut self, client: ClientId, paused: bool) {
        if let Some(own) = &mut self.own {
            own.groups.set_paused(client, paused);
        }
        self.apply_groups();
    }

    fn detach(&mut self, client: ClientId) -> Result<(), Refusal> {
        self.engine.host_mut().detach(client).map_err(system)?;
        // The host tells the engine, which lets it leave.
        self.engine.serve().map_err(internal)?;
        self.note_lost();
        Ok(())
    }

    /// What the host found on its way goes to the log.
    fn note_warnings(&mut self) {
        for warning in self.engine.host_mut().take_warnings() {
            match warning.client.and_then(|client| self.book.entry(client)) {
                Some(entry) => crate::say(format_args!("{}: {}", entry.name, warning.text)),
                None => crate::say(&warning.text),
            }
        }
    }

    /// Takes clients out of the book that are out of the run.
    fn note_lost(&mut self) {
        for lost in self.engine.take_lost() {
            let Ok(mut last) = self.client(lost.client, 0) else { continue };
            last.state = divvy_api::types::ClientState::Left;
            if lost.why != HostError::Gone {
                crate::say(format_args!("{}: {}; not divided any more", last.name, lost.why));
                last.why = Some(lost.why.to_string());
                // What cannot be scheduled is let go: it runs on undivided, as far as that is in our hands.
                let _ = self.engine.host_mut().detach(lost.client);
            }
            let owner = self.book.entry(lost.client).and_then(|entry| entry.owner.clone());
            if let (Some(system), Some(owner)) = (&mut self.system, owner) {
                system.leave(lost.client, &owner);
            }
            self.disk_gate.leave(lost.client);
            self.disk_shares.leave(lost.client);
            self.uses.leave(lost.client);
            self.leave_group(lost.client);
            self.book.leave(lost.client, last);
            // All that there is to tell of it is in the book.
            self.engine.host_mut().forget(lost.client);
            self.weights.stale = true;
            self.rebase();
        }
        match self.leave_at {
            None if self.book.len() == 0 => {
                self.leave_at = self.settings.linger.map(|linger| clock::now() + linger);
            }
            Some(_) if self.book.len() > 0 => self.leave_at = None,
            _ => {}
        }
    }

    /// Somebody has asked for something to be added: where it failed, there may be another attempt.
    fn stay_a_while(&mut self) {
        if let (Some(at), Some(linger)) = (self.leave_at, self.settings.linger) {
            self.leave_at = Some(at.max(clock::now() + linger));
        }
        if self.book.len() > 0 {
            self.leave_at = None;
        }
    }

    /// Checks that a cycle does not become absurd with another client of this share, or with this share for `client`.
    fn check_cycle(&self, share: Share, client: Option<ClientId>) -> Result<(), Refusal> {
        if self.own.as_ref().is_some_and(|own| !own.groups.is_empty()) {
            return Ok(()); // What groups come to is bounded.
        }
        let ledger = self.engine.ledger().clients();
        let others = self.book.present().filter(|&(id, _)| Some(id) != client);
        let shares = others.map(|(id, _)| ledger[id.index()].share.get()).chain([share.get()]);
        let shares: Vec<u64> = shares.collect();
        let cycle = self.engine.policy().cycle(&shares).unwrap_or(0);
        if cycle > u128::from(CYCLE_MAX.0) {
            let (hours, sum) = (cycle / 3_600_000_000_000, shares.iter().sum::<u64>());
            let text = format!("shares of {sum} in all make a cycle of {hours} hours");
            return Err(Refusal::new(
                ErrorCode::BadRequest,
                text,
                "use smaller shares, or multiples of one number",
            ));
        }
        Ok(())
    }
}

fn parse_share(n: u64) -> Result<Share, Refusal> {
    let share = Share::new(n).ok().filter(|share| share.get() <= SHARE_MAX);
    share.ok_or_else(|| {
        let text = format!("share {n}: a share is a whole number from 1 to {SHARE_MAX}");
        Refusal::new(ErrorCode::BadRequest, text, "give another share")
    })
}

/// A limit in millionths of one CPU; 0 is none.
fn parse_limit(ppm: u64) -> Result<Option<CpuLimit>, Refusal> {
    if ppm == 0 {
        return Ok(None);
    }
    CpuLimit::new(ppm).map(Some).map_err(|e| {
        let text = format!("limit_ppm {ppm}: {e}");
        Refusal::new(
            ErrorCode::BadRequest,
            text,
            "give 10000 to 4096000000 millionths of one CPU, or 0 for none",
        )
    })
}

/// The refusal for a limit that the kernel was to keep, and does not.
fn limited(e: EngineError) -> Refusal {
    match e {
        EngineError::Host(e) => {
            let fix = "start divvyd with --backend signals, which keeps limits by itself";
            Refusal::new(ErrorCode::NotPermitted, format!("the kernel was to keep the limit: {e}"), fix)
        }
        e => internal(e),
    }
}

fn internal_text(text: &str) -> Refusal {
    Refusal::new(ErrorCode::Internal, text, "")
}

fn internal(e: EngineError) -> Refusal {
    Refusal::new(ErrorCode::Internal, e, "")
}

/// The refusal for what the system said.
fn system(e: divvy_linux::Error) -> Refusal {
    use divvy_linux::Error;
    let (code, fix) = match &e {
        Error::Spawn { .. } => (ErrorCode::NotStarted, "check the name, or give the full path"),
        Error::Permission { .. } => (ErrorCode::NotPermitted, ""),
        Error::Processes { .. } => (ErrorCode::Busy, ""),
        Error::TableFull { .. } => (ErrorCode::Busy, "detach what need not be divided"),
        e => match e.errno() {
            Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => {
                (ErrorCode::Busy, "raise the limit of open files (ulimit -n) and start divvyd anew")
            }
            Some(rustix::io::Errno::AGAIN) if matches!(e, Error::System { operation: "make cgroup", .. }) => {
                (ErrorCode::Busy, "raise cgroup.max.descendants or cgroup.max.depth of the cgroups around it")
            }
            Some(rustix::io::Errno::AGAIN) => (ErrorCode::Busy, "raise the limit of processes (ulimit -u)"),
            Some(rustix::io::Errno::SRCH) => (ErrorCode::NoSuchProcess, "see `ps`"),
            _ => (ErrorCode::Internal, ""),
        },
    };
    Refusal::new(code, e, fix)
}
