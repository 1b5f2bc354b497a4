//! What is asked of a divvyd, the system's or the user's own: `run`, `attach`, `set`, `ls`, `detach`, `pause`, `resume`,
//! `explain`, `doctor`.

pub(crate) mod args;
mod attach;
pub(crate) mod group;
mod look;
mod paused;
mod reserved;
mod run;
pub(crate) mod table;
mod undivided;
pub(crate) mod which;

use divvy_api::client::{Api, ApiError, Choice};
use divvy_api::launch::LaunchError;
use divvy_api::names::word;
use divvy_api::runs::ShareRun;
use divvy_api::types::{
    BackendInfo, Bounds, Change, Client, ClientState, Clients, Enforcement, ErrorCode, ErrorInfo, Group,
    GroupChange,
};
use divvy_linux::clock;
use divvy_policy::Nanos;
use serde::Serialize;

use crate::{Code, Failure, bounds, cpus, limit, print, tell};
use args::{ClientArgs, LsArgs, SetArgs};
use divvy_market::Resource;
use group::{Found, client_or_group};
use table::Width;
use which::Which;

pub(crate) use attach::{attach, nobody_yet};
pub(crate) use look::{doctor, explain};
pub(crate) use run::run;
pub(crate) use table::bytes;

impl From<ApiError> for Failure {
    fn from(e: ApiError) -> Self {
        let code = match &e {
            ApiError::NotRunning(_) | ApiError::NoSystem(_) | ApiError::Broken { .. } => Code::Scheduler,
            ApiError::Place(_) | ApiError::Stranger { .. } => Code::System,
            ApiError::Mode(_) => Code::Usage,
            ApiError::Refused(info) => match info.code {
                ErrorCode::BadRequest | ErrorCode::NameTaken | ErrorCode::ProcessTaken => Code::Usage,
                ErrorCode::NoSuchClient
                | ErrorCode::NoSuchProcess
                | ErrorCode::NoSuchCurrency
                | ErrorCode::NoSuchTicket
                | ErrorCode::NoSuchExchange
                | ErrorCode::NoSuchOffer
                | ErrorCode::NoSuchUser
                | ErrorCode::NoSuchGroup => Code::NoSuch,
                ErrorCode::NotStarted => Code::NotStarted,
                ErrorCode::Leaving | ErrorCode::NoMarket => Code::Scheduler,
                ErrorCode::Refused | ErrorCode::Limit => Code::Refused,
                _ => Code::System,
            },
        };
        Self::new(code, e)
    }
}

impl From<LaunchError> for Failure {
    fn from(e: LaunchError) -> Self {
        match e {
            LaunchError::Api(e) => e.into(),
            LaunchError::NotFound { .. } => Self::new(Code::Scheduler, e),
            LaunchError::Failed { code: 2, .. } => Self::new(Code::Usage, e),
            LaunchError::Failed { code: 5, .. } => Self::new(Code::System, e),
            LaunchError::Failed { .. } => Self::new(Code::Scheduler, e),
        }
    }
}

/// As for every answer, but that a client of another user's is its owner's to change: nothing that the system refused.
fn of_its_owner(e: ApiError) -> Failure {
    match &e {
        ApiError::Refused(info) if info.code == ErrorCode::NotPermitted => Failure::new(Code::Denied, e),
        _ => e.into(),
    }
}

/// What came of asking for a client with the tickets of `from`: that one may not have them is the market's refusal, not the
/// system's.
pub(crate) fn of_its_currency(from: Option<&str>, e: LaunchError) -> Failure {
    match e {
        LaunchError::Api(e) if from.is_some() => of_its_owner(e),
        e => e.into(),
    }
}

/// Says of which of these resources nothing gives effect to rights here, to whoever has just asked for some.
pub(crate) fn warn_of_no_effect(api: &Api, asked: &[Resource]) {
    if asked.is_empty() {
        return;
    }
    // An older divvyd, or one that is gone, says nothing of it.
    let enforced = api.status().map(|status| status.backend.enforced).unwrap_or_default();
    let of = |told: &Enforcement| told.by.is_none() && asked.iter().any(|r| r.to_string() == told.resource);
    for told in enforced.iter().filter(|told| of(told)) {
        tell(format_args!("divvy: warning: no effect on {} yet: {told}", told.resource));
    }
}

/// Something as JSON, for a program.
pub(crate) fn json(what: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(what).map_err(|e| Failure::new(Code::System, e))
}

