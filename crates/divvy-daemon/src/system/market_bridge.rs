//! Where the market and the scheduler meet: values go one way, who competes and who has left the other.
//!
//! On the scheduler's side nothing waits: values lie in a slot, presence goes into the market's queue, and those who left
//! are put in another, from which a task of the API's thread takes them.

use std::collections::BTreeSet;
use std::sync::Arc;

use divvy_engine::policies::{GateSpec, SpecError};
use divvy_engine::portion::Portions;
use divvy_linux::{Selector, group_id, user_group, user_id, user_name};
use divvy_market::{Changed, CurrencyId, Resource};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

use crate::budget::Budget;
use crate::clients::{Clients, boot_id};
use crate::daemon::nanos;
use crate::market::Feed;
use crate::market::message::{Admitted, Ask, Handle as Market, Who};
use crate::market::policy::{EVERYTHING, Policy};
use crate::message::{Command, Handle as Scheduler};
use crate::scheduler::{Admins, Terms, Values, WRITE_BUDGET};
use divvy_api::types::{Bounds, ErrorCode, NewClient};

/// What the market feeds.
pub(crate) struct ToScheduler {
    pub(crate) values: Values,
    /// Whether the kernel is to give effect to rights to memory and disks.
    pub(crate) rights: bool,
}

impl Feed for ToScheduler {
    fn tell(&mut self, resource: Resource, changed: Changed) {
        self.values.put(resource, changed);
    }

    fn resources(&self) -> &'static [Resource] {
        if self.rights { &Resource::ALL } else { &[Resource::Cpu] }
    }

    fn budget(&self) -> Option<Budget> {
        // The kernel is told no more often; a gate, which has few clients, takes each change as it comes.
        self.rights.then_some(WRITE_BUDGET)
    }
}

/// What is left to do on the API's thread.
pub(super) struct MarketBridge {
    scheduler: Scheduler,
    market: Market,
    admins: Admins,
    left: UnboundedReceiver<CurrencyId>,
    /// Clients of before the start.
    known: Vec<Admitted>,
    ready: watch::Sender<bool>,
}

/// How the scheduler and its market are tied together, for a scheduler of policy `spec`, which is changed to take the
/// market's shares.
///
/// # Errors
/// [`SpecError`] where there is no such policy.
pub(super) fn tie(
    spec: &mut GateSpec,
    policy: &Policy,
    values: Values,
    (scheduler, market): (Scheduler, Market),
    known: Vec<Admitted>,
) -> Result<(Terms, MarketBridge, watch::Receiver<bool>), SpecError> {
    let (left_to, left): (UnboundedSender<CurrencyId>, _) = unbounded_channel();
    let (ready, is_ready) = watch::channel(false);
    let admins = Admins::default();
    let to_market = market.clone();
    let terms = Terms {
        portions: Portions::new(spec)?,
        values,
        idle_after: nanos(policy.presence.idle_after),
        admins: admins.clone(),
        tell_presence: Arc::new(move |client, presence| to_market.presence(client, presence)),
        // Where the API's thread has ended, we are ending.
        tell_left: Arc::new(move |client| {
            let _ = left_to.send(client);
        }),
    };
    let bridge = MarketBridge { scheduler, market, admins, left, known, ready };
    Ok((terms, bridge, is_ready))
}

/// The part of [`MarketBridge`] that follows the policy.
pub(super) struct Follower {
    clients: Clients,
    admins: Admins,
}

impl MarketBridge {
    /// Finds the clients of before the start again, and lets others ask for theirs then; from then on, tells the market who
    /// has left.
    pub(super) async fn begin(self, policy: &Policy) -> Follower {
        let Self { scheduler, market, admins, mut left, known, ready } = self;
        for admitted in known {
            let (client, name, uid) = (admitted.currency, admitted.name.clone(), admitted.uid);
            match attach_again(&scheduler, admitted).await {
                Ok(()) => tracing::info!(name, uid, "divided again"),
                Err(why) => {
                    tracing::info!(name, uid, "not there any more: {why}");
                    let _ = market.ask(Who::divvyd(), Ask::Leave { client }).await;
                }
            }
        }
        let clients = Clients { scheduler, market: Some(market.clone()), ready: None };
        let follower = Follower { clients, admins };
        follower.follow(policy).await;
        ready.send_replace(true);
        tokio::spawn(async move {
            while let Some(client) = left.recv().await {
                // One that was let go by name has left already.
                let _ = market.ask(Who::divvyd(), Ask::Leave { client }).await;
            }
        });
        follower
    }
}

