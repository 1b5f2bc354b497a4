//! Clients of processes that run already: who belongs to which, kept up to date at a bounded cost.

mod plan;
mod told;

pub use plan::{KnownMember, Match};

use std::collections::HashMap;

use divvy_engine::News;
use divvy_policy::{ClientId, Instant, Nanos};
use serde::Serialize;

use crate::census::{Census, Rule, User};
use crate::cgroup::Urgency;
use crate::events::ProcessEvents;
use crate::guard::Table;
use crate::host::{Client, Condition, LinuxHost};
use crate::members::{Ended, Look, Members, Standing, Tally};
use crate::procfs::{self, Latest, StartTime, Stat, State};
use crate::protect::Protection;
use crate::quota::{self, Mounts, Quota};
use crate::select::Selector;
use crate::world::Live;
use crate::{Error, Pid, Result, clock};
use told::Told;

/// The list of processes is read this often, and every idle member's clock.
const SCAN_INTERVAL: Nanos = Nanos::from_secs(1);
/// Scans take at most one part in this many of the time of one CPU: dear ones come less often.
const SCAN_REST: u64 = 100;
/// Where events were lost a scan comes sooner, but not sooner than this after the last.
const SCAN_INTERVAL_LOST: Nanos = Nanos::from_millis(100);
/// Scans that leave the list of processes out where nobody was made meanwhile, or events tell of everybody: at most.
const SKIPS_MAX: u32 = 9;
/// Of more processes that were made between two scans, the others are looked at when the list is read.
const YOUNG_MAX: usize = 1024;
/// Idle members whose clocks are read at each wake-up.
const SENTRY_LOOKS: usize = 32;
/// Idle members whose clocks are read in a second, at most, whatever for; a review reads more besides.
const IDLE_LOOKS_RATE: u64 = 4000;
/// Each of them is looked at so often in a second, at most.
const IDLE_LOOKS_EACH: u64 = 20;
/// Idle members whose clocks a review reads, at most: of more, each has its turn every few seconds.
const IDLE_REVIEWED_MAX: usize = 4096;
/// Of those, so many at one time.
const IDLE_LOOKS_MAX: usize = 256;
/// Members by whose affinities the CPUs of a client are found.
const AFFINITIES_MAX: usize = 64;

/// How new members are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// By reading the list of processes, once a second or less often.
    Scan,
    /// The kernel tells of forks and executions; the list is read now and then.
    ProcessEvents,
}

/// For whom a client is attached; by default for whoever runs us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttachFor {
    /// Only processes of this user are held and charged.
    pub owner: Option<u32>,
    /// The process that is named by its number began then.
    pub start: Option<StartTime>,
    /// The user whose clients have a cgroup in common, where there are such.
    pub user: Option<u32>,
}

/// What keeping track of members costs, and what it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Membership {
    /// How new members are found.
    pub source: Source,
    /// Scans so far.
    pub scans: u64,
    /// CPU time that they took, ns.
    pub scan_ns: u64,
    /// The time from one scan to the next at the moment, ns: longer where they are dear.
    pub interval_ns: u64,
    /// Process events so far.
    pub events: u64,
    /// How often the kernel had more events than we took, so that a scan had to find the rest.
    pub overruns: u64,
    /// Processes that were seen at the last scan, members or not.
    pub processes: u64,
    /// Members of attached clients.
    pub members: u64,
    /// Of those, how many do nothing and are left alone.
    pub idle: u64,
    /// Of those, how many may not be signalled.
    pub not_permitted: u64,
    /// From the first to the last stop signal of one client's hold, the last time, ns.
    pub skew_ns: u64,
    /// The same, the longest so far.
    pub skew_ns_max: u64,
}

/// A member of a client, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberInfo {
    /// Its pid.
    pub pid: Pid,
    /// The kernel's name of it; empty for one that has just ended.
    pub name: String,
    /// What it is doing.
    pub state: State,
    /// CPU time that the client was charged for it.
    pub cpu: Nanos,
    /// Whether it may be signalled.
    pub permitted: bool,
    /// Whether we have suspended it.
    pub held: bool,
}