/// A divvyd that knows `client`: where none runs, there is no such client.
fn api_for(client: &str, which: &Which) -> Result<Api, Failure> {
    which.choice()?.api().map_err(|e| match e {
        ApiError::NotRunning(_) => {
            crate::rescue::left_behind();
            let none =
                || format!("no client is called '{client}': no divvyd runs; start or attach one first");
            Failure::new(Code::NoSuch, undivided::reason(client).unwrap_or_else(none))
        }
        e => e.into(),
    })
}

fn told(client: &Client, as_json: bool, words: impl std::fmt::Display) -> Result<Code, Failure> {
    if as_json {
        print(json(client)?)?;
    } else {
        print(words)?;
    }
    Ok(Code::Done)
}

/// What is said where nothing but a name was given, or, as for a task of `divvy share`, NAME=SHARE.
fn nothing_to_set(client: &str) -> Failure {
    let parts = client.rsplit_once(['=', ':']).filter(|(name, _)| !name.is_empty());
    let text = match parts.and_then(|(name, share)| Some((name, limit::parse_share(share).ok()?))) {
        Some((name, share)) => {
            format!(
                "nothing to be changed about '{client}': name and share are two words, as in divvy set {} {share}",
                word(name)
            )
        }
        None => format!(
            "nothing to be changed: write divvy set {} 3, or give --limit, --reserve, --cpus or --disk-share",
            word(client)
        ),
    };
    Failure::new(Code::Usage, text)
}

pub(crate) fn set(args: &SetArgs) -> Result<Code, Failure> {
    let limit_ppm = args.limit.and_then(|limits| limits.cpu_ppm());
    limit::warn(limit_ppm);
    let system = args.ask.of.is_system()?;
    let cpus = args.cpus.as_deref().map(cpus::parse_change).transpose()?;
    let bounds = Bounds { cpus, ..bounds::bounds(args.limit, args.reserve, args.disk_share, system)? };
    let share = args.new_share.or(args.share);
    let others =
        [args.limit.is_some(), args.reserve.is_some(), args.cpus.is_some(), args.disk_share.is_some()];
    if share.is_none() && !others.contains(&true) {
        return Err(nothing_to_set(&args.client));
    }
    let change = Change { share, limit_ppm, bounds, paused: None };
    let of_group = |api: &Api, path: &str| {
        if limit_ppm.is_none() && bounds.is_empty() {
            return api.change_group(path, GroupChange { share, paused: None });
        }
        let known = api.clients()?.groups.iter().any(|group| group.name == path);
        let (code, message, fix) = if known {
            let text = format!("'{path}' is a group, and limits, reservations and CPUs are for clients");
            (ErrorCode::BadRequest, text, "give each of its clients one")
        } else {
            (ErrorCode::NoSuchClient, format!("no client is called '{path}'"), "see `divvy ls`")
        };
        Err(ApiError::Refused(ErrorInfo { code, message, fix: fix.to_owned() }))
    };
    let api = api_for(&args.client, &args.ask.of)?;
    let of_client = |api: &Api, key: &str| api.change(key, change);
    let client = match client_or_group(&api, &args.client, of_client, of_group)? {
        Found::Client(client) => client,
        Found::Group(group) => {
            return group::told(&group, args.ask.json, format_args!("share {}", group.share));
        }
    };
    warn_of_no_effect(&api, &args.reserve.map_or_else(Vec::new, |reserve| reserve.resources()));
    // What the system's divvyd has reserved are tickets, and no bounds of the client's.
    let reserved = if system && !args.ask.json { reserved::shown(&api, &client).ok() } else { None };
    let has = match &reserved {
        Some(_) => client.bounds,
        None => client.bounds.changed_by(bounds),
    };
    let reserved = reserved.unwrap_or_default();
    let limit = limit::shown_of(&client, limit_ppm.is_some()) + &reserved + &bounds::shown(has);
    told(&client, args.ask.json, format_args!("{}: share {}{limit}", client.name, client.share))
}

/// What became of clients, or of all clients of groups, each with what is said of it.
fn each(
    args: &ClientArgs,
    done: impl Fn(&Api, &str) -> Result<(Found<Client, Group>, String), Failure>,
) -> Result<Code, Failure> {
    let keys = if args.all { all_of_mine(&args.ask.of)? } else { args.clients.clone() };
    if keys.is_empty() && !args.ask.json {
        print("no clients of yours: nothing to do")?;
        return Ok(Code::Done);
    }
    let (all, code) = one_by_one(
        &keys,
        |key| match api_for(key, &args.ask.of).and_then(|api| done(&api, key)) {
            // Of all one may have ended meanwhile.
            Err(e) if args.all && e.code == Code::NoSuch => Ok(None),
            Err(Failure { code: code @ Code::NoSuch, text }) if key == "all" => {
                Err(Failure { code, text: format!("{text}; all of yours are --all") })
            }
            found => found.map(Some),
        },
        |found| match found {
            Some((found, words)) if !args.ask.json => print(format_args!("{}: {words}", found.name())),
            _ => Ok(()),
        },
    )?;
    if args.ask.json {
        let all: Vec<_> = all.into_iter().flatten().map(|(found, _)| found).collect();
        print(if args.all { json(&all) } else { json_of(&keys, &all) }?)?;
    }
    Ok(code)
}