/// Attaches a client of before the start, if it is still the same processes.
async fn attach_again(scheduler: &Scheduler, admitted: Admitted) -> Result<(), String> {
    if admitted.identity.boot != boot_id() {
        return Err("the machine was started anew".to_owned());
    }
    let who = Who { uid: admitted.uid, gids: Vec::new(), pid: 0, by_root: false };
    let selector = Some(admitted.identity.selector.clone());
    // Its share is in the market.
    let plain = NewClient { share: 1, selector, ..NewClient::default() };
    let add = |new: &NewClient| {
        let new = new.clone();
        let command = Command::Add { new, who: who.clone(), admitted: Some(Box::new(admitted.clone())) };
        async { scheduler.ask(command).await.map(drop) }
    };
    let limits = admitted.limits;
    let bounds =
        Bounds { limit_memory_bytes: limits.memory, limit_disk_bytes: limits.disk, ..Bounds::default() };
    let limited = NewClient { limit_ppm: limits.cpu_ppm, bounds, ..plain.clone() };
    let cpus = Some(admitted.cpus.0).filter(|cpus| !cpus.is_empty());
    let kept = NewClient { bounds: Bounds { cpus, ..bounds }, ..limited.clone() };
    // Another back end may keep no such thing: rather divided without it than not at all.
    let unlimited = NewClient { limit_ppm: None, ..kept.clone() };
    let unbounded = NewClient { limit_ppm: limits.cpu_ppm, ..plain.clone() };
    let (bounds, all) = match cpus {
        Some(_) => ("limits of memory and disks and CPUs", "limits and CPUs"),
        None => ("limits of memory and disks", "limits"),
    };
    let (mut last, mut tried) = (add(&kept).await, vec![&kept]);
    let less = [(&unlimited, "limits of CPU time"), (&limited, "CPUs"), (&unbounded, bounds), (&plain, all)];
    for (less, what) in less {
        let Err(refusal) = &last else { break };
        if !tried.contains(&less) {
            let (name, uid, why) = (&admitted.name, admitted.uid, refusal.message.clone());
            last = add(less).await;
            if last.is_ok() {
                tracing::warn!(name, uid, "its {what} are not kept: {why}");
            }
            tried.push(less);
        }
    }
    last.map_err(|refusal| refusal.message)
}

impl Follower {
    /// Makes true what the policy says of administrators, and of users all of whose processes are a client.
    pub(super) async fn follow(&self, policy: &Policy) {
        for (table, name) in policy.strangers(|name| user_id(name).is_some()) {
            tracing::warn!(
                name,
                "[{table}]: there is no user of that name yet; what it says of them waits for the account (a number alone, as 1007, needs none)"
            );
        }
        for (table, name, uid) in policy.twice(user_id) {
            tracing::warn!(
                name,
                uid,
                "[{table}]: the user is there by name and by number; what is said by name holds"
            );
        }
        for (name, resource, bound, given) in policy.idle_bounds(user_id, user_name) {
            tracing::warn!(
                name,
                "[bounds]: {resource} = {bound} is no more than the {given} base tickets that the user is given, which count: nothing can be \
                 issued by it"
            );
        }
        let number = |name: &String, look: fn(&str) -> Option<u32>| look(name).or_else(|| name.parse().ok());
        let group = |name: &String| {
            let id = number(name, group_id);
            if id.is_none() {
                tracing::warn!(name, "[admins]: there is no group of that name yet");
            }
            id
        };
        let users = policy.admins.users.iter().filter_map(|name| number(name, user_id)).collect();
        let groups = policy.admins.groups.iter().filter_map(group).collect();
        self.admins.set(users, groups);
        for name in policy.everything() {
            // Of one who is not there yet it was said already.
            if let Some(uid) = user_id(name).or_else(|| name.parse().ok()) {
                self.take_everything(uid).await;
            }
        }
        self.let_others_go(policy).await;
    }

