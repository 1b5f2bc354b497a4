//! The market's thread: takes questions, does a batch of them, puts it on disk, and then answers.
//!
//! Nobody is told that something was done before it is on disk; one flush of the disk serves a whole batch. Whatever is
//! asked while the disk is busy waits for the next. Of a batch, whoever only looks is answered first: what is shown is on
//! disk already.
//!
//! Whether clients compete changes often and is acknowledged to nobody: such news counts at once, and goes to disk with
//! the next batch, or after a second. The order is kept.
//!
//! **The ledger is never ahead of the disk.** Where a batch cannot be written, whoever waits is told so, the ledger is made
//! again from what is on disk, and what is known of presence is said to it again. As long as the store cannot be opened,
//! every question is answered with the reason.

use std::collections::BTreeMap;
use std::sync::mpsc::RecvTimeoutError;
use std::thread::JoinHandle;
use std::time::Duration;

use divvy_linux::clock;
use divvy_market::{Changed, CurrencyId, Presence, Resource, Revision};
use divvy_policy::{Instant, Nanos};
use serde_json::json;
use tokio::sync::oneshot;

use super::bucket::Buckets;
use super::ledger::{Done, Ended, Failed, Ledger};
use super::message::{Admitted, Ask, Handle, Inbox, Message, Question, Said, Terms, Who, channel};
use super::names::{Names, SystemNames};
use super::policy::Policy;
use super::record::Record;
use super::stats::Stats;
use super::store::{AuditLine, Recovered, Store, StoreConfig, StoreError};
use crate::budget::Budget;
use crate::message::Refusal;
use crate::say;
use divvy_api::market::{BY, ENDED};
use divvy_api::types::{Change, ErrorCode};

/// Questions that are done together, at most.
const BATCH: usize = 256;
/// News of presence that is taken in at once, at most: then everybody else has a turn.
const NEWS: usize = 4096;
/// What is acknowledged to nobody is on disk after so long.
const LAZY: Nanos = Nanos::from_secs(1);
/// Lines of the audit log and records that wait for a lazy commit, at most.
const LAZY_ROWS: usize = 10_000;
/// A store that could not be opened is tried again after so long.
const AGAIN: Nanos = Nanos::from_secs(1);
/// Presences that are remembered before those of clients that have left are swept out.
const PRESENCES: usize = 100_000;
/// Bytes of what a line of the audit log tells of something that was done, and of something that was refused, at most. Beyond,
/// the line says so and tells less: nobody fills the disk with long requests.
const AUDIT_DONE: usize = 4096;
const AUDIT_REFUSED: usize = 1024;
/// Working out what changed takes at most one part in so many of the time, where the feed asks for no other.
const FEED_PART: u64 = 5;
/// Values are told in parts of a base ticket: about a millionth.
pub(crate) const PARTS: u64 = 1 << 20;

/// Who is told what clients are worth. Called on the market's thread; it must not wait.
pub(crate) trait Feed: Send {
    /// What changed of what clients weigh of `resource`, in [`PARTS`] of a base ticket; at first, and whenever the market was
    /// made again from disk, all of them.
    fn tell(&mut self, resource: Resource, changed: Changed);

    /// Of what it is told.
    fn resources(&self) -> &'static [Resource];

    /// How often it is to be told at most, and for which part of the time; at once, and for [`FEED_PART`], where that is `None`.
    fn budget(&self) -> Option<Budget> {
        None
    }
}

/// A feed that nobody needs.
#[derive(Debug)]
pub(crate) struct NoFeed;

impl Feed for NoFeed {
    fn tell(&mut self, _: Resource, _: Changed) {}

    fn resources(&self) -> &'static [Resource] {
        &[]
    }
}

/// What the thread begins with.
pub(crate) struct Start {
    pub(crate) store: StoreConfig,
    pub(crate) policy: Policy,
    pub(crate) feed: Box<dyn Feed>,
    /// Users and groups by name.
    pub(crate) names: Box<dyn Names + Send>,
    /// Where it counts.
    pub(crate) stats: Stats,
}

impl Start {
    /// A market in the store's directory, with the machine's users and nobody to feed.
    pub(crate) fn at(store: StoreConfig, policy: Policy) -> Self {
        let (names, stats) = (Box::new(SystemNames::default()), Stats::default());
        Self { store, policy, feed: Box::new(NoFeed), names, stats }
    }
}

