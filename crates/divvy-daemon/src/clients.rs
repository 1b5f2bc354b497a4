//! Clients as they are asked for: where there is a market, it admits whom the scheduler divides.
//!
//! Two threads have to agree on a client. The market comes first: what it has admitted and the scheduler cannot divide leaves
//! it again. What was begun is brought to its end even where the caller has gone meanwhile.

use divvy_linux::{ProcessRef, Selector, user_group, users};
use divvy_market::Resource;
use tokio::sync::watch;

use crate::market::message::{Ask, Cpus, Handle as Market, Identity, Limits, Said, Terms, Who};
use crate::message::{Answer, Command, Handle as Scheduler, Prepared, Refusal};
use divvy_api::types::{Bounds, Change, ErrorCode, NewClient, PLUGIN_INTERFACE, SHARE_MAX};

type Answered = Result<Answer, Refusal>;

/// The two who have to agree. Clones are of the same.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    pub(crate) scheduler: Scheduler,
    pub(crate) market: Option<Market>,
    /// True once the clients of before the start have been found again; who comes before waits.
    pub(crate) ready: Option<watch::Receiver<bool>>,
}

impl Clients {
    /// Takes a client in.
    pub(crate) async fn add(self, who: Who, new: NewClient) -> Answered {
        let Self { scheduler, market, ready } = self;
        fits(new.plugin)?;
        if let Some(mut ready) = ready {
            // If that never comes we are ending, and whoever is asked says so.
            let _ = ready.wait_for(|ready| *ready).await;
        }
        let who = if market.is_some() { on_behalf(who, &new) } else { who };
        match market {
            Some(market) if !new.dry_run => to_its_end(admit(scheduler, market, who, new)).await,
            Some(_) => {
                let new = NewClient { bounds: split(new.bounds)?.0, ..new };
                scheduler.ask(Command::Add { new, who, admitted: None }).await
            }
            _ => scheduler.ask(Command::Add { new, who, admitted: None }).await,
        }
    }

    /// Changes a client.
    pub(crate) async fn change(self, who: Who, key: String, change: Change) -> Answered {
        let Self { scheduler, market, .. } = self;
        match market {
            Some(market) if Change { paused: None, ..change } != Change::default() => {
                to_its_end(set_terms(scheduler, market, who, key, change)).await
            }
            Some(market) => {
                let noted = Noted::new(&who, &key, Some(change));
                let answer = scheduler.ask(Command::Change { key, change, who }).await;
                noted.if_done_or_denied(&market, answer).await
            }
            None => scheduler.ask(Command::Change { key, change, who }).await,
        }
    }

    /// Lets a client go.
    pub(crate) async fn detach(self, who: Who, key: String) -> Answered {
        let Self { scheduler, market, .. } = self;
        match market {
            Some(market) => to_its_end(let_go(scheduler, market, who, key)).await,
            None => scheduler.ask(Command::Detach { key, who }).await,
        }
    }
}

/// # Errors
/// The plugin that asks is of another interface.
fn fits(plugin: Option<u32>) -> Result<(), Refusal> {
    let Some(interface) = plugin.filter(|&interface| interface != PLUGIN_INTERFACE) else { return Ok(()) };
    let age = if interface > PLUGIN_INTERFACE { "newer" } else { "older" };
    let text = format!(
        "the plugin is {age} than divvyd: it has interface {interface}, divvyd {} has {PLUGIN_INTERFACE}",
        env!("CARGO_PKG_VERSION")
    );
    Err(Refusal::new(
        ErrorCode::BadRequest,
        text,
        "install plugin, divvy and divvyd of one release on this node",
    ))
}

async fn to_its_end(work: impl Future<Output = Answered> + Send + 'static) -> Answered {
    let done = tokio::spawn(work).await;
    done.unwrap_or_else(|e| Err(Refusal::new(ErrorCode::Internal, e, "see divvyd's log")))
}

/// A request about a client, as the audit log is to tell of it where the market does not hear of it: the scheduler carries it out, or
/// refuses it.
struct Noted {
    who: Who,
    client: String,
    /// What was to be changed; `None` where the client was to be let go.
    change: Option<Change>,
}

impl Noted {
    fn new(who: &Who, key: &str, change: Option<Change>) -> Self {
        Self { who: who.clone(), client: key.to_owned(), change }
    }