/// What a host knows of attached clients.
#[derive(Debug)]
pub(crate) struct Attached {
    census: Census,
    /// In order of precedence.
    rules: Vec<Rule>,
    /// Whose every member is.
    owners: HashMap<Pid, ClientId>,
    protection: Protection,
    mounts: Mounts,
    /// `None` before the first client; `Some(None)` where the kernel does not tell.
    events: Option<Option<ProcessEvents>>,
    next_scan: Instant,
    /// When a scan may be made if events were lost.
    soonest: Instant,
    interval: Nanos,
    /// Scans since the list of processes was read.
    skipped: u32,
    last_pid: Latest,
    /// Who was made since the last scan, where a group has a client: a process enters a group after it was made, and nobody
    /// tells of that.
    young: Vec<Pid>,
    sentry_next: usize,
    review_next: usize,
    /// Idle members of all clients at the last review or attachment.
    nr_idle: u64,
    /// When looks at idle members were last allowed.
    idle_allowed_at: Instant,
    scans: u64,
    scan_cpu: Nanos,
    nr_events: u64,
    overruns: u64,
}

impl Attached {
    pub(crate) fn new() -> Self {
        Self {
            census: Census::new(Live, rustix::process::getpid()),
            rules: Vec::new(),
            owners: HashMap::new(),
            protection: Protection::standard(),
            mounts: Mounts::default(),
            events: None,
            next_scan: Instant::ZERO,
            soonest: Instant::ZERO,
            interval: SCAN_INTERVAL,
            skipped: 0,
            last_pid: Latest::default(),
            young: Vec::new(),
            sentry_next: 0,
            review_next: 0,
            nr_idle: 0,
            idle_allowed_at: Instant::ZERO,
            scans: 0,
            scan_cpu: Nanos::ZERO,
            nr_events: 0,
            overruns: 0,
        }
    }
}

/// Refuses a process that is not all `owner`'s.
fn check_owner(process: &crate::ProcessRef, owner: Option<u32>) -> Result<()> {
    let (Some(owner), pid) = (owner, process.pid()) else { return Ok(()) };
    let users = crate::users(pid)?;
    // Asked after the users were read: if it lives, they were its own, and not those of somebody with its number.
    if process.is_alive()? && users.is_some_and(|users| users.is_owned_by(owner)) {
        return Ok(());
    }
    let whose = users.map_or_else(String::new, |users| format!(" ({users})"));
    Err(Error::system("attach to process", format!("{pid}{whose} for user {owner}"), rustix::io::Errno::PERM))
}

fn select_error(selector: &Selector, what: String, fix: &'static str) -> Error {
    Error::Select { selector: selector.to_string(), what, fix }
}

/// Whether it is a process group or session that has no process at all.
fn is_of_nobody(selector: &Selector) -> Result<bool> {
    let (id, of): (_, fn(Stat) -> Option<Pid>) = match selector {
        Selector::Group(id) => (*id, |stat| stat.pgrp),
        Selector::Session(id) => (*id, |stat| stat.session),
        _ => return Ok(false),
    };
    let mut found = false;
    procfs::processes(|pid| found = found || procfs::stat(pid).ok().flatten().and_then(of) == Some(id))?;
    Ok(!found)
}

impl LinuxHost {
    /// Never touches those whom `protection` names, from now on; [`Protection::standard`] where nothing is said.
    pub fn protect(&mut self, protection: Protection) {
        self.attached.protection = protection;
        self.attached.next_scan = Instant::ZERO;
        self.reassign_all();
    }

    /// Who is never touched.
    #[must_use]
    pub fn protection(&self) -> &Protection {
        &self.attached.protection
    }

    /// Takes the processes that `selector` names as the client with the next id, held as far as they use CPU time.
    ///
    /// What they used before is not charged. Whoever comes to match later joins the client, whoever ceases to leaves it,
    /// and none of them is waited for, ended or killed by us.
    ///
    /// # Errors
    /// [`Error::Select`] where `pid:` or `tree:` names nobody, a protected process or one of our own commands', where `pid:`
    /// names a process that another client has by as narrow a selector; [`Error::Taken`] where all that is named is in other clients;
    /// [`Error::Permission`] where we may not signal it.
    /// Nothing is held then.
    pub fn attach(&mut self, selector: &Selector) -> Result<ClientId> {
        self.attach_for(selector, AttachFor::default())
    }