/// Why the market cannot begin.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("start the thread of the market: {0}")]
    Thread(std::io::Error),
}

impl StartError {
    /// Whether the market's file is not what it should be; else it is the system that refuses.
    pub(crate) fn is_of_the_file(&self) -> bool {
        matches!(self, Self::Store(e) if e.is_of_the_file())
    }
}

/// The thread, running.
#[derive(Debug)]
pub(crate) struct Running {
    thread: JoinHandle<Result<(), StoreError>>,
    handle: Handle,
    recovered: Recovered,
    clients: Vec<Admitted>,
}

impl Running {
    /// What was found on disk.
    pub(crate) const fn recovered(&self) -> Recovered {
        self.recovered
    }

    /// The clients that were there when the market ended last. Each is to be attached again, or to [`Ask::Leave`]: the
    /// market takes them to compete as they did then.
    pub(crate) fn clients(&self) -> &[Admitted] {
        &self.clients
    }

    /// Answers what was asked before, writes a snapshot and ends.
    ///
    /// # Errors
    /// What could not be written. Nothing that was acknowledged is lost.
    pub(crate) fn stop(self) -> Result<(), StoreError> {
        self.handle.stop();
        match self.thread.join() {
            Ok(ended) => ended,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Whether the thread has ended by itself: a mistake of ours.
    pub(crate) fn is_over(&self) -> bool {
        self.thread.is_finished()
    }
}

/// Recovers the market from disk, makes what the policy says true, and starts the thread.
///
/// # Errors
/// [`StartError`]: nothing was changed on disk then.
pub(crate) fn start(start: Start) -> Result<(Handle, Running), StartError> {
    let Start { store: config, policy, feed, names, stats } = start;
    let (store, mut ledger, recovered) = Store::open(&config, &policy)?;
    ledger.set_policy(policy.clone());
    let clients = ledger.clients(&*names);
    let mut keeper = Keeper {
        config,
        policy,
        names,
        budget: feed.budget().unwrap_or(Budget::new(FEED_PART, Nanos(0))),
        feed,
        open: Open::Ready(Box::new((store, ledger))),
        buckets: Buckets::default(),
        records: Vec::new(),
        audit: Vec::new(),
        lazy_since: None,
        presence: BTreeMap::new(),
        followed: [None; 3],
        to_feed: true,
        writes_again: None,
        spoilt: false,
        stats,
    };
    keeper.follow_policy()?;
    let (handle, inbox) = channel();
    let thread = std::thread::Builder::new().name("market".to_owned()).spawn(move || keeper.run(&inbox));
    let thread = thread.map_err(StartError::Thread)?;
    Ok((handle.clone(), Running { thread, handle, recovered, clients }))
}

/// The store and the ledger that is on it, or why they cannot be had.
enum Open {
    Ready(Box<(Store, Ledger)>),
    Broken { why: String, again: Instant },
}

/// A question that was dealt with, and waits for the disk to be answered.
type Answer = (oneshot::Sender<Result<Said, Refusal>>, Result<Said, Refusal>);

/// Everything that the thread has.
struct Keeper {
    config: StoreConfig,
    policy: Policy,
    names: Box<dyn Names + Send>,
    feed: Box<dyn Feed>,
    /// When the feed may be told again.
    budget: Budget,
    open: Open,
    buckets: Buckets,
    /// What is not on disk yet, in order.
    records: Vec<Record>,
    audit: Vec<AuditLine>,
    /// Since when the oldest of these waits.
    lazy_since: Option<Instant>,
    /// Whether each client competes, as was said last.
    presence: BTreeMap<CurrencyId, Presence>,
    /// How far the feed has followed each resource.
    followed: [Option<Revision>; 3],
    to_feed: bool,
    /// Why the last batch could not be written, and when a change is tried again.
    writes_again: Option<(String, Instant)>,
    /// Whether the ledger holds something that was done in part.
    spoilt: bool,
    stats: Stats,
}

impl Keeper {
    fn run(mut self, inbox: &Inbox) -> Result<(), StoreError> {
        if let Open::Ready(open) = &self.open {
            self.stats.sizes(open.1.sizes());
        }
        loop {
            let first = match inbox.take(self.patience()) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return self.end(),
            };
            self.reopen_if_due();
            self.tick();
            let stop = self.turn(first, inbox);
            self.flush_if_due();
            self.feed_if_due();
            self.snapshot_if_due();
            if stop {
                return self.end();
            }
        }
    }

    /// How long nothing is to be done by itself.
    fn patience(&self) -> Duration {
        let now = clock::now();
        let mut until = self.lazy_since.map(|since| since + LAZY);
        let mut sooner = |moment: Instant| until = Some(until.map_or(moment, |until| until.min(moment)));
        if self.to_feed {
            sooner(self.budget.next());
        }
        match &self.open {
            Open::Broken { again, .. } => sooner(*again),
            Open::Ready(open) => {
                if let Some(at_ns) = open.1.next_tick() {
                    sooner(now + Nanos(at_ns.saturating_sub(unix_ns())));
                }
            }
        }
        let wait = until.map_or(Nanos::from_secs(3600), |until| Nanos(until.0.saturating_sub(now.0)));
        Duration::from_nanos(wait.0)
    }

    /// Deals with a batch, beginning with `first`; says whether we were asked to end.
    ///
    /// Whoever only looks comes first, and is answered before anything of the batch is done: what is shown is on disk, and
    /// nobody who looks waits for what others have just asked for.
    fn turn(&mut self, first: Option<Message>, inbox: &Inbox) -> bool {
        let mut changes: Vec<Message> = Vec::new();
        let (mut nr_questions, mut nr_news, mut stop) = (0, 0, false);
        let mut next = first;
        while let Some(message) = next {
            match message {
                Message::Stop => {
                    stop = true;
                    break;
                }
                Message::Question(question) => {
                    nr_questions += 1;
                    if is_audited(&question.ask) {
                        changes.push(Message::Question(question));
                    } else {
                        self.look(*question);
                    }
                }
                news @ Message::Presence(..) => {
                    nr_news += 1;
                    changes.push(news);
                }
            }
            if nr_questions >= BATCH || nr_news >= NEWS {
                break;
            }
            next = inbox.try_take();
        }
        self.change(changes);
        stop
    }

    /// Answers who only looks. Of presence it may see what is not on disk yet, as it is acknowledged to nobody.
    fn look(&mut self, question: Question) {
        let mut answers = Vec::new();
        self.question(question, &mut answers);
        send(answers);
    }

    /// Does what changes something, in order, puts it on disk, and answers.
    fn change(&mut self, changes: Vec<Message>) {
        let mut answers: Vec<Answer> = Vec::new();
        let mut news: Vec<(CurrencyId, Presence)> = Vec::new();
        let mut acknowledged = false;
        for message in changes {
            match message {
                Message::Presence(client, presence) => news.push((client, presence)),
                Message::Question(question) => {
                    self.take_news(&mut news);
                    acknowledged |= self.question(*question, &mut answers);
                }
                Message::Stop => {}
            }
        }
        self.take_news(&mut news);
        if acknowledged && let Err(refusal) = self.commit() {
            // Nobody knows what of the batch is there.
            answers.iter_mut().for_each(|(_, answer)| *answer = Err(refusal.clone()));
        }
        // Whoever was admitted is worth something before it is divided.
        self.feed_if_due();
        send(answers);
    }

    /// The client that a question names by its id: what it is called, and that.
    fn client_of(&self, ask: &Ask) -> Option<(String, CurrencyId)> {
        let (Ask::SetShare { client, .. } | Ask::SetTerms { client, .. } | Ask::Leave { client }) = ask
        else {
            return None;
        };
        let Open::Ready(open) = &self.open else { return None };
        Some((open.1.name_of(&*self.names, *client), *client))
    }

    /// Does one question. Says whether it is to be on disk before it is answered.
    fn question(&mut self, Question { who, ask, reply }: Question, answers: &mut Vec<Answer>) -> bool {
        if let Err(refusal) = self.check_asker(&who, &ask) {
            answers.push((reply, Err(refusal)));
            return false;
        }
        // One that leaves has no name afterwards.
        let client = self.client_of(&ask);
        let done = self.answer(&who, &ask);
        self.tell_of_ended(Some(&ask));
        let (answer, record) = match done {
            Ok(Done { said, record }) => (Ok(said), record),
            Err(refusal) => (Err(refusal), None),
        };
        let changes = record.is_some();
        let refused = answer.as_ref().err().map(|refusal| refusal.message.clone());
        if is_audited(&ask) {
            self.stats.asked(&ask, refused.is_none());
        }
        // That a lease was renewed is nobody's deed.
        let told = record.as_ref().is_some_and(|record| !record.is_of_leases_only())
            || refused.is_some()
            || matches!(ask, Ask::Noted { .. });
        if is_audited(&ask) && told {
            let mut what = describe(&ask, record.as_ref());
            if let (Some(members), Some((name, id))) = (what.as_object_mut(), client) {
                members.insert("client".to_owned(), name.into());
                members.insert("id".to_owned(), id.to_string().into());
            }
            if let Some(members) = what.as_object_mut().filter(|_| who.by_root) {
                // The line is among the user's, who is to see it, and says whose deed it was.
                members.insert(BY.to_owned(), "root".into());
            }
            self.audit.push(AuditLine { at_ns: unix_ns(), uid: who.uid, pid: who.pid, what, refused });
            self.wait_lazily();
        }
        if let (Ask::Reload(policy), Ok(_)) = (&ask, &answer) {
            self.policy = (**policy).clone();
            if let Open::Ready(open) = &mut self.open {
                open.0.set_audit_terms(self.policy.audit);
            }
        }
        self.records.extend(record);
        self.to_feed |= changes;
        answers.push((reply, answer));
        changes
    }

    fn answer(&mut self, who: &Who, ask: &Ask) -> Result<Done, Refusal> {
        let superuser = self.is_superuser(who);
        let Open::Ready(open) = &mut self.open else { return Err(self.broken()) };
        if let Ask::Audit { since } = ask {
            let lines = open.0.audit(*since, (!superuser).then_some(who.uid));
            return match lines {
                Ok(lines) => Ok(Done { said: Said::Audit(lines), record: None }),
                Err(e) => Err(Refusal::new(ErrorCode::Internal, e, "see divvyd's log")),
            };
        }
        match open.1.apply(&*self.names, who, ask, unix_ns()) {
            Ok(done) => Ok(done),
            Err(Failed::Refused(refusal)) => Err(refusal),
            Err(Failed::Broken(refusal)) => {
                say(format_args!("market: {}; it is made again from disk", refusal.message));
                self.spoilt = true;
                let _ = open.1.take_ended(); // None has ended on disk.
                Err(refusal)
            }
        }
    }

    /// Refuses a user who asks too often, and whoever wants a change while nothing can be written.
    fn check_asker(&mut self, who: &Who, ask: &Ask) -> Result<(), Refusal> {
        if self.spoilt || matches!(self.open, Open::Broken { .. }) {
            return Err(self.broken());
        }
        let now = clock::now();
        if let Some((why, until)) = &self.writes_again
            && is_audited(ask)
        {
            if now < *until {
                return Err(Refusal::new(
                    ErrorCode::Busy,
                    format!("nothing can be written: {why}"),
                    "ask again later",
                ));
            }
            self.writes_again = None;
        }
        if self.is_superuser(who) {
            return Ok(());
        }
        let limits = self.policy.limits;
        let (rate, burst) = (limits.requests_per_second, limits.burst);
        let size = if let Open::Ready(open) = &self.open { open.1.size() } else { 0 };
        self.buckets.take(who.uid, cost(ask, size), (rate, burst), now).map_err(|wait| {
            let text = format!("more than {rate} requests a second, or {burst} at once");
            Refusal::new(ErrorCode::Limit, text, format!("ask again in {} ms", wait.0.div_ceil(1_000_000)))
        })
    }

    fn is_superuser(&self, who: &Who) -> bool {
        match &self.open {
            Open::Ready(open) => open.1.caller(&*self.names, who).superuser,
            Open::Broken { .. } => false,
        }
    }

    fn broken(&self) -> Refusal {
        match &self.open {
            Open::Broken { why, .. } => {
                Refusal::new(ErrorCode::Internal, format!("the market's store: {why}"), "see divvyd's log")
            }
            Open::Ready(_) => {
                Refusal::new(ErrorCode::Busy, "the market is made again from disk", "ask again")
            }
        }
    }

    /// Takes in who competes and who does not.
    fn take_news(&mut self, news: &mut Vec<(CurrencyId, Presence)>) {
        if news.is_empty() {
            return;
        }
        self.presence.extend(news.iter().copied());
        if let Open::Ready(open) = &mut self.open
            && !self.spoilt
        {
            let ledger = &mut open.1;
            let record = ledger.presences(&*self.names, news, unix_ns());
            if self.presence.len() > PRESENCES {
                self.presence.retain(|&id, _| ledger.is_client(id));
            }
            if let Some(record) = record {
                self.records.push(record);
                self.to_feed = true;
                self.wait_lazily();
            }
            self.tell_of_ended(None);
        }
        news.clear();
    }

    fn tick(&mut self) {
        if let Open::Ready(open) = &mut self.open
            && let Some(record) = open.1.tick(&*self.names, unix_ns())
        {
            self.records.push(record);
            self.to_feed = true;
            self.wait_lazily();
            self.tell_of_ended(None);
        }
    }

    /// Whoever was a party to an exchange that is over finds that among its own lines of the audit log, but for who cancelled it.
    fn tell_of_ended(&mut self, ask: Option<&Ask>) {
        let Open::Ready(open) = &mut self.open else { return };
        for ended in open.1.take_ended() {
            if matches!(ask, Some(Ask::Reload(_))) {
                say_ended(&ended);
            }
            self.audit.extend(ended_lines(&ended));
            self.wait_lazily();
        }
    }

    fn wait_lazily(&mut self) {
        self.lazy_since.get_or_insert_with(clock::now);
    }

    /// Puts what waits on disk. Where that fails, the ledger goes back to what is there.
    fn commit(&mut self) -> Result<(), Refusal> {
        self.lazy_since = None;
        let (records, audit) = (std::mem::take(&mut self.records), std::mem::take(&mut self.audit));
        if records.is_empty() && audit.is_empty() {
            return Ok(());
        }
        let Open::Ready(open) = &mut self.open else { return Err(self.broken()) };
        let begun = clock::now();
        let done = open.0.commit(&records, &audit);
        let seconds = clock::now().since(begun).0 as f64 / 1e9;
        self.stats.committed(seconds, records.len(), audit.len(), done.is_ok());
        self.stats.sizes(open.1.sizes());
        let Err(e) = done else { return Ok(()) };
        say(format_args!("market: {e}"));
        let text = format!("the market could not write it down: {e}");
        let refusal = Refusal::new(ErrorCode::Busy, text, "look whether it was done, and ask again");
        self.writes_again = Some((e.to_string(), clock::now() + AGAIN));
        self.reopen();
        Err(refusal)
    }

    /// Makes the ledger again from disk.
    fn reopen(&mut self) {
        self.spoilt = false;
        self.records.clear();
        self.audit.clear();
        self.lazy_since = None;
        // First the old one goes: nobody else can have the file open while it is.
        self.open = Open::Broken { why: "it is being opened".to_owned(), again: clock::now() };
        match Store::open(&self.config, &self.policy) {
            Ok((store, mut ledger, _)) => {
                ledger.set_policy(self.policy.clone());
                self.open = Open::Ready(Box::new((store, ledger)));
                let mut news: Vec<(CurrencyId, Presence)> =
                    self.presence.iter().map(|(&c, &p)| (c, p)).collect();
                self.take_news(&mut news);
                self.to_feed = true;
            }
            Err(e) => {
                say(format_args!("market: {e}"));
                self.open = Open::Broken { why: e.to_string(), again: clock::now() + AGAIN };
            }
        }
    }

    fn reopen_if_due(&mut self) {
        if let Open::Broken { again, .. } = &self.open
            && clock::now() >= *again
        {
            self.reopen();
        }
    }

    fn flush_if_due(&mut self) {
        let due = self.lazy_since.is_some_and(|since| clock::now() >= since + LAZY);
        if self.spoilt || due || self.records.len() + self.audit.len() >= LAZY_ROWS {
            // Nobody waits for it; what went wrong was said.
            let _ = self.commit();
        }
        if self.spoilt {
            self.reopen();
        }
    }

    fn feed_if_due(&mut self) {
        let Open::Ready(open) = &mut self.open else { return };
        let now = clock::now();
        if !self.to_feed || now < self.budget.next() {
            return;
        }
        // What it costs, and not what others had of this CPU meanwhile.
        let before = clock::own_thread_cpu();
        self.to_feed = false;
        let mut all = false;
        for &resource in self.feed.resources() {
            let since = &mut self.followed[resource.index()];
            let changed = open.1.changed(resource, PARTS, *since);
            *since = Some(changed.revision);
            all |= changed.all;
            if changed.all || !changed.weights.is_empty() {
                self.feed.tell(resource, changed);
            }
        }
        let cost = clock::own_thread_cpu().saturating_sub(before);
        self.stats.worked_out(cost.0 as f64 / 1e9);
        // Where the market has just begun, or was made again from disk, nobody waits for that.
        self.budget.pay(now, if all { Nanos(0) } else { cost }, open.1.nr_tickets());
    }

    fn snapshot_if_due(&mut self) {
        let Open::Ready(open) = &self.open else { return };
        let after = self.config.snapshot_after.max(open.1.nr_tickets() as u64);
        if open.0.since_snapshot() >= after && self.commit().is_ok() {
            self.snapshot();
        }
    }

    fn snapshot(&mut self) {
        let Open::Ready(open) = &mut self.open else { return };
        let (store, ledger) = &mut **open;
        if let Err(e) = store.write_snapshot(ledger) {
            say(format_args!("market: {e}"));
            self.writes_again = Some((e.to_string(), clock::now() + AGAIN));
            self.reopen();
        }
    }

    /// What the policy says is made true before anybody asks.
    fn follow_policy(&mut self) -> Result<(), StoreError> {
        let Open::Ready(open) = &mut self.open else { return Ok(()) };
        let Some(record) = open.1.follow_policy(&*self.names, unix_ns()) else { return Ok(()) };
        let what = serde_json::json!({ "ask": "start", "steps": record.steps });
        let mut lines = vec![AuditLine { at_ns: record.at_ns, uid: 0, pid: 0, what, refused: None }];
        for ended in open.1.take_ended() {
            say_ended(&ended);
            lines.extend(ended_lines(&ended));
        }
        open.0.commit(&[record], &lines)
    }

    fn end(mut self) -> Result<(), StoreError> {
        let Open::Ready(open) = &mut self.open else { return Ok(()) };
        let (store, ledger) = &mut **open;
        store.commit(&self.records, &self.audit)?;
        store.write_snapshot(ledger)
    }
}

fn say_ended(ended: &Ended) {
    say(format_args!("market: the policy ends exchange {}: {}", ended.exchange, ended.terms));
}

/// That an exchange is over, for each of its parties who does not know.
fn ended_lines(ended: &Ended) -> impl Iterator<Item = AuditLine> {
    let Ended { exchange, terms, why, parties } = ended;
    let what = json!({ "ask": ENDED, "exchange": exchange, "was": terms, "why": why });
    let at_ns = unix_ns();
    parties.iter().map(move |&uid| AuditLine { at_ns, uid, pid: 0, what: what.clone(), refused: None })
}

fn send(answers: Vec<Answer>) {
    for (reply, answer) in answers {
        // Whoever does not wait any more does not want to know.
        let _ = reply.send(answer);
    }
}

/// Now, ns since 1970 (UTC).
fn unix_ns() -> u64 {
    clock::unix().0
}

/// For how many requests a question counts, in a market of such a size: what looks at all of it costs as much as it takes,
/// and no user can keep the thread busy with looking.
fn cost(ask: &Ask, size: usize) -> u32 {
    let more = match ask {
        Ask::Graph => size / 200,
        Ask::Currency(_) | Ask::CreateCurrency(_) | Ask::ChangeCurrency(..) | Ask::DestroyCurrency(_) => {
            size / 2000
        }
        Ask::Explain(..) | Ask::Nice(_) => size / 1000,
        _ => 0,
    };
    u32::try_from(more).unwrap_or(u32::MAX).saturating_add(1)
}

/// Whether a question is one that may change something: the audit log tells of these.
const fn is_audited(ask: &Ask) -> bool {
    !matches!(
        ask,
        Ask::Graph
            | Ask::Site
            | Ask::Currency(_)
            | Ask::Ticket(_)
            | Ask::Explain(..)
            | Ask::MayLeave { .. }
            | Ask::Audit { .. }
    )
}

/// A question, and what was done for it, as the audit log tells it.
fn describe(ask: &Ask, record: Option<&Record>) -> serde_json::Value {
    let (mut what, most) = (words(ask), if record.is_some() { AUDIT_DONE } else { AUDIT_REFUSED });
    if what.to_string().len() > most {
        let name = what.get("ask").cloned().unwrap_or_default();
        return json!({ "ask": name, "too_long": true });
    }
    if let (Some(record), Some(members)) = (record, what.as_object_mut()) {
        let steps = json!(record.steps);
        let fits = steps.to_string().len() <= most;
        members.insert("steps".to_owned(), if fits { steps } else { json!("too many to tell") });
    }
    what
}

fn words(ask: &Ask) -> serde_json::Value {
    match ask {
        Ask::Graph => json!({ "ask": "graph" }),
        Ask::Currency(currency) => json!({ "ask": "currency", "currency": currency }),
        Ask::CreateCurrency(new) => json!({ "ask": "create-currency", "request": new }),
        Ask::ChangeCurrency(currency, change) => {
            json!({ "ask": "change-currency", "currency": currency, "request": change })
        }
        Ask::DestroyCurrency(currency) => json!({ "ask": "destroy-currency", "currency": currency }),
        Ask::Ticket(ticket) => json!({ "ask": "ticket", "ticket": ticket }),
        Ask::CreateTicket(new) => json!({ "ask": "create-ticket", "request": new }),
        Ask::ChangeTicket(ticket, change) => {
            json!({ "ask": "change-ticket", "ticket": ticket, "request": change })
        }
        Ask::DestroyTicket(ticket) => json!({ "ask": "destroy-ticket", "ticket": ticket }),
        Ask::CreateExchange(new) => json!({ "ask": "create-exchange", "request": new }),
        Ask::CancelExchange(exchange) => json!({ "ask": "cancel-exchange", "exchange": exchange }),
        Ask::CreateOffer(new) => json!({ "ask": "create-offer", "request": new }),
        Ask::WithdrawOffer(offer) => json!({ "ask": "withdraw-offer", "offer": offer }),
        Ask::Nice(new) => json!({ "ask": "nice", "request": new }),
        Ask::SetBound(user, bound) => json!({ "ask": "set-bound", "user": user, "request": bound }),
        Ask::Site => json!({ "ask": "site" }),
        Ask::SetSite(table) => {
            json!({ "ask": "set-site", "version": table.version, "accounts": table.accounts.len(), "users": table.users.len() })
        }
        Ask::Orders(orders) => {
            json!({ "ask": "orders", "stamp": orders.stamp, "exchanges": orders.orders.len() })
        }
        Ask::Explain(currency, resource) => {
            json!({ "ask": "explain", "currency": currency, "resource": resource })
        }
        Ask::Audit { since } => json!({ "ask": "audit", "since": since }),
        Ask::Admit { name, amount, identity, parent, from, job } => {
            json!({ "ask": "admit", "name": name, "amount": amount, "identity": identity, "parent": parent, "from": from, "job": job })
        }
        Ask::SetShare { client, amount } => json!({ "ask": "set-share", "client": client, "amount": amount }),
        Ask::SetTerms { client, terms } => {
            let Terms { share, reserve, from, limits, cpus } = &**terms;
            json!({
                "ask": "set-terms", "client": client, "share": share, "reserve_ppm": reserve, "from": from, "limits": limits,
                "cpus": cpus
            })
        }
        Ask::MayLeave { client } => json!({ "ask": "may-leave", "client": client }),
        Ask::Leave { client } => json!({ "ask": "leave", "client": client }),
        Ask::Noted { client, change: None, .. } => json!({ "ask": "detach", "client": client }),
        Ask::Noted { client, change: Some(change), .. } => {
            let ask = match (change.paused, Change { paused: None, ..**change } == Change::default()) {
                (Some(true), true) => "pause",
                (Some(false), true) => "resume",
                _ => "set",
            };
            json!({ "ask": ask, "client": client, "request": change })
        }
        Ask::Reload(policy) => json!({ "ask": "reload", "policy": policy }),
    }
}

#[cfg(test)]
mod tests;