/// Nobody has more processes above it that matter.
const LINE_MAX: usize = 32;

/// This process and those above it: divvyd may not know the youngest yet.
fn own_line() -> Vec<i32> {
    line_of(rustix::process::getpid().as_raw_nonzero().get())
}

/// A process and those above it.
fn line_of(pid: i32) -> Vec<i32> {
    let protection = divvy_linux::Protection::standard();
    let above = |&pid: &i32| {
        let said = divvy_linux::explain(divvy_linux::Pid::from_raw(pid)?, &protection, None).ok()?;
        said.parent.filter(|&parent| parent > 1)
    };
    std::iter::successors(Some(pid), above).take(LINE_MAX).collect()
}

/// The numbers of all clients of whoever asks; the one that this process is in comes last, for it may be held as soon as that is.
fn all_of_mine(which: &Which) -> Result<Vec<String>, Failure> {
    let uid = rustix::process::geteuid().as_raw();
    let user = divvy_linux::user_name(uid).unwrap_or_else(|| uid.to_string());
    let clients = match which.choice()?.api().and_then(|api| api.clients_with_members(look::MEMBERS_MAX)) {
        Ok(all) => all.clients,
        Err(ApiError::NotRunning(_)) => {
            crate::rescue::left_behind();
            return Ok(Vec::new());
        }
        Err(e) if e.code() == Some(ErrorCode::Leaving) => return Ok(Vec::new()),
        Err(e) => return Err(e.into()),
    };
    // What the policy divides of a user is an administrator's to let go.
    let everything = format!("{user}/everything");
    let clients = clients.into_iter().filter(|client| uid == 0 || client.name != everything);
    let mine = clients.filter(|c| c.user.as_ref().is_none_or(|owner| *owner == user));
    let mine = own_last(mine.collect(), &own_line());
    Ok(mine.into_iter().map(|client| client.id.to_string()).collect())
}

/// As they were, but for the one that has a process of `line`.
fn own_last(mut clients: Vec<Client>, line: &[i32]) -> Vec<Client> {
    clients.sort_by_key(|client| client.members.iter().any(|member| line.contains(&member.pid)));
    clients
}

/// What became of `keys` as JSON: one that was asked for alone is no list of one.
///
/// # Errors
/// As [`json`].
pub(crate) fn json_of<K, T: Serialize>(keys: &[K], all: &[T]) -> Result<String, Failure> {
    match all {
        [one] if keys.len() == 1 => json(one),
        all => json(&all),
    }
}

/// Does what was asked for with each of `keys`, and shows it: what is refused for one is told, and done for the others. What was
/// done, and the code of the first refusal.
///
/// # Errors
/// The refusal of one that was asked for alone, as any other failure; that what was done could not be shown.
pub(crate) fn one_by_one<K: PartialEq, T>(
    keys: &[K],
    done: impl Fn(&K) -> Result<T, Failure>,
    show: impl Fn(&T) -> Result<(), Failure>,
) -> Result<(Vec<T>, Code), Failure> {
    let (mut refused, mut lost) = (None, Ok(()));
    let mut all = Vec::new();
    // What is named twice is done once.
    for (_, key) in keys.iter().enumerate().filter(|(i, key)| !keys[..*i].contains(key)) {
        match done(key) {
            Ok(one) => {
                if lost.is_ok() {
                    // The others are asked for all the same.
                    lost = show(&one);
                }
                all.push(one);
            }
            Err(e) if keys.len() == 1 => return Err(e),
            Err(Failure { code, text }) => {
                tell(format_args!("divvy: {text}"));
                refused.get_or_insert(code);
            }
        }
    }
    lost.map(|()| (all, refused.unwrap_or(Code::Done)))
}

/// What divvyd shows of its clients is 20 ms old at the most.
const VIEW_AGE: Nanos = Nanos::from_millis(30);