    /// As [`attach`](Self::attach), for a user: only processes that are `owner`'s in every way
    /// ([`is_owned_by`](crate::Users::is_owned_by)) are
    /// held and charged. Others in a tree are members that are not permitted; by any other selector they are none.
    ///
    /// # Errors
    /// As [`attach`](Self::attach); [`Error::Permission`] where `pid:` or `tree:` names a process that is not the owner's,
    /// by the users of the very process that is attached then; [`Error::Select`] where that did not begin at `start`, if that
    /// is given: somebody else has got its number since whoever asks has looked.
    pub fn attach_for(&mut self, selector: &Selector, whom: AttachFor) -> Result<ClientId> {
        let AttachFor { owner, start: meant, user } = whom;
        let start = self.check(selector, owner)?;
        if meant.is_some() && meant != start {
            return Err(select_error(
                selector,
                "that process has ended, and another has got its number".into(),
                "look with ps which there are",
            ));
        }
        let client = self.clients.next_id();
        let leaf = self.leaf_for(selector, client, user)?;
        let members = Members::attached(Live, selector.children()).owned_by(owner);
        let members = members.on_several_cpus(self.cpus.len() > 1);
        let mut new = Client::new(members);
        (new.condition, new.selector, new.leaf) = (Condition::Held, Some(selector.clone()), leaf);
        new.since = StartTime::of(clock::since_boot());
        self.clients.push(new);
        let rule = Rule { client, selector: selector.clone(), start, owner };
        let order = (selector.rank(), client);
        let at = self.attached.rules.partition_point(|r| (r.selector.rank(), r.client) < order);
        self.attached.rules.insert(at, rule);
        if owner.is_some() || matches!(selector, Selector::User(_)) {
            self.attached.census.ask_for_users();
        }
        if self.attached.events.is_none() {
            self.attached.mounts = Mounts::read();
            self.attached.events = Some(ProcessEvents::open().ok());
        }
        let scanned = self.scan_processes(true).map(|()| self.reassign_all());
        let empty = self.clients[client.index()].members.is_empty();
        if let Err(e) = scanned {
            self.undo_attach(client);
            return Err(e);
        }
        if empty && selector.must_match() {
            self.undo_attach(client);
            return Err(self.why_nobody(selector, start, owner)?);
        }
        self.migrate(Urgency::Now);
        self.update_cpus(client.index());
        self.count_idle();
        Ok(client)
    }

    /// Refuses at once what cannot be meant; when the process began that is meant by its number.
    fn check(&self, selector: &Selector, owner: Option<u32>) -> Result<Option<StartTime>> {
        let refused = |what: String, fix| Err(select_error(selector, what, fix));
        let (Selector::Pid(pid) | Selector::Tree(pid)) = selector else {
            // Its number may be another's later, who was not meant. Names, users and cgroups are waited for.
            if is_of_nobody(selector)? {
                return refused(
                    format!("there is no process in {selector}"),
                    "look with ps -e -o pid,pgid,sid,args",
                );
            }
            return Ok(None);
        };
        let Some(process) = crate::ProcessRef::open(*pid)? else {
            return refused(format!("there is no process {pid}"), "look with ps which there are");
        };
        check_owner(&process, owner)?;
        if self
            .clients
            .iter()
            .any(|c| c.selector.is_none() && !c.is_gone() && c.members.process(*pid).is_some())
        {
            return refused("it belongs to a command of this divvy".into(), "change that command's share");
        }
        if let Selector::Pid(_) = selector {
            if let Some(why) = self.attached.protection.check(*pid) {
                return refused(format!("it is never touched: {why}"), "choose another process");
            }
            let taken = self.attached.rules.iter().find(|r| r.selector == *selector);
            if let Some(taken) = taken {
                return refused(
                    format!("client {} has it already", taken.client.0),
                    "change that client's share",
                );
            }
            if process.may_signal()? == Some(false) {
                return Err(Error::system("attach to process", pid, rustix::io::Errno::PERM));
            }
        }
        Ok(Some(process.start()))
    }