    /// Has a line about it written where it was refused because the client is another user's.
    async fn if_denied<T>(self, market: &Market, answer: Result<T, Refusal>) -> Result<T, Refusal> {
        match &answer {
            Err(refusal) if refusal.code == ErrorCode::NotPermitted => {
                self.write(market, Some(refusal.message.clone())).await;
            }
            _ => {}
        }
        answer
    }

    /// The same, and where it was carried out.
    async fn if_done_or_denied(self, market: &Market, answer: Answered) -> Answered {
        if answer.is_ok() {
            self.write(market, None).await;
            return answer;
        }
        self.if_denied(market, answer).await
    }

    async fn write(self, market: &Market, refused: Option<String>) {
        let Self { who, client, change } = self;
        // What was refused is refused again, which is what is written down.
        let _ = market.ask(who, Ask::Noted { client, change: change.map(Box::new), refused }).await;
    }
}

/// What the scheduler keeps of `bounds`, and what the market does: reservations, which are hard tickets.
fn split(bounds: Bounds) -> Result<(Bounds, Vec<(Resource, u64)>), Refusal> {
    if bounds.reserve_memory_bytes.is_some_and(|bytes| bytes > 0) {
        let text = "the system's divvyd reserves parts of the memory that a currency has, and no bytes";
        return Err(Refusal::new(
            ErrorCode::BadRequest,
            text,
            "give `reserve_memory_ppm` (--reserve memory:25%)",
        ));
    }
    let memory = bounds.reserve_memory_ppm.or(bounds.reserve_memory_bytes);
    let reserve = [
        (Resource::Cpu, bounds.reserve_cpu_ppm),
        (Resource::Memory, memory),
        (Resource::Disk, bounds.reserve_disk_ppm),
    ];
    let reserve = reserve.into_iter().filter_map(|(resource, ppm)| Some((resource, ppm?))).collect();
    let of_limits = Bounds {
        limit_memory_bytes: bounds.limit_memory_bytes,
        limit_disk_bytes: bounds.limit_disk_bytes,
        cpus: bounds.cpus,
        disk_share: bounds.disk_share,
        ..Bounds::default()
    };
    Ok((of_limits, reserve))
}

async fn admit(scheduler: Scheduler, market: Market, who: Who, new: NewClient) -> Answered {
    let (bounds, reserve) = split(new.bounds)?;
    let new = NewClient { bounds, ..new };
    let prepare = Command::Prepare { new: new.clone(), who: who.clone() };
    let Answer::Prepared(Prepared { name, selector, parent }) = scheduler.ask(prepare).await? else {
        return Err(unexpected());
    };
    let identity = identity_of(&selector, &who)?;
    let ask = Ask::Admit {
        name,
        amount: new.share,
        identity,
        parent,
        from: new.from.clone(),
        job: new.job.clone(),
    };
    let Said::Admitted(admitted) = market.ask(who.clone(), ask).await? else { return Err(unexpected()) };
    let client = admitted.currency;
    let given = |n: Option<u64>| n.filter(|&n| n > 0);
    let limits = Limits {
        cpu_ppm: given(new.limit_ppm),
        memory: given(bounds.limit_memory_bytes),
        disk: given(bounds.limit_disk_bytes),
    };
    let limits = Some(limits).filter(|limits| *limits != Limits::default());
    let cpus = bounds.cpus.filter(|cpus| !cpus.is_empty()).map(Cpus);
    let mut agreed = Ok(());
    if limits.is_some() || cpus.is_some() || !reserve.is_empty() {
        let terms = Box::new(Terms { share: None, reserve, from: new.from.clone(), limits, cpus });
        agreed = market.ask(who.clone(), Ask::SetTerms { client, terms }).await.map(drop);
    }
    let added = match agreed {
        Ok(()) => scheduler.ask(Command::Add { new, who, admitted: Some(Box::new(admitted)) }).await,
        Err(refusal) => Err(refusal),
    };
    if added.is_err() {
        // The refusal is the news; that the market has nothing to forget is none.
        let _ = market.ask(Who::divvyd(), Ask::Leave { client }).await;
    }
    added
}