/// Pauses or resumes clients, and all clients of groups.
fn set_paused(args: &ClientArgs, paused: bool) -> Result<Code, Failure> {
    let change = Change { paused: Some(paused), ..Change::default() };
    let group_change = GroupChange { paused: Some(paused), ..GroupChange::default() };
    let begun = clock::now();
    let of_client = |api: &Api, key: &str| {
        // That there is none, the change says.
        let state = || api.client(key).map_or(ClientState::Left, |client| client.state);
        let mut before = state();
        if (before == ClientState::Paused) == paused && before != ClientState::Left {
            // It seems to be so already; but what divvyd shows may be as old as this.
            clock::sleep(VIEW_AGE.saturating_sub(clock::now().since(begun)));
            before = state();
        }
        api.change(key, change).map(|client| (client, paused::of_client(before, paused).to_owned()))
    };
    let of_group = |api: &Api, path: &str| {
        let before = paused::within(&api.clients_with_members(0)?.clients, path);
        let group = api.change_group(path, group_change)?;
        let words = paused::of_group(&group, before, paused);
        Ok((group, words))
    };
    each(args, |api, key| {
        Ok(match client_or_group(api, key, of_client, of_group)? {
            Found::Client((client, words)) => (Found::Client(client), words),
            Found::Group((group, words)) => (Found::Group(group), words),
        })
    })
}

pub(crate) fn pause(args: &ClientArgs) -> Result<Code, Failure> {
    set_paused(args, true)
}

pub(crate) fn resume(args: &ClientArgs) -> Result<Code, Failure> {
    set_paused(args, false)
}

pub(crate) fn detach(args: &ClientArgs) -> Result<Code, Failure> {
    each(args, |api, key| {
        let found = client_or_group(api, key, Api::detach, Api::detach_group)?;
        let words = match &found {
            Found::Group(group) => group::detached(group),
            Found::Client(client) => {
                format!("detached after {:.2} s of CPU time", seconds(client.service_ns))
            }
        };
        Ok((found, words))
    })
}

pub(crate) fn ls(args: &LsArgs) -> Result<Code, Failure> {
    let user = args.user.as_deref().map(|user| user_of(user, &args.ask.of)).transpose()?;
    let mut clients = match args.ask.of.choice()?.api().and_then(|api| api.clients()) {
        Ok(clients) => clients,
        // Nobody is divided; to know that, no divvyd need be started.
        Err(ApiError::NotRunning(_)) => {
            crate::rescue::left_behind();
            Clients { window_ns: 0, age_ns: 0, clients: Vec::new(), groups: Vec::new() }
        }
        Err(e) if e.code() == Some(ErrorCode::Leaving) => {
            Clients { window_ns: 0, age_ns: 0, clients: Vec::new(), groups: Vec::new() }
        }
        Err(e) => return Err(e.into()),
    };
    // A directory that cannot be trusted is nobody's whose runs could be told; a divvyd there was refused before.
    let mut runs = divvy_api::runs::all().unwrap_or_default();
    if let Some(user) = &user {
        clients.clients.retain(|client| client.user.as_ref() == Some(user));
        runs.clear(); // They are the caller's, not the system's.
    }
    let status = args.ask.of.choice()?.api().and_then(|api| api.status()).ok();
    if args.ask.json {
        print(json(&Everybody { clients, backend: status.map(|status| status.backend), runs })?)?;
        return Ok(Code::Done);
    }
    // Whoever has one of their own was told when it was started.
    let instead = status.is_none() && !args.ask.of.is_own() && args.ask.of.choice()? == Choice::Own;
    if instead && Choice::instead_of_system().is_some() {
        tell("divvy: the system's divvyd is set up here and does not run; what follows is your own");
    }
    if args.ask.of.is_by_default() && matches!(args.ask.of.choice()?, Choice::System(_)) {
        tell_of_own_beside();
    }
    let width = Width::of_output(args.wide);
    match (clients.clients.is_empty(), runs.is_empty()) {
        (true, true) => match user {
            Some(user) => print(format!("no clients of {user}"))?,
            None => print("no clients: see `divvy run` and `divvy attach`")?,
        },
        (true, false) => {}
        (false, _) => {
            table::lines(&clients, width).iter().try_for_each(print)?;
            let cpus = status.as_ref().map_or(0, |status| status.cpus.len());
            table::at_their_width(&clients, cpus).iter().try_for_each(print)?;
            let status = status.iter();
            status.flat_map(|status| table::enforced(status, args.wide)).try_for_each(print)?;
        }
    }
    for (i, run) in runs.into_iter().enumerate() {
        if i > 0 || !clients.clients.is_empty() {
            print("")?;
        }
        table::of_run(run, width).iter().try_for_each(print)?;
    }
    Ok(Code::Done)
}