    /// Says whether `selector` can be attached, as far as that can be said beforehand. Holds nobody.
    ///
    /// # Errors
    /// As [`attach`](Self::attach).
    pub fn can_attach(&self, selector: &Selector) -> Result<()> {
        self.check(selector, None).map(|_| ())
    }

    /// Takes back a client that nobody was told of.
    fn undo_attach(&mut self, client: ClientId) {
        self.attached.rules.retain(|r| r.client != client);
        self.let_go(client);
        self.clients.pop();
    }

    /// Releases a client for good: its processes go on, undivided, and the engine is told that it has left. Processes that
    /// a broader selector names join that one's client.
    ///
    /// # Errors
    /// As [`ProcessRef::signal`](crate::ProcessRef::signal): what could not be resumed stays in the table, for the
    /// guardian and `divvy rescue`.
    pub fn detach(&mut self, client: ClientId) -> Result<()> {
        self.release_last();
        let i = client.index();
        if self.clients.get(i).is_none_or(|c| c.is_gone()) {
            return Ok(());
        }
        self.attached.rules.retain(|r| r.client != client);
        self.forget_naps(i);
        let freed = if self.clients[i].selector.is_some() {
            self.let_go(client)
        } else {
            let c = &mut self.clients[i];
            let look = &mut Look::new(&mut self.table, &mut self.tally, clock::now(), false);
            let _ = c.members.total(look); // What can be read counts.
            c.members.resume(look)?;
            c.members.resume_wrappers(look);
            c.members.leave_table(look);
            self.disband(client);
            Vec::new()
        };
        let c = &mut self.clients[i];
        c.condition = c.condition.gone();
        self.news.push_back(News::Gone(client));
        for pid in freed {
            self.reassign(pid, false);
        }
        Ok(())
    }

    /// Drops what is known of a client that is gone and that nobody will ask about any more; its id is not given again.
    /// Whoever has not left is not forgotten.
    pub fn forget(&mut self, client: ClientId) {
        if self.clients.get(client.index()).is_some_and(|c| c.is_gone()) {
            self.forget_leader(client);
            self.clients.forget(client);
        }
    }

    /// Resumes and forgets all members of an attached client; who they were.
    fn let_go(&mut self, client: ClientId) -> Vec<Pid> {
        let c = &mut self.clients[client.index()];
        let look = &mut Look::new(&mut self.table, &mut self.tally, clock::now(), false);
        let _ = c.members.total(look);
        let pids: Vec<Pid> = c.members.pids().map(|(pid, _)| pid).collect();
        // Nobody looks at them again when their children are members no more.
        c.members.meet_wrappers(look);
        for &pid in &pids {
            if let Some(process) = c.members.process(pid) {
                self.reactor.unwatch(process);
            }
            // What cannot be resumed stays in the table, for the guardian and the rescue.
            let _ = c.members.take(pid, look);
        }
        let _ = c.members.total(look);
        c.members.resume_known_wrappers(look);
        self.attached.owners.retain(|_, owner| *owner != client);
        self.disband(client);
        pids
    }

    /// The members of `client` that are known, by pid.
    #[must_use]
    pub fn members(&self, client: ClientId) -> Vec<MemberInfo> {
        self.members_up_to(client, usize::MAX)
    }

    /// The attached client that has process `pid`.
    #[must_use]
    pub fn client_of(&self, pid: Pid) -> Option<ClientId> {
        self.attached.owners.get(&pid).copied()
    }

    /// What the client was attached by; `None` for a command.
    #[must_use]
    pub fn selector(&self, client: ClientId) -> Option<&Selector> {
        self.clients.get(client.index())?.selector.as_ref()
    }