    /// Where the policy means everybody by that: makes clients of the processes of users who were not seen before, of those whom
    /// it does not name. `seen` are the others. Cost: a look at the directory of each process.
    pub(super) async fn look_for_users(&self, policy: &Policy, seen: &mut BTreeSet<u32>) {
        if !policy.everything_of_all() {
            return seen.clear();
        }
        let Ok(mut present) = tokio::task::spawn_blocking(users_present).await else { return };
        let new: Vec<u32> = present.difference(seen).copied().collect();
        for uid in new {
            if policy.user(uid, user_name(uid).as_deref()).everything && !self.take_everything(uid).await {
                present.remove(&uid); // The next look tries again.
            }
        }
        // One who has left and comes again finds the client that it had.
        *seen = present;
    }

    /// Whether that is a client now.
    async fn take_everything(&self, uid: u32) -> bool {
        // One without an account has no group of its own; its currencies give no group any right.
        let who = Who { uid, gids: vec![user_group(uid).unwrap_or(uid)], pid: 0, by_root: false };
        let new = NewClient {
            name: Some(EVERYTHING.to_owned()),
            // As a `divvy run` without a share: what a user runs by that beside it has half of what is the user's.
            share: 1,
            selector: Some(Selector::User(uid).to_string()),
            ..NewClient::default()
        };
        match self.clients.clone().add(who, new).await {
            Ok(_) => {
                tracing::info!(uid, "all processes of the user are a client");
                true
            }
            // It is one from before.
            Err(refusal) => {
                let is_one = refusal.code == ErrorCode::ProcessTaken;
                if !is_one {
                    tracing::error!(uid, "the user's processes are no client: {}", refusal.message);
                }
                is_one
            }
        }
    }

    /// Clients that the policy made and does not want any more.
    async fn let_others_go(&self, policy: &Policy) {
        // Whoever was just made a client shows.
        self.clients.scheduler.note_change(0);
        let Ok(view) = self.clients.scheduler.view(0, 0).await else { return };
        for client in view.rows() {
            let of_user = |user: &&String| client.name == format!("{user}/{EVERYTHING}");
            let Some(user) = client.user.as_ref().filter(of_user) else { continue };
            let uid = user_id(user).or_else(|| user.parse().ok());
            let of_all = |uid: u32| Selector::User(uid).to_string() == client.selector;
            let Some(uid) = uid.filter(|&uid| of_all(uid)) else { continue };
            if !policy.user(uid, user_name(uid).as_deref()).everything {
                let _ = self.clients.clone().detach(Who::divvyd(), client.id.to_string()).await;
            }
        }
    }
}

/// Users who are people, as far as that can be told, and run something just now: those with an account, and a number that
/// `/etc/login.defs` gives to such accounts.
fn users_present() -> BTreeSet<u32> {
    use std::os::unix::fs::MetadataExt as _;

    let least = least_of_people(&std::fs::read_to_string("/etc/login.defs").unwrap_or_default());
    let Ok(entries) = std::fs::read_dir("/proc") else { return BTreeSet::new() };
    let is_process = |name: &std::ffi::OsStr| name.to_str().is_some_and(|name| name.parse::<u32>().is_ok());
    let processes = entries.flatten().filter(|entry| is_process(&entry.file_name()));
    let users: BTreeSet<u32> = processes.filter_map(|entry| Some(entry.metadata().ok()?.uid())).collect();
    users.into_iter().filter(|&uid| uid >= least && uid != NOBODY && user_name(uid).is_some()).collect()
}

/// The kernel's number for users that it cannot name.
const NOBODY: u32 = 65_534;
/// Where `/etc/login.defs` says nothing.
const PEOPLE_FROM: u32 = 1000;

/// `UID_MIN` of such a file.
fn least_of_people(login_defs: &str) -> u32 {
    let mut values =
        login_defs.lines().filter_map(|line| line.trim().strip_prefix("UID_MIN")?.trim().parse().ok());
    values.next_back().unwrap_or(PEOPLE_FROM)
}