/// Where the system's divvyd was asked, and one of the user's own divides something too, as one of before: says so.
fn tell_of_own_beside() {
    let Ok(own) = Choice::Own.api().and_then(|api| api.clients()) else { return };
    let names: Vec<&str> = own.clients.iter().map(|client| client.name.as_str()).collect();
    if !names.is_empty() {
        tell(format_args!(
            "divvy: a divvyd of your own runs beside the system's, and divides {} by itself: divvy ls --own",
            names.join(", ")
        ));
    }
}

/// The user that `ls --user` names, as clients have it.
fn user_of(word: &str, which: &Which) -> Result<String, Failure> {
    if !which.is_system()? {
        let text =
            format!("--user {word}: only the system's divvyd has clients of several users; say --system");
        return Err(Failure::new(Code::Usage, text));
    }
    match (divvy_linux::user_id(word), word.parse()) {
        (Some(_), _) => Ok(word.to_owned()),
        (None, Ok(uid)) => Ok(divvy_linux::user_name(uid).unwrap_or_else(|| uid.to_string())),
        (None, Err(_)) => {
            let text = format!("--user {word}: this machine knows no such user; `getent passwd` has all");
            Err(Failure::new(Code::NoSuch, text))
        }
    }
}

/// What `divvy ls --json` prints: divvyd's clients, and what runs of `divvy share` divide by themselves.
#[derive(Serialize)]
struct Everybody {
    #[serde(flatten)]
    clients: Clients,
    /// By what clients are held or weighed, why, and what gives effect to rights; not there where no divvyd runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    backend: Option<BackendInfo>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    runs: Vec<ShareRun>,
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use divvy_api::types::{Member, MemberState};

    use super::*;

    #[test]
    fn a_share_behind_an_equals_sign_is_seen_as_one() {
        for (client, fix) in [
            ("small=3", "divvy set small 3"),
            ("a b=3", "divvy set 'a b' 3"),
            ("small:5", "divvy set small 5"),
            ("small", "write divvy set small 3, or give --limit"),
            ("small=0", "write divvy set 'small=0' 3, or give --limit"),
            ("=3", "write divvy set '=3' 3, or give --limit"),
        ] {
            let Failure { code, text } = nothing_to_set(client);
            assert_eq!(code, Code::Usage);
            assert!(text.contains(fix), "{client}: {text}");
        }
    }

    /// Who pauses all is held with the client that it is in.
    #[test]
    fn ones_own_client_is_the_last_of_all() {
        let member = |pid| Member { pid, name: String::new(), state: MemberState::Running, permitted: true };
        let client = |id, pids: &[i32]| Client {
            id,
            members: pids.iter().copied().map(member).collect(),
            ..Client::default()
        };
        let all = || vec![client(0, &[10, 11]), client(1, &[]), client(2, &[20]), client(3, &[30])];
        let ids = |line: &[i32]| own_last(all(), line).iter().map(|client| client.id).collect::<Vec<_>>();
        assert_eq!(ids(&[12, 11, 5]), [1, 2, 3, 0]);
        assert_eq!(ids(&[31, 20]), [0, 1, 3, 2]);
        assert_eq!(ids(&[99]), [0, 1, 2, 3]);
    }

    /// What came back for a client of somebody else's has the market's code for it, whichever command asked.
    #[test]
    fn what_is_its_owners_to_do_has_a_code_of_its_own() {
        let refused =
            |code| ApiError::Refused(ErrorInfo { code, message: "no".to_owned(), fix: "ask".to_owned() });
        assert_eq!(of_its_owner(refused(ErrorCode::NotPermitted)).code, Code::Denied);
        for code in [ErrorCode::NoSuchClient, ErrorCode::Limit, ErrorCode::Internal, ErrorCode::Protected] {
            assert_eq!(of_its_owner(refused(code)).code, Failure::from(refused(code)).code, "{code:?}");
        }
        // The tickets of a currency are its issuer's to give.
        let api = || LaunchError::Api(refused(ErrorCode::NotPermitted));
        assert_eq!(of_its_currency(Some("alice"), api()).code, Code::Denied);
        assert_eq!(of_its_currency(None, api()).code, Code::System);
        // Elsewhere the same word is the system's: a process that is not the caller's, a divvyd that is not.
        assert_eq!(Failure::from(refused(ErrorCode::NotPermitted)).code, Code::System);
    }
}