    /// What keeping track of the members of attached clients costs, and what it found.
    #[must_use]
    pub fn membership(&self) -> Membership {
        let attached = || self.clients.iter().filter(|c| c.selector.is_some() && !c.is_gone());
        let sum = |count: fn(&Members) -> usize| attached().map(|c| count(&c.members) as u64).sum();
        let skews = || self.clients.iter().map(|c| c.members.skew());
        let a = &self.attached;
        Membership {
            source: if matches!(a.events, Some(Some(_))) { Source::ProcessEvents } else { Source::Scan },
            scans: a.scans,
            scan_ns: a.scan_cpu.0,
            interval_ns: a.interval.0,
            events: a.nr_events,
            overruns: a.overruns,
            processes: a.census.len() as u64,
            members: sum(Members::len),
            idle: sum(Members::nr_idle),
            not_permitted: sum(Members::nr_not_permitted),
            skew_ns: skews().map(|s| s.last.0).max().unwrap_or(0),
            skew_ns_max: skews().map(|s| s.max.0).max().unwrap_or(0),
        }
    }

    /// Members of `client` that may not be signalled.
    #[must_use]
    pub fn nr_not_permitted(&self, client: ClientId) -> usize {
        self.clients.get(client.index()).map_or(0, |c| c.members.nr_not_permitted())
    }

    /// Whether the client is made of processes that were there before it.
    #[must_use]
    pub fn is_attached(&self, client: ClientId) -> bool {
        self.selector(client).is_some()
    }

    /// At every wake-up: takes in what the kernel tells, looks at some idle members, and scans if it is time.
    pub(crate) fn keep_members(&mut self, now: Instant) {
        if self.attached.rules.is_empty() {
            self.tally.idle_looks_left = usize::MAX; // Commands alone have few.
            return;
        }
        self.allow_idle_looks(now);
        self.take_events();
        self.look_at_idle(now);
        if now >= self.attached.next_scan {
            let before = clock::own_thread_cpu();
            // What cannot be read now is read the next time.
            let _ = self.scan_processes(false);
            self.review(now);
            let cost = clock::own_thread_cpu().saturating_sub(before);
            let a = &mut self.attached;
            a.scans += 1;
            a.scan_cpu += cost;
            a.interval = SCAN_INTERVAL.max(Nanos(cost.0 * SCAN_REST));
            a.next_scan = now + a.interval;
            a.soonest = now + SCAN_INTERVAL_LOST.max(Nanos(cost.0 * SCAN_REST));
        }
        self.migrate(Urgency::Later);
    }

    /// Takes in what the kernel tells. Somebody of whom it tells more than once is looked at once, and a stranger whom no
    /// rule can make a member not before the next scan: a build on the same machine makes hundreds of processes a second.
    fn take_events(&mut self) {
        let Some(Some(events)) = &self.attached.events else { return };
        let mut told = Told::default();
        let census = &mut self.attached.census;
        events.drain(|event| told.hear(event, census));
        self.attached.nr_events += told.number;
        if self.attached.rules.iter().any(|rule| matches!(rule.selector, Selector::Group(_))) {
            let room = YOUNG_MAX.saturating_sub(self.attached.young.len());
            self.attached.young.extend(told.children.iter().take(room));
        }
        if told.lost {
            self.attached.overruns += 1;
            self.attached.skipped = SKIPS_MAX;
            self.attached.next_scan = self.attached.next_scan.min(self.attached.soonest);
        }
        // Whoever makes children has their time in its account, be they seen or not.
        for &parent in &told.parents {
            if let Some(of) = self.attached.owners.get(&parent) {
                self.clients[of.index()].members.note_parent(parent);
            }
        }
        for &(pid, look) in told.changed() {
            let a = &mut self.attached;
            match look {
                Some(User::AsBefore) if !a.census.may_concern(pid, &a.rules, &a.owners) => {
                    a.census.look_later(pid);
                    continue;
                }
                Some(user) => drop(a.census.touch(pid, user, &mut self.tally.reads)),
                None => {}
            }
            self.reassign(pid, true);
        }
    }

    /// Lets idle members be looked at anew: each so often, and all together no more than is cheap.
    fn allow_idle_looks(&mut self, now: Instant) {
        let a = &mut self.attached;
        let rate = IDLE_LOOKS_RATE.min(IDLE_LOOKS_EACH * a.nr_idle.max(1));
        let spent = now.since(a.idle_allowed_at);
        let more = (u128::from(spent.0) * u128::from(rate) / 1_000_000_000) as usize;
        if more > 0 {
            a.idle_allowed_at = now;
            let left = self.tally.idle_looks_left.saturating_add(more);
            self.tally.idle_looks_left = left.min(IDLE_LOOKS_MAX);
        }
    }