/// Share, reservations, limits and CPUs of a client, all of them or none: limits and CPUs are the scheduler's, and taken back
/// where the market refuses the rest.
async fn set_terms(scheduler: Scheduler, market: Market, who: Who, key: String, change: Change) -> Answered {
    let (bounds, reserve) = split(change.bounds)?;
    if let Some(share) = change.share.filter(|share| !(1..=SHARE_MAX).contains(share)) {
        let text = format!("share {share}: a share is a whole number from 1 to {SHARE_MAX}");
        return Err(Refusal::new(ErrorCode::BadRequest, text, "give another share"));
    }
    let of_limits = Change { limit_ppm: change.limit_ppm, bounds, ..Change::default() };
    let noted = Noted::new(&who, &key, Some(change));
    let owned =
        scheduler.ask(Command::Owned { key, who: who.clone(), pauses: change.paused == Some(true) }).await;
    let Answer::Owned(id, owner, had, had_cpus) = noted.if_denied(&market, owned).await? else {
        return Err(unexpected());
    };
    let key = id.to_string();
    let limits_change = of_limits != Change::default();
    if limits_change {
        let ask = Command::Change { key: key.clone(), change: of_limits, who: who.clone() };
        scheduler.ask(ask).await?;
    }
    let to = |had: Option<u64>, to: Option<u64>| to.map_or(had, |n| (n > 0).then_some(n));
    let limits = Limits {
        cpu_ppm: to(had.cpu_ppm, change.limit_ppm),
        memory: to(had.memory, bounds.limit_memory_bytes),
        disk: to(had.disk, bounds.limit_disk_bytes),
    };
    let limits = limits_change.then_some(limits);
    let client = owner.currency;
    let ask = match change.share {
        Some(amount) if reserve.is_empty() && limits.is_none() => Ask::SetShare { client, amount },
        share => {
            let terms = Terms { share, reserve, from: None, limits, cpus: bounds.cpus.map(Cpus) };
            Ask::SetTerms { client, terms: Box::new(terms) }
        }
    };
    if let Err(refusal) = market.ask(who.clone(), ask).await {
        if limits_change {
            let bounds = Bounds {
                limit_memory_bytes: Some(had.memory.unwrap_or(0)),
                limit_disk_bytes: Some(had.disk.unwrap_or(0)),
                cpus: Some(had_cpus.0),
                ..Bounds::default()
            };
            let back = Change { limit_ppm: Some(had.cpu_ppm.unwrap_or(0)), bounds, ..Change::default() };
            // It had them a moment ago. One that has left meanwhile has none.
            let _ = scheduler.ask(Command::Change { key, change: back, who }).await;
        }
        return Err(refusal);
    }
    let rest = Change { share: change.share, paused: change.paused, ..Change::default() };
    if rest == Change::default() {
        return scheduler.ask(Command::Show { key }).await;
    }
    scheduler.ask(Command::Change { key, change: rest, who }).await
}

async fn let_go(scheduler: Scheduler, market: Market, who: Who, key: String) -> Answered {
    let noted = || Noted::new(&who, &key, None);
    let owned = scheduler.ask(Command::Owned { key: key.clone(), who: who.clone(), pauses: false }).await;
    let Answer::Owned(id, owner, ..) = noted().if_denied(&market, owned).await? else {
        return Err(unexpected());
    };
    let may = market.ask(who.clone(), Ask::MayLeave { client: owner.currency }).await;
    noted().if_denied(&market, may).await?;
    let last = scheduler.ask(Command::Detach { key: id.to_string(), who: who.clone() }).await;
    let last = noted().if_done_or_denied(&market, last).await?;
    // Before the answer: after a crash nobody is divided again who was let go. The scheduler's own word that it has left
    // may have come first.
    let _ = market.ask(Who::divvyd(), Ask::Leave { client: owner.currency }).await;
    Ok(last)
}

fn unexpected() -> Refusal {
    Refusal::new(ErrorCode::Internal, "something else was answered than was asked", "see divvyd's log")
}

/// For whom a client is made: whoever asks. Where root asks for another user's processes, and names nobody who pays, that is this user: the
/// client is theirs, paid by them, and has none of anybody else's processes.
fn on_behalf(who: Who, new: &NewClient) -> Who {
    let selector = new.selector.as_deref().filter(|_| who.uid == 0 && new.from.is_none());
    let uid = match selector.and_then(|text| text.parse().ok()) {
        Some(Selector::User(uid)) => Some(uid),
        Some(Selector::Pid(pid) | Selector::Tree(pid)) => {
            let users = users(pid).ok().flatten();
            users.filter(|users| users.is_owned_by(users.real)).map(|users| users.real)
        }
        _ => None,
    };
    match uid.filter(|&uid| uid != 0) {
        Some(uid) => Who { uid, gids: vec![user_group(uid).unwrap_or(uid)], pid: who.pid, by_root: true },
        None => who,
    }
}