#[cfg(test)]
mod tests {
    use divvy_linux::Waker;

    use super::*;
    use crate::market::message::{Cpus, Identity, Limits};
    use crate::message::{Answer, Refusal, Request, channel};

    #[test]
    fn people_have_numbers_from_uid_min_on() {
        for (text, least) in [
            ("", 1000),
            ("# UID_MIN 7\nUID_MIN\t\t  500\nUID_MAX 60000\n", 500),
            ("SYS_UID_MIN 100\n", 1000),
            ("UID_MIN many\n", 1000),
        ] {
            assert_eq!(least_of_people(text), least, "{text:?}");
        }
        assert!(users_present().iter().all(|&uid| uid != 0 && uid != NOBODY));
    }

    /// Which bounds a scheduler that `keeps` some is asked for, one after the other, for a client of before its start.
    fn asked(limits: Limits, cpus: &str, keeps: fn(&NewClient) -> bool) -> Vec<(Option<u64>, Bounds)> {
        let (scheduler, (requests, _publisher)) = channel(Waker::of_nobody().unwrap());
        let answers = std::thread::spawn(move || {
            let mut asked = Vec::new();
            for Request { command, reply } in requests {
                let Command::Add { new, .. } = command else { panic!("{command:?}") };
                let refusal = || Refusal::new(ErrorCode::BadRequest, "not kept here", "");
                reply.send(keeps(&new).then(|| Answer::Client(Box::default())).ok_or_else(refusal)).unwrap();
                asked.push((new.limit_ppm, new.bounds));
            }
            asked
        });
        let selector = format!("tree:{}", std::process::id());
        let admitted = Admitted {
            currency: "3".parse().unwrap(),
            name: "task".to_owned(),
            uid: 0,
            identity: Identity { selector, process: None, boot: boot_id() },
            amount: 1,
            limits,
            cpus: Cpus::try_from(cpus.to_owned()).unwrap(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _ = runtime.block_on(attach_again(&scheduler, admitted));
        drop(scheduler);
        answers.join().unwrap()
    }

    #[test]
    fn a_client_of_before_has_what_the_back_end_keeps_of_its_bounds() {
        let limits = Limits { cpu_ppm: Some(500_000), memory: Some(1 << 30), disk: None };
        let cpus = Some("0,2-3".parse().unwrap());
        let limited = Bounds { limit_memory_bytes: Some(1 << 30), ..Bounds::default() };
        let (all, some) = ((limits.cpu_ppm, Bounds { cpus, ..limited }), (limits.cpu_ppm, limited));
        let unlimited = (None, all.1);
        let (only_cpus, none) = ((None, Bounds { cpus, ..Bounds::default() }), (None, Bounds::default()));
        assert_eq!(asked(limits, "0,2-3", |_| true), [all]);
        assert_eq!(asked(Limits::default(), "0,2-3", |_| true), [only_cpus]);
        assert_eq!(asked(limits, "0,2-3", |new| new.bounds.cpus.is_none()), [all, unlimited, some]);
        // Under a scheduler of the kernel's no limit of CPU time is kept, and all else is.
        assert_eq!(asked(limits, "0,2-3", |new| new.limit_ppm.is_none()), [all, unlimited]);
        // By signals a limit of CPU time is kept, and nothing of memory.
        let only_cpu_time = (limits.cpu_ppm, Bounds::default());
        let by_signals: fn(&NewClient) -> bool = |new| new.bounds.is_empty();
        assert_eq!(asked(limits, "0,2-3", by_signals), [all, unlimited, some, only_cpu_time]);
        assert_eq!(asked(limits, "", by_signals), [some, (None, limited), only_cpu_time]);
        let nothing: fn(&NewClient) -> bool = |new| new.bounds.is_empty() && new.limit_ppm.is_none();
        assert_eq!(asked(limits, "", nothing), [some, (None, limited), only_cpu_time, none]);
        // One that is refused for another reason is not asked for again and again.
        assert_eq!(asked(Limits::default(), "", |_| false), [none]);
    }
}