    /// Some idle members of everybody, in turn; as many are left to those whom the policy asks about.
    fn look_at_idle(&mut self, now: Instant) {
        let n = self.clients.len();
        let mut left = SENTRY_LOOKS.min(self.tally.idle_looks_left / 2);
        for _ in 0..n {
            if left == 0 {
                break;
            }
            let Some(i) = self.clients.in_turn(self.attached.sentry_next) else { return };
            let c = &mut self.clients[i];
            let some = c.members.nr_idle().min(left);
            left -= some;
            if some < c.members.nr_idle() && some > 0 {
                // Not all of this one: it goes on here the next time.
            } else {
                self.attached.sentry_next = i + 1;
            }
            if some > 0 && !c.is_gone() {
                let look = &mut Look::new(&mut self.table, &mut self.tally, now, c.standing());
                let _ = c.members.look_at_some_idle(look, some);
                self.settle(i);
            }
        }
    }

    /// Reads the list of processes, if somebody may have come or changed, and assigns whoever is new.
    fn scan_processes(&mut self, surely: bool) -> Result<()> {
        let latest = self.latest_pid();
        let told = matches!(self.attached.events, Some(Some(_)));
        let quiet = told || !latest.has_changed_since(self.attached.last_pid);
        if quiet && !surely && self.attached.skipped < SKIPS_MAX {
            self.attached.skipped += 1;
            self.look_at_young();
            return Ok(());
        }
        (self.attached.skipped, self.attached.last_pid) = (0, latest);
        self.attached.young.clear();
        let changes = self.attached.census.scan(&mut self.tally.reads)?;
        for pid in changes.gone {
            self.member_ended(pid);
        }
        for pid in changes.seen {
            self.reassign(pid, true);
        }
        Ok(())
    }

    /// Looks once more at those that were made since the last scan.
    fn look_at_young(&mut self) {
        for pid in std::mem::take(&mut self.attached.young) {
            if self.attached.census.touch(pid, User::AsBefore, &mut self.tally.reads) {
                self.reassign(pid, true);
            }
        }
    }

    fn reassign_all(&mut self) {
        for pid in self.attached.census.everybody() {
            self.reassign(pid, true);
        }
    }

    /// Gives a process to the client that it belongs to by now, and takes it from the one that had it. One that began after
    /// its client did has used nothing before (`may_be_born`: unless it was another's).
    fn reassign(&mut self, pid: Pid, may_be_born: bool) {
        let a = &self.attached;
        let owner = a.owners.get(&pid).copied();
        let claim = a.census.claim(pid, &a.rules, &a.owners, &a.protection);
        if claim == owner {
            return;
        }
        let now = clock::now();
        if let Some(old) = owner {
            let c = &mut self.clients[old.index()];
            let look = &mut Look::new(&mut self.table, &mut self.tally, now, c.standing());
            if let Some(process) = c.members.process(pid) {
                self.reactor.unwatch(process);
            }
            let _ = c.members.take(pid, look);
            self.attached.owners.remove(&pid);
            if claim.is_none() {
                self.give_back(old, pid);
            }
            self.check_gone_attached(old);
        }
        if let Some(new) = claim {
            self.admit(pid, new, may_be_born && owner.is_none());
        }
    }

    fn admit(&mut self, pid: Pid, client: ClientId, may_be_born: bool) {
        let c = &mut self.clients[client.index()];
        if c.is_gone() {
            return;
        }
        let since = may_be_born.then_some(c.since);
        let look = &mut Look::new(&mut self.table, &mut self.tally, clock::now(), c.standing());
        match c.members.admit(pid, since, look) {
            Ok(Some(_)) => {}
            Ok(None) => return,
            // No descriptor is left, say: it is tried again at a later scan.
            Err(e) => return self.notices.tell_without(client, &e),
        }
        c.had_members = true;
        if let Some(process) = c.members.process(pid) {
            // Without it, its end shows in its clock.
            let _ = self.reactor.watch_process(process, pid);
        }
        self.attached.owners.insert(pid, client);
        self.take_into_leaf(client, pid);
        let parent = self.attached.census.parent(pid);
        if let Some((parent, of)) = parent.and_then(|p| Some((p, *self.attached.owners.get(&p)?))) {
            self.clients[of.index()].members.note_parent(parent);
        }
    }