/// What tells the processes of `selector` from others that have the same numbers later. A process that is named by its
/// number has to be `who`'s; root's may be anybody's.
///
/// # Errors
/// `no-such-process`, and `not-permitted` for another user's.
pub(crate) fn identity_of(selector: &Selector, who: &Who) -> Result<Identity, Refusal> {
    let process = match selector {
        Selector::Pid(pid) | Selector::Tree(pid) => {
            let gone = || {
                let text = format!("{selector}: there is no process {pid}");
                Refusal::new(ErrorCode::NoSuchProcess, text, "look with ps which there are")
            };
            let broken = |e: divvy_linux::Error| Refusal::new(ErrorCode::Internal, e, "");
            let process = ProcessRef::open(*pid).map_err(broken)?.ok_or_else(gone)?;
            let users = users(*pid).map_err(broken)?.ok_or_else(gone)?;
            // It lives after its users were read: they were its own.
            if !process.is_alive().map_err(broken)? {
                return Err(gone());
            }
            if who.uid != 0 && !users.is_owned_by(who.uid) {
                let text = format!("{selector}: process {pid} is not yours: it has {users}");
                return Err(Refusal::new(ErrorCode::NotPermitted, text, "attach your own, or ask root"));
            }
            Some((pid.as_raw_pid(), process.start().0))
        }
        _ => None,
    };
    Ok(Identity { selector: selector.to_string(), process, boot: boot_id() })
}

/// This boot's id; nothing where the kernel does not tell.
pub(crate) fn boot_id() -> String {
    divvy_linux::procfs::boot_id().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(uid: u32) -> Who {
        Who { uid, gids: vec![uid], pid: 0, by_root: false }
    }

    #[test]
    fn a_plugin_of_another_interface_is_refused() {
        assert!(fits(None).is_ok() && fits(Some(PLUGIN_INTERFACE)).is_ok());
        for (interface, age) in [(PLUGIN_INTERFACE - 1, "older"), (PLUGIN_INTERFACE + 1, "newer")] {
            let refusal = fits(Some(interface)).unwrap_err();
            assert_eq!(refusal.code, ErrorCode::BadRequest);
            let text = refusal.message.clone();
            assert!(text.contains(age) && text.contains(&format!("interface {interface}, ")), "{text}");
        }
    }

    #[test]
    fn root_attaches_for_whom_the_processes_are() {
        let new = |selector: &str, from: Option<&str>| NewClient {
            selector: Some(selector.to_owned()),
            from: from.map(str::to_owned),
            ..NewClient::default()
        };
        let me = rustix::process::geteuid().as_raw();
        let own = format!("tree:{}", std::process::id());
        for (asks, selector, from, uid) in [
            (0, "user:1234567", None, 1_234_567),
            (0, "user:1234567", Some("root"), 0),
            (0, "user:0", None, 0),
            (0, own.as_str(), None, me),
            (0, "tree:4194305", None, 0),
            (0, "name:x", None, 0),
            (0, "nonsense", None, 0),
            (7, "user:1234567", None, 7),
        ] {
            let for_whom = on_behalf(who(asks), &new(selector, from));
            assert_eq!(for_whom.uid, uid, "{asks}: {selector} {from:?}");
            assert_eq!(for_whom.by_root, asks != uid, "{asks}: {selector} {from:?}");
        }
        assert_eq!(
            on_behalf(who(0), &new("user:1234567", None)).gids,
            [1_234_567],
            "no user of the system's"
        );
    }

    #[test]
    fn a_process_is_its_users_to_attach() {
        let own = rustix::process::geteuid().as_raw();
        let me: Selector = format!("tree:{}", std::process::id()).parse().unwrap();
        let identity = identity_of(&me, &who(own)).unwrap();
        let start = divvy_linux::procfs::stat(rustix::process::getpid()).unwrap().unwrap().start;
        assert_eq!(identity.process, Some((std::process::id() as i32, start.0)));
        assert!(!identity.boot.is_empty());
        assert!(identity_of(&me, &who(0)).is_ok(), "root may");
        assert_eq!(identity_of(&me, &who(own + 1)).unwrap_err().code, ErrorCode::NotPermitted);
        let nobody: Selector = "pid:4194305".parse().unwrap();
        assert_eq!(identity_of(&nobody, &who(own)).unwrap_err().code, ErrorCode::NoSuchProcess);
        let everything: Selector = "user:0".parse().unwrap();
        assert_eq!(identity_of(&everything, &who(0)).unwrap().process, None);
    }
}