    /// The pidfd of a member, or the list of processes, says that it has ended.
    pub(crate) fn member_ended(&mut self, pid: Pid) {
        let Some(&owner) = self.attached.owners.get(&pid) else { return };
        let c = &mut self.clients[owner.index()];
        let look = &mut Look::new(&mut self.table, &mut self.tally, clock::now(), c.standing());
        c.members.end(pid, look);
        self.attached.owners.remove(&pid);
        self.settle(owner.index());
    }

    /// Books the ends of members: their parents, whosever they are, will show their time as their children's.
    pub(crate) fn settle(&mut self, i: usize) {
        let ended = self.clients[i].members.take_ended();
        if ended.is_empty() {
            return;
        }
        for Ended { pid, parent, time } in ended {
            self.attached.owners.remove(&pid);
            let of = parent.and_then(|p| Some((p, *self.attached.owners.get(&p)?)));
            if let Some((parent, of)) = of.filter(|_| time > Nanos::ZERO) {
                self.clients[of.index()].members.expect(parent, time);
            }
        }
        self.check_gone_attached(ClientId(i as u32));
    }

    /// A client is gone when its last process is, if none can come any more.
    fn check_gone_attached(&mut self, client: ClientId) {
        let c = &self.clients[client.index()];
        let ends = c.selector.as_ref().is_some_and(Selector::ends);
        if !ends || c.is_gone() || !c.had_members || !c.members.is_empty() {
            return;
        }
        if !matches!(c.selector, Some(Selector::Pid(_))) {
            // The last may have made another that nobody has seen yet.
            let _ = self.scan_processes(true);
        }
        let c = &mut self.clients[client.index()];
        if !c.members.is_empty() || c.is_gone() {
            return;
        }
        c.condition = c.condition.gone();
        self.forget_naps(client.index());
        self.disband(client);
        self.attached.rules.retain(|r| r.client != client);
        self.news.push_back(News::Gone(client));
    }

    /// Once in a while: every clock, permissions, children's time, and the CPUs that each client may use.
    fn review(&mut self, now: Instant) {
        // Where there are too many idle members for one second, clients take turns in being first.
        let left = std::mem::replace(&mut self.tally.idle_looks_left, IDLE_REVIEWED_MAX);
        let from = self.attached.review_next;
        for i in self.clients.all_in_turn(from) {
            let c = &mut self.clients[i];
            if c.is_gone() || c.selector.is_none() {
                continue;
            }
            if self.tally.idle_looks_left > 0 {
                self.attached.review_next = i;
            }
            let look = &mut Look::new(&mut self.table, &mut self.tally, now, c.standing());
            let _ = c.members.review(look);
            self.settle(i);
            self.update_cpus(i);
        }
        self.tally.idle_looks_left = left;
        self.count_idle();
    }

    fn count_idle(&mut self) {
        self.attached.nr_idle = self.clients.iter().map(|c| c.members.nr_idle() as u64).sum();
    }

    /// How many CPUs client `i` may use: by the affinities of its members, and its cgroup's quota.
    pub(crate) fn update_cpus(&mut self, i: usize) {
        if self.cpus.len() < 2 {
            return;
        }
        let c = &mut self.clients[i];
        let pids = || c.members.pids().map(|(pid, _)| pid).take(AFFINITIES_MAX);
        let first = pids().next();
        let quota: Option<Quota> =
            first.and_then(|pid| self.attached.mounts.tightest(&crate::procfs::cgroups(pid)));
        self.tally.reads += pids().count() as u64 + 1;
        let most = quota::usable(pids(), &self.cpus, quota);
        c.cpus_max = if first.is_some() { most } else { self.cpus.len() as u32 };
    }
}

impl<'a> Look<'a> {
    pub(crate) fn new(
        table: &'a mut Table,
        tally: &'a mut Tally,
        now: Instant,
        members: impl Into<Standing>,
    ) -> Self {
        let Standing { held, frozen } = members.into();
        Self { table, tally, now, held, frozen }
    }
}
